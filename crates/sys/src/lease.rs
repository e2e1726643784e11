//! Read leases: the kernel's word that nobody has a file open for writing, or cuts it short, before the
//! holder has given the lease up (fcntl(2), F_SETLEASE).
//!
//! Who opens the file for writing waits until then, for as long as /proc/sys/fs/lease-break-time says;
//! after that the kernel takes the lease away. It tells the holder by a signal to one thread, which
//! collects it by a descriptor, and does not tell of which file: [`Lease::is_held`] does.

use crate::signals::Signals;
use crate::source::file_system_of;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::Duration;

// Magic numbers of file systems that are on a disk of this machine and change by way of this kernel's
// files alone (linux/magic.h).
const LOCAL: [i64; 5] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0xF2F5_2010, // f2fs
    0xCA45_1A4E, // bcachefs
];

#[repr(C)]
struct Owner {
    kind: libc::c_int,
    pid: libc::pid_t,
}
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// A file under a read lease.
#[derive(Debug)]
pub struct Lease {
    file: File,
    /// Size and time of change when the lease was taken.
    state: (u64, i64, i64),
}

impl AsRawFd for Lease {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// What a thread that holds leases hears of them by.
#[derive(Debug)]
pub struct LeaseCalls(Signals);

impl AsRawFd for LeaseCalls {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl LeaseCalls {
    /// For the calling thread.
    ///
    /// # Errors
    /// When no descriptor can be had.
    pub fn new() -> io::Result<LeaseCalls> {
        Signals::collect(&[libc::SIGIO]).map(LeaseCalls)
    }

    /// The calling thread's id, for [`Lease::take`].
    pub fn thread() -> i32 {
        // SAFETY: no arguments.
        unsafe { libc::gettid() }
    }

    /// Takes the calls that wait.
    pub fn hush(&self) {
        while self.0.next().is_some() {}
    }
}

impl Lease {
    /// Opens the file behind `descriptor` once more and takes a lease on it; `thread`, of this process,
    /// is called when it is to be given up.
    ///
    /// # Errors
    /// When the file is not on a local file system, somebody has it open for writing, or it is not ours
    /// to take a lease on.
    pub fn take(descriptor: &OwnedFd, thread: i32) -> io::Result<Lease> {
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
        if !file.metadata()?.is_file() || !is_local(&file)? {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let fd = file.as_raw_fd();
        let owner = Owner {
            kind: F_OWNER_TID,
            pid: thread,
        };
        // The owner first: the signal must not go to any thread, which it would end.
        // SAFETY: the structure of this command, and plain numbers.
        let taken = unsafe {
            libc::fcntl(fd, F_SETOWN_EX, &raw const owner) == 0
                && libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) == 0
        };
        if !taken {
            return Err(io::Error::last_os_error());
        }
        // What it is like now it stays like.
        let state = state_of(&file)?;
        Ok(Lease { file, state })
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.state.0
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is held, and nobody waits for it to be given up. An open(2) with O_RDONLY and O_TRUNC
    /// cuts a file short without asking for that: it shows here.
    pub fn is_held(&self) -> bool {
        // SAFETY: plain numbers.
        let kind = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETLEASE) };
        kind == libc::F_RDLCK && state_of(&self.file).is_ok_and(|state| state == self.state)
    }

    /// Gives it up.
    pub fn give_up(&self) {
        // SAFETY: plain numbers. It fails where there is no lease any more.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    }
}

/// How long the kernel waits for a lease to be given up.
pub fn break_time() -> Duration {
    let text = std::fs::read_to_string("/proc/sys/fs/lease-break-time");
    let seconds = text.ok().and_then(|text| text.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

fn state_of(file: &File) -> io::Result<(u64, i64, i64)> {
    let status = file.metadata()?;
    Ok((status.len(), status.mtime(), status.mtime_nsec()))
}

fn is_local(file: &File) -> io::Result<bool> {
    Ok(LOCAL.contains(&file_system_of(file)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{readable, wait};
    use std::io::Write;

    #[test]
    fn who_opens_for_writing_waits_until_the_lease_is_given_up() {
        let path = std::env::current_exe().unwrap();
        let path = path.with_file_name(format!("lease-test-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        file.write_all(b"content").unwrap();
        let calls = LeaseCalls::new().unwrap();
        let reader = || OwnedFd::from(File::open(&path).unwrap());
        if !is_local(&file).unwrap() {
            return;
        }
        let refused = Lease::take(&reader(), LeaseCalls::thread());
        assert!(refused.is_err(), "it is open for writing");
        drop(file);
        let lease = Lease::take(&reader(), LeaseCalls::thread()).unwrap();
        assert!(lease.is_held() && lease.len() == 7);
        let opener = {
            let path = path.clone();
            std::thread::spawn(move || File::options().write(true).open(path).map(drop))
        };
        wait(
            &mut [readable(calls.as_raw_fd())],
            Some(Duration::from_secs(20)),
        );
        calls.hush();
        assert!(!lease.is_held() && !opener.is_finished());
        lease.give_up();
        opener.join().unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
