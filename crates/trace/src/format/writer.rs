//! Traces written as they come about: references of many processes in any order, each process's
//! collected until they make a chunk.

use super::bytes::{put_varint, zigzag, Fnv};
use super::{
    BYTES_MAX, END, LONG, MAGIC, PAGE_END, PROCESS, PROCESSES_MAX, REGION, SHORT_END, SIZE_RECORD,
    SLOTS_MAX, SLOT_BIT, THINK_BIT, TOUCHES, WRITE_BIT,
};
use crate::{Access, ProcessNo, Reference, RegionKind, RegionNo};
use pleat_types::PageNo;
use std::io::Write;
use thiserror::Error;

/// Records of one process are written when they take this many bytes; a job of a thousand processes
/// so needs 16 MB at most.
const CHUNK_BYTES: usize = 16 << 10;

/// Why something could not be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The output took no more.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A process that was not declared.
    #[error("process {} of the trace was not declared", .0 .0)]
    Process(ProcessNo),
    /// More processes than a trace holds.
    #[error("a trace holds at most 2^20 processes: record a shorter run")]
    TooManyProcesses,
    /// A region that was not declared.
    #[error("region {} of the trace was not declared", .0 .0)]
    Region(RegionNo),
    /// A page number that no address space has.
    #[error("page {} is beyond 2^52, the end of every address space", .0 .0)]
    Page(PageNo),
    /// A compressed size beyond that of a page.
    #[error("a page cannot compress to {0} bytes: 4096 is the most")]
    Bytes(u16),
}

/// Writes a trace. Not finished until [`Writer::finish`] returns: a file without its end is refused by
/// readers.
///
/// ```
/// use pleat_trace::{Access, Reader, Reference, RegionKind, Source, Writer};
/// use pleat_types::PageNo;
///
/// let mut writer = Writer::new(Vec::new())?;
/// let process = writer.process(0)?;
/// let heap = writer.region(RegionKind::Anonymous, 0)?;
/// writer.size(process, heap, PageNo(7), 1500)?;
/// let touch = Reference { think_ns: 800, region: heap, page: PageNo(7), access: Access::Write };
/// writer.reference(process, touch)?;
/// let file = writer.finish()?;
///
/// let mut reader = Reader::new(file)?;
/// assert_eq!(reader.next(process), Some(touch));
/// assert_eq!(reader.compressed_bytes(heap, PageNo(7)), 1500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    hash: Fnv,
    processes: Vec<Pending>,
    regions: u32,
    references: u64,
    sizes: u64,
}

/// What a process has done since its last chunk.
#[derive(Debug, Default)]
struct Pending {
    records: Vec<u8>,
    slots: Vec<Slot>,
    slot: usize,
    think_ns: u64,
    /// When it last ran, for callers who know times instead of CPU time.
    clock_ns: u64,
}

#[derive(Debug)]
struct Slot {
    region: RegionNo,
    touched: u64,
    sized: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    pub fn new(out: W) -> Result<Self, WriteError> {
        let mut writer = Writer {
            out,
            hash: Fnv::new(),
            processes: Vec::new(),
            regions: 0,
            references: 0,
            sizes: 0,
        };
        writer.put(&MAGIC)?;
        Ok(writer)
    }

    /// Declares the next process, which began `started_ns` after the trace.
    pub fn process(&mut self, started_ns: u64) -> Result<ProcessNo, WriteError> {
        if self.processes.len() == PROCESSES_MAX {
            return Err(WriteError::TooManyProcesses);
        }
        let mut chunk = vec![PROCESS];
        put_varint(&mut chunk, started_ns);
        self.put(&chunk)?;
        self.processes.push(Pending {
            clock_ns: started_ns,
            ..Pending::default()
        });
        Ok(ProcessNo(self.processes.len() as u32 - 1))
    }

    /// Declares the next region, whose pages compress to `bytes` where no size is told.
    pub fn region(&mut self, kind: RegionKind, bytes: u16) -> Result<RegionNo, WriteError> {
        check_bytes(bytes)?;
        let kind = match kind {
            RegionKind::Anonymous => 0,
            RegionKind::File => 1,
        };
        let mut chunk = vec![REGION, kind];
        put_varint(&mut chunk, u64::from(bytes));
        self.put(&chunk)?;
        self.regions += 1;
        Ok(RegionNo(self.regions - 1))
    }

    /// The next reference of a process. Budget: 20 ns, without the output's.
    pub fn reference(
        &mut self,
        process: ProcessNo,
        reference: Reference,
    ) -> Result<(), WriteError> {
        self.check(reference.region, reference.page)?;
        let slot = self.slot(process, reference.region)?;
        self.processes[process.0 as usize].touch(slot, reference);
        self.references += 1;
        self.flush_if_full(process)
    }

    /// The next reference of a process, by the time at which it happens: all the time since the
    /// process's last reference, or since [`Writer::resumed`], counts as computing.
    pub fn touched(
        &mut self,
        process: ProcessNo,
        now_ns: u64,
        (region, page): (RegionNo, PageNo),
        access: Access,
    ) -> Result<(), WriteError> {
        let reference = Reference {
            think_ns: now_ns.saturating_sub(self.pending(process)?.clock_ns),
            region,
            page,
            access,
        };
        self.resumed(process, now_ns)?;
        self.reference(process, reference)
    }

    /// The process goes on after waiting: what passed before `now_ns` was no computing.
    pub fn resumed(&mut self, process: ProcessNo, now_ns: u64) -> Result<(), WriteError> {
        self.pending(process)?.clock_ns = now_ns;
        Ok(())
    }

    /// From here on in the history of `process`, the page compresses to `bytes`.
    pub fn size(
        &mut self,
        process: ProcessNo,
        region: RegionNo,
        page: PageNo,
        bytes: u16,
    ) -> Result<(), WriteError> {
        check_bytes(bytes)?;
        self.check(region, page)?;
        let slot = self.slot(process, region)?;
        self.processes[process.0 as usize].size(slot, page, bytes);
        self.sizes += 1;
        self.flush_if_full(process)
    }

    /// The process has ended: what is kept for it is written and freed.
    pub fn ended(&mut self, process: ProcessNo) -> Result<(), WriteError> {
        self.pending(process)?;
        self.flush(process)?;
        self.processes[process.0 as usize] = Pending::default();
        Ok(())
    }

    /// Writes what is left and the end, and hands the output back.
    pub fn finish(mut self) -> Result<W, WriteError> {
        for process in 0..self.processes.len() as u32 {
            self.flush(ProcessNo(process))?;
        }
        let mut chunk = vec![END];
        let counts = [
            self.processes.len() as u64,
            u64::from(self.regions),
            self.references,
            self.sizes,
        ];
        for count in counts {
            put_varint(&mut chunk, count);
        }
        self.put(&chunk)?;
        let hash = self.hash.0;
        self.put(&hash.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.hash.add(bytes);
        Ok(self.out.write_all(bytes)?)
    }

    fn pending(&mut self, process: ProcessNo) -> Result<&mut Pending, WriteError> {
        let pending = self.processes.get_mut(process.0 as usize);
        pending.ok_or(WriteError::Process(process))
    }

    #[inline]
    fn check(&self, region: RegionNo, page: PageNo) -> Result<(), WriteError> {
        if region.0 >= self.regions {
            return Err(WriteError::Region(region));
        }
        match page.0 < PAGE_END {
            true => Ok(()),
            false => Err(WriteError::Page(page)),
        }
    }

    /// The slot of a region in the process's chunk, which is written first when all slots are taken.
    #[inline]
    fn slot(&mut self, process: ProcessNo, region: RegionNo) -> Result<usize, WriteError> {
        let pending = self.pending(process)?;
        if let Some(slot) = pending.slot_of(region) {
            return Ok(slot);
        }
        if pending.slots.len() == SLOTS_MAX {
            self.flush(process)?;
        }
        let pending = self.pending(process)?;
        pending.slots.push(Slot {
            region,
            touched: 0,
            sized: 0,
        });
        Ok(pending.slots.len() - 1)
    }

    #[inline]
    fn flush_if_full(&mut self, process: ProcessNo) -> Result<(), WriteError> {
        match self.processes[process.0 as usize].records.len() < CHUNK_BYTES {
            true => Ok(()),
            false => self.flush(process),
        }
    }

    fn flush(&mut self, process: ProcessNo) -> Result<(), WriteError> {
        let pending = &mut self.processes[process.0 as usize];
        if pending.records.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut pending.records);
        let mut slots = vec![pending.slots.len() as u8];
        for slot in &pending.slots {
            put_varint(&mut slots, u64::from(slot.region.0));
        }
        pending.begin_chunk();
        let mut head = vec![TOUCHES];
        put_varint(&mut head, u64::from(process.0));
        put_varint(&mut head, (slots.len() + records.len()) as u64);
        head.extend_from_slice(&slots);
        self.put(&head)?;
        self.put(&records)?;
        // Its memory serves the next chunk.
        let pending = &mut self.processes[process.0 as usize];
        pending.records = records;
        pending.records.clear();
        Ok(())
    }
}

impl Pending {
    /// What the next record is relative to is as at the start of every chunk.
    fn begin_chunk(&mut self) {
        self.slots.clear();
        (self.slot, self.think_ns) = (0, 0);
    }

    #[inline]
    fn slot_of(&self, region: RegionNo) -> Option<usize> {
        let is_it = |slot: &Slot| slot.region == region;
        match self.slots.get(self.slot).is_some_and(is_it) {
            true => Some(self.slot),
            false => self.slots.iter().position(is_it),
        }
    }

    fn touch(&mut self, slot: usize, reference: Reference) {
        let last = std::mem::replace(&mut self.slots[slot].touched, reference.page.0);
        let code = zigzag(reference.page.0 as i64 - last as i64);
        let think = reference.think_ns != self.think_ns;
        let short = match code < SHORT_END {
            true => code as u8,
            false => LONG,
        };
        let flags = [
            (WRITE_BIT, reference.access == Access::Write),
            (THINK_BIT, think),
            (SLOT_BIT, slot != self.slot),
        ];
        let set = flags.iter().filter(|(_, on)| *on);
        self.records
            .push(set.fold(short << 3, |tag, (bit, _)| tag | bit));
        if slot != self.slot {
            self.records.push(slot as u8);
            self.slot = slot;
        }
        if short == LONG {
            put_varint(&mut self.records, code);
        }
        if think {
            put_varint(&mut self.records, reference.think_ns);
            self.think_ns = reference.think_ns;
        }
    }

    fn size(&mut self, slot: usize, page: PageNo, bytes: u16) {
        let last = std::mem::replace(&mut self.slots[slot].sized, page.0);
        self.records.extend([SIZE_RECORD, slot as u8]);
        put_varint(&mut self.records, zigzag(page.0 as i64 - last as i64));
        put_varint(&mut self.records, u64::from(bytes));
    }
}

fn check_bytes(bytes: u16) -> Result<(), WriteError> {
    match bytes <= BYTES_MAX {
        true => Ok(()),
        false => Err(WriteError::Bytes(bytes)),
    }
}
