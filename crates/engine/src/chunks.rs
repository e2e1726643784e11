//! Things by number, each found at once, and all of them in order.
//!
//! Page tables are asked for single pages many times for each fault, and seldom for ranges. A tree finds its way by a
//! comparison at each level, which is guessed wrongly half the time; a hash table has it in one step.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::RangeInclusive;

/// Sparse table of boxes.
#[derive(Clone)]
pub(crate) struct Chunks<T> {
    by_number: HashMap<u64, Box<T>, BuildHasherDefault<Mix>>,
    /// The same numbers.
    in_order: BTreeSet<u64>,
}

impl<T> Default for Chunks<T> {
    fn default() -> Chunks<T> {
        Chunks {
            by_number: HashMap::default(),
            in_order: BTreeSet::new(),
        }
    }
}

impl<T> Chunks<T> {
    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        self.by_number.get(&number).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.by_number.get_mut(&number).map(Box::as_mut)
    }

    /// The chunk of this number, made now if there is none.
    pub(crate) fn get_or_insert(&mut self, number: u64, new: impl FnOnce() -> T) -> &mut T {
        let Chunks {
            by_number,
            in_order,
        } = self;
        by_number.entry(number).or_insert_with(|| {
            in_order.insert(number);
            Box::new(new())
        })
    }

    pub(crate) fn remove(&mut self, number: u64) {
        self.by_number.remove(&number);
        self.in_order.remove(&number);
    }

    /// The first number of `range` that there is.
    pub(crate) fn first_in(&self, range: RangeInclusive<u64>) -> Option<u64> {
        self.in_order.range(range).next().copied()
    }

    /// All, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> + '_ {
        let of = |&number: &u64| Some((number, self.get(number)?));
        self.in_order.iter().filter_map(of)
    }

    /// Bytes of all, about.
    pub(crate) fn bytes(&self) -> usize {
        let entry = size_of::<(u64, Box<T>)>() + 1;
        let tables = self.by_number.capacity() * entry + self.in_order.len() * 2 * size_of::<u64>();
        self.by_number.len() * size_of::<T>() + tables
    }
}

/// Spreads numbers that lie together over all 64 bits: the table takes its place from the lower ones, and
/// seven more from the upper.
#[derive(Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio (Knuth, volume 3, section 6.4).
        let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_and_come_in_order() {
        let mut chunks = Chunks::default();
        for number in [7, 3, 1 << 40, 5] {
            *chunks.get_or_insert(number, || number * 10) += 1;
        }
        *chunks.get_or_insert(3, || 0) += 1;
        chunks.remove(5);
        let all: Vec<_> = chunks
            .iter()
            .map(|(number, value)| (number, *value))
            .collect();
        assert_eq!(all, [(3, 32), (7, 71), (1 << 40, (10 << 40) + 1)]);
        assert_eq!(chunks.get(5), None);
        assert_eq!(chunks.get_mut(7), Some(&mut 71));
    }

    #[test]
    fn the_first_of_a_range_is_found() {
        let mut chunks = Chunks::default();
        for number in [10, 20, 30] {
            chunks.get_or_insert(number, || ());
        }
        assert_eq!(chunks.first_in(11..=29), Some(20));
        assert_eq!(chunks.first_in(30..=u64::MAX), Some(30));
        assert_eq!(chunks.first_in(31..=u64::MAX), None);
    }
}
