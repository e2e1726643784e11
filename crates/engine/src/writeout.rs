//! From the compressed cache to the swap file: the oldest pages, in order, a cluster at a time
//! (castro03, section 2.3.2; douglis93 for the clusters), or what a layout of whole frames names.
//!
//! Plans and accounts only. The driver writes the bytes and reports; until then every page is
//! still answered from memory.

use pleat_backing::Extent;
use pleat_store::Handle;

use crate::bodies::{BodyState, DiskCopy, Packed};
use crate::cache::Cache;
use crate::debt::Why;
use crate::swap::{Room, Swap, BLOCK_BYTES};
use crate::{BodyId, Engine, WriteItem, WriteOut, WriteOutcome, WritePlan};

/// Pages with a copy elsewhere that one plan drops because they are older than what it writes.
const DROPPED_MAX: usize = 64;

impl Engine {
    /// Whether `plan_write` should be called: the cache owes pages, or memory is short and taking
    /// pages away cannot help (there are too few, or none could be chosen).
    pub fn write_wanted(&self) -> bool {
        if !self.cache.can_write() || self.cache.bodies.counts().stored == 0 {
            return false;
        }
        self.page_leaves_for().is_some() || self.cache.cleaning_due(self.shortage_256ths())
    }

    /// For whom the next page is to leave the cache; `None`: none has to.
    fn page_leaves_for(&self) -> Option<Why> {
        let owed = self.cache.next_leaves_for();
        owed.or_else(|| self.is_squeezed().then_some(Why::Starved))
    }

    /// Whether memory is short and all that could be taken away would not be enough.
    fn is_squeezed(&self) -> bool {
        let bodies = self.cache.bodies.counts();
        let missing = self.reserve_bytes() as i64 - self.free_bytes();
        let missing = missing.max(0) as u64;
        let takeable = self.pages.resident + self.pages.leaving + bodies.staged;
        missing > bodies.writing_bytes
            && (self.starved || missing > takeable * self.cache.gain_bytes() + bodies.writing_bytes)
    }

    /// How short memory is: 0 while twice the reserve is free, 256 when nothing is.
    fn shortage_256ths(&self) -> u64 {
        let reserve = self.reserve_bytes().max(1) as i64;
        let missing = (2 * reserve - self.free_bytes()).clamp(0, 2 * reserve);
        (missing * 128 / reserve) as u64
    }

    /// Plans one cluster of the oldest pages that are not being written yet. `false`: there is
    /// nothing to write, or nowhere to write it.
    ///
    /// Each plan is to be reported with `write_done` exactly once; several may be under way.
    pub fn plan_write(&mut self, plan: &mut WritePlan) -> bool {
        plan.bytes.clear();
        plan.items.clear();
        if !self.cache.can_write() {
            return false;
        }
        let mut planned = self.plan_any(plan);
        if !planned && self.is_swap_full() && self.give_up_copies() {
            planned = self.plan_any(plan);
        }
        self.cache.totals.writes_planned += u64::from(planned);
        planned
    }

    fn plan_any(&mut self, plan: &mut WritePlan) -> bool {
        let why = self.page_leaves_for();
        let planned = match self.cache.layout.chooses_frames() {
            true => self.cache.plan_frames(plan),
            false => self.cache.plan_oldest(plan),
        };
        if let Some(why) = why.filter(|_| planned && !self.cache.keeps_what_is_written()) {
            self.cache.count_leaving(why, plan.items.len() as u64);
        }
        self.forget_dropped();
        planned
    }

    fn is_swap_full(&self) -> bool {
        self.cache.swap.as_ref().is_some_and(|swap| swap.full)
    }

    /// The cluster is in the file, or it is not. After a failure its pages are the oldest of the
    /// cache again and nothing is planned until `resume_writes`.
    pub fn write_done(&mut self, plan: &WritePlan, outcome: WriteOutcome) {
        let totals = &mut self.cache.totals;
        match outcome {
            WriteOutcome::Done => {
                totals.writes_done += 1;
                let is_new = |item: &&WriteItem| item.moved_from.is_none();
                totals.written_pages += plan.items.iter().filter(is_new).count() as u64;
                totals.written_bytes += u64::from(plan.len);
                if plan.items.iter().any(|item| item.moved_from.is_some()) {
                    totals.moved_bytes += u64::from(plan.len);
                }
            }
            WriteOutcome::Failed => {
                totals.writes_failed += 1;
                self.cache.swap.iter_mut().for_each(|swap| {
                    swap.halted = true;
                    swap.close();
                });
                // The disk may be full.
                self.give_up_copies();
            }
        }
        for item in &plan.items {
            match &item.moved_from {
                None => self.cache.end_write(item.body, outcome),
                Some(from) => self.cache.end_move(item, from, plan.offset, outcome),
            }
        }
        let is_collection = plan.items.iter().any(|item| item.moved_from.is_some());
        if let Some(swap) = self.cache.swap.as_mut().filter(|_| is_collection) {
            swap.collecting = false;
        }
        self.cache.pay_with_clean_pages();
        self.forget_dropped();
    }

    /// The swap file can be written to again.
    pub fn resume_writes(&mut self) {
        if let Some(swap) = &mut self.cache.swap {
            swap.halted = false;
            swap.full = false;
        }
    }
}

impl Cache {
    /// Whether pages should be written before they have to go: "the rate at which pages are cleaned is a
    /// function of the number of completely free pages in the system, the number of clean pages [...]
    /// and the size of the compression cache" (douglis93, section 4.2).
    fn cleaning_due(&self, shortage_256ths: u64) -> bool {
        let counts = self.bodies.counts();
        match self.write_out {
            WriteOut::OnDemand => false,
            // Not before the cache is as large as it may be: there is no hurry then.
            WriteOut::Ahead { clean_percent } => {
                let recently = self.clock - self.owed_at <= self.order.len().max(64);
                let target = self.payload_bytes() / 100 * u64::from(clean_percent);
                // Up to twice that when memory runs out: what is clean is dropped at once.
                let target = target + target * shortage_256ths / 256;
                let is_enough = counts.clean_bytes + counts.writing_bytes >= target;
                self.owed_at > 0 && recently && !is_enough
            }
            WriteOut::Buffers { threshold_percent } => {
                let buffers = self.sizing.bound_bytes(&self.view()) / u64::from(BLOCK_BYTES);
                let full = self.layout.frame_states().full_dirty;
                let is_due = full * 100 >= buffers * u64::from(threshold_percent);
                full > 0 && is_due && counts.writing == 0
            }
        }
    }

    /// Whether pages read from the swap file stay in the cache, or enter it.
    pub(crate) fn keeps_what_is_read(&self) -> bool {
        matches!(self.write_out, WriteOut::Ahead { .. })
    }

    /// Whether a page that was written stays in the cache until its room is needed.
    pub(crate) fn keeps_what_is_written(&self) -> bool {
        self.write_out != WriteOut::OnDemand
    }

    /// One cluster of the oldest pages that are not being written yet.
    fn plan_oldest(&mut self, plan: &mut WritePlan) -> bool {
        let oldest = self.choose_oldest();
        self.plan_cluster(oldest, plan)
    }

    /// The oldest stored bodies that fit into one cluster. Skips those being written (all of them at
    /// the old end, so few). Between them are, without a length, those with a copy elsewhere whose turn
    /// it is first; where written pages stay until their room is needed, there are none.
    fn choose_oldest(&self) -> Vec<(BodyId, Option<Packed>)> {
        let mut leaving = Vec::new();
        let Some(swap) = &self.swap else {
            return leaving;
        };
        let most = swap.settings.cluster_bytes;
        let (mut full, mut dropped) = (0, 0);
        let mut last = 0;
        for body in self.order.oldest_first() {
            if self.is_droppable(body) {
                if self.keeps_what_is_written() {
                    continue;
                }
                dropped += 1;
                if dropped > DROPPED_MAX {
                    break;
                }
                leaving.push((body, None));
            }
            let BodyState::Stored { packed, .. } = self.bodies.state(body) else {
                continue;
            };
            if self.bodies.home(body).is_some() {
                continue;
            }
            let (start, room) = swap.place(full, packed.len);
            if start + room > most {
                break;
            }
            full = start + room;
            leaving.push((body, Some(packed)));
            last = leaving.len();
        }
        leaving.truncate(last);
        leaving
    }

    /// What the layout names: whole buffers as they lie (cervera99, section 3.4), or a cluster of the
    /// items of its oldest frames (douglis93, section 4.3). One write at a time, for the layout does
    /// not know what is being written.
    fn plan_frames(&mut self, plan: &mut WritePlan) -> bool {
        let mut handles = Vec::new();
        let Some(swap) = &self.swap else {
            return false;
        };
        let most = swap.settings.cluster_bytes as usize;
        if self.bodies.counts().writing > 0 || !self.layout.next_dirty(most, &mut handles) {
            return false;
        }
        // Pages of files are dirty to a layout never (`own`).
        if matches!(self.write_out, WriteOut::Buffers { .. }) {
            self.plan_blocks(&handles, plan)
        } else {
            self.plan_items(&handles, plan)
        }
    }

    fn plan_items(&mut self, handles: &[Handle], plan: &mut WritePlan) -> bool {
        let owners = handles.iter().map(|handle| self.owners[handle.0 as usize]);
        let stored = owners.filter_map(|body| match self.bodies.state(body) {
            BodyState::Stored { packed, .. } => Some((body, Some(packed))),
            _ => None,
        });
        let bodies = stored.collect();
        self.plan_cluster(bodies, plan)
    }

    /// Plans to write these, in this order, fewer where there is no room, and drops those between that
    /// have no length.
    fn plan_cluster(
        &mut self,
        mut bodies: Vec<(BodyId, Option<Packed>)>,
        plan: &mut WritePlan,
    ) -> bool {
        let Some(swap) = self.swap.as_mut().filter(|_| !bodies.is_empty()) else {
            return false;
        };
        let Some(room) = allocate(swap, &mut bodies) else {
            swap.full = true;
            return false;
        };
        (plan.offset, plan.serial) = (room.extent.offset, room.serial);
        plan.bytes.reserve_exact(room.extent.bytes as usize);
        for (body, packed) in bodies {
            let Some((packed, swap)) = packed.zip(self.swap.as_ref()) else {
                self.drop_body(body);
                continue;
            };
            let (start, room) = swap.place(plan.bytes.len() as u32, packed.len);
            plan.bytes.resize(start as usize, 0);
            self.begin_write(body, (start, room), plan);
            plan.bytes.resize((start + room) as usize, 0);
        }
        let whole = plan.bytes.len().next_multiple_of(BLOCK_BYTES as usize);
        plan.bytes.resize(whole, 0);
        plan.len = whole as u32;
        true
    }

    /// Whole buffers side by side: a page lies in its block as in its buffer.
    fn plan_blocks(&mut self, handles: &[Handle], plan: &mut WritePlan) -> bool {
        let mut frames: Vec<u32> = Vec::new();
        let mut placed = Vec::new();
        for &handle in handles {
            let Some((frame, offset)) = self.layout.position(handle) else {
                continue;
            };
            if frames.last() != Some(&frame) {
                frames.push(frame);
            }
            placed.push((handle, frames.len() as u32 - 1, offset));
        }
        let Some(swap) = self.swap.as_mut().filter(|_| !placed.is_empty()) else {
            return false;
        };
        let mut count = frames.len() as u32;
        let room = loop {
            match swap.allocate(count * BLOCK_BYTES, false) {
                Some(room) => break room,
                None if count > 1 => count /= 2,
                None => {
                    swap.full = true;
                    return false;
                }
            }
        };
        (plan.offset, plan.serial) = (room.extent.offset, room.serial);
        plan.len = count * BLOCK_BYTES;
        plan.bytes.resize(plan.len as usize, 0);
        for (handle, frame, offset) in placed {
            if frame < count {
                self.write_in_block(handle, frame * BLOCK_BYTES + offset, plan);
            }
        }
        true
    }

    fn write_in_block(&mut self, handle: Handle, start: u32, plan: &mut WritePlan) {
        let body = self.owners[handle.0 as usize];
        let bytes = self.packed_len(body);
        let block = std::mem::take(&mut plan.bytes);
        self.begin_write(body, (start, bytes), plan);
        let item = std::mem::replace(&mut plan.bytes, block);
        plan.bytes[start as usize..(start + bytes) as usize].copy_from_slice(&item);
    }

    /// Copies a stored body to the end of the plan; it gets `room` bytes from `start` on.
    fn begin_write(&mut self, body: BodyId, (start, room): (u32, u32), plan: &mut WritePlan) {
        let BodyState::Stored { handle, packed } = self.bodies.state(body) else {
            unreachable!("{body:?} was chosen to be written");
        };
        debug_assert!(self.is_next_to_leave(body), "{body:?} leaves out of order");
        self.layout.read_into(handle, &mut plan.bytes);
        plan.items.push(WriteItem {
            body,
            start,
            len: packed.len,
            room,
            codec: packed.codec,
            check: self.bodies.check(body),
            moved_from: None,
        });
        let extent = Extent {
            offset: plan.offset + u64::from(start),
            bytes: room,
        };
        if let Some(swap) = &mut self.swap {
            swap.share(extent, body, plan.serial);
        }
        self.bodies.set_state(
            body,
            BodyState::Writing {
                handle,
                packed,
                extent,
            },
        );
    }

    fn end_write(&mut self, body: BodyId, outcome: WriteOutcome) {
        match (self.bodies.state(body), outcome) {
            (
                BodyState::Writing {
                    handle,
                    packed,
                    extent,
                },
                WriteOutcome::Done,
            ) => self.written(body, handle, DiskCopy { packed, extent }),
            // It kept its place in the order, so it is among the oldest again.
            (
                BodyState::Writing {
                    handle,
                    packed,
                    extent,
                },
                WriteOutcome::Failed,
            ) => {
                self.bodies
                    .set_state(body, BodyState::Stored { handle, packed });
                self.free_extent(extent);
            }
            (BodyState::Drowned { extent }, _) => {
                self.bodies.free(body);
                self.free_extent(extent);
            }
            (state, _) => unreachable!("{body:?} was being written but is {state:?}"),
        }
    }

    /// A body has a copy in the swap file now.
    fn written(&mut self, body: BodyId, handle: Handle, copy: DiskCopy) {
        let packed = copy.packed;
        if self.keeps_what_is_written() {
            let state = BodyState::Clean {
                handle,
                packed,
                copy,
            };
            self.bodies.set_state(body, state);
            self.layout.set_clean(handle, true);
            self.account();
        } else {
            self.bodies.set_state(body, BodyState::OnDisk(copy));
            self.unstore(body, handle, packed);
        }
    }
}

/// Room for all of these that are to be written, in one piece, or for fewer of them, the oldest.
fn allocate(swap: &mut Swap, oldest: &mut Vec<(BodyId, Option<Packed>)>) -> Option<Room> {
    loop {
        let written = oldest.iter().filter_map(|(_, packed)| *packed);
        let bytes = swap.packed_bytes(written.map(|packed| packed.len));
        if bytes == 0 {
            return None;
        }
        if bytes <= swap.settings.cluster_bytes {
            if let Some(room) = swap.allocate(bytes, false) {
                return Some(room);
            }
            // Fewer would not help: a cluster is a cluster.
            if swap.collects() {
                return None;
            }
        }
        let last = oldest.iter().rposition(|(_, packed)| packed.is_some());
        oldest.truncate(last.unwrap_or(0));
    }
}
