//! How often something turned out well lately.

/// The share of good ends among all, in 256ths: a running mean over about `WEIGHT` of them. Believed to be all at first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share<const WEIGHT: u32>(u32);

impl<const WEIGHT: u32> Default for Share<WEIGHT> {
    fn default() -> Share<WEIGHT> {
        Share(256)
    }
}

impl<const WEIGHT: u32> Share<WEIGHT> {
    /// Believed to be none at first.
    pub(crate) fn none() -> Share<WEIGHT> {
        Share(0)
    }

    pub(crate) fn learn(&mut self, is_good: bool) {
        let now = if is_good { 256 * WEIGHT } else { 0 };
        // Rounded towards the new: the mean reaches both ends.
        let sum = self.0 * WEIGHT * (WEIGHT - 1) + now;
        self.0 = match is_good {
            true => sum.div_ceil(WEIGHT * WEIGHT),
            false => sum / (WEIGHT * WEIGHT),
        };
    }

    pub(crate) fn is_at_least(self, share_256ths: u32) -> bool {
        self.0 >= share_256ths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_reaches_both_ends() {
        let mut share = Share::<32>::default();
        (0..300).for_each(|_| share.learn(false));
        assert!(!share.is_at_least(1));
        (0..300).for_each(|_| share.learn(true));
        assert!(share.is_at_least(256));
    }
}
