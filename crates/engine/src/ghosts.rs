//! Pages of files that left memory, or the compressed cache, for their file: when that was, for
//! as many of them as there are frames in the budget. Nothing else remembers them, whereas pages that
//! went to the swap file have a body.

use std::collections::{HashMap, VecDeque};

use crate::bodies::{append, Home, PackedHome};
use crate::distance::Distances;

/// Outdated entries of the queue that are let be, for each that is not: one in so many.
const OUTDATED_PART: usize = 4;

/// `queue` holds every key of `left_at` once with that very time, and outdated entries.
pub(crate) struct Ghosts {
    left_at: HashMap<PackedHome, u64>,
    queue: VecDeque<(PackedHome, u64)>,
    most: usize,
}

impl Ghosts {
    pub(crate) fn new(most: u64) -> Ghosts {
        Ghosts {
            left_at: HashMap::new(),
            queue: VecDeque::new(),
            most: most.max(64) as usize,
        }
    }

    /// From now on so many at most; those that are too many go with the next that comes.
    pub(crate) fn set_most(&mut self, most: u64) {
        self.most = most.max(64) as usize;
    }

    /// A page is no longer in memory. `left_at` is counted in `away` from before, and is no more where the page
    /// cannot be remembered.
    pub(crate) fn add(&mut self, home: Home, left_at: u64, away: &mut Distances) {
        let Some(home) = PackedHome::of(home) else {
            return away.remove(left_at);
        };
        if let Some(before) = self.left_at.insert(home, left_at) {
            away.remove(before);
        }
        self.sweep();
        append(&mut self.queue, (home, left_at));
        while self.left_at.len() > self.most {
            let Some((oldest, left_at)) = self.queue.pop_front() else {
                return;
            };
            if self.left_at.get(&oldest) == Some(&left_at) {
                self.left_at.remove(&oldest);
                away.remove(left_at);
            }
        }
    }

    /// Frees places of outdated entries: the table is part of the budget.
    fn sweep(&mut self) {
        let live = self.left_at.len();
        if self.queue.len() > live + live / OUTDATED_PART + OUTDATED_PART {
            let left_at = &self.left_at;
            self.queue
                .retain(|(home, at)| left_at.get(home) == Some(at));
        }
    }

    /// A page is back, or will never be: when did it leave? The caller has to stop counting it.
    pub(crate) fn take(&mut self, home: Home) -> Option<u64> {
        self.left_at.remove(&PackedHome::of(home)?)
    }

    /// Pages remembered.
    pub(crate) fn len(&self) -> u64 {
        self.left_at.len() as u64
    }

    /// Bytes of the tables.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        let entry = size_of::<(PackedHome, u64)>();
        ((self.left_at.capacity() * 8).div_ceil(7) * (entry + 1) + self.queue.capacity() * entry)
            as u64
    }
}
