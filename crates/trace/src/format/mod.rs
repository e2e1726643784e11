//! The file format of traces: a few bytes a reference, written as a stream, read by process.
//!
//! This is its specification; `docs/traces.md` goes through an example byte by byte. Files are
//! untrusted: whatever a [`Reader`] is given, it answers with a trace or with a [`Malformed`] that
//! says where and what to do.
//!
//! # Numbers
//!
//! `varint`: seven bits a byte, the least significant first, bit 7 set in all bytes but the last
//! (LEB128), up to 2^64 - 1. `signed`: a varint of 0, -1, 1, -2, 2... (zigzag): `2n` for `n >= 0`,
//! `-2n - 1` below. Page numbers are below 2^52, compressed sizes up to 4096 bytes, times are in
//! nanoseconds.
//!
//! # File
//!
//! Eight bytes `PLEATTR` and the version, 1; then chunks, each beginning with a letter:
//!
//! | chunk | then | means |
//! |---|---|---|
//! | `P` | varint `started_ns` | a process, one of 2^20 at most, numbered from 0 in the order of these chunks; when it began, counted from the start of the trace |
//! | `R` | byte `kind`, varint `bytes` | a region, numbered likewise; kind 0 is anonymous memory, 1 a file; what its pages compress to until a size record says otherwise |
//! | `T` | varint `process`, varint `length`, `length` bytes | touches of one process, as below; process and regions have been declared before |
//! | `E` | varints `processes`, `regions`, `references`, `sizes`; 8 bytes | the end: how many of each the file holds, and the FNV-1a hash (64 bits, little endian) of every byte before these eight. Nothing follows |
//!
//! A file without `E` was cut short. The chunks of a process, one after the other, are its history;
//! between those of different processes there is no order.
//!
//! # Touches
//!
//! A `T` chunk can be read without any other: differences start anew in each. It begins with a byte,
//! the number of regions it uses (1 to 128), and as many varints, the regions: its *slots*. Then come
//! records until its end. State at its start: slot 0, think time 0, and for every slot page 0 as the
//! page touched last and the page sized last.
//!
//! A record begins with a byte:
//!
//! ```text
//!   bit  7   6   5   4   3     2       1       0
//!       [ page difference ]  [slot]  [think] [write]
//! ```
//!
//! | bits | value | means |
//! |---|---|---|
//! | 0 | 1 | the page is written; else read |
//! | 1 | 1 | the CPU time used before this touch is another than before the last one, and follows |
//! | 2 | 1 | the slot is another than that of the last touch, and follows |
//! | 3-7 | 0 to 29 | page touched last in this slot, and this difference (zigzag), make the page |
//! | 3-7 | 30 | the same, but the difference follows |
//! | 3-7 | 31 | no touch; with bits 0-2 clear (byte `F8`) a size record, else malformed |
//!
//! What follows comes in this order: slot (a byte), difference (`signed`), think time (varint). A size
//! record is followed by slot (a byte, which changes nothing for the next touch), difference to the page
//! sized last in that slot (`signed`) and the compressed size (varint). It holds from there on in its
//! process's history: a record before a touch tells what the page compresses to when it is touched.

mod bytes;
mod copy;
mod reader;
mod records;
mod sizes;
#[cfg(test)]
mod tests;
mod writer;

pub use copy::copy;
pub use reader::{ReadError, Reader};
pub(crate) use sizes::Sizes;
pub use writer::{WriteError, Writer};

use thiserror::Error;

pub(crate) const MAGIC: [u8; 8] = *b"PLEATTR\x01";
pub(crate) const PROCESS: u8 = b'P';
pub(crate) const REGION: u8 = b'R';
pub(crate) const TOUCHES: u8 = b'T';
pub(crate) const END: u8 = b'E';
/// The most regions a chunk of touches refers to.
pub(crate) const SLOTS_MAX: usize = 128;
/// The most processes: what is kept for each is many times what declares it.
pub(crate) const PROCESSES_MAX: usize = 1 << 20;
/// The first page number that is too large.
pub(crate) const PAGE_END: u64 = 1 << 52;
/// The most that a page compresses to.
pub(crate) const BYTES_MAX: u16 = 4096;

pub(crate) const WRITE_BIT: u8 = 1;
pub(crate) const THINK_BIT: u8 = 2;
pub(crate) const SLOT_BIT: u8 = 4;
/// Differences below this are in the first byte of the record.
pub(crate) const SHORT_END: u64 = 30;
pub(crate) const LONG: u8 = 30;
pub(crate) const SIZE_RECORD: u8 = 0xF8;

/// Where and why bytes are no trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("at byte {offset}: {flaw}")]
pub struct Malformed {
    /// Counted from the beginning of the file.
    pub offset: u64,
    /// What is wrong there, and what to do about it.
    pub flaw: Flaw,
}

/// What can be wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Flaw {
    /// Another kind of file.
    #[error("this is no trace: make one with 'pleat trace generate' or 'pleat trace import'")]
    NotATrace,
    /// Written by another version of pleat.
    #[error("traces of version {0} are unknown: read it with the pleat that wrote it")]
    Version(u8),
    /// No end chunk, or less than was announced.
    #[error("the file ends too early: record or copy it again")]
    CutShort,
    /// A chunk or record of no known kind.
    #[error("a {0} of unknown kind {1:#04x}: the file is damaged, record or copy it again")]
    UnknownKind(&'static str, u8),
    /// A number that is longer or larger than it may be.
    #[error("a {0} out of range: the file is damaged, record or copy it again")]
    OutOfRange(&'static str),
    /// The counts at the end are not those of the file.
    #[error("the count of {0} does not fit: the file is damaged, record or copy it again")]
    Count(&'static str),
    /// The hash at the end is not that of the file.
    #[error("the checksum does not fit: the file is damaged, record or copy it again")]
    Checksum,
    /// Bytes after the end chunk.
    #[error("there is more after the end: cut it off or copy the file again")]
    Trailing,
}

impl Flaw {
    pub(crate) fn at(self, offset: usize) -> Malformed {
        Malformed {
            offset: offset as u64,
            flaw: self,
        }
    }
}
