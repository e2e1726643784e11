//! How big the compressed cache may be and which pages may enter it: pure decisions from events.
//!
//! No I/O, no clock, no threads, no randomness.
#![forbid(unsafe_code)]

mod admission;
mod arrival;
mod balance;
mod by_name;
mod castro03;
mod cervera99;
mod clean_switch;
mod cpc08;
mod distances;
mod douglis93;
mod fixed;
mod kaplan99;
mod notation;
mod pleat;
mod round;
mod unseen;
mod work_function;

pub use admission::{admission_by_name, admission_names, Admission, Candidate};
pub use balance::Balance;
pub use by_name::{sizing_by_name, sizing_names};
pub use castro03::Castro03;
pub use cervera99::Cervera99;
pub use cpc08::Cpc08;
pub use douglis93::Douglis93;
pub use fixed::Static;
pub use kaplan99::Kaplan99;
pub use pleat::Pleat;

use pleat_types::PAGE_SIZE;

/// What a sizing policy may look at. Sizes in bytes, metadata and fragmentation counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheView {
    /// The whole budget.
    pub budget_bytes: u64,
    /// What the compressed cache holds now.
    pub cache_bytes: u64,
    /// Pages in it.
    pub cached_pages: u64,
    /// Pages in memory that are not compressed.
    pub resident_pages: u64,
    /// Pages that have come back so far, those included that came along with one that was wanted.
    pub back_pages: u64,
    /// How long the oldest pages have been unused.
    pub ages: Ages,
}

impl CacheView {
    /// What compression leaves of a page in the cache, metadata and fragmentation counted; `None` while
    /// there are too few pages to tell.
    fn ratio(&self) -> Option<f64> {
        /// Fewer pages leave more of the last page frame empty than they fill.
        const PAGES_TO_TELL: u64 = 64;
        let whole = self.cached_pages as f64 * PAGE_SIZE as f64;
        // Better than the best codec on average, or worse than no compression: a mistake in the account.
        let ratio = (self.cache_bytes as f64 / whole).clamp(0.01, 2.0);
        (self.cached_pages >= PAGES_TO_TELL).then_some(ratio)
    }
}

/// How long the oldest page of each kind has been unused, in events of the engine: pages that came
/// or were used since. `None`: there is no such page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    /// Not compressed, backed by swap.
    pub anonymous: Option<u64>,
    /// Not compressed, backed by a file.
    pub file: Option<u64>,
    /// In the compressed cache: since its last use, or since it was stored where only that is known.
    pub compressed: Option<u64>,
}

/// What a page goes to when it is neither in memory nor compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backed {
    /// Anonymous memory.
    BySwap,
    /// A page of a file.
    ByFile,
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

/// Where a page was when it was wanted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Taken away but not compressed yet.
    Staged,
    /// In the compressed cache.
    Cache,
    /// In the swap file or its own file.
    Backing,
}

/// A page that was away was wanted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refault {
    /// Where it was found.
    pub tier: Tier,
    /// How many other pages have been used since it was: its LRU distance, to within a few per cent.
    pub distance_pages: u64,
    /// What backs it.
    pub backed: Backed,
    /// The program goes round and round, and what is in memory without being compressed is left alone for as long as it
    /// does: of each round only the rest comes and goes, all over about this distance.
    pub in_round: bool,
    /// Uses of such pages are not seen while they are in memory: they leave in the order in which they came, those in
    /// use as well.
    pub by_arrival: bool,
}

/// What the driver measured, in nanoseconds per page: running means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Time a program loses to compressing one page: less than the codec takes, where that happens
    /// beside the program.
    pub compress_ns: u64,
    /// Time a program waits for one page from the compressed cache, the fault included.
    pub decompress_ns: u64,
    /// Time a program waits for one page from the backing store, the fault included.
    pub read_ns: u64,
    /// Time a program loses to writing one page to the swap file.
    pub write_ns: u64,
}

impl Default for Costs {
    /// Before anything was measured: LZ4 and a fast local disk, as measured for docs/design; a miss that
    /// takes longer is what all this is for.
    fn default() -> Costs {
        Costs {
            compress_ns: 8_000,
            decompress_ns: 6_000,
            read_ns: 40_000,
            write_ns: 8_000,
        }
    }
}

/// Which memory is to be given up when some is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giver {
    /// The oldest page that is not compressed.
    Uncompressed,
    /// The oldest pages of the compressed cache.
    Compressed,
}

/// What the age of a compressed page counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeFrom {
    /// Its last use, where that is known.
    LastUse,
    /// When it was stored.
    Stored,
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
    /// A page was read from the backing store.
    fn read(&mut self, _view: &CacheView) {}
    /// A page that was away is back; called once for each, beside `hit` and `read`.
    fn refault(&mut self, _refault: Refault, _view: &CacheView) {}
    /// Memory is needed that is not there: who gives?
    fn giver(&mut self, _view: &CacheView) -> Giver {
        Giver::Uncompressed
    }
    /// The age of a page backed by a file counts so many hundredths of itself where it is compared
    /// with that of a page backed by swap (douglis93, section 4.2, favours the latter: over 100).
    fn file_age_percent(&self) -> u64 {
        100
    }
    /// What [`Ages::compressed`] is to count from.
    fn compressed_age(&self) -> AgeFrom {
        AgeFrom::LastUse
    }
    /// The size it keeps the cache to, in bytes; the whole budget where there is no such bound.
    fn bound_bytes(&self, view: &CacheView) -> u64 {
        view.budget_bytes
    }
    /// How often growth was locked and unlocked so far.
    fn locks(&self) -> (u64, u64) {
        (0, 0)
    }
    /// The driver has measured.
    fn costs(&mut self, _costs: Costs) {}
}
