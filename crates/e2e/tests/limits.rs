//! Several jobs at once, each in a hard limit of its own, more of them than there are CPUs: what pleat does to
//! keep a job below its limit has to be done in time though others compute.

use pleat_e2e::{Machine, Megabytes, Running};

const JOBS: usize = 4;
const ROUNDS: usize = 10;
const BUDGET: Megabytes = Megabytes(25);
const HEAP: &str = "45";

/// The heap grows by brk(), which is announced to nobody, as fast as its program can fill it. Where the
/// threads that look for it wait their turn, one job in some thirty is killed.
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
