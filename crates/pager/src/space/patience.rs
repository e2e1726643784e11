//! How long the control lock of a process is waited for, and its answer to a command where nothing goes on without.
//!
//! An agent has it for the time of a few system calls, in which it never sleeps. It may be held up all the same, with
//! the lock: its process is stopped, or there is no CPU for it. So time by the clock says nothing. What counts is how
//! often the agent was seen asleep, or about to run, while the lock was taken all along. One that is stopped has its command
//! revoked (`revoke.rs`).

use crate::ports::Machine;
use crate::shared::AgentLink;
use pleat_sys::procfs::State;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Looks, a tenth of a second apart, at which an agent may be asleep with its lock taken.
const ASLEEP_MAX: u32 = 50;
/// At which it may be asleep with a command not answered: it may itself wait for threads of its program for a while
/// (`agent/src/frozen.rs`).
const SILENT_MAX: u32 = 400;
/// At which it may be about to run: a machine may have much else to do.
const RUNNING_MAX: u32 = 600;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What was seen of an agent that is waited for.
pub struct Patience {
    asleep_max: u32,
    asleep: Cell<u32>,
    running: Cell<u32>,
    looked: Cell<Instant>,
    /// At the last look it was stopped.
    is_held: Cell<bool>,
}

/// What an agent is doing; `pid` is its process. Of a thread that is not known it cannot be told whether it has a reason to
/// sleep.
pub fn state_of(machine: &dyn Machine, agent: &AgentLink, pid: i32) -> State {
    match agent.thread {
        Some(thread) => machine.state(thread),
        None if machine.state(pid) == State::Held => State::Held,
        None => State::Running,
    }
}

impl Patience {
    /// With an agent that has its lock.
    pub fn for_lock(now: Instant) -> Patience {
        Patience::of(ASLEEP_MAX, now)
    }

    /// With an agent that is to answer.
    pub fn for_answer(now: Instant) -> Patience {
        Patience::of(SILENT_MAX, now)
    }

    fn of(asleep_max: u32, now: Instant) -> Patience {
        Patience {
            asleep_max,
            asleep: Cell::new(0),
            running: Cell::new(0),
            looked: Cell::new(now),
            is_held: Cell::new(false),
        }
    }

    /// Whether the agent was stopped at the last look.
    pub fn sees_it_held(&self) -> bool {
        self.is_held.get()
    }

    /// Looks once more, if it is time to; answers whether that was enough. `pid` is its process.
    pub fn is_exhausted(&self, machine: &dyn Machine, agent: &AgentLink, pid: i32) -> bool {
        if machine.since(self.looked.get()) < LOOK_EVERY {
            return false;
        }
        self.looked.set(machine.now());
        let seen = state_of(machine, agent, pid);
        self.count(seen)
    }

    fn count(&self, seen: State) -> bool {
        self.is_held.set(seen == State::Held);
        let (count, most) = match seen {
            State::Held => return false,
            State::Asleep => (&self.asleep, self.asleep_max),
            State::Running => (&self.running, RUNNING_MAX),
        };
        count.set(count.get() + 1);
        count.get() >= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_stopped_is_waited_for_and_who_sleeps_is_not() {
        let patience = Patience::for_lock(Instant::now());
        assert!((0..10_000).all(|_| !patience.count(State::Held)));
        assert!((1..ASLEEP_MAX).all(|_| !patience.count(State::Asleep)));
        assert!(patience.count(State::Asleep));
        let patience = Patience::for_lock(Instant::now());
        assert!((1..RUNNING_MAX).all(|_| !patience.count(State::Running)));
        assert!(patience.count(State::Running));
    }
}
