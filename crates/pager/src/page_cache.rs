//! The page cache's share of a group whose limit is close to the budget: room that is left to it, lent to the job
//! while it does not miss it, and more than that while it reads pages again.

use crate::cgroup::Files;
use pleat_sys::limits;
use std::time::{Duration, Instant};

/// Bytes of the budget to leave to the page cache: under a limit close to the budget, files that the
/// job reads, programs among them, have only what the job leaves. Without room they are read again
/// and again (sort of a 250 MB file in 340 MB with a hard limit of 347 MB took 15 times as long).
pub fn page_cache_room(budget_bytes: u64) -> u64 {
    let Some(limit) = limits::memory_cgroup_limit() else {
        return 0;
    };
    room_within(budget_bytes).saturating_sub(limit.bytes.saturating_sub(budget_bytes))
}

/// Room for the page cache, unless the budget is small.
const ROOM_MIN: u64 = 24 << 20;
/// With a small budget: less, and the kernel kills a program that writes a file and reads it again instead of
/// dropping what it holds of it (seen with 3 to 6 MiB, with pleat and without).
const ROOM_SMALL: u64 = 8 << 20;

/// Room for the page cache in a group whose limit is the budget.
fn room_within(budget_bytes: u64) -> u64 {
    let most = (budget_bytes / 10).max(ROOM_SMALL).min(budget_bytes / 5);
    (budget_bytes / 20).max(ROOM_MIN).min(most)
}

/// Between two looks at how the page cache does with its room: the kernel's figures are up to 2 s old.
const CACHE_LOOK_EVERY: Duration = Duration::from_millis(250);
/// So many file pages read again between two looks say that the page cache lacks room.
const REREAD_MAX: u64 = 32;
/// Between two looks at how much of it waits to be written: a program writes memory full in no time.
const UNWRITTEN_LOOK_EVERY: Duration = Duration::from_millis(10);
/// Pages that wait to be written fill so much of what the cache has, one part in so many: then it keeps as much as
/// a small room. When the kernel needs memory and all it could drop is being written, it kills (seen with 4 MiB
/// left to the cache in one of ten runs of a program that writes files with io_uring to a slow disk).
const UNWRITTEN_PART: u64 = 2;
/// The part of the room, one in so many, that changes hands at a look, and that is never given away.
const LEND_PART: u64 = 8;
const KEEP_PART: u64 = 4;

/// The cache has at most so many times its room more, and gives one part in so many back at a look.
const EXTRA_ROOMS: u64 = 3;
const EXTRA_PART: u64 = 32;
/// One part in so many of what was paid is forgotten at a look. What comes back comes in bursts.
const PAID_PART: u64 = 8;

/// What too little memory costs the job's own pages, beside what it costs the page cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prices {
    /// Microseconds for which threads have waited for pages, until now.
    pub stall_us: u64,
    /// Pages that they waited for.
    pub filled_pages: u64,
    /// Those of them that had been taken away.
    pub returned_pages: u64,
    /// Microseconds that a page of a file takes to be read again.
    pub reread_us: u64,
}

impl Prices {
    /// How long threads have waited since then for what had been taken away.
    fn returns_us_since(&self, before: &Prices) -> u64 {
        let since = |of: fn(&Prices) -> u64| of(self).saturating_sub(of(before));
        let filled = since(|prices| prices.filled_pages).max(1);
        since(|prices| prices.stall_us) * since(|prices| prices.returned_pages) / filled
    }
}

/// What the page cache lends the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lent {
    /// Of the room.
    pub room_bytes: u64,
    /// Of what mapped files have beyond it.
    pub beyond_bytes: u64,
}

/// The room left to the page cache, of which the job has what the cache does not miss. What mapped files have beyond it is
/// page cache like the rest, and lent with it: which of its pages are dropped then is the kernel's choice.
///
/// Pages of files that were dropped and are soon read again are counted by the kernel (workingset refaults).
/// While there are none, the room is lent to the job, a little at a time. When there are, who pays more for too little memory
/// is given some of the other's: half of what is lent goes back at once, and then the cache gets more; or the cache gives.
/// Linux weighs the two in the same way, by what each has cost (`lru_note_cost` in mm/swap.c).
#[derive(Debug)]
pub struct CacheRoom {
    room_bytes: u64,
    /// What mapped files have beyond it.
    beyond_bytes: u64,
    lent_bytes: u64,
    /// What the cache has beyond its room.
    extra_bytes: u64,
    /// When the kernel was asked, and when that last decided about the whole room.
    asked: Instant,
    looked: Instant,
    reread_pages: Option<u64>,
    prices: Prices,
    /// What either has paid lately, in microseconds.
    rereads_us: u64,
    returns_us: u64,
}

impl CacheRoom {
    /// The room, all of it still the page cache's.
    pub fn new(room_bytes: u64, now: Instant) -> CacheRoom {
        CacheRoom {
            room_bytes,
            beyond_bytes: 0,
            lent_bytes: 0,
            extra_bytes: 0,
            asked: now,
            looked: now,
            reread_pages: None,
            prices: Prices::default(),
            rereads_us: 0,
            returns_us: 0,
        }
    }

    /// The room is another from now on, as the budget is. What is lent or had beyond it stays, as far as it can.
    pub fn resize(&mut self, room_bytes: u64) {
        self.room_bytes = room_bytes;
        self.lent_bytes = self.lent_bytes.min(self.lent_max());
        self.extra_bytes = self.extra_bytes.min(room_bytes * EXTRA_ROOMS);
    }

    /// All of it: the room, and what mapped files have beyond it.
    fn all_bytes(&self) -> u64 {
        self.room_bytes + self.beyond_bytes
    }

    /// Of what is beyond the room only so much that a small room is left: with less the kernel kills rather than drop it.
    fn lent_max(&self) -> u64 {
        let (all, room) = (self.all_bytes(), self.room_bytes);
        let beyond_small = all.saturating_sub(ROOM_SMALL).max(room - room / KEEP_PART);
        (all - all / KEEP_PART).min(beyond_small)
    }

    /// Bytes that the job may use, of the room and of what mapped files have beyond it: so many. `files` is asked now and
    /// then; a group that cannot tell lends nothing.
    pub fn lend(
        &mut self,
        now: Instant,
        beyond_bytes: u64,
        prices: impl FnOnce() -> Prices,
        files: impl FnOnce() -> Option<Files>,
    ) -> Lent {
        if self.room_bytes > 0 {
            self.beyond_bytes = beyond_bytes;
            self.lent_bytes = self.lent_bytes.min(self.lent_max());
            self.look(now, prices, files);
        }
        // Each gives its part.
        let of_beyond = self.lent_bytes * self.beyond_bytes / self.all_bytes().max(1);
        Lent {
            room_bytes: self.lent_bytes - of_beyond,
            beyond_bytes: of_beyond,
        }
    }

    fn look(
        &mut self,
        now: Instant,
        prices: impl FnOnce() -> Prices,
        files: impl FnOnce() -> Option<Files>,
    ) {
        if now - self.asked < UNWRITTEN_LOOK_EVERY {
            return;
        }
        self.asked = now;
        let files = files();
        if now - self.looked >= CACHE_LOOK_EVERY {
            self.looked = now;
            self.balance(files.map(|files| files.reread_pages), prices());
        }
        let unwritten = files.map_or(0, |files| files.unwritten_bytes);
        if unwritten > (self.all_bytes() - self.lent_bytes) / UNWRITTEN_PART {
            let most = self.all_bytes().saturating_sub(ROOM_SMALL);
            self.lent_bytes = self.lent_bytes.min(most);
        }
    }

    /// Gives to who misses memory more.
    fn balance(&mut self, pages: Option<u64>, prices: Prices) {
        let rereads = self.reread_pages.zip(pages);
        let rereads = rereads.map(|(before, pages)| pages.saturating_sub(before));
        let lately = |paid: u64, now: u64| paid - paid.div_ceil(PAID_PART) + now;
        let now_us = rereads.unwrap_or(0) * prices.reread_us;
        self.rereads_us = lately(self.rereads_us, now_us);
        self.returns_us = lately(self.returns_us, prices.returns_us_since(&self.prices));
        self.reread_pages = pages;
        self.prices = prices;
        let (step, extra_step) = (self.all_bytes() / LEND_PART, self.room_bytes / LEND_PART);
        match rereads {
            None if pages.is_none() => self.lent_bytes = 0,
            None => self.lent_bytes /= 2,
            Some(pages) if pages <= REREAD_MAX => {
                let back = (self.extra_bytes / EXTRA_PART).max(1);
                self.extra_bytes = self.extra_bytes.saturating_sub(back);
                self.lend_more(step);
            }
            Some(_) if self.rereads_us >= self.returns_us => {
                if self.lent_bytes < step {
                    self.extra_bytes =
                        (self.extra_bytes + extra_step).min(self.room_bytes * EXTRA_ROOMS);
                }
                self.lent_bytes /= 2;
            }
            Some(_) if self.extra_bytes > 0 => {
                self.extra_bytes = self.extra_bytes.saturating_sub(extra_step)
            }
            Some(_) => self.lend_more(step),
        }
    }

    fn lend_more(&mut self, step: u64) {
        self.lent_bytes = (self.lent_bytes + step).min(self.lent_max());
    }

    /// What the cache has beyond its room, because it reads pages again though nothing of the room is lent.
    pub fn extra_bytes(&self) -> u64 {
        self.extra_bytes
    }
}

/// How much of the files that a job has mapped its group may be charged for.
///
/// The most that it ever was, and all of them once it has read pages again: what it is charged for at the moment
/// becomes less when the kernel drops some for want of room, and to give them less room for that would have it
/// drop more (a compiler took more than twice as long).
#[derive(Debug, Default)]
pub struct GroupFiles {
    most_bytes: Option<u64>,
    reread_pages: Option<u64>,
    has_reread: bool,
}

impl GroupFiles {
    /// The kernel was asked.
    pub fn note(&mut self, files: Files) {
        let first = *self.reread_pages.get_or_insert(files.reread_pages);
        self.has_reread |= files.reread_pages.saturating_sub(first) > REREAD_MAX;
        self.most_bytes = self.most_bytes.max(Some(files.bytes));
    }

    /// What it may be charged for; without an answer of the kernel's, anything.
    pub fn most_bytes(&self) -> u64 {
        match self.has_reread {
            true => u64::MAX,
            false => self.most_bytes.unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 16 << 20;

    fn files(reread_pages: u64, unwritten_mib: u64) -> Files {
        Files {
            bytes: 0,
            reread_pages,
            unwritten_bytes: unwritten_mib << 20,
        }
    }

    /// What is lent after each look, when so many pages were read again before it.
    fn lent(rereads: &[u64]) -> Vec<u64> {
        let mut now = Instant::now();
        let (mut room, mut total) = (CacheRoom::new(ROOM, now), 1000);
        let looks = rereads.iter().map(|pages| {
            now += CACHE_LOOK_EVERY;
            total += pages;
            room.lend(now, 0, Prices::default, || Some(files(total, 0)))
                .room_bytes
                >> 20
        });
        looks.collect()
    }

    #[test]
    fn pages_that_wait_to_be_written_keep_a_small_room_for_the_cache() {
        let mut now = Instant::now();
        let mut room = CacheRoom::new(ROOM, now);
        for _ in 0..10 {
            now += CACHE_LOOK_EVERY;
            room.lend(now, 0, Prices::default, || Some(files(0, 1)));
        }
        assert_eq!(room.lent_bytes >> 20, 12, "little is not written");
        now += UNWRITTEN_LOOK_EVERY;
        assert_eq!(
            room.lend(now, 0, Prices::default, || Some(files(0, 3)))
                .room_bytes
                >> 20,
            8,
            "at once"
        );
        now += CACHE_LOOK_EVERY;
        assert_eq!(
            room.lend(now, 0, Prices::default, || Some(files(0, 8)))
                .room_bytes
                >> 20,
            8,
            "as long as"
        );
        now += CACHE_LOOK_EVERY;
        assert_eq!(
            room.lend(now, 0, Prices::default, || Some(files(0, 0)))
                .room_bytes
                >> 20,
            10
        );
    }

    #[test]
    fn room_is_a_part_of_the_budget_and_enough_where_that_is_small() {
        let rooms = [20, 44, 100, 300, 1000].map(|mib| room_within(mib << 20) >> 20);
        assert_eq!(rooms, [4, 8, 10, 24, 50]);
    }

    #[test]
    fn room_is_lent_little_by_little_while_no_file_is_read_again() {
        assert_eq!(lent(&[0, 0, 0, REREAD_MAX, 0]), [0, 2, 4, 6, 8]);
        assert_eq!(lent(&[0; 40]).last(), Some(&12), "a quarter stays");
    }

    #[test]
    fn what_mapped_files_have_beyond_the_room_is_lent_with_it() {
        let mut now = Instant::now();
        let (mut room, mut rereads) = (CacheRoom::new(ROOM, now), 0);
        let mut look = |beyond_mib: u64, reread: u64| {
            now += CACHE_LOOK_EVERY;
            rereads += reread;
            let files = || Some(files(rereads, 0));
            let lent = room.lend(now, beyond_mib << 20, Prices::default, files);
            (lent.room_bytes >> 20, lent.beyond_bytes >> 20)
        };
        for _ in 0..10 {
            look(32, 0);
        }
        assert_eq!(look(32, 0), (12, 24), "three quarters of each");
        assert_eq!(look(32, 500), (6, 12), "half of it goes back at once");
        for _ in 0..10 {
            look(32, 0);
        }
        assert_eq!(look(0, 0), (12, 0), "files that are gone lend nothing");
        let mut small = CacheRoom::new(8 << 20, now);
        let mut left = 0;
        for _ in 0..20 {
            now += CACHE_LOOK_EVERY;
            let lent = small.lend(now, 4 << 20, Prices::default, || Some(files(0, 0)));
            left = 12 - ((lent.room_bytes + lent.beyond_bytes) >> 20);
        }
        assert_eq!(left, 6, "what the room alone lends, and no more");
    }

    #[test]
    fn room_goes_back_at_once_when_files_are_read_again() {
        let rereads = [0, 0, 0, 0, 0, REREAD_MAX + 1, 500, 500, 0];
        assert_eq!(lent(&rereads), [0, 2, 4, 6, 8, 4, 2, 1, 3]);
    }

    /// What the cache has beyond its room, less what is lent, after each look: 100 pages of files were read again before it, at
    /// 10 us, and threads waited so long for what was taken away.
    fn balance(waits_us: &[u64]) -> Vec<i64> {
        let mut now = Instant::now();
        let mut room = CacheRoom::new(ROOM, now);
        let mut prices = Prices {
            reread_us: 10,
            ..Prices::default()
        };
        let mut rereads = 1000;
        let mut look = |waited_us: &u64| {
            now += CACHE_LOOK_EVERY;
            rereads += 100;
            // As long again for what had never been there.
            prices.stall_us += 2 * waited_us;
            prices.filled_pages += 20;
            prices.returned_pages += 10;
            let lent = room
                .lend(now, 0, || prices, || Some(files(rereads, 0)))
                .room_bytes;
            (room.extra_bytes() >> 20) as i64 - (lent >> 20) as i64
        };
        waits_us.iter().map(&mut look).collect()
    }

    #[test]
    fn memory_goes_to_who_pays_more_for_too_little_of_it() {
        assert_eq!(balance(&[0, 0, 1000, 900, 0]), [0, 2, 4, 6, 8], "the cache");
        let burst = balance(&[0, 0, 0, 0, 6000, 0, 0, 0, 0]);
        assert_eq!(
            burst,
            [0, 2, 4, 6, 4, 2, 0, 2, 4],
            "the job, as long as it counts"
        );
        let all = balance(&[2000; 40]);
        assert_eq!(all.last(), Some(&-12), "a quarter stays");
        assert_eq!(balance(&[0; 60]).last(), Some(&48), "so much at most");
    }

    #[test]
    fn files_count_as_much_as_they_ever_did_and_all_once_they_are_read_again() {
        let mut group = GroupFiles::default();
        assert_eq!(group.most_bytes(), u64::MAX);
        let looks = [
            (5, 100),
            (9, 110),
            (3, 100 + REREAD_MAX),
            (3, 101 + REREAD_MAX),
        ];
        let most = looks.map(|(bytes, reread_pages)| {
            group.note(Files {
                bytes,
                ..files(reread_pages, 0)
            });
            group.most_bytes()
        });
        assert_eq!(most, [5, 9, 9, u64::MAX]);
    }

    #[test]
    fn nothing_is_lent_between_looks_or_where_the_group_cannot_tell() {
        let start = Instant::now();
        let mut room = CacheRoom::new(ROOM, start);
        let asked = |_: ()| -> Option<Files> { panic!("too early") };
        assert_eq!(
            room.lend(start, 0, Prices::default, || asked(())),
            Lent::default()
        );
        let mut now = start;
        for _ in 0..5 {
            now += CACHE_LOOK_EVERY;
            assert_eq!(room.lend(now, 0, Prices::default, || None), Lent::default());
        }
        let mut none = CacheRoom::new(0, start);
        assert_eq!(
            none.lend(now, 0, Prices::default, || asked(())),
            Lent::default()
        );
    }
}
