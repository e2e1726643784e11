//! The map of the swap file, and whether the file takes more.

use std::collections::HashMap;

use pleat_backing::{Extent, SlotSpace};

use crate::{SwapSettings, WriteOut};

/// Bytes of a block that several pages share (cervera99: a buffer is written as one disk block).
pub(crate) const BLOCK_BYTES: u32 = 4096;

/// Where there is room in the swap file.
///
/// `space.used_bytes() == extents of bodies`; where blocks are shared `== BLOCK_BYTES * blocks.len()`.
pub(crate) struct Swap {
    pub(crate) settings: SwapSettings,
    pub(crate) space: SlotSpace,
    /// Pages in each block that is in use, by its number; `None` where every page has room of its own.
    pub(crate) blocks: Option<HashMap<u64, u32>>,
    /// A write failed: nothing is written until the driver says so.
    pub(crate) halted: bool,
    /// The last search for room found none and nothing was freed since.
    pub(crate) full: bool,
}

impl Swap {
    pub(crate) fn new(settings: SwapSettings, write_out: WriteOut) -> Swap {
        let shared = matches!(write_out, WriteOut::Buffers { .. });
        let unit = if shared {
            BLOCK_BYTES
        } else {
            settings.fragment_bytes
        };
        Swap {
            settings,
            space: SlotSpace::new(unit, settings.max_bytes),
            blocks: shared.then(HashMap::new),
            halted: false,
            full: false,
        }
    }

    /// A page of this length was given room inside a block.
    pub(crate) fn share(&mut self, extent: Extent) {
        if let Some(blocks) = &mut self.blocks {
            *blocks.entry(block_of(extent)).or_default() += 1;
        }
    }

    /// A page gives up its room; a shared block is free when all its pages have (cervera99, 3.3).
    pub(crate) fn free(&mut self, extent: Extent) {
        self.full = false;
        let Some(blocks) = &mut self.blocks else {
            return self.space.free(extent);
        };
        let block = block_of(extent);
        let pages = blocks.get_mut(&block).expect("the block is in use");
        *pages -= 1;
        if *pages == 0 {
            blocks.remove(&block);
            self.space.free(Extent {
                offset: block * u64::from(BLOCK_BYTES),
                bytes: BLOCK_BYTES,
            });
        }
    }
}

fn block_of(extent: Extent) -> u64 {
    extent.offset / u64::from(BLOCK_BYTES)
}
