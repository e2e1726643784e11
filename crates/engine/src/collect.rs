//! Collection: what is still wanted of mostly dead clusters of the swap file is written together elsewhere,
//! and the clusters are free (douglis93, section 4.3, calls for it; which ones: the cost and benefit
//! of log-structured file systems, Rosenblum and Ousterhout, 1991, section 3.5).
//!
//! One collection at a time: the driver reads what `plan_collect` names, hands what it read to
//! `plan_move`, writes that plan and reports `write_done`. All that time every page can be read where it
//! was; whatever is given up meanwhile is simply not moved, or moved for nothing. No fault waits for it.

use pleat_backing::Extent;

use crate::bodies::{BodyState, DiskCopy};
use crate::cache::Cache;
use crate::swap::{Swap, SwapPart};
use crate::{BodyId, Engine, ReadItem, SwapUnit, WriteItem, WriteOutcome, WritePlan};

/// Holes are given back to the disk once they are more than this part of what is used.
const IDLE_PART: u64 = 2;
/// Only clusters of which at least this part is dead: others yield too little...
const DEAD_LEAST: u32 = 3;
/// ... but for a file that is nearly full.
const DEAD_LEAST_SHORT: u32 = 8;
/// Most clusters emptied at once.
const CHOICE: usize = 16;

impl Engine {
    /// Whether `plan_collect` should be called.
    pub fn collect_wanted(&self) -> bool {
        let swap = self.cache.swap.as_ref();
        swap.is_some_and(|swap| !swap.halted && !swap.collecting && swap.is_mostly_dead())
    }

    /// Names the pages to be read from clusters that are to be emptied, cluster by cluster, in the order
    /// in which they lie there; together they fit into one. `false`: there is nothing to gain.
    ///
    /// Until `plan_move` was called for them no other pages are named.
    pub fn plan_collect(&mut self, reads: &mut Vec<ReadItem>) -> bool {
        reads.clear();
        if !self.collect_wanted() {
            return false;
        }
        let victims = self.cache.choose_clusters();
        self.cache.totals.collected_clusters += victims.len() as u64;
        for victim in victims {
            self.cache.add_cluster(victim, reads);
        }
        if let Some(swap) = &mut self.cache.swap {
            swap.collecting = !reads.is_empty();
        }
        !reads.is_empty()
    }

    /// Plans one cluster of these pages, read as `plan_collect` said: those still wanted. `false`:
    /// there are none, or there is no room; the collection is over then. Else it is when the
    /// plan is reported with `write_done`.
    pub fn plan_move(&mut self, moved: &[(ReadItem, &[u8])], plan: &mut WritePlan) -> bool {
        plan.bytes.clear();
        plan.items.clear();
        let planned = self.cache.plan_move(moved, plan);
        if let Some(swap) = &mut self.cache.swap {
            swap.collecting = planned;
        }
        self.cache.totals.writes_planned += u64::from(planned);
        planned
    }

    /// Parts of the file that hold disk blocks for nothing, for the driver to give back before it plans
    /// another write; empty as long as the file is not much larger than what it holds.
    pub fn take_holes(&mut self) -> Vec<(u64, u64)> {
        let Some(swap) = &mut self.cache.swap else {
            return Vec::new();
        };
        let unit = u64::from(swap.unit_bytes());
        let idle = swap.space.high_water_bytes() - swap.space.used_bytes();
        if idle <= swap.space.used_bytes() / IDLE_PART + swap.settings.slack_bytes {
            return Vec::new();
        }
        // One call for each hole: single blocks are not worth it.
        let least = match swap.settings.unit {
            SwapUnit::Cluster => unit,
            SwapUnit::Block => 16 * unit,
        };
        let holes = swap.space.take_holes(least);
        self.cache.totals.punched_bytes += holes.iter().map(|&(_, bytes)| bytes).sum::<u64>();
        holes
    }
}

impl Swap {
    fn is_mostly_dead(&self) -> bool {
        let unit = u64::from(self.unit_bytes());
        let dead = self.space.used_bytes() - self.live_bytes();
        // Collected earlier, clusters would have to be moved that soon die by themselves.
        let is_large = dead > self.live_bytes() + self.settings.slack_bytes;
        self.collects() && (is_large || (self.is_short() && dead > unit))
    }

    /// Whether a limited file has hardly a free cluster left.
    fn is_short(&self) -> bool {
        self.full || self.space.free_bytes() < 4 * u64::from(self.unit_bytes())
    }

    /// The clusters that are most worth emptying, best first: benefit, number and live bytes.
    fn best_to_empty(&self) -> Vec<(u64, usize, u32)> {
        let last = self.last_serial();
        let least = match self.is_short() {
            true => DEAD_LEAST_SHORT,
            false => DEAD_LEAST,
        };
        let most = self.unit_bytes() - self.unit_bytes() / least;
        let mut best: Vec<(u64, usize, u32)> = Vec::with_capacity(CHOICE + 1);
        let may_go =
            |(index, part): &(usize, &SwapPart)| part.live_bytes <= most && !self.is_open(*index);
        for (index, part) in self.parts().filter(may_go) {
            let benefit = self.benefit(part, last);
            let is_better = |last: &(u64, usize, u32)| benefit > last.0;
            if best.len() < CHOICE || best.last().is_some_and(is_better) {
                let at = best.partition_point(|other| other.0 >= benefit);
                best.insert(at, (benefit, index, part.live_bytes));
                best.truncate(CHOICE);
            }
        }
        best
    }

    /// What emptying a cluster yields for what it costs: much room, for a long time, for little work.
    /// Age counts for less than in the original: where pages die at random, it would have full clusters
    /// moved before nearly empty ones.
    fn benefit(&self, part: &SwapPart, last: u64) -> u64 {
        let unit = u64::from(self.unit_bytes());
        let live = u64::from(part.live_bytes);
        let age = (last - part.serial).saturating_add(2).ilog2();
        (unit - live) * u64::from(age) * 64 / (unit + live)
    }
}

impl Cache {
    /// The clusters to be emptied, best first; what lives in them fits into one.
    fn choose_clusters(&self) -> Vec<usize> {
        let Some(swap) = &self.swap else {
            return Vec::new();
        };
        let unit = swap.unit_bytes();
        let (mut chosen, mut full) = (Vec::new(), 0);
        for (_, index, live) in swap.best_to_empty() {
            // One that is just being written can wait.
            if full + live <= unit && self.is_settled(swap, index) {
                full += live;
                chosen.push(index);
            }
        }
        // One cluster moved into another gains nothing.
        if chosen.len() < 2 {
            chosen.clear();
        }
        chosen
    }

    /// Whether everything that lives in a cluster can be moved.
    fn is_settled(&self, swap: &Swap, index: usize) -> bool {
        let live: u32 = self.live_in(swap, index).map(|item| item.room).sum();
        live == swap.part_at(swap.unit(index).offset).live_bytes
    }

    /// The pages of a cluster that are wanted, as they lie there.
    fn live_in<'a>(&'a self, swap: &'a Swap, index: usize) -> impl Iterator<Item = ReadItem> + 'a {
        let offset = swap.unit(index).offset;
        let serial = swap.part_at(offset).serial;
        let written = swap.written_at(offset).iter();
        // A number may have been given to another body since, which lies elsewhere.
        let items = written.filter_map(|&body| self.read_item(body, self.disk_copy(body)?));
        items.filter(move |item| item.serial == serial)
    }

    fn add_cluster(&self, index: usize, reads: &mut Vec<ReadItem>) {
        if let Some(swap) = &self.swap {
            reads.extend(self.live_in(swap, index));
        }
    }

    fn plan_move(&mut self, moved: &[(ReadItem, &[u8])], plan: &mut WritePlan) -> bool {
        let wanted = moved.iter();
        let wanted: Vec<_> = wanted
            .filter(|(item, _)| self.current_copy(item).is_some())
            .collect();
        let Some(swap) = self.swap.as_mut().filter(|_| !wanted.is_empty()) else {
            return false;
        };
        let lens = wanted.iter().map(|(item, _)| item.len);
        let bytes = swap.packed_bytes(lens);
        if bytes > swap.unit_bytes() {
            // Cannot be: what was chosen fits, and less of it is left.
            return false;
        }
        let Some(room) = swap.allocate(bytes, true) else {
            return false;
        };
        (plan.offset, plan.serial) = (room.extent.offset, room.serial);
        plan.bytes.reserve_exact(bytes as usize);
        plan.len = bytes;
        let mut full = 0;
        for (item, folded) in wanted {
            let (start, room) = swap.place(full, item.len);
            full = start + room;
            plan.bytes.resize(start as usize, 0);
            plan.bytes.extend_from_slice(folded);
            plan.bytes.resize(full as usize, 0);
            plan.items.push(WriteItem {
                body: item.body,
                start,
                len: item.len,
                room,
                codec: item.codec,
                // It was sealed until a moment ago.
                check: None,
                moved_from: Some(*item),
            });
            let extent = Extent {
                offset: plan.offset + u64::from(start),
                bytes: room,
            };
            swap.share(extent, item.body, plan.serial);
            self.moving_bytes += u64::from(room);
        }
        plan.bytes.resize(bytes as usize, 0);
        true
    }

    /// A page that was moved lies at its new place, or does not: its room there is given up then, and
    /// otherwise that at its old one.
    pub(crate) fn end_move(
        &mut self,
        item: &WriteItem,
        from: &ReadItem,
        offset: u64,
        outcome: WriteOutcome,
    ) {
        let extent = Extent {
            offset: offset + u64::from(item.start),
            bytes: item.room,
        };
        self.moving_bytes -= u64::from(item.room);
        let copy = self.current_copy(from);
        let Some(copy) = copy.filter(|_| outcome == WriteOutcome::Done) else {
            return self.free_extent(extent);
        };
        self.relocate(item.body, DiskCopy { extent, ..copy });
        self.free_extent(copy.extent);
        self.totals.moved_pages += 1;
    }

    fn relocate(&mut self, body: BodyId, copy: DiskCopy) {
        let state = match self.bodies.state(body) {
            BodyState::OnDisk(_) => BodyState::OnDisk(copy),
            BodyState::Clean { handle, packed, .. } => BodyState::Clean {
                handle,
                packed,
                copy,
            },
            BodyState::StagedClean { slot, .. } => BodyState::StagedClean { slot, copy },
            state => unreachable!("{body:?} has a copy in the swap file but is {state:?}"),
        };
        self.bodies.set_state(body, state);
    }
}
