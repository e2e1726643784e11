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
    match value(&text, "State").and_then(|state| state.first()) {
        Some(b'R') => State::Running,
        // A group that is frozen (cgroup v2) shows its threads as asleep.
        Some(b'S') if !sleeps_in(tid).contains("freez") => State::Asleep,
        // It waits for a userfaultfd to be read, which its reader may not do before it has something from it.
        Some(b'D') if sleeps_in(tid).contains("userfault") => State::Asleep,
        _ => State::Held,
    }
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
        assert!(becomes(pid, State::Held));
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
