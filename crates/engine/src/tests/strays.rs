//! Pages that are given up, moved or replaced while a command to take them is under way.

use pleat_types::{PageNo, PageRange};

use super::script::{settings, Script};
use crate::{FaultAnswer, FillItem, Refusal};

/// One resident page at 10, under command.
fn leaving() -> Script {
    let mut script = Script::new(settings(), "castro03");
    script.fill(10, 1);
    assert_eq!(script.choose(1), [10]);
    script
}

fn forget(script: &mut Script, page: u64) {
    let space = script.space;
    script.engine.forget(space, PageRange::new(PageNo(page), 1));
}

fn remap(script: &mut Script, from: u64, to: u64) {
    let space = script.space;
    script.engine.remap(space, PageNo(from), PageNo(to), 1);
    assert_eq!(script.engine.violation(), None);
}

#[test]
fn a_page_given_up_while_leaving_is_not_wanted_when_taken() {
    let mut script = leaving();
    forget(&mut script, 10);
    assert_eq!(script.take(10), None);
    assert_eq!(script.fault(10).1.items, [FillItem::Zero]);
}

#[test]
fn an_address_under_command_is_not_filled_until_the_report() {
    let mut script = leaving();
    forget(&mut script, 10);
    assert_eq!(script.fault(10).0, FaultAnswer::Wait);
    let space = script.space;
    script.engine.refused(space, PageNo(10), Refusal::Gone);
    assert_eq!(script.fault(10).0, FaultAnswer::Fill);
}

#[test]
fn a_page_taken_before_it_moved_is_found_at_its_new_address() {
    let mut script = leaving();
    remap(&mut script, 10, 20);
    assert_eq!(script.fault(20).0, FaultAnswer::Wait);
    assert!(script.take(10).is_some());
    assert!(matches!(
        script.fault(20).1.items[..],
        [FillItem::Staged(_)]
    ));
    assert_eq!(script.fault(10).1.items, [FillItem::Zero]);
}

#[test]
fn a_page_that_moved_before_it_could_be_taken_stays_resident() {
    let mut script = leaving();
    remap(&mut script, 10, 20);
    let space = script.space;
    script.engine.refused(space, PageNo(10), Refusal::Gone);
    assert_eq!(script.choose(9), [20]);
}

#[test]
fn a_page_that_came_to_an_address_under_command_may_be_the_one_taken() {
    let mut script = leaving();
    forget(&mut script, 10);
    let space = script.space;
    script.engine.adopt(space, PageRange::new(PageNo(10), 1));
    assert!(script.take(10).is_some(), "else the content would be lost");
    assert!(matches!(
        script.fault(10).1.items[..],
        [FillItem::Staged(_)]
    ));
}

#[test]
fn reports_for_a_space_that_ended_are_void() {
    let mut script = leaving();
    let space = script.space;
    script.engine.end_space(space);
    assert_eq!(script.take(10), None);
    script.engine.refused(space, PageNo(10), Refusal::Busy);
    assert_eq!(script.engine.counters().resident_pages, 0);
}

#[test]
#[should_panic(expected = "leaving")]
fn a_space_is_not_forked_while_pages_are_leaving() {
    let mut script = leaving();
    let space = script.space;
    script.engine.fork_space(space);
}

#[test]
#[should_panic(expected = "overlaps")]
fn overlapping_moves_are_refused() {
    let mut script = leaving();
    let space = script.space;
    script.engine.remap(space, PageNo(10), PageNo(11), 2);
}
