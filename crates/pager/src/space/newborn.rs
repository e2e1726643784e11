//! A forked child before its program runs: what the fork left out of it.
//!
//! The engine's clone of the parent holds pages that the kernel keeps from the child: mappings under
//! MADV_DONTFORK are not there, those under MADV_WIPEONFORK are empty. No event tells of either, and both can
//! be changed by the child as soon as it runs. So the child's fork handler rings when its agent is ready, and
//! waits: its mappings are as the fork made them, and nothing is taken from it until they have been looked at.
//!
//! Nor does every mapping at a place where the parent has a registered one have to be registered: the parent may have
//! registered its own only since the kernel copied the mappings, and where it has one under MADV_DONTFORK, something new can be
//! here. That too is asked of the kernel then.

use super::adopt::covered;
use super::faults::{Fault, Later};
use super::{End, Space};
use crate::ends::Unservable;
use pleat_sys::procfs::Mapping;
use pleat_sys::uffd::FillError;
use pleat_types::{PageNo, PageRange, PAGE_SIZE};
use pleat_wire::control::WIPED_MAX;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a forked child may take to say who it is. Where its agent has to be put into it that takes seconds on a machine
/// with many times more to do than it has CPUs.
pub(super) const NAMELESS: Duration = Duration::from_secs(20);
/// The first address that no program has.
const ADDRESSES_END: u64 = 1 << 47;

/// What is not yet known of a forked child.
pub(super) struct Newborn {
    /// Where mappings of the parent were put under MADV_WIPEONFORK at some time. Empty: there are none anywhere,
    /// for what is moved (mremap) was put under it before.
    pub(super) maybe_wiped: Vec<PageRange>,
}

impl Space {
    /// The child's program is about to run. `Some` while it has to wait.
    ///
    /// It waits for its agent to be known here, which that itself does not wait for: what the program maps meanwhile, and
    /// the agent's own memory, could not be told apart. (Registered like the program's, the agent's stack was taken away
    /// from under it, with the lock in its hand.)
    pub(super) fn look_at_newborn(&mut self, fault: &Fault) -> Result<Option<Later>, End> {
        let Some(newborn) = &self.newborn else {
            return Ok(None);
        };
        // Where there is no agent, something else than a fork handler has touched this page.
        if self.agent.is_none() && self.age(fault) < NAMELESS {
            return Ok(Some(Later::Leaving));
        }
        let may_be_wiped = !newborn.maybe_wiped.is_empty();
        let pid = self.link.pid.load(Ordering::Acquire);
        let looked = self.shared.machine.maps(pid).and_then(|mappings| {
            self.drop_unmapped(&mappings);
            match may_be_wiped {
                true => self.drop_wiped(pid).map(|()| mappings),
                false => Ok(mappings),
            }
        });
        let mappings = looked.map_err(|error| self.cannot_look(error))?;
        match self.drop_unregistered(&mappings) {
            Ok(()) => {}
            Err(FillError::EventPending) => return Ok(Some(Later::Event)),
            Err(FillError::Dead) => return Err(End::Gone),
            Err(error) => {
                let why = format!("{error:?}");
                return Err(self.condemn(Unservable::CannotTellRegistered(why)));
            }
        }
        self.newborn = None;
        self.hold_commands();
        // What it has that its parent's space did not know. Nothing was registered before this look.
        self.link.rescan();
        Ok(None)
    }

    /// Forgets pages of the parent's in mappings that are not registered here. The engine has given the child all of the
    /// parent's pages; what the child really has in these, copies of its own or something else, is in its page tables and
    /// nowhere else, and is registered and adopted like any new mapping. (Taken away before that, a page would read as zeros
    /// ever after, without a fault. Registered on the parent's word, something that the child itself has mapped there
    /// since would read as the parent's pages.)
    fn drop_unregistered(&mut self, mappings: &[Mapping]) -> Result<(), FillError> {
        for &Mapping { start, end, .. } in mappings {
            let known = covered(&self.registered, start, end);
            let Some((first, _)) = known.first() else {
                continue;
            };
            // A mapping is registered whole or not at all; where it is not, the kernel refuses this. Where it is, one page
            // at most is write-protected no more, and becomes two without asking.
            match self.link.uffd.protect(*first, PAGE_SIZE as u64, false) {
                Ok(()) => {}
                Err(FillError::NotMapped) => self.drop_range(start, end),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What is known to be in `[start, end)` is not there, nor is that registered.
    pub(super) fn drop_range(&mut self, start: u64, end: u64) {
        self.unregister(start, end);
        self.never_had(start, end);
    }

    /// Where a child of this process may find pages wiped.
    pub(super) fn maybe_wiped_in_child(&self) -> Vec<PageRange> {
        let mut wiped = self.advised_wiped();
        wiped.extend(&self.moved_wiped);
        wiped
    }

    /// Where it has said so, or a parent has.
    fn advised_wiped(&self) -> Vec<PageRange> {
        let anywhere = || vec![PageRange::of_addresses(0, ADDRESSES_END)];
        let Some(agent) = &self.agent else {
            if self.wipes_children {
                return anywhere();
            }
            let newborn = self.newborn.as_ref();
            return newborn.map_or(Vec::new(), |newborn| newborn.maybe_wiped.clone());
        };
        if agent.is_injected {
            // Nobody has told; at this moment the kernel can. What was wiped in the child and is not to be in the parent's next
            // one any more, by a call of the parent's since its fork, is missed.
            let pid = self.link.pid.load(Ordering::Acquire);
            let wiped = self.shared.machine.wiped_on_fork(pid);
            let range = |(start, end): &(u64, u64)| PageRange::of_addresses(*start, *end);
            return wiped.map_or_else(|_| anywhere(), |wiped| wiped.iter().map(range).collect());
        }
        let control = agent.slots.ring.control();
        let count = control.wiped_count.load(Ordering::Acquire) as usize;
        if count > control.wiped.len() {
            return anywhere();
        }
        // The process may have written anything there.
        let range = |entry: &[AtomicU64; 2]| {
            let [start, end] = entry;
            let (start, end) = (start.load(Ordering::Acquire), end.load(Ordering::Acquire));
            PageRange::of_addresses(
                start.min(ADDRESSES_END),
                end.clamp(start.min(ADDRESSES_END), ADDRESSES_END),
            )
        };
        control.wiped.iter().take(count).map(range).collect()
    }

    /// What may be wiped in children stays so when it is moved. The agent's library has noted where it was when that was said.
    pub(super) fn move_wiped(&mut self, from: PageRange, to: PageNo) {
        for range in self.maybe_wiped_in_child() {
            let (start, end) = (range.start.max(from.start), range.end.min(from.end));
            if start >= end {
                continue;
            }
            let moved = PageRange::new(PageNo(to.0 + start.0 - from.start.0), end.0 - start.0);
            let is_known = |known: &PageRange| known.start <= moved.start && moved.end <= known.end;
            if !self.moved_wiped.iter().any(is_known) {
                self.moved_wiped.push(moved);
            }
            if let Some(newborn) = &mut self.newborn {
                newborn.maybe_wiped.push(moved);
            }
        }
        if self.moved_wiped.len() > WIPED_MAX {
            self.moved_wiped = vec![PageRange::of_addresses(0, ADDRESSES_END)];
        }
    }

    /// Whether pages beside a fault may be brought along: they may be wiped, if this child has not been looked at.
    pub(super) fn may_bring_neighbours(&self) -> bool {
        let newborn = self.newborn.as_ref();
        newborn.is_none_or(|newborn| newborn.maybe_wiped.is_empty())
    }

    /// Before the child has been looked at: a page that its parent may have had wiped is empty if the mapping
    /// says so. It is asked for this page alone, for mappings beside it may say otherwise.
    pub(super) fn check_wiped(&mut self, fault: &Fault) -> Result<Option<Later>, End> {
        let Some(newborn) = &self.newborn else {
            return Ok(None);
        };
        let mut ranges = newborn.maybe_wiped.iter();
        if !ranges.any(|range| range.contains(fault.page)) {
            return Ok(None);
        }
        let pid = self.link.pid.load(Ordering::Acquire);
        if pid == 0 {
            if self.age(fault) > NAMELESS {
                return Err(self.condemn(Unservable::UnheardWiped));
            }
            return Ok(Some(Later::Leaving));
        }
        let wiped = self
            .shared
            .machine
            .wiped_on_fork(pid)
            .map_err(|error| self.cannot_look(error))?;
        let address = fault.page.address();
        if wiped
            .iter()
            .any(|(start, end)| (*start..*end).contains(&address))
        {
            self.never_had(address, fault.page.plus(1).address());
        }
        Ok(None)
    }

    /// What the parent had mapped but the child has not must not be taken for the child's later mappings at the
    /// same place.
    fn drop_unmapped(&mut self, mappings: &[Mapping]) {
        let mut at = 0;
        for mapping in mappings {
            if mapping.start > at {
                self.never_had(at, mapping.start);
            }
            at = at.max(mapping.end);
        }
        if at < ADDRESSES_END {
            self.never_had(at, ADDRESSES_END);
        }
        let ranges: Vec<(u64, u64)> = self.registered.iter().map(|(s, e)| (*s, *e)).collect();
        for (start, end) in ranges {
            let still = mappings.iter().any(|m| m.start < end && m.end > start);
            if !still {
                self.unregister(start, end);
            }
        }
    }

    fn drop_wiped(&mut self, pid: i32) -> io::Result<()> {
        for (start, end) in self.shared.machine.wiped_on_fork(pid)? {
            self.never_had(start, end);
        }
        Ok(())
    }

    /// The child has nothing of `[start, end)`.
    fn never_had(&mut self, start: u64, end: u64) {
        self.origins.cut(start, end);
        self.views.cut(start, end);
        self.cut_segments(start, end);
        let range = PageRange::of_addresses(start, end);
        self.shared.engine().forget(self.link.id, range);
    }

    /// A child that is just being killed cannot be looked at; with any other, nobody knows what it has.
    fn cannot_look(&self, error: io::Error) -> End {
        let pid = self.link.pid.load(Ordering::Acquire);
        let is_gone = matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT));
        match is_gone && pid != 0 {
            true => End::Gone,
            false => self.condemn(Unservable::CannotLook(error)),
        }
    }
}
