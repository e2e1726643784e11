//! What coming back and going costs on this machine, as running means: sizing policies weigh it.

use pleat_policy::Costs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A running mean moves by one part in so many.
const WEIGHT: u64 = 32;
/// The engine is told after so many events.
const EVERY: u64 = 256;
/// A fault as the program sees it, without what is done to make the page: the switch to the supervisor and
/// back, and putting the page in place (measured with nothing else: 4.7 to 9 us on the same CPU).
const SWITCH_NS: u64 = 7_000;
/// Taking a page away, by the agent: what the program loses even when another CPU compresses. Unless the
/// driver says what it takes.
const TAKE_NS: u64 = 2_000;

/// The means, in nanoseconds per page. Threads raise them without a lock: a lost update is no loss.
#[derive(Debug)]
pub struct Pace {
    hit: AtomicU64,
    read: AtomicU64,
    write: AtomicU64,
    fold: AtomicU64,
    take: AtomicU64,
    events: AtomicU64,
    /// Whether pages are compressed on another CPU than the program's.
    beside: bool,
}

impl Pace {
    /// Before anything was measured.
    pub fn new(beside: bool) -> Pace {
        let costs = Costs::default();
        Pace {
            hit: AtomicU64::new(costs.decompress_ns),
            read: AtomicU64::new(costs.read_ns),
            write: AtomicU64::new(costs.write_ns),
            fold: AtomicU64::new(costs.compress_ns),
            take: AtomicU64::new(TAKE_NS),
            events: AtomicU64::new(0),
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
    }

    /// So many pages were written to the swap file.
    pub fn written(&self, took: Duration, pages: u64) {
        self.note(&self.write, took, pages);
    }

    /// So many pages were compressed.
    pub fn folded(&self, took: Duration, pages: u64) {
        self.note(&self.fold, took, pages);
    }

    /// So many pages were taken away at once.
    pub fn taken(&self, took: Duration, pages: u64) {
        self.note(&self.take, took, pages);
    }

    fn note(&self, mean: &AtomicU64, took: Duration, pages: u64) {
        let one = took.as_nanos() as u64 / pages.max(1);
        let before = mean.load(Ordering::Relaxed);
        mean.store((before * (WEIGHT - 1) + one) / WEIGHT, Ordering::Relaxed);
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// The means, when it is time to tell them.
    pub fn due(&self) -> Option<Costs> {
        if self.events.load(Ordering::Relaxed) < EVERY {
            return None;
        }
        self.events.store(0, Ordering::Relaxed);
        let mean = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let fold_ns = if self.beside { 0 } else { mean(&self.fold) };
        Some(Costs {
            compress_ns: mean(&self.take) + fold_ns,
            decompress_ns: SWITCH_NS + mean(&self.hit),
            read_ns: SWITCH_NS + mean(&self.read),
            write_ns: mean(&self.write),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_told_now_and_then() {
        let pace = Pace::new(true);
        assert_eq!(pace.due(), None);
        for _ in 0..EVERY {
            pace.read(Duration::from_millis(4), 4);
            pace.filled(Duration::from_micros(32), 16);
        }
        let costs = pace.due().unwrap();
        assert!((990_000..1_010_000).contains(&costs.read_ns), "{costs:?}");
        assert!((8_900..9_600).contains(&costs.decompress_ns), "{costs:?}");
        assert_eq!(costs.compress_ns, TAKE_NS);
        assert_eq!(pace.due(), None);
    }

    #[test]
    fn on_one_cpu_the_program_waits_for_compression_too() {
        let pace = Pace::new(false);
        for _ in 0..EVERY {
            pace.folded(Duration::from_micros(64 * 5), 64);
        }
        let costs = pace.due().unwrap();
        assert!((6_900..7_200).contains(&costs.compress_ns), "{costs:?}");
    }
}
