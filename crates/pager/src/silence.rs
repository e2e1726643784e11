//! Silence: while a transfer of the swap file is late, nobody of ours does anything for a moment, so that the system's
//! own threads get a CPU.
//!
//! Linux (6.18 seen) shares a CPU between groups of processes first (of a login, a container), and then between the
//! processes of each. Whenever one of a group falls asleep or wakes up the group's part is reckoned anew, and by that
//! a group that runs is taken for further behind than it was. Where its processes never leave a CPU idle, because they
//! wait for each other by `sched_yield`, some thousands of sleeps a second are enough for it to stay the one that is
//! furthest behind, and whoever is in no group, as are the threads that bring a write to its end, does not run any more.
//! Answering faults is such sleeps, of the program's threads and of ours. Without them for a few milliseconds, the
//! time that the group has had is counted, and the others have their turn.
//!
//! A disk that is slow by itself costs a tenth of the time in which it is late.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A transfer is late when it has taken so long.
const LATE: Duration = Duration::from_millis(200);
/// Silence is kept for this part of the time that the transfer has taken...
const PART: u32 = 10;
/// ... but not longer. (The group's debt is some 10 ms on each CPU: see [`LATE`] for the shortest.)
const LENGTH_MAX: Duration = Duration::from_millis(160);
/// Then it is not kept again for as long as the transfer had taken, but not longer than this.
const APART_MAX: Duration = Duration::from_secs(2);
/// It is kept by nobody.
const OVER: u64 = 0;

/// Whether silence is kept now.
pub struct Silence {
    /// When this was made.
    start: Instant,
    /// Until when it is kept, microseconds since then, or [`OVER`].
    until_us: AtomicU64,
    /// From when on it may be kept again.
    next_us: AtomicU64,
}

impl Silence {
    /// None is kept.
    pub fn new(now: Instant) -> Silence {
        Silence {
            start: now,
            until_us: AtomicU64::new(OVER),
            next_us: AtomicU64::new(0),
        }
    }

    /// The oldest transfer of a queue has been under way since then: if it is late, silence is to be kept. Answers
    /// whether it begins now.
    pub fn consider(&self, now: Instant, since: Instant) -> bool {
        let late = now.saturating_duration_since(since);
        if late < LATE {
            return false;
        }
        let now_us = self.us(now);
        let next_us = self.next_us.load(Ordering::Relaxed);
        if now_us < next_us {
            return false;
        }
        let again = now_us + late.min(APART_MAX).as_micros() as u64;
        // Of several who find their transfers late at once, one begins.
        let order = Ordering::Relaxed;
        let begins = self
            .next_us
            .compare_exchange(next_us, again, order, order)
            .is_ok();
        if begins {
            let length = (late / PART).min(LENGTH_MAX).as_micros() as u64;
            self.until_us.store(now_us + length, order);
        }
        begins
    }

    /// Sleeps while it is kept; to be called where nothing is locked, and nobody waits for what is half done.
    pub fn keep(&self) {
        while let Some(left) = self.left(Instant::now()) {
            std::thread::sleep(left);
        }
    }

    /// How long it is still kept.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let until_us = self.until_us.load(Ordering::Relaxed);
        if until_us == OVER {
            return None;
        }
        let left_us = until_us.saturating_sub(self.us(now));
        if left_us == 0 {
            // Unless another has just begun.
            let order = Ordering::Relaxed;
            let _ = self.until_us.compare_exchange(until_us, OVER, order, order);
            return None;
        }
        Some(Duration::from_micros(left_us))
    }

    fn us(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.start).as_micros() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_kept_for_a_tenth_of_the_time_that_a_transfer_is_late() {
        let start = Instant::now();
        let ms = |ms: u64| start + Duration::from_millis(ms);
        let silence = Silence::new(start);
        let until_ms = || silence.until_us.load(Ordering::Relaxed) / 1000;
        silence.consider(ms(199), ms(0));
        assert_eq!(until_ms(), 0, "not late");
        silence.consider(ms(10_200), ms(10_000));
        assert_eq!(until_ms(), 10_220);
        // It is still late.
        silence.consider(ms(10_399), ms(10_000));
        assert_eq!(until_ms(), 10_220, "too soon");
        silence.consider(ms(10_400), ms(10_000));
        assert_eq!(until_ms(), 10_440);
        silence.consider(ms(25_000), ms(10_000));
        assert_eq!(until_ms(), 25_160, "never long");
        silence.consider(ms(26_999), ms(10_000));
        assert_eq!(until_ms(), 25_160);
        silence.consider(ms(27_000), ms(10_000));
        assert_eq!(until_ms(), 27_160);
    }

    #[test]
    fn who_keeps_it_sleeps_until_its_end() {
        let start = Instant::now();
        let silence = Silence::new(start - Duration::from_secs(1));
        assert!(silence.left(Instant::now()).is_none());
        silence.consider(start, start - Duration::from_millis(300));
        assert!(silence.left(Instant::now()).is_some());
        silence.keep();
        assert!(start.elapsed() >= Duration::from_millis(29));
        assert_eq!(silence.until_us.load(Ordering::Relaxed), OVER);
    }
}
