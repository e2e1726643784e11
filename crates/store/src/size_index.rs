//! Cells by a size: the smallest size that suffices, exactly, in a few bit operations.
//!
//! One list of cells per size, and a bitmap over the sizes that have one. The layout of cells has
//! two of these, by final free space and by free space; the buffers have one, by room at the end.

use crate::slab::grow_gently;

const NONE: u32 = u32::MAX;
const WORD_BITS: usize = u64::BITS as usize;

/// Neighbours of a cell in the list of its size.
#[derive(Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
}

/// Cells listed by sizes of `0..=size_max` bytes. A bit is set where `heads` is not [`NONE`].
pub(crate) struct SizeIndex {
    heads: Box<[u32]>,
    bitmap: Box<[u64]>,
    /// By number of the cell; meaningless for cells that are not listed.
    links: Vec<Link>,
}

impl SizeIndex {
    pub(crate) fn new(size_max: usize) -> Self {
        SizeIndex {
            heads: vec![NONE; size_max + 1].into_boxed_slice(),
            bitmap: vec![0; size_max / WORD_BITS + 1].into_boxed_slice(),
            links: Vec::new(),
        }
    }

    /// Lists `cell`, which is not listed, under `size`.
    pub(crate) fn add(&mut self, cell: u32, size: usize) {
        while self.links.len() <= cell as usize {
            grow_gently(&mut self.links);
            self.links.push(Link {
                previous: NONE,
                next: NONE,
            });
        }
        let next = std::mem::replace(&mut self.heads[size], cell);
        self.links[cell as usize] = Link {
            previous: NONE,
            next,
        };
        if next == NONE {
            self.bitmap[size / WORD_BITS] |= 1 << (size % WORD_BITS);
        } else {
            self.links[next as usize].previous = cell;
        }
    }

    /// Takes `cell`, listed under `size`, off its list.
    pub(crate) fn remove(&mut self, cell: u32, size: usize) {
        let Link { previous, next } = self.links[cell as usize];
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        if previous != NONE {
            self.links[previous as usize].next = next;
            return;
        }
        self.heads[size] = next;
        if next == NONE {
            self.bitmap[size / WORD_BITS] &= !(1 << (size % WORD_BITS));
        }
    }

    /// A cell of the smallest size that is at least `size`.
    pub(crate) fn at_least(&self, size: usize) -> Option<u32> {
        let first = size / WORD_BITS;
        let from_size = u64::MAX << (size % WORD_BITS);
        let words = self.bitmap.get(first..)?.iter().enumerate();
        let (index, word) = words
            .map(|(i, &word)| (i, if i == 0 { word & from_size } else { word }))
            .find(|&(_, word)| word != 0)?;
        let size = (first + index) * WORD_BITS + word.trailing_zeros() as usize;
        Some(self.heads[size])
    }

    /// Every cell of a size less than `bound`, the smallest size first.
    pub(crate) fn below(&self, bound: usize) -> impl Iterator<Item = u32> + '_ {
        let words = bound.div_ceil(WORD_BITS).min(self.bitmap.len());
        let sizes = (0..words).flat_map(|index| bits_of(self.bitmap[index], index * WORD_BITS));
        sizes
            .take_while(move |&size| size < bound)
            .flat_map(|size| self.cells_of(size))
    }

    fn cells_of(&self, size: usize) -> impl Iterator<Item = u32> + '_ {
        let known = |cell: u32| (cell != NONE).then_some(cell);
        std::iter::successors(known(self.heads[size]), move |&cell| {
            known(self.links[cell as usize].next)
        })
    }

    /// A cell of the largest size.
    pub(crate) fn largest(&self) -> Option<u32> {
        let index = self.bitmap.iter().rposition(|&word| word != 0)?;
        let bit = self.bitmap[index].ilog2() as usize;
        Some(self.heads[index * WORD_BITS + bit])
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        size_of_val(&*self.heads)
            + size_of_val(&*self.bitmap)
            + self.links.capacity() * size_of::<Link>()
    }
}

/// The numbers of the bits set in `word`, the lowest of which has number `base`.
fn bits_of(mut word: u64, base: usize) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.wrapping_sub(1);
        (bit < WORD_BITS).then_some(base + bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn answers_equal_those_of_a_scan(
            steps in proptest::collection::vec((0..20u32, 0..=300usize), 1..200),
            asked in 0..=310usize,
        ) {
            let mut index = SizeIndex::new(300);
            let mut sizes = std::collections::HashMap::new();
            for (cell, size) in steps {
                match sizes.remove(&cell) {
                    Some(old) => index.remove(cell, old),
                    None => {
                        index.add(cell, size);
                        sizes.insert(cell, size);
                    }
                }
                let scan = sizes.values().filter(|&&size| size >= asked).min();
                prop_assert_eq!(index.at_least(asked).map(|cell| &sizes[&cell]), scan);
                let largest = index.largest().map(|cell| &sizes[&cell]);
                prop_assert_eq!(largest, sizes.values().max());
                let below: Vec<_> = index.below(asked).map(|cell| sizes[&cell]).collect();
                let scan = sizes.values().filter(|&&size| size < asked).count();
                prop_assert!(below.is_sorted() && below.len() == scan);
            }
        }
    }
}
