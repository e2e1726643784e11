//! Pages of files that left memory, or the compressed cache, for their file: when that was, for
//! as many of them as there are frames in the budget. Nothing else remembers them, whereas pages that
//! went to the swap file have a body.

use std::collections::{HashMap, VecDeque};

use crate::bodies::Home;
use crate::distance::Distances;

/// `queue` holds every key of `left_at` once with that very time, and outdated entries.
pub(crate) struct Ghosts {
    left_at: HashMap<Home, u64>,
    queue: VecDeque<(Home, u64)>,
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

    /// A page is no longer in memory. `left_at` is counted in `away` from before.
    pub(crate) fn add(&mut self, home: Home, left_at: u64, away: &mut Distances) {
        if let Some(before) = self.left_at.insert(home, left_at) {
            away.remove(before);
        }
        self.queue.push_back((home, left_at));
        while self.left_at.len() > self.most || self.queue.len() > 2 * self.most {
            let Some((oldest, left_at)) = self.queue.pop_front() else {
                return;
            };
            if self.left_at.get(&oldest) == Some(&left_at) {
                self.left_at.remove(&oldest);
                away.remove(left_at);
            }
        }
    }

    /// A page is back, or will never be: when did it leave? The caller has to stop counting it.
    pub(crate) fn take(&mut self, home: Home) -> Option<u64> {
        self.left_at.remove(&home)
    }

    /// Pages remembered.
    pub(crate) fn len(&self) -> u64 {
        self.left_at.len() as u64
    }

    /// Bytes of the tables.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        let entry = size_of::<(Home, u64)>();
        ((self.left_at.capacity() * 8).div_ceil(7) * (entry + 1) + self.queue.capacity() * entry)
            as u64
    }
}
