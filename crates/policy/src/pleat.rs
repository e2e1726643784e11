//! pleat's own sizing: the split between uncompressed and compressed memory that minimises stall time.
//!
//! With n page frames of which k hold compressed pages at ratio r, what a page costs that is wanted at
//! LRU distance d follows from where it is:
//!
//! ```text
//! d   0 ............... n - k ............... n - k + k / r ...............
//!     uncompressed: 0     | compressed: C + D |  on disk: C + R + W
//! ```
//!
//! (C, D, R, W: compress the page that leaves in exchange, decompress, read, write; as the driver measures
//! them.) Distances of pages that come back are seen wherever they come from, so for every size on a grid
//! it is known what the last touches would have cost with it, except for pages that are uncompressed now:
//! those stall nobody and tell nothing. For them `unseen.rs` has an estimate, and where no uses are seen at all, so that
//! pages leave in the order in which they came, `arrival.rs`.
//!
//! In a program that goes round and round, of which what is in memory is left alone, it is otherwise (`round.rs`).
//!
//! Moving costs, too: a cache that grows compresses what it takes in, one that shrinks writes what it
//! loses. When to move is therefore the question of a metrical task system on a line, and the answer
//! is the *work function* (Borodin, Linial, Saks, "An optimal on-line algorithm for metrical task systems",
//! JACM 1992): for each size, the least that the past could have cost if one had to be there now. It moves
//! when what staying has cost more equals the cost of the move. So it is quick where much is to be gained,
//! slow where little is, forgets in proportion to the size of memory, and has no thresholds.

use pleat_types::PAGE_SIZE;

use crate::arrival;
use crate::distances::Distances;
use crate::notation::percent;
use crate::round::{Faults, Round, Split};
use crate::unseen::Unseen;
use crate::work_function::WorkFunction;
use crate::{Advice, Backed, CacheView, Costs, Giver, List, Refault, Sizing, Tier};

/// Sizes compared: so many steps of the budget.
const STEPS: usize = 64;
/// Least and largest share of the budget, unless said otherwise, per cent.
const LEAST_PERCENT: u64 = 0;
const MOST_PERCENT: u64 = 90;
/// Touches between two decisions, at most, and in a memory of so many pages one for each.
const BATCH_MAX: u64 = 1024;
const BATCH_MIN: u64 = 64;
const PAGES_PER_TOUCH: u64 = 16;
/// Distances are known to a few per cent, and pages do not compress alike: the compressed part is taken
/// to reach this much of what it should.
const REACH_CERTAIN: f64 = 0.95;
/// Of each batch, so many touches more are expected of the pages in the cache, whichever: pages that were
/// not wanted lately may be, and where a read takes as long as a thousand hits that is worth knowing.
const UNEXPECTED: f64 = 0.5;
/// Before any page was compressed, pages are taken to compress to a half.
const RATIO: f64 = 0.5;

/// The touches since the last decision, and what was learned from those before.
#[derive(Debug)]
pub struct Pleat {
    least_step: usize,
    most_step: usize,
    /// The bound, in steps of the budget.
    step: usize,
    batch: Distances,
    round: Round,
    touches: u64,
    /// Of these, pages backed by swap: they are written before they can be read.
    swap_touches: u64,
    /// Of these, pages of which no uses are seen.
    arrival_touches: u64,
    /// Pages that had come back at the last decision.
    back_pages: u64,
    unseen: Unseen,
    work: WorkFunction,
    ratio: f64,
    costs: Costs,
}

impl Default for Pleat {
    fn default() -> Pleat {
        Pleat::within(LEAST_PERCENT, MOST_PERCENT)
    }
}

impl Pleat {
    /// Reads what follows `pleat:`.
    ///
    /// # Errors
    /// A message that shows how to write it.
    pub fn from_text(text: &str) -> Result<Pleat, String> {
        let shares = text.split_once(':').and_then(|(least, most)| {
            let most = percent(most, 1..=100)?;
            Some((percent(least, 0..=most)?, most))
        });
        let (least, most) = shares.ok_or_else(|| {
            format!(
                "pleat:{text}: write the least and the largest share of the budget, \
                 as in pleat:{LEAST_PERCENT}%:{MOST_PERCENT}%"
            )
        })?;
        Ok(Pleat::within(least, most))
    }

    fn within(least_percent: u64, most_percent: u64) -> Pleat {
        let most_step = most_percent as usize * STEPS / 100;
        let least_step = (least_percent as usize * STEPS)
            .div_ceil(100)
            .min(most_step);
        Pleat {
            least_step,
            most_step,
            // "We begin with the assumption that compressed caching is useful [...] at first, it does not
            // have limitations to its growth" (castro03, section 3): a cache too large costs hits, one
            // too small costs reads, which are dearer.
            step: most_step,
            batch: Distances::new(),
            round: Round::default(),
            touches: 0,
            swap_touches: 0,
            arrival_touches: 0,
            back_pages: 0,
            unseen: Unseen::new(),
            work: WorkFunction::new(most_step - least_step + 1),
            ratio: RATIO,
            costs: Costs::default(),
        }
    }

    /// Looks at the touches since the last time and moves the bound where that pays.
    fn decide(&mut self, view: &CacheView) {
        self.ratio = view.ratio().unwrap_or(self.ratio);
        let memory = Memory::of(view);
        let stalls = self.stalls_ns(view, &memory);
        // Sizes that it may not have are none to wait for at the bound.
        let from = self.step - self.least_step;
        self.step = self.least_step + self.work.serve(&stalls, self.move_ns(view), from);
        self.batch.clear();
        self.round = Round::default();
        self.back_pages = view.back_pages;
        (self.touches, self.swap_touches, self.arrival_touches) = (0, 0, 0);
    }

    /// What it costs to make the cache a step larger or smaller.
    fn move_ns(&self, view: &CacheView) -> f64 {
        let pages = view.budget_bytes as f64 / (PAGE_SIZE * STEPS) as f64 / self.ratio;
        // What was measured is for each page that is wanted, with all that leave for those that come along.
        let back = view.back_pages.saturating_sub(self.back_pages) as f64;
        let along = (back / self.touches.max(1) as f64).max(1.0);
        pages * (self.costs.compress_ns as f64 / along + self.costs.write_ns as f64)
    }

    /// What the touches of this batch would have cost with each size that the cache may have.
    fn stalls_ns(&mut self, view: &CacheView, memory: &Memory) -> Vec<f64> {
        let splits: Vec<Split> = (self.least_step..=self.most_step)
            .map(|step| memory.split(step, self.ratio))
            .collect();
        let faults = match self.round.touches() * 2 > self.touches {
            true => {
                let pages = view.budget_bytes / PAGE_SIZE as u64;
                self.round.faults(memory.uncompressed, pages, &splits)
            }
            false => self.faults(memory, &splits),
        };
        faults.iter().map(|faults| self.cost_ns(*faults)).collect()
    }

    /// The faults of this batch in these divisions of memory, by the distances over which pages came back.
    fn faults(&mut self, memory: &Memory, splits: &[Split]) -> Vec<Faults> {
        let now = memory.uncompressed;
        let by_arrival = self.arrival_touches * 2 > self.touches;
        let in_less = |split: &Split| {
            let is_smaller = by_arrival && split.uncompressed < now;
            is_smaller.then(|| arrival::faults_in_less(&self.batch, now, split.uncompressed))
        };
        let in_less: Vec<Option<f64>> = splits.iter().map(in_less).collect();
        self.unseen.complete(&mut self.batch, now, memory.usable);
        let sums = self.batch.sums();
        let reach_now = now + memory.cache() / self.ratio;
        let faults = |(split, in_less): (&Split, Option<f64>)| {
            let lost = 1.0 - (split.reach() / reach_now).min(1.0);
            let reads = sums.from(split.reach());
            Faults {
                hits: match in_less {
                    Some(faults) => (faults - reads).max(0.0),
                    None => sums.between(split.uncompressed, split.reach()),
                },
                reads: reads + UNEXPECTED * lost,
            }
        };
        splits.iter().zip(in_less).map(faults).collect()
    }

    /// What so many faults cost.
    fn cost_ns(&self, faults: Faults) -> f64 {
        let hit_ns = (self.costs.compress_ns as f64) + self.costs.decompress_ns as f64;
        let written = self.swap_touches as f64 / self.touches.max(1) as f64;
        let write_ns = self.costs.write_ns as f64 * written;
        let miss_ns = self.costs.compress_ns as f64 + self.costs.read_ns as f64 + write_ns;
        faults.hits * hit_ns + faults.reads * miss_ns
    }
}

/// How memory is used now, in budgets.
struct Memory {
    uncompressed: f64,
    /// All that pages are in, compressed or not: the budget less what else is in it.
    usable: f64,
}

impl Memory {
    fn cache(&self) -> f64 {
        (self.usable - self.uncompressed).max(0.0)
    }

    /// How it is divided with a cache of so many steps.
    fn split(&self, step: usize, ratio: f64) -> Split {
        let cache = step as f64 / STEPS as f64;
        Split {
            uncompressed: (self.usable - cache).max(0.0),
            cached: cache / ratio * REACH_CERTAIN,
        }
    }

    fn of(view: &CacheView) -> Memory {
        let budget = view.budget_bytes.max(1) as f64;
        let uncompressed = view.resident_pages as f64 * PAGE_SIZE as f64 / budget;
        let usable = uncompressed + view.cache_bytes as f64 / budget;
        Memory {
            uncompressed: uncompressed.min(1.0),
            // While memory is free, what is in it is no measure of it.
            usable: usable.clamp(0.75, 1.0),
        }
    }
}

impl Sizing for Pleat {
    fn name(&self) -> &'static str {
        "pleat"
    }

    fn may_grow(&mut self, view: &CacheView) -> bool {
        view.cache_bytes < self.bound_bytes(view)
    }

    fn hit(&mut self, _list: List, view: &CacheView) -> Advice {
        if view.cache_bytes > self.bound_bytes(view) {
            Advice::Shrink
        } else {
            Advice::Keep
        }
    }

    fn refault(&mut self, refault: Refault, view: &CacheView) {
        // Costs the same whatever the size.
        if refault.tier == Tier::Staged {
            return;
        }
        let pages = view.budget_bytes / PAGE_SIZE as u64;
        match refault.in_round {
            true => self.round.add(refault.distance_pages),
            false => self.batch.add(refault.distance_pages, pages, 1.0),
        }
        self.touches += 1;
        self.swap_touches += u64::from(refault.backed == Backed::BySwap);
        self.arrival_touches += u64::from(refault.by_arrival);
        if self.touches >= (pages / PAGES_PER_TOUCH).clamp(BATCH_MIN, BATCH_MAX) {
            self.decide(view);
        }
    }

    fn giver(&mut self, view: &CacheView) -> Giver {
        if view.cache_bytes > self.bound_bytes(view) {
            Giver::Compressed
        } else {
            Giver::Uncompressed
        }
    }

    fn bound_bytes(&self, view: &CacheView) -> u64 {
        view.budget_bytes / STEPS as u64 * self.step as u64
    }

    fn costs(&mut self, costs: Costs) {
        self.costs = costs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_with_all_that_it_may_have() {
        for (text, percent) in [("0%:50%", 50), ("0%:25%", 25), ("75%:100%", 100)] {
            let mut policy = Pleat::from_text(text).unwrap();
            let view = |cache_bytes| CacheView {
                budget_bytes: 6400,
                cache_bytes,
                ..CacheView::default()
            };
            assert!(policy.may_grow(&view(64 * percent - 1)), "{text}");
            assert!(!policy.may_grow(&view(64 * percent)), "{text}");
        }
    }

    #[test]
    fn what_is_above_the_bound_is_given_back() {
        let mut policy = Pleat::default();
        let view = CacheView {
            budget_bytes: 6400,
            cache_bytes: 5701,
            ..CacheView::default()
        };
        assert_eq!(policy.giver(&view), Giver::Compressed);
        assert_eq!(policy.hit(List::Profit, &view), Advice::Shrink);
    }

    const BUDGET_PAGES: u64 = 6400;

    /// So many touches over this distance, in hundredths of memory, with a cache as large as it may be.
    fn touch(policy: &mut Pleat, touches: u64, distance_percent: u64) {
        touch_seen(policy, touches, distance_percent, false);
    }

    fn touch_seen(policy: &mut Pleat, touches: u64, distance_percent: u64, by_arrival: bool) {
        for _ in 0..touches {
            let budget_bytes = BUDGET_PAGES * PAGE_SIZE as u64;
            let mut view = CacheView {
                budget_bytes,
                ..CacheView::default()
            };
            view.cache_bytes = policy.bound_bytes(&view);
            view.cached_pages = view.cache_bytes / (PAGE_SIZE as u64 / 2);
            view.resident_pages = BUDGET_PAGES - view.cache_bytes / PAGE_SIZE as u64;
            let refault = Refault {
                tier: Tier::Cache,
                distance_pages: BUDGET_PAGES * distance_percent / 100,
                backed: Backed::BySwap,
                in_round: false,
                by_arrival,
            };
            policy.refault(refault, &view);
        }
    }

    fn steps_after(bounds: &str, distance_percent: u64) -> usize {
        let mut policy = Pleat::from_text(bounds).unwrap();
        // Only a cache much larger than it may be would reach so far.
        touch(&mut policy, 200_000, 185);
        touch(&mut policy, 4_000, distance_percent);
        policy.step
    }

    #[test]
    fn how_long_a_larger_cache_would_have_been_better_does_not_delay_a_smaller_one() {
        // Pages that would be in memory without a cache.
        let bound = STEPS / 2;
        assert!(steps_after("0%:50%", 70) < bound);
    }

    /// The bound after many touches of pages in use all the time, with a few just beyond what the cache holds.
    fn steps_with_pages_in_use(by_arrival: bool) -> usize {
        let mut policy = Pleat::from_text("0%:50%").unwrap();
        touch(&mut policy, 4_000, 70);
        for _ in 0..2_000 {
            let cache = (policy.step * 100 / STEPS) as u64;
            touch_seen(&mut policy, 9, 100 - cache, by_arrival);
            touch_seen(&mut policy, 1, 102 + cache, by_arrival);
        }
        policy.step
    }

    #[test]
    fn pages_that_leave_though_they_are_in_use_do_not_speak_against_a_larger_cache() {
        let (lru, arrival) = (
            steps_with_pages_in_use(false),
            steps_with_pages_in_use(true),
        );
        assert!(arrival > lru, "{arrival} {lru}");
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "60%", "60%:50%", "0%:0%", "0%:101%", "0:90"] {
            let error = Pleat::from_text(text).unwrap_err();
            assert!(error.contains("pleat:0%:90%"), "{text}: {error}");
        }
    }
}
