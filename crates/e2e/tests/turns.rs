//! More processes than CPUs that compute without a break and together use more than there is memory for: they take
//! turns.

use pleat_e2e::{Machine, Megabytes, Outcome};
use std::thread::available_parallelism;

/// What each uses, and what it has of that.
const EACH_MB: usize = 40;
const EACH_HAS_MB: usize = 20;
/// With more CPUs it takes more processes and memory than a test should.
const CPUS_MAX: usize = 8;

/// Two more than there are CPUs, which wait for each other in this way after each phase.
fn run(how: &str, pleat_args: &[&str]) -> Option<Outcome> {
    let machine = Machine::ready()?;
    let program = machine.turns()?;
    let cpus = available_parallelism().map_or(1, usize::from);
    if cpus > CPUS_MAX {
        println!("SKIP: {cpus} CPUs are too many to keep busy here");
        return None;
    }
    let processes = cpus + 2;
    let job = machine.job(program).arg(processes.to_string());
    let job = job.arg(EACH_MB.to_string()).args(["2", "60000", how]);
    let budget = Megabytes((processes * EACH_HAS_MB) as u64);
    let job = job.pleat_args(pleat_args).budget(budget).hard_limit();
    let outcome = job.timeout(240).run();
    outcome.expect_success().expect_folded();
    assert_eq!(outcome.stdout_text(), "right\n");
    Some(outcome)
}

fn figure(outcome: &Outcome, name: &str) -> u64 {
    let stats = outcome.stats();
    let figure = stats["report"]["pager"][name].as_u64();
    figure.unwrap_or_else(|| panic!("{}", outcome.describe()))
}

#[test]
fn processes_that_thrash_take_turns() {
    let Some(outcome) = run("alone", &[]) else {
        return;
    };
    // Each has one at least.
    assert!(figure(&outcome, "turns") >= 3, "{}", outcome.describe());
    assert!(figure(&outcome, "rested_us") > 0, "{}", outcome.describe());
}

#[test]
fn without_load_control_nobody_rests() {
    let Some(outcome) = run("alone", &["--no-load-control"]) else {
        return;
    };
    assert_eq!(figure(&outcome, "turns"), 0);
    assert_eq!(figure(&outcome, "rested_us"), 0);
}

#[test]
fn who_sleeps_until_others_have_had_their_turn_does_not_sleep_for_good() {
    run("sleep", &[]);
}

#[test]
fn who_looks_all_the_time_for_what_others_do_in_their_turn_sees_it() {
    run("spin", &[]);
}

#[test]
fn who_yields_until_others_have_come_so_far_does_not_keep_the_swap_file_from_answering() {
    run("yield", &[]);
}
