//! The page table of one address space: what became of each page.
//!
//! Sparse in chunks of 512 pages, so that giving up a range of terabytes costs only what is known
//! in it. A page never heard of is [`PageState::Unknown`] and takes no room.

mod states;

use pleat_types::{PageNo, PageRange};

pub(crate) use self::states::{Errand, PageState, Touched, Turn};
use self::states::{CLEAN, DATA_SHIFT, KIND, LIFE, LIVES, LIVES_SHIFT, RESIDENT};
use crate::blocks::{Block, BLOCK_PAGES};
use crate::chunks::Chunks;
use crate::rounds::Rounds;
use crate::scouts::{Regions, Time, REGION_PAGES};

const CHUNK_PAGES: u64 = 512;
const CHUNK_REGIONS: usize = (CHUNK_PAGES / REGION_PAGES) as usize;

const CHUNK_BLOCKS: usize = (CHUNK_PAGES / BLOCK_PAGES) as usize;

#[derive(Clone)]
struct Chunk {
    packed: [u64; CHUNK_PAGES as usize],
    /// Entries that are not unknown; a chunk with none is dropped.
    known: u32,
    regions: Regions<CHUNK_REGIONS>,
    blocks: [Block; CHUNK_BLOCKS],
}

/// The states of all pages of one address space.
#[derive(Clone, Default)]
pub(crate) struct PageTable {
    chunks: Chunks<Chunk>,
}

impl PageTable {
    pub(crate) fn get(&self, page: PageNo) -> PageState {
        let (chunk, index) = place(page);
        let packed = self
            .chunks
            .get(chunk)
            .map_or(0, |chunk| chunk.packed[index]);
        PageState::unpack(packed)
    }

    /// Sets the state of a page and says what it was.
    pub(crate) fn set(&mut self, page: PageNo, state: PageState) -> PageState {
        let (number, index) = place(page);
        if state == PageState::Unknown && self.chunks.get(number).is_none() {
            return PageState::Unknown;
        }
        let chunk = self.chunks.get_or_insert(number, || Chunk {
            packed: [0; CHUNK_PAGES as usize],
            known: 0,
            regions: Regions::NEW,
            blocks: [Block::default(); CHUNK_BLOCKS],
        });
        let packed = &mut chunk.packed[index];
        let before = *packed;
        let stays = state.is_present() && PageState::unpack(before).is_present();
        *packed = state.pack() | if stays { before & CLEAN } else { 0 };
        chunk.known += u32::from(state != PageState::Unknown);
        chunk.known -= u32::from(before != 0);
        if chunk.known == 0 {
            self.chunks.remove(number);
        }
        PageState::unpack(before)
    }

    /// The program uses a page.
    pub(crate) fn touch(&mut self, page: PageNo, write: bool) -> Touched {
        let (number, index) = place(page);
        let Some(packed) = self.chunks.get_mut(number).map(|c| &mut c.packed[index]) else {
            return Touched::Absent;
        };
        if *packed & KIND != RESIDENT {
            return Touched::Absent;
        }
        if *packed & LIVES == 0 {
            *packed |= LIFE;
        }
        if write && *packed & CLEAN != 0 {
            *packed &= !CLEAN;
            return Touched::Dirtied;
        }
        Touched::Present
    }

    /// What becomes of a resident page of this stamp whose turn it is to go. One with lives loses one and is as young as
    /// `next`, if there is such a stamp.
    pub(crate) fn turn(&mut self, page: PageNo, stamp: u64, next: Option<u64>) -> Turn {
        let Some(packed) = self.packed_mut(page) else {
            return Turn::Outdated;
        };
        if *packed & !(LIVES | CLEAN) != (PageState::Resident { stamp }).pack() {
            return Turn::Outdated;
        }
        let Some(stamp) = next.filter(|_| *packed & LIVES != 0) else {
            return Turn::Goes;
        };
        let rest = (*packed & (LIVES | CLEAN)) - LIFE;
        *packed = PageState::Resident { stamp }.pack() | rest;
        Turn::PassedOver
    }

    /// A resident page is as young as `stamp` from now on.
    pub(crate) fn renew(&mut self, page: PageNo, stamp: u64) {
        if let Some(packed) = self.packed_mut(page) {
            debug_assert_eq!(*packed & KIND, RESIDENT);
            *packed = PageState::Resident { stamp }.pack() | *packed & (LIVES | CLEAN);
        }
    }

    /// What the oldest page of a region does.
    pub(crate) fn errand(&self, page: PageNo, now: Time, window: u32) -> Errand {
        let (number, region) = region_of(page);
        match self.chunks.get(number) {
            Some(chunk) if chunk.regions.is_in_order(region) => Errand::None,
            Some(chunk) if chunk.regions.wants_scout(region, now, window) => Errand::Scout,
            _ => Errand::Wait,
        }
    }

    /// The page leaves as a scout of its region.
    pub(crate) fn send_scout(&mut self, page: PageNo, now: Time) {
        let (number, region) = region_of(page);
        if let Some(chunk) = self.chunks.get_mut(number) {
            chunk.regions.send_scout(region, now);
        }
    }

    /// A page was wanted that was not in memory: its region is in use, and so are those of the whole run in
    /// which it came. What is seen of rounds goes to `rounds`.
    pub(crate) fn wanted(&mut self, run: PageRange, rounds: &mut Rounds, resident: usize) {
        let in_order = run.end.0 > run.start.0 + 1;
        for region in run.start.0 / REGION_PAGES..run.end.0.div_ceil(REGION_PAGES) {
            let (number, region) = region_of(PageNo(region * REGION_PAGES));
            if let Some(chunk) = self.chunks.get_mut(number) {
                chunk.regions.wanted(region, in_order);
                let visit = chunk.regions.visit(region, rounds.came(), resident);
                rounds.visited(visit);
            }
        }
    }

    /// What is known of a page's block; `None` where no page is known.
    pub(crate) fn block(&self, page: PageNo) -> Option<&Block> {
        let (number, index) = place(page);
        let chunk = self.chunks.get(number)?;
        Some(&chunk.blocks[index / BLOCK_PAGES as usize])
    }

    /// Keeps what is known of a page's block.
    pub(crate) fn set_block(&mut self, page: PageNo, block: Block) {
        let (number, index) = place(page);
        if let Some(chunk) = self.chunks.get_mut(number) {
            chunk.blocks[index / BLOCK_PAGES as usize] = block;
        }
    }

    /// Whether its region is in use, as far as its last scout tells.
    pub(crate) fn is_wanted(&self, page: PageNo) -> bool {
        let (number, region) = region_of(page);
        let chunk = self.chunks.get(number);
        chunk.is_some_and(|chunk| chunk.regions.is_wanted(region))
    }

    /// A resident page will be passed over so often.
    pub(crate) fn set_lives(&mut self, page: PageNo, lives: u8) {
        let lives = (u64::from(lives) << LIVES_SHIFT).min(LIVES);
        if let Some(packed) = self.packed_mut(page) {
            if *packed & KIND == RESIDENT {
                *packed = *packed & !LIVES | lives;
            }
        }
    }

    /// Gives a life to each resident page of `range` that has none, if it is there since `latest` or
    /// longer; answers how many there were.
    pub(crate) fn spare(&mut self, range: PageRange, latest: u64) -> u64 {
        let mut spared = 0;
        let (first, last) = (range.start.0 / CHUNK_PAGES, (range.end.0 - 1) / CHUNK_PAGES);
        for number in first..=last {
            let Some(chunk) = self.chunks.get_mut(number) else {
                continue;
            };
            let base = number * CHUNK_PAGES;
            let from = range.start.0.saturating_sub(base) as usize;
            let to = (range.end.0 - base).min(CHUNK_PAGES) as usize;
            for packed in &mut chunk.packed[from..to] {
                let is_old = *packed & KIND == RESIDENT && *packed >> DATA_SHIFT <= latest;
                if is_old && *packed & LIVES == 0 {
                    *packed |= LIFE;
                    spared += 1;
                }
            }
        }
        spared
    }

    /// Whether a page is present and as its copy elsewhere.
    pub(crate) fn is_clean(&self, page: PageNo) -> bool {
        let (number, index) = place(page);
        let chunk = self.chunks.get(number);
        chunk.is_some_and(|chunk| chunk.packed[index] & CLEAN != 0)
    }

    /// A page that is present is as its copy elsewhere, or no longer.
    pub(crate) fn set_clean(&mut self, page: PageNo, clean: bool) {
        if let Some(packed) = self.packed_mut(page) {
            debug_assert!(PageState::unpack(*packed).is_present());
            *packed = *packed & !CLEAN | if clean { CLEAN } else { 0 };
        }
    }

    fn packed_mut(&mut self, page: PageNo) -> Option<&mut u64> {
        let (number, index) = place(page);
        self.chunks.get_mut(number).map(|c| &mut c.packed[index])
    }

    /// The first part of `range` in which pages may be known, not more than some hundreds.
    pub(crate) fn first_part(&self, range: PageRange) -> Option<PageRange> {
        if range.is_empty() {
            return None;
        }
        let (first, last) = (range.start.0 / CHUNK_PAGES, (range.end.0 - 1) / CHUNK_PAGES);
        let number = self.chunks.first_in(first..=last)?;
        let base = number * CHUNK_PAGES;
        Some(PageRange {
            start: range.start.max(PageNo(base)),
            end: range.end.min(PageNo(base.saturating_add(CHUNK_PAGES))),
        })
    }

    /// Makes every page of `range` unknown and appends those that were not, in address order.
    pub(crate) fn drain(&mut self, range: PageRange, out: &mut Vec<(PageNo, PageState)>) {
        if range.is_empty() {
            return;
        }
        let (mut first, last) = (range.start.0 / CHUNK_PAGES, (range.end.0 - 1) / CHUNK_PAGES);
        while let Some(number) = self.chunks.first_in(first..=last) {
            let Some(chunk) = self.chunks.get_mut(number) else {
                return;
            };
            let base = number * CHUNK_PAGES;
            let from = range.start.0.saturating_sub(base) as usize;
            let to = (range.end.0 - base).min(CHUNK_PAGES) as usize;
            for (index, packed) in chunk.packed[from..to].iter_mut().enumerate() {
                if *packed != 0 {
                    let page = PageNo(base + (from + index) as u64);
                    out.push((page, PageState::unpack(*packed)));
                    *packed = 0;
                    chunk.known -= 1;
                }
            }
            if chunk.known == 0 {
                self.chunks.remove(number);
            }
            if number == last {
                return;
            }
            first = number + 1;
        }
    }

    /// The first page from `from` on that is away or leaving.
    pub(crate) fn first_away(&self, from: PageNo) -> Option<PageNo> {
        let (mut first, mut skipped) = (from.0 / CHUNK_PAGES, (from.0 % CHUNK_PAGES) as usize);
        while let Some(number) = self.chunks.first_in(first..=u64::MAX) {
            let skip = if number == first { skipped } else { 0 };
            let packed = &self.chunks.get(number)?.packed[skip..];
            let is_away = |packed: &u64| PageState::unpack(*packed).is_away();
            if let Some(index) = packed.iter().position(is_away) {
                return Some(PageNo(number * CHUNK_PAGES + (skip + index) as u64));
            }
            (first, skipped) = (number + 1, 0);
        }
        None
    }

    /// Every page that is not unknown, in address order.
    pub(crate) fn known(&self) -> impl Iterator<Item = (PageNo, PageState)> + '_ {
        self.chunks.iter().flat_map(|(number, chunk)| {
            chunk
                .packed
                .iter()
                .enumerate()
                .filter(|(_, &packed)| packed != 0)
                .map(move |(index, &packed)| {
                    (
                        PageNo(number * CHUNK_PAGES + index as u64),
                        PageState::unpack(packed),
                    )
                })
        })
    }

    /// Bytes of the table.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        self.chunks.bytes() as u64
    }

    /// Whether every chunk counts its known entries rightly, none is empty, and only resident pages have
    /// lives.
    pub(crate) fn is_valid(&self) -> bool {
        self.chunks.iter().all(|(_, chunk)| {
            let known = chunk.packed.iter().filter(|&&packed| packed != 0).count();
            let mut packed = chunk.packed.iter();
            known > 0
                && known == chunk.known as usize
                && packed.all(|packed| packed & LIVES == 0 || packed & KIND == RESIDENT)
        })
    }
}

fn place(page: PageNo) -> (u64, usize) {
    (page.0 / CHUNK_PAGES, (page.0 % CHUNK_PAGES) as usize)
}

fn region_of(page: PageNo) -> (u64, usize) {
    let (number, index) = place(page);
    (number, index / REGION_PAGES as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BodyId;

    #[test]
    fn a_page_stays_clean_while_it_is_present_and_unwritten() {
        let mut table = PageTable::default();
        let page = PageNo(7);
        table.set(page, PageState::Resident { stamp: 1 });
        table.set_clean(page, true);
        assert_eq!(table.touch(page, false), Touched::Present);
        assert_eq!(table.turn(page, 1, Some(2)), Turn::PassedOver);
        assert_eq!(table.turn(page, 2, Some(3)), Turn::Goes);
        assert_eq!(table.get(page), PageState::Resident { stamp: 2 });
        table.set(page, PageState::Leaving { stamp: 1 });
        assert_eq!(table.touch(page, true), Touched::Absent);
        table.set(page, PageState::Resident { stamp: 2 });
        assert!(table.is_clean(page));
        assert_eq!(table.touch(page, true), Touched::Dirtied);
        assert_eq!(table.touch(page, true), Touched::Present);
        table.set_clean(page, true);
        table.set(page, PageState::Leaving { stamp: 1 });
        table.set(page, PageState::Away(BodyId(1)));
        table.set(page, PageState::Resident { stamp: 3 });
        assert!(!table.is_clean(page));
    }

    #[test]
    fn only_old_resident_pages_without_a_life_get_one() {
        let mut table = PageTable::default();
        for page in 510..515 {
            table.set(PageNo(page), PageState::Resident { stamp: page });
        }
        table.set(PageNo(511), PageState::Stuck);
        table.set_lives(PageNo(512), 3);
        table.set_lives(PageNo(511), 3);
        assert_eq!(table.spare(PageRange::new(PageNo(505), 20), 513), 2);
        let lives = |table: &mut PageTable, page| {
            let mut turn = |_: &u32| {
                let stamp = table.get(PageNo(page)).stamp();
                table.turn(PageNo(page), stamp, Some(600)) == Turn::PassedOver
            };
            (0..9).take_while(|n| turn(n)).count()
        };
        let found: Vec<usize> = (509..516).map(|page| lives(&mut table, page)).collect();
        assert_eq!(found, [0, 1, 0, 3, 1, 0, 0]);
        assert!(table.is_valid());
    }

    #[test]
    fn draining_a_range_touches_only_what_is_in_it() {
        let mut table = PageTable::default();
        let pages = [0, 511, 512, 1023, 1024, 1 << 40];
        for page in pages {
            table.set(PageNo(page), PageState::Stuck);
        }
        let mut out = Vec::new();
        table.drain(
            PageRange {
                start: PageNo(511),
                end: PageNo(1024),
            },
            &mut out,
        );
        let drained: Vec<u64> = out.iter().map(|(page, _)| page.0).collect();
        assert_eq!(drained, [511, 512, 1023]);
        let left: Vec<u64> = table.known().map(|(page, _)| page.0).collect();
        assert_eq!(left, [0, 1024, 1 << 40]);
        assert!(table.is_valid());
    }

    #[test]
    fn a_huge_sparse_range_is_drained_at_the_cost_of_its_known_pages() {
        let mut table = PageTable::default();
        table.set(PageNo(5), PageState::Stuck);
        table.set(PageNo(1 << 50), PageState::Stuck);
        let mut out = Vec::new();
        table.drain(
            PageRange {
                start: PageNo(0),
                end: PageNo(1 << 52),
            },
            &mut out,
        );
        assert_eq!(out.len(), 2);
        assert!(
            table.chunks.iter().next().is_none(),
            "empty chunks are dropped"
        );
    }

    #[test]
    fn a_resident_page_never_becomes_away_without_leaving() {
        let resident = PageState::Resident { stamp: 1 };
        assert!(!resident.may_become(PageState::Away(BodyId(1))));
        assert!(!PageState::Away(BodyId(1)).may_become(PageState::Away(BodyId(2))));
        assert!(PageState::Leaving { stamp: 1 }.may_become(PageState::Away(BodyId(1))));
    }
}
