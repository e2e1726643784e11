use super::*;
use pleat_trace::generator;

/// Pages are numbered from 1 in the order of their first touches.
fn history(touches: &[Page]) -> History {
    let pages = touches.iter().max().copied().unwrap_or(0);
    History {
        touches: touches.iter().map(|page| page - 1).collect(),
        places: (0..u64::from(pages))
            .map(|page| (RegionNo(0), PageNo(page)))
            .collect(),
        ends: Vec::new(),
    }
}

fn computed(spec: &str) -> History {
    History::of(&mut *generator(spec).unwrap())
}

fn misses(history: &History, policy: &str, frames: u64) -> u64 {
    history.misses(policy, frames).unwrap().misses
}

/// Belady's anomaly.
const TEXTBOOK: [Page; 12] = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5];

#[test]
fn the_textbook_sequence_misses_as_often_as_the_textbook_says() {
    let history = history(&TEXTBOOK);
    for (policy, three, four) in [("fifo", 9, 10), ("lru", 10, 8), ("opt", 7, 6)] {
        let found = [3, 4].map(|frames| misses(&history, policy, frames));
        assert_eq!(found, [three, four], "{policy}");
    }
}

#[test]
fn the_clock_passes_a_used_page_over_once() {
    // 1 was used when 4 comes, so 2 goes; then 3, which was not used; and then 1, which was not again.
    let history = history(&[1, 2, 3, 1, 4, 2, 3, 1]);
    assert_eq!(misses(&history, "clock", 3), 7);
    // 4 takes the frame of 1, and only that.
    assert_eq!(misses(&history, "fifo", 3), 5);
}

#[test]
fn a_page_wanted_from_the_inactive_list_is_no_miss_and_the_youngest() {
    // Four frames, two of them inactive: 1 and 2 are there when 1 is used.
    let history = history(&[1, 2, 3, 4, 1, 5, 1, 2]);
    let found = history.misses("staged:50", 4).unwrap();
    assert_eq!((found.misses, found.refaults, found.soft), (6, 1, 1));
}

#[test]
fn refaults_are_misses_less_the_pages_there_are() {
    let history = computed("zipf:pages=300,refs=20k");
    for policy in ["opt", "lru", "clock", "fifo", "staged:25", "pleat"] {
        let found = history.misses(policy, 100).unwrap();
        assert_eq!(found.misses - found.refaults, history.pages(), "{policy}");
    }
}

#[test]
fn nobody_does_better_than_opt_and_all_are_equal_where_everything_fits() {
    let history = computed("stack:pages=400,working_set=300,refs=20k");
    let best = misses(&history, "opt", 150);
    for policy in ["lru", "clock", "fifo", "staged:25", "pleat", "castro03"] {
        assert!(misses(&history, policy, 150) >= best, "{policy}");
        assert_eq!(misses(&history, policy, 400), history.pages(), "{policy}");
    }
}

#[test]
fn opt_keeps_a_part_of_a_cycle_and_lru_nothing() {
    let history = computed("thrasher:pages=100,passes=11");
    assert_eq!(misses(&history, "lru", 90), 1100);
    assert_eq!(misses(&history, "fifo", 90), 1100);
    // Each page is passed by 100 others between two uses; of 99, 10 or 11 miss.
    let best = misses(&history, "opt", 90);
    assert!((200..=220).contains(&best), "{best}");
}

#[test]
fn presets_after_papers_are_first_in_first_out_where_uses_are_not_seen() {
    let history = computed("zipf:pages=300,refs=20k");
    let fifo = misses(&history, "fifo", 100);
    for name in ["douglis93", "castro03", "cpc08", "ramzswap09"] {
        assert_eq!(misses(&history, name, 100), fifo, "{name}");
    }
}

#[test]
fn the_memory_of_a_process_that_ended_is_free() {
    let mut history = history(&[1, 2, 3, 4, 3, 4]);
    history.ends = vec![(2, vec![0, 1])];
    for policy in ["opt", "lru", "clock", "fifo", "staged:50", "pleat"] {
        assert_eq!(misses(&history, policy, 2), 4, "{policy}");
    }
}

#[test]
fn a_name_that_is_no_policy_is_answered_with_what_there_is() {
    let history = history(&TEXTBOOK);
    assert!(history.misses("magic", 3).unwrap_err().contains("pleat"));
    assert!(history
        .misses("staged:0", 3)
        .unwrap_err()
        .contains("1 to 99"));
}
