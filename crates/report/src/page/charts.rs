//! Which figures are shown over time, and in which chart.

use super::chart::{Chart, Curve};
use crate::series::{Gauge, Rate};
use crate::unit::Unit;

/// A curve of a gauge.
macro_rules! gauge {
    ($name:literal, $class:literal, $gauge:ident) => {
        Curve {
            name: $name,
            class: $class,
            of: |point| point.gauge(Gauge::$gauge),
        }
    };
}

/// A curve of a rate.
macro_rules! rate {
    ($name:literal, $class:literal, $rate:ident) => {
        Curve {
            name: $name,
            class: $class,
            of: |point| point.rate(Rate::$rate),
        }
    };
}

/// In the order of the page.
pub const CHARTS: [Chart; 7] = [
    Chart {
        id: "memory",
        title: "Memory in use",
        about: "What counts in the budget, by what it is.",
        unit: Unit::Bytes,
        areas: &[
            gauge!("uncompressed", "uncompressed", Uncompressed),
            gauge!("compressed", "compressed", Compressed),
            gauge!("did not compress", "raw", Raw),
            gauge!("files", "file", File),
            gauge!("cannot be compressed", "unfoldable", Unfoldable),
            gauge!("pleat itself", "own", Own),
        ],
        lines: &[
            gauge!("budget", "budget", Budget),
            gauge!("in use", "used", Used),
        ],
    },
    Chart {
        id: "away",
        title: "Memory away from programs",
        about: "What was taken away from programs, before compression, and how much of it is in the swap file only.",
        unit: Unit::Bytes,
        areas: &[],
        lines: &[
            gauge!("away", "away", Away),
            gauge!("of that, in the swap file", "swap", Swap),
            gauge!("the swap file's size", "swapfile", SwapFile),
        ],
    },
    Chart {
        id: "faults",
        title: "Pages filled",
        about: "Pages that programs waited for, a second, by where they came from.",
        unit: Unit::PerSecond,
        areas: &[
            rate!("from the swap file", "swap", Swap),
            rate!("from compressed memory", "compressed", Compressed),
            rate!("not compressed yet", "uncompressed", Staged),
            rate!("from mapped files", "file", File),
            rate!("first touch, zeros", "zero", Zero),
        ],
        lines: &[rate!("all", "used", Filled)],
    },
    Chart {
        id: "stall",
        title: "Threads that waited",
        about: "How many threads waited on average: 1 is one thread all the time, or two for half of it; and how many CPUs compressed.",
        unit: Unit::Count,
        areas: &[],
        lines: &[
            rate!("for pages", "stall", Stall),
            rate!("for their turn", "rested", Rested),
            rate!("CPUs compressing", "compressed", Fold),
        ],
    },
    Chart {
        id: "ratio",
        title: "Compression ratio",
        about: "How far the pages that are compressed at that time were compressed, tables left out.",
        unit: Unit::Ratio,
        areas: &[],
        lines: &[gauge!("ratio", "compressed", Ratio)],
    },
    Chart {
        id: "swap",
        title: "Swap file",
        about: "Bytes a second: read because somebody waited for them, and written.",
        unit: Unit::BytesPerSecond,
        areas: &[],
        lines: &[
            rate!("read", "swap", SwapRead),
            rate!("written", "raw", SwapWritten),
        ],
    },
    Chart {
        id: "sizing",
        title: "How large the compressed part was",
        about: "Of the memory that can be compressed and was in memory, the part that was in compressed form, or did not compress.",
        unit: Unit::Percent,
        areas: &[],
        lines: &[gauge!("compressed part", "compressed", Share)],
    },
];
