//! Taking pages out of shared memory that others write to all the time, so that no byte is lost.
//!
//! A page is first held, then removed, and only then read:
//!
//! ```text
//!   memory ---- splice: no copy, the page itself ---> [`Held`]: in the memory and in the pipe, written to as before
//!                                                       |  nobody else may have it: who has pinned it writes on unseen
//!                                                       v
//!   memory, a hole <-- punch: from all page tables -- [`Removed`]: in the pipe alone, nobody can write to it
//!                                                       |  counted once more: a pin that came in between is waited for
//!                                                       v
//!                                                     its bytes, final
//! ```
//!
//! What was written before the punch is in the page, and who writes after it finds a hole. Bytes that are *read* before it,
//! by read(2) or a mapping, lack what is written in between. The caller sees to it that everybody who finds the hole waits
//! for him (docs/shared-memory.md), and that nobody fills it before he has the bytes.

use crate::memory_file::MemoryFile;
use crate::one_page::OnePage;
use crate::page_refs::{PageRefs, PageUse, Pipe, PAGES_MAX};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

const PAGE: usize = pleat_wire::PAGE;
/// Between two looks at who has a page.
const PAUSE: Duration = Duration::from_micros(50);

/// Memory that pages are taken out of.
pub trait Memory {
    /// By which they are held.
    fn descriptor(&self) -> RawFd;

    /// Removes the pages of a range, from every process that maps them. `false`: some are still there.
    fn punch(&self, offset: u64, len: u64) -> bool;
}

impl Memory for MemoryFile {
    fn descriptor(&self) -> RawFd {
        self.as_raw_fd()
    }

    fn punch(&self, offset: u64, len: u64) -> bool {
        MemoryFile::punch(self, offset, len)
    }
}

/// What is asked of the kernel, with a pipe that holds pages.
pub trait Steps: Send {
    /// Puts one page into the pipe, where it stays in its memory as well.
    ///
    /// # Errors
    /// Of the kernel: the memory ends before, or it had to bring a page from its swap and could not.
    fn splice(&mut self, memory: RawFd, offset: u64) -> io::Result<()>;

    /// Who holds the first so many pages of the pipe.
    ///
    /// # Errors
    /// Nobody can tell.
    fn uses(&self, pages: usize) -> io::Result<Vec<PageUse>>;

    /// Reads whole pages out of the pipe, as they are at this moment. There are as many.
    fn read(&mut self, bytes: &mut [u8]);

    /// Has this CPU let go of the pages that it keeps in batches.
    fn empty_this_cpu(&self);

    /// Has all CPUs do that. `false`: it cannot be asked for.
    fn empty_all_cpus(&self) -> bool;

    /// What time it is.
    fn now(&self) -> Instant;

    /// Lets others run, for so long.
    fn pause(&self, time: Duration);
}

/// Takes pages out, at most [`PAGES_MAX`] at a time.
pub struct TakeOut {
    steps: Box<dyn Steps>,
    /// See [`TakeOut::buffer`].
    kept: Vec<u8>,
}

/// The steps as Linux has them.
struct Linux {
    pipe: Pipe,
    refs: PageRefs,
    reader: File,
    /// A page of our own, to have this CPU put the pages that it keeps apart onto their lists.
    spare: Spare,
}

impl Steps for Linux {
    /// One page for each buffer of the pipe: several calls, for one may put parts of pages together.
    fn splice(&mut self, memory: RawFd, offset: u64) -> io::Result<()> {
        let mut at = offset as libc::loff_t;
        let into = self.pipe.into.as_raw_fd();
        // SAFETY: plain numbers, and a place that outlives the call.
        let got = unsafe { libc::splice(memory, &mut at, into, std::ptr::null_mut(), PAGE, 0) };
        match got {
            -1 => Err(io::Error::last_os_error()),
            got if got as usize == PAGE => Ok(()),
            got => {
                // A part of a page, at the end of the memory: out with it, so that only whole ones are in the pipe.
                self.read(&mut vec![0; got as usize]);
                Err(io::ErrorKind::UnexpectedEof.into())
            }
        }
    }

    fn uses(&self, pages: usize) -> io::Result<Vec<PageUse>> {
        self.refs.read(&self.pipe, pages)
    }

    fn read(&mut self, bytes: &mut [u8]) {
        // The pipe has them, and no other reader: this neither waits nor comes up short.
        let read = self.reader.read_exact(bytes);
        read.expect("a pipe gives back what was put into it");
    }

    fn empty_this_cpu(&self) {
        self.spare.empty_this_cpu();
    }

    fn empty_all_cpus(&self) -> bool {
        self.spare.empty_all_cpus()
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Why pages stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// Somebody else holds it: pinned, on its way in a pipe or socket, or in a CPU's batch for a moment.
    Busy,
    /// Locked into memory.
    Locked,
    /// A part of a huge page.
    Huge,
}

/// Pages that are in the memory and in the pipe. Dropped, they stay where they are.
pub struct Held<'a> {
    pages: InPipe<'a>,
    memory: &'a dyn Memory,
    offsets: Vec<u64>,
}

/// Pages that are in the pipe alone: their bytes are nowhere else.
#[must_use = "dropped, their bytes are lost"]
pub struct Removed<'a>(InPipe<'a>);

/// So many pages in the pipe; none of them is left there when this is gone.
struct InPipe<'a> {
    taker: &'a mut TakeOut,
    count: usize,
}

impl InPipe<'_> {
    fn uses(&self) -> io::Result<Vec<PageUse>> {
        self.taker.steps.uses(self.count)
    }

    fn read(&mut self, bytes: &mut [u8]) {
        self.taker.steps.read(bytes);
        self.count = 0;
    }
}

impl Drop for InPipe<'_> {
    fn drop(&mut self) {
        if self.count > 0 {
            self.read(&mut vec![0; self.count * PAGE]);
        }
    }
}

/// Somebody has pinned a page at the very moment at which it was removed, and keeps it. What he writes there nobody sees.
#[derive(Debug)]
pub struct Pinned;

impl TakeOut {
    /// # Errors
    /// This process may not ask who holds a page (see [`PageRefs::new`]), or not call move_pages(2); no descriptors.
    pub fn new() -> io::Result<TakeOut> {
        let pipe = Pipe::new(PAGES_MAX)?;
        let reader = File::from(pipe.out.try_clone()?);
        let spare = Spare(OnePage::anonymous(false)?);
        // Without that, a page that a CPU keeps for later could not be told from one that is pinned.
        if !spare.empty_all_cpus() {
            return Err(io::Error::last_os_error());
        }
        Ok(TakeOut::by(Box::new(Linux {
            pipe,
            refs: PageRefs::new()?,
            reader,
            spare,
        })))
    }

    /// The same, by these steps.
    #[must_use]
    pub fn by(steps: Box<dyn Steps>) -> TakeOut {
        TakeOut {
            steps,
            kept: Vec::new(),
        }
    }

    /// Room for the bytes of so many pages; what it holds is anything. Given back by [`TakeOut::keep`] it is the next take's, which needs no fresh
    /// memory then.
    pub fn buffer(&mut self, pages: usize) -> Vec<u8> {
        let mut buffer = std::mem::take(&mut self.kept);
        buffer.resize(pages * PAGE, 0);
        buffer
    }

    /// Keeps a buffer for the next take.
    pub fn keep(&mut self, buffer: Vec<u8>) {
        self.kept = buffer;
    }

    /// Holds the pages at these places of the memory, in ascending order.
    ///
    /// # Errors
    /// Of the kernel: the memory ends before, or it had to bring a page from its swap and could not.
    pub fn hold<'a>(&'a mut self, memory: &'a dyn Memory, offsets: &[u64]) -> io::Result<Held<'a>> {
        assert!((1..=PAGES_MAX).contains(&offsets.len()));
        let pages_in_pipe = InPipe {
            taker: self,
            count: 0,
        };
        let mut held = Held {
            pages: pages_in_pipe,
            memory,
            offsets: offsets.to_vec(),
        };
        for &offset in offsets {
            held.pages.taker.steps.splice(memory.descriptor(), offset)?;
            held.pages.count += 1;
        }
        Ok(held)
    }
}

impl<'a> Held<'a> {
    /// Which pages have to stay, in their order; `None` for those that may go.
    ///
    /// # Errors
    /// Nobody can tell.
    pub fn stays(&self) -> io::Result<Vec<Option<Stays>>> {
        let stays = |page: PageUse| match page {
            PageUse { is_huge: true, .. } => Some(Stays::Huge),
            PageUse {
                is_locked: true, ..
            } => Some(Stays::Locked),
            // The memory's and the pipe's.
            page if page.references == 2 + page.mappings => None,
            _ => Some(Stays::Busy),
        };
        let uses = self.pages.uses()?;
        Ok(uses.into_iter().map(stays).collect())
    }

    /// Removes all of them from the memory and from everybody who maps it.
    ///
    /// # Errors
    /// The memory cannot be punched, or a huge page was not removed as a whole: then what the caller knows of the memory is
    /// not true any more.
    pub fn remove(self) -> Result<Removed<'a>, NotRemoved> {
        let mut runs = self
            .offsets
            .chunk_by(|one, next| one + PAGE as u64 == *next);
        let punch = |run: &[u64]| self.memory.punch(run[0], (run.len() * PAGE) as u64);
        match runs.all(punch) {
            true => Ok(Removed(self.pages)),
            false => Err(NotRemoved),
        }
    }
}

/// Pages could not be removed, or not all of them.
#[derive(Debug)]
pub struct NotRemoved;

impl Removed<'_> {
    /// The bytes, once nobody else has the pages, for which it waits so long. There must be room for all.
    ///
    /// # Errors
    /// [`Pinned`]; then the bytes are as they were at the end of the wait.
    pub fn read(mut self, limit: Duration, bytes: &mut [u8]) -> Result<(), Pinned> {
        assert_eq!(bytes.len(), self.0.count * PAGE);
        let settled = self.settle(limit);
        self.0.read(bytes);
        settled
    }

    fn settle(&self, limit: Duration) -> Result<(), Pinned> {
        let steps = &self.0.taker.steps;
        let start = steps.now();
        for attempt in 0.. {
            let uses = self.0.uses();
            if uses.is_ok_and(|uses| uses.iter().all(|page| page.references == 1)) {
                return Ok(());
            }
            match attempt {
                0 => steps.empty_this_cpu(),
                1 => {
                    steps.empty_all_cpus();
                }
                _ if steps.now().saturating_duration_since(start) > limit => return Err(Pinned),
                _ => steps.pause(PAUSE),
            }
        }
        unreachable!("attempts are without end")
    }
}

/// CPUs keep pages that are to be put onto a list in batches, and hold them meanwhile.
struct Spare(OnePage);

impl Spare {
    fn empty_this_cpu(&self) {
        // SAFETY: our own mapping, which holds nothing. Removing a page from a page table empties the batches first; there is one.
        unsafe {
            self.0.start().cast::<u8>().write_volatile(1);
            libc::madvise(self.0.start(), PAGE, libc::MADV_DONTNEED);
        }
    }

    /// Moving a page between nodes, even to none, begins with that. Some milliseconds. `false`: it cannot be asked for here.
    fn empty_all_cpus(&self) -> bool {
        const MOVE: libc::c_int = 2;
        let (page, node, mut status) = (self.0.start(), 0, 0);
        // SAFETY: one page, one node and one status; the page stays ours.
        let result = unsafe {
            page.cast::<u8>().write_volatile(1);
            libc::syscall(libc::SYS_move_pages, 0, 1, &page, &node, &mut status, MOVE)
        };
        // Whether the page moves does not matter, nor which nodes there are.
        let error = io::Error::last_os_error().raw_os_error();
        result >= 0 || !matches!(error, Some(libc::ENOSYS | libc::EPERM))
    }
}

#[cfg(test)]
mod tests;
