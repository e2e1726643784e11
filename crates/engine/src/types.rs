//! What the engine and its driver say to each other: settings, questions and answers.
//!
//! Plain data without behaviour. Sizes are in bytes unless a name says pages.

use pleat_types::{CodecId, StagingSlot};

/// How an engine is set up; nothing here changes afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Memory the job and its supervisor may use together.
    pub budget_bytes: u64,
    /// Free memory below which pages are taken away (the low watermark); taking stops at twice that.
    pub reserve_bytes: u64,
    /// Free memory that only urgent faults may use: headroom for memory that the job takes without
    /// asking, until it is measured. At most the reserve.
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

/// How the swap file is divided (douglis93 writes fragments of 1 KiB in clusters of 32 KiB).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapSettings {
    /// Unit of allocation in the file; a page takes a whole number of them.
    pub fragment_bytes: u32,
    /// Most bytes written at once; at least 4096 rounded up to whole fragments.
    pub cluster_bytes: u32,
    /// Largest size of the file; `None`: as large as the disk allows.
    pub max_bytes: Option<u64>,
}

/// Names the content of a page that is away, from `taken` until nobody wants it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyId(pub u32);

/// What to do about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAnswer {
    /// Put the pages of the plan in place, then call `filled`.
    Fill,
    /// Read this from the swap file, decompress it, put the one page in place, then call `filled`.
    Read(ReadRequest),
    /// A command to take a page from this address is under way: ask again after `taken` or `refused`.
    Wait,
    /// There is not even one page free and the fault is not urgent: ask again when there is.
    NoMemory,
}

/// One folded page in the swap file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Whose content it is.
    pub body: BodyId,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Exact length of the folded page.
    pub bytes: u32,
    /// Which codec made it.
    pub codec: CodecId,
}

/// Contiguous pages to put in place, the faulted one first. Reuse one value: it keeps its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FillPlan {
    /// One item per page, in address order.
    pub items: Vec<FillItem>,
    /// Copies of the folded bytes that [`FillItem::Packed`] points into.
    pub bytes: Vec<u8>,
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

/// One cluster to be written to the swap file. Reuse one value per writer: it keeps its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WritePlan {
    /// Where to write in the file, in bytes.
    pub offset: u64,
    /// What to write: whole fragments, zeros between the pages.
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
}

/// A copy of a page in the compressed cache, to be compressed again. Reuse one value: it keeps its
/// memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColdPage {
    /// Tells this copy from every other.
    pub(crate) ticket: u64,
    /// Which codec made the bytes.
    pub codec: CodecId,
    /// The folded page.
    pub bytes: Vec<u8>,
}

impl Default for ColdPage {
    fn default() -> Self {
        ColdPage {
            ticket: 0,
            codec: CodecId::RAW,
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
