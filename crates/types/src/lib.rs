//! Page numbers, sizes and units shared by every layer of pleat.
//!
//! Newtypes for what must not be mixed: a page number is not an address, bytes are not frames.
//! This crate knows nothing of memory, policy or I/O.
#![forbid(unsafe_code)]

/// Bytes in a page. pleat works on base pages only; huge pages are split when they are folded.
pub const PAGE_SIZE: usize = 4096;

/// The bytes of one page.
pub type Page = [u8; PAGE_SIZE];

/// A virtual page number: address / [`PAGE_SIZE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNo(pub u64);

impl PageNo {
    /// The page that holds `address`.
    pub fn of_address(address: u64) -> Self {
        PageNo(address / PAGE_SIZE as u64)
    }

    /// The address of the first byte of the page.
    pub fn address(self) -> u64 {
        self.0 * PAGE_SIZE as u64
    }

    /// The page `pages` further on.
    pub fn plus(self, pages: u64) -> Self {
        PageNo(self.0 + pages)
    }
}

/// A half-open range of pages, `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageRange {
    /// First page of the range.
    pub start: PageNo,
    /// First page after the range.
    pub end: PageNo,
}

impl PageRange {
    /// The pages touched by the addresses `start..end`; `end` is rounded up.
    pub fn of_addresses(start: u64, end: u64) -> Self {
        PageRange {
            start: PageNo::of_address(start),
            end: PageNo(end.div_ceil(PAGE_SIZE as u64)),
        }
    }

    /// `count` pages from `start` on.
    pub fn new(start: PageNo, count: u64) -> Self {
        PageRange {
            start,
            end: start.plus(count),
        }
    }

    /// Pages in the range.
    pub fn len(self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Whether the range holds no page.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether `page` is in the range.
    pub fn contains(self, page: PageNo) -> bool {
        self.start <= page && page < self.end
    }

    /// Every page of the range, in order.
    pub fn pages(self) -> impl Iterator<Item = PageNo> {
        (self.start.0..self.end.0).map(PageNo)
    }
}

/// An address space: one per process image (a fork makes a new one, an exec replaces it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub u32);

/// A page-sized frame of the staging ring: where a page lies between being taken and being folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StagingSlot(pub u32);

/// Which codec made a compressed page; stored with the page, so that several live side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodecId(pub u8);

impl CodecId {
    /// The page is stored as it is.
    pub const RAW: CodecId = CodecId(0);
}
