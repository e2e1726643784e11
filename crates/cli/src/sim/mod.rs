//! `pleat sim`: a workload under several presets and sizes of memory, as a table, JSON or a plot.
//!
//! Simulating itself is `pleat_sim`; here are only the ways in (names, files) and out.

mod misses;
mod plot;
mod table;

use crate::args::{SimArgs, SimHost};
use crate::exit::{Exit, Stop};
use crate::output::{create, print};
use crate::progress::{Counted, Progress};
use crate::size::parse_size;
use pleat_sim::{Cpu, Device, Failure, Host, Machine, Outcome, Setup, Simulation};
use pleat_trace::{generator, Reader, Source};
use serde::Serialize;
use std::path::Path;

/// What everything is compared with.
const NONE: &str = "none";
/// How long a process runs while others wait.
const SLICE_NS: u64 = 10_000_000;

/// One simulation that is over: a line of the table, and of `--json`.
#[derive(Serialize)]
struct Row {
    preset: String,
    memory_bytes: u64,
    /// How many times as fast as without a compressed cache.
    speedup: f64,
    #[serde(flatten)]
    outcome: Outcome,
}

/// Where references come from, as often as they are needed.
enum References {
    Trace(Reader),
    Workload(String),
}

/// Simulates and prints.
pub fn sim(raw: &SimArgs) -> Exit {
    Stop::exit(show(raw))
}

fn show(raw: &SimArgs) -> Result<(), Stop> {
    if raw.misses {
        return misses::show(raw);
    }
    let machine = machine(raw)?;
    let sizes = sizes(&raw.memory)?;
    let presets = presets(&raw.preset)?;
    let references = References::of(raw)?;
    let svg = raw.svg.as_deref().map(|file| create(file, "--svg"));
    let svg = svg.transpose()?;
    let mut rows = Vec::new();
    let simulations = (sizes.len() * presets.len()) as u64;
    let progress = Progress::of("simulating", None);
    for memory_bytes in sizes {
        for preset in &presets {
            let setup = Setup {
                preset: preset.clone(),
                memory_bytes,
                reserve_pages: None,
                host: raw.host.map(Host::from),
            };
            let source = Counted::of(references.source(), &progress);
            rows.push(simulate(&machine, setup, source)?);
            if rows.len() == 1 {
                // Each goes through the same references.
                progress.expect(progress.done() * simulations);
            }
        }
    }
    drop(progress);
    compare(&mut rows);
    if let Some(svg) = svg {
        svg.write(&plot::plot(&rows))?;
    }
    print(&match raw.json {
        true => rows.iter().map(json_line).collect(),
        false => table::tables(&rows),
    })
}

fn machine(raw: &SimArgs) -> Result<Machine, Stop> {
    Ok(Machine {
        cpu: Cpu::named(&raw.cpu).map_err(Stop::mistake)?,
        cpus: raw.cpus,
        device: device(&raw.device)?,
        slice_ns: SLICE_NS,
    })
}

/// A device by name, or from a file.
fn device(name: &str) -> Result<Device, Stop> {
    if !name.ends_with(".toml") {
        return Device::named(name).map_err(Stop::mistake);
    }
    let text = std::fs::read_to_string(name).map_err(|error| {
        Stop::mistake(format!(
            "cannot read {name}: {error}: name a file that 'pleat sim --help' describes"
        ))
    })?;
    Device::from_toml(&text).map_err(|error| Stop::mistake(format!("{name}: {error}")))
}

fn sizes(given: &[String]) -> Result<Vec<u64>, Stop> {
    let size = |text: &String| parse_size(text).map_err(|error| Stop::mistake(error.to_string()));
    given.iter().map(size).collect()
}

/// The presets named, each once, after what they are compared with.
fn presets(given: &[String]) -> Result<Vec<String>, Stop> {
    let mut presets = vec![NONE.to_owned()];
    let default = [pleat_engine::preset_names()[0].to_owned()];
    let given = if given.is_empty() { &default } else { given };
    for name in given {
        // Before anything is simulated: a mistake in the last name shows at once.
        pleat_engine::preset(name).map_err(Stop::mistake)?;
        if !presets.contains(name) {
            presets.push(name.clone());
        }
    }
    Ok(presets)
}

impl References {
    fn of(raw: &SimArgs) -> Result<References, Stop> {
        match (&raw.trace, &raw.workload) {
            (Some(file), _) => trace(file).map(References::Trace),
            (None, Some(spec)) => {
                generator(spec).map_err(|error| Stop::mistake(error.to_string()))?;
                Ok(References::Workload(spec.clone()))
            }
            (None, None) => unreachable!("the parser wants one of them"),
        }
    }

    /// From their beginning.
    fn source(&self) -> Box<dyn Source> {
        match self {
            References::Trace(reader) => Box::new(reader.clone()),
            References::Workload(spec) => generator(spec).expect("it was tried before"),
        }
    }
}

fn trace(file: &Path) -> Result<Reader, Stop> {
    Reader::open(file).map_err(|error| {
        let name = file.display();
        Stop::mistake(format!("{name}: {error}: give a trace that pleat recorded"))
    })
}

fn simulate(machine: &Machine, setup: Setup, mut source: Counted) -> Result<Row, Stop> {
    let simulation = Simulation::new(machine, &setup, &mut source);
    let outcome = simulation.and_then(Simulation::run).map_err(|failure| {
        let what = format!("{}: {failure}", setup.preset);
        match failure {
            Failure::Setup(_) => Stop::mistake(what),
            Failure::Memory { .. } | Failure::Cache(_) => Stop::failure(what),
        }
    })?;
    Ok(Row {
        preset: setup.preset,
        memory_bytes: setup.memory_bytes,
        speedup: 1.0,
        outcome,
    })
}

/// Notes how each does against the first with the same memory.
fn compare(rows: &mut [Row]) {
    for group in rows.chunk_by_mut(|a, b| a.memory_bytes == b.memory_bytes) {
        let without = group[0].outcome.elapsed_ns as f64;
        for row in group {
            row.speedup = without / row.outcome.elapsed_ns.max(1) as f64;
        }
    }
}

fn json_line(row: &Row) -> String {
    serde_json::to_string(row).expect("numbers and text") + "\n"
}

impl From<SimHost> for Host {
    fn from(host: SimHost) -> Host {
        match host {
            SimHost::Kernel => Host::Kernel,
            SimHost::Pager => Host::Pager,
            SimHost::Run => Host::Run,
        }
    }
}
