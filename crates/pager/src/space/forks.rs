//! Forks: getting ready for one that is announced, following one that happened, and what is special
//! about a child's first faults.

use super::faults::{Fault, Later};
use super::misconduct::condemn_child;
use super::newborn::Newborn;
use super::standins::GiveBack;
use super::{End, Space};
use crate::ports::Userfault;
use crate::shared::{lock, Link};
use pleat_sys::uffd::FillError;
use pleat_types::PAGE_SIZE;
use pleat_wire::message::Token;
use pleat_wire::uffd::Message;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a fork costs at once besides pages: the child's kernel structures and its staging ring, and
/// its page tables here and in the kernel, as a share of what it has.
const FORK_BYTES: u64 = 1 << 20;
const FORK_SHARE: u64 = 128;
/// Commands are held back no longer than this for an announced fork: threads that ring at the same
/// time may miss the doorbell that says it is over.
pub(super) const FORK_HOLD: Duration = Duration::from_secs(2);

/// Forks that threads have announced and that are not over, by thread. While there are any, no
/// command is made: were the parent to end right after its fork, pages just being taken would be lost
/// to the child.
///
/// By thread, because one announcement may be heard twice: a signal has the thread fault again.
#[derive(Default)]
pub(super) struct Forks(HashMap<u32, Announced>);

struct Announced {
    /// Commands have ended and shared pages are protected: the thread may fork.
    is_prepared: bool,
    since: Instant,
}

impl Forks {
    /// Whether commands are to be held back; forks announced long ago are dropped.
    pub(super) fn hold(&mut self, now: Instant) -> bool {
        let is_young = |since| now.saturating_duration_since(since) < FORK_HOLD;
        self.0.retain(|_, fork| is_young(fork.since));
        !self.0.is_empty()
    }

    /// When the oldest hold ends by itself.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        let oldest = self.0.values().map(|fork| fork.since).min()?;
        Some(FORK_HOLD.saturating_sub(now.saturating_duration_since(oldest)))
    }

    /// A thread has forked, or failed to, or waits for memory before it may.
    pub(super) fn over(&mut self, thread: u32) {
        self.0.remove(&thread);
    }

    fn any_prepared(&self) -> bool {
        self.0.values().any(|fork| fork.is_prepared)
    }

    fn is_prepared(&self, thread: u32) -> bool {
        self.0.get(&thread).is_some_and(|fork| fork.is_prepared)
    }

    fn announce(&mut self, thread: u32, is_prepared: bool, since: Instant) {
        self.0.insert(thread, Announced { is_prepared, since });
    }
}

impl Space {
    /// The program waits to fork. Pages just being taken away must have arrived before, and what both
    /// will share is protected. `Some` while it has to wait.
    pub(super) fn prepare_fork(&mut self, fault: &Fault) -> Option<Later> {
        let thread = fault.thread;
        if self.forks.is_prepared(thread) {
            return None;
        }
        if !fault.is_urgent && !self.has_room_for_fork() {
            // Room comes by commands, so they must not be held back for this fork meanwhile.
            self.forks.over(thread);
            self.hold_commands();
            return Some(Later::Memory);
        }
        let now = self.now();
        self.forks.announce(thread, false, now);
        let busy = {
            let mut take = lock(&self.link.take);
            take.hold(now);
            !take.is_quiet()
        };
        if busy {
            return Some(Later::Leaving);
        }
        if let Err(FillError::EventPending) = self.protect_for_fork() {
            return Some(Later::Event);
        }
        self.forks.announce(thread, true, now);
        None
    }

    fn has_room_for_fork(&self) -> bool {
        let room = FORK_BYTES + self.present_bytes() / FORK_SHARE;
        self.shared.engine().ask(room)
    }

    /// The program forked: the child's page table is this one's, at this moment.
    pub(super) fn fork(&mut self, child: Arc<dyn Userfault>) -> Result<(), End> {
        self.shared.meters.forks.add(1);
        if self.was_asked_to_leave() {
            child.close();
            return Ok(());
        }
        let Ok((bell, token)) = self.shared.machine.for_child() else {
            self.shared.tell(
                "out of descriptors; raise `ulimit -n`: a process just forked is ended for that"
                    .into(),
            );
            condemn_child(&self.shared, child);
            return Ok(());
        };
        let id = self.shared.engine().fork_space(self.link.id);
        let maybe_wiped = self.maybe_wiped_in_child();
        self.link.children.fetch_add(1, Ordering::AcqRel);
        let parent = Some(Arc::downgrade(&self.link));
        let link = Link::of_child(
            id,
            token,
            child,
            bell,
            (parent, self.shared.machine.clone()),
        );
        let beacon = self.beacon.map_or(0, |beacon| beacon.address());
        link.beacon.store(beacon, Ordering::Release);
        let link = Arc::new(link);
        lock(&self.shared.claims).insert(token, link.clone());
        let registered = self.registered.clone();
        self.protect_after_fork(&link);
        let is_protected = self.link.is_protected.load(Ordering::Acquire);
        link.is_protected.store(is_protected, Ordering::Release);
        let mut space = Space::new(self.shared.clone(), link, registered);
        space.newborn = Some(Newborn { maybe_wiped });
        lock(&space.link.take).hold(self.now());
        space.beacon = self.beacon;
        // What came between the report and the deed is thought to be there in the child, too.
        space.given_up = self.given_up;
        space.moved_wiped = self.moved_wiped.clone();
        space.origins = self.origins.clone();
        space.views = self.views.clone();
        for file in space.views.files() {
            file.join(&space.link);
        }
        space.segments = self.segments.clone();
        if let Some(segments) = self.shared.segments.get() {
            segments.inherit(&self.link, &space.link);
        }
        space.start();
        Ok(())
    }

    /// Pages shared with a child become two when either writes to them, and the kernel tells nobody.
    /// Where memory could not hold them all twice, they are write-protected before the fork (the
    /// child inherits that), so that each such write asks for its page first.
    fn protect_for_fork(&mut self) -> Result<(), FillError> {
        let has_room = self.has_room_for_copy();
        self.link.is_protected.store(!has_room, Ordering::Release);
        if has_room {
            return Ok(());
        }
        self.shared.meters.protected_forks.add(1);
        self.protect_all(&*self.link.uffd)
    }

    /// As [`Space::protect_for_fork`], for forks of which memory could hold all twice when they were made, but cannot
    /// any more.
    pub(super) fn protect_now(&mut self) {
        match self.protect_all(&*self.link.uffd) {
            Err(FillError::EventPending) => self.ask_for_protection_again(),
            _ => self.link.is_protected.store(true, Ordering::Release),
        }
    }

    /// Once the event is read.
    fn ask_for_protection_again(&self) {
        lock(&self.link.mail).protect = true;
        self.link.bell.ring();
    }

    /// As [`Space::protect_for_fork`], for a fork that nobody has announced: a few pages may have
    /// become two already, which the next measurement sees.
    fn protect_after_fork(&mut self, child: &Link) {
        if self.forks.any_prepared() {
            return;
        }
        let has_room = self.has_room_for_copy();
        self.link.is_protected.store(!has_room, Ordering::Release);
        if has_room {
            return;
        }
        self.shared.meters.protected_forks.add(1);
        for uffd in [&self.link.uffd, &child.uffd] {
            for _ in 0..1000 {
                match self.protect_all(&**uffd) {
                    Err(FillError::EventPending) => self.shared.machine.pause(Duration::ZERO),
                    _ => break,
                }
            }
        }
    }

    fn has_room_for_copy(&self) -> bool {
        let present = self.present_bytes() as i64;
        self.shared.engine().free_bytes() > present
    }

    fn present_bytes(&self) -> u64 {
        self.shared.engine().space_resident_pages(self.link.id) * PAGE_SIZE as u64
    }

    fn protect_all(&self, uffd: &dyn Userfault) -> Result<(), FillError> {
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

    /// Closes the userfaultfds of forks read but not followed: only when the job is over, for their
    /// processes would read zeros.
    pub(super) fn drop_children_unborn(&mut self) {
        for message in self.events.drain(..) {
            if let Message::Fork { child } = message {
                drop(self.link.uffd.child(child));
            }
        }
    }

    /// Fills the beacon or a doorbell with a token or zeros, one page at a time: a doorbell filled ahead would not
    /// ring. The first thing that a forked child's agent does is to read the beacon: it finds the token of
    /// its space there, and in no other memory, which it passes on when it says hello.
    pub(super) fn answer_own(&mut self, fault: &Fault, token: Token) -> Result<Option<Later>, End> {
        let page = &mut self.scratch.get(&self.shared).pages[..PAGE_SIZE];
        page.fill(0);
        for (to, half) in page.chunks_exact_mut(8).zip(token) {
            to.copy_from_slice(&half.to_ne_bytes());
        }
        let filled = self.link.uffd.copy(fault.page.address(), page);
        // It is for that memory and nothing else.
        page[..16].fill(0);
        self.plan.items.clear();
        self.conclude(fault, filled, 1, true)
    }

    /// Holds commands back while a fork is announced, the agent has files to map again, or what this child has
    /// is not yet known, and no longer.
    pub(super) fn hold_commands(&mut self) {
        let is_unknown = self.newborn.is_some();
        let mut take = lock(&self.link.take);
        let now = self.now();
        let is_held = self.forks.hold(now);
        match is_held || self.giving_back != GiveBack::Idle || is_unknown {
            true => take.hold(now),
            false => take.release(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_heard_twice_is_over_at_once() {
        let mut forks = Forks::default();
        let now = Instant::now();
        forks.announce(7, true, now);
        forks.announce(7, true, now);
        assert!(forks.hold(now));
        forks.over(7);
        assert!(!forks.hold(now), "commands held back for ever stop the job");
    }

    #[test]
    fn commands_are_held_until_the_last_fork_is_over() {
        let mut forks = Forks::default();
        let now = Instant::now();
        forks.announce(7, true, now);
        forks.announce(8, false, now);
        forks.over(7);
        assert!(forks.hold(now) && !forks.any_prepared());
        assert!(forks
            .patience(now)
            .is_some_and(|patience| patience <= FORK_HOLD));
        assert!(!forks.hold(now + FORK_HOLD));
        forks.over(8);
        assert!(!forks.hold(now));
    }
}
