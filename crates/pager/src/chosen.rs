//! Pages of a holder that were chosen to go, on their way to the thread that takes them, one lot at a time.

use crate::shared::lock;
use pleat_types::PageNo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A lot of pages, or none. Who chooses reserves the place first; it is free again when the lot is [`Chosen::done`].
#[derive(Debug, Default)]
pub struct Chosen {
    is_reserved: AtomicBool,
    pages: Mutex<Vec<PageNo>>,
    called: Condvar,
}

impl Chosen {
    /// Claims the right to give a lot, of at most as many pages as there is room for. `None`: there is one, or no room.
    pub fn reserve(&self, room: impl FnOnce() -> usize) -> Option<u32> {
        if self.is_reserved.swap(true, Ordering::AcqRel) {
            return None;
        }
        let room = room();
        if room == 0 {
            self.done();
            return None;
        }
        Some(room as u32)
    }

    /// Gives a lot. `false`: it has no page, and the claim is given back.
    pub fn give(&self, pages: Vec<PageNo>) -> bool {
        if pages.is_empty() {
            self.done();
            return false;
        }
        *lock(&self.pages) = pages;
        self.called.notify_all();
        true
    }

    /// The lot, if there is one.
    pub fn get(&self) -> Vec<PageNo> {
        std::mem::take(&mut *lock(&self.pages))
    }

    /// The same, waiting for it so long; none, too, once it is over.
    pub fn wait(&self, limit: Duration, is_over: &AtomicBool) -> Vec<PageNo> {
        let is_idle =
            |pages: &mut Vec<PageNo>| pages.is_empty() && !is_over.load(Ordering::Acquire);
        let waited = self
            .called
            .wait_timeout_while(lock(&self.pages), limit, is_idle);
        std::mem::take(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Notes that it is over, and wakes who waits.
    pub fn end(&self, is_over: &AtomicBool) {
        // With the lot locked, or who has just looked whether it is over would sleep on.
        let _pages = lock(&self.pages);
        is_over.store(true, Ordering::Release);
        self.called.notify_all();
    }

    /// All of the lot has been dealt with.
    pub fn done(&self) {
        self.is_reserved.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_lot_at_a_time() {
        let chosen = Chosen::default();
        assert_eq!(chosen.reserve(|| 0), None);
        assert_eq!(chosen.reserve(|| 3), Some(3));
        assert_eq!(chosen.reserve(|| 3), None);
        assert!(!chosen.give(Vec::new()));
        assert_eq!(chosen.reserve(|| 1), Some(1));
        assert!(chosen.give(vec![PageNo(7)]));
        assert_eq!(chosen.get(), [PageNo(7)]);
        assert_eq!(chosen.reserve(|| 1), None);
        chosen.done();
        assert_eq!(chosen.reserve(|| 1), Some(1));
    }

    #[test]
    fn nobody_waits_for_a_lot_when_it_is_over() {
        let (chosen, is_over) = (Chosen::default(), AtomicBool::new(false));
        assert_eq!(chosen.wait(Duration::ZERO, &is_over), []);
        chosen.end(&is_over);
        assert_eq!(chosen.wait(Duration::from_secs(3600), &is_over), []);
    }
}
