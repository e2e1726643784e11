//! What the compressed cache is to give up, and by whose word.
//!
//! The sizing policy decides how large the cache is. Three things overrule it, each counted under its own name, so
//! that a cache emptied against the policy's word is seen: nothing resident can go, the budget is overdrawn by a fork,
//! or the cache would take all of the budget.

/// Who wants the cache to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The sizing policy, or the rule that passes incompressible pages on.
    Policy,
    /// The cache has reached the part of the budget that it may never exceed.
    Whole,
    /// Memory is short and nothing resident anywhere can go, or too little.
    Starved,
    /// The budget is overdrawn while pages are shared since a fork.
    Overdrawn,
}

const REASONS: usize = 4;

/// Bytes owed, by reason. What leaves pays the policy first: what it did not ask for is what is counted against it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debt([u64; REASONS]);

impl Debt {
    const ORDER: [Why; REASONS] = [Why::Policy, Why::Whole, Why::Starved, Why::Overdrawn];

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    #[cfg(test)]
    pub(crate) fn of(&self, why: Why) -> u64 {
        self.0[why as usize]
    }

    pub(crate) fn add(&mut self, why: Why, bytes: u64) {
        self.0[why as usize] += bytes;
    }

    /// So much has left, for whatever reason.
    pub(crate) fn pay(&mut self, mut bytes: u64) {
        for owed in &mut self.0 {
            let paid = bytes.min(*owed);
            *owed -= paid;
            bytes -= paid;
        }
    }

    /// No more is owed than there is.
    pub(crate) fn cap(&mut self, payload_bytes: u64) {
        self.pay(self.total().saturating_sub(payload_bytes));
    }

    /// For whom the next page goes, when so many bytes are on their way out already; `None`: enough are.
    pub(crate) fn next(&self, leaving_bytes: u64) -> Option<Why> {
        let mut left = *self;
        left.pay(leaving_bytes);
        let mut open = Self::ORDER.into_iter();
        open.find(|&why| left.0[why as usize] > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_pays_the_policy_first() {
        let mut debt = Debt::default();
        debt.add(Why::Starved, 10);
        debt.add(Why::Policy, 5);
        assert_eq!(debt.next(0), Some(Why::Policy));
        assert_eq!(debt.next(5), Some(Why::Starved));
        assert_eq!(debt.next(15), None);
        debt.pay(7);
        assert_eq!((debt.total(), debt.next(0)), (8, Some(Why::Starved)));
    }

    #[test]
    fn no_more_is_owed_than_there_is() {
        let mut debt = Debt::default();
        debt.add(Why::Overdrawn, 10);
        debt.cap(3);
        assert_eq!(debt.total(), 3);
        debt.cap(0);
        assert_eq!(debt, Debt::default());
    }
}
