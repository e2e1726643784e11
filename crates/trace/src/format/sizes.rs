//! What pages compress to at the moment, for as many pages as have been told about.

use crate::RegionNo;
use pleat_types::PageNo;
use std::collections::HashMap;

const BLOCK: u64 = 16;
const UNKNOWN: u16 = u16::MAX;

/// Sizes by page, in blocks of neighbours: what one record can make this grow by is bounded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sizes {
    blocks: HashMap<(RegionNo, u64), [u16; BLOCK as usize]>,
}

impl Sizes {
    pub(crate) fn get(&self, region: RegionNo, page: PageNo) -> Option<u16> {
        let block = self.blocks.get(&(region, page.0 / BLOCK))?;
        Some(block[(page.0 % BLOCK) as usize]).filter(|bytes| *bytes != UNKNOWN)
    }

    /// Sets the size of a page, and returns what was known of it before.
    pub(crate) fn set(&mut self, region: RegionNo, page: PageNo, bytes: u16) -> Option<u16> {
        let block = self.blocks.entry((region, page.0 / BLOCK));
        let block = block.or_insert([UNKNOWN; BLOCK as usize]);
        let before = std::mem::replace(&mut block[(page.0 % BLOCK) as usize], bytes);
        Some(before).filter(|bytes| *bytes != UNKNOWN)
    }

    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
    }

    /// The size of every page known, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        let sizes = self.blocks.values().flatten().copied();
        sizes.filter(|bytes| *bytes != UNKNOWN)
    }
}
