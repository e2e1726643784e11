//! Reading from the swap file: what is read for a fault, what is read ahead, and what becomes of it.

use pleat_types::{PageNo, PageRange};

use super::script::{clusters, settings, Script};
use crate::{FaultAnswer, ReadItem, Settings, SwapSettings, WriteOutcome};

/// Pages of 1000 bytes, all written to the swap file in clusters of 64 KiB and read up to 32 at once.
fn on_disk(pages: u64) -> Script {
    let swap = SwapSettings {
        fragment_bytes: 1,
        cluster_bytes: 64 << 10,
        ahead_max: 32,
        ..clusters()
    };
    let settings = Settings {
        budget_bytes: 1 << 24,
        run_max: 1,
        swap: Some(swap),
        ..settings()
    };
    let mut script = Script::new(settings, "static:60%");
    script.store(pages, 1000);
    while let Some(plan) = script.plan_write() {
        script.engine.write_done(&plan, WriteOutcome::Done);
    }
    assert_eq!(script.engine.counters().disk_pages, pages);
    script
}

/// Faults on a page, reads what is to be read, fills the page. How many pages were read?
fn read(script: &mut Script, page: u64) -> usize {
    let (answer, plan) = script.fault(page);
    if answer == FaultAnswer::Read {
        land(script, &plan.reads);
        assert_eq!(script.fault(page).0, FaultAnswer::Fill);
    }
    script.fill(page, 1);
    plan.reads.len()
}

fn land(script: &mut Script, reads: &[ReadItem]) {
    for (nth, item) in reads.iter().enumerate() {
        let bytes = vec![0; item.len as usize];
        assert!(script.engine.landed(item, &bytes, nth > 0));
    }
    assert_eq!(script.engine.violation(), None);
}

#[test]
fn pages_wanted_in_the_order_in_which_they_left_are_read_together() {
    let mut script = on_disk(200);
    let read: Vec<usize> = (0..130).map(|page| read(&mut script, page)).collect();
    let transfers: Vec<usize> = read.into_iter().filter(|&pages| pages > 0).collect();
    // 65 pages fill a cluster: a read ends with it.
    assert_eq!(transfers, [1, 2, 4, 8, 16, 32, 2, 32, 32, 1]);
    let counters = script.engine.counters();
    assert_eq!(counters.read_ahead_pages, 120);
    assert_eq!(counters.read_ahead_used_pages, 120);
}

#[test]
fn pages_wanted_at_random_are_read_one_by_one() {
    let mut script = on_disk(2000);
    for number in 0..60 {
        let page = number * 1117 % 1999;
        assert_eq!(read(&mut script, page), 1, "{page}");
    }
}

#[test]
fn addresses_do_not_matter_only_the_order_of_leaving() {
    let mut script = on_disk(60);
    let space = script.space;
    // The same pages, elsewhere and backwards.
    for page in 0..60 {
        script
            .engine
            .remap(space, PageNo(page), PageNo(5000 - 3 * page), 1);
    }
    let transfers = (0..60)
        .map(|page| read(&mut script, 5000 - 3 * page))
        .filter(|&pages| pages > 0);
    assert_eq!(transfers.count(), 6);
}

#[test]
fn reading_ahead_stops_when_it_does_not_pay_and_is_tried_again() {
    let mut script = on_disk(4000);
    let mut alone = 0;
    // Two pages in a row that look like the beginning of a stream, of which nothing more is wanted.
    for cluster in 0..60 {
        let page = cluster * 65 + 1;
        read(&mut script, page);
        let (_, plan) = script.fault(page + 1);
        land(&mut script, &plan.reads);
        alone += u64::from(plan.reads.len() == 1);
        // What was read ahead is given up unused.
        let space = script.space;
        let rest = PageRange::new(PageNo(page + 1), 40);
        script.engine.forget(space, rest);
    }
    let counters = script.engine.counters();
    assert_eq!(counters.read_ahead_used_pages, 0);
    assert!(alone > 10, "{alone} of 60 read alone, {counters:?}");
}

#[test]
fn what_was_read_is_of_no_use_once_its_page_is_given_up() {
    let mut script = on_disk(10);
    let (_, plan) = script.fault(3);
    let item = plan.reads[0];
    assert!(script.engine.is_current(&item));
    let space = script.space;
    script.engine.forget(space, PageRange::new(PageNo(3), 1));
    assert!(!script.engine.is_current(&item));
    assert!(!script.engine.landed(&item, &[0; 1000], false));
    assert_eq!(script.engine.violation(), None);
}

#[test]
fn pages_just_read_take_little_memory_and_the_oldest_go_first() {
    let mut script = on_disk(2000);
    for page in 0..1500 {
        let (answer, plan) = script.fault(page);
        assert_eq!(answer, FaultAnswer::Read);
        land(&mut script, &plan.reads[..1]);
    }
    assert_eq!(script.fault(1499).0, FaultAnswer::Fill);
    assert_eq!(script.fault(0).0, FaultAnswer::Read);
    // A sixty-fourth of the budget.
    let landed = (0..1500).filter(|&page| script.fault(page).0 == FaultAnswer::Fill);
    assert_eq!(landed.count(), (1 << 18) / (1000 + 64));
}
