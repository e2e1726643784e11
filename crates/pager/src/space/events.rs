//! Reading the userfaultfd, and following what the program does to its address space.

use super::faults::Fault;
use super::{Ended, Space};
use crate::shared::{lock, Link, Mail, TakeState};
use pleat_sys::process::{readable, wait, Bell};
use pleat_sys::uffd::{FillError, Uffd};
use pleat_types::{PageNo, PageRange, PAGE_SIZE};
use pleat_wire::uffd::Message;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

impl Space {
    /// Reads the messages that wait into the queues, with commands held back if there was an event
    /// (rule 4).
    pub(super) fn gather(&mut self) -> Result<(), Ended> {
        let mut fresh = Vec::new();
        let uffd = &self.link.uffd;
        let ring = self.agent.as_ref().map(|agent| &agent.slots.ring);
        if let Some(ring) = ring {
            let give_up = || uffd.is_dead() || self.shared.is_over();
            // Given up, the lock is a dead agent's, who moves no page any more.
            ring.lock(&give_up);
        }
        let result = uffd.read(&mut fresh);
        if let Some(ring) = ring {
            if fresh.iter().any(|m| !matches!(m, Message::Fault { .. })) {
                lock(&self.link.take).held = true;
                ring.control().generation.fetch_add(1, Ordering::AcqRel);
            }
            ring.unlock();
        }
        for message in fresh {
            match message {
                Message::Fault {
                    address,
                    flags,
                    thread,
                } => self.faults.push_back(Fault::new(address, flags, thread)),
                event => self.events.push_back(event),
            }
        }
        result.map_err(|error| {
            self.shared
                .fail(format!("cannot follow a process: {error}"));
            Ended
        })
    }

    /// Deals with everything read so far: all events first, in order, then the faults (rule 2).
    pub(super) fn work(&mut self) -> Result<(), Ended> {
        while let Some(event) = self.events.pop_front() {
            match event {
                Message::Remove { start, end } => {
                    self.given_up = Some(Instant::now());
                    self.forget(start, end);
                }
                Message::Unmap { start, end } => {
                    self.unregister(start, end);
                    self.forget(start, end);
                }
                Message::Remap { from, to, len } => {
                    self.await_commands()?;
                    self.remap(from, to, len);
                }
                Message::Fork { child } => {
                    // SAFETY: the kernel made the descriptor for the reader of this message.
                    let child = unsafe { OwnedFd::from_raw_fd(child) };
                    self.forking = true;
                    self.await_commands()?;
                    self.forking = false;
                    self.fork(child)?;
                }
                Message::Fault { .. } => unreachable!("faults have a queue of their own"),
            }
        }
        // Held on for forks that are announced, until they are over.
        let holds = self.announced_forks > 0 || self.holds_for_fork;
        lock(&self.link.take).held = holds;
        while let Some(fault) = self.faults.pop_front() {
            self.meet(fault)?;
        }
        Ok(())
    }

    fn forget(&mut self, start: u64, end: u64) {
        cut(&mut self.zeros, start, end);
        let range = PageRange::of_addresses(start, end);
        self.shared.engine().forget(self.link.id, range);
    }

    fn remap(&mut self, from: u64, to: u64, len: u64) {
        let pages = PageRange::of_addresses(from, from + len).len();
        self.unregister(to, to + len);
        self.registered.insert(to, to + len);
        let (from, to) = (PageNo::of_address(from), PageNo::of_address(to));
        self.shared.engine().remap(self.link.id, from, to, pages);
    }

    /// Waits until no command is under way or being made; commands are held back, and the one under
    /// way finds another generation, so this takes microseconds (rule 5).
    fn await_commands(&mut self) -> Result<(), Ended> {
        loop {
            {
                let take = lock(&self.link.take);
                if !take.reserved && take.in_flight.is_empty() {
                    return Ok(());
                }
            }
            let agent = self.agent.as_ref().map_or(-1, |a| a.channel.as_raw_fd());
            let uffd = self.link.uffd.as_raw_fd();
            wait(
                &mut [readable(agent), readable(uffd)],
                Some(Duration::from_millis(1)),
            );
            self.hear_agent()?;
            self.gather()?;
            if self.shared.is_over() {
                return Err(Ended);
            }
            if self.agent_gone || self.link.uffd.is_dead() {
                return self.bury_commands();
            }
        }
    }

    /// The agent died with a command under way. Pages of it may be lost, which does not matter to a
    /// process that is gone, but would to a child that it has forked since.
    fn bury_commands(&mut self) -> Result<(), Ended> {
        self.agent_gone = true;
        let forked = self
            .events
            .iter()
            .any(|event| matches!(event, Message::Fork { .. }));
        if self.forking || forked {
            self.shared.fail(
                "a process ended just after a fork that was not made by the C library, and part of \
                 its child's memory with it; the job is ended to keep the child from reading \
                 anything else"
                    .into(),
            );
        }
        Err(Ended)
    }

    /// The program forked: the child's page table is this one's, at this moment.
    fn fork(&mut self, child: OwnedFd) -> Result<(), Ended> {
        self.shared.meters.forks.add(1);
        let Ok(bell) = Bell::new() else {
            self.shared
                .fail("out of descriptors; raise `ulimit -n`".into());
            return Err(Ended);
        };
        let id = self.shared.engine().fork_space(self.link.id);
        if let Some(agent) = &self.agent {
            // Wiped in the child.
            let own = PageRange::new(agent.beacon, agent.doorbells.len() + 1);
            self.shared.engine().forget(id, own);
        }
        let wiped = self.wiped_for_child()?;
        self.link.children.fetch_add(1, Ordering::AcqRel);
        let link = Arc::new(Link {
            id,
            pid: AtomicI32::new(0),
            uffd: Arc::new(Uffd::new(child)),
            bell,
            mail: Mutex::new(Mail::default()),
            take: Mutex::new(TakeState::default()),
            parent: Some(Arc::downgrade(&self.link)),
            children: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        });
        let run_max = (self.pages.len() / PAGE_SIZE) as u32;
        let registered = self.registered.clone();
        self.protect_after_fork(&link);
        match Space::new(self.shared.clone(), link, run_max, registered) {
            Some(mut space) => {
                space.maybe_wiped = wiped;
                space.inherited_beacon = self
                    .agent
                    .as_ref()
                    .map(|agent| agent.beacon)
                    .or(self.inherited_beacon);
                space.start();
            }
            None => self.shared.fail("cannot make a codec".into()),
        }
        Ok(())
    }

    /// Pages shared with a child become two when either writes to them, and the kernel tells nobody.
    /// Where memory could not hold them all twice, they are write-protected before the fork (the
    /// child inherits that), so that each such write asks for its page first.
    pub(super) fn protect_for_fork(&mut self) -> Result<(), FillError> {
        if self.has_room_for_copy() {
            return Ok(());
        }
        self.shared.meters.protected_forks.add(1);
        self.protect_all(&self.link.uffd)
    }

    /// As [`Space::protect_for_fork`], for a fork that nobody has announced: a few pages may have
    /// become two already, which the next measurement sees.
    fn protect_after_fork(&mut self, child: &Link) {
        if self.announced_forks > 0 || self.has_room_for_copy() {
            return;
        }
        self.shared.meters.protected_forks.add(1);
        for uffd in [&self.link.uffd, &child.uffd] {
            for _ in 0..1000 {
                match self.protect_all(uffd) {
                    Err(FillError::EventPending) => std::thread::yield_now(),
                    _ => break,
                }
            }
        }
    }

    fn has_room_for_copy(&self) -> bool {
        let present = self.present_bytes() as i64;
        self.shared.engine().free_bytes() > present
    }

    pub(super) fn present_bytes(&self) -> u64 {
        self.shared.engine().space_resident_pages(self.link.id) * PAGE_SIZE as u64
    }

    fn protect_all(&self, uffd: &Uffd) -> Result<(), FillError> {
        for (start, end) in &self.registered {
            match uffd.protect(*start, end - start, true) {
                Err(FillError::EventPending) => return Err(FillError::EventPending),
                // The mapping is gone, or not what it was: its pages are not protected, which costs
                // exactness of the account and nothing else.
                _ => continue,
            }
        }
        Ok(())
    }

    /// Ranges that were put under MADV_WIPEONFORK at some time: where they still are, they are empty in
    /// the child. Whether they are is asked when the child touches them, of the child's own mappings.
    fn wiped_for_child(&self) -> Result<Vec<PageRange>, Ended> {
        let Some(agent) = &self.agent else {
            return Ok(self.maybe_wiped.clone());
        };
        let control = agent.slots.ring.control();
        let count = control.wiped_count.load(Ordering::Acquire) as usize;
        if count > control.wiped.len() {
            self.shared.fail(format!(
                "a process uses MADV_WIPEONFORK on more than {} ranges and forks, which pleat \
                 cannot follow",
                control.wiped.len()
            ));
            return Err(Ended);
        }
        let range = |entry: &[std::sync::atomic::AtomicU64; 2]| {
            let [start, end] = entry;
            let (start, end) = (start.load(Ordering::Acquire), end.load(Ordering::Acquire));
            PageRange::of_addresses(start, end.max(start))
        };
        Ok(control.wiped.iter().take(count).map(range).collect())
    }

    /// Closes the userfaultfds of forks read but not followed: only when the job is over, for their
    /// processes would read zeros.
    pub(super) fn drop_children_unborn(&mut self) {
        for message in self.events.drain(..) {
            if let Message::Fork { child } = message {
                // SAFETY: the kernel made the descriptor for the reader of this message.
                drop(unsafe { OwnedFd::from_raw_fd(child) });
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
fn cut(ranges: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
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
