//! Random sequences of everything that can happen, against a plain map of page contents.
//!
//! The most important test of the engine: a program always reads what it last wrote, or zeros
//! where it gave memory up, whatever is under way.

use pleat_types::{PageNo, PageRange};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::world::{World, FIRST, PAGES};
use super::{collecting, mounted, transitions};
use crate::{Counters, Settings, SwapSettings, SwapUnit, WriteOut, WriteOutcome};

#[derive(Clone, Debug)]
pub(super) enum Step {
    Read {
        space: usize,
        page: u64,
        cut: usize,
    },
    Write {
        space: usize,
        page: u64,
        cut: usize,
    },
    /// All pages in order, as programs do.
    Sweep {
        space: usize,
    },
    /// The program goes round and round, or does no more.
    Round {
        space: usize,
        begins: bool,
    },
    /// The program is said to rest, or to run again, whatever it does.
    Rest {
        space: usize,
        rests: bool,
    },
    LookUp {
        space: usize,
        page: u64,
    },
    Answer {
        space: usize,
    },
    LookUpApart {
        space: usize,
        page: u64,
    },
    AnswerApart {
        choice: usize,
    },
    TouchUnwatched {
        space: usize,
        page: u64,
    },
    Forget {
        space: usize,
        page: u64,
        count: u64,
    },
    Remap {
        space: usize,
        from: u64,
        to: u64,
        count: u64,
    },
    Fork {
        space: usize,
    },
    NewSpace,
    NewFile,
    End {
        space: usize,
    },
    Choose {
        most: u32,
        want: usize,
        who: u8,
    },
    /// All of it at once, undisturbed.
    Evict {
        want: usize,
    },
    CarryOut {
        choice: usize,
        mood: u8,
    },
    Report {
        choice: usize,
    },
    Fold {
        choice: usize,
    },
    PlanWrite,
    FinishWrite {
        choice: usize,
        fails: bool,
    },
    ChooseCold,
    Recompress {
        choice: usize,
    },
    FinishRead {
        choice: usize,
    },
    PlanCollect,
    PlanMove,
    Punch,
    ResumeWrites,
    Measured {
        pages: u64,
    },
    /// The budget is changed, up or down.
    Budget {
        pages: u64,
    },
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    use Step::*;
    let space = || 0..4usize;
    let page = || FIRST..FIRST + PAGES;
    let count = || 1..10u64;
    let choice = || 0..16usize;
    prop_oneof![
        12 => (space(), page(), choice()).prop_map(|(space, page, cut)| Read { space, page, cut }),
        12 => (space(), page(), choice()).prop_map(|(space, page, cut)| Write { space, page, cut }),
        2 => space().prop_map(|space| Sweep { space }),
        2 => (space(), any::<bool>()).prop_map(|(space, begins)| Round { space, begins }),
        2 => (space(), any::<bool>()).prop_map(|(space, rests)| Rest { space, rests }),
        6 => (space(), page()).prop_map(|(space, page)| LookUp { space, page }),
        6 => space().prop_map(|space| Answer { space }),
        8 => (space(), page()).prop_map(|(space, page)| LookUpApart { space, page }),
        3 => choice().prop_map(|choice| AnswerApart { choice }),
        4 => (space(), page()).prop_map(|(space, page)| TouchUnwatched { space, page }),
        4 => (space(), page(), count())
            .prop_map(|(space, page, count)| Forget { space, page, count }),
        4 => (space(), page(), page(), count())
            .prop_map(|(space, from, to, count)| Remap { space, from, to, count }),
        1 => space().prop_map(|space| Fork { space }),
        1 => Just(NewSpace),
        2 => Just(NewFile),
        1 => space().prop_map(|space| End { space }),
        12 => (1..12u32, 1..20usize, any::<u8>())
            .prop_map(|(most, want, who)| Choose { most, want, who }),
        4 => (1..60usize).prop_map(|want| Evict { want }),
        14 => (choice(), any::<u8>()).prop_map(|(choice, mood)| CarryOut { choice, mood }),
        14 => choice().prop_map(|choice| Report { choice }),
        12 => choice().prop_map(|choice| Fold { choice }),
        6 => Just(PlanWrite),
        6 => (choice(), prop::bool::weighted(0.2))
            .prop_map(|(choice, fails)| FinishWrite { choice, fails }),
        8 => Just(ChooseCold),
        6 => choice().prop_map(|choice| Recompress { choice }),
        8 => choice().prop_map(|choice| FinishRead { choice }),
        4 => Just(PlanCollect),
        4 => Just(PlanMove),
        1 => Just(Punch),
        1 => Just(ResumeWrites),
        1 => (0..40u64).prop_map(|pages| Measured { pages }),
        1 => (8..200u64).prop_map(|pages| Budget { pages }),
    ]
}

fn clip(range: PageRange) -> PageRange {
    PageRange {
        start: range.start,
        end: PageNo(range.end.0.min(FIRST + PAGES)),
    }
}

pub(super) fn apply(world: &mut World, step: Step) {
    let page_of = PageNo;
    match step {
        Step::Read { space, page, cut } => {
            world
                .space(space)
                .into_iter()
                .for_each(|space| world.read(space, page_of(page), cut));
        }
        Step::Write { space, page, cut } => {
            world
                .space(space)
                .into_iter()
                .for_each(|space| world.write(space, page_of(page), cut));
        }
        Step::Sweep { space } => {
            for page in FIRST..FIRST + PAGES {
                let space = world.space(space).into_iter();
                space.for_each(|space| world.read(space, page_of(page), 0));
            }
        }
        Step::Round { space, begins } => {
            let space = world.space(space).into_iter();
            space.for_each(|space| world.engine.set_round(space, begins));
        }
        Step::Rest { space, rests } => {
            let space = world.space(space).into_iter();
            space.for_each(|space| world.engine.set_rest(space, rests));
        }
        Step::LookUp { space, page } => {
            world
                .space(space)
                .into_iter()
                .for_each(|space| world.look_up(space, page_of(page)));
        }
        Step::Answer { space } => {
            world
                .space(space)
                .into_iter()
                .for_each(|space| world.answer(space));
        }
        Step::LookUpApart { space, page } => {
            let space = world.space(space).into_iter();
            space.for_each(|space| world.look_up_apart(space, page_of(page)));
        }
        Step::AnswerApart { choice } => world.answer_apart(choice),
        Step::TouchUnwatched { space, page } => {
            let space = world.space(space);
            space
                .into_iter()
                .for_each(|space| world.touch_unwatched(space, page_of(page)));
        }
        Step::Forget { space, page, count } => {
            let range = clip(PageRange::new(page_of(page), count));
            world
                .space(space)
                .into_iter()
                .for_each(|space| world.forget(space, range));
        }
        Step::Remap {
            space,
            from,
            to,
            count,
        } => {
            let count = count.min(FIRST + PAGES - from.max(to));
            let (from, to) = (page_of(from), page_of(to));
            world
                .space(space)
                .into_iter()
                .for_each(|space| world.remap(space, from, to, count));
        }
        Step::Fork { space } if world.spaces.len() < 4 => {
            world
                .space(space)
                .into_iter()
                .for_each(|space| world.fork(space));
        }
        Step::NewSpace if world.spaces.len() < 4 => world.spaces.push(world.engine.add_space()),
        Step::NewFile if world.spaces.len() < 4 => world.add_file(),
        Step::Fork { .. } | Step::NewSpace | Step::NewFile => {}
        Step::End { space } => world
            .space(space)
            .into_iter()
            .for_each(|space| world.end(space)),
        Step::Choose { most, want, who } => world.choose(most, want, who),
        Step::Evict { want } => world.evict(want),
        Step::CarryOut { choice, mood } => world.carry_out(choice, mood),
        Step::Report { choice } => world.report(choice),
        Step::Fold { choice } => world.fold(choice),
        Step::PlanWrite => world.plan_write(),
        Step::ChooseCold => world.choose_cold(),
        Step::Recompress { choice } => world.recompress(choice),
        Step::FinishWrite { choice, fails } => {
            let outcome = if fails {
                WriteOutcome::Failed
            } else {
                WriteOutcome::Done
            };
            world.finish_write(choice, outcome);
        }
        Step::FinishRead { choice } => world.finish_read(choice),
        Step::PlanCollect => world.plan_collect(),
        Step::PlanMove => world.plan_move(),
        Step::Punch => world.punch(),
        Step::ResumeWrites => world.engine.resume_writes(),
        Step::Measured { pages } => world.engine.measured(pages * 4096),
        Step::Budget { pages } => world.engine.set_budget(pages * 4096, 4 * 4096, 0),
    }
}

fn settings() -> impl Strategy<Value = Settings> {
    let swap = prop::option::weighted(0.8, swap());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (8..200u64, 1..9u32, swap, flags).prop_map(|(pages, run_max, swap, flags)| Settings {
        budget_bytes: pages * 4096,
        reserve_bytes: 4 * 4096,
        floor_bytes: 0,
        run_max,
        swap,
        tracks_writes: flags.0,
        write_out: WriteOut::OnDemand,
        brings_neighbours: true,
        checks: flags.1,
        keeps_copies: flags.2,
    })
}

fn swap() -> impl Strategy<Value = SwapSettings> {
    let unit = prop::sample::select(&[SwapUnit::Cluster, SwapUnit::Cluster, SwapUnit::Block]);
    let fragment = prop::sample::select(&[1, 16, 1024]);
    let max = prop::sample::select(&[None, Some(24 << 10), Some(80 << 10)]);
    let places = prop::sample::select(&[None, None, Some(200)]);
    let rest = (any::<bool>(), 0..20u32, 1..9u32, places);
    (unit, fragment, max, rest).prop_map(|(unit, fragment_bytes, max_bytes, rest)| SwapSettings {
        fragment_bytes,
        cluster_bytes: 8192,
        unit,
        spans_blocks: rest.0,
        overhead_bytes: rest.1,
        ahead_max: rest.2,
        virtual_percent: rest.3,
        slack_bytes: 0,
        max_bytes,
    })
}

/// Layout, sizing and admission, and a write-out that goes with the layout.
fn parts() -> impl Strategy<Value = ([&'static str; 3], WriteOut)> {
    let layout = prop::sample::select(pleat_store::layout_names());
    let sizing = prop::sample::select(&[
        "castro03",
        "static:8K",
        "static:60%",
        "balance:20%",
        "aggressive",
        "douglis93",
        "cervera99:8K",
        "cpc08:30%",
        "kaplan99",
    ]);
    let admission =
        prop::sample::select(&["all", "onlyswap", "onlydirty", "clean-switch", "all+pass"]);
    (layout, sizing, admission, any::<bool>()).prop_map(|(layout, sizing, admission, ahead)| {
        let write_out = match (layout, ahead) {
            ("buffers", _) => WriteOut::Buffers {
                threshold_percent: 20,
            },
            (_, true) => WriteOut::Ahead { clean_percent: 30 },
            _ => WriteOut::OnDemand,
        };
        ([layout, sizing, admission], write_out)
    })
}

fn run(
    settings: Settings,
    (parts, write_out): ([&str; 3], WriteOut),
    steps: Vec<Step>,
) -> Counters {
    let mut settings = Settings {
        write_out,
        ..settings
    };
    if let (WriteOut::Buffers { .. }, Some(swap)) = (write_out, &mut settings.swap) {
        swap.unit = SwapUnit::Block;
    }
    let mut world = World::new(settings, parts);
    for step in steps {
        apply(&mut world, step);
        assert_eq!(world.engine.violation(), None);
    }
    let counters = world.engine.counters();
    world.finish();
    counters
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..400)
}

// More cases: PROPTEST_CASES=100000 cargo test --release -p pleat-engine model
proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_program_always_reads_what_it_last_wrote(
        settings in settings(),
        parts in parts(),
        steps in steps(),
    ) {
        run(settings, parts, steps);
    }
}

/// Guards the test above against becoming toothless: its sequences must reach every corner.
#[test]
fn random_sequences_reach_everything_that_can_happen() {
    let mut runner = TestRunner::deterministic();
    let all = (settings(), parts(), steps());
    let mut seen = [0; CORNERS];
    for _ in 0..800 {
        let (settings, parts, steps) = all.new_tree(&mut runner).unwrap().current();
        let counters = run(settings, parts, steps);
        for (seen, count) in seen.iter_mut().zip(corners(&counters)) {
            *seen += count;
        }
    }
    let missed: Vec<usize> = (0..seen.len()).filter(|&index| seen[index] == 0).collect();
    assert!(
        missed.is_empty(),
        "corners never reached: {missed:?} of {seen:?}"
    );
    collecting::copies_of_pages_that_are_being_folded_are_moved_along();
    mounted::what_the_kernel_reads_twice_and_forgets_is_unknown();
    assert_eq!(transitions::missed(), [""; 0], "ways never gone");
}

const CORNERS: usize = 40;

fn corners(counters: &Counters) -> [u64; CORNERS] {
    [
        counters.clean_pages,
        counters.filled_file_pages,
        counters.dropped_pages,
        counters.written_back_pages,
        counters.clean_stored_pages,
        counters.clean_reclaimed_pages,
        counters.clean_released_pages,
        counters.clean_refused_pages,
        counters.passed_on_pages,
        counters.growth_locks,
        counters.recompressed_pages,
        counters.recompressed_void_pages,
        counters.recompressed_saved_bytes,
        counters.filled_staged_pages,
        counters.filled_stored_pages,
        counters.filled_same_pages,
        counters.filled_disk_pages,
        counters.prefetched_pages,
        counters.prezeroed_pages,
        counters.fault_waits,
        counters.fault_no_memory,
        counters.taken_void_pages,
        counters.refused_busy_pages,
        counters.refused_gone_pages,
        counters.refused_unmovable_pages,
        counters.refused_stale_pages,
        counters.folded_void_pages,
        counters.folded_raw_pages,
        counters.expense_hits,
        counters.profit_hits,
        counters.growths_denied,
        counters.shrinks_relocated + counters.shrinks_released,
        counters.writes_failed,
        counters.moved_pages,
        counters.collected_clusters,
        counters.punched_bytes,
        counters.read_ahead_used_pages,
        counters.unchanged_pages,
        counters.compared_pages - counters.unchanged_pages,
        counters.passed_pages,
    ]
}
