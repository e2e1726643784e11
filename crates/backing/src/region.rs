//! A stretch of the swap file as a bitmap of its fragments, with the length of its longest free run.
//!
//! `SlotSpace` keeps one region per 32768 fragments and asks them in turn for room. The remembered
//! run length lets a search pass over a crowded region without looking at its bits. A run never
//! reaches from one region into the next: both ends of every search stay in one small array.
#![forbid(unsafe_code)]

use std::ops::Range;

/// Fragments in a region, and so the most that one allocation can have.
pub const REGION_FRAGMENTS: u32 = 32 * 1024;

const WORDS: usize = REGION_FRAGMENTS as usize / 64;

/// Flips nothing: look for bits that are set (fragments in use).
const IN_USE: u64 = 0;
/// Flips every bit: look for bits that are clear (free fragments).
const FREE: u64 = !0;

/// A bitmap of fragments; a set bit is a fragment in use.
pub struct Region {
    bits: Box<[u64; WORDS]>,
    /// Fragments that were in use since they were last told as a hole: they may hold disk blocks.
    held: Box<[u64; WORDS]>,
    /// No free run is longer than this. Exact after a release or a failed search; taking
    /// fragments leaves it too high until a search in vain puts it right.
    longest_free: u32,
    /// Fragments were released since the last call of [`Region::take_holes`].
    released: bool,
}

impl Region {
    /// A region whose first `usable` fragments are free; the others do not exist.
    pub fn new(usable: u32) -> Self {
        let mut region = Region {
            bits: Box::new([0; WORDS]),
            held: Box::new([0; WORDS]),
            longest_free: usable.min(REGION_FRAGMENTS),
            released: false,
        };
        flip(
            &mut region.bits,
            usable.min(REGION_FRAGMENTS)..REGION_FRAGMENTS,
        );
        region
    }

    /// The first free run of `want` fragments at or after `from`.
    pub fn find(&mut self, from: u32, want: u32) -> Option<u32> {
        if self.longest_free < want {
            return None;
        }
        let mut longest = 0;
        let mut start = self.next(from, REGION_FRAGMENTS, FREE);
        while start < REGION_FRAGMENTS {
            let wanted_end = (start + want).min(REGION_FRAGMENTS);
            let end = self.next(start, wanted_end, IN_USE);
            if end - start == want {
                return Some(start);
            }
            longest = longest.max(end - start);
            start = self.next(end, REGION_FRAGMENTS, FREE);
        }
        if from == 0 {
            self.longest_free = longest;
        }
        None
    }

    /// Marks free fragments as used.
    pub fn take(&mut self, fragments: Range<u32>) {
        debug_assert_eq!(
            self.next(fragments.start, fragments.end, IN_USE),
            fragments.end
        );
        for index in words_of(&fragments) {
            self.held[index] |= mask(index, &fragments);
        }
        flip(&mut self.bits, fragments);
    }

    /// Marks used fragments as free.
    ///
    /// # Panics
    /// When one of them is free already: going on would hand the same fragment out twice.
    pub fn release(&mut self, fragments: Range<u32>) {
        let first_free = self.next(fragments.start, fragments.end, FREE);
        assert!(
            first_free == fragments.end,
            "a fragment of the swap file is freed twice"
        );
        flip(&mut self.bits, fragments.clone());
        let run =
            self.run_start(fragments.start)..self.next(fragments.end, REGION_FRAGMENTS, IN_USE);
        self.longest_free = self.longest_free.max(run.end - run.start);
        self.released = true;
    }

    /// Free runs of `min` fragments or more below `end` that may hold disk blocks. Each is told once, until
    /// it has been in use again.
    pub fn take_holes(&mut self, min: u32, end: u32) -> Vec<Range<u32>> {
        let mut holes = Vec::new();
        if !std::mem::take(&mut self.released) || self.longest_free < min {
            return holes;
        }
        let idle = |index: usize| !self.bits[index] & self.held[index];
        let mut start = next_bit(0, end, idle);
        while start < end {
            let run = start..next_bit(start, end, |index| !idle(index));
            start = next_bit(run.end, end, idle);
            if run.end - run.start >= min {
                holes.push(run);
            }
        }
        for hole in &holes {
            flip(&mut self.held, hole.clone());
        }
        holes
    }

    /// The first fragment in `from..end` whose bit, flipped by `flip`, is set; `end` if there is none.
    fn next(&self, from: u32, end: u32, flip: u64) -> u32 {
        next_bit(from, end, |index| self.bits[index] ^ flip)
    }

    /// Where the run of free fragments that ends just before `end` begins.
    fn run_start(&self, end: u32) -> u32 {
        let mut index = end as usize / 64;
        let below = (1u64 << (end % 64)) - 1;
        let mut word = self.bits.get(index).map_or(0, |word| word & below);
        while word == 0 {
            if index == 0 {
                return 0;
            }
            index -= 1;
            word = self.bits[index];
        }
        index as u32 * 64 + 64 - word.leading_zeros()
    }
}

/// The first bit in `from..end` that is set in the words; `end` if there is none.
fn next_bit(from: u32, end: u32, word_at: impl Fn(usize) -> u64) -> u32 {
    if from >= end {
        return end;
    }
    let mut index = from as usize / 64;
    let mut word = word_at(index) & (!0 << (from % 64));
    while word == 0 {
        index += 1;
        if index * 64 >= end as usize {
            return end;
        }
        word = word_at(index);
    }
    (index as u32 * 64 + word.trailing_zeros()).min(end)
}

fn flip(bits: &mut [u64; WORDS], fragments: Range<u32>) {
    for index in words_of(&fragments) {
        bits[index] ^= mask(index, &fragments);
    }
}

/// The words that these bits are in.
fn words_of(fragments: &Range<u32>) -> Range<usize> {
    fragments.start as usize / 64..(fragments.end as usize).div_ceil(64)
}

/// Those of these bits that are in this word, if there are any.
fn mask(index: usize, fragments: &Range<u32>) -> u64 {
    let first = index as u32 * 64;
    let start = fragments.start.max(first) - first;
    let end = fragments.end.min(first + 64) - first;
    let ones: u64 = (!0u64).checked_shr(64 - (end - start)).unwrap_or(0);
    ones << start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_run_that_is_long_enough_is_found() {
        let mut region = Region::new(REGION_FRAGMENTS);
        region.take(0..200);
        region.release(10..13);
        region.release(60..130);
        assert_eq!(region.find(0, 3), Some(10));
        assert_eq!(region.find(0, 4), Some(60));
        assert_eq!(region.find(0, 71), Some(200));
        assert_eq!(region.find(61, 70), Some(200));
    }

    #[test]
    fn fragments_that_do_not_exist_are_never_found() {
        let mut region = Region::new(100);
        assert_eq!(region.find(0, 101), None);
        assert_eq!(region.find(0, 100), Some(0));
        assert_eq!(region.find(95, 6), None);
    }

    #[test]
    fn a_release_that_joins_two_runs_makes_room_for_their_sum() {
        let mut region = Region::new(REGION_FRAGMENTS);
        region.take(0..REGION_FRAGMENTS);
        region.release(0..64);
        region.release(65..REGION_FRAGMENTS);
        assert_eq!(region.find(0, REGION_FRAGMENTS), None);
        region.release(64..65);
        assert_eq!(region.find(0, REGION_FRAGMENTS), Some(0));
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_double_free_is_caught() {
        let mut region = Region::new(100);
        region.take(0..10);
        region.release(4..5);
        region.release(0..10);
    }

    #[test]
    fn holes_are_told_once_until_they_were_in_use_again() {
        let mut region = Region::new(REGION_FRAGMENTS);
        region.take(0..100);
        assert_eq!(region.take_holes(1, 100), vec![]);
        region.release(0..10);
        region.release(50..53);
        assert_eq!(region.take_holes(4, 100), vec![0..10]);
        assert_eq!(region.take_holes(4, 100), vec![]);
        region.release(53..60);
        assert_eq!(region.take_holes(4, 100), vec![50..60]);
        region.take(2..8);
        region.release(2..8);
        assert_eq!(region.take_holes(4, 100), vec![2..8]);
    }
}
