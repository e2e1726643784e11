//! Answering several faults before anybody is woken.

use super::{Ended, Space};
use pleat_types::{PageRange, PAGE_SIZE};

/// Threads whose pages are in place and who are to be woken together.
///
/// A wake-up of a thread on another CPU costs more than filling its page does, and the thread would run
/// before the others are answered. So where several faults were read at once, all are answered before
/// anybody wakes up.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    pub(super) is_gathering: bool,
    pub(super) ranges: Vec<PageRange>,
}

impl Space {
    /// Answers the faults just read.
    pub(super) fn meet_all(&mut self) -> Result<(), Ended> {
        self.sleepers.is_gathering = self.faults.len() > 1;
        while let Some(fault) = self.faults.pop_front() {
            self.meet(fault)?;
        }
        self.wake_sleepers();
        Ok(())
    }

    /// Wakes all whose pages were filled quietly. Nothing that may wait comes before this.
    pub(super) fn wake_sleepers(&mut self) {
        self.sleepers.is_gathering = false;
        let ranges = &mut self.sleepers.ranges;
        let start = ranges.iter().map(|range| range.start).min();
        let end = ranges.iter().map(|range| range.end).max();
        let uffd = &self.link.uffd;
        match (start, end) {
            // Who is put off would wake in vain, fault once more, and be put off twice.
            (Some(start), Some(end)) if self.deferred.is_empty() => {
                uffd.wake(start.address(), end.address() - start.address());
            }
            _ => ranges.iter().for_each(|range| {
                uffd.wake(range.start.address(), range.len() * PAGE_SIZE as u64);
            }),
        }
        ranges.clear();
    }
}
