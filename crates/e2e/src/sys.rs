//! The calls that the standard library does not have: a lock between processes, a signal to a
//! process or group, waiting for a child with its resource usage, and finding the data in a file
//! of holes. All unsafe code of the harness is here.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Waits until no other process (or other open of the file) holds the lock; closing unlocks.
pub fn lock_exclusively(file: &File) -> io::Result<()> {
    // SAFETY: flock takes no pointers, and the descriptor is open as long as `file` is borrowed.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends `signal` to the process `pid`; a process that is gone already is no error.
pub fn kill_process(pid: i32, signal: i32) {
    assert!(pid > 1, "refusing to signal pid {pid}");
    // SAFETY: kill takes no pointers; pid > 1 rules out init and "every process".
    unsafe { libc::kill(pid, signal) };
}

/// Sends SIGKILL to the process group that `leader` leads.
pub fn kill_group(leader: i32) {
    assert!(leader > 1, "refusing to kill the group of {leader}");
    // SAFETY: killpg takes no pointers; the leader is a child that made a group of its own.
    unsafe { libc::killpg(leader, libc::SIGKILL) };
}

/// Waits for the child `pid`; returns its status and its peak resident memory in KiB (the
/// largest of it and of each descendant it waited for, not their sum).
pub fn wait_with_peak(pid: i32) -> io::Result<(ExitStatus, u64)> {
    let mut status = 0;
    // SAFETY: rusage is plain integers, for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live locals of the right types.
        let got = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
        if got == pid {
            let peak_kib = u64::try_from(usage.ru_maxrss).unwrap_or(0);
            return Ok((ExitStatus::from_raw(status), peak_kib));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Our effective user; 0 is root, which making cgroups and mounting need.
pub fn user() -> u32 {
    // SAFETY: geteuid takes no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// The first range that is no hole, at or behind `from`.
pub fn next_data(file: &File, from: u64) -> io::Result<Option<Range<u64>>> {
    let start = match seek(file, from, libc::SEEK_DATA) {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
        found => found?,
    };
    Ok(Some(start..seek(file, start, libc::SEEK_HOLE)?))
}

fn seek(file: &File, from: u64, whence: i32) -> io::Result<u64> {
    let from = i64::try_from(from).map_err(io::Error::other)?;
    // SAFETY: lseek takes no pointers, and the descriptor is open as long as `file` is borrowed.
    let found = unsafe { libc::lseek(file.as_raw_fd(), from, whence) };
    u64::try_from(found).map_err(|_| io::Error::last_os_error())
}
