//! What a mount knows of its files' pages beside the engine: where each lies in the engine's space, which
//! requests are under way, and which pages are being taken.
//!
//! The engine has one space for the whole mount, so that all files age together. Files are spread over it in
//! chunks of 16 pages, handed out as they are needed.
//!
//! # How a page of the kernel's is taken, and what may come between
//!
//! The kernel's page cache is the uncompressed tier. It cannot be looked into, loses clean pages without a
//! word, and goes on serving programs meanwhile. To take a page: it is copied, dropped, and only then the copy
//! counts. There are two ways. Whoever may open files by number reads the page through the mount and asks the
//! kernel to drop it (`window.rs`): the copy is up to date then, and only what is clean, not mapped, not locked
//! and held by nobody is dropped, without waiting. Else, and for what was not dropped, there is
//! `FUSE_NOTIFY_RETRIEVE`, and `FUSE_NOTIFY_INVAL_INODE`, which waits for whoever has the page locked. What may
//! go wrong, and why it does not:
//!
//! - *The copy is no page at all.* RETRIEVE looks at neither lock nor up-to-date flag: while the kernel
//!   reads a page it hands out zeros. Such a READ is under way (`flights`) when the take begins - then the
//!   page is passed over - or it comes before INVAL returns, because INVAL waits for the page's lock; then
//!   it voids the take (`received`). The same goes for a WRITE of part of a page that the kernel did not
//!   have, which stays locked until the WRITE is answered.
//! - *INVAL waits for a page that is being read, and the READ for memory.* Pages whose take is void by then
//!   are not dropped. A READ that comes later does not wait for memory while pages of its file are being
//!   taken, and some workers never do (`read.rs`).
//! - *Part of the page was never read.* A WRITE of part of a page may leave a page that is not up to date.
//!   Such pages are marked `unsure` until they are read or written as a whole, and are never copied.
//! - *The page changes after the copy.* A `write` reaches us as a WRITE and voids the take, or comes after
//!   it and drops the folded copy; so does a change through a mapping, which INVAL writes out.
//! - *A WRITE was under way when the page was dropped.* The kernel copies into its page first and sends
//!   the WRITE then, and the page is neither locked nor dirty between. If it is dropped there, a READ may
//!   bring the old content back into the kernel's cache, where it would stay when the WRITE has long been
//!   answered. So pages that were dropped are marked `evicted`, and if a READ comes for one, `refilled`;
//!   the pages of a WRITE that was received after such a READ are dropped once more before it is answered
//!   (`mend.rs`). A READ received after the WRITE waits for it instead. The order in which requests are
//!   received is the order in which the kernel queued them. Buffered writes of one file exclude each
//!   other in the kernel: a later WRITE began after the drop, and needs no such care. (Storing what was
//!   written with `FUSE_NOTIFY_STORE` would spare the next READ. But a store that comes late undoes a later
//!   write: SQLite's log was damaged so, in one run of six. A drop that comes late does no harm.)
#![forbid(unsafe_code)]

use crate::Stamp;
use pleat_types::{PageNo, PageRange, PAGE_SIZE};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Pages of a chunk.
pub(super) const CHUNK_PAGES: u64 = 16;

/// A file's page: the file's number, and which page of it.
pub(super) type FilePage = (u64, u64);

/// A part of a file that has pages in the engine's space, one bit per page in each mark.
#[derive(Clone, Copy, Default)]
struct Chunk {
    number: u32,
    unsure: u16,
    evicted: u16,
    refilled: u16,
}

/// What is known of one file.
#[derive(Default)]
struct File {
    chunks: BTreeMap<u64, Chunk>,
    /// With the number, the kernel's name for it.
    generation: u32,
    /// Marks of its chunks may be lost: new ones begin as if all their pages were evicted.
    is_swept: bool,
    /// The kernel forgot the file: what it was then.
    asleep: Option<Stamp>,
}

/// A request that was received and not answered yet.
struct Flight {
    ticket: u64,
    node: u64,
    pages: Range<u64>,
    is_write: bool,
    /// A write: the file has it.
    has_landed: bool,
    /// A write: the kernel may have older content of these pages.
    is_to_be_dropped: bool,
}

/// A page that is being taken from the kernel.
struct Take {
    page: PageNo,
    of: FilePage,
    is_void: bool,
}

/// Everything of the above.
#[derive(Default)]
pub(super) struct Ledger {
    files: HashMap<u64, File>,
    /// Which part of which file a chunk is; `None`: free.
    owners: Vec<Option<FilePage>>,
    free: Vec<u32>,
    /// Chunks of files that are gone; free when no take is about them.
    retired: Vec<u32>,
    flights: Vec<Flight>,
    takes: Vec<Take>,
    /// Pages that are being dropped without being taken: which order, and which pages of which file.
    drops: Vec<(u64, u64, Range<u64>)>,
    last_drop: u64,
    last_ticket: u64,
    /// Chunks that were in use after the last sweep.
    swept: usize,
    /// Whole files may be lost: see `File::is_swept`.
    is_swept: bool,
}

/// The pages that these bytes lie in.
pub(super) fn pages_of(offset: u64, bytes: u64) -> Range<u64> {
    let page = PAGE_SIZE as u64;
    offset / page..offset.saturating_add(bytes).div_ceil(page)
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The bits of a chunk's pages that lie in this range.
fn bits(chunk: u64, range: &Range<u64>) -> u16 {
    let first = chunk * CHUNK_PAGES;
    let from = range.start.clamp(first, first + CHUNK_PAGES) - first;
    let to = range.end.clamp(first, first + CHUNK_PAGES) - first;
    let below = |count: u64| (1u32 << count) - 1;
    (below(to) & !below(from)) as u16
}

impl File {
    /// Its chunks in this range of pages, with the bits of their pages in it.
    fn marks(&mut self, pages: &Range<u64>) -> impl Iterator<Item = (&mut Chunk, u16)> {
        let end = pages.end.div_ceil(CHUNK_PAGES);
        let chunks = (pages.start / CHUNK_PAGES).min(end)..end;
        let pages = pages.clone();
        let chunks = self.chunks.range_mut(chunks);
        chunks.map(move |(&at, chunk)| (chunk, bits(at, &pages)))
    }
}

impl Ledger {
    /// A request was received, after all others that were.
    pub(super) fn receive(&mut self, node: u64, is_write: bool, pages: Range<u64>) -> u64 {
        self.void(node, &pages);
        let (mut is_to_be_dropped, mut is_marked) = (false, false);
        if let Some(file) = self.files.get_mut(&node) {
            for (chunk, bits) in file.marks(&pages) {
                if is_write {
                    is_to_be_dropped |= chunk.refilled & bits != 0;
                    chunk.evicted &= !bits;
                    chunk.refilled &= !bits;
                    is_marked = true;
                } else {
                    chunk.refilled |= chunk.evicted & bits;
                }
            }
        }
        if is_marked {
            self.mark_what_is_dropped(node, &pages);
        }
        self.last_ticket += 1;
        self.flights.push(Flight {
            ticket: self.last_ticket,
            node,
            pages,
            is_write,
            has_landed: false,
            is_to_be_dropped,
        });
        self.last_ticket
    }

    /// The request was answered.
    pub(super) fn answered(&mut self, ticket: u64) {
        self.flights.retain(|flight| flight.ticket != ticket);
    }

    /// Whether a write received before this request has not reached the file yet, and matters to it.
    pub(super) fn waits_for_write(&self, ticket: u64) -> bool {
        let Some(reader) = self.flights.iter().find(|flight| flight.ticket == ticket) else {
            return false;
        };
        self.flights.iter().any(|flight| {
            flight.is_write
                && !flight.has_landed
                && flight.ticket < ticket
                && flight.node == reader.node
                && overlap(&flight.pages, &reader.pages)
        })
    }

    /// The file has what this request writes, or never will. Whether the kernel has to drop these pages
    /// before it is answered: it may have older content.
    pub(super) fn landed(&mut self, ticket: u64) -> bool {
        let mut flights = self.flights.iter_mut();
        let Some(flight) = flights.find(|flight| flight.ticket == ticket) else {
            return false;
        };
        flight.has_landed = true;
        flight.is_to_be_dropped
    }

    /// What is being taken of these pages is worth nothing.
    pub(super) fn void(&mut self, node: u64, pages: &Range<u64>) {
        let hit = |take: &&mut Take| take.of.0 == node && pages.contains(&take.of.1);
        self.takes
            .iter_mut()
            .filter(hit)
            .for_each(|take| take.is_void = true);
    }

    /// Whether these pages can be copied from the kernel's cache, and whether they can be taken at all.
    pub(super) fn may_take(&self, (node, page): FilePage) -> Option<MayTake> {
        let in_flight = |flight: &Flight| flight.node == node && flight.pages.contains(&page);
        if self.flights.iter().any(in_flight) {
            return None;
        }
        let file = self.files.get(&node)?;
        let chunk = file.chunks.get(&(page / CHUNK_PAGES))?;
        Some(
            match chunk.unsure & bits(page / CHUNK_PAGES, &(page..page + 1)) {
                0 => MayTake::Copy,
                _ => MayTake::Drop,
            },
        )
    }

    /// This page is being taken.
    pub(super) fn begin_take(&mut self, page: PageNo, of: FilePage) {
        self.takes.push(Take {
            page,
            of,
            is_void: false,
        });
    }

    /// Whether pages of this file are being taken.
    pub(super) fn is_taken_from(&self, node: u64) -> bool {
        self.takes.iter().any(|take| take.of.0 == node)
    }

    /// Whether the take of any of these pages is void.
    pub(super) fn is_void(&self, pages: &[PageNo]) -> bool {
        let mut takes = self.takes.iter();
        takes.any(|take| take.is_void && pages.contains(&take.page))
    }

    /// These pages were cut off or made new, and the kernel drops what it has of them. No write was under
    /// way: it excludes those.
    pub(super) fn altered(&mut self, node: u64, pages: &Range<u64>) {
        if let Some(file) = self.files.get_mut(&node) {
            for (chunk, bits) in file.marks(pages) {
                chunk.evicted &= !bits;
                chunk.refilled &= !bits;
            }
        }
    }

    /// Pages whose drop is ordered and may not have happened stay marked: the next write may have begun
    /// before it.
    fn mark_what_is_dropped(&mut self, node: u64, pages: &Range<u64>) {
        let of_takes = self
            .takes
            .iter()
            .map(|take| (take.of.0, take.of.1..take.of.1 + 1));
        let of_drops = self
            .drops
            .iter()
            .map(|(_, node, pages)| (*node, pages.clone()));
        let ordered = of_takes.chain(of_drops);
        let ordered: Vec<_> = ordered
            .filter(|(of, at)| *of == node && overlap(at, pages))
            .collect();
        let Some(file) = self.files.get_mut(&node) else {
            return;
        };
        for (_, pages) in ordered {
            file.marks(&pages)
                .for_each(|(chunk, bits)| chunk.evicted |= bits);
        }
    }

    /// These pages are going to be dropped from the kernel's cache; `end_drop` when they are.
    pub(super) fn begin_drop(&mut self, node: u64, pages: Range<u64>) -> u64 {
        self.evicts(node, &pages);
        self.last_drop += 1;
        self.drops.push((self.last_drop, node, pages));
        self.last_drop
    }

    /// They are dropped.
    pub(super) fn end_drop(&mut self, order: u64) {
        self.drops.retain(|&(id, _, _)| id != order);
    }

    /// The whole file is about to be dropped from the kernel's cache.
    pub(super) fn evicts_all(&mut self, node: u64) {
        if let Some(file) = self.files.get_mut(&node) {
            for chunk in file.chunks.values_mut() {
                (chunk.evicted, chunk.refilled) = (u16::MAX, 0);
            }
        }
    }

    /// Whether a read received before this request may still bring old content to the kernel.
    pub(super) fn follows_read(&self, ticket: u64) -> bool {
        let Some(writer) = self.flights.iter().find(|flight| flight.ticket == ticket) else {
            return false;
        };
        self.flights.iter().any(|flight| {
            !flight.is_write
                && flight.ticket < ticket
                && flight.node == writer.node
                && overlap(&flight.pages, &writer.pages)
        })
    }

    /// These pages are about to be dropped from the kernel's cache.
    pub(super) fn evicts(&mut self, node: u64, pages: &Range<u64>) {
        if let Some(file) = self.files.get_mut(&node) {
            for (chunk, bits) in file.marks(pages) {
                chunk.evicted |= bits;
                chunk.refilled &= !bits;
            }
        }
    }

    /// It was taken. `false`: and what was copied is worth nothing.
    pub(super) fn end_take(&mut self, page: PageNo) -> bool {
        let at = self.takes.iter().position(|take| take.page == page);
        let take = self.takes.swap_remove(at.expect("a take ends once"));
        !take.is_void
    }

    /// Which page of which file this is.
    pub(super) fn owner(&self, page: PageNo) -> Option<FilePage> {
        let (node, chunk) = (*self.owners.get((page.0 / CHUNK_PAGES) as usize)?)?;
        Some((node, chunk * CHUNK_PAGES + page.0 % CHUNK_PAGES))
    }

    /// Where these pages of a file are in the engine's space, in their order; chunks are made as needed.
    pub(super) fn place(
        &mut self,
        (node, generation): (u64, u32),
        pages: &Range<u64>,
        out: &mut Vec<PageRange>,
    ) {
        out.clear();
        let file = self.files.entry(node).or_insert_with(|| File {
            is_swept: self.is_swept,
            ..File::default()
        });
        file.generation = generation;
        for at in pages.start / CHUNK_PAGES..pages.end.div_ceil(CHUNK_PAGES) {
            let chunk = file.chunks.entry(at).or_insert_with(|| {
                let number = self.free.pop().unwrap_or_else(|| {
                    self.owners.push(None);
                    (self.owners.len() - 1) as u32
                });
                self.owners[number as usize] = Some((node, at));
                Chunk {
                    number,
                    evicted: if file.is_swept { u16::MAX } else { 0 },
                    ..Chunk::default()
                }
            });
            push(out, part(chunk.number, at, pages));
        }
    }

    /// Which of the files that had this number it is.
    pub(super) fn generation(&self, node: u64) -> Option<u32> {
        self.files.get(&node).map(|file| file.generation)
    }

    /// Where those of these pages are that were ever placed.
    pub(super) fn placed(&self, node: u64, pages: &Range<u64>) -> Vec<PageRange> {
        let mut out = Vec::new();
        if let (Some(file), false) = (self.files.get(&node), pages.is_empty()) {
            let chunks = pages.start / CHUNK_PAGES..=(pages.end - 1) / CHUNK_PAGES;
            for (&at, chunk) in file.chunks.range(chunks) {
                push(&mut out, part(chunk.number, at, pages));
            }
        }
        out
    }

    /// These pages are in the kernel's cache as a whole, or perhaps not.
    pub(super) fn set_unsure(&mut self, node: u64, pages: &Range<u64>, is_unsure: bool) {
        if let Some(file) = self.files.get_mut(&node) {
            for (chunk, bits) in file.marks(pages) {
                chunk.unsure &= !bits;
                chunk.unsure |= if is_unsure { bits } else { 0 };
            }
        }
    }

    /// The kernel forgot the file, which was like this.
    pub(super) fn sleep(&mut self, node: u64, stamp: Stamp) {
        if let Some(file) = self.files.get_mut(&node) {
            file.asleep = Some(stamp);
            for chunk in file.chunks.values_mut() {
                (chunk.unsure, chunk.evicted, chunk.refilled) = (0, 0, 0);
            }
        }
    }

    /// The kernel knows the file again. `false`: it is another one than it was, or was changed.
    pub(super) fn wake(&mut self, node: u64, stamp: impl FnOnce() -> Stamp) -> bool {
        let asleep = self
            .files
            .get_mut(&node)
            .and_then(|file| file.asleep.take());
        asleep.is_none_or(|before| before == stamp())
    }

    /// The file is no more.
    pub(super) fn remove(&mut self, node: u64) {
        self.void(node, &(0..u64::MAX));
        let file = self.files.remove(&node).unwrap_or_default();
        for chunk in file.chunks.values() {
            self.owners[chunk.number as usize] = None;
            self.retired.push(chunk.number);
        }
    }

    /// Frees chunks that nothing is known of, now and then.
    pub(super) fn sweep(&mut self, knows: impl Fn(PageRange) -> bool) {
        let used = self.owners.len() - self.free.len();
        if used < 2 * self.swept.max(2048) && self.retired.len() < 2048 {
            return;
        }
        let busy: Vec<u32> = self
            .takes
            .iter()
            .map(|take| (take.page.0 / CHUNK_PAGES) as u32)
            .collect();
        let is_free = |number: u32| !busy.contains(&number) && !knows(whole(number));
        let (free, retired) = self.retired.drain(..).partition(|&number| is_free(number));
        self.retired = retired;
        self.free.extend::<Vec<u32>>(free);
        let flying: Vec<u64> = self.flights.iter().map(|flight| flight.node).collect();
        for (node, file) in &mut self.files {
            if flying.contains(node) {
                continue;
            }
            let (owners, free) = (&mut self.owners, &mut self.free);
            file.chunks.retain(|_, chunk| {
                let stays = !is_free(chunk.number);
                if !stays {
                    file.is_swept = true;
                    owners[chunk.number as usize] = None;
                    free.push(chunk.number);
                }
                stays
            });
        }
        let before = self.files.len();
        self.files
            .retain(|node, file| !file.chunks.is_empty() || flying.contains(node));
        self.is_swept |= self.files.len() < before;
        self.swept = self.owners.len() - self.free.len();
    }
}

/// How a page may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MayTake {
    /// With a copy.
    Copy,
    /// Only by dropping it.
    Drop,
}

fn whole(number: u32) -> PageRange {
    PageRange::new(PageNo(u64::from(number) * CHUNK_PAGES), CHUNK_PAGES)
}

/// The part of a chunk that lies in this range of its file.
fn part(number: u32, at: u64, pages: &Range<u64>) -> PageRange {
    let first = at * CHUNK_PAGES;
    let from = pages.start.clamp(first, first + CHUNK_PAGES) - first;
    let to = pages.end.clamp(first, first + CHUNK_PAGES) - first;
    PageRange::new(whole(number).start.plus(from), to - from)
}

/// Appends a range, to the last one if it continues that.
fn push(out: &mut Vec<PageRange>, range: PageRange) {
    match out.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => out.push(range),
    }
}

#[cfg(test)]
mod tests;
