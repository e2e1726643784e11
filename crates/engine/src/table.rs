//! The page table of one address space: what became of each page.
//!
//! Sparse in chunks of 512 pages, so that giving up a range of terabytes costs only what is known
//! in it. A page never heard of is [`PageState::Unknown`] and takes no room.

use std::collections::BTreeMap;

use pleat_types::{PageNo, PageRange};

use crate::blocks::{Block, BLOCK_PAGES};
use crate::rounds::Rounds;
use crate::scouts::{Regions, Time, REGION_PAGES};
use crate::BodyId;

const CHUNK_PAGES: u64 = 512;
const CHUNK_REGIONS: usize = (CHUNK_PAGES / REGION_PAGES) as usize;

const CHUNK_BLOCKS: usize = (CHUNK_PAGES / BLOCK_PAGES) as usize;

const KIND: u64 = 7;
const RESIDENT: u64 = 1;
/// How often it will be passed over when it is the oldest: once after a use, more often by `lives.rs`. Only
/// of pages that are resident.
const LIVES_SHIFT: u32 = 3;
const LIVES: u64 = 3 << LIVES_SHIFT;
/// One of them.
const LIFE: u64 = 1 << LIVES_SHIFT;
/// As its copy in a file or in the swap file; only of pages that are present.
const CLEAN: u64 = 1 << 5;
const DATA_SHIFT: u32 = 6;

/// What a touch found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// The page is not resident.
    Absent,
    /// It is.
    Present,
    /// It is, and was clean before this write.
    Dirtied,
}

/// Where a page is.
///
/// ```text
///              adopt, filled
///   Unknown ------------------> Resident <----------------+-----------+
///      ^                         |    ^                   |           |
///      | forget,          choose |    | refused           | filled    | filled, adopt
///      | from any         victims|    | (busy, stale)     |           |
///      | state                   v    |                   |           |
///      +-----------------------  Leaving --- taken --->  Away         |
///        refused (gone)             |                                 |
///                                   +------- refused (unmovable) -> Stuck
///                                Resident -- faulted on though present --^
/// ```
///
/// A page that arrives at an address from which a page is still being taken is `Leaving` at once:
/// the command may yet hit it (see `space.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageState {
    /// Not there, or there without our knowledge; reads as zeros.
    Unknown,
    /// Present; the stamp says since when (smaller is older).
    Resident { stamp: u64 },
    /// Present or just taken: a command to take it is under way.
    Leaving { stamp: u64 },
    /// Present, and refuses to be moved or must not be just now.
    Stuck,
    /// Taken away; its content is this body.
    Away(BodyId),
}

impl PageState {
    /// Packs into 64 bits: three for the kind, three for lives and flags, the rest for stamp or body. Unknown is 0.
    fn pack(self) -> u64 {
        match self {
            PageState::Unknown => 0,
            PageState::Resident { stamp } => stamp << DATA_SHIFT | RESIDENT,
            PageState::Leaving { stamp } => stamp << DATA_SHIFT | 2,
            PageState::Stuck => 3,
            PageState::Away(body) => u64::from(body.0) << DATA_SHIFT | 4,
        }
    }

    fn unpack(bits: u64) -> PageState {
        let stamp = bits >> DATA_SHIFT;
        match bits & KIND {
            0 => PageState::Unknown,
            1 => PageState::Resident { stamp },
            2 => PageState::Leaving { stamp },
            3 => PageState::Stuck,
            _ => PageState::Away(BodyId(stamp as u32)),
        }
    }

    /// Since when it is there, or 0 where that is not known.
    pub(crate) fn stamp(self) -> u64 {
        match self {
            PageState::Resident { stamp } | PageState::Leaving { stamp } => stamp,
            _ => 0,
        }
    }

    /// Whether it occupies memory of a program.
    pub(crate) fn is_present(self) -> bool {
        !matches!(self, PageState::Unknown | PageState::Away(_))
    }

    /// Whether the diagram has an arrow from here to `to`. Moves to an empty address of another
    /// space or range (fork, mremap) start at `Unknown`, so any state may follow that one.
    pub(crate) fn may_become(self, to: PageState) -> bool {
        use PageState::*;
        match (self, to) {
            (Unknown, _) | (_, Unknown) | (Leaving { .. }, _) => true,
            (Resident { .. }, Leaving { .. } | Resident { .. } | Stuck) => true,
            (Stuck | Away(_), Resident { .. } | Leaving { .. }) | (Stuck, Stuck) => true,
            (Resident { .. } | Stuck | Away(_), _) => false,
        }
    }
}

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
    chunks: BTreeMap<u64, Box<Chunk>>,
}

impl PageTable {
    pub(crate) fn get(&self, page: PageNo) -> PageState {
        let (chunk, index) = place(page);
        let packed = self
            .chunks
            .get(&chunk)
            .map_or(0, |chunk| chunk.packed[index]);
        PageState::unpack(packed)
    }

    /// Sets the state of a page and says what it was.
    pub(crate) fn set(&mut self, page: PageNo, state: PageState) -> PageState {
        let (number, index) = place(page);
        if state == PageState::Unknown && !self.chunks.contains_key(&number) {
            return PageState::Unknown;
        }
        let chunk = self.chunks.entry(number).or_insert_with(|| {
            Box::new(Chunk {
                packed: [0; CHUNK_PAGES as usize],
                known: 0,
                regions: Regions::NEW,
                blocks: [Block::default(); CHUNK_BLOCKS],
            })
        });
        let packed = &mut chunk.packed[index];
        let before = *packed;
        let stays = state.is_present() && PageState::unpack(before).is_present();
        *packed = state.pack() | if stays { before & CLEAN } else { 0 };
        chunk.known += u32::from(state != PageState::Unknown);
        chunk.known -= u32::from(before != 0);
        if chunk.known == 0 {
            self.chunks.remove(&number);
        }
        PageState::unpack(before)
    }

    /// The program uses a page.
    pub(crate) fn touch(&mut self, page: PageNo, write: bool) -> Touched {
        let (number, index) = place(page);
        let Some(packed) = self.chunks.get_mut(&number).map(|c| &mut c.packed[index]) else {
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

    /// Takes a life from a resident page that has one, which is as young as `stamp` then; answers whether
    /// it had.
    pub(crate) fn pass_over(&mut self, page: PageNo, stamp: u64) -> bool {
        let Some(packed) = self.packed_mut(page) else {
            return false;
        };
        if *packed & LIVES == 0 {
            return false;
        }
        let rest = (*packed & (LIVES | CLEAN)) - LIFE;
        *packed = PageState::Resident { stamp }.pack() | rest;
        true
    }

    /// A resident page is as young as `stamp` from now on.
    pub(crate) fn renew(&mut self, page: PageNo, stamp: u64) {
        if let Some(packed) = self.packed_mut(page) {
            debug_assert_eq!(*packed & KIND, RESIDENT);
            *packed = PageState::Resident { stamp }.pack() | *packed & (LIVES | CLEAN);
        }
    }

    /// Whether a page of this one's region should leave as a scout now.
    pub(crate) fn wants_scout(&self, page: PageNo, now: Time, window: u32) -> bool {
        let (number, region) = region_of(page);
        let chunk = self.chunks.get(&number);
        chunk.is_some_and(|chunk| chunk.regions.wants_scout(region, now, window))
    }

    /// The page leaves as a scout of its region.
    pub(crate) fn send_scout(&mut self, page: PageNo, now: Time) {
        let (number, region) = region_of(page);
        if let Some(chunk) = self.chunks.get_mut(&number) {
            chunk.regions.send_scout(region, now);
        }
    }

    /// A page was wanted that was not in memory: its region is in use, and so are those of the whole run in
    /// which it came. What is seen of rounds goes to `rounds`.
    pub(crate) fn wanted(&mut self, run: PageRange, rounds: &mut Rounds, resident: usize) {
        let in_order = run.end.0 > run.start.0 + 1;
        for region in run.start.0 / REGION_PAGES..run.end.0.div_ceil(REGION_PAGES) {
            let (number, region) = region_of(PageNo(region * REGION_PAGES));
            if let Some(chunk) = self.chunks.get_mut(&number) {
                chunk.regions.wanted(region, in_order);
                let visit = chunk.regions.visit(region, rounds.came(), resident);
                rounds.visited(visit);
            }
        }
    }

    /// What is known of a page's block; `None` where no page is known.
    pub(crate) fn block(&self, page: PageNo) -> Option<&Block> {
        let (number, index) = place(page);
        let chunk = self.chunks.get(&number)?;
        Some(&chunk.blocks[index / BLOCK_PAGES as usize])
    }

    /// Keeps what is known of a page's block.
    pub(crate) fn set_block(&mut self, page: PageNo, block: Block) {
        let (number, index) = place(page);
        if let Some(chunk) = self.chunks.get_mut(&number) {
            chunk.blocks[index / BLOCK_PAGES as usize] = block;
        }
    }

    /// Whether its region came in a run last.
    pub(crate) fn is_in_order(&self, page: PageNo) -> bool {
        let (number, region) = region_of(page);
        let chunk = self.chunks.get(&number);
        chunk.is_some_and(|chunk| chunk.regions.is_in_order(region))
    }

    /// Whether its region is in use, as far as its last scout tells.
    pub(crate) fn is_wanted(&self, page: PageNo) -> bool {
        let (number, region) = region_of(page);
        let chunk = self.chunks.get(&number);
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
        for (&number, chunk) in self.chunks.range_mut(first..=last) {
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
        let chunk = self.chunks.get(&number);
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
        self.chunks.get_mut(&number).map(|c| &mut c.packed[index])
    }

    /// The first part of `range` in which pages may be known, not more than some hundreds.
    pub(crate) fn first_part(&self, range: PageRange) -> Option<PageRange> {
        if range.is_empty() {
            return None;
        }
        let (first, last) = (range.start.0 / CHUNK_PAGES, (range.end.0 - 1) / CHUNK_PAGES);
        let (&number, _) = self.chunks.range(first..=last).next()?;
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
        let (first, last) = (range.start.0 / CHUNK_PAGES, (range.end.0 - 1) / CHUNK_PAGES);
        let mut empty = Vec::new();
        for (&number, chunk) in self.chunks.range_mut(first..=last) {
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
                empty.push(number);
            }
        }
        for number in empty {
            self.chunks.remove(&number);
        }
    }

    /// Every page that is not unknown, in address order.
    pub(crate) fn known(&self) -> impl Iterator<Item = (PageNo, PageState)> + '_ {
        self.chunks.iter().flat_map(|(&number, chunk)| {
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
        (self.chunks.len() * (size_of::<Chunk>() + size_of::<(u64, Box<Chunk>)>())) as u64
    }

    /// Whether every chunk counts its known entries rightly, none is empty, and only resident pages have
    /// lives.
    pub(crate) fn is_valid(&self) -> bool {
        self.chunks.values().all(|chunk| {
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

    #[test]
    fn every_state_survives_packing() {
        let states = [
            PageState::Unknown,
            PageState::Resident { stamp: 0 },
            PageState::Resident {
                stamp: (1 << 58) - 1,
            },
            PageState::Leaving { stamp: 7 },
            PageState::Stuck,
            PageState::Away(BodyId(0)),
            PageState::Away(BodyId(u32::MAX)),
        ];
        for state in states {
            assert_eq!(PageState::unpack(state.pack()), state);
        }
    }

    #[test]
    fn a_page_stays_clean_while_it_is_present_and_unwritten() {
        let mut table = PageTable::default();
        let page = PageNo(7);
        table.set(page, PageState::Resident { stamp: 1 });
        table.set_clean(page, true);
        assert_eq!(table.touch(page, false), Touched::Present);
        assert!(table.pass_over(page, 2) && !table.pass_over(page, 3));
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
            (0..9)
                .take_while(|_| table.pass_over(PageNo(page), 600))
                .count()
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
        assert!(table.chunks.is_empty(), "empty chunks are dropped");
    }

    #[test]
    fn a_resident_page_never_becomes_away_without_leaving() {
        let resident = PageState::Resident { stamp: 1 };
        assert!(!resident.may_become(PageState::Away(BodyId(1))));
        assert!(!PageState::Away(BodyId(1)).may_become(PageState::Away(BodyId(2))));
        assert!(PageState::Leaving { stamp: 1 }.may_become(PageState::Away(BodyId(1))));
    }
}
