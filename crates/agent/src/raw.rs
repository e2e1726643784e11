//! System calls without the C library: no errno, no cancellation points, no locks.
//!
//! The agent thread shares another thread's thread-local storage (see `start`), so anything that
//! sets errno would write into that thread's.

use crate::credentials::{self, Rights};
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};
use pleat_wire::control;
use syscalls::{raw, Sysno};

/// An errno, positive.
pub type Errno = i32;

/// How long somebody else holds a lock before it is looked whether that is still there.
const LOCK_LOOK_MS: i64 = 100;
/// A step for which there was no memory is made again so often before a pause: a thread of the program's that waits for the
/// same few pages is not to get all of them.
const MEMORY_TRIES_AT_ONCE: u32 = 16;
/// So long is the pause,
const MEMORY_WAIT_MS: i64 = 1;
/// and so often it is made in all, which takes two seconds or more: no supervisor is late for longer.
const MEMORY_TRIES: u32 = 30_000;

/// The kernel's answer: a value, or an errno.
pub fn answer(value: usize) -> Result<usize, Errno> {
    let signed = value as isize;
    if (-4095..0).contains(&signed) {
        Err(-signed as Errno)
    } else {
        Ok(value)
    }
}

/// The same as the kernel would answer it.
pub fn as_answer(result: Result<usize, Errno>) -> isize {
    result.map_or_else(|errno| -errno as isize, |value| value as isize)
}

/// A system call with up to six arguments.
///
/// # Safety
/// The arguments must be what the call expects; pointers must be valid for it.
pub unsafe fn call(number: Sysno, a: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: passed on to the caller.
    answer(unsafe { raw::syscall6(number.id() as usize, a[0], a[1], a[2], a[3], a[4], a[5]) })
}

/// Closes a descriptor of the calling thread's table.
pub fn close(fd: i32) {
    // SAFETY: close takes no pointer; a wrong descriptor is answered with EBADF.
    let _ = unsafe { call(Sysno::close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// `ioctl` with a pointer argument.
///
/// # Safety
/// `argument` must be the structure that `request` reads and writes.
pub unsafe fn ioctl<T>(fd: i32, request: u64, argument: &mut T) -> Result<usize, Errno> {
    let pointer = core::ptr::from_mut(argument) as usize;
    // SAFETY: the caller guarantees that the structure fits the request.
    unsafe {
        call(
            Sysno::ioctl,
            [fd as usize, request as usize, pointer, 0, 0, 0],
        )
    }
}

/// An anonymous or file mapping.
pub fn map(len: usize, protection: i32, flags: i32, fd: i32) -> Result<usize, Errno> {
    let arguments = [0, len, protection as usize, flags as usize, fd as usize, 0];
    // SAFETY: a mapping at an address of the kernel's choice disturbs nothing.
    with_memory(|| unsafe { call(Sysno::mmap, arguments) })
}

/// Gives up memory of the agent's own, which nobody uses any more.
pub fn unmap(start: usize, len: usize) {
    // SAFETY: the agent's own.
    let _ = with_memory(|| unsafe { call(Sysno::munmap, [start, len, 0, 0, 0, 0]) });
}

/// `madvise` on the agent's own memory, which is mapped.
///
/// # Safety
/// The range must be the agent's own.
pub unsafe fn advise_own(start: usize, len: usize, advice: i32) -> Result<usize, Errno> {
    // SAFETY: the caller's range.
    with_memory(|| unsafe { advise(start, len, advice) })
}

/// `madvise`, once: on what may not be mapped any more.
///
/// # Safety
/// The advice must not change what anybody else reads.
pub unsafe fn advise(start: usize, len: usize, advice: i32) -> Result<usize, Errno> {
    // SAFETY: the caller's range.
    unsafe { call(Sysno::madvise, [start, len, advice as usize, 0, 0, 0]) }
}

/// Lets go of the agent's own memory, in case that all that is mapped was to be locked.
///
/// # Safety
/// The range must be the agent's own.
pub unsafe fn unlock_memory(start: usize, len: usize) -> Result<usize, Errno> {
    // SAFETY: the caller's range; no content changes.
    with_memory(|| unsafe { call(Sysno::munlock, [start, len, 0, 0, 0, 0]) })
}

/// Opens a file.
pub fn open(path: &CStr, flags: i32) -> Result<i32, Errno> {
    let (at, flags) = (libc::AT_FDCWD as usize, (flags | libc::O_CLOEXEC) as usize);
    // SAFETY: a C string.
    let opened = unsafe { call(Sysno::openat, [at, path.as_ptr() as usize, flags, 0, 0, 0]) };
    opened.map(|fd| fd as i32)
}

/// Reads a file's beginning, of which the kernel makes all that there is at once; answers how many bytes. 0 where it cannot be read.
pub fn read_file(path: &CStr, text: &mut [u8]) -> usize {
    let Ok(fd) = open(path, libc::O_RDONLY) else {
        return 0;
    };
    let arguments = [fd as usize, text.as_mut_ptr() as usize, text.len(), 0, 0, 0];
    // SAFETY: the buffer is of that size.
    let length = unsafe { call(Sysno::read, arguments) };
    close(fd);
    length.unwrap_or(0).min(text.len())
}

/// Takes a shared futex lock of the control page. `look` is called from time to time while somebody else holds it: who
/// does may have been killed.
pub fn lock(word: &AtomicU32, look: impl Fn()) {
    if word
        .compare_exchange(
            control::FREE,
            control::HELD,
            Ordering::Acquire,
            Ordering::Relaxed,
        )
        .is_ok()
    {
        return;
    }
    while word.swap(control::CONTENDED, Ordering::Acquire) != control::FREE {
        if !wait_while(word, control::CONTENDED, LOCK_LOOK_MS) {
            look();
        }
    }
}

/// Lets go of a shared futex lock.
pub fn unlock(word: &AtomicU32) {
    if word.swap(control::FREE, Ordering::Release) == control::CONTENDED {
        futex(word, libc::FUTEX_WAKE, 1);
    }
}

/// Sleeps while `word` is `value`, for so many milliseconds at most; `false` when they have passed.
pub fn wait_while(word: &AtomicU32, value: u32, limit_ms: i64) -> bool {
    let limit = [limit_ms / 1000, limit_ms % 1000 * 1_000_000];
    let (pointer, limit) = (core::ptr::from_ref(word) as usize, limit.as_ptr() as usize);
    let arguments = [
        pointer,
        libc::FUTEX_WAIT as usize,
        value as usize,
        limit,
        0,
        0,
    ];
    // SAFETY: the word and the timeout, a `struct timespec`, outlive the call.
    let waited = unsafe { call(Sysno::futex, arguments) };
    waited != Err(libc::ETIMEDOUT)
}

/// Makes a step of the agent's again for a while as long as the kernel has no memory for it.
///
/// Where the job's memory is full, first touches wait until there is some (see `own_group` in the supervisor) or the kernel
/// frees some, but a system call that needs memory of the kernel's own fails at once. The supervisor may need just this
/// step to be able to take memory away, and meanwhile lets the job have a little more.
pub fn with_memory<T>(mut step: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut tries = 0;
    loop {
        match step() {
            Err(libc::ENOMEM | libc::ENOBUFS) if tries < MEMORY_TRIES && has_room() => {
                tries += 1;
                if tries % MEMORY_TRIES_AT_ONCE == 0 {
                    wait_while(&AtomicU32::new(0), 0, MEMORY_WAIT_MS);
                }
            }
            result => return result,
        }
    }
}

/// Whether no limit of the process's own can be why there is no memory: that would not pass.
fn has_room() -> bool {
    let mut limit = [0u64; 2];
    let pointer = (&raw mut limit) as usize;
    let arguments = [0, libc::RLIMIT_AS as usize, 0, pointer, 0, 0];
    // SAFETY: a `struct rlimit64`, which is written only.
    let asked = unsafe { call(Sysno::prlimit64, arguments) };
    asked.is_err() || limit[0] == u64::MAX
}

/// Wakes everybody who sleeps on `word`.
pub fn wake_all(word: &AtomicU32) {
    futex(word, libc::FUTEX_WAKE, i32::MAX as u32);
}

fn futex(word: &AtomicU32, operation: i32, value: u32) {
    let pointer = core::ptr::from_ref(word) as usize;
    // SAFETY: the word outlives the call; no timeout is given.
    let _ = unsafe {
        call(
            Sysno::futex,
            [pointer, operation as usize, value as usize, 0, 0, 0],
        )
    };
}

/// Makes the page at `address` this process's own by a write access that changes nothing: an atomic
/// "or 0", done by the kernel as part of a futex call that wakes nobody.
///
/// Of all ways to write to a page this is the one that never waits: where the page is absent, the
/// kernel answers EFAULT instead of raising a fault for the supervisor, who may be waiting for us.
/// If the program has mapped other memory there meanwhile, an "or 0" does it no harm either.
pub fn make_own(address: usize) -> bool {
    static NOBODY: AtomicU32 = AtomicU32::new(0);
    let operation = (libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG) as usize;
    // Operation FUTEX_OP_OR with argument 0; comparison FUTEX_OP_CMP_EQ with 0.
    let or_zero = 2 << 28;
    let word = core::ptr::from_ref(&NOBODY) as usize;
    // SAFETY: the kernel checks both addresses; the only effect on the second is the "or 0".
    unsafe { call(Sysno::futex, [word, operation, 0, 0, address, or_zero]) }.is_ok()
}

/// Sets how the calling thread competes for its CPU.
pub fn set_nice(nice: isize) {
    let arguments = [libc::PRIO_PROCESS as usize, 0, nice as usize, 0, 0, 0];
    // SAFETY: plain numbers.
    let _ = unsafe { call(Sysno::setpriority, arguments) };
}

/// The time now, as `pleat_sys::ticks` tells it in the supervisor.
#[cfg(target_arch = "x86_64")]
pub fn ticks() -> u64 {
    // SAFETY: every CPU of this architecture has the instruction, and Linux lets anybody use it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The time now, as `pleat_sys::ticks` tells it in the supervisor.
#[cfg(not(target_arch = "x86_64"))]
pub fn ticks() -> u64 {
    let mut now = [0u64; 2];
    let arguments = [
        libc::CLOCK_MONOTONIC as usize,
        now.as_mut_ptr() as usize,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: a `struct timespec`, which outlives the call.
    let _ = unsafe { call(Sysno::clock_gettime, arguments) };
    now[0] * 1_000_000_000 + now[1]
}

/// The process id.
pub fn process() -> i32 {
    // SAFETY: no arguments.
    unsafe { call(Sysno::getpid, [0; 6]) }.unwrap_or(0) as i32
}

/// Makes a thread that runs `run` on a stack of its own, and returns its number.
///
/// # Safety
/// Below `stack_top`, which is a multiple of 16, is memory enough for `run`, which nobody else uses. The thread has the
/// thread-local storage of the calling one. `flags` include `CLONE_VM`.
#[cfg(target_arch = "x86_64")]
pub unsafe fn start_thread(
    flags: i32,
    stack_top: usize,
    run: extern "C" fn() -> !,
) -> Result<i32, Errno> {
    let result: usize;
    // SAFETY: the new thread begins behind the call with the registers of this one, on its own stack, and never comes
    // to the code behind it; for this thread it is a system call.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "call {run}",
            "ud2",
            "2:",
            run = in(reg) run,
            inlateout("rax") Sysno::clone.id() as usize => result,
            in("rdi") flags as usize,
            in("rsi") stack_top,
            in("rdx") 0,
            in("r10") 0,
            in("r8") 0,
            out("rcx") _,
            out("r11") _,
        );
    }
    answer(result).map(|thread| thread as i32)
}

/// Ends the calling thread, which is not one of the C library's. The status counts where it is the last one.
pub fn end_thread(status: i32) -> ! {
    loop {
        // SAFETY: only this thread ends; its memory stays mapped.
        let _ = unsafe { call(Sysno::exit, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Prints `message` to the program's standard error: descriptor 2 of its own threads. The agent's table
/// has none, so there it is opened by name, which may be refused (a pipe of another user's).
pub fn complain(message: &[u8]) {
    let arguments = [2, message.as_ptr() as usize, message.len(), 0, 0, 0];
    // SAFETY: the message is a valid slice.
    if unsafe { call(Sysno::write, arguments) }.is_ok() {
        return;
    }
    let pid = process();
    let mut path = [0u8; 32];
    stderr_path(pid, &mut path);
    let flags = (libc::O_WRONLY | libc::O_APPEND | libc::O_NOCTTY | libc::O_NONBLOCK) as usize;
    // SAFETY: the path is zero-terminated and the message is a valid slice.
    unsafe {
        let at = libc::AT_FDCWD as usize;
        let arguments = [at, path.as_ptr() as usize, flags, 0, 0, 0];
        if let Ok(fd) = credentials::with(Rights::FILES, || call(Sysno::openat, arguments)) {
            let _ = call(
                Sysno::write,
                [fd, message.as_ptr() as usize, message.len(), 0, 0, 0],
            );
        }
    }
}

/// Prints `message` to the program's standard error and kills the process: part of its memory may
/// be away for good, and it must not see anything else in its place.
pub fn die(message: &[u8]) -> ! {
    complain(message);
    let pid = process() as usize;
    loop {
        // SAFETY: no pointers.
        let _ = unsafe { call(Sysno::kill, [pid, libc::SIGKILL as usize, 0, 0, 0, 0]) };
    }
}

/// `/proc/PID/fd/2`: the agent's own table has no standard error, the program's has.
fn stderr_path(pid: i32, path: &mut [u8; 32]) {
    let (head, tail) = (b"/proc/", b"/fd/2\0");
    path[..head.len()].copy_from_slice(head);
    let mut digits = [0u8; 10];
    let (mut rest, mut first) = (pid.max(0) as u32, digits.len());
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let rest = digits[first..].iter().chain(tail);
    for (to, byte) in path[head.len()..].iter_mut().zip(rest) {
        *to = *byte;
    }
}
