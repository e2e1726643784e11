//! The limit of a job whose budget changes.
//!
//! A larger budget has its limit at once, before anybody may use more. A smaller one has it only when the job is below it:
//! until then the limit stays where it was, so that nobody is killed or made to wait for a budget that pleat is still
//! bringing about. Then the limit is lowered a little at each look, for the kernel drops file pages for it meanwhile.

use super::{CloseLimit, OwnGroup, MOVED_MIN};
use crate::own_group::steps::Steps;
use std::time::{Duration, Instant};

/// The kernel is made to drop so much of the page cache at a look, some milliseconds' work.
const SQUEEZED_BYTES: u64 = 4 << 20;
/// It could not, because pages wait to be written: so long it is left alone.
const LEFT_ALONE: Duration = Duration::from_millis(100);

/// A budget that becomes smaller.
#[derive(Debug, Default)]
pub(super) struct Resize {
    /// The budget to come, in bytes, once less than that is in use.
    next_bytes: Option<u64>,
    /// The limit is on its way down to a budget that holds already.
    is_squeezing: bool,
    /// Not before.
    not_before: Option<Instant>,
}

impl OwnGroup {
    /// The budget is another from now on.
    pub fn set_budget(&mut self, budget_bytes: u64) {
        if budget_bytes < self.budget_bytes {
            self.resize.next_bytes = Some(budget_bytes);
            return self.go_on_resizing();
        }
        self.resize = Resize::default();
        self.take_on(budget_bytes);
        let (own_bytes, processes) = self.last;
        self.follow(own_bytes, processes);
    }

    /// Whether the limit, where there is one, is that of the budget.
    pub fn is_settled(&self) -> bool {
        self.resize.next_bytes.is_none() && !(self.resize.is_squeezing && self.has_limit())
    }

    /// The limit of the group now, in bytes, the supervisor not included; `None`: there is none.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.limit_bytes
    }

    pub(super) fn go_on_resizing(&mut self) {
        let Some(next) = self.resize.next_bytes else {
            return;
        };
        let in_use = self.memory_bytes().map(|bytes| bytes + self.last.0);
        if in_use.is_some_and(|bytes| bytes <= next) {
            self.resize.next_bytes = None;
            self.resize.is_squeezing = true;
            self.take_on(next);
        }
    }

    fn take_on(&mut self, budget_bytes: u64) {
        let had_limit = self.has_limit();
        self.budget_bytes = budget_bytes;
        self.around = CloseLimit::find(budget_bytes);
        match (had_limit, self.has_limit()) {
            // A limit that takes no such preparation would kill sooner than the one around it.
            (false, true) if self.group.prepare_to_limit().is_err() => self.around = None,
            (true, false) => {
                self.group.place().lift();
                self.limit_bytes = None;
                self.steps = Steps::default();
                self.kills = false;
            }
            _ => {}
        }
    }

    /// Where the limit is taken to be, and how much in use, where so much is with the page cache: it falls no further than that.
    pub(super) fn limit_and_use(&self, used: u64) -> (Option<u64>, u64) {
        let waits = self.resize.not_before.is_some_and(|at| Instant::now() < at);
        if !self.resize.is_squeezing || waits {
            return (self.limit_bytes, used);
        }
        let memory = self
            .group
            .file_bytes()
            .map(|files| used.saturating_sub(files));
        let in_use = memory.map_or(used, |memory| {
            memory.max(used.saturating_sub(SQUEEZED_BYTES))
        });
        (self.limit_bytes.or(Some(u64::MAX)), in_use)
    }

    /// v2: from where the kernel kills. Not from less than is in use.
    pub(super) fn end_now(&self, end: u64, in_use: u64) -> u64 {
        match self.resize.is_squeezing {
            true => end.max(in_use + MOVED_MIN),
            false => end,
        }
    }

    /// The limit was set, or refused; and it is where it is to be in the end, or not yet.
    pub(super) fn note_set(&mut self, is_set: bool, is_last: bool) {
        if self.resize.is_squeezing {
            self.resize.is_squeezing = !(is_set && is_last);
            self.resize.not_before = (!is_set).then(|| Instant::now() + LEFT_ALONE);
        }
    }
}
