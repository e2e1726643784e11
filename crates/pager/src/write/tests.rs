//! The whole way through the swap file, with the real engine, codecs and seals, on one thread: pages are
//! taken away, written, collected, read back and compared, while some are forgotten or shared.

use super::*;
use crate::shared::Parts;
use crate::simulation::Random;
use crate::space::reads::Reads;
use pleat_backing::{Backing, Fault, Faulty, Fingerprints, Memory, Protection, Seal};
use pleat_codec::{Choice, Folded, Folder, PageKind};
use pleat_engine::{preset, Engine, FaultAnswer, FillItem, FillPlan, Settings};
use pleat_types::{Page, PageNo, PageRange, SpaceId, StagingSlot, PAGE_SIZE};
use std::collections::{HashMap, HashSet};

const BUDGET: u64 = 2 << 20;
const PAGES: u64 = 3000;

/// A page that shrinks to anything between nothing and not at all.
fn page_of(seed: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    let mut random = Random::new(seed);
    let full = match seed % 8 {
        0 => 0,
        1 => PAGE_SIZE,
        _ => random.below(PAGE_SIZE as u64 / 2) as usize / 8 * 8,
    };
    for word in page[..full].chunks_exact_mut(8) {
        word.copy_from_slice(&random.next().to_ne_bytes());
    }
    if seed != 0 {
        page[PAGE_SIZE - 8..].copy_from_slice(&seed.to_ne_bytes());
    }
    page
}

fn shared(name: &str, backing: Arc<dyn Backing>, max_bytes: Option<u64>) -> Shared {
    let preset = preset(name).unwrap();
    let seal = Seal::new(Protection::Encrypted)
        .or_else(|_| Seal::new(Protection::Checked))
        .unwrap();
    let settings = Settings {
        budget_bytes: BUDGET,
        reserve_bytes: BUDGET / 16,
        floor_bytes: 0,
        run_max: preset.run_max,
        swap: Some(preset.swap(BUDGET, max_bytes, seal.overhead_bytes())),
        tracks_writes: false,
        write_out: preset.write_out,
        brings_neighbours: true,
        keeps_copies: true,
        checks: true,
    };
    let parts = Parts {
        engine: Engine::new(settings, preset.parts(BUDGET).unwrap()),
        swap: Some(SwapStore {
            backing,
            seal,
            fingerprints: Fingerprints::new().unwrap(),
        }),
        codec: Arc::new(Choice::parse(&preset.codec).unwrap()),
        recorder: None,
        profile: None,
        recompress: false,
        has_spare_cpu: true,
    };
    Shared::new(parts).unwrap()
}

/// A program and the threads that serve it, taking turns.
struct World<'a> {
    shared: &'a Shared,
    store: &'a SwapStore,
    writer: Writer<'a>,
    reads: Reads,
    folder: Folder,
    spaces: Vec<SpaceId>,
    /// What each page that was written to must hold, as a seed.
    truth: HashMap<(SpaceId, PageNo), u64>,
    present: HashSet<(SpaceId, PageNo)>,
    random: Random,
}

impl<'a> World<'a> {
    fn new(shared: &'a Shared) -> World<'a> {
        let store = shared.swap.as_ref().unwrap();
        let space = shared.engine().add_space();
        World {
            shared,
            store,
            writer: Writer::new(shared, store).unwrap(),
            reads: Reads::new(),
            folder: Folder::new(&shared.codec),
            spaces: vec![space],
            truth: HashMap::new(),
            present: HashSet::new(),
            random: Random::new(1),
        }
    }

    /// Some other part of pleat goes on.
    fn step(&mut self) -> Result<(), Failure> {
        match self.random.below(3) {
            0 => self.evict(),
            1 => self.writer.turn()?,
            _ => drop(self.reads.land(self.shared, self.store)?),
        }
        Ok(())
    }

    fn evict(&mut self) {
        let mut chosen = Vec::new();
        let takers: Vec<_> = self.spaces.iter().map(|&space| (space, 64)).collect();
        let mut engine = self.shared.engine();
        // As if every page of a child were its own.
        let now = engine.counters();
        let pages = (now.resident_pages + now.staged_pages) * PAGE_SIZE as u64;
        let tables = now.store_metadata_bytes + now.engine_metadata_bytes;
        engine.measured(pages + now.store_frames_bytes + tables);
        let wanted = engine.frames_wanted().min(32) as usize;
        engine.choose_victims(&takers, wanted, &mut chosen);
        for at in chosen {
            assert!(self.present.remove(&at), "{at:?} is not there");
            let body = engine.taken(at.0, at.1, StagingSlot(0));
            let content = page_of(self.truth.get(&at).copied().unwrap_or(0));
            let mut bytes = [0; PAGE_SIZE];
            let folded = self.folder.fold(&content, PageKind::Anonymous, &mut bytes);
            let len = match folded {
                Folded::Same(_) => 0,
                Folded::Bytes { len, .. } => len,
            };
            if let Some(body) = body {
                engine.folded(body, folded, &bytes[..len]).unwrap();
            }
        }
    }

    /// The program uses a page: it comes to memory, and holds what it must.
    fn touch(&mut self, space: SpaceId, page: PageNo) -> Result<(), Failure> {
        let mut plan = FillPlan::default();
        for attempt in 0..1000 {
            if self.present.contains(&(space, page)) {
                return Ok(());
            }
            let answer = self
                .shared
                .engine()
                .fault(space, page, attempt > 50, &mut plan);
            match answer {
                FaultAnswer::Fill => self.fill(space, page, &plan),
                FaultAnswer::Read => {
                    let _ = self.reads.begin(self.store, &plan.reads, Instant::now())?;
                }
                FaultAnswer::Wait => unreachable!("pages leave at once here"),
                FaultAnswer::NoMemory => {}
            }
            self.step()?;
        }
        panic!("{page:?} does not come");
    }

    fn fill(&mut self, space: SpaceId, first: PageNo, plan: &FillPlan) {
        for (at, item) in plan.items.iter().enumerate() {
            let at = (space, first.plus(at as u64));
            let mut page = [0xEE; PAGE_SIZE];
            match *item {
                FillItem::Zero => page.fill(0),
                FillItem::Same(word) => self.folder.fill_same(word, &mut page),
                FillItem::Packed {
                    codec,
                    start,
                    len,
                    check,
                    ..
                } => {
                    let bytes = &plan.bytes[start as usize..(start + len) as usize];
                    assert!(check.is_some(), "checks are on");
                    crate::fold::check(bytes, check).unwrap();
                    self.folder.unfold(codec, bytes, &mut page).unwrap();
                }
                _ => unreachable!("{item:?}"),
            }
            let truth = self.truth.get(&at).copied().unwrap_or(0);
            assert!(page == page_of(truth), "{at:?} holds something else");
            self.present.insert(at);
        }
        let range = PageRange::new(first, plan.items.len() as u64);
        self.shared.engine().filled(space, range);
    }

    fn write(&mut self, space: SpaceId, page: PageNo) -> Result<(), Failure> {
        self.touch(space, page)?;
        self.truth.insert((space, page), self.random.next());
        Ok(())
    }

    fn forget(&mut self, space: SpaceId, range: PageRange) {
        self.shared.engine().forget(space, range);
        for page in range.pages() {
            self.truth.remove(&(space, page));
            self.present.remove(&(space, page));
        }
    }

    fn fork(&mut self) {
        let parent = self.spaces[0];
        let child = self.shared.engine().fork_space(parent);
        self.spaces.push(child);
        let copy = |at: &(SpaceId, PageNo)| (at.0 == parent).then_some((child, at.1));
        let present: Vec<_> = self.present.iter().filter_map(copy).collect();
        self.present.extend(present);
        let truth = self.truth.iter();
        let truth: Vec<_> = truth
            .filter_map(|(at, seed)| Some((copy(at)?, *seed)))
            .collect();
        self.truth.extend(truth);
    }

    fn end(&mut self) {
        let Some(child) = self.spaces.pop() else {
            return;
        };
        self.shared.engine().end_space(child);
        self.truth.retain(|at, _| at.0 != child);
        self.present.retain(|at| at.0 != child);
    }

    /// A program that goes to and fro, in order and at random, and gives memory back.
    fn live(&mut self, steps: u64) -> Result<(), Failure> {
        let mut next = 0;
        for _ in 0..steps {
            let space = self.spaces[self.random.below(self.spaces.len() as u64) as usize];
            let page = PageNo(self.random.below(PAGES));
            match self.random.below(400) {
                0 => self.forget(space, PageRange::new(page, 60)),
                1 if self.spaces.len() < 3 => self.fork(),
                2 if self.spaces.len() > 1 => self.end(),
                3..20 => self.forget(space, PageRange::new(page, 1)),
                20..200 => self.touch(space, page)?,
                200..300 => self.write(space, page)?,
                _ => {
                    next = (next + 1) % PAGES;
                    self.touch(space, PageNo(next))?;
                }
            }
            self.step()?;
        }
        Ok(())
    }

    fn fill_up(&mut self) -> Result<(), Failure> {
        let space = self.spaces[0];
        (0..PAGES).try_for_each(|page| self.write(space, PageNo(page)))
    }

    fn compare_all(&mut self) -> Result<(), Failure> {
        let mut all: Vec<_> = self.truth.keys().copied().collect();
        all.sort_unstable();
        all.into_iter()
            .try_for_each(|(space, page)| self.touch(space, page))
    }
}

#[test]
fn every_page_comes_back_as_it_was_through_writes_collections_and_reads() {
    // Limits well below what is written: at the edge, whether anything is collected would hang on timing.
    for (name, max_bytes, expected) in [
        ("pleat", None, false),
        ("pleat/cluster=16384", Some(3 << 20), true),
        ("pleat/cluster=32768/sizing=static:0", Some(3 << 20), true),
        ("douglis93", None, false),
        ("douglis93", Some(7 << 20), true),
        ("cervera99", Some(32 << 20), false),
        ("castro03", None, false),
        ("none", None, false),
    ] {
        let shared = shared(name, Arc::new(Memory::new()), max_bytes);
        let mut world = World::new(&shared);
        world.fill_up().unwrap();
        world.live(3_000).unwrap();
        world.compare_all().unwrap();
        let counters = shared.engine().counters();
        assert!(counters.filled_disk_pages > 500, "{name}: {counters:?}");
        let collects = counters.moved_pages > 0;
        assert_eq!(collects, expected, "{name}: {counters:?}");
        assert_eq!(*lock(&shared.swap_error), None, "{name}");
    }
}

#[test]
fn a_disk_that_is_full_for_a_while_costs_nothing_but_time() {
    let full = Faulty::new(Arc::new(Memory::new()), Fault::NoSpace, 10, 5);
    let shared = shared("pleat", Arc::new(full), None);
    let mut world = World::new(&shared);
    for page in 0..PAGES {
        // Half a second passes whenever nothing goes any more.
        world.writer.failed_at = world.writer.failed_at.map(|at| at - RETRY);
        world.write(world.spaces[0], PageNo(page)).unwrap();
    }
    world.compare_all().unwrap();
    assert!(shared.engine().counters().writes_failed > 0);
    let told = lock(&shared.swap_error).clone().unwrap();
    assert!(told.contains("no space left"), "{told}");
}

#[test]
fn what_a_disk_gets_wrong_ends_the_job_and_is_never_taken_for_a_page() {
    for (fault, said) in [
        (Fault::ReadError, "I/O error"),
        (Fault::Truncated, "shorter"),
        (Fault::BitFlip, "not what was written"),
        (Fault::Swapped, "not what was written"),
        (Fault::Replayed, "not what was written"),
        (Fault::ShortWrite, "not what was written"),
    ] {
        let faulty = Faulty::new(Arc::new(Memory::new()), fault, 10, u64::MAX);
        let shared = shared("pleat/cluster=16384", Arc::new(faulty), Some(5 << 20));
        let mut world = World::new(&shared);
        let lived = world.fill_up();
        let lived = lived.and_then(|()| world.live(4_000));
        let why = lived
            .err()
            .unwrap_or_else(|| panic!("{fault:?} was not noticed"));
        assert!(why.to_string().contains(said), "{fault:?}: {why}");
        assert!(
            why.to_string().contains("reading at byte"),
            "{fault:?}: {why}"
        );
    }
}

#[test]
fn a_disk_that_answers_no_more_ends_the_job_within_half_a_minute() {
    let stuck = Faulty::new(Arc::new(Memory::new()), Fault::Stuck, 10, u64::MAX);
    let shared = shared("pleat", Arc::new(stuck), None);
    let mut world = World::new(&shared);
    let space = world.spaces[0];
    for page in 0..300 {
        world.write(space, PageNo(page)).unwrap();
    }
    let mut page = 300;
    let why = loop {
        assert!(page < PAGES, "nothing was written");
        world.evict();
        world.writer.watch.pass(Duration::from_secs(1));
        if let Err(why) = world.writer.turn() {
            break why;
        }
        let mut plan = FillPlan::default();
        for _ in 0..10 {
            page += 1;
            let is_there = world.present.contains(&(space, PageNo(page)));
            if !is_there {
                shared.engine().fault(space, PageNo(page), true, &mut plan);
                world.fill(space, PageNo(page), &plan);
            }
            world.truth.insert((space, PageNo(page)), page | 1);
        }
    };
    assert!(why.to_string().contains("writing at byte"), "{why}");
    assert!(why.to_string().contains("no answer for 30 s"), "{why}");
}
