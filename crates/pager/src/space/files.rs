//! Filling pages of mapped files.
//!
//! A page in a range of `origins` that the engine does not know is filled with what the file holds. If
//! that is in the page cache it is taken from there at once; else the fault is put off while a thread
//! reads it (`crate::files`), and then asks again. What may happen meanwhile:
//!
//! | what happens | why it is harmless |
//! |---|---|
//! | the range is unmapped, or other memory is mapped there | the fault asks anew, finds another origin or none, and what was read is dropped: it is kept for one round of asking and looked up by file and place, never by address |
//! | MADV_DONTNEED, then a touch | the page is unknown, and comes from the file as it then is |
//! | it is moved by mremap, or the process forks | the fault asks again, by address; the origins have moved, or were cloned, with the engine's page table and in the same event |
//! | another thread faults on the page, or one read with it | waits for the same read |
//! | it was filled meanwhile | UFFDIO_COPY answers EEXIST, and nothing is overwritten |
//! | the file is changed | pages come as they are when they are read, each at once or with its neighbours |
//! | the file is cut short, or cannot be read | SIGBUS for who touches the page, as for the kernel's own mapping (UFFDIO_POISON) |
//! | the read never ends | its thread waits, as for the kernel's own mapping, and no other |
//! | the process dies | the answer comes to a mailbox that nobody reads |

use super::faults::{Fault, Later};
use super::origins::Part;
use super::{End, Space};
use crate::ends::Unservable;
use crate::files::{FileRead, FileRequested, Origin, Task};
use crate::ports::Userfault;
use crate::profile::FaultPart;
use pleat_engine::FillItem;
use pleat_sys::uffd::FillError;
use pleat_types::{PageNo, PageRange, PAGE_SIZE};
use pleat_wire::message::{FileRequest, ASK_FILE, ASK_STAND_IN, MAP_STAND_IN, REMOVE_SHARED};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// Events are read so often, at most, before a mapping is left as it is.
const SETTLE_MAX: u32 = 10_000;
/// Runs from this length on are taken for a part of a longer sequence.
const SEQUENCE_MIN: usize = 8;

/// Whether an event is pending, asked of no range.
pub(super) fn pending(uffd: &dyn Userfault) -> Result<(), FillError> {
    match uffd.is_event_pending() {
        true => Err(FillError::EventPending),
        false => Ok(()),
    }
}

/// A read under way.
struct Reading {
    id: u64,
    file: Arc<Origin>,
    offset: u64,
    len: usize,
}

/// Reads of mapped files for the faults of one space.
#[derive(Default)]
pub(crate) struct FileReads {
    under_way: Vec<Reading>,
    /// What has come, for one round of faults that waited for it: later the file may be another.
    done: Vec<(Reading, Option<Vec<u8>>)>,
    begun: u64,
}

impl FileReads {
    /// Whether this read has not ended.
    pub(super) fn is_under_way(&self, id: u64) -> bool {
        self.under_way.iter().any(|read| read.id == id)
    }
}

impl Reading {
    /// Whether it brings, or has brought, the page there.
    fn brings(&self, part: &Part) -> bool {
        let is_within = (self.offset..self.offset + self.len as u64).contains(&part.offset);
        Arc::ptr_eq(&self.file, &part.file) && is_within
    }
}

/// What there is to fill a page with.
pub(super) enum Content {
    /// So many bytes in `pages`, at least one.
    Bytes {
        /// How many.
        len: usize,
        /// They were read for this, and not in the page cache before.
        is_read: bool,
    },
    /// It is being read.
    Later(u64),
    /// There is nothing: SIGBUS.
    Nothing,
}

impl Space {
    /// A thread of the program has mapped a file and put anonymous memory in its place, which nobody
    /// knows of yet; or it asks about a range.
    pub(super) fn meet_file_request(&mut self, asked: FileRequested) -> Result<(), End> {
        let FileRequest { address, len, .. } = asked.request;
        let end = address.saturating_add(len);
        let agrees = match asked.request.kind {
            REMOVE_SHARED => match self.remove_shared(&asked)? {
                Some(is_done) => is_done,
                None => {
                    self.removals.push(asked);
                    return Ok(());
                }
            },
            ASK_FILE | ASK_STAND_IN => {
                // Refused everywhere while an event is pending.
                self.settle(pending)?;
                let is_private = self.origins.touches(address, end);
                let is_file = is_private && asked.request.kind == ASK_FILE;
                is_file || self.views.touches(address, end)
            }
            MAP_STAND_IN => {
                let agrees = self.adopt_stand_in(&asked)?;
                let meters = &self.shared.meters;
                meters.stand_in_mappings.add(u64::from(agrees));
                agrees
            }
            _ => {
                let agrees = self.adopt_file(&asked)?;
                self.shared.meters.file_mappings.add(u64::from(agrees));
                agrees
            }
        };
        asked.answer(agrees);
        Ok(())
    }

    /// Registers a range and notes where its pages come from. `false`: it is to be the file's again.
    ///
    /// What must not happen is that an event which is about what was at this address *before* is applied
    /// after the origin is noted: it would be cut, and the program would read zeros. The address was free
    /// when the mapping was made. So whatever was there had begun to be unmapped before this request was
    /// sent, and from then until its event has been read the kernel answers EAGAIN. Once it answers
    /// anything else, and everything read is applied, nothing is left to come.
    fn adopt_file(&mut self, asked: &FileRequested) -> Result<bool, End> {
        let (Some(file), Some((address, end))) = (&asked.origin, self.range_of(asked)) else {
            return Ok(false);
        };
        let FileRequest { len, offset, .. } = asked.request;
        // Absent pages are passed over, so this changes nothing but tells whether an event is pending.
        let probe = |uffd: &dyn Userfault| uffd.protect(address, PAGE_SIZE as u64, false);
        if self.link.uffd.register(address, len).is_err() || !self.settle(probe)? {
            return Ok(false);
        }
        // Before they were registered, pages may have been filled with zeros: by mlockall, or by
        // somebody who guessed the address.
        let pid = self.link.pid.load(Ordering::Acquire);
        let is_empty = |runs: std::io::Result<Vec<(u64, u64)>>| runs.is_ok_and(|r| r.is_empty());
        if !is_empty(self.shared.machine.present_anon_runs(pid, address, end))
            || !is_empty(self.shared.machine.zero_page_runs(pid, address, end))
        {
            return Ok(false);
        }
        self.shared.meters.registered_mappings.add(1);
        self.unregister(address, end);
        self.registered.insert(address, end);
        let range = PageRange::of_addresses(address, end);
        self.shared.engine().forget(self.link.id, range);
        let file = file.clone();
        self.origins.insert(address, Part { end, file, offset });
        Ok(true)
    }

    /// The range of a request to fill one, if it is sound, of this memory, and can be followed.
    pub(super) fn range_of(&self, asked: &FileRequested) -> Option<(u64, u64)> {
        let FileRequest {
            agent_thread,
            address,
            len,
            offset,
            ..
        } = asked.request;
        let agent = self.agent.as_ref()?;
        // Another thread's id is that of an agent before an exec: this is other memory. Who had no agent yet when it asked
        // waits for the answer; had another of its threads executed a program since, it would be gone.
        let is_of_this = match agent_thread {
            0 => !asked.channel.is_closed(),
            name => agent.name == name,
        };
        let follows = is_of_this && agent.fork_events;
        let page = PAGE_SIZE as u64;
        let is_whole = [address, len, offset]
            .iter()
            .all(|n| n.is_multiple_of(page));
        let end = address.checked_add(len).filter(|end| *end < 1 << 47)?;
        offset.checked_add(len).filter(|end| *end < 1 << 62)?;
        (follows && is_whole && len > 0).then_some((address, end))
    }

    /// Reads and applies events until the kernel does not refuse this any more because one is pending.
    /// `false` if there is no end of them, or it fails otherwise.
    pub(super) fn settle(
        &mut self,
        probe: impl Fn(&dyn Userfault) -> Result<(), FillError>,
    ) -> Result<bool, End> {
        for _ in 0..SETTLE_MAX {
            self.gather()?;
            self.work()?;
            match probe(&*self.link.uffd) {
                Err(FillError::EventPending) => self.shared.machine.pause(Duration::ZERO),
                Ok(()) => return Ok(true),
                Err(_) => return Ok(false),
            }
            if self.shared.is_over() {
                return Err(End::Gone);
            }
        }
        Ok(false)
    }

    /// Whether the read that a fault waits for has not ended.
    pub(super) fn is_being_read(&self, why: Later) -> bool {
        match why {
            Later::Reading(read) => self.reads.is_under_way(read),
            Later::File(read) => self.files.is_under_way(read),
            _ => false,
        }
    }

    /// What fills the planned run, if it is a file. The run is cut where something else begins.
    pub(super) fn part_of_plan(&mut self, page: PageNo) -> Option<Part> {
        let is_first_touch = matches!(
            self.plan.items.first(),
            Some(FillItem::Zero | FillItem::Resident)
        );
        if !is_first_touch {
            return None;
        }
        let (start, wanted) = (page.address(), (self.plan.items.len() * PAGE_SIZE) as u64);
        let part = self.origins.at(start);
        let end = match &part {
            Some(part) => part.end.min(start + wanted),
            None => {
                let next = self.origins.next_start(start, start + wanted);
                next.unwrap_or(start + wanted)
            }
        };
        self.plan.items.truncate((end - start) as usize / PAGE_SIZE);
        part
    }

    /// Fills the planned run from a file; `Some` when that has to wait.
    pub(super) fn fill_from_file(
        &mut self,
        fault: &Fault,
        part: &Part,
    ) -> Result<Option<Later>, End> {
        let is_known = self.plan.items[0] == FillItem::Resident;
        if is_known && self.is_present(fault.page) {
            // Old news: the thread was served together with another.
            return Ok(self.leave_to_thread(fault));
        }
        let (len, is_read) = match self.content(part) {
            Content::Bytes { len, is_read } => (len, is_read),
            Content::Later(read) => return Ok(Some(Later::File(read))),
            Content::Nothing => return self.poison(fault),
        };
        let pages = len.div_ceil(PAGE_SIZE);
        // The rest of a file's last page reads as zeros.
        let bytes = &mut self.scratch.get(&self.shared).pages[..pages * PAGE_SIZE];
        bytes[len..].fill(0);
        self.plan.items.truncate(pages);
        self.clock.lap(FaultPart::Unfold);
        match self.link.uffd.copy(fault.page.address(), bytes) {
            // The run leaves the mapping: the faulted page alone does not.
            Err(FillError::NotMapped) if pages > 1 => {
                self.plan.items.truncate(1);
                self.fill_from_file(fault, part)
            }
            // It may be there, or be one that raises SIGBUS: the file has grown just now.
            Err(FillError::Exists) => Ok(self.leave_to_thread(fault)),
            filled => {
                let done = *filled.as_ref().unwrap_or(&0);
                let later = self.conclude(fault, filled, pages, true)?;
                self.account(part, done, is_read);
                Ok(later)
            }
        }
    }

    /// Counts what was filled. What was read for it need not be in the page cache as well, and what comes
    /// next is asked for; what was there before is left as it was found, for others may use it.
    pub(super) fn account(&self, part: &Part, pages: u64, is_read: bool) {
        if pages == 0 {
            return;
        }
        self.shared.meters.file_faults.add(1);
        self.shared.meters.file_pages.add(pages);
        if !is_read {
            return;
        }
        let len = pages * PAGE_SIZE as u64;
        part.file.let_go(part.offset, len);
        if pages as usize >= SEQUENCE_MIN {
            if let Some(from) = part.file.ahead_of(part.offset + len) {
                let ahead = Task::Ahead(part.file.clone(), from);
                self.shared.readers.push(ahead);
            }
        }
    }

    /// The bytes of the planned run, in `pages`.
    pub(super) fn content(&mut self, part: &Part) -> Content {
        let wanted = self.plan.items.len() * PAGE_SIZE;
        if let Some((read, got)) = self.files.done.iter().find(|(read, _)| read.brings(part)) {
            let at = (part.offset - read.offset) as usize;
            let bytes = got.as_deref().unwrap_or(&[]);
            let found = bytes.get(at..).unwrap_or(&[]);
            // A run is short at the end of the file, or before a place that cannot be read. What that
            // means is known for its first page only; the others have reads of their own.
            if !found.is_empty() || at == 0 {
                let len = found.len().min(wanted);
                let pages = &mut self.scratch.get(&self.shared).pages;
                pages[..len].copy_from_slice(&found[..len]);
                return match len {
                    0 => Content::Nothing,
                    _ => Content::Bytes { len, is_read: true },
                };
            }
        }
        let pages = &mut self.scratch.get(&self.shared).pages;
        match part.file.read_cached(part.offset, &mut pages[..wanted]) {
            0 => Content::Later(self.begin_read(part, wanted)),
            len => Content::Bytes {
                len,
                is_read: part.file.is_ahead(part.offset),
            },
        }
    }

    /// Has a run read, unless a read under way brings its first page.
    fn begin_read(&mut self, part: &Part, len: usize) -> u64 {
        let same = self.files.under_way.iter().find(|read| read.brings(part));
        if let Some(read) = same {
            return read.id;
        }
        self.files.begun += 1;
        let id = self.files.begun;
        let (file, offset) = (part.file.clone(), part.offset);
        self.shared.readers.push(Task::Read {
            id,
            link: self.link.clone(),
            origin: file.clone(),
            offset,
            len,
        });
        self.files.under_way.push(Reading {
            id,
            file,
            offset,
            len,
        });
        id
    }

    /// Answers the faults that waited for what has come.
    pub(super) fn take_file_reads(&mut self, reads: Vec<FileRead>) -> Result<(), End> {
        if reads.is_empty() {
            return Ok(());
        }
        for FileRead { id, result } in reads {
            let at = self.files.under_way.iter().position(|read| read.id == id);
            let read = self.files.under_way.remove(at.expect("a read ends once"));
            self.files.done.push((read, result.ok()));
        }
        let answered = self.retry_deferred();
        self.files.done.clear();
        answered
    }

    /// Has the thread get SIGBUS: the file ends before this page, or cannot be read there.
    pub(super) fn poison(&mut self, fault: &Fault) -> Result<Option<Later>, End> {
        let address = fault.page.address();
        match self.link.uffd.poison(address) {
            Ok(()) => {
                self.shared.meters.file_poisoned_pages.add(1);
                let range = PageRange::new(fault.page, 1);
                self.shared.engine().forget(self.link.id, range);
            }
            Err(FillError::EventPending) => return Ok(Some(Later::Event)),
            Err(FillError::Dead) => return Err(End::Gone),
            Err(FillError::NoMemory) => return Ok(Some(Later::Memory)),
            Err(FillError::Exists) => return Ok(self.leave_to_thread(fault)),
            // Unmapped since: the thread is to look again.
            Err(FillError::NotMapped) => self.link.uffd.wake(address, PAGE_SIZE as u64),
            Err(FillError::Other(error)) => {
                return Err(self.condemn(Unservable::CannotPoison(fault.page, error)));
            }
        }
        Ok(None)
    }

    /// The page is there, or raises SIGBUS: the thread is to look again.
    fn leave_to_thread(&mut self, fault: &Fault) -> Option<Later> {
        if self.is_present(fault.page) {
            self.filled(fault.page, 1);
        }
        let address = fault.page.address();
        self.link.uffd.wake(address, PAGE_SIZE as u64);
        None
    }

    /// Whether a page is in memory. Where the process is not known yet: no, and if it is all the same,
    /// it counts as memory that cannot be folded.
    fn is_present(&self, page: PageNo) -> bool {
        let (start, end) = (page.address(), page.plus(1).address());
        let pid = self.link.pid.load(Ordering::Acquire);
        let runs = self.shared.machine.present_anon_runs(pid, start, end);
        runs.is_ok_and(|runs| !runs.is_empty())
    }
}
