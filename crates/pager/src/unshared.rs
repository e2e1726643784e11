//! Growth of a job between two samples of what its processes share.
//!
//! A page shared since a fork that one side writes to becomes two, without any event, and neither process's resident
//! size tells. Where the pages are write-protected, each asks first and is counted then. Of the others two figures
//! bound the growth: the anonymous memory of the whole machine, which is one read, and the
//! minor faults of the job's own processes, a read for each. The first has what others do in it: beside a job that
//! fills and frees 400 MB a server that fits was 23 times slower, for all of that counted as the server's. The
//! second has faults in it that take no memory. The smaller of the two is taken, over short intervals, so that one
//! who frees memory hides no more than is taken in a few milliseconds.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// So much growth of the machine is worth a look at who it was...
const WORTH_BYTES: u64 = 256 << 10;
/// ... and so much time: longer, and what others free could hide too much.
const INTERVAL: Duration = Duration::from_millis(5);
/// Asking takes at most this share of the time, one part in so many.
const ASKING_SHARE: u32 = 20;

/// What the job's total may have become since it was last sampled.
pub struct Unshared {
    machine: Option<AnonPages>,
    anchor: Option<Anchor>,
}

struct Anchor {
    /// The total when it was sampled.
    sampled_bytes: u64,
    /// The same with what it has grown by up to the last interval's end.
    total_bytes: u64,
    /// The machine's at the last interval's end.
    machine_bytes: u64,
    /// When that was, and how long there is to be none.
    asked: Instant,
    pause: Duration,
}

impl Unshared {
    pub fn new() -> Unshared {
        Unshared {
            machine: AnonPages::open(),
            anchor: None,
        }
    }

    /// Nothing is shared.
    pub fn reset(&mut self) {
        self.anchor = None;
    }

    /// The total was sampled just now.
    pub fn sampled(&mut self, total_bytes: u64) {
        self.anchor = Some(Anchor {
            sampled_bytes: total_bytes,
            total_bytes,
            machine_bytes: self.machine_bytes(),
            asked: Instant::now(),
            pause: Duration::ZERO,
        });
    }

    /// What the total may be now, if it was ever sampled. No more than `most_bytes` can have become two without being
    /// seen; `faults` answers how many minor faults the processes had, of which that is, since it was last called.
    pub fn total_bytes(&mut self, most_bytes: u64, faults: impl FnOnce() -> u64) -> Option<u64> {
        let machine = self.machine_bytes();
        let anchor = self.anchor.as_mut()?;
        let grown = anchor.note(Instant::now(), machine, faults);
        Some(grown.min(anchor.sampled_bytes + most_bytes))
    }

    fn machine_bytes(&self) -> u64 {
        let machine = self.machine.as_ref().and_then(AnonPages::bytes);
        machine.unwrap_or(0)
    }
}

impl Anchor {
    fn note(&mut self, now: Instant, machine_bytes: u64, faults: impl FnOnce() -> u64) -> u64 {
        let grown = machine_bytes.saturating_sub(self.machine_bytes);
        let since = now.saturating_duration_since(self.asked);
        let is_due = grown >= WORTH_BYTES || since >= INTERVAL;
        if !is_due || since < self.pause {
            return self.total_bytes + grown;
        }
        let begin = Instant::now();
        self.total_bytes += grown.min(faults() * PAGE);
        self.machine_bytes = machine_bytes;
        self.pause = begin.elapsed() * ASKING_SHARE;
        self.asked = now;
        self.total_bytes
    }
}

/// Anonymous memory of the whole machine.
struct AnonPages(File);

impl AnonPages {
    fn open() -> Option<AnonPages> {
        File::open("/proc/meminfo").ok().map(AnonPages)
    }

    fn bytes(&self) -> Option<u64> {
        let mut text = [0u8; 2048];
        let len = self.0.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..len]).ok()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("AnonPages:"))?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
        Some(kib << 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// What the total is taken for, in MiB above the sample, when the machine has so much more, and the job had so many
    /// MiB of faults, at looks 10 ms apart.
    fn totals(looks: &[(u64, u64)]) -> Vec<u64> {
        let mut now = Instant::now();
        let mut anchor = Anchor {
            sampled_bytes: 100 * MIB,
            total_bytes: 100 * MIB,
            machine_bytes: 1000 * MIB,
            asked: now,
            pause: Duration::ZERO,
        };
        let looks = looks.iter().map(|(machine, faults)| {
            now += 2 * INTERVAL;
            let faults = || faults * MIB / PAGE;
            (anchor.note(now, (1000 + machine) * MIB, faults) - 100 * MIB) / MIB
        });
        looks.collect()
    }

    #[test]
    fn what_others_take_is_not_the_jobs() {
        assert_eq!(totals(&[(400, 0), (0, 0), (400, 1)]), [0, 0, 1]);
    }

    #[test]
    fn faults_that_take_no_memory_are_no_growth() {
        assert_eq!(totals(&[(0, 50), (2, 50)]), [0, 2]);
    }

    #[test]
    fn who_frees_memory_hides_growth_for_one_interval_only() {
        assert_eq!(totals(&[(400, 0), (0, 3), (5, 5)]), [0, 0, 5]);
    }

    #[test]
    fn between_two_intervals_growth_of_the_machine_counts_at_once() {
        let now = Instant::now();
        let mut anchor = Anchor {
            sampled_bytes: 0,
            total_bytes: 0,
            machine_bytes: 0,
            asked: now,
            pause: INTERVAL,
        };
        let nobody = || -> u64 { panic!("too early") };
        assert_eq!(anchor.note(now, 9 * MIB, nobody), 9 * MIB);
        assert_eq!(anchor.note(now + INTERVAL, 9 * MIB, || 0), 0);
    }
}
