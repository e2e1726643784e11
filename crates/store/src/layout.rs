//! What a layout promises: items in, handles out, and an account of every byte held.
//!
//! The engine drives layouts only through [`Layout`]; nothing here knows which page an item is.

use crate::arena::Release;

/// Names one stored item until it is removed; survives relocation and compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u32);

/// Whether an insertion may take another cell from the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Take new frames when nothing else fits.
    Allowed,
    /// Only use frames held already (compaction is tried first).
    Denied,
}

/// The item does not fit without growth (after compaction was tried).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Exact account of a layout: `frames_bytes >= payload_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Items stored.
    pub items: u64,
    /// Bytes of all items.
    pub payload_bytes: u64,
    /// Bytes of the frames held, empty space and fragmentation included.
    pub frames_bytes: u64,
    /// Bytes of tables that describe the frames and items, and of frames given back that the system has not
    /// got yet.
    pub metadata_bytes: u64,
    /// Cells compacted so far (castro03: all items moved to the front of their cell).
    pub compactions: u64,
    /// Items moved to another cell so far.
    pub relocations: u64,
}

/// How many frames are in which state, for layouts that choose frames; zeros from others.
///
/// `full_dirty <= dirty`, and `clean + dirty` is the number of frames held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameStates {
    /// Frames whose items are all clean (douglis93 section 4.2: reclaimable at once).
    pub clean: u64,
    /// Frames with dirty items that take no more items (cervera99 section 3.4: what the cleaning
    /// threshold is about).
    pub full_dirty: u64,
    /// Frames with dirty items.
    pub dirty: u64,
}

/// A way to place items of 1..=4096 bytes in page frames.
///
/// Callers guarantee that a handle is used only between its `insert` and its `remove`, and that
/// items are 1..=4096 bytes; layouts panic otherwise (a bug in the engine, not bad data).
pub trait Layout: Send {
    /// Name on the command line.
    fn name(&self) -> &'static str;
    /// Stores `bytes`.
    ///
    /// # Errors
    /// [`Full`] when `growth` is denied and no held cell has room even after compaction, or when
    /// the address space reserved for the layout is used up (twice the `max_bytes` it was made for).
    fn insert(&mut self, bytes: &[u8], growth: Growth) -> Result<Handle, Full>;
    /// Appends the bytes of an item to `out`.
    fn read_into(&self, handle: Handle, out: &mut Vec<u8>);
    /// Frees an item; frames left empty go back to the system at once, but for a bounded share
    /// that a layout may keep and account for (see there).
    fn remove(&mut self, handle: Handle);
    /// Tries to free one cell by moving its items into the free room of others (castro03: relocation).
    /// Returns whether a cell was freed.
    fn relocate_to_free_cell(&mut self) -> bool;
    /// Exact account of now.
    fn usage(&self) -> Usage;
    /// Frames given back that the system is to get now, without a lock held: to be asked for now and then, or never:
    /// where nobody has asked they go by themselves when they are many.
    fn take_release(&mut self) -> Option<Release> {
        None
    }

    /// Whether the layout gives memory back by whole frames and so says itself what is to go
    /// (douglis93 section 4.2, cervera99 section 3.4). Others leave that to the order in which
    /// items were stored, and need nothing of what follows.
    fn chooses_frames(&self) -> bool {
        false
    }

    /// The item has a copy elsewhere now and can be dropped (`clean`), or no longer has one. Items
    /// are dirty when stored.
    fn set_clean(&mut self, _handle: Handle, _clean: bool) {}

    /// Appends the items that have to go so that one more frame becomes free, all of them clean:
    /// those of the oldest frame without dirty items, be it in the middle (douglis93 section 4.2).
    /// False when there is none.
    fn next_clean_frame(&self, _out: &mut Vec<Handle>) -> bool {
        false
    }

    /// Appends the items to be written next, in the order of their places, until they have
    /// `max_bytes` bytes; the last may exceed it. False when nothing is dirty.
    ///
    /// Layouts do not know of writes under way: asked again before `set_clean`, they name the same
    /// items again.
    fn next_dirty(&self, _max_bytes: usize, _out: &mut Vec<Handle>) -> bool {
        false
    }

    /// How many frames could be given back, and how many should be written: for cleaning
    /// thresholds (cervera99 section 3.4, douglis93 section 4.2).
    fn frame_states(&self) -> FrameStates {
        FrameStates::default()
    }

    /// Number of the frame and offset in it, for layouts whose frames are written as they are
    /// (cervera99 section 3.4: one buffer, one disk block).
    fn position(&self, _handle: Handle) -> Option<(u32, u32)> {
        None
    }
}
