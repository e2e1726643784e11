//! A simulation from its parts: machine, preset, amount of memory, source of references.

use pleat_engine::{preset, CacheFull, Engine, Preset, Settings};
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
const WRITTEN_BACK_MIN: u64 = 32;

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
    /// Name of the preset, with the parts replaced that follow it: `castro03/codec=wkdm`.
    pub preset: String,
    /// All memory that programs and the compressed cache have together.
    pub memory_bytes: u64,
    /// Pages that are kept free; by default a small share of memory, as Linux does. A system that takes a
    /// page only when one is needed has 1.
    pub reserve_pages: Option<u64>,
    /// Who does it; by default a pager for pleat's own presets, and the kernel for all others.
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
    /// The compressed cache cannot hold what is to go there.
    #[error(transparent)]
    Cache(#[from] CacheFull),
}

/// One run of a source under one setup.
pub struct Simulation<'a> {
    memory: Memory,
    shares: Shares,
    source: &'a mut dyn Source,
    /// Ends when the first so many processes have.
    until: Option<u32>,
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
        let preset = preset(&setup.preset).map_err(Failure::Setup)?;
        let engine = engine(&preset, setup).map_err(Failure::Setup)?;
        let costs = costs(machine, setup, &preset).map_err(Failure::Setup)?;
        let folders = if costs.beside { machine.cpus - 1 } else { 0 };
        let disk = Disk::new(&machine.device);
        Ok(Simulation {
            memory: Memory::new(engine, costs, disk, source.regions()),
            shares: Shares {
                cpus: machine.cpus.max(1),
                folders,
                slice_ns: machine.slice_ns.max(1),
                switch_ns: machine.cpu.switch_ns,
            },
            source,
            until: None,
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

    /// Ends when the first so many processes have ended, whatever the others still have to do: what
    /// they did until then is in their account.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn until(mut self, first: u32) -> Self {
        let processes = self.source.processes();
        assert!((1..=processes).contains(&first), "{first} of {processes}");
        self.until = Some(first);
        self
    }

    /// The compressed cache has so much memory to itself from the beginning, used or not, as one of a
    /// fixed size has (castro03, section 3: "when the memory allocated for it is barely used").
    /// How far it may grow is the sizing policy's matter.
    pub fn holding(mut self, bytes: u64) -> Self {
        self.memory.hold_for_cache(bytes);
        self
    }

    /// Runs every process to its end.
    ///
    /// # Errors
    /// When memory does not suffice for the processes to go on.
    pub fn run(self) -> Result<Outcome, Failure> {
        let mut schedule = Schedule::new(self.memory, self.source, self.shares);
        schedule.until = self.until;
        schedule.run()?;
        if let Some(most) = self.overdraft {
            let over = schedule.over_bytes;
            assert!(over <= most, "{over} bytes more than the budget were used");
        }
        Ok(schedule.outcome())
    }
}

fn engine(preset: &Preset, setup: &Setup) -> Result<Engine, String> {
    let memory_bytes = setup.memory_bytes;
    let least = RESERVE_PAGES_MIN * PAGE;
    if memory_bytes < least {
        return Err(format!(
            "{memory_bytes} bytes of memory are too few: give at least {}K",
            least >> 10
        ));
    }
    let settings = Settings {
        budget_bytes: memory_bytes,
        reserve_bytes: setup.reserve_pages.map_or_else(
            || reserve_bytes(memory_bytes),
            |pages| (pages * PAGE).min(memory_bytes / RESERVE_MOST),
        ),
        floor_bytes: 0,
        run_max: preset.run_max,
        swap: Some(preset.swap(memory_bytes, None, 0)),
        tracks_writes: host(setup, preset) != Host::Run,
        write_out: preset.write_out,
        brings_neighbours: false,
        keeps_copies: false,
        checks: false,
    };
    Ok(Engine::new(settings, preset.parts(memory_bytes)?))
}

fn reserve_bytes(memory_bytes: u64) -> u64 {
    let reserve = (memory_bytes / RESERVE_SHARE).max(RESERVE_PAGES_MIN * PAGE);
    reserve.min(memory_bytes / RESERVE_MOST)
}

fn costs(machine: &Machine, setup: &Setup, preset: &Preset) -> Result<Costs, String> {
    let host = host(setup, preset);
    let writing = setup.memory_bytes / WRITING_SHARE;
    let clusters = writing / u64::from(preset.cluster_bytes(setup.memory_bytes));
    Ok(Costs {
        paging: machine.cpu.paging(host),
        sees_uses: host != Host::Run,
        codec: machine.cpu.codec(&preset.codec)?,
        copy_ns: machine.cpu.copy_ns,
        submit_ns: machine.cpu.submit_ns,
        read_ns: machine.device.read_ns(PAGE),
        beside: host.is_beside() && machine.cpus > 1,
        writes_max: clusters.clamp(WRITES_MIN, WRITES_MAX) as usize,
        written_back_max: (writing / PAGE).max(WRITTEN_BACK_MIN) as usize,
    })
}

fn host(setup: &Setup, preset: &Preset) -> Host {
    let base = preset.name.split('/').next();
    let usual = match base == Some("pleat") || base == Some("static") {
        true => Host::Pager,
        false => Host::Kernel,
    };
    setup.host.unwrap_or(usual)
}
