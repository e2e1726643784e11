//! A trace file as a [`Source`]: the file is kept in memory as it is, and each process has a place in
//! it. Everything is checked when it is opened, so that replaying cannot fail.

use super::bytes::{Cursor, Fnv};
use super::records::{Record, Records};
use super::{
    Flaw, Malformed, Sizes, BYTES_MAX, END, MAGIC, PROCESS, PROCESSES_MAX, REGION, TOUCHES,
};
use crate::{ProcessNo, Reference, RegionKind, RegionNo, Source};
use pleat_types::PageNo;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;

/// Why a file cannot be replayed.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It holds no trace.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// A trace in memory. Clones share the file's bytes, so that many replays of it need little more.
#[derive(Clone, Debug)]
pub struct Reader {
    bytes: Arc<Vec<u8>>,
    regions: Vec<RegionKind>,
    /// What pages of each region compress to that no record has told about.
    unsized_bytes: Vec<u16>,
    processes: Vec<Process>,
    sizes: Sizes,
    references: u64,
}

/// One process's chunks, and how far it has got.
#[derive(Clone, Debug)]
struct Process {
    started_ns: u64,
    chunks: Vec<(usize, usize)>,
    /// How many chunks have been entered.
    entered: usize,
    records: Records,
}

impl Reader {
    /// Reads and checks a file.
    pub fn open(path: &Path) -> Result<Reader, ReadError> {
        Reader::read(File::open(path)?)
    }

    /// Reads and checks all that `input` gives.
    pub fn read(mut input: impl Read) -> Result<Reader, ReadError> {
        let mut bytes = Vec::new();
        input.read_to_end(&mut bytes)?;
        Ok(Reader::new(bytes)?)
    }

    /// Checks the bytes of a file.
    pub fn new(bytes: Vec<u8>) -> Result<Reader, Malformed> {
        let mut reader = Reader {
            bytes: Arc::new(Vec::new()),
            regions: Vec::new(),
            unsized_bytes: Vec::new(),
            processes: Vec::new(),
            sizes: Sizes::default(),
            references: 0,
        };
        reader.check(&bytes)?;
        reader.bytes = Arc::new(bytes);
        Ok(reader)
    }

    /// How many references all processes have together.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// When a process began, counted from the start of the trace.
    pub fn started_ns(&self, process: ProcessNo) -> Option<u64> {
        Some(self.processes.get(process.0 as usize)?.started_ns)
    }

    /// Back to the beginning of every process.
    pub fn rewind(&mut self) {
        self.sizes.clear();
        for process in &mut self.processes {
            process.entered = 0;
            process.records = Records::default();
        }
    }

    /// Goes through the whole file, and keeps where everything is.
    fn check(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        check_magic(bytes)?;
        let mut cursor = Cursor {
            bytes,
            at: MAGIC.len(),
        };
        let (mut records, mut sizes) = (Records::default(), 0);
        loop {
            let at = cursor.at;
            match cursor.byte()? {
                PROCESS => self.declare_process(&mut cursor)?,
                REGION => self.declare_region(&mut cursor)?,
                TOUCHES => sizes += self.check_touches(&mut cursor, &mut records)?,
                END => return self.check_end(&mut cursor, sizes),
                kind => return Err(Flaw::UnknownKind("chunk", kind).at(at)),
            }
        }
    }

    fn declare_process(&mut self, cursor: &mut Cursor) -> Result<(), Malformed> {
        if self.processes.len() == PROCESSES_MAX {
            return Err(Flaw::OutOfRange("number of processes").at(cursor.at));
        }
        self.processes.push(Process {
            started_ns: cursor.varint("start of a process")?,
            chunks: Vec::new(),
            entered: 0,
            records: Records::default(),
        });
        Ok(())
    }

    fn declare_region(&mut self, cursor: &mut Cursor) -> Result<(), Malformed> {
        let at = cursor.at;
        self.regions.push(match cursor.byte()? {
            0 => RegionKind::Anonymous,
            1 => RegionKind::File,
            kind => return Err(Flaw::UnknownKind("region", kind).at(at)),
        });
        let bytes = cursor.up_to(u64::from(BYTES_MAX), "compressed size")?;
        self.unsized_bytes.push(bytes as u16);
        Ok(())
    }

    /// Decodes a chunk once; returns how many size records it has.
    fn check_touches(
        &mut self,
        cursor: &mut Cursor,
        records: &mut Records,
    ) -> Result<u64, Malformed> {
        let at = cursor.at;
        let process = cursor.varint("process")?;
        let process = usize::try_from(process)
            .ok()
            .and_then(|p| self.processes.get_mut(p));
        let process = process.ok_or(Flaw::OutOfRange("process").at(at))?;
        let length = cursor.varint("length")?;
        let start = cursor.at;
        cursor.take(length)?;
        let chunk = (start, cursor.at);
        records.enter(cursor.bytes, chunk, self.regions.len())?;
        let mut sizes = 0;
        while let Some(record) = records.next(cursor.bytes)? {
            match record {
                Record::Touch(_) => self.references += 1,
                Record::Size { .. } => sizes += 1,
            }
        }
        process.chunks.push(chunk);
        Ok(sizes)
    }

    fn check_end(&self, cursor: &mut Cursor, sizes: u64) -> Result<(), Malformed> {
        let found = [
            ("processes", self.processes.len() as u64),
            ("regions", self.regions.len() as u64),
            ("references", self.references),
            ("sizes", sizes),
        ];
        for (what, count) in found {
            let at = cursor.at;
            if cursor.varint(what)? != count {
                return Err(Flaw::Count(what).at(at));
            }
        }
        let end = cursor.at;
        let mut hash = Fnv::new();
        hash.add(&cursor.bytes[..end]);
        if cursor.take(8)? != hash.0.to_le_bytes() {
            return Err(Flaw::Checksum.at(end));
        }
        match cursor.is_at_end() {
            true => Ok(()),
            false => Err(Flaw::Trailing.at(cursor.at)),
        }
    }

    /// The next record of a process, from whichever of its chunks.
    #[inline]
    fn record(bytes: &[u8], process: &mut Process, regions: usize) -> Option<Record> {
        loop {
            // The file was checked with the same code, so an error cannot come; it would end the
            // process.
            if let Some(record) = process.records.next(bytes).ok()? {
                return Some(record);
            }
            let chunk = *process.chunks.get(process.entered)?;
            process.entered += 1;
            process.records.enter(bytes, chunk, regions).ok()?;
        }
    }
}

fn check_magic(bytes: &[u8]) -> Result<(), Malformed> {
    let (name, version) = MAGIC.split_at(MAGIC.len() - 1);
    if !bytes.starts_with(name) {
        return Err(Flaw::NotATrace.at(0));
    }
    match bytes.get(name.len()) {
        Some(found) if [*found] == version => Ok(()),
        Some(found) => Err(Flaw::Version(*found).at(name.len())),
        None => Err(Flaw::CutShort.at(name.len())),
    }
}

impl Source for Reader {
    fn processes(&self) -> u32 {
        self.processes.len() as u32
    }

    fn regions(&self) -> &[RegionKind] {
        &self.regions
    }

    /// Budget: 50 ns.
    fn next(&mut self, process: ProcessNo) -> Option<Reference> {
        let process = self.processes.get_mut(process.0 as usize)?;
        loop {
            match Self::record(&self.bytes, process, self.regions.len())? {
                Record::Touch(reference) => return Some(reference),
                Record::Size {
                    region,
                    page,
                    bytes,
                } => self.sizes.set(region, page, bytes),
            };
        }
    }

    fn compressed_bytes(&self, region: RegionNo, page: PageNo) -> u16 {
        let known = self.sizes.get(region, page);
        let untold = self.unsized_bytes.get(region.0 as usize);
        known.or(untold.copied()).unwrap_or(0)
    }
}
