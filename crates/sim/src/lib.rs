//! The engine driven by traces and a cost model: no memory, no disk, no clock but its own.
#![forbid(unsafe_code)]

pub mod model;
