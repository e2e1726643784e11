//! Where pages go when memory is full: an unnamed swap file and the map of its free space.
//!
//! [`SlotSpace`] decides *where* in the file something goes and does no I/O. [`Backing`] is what a store of
//! pages must offer: transfers that go on by themselves while the caller does something else.
//! [`DirectFile`] is one on a disk, [`Memory`] one in memory, and [`Faulty`] makes one of them fail on
//! purpose; none knows what the bytes mean. [`Seal`] keeps pages from being read there, or taken for others.
//!
//! ```
//! use pleat_backing::{Backing, Buffer, DirectFile, Patience, Request, Rings, SlotSpace, Transfer};
//! use std::time::Duration;
//!
//! let file = DirectFile::create(&std::env::temp_dir(), Rings::WherePossible)?;
//! let mut queue = file.queue(4)?;
//! let mut space = SlotSpace::new(4096, None);
//! let cluster = space.allocate(256 * 1024).expect("no limit was set");
//! queue.submit(Request {
//!     id: 1,
//!     transfer: Transfer::Write,
//!     offset: cluster.offset,
//!     buffer: Buffer::new(cluster.bytes as usize),
//! });
//! let mut done = Vec::new();
//! while done.is_empty() {
//!     queue.complete(Patience::Sleep(Duration::from_secs(1)), &mut done);
//! }
//! space.free(cluster);
//! for (offset, bytes) in space.take_holes(128 * 1024) {
//!     file.discard(offset, bytes)?;
//! }
//! # Ok::<(), pleat_backing::BackingError>(())
//! ```

mod backing;
mod buffer;
mod direct;
mod error;
mod event;
mod faulty;
mod kernel;
mod mailbox;
mod memory;
mod region;
mod seal;
mod slots;
mod unnamed;

pub use backing::{Backing, Completion, Patience, Queue, Request, Transfer, QUEUE_DEPTH_MAX};
pub use buffer::Buffer;
pub use direct::{DirectFile, Rings};
pub use error::{BackingError, Operation, Site};
pub use faulty::{Fault, Faulty};
pub use memory::Memory;
pub use seal::{
    checksum, Damaged, Fingerprint, Fingerprints, Identity, Protection, Seal, SealError,
};
pub use slots::{Extent, SlotSpace};
