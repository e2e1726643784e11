//! Page references: what programs touched, in which order, and how their pages compress.
//!
//! A [`Source`] gives each process's references one after the other. How processes interleave is not
//! in it: that depends on how long each of them waits, and so is the simulator's to decide.
#![forbid(unsafe_code)]

mod contents;
pub mod format;
mod generate;
mod random;
mod survey;
pub mod text;

pub use format::{copy, Flaw, Malformed, ReadError, Reader, WriteError, Writer};
pub use generate::{
    generator, generators, Common, Compile, Generator, Hash, Help, Parameter, Parameters,
    Quicksort, Scan, Sort, SpecError, Stack, Thrasher, Zipf,
};
pub use survey::{ProcessSurvey, Survey};

pub use pleat_types::PageNo;

/// Which process of a source, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessNo(pub u32);

/// Which region (anonymous memory of one process, or one file) of a source, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionNo(pub u32);

/// What the pages of a region are before anything is written to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionKind {
    /// Zeros; belongs to one process; goes to the swap file.
    Anonymous,
    /// What is in a file, which is where they can be read from again; any process may touch them.
    File,
}

/// Whether a reference changes the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// The page stays as it is.
    Read,
    /// The page is changed.
    Write,
}

/// One touch of a page, after some computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// CPU time the process used since its last reference, in nanoseconds.
    pub think_ns: u64,
    /// Where the page is.
    pub region: RegionNo,
    /// Which page of the region.
    pub page: PageNo,
    /// Read or written.
    pub access: Access,
}

/// References of one or more processes.
pub trait Source {
    /// How many processes there are.
    fn processes(&self) -> u32;
    /// The regions, numbered from 0.
    fn regions(&self) -> &[RegionKind];
    /// The next reference of a process; `None` once it has ended.
    fn next(&mut self, process: ProcessNo) -> Option<Reference>;
    /// Bytes the page compresses to at this moment of its process: 0 for one repeated word, up to
    /// 4096 for a page that does not compress.
    fn compressed_bytes(&self, region: RegionNo, page: PageNo) -> u16;
}
