//! How densely a preset fills its swap file: pages go through a real engine and a real codec until all
//! of them are in the file, and its bytes are counted. No time passes here and nothing is written.

use std::sync::Arc;

use pleat_codec::{Choice, Folded, Folder, PageKind};
use pleat_engine::{
    Counters, Engine, FaultAnswer, FillPlan, Preset, Settings, WayOut, WriteOutcome, WritePlan,
};
use pleat_types::{Page, PageNo, PageRange, SpaceId, StagingSlot, PAGE_SIZE};

const PAGE: u64 = PAGE_SIZE as u64;
/// So many pages go in at least, a small sample several times: a cluster that is not full at the end
/// would weigh too much in a small file.
const PAGES_MIN: usize = 16384;
/// Memory is this part of the pages.
const MEMORY_SHARE: u64 = 8;
const MEMORY_MIN: u64 = 1 << 20;
/// Clusters are those of a job with so much memory, however few pages are sent.
const JOB_BYTES: u64 = 1 << 30;
/// What `pleat run` adds to each page in the file, where there is room: it is encrypted.
const SEALED_BYTES: u32 = 16;
/// Pages taken in one go.
const BATCH: usize = 32;
/// A limit on what can only go wrong by a bug: rounds of taking and writing without any progress.
const IDLE_ROUNDS_MAX: u32 = 64;

/// What a swap file holds when all has gone there that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Density {
    /// Pages that have left memory: those in the file, and those that need no room there.
    pub pages: u64,
    /// Of these, pages of one repeated word, which are kept without any bytes.
    pub same_pages: u64,
    /// Bytes that folding left of those in the file.
    pub folded_bytes: u64,
    /// Bytes of the file that are allocated.
    pub used_bytes: u64,
    /// Bytes the file grew to.
    pub file_bytes: u64,
    /// Pages that the preset did not let go: they are counted nowhere else.
    pub kept_pages: u64,
}

impl Density {
    /// Both files together.
    pub fn and(&self, other: &Density) -> Density {
        Density {
            pages: self.pages + other.pages,
            same_pages: self.same_pages + other.same_pages,
            folded_bytes: self.folded_bytes + other.folded_bytes,
            used_bytes: self.used_bytes + other.used_bytes,
            file_bytes: self.file_bytes + other.file_bytes,
            kept_pages: self.kept_pages + other.kept_pages,
        }
    }

    /// Pages for every MiB of the file.
    pub fn pages_per_mib(&self) -> f64 {
        self.pages as f64 * (1 << 20) as f64 / self.file_bytes.max(1) as f64
    }

    /// How many times as much the file holds as one of 4 KiB slots, a slot for every page.
    pub fn gain(&self) -> f64 {
        (self.pages * PAGE) as f64 / self.file_bytes.max(1) as f64
    }

    /// The same, had none of the pages been of one repeated word.
    pub fn gain_without_same(&self) -> f64 {
        let pages = self.pages - self.same_pages;
        (pages * PAGE) as f64 / self.file_bytes.max(1) as f64
    }

    /// What the file would take without any gap, as a part of what it takes; 1 for a file of nothing.
    pub fn share_of_ideal(&self) -> f64 {
        match self.file_bytes {
            0 => 1.0,
            bytes => self.folded_bytes as f64 / bytes as f64,
        }
    }
}

/// Sends all `pages` to the swap file of `preset`, in their order and several times when they are few.
///
/// # Errors
/// A message that names the remedy, when a part of the preset cannot be had.
pub fn density(preset: &Preset, pages: &[Page]) -> Result<Density, String> {
    let sample = Sample::fold(preset, pages)?;
    let rounds = PAGES_MIN.div_ceil(pages.len().max(1));
    let total = (pages.len() * rounds) as u64;
    let mut filler = Filler::new(preset, total * PAGE)?;
    for page in 0..total {
        filler.bring_in(PageNo(page));
        filler.reclaim(&sample)?;
    }
    filler.empty(&sample)?;
    Ok(filler.outcome(total))
}

/// Pages as the codec left them.
struct Sample(Vec<(Folded, Vec<u8>)>);

impl Sample {
    /// By a codec that has seen all pages once before, and so has learnt what it can.
    fn fold(preset: &Preset, pages: &[Page]) -> Result<Sample, String> {
        let choice = Choice::parse(&preset.codec).map_err(|error| error.to_string())?;
        let choice = Arc::new(choice);
        let mut folder = Folder::new(&choice);
        let mut out = [0; PAGE_SIZE];
        for page in pages {
            folder.fold(page, PageKind::Anonymous, &mut out);
        }
        choice.learn();
        let folded = pages.iter().map(|page| {
            let folded = folder.fold(page, PageKind::Anonymous, &mut out);
            let len = match folded {
                Folded::Same(_) => 0,
                Folded::Bytes { len, .. } => len,
            };
            (folded, out[..len].to_vec())
        });
        Ok(Sample(folded.collect()))
    }

    fn of(&self, page: PageNo) -> (Folded, &[u8]) {
        let (folded, bytes) = &self.0[page.0 as usize % self.0.len()];
        (*folded, bytes)
    }
}

/// An engine, and what is around it: here nothing but buffers.
struct Filler {
    engine: Engine,
    space: SpaceId,
    plan: FillPlan,
    write: WritePlan,
    victims: Vec<(SpaceId, PageNo)>,
}

impl Filler {
    fn new(preset: &Preset, bytes: u64) -> Result<Filler, String> {
        let budget_bytes = (bytes / MEMORY_SHARE).max(MEMORY_MIN);
        let settings = Settings {
            budget_bytes,
            reserve_bytes: budget_bytes / 16,
            floor_bytes: 0,
            run_max: 1,
            swap: Some(preset.swap(JOB_BYTES, None, SEALED_BYTES)),
            tracks_writes: false,
            write_out: preset.write_out,
            brings_neighbours: false,
            keeps_copies: false,
            checks: false,
        };
        let mut engine = Engine::new(settings, preset.parts(budget_bytes)?);
        Ok(Filler {
            space: engine.add_space(),
            engine,
            plan: FillPlan::default(),
            write: WritePlan::default(),
            victims: Vec::new(),
        })
    }

    /// The program writes to a new page.
    fn bring_in(&mut self, page: PageNo) {
        let answer = self.engine.fault(self.space, page, true, &mut self.plan);
        assert_eq!(answer, FaultAnswer::Fill, "{page:?} was never there");
        self.engine.filled(self.space, PageRange::new(page, 1));
    }

    /// Takes and writes as long as the engine wants frames and gets some.
    fn reclaim(&mut self, sample: &Sample) -> Result<(), String> {
        let mut idle = 0;
        while self.engine.frames_wanted() > 0 && idle < IDLE_ROUNDS_MAX {
            let took = self.take(sample)?;
            let wrote = self.engine.write_wanted() && self.write();
            idle = if took || wrote { 0 } else { idle + 1 };
        }
        Ok(())
    }

    /// Takes a batch of the oldest pages; answers whether there was one.
    fn take(&mut self, sample: &Sample) -> Result<bool, String> {
        let mut victims = std::mem::take(&mut self.victims);
        let takers = [(self.space, u32::MAX)];
        self.engine.choose_victims(&takers, BATCH, &mut victims);
        let any = !victims.is_empty();
        for (space, page) in victims.drain(..) {
            let way = self.engine.way_out(space, page);
            assert_eq!(way, WayOut::Take, "{page:?} has been written to");
            if let Some(body) = self.engine.taken(space, page, StagingSlot(0)) {
                let (folded, bytes) = sample.of(page);
                let stored = self.engine.folded(body, folded, bytes);
                stored.map_err(|full| full.to_string())?;
            }
        }
        self.victims = victims;
        Ok(any)
    }

    /// Writes a cluster; answers whether there was one.
    fn write(&mut self) -> bool {
        let planned = self.engine.plan_write(&mut self.write);
        if planned {
            self.engine.write_done(&self.write, WriteOutcome::Done);
        }
        planned
    }

    /// Somebody else takes all the memory: every page has to go, and the compressed cache as well. What
    /// is left when nothing moves any more, the preset keeps.
    fn empty(&mut self, sample: &Sample) -> Result<(), String> {
        let budget_bytes = self.engine.counters().budget_bytes;
        let mut before = None;
        let mut now = in_memory(&self.engine.counters());
        while before != Some(now) {
            self.engine.measured(4 * budget_bytes);
            self.take(sample)?;
            self.write();
            before = Some(std::mem::replace(
                &mut now,
                in_memory(&self.engine.counters()),
            ));
        }
        Ok(())
    }

    fn outcome(&self, total: u64) -> Density {
        let counters = self.engine.counters();
        let kept_pages = counters.resident_pages + counters.stored_pages;
        debug_assert_eq!(counters.clean_pages, 0, "memory was short for both copies");
        Density {
            pages: total - kept_pages,
            same_pages: counters.same_pages,
            folded_bytes: counters.folded_bytes - counters.payload_bytes,
            used_bytes: counters.swap_used_bytes,
            file_bytes: counters.swap_high_water_bytes,
            kept_pages,
        }
    }
}

/// Pages in memory, and bytes in the compressed cache.
fn in_memory(counters: &Counters) -> (u64, u64, u64) {
    let Counters {
        resident_pages,
        stored_pages,
        payload_bytes,
        ..
    } = *counters;
    (resident_pages, stored_pages, payload_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pleat_engine::{preset, preset_names};

    /// A page of noise of its own.
    fn noise(seed: u64) -> Page {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        std::array::from_fn(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
    }

    /// One page of zeros, one of noise, six that begin with some noise.
    fn sample() -> Vec<Page> {
        let page = |number: usize| {
            let mut page = noise(number as u64);
            page[number * 400..].fill(0);
            page
        };
        let mut pages: Vec<Page> = (0..7).map(page).collect();
        pages.push(noise(99));
        pages
    }

    fn density_of(name: &str, pages: &[Page]) -> Density {
        density(&preset(name).unwrap(), pages).unwrap()
    }

    #[test]
    fn without_compression_a_page_takes_a_slot_and_one_of_zeros_none() {
        let found = density_of("none", &sample());
        assert_eq!(found.pages, PAGES_MIN as u64);
        assert_eq!(found.kept_pages, 0);
        assert_eq!(found.same_pages, found.pages / 8);
        assert_eq!(found.folded_bytes, found.used_bytes);
        assert_eq!(found.used_bytes, (found.pages - found.same_pages) * PAGE);
        assert_eq!(found.gain_without_same(), 1.0);
        assert_eq!(found.gain(), 8.0 / 7.0);
        assert_eq!(found.pages_per_mib(), 256.0 * 8.0 / 7.0);
        assert_eq!(found.share_of_ideal(), 1.0);
    }

    #[test]
    fn every_preset_sends_nearly_all_pages_there_and_none_takes_less_than_they_fold_to() {
        for name in preset_names() {
            let found = density_of(name, &sample());
            assert_eq!(found.pages + found.kept_pages, PAGES_MIN as u64, "{name}");
            assert!(found.kept_pages <= found.pages / 100, "{name}: {found:?}");
            assert!(found.folded_bytes <= found.used_bytes, "{name}: {found:?}");
            assert!(found.used_bytes <= found.file_bytes, "{name}: {found:?}");
            assert!(found.share_of_ideal() > 0.3, "{name}: {found:?}");
        }
    }

    #[test]
    fn the_size_of_a_fragment_is_what_a_small_page_costs() {
        let mut page = noise(1);
        page[900..].fill(0);
        let coarse = density_of("castro03/fragment=4096", &[page]);
        let fine = density_of("castro03/fragment=1024", &[page]);
        assert_eq!(coarse.gain(), 1.0);
        assert!(fine.gain() > 3.9, "{fine:?}");
        assert_eq!(coarse.folded_bytes, fine.folded_bytes);
    }

    #[test]
    fn a_sample_of_zeros_needs_no_file() {
        let found = density_of("pleat", &[[0; PAGE_SIZE]; 3]);
        assert_eq!((found.file_bytes, found.share_of_ideal()), (0, 1.0));
        assert_eq!(found.same_pages, found.pages);
    }
}
