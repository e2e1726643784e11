//! Lines of a text of any size and any content, one at a time in the same memory.

use super::{ImportError, LineFlaw};
use std::io::{BufRead, Read};

/// The longest line that is looked at.
const LINE_MAX: u64 = 4096;

pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Lines {
            input,
            line: Vec::new(),
            number: 0,
        }
    }

    /// The next line without its end; `None` after the last. What is not UTF-8 is no word that any
    /// line may have, so it is replaced.
    pub(super) fn next(&mut self) -> Result<Option<std::borrow::Cow<'_, str>>, ImportError> {
        self.line.clear();
        self.number += 1;
        let mut limited = (&mut self.input).take(LINE_MAX + 1);
        let read = limited.read_until(b'\n', &mut self.line);
        match read.map_err(ImportError::Read)? {
            0 => Ok(None),
            length if length as u64 > LINE_MAX => Err(self.flaw(LineFlaw::TooLong)),
            _ => Ok(Some(String::from_utf8_lossy(self.line.trim_ascii_end()))),
        }
    }

    /// The error that the line just read is no reference.
    pub(super) fn flaw(&self, flaw: LineFlaw) -> ImportError {
        ImportError::Line {
            line: self.number,
            flaw,
        }
    }
}
