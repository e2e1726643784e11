//! Taking pages of segments: held, removed, and only then read (`pleat_sys::take_out`), all while nobody can fill a page of the
//! segment.
//!
//! Then they are *closing* until it is known that no robust lock lies in them and the engine has been told: others may be filled
//! meanwhile, these wait. The engine takes them for pages that are chosen and still there; who finds one of them among those
//! that are closing knows better.

use super::locks::Looked;
use super::{Segment, Segments, State};
use crate::ends::Failure;
use crate::folds::FoldJob;
use crate::reclaim::kick;
use crate::shared::{lock, Holder, Shared};
use pleat_codec::PageKind;
use pleat_engine::Refusal;
use pleat_sys::page_refs::PAGES_MAX;
use pleat_sys::robust::locks_of;
use pleat_sys::take_out::{Stays, TakeOut};
use pleat_types::{PageNo, SpaceId, PAGE_SIZE};
use std::sync::Arc;
use std::time::Duration;

/// How long a page is waited for that somebody has pinned just as it was removed. A direct read takes milliseconds.
const PIN_WAIT: Duration = Duration::from_secs(5);

/// A look at robust locks that began so long ago at most is the first of the next take as well. While memory is short, takes follow each other
/// more closely than that, and to look at all threads is a large part of what they cost.
const LOOK_KEPT: Duration = Duration::from_millis(1);

/// How long nothing is taken where it cannot be told whether a robust lock lies there.
const UNSURE_PAUSE: Duration = Duration::from_millis(1);

impl Segments {
    /// Takes the pages that were chosen.
    pub(super) fn take_chosen(&self, shared: &Shared, taker: &mut TakeOut) {
        let pages = self.chosen.get();
        if pages.is_empty() {
            return;
        }
        let mut rest = &pages[..];
        while let Some(&first) = rest.first() {
            let segment = self.segment_of(first);
            let is_of_it = |page: &&PageNo| match &segment {
                Some(segment) => segment.pages().contains(**page),
                None => self.segment_of(**page).is_none(),
            };
            let count = rest.iter().take(PAGES_MAX).take_while(is_of_it).count();
            let (some, behind) = rest.split_at(count);
            rest = behind;
            match segment {
                Some(segment) => self.take_some(shared, taker, &segment, some),
                // Nobody has it any more.
                None => self.refuse(shared, some, Refusal::Gone),
            }
        }
        self.chosen.done();
        kick(shared);
    }

    fn segment_of(&self, page: PageNo) -> Option<Arc<Segment>> {
        let segments = lock(&self.segments);
        let (_, segment) = segments.range(..=page).next_back()?;
        segment.pages().contains(page).then(|| segment.clone())
    }

    fn refuse(&self, shared: &Shared, pages: &[PageNo], why: Refusal) {
        let mut engine = shared.engine();
        for page in pages {
            engine.refused(self.space, *page, why);
        }
    }

    /// Takes pages of one segment, in ascending order.
    fn take_some(&self, shared: &Shared, taker: &mut TakeOut, segment: &Segment, pages: &[PageNo]) {
        let looked = segment.first_look(shared);
        if looked.is_unsure() {
            self.refuse(shared, pages, Refusal::Busy);
            // Asked again at once they would be just as unsure.
            return shared.machine.pause(UNSURE_PAUSE);
        }
        let mut bytes = taker.buffer(pages.len());
        let removed = segment.alone(shared, |state| {
            if *state != State::Served || self.is_left(segment) {
                self.refuse(shared, pages, Refusal::Busy);
                return None;
            }
            let is_meant = |page: &PageNo| shared.engine().is_leaving(self.space, *page);
            let (meant, gone): (Vec<_>, Vec<_>) = pages.iter().copied().partition(is_meant);
            self.refuse(shared, &gone, Refusal::Gone);
            let is_locked = |page: &PageNo| looked.may_be_in(*page);
            let (locked, free): (Vec<_>, Vec<_>) = meant.into_iter().partition(is_locked);
            self.refuse(shared, &locked, Refusal::Busy);
            self.take_free(shared, taker, segment, (free, &mut bytes))
        });
        if let Some(pages) = removed {
            self.put_away(shared, segment, &pages, &bytes, &looked);
            lock(&segment.closing).clear();
            segment.call_missed();
        }
        taker.keep(bytes);
    }

    /// Takes those of the pages that nobody has pinned: they are out of the memory, nobody fills them before they are not among
    /// those that are closing any more, and `bytes` has what is in them.
    fn take_free(
        &self,
        shared: &Shared,
        taker: &mut TakeOut,
        segment: &Segment,
        (mut pages, bytes): (Vec<PageNo>, &mut Vec<u8>),
    ) -> Option<Vec<PageNo>> {
        while !pages.is_empty() {
            let places: Vec<u64> = pages.iter().map(|page| segment.offset_of(*page)).collect();
            let held = taker.hold(&*segment.memory, &places);
            let stays = held.as_ref().ok().and_then(|held| held.stays().ok());
            let (Ok(held), Some(stays)) = (held, stays) else {
                self.refuse(shared, &pages, Refusal::Busy);
                return None;
            };
            if stays.iter().any(Option::is_some) {
                drop(held);
                pages = self.leave_out(shared, &pages, &stays);
                continue;
            }
            let Ok(removed) = held.remove() else {
                shared.fail(Failure::SharedNotRemoved);
                return None;
            };
            bytes.truncate(pages.len() * PAGE_SIZE);
            if removed.read(PIN_WAIT, bytes).is_err() {
                shared.fail(Failure::SharedPinned);
                return None;
            }
            lock(&segment.closing).clone_from(&pages);
            return Some(pages);
        }
        None
    }

    /// Refuses what stays, and answers what is left.
    fn leave_out(&self, shared: &Shared, pages: &[PageNo], stays: &[Option<Stays>]) -> Vec<PageNo> {
        let mut left = Vec::new();
        for (page, why) in pages.iter().zip(stays) {
            let refusal = match why {
                None => {
                    left.push(*page);
                    continue;
                }
                Some(Stays::Busy) => Refusal::Busy,
                Some(Stays::Locked | Stays::Huge) => Refusal::Unmovable,
            };
            self.refuse(shared, &[*page], refusal);
        }
        left
    }

    /// What was removed goes to be folded, but for pages with a robust lock, which are put back.
    fn put_away(
        &self,
        shared: &Shared,
        segment: &Segment,
        pages: &[PageNo],
        bytes: &[u8],
        before: &Looked,
    ) {
        let begun = shared.machine.now();
        let after = segment.look_for_locks(shared);
        let ended = after.ended_since(before, &*shared.machine);
        let (mut jobs, mut back) = (Vec::new(), Vec::new());
        for (&page, bytes) in pages.iter().zip(bytes.chunks_exact(PAGE_SIZE)) {
            let is_free =
                !after.may_be_in(page) && (ended.is_empty() || locks_of(bytes, &ended).is_empty());
            let Some(frame) = is_free.then(|| self.slots.claim()).flatten() else {
                // At once: somebody may be waiting for a lock in it.
                if segment
                    .memory
                    .write(segment.offset_of(page), bytes)
                    .is_err()
                {
                    return shared.fail(Failure::SharedNotPutBack);
                }
                back.push(page);
                continue;
            };
            self.slots.ring.put(frame, bytes);
            let slot = self.slots.name(frame);
            match shared.engine().taken_to_compare(self.space, page, slot) {
                Some((body, was)) => jobs.push(FoldJob {
                    body,
                    was,
                    page: (self.space, page),
                    kind: PageKind::Anonymous,
                    slots: self.slots.clone(),
                    frame,
                }),
                None => self.slots.release(frame),
            }
        }
        shared.meters.segment_taken_pages.add(jobs.len() as u64);
        shared.folds.push(jobs);
        if !back.is_empty() {
            let ended = after.ended_by_now(before, &*shared.machine);
            for page in &back {
                // Without room for a mapping its waiter waits on, or has a time limit.
                let _ = segment
                    .memory
                    .mark_orphans(segment.offset_of(*page), &ended);
            }
            shared.meters.segment_put_back_pages.add(back.len() as u64);
            self.refuse(shared, &back, Refusal::Busy);
        }
        *lock(&segment.last_look) = Some((begun, after));
    }
}

impl Segment {
    /// Which pages have robust locks before any is removed: by the last take's second look, if that is fresh.
    fn first_look(&self, shared: &Shared) -> Looked {
        let kept = lock(&self.last_look).take();
        let is_fresh = |(begun, looked): &(_, Looked)| {
            shared.machine.since(*begun) < LOOK_KEPT && !looked.is_unsure()
        };
        match kept.filter(is_fresh) {
            Some((_, looked)) => looked,
            None => self.look_for_locks(shared),
        }
    }
}

impl Holder for Segments {
    fn space(&self) -> SpaceId {
        self.space
    }

    fn reserve(&self) -> Option<u32> {
        self.chosen
            .reserve(|| match lock(&self.segments).is_empty() {
                true => 0,
                false => self.slots.available().min(PAGES_MAX),
            })
    }

    fn take(&self, pages: Vec<PageNo>) {
        if self.chosen.give(pages) {
            self.bell.ring();
        }
    }

    fn feed(&self) {}

    fn held_bytes(&self) -> u64 {
        self.bytes()
    }

    fn is_charged(&self) -> bool {
        true
    }

    /// The kernel drops nothing of it.
    fn lost_pages(&self) -> u64 {
        0
    }
}
