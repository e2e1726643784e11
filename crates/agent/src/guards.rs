//! Guards of the program's (MADV_GUARD_INSTALL, Linux 6.13), of which the kernel tells nobody.
//!
//! A guard is a mark in the page table. What was away there would come back once it is removed; and where a page is put in
//! place that nobody has touched, because it lies beside one that was, it takes the guard's place.
//! So whoever installs guards comes by here: the program by `madvise` or `syscall` (`interpose`), the C library, which puts
//! one at the end of each thread's stack from 2.42 on, by its own system call (`patch`).

use crate::area;
use crate::files;
use crate::raw::{self, Errno};
use crate::serve;
use crate::stubs::Registers;

/// Linux 6.13.
const MADV_GUARD_INSTALL: i32 = 102;

/// `madvise`, by way of [`install`] for guards, and of the supervisor for the removal of shared memory.
///
/// # Safety
/// As for the system call.
pub unsafe fn advise(start: usize, len: usize, advice: i32) -> Result<usize, Errno> {
    // SAFETY: the caller's range and advice.
    unsafe {
        match advice {
            MADV_GUARD_INSTALL => install(start, len),
            // The event is the same as for MADV_DONTNEED, which removes nothing of shared memory.
            libc::MADV_REMOVE if area::is_managed() && files::remove_shared(start, len) => Ok(0),
            _ => raw::advise(start, len, advice),
        }
    }
}

/// As the system call. From now on the supervisor looks before it fills pages beside one that is wanted.
///
/// Giving the range up raises an event, by which the supervisor forgets what is away; guards stay. It may have been
/// filling pages when the first were installed, and not have known: what was lost until the event is put back.
///
/// Of managed memory only: elsewhere nothing is away, or is filled.
///
/// # Safety
/// As for the system call.
unsafe fn install(start: usize, len: usize) -> Result<usize, Errno> {
    serve::note_guards();
    // SAFETY: the caller has asked for guards, so nothing there is of use to it.
    unsafe {
        let done = raw::advise(start, len, MADV_GUARD_INSTALL)?;
        if area::is_managed() {
            raw::advise(start, len, libc::MADV_DONTNEED)?;
            raw::advise(start, len, MADV_GUARD_INSTALL)?;
        }
        Ok(done)
    }
}

/// In the place of the C library's system call: of `madvise`, whoever calls that past the symbol table.
pub extern "C" fn madvise(registers: &Registers) -> isize {
    // SAFETY: the caller's range and advice.
    raw::as_answer(unsafe { advise(registers.rdi, registers.rsi, registers.rdx as i32) })
}
