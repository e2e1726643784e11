//! The cost/benefit analysis of kaplan99: Wilson, Kaplan, Smaragdakis, "The Case for Compressed Caching in
//! Virtual Memory Systems", USENIX 1999, section 3.
//!
//! For a few target sizes the recent past is asked what the cache would have saved and cost. With n frames
//! of which k hold compressed pages at ratio r:
//!
//! ```text
//! LRU distance   0 ......... n - k ......... n ......... n - k + k / r ........
//!                uncompressed  | cost: each is compressed and decompressed
//!                                            | benefit: no read |
//! ```
//!
//! "The compressed cache of 50 pages out of 100, at 2:1": every touch beyond position 50 costs, touches at
//! 101 to 150 are the benefit. The past fades with events, not with time, and in proportion to memory: "the
//! M-th most recent event (with M being the size of memory) has a weight equal to 20% of the most recent
//! event"; targets are none, 10, 23, 37 and 50 per cent (both from "Simulation parameters").
//!
//! Differences:
//! - Events are pages that come back, because touches of uncompressed pages are not seen. What a size
//!   larger than the present one would cost is therefore underestimated until the cache has that size.
//! - The mean compression ratio is that of the cache as it is, its metadata and fragmentation counted.
//! - It begins with the smallest target instead of none, so that a ratio is known.

use pleat_types::PAGE_SIZE;

use crate::distances::Distances;
use crate::{Advice, CacheView, Costs, Giver, List, Refault, Sizing};

/// The sizes compared, per cent of memory.
const TARGETS_PERCENT: [u64; 5] = [0, 10, 23, 37, 50];
/// Before there is experience: the smallest that is any.
const FIRST_PERCENT: u64 = 10;
/// Weight of the M-th most recent event.
const WEIGHT_A_MEMORY_AGO: f64 = 0.2;
/// Pages that came back between two analyses.
const WINDOW: u64 = 1024;
/// Before any page was compressed, pages are taken to compress to a half.
const RATIO: f64 = 0.5;
/// Weights grow with each event rather than that the past is multiplied; here they are scaled back.
const WEIGHT_MAX: f64 = 1e12;

/// What was wanted recently, and the target that would have been best for it.
#[derive(Debug)]
pub struct Kaplan99 {
    touches: Distances,
    /// Weight of the next event.
    weight: f64,
    events: u64,
    ratio: f64,
    costs: Costs,
    target_percent: u64,
}

impl Default for Kaplan99 {
    fn default() -> Kaplan99 {
        Kaplan99 {
            touches: Distances::new(),
            weight: 1.0,
            events: 0,
            ratio: RATIO,
            costs: Costs::default(),
            target_percent: FIRST_PERCENT,
        }
    }
}

impl Kaplan99 {
    fn target_bytes(&self, view: &CacheView) -> u64 {
        crate::notation::share(view.budget_bytes, self.target_percent)
    }

    fn count(&mut self, distance_pages: u64, memory_pages: u64) {
        self.touches.add(distance_pages, memory_pages, self.weight);
        self.weight *= WEIGHT_A_MEMORY_AGO.powf(-1.0 / memory_pages.max(1) as f64);
        if self.weight > WEIGHT_MAX {
            self.touches.scale(1.0 / self.weight);
            self.weight = 1.0;
        }
    }

    /// Chooses the target that saves most; none when every one costs more than it saves.
    fn analyse(&mut self) {
        let sums = self.touches.sums();
        let codec_ns = (self
            .costs
            .compress_ns
            .saturating_add(self.costs.decompress_ns)) as f64;
        let gain = |percent: u64| {
            let cache = percent as f64 / 100.0;
            let reach = 1.0 - cache + cache / self.ratio;
            let cost = sums.from(1.0 - cache) * codec_ns;
            sums.between(1.0, reach) * self.costs.read_ns as f64 - cost
        };
        let mut best = (0, 0.0);
        for percent in TARGETS_PERCENT.into_iter().skip(1) {
            let gain = gain(percent);
            if gain > best.1 {
                best = (percent, gain);
            }
        }
        self.target_percent = best.0;
    }
}

impl Sizing for Kaplan99 {
    fn name(&self) -> &'static str {
        "kaplan99"
    }

    fn may_grow(&mut self, view: &CacheView) -> bool {
        view.cache_bytes < self.target_bytes(view)
    }

    fn hit(&mut self, _list: List, _view: &CacheView) -> Advice {
        Advice::Keep
    }

    fn refault(&mut self, refault: Refault, view: &CacheView) {
        self.count(refault.distance_pages, view.budget_bytes / PAGE_SIZE as u64);
        self.events += 1;
        if self.events.is_multiple_of(WINDOW) {
            self.ratio = view.ratio().unwrap_or(self.ratio);
            self.analyse();
        }
    }

    fn giver(&mut self, view: &CacheView) -> Giver {
        if view.cache_bytes > self.target_bytes(view) {
            Giver::Compressed
        } else {
            Giver::Uncompressed
        }
    }

    fn costs(&mut self, costs: Costs) {
        self.costs = costs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backed, Tier};

    const MEMORY_PAGES: u64 = 10_000;

    fn view() -> CacheView {
        let budget_bytes = MEMORY_PAGES * PAGE_SIZE as u64;
        CacheView {
            budget_bytes,
            cache_bytes: budget_bytes / 4,
            // Two to one.
            cached_pages: MEMORY_PAGES / 2,
            resident_pages: MEMORY_PAGES * 3 / 4,
            ..CacheView::default()
        }
    }

    fn live(policy: &mut Kaplan99, touches: u64, distance_percent: u64) {
        for _ in 0..touches {
            let refault = Refault {
                tier: Tier::Cache,
                distance_pages: MEMORY_PAGES * distance_percent / 100,
                backed: Backed::BySwap,
                in_round: false,
                by_arrival: false,
            };
            policy.refault(refault, &view());
        }
    }

    fn after(touches: u64, distance_percent: u64) -> Kaplan99 {
        let mut policy = Kaplan99::default();
        live(&mut policy, touches, distance_percent);
        policy
    }

    #[test]
    fn the_smallest_target_that_reaches_what_is_wanted_is_chosen() {
        for (distance, target) in [(105, 10), (115, 23), (130, 37), (145, 50)] {
            let policy = after(2 * WINDOW, distance);
            assert_eq!(policy.target_percent, target, "{distance}");
        }
    }

    #[test]
    fn no_cache_is_best_where_none_would_reach_and_where_all_fits_without() {
        for distance in [95, 70, 160, 790] {
            let mut policy = after(2 * WINDOW, distance);
            assert_eq!(policy.target_percent, 0, "{distance}");
            assert!(!policy.may_grow(&view()));
            assert_eq!(policy.giver(&view()), Giver::Compressed);
        }
    }

    #[test]
    fn a_read_cheaper_than_the_codec_leaves_no_cache() {
        let mut policy = Kaplan99::default();
        policy.costs(Costs {
            compress_ns: 8000,
            decompress_ns: 6000,
            read_ns: 13_000,
            write_ns: 0,
        });
        live(&mut policy, 2 * WINDOW, 110);
        assert_eq!(policy.target_percent, 0);
    }

    #[test]
    fn a_memory_of_touches_later_the_past_weighs_a_fifth() {
        let mut policy = after(MEMORY_PAGES, 145);
        assert_eq!(policy.target_percent, 50);
        // All of what is wanted now would be there without a cache.
        live(&mut policy, MEMORY_PAGES, 70);
        let sums = policy.touches.sums();
        let share = sums.from(1.4) / sums.from(0.0);
        assert!((share - 0.2 / 1.2).abs() < 0.01, "{share}");
        assert_eq!(policy.target_percent, 0);
    }

    #[test]
    fn weights_stay_finite() {
        let policy = after(60 * MEMORY_PAGES, 105);
        assert!(policy.weight <= WEIGHT_MAX && policy.touches.sums().from(0.0).is_finite());
    }
}
