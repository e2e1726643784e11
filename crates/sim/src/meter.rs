//! What things cost by experience, for policies that weigh costs.

use pleat_policy::Costs as Measured;

use crate::memory::Costs;

/// The engine is told again after so many reads and writes.
const EVERY: u32 = 256;
/// Pages written with one request, about.
const CLUSTER_PAGES: u64 = 64;
/// A running mean moves by one part in so many: reads that follow one another and those that need a
/// seek come in long rows.
const WEIGHT: u64 = 512;

/// A running mean of nanoseconds; the plain mean until there are many figures.
#[derive(Clone, Copy, Default)]
struct Mean {
    ns: u64,
    count: u64,
}

impl Mean {
    fn add(&mut self, ns: u64) -> u64 {
        self.count = (self.count + 1).min(WEIGHT);
        // Rounded towards the new figure, or small ones would never count.
        self.ns = (self.ns * (self.count - 1) + ns).div_ceil(self.count);
        self.ns
    }
}

/// Running means.
pub(crate) struct Meter {
    costs: Measured,
    fault_ns: u64,
    read: Mean,
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
                // Programs do not wait for writes; that reads wait behind them is part of a read.
                write_ns: costs.submit_ns / CLUSTER_PAGES,
            },
            fault_ns,
            read: Mean::default(),
            // The first report is at once.
            events: EVERY,
        }
    }

    /// So many pages came from the device after so long.
    pub(crate) fn read(&mut self, ns: u64, pages: u64) {
        self.costs.read_ns = self.read.add(ns / pages.max(1) + self.fault_ns);
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
