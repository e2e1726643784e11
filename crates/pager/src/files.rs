//! Files that pages of programs are filled from, and the threads that read them.
//!
//! A space's thread answers all faults of its space and must not wait for a disk. What is not in the
//! page cache is read by one of a few threads (`pleat-read`), which are started with the first such
//! mapping. They put what they have read into the space's mail and ring for it. Nothing they do depends
//! on the state of any page: a read names a file and a place in it.

use crate::shared::{lock, Link, Shared};
use crate::standins::StandIn;
use pleat_sys::channel::Channel;
use pleat_sys::source::Source;
use pleat_types::PAGE_SIZE;
use pleat_wire::message::{FileAnswer, FileRequest, FILE_ANSWER};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Reads under way at once; a disk is asked by no more threads.
const READERS: usize = 4;
/// Most mappings whose files are held open at once: descriptors are for other things, too.
const FILES_MAX: u64 = 512;
/// How far a file is read ahead of faults in sequence, into the page cache.
pub const AHEAD: u64 = 1 << 20;

/// A mapped file, open as long as a range is filled from it.
#[derive(Debug)]
pub struct Origin {
    /// Tells it from others, in tests.
    #[cfg(test)]
    pub number: u64,
    source: Option<Source>,
    /// Its pages are never written anywhere else: what a read costs is what a page costs that the
    /// compressed cache has not kept.
    is_backing: bool,
    /// What was read ahead since faults have come in sequence.
    ahead: Mutex<Range<u64>>,
    /// How many are open, this one included.
    open: Arc<AtomicU64>,
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Origin {
    /// A file that cannot be read.
    #[cfg(test)]
    pub fn nowhere(number: u64) -> Origin {
        Origin {
            number,
            source: None,
            is_backing: false,
            ahead: Mutex::new(0..0),
            open: Arc::new(AtomicU64::new(1)),
        }
    }

    /// Reads from `offset` on until `bytes` is full or the file ends.
    ///
    /// # Errors
    /// Of the disk.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.source {
            Some(source) => source.read(offset, bytes),
            None => Err(io::Error::from_raw_os_error(libc::EIO)),
        }
    }

    /// Whole pages from `offset` on that are in the page cache; how many bytes.
    pub fn read_cached(&self, offset: u64, bytes: &mut [u8]) -> usize {
        let source = self.source.as_ref();
        let got = source.map_or(0, |source| source.read_cached(offset, bytes));
        got / PAGE_SIZE * PAGE_SIZE
    }

    /// The page cache need not keep this: the program has it now, and would have it twice.
    pub fn let_go(&self, offset: u64, len: u64) {
        if let Some(source) = &self.source {
            source.let_go(offset, len);
        }
    }

    /// Where to read ahead from, when faults in sequence have come to `offset`; `None` while what was
    /// read ahead lasts.
    pub fn ahead_of(&self, offset: u64) -> Option<u64> {
        let mut ahead = lock(&self.ahead);
        // Far from what was read ahead, the sequence is another.
        if !(ahead.start..=ahead.end).contains(&offset) {
            *ahead = offset..offset;
        }
        if ahead.end - offset > AHEAD / 2 {
            return None;
        }
        let from = ahead.end;
        ahead.end += AHEAD;
        Some(from)
    }

    /// Whether what is in the page cache there has come because it was read ahead.
    pub fn is_ahead(&self, offset: u64) -> bool {
        lock(&self.ahead).contains(&offset)
    }
}

/// A thread of the program has asked something, and waits for the answer.
pub struct FileRequested {
    /// What.
    pub request: FileRequest,
    /// The file.
    pub origin: Option<Arc<Origin>>,
    /// What stands in for it.
    pub stand_in: Option<Arc<StandIn>>,
    /// Where the answer goes.
    pub channel: Channel,
}

impl FileRequested {
    /// Answers. If nobody hears it, nobody is concerned: the thread and its address space are gone.
    pub fn answer(&self, yes: bool) {
        answer(&self.channel, yes, None);
    }
}

/// Answers a thread that has mapped a file, or asks whether it has; or lends it memory.
pub fn answer(channel: &Channel, yes: bool, memory: Option<RawFd>) {
    let answer = FileAnswer {
        kind: FILE_ANSWER,
        yes: u32::from(yes),
    };
    let _ = channel.send(pleat_sys::bytes_of(&answer), memory);
}

/// What a read has brought.
pub struct FileRead {
    /// Which read.
    pub id: u64,
    /// What the file holds there, up to its end; or an error of the disk.
    pub result: io::Result<Vec<u8>>,
}

/// Something to do for a reading thread.
pub enum Task {
    /// Read so many bytes, for a fault of this space.
    Read {
        /// Number of the read, in its space.
        id: u64,
        /// Whose fault waits.
        link: Arc<Link>,
        /// The file.
        origin: Arc<Origin>,
        /// Where.
        offset: u64,
        /// How many bytes.
        len: usize,
    },
    /// Have the next part of a file read into the page cache.
    Ahead(Arc<Origin>, u64),
}

/// The reading threads and what they have to do.
#[derive(Default)]
pub struct Readers {
    tasks: Mutex<VecDeque<Task>>,
    filled: Condvar,
    is_started: AtomicBool,
    open: Arc<AtomicU64>,
}

impl Readers {
    /// Opens the file behind a descriptor, if there is room for one more.
    ///
    /// # Errors
    /// As [`Source::open`]; too many files.
    pub fn open(&self, descriptor: &OwnedFd) -> io::Result<Origin> {
        if self.open.fetch_add(1, Ordering::AcqRel) >= FILES_MAX {
            self.open.fetch_sub(1, Ordering::AcqRel);
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let mut origin = Origin {
            #[cfg(test)]
            number: 0,
            source: None,
            is_backing: false,
            ahead: Mutex::new(0..0),
            open: self.open.clone(),
        };
        origin.source = Some(Source::open(descriptor)?);
        Ok(origin)
    }

    /// As [`Readers::open`], a file whose pages come from it again whenever they are gone.
    ///
    /// # Errors
    /// As [`Readers::open`].
    pub fn open_backing(&self, descriptor: &OwnedFd) -> io::Result<Origin> {
        let mut origin = self.open(descriptor)?;
        origin.is_backing = true;
        Ok(origin)
    }

    /// Starts the threads, unless they were started before. By the main thread alone.
    ///
    /// # Errors
    /// When not one can be started.
    pub fn start(&self, shared: &Arc<Shared>) -> io::Result<()> {
        if self.is_started.load(Ordering::Acquire) {
            return Ok(());
        }
        for started in 0..READERS {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name("pleat-read".into());
            match thread.stack_size(128 << 10).spawn(move || run(&shared)) {
                Err(error) if started == 0 => return Err(error),
                _ => {}
            }
        }
        self.is_started.store(true, Ordering::Release);
        Ok(())
    }

    /// Adds a task. Reading ahead is left out when there is more to do than can be done at once.
    pub fn push(&self, task: Task) {
        let mut tasks = lock(&self.tasks);
        if matches!(task, Task::Ahead(..)) && tasks.len() >= READERS {
            return;
        }
        tasks.push_back(task);
        self.filled.notify_one();
    }

    /// The job is over: threads are to end.
    pub fn close(&self) {
        // With the lock held, or a thread that has just looked whether it is over would sleep on.
        let _tasks = lock(&self.tasks);
        self.filled.notify_all();
    }

    fn next(&self, shared: &Shared) -> Option<Task> {
        let mut tasks = lock(&self.tasks);
        while !shared.is_over() {
            if let Some(task) = tasks.pop_front() {
                return Some(task);
            }
            let waited = self.filled.wait(tasks);
            tasks = waited.unwrap_or_else(PoisonError::into_inner);
        }
        None
    }
}

/// A reading thread's life.
fn run(shared: &Arc<Shared>) {
    while let Some(task) = shared.readers.next(shared) {
        match task {
            Task::Read {
                id,
                link,
                origin,
                offset,
                len,
            } => {
                let start = Instant::now();
                let result = read(&origin, offset, len);
                shared.meters.file_reads.add(1);
                let took = start.elapsed();
                shared.meters.file_read_us.add(took.as_micros() as u64);
                if origin.is_backing {
                    shared.pace.read(took, (len / PAGE_SIZE) as u64);
                }
                lock(&link.mail).file_reads.push(FileRead { id, result });
                link.bell.ring();
            }
            Task::Ahead(origin, from) => {
                if let Some(source) = &origin.source {
                    source.expect(from, AHEAD);
                }
            }
        }
    }
}

/// Reads a run of pages, or, where that fails, its first alone: a bad place behind must not cost the page
/// that is wanted.
fn read(origin: &Origin, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let got = match origin.read(offset, &mut bytes) {
        Err(_) if len > PAGE_SIZE => origin.read(offset, &mut bytes[..PAGE_SIZE]),
        other => other,
    }?;
    bytes.truncate(got);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_ahead_stays_in_front_of_the_faults() {
        let file = Origin::nowhere(0);
        let mut reach = 0;
        for offset in (0..16 << 20).step_by(64 << 10) {
            if let Some(from) = file.ahead_of(offset) {
                assert!(from >= reach, "read ahead twice");
                reach = from + AHEAD;
            }
            assert!(reach > offset && reach <= offset + 2 * AHEAD);
        }
    }
}
