//! Heaps that grow by brk(), which is announced to nobody: pleat has to find what is new, all of it, and in time.

use pleat_e2e::{Machine, Megabytes, Running};

const JOBS: usize = 4;
const ROUNDS: usize = 10;
const BUDGET: Megabytes = Megabytes(25);
const HEAP: &str = "45";

/// Several jobs at once, each in a hard limit of its own, more of them than there are CPUs, fill their heaps as
/// fast as they can. Where the threads that look for new mappings wait their turn, one job in some thirty is killed.
#[test]
fn heaps_that_grow_unannounced_stay_below_hard_limits_while_cpus_are_busy() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(grow) = machine.grow() else {
        return;
    };
    let start = || {
        let job = machine.job(&grow).arg(HEAP).budget(BUDGET);
        job.hard_limit().spawn()
    };
    for _ in 0..ROUNDS {
        let jobs: Vec<Running> = (0..JOBS).map(|_| start()).collect();
        for job in jobs {
            let outcome = job.wait();
            outcome.expect_success().expect_folded();
            let printed = outcome.stdout_text();
            assert!(printed.starts_with("0 of "), "{printed}");
        }
    }
}

/// What is listed may be gone when it is registered, and what comes in its place is not registered. Where it was taken
/// for registered all the same, nothing of a heap could be taken any more: six of six runs were far over the budget
/// and came to no end, a fault for every access.
#[test]
fn a_heap_that_shrinks_while_it_is_registered_is_found_when_it_grows_again() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(grow) = machine.grow() else {
        return;
    };
    for _ in 0..ROUNDS {
        let job = machine.job(&grow).arg("60").arg("moving").budget(BUDGET);
        let outcome = job.timeout(60).run();
        outcome.expect_success().expect_folded();
        assert!(
            outcome.stdout_text().starts_with("0 of "),
            "{}",
            outcome.describe()
        );
    }
}
