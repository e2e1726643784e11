//! Bodies on their way: from the staging ring into the compressed cache, to the swap file, or out.
//!
//! Owns everything that holds folded bytes and keeps their accounts together. Pages and address
//! spaces are not known here; a body is freed when its last reference goes.

use pleat_backing::{Extent, SlotSpace};
use pleat_codec::Folded;
use pleat_policy::{Advice, CacheView, List, Sizing};
use pleat_store::{Full, Growth, Handle, Layout};
use pleat_types::{CodecId, PAGE_SIZE};

use crate::bodies::{Bodies, BodyState, Packed};
use crate::order::Order;
use crate::recompress::Copied;
use crate::{BodyId, Counters, SwapSettings};

/// The map of the swap file and whether it takes more.
pub(crate) struct Swap {
    pub(crate) settings: SwapSettings,
    pub(crate) space: SlotSpace,
    /// A write failed: nothing is written until the driver says so.
    pub(crate) halted: bool,
    /// The last search for room found none and nothing was freed since.
    pub(crate) full: bool,
}

/// The compressed cache with its bodies.
///
/// ```text
/// order.len() == layout items == stored + writing bodies
/// layout payload == stored bytes + writing bytes
/// owed_bytes <= layout payload
/// ```
///
/// Staged bodies are not in the cache yet. Bodies of one repeated word never are: they occupy no
/// frame, so they are neither expense nor profit, and getting one back says nothing about size.
pub(crate) struct Cache {
    pub(crate) bodies: Bodies,
    pub(crate) order: Order,
    pub(crate) layout: Box<dyn Layout>,
    pub(crate) swap: Option<Swap>,
    sizing: Box<dyn Sizing>,
    budget_bytes: u64,
    /// Payload the cache is to give up because it was not allowed to grow; what is being written
    /// is still in it.
    pub(crate) owed_bytes: u64,
    /// What folding leaves of a page, a running mean in 1/16 bytes.
    folded_mean_16ths: u64,
    /// Copies of stored bodies that a driver works on (`recompress.rs`); a handful at most.
    pub(crate) copied: Vec<Copied>,
    pub(crate) totals: Counters,
}

impl Cache {
    pub(crate) fn new(
        budget_bytes: u64,
        swap: Option<SwapSettings>,
        layout: Box<dyn Layout>,
        sizing: Box<dyn Sizing>,
    ) -> Cache {
        let swap = swap.map(|settings| Swap {
            settings,
            space: SlotSpace::new(settings.fragment_bytes, settings.max_bytes),
            halted: false,
            full: false,
        });
        let mut cache = Cache {
            bodies: Bodies::default(),
            order: Order::new(),
            layout,
            swap,
            sizing,
            budget_bytes,
            owed_bytes: 0,
            // Until there is experience: half a page.
            folded_mean_16ths: 16 * PAGE_SIZE as u64 / 2,
            copied: Vec::new(),
            totals: Counters::default(),
        };
        cache.account();
        cache
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

    /// A staged body was folded.
    pub(crate) fn fold(&mut self, body: BodyId, result: Folded, bytes: &[u8]) {
        let staged = matches!(self.bodies.state(body), BodyState::Staged(_));
        assert!(staged, "{body:?} was folded but is not staged");
        if self.bodies.references(body) == 0 {
            self.totals.folded_void_pages += 1;
            return self.bodies.set_state(body, BodyState::Free);
        }
        match result {
            Folded::Same(word) => {
                self.totals.folded_same_pages += 1;
                self.learn(0);
                self.bodies.set_state(body, BodyState::Same(word));
            }
            Folded::Bytes { codec, len } => {
                let raw = codec == CodecId::RAW;
                self.totals.folded_raw_pages += u64::from(raw);
                self.totals.folded_packed_pages += u64::from(!raw);
                self.totals.folded_bytes += len as u64;
                self.learn(len as u64);
                self.store(body, codec, &bytes[..len]);
            }
        }
    }

    fn learn(&mut self, folded_bytes: u64) {
        self.folded_mean_16ths =
            self.folded_mean_16ths - self.folded_mean_16ths / 16 + folded_bytes;
    }

    fn store(&mut self, body: BodyId, codec: CodecId, bytes: &[u8]) {
        let handle = match self.layout.insert(bytes, Growth::Denied) {
            Ok(handle) => handle,
            Err(Full) => self.store_growing(bytes),
        };
        let packed = Packed {
            codec,
            len: bytes.len() as u32,
        };
        self.bodies
            .set_state(body, BodyState::Stored { handle, packed });
        self.order.push_newest(body);
        self.owed_bytes = self.owed_bytes.min(self.payload_bytes());
        self.account();
    }

    /// The cache is full and compacted. It grows now in any case, because a page that was taken
    /// must go somewhere; if the policy says no, the oldest pages are owed in exchange.
    ///
    /// Owed is what the frames grew by, not the page alone: the rest of a new frame will be filled
    /// without asking again. (castro03 releases the oldest page at once and tries again.)
    fn store_growing(&mut self, bytes: &[u8]) -> Handle {
        let view = self.view();
        let granted = self.swap.is_none() || self.sizing.may_grow(&view);
        let before = self.layout.usage().frames_bytes;
        let handle = self.layout.insert(bytes, Growth::Allowed).expect(
            "the compressed cache outgrew the address space of its layout, twice the budget: \
             give the job more memory or a swap file",
        );
        if granted {
            self.totals.growths += 1;
        } else {
            self.totals.growths_denied += 1;
            let grown = self.layout.usage().frames_bytes.saturating_sub(before);
            self.owed_bytes += grown.max(bytes.len() as u64);
        }
        handle
    }

    fn view(&self) -> CacheView {
        CacheView {
            budget_bytes: self.budget_bytes,
            cache_bytes: self.cache_bytes(),
            cached_pages: self.order.len(),
            ..CacheView::default()
        }
    }

    /// One page no longer refers to this body.
    pub(crate) fn release(&mut self, body: BodyId) {
        if self.bodies.remove_reference(body) > 0 {
            return;
        }
        match self.bodies.state(body) {
            // Someone is still folding it.
            BodyState::Staged(_) => {}
            BodyState::Same(_) => self.bodies.set_state(body, BodyState::Free),
            BodyState::Stored { handle, packed } => {
                self.bodies.set_state(body, BodyState::Free);
                self.unstore(body, handle, packed);
            }
            BodyState::Writing {
                handle,
                packed,
                extent,
            } => {
                self.bodies.set_state(body, BodyState::Drowned { extent });
                self.unstore(body, handle, packed);
            }
            BodyState::OnDisk { extent, .. } => {
                self.bodies.set_state(body, BodyState::Free);
                self.free_extent(extent);
            }
            state @ (BodyState::Free | BodyState::Drowned { .. }) => {
                unreachable!("{body:?} had a reference but is {state:?}")
            }
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

    /// A page was wanted that is in the swap file.
    pub(crate) fn read(&mut self) {
        let view = self.view();
        self.sizing.read(&view);
    }

    fn shrink(&mut self) {
        if self.layout.relocate_to_free_cell() {
            self.totals.shrinks_relocated += 1;
            self.account();
        } else if let (Some(_), Some(oldest)) = (&self.swap, self.order.oldest_first().next()) {
            self.totals.shrinks_released += 1;
            let owed = self.owed_bytes + u64::from(self.packed_len(oldest));
            self.owed_bytes = owed.min(self.payload_bytes());
        }
    }

    fn packed_len(&self, body: BodyId) -> u32 {
        match self.bodies.state(body) {
            BodyState::Stored { packed, .. } | BodyState::Writing { packed, .. } => packed.len,
            state => unreachable!("{body:?} is in the order but {state:?}"),
        }
    }

    /// Bytes of all pages in the compressed cache.
    pub(crate) fn payload_bytes(&self) -> u64 {
        let counts = self.bodies.counts();
        counts.stored_bytes + counts.writing_bytes
    }

    /// Takes a body, whose state was changed already, out of the compressed cache. Whatever the
    /// reason, that makes room and so pays what the cache owes.
    pub(crate) fn unstore(&mut self, body: BodyId, handle: Handle, packed: Packed) {
        let left = self.owed_bytes.saturating_sub(u64::from(packed.len));
        self.owed_bytes = left.min(self.payload_bytes());
        self.layout.remove(handle);
        self.order.remove(body);
        self.end_copies(body);
        self.account();
    }

    pub(crate) fn free_extent(&mut self, extent: Extent) {
        if let Some(swap) = &mut self.swap {
            swap.space.free(extent);
            swap.full = false;
        }
    }

    /// Tells the order how many page frames the cache uses now.
    pub(crate) fn account(&mut self) {
        self.order
            .set_frames(self.cache_bytes().div_ceil(PAGE_SIZE as u64));
    }
}
