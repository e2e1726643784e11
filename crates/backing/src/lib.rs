//! Where pages go when memory is full: an unnamed swap file and the map of its free space.
//!
//! [`SlotSpace`] decides *where* in the file something goes and does no I/O; [`SwapFile`] reads and
//! writes the bytes and knows nothing of what they mean. The engine holds one of each.
//!
//! [`Backing`] is what a store of pages must offer whose transfers go on by themselves while the caller
//! does something else: [`DirectFile`] is one on a disk, [`Memory`] one in memory, and [`Faulty`] makes
//! one of them fail on purpose.
//!
//! ```
//! use pleat_backing::{SlotSpace, SwapFile};
//!
//! let file = SwapFile::create(&std::env::temp_dir())?;
//! let mut space = SlotSpace::new(1024, None);
//! let cluster = space.allocate(256 * 1024).expect("no limit was set");
//! file.write_at(cluster.offset, &vec![7; cluster.bytes as usize])?;
//! space.free(cluster);
//! for (offset, bytes) in space.take_holes(128 * 1024) {
//!     file.punch(offset, bytes)?;
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
mod page_cache;
mod region;
mod seal;
mod slots;
mod swap_file;
mod unnamed;

pub use backing::{Backing, Completion, Patience, Queue, Request, Transfer, QUEUE_DEPTH_MAX};
pub use buffer::Buffer;
pub use direct::{DirectFile, Rings};
pub use error::{BackingError, Operation, Site};
pub use faulty::{Fault, Faulty};
pub use memory::Memory;
pub use page_cache::PAGE_CACHE_BYTES_MAX;
pub use seal::{checksum, Damaged, Identity, Protection, Seal, SealError};
pub use slots::{Extent, SlotSpace};
pub use swap_file::SwapFile;
