//! What a space's thread looks at now and then: where the program runs, and what a fault costs.

use super::Space;
use std::time::Duration;

/// Faults between two looks at where the program runs.
const FOLLOW_EVERY: u64 = 64;

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
        if self.cpu == Some(cpu) {
            return;
        }
        self.cpu = Some(cpu);
        self.shared.machine.pin(0, cpu);
        if let Some(thread) = self.agent.as_ref().and_then(|agent| agent.thread) {
            self.shared.machine.pin(thread, cpu);
        }
        self.shared.meters.follows.add(1);
    }
}
