//! A hash join: builds a table from one file, then looks up every record of another in it.

use super::parameters::{parameters, PAGES_MAX};
use super::walk::{Generated, Step, Walk};
use super::zipf::{Ranks, Scatter};
use super::Generator;
use crate::random::Random;
use crate::{Common, RegionKind, RegionNo, Source, SpecError};

/// With one record on a page, files still end before page numbers do.
const RECORDS_MAX: u64 = 1 << 50;

parameters! {
    /// Fills a hash table at random places from a file, then probes it with the records of another
    /// file.
    pub struct Hash {
        /// Pages of the table.
        pages: u64 = 65536 in 1..=PAGES_MAX,
        /// Records put into the table.
        build: u64 = 1048576 in 1..=RECORDS_MAX,
        /// Records looked up.
        probe: u64 = 2097152 in 0..=RECORDS_MAX,
        /// Skew of the lookups: 0 for all records alike, 1 for few of them often.
        alpha: f64 = 0.0 in 0.0..=8.0,
        /// Records on a page of the files.
        records: u64 = 64 in 1..=4096,
    }
}

const BUILD_INPUT: RegionNo = RegionNo(0);
const PROBE_INPUT: RegionNo = RegionNo(1);
const TABLE: RegionNo = RegionNo(2);

impl Generator for Hash {
    fn source(&self, common: &Common) -> Result<Box<dyn Source + Send>, SpecError> {
        use RegionKind::{Anonymous, File};
        let walk = Joining {
            parameters: self.clone(),
            built: 0,
            probed: 0,
            file_read: false,
            ranks: Ranks::new(self.pages, self.alpha),
            scatter: Scatter::new(self.pages),
            random: Random::new(common.seed, 0),
        };
        Generated::source(vec![walk], &[File, File, Anonymous], common)
    }
}

struct Joining {
    parameters: Hash,
    built: u64,
    probed: u64,
    /// Whether the page that the record at hand is on has been read.
    file_read: bool,
    ranks: Ranks,
    scatter: Scatter,
    random: Random,
}

impl Joining {
    /// The read of the file page on which record number `record` is the first.
    fn file_page(&mut self, file: RegionNo, record: u64) -> Option<Step> {
        let first = record.is_multiple_of(self.parameters.records);
        self.file_read = first && !self.file_read;
        self.file_read
            .then(|| Step::read(file, record / self.parameters.records))
    }
}

impl Walk for Joining {
    fn step(&mut self) -> Option<Step> {
        if self.built < self.parameters.build {
            if let Some(read) = self.file_page(BUILD_INPUT, self.built) {
                return Some(read);
            }
            self.built += 1;
            // Hashing spreads keys evenly, whatever they are.
            return Some(Step::write(TABLE, self.random.below(self.parameters.pages)));
        }
        if self.probed == self.parameters.probe {
            return None;
        }
        if let Some(read) = self.file_page(PROBE_INPUT, self.probed) {
            return Some(read);
        }
        self.probed += 1;
        let page = self.scatter.place(self.ranks.draw(&mut self.random));
        Some(Step::read(TABLE, page))
    }
}

#[cfg(test)]
mod tests {
    use crate::generate::testing::references;
    use crate::Access;

    #[test]
    fn building_writes_the_table_and_probing_reads_it() {
        let all = references("hash:pages=10,build=100,probe=300,records=10");
        assert_eq!(all.len(), 100 + 10 + 300 + 30);
        let (build, probe) = all.split_at(110);
        assert!(build
            .iter()
            .all(|r| (r.region.0 == 2) == (r.access == Access::Write)));
        assert!(probe
            .iter()
            .all(|r| r.access == Access::Read && r.region.0 != 0));
        assert_eq!((build[0].region.0, build[1].region.0), (0, 2));
        let files: Vec<u64> = probe
            .iter()
            .filter(|r| r.region.0 == 1)
            .map(|r| r.page.0)
            .collect();
        assert_eq!(files, (0..30).collect::<Vec<_>>());
    }

    #[test]
    fn skewed_lookups_hit_few_pages() {
        let most = |alpha| {
            let spec = format!("hash:pages=1000,build=1,probe=10000,alpha={alpha}");
            let mut times = vec![0; 1000];
            for reference in references(&spec).iter().filter(|r| r.region.0 == 2) {
                times[reference.page.0 as usize] += 1;
            }
            times.into_iter().max().unwrap()
        };
        assert!(most(0) < 50 && most(1) > 1000, "{} {}", most(0), most(1));
    }
}
