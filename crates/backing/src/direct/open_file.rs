//! The open swap file: single calls on it, and what has to be done around them where they go through
//! the page cache.
#![forbid(unsafe_code)]

use super::progress::{Progress, Step};
use super::BLOCK_BYTES;
use crate::backing::{Completion, Request, Transfer};
use crate::buffer::Buffer;
use crate::error::{BackingError, Operation, Site};
use crate::kernel;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub struct OpenFile {
    file: File,
    name: String,
    /// Transfers go past the page cache.
    is_direct: bool,
    /// The byte after the last one ever written. The file may be longer: see `grow_ahead`.
    end: AtomicU64,
    /// A write that the page cache had accepted did not reach the disk; never reset.
    lost: AtomicBool,
}

/// Lengths to try for the file, longest first. What is written beyond is right, but slower.
const LENGTHS: [u64; 5] = [8 << 40, 1 << 40, 128 << 30, 16 << 30, 2 << 30];
const LENGTH_TRIED_FIRST: u64 = 1 << 20;

impl OpenFile {
    pub fn new(file: File, name: String) -> OpenFile {
        OpenFile {
            file,
            name,
            is_direct: false,
            end: AtomicU64::new(0),
            lost: AtomicBool::new(false),
        }
    }

    /// Leaves the page cache out from now on, where the file system really can: some accept the flag
    /// and then refuse transfers. Only for a file that is still empty.
    pub fn past_the_page_cache(mut self) -> Result<OpenFile, BackingError> {
        let set = kernel::bypass_page_cache(&self.file).map_err(|e| self.creation(e))?;
        if set && self.transfers_blocks().map_err(|e| self.creation(e))? {
            self.is_direct = true;
            self.grow_ahead().map_err(|e| self.creation(e))?;
        } else if set {
            kernel::use_page_cache(&self.file).map_err(|e| self.creation(e))?;
        }
        Ok(self)
    }

    /// Tries one block. A full or failing disk is no reason against O_DIRECT: it will be told when it
    /// matters.
    fn transfers_blocks(&self) -> io::Result<bool> {
        let mut block = Buffer::new(BLOCK_BYTES as usize);
        let answer = match self.file.write_at(&block, 0) {
            Ok(_) => self.file.read_at(&mut block, 0),
            refused => refused,
        };
        self.file.set_len(0)?;
        Ok(!answer.is_err_and(|error| kernel::is_unsupported(&error)))
    }

    /// Makes the empty file long, without a block in it.
    ///
    /// A write that makes the file longer has the inode to itself on ext4 until the disk has answered; a
    /// write into a hole shares it. Measured on a busy machine, 256 KiB writes to a new file, eight in
    /// flight through io_uring, four pairs of runs: 111, 90, 1051, 838 MiB/s without this and 761, 1785,
    /// 1355, 1482 MiB/s with it. Reads beside them took as long either way.
    fn grow_ahead(&self) -> io::Result<()> {
        let limit = kernel::file_bytes_max()?;
        self.file.set_len(LENGTH_TRIED_FIRST.min(limit))?;
        if self.file.metadata()?.blocks() > 0 {
            // No holes on this file system: a long file would be a full one.
            return self.file.set_len(0);
        }
        for length in LENGTHS {
            if length <= limit && self.file.set_len(length).is_ok() {
                return Ok(());
            }
        }
        Ok(())
    }

    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn as_file(&self) -> &File {
        &self.file
    }

    /// Carries a request out in the calling thread, to its end.
    pub fn carry_out(&self, request: Request) -> Completion {
        let mut progress = Progress::new(request);
        loop {
            let answer = self.call(&mut progress);
            match progress.answered(answer, &self.name) {
                Step::Again(rest) => progress = rest,
                Step::Ended(completion) => return self.settle(completion),
            }
        }
    }

    /// The last word on a transfer that has ended. Does not wait where the page cache is left out.
    pub fn settle(&self, mut completion: Completion) -> Completion {
        if completion.result.is_err() {
            return completion;
        }
        let end = completion.offset + completion.buffer.len() as u64;
        if !self.is_direct {
            completion.result = self.clear_page_cache(&completion);
        }
        match completion.transfer {
            Transfer::Write => {
                self.end.fetch_max(end, Ordering::AcqRel);
            }
            Transfer::Read if end > self.end.load(Ordering::Acquire) => {
                let site = Site::of(&self.name, Operation::Read, completion.offset);
                completion.result = Err(BackingError::Truncated(site));
            }
            Transfer::Read => {}
        }
        completion
    }

    fn call(&self, progress: &mut Progress) -> io::Result<usize> {
        let transfer = progress.transfer();
        let (offset, rest) = progress.rest();
        match transfer {
            Transfer::Read => self.file.read_at(rest, offset),
            Transfer::Write => self.file.write_at(rest, offset),
        }
    }

    /// Waits for a write to reach the disk, and drops what the page cache holds of the range: its
    /// pages are charged to the job like any other memory.
    ///
    /// The kernel tells of a failed write-back once, to whoever asks first, which may be another
    /// thread that waits for another range. From then on no read can be trusted.
    fn clear_page_cache(&self, completion: &Completion) -> Result<(), BackingError> {
        let (offset, bytes) = (completion.offset, completion.buffer.len() as u64);
        if completion.transfer == Transfer::Write {
            let written = kernel::finish_write_back(&self.file, offset, bytes);
            if kernel::where_supported(written).is_err() {
                self.lose();
            }
        }
        if self.lost.load(Ordering::Acquire) {
            let site = Site::of(&self.name, Operation::WriteBack, offset);
            return Err(BackingError::Lost(site));
        }
        // Advice: a kernel that does not take it reclaims the pages in its own time.
        let _ = kernel::drop_cached(&self.file, offset, bytes);
        Ok(())
    }

    /// Nothing is believed from now on.
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Gives disk blocks back, where the file system can.
    pub fn punch(&self, offset: u64, bytes: u64) -> Result<(), BackingError> {
        match kernel::punch_hole(&self.file, offset, bytes) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => {
                Ok(())
            }
            result => result.map_err(|error| {
                BackingError::new(Site::of(&self.name, Operation::Punch, offset), error)
            }),
        }
    }

    pub fn free_bytes(&self) -> Result<u64, BackingError> {
        kernel::free_bytes(&self.file)
            .map_err(|error| self.without_place(Operation::Inspect, error))
    }

    /// The error of something that queues and files are made of.
    pub fn creation(&self, error: io::Error) -> BackingError {
        self.without_place(Operation::Create, error)
    }

    fn without_place(&self, operation: Operation, error: io::Error) -> BackingError {
        let site = Site {
            operation,
            name: self.name.clone(),
            offset: None,
        };
        BackingError::new(site, error)
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
