//! What of a run can be told in numbers, one definition for each: tiles, sentences and the table that compares runs are made of these.
//! The last line of a series knows best; where there is none, what the samples say has to do.

use crate::read::Run;
use crate::series::Gauge;
use crate::unit::Unit;

const PAGE_BYTES: f64 = 4096.0;

/// One number of a run.
pub struct Figure {
    pub name: &'static str,
    pub unit: Unit,
    pub of: fn(&Run) -> Option<f64>,
}

/// Those that runs are compared by.
pub const FIGURES: [Figure; 18] = [
    figure("Time", Unit::Seconds, |run| Some(run.wall_s())),
    figure("Budget", Unit::Bytes, Run::budget_bytes),
    figure("Most in use", Unit::Bytes, Run::used_most_bytes),
    figure("Most needed", Unit::Bytes, Run::needed_most_bytes),
    figure("Needed over budget", Unit::Times, Run::exceeded_times),
    figure("Threads waited for pages", Unit::Seconds, |run| {
        Some(run.stall_s())
    }),
    figure("Threads that waited, on average", Unit::Count, |run| {
        (run.wall_s() > 0.0).then(|| run.stall_s() / run.wall_s())
    }),
    figure("Threads waited for their turn", Unit::Seconds, |run| {
        Some(run.total("report.pager.rested_us", run.totals.rested_us) / 1e6)
    }),
    figure("CPU time spent compressing", Unit::Seconds, |run| {
        Some(run.total("report.pager.fold_us", run.totals.fold_us) / 1e6)
    }),
    figure("Pages taken away", Unit::Count, |run| {
        Some(run.taken_pages())
    }),
    figure("Pages that came back", Unit::Count, |run| {
        Some(run.returned().iter().sum())
    }),
    figure("of these before they were compressed", Unit::Count, |run| {
        Some(run.returned()[0])
    }),
    figure("of these from compressed memory", Unit::Count, |run| {
        Some(run.returned()[1])
    }),
    figure("of these from the swap file", Unit::Count, |run| {
        Some(run.returned()[2])
    }),
    figure("Compression ratio", Unit::Ratio, Run::ratio),
    figure("Read from the swap file", Unit::Bytes, |run| {
        Some(run.swap_read_bytes())
    }),
    figure("Written to the swap file", Unit::Bytes, |run| {
        Some(run.swap_written_bytes())
    }),
    figure("Most in the swap file", Unit::Bytes, |run| {
        run.series.most(Gauge::SwapFile)
    }),
];

const fn figure(name: &'static str, unit: Unit, of: fn(&Run) -> Option<f64>) -> Figure {
    Figure { name, unit, of }
}

impl Run {
    /// A number of the last line, by its path.
    pub(crate) fn end_number(&self, path: &str) -> Option<f64> {
        let mut value = &self.end;
        for name in path.split('.') {
            value = value.get(name)?;
        }
        value.as_f64()
    }

    /// A total by the last line, else as the last sample has it.
    pub(crate) fn total(&self, path: &str, sampled: u64) -> f64 {
        self.end_number(path).unwrap_or(sampled as f64)
    }

    /// For how long it ran, as far as is known.
    pub(crate) fn wall_s(&self) -> f64 {
        let sampled = self.series.end_us();
        self.total("report.wall_us", sampled).max(sampled as f64) / 1e6
    }

    pub(crate) fn stall_s(&self) -> f64 {
        self.total("report.stall_us", self.totals.stall_us) / 1e6
    }

    /// The budget, the last if it was changed.
    pub(crate) fn budget_bytes(&self) -> Option<f64> {
        let last = || {
            self.series
                .points(usize::MAX)
                .last()
                .map(|point| point.gauge(Gauge::Budget).mean)
        };
        let given = || self.start.settings["budget_bytes"].as_f64();
        self.end_number("report.budget_bytes")
            .or_else(last)
            .or_else(given)
    }

    pub(crate) fn used_most_bytes(&self) -> Option<f64> {
        self.end_number("report.peak_bytes")
            .or_else(|| self.series.most(Gauge::Used))
    }

    /// What there would have been at once without compression and swap file, pleat itself left out.
    pub(crate) fn needed_most_bytes(&self) -> Option<f64> {
        let known = self.end_number("report.pager.needed_peak_bytes");
        known.or_else(|| self.series.most(Gauge::Needed))
    }

    pub(crate) fn exceeded_times(&self) -> Option<f64> {
        let budget = self.budget_bytes().filter(|budget| *budget > 0.0)?;
        Some(self.needed_most_bytes()? / budget)
    }

    pub(crate) fn taken_pages(&self) -> f64 {
        self.total("report.pages_folded", self.totals.taken_pages)
    }

    /// Pages that came back: before they were compressed, from compressed memory, from the swap file.
    pub(crate) fn returned(&self) -> [f64; 3] {
        let totals = &self.totals;
        [
            self.total("report.hits.staged", totals.staged_pages),
            self.total("report.hits.compressed", totals.compressed_pages),
            self.total("report.hits.swap", totals.swap_pages),
        ]
    }

    /// How far pages were compressed: over the whole run, else those that are compressed now.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let whole = self.end_number("report.compression_ratio");
        let totals = &self.totals;
        let now = || {
            (totals.kept_bytes > 0)
                .then(|| totals.kept_pages as f64 * PAGE_BYTES / totals.kept_bytes as f64)
        };
        whole.or_else(now).filter(|ratio| *ratio > 0.0)
    }

    pub(crate) fn swap_read_bytes(&self) -> f64 {
        self.total("report.pager.swap_read_bytes", self.totals.swap_read_bytes)
    }

    pub(crate) fn swap_written_bytes(&self) -> f64 {
        self.total(
            "report.pager.swap_written_bytes",
            self.totals.swap_written_bytes,
        )
    }
}
