//! The phases that every layout goes through, and what they find.

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use pleat_store::{Full, Growth, Handle, Layout};

use crate::sizes::{Random, Sizes};

/// Each phase of operations replaces this many times the number of items.
const ROUNDS: usize = 3;

/// Bytes held per byte of items after each phase, and what operations took.
pub struct Found {
    filled: f64,
    fifo: f64,
    fifo_ns: f64,
    random: f64,
    random_ns: f64,
    metadata_per_item: f64,
    compact: f64,
    shrunk: f64,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "{:>6.3} | {:>6.3} {:>6.0} | {:>6.3} {:>6.0} {:>5.1} | {:>7.3} | {:>6.3}",
            self.filled,
            self.fifo,
            self.fifo_ns,
            self.random,
            self.random_ns,
            self.metadata_per_item,
            self.compact,
            self.shrunk
        )
    }
}

/// A layout with its items, and what the next ones are like.
struct Churn<'a> {
    store: &'a mut dyn Layout,
    handles: Vec<Handle>,
    sizes: &'a Sizes,
    random: Random,
    page: [u8; 4096],
}

/// Puts an empty layout through all phases.
pub fn churn(store: &mut dyn Layout, bytes: u64, sizes: &Sizes) -> Found {
    let mut churn = Churn {
        store,
        handles: Vec::new(),
        sizes,
        random: Random::new(),
        page: std::array::from_fn(|i| (i * 31 / 7) as u8),
    };
    churn.fill(bytes);
    let filled = churn.held();
    let fifo_ns = churn.replace_oldest();
    let fifo = churn.held();
    let random_ns = churn.replace_random();
    let random = churn.held();
    let usage = churn.store.usage();
    while churn.store.relocate_to_free_cell() {}
    let compact = churn.held();
    churn.shrink();
    Found {
        filled,
        fifo,
        fifo_ns,
        random,
        random_ns,
        metadata_per_item: usage.metadata_bytes as f64 / usage.items as f64,
        compact,
        shrunk: churn.held(),
    }
}

impl Churn<'_> {
    fn held(&self) -> f64 {
        let usage = self.store.usage();
        (usage.frames_bytes + usage.metadata_bytes) as f64 / usage.payload_bytes as f64
    }

    fn insert_new(&mut self) -> Handle {
        let size = self.sizes.draw(&mut self.random);
        self.store
            .insert(&self.page[..size], Growth::Allowed)
            .unwrap_or_else(|Full| panic!("growth is allowed"))
    }

    fn fill(&mut self, bytes: u64) {
        while self.store.usage().payload_bytes < bytes {
            let handle = self.insert_new();
            self.handles.push(handle);
        }
    }

    /// Replaces random items. Returns ns per operation.
    fn replace_random(&mut self) -> f64 {
        let start = Instant::now();
        let count = self.handles.len() * ROUNDS;
        for _ in 0..count {
            let which = self.random.below(self.handles.len());
            self.store.remove(self.handles[which]);
            self.handles[which] = self.insert_new();
        }
        start.elapsed().as_nanos() as f64 / (2 * count) as f64
    }

    /// Inserts new items into the frames held, removing the oldest until they fit. Returns ns per
    /// operation.
    fn replace_oldest(&mut self) -> f64 {
        let budget_bytes = self.store.usage().frames_bytes;
        let mut oldest_first = VecDeque::from(std::mem::take(&mut self.handles));
        let inserts = oldest_first.len() * ROUNDS;
        let mut operations = 0;
        let start = Instant::now();
        for _ in 0..inserts {
            let size = self.sizes.draw(&mut self.random);
            loop {
                operations += 1;
                let growth = if self.store.usage().frames_bytes + 16384 <= budget_bytes {
                    Growth::Allowed
                } else {
                    Growth::Denied
                };
                if let Ok(handle) = self.store.insert(&self.page[..size], growth) {
                    oldest_first.push_back(handle);
                    break;
                }
                if let Some(handle) = oldest_first.pop_front() {
                    self.store.remove(handle);
                }
            }
        }
        self.handles = oldest_first.into();
        start.elapsed().as_nanos() as f64 / operations as f64
    }

    /// Removes a random nine tenths.
    fn shrink(&mut self) {
        let keep = self.handles.len() / 10;
        while self.handles.len() > keep {
            let which = self.random.below(self.handles.len());
            self.store.remove(self.handles.swap_remove(which));
        }
    }
}
