//! What programs inherit from us though it is changed for ourselves: a file system takes off no umask, and
//! has a descriptor for every file that the kernel knows.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Umask and limit of descriptors as they were.
#[derive(Clone, Copy)]
pub struct Inherited {
    umask: libc::mode_t,
    descriptors: libc::rlimit,
}

impl Inherited {
    /// As they are now. To be called while there is one thread.
    pub fn note() -> Inherited {
        let mut descriptors = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: plain arguments, and a structure that outlives its call. The umask can only be read by
        // setting it.
        let umask = unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut descriptors);
            let umask = libc::umask(0o077);
            libc::umask(umask);
            umask
        };
        Inherited { umask, descriptors }
    }

    /// Has `command` start its program with these.
    pub fn leave_to(self, command: &mut Command) {
        let restore = move || {
            // SAFETY: both calls are async-signal-safe.
            unsafe {
                libc::umask(self.umask);
                libc::setrlimit(libc::RLIMIT_NOFILE, &self.descriptors);
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
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a structure that outlives both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limits) == 0 {
            limits.rlim_cur = limits.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limits);
        }
    }
}
