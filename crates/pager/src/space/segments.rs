//! Shared memory of one address space that the job's processes share by forks: registering it, and faults in it.
//!
//! `crate::segments` has the whole. Ranges are followed as those of stand-ins are (`origins.rs`): cut by munmap, copied by
//! mremap, cloned by a fork. One that came without a word, by `mremap(old, 0, len)`, is found when it is touched.

use super::faults::{Fault, Later};
use super::files::pending;
use super::origins::Part;
use super::{End, Space};
use crate::ends::Failure;
use crate::files::FileRequested;
use crate::latency::Source;
use crate::profile::FaultPart;
use crate::segments::{Segment, State};
use pleat_engine::{FaultAnswer, FillItem};
use pleat_sys::procfs;
use pleat_sys::uffd::FillError;
use pleat_types::{PageNo, PageRange, PAGE_SIZE};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// A range, the segment that is mapped there, and from where on.
pub(super) type SegmentPart = Part<Segment>;

/// Looks at the mappings before a process that changes them all the time is left to the next occasion.
const LISTINGS_MAX: usize = 8;

impl Space {
    /// Tells of shared memory that this process has and that may be a segment.
    pub(super) fn offer_segments(&self) {
        let Some(segments) = self.shared.segments.get() else {
            return;
        };
        let pid = self.link.pid.load(Ordering::Acquire);
        if let Ok(parts) = self.shared.machine.nameless_parts(pid) {
            segments.meet(pid, &parts);
        }
    }

    /// Registers every mapping of a segment, and joins those that have.
    ///
    /// As for stand-ins, no event of what was there before may be applied after the range is noted; and a fork that copied a
    /// mapping before it was registered is to be known before this process counts as one that has registered all.
    pub(super) fn join_segment(&mut self, segment: &Arc<Segment>) -> Result<(), End> {
        let pid = self.link.pid.load(Ordering::Acquire);
        // Before its agent is known nobody knows which memory is that one's.
        let is_fit = self.agent.is_some() && self.newborn.is_none() && !self.was_asked_to_leave();
        if pid == 0 || !is_fit {
            return Ok(());
        }
        let mut registered = Vec::new();
        for _ in 0..LISTINGS_MAX {
            let Ok(parts) = self.shared.machine.mappings_of(pid, segment.identity()) else {
                return Ok(());
            };
            if !registered.is_empty() && parts == registered {
                for part in parts {
                    self.note_segment(segment, &part);
                }
                segment.join(&self.link);
                return Ok(());
            }
            let register = |part: &procfs::FilePart| {
                let mapping = &part.mapping;
                let len = mapping.end - mapping.start;
                self.link.uffd.register_read_only(mapping.start, len)
            };
            // Refused: unmapped meanwhile, or of a kind that cannot be managed. Then it is not joined.
            if parts.is_empty() || parts.iter().any(|part| register(part).is_err()) {
                return Ok(());
            }
            registered = parts;
            if !self.settle(pending)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn note_segment(&mut self, segment: &Arc<Segment>, part: &procfs::FilePart) {
        let (start, end) = (part.mapping.start, part.mapping.end);
        self.unregister(start, end);
        self.origins.cut(start, end);
        // Faults may have come before it was known what it is.
        let range = PageRange::of_addresses(start, end);
        self.shared.engine().forget(self.link.id, range);
        self.shared.meters.registered_mappings.add(1);
        let (file, offset) = (segment.clone(), part.offset);
        self.segments.insert(start, Part { end, file, offset });
    }

    /// Nothing in `[start, end)` is a segment's any more.
    pub(super) fn cut_segments(&mut self, start: u64, end: u64) {
        if !self.segments.touches(start, end) {
            return;
        }
        let before: Vec<_> = self.segments.files().cloned().collect();
        self.segments.cut(start, end);
        for segment in before {
            let is_it = |file: &Arc<Segment>| Arc::ptr_eq(file, &segment);
            if self.segments.find(is_it).is_none() && !self.maps_more_of(&segment) {
                segment.part(&self.link);
            }
        }
    }

    /// Whether there is a mapping of a segment that nobody has told of, or may be.
    fn maps_more_of(&self, segment: &Segment) -> bool {
        let pid = self.link.pid.load(Ordering::Acquire);
        let parts = self.shared.machine.mappings_of(pid, segment.identity());
        pid == 0 || parts.is_ok_and(|parts| !parts.is_empty())
    }

    /// Does not count as one that has registered all any more: it is about to be left. `false`: not yet, for something may be
    /// away. Nothing is taken after that was asked, unless everybody who maps the segment counts.
    pub(super) fn quit_segments(&self) -> bool {
        // Of this process's or of others': it may have a mapping that nobody has told of.
        self.shared.segments.get().is_none_or(|segments| {
            segments.quit(&self.link);
            !segments.are_served()
        })
    }

    /// Has all segments brought back, or not any more: the whole job is left, not this process alone.
    pub(super) fn leave_segments(&self, is_leaving: bool) {
        if let Some(segments) = self.shared.segments.get() {
            segments.leave_all(is_leaving);
        }
    }

    /// The program removes pages (MADV_REMOVE). `None`: that is to be tried again; `false`: it is its own to do.
    pub(super) fn remove_shared(&mut self, asked: &FileRequested) -> Result<Option<bool>, End> {
        let Some((start, end)) = self.range_of(asked) else {
            return Ok(Some(false));
        };
        self.settle(pending)?;
        let mut at = start;
        while at < end {
            // What is mapped there beside segments is the kernel's, and so is the order in which all of it is removed.
            let Some(part) = self.segments.at(at) else {
                return Ok(Some(false));
            };
            let len = part.end.min(end) - at;
            match part.file.remove(&self.shared, part.offset, len) {
                None => return Ok(None),
                Some(false) => return Ok(Some(false)),
                Some(true) => at += len,
            }
        }
        Ok(Some(true))
    }

    /// Fills a page of a segment, and perhaps those behind it; `Some` when that has to wait.
    pub(super) fn fill_segment(
        &mut self,
        fault: &Fault,
        part: &SegmentPart,
        urgent: bool,
    ) -> Result<Option<Later>, End> {
        let segment = part.file.clone();
        // Held until the engine knows of the pages.
        let Some(state) = segment.state() else {
            return Ok(Some(Later::Leaving));
        };
        match *state {
            State::Ended => {
                let address = fault.page.address();
                self.link.uffd.wake(address, PAGE_SIZE as u64);
                return Ok(None);
            }
            State::Gathering => return self.fill_hole(fault, urgent),
            State::Served => {}
        }
        let page = segment.page_at(part.offset);
        if segment.is_closing(page) {
            return Ok(Some(Later::Leaving));
        }
        let mut engine = self.shared.engine();
        if engine.is_in_memory(segment.space, page) {
            drop(engine);
            // Another process's thread has filled it; or the program has removed it past the C library.
            return self.fill_hole(fault, true);
        }
        let answer = engine.fault(segment.space, page, urgent, &mut self.plan);
        if answer == FaultAnswer::Fill {
            // With the engine's lock held; see `try_answer`.
            let pages = &mut self.scratch.get(&self.shared).pages;
            super::faults::copy_staged(&self.shared, &self.plan, pages);
        }
        drop(engine);
        self.clock.lap(FaultPart::Lookup);
        if let Some(later) = self.later_for(answer)? {
            return Ok(Some(later));
        }
        self.source = Source::of(self.plan.items.first());
        let is_away = self.plan.items[0] != FillItem::Zero;
        let rest = (part.end - fault.page.address()) / PAGE_SIZE as u64;
        self.plan.items.truncate(rest as usize);
        self.cut_run_at_guards(fault.page);
        let start = self.now();
        self.unfold_plan(page)?;
        let count = self.plan.items.len();
        let took = self.shared.machine.since(start);
        self.shared.pace.filled(took, count as u64);
        self.clock.lap(FaultPart::Unfold);
        let filled = self.copy_run(fault.page.address(), count * PAGE_SIZE);
        self.clock.lap(FaultPart::Fill);
        if let Ok(pages) = &filled {
            let range = PageRange::new(page, *pages);
            let mut engine = self.shared.engine();
            engine.filled(segment.space, range);
            super::faults::remember(&mut engine, segment.space, range, &mut self.prints);
        }
        drop(state);
        self.clock.lap(FaultPart::Settle);
        let is_filled_by_another = matches!(filled, Err(FillError::Exists));
        if is_filled_by_another && is_away && !self.is_filled_by_another(&segment, page) {
            return Ok(Some(Later::Leaving));
        }
        self.conclude_segment(fault, filled)
    }

    /// A page that was away is there. Either another has filled it just now, or somebody has changed it who must not: then it is
    /// there with all others out, and known to be away. `false`: ask again.
    fn is_filled_by_another(&self, segment: &Segment, page: PageNo) -> bool {
        let known = segment.peek_alone(|| self.shared.engine().is_in_memory(segment.space, page));
        if known == Some(false) {
            self.shared.fail(Failure::SharedBoth);
        }
        known.is_some()
    }

    /// Fills one page with zeros, unless it is there.
    fn fill_hole(&mut self, fault: &Fault, urgent: bool) -> Result<Option<Later>, End> {
        if !urgent && !self.shared.engine().has_room() {
            return Ok(Some(Later::Memory));
        }
        let page = &mut self.scratch.get(&self.shared).pages[..PAGE_SIZE];
        page.fill(0);
        let filled = self.link.uffd.copy(fault.page.address(), page);
        self.conclude_segment(fault, filled)
    }

    fn conclude_segment(
        &mut self,
        fault: &Fault,
        filled: Result<u64, FillError>,
    ) -> Result<Option<Later>, End> {
        if let Ok(pages) = &filled {
            self.shared.meters.segment_filled_pages.add(*pages);
        }
        self.conclude_shared(fault, filled)
    }

    /// What is mapped at an address that nobody has told of, if that is a segment. Where the process has registered all that
    /// it maps of one this is registered, too.
    ///
    /// # Errors
    /// That cannot be told, or not yet.
    pub(super) fn find_segment_at(&mut self, address: u64) -> io::Result<Option<SegmentPart>> {
        let Some(segments) = self.shared.segments.get() else {
            return Ok(None);
        };
        let pid = self.link.pid.load(Ordering::Acquire);
        let parts = self.shared.machine.nameless_parts(pid)?;
        let covers = |one: &&procfs::NamelessPart| {
            let mapping = &one.part.mapping;
            (mapping.start..mapping.end).contains(&address)
        };
        let found = parts.iter().find(covers);
        let segment = found.and_then(|found| segments.find(found.identity));
        let (Some(found), Some(segment)) = (found, segment) else {
            return Ok(None);
        };
        if segment.has(&self.link) {
            self.note_segment(&segment, &found.part);
            return Ok(self.segments.at(address));
        }
        // Not all that it maps of that is registered yet.
        let skipped = address - found.part.mapping.start;
        Ok(Some(Part {
            end: found.part.mapping.end,
            offset: found.part.offset + skipped,
            file: segment,
        }))
    }
}
