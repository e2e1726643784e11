//! System calls that rustix does not have in the shape that is needed. The only unsafe code of this crate.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// As `fstatvfs`, but the structure itself, which the protocol's answer is made from.
pub fn statvfs(file: impl AsFd) -> io::Result<libc::statvfs64> {
    let mut answer = std::mem::MaybeUninit::<libc::statvfs64>::zeroed();
    // SAFETY: the descriptor is borrowed, hence open; `answer` has room for the structure.
    let result = unsafe { libc::fstatvfs64(file.as_fd().as_raw_fd(), answer.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded and filled it; all bits zero would be a value of it as well.
    Ok(unsafe { answer.assume_init() })
}

/// Has the host's page cache drop what it has of this range and is on disk; to the end if `len` is 0.
pub fn drop_cached(file: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    let (offset, len) = (offset as i64, len as i64);
    // SAFETY: the descriptor is borrowed, hence open; no pointers.
    let error = unsafe {
        libc::posix_fadvise(
            file.as_fd().as_raw_fd(),
            offset,
            len,
            libc::POSIX_FADV_DONTNEED,
        )
    };
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Begins to write to disk what the host's page cache has of a file, and does not wait for it.
pub fn begin_to_write(file: impl AsFd) -> io::Result<()> {
    // SAFETY: as above.
    let result = unsafe {
        libc::sync_file_range(file.as_fd().as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE)
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has a program begin a session of its own, so that it outlives the terminal.
pub fn in_session_of_its_own(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec only setsid is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| match libc::setsid() {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
}
