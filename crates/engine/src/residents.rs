//! The order in which the resident pages of one space came: first in, first to be taken away, but those
//! that have lives are passed over.
//!
//! A pager has no accessed bit to read, so there age is the time since a page was put in place or passed
//! over, and `lives.rs` says how often it will be. Drivers that see every use (a file system, the simulator)
//! get the clock algorithm, which approximates LRU as the kernels of the published systems did: a use is a
//! life. Entries are not removed when a page goes another way; they are recognised as outdated by their
//! stamp and swept up when they outnumber the rest.

use std::collections::VecDeque;

use pleat_types::PageNo;

use crate::table::{PageState, PageTable};

/// Outdated entries tolerated whatever the number of live ones.
const OUTDATED_MIN: usize = 64;
/// Most pages passed over for one that goes, where uses are not seen: then all that have come back lately may
/// have lives, and a lock is held meanwhile.
pub(crate) const PASSES_MAX: u32 = 64;

/// Queue of (page, stamp), oldest first, stamps ascending.
///
/// An entry is live while the page table says `Resident` with the very same stamp; each resident
/// page has exactly one live entry: `live <= queue.len() <= 2 * live + OUTDATED_MIN`.
#[derive(Clone, Default)]
pub(crate) struct Residents {
    queue: VecDeque<(PageNo, u64)>,
    live: usize,
}

impl Residents {
    /// A page came that is younger than all others.
    pub(crate) fn push_youngest(&mut self, page: PageNo, stamp: u64) {
        debug_assert!(self.queue.back().is_none_or(|&(_, last)| last < stamp));
        self.queue.push_back((page, stamp));
        self.live += 1;
    }

    /// A page came back with its old stamp. Only pages chosen before it can be older, so the
    /// place is found within a few steps of the old end.
    pub(crate) fn restore(&mut self, page: PageNo, stamp: u64) {
        let older = self
            .queue
            .iter()
            .take_while(|&&(_, other)| other < stamp)
            .count();
        self.queue.insert(older, (page, stamp));
        self.live += 1;
    }

    /// The oldest page, which stays in the queue. Those that have lives, at most so many, lose one and are
    /// the youngest from now on: each costs one step, for a use or a fault.
    pub(crate) fn oldest(
        &mut self,
        table: &mut PageTable,
        clock: &mut u64,
        mut passes_left: u32,
    ) -> Option<(PageNo, u64)> {
        while let Some(&(page, stamp)) = self.queue.front() {
            let live = is_live(table, page, stamp);
            if live && (passes_left == 0 || !table.pass_over(page, *clock + 1)) {
                return Some((page, stamp));
            }
            self.queue.pop_front();
            if live {
                passes_left -= 1;
                *clock += 1;
                self.queue.push_back((page, *clock));
            }
        }
        None
    }

    /// About since when the oldest page is there; 0 when there is none.
    pub(crate) fn oldest_stamp(&self) -> u64 {
        self.queue.front().map_or(0, |&(_, stamp)| stamp)
    }

    /// Takes out the entry that `oldest` returned, whose page gets another state now.
    pub(crate) fn pop_oldest(&mut self) {
        self.queue.pop_front();
    }

    /// A resident page got another state or stamp (the table says so already).
    pub(crate) fn outdated(&mut self, table: &PageTable) {
        self.live -= 1;
        if self.queue.len() > 2 * self.live + OUTDATED_MIN {
            self.queue
                .retain(|&(page, stamp)| is_live(table, page, stamp));
        }
    }

    /// Bytes of the queue.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        (self.queue.capacity() * size_of::<(PageNo, u64)>()) as u64
    }

    /// Whether the queue and the table tell the same story.
    pub(crate) fn is_valid(&self, table: &PageTable) -> bool {
        let live = self
            .queue
            .iter()
            .filter(|&&(page, stamp)| is_live(table, page, stamp))
            .count();
        let resident = table
            .known()
            .filter(|(_, state)| matches!(state, PageState::Resident { .. }))
            .count();
        let ascending = self
            .queue
            .iter()
            .zip(self.queue.iter().skip(1))
            .all(|(a, b)| a.1 < b.1);
        live == self.live
            && live == resident
            && ascending
            && self.queue.len() <= 2 * live + OUTDATED_MIN
    }
}

fn is_live(table: &PageTable, page: PageNo, stamp: u64) -> bool {
    table.get(page) == PageState::Resident { stamp }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident(count: u64) -> (Residents, PageTable) {
        let (mut residents, mut table) = (Residents::default(), PageTable::default());
        for page in 0..count {
            table.set(PageNo(page), PageState::Resident { stamp: page });
            residents.push_youngest(PageNo(page), page);
        }
        (residents, table)
    }

    #[test]
    fn the_oldest_page_still_resident_comes_first() {
        let (mut residents, mut table) = resident(3);
        table.set(PageNo(0), PageState::Unknown);
        residents.outdated(&table);
        assert_eq!(
            residents.oldest(&mut table, &mut 3, u32::MAX),
            Some((PageNo(1), 1))
        );
    }

    #[test]
    fn a_page_used_since_it_came_gets_a_second_chance_and_not_a_third() {
        let (mut residents, mut table) = resident(3);
        let mut clock = 2;
        table.touch(PageNo(0), false);
        table.touch(PageNo(1), true);
        assert_eq!(
            residents.oldest(&mut table, &mut clock, u32::MAX),
            Some((PageNo(2), 2))
        );
        residents.pop_oldest();
        table.set(PageNo(2), PageState::Unknown);
        residents.outdated(&table);
        assert_eq!(
            residents.oldest(&mut table, &mut clock, u32::MAX),
            Some((PageNo(0), 3))
        );
        assert!(residents.is_valid(&table));
    }

    #[test]
    fn no_more_pages_are_passed_over_than_may_be() {
        let (mut residents, mut table) = resident(10);
        (0..10).for_each(|page| table.set_lives(PageNo(page), 3));
        let mut clock = 9;
        assert_eq!(
            residents.oldest(&mut table, &mut clock, 4),
            Some((PageNo(4), 4))
        );
        assert_eq!(
            residents.oldest(&mut table, &mut clock, u32::MAX),
            Some((PageNo(0), 30)),
            "when all have lost three lives, or will have next"
        );
        assert!(residents.is_valid(&table));
    }

    #[test]
    fn outdated_entries_never_outnumber_the_live_ones_for_long() {
        let (mut residents, mut table) = resident(1000);
        for page in (1..1000).rev() {
            table.set(PageNo(page), PageState::Unknown);
            residents.outdated(&table);
            assert!(residents.queue.len() <= 2 * residents.live + OUTDATED_MIN);
        }
        assert!(residents.is_valid(&table));
    }

    #[test]
    fn a_restored_page_is_as_old_as_it_was() {
        let (mut residents, mut table) = resident(4);
        for page in [0, 1] {
            let oldest = residents.oldest(&mut table, &mut 9, u32::MAX);
            assert_eq!(oldest, Some((PageNo(page), page)));
            residents.pop_oldest();
            table.set(PageNo(page), PageState::Leaving { stamp: page });
            residents.outdated(&table);
        }
        for page in [0, 1] {
            table.set(PageNo(page), PageState::Resident { stamp: page });
            residents.restore(PageNo(page), page);
        }
        assert!(residents.is_valid(&table));
        let oldest = residents.oldest(&mut table, &mut 9, u32::MAX);
        assert_eq!(oldest, Some((PageNo(0), 0)));
    }
}
