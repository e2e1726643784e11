//! Tests of the whole engine: a random model test and plain ones by subject.

mod blocks;
mod cold;
mod collecting;
mod content;
mod driver;
mod laws;
mod lists;
mod lives;
mod memory;
mod model;
mod mounted;
mod reading;
mod runs;
pub(crate) mod script;
mod strays;
pub(crate) mod transitions;
mod world;
mod writing;
