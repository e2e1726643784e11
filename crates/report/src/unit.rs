//! Units of figures, and how each is written.

use pleat_plot::{human_bytes, human_count, human_time, Axis};

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    BytesPerSecond,
    Count,
    PerSecond,
    Percent,
    /// How far something was compressed.
    Ratio,
    /// A multiple of something.
    Times,
    Seconds,
}

impl Unit {
    /// A value in few digits.
    pub fn text(self, value: f64) -> String {
        match self {
            _ if !value.is_finite() => "-".into(),
            Unit::Bytes => human_bytes(value.max(0.0).round() as u64),
            Unit::BytesPerSecond => format!("{}/s", human_bytes(value.max(0.0).round() as u64)),
            Unit::Count => human_count(value),
            Unit::PerSecond => format!("{}/s", human_count(value)),
            Unit::Percent => format!("{}%", human_count((value * 10.0).round() / 10.0)),
            Unit::Ratio => format!("{value:.2} : 1"),
            Unit::Times => format!("{value:.2} x"),
            Unit::Seconds => human_time(value),
        }
    }

    /// An axis for values up to this.
    pub fn axis(self, most: f64) -> Axis {
        match self {
            Unit::Bytes | Unit::BytesPerSecond => Axis::of_bytes(most),
            _ => Axis::counted(most),
        }
    }

    /// A mark on it.
    pub fn mark(self, mark: f64) -> String {
        match self {
            Unit::Bytes => Axis::byte_label(mark),
            Unit::BytesPerSecond => format!("{}/s", Axis::byte_label(mark)),
            Unit::Percent => format!("{}%", human_count(mark)),
            Unit::PerSecond => format!("{}/s", human_count(mark)),
            _ => human_count(mark),
        }
    }

    /// How the script of the page calls it.
    pub fn letter(self) -> &'static str {
        match self {
            Unit::Bytes => "b",
            Unit::BytesPerSecond => "r",
            Unit::PerSecond => "s",
            Unit::Percent => "p",
            Unit::Ratio => "c",
            Unit::Count | Unit::Times | Unit::Seconds => "n",
        }
    }
}
