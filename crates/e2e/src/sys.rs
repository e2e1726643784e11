//! The calls that the standard library does not have: a lock between processes, a signal to a
//! process or group, waiting for a child with its resource usage, and finding the data in a file
//! of holes, taking a mount away, the pages of a file that are in memory, extended attributes, terminals. All unsafe code of the harness is here.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};

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

/// Takes a mount away at once, whoever uses it.
pub fn unmount_lazily(at: &Path) -> io::Result<()> {
    let at = c_path(at);
    // SAFETY: the path is a live string that ends in 0.
    check(unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) })
}

/// How much of the file is in the page cache of its file system.
pub fn resident_bytes(file: &File) -> io::Result<u64> {
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    if length == 0 {
        return Ok(0);
    }
    let (nowhere, fd) = (std::ptr::null_mut(), file.as_raw_fd());
    // SAFETY: the kernel chooses the place, and nothing is read through the mapping.
    let map = unsafe { libc::mmap(nowhere, length, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut pages = vec![0u8; length.div_ceil(4096)];
    // SAFETY: the mapping is live, and the vector has a byte for each of its pages.
    let asked = check(unsafe { libc::mincore(map, length, pages.as_mut_ptr()) });
    // SAFETY: the mapping is ours and nothing refers to it.
    unsafe { libc::munmap(map, length) };
    asked?;
    Ok(pages.iter().filter(|p| **p & 1 == 1).count() as u64 * 4096)
}

/// Sets an extended attribute.
pub fn set_attribute(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    let (path, name) = (c_path(path), c_path(Path::new(name)));
    let (start, length) = (value.as_ptr().cast(), value.len());
    // SAFETY: both strings end in 0; start and length are those of `value`.
    check(unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), start, length, 0) })
}

/// An extended attribute; None when there is none of that name.
pub fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let (path, name) = (c_path(path), c_path(Path::new(name)));
    let mut value = vec![0u8; 4096];
    let (start, length) = (value.as_mut_ptr().cast(), value.len());
    // SAFETY: both strings end in 0; start and length are those of `value`.
    let got = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), start, length) };
    value.truncate(usize::try_from(got).ok()?);
    Some(value)
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no path has a 0 in it")
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A pair of descriptors that are a terminal of this size: the side of who looks at it, and that of programs.
pub fn open_terminal(size: (u16, u16)) -> io::Result<(File, File)> {
    let (mut outer, mut inner) = (-1, -1);
    let size = winsize(size);
    let (nothing, none) = (std::ptr::null_mut(), std::ptr::null());
    // SAFETY: the pointers are to live locals, or null, which the call allows for name and settings.
    check(unsafe { libc::openpty(&mut outer, &mut inner, nothing, none, &size) })?;
    // SAFETY: both are fresh and ours.
    Ok(unsafe { (File::from_raw_fd(outer), File::from_raw_fd(inner)) })
}

/// Gives the terminal another size: columns, and lines.
pub fn resize_terminal(outer: &File, size: (u16, u16)) -> io::Result<()> {
    let size = winsize(size);
    // SAFETY: the structure of this request, alive through the call.
    check(unsafe { libc::ioctl(outer.as_raw_fd(), libc::TIOCSWINSZ, &size) })
}

fn winsize((columns, lines): (u16, u16)) -> libc::winsize {
    libc::winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// Has a command start in a session of its own, whose terminal is its standard input.
pub fn lead_terminal(command: &mut Command) {
    // SAFETY: between fork and exec only two system calls are made, without memory.
    unsafe {
        command.pre_exec(|| {
            check(libc::setsid())?;
            check(libc::ioctl(0, libc::TIOCSCTTY, 0))
        });
    }
}
