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

/// For [`pin`]: not one CPU, but any that the first thread of this process may use.
pub const ANY_CPU: u32 = u32::MAX;

/// Keeps a thread (0: the calling one) on one CPU, or on [`ANY_CPU`]. A CPU that is not allowed changes nothing.
pub fn pin(thread: i32, cpu: u32) {
    const LEN: usize = size_of::<libc::cpu_set_t>();
    // SAFETY: the set is plain data of the size given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        match cpu {
            // Left empty where it cannot be asked: then nothing changes.
            ANY_CPU => _ = libc::sched_getaffinity(std::process::id() as i32, LEN, &mut set),
            cpu => libc::CPU_SET(cpu as usize, &mut set),
        }
        libc::sched_setaffinity(thread, LEN, &set);
    }
}

/// How long a thread that is to run soon runs at most before others get their turn, nanoseconds. The kernel
/// lets a short turn break into a longer one; older kernels than 6.12 do not look at it.
const SHORT_TURN_NS: u64 = 100_000;

/// Has a thread (0: the calling one) run before others where that is allowed (root, CAP_SYS_NICE). Where it
/// is not, it gets no more of the CPU, but its turn a little sooner. What it starts does not inherit this.
pub fn hurry(thread: i32) {
    set_ahead(thread, -20);
}

/// Has the calling thread run soon after it wakes though other load has all CPUs, as far as that is allowed.
/// What it starts does not inherit this.
///
/// Half way to [`hurry`]: a thread at -20 that runs 2 % of the time is more load than a program to the
/// scheduler, which would move the program to another CPU.
pub fn keep_ahead() {
    set_ahead(0, -10);
}

/// Has a thread compete like another of its process again.
pub fn relax_like(thread: i32, other: i32) {
    set_sched(thread, nice_of(other), 0);
}

/// Has the calling thread compete like any other again.
pub fn relax() {
    if !set_sched(0, 0, 0) {
        set_sched(0, nice_of(0), 0);
    }
}

fn set_ahead(thread: i32, nice: i32) {
    if !set_sched(thread, nice, SHORT_TURN_NS) {
        set_sched(thread, nice_of(thread), SHORT_TURN_NS);
    }
}

fn nice_of(thread: i32) -> i32 {
    // SAFETY: plain numbers. An error (-1) is a priority like any other.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, thread as libc::id_t) }
}

/// Whether the scheduler took it; `turn_ns` 0 for the usual turn.
fn set_sched(thread: i32, nice: i32, turn_ns: u64) -> bool {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        // Always: an ordinary user may set this and may not take it back.
        sched_flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: turn_ns,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the attributes are valid through the call and of the size they say; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, 0) == 0 }
}

/// How a thread of somebody else's competed before it was put ahead of others.
pub struct Ahead(Option<(i32, libc::sched_attr)>);

impl Ahead {
    /// Has a thread run before others for a while, as [`hurry`], if it is an ordinary one and all can be undone: with a
    /// privilege.
    pub fn set(thread: i32) -> Ahead {
        // SAFETY: plain numbers; the attributes are valid through the call and of the size given.
        let before = unsafe {
            let mut before: libc::sched_attr = std::mem::zeroed();
            let size = size_of::<libc::sched_attr>();
            let asked = libc::syscall(libc::SYS_sched_getattr, thread, &raw mut before, size, 0);
            (asked == 0).then_some(before)
        };
        let before = before.filter(|before| before.sched_policy == libc::SCHED_OTHER as u32);
        let set = before.filter(|_| set_sched(thread, -20, SHORT_TURN_NS));
        Ahead(set.map(|before| (thread, before)))
    }

    /// Has it compete as before.
    pub fn end(self) {
        if let Some((thread, before)) = &self.0 {
            // SAFETY: the attributes are valid through the call, and as the kernel has told them.
            unsafe {
                libc::syscall(
                    libc::SYS_sched_setattr,
                    *thread,
                    core::ptr::from_ref(before),
                    0,
                )
            };
        }
    }
}

/// The calling thread's id.
pub fn own_thread() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// Whether a process's address space is limited (`ulimit -v`), so that it may have no room where others have no memory.
pub fn has_address_limit(pid: i32) -> bool {
    // SAFETY: plain numbers.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set, and the answer is written to a live local.
    let asked = unsafe { libc::prlimit(pid, libc::RLIMIT_AS, std::ptr::null(), &mut limit) };
    asked == 0 && limit.rlim_cur != libc::RLIM_INFINITY
}

/// Whether two processes have the same memory: clone(2) with `CLONE_VM`, or vfork(2) before the child's exec. `false`
/// where it cannot be told.
pub fn share_memory(one: i32, other: i32) -> bool {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: plain numbers.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) == 0 }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Vec<usize> {
        // SAFETY: the set is plain data of the size given.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
            let cpus = 0..libc::CPU_SETSIZE as usize;
            cpus.filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
        }
    }

    #[test]
    fn a_thread_that_was_kept_on_one_cpu_may_go_everywhere_again() {
        let all = allowed();
        pin(0, all[0] as u32);
        assert_eq!(allowed(), [all[0]]);
        pin(0, ANY_CPU);
        assert_eq!(allowed(), all);
    }
}
