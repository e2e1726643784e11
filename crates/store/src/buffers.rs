//! cervera99's layout: buffers of one frame, filled from front to back (sections 3.1 to 3.4).
//!
//! ```text
//! open    | item | item | removed | item | room at the end |   takes items, all of them dirty
//! closed  | item | removed | clean item | item | ......... |   an item is clean: written before
//! clean   | clean item | removed | clean item | .......... |   can be dropped as it is
//! ```
//!
//! An item is never split, nothing moves, and the room of a removed item is not used again before
//! its buffer is empty; then the frame goes back to the system at once. An item goes to the buffer
//! with the least sufficient room at its end (the paper leaves the choice open: first fit and best fit
//! come out the same). A buffer takes no more items once one of its items is clean, because it is on
//! disk as it is. Buffers are written in the order in which they were begun.

use std::io;

use pleat_types::PAGE_SIZE;

use crate::arena::Arena;
use crate::chain::{Chain, Link, Linked, NONE};
use crate::layout::{FrameStates, Full, Growth, Handle, Layout, Usage};
use crate::placed::Placed;
use crate::recent::MeanOfRecent;
use crate::size_index::SizeIndex;
use crate::slab::{grow_gently, Slab};

/// One buffer. `dirty <= live`; held exactly while `live > 0`. Buffers with dirty items are listed
/// by room, the others are in the chain of clean ones.
#[derive(Clone, Copy)]
struct Buffer {
    /// Its items in the order of their places.
    items: Chain,
    /// Neighbours among the clean buffers.
    link: Link,
    live: u16,
    dirty: u16,
    /// Bytes at its end that may take items; 0 once it is closed.
    room: u16,
    /// How many buffers had been begun when this one was.
    begun: u64,
}

impl Buffer {
    const EMPTY: Buffer = Buffer {
        items: Chain::EMPTY,
        link: Link::NONE,
        live: 0,
        dirty: 0,
        room: PAGE_SIZE as u16,
        begun: 0,
    };
}

impl Linked for Buffer {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// Buffers of one frame, never split items, never recompacted. See the head of this file.
pub struct Buffers {
    arena: Arena,
    /// By number of the arena's run.
    buffers: Vec<Buffer>,
    /// Buffers with dirty items.
    dirty: SizeIndex,
    /// How many of those have so many bytes of room.
    dirty_by_room: Box<[u32]>,
    /// Buffers without dirty items, the first to become so first.
    clean: Chain,
    clean_count: u64,
    dirty_count: u64,
    items: Slab<Placed>,
    recent: MeanOfRecent,
    payload_bytes: u64,
    /// Buffers begun so far.
    begun: u64,
}

impl Buffers {
    /// An empty layout, ready for `max_bytes` bytes of items and more.
    ///
    /// # Errors
    /// When the system refuses the address space.
    pub fn new(max_bytes: u64) -> io::Result<Self> {
        Ok(Buffers {
            arena: Arena::new(max_bytes, 1)?,
            buffers: Vec::new(),
            dirty: SizeIndex::new(PAGE_SIZE),
            dirty_by_room: vec![0; PAGE_SIZE + 1].into_boxed_slice(),
            clean: Chain::EMPTY,
            clean_count: 0,
            dirty_count: 0,
            items: Slab::new(),
            recent: MeanOfRecent::new(),
            payload_bytes: 0,
            begun: 0,
        })
    }

    /// Buffers with less room than this are full.
    fn full_below(&self) -> usize {
        self.recent.mean().max(1)
    }

    fn buffer(&mut self, number: u32) -> &mut Buffer {
        &mut self.buffers[number as usize]
    }

    /// Changes a held buffer, which is then held still or released by the caller: takes it off its
    /// list, and puts it on the one it belongs on afterwards.
    fn change(&mut self, number: u32, change: impl FnOnce(&mut Buffer, &mut Slab<Placed>)) {
        self.unlist(number);
        change(&mut self.buffers[number as usize], &mut self.items);
        self.list(number);
    }

    fn list(&mut self, number: u32) {
        let Buffer {
            live, dirty, room, ..
        } = *self.buffer(number);
        if dirty > 0 {
            self.dirty.add(number, usize::from(room));
            self.dirty_by_room[usize::from(room)] += 1;
            self.dirty_count += 1;
        } else if live > 0 {
            self.clean.push_back(&mut self.buffers, number);
            self.clean_count += 1;
        }
    }

    fn unlist(&mut self, number: u32) {
        let Buffer {
            live, dirty, room, ..
        } = *self.buffer(number);
        if dirty > 0 {
            self.dirty.remove(number, usize::from(room));
            self.dirty_by_room[usize::from(room)] -= 1;
            self.dirty_count -= 1;
        } else if live > 0 {
            self.clean.detach(&mut self.buffers, number);
            self.clean_count -= 1;
        }
    }

    /// A new buffer without items, on no list.
    fn add_buffer(&mut self) -> Result<u32, Full> {
        let number = self.arena.take_run().ok_or(Full)?;
        if number as usize == self.buffers.len() {
            grow_gently(&mut self.buffers);
            self.buffers.push(Buffer::EMPTY);
        }
        self.begun += 1;
        *self.buffer(number) = Buffer {
            begun: self.begun,
            ..Buffer::EMPTY
        };
        Ok(number)
    }

    /// The dirty items of a buffer, and how many bytes they are.
    fn push_dirty(&self, number: u32, out: &mut Vec<Handle>) -> usize {
        let first = self.buffers[number as usize].items.first();
        let dirty = self
            .items
            .chained(first)
            .filter(|(_, item)| !item.is_clean());
        let mut bytes = 0;
        out.extend(dirty.map(|(handle, item)| {
            bytes += item.len();
            Handle(handle)
        }));
        bytes
    }
}

impl Layout for Buffers {
    fn name(&self) -> &'static str {
        "buffers"
    }

    fn insert(&mut self, bytes: &[u8], growth: Growth) -> Result<Handle, Full> {
        let len = bytes.len();
        assert!((1..=PAGE_SIZE).contains(&len), "item of {len} bytes");
        let number = match (self.dirty.at_least(len), growth) {
            (Some(number), _) => number,
            (None, Growth::Allowed) => self.add_buffer()?,
            (None, Growth::Denied) => return Err(Full),
        };
        let at = PAGE_SIZE - usize::from(self.buffer(number).room);
        let handle = self.items.add(Placed::new(number, at, len));
        self.change(number, |buffer, items| {
            buffer.items.push_back(items.records_mut(), handle);
            buffer.live += 1;
            buffer.dirty += 1;
            buffer.room -= len as u16;
        });
        self.arena.write(self.arena.run_at(number) + at, bytes);
        self.recent.add(len);
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
        self.change(item.frame, |buffer, items| {
            buffer.items.detach(items.records_mut(), handle.0);
            buffer.live -= 1;
            buffer.dirty -= u16::from(!item.is_clean());
        });
        self.items.free(handle.0);
        self.payload_bytes -= item.len() as u64;
        if self.buffer(item.frame).live == 0 {
            self.arena.give_back_run(item.frame);
        }
    }

    /// Nothing ever moves (section 3.3: it did not pay).
    fn relocate_to_free_cell(&mut self) -> bool {
        false
    }

    fn usage(&self) -> Usage {
        let metadata_bytes = size_of::<Self>()
            + self.buffers.capacity() * size_of::<Buffer>()
            + self.dirty.metadata_bytes()
            + size_of_val(&*self.dirty_by_room)
            + self.items.metadata_bytes()
            + self.recent.metadata_bytes()
            + self.arena.metadata_bytes();
        Usage {
            items: self.items.len() as u64,
            payload_bytes: self.payload_bytes,
            frames_bytes: (self.clean_count + self.dirty_count) * PAGE_SIZE as u64,
            metadata_bytes: metadata_bytes as u64,
            compactions: 0,
            relocations: 0,
        }
    }

    fn chooses_frames(&self) -> bool {
        true
    }

    fn set_clean(&mut self, handle: Handle, clean: bool) {
        let number = self.items.live(handle).frame;
        if !self.items[handle.0].set_clean(clean) {
            return;
        }
        self.change(number, |buffer, _| {
            if clean {
                buffer.dirty -= 1;
                buffer.room = 0;
            } else {
                buffer.dirty += 1;
            }
        });
    }

    fn next_clean_frame(&self, out: &mut Vec<Handle>) -> bool {
        let number = self.clean.first();
        if number == NONE {
            return false;
        }
        let first = self.buffers[number as usize].items.first();
        out.extend(self.items.chained(first).map(|(handle, _)| Handle(handle)));
        true
    }

    /// Section 3.4: all full buffers, or the one with the most data if none is full. In the order in which
    /// they were begun: pages that left memory one after the other lie near each other on disk.
    fn next_dirty(&self, max_bytes: usize, out: &mut Vec<Handle>) -> bool {
        let Some(fullest) = self.dirty.at_least(0) else {
            return false;
        };
        let mut full: Vec<u32> = self.dirty.below(self.full_below()).collect();
        if full.is_empty() {
            self.push_dirty(fullest, out);
            return true;
        }
        full.sort_unstable_by_key(|&number| self.buffers[number as usize].begun);
        let mut bytes = 0;
        for number in full {
            bytes += self.push_dirty(number, out);
            if bytes >= max_bytes {
                break;
            }
        }
        true
    }

    fn frame_states(&self) -> FrameStates {
        let full = &self.dirty_by_room[..self.full_below()];
        FrameStates {
            clean: self.clean_count,
            full_dirty: full.iter().map(|&count| u64::from(count)).sum(),
            dirty: self.dirty_count,
        }
    }

    fn position(&self, handle: Handle) -> Option<(u32, u32)> {
        let item = self.items.live(handle);
        Some((item.frame, u32::from(item.at)))
    }
}

#[cfg(test)]
impl crate::model::Checked for Buffers {
    fn is_valid(&self) -> bool {
        let (mut held, mut dirty, mut clean, mut items) = (0, 0, 0, 0);
        let mut by_room = vec![0; PAGE_SIZE + 1];
        let buffers_valid = self.buffers.iter().enumerate().all(|(number, buffer)| {
            let handles = buffer.items.numbers(self.items.records());
            let placed = handles.iter().map(|&handle| self.items[handle]);
            let in_order = placed.clone().try_fold(0, |end, item| {
                let fits = item.frame as usize == number && usize::from(item.at) >= end;
                fits.then_some(item.end())
            });
            let dirty_items = placed.filter(|item| !item.is_clean()).count();
            held += u64::from(!handles.is_empty());
            clean += u64::from(!handles.is_empty() && dirty_items == 0);
            if dirty_items > 0 {
                dirty += 1;
                by_room[usize::from(buffer.room)] += 1;
            }
            items += handles.len();
            let closed = buffer.room == 0;
            handles.len() == usize::from(buffer.live)
                && dirty_items == usize::from(buffer.dirty)
                && (closed || dirty_items == handles.len())
                && in_order.is_some_and(|end| end <= PAGE_SIZE - usize::from(buffer.room))
        });
        buffers_valid
            && (clean, dirty) == (self.clean_count, self.dirty_count)
            && by_room == *self.dirty_by_room
            && self.clean.numbers(&self.buffers).len() as u64 == clean
            && held == clean + dirty
            && items == self.items.len()
            && self.dirty.below(PAGE_SIZE + 1).count() as u64 == dirty
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Checked;

    fn buffers() -> Buffers {
        Buffers::new(1 << 20).expect("reserve")
    }

    fn add(store: &mut Buffers, len: usize) -> Handle {
        store
            .insert(&vec![len as u8; len], Growth::Allowed)
            .expect("room")
    }

    fn next_dirty(store: &Buffers, max_bytes: usize) -> Vec<Handle> {
        let mut out = Vec::new();
        store.next_dirty(max_bytes, &mut out);
        out
    }

    #[test]
    fn the_room_of_a_removed_item_is_not_used_again_until_its_buffer_is_empty() {
        let mut store = buffers();
        let items: Vec<_> = (0..2).map(|_| add(&mut store, 2000)).collect();
        store.remove(items[0]);
        assert_eq!(store.insert(&[1; 2000], Growth::Denied), Err(Full));
        store.remove(items[1]);
        assert_eq!(store.usage().frames_bytes, 0);
        let item = add(&mut store, 2000);
        assert_eq!(store.position(item), Some((0, 0)));
    }

    #[test]
    fn an_item_goes_to_the_least_sufficient_room_at_an_end() {
        let mut store = buffers();
        let (roomy, tight) = (add(&mut store, 2500), add(&mut store, 3000));
        assert_eq!(store.position(roomy), Some((0, 0)));
        assert_eq!(store.position(tight), Some((1, 0)));
        let (small, other) = (add(&mut store, 1000), add(&mut store, 1500));
        assert_eq!(store.position(small), Some((1, 3000)));
        assert_eq!(store.position(other), Some((0, 2500)));
    }

    #[test]
    fn a_buffer_is_full_below_the_mean_of_the_last_hundred_sizes() {
        let mut store = buffers();
        add(&mut store, 3000);
        add(&mut store, 2400);
        assert_eq!(store.frame_states().full_dirty, 2);
        for _ in 0..100 {
            add(&mut store, 64);
        }
        // The hundred went on top of the first two and into buffers of their own, all with room.
        let states = store.frame_states();
        assert!(states.full_dirty < states.dirty, "{states:?}");
        let full = store.dirty.below(64).count() as u64;
        assert_eq!(states.full_dirty, full);
    }

    #[test]
    fn without_a_full_buffer_the_one_with_most_data_is_written() {
        let mut store = buffers();
        let big = add(&mut store, 3900);
        store.remove(big);
        for _ in 0..99 {
            let item = add(&mut store, 30);
            store.remove(item);
        }
        let items: Vec<_> = (0..3).map(|_| add(&mut store, 1000)).collect();
        assert_eq!(store.frame_states().full_dirty, 0);
        assert_eq!(next_dirty(&store, 1), items);
    }

    #[test]
    fn every_full_buffer_is_written_as_a_whole_until_there_are_bytes_enough() {
        let mut store = buffers();
        let items: Vec<_> = (0..6).map(|_| add(&mut store, 2000)).collect();
        assert_eq!(next_dirty(&store, usize::MAX).len(), 6);
        let some = next_dirty(&store, 4001);
        assert_eq!(some.len(), 4);
        for pair in some.chunks(2) {
            let places: Vec<_> = pair.iter().map(|&item| store.position(item)).collect();
            let frame = places[0].expect("buffers know").0;
            assert_eq!(places, [Some((frame, 0)), Some((frame, 2000))]);
        }
        assert!(items
            .iter()
            .all(|item| store.items.live(*item).len() == 2000));
    }

    #[test]
    fn full_buffers_are_written_in_the_order_in_which_they_were_begun() {
        let mut store = buffers();
        let items: Vec<_> = [2600, 3900, 3000, 3500]
            .map(|len| add(&mut store, len))
            .into();
        assert_eq!(next_dirty(&store, usize::MAX), items);
        store.remove(items[0]);
        // In the frame that was the first.
        let last = add(&mut store, 3100);
        assert_eq!(
            next_dirty(&store, usize::MAX),
            [items[1], items[2], items[3], last]
        );
    }

    #[test]
    fn a_written_buffer_takes_no_more_items_and_can_be_dropped() {
        let mut store = buffers();
        let items: Vec<_> = (0..2).map(|_| add(&mut store, 500)).collect();
        items.iter().for_each(|&item| store.set_clean(item, true));
        assert_eq!(store.insert(&[1; 500], Growth::Denied), Err(Full));
        let mut out = Vec::new();
        assert!(store.next_clean_frame(&mut out));
        assert_eq!(out, items);
        store.set_clean(items[1], false);
        assert!(!store.next_clean_frame(&mut out));
        assert_eq!(next_dirty(&store, 1), [items[1]]);
        assert!(store.is_valid());
        items.into_iter().for_each(|item| store.remove(item));
        assert_eq!(store.usage().frames_bytes, 0);
    }
}
