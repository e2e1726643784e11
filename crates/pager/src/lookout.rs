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
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

const STACK_BYTES: usize = 64 << 10;
/// Between two times that this thread wakes while it is on duty.
const EVERY: Duration = Duration::from_millis(1);
/// So late, the main thread is helped.
const LATE: Duration = Duration::from_micros(500);

/// The thread, and what the main thread tells it.
pub struct Lookout {
    post: Arc<Post>,
    thread: Option<JoinHandle<()>>,
}

struct Post {
    shared: Arc<Shared>,
    duty: Mutex<Duty>,
    changed: Condvar,
    /// When this was made.
    start: Instant,
    /// When the main thread is to look next, microseconds since then.
    due_us: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Duty {
    Off,
    On,
    Over,
}

impl Lookout {
    /// Starts the thread; it sleeps until it is on duty.
    ///
    /// # Errors
    /// When the system has no room for a thread.
    pub fn start(shared: Arc<Shared>) -> io::Result<Lookout> {
        let post = Arc::new(Post {
            shared,
            duty: Mutex::new(Duty::Off),
            changed: Condvar::new(),
            start: Instant::now(),
            due_us: AtomicU64::new(u64::MAX),
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

    /// Memory grows unannounced, or does so no more.
    pub fn set_on_duty(&self, is_on: bool) {
        self.post.set(if is_on { Duty::On } else { Duty::Off });
    }

    /// The main thread has looked, and is going to look again after `pause`.
    pub fn looked(&self, pause: Duration) {
        let due = self.post.start.elapsed() + pause;
        let due_us = due.as_micros() as u64;
        self.post.due_us.store(due_us, Ordering::Relaxed);
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.post.set(Duty::Over);
        if let Some(thread) = self.thread.take() {
            // If it panicked it has said so.
            let _ = thread.join();
        }
    }
}

impl Post {
    fn set(&self, duty: Duty) {
        *lock(&self.duty) = duty;
        self.changed.notify_all();
    }

    fn stand(&self) {
        keep_ahead();
        let mut duty = lock(&self.duty);
        loop {
            let waited = match *duty {
                Duty::Over => return,
                Duty::Off => self.changed.wait(duty).map_err(PoisonError::into_inner),
                Duty::On => {
                    let waited = self.changed.wait_timeout(duty, EVERY);
                    waited
                        .map(|(duty, _)| duty)
                        .map_err(|poisoned| poisoned.into_inner().0)
                }
            };
            duty = waited.unwrap_or_else(|duty| duty);
            if *duty == Duty::On
                && is_late(self.start.elapsed(), self.due_us.load(Ordering::Relaxed))
            {
                drop(duty);
                self.help();
                duty = lock(&self.duty);
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
        // Before its first look there is nothing to be late for.
        assert!(!is_late(us(1 << 40), u64::MAX));
    }
}
