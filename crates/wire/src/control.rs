//! The control page: a few words that agent and supervisor share.
//!
//! # Why there is a lock
//!
//! A take-away must never hit memory other than the supervisor means. `munmap` by one thread and
//! `mmap` at the same place by another can put fresh memory, of which the kernel will not tell the
//! supervisor, under an address that is still on a command's list; moving it away would let its
//! owner read zeros. Two things together exclude that:
//!
//! - the kernel refuses UFFDIO_MOVE on the process's userfaultfd with EAGAIN from the moment an
//!   address space change begins until its event has been *read*;
//! - the supervisor reads events only while it holds `lock`, and raises `generation` before it lets
//!   go; the agent moves pages only while it holds `lock` and `generation` is the command's.
//!
//! So a move succeeds only if no change happened between the making of the command and the move.
//!
//! An agent may be stopped at work, with the lock, by who traces its process. The supervisor then *revokes* its command:
//! it unregisters the staging area, and from then on the kernel refuses every move into it (EINVAL). So nothing is taken
//! behind its back, whatever the lock says, until the agent has answered and the area is registered again.

use crate::message::TAKE_MAX;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicU8};

/// Most ranges that are kept out of a forked child's page table.
pub const WIPED_MAX: usize = 128;

/// First page of the shared memory; the staging ring's frames follow it.
#[repr(C)]
pub struct Control {
    /// Futex lock: 0 free, 1 held, 2 held with waiters.
    pub lock: AtomicU32,
    /// Ranges of `wiped` in use; more than [`WIPED_MAX`] means that some were lost.
    pub wiped_count: AtomicU32,
    /// Raised by the supervisor for every batch of events it has read and applied.
    pub generation: AtomicU64,
    /// Ranges under MADV_WIPEONFORK: start and end addresses.
    pub wiped: [[AtomicU64; 2]; WIPED_MAX],
    /// Whether the supervisor follows the process: [`NOT_FOLLOWED`] until its userfaultfd is set up and the beacon
    /// registered. Set before any other memory is.
    pub followed: AtomicU32,
    /// Not 0: memory is plenty, and only what is large need be announced.
    pub at_ease: AtomicU32,
    /// Start and end of what a thread announces that touches the doorbell for it.
    pub grown: [AtomicU64; 2],
    /// Not 0: the program has asked for guards (MADV_GUARD_INSTALL), of which the kernel tells nobody.
    pub guards_used: AtomicU32,
    /// How far the agent has come with each page of the command under way: [`RETRIED`], [`COPIED`]. Zeros when a command
    /// is made. For who has to do without its answer.
    pub progress: [AtomicU8; TAKE_MAX],
}

/// In `progress`: should the page be taken, it was still shared after a fork when that was tried first.
pub const RETRIED: u8 = 1;
/// In `progress`: the page is in its frame, whole. Set before it leaves the staging area.
pub const COPIED: u8 = 2;

/// Nobody hears the doorbells yet.
pub const NOT_FOLLOWED: u32 = 0;
/// The kernel tells the supervisor of forks.
pub const FOLLOWED_WITH_FORKS: u32 = 1;
/// It does not: whoever did that may not ask for it.
pub const FOLLOWED_WITHOUT_FORKS: u32 = 2;

/// `lock` is free.
pub const FREE: u32 = 0;
/// `lock` is held.
pub const HELD: u32 = 1;
/// `lock` is held and somebody sleeps on it.
pub const CONTENDED: u32 = 2;
