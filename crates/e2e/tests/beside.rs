//! Several processes in one budget: those share it by need.

use pleat_e2e::{Machine, Megabytes, Outcome};

/// A small process uses its 6 MB hundreds of times in four seconds, beside one of twice the budget. LRU would never
/// take a page of it. It lost each page some 30 times when pages came from whoever was free to give them, and
/// 24 times when they were taken by age alone; now it is two or three times.
const LOSSES_MOST: u64 = 12;

#[test]
fn a_small_process_keeps_what_it_uses_beside_a_large_one() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(beside) = machine.beside() else {
        return;
    };
    let job = machine.job(&beside).arg("200").arg("6").arg("4");
    let outcome = job.budget(Megabytes(100)).hard_limit().timeout(60).run();
    outcome.expect_success().expect_folded();
    let [faults, rounds, pages] = figures(&outcome);
    // Faults of the small process are held against what it did: on a slow machine it does less.
    assert!(rounds >= 100, "{}", outcome.describe());
    assert!(faults <= pages * LOSSES_MOST, "{}", outcome.describe());
}

/// The most pages, of a hundred that come back, that are read from disk where all fit into compressed memory.
const FROM_DISK_MOST: f64 = 50.0;

/// Whenever the child's agent was at work, its parent, which only waits and has soon no page left, had room for a
/// command and nothing to give: that counted as "nothing is left to take", and the compressed cache was emptied to
/// disk, from where 95 of 100 pages came then.
#[test]
fn a_process_that_has_no_pages_left_does_not_empty_the_cache_of_its_child() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(forkwalk) = machine.forkwalk() else {
        return;
    };
    let natural = machine.job(&forkwalk).arg("32").run();
    let job = machine.job(&forkwalk).arg("32").budget(Megabytes(24));
    let outcome = job.hard_limit().timeout(60).run();
    outcome
        .expect_success()
        .expect_same_output(&natural)
        .expect_folded();
    let engine = &outcome.stats()["report"]["engine"];
    let count = |name: &str| engine[name].as_u64().unwrap_or_default();
    let disk = count("filled_disk_pages");
    let back = disk + count("filled_stored_pages") + count("filled_same_pages");
    let percent = 100.0 * disk as f64 / back.max(1) as f64;
    assert!(percent <= FROM_DISK_MOST, "{}", outcome.describe());
}

/// "FAULTS faults ROUNDS rounds PAGES pages"
fn figures(outcome: &Outcome) -> [u64; 3] {
    let printed = outcome.stdout_text();
    let numbers = printed.split(' ').filter_map(|word| word.parse().ok());
    let numbers: Vec<u64> = numbers.collect();
    let numbers = numbers.try_into();
    numbers.unwrap_or_else(|_| panic!("{}", outcome.describe()))
}
