//! douglis93's layout: a circular buffer of frames, as many as the items need (section 4.2).
//!
//! ```text
//! slot      0        1        2        3        4        5        6        7
//!       |  new   |  free  |  free  | clean  | dirty  | dirty  |  free  | dirty  |
//!       |item.   |        |        |  item,i|tem,item|,item   |        |  item  |
//!             ^ tail                 ^ oldest
//! ```
//!
//! An item goes behind the last one. A frame is added where the tail goes on, and a frame whose
//! items are all gone is free at once, wherever it lies: its slot is then an address without
//! memory. The tail goes round and jumps over slots still in use; the frames from the slot behind
//! the tail on, in a circle, are the oldest to the newest, so that a frame jumped over counts as
//! being as new as those around it. At its end the ring gets longer while half of it is in use.

use std::io;

use pleat_types::PAGE_SIZE;

use crate::arena::Arena;
use crate::chain::{Chain, NONE};
use crate::frame_set::FrameSet;
use crate::layout::{FrameStates, Full, Growth, Handle, Layout, Usage};
use crate::placed::Placed;
use crate::slab::{grow_gently, Slab};

/// What is in one slot. `dirty <= live`, counting items that reach into it; free when `live == 0`.
/// 8 bytes per address, as in the paper (section 4.4).
#[derive(Clone, Copy)]
struct Frame {
    /// The first item that reaches into it; those that follow in `order` do too, up to `live`.
    first: u32,
    live: u16,
    dirty: u16,
}

impl Frame {
    const FREE: Frame = Frame {
        first: NONE,
        live: 0,
        dirty: 0,
    };
}

/// A circular buffer of frames. See the head of this file.
pub struct Ring {
    arena: Arena,
    /// The most slots there is address space for.
    slots_max: usize,
    /// By slot; as many as the ring is long.
    frames: Vec<Frame>,
    /// The slot that the last item went to, or [`NONE`], and the bytes of it behind which is room.
    tail: u32,
    tail_end: usize,
    /// Held frames without dirty items, and those with some.
    clean: FrameSet,
    dirty: FrameSet,
    items: Slab<Placed>,
    /// All items in the order of their places.
    order: Chain,
    payload_bytes: u64,
}

impl Ring {
    /// An empty layout, ready for `max_bytes` bytes of items and more.
    ///
    /// # Errors
    /// When the system refuses the address space.
    pub fn new(max_bytes: u64) -> io::Result<Self> {
        let arena = Arena::new(max_bytes, 1)?;
        Ok(Ring {
            slots_max: arena.runs_left(),
            arena,
            frames: Vec::new(),
            tail: NONE,
            tail_end: 0,
            clean: FrameSet::new(),
            dirty: FrameSet::new(),
            items: Slab::new(),
            order: Chain::EMPTY,
            payload_bytes: 0,
        })
    }

    fn frames_held(&self) -> u64 {
        self.clean.len() + self.dirty.len()
    }

    /// Bytes at the end of the frame at the tail that can take an item.
    fn room_at_tail(&self) -> usize {
        match self.frames.get(self.tail as usize) {
            Some(frame) if frame.live > 0 => PAGE_SIZE - self.tail_end,
            _ => 0,
        }
    }

    /// Where the next item goes: behind the last, or else into a new frame, and then from the end
    /// of the one before if that is its neighbour.
    fn place_for(&mut self, len: usize, growth: Growth) -> Result<(u32, usize), Full> {
        let room = self.room_at_tail();
        if len <= room {
            return Ok((self.tail, self.tail_end));
        }
        if growth == Growth::Denied {
            return Err(Full);
        }
        let slot = self.next_slot().ok_or(Full)?;
        if room > 0 && slot == self.tail + 1 {
            return Ok((self.tail, self.tail_end));
        }
        Ok((slot, 0))
    }

    /// The first free slot behind the tail. Every slot in use is jumped over at most once a round,
    /// and a round begins only when at least half of the slots are free.
    fn next_slot(&mut self) -> Option<u32> {
        let is_free = |frame: &Frame| frame.live == 0;
        let start = self.tail.wrapping_add(1) as usize;
        if let Some(ahead) = self.frames[start..].iter().position(is_free) {
            return Some((start + ahead) as u32);
        }
        let slots = self.frames.len();
        let half_used = self.frames_held() * 2 >= slots as u64;
        if half_used && slots < self.slots_max {
            grow_gently(&mut self.frames);
            self.frames.push(Frame::FREE);
            return Some(slots as u32);
        }
        let round = self.frames.iter().position(is_free)?;
        Some(round as u32)
    }

    /// Counts a dirty item that is the last to reach into `slot`.
    fn join(&mut self, slot: u32, handle: u32) {
        let frame = &mut self.frames[slot as usize];
        if frame.live == 0 {
            frame.first = handle;
        }
        frame.live += 1;
        frame.dirty += 1;
        self.sort_in(slot);
    }

    /// Takes an item, still in `order`, off the account of a slot that it reaches into.
    fn leave(&mut self, slot: u32, handle: u32) {
        let item = self.items[handle];
        let frame = &mut self.frames[slot as usize];
        if frame.first == handle {
            // The next one is in this slot too, or else nothing is.
            frame.first = item.next();
        }
        frame.live -= 1;
        frame.dirty -= u16::from(!item.is_clean());
        if frame.live == 0 {
            self.arena.release(self.arena.run_at(slot), PAGE_SIZE);
        }
        self.sort_in(slot);
    }

    /// Puts a frame into the set that it belongs in.
    fn sort_in(&mut self, slot: u32) {
        let Frame { live, dirty, .. } = self.frames[slot as usize];
        if dirty > 0 {
            self.dirty.insert(slot);
        } else {
            self.dirty.remove(slot);
        }
        if live > 0 && dirty == 0 {
            self.clean.insert(slot);
        } else {
            self.clean.remove(slot);
        }
    }

    /// An empty ring holds no tables.
    fn forget_slots(&mut self) {
        self.frames = Vec::new();
        (self.clean, self.dirty) = (FrameSet::new(), FrameSet::new());
        (self.tail, self.tail_end) = (NONE, 0);
    }

    /// Where the oldest frames begin.
    fn oldest(&self) -> u32 {
        self.tail.wrapping_add(1)
    }

    /// The items that reach into a slot, in order.
    fn items_in(&self, slot: u32) -> impl Iterator<Item = (u32, &Placed)> {
        let Frame { first, live, .. } = self.frames[slot as usize];
        self.items.chained(first).take(usize::from(live))
    }
}

/// The one or two slots that an item is in.
fn slots_of(item: &Placed) -> impl Iterator<Item = u32> {
    item.frame..=item.frame + u32::from(item.end() > PAGE_SIZE)
}

impl Layout for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn insert(&mut self, bytes: &[u8], growth: Growth) -> Result<Handle, Full> {
        let len = bytes.len();
        assert!((1..=PAGE_SIZE).contains(&len), "item of {len} bytes");
        let (slot, at) = self.place_for(len, growth)?;
        let item = Placed::new(slot, at, len);
        let handle = self.items.add(item);
        self.order.push_back(self.items.records_mut(), handle);
        for slot in slots_of(&item) {
            self.join(slot, handle);
            self.tail = slot;
        }
        self.tail_end = item.end() - (self.tail - slot) as usize * PAGE_SIZE;
        self.arena.write(self.arena.run_at(slot) + at, bytes);
        self.payload_bytes += len as u64;
        Ok(Handle(handle))
    }

    fn read_into(&self, handle: Handle, out: &mut Vec<u8>) {
        let item = self.items.live(handle);
        let at = self.arena.run_at(item.frame) + usize::from(item.at);
        out.extend_from_slice(self.arena.bytes(at, item.len()));
    }

    fn remove(&mut self, handle: Handle) {
        let item = self.items.live(handle);
        for slot in slots_of(&item) {
            self.leave(slot, handle.0);
        }
        self.order.detach(self.items.records_mut(), handle.0);
        self.items.free(handle.0);
        self.payload_bytes -= item.len() as u64;
        if self.items.len() == 0 {
            self.forget_slots();
        }
    }

    /// Nothing ever moves.
    fn relocate_to_free_cell(&mut self) -> bool {
        false
    }

    fn usage(&self) -> Usage {
        let metadata_bytes = size_of::<Self>()
            + self.frames.capacity() * size_of::<Frame>()
            + self.clean.metadata_bytes()
            + self.dirty.metadata_bytes()
            + self.items.metadata_bytes()
            + self.arena.metadata_bytes();
        Usage {
            items: self.items.len() as u64,
            payload_bytes: self.payload_bytes,
            frames_bytes: self.frames_held() * PAGE_SIZE as u64,
            metadata_bytes: metadata_bytes as u64,
            compactions: 0,
            relocations: 0,
        }
    }

    fn chooses_frames(&self) -> bool {
        true
    }

    fn set_clean(&mut self, handle: Handle, clean: bool) {
        let item = self.items.live(handle);
        if !self.items[handle.0].set_clean(clean) {
            return;
        }
        for slot in slots_of(&item) {
            let frame = &mut self.frames[slot as usize];
            if clean {
                frame.dirty -= 1;
            } else {
                frame.dirty += 1;
            }
            self.sort_in(slot);
        }
    }

    fn next_clean_frame(&self, out: &mut Vec<Handle>) -> bool {
        let Some(slot) = self.clean.around(self.oldest()).next() else {
            return false;
        };
        out.extend(self.items_in(slot).map(|(handle, _)| Handle(handle)));
        true
    }

    /// Frame by frame, so that each frame begun becomes clean; an item is named with the frame
    /// that it starts in, which comes first.
    fn next_dirty(&self, max_bytes: usize, out: &mut Vec<Handle>) -> bool {
        let starts = self.dirty.around(self.oldest()).flat_map(|slot| {
            let here = self.items_in(slot);
            here.filter(move |(_, item)| item.frame == slot && !item.is_clean())
        });
        let mut bytes = 0;
        for (handle, item) in starts {
            if bytes >= max_bytes {
                break;
            }
            out.push(Handle(handle));
            bytes += item.len();
        }
        self.dirty.len() > 0
    }

    fn frame_states(&self) -> FrameStates {
        let tail_takes_items = self.room_at_tail() > 0 && self.dirty.contains(self.tail);
        FrameStates {
            clean: self.clean.len(),
            full_dirty: self.dirty.len() - u64::from(tail_takes_items),
            dirty: self.dirty.len(),
        }
    }
}

#[cfg(test)]
impl crate::model::Checked for Ring {
    fn is_valid(&self) -> bool {
        let order = self.order.numbers(self.items.records());
        let mut frames = vec![Frame::FREE; self.frames.len()];
        for &handle in &order {
            let item = self.items[handle];
            for slot in slots_of(&item) {
                let frame = &mut frames[slot as usize];
                frame.first = if frame.live == 0 { handle } else { frame.first };
                frame.live += 1;
                frame.dirty += u16::from(!item.is_clean());
            }
        }
        let ahead_of = |item: &Placed, next: &Placed| {
            next.frame != item.frame || usize::from(next.at) >= item.end()
        };
        let apart = order.windows(2).all(|pair| {
            let (item, next) = (self.items[pair[0]], self.items[pair[1]]);
            let spill = item.end().saturating_sub(PAGE_SIZE);
            let behind_spill = next.frame != item.frame + 1 || usize::from(next.at) >= spill;
            ahead_of(&item, &next) && behind_spill
        });
        let frames_agree =
            frames
                .iter()
                .zip(&self.frames)
                .enumerate()
                .all(|(slot, (now, frame))| {
                    let (clean, dirty) = (now.live > 0 && now.dirty == 0, now.dirty > 0);
                    (now.live, now.dirty) == (frame.live, frame.dirty)
                        && (now.live == 0 || now.first == frame.first)
                        && self.clean.contains(slot as u32) == clean
                        && self.dirty.contains(slot as u32) == dirty
                });
        let held = frames.iter().filter(|frame| frame.live > 0).count();
        apart
            && frames_agree
            && order.len() == self.items.len()
            && held as u64 == self.frames_held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Checked;

    fn ring() -> Ring {
        Ring::new(1 << 20).expect("reserve")
    }

    fn add(store: &mut Ring, len: usize) -> Handle {
        store
            .insert(&vec![len as u8; len], Growth::Allowed)
            .expect("room")
    }

    fn places(store: &Ring, handles: &[Handle]) -> Vec<(u32, u16)> {
        let items = handles.iter().map(|&handle| store.items.live(handle));
        items.map(|item| (item.frame, item.at)).collect()
    }

    fn clean_frame(store: &Ring) -> Vec<Handle> {
        let mut out = Vec::new();
        store.next_clean_frame(&mut out);
        out
    }

    #[test]
    fn items_follow_each_other_across_frames() {
        let mut store = ring();
        let items: Vec<_> = (0..4).map(|_| add(&mut store, 3000)).collect();
        assert_eq!(
            places(&store, &items),
            [(0, 0), (0, 3000), (1, 1904), (2, 808)]
        );
        assert_eq!(store.usage().frames_bytes, 3 * PAGE_SIZE as u64);
    }

    #[test]
    fn a_frame_without_items_is_free_at_once_wherever_it_lies() {
        let mut store = ring();
        let items: Vec<_> = (0..6).map(|_| add(&mut store, 2048)).collect();
        store.remove(items[2]);
        assert_eq!(store.usage().frames_bytes, 3 * PAGE_SIZE as u64);
        store.remove(items[3]);
        assert_eq!(store.usage().frames_bytes, 2 * PAGE_SIZE as u64);
        assert!(store.is_valid());
    }

    #[test]
    fn the_tail_goes_round_and_jumps_over_slots_in_use() {
        let mut store = ring();
        let mut items: Vec<_> = (0..8).map(|_| add(&mut store, 4096)).collect();
        for gone in [6, 5, 4, 3, 1, 0] {
            store.remove(items.remove(gone));
        }
        // Slots 2 and 7 stay. Less than half is in use, so that the ring does not get longer.
        let new: Vec<_> = (0..3).map(|_| add(&mut store, 3000)).collect();
        assert_eq!(places(&store, &new), [(0, 0), (0, 3000), (3, 0)]);
        assert!(store.is_valid());
        // The spill of the second item is in slot 1, behind which slot 2 is in use.
        store.remove(new[1]);
        assert_eq!(store.usage().frames_bytes, 4 * PAGE_SIZE as u64);
    }

    #[test]
    fn the_oldest_clean_frame_goes_first_and_else_one_from_the_middle() {
        let mut store = ring();
        let items: Vec<_> = (0..6).map(|_| add(&mut store, 2048)).collect();
        assert_eq!(clean_frame(&store), []);
        store.set_clean(items[2], true);
        assert_eq!(clean_frame(&store), []);
        store.set_clean(items[3], true);
        assert_eq!(clean_frame(&store), items[2..4]);
        store.set_clean(items[0], true);
        store.set_clean(items[1], true);
        assert_eq!(clean_frame(&store), items[..2]);
        store.set_clean(items[1], false);
        assert_eq!(clean_frame(&store), items[2..4]);
        let states = FrameStates {
            clean: 1,
            full_dirty: 2,
            dirty: 2,
        };
        assert_eq!(store.frame_states(), states);
    }

    #[test]
    fn the_oldest_dirty_items_are_written_first_also_once_the_tail_has_gone_round() {
        let mut store = ring();
        let mut items: Vec<_> = (0..8).map(|_| add(&mut store, 4096)).collect();
        for item in items.drain(..5) {
            store.remove(item);
        }
        let newest = add(&mut store, 100);
        assert_eq!(places(&store, &[newest]), [(0, 0)]);
        store.set_clean(items[0], true);
        let mut out = Vec::new();
        assert!(store.next_dirty(4097, &mut out));
        assert_eq!(out, items[1..3]);
        out.clear();
        assert!(store.next_dirty(usize::MAX, &mut out));
        assert_eq!(out, [items[1], items[2], newest]);
    }

    #[test]
    fn a_ring_of_a_few_items_stays_short() {
        let mut store = ring();
        let kept = add(&mut store, 100);
        for _ in 0..1000 {
            let item = add(&mut store, 4000);
            store.remove(item);
        }
        assert!(store.frames.len() <= 8, "{} slots", store.frames.len());
        store.remove(kept);
        assert_eq!(store.frames.capacity(), 0);
    }
}
