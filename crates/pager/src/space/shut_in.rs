//! A process that shuts itself in while it is managed: a seccomp filter for all its threads, so for the agent, too, that
//! refuses what takes pages away.
//!
//! What is away comes back as ever, for that is the supervisor's doing. But nothing can be taken any more, so its
//! faults do not wait for memory either: it would wait at each of them, in vain. The same holds for one whose agent is
//! stopped.

use super::Space;
use pleat_wire::message;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between two looks whether the agent is stopped: profilers stop a process a hundred times a second, for a moment each.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Whether an agent is stopped, and when that was looked at.
pub(super) struct Stopped {
    is_stopped: Cell<bool>,
    looked: Cell<Instant>,
}

impl Stopped {
    /// It is taken to run.
    pub(super) fn new(now: Instant) -> Stopped {
        Stopped {
            is_stopped: Cell::new(false),
            looked: Cell::new(now),
        }
    }
}

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

    /// Whether faults are to be answered whatever memory there is: nothing that waiting could wait for would come of
    /// this process. So it is before its agent is ready, for the child of a fork must come as far as to start one.
    pub(super) fn never_waits(&self) -> bool {
        self.agent.is_none()
            || self.is_shut_in
            || self.revoked.is_some()
            || (self.stopped.is_stopped.get() && self.is_stopped())
    }

    /// Whether the agent is stopped, as far as is known. It can take nothing then, and who waits for memory is none of its
    /// process's own threads: a tracer, or a process that shares this memory, that stopped them all to read it, as
    /// LeakSanitizer does at the end of a program. It would wait at each page.
    pub(super) fn is_stopped(&self) -> bool {
        if self.shared.machine.since(self.stopped.looked.get()) >= LOOK_EVERY {
            let thread = self.agent.as_ref().and_then(|agent| agent.thread);
            let is_stopped = thread.is_some_and(|thread| self.shared.machine.is_stopped(thread));
            self.stopped.is_stopped.set(is_stopped);
            self.stopped.looked.set(self.now());
        }
        self.stopped.is_stopped.get()
    }
}
