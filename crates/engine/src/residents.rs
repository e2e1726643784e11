//! The order in which the resident pages of one space came: first in, first to be taken away, but those
//! that have lives are passed over.
//!
//! A pager has no accessed bit to read, so there age is the time since a page was put in place or passed
//! over, and `lives.rs` says how often it will be. Drivers that see every use (a file system, the simulator)
//! get the clock algorithm, which approximates LRU as the kernels of the published systems did: a use is a
//! life. Entries are not removed when a page goes another way; they are recognised as outdated by their
//! stamp and swept up when they outnumber the rest.
//!
//! Where uses are not seen, old pages wait a little for what becomes of one beside them (`scouts.rs`). In a program
//! that goes round and round, those that came last go first (`rounds.rs`, `passing.rs`).

mod passing;

use std::collections::VecDeque;

use pleat_types::PageNo;

use crate::bodies::append;
use crate::rounds::Rounds;
use crate::scouts::Time;
use crate::table::{Errand, PageState, PageTable, Turn};

/// Outdated entries tolerated whatever the number of live ones.
const OUTDATED_MIN: usize = 64;
/// Most pages passed over for one that goes, where uses are not seen: then all that have come back lately may
/// have lives, and a lock is held meanwhile.
pub(crate) const PASSES_MAX: u32 = 64;

/// The part of all pages that may be in probation, one in so many.
const PROBATION_PART: usize = 20;
/// For each page that goes so many may come back from probation, and after a while in which fewer did, so many
/// at once.
const RETURNS: u32 = 2;
const RETURNS_MAX: u32 = 64;

/// How the oldest page is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Most pages passed over for one that goes.
    pub(crate) passes_max: u32,
    /// Regions send scouts ahead, and others wait for what becomes of them (`scouts.rs`).
    pub(crate) with_scouts: bool,
}

/// Queue of (page, stamp), oldest first, stamps ascending; behind its old end, those in probation.
///
/// ```text
///   came --> queue --+--------------> goes, as the scout of its region
///              ^     |
///              |     +--> probation --> goes
///              |             |
///              +-------------+ its region is wanted
/// ```
///
/// An entry is live while the page table says `Resident` with the very same stamp; each resident
/// page has exactly one live entry: `live <= entries <= 2 * live + OUTDATED_MIN`.
#[derive(Clone, Default)]
pub(crate) struct Residents {
    queue: VecDeque<(PageNo, u64)>,
    probation: VecDeque<(PageNo, u64)>,
    /// In a round, those that came since it began; else none.
    passing: VecDeque<(PageNo, u64)>,
    pub(crate) rounds: Rounds,
    live: usize,
    /// What `oldest` found.
    found: Found,
    /// Pages that have gone.
    now: Time,
    /// So many have come back from probation, less what was allowed since.
    returned: u32,
}

/// Where the oldest page is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Found {
    /// At the old end of the queue.
    #[default]
    Oldest,
    /// There, and it will be a scout.
    Scout,
    /// At the old end of those in probation.
    Probation,
    /// At the old end of those passing.
    Passing,
    /// At the old end of the queue, and it will be the scout of a round.
    RoundScout,
}

impl Residents {
    /// A page came that is younger than all others.
    pub(crate) fn push_youngest(&mut self, page: PageNo, stamp: u64) {
        let stays = !self.rounds.is_on() || self.rounds.is_scout(page);
        let to = match stays {
            true => &mut self.queue,
            false => &mut self.passing,
        };
        debug_assert!(to.back().is_none_or(|&(_, last)| last < stamp));
        append(to, (page, stamp));
        self.live += 1;
    }

    /// A page came back with its old stamp. Only pages chosen before it can be older, so the
    /// place is found near the old end, in a round perhaps of those passing.
    pub(crate) fn restore(&mut self, page: PageNo, stamp: u64) {
        let older = |entries: &VecDeque<_>| entries.partition_point(|&(_, other)| other < stamp);
        let (queued, passing) = (older(&self.queue), older(&self.passing));
        match self.passing.is_empty() || queued <= passing {
            true => self.queue.insert(queued, (page, stamp)),
            false => self.passing.insert(passing, (page, stamp)),
        }
        self.live += 1;
    }

    /// The page to go next, which stays where it is, and the stamp that says how old it is among those of other
    /// spaces. Those that have lives, at most so many, lose one and are the youngest from now on, and so are those in
    /// probation whose region is wanted: each costs one step, for a use or a fault.
    pub(crate) fn oldest(
        &mut self,
        table: &mut PageTable,
        clock: &mut u64,
        manner: Manner,
    ) -> Option<(PageNo, u64)> {
        if self.rounds.is_on() {
            if let Some(found) = self.oldest_passing(table, clock) {
                return Some(found);
            }
        } else if !self.passing.is_empty() {
            self.end_round();
        }
        let mut passes_left = manner.passes_max;
        let room = match manner.with_scouts {
            true => self.live / PROBATION_PART,
            false => 0,
        };
        loop {
            let is_new = self.probation.len() < room && !self.queue.is_empty();
            let is_tried = !is_new && !self.probation.is_empty();
            let from = match is_tried {
                true => &mut self.probation,
                false => &mut self.queue,
            };
            let Some(&(page, stamp)) = from.front() else {
                return self.last_passing(table);
            };
            let next = *clock + 1;
            let may_pass = passes_left > 0;
            let mut is_young = match table.turn(page, stamp, may_pass.then_some(next)) {
                Turn::Outdated => {
                    from.pop_front();
                    continue;
                }
                Turn::PassedOver => true,
                Turn::Goes => false,
            };
            if !is_young && is_tried && may_pass {
                is_young = self.returned < RETURNS_MAX && table.is_wanted(page);
                if is_young {
                    table.renew(page, next);
                    self.returned += 1;
                }
            }
            if is_young {
                from.pop_front();
                passes_left -= 1;
                *clock = next;
                append(&mut self.queue, (page, next));
                continue;
            }
            self.found = match is_tried {
                true => Found::Probation,
                false if !is_new => Found::Oldest,
                false => match table.errand(page, self.now, room as u32) {
                    Errand::None => Found::Oldest,
                    Errand::Scout => Found::Scout,
                    Errand::Wait => {
                        from.pop_front();
                        append(&mut self.probation, (page, stamp));
                        continue;
                    }
                },
            };
            return Some((page, stamp));
        }
    }

    /// How many pages have gone, and how many are there.
    pub(crate) fn pace(&self) -> (Time, usize) {
        (self.now, self.live)
    }

    /// About since when the oldest page is there; 0 when there is none.
    pub(crate) fn oldest_stamp(&self) -> u64 {
        let oldest = self.probation.front().or_else(|| self.queue.front());
        oldest.map_or(0, |&(_, stamp)| stamp)
    }

    /// Takes out the entry that `oldest` returned, whose page gets another state now; whether it only passed in a
    /// round.
    pub(crate) fn pop_oldest(&mut self, table: &mut PageTable, clock: &mut u64) -> bool {
        let gone = match self.found {
            Found::Probation => self.probation.pop_front(),
            Found::Oldest | Found::Scout | Found::RoundScout => self.queue.pop_front(),
            Found::Passing => self.passing.pop_front(),
        };
        match (self.found, gone) {
            (Found::Scout, Some((page, _))) => table.send_scout(page, self.now),
            (Found::RoundScout, Some((page, _))) => self.rounds.send_scout(page, self.now),
            (Found::Passing, _) => self.turn(table, clock),
            _ => {}
        }
        self.now.tick();
        self.rounds.judge(self.now, self.live as u32);
        self.returned = self.returned.saturating_sub(RETURNS);
        self.found == Found::Passing
    }

    /// A resident page got another state or stamp (the table says so already).
    pub(crate) fn outdated(&mut self, table: &PageTable) {
        self.live -= 1;
        if self.entries() > 2 * self.live + OUTDATED_MIN {
            for entries in [&mut self.queue, &mut self.probation, &mut self.passing] {
                entries.retain(|&(page, stamp)| is_live(table, page, stamp));
            }
        }
    }

    fn entries(&self) -> usize {
        self.queue.len() + self.probation.len() + self.passing.len()
    }

    /// Bytes of the queues.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        let entries = self.queue.capacity() + self.probation.capacity() + self.passing.capacity();
        (entries * size_of::<(PageNo, u64)>()) as u64
    }

    /// Whether the queue and the table tell the same story.
    pub(crate) fn is_valid(&self, table: &PageTable) -> bool {
        let live = self
            .queue
            .iter()
            .chain(&self.probation)
            .chain(&self.passing)
            .filter(|&&(page, stamp)| is_live(table, page, stamp))
            .count();
        let resident = table
            .known()
            .filter(|(_, state)| matches!(state, PageState::Resident { .. }))
            .count();
        let ascends = |entries: &VecDeque<(PageNo, u64)>| {
            let mut pairs = entries.iter().zip(entries.iter().skip(1));
            pairs.all(|(a, b)| a.1 < b.1)
        };
        let ascending = ascends(&self.queue) && ascends(&self.passing);
        live == self.live
            && live == resident
            && ascending
            && self.entries() <= 2 * live + OUTDATED_MIN
    }
}

fn is_live(table: &PageTable, page: PageNo, stamp: u64) -> bool {
    table.get(page) == PageState::Resident { stamp }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pleat_types::PageRange;

    const ALL: Manner = Manner {
        passes_max: u32::MAX,
        with_scouts: false,
    };

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
            residents.oldest(&mut table, &mut 3, ALL),
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
            residents.oldest(&mut table, &mut clock, ALL),
            Some((PageNo(2), 2))
        );
        residents.pop_oldest(&mut table, &mut 9);
        table.set(PageNo(2), PageState::Unknown);
        residents.outdated(&table);
        assert_eq!(
            residents.oldest(&mut table, &mut clock, ALL),
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
            residents.oldest(
                &mut table,
                &mut clock,
                Manner {
                    passes_max: 4,
                    ..ALL
                }
            ),
            Some((PageNo(4), 4))
        );
        assert_eq!(
            residents.oldest(&mut table, &mut clock, ALL),
            Some((PageNo(0), 30)),
            "when all have lost three lives, or will have next"
        );
        assert!(residents.is_valid(&table));
    }

    const SCOUTING: Manner = Manner {
        with_scouts: true,
        ..ALL
    };

    /// Has the next page go; which it was.
    fn go(residents: &mut Residents, table: &mut PageTable, clock: &mut u64) -> u64 {
        let (page, stamp) = residents.oldest(table, clock, SCOUTING).expect("a page");
        residents.pop_oldest(table, clock);
        table.set(page, PageState::Leaving { stamp });
        residents.outdated(table);
        assert!(residents.is_valid(table));
        page.0
    }

    fn wanted(table: &mut PageTable, first: u64, count: u64) {
        let run = PageRange::new(PageNo(first), count);
        table.wanted(run, &mut Rounds::default(), 640);
    }

    #[test]
    fn a_scout_of_each_region_goes_before_those_beside_it() {
        let (mut residents, mut table) = resident(640);
        let mut clock = 639;
        let gone: Vec<u64> = (0..4)
            .map(|_| go(&mut residents, &mut table, &mut clock))
            .collect();
        // 32 of 640 may be in probation: two regions without their scouts, and two pages.
        assert_eq!(gone, [0, 16, 32, 1]);
    }

    #[test]
    fn a_region_that_is_wanted_stays_but_for_its_scout() {
        let (mut residents, mut table) = resident(640);
        let mut clock = 639;
        assert_eq!(go(&mut residents, &mut table, &mut clock), 0);
        wanted(&mut table, 0, 1);
        let gone: Vec<u64> = (0..20)
            .map(|_| go(&mut residents, &mut table, &mut clock))
            .collect();
        assert!(gone.iter().all(|page| *page >= 16), "{gone:?}");
        let young = PageState::Resident { stamp: 640 };
        assert_eq!(table.get(PageNo(1)), young, "the youngest, and then others");
    }

    #[test]
    fn however_much_is_wanted_pages_go() {
        let (mut residents, mut table) = resident(640);
        let mut clock = 639;
        for _ in 0..300 {
            go(&mut residents, &mut table, &mut clock);
            (0..40).for_each(|region| wanted(&mut table, region * 16, 1));
        }
        let passes = clock - 639;
        let most = u64::from(300 * RETURNS + RETURNS_MAX);
        assert!(passes <= most, "{passes} passes");
    }

    #[test]
    fn what_came_in_a_run_sends_no_scouts() {
        let (mut residents, mut table) = resident(640);
        wanted(&mut table, 0, 640);
        let mut clock = 639;
        let gone: Vec<u64> = (0..40)
            .map(|_| go(&mut residents, &mut table, &mut clock))
            .collect();
        assert_eq!(gone, (0..40).collect::<Vec<u64>>());
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
            let oldest = residents.oldest(&mut table, &mut 9, ALL);
            assert_eq!(oldest, Some((PageNo(page), page)));
            residents.pop_oldest(&mut table, &mut 9);
            table.set(PageNo(page), PageState::Leaving { stamp: page });
            residents.outdated(&table);
        }
        for page in [0, 1] {
            table.set(PageNo(page), PageState::Resident { stamp: page });
            residents.restore(PageNo(page), page);
        }
        assert!(residents.is_valid(&table));
        let oldest = residents.oldest(&mut table, &mut 9, ALL);
        assert_eq!(oldest, Some((PageNo(0), 0)));
    }
}
