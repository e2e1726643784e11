//! A userfaultfd as the supervisor holds it: reading its messages, filling pages.
//!
//! Every errno of the fault path has a name in [`FillError`]; callers match on it and never guess.

use pleat_wire::uffd as abi;
use pleat_wire::uffd::{Message, MESSAGE_BYTES};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Most messages read at once.
pub const BATCH: usize = 16;
const PAGE: u64 = pleat_wire::PAGE as u64;

/// Why pages could not be filled.
#[derive(Debug)]
pub enum FillError {
    /// The first page is there already.
    Exists,
    /// An address space event waits to be read (or is under way): read it, then try again.
    EventPending,
    /// No managed mapping there (any more), or the range leaves it.
    NotMapped,
    /// The address space is gone.
    Dead,
    /// The kernel found no memory.
    NoMemory,
    /// Anything else: a bug.
    Other(io::Error),
}

impl FillError {
    fn of(errno: i32) -> FillError {
        match errno {
            libc::EEXIST => FillError::Exists,
            libc::EAGAIN => FillError::EventPending,
            libc::ENOENT | libc::EFAULT => FillError::NotMapped,
            libc::ESRCH => FillError::Dead,
            libc::ENOMEM => FillError::NoMemory,
            other => FillError::Other(io::Error::from_raw_os_error(other)),
        }
    }
}

/// A userfaultfd of another process.
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
    /// Something else has its place among the descriptors.
    is_closed: AtomicBool,
}

impl AsRawFd for Uffd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl From<Uffd> for OwnedFd {
    fn from(uffd: Uffd) -> OwnedFd {
        uffd.fd
    }
}

impl Uffd {
    /// Takes over a descriptor received from an agent or with a fork event.
    pub fn new(fd: OwnedFd) -> Uffd {
        Uffd {
            fd,
            is_closed: AtomicBool::new(false),
        }
    }

    /// Takes over what a process has sent as its userfaultfd, if it is one: of anything else nobody knows what an
    /// ioctl does, or whether it ends.
    ///
    /// # Errors
    /// EBADF when it is something else.
    pub fn from_peer(fd: OwnedFd) -> io::Result<Uffd> {
        // Of a file this shows the path, which begins with a slash.
        let what = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        match what.as_os_str() == "anon_inode:[userfaultfd]" {
            true => Ok(Uffd::new(fd)),
            false => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }

    /// Takes over the userfaultfd of a child, whose descriptor came with [`Message::Fork`].
    pub fn take_child(&self, descriptor: i32) -> Uffd {
        // SAFETY: the kernel made the descriptor for the reader of the message, who calls this once for it.
        Uffd::new(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// Makes the handshake over a userfaultfd that is new. A refused one may be made again.
    ///
    /// # Errors
    /// EPERM for [`abi::FEATURE_EVENT_FORK`] without CAP_SYS_PTRACE in the first user namespace; EINVAL for a feature that
    /// the kernel lacks, and after a handshake that was made.
    pub fn shake_hands(&self, features: u64) -> io::Result<()> {
        let mut argument = abi::Api {
            api: abi::API,
            features,
            ioctls: 0,
        };
        self.ioctl(abi::IOC_API, &mut argument)
            .map_err(io::Error::from_raw_os_error)
    }

    /// Asks to be told of faults on absent pages in `[start, start + len)`.
    ///
    /// # Errors
    /// EBUSY when another userfaultfd has the range, EINVAL when it cannot be managed, ENOMEM or
    /// ESRCH when the mapping or address space is gone.
    pub fn register(&self, start: u64, len: u64) -> io::Result<()> {
        let mode = abi::REGISTER_MODE_MISSING | abi::REGISTER_MODE_WP;
        self.register_for(start, len, mode)
    }

    /// As [`Uffd::register`], of memory that is never protected against writing, as the agent's own: pages of it
    /// that exist are mapped by the kernel together with their neighbours.
    ///
    /// # Errors
    /// As [`Uffd::register`].
    pub fn register_read_only(&self, start: u64, len: u64) -> io::Result<()> {
        self.register_for(start, len, abi::REGISTER_MODE_MISSING)
    }

    /// Ends that. Nothing can be moved there any more by the time this returns, and who waits there goes on.
    ///
    /// # Errors
    /// EINVAL when not all of it could be registered; ENOMEM or ESRCH when the mapping or address space is gone.
    pub fn unregister(&self, start: u64, len: u64) -> io::Result<()> {
        let mut argument = abi::Range { start, len };
        self.ioctl(abi::IOC_UNREGISTER, &mut argument)
            .map_err(io::Error::from_raw_os_error)
    }

    fn register_for(&self, start: u64, len: u64, mode: u64) -> io::Result<()> {
        let mut argument = abi::Register {
            range: abi::Range { start, len },
            mode,
            ioctls: 0,
        };
        self.ioctl(abi::IOC_REGISTER, &mut argument)
            .map_err(io::Error::from_raw_os_error)
    }

    /// Fills pages from `bytes` and wakes who waits for them. Answers how many pages were filled,
    /// at least one; fewer than asked when a later one exists or an event came in between.
    ///
    /// # Errors
    /// See [`FillError`]; then nothing was filled.
    pub fn copy(&self, address: u64, bytes: &[u8]) -> Result<u64, FillError> {
        self.copy_in_mode(address, bytes, 0)
    }

    /// As [`Uffd::copy`], but leaves those asleep who wait: until [`Uffd::wake`].
    ///
    /// # Errors
    /// As [`Uffd::copy`].
    pub fn copy_quietly(&self, address: u64, bytes: &[u8]) -> Result<u64, FillError> {
        self.copy_in_mode(address, bytes, abi::MODE_DONTWAKE)
    }

    fn copy_in_mode(&self, address: u64, bytes: &[u8], mode: u64) -> Result<u64, FillError> {
        let mut argument = abi::Copy {
            dst: address,
            src: bytes.as_ptr() as u64,
            len: bytes.len() as u64,
            mode,
            copied: 0,
        };
        let result = self.ioctl(abi::IOC_COPY, &mut argument);
        filled(argument.copied, bytes.len() as u64, result)
    }

    /// Fills pages with zeros, as [`Uffd::copy`].
    ///
    /// # Errors
    /// As [`Uffd::copy`].
    pub fn zero(&self, address: u64, len: u64) -> Result<u64, FillError> {
        let mut argument = abi::ZeroPage {
            range: abi::Range {
                start: address,
                len,
            },
            mode: 0,
            filled: 0,
        };
        let result = self.ioctl(abi::IOC_ZEROPAGE, &mut argument);
        filled(argument.filled, len, result)
    }

    /// Has an absent page raise SIGBUS in whoever touches it, and wakes who waits for it.
    ///
    /// # Errors
    /// As [`Uffd::copy`].
    pub fn poison(&self, address: u64) -> Result<(), FillError> {
        let mut argument = abi::Poison {
            range: abi::Range {
                start: address,
                len: PAGE,
            },
            mode: 0,
            poisoned: 0,
        };
        self.ioctl(abi::IOC_POISON, &mut argument)
            .map_err(FillError::of)
    }

    /// Protects the present pages of a range against writing, so that the first write to each is
    /// reported; or lets them be written again and wakes who waits for that.
    ///
    /// # Errors
    /// See [`FillError`].
    pub fn protect(&self, start: u64, len: u64, protect: bool) -> Result<(), FillError> {
        let mode = if protect {
            abi::WRITEPROTECT_MODE_WP
        } else {
            0
        };
        let mut argument = abi::WriteProtect {
            range: abi::Range { start, len },
            mode,
        };
        self.ioctl(abi::IOC_WRITEPROTECT, &mut argument)
            .map_err(FillError::of)
    }

    /// Whether a page may be filled as one of the process's own: whether it is registered by
    /// [`Uffd::register`] and not by [`Uffd::register_read_only`]. The page is absent; nobody is woken.
    ///
    /// # Errors
    /// [`FillError::NotMapped`] where it is not; others as for [`Uffd::protect`].
    pub fn check_private(&self, address: u64) -> Result<(), FillError> {
        let mut argument = abi::WriteProtect {
            range: abi::Range {
                start: address,
                len: PAGE,
            },
            mode: abi::WRITEPROTECT_MODE_DONTWAKE,
        };
        self.ioctl(abi::IOC_WRITEPROTECT, &mut argument)
            .map_err(FillError::of)
    }

    /// Wakes threads that wait for these pages; they look again.
    pub fn wake(&self, start: u64, len: u64) {
        let mut argument = abi::Range { start, len };
        // Fails only for an unaligned range, which no caller passes.
        let _ = self.ioctl(abi::IOC_WAKE, &mut argument);
    }

    /// Whether the address space is gone.
    pub fn is_dead(&self) -> bool {
        // Page 0 is never mapped, so this never fills anything.
        self.is_closed.load(Ordering::Acquire) || matches!(self.zero(0, PAGE), Err(FillError::Dead))
    }

    /// Closes it though others may hold this, or be about to use it: its number stays taken, by nothing. What the kernel does where
    /// nobody else has it open: all that is registered is so no more, write protection ends, and who waits looks again.
    pub fn close(&self) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let Ok(nothing) = File::open("/dev/null") else {
            // It is closed with this process.
            return;
        };
        // SAFETY: both descriptors are open; the second is this one's own, which stays a descriptor of nothing.
        unsafe { libc::dup3(nothing.as_raw_fd(), self.as_raw_fd(), libc::O_CLOEXEC) };
    }

    /// Whether an address space event waits to be read, or is under way.
    pub fn is_event_pending(&self) -> bool {
        matches!(self.zero(0, PAGE), Err(FillError::EventPending))
    }

    /// Reads the messages that wait, at most [`BATCH`], without blocking.
    ///
    /// # Errors
    /// Any but EAGAIN, which is an empty answer; an unknown message is an error too.
    pub fn read(&self, out: &mut Vec<Message>) -> io::Result<()> {
        let mut bytes = [[0u8; MESSAGE_BYTES]; BATCH];
        // The process has the same open file and may have it block; this call does not (from Linux 6.10 on).
        let part = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: size_of_val(&bytes),
        };
        // SAFETY: the buffer is valid for its size, and -1 leaves the position, of which there is none.
        let got = unsafe {
            let got = libc::preadv2(self.as_raw_fd(), &part, 1, -1, libc::RWF_NOWAIT);
            match got {
                -1 if is_unsupported() => libc::readv(self.as_raw_fd(), &part, 1),
                got => got,
            }
        };
        if got < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(()),
                _ => Err(error),
            };
        }
        for message in &bytes[..got as usize / MESSAGE_BYTES] {
            out.push(Message::parse(message).ok_or_else(|| {
                io::Error::other(format!("unknown userfaultfd event {:#x}", message[0]))
            })?);
        }
        Ok(())
    }

    fn ioctl<T>(&self, request: u64, argument: &mut T) -> Result<(), i32> {
        // SAFETY: every caller in this file pairs the request with its own structure, and source
        // buffers are borrowed for the call.
        let result = unsafe { libc::ioctl(self.as_raw_fd(), request as _, argument) };
        if result < 0 {
            Err(io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO))
        } else {
            Ok(())
        }
    }
}

fn is_unsupported() -> bool {
    io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP)
}

/// A partial fill is reported with EAGAIN and the number of bytes done.
fn filled(done: i64, wanted: u64, result: Result<(), i32>) -> Result<u64, FillError> {
    match result {
        Ok(()) => Ok(wanted / PAGE),
        Err(_) if done > 0 => Ok(done as u64 / PAGE),
        Err(errno) => Err(FillError::of(errno)),
    }
}
