//! Traces as text: one reference a line, for people and scripts.
//!
//! ```text
//! # process  region  page  access  [think_ns]  [size=bytes]
//! 0          -       17    w       1200        size=900
//! 0          libc    0x2a  r
//! cc1        -stack  3     w       80
//! ```
//!
//! - process: any word; processes are numbered in the order in which they appear;
//! - region: `-`, or a word that begins with it, is anonymous memory of that process, another of each
//!   process; any other word is a file, which all processes share;
//! - page: its number in the region, decimal or hexadecimal with `0x`;
//! - access: `r` or `w`;
//! - `think_ns`: CPU time the process used since its last reference; as before when left out;
//! - `size=`: what the page compresses to from here on, 0 to 4096 bytes.
//!
//! Lines of a process are in order; those of different processes may be mixed as they like. `#` begins
//! a comment.

mod dump;
mod import;
mod lackey;
mod lines;
#[cfg(test)]
mod tests;

pub use dump::dump;
pub use import::import;
pub use lackey::{import_lackey, Lackey};

use crate::WriteError;
use thiserror::Error;

/// Why a text became no trace.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The text cannot be read.
    #[error("{0}")]
    Read(std::io::Error),
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A line that is no reference.
    #[error("line {line}: {flaw}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// What is wrong, and what to write.
        flaw: LineFlaw,
    },
    /// Not one reference in all of the text.
    #[error("the text holds no reference: {0}")]
    Empty(&'static str),
}

/// What can be wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineFlaw {
    /// Longer than any line that means something.
    #[error("is longer than 4096 bytes: give a text with one reference a line")]
    TooLong,
    /// Fewer words than a reference has.
    #[error("lacks something: write 'process region page r|w [think_ns] [size=bytes]'")]
    Short,
    /// A word that is not what stands in its place.
    #[error("'{word}' is no {what}: write {expected}")]
    Word {
        /// As it was written.
        word: String,
        /// What should be there.
        what: &'static str,
        /// What it may be.
        expected: &'static str,
    },
    /// Not a line of valgrind's.
    #[error("is no reference: give the output of 'valgrind --tool=lackey --trace-mem=yes'")]
    NotLackey,
}
