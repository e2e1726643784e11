//! Growth of a job between two samples of what its processes share.
//!
//! A page shared since a fork that one side writes to becomes two, without any event, and neither process's resident
//! size tells. Where the pages are write-protected, each asks first and is counted then. Of the others two figures
//! bound the growth: the anonymous memory of the whole machine, which is one read, and the
//! minor faults of the job's own processes, a read for each. The first has what others do in it: beside a job that
//! fills and frees 400 MB a server that fits was 23 times slower, for all of that counted as the server's. The
//! second has faults in it that take no memory. The smaller of the two is taken, over short intervals, so that one
//! who frees memory hides no more than is taken in a few milliseconds.
//!
//! So it is with shared memory: a page that comes to a process may be new, or another's for long. There can be no more
//! new ones than the machine has more.

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
    machine: Option<Machine>,
    anchor: Option<Anchor>,
    /// New shared memory since the last sample.
    common: Option<Anchor>,
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
            machine: Machine::open(),
            anchor: None,
            common: None,
        }
    }

    /// Nothing is shared.
    pub fn reset(&mut self) {
        self.anchor = None;
    }

    /// The total was sampled just now.
    pub fn sampled(&mut self, total_bytes: u64) {
        let machine = self.machine_bytes(ANONYMOUS);
        self.anchor = Some(Anchor::new(total_bytes, machine));
    }

    /// What is new of shared memory is counted from here on.
    pub fn sampled_common(&mut self) {
        self.common = Some(Anchor::new(0, self.machine_bytes(SHARED)));
    }

    /// How much may be new; `come` answers how many bytes have come to processes since it was last called.
    pub fn new_common_bytes(&mut self, come: impl FnOnce() -> u64) -> Option<u64> {
        let machine = self.machine_bytes(SHARED);
        let common = self.common.as_mut()?;
        Some(common.note(Instant::now(), machine, come))
    }

    /// What the total may be now, if it was ever sampled. No more than `most_bytes` can have become two without being
    /// seen; `faults` answers how many minor faults the processes had, of which that is, since it was last called.
    pub fn total_bytes(&mut self, most_bytes: u64, faults: impl FnOnce() -> u64) -> Option<u64> {
        let machine = self.machine_bytes(ANONYMOUS);
        let anchor = self.anchor.as_mut()?;
        let grown = anchor.note(Instant::now(), machine, || faults() * PAGE);
        Some(grown.min(anchor.sampled_bytes + most_bytes))
    }

    fn machine_bytes(&self, kind: &str) -> u64 {
        let machine = self.machine.as_ref();
        let bytes = machine.and_then(|machine| machine.bytes(kind));
        bytes.unwrap_or(0)
    }
}

impl Anchor {
    fn new(total_bytes: u64, machine_bytes: u64) -> Anchor {
        Anchor {
            sampled_bytes: total_bytes,
            total_bytes,
            machine_bytes,
            asked: Instant::now(),
            pause: Duration::ZERO,
        }
    }

    /// `own` answers how much the job can have taken since it was last called.
    fn note(&mut self, now: Instant, machine_bytes: u64, own: impl FnOnce() -> u64) -> u64 {
        let grown = machine_bytes.saturating_sub(self.machine_bytes);
        let since = now.saturating_duration_since(self.asked);
        let is_due = grown >= WORTH_BYTES || since >= INTERVAL;
        if !is_due || since < self.pause {
            return self.total_bytes + grown;
        }
        let begin = Instant::now();
        self.total_bytes += grown.min(own());
        self.machine_bytes = machine_bytes;
        self.pause = begin.elapsed() * ASKING_SHARE;
        self.asked = now;
        self.total_bytes
    }
}

const ANONYMOUS: &str = "AnonPages:";
const SHARED: &str = "Shmem:";

/// Memory of the whole machine.
struct Machine(File);

impl Machine {
    fn open() -> Option<Machine> {
        File::open("/proc/meminfo").ok().map(Machine)
    }

    fn bytes(&self, kind: &str) -> Option<u64> {
        let mut text = [0u8; 2048];
        let len = self.0.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..len]).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
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
        let mut anchor = Anchor::new(100 * MIB, 1000 * MIB);
        let looks = looks.iter().map(|(machine, faults)| {
            now += 2 * INTERVAL;
            let own = || faults * MIB;
            (anchor.note(now, (1000 + machine) * MIB, own) - 100 * MIB) / MIB
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
        let mut anchor = Anchor::new(0, 0);
        (anchor.asked, anchor.pause) = (now, INTERVAL);
        let nobody = || -> u64 { panic!("too early") };
        assert_eq!(anchor.note(now, 9 * MIB, nobody), 9 * MIB);
        assert_eq!(anchor.note(now + INTERVAL, 9 * MIB, || 0), 0);
    }
}
