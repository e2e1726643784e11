//! Records by number: numbers stay valid until freed, and freed numbers are used again.
//!
//! Layouts keep one record per item here, numbered by its handle.

use crate::chain::NONE;

/// A record that is a link in the list of free numbers while it is vacant.
pub(crate) trait Record: Copy {
    /// A vacant record, told apart by its owner, that keeps `next_free`.
    fn vacant(next_free: u32) -> Self;
    /// What [`Record::vacant`] was given.
    fn next_free(&self) -> u32;
}

/// A table of records. The vacant ones are a list from `free` on, as long as `free_count`.
pub(crate) struct Slab<T> {
    records: Vec<T>,
    free: u32,
    free_count: usize,
}

impl<T: Record> Slab<T> {
    pub(crate) fn new() -> Self {
        Slab {
            records: Vec::new(),
            free: NONE,
            free_count: 0,
        }
    }

    /// Stores `record` and returns its number.
    pub(crate) fn add(&mut self, record: T) -> u32 {
        if self.free != NONE {
            let number = self.free;
            let place = &mut self.records[number as usize];
            self.free = place.next_free();
            self.free_count -= 1;
            *place = record;
            return number;
        }
        grow_gently(&mut self.records);
        self.records.push(record);
        // A store of 2^32 items would be over 100 GiB of tables alone.
        u32::try_from(self.records.len() - 1).expect("fewer than 2^32 items")
    }

    /// Frees a number, leaving a vacant record there so that its owner can tell. When it was the
    /// last one in use, the table shrinks to nothing.
    pub(crate) fn free(&mut self, number: u32) {
        self.records[number as usize] = T::vacant(self.free);
        self.free = number;
        self.free_count += 1;
        if self.free_count == self.records.len() {
            *self = Slab::new();
        }
    }

    /// Numbers in use.
    pub(crate) fn len(&self) -> usize {
        self.records.len() - self.free_count
    }

    /// Bytes of the table.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.records.capacity() * size_of::<T>()
    }

    /// The same, to change links between records.
    pub(crate) fn records_mut(&mut self) -> &mut [T] {
        &mut self.records
    }

    /// Every record, vacant ones included, in the order of their numbers.
    #[cfg(test)]
    pub(crate) fn records(&self) -> &[T] {
        &self.records
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        &self.records[number as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.records[number as usize]
    }
}

/// Makes room for one more element. A Vec's own doubling would hold up to half its memory unused;
/// an eighth costs little more copying.
pub(crate) fn grow_gently<T>(table: &mut Vec<T>) {
    if table.len() == table.capacity() {
        table.reserve_exact(table.len() / 8 + 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number in use, or the next free one.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Cell {
        Used(u32),
        Vacant(u32),
    }

    impl Record for Cell {
        fn vacant(next_free: u32) -> Self {
            Cell::Vacant(next_free)
        }

        fn next_free(&self) -> u32 {
            match *self {
                Cell::Vacant(next_free) => next_free,
                Cell::Used(_) => panic!("{self:?} is not free"),
            }
        }
    }

    #[test]
    fn numbers_stay_valid_and_freed_ones_are_used_again() {
        let mut slab = Slab::new();
        let numbers: Vec<u32> = (0..3).map(|i| slab.add(Cell::Used(i))).collect();
        slab.free(numbers[0]);
        slab.free(numbers[2]);
        assert_eq!(slab[numbers[1]], Cell::Used(1));
        assert_eq!(slab.add(Cell::Used(3)), numbers[2]);
        assert_eq!(slab.add(Cell::Used(4)), numbers[0]);
        assert_eq!(slab[numbers[2]], Cell::Used(3));
        assert_eq!((slab.add(Cell::Used(5)), slab.len()), (3, 4));
    }

    #[test]
    fn an_empty_slab_holds_no_memory() {
        let mut slab = Slab::new();
        let numbers: Vec<u32> = (0..1000).map(|i| slab.add(Cell::Used(i))).collect();
        assert!(slab.metadata_bytes() < 1000 * 10);
        numbers.into_iter().for_each(|number| slab.free(number));
        assert_eq!((slab.len(), slab.metadata_bytes()), (0, 0));
    }
}
