//! Sequenced-packet sockets between supervisor and agents, with descriptors in tow.

use crate::pidfd::{self, Peer};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Most descriptors in one packet.
const DESCRIPTORS_MAX: usize = 4;

/// The socket that agents connect to, in the abstract namespace.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Listener {
    /// Listens under `name`, without blocking.
    ///
    /// # Errors
    /// When the socket cannot be made or the name is taken.
    pub fn bind(name: &str) -> io::Result<Listener> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: plain arguments.
        let fd = owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
        // SAFETY: all zeros is a valid address structure.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        if name.len() + 1 > address.sun_path.len() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let size = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        // SAFETY: the address is valid for `size` bytes.
        checked(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size as u32) })?;
        // Also for what is sent before the connection is accepted.
        name_senders(&fd)?;
        // SAFETY: plain arguments.
        checked(unsafe { libc::listen(fd.as_raw_fd(), 512) })?;
        Ok(Listener(fd))
    }

    /// The next connection, if one waits.
    ///
    /// # Errors
    /// Any but "none waits".
    pub fn accept(&self) -> io::Result<Option<Channel>> {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let null = std::ptr::null_mut();
        // SAFETY: null address pointers ask for no address.
        let fd = unsafe { libc::accept4(self.as_raw_fd(), null, null.cast(), flags) };
        match owned(fd) {
            Ok(fd) => {
                name_senders(&fd)?;
                let speaker = Some(peer_of(&fd)?.pid);
                Ok(Some(Channel { fd, speaker }))
            }
            Err(e) => match e.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR | libc::ECONNABORTED) => Ok(None),
                _ => Err(e),
            },
        }
    }
}

/// One connection. Only the process that made it has a say: what another sends over it, which has come by
/// the descriptor somehow, is not heard.
#[derive(Debug)]
pub struct Channel {
    fd: OwnedFd,
    /// Process id of who connected; `None` where nobody did.
    speaker: Option<i32>,
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// A packet, or why there is none.
#[derive(Debug)]
pub enum Received {
    /// So many bytes, and these descriptors.
    Packet(usize, Vec<OwnedFd>),
    /// Nothing waits.
    Nothing,
    /// The other side is gone.
    Closed,
    /// Something that no agent sends: too long, or by another process than the one that connected.
    Garbled,
}

impl Channel {
    /// Two ends of a connection. Whoever has the other end may speak.
    ///
    /// # Errors
    /// When no descriptors can be had.
    pub fn pair() -> io::Result<(Channel, OwnedFd)> {
        let mut fds = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: room for two descriptors, which are fresh.
        unsafe {
            checked(libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()))?;
            let [ours, theirs] = fds.map(|fd| OwnedFd::from_raw_fd(fd));
            checked(libc::fcntl(
                ours.as_raw_fd(),
                libc::F_SETFL,
                libc::O_NONBLOCK,
            ))?;
            let speaker = None;
            Ok((Channel { fd: ours, speaker }, theirs))
        }
    }

    /// One end of a connection that another process has made, both ends of it, as long as that is process `pid`: it alone may speak.
    ///
    /// # Errors
    /// EINVAL where it is something else, or another's.
    pub fn of_end(end: OwnedFd, pid: i32) -> io::Result<Channel> {
        let option = |name| option_of(&end, name).ok();
        let is_channel = option(libc::SO_DOMAIN) == Some(libc::AF_UNIX)
            && option(libc::SO_TYPE) == Some(libc::SOCK_SEQPACKET)
            && option(libc::SO_ACCEPTCONN) == Some(0);
        if !is_channel || peer_of(&end)?.pid != pid {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        name_senders(&end)?;
        let speaker = Some(pid);
        Ok(Channel { fd: end, speaker })
    }

    /// Who is at the other end, as the kernel knows it.
    ///
    /// # Errors
    /// When it is gone, or in no PID namespace of ours.
    pub fn peer(&self) -> io::Result<Peer> {
        let pidfd = pidfd::of_peer(self.as_raw_fd())?;
        let credentials = peer_of(&self.fd)?;
        if credentials.pid <= 0 {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(Peer {
            pid: credentials.pid,
            uid: credentials.uid,
            pidfd,
        })
    }

    /// Whether the other side has closed it.
    pub fn is_closed(&self) -> bool {
        let mut fds = [libc::pollfd {
            fd: self.as_raw_fd(),
            events: libc::POLLRDHUP,
            revents: 0,
        }];
        crate::process::wait(&mut fds, Some(std::time::Duration::ZERO));
        fds[0].revents != 0
    }

    /// Receives one packet into `bytes` without blocking.
    pub fn receive(&self, bytes: &mut [u8]) -> Received {
        let mut part = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        // Who sent it, and descriptors. What does not fit is closed by the kernel.
        let mut space = [0u64; 16];
        // SAFETY: msghdr is plain data, and what it points to lives through the call.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = space.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&space) as _;
        // Whatever the descriptor says: another process may have a copy of it.
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        // SAFETY: as above.
        let got = unsafe { libc::recvmsg(self.as_raw_fd(), &mut header, flags) };
        if got < 0 {
            return match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Received::Nothing,
                _ => Received::Closed,
            };
        }
        let (sender, descriptors) = attached(&header);
        match got {
            0 => Received::Closed,
            _ if header.msg_flags & libc::MSG_TRUNC != 0 => Received::Garbled,
            _ if descriptors.len() > DESCRIPTORS_MAX => Received::Garbled,
            _ if self.speaker.is_some() && sender != self.speaker => Received::Garbled,
            got => Received::Packet(got as usize, descriptors),
        }
    }

    /// Sends one packet, with at most one descriptor, without blocking.
    ///
    /// # Errors
    /// EPIPE when the other side is gone, EAGAIN when it does not read.
    pub fn send(&self, bytes: &[u8], descriptor: Option<RawFd>) -> io::Result<()> {
        self.send_with(bytes, descriptor.as_slice())
    }

    /// As [`Channel::send`], with several descriptors.
    ///
    /// # Errors
    /// As there; EINVAL for more descriptors than a packet has.
    pub fn send_with(&self, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
        if descriptors.len() > DESCRIPTORS_MAX {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut part = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let mut space = [0u64; 4];
        // SAFETY: msghdr is plain data, and what it points to lives through the call.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        if !descriptors.is_empty() {
            let length = size_of_val(descriptors) as u32;
            header.msg_control = space.as_mut_ptr().cast();
            // SAFETY: the control buffer has room for one header and DESCRIPTORS_MAX descriptors.
            unsafe {
                header.msg_controllen = libc::CMSG_SPACE(length) as _;
                let part = libc::CMSG_FIRSTHDR(&header);
                (*part).cmsg_level = libc::SOL_SOCKET;
                (*part).cmsg_type = libc::SCM_RIGHTS;
                (*part).cmsg_len = libc::CMSG_LEN(length) as _;
                let data = libc::CMSG_DATA(part).cast::<RawFd>();
                for (at, fd) in descriptors.iter().enumerate() {
                    data.add(at).write_unaligned(*fd);
                }
            }
        }
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: as above.
        checked(unsafe { libc::sendmsg(self.as_raw_fd(), &header, flags) } as i32)
    }
}

/// The process that sent a packet, and the descriptors that came with it, each owned from here on: those too
/// many are closed with the rest.
fn attached(header: &libc::msghdr) -> (Option<i32>, Vec<OwnedFd>) {
    let (mut sender, mut found) = (None, Vec::new());
    // SAFETY: the kernel filled the control buffer; the CMSG macros stay inside it.
    unsafe {
        let mut part = libc::CMSG_FIRSTHDR(header);
        while !part.is_null() {
            let bytes = ((*part).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            let data = libc::CMSG_DATA(part);
            match ((*part).cmsg_level, (*part).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    for at in 0..bytes / size_of::<RawFd>() {
                        let fd = data.cast::<RawFd>().add(at).read_unaligned();
                        found.push(OwnedFd::from_raw_fd(fd));
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if bytes >= size_of::<libc::ucred>() => {
                    sender = Some(data.cast::<libc::ucred>().read_unaligned().pid);
                }
                _ => {}
            }
            part = libc::CMSG_NXTHDR(header, part);
        }
    }
    (sender, found)
}

/// Has the kernel say with each packet who sent it.
fn name_senders(socket: &OwnedFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is one integer.
    checked(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const on).cast(),
            size,
        )
    })
}

/// An option of a socket that is an integer.
fn option_of(socket: &OwnedFd, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = -1;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is one integer.
    checked(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &mut size,
        )
    })?;
    Ok(value)
}

/// Process and user that connected a socket, by number.
fn peer_of(socket: &OwnedFd) -> io::Result<libc::ucred> {
    // SAFETY: all zeros is a valid ucred.
    let mut peer: libc::ucred = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure of this option.
    checked(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut size,
        )
    })?;
    Ok(peer)
}

/// Takes ownership of a fresh descriptor, or the errno.
fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    checked(fd)?;
    // SAFETY: the call that made it succeeded, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn checked(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
