//! Axes: which range of values a plot shows, and where the round numbers on it are.

use crate::human_count;

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equal lengths.
    #[default]
    Linear,
    /// Equal factors are equal lengths; values that are not above 0 cannot be shown.
    Log,
}

/// A range of values on a line from 0 to 1, and where its marks are.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The least value that it shows.
    pub from: f64,
    /// The largest.
    pub to: f64,
    scale: Scale,
    /// Where lines of the grid are, ascending.
    pub marks: Vec<f64>,
}

/// The most steps between marks.
const STEPS_MAX: f64 = 8.0;

impl Axis {
    /// For these values, however many and whatever they are.
    pub fn new(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Axis {
        match scale {
            Scale::Linear => Axis::linear(values),
            Scale::Log => Axis::logarithmic(values),
        }
    }

    /// From one mark to another, in steps of 1, 2 or 5 and zeros.
    pub fn linear(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let (least, most) = ends(values.filter(|v| v.is_finite())).unwrap_or((0.0, 1.0));
        let step = round_step((most - least) / STEPS_MAX, most.abs().max(least.abs()));
        let first = (least / step).floor();
        // A single value makes an axis of some length, too.
        let steps = ((most / step).ceil() - first).max(1.0);
        Axis {
            from: first * step,
            to: (first + steps) * step,
            scale: Scale::Linear,
            marks: (0..=steps as usize)
                .map(|n| (first + n as f64) * step)
                .collect(),
        }
    }

    /// From one of 1, 2, 5, 10, 20... to another.
    pub fn logarithmic(values: impl Iterator<Item = f64> + Clone) -> Axis {
        const DECADES: i32 = 30;
        let shown = values.filter(|v| v.is_finite() && *v > 0.0);
        let (least, most) = ends(shown).unwrap_or((1.0, 10.0));
        let (first, last) = (-3 * DECADES, 3 * DECADES);
        let below = (first..last).rev().find(|&n| round(n) <= least * 0.95);
        let below = below.unwrap_or(first);
        let above = (below + 1..last).find(|&n| round(n) >= most * 1.05);
        let above = above.unwrap_or(last);
        // Where 1, 2 and 5 would crowd, only powers of ten have marks.
        let marks: Vec<i32> = match above - below > 12 {
            true => (below..=above).filter(|n| n.rem_euclid(3) == 0).collect(),
            false => (below..=above).collect(),
        };
        let every = marks.len().div_ceil(12);
        Axis {
            from: round(below),
            to: round(above),
            scale: Scale::Log,
            marks: marks.into_iter().step_by(every).map(round).collect(),
        }
    }

    /// From 0 to a round number that is not below `most`, for things that are counted.
    pub fn counted(most: f64) -> Axis {
        Axis::linear([0.0, sound(most)].into_iter())
    }

    /// The same for bytes: round numbers are multiples of powers of two.
    pub fn of_bytes(most: f64) -> Axis {
        const MARKS_MAX: f64 = 5.0;
        let most = sound(most);
        let powers = (0..63).map(|n| f64::from(n).exp2());
        let step = least_step(powers, most / MARKS_MAX);
        let count = (most / step).ceil().max(1.0);
        Axis::with_marks(count * step, step)
    }

    /// From 0 to `end`, in seconds; marks are at whole seconds, minutes, hours or days as far as that is possible.
    pub fn of_time(end: f64) -> Axis {
        const MARKS_MAX: f64 = 7.0;
        const ROUND: [f64; 20] = [
            0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0,
            1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0, 43_200.0,
        ];
        let end = sound(end);
        let days = (0..30).map(|n| round(n) * 86_400.0);
        let step = least_step(ROUND.into_iter().chain(days), end / MARKS_MAX);
        Axis::with_marks(end, step)
    }

    /// From 0 to `end`, marked at each multiple of `step`.
    fn with_marks(end: f64, step: f64) -> Axis {
        let count = (end / step * (1.0 + 1e-9)).floor() as usize;
        Axis {
            from: 0.0,
            to: end,
            scale: Scale::Linear,
            marks: (0..=count).map(|n| n as f64 * step).collect(),
        }
    }

    /// A mark of [`Axis::of_bytes`], as `--memory` takes it.
    pub fn byte_label(mark: f64) -> String {
        const UNITS: [&str; 5] = ["", "K", "M", "G", "T"];
        let (mut value, mut unit) = (mark, 0);
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        format!("{}{}", human_count(value), UNITS[unit])
    }

    /// A mark of [`Axis::of_time`] in the unit that all marks of this axis have.
    pub fn time_label(&self, mark: f64) -> String {
        let (unit, name) = match self.to {
            end if end < 300.0 => (1.0, "s"),
            end if end < 18_000.0 => (60.0, "min"),
            end if end < 432_000.0 => (3600.0, "h"),
            _ => (86_400.0, "d"),
        };
        match mark == 0.0 {
            true => "0".into(),
            false => format!("{} {name}", human_count(mark / unit)),
        }
    }

    /// Where a value is, from 0 to 1 if the axis was made for it.
    pub fn place(&self, value: f64) -> f64 {
        let [from, to, value] = [self.from, self.to, value].map(|value| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.ln(),
        });
        (value - from) / (to - from)
    }

    /// Whether a value can be shown at all.
    pub fn shows(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }

    /// A mark as it is written: no digit more than tells it from its neighbours.
    pub fn label(&self, mark: f64) -> String {
        let (value, unit) = match mark.abs() {
            m if m >= 1e9 => (mark / 1e9, "G"),
            m if m >= 1e6 => (mark / 1e6, "M"),
            _ => (mark, ""),
        };
        let digits = match value.abs() < 1e-3 && value != 0.0 && self.scale == Scale::Log {
            true => return format!("{value:e}{unit}"),
            false => format!("{value:.4}"),
        };
        let short = digits.trim_end_matches('0').trim_end_matches('.');
        match short {
            "" | "-0" => "0".into(),
            short => format!("{short}{unit}"),
        }
    }
}

/// 1, 2, 5, 10, 20... for 0, 1, 2, 3, 4... and fractions below.
fn round(n: i32) -> f64 {
    let digit = [1.0, 2.0, 5.0][n.rem_euclid(3) as usize];
    let power = 10f64.powi(n.div_euclid(3).abs());
    match n < 0 {
        true => digit / power,
        false => digit * power,
    }
}

/// The least round number that is at least `wanted`; for one value alone, a round part of it.
fn round_step(wanted: f64, magnitude: f64) -> f64 {
    let wanted = match wanted > 0.0 {
        true => wanted,
        false => (magnitude / 10.0).max(1e-9),
    };
    // Slightly less, so that rounding does not skip a step that fits exactly.
    let is_enough = |n: &i32| round(*n) >= wanted * (1.0 - 1e-9);
    (-45..300).find(is_enough).map_or(wanted, round)
}

/// What an axis may end at: above 0, and no more than can be told.
fn sound(most: f64) -> f64 {
    match most.is_finite() && most > 0.0 {
        true => most.min(1e18),
        false => 1.0,
    }
}

/// The first of these that is at least `wanted`.
fn least_step(mut steps: impl Iterator<Item = f64>, wanted: f64) -> f64 {
    let is_enough = |step: &f64| *step >= wanted * (1.0 - 1e-9);
    steps.find(is_enough).unwrap_or(wanted)
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((least, most)) => Some((f64::min(least, value), f64::max(most, value))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_every_value_and_their_marks_are_round() {
        let cases: [&[f64]; 7] = [
            &[1e-3, 950.0, 30.0],
            &[2048.0],
            &[5.0, 5.0],
            &[0.5, 0.25],
            &[1e-6, 1e12],
            &[7e9, 1.0],
            &[],
        ];
        for values in cases {
            for scale in [Scale::Linear, Scale::Log] {
                let axis = Axis::new(scale, values.iter().copied());
                for value in values {
                    let place = axis.place(*value);
                    assert!((-1e-9..=1.0 + 1e-9).contains(&place), "{value}: {axis:?}");
                }
                assert!((2..=13).contains(&axis.marks.len()), "{axis:?}");
                let labels: Vec<String> = axis.marks.iter().map(|m| axis.label(*m)).collect();
                assert!(labels.iter().all(|label| label.len() <= 6), "{labels:?}");
            }
        }
    }

    #[test]
    fn marks_are_written_without_needless_digits() {
        let axis = Axis::linear([0.1, 0.8].into_iter());
        let labels: Vec<String> = axis.marks.iter().map(|m| axis.label(*m)).collect();
        assert_eq!(labels.join(" "), "0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8");
        let axis = Axis::logarithmic([0.9, 400.0].into_iter());
        let labels: Vec<String> = axis.marks.iter().map(|m| axis.label(*m)).collect();
        assert_eq!(labels.join(" "), "0.5 1 2 5 10 20 50 100 200 500");
        let axis = Axis::linear([-3.0, 4e6].into_iter());
        assert!(axis.marks.iter().any(|m| axis.label(*m) == "0"), "{axis:?}");
        assert_eq!(axis.label(2e6), "2M");
    }

    #[test]
    fn values_that_no_logarithm_has_are_left_out() {
        let axis = Axis::logarithmic([0.0, -1.0, f64::NAN, 3.0, 9.0].into_iter());
        assert!(axis.from > 1.0 && axis.to <= 10.0, "{axis:?}");
        assert!(!axis.shows(0.0) && !axis.shows(f64::NAN) && axis.shows(3.0));
    }

    #[test]
    fn bytes_are_marked_at_multiples_of_powers_of_two() {
        for (most, marks) in [
            (300e6, "0 64M 128M 192M 256M 320M"),
            (1.3e9, "0 256M 512M 768M 1G 1.25G"),
            (3.0, "0 1 2 3"),
            (0.0, "0 1"),
        ] {
            let axis = Axis::of_bytes(most);
            let labels: Vec<String> = axis.marks.iter().map(|m| Axis::byte_label(*m)).collect();
            assert_eq!(labels.join(" "), marks);
            assert!(axis.to >= most && axis.from == 0.0);
        }
    }

    #[test]
    fn times_are_marked_at_whole_units_and_end_where_they_end() {
        for (end, marks) in [
            (0.5, "0 0.1 s 0.2 s 0.3 s 0.4 s 0.5 s"),
            (100.0, "0 20 s 40 s 60 s 80 s 100 s"),
            (1800.0, "0 5 min 10 min 15 min 20 min 25 min 30 min"),
            (604_800.0, "0 1 d 2 d 3 d 4 d 5 d 6 d 7 d"),
            (90_000.0, "0 6 h 12 h 18 h 24 h"),
        ] {
            let axis = Axis::of_time(end);
            let labels: Vec<String> = axis.marks.iter().map(|m| axis.time_label(*m)).collect();
            assert_eq!(labels.join(" "), marks);
            assert_eq!(axis.to, end);
        }
    }

    #[test]
    fn no_end_is_too_strange_for_an_axis() {
        for end in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9, 1e300] {
            for axis in [Axis::of_time(end), Axis::of_bytes(end), Axis::counted(end)] {
                assert!(axis.to > axis.from && axis.to.is_finite(), "{axis:?}");
                assert!((1..=13).contains(&axis.marks.len()), "{end}: {axis:?}");
            }
        }
    }
}
