//! Whether a process still executes what it did.

use super::memory;
use crate::pidfd::has_ended;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// `AT_RANDOM`: where the kernel has put bytes that it draws at each exec.
const RANDOM: u64 = 25;
/// `AT_BASE`: where the kernel has loaded the program's interpreter; 0: it has none.
const LOADER: u64 = 7;

/// A process between two execs.
pub struct Identity {
    pid: i32,
    pidfd: Arc<OwnedFd>,
    drawn: Drawn,
}

impl Identity {
    /// What it executes now; `None` where it has ended, or is at an exec.
    pub fn of(pid: i32, pidfd: Arc<OwnedFd>) -> Option<Identity> {
        let drawn = Drawn::of(pid)?;
        Some(Identity { pid, pidfd, drawn })
    }

    /// Whether its addresses have 32 bits.
    pub fn is_short(&self) -> bool {
        self.drawn.is_short
    }

    /// Whether the kernel has loaded a program with it that loads its libraries.
    pub fn has_loader(&self) -> bool {
        let words = self.drawn.told.chunks_exact(16).map(|pair| {
            let word = |at: usize| pair[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
            (word(0), word(8))
        });
        let mut loaders = words.filter(|(kind, _)| *kind == LOADER);
        loaders.any(|(_, address)| address != 0)
    }

    /// Whether it executes the same still. Its number is its own as long as it has not ended.
    pub fn holds(&self) -> bool {
        let is_same = Drawn::of(self.pid).is_some_and(|drawn| drawn == self.drawn);
        is_same && !has_ended(&self.pidfd)
    }
}

/// What the kernel has told a program, addresses among it, and the bytes that it has drawn.
#[derive(PartialEq, Eq)]
struct Drawn {
    told: Vec<u8>,
    bytes: [u8; 16],
    is_short: bool,
}

impl Drawn {
    fn of(pid: i32) -> Option<Drawn> {
        let told = std::fs::read(format!("/proc/{pid}/auxv")).ok()?;
        let (address, is_short) = random_in(&told)?;
        let mut bytes = [0; 16];
        memory::read(pid, address, &mut bytes).ok()?;
        Some(Drawn {
            told,
            bytes,
            is_short,
        })
    }
}

/// Where the bytes are, and whether that is told in words of 32 bits. In those of 64 no kind is 25 that is none: the address
/// would be the upper half of the kind.
fn random_in(told: &[u8]) -> Option<(u64, bool)> {
    let long = told.chunks_exact(16).map(|pair| {
        let word = |at: usize| pair[at..at + 8].try_into().map(u64::from_ne_bytes);
        (word(0).unwrap_or(0), word(8).unwrap_or(0))
    });
    let short = told.chunks_exact(8).map(|pair| {
        let word = |at: usize| pair[at..at + 4].try_into().map(u32::from_ne_bytes);
        let word = |at| word(at).map_or(0, u64::from);
        (word(0), word(4))
    });
    let is_random = |pair: &(u64, u64)| pair.0 == RANDOM;
    match long.into_iter().find(is_random) {
        Some((_, address)) => Some((address, false)),
        None => short
            .into_iter()
            .find(is_random)
            .map(|(_, address)| (address, true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::pidfd;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn words_of_either_length_are_read() {
        let long: Vec<u8> = [6u64, 4096, 25, 0x7fff_1234_5678, 0, 0]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let short: Vec<u8> = [6u32, 4096, 25, 0xffff_1234, 0, 0]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        assert_eq!(random_in(&long), Some((0x7fff_1234_5678, false)));
        assert_eq!(random_in(&short), Some((0xffff_1234, true)));
        assert_eq!(random_in(&short[..8]), None);
    }

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
