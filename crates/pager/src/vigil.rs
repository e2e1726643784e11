//! When a folding thread stays awake, though it has nothing to fold: while faults are frequent.
//!
//! A thread that sleeps leaves its CPU idle, and the scheduler moves a program to an idle CPU when it wakes
//! up, that is after every fault; away from the thread that answers its faults, which then costs two wake-ups
//! across CPUs: 50 us instead of 10 where CPUs are virtual. It also spares the wake-up of this thread.
//!
//! Whoever else wants the CPU has it: between two looks the thread yields. That is not enough where the job has
//! processes for all CPUs: there it sleeps (`crowd.rs`). (Resting where it was found to have
//! waited for its CPU did not do: it waits for threads of ours as well, and a program that swaps took half as
//! long again.)

use std::time::{Duration, Instant};

/// How long it stays awake after the last fault, or the last page folded.
const STAY: Duration = Duration::from_millis(2);
/// Rounds of waiting between two looks.
const ROUNDS: u32 = 200;

/// Decides for one thread.
pub struct Vigil {
    /// Faults at the last look, and when there was anything to do last.
    faults: u64,
    active: Instant,
}

impl Vigil {
    /// Begins.
    pub fn new(now: Instant) -> Vigil {
        Vigil {
            faults: 0,
            active: now,
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
        now - self.active <= STAY
    }

    /// Passes a few microseconds, or less when it is called.
    pub fn wait(&self, is_called: impl Fn() -> bool) {
        for _ in 0..ROUNDS {
            if is_called() {
                return;
            }
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_awake_while_there_is_something_to_do_and_a_little_longer() {
        let start = Instant::now();
        let ms = |ms: u64| start + Duration::from_millis(ms);
        let mut vigil = Vigil::new(start);
        assert!(vigil.stays(ms(10), 1));
        assert!(vigil.stays(ms(11), 1));
        assert!(!vigil.stays(ms(13), 1));
        assert!(vigil.stays(ms(14), 2));
        vigil.worked(ms(20));
        assert!(vigil.stays(ms(21), 2));
        assert!(!vigil.stays(ms(23), 2));
    }
}
