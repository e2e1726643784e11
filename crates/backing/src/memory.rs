//! A store in memory, for tests and simulations: every transfer is done when it is submitted.
#![forbid(unsafe_code)]

use crate::backing::{check_depth, Backing, Completion, Patience, Queue, Request, Transfer};
use crate::error::{BackingError, Operation, Site};
use crate::mailbox::{lock, Mailbox};
use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

const BLOCK_BYTES: u32 = 4096;
const BLOCK: usize = BLOCK_BYTES as usize;
const NAME: &str = "store in memory";

/// Blocks in memory, as many as are written or as a limit allows.
pub struct Memory {
    disk: Arc<Mutex<Disk>>,
}

struct Disk {
    blocks: HashMap<u64, Box<[u8]>>,
    /// `blocks.len() <= blocks_max`.
    blocks_max: usize,
    /// The block after the last that was ever written.
    end: u64,
}

impl Memory {
    /// One that takes what fits into memory.
    #[must_use]
    pub fn new() -> Memory {
        Memory::with_limit(u64::MAX)
    }

    /// One that is full when it holds so many bytes.
    #[must_use]
    pub fn with_limit(bytes_max: u64) -> Memory {
        let disk = Disk {
            blocks: HashMap::new(),
            blocks_max: usize::try_from(bytes_max / u64::from(BLOCK_BYTES)).unwrap_or(usize::MAX),
            end: 0,
        };
        Memory {
            disk: Arc::new(Mutex::new(disk)),
        }
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        lock(&self.disk).blocks.len() as u64 * u64::from(BLOCK_BYTES)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new()
    }
}

impl Backing for Memory {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn queue(&self, depth: u32) -> Result<Box<dyn Queue>, BackingError> {
        check_depth(depth);
        let mailbox = Mailbox::new().map_err(|error| {
            let site = Site {
                operation: Operation::Create,
                name: self.name(),
                offset: None,
            };
            BackingError::new(site, error)
        })?;
        Ok(Box::new(MemoryQueue {
            disk: self.disk.clone(),
            mailbox,
            depth: depth as usize,
            in_flight: 0,
        }))
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), BackingError> {
        let block = u64::from(BLOCK_BYTES);
        let (first, end) = (offset.div_ceil(block), (offset + bytes) / block);
        lock(&self.disk)
            .blocks
            .retain(|number, _| !(first..end).contains(number));
        Ok(())
    }

    fn free_bytes(&self) -> Result<u64, BackingError> {
        let disk = lock(&self.disk);
        let free = (disk.blocks_max - disk.blocks.len()) as u64;
        Ok(free.saturating_mul(u64::from(BLOCK_BYTES)))
    }
}

impl Disk {
    fn transfer(&mut self, request: &mut Request) -> io::Result<()> {
        let first = request.offset / u64::from(BLOCK_BYTES);
        match request.transfer {
            Transfer::Read => self.read(first, &mut request.buffer),
            Transfer::Write => self.write(first, &request.buffer),
        }
    }

    fn read(&self, first: u64, bytes: &mut [u8]) -> io::Result<()> {
        if first + (bytes.len() / BLOCK) as u64 > self.end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (number, block) in (first..).zip(bytes.chunks_exact_mut(BLOCK)) {
            match self.blocks.get(&number) {
                Some(stored) => block.copy_from_slice(stored),
                None => block.fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, first: u64, bytes: &[u8]) -> io::Result<()> {
        let end = first + (bytes.len() / BLOCK) as u64;
        let new = (first..end).filter(|number| !self.blocks.contains_key(number));
        if new.count() > self.blocks_max - self.blocks.len() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        for (number, block) in (first..).zip(bytes.chunks_exact(BLOCK)) {
            self.blocks.insert(number, block.into());
        }
        self.end = self.end.max(end);
        Ok(())
    }
}

struct MemoryQueue {
    disk: Arc<Mutex<Disk>>,
    mailbox: Mailbox,
    depth: usize,
    in_flight: usize,
}

impl Queue for MemoryQueue {
    fn submit(&mut self, mut request: Request) {
        request.check(BLOCK_BYTES, self.in_flight, self.depth);
        self.in_flight += 1;
        let result = lock(&self.disk).transfer(&mut request).map_err(|error| {
            let site = Site::of(NAME, request.transfer.into(), request.offset);
            BackingError::new(site, error)
        });
        self.mailbox.put(Completion::new(request, result));
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn complete(&mut self, patience: Patience, done: &mut Vec<Completion>) {
        if self.in_flight > 0 {
            self.in_flight -= self.mailbox.collect(patience, done);
        }
    }

    fn event(&self) -> BorrowedFd<'_> {
        self.mailbox.event()
    }
}
