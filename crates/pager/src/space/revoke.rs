//! Commands whose agent is stopped at work.
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
use crate::ports::Memory;
use crate::shared::{lock, AgentLink};
use pleat_sys::procfs::State;
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
    let ring = &agent.slots.ring;
    let is_staged = memory.which_exist(agent.staging, TAKE_MAX)?;
    let mut status = [message::STALE; TAKE_MAX];
    let mut page = [0; PAGE_SIZE];
    for (at, &(_, frame)) in items.iter().enumerate() {
        if is_staged[at] {
            memory.read(agent.staging + (at * PAGE_SIZE) as u64, &mut page)?;
        }
        // After the read: see above.
        let progress = ring.control().progress[at].load(Ordering::Acquire);
        let is_copied = progress & COPIED != 0;
        if is_staged[at] && !is_copied {
            // Should the agent be about to copy it, it writes the same bytes.
            ring.put(frame, &page);
        }
        if is_staged[at] || is_copied {
            status[at] = match progress & RETRIED {
                0 => message::TOOK,
                _ => message::TOOK_SHARED,
            };
        }
    }
    Ok(status)
}
