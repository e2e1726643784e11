//! What is in each page, for checked runs: a version number that goes the way the bytes would go.
//!
//! Every write gives a page a new version. Folded bytes begin with it, so the engine carries it through
//! the compressed cache and the swap file; whatever comes back must be the version written last. An
//! unchecked run has none of this.

use std::collections::HashMap;

use pleat_engine::{FillItem, FillPlan, ReadItem, WritePlan};
use pleat_types::{PageNo, SpaceId, StagingSlot, PAGE_SIZE};

/// A page of a space.
pub type Address = (SpaceId, PageNo);

/// Bytes at the front of a folded page that hold its version.
pub const VERSION_BYTES: usize = 8;

/// Versions everywhere: 0 is a page never written to.
#[derive(Default)]
pub struct Contents {
    last: u64,
    /// What was written last.
    truth: HashMap<Address, u64>,
    /// What lies in frames.
    frames: HashMap<Address, u64>,
    staging: HashMap<StagingSlot, u64>,
    /// By offset in the swap file.
    swap: HashMap<u64, u64>,
    /// Of pages of files.
    files: HashMap<Address, u64>,
}

impl Contents {
    /// A page, present by what the engine says, is touched.
    ///
    /// # Panics
    /// When the page does not hold what was written last.
    pub fn touch(&mut self, page: Address, write: bool) {
        let expected = self.truth.get(&page).copied().unwrap_or(0);
        let Some(&found) = self.frames.get(&page) else {
            panic!("{page:?} was never put in place");
        };
        assert_eq!(found, expected, "{page:?} holds an old version");
        if write {
            self.last += 1;
            self.truth.insert(page, self.last);
            self.frames.insert(page, self.last);
        }
    }

    /// A page was taken into a slot; answers its version, which its folded bytes are to begin with.
    pub fn take(&mut self, page: Address, slot: StagingSlot) -> u64 {
        let version = self
            .frames
            .remove(&page)
            .expect("only what is present is taken");
        self.staging.insert(slot, version);
        version
    }

    /// A clean page was dropped.
    ///
    /// # Panics
    /// When it belongs to a file and that holds another version.
    pub fn drop_clean(&mut self, page: Address) {
        let version = self
            .frames
            .remove(&page)
            .expect("only what is present is dropped");
        if let Some(&kept) = self.files.get(&page) {
            assert_eq!(kept, version, "{page:?} was dropped though not clean");
        }
    }

    /// A page of a file is in its file as it is now.
    pub fn write_back(&mut self, page: Address) {
        let version = self.frames.get(&page).copied();
        self.files
            .insert(page, version.expect("written from memory"));
    }

    /// A cluster goes to the swap file.
    pub fn write(&mut self, plan: &WritePlan) {
        for item in &plan.items {
            let bytes = &plan.bytes[item.start as usize..];
            let offset = plan.offset + u64::from(item.start);
            self.swap.insert(offset, version_of(bytes));
        }
    }

    /// A page of a plan is put in place.
    pub fn fill(&mut self, page: Address, item: FillItem, plan: &FillPlan) {
        let version = match item {
            FillItem::Zero => 0,
            FillItem::File => self.files.get(&page).copied().unwrap_or(0),
            FillItem::Resident => return,
            FillItem::Same(version) => version,
            FillItem::Staged(slot) => self.staging[&slot],
            FillItem::Packed { start, .. } => version_of(&plan.bytes[start as usize..]),
        };
        self.frames.insert(page, version);
    }

    /// Marks what was read from the swap file with the version that lies there.
    pub fn read(&self, item: &ReadItem, bytes: &mut [u8; PAGE_SIZE]) {
        mark(bytes, self.swap[&item.offset]);
    }

    /// A space is gone.
    pub fn end(&mut self, space: SpaceId) {
        self.truth.retain(|page, _| page.0 != space);
        self.frames.retain(|page, _| page.0 != space);
    }
}

/// Marks folded bytes with a version.
pub fn mark(bytes: &mut [u8; PAGE_SIZE], version: u64) {
    bytes[..VERSION_BYTES].copy_from_slice(&version.to_le_bytes());
}

fn version_of(bytes: &[u8]) -> u64 {
    let bytes = bytes[..VERSION_BYTES].try_into();
    u64::from_le_bytes(bytes.expect("a folded page holds its version"))
}
