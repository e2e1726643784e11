//! Where completions wait for the thread they belong to, when another thread or the store itself has
//! carried them out.
#![forbid(unsafe_code)]

use crate::backing::{Completion, Patience};
use crate::event::{self, Event};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Looks between two looks at the clock.
const SPINS_PER_CLOCK: u32 = 64;

/// Completions to be taken. `waiting` is the number of them, to be looked at without the lock.
pub struct Mailbox {
    done: Mutex<Vec<Completion>>,
    waiting: AtomicUsize,
    event: Event,
}

impl Mailbox {
    pub fn new() -> io::Result<Mailbox> {
        Ok(Mailbox {
            done: Mutex::new(Vec::new()),
            waiting: AtomicUsize::new(0),
            event: Event::new()?,
        })
    }

    /// Readable while there may be something.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    pub fn put(&self, completion: Completion) {
        let mut done = lock(&self.done);
        done.push(completion);
        self.waiting.store(done.len(), Ordering::Release);
        drop(done);
        // After the completion is there, or the event could be reset in between.
        self.event.signal();
    }

    /// Appends all of them, and waits for the first; says how many.
    pub fn collect(&self, patience: Patience, done: &mut Vec<Completion>) -> usize {
        let end = patience.end();
        loop {
            let taken = self.take(patience, done);
            let now = Instant::now();
            if taken > 0 || now >= end {
                return taken;
            }
            match patience {
                Patience::Poll => return taken,
                Patience::Spin(_) => self.spin(),
                Patience::Sleep(_) => {
                    event::wait_readable(self.event(), end - now);
                    self.event.reset();
                }
            }
        }
    }

    fn take(&self, patience: Patience, done: &mut Vec<Completion>) -> usize {
        // Who polls may have been woken by a late signal of what has been taken: that is reset, too.
        if patience != Patience::Poll && self.waiting.load(Ordering::Acquire) == 0 {
            return 0;
        }
        // First the event: what is put after this signals it again.
        self.event.reset();
        let mut waiting = lock(&self.done);
        let taken = waiting.len();
        done.append(&mut waiting);
        self.waiting.store(0, Ordering::Release);
        taken
    }

    fn spin(&self) {
        for _ in 0..SPINS_PER_CLOCK {
            if self.waiting.load(Ordering::Acquire) > 0 {
                return;
            }
            std::hint::spin_loop();
        }
    }
}

/// The data behind a lock. A thread that panics while it holds one of ours leaves it consistent: only
/// whole elements are added and removed under it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
