//! Programs that go round and round through more than memory holds: arrays swept again and again, a garbage
//! collector's heap.
//!
//! First in, first out is the worst there: each page leaves just before its turn, and so does LRU. The best is to leave
//! alone what is there and to let only those pages come and go that do not fit (Belady's OPT does nearly that). How
//! uses follow each other is not seen, but a round shows in what comes back: *each page after equally many others*.
//! When three quarters of all returns are over about the distance (`distance.rs`) of the one before, and three quarters of
//! the regions come again after about the time after which they came the last time (a sort goes through what it merges
//! in order, but once), the space is in a round, for as long as half of the distances go on like that:
//!
//! ```text
//!   came back ----> passing, a sixteenth of memory ----> goes
//!   ... soon -----> queue: stays. It turns by a page for each that goes, for among the spaces of a job
//!                   it is as old as if it went itself
//! ```
//!
//! What stays may have become useless, and nobody would see that either: the program may be going round in
//! something else, which would fit. So now and then a page of the queue goes, as a scout. Most of those must be wanted
//! again within two rounds, or the round is over, and all that was kept goes in its turn.
//!
//! That the right policy can be told by what a few samples do is from Qureshi, Jaleel, Patt, Steely and Emer,
//! *Adaptive insertion policies for high performance caching* (ISCA 2007).

use std::collections::VecDeque;

use pleat_types::PageNo;

use crate::scouts::Time;
use crate::share::Share;

/// The usual distance of a round is a running mean over about so many returns that agree with it.
const USUAL_WEIGHT: u64 = 64;
/// Distances agree that differ from the one before, in a round from the usual one, by this part of it, 1/8...
const AGREE_PART: u64 = 8;
/// ... or of the pages away, 1/32: they are not known better.
const AWAY_PART: u64 = 32;
/// How many agree is a running mean over about so many pages, in a round over this part of the usual distance, 1/4, if
/// that is more.
const AGREE_WEIGHT: u64 = 256;
const ROUND_PART: u64 = 4;
/// Counted in these parts of all.
const ONE: u32 = 1 << 24;
/// A round begins when so many agree, and ends when so few do.
const BEGINS: u32 = ONE / 4 * 3;
const ENDS: u32 = ONE / 2;
/// The same of regions and scouts, of 256.
const PERIODIC: u32 = 192;
const USEFUL: u32 = 128;
/// Returns over a distance of less than this part of the usual, 1/2, are no part of the round.
const SOON_PART: u64 = 2;
/// A scout for so many pages that go, or for this part of a round, if that is more.
const SCOUT_EVERY: u64 = 512;
const SCOUT_PART: u64 = 16;

/// When a region was visited last, and how long after the time before.
///
/// Time is counted in 16 pages that came, modulo 2^24, and takes the upper 24 bits; the lower are the period, three bits
/// of it behind those of its logarithm, or 0. All 0: it never was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visits(u32);

impl Visits {
    pub(crate) const NONE: Visits = Visits(0);
    const TICK: u64 = 16;
    const TIME: u32 = (1 << 24) - 1;

    /// A page comes as so many did before, with so many in memory; whether the region comes after about the same time
    /// as the last time. `None`: half of memory has not changed since, so it is no new visit.
    pub(crate) fn visit(&mut self, came: u64, resident: usize) -> Option<bool> {
        let now = ((came / Self::TICK) as u32 & Self::TIME).max(1);
        let (then, was) = (self.0 >> 8, self.0 & 0xff);
        if then == 0 {
            self.0 = now << 8;
            return Some(false);
        }
        let period = now.wrapping_sub(then) & Self::TIME;
        if u64::from(period) * Self::TICK * 2 < resident as u64 {
            return None;
        }
        let log = (period.max(1) << 3).ilog2();
        let code = (log << 3) | ((period.max(1) << 3) >> (log - 3) & 7);
        self.0 = now << 8 | code & 0xff;
        Some(was != 0 && was.abs_diff(code) <= 1)
    }
}

/// Whether a space is in a round.
#[derive(Clone)]
pub(crate) struct Rounds {
    /// Distance of the last return, or in a round the usual one.
    usual: u64,
    /// How many returns have it: pages, those that came in a run with the one that was wanted included.
    agree: u32,
    /// Whether the last did.
    agreed: bool,
    /// Pages that have come.
    came: u64,
    /// How many regions come again after the same time.
    periodic: Share<32>,
    is_on: bool,
    /// Which pages went as scouts, and when; the last sent is the last here.
    scouts: VecDeque<(PageNo, Time)>,
    last_scout: Time,
    /// How many of them are wanted again.
    useful: Share<16>,
    /// No round begins before so many pages have gone since then.
    barred: Option<(Time, u32)>,
}

impl Default for Rounds {
    fn default() -> Rounds {
        Rounds {
            usual: 0,
            agree: 0,
            agreed: false,
            came: 0,
            periodic: Share::none(),
            is_on: false,
            scouts: VecDeque::new(),
            last_scout: Time::default(),
            useful: Share::default(),
            barred: None,
        }
    }
}

impl Rounds {
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether all come back over about the same distance, as they do in a round.
    pub(crate) fn is_even(&self) -> bool {
        self.agree >= BEGINS
    }

    /// A page came back that was wanted, after so many that left later than it and are still away, as `away` are in
    /// all. Answers whether it was away for so short a time that it should stay, though others only pass.
    pub(crate) fn returned(&mut self, newer_pages: u64, away_pages: u64) -> bool {
        let off = newer_pages.abs_diff(self.usual);
        self.agreed = off <= (self.usual / AGREE_PART).max(away_pages / AWAY_PART);
        self.usual = match (self.is_on, self.agreed) {
            (false, _) => newer_pages,
            (true, true) => (self.usual * (USUAL_WEIGHT - 1) + newer_pages).div_ceil(USUAL_WEIGHT),
            // Another distance is another round.
            (true, false) => self.usual,
        };
        self.followed();
        self.is_on && newer_pages < self.usual / SOON_PART
    }

    /// Another page came along with it.
    pub(crate) fn followed(&mut self) {
        let weight = match self.is_on {
            true => AGREE_WEIGHT.max(self.usual / ROUND_PART) as u32,
            false => AGREE_WEIGHT as u32,
        };
        match self.agreed {
            true => self.agree += (ONE - self.agree).div_ceil(weight),
            false => self.agree -= self.agree.div_ceil(weight),
        }
    }

    /// So many pages come.
    pub(crate) fn come(&mut self, pages: u64) {
        self.came += pages;
    }

    pub(crate) fn came(&self) -> u64 {
        self.came
    }

    /// What became of [`Visits::visit`].
    pub(crate) fn visited(&mut self, is_periodic: Option<bool>) {
        is_periodic
            .into_iter()
            .for_each(|is| self.periodic.learn(is));
    }

    /// A page goes, with so many in memory: does a round begin, or end?
    pub(crate) fn judge(&mut self, now: Time, resident_pages: u32) {
        let patience = self.usual * 2 + SCOUT_EVERY;
        while let Some(&(_, sent)) = self.scouts.front() {
            if u64::from(now.since(sent)) <= patience {
                break;
            }
            self.scouts.pop_front();
            self.useful.learn(false);
        }
        if self
            .barred
            .is_some_and(|(since, window)| now.since(since) > window)
        {
            self.barred = None;
        }
        if !self.is_on {
            let is_seen = self.is_even() && self.periodic.is_at_least(PERIODIC);
            self.is_on = self.agreed && is_seen && self.barred.is_none();
            return;
        }
        let is_useless = !self.useful.is_at_least(USEFUL);
        if is_useless {
            self.barred = Some((now, resident_pages));
        }
        if is_useless || self.agree < ENDS {
            self.is_on = false;
            self.scouts.clear();
            self.useful = Share::default();
        }
    }

    /// Whether a page of those that stay should go, to see whether it is wanted.
    pub(crate) fn wants_scout(&self, now: Time) -> bool {
        let pause = SCOUT_EVERY.max(self.usual / SCOUT_PART);
        u64::from(now.since(self.last_scout)) >= pause
    }

    /// It goes.
    pub(crate) fn send_scout(&mut self, page: PageNo, now: Time) {
        self.last_scout = now;
        self.scouts.push_back((page, now));
    }

    /// A page came; whether it was a scout.
    pub(crate) fn is_scout(&mut self, page: PageNo) -> bool {
        let place = self.scouts.iter().position(|&(scout, _)| scout == page);
        if let Some(place) = place {
            self.scouts.remove(place);
            self.useful.learn(true);
        }
        place.is_some()
    }
}

#[cfg(test)]
impl crate::Engine {
    /// The program goes round and round, or does not, whatever came back.
    pub(crate) fn set_round(&mut self, space: pleat_types::SpaceId, is_on: bool) {
        let Some(space) = self.spaces.get_mut(&space) else {
            return;
        };
        match is_on {
            true => space.residents.rounds.begin(),
            false => space.residents.rounds.end(),
        }
    }
}

#[cfg(test)]
impl Rounds {
    /// A round begins, whatever came back.
    pub(crate) fn begin(&mut self) {
        (self.is_on, self.agree, self.agreed) = (true, ONE, true);
    }

    pub(crate) fn end(&mut self) {
        (self.is_on, self.agree) = (false, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages come back over these distances, of 2000 that are away, and as many go.
    fn goes_on(rounds: &mut Rounds, distances: impl IntoIterator<Item = u64>) -> bool {
        goes_on_at(rounds, distances, &mut Time::default())
    }

    fn goes_on_at(
        rounds: &mut Rounds,
        distances: impl IntoIterator<Item = u64>,
        now: &mut Time,
    ) -> bool {
        for distance in distances {
            rounds.visited(Some(true));
            rounds.returned(distance, 2000);
            now.tick();
            rounds.judge(*now, 1000);
        }
        rounds.is_on()
    }

    /// Anything from 0 to 2000.
    fn scattered(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(|n| ((n * 2_654_435_761) >> 7) % 2000)
    }

    #[test]
    fn a_round_is_seen_where_all_distances_are_about_equal() {
        let mut rounds = Rounds::default();
        assert!(!goes_on(&mut rounds, scattered(4000)));
        assert!(goes_on(&mut rounds, (0..600).map(|n| 1000 + n % 50)));
        assert!(!goes_on(&mut rounds, scattered(600)));
    }

    #[test]
    fn a_few_that_come_back_otherwise_do_not_end_it_and_stay_if_it_was_soon() {
        let mut rounds = Rounds::default();
        let mostly = |n: u64| if n.is_multiple_of(8) { n % 100 } else { 1000 };
        assert!(goes_on(&mut rounds, (0..2000).map(mostly)));
        assert!(rounds.returned(100, 2000));
        assert!(!rounds.returned(1000, 2000));
    }

    #[test]
    fn equal_distances_are_no_round_where_regions_come_after_other_times_than_before() {
        let mut rounds = Rounds::default();
        let mut now = Time::default();
        for _ in 0..2000 {
            rounds.visited(Some(false));
            rounds.returned(1000, 2000);
            now.tick();
            rounds.judge(now, 1000);
        }
        assert!(!rounds.is_on());
    }

    #[test]
    fn a_region_is_periodic_from_the_third_time_on() {
        let visits = |times: &[u64]| {
            let mut region = Visits::NONE;
            let seen: Vec<_> = times.iter().map(|&came| region.visit(came, 1000)).collect();
            seen
        };
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(visits(&[0, 2000, 4100, 6100]), [no, no, yes, yes]);
        assert_eq!(visits(&[0, 2000, 6000, 14_000]), [no, no, no, no]);
        assert_eq!(
            visits(&[0, 2000, 2100, 2400, 4000]),
            [no, no, None, None, yes]
        );
    }

    #[test]
    fn another_distance_is_the_end_of_the_round() {
        let mut rounds = Rounds::default();
        assert!(goes_on(&mut rounds, std::iter::repeat_n(1000, 600)));
        assert!(!goes_on(&mut rounds, std::iter::repeat_n(500, 200)));
    }

    #[test]
    fn a_run_counts_with_all_its_pages() {
        let mut rounds = Rounds::default();
        for _ in 0..40 {
            rounds.visited(Some(true));
            rounds.returned(1000, 2000);
            (0..15).for_each(|_| rounds.followed());
        }
        rounds.judge(Time::after(1), 1000);
        assert!(rounds.is_on(), "600 pages by 40 faults");
    }

    #[test]
    fn scouts_that_nobody_wants_end_the_round_for_as_long_as_it_takes_all_to_go() {
        let mut rounds = Rounds::default();
        assert!(goes_on(&mut rounds, std::iter::repeat_n(1000, 600)));
        let mut now = Time::after(10_000);
        let mut sent = 0;
        while rounds.is_on() && sent < 100 {
            assert!(rounds.wants_scout(now));
            rounds.send_scout(PageNo(sent), now);
            sent += 1;
            (0..SCOUT_EVERY).for_each(|_| now.tick());
            rounds.judge(now, 1000);
        }
        assert!((8..30).contains(&sent), "{sent} scouts");
        let go_on = std::iter::repeat_n(1000, 990);
        assert!(!goes_on_at(&mut rounds, go_on, &mut now));
        let go_on = std::iter::repeat_n(1000, 20);
        assert!(goes_on_at(&mut rounds, go_on, &mut now));
    }

    #[test]
    fn scouts_that_come_back_keep_it_going() {
        let mut rounds = Rounds::default();
        assert!(goes_on(&mut rounds, std::iter::repeat_n(1000, 600)));
        let mut now = Time::after(10_000);
        for page in 0..100 {
            rounds.send_scout(PageNo(page), now);
            (0..SCOUT_EVERY).for_each(|_| now.tick());
            rounds.judge(now, 1000);
            assert!(rounds.is_scout(PageNo(page)) && !rounds.is_scout(PageNo(page)));
        }
        assert!(rounds.is_on());
    }
}
