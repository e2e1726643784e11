//! Runs to compare: one of few words, with the machine and the setup that most tests want.
#![allow(dead_code)]

use pleat_sim::{Cpu, Device, Failure, Host, Machine, Outcome, Setup, Simulation};

pub const MB: u64 = 1 << 20;
pub const MS: u64 = 1_000_000;

/// What differs between runs.
#[derive(Clone)]
pub struct Run {
    pub workload: &'static str,
    pub preset: &'static str,
    pub memory_bytes: u64,
    pub cpu: &'static str,
    pub device: &'static str,
    pub cpus: u32,
    pub host: Option<Host>,
}

impl Run {
    /// On one CPU of today with a solid-state disk.
    pub fn new(workload: &'static str, preset: &'static str, memory_bytes: u64) -> Run {
        Run {
            workload,
            preset,
            memory_bytes,
            cpu: "modern",
            device: "nvme",
            cpus: 1,
            host: None,
        }
    }

    pub fn outcome(&self) -> Outcome {
        self.try_outcome().unwrap()
    }

    /// Checked: panics when a page comes back with another content.
    pub fn try_outcome(&self) -> Result<Outcome, Failure> {
        let machine = Machine {
            cpu: Cpu::named(self.cpu).unwrap(),
            cpus: self.cpus,
            device: Device::named(self.device).unwrap(),
            slice_ns: 10 * MS,
        };
        let setup = Setup {
            preset: self.preset.into(),
            memory_bytes: self.memory_bytes,
            reserve_pages: None,
            host: self.host,
        };
        let mut source = pleat_trace::generator(self.workload).unwrap();
        Simulation::new(&machine, &setup, &mut *source)?
            .checked()
            .run()
    }
}
