//! A process that shuts itself in while it is managed: a seccomp filter for all its threads, so for the agent, too, that
//! refuses what takes pages away.
//!
//! What is away comes back as ever, for that is the supervisor's doing. But nothing can be taken any more, so its
//! faults do not wait for memory either: it would wait at each of them, in vain.

use super::Space;
use pleat_wire::message;
use std::sync::atomic::Ordering;

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
        self.agent.is_none() || self.is_shut_in
    }
}
