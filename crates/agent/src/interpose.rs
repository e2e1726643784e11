//! The C library functions that pleat stands in front of.
//!
//! `pthread_create` and `thrd_create`, so that every thread's control block is known (see `threads`), and large stacks are
//! managed before they are filled; and `madvise`:
//! MADV_FREE becomes MADV_DONTNEED, because a freed page that is written again raises no fault and
//! the supervisor would never learn that it is in use; MADV_WIPEONFORK is noted for forks; for guards see
//! `guards`. `mmap`,
//! so that large mappings are managed before they are filled: the kernel tells nobody of new ones; and
//! so that large mappings of files become memory that can be folded (see `files`). `mremap`, for such a
//! mapping cannot grow. `mprotect` and `pkey_mprotect`: memory that stands in for a file that is only read
//! cannot become writable. These four and `munmap` also because the file may be mapped again in its place
//! (see `frozen`).

use crate::raw::Errno;
use crate::{area, exits, files, frozen, growth, guards, serve, start, symbols, threads};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use syscalls::Sysno;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    Start,
    *mut c_void,
) -> c_int;

/// Threads on their way: the start routine, its argument and the size of the stack if the program has chosen
/// it, until the new thread has read them.
const STARTING: usize = 256;
static STARTS: [[AtomicUsize; 3]; STARTING] =
    [const { [const { AtomicUsize::new(0) }; 3] }; STARTING];
/// Marks a slot whose argument is being written.
const CLAIMED: usize = 1;

/// As the C library's, with the thread's control block protected before anything else runs in it.
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let real = symbols::PTHREAD_CREATE.address();
    if real == 0 {
        return libc::EAGAIN;
    }
    // SAFETY: found under this name, so it has this type.
    let real: Create = unsafe { core::mem::transmute::<usize, Create>(real) };
    let mut stack = 0;
    if !attributes.is_null() {
        // SAFETY: the caller's attributes; without an answer the size stays 0.
        stack = unsafe { symbols::stack_size(attributes.cast()) };
    }
    let Some(slot) = claim(start, argument, stack) else {
        return libc::EAGAIN;
    };
    // SAFETY: the caller's arguments; `begin` has the type of a start routine.
    let result = unsafe { real(thread, attributes, begin, slot as *mut c_void) };
    if result != 0 {
        STARTS[slot][0].store(0, Ordering::Release);
    }
    result
}

/// As the C library's, by way of [`pthread_create`]: the two make the same threads, of whose results `thrd_join` takes
/// what fits into an int.
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn thrd_create(
    thread: *mut libc::pthread_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    const ERROR: c_int = 2;
    const NO_MEMORY: c_int = 3;
    // SAFETY: the caller's arguments; of the start routine only the type of its result differs.
    match unsafe { pthread_create(thread, core::ptr::null(), start, argument) } {
        0 => 0,
        libc::ENOMEM => NO_MEMORY,
        _ => ERROR,
    }
}

fn claim(start: Start, argument: *mut c_void, stack: usize) -> Option<usize> {
    // A slot is free again as soon as its thread runs: waiting for one ends when the system
    // schedules any of 256 new threads.
    for _ in 0..1_000_000 {
        for (slot, entry) in STARTS.iter().enumerate() {
            if entry[0]
                .compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                entry[1].store(argument as usize, Ordering::Relaxed);
                entry[2].store(stack, Ordering::Relaxed);
                entry[0].store(start as usize, Ordering::Release);
                return Some(slot);
            }
        }
        // SAFETY: no arguments.
        let _ = unsafe { crate::raw::call(Sysno::sched_yield, [0; 6]) };
    }
    None
}

extern "C" fn begin(slot: *mut c_void) -> *mut c_void {
    threads::protect_current();
    exits::watch_current();
    let entry = &STARTS[slot as usize % STARTING];
    let argument = entry[1].load(Ordering::Acquire) as *mut c_void;
    let stack = entry[2].load(Ordering::Acquire);
    let start = entry[0].swap(0, Ordering::AcqRel);
    // SAFETY: `claim` stored a start routine there, and the release of the slot comes after.
    let start: Start = unsafe { core::mem::transmute::<usize, Start>(start) };
    // The C library has mapped it by itself. Those of the usual size are hardly ever filled.
    if stack >= ANNOUNCED_MIN && stack >= start::ask_from() {
        announce_stack((&raw const stack) as usize, stack);
    }
    start(argument)
}

type Fork = unsafe extern "C" fn() -> libc::pid_t;

/// As the C library's; fails with ENOMEM where the child could not be given what is away.
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn fork() -> libc::pid_t {
    let real = symbols::FORK.address();
    if real == 0 {
        return fail(libc::ENOSYS);
    }
    if !area::may_fork() {
        crate::raw::complain(
            b"pleat: fork refused: part of this process's memory is away, and without CAP_SYS_PTRACE \
              a child cannot be given it; `pleat doctor` tells the remedy\n",
        );
        return fail(libc::ENOMEM);
    }
    // SAFETY: found under this name, so it has this type.
    unsafe { core::mem::transmute::<usize, Fork>(real)() }
}

/// New mappings from this size on are announced, so that they are managed before they are touched.
const ANNOUNCED_MIN: usize = 256 << 10;
/// Memory is populated in steps of this size, so that a supervisor can keep pace.
const POPULATED_MAX: usize = 1 << 20;

/// As the C library's. Large private mappings are not populated at once (MAP_POPULATE is a hint, and
/// one such call could fill the whole budget), and in a managed process they are announced.
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn mmap(
    start: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    let is_heap = flags & (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)
        == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let given = match is_heap && len > POPULATED_MAX {
        true => flags & !libc::MAP_POPULATE,
        false => flags,
    };
    let arguments = [
        start as usize,
        len,
        protection as usize,
        given as usize,
        fd as usize,
        offset as usize,
    ];
    let mapped = {
        let _inside = (flags & libc::MAP_FIXED != 0).then(frozen::enter);
        // SAFETY: the caller's arguments.
        unsafe { crate::raw::call(Sysno::mmap, arguments) }
    };
    match mapped {
        Ok(address) => {
            if is_heap && len >= ANNOUNCED_MIN {
                announce(address, len, protection);
            }
            let mapping = files::Mapping {
                address,
                len,
                protection,
                flags,
                fd,
                offset: offset as u64,
            };
            match files::convert(&mapping) {
                Ok(()) => address as *mut c_void,
                Err(errno) => fail(errno) as isize as *mut c_void,
            }
        }
        // MAP_FAILED is -1.
        Err(errno) => fail(errno) as isize as *mut c_void,
    }
}

/// Has a fresh mapping managed before it is filled: in a managed process at any rate, else if the supervisor
/// wants to manage the process for it.
fn announce(address: usize, len: usize, protection: c_int) {
    let asked = match protection & libc::PROT_WRITE {
        0 => 0,
        _ => len,
    };
    if is_managed_for(address, asked) {
        growth::announce(address, address.saturating_add(len));
    }
}

/// The same for this thread's stack, of which only one address is known.
fn announce_stack(address: usize, len: usize) {
    if is_managed_for(address, len) {
        area::ring(area::Doorbell::Mapping);
    }
}

/// Whether the process is managed, or is now because the supervisor wants that for so much memory.
fn is_managed_for(address: usize, len: usize) -> bool {
    if !area::is_managed() && len >= start::ask_from() {
        files::announce_memory(address, len);
    }
    area::light_if_followed();
    area::is_managed()
}

/// As [`mmap`].
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn mmap64(
    start: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { mmap(start, len, protection, flags, fd, offset) }
}

/// As the C library's, but for mappings of files that have become memory: such a one cannot grow, for
/// what it would grow by is in the file and not zeros. ENOMEM is what the caller has to expect anyway.
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn mremap(
    start: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    target: *mut c_void,
) -> *mut c_void {
    // With no old length what is shared would be mapped once more.
    if new_len > old_len && files::is_filled_from_file(start as usize, old_len.max(1)) {
        return fail(libc::ENOMEM) as isize as *mut c_void;
    }
    // Without these flags the caller has given no target.
    let target = match flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) {
        0 => 0,
        _ => target as usize,
    };
    let arguments = [start as usize, old_len, new_len, flags as usize, target, 0];
    // SAFETY: the caller's arguments.
    match unsafe { remap(arguments) } {
        Ok((address, _inside)) => {
            files::note_moved(start as usize, address, old_len.max(new_len));
            address as *mut c_void
        }
        Err(errno) => fail(errno) as isize as *mut c_void,
    }
}

/// Moves a mapping; answers where it is, and is inside until that is noted.
///
/// The kernel refuses (EFAULT) to move two mappings as one. What the supervisor lists and then registers may be the part of a larger
/// mapping by then, and is a mapping of its own until the supervisor has looked again: so it is asked to, and waited for.
///
/// # Safety
/// As for mremap(2).
unsafe fn remap(arguments: [usize; 6]) -> Result<(usize, frozen::Inside), Errno> {
    const LOOKS: u32 = 3;
    let [start, len, ..] = arguments;
    let mut looks = 0;
    loop {
        let inside = frozen::enter();
        // SAFETY: the caller's arguments.
        match unsafe { crate::raw::call(Sysno::mremap, arguments) } {
            Ok(address) => return Ok((address, inside)),
            Err(libc::EFAULT) if looks < LOOKS && area::is_managed() && is_mapped(start, len) => {
                drop(inside);
                area::ring(area::Doorbell::Mapping);
                looks += 1;
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// Whether all of a range is mapped, by however many mappings.
fn is_mapped(start: usize, len: usize) -> bool {
    let arguments = [start, len, libc::MS_ASYNC as usize, 0, 0, 0];
    // SAFETY: with MS_ASYNC msync(2) does nothing but look for holes.
    unsafe { crate::raw::call(Sysno::msync, arguments) }.is_ok()
}

/// As the C library's.
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn munmap(start: *mut c_void, len: usize) -> c_int {
    let _inside = frozen::enter();
    // SAFETY: the caller's arguments.
    match unsafe { crate::raw::call(Sysno::munmap, [start as usize, len, 0, 0, 0, 0]) } {
        Ok(_) => 0,
        Err(errno) => fail(errno),
    }
}

/// As the C library's. What stands in for a file that was opened for reading cannot become writable, as
/// the file's own mapping could not.
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn mprotect(start: *mut c_void, len: usize, protection: c_int) -> c_int {
    let arguments = [start as usize, len, protection as usize, 0, 0, 0];
    // SAFETY: the caller's arguments.
    unsafe { protect(Sysno::mprotect, arguments) }
}

/// As [`mprotect`].
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn pkey_mprotect(
    start: *mut c_void,
    len: usize,
    protection: c_int,
    key: c_int,
) -> c_int {
    let [start, protection] = [start as usize, protection as usize];
    // As the C library does it.
    let (number, key) = match key {
        -1 => (Sysno::mprotect, 0),
        _ => (Sysno::pkey_mprotect, key as usize),
    };
    // SAFETY: the caller's arguments.
    unsafe { protect(number, [start, len, protection, key, 0, 0]) }
}

/// # Safety
/// As for [`mprotect`].
unsafe fn protect(number: Sysno, arguments: [usize; 6]) -> c_int {
    let [start, len, protection, ..] = arguments;
    let is_write = protection as i32 & libc::PROT_WRITE != 0;
    // Asked outside, for the answer may have to wait.
    if is_write && files::stands_in(start, len) {
        return fail(libc::EACCES);
    }
    let _inside = frozen::enter();
    // SAFETY: the caller's arguments.
    match unsafe { crate::raw::call(number, arguments) } {
        Ok(_) => 0,
        Err(errno) => fail(errno),
    }
}

/// As the C library's, but for the kinds of advice named above; populating goes in steps.
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn madvise(start: *mut c_void, len: usize, advice: c_int) -> c_int {
    let (given, step) = match advice {
        libc::MADV_FREE if area::is_managed() => (libc::MADV_DONTNEED, len),
        libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => (advice, POPULATED_MAX),
        other => (other, len),
    };
    // What stands in for a file is punched out page by page.
    let is_huge = matches!(advice, libc::MADV_HUGEPAGE | libc::MADV_COLLAPSE);
    if is_huge && files::stands_in(start as usize, len) {
        return 0;
    }
    if advice == libc::MADV_WIPEONFORK {
        // Before: another thread may fork as soon as it is so.
        serve::note_wiped(start as usize, len);
    }
    let mut done = 0;
    loop {
        let part = step.min(len - done);
        // SAFETY: part of the caller's range.
        match unsafe { guards::advise(start as usize + done, part, given) } {
            Ok(_) => done += part,
            Err(errno) => return fail(errno),
        }
        if done >= len {
            break;
        }
    }
    0
}

/// Sets the errno of the calling thread, which is one of the program's, and answers -1.
pub extern "C" fn fail(errno: i32) -> c_int {
    symbols::set_errno(errno);
    -1
}
