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
