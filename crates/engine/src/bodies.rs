//! The contents of pages that are away: one body each, shared by the page tables of forked
//! processes and counted by reference.
//!
//! Knows where a body is, not how it got there: `cache.rs` moves them.

use pleat_backing::Extent;
use pleat_store::Handle;
use pleat_types::{CodecId, StagingSlot};

use crate::BodyId;

/// How a page was folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    pub(crate) codec: CodecId,
    /// Exact length in bytes.
    pub(crate) len: u32,
}

/// Where a body is.
///
/// ```text
///   taken                folded               plan_write            write_done
///  -------> Staged ----------------> Stored ------------> Writing ------------> OnDisk
///              |                       ^                   |   |
///              +------> Same           +---- failed -------+   | nobody wants it any more
///                                                              v
///                                                           Drowned --- write_done ---> (free)
/// ```
///
/// A body that loses its last reference is freed at once, save for two that others still work on:
/// a staged one until it is folded, one being written until the write is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyState {
    /// A slot of the slab without a body.
    Free,
    /// In the staging ring, to be folded.
    Staged(StagingSlot),
    /// One word, repeated; takes no room anywhere.
    Same(u64),
    /// In the compressed cache.
    Stored { handle: Handle, packed: Packed },
    /// In the compressed cache, a copy is being written.
    Writing {
        handle: Handle,
        packed: Packed,
        extent: Extent,
    },
    /// Wanted by nobody, but its room in the swap file is being written to.
    Drowned { extent: Extent },
    /// In the swap file.
    OnDisk { packed: Packed, extent: Extent },
}

/// How many bodies are in each state, and bytes where they matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BodyCounts {
    pub(crate) staged: u64,
    pub(crate) same: u64,
    pub(crate) stored: u64,
    pub(crate) writing: u64,
    pub(crate) disk: u64,
    /// Payload of the stored bodies, those being written excluded.
    pub(crate) stored_bytes: u64,
    /// Payload of the bodies being written.
    pub(crate) writing_bytes: u64,
    /// Allocated in the swap file by all bodies.
    pub(crate) extent_bytes: u64,
}

impl BodyCounts {
    fn add(&mut self, state: BodyState) {
        match state {
            BodyState::Free => {}
            BodyState::Staged(_) => self.staged += 1,
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
            BodyState::OnDisk { extent, .. } => {
                self.disk += 1;
                self.extent_bytes += u64::from(extent.bytes);
            }
        }
    }

    fn subtract(&mut self, state: BodyState) {
        let mut one = BodyCounts::default();
        one.add(state);
        self.staged -= one.staged;
        self.same -= one.same;
        self.stored -= one.stored;
        self.writing -= one.writing;
        self.disk -= one.disk;
        self.stored_bytes -= one.stored_bytes;
        self.writing_bytes -= one.writing_bytes;
        self.extent_bytes -= one.extent_bytes;
    }
}

#[derive(Clone, Copy)]
struct Body {
    state: BodyState,
    /// Page table entries that name this body.
    references: u32,
}

/// All bodies, in a slab: a number is used again once its body is free.
#[derive(Default)]
pub(crate) struct Bodies {
    slab: Vec<Body>,
    free: Vec<u32>,
    counts: BodyCounts,
}

impl Bodies {
    /// A new staged body with that many references.
    pub(crate) fn create(&mut self, slot: StagingSlot, references: u32) -> BodyId {
        let state = BodyState::Staged(slot);
        let body = Body { state, references };
        self.counts.add(state);
        match self.free.pop() {
            Some(index) => {
                self.slab[index as usize] = body;
                BodyId(index)
            }
            None => {
                self.slab.push(body);
                BodyId(self.slab.len() as u32 - 1)
            }
        }
    }

    pub(crate) fn state(&self, body: BodyId) -> BodyState {
        self.slab[body.0 as usize].state
    }

    pub(crate) fn set_state(&mut self, body: BodyId, state: BodyState) {
        let before = std::mem::replace(&mut self.slab[body.0 as usize].state, state);
        assert!(before != BodyState::Free, "{body:?} is free");
        self.counts.subtract(before);
        self.counts.add(state);
        if state == BodyState::Free {
            self.free.push(body.0);
        }
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
            .filter(|(_, body)| body.state != BodyState::Free)
            .map(|(index, body)| (BodyId(index as u32), body.state))
    }

    /// Whether the counts are right, the free list complete, and only bodies that somebody still
    /// works on are without references.
    pub(crate) fn is_valid(&self) -> bool {
        let mut counts = BodyCounts::default();
        self.all().for_each(|(_, state)| counts.add(state));
        counts == self.counts
            && self.all().count() + self.free.len() == self.slab.len()
            && self.all().all(|(body, state)| match state {
                BodyState::Staged(_) => true,
                BodyState::Drowned { .. } => self.references(body) == 0,
                _ => self.references(body) > 0,
            })
    }
}
