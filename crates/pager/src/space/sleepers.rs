//! Answering several faults before anybody is woken.

use super::faults::Fault;
use super::{End, Space};
use crate::parallel::{share_out, FaultBatch, Outcome, Waiting};
use pleat_types::{PageRange, PAGE_SIZE};

/// Pages that span so many times their number are far apart.
const SPREAD: u64 = 4;

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
    pub(super) fn meet_all(&mut self) -> Result<(), End> {
        self.sleepers.is_gathering = self.faults.len() > 1;
        self.share_faults()?;
        while let Some(fault) = self.faults.pop_front() {
            self.meet(fault)?;
        }
        self.wake_sleepers();
        Ok(())
    }

    /// Answers what can be answered at the same time, with a folding thread that is awake (`parallel.rs` says why that
    /// is right); leaves the rest.
    fn share_faults(&mut self) -> Result<(), End> {
        let faults = self.shareable();
        if faults.len() < 2 {
            return Ok(());
        }
        let batch = FaultBatch::new(self.link.clone(), faults);
        let press = &mut self.scratch.get(&self.shared).press;
        let mut tools = press.tools(&self.shared, &mut self.clock);
        let ended = share_out(batch, &mut tools);
        let is_answered = |fault: &Fault| ended.answered().any(|other| fault.is(other));
        self.faults.retain(|fault| !is_answered(fault));
        for fault in ended.answered() {
            let range = PageRange::new(fault.page, 1);
            self.sleepers.ranges.push(range);
            self.count(fault.since);
        }
        if self.faults.is_empty() {
            // While they wake up and run here, a helper settles the rest.
            self.wake_sleepers();
        }
        let press = &mut self.scratch.get(&self.shared).press;
        let mut tools = press.tools(&self.shared, &mut self.clock);
        let settled = ended.settled(&mut tools);
        self.note_settled(&settled)
    }

    /// Of the faults just read, one for each page that may be as simple as that; none where nobody would help.
    fn shareable(&mut self) -> Vec<Waiting> {
        let mut shareable: Vec<Waiting> = Vec::new();
        let is_alone =
            self.faults.len() < 2 || self.agent.is_none() || !self.may_bring_neighbours();
        if is_alone
            || self.link.rests()
            || self.shared.recorder.is_some()
            || !self.shared.folds.is_watched()
        {
            return shareable;
        }
        for nth in 0..self.faults.len() {
            let fault = self.faults[nth];
            let is_known = shareable.iter().any(|other| other.page == fault.page);
            if !is_known && self.is_plain(&fault) && !self.is_guarded(fault.page) {
                shareable.push(fault.waiting());
            }
        }
        shareable
    }

    /// What follows from faults that were answered and settled.
    fn note_settled(&mut self, settled: &[(Waiting, Outcome)]) -> Result<(), End> {
        for (fault, outcome) in settled {
            match outcome {
                Outcome::Left => continue,
                Outcome::Filled => {}
                Outcome::FilledBringing => self.bring_neighbours(fault.page)?,
            }
            self.look_around(fault.thread);
        }
        self.shared.tell_costs();
        Ok(())
    }

    /// Wakes all whose pages were filled quietly. Nothing that may wait comes before this.
    pub(super) fn wake_sleepers(&mut self) {
        self.sleepers.is_gathering = false;
        let ranges = &mut self.sleepers.ranges;
        let uffd = &self.link.uffd;
        // Who is put off would wake in vain, fault once more, and be put off twice.
        let may_wake_others = self.deferred.is_empty();
        match span(ranges, self.shared.cpus).filter(|_| may_wake_others) {
            Some(span) => uffd.wake(span.start.address(), span.len() * PAGE_SIZE as u64),
            None => ranges.iter().for_each(|range| {
                uffd.wake(range.start.address(), range.len() * PAGE_SIZE as u64);
            }),
        }
        ranges.clear();
    }
}

/// What to wake at once where these pages are in place, with whoever waits for a page between them; `None`: they are to be
/// woken one by one.
///
/// On two CPUs nobody waits between them: while faults are answered the program's threads have no CPU to meet new ones.
/// On more they do, and each would wake, fault once more, and be woken again.
fn span(ranges: &[PageRange], cpus: usize) -> Option<PageRange> {
    let start = ranges.iter().map(|range| range.start).min()?;
    let end = ranges.iter().map(|range| range.end).max()?;
    let span = PageRange { start, end };
    let filled: u64 = ranges.iter().map(|range| range.len()).sum();
    (cpus <= 2 || span.len() <= filled * SPREAD).then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pleat_types::PageNo;

    fn pages(starts: &[u64]) -> Vec<PageRange> {
        let page = |&start| PageRange::new(PageNo(start), 1);
        starts.iter().map(page).collect()
    }

    #[test]
    fn threads_side_by_side_are_woken_at_once() {
        let near = pages(&[12, 10, 13]);
        assert_eq!(span(&near, 16), Some(PageRange::new(PageNo(10), 4)));
        assert_eq!(span(&[], 16), None);
    }

    #[test]
    fn threads_far_apart_are_woken_one_by_one_where_others_may_wait_between_them() {
        let far = pages(&[10, 5000, 90]);
        assert_eq!(span(&far, 16), None);
        assert_eq!(span(&far, 2), Some(PageRange::new(PageNo(10), 4991)));
    }
}
