//! Where time goes: what each process's CPU time was used for and what it waited for.
//!
//! Everything a run answers is made of these. For each process,
//! `elapsed == cpu.total() + wait.total()`.

use pleat_engine::Counters;
use serde::Serialize;

use crate::disk::Traffic;

/// What CPU time was used for, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuTime {
    /// The program's own computing.
    pub user_ns: u64,
    /// Faults and putting pages in place.
    pub fault_ns: u64,
    /// Choosing pages and taking them away.
    pub evict_ns: u64,
    /// Compressing.
    pub compress_ns: u64,
    /// Decompressing.
    pub decompress_ns: u64,
    /// Submitting requests to the device.
    pub submit_ns: u64,
    /// Going from one process to another.
    pub switch_ns: u64,
}

/// What a process waited for, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WaitTime {
    /// The device: reads, or that a page it touched again was written to its file.
    pub read_ns: u64,
    /// Memory: that pages were written or compressed.
    pub memory_ns: u64,
    /// A CPU.
    pub cpu_ns: u64,
}

/// One process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessTime {
    /// From the start of the simulation to the process's end.
    pub elapsed_ns: u64,
    /// Pages it touched, each touch counted.
    pub references: u64,
    /// What it used CPUs for.
    pub cpu: CpuTime,
    /// What it waited for.
    pub wait: WaitTime,
}

/// What became of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// When the last process ended.
    pub elapsed_ns: u64,
    /// References of all processes.
    pub references: u64,
    /// What a reference took on average, computing included: the processes' time together by their
    /// references.
    pub mean_access_ns: f64,
    /// CPU time of all processes and of what works beside them.
    pub cpu: CpuTime,
    /// Waits of all processes.
    pub wait: WaitTime,
    /// Each process, in the order of the source.
    pub processes: Vec<ProcessTime>,
    /// CPU time of compressing beside the programs; part of `cpu`.
    pub beside: CpuTime,
    /// What the device did.
    pub device: Traffic,
    /// What the engine counted.
    pub engine: Counters,
}

impl CpuTime {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.user_ns
            + self.fault_ns
            + self.evict_ns
            + self.compress_ns
            + self.decompress_ns
            + self.submit_ns
            + self.switch_ns
    }

    pub(crate) fn add(&mut self, other: &CpuTime) {
        self.user_ns += other.user_ns;
        self.fault_ns += other.fault_ns;
        self.evict_ns += other.evict_ns;
        self.compress_ns += other.compress_ns;
        self.decompress_ns += other.decompress_ns;
        self.submit_ns += other.submit_ns;
        self.switch_ns += other.switch_ns;
    }
}

impl WaitTime {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.read_ns + self.memory_ns + self.cpu_ns
    }

    pub(crate) fn add(&mut self, other: &WaitTime) {
        self.read_ns += other.read_ns;
        self.memory_ns += other.memory_ns;
        self.cpu_ns += other.cpu_ns;
    }
}

impl Outcome {
    /// Sums over the processes, and what was beside them.
    pub(crate) fn of(
        processes: Vec<ProcessTime>,
        beside: CpuTime,
        device: Traffic,
        engine: Counters,
    ) -> Outcome {
        let (mut cpu, mut wait, mut time, mut references) = (beside, WaitTime::default(), 0u128, 0);
        for process in &processes {
            cpu.add(&process.cpu);
            wait.add(&process.wait);
            time += u128::from(process.elapsed_ns);
            references += process.references;
        }
        Outcome {
            elapsed_ns: processes.iter().map(|p| p.elapsed_ns).max().unwrap_or(0),
            references,
            mean_access_ns: time as f64 / references.max(1) as f64,
            cpu,
            wait,
            processes,
            beside,
            device,
            engine,
        }
    }

    /// Faults that the compressed cache answered.
    pub fn faults_from_cache(&self) -> u64 {
        let engine = &self.engine;
        engine.filled_stored_pages + engine.filled_same_pages + engine.filled_staged_pages
    }

    /// Faults of every kind.
    pub fn faults(&self) -> u64 {
        let engine = &self.engine;
        let from_disk = engine.filled_disk_pages + engine.filled_file_pages;
        self.faults_from_cache() + engine.filled_zero_pages + from_disk
    }
}
