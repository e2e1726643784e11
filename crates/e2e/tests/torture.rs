//! Every test of the torture program (tests/programs/torture) with about half of its memory
//! away: the kernel's accesses, fork and exec, changes of mappings, signals, threads, heap. The
//! program checks itself; these tests run it inside the hard limit.

use pleat_e2e::{Machine, Megabytes};

const REGION: Megabytes = Megabytes(64);
/// Half the region, and room for the program itself, pleat and the compressed pages.
const BUDGET: Megabytes = Megabytes(64 / 2 + 12);

fn survives_half_memory(test: &str) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    let job = machine.job(torture).arg(test).arg(REGION.0.to_string());
    let outcome = job.budget(BUDGET).hard_limit().run();
    if outcome.expect_passed(test) {
        outcome.expect_folded();
    }
}

/// One Rust test per torture test, and the list of them for the test that none is missing.
macro_rules! torture_tests {
    ($($name:ident: $test:literal,)*) => {
        $(#[test] fn $name() { survives_half_memory($test); })*
        const COVERED: &[&str] = &[$($test),*];
    };
}

torture_tests! {
    files_are_read_into_pages_that_are_away: "read",
    files_are_written_from_pages_that_are_away: "write",
    sockets_send_and_receive_pages_that_are_away: "socket",
    direct_io_reaches_its_pages_under_eviction: "odirect",
    io_uring_reaches_its_pages_under_eviction: "iouring",
    exec_works_with_arguments_that_are_away: "forkexec",
    children_keep_their_exit_status: "exitstatus",
    mremap_moves_pages_that_are_away: "mremap",
    unmapped_pages_never_come_back: "munmap",
    protection_holds_for_pages_that_are_away: "mprotect",
    own_segv_handler_sees_only_own_faults: "sigsegv",
    alarms_interrupt_faults_harmlessly: "sigalrm",
    eight_threads_fault_at_once: "threads",
    threads_fault_at_once_while_mappings_change: "upheaval",
    threads_drop_pages_that_have_just_come_back: "dropback",
    heap_blocks_keep_their_bytes: "heap",
    deep_stacks_keep_their_frames: "stackdeep",
    locked_memory_keeps_its_bytes: "mlock",
    fresh_memory_at_full_speed_stays_within_the_budget: "prefault",
    populated_memory_stays_within_the_budget: "populate",
    fork_child_sees_pages_of_the_moment_of_fork: "fork",
    closing_all_descriptors_loses_no_page: "closefds",
    dropped_pages_read_as_zeros: "madvise",
    shared_memory_stays_shared: "shared",
}

/// Without this the two tests of threads above could pass and say nothing about it.
#[test]
fn faults_of_several_threads_are_answered_at_the_same_time() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    if std::thread::available_parallelism().map_or(1, usize::from) == 1 {
        return pleat_e2e::skip("there is one CPU");
    }
    let job = machine
        .job(torture)
        .arg("threads")
        .arg(REGION.0.to_string());
    let outcome = job.budget(BUDGET).hard_limit().run();
    outcome.expect_success();
    let pager = &outcome.stats()["report"]["pager"];
    assert!(
        pager["helped_faults"]
            .as_u64()
            .is_some_and(|count| count > 0),
        "{pager}"
    );
}

#[test]
fn every_torture_test_is_run_here() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    machine.job(torture).arg("list").run().expect_lines(COVERED);
}

/// A busy machine can keep the supervisor from running for longer than it takes to fill the budget.
/// Here it stands still for that long.
#[test]
fn a_large_mapping_waits_until_the_supervisor_has_seen_it() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    let script = r#"kill -STOP $PPID; (sleep 0.5; kill -CONT $PPID) &
        exec "$TORTURE" walk 64 2 compressible"#;
    let shell = machine
        .job("sh")
        .args(["-c", script])
        .env("TORTURE", torture);
    let outcome = shell.budget(BUDGET).hard_limit().run();
    outcome.expect_success().expect_folded();
}
