//! A store that fails on purpose, for tests: another store, some of whose transfers go wrong.
//!
//! What is hit is decided when a request is submitted, by counting, so that a test that submits in a
//! fixed order sees the same faults every time.
#![forbid(unsafe_code)]

mod past;
mod queue;

use crate::backing::{Backing, Queue, Request, Transfer};
use crate::buffer::Buffer;
use crate::error::BackingError;
use crate::mailbox::lock;
use past::Past;
use queue::FaultyQueue;
use std::sync::{Arc, Mutex};

/// What goes wrong. The first group is told to the caller, the second is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A write answers [`BackingError::NoSpace`]; nothing is written.
    NoSpace,
    /// A read answers [`BackingError::Device`].
    ReadError,
    /// A write answers [`BackingError::Device`]; nothing is written.
    WriteError,
    /// A read answers [`BackingError::Truncated`].
    Truncated,
    /// A read or write never comes back, and does nothing.
    Stuck,
    /// A read never comes back.
    StuckRead,

    /// Only the first half of a write reaches the store (whole blocks, at least one less than asked
    /// for), and success is reported: a torn write that the device hides.
    ShortWrite,
    /// A read comes back with one bit changed, in the middle.
    BitFlip,
    /// A read returns what was last written elsewhere, where that differs.
    Swapped,
    /// A read returns what was there before the last write, where that differs.
    Replayed,
}

impl Fault {
    fn concerns(self, transfer: Transfer) -> bool {
        match self {
            Fault::NoSpace | Fault::WriteError | Fault::ShortWrite => transfer == Transfer::Write,
            Fault::Stuck => true,
            Fault::ReadError
            | Fault::Truncated
            | Fault::StuckRead
            | Fault::BitFlip
            | Fault::Swapped
            | Fault::Replayed => transfer == Transfer::Read,
        }
    }
}

/// A store some of whose transfers go wrong.
///
/// ```
/// use pleat_backing::{Backing, Buffer, Fault, Faulty, Memory, Patience, Request, Transfer};
/// use std::{sync::Arc, time::Duration};
///
/// let full = Faulty::new(Arc::new(Memory::new()), Fault::NoSpace, 0, 1);
/// let mut queue = full.queue(1)?;
/// let write = Request { id: 7, transfer: Transfer::Write, offset: 0, buffer: Buffer::new(4096) };
/// queue.submit(write);
/// let mut done = Vec::new();
/// queue.complete(Patience::Sleep(Duration::from_secs(1)), &mut done);
/// assert!(done[0].result.is_err());
/// assert_eq!(full.hits(), 1);
/// # Ok::<(), pleat_backing::BackingError>(())
/// ```
pub struct Faulty {
    inner: Arc<dyn Backing>,
    chance: Arc<Chance>,
}

/// Which transfers are hit, for all queues together.
struct Chance {
    fault: Fault,
    after: u64,
    times: u64,
    state: Mutex<State>,
}

struct State {
    /// Transfers that could have been hit.
    seen: u64,
    hits: u64,
    past: Past,
}

/// What happens to one request.
enum Fate {
    /// Nothing.
    Spared,
    /// The chance's fault.
    Hit,
    /// A read that returns these bytes.
    Replaced(Buffer),
}

impl Faulty {
    /// Of the transfers that `fault` can hit, the first `after` go well, and the `times` after them
    /// are hit; `u64::MAX` means all.
    #[must_use]
    pub fn new(inner: Arc<dyn Backing>, fault: Fault, after: u64, times: u64) -> Faulty {
        let past = Past::new(inner.block_bytes() as usize);
        Faulty {
            inner,
            chance: Arc::new(Chance {
                fault,
                after,
                times,
                state: Mutex::new(State {
                    seen: 0,
                    hits: 0,
                    past,
                }),
            }),
        }
    }

    /// How many transfers have been hit.
    #[must_use]
    pub fn hits(&self) -> u64 {
        lock(&self.chance.state).hits
    }

    fn before(&self, inner: Box<dyn Queue>, depth: u32) -> Result<Box<dyn Queue>, BackingError> {
        let chance = self.chance.clone();
        let queue = FaultyQueue::new(&*self.inner, inner, chance, depth)?;
        Ok(Box::new(queue))
    }
}

impl Chance {
    fn fate(&self, request: &Request) -> Fate {
        if !self.fault.concerns(request.transfer) {
            return Fate::Spared;
        }
        let state = &mut *lock(&self.state);
        let replaced = match self.fault {
            Fault::Swapped => state.past.elsewhere(request.offset, request.buffer.len()),
            Fault::Replayed => state.past.before(request.offset, request.buffer.len()),
            _ => None,
        };
        if replaced.is_none() && matches!(self.fault, Fault::Swapped | Fault::Replayed) {
            return Fate::Spared;
        }
        let number = state.seen;
        state.seen += 1;
        if number < self.after || number - self.after >= self.times {
            return Fate::Spared;
        }
        state.hits += 1;
        replaced.map_or(Fate::Hit, Fate::Replaced)
    }

    /// To be called with every write that went well.
    fn written(&self, offset: u64, bytes: &[u8]) {
        if matches!(self.fault, Fault::Swapped | Fault::Replayed) {
            lock(&self.state).past.written(offset, bytes);
        }
    }
}

impl Backing for Faulty {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn queue(&self, depth: u32) -> Result<Box<dyn Queue>, BackingError> {
        self.before(self.inner.queue(depth)?, depth)
    }

    fn queue_for_writes(&self, depth: u32) -> Result<Box<dyn Queue>, BackingError> {
        self.before(self.inner.queue_for_writes(depth)?, depth)
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), BackingError> {
        self.inner.discard(offset, bytes)
    }

    fn free_bytes(&self) -> Result<u64, BackingError> {
        self.inner.free_bytes()
    }
}
