//! The engine's part in castro03's adaptability policy: who is expense, who is profit, and what a
//! locked cache does.

use super::script::{settings, Script};
use crate::{Settings, WriteOutcome};

/// 8 pages of 1024 bytes each: 2 frames, so pages 6 and 7 are expense and the others profit.
fn eight_in_two_frames() -> Script {
    let mut script = Script::new(settings(), "castro03");
    script.store(8, 1024);
    script
}

fn hits(script: &Script) -> (u64, u64) {
    let counters = script.engine.counters();
    (counters.expense_hits, counters.profit_hits)
}

#[test]
fn the_most_recently_stored_pages_are_expense_hits() {
    let mut script = eight_in_two_frames();
    script.bring_back(5);
    assert_eq!(hits(&script), (0, 1));
    // 7 pages are left in 2 frames: 6 and 7 are still the newest two.
    script.bring_back(6);
    assert_eq!(hits(&script), (1, 1));
    // 5 is gone, so 4 and 7 are the newest two now.
    script.bring_back(4);
    assert_eq!(hits(&script), (2, 1));
}

#[test]
fn pages_that_only_came_along_are_no_hits() {
    let mut script = eight_in_two_frames();
    script.fill(0, 8);
    assert_eq!(hits(&script), (0, 1));
    assert_eq!(script.engine.counters().prefetched_pages, 7);
}

#[test]
fn a_locked_cache_owes_the_frame_it_had_to_take() {
    let mut script = eight_in_two_frames();
    script.bring_back(7);
    script.bring_back(6);
    assert!(!script.engine.write_wanted());
    // Two hits in expense locked growth. There is room for two more pages, not for three.
    script.fill(100, 3);
    let chosen = script.choose(5);
    for (page, owed) in [(100, 0), (101, 0), (102, 4096)] {
        assert!(chosen.contains(&page));
        let body = script.take(page).unwrap();
        script.fold(body, page as u8, 1024);
        assert_eq!(script.engine.counters().owed_bytes, owed);
    }
    assert!(script.engine.write_wanted());
    assert_eq!(script.engine.counters().growths_denied, 1);
}

#[test]
fn a_page_that_leaves_by_itself_pays_what_is_owed() {
    let mut script = Script::new(settings(), "static:4K");
    script.store(6, 1024);
    for (page, owed) in [(3, 3072), (5, 2048), (0, 1024), (1, 0)] {
        script.bring_back(page);
        assert_eq!(script.engine.counters().owed_bytes, owed);
    }
    assert!(!script.engine.write_wanted());
}

#[test]
fn a_cache_that_may_not_grow_keeps_its_size_however_much_goes_through_it() {
    let mut script = Script::new(settings(), "static:40K");
    for page in 0..300 {
        script.fill(page, 1);
        script.choose(1);
        let body = script.take(page).unwrap();
        script.fold(body, page as u8, 700 + page as usize * 577 % 3000);
        while script.engine.write_wanted() {
            let plan = script.plan_write().unwrap();
            script.engine.write_done(&plan, WriteOutcome::Done);
        }
        let frames = script.engine.counters().store_frames_bytes;
        assert!(frames <= 40 << 10, "{frames} after {page} pages");
        assert!(
            page < 40 || frames >= 28 << 10,
            "{frames}: given up too eagerly"
        );
    }
}

#[test]
fn the_third_expense_hit_gives_up_the_oldest_page() {
    let mut script = eight_in_two_frames();
    for page in [7, 6, 5] {
        script.bring_back(page);
    }
    assert_eq!(hits(&script), (3, 0));
    assert_eq!(script.engine.counters().shrinks_released, 1);
    assert!(script.engine.write_wanted());
    let plan = script.plan_write().unwrap();
    assert_eq!(
        plan.bytes[plan.items[0].start as usize], 0,
        "page 0 is the oldest"
    );
}

#[test]
fn without_a_swap_file_the_cache_always_grows() {
    let mut script = Script::new(
        Settings {
            swap: None,
            ..settings()
        },
        "static:4K",
    );
    script.store(9, 1024);
    for page in [8, 7, 6] {
        script.bring_back(page);
    }
    assert_eq!(script.engine.counters().owed_bytes, 0);
    assert!(!script.engine.write_wanted());
    assert_eq!(script.plan_write(), None);
}
