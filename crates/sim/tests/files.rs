//! Pages of files: read from there, dropped while clean, written back there, shared by processes.

mod world;

use pleat_sim::{Cpu, Device, Machine, Setup, Simulation};
use pleat_trace::{Access, ProcessNo, Reference, RegionKind, RegionNo, Source};
use pleat_types::PageNo;
use world::{Run, MB, MS};

/// No preset fills more pages at once: so many at most are read beyond the end.
const RUN_MAX: u64 = 32;

fn on_disk(workload: &'static str, preset: &'static str) -> pleat_sim::Outcome {
    Run {
        cpu: "p3",
        device: "hdd2003",
        ..Run::new(workload, preset, 8 * MB)
    }
    .outcome()
}

#[test]
fn a_file_read_once_is_never_written_and_read_in_order() {
    for preset in pleat_engine::preset_names() {
        let run = on_disk("scan:pages=8192", preset);
        assert_eq!(run.device.writes, 0, "{preset}");
        assert!(run.device.seeks <= 1, "{preset}: {:?}", run.device);
        let read = run.engine.filled_file_pages + run.engine.prefetched_pages;
        assert!((8192..8192 + RUN_MAX).contains(&read), "{preset}: {read}");
        assert_eq!(run.device.read_bytes, read * 4096, "{preset}");
    }
}

#[test]
fn neighbours_come_along_where_the_preset_reads_ahead() {
    let run = on_disk("scan:pages=8192", "pleat");
    assert!(run.device.reads < 8192 / 8, "{:?}", run.device);
    assert_eq!(on_disk("scan:pages=8192", "none").device.reads, 8192);
}

#[test]
fn a_file_that_fits_compressed_is_read_from_its_disk_once() {
    // 12 MB in 8, to a quarter; read in circles, which no uncompressed cache survives.
    let circles = "scan:pages=3072,passes=6,ratio=0.25";
    let (without, with) = (on_disk(circles, "none"), on_disk(circles, "castro03"));
    assert!(without.device.reads > 5 * 3072, "{:?}", without.device);
    assert!(with.device.reads < 2 * 3072, "{:?}", with.device);
    // Read in order, the disk is as fast as this decompresses; at random it is not.
    let random = "zipf:file=1,pages=3072,refs=20000,alpha=0.3,write=0,ratio=0.25";
    let (without, with) = (on_disk(random, "none"), on_disk(random, "castro03"));
    assert!(with.elapsed_ns * 2 < without.elapsed_ns);
}

#[test]
fn changed_pages_go_to_their_file_and_not_to_the_swap_file() {
    for preset in pleat_engine::preset_names() {
        let run = on_disk("zipf:file=1,pages=4096,refs=20000,write=0.5", preset);
        assert!(run.engine.written_back_pages > 1000, "{preset}");
        assert_eq!(run.engine.written_bytes, 0, "{preset}");
        let bytes = run.engine.written_back_pages * 4096;
        assert_eq!(run.device.write_bytes, bytes, "{preset}");
    }
}

/// Processes that read the same file from beginning to end.
struct Readers {
    at: Vec<u64>,
    pages: u64,
}

impl Source for Readers {
    fn processes(&self) -> u32 {
        self.at.len() as u32
    }

    fn regions(&self) -> &[RegionKind] {
        &[RegionKind::File]
    }

    fn next(&mut self, process: ProcessNo) -> Option<Reference> {
        let at = &mut self.at[process.0 as usize];
        *at += 1;
        (*at <= self.pages).then_some(Reference {
            think_ns: 1000,
            region: RegionNo(0),
            page: PageNo(*at - 1),
            access: Access::Read,
        })
    }

    fn compressed_bytes(&self, _region: RegionNo, _page: PageNo) -> u16 {
        2000
    }
}

#[test]
fn a_page_that_two_processes_want_is_read_once() {
    for (preset, cpus) in [("none", 1), ("none", 4), ("pleat", 1), ("pleat", 4)] {
        let machine = Machine {
            cpu: Cpu::named("modern").unwrap(),
            cpus,
            device: Device::named("cloud").unwrap(),
            slice_ns: 10 * MS,
        };
        let setup = Setup {
            preset: preset.into(),
            memory_bytes: 8 * MB,
            reserve_pages: None,
            host: None,
        };
        let mut source = Readers {
            at: vec![0; 4],
            pages: 1000,
        };
        let run = Simulation::new(&machine, &setup, &mut source).unwrap();
        let run = run.checked().run().unwrap();
        assert_eq!(run.references, 4000);
        let read = run.device.read_bytes / 4096;
        assert!(
            (1000..1000 + RUN_MAX).contains(&read),
            "{preset} on {cpus}: {read}"
        );
    }
}
