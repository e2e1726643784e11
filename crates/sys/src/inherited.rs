//! What programs inherit from us though it is changed for ourselves: a file system takes off no umask, and
//! has a descriptor for every file that the kernel knows.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Umask and limits as they were.
#[derive(Clone, Copy)]
pub struct Inherited {
    umask: libc::mode_t,
    descriptors: libc::rlimit,
    file_size: libc::rlimit,
}

impl Inherited {
    /// As they are now. To be called while there is one thread.
    pub fn note() -> Inherited {
        // SAFETY: plain arguments. The umask can only be read by setting it.
        let umask = unsafe {
            let umask = libc::umask(0o077);
            libc::umask(umask);
            umask
        };
        Inherited {
            umask,
            descriptors: limit(libc::RLIMIT_NOFILE),
            file_size: raise_file_size(),
        }
    }

    /// Has `command` start its program with these.
    pub fn leave_to(self, command: &mut Command) {
        let restore = move || {
            // SAFETY: both calls are async-signal-safe.
            unsafe {
                libc::umask(self.umask);
                libc::setrlimit(libc::RLIMIT_NOFILE, &self.descriptors);
                libc::setrlimit(libc::RLIMIT_FSIZE, &self.file_size);
            }
            Ok(())
        };
        // SAFETY: `restore` allocates nothing and takes no lock.
        unsafe { command.pre_exec(restore) };
    }
}

/// Takes as many descriptors as this process may have: each process of a job takes some. Programs are given
/// what there was before ([`Inherited`]).
pub fn raise_descriptor_limit() {
    let mut limits = limit(libc::RLIMIT_NOFILE);
    limits.rlim_cur = limits.rlim_max;
    // SAFETY: a structure that outlives the call.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limits) };
}

/// The same open file, by a descriptor of at least `from` if there is one.
pub(crate) fn renumbered(file: File, from: RawFd) -> File {
    // SAFETY: plain numbers; the new descriptor is this function's own.
    unsafe {
        match libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, from) {
            fd if fd >= 0 => File::from_raw_fd(fd),
            _ => file,
        }
    }
}

/// How many bytes the main thread's stack may have.
pub fn stack_limit() -> u64 {
    limit(libc::RLIMIT_STACK).rlim_cur
}

/// A limit of this process as it is. (There is none that cannot be read.)
fn limit(resource: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut limits = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a structure that outlives the call.
    unsafe { libc::getrlimit(resource, &mut limits) };
    limits
}

/// Lets this process make files as large as it may: swap file and staging rings are files to the kernel. Answers what
/// the limit was.
fn raise_file_size() -> libc::rlimit {
    let before = limit(libc::RLIMIT_FSIZE);
    // SAFETY: structures that outlive their calls.
    unsafe {
        let most = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        // That takes CAP_SYS_RESOURCE; up to the hard limit anybody may go.
        if libc::setrlimit(libc::RLIMIT_FSIZE, &most) < 0 {
            let most = libc::rlimit {
                rlim_cur: before.rlim_max,
                ..before
            };
            libc::setrlimit(libc::RLIMIT_FSIZE, &most);
        }
    }
    before
}

/// Has `command` start its program in the cgroup whose file of processes this is.
pub fn enter_group(command: &mut Command, entrance: RawFd) {
    let enter = move || {
        // SAFETY: one valid byte; the descriptor is open until the command has been started.
        let written = unsafe { libc::write(entrance, b"0".as_ptr().cast(), 1) };
        match written {
            1 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: `enter` allocates nothing (the error is a number) and takes no lock.
    unsafe { command.pre_exec(enter) };
}

/// Has `command`'s program killed when the calling thread ends, until the program, or its agent, says otherwise: before it
/// has an agent nobody else would end it if this process and its keeper were killed by one stroke.
pub fn end_with_us(command: &mut Command) {
    let us = std::process::id() as libc::pid_t;
    let tie = move || {
        // SAFETY: plain numbers; both calls are async-signal-safe.
        let parent = unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::getppid()
        };
        // It may have ended before; 0: it is in another PID namespace, where that cannot be told.
        match parent {
            parent if parent == us || parent == 0 => Ok(()),
            _ => Err(std::io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    // SAFETY: `tie` allocates nothing (the error is a number) and takes no lock.
    unsafe { command.pre_exec(tie) };
}

/// Writes a number into a file, without allocating: for a process between fork and exec.
pub(crate) fn write_number(path: &std::ffi::CStr, number: i32) {
    let mut text = [0u8; 12];
    let mut at = text.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        at -= 1;
        text[at] = b'-';
    }
    let text = &text[at..];
    // SAFETY: async-signal-safe calls on a valid path and valid bytes.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            libc::write(fd, text.as_ptr().cast(), text.len());
            libc::close(fd);
        }
    }
}
