//! Programs that map files shared, to read them only, and larger than their budget. pleat's memory stands
//! in for the file and is folded; the program sees what it would see without pleat, above all what others
//! write to the file.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pleat_e2e::{eventually, is_alive, signal, Machine, Megabytes, Outcome};

/// A quarter of the file.
const BUDGET: Megabytes = Megabytes(32);
const FILE: &str = "128";

struct Bench {
    machine: Machine,
    program: PathBuf,
    file: PathBuf,
}

impl Bench {
    /// With a file of [`FILE`] MiB and so many bytes more.
    fn ready(extra: &str) -> Option<Bench> {
        let machine = Machine::ready()?;
        let (maker, program) = (machine.mappings()?, machine.readonly()?);
        let file = machine.scratch().join("mapped");
        let made = machine.job(maker).arg("make").arg(&file);
        made.args([FILE, extra]).run().expect_success();
        Some(Bench {
            machine,
            program,
            file,
        })
    }

    /// Runs one mode with a quarter of the memory that its file has, and a hard limit just above.
    fn run(&self, mode: &str, flags: &[&str]) -> Outcome {
        let job = self.machine.job(&self.program).arg(mode).arg(&self.file);
        let job = job.budget(BUDGET).hard_limit().pleat_args(flags);
        let outcome = job.timeout(240).run();
        assert_eq!(outcome.stdout_text(), "ok\n", "{}", outcome.describe());
        outcome.expect_success();
        outcome
    }
}

fn counter(outcome: &Outcome, name: &str) -> u64 {
    let value = outcome.stats()["report"]["pager"][name].as_u64();
    value.unwrap_or_else(|| panic!("no counter {name}"))
}

/// One mode, in which pleat's memory stands in for the file, and so many leases are to be given up.
fn folded(mode: &str, extra: &str, leases_broken: u64) {
    let Some(bench) = Bench::ready(extra) else {
        return;
    };
    let outcome = bench.run(mode, &[]);
    assert!(counter(&outcome, "stand_in_mappings") > 0, "none stood in");
    assert!(
        counter(&outcome, "stand_in_taken_pages") > 0,
        "nothing taken"
    );
    let broken = counter(&outcome, "leases_broken");
    assert_eq!(broken, leases_broken, "leases given up");
}

#[test]
fn every_page_is_the_files_at_random_and_in_order() {
    folded("check", "0", 0);
}

#[test]
fn processes_that_map_the_same_file_share_its_pages() {
    let Some(bench) = Bench::ready("0") else {
        return;
    };
    let outcome = bench.run("processes", &[]);
    assert_eq!(counter(&outcome, "leases"), 1);
    assert_eq!(counter(&outcome, "stand_in_mappings"), 4);
    assert!(counter(&outcome, "stand_in_taken_pages") > 0);
}

#[test]
fn a_forked_child_inherits_the_mapping_and_may_cut_its_own() {
    folded("fork", "0", 0);
}

#[test]
fn what_is_cut_and_moved_is_the_file_again_when_that_is_written() {
    folded("cut", "0", 1);
}

#[test]
fn what_another_process_writes_shows_at_once() {
    folded("written", "0", 1);
}

#[test]
fn what_the_process_itself_writes_shows_at_once() {
    folded("written-self", "0", 1);
}

#[test]
fn no_thread_sees_a_page_of_before_once_it_was_written() {
    folded("race", "0", 1);
}

#[test]
fn a_stopped_process_keeps_no_writer_waiting_and_sees_nothing_old() {
    folded("stopped", "0", 1);
}

#[test]
fn what_was_cut_off_the_file_raises_sigbus() {
    folded("truncated", "0", 1);
}

#[test]
fn behind_the_end_of_the_file_come_zeros_and_then_sigbus() {
    folded("tail", "1232", 0);
}

#[test]
fn protection_is_kept_and_writing_stays_forbidden() {
    folded("protected", "0", 1);
}

#[test]
fn advice_and_locks_change_no_content() {
    folded("advice", "0", 0);
}

#[test]
fn files_and_fresh_memory_at_the_same_addresses_are_told_apart() {
    folded("churn", "0", 60);
}

#[test]
fn a_mapping_that_grew_unseen_ends_its_process_and_reads_no_zeros() {
    let Some(bench) = Bench::ready("0") else {
        return;
    };
    let job = bench.machine.job(&bench.program).arg("grown");
    let outcome = job.arg(&bench.file).budget(BUDGET).hard_limit().run();
    outcome.expect_code(137);
    assert_eq!(outcome.stdout_text(), "grown\n", "{}", outcome.describe());
    assert!(outcome.stderr.contains("--no-file-maps"));
}

#[test]
fn under_mlockall_no_page_is_taken_for_zeros() {
    if let Some(bench) = Bench::ready("0") {
        bench.run("locked", &[]);
    }
}

#[test]
fn with_no_file_maps_every_mapping_stays_the_kernels() {
    let Some(bench) = Bench::ready("0") else {
        return;
    };
    let outcome = bench.run("check", &["--no-file-maps"]);
    assert_eq!(counter(&outcome, "leases"), 0);
}

#[test]
fn who_reads_a_file_dies_with_the_supervisor() {
    let Some(bench) = Bench::ready("0") else {
        return;
    };
    let job = bench
        .machine
        .job(&bench.program)
        .arg("forever")
        .arg(&bench.file);
    let running = job.budget(BUDGET).hard_limit().spawn();
    running.wait_for_output("pass 2");
    let offspring = running.descendants();
    assert!(!offspring.is_empty(), "the supervisor has no child");
    running.signal(signal::SIGKILL);
    let are_dead = || !offspring.iter().any(|pid| is_alive(*pid));
    assert!(eventually(Duration::from_secs(1), are_dead), "still alive");
    let outcome = running.wait();
    assert!(
        !outcome.stdout_text().contains("FAIL"),
        "{}",
        outcome.stdout_text()
    );
}

#[test]
fn a_job_that_is_stopped_keeps_no_writer_waiting() {
    let Some(bench) = Bench::ready("0") else {
        return;
    };
    let job = bench
        .machine
        .job(&bench.program)
        .arg("forever")
        .arg(&bench.file);
    let running = job.budget(BUDGET).hard_limit().spawn();
    running.wait_for_output("pass 2");
    let program = running.descendants();
    running.signal(signal::SIGTSTP);
    // Not before the supervisor has stopped, too.
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    let opened = File::options().write(true).open(&bench.file);
    assert!(opened.is_ok() && start.elapsed() < Duration::from_secs(5));
    drop(opened);
    running.signal(signal::SIGCONT);
    let passes = |n: usize| running.stdout().lines().count() >= n;
    let before = running.stdout().lines().count();
    assert!(
        eventually(Duration::from_secs(60), || passes(before + 2)),
        "it does not go on: {program:?} {}",
        running.stderr()
    );
    running.signal(signal::SIGTERM);
    let outcome = running.wait();
    assert!(!outcome.stdout_text().contains("FAIL"));
    assert_eq!(counter(&outcome, "leases_broken"), 1);
}
