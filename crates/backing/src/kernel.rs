//! The system calls on an open file that the standard library does not have.
//!
//! Thin and safe: each takes a borrowed file and plain numbers, so the only thing the kernel could
//! touch is that file. What an error means is for the caller to say.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// Writes what is still dirty in the range and waits for all of it.
pub fn finish_write_back(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, offset, bytes, flags)
}

/// Drops clean cached pages of the range; `bytes` 0 means up to the end of the file.
pub fn drop_cached(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let (offset, bytes) = (signed(offset)?, signed(bytes)?);
    // SAFETY: no memory is passed; the descriptor is open for as long as `file` is borrowed.
    let errno = unsafe {
        libc::posix_fadvise64(file.as_raw_fd(), offset, bytes, libc::POSIX_FADV_DONTNEED)
    };
    match errno {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Gives the disk blocks of the range back; it then reads as zeros. The file keeps its size.
pub fn punch_hole(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let (offset, bytes) = (signed(offset)?, signed(bytes)?);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    retry_interrupted(|| {
        // SAFETY: no memory is passed; the descriptor is open for as long as `file` is borrowed.
        unsafe { libc::fallocate64(file.as_raw_fd(), mode, offset, bytes) }
    })
}

/// Bytes of the file system that an unprivileged user may still fill.
pub fn free_bytes(file: &File) -> io::Result<u64> {
    let mut answer = MaybeUninit::<libc::statvfs64>::uninit();
    retry_interrupted(|| {
        // SAFETY: `answer` is writable and as large as the call expects.
        unsafe { libc::fstatvfs64(file.as_raw_fd(), answer.as_mut_ptr()) }
    })?;
    // SAFETY: the call succeeded, so it has filled `answer`.
    let answer = unsafe { answer.assume_init() };
    Ok(answer.f_bavail.saturating_mul(answer.f_frsize))
}

/// How long this process may make a file (`ulimit -f`); beyond, a signal kills it.
pub fn file_bytes_max() -> io::Result<u64> {
    let mut answer = MaybeUninit::<libc::rlimit64>::uninit();
    retry_interrupted(|| {
        // SAFETY: `answer` is writable and as large as the call expects.
        unsafe { libc::getrlimit64(libc::RLIMIT_FSIZE, answer.as_mut_ptr()) }
    })?;
    // SAFETY: the call succeeded, so it has filled `answer`.
    Ok(unsafe { answer.assume_init() }.rlim_cur)
}

/// Lets every later transfer go past the page cache (O_DIRECT). False where the file system cannot.
///
/// Set afterwards and not on opening: an open that is refused for O_DIRECT has made the file by then,
/// and would leave it behind under its name.
pub fn bypass_page_cache(file: &File) -> io::Result<bool> {
    match set_flags(file, flags(file)? | libc::O_DIRECT) {
        Err(error) if is_unsupported(&error) => Ok(false),
        other => other.map(|()| true),
    }
}

/// The opposite of `bypass_page_cache`.
pub fn use_page_cache(file: &File) -> io::Result<()> {
    set_flags(file, flags(file)? & !libc::O_DIRECT)
}

fn flags(file: &File) -> io::Result<libc::c_int> {
    // SAFETY: no memory is passed; the descriptor is open for as long as `file` is borrowed.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) } {
        flags @ 0.. => Ok(flags),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_flags(file: &File, flags: libc::c_int) -> io::Result<()> {
    retry_interrupted(|| {
        // SAFETY: no memory is passed; the descriptor is open for as long as `file` is borrowed.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) }
    })
}

/// Lets pass what says that this file system or sandbox has no such call: the kernel then writes
/// back when it sees fit.
pub fn where_supported(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if is_unsupported(&error) => Ok(()),
        other => other,
    }
}

/// Whether the answer says that there is no such call here, and nothing about the disk.
pub fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE | libc::EOPNOTSUPP | libc::EPERM)
    )
}

fn sync_range(file: &File, offset: u64, bytes: u64, flags: libc::c_uint) -> io::Result<()> {
    let (offset, bytes) = (signed(offset)?, signed(bytes)?);
    retry_interrupted(|| {
        // SAFETY: no memory is passed; the descriptor is open for as long as `file` is borrowed.
        unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, flags) }
    })
}

fn retry_interrupted(mut call: impl FnMut() -> libc::c_int) -> io::Result<()> {
    loop {
        if call() == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn signed(value: u64) -> io::Result<i64> {
    i64::try_from(value).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}
