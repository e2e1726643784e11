//! Everything the engine counts, each line with its unit; the one list that JSON and docs come from.
//!
//! Gauges say how things stand now, the rest counts events since the start and never goes down.

use serde::Serialize;

use crate::{BodyId, Engine};

/// A reading of the engine. "Now" marks gauges; everything else is a running total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Bytes of the budget.
    pub budget_bytes: u64,
    /// Bytes free now; 0 when overdrawn.
    pub free_bytes: u64,
    /// Bytes over the budget now; 0 unless overdrawn.
    pub over_bytes: u64,

    /// Pages present in a program now, leaving and stuck ones included; shared by fork: once each.
    pub resident_pages: u64,
    /// Pages now under a command to be taken away.
    pub leaving_pages: u64,
    /// Pages now present that refused to be moved.
    pub stuck_pages: u64,
    /// Pages now away, once for each process that has them.
    pub away_pages: u64,
    /// Page contents now in the staging ring.
    pub staged_pages: u64,
    /// Page contents now in the compressed cache only.
    pub stored_pages: u64,
    /// Page contents now in the compressed cache and on their way to the swap file.
    pub writing_pages: u64,
    /// Page contents now in the compressed cache that have a copy in the swap file.
    pub clean_pages: u64,
    /// Page contents now in the compressed cache as they are, because they did not compress; those of the three above.
    pub raw_pages: u64,
    /// Page contents now in the swap file only.
    pub disk_pages: u64,
    /// Page contents now kept as one repeated word.
    pub same_pages: u64,

    /// Bytes of folded pages in the compressed cache now.
    pub payload_bytes: u64,
    /// Bytes of page frames the compressed cache holds now.
    pub store_frames_bytes: u64,
    /// Bytes of the compressed cache's tables now, and of frames that it is about to give back to the system.
    pub store_metadata_bytes: u64,
    /// Bytes now in the engine's own tables: page tables, contents that are away, ghosts.
    pub engine_metadata_bytes: u64,
    /// Bytes of the swap file in use now: clusters, or blocks, with at least one page that is wanted.
    pub swap_used_bytes: u64,
    /// Bytes of these that belong to pages that are wanted.
    pub swap_live_bytes: u64,
    /// Bytes the swap file grew to.
    pub swap_high_water_bytes: u64,
    /// Bytes the compressed cache is to give up now because it was not allowed to grow.
    pub owed_bytes: u64,

    /// Demand pages that were filled with zeros.
    pub filled_zero_pages: u64,
    /// Demand pages that were thought present.
    pub filled_resident_pages: u64,
    /// Demand pages brought back from the staging ring.
    pub filled_staged_pages: u64,
    /// Demand pages decompressed from the compressed cache.
    pub filled_stored_pages: u64,
    /// Demand pages made from one repeated word.
    pub filled_same_pages: u64,
    /// Demand pages read from the swap file.
    pub filled_disk_pages: u64,
    /// Demand pages read from their own file.
    pub filled_file_pages: u64,
    /// Pages brought back because a neighbour was wanted.
    pub prefetched_pages: u64,
    /// Pages that stay longer than they would by their age, because they came back soon.
    pub spared_pages: u64,
    /// Pages that do because a neighbour came back.
    pub spared_neighbour_pages: u64,
    /// Pages chosen in a round: they came in it, and went though others are older.
    pub passed_pages: u64,
    /// Pages zeroed because a neighbour was touched for the first time.
    pub prezeroed_pages: u64,
    /// Faults answered with "wait".
    pub fault_waits: u64,
    /// Faults answered with "no memory".
    pub fault_no_memory: u64,

    /// Pages chosen to be taken away.
    pub chosen_pages: u64,
    /// Pages taken away.
    pub taken_pages: u64,
    /// Pages taken that nobody wanted any more.
    pub taken_void_pages: u64,
    /// Pages refused because they were busy.
    pub refused_busy_pages: u64,
    /// Pages refused because they were not there.
    pub refused_gone_pages: u64,
    /// Pages refused because they cannot be moved.
    pub refused_unmovable_pages: u64,
    /// Pages whose command was cancelled.
    pub refused_stale_pages: u64,

    /// Pages taken that were compared with what they were when they came back from the swap file.
    pub compared_pages: u64,
    /// Those of them that were the same.
    pub unchanged_pages: u64,
    /// Clean pages that left memory without being folded.
    pub dropped_pages: u64,
    /// Changed pages of files written back to their file before they left.
    pub written_back_pages: u64,

    /// Clean pages that entered the compressed cache.
    pub clean_stored_pages: u64,
    /// Clean pages wanted while they were in it.
    pub clean_reclaimed_pages: u64,
    /// Clean pages dropped from it without being wanted.
    pub clean_released_pages: u64,
    /// Clean pages that the admission rule kept out of it.
    pub clean_refused_pages: u64,
    /// Times compression of clean pages was switched off (castro03, section 2.3.4).
    pub clean_switches: u64,
    /// Pages that left memory while it was off.
    pub clean_off_pages: u64,
    /// Pages that did not compress and were passed on to the backing store.
    pub passed_on_pages: u64,

    /// Pages folded into one repeated word.
    pub folded_same_pages: u64,
    /// Pages folded into fewer bytes.
    pub folded_packed_pages: u64,
    /// Pages that did not compress and were kept as they are.
    pub folded_raw_pages: u64,
    /// Pages folded after nobody wanted them any more.
    pub folded_void_pages: u64,
    /// Bytes that folding left of the packed and raw pages.
    pub folded_bytes: u64,

    /// Cold pages compressed once more.
    pub recompressed_pages: u64,
    /// Cold pages compressed once more that were gone meanwhile.
    pub recompressed_void_pages: u64,
    /// Bytes that compressing once more saved.
    pub recompressed_saved_bytes: u64,

    /// Demand pages found on the expense list (castro03, section 3).
    pub expense_hits: u64,
    /// Demand pages found on the profit list.
    pub profit_hits: u64,
    /// Times the sizing policy let the compressed cache grow.
    pub growths: u64,
    /// Times it did not, so that the oldest pages have to go.
    pub growths_denied: u64,
    /// Times the sizing policy locked growth.
    pub growth_locks: u64,
    /// Times it unlocked growth.
    pub growth_unlocks: u64,
    /// Times a cell was freed by relocation on the policy's advice.
    pub shrinks_relocated: u64,
    /// Times the oldest page was given up instead.
    pub shrinks_released: u64,
    /// Pages that left the compressed cache against the sizing policy's word: memory was short, and nothing resident
    /// anywhere could go, or too little.
    pub forced_starved_pages: u64,
    /// Pages that did because the budget was overdrawn while pages were shared since a fork.
    pub forced_overdrawn_pages: u64,
    /// Pages that did because the compressed cache would have taken all of the budget.
    pub forced_whole_pages: u64,
    /// Cells compacted by the layout.
    pub compactions: u64,
    /// Items moved to another cell by the layout.
    pub relocations: u64,

    /// Clusters planned.
    pub writes_planned: u64,
    /// Clusters written.
    pub writes_done: u64,
    /// Clusters whose write failed.
    pub writes_failed: u64,
    /// Pages written.
    pub written_pages: u64,
    /// Bytes written, padding included, and what was moved.
    pub written_bytes: u64,
    /// Pages moved within the swap file, out of mostly dead clusters.
    pub moved_pages: u64,
    /// Bytes written for that.
    pub moved_bytes: u64,
    /// Mostly dead clusters from which what was wanted was moved.
    pub collected_clusters: u64,
    /// Bytes of the swap file given back to the disk.
    pub punched_bytes: u64,
    /// Pages read from the swap file because a neighbour was wanted.
    pub read_ahead_pages: u64,
    /// Such pages that were wanted soon afterwards.
    pub read_ahead_used_pages: u64,
    /// Such pages that were not.
    pub read_ahead_wasted_pages: u64,
}

impl Counters {
    /// Page contents that are away now, wherever they are.
    pub fn contents_away(&self) -> u64 {
        self.staged_pages
            + self.stored_pages
            + self.writing_pages
            + self.disk_pages
            + self.same_pages
    }

    /// Pages that left the compressed cache against the sizing policy's word, for whatever reason.
    pub fn forced_pages(&self) -> u64 {
        self.forced_starved_pages + self.forced_overdrawn_pages + self.forced_whole_pages
    }

    /// Pages that have come back.
    pub(crate) fn back_pages(&self) -> u64 {
        self.prefetched_pages + self.returned_pages()
    }

    /// Pages that have come back because somebody waited for them.
    pub fn returned_pages(&self) -> u64 {
        self.filled_staged_pages
            + self.filled_stored_pages
            + self.filled_same_pages
            + self.filled_disk_pages
            + self.filled_file_pages
    }
}

impl Engine {
    /// Everything counted so far, and how things stand now.
    pub fn counters(&self) -> Counters {
        let bodies = self.cache.bodies.counts();
        let usage = self.cache.layout.usage();
        let swap = self.cache.swap.as_ref();
        let space = swap.map(|swap| &swap.space);
        let free = self.free_bytes();
        Counters {
            budget_bytes: self.settings.budget_bytes,
            free_bytes: free.max(0) as u64,
            over_bytes: free.min(0).unsigned_abs(),
            resident_pages: self.pages.present(),
            leaving_pages: self.pages.leaving,
            stuck_pages: self.pages.stuck,
            away_pages: self.pages.away,
            staged_pages: bodies.staged,
            stored_pages: bodies.stored,
            writing_pages: bodies.writing,
            clean_pages: bodies.clean,
            raw_pages: bodies.raw,
            disk_pages: bodies.disk,
            same_pages: bodies.same,
            payload_bytes: usage.payload_bytes,
            store_frames_bytes: usage.frames_bytes,
            store_metadata_bytes: usage.metadata_bytes,
            compactions: usage.compactions,
            relocations: usage.relocations,
            swap_used_bytes: space.map_or(0, |space| space.used_bytes()),
            swap_live_bytes: swap.map_or(0, |swap| swap.live_bytes()),
            swap_high_water_bytes: space.map_or(0, |space| space.high_water_bytes()),
            read_ahead_used_pages: self.cache.landing.ahead_used,
            read_ahead_wasted_pages: self.cache.landing.ahead_wasted,
            owed_bytes: self.cache.debt.total(),
            engine_metadata_bytes: self.metadata_bytes(),
            clean_switches: self.cache.admission.switches(),
            growth_locks: self.cache.sizing.locks().0,
            growth_unlocks: self.cache.sizing.locks().1,
            ..self.cache.totals
        }
    }

    /// Bytes of the engine's own tables, those of the compressed cache's layout excluded.
    fn metadata_bytes(&self) -> u64 {
        let cache = &self.cache;
        let tables: u64 = self
            .spaces
            .values()
            .map(|space| space.metadata_bytes())
            .sum();
        tables
            + cache.bodies.metadata_bytes()
            + cache.order.metadata_bytes()
            + cache.ghosts.metadata_bytes()
            + cache.admission.metadata_bytes()
            + cache.swap.as_ref().map_or(0, |swap| swap.metadata_bytes())
            + (cache.owners.capacity() * size_of::<BodyId>()) as u64
    }
}
