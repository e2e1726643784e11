//! Commands whose agent is stopped at work, or has died at it.
//!
//! Whoever traces a process stops all its threads, the agent's among them, and may then read its memory: a debugger,
//! `gcore`, a profiler; LeakSanitizer does so at the end of a program, from a process that shares the memory. The agent may
//! have the control lock then, for which this thread would wait at every fault, and pages that it has taken and not handed over.
//! So its command is revoked: the pages are fetched from where they have come to, and the answer that follows when the agent
//! goes on is for nothing.
//!
//! # Why no page is lost or old, whatever the agent does meanwhile
//!
//! It need not be stopped in fact: it may go on at any moment, or never have been. A page comes from its place to the staging
//! area, is copied into its frame, is noted as copied, and leaves the staging area, in this order.
//!
//! 1. The staging area is unregistered: the kernel refuses every later move into it. Whether a page has been taken is
//!    settled then. (The kernel moves under the lock of the mapping, which unregistering takes for writing.)
//! 2. It is looked up which pages are in the staging area, and those are read.
//! 3. It is looked up which are noted as copied. Of these the frame is whole; it is not written to with anything else
//!    before the next command. One that is not noted has not left the staging area, so if it was there at step 2 it was read
//!    there, and if it was not it has never been taken.
//!
//! Frames are free for other pages only when no agent writes to them: no other command is made before this one is answered.

use super::patience::state_of;
use super::{End, Space};
use crate::ends::{Misuse, Unservable};
use crate::link::STAGING_LEN;
use crate::ports::{Memory, Userfault};
use crate::shared::{lock, AgentLink};
use pleat_sys::procfs::State;
use pleat_sys::uffd::FillError;
use pleat_types::{PageNo, PAGE_SIZE};
use pleat_wire::control::{COPIED, RETRIED};
use pleat_wire::message::{self, Taken, TAKE_MAX};
use std::io;
use std::sync::atomic::Ordering;

impl Space {
    /// As [`Space::revoke`], if the agent is stopped.
    pub(super) fn revoke_if_stopped(&mut self) -> Result<(), End> {
        let pid = self.link.pid.load(Ordering::Acquire);
        let agent = self.agent.as_ref();
        if agent.is_some_and(|agent| state_of(&*self.shared.machine, agent, pid) == State::Held) {
            self.revoke()?;
        }
        Ok(())
    }

    /// Ends the command under way without its agent. `false`: there is none, or it cannot be done, and the agent is to be
    /// waited for.
    pub(super) fn revoke(&mut self) -> Result<bool, End> {
        let Some(agent) = self.agent.clone().filter(|_| self.revoked.is_none()) else {
            return Ok(false);
        };
        let items = lock(&self.link.take).sent().map(|sent| sent.items.clone());
        let Some(items) = items else {
            return Ok(false);
        };
        let pid = self.link.pid.load(Ordering::Acquire);
        // Opened first: whether that is allowed must not be found out in the middle.
        let Ok(memory) = self.shared.machine.memory(pid) else {
            return Ok(false);
        };
        let uffd = &self.link.uffd;
        if uffd.unregister(agent.staging, STAGING_LEN).is_err() {
            return Ok(false);
        }
        let Ok(status) = recover(&agent, &items, &*memory) else {
            return Err(self.condemn(Unservable::CannotRecover));
        };
        lock(&self.link.take).revoke();
        self.revoked = Some(items.len());
        self.shared.meters.revoked_commands.add(1);
        self.put_away(&agent, &items, &status);
        Ok(true)
    }

    /// The agent died with a command under way, or just before. What it has copied is in its frames, as if it had answered; what it
    /// has taken out of its place and not copied is lost. That does not matter to a process that is gone, but to a child
    /// that it has forked meanwhile: see [`Space::lacks_any`].
    pub(super) fn settle_last_command(&mut self) -> Result<(), End> {
        // It may have answered.
        while !self.agent_gone && lock(&self.link.take).sent().is_some() {
            if !self.hear_agent()? {
                break;
            }
        }
        self.agent_gone = true;
        let items = lock(&self.link.take).sent().map(|sent| sent.items.clone());
        let (Some(agent), Some(items)) = (self.agent.clone(), items) else {
            return Ok(());
        };
        let mut status = [message::STALE; TAKE_MAX];
        for (at, (&(page, _), status)) in items.iter().zip(&mut status).enumerate() {
            match noted(&agent, at) {
                Noted::Copied(taken) => *status = taken,
                Noted::Not(_) => self.maybe_lost.push(page),
            }
        }
        lock(&self.link.take).revoke();
        self.revoked = Some(items.len());
        self.put_away(&agent, &items, &status);
        Ok(())
    }

    /// Whether a forked child may lack a page that was with its parent's agent when both the fork was made and the agent died: where
    /// the page is not, it was. What is not there is poisoned, for the child runs, and must not read anything else.
    pub(super) fn lacks_any(&self, child: &dyn Userfault) -> bool {
        let is_there = |page: &PageNo| {
            let poisoned = child.poison(page.address());
            matches!(poisoned, Err(FillError::Exists))
        };
        !self.maybe_lost.iter().all(is_there)
    }

    /// The agent has answered a command that was revoked.
    pub(super) fn end_revocation(
        &mut self,
        agent: &AgentLink,
        pages: usize,
        taken: &Taken,
    ) -> Result<(), End> {
        if taken.count as usize != pages {
            return Err(self.misused(Misuse::Unasked));
        }
        let uffd = &self.link.uffd;
        if let Err(error) = uffd.register_read_only(agent.staging, STAGING_LEN) {
            return Err(self.condemn(Unservable::CannotFollow(error)));
        }
        self.revoked = None;
        lock(&self.link.take).end_revocation();
        Ok(())
    }
}

/// What the agent would answer for these pages, each of which that was taken is in its frame afterwards. The staging area
/// has been unregistered.
fn recover(
    agent: &AgentLink,
    items: &[(PageNo, u32)],
    memory: &dyn Memory,
) -> io::Result<[u8; TAKE_MAX]> {
    let is_staged = memory.which_exist(agent.staging, TAKE_MAX)?;
    let mut status = [message::STALE; TAKE_MAX];
    let mut page = [0; PAGE_SIZE];
    for (at, &(_, frame)) in items.iter().enumerate() {
        if is_staged[at] {
            memory.read(agent.staging + (at * PAGE_SIZE) as u64, &mut page)?;
        }
        // After the read: see above.
        match noted(agent, at) {
            Noted::Copied(taken) => status[at] = taken,
            Noted::Not(taken) if is_staged[at] => {
                // Should the agent be about to copy it, it writes the same bytes.
                agent.slots.ring.put(frame, &page);
                status[at] = taken;
            }
            Noted::Not(_) => {}
        }
    }
    Ok(status)
}

/// What an agent has noted of a page of its command, with what it would answer for it if it has been taken.
enum Noted {
    /// It is in its frame.
    Copied(u8),
    /// It is not, or not whole.
    Not(u8),
}

fn noted(agent: &AgentLink, at: usize) -> Noted {
    let progress = agent.slots.ring.control().progress[at].load(Ordering::Acquire);
    let taken = match progress & RETRIED {
        0 => message::TOOK,
        _ => message::TOOK_SHARED,
    };
    match progress & COPIED {
        0 => Noted::Not(taken),
        _ => Noted::Copied(taken),
    }
}
