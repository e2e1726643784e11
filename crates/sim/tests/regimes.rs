//! What the papers say of a program that cycles through its memory, and what must hold of any run.

mod world;

use pleat_sim::{Host, Outcome};
use world::{Run, MB, MS};

/// castro03's machine.
fn castro(workload: &'static str, preset: &'static str, memory_bytes: u64) -> Outcome {
    Run {
        cpu: "p3",
        device: "hdd2003",
        ..Run::new(workload, preset, memory_bytes)
    }
    .outcome()
}

#[test]
fn a_cycle_that_fits_costs_nothing_but_its_first_touches() {
    for preset in ["none", "castro03", "static", "pleat"] {
        let run = castro("thrasher:pages=1500,passes=5", preset, 8 * MB);
        assert_eq!(run.references, 7500);
        assert_eq!(run.device.writes + run.device.reads, 0, "{preset}");
        assert_eq!(run.faults_from_cache(), 0, "{preset}");
        let first = run.engine.filled_zero_pages + run.engine.prezeroed_pages;
        // Zeroing ahead of a row of first touches goes a little past the end.
        assert!((1500..1516).contains(&first), "{preset}: {first}");
    }
}

#[test]
fn a_cycle_that_fits_compressed_needs_no_disk_and_is_faster_by_far() {
    // 12 MB in 8, each page compressed to about a quarter.
    let cycle = "thrasher:pages=3072,passes=8,ratio=0.25";
    let (swap, cache) = (
        castro(cycle, "none", 8 * MB),
        castro(cycle, "castro03", 8 * MB),
    );
    assert!(swap.device.reads > 15_000, "{:?}", swap.device);
    assert_eq!(cache.device.reads, 0, "{:?}", cache.device);
    assert!(cache.elapsed_ns * 3 < swap.elapsed_ns);
    // A compression, a decompression and some change for each touch.
    assert!((100_000.0..200_000.0).contains(&cache.mean_access_ns));
}

#[test]
fn a_cycle_that_does_not_fit_compressed_moves_a_quarter_of_the_bytes() {
    let cycle = "thrasher:pages=16384,passes=3,ratio=0.25";
    let (swap, cache) = (
        castro(cycle, "none", 8 * MB),
        // The paper's own pads each page to a block of the swap file.
        castro(cycle, "castro03/fragment=1024", 8 * MB),
    );
    assert!(cache.device.reads > 10_000, "{:?}", cache.device);
    assert!(cache.device.write_bytes * 5 < swap.device.write_bytes * 2);
    assert!(cache.device.read_bytes * 7 < swap.device.read_bytes * 2);
    assert!(cache.elapsed_ns < swap.elapsed_ns * 5 / 4);
}

#[test]
fn pages_that_do_not_compress_only_cost_time() {
    let cycle = "thrasher:pages=4096,passes=4,ratio=1,raw=1";
    let swap = castro(cycle, "none", 8 * MB);
    let cache = castro(cycle, "castro03", 8 * MB);
    assert!(cache.cpu.compress_ns > 0 && swap.cpu.compress_ns == 0);
    assert!(cache.elapsed_ns >= swap.elapsed_ns * 99 / 100);
}

#[test]
fn time_is_conserved() {
    for preset in ["none", "castro03", "static", "pleat"] {
        for cpus in [1, 2] {
            let run = Run {
                cpus,
                ..Run::new("thrasher:pages=4096,passes=4", preset, 8 * MB)
            };
            let run = run.outcome();
            for process in &run.processes {
                let accounted = process.cpu.total() + process.wait.total();
                assert_eq!(process.elapsed_ns, accounted, "{preset} on {cpus}");
            }
            // 1000 ns of thinking before each reference.
            assert_eq!(run.cpu.user_ns, run.references * 1000);
        }
    }
}

#[test]
fn the_same_run_twice_is_the_same() {
    let mix =
        "thrasher:pages=2000,passes=3+zipf:pages=3000,refs=20000+zipf:pages=1000,refs=9000,seed=4";
    for cpus in [1, 3] {
        let run = Run {
            cpus,
            ..Run::new(mix, "pleat", 8 * MB)
        };
        assert_eq!(run.outcome(), run.outcome());
    }
}

#[test]
fn more_cpus_are_never_slower_for_independent_processes() {
    let four = "zipf:pages=1500,refs=20000+zipf:pages=1500,refs=20000,seed=2\
                +zipf:pages=1500,refs=20000,seed=3+thrasher:pages=1500,passes=3";
    for preset in ["none", "castro03", "pleat"] {
        let elapsed = |cpus| {
            let run = Run {
                cpus,
                ..Run::new(four, preset, 32 * MB)
            };
            run.outcome().elapsed_ns
        };
        let (one, two, four) = (elapsed(1), elapsed(2), elapsed(4));
        assert!(two <= one, "{preset}: {one} on one CPU, {two} on two");
        assert!(four <= two, "{preset}: {two} on two CPUs, {four} on four");
    }
}

#[test]
fn processes_that_only_compute_share_cpus_fairly() {
    let two = "thrasher:pages=100,passes=1000+thrasher:pages=100,passes=1000";
    let run = |cpus| {
        let run = Run {
            cpus,
            ..Run::new(two, "none", 8 * MB)
        };
        run.outcome()
    };
    let (one, both) = (run(1), run(2));
    let alone = both.elapsed_ns;
    assert!((2 * alone..2 * alone + 10 * MS).contains(&one.elapsed_ns));
    assert_eq!(both.cpu.switch_ns, 0);
    assert!(one.cpu.switch_ns > 0);
    // They take turns, so they end within a slice of each other.
    let [first, second] = [0, 1].map(|n| one.processes[n].elapsed_ns);
    assert!(second - first <= 11 * MS, "{first} {second}");
}

#[test]
fn a_second_cpu_takes_folding_off_a_program_under_a_pager() {
    let run = |cpus| {
        let run = Run {
            cpus,
            ..Run::new(
                "zipf:pages=6000,refs=60000,alpha=0.6,think_ns=20000",
                "pleat",
                16 * MB,
            )
        };
        run.outcome()
    };
    let (alone, beside) = (run(1), run(2));
    assert_eq!(alone.beside.total(), 0);
    assert!(beside.beside.compress_ns > beside.cpu.compress_ns / 2);
    assert!(beside.elapsed_ns < alone.elapsed_ns);
}

#[test]
fn who_sees_no_uses_takes_pages_that_are_in_use() {
    let faults = |host| {
        let run = Run {
            host: Some(host),
            ..Run::new("zipf:pages=6000,refs=100000", "pleat", 16 * MB)
        };
        run.outcome().faults_from_cache()
    };
    let (seen, unseen) = (faults(Host::Pager), faults(Host::Run));
    assert!(unseen * 100 > seen * 105, "{unseen} and {seen}");
}

#[test]
fn too_little_memory_is_said_and_not_hung_on() {
    let run = Run::new("thrasher:pages=100", "pleat", 100 << 10);
    let error = run.try_outcome().unwrap_err().to_string();
    assert!(error.contains("give at least"), "{error}");
}

#[test]
fn names_that_do_not_exist_are_answered_with_the_list() {
    let error = Run::new("thrasher:pages=9", "magic", MB).try_outcome();
    let error = error.unwrap_err().to_string();
    assert!(error.contains("magic") && error.contains("none"), "{error}");
}
