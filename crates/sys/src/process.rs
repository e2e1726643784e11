//! Processes and threads: descriptors that stand for them, signals, CPUs, waiting for input.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// A descriptor for a process: readable when it has ended.
///
/// # Errors
/// ESRCH when there is no such process.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain arguments.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as RawFd;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends `signal` to the process behind `pidfd`.
pub fn signal(pidfd: RawFd, signal: i32) {
    let null = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: no signal information is passed. It may be gone already, which is as good.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd, signal, null, 0) };
}

/// Keeps a thread (0: the calling one) on one CPU. A CPU that is not allowed changes nothing.
pub fn pin(thread: i32, cpu: u32) {
    // SAFETY: the set is plain data of the size given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Has a thread (0: the calling one), and those it starts from now on, run before others where that is
/// allowed (root, CAP_SYS_NICE). Where it is not, or there is no such thread, nothing changes.
pub fn hurry(thread: i32) {
    set_nice(thread, -20);
}

/// Has a thread compete like another of its process again.
pub fn relax_like(thread: i32, other: i32) {
    // SAFETY: plain numbers. An error (-1) is a priority like any other.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, other as libc::id_t) };
    set_nice(thread, nice);
}

/// Has the calling thread compete like any other again.
pub fn relax() {
    set_nice(0, 0);
}

fn set_nice(thread: i32, nice: i32) {
    // SAFETY: plain numbers; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, thread as libc::id_t, nice) };
}

/// Something to wait for.
pub fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Waits until one of `fds` has something, or for `limit`. A negative descriptor is passed over.
pub fn wait(fds: &mut [libc::pollfd], limit: Option<Duration>) {
    let limit = limit.map(|l| libc::timespec {
        tv_sec: l.as_secs() as _,
        tv_nsec: l.subsec_nanos() as _,
    });
    let pointer = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the array and the timeout are valid through the call; no signal mask is given.
    let result =
        unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as _, pointer, std::ptr::null()) };
    if result < 0 {
        // Interrupted: nothing is known to be ready.
        fds.iter_mut().for_each(|fd| fd.revents = 0);
    }
}

/// A flag that another thread raises and a waiting thread sees.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Bell {
    /// A silent bell.
    ///
    /// # Errors
    /// When no descriptor can be had.
    pub fn new() -> io::Result<Bell> {
        // SAFETY: plain arguments.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fresh and ours.
        Ok(Bell(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the descriptor readable.
    pub fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight valid bytes. It can only fail when the bell rings already.
        unsafe { libc::write(self.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Makes it silent again.
    pub fn hush(&self) {
        let mut count = 0u64;
        // SAFETY: eight valid bytes.
        unsafe { libc::read(self.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}
/// Blocks of this size and more are mapped each by itself, and are the system's again as soon as they are freed.
const MAPPED_BYTES: libc::c_int = 64 << 10;

/// Has the allocator keep little of what is freed: one heap for all threads, of which the free end is given back, and
/// large blocks outside. By default glibc gives every thread a heap, and what is free in one is of no use to another.
/// To be called before there are threads.
pub fn keep_heap_small() {
    // SAFETY: takes no pointers; the allocator locks its own data.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, MAPPED_BYTES);
    }
}

/// Gives memory that this process has freed, and its allocator kept, back to the system.
pub fn give_back_free_memory() {
    // SAFETY: takes no pointers; the allocator locks its own data.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
