//! What a space's thread has others do for it: the kernel, its process's agent, the machine.
//!
//! What it *decides* is in `space`, `link`, `segments` and `reclaim`, and these reach the outside by the traits here alone: no
//! system call, no clock and no list of `/proc` is theirs. So the same code is driven by Linux (`linux.rs`), and by a
//! simulated kernel that has the manners of the real one and none of its chance (`simulation`). (Mapped files and what
//! stands in for them, `space/files.rs` and `space/standins.rs`, still ask `/proc` themselves, and are not simulated.)
//!
//! Locks are not taken across any of these calls, but for [`Machine::now`], [`Machine::hurry`] and [`Machine::kill`]; and but for
//! the state of a segment, which nobody waits for but by [`Sharing::alone`].
//! In a simulation every other call is a place where anything else may happen first.

mod linux;
mod sharing;

pub use linux::Linux;
pub use sharing::{SharedMemory, Sharing};

use crate::space::Space;
use pleat_sys::channel::Received;
use pleat_sys::procfs::{Mapping, State};
use pleat_sys::ring::Ring;
use pleat_sys::uffd::FillError;
use pleat_wire::uffd::Message;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A userfaultfd: one address space as the kernel lets it be followed and filled. Addresses and lengths are in bytes, and
/// multiples of the page size.
pub trait Userfault: Send + Sync {
    /// By which it is waited for, and handed to its process's agent.
    fn descriptor(&self) -> RawFd;

    /// Reads the messages that wait, some at a time, without blocking.
    ///
    /// # Errors
    /// A message that is not known, or anything else but that there is none.
    fn read(&self, out: &mut Vec<Message>) -> io::Result<()>;

    /// Takes over the userfaultfd of a child, from [`Message::Fork`]. To be called once for each such message.
    fn child(&self, descriptor: i32) -> Arc<dyn Userfault>;

    /// Fills pages and wakes who waits for them; answers how many, at least one.
    ///
    /// # Errors
    /// See [`FillError`]; then nothing was filled.
    fn copy(&self, address: u64, bytes: &[u8]) -> Result<u64, FillError>;

    /// As [`Userfault::copy`], but leaves those asleep who wait: until [`Userfault::wake`].
    ///
    /// # Errors
    /// As there.
    fn copy_quietly(&self, address: u64, bytes: &[u8]) -> Result<u64, FillError>;

    /// Has an absent page raise SIGBUS in whoever touches it, and wakes who waits for it.
    ///
    /// # Errors
    /// As [`Userfault::copy`].
    fn poison(&self, address: u64) -> Result<(), FillError>;

    /// Protects present pages against writing, or lets them be written again and wakes who waits for that.
    ///
    /// # Errors
    /// See [`FillError`].
    fn protect(&self, start: u64, len: u64, protect: bool) -> Result<(), FillError>;

    /// Whether an absent page may be filled as one of the process's own; nobody is woken.
    ///
    /// # Errors
    /// [`FillError::NotMapped`] where it may not; others as for [`Userfault::protect`].
    fn check_private(&self, address: u64) -> Result<(), FillError>;

    /// Wakes threads that wait for these pages; they look again.
    fn wake(&self, start: u64, len: u64);

    /// Asks to be told of faults on absent and on protected pages.
    ///
    /// # Errors
    /// The range cannot be managed, or is not mapped.
    fn register(&self, start: u64, len: u64) -> io::Result<()>;

    /// As [`Userfault::register`], of memory that is never protected, as the agent's own.
    ///
    /// # Errors
    /// As there.
    fn register_read_only(&self, start: u64, len: u64) -> io::Result<()>;

    /// Ends that. Nothing can be moved there any more by the time this returns, and who waits there goes on.
    ///
    /// # Errors
    /// As [`Userfault::register`].
    fn unregister(&self, start: u64, len: u64) -> io::Result<()>;

    /// Whether the address space is gone.
    fn is_dead(&self) -> bool;

    /// Whether an event of the address space waits to be read, or is under way.
    fn is_event_pending(&self) -> bool;

    /// Gives the address space back to the kernel, as far as this side has it: nothing is registered any more, and who waits
    /// goes on. From then on it is dead here.
    fn close(&self);
}

/// The connection to an agent.
pub trait AgentSocket: Send + Sync {
    /// By which its answers are waited for.
    fn descriptor(&self) -> RawFd;

    /// Sends one packet, with at most one descriptor, without blocking.
    ///
    /// # Errors
    /// EPIPE when the other side is gone, EAGAIN when it does not read.
    fn send(&self, packet: &[u8], descriptor: Option<RawFd>) -> io::Result<()>;

    /// Receives one packet without blocking.
    fn receive(&self, packet: &mut [u8]) -> Received;

    /// Whether the other side has closed it.
    fn is_closed(&self) -> bool;
}

/// Wakes a space's thread: for good, until it has heard.
pub trait Call: Send + Sync {
    /// By which it is waited for.
    fn descriptor(&self) -> RawFd;

    /// Wakes whoever waits, or will. May be called with locks held.
    fn ring(&self);

    /// It was heard.
    fn hush(&self);
}

/// A space's bell.
pub type SpaceBell = Box<dyn Call>;

/// What can be seen of a page table.
pub trait PageTableView: Send {
    /// How many of `pages` pages from `start` on have nothing in the page table, in a row: no page and no mark.
    ///
    /// # Errors
    /// The process is gone.
    fn free_run(&self, start: u64, pages: usize) -> io::Result<usize>;

    /// Which of `pages` pages from `start` on exist.
    ///
    /// # Errors
    /// As for [`PageTableView::free_run`].
    fn which_exist(&self, start: u64, pages: usize) -> io::Result<Vec<bool>>;

    /// Whether there is no page at an address but a mark; or one that the kernel is just moving.
    ///
    /// # Errors
    /// As for [`PageTableView::free_run`].
    fn is_marked(&self, address: u64) -> io::Result<bool>;
}

/// The memory of another process, to be read.
pub trait Memory {
    /// Which of `pages` pages from `start` on exist.
    ///
    /// # Errors
    /// The process is gone.
    fn which_exist(&self, start: u64, pages: usize) -> io::Result<Vec<bool>>;

    /// Reads what is at an address. A page that does not exist reads as zeros, and does from then on.
    ///
    /// # Errors
    /// Nothing is mapped there; the process is gone.
    fn read(&self, address: u64, to: &mut [u8]) -> io::Result<()>;
}

/// Ranges of addresses: start and end of each, in order.
pub type Runs = Vec<(u64, u64)>;

/// Clock, threads and processes. Processes go by their numbers, as `/proc` has them, or by a descriptor that stands for one.
pub trait Machine: Sharing {
    /// What time it is.
    fn now(&self) -> Instant;

    /// How long ago that was.
    fn since(&self, then: Instant) -> Duration {
        self.now().saturating_duration_since(then)
    }

    /// Sleeps until one of these is ready, or for so long.
    fn wait(&self, fds: &mut [libc::pollfd], limit: Option<Duration>);

    /// Lets others run, for so long.
    fn pause(&self, time: Duration);

    /// Waits for what other threads do: looks so often, and, if it may sleep, until it is so. Whoever brings it about
    /// unparks the calling thread.
    fn join(&self, looks: u32, may_sleep: bool, is_over: &dyn Fn() -> bool) -> bool;

    /// Serves a space from now on, by a thread of its own.
    ///
    /// # Errors
    /// No thread can be had.
    fn serve(&self, space: Space) -> io::Result<()>;

    /// Takes the control lock of a ring. `false` when `give_up` says so while waiting.
    fn lock(&self, ring: &Ring, give_up: &dyn Fn() -> bool) -> bool;

    /// The calling thread.
    fn own_thread(&self) -> i32;

    /// Has a thread run ahead of others; 0: the calling one.
    fn hurry(&self, thread: i32);

    /// Ends that for the calling thread.
    fn relax(&self);

    /// Ends it for another, which becomes as the rest of its process.
    fn relax_like(&self, thread: i32, pid: i32);

    /// Binds a thread to a CPU; 0: the calling one.
    fn pin(&self, thread: i32, cpu: u32);

    /// On which CPU a thread ran last.
    ///
    /// # Errors
    /// It is gone.
    fn last_cpu(&self, thread: i32) -> io::Result<u32>;

    /// What a thread is doing, or a process's first one.
    fn state(&self, thread: i32) -> State;

    /// Whether a thread is stopped, by a signal or by who traces it.
    fn is_stopped(&self, thread: i32) -> bool;

    /// Nanoseconds of CPU time of the calling thread.
    fn own_cpu_ns(&self) -> u64;

    /// Whether a process has ended.
    fn has_ended(&self, process: &OwnedFd) -> bool;

    /// Ends a process.
    fn kill(&self, process: &OwnedFd);

    /// The process of a thread that waits for a page, if it is a descendant and its number is what it is called here.
    fn find_waiting(&self, thread: i32) -> Option<(i32, Arc<OwnedFd>)>;

    /// What a process has mapped.
    ///
    /// # Errors
    /// It is gone, or may not be looked at; so for all that follow.
    fn maps(&self, pid: i32) -> io::Result<Vec<Mapping>>;

    /// Where the mapping begins and ends that an address is in, by a question that takes microseconds. `None`: there is none, or the kernel
    /// cannot be asked.
    fn mapping_at(&self, _pid: i32, _address: u64) -> Option<(u64, u64)> {
        None
    }

    /// Private anonymous pages of a range that are in memory.
    ///
    /// # Errors
    /// As for [`Machine::maps`].
    fn present_anon_runs(&self, pid: i32, start: u64, end: u64) -> io::Result<Runs>;

    /// Pages of a range that were read and never written to.
    ///
    /// # Errors
    /// As for [`Machine::maps`].
    fn zero_page_runs(&self, pid: i32, start: u64, end: u64) -> io::Result<Runs>;

    /// Ranges under MADV_WIPEONFORK.
    ///
    /// # Errors
    /// As for [`Machine::maps`].
    fn wiped_on_fork(&self, pid: i32) -> io::Result<Runs>;

    /// The page table of a process. It stays that process's, also when its number is given to another.
    ///
    /// # Errors
    /// As for [`Machine::maps`].
    fn page_table(&self, pid: i32) -> io::Result<Box<dyn PageTableView>>;

    /// The memory of a process. As [`Machine::page_table`].
    ///
    /// # Errors
    /// As for [`Machine::maps`].
    fn memory(&self, pid: i32) -> io::Result<Box<dyn Memory>>;

    /// A bell.
    ///
    /// # Errors
    /// No descriptor can be had.
    fn bell(&self) -> io::Result<SpaceBell>;

    /// A bell, and the name of a child that nobody can guess.
    ///
    /// # Errors
    /// No descriptor can be had.
    fn for_child(&self) -> io::Result<(SpaceBell, [u64; 2])>;
}
