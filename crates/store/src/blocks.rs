//! cpc08's layout: items in power-of-two blocks, the blocks of a size in frames of their own
//! (section 3.2; Linux's slab caches).
//!
//! ```text
//! item of 2763 bytes   | 2048 | 512 | 256 |   at most five blocks of at least 64 bytes
//! frame of 512s        | 512 | free | 512 | 512 | free | free | 512 | 512 |
//! ```
//!
//! The sizes of an item's blocks are the binary digits of its length in units of 64 bytes, rounded
//! up, so that all differ. Nothing ever moves, and an empty frame goes back to the system at once.

use std::io;

use pleat_types::PAGE_SIZE;

use crate::arena::Arena;
use crate::chain::{Chain, Link, Linked, NONE};
use crate::layout::{Full, Growth, Handle, Layout, Usage};
use crate::slab::{grow_gently, Record, Slab};

/// The smallest block.
const UNIT_BYTES: usize = 64;
/// 64, 128, ... 4096 bytes.
const SIZE_COUNT: usize = (PAGE_SIZE / UNIT_BYTES).ilog2() as usize + 1;
const BLOCKS_MAX: usize = 5;

/// One item: the paper's `struct cpage`.
#[derive(Clone, Copy)]
struct Item {
    /// Where its blocks are, the largest first, in units from the start of the arena.
    blocks: [u32; BLOCKS_MAX],
    /// Bytes; 0: the handle is free.
    len: u16,
}

/// The next free handle is where the first block was.
impl Record for Item {
    fn vacant(next_free: u32) -> Self {
        Item {
            blocks: [next_free; BLOCKS_MAX],
            len: 0,
        }
    }

    fn next_free(&self) -> u32 {
        self.blocks[0]
    }
}

/// One frame of blocks of a size. `free` has a bit for each block without an item.
#[derive(Clone, Copy)]
struct Frame {
    free: u64,
    /// Neighbours among the frames of this size with free blocks.
    link: Link,
    /// Of a block, as its power of two in units.
    size: u8,
}

impl Linked for Frame {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// Items split into power-of-two blocks. See the head of this file.
pub struct Blocks {
    arena: Arena,
    /// By number of the arena's run; meaningless for frames not held.
    frames: Vec<Frame>,
    /// By size, the frames with free blocks.
    with_room: [Chain; SIZE_COUNT],
    items: Slab<Item>,
    payload_bytes: u64,
    frames_held: u64,
}

impl Blocks {
    /// An empty layout, ready for `max_bytes` bytes of items and more.
    ///
    /// # Errors
    /// When the system refuses the address space.
    pub fn new(max_bytes: u64) -> io::Result<Self> {
        Ok(Blocks {
            arena: Arena::new(max_bytes, 1)?,
            frames: Vec::new(),
            with_room: [Chain::EMPTY; SIZE_COUNT],
            items: Slab::new(),
            payload_bytes: 0,
            frames_held: 0,
        })
    }

    /// Whether there are blocks of these sizes, or frames to be had for them.
    fn has_room(&self, units: u32, growth: Growth) -> bool {
        // The sizes differ, so that one free block of each suffices.
        let missing = sizes_in(units).filter(|&size| self.with_room[size].is_empty());
        match growth {
            Growth::Allowed => missing.count() <= self.arena.runs_left(),
            Growth::Denied => missing.count() == 0,
        }
    }

    /// Takes a block from the first frame with a free one, or from a new frame. Returns its place
    /// in units.
    fn take_block(&mut self, size: usize) -> u32 {
        if self.with_room[size].is_empty() {
            self.add_frame(size);
        }
        let number = self.with_room[size].first();
        let frame = &mut self.frames[number as usize];
        let index = frame.free.trailing_zeros();
        frame.free &= frame.free - 1;
        if frame.free == 0 {
            self.with_room[size].detach(&mut self.frames, number);
        }
        number * UNITS_PER_FRAME + (index << size)
    }

    fn give_back_block(&mut self, at: u32, size: usize) {
        let number = at / UNITS_PER_FRAME;
        let frame = &mut self.frames[number as usize];
        debug_assert_eq!(usize::from(frame.size), size);
        if frame.free == 0 {
            self.with_room[size].push_front(&mut self.frames, number);
        }
        let frame = &mut self.frames[number as usize];
        frame.free |= 1 << ((at % UNITS_PER_FRAME) >> size);
        if frame.free == all_free(size) {
            self.with_room[size].detach(&mut self.frames, number);
            self.arena.give_back_run(number);
            self.frames_held -= 1;
        }
    }

    /// Takes a frame from the system for blocks of `size`; [`Blocks::has_room`] knows of one.
    fn add_frame(&mut self, size: usize) {
        let number = self.arena.take_run().expect("has_room counted the runs");
        let frame = Frame {
            free: all_free(size),
            link: Link::NONE,
            size: size as u8,
        };
        if number as usize == self.frames.len() {
            grow_gently(&mut self.frames);
            self.frames.push(frame);
        }
        self.frames[number as usize] = frame;
        self.with_room[size].push_front(&mut self.frames, number);
        self.frames_held += 1;
    }

    /// The live record of `handle`.
    fn item(&self, handle: Handle) -> Item {
        let item = self.items[handle.0];
        assert!(item.len > 0, "{handle:?} used after its removal");
        item
    }
}

impl Layout for Blocks {
    fn name(&self) -> &'static str {
        "blocks"
    }

    fn insert(&mut self, bytes: &[u8], growth: Growth) -> Result<Handle, Full> {
        let units = units_for(bytes.len());
        if !self.has_room(units, growth) {
            return Err(Full);
        }
        let mut item = Item {
            blocks: [NONE; BLOCKS_MAX],
            len: bytes.len() as u16,
        };
        let mut rest = bytes;
        for (block, size) in item.blocks.iter_mut().zip(sizes_in(units)) {
            *block = self.take_block(size);
            let (piece, after) = rest.split_at(rest.len().min(UNIT_BYTES << size));
            self.arena.write(*block as usize * UNIT_BYTES, piece);
            rest = after;
        }
        self.payload_bytes += bytes.len() as u64;
        Ok(Handle(self.items.add(item)))
    }

    fn read_into(&self, handle: Handle, out: &mut Vec<u8>) {
        let item = self.item(handle);
        let mut missing = usize::from(item.len);
        for (block, size) in item.blocks.iter().zip(sizes_in(units_for(missing))) {
            let piece = missing.min(UNIT_BYTES << size);
            out.extend_from_slice(self.arena.bytes(*block as usize * UNIT_BYTES, piece));
            missing -= piece;
        }
    }

    fn remove(&mut self, handle: Handle) {
        let item = self.item(handle);
        let sizes = sizes_in(units_for(usize::from(item.len)));
        for (&block, size) in item.blocks.iter().zip(sizes) {
            self.give_back_block(block, size);
        }
        self.items.free(handle.0);
        self.payload_bytes -= u64::from(item.len);
    }

    /// Blocks never move.
    fn relocate_to_free_cell(&mut self) -> bool {
        false
    }

    fn usage(&self) -> Usage {
        let metadata_bytes = size_of::<Self>()
            + self.frames.capacity() * size_of::<Frame>()
            + self.items.metadata_bytes()
            + self.arena.metadata_bytes();
        Usage {
            items: self.items.len() as u64,
            payload_bytes: self.payload_bytes,
            frames_bytes: self.frames_held * PAGE_SIZE as u64,
            metadata_bytes: metadata_bytes as u64,
            compactions: 0,
            relocations: 0,
        }
    }
}

const UNITS_PER_FRAME: u32 = (PAGE_SIZE / UNIT_BYTES) as u32;

/// How many units an item takes; one block for each binary digit.
fn units_for(len: usize) -> u32 {
    assert!((1..=PAGE_SIZE).contains(&len), "item of {len} bytes");
    let mut units = len.div_ceil(UNIT_BYTES) as u32;
    while units.count_ones() as usize > BLOCKS_MAX {
        units += 1 << units.trailing_zeros();
    }
    units
}

/// The sizes of the blocks of an item, as powers of two in units, the largest first.
fn sizes_in(units: u32) -> impl Iterator<Item = usize> {
    (0..SIZE_COUNT)
        .rev()
        .filter(move |size| units >> size & 1 == 1)
}

/// The bits of a frame of blocks of `size` without any item.
fn all_free(size: usize) -> u64 {
    u64::MAX >> (u64::BITS - (UNITS_PER_FRAME >> size))
}

#[cfg(test)]
impl crate::model::Checked for Blocks {
    fn is_valid(&self) -> bool {
        let mut taken = vec![0u64; self.frames.len()];
        let (mut items, mut payload, mut overlap) = (0, 0, false);
        for item in self.items.records().iter().filter(|item| item.len > 0) {
            let sizes = sizes_in(units_for(usize::from(item.len)));
            for (&block, size) in item.blocks.iter().zip(sizes) {
                let number = (block / UNITS_PER_FRAME) as usize;
                let bit = 1 << ((block % UNITS_PER_FRAME) >> size);
                overlap |=
                    taken[number] & bit != 0 || usize::from(self.frames[number].size) != size;
                taken[number] |= bit;
            }
            items += 1;
            payload += u64::from(item.len);
        }
        let held = taken
            .iter()
            .zip(&self.frames)
            .filter(|(&bits, _)| bits != 0);
        let bits_agree = held
            .clone()
            .all(|(&bits, frame)| frame.free == all_free(usize::from(frame.size)) & !bits);
        let with_room = held.clone().filter(|(_, frame)| frame.free != 0).count();
        let listed = self
            .with_room
            .iter()
            .map(|chain| chain.numbers(&self.frames).len());
        !overlap
            && bits_agree
            && held.count() as u64 == self.frames_held
            && with_room == listed.sum::<usize>()
            && items == self.items.len()
            && payload == self.payload_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Checked;

    fn blocks_of(len: usize) -> Vec<usize> {
        sizes_in(units_for(len))
            .map(|size| UNIT_BYTES << size)
            .collect()
    }

    #[test]
    fn an_item_is_split_as_in_the_paper() {
        assert_eq!(blocks_of(2763), [2048, 512, 256]);
        assert_eq!(blocks_of(1), [64]);
        assert_eq!(blocks_of(64), [64]);
        assert_eq!(blocks_of(65), [128]);
        assert_eq!(blocks_of(4096), [4096]);
    }

    #[test]
    fn every_item_fits_into_at_most_five_blocks_with_less_than_a_block_lost() {
        for len in 1..=PAGE_SIZE {
            let blocks = blocks_of(len);
            assert!(blocks.len() <= BLOCKS_MAX, "{len}");
            let lost = blocks.iter().sum::<usize>().checked_sub(len);
            assert!(lost < blocks.last().copied(), "{len}: {blocks:?}");
        }
    }

    #[test]
    fn blocks_of_a_size_share_frames_and_empty_frames_go_back_at_once() {
        let mut store = Blocks::new(1 << 20).expect("reserve");
        let handles: Vec<_> = (0..9)
            .map(|i| store.insert(&[i; 512], Growth::Allowed).expect("room"))
            .collect();
        assert_eq!(store.usage().frames_bytes, 2 * PAGE_SIZE as u64);
        store.remove(handles[8]);
        assert_eq!(store.usage().frames_bytes, PAGE_SIZE as u64);
        assert!(store.is_valid());
    }

    #[test]
    fn denied_growth_takes_nothing_when_one_block_is_missing() {
        let mut store = Blocks::new(1 << 20).expect("reserve");
        store.insert(&[1; 512], Growth::Allowed).expect("room");
        let before = store.usage();
        assert_eq!(store.insert(&[2; 512 + 64], Growth::Denied), Err(Full));
        assert_eq!(store.usage(), before);
        assert!(store.insert(&[2; 512], Growth::Denied).is_ok());
        assert!(store.is_valid());
    }

    #[test]
    fn an_item_of_two_blocks_is_refused_when_there_is_address_space_for_one() {
        let mut store = Blocks::new(0).expect("reserve");
        let raw = [1; PAGE_SIZE];
        let last = std::iter::from_fn(|| store.insert(&raw, Growth::Allowed).ok()).last();
        store.remove(last.expect("some fit"));
        let before = store.usage();
        assert_eq!(store.insert(&[2; 512 + 64], Growth::Allowed), Err(Full));
        assert_eq!(store.usage(), before);
        assert!(store.insert(&[2; 512], Growth::Allowed).is_ok());
    }
}
