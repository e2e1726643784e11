//! What a trace holds, counted: how much memory it touches, how often, how it compresses.

use crate::format::Sizes;
use crate::{Access, ProcessNo, RegionNo, Source};
use pleat_types::{PageNo, PAGE_SIZE};
use std::collections::HashMap;

/// Figures of a whole trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// One for each process.
    pub processes: Vec<ProcessSurvey>,
    /// Regions, touched or not.
    pub regions: u64,
    /// Different pages of all processes together; those of shared files count once.
    pub pages: u64,
    /// Mean of what these pages compress to at the end, as a share of a page.
    pub compressed_share: f64,
}

/// Figures of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessSurvey {
    /// Touches.
    pub references: u64,
    /// Touches that write.
    pub writes: u64,
    /// Different pages touched.
    pub pages: u64,
    /// CPU time between touches.
    pub think_ns: u64,
}

impl Survey {
    /// Goes through all references of `source` from where its processes are. Needs memory in
    /// proportion to the pages touched.
    pub fn of(source: &mut dyn Source) -> Survey {
        let mut sizes = Sizes::default();
        let processes = (0..source.processes())
            .map(|process| ProcessSurvey::of(source, ProcessNo(process), &mut sizes))
            .collect();
        let (pages, bytes) = sizes.iter().fold((0u64, 0u64), |(pages, sum), bytes| {
            (pages + 1, sum + u64::from(bytes))
        });
        Survey {
            processes,
            regions: source.regions().len() as u64,
            pages,
            compressed_share: bytes as f64 / (pages.max(1) * PAGE_SIZE as u64) as f64,
        }
    }

    /// The sums over all processes; pages that several touch count for each.
    pub fn total(&self) -> ProcessSurvey {
        let sum = |of: fn(&ProcessSurvey) -> u64| {
            let figures = self.processes.iter().map(of);
            figures.fold(0, u64::saturating_add)
        };
        ProcessSurvey {
            references: sum(|process| process.references),
            writes: sum(|process| process.writes),
            pages: sum(|process| process.pages),
            think_ns: sum(|process| process.think_ns),
        }
    }
}

impl ProcessSurvey {
    fn of(source: &mut dyn Source, process: ProcessNo, sizes: &mut Sizes) -> ProcessSurvey {
        let mut survey = ProcessSurvey::default();
        let mut touched = Touched::default();
        while let Some(reference) = source.next(process) {
            let (region, page) = (reference.region, reference.page);
            survey.references += 1;
            survey.writes += u64::from(reference.access == Access::Write);
            survey.think_ns = survey.think_ns.saturating_add(reference.think_ns);
            survey.pages += u64::from(touched.insert(region, page));
            sizes.set(region, page, source.compressed_bytes(region, page));
        }
        survey
    }
}

/// A set of pages, a bit for each in blocks of neighbours.
#[derive(Default)]
struct Touched {
    blocks: HashMap<(RegionNo, u64), u64>,
}

impl Touched {
    /// Whether it was not in the set before.
    fn insert(&mut self, region: RegionNo, page: PageNo) -> bool {
        let block = self.blocks.entry((region, page.0 / 64)).or_default();
        let bit = 1 << (page.0 % 64);
        let is_new = *block & bit == 0;
        *block |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator;

    #[test]
    fn counts_are_those_of_the_trace() {
        let spec = "thrasher:pages=100,passes=3,write=0,think_ns=7+scan:pages=60,think_ns=1";
        let survey = Survey::of(&mut *generator(spec).unwrap());
        assert_eq!((survey.regions, survey.pages), (2, 160));
        let [thrasher, scan] = survey.processes[..] else {
            panic!("{survey:?}");
        };
        assert_eq!((thrasher.references, thrasher.writes), (300, 100));
        assert_eq!((thrasher.pages, thrasher.think_ns), (100, 2100));
        assert_eq!((scan.references, scan.writes, scan.pages), (60, 0, 60));
        assert_eq!(survey.total().references, 360);
        assert!((0.35..0.45).contains(&survey.compressed_share));
    }

    #[test]
    fn pages_that_processes_share_count_once() {
        let survey = Survey::of(&mut *generator("compile:jobs=2,units=2,heap=20").unwrap());
        assert!(survey.pages < survey.total().pages, "{survey:?}");
    }
}
