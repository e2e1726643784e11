//! Descriptors to wait for: an eventfd that says "something is there", and waiting for it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Polls readable from `signal` until `reset`.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    pub fn new() -> io::Result<Event> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        owned(fd).map(Event)
    }

    pub fn signal(&self) {
        let one = 1u64;
        // SAFETY: eight readable bytes. It can only fail when the count is full, and then the event
        // is signalled as it should be.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    pub fn reset(&self) {
        let mut count = 0u64;
        // SAFETY: eight writable bytes. It can only fail when the event is not signalled.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A descriptor that polls readable while one of the two does. Both must outlive its use.
pub fn either(first: BorrowedFd<'_>, second: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let both = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    for fd in [first, second] {
        let mut interest = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        };
        // SAFETY: three open descriptors, and `interest` is read during the call only.
        let answer = unsafe {
            libc::epoll_ctl(
                both.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd.as_raw_fd(),
                &raw mut interest,
            )
        };
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(both)
}

/// Sleeps until `fd` polls readable, for so long at most; may return earlier.
pub fn wait_readable(fd: BorrowedFd<'_>, limit: Duration) {
    let mut wanted = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: limit.subsec_nanos().into(),
    };
    // SAFETY: one `pollfd`, a time limit, no signal mask, all of which outlive the call. Whatever it
    // answers, the caller looks again.
    unsafe { libc::ppoll(&raw mut wanted, 1, &raw const limit, std::ptr::null()) };
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    match fd {
        0.. => {
            // SAFETY: the caller has just been given the descriptor, and nobody else has it.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
        _ => Err(io::Error::last_os_error()),
    }
}
