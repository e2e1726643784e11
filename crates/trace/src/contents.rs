//! How well the pages of a generated trace compress: a function of seed, region and page, so that it
//! needs no memory and a page keeps its size.

use crate::random::mix;
use crate::{RegionNo, SpecError};
use pleat_types::{PageNo, PAGE_SIZE};

/// The distribution of compressed sizes. Some pages are one repeated word and take no room, some do
/// not compress; the others lie around a mean, near values more often than far ones (a triangle).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Contents {
    seed: u64,
    /// Draws of 32 bits below this are pages of one repeated word.
    same_below: u64,
    /// Draws from there to below this are pages that do not compress.
    raw_below: u64,
    /// Mean of the other pages, as a share of a page.
    mean: f64,
    /// Half the base of the triangle.
    reach: f64,
}

impl Contents {
    /// `ratio` is the mean over all pages; `raw` and `same` are shares of pages.
    pub(crate) fn new(
        seed: u64,
        ratio: f64,
        spread: f64,
        raw: f64,
        same: f64,
    ) -> Result<Self, SpecError> {
        let others = 1.0 - raw - same;
        let left = ratio - raw;
        // Rounding of sums such as 0.3 + 0.7 must not refuse what is meant.
        const SLACK: f64 = 1e-9;
        if others < -SLACK || left < -SLACK || left > others + SLACK {
            return Err(SpecError::Ratio { ratio, raw, same });
        }
        let mean = match others > SLACK {
            true => (left / others).clamp(0.0, 1.0),
            false => 0.0,
        };
        let draws = (1u64 << 32) as f64;
        Ok(Contents {
            seed,
            same_below: (same * draws) as u64,
            raw_below: ((same + raw) * draws) as u64,
            mean,
            // As wide as leaves the mean where it is.
            reach: spread.min(mean).min(1.0 - mean),
        })
    }

    /// Bytes that `page` compresses to.
    pub(crate) fn bytes(&self, region: RegionNo, page: PageNo) -> u16 {
        let draw = mix(self.seed ^ mix((u64::from(region.0) << 44) ^ page.0));
        let kind = draw >> 32;
        if kind < self.same_below {
            return 0;
        }
        if kind < self.raw_below {
            return PAGE_SIZE as u16;
        }
        // The sum of two even draws, each of 16 bits, is a triangle from 0 to 2.
        let triangle = ((draw & 0xFFFF) + (draw >> 16 & 0xFFFF)) as f64 / 65_535.0;
        let share = self.mean + self.reach * (triangle - 1.0);
        // Not 0, which would mean one repeated word.
        ((share * PAGE_SIZE as f64).round() as u16).clamp(1, PAGE_SIZE as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(contents: &Contents) -> Vec<f64> {
        let bytes = |n: u64| contents.bytes(RegionNo((n % 3) as u32), PageNo(n));
        (0..50_000).map(|n| f64::from(bytes(n)) / 4096.0).collect()
    }

    #[test]
    fn the_mean_is_the_ratio_whatever_the_shape() {
        for (ratio, spread, raw, same) in [
            (0.35, 0.15, 0.0, 0.0),
            (0.65, 0.5, 0.0, 0.0),
            (0.5, 0.1, 0.2, 0.1),
            (0.05, 0.3, 0.0, 0.5),
            (1.0, 0.2, 0.3, 0.0),
            (0.3, 0.2, 0.3, 0.7),
        ] {
            let contents = Contents::new(1, ratio, spread, raw, same).unwrap();
            let sizes = sizes(&contents);
            let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
            assert!((mean - ratio).abs() < 0.01, "{ratio} {raw} {same}: {mean}");
            let share = |wanted: f64| {
                let count = sizes.iter().filter(|size| **size == wanted).count();
                count as f64 / sizes.len() as f64
            };
            assert!((share(0.0) - same).abs() < 0.01, "{ratio}: {}", share(0.0));
            assert!(share(1.0) >= raw - 0.01, "{ratio}: {}", share(1.0));
        }
    }

    #[test]
    fn spread_bounds_how_far_sizes_lie_from_the_mean() {
        let contents = Contents::new(1, 0.4, 0.1, 0.0, 0.0).unwrap();
        let sizes = sizes(&contents);
        assert!(sizes.iter().all(|size| (0.299..0.501).contains(size)));
        let near = sizes.iter().filter(|size| (**size - 0.4).abs() < 0.05);
        let share = near.count() as f64 / sizes.len() as f64;
        assert!((0.7..0.8).contains(&share), "three quarters: {share}");
    }

    #[test]
    fn a_ratio_that_raw_and_same_pages_exclude_is_an_error() {
        for (ratio, raw, same) in [(0.1, 0.2, 0.0), (0.9, 0.0, 0.2), (0.5, 0.6, 0.6)] {
            assert!(Contents::new(1, ratio, 0.1, raw, same).is_err(), "{ratio}");
        }
    }
}
