//! `pleat-helper`: the two things that pleat needs a privilege for, lent to ordinary users.
//!
//! `pleat setup` gives this program the capabilities CAP_DAC_OVERRIDE and CAP_SYS_PTRACE, and a group may execute it.
//! The supervisor of an ordinary user starts it with one end of a socket pair as descriptor 3, and
//!
//! 1. it opens /dev/userfaultfd (CAP_DAC_OVERRIDE) and sends the descriptor;
//! 2. for each userfaultfd that it is sent, it makes the handshake that asks for fork events (CAP_SYS_PTRACE), and
//!    answers with an errno. The features are its own choice;
//! 3. when the socket is closed it ends.
//!
//! It looks at no argument, no variable and no file but these, and has no other descriptor. CAP_DAC_OVERRIDE is
//! given up before anything is read. `docs/setup.md` says what a member of the group gains by it.

use pleat_wire::helper::{ANSWER_BYTES, SOCKET, WITHOUT_DEVICE, WITH_DEVICE};
use pleat_wire::uffd;
use std::ffi::CStr;
use std::mem::{size_of, zeroed};

const DEVICE: &CStr = c"/dev/userfaultfd";
/// The major number of misc devices, of which userfaultfd is one.
const MISC_MAJOR: u32 = 10;
const CAP_SYS_PTRACE: u32 = 19;
/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// What the kernel calls a userfaultfd, where the path of a file would be.
const KIND: &[u8] = b"anon_inode:[userfaultfd]";

fn main() -> std::process::ExitCode {
    if !is_called_by_own_user() || !shut_in() {
        return 1.into();
    }
    let device = open_device();
    if !keep_only_ptrace() {
        return 1.into();
    }
    let (word, descriptor) = match device {
        Ok(device) => (WITH_DEVICE, Some(device)),
        Err(errno) => (WITHOUT_DEVICE | errno, None),
    };
    if !send(word, descriptor) {
        return 1.into();
    }
    descriptor.into_iter().for_each(close);
    while let Some(received) = receive() {
        let answer = match received {
            Some(fd) => {
                let answer = shake_hands(fd);
                close(fd);
                answer
            }
            None => libc::EINVAL,
        };
        if !send(answer, None) {
            break;
        }
    }
    0.into()
}

/// Whether descriptor 3 is a socket of packets whose other end a process of this user made.
fn is_called_by_own_user() -> bool {
    let option = |name: i32, value: *mut libc::c_void, size: usize| {
        let mut length = size as libc::socklen_t;
        // SAFETY: both callers pass a value of this size.
        unsafe { libc::getsockopt(SOCKET, libc::SOL_SOCKET, name, value, &mut length) == 0 }
    };
    let (mut domain, mut kind) = (0i32, 0i32);
    // SAFETY: all zeros is a valid structure.
    let mut peer: libc::ucred = unsafe { zeroed() };
    let is_told = option(libc::SO_DOMAIN, (&raw mut domain).cast(), size_of::<i32>())
        && option(libc::SO_TYPE, (&raw mut kind).cast(), size_of::<i32>())
        && option(
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            size_of::<libc::ucred>(),
        );
    // SAFETY: no arguments.
    let own = unsafe { libc::getuid() };
    is_told && domain == libc::AF_UNIX && kind == libc::SOCK_SEQPACKET && peer.uid == own
}

/// Closes everything else, keeps nothing of the caller's surroundings, and leaves no trace in a core.
fn shut_in() -> bool {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let after = SOCKET as u32 + 1;
    // SAFETY: plain numbers, a static path and a structure that outlives its call. The descriptors below the socket are
    // those that the runtime has opened or was given; nobody uses them.
    unsafe {
        libc::umask(0o077);
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::syscall(libc::SYS_close_range, 0, SOCKET - 1, 0) == 0
            && libc::syscall(libc::SYS_close_range, after, u32::MAX, 0) == 0
            && libc::chdir(c"/".as_ptr()) == 0
            && libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    }
}

/// The device, or why there is none. A path of root's: without a privilege nobody can put anything else there that
/// this process would see, for in a user namespace of his own it has no capabilities.
fn open_device() -> Result<i32, i32> {
    // SAFETY: a static path; a structure that is valid when zeroed.
    unsafe {
        let fd = libc::open(DEVICE.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if fd < 0 {
            return Err(errno());
        }
        let mut status: libc::stat = zeroed();
        let is_device = libc::fstat(fd, &mut status) == 0
            && status.st_mode & libc::S_IFMT == libc::S_IFCHR
            && libc::major(status.st_rdev) == MISC_MAJOR;
        match is_device {
            true => Ok(fd),
            false => {
                libc::close(fd);
                Err(libc::ENODEV)
            }
        }
    }
}

/// Gives up all capabilities but CAP_SYS_PTRACE. Where that was not given, there is none.
fn keep_only_ptrace() -> bool {
    let mut header = [CAPABILITY_VERSION, 0];
    // Effective, permitted, inheritable; the low words, then the high ones.
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: the structures of these calls, version 3: a header of two words, and twice three words.
    unsafe {
        if libc::syscall(libc::SYS_capget, &raw mut header, &raw mut sets) != 0 {
            return false;
        }
        let kept = sets[0][1] & (1 << CAP_SYS_PTRACE);
        sets = [[kept, kept, 0], [0, 0, 0]];
        header = [CAPABILITY_VERSION, 0];
        libc::syscall(libc::SYS_capset, &raw mut header, &raw mut sets) == 0
    }
}

/// Makes the handshake; answers 0 or an errno. Only over a userfaultfd: what else the caller has open is none of our
/// business.
fn shake_hands(fd: i32) -> i32 {
    if !is_userfaultfd(fd) {
        return libc::EBADF;
    }
    let mut api = uffd::Api {
        api: uffd::API,
        features: uffd::FEATURES_FOLLOW | uffd::FEATURE_EVENT_FORK,
        ioctls: 0,
    };
    // SAFETY: the structure of this request.
    match unsafe { libc::ioctl(fd, uffd::IOC_API as libc::Ioctl, &mut api) } {
        0 => 0,
        _ => errno(),
    }
}

fn is_userfaultfd(fd: i32) -> bool {
    let path = format!("/proc/self/fd/{fd}\0");
    let mut target = [0u8; 64];
    // SAFETY: the path ends with a zero, the buffer has its size.
    let length = unsafe {
        libc::readlink(
            path.as_ptr().cast(),
            target.as_mut_ptr().cast(),
            target.len(),
        )
    };
    usize::try_from(length).is_ok_and(|length| &target[..length] == KIND)
}

/// Waits for a packet; `None` when the caller is gone, `Some(None)` when it brings anything but one descriptor.
fn receive() -> Option<Option<i32>> {
    let mut byte = [0u8; 8];
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: byte.len(),
    };
    // Room for one descriptor: the kernel closes what is beyond.
    let mut space = [0u64; 3];
    // SAFETY: msghdr is plain data, and what it points to lives through the call.
    unsafe {
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = space.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(4) as _;
        let got = loop {
            match libc::recvmsg(SOCKET, &mut header, libc::MSG_CMSG_CLOEXEC) {
                -1 if errno() == libc::EINTR => {}
                got => break got,
            }
        };
        if got <= 0 {
            return None;
        }
        let part = libc::CMSG_FIRSTHDR(&header);
        let is_one = !part.is_null()
            && (*part).cmsg_level == libc::SOL_SOCKET
            && (*part).cmsg_type == libc::SCM_RIGHTS
            && (*part).cmsg_len as usize == libc::CMSG_LEN(4) as usize;
        Some(is_one.then(|| libc::CMSG_DATA(part).cast::<i32>().read_unaligned()))
    }
}

fn send(word: i32, descriptor: Option<i32>) -> bool {
    let mut bytes = word.to_ne_bytes();
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: ANSWER_BYTES,
    };
    let mut space = [0u64; 3];
    // SAFETY: msghdr is plain data, and what it points to lives through the call; the control buffer has room for one
    // header and one descriptor.
    unsafe {
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        if let Some(fd) = descriptor {
            header.msg_control = space.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(4) as _;
            let part = libc::CMSG_FIRSTHDR(&header);
            (*part).cmsg_level = libc::SOL_SOCKET;
            (*part).cmsg_type = libc::SCM_RIGHTS;
            (*part).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(part).cast::<i32>().write_unaligned(fd);
        }
        libc::sendmsg(SOCKET, &header, libc::MSG_NOSIGNAL) == ANSWER_BYTES as isize
    }
}

fn close(fd: i32) {
    // SAFETY: no pointers; nobody uses the descriptor any more.
    unsafe { libc::close(fd) };
}

fn errno() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}
