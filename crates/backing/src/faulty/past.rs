//! What was written where, now and before.
#![forbid(unsafe_code)]

use crate::buffer::Buffer;
use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks remembered at most: a program under test has the memory of two versions of each the less.
const BLOCKS_MAX: usize = 1024;

/// The last two versions of the blocks written first.
pub struct Past {
    block_bytes: usize,
    blocks: BTreeMap<u64, Versions>,
}

struct Versions {
    now: Box<[u8]>,
    before: Option<Box<[u8]>>,
}

impl Past {
    pub fn new(block_bytes: usize) -> Past {
        Past {
            block_bytes,
            blocks: BTreeMap::new(),
        }
    }

    pub fn written(&mut self, offset: u64, bytes: &[u8]) {
        let numbers = self.numbers(offset, bytes.len());
        for (number, block) in numbers.zip(bytes.chunks_exact(self.block_bytes)) {
            if self.blocks.len() >= BLOCKS_MAX && !self.blocks.contains_key(&number) {
                continue;
            }
            let before = self.blocks.remove(&number).map(|versions| versions.now);
            let now = block.into();
            self.blocks.insert(number, Versions { now, before });
        }
    }

    /// What the range held before it was last written. None when it was never anything else, or that
    /// is not known.
    pub fn before(&self, offset: u64, len: usize) -> Option<Buffer> {
        let mut old = self.now(self.numbers(offset, len))?;
        let new = Buffer::from(&old[..]);
        let numbers = self.numbers(offset, len);
        for (number, block) in numbers.zip(old.chunks_exact_mut(self.block_bytes)) {
            if let Some(before) = &self.blocks[&number].before {
                block.copy_from_slice(before);
            }
        }
        (old[..] != new[..]).then_some(old)
    }

    /// What another range as long as this holds: the next one behind it, or else the first, that was
    /// written and differs.
    pub fn elsewhere(&self, offset: u64, len: usize) -> Option<Buffer> {
        let asked = self.numbers(offset, len);
        let right = self.now(asked.clone())?;
        let behind = self.blocks.range(asked.end..);
        let first = self.blocks.range(..asked.start);
        behind
            .chain(first)
            .map(|(&start, _)| start..start + (asked.end - asked.start))
            .filter(|other| other.end <= asked.start || other.start >= asked.end)
            .filter_map(|other| self.now(other))
            .find(|other| other[..] != right[..])
    }

    /// The bytes of written blocks. None when one of them was not.
    fn now(&self, numbers: Range<u64>) -> Option<Buffer> {
        let blocks = (numbers.end - numbers.start) as usize;
        let mut bytes = Buffer::new(blocks * self.block_bytes);
        for (number, block) in numbers.zip(bytes.chunks_exact_mut(self.block_bytes)) {
            block.copy_from_slice(&self.blocks.get(&number)?.now);
        }
        Some(bytes)
    }

    fn numbers(&self, offset: u64, len: usize) -> Range<u64> {
        let first = offset / self.block_bytes as u64;
        first..first + (len / self.block_bytes) as u64
    }
}
