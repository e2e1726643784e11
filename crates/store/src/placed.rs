//! The record of an item in layouts that choose frames: where it is, and whether it may be dropped.
//!
//! The ring and the buffers keep one per item, chained in the order of their places.

use pleat_types::PAGE_SIZE;

use crate::chain::{Link, Linked, NONE};
use crate::layout::Handle;
use crate::slab::{Record, Slab};

/// Where an item is, and its neighbours there.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    /// The frame it starts in.
    pub(crate) frame: u32,
    /// Bytes from the start of the frame.
    pub(crate) at: u16,
    /// Bytes, 0 for a free handle, and [`CLEAN`].
    len_and_clean: u16,
    link: Link,
}

const CLEAN: u16 = 1 << 15;

impl Placed {
    /// A dirty item in no chain yet.
    pub(crate) fn new(frame: u32, at: usize, len: usize) -> Self {
        debug_assert!(at < PAGE_SIZE && (1..=PAGE_SIZE).contains(&len));
        Placed {
            frame,
            at: at as u16,
            len_and_clean: len as u16,
            link: Link::NONE,
        }
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.len_and_clean & !CLEAN)
    }

    /// Bytes from the start of its frame to its end.
    pub(crate) fn end(&self) -> usize {
        usize::from(self.at) + self.len()
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.len_and_clean & CLEAN != 0
    }

    /// Returns whether that is a change.
    pub(crate) fn set_clean(&mut self, clean: bool) -> bool {
        let changes = self.is_clean() != clean;
        self.len_and_clean ^= if changes { CLEAN } else { 0 };
        changes
    }

    /// The next item in its chain, or [`NONE`].
    pub(crate) fn next(&self) -> u32 {
        self.link.next
    }
}

/// The next free handle is where the frame was.
impl Record for Placed {
    fn vacant(next_free: u32) -> Self {
        Placed {
            frame: next_free,
            at: 0,
            len_and_clean: 0,
            link: Link::NONE,
        }
    }

    fn next_free(&self) -> u32 {
        self.frame
    }
}

impl Linked for Placed {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Slab<Placed> {
    /// The live record of `handle`.
    pub(crate) fn live(&self, handle: Handle) -> Placed {
        let item = self[handle.0];
        assert!(item.len() > 0, "{handle:?} used after its removal");
        item
    }

    /// The items of a chain from `first` on, with their numbers.
    pub(crate) fn chained(&self, first: u32) -> impl Iterator<Item = (u32, &Placed)> {
        let known = |number: u32| (number != NONE).then(|| (number, &self[number]));
        std::iter::successors(known(first), move |(_, item)| known(item.next()))
    }
}
