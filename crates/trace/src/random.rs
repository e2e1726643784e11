//! Numbers that look random and repeat with their seed, for the generators and for page contents.
//!
//! The codecs' samples have a twin of this; the layers below the simulator share only basic types,
//! and randomness is none of them.

/// Spreads every bit of `x` over all 64: the output function of SplitMix64 (Steele, Lea and Flood
/// 2014).
#[inline]
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// SplitMix64: short, and good from any seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Stream number `stream` of a seed: each process has its own, so that one's references do not
    /// depend on how often another was asked.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Random(mix(seed ^ mix(stream.wrapping_add(1))))
    }

    /// The next 64 bits.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `end`, which is above 0. The bias is `end` / 2^64.
    #[inline]
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number in 0..1.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Something that is so in a given share of all cases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance {
    /// Draws below this say yes; no draw is needed at either end.
    below: u64,
}

impl Chance {
    /// True in `share` of all cases, 0 to 1.
    pub(crate) fn new(share: f64) -> Self {
        // The conversion saturates: 1.0 becomes the largest number, which means always.
        Chance {
            below: (share * u64::MAX as f64) as u64,
        }
    }

    #[inline]
    pub(crate) fn draw(self, random: &mut Random) -> bool {
        match self.below {
            0 => false,
            u64::MAX => true,
            below => random.next() < below,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_streams_differ() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            (0..100).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, 0), draw(7, 0));
        assert_ne!(draw(7, 0), draw(8, 0));
        assert_ne!(draw(7, 0), draw(7, 1));
    }

    #[test]
    fn a_chance_comes_up_in_its_share() {
        let mut random = Random::new(1, 0);
        for (share, least, most) in [(0.0, 0, 0), (0.25, 2300, 2700), (1.0, 10_000, 10_000)] {
            let chance = Chance::new(share);
            let times = (0..10_000).filter(|_| chance.draw(&mut random)).count();
            assert!((least..=most).contains(&times), "{share}: {times}");
        }
    }
}
