//! Sequenced-packet sockets between supervisor and agents, with descriptors in tow.

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
            Ok(fd) => Ok(Some(Channel(fd))),
            Err(e) => match e.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR | libc::ECONNABORTED) => Ok(None),
                _ => Err(e),
            },
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
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
}

impl Channel {
    /// Two ends of a connection.
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
            Ok((Channel(ours), theirs))
        }
    }

    /// Process and user at the other end, as the kernel knows them.
    ///
    /// # Errors
    /// When the socket has none.
    pub fn peer(&self) -> io::Result<(i32, u32)> {
        // SAFETY: all zeros is a valid ucred.
        let mut peer: libc::ucred = unsafe { std::mem::zeroed() };
        let mut size = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the structure of this option.
        checked(unsafe {
            libc::getsockopt(
                self.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &mut size,
            )
        })?;
        Ok((peer.pid, peer.uid))
    }

    /// Receives one packet into `bytes` without blocking.
    pub fn receive(&self, bytes: &mut [u8]) -> Received {
        let mut part = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let mut space = [0u64; 8];
        // SAFETY: msghdr is plain data, and what it points to lives through the call.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = space.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&space) as _;
        // SAFETY: as above.
        let got = unsafe { libc::recvmsg(self.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC) };
        if got < 0 {
            return match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Received::Nothing,
                _ => Received::Closed,
            };
        }
        let descriptors = descriptors_of(&header);
        if got == 0 {
            return Received::Closed;
        }
        Received::Packet(got as usize, descriptors)
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

/// The descriptors that came with a packet, each owned from here on.
fn descriptors_of(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    // SAFETY: the kernel filled the control buffer; the CMSG macros stay inside it.
    unsafe {
        let mut part = libc::CMSG_FIRSTHDR(header);
        while !part.is_null() {
            if (*part).cmsg_level == libc::SOL_SOCKET && (*part).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*part).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(part).cast::<RawFd>();
                for at in 0..(bytes / 4).min(DESCRIPTORS_MAX) {
                    found.push(OwnedFd::from_raw_fd(data.add(at).read_unaligned()));
                }
            }
            part = libc::CMSG_NXTHDR(header, part);
        }
    }
    found
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
