//! The page cache itself: a deterministic state machine without I/O.
//!
//! A driver (the pager, the simulator) reports what happens to pages and asks what to do. The
//! engine keeps the page table of every address space, the order of resident pages, the compressed
//! cache and the map of the swap file; it never compresses, reads, writes, waits or looks at a
//! clock. The same calls in the same order give the same answers.
//!
//! One page's way, by the files that follow it:
//!
//! ```text
//!            fault / filled                 choose_victims / taken        folded
//!  program <---------------- fault.rs   evict.rs ----------------> Staged -----> compressed cache
//!     |                          ^          ^                                     (cache.rs,
//!     | munmap, mremap, fork     |          |                                      order.rs)
//!     v                          |          |                                        |
//!  spaces.rs -------------> space.rs, table.rs, residents.rs           writeout.rs <--+
//!                                                                          |
//!                                                                          v
//!                                                             swap file (pleat-backing)
//! ```
//!
//! ```
//! use pleat_engine::{preset, Engine, FaultAnswer, FillItem, FillPlan, Settings, WriteOut};
//! use pleat_types::{PageNo, PageRange};
//!
//! let settings = Settings {
//!     budget_bytes: 1 << 20,
//!     reserve_bytes: 1 << 16,
//!     floor_bytes: 0,
//!     run_max: 16,
//!     swap: None,
//!     tracks_writes: false,
//!     write_out: WriteOut::OnDemand,
//!     brings_neighbours: false,
//!     keeps_copies: false,
//!     checks: false,
//! };
//! let parts = preset("pleat").unwrap().parts(settings.budget_bytes).unwrap();
//! let mut engine = Engine::new(settings, parts);
//!
//! let space = engine.add_space();
//! let mut plan = FillPlan::default();
//! assert_eq!(engine.fault(space, PageNo(7), false, &mut plan), FaultAnswer::Fill);
//! assert_eq!(plan.items, [FillItem::Zero]);
//! engine.filled(space, PageRange::new(PageNo(7), 1));
//! assert_eq!(engine.counters().resident_pages, 1);
//! ```
#![forbid(unsafe_code)]

mod blocks;
mod bodies;
mod bring_back;
mod cache;
mod chunks;
mod collect;
mod copies;
mod counters;
mod debt;
mod distance;
mod evict;
mod fault;
mod files;
mod ghosts;
mod heat;
mod landing;
mod lives;
mod order;
mod preset;
mod reads;
mod recompress;
mod release;
mod residents;
mod rounds;
mod scouts;
mod share;
mod space;
mod spaces;
mod streams;
mod swap;
mod table;
mod types;
mod valid;
mod writeout;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use pleat_policy::Costs;
use pleat_store::Release;
use pleat_types::{PageNo, SpaceId, PAGE_SIZE};

pub use blocks::BLOCK_PAGES;
pub use cache::Parts;
pub use counters::Counters;
pub use preset::{preset, preset_keys, preset_names, Preset};
pub use types::{
    BodyId, CacheFull, ColdPage, FaultAnswer, FillItem, FillPlan, ReadItem, Refusal, Settings,
    SpacePages, SwapSettings, SwapUnit, Victims, WayOut, WriteItem, WriteOut, WriteOutcome,
    WritePlan,
};

use cache::Cache;
use lives::Lives;
use space::{PageCounts, Space};
use table::PageState;

/// The page cache of one job.
///
/// ```text
/// free == budget - foreign - present pages - staged pages - compressed cache
/// foreign == total as last measured - what the engine tracked then
/// ```
pub struct Engine {
    settings: Settings,
    spaces: BTreeMap<SpaceId, Space>,
    next_space: u32,
    pages: PageCounts,
    cache: Cache,
    /// Memory in use that is not tracked here. Negative when pages shared by fork are tracked
    /// more than once.
    foreign_bytes: i64,
    /// Free memory that only urgent faults may use.
    floor_bytes: u64,
    /// See [`Engine::granted_pages`].
    granted_pages: u64,
    /// Who stays longer, where uses are not seen; `None`: nobody.
    lives: Option<Lives>,
    /// Somebody waits until so much is free.
    asked_bytes: u64,
    /// See [`Engine::limit_resident`].
    resident_max_pages: Option<u64>,
    /// The last attempt to choose victims found none, and none have come since.
    starved: bool,
    /// Tickets given to copies of cold pages.
    copies_made: u64,
    /// Pages of a part of a range while it is forgotten or moved; kept for its memory.
    scratch: Vec<(PageNo, PageState)>,
}

impl Engine {
    /// An engine that tracks nothing yet.
    ///
    /// # Panics
    /// When `run_max` is 0 or a fragment has no bytes.
    pub fn new(mut settings: Settings, parts: Parts) -> Engine {
        settings.keeps_copies &= !settings.tracks_writes;
        assert!(settings.run_max > 0, "a fault fills at least one page");
        Engine {
            lives: (parts.victims == Victims::Lives).then(Lives::default),
            settings,
            spaces: BTreeMap::new(),
            next_space: 0,
            pages: PageCounts::default(),
            cache: Cache::new(&settings, parts),
            foreign_bytes: 0,
            floor_bytes: settings.floor_bytes,
            granted_pages: 0,
            asked_bytes: 0,
            resident_max_pages: None,
            starved: false,
            copies_made: 0,
            scratch: Vec::new(),
        }
    }

    /// Most pages filled for one fault.
    pub fn run_max(&self) -> u32 {
        self.settings.run_max
    }

    /// From now on there is so much memory. What is above it goes as fast as what was asked for does; the swap file stays
    /// divided as it is. Of the compressed cache no more is kept than the room that its layout was made for.
    ///
    /// # Panics
    /// When more is kept free for growth than is kept free at all.
    pub fn set_budget(&mut self, budget_bytes: u64, reserve_bytes: u64, floor_bytes: u64) {
        assert!(
            floor_bytes <= reserve_bytes,
            "the floor is part of the reserve"
        );
        self.settings.budget_bytes = budget_bytes;
        self.settings.reserve_bytes = reserve_bytes;
        self.settings.floor_bytes = floor_bytes;
        self.floor_bytes = self.floor_bytes.min(floor_bytes);
        self.starved = false;
        self.cache.set_budget(budget_bytes);
        self.forget_dropped();
    }

    /// What would be left in memory if everything were compressed that can be, as far as folding has told until now, with so
    /// many bytes that are not known here yet; what fits into the swap file is not counted. An estimate.
    pub fn least_kept_bytes(&self, unknown_bytes: u64) -> u64 {
        let cache = &self.cache;
        let pages = self.pages.present() + cache.bodies.counts().staged;
        let to_come = (pages + unknown_bytes / PAGE_SIZE as u64) * cache.folded_bytes();
        let all = to_come + cache.cache_bytes();
        match cache.swap_left_bytes() {
            Some(left) => all.saturating_sub(left),
            None => 0,
        }
    }

    /// Job and supervisor together use that much memory at this moment.
    pub fn measured(&mut self, total_bytes: u64) {
        self.foreign_bytes = total_bytes as i64 - self.tracked_bytes() as i64;
    }

    /// Memory in use of which the engine does not know what it is, as last measured; negative when less was
    /// measured than it knows of.
    pub fn foreign_bytes(&self) -> i64 {
        self.foreign_bytes
    }

    /// The job takes at most about so much without asking until it is measured again: as much is kept free,
    /// but no more than [`Settings::floor_bytes`], which is kept until this is called.
    pub fn expect_growth(&mut self, bytes: u64) {
        self.floor_bytes = bytes.min(self.settings.floor_bytes);
    }

    /// Free memory below which pages are taken away.
    fn reserve_bytes(&self) -> u64 {
        self.settings.reserve_bytes - self.settings.floor_bytes + self.floor_bytes
    }

    /// What the driver has measured: policies weigh it.
    pub fn costs(&mut self, costs: Costs) {
        self.cache.sizing.costs(costs);
    }

    /// Frames of the compressed cache that the system is to get back now: to be dropped without the engine's lock held,
    /// for that is a system call. To be asked for whenever pages were folded, and now and then.
    pub fn take_release(&mut self) -> Option<Release> {
        self.cache.layout.take_release()
    }

    /// Memory free for the job; negative when the budget is overdrawn.
    pub fn free_bytes(&self) -> i64 {
        self.settings.budget_bytes as i64 - self.foreign_bytes - self.tracked_bytes() as i64
    }

    /// Whether so much is free. If not, reclaim goes on until it is, also past the reserve: nobody
    /// who waits for more than that waits in vain.
    pub fn ask(&mut self, bytes: u64) -> bool {
        let is_free = self.free_bytes() >= bytes as i64;
        self.asked_bytes = if is_free { 0 } else { bytes };
        is_free
    }

    /// From now on pages are also taken away when about so many are resident, until there are an eighth
    /// less, however much memory is free: a driver that sees only faults sees more uses that way.
    /// `None` ends that.
    pub fn limit_resident(&mut self, pages: Option<u64>) {
        self.resident_max_pages = pages;
    }

    /// Whether as many pages are resident or leaving as [`Engine::limit_resident`] allows: a driver may
    /// let faults wait for a moment.
    pub fn is_at_limit(&self) -> bool {
        let pages = self.pages.resident + self.pages.leaving;
        self.resident_max_pages.is_some_and(|most| pages >= most)
    }

    /// Pages shared by a fork are about to become several, by being written to. Counts their memory
    /// until the next measurement; `false`, and nothing counted, when there is not so much free and
    /// the matter is not urgent.
    pub fn unshare(&mut self, pages: u64, urgent: bool) -> bool {
        let bytes = (pages * PAGE_SIZE as u64) as i64;
        let granted = urgent || self.grantable_bytes() >= bytes;
        if granted {
            self.foreign_bytes += bytes;
            self.granted_pages += pages;
        }
        granted
    }

    /// Pages given out so far, by filling or unsharing; never goes down. A measurement that takes a
    /// while may have missed those given out meanwhile.
    pub fn granted_pages(&self) -> u64 {
        self.granted_pages
    }

    /// Pages that the engine knows to be present in a space; 0 when there is no such space.
    pub fn space_resident_pages(&self, space: SpaceId) -> u64 {
        self.spaces
            .get(&space)
            .map_or(0, |space| space.counts().present())
    }

    /// Pages of programs that are away now; of those shared since a fork each is counted once.
    pub fn away_pages(&self) -> u64 {
        let bodies = self.cache.bodies.counts();
        let kept = bodies.staged + bodies.stored + bodies.writing + bodies.clean + bodies.same;
        // Those in the swap file may be copies of pages that are present; what is away may be one body for several processes.
        self.pages.away.min(kept + bodies.disk)
    }

    /// Pages of a space by where they are; none when there is no such space.
    pub fn space_pages(&self, space: SpaceId) -> SpacePages {
        let counts = self.spaces.get(&space).map(|space| space.counts());
        let counts = counts.unwrap_or_default();
        SpacePages {
            resident: counts.resident + counts.leaving,
            stuck: counts.stuck,
            away: counts.away,
        }
    }

    /// The program does not run for a while, or does again: meanwhile its pages are the first to go, in the order in
    /// which they came.
    pub fn set_rest(&mut self, space: SpaceId, rests: bool) {
        if let Some(space) = self.spaces.get_mut(&space) {
            space.rests = rests;
        }
    }

    /// Pages that the engine knows of, in programs or away.
    pub fn known_pages(&self) -> u64 {
        self.pages.present() + self.pages.away
    }

    /// Whether so little is free that who is not urgent has to wait.
    pub fn is_short(&self) -> bool {
        self.grantable_bytes() < 0
    }

    /// What faults may use that are not urgent.
    fn grantable_bytes(&self) -> i64 {
        self.free_bytes() - self.floor_bytes as i64
    }

    /// Pages in programs and in the staging ring, the compressed cache with its metadata, and what was
    /// just read.
    fn tracked_bytes(&self) -> u64 {
        let pages = self.pages.present() + self.cache.bodies.counts().staged;
        pages * PAGE_SIZE as u64 + self.kept_bytes()
    }

    /// Bytes of the driver's own memory that hold compressed pages: the compressed cache with its metadata, and
    /// what was just read.
    pub fn kept_bytes(&self) -> u64 {
        self.cache.cache_bytes() + self.cache.landing.bytes()
    }

    fn next_stamp(&mut self) -> u64 {
        self.cache.next_stamp()
    }
}
