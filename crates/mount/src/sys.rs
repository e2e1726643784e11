//! System calls that rustix does not have in the shape that is needed. The only unsafe code of this crate.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};

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

/// How a FUSE file system in the kernel calls a file (`fuse_encode_fh`; FILEID_INO64_GEN).
#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    number_high: u32,
    number_low: u32,
    generation: u32,
}

const FILEID_INO64_GEN: i32 = 0x81;

/// Opens a file of a FUSE file system, on which `root` lies, for reading by its node number. ESTALE: its
/// kernel does not know it.
pub fn open_by_number(root: &File, number: u64, generation: u32) -> io::Result<File> {
    let handle = FileHandle {
        bytes: 12,
        kind: FILEID_INO64_GEN,
        number_high: (number >> 32) as u32,
        number_low: number as u32,
        generation,
    };
    let flags = libc::O_RDONLY | libc::O_NOATIME | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: `root` is open; the handle is laid out as the call wants it, its length is right, and it is
    // read only.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            root.as_raw_fd(),
            &raw const handle,
            flags,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded: the descriptor is new, and ours.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

/// Since Linux 6.5; libc does not name it yet on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

/// How many pages of this range the host's page cache has.
pub fn cached_pages(file: impl AsFd, offset: u64, len: u64) -> io::Result<u64> {
    let range = [offset, len];
    // Pages cached, dirty, being written, evicted, evicted lately.
    let mut answer = [0u64; 5];
    // SAFETY: the descriptor is borrowed, hence open; two and five words are what the call reads and writes.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_fd().as_raw_fd(),
            range.as_ptr(),
            answer.as_mut_ptr(),
            0,
        )
    };
    match result {
        0 => Ok(answer[0]),
        _ => Err(io::Error::last_os_error()),
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
