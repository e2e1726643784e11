//! Leaving a process that goes on: all that is away comes back, its agent ends, and the userfaultfd is closed.
//!
//! What may happen at the same time, and why it is right:
//!
//! - *A command that is being made or under way.* From [`Link::leave`](crate::link::Link::leave) on none is begun. What one takes
//!   still counts as away, so it is waited for and brought back.
//! - *Faults and events.* They are met as ever until the end (rules 1 and 2), for what is brought back is looked up and filled by the
//!   same thread in the same turn as a fault's page. A page that was given up meanwhile is not away any more.
//! - *A fork.* The child's space is another, and is left like this one; what was away when it was made is away in both, and
//!   comes back in both. It is not begun before it is known what the fork has left out of the child (`newborn.rs`). Once the agent was
//!   told to end, the child is let go at once: nothing was away when it was made, for between a fork and the reading of its event
//!   nothing comes back and nothing is taken. (Its agent could not say whose memory it has: the parent's may have unmapped the beacon.)
//! - *The end.* Once nothing is away, nothing can be: no command is made, and there are no messages that were read and not met. So the
//!   kernel's own answer to a fault, zeros, is the right one from then on, in this process and in every child that it forks, and it does
//!   not matter when the descriptors are closed: the agent's own by its end, ours when that is heard. The kernel then lets go on who
//!   waits for a page, for an event to be read, or at a protected page.
//! - *An agent that is stopped* does not hear that it is to end: the process is left when it goes on, and served until then.

use super::faults::{Fault, Later};
use super::standins::GiveBack;
use super::{End, Space};
use crate::shared::lock;
use pleat_sys::uffd::FillError;
use pleat_types::{PageNo, PageRange};
use pleat_wire::message::{Word, LEAVE};
use std::time::Duration;

/// Pages brought back in a turn, for faults wait meanwhile.
const AT_ONCE: usize = 64;
/// Of these so many are read from the swap file at the same time.
const READS: usize = 16;
/// Between two looks whether something is in the way.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How far a space has come on its way to being left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// It stays.
    No,
    /// What is away comes back; next from this page on.
    BringsBack(PageNo),
    /// Nothing is away, and the agent was told to end.
    Asked,
}

impl Space {
    /// The process is to be left, or not any more.
    pub(super) fn begin_leaving(&mut self, is_leaving: bool) {
        self.leaving = match (is_leaving, self.leaving) {
            (true, Leaving::No) => Leaving::BringsBack(PageNo(0)),
            (false, Leaving::BringsBack(_)) => Leaving::No,
            // An agent that was told to end does.
            (_, leaving) => leaving,
        };
        self.leave_segments(self.leaving != Leaving::No);
        lock(&self.link.take).close(self.leaving != Leaving::No);
    }

    /// Whether the agent has ended because it was told to.
    pub(super) fn was_asked_to_leave(&self) -> bool {
        self.leaving == Leaving::Asked
    }

    /// How long to sleep at most.
    pub(super) fn patience_of_leaving(&self) -> Option<Duration> {
        match self.leaving {
            // Of a child that is not known yet nothing comes back.
            Leaving::BringsBack(_)
                if self.newborn.is_none() && self.may_bring_back() && self.has_away() =>
            {
                Some(Duration::ZERO)
            }
            Leaving::BringsBack(_) => Some(LOOK_EVERY),
            Leaving::No | Leaving::Asked => None,
        }
    }

    /// Brings back some of what is away; leaves when nothing is.
    pub(super) fn go_on_leaving(&mut self) -> Result<(), End> {
        let Leaving::BringsBack(next) = self.leaving else {
            return Ok(());
        };
        if self.newborn.is_some() {
            return Ok(());
        }
        if self.has_away() {
            return self.bring_back(next);
        }
        if !self.is_through() || !self.quit_segments() || !lock(&self.link.take).end() {
            return Ok(());
        }
        let Some(agent) = &self.agent else {
            return Err(self.part());
        };
        let leave = Word {
            kind: LEAVE,
            error: 0,
        };
        // If it fails the process is just ending, or does not listen, which is tried again.
        let sent = agent.channel.send(pleat_sys::bytes_of(&leave), None);
        match sent {
            Ok(()) => self.leaving = Leaving::Asked,
            Err(_) => lock(&self.link.take).resume(),
        }
        Ok(())
    }

    fn has_away(&self) -> bool {
        self.shared.engine().space_away_pages(self.link.id) > 0
    }

    /// Whether more may be asked for than is on its way.
    fn may_bring_back(&self) -> bool {
        let under_way = self.deferred.iter().filter(|fault| fault.is_unasked());
        under_way.count() < READS
    }

    /// From this page on, and from the first when there is none.
    fn bring_back(&mut self, mut next: PageNo) -> Result<(), End> {
        for _ in 0..AT_ONCE {
            if !self.may_bring_back() {
                break;
            }
            let found = self.shared.engine().first_away(self.link.id, next);
            let Some(page) = found else {
                next = PageNo(0);
                break;
            };
            next = page.plus(1);
            let is_under_way = |fault: &Fault| fault.is_unasked() && fault.page == page;
            if !self.deferred.iter().any(is_under_way) {
                self.answer(Fault::unasked(page, self.now()))?;
            }
        }
        self.leaving = Leaving::BringsBack(next);
        Ok(())
    }

    /// A page that was to come back has no place. If the kernel has nothing there of ours, it was the mapping's, which is gone.
    pub(super) fn note_unmapped(&mut self, fault: &Fault) -> Result<Option<Later>, End> {
        match self.link.uffd.check_private(fault.page.address()) {
            Err(FillError::NotMapped) => {
                let range = PageRange::new(fault.page, 1);
                self.shared.engine().forget(self.link.id, range);
                Ok(None)
            }
            Err(FillError::Dead) => Err(End::Gone),
            _ => Ok(Some(Later::Event)),
        }
    }

    /// Whether nothing is to be done any more that was begun.
    fn is_through(&self) -> bool {
        let is_heard =
            self.events.is_empty() && self.faults.is_empty() && self.newcomers.is_empty();
        let is_done = self.deferred.is_empty() && self.giving_back == GiveBack::Idle;
        is_heard && is_done && self.revoked.is_none()
    }

    /// Gives the address space back to the kernel.
    pub(super) fn part(&self) -> End {
        self.link.uffd.close();
        End::Gone
    }
}
