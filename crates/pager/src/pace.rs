//! What coming back and going costs on this machine, as running means: sizing policies weigh it.

use pleat_policy::Costs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A running mean moves by one part in so many.
const WEIGHT: u64 = 32;
/// Shares of the time are counted in these parts.
const WHOLE: u64 = 1 << 16;
/// The engine is told after so many events.
const EVERY: u64 = 256;
/// A fault as the program sees it, without what is done to make the page: the switch to whoever answers and back, and
/// putting the page in place. Unless the driver says what answering takes.
const SWITCH_NS: u64 = 7_000;
/// Taking a page away: what the program loses even when another CPU compresses. Unless the driver says what that or
/// answering takes.
const TAKE_NS: u64 = 2_000;
/// The program's own part of a fault, one in so many of what answering it takes: entering the kernel, and being put to sleep and woken.
/// (Of 12 us per miss, 7.8 were the answering thread's, 1.7 the program's and 2.3 the agent's.)
const OWN_PART: u64 = 4;
/// Taking a page away, by the agent, in hundredths of the same.
const TAKE_PERCENT: u64 = 30;

/// The means, in nanoseconds per page. Threads raise them without a lock: a lost update is no loss.
#[derive(Debug)]
pub struct Pace {
    hit: AtomicU64,
    read: AtomicU64,
    write: AtomicU64,
    fold: AtomicU64,
    /// These two are 0 while nobody has said.
    take: AtomicU64,
    answer: AtomicU64,
    events: AtomicU64,
    /// Time that reads took, in all.
    waited: AtomicU64,
    /// When the means were told last, and what `waited` was then.
    told: Mutex<(Instant, u64)>,
    /// Share of the time for which the program waited for reads: a running mean.
    waiting: AtomicU64,
    /// Whether pages may be compressed on another CPU than the program's.
    beside: bool,
}

impl Pace {
    /// Before anything was measured.
    pub fn new(beside: bool, now: Instant) -> Pace {
        let costs = Costs::default();
        Pace {
            hit: AtomicU64::new(costs.decompress_ns),
            read: AtomicU64::new(costs.read_ns),
            write: AtomicU64::new(costs.write_ns),
            fold: AtomicU64::new(costs.compress_ns),
            take: AtomicU64::new(0),
            answer: AtomicU64::new(0),
            events: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            told: Mutex::new((now, 0)),
            waiting: AtomicU64::new(0),
            beside,
        }
    }

    /// So many pages were made from what is in memory, for one fault; put in place they are not yet.
    pub fn filled(&self, took: Duration, pages: u64) {
        self.note(&self.hit, took, pages);
    }

    /// So many pages were read from the swap file at once.
    pub fn read(&self, took: Duration, pages: u64) {
        self.note(&self.read, took, pages);
        self.waited
            .fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// So many pages were written to the swap file.
    pub fn written(&self, took: Duration, pages: u64) {
        self.note(&self.write, took, pages);
    }

    /// So many pages were compressed, which took so much CPU time.
    pub fn folded(&self, took: Duration, pages: u64) {
        self.note(&self.fold, took, pages);
    }

    /// So many faults were met, those that need a read twice, which took so much CPU time, all told.
    pub fn answered(&self, took: Duration, faults: u64) {
        self.note(&self.answer, took, faults);
    }

    /// So many pages were taken away at once.
    pub fn taken(&self, took: Duration, pages: u64) {
        self.note(&self.take, took, pages);
    }

    fn note(&self, mean: &AtomicU64, took: Duration, pages: u64) {
        let one = took.as_nanos() as u64 / pages.max(1);
        let next = match mean.load(Ordering::Relaxed) {
            0 => one,
            before => (before * (WEIGHT - 1) + one) / WEIGHT,
        };
        mean.store(next, Ordering::Relaxed);
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// The means, when it is time to tell them. `beside`: a CPU is left for compressing.
    pub fn due(&self, beside: bool, now: Instant) -> Option<Costs> {
        if self.events.load(Ordering::Relaxed) < EVERY {
            return None;
        }
        self.events.store(0, Ordering::Relaxed);
        let mean = |of: &AtomicU64| of.load(Ordering::Relaxed);
        self.notice_waiting(now);
        let fold_ns = match self.beside && beside {
            true => 0,
            false => mean(&self.fold),
        };
        // What answering takes has the making of the page in it.
        let (read_faults_ns, hit_ns, take_ns) = match mean(&self.answer) {
            0 => (SWITCH_NS, SWITCH_NS + mean(&self.hit), TAKE_NS),
            answer => {
                let fault = answer + answer / OWN_PART;
                // A fault that needs a read is met once to begin it, and again when it has ended.
                (2 * fault, fault, answer * TAKE_PERCENT / 100)
            }
        };
        let take_ns = match mean(&self.take) {
            0 => take_ns,
            measured => measured,
        };
        Some(Costs {
            compress_ns: take_ns + fold_ns,
            decompress_ns: hit_ns,
            read_ns: read_faults_ns + mean(&self.read),
            write_ns: mean(&self.write) * mean(&self.waiting) / WHOLE,
        })
    }

    /// Nobody waits for a write as such: it takes the device's time, and that of a program as far as that waits
    /// for the device.
    fn notice_waiting(&self, now: Instant) {
        let Ok(mut told) = self.told.try_lock() else {
            return;
        };
        let waited = self.waited.load(Ordering::Relaxed);
        let (since, before) = std::mem::replace(&mut *told, (now, waited));
        let passed = (now.saturating_duration_since(since).as_nanos() as u64).max(1);
        let share = ((waited - before).saturating_mul(WHOLE) / passed).min(WHOLE);
        let mean = self.waiting.load(Ordering::Relaxed);
        let next = (mean * (WEIGHT - 1) + share).div_ceil(WEIGHT);
        self.waiting.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_told_now_and_then() {
        let pace = Pace::new(true, Instant::now());
        assert_eq!(pace.due(true, Instant::now()), None);
        for _ in 0..EVERY {
            pace.read(Duration::from_millis(4), 4);
            pace.filled(Duration::from_micros(32), 16);
        }
        let costs = pace.due(true, Instant::now()).unwrap();
        assert!((990_000..1_010_000).contains(&costs.read_ns), "{costs:?}");
        assert!((8_900..9_600).contains(&costs.decompress_ns), "{costs:?}");
        assert_eq!(costs.compress_ns, TAKE_NS);
        assert_eq!(pace.due(true, Instant::now()), None);
    }

    #[test]
    fn what_answering_takes_is_most_of_what_a_fault_costs() {
        let pace = Pace::new(true, Instant::now());
        for _ in 0..EVERY {
            pace.answered(Duration::from_micros(8 * 64), 64);
            pace.filled(Duration::from_micros(1), 1);
            pace.read(Duration::from_micros(50), 1);
        }
        let costs = pace.due(true, Instant::now()).unwrap();
        assert_eq!(costs.decompress_ns, 10_000);
        assert_eq!(costs.compress_ns, 2_400);
        assert!((69_000..=70_000).contains(&costs.read_ns), "{costs:?}");
    }

    #[test]
    fn writes_cost_nothing_while_nobody_waits_for_the_device() {
        let pace = Pace::new(true, Instant::now());
        for _ in 0..EVERY {
            pace.written(Duration::from_micros(50 * 64), 64);
        }
        assert!(pace.due(true, Instant::now()).unwrap().write_ns < 10);
        // Longer than the test takes: somebody waits all the time.
        for _ in 0..200 * EVERY {
            pace.read(Duration::from_millis(100), 1);
            pace.due(true, Instant::now());
        }
        (0..EVERY).for_each(|_| pace.read(Duration::from_millis(100), 1));
        let costs = pace.due(true, Instant::now()).unwrap();
        assert!((45_000..=50_000).contains(&costs.write_ns), "{costs:?}");
    }

    #[test]
    fn on_one_cpu_the_program_waits_for_compression_too() {
        let pace = Pace::new(false, Instant::now());
        for _ in 0..EVERY {
            pace.folded(Duration::from_micros(64 * 5), 64);
        }
        let costs = pace.due(true, Instant::now()).unwrap();
        assert!((6_900..7_200).contains(&costs.compress_ns), "{costs:?}");
        let pace = Pace::new(true, Instant::now());
        (0..EVERY).for_each(|_| pace.folded(Duration::from_micros(5), 1));
        let costs = pace.due(false, Instant::now()).unwrap();
        assert!(costs.compress_ns > 6_900, "others use it: {costs:?}");
    }
}
