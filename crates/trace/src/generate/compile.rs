//! A build: several compilers side by side, each with its own sources and heap, that share headers and
//! the compiler's program file.

use super::parameters::parameters;
use super::walk::{Generated, Step, Walk};
use super::zipf::{Ranks, Scatter};
use super::Generator;
use crate::random::Random;
use crate::{Common, RegionKind, RegionNo, Source, SpecError};

parameters! {
    /// Compiles source files, `jobs` at a time: reads the source and popular headers, runs code of the
    /// shared compiler, grows a heap in which recent pages are touched most, and writes an object
    /// file. A job's heap begins anew with each file, in the same pages.
    pub struct Compile {
        /// Compilers that run at the same time.
        jobs: u64 = 2 in 1..=4096,
        /// Source files, over all jobs.
        units: u64 = 200 in 1..=1 << 32,
        /// Pages that the heap of one compilation grows to.
        heap: u64 = 4096 in 1..=1 << 22,
        /// Pages of all headers together.
        headers: u64 = 8192 in 1..=1 << 28,
        /// Pages of the compiler's program file.
        text: u64 = 6144 in 1..=1 << 28,
        /// Touches of one compilation for each page of its heap.
        work: u64 = 12 in 1..=4096,
        /// Pages of a source file, and of an object file.
        source: u64 = 8 in 1..=65536,
        /// How popular the popular headers and functions are.
        alpha: f64 = 0.9 in 0.0..=8.0,
    }
}

const SOURCES: RegionNo = RegionNo(0);
const HEADERS: RegionNo = RegionNo(1);
const TEXT: RegionNo = RegionNo(2);
const OBJECTS: RegionNo = RegionNo(3);
/// The heap of job 0; those of the other jobs follow.
const FIRST_HEAP: u32 = 4;
/// Pages of a header that are read one after the other.
const HEADER_RUN: u64 = 4;

impl Generator for Compile {
    fn source(&self, common: &Common) -> Result<Box<dyn Source + Send>, SpecError> {
        let mut regions = vec![RegionKind::File; FIRST_HEAP as usize];
        regions.resize(regions.len() + self.jobs as usize, RegionKind::Anonymous);
        let job = |number: u64| Job {
            parameters: self.clone(),
            heap: RegionNo(FIRST_HEAP + number as u32),
            unit: number,
            at: 0,
            grown: 0,
            header: 0..0,
            shared: [self.headers, self.text].map(|pages| Shared {
                ranks: Ranks::new(pages, self.alpha),
                scatter: Scatter::new(pages),
            }),
            ages: Ranks::new(self.heap, HEAP_LOCALITY),
            random: Random::new(common.seed, number),
        };
        Generated::source((0..self.jobs).map(job).collect(), &regions, common)
    }
}

/// How much the heap's recent pages are preferred, as an exponent of their age.
const HEAP_LOCALITY: f64 = 1.2;

/// A file that all jobs read, some of its pages often.
struct Shared {
    ranks: Ranks,
    scatter: Scatter,
}

impl Shared {
    fn draw(&self, random: &mut Random) -> u64 {
        self.scatter.place(self.ranks.draw(random))
    }
}

struct Job {
    parameters: Compile,
    heap: RegionNo,
    /// Which source file is at hand; the next is `jobs` further on.
    unit: u64,
    /// Touches of this compilation so far.
    at: u64,
    /// Pages of the heap in use.
    grown: u64,
    /// Pages of a header that are still to be read.
    header: std::ops::Range<u64>,
    /// Headers and text.
    shared: [Shared; 2],
    ages: Ranks,
    random: Random,
}

impl Job {
    /// Touches of one compilation before it writes its object file.
    fn work(&self) -> u64 {
        self.parameters.heap * self.parameters.work
    }

    fn next_unit(&mut self) {
        self.unit += self.parameters.jobs;
        (self.at, self.grown) = (0, 0);
    }

    /// One touch in the middle of a compilation: first more of headers and source, then more of code.
    fn compute(&mut self) -> Step {
        let work = self.work();
        let done = self.at;
        self.at += 1;
        // The heap grows evenly over the compilation.
        if self.grown * work <= done * self.parameters.heap {
            self.grown += 1;
            return Step::write(self.heap, self.grown - 1);
        }
        if let Some(page) = self.header.next() {
            return Step::read(HEADERS, page);
        }
        let parsing = done < work / 3;
        match (parsing, self.random.below(16)) {
            (true, 0) => self.source_page(done, work),
            (true, 1..=3) => self.header_page(),
            (_, 0..=6) => Step::read(TEXT, self.shared[1].draw(&mut self.random)),
            (_, 7..=10) => Step::write(self.heap, self.recent()),
            _ => Step::read(self.heap, self.recent()),
        }
    }

    /// The page of the source file that parsing has come to.
    fn source_page(&self, done: u64, work: u64) -> Step {
        let page = done * self.parameters.source / (work / 3).max(1);
        let page = page.min(self.parameters.source - 1);
        Step::read(SOURCES, self.unit * self.parameters.source + page)
    }

    fn header_page(&mut self) -> Step {
        let first = self.shared[0].draw(&mut self.random);
        let end = (first + 1 + self.random.below(HEADER_RUN)).min(self.parameters.headers);
        self.header = first + 1..end;
        Step::read(HEADERS, first)
    }

    /// A page of the heap, more likely one that was allocated lately.
    fn recent(&mut self) -> u64 {
        let age = self.ages.draw(&mut self.random) % self.grown;
        self.grown - 1 - age
    }
}

impl Walk for Job {
    fn step(&mut self) -> Option<Step> {
        if self.unit >= self.parameters.units {
            return None;
        }
        if self.at < self.work() {
            return Some(self.compute());
        }
        let page = self.at - self.work();
        let object = self.unit * self.parameters.source + page;
        self.at += 1;
        if page + 1 == self.parameters.source {
            self.next_unit();
        }
        Some(Step::write(OBJECTS, object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::testing::references_of;
    use crate::{Access, Reference};
    use std::collections::BTreeSet;

    const SPEC: &str = "compile:jobs=3,units=7,heap=50,headers=100,text=80,source=4";

    fn pages(all: &[Reference], region: RegionNo) -> BTreeSet<u64> {
        let of_it = all.iter().filter(|r| r.region == region);
        of_it.map(|r| r.page.0).collect()
    }

    #[test]
    fn every_unit_is_compiled_once_by_one_job() {
        let mut objects = BTreeSet::new();
        for job in 0..3 {
            let all = references_of(SPEC, job);
            let units = [3, 2, 2][job as usize];
            assert_eq!(all.len(), units * (50 * 12 + 4), "job {job}");
            for page in pages(&all, OBJECTS) {
                assert!(objects.insert(page), "{page} twice");
            }
            assert_eq!(pages(&all, RegionNo(FIRST_HEAP + job)).len(), 50);
            let others = (0..3).filter(|other| *other != job);
            for other in others {
                assert!(pages(&all, RegionNo(FIRST_HEAP + other)).is_empty());
            }
        }
        assert_eq!(objects, (0..28).collect());
    }

    #[test]
    fn shared_files_are_read_by_all_jobs_and_written_by_none() {
        let jobs: Vec<Vec<Reference>> = (0..3).map(|job| references_of(SPEC, job)).collect();
        for region in [HEADERS, TEXT] {
            let common = &pages(&jobs[0], region) & &pages(&jobs[1], region);
            assert!(common.len() > 10, "{region:?}: {common:?}");
        }
        let written = jobs.iter().flatten().filter(|r| r.access == Access::Write);
        let regions: BTreeSet<u32> = written.map(|r| r.region.0).collect();
        assert_eq!(regions, (3..7).collect());
    }

    #[test]
    fn a_heap_page_is_written_before_anything_else_happens_to_it() {
        let mut seen = BTreeSet::new();
        for reference in references_of(SPEC, 0) {
            let heap = reference.region.0 == FIRST_HEAP;
            if heap && seen.insert(reference.page.0) {
                assert_eq!(reference.access, Access::Write);
            }
        }
    }
}
