//! A compressed cache that weighs what it costs against what it saves.
//!
//! Named `balance:60%`, the share of the budget it may have at most. Hits on the expense list are what
//! the cache costs: those pages would be in memory if there were no cache. Hits on the profit list are
//! what it saves: those would be on disk (the lists are castro03's, section 2.2.2; weighing costs
//! against benefits is kaplan99's idea). A read from disk costs about eight times a hit, so the cache
//! shrinks while it is hit eight times as often by expense as by profit, and grows again below half
//! of that.
//!
//! A cache too small to be hit learns nothing from hits: it also grows while most pages come from disk.

use crate::notation::{percent, share};
use crate::{Advice, CacheView, List, Sizing};

/// What a read from disk costs, in hits.
const DISK_COST: u64 = 8;
/// Pages that came back between two decisions.
const WINDOW: u64 = 1024;
/// A decision moves the bound by one part in so many.
const STEP: u64 = 16;
/// The least bound, per cent of the budget: pages taken though still in use come back from it.
const LEAST_PERCENT: u64 = 8;
/// Reads from disk make the cache grow when they are so many times the hits.
const FEW_HITS: u64 = 4;

/// Grows and shrinks within its bounds.
#[derive(Debug)]
pub struct Balance {
    percent: u64,
    /// The moving bound; none before the first decision.
    bound_bytes: Option<u64>,
    expense: u64,
    profit: u64,
    reads: u64,
}

impl Balance {
    /// Reads what follows `balance:`.
    ///
    /// # Errors
    /// A message that shows how to write it.
    pub fn from_text(text: &str) -> Result<Balance, String> {
        let message = || {
            format!(
                "balance:{text}: write the largest share of the budget, {LEAST_PERCENT}% to 100%, as in \
                 balance:60%"
            )
        };
        Ok(Balance {
            percent: percent(text, LEAST_PERCENT..=100).ok_or_else(message)?,
            bound_bytes: None,
            expense: 0,
            profit: 0,
            reads: 0,
        })
    }

    fn bound(&self, view: &CacheView) -> u64 {
        let most = share(view.budget_bytes, self.percent);
        self.bound_bytes.unwrap_or(most).min(most)
    }

    /// One more page came back: time to decide?
    fn count(&mut self, view: &CacheView) {
        if self.expense + self.profit + self.reads < WINDOW {
            return;
        }
        let (bound, hits) = (self.bound(view), self.expense + self.profit);
        let least = share(view.budget_bytes, LEAST_PERCENT);
        if self.expense > self.profit * DISK_COST {
            let bound = bound.min(view.cache_bytes);
            self.bound_bytes = Some((bound - bound / STEP).max(least));
        } else if self.expense < self.profit * DISK_COST / 2 || self.reads > hits * FEW_HITS {
            self.bound_bytes = Some(bound + bound / STEP);
        }
        (self.expense, self.profit, self.reads) = (0, 0, 0);
    }
}

impl Sizing for Balance {
    fn name(&self) -> &'static str {
        "balance"
    }

    fn may_grow(&mut self, view: &CacheView) -> bool {
        view.cache_bytes < self.bound(view)
    }

    fn hit(&mut self, list: List, view: &CacheView) -> Advice {
        match list {
            List::Expense => self.expense += 1,
            List::Profit => self.profit += 1,
        }
        self.count(view);
        if view.cache_bytes > self.bound(view) {
            Advice::Shrink
        } else {
            Advice::Keep
        }
    }

    fn read(&mut self, view: &CacheView) {
        self.reads += 1;
        self.count(view);
    }

    fn bound_bytes(&self, view: &CacheView) -> u64 {
        self.bound(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: u64 = 100 << 20;

    fn view(percent: u64) -> CacheView {
        CacheView {
            budget_bytes: BUDGET,
            cache_bytes: BUDGET / 100 * percent,
            ..CacheView::default()
        }
    }

    /// So many windows of hits, one of `every` by profit.
    fn live(policy: &mut Balance, windows: u64, every: u64) {
        for hit in 0..windows * WINDOW {
            let profit = hit % every == 0;
            let list = if profit { List::Profit } else { List::Expense };
            let bound = policy.bound(&view(60));
            policy.hit(
                list,
                &CacheView {
                    cache_bytes: bound,
                    ..view(60)
                },
            );
        }
    }

    fn balance() -> Balance {
        Balance::from_text("60%").unwrap()
    }

    #[test]
    fn it_starts_with_its_whole_share() {
        assert!(balance().may_grow(&view(59)));
        assert!(!balance().may_grow(&view(60)));
    }

    #[test]
    fn a_cache_that_only_costs_shrinks_to_the_least() {
        let mut policy = balance();
        live(&mut policy, 60, 50);
        assert!(!policy.may_grow(&view(8)) && policy.may_grow(&view(7)));
        assert_eq!(policy.hit(List::Expense, &view(30)), Advice::Shrink);
    }

    #[test]
    fn random_use_of_well_compressed_pages_keeps_it_large() {
        let mut policy = balance();
        live(&mut policy, 60, 3);
        assert!(policy.may_grow(&view(59)));
    }

    #[test]
    fn it_grows_again_when_it_saves_reads() {
        let mut policy = balance();
        live(&mut policy, 60, 50);
        live(&mut policy, 60, 3);
        assert!(policy.may_grow(&view(59)));
    }

    #[test]
    fn it_grows_again_when_nothing_is_found_in_it() {
        let mut policy = balance();
        live(&mut policy, 60, 50);
        for _ in 0..60 * WINDOW {
            policy.read(&view(8));
        }
        assert!(policy.may_grow(&view(59)));
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "60", "7%", "101%", "-8%", "64M"] {
            let error = Balance::from_text(text).unwrap_err();
            assert!(error.contains("balance:60%"), "{text}: {error}");
        }
    }
}
