//! When a folding thread stays awake, though it has nothing to fold: while faults are frequent, and as
//! long as nobody else wants its CPU.
//!
//! A thread that sleeps leaves its CPU idle, and the scheduler moves a program to an idle CPU when it wakes
//! up, that is after every fault; away from the thread that answers its faults, which then costs two wake-ups
//! across CPUs: 50 us instead of 10 where CPUs are virtual. It also spares the wake-up of this thread.

use pleat_sys::procfs::CpuTimeReader;
use std::time::{Duration, Instant};

/// How long it stays awake after the last fault, or the last page folded.
const STAY: Duration = Duration::from_millis(2);
/// Between two looks at whether others want the CPU.
const LOOK_EVERY: Duration = Duration::from_millis(4);
/// They do, when it has waited for its CPU this part of the time, one in so many.
const WAITED_PART: u32 = 3;
/// How long it then sleeps when there is nothing to do: at first, and at most.
const REST_MIN: Duration = Duration::from_millis(20);
const REST_MAX: Duration = Duration::from_secs(1);

/// Decides for one thread.
pub struct Vigil {
    /// How long this thread was ready to run and did not; `None` on a machine that does not tell.
    reader: Option<CpuTimeReader>,
    /// Faults at the last look, and when there was anything to do last.
    faults: u64,
    active: Instant,
    /// When it was last asked how long it had waited, and the answer.
    looked: (Instant, u64),
    /// Until when it sleeps because others want the CPU, and how long the next time.
    rests_until: Instant,
    rest: Duration,
}

impl Vigil {
    /// Of the calling thread.
    pub fn new(now: Instant) -> Vigil {
        Vigil {
            reader: CpuTimeReader::open_own().ok(),
            faults: 0,
            active: now,
            looked: (now, 0),
            rests_until: now,
            rest: REST_MIN,
        }
    }

    /// There was something to fold.
    pub fn worked(&mut self, now: Instant) {
        self.active = now;
    }

    /// Whether to stay awake, `faults` having been answered so far.
    pub fn stays(&mut self, now: Instant, faults: u64) -> bool {
        if faults != self.faults {
            (self.faults, self.active) = (faults, now);
        }
        if now < self.rests_until || now - self.active > STAY {
            return false;
        }
        let (at, _) = self.looked;
        if now - at >= LOOK_EVERY {
            let waited_ns = self.reader.as_ref().and_then(|reader| reader.waited().ok());
            self.weigh(now, waited_ns.unwrap_or(0));
        }
        now >= self.rests_until
    }

    /// So long it has waited for its CPU until now.
    fn weigh(&mut self, now: Instant, waited_ns: u64) {
        let (at, before) = std::mem::replace(&mut self.looked, (now, waited_ns));
        let waited = Duration::from_nanos(waited_ns.saturating_sub(before));
        if waited > (now - at) / WAITED_PART {
            self.rests_until = now + self.rest;
            self.rest = (self.rest * 2).min(REST_MAX);
        } else if now - self.rests_until > self.rest {
            self.rest = REST_MIN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn vigil(start: Instant) -> Vigil {
        let mut vigil = Vigil::new(start);
        vigil.reader = None;
        vigil
    }

    #[test]
    fn it_stays_awake_while_faults_come_and_a_little_longer() {
        let start = Instant::now();
        let mut vigil = vigil(start);
        assert!(vigil.stays(start + ms(10), 1));
        assert!(vigil.stays(start + ms(11), 1));
        assert!(!vigil.stays(start + ms(13), 1));
        assert!(vigil.stays(start + ms(14), 2));
        vigil.worked(start + ms(20));
        assert!(vigil.stays(start + ms(21), 2));
    }

    #[test]
    fn it_rests_ever_longer_while_others_want_its_cpu() {
        let start = Instant::now();
        let mut vigil = vigil(start);
        let wait = |ms: u64| ms * 1_000_000;
        vigil.weigh(start + ms(8), wait(4));
        assert!(!vigil.stays(start + ms(9), 1));
        assert!(vigil.stays(start + ms(29), 2));
        // Half the time again, soon after: twice as long.
        vigil.weigh(start + ms(40), wait(20));
        assert!(!vigil.stays(start + ms(79), 3));
        assert!(vigil.stays(start + ms(81), 4));
        // Nobody for a while: as at first.
        vigil.weigh(start + ms(200), wait(1));
        assert_eq!(vigil.rest, REST_MIN);
    }
}
