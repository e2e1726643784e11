//! Records by number: numbers stay valid until freed, and freed numbers are used again.
//!
//! Layouts keep one record per item here, numbered by its handle.

/// A table of records with a stack of free numbers.
pub(crate) struct Slab<T> {
    records: Vec<T>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Slab {
            records: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Stores `record` and returns its number.
    pub(crate) fn add(&mut self, record: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.records[number as usize] = record;
            return number;
        }
        grow_gently(&mut self.records);
        self.records.push(record);
        // A store of 2^32 items would be over 100 GiB of tables alone.
        u32::try_from(self.records.len() - 1).expect("fewer than 2^32 items")
    }

    /// Frees a number, leaving `vacant` there so that its owner can tell. When it was the last
    /// one in use, the tables shrink to nothing.
    pub(crate) fn free(&mut self, number: u32, vacant: T) {
        self.records[number as usize] = vacant;
        grow_gently(&mut self.free);
        self.free.push(number);
        if self.free.len() == self.records.len() {
            *self = Slab::new();
        }
    }

    /// Numbers in use.
    pub(crate) fn len(&self) -> usize {
        self.records.len() - self.free.len()
    }

    /// Bytes of both tables.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.records.capacity() * size_of::<T>() + self.free.capacity() * size_of::<u32>()
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

    #[test]
    fn numbers_stay_valid_and_freed_ones_are_used_again() {
        let mut slab = Slab::new();
        let (a, b) = (slab.add('a'), slab.add('b'));
        slab.free(a, '-');
        let c = slab.add('c');
        assert_eq!((c, slab[b], slab[c], slab.len()), (a, 'b', 'c', 2));
    }

    #[test]
    fn an_empty_slab_holds_no_memory() {
        let mut slab = Slab::new();
        let numbers: Vec<u32> = (0..1000).map(|i| slab.add(i)).collect();
        assert!(slab.metadata_bytes() < 1000 * 5);
        for number in numbers {
            slab.free(number, 0);
        }
        assert_eq!((slab.len(), slab.metadata_bytes()), (0, 0));
    }
}
