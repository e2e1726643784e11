//! What things cost by experience, for policies that weigh costs.

use pleat_policy::{Costs as Measured, PlainCosts};

use crate::memory::Costs;

/// The engine is told again after so many reads and writes.
const EVERY: u32 = 256;
/// A running mean moves by one part in so many.
const WEIGHT: u64 = 16;
/// Until something was written: what a page takes on a device of middling speed.
const WRITE_NS: u64 = 20_000;

/// Running means.
pub(crate) struct Meter {
    costs: Measured,
    fault_ns: u64,
    events: u32,
}

impl Meter {
    /// What is known before anything was read.
    pub(crate) fn new(costs: &Costs) -> Meter {
        let fault_ns = costs.paging.fault_ns + costs.paging.map_ns;
        let compress_ns = if costs.beside {
            0
        } else {
            costs.codec.compress_ns
        };
        Meter {
            costs: Measured {
                compress_ns: compress_ns + costs.paging.evict_ns,
                decompress_ns: costs.codec.decompress_ns + fault_ns,
                read_ns: costs.read_ns + fault_ns,
                write_ns: WRITE_NS,
                plain: None,
            },
            fault_ns,
            // The first report is at once.
            events: EVERY,
        }
    }

    /// So many pages came from the device after so long.
    pub(crate) fn read(&mut self, ns: u64, pages: u64) {
        let one = ns / pages.max(1) + self.fault_ns;
        self.costs.read_ns = towards(self.costs.read_ns, one);
        self.events += 1;
    }

    /// A page that is not compressed came from the swap file after so long.
    pub(crate) fn read_plain(&mut self, ns: u64) {
        let one = ns + self.fault_ns;
        let plain = self.costs.plain.get_or_insert(PlainCosts {
            read_ns: one,
            write_ns: self.costs.write_ns,
        });
        plain.read_ns = towards(plain.read_ns, one);
        self.events += 1;
    }

    /// So many pages, compressed or all of them plain, kept the device busy for so long. That is what a
    /// program loses, when the device is busy with reads too.
    pub(crate) fn written(&mut self, ns: u64, pages: u64, plain: bool) {
        let one = ns / pages.max(1);
        let mean = match &mut self.costs.plain {
            Some(costs) if plain => &mut costs.write_ns,
            _ => &mut self.costs.write_ns,
        };
        *mean = towards(*mean, one);
        self.events += 1;
    }

    /// The means, when it is time to tell them.
    pub(crate) fn due(&mut self) -> Option<Measured> {
        let is_due = self.events >= EVERY;
        if is_due {
            self.events = 0;
        }
        is_due.then_some(self.costs)
    }
}

fn towards(mean: u64, value: u64) -> u64 {
    (mean * (WEIGHT - 1) + value) / WEIGHT
}
