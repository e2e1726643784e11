//! How much a program computes between its faults: the CPU time of the threads that fault.
//!
//! Asked only while recording, when a fault is read; its thread waits by then, so that the kernel's
//! count is up to date. The rare thread that has not gone to sleep yet is a little late, and what is
//! missing comes with its next fault.
//!
//! The kernel counts what a fault costs it as the thread's: 4 us where CPUs are virtual, which a program
//! with its memory at hand would not use. As much as the lowest tenth of all figures is taken for that.

use pleat_sys::procfs::CpuTimeReader;
use std::collections::HashMap;
use std::time::Instant;

/// Threads whose files are kept open.
const THREADS_MAX: usize = 64;

/// The clocks of one address space's threads.
pub(super) struct Clocks {
    threads: HashMap<u32, Clock>,
    fault: Tenth,
    start: Instant,
}

struct Clock {
    reader: CpuTimeReader,
    used_ns: u64,
    at: Instant,
}

impl Clocks {
    /// Of a space that begins.
    pub(super) fn new() -> Clocks {
        Clocks {
            threads: HashMap::new(),
            fault: Tenth::default(),
            start: Instant::now(),
        }
    }

    /// CPU time of a thread since the last time it was asked for, less a fault's: at most the time that
    /// has passed; 0 when the thread is gone.
    pub(super) fn used_ns(&mut self, thread: u32) -> u64 {
        if !self.threads.contains_key(&thread) {
            if self.threads.len() >= THREADS_MAX {
                self.threads.clear();
            }
            let Ok(reader) = CpuTimeReader::open(thread as i32) else {
                return 0;
            };
            let (used_ns, at) = (0, self.start);
            let clock = Clock {
                reader,
                used_ns,
                at,
            };
            self.threads.insert(thread, clock);
        }
        let used = self.threads.get_mut(&thread).map(Clock::used_ns);
        match used {
            Some(Ok(used_ns)) => {
                let fault_ns = self.fault.ns;
                self.fault.learn(used_ns);
                used_ns.saturating_sub(fault_ns)
            }
            _ => {
                // The number may be another thread's now.
                self.threads.remove(&thread);
                0
            }
        }
    }
}

/// The figure below which a tenth of all figures are, about: it goes up nine times as often as down.
#[derive(Default)]
struct Tenth {
    ns: u64,
}

impl Tenth {
    const UP_NS: u64 = 8;
    const DOWN_NS: u64 = 9 * Tenth::UP_NS;

    fn learn(&mut self, ns: u64) {
        self.ns = match ns < self.ns {
            true => self.ns.saturating_sub(Tenth::DOWN_NS),
            false => self.ns + Tenth::UP_NS,
        };
    }
}

impl Clock {
    fn used_ns(&mut self) -> std::io::Result<u64> {
        let (now, used_ns) = (Instant::now(), self.reader.read()?);
        let passed = (now - self.at).as_nanos() as u64;
        let used = used_ns.saturating_sub(self.used_ns).min(passed);
        (self.used_ns, self.at) = (used_ns, now);
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_tenth_is_found() {
        let mut tenth = Tenth::default();
        // 1000 to 1990 evenly, in no order.
        (0..20_000u64).for_each(|n| tenth.learn(1000 + n * 37 % 100 * 10));
        assert!((1000..1200).contains(&tenth.ns), "{}", tenth.ns);
    }

    #[test]
    fn a_thread_that_is_gone_used_nothing() {
        assert_eq!(Clocks::new().used_ns(u32::MAX >> 1), 0);
    }
}
