//! Which neighbours of a page come along when it comes back.

use pleat_types::{PageNo, PageRange};

use super::script::{settings, Script};
use crate::{FaultAnswer, FillPlan, Settings, Victims, WriteOutcome};

/// 704 pages in memory.
fn filled(sizing: &str) -> Script {
    let settings = Settings {
        budget_bytes: 4000 * 4096,
        brings_neighbours: true,
        keeps_copies: true,
        ..settings()
    };
    let mut script = Script::choosing(settings, sizing, Victims::Fifo);
    script.fill(0, 704);
    script
}

/// 640 pages in memory, and those of the first eight blocks away.
fn script() -> Script {
    let mut script = filled("static:25%");
    take_away(&mut script, 64);
    script
}

/// The oldest so many pages leave.
fn take_away(script: &mut Script, count: usize) -> Vec<u64> {
    let gone = script.choose(count);
    for &page in &gone {
        let body = script.take(page).unwrap();
        script.fold(body, 1, 100);
    }
    gone
}

/// A fault on the page, and the neighbours that come along.
fn want(script: &mut Script, page: u64) -> Vec<u64> {
    let (space, page) = (script.space, PageNo(page));
    let mut plan = FillPlan::default();
    let answer = script.engine.fault(space, page, false, &mut plan);
    assert_eq!((answer, plan.items.len()), (FaultAnswer::Fill, 1));
    let brings = script.engine.filled(space, PageRange::new(page, 1));
    let mut brought = Vec::new();
    while let Some(first) = script
        .engine
        .neighbours(space, page, &mut plan)
        .filter(|_| brings)
    {
        let range = PageRange::new(first, plan.items.len() as u64);
        script.engine.filled_beside(space, range);
        brought.extend(range.pages().map(|page| page.0));
    }
    assert_eq!(script.engine.violation(), None);
    brought
}

/// Everything in memory leaves, and with it every visit ends.
fn turn_over(script: &mut Script) {
    take_away(script, 10_000);
}

#[test]
fn all_of_a_block_comes_along_on_both_sides() {
    let mut script = script();
    assert_eq!(want(&mut script, 3), [0, 1, 2, 4, 5, 6, 7]);
    let totals = script.engine.counters();
    assert_eq!(
        (totals.prefetched_pages, totals.filled_stored_pages),
        (7, 1)
    );
}

#[test]
fn one_visit_in_eight_brings_nothing() {
    let mut script = script();
    let alone = (0..8).filter(|block| want(&mut script, block * 8 + 5).is_empty());
    assert_eq!(alone.count(), 1);
}

#[test]
fn where_a_visit_showed_no_use_nothing_comes_along_any_more() {
    let mut script = script();
    assert_eq!(want(&mut script, 56), [], "the eighth block probes");
    // Its seven others were not wanted: that is known when it is visited again.
    turn_over(&mut script);
    assert_eq!(want(&mut script, 62), []);
    assert_eq!(
        want(&mut script, 0),
        [],
        "nor elsewhere: habits are the program's"
    );
}

#[test]
fn a_visit_is_learned_from_when_its_time_is_over_and_not_when_the_block_is_wanted_next() {
    let mut script = script();
    assert_eq!(want(&mut script, 56), [], "the eighth block probes");
    assert_eq!(want(&mut script, 3).len(), 7, "nothing is known yet");
    // More than a 32nd of the 650 pages in memory.
    take_away(&mut script, 30);
    assert_eq!(want(&mut script, 8), []);
}

#[test]
fn where_visits_use_most_of_a_block_it_comes_along_again() {
    let mut script = script();
    want(&mut script, 56);
    turn_over(&mut script);
    want(&mut script, 62);
    // Blocks 0 to 5 are used whole: the first time nobody expects it, the second time it was expected.
    for _ in 0..2 {
        for page in (0..48).map(|nth| nth / 8 * 8 + 7 - nth % 8) {
            assert_eq!(want(&mut script, page), [], "page {page}");
        }
        turn_over(&mut script);
    }
    let brought = (0..6).map(|block| want(&mut script, block * 8).len());
    let brought: Vec<usize> = brought.collect();
    let whole = brought.iter().filter(|&&count| count == 7).count();
    assert!(whole >= 4, "{brought:?}");
}

#[test]
fn there_is_no_more_of_them_than_memory() {
    let mut script = script();
    script.engine.measured((4000 - 3) * 4096);
    let brought = want(&mut script, 3);
    assert!(brought.len() < 4, "{brought:?}");
}

#[test]
fn neighbours_on_disk_are_read_along_when_they_are_near() {
    let mut script = filled("static:0");
    take_away(&mut script, 16);
    while let Some(plan) = script.plan_write() {
        script.engine.write_done(&plan, WriteOutcome::Done);
    }
    let mut plan = FillPlan::default();
    let answer = script
        .engine
        .fault(script.space, PageNo(3), false, &mut plan);
    assert_eq!(answer, FaultAnswer::Read);
    assert!(plan.reads.len() > 1, "{:?}", plan.reads);
    for (nth, item) in plan.reads.clone().iter().enumerate() {
        let bytes = vec![1; item.len as usize];
        assert!(script.engine.landed(item, &bytes, nth > 0));
    }
    let landed = plan.reads.len();
    assert_eq!(want(&mut script, 3).len(), landed - 1);
    assert_eq!(
        script.engine.counters().read_ahead_used_pages,
        0,
        "nobody can tell"
    );
}
