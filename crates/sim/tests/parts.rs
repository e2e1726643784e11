//! Runs of which only a part is wanted, and memory that is not to be had.

mod world;

use pleat_sim::{Cpu, Device, Machine, Outcome, Setup, Simulation};
use world::{MB, MS};

fn outcome(workload: &str, memory_bytes: u64, change: fn(Simulation) -> Simulation) -> Outcome {
    let machine = Machine {
        cpu: Cpu::named("p3").unwrap(),
        cpus: 1,
        device: Device::named("hdd2003").unwrap(),
        slice_ns: 50 * MS,
    };
    let setup = Setup {
        preset: "castro03/sizing=static:4M".into(),
        memory_bytes,
        host: None,
        reserve_pages: None,
    };
    let mut source = pleat_trace::generator(workload).unwrap();
    let simulation = Simulation::new(&machine, &setup, &mut *source).unwrap();
    change(simulation.checked()).run().unwrap()
}

#[test]
fn a_run_ends_with_the_processes_that_were_named() {
    let two = "thrasher:pages=500,passes=100+thrasher:pages=2000,passes=100000";
    let run = outcome(two, 16 * MB, |simulation| simulation.until(1));
    let [named, other] = &run.processes[..] else {
        panic!("two processes");
    };
    assert_eq!(named.references, 50_000);
    assert!(other.references > 10_000 && other.references < 1_000_000);
    for process in &run.processes {
        let accounted = process.cpu.total() + process.wait.total();
        assert_eq!(process.elapsed_ns, accounted);
        assert!(process.elapsed_ns <= run.elapsed_ns);
    }
}

#[test]
fn memory_held_for_the_cache_is_nobody_elses() {
    // 12 MB in 16: all of it fits, unless 6 are held for a cache that it would not need.
    let fits = "thrasher:pages=3072,passes=5";
    let free = outcome(fits, 16 * MB, |simulation| simulation);
    let held = outcome(fits, 16 * MB, |simulation| simulation.holding(6 * MB));
    assert_eq!(free.faults_from_cache(), 0);
    assert!(
        held.faults_from_cache() > 2000,
        "{}",
        held.faults_from_cache()
    );
    // As if there were less memory, but for what the cache then uses.
    let less = outcome(fits, 10 * MB, |simulation| simulation);
    assert!(held.elapsed_ns < less.elapsed_ns);
}

#[test]
fn memory_held_that_is_used_anyway_makes_no_difference() {
    let large = "zipf:pages=8000,refs=60000";
    let free = outcome(large, 16 * MB, |simulation| simulation);
    let held = outcome(large, 16 * MB, |simulation| simulation.holding(4 * MB));
    let difference = free.elapsed_ns.abs_diff(held.elapsed_ns);
    assert!(difference * 50 < free.elapsed_ns, "{difference}");
}

/// Processes that use the disk do not also wait for one that never does (section 4.4 of castro03).
#[test]
fn who_waits_for_the_disk_goes_before_who_only_computes() {
    let two = "zipf:pages=60000,file=1,write=0,alpha=0,refs=2000+thrasher:pages=100,passes=1000000";
    let run = outcome(two, 16 * MB, |simulation| simulation.until(1));
    let [reader, computer] = &run.processes[..] else {
        panic!("two processes");
    };
    assert!(reader.wait.read_ns > 1000 * MS);
    assert!(reader.wait.cpu_ns < reader.wait.read_ns / 20, "{reader:?}");
    assert!(
        computer.cpu.user_ns > run.elapsed_ns * 9 / 10,
        "{computer:?}"
    );
}
