//! How much a program computes between its faults: the CPU time of the threads that fault.
//!
//! Asked only while recording, when a fault is read; its thread waits by then, so that the kernel's
//! count is up to date. The rare thread that has not gone to sleep yet is a little late, and what is
//! missing comes with its next fault.

use pleat_sys::procfs::CpuTimeReader;
use std::collections::HashMap;
use std::time::Instant;

/// Threads whose files are kept open.
const THREADS_MAX: usize = 64;

/// The clocks of one address space's threads.
pub(super) struct Clocks {
    threads: HashMap<u32, Clock>,
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
            start: Instant::now(),
        }
    }

    /// CPU time of a thread since the last time it was asked for, at most the time that has passed; 0
    /// when the thread is gone.
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
        used.and_then(Result::ok).unwrap_or_else(|| {
            // The number may be another thread's now.
            self.threads.remove(&thread);
            0
        })
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
