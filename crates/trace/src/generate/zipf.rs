//! Touches at random with a popularity that falls with the rank: page of rank k is touched in
//! proportion to k^-alpha. The sampler serves other generators too.

use super::parameters::{parameters, COUNT_MAX, PAGES_MAX};
use super::walk::{Generated, Step, Walk};
use super::Generator;
use crate::random::{Chance, Random};
use crate::{Common, RegionKind, RegionNo, Source, SpecError};

parameters! {
    /// Touches pages at random, few of them often. Anonymous memory is first written from end to
    /// end, which comes on top of `refs`.
    pub struct Zipf {
        /// Pages of the region.
        pages: u64 = 65536 in 1..=PAGES_MAX,
        /// How steeply popularity falls; 0 touches all pages alike.
        alpha: f64 = 0.8 in 0.0..=8.0,
        /// How many touches.
        refs: u64 = 1048576 in 1..=COUNT_MAX,
        /// Share of them that write.
        write: f64 = 0.3 in 0.0..=1.0,
        /// 1 for pages of a file, 0 for anonymous memory.
        file: u64 = 0 in 0..=1,
    }
}

impl Generator for Zipf {
    fn source(&self, common: &Common) -> Result<Box<dyn Source + Send>, SpecError> {
        let kind = match self.file {
            0 => RegionKind::Anonymous,
            _ => RegionKind::File,
        };
        let walk = Popular {
            filled: match kind {
                RegionKind::Anonymous => 0,
                RegionKind::File => self.pages,
            },
            pages: self.pages,
            left: self.refs,
            ranks: Ranks::new(self.pages, self.alpha),
            scatter: Scatter::new(self.pages),
            writes: Chance::new(self.write),
            random: Random::new(common.seed, 0),
        };
        Generated::source(vec![walk], &[kind], common)
    }
}

struct Popular {
    /// Pages written so far; all of them before the first touch at random.
    filled: u64,
    pages: u64,
    left: u64,
    ranks: Ranks,
    scatter: Scatter,
    writes: Chance,
    random: Random,
}

impl Walk for Popular {
    fn step(&mut self) -> Option<Step> {
        if self.filled < self.pages {
            self.filled += 1;
            return Some(Step::write(RegionNo(0), self.filled - 1));
        }
        self.left = self.left.checked_sub(1)?;
        let page = self.scatter.place(self.ranks.draw(&mut self.random));
        Some(match self.writes.draw(&mut self.random) {
            true => Step::write(RegionNo(0), page),
            false => Step::read(RegionNo(0), page),
        })
    }
}

/// Ranks 0..count, rank k in proportion to (k + 1)^-alpha, by rejection-inversion (Hormann and
/// Derflinger 1996): constant time and no tables, however many ranks there are.
#[derive(Clone, Debug)]
pub(crate) struct Ranks {
    count: f64,
    alpha: f64,
    /// The integral of x^-alpha up to 1.5, less the weight of rank 0; and up to count + 0.5.
    integral: [f64; 2],
    /// How far below the rounded value a draw is accepted without a closer look.
    sure: f64,
}

impl Ranks {
    pub(crate) fn new(count: u64, alpha: f64) -> Ranks {
        let mut ranks = Ranks {
            count: count as f64,
            alpha,
            integral: [0.0; 2],
            sure: 0.0,
        };
        ranks.integral = [
            ranks.integral_to(1.5) - 1.0,
            ranks.integral_to(count as f64 + 0.5),
        ];
        ranks.sure = 2.0 - ranks.inverse(ranks.integral_to(2.5) - ranks.weight(2.0));
        ranks
    }

    /// Budget: 60 ns, two logarithms or exponentials in the usual case.
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        let [from, to] = self.integral;
        // Accepted with a chance of more than 2/3 for every alpha, so this ends.
        loop {
            let area = to + random.unit() * (from - to);
            let x = self.inverse(area);
            let rank = (x + 0.5).floor().clamp(1.0, self.count);
            if rank - x <= self.sure || area >= self.integral_to(rank + 0.5) - self.weight(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.alpha * x.ln()).exp()
    }

    /// (x^(1 - alpha) - 1) / (1 - alpha), and ln x where alpha is 1.
    fn integral_to(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.alpha) * log;
        // Near alpha = 1 the quotient would lose its digits.
        match power.abs() > 1e-8 {
            true => power.exp_m1() / power * log,
            false => log * (1.0 + power / 2.0),
        }
    }

    /// The x whose integral is `area`.
    fn inverse(&self, area: f64) -> f64 {
        let power = (area * (1.0 - self.alpha)).max(-1.0);
        match power.abs() > 1e-8 {
            true => (power.ln_1p() / power * area).exp(),
            false => (area * (1.0 - power / 2.0)).exp(),
        }
    }
}

/// Puts ranks on pages so that popular pages are not neighbours: rank times a step without common
/// divisor, which visits each page once.
#[derive(Clone, Debug)]
pub(crate) struct Scatter {
    pages: u64,
    step: u64,
}

impl Scatter {
    pub(crate) fn new(pages: u64) -> Scatter {
        const GOLDEN: f64 = 0.618_033_988_749_895;
        let mut step = ((pages as f64 * GOLDEN) as u64).max(1);
        // Ends at the latest at a multiple of `pages` plus 1.
        while common_divisor(step, pages) != 1 {
            step += 1;
        }
        Scatter { pages, step }
    }

    #[inline]
    pub(crate) fn place(&self, rank: u64) -> u64 {
        match rank.checked_mul(self.step) {
            Some(product) => product % self.pages,
            None => (u128::from(rank) * u128::from(self.step) % u128::from(self.pages)) as u64,
        }
    }
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::testing::{pages, writes};

    #[test]
    fn frequencies_follow_alpha() {
        for alpha in [0.0, 0.5, 0.99, 1.0, 1.01, 1.5, 3.0] {
            let (count, draws) = (50, 200_000);
            let ranks = Ranks::new(count, alpha);
            let mut random = Random::new(3, 0);
            let mut times = vec![0.0; count as usize];
            for _ in 0..draws {
                times[ranks.draw(&mut random) as usize] += 1.0;
            }
            let weights: Vec<f64> = (1..=count).map(|k| (k as f64).powf(-alpha)).collect();
            let total: f64 = weights.iter().sum();
            // Pearson's chi squared; with 49 degrees of freedom above 85 in one case of a thousand.
            let surprise = times.iter().zip(&weights).map(|(times, weight)| {
                let expected = f64::from(draws) * weight / total;
                (times - expected).powi(2) / expected
            });
            let surprise: f64 = surprise.sum();
            assert!(surprise < 90.0, "alpha {alpha}: {surprise}");
        }
    }

    #[test]
    fn one_page_and_very_many_are_ranks_too() {
        let mut random = Random::new(1, 0);
        assert_eq!(Ranks::new(1, 0.8).draw(&mut random), 0);
        for alpha in [0.0, 0.9, 1.0, 8.0] {
            let ranks = Ranks::new(PAGES_MAX, alpha);
            for _ in 0..1000 {
                assert!(ranks.draw(&mut random) < PAGES_MAX, "{alpha}");
            }
        }
    }

    #[test]
    fn scattering_visits_each_page_once() {
        for pages in [1, 2, 3, 10, 64, 997, 1000] {
            let scatter = Scatter::new(pages);
            let mut seen: Vec<u64> = (0..pages).map(|rank| scatter.place(rank)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..pages).collect::<Vec<_>>());
        }
        assert!(Scatter::new(PAGES_MAX).place(PAGES_MAX - 1) < PAGES_MAX);
    }

    #[test]
    fn anonymous_memory_is_written_before_it_is_read() {
        let order = pages("zipf:pages=10,refs=5");
        assert_eq!(order[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(order.len(), 15);
        assert_eq!(writes("zipf:pages=10,refs=500,write=0,file=1"), 0);
    }
}
