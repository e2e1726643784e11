//! Address spaces as the kernel reports them: made, forked, ended; ranges given up or moved.
//!
//! Costs follow the pages known in a range, never its length.

use pleat_policy::Backed;
use pleat_types::{PageNo, PageRange, SpaceId, PAGE_SIZE};

use crate::space::Space;
use crate::table::PageState;
use crate::Engine;

impl Engine {
    /// A new address space of which nothing is known. Its number is not used again before four billion others were.
    pub fn add_space(&mut self) -> SpaceId {
        self.insert_space(Space::new(Backed::BySwap))
    }

    /// The pages of a file, none of which is in memory. They are read from the file and written back to
    /// it, never to the swap file; the driver reports every write to one with `touch`, or after it with
    /// `overwritten` (`files.rs`).
    pub fn add_file(&mut self) -> SpaceId {
        self.cache.has_files = true;
        self.insert_space(Space::new(Backed::ByFile))
    }

    /// A forked child: its pages are what the parent's are at this moment. Pages present in both
    /// are counted twice, and the difference taken as shared until memory is measured again.
    ///
    /// # Panics
    /// When the parent does not exist or a page of it is leaving: the command would have to be
    /// settled for both.
    pub fn fork_space(&mut self, parent: SpaceId) -> SpaceId {
        let child = self
            .spaces
            .get(&parent)
            .expect("the parent of a fork exists")
            .fork();
        let counts = child.counts();
        assert_eq!(
            counts.leaving, 0,
            "{parent:?} is forked while pages of it are leaving"
        );
        child
            .bodies()
            .for_each(|body| self.cache.bodies.add_reference(body));
        self.pages.add(counts);
        self.starved &= counts.resident == 0;
        self.foreign_bytes -= (counts.present() * PAGE_SIZE as u64) as i64;
        self.insert_space(child)
    }

    fn insert_space(&mut self, space: Space) -> SpaceId {
        // Four billion later the numbers begin again, without those of spaces that are still there.
        while self.spaces.contains_key(&SpaceId(self.next_space)) {
            self.next_space = self.next_space.wrapping_add(1);
        }
        let id = SpaceId(self.next_space);
        self.next_space = self.next_space.wrapping_add(1);
        self.spaces.insert(id, space);
        id
    }

    /// The address space is gone (exit, exec). Reports of its commands may still come.
    pub fn end_space(&mut self, space: SpaceId) {
        self.forget(
            space,
            PageRange {
                start: PageNo(0),
                end: PageNo(u64::MAX),
            },
        );
        self.spaces.remove(&space);
    }

    /// These pages are present and were unknown; they are the youngest now. Stuck ones get another
    /// chance, all others of the range are left alone. Their memory was part of the last
    /// measurement and is only counted under another name from now on.
    pub fn adopt(&mut self, space: SpaceId, range: PageRange) {
        let before = self.pages.present();
        for page in range.pages() {
            let stamp = self.next_stamp();
            let Some(space) = self.spaces.get_mut(&space) else {
                return;
            };
            if matches!(space.table.get(page), PageState::Unknown | PageState::Stuck) {
                space.arrive(page, stamp, &mut self.pages);
            }
        }
        self.starved = false;
        let adopted = ((self.pages.present() - before) * PAGE_SIZE as u64) as i64;
        self.foreign_bytes -= adopted.min(self.foreign_bytes.max(0));
    }

    /// Stuck pages of a space get another chance, as the youngest: what held them ends without anybody
    /// being told (a mapping was read-only, pages were locked or pinned). Not between a fault and its
    /// answer: `fault` sets pages aside this way. Costs a walk through the table.
    pub fn retry_stuck(&mut self, id: SpaceId) {
        let Some(space) = self.spaces.get_mut(&id) else {
            return;
        };
        let stuck = |&(_, state): &(PageNo, PageState)| state == PageState::Stuck;
        let pages: Vec<PageNo> = space
            .table
            .known()
            .filter(stuck)
            .map(|(page, _)| page)
            .collect();
        for page in pages {
            let stamp = self.cache.next_stamp();
            space.arrive(page, stamp, &mut self.pages);
        }
        self.starved = false;
    }

    /// Pages that are present and refused to be taken.
    pub fn stuck_pages(&self) -> u64 {
        self.pages.stuck
    }

    /// Whether memory is short, and of what is there only pages that refused to be taken are left.
    pub fn needs_stuck(&self) -> bool {
        self.starved && self.pages.stuck > 0 && self.frames_wanted() > 0
    }

    /// These pages were given up (munmap, madvise): unknown from now on, a later fault gets zeros.
    ///
    /// Of a file: they are not part of it any more, or changed behind the driver's back.
    pub fn forget(&mut self, id: SpaceId, range: PageRange) {
        let mut known = std::mem::take(&mut self.scratch);
        let mut rest = range;
        while let Some(space) = self.spaces.get_mut(&id) {
            let Some(part) = space.table.first_part(rest) else {
                break;
            };
            space.forget(part, &mut self.pages, &mut known);
            for (page, state) in known.drain(..) {
                match state {
                    PageState::Away(body) => self.cache.release(body),
                    _ => self.give_up_copy(id, page),
                }
            }
            rest.start = part.end;
        }
        self.scratch = known;
    }

    /// The copy elsewhere of a page that is present is not one any more.
    pub(crate) fn give_up_copy(&mut self, space: SpaceId, page: PageNo) {
        let space = self.spaces.get_mut(&space);
        if let Some(body) = space.and_then(|space| space.give_up_copy(page)) {
            self.cache.release(body);
        }
    }

    /// The program moved `count` pages (mremap). What was at the destination is forgotten; pages
    /// present become the youngest; the source is unknown afterwards.
    ///
    /// A command under way follows its page. Should pages of the source be leaving while commands
    /// to the destination are under way too, the caller must settle the latter first: which report
    /// is about which page could not be told.
    ///
    /// # Panics
    /// When the two ranges overlap, which the kernel forbids.
    pub fn remap(&mut self, id: SpaceId, from: PageNo, to: PageNo, count: u64) {
        let (source, target) = (PageRange::new(from, count), PageRange::new(to, count));
        let apart = source.end <= target.start || target.end <= source.start;
        assert!(apart, "mremap from {source:?} to {target:?} overlaps");
        self.forget(id, target);
        let mut known = std::mem::take(&mut self.scratch);
        let mut rest = source;
        while let Some(space) = self.spaces.get_mut(&id) {
            let Some(part) = space.table.first_part(rest) else {
                break;
            };
            space.detach(part, &mut self.pages, &mut known);
            for (page, state) in known.drain(..) {
                let stamp = self.next_stamp();
                self.give_up_copy(id, page);
                let target = PageNo(page.0 - from.0 + to.0);
                if let Some(space) = self.spaces.get_mut(&id) {
                    space.attach((page, target), state, stamp, &mut self.pages);
                }
            }
            rest.start = part.end;
        }
        self.scratch = known;
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::script::{settings, Script};
    use pleat_types::SpaceId;

    #[test]
    fn after_four_billion_spaces_no_number_is_given_to_two() {
        let mut script = Script::new(settings(), "castro03");
        assert_eq!(script.space, SpaceId(0));
        script.fill(0, 3);
        script.engine.next_space = u32::MAX;
        assert_eq!(script.engine.add_space(), SpaceId(u32::MAX));
        assert_eq!(script.engine.add_space(), SpaceId(1));
        assert_eq!(script.engine.space_resident_pages(SpaceId(0)), 3);
    }
}
