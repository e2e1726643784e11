//! Reading the userfaultfd, and following what the program does to its address space.

use super::faults::Fault;
use super::misconduct::condemn_child;
use super::patience::Patience;
use super::{End, Space};
use crate::ends::{Misuse, Unservable};
use crate::shared::lock;
use pleat_sys::process::readable;
use pleat_types::{PageNo, PageRange};
use pleat_wire::uffd::Message;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Space {
    /// Reads the messages that wait into the queues, with commands held back if there was an event
    /// (rule 4).
    pub(super) fn gather(&mut self) -> Result<(), End> {
        let began = self.clock.now();
        let mut fresh = Vec::new();
        let is_locked = self.lock_agent()?;
        let result = self.link.uffd.read(&mut fresh);
        if let Some(agent) = &self.agent {
            let ring = &agent.slots.ring;
            if fresh.iter().any(|m| !matches!(m, Message::Fault { .. })) {
                lock(&self.link.take).hold(self.now());
                ring.control().generation.fetch_add(1, Ordering::AcqRel);
            }
            if is_locked {
                ring.unlock();
            }
        }
        self.clock.read(began, &fresh);
        for message in fresh {
            match message {
                Message::Fault {
                    address,
                    flags,
                    thread,
                } => self
                    .faults
                    .push_back(Fault::new(address, flags, thread, self.now())),
                event => {
                    if matches!(event, Message::Remove { start, .. } if !self.is_own(PageNo::of_address(start)))
                    {
                        self.given_up = Some(self.now());
                    }
                    self.events.push_back(event);
                }
            }
        }
        result.map_err(|error| self.condemn(Unservable::CannotFollow(error)))
    }

    /// Takes the control lock (rule 4). `false`: there is no agent that could move pages, so it is not needed.
    fn lock_agent(&mut self) -> Result<bool, End> {
        let patience = Patience::for_lock(self.now());
        let pid = self.link.pid.load(Ordering::Acquire);
        loop {
            let Some(agent) = self.agent.as_ref().filter(|_| self.revoked.is_none()) else {
                return Ok(false);
            };
            let uffd = &self.link.uffd;
            let is_gone = || uffd.is_dead() || self.shared.is_over();
            let is_exhausted = Cell::new(false);
            let give_up = || {
                is_exhausted.set(patience.is_exhausted(&*self.shared.machine, agent, pid));
                is_gone() || is_exhausted.get() || patience.sees_it_held()
            };
            if self.shared.machine.lock(&agent.slots.ring, &give_up) {
                return Ok(true);
            }
            // The lock is a dead agent's, who moves no page any more.
            if is_gone() {
                return Ok(false);
            }
            if is_exhausted.get() {
                return Err(self.misused(Misuse::LockKept));
            }
            if self.revoke()? {
                return Ok(false);
            }
        }
    }

    /// Deals with everything read so far: all events first, in order, then the faults (rule 2).
    pub(super) fn work(&mut self) -> Result<(), End> {
        while let Some(event) = self.events.pop_front() {
            match event {
                Message::Remove { start, end } => self.forget(start, end),
                Message::Unmap { start, end } => self.drop_range(start, end),
                Message::Remap { from, to, len } => {
                    self.await_commands()?;
                    self.remap(from, to, len);
                }
                Message::Fork { child } => {
                    let child = self.link.uffd.child(child);
                    if let Err(ended) = self.await_commands() {
                        // Part of what it should have may be lost. It must not be closed.
                        condemn_child(&self.shared, child);
                        return Err(ended);
                    }
                    if self.lacks_any(&*child) {
                        condemn_child(&self.shared, child);
                        self.shared.tell(
                            "a process ended just after a fork that was not made by the C library, and part of \
                             its child's memory with it; the child is ended to keep it from reading anything else"
                                .into(),
                        );
                        continue;
                    }
                    self.fork(child)?;
                }
                Message::Fault { .. } => unreachable!("faults have a queue of their own"),
            }
        }
        // Held on for forks that are announced, until they are over.
        self.hold_commands();
        self.meet_all()
    }

    fn forget(&mut self, start: u64, end: u64) {
        cut(&mut self.zeros, start, end);
        let range = PageRange::of_addresses(start, end);
        self.shared.engine().forget(self.link.id, range);
    }

    fn remap(&mut self, from: u64, to: u64, len: u64) {
        if len == 0 {
            // Shared memory mapped once more, nobody says how much of it: that is found when it is touched.
            return;
        }
        let pages = PageRange::of_addresses(from, from + len).len();
        self.unregister(to, to + len);
        let is_shared = |end| self.views.touches(from, end) || self.segments.touches(from, end);
        if !is_shared(from + len) {
            self.registered.insert(to, to + len);
        }
        self.origins.copy(from, to, len);
        self.views.copy(from, to, len);
        self.segments.copy(from, to, len);
        let (from, to) = (PageNo::of_address(from), PageNo::of_address(to));
        self.move_wiped(PageRange::new(from, pages), to);
        self.shared.engine().remap(self.link.id, from, to, pages);
    }

    /// Waits until no command is under way or being made; commands are held back, and the one under
    /// way finds another generation, so this takes microseconds (rule 5).
    fn await_commands(&mut self) -> Result<(), End> {
        let patience = Patience::for_answer(self.now());
        loop {
            let is_sent = {
                let take = lock(&self.link.take);
                if take.is_quiet() {
                    return Ok(());
                }
                take.sent().is_some()
            };
            let agent = self.agent.as_ref().map_or(-1, |a| a.channel.descriptor());
            let uffd = self.link.uffd.descriptor();
            self.shared.machine.wait(
                &mut [readable(agent), readable(uffd)],
                Some(Duration::from_millis(1)),
            );
            self.hear_agent()?;
            self.gather()?;
            if self.shared.is_over() {
                return Err(End::Gone);
            }
            let pid = self.link.pid.load(Ordering::Acquire);
            let agent = self.agent.as_ref().filter(|_| is_sent);
            if agent.is_some_and(|agent| patience.is_exhausted(&*self.shared.machine, agent, pid)) {
                return Err(self.misused(Misuse::Unanswered));
            }
            if patience.sees_it_held() {
                self.revoke()?;
            }
            if self.agent_gone || self.link.uffd.is_dead() {
                self.settle_last_command()?;
            }
        }
    }

    /// Takes `[start, end)` out of the registered ranges.
    pub(super) fn unregister(&mut self, start: u64, end: u64) {
        cut(&mut self.registered, start, end);
        cut(&mut self.zeros, start, end);
    }
}

/// Takes `[start, end)` out of ranges kept as start to end.
pub(super) fn cut(ranges: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
    let hit: Vec<(u64, u64)> = ranges
        .range(..end)
        .rev()
        .take_while(|(_, e)| **e > start)
        .map(|(s, e)| (*s, *e))
        .collect();
    for (s, e) in hit {
        ranges.remove(&s);
        if s < start {
            ranges.insert(s, start);
        }
        if e > end {
            ranges.insert(end, e);
        }
    }
}
