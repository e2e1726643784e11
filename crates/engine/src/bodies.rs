//! The contents of pages that are away: one body each, shared by the page tables of forked
//! processes and counted by reference.
//!
//! Knows where a body is, not how it got there: `cache.rs` moves them. A body changes its state only here
//! (`create`, `set_state` and `free`), and only as [`BodyState::may_become`] says: the packed state itself is hidden
//! in here.

mod body;
mod states;

use std::collections::VecDeque;

use pleat_types::{CodecId, PageNo, SpaceId, StagingSlot};

use self::body::Body;
#[cfg(test)]
pub(crate) use self::states::everywhere;
pub(crate) use self::states::{BodyState, DiskCopy, Packed};
use crate::BodyId;

/// A page of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Home {
    pub(crate) space: SpaceId,
    pub(crate) page: PageNo,
}

/// A home in 64 bits: there are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PackedHome(u64);

impl PackedHome {
    const PAGE_BITS: u32 = 36;
    const NONE: PackedHome = PackedHome(u64::MAX);

    /// `None` for pages beyond 256 TiB of files, and for files that come after 2^27 spaces. What is not known of them
    /// is only missed.
    pub(crate) fn of(home: Home) -> Option<PackedHome> {
        let (space, page) = (u64::from(home.space.0), home.page.0);
        let fits = page >> Self::PAGE_BITS == 0 && space >> (63 - Self::PAGE_BITS) == 0;
        fits.then_some(PackedHome(space << Self::PAGE_BITS | page))
    }

    fn home(self) -> Option<Home> {
        (self != Self::NONE).then_some(Home {
            space: SpaceId((self.0 >> Self::PAGE_BITS) as u32),
            page: PageNo(self.0 & ((1 << Self::PAGE_BITS) - 1)),
        })
    }
}

/// Makes room for so many, and not for twice as many: these tables are part of the budget.
pub(crate) fn make_room<T>(table: &mut Vec<T>, len: usize) {
    if table.capacity() < len {
        let more = len - table.len() + table.len() / 16;
        table.reserve_exact(more);
    }
}

/// Adds an entry behind the others; the room for it grows as in [`make_room`].
pub(crate) fn append<T>(queue: &mut VecDeque<T>, entry: T) {
    if queue.len() == queue.capacity() {
        queue.reserve_exact(queue.len() / 16 + 1);
    }
    queue.push_back(entry);
}

/// How many bodies are in each state, and bytes where they matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BodyCounts {
    pub(crate) staged: u64,
    pub(crate) same: u64,
    pub(crate) stored: u64,
    pub(crate) writing: u64,
    pub(crate) clean: u64,
    pub(crate) disk: u64,
    /// Those of `stored`, `writing` and `clean` that did not compress and are kept as they are.
    pub(crate) raw: u64,
    /// Payload of the stored bodies, those being written excluded.
    pub(crate) stored_bytes: u64,
    /// Payload of the bodies being written.
    pub(crate) writing_bytes: u64,
    /// Payload of the bodies that are both in the cache and in the swap file.
    pub(crate) clean_bytes: u64,
    /// Allocated in the swap file by all bodies.
    pub(crate) extent_bytes: u64,
    /// Bodies in the cache that can be had elsewhere.
    pub(crate) droppable: u64,
}

fn is_droppable(state: BodyState, has_home: bool) -> bool {
    match state {
        BodyState::Clean { .. } => true,
        BodyState::Stored { .. } => has_home,
        _ => false,
    }
}

fn is_raw(state: BodyState) -> bool {
    match state {
        BodyState::Stored { packed, .. }
        | BodyState::Writing { packed, .. }
        | BodyState::Clean { packed, .. } => packed.codec == CodecId::RAW,
        _ => false,
    }
}

impl BodyCounts {
    fn add(&mut self, state: BodyState, has_home: bool) {
        self.droppable += u64::from(is_droppable(state, has_home));
        self.raw += u64::from(is_raw(state));
        match state {
            BodyState::Free => {}
            BodyState::Staged(_) => self.staged += 1,
            BodyState::StagedClean { copy, .. } => {
                self.staged += 1;
                self.extent_bytes += u64::from(copy.extent.bytes);
            }
            BodyState::Same(_) => self.same += 1,
            BodyState::Stored { packed, .. } => {
                self.stored += 1;
                self.stored_bytes += u64::from(packed.len);
            }
            BodyState::Writing { packed, extent, .. } => {
                self.writing += 1;
                self.writing_bytes += u64::from(packed.len);
                self.extent_bytes += u64::from(extent.bytes);
            }
            BodyState::Drowned { extent } => self.extent_bytes += u64::from(extent.bytes),
            BodyState::Clean { packed, copy, .. } => {
                self.clean += 1;
                self.clean_bytes += u64::from(packed.len);
                self.extent_bytes += u64::from(copy.extent.bytes);
            }
            BodyState::OnDisk(copy) => {
                self.disk += 1;
                self.extent_bytes += u64::from(copy.extent.bytes);
            }
        }
    }

    fn subtract(&mut self, state: BodyState, has_home: bool) {
        let mut one = BodyCounts::default();
        one.add(state, has_home);
        self.droppable -= one.droppable;
        self.raw -= one.raw;
        self.staged -= one.staged;
        self.same -= one.same;
        self.stored -= one.stored;
        self.writing -= one.writing;
        self.clean -= one.clean;
        self.disk -= one.disk;
        self.stored_bytes -= one.stored_bytes;
        self.writing_bytes -= one.writing_bytes;
        self.clean_bytes -= one.clean_bytes;
        self.extent_bytes -= one.extent_bytes;
    }
}

/// All bodies, in a slab: a number is used again once its body is free.
#[derive(Default)]
pub(crate) struct Bodies {
    slab: Vec<Body>,
    /// The pages of files that left a body behind; empty while there are none.
    homes: Vec<PackedHome>,
    /// Checksums of folded pages, by body; empty where none are kept.
    checks: Vec<u64>,
    free: Vec<u32>,
    counts: BodyCounts,
}

impl Bodies {
    /// A new staged body with that many references.
    pub(crate) fn create(&mut self, slot: StagingSlot, references: u32) -> BodyId {
        let body = Body::new(slot, references);
        self.counts.add(body.state(), false);
        #[cfg(test)]
        crate::tests::transitions::note_body(BodyState::Free, body.state());
        match self.free.pop() {
            Some(index) => {
                let place = &mut self.slab[index as usize];
                debug_assert_eq!(place.state(), BodyState::Free, "body {index} is another's");
                *place = body;
                BodyId(index)
            }
            None => {
                let len = self.slab.len() + 1;
                // 16 TiB of pages that are away at one time, and 128 GiB of memory for this table.
                assert!(
                    len < u32::MAX as usize,
                    "there are no more numbers for bodies"
                );
                make_room(&mut self.slab, len);
                self.slab.push(body);
                BodyId(len as u32 - 1)
            }
        }
    }

    pub(crate) fn state(&self, body: BodyId) -> BodyState {
        self.slab[body.0 as usize].state()
    }

    /// A body is somewhere else from now on.
    pub(crate) fn set_state(&mut self, body: BodyId, state: BodyState) {
        debug_assert!(state != BodyState::Free, "{body:?} is freed by `free`");
        self.change(body, state);
    }

    /// Nobody wants a body any more: its number will be that of another.
    pub(crate) fn free(&mut self, body: BodyId) {
        debug_assert!(self.references(body) == 0, "{body:?} is wanted");
        self.change(body, BodyState::Free);
        self.free.push(body.0);
        if let Some(home) = self.homes.get_mut(body.0 as usize) {
            *home = PackedHome::NONE;
        }
    }

    fn change(&mut self, body: BodyId, to: BodyState) {
        let packed = &mut self.slab[body.0 as usize];
        let from = packed.state();
        assert!(from != BodyState::Free, "{body:?} is free");
        debug_assert!(from.may_become(to), "{body:?} went from {from:?} to {to:?}");
        #[cfg(test)]
        crate::tests::transitions::note_body(from, to);
        packed.set_state(to);
        let has_home = self.home(body).is_some();
        self.counts.subtract(from, has_home);
        self.counts.add(to, has_home);
    }

    /// Whether a body of the cache can be had elsewhere.
    pub(crate) fn is_droppable(&self, body: BodyId) -> bool {
        is_droppable(self.state(body), self.home(body).is_some())
    }

    /// The page of a file that left this body behind.
    pub(crate) fn home(&self, body: BodyId) -> Option<Home> {
        let home = self.homes.get(body.0 as usize);
        home.and_then(|home| home.home())
    }

    /// Of a staged body. One whose home does not fit has none: it is kept as that of a program's page is.
    pub(crate) fn set_home(&mut self, body: BodyId, home: Home) {
        let Some(home) = PackedHome::of(home) else {
            return;
        };
        let index = body.0 as usize;
        if self.homes.len() <= index {
            make_room(&mut self.homes, index + 1);
            self.homes.resize(index + 1, PackedHome::NONE);
        }
        self.homes[index] = home;
    }

    /// What was noted as the checksum of the folded page.
    pub(crate) fn check(&self, body: BodyId) -> Option<u64> {
        self.checks.get(body.0 as usize).copied()
    }

    pub(crate) fn set_check(&mut self, body: BodyId, check: u64) {
        let index = body.0 as usize;
        if self.checks.len() <= index {
            make_room(&mut self.checks, index + 1);
            self.checks.resize(index + 1, 0);
        }
        self.checks[index] = check;
    }

    /// When its page left memory.
    pub(crate) fn left_at(&self, body: BodyId) -> u64 {
        self.slab[body.0 as usize].left_at()
    }

    /// How long its page had been unused when it left memory, on that clock.
    pub(crate) fn unused_for(&self, body: BodyId) -> u32 {
        self.slab[body.0 as usize].unused_for
    }

    /// Its page, last used at `used_at`, leaves memory at this time; to be counted.
    pub(crate) fn count_from(&mut self, body: BodyId, now: u64, used_at: u64) {
        let body = &mut self.slab[body.0 as usize];
        body.count_from(now);
        body.unused_for = u32::try_from(now.saturating_sub(used_at)).unwrap_or(u32::MAX);
    }

    /// Its page is not away any more, or others count it: since when it was, if it was counted.
    pub(crate) fn end_count(&mut self, body: BodyId) -> Option<u64> {
        let body = &mut self.slab[body.0 as usize];
        let was_counted = body.is_counted();
        body.end_count();
        was_counted.then_some(body.left_at())
    }

    /// Whether its page is away.
    pub(crate) fn is_counted(&self, body: BodyId) -> bool {
        self.slab[body.0 as usize].is_counted()
    }

    /// Bodies whose page is counted as away.
    pub(crate) fn counted(&self) -> u64 {
        self.slab.iter().filter(|body| body.is_counted()).count() as u64
    }

    /// Bytes of the tables.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        let tables = self.slab.capacity() * size_of::<Body>()
            + self.homes.capacity() * size_of::<PackedHome>()
            + self.checks.capacity() * size_of::<u64>()
            + self.free.capacity() * size_of::<u32>();
        tables as u64
    }

    pub(crate) fn references(&self, body: BodyId) -> u32 {
        self.slab[body.0 as usize].references
    }

    pub(crate) fn add_reference(&mut self, body: BodyId) {
        self.slab[body.0 as usize].references += 1;
    }

    /// Takes one reference away and returns how many are left.
    pub(crate) fn remove_reference(&mut self, body: BodyId) -> u32 {
        let references = &mut self.slab[body.0 as usize].references;
        *references -= 1;
        *references
    }

    pub(crate) fn counts(&self) -> &BodyCounts {
        &self.counts
    }

    /// Every body that is not free.
    pub(crate) fn all(&self) -> impl Iterator<Item = (BodyId, BodyState)> + '_ {
        let numbered = self.slab.iter().enumerate();
        numbered
            .map(|(index, body)| (BodyId(index as u32), body.state()))
            .filter(|(_, state)| *state != BodyState::Free)
    }

    /// Whether the counts are right, the free list complete, and only bodies that somebody still
    /// works on are without references.
    pub(crate) fn is_valid(&self) -> bool {
        let mut counts = BodyCounts::default();
        self.all()
            .for_each(|(body, state)| counts.add(state, self.home(body).is_some()));
        counts == self.counts
            && self.all().count() + self.free.len() == self.slab.len()
            && self.all().all(|(body, state)| match state {
                BodyState::Staged(_) | BodyState::StagedClean { .. } => true,
                BodyState::Drowned { .. } => self.references(body) == 0,
                _ => self.references(body) > 0,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pleat_store::Handle;

    const SLOT: StagingSlot = StagingSlot(1);

    fn stored() -> BodyState {
        let (codec, len) = (CodecId(1), 900);
        BodyState::Stored {
            handle: Handle(5),
            packed: Packed { codec, len },
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "went from Stored")]
    fn a_stored_body_is_not_staged_again() {
        let mut bodies = Bodies::default();
        let body = bodies.create(SLOT, 1);
        bodies.set_state(body, stored());
        bodies.set_state(body, BodyState::Staged(SLOT));
    }

    #[test]
    #[should_panic(expected = "is free")]
    fn a_free_body_is_not_stored() {
        let mut bodies = Bodies::default();
        let body = bodies.create(SLOT, 0);
        bodies.free(body);
        bodies.set_state(body, stored());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "is wanted")]
    fn a_body_that_a_page_names_is_not_freed() {
        let mut bodies = Bodies::default();
        let body = bodies.create(SLOT, 1);
        bodies.free(body);
    }
}
