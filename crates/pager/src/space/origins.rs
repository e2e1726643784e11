//! Which ranges of an address space are filled from a file when a page of them is touched for the first
//! time, and from where in it.
//!
//! It follows the same events as the registered ranges do, in the space's thread alone: cut by munmap,
//! copied by mremap (whose old range is cut by the munmap event that follows; with MREMAP_DONTUNMAP it
//! stays, and reads as the file again, as the kernel's own mapping would), cloned by a fork.
//! MADV_DONTNEED changes nothing here: the pages are unknown, and come from the file again.
//!
//! The engine knows nothing of it. To it these are first touches; only what they are answered with is
//! another thing than zeros. So nothing it decides about a page depends on where the page once came from,
//! and once filled it is the program's own like any other.

use crate::files::Origin;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A range and what fills it: a file, or memory that stands in for one.
#[derive(Debug)]
pub(super) struct Part<F = Origin> {
    /// First address after it.
    pub(super) end: u64,
    /// The file.
    pub(super) file: Arc<F>,
    /// Where in the file its first page begins.
    pub(super) offset: u64,
}

/// Ranges that do not overlap, by their first address.
#[derive(Debug)]
pub(super) struct Origins<F = Origin>(BTreeMap<u64, Part<F>>);

impl<F> Clone for Part<F> {
    fn clone(&self) -> Part<F> {
        let file = self.file.clone();
        Part { file, ..*self }
    }
}

impl<F> Clone for Origins<F> {
    fn clone(&self) -> Origins<F> {
        Origins(self.0.clone())
    }
}

impl<F> Default for Origins<F> {
    fn default() -> Origins<F> {
        Origins(BTreeMap::new())
    }
}

impl<F> Origins<F> {
    /// The first file that is like this.
    pub(super) fn find(&self, is_meant: impl Fn(&Arc<F>) -> bool) -> Option<Arc<F>> {
        let mut files = self.0.values().map(|part| &part.file);
        files.find(|file| is_meant(file)).cloned()
    }

    /// Every file, perhaps several times.
    pub(super) fn files(&self) -> impl Iterator<Item = &Arc<F>> {
        self.0.values().map(|part| &part.file)
    }

    /// Nothing is filled from this file any more.
    pub(super) fn remove(&mut self, file: &Arc<F>) {
        self.0.retain(|_, part| !Arc::ptr_eq(&part.file, file));
    }

    /// Has a range filled from a file, whatever it was before.
    pub(super) fn insert(&mut self, start: u64, part: Part<F>) {
        self.cut(start, part.end);
        self.0.insert(start, part);
    }

    /// What fills the page at `address` and those behind it.
    pub(super) fn at(&self, address: u64) -> Option<Part<F>> {
        let (start, part) = self.0.range(..=address).next_back()?;
        (address < part.end).then(|| part.from(address - start))
    }

    /// Whether any page of `[start, end)` is filled from a file.
    pub(super) fn touches(&self, start: u64, end: u64) -> bool {
        self.next_start(start, end).is_some()
    }

    /// The first address in `[start, end)` that is filled from a file.
    pub(super) fn next_start(&self, start: u64, end: u64) -> Option<u64> {
        if start < end && self.at(start).is_some() {
            return Some(start);
        }
        self.0
            .range(start..end.max(start))
            .next()
            .map(|(at, _)| *at)
    }

    /// Nothing in `[start, end)` is filled from a file any more.
    pub(super) fn cut(&mut self, start: u64, end: u64) {
        let hit = self.0.range(..end).rev();
        let hit: Vec<u64> = hit
            .take_while(|(_, part)| part.end > start)
            .map(|(at, _)| *at)
            .collect();
        for at in hit {
            let part = self.0.remove(&at).expect("just found");
            if part.end > end {
                self.0.insert(end, part.from(end - at));
            }
            if at < start {
                self.0.insert(at, Part { end: start, ..part });
            }
        }
    }

    /// Pages have moved: what filled `[from, from + len)` fills `[to, to + len)`, and nothing else does.
    pub(super) fn copy(&mut self, from: u64, to: u64, len: u64) {
        let source = self.0.range(..from + len).rev();
        let source: Vec<(u64, Part<F>)> = source
            .take_while(|(_, part)| part.end > from)
            .map(|(at, part)| {
                let first = (*at).max(from);
                let end = part.end.min(from + len);
                (
                    first,
                    Part {
                        end,
                        ..part.from(first - at)
                    },
                )
            })
            .collect();
        self.cut(to, to + len);
        for (at, part) in source {
            let end = part.end - from + to;
            self.0.insert(at - from + to, Part { end, ..part });
        }
    }
}

impl<F> Part<F> {
    /// The part of it behind its first `skip` bytes.
    fn from(&self, skip: u64) -> Part<F> {
        Part {
            offset: self.offset + skip,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const PAGE: u64 = 4096;

    /// What fills each page: number of the file and of the page in it.
    type Model = HashMap<u64, (u64, u64)>;

    fn part(file: &Arc<Origin>, end: u64, offset: u64) -> Part {
        let (end, offset) = (end * PAGE, offset * PAGE);
        let file = file.clone();
        Part { end, file, offset }
    }

    fn expect_same(origins: &Origins, model: &Model, pages: u64) {
        for page in 0..pages {
            let found = origins.at(page * PAGE);
            let found = found.map(|part| (part.file.number, part.offset / PAGE));
            assert_eq!(found, model.get(&page).copied(), "page {page}");
        }
        for start in 0..pages {
            let next = (start..pages).find(|page| model.contains_key(page));
            let found = origins.next_start(start * PAGE, pages * PAGE);
            assert_eq!(found, next.map(|page| page * PAGE), "from page {start}");
        }
        let mut before = 0;
        for (start, part) in &origins.0 {
            assert!(*start >= before && part.end > *start, "ranges overlap");
            before = part.end;
        }
    }

    #[test]
    fn a_part_cut_in_two_goes_on_in_the_right_place_of_the_file() {
        let file = Arc::new(Origin::nowhere(7));
        let mut origins = Origins::default();
        origins.insert(16 * PAGE, part(&file, 32, 100));
        origins.cut(20 * PAGE, 24 * PAGE);
        assert_eq!(origins.at(19 * PAGE).unwrap().offset, 103 * PAGE);
        assert_eq!(origins.at(19 * PAGE).unwrap().end, 20 * PAGE);
        assert!(origins.at(20 * PAGE).is_none() && origins.at(23 * PAGE).is_none());
        assert_eq!(origins.at(24 * PAGE).unwrap().offset, 108 * PAGE);
        assert!(!origins.touches(20 * PAGE, 24 * PAGE) && origins.touches(20 * PAGE, 25 * PAGE));
    }

    #[test]
    fn every_page_comes_from_where_a_map_of_single_pages_says() {
        const PAGES: u64 = 48;
        let files: Vec<_> = (0..3).map(|n| Arc::new(Origin::nowhere(n))).collect();
        let mut seed = 1u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let (mut origins, mut model) = (Origins::default(), Model::new());
        for _ in 0..20_000 {
            let len = 1 + draw(12);
            let start = draw(PAGES - len + 1);
            let file = &files[draw(3) as usize];
            let offset = draw(1000);
            match draw(3) {
                0 => {
                    origins.insert(start * PAGE, part(file, start + len, offset));
                    (0..len).for_each(|n| {
                        model.insert(start + n, (file.number, offset + n));
                    });
                }
                1 => {
                    origins.cut(start * PAGE, (start + len) * PAGE);
                    (0..len).for_each(|n| {
                        model.remove(&(start + n));
                    });
                }
                _ => {
                    let to = draw(PAGES - len + 1);
                    if to < start + len && start < to + len {
                        continue;
                    }
                    origins.copy(start * PAGE, to * PAGE, len * PAGE);
                    for n in 0..len {
                        match model.get(&(start + n)).copied() {
                            Some(what) => model.insert(to + n, what),
                            None => model.remove(&(to + n)),
                        };
                    }
                }
            }
            expect_same(&origins, &model, PAGES);
        }
    }
}
