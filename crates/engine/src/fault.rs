//! Faults: what to put in place, and what follows once it is there.
//!
//! `fault` only looks; the driver may fail to fill and ask again. All consequences are drawn by
//! `filled`. This is the hot path: two table look-ups and one copy of folded bytes per page, no
//! allocation once the plan has grown, nothing proportional to anything but the run.

use pleat_types::{PageNo, PageRange, SpaceId, PAGE_SIZE};

use crate::bodies::BodyState;
use crate::table::PageState;
use crate::{BodyId, Engine, FaultAnswer, FillItem, FillPlan, ReadRequest};

impl Engine {
    /// A thread faulted on `page`: what is to be done?
    ///
    /// With [`FaultAnswer::Fill`], `plan` holds the page and perhaps neighbours after it; cut it
    /// where the mapping ends. An `urgent` fault is served even when memory is short.
    ///
    /// Until `filled` is called (or the attempt given up) the caller must not answer another fault
    /// of this space, nor report `forget` or `remap` for it, without asking again: the content in
    /// the plan would be out of date. The same holds for a [`ReadRequest`].
    pub fn fault(
        &mut self,
        space: SpaceId,
        page: PageNo,
        urgent: bool,
        plan: &mut FillPlan,
    ) -> FaultAnswer {
        plan.items.clear();
        plan.bytes.clear();
        let (state, contested) = match self.spaces.get(&space) {
            Some(space) => (space.table.get(page), space.is_contested(page)),
            None => (PageState::Unknown, false),
        };
        match state {
            PageState::Leaving { .. } => return self.wait(),
            // A command for a page given up may yet take whatever comes to this address.
            PageState::Unknown if contested => return self.wait(),
            PageState::Resident { .. } | PageState::Stuck => {
                self.set_aside(space, page);
                plan.items.push(FillItem::Resident);
                return FaultAnswer::Fill;
            }
            PageState::Unknown | PageState::Away(_) => {}
        }
        if !urgent && self.grantable_bytes() < PAGE_SIZE as i64 {
            self.cache.totals.fault_no_memory += 1;
            return FaultAnswer::NoMemory;
        }
        if let PageState::Away(body) = state {
            if let BodyState::OnDisk { packed, extent } = self.cache.bodies.state(body) {
                let (offset, bytes, codec) = (extent.offset, packed.len, packed.codec);
                return FaultAnswer::Read(ReadRequest {
                    body,
                    offset,
                    bytes,
                    codec,
                });
            }
        }
        self.plan_run(space, page, plan);
        FaultAnswer::Fill
    }

    /// A fault on a page thought present is old news as a rule: its thread has been served meanwhile.
    /// The driver will put zeros there *unless the page is there*, and so the page must not be taken
    /// between the question and the answer: until `filled` it is not chosen.
    fn set_aside(&mut self, space: SpaceId, page: PageNo) {
        if let Some(space) = self.spaces.get_mut(&space) {
            space.change(page, PageState::Stuck, &mut self.pages);
        }
    }

    fn wait(&mut self) -> FaultAnswer {
        self.cache.totals.fault_waits += 1;
        FaultAnswer::Wait
    }

    /// Appends the page and as many neighbours as sequence and free memory suggest. A run mixes no
    /// first touches with pages that come back, and ends before anything that needs more work.
    fn plan_run(&self, id: SpaceId, page: PageNo, plan: &mut FillPlan) {
        let Some(space) = self.spaces.get(&id) else {
            return plan.items.push(FillItem::Zero);
        };
        let window = i64::from(space.streams.window(page, self.settings.run_max));
        let count = window.min(self.grantable_bytes() / PAGE_SIZE as i64).max(1);
        let first_touch = space.table.get(page) == PageState::Unknown;
        for page in PageRange::new(page, count as u64).pages() {
            let item = match space.table.get(page) {
                PageState::Unknown if first_touch && !space.is_contested(page) => {
                    Some(FillItem::Zero)
                }
                PageState::Away(body) if !first_touch => self.copy_out(body, &mut plan.bytes),
                _ => None,
            };
            match item {
                Some(item) => plan.items.push(item),
                None => return,
            }
        }
    }

    /// How to make the page of a body; `None` when it has to be read first.
    fn copy_out(&self, body: BodyId, bytes: &mut Vec<u8>) -> Option<FillItem> {
        match self.cache.bodies.state(body) {
            BodyState::Staged(slot) => Some(FillItem::Staged(slot)),
            BodyState::Same(word) => Some(FillItem::Same(word)),
            BodyState::Stored { handle, packed } | BodyState::Writing { handle, packed, .. } => {
                let start = bytes.len() as u32;
                bytes.extend_from_slice(self.cache.layout.get(handle));
                Some(FillItem::Packed {
                    codec: packed.codec,
                    start,
                    len: packed.len,
                })
            }
            BodyState::OnDisk { .. } => None,
            state @ (BodyState::Free | BodyState::Drowned { .. }) => {
                unreachable!("a page names {body:?}, which is {state:?}")
            }
        }
    }

    /// These pages, the faulted one first, are in place now: resident and youngest, in address
    /// order. Their bodies lose a reference; only the first page counts as a hit.
    pub fn filled(&mut self, space: SpaceId, range: PageRange) {
        if !self.spaces.contains_key(&space) {
            return;
        }
        for page in range.pages() {
            self.fill_page(space, page, page == range.start);
        }
        let run_max = self.settings.run_max;
        if let Some(space) = self.spaces.get_mut(&space).filter(|_| !range.is_empty()) {
            space.streams.filled(range, run_max);
        }
    }

    fn fill_page(&mut self, id: SpaceId, page: PageNo, demand: bool) {
        let stamp = self.next_stamp();
        let Some(space) = self.spaces.get_mut(&id) else {
            return;
        };
        // A command is under way, and its report will say where the page is.
        if matches!(space.table.get(page), PageState::Leaving { .. }) {
            return;
        }
        self.starved = false;
        self.granted_pages += 1;
        let totals = &mut self.cache.totals;
        match space.arrive(page, stamp, &mut self.pages) {
            PageState::Unknown if demand => totals.filled_zero_pages += 1,
            PageState::Unknown => totals.prezeroed_pages += 1,
            PageState::Away(body) if demand => self.demand_hit(body),
            PageState::Away(body) => {
                totals.prefetched_pages += 1;
                self.cache.release(body);
            }
            _ => totals.filled_resident_pages += u64::from(demand),
        }
    }

    fn demand_hit(&mut self, body: BodyId) {
        let totals = &mut self.cache.totals;
        match self.cache.bodies.state(body) {
            BodyState::Staged(_) => totals.filled_staged_pages += 1,
            BodyState::Same(_) => totals.filled_same_pages += 1,
            BodyState::OnDisk { .. } => {
                totals.filled_disk_pages += 1;
                self.cache.read();
            }
            _ => totals.filled_stored_pages += 1,
        }
        let list = self.cache.order.list_of(body);
        // Released first: castro03 takes a page out of the cache, then asks what that means.
        self.cache.release(body);
        list.into_iter().for_each(|list| self.cache.hit(list));
    }
}
