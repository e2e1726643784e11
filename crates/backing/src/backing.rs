//! What a store of pages must offer, whatever it is made of: transfers that are started, go on by
//! themselves and are collected when they are done.
//!
//! ```text
//!           submit                  the store                     complete
//!   caller --------> in flight ----------------> done, not taken ----------> caller
//!     ^   gives the buffer away                  `event` readable     gets it back  |
//!     +-----------------------------------------------------------------------------+
//! ```
//!
//! A buffer has one owner at any time: the caller, or the transfer. So nobody can look at bytes that
//! are still coming, nor change bytes that are still going.
//!
//! The caller guarantees that no two writes of overlapping ranges are in flight at once, for transfers are
//! carried out in any order. A read may overlap a write or a discard: then it brings anything, and whoever
//! asked must be able to tell. The store guarantees that every submitted request comes back exactly once,
//! wholly done or with an error, and that a read which is submitted after a write has come back sees
//! what was written.
#![forbid(unsafe_code)]

use crate::buffer::Buffer;
use crate::error::BackingError;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The most requests that one queue may have in flight.
pub const QUEUE_DEPTH_MAX: u32 = 4096;

/// A store of bytes at offsets: a local file, memory, later a remote machine. Shared by all threads.
pub trait Backing: Send + Sync {
    /// What it is and where, for messages: "swap file in /var/tmp".
    fn name(&self) -> String;

    /// Offsets and lengths of every transfer are multiples of this, a power of two and at most 4096.
    fn block_bytes(&self) -> u32;

    /// A queue for one thread, in which at most `depth` requests are in flight, 1 to
    /// [`QUEUE_DEPTH_MAX`]. It outlives the store's handle where it has to.
    ///
    /// # Errors
    /// What the system answers when it has no room for another queue.
    fn queue(&self, depth: u32) -> Result<Box<dyn Queue>, BackingError>;

    /// The same for a thread that above all writes, where that is better done in another way.
    ///
    /// # Errors
    /// As [`Backing::queue`].
    fn queue_for_writes(&self, depth: u32) -> Result<Box<dyn Queue>, BackingError> {
        self.queue(depth)
    }

    /// Gives the room of a range back; it reads as zeros or anything afterwards. Does nothing where
    /// that is not supported. No transfer of the range may be in flight.
    ///
    /// # Errors
    /// What the system answers.
    fn discard(&self, offset: u64, bytes: u64) -> Result<(), BackingError>;

    /// Bytes that are free where it lies.
    ///
    /// # Errors
    /// What the system answers.
    fn free_bytes(&self) -> Result<u64, BackingError>;
}

/// Requests that are under way for one thread.
///
/// Dropping it waits a moment (at most about a second) for what is in flight, whose results nobody
/// will see.
pub trait Queue: Send {
    /// Starts a transfer. Never waits for the disk.
    ///
    /// # Panics
    /// When as many requests are in flight as the queue was made for, or when the request's offset
    /// or length is no multiple of the block, or it is empty or 2 GiB long.
    fn submit(&mut self, request: Request);

    /// Requests submitted whose completion has not been taken yet.
    fn in_flight(&self) -> usize;

    /// Appends what is done by now, and waits for the first completion as `patience` says. Returns
    /// at once when nothing is in flight.
    fn complete(&mut self, patience: Patience, done: &mut Vec<Completion>);

    /// A descriptor that polls readable while there may be completions to take, for `poll(2)` beside
    /// other descriptors. `complete` resets it. Wait for a bounded time.
    fn event(&self) -> BorrowedFd<'_>;
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transfer {
    /// From the store into the buffer.
    Read,
    /// From the buffer into the store.
    Write,
}

/// A transfer to be started: all of the buffer, from or to `offset`.
#[derive(Debug)]
pub struct Request {
    /// Comes back in the [`Completion`]; means nothing to the store.
    pub id: u64,
    /// Which way.
    pub transfer: Transfer,
    /// First byte of the range in the store.
    pub offset: u64,
    /// As long as the range.
    pub buffer: Buffer,
}

impl Request {
    /// Asserts what every queue demands of its caller.
    pub(crate) fn check(&self, block_bytes: u32, in_flight: usize, depth: usize) {
        let (block, bytes) = (u64::from(block_bytes), self.buffer.len() as u64);
        assert!(in_flight < depth, "{depth} requests are in flight already");
        assert!(
            self.offset.is_multiple_of(block) && bytes.is_multiple_of(block),
            "{bytes} bytes at {} are not aligned to blocks of {block}",
            self.offset
        );
        assert!(
            bytes > 0 && bytes < 1 << 31 && self.offset < 1 << 62,
            "{bytes} bytes at {} are nothing to transfer",
            self.offset
        );
    }
}

/// A transfer that has ended.
#[derive(Debug)]
pub struct Completion {
    /// That of the request.
    pub id: u64,
    /// That of the request.
    pub transfer: Transfer,
    /// That of the request.
    pub offset: u64,
    /// That of the request, as long as it was. Undefined after a failed read.
    pub buffer: Buffer,
    /// Whether all of it was transferred. After a failed write the range is undefined.
    pub result: Result<(), BackingError>,
}

impl Completion {
    pub(crate) fn new(request: Request, result: Result<(), BackingError>) -> Self {
        Completion {
            id: request.id,
            transfer: request.transfer,
            offset: request.offset,
            buffer: request.buffer,
            result,
        }
    }
}

/// How to wait for the first completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Take what is there.
    Poll,
    /// Look again and again, without giving the CPU away, for so long at most.
    Spin(Duration),
    /// Sleep for so long at most.
    Sleep(Duration),
}

impl Patience {
    /// When it ends. A limit that no clock can hold counts as a day.
    pub(crate) fn end(self) -> Instant {
        const LIMIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
        let limit = match self {
            Patience::Poll => Duration::ZERO,
            Patience::Spin(limit) | Patience::Sleep(limit) => limit.min(LIMIT_MAX),
        };
        Instant::now() + limit
    }
}

pub(crate) fn check_depth(depth: u32) {
    assert!(
        (1..=QUEUE_DEPTH_MAX).contains(&depth),
        "a queue for {depth} requests"
    );
}
