//! A file written and read from beginning to end, several times: `iozone`, whose worst case for a
//! compressed cache that keeps memory only is a file about as large as memory (`ramzswap09`).

use super::parameters::{parameters, COUNT_MAX, PAGES_MAX};
use super::walk::{Generated, Step, Walk};
use super::Generator;
use crate::{Common, RegionKind, RegionNo, Source, SpecError};

parameters! {
    /// Fills anonymous memory that it does not use again, then goes through a file: writes it, writes it
    /// again, reads it, reads it again, and all that as often as there are rounds.
    pub struct Iozone {
        /// Pages of the file.
        pages: u64 = 131072 in 1..=PAGES_MAX,
        /// Pages of anonymous memory, filled at the start and then left alone.
        idle: u64 = 32768 in 0..=PAGES_MAX,
        /// How often the file is written twice and read twice.
        rounds: u64 = 1 in 1..=COUNT_MAX,
    }
}

const IDLE: RegionNo = RegionNo(0);
const FILE: RegionNo = RegionNo(1);
/// Write, write again, read, read again.
const PASSES: u64 = 4;
const PASSES_WRITING: u64 = 2;

impl Generator for Iozone {
    fn source(&self, common: &Common) -> Result<Box<dyn Source + Send>, SpecError> {
        let walk = Passes {
            pages: self.pages,
            idle_left: self.idle,
            idle: self.idle,
            rounds_left: self.rounds,
            pass: 0,
            page: 0,
        };
        let regions = [RegionKind::Anonymous, RegionKind::File];
        Generated::source(vec![walk], &regions, common)
    }
}

struct Passes {
    pages: u64,
    idle: u64,
    /// Pages of idle memory still to be filled.
    idle_left: u64,
    /// This one included.
    rounds_left: u64,
    /// Which pass of the round.
    pass: u64,
    page: u64,
}

impl Walk for Passes {
    fn step(&mut self) -> Option<Step> {
        if self.idle_left > 0 {
            self.idle_left -= 1;
            return Some(Step::write(IDLE, self.idle - self.idle_left - 1));
        }
        if self.rounds_left == 0 {
            return None;
        }
        let (page, pass) = (self.page, self.pass);
        self.page += 1;
        if self.page == self.pages {
            self.page = 0;
            self.pass = (pass + 1) % PASSES;
            self.rounds_left -= u64::from(self.pass == 0);
        }
        Some(if pass < PASSES_WRITING {
            Step::write(FILE, page)
        } else {
            Step::read(FILE, page)
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::generate::testing::references;
    use crate::Access;

    #[test]
    fn a_file_is_written_twice_and_read_twice_after_memory_was_filled() {
        let all = references("iozone:pages=3,idle=2,rounds=2");
        let of = |region: u32, access| {
            let wanted = all
                .iter()
                .filter(move |r| r.region.0 == region && r.access == access);
            wanted.map(|r| r.page.0).collect::<Vec<_>>()
        };
        assert_eq!(of(0, Access::Write), [0, 1]);
        assert_eq!(of(0, Access::Read), []);
        assert_eq!(of(1, Access::Write), [0, 1, 2].repeat(4));
        assert_eq!(of(1, Access::Read), [0, 1, 2].repeat(4));
        let accesses: Vec<_> = all[2..14].iter().map(|r| r.access).collect();
        assert!(accesses[..6].iter().all(|&access| access == Access::Write));
        assert!(accesses[6..].iter().all(|&access| access == Access::Read));
    }
}
