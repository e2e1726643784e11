//! Regions of neighbouring pages, and what became of the page of each that left last, before the others.
//!
//! Programs use what lies together at about the same time. So when the pages of a region have become the oldest,
//! one of them leaves, as a scout, and the others wait. If the program wants the scout back, or any other page
//! of the region that is not in memory, then it probably uses those that wait as well: that is as much as
//! can be known of them where uses are not seen, and it costs one fault for a region instead of one for each page.

use std::num::NonZeroU32;

use crate::rounds::Visits;

/// Pages of a region.
pub(crate) const REGION_PAGES: u64 = 16;

/// A page of the region was wanted since its scout left.
const WANTED: u32 = 1;
/// Its pages came in a run last.
const IN_ORDER: u32 = 2;
/// Time is counted in pages that left; so many bits of it are kept, above the others.
const TIME_SHIFT: u32 = 2;
const TIME: u32 = !0 >> TIME_SHIFT;

/// What is known of some neighbouring regions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Regions<const COUNT: usize> {
    /// When the last scout left, and the two bits. 0: none ever did.
    regions: [u32; COUNT],
    visits: [Visits; COUNT],
}

impl<const COUNT: usize> Regions<COUNT> {
    /// Without a scout.
    pub(crate) const NEW: Regions<COUNT> = Regions {
        regions: [0; COUNT],
        visits: [Visits::NONE; COUNT],
    };

    /// Whether a scout should leave now: the last did more than `window` ago.
    pub(crate) fn wants_scout(&self, region: usize, now: Time, window: u32) -> bool {
        let left = self.regions[region] >> TIME_SHIFT;
        left == 0 || now.0.get().wrapping_sub(left) & TIME > window
    }

    /// A scout leaves.
    pub(crate) fn send_scout(&mut self, region: usize, now: Time) {
        self.regions[region] = now.0.get() << TIME_SHIFT;
    }

    /// A page that was not in memory is wanted, and comes alone or in a run.
    pub(crate) fn wanted(&mut self, region: usize, in_order: bool) {
        let region = &mut self.regions[region];
        *region = *region & !IN_ORDER | WANTED | if in_order { IN_ORDER } else { 0 };
    }

    /// A page of the region comes as so many did before, in a space with so many in memory: does it so after about the
    /// same time as before? `None`: it goes on coming.
    pub(crate) fn visit(&mut self, region: usize, came: u64, resident: usize) -> Option<bool> {
        self.visits[region].visit(came, resident)
    }

    /// Whether one was since the scout left.
    pub(crate) fn is_wanted(&self, region: usize) -> bool {
        self.regions[region] & WANTED != 0
    }

    /// Whether pages of the region came in a run last.
    pub(crate) fn is_in_order(&self, region: usize) -> bool {
        self.regions[region] & IN_ORDER != 0
    }
}

/// How many pages have left, modulo 2^30, and never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time(NonZeroU32);

impl Default for Time {
    fn default() -> Time {
        Time(NonZeroU32::MIN)
    }
}

impl Time {
    /// Pages that have left since then.
    pub(crate) fn since(self, then: Time) -> u32 {
        self.0.get().wrapping_sub(then.0.get()) & TIME
    }

    /// One page more.
    pub(crate) fn tick(&mut self) {
        let next = (self.0.get() + 1) & TIME;
        self.0 = NonZeroU32::new(next).unwrap_or(NonZeroU32::MIN);
    }
}

#[cfg(test)]
impl Time {
    /// So many pages have left.
    pub(crate) fn after(pages: u32) -> Time {
        let mut time = Time::default();
        (0..pages).for_each(|_| time.tick());
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_sends_one_scout_in_each_window() {
        let mut regions = Regions::<2>::NEW;
        assert!(regions.wants_scout(1, Time::after(0), 10));
        regions.send_scout(1, Time::after(5));
        assert!(!regions.wants_scout(1, Time::after(15), 10));
        assert!(regions.wants_scout(1, Time::after(16), 10));
        assert!(
            regions.wants_scout(0, Time::after(5), 10),
            "the other has sent none"
        );
    }

    #[test]
    fn what_was_wanted_before_the_scout_left_counts_no_longer() {
        let mut regions = Regions::<1>::NEW;
        regions.wanted(0, false);
        assert!(regions.is_wanted(0));
        regions.send_scout(0, Time::after(3));
        assert!(!regions.is_wanted(0));
        regions.wanted(0, false);
        assert!(regions.is_wanted(0) && !regions.wants_scout(0, Time::after(4), 10));
    }

    #[test]
    fn a_region_is_in_order_until_a_page_comes_alone_or_its_scout_leaves() {
        let mut regions = Regions::<1>::NEW;
        regions.wanted(0, true);
        assert!(regions.is_in_order(0) && regions.is_wanted(0));
        regions.wanted(0, false);
        assert!(!regions.is_in_order(0));
        regions.wanted(0, true);
        regions.send_scout(0, Time::after(1));
        assert!(!regions.is_in_order(0));
    }

    #[test]
    fn time_goes_round_and_passes_by_never() {
        let mut regions = Regions::<1>::NEW;
        let mut time = Time(NonZeroU32::new(TIME).unwrap());
        regions.send_scout(0, time);
        time.tick();
        assert_eq!(time.0.get(), 1);
        assert!(!regions.wants_scout(0, time, 10));
        (0..20).for_each(|_| time.tick());
        assert!(regions.wants_scout(0, time, 10));
    }
}
