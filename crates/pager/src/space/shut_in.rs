//! A process that shuts itself in while it is managed: a seccomp filter for all its threads, so for the agent, too, that
//! refuses what takes pages away.
//!
//! What is away comes back as ever, for that is the supervisor's doing. But nothing can be taken any more, so its
//! faults do not wait for memory either: it would wait at each of them, in vain. The same holds for one whose agent is
//! stopped.

use super::faults::Later;
use super::Space;
use crate::shared::lock;
use pleat_sys::procfs;
use pleat_wire::message;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// So long an agent that was seen to be stopped is taken to be so still.
const STOPPED_FOR: Duration = Duration::from_secs(1);

impl Space {
    /// Notes whether pages could not be taken because the process may not.
    pub(super) fn note_forbidden(&mut self, status: &[u8]) {
        if self.is_shut_in || !status.contains(&message::FORBIDDEN) {
            return;
        }
        self.is_shut_in = true;
        self.link.is_shut_in.store(true, Ordering::Release);
        self.shared.main_bell.ring();
    }

    /// All threads are about to be stopped for good. An agent that is stopped at work has pages that it has not handed
    /// over, and its lock, which everything else waits for: so it is given none any more. `Some` while it has some.
    pub(super) fn prepare_to_be_held(&mut self) -> Option<Later> {
        self.is_held = true;
        let mut take = lock(&self.link.take);
        take.hold();
        let is_busy = take.reserved || !take.in_flight.is_empty();
        is_busy.then_some(Later::Leaving)
    }

    /// Whether faults are to be answered whatever memory there is: nothing that waiting could wait for would come of
    /// this process. So it is before its agent is ready, for the child of a fork must come as far as to start one.
    pub(super) fn never_waits(&self) -> bool {
        let is_stopped = self.stopped_at.is_some_and(|at| at.elapsed() < STOPPED_FOR);
        self.agent.is_none() || self.is_shut_in || self.is_held || is_stopped
    }

    /// A fault has waited for memory in vain. If its agent is stopped, and so can take nothing, whoever faults is none of
    /// its process's own threads: a tracer, or a process that shares this memory, that stopped them all to read it, as
    /// LeakSanitizer does at the end of a program. It would wait at each page.
    pub(super) fn note_starved(&mut self) {
        let thread = self.agent.as_ref().and_then(|agent| agent.thread);
        if thread.is_some_and(procfs::is_stopped) {
            self.stopped_at = Some(Instant::now());
        }
    }
}
