//! Tags of pages that fill their room in the file, kept in memory by offset.
//!
//! Layouts with room behind the page never come here. The file is dealt out to shards by the MiB, so
//! that threads that write different clusters rarely wait for each other, and a freed range of a few
//! hundred KiB is found in one or two of them.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What proves a page; checksums use the first 8 bytes.
pub type Tag = [u8; 16];

const SHARDS: u64 = 16;
const STRIPE_BYTES_LOG2: u32 = 20;
/// Of the tree, for each tag: measured, 50 when offsets come in order and 44 when they do not.
const ENTRY_BYTES: u64 = 48;

type Shard = Mutex<BTreeMap<u64, Tag>>;

/// Tags by offset. All methods may be called from several threads at once.
#[derive(Default)]
pub struct Tags {
    shards: [Shard; SHARDS as usize],
    /// Tags in all shards, so that `forget` need not look when there are none.
    count: AtomicU64,
}

impl Tags {
    /// Keeps the tag of the page at `offset`, instead of an older one.
    pub fn keep(&self, offset: u64, tag: Tag) {
        if self
            .shard(offset >> STRIPE_BYTES_LOG2)
            .insert(offset, tag)
            .is_none()
        {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn get(&self, offset: u64) -> Option<Tag> {
        self.shard(offset >> STRIPE_BYTES_LOG2)
            .get(&offset)
            .copied()
    }

    /// Forgets all tags of the range. The caller has it that nobody keeps tags there meanwhile.
    pub fn forget(&self, offset: u64, bytes: u64) {
        let end = offset.saturating_add(bytes);
        // Relaxed: whoever hands a range over to be freed has made its tags visible along with it.
        if offset == end || self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let first = offset >> STRIPE_BYTES_LOG2;
        let last = (end - 1) >> STRIPE_BYTES_LOG2;
        for stripe in first..=last.min(first + SHARDS - 1) {
            let mut shard = self.shard(stripe);
            while let Some((&found, _)) = shard.range(offset..end).next() {
                shard.remove(&found);
                self.count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Bytes that the tags take, about.
    pub fn bytes(&self) -> u64 {
        self.count.load(Ordering::Relaxed) * ENTRY_BYTES
    }

    fn shard(&self, stripe: u64) -> MutexGuard<'_, BTreeMap<u64, Tag>> {
        let shard = &self.shards[(stripe % SHARDS) as usize];
        // A thread that panicked cannot have left a tree half changed.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_range_is_forgotten_whole_and_its_neighbours_are_spared() {
        let tags = Tags::default();
        let blocks = 100 << 20 >> 12;
        for block in 0..blocks {
            tags.keep(block << 12, [1; 16]);
        }
        let full = tags.bytes();
        // Over a border of stripes; more stripes than shards; up to the end of all offsets; nothing.
        for (offset, bytes) in [
            (900 << 10, 256 << 10),
            (20 << 20, 40 << 20),
            (99 << 20, u64::MAX),
        ] {
            tags.forget(offset, bytes);
            assert_eq!(tags.get(offset), None);
            assert!(tags.get(offset - 4096).is_some());
            assert!(tags.get(offset.saturating_add(bytes)).is_some() || bytes == u64::MAX);
        }
        tags.forget(0, 0);
        let left = (0..blocks)
            .filter(|block| tags.get(block << 12).is_some())
            .count() as u64;
        assert_eq!(left, blocks - 64 - 10240 - 256);
        assert_eq!(tags.bytes(), full / blocks * left);
    }

    proptest! {
        #[test]
        fn the_table_is_a_map_with_ranges(
            steps in prop::collection::vec((0u64..64, 0u64..40, any::<bool>()), 1..200),
        ) {
            let (tags, mut model) = (Tags::default(), BTreeMap::new());
            for (number, &(at, extent, keep)) in steps.iter().enumerate() {
                let (offset, bytes) = (at * 300_000, extent * 1_000_000);
                if keep {
                    tags.keep(offset, [number as u8; 16]);
                    model.insert(offset, [number as u8; 16]);
                } else {
                    tags.forget(offset, bytes);
                    model.retain(|&found, _| found < offset || found >= offset + bytes);
                }
                prop_assert_eq!(tags.bytes(), model.len() as u64 * ENTRY_BYTES);
                prop_assert_eq!(tags.get(offset), model.get(&offset).copied());
            }
        }
    }
}
