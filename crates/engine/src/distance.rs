//! How many pages left memory after a given one and are still away: what makes up its LRU distance.
//!
//! Pages are counted in buckets of those that left at about the same time, at most 256 buckets of
//! about 1/64 of the pages each, so a distance is right to within some two per cent and costs a
//! short sum. Everything in memory was used after everything away, as far as the engine knows.

use std::collections::VecDeque;

const BUCKETS_MAX: usize = 256;
/// A bucket is closed when it has this part of all pages: 1/64.
const BUCKET_SHIFT: u32 = 6;
const BUCKET_LEAST: u64 = 16;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// When the first of its pages left memory.
    start: u64,
    pages: u64,
}

/// Pages away, by the time they left. `total == sum of all buckets`; starts ascend.
#[derive(Default)]
pub(crate) struct Distances {
    buckets: VecDeque<Bucket>,
    total: u64,
}

impl Distances {
    /// A page leaves memory, after all others.
    pub(crate) fn add(&mut self, now: u64) {
        self.total += 1;
        let most = self.bucket_pages();
        match self.buckets.back_mut() {
            Some(bucket) if bucket.pages < most => bucket.pages += 1,
            _ => {
                self.buckets.push_back(Bucket {
                    start: now,
                    pages: 1,
                });
                if self.buckets.len() > BUCKETS_MAX {
                    self.merge();
                }
            }
        }
    }

    /// A page that left at `left_at` is back, or is counted no longer.
    pub(crate) fn remove(&mut self, left_at: u64) {
        let index = self.bucket_of(left_at);
        self.total -= 1;
        self.buckets[index].pages -= 1;
    }

    /// How many pages left after one that left at `left_at`.
    pub(crate) fn newer_than(&self, left_at: u64) -> u64 {
        let index = self.bucket_of(left_at);
        let newer = self.buckets.range(index + 1..).map(|bucket| bucket.pages);
        newer.sum::<u64>() + self.buckets[index].pages / 2
    }

    /// Pages counted.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    fn bucket_pages(&self) -> u64 {
        (self.total >> BUCKET_SHIFT).max(BUCKET_LEAST)
    }

    fn bucket_of(&self, left_at: u64) -> usize {
        let after = self.buckets.partition_point(|b| b.start <= left_at);
        assert!(after > 0, "a page that left at {left_at} is not counted");
        after - 1
    }

    /// Makes one of neighbours that are small enough. Two that remain neighbours have more than a
    /// bucket's pages together, so half as many are left as may be.
    fn merge(&mut self) {
        let most = self.bucket_pages();
        let mut merged: VecDeque<Bucket> = VecDeque::with_capacity(self.buckets.len());
        for &bucket in &self.buckets {
            match merged.back_mut() {
                Some(last) if last.pages + bucket.pages <= most => last.pages += bucket.pages,
                _ => merged.push_back(bucket),
            }
        }
        self.buckets = merged;
    }

    pub(crate) fn is_valid(&self) -> bool {
        let pages: u64 = self.buckets.iter().map(|bucket| bucket.pages).sum();
        let starts = self.buckets.iter().map(|bucket| bucket.start);
        let ascending = starts.clone().zip(starts.skip(1)).all(|(a, b)| a < b);
        pages == self.total && ascending && self.buckets.len() <= BUCKETS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_is_right_to_within_two_per_cent_of_all_pages() {
        let mut distances = Distances::default();
        // Every third page comes back at once, so the buckets get holes.
        for now in 0..100_000 {
            distances.add(now);
            if now % 3 == 0 {
                distances.remove(now);
            }
        }
        assert!(distances.is_valid());
        let away = |at: u64| at - at.div_ceil(3);
        for at in (0..100_000).step_by(997) {
            let truth = (away(100_000) - away(at)) as f64;
            let error = (distances.newer_than(at) as f64 - truth).abs() / away(100_000) as f64;
            assert!(error < 0.02, "at {at}: {error}");
        }
    }

    #[test]
    fn pages_come_and_go_for_ever_in_a_bounded_table() {
        let mut distances = Distances::default();
        for now in 0..300_000u64 {
            distances.add(now);
            if now >= 1000 {
                distances.remove(now - 1000);
            }
        }
        assert!(distances.is_valid());
        assert_eq!(distances.total(), 1000);
        assert!(distances.newer_than(299_999) <= 16);
        assert!(distances.newer_than(299_000) >= 950);
    }
}
