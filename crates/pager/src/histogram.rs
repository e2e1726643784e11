//! How often something took how long: eight buckets for each power of two, so that a quantile is right
//! within a sixteenth. Any thread adds to it, without a lock.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets for each power of two.
const PER_OCTAVE: usize = 8;
/// Times from 2^42 ns on, more than an hour, are all the same.
const OCTAVES: usize = 40;
const BUCKETS: usize = PER_OCTAVE * OCTAVES;

/// Times in nanoseconds.
#[derive(Debug)]
pub(crate) struct Histogram {
    total_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// What a histogram comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// How often.
    pub count: u64,
    /// Nanoseconds in all.
    pub total_ns: u64,
    /// Nanoseconds, on average.
    pub mean_ns: u64,
    /// Half took no longer.
    pub median_ns: u64,
    /// One in a hundred took longer.
    pub p99_ns: u64,
}

impl Histogram {
    /// Of nothing yet.
    pub(crate) const fn new() -> Histogram {
        Histogram {
            total_ns: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }

    /// Counts something that took this long.
    pub(crate) fn add(&self, ns: u64) {
        self.add_all(ns, 1);
    }

    /// Counts so many that took this long together, each an equal part of it.
    pub(crate) fn add_all(&self, total_ns: u64, count: u64) {
        if let Some(each_ns) = total_ns.checked_div(count) {
            self.total_ns.fetch_add(total_ns, Ordering::Relaxed);
            self.buckets[bucket_of(each_ns)].fetch_add(count, Ordering::Relaxed);
        }
    }

    /// What it comes to so far.
    pub(crate) fn figures(&self) -> Figures {
        let total_ns = self.total_ns.load(Ordering::Relaxed);
        let counts = self.counts();
        let count = counts.iter().sum();
        Figures {
            count,
            total_ns,
            mean_ns: total_ns.checked_div(count).unwrap_or(0),
            median_ns: quantile(&counts, count.div_ceil(2)),
            p99_ns: quantile(&counts, count - count / 100),
        }
    }

    /// One in so many took longer.
    pub(crate) fn quantile(&self, part: u64) -> u64 {
        let counts = self.counts();
        let count: u64 = counts.iter().sum();
        quantile(&counts, count - count / part)
    }

    /// The middle of each bucket that holds any, and how many.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts().into_iter().enumerate();
        let any = counts.filter(|(_, count)| *count > 0);
        any.map(|(bucket, count)| (middle_of(bucket), count))
    }

    fn counts(&self) -> [u64; BUCKETS] {
        let buckets = self.buckets.each_ref();
        buckets.map(|bucket| bucket.load(Ordering::Relaxed))
    }
}

/// The middle of the bucket that holds the `rank`th, from 1 on; 0 where there is none.
fn quantile(counts: &[u64], rank: u64) -> u64 {
    let mut seen = 0;
    let found = counts.iter().position(|count| {
        seen += count;
        seen >= rank && rank > 0
    });
    found.map_or(0, middle_of)
}

fn bucket_of(ns: u64) -> usize {
    let octave = ns.max(1).ilog2() as usize;
    let shift = octave.saturating_sub(PER_OCTAVE.ilog2() as usize);
    // Below the second power of eight every number has a bucket of its own.
    let bucket = shift * PER_OCTAVE + (ns >> shift) as usize;
    bucket.min(BUCKETS - 1)
}

fn middle_of(bucket: usize) -> u64 {
    let shift = (bucket / PER_OCTAVE).saturating_sub(1);
    let start = (bucket - shift * PER_OCTAVE) << shift;
    (start + (1 << shift) / 2) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_within_a_sixteenth_of_the_middle_of_its_bucket() {
        let mut last = 0;
        for ns in (0..5000).chain((13..42).flat_map(|n| [(1 << n) - 1, 1 << n, (1 << n) + 12345])) {
            let bucket = bucket_of(ns);
            let middle = middle_of(bucket);
            assert!(ns.abs_diff(middle) * 16 <= ns, "{ns} in {bucket}: {middle}");
            assert!(bucket >= last || ns > 4999, "{ns}: buckets are in order");
            last = bucket;
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_what_was_counted() {
        let histogram = Histogram::new();
        (1..=1000u64).rev().for_each(|us| histogram.add(us * 1000));
        let figures = histogram.figures();
        assert_eq!((figures.count, figures.mean_ns), (1000, 500_500));
        assert!(figures.median_ns.abs_diff(500_000) < 500_000 / 16);
        assert!(figures.p99_ns.abs_diff(990_000) < 990_000 / 16);
    }

    #[test]
    fn what_took_its_time_together_is_counted_each() {
        let histogram = Histogram::new();
        histogram.add_all(7000, 7);
        histogram.add_all(9, 0);
        let figures = histogram.figures();
        assert_eq!((figures.count, figures.total_ns), (7, 7000));
        assert!(figures.p99_ns.abs_diff(1000) < 1000 / 16);
    }

    #[test]
    fn nothing_comes_to_nothing() {
        assert_eq!(Histogram::new().figures(), Figures::default());
    }
}
