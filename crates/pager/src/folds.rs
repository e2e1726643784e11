//! The queue of pages to fold.

use crate::profile::Profile;
use crate::rings::Slots;
use crate::shared::lock;
use pleat_backing::Fingerprint;
use pleat_codec::PageKind;
use pleat_engine::BodyId;
use pleat_types::{PageNo, SpaceId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// A worker stays awake and looks by itself.
    is_watched: AtomicBool,
    profile: Option<Arc<Profile>>,
}

/// So many pages in the queue are too much for the worker that watches it. On two CPUs a second one works at
/// the cost of the program.
const BEHIND: usize = 192;

impl Folds {
    /// An empty queue.
    pub(crate) fn new(profile: Option<Arc<Profile>>) -> Folds {
        Folds {
            queue: Mutex::default(),
            filled: Condvar::new(),
            is_watched: AtomicBool::new(false),
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

    /// Whether the calling worker stays awake from now on and looks for jobs, or may go to sleep.
    pub fn watch(&self, stays: bool) {
        // Read with the queue's lock held, which the worker takes before it sleeps: what was put there
        // before is seen by the worker, and after that somebody is woken.
        self.is_watched.store(stays, Ordering::Release);
    }

    /// Whether a worker stays awake.
    pub fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Acquire)
    }

    /// There are so many jobs: wakes a worker, unless one is awake that can do them.
    fn call_worker(&self, jobs: usize) {
        if jobs >= BEHIND || !self.is_watched() {
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
