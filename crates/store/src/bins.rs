//! pleat's own layout: 128 bins of equal slots, each bin a stack without holes.
//!
//! ```text
//! bin of 1473..=1504 bytes          chunk (1 MiB of addresses)              chunk
//!                         | slot | slot | slot | ... | slot | -> | slot | slot |  backed |       |
//!                                                                         top ^  (slack)  ^ backed
//! slot: 4 bytes handle of its item, the item, less than 32 bytes unused
//! ```
//!
//! An item goes on top of its bin. When one is removed, the item on top moves into its place: at
//! most one copy, and what is lost is only the rounding to 32 bytes, 12 to 13 bytes per item (its
//! handle in the slot, its entry in a table) and some frames on top of each bin (slack), kept so
//! that a bin that goes up and down does not give back and fault in the same frame again and
//! again. Slots ignore frame boundaries.
//!
//! Measured with the example `churn` on the folded pages of nine programs and file collections,
//! 64 MiB each: 1.008 to 1.047 bytes held per byte of items after random churn, tables included,
//! where zsmalloc holds 1.025 to 1.095, and 1.021 to 1.053 once compacted.
//!
//! Not in the account: the kernel's page tables, 1/512 of the frames and up to 4 KiB per bin.

use std::io;

use pleat_types::PAGE_SIZE;

use crate::arena::Arena;
use crate::layout::{Full, Growth, Handle, Layout, Usage};
use crate::slab::{grow_gently, Record, Slab};

/// Item sizes are rounded up to this many bytes.
const GRANULE_BYTES: usize = 32;
const BIN_COUNT: usize = PAGE_SIZE / GRANULE_BYTES;
/// The handle of its item in front of each slot: whose entry to change when the item moves.
const OWNER_BYTES: usize = size_of::<u32>();
/// Addresses a bin takes at a time. Only touched frames hold memory, so this costs nothing but
/// page tables and the rest at the chunk's end, under a slot.
const CHUNK_FRAMES: usize = 256;
const CHUNK_BYTES: usize = CHUNK_FRAMES * PAGE_SIZE;
/// A bin keeps this part of its frames as slack: 1/32 ...
const SLACK_SHIFT: u32 = 5;
/// ... but no more than this many.
const SLACK_FRAMES_MAX: u32 = 16;
/// With growth denied, bins take frames from each other only while all of them together keep this
/// part of the frames as slack: 1/64. A store at its limit would else use up all slack, and
/// every third insertion would move a frame, which costs two system calls' worth of time.
const RESERVE_SHIFT: u32 = 6;
const NONE: u32 = u32::MAX;

/// Where an item is. `len == 0`: the handle is free.
#[derive(Clone, Copy)]
struct Item(u64);

impl Item {
    const LEN_BITS: u32 = 13;

    fn new(at: usize, len: usize) -> Self {
        Item((at as u64) << Self::LEN_BITS | len as u64)
    }

    /// Start of its slot, in bytes from the start of the arena.
    fn at(self) -> usize {
        (self.0 >> Self::LEN_BITS) as usize
    }

    fn len(self) -> usize {
        (self.0 & ((1 << Self::LEN_BITS) - 1)) as usize
    }
}

/// The next free handle is where the slot was.
impl Record for Item {
    fn vacant(next_free: u32) -> Self {
        Item::new(next_free as usize, 0)
    }

    fn next_free(&self) -> u32 {
        self.at() as u32
    }
}

/// One bin. `frames_for(top) <= backed`, and `top` is 0 only without a chunk.
#[derive(Clone, Copy)]
struct Bin {
    /// The chunk on top, or [`NONE`].
    chunk: u32,
    /// Bytes of that chunk in use.
    top: u32,
    /// Frames of that chunk, from its start, that hold memory.
    backed: u32,
    /// Frames of all its chunks that hold memory.
    frames: u32,
}

impl Bin {
    const EMPTY: Bin = Bin {
        chunk: NONE,
        top: 0,
        backed: 0,
        frames: 0,
    };

    /// Frames that hold memory but no item.
    fn slack(&self) -> u32 {
        self.backed - frames_for(self.top as usize)
    }

    fn slack_max(&self) -> u32 {
        (self.frames >> SLACK_SHIFT).min(SLACK_FRAMES_MAX)
    }
}

/// Bins of equal slots, each a stack without holes. See the head of this file.
pub struct Bins {
    arena: Arena,
    bins: Box<[Bin; BIN_COUNT]>,
    /// For each chunk the one below it in its bin, or [`NONE`].
    below: Vec<u32>,
    items: Slab<Item>,
    payload_bytes: u64,
    /// Sum of `frames` of all bins.
    frames: u64,
    relocations: u64,
}

impl Bins {
    /// An empty layout, ready for `max_bytes` bytes of items and more.
    ///
    /// # Errors
    /// When the system refuses the address space.
    pub fn new(max_bytes: u64) -> io::Result<Self> {
        Ok(Bins {
            arena: Arena::new(max_bytes, CHUNK_FRAMES)?,
            bins: Box::new([Bin::EMPTY; BIN_COUNT]),
            below: Vec::new(),
            items: Slab::new(),
            payload_bytes: 0,
            frames: 0,
            relocations: 0,
        })
    }

    /// Makes sure that the next slot on top of the bin has an address and memory.
    fn make_room(&mut self, index: usize, growth: Growth) -> Result<(), Full> {
        let bin = self.bins[index];
        let slot = slot_bytes(index);
        let needs_chunk = bin.chunk == NONE || bin.top as usize + slot > CHUNK_BYTES;
        let (top, backed) = if needs_chunk {
            (0, 0)
        } else {
            (bin.top as usize, bin.backed)
        };
        let missing = frames_for(top + slot).saturating_sub(backed);
        if missing > 0 && growth == Growth::Denied {
            self.give_up_slack_of_others(index, missing)?;
        }
        if needs_chunk {
            self.push_chunk(index)?;
        }
        self.bins[index].backed += missing;
        self.bins[index].frames += missing;
        self.frames += u64::from(missing);
        Ok(())
    }

    fn push_chunk(&mut self, index: usize) -> Result<(), Full> {
        let chunk = self.arena.take_run().ok_or(Full)?;
        if chunk as usize == self.below.len() {
            grow_gently(&mut self.below);
            self.below.push(NONE);
        }
        let bin = &mut self.bins[index];
        self.below[chunk as usize] = bin.chunk;
        (bin.chunk, bin.top, bin.backed) = (chunk, 0, 0);
        Ok(())
    }

    /// Gives back the emptied chunk on top of the bin.
    fn pop_chunk(&mut self, index: usize) {
        let bin = &mut self.bins[index];
        self.arena.give_back_run(bin.chunk);
        self.frames -= u64::from(bin.backed);
        bin.frames -= bin.backed;
        bin.chunk = self.below[bin.chunk as usize];
        (bin.top, bin.backed) = (0, 0);
        if bin.chunk != NONE {
            let slot = slot_bytes(index);
            bin.top = (CHUNK_BYTES / slot * slot) as u32;
            bin.backed = frames_for(bin.top as usize);
        }
    }

    /// Gives back `frames` of the bin's slack, the topmost ones.
    fn give_up_slack(&mut self, index: usize, frames: u32) {
        let bin = &mut self.bins[index];
        debug_assert!(frames <= bin.slack());
        bin.backed -= frames;
        bin.frames -= frames;
        self.frames -= u64::from(frames);
        let at = self.arena.run_at(bin.chunk) + bin.backed as usize * PAGE_SIZE;
        self.arena.release(at, frames as usize * PAGE_SIZE);
    }

    /// Gives back just `frames` of the slack of bins other than `index`, most slack first.
    fn give_up_slack_of_others(&mut self, index: usize, frames: u32) -> Result<(), Full> {
        let others = (0..BIN_COUNT).filter(|&other| other != index);
        let slack: u32 = others.clone().map(|other| self.bins[other].slack()).sum();
        if u64::from(slack) < u64::from(frames) + (self.frames >> RESERVE_SHIFT) {
            return Err(Full);
        }
        let mut missing = frames;
        while missing > 0 {
            // `slack >= frames` makes sure that there is one with slack.
            let Some(donor) = others.clone().max_by_key(|&other| self.bins[other].slack()) else {
                return Err(Full);
            };
            let given = self.bins[donor].slack().min(missing);
            self.give_up_slack(donor, given);
            missing -= given;
        }
        Ok(())
    }

    /// The bytes of an item.
    fn get(&self, handle: Handle) -> &[u8] {
        let item = self.item(handle);
        self.arena.bytes(item.at() + OWNER_BYTES, item.len())
    }

    /// The live record of `handle`.
    fn item(&self, handle: Handle) -> Item {
        let item = self.items[handle.0];
        assert!(item.len() > 0, "{handle:?} used after its removal");
        item
    }

    /// Takes the slot on top off its bin, after moving its item to the free slot at `hole`.
    fn fill_hole_from_top(&mut self, index: usize, hole: usize) {
        let bin = &mut self.bins[index];
        bin.top -= slot_bytes(index) as u32;
        let top = self.arena.run_at(bin.chunk) + bin.top as usize;
        if top == hole {
            return;
        }
        let owner = self.owner(top);
        let len = self.items[owner].len();
        self.arena.copy(top, hole, OWNER_BYTES + len);
        self.items[owner] = Item::new(hole, len);
        self.relocations += 1;
    }

    /// Whose item is in the slot at `at`.
    fn owner(&self, at: usize) -> u32 {
        let mut owner = [0; OWNER_BYTES];
        owner.copy_from_slice(self.arena.bytes(at, OWNER_BYTES));
        u32::from_ne_bytes(owner)
    }
}

impl Layout for Bins {
    fn name(&self) -> &'static str {
        "bins"
    }

    /// Cost: see the example `churn`.
    fn insert(&mut self, bytes: &[u8], growth: Growth) -> Result<Handle, Full> {
        let index = bin_of(bytes.len());
        self.make_room(index, growth)?;
        let bin = &mut self.bins[index];
        let at = self.arena.run_at(bin.chunk) + bin.top as usize;
        bin.top += slot_bytes(index) as u32;
        let handle = self.items.add(Item::new(at, bytes.len()));
        self.arena.write(at, &handle.to_ne_bytes());
        self.arena.write(at + OWNER_BYTES, bytes);
        self.payload_bytes += bytes.len() as u64;
        Ok(Handle(handle))
    }

    fn read_into(&self, handle: Handle, out: &mut Vec<u8>) {
        out.extend_from_slice(self.get(handle));
    }

    /// Gives frames back once the bin has more slack than it may keep; half of that stays.
    fn remove(&mut self, handle: Handle) {
        let item = self.item(handle);
        let index = bin_of(item.len());
        self.fill_hole_from_top(index, item.at());
        self.items.free(handle.0);
        self.payload_bytes -= item.len() as u64;
        let bin = self.bins[index];
        if bin.top == 0 {
            self.pop_chunk(index);
        } else if bin.slack() > bin.slack_max() {
            self.give_up_slack(index, bin.slack() - bin.slack_max().div_ceil(2));
        }
    }

    /// No item needs to move: what can be given back is slack, here all of one bin.
    fn relocate_to_free_cell(&mut self) -> bool {
        let Some(index) = (0..BIN_COUNT).find(|&index| self.bins[index].slack() > 0) else {
            return false;
        };
        self.give_up_slack(index, self.bins[index].slack());
        true
    }

    fn usage(&self) -> Usage {
        let metadata_bytes = size_of::<Self>()
            + size_of_val(&*self.bins)
            + self.below.capacity() * size_of::<u32>()
            + self.items.metadata_bytes()
            + self.arena.metadata_bytes();
        Usage {
            items: self.items.len() as u64,
            payload_bytes: self.payload_bytes,
            frames_bytes: self.frames * PAGE_SIZE as u64,
            metadata_bytes: metadata_bytes as u64,
            compactions: 0,
            relocations: self.relocations,
        }
    }
}

/// The bin for items of `len` bytes.
fn bin_of(len: usize) -> usize {
    assert!((1..=PAGE_SIZE).contains(&len), "item of {len} bytes");
    (len - 1) / GRANULE_BYTES
}

/// Bytes of a slot of a bin, its owner included.
fn slot_bytes(index: usize) -> usize {
    OWNER_BYTES + (index + 1) * GRANULE_BYTES
}

/// Frames that hold the first `bytes` bytes of a chunk.
fn frames_for(bytes: usize) -> u32 {
    bytes.div_ceil(PAGE_SIZE) as u32
}

#[cfg(test)]
impl Bins {
    /// Starts of the slots in use in a bin, from the top chunk down, and the frames they take
    /// together with the bin's slack.
    fn slots(&self, index: usize) -> (Vec<usize>, u32) {
        let bin = &self.bins[index];
        let slot = slot_bytes(index);
        let (mut slots, mut frames) = (Vec::new(), bin.slack());
        let (mut chunk, mut top) = (bin.chunk, bin.top as usize);
        while chunk != NONE {
            let start = self.arena.run_at(chunk);
            slots.extend((start..start + top).step_by(slot));
            frames += frames_for(top);
            chunk = self.below[chunk as usize];
            top = CHUNK_BYTES / slot * slot;
        }
        (slots, frames)
    }

    fn bin_is_valid(&self, index: usize) -> bool {
        let bin = &self.bins[index];
        let (slots, frames) = self.slots(index);
        let owners_valid = slots.iter().all(|&at| {
            let item = self.items[self.owner(at)];
            item.at() == at && bin_of(item.len()) == index
        });
        owners_valid
            && frames == bin.frames
            && bin.slack() <= bin.slack_max() + 1
            && (bin.chunk == NONE) == (bin.top == 0)
    }
}

#[cfg(test)]
impl crate::model::Checked for Bins {
    fn is_valid(&self) -> bool {
        let slots: usize = (0..BIN_COUNT).map(|index| self.slots(index).0.len()).sum();
        let frames: u64 = self.bins.iter().map(|bin| u64::from(bin.frames)).sum();
        let lens = self.items.records().iter().map(|item| item.len() as u64);
        (0..BIN_COUNT).all(|index| self.bin_is_valid(index))
            && slots == self.items.len()
            && frames == self.frames
            && lens.sum::<u64>() == self.payload_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Checked;

    fn bins() -> Bins {
        Bins::new(16 << 20).expect("reserve")
    }

    #[test]
    fn removal_moves_at_most_one_item_and_leaves_no_hole() {
        let mut store = bins();
        let handles: Vec<_> = (0..10u8)
            .map(|i| store.insert(&[i; 1000], Growth::Allowed).expect("room"))
            .collect();
        store.remove(handles[2]);
        assert_eq!(store.usage().relocations, 1);
        assert_eq!(store.get(handles[9]), [9; 1000]);
        store.remove(handles[8]);
        assert_eq!(store.usage().relocations, 1);
        assert_eq!(store.usage().frames_bytes, 3 * PAGE_SIZE as u64);
    }

    #[test]
    fn chunks_come_and_go_with_their_items() {
        let mut store = bins();
        let handles: Vec<_> = (0..600)
            .map(|_| {
                store
                    .insert(&[1; PAGE_SIZE], Growth::Allowed)
                    .expect("room")
            })
            .collect();
        assert!(store.is_valid());
        for handle in handles {
            store.remove(handle);
            assert!(store.is_valid());
        }
        assert_eq!(store.usage().frames_bytes, 0);
    }

    #[test]
    fn denied_growth_uses_the_slack_of_other_bins_and_holds_no_more_than_before() {
        let mut store = bins();
        let handles: Vec<_> = (0..1000)
            .map(|_| store.insert(&[1; 2000], Growth::Allowed).expect("room"))
            .collect();
        assert_eq!(store.insert(&[2; 300], Growth::Denied), Err(Full));
        for handle in &handles[..20] {
            store.remove(*handle);
        }
        let held = store.usage().frames_bytes;
        assert!(store.insert(&[2; 300], Growth::Denied).is_ok());
        assert_eq!(store.usage().frames_bytes, held);
        assert!(store.is_valid());
    }

    #[test]
    fn frames_can_come_from_several_bins_at_once() {
        let mut store = bins();
        for len in [1000, 2000, 3000] {
            let count = 40 * PAGE_SIZE / slot_bytes(bin_of(len));
            let handles: Vec<_> = (0..count)
                .map(|_| store.insert(&vec![1; len], Growth::Allowed).expect("room"))
                .collect();
            let mut newest_first = handles.into_iter().rev();
            while store.bins[bin_of(len)].slack() == 0 {
                store.remove(newest_first.next().expect("more items"));
            }
        }
        let held = store.usage().frames_bytes;
        // The first slot for a raw page reaches into a second frame.
        assert!(store.insert(&[2; PAGE_SIZE], Growth::Denied).is_ok());
        assert_eq!(store.usage().frames_bytes, held);
        assert!(store.is_valid());
    }

    #[test]
    fn slack_is_bounded_and_given_up_on_request() {
        let mut store = bins();
        let handles: Vec<_> = (0..4000)
            .map(|_| store.insert(&[1; 1000], Growth::Allowed).expect("room"))
            .collect();
        for handle in &handles[..2000] {
            store.remove(*handle);
        }
        let dense = 2000 * slot_bytes(bin_of(1000)) as u64;
        let slack_frames = u64::from(SLACK_FRAMES_MAX) + 2;
        assert!(store.usage().frames_bytes <= dense + slack_frames * PAGE_SIZE as u64);
        while store.relocate_to_free_cell() {}
        assert!(store.usage().frames_bytes <= dense + 2 * PAGE_SIZE as u64);
        assert!(store.is_valid());
    }
}
