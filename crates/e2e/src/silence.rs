//! Whether a job waits for memory, gets nowhere, and pleat has said nothing: users would wait for ever.
//!
//! A job that sleeps or waits for its input is none of that. It is one in which, at every look, some thread waits for a
//! page, and whose programs have not computed for even a hundredth of the time.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::tree;

/// So long a job may get nowhere in silence.
const PATIENCE: Duration = Duration::from_secs(10);
/// Clock ticks of computing in a second that count as getting on, of the hundred that there are.
const TICKS_PER_SECOND: u64 = 1;
/// In /proc/PID/stat, behind the name: ticks of computing.
const UTIME: usize = 11;
/// Where the kernel has a thread wait for its page.
const WAITS: &str = "handle_userfault";

/// Watches one job.
pub struct Silence {
    stderr: PathBuf,
    /// Since when it has got nowhere, and how much its programs had computed then.
    stalled: Option<(Instant, u64)>,
}

impl Silence {
    /// Of a job whose messages go to this file.
    pub fn new(stderr: PathBuf) -> Silence {
        Silence {
            stderr,
            stalled: None,
        }
    }

    /// Looks at the job of this supervisor; `true` when it has been as above for too long.
    pub fn look(&mut self, supervisor: i32) -> bool {
        let pids = tree::descendants(supervisor);
        let waits = pids.iter().any(|&pid| waits_for_memory(pid));
        let ticks = pids.iter().map(|&pid| user_ticks(pid)).sum();
        self.note(Instant::now(), waits, ticks) && !self.has_spoken()
    }

    fn note(&mut self, now: Instant, waits: bool, ticks: u64) -> bool {
        if !waits {
            self.stalled = None;
            return false;
        }
        let (since, before) = *self.stalled.get_or_insert((now, ticks));
        let stalled = now - since;
        // Fewer than before: a process has ended, which is getting on, too.
        if ticks < before || ticks - before > TICKS_PER_SECOND * (stalled.as_secs() + 1) {
            self.stalled = Some((now, ticks));
            return false;
        }
        stalled >= PATIENCE
    }

    fn has_spoken(&self) -> bool {
        let said = fs::read(&self.stderr).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        said.lines().any(|line| line.starts_with("pleat: "))
    }
}

fn waits_for_memory(pid: i32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let mut tasks = tasks.into_iter().flatten().flatten();
    tasks.any(|task| {
        let place = fs::read_to_string(task.path().join("wchan"));
        place.is_ok_and(|place| place.starts_with(WAITS))
    })
}

fn user_ticks(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = text.rfind(')').map_or("", |end| &text[end + 1..]);
    let ticks = fields.split_ascii_whitespace().nth(UTIME);
    ticks.and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether looks a second apart, each with whether somebody waits and with the ticks so far, end in a stall.
    fn stalls(looks: impl IntoIterator<Item = (bool, u64)>) -> bool {
        let mut silence = Silence::new(PathBuf::new());
        let mut now = Instant::now();
        let mut seen = false;
        for (waits, ticks) in looks {
            now += Duration::from_secs(1);
            seen |= silence.note(now, waits, ticks);
        }
        seen
    }

    #[test]
    fn who_waits_for_memory_and_does_not_compute_is_stalled() {
        assert!(stalls((0..12).map(|_| (true, 500))));
        assert!(stalls((0..12).map(|second| (true, 500 + second / 2))));
    }

    #[test]
    fn who_computes_ends_or_waits_for_something_else_is_not() {
        assert!(!stalls((0..60).map(|second| (true, 5 * second))));
        assert!(!stalls((0..60).map(|second| (second % 9 != 0, 500))));
        assert!(!stalls((0..60).map(|second| (true, 500 - second / 8))));
        assert!(!stalls((0..10).map(|_| (true, 500))));
    }

    #[test]
    fn ticks_are_read() {
        let begin = Instant::now();
        while user_ticks(std::process::id() as i32) == 0 && begin.elapsed().as_secs() < 10 {}
        assert!(user_ticks(std::process::id() as i32) > 0);
    }
}
