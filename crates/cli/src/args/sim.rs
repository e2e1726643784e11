//! The flags of `pleat sim`.

use clap::ValueEnum;
use pleat_engine::{preset_keys, preset_names};
use pleat_sim::{cpus, devices};
use std::fmt::Write;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  A program that goes round and round through 256 MB, in half of that, on a disk of 2003:
      pleat sim --workload thrasher:pages=65536,ratio=0.3 --memory 128M --preset castro03,pleat \\
                --cpu p3 --device hdd2003
  Three processes on two CPUs, on a disk of your own:
      pleat sim --workload 'zipf:pages=50000+zipf:pages=50000,seed=2+scan:pages=100000' \\
                --memory 256M --cpus 2 --device mine.toml
  A recorded trace, over several sizes of memory, as a plot:
      pleat sim --trace sort.trace --memory 64M,96M,128M,192M,256M --preset pleat,castro03 \\
                --svg sort.svg
  How near the choice of victims comes to LRU and to OPT:
      pleat sim --misses --trace sort.trace --memory 60%,40%
  A preset with one part replaced; the figures as JSON:
      pleat sim --workload web --memory 256M --preset pleat,pleat/sizing=castro03 --json | jq .engine

A device file, here with the figures of hdd2003; all but the first four may be missing:
  read_latency_us = 200     # from submission until data flows, without moving the head
  write_latency_us = 200
  read_mb_per_s = 35
  write_mb_per_s = 35
  depth = 1                 # requests served at once
  requests_per_s = 0        # the most that begin in a second; 0: as many as come
  seek_us = 8500            # on average; 0: there is no head
  track_us = 1200           # to the next track
  half_turn_us = 4170       # waited for after each seek
  buffer_kb = 2000          # of what was read last, to be read again without moving
  capacity_mb = 60000

Time is virtual: what the engine does is real, what it does to memory, CPU and disk only costs what the
figures of CPU and device say. The same command gives the same result. /none is the speed-up against
swapping without a compressed cache, which is always simulated too.

Exit status:
  0 when all was simulated; 2 for a mistake on the command line or in a file; 125 when a workload
  does not fit its memory at all, or the output could not be written.";

/// The flags of `pleat sim`, unchecked.
#[derive(Debug, Clone, clap::Args)]
pub struct SimArgs {
    /// Replay page references from FILE
    #[arg(long, value_name = "FILE", required_unless_present = "workload")]
    pub trace: Option<PathBuf>,

    /// Compute page references: NAME:PARAMETER=VALUE,... and + between processes; see below
    #[arg(long, value_name = "SPEC", conflicts_with = "trace")]
    pub workload: Option<String>,

    /// Memory of programs and compressed cache together; several sizes, separated by commas, for a
    /// sweep. With --misses also per cent of the pages touched
    #[arg(long, value_name = "SIZE", value_delimiter = ',', required = true)]
    pub memory: Vec<String>,

    #[arg(long, value_name = "NAME", value_delimiter = ',', help = presets_help())]
    pub preset: Vec<String>,

    /// Where pages go that do not fit; see below
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "nvme")]
    pub device: String,

    /// Whose costs; see below
    #[arg(long, value_name = "NAME", default_value = "modern")]
    pub cpu: String,

    /// How many of them
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cpus: u32,

    /// Who does the paging. By default a pager for pleat and static, the kernel for all others
    #[arg(long, value_enum)]
    pub host: Option<SimHost>,

    /// Print one JSON object a line instead of the table: preset, memory_bytes, speedup (against
    /// none), elapsed_ns, references, mean_access_ns, cpu, wait, processes, beside, device, and
    /// engine, which has the fields of 'pleat run --stats'
    #[arg(long)]
    pub json: bool,

    /// Only count pages brought in, without compressed cache and time: what the choice of victims of each
    /// preset, run as a pager that sees nothing but faults, does in so many page frames, beside opt
    /// (which knows the future), lru, clock, fifo, and staged:10 (fifo with an inactive list of 10 % of
    /// memory; --preset takes other shares)
    #[arg(long, conflicts_with = "svg")]
    pub misses: bool,

    /// Also plot time against memory to FILE, a line for each preset
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Who does the paging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SimHost {
    /// Cheap faults; compresses in the process that needs memory
    Kernel,
    /// A process beside, as pleat's: dearer faults; compresses on another CPU if there is one
    Pager,
    /// As pager, but uses of memory are not seen, only faults: as in 'pleat run'
    Run,
}

fn presets_help() -> String {
    format!(
        "Presets, separated by commas; by default {}: {}. Parts can be replaced, as in \
         castro03/layout=cells1; the keys are {}",
        preset_names()[0],
        preset_names().join(", "),
        preset_keys()
    )
}

/// What follows the flags in the help.
pub fn examples() -> String {
    let mut text = String::from("Workloads:\n");
    for help in pleat_trace::generators() {
        let _ = writeln!(text, "  {:<11} {}", help.name, help.about);
        let settings = help.parameters.iter();
        let settings: Vec<String> = settings
            .map(|parameter| format!("{}={}", parameter.name, parameter.default))
            .collect();
        for line in settings.chunks(6) {
            let _ = writeln!(text, "  {:<11} {}", "", line.join(", "));
        }
    }
    list(&mut text, "Devices", devices());
    list(&mut text, "CPUs", cpus());
    text + "\n" + EXAMPLES
}

fn list(text: &mut String, title: &str, all: impl Iterator<Item = (&'static str, &'static str)>) {
    let _ = writeln!(text, "\n{title}:");
    for (name, about) in all {
        let _ = writeln!(text, "  {name:<11} {about}");
    }
}
