//! Local sockets by which others ask a supervisor: a connection that waits for nobody, and who is at the other end.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Who made a connection, or listens for it, as the kernel noted it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Process id; 0 where it is in no PID namespace of ours.
    pub pid: i32,
    /// Effective user.
    pub uid: u32,
}

/// Connects to the socket at `path`, without blocking: also the stream is one that does not.
///
/// # Errors
/// ECONNREFUSED where nobody listens, EAGAIN where too many wait already.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain arguments.
    let fd = checked(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: fresh and ours.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all zeros is a valid address structure.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_bytes_with_nul();
    if bytes.len() > address.sun_path.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let size = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is valid for `size` bytes.
    checked(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), size) })?;
    Ok(UnixStream::from(fd))
}

/// Who is at the other end.
///
/// # Errors
/// When the kernel does not say.
pub fn peer(stream: &UnixStream) -> io::Result<Identity> {
    // SAFETY: all zeros is a valid ucred.
    let mut peer: libc::ucred = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure of this option, of the size given.
    checked(unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut size,
        )
    })?;
    Ok(Identity {
        pid: peer.pid,
        uid: peer.uid,
    })
}

/// This process's effective user.
pub fn effective_user() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

fn checked(result: i32) -> io::Result<i32> {
    match result {
        result if result < 0 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn both_ends_know_who_the_other_is_and_nobody_waits_for_nobody() {
        let dir = std::env::temp_dir().join(format!("pleat-local-{}", std::process::id()));
        let _ = std::fs::remove_file(&dir);
        let listener = UnixListener::bind(&dir).unwrap();
        let ours = Identity {
            pid: std::process::id() as i32,
            uid: effective_user(),
        };
        let here = connect(&dir).unwrap();
        let (there, _) = listener.accept().unwrap();
        assert_eq!((peer(&here).unwrap(), peer(&there).unwrap()), (ours, ours));
        drop(listener);
        let refused = connect(&dir).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        std::fs::remove_file(&dir).unwrap();
    }
}
