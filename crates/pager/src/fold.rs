//! Folding: compressing staged pages into the store, away from the program's threads.

use crate::reclaim;
use crate::shared::{FoldJob, Shared};
use pleat_codec::{Folded, Folder};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pages folded between two holds of the engine's lock.
const BATCH: usize = 8;

/// A folder with its buffers; one per thread.
pub struct Press {
    folder: Folder,
    jobs: Vec<FoldJob>,
    results: Vec<Folded>,
    bytes: Vec<[u8; 4096]>,
}

impl Press {
    /// A press for the job's codec.
    pub fn new(shared: &Shared) -> Option<Press> {
        Some(Press {
            folder: Folder::new(&shared.codec)?,
            jobs: Vec::with_capacity(BATCH),
            results: Vec::with_capacity(BATCH),
            bytes: vec![[0; 4096]; BATCH],
        })
    }

    /// The folder, for unfolding.
    pub fn folder(&mut self) -> &mut Folder {
        &mut self.folder
    }

    /// Folds one batch; with `wait`, waits that long for it. Answers whether there was one.
    pub fn work(&mut self, shared: &Shared, wait: Option<Duration>) -> bool {
        shared.folds.pop(BATCH, wait, &mut self.jobs);
        if self.jobs.is_empty() {
            return false;
        }
        let start = Instant::now();
        for (job, bytes) in self.jobs.iter().zip(&mut self.bytes) {
            self.results
                .push(self.folder.fold(job.slots.ring.frame(job.frame), bytes));
        }
        shared
            .meters
            .fold_us
            .add(start.elapsed().as_micros() as u64);
        for ((job, result), bytes) in self.jobs.iter().zip(&self.results).zip(&self.bytes) {
            // A hold for each page: a fault may be waiting.
            let mut engine = shared.engine();
            let len = match result {
                Folded::Same(_) => 0,
                Folded::Bytes { len, .. } => *len,
            };
            engine.folded(job.body, *result, &bytes[..len]);
        }
        let write = shared.engine().write_wanted();
        for job in self.jobs.drain(..) {
            job.slots.release(job.frame);
        }
        self.results.clear();
        if write {
            shared.writer.open();
        }
        shared.feed_starving();
        true
    }
}

/// The life of a folding thread.
pub fn run(shared: &Arc<Shared>) {
    let Some(mut press) = Press::new(shared) else {
        return shared.fail(format!("codec {} has gone missing", shared.codec));
    };
    while !shared.is_over() {
        if press.work(shared, Some(Duration::from_millis(500))) {
            reclaim::kick(shared);
        }
    }
}
