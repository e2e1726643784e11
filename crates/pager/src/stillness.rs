//! How long a job has done nothing: no page came back, and nothing came unasked.
//!
//! A look costs some 60 us. A thousand a second are right while a job works in a full budget, and too many for one that sleeps: its memory is
//! cold, and it should cost nothing. Who wakes up is noticed by his first fault, at the next look; until then he can take what he need not ask
//! for. So the longer he has slept, the rarer the looks, but never so rare that much could be missed.

use std::time::{Duration, Instant};

/// Nothing for so long is no sleep yet: a fork, or a fault that was put off, may wait for what only a look finds.
const GRACE: Duration = Duration::from_secs(1);
/// The next look may be so much later, one part in so many, than the job has been still beyond that.
const SHARE: u32 = 50;
/// A program that wakes up and fills memory that it need not ask for is met after so long at most.
const MOST: Duration = Duration::from_millis(20);
/// So many bytes come and go without anybody's doing: the kernel counts in batches.
const NOISE_BYTES: u64 = 256 << 10;

/// What has not changed since when.
#[derive(Debug)]
pub struct Stillness {
    since: Instant,
    faults: u64,
    foreign_bytes: i64,
    processes: usize,
}

impl Stillness {
    /// None so far.
    pub fn new(now: Instant) -> Stillness {
        Stillness {
            since: now,
            faults: 0,
            foreign_bytes: 0,
            processes: 0,
        }
    }

    /// So many faults were answered since the beginning, so much memory is in use that the engine has not given, by so many processes.
    /// Answers how long the next look has time, if nothing else wants it sooner.
    pub fn note(
        &mut self,
        now: Instant,
        faults: u64,
        foreign_bytes: i64,
        processes: usize,
    ) -> Duration {
        let is_same = self.foreign_bytes.abs_diff(foreign_bytes) <= NOISE_BYTES;
        if !is_same || (self.faults, self.processes) != (faults, processes) {
            *self = Stillness {
                since: now,
                faults,
                foreign_bytes,
                processes,
            };
        }
        let still = now.saturating_duration_since(self.since);
        (still.saturating_sub(GRACE) / SHARE).min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_sleeps_is_looked_at_less_and_less_until_it_wakes_up() {
        let start = Instant::now();
        let mut still = Stillness::new(start);
        let at = |ms: u64| start + Duration::from_millis(ms);
        let ms = Duration::from_millis;
        assert_eq!(still.note(at(0), 7, 1 << 20, 2), ms(0));
        assert_eq!(still.note(at(1000), 7, 1 << 20, 2), ms(0));
        assert_eq!(still.note(at(1100), 7, 1 << 20, 2), ms(2));
        // What the kernel counts late is no news.
        assert_eq!(still.note(at(1500), 7, (1 << 20) + 4096, 2), ms(10));
        assert_eq!(still.note(at(60_000), 7, 1 << 20, 2), MOST);
        assert_eq!(still.note(at(60_001), 8, 1 << 20, 2), ms(0));
        assert_eq!(still.note(at(61_501), 8, 1 << 20, 2), ms(10));
        assert_eq!(still.note(at(61_502), 8, 2 << 20, 2), ms(0));
        assert_eq!(still.note(at(61_503), 8, 2 << 20, 3), ms(0));
    }

    /// Slow growth is growth: what it is compared with is how things stood when the stillness began.
    #[test]
    fn who_grows_a_little_at_each_look_is_not_still() {
        let start = Instant::now();
        let mut still = Stillness::new(start);
        let longest = (0..10_000u64).map(|n| {
            let foreign = (n * 4096) as i64;
            still.note(start + Duration::from_millis(n), 0, foreign, 1)
        });
        assert_eq!(longest.max(), Some(Duration::ZERO));
    }
}
