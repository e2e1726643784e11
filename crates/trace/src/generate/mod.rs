//! Traces that are computed: access patterns with parameters, by name or from a text such as
//! `thrasher:pages=65536,passes=4,write=1`.
//!
//! References are computed when they are asked for. What a generator keeps grows with the pages that
//! it touches at most, never with the number of its references; the same text gives the same trace.

mod compile;
mod hash;
mod iozone;
mod linear;
mod mix;
pub(crate) mod parameters;
mod sort;
mod spec;
mod stack;
#[cfg(test)]
mod testing;
mod walk;
mod zipf;

pub use compile::Compile;
pub use hash::Hash;
pub use iozone::Iozone;
pub use linear::{Scan, Thrasher};
pub use parameters::{Common, Parameter, Parameters};
pub use sort::{Quicksort, Sort};
pub use spec::{generator, generators, Help, SpecError};
pub use stack::Stack;
pub use zipf::Zipf;

use crate::Source;

/// Parameters that describe a trace.
pub trait Generator: Parameters + Default {
    /// The trace, from its beginning. The parameters must be in their ranges: those set by name are,
    /// and [`Parameters::check`] tells.
    fn source(&self, common: &Common) -> Result<Box<dyn Source + Send>, SpecError>;
}
