//! Sorting in memory: reads an input file into an array and sorts the array, by merging
//! (`sort`, as GNU sort does in its buffer) or by partitioning (`quicksort`, as in `douglis93`).

use super::parameters::{parameters, PAGES_MAX};
use super::walk::{Generated, Step, Walk};
use super::Generator;
use crate::random::Random;
use crate::{Common, RegionKind, RegionNo, Source, SpecError};

parameters! {
    /// Merge sort: reads the input, then merges runs from one array to another and back, until one
    /// run is left, and writes the output file.
    pub struct Sort {
        /// Pages of the input, and of each of the two arrays.
        pages: u64 = 65536 in 1..=PAGES_MAX,
        /// Pages that are sorted as they are read, within the processor's caches.
        run: u64 = 256 in 1..=PAGES_MAX,
        /// How many runs are merged at once.
        ways: u64 = 2 in 2..=65536,
    }
}

parameters! {
    /// Quicksort: reads the input, then partitions the array from both ends, each part again.
    pub struct Quicksort {
        /// Pages of the input, and of the array.
        pages: u64 = 65536 in 1..=PAGES_MAX,
        /// Pages below which a part is sorted in one go, within the processor's caches.
        run: u64 = 256 in 1..=PAGES_MAX,
    }
}

const INPUT: RegionNo = RegionNo(0);
const ARRAY: RegionNo = RegionNo(1);
const SECOND: RegionNo = RegionNo(2);
const OUTPUT: RegionNo = RegionNo(3);

impl Generator for Sort {
    fn source(&self, common: &Common) -> Result<Box<dyn Source + Send>, SpecError> {
        use RegionKind::{Anonymous, File};
        let walk = Merging {
            pages: self.pages,
            ways: self.ways,
            run: self.run,
            stage: Stage::Load,
            page: 0,
            from: ARRAY,
            to: SECOND,
            write: None,
        };
        Generated::source(vec![walk], &[File, Anonymous, Anonymous, File], common)
    }
}

impl Generator for Quicksort {
    fn source(&self, common: &Common) -> Result<Box<dyn Source + Send>, SpecError> {
        let walk = Partitioning {
            pages: self.pages,
            run: self.run,
            loaded: 0,
            parts: vec![(0, self.pages)],
            part: None,
            write: None,
            random: Random::new(common.seed, 0),
        };
        let regions = [RegionKind::File, RegionKind::Anonymous];
        Generated::source(vec![walk], &regions, common)
    }
}

enum Stage {
    /// Input file to the first array.
    Load,
    /// Runs of one array to longer ones in the other.
    Merge,
    /// The array with the single run to the output file.
    Store,
    Done,
}

/// Every step but a load's second half reads a page of `from` and then writes one of `to`.
struct Merging {
    pages: u64,
    ways: u64,
    /// Length of the runs there are.
    run: u64,
    stage: Stage,
    /// The page to be written next.
    page: u64,
    from: RegionNo,
    to: RegionNo,
    /// The write that belongs to the read before.
    write: Option<Step>,
}

impl Merging {
    /// Which page of `from` goes to place `page`: the runs of a group are used up evenly, as those of
    /// random keys are.
    fn source_of(&self, page: u64) -> u64 {
        let group = self.run.saturating_mul(self.ways);
        let (first, at) = (page - page % group, page % group);
        let length = (self.pages - first).min(group);
        let runs = length.div_ceil(self.run);
        // Taking turns, until the last run, which may be shorter, is used up.
        let last = length - (runs - 1) * self.run;
        let (run, offset) = match at < last * runs {
            true => (at % runs, at / runs),
            false => {
                let rest = at - last * runs;
                (rest % (runs - 1), last + rest / (runs - 1))
            }
        };
        first + run * self.run + offset
    }

    /// Reads of this stage, and the writes that go with them.
    fn pair(&self) -> (Step, Step) {
        let page = self.page;
        match self.stage {
            Stage::Load => (Step::read(INPUT, page), Step::write(self.from, page)),
            Stage::Merge => {
                let source = self.source_of(page);
                (Step::read(self.from, source), Step::write(self.to, page))
            }
            Stage::Store | Stage::Done => (Step::read(self.from, page), Step::write(OUTPUT, page)),
        }
    }

    /// After the last page of a pass.
    fn next_stage(&mut self) {
        self.page = 0;
        if let Stage::Merge = self.stage {
            std::mem::swap(&mut self.from, &mut self.to);
            self.run = self.run.saturating_mul(self.ways);
        }
        self.stage = match self.stage {
            Stage::Load | Stage::Merge if self.run < self.pages => Stage::Merge,
            Stage::Load | Stage::Merge => Stage::Store,
            Stage::Store | Stage::Done => Stage::Done,
        };
    }
}

impl Walk for Merging {
    fn step(&mut self) -> Option<Step> {
        if let Some(write) = self.write.take() {
            return Some(write);
        }
        if let Stage::Done = self.stage {
            return None;
        }
        let (read, write) = self.pair();
        self.write = Some(write);
        self.page += 1;
        if self.page == self.pages {
            self.next_stage();
        }
        Some(read)
    }
}

struct Partitioning {
    pages: u64,
    run: u64,
    /// Pages of the input that have been read.
    loaded: u64,
    /// Still to be sorted, `start..end`; the last is next. As many as halvings make.
    parts: Vec<(u64, u64)>,
    /// The part at hand: where the pass through it is, from below and from above.
    part: Option<Part>,
    write: Option<Step>,
    random: Random,
}

struct Part {
    start: u64,
    end: u64,
    low: u64,
    high: u64,
}

impl Partitioning {
    /// Both halves of a part that has been gone through, the lower on top; small ones are sorted.
    fn split(&mut self, part: &Part) {
        let length = part.end - part.start;
        if length <= self.run || length < 2 {
            return;
        }
        // The median of a sample: between a quarter and three quarters.
        let at = length / 4 + self.random.below((length / 2).max(1));
        let middle = part.start + at.clamp(1, length - 1);
        self.parts.push((middle, part.end));
        self.parts.push((part.start, middle));
    }

    /// The next page of the pass: from below and from above in turns, until they meet.
    fn touch(&mut self) -> Option<u64> {
        loop {
            if let Some(part) = self.part.as_mut().filter(|part| part.low < part.high) {
                let from_below = (part.high - part.low) % 2 == (part.end - part.start) % 2;
                return Some(match from_below {
                    true => {
                        part.low += 1;
                        part.low - 1
                    }
                    false => {
                        part.high -= 1;
                        part.high
                    }
                });
            }
            if let Some(part) = self.part.take() {
                self.split(&part);
            }
            let (start, end) = self.parts.pop()?;
            self.part = Some(Part {
                start,
                end,
                low: start,
                high: end,
            });
        }
    }
}

impl Walk for Partitioning {
    fn step(&mut self) -> Option<Step> {
        if let Some(write) = self.write.take() {
            return Some(write);
        }
        if self.loaded < self.pages {
            self.loaded += 1;
            self.write = Some(Step::write(ARRAY, self.loaded - 1));
            return Some(Step::read(INPUT, self.loaded - 1));
        }
        // Elements are exchanged all along a page: one touch, which writes.
        self.touch().map(|page| Step::write(ARRAY, page))
    }
}

#[cfg(test)]
mod tests {
    use crate::generate::testing::references;
    use crate::{Access, Reference};
    use std::collections::BTreeSet;

    fn of(all: &[Reference], region: u32, access: Access) -> Vec<u64> {
        let wanted = |r: &&Reference| r.region.0 == region && r.access == access;
        all.iter().filter(wanted).map(|r| r.page.0).collect()
    }

    #[test]
    fn every_pass_of_a_merge_reads_and_writes_each_page_once() {
        for (pages, run, ways, passes) in
            [(64, 4, 2, 4), (100, 7, 3, 3), (5, 8, 2, 0), (9, 1, 16, 1)]
        {
            let spec = format!("sort:pages={pages},run={run},ways={ways}");
            let all = references(&spec);
            assert_eq!(all.len() as u64, 2 * pages * (2 + passes), "{spec}");
            let order: Vec<u64> = (0..pages).collect();
            assert_eq!(of(&all, 0, Access::Read), order, "input: {spec}");
            assert_eq!(of(&all, 3, Access::Write), order, "output: {spec}");
            for region in [1, 2] {
                for pass in of(&all, region, Access::Read).chunks(pages as usize) {
                    let seen: BTreeSet<u64> = pass.iter().copied().collect();
                    assert_eq!(seen.len() as u64, pages, "{spec}: {pass:?}");
                }
            }
        }
    }

    #[test]
    fn a_merge_reads_its_runs_side_by_side() {
        let all = references("sort:pages=8,run=4");
        assert_eq!(of(&all, 1, Access::Read), [0, 4, 1, 5, 2, 6, 3, 7]);
    }

    #[test]
    fn quicksort_goes_through_ever_smaller_parts() {
        let all = references("quicksort:pages=64,run=4,seed=3");
        let array = of(&all, 1, Access::Write);
        let load: Vec<u64> = (0..64).collect();
        assert_eq!(array[..64], load);
        assert_eq!(array[64..68], [0, 63, 1, 62], "from both ends");
        let first_pass: BTreeSet<u64> = array[64..128].iter().copied().collect();
        assert_eq!(first_pass.len(), 64);
        // From 64 to 4 pages it takes at least four halvings, at most ten of three quarters.
        let passes = (array.len() - 64) as f64 / 64.0;
        assert!((4.0..10.0).contains(&passes), "{passes}");
    }
}
