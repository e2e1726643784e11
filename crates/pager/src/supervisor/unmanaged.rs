//! Processes that cannot be managed: they run on as they are, and are named once, with what keeps them and what helps.
//!
//! None of them ends the job. Where pages of one may be away already, because it was forked by a managed process, its
//! faults are answered as ever; only is nothing more taken from it.

use super::trust::release;
use super::Supervisor;
use crate::census::Stage;
use pleat_sys::inject::{InjectError, TraceError};
use pleat_sys::procfs;
use pleat_wire::message::{self, Prepared};
use std::io;

/// Programs that are named, each with a reason.
const NAMED_MAX: usize = 64;

/// Why a process cannot be managed.
pub(super) enum Obstacle {
    /// Its agent failed in this step, for that reason.
    Agent(u32, i32),
    /// The supervisor lacks something.
    Supervisor(io::Error),
    /// The kernel refused the handshake over its userfaultfd.
    Handshake(io::Error),
    /// The kernel refused to register its agent's memory.
    Registration(io::Error),
    /// Its memory is gone: it has ended, or executes another program.
    Gone,
    /// While it was managed it forbade its agent to take pages.
    ShutIn,
    /// Its agent says what no agent says.
    Nonsense,
    /// No agent could be put into it.
    Injection(InjectError),
}

/// What a process is bound by, as far as it explains a failure.
struct Bounds {
    /// It has more seccomp filters than the supervisor.
    has_filter: bool,
    limits: procfs::Limits,
}

impl Obstacle {
    pub(super) fn of_answer(answer: &Prepared) -> Obstacle {
        match answer.kind {
            message::PREPARED => Obstacle::Agent(answer.step, answer.error),
            _ => Obstacle::Nonsense,
        }
    }

    /// The reason with its remedy, in one line.
    fn tell(&self, bounds: &Bounds) -> String {
        let doctor = "`pleat doctor` tells the remedy";
        match self {
            Obstacle::Agent(_, libc::EMFILE) => {
                "its limit of open files is too low; raise `ulimit -n`".into()
            }
            Obstacle::Agent(message::STEP_MEMORY, libc::ENOMEM)
                if bounds.limits.has_address_space =>
            {
                "its address space is limited too tightly; raise `ulimit -v`".into()
            }
            Obstacle::Agent(step, errno) => {
                let (what, error) = (name(*step), io::Error::from_raw_os_error(*errno));
                let is_filter = bounds.has_filter && *errno != libc::ENOMEM;
                match is_filter {
                    true => format!(
                        "its own seccomp filter refuses {what} ({error}); let ioctl and mmap pass there"
                    ),
                    false => format!("{what} failed ({error}); {doctor}"),
                }
            }
            Obstacle::Supervisor(error) => match error.raw_os_error() {
                Some(libc::EFBIG) => "pleat may not make a file of 1 MiB; raise `ulimit -f`".into(),
                Some(libc::EMFILE | libc::ENFILE) => {
                    "pleat is out of descriptors; raise `ulimit -n`".into()
                }
                _ => format!("pleat has no memory for it ({error})"),
            },
            Obstacle::Handshake(error) => {
                format!("the kernel refuses its userfaultfd ({error}); {doctor}")
            }
            Obstacle::Registration(error) => format!("its memory cannot be registered ({error})"),
            Obstacle::ShutIn => "its own seccomp filter refuses ioctl to all its threads".into(),
            Obstacle::Gone => "it has ended".into(),
            Obstacle::Injection(error) => tell_injection(error),
            Obstacle::Nonsense => "its agent does not answer as an agent does".into(),
        }
    }
}

/// Why no agent could be put into a process, and what helps.
fn tell_injection(error: &InjectError) -> String {
    match error {
        InjectError::Trace(TraceError::Gone) => "it has ended".into(),
        InjectError::Trace(TraceError::Busy) => {
            "it is stopped, or waits for a disk, and cannot be given an agent meanwhile".into()
        }
        InjectError::Trace(TraceError::Foreign) => "it is a 32-bit program".into(),
        InjectError::Trace(TraceError::Dispatched) => {
            "it has its system calls handed to itself (prctl), as Windows emulators do".into()
        }
        InjectError::Trace(TraceError::Refused(error)) => format!(
            "it may not be traced ({error}): a debugger traces it, it has more rights than pleat, or \
             kernel.yama.ptrace_scope is 2 or more"
        ),
        InjectError::Filtered => {
            "it is shut in by a seccomp filter of its own, and has not loaded the agent before".into()
        }
        InjectError::NoVdso => "it has no vdso, by which an agent is started".into(),
        InjectError::Unheard => {
            "its agent cannot reach pleat: it may make no sockets, or is in another network namespace and the kernel \
             is older than Linux 6.9".into()
        }
        InjectError::ForkedPast => {
            "it was forked past the C library; what it has stays in memory".into()
        }
        InjectError::ForksUnseen => {
            "it does not load pleat's library, and the kernel does not tell this user of forks; `pleat doctor` tells the remedy"
                .into()
        }
        InjectError::OffersNothing => "its agent offers no conversation".into(),
        InjectError::Loading => "it is loading its libraries".into(),
        InjectError::Declined => "its environment says so (PLEAT_SOCKET)".into(),
        InjectError::Emulated => "it runs programs of its own, as valgrind does".into(),
        InjectError::Step("map memory", error) if error.raw_os_error() == Some(libc::ENOMEM) => {
            "its address space is limited too tightly; raise `ulimit -v`".into()
        }
        InjectError::Step(what, error) => format!("it cannot {what} ({error})"),
    }
}

/// What an agent does in a step.
fn name(step: u32) -> &'static str {
    match step {
        message::STEP_USERFAULTFD => "to make a userfaultfd",
        message::STEP_API => "to set up a userfaultfd",
        message::STEP_MEMORY => "to map shared memory",
        _ => "to register memory",
    }
}

impl Supervisor<'_> {
    /// Lets a process run on as it is, and says so once.
    pub(super) fn unmanageable(&mut self, pid: i32, cause: &Obstacle) {
        let Some(process) = self.census.processes.get_mut(&pid) else {
            return;
        };
        let is_served = process.claim.take().is_some();
        match std::mem::replace(&mut process.stage, Stage::Unmanageable) {
            Stage::Preparing(channel, lent) if lent.is_forked => {
                let processes = &self.census.processes;
                self.kept.retain(|(pid, _)| processes.contains_key(pid));
                self.kept.push((pid, channel));
                return self.name_unmanaged(pid, "keeps in memory what it has", cause);
            }
            // Without this word its agent would take the supervisor for dead.
            Stage::Ready(channel) | Stage::Preparing(channel, _) => release(&channel),
            _ => {}
        }
        let what = match is_served {
            true => "keeps in memory what it has",
            false => "runs unmanaged",
        };
        self.name_unmanaged(pid, what, cause);
    }

    /// Says what has become of a process, and why; of several of a name that fail alike, of the first.
    pub(super) fn name_unmanaged(&mut self, pid: i32, what: &str, cause: &Obstacle) {
        self.shared.meters.unmanaged_processes.add(1);
        let name = procfs::status(pid).map_or("a process".into(), |status| status.name);
        let own = std::process::id() as i32;
        let why = cause.tell(&Bounds {
            has_filter: procfs::seccomp_filters(pid) > procfs::seccomp_filters(own),
            limits: procfs::limits(pid).unwrap_or_default(),
        });
        if let Some(process) = self.census.processes.get_mut(&pid) {
            process.why_unmanaged = Some(why.clone());
        }
        if self.named.len() < NAMED_MAX && self.named.insert(format!("{name} {what}: {why}")) {
            // As the threads' news, of which there is an end: processes have the names they choose.
            self.shared.tell(format!("{name} ({pid}) {what}: {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(cause: &Obstacle, has_filter: bool, has_address_space: bool) -> String {
        let limits = procfs::Limits { has_address_space };
        cause.tell(&Bounds { has_filter, limits })
    }

    #[test]
    fn limits_and_filters_are_named_where_they_are_the_reason() {
        let no_room = Obstacle::Agent(message::STEP_MEMORY, libc::ENOMEM);
        assert!(told(&no_room, true, true).contains("ulimit -v"));
        assert!(!told(&no_room, false, false).contains("ulimit"));
        let refused = Obstacle::Agent(message::STEP_USERFAULTFD, libc::EPERM);
        assert!(told(&refused, true, false).contains("seccomp"));
        assert!(told(&refused, false, true).contains("pleat doctor"));
        let few = Obstacle::Agent(message::STEP_MEMORY, libc::EMFILE);
        assert!(told(&few, true, true).contains("ulimit -n"));
        let short = Obstacle::Supervisor(io::Error::from_raw_os_error(libc::EFBIG));
        assert!(told(&short, false, false).contains("ulimit -f"));
    }
}
