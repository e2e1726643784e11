//! All equations of the engine in one place, checked by walking everything.
//!
//! For tests and debugging: the cost is that of the whole state.

use std::collections::HashMap;

use pleat_types::PAGE_SIZE;

use crate::bodies::BodyState;
use crate::space::PageCounts;
use crate::{BodyId, Engine};

impl Engine {
    /// Whether the engine's accounts agree with its state. Slow; for tests.
    pub fn is_valid(&self) -> bool {
        self.violation().is_none()
    }

    /// The first equation that does not hold.
    pub(crate) fn violation(&self) -> Option<&'static str> {
        let checks = [
            (
                self.spaces.values().all(|space| space.is_valid()),
                "an address space",
            ),
            (self.page_counts_hold(), "page counts == page table entries"),
            (self.cache.bodies.is_valid(), "body counts == bodies"),
            (
                self.references_hold(),
                "references == page table entries that name the body",
            ),
            (
                self.cache.order.is_valid(),
                "expense == min(frames, len), newest first",
            ),
            (
                self.order_holds(),
                "order == stored + writing + clean bodies",
            ),
            (
                self.store_holds(),
                "layout items and payload == stored + writing + clean bodies",
            ),
            (self.swap_holds(), "swap live == extents of bodies"),
            (
                self.landing_holds(),
                "what has landed is in the swap file and accounted",
            ),
            (
                self.cache.debt.total() <= self.cache.payload_bytes(),
                "owed <= payload",
            ),
            (self.distances_hold(), "away == counted bodies + ghosts"),
            (self.cache.dropped.is_empty(), "dropped pages are unknown"),
        ];
        checks
            .into_iter()
            .find(|(holds, _)| !holds)
            .map(|(_, what)| what)
    }

    fn page_counts_hold(&self) -> bool {
        let mut counts = PageCounts::default();
        self.spaces
            .values()
            .for_each(|space| counts.add(space.count()));
        counts == self.pages
    }

    fn references_hold(&self) -> bool {
        let mut named: HashMap<BodyId, u32> = HashMap::new();
        for body in self.spaces.values().flat_map(|space| space.bodies()) {
            *named.entry(body).or_default() += 1;
        }
        let bodies = &self.cache.bodies;
        let alive = bodies
            .all()
            .filter(|&(body, _)| named.contains_key(&body))
            .count();
        alive == named.len()
            && bodies
                .all()
                .all(|(body, _)| bodies.references(body) == named.get(&body).copied().unwrap_or(0))
    }

    fn order_holds(&self) -> bool {
        let order = &self.cache.order;
        let members = self
            .cache
            .bodies
            .all()
            .filter(|(_, state)| in_cache(*state))
            .count() as u64;
        let left_at: Vec<u64> = order
            .oldest_first()
            .map(|body| self.cache.bodies.left_at(body))
            .collect();
        // Pages passed on, or kept when they came back, are not where their time says.
        let exempt =
            self.cache.admission.passes_on_incompressible() || self.cache.keeps_what_is_read();
        (exempt || left_at.is_sorted())
            && members == order.len()
            && order
                .oldest_first()
                .all(|body| in_cache(self.cache.bodies.state(body)))
    }

    fn store_holds(&self) -> bool {
        let (usage, counts) = (self.cache.layout.usage(), self.cache.bodies.counts());
        usage.items == counts.stored + counts.writing + counts.clean
            && usage.payload_bytes == self.cache.payload_bytes()
            && usage.frames_bytes >= usage.payload_bytes
            && self.cache.order.frames() == self.cache.cache_bytes().div_ceil(PAGE_SIZE as u64)
    }

    fn distances_hold(&self) -> bool {
        let cache = &self.cache;
        cache.away.is_valid() && cache.away.total() == cache.bodies.counted() + cache.ghosts.len()
    }

    fn swap_holds(&self) -> bool {
        let extents = self.cache.bodies.counts().extent_bytes;
        let swap = self.cache.swap.as_ref();
        swap.map_or(extents == 0, |swap| {
            swap.live_bytes() == extents + self.cache.moving_bytes && swap.is_valid()
        })
    }

    fn landing_holds(&self) -> bool {
        let (landing, bodies) = (&self.cache.landing, &self.cache.bodies);
        let is_on_disk = |body| matches!(bodies.state(body), BodyState::OnDisk(_));
        landing.is_valid() && landing.bodies().all(is_on_disk)
    }
}

fn in_cache(state: BodyState) -> bool {
    matches!(
        state,
        BodyState::Stored { .. } | BodyState::Writing { .. } | BodyState::Clean { .. }
    )
}
