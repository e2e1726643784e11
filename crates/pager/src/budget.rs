//! The job's budget, and what follows from its size.
//!
//! The supervisor has the one that holds now (`supervisor/budget.rs` changes it); what the command line said is
//! [`crate::Job::budget_bytes`], and holds until then.

use crate::headroom::{floor_bytes, reserve_bytes};
use crate::page_cache::page_cache_room;
use pleat_sys::limits;

/// The least: what the supervisor itself needs before the program has a single page.
pub const BUDGET_MIN: u64 = 16 << 20;
/// What can be folded has at least so much memory beside what is kept free, one part in so many of the budget, within
/// these limits: with less a job stands still.
const WORKING_SET_PART: u64 = 32;
const WORKING_SET_MIN: u64 = 1 << 20;
const WORKING_SET_MAX: u64 = 16 << 20;
/// The larger the budget, the more of it is kept back: so often the least is reckoned again with what it would keep back itself.
const LEAST_ROUNDS: usize = 4;

/// A budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Memory for everything, in bytes.
    pub bytes: u64,
    /// Of that, what is left to the page cache.
    pub cache_room_bytes: u64,
    /// Free memory below which pages are taken away.
    pub reserve_bytes: u64,
    /// What of that is kept free at most for memory that the job takes without asking.
    pub floor_bytes: u64,
}

impl Budget {
    /// What follows from this size here. Reads the limits of cgroups.
    pub fn of(bytes: u64) -> Budget {
        Budget::beside(bytes, page_cache_room(bytes))
    }

    fn beside(bytes: u64, cache_room_bytes: u64) -> Budget {
        Budget {
            bytes,
            cache_room_bytes,
            reserve_bytes: reserve_bytes(bytes),
            floor_bytes: floor_bytes(bytes),
        }
    }

    /// What the engine has of it.
    pub fn engine_bytes(&self) -> u64 {
        self.bytes - self.cache_room_bytes
    }

    /// How much the job may have beyond it where what cannot be folded leaves too little of it for the rest: that it goes on,
    /// slowly, is worth more than the last few megabytes. `growth_bytes` are kept free for what it takes without asking.
    pub fn overdraft(&self, unfoldable_bytes: u64, growth_bytes: u64) -> u64 {
        let kept_free = self.reserve_bytes - self.floor_bytes + growth_bytes;
        (unfoldable_bytes + kept_free + self.working_set()).saturating_sub(self.engine_bytes())
    }

    /// What can be folded has so much at least.
    fn working_set(&self) -> u64 {
        (self.bytes / WORKING_SET_PART).clamp(WORKING_SET_MIN, WORKING_SET_MAX)
    }

    /// The least budget, whole MiB, that holds so much beside what it keeps back, where this one leaves that much room to the
    /// page cache.
    pub fn least_for(&self, kept_bytes: u64) -> u64 {
        let mut least = self.bytes;
        for _ in 0..LEAST_ROUNDS {
            let room = self.cache_room_bytes.min(least / 5);
            let budget = Budget::beside(least, room);
            least = kept_bytes + budget.working_set() + budget.reserve_bytes + room;
        }
        (least.next_multiple_of(1 << 20)).max(BUDGET_MIN)
    }
}

/// The largest budget that a job can be given later, for which addresses are set aside from the start: they cost nothing, and
/// more than the machine has is of no use.
pub fn largest_later(budget_bytes: u64) -> u64 {
    limits::mem_total_bytes().unwrap_or(0).max(budget_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_can_be_folded_keeps_a_working_set_beside_what_cannot() {
        let budget = Budget::beside(64 * MIB, 0);
        let beyond = |unfoldable| budget.overdraft(unfoldable * MIB, MIB) / MIB;
        assert_eq!([10, 60, 62, 66].map(beyond), [0, 0, 1, 5]);
    }

    #[test]
    fn the_least_budget_holds_what_it_is_for_and_no_budget_is_less_than_the_minimum() {
        let budget = Budget::beside(400 * MIB, 0);
        assert_eq!(budget.least_for(0), BUDGET_MIN);
        for kept in [20, 50, 100, 300] {
            let least = Budget::beside(budget.least_for(kept * MIB), 0);
            assert_eq!(least.overdraft(kept * MIB, least.floor_bytes), 0, "{kept}");
            let less = Budget::beside(least.bytes - 2 * MIB, 0);
            assert!(less.overdraft(kept * MIB, less.floor_bytes) > 0, "{kept}");
        }
    }
}
