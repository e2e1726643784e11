//! How long faults took, by where their pages came from.

use crate::histogram::{Figures, Histogram};
use pleat_engine::FillItem;
use serde::Serialize;

/// Makes the enum of sources, and a report with what each comes to.
macro_rules! sources {
    ($($(#[$doc:meta])* $field:ident = $name:ident,)*) => {
        /// Where a page came from that a thread waited for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Source { $($(#[$doc])* $name,)* }

        /// How long threads waited, from the reading of the fault to its answer.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct LatencyReport { $($(#[$doc])* pub $field: Latency,)* }

        impl Source {
            const ALL: &[Source] = &[$(Source::$name,)*];
        }

        impl Latencies {
            /// What they come to so far.
            pub(crate) fn report(&self) -> LatencyReport {
                LatencyReport { $($field: self.of(Source::$name),)* }
            }
        }
    };
}

sources! {
    /// How long faults took whose pages were touched for the first time, and filled with zeros.
    zero = Zero,
    /// The same of pages filled with what a mapped file holds.
    file = File,
    /// The same of pages that had not been compressed yet.
    staged = Staged,
    /// The same of pages from compressed memory.
    compressed = Compressed,
    /// The same of pages that were read from the swap file for this fault.
    swap = Swap,
    /// The same of what had no such source: pages that were there already, writes after a fork, pages of pleat's own.
    other = Other,
}

/// How long faults from one source took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// What they come to.
    #[serde(flatten)]
    pub figures: Figures,
    /// One in a thousand took longer, in nanoseconds.
    pub p999_ns: u64,
    /// Nanoseconds, within a sixteenth, and how many faults took so long; in ascending order.
    pub buckets: Vec<(u64, u64)>,
}

/// The running figures of a job; any thread adds to them.
#[derive(Debug)]
pub(crate) struct Latencies([Histogram; Source::ALL.len()]);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies([const { Histogram::new() }; Source::ALL.len()])
    }
}

impl Latencies {
    /// A fault was answered after this time.
    pub(crate) fn add(&self, source: Source, ns: u64) {
        self.0[source as usize].add(ns);
    }

    fn of(&self, source: Source) -> Latency {
        let histogram = &self.0[source as usize];
        Latency {
            figures: histogram.figures(),
            p999_ns: histogram.quantile(1000),
            buckets: histogram.buckets().collect(),
        }
    }
}

impl Source {
    /// That of a page that is filled so, without having been read for that.
    pub(crate) fn of(item: Option<&FillItem>) -> Source {
        match item {
            Some(FillItem::Zero | FillItem::Resident) => Source::Zero,
            Some(FillItem::File) => Source::File,
            Some(FillItem::Staged(_)) => Source::Staged,
            Some(FillItem::Same(_) | FillItem::Packed { .. }) => Source::Compressed,
            None => Source::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_figures_of_its_own_and_its_buckets_hold_every_fault() {
        let latencies = Latencies::default();
        (1..=2000u64).for_each(|us| latencies.add(Source::Swap, us * 1000));
        latencies.add(Source::Zero, 700);
        let report = latencies.report();
        assert_eq!(
            (report.zero.figures.count, report.file.figures.count),
            (1, 0)
        );
        let swap = &report.swap;
        assert_eq!(
            swap.buckets.iter().map(|(_, count)| count).sum::<u64>(),
            2000
        );
        assert!(swap.buckets.windows(2).all(|two| two[0].0 < two[1].0));
        assert!(swap.p999_ns.abs_diff(1_998_000) < 1_998_000 / 16);
        assert!(swap.p999_ns >= swap.figures.p99_ns);
        assert_eq!(report.file, Latency::default());
    }
}
