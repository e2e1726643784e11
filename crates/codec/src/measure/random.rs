//! Numbers that look random and repeat with their seed, for samples and generated pages.

/// SplitMix64 (Steele, Lea and Flood 2014): short, and good from any seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)] // Endless: an Option around each number helps nobody.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number below `end`, which is above 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The multiplication spreads the 64 bits over the range; its bias is end / 2^64.
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_numbers_stay_below_their_bound() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..1000).map(|_| random.below(10)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        for wanted in 0..10 {
            let times = draw(7).iter().filter(|&&number| number == wanted).count();
            assert!((50..150).contains(&times), "{wanted}: {times} of 1000");
        }
    }
}
