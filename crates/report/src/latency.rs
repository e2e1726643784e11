//! How long faults took, by where their page came from: `report.latencies` of the last line. Files of older versions do not have it.

use serde_json::Value;
use std::collections::BTreeMap;

/// Where pages come from, in the order in which it is told.
pub const SOURCES: [&str; 5] = ["zero", "file", "staged", "compressed", "swap"];
/// Bars for each power of two; the file has twice as many buckets, too narrow to be seen.
pub const BARS_PER_OCTAVE: f64 = 4.0;

/// Of one source.
#[derive(Clone, Debug)]
pub struct Latency {
    pub source: &'static str,
    pub count: f64,
    pub mean_ns: f64,
    pub median_ns: f64,
    pub p99_ns: f64,
    pub p999_ns: f64,
    /// Faults in each bar, by its number.
    pub bars: BTreeMap<i32, f64>,
}

/// In which bar a time is.
pub fn bar_of(ns: f64) -> i32 {
    (ns.max(1.0).log2() * BARS_PER_OCTAVE).floor() as i32
}

/// Where a bar begins.
pub fn begin_of(bar: i32) -> f64 {
    (f64::from(bar) / BARS_PER_OCTAVE).exp2()
}

/// Those sources from which pages came.
pub fn latencies(end: &Value) -> Vec<Latency> {
    let all = &end["report"]["latencies"];
    let one = |source: &'static str| {
        let figures = &all[source];
        let number = |name: &str| figures[name].as_f64().filter(|value| value.is_finite());
        let count = number("count").filter(|count| *count > 0.0)?;
        let mut bars = BTreeMap::new();
        for bucket in figures["buckets"].as_array().into_iter().flatten() {
            if let (Some(ns), Some(faults)) = (bucket[0].as_f64(), bucket[1].as_f64()) {
                *bars.entry(bar_of(ns)).or_insert(0.0) += faults;
            }
        }
        Some(Latency {
            source,
            count,
            mean_ns: number("mean_ns")?,
            median_ns: number("median_ns")?,
            p99_ns: number("p99_ns")?,
            p999_ns: number("p999_ns").unwrap_or(f64::NAN),
            bars,
        })
    };
    SOURCES.into_iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn buckets_are_joined_and_no_fault_is_lost() {
        let swap = json!({"count": 10, "total_ns": 1, "mean_ns": 5, "median_ns": 4, "p99_ns": 9, "p999_ns": 9,
                          "buckets": [[1000, 3], [1040, 4], [2_000_000, 2], [0, 1]]});
        let zero = json!({"count": 0, "mean_ns": 0, "median_ns": 0, "p99_ns": 0, "p999_ns": 0, "buckets": []});
        let end = json!({"report": {"latencies": {"swap": swap, "zero": zero, "compressed": 7}}});
        let all = latencies(&end);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].bars.values().sum::<f64>(), 10.0);
        for ns in [1.0, 1000.0, 2e6, 1e12] {
            let bar = bar_of(ns);
            assert!(
                begin_of(bar) <= ns * (1.0 + 1e-9) && ns < begin_of(bar + 1),
                "{ns}"
            );
        }
    }

    #[test]
    fn a_file_without_them_has_none() {
        for end in [
            json!({}),
            json!(null),
            json!({"report": null}),
            json!({"report": {"latencies": []}}),
        ] {
            assert!(latencies(&end).is_empty());
        }
    }
}
