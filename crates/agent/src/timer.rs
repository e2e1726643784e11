//! What a take-away takes, measured where the supervisor asked for it, and else not at all.

use crate::raw;
use pleat_wire::message::TakeTimes;

/// The times of one command.
pub struct Timer {
    slow_ticks: u64,
    times: TakeTimes,
}

impl Timer {
    /// Begins. With `slow_ticks` 0 no clock is ever read.
    pub fn start(slow_ticks: u64) -> Timer {
        let mut timer = Timer {
            slow_ticks,
            times: TakeTimes::default(),
        };
        timer.times.began = timer.now();
        timer
    }

    /// The time, if times are taken.
    pub fn now(&self) -> u64 {
        match self.slow_ticks {
            0 => 0,
            _ => raw::ticks(),
        }
    }

    /// A move that began then has ended.
    pub fn moved(&mut self, began: u64) {
        if self.slow_ticks != 0 {
            let took = raw::ticks().saturating_sub(began);
            self.times.moves += 1;
            self.times.slow_moves += u32::from(took > self.slow_ticks);
        }
    }

    /// Everything that moves was moved.
    pub fn moved_all(&mut self) {
        self.times.moved = self.now();
    }

    /// Copying that began then has ended.
    pub fn copied(&mut self, began: u64) {
        self.times.copying += self.now().saturating_sub(began);
    }

    /// All is done.
    pub fn end(mut self) -> TakeTimes {
        self.times.ended = self.now();
        self.times
    }
}
