//! Every workload of `pleat trace`, at three sizes of memory, on four devices: how pleat's sizing policy
//! does against the best static size, against no compressed cache, and against the policy of castro03,
//! all else being the same.
//!
//! `cargo run --release -p pleat-sim --example contest -- [--cpus N] [--sizing NAME] [--sees-uses] [WORKLOAD]...`,
//! some minutes on two CPUs. Without `--sees-uses` it is as in `pleat run`, which hears of faults only. A line for
//! each case: time without a compressed cache in seconds, and the times of the others as shares of that; `best` is
//! the best static size. The last lines count.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use pleat_sim::{Cpu, Device, Host, Machine, Setup, Simulation};
use pleat_trace::{generator, ProcessNo, Source};

const WORKLOADS: [&str; 12] = [
    "thrasher:pages=12000,passes=12",
    "scan:pages=40000,passes=4",
    "zipf:pages=16384,refs=500000",
    "stack:pages=16384,working_set=10000,refs=500000",
    "sort:pages=8000,run=256",
    "quicksort:pages=8000,run=256",
    "hash:pages=12000,build=150000,probe=250000",
    "compile:jobs=2,units=40,heap=3000,headers=4096,text=3072",
    "web:pages=24000,refs=400000",
    "matlab:pages=20000,working_set=7000,refs=400000",
    "mummer:pages=16384,working_set=12000,refs=400000",
    "memload:pages=12000,passes=10",
];
/// Hundredths of the pages that a workload touches.
const MEMORY_PERCENT: [u64; 3] = [30, 50, 75];
const DEVICES: [&str; 4] = ["hdd2003", "hdd", "cloud", "nvme"];
const STATIC_PERCENT: [u64; 7] = [5, 15, 30, 45, 60, 75, 90];
/// Workloads touch 50 to 150 MB, a small part of what is common with such disks, and would fit into the
/// buffer of one of today: it is made smaller in proportion.
const BUFFER_SHARE: f64 = 1.0 / 16.0;
const SLICE_NS: u64 = 10_000_000;

struct Flags {
    cpus: u32,
    sizing: String,
    host: Host,
    workloads: Vec<String>,
}

struct Case<'a> {
    workload: &'a str,
    memory_bytes: u64,
    percent: u64,
    device: &'a str,
}

/// Seconds of each.
struct Times {
    none: f64,
    best: f64,
    best_percent: u64,
    castro: f64,
    pleat: f64,
}

fn main() {
    let flags = flags();
    let mut cases = Vec::new();
    for workload in &flags.workloads {
        let pages = footprint(workload);
        for percent in MEMORY_PERCENT {
            for device in DEVICES {
                let memory_bytes = pages * percent / 100 * 4096;
                cases.push(Case {
                    workload,
                    memory_bytes,
                    percent,
                    device,
                });
            }
        }
    }
    let times = on_all_cpus(&cases, |case| times(case, &flags));
    println!(
        "workload   memory device   none, s  best static  castro03  {}",
        flags.sizing
    );
    for (case, times) in cases.iter().zip(&times) {
        let share = |seconds: f64| seconds / times.none;
        let name = case.workload.split(':').next().unwrap_or_default();
        println!(
            "{name:<10} {:>4} % {:<8} {:>8.2} {:>6.3} {:>2} % {:>9.3} {:>6.3}{}",
            case.percent,
            case.device,
            times.none,
            share(times.best),
            times.best_percent,
            share(times.castro),
            share(times.pleat),
            if is_behind(times) { "  <--" } else { "" }
        );
    }
    summary(&times, &flags.sizing);
}

fn is_behind(times: &Times) -> bool {
    times.pleat > times.best * 1.02 || times.pleat > times.none * 1.01
}

fn summary(times: &[Times], sizing: &str) {
    let count = |is: &dyn Fn(&Times) -> bool| times.iter().filter(|times| is(times)).count();
    let mean = |of: &dyn Fn(&Times) -> f64| {
        let logs: f64 = times
            .iter()
            .map(|times| (of(times) / times.none).ln())
            .sum();
        (logs / times.len() as f64).exp()
    };
    let cases = times.len();
    println!(
        "{cases} cases; {sizing} more than 2 % behind the best static size in {}, more than 1 % behind none in {}",
        count(&|times| times.pleat > times.best * 1.02),
        count(&|times| times.pleat > times.none * 1.01)
    );
    println!(
        "geometric means of time, none = 1: best static {:.3}, castro03 {:.3}, {sizing} {:.3}",
        mean(&|times| times.best),
        mean(&|times| times.castro),
        mean(&|times| times.pleat)
    );
}

fn flags() -> Flags {
    let mut flags = Flags {
        cpus: 1,
        sizing: "pleat".to_owned(),
        host: Host::Run,
        workloads: Vec::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().expect("a value after the flag");
        match word.as_str() {
            "--cpus" => flags.cpus = value().parse().expect("--cpus takes a number"),
            "--sizing" => flags.sizing = value(),
            "--sees-uses" => flags.host = Host::Pager,
            _ => flags.workloads.push(word),
        }
    }
    if flags.workloads.is_empty() {
        flags.workloads = WORKLOADS.map(str::to_owned).to_vec();
    }
    flags
}

/// Pages that a workload touches.
fn footprint(workload: &str) -> u64 {
    let mut source = source(workload);
    let mut pages = BTreeSet::new();
    for process in 0..source.processes() {
        while let Some(reference) = source.next(ProcessNo(process)) {
            pages.insert((reference.region, reference.page));
        }
    }
    pages.len() as u64
}

fn source(workload: &str) -> Box<dyn Source> {
    generator(workload).unwrap_or_else(|error| panic!("{error}"))
}

fn times(case: &Case, flags: &Flags) -> Times {
    let seconds = |parts: &str| seconds(case, flags, &format!("pleat/{parts}"));
    let none = seconds("sizing=static:0/codec=raw/admission=onlydirty");
    let fixed =
        STATIC_PERCENT.map(|percent| (seconds(&format!("sizing=static:{percent}%")), percent));
    let best = fixed.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let (best, best_percent) = best.expect("several");
    Times {
        none,
        best,
        best_percent,
        castro: seconds("sizing=castro03"),
        pleat: seconds(&format!("sizing={}", flags.sizing)),
    }
}

fn seconds(case: &Case, flags: &Flags, preset: &str) -> f64 {
    let device = Device::named(case.device).expect("a known device");
    let machine = Machine {
        cpu: Cpu::named("modern").expect("a known CPU"),
        cpus: flags.cpus,
        device: Device {
            buffer_kb: device.buffer_kb * BUFFER_SHARE,
            ..device
        },
        slice_ns: SLICE_NS,
    };
    let setup = Setup {
        preset: preset.to_owned(),
        memory_bytes: case.memory_bytes,
        reserve_pages: None,
        host: Some(flags.host),
    };
    let mut source = source(case.workload);
    let simulation = Simulation::new(&machine, &setup, &mut *source);
    let outcome = simulation.and_then(Simulation::run);
    let outcome = outcome.unwrap_or_else(|error| panic!("{} {preset}: {error}", case.workload));
    outcome.elapsed_ns as f64 / 1e9
}

fn on_all_cpus<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else {
                return done;
            };
            done.push((index, work(item)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let done = workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("no panic"));
        done.collect()
    });
    all.sort_by_key(|&(index, _)| index);
    all.into_iter().map(|(_, result)| result).collect()
}
