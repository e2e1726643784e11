//! How often pages were wanted again, by their LRU distance: what a cache of any size would have had of
//! them can be read from it.
//!
//! Counts lie in bins of 1/64 of memory, up to eight memories; whatever is further away is in the last
//! bin. Within a bin distances are taken to be evenly spread. Positions are in memories: 1.0 is the
//! distance of the page that just fits into memory without compression.

/// Bins in one memory.
pub(crate) const BINS_PER_MEMORY: usize = 64;
/// Nothing compresses so well, on average, that a cache reaches further.
const MEMORIES: usize = 8;
/// All bins.
pub(crate) const BINS: usize = BINS_PER_MEMORY * MEMORIES;

/// The counts; weighted, so not whole numbers.
#[derive(Clone, Debug)]
pub(crate) struct Distances {
    bins: Vec<f64>,
}

/// Sums of the counts of all bins before each.
///
/// ```text
/// sums.len() == BINS + 1, sums[0] == 0, never decreasing
/// ```
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    sums: Vec<f64>,
}

impl Distances {
    pub(crate) fn new() -> Distances {
        Distances {
            bins: vec![0.0; BINS],
        }
    }

    /// A page of this distance was wanted, in a memory of so many pages.
    pub(crate) fn add(&mut self, distance_pages: u64, memory_pages: u64, weight: f64) {
        let position = distance_pages as f64 / memory_pages.max(1) as f64;
        // `as` takes what is too far into the last bin.
        let bin = (position * BINS_PER_MEMORY as f64) as usize;
        self.bins[bin.min(BINS - 1)] += weight;
    }

    pub(crate) fn scale(&mut self, factor: f64) {
        self.bins.iter_mut().for_each(|count| *count *= factor);
    }

    pub(crate) fn clear(&mut self) {
        self.bins.fill(0.0);
    }

    pub(crate) fn bins(&self) -> &[f64] {
        &self.bins
    }

    pub(crate) fn bins_mut(&mut self) -> &mut [f64] {
        &mut self.bins
    }

    pub(crate) fn sums(&self) -> Sums {
        let running = self.bins.iter().scan(0.0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        Sums {
            sums: std::iter::once(0.0).chain(running).collect(),
        }
    }
}

impl Sums {
    /// What was wanted at distances less than `position`.
    pub(crate) fn before(&self, position: f64) -> f64 {
        let bins = (position * BINS_PER_MEMORY as f64).clamp(0.0, BINS as f64);
        let bin = (bins as usize).min(BINS - 1);
        let within = bins - bin as f64;
        self.sums[bin] + (self.sums[bin + 1] - self.sums[bin]) * within
    }

    /// What was wanted at distances from `from` on and less than `to`.
    pub(crate) fn between(&self, from: f64, to: f64) -> f64 {
        (self.before(to) - self.before(from)).max(0.0)
    }

    /// What was wanted at distances from `position` on.
    pub(crate) fn from(&self, position: f64) -> f64 {
        self.between(position, MEMORIES as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_two_positions_is_counted() {
        let mut distances = Distances::new();
        for distance in 0..2000 {
            distances.add(distance, 1000, 1.0);
        }
        let sums = distances.sums();
        assert!((sums.between(0.25, 0.75) - 500.0).abs() < 5.0);
        assert!((sums.from(1.5) - 500.0).abs() < 5.0);
        assert_eq!(sums.between(0.75, 0.25), 0.0);
    }

    #[test]
    fn the_furthest_distances_are_not_lost() {
        let mut distances = Distances::new();
        distances.add(u64::MAX, 1, 1.0);
        distances.add(0, 0, 1.0);
        assert_eq!(distances.sums().from(7.0), 1.0);
        assert_eq!(distances.sums().from(0.0), 2.0);
    }
}
