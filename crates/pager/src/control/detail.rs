//! What is told to who watches a job: its memory by tier, what it has done so far, and its processes. `docs/control.md` explains
//! every field; a test there compares the two.

use super::Status;
use serde::{Deserialize, Serialize};

/// One number of many of a kind.
pub struct Figure<T> {
    /// As it is called in the answer.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub meaning: &'static str,
    /// Reads it.
    pub of: fn(&T) -> u64,
}

/// A structure of numbers, each with the sentence that explains it.
macro_rules! figures {
    (
        $(#[$about:meta])*
        pub struct $name:ident { $($(#[doc = $doc:literal])+ pub $field:ident: u64,)+ }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name { $($(#[doc = $doc])+ pub $field: u64,)+ }

        impl $name {
            /// All of them, in their order.
            pub const FIGURES: &'static [Figure<$name>] = &[$(Figure {
                name: stringify!($field),
                meaning: concat!($($doc),+),
                of: |all| all.$field,
            },)+];
        }
    };
}

/// A job, looked at closely.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detail {
    /// How it stands.
    #[serde(flatten)]
    pub status: Status,
    /// Where its memory is now.
    pub tiers: Tiers,
    /// What it has done since it began.
    pub totals: Totals,
    /// Its processes, those with most memory where there are more than can be told.
    pub rows: Vec<Row>,
    /// How many processes are not among `rows`.
    pub rows_left_out: u64,
}

figures! {
    /// Where the memory of a job is now, in bytes. All but `swap_bytes` and `swap_file_bytes` add up to `used_bytes`, nearly: what is
    /// shared since a fork is counted as the kernel does.
    pub struct Tiers {
        /// Memory of programs that can be compressed, and is not.
        pub uncompressed_bytes: u64,
        /// Pages on their way from there: taken away, not yet compressed.
        pub staged_bytes: u64,
        /// Memory of compressed pages, with its tables.
        pub compressed_bytes: u64,
        /// Memory of pages that were taken away and did not compress.
        pub raw_bytes: u64,
        /// Mapped files, and the page cache of mounts, as far as they count.
        pub file_bytes: u64,
        /// What cannot be compressed: shared and locked memory, processes that are not managed, what the kernel has for processes.
        pub unfoldable_bytes: u64,
        /// Memory of pleat itself.
        pub own_bytes: u64,
        /// Memory of programs that is in the swap file only, before compression.
        pub swap_bytes: u64,
        /// What the swap file has in use.
        pub swap_file_bytes: u64,
    }
}

figures! {
    /// What a job has done since it began. Nothing here ever goes down but `kept_pages` and `kept_bytes`, which are as of now.
    pub struct Totals {
        /// Faults answered.
        pub faults: u64,
        /// Pages filled with zeros at first touch.
        pub zero_pages: u64,
        /// Pages filled at first touch with what a mapped file holds.
        pub file_pages: u64,
        /// Pages that came back before they were compressed.
        pub staged_pages: u64,
        /// Pages that came back from compressed memory.
        pub compressed_pages: u64,
        /// Pages that came back from the swap file.
        pub swap_pages: u64,
        /// Pages taken away.
        pub taken_pages: u64,
        /// Microseconds that threads of the job waited for pages, all threads added up.
        pub stall_us: u64,
        /// Microseconds that threads of the job waited because it was the turn of others.
        pub rested_us: u64,
        /// Microseconds of CPU time spent compressing.
        pub fold_us: u64,
        /// Bytes read from the swap file because somebody waited for them.
        pub swap_read_bytes: u64,
        /// Bytes written to the swap file.
        pub swap_written_bytes: u64,
        /// Pages that are in compressed memory now, those of one repeated word left out.
        pub kept_pages: u64,
        /// Bytes that the pages in compressed memory now were compressed to.
        pub kept_bytes: u64,
    }
}

/// Whether pages of a process can be taken away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Managed {
    /// Yes.
    Yes,
    /// Not yet: while memory is plenty nothing is done to it.
    #[default]
    Later,
    /// No.
    No,
}

/// A process of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its process id.
    pub pid: i32,
    /// Its parent.
    pub ppid: i32,
    /// Its name, of 15 letters at most.
    pub name: String,
    /// Whether its pages can be taken away: `yes`, `later` (memory is plenty) or `no`.
    pub managed: Managed,
    /// Why not, where that is known, with the remedy; else null.
    pub why: Option<String>,
    /// Memory of it that can be compressed, and is not.
    pub resident_bytes: u64,
    /// Memory of it that is compressed or in the swap file, before compression.
    pub away_bytes: u64,
    /// Memory of it that cannot be compressed. Shared memory counts whole in each process.
    pub unfoldable_bytes: u64,
    /// Microseconds that its threads waited for pages.
    pub stall_us: u64,
    /// Whether it rests now, because it is the turn of others.
    pub rests: bool,
}
