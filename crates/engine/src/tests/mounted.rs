//! A file system's driver between the engine and a kernel whose page cache it cannot look into: what the
//! kernel reads is always what was last written, whatever is taken, folded, dropped and lost meanwhile.

use std::collections::HashMap;

use pleat_types::{PageNo, PageRange, SpaceId, StagingSlot};
use proptest::prelude::*;

use super::content::{fold, unfold};
use crate::{
    BodyId, Engine, FillItem, FillPlan, Parts, Refusal, Settings, Victims, WayOut, WriteOut,
};

const PAGES: u64 = 60;

#[derive(Clone, Debug)]
enum Step {
    Read {
        page: u64,
        count: u64,
    },
    Write {
        page: u64,
        count: u64,
    },
    /// Somebody else changed the file, or it was truncated.
    Change {
        page: u64,
        count: u64,
    },
    KernelDrops {
        page: u64,
    },
    KernelForgets,
    Choose {
        want: usize,
    },
    Begin,
    Report {
        choice: usize,
    },
    Fold {
        choice: usize,
    },
    Measured {
        pages: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    use Step::*;
    let page = || 0..PAGES;
    let count = || 1..12u64;
    prop_oneof![
        20 => (page(), count()).prop_map(|(page, count)| Read { page, count }),
        6 => (page(), count()).prop_map(|(page, count)| Write { page, count }),
        1 => (page(), count()).prop_map(|(page, count)| Change { page, count }),
        3 => page().prop_map(|page| KernelDrops { page }),
        1 => Just(KernelForgets),
        12 => (1..20usize).prop_map(|want| Choose { want }),
        12 => Just(Begin),
        16 => (0..16usize).prop_map(|choice| Report { choice }),
        16 => (0..16usize).prop_map(|choice| Fold { choice }),
        1 => (0..30u64).prop_map(|pages| Measured { pages }),
    ]
}

/// A page that is being taken.
struct Take {
    page: PageNo,
    /// What the kernel handed over; `None`: it had the page no more.
    content: Option<u64>,
    is_void: bool,
    drops: bool,
}

struct Mounted {
    engine: Engine,
    space: SpaceId,
    file: Vec<u64>,
    kernel: HashMap<PageNo, u64>,
    chosen: Vec<(SpaceId, PageNo)>,
    takes: Vec<Take>,
    slots: HashMap<StagingSlot, u64>,
    to_fold: Vec<(BodyId, StagingSlot)>,
    content: u64,
    slots_used: u32,
}

impl Mounted {
    fn new(budget_pages: u64, sizing: &str, admission: &str) -> Mounted {
        let settings = Settings {
            budget_bytes: budget_pages * 4096,
            reserve_bytes: 4 * 4096,
            floor_bytes: 0,
            run_max: 16,
            swap: None,
            tracks_writes: false,
            write_out: WriteOut::OnDemand,
            brings_neighbours: false,
            keeps_copies: false,
            checks: true,
        };
        let parts = Parts {
            layout: pleat_store::layout_by_name("bins", 1 << 20).unwrap(),
            sizing: pleat_policy::sizing_by_name(sizing).unwrap(),
            admission: pleat_policy::admission_by_name(admission).unwrap(),
            victims: Victims::Lives,
        };
        let mut engine = Engine::new(settings, parts);
        let space = engine.add_file();
        Mounted {
            engine,
            space,
            file: (0..PAGES).map(|page| 1000 + page).collect(),
            kernel: HashMap::new(),
            chosen: Vec::new(),
            takes: Vec::new(),
            slots: HashMap::new(),
            to_fold: Vec::new(),
            content: 2000,
            slots_used: 0,
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Read { page, count } => {
                clip(page, count).pages().for_each(|page| self.read(page))
            }
            Step::Write { page, count } => self.write(clip(page, count)),
            Step::Change { page, count } => self.change(clip(page, count)),
            Step::KernelDrops { page } => drop(self.kernel.remove(&PageNo(page))),
            Step::KernelForgets => {
                self.kernel.clear();
                self.spoil(clip(0, PAGES));
                self.engine.kernel_forgot(self.space, clip(0, PAGES));
            }
            Step::Choose { want } => self.choose(want),
            Step::Begin => self.begin(),
            Step::Report { choice } => self.report(choice),
            Step::Fold { choice } => self.fold(choice),
            Step::Measured { pages } => self.engine.measured(pages * 4096),
        }
    }

    /// What is being taken of these pages is worth nothing any more.
    fn spoil(&mut self, range: PageRange) {
        let hit = self
            .takes
            .iter_mut()
            .filter(|take| range.contains(take.page));
        hit.for_each(|take| take.is_void = true);
    }

    fn read(&mut self, page: PageNo) {
        let truth = self.file[page.0 as usize];
        if let Some(&content) = self.kernel.get(&page) {
            return assert_eq!(content, truth, "{page:?} is stale in the kernel");
        }
        let range = PageRange::new(page, 1);
        self.spoil(range);
        let mut plan = FillPlan::default();
        self.engine.read_file(self.space, range, &mut plan);
        let content = match plan.items[..] {
            [FillItem::File] => truth,
            [FillItem::Same(word)] => word,
            [FillItem::Staged(slot)] => self.slots[&slot],
            [FillItem::Packed {
                codec, start, len, ..
            }] => unfold(codec, &plan.bytes[start as usize..(start + len) as usize]),
            ref other => unreachable!("{other:?}"),
        };
        assert_eq!(content, truth, "{page:?} comes back wrongly");
        self.kernel.insert(page, content);
        self.engine.read_done(self.space, range);
    }

    fn write(&mut self, range: PageRange) {
        for page in range.pages() {
            self.content += 1;
            self.file[page.0 as usize] = self.content;
            self.kernel.insert(page, self.content);
        }
        self.spoil(range);
        self.engine.overwritten(self.space, range);
    }

    fn change(&mut self, range: PageRange) {
        for page in range.pages() {
            self.content += 1;
            self.file[page.0 as usize] = self.content;
            self.kernel.remove(&page);
        }
        self.spoil(range);
        self.engine.forget(self.space, range);
    }

    fn choose(&mut self, want: usize) {
        let mut chosen = Vec::new();
        self.engine
            .choose_victims(&[(self.space, 40)], want, &mut chosen);
        self.chosen.extend(chosen);
    }

    /// The thread that takes pages comes to those chosen.
    fn begin(&mut self) {
        for (space, page) in std::mem::take(&mut self.chosen) {
            if !self.engine.is_leaving(space, page) {
                self.engine.refused(space, page, Refusal::Busy);
                continue;
            }
            let way = self.engine.way_out(space, page);
            assert_ne!(way, WayOut::WriteBack, "{page:?} is in its file");
            self.takes.push(Take {
                page,
                content: self.kernel.get(&page).copied(),
                is_void: false,
                drops: way == WayOut::Drop,
            });
        }
    }

    fn report(&mut self, choice: usize) {
        if self.takes.is_empty() {
            return;
        }
        let take = self.takes.remove(choice % self.takes.len());
        // It is invalidated before the report.
        self.kernel.remove(&take.page);
        if take.is_void {
            return self.engine.refused(self.space, take.page, Refusal::Busy);
        }
        match take.content {
            _ if take.drops => self.engine.dropped(self.space, take.page),
            None => self.engine.refused(self.space, take.page, Refusal::Gone),
            Some(content) => {
                self.slots_used += 1;
                let slot = StagingSlot(self.slots_used);
                let body = self.engine.taken(self.space, take.page, slot);
                self.slots.insert(slot, content);
                self.to_fold
                    .push((body.expect("nothing is void here"), slot));
            }
        }
    }

    fn fold(&mut self, choice: usize) {
        if self.to_fold.is_empty() {
            return;
        }
        let (body, slot) = self.to_fold.remove(choice % self.to_fold.len());
        let (folded, bytes) = fold(self.slots[&slot]);
        self.engine.folded(body, folded, &bytes).unwrap();
        self.slots.remove(&slot);
    }
}

fn clip(page: u64, count: u64) -> PageRange {
    PageRange::new(PageNo(page), count.min(PAGES - page))
}

// More cases: PROPTEST_CASES=100000 cargo test --release -p pleat-engine mounted
proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_always_gets_what_was_last_written(
        budget in 12..50u64,
        sizing in prop::sample::select(&["pleat:8%:75%", "castro03", "static:25%", "static:0"]),
        admission in prop::sample::select(&["all", "clean-switch", "onlyswap"]),
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut mounted = Mounted::new(budget, sizing, admission);
        for step in steps {
            mounted.apply(step);
            prop_assert_eq!(mounted.engine.violation(), None);
        }
        for page in 0..PAGES {
            mounted.read(PageNo(page));
        }
    }
}

#[test]
fn pages_of_files_fit_into_a_budget_without_a_swap_file() {
    let mut mounted = Mounted::new(40, "pleat:8%:75%", "all");
    for round in 0..2000 {
        // The first pages more often than the last.
        let page = (round * 37 % PAGES).min((round * 53 + round / 7) % PAGES);
        mounted.read(PageNo(page));
        let want = mounted.engine.frames_wanted() as usize;
        mounted.choose(want);
        mounted.begin();
        while !mounted.takes.is_empty() {
            mounted.report(0);
        }
        while !mounted.to_fold.is_empty() {
            mounted.fold(0);
        }
        assert!(mounted.engine.free_bytes() >= 0, "round {round}");
    }
    let counters = mounted.engine.counters();
    let seen = [
        counters.filled_stored_pages,
        counters.filled_file_pages,
        counters.clean_released_pages,
    ];
    assert!(seen.iter().all(|&count| count > 0), "{counters:?}");
}

#[test]
pub(super) fn what_the_kernel_reads_twice_and_forgets_is_unknown() {
    let mut mounted = Mounted::new(40, "static:25%", "all");
    let range = PageRange::new(PageNo(0), 2);
    mounted.engine.read_done(mounted.space, range);
    mounted.engine.read_done(mounted.space, range);
    // One of them is set aside.
    let mut plan = FillPlan::default();
    let page = PageNo(1);
    mounted.engine.fault(mounted.space, page, true, &mut plan);
    mounted.engine.kernel_forgot(mounted.space, range);
    assert!(!mounted.engine.knows(mounted.space, range));
    assert_eq!(mounted.engine.violation(), None);
}

#[test]
fn pages_at_the_far_end_of_a_sparse_file_are_kept_and_dropped_as_any() {
    let mut mounted = Mounted::new(40, "static:25%", "all");
    let (engine, space) = (&mut mounted.engine, mounted.space);
    // 256 TiB into the file, and further.
    let pages = [PageNo(1 << 36), PageNo(1 << 50)];
    for page in pages {
        engine.read_done(space, PageRange::new(page, 1));
    }
    let mut chosen = Vec::new();
    engine.choose_victims(&[(space, 2)], 2, &mut chosen);
    assert_eq!(chosen, pages.map(|page| (space, page)));
    let body = engine.taken(space, pages[0], StagingSlot(0)).unwrap();
    let (folded, bytes) = fold(1);
    engine.folded(body, folded, &bytes).unwrap();
    engine.dropped(space, pages[1]);
    assert_eq!(engine.violation(), None);
    let mut plan = FillPlan::default();
    engine.read_file(space, PageRange::new(pages[0], 1), &mut plan);
    assert_ne!(plan.items, [FillItem::File]);
    for page in pages {
        engine.read_done(space, PageRange::new(page, 1));
        assert_eq!(engine.violation(), None);
    }
}
