//! Watermarks, the memory equation, and the order in which pages are chosen.

use pleat_types::{PageNo, PageRange, SpaceId, StagingSlot};

use super::script::{settings, Script};
use crate::{CacheFull, FaultAnswer, FillItem, FillPlan, Refusal, Settings, Victims};

const PAGE: i64 = 4096;

fn script() -> Script {
    Script::new(settings(), "castro03")
}

#[test]
fn free_memory_is_the_budget_less_everything_in_use() {
    let mut script = script();
    script.store(3, 2000);
    script.fill(50, 2);
    script.choose(2);
    script.take(50).unwrap();
    // 2 frames of compressed cache, one page staged, one leaving.
    assert_eq!(script.engine.free_bytes(), (100 - 2 - 1 - 1) * PAGE);
    script.engine.measured(60 * 4096);
    assert_eq!(script.engine.free_bytes(), 40 * PAGE);
    script.fill(60, 1);
    assert_eq!(script.engine.free_bytes(), 39 * PAGE);
}

#[test]
fn a_smaller_budget_takes_pages_and_has_the_cache_give_what_it_may_not_have_any_more() {
    let mut script = script();
    script.store(64, 2048);
    script.fill(70, 10);
    assert_eq!(script.engine.frames_wanted(), 0);
    script.engine.set_budget(32 * 4096, 4 * 4096, 0);
    // 32 frames of compressed cache and 10 pages; the cache may have 31.
    assert_eq!(script.engine.free_bytes(), -10 * PAGE);
    assert!(script.engine.frames_wanted() > 0 && script.engine.write_wanted());
    assert_eq!(script.engine.counters().owed_bytes, 4096);
    script.engine.set_budget(100 * 4096, 4 * 4096, 0);
    assert_eq!(script.engine.free_bytes(), 58 * PAGE);
    assert_eq!(script.engine.frames_wanted(), 0);
}

#[test]
fn what_would_be_left_in_memory_is_what_the_swap_file_does_not_take() {
    let without = |swap| Script::new(Settings { swap, ..settings() }, "castro03");
    let mut script = without(None);
    script.store(8, 2048);
    script.fill(20, 10);
    // 4 frames, and 10 pages that become what pages were in the mean until now.
    let least = script.engine.least_kept_bytes(0);
    assert!((4 + 4..4 + 6).contains(&(least / 4096)), "{least}");
    let mut script = without(settings().swap);
    script.store(8, 2048);
    assert_eq!(script.engine.least_kept_bytes(0), 0);
}

#[test]
fn nothing_is_taken_while_the_reserve_is_free() {
    let mut script = script();
    script.engine.measured(96 * 4096);
    assert_eq!(script.engine.frames_wanted(), 0);
    script.engine.measured(97 * 4096);
    assert_eq!(script.engine.frames_wanted(), 5, "up to twice the reserve");
}

#[test]
fn who_asks_for_more_than_the_reserve_gets_it() {
    let mut script = script();
    script.engine.measured(90 * 4096);
    assert!(!script.engine.ask(20 * 4096));
    assert_eq!(
        script.engine.frames_wanted(),
        30,
        "up to twice what is asked"
    );
    script.engine.measured(80 * 4096);
    assert!(script.engine.ask(20 * 4096));
    script.engine.measured(96 * 4096);
    assert_eq!(
        script.engine.frames_wanted(),
        0,
        "an answered question is over"
    );
}

#[test]
fn a_limit_on_resident_pages_takes_them_though_memory_is_free() {
    // The smallest memory outside, the largest cache: a policy that would have the cache give.
    let mut script = script();
    script.store(3, 2000);
    script.engine.limit_resident(Some(32));
    script.fill(50, 30);
    assert_eq!(
        (script.engine.frames_wanted(), script.engine.is_at_limit()),
        (0, false)
    );
    script.fill(80, 2);
    assert_eq!(
        (script.engine.frames_wanted(), script.engine.is_at_limit()),
        (4, true)
    );
    assert_eq!(
        script.choose(4),
        [50, 51, 52, 53],
        "the oldest, and not of the cache"
    );
    assert_eq!(
        script.engine.frames_wanted(),
        0,
        "those leaving are not wanted twice"
    );
    assert!(script.engine.is_at_limit(), "they are still there");
    script.engine.limit_resident(None);
    script.fill(90, 4);
    assert_eq!(
        (script.engine.frames_wanted(), script.engine.is_at_limit()),
        (0, false)
    );
}

#[test]
fn pages_under_way_are_not_wanted_twice() {
    let mut script = script();
    script.fill(0, 50);
    script.engine.measured(100 * 4096);
    assert_eq!(script.engine.frames_wanted(), 8);
    // Until experience says otherwise a page is expected to halve.
    let chosen = script.choose(8);
    assert_eq!(script.engine.frames_wanted(), 4);
    let body = script.take(chosen[0]).unwrap();
    assert_eq!(script.engine.frames_wanted(), 4);
    script.choose(8);
    assert_eq!(script.engine.frames_wanted(), 0);
    script.fold(body, 1, 2048);
    // It took one frame of the cache, which is one page less wanted to be freed than hoped for.
    assert_eq!(script.engine.free_bytes(), 0);
}

#[test]
fn memory_short_of_a_page_stops_faults_that_are_not_urgent() {
    let mut script = script();
    let (space, mut plan) = (script.space, FillPlan::default());
    script.engine.measured(100 * 4096 - 4095);
    let answer = script.engine.fault(space, PageNo(1), false, &mut plan);
    assert_eq!(answer, FaultAnswer::NoMemory);
    assert_eq!(
        script.engine.fault(space, PageNo(1), true, &mut plan),
        FaultAnswer::Fill
    );
    script.engine.measured(99 * 4096);
    assert_eq!(
        script.engine.fault(space, PageNo(1), false, &mut plan),
        FaultAnswer::Fill
    );
}

#[test]
fn adopting_and_forking_leave_free_memory_as_it_was_measured() {
    let mut script = script();
    let space = script.space;
    script.engine.measured(50 * 4096);
    script.engine.adopt(space, PageRange::new(PageNo(0), 30));
    assert_eq!(script.engine.free_bytes(), 50 * PAGE);
    script.engine.fork_space(space);
    assert_eq!(script.engine.free_bytes(), 50 * PAGE);
    assert_eq!(script.engine.counters().resident_pages, 60);
}

#[test]
fn the_oldest_pages_are_chosen_first_over_all_spaces() {
    let mut script = script();
    let (a, b) = (script.space, script.engine.add_space());
    for (space, page) in [(a, 1), (b, 2), (b, 3), (a, 4), (a, 5), (b, 6), (b, 2)] {
        script.engine.filled(space, PageRange::new(PageNo(page), 1));
    }
    let mut chosen = Vec::new();
    script
        .engine
        .choose_victims(&[(a, 2), (b, 9)], 4, &mut chosen);
    let pages: Vec<u64> = chosen.iter().map(|(_, page)| page.0).collect();
    // 5 is older than 6, but two pages of its space are leaving already; 2 was filled again.
    assert_eq!(pages, [1, 3, 4, 6]);
}

#[test]
fn pages_of_a_program_that_rests_are_the_first_to_go() {
    let mut script = script();
    let (a, b) = (script.space, script.engine.add_space());
    script.fill(50, 3);
    script.engine.filled(b, PageRange::new(PageNo(80), 3));
    script.engine.set_rest(b, true);
    let choose = |script: &mut Script, want| {
        let mut chosen = Vec::new();
        let takers = [(a, 9), (b, 9)];
        script.engine.choose_victims(&takers, want, &mut chosen);
        chosen
    };
    assert_eq!(
        choose(&mut script, 2),
        [(b, PageNo(80)), (b, PageNo(81))],
        "though they came last"
    );
    script.engine.set_rest(b, false);
    assert_eq!(choose(&mut script, 2), [(a, PageNo(50)), (a, PageNo(51))]);
    script.engine.set_rest(b, true);
    assert_eq!(
        choose(&mut script, 2),
        [(b, PageNo(82)), (a, PageNo(52))],
        "others when it has none left"
    );
}

/// Whose the six pages chosen are: `true` for the other's, of which the program at work has older ones, by far and not so
/// far, and where memory is short.
fn chosen_beside_one_at_work(
    add: impl Fn(&mut Script) -> SpaceId,
    touch: impl Fn(&mut Script, SpaceId, PageRange),
) -> [Vec<bool>; 3] {
    let mut script = script();
    let (program, other) = (script.space, add(&mut script));
    let fill = |script: &mut Script, from| {
        let pages = PageRange::new(PageNo(from), 30);
        script.engine.filled(program, pages);
    };
    let choose = |script: &mut Script| -> Vec<bool> {
        let mut chosen = Vec::new();
        let takers = [(program, 2), (other, 9)];
        script.engine.choose_victims(&takers, 6, &mut chosen);
        chosen.iter().map(|(space, _)| *space == other).collect()
    };
    fill(&mut script, 0);
    touch(&mut script, other, PageRange::new(PageNo(0), 5));
    let far = choose(&mut script);
    // Used as long ago, to within a factor: the program's room is no reason to wait.
    fill(&mut script, 100);
    let near = choose(&mut script);
    touch(&mut script, other, PageRange::new(PageNo(10), 5));
    script.engine.measured(200 * 4096);
    [far, near, choose(&mut script)]
}

const WITH_THE_OTHER: [bool; 6] = [false, false, true, true, true, true];

#[test]
fn pages_of_files_wait_for_far_older_ones_of_programs_unless_memory_is_short() {
    let chosen = chosen_beside_one_at_work(
        |script| script.engine.add_file(),
        |script, file, pages| script.engine.read_done(file, pages),
    );
    assert_eq!(
        chosen,
        [&[false; 2][..], &WITH_THE_OTHER, &WITH_THE_OTHER].map(Vec::from)
    );
}

#[test]
fn a_program_keeps_its_young_pages_while_one_with_far_older_is_at_work() {
    let chosen = chosen_beside_one_at_work(
        |script| script.engine.add_space(),
        |script, space, pages| {
            script.engine.filled(space, pages);
        },
    );
    assert_eq!(
        chosen,
        [&[false; 2][..], &WITH_THE_OTHER, &WITH_THE_OTHER].map(Vec::from)
    );
}

#[test]
fn refusals_decide_when_a_page_is_chosen_again() {
    let mut script = script();
    let space = script.space;
    script.fill(0, 6);
    assert_eq!(script.choose(4), [0, 1, 2, 3]);
    let reasons = [
        Refusal::Busy,
        Refusal::Gone,
        Refusal::Unmovable,
        Refusal::Stale,
    ];
    for (page, why) in reasons.into_iter().enumerate() {
        script.engine.refused(space, PageNo(page as u64), why);
        assert_eq!(script.engine.violation(), None);
    }
    assert_eq!(
        script.choose(9),
        [3, 4, 5, 0],
        "stale is oldest again, busy youngest"
    );
    script.engine.adopt(space, PageRange::new(PageNo(2), 1));
    assert_eq!(
        script.choose(9),
        [2],
        "adopting gives a stuck page another chance"
    );
}

#[test]
fn stuck_pages_are_asked_for_when_nothing_else_is_left_and_get_another_chance() {
    let mut script = script();
    let space = script.space;
    script.fill(0, 3);
    assert_eq!(script.choose(2), [0, 1]);
    for page in [0, 1] {
        script
            .engine
            .refused(space, PageNo(page), Refusal::Unmovable);
    }
    script.engine.measured(settings().budget_bytes);
    assert!(!script.engine.needs_stuck(), "there is another page");
    assert_eq!(script.choose(9), [2]);
    script.engine.refused(space, PageNo(2), Refusal::Unmovable);
    assert_eq!(script.choose(9), []);
    assert!(script.engine.needs_stuck());
    script.engine.retry_stuck(space);
    assert_eq!(script.engine.violation(), None);
    assert!(!script.engine.needs_stuck());
    assert_eq!(script.choose(9), [0, 1, 2]);
}

#[test]
fn the_floor_is_spent_when_nothing_is_left_to_take() {
    let floor = Settings {
        floor_bytes: 4 * 4096,
        ..settings()
    };
    let mut script = Script::new(floor, "castro03");
    let space = script.space;
    script.fill(0, 2);
    script.engine.measured(floor.budget_bytes - 3 * 4096);
    let fault = |script: &mut Script| {
        let mut plan = FillPlan::default();
        script.engine.fault(space, PageNo(9), false, &mut plan)
    };
    assert_eq!(fault(&mut script), FaultAnswer::NoMemory);
    assert_eq!(script.choose(9), [0, 1]);
    assert_eq!(
        fault(&mut script),
        FaultAnswer::NoMemory,
        "they are leaving"
    );
    for page in [0, 1] {
        let unmovable = Refusal::Unmovable;
        script.engine.refused(space, PageNo(page), unmovable);
    }
    assert_eq!(script.choose(9), []);
    assert_eq!(fault(&mut script), FaultAnswer::Fill);
    script.fill(9, 1);
    assert_eq!(fault(&mut script), FaultAnswer::Fill, "a second thread");
    script.engine.measured(floor.budget_bytes);
    assert_eq!(script.choose(9), []);
    let mut plan = FillPlan::default();
    let other = script.engine.fault(space, PageNo(10), false, &mut plan);
    assert_eq!(other, FaultAnswer::NoMemory, "the budget is the limit");
}

#[test]
fn a_body_nobody_wants_any_more_is_dropped_when_folded() {
    let mut script = script();
    script.fill(0, 1);
    script.choose(1);
    let body = script.take(0).unwrap();
    let space = script.space;
    script
        .engine
        .forget(space, PageRange::new(PageNo(0), 1 << 40));
    assert_eq!(
        script.engine.counters().staged_pages,
        1,
        "its slot is still in use"
    );
    script.fold(body, 1, 100);
    let counters = script.engine.counters();
    assert_eq!((counters.staged_pages, counters.stored_pages), (0, 0));
    assert_eq!(counters.folded_void_pages, 1);
}

#[test]
fn a_page_for_which_there_is_no_place_stays_where_it_was_taken_to() {
    let settings = Settings {
        swap: None,
        ..settings()
    };
    let mut script = Script::within(2 * 4096, settings, "static:60%", Victims::Lives);
    script.store(4, 2000);
    script.fill(4, 1);
    let taken = script.choose(1)[0];
    let body = script.take(taken).unwrap();
    let before = script.engine.counters();
    assert_eq!(script.try_fold(body, 4, 2000), Err(CacheFull));
    assert_eq!(script.engine.counters(), before);
    let (answer, plan) = script.fault(taken);
    assert_eq!(answer, FaultAnswer::Fill);
    assert_eq!(plan.items, [FillItem::Staged(StagingSlot(5))]);
    // Once another has left there is a place.
    script.bring_back(0);
    script.fold(body, 4, 2000);
    assert_eq!(script.fault(taken).1.bytes, [4; 2000]);
}
