//! Output of valgrind's lackey tool to trace: `valgrind --tool=lackey --trace-mem=yes --log-file=TEXT
//! PROGRAM`.
//!
//! ```text
//! I  04001090,3          an instruction of 3 bytes is fetched
//!  S 1ffefffe78,8        8 bytes are stored
//!  L 0421c7f8,4          ... loaded
//!  M 0421c7f8,4          ... loaded and stored again
//! ==4711== anything      valgrind's own remarks
//! ```
//!
//! Addresses become pages. Pages of instructions are those of a file, all others anonymous memory.
//! References to the page that was touched last are left out, separately for instructions and data,
//! unless they are the first that writes; each instruction in between counts as think time.

use super::lines::Lines;
use super::{ImportError, LineFlaw};
use crate::format::BYTES_MAX;
use crate::{Access, ProcessNo, Reference, RegionKind, RegionNo, Writer};
use pleat_types::{PageNo, PAGE_SIZE};
use std::io::{BufRead, Write};

/// What lackey does not tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lackey {
    /// CPU time of an instruction, in picoseconds: instructions take less than a nanosecond.
    pub instruction_ps: u64,
    /// What pages compress to.
    pub bytes: u16,
}

impl Default for Lackey {
    /// 3 instructions a nanosecond; pages compress to 0.4.
    fn default() -> Self {
        Lackey {
            instruction_ps: 333,
            bytes: (u32::from(BYTES_MAX) * 2 / 5) as u16,
        }
    }
}

/// Reads lackey's output and writes a trace of one process. Returns the output.
pub fn import_lackey<W: Write>(
    input: impl BufRead,
    settings: Lackey,
    out: W,
) -> Result<W, ImportError> {
    let mut lines = Lines::new(input);
    let mut merger = Merger::new(settings, out)?;
    while let Some(line) = lines.next()? {
        if line.is_empty() || line.starts_with("==") || line.starts_with("--") {
            continue;
        }
        match Touch::parse(&line) {
            Some(touch) => merger.add(touch)?,
            None => return Err(lines.flaw(LineFlaw::NotLackey)),
        }
    }
    match merger.references {
        0 => Err(ImportError::Empty("run valgrind with --trace-mem=yes")),
        _ => Ok(merger.writer.finish()?),
    }
}

/// A line, understood.
#[derive(Clone, Copy, Debug)]
struct Touch {
    kind: Kind,
    first: PageNo,
    last: PageNo,
    access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Instruction,
    Data,
}

impl Touch {
    fn parse(line: &str) -> Option<Touch> {
        let (letter, place) = line.trim_start().split_once(' ')?;
        let (kind, access) = match letter {
            "I" => (Kind::Instruction, Access::Read),
            "L" => (Kind::Data, Access::Read),
            "S" | "M" => (Kind::Data, Access::Write),
            _ => return None,
        };
        let (address, size) = place.trim_start().split_once(',')?;
        let address = match address.starts_with('+') {
            true => return None,
            false => u64::from_str_radix(address, 16).ok()?,
        };
        let size = size.parse::<u64>().ok();
        // No instruction touches more than a page at once.
        let size = size.filter(|size| (1..=PAGE_SIZE as u64).contains(size))?;
        Some(Touch {
            kind,
            first: PageNo::of_address(address),
            last: PageNo::of_address(address.checked_add(size - 1)?),
            access,
        })
    }
}

/// Writes what is left of the references after merging.
struct Merger<W: Write> {
    writer: Writer<W>,
    process: ProcessNo,
    instruction_ps: u64,
    /// For instructions and for data: the region, and the page touched last with its access.
    streams: [(RegionNo, Option<(PageNo, Access)>); 2],
    /// Computing since the last reference that was written.
    think_ps: u64,
    references: u64,
}

impl<W: Write> Merger<W> {
    fn new(settings: Lackey, out: W) -> Result<Self, ImportError> {
        let mut writer = Writer::new(out)?;
        let process = writer.process(0)?;
        let code = writer.region(RegionKind::File, settings.bytes)?;
        let data = writer.region(RegionKind::Anonymous, settings.bytes)?;
        Ok(Merger {
            writer,
            process,
            instruction_ps: settings.instruction_ps,
            streams: [(code, None), (data, None)],
            think_ps: 0,
            references: 0,
        })
    }

    fn add(&mut self, touch: Touch) -> Result<(), ImportError> {
        if touch.kind == Kind::Instruction {
            self.think_ps = self.think_ps.saturating_add(self.instruction_ps);
        }
        self.touch(touch.kind, touch.first, touch.access)?;
        match touch.last == touch.first {
            true => Ok(()),
            false => self.touch(touch.kind, touch.last, touch.access),
        }
    }

    fn touch(&mut self, kind: Kind, page: PageNo, access: Access) -> Result<(), ImportError> {
        let (region, last) = &mut self.streams[kind as usize];
        let covered = match *last {
            Some((last, Access::Write)) => last == page,
            Some((last, Access::Read)) => last == page && access == Access::Read,
            None => false,
        };
        if covered {
            return Ok(());
        }
        *last = Some((page, access));
        let reference = Reference {
            think_ns: self.think_ps / 1000,
            region: *region,
            page,
            access,
        };
        self.think_ps %= 1000;
        self.references += 1;
        Ok(self.writer.reference(self.process, reference)?)
    }
}
