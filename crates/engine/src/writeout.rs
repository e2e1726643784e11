//! From the compressed cache to the swap file: always the oldest pages, in order, a cluster at a
//! time (castro03, section 2.3.2; douglis93 for the clusters).
//!
//! Plans and accounts only. The driver writes the bytes and reports; until then every page is
//! still answered from memory.

use pleat_backing::Extent;

use crate::bodies::{BodyState, Packed};
use crate::cache::{Cache, Swap};
use crate::{BodyId, Engine, WriteItem, WriteOutcome, WritePlan};

impl Engine {
    /// Whether the swap file takes anything at present.
    pub(crate) fn can_write(&self) -> bool {
        self.cache
            .swap
            .as_ref()
            .is_some_and(|swap| !swap.halted && !swap.full)
    }

    /// Whether `plan_write` should be called: the cache owes pages, or memory is short and taking
    /// pages away cannot help (there are too few, or none could be chosen).
    pub fn write_wanted(&self) -> bool {
        let bodies = self.cache.bodies.counts();
        if !self.can_write() || bodies.stored == 0 {
            return false;
        }
        let missing = self.settings.reserve_bytes as i64 - self.free_bytes();
        let missing = missing.max(0) as u64;
        let takeable = self.pages.resident + self.pages.leaving + bodies.staged;
        let squeezed = missing > bodies.writing_bytes
            && (self.starved
                || missing > takeable * self.cache.gain_bytes() + bodies.writing_bytes);
        self.cache.owed_bytes > bodies.writing_bytes || squeezed
    }

    /// Plans one cluster of the oldest pages that are not being written yet. `false`: there is
    /// nothing to write, or nowhere to write it.
    ///
    /// Each plan is to be reported with `write_done` exactly once; several may be under way.
    pub fn plan_write(&mut self, plan: &mut WritePlan) -> bool {
        plan.bytes.clear();
        plan.items.clear();
        if !self.can_write() {
            return false;
        }
        let cache = &mut self.cache;
        let Some(swap) = &mut cache.swap else {
            return false;
        };
        let mut oldest = Vec::new();
        choose_oldest(&cache.order, &cache.bodies, swap, &mut oldest);
        if oldest.is_empty() {
            return false;
        }
        let Some(extent) = allocate(swap, &mut oldest) else {
            swap.full = true;
            return false;
        };
        plan.offset = extent.offset;
        for (body, packed) in oldest {
            cache.begin_write(body, packed, plan);
        }
        cache.totals.writes_planned += 1;
        true
    }

    /// The cluster is in the file, or it is not. After a failure its pages are the oldest of the
    /// cache again and nothing is planned until `resume_writes`.
    pub fn write_done(&mut self, plan: &WritePlan, outcome: WriteOutcome) {
        let totals = &mut self.cache.totals;
        match outcome {
            WriteOutcome::Done => {
                totals.writes_done += 1;
                totals.written_pages += plan.items.len() as u64;
                totals.written_bytes += plan.bytes.len() as u64;
            }
            WriteOutcome::Failed => {
                totals.writes_failed += 1;
                self.cache
                    .swap
                    .iter_mut()
                    .for_each(|swap| swap.halted = true);
            }
        }
        for item in &plan.items {
            self.cache.end_write(item.body, outcome);
        }
    }

    /// The swap file can be written to again.
    pub fn resume_writes(&mut self) {
        if let Some(swap) = &mut self.cache.swap {
            swap.halted = false;
            swap.full = false;
        }
    }
}

/// The oldest stored bodies that fit into one cluster, skipping those being written (all of them
/// at the old end, so few).
fn choose_oldest(
    order: &crate::order::Order,
    bodies: &crate::bodies::Bodies,
    swap: &Swap,
    out: &mut Vec<(BodyId, Packed)>,
) {
    let mut left = swap.settings.cluster_bytes;
    for body in order.oldest_first() {
        let BodyState::Stored { packed, .. } = bodies.state(body) else {
            continue;
        };
        let bytes = whole_fragments(swap, packed.len);
        // The first one goes in any case, or a large page would block the way for ever.
        if bytes > left && !out.is_empty() {
            return;
        }
        left = left.saturating_sub(bytes);
        out.push((body, packed));
    }
}

/// Room for all these bodies in one piece, or for fewer of them, the oldest.
fn allocate(swap: &mut Swap, oldest: &mut Vec<(BodyId, Packed)>) -> Option<Extent> {
    while !oldest.is_empty() {
        let bytes = oldest
            .iter()
            .map(|(_, packed)| whole_fragments(swap, packed.len))
            .sum();
        if let Some(extent) = swap.space.allocate(bytes) {
            return Some(extent);
        }
        oldest.pop();
    }
    None
}

fn whole_fragments(swap: &Swap, bytes: u32) -> u32 {
    bytes.next_multiple_of(swap.settings.fragment_bytes)
}

impl Cache {
    /// Copies a stored body to the end of the plan, in whole fragments.
    fn begin_write(&mut self, body: BodyId, packed: Packed, plan: &mut WritePlan) {
        let (BodyState::Stored { handle, .. }, Some(swap)) = (self.bodies.state(body), &self.swap)
        else {
            unreachable!("{body:?} was chosen to be written");
        };
        let start = plan.bytes.len() as u32;
        let bytes = whole_fragments(swap, packed.len);
        plan.bytes.extend_from_slice(self.layout.get(handle));
        plan.bytes.resize((start + bytes) as usize, 0);
        plan.items.push(WriteItem {
            body,
            start,
            len: packed.len,
        });
        let extent = Extent {
            offset: plan.offset + u64::from(start),
            bytes,
        };
        self.bodies.set_state(
            body,
            BodyState::Writing {
                handle,
                packed,
                extent,
            },
        );
    }

    fn end_write(&mut self, body: BodyId, outcome: WriteOutcome) {
        match (self.bodies.state(body), outcome) {
            (
                BodyState::Writing {
                    handle,
                    packed,
                    extent,
                },
                WriteOutcome::Done,
            ) => {
                self.bodies
                    .set_state(body, BodyState::OnDisk { packed, extent });
                self.unstore(body, handle, packed);
            }
            // It kept its place in the order, so it is among the oldest again.
            (
                BodyState::Writing {
                    handle,
                    packed,
                    extent,
                },
                WriteOutcome::Failed,
            ) => {
                self.bodies
                    .set_state(body, BodyState::Stored { handle, packed });
                self.free_extent(extent);
            }
            (BodyState::Drowned { extent }, _) => {
                self.bodies.set_state(body, BodyState::Free);
                self.free_extent(extent);
            }
            (state, _) => unreachable!("{body:?} was being written but is {state:?}"),
        }
    }
}
