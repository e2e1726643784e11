//! What a layout promises: items in, handles out, and an account of every byte held.
//!
//! The engine drives layouts only through [`Layout`]; nothing here knows which page an item is.

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
    /// Bytes of tables that describe the frames and items.
    pub metadata_bytes: u64,
    /// Cells compacted so far (castro03: all items moved to the front of their cell).
    pub compactions: u64,
    /// Items moved to another cell so far.
    pub relocations: u64,
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
    /// The bytes of an item.
    fn get(&self, handle: Handle) -> &[u8];
    /// Frees an item; frames left empty go back to the system at once, but for a bounded share
    /// that a layout may keep and account for (see there).
    fn remove(&mut self, handle: Handle);
    /// Tries to free one cell by moving its items into the free room of others (castro03: relocation).
    /// Returns whether a cell was freed.
    fn relocate_to_free_cell(&mut self) -> bool;
    /// Exact account of now.
    fn usage(&self) -> Usage;
}
