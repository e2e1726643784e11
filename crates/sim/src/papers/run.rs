//! One simulation of a paper's machine, in a line.

use pleat_trace::generator;

use crate::{Cpu, Device, Host, Machine, Outcome, Setup, Simulation};

/// Bytes of a megabyte, as the papers count.
pub const MB: u64 = 1 << 20;
/// The time slice of Linux 2.4.
const SLICE_NS: u64 = 50_000_000;

/// A workload on a machine. `Run { preset, ..machine }.outcome()`.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// Name of the CPU.
    pub cpu: &'a str,
    /// How many there are.
    pub cpus: u32,
    /// Name of the device.
    pub device: &'a str,
    /// The generator, as `pleat trace generate` takes it.
    pub workload: &'a str,
    /// The preset, parts replaced.
    pub preset: &'a str,
    /// Memory of programs and compressed cache together.
    pub memory_bytes: u64,
}

impl Run<'_> {
    /// Runs it.
    ///
    /// # Panics
    /// When a name is wrong, or memory does not suffice: figures are constants.
    pub fn outcome(&self) -> Outcome {
        self.outcome_when(|simulation| simulation)
    }

    /// Runs it, the simulation changed before it begins.
    ///
    /// # Panics
    /// As [`Run::outcome`].
    pub fn outcome_when(&self, change: impl FnOnce(Simulation) -> Simulation) -> Outcome {
        self.outcome_of(None, change)
    }

    /// Runs it on a system that keeps so many pages free.
    ///
    /// # Panics
    /// As [`Run::outcome`].
    pub fn outcome_keeping(&self, reserve_pages: u64) -> Outcome {
        self.outcome_of(Some(reserve_pages), |simulation| simulation)
    }

    fn outcome_of(
        &self,
        reserve_pages: Option<u64>,
        change: impl FnOnce(Simulation) -> Simulation,
    ) -> Outcome {
        let machine = Machine {
            cpu: Cpu::named(self.cpu).unwrap_or_else(|error| panic!("{error}")),
            cpus: self.cpus,
            device: Device::named(self.device).unwrap_or_else(|error| panic!("{error}")),
            slice_ns: SLICE_NS,
        };
        let setup = Setup {
            preset: self.preset.to_owned(),
            memory_bytes: self.memory_bytes,
            reserve_pages,
            host: Some(Host::Kernel),
        };
        let mut source = generator(self.workload).unwrap_or_else(|error| panic!("{error}"));
        let simulation = Simulation::new(&machine, &setup, &mut *source);
        let outcome = simulation.and_then(|simulation| change(simulation).run());
        outcome.unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// How long it takes, in seconds.
    pub fn seconds(&self) -> f64 {
        self.outcome().elapsed_ns as f64 / 1e9
    }

    /// Time saved against the same without a compressed cache, in per cent of the time without.
    pub fn gain_percent(&self) -> f64 {
        let without = Run {
            preset: "none",
            ..self.clone()
        };
        100.0 * (1.0 - self.seconds() / without.seconds())
    }
}
