//! The marks and the order of requests, by hand.

use super::*;

const FILE: u64 = 7;

fn ledger_with(pages: Range<u64>) -> (Ledger, Vec<PageRange>) {
    let mut ledger = Ledger::default();
    let mut ranges = Vec::new();
    ledger.place((FILE, 0), &pages, &mut ranges);
    (ledger, ranges)
}

#[test]
fn pages_are_found_where_they_were_placed() {
    let (mut ledger, ranges) = ledger_with(5..40);
    let placed: Vec<PageNo> = ranges.iter().flat_map(|range| range.pages()).collect();
    assert_eq!(placed.len(), 35);
    for (at, &page) in (5..40).zip(&placed) {
        assert_eq!(ledger.owner(page), Some((FILE, at)));
    }
    assert_eq!(
        ledger.placed(FILE, &(0..u64::MAX)),
        ledger.placed(FILE, &(0..48))
    );
    let mut other = Vec::new();
    ledger.place((8, 0), &(0..1), &mut other);
    assert!(!placed.contains(&other[0].start), "two files in one place");
}

#[test]
fn bits_are_those_of_the_pages_in_the_range() {
    assert_eq!(bits(0, &(0..16)), u16::MAX);
    assert_eq!(bits(1, &(0..16)), 0);
    assert_eq!(bits(1, &(17..19)), 0b110);
    assert_eq!(bits(0, &(15..u64::MAX)), 1 << 15);
}

#[test]
fn a_write_after_a_read_of_what_was_dropped_drops_it_again() {
    let (mut ledger, _) = ledger_with(0..4);
    let write = ledger.receive(FILE, true, 0..1);
    assert!(!ledger.landed(write), "nothing was dropped");
    ledger.answered(write);
    ledger.evicts(FILE, &(0..1));
    let read = ledger.receive(FILE, false, 0..1);
    ledger.answered(read);
    let write = ledger.receive(FILE, true, 0..2);
    assert!(
        ledger.landed(write),
        "the kernel may have read what was there before"
    );
    ledger.answered(write);
    let write = ledger.receive(FILE, true, 0..2);
    assert!(!ledger.landed(write), "it began after the drop");
    ledger.answered(write);
    ledger.evicts(FILE, &(1..2));
    let write = ledger.receive(FILE, true, 0..2);
    assert!(!ledger.landed(write), "nobody has read it since");
}

#[test]
fn a_read_waits_for_writes_received_before_it_and_for_no_others() {
    let (mut ledger, _) = ledger_with(0..4);
    let first = ledger.receive(FILE, true, 0..2);
    let read = ledger.receive(FILE, false, 1..2);
    let beside = ledger.receive(FILE, false, 2..3);
    let later = ledger.receive(FILE, true, 1..2);
    assert!(ledger.waits_for_write(read));
    assert!(!ledger.waits_for_write(beside));
    ledger.landed(first);
    assert!(
        !ledger.waits_for_write(read),
        "though a later write is under way"
    );
    ledger.landed(later);
}

#[test]
fn requests_void_what_is_being_taken_and_keep_pages_from_being_taken() {
    let (mut ledger, ranges) = ledger_with(0..4);
    let page = ranges[0].start;
    assert_eq!(ledger.may_take((FILE, 0)), Some(MayTake::Copy));
    let read = ledger.receive(FILE, false, 0..1);
    assert_eq!(ledger.may_take((FILE, 0)), None, "it is locked and empty");
    ledger.answered(read);
    ledger.begin_take(page, (FILE, 0));
    ledger.begin_take(page.plus(1), (FILE, 1));
    let read = ledger.receive(FILE, false, 0..1);
    ledger.answered(read);
    assert!(!ledger.end_take(page));
    assert!(ledger.end_take(page.plus(1)));
    ledger.set_unsure(FILE, &(0..1), true);
    assert_eq!(ledger.may_take((FILE, 0)), Some(MayTake::Drop));
}

#[test]
fn chunks_of_which_nothing_is_known_are_used_again_as_if_they_had_been_dropped() {
    let mut ledger = Ledger::default();
    let mut ranges = Vec::new();
    for file in 0..5000 {
        ledger.place((file, 0), &(0..1), &mut ranges);
    }
    ledger.sweep(|_| false);
    let before = ledger.owners.len();
    ledger.place((FILE, 0), &(0..1), &mut ranges);
    assert_eq!(ledger.owners.len(), before, "a free chunk serves");
    let read = ledger.receive(FILE, false, 0..1);
    ledger.answered(read);
    let write = ledger.receive(FILE, true, 0..1);
    assert!(ledger.landed(write), "its mark may have been lost");
}

#[test]
fn a_file_that_changed_while_it_was_forgotten_is_not_the_same() {
    let (mut ledger, _) = ledger_with(0..1);
    let stamp = crate::Stamp {
        mtime_ns: 1,
        ctime_ns: 2,
        size: 3,
        birth_ns: None,
    };
    ledger.sleep(FILE, stamp);
    assert!(ledger.wake(FILE, || stamp));
    assert!(ledger.wake(FILE, || unreachable!("it is awake")));
}

#[test]
fn a_mark_stays_while_its_drop_may_be_yet_to_come() {
    let (mut ledger, ranges) = ledger_with(0..4);
    let read = |ledger: &mut Ledger, page| {
        let read = ledger.receive(FILE, false, page..page + 1);
        ledger.answered(read);
    };
    let write = |ledger: &mut Ledger, page| {
        let write = ledger.receive(FILE, true, page..page + 1);
        let is_dropped = ledger.landed(write);
        ledger.answered(write);
        is_dropped
    };
    ledger.begin_take(ranges[0].start, (FILE, 0));
    ledger.evicts(FILE, &(0..1));
    let order = ledger.begin_drop(FILE, 1..2);
    for page in [0, 1] {
        assert!(!write(&mut ledger, page));
        read(&mut ledger, page);
        assert!(
            write(&mut ledger, page),
            "it may have begun before the drop"
        );
    }
    ledger.end_take(ranges[0].start);
    ledger.end_drop(order);
    for page in [0, 1] {
        write(&mut ledger, page);
        read(&mut ledger, page);
        assert!(!write(&mut ledger, page), "everything is over");
    }
}
