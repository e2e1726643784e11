//! A set of frames by number, asked for the next member in a circle: two bits of memory a frame.
//!
//! The ring has one of its clean and one of its dirty frames, and asks for the oldest of each.

use crate::slab::grow_gently;

const WORD_BITS: u32 = u64::BITS;

/// Numbers in a bitmap, with a second bitmap of which words of the first are not 0.
pub(crate) struct FrameSet {
    words: Vec<u64>,
    summary: Vec<u64>,
    /// Bits set in `words`.
    len: u64,
}

impl FrameSet {
    pub(crate) fn new() -> Self {
        FrameSet {
            words: Vec::new(),
            summary: Vec::new(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        let word = self.words.get((number / WORD_BITS) as usize);
        word.is_some_and(|word| word >> (number % WORD_BITS) & 1 == 1)
    }

    pub(crate) fn insert(&mut self, number: u32) {
        if !self.contains(number) {
            let index = number / WORD_BITS;
            set_bit(&mut self.words, number);
            set_bit(&mut self.summary, index);
            self.len += 1;
        }
    }

    pub(crate) fn remove(&mut self, number: u32) {
        if self.contains(number) {
            let index = number / WORD_BITS;
            let word = &mut self.words[index as usize];
            *word &= !(1 << (number % WORD_BITS));
            if *word == 0 {
                self.summary[(index / WORD_BITS) as usize] &= !(1 << (index % WORD_BITS));
            }
            self.len -= 1;
        }
    }

    /// All members, in a circle: from `start` upwards, then from 0 to below `start`.
    pub(crate) fn around(&self, start: u32) -> impl Iterator<Item = u32> + '_ {
        let from =
            |number| std::iter::successors(self.at_or_after(number), |&n| self.at_or_after(n + 1));
        from(start).chain(from(0).take_while(move |&number| number < start))
    }

    /// The smallest member that is at least `number`.
    fn at_or_after(&self, number: u32) -> Option<u32> {
        let index = number / WORD_BITS;
        let word = *self.words.get(index as usize)? & (u64::MAX << (number % WORD_BITS));
        if word != 0 {
            return Some(index * WORD_BITS + word.trailing_zeros());
        }
        let index = next_bit(&self.summary, index + 1)?;
        Some(index * WORD_BITS + self.words[index as usize].trailing_zeros())
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        (self.words.capacity() + self.summary.capacity()) * size_of::<u64>()
    }
}

/// Sets a bit, after making the bitmap long enough.
fn set_bit(bitmap: &mut Vec<u64>, bit: u32) {
    let index = (bit / WORD_BITS) as usize;
    while bitmap.len() <= index {
        grow_gently(bitmap);
        bitmap.push(0);
    }
    bitmap[index] |= 1 << (bit % WORD_BITS);
}

/// The first bit set at or after `bit`, word by word: a word of the summary stands for 16 MiB.
fn next_bit(bitmap: &[u64], bit: u32) -> Option<u32> {
    let first = (bit / WORD_BITS) as usize;
    let from_bit = u64::MAX << (bit % WORD_BITS);
    let words = bitmap.get(first..)?.iter().enumerate();
    words
        .map(|(i, &word)| (i, if i == 0 { word & from_bit } else { word }))
        .find(|&(_, word)| word != 0)
        .map(|(i, word)| (first + i) as u32 * WORD_BITS + word.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_frame_set_goes_round_like_a_sorted_set(
            steps in proptest::collection::vec((0..9000u32, any::<bool>()), 1..100),
            start in 0..10_000u32,
        ) {
            let (mut set, mut model) = (FrameSet::new(), BTreeSet::new());
            for (number, member) in steps {
                if member {
                    set.insert(number);
                    model.insert(number);
                } else {
                    // Often one that is there.
                    let number = model.range(number..).next().copied().unwrap_or(number);
                    set.remove(number);
                    model.remove(&number);
                }
                prop_assert_eq!(set.contains(number), member || model.contains(&number));
            }
            prop_assert_eq!(set.len(), model.len() as u64);
            let expected: Vec<u32> = model.range(start..).chain(model.range(..start)).copied().collect();
            prop_assert_eq!(set.around(start).collect::<Vec<_>>(), expected);
        }
    }
}
