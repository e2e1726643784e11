//! The swap file whose transfers go past the page cache and are carried out while the caller does
//! something else.
//!
//! Two ways, chosen for each queue when it is made:
//!
//! | | needs | read of 4 KiB |
//! |---|---|---|
//! | `ring` | O_DIRECT, and io_uring, which sandboxes may refuse | one system call, no other thread |
//! | `threads` | nothing | two changes of thread |
//!
//! **Writes are made by threads.** An asynchronous write to where the file has no block yet is not finished by the
//! interrupt that says it is on the disk, nor by who asked for it: the file system notes the new block in a worker of the
//! kernel's (`iomap_dio_bio_end_io`, `s_dio_done_wq`), one for each CPU, which waits for that CPU like any program. On a
//! busy Linux 6.18 it was seen to get none for up to 30 s (the scheduler gave all of it to the busy programs' group), and
//! a job whose memory was all on its way to the disk stood still as long. A thread that waits for its write finishes it
//! itself. A read needs no such worker.
//!
//! A file system that cannot go past the page cache is served by threads: they wait for the disk and
//! drop what the page cache holds, so that it stays small and a failed write is found out.

mod open_file;
mod progress;
mod ring;
mod threads;

use crate::backing::{check_depth, Backing, Queue};
use crate::error::BackingError;
use crate::mailbox::lock;
use crate::unnamed;
use open_file::OpenFile;
use ring::RingQueue;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use threads::{Pool, ThreadQueue};

/// Blocks of this many bytes suit every disk.
const BLOCK_BYTES: u32 = 4096;

/// How long a queue that is dropped waits for its transfers.
const FAREWELL: Duration = Duration::from_secs(1);

/// Whether transfers may use io_uring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rings {
    /// Where the kernel, the sandbox and the file system allow it; threads elsewhere.
    WherePossible,
    /// Threads everywhere.
    Never,
}

/// A swap file without a name, which vanishes with the process.
///
/// A process that may run under `ulimit -f` should ignore SIGXFSZ, which otherwise kills it before
/// [`BackingError::TooLarge`] can be told.
pub struct DirectFile {
    file: Arc<OpenFile>,
    rings: Rings,
    /// Started with the first queue that needs it, shared by all.
    pool: Mutex<Option<Arc<Pool>>>,
}

impl DirectFile {
    /// Makes a swap file in `dir` that only this user can open and nobody can find.
    ///
    /// # Errors
    /// Whatever the system answers, when `dir` is no directory one can write to.
    pub fn create(dir: &Path, rings: Rings) -> Result<DirectFile, BackingError> {
        let file = OpenFile::new(unnamed::create(dir)?, unnamed::name_in(dir));
        Ok(DirectFile::over(file.past_the_page_cache()?, rings))
    }

    /// The same, through the page cache even where it could be gone past.
    #[cfg(test)]
    fn create_cached(dir: &Path) -> Result<DirectFile, BackingError> {
        let file = OpenFile::new(unnamed::create(dir)?, unnamed::name_in(dir));
        Ok(DirectFile::over(file, Rings::WherePossible))
    }

    fn over(file: OpenFile, rings: Rings) -> DirectFile {
        let rings = match rings {
            Rings::WherePossible if file.is_direct() && ring::is_allowed() => Rings::WherePossible,
            _ => Rings::Never,
        };
        DirectFile {
            file: Arc::new(file),
            rings,
            pool: Mutex::new(None),
        }
    }

    /// Which way is used for reads: "O_DIRECT, io_uring", "O_DIRECT, threads" or "page cache, threads".
    #[must_use]
    pub fn describe(&self) -> String {
        let cache = match self.file.is_direct() {
            true => "O_DIRECT",
            false => "page cache",
        };
        let way = match self.rings {
            Rings::WherePossible => "io_uring",
            Rings::Never => "threads",
        };
        format!("{cache}, {way}")
    }

    /// The file itself, to look at its metadata.
    #[must_use]
    pub fn file(&self) -> &File {
        self.file.as_file()
    }

    fn pool(&self) -> Result<Arc<Pool>, BackingError> {
        let mut pool = lock(&self.pool);
        if let Some(running) = &*pool {
            return Ok(running.clone());
        }
        let started = Arc::new(Pool::start(&self.file)?);
        Ok(pool.insert(started).clone())
    }
}

impl Backing for DirectFile {
    fn name(&self) -> String {
        self.file.name().to_owned()
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn queue(&self, depth: u32) -> Result<Box<dyn Queue>, BackingError> {
        check_depth(depth);
        if self.rings == Rings::WherePossible {
            // Refused later than at first: out of locked memory, or a sandbox was entered since.
            if let Ok(queue) = RingQueue::new(self.file.clone(), depth) {
                return Ok(Box::new(queue));
            }
        }
        self.queue_for_writes(depth)
    }

    fn queue_for_writes(&self, depth: u32) -> Result<Box<dyn Queue>, BackingError> {
        check_depth(depth);
        let queue = ThreadQueue::new(&self.file, self.pool()?, depth)?;
        Ok(Box::new(queue))
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), BackingError> {
        self.file.punch(offset, bytes)
    }

    fn free_bytes(&self) -> Result<u64, BackingError> {
        self.file.free_bytes()
    }
}

#[cfg(test)]
mod tests;
