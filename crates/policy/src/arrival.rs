//! Pages that leave memory in the order in which they came, in use or not, because nobody sees their uses: how many
//! faults more a smaller memory has.
//!
//! A page stays until as many have come as there is room for, then is away until it is wanted, then comes back, and so
//! on. How long it is away does not hang on how long it stayed:
//!
//! ```text
//!        | <------ U ------> | <- w -> |       with U' instead of U:
//!       here               gone      wanted    (U + w) / (U' + w) times as many faults
//! ```
//!
//! That is the difference to LRU, where pages in use do not leave, and those that come back at once are just beyond
//! what is in memory: a little less of it would bring as many more. Taken for that, pages in use all the time, which are
//! back at once whatever the size of memory, spoke against every larger cache: a compiler in 200 MB read 16,000 pages
//! from the swap file, and now reads 2,000 to 6,000, with as many faults in all.
//!
//! A larger memory is another thing. Most pages that come back soon are let stay (they have lives, and scouts in front
//! of them), more of them the more room there is; and what LRU would have spared is about what is spared.

use crate::distances::{Distances, BINS_PER_MEMORY};

/// The faults there would have been in a memory of `then`, no larger than the one of `now` in which these
/// distances were seen; positions as in `distances.rs`.
pub(crate) fn faults_in_less(distances: &Distances, now: f64, then: f64) -> f64 {
    let bins = distances.bins().iter().enumerate();
    let faults = bins.filter(|(_, count)| **count > 0.0).map(|(bin, count)| {
        let middle = (bin as f64 + 0.5) / BINS_PER_MEMORY as f64;
        let away = (middle - now).max(0.0);
        count * (now + away) / (then + away).max(1.0 / BINS_PER_MEMORY as f64)
    });
    faults.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Touches of pages that came back after so long, in hundredths of memory, away from a memory of a half.
    fn back_after(away_percent: u64, touches: u64) -> Distances {
        let mut distances = Distances::new();
        (0..touches).for_each(|_| distances.add(50 + away_percent, 100, 1.0));
        distances
    }

    #[test]
    fn pages_in_use_all_the_time_come_back_oftener_by_as_much_as_memory_is_smaller() {
        let faults = faults_in_less(&back_after(0, 100), 0.5, 0.4);
        assert!((faults - 125.0).abs() < 3.0, "{faults}");
    }

    #[test]
    fn pages_wanted_seldom_come_back_little_oftener() {
        let faults = faults_in_less(&back_after(300, 100), 0.5, 0.4);
        assert!((faults - 103.0).abs() < 1.0, "{faults}");
    }

    #[test]
    fn without_memory_it_is_no_less_than_finite() {
        assert!(faults_in_less(&back_after(0, 100), 0.5, 0.0).is_finite());
    }
}
