//! The engine with everything around it that a pager or a kernel has; here: touches and faults.
//!
//! Does what the pager does, in the same order, but nothing is moved: each step only takes time, of
//! the CPU whose [`Turn`] it is, or of the device. Who runs when is not known here (`schedule.rs`);
//! taking pages away is in `reclaim.rs`, pages of files are read and written in `files.rs`.

use std::collections::VecDeque;

use pleat_engine::{
    CacheFull, Counters, Engine, FaultAnswer, FillItem, FillPlan, ReadItem, WritePlan,
};
use pleat_trace::{Access, ProcessNo, Reference, RegionKind, RegionNo, Source};
use pleat_types::{CodecId, PageNo, PageRange, SpaceId, StagingSlot, PAGE_SIZE};

use crate::accounts::CpuTime;
use crate::contents::Contents;
use crate::cpu::{CodecCost, Paging};
use crate::disk::{Direction, Disk, Place, Traffic};
use crate::files::{FileRead, WriteBack};
use crate::meter::Meter;
use crate::reclaim::{Fold, STAGING_PAGES};

/// A CPU at work: its time goes on and somebody's account is charged.
pub struct Turn<'a> {
    /// What time it is on this CPU.
    pub now: u64,
    /// Who pays.
    pub cpu: &'a mut CpuTime,
    /// How pages compress.
    pub source: &'a dyn Source,
}

/// What costs how much, and where folding happens.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Faults and evictions.
    pub paging: Paging,
    /// The codec.
    pub codec: CodecCost,
    /// Copying, clearing or comparing a page.
    pub copy_ns: u64,
    /// Submitting a request.
    pub submit_ns: u64,
    /// Reading a page at random: what a look at the device says before it is used.
    pub read_ns: u64,
    /// Whether pages are folded beside the program.
    pub beside: bool,
    /// Whether uses of anonymous memory that are no faults are seen.
    pub sees_uses: bool,
    /// Most clusters on their way to the swap file at once.
    pub writes_max: usize,
    /// Most pages on their way to their files at once.
    pub written_back_max: usize,
}

/// How a fault went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The page is in place.
    Placed,
    /// It will have been read by then: `arrive` is next.
    Reading(u64),
    /// It is just being written to its file, until then: `retry` is next.
    Leaving(u64),
    /// There is no memory: `retry` is next when there is.
    Stalled,
}

/// A job's memory.
pub struct Memory {
    pub(crate) engine: Engine,
    pub(crate) costs: Costs,
    pub(crate) disk: Disk,
    pub(crate) meter: Meter,
    /// Space of each region.
    spaces: Vec<SpaceId>,
    /// Region of each space.
    regions: Vec<RegionNo>,
    kinds: Vec<RegionKind>,
    /// Which process a region belongs to, once one touched it.
    owners: Vec<Option<ProcessNo>>,
    pub(crate) takers: Vec<(SpaceId, u32)>,
    /// Pages to be folded beside the program, oldest first.
    pub(crate) folds: VecDeque<Fold>,
    pub(crate) free_slots: Vec<StagingSlot>,
    /// There was no place for a page in the compressed cache.
    pub(crate) full: Option<CacheFull>,
    /// Clusters on their way and when each is there, soonest first: the device is a queue.
    pub(crate) writing: VecDeque<(u64, WritePlan)>,
    /// Reads of files under way.
    pub(crate) reading: Vec<FileRead>,
    /// Pages on their way to their files, soonest first.
    pub(crate) writing_back: VecDeque<WriteBack>,
    /// Pages that have got there.
    pub(crate) written_back: Vec<(SpaceId, PageNo)>,
    /// A write ended since the last look.
    pub(crate) has_news: bool,
    pub(crate) contents: Option<Contents>,
    /// Memory that the compressed cache has to itself, used or not.
    held_bytes: u64,
    /// How much of that it does not use.
    idle_bytes: u64,
    /// Buffers, kept for their memory.
    plan: FillPlan,
    pub(crate) victims: Vec<(SpaceId, PageNo)>,
    pub(crate) spare_plans: Vec<WritePlan>,
    pub(crate) page: Box<[u8; PAGE_SIZE]>,
}

impl Turn<'_> {
    pub(crate) fn spend(&mut self, ns: u64, on: fn(&mut CpuTime) -> &mut u64) {
        self.now += ns;
        *on(self.cpu) += ns;
    }

    pub(crate) fn fault(&mut self, ns: u64) {
        self.spend(ns, |cpu| &mut cpu.fault_ns);
    }

    pub(crate) fn submit(&mut self, ns: u64) {
        self.spend(ns, |cpu| &mut cpu.submit_ns);
    }
}

impl Memory {
    /// Memory of which nothing is used yet.
    pub fn new(mut engine: Engine, costs: Costs, disk: Disk, kinds: &[RegionKind]) -> Memory {
        let add = |kind: &RegionKind| match kind {
            RegionKind::Anonymous => engine.add_space(),
            RegionKind::File => engine.add_file(),
        };
        let spaces: Vec<SpaceId> = kinds.iter().map(add).collect();
        let last = spaces.iter().map(|space| space.0 as usize + 1).max();
        let mut regions = vec![RegionNo(0); last.unwrap_or(0)];
        for (region, space) in spaces.iter().enumerate() {
            regions[space.0 as usize] = RegionNo(region as u32);
        }
        let mut memory = Memory {
            meter: Meter::new(&costs),
            engine,
            costs,
            disk,
            takers: spaces.iter().map(|&space| (space, u32::MAX)).collect(),
            owners: vec![None; spaces.len()],
            kinds: kinds.to_vec(),
            spaces,
            regions,
            folds: VecDeque::new(),
            free_slots: (0..STAGING_PAGES).map(StagingSlot).collect(),
            full: None,
            writing: VecDeque::new(),
            reading: Vec::new(),
            writing_back: VecDeque::new(),
            written_back: Vec::new(),
            has_news: false,
            contents: None,
            held_bytes: 0,
            idle_bytes: 0,
            plan: FillPlan::default(),
            victims: Vec::new(),
            spare_plans: Vec::new(),
            page: Box::new([0; PAGE_SIZE]),
        };
        memory.tell_costs();
        memory
    }

    /// From now on every page's content is followed and compared.
    pub fn check_contents(&mut self) {
        self.contents = Some(Contents::default());
    }

    /// From now on the compressed cache has so much memory to itself.
    pub fn hold_for_cache(&mut self, bytes: u64) {
        self.held_bytes = bytes;
        self.count_idle();
    }

    /// Tells the engine how much of the memory held for the compressed cache lies idle: nobody else
    /// has it either.
    pub(crate) fn count_idle(&mut self) {
        if self.held_bytes == 0 {
            return;
        }
        let engine = self.engine.counters();
        let cache_bytes = engine.store_frames_bytes + engine.store_metadata_bytes;
        let free = self.engine.free_bytes() + self.idle_bytes as i64;
        self.idle_bytes = self.held_bytes.saturating_sub(cache_bytes);
        let used = engine.budget_bytes as i64 - free + self.idle_bytes as i64;
        self.engine.measured(used.max(0) as u64);
    }

    /// A reference: answers whether the page is in memory. The hot path of a whole simulation.
    #[inline]
    pub fn touch(&mut self, reference: &Reference) -> bool {
        let space = self.spaces[reference.region.0 as usize];
        let write = reference.access == Access::Write;
        let present = self.use_page(space, reference.page, write);
        if let Some(contents) = self.contents.as_mut().filter(|_| present) {
            contents.touch((space, reference.page), write);
        }
        present
    }

    #[inline]
    fn use_page(&mut self, space: SpaceId, page: PageNo, write: bool) -> bool {
        match self.costs.sees_uses
            || self.kinds[self.regions[space.0 as usize].0 as usize] == RegionKind::File
        {
            true => self.engine.touch(space, page, write),
            false => self.engine.is_present(space, page),
        }
    }

    /// A reference missed.
    pub fn fault(&mut self, turn: &mut Turn, process: ProcessNo, reference: &Reference) -> Answer {
        self.owners[reference.region.0 as usize] = Some(process);
        turn.fault(self.costs.paging.fault_ns);
        self.retry(turn, reference)
    }

    /// The same fault again.
    pub fn retry(&mut self, turn: &mut Turn, reference: &Reference) -> Answer {
        self.catch_up(turn.now);
        self.count_idle();
        self.reclaim(turn);
        let (space, page) = (self.spaces[reference.region.0 as usize], reference.page);
        loop {
            match self.engine.fault(space, page, false, &mut self.plan) {
                FaultAnswer::Fill if self.plan.items[0] == FillItem::File => {
                    let pages = self.plan.items.len() as u64;
                    let done = self.read_file(turn, space, PageRange::new(page, pages));
                    return Answer::Reading(done);
                }
                FaultAnswer::Fill => {
                    self.place(turn, space, page);
                    return Answer::Placed;
                }
                FaultAnswer::Read => return Answer::Reading(self.read(turn)),
                // Whoever answers the fault folds too when that is what is waited for.
                FaultAnswer::NoMemory if self.fold_beside(turn) => self.reclaim(turn),
                FaultAnswer::NoMemory => return Answer::Stalled,
                FaultAnswer::Wait => return Answer::Leaving(self.back_at((space, page))),
            }
        }
    }

    /// What a fault waited for was read. Urgent: the frame it was read into is taken already.
    pub fn arrive(&mut self, turn: &mut Turn, reference: &Reference) -> Answer {
        self.catch_up(turn.now);
        let (space, page) = (self.spaces[reference.region.0 as usize], reference.page);
        // Another process waited for the same page and was quicker.
        if self.use_page(space, page, false) {
            return Answer::Placed;
        }
        match self.engine.fault(space, page, true, &mut self.plan) {
            FaultAnswer::Fill if self.plan.items[0] == FillItem::File => {
                let Some(pages) = self.file_pages_read(space, page) else {
                    return self.retry(turn, reference);
                };
                self.plan.items.truncate(pages as usize);
                self.place(turn, space, page);
            }
            FaultAnswer::Fill => self.place(turn, space, page),
            // What was read had to make way for other pages that were.
            FaultAnswer::Read => {
                self.plan.reads.truncate(1);
                self.land();
                let again = self.engine.fault(space, page, true, &mut self.plan);
                assert_eq!(again, FaultAnswer::Fill, "it was just read");
                self.place(turn, space, page);
            }
            FaultAnswer::NoMemory => unreachable!("urgent faults are served"),
            FaultAnswer::Wait => return Answer::Leaving(self.back_at((space, page))),
        }
        Answer::Placed
    }

    /// Reads what the engine planned, in one piece. It lands at once, which only another process that
    /// wants the same page could notice: this one waits for the device.
    fn read(&mut self, turn: &mut Turn) -> u64 {
        turn.submit(self.costs.submit_ns);
        let (place, bytes) = span(&self.plan.reads);
        let done = self.disk.submit(turn.now, Direction::Read, place, bytes);
        self.meter
            .read(done - turn.now, self.plan.reads.len() as u64);
        self.tell_costs();
        self.land();
        done
    }

    /// What the engine planned to read was read.
    fn land(&mut self) {
        for (nth, item) in self.plan.reads.iter().enumerate() {
            if let Some(contents) = &self.contents {
                contents.read(item, &mut self.page);
            }
            let bytes = &self.page[..item.len as usize];
            self.engine.landed(item, bytes, nth > 0);
        }
    }

    /// Carries the fill plan out.
    fn place(&mut self, turn: &mut Turn, space: SpaceId, page: PageNo) {
        let plan = std::mem::take(&mut self.plan);
        for (nth, &item) in plan.items.iter().enumerate() {
            match item {
                FillItem::Resident => {}
                FillItem::File => turn.fault(self.costs.paging.map_ns),
                FillItem::Zero | FillItem::Same(_) | FillItem::Staged(_) => {
                    turn.fault(self.costs.copy_ns + self.costs.paging.map_ns);
                }
                FillItem::Packed { codec, .. } => self.unfold(turn, codec),
            }
            if let Some(contents) = &mut self.contents {
                contents.fill((space, page.plus(nth as u64)), item, &plan);
            }
        }
        let range = PageRange::new(page, plan.items.len() as u64);
        self.engine.filled(space, range);
        self.plan = plan;
    }

    fn unfold(&mut self, turn: &mut Turn, codec: CodecId) {
        if codec == CodecId::RAW {
            turn.fault(self.costs.copy_ns);
        } else {
            let ns = self.costs.codec.decompress_ns;
            turn.spend(ns, |cpu| &mut cpu.decompress_ns);
        }
        turn.fault(self.costs.paging.map_ns);
    }

    /// A process has ended: its memory is free. Files stay.
    pub fn end(&mut self, process: ProcessNo) {
        for region in 0..self.spaces.len() {
            let anonymous = self.kinds[region] == RegionKind::Anonymous;
            if !anonymous || self.owners[region] != Some(process) {
                continue;
            }
            self.owners[region] = None;
            let space = self.spaces[region];
            self.engine.end_space(space);
            self.takers.retain(|taker| taker.0 != space);
            if let Some(contents) = &mut self.contents {
                contents.end(space);
            }
        }
    }

    /// Which region a space holds.
    pub(crate) fn region(&self, space: SpaceId) -> RegionNo {
        self.regions[space.0 as usize]
    }

    /// Whether a fault that found no memory may find some now, or could make some: what was written
    /// can be dropped, even where nothing is free yet. Asked again, the answer needs new reasons.
    pub fn has_room(&mut self) -> bool {
        std::mem::take(&mut self.has_news) || self.engine.free_bytes() >= PAGE_SIZE as i64
    }

    /// Bytes free now; negative when more is used than there is.
    pub fn free_bytes(&self) -> i64 {
        self.engine.free_bytes()
    }

    /// What the device did.
    pub fn traffic(&self) -> Traffic {
        self.disk.traffic()
    }

    /// What the engine counted.
    pub fn counters(&self) -> Counters {
        self.engine.counters()
    }

    /// Tells the engine now and then what things cost.
    pub(crate) fn tell_costs(&mut self) {
        if let Some(costs) = self.meter.due() {
            self.engine.costs(costs);
        }
    }
}

/// Where pages that are read together lie, and how many bytes that is, gaps included.
pub(crate) fn span(reads: &[ReadItem]) -> (Place, u64) {
    let [first, .., last] = reads else {
        let only = &reads[0];
        return (Place::Swap(only.offset), u64::from(only.len));
    };
    (
        Place::Swap(first.offset),
        last.offset + u64::from(last.len) - first.offset,
    )
}
