//! The lock of the engine: a mutex whose holder is looked for before anybody sleeps.
//!
//! Holds last a microsecond and being woken costs tens of them, so whoever finds the lock taken looks for a while.
//! What looking costs grows with those who do it. An exchange pulls the cache line with the lock to the CPU
//! that tries, also in vain, and the holder has to fetch it back: of 25 threads on 16 CPUs each spent ten times as
//! long on the lock as on the work behind it. Therefore
//!
//! - who looks only reads, and tries to lock when the lock was seen to be free;
//! - the more wait, the longer they pause between two looks;
//! - who finds half of the CPUs looking looks for a moment only: the others would have it first, and the holder may
//!   have lost its CPU.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Pauses before a thread sleeps: a hundred microseconds or two.
const SPINS: u32 = 4000;
/// What is left of them for a thread that finds many others waiting.
const SPINS_OF_MANY: u32 = SPINS / 8;
/// So many are never many: of two that wait on two CPUs, one has lost its CPU.
const FEW: u32 = 2;
/// Longest pause for each thread that waits. With one or two, whoever lets the lock go for a moment
/// (`Shared::let_in`) is noticed.
const PAUSES_EACH: u32 = 2;

/// A value behind a lock that threads of several CPUs take for about a microsecond.
pub struct EngineLock<T> {
    door: Door<T>,
    waiting: Waiting,
    cpus: u32,
}

/// What an uncontended lock touches is in one cache line, and what it guards is in none that others look at.
#[repr(align(128))]
struct Door<T> {
    /// Somebody is inside. Written by the holder only, so it may be old by a moment.
    is_taken: AtomicBool,
    inside: Mutex<Box<T>>,
}

/// How many have found the door closed and are not inside yet.
#[derive(Default)]
#[repr(align(128))]
struct Waiting(AtomicU32);

/// The value, until this is dropped.
pub struct Held<'a, T> {
    inside: MutexGuard<'a, Box<T>>,
    is_taken: &'a AtomicBool,
}

impl<T> EngineLock<T> {
    /// On a machine with so many CPUs.
    pub fn new(value: T, cpus: usize) -> EngineLock<T> {
        EngineLock {
            door: Door {
                is_taken: AtomicBool::new(false),
                inside: Mutex::new(Box::new(value)),
            },
            waiting: Waiting::default(),
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        }
    }

    /// Locks, also when a thread panicked with the lock held: the panic ends the job anyway.
    pub fn lock(&self) -> Held<'_, T> {
        match self.try_lock() {
            Some(held) => held,
            None => self.wait(),
        }
    }

    fn try_lock(&self) -> Option<Held<'_, T>> {
        if self.door.is_taken.load(Ordering::Relaxed) {
            return None;
        }
        match self.door.inside.try_lock() {
            Ok(inside) => Some(self.held(inside)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.held(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn held<'a>(&'a self, inside: MutexGuard<'a, Box<T>>) -> Held<'a, T> {
        let is_taken = &self.door.is_taken;
        is_taken.store(true, Ordering::Relaxed);
        Held { inside, is_taken }
    }

    #[cold]
    fn wait(&self) -> Held<'_, T> {
        let waiting = self.waiting.0.fetch_add(1, Ordering::Relaxed) + 1;
        let held = self.look(waiting).unwrap_or_else(|| {
            let inside = self.door.inside.lock();
            self.held(inside.unwrap_or_else(PoisonError::into_inner))
        });
        self.waiting.0.fetch_sub(1, Ordering::Relaxed);
        held
    }

    /// Looks for a while, as one of so many that wait.
    fn look(&self, waiting: u32) -> Option<Held<'_, T>> {
        let (spins, longest) = (spins(waiting, self.cpus), waiting * PAUSES_EACH);
        let (mut spun, mut pauses) = (0, 1);
        while spun < spins {
            for _ in 0..pauses {
                std::hint::spin_loop();
            }
            if let Some(held) = self.try_lock() {
                return Some(held);
            }
            spun += pauses;
            pauses = (pauses * 2).min(longest);
        }
        None
    }
}

/// How long one of so many that wait looks before it sleeps.
fn spins(waiting: u32, cpus: u32) -> u32 {
    match cpus {
        // The holder cannot run meanwhile.
        0 | 1 => 0,
        _ if waiting <= FEW.max(cpus / 2) => SPINS,
        _ => SPINS_OF_MANY,
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inside
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inside
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // Before the lock is free: afterwards it would be the next holder's.
        self.is_taken.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_inside_at_a_time_whatever_the_number_of_threads_and_cpus() {
        for cpus in [1, 2, 16] {
            let lock = EngineLock::new(0, cpus);
            std::thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| {
                        for _ in 0..2000 {
                            let mut held = lock.lock();
                            let before = *held;
                            std::hint::black_box(&mut held);
                            *held = before + 1;
                        }
                    });
                }
            });
            assert_eq!(*lock.lock(), 16 * 2000);
            assert_eq!(lock.waiting.0.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn it_is_seen_to_be_taken_and_to_be_free_again() {
        let lock = EngineLock::new((), 2);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_panic_inside_does_not_keep_others_out() {
        let lock = EngineLock::new(7, 2);
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _held = lock.lock();
                panic!("as the test wants it");
            });
            assert!(panics.join().is_err());
        });
        assert_eq!(*lock.lock(), 7);
    }

    #[test]
    fn few_look_for_long_and_nobody_does_on_one_cpu() {
        assert_eq!(spins(1, 1), 0);
        for (waiting, cpus) in [(1, 2), (2, 2), (2, 3), (8, 16)] {
            assert_eq!(spins(waiting, cpus), SPINS, "{waiting} on {cpus}");
        }
        for (waiting, cpus) in [(3, 2), (9, 16), (25, 16)] {
            assert_eq!(spins(waiting, cpus), SPINS_OF_MANY, "{waiting} on {cpus}");
        }
    }
}
