//! How fast simulating goes: `cargo run --release -p pleat-sim --example speed`.
//!
//! References that hit, on a Zipf workload that fits, and what a page that comes and goes takes the
//! engine and the driver together, in a cycle that does not fit. The generator's own time, measured alone, is
//! taken off both.

use std::time::Instant;

use pleat_sim::{Cpu, Device, Machine, Outcome, Setup, Simulation};
use pleat_trace::{generator, ProcessNo};

const HITS: &str = "zipf:pages=65536,alpha=0.9,refs=30M,think_ns=100";
const MISSES: &str = "thrasher:pages=65536,passes=24,ratio=0.3,think_ns=100";

/// Seconds that the source alone takes.
fn source_seconds(spec: &str) -> f64 {
    let mut source = generator(spec).expect("a generator");
    let start = Instant::now();
    while source.next(ProcessNo(0)).is_some() {}
    start.elapsed().as_secs_f64()
}

fn simulate(spec: &str, preset: &str, memory_bytes: u64) -> (f64, Outcome) {
    let machine = Machine {
        cpu: Cpu::named("modern").expect("a CPU"),
        cpus: 1,
        device: Device::named("nvme").expect("a device"),
        slice_ns: 10_000_000,
    };
    let setup = Setup {
        preset: preset.into(),
        memory_bytes,
        reserve_pages: None,
        host: None,
    };
    let mut source = generator(spec).expect("a generator");
    let start = Instant::now();
    let simulation = Simulation::new(&machine, &setup, &mut *source).expect("a setup");
    let outcome = simulation.run().expect("enough memory");
    (start.elapsed().as_secs_f64(), outcome)
}

fn main() {
    let alone = source_seconds(HITS);
    let (seconds, outcome) = simulate(HITS, "pleat", 1 << 30);
    let million = outcome.references as f64 / 1e6;
    println!(
        "hits, with the generator     {:>7.1} million/s",
        million / seconds
    );
    println!(
        "hits, without                {:>7.1} million/s",
        million / (seconds - alone)
    );
    for preset in pleat_engine::preset_names() {
        let alone = source_seconds(MISSES);
        let (seconds, outcome) = simulate(MISSES, preset, 128 << 20);
        // A fault brings up to 16 pages where the preset reads ahead.
        let engine = &outcome.engine;
        let pages = outcome.faults() + engine.prefetched_pages + engine.prezeroed_pages;
        let ns = (seconds - alone) * 1e9 / pages as f64;
        println!("{:<28} {ns:>7.0} ns a page", format!("faults, {preset}"));
    }
}
