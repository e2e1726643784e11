//! Pages that are in place and of which the engine does not know yet.
//!
//! What follows a fill, in the tables and in the store, takes as long as looking the page up did, and the
//! program need not wait for it. So the thread that fills only notes it here, and whoever locks the engine
//! next tells the engine first ([`crate::shared::Shared::engine`]): the thread itself with the next
//! fault, or the folding thread that stays awake, on another CPU. Nobody ever sees an engine that lacks
//! what was noted before the lock was taken, so it is as if the filling thread had told it at once.

use crate::shared::lock;
use pleat_types::{PageNo, PageRange, SpaceId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

/// Most notes at a time.
pub const NOTES_MAX: usize = 16;

/// A range filled in a space.
pub type Note = (SpaceId, PageRange);

/// Notes, in the order in which they were made.
#[derive(Clone, Copy)]
pub struct Notes {
    count: usize,
    notes: [Note; NOTES_MAX],
}

impl Notes {
    const NONE: Notes = Notes {
        count: 0,
        notes: [(
            SpaceId(0),
            PageRange {
                start: PageNo(0),
                end: PageNo(0),
            },
        ); NOTES_MAX],
    };

    /// All of them.
    pub fn as_slice(&self) -> &[Note] {
        &self.notes[..self.count]
    }
}

/// Notes for whoever locks the engine next.
pub struct Unsettled {
    /// There are some: spares a look at the list.
    has_some: AtomicBool,
    list: Mutex<Notes>,
}

impl Unsettled {
    /// Without any.
    pub fn new() -> Unsettled {
        Unsettled {
            has_some: AtomicBool::new(false),
            list: Mutex::new(Notes::NONE),
        }
    }

    /// Whether there are any: somebody may take them at any moment.
    pub fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Acquire)
    }

    /// Adds one; `false` if there is no room.
    #[must_use]
    pub fn add(&self, note: Note) -> bool {
        let mut list = lock(&self.list);
        let count = list.count;
        if count == NOTES_MAX {
            return false;
        }
        list.notes[count] = note;
        list.count += 1;
        self.has_some.store(true, Ordering::Release);
        true
    }

    /// Takes all of them. Only with the engine's lock held, and before anything else is done with it.
    pub fn take(&self) -> Notes {
        let mut list = lock(&self.list);
        let count = list.count;
        let mut taken = Notes::NONE;
        taken.notes[..count].copy_from_slice(&list.notes[..count]);
        taken.count = count;
        list.count = 0;
        // With the list's lock held: a note that is added later sets it again.
        self.has_some.store(false, Ordering::Release);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(number: u64) -> Note {
        (SpaceId(1), PageRange::new(PageNo(number), 1))
    }

    #[test]
    fn notes_are_taken_once_and_in_order() {
        let unsettled = Unsettled::new();
        assert!(!unsettled.has_some());
        assert!(unsettled.add(note(1)) && unsettled.add(note(2)));
        assert!(unsettled.has_some());
        assert_eq!(unsettled.take().as_slice(), [note(1), note(2)]);
        assert!(!unsettled.has_some());
        assert!(unsettled.take().as_slice().is_empty());
    }

    #[test]
    fn a_full_list_takes_no_more() {
        let unsettled = Unsettled::new();
        for number in 0..NOTES_MAX as u64 {
            assert!(unsettled.add(note(number)));
        }
        assert!(!unsettled.add(note(99)));
        assert_eq!(unsettled.take().as_slice().len(), NOTES_MAX);
        assert!(unsettled.add(note(99)));
    }
}
