//! READ: from the staging ring, the compressed cache, or the source.

use super::ledger::pages_of;
use super::{count, Cached};
use crate::content::Ticket;
use crate::tree::{Node, Source};
use pleat_codec::{Choice, Folder};
use pleat_engine::{FillItem, FillPlan};
use pleat_pager::{check, kick, Failure};
use pleat_types::{CodecId, PageRange, StagingSlot, PAGE_SIZE};
use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long a READ waits at most until memory is taken back; programs must be kept from outrunning that,
/// and not be held up by a kernel that has no more to give.
const WAIT_MAX: Duration = Duration::from_millis(300);
/// So many pages the kernel may have, however short memory is.
const LEAST_RESIDENT: u64 = 512;
/// What a READ costs the program beside what is done to answer it: two switches, and in a virtual machine being
/// woken on another CPU (measured: 20 to 70 us).
const ROUND_TRIP: Duration = Duration::from_micros(30);
/// What direct I/O needs of offsets, sizes and buffers, on any disk.
const ALIGN: usize = 4096;

/// How a page of the answer comes about.
#[derive(Clone, Copy)]
enum Piece {
    /// Read it.
    File,
    /// One word, repeated.
    Same(u64),
    /// `bytes[start..start + PAGE_SIZE]`.
    Plain(usize),
    /// `bytes[start..start + len]`, decompressed.
    Packed {
        codec: CodecId,
        start: usize,
        len: usize,
        check: Option<u64>,
    },
}

/// What a worker needs to answer; one per thread.
struct Desk {
    folder: Folder,
    plan: FillPlan,
    pieces: Vec<Piece>,
    ranges: Vec<PageRange>,
    /// For direct I/O.
    buffer: Vec<u8>,
}

thread_local! {
    static DESK: RefCell<Option<Desk>> = const { RefCell::new(None) };
}

/// One of the workers that wait for memory.
struct Waiting<'a> {
    count: &'a AtomicUsize,
    others: usize,
}

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Waiting<'a> {
        let others = count.fetch_add(1, Ordering::Relaxed);
        Waiting { count, others }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Desk {
    fn new(codec: &Arc<Choice>) -> Desk {
        Desk {
            folder: Folder::new(codec),
            plan: FillPlan::default(),
            pieces: Vec::new(),
            ranges: Vec::new(),
            buffer: Vec::new(),
        }
    }
}

impl Cached {
    pub(super) fn read_pages(
        &self,
        node: &Node,
        ticket: Ticket,
        offset: u64,
        size: usize,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        self.wait_for_writes(ticket);
        self.wait_for_memory(node);
        DESK.with_borrow_mut(|desk| {
            let desk = desk.get_or_insert_with(|| Desk::new(&self.shared.codec));
            let kept = out.len();
            let answered = self.answer(desk, node, offset, size, out);
            self.meters.reads.add(1);
            self.meters.read_bytes.add((out.len() - kept) as u64);
            answered
        })
    }

    /// Writes that were received before have to be in the file, or what is read would be out of date
    /// when they are answered.
    fn wait_for_writes(&self, ticket: Ticket) {
        let mut ledger = self.ledger();
        while ledger.waits_for_write(ticket.0) {
            let waited = self.landed.wait(ledger);
            ledger = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits at the same mark as faults do: readers that went on below it would leave them nothing. Never
    /// for long, whatever happens: a program that reads may be what others wait for. Nor all at once: some are
    /// left to answer whoever the others wait for. And not at all while
    /// pages of this file are being taken: that may wait for the very pages that are read, which are locked.
    fn wait_for_memory(&self, node: &Node) {
        // With nobody else to take from, and hardly a page left in the kernel's cache, it would be in vain.
        let is_alone = self.shared.is_unmanaged();
        let is_short = || {
            let engine = self.shared.engine();
            let taken_last = engine.space_resident_pages(self.space) < LEAST_RESIDENT;
            let is_short = engine.is_short() && !(is_alone && taken_last);
            drop(engine);
            is_short && !self.ledger().is_taken_from(node.number())
        };
        if !is_short() {
            return;
        }
        let waiting = Waiting::begin(&self.waiting);
        if waiting.others >= self.waiting_max.load(Ordering::Relaxed) {
            return;
        }
        self.meters.memory_waits.add(1);
        let start = Instant::now();
        while is_short() && start.elapsed() < WAIT_MAX {
            kick(&self.shared);
            self.retrievals.wait_to_be_fed(Duration::from_millis(2));
        }
        let waited = start.elapsed().as_micros() as u64;
        self.meters.memory_waited_us.add(waited);
    }

    fn answer(
        &self,
        desk: &mut Desk,
        node: &Node,
        offset: u64,
        size: usize,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let source = node.reading()?;
        let length = source.file().metadata()?.len();
        let end = length.min(offset + size as u64);
        if offset >= end {
            return Ok(());
        }
        let pages = pages_of(offset, end - offset);
        let start = Instant::now();
        self.plan(desk, node, &pages);
        let kept = out.len();
        let made = self.make(desk, &source, &pages, offset..end, out);
        if made.is_err() {
            out.truncate(kept);
            return made;
        }
        if !desk.pieces.iter().any(|piece| matches!(piece, Piece::File)) {
            let count = desk.pieces.len() as u64;
            self.shared.pace.filled(start.elapsed() + ROUND_TRIP, count);
        }
        self.note_read(desk, node, &pages);
        Ok(())
    }

    /// Finds out how each page is to be made. Staged pages are copied at once, while they cannot be folded
    /// and their frames given away.
    fn plan(&self, desk: &mut Desk, node: &Node, pages: &Range<u64>) {
        let mut ledger = self.ledger();
        self.wake(&mut ledger, node);
        ledger.place(node.name(), pages, &mut desk.ranges);
        let Desk {
            plan,
            pieces,
            ranges,
            ..
        } = desk;
        plan.items.clear();
        plan.bytes.clear();
        pieces.clear();
        let mut engine = self.shared.engine();
        for &range in &*ranges {
            engine.read_file(self.space, range, plan);
        }
        let FillPlan { items, bytes, .. } = plan;
        for item in items {
            pieces.push(match *item {
                FillItem::Same(word) => Piece::Same(word),
                FillItem::Staged(slot) => Piece::Plain(self.copy_staged(slot, bytes)),
                FillItem::Packed {
                    codec,
                    start,
                    len,
                    check,
                    ..
                } => Piece::Packed {
                    codec,
                    start: start as usize,
                    len: len as usize,
                    check,
                },
                FillItem::File | FillItem::Zero | FillItem::Resident => Piece::File,
            });
        }
    }

    fn copy_staged(&self, slot: StagingSlot, bytes: &mut Vec<u8>) -> usize {
        let start = bytes.len();
        self.shared
            .rings
            .with_slot(slot, |page| bytes.extend_from_slice(page));
        start
    }

    /// Appends the bytes of this range, whose pages are planned.
    fn make(
        &self,
        desk: &mut Desk,
        source: &Source,
        pages: &Range<u64>,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let page = PAGE_SIZE as u64;
        let mut at = 0;
        while at < desk.pieces.len() {
            let is_file = |piece: &Piece| matches!(piece, Piece::File);
            let first = (pages.start + at as u64) * page;
            if is_file(&desk.pieces[at]) {
                let run = desk.pieces[at..]
                    .iter()
                    .take_while(|piece| is_file(piece))
                    .count();
                let part = first.max(range.start)..(first + run as u64 * page).min(range.end);
                let wanted = (part.end - part.start) as usize;
                let kept = out.len();
                self.read_source(&mut desk.buffer, source, part, out)?;
                if out.len() - kept < wanted {
                    // The file became shorter just now.
                    return Ok(());
                }
                at += run;
                continue;
            }
            let mut content = [0; PAGE_SIZE];
            self.unfold(desk, at, &mut content)?;
            let from = range.start.saturating_sub(first) as usize;
            let to = (range.end - first).min(page) as usize;
            out.extend_from_slice(&content[from..to]);
            at += 1;
        }
        Ok(())
    }

    fn unfold(&self, desk: &mut Desk, at: usize, page: &mut [u8; PAGE_SIZE]) -> io::Result<()> {
        let bytes = &desk.plan.bytes;
        let unfolded = match desk.pieces[at] {
            Piece::File => unreachable!("the caller reads it"),
            Piece::Same(word) => {
                desk.folder.fill_same(word, page);
                Ok(())
            }
            Piece::Plain(start) => {
                page.copy_from_slice(&bytes[start..start + PAGE_SIZE]);
                Ok(())
            }
            Piece::Packed {
                codec,
                start,
                len,
                check: sum,
            } => {
                let bytes = &bytes[start..start + len];
                check(bytes, sum).and_then(|()| {
                    let unfolded = desk.folder.unfold(codec, bytes, page);
                    unfolded.map_err(Failure::Undecodable)
                })
            }
        };
        unfolded.map_err(|why| {
            // Memory is damaged: the mount ends with this, and the program gets no wrong data before.
            self.shared.fail(why);
            io::Error::from_raw_os_error(libc::EIO)
        })
    }

    /// Reads past the host's page cache, where the file system can: what it kept would be held twice.
    fn read_source(
        &self,
        buffer: &mut Vec<u8>,
        source: &Source,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let start = Instant::now();
        let wanted = (range.end - range.start) as usize;
        let kept = out.len();
        let read = match source.direct() {
            Some(file) => read_direct(file, buffer, &range, out),
            None => source.read_at(range.start, wanted, out),
        };
        read.or_else(|error| {
            // Some file systems open files so and refuse to read then.
            out.truncate(kept);
            match error.raw_os_error() {
                Some(libc::EINVAL) => source.read_at(range.start, wanted, out),
                _ => Err(error),
            }
        })?;
        if source.direct().is_none() {
            let _ = crate::sys::drop_cached(source.file(), range.start, wanted as u64);
        }
        let pages = wanted.div_ceil(PAGE_SIZE) as u64;
        self.shared.pace.read(start.elapsed() + ROUND_TRIP, pages);
        self.meters.source_reads.add(1);
        self.meters.source_bytes.add((out.len() - kept) as u64);
        Ok(())
    }

    /// The kernel is about to have these pages.
    fn note_read(&self, desk: &Desk, node: &Node, pages: &Range<u64>) {
        let mut ledger = self.ledger();
        ledger.set_unsure(node.number(), pages, false);
        debug_assert_eq!(count(&desk.ranges), pages.end - pages.start);
        let mut engine = self.shared.engine();
        for &range in &desk.ranges {
            engine.read_done(self.space, range);
        }
        let is_wanted = engine.frames_wanted() > 0;
        drop(engine);
        drop(ledger);
        self.shared.tell_costs();
        if is_wanted {
            kick(&self.shared);
        }
    }
}

/// Appends these bytes of the file, or those before its end.
fn read_direct(
    file: &std::fs::File,
    buffer: &mut Vec<u8>,
    range: &Range<u64>,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let align = ALIGN as u64;
    let first = range.start / align * align;
    let len = (range.end.next_multiple_of(align) - first) as usize;
    if buffer.len() < len + ALIGN {
        buffer.resize(len + ALIGN, 0);
    }
    let lead = buffer.as_ptr().align_offset(ALIGN);
    let aligned = &mut buffer[lead..lead + len];
    let mut filled = 0;
    while filled < len {
        match file.read_at(&mut aligned[filled..], first + filled as u64) {
            Ok(0) => break,
            Ok(bytes) => {
                filled += bytes;
                // Only the end of a file is no multiple.
                if bytes % ALIGN != 0 {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let from = (range.start - first) as usize;
    let to = filled.min((range.end - first) as usize);
    if from < to {
        out.extend_from_slice(&aligned[from..to]);
    }
    Ok(())
}
