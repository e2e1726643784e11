//! A second pair of eyes while a job's memory grows unannounced: has new mappings looked for when the main thread
//! is late.
//!
//! The main thread runs ahead of other load then, and yet about one look in a thousand comes a whole tick of the
//! scheduler late, 4 ms: a thread that is woken takes the CPU only if it is the one that the scheduler would choose
//! just then, and it may choose one that sleeps and has only not been taken off its list yet; and a thread that was
//! made to wait while it ran is not looked at again before the next tick or the next wake-up on its CPU. A program
//! fills 8 MB in that time. This thread wakes by itself: on the same CPU, that alone has the scheduler look again;
//! on another, it does what was to be done.

use crate::shared::{lock, Link, Shared};
use pleat_sys::process::keep_ahead;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{park, park_timeout, Builder, JoinHandle};
use std::time::{Duration, Instant};

const STACK_BYTES: usize = 64 << 10;
/// Between two times that this thread wakes while it is on duty.
const EVERY: Duration = Duration::from_millis(1);
/// So late, the main thread is helped.
const LATE: Duration = Duration::from_micros(500);
/// When the main thread is to look if nobody minds that it is late.
const NEVER: u64 = u64::MAX;

/// The thread, and what the main thread tells it.
pub struct Lookout {
    post: Arc<Post>,
    thread: Option<JoinHandle<()>>,
}

struct Post {
    shared: Arc<Shared>,
    /// When this was made.
    start: Instant,
    /// When the main thread is to look next, microseconds since then; [`NEVER`]: this thread is off duty.
    due_us: AtomicU64,
    /// This thread is to end.
    is_over: AtomicBool,
}

impl Lookout {
    /// Starts the thread; it sleeps until it is on duty.
    ///
    /// # Errors
    /// When the system has no room for a thread.
    pub fn start(shared: Arc<Shared>) -> io::Result<Lookout> {
        let post = Arc::new(Post {
            shared,
            start: Instant::now(),
            due_us: AtomicU64::new(NEVER),
            is_over: AtomicBool::new(false),
        });
        let on_post = post.clone();
        let builder = Builder::new().name("pleat-lookout".into());
        let thread = builder
            .stack_size(STACK_BYTES)
            .spawn(move || on_post.stand())?;
        Ok(Lookout {
            post,
            thread: Some(thread),
        })
    }

    /// The main thread has looked, and is going to look again after `pause`; `None`: memory does not grow
    /// unannounced, and it need not be in time.
    pub fn looked(&self, pause: Option<Duration>) {
        let due = pause.map(|pause| self.post.start.elapsed() + pause);
        let due_us = due.map_or(NEVER, |due| due.as_micros() as u64);
        let was_off = self.post.due_us.swap(due_us, Ordering::Relaxed) == NEVER;
        if was_off && due_us != NEVER {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.post.is_over.store(true, Ordering::Relaxed);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // If it panicked it has said so.
            let _ = thread.join();
        }
    }
}

impl Post {
    fn stand(&self) {
        keep_ahead();
        while !self.is_over.load(Ordering::Relaxed) {
            match self.due_us.load(Ordering::Relaxed) {
                NEVER => park(),
                _ => park_timeout(EVERY),
            }
            if is_late(self.start.elapsed(), self.due_us.load(Ordering::Relaxed)) {
                self.help();
            }
        }
    }

    /// Has new mappings looked for where there were some lately: once for each time that growth was seen.
    fn help(&self) {
        let links = lock(&self.shared.links);
        let growing = links
            .iter()
            .filter(|link| link.grows.swap(false, Ordering::AcqRel));
        let growing: Vec<Arc<Link>> = growing.cloned().collect();
        drop(links);
        for link in growing {
            link.rescan();
        }
    }
}

/// Whether the main thread, which was to look at `due_us`, still has not by far.
fn is_late(now: Duration, due_us: u64) -> bool {
    now > Duration::from_micros(due_us).saturating_add(LATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_is_who_has_not_looked_half_a_millisecond_after_it_was_to() {
        let us = Duration::from_micros;
        assert!(!is_late(us(700), 1000));
        assert!(!is_late(us(1500), 1000));
        assert!(is_late(us(1501), 1000));
        // Where nobody minds there is nothing to be late for.
        assert!(!is_late(us(1 << 40), NEVER));
    }
}
