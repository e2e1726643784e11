//! Write-out: order, packing, faults and losses while a cluster is under way.

use pleat_types::{PageNo, PageRange};

use super::script::{clusters, pages_of, settings, Script, CODEC};
use crate::{
    FaultAnswer, FillItem, Settings, SwapSettings, SwapUnit, WayOut, WriteOut, WriteOutcome,
};

/// `pages` pages of 1500 bytes, two fragments each, four to a cluster.
fn stored(pages: u64) -> Script {
    let mut script = Script::new(settings(), "static:60%");
    script.store(pages, 1500);
    script
}

#[test]
fn the_oldest_pages_are_written_first_and_in_order() {
    let mut script = stored(10);
    script.bring_back(1);
    let written: Vec<u8> = std::iter::from_fn(|| script.plan_write())
        .flat_map(|p| pages_of(&p))
        .collect();
    assert_eq!(written, [0, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn a_cluster_is_packed_in_whole_fragments() {
    let mut script = stored(5);
    let plan = script.plan_write().unwrap();
    let starts: Vec<u32> = plan.items.iter().map(|item| item.start).collect();
    assert_eq!(starts, [0, 2048, 4096, 6144]);
    assert!(plan.items.iter().all(|item| item.len == 1500));
    assert_eq!(plan.bytes.len(), 8192);
    assert_eq!(
        plan.bytes[1499..1501],
        [0, 0],
        "page 0 holds zeros, and so does the padding"
    );
    assert_eq!(plan.bytes[2048 + 1499..2048 + 1501], [1, 0]);
}

#[test]
fn a_page_being_written_is_still_answered_from_memory() {
    let mut script = stored(4);
    script.plan_write().unwrap();
    let (answer, plan) = script.fault(2);
    assert_eq!(answer, FaultAnswer::Fill);
    assert_eq!(
        plan.items,
        [FillItem::Packed {
            codec: CODEC,
            start: 0,
            len: 1500,
            check: None,
            compares: false,
        }]
    );
    assert_eq!(plan.bytes, [2; 1500]);
}

#[test]
fn a_written_page_is_read_from_where_it_was_written() {
    let mut script = stored(4);
    let plan = script.plan_write().unwrap();
    script.engine.write_done(&plan, WriteOutcome::Done);
    let (answer, reads) = script.fault(2);
    assert_eq!(answer, FaultAnswer::Read);
    let [item] = reads.reads[..] else {
        panic!("{reads:?}")
    };
    assert_eq!(item.offset, plan.offset + u64::from(plan.items[2].start));
    assert_eq!((item.len, item.codec), (1500, CODEC));
    assert!(script.engine.landed(&item, &[2; 1500], false));
    let (answer, found) = script.fault(2);
    assert_eq!((answer, found.bytes), (FaultAnswer::Fill, vec![2; 1500]));
    script.bring_back(2);
    assert_eq!(script.engine.counters().swap_live_bytes, 3 * 2048);
    assert!(!script.engine.landed(&item, &[2; 1500], false), "not there");
}

#[test]
fn room_being_written_to_is_not_used_again_before_the_write_ends() {
    let mut script = stored(8);
    let plan = script.plan_write().unwrap();
    let space = script.space;
    script.engine.forget(space, PageRange::new(PageNo(0), 4));
    assert_eq!(script.engine.violation(), None);
    assert_eq!(script.engine.counters().swap_live_bytes, 8192);
    let other = script.plan_write().unwrap();
    assert!(other.offset >= plan.offset + 8192);
    script.engine.write_done(&plan, WriteOutcome::Done);
    assert_eq!(
        script.engine.counters().swap_live_bytes,
        8192,
        "only the second cluster is left"
    );
}

#[test]
fn pages_of_a_failed_write_are_the_oldest_again_and_writing_stops() {
    let mut script = stored(10);
    let first = script.plan_write().unwrap();
    let second = script.plan_write().unwrap();
    script.engine.write_done(&second, WriteOutcome::Done);
    script.engine.write_done(&first, WriteOutcome::Failed);
    assert_eq!(script.plan_write(), None);
    assert!(!script.engine.write_wanted());
    script.engine.resume_writes();
    assert_eq!(pages_of(&script.plan_write().unwrap()), [0, 1, 2, 3]);
    assert_eq!(pages_of(&script.plan_write().unwrap()), [8, 9]);
    assert!(second.serial > first.serial);
}

/// Pages of 1500 bytes in the swap file, written one by one.
fn one_by_one(pages: u8, outcome: impl Fn(u8) -> WriteOutcome) -> Vec<(u64, u64)> {
    let swap = SwapSettings {
        cluster_bytes: 4 * 4096,
        ..clusters()
    };
    let settings = Settings {
        swap: Some(swap),
        ..settings()
    };
    let mut script = Script::new(settings, "static:0");
    let write = |page| {
        script.engine.resume_writes();
        script.fill(u64::from(page), 1);
        script.choose(1);
        let body = script.take(u64::from(page)).unwrap();
        script.fold(body, page, 1500);
        let plan = script.plan_write().unwrap();
        script.engine.write_done(&plan, outcome(page));
        assert_eq!(script.engine.violation(), None);
        (plan.offset, plan.serial)
    };
    (0..pages).map(write).collect()
}

#[test]
fn short_writes_fill_a_cluster_together_under_one_number() {
    let written = one_by_one(6, |_| WriteOutcome::Done);
    let offsets: Vec<u64> = written.iter().map(|&(offset, _)| offset / 4096).collect();
    assert_eq!(offsets, [0, 1, 2, 3, 4, 5]);
    let serials: Vec<u64> = written.iter().map(|&(_, serial)| serial).collect();
    assert_eq!(serials, [1, 1, 1, 1, 2, 2]);
}

#[test]
fn after_a_failed_write_the_next_begins_a_cluster() {
    let fails = |page| match page {
        1 => WriteOutcome::Failed,
        _ => WriteOutcome::Done,
    };
    let written = one_by_one(4, fails);
    let serials: Vec<u64> = written.iter().map(|&(_, serial)| serial).collect();
    assert_eq!(serials, [1, 1, 2, 2]);
    let mut places: Vec<_> = written.clone();
    places.sort_unstable();
    places.dedup();
    assert_eq!(
        places.len(),
        written.len(),
        "no place twice under one number"
    );
}

#[test]
fn a_full_file_is_asked_again_once_room_was_freed() {
    let swap = SwapSettings {
        unit: SwapUnit::Block,
        max_bytes: Some(8192),
        ..clusters()
    };
    let mut script = Script::new(
        Settings {
            swap: Some(swap),
            ..settings()
        },
        "static:4K",
    );
    script.store(6, 1500);
    let plan = script.plan_write().unwrap();
    assert_eq!(
        pages_of(&plan),
        [0, 1],
        "as many of the oldest as there is room for"
    );
    script.engine.write_done(&plan, WriteOutcome::Done);
    assert!(script.engine.write_wanted());
    assert_eq!(script.plan_write(), None);
    assert!(!script.engine.write_wanted(), "the file is full");
    script.bring_back(0);
    assert!(script.engine.write_wanted());
    assert_eq!(pages_of(&script.plan_write().unwrap()), [2]);
}

#[test]
fn memory_that_taking_pages_cannot_free_is_freed_by_writing() {
    let mut script = stored(20);
    assert!(!script.engine.write_wanted());
    script.engine.measured(100 * 4096);
    assert!(
        script.engine.write_wanted(),
        "no page is resident, and the reserve is not free"
    );
    let mut clusters = 0;
    while script.engine.write_wanted() {
        script.plan_write().unwrap();
        clusters += 1;
    }
    assert_eq!(clusters, 3, "6000 bytes each, 16384 missing");
}

#[test]
fn memory_is_freed_by_writing_when_no_taker_has_a_page_to_take() {
    let mut script = stored(20);
    let (taker, other) = (script.space, script.engine.add_space());
    script.engine.filled(other, PageRange::new(PageNo(0), 50));
    script.engine.measured(100 * 4096);
    assert!(!script.engine.write_wanted(), "50 pages could be taken");
    let choose = |script: &mut Script, takers: &[_]| {
        let mut chosen = Vec::new();
        script.engine.choose_victims(takers, 8, &mut chosen);
        chosen.len()
    };
    choose(&mut script, &[(taker, 8), (other, 0)]);
    assert!(
        !script.engine.write_wanted(),
        "who has pages is at work; that another has none says nothing"
    );
    assert_eq!(choose(&mut script, &[(taker, 8), (other, 1)]), 1);
    choose(&mut script, &[(taker, 8)]);
    assert!(script.engine.write_wanted(), "who has pages gives none");
    let why = script.engine.counters();
    assert_eq!(why.forced_starved_pages, 0, "none has left yet");
    script.plan_write().unwrap();
    assert!(script.engine.counters().forced_starved_pages > 0);
}

#[test]
fn a_shared_body_is_written_once_and_freed_with_its_last_page() {
    let mut script = stored(1);
    let parent = script.space;
    script.engine.fork_space(parent);
    let plan = script.plan_write().unwrap();
    assert_eq!(plan.items.len(), 1);
    script.engine.write_done(&plan, WriteOutcome::Done);
    script.bring_back(0);
    assert_eq!(script.engine.counters().disk_pages, 1);
    script.engine.end_space(parent);
    assert_eq!(script.engine.violation(), None);
    assert_eq!(script.engine.counters().swap_live_bytes, 2048);
}

#[test]
fn a_page_that_was_only_read_leaves_without_being_compressed_again() {
    let settings = Settings {
        tracks_writes: true,
        write_out: WriteOut::Ahead { clean_percent: 10 },
        ..settings()
    };
    let mut script = Script::new(settings, "static:60%");
    script.store(4, 1500);
    for (page, write, way) in [(1, false, WayOut::Drop), (2, true, WayOut::Take)] {
        script.bring_back(page);
        script.engine.touch(script.space, PageNo(page), write);
        assert_eq!(script.choose(1), [page]);
        assert_eq!(script.engine.way_out(script.space, PageNo(page)), way);
        match way {
            WayOut::Drop => script.engine.dropped(script.space, PageNo(page)),
            _ => {
                let body = script.take(page).unwrap();
                script.fold(body, 7, 1500);
            }
        }
        assert_eq!(script.engine.counters().stored_pages, 4);
        assert_eq!(script.engine.violation(), None);
    }
    assert_eq!(script.engine.counters().folded_packed_pages, 5);
    assert_eq!(script.fault(1).1.bytes, [1; 1500]);
    assert_eq!(script.fault(2).1.bytes, [7; 1500]);
}

#[test]
fn a_changed_page_of_a_file_is_written_along_once_and_stays() {
    let mut script = Script::new(settings(), "static:60%");
    script.fill(0, 1);
    let file = script.engine.add_file();
    let page = PageNo(3);
    script.engine.filled(file, PageRange::new(page, 1));
    assert!(!script.engine.written_along(file, page), "unchanged");
    script.engine.touch(file, page, true);
    assert!(script.engine.written_along(file, page));
    assert!(!script.engine.written_along(file, page), "written already");
    assert!(!script.engine.written_along(file, PageNo(4)), "not there");
    assert!(
        !script.engine.written_along(script.space, PageNo(0)),
        "no file"
    );
    assert!(script.engine.touch(file, page, false));
}

/// cervera99, section 3.2: a page leaves memory only where a whole block is left for it.
#[test]
fn no_page_leaves_for_which_there_might_be_no_place() {
    let swap = SwapSettings {
        unit: SwapUnit::Block,
        virtual_percent: Some(200),
        max_bytes: Some(4 * 4096),
        ..clusters()
    };
    let settings = Settings {
        swap: Some(swap),
        ..settings()
    };
    let mut script = Script::new(settings, "static:60%");
    script.fill(0, 20);
    let chosen = script.choose(10);
    assert_eq!(chosen, [0, 1, 2, 3], "four blocks");
    let body = script.take(0).unwrap();
    script.fold(body, 0, 1000);
    assert_eq!(script.choose(10), [4], "its length is known now");
    for page in [1, 2, 3, 4] {
        let body = script.take(page).unwrap();
        script.fold(body, 1, 1000);
    }
    assert_eq!(script.choose(10), [5, 6, 7], "eight places in all");
}
