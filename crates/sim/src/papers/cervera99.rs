//! cervera99, figures 5 to 7 (sections 4.3 and 4.4): size and cleaning threshold of the swap cache, and
//! what compression adds to the swap space.
//!
//! Machine: a Pentium II of 350 MHz with 64 MB, of which a kernel leaves 60, and an Ultra-SCSI disk. The
//! original system is Linux 2.0, which writes each page by itself (`cluster=4096`).
//!
//! Workloads have the compression ratios of table 1 and the properties that section 4 names. `fft`: a
//! working set that just fits, so that memory taken away is missed. `sort`: in memory, of a text
//! that does not fit. `simulator`: much memory, used with locality. `xanim`: all of a film is
//! decompressed, and then gone through in order.

use super::{Claim, Figure, Findings, Line, Run, MB};
use crate::Outcome;

const MEMORY_BYTES: u64 = 60 * MB;
const ORIGINAL: &str = "none/cluster=4096";

const WORKLOADS: [(&str, &str); 4] = [
    (
        "fft",
        "stack:pages=16k,working_set=15k,refs=150k,alpha=0.3,drift=0.01,write=0.5,ratio=0.649,\
         spread=0.25,think_ns=10000",
    ),
    (
        "sort",
        "quicksort:pages=18k,run=1024,ratio=0.465,spread=0.2,think_ns=10000",
    ),
    (
        "simulator",
        "stack:pages=32k,working_set=20k,refs=100k,alpha=0.8,drift=0.01,write=0.5,ratio=0.067",
    ),
    (
        "xanim",
        "thrasher:pages=20k,passes=3,write=1,ratio=0.278,think_ns=10000",
    ),
];

fn run(preset: &str, workload: &str) -> Outcome {
    let run = Run {
        cpu: "p2",
        cpus: 1,
        device: "ultra-scsi",
        workload,
        preset,
        memory_bytes: MEMORY_BYTES,
    };
    run.outcome()
}

/// A workload over the values of a parameter.
struct Curve {
    name: &'static str,
    /// Times faster than the original system.
    speedups: Vec<f64>,
    /// Requests that write.
    writes: Vec<u64>,
}

impl Curve {
    fn best(&self) -> f64 {
        self.speedups.iter().fold(f64::MIN, |a, &b| a.max(b))
    }
}

fn curves(presets: &[String]) -> Vec<Curve> {
    let curve = |&(name, workload): &(&'static str, &'static str)| {
        let original = run(ORIGINAL, workload).elapsed_ns as f64;
        let runs: Vec<Outcome> = presets.iter().map(|preset| run(preset, workload)).collect();
        let times = runs.iter().map(|run| run.elapsed_ns as f64);
        Curve {
            name,
            speedups: times.map(|time| original / time).collect(),
            writes: runs.iter().map(|run| run.device.writes).collect(),
        }
    };
    WORKLOADS.iter().map(curve).collect()
}

fn lines(curves: &[Curve], across: &[f64]) -> Vec<Line> {
    let line = |curve: &Curve| Line {
        name: curve.name.into(),
        points: across.iter().copied().zip(curve.speedups.clone()).collect(),
    };
    curves.iter().map(line).collect()
}

/// One value of each workload.
fn told(curves: &[Curve], of: impl Fn(&Curve) -> String) -> String {
    let one = |curve: &Curve| format!("{} {}", curve.name, of(curve));
    curves.iter().map(one).collect::<Vec<_>>().join(", ")
}

pub(super) const FIGURE5: Figure = Figure {
    name: "cervera99-figure5",
    about: "cervera99, figure 5: speed-up by size of the cache",
    axes: ("KB of cache", "times faster"),
    make: figure5,
    work: 8,
};

const SIZES_KB: [u64; 5] = [256, 512, 1024, 2048, 4096];
const ONE_MB: usize = 2;
const LARGEST: usize = SIZES_KB.len() - 1;

fn figure5() -> Findings {
    let preset = |kb: &u64| format!("cervera99/sizing=cervera99:{kb}K/threshold=50");
    let presets: Vec<String> = SIZES_KB.iter().map(preset).collect();
    let curves = curves(&presets);
    let across = SIZES_KB.map(|kb| kb as f64);
    let claims = vec![
        no_size_is_best(&curves),
        large_caches_take_too_much(&curves[0]),
        one_megabyte_gains(&curves),
    ];
    Findings {
        lines: lines(&curves, &across),
        claims,
    }
}

fn no_size_is_best(curves: &[Curve]) -> Claim {
    let near_best = |n: usize| curves.iter().all(|c| c.speedups[n] >= 0.95 * c.best());
    let best = |curve: &Curve| {
        let at = curve.speedups.iter().position(|&s| s == curve.best());
        format!("{} KB", SIZES_KB[at.unwrap_or(0)])
    };
    Claim {
        stated: "no cache size is perfect for all benchmarks (section 4.3)",
        tolerance: "no size is within 5 % of every workload's best",
        measured: format!("best: {}", told(curves, best)),
        holds: !(0..SIZES_KB.len()).any(near_best),
    }
}

fn large_caches_take_too_much(fft: &Curve) -> Claim {
    let (best, largest) = (fft.best(), fft.speedups[LARGEST]);
    Claim {
        stated: "very large caches are no good: they take too many pages from the applications (section 4.3)",
        tolerance: "the workload that just fits gains nothing with 4 MB, at most 1 %, and is 5 % below its best",
        measured: format!("fft: {largest:.2} times as fast as without, {best:.2} at its best"),
        holds: largest <= 1.01 && largest < 0.95 * best,
    }
}

fn one_megabyte_gains(curves: &[Curve]) -> Claim {
    let at = |curve: &Curve| curve.speedups[ONE_MB];
    let all = curves.iter().all(|curve| at(curve) > 1.0);
    Claim {
        stated:
            "with about 1 MB performance improves greatly: by 1.2 to 2.1, but for fft (section 4.3)",
        tolerance: "every workload gains, all but fft at least 1.2",
        measured: told(curves, |curve| format!("{:.2}", at(curve))),
        holds: all && curves[1..].iter().all(|curve| at(curve) >= 1.2),
    }
}

pub(super) const FIGURE6: Figure = Figure {
    name: "cervera99-figure6",
    about: "cervera99, figure 6: speed-up by cleaning threshold",
    axes: ("threshold, % of the buffers", "times faster"),
    make: figure6,
    work: 8,
};

const THRESHOLDS: [u8; 6] = [1, 5, 10, 20, 40, 70];

/// The paper's "256Mbytes" of cache are read as kilobytes: the machine has 64 MB.
fn figure6() -> Findings {
    let preset = |percent: &u8| format!("cervera99/sizing=cervera99:256K/threshold={percent}");
    let presets: Vec<String> = THRESHOLDS.iter().map(preset).collect();
    let curves = curves(&presets);
    let across = THRESHOLDS.map(f64::from);
    let claims = vec![small_thresholds_lose(&curves), larger_ones_gain(&curves)];
    Findings {
        lines: lines(&curves, &across),
        claims,
    }
}

fn small_thresholds_lose(curves: &[Curve]) -> Claim {
    let last = THRESHOLDS.len() - 1;
    let loss = |curve: &Curve| 100.0 * (curve.best() / curve.speedups[0] - 1.0);
    let more = |curve: &Curve| curve.writes[0] as f64 / curve.writes[last] as f64;
    Claim {
        stated: "too small a threshold makes many small writes, whose seeks are an overhead (section 4.3)",
        tolerance: "at 1 % every workload takes 1 % longer than at its best, with 1.5 times the writes of 70 %",
        measured: told(curves, |curve| {
            format!("{:.1} % longer, {:.1} times the writes", loss(curve), more(curve))
        }),
        holds: curves
            .iter()
            .all(|curve| loss(curve) >= 1.0 && more(curve) >= 1.5),
    }
}

fn larger_ones_gain(curves: &[Curve]) -> Claim {
    let fall = |curve: &Curve| {
        let steps = curve.speedups.windows(2);
        let falls = steps.map(|step| 100.0 * (1.0 - step[1] / step[0]));
        falls.fold(0.0, f64::max)
    };
    Claim {
        stated: "as the threshold grows performance tends to increase, and stays for one process (section 4.3)",
        tolerance: "no step up to 70 % loses more than 2 %",
        measured: told(curves, |curve| format!("{:.1} %", fall(curve))),
        holds: curves.iter().all(|curve| fall(curve) <= 2.0),
    }
}

pub(super) const FIGURE7: Figure = Figure {
    name: "cervera99-figure7",
    about: "cervera99, figure 7: what 128 MB of swap space hold",
    axes: ("% left by compression", "MB"),
    make: figure7,
    work: 2,
};

/// Swap partition, and the most that its virtual slots allow.
const SWAP_MB: f64 = 128.0;
const SLOTS_MB: f64 = 256.0;

/// Table 1: what compression leaves of each benchmark, per cent.
const RATIOS: [(&str, f64); 8] = [
    ("simulator x5", 1.1),
    ("simulator", 6.7),
    ("xanim", 27.8),
    ("xanim x4", 37.9),
    ("sort", 46.5),
    ("sort x6", 51.3),
    ("fft x10", 61.2),
    ("fft", 64.9),
];

/// Pages for each block written, as full as buffers were.
fn capacity_mb(percent: f64) -> f64 {
    let ratio = percent / 100.0;
    let workload = format!("thrasher:pages=20k,passes=2,ratio={ratio:.3},spread=0.2");
    let engine = run("cervera99", &workload).engine;
    let blocks_mb = engine.written_bytes as f64 / MB as f64;
    let pages_mb = engine.written_pages as f64 * 4096.0 / MB as f64;
    (SWAP_MB * pages_mb / blocks_mb).min(SLOTS_MB)
}

fn figure7() -> Findings {
    let of = |&(_, percent): &(&str, f64)| (percent, capacity_mb(percent));
    let points: Vec<(f64, f64)> = RATIOS.iter().map(of).collect();
    let more = points.iter().filter(|point| point.1 > 1.5 * SWAP_MB);
    let more = more.count();
    let limited = points.iter().filter(|point| point.1 == SLOTS_MB).count();
    let told = RATIOS.iter().zip(&points);
    let told = told.map(|(row, point)| format!("{} {:.0} MB", row.0, point.1));
    let measured = told.collect::<Vec<_>>().join(", ");
    let plain = Line {
        name: "uncompressed".into(),
        points: points.iter().map(|point| (point.0, SWAP_MB)).collect(),
    };
    let claims = vec![
        Claim {
            stated: "in most cases the swap space grows by more than 50 % (section 4.4)",
            tolerance: "more than half of the benchmarks' ratios give more than 192 MB",
            measured,
            holds: 2 * more > points.len(),
        },
        Claim {
            stated: "simulator and xanim would gain more than the double number of slots lets them (section 4.4)",
            tolerance: "those of 28 % and less reach the limit of 256 MB",
            measured: format!("{limited} of {} do", points.len()),
            holds: points[..3].iter().all(|point| point.1 == SLOTS_MB),
        },
    ];
    let compressed = Line {
        name: "compressed".into(),
        points,
    };
    Findings {
        lines: vec![compressed, plain],
        claims,
    }
}
