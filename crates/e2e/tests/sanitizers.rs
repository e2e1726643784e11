//! Programs that bring a runtime of their own which stands in front of the C library: compilers' sanitizers;
//! programs of another C library; and those that something else runs.

use pleat_e2e::{skip, Machine, Megabytes};

const BUDGET: Megabytes = Megabytes(60);
/// Of heap; a sanitizer adds as much again.
const BLOCKS: &str = "80";

/// Runs the small blocks with these options of the compiler, natively and in less memory.
fn runs_as_ever(options: &[&str]) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = machine.compiled_with("cc", "small_blocks", options) else {
        return;
    };
    let job = machine.job(program).arg(BLOCKS).timeout(60);
    let native = job.clone().run();
    native.expect_success();
    let outcome = job.budget(BUDGET).run();
    outcome.expect_success().expect_same_output(&native);
    outcome.expect_folded();
    assert_eq!(outcome.stderr, "", "{}", outcome.describe());
}

/// Its runtime is the program's own: what it has by the names of the C library's functions is no business of the agent's.
#[test]
fn address_sanitizer_in_the_program_runs_as_ever() {
    runs_as_ever(&["-fsanitize=address", "-static-libasan"]);
}

/// Its runtime is a library, which insists on being the first.
#[test]
fn address_sanitizer_as_a_library_runs_as_ever() {
    runs_as_ever(&["-fsanitize=address"]);
}

#[test]
fn thread_sanitizer_runs_as_ever() {
    runs_as_ever(&["-fsanitize=thread"]);
}

/// At the end it stops every thread, the agent's too, and reads all memory.
#[test]
fn leak_sanitizer_runs_as_ever() {
    runs_as_ever(&["-fsanitize=leak"]);
}

/// It stops all threads, the agent's too, and reads all memory, which has to be there for that. Where a hard limit does not let it,
/// nobody would wait for anything that could come, and no signal would reach the program.
#[test]
fn a_leak_sanitizer_that_does_not_fit_into_a_hard_limit_is_told_of_and_ended() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = machine.compiled_with("cc", "small_blocks", &["-fsanitize=leak"]) else {
        return;
    };
    let job = machine.job(program).arg(BLOCKS).timeout(100);
    let outcome = job.budget(Megabytes(40)).pleat_args(["--hard"]).run();
    if outcome.stderr.contains("--hard") {
        return skip("no job has a memory cgroup of its own here");
    }
    assert_eq!(outcome.status.code(), Some(125), "{}", outcome.describe());
    for line in ["waits for memory that the kernel refuses", "stands still"] {
        assert!(outcome.stderr.contains(line), "{}", outcome.describe());
    }
}

/// It runs the program itself, and knows no thread but the C library's.
#[test]
fn programs_in_valgrind_run_unmanaged() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["valgrind"]) {
        return;
    }
    let Some(program) = machine.compiled_with("cc", "small_blocks", &[]) else {
        return;
    };
    let job = machine.job("valgrind").arg("-q").arg(program).arg("2");
    let outcome = job.budget(Megabytes(200)).timeout(60).run();
    outcome.expect_success();
    assert_eq!(outcome.stdout_text(), "1044 blocks, 0 wrong\n");
    assert!(
        outcome.stderr.lines().count() <= 1,
        "{}",
        outcome.describe()
    );
}

/// Another C library runs constructors without arguments, and pleat's library does nothing there: a copy of it does, when memory is short.
#[test]
fn programs_of_musl_run_as_ever() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = machine.compiled_with("musl-gcc", "small_blocks", &[]) else {
        return;
    };
    let job = machine.job(program).arg("20");
    let native = job.clone().run();
    let outcome = job.budget(BUDGET).run();
    outcome.expect_success().expect_same_output(&native);
    assert_eq!(outcome.stderr, "", "{}", outcome.describe());
}
