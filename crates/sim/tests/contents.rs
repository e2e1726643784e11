//! Whatever the preset, the machine and the workload: no page ever comes back with another content
//! than was written last, time adds up, and a run is the same every time.

use pleat_sim::{cpus, devices, Cpu, Device, Host, Machine, Setup, Simulation};
use proptest::prelude::*;

/// One of the things that a process does.
fn workload() -> impl Strategy<Value = String> {
    let memory = "ratio=0.5,raw=0.2,same=0.1";
    prop_oneof![
        (200..3000u64, 1..4u64, 0..3u8).prop_map(move |(pages, passes, write)| format!(
            "thrasher:pages={pages},passes={passes},write={},{memory}",
            f64::from(write) / 2.0
        )),
        (200..3000u64, 1..4u64, 0..2u8).prop_map(move |(pages, passes, write)| format!(
            "scan:pages={pages},passes={passes},write={write},{memory}"
        )),
        (200..3000u64, 0..10u8, 0..2u8, any::<u32>()).prop_map(
            move |(pages, alpha, file, seed)| format!(
                "zipf:pages={pages},refs=6000,alpha={},file={file},seed={seed},{memory}",
                f64::from(alpha) / 5.0
            )
        ),
    ]
}

fn names(all: impl Iterator<Item = (&'static str, &'static str)>) -> Vec<&'static str> {
    all.map(|(name, _)| name).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_page_holds_what_was_written_last(
        workloads in prop::collection::vec(workload(), 1..4),
        preset in prop::sample::select(pleat_engine::preset_names()),
        cpu in prop::sample::select(names(cpus())),
        device in prop::sample::select(names(devices())),
        count in 1..4u32,
        host in prop::sample::select(vec![None, Some(Host::Run)]),
        memory_kib in 1024..8192u64,
    ) {
        let machine = Machine {
            cpu: Cpu::named(cpu).unwrap(),
            cpus: count,
            device: Device::named(device).unwrap(),
            slice_ns: 1_000_000,
        };
        let setup = Setup {
            preset: preset.into(),
            memory_bytes: memory_kib << 10,
            reserve_pages: None,
            host,
        };
        let spec = workloads.join("+");
        let run = || {
            let mut source = pleat_trace::generator(&spec).unwrap();
            let simulation = Simulation::new(&machine, &setup, &mut *source).unwrap();
            let mut outcome = simulation.checked().run().unwrap();
            // The capacity of hash tables, which differs from run to run.
            outcome.engine.engine_metadata_bytes = 0;
            outcome
        };
        let outcome = run();
        for process in &outcome.processes {
            prop_assert_eq!(process.elapsed_ns, process.cpu.total() + process.wait.total());
        }
        prop_assert_eq!(run(), outcome);
    }
}
