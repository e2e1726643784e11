//! Signals as a descriptor, and the states of children.

use crate::inject::OWN_CHILDREN;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Signals that arrive at the supervisor, to be read instead of handled.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

/// One signal.
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    /// Its number.
    pub number: i32,
    /// It came from the terminal (Ctrl-C): the whole foreground group has got it.
    pub from_terminal: bool,
    /// The process that sent it, 0 for the kernel.
    pub sender: i32,
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Signals {
    /// Blocks `numbers` for this thread and all it starts, and collects them instead.
    ///
    /// # Errors
    /// When no descriptor can be had.
    pub fn collect(numbers: &[i32]) -> io::Result<Signals> {
        // SAFETY: signal sets are plain data, valid for each call.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for number in numbers {
                libc::sigaddset(&mut set, *number);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Signals {
                fd: OwnedFd::from_raw_fd(fd),
                before,
            })
        }
    }

    /// The next signal, if one waits.
    pub fn next(&self) -> Option<Signal> {
        // SAFETY: all zeros is a valid record, and the buffer is of the size given.
        let mut record: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: as above.
        let got = unsafe { libc::read(self.as_raw_fd(), (&raw mut record).cast(), size) };
        (got == size as isize).then_some(Signal {
            number: record.ssi_signo as i32,
            from_terminal: record.ssi_code == libc::SI_KERNEL,
            sender: record.ssi_pid as i32,
        })
    }

    /// Gives this thread the mask it had before, in which what waits arrives as if it had never been collected.
    pub fn release(&self) {
        // SAFETY: the set was filled by pthread_sigmask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }

    /// Has this process do what it would have done at a signal that was collected. Returns where that is ignored.
    pub fn obey(&self, number: i32) {
        self.release();
        // SAFETY: no pointers.
        unsafe { libc::raise(number) };
    }
}

/// Lets `command` start its program with the signal mask of before [`Signals::collect`].
pub fn exec_with_mask_of(command: &mut std::process::Command, signals: &Signals) {
    set_mask_of(command, signals.before);
}

/// Lets `command` execute its program with the signal mask of this thread, as it is now: by itself it would clear it.
pub fn exec_with_own_mask(command: &mut std::process::Command) {
    // SAFETY: all zeros is a valid set, and with none to set the call only writes to it.
    let own = unsafe {
        let mut own: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut own);
        own
    };
    set_mask_of(command, own);
}

fn set_mask_of(command: &mut std::process::Command, before: libc::sigset_t) {
    use std::os::unix::process::CommandExt;
    let restore = move || {
        // SAFETY: the set was filled by pthread_sigmask, and the call is async-signal-safe.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
        Ok(())
    };
    // SAFETY: `restore` allocates nothing and takes no lock.
    unsafe { command.pre_exec(restore) };
}

/// What became of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Ended with this status.
    Exited(i32),
    /// Killed by this signal.
    Killed(i32),
    /// Stopped by this signal.
    Stopped(i32),
    /// Going on.
    Continued,
    /// Stopped for a thread of ours that traces it, which should have heard of it.
    Traced,
}

/// The next child whose state has changed, if any. Not while a thread of ours traces a child: the kernel would tell this one
/// of the child's stops, and not that.
pub fn next_change() -> Option<(i32, Change)> {
    let mut status = 0;
    // Of what else threads of ours trace they alone hear.
    let options = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED | OWN_CHILDREN;
    // SAFETY: the status is valid for the call.
    let pid = unsafe { libc::waitpid(-1, &mut status, options) };
    if pid <= 0 {
        return None;
    }
    let change = if libc::WIFEXITED(status) {
        Change::Exited(libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        Change::Killed(libc::WTERMSIG(status))
    } else if libc::WIFSTOPPED(status) && is_traced_stop(status) {
        Change::Traced
    } else if libc::WIFSTOPPED(status) {
        Change::Stopped(libc::WSTOPSIG(status))
    } else {
        Change::Continued
    };
    Some((pid, change))
}

/// Whether a child has stopped for a thread of ours that traces it, or did until now.
fn is_traced_stop(status: i32) -> bool {
    let signals = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    status >> 16 != 0 || !signals.contains(&libc::WSTOPSIG(status))
}

/// Orphans of the job become this process's children: so whatever the job starts descends from it for good.
///
/// # Errors
/// When the kernel does not do it: who belongs to the job could not be told then.
pub fn adopt_orphans() -> io::Result<()> {
    let mut is_set: libc::c_int = 0;
    // SAFETY: plain arguments, and room for the answer.
    let done = unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) == 0
            && libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut is_set) == 0
    };
    match done {
        true if is_set == 1 => Ok(()),
        true => Err(io::ErrorKind::Unsupported.into()),
        false => Err(io::Error::last_os_error()),
    }
}

/// Sends a signal to a process that is this process's child and not yet waited for.
pub fn send(pid: i32, signal: i32) {
    // SAFETY: plain arguments.
    unsafe { libc::kill(pid, signal) };
}

/// Stops this process, as its program has been stopped.
pub fn stop_self() {
    // SAFETY: plain arguments.
    unsafe { libc::raise(libc::SIGSTOP) };
}
