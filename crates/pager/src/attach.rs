//! Taking up processes that run already: what is looked at before anything is done to them.

use crate::family::{Family, Root};
use crate::job::RunError;
use pleat_sys::inject::{self, TraceError};
use pleat_sys::pidfd::has_ended;
use pleat_sys::process::pidfd;
use pleat_sys::procfs;
use std::io;
use std::sync::Arc;

/// What is missing where the kernel reports no forks.
pub const NO_FORKS: &str = "pleat can attach to processes only where the kernel tells it of their forks, or a child would miss what \
                            of its memory is away: run this as root, or have the administrator run `pleat setup` once";

/// The family of processes that run.
///
/// # Errors
/// One of them is gone, is another user's, or may not be traced: which, and what helps.
pub fn family(pids: &[i32]) -> Result<Family, RunError> {
    let mut roots: Vec<Root> = Vec::new();
    for pid in pids {
        if !roots.iter().any(|root| root.pid == *pid) {
            roots.push(root(*pid)?);
        }
    }
    Ok(Family::of(roots))
}

fn root(pid: i32) -> Result<Root, RunError> {
    let mistake = |what: String| Err(RunError::Mistake(what));
    let gone = || format!("process {pid} does not exist, or has ended");
    let Ok(process) = pidfd(pid) else {
        return match procfs::status(pid) {
            // A thread's number is none of a process's.
            Ok(_) => mistake(format!(
                "{pid} is a thread: give the process id that `ps` shows"
            )),
            Err(_) => mistake(gone()),
        };
    };
    let own = std::process::id() as i32;
    if pid == own || procfs::maps(pid).is_ok_and(|mappings| mappings.is_empty()) {
        return mistake(format!(
            "process {pid} has no memory that pleat could compress"
        ));
    }
    let name = procfs::status(pid).map_or("a process".into(), |status| status.name);
    match inject::can_trace(pid) {
        Ok(()) => {}
        Err(_) if has_ended(&process) => return mistake(gone()),
        Err(TraceError::Refused(error)) => return mistake(told(&name, pid, &error)),
        Err(_) => return mistake(gone()),
    }
    if procfs::has_userfaultfd(pid) {
        return mistake(format!(
            "{name} ({pid}) is in a job of pleat already, or uses userfaultfd itself: `pleat list` shows the jobs, and `pleat set` changes \
             their budgets"
        ));
    }
    Ok(Root {
        pid,
        pidfd: Arc::new(process),
    })
}

fn told(name: &str, pid: i32, error: &io::Error) -> String {
    let user = |pid: i32| procfs::real_uid(pid).ok();
    let is_others = user(pid) != user(std::process::id() as i32);
    let remedy = remedy(is_others, inject::ptrace_scope());
    format!("{name} ({pid}) may not be traced ({error}), by which pleat gets into it: {remedy}")
}

fn remedy(is_others: bool, ptrace_scope: u32) -> &'static str {
    match (is_others, ptrace_scope) {
        (_, 3..) => {
            "kernel.yama.ptrace_scope is 3, so nobody may trace, and that stays so until the machine starts again: start the program \
             by `pleat run`"
        }
        (true, _) => "it is another user's: run this as root",
        (false, 1 | 2) => {
            "the kernel lets nobody but root trace processes that he has not started (kernel.yama.ptrace_scope): run this as root, or \
             start the program by `pleat run`"
        }
        (false, 0) => {
            "a debugger traces it, or it has more rights than its user: end that, or run this as root"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn refusal(pid: i32) -> String {
        match family(&[pid]) {
            Ok(_) => panic!("{pid} must be refused"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_cannot_be_taken_up_is_told() {
        let own = std::process::id() as i32;
        assert!(refusal(own).contains("no memory"));
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(refusal(child.id() as i32).contains("does not exist"));
        let thread = std::thread::spawn(pleat_sys::process::own_thread);
        let _ = refusal(thread.join().unwrap());
    }

    #[test]
    fn root_is_not_a_remedy_where_nobody_may_trace() {
        for scope in 0..3 {
            assert!(remedy(true, scope).contains("as root"));
            assert!(remedy(false, scope).contains("as root"));
        }
        assert!(!remedy(true, 3).contains("as root"));
        assert!(!remedy(false, 3).contains("as root"));
    }

    #[test]
    fn a_process_named_twice_is_one() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let family = family(&[pid, pid]);
        child.kill().unwrap();
        child.wait().unwrap();
        // Where this process may trace nobody there is nothing to see.
        if let Ok(family) = family {
            assert_eq!(family.roots().len(), 1);
        }
    }
}
