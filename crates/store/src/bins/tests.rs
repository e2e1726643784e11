//! What must hold of bins at all times, and tests.

use super::*;
use crate::model::Checked;

impl Bins {
    /// Starts of the slots of a bin, holes included, from the top chunk down, and the frames they
    /// take together with the bin's slack.
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
            top = full_top(index);
        }
        (slots, frames)
    }

    /// Frames that the bin would hold with no hole and no slack.
    fn frames_if_dense(&self, index: usize) -> u32 {
        let bin = &self.bins[index];
        let (items, per_chunk) = (
            bin.slots - bin.holes.len(),
            full_top(index) / slot_bytes(index),
        );
        let (chunks, rest) = (items as usize / per_chunk, items as usize % per_chunk);
        chunks as u32 * frames_for(full_top(index)) + frames_for(rest * slot_bytes(index))
    }

    fn bin_is_valid(&self, index: usize) -> bool {
        let bin = &self.bins[index];
        let (slots, frames) = self.slots(index);
        let (mut holes, used): (Vec<usize>, Vec<usize>) =
            slots.iter().partition(|&&at| self.owner(at) == HOLE);
        let mut listed: Vec<usize> = bin.holes.iter(&self.arena).collect();
        holes.sort_unstable();
        listed.sort_unstable();
        let owners_valid = used.iter().all(|&at| {
            let item = self.items[self.owner(at)];
            item.at() == at && bin_of(item.len()) == index
        });
        owners_valid
            && holes == listed
            && holes.len() <= bin.holes_max() as usize
            && slots.len() == bin.slots as usize
            && frames == bin.frames
            && bin.slack() <= bin.slack_max() + 1
            && bin.spare == bin.frames - self.frames_if_dense(index)
            && (bin.chunk == NONE) == (bin.slots == 0)
    }
}

impl crate::model::Checked for Bins {
    fn is_valid(&self) -> bool {
        let items = |bin: &Bin| (bin.slots - bin.holes.len()) as usize;
        let frames: u64 = self.bins.iter().map(|bin| u64::from(bin.frames)).sum();
        let lens = self.items.records().iter().map(|item| item.len() as u64);
        (0..BIN_COUNT).all(|index| self.bin_is_valid(index))
            && self.bins.iter().map(items).sum::<usize>() == self.items.len()
            && frames == self.frames
            && self.bins.iter().map(|bin| bin.spare).sum::<u32>() == self.spare
            && lens.sum::<u64>() == self.payload_bytes
    }
}

fn bins() -> Bins {
    Bins::new(16 << 20).expect("reserve")
}

/// `count` items of `len` bytes.
fn fill(store: &mut Bins, count: usize, len: usize) -> Vec<Handle> {
    let item = vec![len as u8; len];
    (0..count)
        .map(|_| store.insert(&item, Growth::Allowed).expect("room"))
        .collect()
}

fn holes(store: &Bins, len: usize) -> u32 {
    store.bins[bin_of(len)].holes.len()
}

#[test]
fn in_a_small_bin_removal_moves_at_most_one_item_and_leaves_no_hole() {
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
fn an_insertion_after_a_removal_takes_its_slot_and_nothing_moves() {
    let mut store = bins();
    let mut handles = fill(&mut store, 600, 1000);
    let held = store.usage();
    for which in (0..599).step_by(7) {
        let at = store.item(handles[which]).at();
        store.remove(handles[which]);
        assert!(store.is_valid());
        // As many bytes are not needed, only the same bin.
        handles[which] = store.insert(&[7; 995], Growth::Denied).expect("a hole");
        assert_eq!(store.item(handles[which]).at(), at);
        assert_eq!(store.get(handles[which]), [7; 995]);
    }
    assert!(store.is_valid());
    assert_eq!(store.usage().relocations, 0);
    assert_eq!(store.usage().frames_bytes, held.frames_bytes);
    assert_eq!(store.usage().metadata_bytes, held.metadata_bytes);
}

#[test]
fn holes_are_few_and_filled_the_newest_first() {
    let mut store = bins();
    let handles = fill(&mut store, (2 * HOLES_MAX as usize) << HOLES_SHIFT, 500);
    let places: Vec<usize> = handles.iter().map(|&h| store.item(h).at()).collect();
    for &handle in &handles[..100] {
        store.remove(handle);
        assert!(holes(&store, 500) <= HOLES_MAX);
    }
    assert_eq!(holes(&store, 500), HOLES_MAX);
    assert_eq!(store.usage().relocations, 100 - u64::from(HOLES_MAX));
    for place in places[..HOLES_MAX as usize].iter().rev() {
        let handle = fill(&mut store, 1, 500)[0];
        assert_eq!(store.item(handle).at(), *place);
    }
    assert_eq!(holes(&store, 500), 0);
    // What a bin may have while it is small.
    let handles = fill(&mut store, 1 << HOLES_SHIFT, 300);
    store.remove(handles[0]);
    assert_eq!(holes(&store, 300), 1);
    store.remove(handles[1]);
    assert_eq!(holes(&store, 300), 0);
    assert!(store.is_valid());
}

#[test]
fn holes_on_top_are_dropped() {
    let mut store = bins();
    let handles = fill(&mut store, 1000, 500);
    let slots = |store: &Bins| store.bins[bin_of(500)].slots;
    for which in [998, 10, 996, 997] {
        store.remove(handles[which]);
    }
    assert_eq!((slots(&store), holes(&store, 500)), (1000, 4));
    store.remove(handles[999]);
    assert_eq!((slots(&store), holes(&store, 500)), (996, 1));
    assert_eq!(store.usage().relocations, 0);
    assert!(store.is_valid());
}

#[test]
fn holes_that_are_a_chunk_on_top_are_dropped_with_it() {
    let mut store = bins();
    let index = bin_of(PAGE_SIZE);
    let per_chunk = full_top(index) / slot_bytes(index);
    let handles = fill(&mut store, per_chunk + 2, PAGE_SIZE);
    for &handle in &handles[per_chunk - 1..] {
        store.remove(handle);
        assert!(store.is_valid());
    }
    assert_eq!(store.bins[index].slots as usize, per_chunk - 1);
    assert_eq!(holes(&store, PAGE_SIZE), 0);
    assert_eq!(store.usage().relocations, 0);
}

#[test]
fn frames_go_back_when_a_bin_with_holes_empties() {
    for step in [1, 7, 599] {
        let mut store = bins();
        let handles = fill(&mut store, 600, 2500);
        for which in 0..600 {
            store.remove(handles[which * step % 600]);
            assert!(store.is_valid());
        }
        assert_eq!(store.usage().frames_bytes, 0);
        assert!(store.bins[bin_of(2500)].holes.is_empty());
    }
}

/// Items of one size, with a frame that only one hole takes.
fn fill_but_one(store: &mut Bins, len: usize) -> Vec<Handle> {
    let slot = slot_bytes(bin_of(len));
    let opens_frame = |&count: &usize| frames_for(count * slot) > frames_for((count - 1) * slot);
    let count = (1 << HOLES_SHIFT..).find(opens_frame).expect("one");
    let mut handles = fill(store, count, len);
    store.remove(handles.remove(0));
    handles
}

#[test]
fn denied_growth_uses_the_holes_of_other_bins() {
    let mut store = bins();
    let lens = [32, 64, 96, 128];
    let kept = lens.map(|len| (len, fill_but_one(&mut store, len)));
    assert!(store.bins.iter().all(|bin| bin.slack() == 0));
    assert_eq!(store.usage().relocations, 0);
    let held = store.usage().frames_bytes;
    // A dense store would have given back four frames. The first raw page reaches into two.
    for moved in [2, 3, 4] {
        assert!(store.insert(&[2; PAGE_SIZE], Growth::Denied).is_ok());
        assert_eq!(store.usage().relocations, moved);
        assert_eq!(store.usage().frames_bytes, held);
        assert!(store.is_valid());
    }
    assert_eq!(store.insert(&[2; PAGE_SIZE], Growth::Denied), Err(Full));
    for (len, handles) in kept {
        assert!(handles
            .iter()
            .all(|&h| store.get(h) == vec![len as u8; len]));
    }
}

#[test]
fn holes_are_filled_on_request_where_that_frees_frames() {
    let mut store = bins();
    fill_but_one(&mut store, 32);
    let handles = fill(&mut store, (1 << HOLES_SHIFT) + 2, 1000);
    while store.relocate_to_free_cell() {}
    assert_eq!((holes(&store, 32), store.usage().relocations), (0, 1));
    // 130 slots end far into their last frame.
    store.remove(handles[0]);
    assert!(!store.relocate_to_free_cell());
    assert_eq!((holes(&store, 1000), store.usage().relocations), (1, 1));
}

#[test]
fn a_chunk_given_up_for_its_frames_is_used_again_or_goes() {
    for inserts in [0, 1] {
        let mut store = bins();
        let index = bin_of(PAGE_SIZE);
        let per_chunk = full_top(index) / slot_bytes(index);
        let mut raw = fill(&mut store, per_chunk + 1, PAGE_SIZE);
        let held = store.usage().frames_bytes;
        store.remove(raw.remove(0));
        assert!(store.relocate_to_free_cell());
        assert!(store.is_valid());
        // The item on top reached into two frames.
        assert_eq!(store.usage().frames_bytes, held - 2 * PAGE_SIZE as u64);
        assert_eq!((store.bins[index].top, store.usage().relocations), (0, 1));
        raw.extend(fill(&mut store, inserts, PAGE_SIZE));
        assert_eq!(store.arena.take_run(), Some(2));
        for handle in raw {
            store.remove(handle);
            assert!(store.is_valid());
        }
        assert_eq!(store.usage().frames_bytes, 0);
    }
}

#[test]
fn frames_of_a_chunk_on_top_are_given_one_by_one() {
    let mut store = bins();
    let index = bin_of(PAGE_SIZE);
    let per_chunk = full_top(index) / slot_bytes(index);
    let raw = fill(&mut store, per_chunk + 1, PAGE_SIZE);
    store.remove(raw[0]);
    let frames = store.bins[index].frames;
    for given in [1, 2] {
        store.lower_until(index, |store| store.bins[index].slack() > 0);
        store.give_up_slack(index, 1);
        assert_eq!(store.bins[index].frames, frames - given);
        assert!(store.is_valid());
    }
    assert_eq!((store.bins[index].spare, store.usage().relocations), (0, 1));
}

#[test]
fn used_up_addresses_are_found_where_only_holes_need_them() {
    let mut store = Bins::new(0).expect("reserve");
    let per_chunk = full_top(bin_of(PAGE_SIZE)) / slot_bytes(bin_of(PAGE_SIZE));
    let mut raw = fill(&mut store, per_chunk + 1, PAGE_SIZE);
    store.remove(raw.remove(0));
    while let Some(run) = store.arena.take_run() {
        assert_eq!(run as usize, store.below.len());
        store.below.push(NONE);
    }
    assert!(store.insert(&[1; 1000], Growth::Allowed).is_ok());
    assert!(store.is_valid());
    assert_eq!(store.insert(&[1; 2000], Growth::Allowed), Err(Full));
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
    while store.relocate_to_free_cell() {
        assert!(store.is_valid());
    }
    assert!(store.usage().frames_bytes <= dense + 2 * PAGE_SIZE as u64);
    assert!(store.is_valid());
}
