//! What this process may do about userfaultfd, to be used on behalf of processes that may not.
//!
//! Two things are asked for in different places. To make a userfaultfd one must be able to open the device (or have
//! CAP_SYS_PTRACE, or the sysctl); to be told of forks whoever makes the handshake needs CAP_SYS_PTRACE in the first user
//! namespace. The supervisor has both once, at its start, and lends them: the device goes to every agent, the
//! handshake is made here. What an ordinary user may not, `pleat-helper` does for him, where it is set up.

use crate::helper::Helper;
use crate::uffd::Uffd;
use pleat_wire::uffd as abi;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

const DEVICE: &str = "/dev/userfaultfd";

/// The device, and whether forks are reported.
#[derive(Debug)]
pub struct Grant {
    device: Option<File>,
    is_allowed: bool,
    forks: Forks,
}

/// By whom the handshake with fork events is made.
#[derive(Debug)]
enum Forks {
    /// By this process.
    Own,
    /// By the helper.
    Helper(Helper),
    /// By nobody: they are not reported.
    Nobody,
}

impl Grant {
    /// Finds out what is allowed, by trying it on this process itself; what is not, `helper` is asked for, if that may
    /// be executed.
    pub fn find(helper: Option<&Path>) -> Grant {
        let device = File::options().read(true).write(true).open(DEVICE).ok();
        // One that can be opened and not asked (a filter refuses ioctl) is none.
        let device = device.filter(|device| new_of_own(Some(device)).is_ok());
        let own = new_of_own(device.as_ref());
        let grant = Grant {
            is_allowed: own.is_ok(),
            forks: match own.as_ref().is_ok_and(has_fork_events) {
                true => Forks::Own,
                false => Forks::Nobody,
            },
            device,
        };
        match helper {
            Some(path) if !grant.is_complete() => grant.with_helper(path),
            _ => grant,
        }
    }

    /// Whether there is nothing to ask the helper for.
    fn is_complete(&self) -> bool {
        self.device.is_some() && matches!(self.forks, Forks::Own)
    }

    fn with_helper(self, path: &Path) -> Grant {
        let Ok((helper, device)) = Helper::start(path) else {
            return self;
        };
        let device = self.device.or(device);
        let own = new_of_own(device.as_ref());
        let forks = match (self.forks, &own) {
            (Forks::Own, _) => Forks::Own,
            (_, Ok(own)) if helper.shake_hands(own).is_ok() => Forks::Helper(helper),
            _ => Forks::Nobody,
        };
        Grant {
            device,
            is_allowed: own.is_ok(),
            forks,
        }
    }

    /// The helper's process, if it is needed.
    pub fn helper(&self) -> Option<i32> {
        match &self.forks {
            Forks::Helper(helper) => Some(helper.pid()),
            _ => None,
        }
    }

    /// The device, for an agent to make its userfaultfd with.
    ///
    /// It may be given to any process: USERFAULTFD_IOC_NEW, all that it can be asked, makes a userfaultfd of the
    /// caller's own memory. Who has it can have the kernel's accesses to that memory wait (the reason for which
    /// Linux asks for a privilege: it makes races in the kernel easy to win). A job's processes have that anyway.
    pub fn device(&self) -> Option<RawFd> {
        self.device.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// A userfaultfd of this process's own memory.
    ///
    /// # Errors
    /// When none is allowed.
    pub fn new_userfaultfd(&self) -> io::Result<OwnedFd> {
        new_of_own(self.device.as_ref()).map(OwnedFd::from)
    }

    /// Whether this process may make a userfaultfd, and so, as a rule, may those that it starts.
    pub fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// Whether forks are reported, of whatever process.
    pub fn reports_forks(&self) -> bool {
        !matches!(self.forks, Forks::Nobody)
    }

    /// Makes the handshake over a process's userfaultfd. Answers whether forks are reported.
    ///
    /// # Errors
    /// The kernel lacks a feature, or the handshake was made before.
    pub fn shake_hands(&self, uffd: &Uffd) -> io::Result<bool> {
        let with_forks = match &self.forks {
            Forks::Own => uffd.shake_hands(abi::FEATURES_FOLLOW | abi::FEATURE_EVENT_FORK),
            Forks::Helper(helper) => helper.shake_hands(uffd),
            Forks::Nobody => Err(io::Error::from_raw_os_error(libc::EPERM)),
        };
        match with_forks {
            Ok(()) => Ok(true),
            // Or the helper is gone.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EPIPE) | None) =>
            {
                uffd.shake_hands(abi::FEATURES_FOLLOW).map(|()| false)
            }
            Err(error) => Err(error),
        }
    }
}

/// A userfaultfd of this process's own memory, to ask the kernel what it allows.
fn new_of_own(device: Option<&File>) -> io::Result<Uffd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: plain flags; the request has no pointer.
    let fd = unsafe {
        match device {
            Some(device) => libc::ioctl(device.as_raw_fd(), abi::IOC_NEW as _, flags),
            None => libc::syscall(libc::SYS_userfaultfd, flags) as i32,
        }
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made just now, and nobody else has it.
    Ok(Uffd::new(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn has_fork_events(uffd: &Uffd) -> bool {
    uffd.shake_hands(abi::FEATURES_FOLLOW | abi::FEATURE_EVENT_FORK)
        .is_ok()
}
