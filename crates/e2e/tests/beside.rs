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

/// "FAULTS faults ROUNDS rounds PAGES pages"
fn figures(outcome: &Outcome) -> [u64; 3] {
    let printed = outcome.stdout_text();
    let numbers = printed.split(' ').filter_map(|word| word.parse().ok());
    let numbers: Vec<u64> = numbers.collect();
    let numbers = numbers.try_into();
    numbers.unwrap_or_else(|_| panic!("{}", outcome.describe()))
}
