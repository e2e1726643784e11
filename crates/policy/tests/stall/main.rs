//! What the decisions of sizing policies cost in stall time, on patterns of touches whose best size is found
//! by trying them all.
//!
//! `cargo test --release -p pleat-policy --test stall -- --ignored --nocapture` prints the table.

mod lru;
mod memory;
mod workload;

use memory::{Machine, Memory};
use pleat_policy::{sizing_by_name, Costs};
use workload::Pattern::{self, Cycle, HotAndCycle, Random, Zipf};
use workload::Workload;

const MACHINE: Machine = Machine {
    frames: 1024,
    ratio_percent: 40,
    costs: Costs {
        compress_ns: 8_000,
        decompress_ns: 6_000,
        read_ns: 40_000,
        write_ns: 8_000,
    },
};

/// Touches in a run: 250 times the memory.
const TOUCHES: u64 = 256_000;

type Phases = Vec<(Pattern, u64)>;

/// Stall of a run, in microseconds a touch.
fn stall_us(sizing: &str, phases: &Phases) -> f64 {
    let mut memory = Memory::new(MACHINE, sizing_by_name(sizing).unwrap());
    let mut workload = Workload::new(1);
    for &(pattern, touches) in phases {
        for _ in 0..touches {
            memory.touch(workload.next(pattern, MACHINE.frames));
        }
    }
    let touches: u64 = phases.iter().map(|phase| phase.1).sum();
    memory.stall_ns as f64 / 1000.0 / touches as f64
}

/// Stall with each static size from none on, per cent.
fn static_stalls(phases: &Phases) -> Vec<(f64, u64)> {
    let stall = |percent| (stall_us(&format!("static:{percent}%"), phases), percent);
    (0..=90).step_by(10).map(stall).collect()
}

fn one(pattern: Pattern) -> Phases {
    vec![(pattern, TOUCHES)]
}

fn alternating(one: Pattern, other: Pattern) -> Phases {
    [one, other]
        .repeat(4)
        .iter()
        .map(|&pattern| (pattern, TOUCHES / 8))
        .collect()
}

fn cases() -> Vec<Phases> {
    vec![
        one(Cycle { percent: 95 }),
        one(Cycle { percent: 110 }),
        one(Cycle { percent: 210 }),
        one(Cycle { percent: 400 }),
        one(Random { percent: 110 }),
        one(Random { percent: 300 }),
        one(Zipf { percent: 150 }),
        one(Zipf { percent: 1000 }),
        one(HotAndCycle {
            hot_percent: 60,
            percent: 70,
        }),
        one(HotAndCycle {
            hot_percent: 80,
            percent: 100,
        }),
        one(HotAndCycle {
            hot_percent: 80,
            percent: 1000,
        }),
        alternating(Zipf { percent: 300 }, Cycle { percent: 180 }),
        alternating(Random { percent: 99 }, Cycle { percent: 400 }),
    ]
}

#[test]
#[ignore = "prints a table"]
fn table() {
    let names = [
        "pleat",
        "balance:60%",
        "castro03",
        "sluggish",
        "aggressive",
        "kaplan99",
        "cpc08",
    ];
    println!("stall, us a touch; best static size; none; {names:?}");
    for phases in cases() {
        let statics = static_stalls(&phases);
        let best = statics
            .iter()
            .copied()
            .min_by(|one, other| one.0.total_cmp(&other.0))
            .unwrap();
        print!("{:6.2} at {:2}%  {:6.2}  ", best.0, best.1, statics[0].0);
        for name in names {
            print!("{:6.2} ", stall_us(name, &phases));
        }
        println!("  {:?}", phases[0].0);
    }
}

#[test]
fn pleat_is_never_slower_than_the_best_static_size_or_no_cache_at_all() {
    for phases in cases() {
        let statics = static_stalls(&phases);
        let best = statics
            .iter()
            .map(|stall| stall.0)
            .fold(f64::INFINITY, f64::min);
        let (none, pleat) = (statics[0].0, stall_us("pleat", &phases));
        assert!(
            pleat <= best * 1.02 + 0.01,
            "{phases:?}: {pleat}, best static {best}"
        );
        assert!(
            pleat <= none * 1.01 + 0.01,
            "{phases:?}: {pleat}, without {none}"
        );
    }
}
