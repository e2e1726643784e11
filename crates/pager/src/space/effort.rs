//! What a space's thread looks at now and then: where the program runs, and what a fault costs.

use super::Space;
use pleat_sys::process::ANY_CPU;
use std::time::Duration;

/// Faults between two looks at where the program runs.
const FOLLOW_EVERY: u64 = 64;

/// When so many looks in a row have found the program elsewhere, it is not followed...
const MOVES: u32 = 4;
/// ... at the next looks, so many.
const PAUSE: u32 = 256;

/// Where this thread is, to be where the program is.
///
/// A program that is alone on many CPUs moves at each wake-up, and so do threads on many CPUs that
/// fault in turn: whatever CPU this thread is kept on is not theirs any more. The scheduler then chooses better.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pursuit {
    /// The CPU on which this thread is kept.
    cpu: Option<u32>,
    /// Looks in a row that found the program on another.
    moves: u32,
    /// Looks at which it is not followed any more.
    pause: u32,
}

impl Pursuit {
    /// The program was seen on a CPU, of so many. Answers where this thread is to be from now on, if that changes.
    fn saw(&mut self, cpu: u32, cpus: usize) -> Option<u32> {
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        if self.cpu == Some(cpu) {
            self.moves = 0;
            return None;
        }
        self.moves += 1;
        // On two CPUs whatever it is kept on is right every other time.
        if self.moves > MOVES && cpus > 2 {
            *self = Pursuit {
                pause: PAUSE,
                ..Pursuit::default()
            };
            return Some(ANY_CPU);
        }
        self.cpu = Some(cpu);
        Some(cpu)
    }
}

/// What this thread has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Effort {
    /// CPU time, without that spent on looking for the end of a read.
    cpu_ns: u64,
    /// Times a fault was dealt with: one for which a page is read is met twice.
    met: u64,
}

impl Space {
    /// Called for every fault, with the thread that has met it.
    pub(super) fn look_around(&mut self, thread: u32) {
        if self.answered.is_multiple_of(FOLLOW_EVERY) {
            self.follow(thread);
            self.note_effort();
        }
    }

    /// Tells what a fault costs here, now and then.
    fn note_effort(&mut self) {
        let now = Effort {
            cpu_ns: self
                .shared
                .machine
                .own_cpu_ns()
                .saturating_sub(self.reads.spun_ns()),
            met: self.answered + self.reads.begun(),
        };
        let before = std::mem::replace(&mut self.effort, now);
        let faults = now.met - before.met;
        if before.met > 0 && faults > 0 {
            let took = Duration::from_nanos(now.cpu_ns.saturating_sub(before.cpu_ns));
            self.shared.pace.answered(took, faults);
        }
    }

    /// Keeps this thread, and the agent, on the CPU of the faulting thread: a wake-up across CPUs
    /// costs ten times the rest of the fault.
    fn follow(&mut self, thread: u32) {
        let Ok(cpu) = self.shared.machine.last_cpu(thread as i32) else {
            return;
        };
        self.shared.crowd.saw(self.link.id, cpu, self.now());
        let Some(cpu) = self.pursuit.saw(cpu, self.shared.cpus) else {
            return;
        };
        self.shared.machine.pin(0, cpu);
        if let Some(thread) = self.agent.as_ref().and_then(|agent| agent.thread) {
            self.shared.machine.pin(thread, cpu);
        }
        self.shared.meters.follows.add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a thread does about a program seen on these CPUs, of so many.
    fn follow(pursuit: &mut Pursuit, seen: &[u32], cpus: usize) -> Vec<Option<u32>> {
        let seen = seen.iter();
        seen.map(|&cpu| pursuit.saw(cpu, cpus)).collect()
    }

    #[test]
    fn a_program_that_stays_for_a_while_is_followed() {
        let steps = follow(&mut Pursuit::default(), &[3, 3, 5, 5, 3, 4, 4, 5, 5], 16);
        let moves = [3, 5, 3, 4, 5].map(Some);
        assert_eq!(
            steps
                .into_iter()
                .filter(Option::is_some)
                .collect::<Vec<_>>(),
            moves
        );
    }

    #[test]
    fn one_that_is_elsewhere_at_each_look_is_not_followed_for_a_while() {
        let mut pursuit = Pursuit::default();
        let steps = follow(&mut pursuit, &[0, 1, 2, 3, 4, 5], 16);
        let expected = [Some(0), Some(1), Some(2), Some(3), Some(ANY_CPU), None];
        assert_eq!(steps, expected);
        for cpu in 1..PAUSE {
            assert_eq!(pursuit.saw(cpu % 16, 16), None);
        }
        assert_eq!(pursuit.saw(7, 16), Some(7));
        assert_eq!(pursuit.saw(7, 16), None);
    }

    #[test]
    fn on_two_cpus_it_is_followed_wherever_it_goes() {
        let steps = follow(&mut Pursuit::default(), &[0, 1].repeat(9), 2);
        assert!(steps.iter().all(|step| step.is_some_and(|cpu| cpu < 2)));
    }
}
