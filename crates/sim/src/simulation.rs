//! A simulation from its parts: machine, preset, amount of memory, source of references.

use pleat_engine::{preset, Engine, Preset, Settings, SwapSettings};
use pleat_trace::Source;
use pleat_types::PAGE_SIZE;

use crate::accounts::Outcome;
use crate::cpu::{Cpu, Host};
use crate::device::Device;
use crate::disk::Disk;
use crate::memory::{Costs, Memory};
use crate::schedule::{Schedule, Shares};

const PAGE: u64 = PAGE_SIZE as u64;
/// Free memory below which pages are taken away: a share of all, but at least so many pages, as
/// kernels do; with very little memory a smaller part of it.
const RESERVE_SHARE: u64 = 512;
const RESERVE_PAGES_MIN: u64 = 64;
const RESERVE_MOST: u64 = 16;
/// Writes under way may hold this part of memory at most.
const WRITING_SHARE: u64 = 16;
const WRITES_MIN: u64 = 2;
const WRITES_MAX: u64 = 64;
/// As the pager writes.
const FRAGMENT_BYTES: u32 = 1024;
const CLUSTER_BYTES: u32 = 32 << 10;

/// What the simulated machine is.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Each of its CPUs.
    pub cpu: Cpu,
    /// How many; at least 1.
    pub cpus: u32,
    /// Where pages go that do not fit.
    pub device: Device,
    /// How long a process runs while others wait.
    pub slice_ns: u64,
}

/// How memory is managed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Name of the preset.
    pub preset: String,
    /// Name of the codec, if it is not the preset's.
    pub codec: Option<String>,
    /// All memory that programs and the compressed cache have together.
    pub memory_bytes: u64,
    /// Who does it; by default a pager for pleat's own preset, and the kernel for all others.
    pub host: Option<Host>,
}

/// Why there is no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Names or sizes are wrong.
    #[error("{0}")]
    Setup(String),
    /// Processes wait for memory and none will come.
    #[error("{stalled} processes wait for memory for ever, {free_bytes} bytes are free: give more memory")]
    Memory {
        /// Bytes free when nothing moved any more.
        free_bytes: i64,
        /// How many wait.
        stalled: usize,
    },
}

/// One run of a source under one setup.
pub struct Simulation<'a> {
    memory: Memory,
    shares: Shares,
    source: &'a mut dyn Source,
    /// How far memory may be overdrawn for pages that were being read: only checked runs look.
    overdraft: Option<u64>,
}

impl<'a> Simulation<'a> {
    /// A simulation that has not begun.
    ///
    /// # Errors
    /// When a name is unknown or memory is too small; the message lists what there is.
    pub fn new(
        machine: &Machine,
        setup: &Setup,
        source: &'a mut dyn Source,
    ) -> Result<Simulation<'a>, Failure> {
        let preset = named(&setup.preset).map_err(Failure::Setup)?;
        let engine = engine(&preset, setup.memory_bytes).map_err(Failure::Setup)?;
        let costs = costs(machine, setup, &preset).map_err(Failure::Setup)?;
        let folders = if costs.beside { machine.cpus - 1 } else { 0 };
        let disk = Disk::new(&machine.device);
        Ok(Simulation {
            memory: Memory::new(engine, costs, disk, source.regions().len()),
            shares: Shares {
                cpus: machine.cpus.max(1),
                folders,
                slice_ns: machine.slice_ns.max(1),
                switch_ns: machine.cpu.switch_ns,
            },
            source,
            overdraft: None,
        })
    }

    /// Follows the content of every page, and how much memory is used: a run then panics when a page
    /// is not what was written last, or when the budget is exceeded beyond what was being read. For tests:
    /// it takes time and memory for each page.
    pub fn checked(mut self) -> Self {
        self.memory.check_contents();
        let runs = u64::from(self.source.processes()) * 16;
        self.overdraft = Some((RESERVE_PAGES_MIN + runs) * PAGE);
        self
    }

    /// Runs every process to its end.
    ///
    /// # Errors
    /// When memory does not suffice for the processes to go on.
    pub fn run(self) -> Result<Outcome, Failure> {
        let mut schedule = Schedule::new(self.memory, self.source, self.shares);
        schedule.run()?;
        if let Some(most) = self.overdraft {
            let over = schedule.over_bytes;
            assert!(over <= most, "{over} bytes more than the budget were used");
        }
        Ok(schedule.outcome())
    }
}

/// What every other preset is compared with: no compressed cache, pages are swapped as they are.
const NONE: Preset = Preset {
    name: "none",
    codec: "raw",
    layout: "bins",
    sizing: "static:0",
    run_max: 1,
};

/// Names of all presets, and of `none`.
pub fn preset_names() -> Vec<&'static str> {
    let mut names = pleat_engine::preset_names();
    names.push(NONE.name);
    names
}

fn named(name: &str) -> Result<Preset, String> {
    let found = preset(name).or((name == NONE.name).then_some(NONE));
    found.ok_or_else(|| {
        let names = preset_names().join(", ");
        format!("there is no preset '{name}': choose from {names}")
    })
}

fn engine(preset: &Preset, memory_bytes: u64) -> Result<Engine, String> {
    let least = RESERVE_PAGES_MIN * PAGE;
    if memory_bytes < least {
        return Err(format!(
            "{memory_bytes} bytes of memory are too few: give at least {}K",
            least >> 10
        ));
    }
    let settings = Settings {
        budget_bytes: memory_bytes,
        reserve_bytes: reserve_bytes(memory_bytes),
        floor_bytes: 0,
        run_max: preset.run_max,
        swap: Some(SwapSettings {
            fragment_bytes: FRAGMENT_BYTES,
            cluster_bytes: CLUSTER_BYTES,
            max_bytes: None,
        }),
    };
    let layout = pleat_store::layout_by_name(preset.layout, memory_bytes)
        .ok_or("there is not so much address space: give less memory")?;
    let sizing = pleat_policy::sizing_by_name(preset.sizing)?;
    Ok(Engine::new(settings, layout, sizing))
}

fn reserve_bytes(memory_bytes: u64) -> u64 {
    let reserve = (memory_bytes / RESERVE_SHARE).max(RESERVE_PAGES_MIN * PAGE);
    reserve.min(memory_bytes / RESERVE_MOST)
}

fn costs(machine: &Machine, setup: &Setup, preset: &Preset) -> Result<Costs, String> {
    let default = if preset.name == "pleat" {
        Host::Pager
    } else {
        Host::Kernel
    };
    let host = setup.host.unwrap_or(default);
    let codec = setup.codec.as_deref().filter(|_| preset.codec != "raw");
    let writes = setup.memory_bytes / WRITING_SHARE / u64::from(CLUSTER_BYTES);
    Ok(Costs {
        paging: machine.cpu.paging(host),
        codec: machine.cpu.codec(codec.unwrap_or(preset.codec))?,
        copy_ns: machine.cpu.copy_ns,
        submit_ns: machine.cpu.submit_ns,
        beside: host == Host::Pager && machine.cpus > 1,
        writes_max: writes.clamp(WRITES_MIN, WRITES_MAX) as usize,
    })
}
