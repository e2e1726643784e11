//! Blocks of neighbouring pages: whether what lies beside a page that comes back is wanted soon after, and
//! should come along.
//!
//! Streams (`streams.rs`) see faults in order. Others go through a block at random but use most of it, as sort
//! does that follows pointers into its text. Where uses are not seen, what was brought along in vain looks as what was
//! used, so the question is asked of those times when nothing was brought. A *visit* begins with a fault on a block, and
//! for as long as it takes one page in 32 to leave memory, its other faults are counted:
//!
//! ```text
//! share      of the pages away when the visit began, how many were wanted in it
//! expected   the last visit that brought nothing along had a share of a half or more
//! certainty  the mean share of visits that were expected to have it, and brought nothing along
//! ```
//!
//! A visit has ended when that time is over, not when its block is visited next: a program that goes once through
//! more than there is room for visits no block twice for a long time.
//!
//! Neighbours come along where they are expected, as long as certainty is high enough, but for one visit in
//! eight, which keeps share and certainty up to date. Certainty is what makes the difference between programs: a block's
//! last visit says much of the next in sort, little in a compiler. And the time is short, because a page that is wanted
//! later is no more worth having than the one that leaves for it.
//!
//! The idea of learning the footprint of a region from its last visit is that of spatial memory streaming
//! (Somogyi, Wenisch, Ailamaki, Falsafi, Moshovos, ISCA 2006), which sees every use.

use std::collections::VecDeque;

use pleat_types::{PageNo, PageRange, SpaceId, PAGE_SIZE};

use crate::fault::Came;
use crate::scouts::Time;
use crate::space::Space;
use crate::table::PageState;
use crate::{Engine, FillPlan};

/// Pages of a block: no more come along with one.
pub const BLOCK_PAGES: u64 = 8;
/// A visit lasts until this part of the pages in memory has left.
const VISIT_PART: usize = 32;
/// One visit in so many brings nothing along.
const PROBE_EVERY: u64 = 8;

/// Shares are counted in these parts of one.
const ONE: u32 = 1 << 16;
/// From this share on a block is expected to be wanted again, and from this certainty on it is believed...
const HALF: u32 = ONE / 2;
/// ... where pages are in memory. A read from the swap file takes as long as several pages in vain.
const CERTAIN_ON_DISK: u32 = ONE / 3;
/// Certainty and the usual share are running means over about so many visits.
const CERTAINTY_WEIGHT: u32 = 32;
const USUAL_WEIGHT: u32 = 64;

/// What is known of one block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Block {
    /// When its visit began; `None`: there is none, or it has ended and was learned from.
    began: Option<Time>,
    /// Pages that were away then, but for the one that was wanted...
    away: u8,
    /// ... and how many were wanted since.
    wanted: u8,
    visit: Visit,
    /// Whether the last visit that brought nothing had a large share, if there was one.
    had_share: Option<bool>,
    /// Visits, modulo `PROBE_EVERY`.
    visits: u8,
}

/// What a visit is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Visit {
    /// Nothing is expected of it.
    #[default]
    Plain,
    /// It is expected to have a large share; whether it does is to be seen.
    Probe,
    /// It is, and neighbours come along.
    Brings,
}

/// What is known of all blocks of a space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habit {
    certainty: u32,
    usual_share: u32,
}

impl Default for Habit {
    fn default() -> Habit {
        Habit {
            certainty: HALF,
            usual_share: HALF,
        }
    }
}

impl Habit {
    /// A visit has ended.
    fn learn(&mut self, block: &mut Block) {
        if block.began.is_none() || block.visit == Visit::Brings || block.away == 0 {
            return;
        }
        let share = u32::from(block.wanted) * ONE / u32::from(block.away);
        let approach = |mean: u32, weight: u32| (mean * (weight - 1) + share) / weight;
        if block.visit == Visit::Probe {
            self.certainty = approach(self.certainty, CERTAINTY_WEIGHT);
        }
        self.usual_share = approach(self.usual_share, USUAL_WEIGHT);
        block.had_share = Some(share >= HALF);
    }

    /// What the visit after those that the block had is for.
    fn next(&self, block: &Block, number: u64, is_on_disk: bool) -> Visit {
        if !block.had_share.unwrap_or(self.usual_share >= HALF) {
            return Visit::Plain;
        }
        let probes = (u64::from(block.visits) + 1 + number).is_multiple_of(PROBE_EVERY);
        let certain = if is_on_disk { CERTAIN_ON_DISK } else { HALF };
        match self.certainty >= certain && !probes {
            true => Visit::Brings,
            false => Visit::Probe,
        }
    }
}

/// Visits that go on, and when they began, the oldest first: some page of the block each. Those of blocks that were
/// moved or forgotten are in it, too.
pub(crate) type OpenVisits = VecDeque<(PageNo, Time)>;

/// The block of a page.
pub(crate) fn block_of(page: PageNo) -> PageRange {
    let start = page.0 / BLOCK_PAGES * BLOCK_PAGES;
    PageRange::new(PageNo(start), BLOCK_PAGES)
}

impl Space {
    /// Whether the visit of this page's block goes on.
    fn is_visited(&self, block: &Block) -> bool {
        let (now, window) = self.residents.pace();
        let window = (window / VISIT_PART) as u32;
        block.began.is_some_and(|began| now.since(began) <= window)
    }

    /// Learns from the visits whose time is over.
    fn end_visits(&mut self) {
        while let Some(&(page, began)) = self.visits.front() {
            let block = self.table.block(page).copied();
            if let Some(mut block) = block.filter(|block| block.began == Some(began)) {
                if self.is_visited(&block) {
                    break;
                }
                self.habit.learn(&mut block);
                block.began = None;
                self.table.set_block(page, block);
            }
            self.visits.pop_front();
        }
    }

    /// What is known once the last visit of this block has ended, with what the next is for.
    fn next_visit(&self, block: &Block, page: PageNo, is_on_disk: bool) -> (Habit, Block) {
        let (mut habit, mut block) = (self.habit, *block);
        habit.learn(&mut block);
        block.visit = habit.next(&block, page.0 / BLOCK_PAGES, is_on_disk);
        (habit, block)
    }

    /// Whether neighbours of this page, which is wanted and in the swap file only, should come along.
    pub(crate) fn brings(&self, page: PageNo) -> bool {
        let visit = self
            .table
            .block(page)
            .map(|block| match self.is_visited(block) {
                true => block.visit,
                false => self.next_visit(block, page, true).1.visit,
            });
        visit == Some(Visit::Brings)
    }

    /// A page that was away is in place, because it was wanted: whether neighbours should come along.
    pub(crate) fn visit(&mut self, page: PageNo, was_on_disk: bool) -> bool {
        self.end_visits();
        let Some(mut block) = self.table.block(page).copied() else {
            return false;
        };
        if self.is_visited(&block) {
            block.wanted = block.wanted.saturating_add(1);
        } else {
            (self.habit, block) = self.next_visit(&block, page, was_on_disk);
            let now = self.residents.pace().0;
            block.began = Some(now);
            self.visits.push_back((page, now));
            block.visits = ((u64::from(block.visits) + 1) % PROBE_EVERY) as u8;
            block.wanted = 0;
            let is_away = |page: &PageNo| matches!(self.table.get(*page), PageState::Away(_));
            block.away = block_of(page).pages().filter(is_away).count() as u8;
        }
        self.table.set_block(page, block);
        block.visit == Visit::Brings
    }
}

impl Engine {
    /// Whether blocks are watched in this space.
    pub(crate) fn knows_blocks(&self, id: SpaceId) -> bool {
        self.settings.brings_neighbours && !self.sees_uses(id)
    }

    /// After `filled` said so: the next neighbours of `page` that can be put in place without waiting. `plan` holds
    /// them, in address order; their first page is the answer. Report them with
    /// [`Engine::filled_beside`] and ask again; `None`: there are no more.
    ///
    /// Between the question and the report the same holds as for [`Engine::fault`].
    pub fn neighbours(&self, id: SpaceId, page: PageNo, plan: &mut FillPlan) -> Option<PageNo> {
        plan.clear();
        let space = self.spaces.get(&id)?;
        let mut room = self.grantable_bytes() / PAGE_SIZE as i64;
        let mut first = None;
        for page in block_of(page).pages() {
            let item = match space.table.get(page) {
                PageState::Away(body) if room > 0 => self.copy_out(body, &mut plan.bytes),
                _ => None,
            };
            // It is in the way of a command that may take whatever comes there.
            let item = item.filter(|_| !space.is_contested(page));
            match item {
                Some(item) => {
                    first = first.or(Some(page));
                    plan.items.push(item);
                    room -= 1;
                }
                None if first.is_some() => break,
                None => plan.bytes.clear(),
            }
        }
        first
    }

    /// Neighbours that nobody has asked for are in place now.
    pub fn filled_beside(&mut self, space: SpaceId, range: PageRange) {
        for page in range.pages() {
            self.fill_page(space, page, Came::Beside);
            self.forget_dropped();
        }
    }
}
