//! A process that cannot be served any more: it has said what no agent says, or its memory is not what it was
//! thought to be. It is ended, and nobody else: some of its memory may be away for good.
//!
//! Until it is gone its userfaultfd stays open here, so that no thread of it reads zeros in the moment that is
//! left to it. Where the process is not known (a child forked without the C library says nothing), its first
//! fault tells: it names the thread, which waits in the kernel as long as nobody answers. Where even that
//! tells nothing (a PID namespace of its own), it waits until the job is over, and is ended then
//! (`supervisor/trust.rs`).

use super::{End, Space};
use crate::ends::{Misuse, Unservable};
use crate::ports::Userfault;
use crate::shared::{lock, Link, Shared};
use pleat_sys::process::readable;
use pleat_wire::uffd::Message;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// How long a process that has lost its agent may take to be gone. It takes some microseconds as a rule, and
/// longer where threads of it are deep in the kernel.
const GOING: Duration = Duration::from_secs(5);
/// Between two looks whether it is.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Between two looks at one that is to be ended.
const WATCH_EVERY: Duration = Duration::from_millis(50);

impl Space {
    /// The agent has done something that no agent does.
    pub(super) fn misused(&self, how: Misuse) -> End {
        self.shared.meters.dropped_peers.add(1);
        self.condemn(Unservable::Misuse(how))
    }

    /// The process is to be ended, because it cannot be given what it should have.
    pub(super) fn condemn(&self, why: Unservable) -> End {
        self.link.condemn(why);
        End::Condemned
    }

    /// Says that the process is ended, and why, if it is not gone by itself.
    pub(super) fn tell_why(&self) {
        let Some(why) = self.link.why_unservable() else {
            return;
        };
        let pid = self.link.pid.load(Ordering::Acquire);
        let who = match pid {
            0 => "a forked process".into(),
            pid => format!("process {pid}"),
        };
        if !self.link.uffd.is_dead() {
            self.shared.meters.ended_processes.add(1);
            self.shared.tell(format!("{who} is ended: {why}"));
        }
    }

    /// The connection to the agent is closed: the process ends, or executes another program, or has closed it.
    pub(super) fn outlive_agent(&self) -> End {
        if self.was_asked_to_leave() {
            return self.part();
        }
        let began = self.now();
        while self.shared.machine.since(began) < GOING && !self.shared.is_over() {
            let has_ended = self
                .process
                .as_ref()
                .is_some_and(|process| self.shared.machine.has_ended(process));
            if has_ended || self.link.uffd.is_dead() {
                return End::Gone;
            }
            self.shared.machine.pause(LOOK_EVERY);
        }
        match self.has_the_same_memory() {
            true => self.condemn(Unservable::AgentGone),
            // It executes another program, and this memory is somebody's whom it has shared it with.
            false => End::Gone,
        }
    }

    /// Whether the process still has the memory that this space is of: its agent's area is where it was.
    fn has_the_same_memory(&self) -> bool {
        let pid = self.link.pid.load(Ordering::Acquire);
        let Some((start, end)) = self.agent.as_ref().map(|agent| agent.own[0]) else {
            return false;
        };
        let mappings = self.shared.machine.maps(pid).unwrap_or_default();
        let mut mappings = mappings.iter();
        end > start && mappings.any(|mapping| mapping.start < end && start < mapping.end)
    }

    /// Until a condemned process is gone: has it killed as soon as it is known, answers nothing, and keeps what
    /// it forks from reading anything.
    pub(super) fn see_off(&mut self) {
        if self.link.why_unservable().is_none() {
            return;
        }
        // Faults that were read are told no more, and those may be all that wait here. Whose fault was being answered may have ended
        // since, of several threads.
        let read = self.deferred.iter().chain(&self.faults);
        let read = read.map(|fault| fault.thread);
        for thread in std::iter::once(self.answering).chain(read) {
            self.recognise(thread as i32);
        }
        while !self.shared.is_over() && !self.link.uffd.is_dead() {
            if let Some(process) = lock(&self.link.process).as_ref() {
                self.shared.machine.kill(process);
            }
            let mut fresh = Vec::new();
            let _ = self.link.uffd.read(&mut fresh);
            fresh.extend(self.events.drain(..));
            for message in fresh {
                match message {
                    Message::Fork { child } => {
                        condemn_child(&self.shared, self.link.uffd.child(child));
                    }
                    Message::Fault { thread, .. } => self.recognise(thread as i32),
                    _ => {}
                }
            }
            let mut fds = [readable(self.link.uffd.descriptor())];
            self.shared.machine.wait(&mut fds, Some(WATCH_EVERY));
        }
    }

    /// The process of a thread that waits for a page here, if its number is ours and nobody else's.
    fn recognise(&self, thread: i32) {
        if lock(&self.link.process).is_some() {
            return;
        }
        let Some((pid, found)) = self.shared.machine.find_waiting(thread) else {
            return;
        };
        if !lock(&self.shared.by_pid).contains_key(&pid) {
            lock(&self.link.process).get_or_insert(found);
        }
    }
}

/// A child was forked whose memory cannot be given to it: it is to be ended.
pub(super) fn condemn_child(shared: &Arc<Shared>, child: Arc<dyn Userfault>) {
    let Ok((bell, _)) = shared.machine.for_child() else {
        // Open for as long as the job lasts.
        return lock(&shared.graves).push(child);
    };
    let id = shared.engine().add_space();
    let link = Arc::new(Link::of_child(
        id,
        [0; 2],
        child,
        bell,
        (None, shared.machine.clone()),
    ));
    link.condemn(Unservable::CannotInherit);
    Space::new(shared.clone(), link, BTreeMap::new()).start();
}
