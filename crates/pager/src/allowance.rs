//! How many pages may be taken away until the main thread looks at memory again.
//!
//! Where a limit is near, what is taken may be had again by others before it is on disk: the main thread says at each look how much there is
//! room for, and the threads that choose what goes keep to it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Pages that may be taken; any number, unless [`Allowance::set`] says otherwise.
#[derive(Debug)]
pub struct Allowance {
    pages: AtomicI64,
    /// There were some at the last look: there will be more at the next.
    is_renewed: AtomicBool,
    /// The next look was asked for.
    is_asked_for: AtomicBool,
}

/// What is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// So many pages, at least one.
    Pages(usize),
    /// None, and the next look brings more; whoever is told `true` has it come at once.
    Spent(bool),
    /// None, and there were none at the last look: memory must come from elsewhere.
    None,
}

impl Allowance {
    /// Without a limit.
    pub fn unlimited() -> Allowance {
        Allowance {
            pages: AtomicI64::new(i64::MAX),
            is_renewed: AtomicBool::new(true),
            is_asked_for: AtomicBool::new(false),
        }
    }

    /// So many from now on, which may be less than none; `None`: any number.
    pub fn set(&self, pages: Option<i64>) {
        let pages = pages.unwrap_or(i64::MAX);
        self.pages.store(pages, Ordering::Relaxed);
        self.is_renewed.store(pages > 0, Ordering::Relaxed);
        self.is_asked_for.store(false, Ordering::Relaxed);
    }

    /// What is left. Several threads may take it at once, and a few pages too many: what is kept back of a limit is more.
    pub fn left(&self) -> Left {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages > 0 {
            return Left::Pages(pages as usize);
        }
        match self.is_renewed.load(Ordering::Relaxed) {
            true => Left::Spent(!self.is_asked_for.swap(true, Ordering::Relaxed)),
            false => Left::None,
        }
    }

    /// So many are being taken.
    pub fn take(&self, pages: usize) {
        self.pages.fetch_sub(pages as i64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_is_asked_for_once_and_what_was_not_given_is_not() {
        let allowance = Allowance::unlimited();
        assert_eq!(allowance.left(), Left::Pages(i64::MAX as usize));
        allowance.set(Some(3));
        allowance.take(4);
        assert_eq!(allowance.left(), Left::Spent(true));
        assert_eq!(allowance.left(), Left::Spent(false));
        allowance.set(Some(-1));
        assert_eq!(allowance.left(), Left::None);
        allowance.set(Some(1));
        assert_eq!(allowance.left(), Left::Pages(1));
    }
}
