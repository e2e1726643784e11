//! The pages of files that a mount keeps.
#![forbid(unsafe_code)]

pub mod file;

pub use file::FilePages;
