//! A file that pages of a program are filled from, read at any offset.
//!
//! It is opened anew, through the descriptor that the program has sent: sharing its open file would keep
//! its locks (flock) alive, share its offset and its flags, and the program may change those.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

// Magic numbers of file systems whose files are memory already (linux/magic.h).
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;
const HUGETLBFS: i64 = 0x9584_58f6;

/// The device (`st_dev`) of an open file, without asking whoever serves its file system.
///
/// # Errors
/// When the kernel does not say.
pub fn device_of(descriptor: &OwnedFd) -> io::Result<u64> {
    identity_of(descriptor).map(|(device, _)| device)
}

/// The device and the inode number (`st_dev`, `st_ino`) of an open file, asked for as [`device_of`] asks.
///
/// # Errors
/// When the kernel does not say.
pub fn identity_of(descriptor: &OwnedFd) -> io::Result<(u64, u64)> {
    // SAFETY: plain data, for which all zeros is a value.
    let mut answer: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: an open descriptor, an empty path, and room for the answer.
    let asked = unsafe {
        libc::statx(
            descriptor.as_raw_fd(),
            c"".as_ptr(),
            flags,
            libc::STATX_INO,
            &mut answer,
        )
    };
    match asked {
        0 => {
            let device = libc::makedev(answer.stx_dev_major, answer.stx_dev_minor);
            Ok((device, answer.stx_ino))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a descriptor that a process has sent is of a regular file that it may read. To open that once more
/// is not to give it anything then; by a mere name of a file (O_PATH) it would be.
pub fn may_read(descriptor: &OwnedFd) -> bool {
    // SAFETY: plain numbers.
    let flags = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFL) };
    let is_readable = matches!(flags & libc::O_ACCMODE, libc::O_RDONLY | libc::O_RDWR);
    flags >= 0 && is_readable && flags & libc::O_PATH == 0
}

/// Whether a file is a regular one whose reading waits for nothing but this machine's disks or servers that its
/// administrator has mounted. Asked of the kernel alone: who serves a file system in user space may never answer.
pub fn is_served_here(descriptor: &OwnedFd) -> bool {
    // SAFETY: plain data, for which all zeros is a value.
    let mut answer: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let mask = libc::STATX_TYPE | libc::STATX_MNT_ID;
    // SAFETY: an open descriptor, an empty path, and room for the answer.
    let asked = unsafe {
        libc::statx(
            descriptor.as_raw_fd(),
            c"".as_ptr(),
            flags,
            mask,
            &mut answer,
        )
    };
    if asked != 0 || libc::mode_t::from(answer.stx_mode) & libc::S_IFMT != libc::S_IFREG {
        return false;
    }
    // On a block device of its own, which only root can mount.
    answer.stx_dev_major != 0 || !is_in_user_space(answer.stx_mnt_id)
}

/// Whether a mount is one of FUSE; so is one that we do not see, for all that is known.
fn is_in_user_space(mount: u64) -> bool {
    let Ok(mounts) = std::fs::read_to_string("/proc/self/mountinfo") else {
        return true;
    };
    let id = mount.to_string();
    let line = mounts
        .lines()
        .find(|line| line.split(' ').next() == Some(&id));
    let kind = line.and_then(|line| line.split(" - ").nth(1)?.split(' ').next());
    kind.is_none_or(|kind| kind.starts_with("fuse"))
}

/// A file, open for reading.
#[derive(Debug)]
pub struct Source(File);

impl Source {
    /// Opens the file behind `descriptor` once more.
    ///
    /// # Errors
    /// When it cannot be opened or waits for somebody's lease, is no regular file, or is in memory
    /// already, which includes every file system that is memory.
    pub fn open(descriptor: &OwnedFd) -> io::Result<Source> {
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        // Not blocking: to break a lease may take its holder most of a minute.
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
        let unfit = !file.metadata()?.is_file() || is_in_memory(&file)?;
        match unfit {
            true => Err(io::Error::from(io::ErrorKind::Unsupported)),
            false => Ok(Source(file)),
        }
    }

    /// Reads at `offset` until `bytes` is full or the file ends; how many bytes that were.
    ///
    /// # Errors
    /// Of the disk.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.0.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// What of it is in the page cache, without waiting: how many bytes, 0 also when that cannot be told.
    pub fn read_cached(&self, offset: u64, bytes: &mut [u8]) -> usize {
        let part = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let (fd, at) = (self.0.as_raw_fd(), offset as libc::off_t);
        // SAFETY: the buffer is borrowed for the call and as long as stated.
        let got = unsafe { libc::preadv2(fd, &raw const part, 1, at, libc::RWF_NOWAIT) };
        usize::try_from(got).unwrap_or(0)
    }

    /// Has a range read into the page cache, in the background as far as the kernel does that.
    pub fn expect(&self, offset: u64, len: u64) {
        self.advise(offset, len, libc::POSIX_FADV_WILLNEED);
    }

    /// Lets go of the page cache's copy of a range.
    pub fn let_go(&self, offset: u64, len: u64) {
        self.advise(offset, len, libc::POSIX_FADV_DONTNEED);
    }

    fn advise(&self, offset: u64, len: u64, advice: i32) {
        let (fd, offset, len) = (self.0.as_raw_fd(), offset as i64, len as i64);
        // SAFETY: plain numbers. Advice that is not taken changes nothing.
        unsafe { libc::posix_fadvise(fd, offset, len, advice) };
    }
}

fn is_in_memory(file: &File) -> io::Result<bool> {
    Ok([TMPFS, RAMFS, HUGETLBFS].contains(&file_system_of(file)?))
}

/// The magic number of the file system that a file is on.
pub(crate) fn file_system_of(file: &File) -> io::Result<i64> {
    // SAFETY: all zeros is a valid `statfs`, and it outlives the call.
    let status = unsafe {
        let mut status: libc::statfs = std::mem::zeroed();
        if libc::fstatfs(file.as_raw_fd(), &mut status) < 0 {
            return Err(io::Error::last_os_error());
        }
        status
    };
    Ok(status.f_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_is_refused() {
        // SAFETY: a static name and no flags.
        let fd = unsafe { libc::memfd_create(c"test".as_ptr(), 0) };
        assert!(fd >= 0);
        // SAFETY: made just now, and nobody else has it.
        let fd = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) };
        assert!(Source::open(&fd).is_err());
    }

    #[test]
    fn reading_ends_where_the_file_ends() {
        let path = std::env::current_exe().unwrap();
        let size = std::fs::metadata(&path).unwrap().len();
        let source = Source::open(&OwnedFd::from(File::open(path).unwrap())).unwrap();
        let mut bytes = [0; 4096];
        assert_eq!(source.read(size - 100, &mut bytes).unwrap(), 100);
        assert_eq!(source.read(size + 4096, &mut bytes).unwrap(), 0);
    }
}
