//! Whether a process still executes what it did.

use super::memory;
use crate::pidfd::has_ended;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// `AT_RANDOM`: where the kernel has put bytes that it draws at each exec.
const RANDOM: u64 = 25;

/// A process between two execs.
pub struct Identity {
    pid: i32,
    pidfd: Arc<OwnedFd>,
    drawn: (Vec<u8>, [u8; 16]),
}

impl Identity {
    /// What it executes now; `None` where it has ended, or is at an exec.
    pub fn of(pid: i32, pidfd: Arc<OwnedFd>) -> Option<Identity> {
        let drawn = drawn(pid)?;
        Some(Identity { pid, pidfd, drawn })
    }

    /// Whether it executes the same still. Its number is its own as long as it has not ended.
    pub fn holds(&self) -> bool {
        let is_same = drawn(self.pid).is_some_and(|drawn| drawn == self.drawn);
        is_same && !has_ended(&self.pidfd)
    }
}

/// What the kernel has told its program, addresses among it, and the bytes that it has drawn.
fn drawn(pid: i32) -> Option<(Vec<u8>, [u8; 16])> {
    let told = std::fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let words = told.chunks_exact(16).map(|pair| {
        let word = |at: usize| pair[at..at + 8].try_into().map(u64::from_ne_bytes);
        (word(0).unwrap_or(0), word(8).unwrap_or(0))
    });
    let (_, address) = words.into_iter().find(|(kind, _)| *kind == RANDOM)?;
    let mut bytes = [0; 16];
    memory::read(pid, address, &mut bytes).ok()?;
    Some((told, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::pidfd;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn another_exec_is_another_identity() {
        let mut child = Command::new("sh")
            .args(["-c", "echo first; read line; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let pid = child.id() as i32;
        let identity = Identity::of(pid, Arc::new(pidfd(pid).unwrap())).unwrap();
        assert!(identity.holds());
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"go\nsecond\n").unwrap();
        input.flush().unwrap();
        line.clear();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "second\n");
        assert!(!identity.holds());
        drop(input);
        child.wait().unwrap();
        assert!(!identity.holds());
    }
}
