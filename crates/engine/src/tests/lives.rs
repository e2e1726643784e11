//! Which pages are passed over where no use is seen.

use super::script::{settings, Script};
use crate::{Settings, Victims};

fn script() -> Script {
    Script::new(settings(), "castro03")
}

/// Pages 1 to 19 are in memory, the oldest first, and page 0 is away.
fn without_page_0(mut script: Script) -> Script {
    script.fill(0, 20);
    script.choose(1);
    let body = script.take(0).unwrap();
    script.fold(body, 1, 100);
    script
}

#[test]
fn a_page_that_came_back_soon_stays_longer_than_pages_that_came_after_it() {
    let mut script = without_page_0(script());
    script.fill(100, 20);
    script.bring_back(0);
    script.fill(200, 5);
    let chosen = script.choose(45);
    assert_eq!(chosen.last(), Some(&0));
    assert_eq!(script.engine.counters().spared_pages, 1);
}

#[test]
fn an_old_page_beside_one_that_came_back_is_passed_over_once() {
    let mut script = without_page_0(script());
    script.bring_back(0);
    assert_eq!(script.choose(4), [5, 6, 7, 8]);
    assert_eq!(
        script.choose(15),
        [9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 1, 2, 3, 4]
    );
    assert_eq!(script.engine.counters().spared_neighbour_pages, 4);
}

#[test]
fn a_young_page_needs_no_neighbour_to_stay() {
    let mut script = without_page_0(script());
    script.fill(100, 20);
    script.bring_back(0);
    script.fill(203, 10);
    script.choose(1);
    let before = script.engine.counters().spared_neighbour_pages;
    let body = script.take(5).unwrap();
    script.fold(body, 1, 100);
    script.fill(6, 1);
    script.bring_back(5);
    let spared = script.engine.counters().spared_neighbour_pages - before;
    assert_eq!(
        spared, 3,
        "7, 8 and 9: 1 to 4 were spared before, 6 is young"
    );
}

#[test]
fn where_uses_are_seen_nothing_else_counts() {
    let tracked = Settings {
        tracks_writes: true,
        ..settings()
    };
    for script in [
        Script::new(tracked, "castro03"),
        Script::choosing(settings(), "castro03", Victims::Fifo),
    ] {
        let mut script = without_page_0(script);
        script.bring_back(0);
        script.fill(200, 5);
        assert_eq!(script.choose(20), (1..20).chain([0]).collect::<Vec<u64>>());
        assert_eq!(script.engine.counters().spared_pages, 0);
    }
}
