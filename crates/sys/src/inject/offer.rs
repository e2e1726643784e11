//! Conversations that agents offer: one end of a connection, which is taken from the descriptor table of the agent's thread.
//!
//! The kernel allows that to whom it allows to trace the thread (pidfd_getfd(2)), and of a thread's own table since Linux 6.9
//! (PIDFD_THREAD). What is taken is whatever the process has put there: it is looked at before it is used. It may keep a copy, and change
//! what a copy can change (whether calls wait, options of the socket), so nothing here relies on that.

use super::{memory, InjectError, TraceError};
use crate::channel::Channel;
use crate::pidfd::has_ended;
use crate::process::own_thread;
use crate::procfs;
use pleat_wire::injected::{Injected, Offer};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// `PIDFD_THREAD`: a descriptor that stands for a thread.
const THREAD: libc::c_int = libc::O_EXCL;
/// Between two looks for an offer: the first, and the last.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// Whether offers can be taken here, as far as the kernel knows how.
pub fn are_taken() -> bool {
    pidfd_of_thread(own_thread()).is_ok()
}

/// What an agent offers whose library's place for it ([`Injected`]) is at `given`.
pub(super) fn at(pid: i32, given: u64) -> Option<Offer> {
    let mut word = [0; 8];
    let place = given + offset_of!(Injected, offer) as u64;
    memory::read(pid, place, &mut word).ok()?;
    Offer::of_word(u64::from_ne_bytes(word))
}

/// Waits for an agent's offer, and takes it. `None` where there is none until `is_late`.
///
/// # Errors
/// The process has ended, or the offer cannot be taken.
pub fn wait_for(
    (pid, pidfd): (i32, &OwnedFd),
    given: u64,
    mut is_late: impl FnMut() -> bool,
) -> Result<Option<Channel>, InjectError> {
    let mut pause = PAUSE_MIN;
    loop {
        if let Some(offer) = at(pid, given) {
            return take((pid, pidfd), offer).map(Some);
        }
        if has_ended(pidfd) {
            return Err(TraceError::Gone.into());
        }
        if is_late() {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Takes what a process offers.
///
/// # Errors
/// It is not there any more, or it is no end of a connection that this process has made.
pub(super) fn take((pid, pidfd): (i32, &OwnedFd), offer: Offer) -> Result<Channel, InjectError> {
    let gone = || InjectError::Trace(TraceError::Gone);
    let tid = procfs::thread_called(pid, offer.thread).ok_or_else(gone)?;
    let thread = pidfd_of_thread(tid).map_err(|_| gone())?;
    // Its number was found below that of the process, whose number is its own as long as it lives; alive after that was asked,
    // the thread is this process's.
    if !procfs::is_thread_of(pid, tid) || has_ended(&thread) || has_ended(pidfd) {
        return Err(gone());
    }
    // SAFETY: plain numbers.
    let fd = unsafe {
        let (thread, descriptor) = (thread.as_raw_fd(), offer.descriptor);
        libc::syscall(libc::SYS_pidfd_getfd, thread, descriptor, 0)
    };
    let taken = owned(fd).and_then(|end| Channel::of_end(end, pid));
    taken.map_err(|error| match error.raw_os_error() {
        // It executes another program, or is ending, and its agent is gone.
        Some(libc::ESRCH | libc::EBADF) => gone(),
        Some(libc::EPERM) => TraceError::Refused(error).into(),
        _ => InjectError::Step("be heard", error),
    })
}

/// Stands for a thread.
fn pidfd_of_thread(tid: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, tid, THREAD) })
}

/// Takes ownership of a fresh descriptor, or the errno.
fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(fd) {
        // SAFETY: the call that made it succeeded, and nobody else has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Received;
    use crate::process::pidfd;
    use std::net::TcpListener;
    use std::os::fd::IntoRawFd;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    /// Both ends, which wait where there is nothing.
    fn pair() -> (OwnedFd, OwnedFd) {
        let mut ends = [-1; 2];
        // SAFETY: room for two descriptors, which are fresh.
        unsafe {
            let made = libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr());
            assert_eq!(made, 0);
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        }
    }

    fn taken(thread: i32, descriptor: RawFd) -> Result<Channel, InjectError> {
        let own = std::process::id() as i32;
        let pidfd = pidfd(own).unwrap();
        take((own, &pidfd), Offer { thread, descriptor })
    }

    #[test]
    fn what_a_process_offers_is_a_conversation_with_it_that_never_waits() {
        if !are_taken() {
            return pleat_testing::skip(
                "descriptors of threads cannot be had here (before Linux 6.9)",
            );
        }
        let (own, offered) = pair();
        let channel = taken(own_thread(), offered.as_raw_fd()).unwrap();
        drop(offered);
        let mut packet = [0; 16];
        assert!(matches!(channel.receive(&mut packet), Received::Nothing));
        // SAFETY: plain bytes.
        let sent = unsafe { libc::send(own.as_raw_fd(), b"hello".as_ptr().cast(), 5, 0) };
        assert_eq!(sent, 5);
        assert!(matches!(
            channel.receive(&mut packet),
            Received::Packet(5, _)
        ));
        assert_eq!(channel.peer().unwrap().pid, std::process::id() as i32);
        drop(own);
        assert!(channel.is_closed());
    }

    #[test]
    fn nothing_else_is_taken() {
        if !are_taken() {
            return pleat_testing::skip(
                "descriptors of threads cannot be had here (before Linux 6.9)",
            );
        }
        let name = format!("pleat-offer-{}", std::process::id());
        let name = SocketAddr::from_abstract_name(name).unwrap();
        let (stream, _other) = UnixStream::pair().unwrap();
        let wrong = [
            std::fs::File::open("/dev/null").unwrap().into_raw_fd(),
            TcpListener::bind("127.0.0.1:0").unwrap().into_raw_fd(),
            UnixListener::bind_addr(&name).unwrap().into_raw_fd(),
            stream.into_raw_fd(),
        ];
        for fd in wrong {
            let taken = taken(own_thread(), fd);
            assert!(matches!(taken, Err(InjectError::Step(..))), "{taken:?}");
            // SAFETY: it is this test's.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let (_own, offered) = pair();
        let is_gone = |taken| matches!(taken, Err(InjectError::Trace(TraceError::Gone)));
        assert!(is_gone(taken(1, offered.as_raw_fd())), "of another process");
        assert!(is_gone(taken(own_thread(), 1 << 20)), "not there");
        assert!(Channel::of_end(offered, 1).is_err(), "made by another");
    }
}
