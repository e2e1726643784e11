//! What the engine and its driver say to each other: settings, questions and answers.
//!
//! Plain data without behaviour. Sizes are in bytes unless a name says pages.

use pleat_types::{CodecId, StagingSlot};

/// How an engine is set up; afterwards only the budget changes, with what is kept free of it ([`crate::Engine::set_budget`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Memory the job and its supervisor may use together.
    pub budget_bytes: u64,
    /// Free memory below which pages are taken away (the low watermark); taking stops at twice that.
    pub reserve_bytes: u64,
    /// Free memory that only urgent faults may use: headroom for memory that the job takes without
    /// asking, until it is measured. At most the reserve; less as soon as the driver knows better
    /// ([`crate::Engine::expect_growth`]), and then the reserve is as much less.
    pub floor_bytes: u64,
    /// Most pages put in place per fault, the faulted one included. At least 1.
    pub run_max: u32,
    /// The swap file, when there is one. Without it the compressed cache always grows.
    pub swap: Option<SwapSettings>,
    /// The driver reports every write to memory with `touch`, and sends chosen pages away before anything
    /// else happens. Then pages read from the swap file keep their copy there until they are written to;
    /// else they are taken for changed at once.
    pub tracks_writes: bool,
    /// What leaves the compressed cache, and when it is written.
    pub write_out: WriteOut,
    /// Neighbours of a page that comes back come along where they are likely to be wanted soon, in spaces whose
    /// uses are not reported. The driver asks for them with [`crate::Engine::neighbours`].
    pub brings_neighbours: bool,
    /// The driver compares what pages read from the swap file were with what they are when they are taken
    /// ([`crate::Engine::remember`], [`crate::Engine::taken_to_compare`]): those that are the same are not written
    /// again. Without effect where writes are reported.
    pub keeps_copies: bool,
    /// Folded pages keep a checksum in memory, by which a driver sees that memory was damaged.
    pub checks: bool,
}

/// What leaves the compressed cache, and when it is written to the swap file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOut {
    /// The oldest page, when something has to go: written, then dropped at once (castro03, section 2.1).
    OnDemand,
    /// The oldest pages are written before something has to go, and stay until then, so that this share
    /// of the cache can be dropped at once. Pages read from the swap file enter the cache, too
    /// (douglis93, sections 4.1 and 4.2).
    Ahead {
        /// Per cent of the cache's bytes.
        clean_percent: u8,
    },
    /// All full buffers together, once this share of the cache's buffers are full, exactly as they
    /// lie in memory; they stay until their room is needed (cervera99, section 3.4). Needs a layout
    /// of buffers.
    Buffers {
        /// Per cent of the buffers: the cleaning threshold.
        threshold_percent: u8,
    },
}

/// Pages of one space by where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpacePages {
    /// Present, those on their way out included.
    pub resident: u64,
    /// Present, and refused to be moved.
    pub stuck: u64,
    /// In the staging ring, the compressed cache or the swap file.
    pub away: u64,
}

/// What is known of a page that may be chosen to go, where the driver does not report uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victims {
    /// When it came: first in, first out.
    Fifo,
    /// Also how soon it came back after it left, whether its neighbours do (`lives.rs`), and what became of one of
    /// its region that left first (`scouts.rs`).
    Lives,
}

/// How the swap file is divided (douglis93 writes fragments of 1 KiB in clusters of 32 KiB).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapSettings {
    /// A page takes a whole number of fragments of so many bytes; a power of two.
    pub fragment_bytes: u32,
    /// Most bytes written at once; at least 8192.
    pub cluster_bytes: u32,
    /// What becomes free at once.
    pub unit: SwapUnit,
    /// Whether a page may begin in one block of 4 KiB and end in the next.
    pub spans_blocks: bool,
    /// Bytes that the driver adds to each page, at its end, where there is room.
    pub overhead_bytes: u32,
    /// Most pages read for one fault, all written together; 1: only the one that is wanted.
    pub ahead_max: u32,
    /// There are so many per cent as many places for compressed pages as blocks of 4 KiB in the file,
    /// and every page whose length is not known yet counts as a whole block (cervera99, sections 3.2
    /// and 4.4). Has a meaning only with `max_bytes`.
    pub virtual_percent: Option<u32>,
    /// So many bytes of the file that hold nothing are let be, however little it holds.
    pub slack_bytes: u64,
    /// Largest size of the file; `None`: as large as the disk allows.
    pub max_bytes: Option<u64>,
}

/// What part of the swap file becomes free at once, when nobody wants the last page in it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapUnit {
    /// A cluster. What is wanted of mostly dead ones is written again elsewhere (douglis93, section 4.3).
    Cluster,
    /// A block of 4 KiB. Nothing is ever moved (castro03; cervera99, section 3.3).
    Block,
}

/// Names the content of a page that is away, from `taken` until nobody wants it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyId(pub u32);

/// The compressed cache cannot hold one more page: it would need more than the addresses that its layout has, over
/// twice the budget. Pages shared by many forked processes come to that, when each of them leaves a compressed copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "compressed pages take over twice the memory of the job, and there is no room for more: \
     give it more memory, or a swap file"
)]
pub struct CacheFull;

/// What to do about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAnswer {
    /// Put the pages of the plan in place, then call `filled`.
    Fill,
    /// Read `plan.reads` from the swap file, call `landed` for each of them, and ask again.
    Read,
    /// A command to take a page from this address is under way: ask again after `taken` or `refused`.
    Wait,
    /// There is not even one page free and the fault is not urgent: ask again when there is.
    NoMemory,
}

/// One folded page in the swap file: whose content it is, and which of all that were ever written.
///
/// It may be given up, and its place written to again, while it is read; `landed` and `is_current` tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadItem {
    /// Whose content it is.
    pub body: BodyId,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Exact length of the folded page.
    pub len: u32,
    /// Bytes it was given in the file; at least `len`.
    pub room: u32,
    /// Which codec made it.
    pub codec: CodecId,
    /// Number of the write that carried it; writes that fill a cluster together have one.
    pub serial: u64,
}

impl ReadItem {
    /// First byte in the file after its room.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.room)
    }
}

/// Contiguous pages to put in place, the faulted one first. Reuse one value: it keeps its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FillPlan {
    /// One item per page, in address order.
    pub items: Vec<FillItem>,
    /// Copies of the folded bytes that [`FillItem::Packed`] points into.
    pub bytes: Vec<u8>,
    /// What to read first, in the order in which it lies in the file: the page that is wanted, then
    /// others that were written with it.
    pub reads: Vec<ReadItem>,
}

impl FillPlan {
    /// Nothing is to be done, in the same memory.
    pub fn clear(&mut self) {
        self.items.clear();
        self.bytes.clear();
        self.reads.clear();
    }
}

/// What one page is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillItem {
    /// Nothing but zeros: the page is touched for the first time (or again after being given up).
    Zero,
    /// Read it from its file.
    File,
    /// The engine thinks the page present: put zeros there unless it is. It is not chosen to be taken
    /// until `filled`.
    Resident,
    /// This word, repeated.
    Same(u64),
    /// What lies in this slot of the staging ring. The slot must stay untouched until `filled`,
    /// even if `folded` is called for its body meanwhile.
    Staged(StagingSlot),
    /// `plan.bytes[start..start + len]`, decompressed.
    Packed {
        /// Which codec made the bytes.
        codec: CodecId,
        /// First byte in `plan.bytes`.
        start: u32,
        /// Number of bytes.
        len: u32,
        /// Their checksum when they were folded, where the engine keeps that.
        check: Option<u64>,
        /// Once the page is in place, its fingerprint is to be remembered ([`crate::Engine::remember`]).
        compares: bool,
    },
}

/// How a page that was chosen to go leaves memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayOut {
    /// To be folded: `taken`.
    Take,
    /// It can be had again, and is not wanted in the compressed cache: `dropped`.
    Drop,
    /// It belongs to a file and was changed: write it there, report `cleaned`, ask again.
    WriteBack,
}

/// Why a page could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// In use just now: it stays and is the youngest again.
    Busy,
    /// There is no page at that address: unknown from now on.
    Gone,
    /// Pinned or of a kind that cannot be moved: not chosen again until filled or adopted again.
    Unmovable,
    /// The command was cancelled before it was carried out: it stays as old as it was.
    Stale,
}

/// One cluster to be written to the swap file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WritePlan {
    /// Number of this write: that of the one before if it fills the same cluster, else larger than every other.
    pub serial: u64,
    /// Where to write in the file, in bytes; a multiple of 4096.
    pub offset: u64,
    /// How many bytes to write, a multiple of 4096.
    pub len: u32,
    /// What to write: zeros between the pages. The driver may take it once it has it elsewhere.
    pub bytes: Vec<u8>,
    /// The pages in it, oldest first.
    pub items: Vec<WriteItem>,
}

/// One folded page of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteItem {
    /// Whose content it is.
    pub body: BodyId,
    /// First byte in `plan.bytes`, a multiple of the fragment size.
    pub start: u32,
    /// Exact length of the folded page in bytes.
    pub len: u32,
    /// Bytes from `start` on that are this page's; at least `len`.
    pub room: u32,
    /// Which codec made it.
    pub codec: CodecId,
    /// Checksum of the folded page when it was folded, where the engine keeps that.
    pub check: Option<u64>,
    /// It was in the swap file before, there.
    pub moved_from: Option<ReadItem>,
}

/// A copy of a page in the compressed cache, to be compressed again. Reuse one value: it keeps its
/// memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColdPage {
    /// Tells this copy from every other.
    pub(crate) ticket: u64,
    /// Which codec made the bytes.
    pub codec: CodecId,
    /// Checksum of the folded page when it was folded, where the engine keeps that.
    pub check: Option<u64>,
    /// The folded page.
    pub bytes: Vec<u8>,
}

impl Default for ColdPage {
    fn default() -> Self {
        ColdPage {
            ticket: 0,
            codec: CodecId::RAW,
            check: None,
            bytes: Vec::new(),
        }
    }
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Every byte is in the file.
    Done,
    /// Nothing of it may be relied on.
    Failed,
}
