//! Collection of the swap file: when, which clusters, and what happens to pages meanwhile.

use pleat_codec::Folded;
use pleat_types::{PageNo, PageRange};

use super::script::{clusters, settings, Script};
use crate::{FaultAnswer, ReadItem, Settings, SwapSettings, WriteOutcome, WritePlan};

/// Pages of 1000 bytes, all in the swap file in clusters of 8 KiB, eight to each.
fn on_disk(pages: u64, max_bytes: Option<u64>) -> Script {
    on_disk_of(pages, max_bytes, settings())
}

fn on_disk_of(pages: u64, max_bytes: Option<u64>, settings: Settings) -> Script {
    let swap = SwapSettings {
        fragment_bytes: 1,
        max_bytes,
        ..clusters()
    };
    let settings = Settings {
        budget_bytes: 1 << 24,
        swap: Some(swap),
        ..settings
    };
    let mut script = Script::new(settings, "static:60%");
    script.store(pages, 1000);
    write_all(&mut script);
    script
}

fn write_all(script: &mut Script) {
    while let Some(plan) = script.plan_write() {
        script.engine.write_done(&plan, WriteOutcome::Done);
        assert_eq!(script.engine.violation(), None);
    }
}

fn forget(script: &mut Script, page: u64) {
    let space = script.space;
    script.engine.forget(space, PageRange::new(PageNo(page), 1));
}

fn plan_collect(script: &mut Script) -> Option<Vec<ReadItem>> {
    let mut reads = Vec::new();
    script.engine.plan_collect(&mut reads).then_some(reads)
}

fn plan_move(script: &mut Script, reads: &[ReadItem]) -> Option<WritePlan> {
    let bytes = vec![7; 4096];
    let moved: Vec<_> = reads
        .iter()
        .map(|item| (*item, &bytes[..item.len as usize]))
        .collect();
    let mut plan = WritePlan::default();
    script.engine.plan_move(&moved, &mut plan).then_some(plan)
}

/// Of every cluster only the first page is left.
fn mostly_dead(script: &mut Script, pages: u64) {
    (0..pages)
        .filter(|page| page % 8 != 0)
        .for_each(|page| forget(script, page));
}

#[test]
fn a_file_in_good_order_is_let_be() {
    let mut script = on_disk(80, None);
    assert!(!script.engine.collect_wanted());
    assert_eq!(plan_collect(&mut script), None);
}

#[test]
fn what_is_left_of_mostly_dead_clusters_fits_into_few() {
    let mut script = on_disk(64, None);
    mostly_dead(&mut script, 64);
    assert!(script.engine.collect_wanted());
    let reads = plan_collect(&mut script).unwrap();
    assert_eq!(reads.len(), 8, "one of each cluster");
    assert!(!script.engine.collect_wanted(), "one at a time");
    let plan = plan_move(&mut script, &reads).unwrap();
    assert_eq!(script.engine.violation(), None);
    script.engine.write_done(&plan, WriteOutcome::Done);
    let counters = script.engine.counters();
    assert_eq!((counters.moved_pages, counters.swap_used_bytes), (8, 8192));
    assert_eq!(counters.written_pages, 64, "they are not written anew");
    assert_eq!(script.engine.violation(), None);
    let (answer, found) = script.fault(8);
    assert_eq!(answer, FaultAnswer::Read);
    let at = plan.offset + u64::from(plan.items[1].start);
    assert_eq!(
        (found.reads[0].offset, found.reads[0].serial),
        (at, plan.serial)
    );
}

#[test]
fn pages_can_be_read_where_they_were_until_they_are_written_elsewhere() {
    let mut script = on_disk(64, None);
    mostly_dead(&mut script, 64);
    let reads = plan_collect(&mut script).unwrap();
    let plan = plan_move(&mut script, &reads).unwrap();
    assert_eq!(script.fault(8).1.reads, [reads[1]]);
    assert!(script.engine.is_current(&reads[1]));
    script.engine.write_done(&plan, WriteOutcome::Done);
    assert!(!script.engine.is_current(&reads[1]));
}

#[test]
fn pages_given_up_meanwhile_are_not_moved() {
    let mut script = on_disk(64, None);
    mostly_dead(&mut script, 64);
    let reads = plan_collect(&mut script).unwrap();
    forget(&mut script, 0);
    let plan = plan_move(&mut script, &reads).unwrap();
    assert_eq!(plan.items.len(), 7);
    forget(&mut script, 8);
    assert_eq!(script.engine.violation(), None);
    script.engine.write_done(&plan, WriteOutcome::Done);
    assert_eq!(script.engine.counters().moved_pages, 6);
    assert_eq!(script.engine.counters().swap_live_bytes, 6000);
    assert_eq!(script.engine.violation(), None);
}

#[test]
pub(super) fn copies_of_pages_that_are_being_folded_are_moved_along() {
    let settings = Settings {
        tracks_writes: true,
        ..settings()
    };
    let mut script = on_disk_of(64, None, settings);
    mostly_dead(&mut script, 64);
    let reads = plan_collect(&mut script).unwrap();
    script.bring_back(8);
    script.bring_back(16);
    let bodies: Vec<_> = script
        .choose(2)
        .into_iter()
        .map(|page| script.take(page).unwrap())
        .collect();
    let plan = plan_move(&mut script, &reads).unwrap();
    script.engine.write_done(&plan, WriteOutcome::Done);
    assert_eq!(script.engine.violation(), None);
    script.fold(bodies[0], 8, 1000);
    // Nothing is kept of the copy of a page that is one word.
    script
        .engine
        .folded(bodies[1], Folded::Same(16), &[])
        .unwrap();
    let counters = script.engine.counters();
    assert_eq!((counters.moved_pages, counters.swap_live_bytes), (8, 7000));
    assert_eq!((counters.clean_pages, counters.same_pages), (1, 1));
    assert_eq!(script.engine.violation(), None);
}

#[test]
fn nothing_moves_when_the_write_fails() {
    let mut script = on_disk(64, None);
    mostly_dead(&mut script, 64);
    let reads = plan_collect(&mut script).unwrap();
    let plan = plan_move(&mut script, &reads).unwrap();
    script.engine.write_done(&plan, WriteOutcome::Failed);
    assert!(reads.iter().all(|item| script.engine.is_current(item)));
    assert!(!script.engine.collect_wanted(), "writing has stopped");
    script.engine.resume_writes();
    assert!(script.engine.collect_wanted());
    assert_eq!(script.engine.violation(), None);
}

#[test]
fn a_cluster_that_is_being_written_is_not_emptied() {
    let mut script = on_disk(16, None);
    mostly_dead(&mut script, 16);
    script.store(8, 1000);
    let plan = script.plan_write().unwrap();
    (1..8).for_each(|page| forget(&mut script, page));
    let reads = plan_collect(&mut script).unwrap_or_default();
    let within = |item: &ReadItem| (plan.offset..plan.offset + 8192).contains(&item.offset);
    assert!(!reads.iter().any(within), "{reads:?}");
    script.engine.write_done(&plan, WriteOutcome::Done);
    assert_eq!(script.engine.violation(), None);
}

#[test]
fn a_limited_file_keeps_a_cluster_free_by_which_it_is_put_in_order() {
    let mut script = on_disk(200, Some(10 * 8192));
    let counters = script.engine.counters();
    assert_eq!(counters.disk_pages, 72, "nine clusters of ten");
    assert!(!script.engine.write_wanted());
    (0..72)
        .filter(|page| page % 2 == 0)
        .for_each(|page| forget(&mut script, page));
    let mut rounds = 0;
    while let Some(reads) = plan_collect(&mut script) {
        let plan = plan_move(&mut script, &reads).unwrap();
        script.engine.write_done(&plan, WriteOutcome::Done);
        assert_eq!(script.engine.violation(), None);
        rounds += 1;
        assert!(rounds < 20, "it goes round in circles");
        write_all(&mut script);
    }
    let pages = script.engine.counters().disk_pages;
    assert!(
        pages >= 72 - 4,
        "all but half a cluster that is left over: {pages}"
    );
}

#[test]
fn room_that_is_not_needed_is_given_back() {
    let mut script = on_disk(64, None);
    assert!(script.engine.take_holes().is_empty());
    (0..56).for_each(|page| forget(&mut script, page));
    let holes = script.engine.take_holes();
    assert_eq!(holes, [(0, 7 * 8192)]);
    assert!(script.engine.take_holes().is_empty(), "once");
    assert_eq!(script.engine.counters().punched_bytes, 7 * 8192);
}
