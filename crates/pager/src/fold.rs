//! Folding: compressing staged pages into the store, away from the program's threads. A folding thread that is awake
//! helps to answer faults as well (`parallel.rs`).

use crate::ends::Failure;
use crate::folds::{FoldJob, BATCH};
use crate::parallel::{help, Buffers, Tools};
use crate::profile::{EvictionPart, FaultClock};
use crate::reclaim;
use crate::shared::Shared;
use crate::vigil::Vigil;
use pleat_backing::{checksum, Fingerprint};
use pleat_codec::{Folded, Folder};
use pleat_engine::{CacheFull, ColdPage, FillItem};
use pleat_sys::process::give_back_free_memory;
use pleat_types::{Page, PAGE_SIZE};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long what learning took stays counted: every thread makes its own tables of what was learnt.
const SETTLE: Duration = Duration::from_secs(2);
const SLEEP: Duration = Duration::from_millis(500);

/// A folder with its buffers; one per thread.
pub struct Press {
    folder: Folder,
    jobs: Vec<FoldJob>,
    /// Jobs of pages for which there was no place: they stay in their rings, and keep them.
    unplaced: Vec<FoldJob>,
    results: Vec<Folded>,
    bytes: Vec<[u8; 4096]>,
    /// The page being folded.
    page: Box<Page>,
    /// A page that is compressed again.
    cold: ColdPage,
    /// When this thread let the codec learn.
    learnt: Option<Instant>,
    /// For faults that are answered at the same time as others.
    buffers: Buffers,
    clock: FaultClock,
}

impl Press {
    /// A press for the job's codec.
    pub fn new(shared: &Shared) -> Press {
        Press {
            folder: Folder::new(&shared.codec),
            jobs: Vec::with_capacity(BATCH),
            unplaced: Vec::new(),
            results: Vec::with_capacity(BATCH),
            bytes: vec![[0; 4096]; BATCH],
            page: Box::new([0; PAGE_SIZE]),
            cold: ColdPage::default(),
            learnt: None,
            buffers: Buffers::default(),
            clock: FaultClock::new(shared.profile.as_ref()),
        }
    }

    /// The folder, for unfolding.
    pub fn folder(&mut self) -> &mut Folder {
        &mut self.folder
    }

    /// What it takes to answer faults at the same time as others, timed by the clock of the caller.
    pub fn tools<'a>(&'a mut self, shared: &'a Shared, clock: &'a mut FaultClock) -> Tools<'a> {
        Tools {
            shared,
            folder: &mut self.folder,
            buffers: &mut self.buffers,
            clock,
        }
    }

    /// Takes part in answering faults, if there are any to share. Answers whether it has answered some.
    pub(crate) fn help(&mut self, shared: &Shared) -> bool {
        shared.batches.is_any()
            && help(&mut Tools {
                shared,
                folder: &mut self.folder,
                buffers: &mut self.buffers,
                clock: &mut self.clock,
            })
    }

    /// Folds one batch; with `wait`, waits that long for it. Answers whether there was one.
    pub fn work(&mut self, shared: &Shared, wait: Option<Duration>) -> bool {
        shared.folds.pop(BATCH, wait, &mut self.jobs);
        if self.jobs.is_empty() {
            return false;
        }
        let took = self.fold_all(shared);
        shared.meters.fold_us.add(took.as_micros() as u64);
        if let Err(full) = self.store_all(shared) {
            // Until the job has ended its pages are there to be wanted: no frame of theirs is used again.
            self.unplaced.append(&mut self.jobs);
            self.results.clear();
            shared.fail(Failure::CacheFull(full));
            return false;
        }
        let (write, release) = {
            let mut engine = shared.engine();
            (engine.write_wanted(), engine.take_release())
        };
        drop(release);
        for job in self.jobs.drain(..) {
            job.slots.release(job.frame);
        }
        self.results.clear();
        if write {
            shared.writer.open();
        }
        shared.feed_starving();
        true
    }

    /// Puts what was folded into the store.
    fn store_all(&self, shared: &Shared) -> Result<(), CacheFull> {
        let mut clock = shared.stopwatch();
        let (count, at_once) = (self.jobs.len(), shared.pages_a_hold());
        for first in (0..count).step_by(at_once) {
            let some = first..count.min(first + at_once);
            let mut engine = shared.engine();
            for nth in some.clone() {
                let (job, result) = (&self.jobs[nth], &self.results[nth]);
                engine.folded(job.body, *result, &self.bytes[nth][..len(result)])?;
            }
            drop(engine);
            clock.lap_each(EvictionPart::Store, some.len());
            self.record(shared, some);
        }
        Ok(())
    }
}

impl Press {
    /// These pages have become so long.
    fn record(&self, shared: &Shared, some: Range<usize>) {
        let Some(recorder) = &shared.recorder else {
            return;
        };
        for (job, result) in self.jobs[some.clone()].iter().zip(&self.results[some]) {
            let (space, page) = job.page;
            recorder.folded(space, page, len(result) as u16);
        }
    }

    /// Folds what there is to fold; how long that took.
    fn fold_all(&mut self, shared: &Shared) -> Duration {
        let mut took = Duration::ZERO;
        for nth in 0..self.jobs.len() {
            // A program waits for an answer, but not for this.
            self.help(shared);
            let (start, mut clock) = (shared.machine.now(), shared.stopwatch());
            // Of one page in each batch the CPU time, which costs a system call: what other threads use meanwhile
            // is not what folding costs.
            let cpu = (nth == 0).then(|| shared.machine.own_cpu_ns());
            let (job, bytes) = (&self.jobs[nth], &mut self.bytes[nth]);
            // A copy: the process may write to its frame meanwhile, and no codec is made for that.
            job.slots.ring.copy_frame(job.frame, &mut self.page);
            let page = &*self.page;
            self.results
                .push(match Press::is_known_raw(shared, job, page) {
                    true => self.folder.keep(page, bytes),
                    false => self.folder.fold(page, job.kind, bytes),
                });
            clock.lap(EvictionPart::Fold);
            if let Some(cpu) = cpu {
                let used = Duration::from_nanos(shared.machine.own_cpu_ns() - cpu);
                shared.pace.folded(used, 1);
            }
            took += shared.machine.since(start);
        }
        took
    }

    /// Whether a page came from the swap file, is as it was then, and did not compress before.
    fn is_known_raw(shared: &Shared, job: &FoldJob, page: &Page) -> bool {
        let Some((store, was)) = shared.swap.as_ref().zip(job.was) else {
            return false;
        };
        let is = store.fingerprints.of(page);
        shared.engine().compared(job.body, is == was)
    }

    /// Lets the codec learn, once it has seen enough and there is memory for that: what it needs is
    /// counted as used first, so that pages make room for it.
    fn let_learn(&mut self, shared: &Shared) {
        if self.learnt.is_some_and(|at| at.elapsed() > SETTLE) {
            self.learnt = None;
            shared.set_aside_bytes.store(0, Ordering::Relaxed);
        }
        let Some(bytes) = shared.codec.learning_due() else {
            return;
        };
        let bytes = bytes as u64;
        if shared.set_aside_bytes.swap(bytes, Ordering::Relaxed) == 0 {
            let pages = bytes.div_ceil(PAGE_SIZE as u64);
            shared.engine().unshare(pages, true);
            shared.is_set_aside.store(true, Ordering::Release);
            return;
        }
        // Another thread may have just begun to count it.
        let counted = shared.is_set_aside.load(Ordering::Acquire);
        if counted && shared.engine().free_bytes() >= 0 && shared.codec.learn() {
            give_back_free_memory();
            self.learnt = Some(Instant::now());
        }
    }

    /// Compresses one cold page again; answers whether there was one.
    fn recompress(&mut self, shared: &Shared) -> bool {
        if !shared.engine().choose_cold(&mut self.cold) {
            return false;
        }
        if let Err(why) = check(&self.cold.bytes, self.cold.check) {
            shared.fail(why);
            return false;
        }
        let bytes = &mut self.bytes[0];
        match self.folder.refold(self.cold.codec, &self.cold.bytes, bytes) {
            Ok(result) => {
                let mut engine = shared.engine();
                engine.recompressed(&self.cold, result, &bytes[..len(&result)]);
            }
            Err(error) => shared.fail(Failure::Undecodable(error)),
        }
        true
    }
}

/// Bytes that a folded page has of its own.
fn len(folded: &Folded) -> usize {
    match *folded {
        Folded::Same(_) => 0,
        Folded::Bytes { len, .. } => len,
    }
}

/// Makes a page, but a staged one, which is there already. `Some` if it is to be remembered what it is.
///
/// # Errors
/// Why the job has to end.
pub fn unfold_item(
    shared: &Shared,
    folder: &mut Folder,
    item: FillItem,
    bytes: &[u8],
    page: &mut Page,
) -> Result<Option<Fingerprint>, Failure> {
    match item {
        FillItem::Staged(_) => {}
        FillItem::File => unreachable!("what is read from a file is not planned so"),
        FillItem::Zero | FillItem::Resident => page.fill(0),
        FillItem::Same(word) => folder.fill_same(word, page),
        FillItem::Packed {
            codec,
            start,
            len,
            check: sum,
            compares,
        } => {
            let bytes = &bytes[start as usize..(start + len) as usize];
            check(bytes, sum)?;
            let unfolded = folder.unfold(codec, bytes, page);
            unfolded.map_err(Failure::Undecodable)?;
            let store = shared.swap.as_ref().filter(|_| compares);
            return Ok(store.map(|store| store.fingerprints.of(page)));
        }
    }
    Ok(None)
}

/// Whether folded bytes are what they were when they were folded, where that can be told.
///
/// # Errors
/// Why the job has to end.
pub fn check(bytes: &[u8], expected: Option<u64>) -> Result<(), Failure> {
    match expected {
        Some(sum) if checksum(bytes) != sum => Err(Failure::Changed),
        _ => Ok(()),
    }
}

/// The life of a folding thread.
pub fn run(shared: &Arc<Shared>) {
    let mut press = Press::new(shared);
    let mut vigil = shared.claim_spinning().then(|| Vigil::new(Instant::now()));
    let mut watches = false;
    while !shared.is_over() {
        press.let_learn(shared);
        let faults = match shared.cpus == 2 {
            true => shared.meters.faults.get(),
            false => 0,
        };
        let now = Instant::now();
        let stays = |vigil: &mut Vigil| vigil.stays(now, faults) && !shared.crowd.is_there(now);
        let waits = !vigil.as_mut().is_some_and(stays);
        match waits {
            true if watches => shared.folds.look_away(),
            false if !watches => shared.folds.watch(),
            _ => {}
        }
        watches = !waits;
        if press.work(shared, waits.then_some(SLEEP)) {
            reclaim::kick(shared);
            if let Some(vigil) = &mut vigil {
                vigil.worked(Instant::now());
            }
        } else if waits && shared.recompress {
            // Nothing was folded for half a second: there is time.
            while shared.folds.is_empty() && !shared.is_over() && press.recompress(shared) {}
        } else if let (false, Some(vigil)) = (waits, &mut vigil) {
            vigil.wait(|| shared.batches.is_any());
            if press.help(shared) {
                vigil.worked(Instant::now());
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::shared::Parts;
    use pleat_codec::{Choice, PageKind};
    use pleat_engine::{preset, Engine, FaultAnswer, FillPlan, Settings};
    use pleat_store::{Full, Growth, Handle, Layout, Usage};
    use pleat_sys::ring::Ring;
    use pleat_types::{PageNo, PageRange};

    /// A layout without any address.
    struct NoPlace;

    impl Layout for NoPlace {
        fn name(&self) -> &'static str {
            "no place"
        }
        fn insert(&mut self, _: &[u8], _: Growth) -> Result<Handle, Full> {
            Err(Full)
        }
        fn read_into(&self, _: Handle, _: &mut Vec<u8>) {}
        fn remove(&mut self, _: Handle) {}
        fn relocate_to_free_cell(&mut self) -> bool {
            false
        }
        fn usage(&self) -> Usage {
            Usage::default()
        }
    }

    pub(crate) fn shared() -> Shared {
        let budget_bytes = 2 << 20;
        let preset = preset("pleat").unwrap();
        let settings = Settings {
            budget_bytes,
            reserve_bytes: budget_bytes / 16,
            floor_bytes: 0,
            run_max: 1,
            swap: None,
            tracks_writes: false,
            write_out: preset.write_out,
            brings_neighbours: false,
            keeps_copies: false,
            checks: false,
        };
        let mut parts = preset.parts(budget_bytes).unwrap();
        parts.layout = Box::new(NoPlace);
        let parts = Parts {
            engine: Engine::new(settings, parts),
            swap: None,
            codec: Arc::new(Choice::parse(&preset.codec).unwrap()),
            recorder: None,
            profile: None,
            recompress: false,
            has_spare_cpu: true,
        };
        Shared::new(parts).unwrap()
    }

    #[test]
    fn a_page_for_which_there_is_no_place_ends_the_job_and_stays_in_its_ring() {
        let shared = shared();
        let slots = shared.rings.add(Ring::private(4).unwrap());
        let (frame, page) = (slots.claim().unwrap(), PageNo(3));
        slots.ring.put(frame, b"not one word");
        let (space, body) = {
            let mut engine = shared.engine();
            let space = engine.add_space();
            engine.filled(space, PageRange::new(page, 1));
            engine.choose_victims(&[(space, 1)], 1, &mut Vec::new());
            (space, engine.taken(space, page, slots.name(frame)).unwrap())
        };
        shared.folds.push([FoldJob {
            body,
            page: (space, page),
            kind: PageKind::Anonymous,
            was: None,
            slots,
            frame,
        }]);
        let mut press = Press::new(&shared);
        assert!(!press.work(&shared, None));
        let why = shared.failure().unwrap();
        assert!(why.contains("more memory, or a swap file"), "{why}");
        let mut plan = FillPlan::default();
        let answer = shared.engine().fault(space, page, true, &mut plan);
        assert_eq!(answer, FaultAnswer::Fill);
        let [FillItem::Staged(slot)] = plan.items[..] else {
            panic!("{plan:?}");
        };
        shared
            .rings
            .with_slot(slot, |frame| assert!(frame.starts_with(b"not one word")));
    }
}
