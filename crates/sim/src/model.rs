//! The analytic model of `douglis93` (section 3, figure 1): by how much compression speeds up paging,
//! from two numbers, how far pages compress and how fast. No simulation: it bounds what a simulation
//! may show, and tells in a second whether compressing can pay at all on some machine.
//!
//! The paper draws the figure and does not print its formulas; they are derived here from its text.
//! The unit of time is the transfer of one uncompressed page to or from the backing store. Assumed, as
//! the paper does or as its figure implies:
//!
//! - decompression is twice as fast as compression (caption of figure 1);
//! - a transfer takes time in proportion to its bytes: no seeks, and reading is as fast as writing;
//! - computing and transfers do not overlap;
//! - the backing store holds pages compressed ("pages could be transferred to backing store in
//!   compressed format");
//! - besides faults, references cost nothing, and so do memory for the few pages that are not
//!   compressed and for tables.

/// Decompression is that many times as fast as compression.
const DECOMPRESSION_SPEED: f64 = 2.0;

/// Bytes left after compression, as a fraction of a page: above 0, up to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Left(pub f64);

/// Bandwidth of compression as a multiple of the backing store's: above 0.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct RelativeSpeed(pub f64);

/// Time to compress a page and to decompress it again: 1/s + 1/(2s).
fn codec_time(speed: RelativeSpeed) -> f64 {
    1.0 / speed.0 + 1.0 / (DECOMPRESSION_SPEED * speed.0)
}

/// Figure 1(a): speed-up of paging to and from the backing store in compressed format.
///
/// A page goes out and comes in again. Uncompressed that takes two transfers, 2. Compressed it takes
/// the codec's time and two transfers of what is left: 3/(2s) + 2r.
pub fn paging_speedup(left: Left, speed: RelativeSpeed) -> f64 {
    2.0 / (codec_time(speed) + 2.0 * left.0)
}

/// Figure 1(b): speed-up of the mean memory reference time of an application that goes in order, again
/// and again, through twice as many pages as fit in memory, reading and writing one word of each,
/// when pages are kept compressed in memory.
///
/// Replacement is LRU, so every reference faults, and every page taken away has been written to.
/// Without compression each costs a transfer out and one in: 2.
///
/// With it, memory for M pages holds M/r compressed ones. Up to r = 1/2 that is all 2M: each reference
/// compresses one page and decompresses another, 3/(2s). The speed-up 4s/3 is linear in s and does not
/// depend on r ("if pages are compressed to no larger than half their original size, on average, the
/// speedup due to compression is linear in the speed of compression").
///
/// Beyond, LRU fails among the compressed pages as it did among the others: the page that comes next
/// is always the one that was written out longest ago, so that each reference takes two transfers of
/// compressed pages as well, as in figure 1(a). Hence "the sharp leap in speedup when all pages fit in
/// memory". Were the compressed pages that fit kept there, and only the share 1 - 1/(2r) of the
/// references went to the backing store, there would be no leap; see
/// [`reference_speedup_when_kept`].
pub fn reference_speedup(left: Left, speed: RelativeSpeed) -> f64 {
    match fits(left) {
        true => 2.0 / codec_time(speed),
        false => paging_speedup(left, speed),
    }
}

/// As [`reference_speedup`], but with a replacement that keeps the compressed pages that fit, not LRU:
/// what a better policy could make of the same memory. Not in the paper.
pub fn reference_speedup_when_kept(left: Left, speed: RelativeSpeed) -> f64 {
    let stored = match fits(left) {
        true => 0.0,
        false => 1.0 - 1.0 / (2.0 * left.0),
    };
    2.0 / (codec_time(speed) + 2.0 * left.0 * stored)
}

/// The same application without compression, after advice to the system that LRU will do badly: half
/// of the pages are pinned and only the others fault (section 3).
pub fn pinned_speedup() -> f64 {
    2.0
}

/// Whether twice the memory fits into it compressed.
fn fits(left: Left) -> bool {
    left.0 <= 0.5
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a(left: f64, speed: f64) -> f64 {
        paging_speedup(Left(left), RelativeSpeed(speed))
    }

    fn b(left: f64, speed: f64) -> f64 {
        reference_speedup(Left(left), RelativeSpeed(speed))
    }

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-12
    }

    #[test]
    fn where_all_pages_fit_the_speedup_is_linear_in_the_speed_of_compression() {
        for left in [0.01, 0.25, 0.5] {
            for speed in [0.1, 1.0, 7.0] {
                assert!(near(b(left, speed), 4.0 / 3.0 * speed), "{left} {speed}");
            }
        }
    }

    #[test]
    fn speedup_leaps_where_all_pages_fit() {
        for speed in [2.0, 8.0, 100.0] {
            let (in_memory, beyond) = (b(0.5, speed), b(0.5001, speed));
            assert!(in_memory > 1.5 * beyond, "{speed}: {in_memory} {beyond}");
            assert!(near(beyond, a(0.5001, speed)));
        }
        // However fast the codec: beyond the leap the transfers are left.
        assert!(b(0.5001, 1e9) < 2.0);
    }

    #[test]
    fn the_top_left_is_off_the_scale_and_the_right_a_slowdown() {
        assert!(a(0.1, 32.0) > 6.0 && b(0.1, 32.0) > 6.0);
        assert!(a(0.3, 32.0) < 6.0, "only where little is left");
        assert!(b(0.5, 4.6) > 6.0, "up to where all fits");
        for speed in [0.5, 1.0, 4.0, 32.0] {
            assert!(a(1.0, speed) < 1.0 && b(1.0, speed) < 1.0, "{speed}");
        }
    }

    #[test]
    fn the_faster_the_compression_the_less_of_it_is_needed() {
        // The most that may be left for a speed-up of 1, by bisection; the paper's inverse relation.
        let most_left = |speed| {
            let (mut gain, mut loss) = (0.0, 1.0);
            for _ in 0..50 {
                let middle = (gain + loss) / 2.0;
                match a(middle, speed) >= 1.0 {
                    true => gain = middle,
                    false => loss = middle,
                }
            }
            gain
        };
        for speed in [1.0, 2.0, 10.0] {
            let expected = 1.0 - 3.0 / (4.0 * speed);
            assert!((most_left(speed) - expected).abs() < 1e-9, "{speed}");
        }
        assert_eq!(most_left(0.5), 0.0, "too slow for any page");
    }

    #[test]
    fn reducing_io_by_half_is_inferior_to_fast_compression() {
        assert!(pinned_speedup() < b(0.5, 2.0));
        assert!(pinned_speedup() > b(0.5, 1.0));
        assert!(pinned_speedup() > a(0.51, 1e9));
    }

    #[test]
    fn keeping_what_fits_takes_the_leap_away_and_never_loses() {
        let kept = |left, speed| reference_speedup_when_kept(Left(left), RelativeSpeed(speed));
        for speed in [0.5, 2.0, 20.0] {
            let step = kept(0.5, speed) - kept(0.500_001, speed);
            assert!((0.0..0.01).contains(&step), "{step}");
            for percent in 1..=100 {
                let left = f64::from(percent) / 100.0;
                assert!(kept(left, speed) >= b(left, speed), "{left} {speed}");
            }
        }
    }
}
