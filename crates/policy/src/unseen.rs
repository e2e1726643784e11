//! What is not seen: how often uncompressed pages are touched.
//!
//! A larger cache would take page frames from them, and what that costs has to be guessed. Two sources:
//! - Memory: when the cache was larger, it was seen. Kept relative to touches beyond all of memory, which
//!   are seen with every size, and trusted less the longer ago that was.
//! - The edge: the least recently used of them are touched about as often as the most recently used of
//!   those that are seen, and further in it rises like 1 / distance, as with Zipf's law. That is too much
//!   for most programs, so that a cache does not grow on a guess alone.

use crate::distances::{Distances, BINS, BINS_PER_MEMORY};

/// Bins at the edge from which those within are estimated.
const EDGE: usize = 4;
/// Of what was seen of a bin, so much is left a batch later, when it is seen again.
const KEPT: f64 = 0.9;
/// So much is still trusted a batch later, when it is not.
const TRUSTED: f64 = 0.998;

/// What was seen of each bin.
#[derive(Debug)]
pub(crate) struct Unseen {
    bins: Vec<Memory>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    touches: f64,
    /// Touches beyond all of memory in the same batches.
    far: f64,
    /// 1 while it is seen, falling to 0 thereafter.
    trust: f64,
}

impl Unseen {
    pub(crate) fn new() -> Unseen {
        Unseen {
            // The only bins that are ever uncompressed.
            bins: vec![Memory::default(); BINS_PER_MEMORY],
        }
    }

    /// Fills in the bins of pages that are uncompressed now, the first `uncompressed` memories, and learns
    /// from the others. `usable` memories are what fits without compression.
    pub(crate) fn complete(&mut self, batch: &mut Distances, uncompressed: f64, usable: f64) {
        let far = batch.sums().from(usable);
        let edge = (uncompressed * BINS_PER_MEMORY as f64) as usize;
        let at_edge = density(batch.bins(), edge + 1);
        let seen = batch.bins_mut().iter_mut().zip(&mut self.bins);
        for (bin, (count, memory)) in seen.enumerate() {
            if bin > edge {
                memory.learn(*count, far);
                continue;
            }
            memory.trust *= TRUSTED;
            let rise = (edge as f64 + 1.0) / (bin as f64 + 0.5);
            let guess = memory.guess(far, at_edge * rise);
            // The bin at the edge is seen in part, and distances are not exact.
            *count = count.max(guess);
        }
    }
}

impl Memory {
    fn learn(&mut self, touches: f64, far: f64) {
        self.touches = self.touches * KEPT + touches;
        self.far = self.far * KEPT + far;
        self.trust = 1.0;
    }

    fn guess(&self, far: f64, from_edge: f64) -> f64 {
        let remembered = self.touches / self.far.max(1.0) * far;
        self.trust * remembered + (1.0 - self.trust) * from_edge
    }
}

/// Mean count of the few bins from `first` on.
fn density(bins: &[f64], first: usize) -> f64 {
    let edge = &bins[first.min(BINS - EDGE)..][..EDGE];
    edge.iter().sum::<f64>() / EDGE as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One touch of each page from `from` to `to` per cent of a memory of 6400 pages.
    fn touched(from: u64, to: u64) -> Distances {
        let mut batch = Distances::new();
        (from * 64..to * 64).for_each(|page| batch.add(page, 6400, 1.0));
        batch
    }

    #[test]
    fn what_was_never_seen_is_guessed_from_the_edge_and_rises_inwards() {
        let mut batch = touched(50, 150);
        Unseen::new().complete(&mut batch, 0.5, 1.0);
        let near = batch.sums().between(0.4, 0.5);
        let within = batch.sums().between(0.1, 0.2);
        assert!((640.0..1000.0).contains(&near), "{near}");
        assert!(within > 2.0 * near, "{within}");
    }

    #[test]
    fn what_was_seen_before_is_remembered_in_proportion() {
        let mut unseen = Unseen::new();
        // Nothing between 20 % and 50 %, so that the edge alone would mislead.
        for _ in 0..10 {
            let mut batch = touched(50, 150);
            unseen.complete(&mut batch, 0.2, 1.0);
        }
        let mut batch = touched(60, 125);
        unseen.complete(&mut batch, 0.6, 1.0);
        // Half as many come from beyond memory, so half as many are expected here.
        let guess = batch.sums().between(0.5, 0.58);
        assert!((guess - 0.08 * 6400.0 / 2.0).abs() < 60.0, "{guess}");
        assert!(batch.sums().between(0.25, 0.45) < 40.0);
    }

    #[test]
    fn what_was_seen_long_ago_counts_no_more() {
        let mut unseen = Unseen::new();
        unseen.complete(&mut touched(20, 150), 0.2, 1.0);
        for _ in 0..5000 {
            unseen.complete(&mut touched(140, 150), 0.6, 1.0);
        }
        let mut batch = touched(140, 150);
        unseen.complete(&mut batch, 0.6, 1.0);
        assert!(batch.sums().before(0.6) < 10.0);
    }

    #[test]
    fn where_nothing_is_wanted_nothing_is_expected() {
        let mut batch = touched(140, 150);
        Unseen::new().complete(&mut batch, 1.0, 1.0);
        assert_eq!(batch.sums().before(1.0), 0.0);
    }
}
