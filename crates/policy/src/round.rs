//! Programs that go round and round through more than memory holds, where most of memory is left alone meanwhile: what
//! a round misses is what is not there, and a smaller memory misses so much more.
//!
//! ```text
//! a round of W pages, U of them in memory:  misses W - U, each over a distance of W
//!                                           all of them hits if W - U pages fit into the cache, else none
//! ```
//!
//! That is the opposite of LRU, where a page more in memory spares nothing until all fit.

/// The part of memory in which that comes and goes which does not stay.
const PASSING: f64 = 1.0 / 16.0;
/// A read costs so much of what it was measured to: those of a round keep the device busy all the time, and as many
/// writes beside them. (512 MB that compress 1.5:1, in 420 MB, took 3.7 us a page with reads, 3.2 without; what was
/// measured spoke for reads.)
const READ_FACTOR: f64 = 1.25;

/// What came back in rounds since the last decision.
#[derive(Debug, Default)]
pub(crate) struct Round {
    touches: u64,
    distances_pages: f64,
}

/// A division of memory; positions as in `distances.rs`, in memories.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    pub(crate) uncompressed: f64,
    pub(crate) cached: f64,
}

impl Split {
    /// Pages that need not be read.
    pub(crate) fn reach(&self) -> f64 {
        self.uncompressed + self.cached
    }
}

/// Faults of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Faults {
    /// Answered from the cache.
    pub(crate) hits: f64,
    /// That have to be read.
    pub(crate) reads: f64,
}

impl Round {
    /// A page was wanted.
    pub(crate) fn add(&mut self, distance_pages: u64) {
        self.touches += 1;
        self.distances_pages += distance_pages as f64;
    }

    pub(crate) fn touches(&self) -> u64 {
        self.touches
    }

    /// The faults of this batch in other divisions of a memory of so many pages, of which `now` is the part that was
    /// uncompressed. Those of `splits` have ever less of that. Reads are weighted by [`READ_FACTOR`].
    pub(crate) fn faults(&self, now: f64, memory_pages: u64, splits: &[Split]) -> Vec<Faults> {
        /// What is missed is never taken for less: all could be as well.
        const LEAST_MISSED: f64 = 1.0 / 64.0;
        let touches = self.touches as f64;
        let round = self.distances_pages / touches.max(1.0) / memory_pages.max(1) as f64;
        let of = |uncompressed: f64| {
            let missed = (round - uncompressed + PASSING).max(0.0);
            touches * missed / (round - now + PASSING).max(LEAST_MISSED)
        };
        // A cache that may be larger than it has to be is not: pages are compressed only when room is needed.
        let fitting = splits.iter().find(|split| split.reach() >= round);
        let enough = fitting.map(|split| Faults {
            hits: of(split.uncompressed),
            reads: 0.0,
        });
        let faults = |split: &Split| match enough.filter(|_| split.reach() >= round) {
            Some(faults) => faults,
            None => Faults {
                hits: 0.0,
                reads: of(split.uncompressed) * READ_FACTOR,
            },
        };
        splits.iter().map(faults).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 touches in a round of so many hundredths of a memory of 1000 pages, with half of it uncompressed.
    fn faults(round_percent: u64) -> Vec<Faults> {
        let mut round = Round::default();
        (0..64).for_each(|_| round.add(round_percent * 10));
        let split = |nth: u32| Split {
            uncompressed: 1.0 - f64::from(nth) / 10.0,
            cached: f64::from(nth) / 10.0 * 3.0,
        };
        let splits: Vec<Split> = (0..=8).map(split).collect();
        round.faults(0.5, 1000, &splits)
    }

    #[test]
    fn a_round_that_fits_nowhere_misses_what_is_not_in_memory() {
        let faults = faults(400);
        assert_eq!(faults[5].reads, 64.0 * READ_FACTOR);
        let less = (3.0 + PASSING) / (3.5 + PASSING);
        assert!((faults[0].reads / faults[5].reads - less).abs() < 1e-9);
        assert!(faults.windows(2).all(|two| two[0].reads < two[1].reads));
        assert!(faults.iter().all(|faults| faults.hits == 0.0));
    }

    #[test]
    fn a_round_that_fits_compressed_is_read_only_where_the_cache_is_too_small() {
        let faults = faults(155);
        assert!(faults[..3]
            .iter()
            .all(|faults| faults.hits == 0.0 && faults.reads > 0.0));
        assert!(faults[3..]
            .iter()
            .all(|&like| like == faults[3] && like.reads == 0.0));
    }

    #[test]
    fn no_touches_no_faults() {
        let split = Split {
            uncompressed: 1.0,
            cached: 0.0,
        };
        let faults = Round::default().faults(1.0, 0, &[split]);
        assert_eq!(faults, [Faults::default()]);
    }
}
