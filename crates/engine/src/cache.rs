//! Bodies on their way: from the staging ring into the compressed cache, to the swap file, or out.
//!
//! Owns everything that holds folded bytes and keeps their accounts together. Pages and address
//! spaces are not known here; a body is freed when its last reference goes.

use pleat_backing::checksum;
use pleat_codec::Folded;
use pleat_policy::{Admission, Advice, AgeFrom, Ages, CacheView, List, Refault, Sizing};
use pleat_store::{Full, Growth, Handle, Layout};
use pleat_types::{CodecId, PAGE_SIZE};

use crate::bodies::{make_room, Bodies, BodyState, DiskCopy, Home, Packed};
use crate::copies::Sparing;
use crate::debt::{Debt, Why};
use crate::distance::Distances;
use crate::ghosts::Ghosts;
use crate::landing::Landing;
use crate::order::Order;
use crate::recompress::Copied;
use crate::swap::Swap;
use crate::{BodyId, CacheFull, Counters, Settings, Victims, WriteOut};

/// The compressed cache never takes the last part of the budget, 1/32, whatever the policy says: some
/// have no bound at all, and programs run in what is not compressed.
const LEAST_OUTSIDE: u64 = 32;
/// Pages just read from the swap file take at most this part of the budget, but find room for two
/// clusters, and never need more than...
const LANDING_PART: u64 = 64;
/// ... these bytes.
const LANDING_MOST: u64 = 16 << 20;

/// What the engine knows of memory outside the compressed cache, for the sizing policy.
#[derive(Clone, Copy, Default)]
pub(crate) struct Outside {
    pub(crate) resident_pages: u64,
    /// Stamps of the oldest resident pages, as last seen.
    pub(crate) oldest_anonymous: Option<u64>,
    pub(crate) oldest_file: Option<u64>,
}

/// The compressed cache with its bodies.
///
/// ```text
/// order.len() == layout items == stored + writing + clean bodies
/// layout payload == stored bytes + writing bytes + clean bytes
/// debt.total() <= layout payload
/// away.total() == bodies that a page names as away + ghosts
/// ```
///
/// Staged bodies are not in the cache yet. Bodies of one repeated word never are: they occupy no
/// frame, so they are neither expense nor profit, and getting one back says nothing about size.
pub(crate) struct Cache {
    pub(crate) bodies: Bodies,
    pub(crate) order: Order,
    pub(crate) layout: Box<dyn Layout>,
    /// Whose item a handle is, by handle; kept only for layouts that choose frames.
    pub(crate) owners: Vec<BodyId>,
    pub(crate) swap: Option<Swap>,
    /// Pages of the swap file that were just read.
    pub(crate) landing: Landing,
    pub(crate) sizing: Box<dyn Sizing>,
    pub(crate) admission: Admission,
    pub(crate) write_out: WriteOut,
    /// See [`Settings::checks`].
    pub(crate) checks: bool,
    /// There are pages of files, which can be had again.
    pub(crate) has_files: bool,
    budget_bytes: u64,
    /// Last age stamp given out.
    pub(crate) clock: u64,
    pub(crate) outside: Outside,
    pub(crate) away: Distances,
    pub(crate) ghosts: Ghosts,
    /// Pages of files whose body was dropped: unknown from now on. Emptied by `Engine::forget_dropped`.
    pub(crate) dropped: Vec<Home>,
    /// Payload the cache is to give up; what is being written is still in it.
    pub(crate) debt: Debt,
    /// The size at which the sizing policy first said that the cache may not grow, since it last said
    /// that it may.
    limit_bytes: Option<u64>,
    /// When it last came to owe something.
    pub(crate) owed_at: u64,
    /// Whether it is worth while to keep copies in the swap file.
    pub(crate) sparing: Sparing,
    /// What folding leaves of a page, a running mean in 1/16 bytes.
    folded_mean_16ths: u64,
    /// Room in the swap file for pages that are being moved there from elsewhere in it.
    pub(crate) moving_bytes: u64,
    /// Copies of stored bodies that a driver works on (`recompress.rs`); a handful at most.
    pub(crate) copied: Vec<Copied>,
    pub(crate) totals: Counters,
}

/// What an engine is made of, beside its settings.
pub struct Parts {
    /// Where compressed pages lie.
    pub layout: Box<dyn Layout>,
    /// How many there may be.
    pub sizing: Box<dyn Sizing>,
    /// Which pages become such.
    pub admission: Admission,
    /// Which pages leave memory.
    pub victims: Victims,
}

/// Most bytes of pages just read from the swap file.
fn landing_max(budget_bytes: u64, cluster_bytes: u32) -> u64 {
    let part = (budget_bytes / LANDING_PART).min(LANDING_MOST);
    part.max(2 * u64::from(cluster_bytes))
}

impl Cache {
    pub(crate) fn new(settings: &Settings, parts: Parts) -> Cache {
        let swap = settings.swap.map(Swap::new);
        let cluster = swap.as_ref().map_or(0, |swap| swap.settings.cluster_bytes);
        let mut cache = Cache {
            bodies: Bodies::default(),
            order: Order::new(),
            layout: parts.layout,
            owners: Vec::new(),
            swap,
            landing: Landing::new(landing_max(settings.budget_bytes, cluster), cluster),
            sizing: parts.sizing,
            admission: parts.admission,
            write_out: settings.write_out,
            checks: settings.checks,
            has_files: false,
            budget_bytes: settings.budget_bytes,
            clock: 0,
            outside: Outside::default(),
            away: Distances::default(),
            ghosts: Ghosts::new(settings.budget_bytes / PAGE_SIZE as u64),
            dropped: Vec::new(),
            debt: Debt::default(),
            limit_bytes: None,
            owed_at: 0,
            sparing: Sparing::default(),
            // Until there is experience: half a page.
            folded_mean_16ths: 16 * PAGE_SIZE as u64 / 2,
            moving_bytes: 0,
            copied: Vec::new(),
            totals: Counters::default(),
        };
        cache.account();
        cache
    }

    /// From now on the budget is this. What the cache has beyond the part of it that it may take is owed.
    pub(crate) fn set_budget(&mut self, budget_bytes: u64) {
        self.budget_bytes = budget_bytes;
        let cluster = self.swap.as_ref();
        let cluster = cluster.map_or(0, |swap| swap.settings.cluster_bytes);
        self.landing.set_max(landing_max(budget_bytes, cluster));
        self.ghosts.set_most(budget_bytes / PAGE_SIZE as u64);
        self.limit_bytes = None;
        let over = self.cache_bytes().saturating_sub(self.most_bytes());
        let over = over.saturating_sub(self.debt.total());
        if over > 0 && self.can_shrink() {
            self.owe(Why::Whole, over);
            self.debt.cap(self.payload_bytes());
            self.pay_with_clean_pages();
        }
    }

    /// The cache never takes more, whatever the policy says.
    fn most_bytes(&self) -> u64 {
        self.budget_bytes - self.budget_bytes / LEAST_OUTSIDE
    }

    /// What folding leaves of a page, in the mean.
    pub(crate) fn folded_bytes(&self) -> u64 {
        self.folded_mean_16ths / 16
    }

    /// How much more the swap file may hold, 0 where it takes nothing; `None`: as much as the disk does.
    pub(crate) fn swap_left_bytes(&self) -> Option<u64> {
        match self.swap.as_ref() {
            Some(swap) if self.can_write() => {
                let most = swap.settings.max_bytes?;
                Some(most.saturating_sub(swap.live_bytes()))
            }
            _ => Some(0),
        }
    }

    pub(crate) fn next_stamp(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Memory the compressed cache uses, its metadata and fragmentation counted.
    pub(crate) fn cache_bytes(&self) -> u64 {
        let usage = self.layout.usage();
        usage.frames_bytes + usage.metadata_bytes
    }

    /// Memory that folding one more page is expected to free. Never less than a quarter of a page:
    /// with data that does not compress, taking even more pages would not help.
    pub(crate) fn gain_bytes(&self) -> u64 {
        let page = PAGE_SIZE as u64;
        page.saturating_sub(self.folded_mean_16ths / 16)
            .max(page / 4)
    }

    /// A staged body was folded; it stays staged when there is no place for it.
    pub(crate) fn fold(
        &mut self,
        body: BodyId,
        result: Folded,
        bytes: &[u8],
    ) -> Result<(), CacheFull> {
        let copy = match self.bodies.state(body) {
            BodyState::Staged(_) => None,
            BodyState::StagedClean { copy, .. } => Some(copy),
            state => panic!("{body:?} was folded but is not staged: {state:?}"),
        };
        if self.bodies.references(body) == 0 {
            self.totals.folded_void_pages += 1;
            self.bodies.free(body);
            copy.into_iter()
                .for_each(|copy| self.free_extent(copy.extent));
            return Ok(());
        }
        match result {
            Folded::Same(word) => {
                self.totals.folded_same_pages += 1;
                self.learn(0);
                self.bodies.set_state(body, BodyState::Same(word));
                copy.into_iter()
                    .for_each(|copy| self.free_extent(copy.extent));
            }
            Folded::Bytes { codec, len } => {
                self.keep(body, copy, codec, &bytes[..len])?;
                let raw = codec == CodecId::RAW;
                self.totals.folded_raw_pages += u64::from(raw);
                self.totals.folded_packed_pages += u64::from(!raw);
                self.totals.folded_bytes += len as u64;
                self.learn(len as u64);
            }
        }
        Ok(())
    }

    fn learn(&mut self, folded_bytes: u64) {
        self.folded_mean_16ths =
            self.folded_mean_16ths - self.folded_mean_16ths / 16 + folded_bytes;
    }

    /// Stores what was folded; or passes it on, when it did not compress and the cache is not for such
    /// pages (the 4:3 rule of douglis93, section 5.2): what has a copy is dropped, the rest is the
    /// next to be written.
    fn keep(
        &mut self,
        body: BodyId,
        copy: Option<DiskCopy>,
        codec: CodecId,
        bytes: &[u8],
    ) -> Result<(), CacheFull> {
        let passed_on = codec == CodecId::RAW && self.admission.passes_on_incompressible();
        match copy {
            Some(copy) if passed_on => self.bodies.set_state(body, BodyState::OnDisk(copy)),
            None if passed_on && self.bodies.home(body).is_some() => self.drop_home(body),
            _ => self.store(body, copy, codec, bytes, passed_on && self.swap.is_some())?,
        }
        self.totals.passed_on_pages += u64::from(passed_on);
        Ok(())
    }

    fn store(
        &mut self,
        body: BodyId,
        copy: Option<DiskCopy>,
        codec: CodecId,
        bytes: &[u8],
        passed_on: bool,
    ) -> Result<(), CacheFull> {
        let clean = copy.is_some() || self.bodies.home(body).is_some();
        let handle = match self.layout.insert(bytes, Growth::Denied) {
            Ok(handle) => handle,
            Err(Full) => self.store_growing(bytes)?,
        };
        self.totals.clean_stored_pages += u64::from(clean);
        let packed = Packed {
            codec,
            len: bytes.len() as u32,
        };
        let state = match copy {
            Some(copy) => BodyState::Clean {
                handle,
                packed,
                copy,
            },
            None => BodyState::Stored { handle, packed },
        };
        self.bodies.set_state(body, state);
        self.note_check(body, bytes);
        self.own(handle, body, clean);
        if passed_on {
            self.order.push_oldest(body);
            self.owe(Why::Policy, bytes.len() as u64);
        } else {
            let (bodies, left_at) = (&self.bodies, self.bodies.left_at(body));
            self.order
                .push(body, |other| bodies.left_at(other) > left_at);
        }
        self.debt.cap(self.payload_bytes());
        self.account();
        self.pay_with_clean_pages();
        Ok(())
    }

    /// Remembers what the folded page must be.
    pub(crate) fn note_check(&mut self, body: BodyId, bytes: &[u8]) {
        if self.checks {
            self.bodies.set_check(body, checksum(bytes));
        }
    }

    /// Remembers whose item this is, where the layout will ask.
    pub(crate) fn own(&mut self, handle: Handle, body: BodyId, clean: bool) {
        if !self.layout.chooses_frames() {
            return;
        }
        let index = handle.0 as usize;
        if self.owners.len() <= index {
            make_room(&mut self.owners, index + 1);
            self.owners.resize(index + 1, BodyId(u32::MAX));
        }
        self.owners[index] = body;
        self.layout.set_clean(handle, clean);
    }

    /// The cache is full and compacted. It grows now in any case, because a page that was taken
    /// must go somewhere; if the policy says no, the oldest pages are owed in exchange. (castro03
    /// releases the oldest page at once and tries again.)
    ///
    /// Owed is all that the cache has above the size it had when it was first told so. Were it only
    /// what it grew by, it would creep up: what leaves gives room that is filled without asking, and
    /// the frame stays.
    fn store_growing(&mut self, bytes: &[u8]) -> Result<Handle, CacheFull> {
        let view = self.view();
        let leaves_room = view.cache_bytes < self.most_bytes();
        let may_grow = !self.can_shrink() || self.sizing.may_grow(&view);
        let granted = may_grow && (leaves_room || !self.can_shrink());
        let Ok(handle) = self.layout.insert(bytes, Growth::Allowed) else {
            // To try may have compacted it.
            self.account();
            return Err(CacheFull);
        };
        if granted {
            self.totals.growths += 1;
            self.limit_bytes = None;
        } else {
            self.totals.growths_denied += 1;
            let limit = *self.limit_bytes.get_or_insert(view.cache_bytes);
            let limit = limit.min(self.sizing.bound_bytes(&view));
            let over = self.cache_bytes().saturating_sub(limit);
            let why = if may_grow { Why::Whole } else { Why::Policy };
            let over = over.max(bytes.len() as u64);
            self.owe(why, over.saturating_sub(self.debt.total()));
        }
        Ok(handle)
    }

    /// Whether pages can leave the cache other than by being used: to the swap file, or because they can be
    /// had elsewhere. Where none can, to ask for less would only have the store shrink by a frame at each page that
    /// is used, and grow by one at the next that is stored.
    pub(crate) fn can_shrink(&self) -> bool {
        let oldest_can_go = || {
            let oldest = self.order.oldest();
            oldest.is_some_and(|body| self.bodies.is_droppable(body))
        };
        match self.swap {
            Some(_) => self.can_write() || oldest_can_go(),
            None => self.bodies.counts().droppable > 0,
        }
    }

    /// Whether the swap file takes anything at present.
    pub(crate) fn can_write(&self) -> bool {
        let swap = self.swap.as_ref();
        swap.is_some_and(|swap| !swap.halted && !swap.full)
    }

    pub(crate) fn view(&self) -> CacheView {
        let age = |stamp: Option<u64>| stamp.map(|stamp| self.clock.saturating_sub(stamp));
        let from = self.sizing.compressed_age();
        let compressed = self.order.oldest().map(|body| {
            let stored = self.clock.saturating_sub(self.bodies.left_at(body));
            match from {
                AgeFrom::Stored => stored,
                AgeFrom::LastUse => stored + u64::from(self.bodies.unused_for(body)),
            }
        });
        CacheView {
            budget_bytes: self.budget_bytes,
            cache_bytes: self.cache_bytes(),
            cached_pages: self.order.len(),
            resident_pages: self.outside.resident_pages,
            back_pages: self.totals.back_pages(),
            ages: Ages {
                anonymous: age(self.outside.oldest_anonymous),
                file: age(self.outside.oldest_file),
                compressed,
            },
        }
    }

    /// A page was wanted that is on this list of the compressed cache: tells the sizing policy and
    /// does what it advises.
    pub(crate) fn hit(&mut self, list: List) {
        match list {
            List::Expense => self.totals.expense_hits += 1,
            List::Profit => self.totals.profit_hits += 1,
        }
        let view = self.view();
        if self.sizing.hit(list, &view) == Advice::Shrink {
            self.shrink();
        }
    }

    /// A page was wanted that is in the swap file or in its own.
    pub(crate) fn read(&mut self) {
        let view = self.view();
        self.sizing.read(&view);
    }

    /// A page that was away is wanted again; `distance_pages` counts those that left after it and are still away.
    pub(crate) fn refault(&mut self, refault: Refault) {
        let refault = Refault {
            distance_pages: self.outside.resident_pages + refault.distance_pages,
            ..refault
        };
        let view = self.view();
        self.sizing.refault(refault, &view);
    }

    fn shrink(&mut self) {
        if !self.can_shrink() {
            return;
        }
        if self.layout.relocate_to_free_cell() {
            self.totals.shrinks_relocated += 1;
            self.account();
        } else if let Some(oldest) = self.order.oldest() {
            self.totals.shrinks_released += 1;
            self.owe(Why::Policy, u64::from(self.packed_len(oldest)));
            self.pay_with_clean_pages();
        }
    }

    pub(crate) fn packed_len(&self, body: BodyId) -> u32 {
        match self.bodies.state(body) {
            BodyState::Stored { packed, .. }
            | BodyState::Writing { packed, .. }
            | BodyState::Clean { packed, .. } => packed.len,
            state => unreachable!("{body:?} is in the order but {state:?}"),
        }
    }

    /// Bytes of all pages in the compressed cache.
    pub(crate) fn payload_bytes(&self) -> u64 {
        let counts = self.bodies.counts();
        counts.stored_bytes + counts.writing_bytes + counts.clean_bytes
    }

    /// Tells the order how many page frames the cache uses now.
    pub(crate) fn account(&mut self) {
        self.order
            .set_frames(self.cache_bytes().div_ceil(PAGE_SIZE as u64));
    }
}
