//! How figures went over time, in a bounded number of points: samples that came later share a point with their neighbours, and each point
//! keeps the least, the mean and the most of every figure, so that no peak is lost, however long the job ran.

use crate::line::{Sample, Totals};

/// Points are joined in pairs when there would be more than this.
pub const POINTS_MAX: usize = 1200;
/// Between samples nearer to each other than this no rate is taken, for a single fault would look like many.
const MOMENT_US: u64 = 100_000;
const PAGE_BYTES: f64 = 4096.0;

/// A figure as of the moment.
#[derive(Clone, Copy, Debug)]
pub enum Gauge {
    Budget,
    Used,
    Uncompressed,
    /// Staged and compressed.
    Compressed,
    Raw,
    File,
    Unfoldable,
    Own,
    /// Not in programs, before compression.
    Away,
    /// Of that, what is in the swap file only.
    Swap,
    SwapFile,
    /// What there would be without compression and swap file, pleat itself left out.
    Needed,
    /// How far what is compressed was compressed; not a number while nothing is.
    Ratio,
    /// Of the memory that can be compressed and is in memory, the part in compressed form.
    Share,
    Processes,
}

/// A figure that grows, of which the rate is shown. Times are in seconds a second.
#[derive(Clone, Copy, Debug)]
pub enum Rate {
    /// Pages filled, wherever they came from.
    Filled,
    Zero,
    File,
    Staged,
    Compressed,
    Swap,
    Stall,
    Rested,
    Fold,
    SwapRead,
    SwapWritten,
}

const GAUGES: usize = Gauge::Processes as usize + 1;
const RATES: usize = Rate::SwapWritten as usize + 1;

/// What a figure was within a point. Not a number where there was none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub least: f64,
    pub mean: f64,
    pub most: f64,
}

/// A stretch of time.
#[derive(Clone, Debug)]
pub struct Point {
    pub from_us: u64,
    pub to_us: u64,
    gauges: [Spread; GAUGES],
    rates: [Spread; RATES],
}

/// Points that follow each other without gaps.
#[derive(Debug, Default)]
pub struct Series {
    points: Vec<Point>,
    /// Samples that a point is made of, and those that the last one has.
    stride: u64,
    filled: u64,
    last_us: u64,
    last_rates: [f64; RATES],
}

impl Spread {
    fn of(value: f64) -> Spread {
        Spread {
            least: value,
            mean: value,
            most: value,
        }
    }

    /// Of both, the means by how long each was.
    fn joined(self, weight: f64, other: Spread, other_weight: f64) -> Spread {
        match (self.mean.is_nan(), other.mean.is_nan()) {
            (true, _) => other,
            (_, true) => self,
            _ => Spread {
                least: self.least.min(other.least),
                mean: (self.mean * weight + other.mean * other_weight) / (weight + other_weight),
                most: self.most.max(other.most),
            },
        }
    }
}

impl Point {
    pub fn gauge(&self, gauge: Gauge) -> Spread {
        self.gauges[gauge as usize]
    }

    pub fn rate(&self, rate: Rate) -> Spread {
        self.rates[rate as usize]
    }

    /// Its middle, in seconds.
    pub fn middle_s(&self) -> f64 {
        (self.from_us as f64 + self.to_us as f64) / 2e6
    }

    fn join(&mut self, other: &Point) {
        let [weight, other_weight] =
            [&*self, other].map(|point| (point.to_us - point.from_us) as f64);
        let all = self.gauges.iter_mut().chain(&mut self.rates);
        for (one, other) in all.zip(other.gauges.iter().chain(&other.rates)) {
            *one = one.joined(weight, *other, other_weight);
        }
        self.to_us = other.to_us;
    }
}

impl Series {
    /// Takes a sample in. One that is not later than the last is left out: whoever wrote it has lost his clock.
    pub fn add(&mut self, sample: &Sample) {
        let elapsed_us = sample.wall_us.saturating_sub(self.last_us);
        if elapsed_us == 0 {
            return;
        }
        let gauges = gauges(sample).map(Spread::of);
        if let Some(last) = self.points.last_mut().filter(|_| elapsed_us < MOMENT_US) {
            // What it counts is part of the next sample's rates; a peak is not to be lost.
            for (one, other) in last.gauges.iter_mut().zip(gauges) {
                *one = one.joined(1.0, other, 0.0);
            }
            return;
        }
        let counted = counted(&sample.totals);
        let mut rates = [Spread::of(0.0); RATES];
        for (at, rate) in rates.iter_mut().enumerate() {
            let more = (counted[at] - self.last_rates[at]).max(0.0);
            *rate = Spread::of(more * 1e6 / elapsed_us as f64);
        }
        let from_us = self.last_us;
        (self.last_us, self.last_rates) = (sample.wall_us, counted);
        self.push(Point {
            from_us,
            to_us: sample.wall_us,
            gauges,
            rates,
        });
    }

    fn push(&mut self, point: Point) {
        self.stride = self.stride.max(1);
        if let Some(last) = self.points.last_mut().filter(|_| self.filled < self.stride) {
            last.join(&point);
            self.filled += 1;
            return;
        }
        if self.points.len() >= POINTS_MAX {
            // Their number is even, so the last pair is whole.
            self.points = joined(&self.points, 2);
            self.stride *= 2;
        }
        self.points.push(point);
        self.filled = 1;
    }

    /// All of it in at most so many points.
    pub fn points(&self, most: usize) -> Vec<Point> {
        joined(&self.points, self.points.len().div_ceil(most.max(1)).max(1))
    }

    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// When the last sample was.
    pub fn end_us(&self) -> u64 {
        self.last_us
    }

    /// The most that a figure ever was; `None` where it never was one.
    pub fn most(&self, gauge: Gauge) -> Option<f64> {
        let values = self.points.iter().map(|point| point.gauge(gauge).most);
        values.filter(|value| !value.is_nan()).reduce(f64::max)
    }
}

fn joined(points: &[Point], group: usize) -> Vec<Point> {
    let one = |group: &[Point]| {
        let mut joined = group[0].clone();
        group[1..].iter().for_each(|other| joined.join(other));
        joined
    };
    points.chunks(group).map(one).collect()
}

/// In the order of [`Gauge`].
fn gauges(sample: &Sample) -> [f64; GAUGES] {
    let (tiers, totals) = (&sample.tiers, &sample.totals);
    let [uncompressed, raw, file, unfoldable] = [
        tiers.uncompressed_bytes,
        tiers.raw_bytes,
        tiers.file_bytes,
        tiers.unfoldable_bytes,
    ]
    .map(|bytes| bytes as f64);
    let compressed = tiers.staged_bytes as f64 + tiers.compressed_bytes as f64;
    let away = sample.pages_away as f64 * PAGE_BYTES;
    // 0 of 0 is no number.
    let share = (compressed + raw) / (compressed + raw + uncompressed);
    [
        sample.budget_bytes as f64,
        sample.used_bytes as f64,
        uncompressed,
        compressed,
        raw,
        file,
        unfoldable,
        tiers.own_bytes as f64,
        away,
        tiers.swap_bytes as f64,
        tiers.swap_file_bytes as f64,
        uncompressed + file + unfoldable + away,
        match totals.kept_bytes {
            0 => f64::NAN,
            bytes => totals.kept_pages as f64 * PAGE_BYTES / bytes as f64,
        },
        100.0 * share,
        sample.processes as f64,
    ]
}

/// In the order of [`Rate`].
fn counted(totals: &Totals) -> [f64; RATES] {
    let pages = [
        totals.zero_pages,
        totals.file_pages,
        totals.staged_pages,
        totals.compressed_pages,
        totals.swap_pages,
    ];
    let [zero, file, staged, compressed, swap] = pages.map(|pages| pages as f64);
    [
        zero + file + staged + compressed + swap,
        zero,
        file,
        staged,
        compressed,
        swap,
        totals.stall_us as f64 / 1e6,
        totals.rested_us as f64 / 1e6,
        totals.fold_us as f64 / 1e6,
        totals.swap_read_bytes as f64,
        totals.swap_written_bytes as f64,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(wall_us: u64, used_bytes: u64, zero_pages: u64) -> Sample<'static> {
        Sample {
            wall_us,
            used_bytes,
            totals: Totals {
                zero_pages,
                ..Totals::default()
            },
            ..Sample::default()
        }
    }

    #[test]
    fn no_peak_is_lost_however_many_samples_there_are() {
        let (mut series, mut faults) = (Series::default(), 0);
        for second in 1..=100_000u64 {
            faults += if second == 70_001 { 5_000 } else { 10 };
            let used = if second == 33_333 { 900 } else { 100 };
            series.add(&sample(second * 1_000_000, used, faults));
        }
        for points_max in [POINTS_MAX, 500, 60, 1] {
            let points = series.points(points_max);
            assert!(points.len() <= points_max);
            let most = |of: fn(&Point) -> f64| points.iter().map(of).fold(0.0, f64::max);
            assert_eq!(most(|point| point.gauge(Gauge::Used).most), 900.0);
            assert_eq!(most(|point| point.rate(Rate::Zero).most), 5_000.0);
            // And none is made: means are what they were, in all.
            let seconds = |point: &Point| (point.to_us - point.from_us) as f64 / 1e6;
            let whole: f64 = points
                .iter()
                .map(|point| point.rate(Rate::Zero).mean * seconds(point))
                .sum();
            assert!((whole - faults as f64).abs() < 1.0, "{whole} of {faults}");
            assert!(points
                .windows(2)
                .all(|pair| pair[0].to_us == pair[1].from_us));
            assert_eq!(
                (points[0].from_us, points[points.len() - 1].to_us),
                (0, 100_000_000_000)
            );
        }
        assert!(series.points.len() > POINTS_MAX / 2 - 2);
        assert_eq!(series.most(Gauge::Used), Some(900.0));
    }

    #[test]
    fn a_sample_right_after_another_makes_no_rate_and_its_peak_stays() {
        let mut series = Series::default();
        series.add(&sample(1_000_000, 100, 50));
        series.add(&sample(1_000_100, 800, 60));
        series.add(&sample(2_000_000, 100, 150));
        let points = series.points(10);
        assert_eq!(points.len(), 2);
        assert_eq!(points[0].gauge(Gauge::Used).most, 800.0);
        assert_eq!(points[0].gauge(Gauge::Used).mean, 100.0);
        assert_eq!(points[1].rate(Rate::Zero).most, 100.0);
    }

    #[test]
    fn a_clock_that_goes_back_and_totals_that_shrink_do_no_harm() {
        let mut series = Series::default();
        for (wall_us, pages) in [
            (0, 5),
            (5_000_000, 50),
            (4_000_000, 70),
            (5_000_000, 9),
            (6_000_000, 20),
        ] {
            series.add(&sample(wall_us, 1, pages));
        }
        let points = series.points(10);
        assert_eq!(points.len(), 2);
        assert_eq!(points[1].rate(Rate::Zero), Spread::of(0.0));
        assert_eq!(series.most(Gauge::Ratio), None);
    }
}
