//! Taking pages away: chosen, folded, dropped or written back; and from the compressed cache to the
//! swap file.

use pleat_codec::Folded;
use pleat_engine::{BodyId, WayOut, WriteOutcome, WritePlan};
use pleat_types::{CodecId, PageNo, SpaceId, StagingSlot, PAGE_SIZE};

use crate::contents::{mark, VERSION_BYTES};
use crate::disk::{Direction, Place};
use crate::memory::{span, Memory, Turn};

/// Pages taken in one go, as the pager and the kernel do.
const BATCH: usize = 32;
/// Pages that may wait to be folded beside the program: the pager's staging ring.
pub(crate) const STAGING_PAGES: u32 = 512;
/// Pages that leave more than this are kept as they are.
const KEEP_BYTES_MAX: u64 = pleat_codec::KEEP_BYTES_MAX as u64;

/// A page that waits to be folded.
pub(crate) struct Fold {
    body: BodyId,
    slot: StagingSlot,
    /// What the page compresses to.
    bytes: u64,
    version: u64,
}

impl Memory {
    /// Takes pages away as long as the engine wants frames.
    pub(crate) fn reclaim(&mut self, turn: &mut Turn) {
        self.release_written_back(turn);
        self.write(turn);
        loop {
            let wanted = self.engine.frames_wanted();
            let want = BATCH
                .min(wanted as usize)
                .min(self.free_slots.len())
                .min(self.write_back_room());
            if want == 0 {
                return;
            }
            let mut victims = std::mem::take(&mut self.victims);
            victims.clear();
            self.engine.choose_victims(&self.takers, want, &mut victims);
            let chosen = victims.len();
            self.let_go(turn, &mut victims);
            self.victims = victims;
            self.write(turn);
            self.count_idle();
            // Without a victim the compressed cache gives, perhaps, and then less is wanted.
            if chosen == 0 && self.engine.frames_wanted() >= wanted {
                return;
            }
        }
    }

    /// Each victim goes its way; `victims` is empty afterwards.
    pub(crate) fn let_go(&mut self, turn: &mut Turn, victims: &mut Vec<(SpaceId, PageNo)>) {
        let mut dirty = Vec::new();
        for page in victims.drain(..) {
            match self.engine.way_out(page.0, page.1) {
                WayOut::Take => self.take(turn, page),
                WayOut::Drop => self.drop_clean(turn, page),
                WayOut::WriteBack => dirty.push(page),
            }
        }
        self.write_back(turn, dirty);
    }

    fn drop_clean(&mut self, turn: &mut Turn, page: (SpaceId, PageNo)) {
        self.evict(turn);
        if let Some(contents) = &mut self.contents {
            contents.drop_clean(page);
        }
        self.engine.dropped(page.0, page.1);
    }

    fn evict(&self, turn: &mut Turn) {
        turn.spend(self.costs.paging.evict_ns, |cpu| &mut cpu.evict_ns);
    }

    fn take(&mut self, turn: &mut Turn, page: (SpaceId, PageNo)) {
        self.evict(turn);
        let slot = self.free_slots.pop().expect("victims are as many as slots");
        let contents = self.contents.as_mut();
        let version = contents.map_or(0, |contents| contents.take(page, slot));
        let Some(body) = self.engine.taken(page.0, page.1, slot) else {
            return self.free_slots.push(slot);
        };
        let region = self.region(page.0);
        let fold = Fold {
            body,
            slot,
            bytes: u64::from(turn.source.compressed_bytes(region, page.1)),
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
        match self.engine.folded(fold.body, folded, &self.page[..len]) {
            Ok(()) => self.free_slots.push(fold.slot),
            Err(full) => self.full = Some(full),
        }
    }

    /// What folding makes of a page, and what that costs.
    fn folded(&mut self, turn: &mut Turn, fold: &Fold) -> Folded {
        let codec = self.costs.codec;
        if self.contents.is_some() {
            mark(&mut self.page, fold.version);
        }
        // A codec that takes no time does nothing, not even look.
        if codec.compress_ns > 0 && fold.bytes == 0 {
            turn.spend(self.costs.copy_ns, |cpu| &mut cpu.compress_ns);
            return Folded::Same(fold.version);
        }
        turn.spend(codec.compress_ns, |cpu| &mut cpu.compress_ns);
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
            self.submit_write(turn, plan);
        }
        if self.writing.len() < self.costs.writes_max && self.engine.collect_wanted() {
            self.collect(turn);
        }
    }

    fn submit_write(&mut self, turn: &mut Turn, plan: WritePlan) {
        turn.submit(self.costs.submit_ns);
        if let Some(contents) = &mut self.contents {
            contents.write(&plan);
        }
        let (place, bytes) = (Place::Swap(plan.offset), plan.bytes.len() as u64);
        let done = self.disk.submit(turn.now, Direction::Write, place, bytes);
        self.writing.push_back((done, plan));
    }

    /// Empties mostly dead clusters of the swap file: one read for each, and a write behind them.
    fn collect(&mut self, turn: &mut Turn) {
        let mut reads = Vec::new();
        if !self.engine.plan_collect(&mut reads) {
            return;
        }
        let mut pages = Vec::with_capacity(reads.len());
        for cluster in reads.chunk_by(|one, next| one.serial == next.serial) {
            turn.submit(self.costs.submit_ns);
            let (place, bytes) = span(cluster);
            self.disk.submit(turn.now, Direction::Read, place, bytes);
        }
        for item in &reads {
            if let Some(contents) = &self.contents {
                contents.read(item, &mut self.page);
            }
            pages.push(self.page[..item.len as usize].to_vec());
        }
        let moved: Vec<_> = reads
            .iter()
            .zip(&pages)
            .map(|(item, page)| (*item, &**page))
            .collect();
        let mut plan = self.spare_plans.pop().unwrap_or_default();
        if self.engine.plan_move(&moved, &mut plan) {
            self.submit_write(turn, plan);
        } else {
            self.spare_plans.push(plan);
        }
    }

    /// When the next write will be done.
    pub fn next_written(&self) -> Option<u64> {
        let clusters = self.writing.front().map(|&(done, _)| done);
        let files = self.writing_back.front().map(|back| back.done);
        clusters.into_iter().chain(files).min()
    }

    /// Reports everything written by `now`.
    pub fn catch_up(&mut self, now: u64) {
        while self.writing.front().is_some_and(|(done, _)| *done <= now) {
            let (_, plan) = self.writing.pop_front().expect("the first one");
            self.engine.write_done(&plan, WriteOutcome::Done);
            self.spare_plans.push(plan);
            self.has_news = true;
        }
        self.note_written_back(now);
    }
}
