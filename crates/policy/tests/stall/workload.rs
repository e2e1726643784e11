//! Sequences of touches, by formula and seed.

/// What a program touches; numbers are pages, or per cent of memory where named so.
#[derive(Clone, Copy, Debug)]
pub enum Pattern {
    /// One page after the other, around and around (douglis93's thrasher).
    Cycle { percent: u64 },
    /// Any page as likely as any other.
    Random { percent: u64 },
    /// Page of rank i with probability proportional to i^-0.8.
    Zipf { percent: u64 },
    /// Four of five touches in a hot set, the fifth in a cycle over the rest.
    HotAndCycle { hot_percent: u64, percent: u64 },
}

pub struct Workload {
    state: u64,
    at: u64,
}

impl Workload {
    pub fn new(seed: u64) -> Workload {
        Workload { state: seed, at: 0 }
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, pages: u64) -> u64 {
        ((u128::from(self.random()) * u128::from(pages)) >> 64) as u64
    }

    pub fn next(&mut self, pattern: Pattern, frames: u64) -> u64 {
        let pages = |percent: u64| frames * percent / 100;
        match pattern {
            Pattern::Cycle { percent } => self.cycle(pages(percent)),
            Pattern::Random { percent } => self.below(pages(percent)),
            Pattern::Zipf { percent } => self.zipf(pages(percent)),
            Pattern::HotAndCycle {
                hot_percent,
                percent,
            } => match self.below(5) {
                0 => pages(hot_percent) + self.cycle(pages(percent)),
                _ => self.below(pages(hot_percent)),
            },
        }
    }

    fn cycle(&mut self, pages: u64) -> u64 {
        self.at = (self.at + 1) % pages;
        self.at
    }

    fn zipf(&mut self, pages: u64) -> u64 {
        let u = self.random() as f64 / u64::MAX as f64;
        // The inverse of the distribution of a density x^-0.8 on 0 to 1.
        let rank = (u.powi(5) * pages as f64) as u64;
        // Ranks lie scattered over memory.
        rank.min(pages - 1).wrapping_mul(2_654_435_761) % (1 << 40)
    }
}
