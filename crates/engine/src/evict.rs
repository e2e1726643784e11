//! Taking pages away: how many, which, and what became of each command.
//!
//! The driver asks `frames_wanted`, has `choose_victims` name the oldest pages, tells each process
//! to take its own, and reports every one of them exactly once with `taken` or `refused`.

use pleat_backing::Fingerprint;
use pleat_codec::Folded;
use pleat_policy::{Backed, Candidate, Giver};
use pleat_types::{PageNo, SpaceId, StagingSlot, PAGE_SIZE};

use crate::bodies::{BodyState, Home};
use crate::debt::Why;
use crate::residents::{Manner, PASSES_MAX};
use crate::space::Subject;
use crate::table::PageState;
use crate::{BodyId, CacheFull, Engine, Refusal, WayOut};

/// So many times as old is older by far.
const FAR_OLDER: u64 = 2;

impl Engine {
    /// How many page frames should be freed now.
    ///
    /// 0 while at least the reserve is free, or what was asked for if that is more; otherwise what is
    /// missing to twice that, less what pages already leaving, staged or being written are expected
    /// to free. More if there is a limit on resident pages and it is near.
    pub fn frames_wanted(&self) -> u64 {
        self.frames_missing().max(self.frames_beyond_limit())
    }

    /// Resident pages to be taken for the limit's sake: from 15/16 of it on, down to 7/8.
    fn frames_beyond_limit(&self) -> u64 {
        let Some(most) = self.resident_max_pages else {
            return 0;
        };
        match self.pages.resident > most - most / 16 {
            true => self.pages.resident - (most - most / 8),
            false => 0,
        }
    }

    /// What the account of memory lacks.
    fn frames_missing(&self) -> u64 {
        let reserve = self.reserve_bytes().max(self.asked_bytes) as i64;
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
    pub(crate) fn gain_under_way(&self) -> u64 {
        let bodies = self.cache.bodies.counts();
        let folding = (self.pages.leaving + bodies.staged) * self.cache.gain_bytes();
        let owed = if self.cache.can_write() {
            self.cache.debt.total()
        } else {
            0
        };
        folding + bodies.writing_bytes.max(owed)
    }

    /// Appends up to `want` of the oldest resident pages over all `takers`, at most as many per
    /// space as its number says (0: it is at work, and will not be for long); each space at most once. They are
    /// leaving from now on.
    ///
    /// Where the oldest page is of a space that is at work, those of others go instead only if they are nearly
    /// as old, or memory is short: whose pages go is a matter of age, not of who is free. (A server beside a batch
    /// job would lose what is in use whenever the batch job is at work, which is nearly always.)
    pub fn choose_victims(
        &mut self,
        takers: &[(SpaceId, u32)],
        want: usize,
        out: &mut Vec<(SpaceId, PageNo)>,
    ) {
        self.choose_some_victims(takers, want, want, out);
    }

    /// As [`Engine::choose_victims`], but no more than `most` of those wanted, for drivers that ask several times
    /// and let go of a lock in between. When fewer come, there are no more.
    pub fn choose_some_victims(
        &mut self,
        takers: &[(SpaceId, u32)],
        want: usize,
        most: usize,
        out: &mut Vec<(SpaceId, PageNo)>,
    ) {
        let want = want.min(self.places_left());
        let mut room: Vec<u32> = takers.iter().map(|&(_, most)| most).collect();
        let mut oldest: Vec<_> = takers
            .iter()
            .map(|&(space, _)| self.oldest_of(space))
            .collect();
        self.note_oldest(takers, &oldest);
        // What the cache gives makes no page less resident.
        let for_limit = self.frames_beyond_limit() > 0 && self.frames_missing() == 0;
        if want > 0 && !for_limit && self.cache_gives(want as u64) {
            return;
        }
        if self.free_bytes() < 0 && self.foreign_bytes < 0 {
            self.cache_must_give(Why::Overdrawn, want as u64);
        }
        let (first, urgent) = (out.len(), self.frames_urgent() as usize);
        let mut is_waiting = false;
        while out.len() - first < want.min(most) {
            let heads = oldest.iter().zip(&room).enumerate();
            let eligible = heads.filter_map(|(index, (head, &room))| {
                let (page, stamp) = head.filter(|_| room > 0)?;
                let id = takers[index].0;
                Some((!self.rests(id), self.rank(id, stamp), index, page))
            });
            let Some((is_awake, rank, index, page)) = eligible.min() else {
                break;
            };
            let id = takers[index].0;
            is_waiting = is_awake
                && out.len() - first >= urgent
                && self.another_is_older(rank, takers, &oldest);
            if is_waiting {
                break;
            }
            if let Some(space) = self.spaces.get_mut(&id) {
                let passed = space.choose_oldest(page, &mut self.cache.clock, &mut self.pages);
                self.cache.totals.passed_pages += u64::from(passed);
            }
            out.push((id, page));
            room[index] -= 1;
            oldest[index] = self.oldest_of(id);
        }
        let chosen = out.len() - first;
        self.cache.totals.chosen_pages += chosen as u64;
        // Whoever is at work and has more pages gives them when that is done: only where nobody has any is
        // nothing left. A space that could obey a command and has no page to give says nothing of the others.
        let more_will_come = is_waiting || oldest.iter().any(Option::is_some);
        self.starved = chosen == 0 && want > 0 && !takers.is_empty() && !more_will_come;
        if self.starved {
            self.cache_must_give(Why::Starved, want as u64);
        }
    }

    /// Whether there is a swap file, with room and places left as far as that is known here. One that is
    /// nearly full may still take a little, after much work: that is no hope.
    pub fn swap_takes_more(&self) -> bool {
        let swap = self.cache.swap.as_ref();
        swap.is_some_and(|swap| !swap.is_nearly_full()) && self.places_left() > 0
    }

    /// How many more pages may leave memory where places in the swap file are promised beforehand
    /// (cervera99, section 3.2).
    fn places_left(&self) -> usize {
        let Some(swap) = &self.cache.swap else {
            return usize::MAX;
        };
        let bodies = self.cache.bodies.counts();
        let unsized_pages = bodies.staged + self.pages.leaving;
        let away = bodies.stored + bodies.writing + bodies.clean + bodies.disk;
        let in_cache = self.cache.layout.frame_states().dirty.min(bodies.stored);
        let left = swap.places_left(away + unsized_pages, in_cache + unsized_pages);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// How many frames lack to what faults need, beside those that are under way.
    fn frames_urgent(&self) -> u64 {
        let lack = (-self.grantable_bytes()).max(0) as u64;
        let lack = lack.saturating_sub(self.gain_under_way());
        lack.div_ceil(PAGE_SIZE as u64)
    }

    /// Whether a space has a page that is older by far than the one of this rank, which goes first as far as
    /// spaces are free.
    fn another_is_older(
        &self,
        rank: u64,
        takers: &[(SpaceId, u32)],
        oldest: &[Option<(PageNo, u64)>],
    ) -> bool {
        let limit = (self.cache.clock - rank).saturating_mul(FAR_OLDER);
        let mut heads = takers.iter().zip(oldest);
        heads.any(|(&(other, _), head)| {
            head.is_some_and(|(_, stamp)| self.cache.clock - self.rank(other, stamp) > limit)
        })
    }

    fn oldest_of(&mut self, space: SpaceId) -> Option<(PageNo, u64)> {
        let sees_uses = self.sees_uses(space);
        let rests = self.rests(space);
        let manner = Manner {
            passes_max: match (rests, sees_uses) {
                // What is known of uses says nothing of a time without any.
                (true, _) => 0,
                (false, true) => u32::MAX,
                (false, false) => PASSES_MAX,
            },
            with_scouts: !rests && !sees_uses && self.lives.is_some(),
        };
        let space = self.spaces.get_mut(&space)?;
        space.oldest(&mut self.cache.clock, manner)
    }

    fn rests(&self, space: SpaceId) -> bool {
        self.spaces.get(&space).is_some_and(|space| space.rests)
    }

    /// The stamp by which a page is compared with others: those of programs that use all they have may count as
    /// younger than they are (`heat.rs`), pages of files as older (douglis93, section 4.2).
    fn rank(&self, space: SpaceId, stamp: u64) -> u64 {
        let Some(space) = self.spaces.get(&space) else {
            return stamp;
        };
        let percent = self.cache.sizing.file_age_percent();
        let now = self.cache.clock;
        match space.backed {
            // Uses of files are seen: pages beside them are not to be the younger for what is guessed.
            Backed::BySwap if self.lives.is_some() && !self.cache.has_files => {
                space.heat.stamp(stamp)
            }
            Backed::ByFile if percent != 100 => now.saturating_sub((now - stamp) * percent / 100),
            _ => stamp,
        }
    }

    /// Tells the cache how old the oldest pages outside are.
    fn note_oldest(&mut self, takers: &[(SpaceId, u32)], oldest: &[Option<(PageNo, u64)>]) {
        let of = |backed: Backed| {
            let stamps = takers.iter().zip(oldest).filter_map(|(&(id, _), head)| {
                let space = self.spaces.get(&id)?;
                (space.backed == backed).then_some(head.as_ref()?.1)
            });
            stamps.min()
        };
        let (anonymous, file) = (of(Backed::BySwap), of(Backed::ByFile));
        let outside = &mut self.cache.outside;
        outside.oldest_anonymous = anonymous;
        outside.oldest_file = file;
        outside.resident_pages = self.pages.present();
    }

    /// Has the compressed cache give so many frames, when the policy says that it is the one to give
    /// and it has that much to give. `false`: it has not given anything, nor will it.
    fn cache_gives(&mut self, frames: u64) -> bool {
        let cache = &mut self.cache;
        let bytes = frames * PAGE_SIZE as u64;
        if !cache.can_shrink() || cache.payload_bytes() < cache.debt.total() + bytes {
            return false;
        }
        let view = cache.view();
        if cache.sizing.giver(&view) == Giver::Uncompressed {
            return false;
        }
        let gives = cache.give(Why::Policy, bytes);
        self.forget_dropped();
        gives || (self.cache.debt.total() > 0 && self.cache.can_write())
    }

    /// Nothing is left to take away, or the budget is overdrawn while pages are shared since a fork, where
    /// taking those would make it worse: each leaves its memory to the other side and a folded copy here. The
    /// compressed cache has to give, whatever the policy says.
    fn cache_must_give(&mut self, why: Why, frames: u64) {
        let (cache, bytes) = (&mut self.cache, frames * PAGE_SIZE as u64);
        if cache.can_shrink() {
            cache.give(why, bytes.saturating_sub(cache.debt.total()));
            self.forget_dropped();
        }
    }

    /// Pages that are leaving the program, or have left it and are not folded yet.
    pub fn under_way_pages(&self) -> u64 {
        self.pages.leaving + self.cache.bodies.counts().staged
    }

    /// Has the compressed cache give what is wanted, instead of taking pages away. For a driver that must not take any now, because
    /// what leaves the program may be had again by others before it has left memory.
    pub fn give_instead(&mut self) {
        let frames = self.frames_wanted();
        if frames > 0 {
            self.cache_must_give(Why::Overdrawn, frames);
        }
    }

    /// How a page that was chosen is to leave: ask for each, and again after `cleaned`. In a process
    /// whose writes nobody reports the answer is always [`WayOut::Take`].
    ///
    /// Between this question and the report nothing else may happen to the page; and a page of a
    /// file that was chosen is to be reported before anything else of that file.
    pub fn way_out(&mut self, space: SpaceId, page: PageNo) -> WayOut {
        let Some(known) = self.spaces.get(&space) else {
            return WayOut::Take;
        };
        // The command may hit another page than the one it was meant for.
        if known.is_contested(page) {
            return WayOut::Take;
        }
        let clean = known.table.is_clean(page);
        if !clean {
            return match known.backed {
                Backed::BySwap => WayOut::Take,
                Backed::ByFile => WayOut::WriteBack,
            };
        }
        let copy = known.copies.get(page).map(|copied| copied.body);
        let in_cache = |body| {
            matches!(
                self.cache.bodies.state(body),
                BodyState::Clean { .. } | BodyState::Stored { .. } | BodyState::Writing { .. }
            )
        };
        if copy.is_some_and(in_cache) {
            return WayOut::Drop;
        }
        let candidate = Candidate {
            id: id_of(space, page),
            backed: known.backed,
            clean,
        };
        if self.cache.admission.admits(candidate) {
            WayOut::Take
        } else {
            self.cache.totals.clean_refused_pages += 1;
            WayOut::Drop
        }
    }

    /// The page of a file that was chosen is in its file as it is in memory.
    pub fn cleaned(&mut self, space: SpaceId, page: PageNo) {
        self.cache.totals.written_back_pages += 1;
        if let Some(space) = self.spaces.get_mut(&space) {
            space.table.set_clean(page, true);
        }
    }

    /// The page of a file lies beside one that is about to be written: whether it is in memory and changed,
    /// and so is to be written along. It stays, and is as in its file from now on.
    pub fn written_along(&mut self, space: SpaceId, page: PageNo) -> bool {
        let known = self.spaces.get_mut(&space);
        let Some(known) = known.filter(|known| known.backed == Backed::ByFile) else {
            return false;
        };
        let resident = matches!(known.table.get(page), PageState::Resident { .. });
        if !resident || known.table.is_clean(page) {
            return false;
        }
        known.table.set_clean(page, true);
        self.cache.totals.written_back_pages += 1;
        true
    }

    /// The page that was chosen is no longer in memory, and nothing was taken: `way_out` said so.
    ///
    /// # Panics
    /// When the page has no copy elsewhere: its content would be lost.
    pub fn dropped(&mut self, id: SpaceId, page: PageNo) {
        let Some(space) = self.spaces.get_mut(&id) else {
            return;
        };
        assert!(space.table.is_clean(page), "{id:?} {page:?} has no copy");
        assert_eq!(space.settle(page), Subject::Same(page));
        self.cache.totals.dropped_pages += 1;
        match space.backed {
            Backed::BySwap => {
                let body = space.give_up_copy(page).expect("a clean page has a copy");
                let used_at = space.table.get(page).stamp();
                space.change(page, PageState::Away(body), &mut self.pages);
                space
                    .heat
                    .left(1, self.cache.clock, self.cache.oldest_age());
                self.cache.begin_count(body, used_at);
            }
            Backed::ByFile => {
                space.change(page, PageState::Unknown, &mut self.pages);
                self.cache.add_ghost(Home { space: id, page });
            }
        }
    }

    /// Makes the pages of files unknown whose bodies the cache dropped. To be called wherever it may
    /// have, before the driver can ask for one of them.
    pub(crate) fn forget_dropped(&mut self) {
        while let Some(Home { space, page }) = self.cache.dropped.pop() {
            if let Some(space) = self.spaces.get_mut(&space) {
                space.change(page, PageState::Unknown, &mut self.pages);
            }
        }
    }

    /// The page of this command lies in `slot` now. The body returned is to be folded, and
    /// `folded` called for it exactly once. `None`: the page was given up meanwhile; the slot is
    /// the caller's to reuse.
    pub fn taken(&mut self, id: SpaceId, page: PageNo, slot: StagingSlot) -> Option<BodyId> {
        self.take(id, page, slot, false).map(|(body, _)| body)
    }

    /// With what the page was, when `compares` and it has a copy of that.
    pub(crate) fn take(
        &mut self,
        id: SpaceId,
        page: PageNo,
        slot: StagingSlot,
        compares: bool,
    ) -> Option<(BodyId, Option<Fingerprint>)> {
        let totals = &mut self.cache.totals;
        let Some(space) = self.spaces.get_mut(&id) else {
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
        let (backed, is_clean) = (space.backed, space.table.is_clean(page));
        let copied = match subject {
            Subject::Same(_) => space.copies.get(page),
            _ => None,
        };
        let copied = copied.filter(|copied| is_clean || (compares && copied.was.is_some()));
        let (body, was) = match copied {
            Some(copied) => {
                space.copies.remove(page);
                let body = self.cache.restage(copied.body, slot);
                let state = self.cache.bodies.state(body);
                let keeps = matches!(state, BodyState::StagedClean { .. });
                (body, copied.was.filter(|_| keeps))
            }
            None => (self.cache.bodies.create(slot, pages.len() as u32), None),
        };
        let used_at = space.table.get(pages[0]).stamp();
        for &page in pages {
            if let Some(copy) = space.give_up_copy(page) {
                self.cache.release(copy);
            }
            space.strike(page);
            space.change(page, PageState::Away(body), &mut self.pages);
        }
        let count = pages.len() as u32;
        space
            .heat
            .left(count, self.cache.clock, self.cache.oldest_age());
        if backed == Backed::ByFile {
            assert!(is_clean, "{id:?} {page:?} was changed and not written back");
            self.cache.bodies.set_home(body, Home { space: id, page });
        }
        self.cache.begin_count(body, used_at);
        Some((body, was))
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
        // It is there to be asked for once more.
        self.starved &= subject.pages().is_empty();
        for &page in subject.pages() {
            let stamp = self.next_stamp();
            let Some(space) = self.spaces.get_mut(&space) else {
                return;
            };
            // Another command may still be about a page that moved.
            if space.is_stray(page) {
                continue;
            }
            let gone = matches!((why, &subject), (Refusal::Gone, Subject::Same(_)));
            if let Some(copy) = gone.then(|| space.give_up_copy(page)).flatten() {
                self.cache.release(copy);
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
    /// # Errors
    /// When there is no place for it. Then nothing has changed: the page is in its staging slot, which must be let
    /// be, and `folded` may be called for it again. One word repeated always finds place.
    ///
    /// # Panics
    /// When the body is not staged: each is folded exactly once.
    pub fn folded(&mut self, body: BodyId, result: Folded, bytes: &[u8]) -> Result<(), CacheFull> {
        let folded = self.cache.fold(body, result, bytes);
        self.forget_dropped();
        folded
    }
}

/// What an admission rule knows a page by.
pub(crate) fn id_of(space: SpaceId, page: PageNo) -> u64 {
    u64::from(space.0) << 44 ^ page.0
}
