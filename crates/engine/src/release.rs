//! What leaves the compressed cache, or never stays in it: pages nobody wants any more, pages that
//! are wanted, and pages dropped because there is a copy elsewhere.
//!
//! Pages to be given up leave in the order in which they were stored, those with a copy at once,
//! those without through the swap file (`writeout.rs`). Layouts that give memory back by whole frames
//! choose themselves (douglis93, cervera99).

use pleat_backing::Extent;
use pleat_store::Handle;
use pleat_types::StagingSlot;

use crate::bodies::{BodyState, Home, Packed};
use crate::cache::Cache;
use crate::debt::Why;
use crate::BodyId;

/// What became of a body whose page is in memory again.
pub(crate) enum Left {
    /// Nothing of it is left.
    Nothing,
    /// It is a copy of the page as long as that is not changed.
    Copy,
}

impl Cache {
    /// One page no longer refers to this body.
    pub(crate) fn release(&mut self, body: BodyId) {
        if self.bodies.remove_reference(body) > 0 {
            return;
        }
        self.end_count(body);
        match self.bodies.state(body) {
            // Someone is still folding it.
            BodyState::Staged(_) | BodyState::StagedClean { .. } => {}
            BodyState::Same(_) => self.bodies.free(body),
            BodyState::Stored { handle, packed } => {
                self.bodies.free(body);
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
            BodyState::Clean {
                handle,
                packed,
                copy,
            } => {
                self.bodies.free(body);
                self.unstore(body, handle, packed);
                self.free_extent(copy.extent);
            }
            BodyState::OnDisk(copy) => {
                self.landing.forget(body);
                self.bodies.free(body);
                self.free_extent(copy.extent);
            }
            state @ (BodyState::Free | BodyState::Drowned { .. }) => {
                unreachable!("{body:?} had a reference but is {state:?}")
            }
        }
    }

    /// A page that was away is in memory again, unchanged so far: keeps what the swap file has of it,
    /// and where the cache keeps such pages (douglis93, section 4.1) also what that has. There a page
    /// that was only read is not compressed again ("a compression, if pages are being modified",
    /// section 5.1).
    pub(crate) fn bring_back(&mut self, body: BodyId) -> Left {
        self.end_count(body);
        match self.bodies.state(body) {
            BodyState::OnDisk(_) => Left::Copy,
            BodyState::Stored { .. } | BodyState::Writing { .. } if self.keeps_what_is_read() => {
                Left::Copy
            }
            BodyState::Clean {
                handle,
                packed,
                copy,
            } => {
                self.sparing.learn(false);
                if !self.keeps_what_is_read() {
                    self.bodies.set_state(body, BodyState::OnDisk(copy));
                    self.unstore(body, handle, packed);
                }
                Left::Copy
            }
            _ => {
                self.release(body);
                Left::Nothing
            }
        }
    }

    /// A clean page leaves memory and is to be folded though there is a copy in the swap file: returns
    /// the body it is part of from now on.
    pub(crate) fn restage(&mut self, copy: BodyId, slot: StagingSlot) -> BodyId {
        // It may have been read once more after its page was back.
        self.landing.forget(copy);
        match self.bodies.state(copy) {
            BodyState::OnDisk(disk) if self.bodies.references(copy) == 1 => {
                let state = BodyState::StagedClean { slot, copy: disk };
                self.bodies.set_state(copy, state);
                copy
            }
            _ => {
                self.release(copy);
                self.bodies.create(slot, 1)
            }
        }
    }

    /// Takes a body, whose state was changed already, out of the compressed cache. Whatever the
    /// reason, that makes room and so pays what the cache owes.
    pub(crate) fn unstore(&mut self, body: BodyId, handle: Handle, packed: Packed) {
        self.debt.pay(u64::from(packed.len));
        self.debt.cap(self.payload_bytes());
        self.layout.remove(handle);
        self.order.remove(body);
        self.end_copies(body);
        self.account();
    }

    pub(crate) fn free_extent(&mut self, extent: Extent) {
        if let Some(swap) = &mut self.swap {
            swap.free(extent);
        }
    }

    /// The cache is to give up so much.
    pub(crate) fn owe(&mut self, why: Why, bytes: u64) {
        let most = self.payload_bytes().saturating_sub(self.debt.total());
        self.debt.add(why, bytes.min(most));
        self.owed_at = self.clock;
    }

    /// For whom the next page leaves the cache; `None`: none has to.
    pub(crate) fn next_leaves_for(&self) -> Option<Why> {
        self.debt.next(self.bodies.counts().writing_bytes)
    }

    /// So many pages leave the cache for this reason.
    pub(crate) fn count_leaving(&mut self, why: Why, pages: u64) {
        match why {
            Why::Policy => {}
            Why::Whole => self.totals.forced_whole_pages += pages,
            Why::Starved => self.totals.forced_starved_pages += pages,
            Why::Overdrawn => self.totals.forced_overdrawn_pages += pages,
        }
    }

    /// Drops pages that have a copy elsewhere, as long as more is owed than is on its way out and it
    /// is their turn.
    pub(crate) fn pay_with_clean_pages(&mut self) {
        while let Some(why) = self.next_leaves_for() {
            let before = self.totals.clean_released_pages;
            let paid = if self.layout.chooses_frames() {
                self.drop_frame()
            } else {
                self.drop_oldest()
            };
            if !paid {
                return;
            }
            self.count_leaving(why, self.totals.clean_released_pages - before);
        }
    }

    /// Gives up so many bytes of frames: at once what has a copy elsewhere, and what the layout holds
    /// without need; the rest is owed. Answers whether frames were given up at once.
    pub(crate) fn give(&mut self, why: Why, bytes: u64) -> bool {
        let before = self.cache_bytes();
        self.owe(why, bytes);
        self.pay_with_clean_pages();
        while self.cache_bytes() + bytes > before && self.layout.relocate_to_free_cell() {
            self.totals.shrinks_relocated += 1;
            self.account();
        }
        self.cache_bytes() < before
    }

    /// Drops the oldest page that is not on its way out; `false`: it has no copy, or there is none.
    fn drop_oldest(&mut self) -> bool {
        let oldest = match self.swap {
            Some(_) => {
                let on_its_way =
                    |body: &BodyId| matches!(self.bodies.state(*body), BodyState::Writing { .. });
                let mut oldest_first = self.order.oldest_first();
                oldest_first.find(|body| !on_its_way(body))
            }
            // Pages of files leave ahead of those that nothing else has, of which there may be very many.
            None => {
                let bodies = &self.bodies;
                self.order
                    .next_with_way_out(|body| bodies.is_droppable(body))
            }
        };
        match oldest {
            Some(body) if self.is_droppable(body) => {
                self.drop_body(body);
                true
            }
            _ => false,
        }
    }

    /// Drops all pages of the frame that the layout names; `false`: there is none.
    fn drop_frame(&mut self) -> bool {
        let mut handles = Vec::new();
        if !self.layout.next_clean_frame(&mut handles) {
            return false;
        }
        for handle in handles {
            self.drop_body(self.owners[handle.0 as usize]);
        }
        true
    }

    /// Whether a body of the cache has a copy elsewhere.
    pub(crate) fn is_droppable(&self, body: BodyId) -> bool {
        self.bodies.is_droppable(body)
    }

    /// Whether everything that was stored before this page has left the cache, or is on its way out, or
    /// has been written and may stay as long as it will: castro03, section 2.3.2. Pages passed on do
    /// not count. Costs a walk; for assertions.
    pub(crate) fn is_next_to_leave(&self, body: BodyId) -> bool {
        let before = self.order.oldest_first().take_while(|&other| other != body);
        let left_at = self.bodies.left_at(body);
        self.layout.chooses_frames()
            || before
                .filter(|&older| self.bodies.left_at(older) < left_at)
                .all(|older| match self.bodies.state(older) {
                    BodyState::Writing { .. } => true,
                    BodyState::Clean { .. } => self.keeps_what_is_written(),
                    // Passed over: there is no way out for it.
                    _ if self.swap.is_none() => !self.is_droppable(older),
                    _ => self.keeps_what_is_written() && self.is_droppable(older),
                })
    }

    /// Drops a page that is droppable.
    pub(crate) fn drop_body(&mut self, body: BodyId) {
        debug_assert!(self.is_next_to_leave(body), "{body:?} leaves out of order");
        self.totals.clean_released_pages += 1;
        self.admission.clean_released();
        match self.bodies.state(body) {
            BodyState::Clean {
                handle,
                packed,
                copy,
            } => {
                self.sparing.learn(true);
                self.bodies.set_state(body, BodyState::OnDisk(copy));
                self.unstore(body, handle, packed);
            }
            BodyState::Stored { handle, packed } => {
                self.drop_home(body);
                self.unstore(body, handle, packed);
            }
            state => unreachable!("{body:?} is dropped but {state:?}"),
        }
    }

    /// Frees the body of a page of a file, which is unknown from now on.
    pub(crate) fn drop_home(&mut self, body: BodyId) {
        // Asked for bodies that have one.
        let home = self.bodies.home(body).expect("a page of a file");
        self.bodies.remove_reference(body);
        // The ghost is counted from now on.
        if let Some(left_at) = self.bodies.end_count(body) {
            self.ghosts.add(home, left_at, &mut self.away);
        }
        self.bodies.free(body);
        self.dropped.push(home);
    }

    /// The page of a body leaves memory now; its stamp was `used_at`.
    pub(crate) fn begin_count(&mut self, body: BodyId, used_at: u64) {
        let now = self.next_stamp();
        self.end_count(body);
        self.away.add(now);
        self.bodies.count_from(body, now, used_at);
        self.totals.clean_off_pages += u64::from(self.admission.clean_is_off());
    }

    /// For how long the oldest page of a program was there, of those looked at last.
    pub(crate) fn oldest_age(&self) -> u64 {
        let oldest = self.outside.oldest_anonymous;
        oldest.map_or(0, |stamp| self.clock.saturating_sub(stamp))
    }

    fn end_count(&mut self, body: BodyId) {
        if let Some(left_at) = self.bodies.end_count(body) {
            self.away.remove(left_at);
        }
    }

    /// A page of a file leaves memory and nothing is kept of it.
    pub(crate) fn add_ghost(&mut self, home: Home) {
        let now = self.next_stamp();
        self.away.add(now);
        self.ghosts.add(home, now, &mut self.away);
        self.totals.clean_off_pages += u64::from(self.admission.clean_is_off());
    }

    /// A page of a file is back, or will never be: when did it leave, if that is still known?
    pub(crate) fn forget_ghost(&mut self, home: Home) -> Option<u64> {
        let left_at = self.ghosts.take(home)?;
        self.away.remove(left_at);
        Some(left_at)
    }
}
