//! Taking pages away: how many, which, and what became of each command.
//!
//! The driver asks `frames_wanted`, has `choose_victims` name the oldest pages, tells each process
//! to take its own, and reports every one of them exactly once with `taken` or `refused`.

use pleat_codec::Folded;
use pleat_types::{PageNo, SpaceId, StagingSlot, PAGE_SIZE};

use crate::space::Subject;
use crate::table::PageState;
use crate::{BodyId, Engine, Refusal};

impl Engine {
    /// How many page frames should be freed now.
    ///
    /// 0 while at least the reserve is free, or what was asked for if that is more; otherwise what is
    /// missing to twice that, less what pages already leaving, staged or being written are expected
    /// to free.
    pub fn frames_wanted(&self) -> u64 {
        let reserve = self.settings.reserve_bytes.max(self.asked_bytes) as i64;
        let free = self.free_bytes();
        if free >= reserve {
            return 0;
        }
        let missing = (2 * reserve - free) as u64;
        missing
            .saturating_sub(self.gain_under_way())
            .div_ceil(PAGE_SIZE as u64)
    }

    /// Bytes that what is under way is expected to free. What is owed counts: the store will give
    /// it up as soon as the swap file has it, and evicting more meanwhile would only add to it.
    fn gain_under_way(&self) -> u64 {
        let bodies = self.cache.bodies.counts();
        let folding = (self.pages.leaving + bodies.staged) * self.cache.gain_bytes();
        let owed = if self.can_write() {
            self.cache.owed_bytes
        } else {
            0
        };
        folding + bodies.writing_bytes.max(owed)
    }

    /// Appends up to `want` of the oldest resident pages over all `takers`, at most as many per
    /// space as its number says; each space at most once. They are leaving from now on.
    pub fn choose_victims(
        &mut self,
        takers: &[(SpaceId, u32)],
        want: usize,
        out: &mut Vec<(SpaceId, PageNo)>,
    ) {
        let mut room: Vec<u32> = takers.iter().map(|&(_, most)| most).collect();
        let mut oldest: Vec<_> = takers
            .iter()
            .map(|&(space, _)| self.oldest_of(space))
            .collect();
        let first = out.len();
        while out.len() - first < want {
            let heads = oldest.iter().zip(&room).enumerate();
            let eligible = heads.filter_map(|(index, (head, &room))| {
                head.filter(|_| room > 0)
                    .map(|(page, stamp)| (stamp, index, page))
            });
            let Some((stamp, index, page)) = eligible.min() else {
                break;
            };
            let id = takers[index].0;
            if let Some(space) = self.spaces.get_mut(&id) {
                space.choose_oldest(page, stamp, &mut self.pages);
            }
            out.push((id, page));
            room[index] -= 1;
            oldest[index] = self.oldest_of(id);
        }
        let chosen = out.len() - first;
        self.cache.totals.chosen_pages += chosen as u64;
        self.starved = chosen == 0 && want > 0 && takers.iter().any(|&(_, most)| most > 0);
    }

    fn oldest_of(&mut self, space: SpaceId) -> Option<(PageNo, u64)> {
        self.spaces.get_mut(&space)?.oldest()
    }

    /// The page of this command lies in `slot` now. The body returned is to be folded, and
    /// `folded` called for it exactly once. `None`: the page was given up meanwhile; the slot is
    /// the caller's to reuse.
    pub fn taken(&mut self, space: SpaceId, page: PageNo, slot: StagingSlot) -> Option<BodyId> {
        let totals = &mut self.cache.totals;
        let Some(space) = self.spaces.get_mut(&space) else {
            totals.taken_void_pages += 1;
            return None;
        };
        let subject = space.settle(page);
        let pages = subject.pages();
        if pages.is_empty() {
            totals.taken_void_pages += 1;
            return None;
        }
        totals.taken_pages += 1;
        let body = self.cache.bodies.create(slot, pages.len() as u32);
        for &page in pages {
            space.strike(page);
            space.change(page, PageState::Away(body), &mut self.pages);
        }
        Some(body)
    }

    /// The page of this command was not taken.
    pub fn refused(&mut self, space: SpaceId, page: PageNo, why: Refusal) {
        let totals = &mut self.cache.totals;
        match why {
            Refusal::Busy => totals.refused_busy_pages += 1,
            Refusal::Gone => totals.refused_gone_pages += 1,
            Refusal::Unmovable => totals.refused_unmovable_pages += 1,
            Refusal::Stale => totals.refused_stale_pages += 1,
        }
        let Some(subject) = self.spaces.get_mut(&space).map(|space| space.settle(page)) else {
            return;
        };
        for &page in subject.pages() {
            let stamp = self.next_stamp();
            let Some(space) = self.spaces.get_mut(&space) else {
                return;
            };
            // Another command may still be about a page that moved.
            if space.is_stray(page) {
                continue;
            }
            match (why, &subject) {
                (Refusal::Stale, _) if !space.is_contested(page) => {
                    space.restore(page, &mut self.pages);
                }
                (Refusal::Gone, Subject::Same(_)) => {
                    space.change(page, PageState::Unknown, &mut self.pages);
                }
                (Refusal::Unmovable, Subject::Same(_)) => {
                    space.change(page, PageState::Stuck, &mut self.pages);
                }
                // What was found at the address of the command need not be this page.
                _ => {
                    space.arrive(page, stamp, &mut self.pages);
                }
            }
        }
    }

    /// A body that `taken` returned is folded; `bytes` begins with the folded page. Stores it, or
    /// drops it when nobody wants it any more. Its staging slot is free afterwards, unless a fill
    /// plan still names it.
    ///
    /// # Panics
    /// When the body is not staged: each is folded exactly once.
    pub fn folded(&mut self, body: BodyId, result: Folded, bytes: &[u8]) {
        self.cache.fold(body, result, bytes);
    }
}
