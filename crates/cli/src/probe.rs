//! The only unsafe code of the command line: asking the kernel what it allows.
//!
//! Every function here tries something harmless and reports the answer; none decides what the
//! answer means. `doctor` and `swap_dir` do.
#![allow(unsafe_code)]

use pleat_wire::uffd;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const DEVICE: &str = "/dev/userfaultfd";
/// `UFFD_USER_MODE_ONLY`: faults of the kernel itself (read(2) into an absent page) are not served.
const USER_MODE_ONLY: libc::c_int = 1;

/// Which way a userfaultfd was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Through `/dev/userfaultfd`, which an administrator can open up to a group.
    Device,
    /// Through userfaultfd(2), which needs CAP_SYS_PTRACE or the sysctl.
    Syscall,
    /// Through the device, which `pleat-helper` opens.
    Helper,
}

/// Both ways failed: the errno of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Opening the device or asking it.
    pub device_errno: i32,
    /// The system call.
    pub syscall_errno: i32,
}

/// A userfaultfd that also serves the kernel's own faults, the device tried first.
///
/// # Errors
/// [`Refusal`] when neither way is open.
pub fn open_userfaultfd() -> Result<(OwnedFd, Route), Refusal> {
    let device_errno = match open_by_device() {
        Ok(fd) => return Ok((fd, Route::Device)),
        Err(error) => errno(&error),
    };
    match open_by_syscall(libc::O_CLOEXEC) {
        Ok(fd) => Ok((fd, Route::Syscall)),
        Err(error) => Err(Refusal {
            device_errno,
            syscall_errno: errno(&error),
        }),
    }
}

/// Whether a seccomp filter kills a process that asks for a userfaultfd: found out by a child, which does. To be called
/// while this process has one thread.
pub fn is_killed_for_asking() -> bool {
    // SAFETY: the child makes one system call by each way and ends without running anything else; the parent waits for
    // that very child.
    unsafe {
        match libc::fork() {
            0 => {
                let _ = open_by_syscall(libc::O_CLOEXEC | USER_MODE_ONLY);
                libc::_exit(0)
            }
            child if child > 0 => {
                let mut status = 0;
                while libc::waitpid(child, &mut status, 0) < 0 && errno_now() == libc::EINTR {}
                libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSYS
            }
            _ => false,
        }
    }
}

fn errno_now() -> i32 {
    errno(&io::Error::last_os_error())
}

/// Whether the harmless variant of userfaultfd(2), which the kernel grants to everybody, is refused:
/// then it is a seccomp filter that refuses, or the kernel has no userfaultfd at all.
pub fn even_user_mode_is_refused() -> bool {
    open_by_syscall(libc::O_CLOEXEC | USER_MODE_ONLY).is_err()
}

/// Shakes hands over a fresh userfaultfd and returns the features the kernel offers.
///
/// # Errors
/// EINVAL when `wanted` has a feature the kernel lacks, EPERM when one needs CAP_SYS_PTRACE.
pub fn handshake(fd: OwnedFd, wanted: u64) -> io::Result<u64> {
    let mut api = uffd::Api {
        api: uffd::API,
        features: wanted,
        ioctls: 0,
    };
    // SAFETY: the descriptor is open, the request is the one that takes an `Api`, and the kernel
    // writes only within that structure, which lives until the call returns.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), uffd::IOC_API as libc::Ioctl, &mut api) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(api.features)
}

fn open_by_device() -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
    // SAFETY: the request takes its flags by value and touches no memory of this process.
    let fd = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            uffd::IOC_NEW as libc::Ioctl,
            libc::O_CLOEXEC,
        )
    };
    own(i64::from(fd))
}

fn open_by_syscall(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes its flags by value and touches no memory of this process.
    own(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) })
}

fn own(answer: i64) -> io::Result<OwnedFd> {
    match i32::try_from(answer) {
        // SAFETY: the kernel has just returned this descriptor, so nobody else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// What holds the files of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filesystem {
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// tmpfs or ramfs: what is written there stays in memory.
    pub in_memory: bool,
}

/// The file system that holds `path`.
///
/// # Errors
/// Those of statfs(2), and EINVAL for a path with a zero byte.
pub fn filesystem(path: &Path) -> io::Result<Filesystem> {
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: statfs is a plain C structure of integers, for which all zeros is a value.
    let mut answer: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends in a zero byte and `answer` has room for the structure; both live on.
    if unsafe { libc::statfs(path.as_ptr(), &mut answer) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Filesystem {
        free_bytes: answer.f_bavail.saturating_mul(answer.f_bsize as u64),
        in_memory: [libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&answer.f_type),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_no_place_for_a_swap_file_but_can_be_asked() {
        let proc = filesystem(Path::new("/proc")).unwrap();
        assert_eq!(proc.free_bytes, 0);
        assert!(filesystem(Path::new("/nonexistent/dir")).is_err());
    }

    #[test]
    fn a_handshake_refuses_what_no_kernel_offers() {
        let Ok((fd, _)) = open_userfaultfd() else {
            pleat_testing::skip("userfaultfd is not allowed here; `pleat doctor` says why");
            return;
        };
        assert_eq!(errno(&handshake(fd, 1 << 63).unwrap_err()), libc::EINVAL);
    }
}
