//! Whether the job's processes leave a CPU to this supervisor, as far as their faults tell.
//!
//! Now and then a thread that has faulted is asked on which CPU it runs (`follow` in `space/effort.rs`). Processes
//! seen on different CPUs within a moment are a crowd when they leave fewer CPUs than this supervisor has threads that stay
//! awake: on two CPUs two of them, on 16 twelve. What is done beside one is then done at the cost of another.
//! One process that the scheduler moves to and fro is none, and neither are its threads: their faults are answered one
//! after the other, so that most of them wait.

use pleat_types::SpaceId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// CPUs told apart; those with larger numbers share places with smaller ones.
const PLACES: usize = 64;
/// So long a process is taken to be where it was seen: a job with fewer faults has its CPUs to itself anyway.
const RECENT: Duration = Duration::from_millis(100);

/// Who was seen where last.
#[derive(Debug)]
pub struct Crowd {
    start: Instant,
    /// So many processes on different CPUs are one.
    least: usize,
    /// By CPU: the space in the upper half, in the lower the milliseconds since the start, and one. 0: nobody.
    seen: [AtomicU64; PLACES],
}

impl Crowd {
    /// Nobody was seen on a machine with so many CPUs, of which so many are to be left.
    pub fn new(start: Instant, (cpus, left): (usize, usize)) -> Crowd {
        Crowd {
            start,
            least: cpus.saturating_sub(left).clamp(2, PLACES),
            seen: [const { AtomicU64::new(0) }; PLACES],
        }
    }

    /// A process runs on that CPU.
    pub fn saw(&self, space: SpaceId, cpu: u32, now: Instant) {
        let at = self.time(now);
        let seen = u64::from(space.0) << 32 | u64::from(at);
        self.seen[cpu as usize % PLACES].store(seen, Ordering::Relaxed);
    }

    /// Whether so many different processes were seen on different CPUs lately.
    pub fn is_there(&self, now: Instant) -> bool {
        let (now, recent) = (self.time(now), RECENT.as_millis() as u32);
        let seen = self.seen.iter().map(|seen| seen.load(Ordering::Relaxed));
        let lately = seen.filter(|&seen| seen != 0 && now.wrapping_sub(seen as u32) <= recent);
        let (mut spaces, mut count) = ([0; PLACES], 0);
        for space in lately.map(|seen| (seen >> 32) as u32) {
            if !spaces[..count].contains(&space) {
                spaces[count] = space;
                count += 1;
                if count == self.least {
                    return true;
                }
            }
        }
        false
    }

    /// Milliseconds, and one; they go round after weeks.
    fn time(&self, now: Instant) -> u32 {
        (now - self.start).as_millis() as u32 | 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn two_processes_on_two_cpus_are_a_crowd_for_a_moment() {
        let start = Instant::now();
        let crowd = Crowd::new(start, (2, 1));
        crowd.saw(SpaceId(7), 0, ms(start, 1));
        assert!(!crowd.is_there(ms(start, 2)));
        crowd.saw(SpaceId(8), 1, ms(start, 50));
        assert!(crowd.is_there(ms(start, 60)));
        assert!(!crowd.is_there(ms(start, 110)), "the first may have ended");
    }

    #[test]
    fn one_process_on_two_cpus_and_two_on_one_are_none() {
        let start = Instant::now();
        let crowd = Crowd::new(start, (2, 1));
        crowd.saw(SpaceId(7), 0, ms(start, 1));
        crowd.saw(SpaceId(7), 1, ms(start, 2));
        assert!(!crowd.is_there(ms(start, 3)));
        let crowd = Crowd::new(start, (2, 1));
        crowd.saw(SpaceId(7), 1, ms(start, 1));
        crowd.saw(SpaceId(8), 1, ms(start, 2));
        assert!(!crowd.is_there(ms(start, 3)));
    }

    #[test]
    fn processes_that_leave_cpus_to_us_are_none() {
        let start = Instant::now();
        let crowd = Crowd::new(start, (16, 4));
        for nth in 0..11 {
            crowd.saw(SpaceId(nth), nth, ms(start, 1));
            crowd.saw(SpaceId(nth), nth + 16, ms(start, 1));
        }
        assert!(!crowd.is_there(ms(start, 2)), "5 CPUs are left");
        crowd.saw(SpaceId(11), 11, ms(start, 1));
        assert!(crowd.is_there(ms(start, 2)));
    }

    #[test]
    fn two_processes_are_the_least_on_any_machine() {
        let start = Instant::now();
        for machine in [(1, 1), (2, 1), (3, 1)] {
            let crowd = Crowd::new(start, machine);
            crowd.saw(SpaceId(7), 0, ms(start, 1));
            assert!(!crowd.is_there(ms(start, 2)));
            crowd.saw(SpaceId(8), 1, ms(start, 1));
            assert!(crowd.is_there(ms(start, 2)));
        }
    }
}
