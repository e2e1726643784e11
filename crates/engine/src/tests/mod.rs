//! Tests of the whole engine: a random model test and plain ones by subject.

mod cold;
mod content;
mod driver;
mod lists;
mod memory;
mod model;
mod runs;
mod script;
mod strays;
mod world;
mod writing;
