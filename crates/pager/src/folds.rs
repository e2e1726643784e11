//! The queue of pages to fold.

use crate::profile::Profile;
use crate::rings::Slots;
use crate::shared::lock;
use pleat_backing::Fingerprint;
use pleat_codec::PageKind;
use pleat_engine::BodyId;
use pleat_types::{PageNo, SpaceId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A page that waits in the ring to be folded.
pub struct FoldJob {
    /// Its content's name.
    pub body: BodyId,
    /// Where it was.
    pub page: (SpaceId, PageNo),
    /// What kind of page it is.
    pub kind: PageKind,
    /// What it was when it came back from the swap file, if it is to be compared with that.
    pub was: Option<Fingerprint>,
    /// Its ring.
    pub slots: Arc<Slots>,
    /// Its frame.
    pub frame: u32,
}

/// The queue of pages to fold.
pub struct Folds {
    /// With the time when they came, for a profile.
    queue: Mutex<VecDeque<(FoldJob, Option<Instant>)>>,
    filled: Condvar,
    /// So many workers stay awake and look by themselves.
    watchers: AtomicUsize,
    cpus: usize,
    /// Threads that wait for memory, which nobody has before pages are folded.
    starving: Arc<AtomicU64>,
    profile: Option<Arc<Profile>>,
}

/// A worker takes so many pages at once at most.
pub const BATCH: usize = 8;
/// So many pages in the queue are too much for the worker that watches it, on two CPUs: another works at the cost of the
/// program.
const BEHIND_ON_TWO_CPUS: usize = 192;

impl Folds {
    /// An empty queue.
    pub(crate) fn new(
        cpus: usize,
        starving: Arc<AtomicU64>,
        profile: Option<Arc<Profile>>,
    ) -> Folds {
        Folds {
            queue: Mutex::default(),
            filled: Condvar::new(),
            watchers: AtomicUsize::new(0),
            cpus,
            starving,
            profile,
        }
    }

    /// Adds jobs and wakes a worker.
    pub fn push(&self, jobs: impl IntoIterator<Item = FoldJob>) {
        let now = self.profile.as_ref().map(|_| Instant::now());
        let mut queue = lock(&self.queue);
        let before = queue.len();
        queue.extend(jobs.into_iter().map(|job| (job, now)));
        if queue.len() > before {
            self.call_worker(queue.len());
        }
    }

    /// The calling worker stays awake from now on and looks for jobs...
    pub fn watch(&self) {
        self.watchers.fetch_add(1, Ordering::AcqRel);
    }

    /// ... or may go to sleep again.
    pub fn look_away(&self) {
        // Read with the queue's lock held, which the worker takes before it sleeps: what was put there
        // before is seen by the worker, and after that somebody is woken.
        self.watchers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether a worker stays awake.
    pub fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Acquire) > 0
    }

    /// There are so many jobs: wakes a worker, unless as many are awake as can do them.
    fn call_worker(&self, jobs: usize) {
        let watchers = self.watchers.load(Ordering::Acquire);
        let is_starving = self.starving.load(Ordering::Relaxed) > 0;
        if jobs >= too_many(self.cpus, watchers, is_starving) {
            self.filled.notify_one();
        }
    }

    /// Wakes every worker: the job is over.
    pub fn close(&self) {
        self.filled.notify_all();
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        lock(&self.queue).is_empty()
    }

    /// Takes up to `most` jobs into `out`; with `wait`, sleeps up to that long for the first.
    pub fn pop(&self, most: usize, wait: Option<Duration>, out: &mut Vec<FoldJob>) {
        let mut queue = lock(&self.queue);
        if let (true, Some(limit)) = (queue.is_empty(), wait) {
            let waited = self.filled.wait_timeout(queue, limit);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let count = most.min(queue.len());
        out.extend(queue.drain(..count).map(|(job, staged)| {
            if let (Some(profile), Some(staged)) = (&self.profile, staged) {
                profile.unqueued(staged);
            }
            job
        }));
        // The first worker is busy from here on: the rest is for another.
        if !queue.is_empty() {
            self.call_worker(queue.len());
        }
    }
}

/// So many jobs are too much for the workers that are awake.
fn too_many(cpus: usize, watchers: usize, is_starving: bool) -> usize {
    match watchers {
        0 => 1,
        _ if cpus <= 2 => BEHIND_ON_TWO_CPUS,
        // Somebody has no memory before pages are folded.
        _ if is_starving => 1,
        // What is left when each has taken a batch waits for longer than it takes to wake another.
        _ => BATCH * (watchers + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_worker_is_woken_when_those_awake_have_a_batch_each_and_one_is_left() {
        assert_eq!(too_many(16, 0, false), 1, "nobody is awake");
        assert_eq!(too_many(16, 1, false), 2 * BATCH);
        assert_eq!(too_many(16, 4, false), 5 * BATCH);
        assert_eq!(too_many(16, 4, true), 1, "a program waits for memory");
        for is_starving in [false, true] {
            assert_eq!(too_many(2, 1, is_starving), BEHIND_ON_TWO_CPUS);
            assert_eq!(too_many(1, 0, is_starving), 1);
        }
    }
}
