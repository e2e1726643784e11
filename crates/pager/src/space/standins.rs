//! Faults in memory that stands in for a file, and mapping the file again in its place.
//!
//! `crate::standins` has the whole and its interleavings. What concerns one address space:
//!
//! - Ranges are followed as those of private mappings are (`origins.rs`): cut by munmap, copied by mremap,
//!   cloned by a fork.
//! - When the memory of a file is void, the agent lets no thread of the program change mappings by the C
//!   library; what the process has of that memory is looked up in its own mappings, with the protection
//!   of each part; the agent maps the file there; and lets the program go on. Faults wait meanwhile, and
//!   then look again. Nothing has a time limit as long as there is an agent: a process that is stopped
//!   sees nothing old when it goes on, and is given the file then.

use super::faults::{Fault, Later};
use super::files::Content;
use super::newborn::NAMELESS;
use super::origins::Part;
use super::segments::SegmentPart;
use super::{End, Space};
use crate::ends::Unservable;
use crate::files::FileRequested;
use crate::latency;
use crate::profile::FaultPart;
use crate::shared::lock;
use crate::standins::{StandIn, State};
use pleat_engine::FillItem;
use pleat_sys::procfs;
use pleat_sys::uffd::FillError;
use pleat_types::{PageRange, PAGE_SIZE};
use pleat_wire::message::{Replace, ReplaceItem, Word, FREEZE, REPLACE, REPLACE_MAX, THAW};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A range, the memory that is mapped there, and from where on.
pub(super) type View = Part<StandIn>;

/// How long a thread waits at most for the file to be mapped again, in a process that has no agent.
const ORPHAN_WAIT: Duration = Duration::from_secs(20);

/// How far the agent has come with mapping files again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum GiveBack {
    /// Nothing is to be mapped again.
    #[default]
    Idle,
    /// It is to be, as soon as there is an agent.
    Due,
    /// The agent waits until nobody changes mappings, or maps.
    Asked,
    /// Nobody changes mappings until the agent is told.
    Frozen,
}

/// Runs grow while faults come in order.
#[derive(Default)]
pub(super) struct Stride {
    next: u64,
    len: usize,
}

impl Stride {
    fn of(&mut self, address: u64, most: usize) -> usize {
        self.len = match address == self.next {
            true => (self.len * 2).min(most),
            false => 1,
        };
        self.len.max(1)
    }
}

impl View {
    /// The same, of the file itself.
    fn part(&self) -> Part {
        Part {
            end: self.end,
            file: self.file.origin.clone(),
            offset: self.offset,
        }
    }
}

/// What lies where a page is about to be filled with zeros.
pub(super) enum Found {
    /// Memory of the process's own, or nothing any more.
    Private,
    /// An event is pending, and the fault is to be answered after it.
    Pending,
    /// Nobody can tell, for the process is not known yet.
    Unknown,
    /// A segment.
    Segment(SegmentPart),
}

/// Where the content of a page was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// In the compressed cache, or on its way there.
    Cache,
    /// In the kernel's page cache.
    PageCache,
    /// On the disk.
    Disk,
}

impl Space {
    /// A thread of the program has mapped memory that is to stand in for a file, where nobody can touch
    /// it yet. `false`: it maps the file again.
    ///
    /// As for private mappings, no event of what was there before may be applied after the range is noted;
    /// see `adopt_file`.
    pub(super) fn adopt_stand_in(&mut self, asked: &FileRequested) -> Result<bool, End> {
        let (Some(file), Some((start, end))) = (&asked.stand_in, self.range_of(asked)) else {
            return Ok(false);
        };
        let (len, uffd) = (end - start, self.link.uffd.clone());
        let is_settled =
            uffd.register_read_only(start, len).is_ok() && self.settle(super::files::pending)?;
        // Once more, in case the range was unmapped before it was registered.
        if !is_settled || uffd.register_read_only(start, len).is_err() {
            return Ok(false);
        }
        file.join(&self.link);
        if file.is_void() {
            return Ok(false);
        }
        self.shared.meters.registered_mappings.add(1);
        self.unregister(start, end);
        self.origins.cut(start, end);
        let range = PageRange::of_addresses(start, end);
        self.shared.engine().forget(self.link.id, range);
        let (file, offset) = (file.clone(), asked.request.offset);
        self.views.insert(start, Part { end, file, offset });
        Ok(true)
    }

    /// Fills a page that is mapped from a file's memory, and perhaps those behind it; `Some` when that has
    /// to wait.
    pub(super) fn fill_view(
        &mut self,
        fault: &Fault,
        view: &View,
        urgent: bool,
    ) -> Result<Option<Later>, End> {
        let (file, address) = (view.file.clone(), fault.page.address());
        // Held until the engine knows of the pages.
        let state = file.state();
        if *state == State::Void {
            return self.wait_for_file(fault);
        }
        if !self.plan_view(address, view, urgent) {
            return Ok(Some(Later::Memory));
        }
        self.cut_run_at_guards(fault.page);
        self.source = latency::Source::of(self.plan.items.first());
        self.clock.lap(FaultPart::Lookup);
        let source = match self.plan.items[0] {
            FillItem::File => self.read_view(view),
            _ => {
                let start = Instant::now();
                self.unfold_plan(fault.page)?;
                let pages = self.plan.items.len() as u64;
                self.shared.pace.filled(start.elapsed(), pages);
                Ok(Source::Cache)
            }
        };
        let source = match source {
            Ok(source) => source,
            Err(Some(later)) => return Ok(Some(later)),
            Err(None) => {
                drop(state);
                return self.poison(fault);
            }
        };
        self.clock.lap(FaultPart::Unfold);
        let bytes = self.plan.items.len() * PAGE_SIZE;
        let filled = self.copy_run(address, bytes);
        self.clock.lap(FaultPart::Fill);
        let known = match &filled {
            Ok(pages) => *pages,
            // Another process's thread has filled it.
            Err(FillError::Exists) => 1,
            Err(_) => 0,
        };
        if known > 0 {
            let range = PageRange::new(file.page_at(view.offset), known);
            self.shared.engine().read_done(file.space, range);
        }
        drop(state);
        self.clock.lap(FaultPart::Settle);
        self.conclude_view(fault, view, filled, source)
    }

    /// Plans what a page and perhaps some behind it are filled with, all from memory or all from the file.
    /// `false`: there is no memory for them.
    fn plan_view(&mut self, address: u64, view: &View, urgent: bool) -> bool {
        let page = PAGE_SIZE as u64;
        let most = self.shared.run_pages as usize;
        let rest = (view.end - address) / page;
        let in_file = (view.file.len() - view.offset).div_ceil(page);
        let count = self.stride.of(address, most) as u64;
        let count = count.min(rest).min(in_file).max(1);
        let range = PageRange::new(view.file.page_at(view.offset), count);
        self.plan.items.clear();
        self.plan.bytes.clear();
        self.plan.reads.clear();
        let mut engine = self.shared.engine();
        if !urgent && !engine.has_room() {
            return false;
        }
        engine.read_file(view.file.space, range, &mut self.plan);
        // With the engine's lock held; see `try_answer`.
        let pages = &mut self.scratch.get(&self.shared).pages;
        super::faults::copy_staged(&self.shared, &self.plan, pages);
        drop(engine);
        let items = &mut self.plan.items;
        let is_read = items[0] == FillItem::File;
        let other = items
            .iter()
            .position(|item| (*item == FillItem::File) != is_read);
        items.truncate(other.unwrap_or(items.len()));
        true
    }

    /// Reads the planned run from the file; an error when that has to wait, or, if nothing is named, when
    /// it cannot be read.
    fn read_view(&mut self, view: &View) -> Result<Source, Option<Later>> {
        let start = Instant::now();
        let (is_read, len) = match self.content(&view.part()) {
            Content::Bytes { len, is_read } => (is_read, len),
            Content::Later(read) => return Err(Some(Later::File(read))),
            Content::Nothing => return Err(None),
        };
        let pages = len.div_ceil(PAGE_SIZE);
        // The rest of a file's last page reads as zeros.
        self.scratch.get(&self.shared).pages[len..pages * PAGE_SIZE].fill(0);
        self.plan.items.truncate(pages);
        if is_read {
            return Ok(Source::Disk);
        }
        self.shared.pace.read(start.elapsed(), pages as u64);
        Ok(Source::PageCache)
    }

    /// Deals with every way a fill can end.
    fn conclude_view(
        &mut self,
        fault: &Fault,
        view: &View,
        filled: Result<u64, FillError>,
        source: Source,
    ) -> Result<Option<Later>, End> {
        if let Ok(pages) = &filled {
            self.stride.next = fault.page.address() + pages * PAGE_SIZE as u64;
            self.shared.meters.stand_in_filled_pages.add(*pages);
            if source != Source::Cache {
                self.account(&view.part(), *pages, source == Source::Disk);
            }
        }
        self.conclude_shared(fault, filled)
    }

    /// Has the pages of a run filled that are made, or the first alone.
    pub(super) fn copy_run(&mut self, address: u64, bytes: usize) -> Result<u64, FillError> {
        let filled = &self.scratch.get(&self.shared).pages[..bytes];
        match self.link.uffd.copy(address, filled) {
            // The run leaves the mapping: the faulted page alone does not.
            Err(FillError::NotMapped) if bytes > PAGE_SIZE => {
                self.link.uffd.copy(address, &filled[..PAGE_SIZE])
            }
            other => other,
        }
    }

    /// What a fill of memory comes to that several processes may have: another may have filled it.
    pub(super) fn conclude_shared(
        &mut self,
        fault: &Fault,
        filled: Result<u64, FillError>,
    ) -> Result<Option<Later>, End> {
        match filled {
            Ok(pages) => {
                self.clock.filled(pages);
                let is_late = fault.is_urgent && self.agent.is_some();
                self.shared.meters.urgent_faults.add(u64::from(is_late));
                self.shared.tell_costs();
                Ok(None)
            }
            Err(FillError::EventPending) => Ok(Some(Later::Event)),
            Err(FillError::NoMemory) => Ok(Some(Later::Memory)),
            Err(FillError::Dead) => Err(End::Gone),
            // It is there, or unmapped since: the thread is to look again.
            Err(FillError::Exists | FillError::NotMapped) => {
                self.link.uffd.wake(fault.page.address(), PAGE_SIZE as u64);
                Ok(None)
            }
            Err(FillError::Other(error)) => Err(self.cannot_fill(fault.page, error)),
        }
    }

    /// A page is about to be filled with zeros. In memory that stands in for a file they would be there
    /// for every process. Such a mapping that nobody knows of can only be made by calls that bypass the C
    /// library; it ends the process. One of a segment may come without a word.
    pub(super) fn what_is_there(&mut self, fault: &Fault) -> Result<Found, End> {
        let has_shared =
            self.link.has_stand_ins.load(Ordering::Acquire) || self.shared.segments.get().is_some();
        if !has_shared || self.is_own(fault.page) {
            return Ok(Found::Private);
        }
        let address = fault.page.address();
        match self.link.uffd.check_private(address) {
            Err(FillError::EventPending) => return Ok(Found::Pending),
            // Unmapped since, which the filling finds out; or what it must not be.
            Err(FillError::NotMapped) => {}
            Err(FillError::Dead) => return Err(End::Gone),
            _ => return Ok(Found::Private),
        }
        let pid = self.link.pid.load(Ordering::Acquire);
        let name = format!("/memfd:{}", pleat_sys::memory_file::NAME);
        let is_view = match self.find_segment_at(address) {
            Ok(Some(part)) => return Ok(Found::Segment(part)),
            Ok(None) => self.shared.machine.is_named(pid, address, &name),
            Err(error) => Err(error),
        };
        match is_view {
            Ok(false) => Ok(Found::Private),
            Ok(true) => Err(self.condemn(Unservable::UnknownView)),
            // A child that is not known yet, or a process that is just ending: zeros are for neither.
            Err(_) if self.link.uffd.is_dead() => Err(End::Gone),
            Err(_) if self.age(fault) > NAMELESS => Err(self.condemn(Unservable::UnheardShared)),
            Err(_) => Ok(Found::Unknown),
        }
    }

    /// The file is going to be mapped there again.
    fn wait_for_file(&mut self, fault: &Fault) -> Result<Option<Later>, End> {
        if self.agent.is_none() && self.age(fault) > ORPHAN_WAIT {
            return Err(self.condemn(Unservable::UnheardView));
        }
        if self.giving_back == GiveBack::Idle {
            self.giving_back = GiveBack::Due;
        }
        Ok(Some(Later::GiveBack))
    }

    /// The agent has done what it was asked.
    pub(super) fn hear_done(&mut self, done: &Word) -> Result<(), End> {
        if done.error != 0 || self.giving_back != GiveBack::Asked {
            let error = std::io::Error::from_raw_os_error(done.error);
            return Err(self.condemn(Unservable::NotMappedAgain(error)));
        }
        self.giving_back = GiveBack::Frozen;
        Ok(())
    }

    /// Has the agent map files again whose memory is void. All events that were read are applied.
    pub(super) fn give_back(&mut self) -> Result<(), End> {
        match self.giving_back {
            GiveBack::Idle | GiveBack::Asked => Ok(()),
            GiveBack::Due => self.begin_giving_back(),
            GiveBack::Frozen => self.replace_next(),
        }
    }

    /// Has the agent freeze the mappings if a file's memory is void.
    ///
    /// No command to take pages may wait behind that: this thread would wait for the command, to follow a
    /// fork, the agent for a thread that is just changing mappings, and that one for this.
    fn begin_giving_back(&mut self) -> Result<(), End> {
        if self.views.find(|file| file.is_void()).is_none() {
            self.giving_back = GiveBack::Idle;
            self.hold_commands();
            return Ok(());
        }
        if self.agent.is_none() {
            return Ok(());
        }
        {
            let mut take = lock(&self.link.take);
            take.hold(self.now());
            if take.is_reserved() {
                // It is being sent just now.
                self.link.bell.ring();
            }
            if !take.is_quiet() {
                return Ok(());
            }
        }
        self.tell(FREEZE)
    }

    /// With the mappings frozen: the next file's are replaced, or it is over.
    fn replace_next(&mut self) -> Result<(), End> {
        while let Some(file) = self.views.find(|file| file.is_void()) {
            let pid = self.link.pid.load(Ordering::Acquire);
            let parts = match procfs::mappings_of(pid, file.memory.identity()) {
                Ok(parts) => parts,
                Err(_) if self.link.uffd.is_dead() => return Err(End::Gone),
                Err(error) => {
                    return Err(self.condemn(Unservable::CannotListFiles(error)));
                }
            };
            if parts.is_empty() {
                self.views.remove(&file);
                continue;
            }
            return self.replace(&file, &parts);
        }
        self.tell(THAW)?;
        // Another may have become void since.
        self.giving_back = GiveBack::Due;
        self.begin_giving_back()
    }

    fn replace(&mut self, file: &StandIn, parts: &[procfs::FilePart]) -> Result<(), End> {
        let mut command = Replace {
            kind: REPLACE,
            count: 0,
            items: [ReplaceItem::default(); REPLACE_MAX],
        };
        for (item, part) in command.items.iter_mut().zip(parts) {
            let mapping = &part.mapping;
            let bit = |is_set: bool, bit: i32| if is_set { bit as u32 } else { 0 };
            *item = ReplaceItem {
                address: mapping.start,
                len: mapping.end - mapping.start,
                offset: part.offset,
                // The file was opened for reading: whatever was done to the memory.
                protection: bit(mapping.readable, libc::PROT_READ)
                    | bit(mapping.executable, libc::PROT_EXEC),
                reserved: 0,
            };
            command.count += 1;
        }
        self.send(pleat_sys::bytes_of(&command), Some(file.file().as_raw_fd()))?;
        self.giving_back = GiveBack::Asked;
        Ok(())
    }

    fn tell(&mut self, kind: u32) -> Result<(), End> {
        let word = Word { kind, error: 0 };
        self.giving_back = GiveBack::Asked;
        self.send(pleat_sys::bytes_of(&word), None)
    }

    fn send(&mut self, packet: &[u8], descriptor: Option<i32>) -> Result<(), End> {
        let agent = self.agent.as_ref().ok_or(End::Gone)?;
        // Refused only by an agent that is gone; a few packets are under way at most.
        let sent = agent.channel.send(packet, descriptor);
        sent.map_err(|_| self.outlive_agent())
    }
}
