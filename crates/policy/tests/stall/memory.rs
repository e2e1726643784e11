//! A memory that a sizing policy rules over, to see what its decisions cost.
//!
//! Exact LRU over all pages, so that a page's place follows from its distance alone: the first are
//! uncompressed, the next are in the compressed cache, the rest on disk. Every page compresses to the same
//! share, and whatever leaves the cache is written. A program needs a few frames to run in at all.

use pleat_policy::{Advice, Backed, CacheView, Costs, Giver, List, Refault, Sizing, Tier};
use pleat_types::PAGE_SIZE;

use crate::lru::Lru;

/// What the machine is like.
#[derive(Clone, Copy)]
pub struct Machine {
    pub frames: u64,
    /// What compression leaves of a page, per cent.
    pub ratio_percent: u64,
    pub costs: Costs,
}

pub struct Memory {
    machine: Machine,
    lru: Lru,
    sizing: Box<dyn Sizing>,
    uncompressed: u64,
    cached: u64,
    pub stall_ns: u64,
}

impl Memory {
    pub fn new(machine: Machine, mut sizing: Box<dyn Sizing>) -> Memory {
        sizing.costs(machine.costs);
        Memory {
            machine,
            lru: Lru::new(),
            sizing,
            uncompressed: 0,
            cached: 0,
            stall_ns: 0,
        }
    }

    fn view(&self) -> CacheView {
        let page = PAGE_SIZE as u64;
        CacheView {
            budget_bytes: self.machine.frames * page,
            cache_bytes: self.cached * page * self.machine.ratio_percent / 100,
            cached_pages: self.cached,
            resident_pages: self.uncompressed,
            ..CacheView::default()
        }
    }

    pub fn touch(&mut self, page: u64) {
        match self.lru.touch(page) {
            None => self.uncompressed += 1,
            Some(distance) if distance < self.uncompressed => return,
            Some(distance) => self.come_back(distance),
        }
        self.reclaim();
    }

    fn come_back(&mut self, distance: u64) {
        let depth = distance - self.uncompressed;
        let tier = if depth < self.cached {
            Tier::Cache
        } else {
            Tier::Backing
        };
        self.uncompressed += 1;
        let view = self.view();
        let refault = Refault {
            tier,
            distance_pages: distance,
            backed: Backed::BySwap,
            in_round: false,
            by_arrival: false,
        };
        self.sizing.refault(refault, &view);
        if tier == Tier::Backing {
            self.stall_ns += self.machine.costs.read_ns;
            return self.sizing.read(&view);
        }
        self.stall_ns += self.machine.costs.decompress_ns;
        let frames = view.cache_bytes / PAGE_SIZE as u64;
        self.cached -= 1;
        let list = match depth < frames {
            true => List::Expense,
            false => List::Profit,
        };
        if self.sizing.hit(list, &self.view()) == Advice::Shrink {
            self.release_oldest();
        }
    }

    fn reclaim(&mut self) {
        loop {
            let view = self.view();
            if self.uncompressed * PAGE_SIZE as u64 + view.cache_bytes <= view.budget_bytes {
                return;
            }
            match self.sizing.giver(&view) {
                Giver::Uncompressed if self.uncompressed > self.machine.frames / 32 => {
                    self.compress_one()
                }
                _ => self.release_oldest(),
            }
        }
    }

    fn compress_one(&mut self) {
        self.stall_ns += self.machine.costs.compress_ns;
        self.uncompressed -= 1;
        let grows = self.sizing.may_grow(&self.view());
        self.cached += 1;
        if !grows {
            self.release_oldest();
        }
    }

    fn release_oldest(&mut self) {
        if self.cached > 0 {
            self.cached -= 1;
            self.stall_ns += self.machine.costs.write_ns;
        }
    }
}
