//! The adaptability policy of castro03 (section 3, figure 5), nothing added and nothing left out.
//!
//! The cache may grow unless reads show that its pages would have been in memory without it.

use crate::{Advice, CacheView, List, Sizing};

/// How many expense hits in a row lock growth, and how many shrink the cache.
const HITS_TO_LOCK: u32 = 2;
const HITS_TO_SHRINK: u32 = 3;

/// State of the policy: hits on the expense list since the last profit hit or shrink.
///
/// Growth is locked exactly while `expense_hits >= HITS_TO_LOCK`, so no second field is kept.
#[derive(Debug, Default)]
pub struct Castro03 {
    expense_hits: u32,
}

impl Sizing for Castro03 {
    fn name(&self) -> &'static str {
        "castro03"
    }

    fn may_grow(&mut self, _view: &CacheView) -> bool {
        self.expense_hits < HITS_TO_LOCK
    }

    fn hit(&mut self, list: List, _view: &CacheView) -> Advice {
        if list == List::Profit {
            self.expense_hits = 0;
            return Advice::Keep;
        }
        self.expense_hits += 1;
        if self.expense_hits < HITS_TO_SHRINK {
            return Advice::Keep;
        }
        // "Once one of these actions is taken, the growth barrier is removed and the analysis
        // starts again."
        self.expense_hits = 0;
        Advice::Shrink
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: CacheView = CacheView {
        budget_bytes: 0,
        cache_bytes: 0,
        cached_pages: 0,
        resident_pages: 0,
        ages: crate::Ages {
            anonymous: None,
            file: None,
            compressed: None,
        },
    };

    fn after(hits: &[List]) -> Castro03 {
        let mut policy = Castro03::default();
        for &list in hits {
            policy.hit(list, &VIEW);
        }
        policy
    }

    #[test]
    fn the_cache_may_grow_until_there_is_evidence_against_it() {
        assert!(after(&[]).may_grow(&VIEW));
        assert!(after(&[List::Expense]).may_grow(&VIEW));
    }

    #[test]
    fn the_second_expense_hit_in_a_row_locks_growth() {
        let mut policy = after(&[List::Expense]);
        assert_eq!(policy.hit(List::Expense, &VIEW), Advice::Keep);
        assert!(!policy.may_grow(&VIEW));
    }

    #[test]
    fn a_profit_hit_unlocks_growth_and_ends_the_row() {
        let mut policy = after(&[List::Expense, List::Expense, List::Profit]);
        assert!(policy.may_grow(&VIEW));
        assert_eq!(policy.hit(List::Expense, &VIEW), Advice::Keep);
        assert!(policy.may_grow(&VIEW), "the row has to begin anew");
    }

    #[test]
    fn the_third_expense_hit_in_a_row_shrinks_unlocks_and_starts_over() {
        let mut policy = after(&[List::Expense, List::Expense]);
        assert_eq!(policy.hit(List::Expense, &VIEW), Advice::Shrink);
        assert!(policy.may_grow(&VIEW));
        assert_eq!(policy.hit(List::Expense, &VIEW), Advice::Keep);
        assert!(policy.may_grow(&VIEW));
        assert_eq!(policy.hit(List::Expense, &VIEW), Advice::Keep);
        assert!(!policy.may_grow(&VIEW));
        assert_eq!(policy.hit(List::Expense, &VIEW), Advice::Shrink);
    }

    #[test]
    fn profit_hits_never_shrink() {
        let mut policy = Castro03::default();
        for _ in 0..10 {
            assert_eq!(policy.hit(List::Profit, &VIEW), Advice::Keep);
        }
    }
}
