//! Programs that map files larger than their budget. A private mapping that can be written to becomes
//! memory which is filled from the file and folded; all others stay the kernel's. Either way the program
//! sees what it would see without pleat: the file, its own writes, zeros behind the end, SIGBUS behind
//! that.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use pleat_e2e::{skip, Machine, Megabytes, Outcome};

/// A quarter of the file.
const BUDGET: Megabytes = Megabytes(32);
const FILE: &str = "96";

struct Bench {
    machine: Machine,
    program: PathBuf,
    file: PathBuf,
}

impl Bench {
    /// With a file of [`FILE`] MiB and so many bytes more.
    fn ready(extra: &str) -> Option<Bench> {
        let machine = Machine::ready()?;
        let program = machine.mappings()?;
        let file = machine.scratch().join("mapped");
        let made = machine.job(&program).arg("make").arg(&file);
        made.args([FILE, extra]).run().expect_success();
        Some(Bench {
            machine,
            program,
            file,
        })
    }

    /// Runs one mode of the program with a third of the memory that its file has.
    fn run(&self, mode: &str, flags: &[&str]) -> Outcome {
        let job = self.machine.job(&self.program).arg(mode).arg(&self.file);
        let job = job.budget(BUDGET).hard_limit().pleat_args(flags);
        let outcome = job.timeout(240).run();
        assert_eq!(outcome.stdout_text(), "ok\n", "{}", outcome.describe());
        outcome.expect_success();
        outcome
    }

    /// As [`Bench::run`], of a mode whose mapping becomes memory.
    fn run_folded(&self, mode: &str) -> Outcome {
        let outcome = self.run(mode, &[]);
        assert!(counter(&outcome, "file_mappings") > 0, "nothing converted");
        outcome.expect_folded();
        outcome
    }

    /// The file's pages leave the page cache, so that they have to be read.
    fn cool(&self) {
        let file = File::open(&self.file).expect("made before");
        file.sync_all().expect("the disk works");
        // With no count, dd drops what the kernel has cached of the whole file.
        let dropped = Command::new("dd")
            .arg(format!("if={}", self.file.display()))
            .args(["iflag=nocache", "count=0", "status=none"])
            .status();
        assert!(dropped.is_ok_and(|status| status.success()));
    }
}

fn counter(outcome: &Outcome, name: &str) -> u64 {
    let value = outcome.stats()["report"]["pager"][name].as_u64();
    value.unwrap_or_else(|| panic!("no counter {name}"))
}

/// One mode, in which the program's mapping is folded.
fn folded(mode: &str) {
    if let Some(bench) = Bench::ready("0") {
        bench.run_folded(mode);
    }
}

#[test]
fn every_page_is_the_files_at_random_and_in_order() {
    let Some(bench) = Bench::ready("0") else {
        return;
    };
    let outcome = bench.run_folded("check");
    let pages = 256 * FILE.parse::<u64>().expect("a number of MiB");
    assert!(counter(&outcome, "file_pages") >= pages);
}

#[test]
fn a_file_that_is_not_in_the_page_cache_is_read_from_the_disk() {
    let Some(bench) = Bench::ready("0") else {
        return;
    };
    bench.cool();
    let outcome = bench.run_folded("check");
    if counter(&outcome, "file_reads") == 0 {
        skip("this file system keeps its page cache");
    }
}

#[test]
fn written_pages_stay_and_the_file_is_unchanged() {
    folded("write");
}

#[test]
fn pages_given_up_are_the_files_again() {
    folded("dontneed");
}

#[test]
fn memory_mapped_where_the_file_was_has_nothing_of_it() {
    folded("unmap");
}

#[test]
fn a_mapping_that_is_moved_stays_what_it_was() {
    folded("remap");
}

#[test]
fn both_sides_of_a_fork_see_the_file_and_their_own_writes() {
    folded("fork");
}

#[test]
fn eight_threads_see_the_file_and_each_others_writes() {
    folded("threads");
}

#[test]
fn files_and_fresh_memory_at_the_same_addresses_are_told_apart() {
    folded("churn");
}

#[test]
fn a_mapping_under_mlockall_stays_the_kernels() {
    let Some(bench) = Bench::ready("0") else {
        return;
    };
    let outcome = bench.run("locked", &[]);
    assert_eq!(counter(&outcome, "file_mappings"), 0);
}

#[test]
fn a_mapping_outlives_its_descriptor_and_bad_calls_fail_as_ever() {
    folded("errors");
}

#[test]
fn behind_the_end_of_the_file_come_zeros_and_then_sigbus() {
    if let Some(bench) = Bench::ready("1234") {
        bench.run_folded("tail");
    }
}

#[test]
fn what_was_cut_off_raises_sigbus_and_hangs_nobody() {
    let Some(bench) = Bench::ready("0") else {
        return;
    };
    let outcome = bench.run_folded("truncate");
    assert!(counter(&outcome, "file_poisoned_pages") > 0);
}

#[test]
fn what_others_write_shows_in_a_shared_mapping() {
    let Some(bench) = Bench::ready("0") else {
        return;
    };
    let outcome = bench.run("shared", &[]);
    assert_eq!(counter(&outcome, "file_mappings"), 0);
}

#[test]
fn with_no_file_maps_every_mapping_stays_the_kernels() {
    let Some(bench) = Bench::ready("0") else {
        return;
    };
    let outcome = bench.run("check", &["--no-file-maps"]);
    assert_eq!(counter(&outcome, "file_mappings"), 0);
}

#[test]
fn a_small_file_is_left_alone_while_memory_is_plenty() {
    let Some(bench) = Bench::ready("0") else {
        return;
    };
    // The file is half of a sixteenth of this budget.
    let job = bench.machine.job(&bench.program).arg("check");
    let outcome = job.arg(&bench.file).budget(Megabytes(4096)).run();
    outcome.expect_success();
    assert_eq!(counter(&outcome, "file_mappings"), 0);
    assert_eq!(counter(&outcome, "managed_processes"), 0);
    fs::remove_file(&bench.file).expect("still there");
}

/// A process in a PID namespace of its own knows its threads by numbers that are others' outside.
#[test]
fn in_a_pid_namespace_of_its_own_a_mapping_becomes_memory_all_the_same() {
    let Some(bench) = Bench::ready("0") else {
        return;
    };
    if !bench.machine.installed(&["unshare"]) {
        return;
    }
    let apart = || bench.machine.job("unshare").arg("--pid").arg("--fork");
    if apart().arg("true").run().status.code() != Some(0) {
        return skip("PID namespaces are not allowed");
    }
    let job = apart().arg(&bench.program).arg("check").arg(&bench.file);
    let outcome = job.budget(BUDGET).hard_limit().timeout(240).run();
    assert_eq!(outcome.stdout_text(), "ok\n", "{}", outcome.describe());
    outcome.expect_success().expect_folded();
    assert!(counter(&outcome, "file_mappings") > 0, "nothing converted");
}
