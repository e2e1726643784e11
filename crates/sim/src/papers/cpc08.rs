//! cpc08 (section 4): what a server whose bottleneck is the bandwidth of its disk gains from a share of
//! memory that holds compressed pages.
//!
//! The paper: two PowerPC 970, 4 GB of memory, files of 17 GB and more chosen by Zipf with alpha 0.4, which
//! compress to 40 %, a disk that gives 43 MB/s; three quarters of memory hold compressed pages. Here it
//! is a 64th, with four servers and a disk of 35 MB/s. The share is held (`static`): left to its LRU alone
//! the preset compresses a sixth of memory, whatever the share allows, because in one list of both kinds
//! there are as many compressed pages as others. Its line shows that.

use super::{Claim, Figure, Findings, Line, Run, MB};

pub(super) const SHARE: Figure = Figure {
    name: "cpc08-share",
    about: "cpc08: throughput of a file server by share of memory compressed",
    axes: ("% of memory for compressed pages", "requests a second"),
    make: share,
    work: 3,
};

const MEMORY_BYTES: u64 = 64 * MB;
const SHARES: [u32; 4] = [25, 50, 75, 90];
/// The share that the paper measures.
const PAPER: usize = 2;
/// Servers, and what each does.
const SERVERS: u32 = 4;
const SERVER: &str = "web:pages=32k,alpha=0.4,refs=20k,ratio=0.4,raw=0,think_ns=20000";

fn throughput(preset: &str, memory_bytes: u64) -> f64 {
    let servers = (1..=SERVERS).map(|seed| format!("{SERVER},seed={seed}"));
    let workload = servers.collect::<Vec<_>>().join("+");
    let run = Run {
        cpu: "ppc970",
        cpus: 2,
        device: "hdd2003",
        workload: &workload,
        preset,
        memory_bytes,
    };
    let outcome = run.outcome();
    outcome.references as f64 * 1e9 / outcome.elapsed_ns as f64
}

fn share() -> Findings {
    let without = throughput("none", MEMORY_BYTES);
    let twice = throughput("none", 2 * MEMORY_BYTES);
    let with = |sizing: &str, percent: u32| {
        throughput(&format!("cpc08/sizing={sizing}:{percent}%"), MEMORY_BYTES)
    };
    let held = SHARES.map(|percent| with("static", percent));
    let own = throughput("cpc08", MEMORY_BYTES);
    let line = |name: &str, values: [f64; SHARES.len()]| Line {
        name: name.into(),
        points: std::iter::once((0.0, without))
            .chain(SHARES.map(f64::from).into_iter().zip(values))
            .collect(),
    };
    let flat = |name: &str, value: f64| Line {
        name: name.into(),
        points: vec![(0.0, value), (f64::from(SHARES[SHARES.len() - 1]), value)],
    };
    let gain = |value: f64| 100.0 * (value / without - 1.0);
    let gains: Vec<String> = SHARES
        .iter()
        .zip(held)
        .map(|(percent, value)| format!("{percent} %: {:+.1} %", gain(value)))
        .collect();
    let rises = std::iter::once(without).chain(held);
    let rises: Vec<f64> = rises.collect();
    let claims = vec![
        Claim {
            stated: "with 75 % compressed a server of 4 GB performs nearly as well as one of 8 GB (sections 4.3, 5)",
            tolerance: "at least 80 % of the gain that twice the memory brings",
            measured: format!("{:+.1} % against {:+.1} %", gain(held[PAPER]), gain(twice)),
            holds: gain(twice) > 0.0 && gain(held[PAPER]) >= 0.8 * gain(twice),
        },
        Claim {
            stated: "more memory for compressed pages means fewer disk accesses and more throughput (section 4.3)",
            tolerance: "every larger share up to 90 % is faster",
            measured: gains.join(", "),
            holds: rises.windows(2).all(|pair| pair[0] < pair[1]),
        },
    ];
    Findings {
        lines: vec![
            line("share held", held),
            flat("cpc08's LRU", own),
            flat("twice the memory", twice),
        ],
        claims,
    }
}
