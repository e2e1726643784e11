//! Text to trace.

use super::lines::Lines;
use super::{ImportError, LineFlaw};
use crate::format::{BYTES_MAX, PAGE_END};
use crate::{Access, ProcessNo, Reference, RegionKind, RegionNo, Writer};
use pleat_types::PageNo;
use std::collections::HashMap;
use std::io::{BufRead, Write};

/// Reads the text format and writes a trace. `bytes` is what pages compress to whose size no line
/// tells. Returns the output.
pub fn import<W: Write>(input: impl BufRead, bytes: u16, out: W) -> Result<W, ImportError> {
    let mut lines = Lines::new(input);
    let mut importer = Importer {
        writer: Writer::new(out)?,
        bytes,
        processes: HashMap::new(),
        regions: HashMap::new(),
        think_ns: Vec::new(),
    };
    let mut references = 0u64;
    while let Some(line) = lines.next()? {
        let words = line.split('#').next().unwrap_or_default();
        let line = match Line::parse(words) {
            Ok(None) => continue,
            Ok(Some(line)) => line,
            Err(flaw) => return Err(lines.flaw(flaw)),
        };
        importer.add(&line)?;
        references += 1;
    }
    match references {
        0 => Err(ImportError::Empty("write one a line, '0 - 17 w'")),
        _ => Ok(importer.writer.finish()?),
    }
}

/// The words of a line, understood.
struct Line<'a> {
    process: &'a str,
    region: &'a str,
    page: PageNo,
    access: Access,
    think_ns: Option<u64>,
    size: Option<u16>,
}

impl<'a> Line<'a> {
    /// `None` for a line without words.
    fn parse(text: &'a str) -> Result<Option<Line<'a>>, LineFlaw> {
        let mut words = text.split_whitespace();
        let Some(process) = words.next() else {
            return Ok(None);
        };
        let mut needed = || words.next().ok_or(LineFlaw::Short);
        let mut line = Line {
            process,
            region: needed()?,
            page: page(needed()?)?,
            access: access(needed()?)?,
            think_ns: None,
            size: None,
        };
        let mut word = words.next();
        if let Some(text) = word.filter(|word| !word.starts_with("size=")) {
            line.think_ns = Some(number(text).ok_or_else(|| think_flaw(text))?);
            word = words.next();
        }
        if let Some(text) = word {
            line.size = Some(size(text)?);
        }
        match words.next() {
            None => Ok(Some(line)),
            Some(word) => Err(LineFlaw::Word {
                word: word.into(),
                what: "part of a reference",
                expected: "no more than 'process region page r|w think_ns size=bytes'",
            }),
        }
    }
}

fn think_flaw(word: &str) -> LineFlaw {
    LineFlaw::Word {
        word: word.into(),
        what: "think time or size",
        expected: "nanoseconds as a whole number, or size=bytes",
    }
}

fn page(word: &str) -> Result<PageNo, LineFlaw> {
    let flaw = || LineFlaw::Word {
        word: word.into(),
        what: "page number",
        expected: "one below 2^52, such as 17 or 0x2a",
    };
    let page = number(word).filter(|page| *page < PAGE_END);
    page.map(PageNo).ok_or_else(flaw)
}

fn access(word: &str) -> Result<Access, LineFlaw> {
    match word {
        "r" => Ok(Access::Read),
        "w" => Ok(Access::Write),
        _ => Err(LineFlaw::Word {
            word: word.into(),
            what: "access",
            expected: "r or w",
        }),
    }
}

fn size(word: &str) -> Result<u16, LineFlaw> {
    let bytes = word.strip_prefix("size=").and_then(|n| n.parse().ok());
    bytes
        .filter(|bytes| *bytes <= BYTES_MAX)
        .ok_or_else(|| LineFlaw::Word {
            word: word.into(),
            what: "size",
            expected: "size=0 to size=4096",
        })
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        // The library would take a sign here.
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        _ => word.parse().ok(),
    }
}

/// The trace that grows line by line.
struct Importer<W: Write> {
    writer: Writer<W>,
    /// What pages compress to until told otherwise.
    bytes: u16,
    processes: HashMap<String, ProcessNo>,
    /// By name, and by process where it is anonymous memory.
    regions: HashMap<(Option<ProcessNo>, String), RegionNo>,
    /// The think time of each process's last line.
    think_ns: Vec<u64>,
}

impl<W: Write> Importer<W> {
    fn add(&mut self, line: &Line) -> Result<(), ImportError> {
        let process = self.process(line.process)?;
        let region = self.region(process, line.region)?;
        if let Some(bytes) = line.size {
            self.writer.size(process, region, line.page, bytes)?;
        }
        let think_ns = &mut self.think_ns[process.0 as usize];
        *think_ns = line.think_ns.unwrap_or(*think_ns);
        let reference = Reference {
            think_ns: *think_ns,
            region,
            page: line.page,
            access: line.access,
        };
        Ok(self.writer.reference(process, reference)?)
    }

    fn process(&mut self, name: &str) -> Result<ProcessNo, ImportError> {
        if let Some(process) = self.processes.get(name) {
            return Ok(*process);
        }
        let process = self.writer.process(0)?;
        self.think_ns.push(0);
        self.processes.insert(name.into(), process);
        Ok(process)
    }

    fn region(&mut self, process: ProcessNo, name: &str) -> Result<RegionNo, ImportError> {
        let (owner, kind) = match name.starts_with('-') {
            true => (Some(process), RegionKind::Anonymous),
            false => (None, RegionKind::File),
        };
        let key = (owner, name.to_owned());
        if let Some(region) = self.regions.get(&key) {
            return Ok(*region);
        }
        let region = self.writer.region(kind, self.bytes)?;
        self.regions.insert(key, region);
        Ok(region)
    }
}
