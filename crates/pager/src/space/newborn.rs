//! A forked child before its program runs: what the fork left out of it.
//!
//! The engine's clone of the parent holds pages that the kernel keeps from the child: mappings under
//! MADV_DONTFORK are not there, those under MADV_WIPEONFORK are empty. No event tells of either, and both can
//! be changed by the child as soon as it runs. So the child's fork handler rings when its agent is ready, and
//! waits: its mappings are as the fork made them, and nothing is taken from it until they have been looked at.

use super::faults::{Fault, Later};
use super::{Ended, Space};
use pleat_sys::procfs;
use pleat_types::PageRange;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a forked child may take to say who it is.
const NAMELESS: Duration = Duration::from_secs(5);
/// The first address that no program has.
const ADDRESSES_END: u64 = 1 << 47;

/// What is not yet known of a forked child.
pub(super) struct Newborn {
    /// Where mappings of the parent were put under MADV_WIPEONFORK at some time. Empty: there are none anywhere,
    /// for what is moved (mremap) was put under it before.
    pub(super) maybe_wiped: Vec<PageRange>,
}

impl Space {
    /// The child's program is about to run.
    pub(super) fn look_at_newborn(&mut self) -> Result<(), Ended> {
        let Some(newborn) = self.newborn.take() else {
            return Ok(());
        };
        let pid = self.link.pid.load(Ordering::Acquire);
        let looked = self
            .drop_unmapped(pid)
            .and_then(|()| match newborn.maybe_wiped.is_empty() {
                true => Ok(()),
                false => self.drop_wiped(pid),
            });
        looked.map_err(|error| self.cannot_look(&error))?;
        self.hold_commands();
        Ok(())
    }

    /// Where a child of this process may find pages wiped.
    pub(super) fn maybe_wiped_in_child(&self) -> Vec<PageRange> {
        let Some(agent) = &self.agent else {
            let newborn = self.newborn.as_ref();
            return newborn.map_or(Vec::new(), |newborn| newborn.maybe_wiped.clone());
        };
        let control = agent.slots.ring.control();
        let count = control.wiped_count.load(Ordering::Acquire) as usize;
        if count > control.wiped.len() {
            return vec![PageRange::of_addresses(0, ADDRESSES_END)];
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

    /// Whether pages beside a fault may be brought along: they may be wiped, if this child has not been looked at.
    pub(super) fn may_bring_neighbours(&self) -> bool {
        let newborn = self.newborn.as_ref();
        newborn.is_none_or(|newborn| newborn.maybe_wiped.is_empty())
    }

    /// Before the child has been looked at: a page that its parent may have had wiped is empty if the mapping
    /// says so. It is asked for this page alone, for mappings beside it may say otherwise.
    pub(super) fn check_wiped(&mut self, fault: &Fault) -> Result<Option<Later>, Ended> {
        let Some(newborn) = &self.newborn else {
            return Ok(None);
        };
        let mut ranges = newborn.maybe_wiped.iter();
        if !ranges.any(|range| range.contains(fault.page)) {
            return Ok(None);
        }
        let pid = self.link.pid.load(Ordering::Acquire);
        if pid == 0 {
            if fault.since.elapsed() > NAMELESS {
                return Err(self.end_process(
                    "it was forked without the C library and uses memory under MADV_WIPEONFORK, which \
                     pleat cannot follow",
                ));
            }
            return Ok(Some(Later::Leaving));
        }
        let wiped = procfs::wiped_on_fork(pid).map_err(|error| self.cannot_look(&error))?;
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
    fn drop_unmapped(&mut self, pid: i32) -> io::Result<()> {
        let mappings = procfs::maps(pid)?;
        let mut at = 0;
        for mapping in &mappings {
            if mapping.start > at {
                self.never_had(at, mapping.start);
            }
            at = at.max(mapping.end);
        }
        if at < ADDRESSES_END {
            self.never_had(at, ADDRESSES_END);
        }
        let mapped: Vec<(u64, u64)> = mappings.iter().map(|m| (m.start, m.end)).collect();
        let ranges: Vec<(u64, u64)> = self.registered.iter().map(|(s, e)| (*s, *e)).collect();
        for (start, end) in ranges {
            let still = mapped.iter().any(|(s, e)| *s < end && *e > start);
            if !still {
                self.unregister(start, end);
            }
        }
        Ok(())
    }

    fn drop_wiped(&mut self, pid: i32) -> io::Result<()> {
        for (start, end) in procfs::wiped_on_fork(pid)? {
            self.never_had(start, end);
        }
        Ok(())
    }

    /// The child has nothing of `[start, end)`.
    fn never_had(&mut self, start: u64, end: u64) {
        self.origins.cut(start, end);
        self.views.cut(start, end);
        let range = PageRange::of_addresses(start, end);
        self.shared.engine().forget(self.link.id, range);
    }

    /// A child that is just being killed cannot be looked at; with any other, nobody knows what it has.
    fn cannot_look(&self, error: &io::Error) -> Ended {
        let pid = self.link.pid.load(Ordering::Acquire);
        let is_gone = matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT));
        match is_gone && pid != 0 {
            true => Ended,
            false => self.end_process(&format!("what it has mapped cannot be read ({error})")),
        }
    }
}
