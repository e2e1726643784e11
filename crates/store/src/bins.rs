//! pleat's own layout: 128 bins of equal slots, each bin a stack with few holes.
//!
//! ```text
//! bin of 1473..=1504 bytes          chunk (1 MiB of addresses)              chunk
//!                         | slot | slot | slot | ... | slot | -> | slot | slot |  backed |       |
//!                                                                         top ^  (slack)  ^ backed
//! slot: 4 bytes handle of its item, the item, less than 32 bytes unused
//! ```
//!
//! An item goes into the newest hole of its bin, or else on top. A removal leaves a hole; once the
//! bin has its share of them, the item on top moves there instead. Where items come and go, an
//! insertion follows each removal, and what the removal would copy, between lines far apart that no
//! cache holds, need not move at all. What is lost is the rounding to 32 bytes, 12 to 13 bytes per
//! item (its handle in the slot, its entry in a table), the holes, and some frames on top of each
//! bin (slack), kept so that a bin that goes up and down does not give back and fault in the same
//! frame again and again. Holes count as slack, which they become once filled from the top: so they
//! are where growth is denied or frames are asked back. Slots ignore frame boundaries.
//!
//! Measured with the example `churn` on the folded pages of nine programs and file collections,
//! 64 MiB each: 1.008 to 1.047 bytes held per byte of items after random churn, tables included,
//! where zsmalloc holds 1.025 to 1.095, and 1.021 to 1.053 once compacted.
//!
//! Not in the account: the kernel's page tables, 1/512 of the frames and up to 4 KiB per bin.

mod holes;

use std::io;

use pleat_types::PAGE_SIZE;

use self::holes::{Holes, HOLE};
use crate::arena::{Arena, Release};
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
/// Frames given back go to the system together once they are this part of those held: 1/256. That many hold memory
/// for nothing meanwhile, unless their bin grows again.
const SOON_SHIFT: u32 = 8;
/// A bin keeps this part of its slots as holes: 1/128. With 64 MiB a seventh of the removals still
/// move an item then, with 256 MiB a fourteenth; with 1/32 it would be a fourteenth and a twentieth,
/// but a store that shrinks would hold up to 1.4 % more ...
const HOLES_SHIFT: u32 = 7;
/// ... but no more than this many.
const HOLES_MAX: u32 = 16;
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

/// One bin. `frames_for(top) <= backed`. `top` is 0 without a chunk, and where the slots of the
/// chunk on top were given up for their frames: it goes when the bin is lowered next, for its
/// frames may be wanted one by one.
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
    /// Slots of all its chunks, holes included.
    slots: u32,
    holes: Holes,
    /// [`Bins::spare_now`] after the last change.
    spare: u32,
}

impl Bin {
    const EMPTY: Bin = Bin {
        chunk: NONE,
        top: 0,
        backed: 0,
        frames: 0,
        slots: 0,
        holes: Holes::NONE,
        spare: 0,
    };

    /// Frames that hold memory but no slot.
    fn slack(&self) -> u32 {
        self.backed - frames_for(self.top as usize)
    }

    fn slack_max(&self) -> u32 {
        (self.frames >> SLACK_SHIFT).min(SLACK_FRAMES_MAX)
    }

    fn holes_max(&self) -> u32 {
        (self.slots >> HOLES_SHIFT).min(HOLES_MAX)
    }
}

/// Bins of equal slots, each a stack with few holes. See the head of this file.
pub struct Bins {
    arena: Arena,
    bins: Box<[Bin; BIN_COUNT]>,
    /// For each chunk the one below it in its bin, or [`NONE`].
    below: Vec<u32>,
    items: Slab<Item>,
    payload_bytes: u64,
    /// Sum of `frames` of all bins.
    frames: u64,
    /// Sum of `spare` of all bins: asked for whenever growth is denied, most often in vain.
    spare: u32,
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
            spare: 0,
            relocations: 0,
        })
    }

    /// Puts a slot on top of the bin, and returns where.
    fn grow(&mut self, index: usize, growth: Growth) -> Result<usize, Full> {
        self.make_room(index, growth)?;
        let bin = &mut self.bins[index];
        bin.top += slot_bytes(index) as u32;
        bin.slots += 1;
        Ok(self.top_slot(index))
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
            self.take_from_others(index, missing)?;
        }
        if needs_chunk {
            self.push_chunk(index)?;
        }
        if missing > 0 {
            self.back(index, missing);
        }
        Ok(())
    }

    /// The next `frames` of the chunk on top of the bin are to hold memory: perhaps some still do.
    fn back(&mut self, index: usize, frames: u32) {
        let bin = &mut self.bins[index];
        let at = self.arena.run_at(bin.chunk) + bin.backed as usize * PAGE_SIZE;
        self.arena.keep(at, frames as usize * PAGE_SIZE);
        bin.backed += frames;
        bin.frames += frames;
        self.frames += u64::from(frames);
    }

    fn push_chunk(&mut self, index: usize) -> Result<(), Full> {
        let chunk = self.take_run().ok_or(Full)?;
        if chunk as usize == self.below.len() {
            grow_gently(&mut self.below);
            self.below.push(NONE);
        }
        let bin = &mut self.bins[index];
        self.below[chunk as usize] = bin.chunk;
        (bin.chunk, bin.top, bin.backed) = (chunk, 0, 0);
        Ok(())
    }

    /// Addresses for a chunk. When they are used up, there may be a chunk that exists only because
    /// of holes.
    fn take_run(&mut self) -> Option<u32> {
        if self.arena.runs_left() == 0 {
            for index in 0..BIN_COUNT {
                self.lower_until(index, |store| store.bins[index].holes.is_empty());
                self.lower_until(index, |store| !store.is_free_on_top(index));
            }
        }
        self.arena.take_run()
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
            bin.top = full_top(index) as u32;
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
        let soon_max = (self.frames >> SOON_SHIFT) as usize * PAGE_SIZE;
        self.arena
            .release_soon(at, frames as usize * PAGE_SIZE, soon_max);
        self.count_spare(index);
    }

    /// Gives back just `frames` of bins other than `index`: slack, most first, and when there is no
    /// more, what becomes slack once holes are filled.
    fn take_from_others(&mut self, index: usize, frames: u32) -> Result<(), Full> {
        let spare = self.spare - self.bins[index].spare;
        if u64::from(spare) < u64::from(frames) + (self.frames >> RESERVE_SHIFT) {
            return Err(Full);
        }
        let mut missing = frames;
        while missing > 0 {
            // `spare >= frames` makes sure that there is one with some.
            let others = (0..BIN_COUNT).filter(|&other| other != index);
            let key = |&other: &usize| (self.bins[other].slack(), self.bins[other].spare);
            let Some(donor) = others.max_by_key(key) else {
                return Err(Full);
            };
            self.lower_until(donor, |store| store.bins[donor].slack() > 0);
            let given = self.bins[donor].slack().min(missing);
            self.give_up_slack(donor, given);
            missing -= given;
        }
        Ok(())
    }

    /// Brings the accounts of what the bin could spare up to date, after a change to it.
    fn count_spare(&mut self, index: usize) {
        let spare = self.spare_now(index);
        self.spare = self.spare - self.bins[index].spare + spare;
        self.bins[index].spare = spare;
    }

    /// The slack that the bin would have, were its holes filled from the top.
    fn spare_now(&self, index: usize) -> u32 {
        let bin = &self.bins[index];
        let (top, holes) = (
            bin.top as usize,
            bin.holes.len() as usize * slot_bytes(index),
        );
        if holes == 0 || holes < top {
            return bin.backed - frames_for(top - holes);
        }
        let below = full_top(index);
        bin.backed + frames_for(below) - frames_for(below + top - holes)
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

    /// Where the slot on top of the bin is. The chunk on top must have one.
    fn top_slot(&self, index: usize) -> usize {
        let bin = &self.bins[index];
        self.arena.run_at(bin.chunk) + bin.top as usize - slot_bytes(index)
    }

    /// Whether the bin has a chunk, and on top of it a hole or nothing.
    fn is_free_on_top(&self, index: usize) -> bool {
        let bin = &self.bins[index];
        let is_hole = || !bin.holes.is_empty() && self.owner(self.top_slot(index)) == HOLE;
        bin.chunk != NONE && (bin.top == 0 || is_hole())
    }

    /// Takes the slot on top off a bin with holes: the hole that it is, or else its item moves to
    /// the newest hole. A chunk without slots goes.
    fn lower(&mut self, index: usize) {
        if self.bins[index].top == 0 {
            return self.pop_chunk(index);
        }
        let top = self.top_slot(index);
        let owner = self.owner(top);
        let bin = &mut self.bins[index];
        if owner == HOLE {
            bin.holes.take_out(&mut self.arena, top);
        } else {
            let hole = bin.holes.pop(&self.arena).expect("the bin has holes");
            let len = self.items[owner].len();
            self.arena.copy(top, hole, OWNER_BYTES + len);
            self.items[owner] = Item::new(hole, len);
            self.relocations += 1;
        }
        bin.top -= slot_bytes(index) as u32;
        bin.slots -= 1;
    }

    fn lower_until(&mut self, index: usize, is_done: impl Fn(&Self) -> bool) {
        while !is_done(self) {
            self.lower(index);
        }
        self.count_spare(index);
    }

    /// Makes a hole of the slot at `at`, and lowers the bin when that is one too many or on top.
    fn free_slot(&mut self, index: usize, at: usize) {
        // Whether there is a hole on top is asked only when the top has changed: the answer is in
        // the slot, which no cache holds.
        let was_on_top = self.bins[index].top > 0 && at == self.top_slot(index);
        let bin = &mut self.bins[index];
        bin.holes.push(&mut self.arena, at);
        if was_on_top || bin.holes.len() > bin.holes_max() {
            self.lower(index);
            self.lower_until(index, |store| {
                let bin = &store.bins[index];
                bin.holes.len() <= bin.holes_max() && !store.is_free_on_top(index)
            });
        } else {
            self.count_spare(index);
        }
    }

    /// Whose item is in the slot at `at`; [`HOLE`] for none.
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
        let at = match self.bins[index].holes.pop(&self.arena) {
            Some(hole) => hole,
            None => self.grow(index, growth)?,
        };
        self.count_spare(index);
        let handle = self.items.add(Item::new(at, bytes.len()));
        self.arena.write(at, &handle.to_ne_bytes());
        self.arena.write(at + OWNER_BYTES, bytes);
        self.payload_bytes += bytes.len() as u64;
        Ok(Handle(handle))
    }

    fn read_into(&self, handle: Handle, out: &mut Vec<u8>) {
        out.extend_from_slice(self.get(handle));
    }

    /// Gives frames back once the bin has more slack than it may keep, its holes included; half of
    /// that stays.
    fn remove(&mut self, handle: Handle) {
        let item = self.item(handle);
        let index = bin_of(item.len());
        self.items.free(handle.0);
        self.payload_bytes -= item.len() as u64;
        self.free_slot(index, item.at());
        let bin = &self.bins[index];
        if bin.spare > bin.slack_max() && bin.slack() > 0 {
            let excess = bin.spare - bin.slack_max().div_ceil(2);
            self.give_up_slack(index, excess.min(bin.slack()));
        }
    }

    /// What can be given back is slack, here all of one bin; when there is no more, items move
    /// into holes where that makes some.
    fn relocate_to_free_cell(&mut self) -> bool {
        let slack = |index: &usize| self.bins[*index].slack() > 0;
        let spare = |index: &usize| self.bins[*index].spare > 0;
        let Some(index) = (0..BIN_COUNT)
            .find(slack)
            .or_else(|| (0..BIN_COUNT).find(spare))
        else {
            return false;
        };
        if self.bins[index].slack() == 0 {
            let is_slack = |store: &Self| store.spare_now(index) == store.bins[index].slack();
            self.lower_until(index, is_slack);
        }
        self.give_up_slack(index, self.bins[index].slack());
        true
    }

    fn take_release(&mut self) -> Option<Release> {
        self.arena.take_release()
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

/// `top` of a chunk with another on it.
fn full_top(index: usize) -> usize {
    CHUNK_BYTES / slot_bytes(index) * slot_bytes(index)
}

/// Frames that hold the first `bytes` bytes of a chunk.
fn frames_for(bytes: usize) -> u32 {
    bytes.div_ceil(PAGE_SIZE) as u32
}

#[cfg(test)]
mod tests;
