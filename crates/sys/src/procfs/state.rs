//! What a thread is doing just now.
#![forbid(unsafe_code)]

use super::{sleeps_in, value, Pid};
use std::fs;

/// What a thread is doing, as far as it matters to who waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs, or would if it had a CPU.
    Running,
    /// It waits for something that may never come.
    Asleep,
    /// It is stopped, traced or frozen, or the kernel does something for it; or that cannot be told.
    Held,
}

/// The state of a thread, or of a process's first thread.
pub fn state(tid: Pid) -> State {
    let text = fs::read(format!("/proc/{tid}/status")).unwrap_or_default();
    match letter(&text) {
        Some(b'R') => State::Running,
        // A group that is frozen (cgroup v2) shows its threads as asleep.
        Some(b'S') if !sleeps_in(tid).contains("freez") => State::Asleep,
        // It waits for a userfaultfd to be read, which its reader may not do before it has something from it.
        Some(b'D') if sleeps_in(tid).contains("userfault") => State::Asleep,
        _ => State::Held,
    }
}

/// The kernel's letter for what a thread is doing, or a process's first one: R, S, D, T, t, Z and others. `None` where it is gone.
pub fn state_letter(tid: Pid) -> Option<u8> {
    let text = fs::read(format!("/proc/{tid}/status")).ok()?;
    letter(&text).copied()
}

/// Whether a thread would get on if it had a CPU. In a group with a limit of CPU time it may be so for seconds, and on a busy machine.
pub fn waits_for_cpu(tid: Pid) -> bool {
    state(tid) == State::Running
}

/// Whether a thread, or a process's first one, is stopped by a signal or by who traces it.
pub fn is_stopped(tid: Pid) -> bool {
    matches!(state_letter(tid), Some(b'T' | b't'))
}

/// The letter for a thread's state in its status.
fn letter(status: &[u8]) -> Option<&u8> {
    value(status, "State")?.first()
}

/// With which status the first thread of a process has ended, if it has and one other is left. The kernel writes the
/// state first: whoever is left is seen alone.
pub fn status_of_first_but_one(pid: Pid) -> Option<u8> {
    let text = fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let has_ended = letter(&text) == Some(&b'Z');
    // The first is counted until its process has ended.
    if !has_ended || value(&text, "Threads") != Some(b"2") {
        return None;
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The last field, as waitpid(2) has it: the status in the second byte.
    let code: u32 = stat.trim_end().rsplit(' ').next()?.parse().ok()?;
    Some((code >> 8) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    fn becomes(pid: Pid, wanted: State) -> bool {
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until && state(pid) != wanted {
            std::thread::sleep(Duration::from_millis(1));
        }
        state(pid) == wanted
    }

    #[test]
    fn who_sleeps_is_told_from_who_is_stopped() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as Pid;
        assert!(becomes(pid, State::Asleep));
        crate::signals::send(pid, libc::SIGSTOP);
        assert!(becomes(pid, State::Held) && is_stopped(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(state(pid), State::Held, "it is gone");
    }

    #[test]
    fn who_runs_is_seen_to() {
        let own = std::process::id() as Pid;
        // The thread that reads, by the name of its own.
        let text = fs::read_to_string("/proc/thread-self/status").unwrap();
        let tid = text.lines().find_map(|line| line.strip_prefix("Pid:"));
        assert_eq!(
            state(tid.unwrap().trim().parse().unwrap_or(own)),
            State::Running
        );
    }
}
