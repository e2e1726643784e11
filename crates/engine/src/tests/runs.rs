//! Which neighbours come along with a faulted page.

use pleat_types::{PageNo, PageRange, StagingSlot};

use super::script::{settings, Script};
use crate::{FaultAnswer, FillItem, Settings, WriteOutcome};

/// Makes the stream that ends at `end` ask for the longest run next.
fn run_up_to(script: &mut Script, end: u64) {
    for page in end - 8..end {
        script.fill(page, 1);
    }
}

fn items(script: &mut Script, page: u64) -> Vec<FillItem> {
    let (answer, plan) = script.fault(page);
    assert_eq!(answer, FaultAnswer::Fill);
    plan.items
}

#[test]
fn sequential_first_touches_are_zeroed_in_growing_runs() {
    let mut script = Script::new(settings(), "castro03");
    let mut page = 0;
    for expected in [1, 2, 4, 8, 16, 16] {
        let run = items(&mut script, page);
        assert_eq!(run, vec![FillItem::Zero; expected]);
        script.fill(page, expected as u64);
        page += expected as u64;
    }
    assert_eq!(items(&mut script, 1000).len(), 1);
}

#[test]
fn a_run_of_first_touches_ends_before_a_known_page() {
    let mut script = Script::new(settings(), "castro03");
    script.fill(103, 1);
    run_up_to(&mut script, 100);
    assert_eq!(items(&mut script, 100), [FillItem::Zero; 3]);
}

#[test]
fn a_run_of_first_touches_ends_before_a_page_that_is_away() {
    let mut script = Script::new(settings(), "castro03");
    script.store(1, 300);
    let space = script.space;
    script.engine.remap(space, PageNo(0), PageNo(102), 1);
    run_up_to(&mut script, 100);
    assert_eq!(items(&mut script, 100), [FillItem::Zero; 2]);
}

#[test]
fn a_run_brings_back_stored_staged_and_same_pages_together() {
    let mut script = Script::new(settings(), "castro03");
    script.store(2, 300);
    script.fill(2, 2);
    script.choose(2);
    script.take(2).unwrap();
    let same = script.take(3).unwrap();
    script
        .engine
        .folded(same, pleat_codec::Folded::Same(7), &[])
        .unwrap();
    // Pages 4 and on are unknown: another kind of run.
    let space = script.space;
    script.engine.remap(space, PageNo(0), PageNo(1000), 4);
    run_up_to(&mut script, 1000);
    let run = items(&mut script, 1000);
    let [FillItem::Packed {
        start: 0, len: 300, ..
    }, FillItem::Packed {
        start: 300,
        len: 300,
        ..
    }, FillItem::Staged(StagingSlot(3)), FillItem::Same(7)] = run[..]
    else {
        panic!("{run:?}")
    };
}

#[test]
fn a_run_ends_before_a_page_that_has_to_be_read_from_the_file() {
    let mut script = Script::new(settings(), "castro03");
    script.store(9, 4000);
    let plan = script.plan_write().unwrap();
    script.engine.write_done(&plan, WriteOutcome::Done);
    let space = script.space;
    // Two pages were written; put one stored page before the second.
    script.engine.remap(space, PageNo(5), PageNo(1000), 3);
    script.engine.remap(space, PageNo(1), PageNo(1002), 1);
    run_up_to(&mut script, 1000);
    assert_eq!(items(&mut script, 1000).len(), 2);
    assert!(matches!(script.fault(1002).0, FaultAnswer::Read));
}

#[test]
fn a_run_ends_before_resident_and_leaving_pages() {
    let mut script = Script::new(settings(), "castro03");
    script.store(6, 300);
    script.bring_back(2);
    let space = script.space;
    script.engine.remap(space, PageNo(0), PageNo(1000), 6);
    assert_eq!(script.choose(1), [1002]);
    run_up_to(&mut script, 1000);
    assert_eq!(items(&mut script, 1000).len(), 2);
    assert_eq!(script.fault(1002).0, FaultAnswer::Wait);
}

#[test]
fn a_run_is_no_longer_than_free_memory() {
    let mut script = Script::new(settings(), "castro03");
    run_up_to(&mut script, 100);
    script.engine.measured(97 * 4096);
    assert_eq!(items(&mut script, 100).len(), 3);
    script.engine.measured(200 * 4096);
    assert_eq!(
        items(&mut script, 100).len(),
        1,
        "an urgent fault gets its page"
    );
}

#[test]
fn with_run_max_one_no_neighbour_ever_comes() {
    let mut script = Script::new(
        Settings {
            run_max: 1,
            ..settings()
        },
        "castro03",
    );
    run_up_to(&mut script, 100);
    assert_eq!(items(&mut script, 100).len(), 1);
}

#[test]
fn a_page_thought_present_is_only_zeroed_unless_it_is() {
    let mut script = Script::new(settings(), "castro03");
    let space = script.space;
    script.engine.adopt(space, PageRange::new(PageNo(4), 1));
    assert_eq!(items(&mut script, 4), [FillItem::Resident]);
}

#[test]
fn a_page_thought_present_is_not_taken_before_its_fault_is_answered() {
    let mut script = Script::new(settings(), "castro03");
    script.fill(4, 1);
    assert_eq!(items(&mut script, 4), [FillItem::Resident]);
    assert!(
        script.choose(1).is_empty(),
        "zeros would replace what it holds"
    );
    script.fill(4, 1);
    assert_eq!(script.choose(1), [4]);
}
