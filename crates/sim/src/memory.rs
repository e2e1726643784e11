//! The engine with everything around it that a pager has: faults in, pages taken, folded and written.
//!
//! Does what the pager does, in the same order, but nothing is moved: each step only takes time, of
//! the CPU whose [`Turn`] it is, or of the device. Who runs when is not known here (`schedule.rs`).

use std::collections::VecDeque;

use pleat_codec::Folded;
use pleat_engine::{
    BodyId, Counters, Engine, FaultAnswer, FillItem, FillPlan, ReadRequest, WriteOutcome, WritePlan,
};
use pleat_trace::{ProcessNo, Reference, RegionNo, Source};
use pleat_types::{CodecId, PageNo, PageRange, SpaceId, StagingSlot, PAGE_SIZE};

use crate::accounts::CpuTime;
use crate::contents::{mark, Contents, VERSION_BYTES};
use crate::cpu::{CodecCost, Paging};
use crate::disk::{Direction, Disk, Place, Traffic};
use crate::residents::Residents;

/// Pages taken in one go, as the pager and the kernel do.
const BATCH: usize = 32;
/// Pages that may wait to be folded beside the program: the pager's staging ring.
const STAGING_PAGES: usize = 512;
/// Pages that leave more than this are kept as they are (`pleat_codec::KEEP_BYTES_MAX`).
const KEEP_BYTES_MAX: u64 = pleat_codec::KEEP_BYTES_MAX as u64;

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
pub struct Costs {
    /// Faults and evictions.
    pub paging: Paging,
    /// The codec.
    pub codec: CodecCost,
    /// Copying, clearing or comparing a page.
    pub copy_ns: u64,
    /// Submitting a request.
    pub submit_ns: u64,
    /// Whether pages are folded beside the program.
    pub beside: bool,
    /// Most writes under way at once.
    pub writes_max: usize,
}

/// How a fault went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The page is in place.
    Placed,
    /// It will have been read by then: `arrive` is next.
    Reading(u64),
    /// There is no memory: ask again when there is.
    Stalled,
}

/// A page that waits to be folded.
struct Fold {
    body: BodyId,
    slot: StagingSlot,
    /// What the page compresses to.
    bytes: u64,
    version: u64,
}

/// A job's memory.
pub struct Memory {
    engine: Engine,
    costs: Costs,
    disk: Disk,
    /// Space of each region.
    spaces: Vec<SpaceId>,
    /// Region of each space.
    regions: Vec<RegionNo>,
    /// Which process a region belongs to, once one touched it.
    owners: Vec<Option<ProcessNo>>,
    takers: Vec<(SpaceId, u32)>,
    resident: Residents,
    folds: VecDeque<Fold>,
    free_slots: Vec<StagingSlot>,
    /// Clusters on their way and when each is there, soonest first: the device is a queue.
    writing: VecDeque<(u64, WritePlan)>,
    contents: Option<Contents>,
    /// Buffers, kept for their memory.
    plan: FillPlan,
    victims: Vec<(SpaceId, PageNo)>,
    spare_plans: Vec<WritePlan>,
    page: Box<[u8; PAGE_SIZE]>,
}

impl Turn<'_> {
    fn spend(&mut self, ns: u64, on: fn(&mut CpuTime) -> &mut u64) {
        self.now += ns;
        *on(self.cpu) += ns;
    }

    fn fault(&mut self, ns: u64) {
        self.spend(ns, |cpu| &mut cpu.fault_ns);
    }
}

impl Memory {
    /// Memory of which nothing is used yet.
    pub fn new(mut engine: Engine, costs: Costs, disk: Disk, regions: usize) -> Memory {
        let spaces: Vec<SpaceId> = (0..regions).map(|_| engine.add_space()).collect();
        let last = spaces.iter().map(|space| space.0 as usize + 1).max();
        let mut region_of = vec![RegionNo(0); last.unwrap_or(0)];
        for (region, space) in spaces.iter().enumerate() {
            region_of[space.0 as usize] = RegionNo(region as u32);
        }
        Memory {
            engine,
            costs,
            disk,
            takers: spaces.iter().map(|&space| (space, u32::MAX)).collect(),
            owners: vec![None; spaces.len()],
            resident: Residents::new(spaces.len()),
            spaces,
            regions: region_of,
            folds: VecDeque::new(),
            free_slots: (0..STAGING_PAGES as u32).map(StagingSlot).collect(),
            writing: VecDeque::new(),
            contents: None,
            plan: FillPlan::default(),
            victims: Vec::new(),
            spare_plans: Vec::new(),
            page: Box::new([0; PAGE_SIZE]),
        }
    }

    /// From now on every page's content is followed and compared.
    pub fn check_contents(&mut self) {
        self.contents = Some(Contents::default());
    }

    /// A reference: answers whether the page is in memory. The hot path of a whole simulation.
    #[inline]
    pub fn touch(&mut self, reference: &Reference) -> bool {
        let present = self.resident.contains(reference.region, reference.page);
        if present {
            if let Some(contents) = &mut self.contents {
                let page = (self.spaces[reference.region.0 as usize], reference.page);
                contents.touch(page, reference.access == pleat_trace::Access::Write);
            }
        }
        present
    }

    /// A reference missed.
    pub fn fault(&mut self, turn: &mut Turn, process: ProcessNo, reference: &Reference) -> Answer {
        self.owners[reference.region.0 as usize] = Some(process);
        turn.fault(self.costs.paging.fault_ns);
        self.retry(turn, reference)
    }

    /// The same fault again, after [`Answer::Stalled`].
    pub fn retry(&mut self, turn: &mut Turn, reference: &Reference) -> Answer {
        self.catch_up(turn.now);
        self.reclaim(turn);
        let (space, page) = (self.spaces[reference.region.0 as usize], reference.page);
        loop {
            match self.engine.fault(space, page, false, &mut self.plan) {
                FaultAnswer::Fill => {
                    self.place(turn, space, page);
                    return Answer::Placed;
                }
                FaultAnswer::Read(request) => return Answer::Reading(self.read(turn, request)),
                // Whoever answers the fault folds too when that is what is waited for.
                FaultAnswer::NoMemory if self.fold_beside(turn) => self.reclaim(turn),
                FaultAnswer::Wait | FaultAnswer::NoMemory => return Answer::Stalled,
            }
        }
    }

    /// What a fault waited for was read. Urgent: the frame it was read into is taken already.
    pub fn arrive(&mut self, turn: &mut Turn, reference: &Reference) -> Answer {
        self.catch_up(turn.now);
        let (space, page) = (self.spaces[reference.region.0 as usize], reference.page);
        match self.engine.fault(space, page, true, &mut self.plan) {
            FaultAnswer::Fill => self.place(turn, space, page),
            FaultAnswer::Read(request) => self.place_read(turn, (space, page), request),
            FaultAnswer::Wait | FaultAnswer::NoMemory => return Answer::Stalled,
        }
        Answer::Placed
    }

    fn read(&mut self, turn: &mut Turn, request: ReadRequest) -> u64 {
        turn.spend(self.costs.submit_ns, |cpu| &mut cpu.submit_ns);
        let place = Place::Swap(request.offset);
        let bytes = u64::from(request.bytes);
        self.disk.submit(turn.now, Direction::Read, place, bytes)
    }

    fn place_read(&mut self, turn: &mut Turn, page: (SpaceId, PageNo), request: ReadRequest) {
        self.unfold(turn, request.codec);
        if let Some(contents) = &mut self.contents {
            contents.fill_read(page, &request);
        }
        self.filled(page.0, PageRange::new(page.1, 1));
    }

    /// Carries the fill plan out.
    fn place(&mut self, turn: &mut Turn, space: SpaceId, page: PageNo) {
        let plan = std::mem::take(&mut self.plan);
        for (nth, &item) in plan.items.iter().enumerate() {
            match item {
                FillItem::Resident => {}
                FillItem::Zero | FillItem::Same(_) | FillItem::Staged(_) => {
                    turn.fault(self.costs.copy_ns + self.costs.paging.map_ns);
                }
                FillItem::Packed { codec, .. } => self.unfold(turn, codec),
            }
            if let Some(contents) = &mut self.contents {
                contents.fill((space, page.plus(nth as u64)), item, &plan);
            }
        }
        self.filled(space, PageRange::new(page, plan.items.len() as u64));
        self.plan = plan;
    }

    fn filled(&mut self, space: SpaceId, range: PageRange) {
        self.engine.filled(space, range);
        let region = self.regions[space.0 as usize];
        for page in range.pages() {
            self.resident.insert(region, page);
        }
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

    /// Takes pages away as long as the engine wants frames.
    fn reclaim(&mut self, turn: &mut Turn) {
        self.write(turn);
        loop {
            let wanted = self.engine.frames_wanted() as usize;
            let want = wanted.min(BATCH).min(self.free_slots.len());
            if want == 0 {
                return;
            }
            let mut victims = std::mem::take(&mut self.victims);
            victims.clear();
            self.engine.choose_victims(&self.takers, want, &mut victims);
            for &page in &victims {
                self.take(turn, page);
            }
            let chosen = victims.len();
            self.victims = victims;
            self.write(turn);
            if chosen == 0 {
                return;
            }
        }
    }

    fn take(&mut self, turn: &mut Turn, page: (SpaceId, PageNo)) {
        turn.spend(self.costs.paging.evict_ns, |cpu| &mut cpu.evict_ns);
        let region = self.regions[page.0 .0 as usize];
        self.resident.remove(region, page.1);
        let slot = self.free_slots.pop().expect("victims are as many as slots");
        let contents = &mut self.contents;
        let version = contents
            .as_mut()
            .map_or(0, |contents| contents.take(page, slot));
        let Some(body) = self.engine.taken(page.0, page.1, slot) else {
            return self.free_slots.push(slot);
        };
        let bytes = u64::from(turn.source.compressed_bytes(region, page.1));
        let fold = Fold {
            body,
            slot,
            bytes,
            version,
        };
        if self.costs.beside {
            self.folds.push_back(fold);
        } else {
            self.fold(turn, fold);
        }
    }

    fn fold(&mut self, turn: &mut Turn, fold: Fold) {
        let folded = self.folded(turn, &fold);
        let len = match folded {
            Folded::Same(_) => 0,
            Folded::Bytes { len, .. } => len,
        };
        self.engine.folded(fold.body, folded, &self.page[..len]);
        self.free_slots.push(fold.slot);
    }

    /// What folding makes of a page, and what that costs.
    fn folded(&mut self, turn: &mut Turn, fold: &Fold) -> Folded {
        if fold.bytes == 0 {
            turn.spend(self.costs.copy_ns, |cpu| &mut cpu.compress_ns);
            return Folded::Same(fold.version);
        }
        let codec = self.costs.codec;
        turn.spend(codec.compress_ns, |cpu| &mut cpu.compress_ns);
        if self.contents.is_some() {
            mark(&mut self.page, fold.version);
        }
        let bytes = (fold.bytes * codec.size_percent / 100).max(VERSION_BYTES as u64);
        if bytes > KEEP_BYTES_MAX || codec.compress_ns == 0 {
            return Folded::Bytes {
                codec: CodecId::RAW,
                len: PAGE_SIZE,
            };
        }
        Folded::Bytes {
            codec: CodecId(1),
            len: bytes as usize,
        }
    }

    /// Folds one page beside the program; answers whether there was one.
    pub fn fold_beside(&mut self, turn: &mut Turn) -> bool {
        self.catch_up(turn.now);
        let Some(fold) = self.folds.pop_front() else {
            return false;
        };
        self.fold(turn, fold);
        self.write(turn);
        true
    }

    /// Pages that wait to be folded beside the program.
    pub fn folds_waiting(&self) -> usize {
        self.folds.len()
    }

    /// Writes clusters, as long as the engine wants that and not too many are under way.
    fn write(&mut self, turn: &mut Turn) {
        while self.writing.len() < self.costs.writes_max && self.engine.write_wanted() {
            let mut plan = self.spare_plans.pop().unwrap_or_default();
            if !self.engine.plan_write(&mut plan) {
                return self.spare_plans.push(plan);
            }
            turn.spend(self.costs.submit_ns, |cpu| &mut cpu.submit_ns);
            if let Some(contents) = &mut self.contents {
                contents.write(&plan);
            }
            let (place, bytes) = (Place::Swap(plan.offset), plan.bytes.len() as u64);
            let done = self.disk.submit(turn.now, Direction::Write, place, bytes);
            self.writing.push_back((done, plan));
        }
    }

    /// When the next write will be done.
    pub fn next_written(&self) -> Option<u64> {
        self.writing.front().map(|&(done, _)| done)
    }

    /// Reports everything written by `now`.
    pub fn catch_up(&mut self, now: u64) {
        while self.next_written().is_some_and(|done| done <= now) {
            let (_, plan) = self.writing.pop_front().expect("there is a next one");
            self.engine.write_done(&plan, WriteOutcome::Done);
            self.spare_plans.push(plan);
        }
    }

    /// Whether a fault that found no memory may find some now.
    pub fn has_room(&self) -> bool {
        self.engine.free_bytes() >= PAGE_SIZE as i64
    }

    /// A process has ended: its memory is free.
    pub fn end(&mut self, process: ProcessNo) {
        for region in 0..self.spaces.len() {
            if self.owners[region] != Some(process) {
                continue;
            }
            self.owners[region] = None;
            let space = self.spaces[region];
            self.engine.end_space(space);
            self.takers.retain(|taker| taker.0 != space);
            self.resident.end(RegionNo(region as u32));
            if let Some(contents) = &mut self.contents {
                contents.end(space);
            }
        }
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
}
