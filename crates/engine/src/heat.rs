//! Which programs use all that they have, where uses are not seen: what is taken from them is wanted again at once.
//!
//! The pages to go are the oldest of all programs, and a page's age is the time since it came. So a small program that
//! uses its few pages all the time would lose each as often as a large one beside it that goes through more than memory
//! holds. But what becomes of the pages of each program is known: if three quarters of those that left are back before
//! a quarter of the time has passed for which the oldest page of the job is there, the program is *hot*, and its
//! pages count as no older than the last return. So it is left alone until that is as long ago as others' pages are old;
//! then it is tried again, and the few that go tell whether it still uses them.
//!
//! Times are stamps of the engine's clock, which ticks for each page that comes, leaves, or is passed over.

/// Soon is within this part of the age of the job's oldest page, 1/4.
const SOON_PART: u64 = 4;
/// Fewer prove nothing.
const LEAST: u32 = 16;

/// What became of pages.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    left: u32,
    /// Of these, so many were soon back.
    soon: u32,
}

/// What became of the pages of a space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heat {
    /// Pages of the time before, halved now and then.
    before: Fate,
    /// Those since then, which may come back yet.
    since: u64,
    lately: Fate,
    /// When the last came back soon.
    last_return: u64,
}

impl Heat {
    /// So many pages leave, now that the oldest page of the job is there for so long.
    pub(crate) fn left(&mut self, pages: u32, now: u64, oldest_age: u64) {
        if now.saturating_sub(self.since) > oldest_age / SOON_PART {
            let Fate { left, soon } = self.lately;
            self.before.left = (self.before.left + left) / 2;
            self.before.soon = (self.before.soon + soon) / 2;
            (self.since, self.lately) = (now, Fate::default());
        }
        self.lately.left += pages;
    }

    /// A page that left then is used again.
    pub(crate) fn returned(&mut self, left_at: u64, now: u64, oldest_age: u64) {
        if now.saturating_sub(left_at) <= oldest_age / SOON_PART {
            self.lately.soon += 1;
            self.last_return = now;
        }
    }

    /// Since when a page of this stamp counts as there.
    pub(crate) fn stamp(&self, stamp: u64) -> u64 {
        match self.is_hot() {
            true => stamp.max(self.last_return),
            false => stamp,
        }
    }

    /// Three quarters of those that could be back are; of the first, an eighth, for most of them may be yet.
    fn is_hot(&self) -> bool {
        let Fate { left, soon } = self.before;
        if left >= LEAST {
            return u64::from(soon) * 4 >= u64::from(left) * 3;
        }
        let Fate { left, soon } = self.lately;
        soon >= LEAST && u64::from(soon) * 8 >= u64::from(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLDEST_AGE: u64 = 4000;

    /// A page leaves at each of these times; `back` of every eight are back ten stamps later.
    fn after(heat: &mut Heat, times: std::ops::Range<u64>, back: u64) {
        for time in times {
            heat.left(1, time * 20, OLDEST_AGE);
            if time % 8 < back {
                heat.returned(time * 20, time * 20 + 10, OLDEST_AGE);
            }
        }
    }

    #[test]
    fn pages_of_a_program_that_wants_all_back_at_once_are_no_older_than_the_last_return() {
        let mut heat = Heat::default();
        assert_eq!(heat.stamp(7), 7);
        after(&mut heat, 0..200, 8);
        assert_eq!(heat.stamp(7), 199 * 20 + 10);
        assert_eq!(heat.stamp(9000), 9000);
    }

    #[test]
    fn one_that_wants_few_back_is_treated_by_age() {
        let mut heat = Heat::default();
        after(&mut heat, 0..400, 4);
        assert_eq!(heat.stamp(7), 7);
    }

    #[test]
    fn first_returns_of_many_that_left_prove_nothing() {
        let mut heat = Heat::default();
        heat.left(1000, 1, OLDEST_AGE);
        (0..20).for_each(|time| heat.returned(1, 2 + time, OLDEST_AGE));
        assert_eq!(heat.stamp(0), 0);
    }

    #[test]
    fn one_that_has_ceased_to_use_what_it_has_is_found_out_by_those_that_go() {
        let mut heat = Heat::default();
        after(&mut heat, 0..200, 8);
        heat.left(64, 10_000, OLDEST_AGE);
        assert_ne!(heat.stamp(7), 7, "they may come back yet");
        heat.left(1, 12_000, OLDEST_AGE);
        assert_eq!(heat.stamp(7), 7);
    }

    #[test]
    fn what_comes_back_late_is_not_soon() {
        let mut heat = Heat::default();
        for time in 0..100 {
            heat.left(1, time, OLDEST_AGE);
            heat.returned(time, time + OLDEST_AGE / SOON_PART + 1, OLDEST_AGE);
        }
        assert_eq!(heat.stamp(7), 7);
    }
}
