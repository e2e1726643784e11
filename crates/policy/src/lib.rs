//! How big the compressed cache may be: pure decisions from events.
//!
//! No I/O, no clock, no threads, no randomness.
#![forbid(unsafe_code)]

mod balance;
mod by_name;
mod castro03;
mod fixed;

pub use balance::Balance;
pub use by_name::{sizing_by_name, sizing_names};
pub use castro03::Castro03;
pub use fixed::Static;

/// What a sizing policy may look at. Sizes in bytes, metadata and fragmentation counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheView {
    /// The whole budget.
    pub budget_bytes: u64,
    /// What the compressed cache holds now.
    pub cache_bytes: u64,
}

/// Which list of castro03 a page of the compressed cache was on when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Would be in memory if there were no compressed cache.
    Expense,
    /// Is in memory only thanks to compression.
    Profit,
}

/// What the engine is to do after a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nothing.
    Keep,
    /// Free a cell by relocating its items; if that cannot be done, release the oldest page.
    Shrink,
}

/// A sizing policy of the compressed cache.
pub trait Sizing: Send {
    /// Name on the command line.
    fn name(&self) -> &'static str;
    /// The cache is full and compacted and a page is to be stored: may the cache grow?
    /// If not, the oldest page is released.
    fn may_grow(&mut self, view: &CacheView) -> bool;
    /// A page was read from the compressed cache.
    fn hit(&mut self, list: List, view: &CacheView) -> Advice;
    /// A page was read from the swap file.
    fn read(&mut self, _view: &CacheView) {}
}
