//! The adaptability policy of castro03 (section 3, figure 5), nothing added and nothing left out, and
//! the two variants it was compared with (section 4.4, "Other adaptability policies").
//!
//! The cache may grow unless reads show that its pages would have been in memory without it. The three
//! differ only in how many such reads in a row are evidence:
//!
//! | name | locks growth | shrinks | the paper's words |
//! |---|---|---|---|
//! | `castro03` | 2 | 3 | "if two consecutive ..."; "the third consecutive ..." |
//! | `sluggish` | 4 | 6 | "less sensible to changes", "stronger evidences": no numbers; twice the above |
//! | `aggressive` | never | 1 | "trying to shrink the compressed cache at each access to the expense list" |
//!
//! `aggressive` never locks because each shrink "removes the growth barrier".

use crate::{Advice, CacheView, List, Sizing};

/// State of the policy: hits on the expense list since the last profit hit or shrink.
///
/// Growth is locked exactly while `expense_hits >= hits_to_lock`, so no second field is kept.
#[derive(Debug)]
pub struct Castro03 {
    name: &'static str,
    hits_to_lock: u32,
    hits_to_shrink: u32,
    expense_hits: u32,
    /// How often growth was locked and unlocked.
    locks: u64,
    unlocks: u64,
}

impl Castro03 {
    /// The policy they adopted ("reference" in their table 1).
    pub fn reference() -> Castro03 {
        Castro03::with_evidence("castro03", 2, 3)
    }

    /// Acts on stronger evidence.
    pub fn sluggish() -> Castro03 {
        Castro03::with_evidence("sluggish", 4, 6)
    }

    /// Acts at once.
    pub fn aggressive() -> Castro03 {
        Castro03::with_evidence("aggressive", 1, 1)
    }

    fn with_evidence(name: &'static str, hits_to_lock: u32, hits_to_shrink: u32) -> Castro03 {
        Castro03 {
            name,
            hits_to_lock,
            hits_to_shrink,
            expense_hits: 0,
            locks: 0,
            unlocks: 0,
        }
    }
}

impl Sizing for Castro03 {
    fn name(&self) -> &'static str {
        self.name
    }

    fn may_grow(&mut self, _view: &CacheView) -> bool {
        self.expense_hits < self.hits_to_lock
    }

    fn hit(&mut self, list: List, _view: &CacheView) -> Advice {
        let was_locked = self.expense_hits >= self.hits_to_lock;
        if list == List::Profit {
            self.unlocks += u64::from(was_locked);
            self.expense_hits = 0;
            return Advice::Keep;
        }
        self.expense_hits += 1;
        if self.expense_hits < self.hits_to_shrink {
            self.locks += u64::from(self.expense_hits == self.hits_to_lock);
            return Advice::Keep;
        }
        self.unlocks += u64::from(was_locked);
        // "Once one of these actions is taken, the growth barrier is removed and the analysis
        // starts again."
        self.expense_hits = 0;
        Advice::Shrink
    }

    fn locks(&self) -> (u64, u64) {
        (self.locks, self.unlocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(hits: &[List]) -> Castro03 {
        let mut policy = Castro03::reference();
        for &list in hits {
            policy.hit(list, &CacheView::default());
        }
        policy
    }

    #[test]
    fn the_cache_may_grow_until_there_is_evidence_against_it() {
        assert!(after(&[]).may_grow(&CacheView::default()));
        assert!(after(&[List::Expense]).may_grow(&CacheView::default()));
    }

    #[test]
    fn the_second_expense_hit_in_a_row_locks_growth() {
        let mut policy = after(&[List::Expense]);
        assert_eq!(
            policy.hit(List::Expense, &CacheView::default()),
            Advice::Keep
        );
        assert!(!policy.may_grow(&CacheView::default()));
    }

    #[test]
    fn a_profit_hit_unlocks_growth_and_ends_the_row() {
        let mut policy = after(&[List::Expense, List::Expense, List::Profit]);
        assert!(policy.may_grow(&CacheView::default()));
        assert_eq!(
            policy.hit(List::Expense, &CacheView::default()),
            Advice::Keep
        );
        assert!(
            policy.may_grow(&CacheView::default()),
            "the row has to begin anew"
        );
    }

    #[test]
    fn the_third_expense_hit_in_a_row_shrinks_unlocks_and_starts_over() {
        let mut policy = after(&[List::Expense, List::Expense]);
        assert_eq!(
            policy.hit(List::Expense, &CacheView::default()),
            Advice::Shrink
        );
        assert!(policy.may_grow(&CacheView::default()));
        assert_eq!(
            policy.hit(List::Expense, &CacheView::default()),
            Advice::Keep
        );
        assert!(policy.may_grow(&CacheView::default()));
        assert_eq!(
            policy.hit(List::Expense, &CacheView::default()),
            Advice::Keep
        );
        assert!(!policy.may_grow(&CacheView::default()));
        assert_eq!(
            policy.hit(List::Expense, &CacheView::default()),
            Advice::Shrink
        );
    }

    #[test]
    fn profit_hits_never_shrink() {
        let mut policy = Castro03::reference();
        for _ in 0..10 {
            assert_eq!(
                policy.hit(List::Profit, &CacheView::default()),
                Advice::Keep
            );
        }
    }

    #[test]
    fn the_sluggish_one_wants_twice_the_evidence() {
        let mut policy = Castro03::sluggish();
        let hit = |policy: &mut Castro03| policy.hit(List::Expense, &CacheView::default());
        for _ in 0..3 {
            assert_eq!(hit(&mut policy), Advice::Keep);
            assert!(policy.may_grow(&CacheView::default()));
        }
        for _ in 3..5 {
            assert_eq!(hit(&mut policy), Advice::Keep);
            assert!(!policy.may_grow(&CacheView::default()));
        }
        assert_eq!(hit(&mut policy), Advice::Shrink);
        assert!(policy.may_grow(&CacheView::default()));
    }

    #[test]
    fn the_aggressive_one_shrinks_at_each_expense_hit() {
        let mut policy = Castro03::aggressive();
        for list in [List::Expense, List::Profit, List::Expense, List::Expense] {
            let advice = policy.hit(list, &CacheView::default());
            assert_eq!(advice == Advice::Shrink, list == List::Expense);
            assert!(policy.may_grow(&CacheView::default()));
        }
    }
}
