//! Reads a series line by line, and says what is wrong with a file that is none.

use crate::line::{kind_of, Sample, Start, Totals, FORMAT};
use crate::processes::Processes;
use crate::series::Series;
use serde_json::Value;
use std::io::{self, BufRead, Read};

/// The longest line that is read: the last one of a job of many mounts is some hundred KiB.
const LINE_MAX: u64 = 16 << 20;
/// How the first line begins, however soon it was cut.
const BEGIN: &[u8] = br#"{"kind":"start""#;

/// A job, as far as a series tells of it.
#[derive(Debug)]
pub struct Run {
    /// Where it was read from.
    pub(crate) name: String,
    pub(crate) start: Start,
    pub(crate) series: Series,
    pub(crate) processes: Processes,
    /// What it had done at its last sample.
    pub(crate) totals: Totals,
    /// The supervisor, and what the job is called.
    pub(crate) pid: i64,
    pub(crate) job: String,
    pub(crate) samples: u64,
    /// The last line; null where there is none.
    pub(crate) end: Value,
    /// Whether the file ends amid a line.
    pub(crate) is_cut: bool,
}

/// Why there is no run to be had from a file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system says so.
    #[error("cannot read {name}: {source}")]
    Io {
        /// The file.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// Not even the first line was written.
    #[error("{0} is empty: the job ended before anything was recorded; record it again with 'pleat run --trace-stats FILE'")]
    Empty(String),
    /// The file of another flag.
    #[error("{0} has the figures of --stats, which tell how a job ended and not how it went: give a file of 'pleat run --trace-stats FILE'")]
    Stats(String),
    /// Something else altogether.
    #[error(
        "{0} is no series of a job: give a file that 'pleat run --trace-stats FILE' has written"
    )]
    Foreign(String),
    /// Written by a pleat of another age.
    #[error("{name} has format {format}, and this pleat reads format {FORMAT}: use pleat {version}, which wrote it")]
    Format {
        /// The file.
        name: String,
        /// Its format.
        format: u64,
        /// Who wrote it.
        version: String,
    },
    /// A line that is none, with others after it.
    #[error("line {line} of {name} is damaged ({why}): what is before it can be shown, head -n {} {name} > FILE", line - 1)]
    Damaged {
        /// The file.
        name: String,
        /// Which, from 1 on.
        line: u64,
        /// What the parser says.
        why: String,
    },
    /// Two files in one.
    #[error("line {line} of {name} begins another job, and a file is to tell of one: split it, head -n {} {name} > FILE", line - 1)]
    Second {
        /// The file.
        name: String,
        /// Which, from 1 on.
        line: u64,
    },
}

impl Run {
    /// Reads all of a series; `name` is what the user calls it. A last line that was cut is left out. Memory is bounded, however
    /// long the series is.
    ///
    /// # Errors
    /// It is no series, or not one that can be read here: one line, with the remedy.
    pub fn read(input: &mut impl BufRead, name: &str) -> Result<Run, ReadError> {
        let mut lines = Lines {
            input,
            name,
            line: Vec::new(),
            number: 0,
        };
        if !lines.advance()? {
            return Err(ReadError::Empty(name.into()));
        }
        let mut run = Run::begin(lines.start()?, name);
        let mut broken: Option<ReadError> = None;
        while lines.advance()? {
            // A line that cannot be read is one that was cut if it is the last.
            if let Some(broken) = broken {
                return Err(broken);
            }
            broken = run.line(&lines).err();
            if let Some(second @ ReadError::Second { .. }) = broken {
                return Err(second);
            }
        }
        run.is_cut = broken.is_some();
        Ok(run)
    }

    fn begin(start: Start, name: &str) -> Run {
        Run {
            name: name.into(),
            start,
            series: Series::default(),
            processes: Processes::default(),
            totals: Totals::default(),
            pid: 0,
            job: String::new(),
            samples: 0,
            end: Value::Null,
            is_cut: false,
        }
    }

    fn line<R: BufRead>(&mut self, lines: &Lines<R>) -> Result<(), ReadError> {
        if lines.line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let damaged = |error| lines.damaged(&error);
        // Nearly all lines are samples, so they are taken for one at first.
        let sample: Sample = serde_json::from_slice(&lines.line).map_err(damaged)?;
        match &*sample.kind {
            "sample" => self.sample(&sample),
            "end" => self.end = serde_json::from_slice(&lines.line).map_err(damaged)?,
            "start" => {
                return Err(ReadError::Second {
                    name: lines.name.into(),
                    line: lines.number,
                })
            }
            // Of a newer version.
            _ => {}
        }
        Ok(())
    }

    fn sample(&mut self, sample: &Sample) {
        self.samples += 1;
        self.totals = sample.totals;
        self.pid = sample.pid;
        if self.job != sample.name {
            self.job = sample.name.clone().into_owned();
        }
        self.series.add(sample);
        self.processes.add(&sample.rows, sample.rows_left_out);
    }
}

/// A file, and the line of it that was read last.
struct Lines<'a, R> {
    input: &'a mut R,
    name: &'a str,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<'_, R> {
    /// Goes on to the next line, if there is one.
    fn advance(&mut self) -> Result<bool, ReadError> {
        self.line.clear();
        self.number += 1;
        let read = self
            .input
            .by_ref()
            .take(LINE_MAX)
            .read_until(b'\n', &mut self.line);
        let read = read.map_err(|source| ReadError::Io {
            name: self.name.into(),
            source,
        })?;
        match read as u64 {
            LINE_MAX if self.number == 1 => Err(ReadError::Foreign(self.name.into())),
            LINE_MAX => Err(ReadError::Damaged {
                name: self.name.into(),
                line: self.number,
                why: format!("it is longer than {} MiB", LINE_MAX >> 20),
            }),
            read => Ok(read > 0),
        }
    }

    fn damaged(&self, error: &serde_json::Error) -> ReadError {
        ReadError::Damaged {
            name: self.name.into(),
            line: self.number,
            why: error.to_string(),
        }
    }

    /// The first line.
    fn start(&mut self) -> Result<Start, ReadError> {
        let name = || self.name.to_owned();
        let Ok(value) = serde_json::from_slice::<Value>(&self.line) else {
            return Err(self.not_a_start());
        };
        match kind_of(&value) {
            Some("start") => {}
            _ if is_stats(&value) => return Err(ReadError::Stats(name())),
            _ => return Err(ReadError::Foreign(name())),
        }
        let format = value["format"].as_u64().unwrap_or(0);
        if format != FORMAT {
            let version = value["pleat_version"].as_str();
            return Err(ReadError::Format {
                name: name(),
                format,
                version: version.unwrap_or("of another version").into(),
            });
        }
        serde_json::from_value(value).map_err(|error| self.damaged(&error))
    }

    /// What a file is whose first line is no JSON.
    fn not_a_start(&mut self) -> ReadError {
        let is_cut = !self.line.ends_with(b"\n");
        let length = self.line.len().min(BEGIN.len());
        if is_cut && self.line[..length] == BEGIN[..length] {
            return ReadError::Empty(self.name.into());
        }
        // --stats writes an object of many lines.
        let mut whole = self.line.clone();
        let rest = self.input.by_ref().take(LINE_MAX).read_to_end(&mut whole);
        let value = rest
            .ok()
            .and_then(|_| serde_json::from_slice::<Value>(&whole).ok());
        match value.is_some_and(|value| is_stats(&value)) {
            true => ReadError::Stats(self.name.into()),
            false => ReadError::Foreign(self.name.into()),
        }
    }
}

fn is_stats(value: &Value) -> bool {
    value.get("pleat_version").is_some() && value.get("report").is_some()
}
