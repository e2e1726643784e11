//! Faults: what to put in place, and what follows once it is there.
//!
//! `fault` only looks; the driver may fail to fill and ask again. All consequences are drawn by
//! `filled`. This is the hot path: two table look-ups and one copy of folded bytes per page, no
//! allocation once the plan has grown, nothing proportional to anything but the run.

use pleat_policy::{Backed, Refault, Tier};
use pleat_types::{PageNo, PageRange, SpaceId, PAGE_SIZE};

use crate::bodies::{BodyState, Home};
use crate::cache::Cache;
use crate::evict::id_of;
use crate::release::Left;
use crate::table::{PageState, Touched};
use crate::{BodyId, Engine, FaultAnswer, FillItem, FillPlan};

/// Faults that are answered at the same time, at most: so many pages must be free.
const APART_MAX: usize = 16;

/// Why a page is put in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// There was a fault on it.
    Wanted,
    /// It continues a run of pages that come in order.
    InRun,
    /// It lies beside one that was wanted (`blocks.rs`).
    Beside,
}

impl Engine {
    /// The program uses a page. `false`: it is not in memory, that is a fault; ask again once it is.
    /// Drivers that see every use call this for each; it gives the page a second chance when it is
    /// among the oldest, and a write makes it differ from its copy elsewhere.
    pub fn touch(&mut self, space: SpaceId, page: PageNo, write: bool) -> bool {
        let touched = match self.spaces.get_mut(&space) {
            Some(space) => space.table.touch(page, write),
            None => Touched::Absent,
        };
        if touched == Touched::Dirtied {
            self.give_up_copy(space, page);
        }
        touched != Touched::Absent
    }

    /// Whether a page is in memory. Drivers that see no uses ask before they call it a fault.
    pub fn is_present(&self, space: SpaceId, page: PageNo) -> bool {
        let space = self.spaces.get(&space);
        space.is_some_and(|space| matches!(space.table.get(page), PageState::Resident { .. }))
    }

    /// A thread faulted on `page`: what is to be done?
    ///
    /// With [`FaultAnswer::Fill`], `plan` holds the page and perhaps neighbours after it; cut it
    /// where the mapping ends. An `urgent` fault is served even when memory is short.
    ///
    /// Until `filled` is called (or the attempt given up) the caller must not answer another fault
    /// of this space, nor report `forget` or `remap` for it, without asking again: the content in
    /// the plan would be out of date. Reading is different: whatever happens meanwhile, `landed` tells
    /// whether what was read is still wanted.
    pub fn fault(
        &mut self,
        space: SpaceId,
        page: PageNo,
        urgent: bool,
        plan: &mut FillPlan,
    ) -> FaultAnswer {
        plan.clear();
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
        if !urgent && self.grantable_bytes() < PAGE_SIZE as i64 && !self.spends_floor() {
            self.cache.totals.fault_no_memory += 1;
            return FaultAnswer::NoMemory;
        }
        if let PageState::Away(body) = state {
            let is_on_disk = matches!(self.cache.bodies.state(body), BodyState::OnDisk(_));
            if is_on_disk && self.cache.landing.get(body).is_none() {
                let free = self.grantable_bytes().max(0) as u64;
                self.cache.plan_reads(body, free, &mut plan.reads);
                if plan.reads.len() == 1 {
                    self.plan_beside(space, page, free, &mut plan.reads);
                }
                return FaultAnswer::Read;
            }
        }
        self.plan_run(space, page, plan);
        FaultAnswer::Fill
    }

    /// As [`Engine::fault`], for drivers that answer several faults of a space at the same time: `true` if the
    /// page was away and comes by itself, from memory; then `plan` holds it. In any other case ask `fault`, later.
    ///
    /// Until `filled` is called for it the caller may answer other faults that were looked up in this way, of
    /// other pages, in any order; nothing else of what `fault` forbids. No such plan goes out of date by another:
    /// none brings more than its own page, and while a page is away its content stays what it is.
    pub fn fault_apart(&self, space: SpaceId, page: PageNo, plan: &mut FillPlan) -> bool {
        plan.clear();
        let Some(known) = self.spaces.get(&space) else {
            return false;
        };
        let PageState::Away(body) = known.table.get(page) else {
            return false;
        };
        // Who takes memory at the same time has seen as much of it free.
        let has_room = self.grantable_bytes() >= (APART_MAX * PAGE_SIZE) as i64;
        if !has_room || known.streams.window(page, self.settings.run_max) > 1 {
            return false;
        }
        let item = self.copy_out(body, &mut plan.bytes);
        plan.items.extend(item);
        item.is_some()
    }

    /// Whether what is kept free for memory that the job takes without asking may be spent: nothing is left to take
    /// away, as when nearly all memory is in a read-only mapping, and nothing is on its way out. To wait would be in
    /// vain, and the program uses the page that it waits for again and again.
    fn spends_floor(&self) -> bool {
        self.starved && self.free_bytes() >= PAGE_SIZE as i64 && self.gain_under_way() == 0
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
        let fresh = match space.backed {
            Backed::BySwap => FillItem::Zero,
            Backed::ByFile => FillItem::File,
        };
        for page in PageRange::new(page, count as u64).pages() {
            let item = match space.table.get(page) {
                PageState::Unknown if first_touch && !space.is_contested(page) => Some(fresh),
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
    pub(crate) fn copy_out(&self, body: BodyId, bytes: &mut Vec<u8>) -> Option<FillItem> {
        match self.cache.bodies.state(body) {
            BodyState::Staged(slot) | BodyState::StagedClean { slot, .. } => {
                Some(FillItem::Staged(slot))
            }
            BodyState::Same(word) => Some(FillItem::Same(word)),
            BodyState::Stored { handle, packed }
            | BodyState::Writing { handle, packed, .. }
            | BodyState::Clean { handle, packed, .. } => {
                let start = bytes.len() as u32;
                self.cache.layout.read_into(handle, bytes);
                Some(FillItem::Packed {
                    codec: packed.codec,
                    start,
                    len: packed.len,
                    check: self.cache.bodies.check(body),
                    compares: self.is_to_compare(body),
                })
            }
            BodyState::OnDisk(copy) => {
                let folded = self.cache.landing.get(body)?;
                let start = bytes.len() as u32;
                bytes.extend_from_slice(folded);
                Some(FillItem::Packed {
                    codec: copy.packed.codec,
                    start,
                    len: copy.packed.len,
                    check: self.cache.bodies.check(body),
                    compares: self.is_to_compare(body),
                })
            }
            state @ (BodyState::Free | BodyState::Drowned { .. }) => {
                unreachable!("a page names {body:?}, which is {state:?}")
            }
        }
    }

    /// These pages, the faulted one first, are in place now: resident and youngest, in address
    /// order. Their bodies lose a reference; only the first page counts as a hit. `true`: its neighbours are
    /// likely to be wanted soon, too ([`Engine::neighbours`]).
    pub fn filled(&mut self, space: SpaceId, range: PageRange) -> bool {
        let Some(known) = self.spaces.get(&space) else {
            return false;
        };
        let was = match known.table.get(range.start) {
            PageState::Away(body) => Some(self.cache.bodies.state(body)),
            _ => None,
        };
        self.cache.outside.resident_pages = self.pages.present();
        for page in range.pages() {
            let came = match page == range.start {
                true => Came::Wanted,
                false => Came::InRun,
            };
            self.fill_page(space, page, came);
            // A hit may have shrunk the cache by a page of this very range.
            self.forget_dropped();
        }
        let run_max = self.settings.run_max;
        let knows_blocks = self.knows_blocks(space);
        let Some(space) = self.spaces.get_mut(&space).filter(|_| !range.is_empty()) else {
            return false;
        };
        space.wanted(range);
        space.streams.filled(range, run_max);
        // A run brings its own.
        let is_alone = range.start.plus(1) == range.end;
        let was = was.filter(|_| knows_blocks && is_alone);
        was.is_some_and(|was| space.visit(range.start, matches!(was, BodyState::OnDisk(_))))
    }

    pub(crate) fn fill_page(&mut self, id: SpaceId, page: PageNo, came: Came) {
        let demand = came == Came::Wanted;
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
        let backed = space.backed;
        let before = space.arrive(page, stamp, &mut self.pages);
        let totals = &mut self.cache.totals;
        match before {
            PageState::Unknown if backed == Backed::ByFile => {
                space.table.set_clean(page, true);
                self.read_from_file(id, page, demand);
            }
            PageState::Unknown if demand => totals.filled_zero_pages += 1,
            PageState::Unknown => totals.prezeroed_pages += 1,
            PageState::Away(body) => self.come_back(id, page, body, came),
            _ => totals.filled_resident_pages += u64::from(demand),
        }
    }

    /// A page of a file was read from it.
    fn read_from_file(&mut self, id: SpaceId, page: PageNo, demand: bool) {
        let cache = &mut self.cache;
        let left_at = cache.forget_ghost(Home { space: id, page });
        if !demand {
            cache.totals.prefetched_pages += 1;
            return;
        }
        cache.totals.filled_file_pages += 1;
        cache.admission.read(id_of(id, page));
        cache.read();
        if let Some(left_at) = left_at {
            let newer_pages = cache.away.newer_than(left_at);
            cache.refault(Refault {
                tier: Tier::Backing,
                distance_pages: newer_pages,
                backed: Backed::ByFile,
                in_round: false,
                by_arrival: false,
            });
        }
    }

    /// A page that was away is in place: a hit, if it was wanted and not only its neighbour.
    fn come_back(&mut self, id: SpaceId, page: PageNo, body: BodyId, came: Came) {
        let is_to_compare = self.is_to_compare(body);
        let by_arrival = !self.sees_uses(id);
        let Some(space) = self.spaces.get_mut(&id) else {
            return;
        };
        let (cache, backed) = (&mut self.cache, space.backed);
        let in_round = space.residents.rounds.is_on();
        let state = cache.bodies.state(body);
        let (list, left_at) = (cache.order.list_of(body), cache.bodies.left_at(body));
        let is_clean = backed == Backed::ByFile || matches!(state, BodyState::Clean { .. });
        match came {
            Came::Wanted | Came::InRun => cache.landing.remove(body, true),
            Came::Beside => {
                cache.landing.take(body);
            }
        }
        // Taken out of the cache first: castro03 does that, then asks what it means.
        if backed == Backed::ByFile {
            cache.release(body);
            space.table.set_clean(page, true);
        } else if !self.settings.tracks_writes && !is_to_compare {
            cache.release(body);
        } else if let Left::Copy = cache.bring_back(body) {
            match self.settings.tracks_writes {
                true => space.retain(page, body),
                false => space.hold(page, body),
            }
        }
        if came != Came::Beside {
            let (now, age) = (cache.clock, cache.oldest_age());
            space.heat.returned(left_at, now, age);
        }
        if came != Came::Wanted {
            cache.totals.prefetched_pages += 1;
            if came == Came::InRun {
                space.residents.rounds.followed();
            }
            return;
        }
        let tier = cache.count_hit(state);
        match tier {
            Tier::Backing => {
                cache.admission.read(id_of(id, page));
                cache.read();
            }
            _ if is_clean && list.is_some() => {
                cache.totals.clean_reclaimed_pages += 1;
                cache.admission.clean_reclaimed();
            }
            _ => {}
        }
        list.into_iter().for_each(|list| cache.hit(list));
        let newer_pages = cache.away.newer_than(left_at);
        if !matches!(state, BodyState::Same(_)) {
            cache.refault(Refault {
                tier,
                distance_pages: newer_pages,
                backed,
                in_round,
                by_arrival,
            });
        }
        self.give_lives(id, page, newer_pages);
    }
}

impl Cache {
    fn count_hit(&mut self, state: BodyState) -> Tier {
        let totals = &mut self.totals;
        match state {
            BodyState::Staged(_) | BodyState::StagedClean { .. } => {
                totals.filled_staged_pages += 1;
                Tier::Staged
            }
            BodyState::Same(_) => {
                totals.filled_same_pages += 1;
                Tier::Cache
            }
            BodyState::OnDisk(_) => {
                totals.filled_disk_pages += 1;
                Tier::Backing
            }
            _ => {
                totals.filled_stored_pages += 1;
                Tier::Cache
            }
        }
    }
}
