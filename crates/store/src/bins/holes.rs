//! The holes of a bin: slots without an item below its top, the newest first.
//!
//! The list goes through the slots themselves, so that it takes no table: in place of the handle
//! of its item a hole has [`HOLE`], and then the place of the next older one.

use crate::arena::Arena;

/// In a slot in place of its item's handle. No item has it: it ends lists of handles.
pub(super) const HOLE: u32 = u32::MAX;
const MARK_BYTES: usize = size_of::<u32>();
const LINK_BYTES: usize = size_of::<usize>();

/// The head of a list of holes. A link beyond the oldest means nothing: `len` ends the list.
#[derive(Clone, Copy)]
pub(super) struct Holes {
    newest: usize,
    len: u32,
}

impl Holes {
    pub(super) const NONE: Holes = Holes { newest: 0, len: 0 };

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes a hole of the slot at `at`.
    pub(super) fn push(&mut self, arena: &mut Arena, at: usize) {
        arena.write(at, &HOLE.to_ne_bytes());
        arena.write(at + MARK_BYTES, &self.newest.to_ne_bytes());
        self.newest = at;
        self.len += 1;
    }

    /// Takes out the newest hole, which the caller fills: it is the one most likely to be in the
    /// caches.
    pub(super) fn pop(&mut self, arena: &Arena) -> Option<usize> {
        self.len = self.len.checked_sub(1)?;
        let at = self.newest;
        self.newest = older(arena, at);
        Some(at)
    }

    /// Takes out the hole at `at`, wherever it is in the list.
    pub(super) fn take_out(&mut self, arena: &mut Arena, at: usize) {
        let next = older(arena, at);
        if at == self.newest {
            self.newest = next;
        } else {
            let newer = self.iter(arena).find(|&newer| older(arena, newer) == at);
            let newer = newer.expect("the hole is in the list");
            arena.write(newer + MARK_BYTES, &next.to_ne_bytes());
        }
        self.len -= 1;
    }

    /// All of them, the newest first.
    pub(super) fn iter<'a>(&self, arena: &'a Arena) -> impl Iterator<Item = usize> + 'a {
        let links = std::iter::successors(Some(self.newest), |&at| Some(older(arena, at)));
        links.take(self.len as usize)
    }
}

/// The hole that was the newest when the one at `at` was made.
fn older(arena: &Arena, at: usize) -> usize {
    let mut link = [0; LINK_BYTES];
    link.copy_from_slice(arena.bytes(at + MARK_BYTES, LINK_BYTES));
    usize::from_ne_bytes(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_taken_first_and_any_can_be_taken_out() {
        let mut arena = Arena::new(1 << 20, 1).expect("reserve");
        let mut holes = Holes::NONE;
        for at in [36, 0, 108, 72] {
            holes.push(&mut arena, at);
        }
        assert_eq!(holes.iter(&arena).collect::<Vec<_>>(), [72, 108, 0, 36]);
        holes.take_out(&mut arena, 108);
        holes.take_out(&mut arena, 72);
        holes.take_out(&mut arena, 36);
        assert_eq!((holes.len(), holes.pop(&arena)), (1, Some(0)));
        assert_eq!((holes.is_empty(), holes.pop(&arena)), (true, None));
    }
}
