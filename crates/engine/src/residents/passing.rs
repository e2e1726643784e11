//! Residents of a space in a round (`rounds.rs`): those that came since it began pass, the others stay.

use std::collections::VecDeque;

use pleat_types::PageNo;

use super::{is_live, Found, Residents, PASSES_MAX};
use crate::bodies::append;
use crate::table::PageTable;

/// The part of all pages that may be passing, one in so many, and the least of them.
const PASSING_PART: usize = 16;
const PASSING_LEAST: usize = 8;

impl Residents {
    /// The page, which came last, is not to pass but to stay.
    pub(crate) fn keep_youngest(&mut self, page: PageNo, table: &mut PageTable, clock: &mut u64) {
        let came_last = |&(last, stamp): &_| last == page && is_live(table, page, stamp);
        if self.passing.back().is_some_and(came_last) {
            self.passing.pop_back();
            self.stay(page, table, clock);
        }
    }

    /// The page to go next in a round, if enough are passing, and the stamp of the one that it goes for.
    pub(super) fn oldest_passing(
        &mut self,
        table: &mut PageTable,
        clock: &mut u64,
    ) -> Option<(PageNo, u64)> {
        let room = (self.live / PASSING_PART).max(PASSING_LEAST);
        // There is more memory than there was.
        let too_many = self.passing.len().saturating_sub(2 * room);
        for _ in 0..too_many.min(PASSES_MAX as usize) {
            let (page, stamp) = self.passing.pop_front()?;
            if is_live(table, page, stamp) {
                self.stay(page, table, clock);
            }
        }
        sweep(&mut self.queue, table);
        let (page, stamp) = sweep(&mut self.passing, table)?;
        if self.passing.len() <= room {
            return None;
        }
        let stays = self.queue.front().copied();
        if let Some(stays) = stays.filter(|_| self.rounds.wants_scout(self.now)) {
            self.found = Found::RoundScout;
            return Some(stays);
        }
        self.found = Found::Passing;
        Some((page, stays.map_or(stamp, |(_, since)| since)))
    }

    /// The oldest of those passing, where there are no others.
    pub(super) fn last_passing(&mut self, table: &PageTable) -> Option<(PageNo, u64)> {
        self.found = Found::Passing;
        sweep(&mut self.passing, table)
    }

    /// One that passed goes: the oldest of those that stay becomes the youngest, as if it had gone and come back.
    pub(super) fn turn(&mut self, table: &mut PageTable, clock: &mut u64) {
        if let Some((page, stamp)) = self.queue.pop_front() {
            if is_live(table, page, stamp) {
                self.stay(page, table, clock);
            }
        }
    }

    /// Puts a live page, whose entry was taken out, at the young end of the queue.
    fn stay(&mut self, page: PageNo, table: &mut PageTable, clock: &mut u64) {
        *clock += 1;
        table.renew(page, *clock);
        append(&mut self.queue, (page, *clock));
    }

    /// The round is over: those that passed wait for their turn as all others do.
    pub(super) fn end_round(&mut self) {
        let mut passing = std::mem::take(&mut self.passing);
        let mut queue = std::mem::take(&mut self.queue);
        self.queue.reserve_exact(queue.len() + passing.len());
        while let (Some(queued), Some(passed)) = (queue.front(), passing.front()) {
            let older = match queued.1 < passed.1 {
                true => &mut queue,
                false => &mut passing,
            };
            self.queue.extend(older.pop_front());
        }
        self.queue.extend(queue);
        self.queue.extend(passing);
    }
}

/// The oldest live entry, once those before it are gone.
fn sweep(entries: &mut VecDeque<(PageNo, u64)>, table: &PageTable) -> Option<(PageNo, u64)> {
    loop {
        let &(page, stamp) = entries.front()?;
        if is_live(table, page, stamp) {
            return Some((page, stamp));
        }
        entries.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::super::Manner;
    use super::*;
    use crate::table::PageState;

    const MANNER: Manner = Manner {
        passes_max: PASSES_MAX,
        with_scouts: true,
    };

    struct Round {
        residents: Residents,
        table: PageTable,
        clock: u64,
    }

    impl Round {
        /// So many pages are there, and a round begins.
        fn begin(pages: u64) -> Round {
            let mut round = Round {
                residents: Residents::default(),
                table: PageTable::default(),
                clock: 0,
            };
            (0..pages).for_each(|page| round.come(page));
            round.residents.rounds.begin();
            round
        }

        fn come(&mut self, page: u64) {
            self.clock += 1;
            let stamp = self.clock;
            self.table.set(PageNo(page), PageState::Resident { stamp });
            self.residents.push_youngest(PageNo(page), stamp);
        }

        /// The page that goes next, and the age that it was given.
        fn go(&mut self) -> Option<(u64, u64)> {
            let (residents, table) = (&mut self.residents, &mut self.table);
            let (page, age) = residents.oldest(table, &mut self.clock, MANNER)?;
            let stamp = table.get(page).stamp();
            residents.pop_oldest(table, &mut self.clock);
            table.set(page, PageState::Leaving { stamp });
            residents.outdated(table);
            assert!(residents.is_valid(table));
            Some((page.0, age))
        }
    }

    #[test]
    fn those_that_came_in_the_round_go_first_once_there_are_enough_and_as_old_as_the_oldest() {
        let mut round = Round::begin(320);
        (1000..1030).for_each(|page| round.come(page));
        // 350 / 16 = 21 may pass; the first nine are more than that as long as the scouts of regions do not go.
        let gone: Vec<_> = (0..9).map(|_| round.go().unwrap()).collect();
        let pages: Vec<u64> = gone.iter().map(|&(page, _)| page).collect();
        assert_eq!(pages, (1000..1009).collect::<Vec<u64>>());
        let ages: Vec<u64> = gone.iter().map(|&(_, age)| age).collect();
        assert_eq!(ages, (1..10).collect::<Vec<u64>>());
        let next = round.go().unwrap().0;
        assert!(next < 320, "{next}: the passing have their room");
    }

    #[test]
    fn where_nothing_else_is_left_those_passing_go() {
        let mut round = Round::begin(0);
        (0..5).for_each(|page| round.come(page));
        let gone: Vec<u64> = std::iter::from_fn(|| round.go().map(|(page, _)| page)).collect();
        assert_eq!(gone, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_page_kept_leaves_after_all_that_were_there() {
        let mut round = Round::begin(320);
        (1000..1020).for_each(|page| round.come(page));
        round.come(2000);
        let Round {
            residents,
            table,
            clock,
        } = &mut round;
        residents.keep_youngest(PageNo(2000), table, clock);
        residents.keep_youngest(PageNo(1018), table, clock);
        assert!(residents.is_valid(table));
        assert!(
            residents
                .queue
                .back()
                .is_some_and(|last| last.0 == PageNo(2000)),
            "1018 did not come last"
        );
    }

    #[test]
    fn memory_that_is_gained_lets_more_stay() {
        let mut round = Round::begin(320);
        (1000..1200).for_each(|page| round.come(page));
        (0..20).for_each(|_| assert!(round.go().unwrap().0 >= 1000));
        let passing = round.residents.passing.len();
        assert!(passing <= 64, "{passing} of 500 pages");
    }

    #[test]
    fn when_the_round_is_over_all_go_in_the_order_in_which_they_came() {
        let mut round = Round::begin(40);
        (1000..1010).for_each(|page| round.come(page));
        round.residents.rounds.end();
        round.come(50);
        let manner = Manner {
            with_scouts: false,
            ..MANNER
        };
        let Round {
            residents,
            table,
            clock,
        } = &mut round;
        residents.oldest(table, clock, manner);
        let pages: Vec<u64> = residents.queue.iter().map(|(page, _)| page.0).collect();
        assert_eq!(
            pages,
            (0..40).chain(1000..1010).chain([50]).collect::<Vec<u64>>()
        );
        assert!(residents.is_valid(table) && residents.passing.is_empty());
    }

    #[test]
    fn a_page_that_was_refused_is_as_old_as_it_was_on_either_side() {
        let mut round = Round::begin(320);
        (1000..1040).for_each(|page| round.come(page));
        for _ in 0..15 {
            let (page, _) = round.go().unwrap();
            let PageState::Leaving { stamp } = round.table.get(PageNo(page)) else {
                panic!("it was chosen");
            };
            round.table.set(PageNo(page), PageState::Resident { stamp });
            round.residents.restore(PageNo(page), stamp);
            assert!(round.residents.is_valid(&round.table));
            assert_eq!(round.go().map(|(again, _)| again), Some(page));
        }
    }
}
