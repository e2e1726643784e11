//! Programs that shut themselves in by filters of system calls (seccomp), or have themselves traced.
//!
//! A thread inherits the filters of the one that makes it. So an agent that is started after the program has set some is bound by
//! them, and may be ended for what it does; one that was there before is not, unless the filter is for all threads. So the
//! agent is started before a filter is set, however much memory there is. Not before one for all threads: that would bind it, too,
//! and programs that set such filters often make sure that they have a single thread.
//!
//! Nor can an agent be started in a process that another traces. Who asks for that itself has its agent before.

use crate::raw;
use crate::{injected, interpose, start, symbols};
use core::ffi::c_int;
use syscalls::Sysno;

const SET_STRICT: usize = 0; // SECCOMP_SET_MODE_STRICT
const SET_FILTER: usize = 1; // SECCOMP_SET_MODE_FILTER
const ALL_THREADS: usize = 1; // SECCOMP_FILTER_FLAG_TSYNC

/// As the C library's.
///
/// # Safety
/// As for the C library's, which takes as many arguments as the option needs.
#[no_mangle]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    before_prctl(option as usize);
    // SAFETY: the caller's arguments.
    match unsafe { raw::call(Sysno::prctl, [option as usize, a, b, c, d, 0]) } {
        Ok(value) => value as c_int,
        Err(errno) => interpose::fail(errno),
    }
}

type Ptrace = unsafe extern "C" fn(usize, usize, usize, usize) -> isize;

/// As the C library's.
///
/// # Safety
/// As for the C library's, which takes as many arguments as the request needs.
#[no_mangle]
pub unsafe extern "C" fn ptrace(request: usize, pid: usize, address: usize, data: usize) -> isize {
    before_ptrace(request);
    let real = symbols::PTRACE.address();
    if real == 0 {
        return interpose::fail(libc::ENOSYS) as isize;
    }
    // SAFETY: found under this name, so it takes these; the caller's arguments.
    unsafe { core::mem::transmute::<usize, Ptrace>(real)(request, pid, address, data) }
}

/// A call of ptrace(2) with this request is about to be made.
pub fn before_ptrace(request: usize) {
    if request as u32 == libc::PTRACE_TRACEME {
        get_ready();
    }
}

/// A call of prctl(2) with this option is about to be made.
pub fn before_prctl(option: usize) {
    if option == libc::PR_SET_SECCOMP as usize {
        get_ready();
    }
}

/// A call of seccomp(2) is about to be made.
pub fn before_seccomp(operation: usize, flags: usize) {
    let sets = matches!(operation, SET_STRICT | SET_FILTER);
    if sets && flags & ALL_THREADS == 0 {
        get_ready();
    }
}

fn get_ready() {
    if injected::stop_waiting() {
        start::start_now();
    }
}
