//! System calls on pages that are away, each by a tester that checks itself (tests/programs/calls), inside the hard
//! limit.

use std::process::{Command, Stdio};

use pleat_e2e::{Machine, Megabytes};

/// The testers have 48 MB pushed through it, and 8 or 16 that they look at.
const BUDGET: Megabytes = Megabytes(40);

fn works(test: &str) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(calls) = machine.calls() else {
        return;
    };
    let job = machine.job(calls).arg(test).timeout(60);
    let outcome = job.budget(BUDGET).hard_limit().run();
    outcome.expect_passed(test);
}

/// One Rust test for each tester, and the list of them for the test that none is missing.
macro_rules! call_tests {
    ($($name:ident: $test:literal,)*) => {
        $(#[test] fn $name() { works($test); })*
        const COVERED: &[&str] = &[$($test),*];
    };
}

call_tests! {
    pages_given_up_read_as_zeros: "dontneed",
    freed_pages_can_be_written_again: "mfree",
    huge_pages_keep_their_bytes: "hugep",
    children_do_not_get_what_is_kept_from_them: "dontfork",
    children_find_zeros_where_memory_is_wiped: "wipeonfork",
    children_find_what_is_not_wiped_after_all: "keeponfork",
    pages_that_the_kernel_may_merge_keep_their_bytes: "mergeable",
    populating_changes_no_byte: "populate",
    mappings_populated_at_once_keep_their_bytes: "mappopulate",
    guards_raise_signals_and_leave_zeros: "guard",
    guards_stay_where_neighbours_come_along: "guards",
    guards_by_the_system_call_stay: "guardsraw",
    guards_of_the_c_library_stay: "guardsinner",
    pages_said_to_be_cold_keep_their_bytes: "cold",
    locking_changes_no_byte: "mlock",
    all_memory_can_be_locked: "mlockall",
    looking_which_pages_are_there_changes_nothing: "mincore",
    memory_freed_by_the_system_call_can_be_written_again: "freeraw",
    locked_pages_given_up_read_as_zeros: "dontneedlocked",
    collapsing_changes_no_byte: "collapse",
    advice_of_another_process_changes_no_byte: "foreignadvice",
    sealed_memory_keeps_its_bytes: "mseal",
    memory_behind_a_key_keeps_its_bytes: "pkeys",
    no_page_that_was_written_to_is_said_not_to_be: "softdirty",
    clearing_references_changes_no_byte: "clearrefs",
    naming_memory_changes_no_byte: "vmaname",
    memory_bound_to_a_node_keeps_its_bytes: "mbind",
    what_may_be_dropped_is_whole_or_zeros: "droppable",
    mappings_grow_shrink_and_move: "mremap",
    what_moves_leaves_zeros_behind: "dontunmap",
    memory_without_access_keeps_its_bytes: "protnone",
    much_more_address_space_than_memory_works: "reserve",
    heap_given_back_and_taken_again_is_zeros: "brk",
    what_is_mapped_over_others_is_new: "fixedover",
    a_deep_stack_keeps_its_bytes: "stackdeep",
    little_address_space_is_enough: "rlimitas",
    threads_map_and_unmap_at_once: "storm",
    threads_grow_and_move_at_once: "mrstorm",
    threads_protect_at_once: "protstorm",
    shared_memory_of_system_v_stays_shared: "sysvshm",
    shared_anonymous_memory_stays_shared: "shanon",
    memory_files_keep_their_bytes: "memfd",
    another_process_reads_what_is_right_or_nothing: "vmreadv",
    proc_mem_reads_and_writes: "procmem",
    pipes_take_pages_that_are_away: "splice",
    pages_that_a_pipe_holds_keep_their_bytes: "vmspliceheld",
    direct_io_reads_and_writes: "odirect",
    files_are_sent: "sendfile",
    asynchronous_io_reads_and_writes: "aio",
    reads_fill_pages_that_are_away: "readinto",
    sockets_carry_pages_that_are_away: "socket",
    a_failed_write_changes_nothing: "writefull",
    a_program_may_close_every_descriptor: "closeall",
    a_futex_may_be_away: "futex",
    locks_with_priority_may_be_away: "futexpi",
    locks_of_a_thread_that_ends_are_marked: "robust",
    words_and_areas_of_threads_past_the_c_library_are_written: "cleartid",
    signals_find_their_own_stack: "altstack",
    signals_find_stacks_that_are_away: "sigstack",
    hundreds_of_stacks_keep_their_bytes: "threads",
    threads_of_c11_can_be_joined: "thrdjoin",
    short_threads_come_and_go: "threadchurn",
    timers_do_not_disturb: "itimer",
    a_process_ends_when_its_only_thread_leaves_by_itself: "rawexit",
    a_process_ends_when_its_threads_leave_one_by_one: "lastthread",
    children_of_vfork_share_memory: "vfork",
    children_that_share_memory_find_everything: "clonevm",
    children_that_share_memory_and_files_find_everything: "clonevmfiles",
    forks_by_the_system_call_are_followed: "rawfork",
    what_an_unheard_child_has_wiped_is_wiped: "rawwiped",
    forks_without_handlers_are_followed: "underfork",
    many_children_find_everything: "forkpress",
    children_of_children_find_everything: "nestfork",
    children_may_map_memory_at_once: "bornmaps",
    any_thread_may_execute: "execthread",
    a_daemon_finds_everything: "daemonize",
    an_abort_ends_the_process: "coredump",
    a_tracer_reads_what_is_right_or_nothing: "ptracepeek",
    memory_outlives_a_change_of_user: "setuid",
    another_user_from_the_start_is_managed: "setuidearly",
    another_effective_user_is_managed: "seteuid",
    what_cannot_be_dumped_is_managed: "nodump",
    without_new_privileges_is_managed: "nnp",
    strict_mode_works_and_ends: "seccompstrict",
    a_userfaultfd_of_the_program_keeps_working: "ownuffd",
}

/// What calls the kernel past the C library, and is registered while it changes its mappings.
#[test]
fn mappings_of_static_programs_change_while_they_are_registered() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(calls) = machine.static_calls() else {
        return;
    };
    for test in ["storm", "mrstorm", "protstorm", "mremap", "dontunmap"] {
        let job = machine.job(&calls).arg(test).timeout(60);
        job.budget(BUDGET).hard_limit().run().expect_passed(test);
    }
}

#[test]
fn every_tester_is_run_here() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(calls) = machine.calls() else {
        return;
    };
    machine.job(calls).arg("list").run().expect_lines(COVERED);
}

/// The supervisor's first thread rests after each message, so others see what it was about to do undone.
#[test]
fn children_wait_for_a_slow_supervisor() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let (Some(calls), Some(slow)) = (machine.calls(), machine.slow()) else {
        return;
    };
    for test in ["bornmaps", "forkpress", "nestfork", "wipeonfork"] {
        let mut command = Command::new("timeout");
        command.arg("60").arg(&slow).arg("20").arg(machine.pleat());
        command.args(["run", "--memory", &BUDGET.to_string(), "--"]);
        let output = command.arg(&calls).arg(test).stdin(Stdio::null()).output();
        let output = output.expect("timeout is installed");
        let (said, told) = (&output.stdout, &output.stderr);
        let (said, told) = (String::from_utf8_lossy(said), String::from_utf8_lossy(told));
        assert!(output.status.success(), "{test}: {said}{told}");
        assert_eq!(said, format!("ok {test}\n"), "{told}");
    }
}
