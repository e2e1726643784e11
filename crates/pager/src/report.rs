//! What a run tells about itself: the live status, and the final report.

use crate::latency::LatencyReport;
use crate::meters::Reading;
use pleat_engine::Counters;
use serde::Serialize;

/// How things stand, for the live status line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live {
    /// Bytes in use now by the whole job.
    pub used_bytes: u64,
    /// Bytes of the budget.
    pub budget_bytes: u64,
    /// Pages away now.
    pub pages_away: u64,
    /// Bytes used in the swap file now.
    pub swap_bytes: u64,
    /// Faults answered so far.
    pub faults: u64,
    /// Microseconds since the start.
    pub wall_us: u64,
}

/// Demand faults by the tier that answered them, in pages.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Hits {
    /// First touches, answered with zeros.
    pub zero: u64,
    /// First touches, answered with what the mapped file holds.
    pub file: u64,
    /// From the staging ring, not yet compressed.
    pub staged: u64,
    /// From the compressed cache (pages of one repeated word included).
    pub compressed: u64,
    /// From the swap file.
    pub swap: u64,
}

/// The report of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Microseconds from start to end.
    pub wall_us: u64,
    /// Bytes of the budget, the last if it was changed.
    pub budget_bytes: u64,
    /// How often the budget was changed while the job ran.
    pub budget_changes: u64,
    /// Most bytes in use at once.
    pub peak_bytes: u64,
    /// Pages taken away and folded.
    pub pages_folded: u64,
    /// Bytes of pages over bytes they were compressed to, for all folded pages that were stored;
    /// 0 when there were none.
    pub compression_ratio: f64,
    /// Demand faults by tier.
    pub hits: Hits,
    /// Microseconds that threads of the job waited for pages.
    pub stall_us: u64,
    /// How long faults took, by where their pages came from.
    pub latencies: LatencyReport,
    /// Every counter of the pager.
    pub pager: Reading,
    /// Every counter of the engine.
    pub engine: Counters,
}

impl Report {
    /// Puts a report together from the counters.
    pub fn new(wall_us: u64, pager: Reading, engine: Counters) -> Report {
        let pages = engine.folded_packed_pages + engine.folded_raw_pages;
        let stored = pages * pleat_types::PAGE_SIZE as u64;
        let ratio = match engine.folded_bytes {
            0 => 0.0,
            bytes => stored as f64 / bytes as f64,
        };
        Report {
            wall_us,
            budget_bytes: engine.budget_bytes,
            budget_changes: 0,
            peak_bytes: pager.peak_bytes,
            pages_folded: engine.taken_pages,
            compression_ratio: ratio,
            hits: Hits {
                // To the engine, pages filled from a mapped file are first touches like others.
                zero: engine.filled_zero_pages.saturating_sub(pager.file_faults),
                file: pager.file_faults,
                staged: engine.filled_staged_pages,
                compressed: engine.filled_stored_pages + engine.filled_same_pages,
                swap: engine.filled_disk_pages,
            },
            stall_us: pager.stall_us,
            latencies: LatencyReport::default(),
            pager,
            engine,
        }
    }
}
