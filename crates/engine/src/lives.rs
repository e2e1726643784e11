//! Who stays longer, where uses of pages in memory are not seen: pages that were wanted again soon after they
//! left, and old pages beside them.
//!
//! First in, first out throws out what is used all the time as readily as what is not. But what is used all the
//! time is missed at once: how many pages left memory between a page's leaving and its return is
//! known (`distance.rs`). The quarter of all returns with the shortest such distances get three lives, the next
//! two, the next one, the last none; a life is one more turn through the queue (`residents.rs`). What is
//! short follows the program: the quartiles move a little with every return.
//!
//! Programs use what lies together at about the same time, so a return is also a sign of use for its
//! neighbours in memory: those that are not young anyway get a life if they have none.
//!
//! In a program that goes round and round all distances are about equal, and `rounds.rs` sees to it.
//!
//! `pleat sim --misses` measures all this; docs/benchmarks.md has the figures.

use pleat_policy::Backed;
use pleat_types::{PageNo, PageRange, SpaceId};

use crate::space::Space;
use crate::Engine;

/// Quartiles are counted in quarters of a page.
const UNITS: u64 = 4;
/// A quartile moves by this part of the resident pages at most.
const STEP_PART: u64 = 256;
/// A quartile is at most so many times the resident pages.
const BOUND_MOST: u64 = 2;
/// Neighbours on each side.
const REACH_PAGES: u64 = 4;
/// Pages that came later than this part of all, 1/4, are young.
const YOUNG_PART: u64 = 4;

/// The quartiles of the distances over which pages come back. They ascend but where they swing around one distance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lives {
    bounds: Option<[u64; 3]>,
}

impl Lives {
    /// A page came back after so many others had left: how many lives does it get?
    fn grant(&mut self, newer_pages: u64, resident_pages: u64) -> u8 {
        let resident = resident_pages.max(1) * UNITS;
        let bounds = self
            .bounds
            .get_or_insert([resident / 8, resident / 4, resident / 2]);
        let distance = newer_pages.saturating_mul(UNITS);
        let lives = bounds.iter().filter(|&&bound| distance <= bound).count() as u8;
        let step = (resident_pages / STEP_PART).max(1);
        for (bound, quarter) in bounds.iter_mut().zip(1..) {
            *bound = match distance <= *bound {
                true => bound.saturating_sub(step * (UNITS - quarter)),
                false => (*bound + step * quarter).min(BOUND_MOST * resident),
            };
        }
        lives
    }
}

impl Engine {
    /// Whether the driver reports every use of pages of this space.
    pub(crate) fn sees_uses(&self, space: SpaceId) -> bool {
        let space = self.spaces.get(&space);
        self.settings.tracks_writes || space.is_some_and(|space| space.backed == Backed::ByFile)
    }

    /// A page is back that was wanted, after so many that left later than it and are still away.
    pub(crate) fn give_lives(&mut self, id: SpaceId, page: PageNo, newer_pages: u64) {
        if self.sees_uses(id) {
            return;
        }
        let (resident_pages, away_pages) = (self.pages.resident, self.cache.away.total());
        let (Some(lives), Some(space)) = (&mut self.lives, self.spaces.get_mut(&id)) else {
            return;
        };
        let mut granted = lives.grant(newer_pages, resident_pages);
        if space.residents.rounds.is_even() {
            granted = 0;
        }
        space.table.set_lives(page, granted);
        let totals = &mut self.cache.totals;
        totals.spared_pages += u64::from(granted > 0);
        let range = PageRange {
            start: PageNo(page.0.saturating_sub(REACH_PAGES)),
            end: PageNo(page.0.saturating_add(REACH_PAGES + 1)),
        };
        if space.residents.rounds.returned(newer_pages, away_pages) {
            let Space {
                residents, table, ..
            } = space;
            residents.keep_youngest(page, table, &mut self.cache.clock);
        }
        let oldest = space.residents.oldest_stamp();
        let latest = self.cache.clock - self.cache.clock.saturating_sub(oldest) / YOUNG_PART;
        totals.spared_neighbour_pages += space.table.spare(range, latest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESIDENT: u64 = 1000;

    /// How many of `distances` get how many lives.
    fn granted(lives: &mut Lives, distances: impl Iterator<Item = u64>) -> [u32; 4] {
        let mut counts = [0; 4];
        for distance in distances {
            counts[usize::from(lives.grant(distance, RESIDENT))] += 1;
        }
        counts
    }

    #[test]
    fn each_quarter_of_all_distances_gets_its_number_of_lives() {
        let mut lives = Lives::default();
        let distances = |count: u64| (0..count).map(|n| n * 7919 % 1500);
        granted(&mut lives, distances(4000));
        for count in granted(&mut lives, distances(8000)) {
            assert!((1800..2200).contains(&count), "{count} of 8000");
        }
    }

    #[test]
    fn the_nearest_get_most() {
        let mut lives = Lives::default();
        granted(&mut lives, (0..4000).map(|n| n * 7919 % 1000));
        let of = |distance| {
            let mut lives = lives;
            lives.grant(distance, RESIDENT)
        };
        assert_eq!([0, 400, 600, 999].map(of), [3, 2, 1, 0]);
    }

    #[test]
    fn of_equal_distances_some_get_more_lives_than_others() {
        let mut lives = Lives::default();
        granted(&mut lives, std::iter::repeat_n(700, 4000));
        let counts = granted(&mut lives, std::iter::repeat_n(700, 4000));
        assert!(counts.iter().max() < Some(&3000), "{counts:?}");
    }

    #[test]
    fn quartiles_stay_near_memory_however_far_pages_come_from() {
        let mut lives = Lives::default();
        granted(&mut lives, std::iter::repeat_n(u64::MAX, 10_000));
        assert_eq!(lives.bounds, Some([BOUND_MOST * UNITS * RESIDENT; 3]));
        granted(&mut lives, std::iter::repeat_n(0, 10_000));
        assert!(lives
            .bounds
            .unwrap()
            .iter()
            .all(|&bound| bound < 2 * UNITS * RESIDENT / STEP_PART));
    }
}
