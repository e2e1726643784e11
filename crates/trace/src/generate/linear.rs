//! Walks from the first page to the last: `thrasher`, the worst case of every LRU, and `scan`, a file
//! read or written as a stream.

use super::parameters::{parameters, COUNT_MAX, PAGES_MAX};
use super::walk::{Generated, Step, Walk};
use super::Generator;
use crate::random::{Chance, Random};
use crate::{Common, RegionKind, RegionNo, Source, SpecError};

parameters! {
    /// Cycles linearly through its memory, one word of each page (`douglis93`, section 5.1). The first
    /// pass writes every page, whatever `write` says: memory never written is zeros.
    pub struct Thrasher {
        /// Pages of anonymous memory.
        pages: u64 = 65536 in 1..=PAGES_MAX,
        /// How often it goes through all of them, the first pass included.
        passes: u64 = 4 in 1..=COUNT_MAX,
        /// Share of the touches that write.
        write: f64 = 1.0 in 0.0..=1.0,
    }
}

parameters! {
    /// Reads a file from its beginning to its end, once or more.
    pub struct Scan {
        /// Pages of the file.
        pages: u64 = 262144 in 1..=PAGES_MAX,
        /// How often it goes through all of them.
        passes: u64 = 1 in 1..=COUNT_MAX,
        /// Share of the touches that write.
        write: f64 = 0.0 in 0.0..=1.0,
    }
}

impl Generator for Thrasher {
    fn source(&self, common: &Common) -> Result<Box<dyn Source + Send>, SpecError> {
        let mut walk = Linear::new(self.pages, self.passes, self.write, common.seed);
        walk.fills = true;
        Generated::source(vec![walk], &[RegionKind::Anonymous], common)
    }
}

impl Generator for Scan {
    fn source(&self, common: &Common) -> Result<Box<dyn Source + Send>, SpecError> {
        let walk = Linear::new(self.pages, self.passes, self.write, common.seed);
        Generated::source(vec![walk], &[RegionKind::File], common)
    }
}

/// Through one region, again and again.
struct Linear {
    pages: u64,
    /// Still to come, this one included.
    passes: u64,
    page: u64,
    /// Whether every touch of this pass writes.
    fills: bool,
    writes: Chance,
    random: Random,
}

impl Linear {
    fn new(pages: u64, passes: u64, write: f64, seed: u64) -> Linear {
        Linear {
            pages,
            passes,
            page: 0,
            fills: false,
            writes: Chance::new(write),
            random: Random::new(seed, 0),
        }
    }
}

impl Walk for Linear {
    #[inline]
    fn step(&mut self) -> Option<Step> {
        if self.passes == 0 {
            return None;
        }
        let page = self.page;
        let writes = self.fills || self.writes.draw(&mut self.random);
        self.page += 1;
        if self.page == self.pages {
            self.page = 0;
            self.passes -= 1;
            self.fills = false;
        }
        Some(match writes {
            true => Step::write(RegionNo(0), page),
            false => Step::read(RegionNo(0), page),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::generate::testing::{pages, writes};
    use crate::{generator, RegionKind};

    #[test]
    fn thrasher_cycles_linearly_and_ends() {
        let cycle = [0, 1, 2, 0, 1, 2];
        assert_eq!(pages("thrasher:pages=3,passes=2"), cycle);
        assert_eq!(writes("thrasher:pages=3,passes=2"), 6);
    }

    #[test]
    fn a_thrasher_that_only_reads_has_written_everything_before() {
        assert_eq!(writes("thrasher:pages=100,passes=3,write=0"), 100);
        let half = writes("thrasher:pages=1000,passes=11,write=0.5") - 1000;
        assert!((4500..5500).contains(&half), "{half}");
    }

    #[test]
    fn scan_streams_through_a_file_and_leaves_it_as_it_is() {
        let source = generator("scan:pages=4").unwrap();
        assert_eq!(source.regions(), [RegionKind::File]);
        assert_eq!(pages("scan:pages=4"), [0, 1, 2, 3]);
        assert_eq!(writes("scan:pages=4,passes=3"), 0);
    }
}
