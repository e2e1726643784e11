//! What is asked of the machine about memory that processes share by forks (`crate::segments`).

use crate::segments::{Identity, Segments, State};
use pleat_sys::procfs::{FilePart, Mapper, NamelessPart};
use pleat_sys::robust::RobustLocks;
use pleat_sys::take_out::{Memory, TakeOut};
use std::io;
use std::sync::{Arc, RwLock, RwLockWriteGuard};

/// Shared memory, as who has a descriptor of it can ask and change it. Offsets and lengths are in bytes, and multiples of the page
/// size.
pub trait SharedMemory: Memory + Send + Sync {
    /// Device and inode.
    fn identity(&self) -> Identity;

    /// Bytes from its first page to its last, whether they exist or not.
    ///
    /// # Errors
    /// Of the kernel; so for all that follow.
    fn size(&self) -> io::Result<u64>;

    /// Bytes of memory that its pages take. May be called with locks held.
    fn bytes(&self) -> u64;

    /// Where its pages are: offsets and bytes of runs without a hole.
    ///
    /// # Errors
    /// As for [`SharedMemory::size`].
    fn runs(&self) -> io::Result<Vec<(u64, u64)>>;

    /// Puts pages into a hole.
    ///
    /// # Errors
    /// As for [`SharedMemory::size`]; there may be some then.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Marks the robust locks in a page that these threads had when they ended, as the kernel does for who ends; answers how
    /// many. The page is there.
    ///
    /// # Errors
    /// As for [`SharedMemory::size`].
    fn mark_orphans(&self, offset: u64, threads: &[i32]) -> io::Result<usize>;
}

/// Who shares what, and which threads hold robust locks.
pub trait Sharing: Send + Sync {
    /// The device that all such memory is on.
    ///
    /// # Errors
    /// Of the kernel.
    fn nameless_device(&self) -> io::Result<u64>;

    /// What takes pages out.
    ///
    /// # Errors
    /// This process may not do that.
    fn taker(&self) -> io::Result<TakeOut>;

    /// Has the thread begin that takes pages of segments.
    ///
    /// # Errors
    /// No thread can be had.
    fn serve_segments(&self, segments: Arc<Segments>, taker: TakeOut) -> io::Result<()>;

    /// Waits until nobody else has a segment.
    fn alone<'a>(&self, state: &'a RwLock<State>) -> RwLockWriteGuard<'a, State>;

    /// Mappings of such memory that a process has.
    ///
    /// # Errors
    /// It is gone, or may not be looked at; so for all that follow.
    fn nameless_parts(&self, pid: i32) -> io::Result<Vec<NamelessPart>>;

    /// The mappings of one such memory that a process has.
    ///
    /// # Errors
    /// As for [`Sharing::nameless_parts`].
    fn mappings_of(&self, pid: i32, memory: Identity) -> io::Result<Vec<FilePart>>;

    /// All processes that map a memory, of all that there are. Whoever is not among them was forked meanwhile, by one that was
    /// looked at or by a child of such.
    ///
    /// # Errors
    /// The mappings of one cannot be read.
    fn mappers_of(&self, memory: Identity) -> io::Result<Vec<Mapper>>;

    /// The memory that a process has mapped there, if it is this.
    ///
    /// # Errors
    /// Something else is mapped there by now, or nothing.
    fn open(
        &self,
        pid: i32,
        part: &FilePart,
        memory: Identity,
    ) -> io::Result<Box<dyn SharedMemory>>;

    /// Whether what a process has mapped at an address has a name like this.
    ///
    /// # Errors
    /// As for [`Sharing::nameless_parts`].
    fn is_named(&self, pid: i32, address: u64, name: &str) -> io::Result<bool>;

    /// Whether two processes have one address space, as between vfork and exec.
    fn share_memory(&self, one: i32, other: i32) -> bool;

    /// The children of a process.
    fn children(&self, pid: i32) -> Vec<i32>;

    /// The threads of a process.
    fn threads(&self, pid: i32) -> Vec<i32>;

    /// Whether the threads of a process call themselves what we call them.
    fn shares_numbers(&self, pid: i32) -> bool;

    /// What a thread of a process calls itself.
    fn own_thread_number(&self, pid: i32, thread: i32) -> Option<i32>;

    /// Whether a thread of a process is ending, or has: it runs nothing of its program any more.
    fn is_ending(&self, pid: i32, thread: i32) -> bool;

    /// The robust locks of a thread. Memory that is away is waited for, so it is asked of each address whether that may be read.
    ///
    /// # Errors
    /// The thread is gone, or may not be looked at.
    fn robust_locks(
        &self,
        pid: i32,
        thread: i32,
        may_read: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<RobustLocks>;
}
