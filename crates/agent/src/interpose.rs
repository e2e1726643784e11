//! The C library functions that pleat stands in front of.
//!
//! `pthread_create`, so that every thread's control block is known (see `threads`), and `madvise`:
//! MADV_FREE becomes MADV_DONTNEED, because a freed page that is written again raises no fault and
//! the supervisor would never learn that it is in use; MADV_WIPEONFORK is noted for forks.

use crate::{area, serve, threads};
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

static REAL_CREATE: AtomicUsize = AtomicUsize::new(0);

/// Threads on their way: the start routine and its argument, until the new thread has read them.
const STARTING: usize = 256;
static STARTS: [[AtomicUsize; 2]; STARTING] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; STARTING];
/// Marks a slot whose argument is being written.
const CLAIMED: usize = 1;

/// Looks up the real functions; called by the constructor.
pub fn resolve() {
    // SAFETY: dlsym with a static name.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
    REAL_CREATE.store(found as usize, Ordering::Release);
}

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
    if REAL_CREATE.load(Ordering::Acquire) == 0 {
        resolve();
    }
    let real = REAL_CREATE.load(Ordering::Acquire);
    if real == 0 {
        return libc::EAGAIN;
    }
    // SAFETY: dlsym found it under this name, so it has this type.
    let real: Create = unsafe { core::mem::transmute::<usize, Create>(real) };
    let Some(slot) = claim(start, argument) else {
        return libc::EAGAIN;
    };
    // SAFETY: the caller's arguments; `begin` has the type of a start routine.
    let result = unsafe { real(thread, attributes, begin, slot as *mut c_void) };
    if result != 0 {
        STARTS[slot][0].store(0, Ordering::Release);
    }
    result
}

fn claim(start: Start, argument: *mut c_void) -> Option<usize> {
    // A slot is free again as soon as its thread runs: waiting for one ends when the system
    // schedules any of 256 new threads.
    for _ in 0..1_000_000 {
        for (slot, entry) in STARTS.iter().enumerate() {
            if entry[0]
                .compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                entry[1].store(argument as usize, Ordering::Relaxed);
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
    let entry = &STARTS[slot as usize % STARTING];
    let argument = entry[1].load(Ordering::Acquire) as *mut c_void;
    let start = entry[0].swap(0, Ordering::AcqRel);
    // SAFETY: `claim` stored a start routine there, and the release of the slot comes after.
    let start: Start = unsafe { core::mem::transmute::<usize, Start>(start) };
    start(argument)
}

/// As the C library's, but for the two kinds of advice named above.
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn madvise(start: *mut c_void, len: usize, advice: c_int) -> c_int {
    let given = match advice {
        libc::MADV_FREE if area::is_managed() => libc::MADV_DONTNEED,
        other => other,
    };
    // SAFETY: the caller's range.
    match unsafe { crate::raw::advise(start as usize, len, given) } {
        Ok(_) => {
            if advice == libc::MADV_WIPEONFORK {
                serve::note_wiped(start as usize, len);
            }
            0
        }
        Err(errno) => {
            // SAFETY: this runs in a thread of the program, whose errno this is.
            unsafe { *libc::__errno_location() = errno };
            -1
        }
    }
}
