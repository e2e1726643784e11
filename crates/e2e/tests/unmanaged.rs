//! Processes that cannot be managed, each for a reason of its own: the job goes on, and the process is named once with
//! reason and remedy. And those that used to be among them and need not be.

use pleat_e2e::{Machine, Megabytes, Outcome};

const BUDGET: Megabytes = Megabytes(44);
const SIZE: &str = "80";

/// Runs the program below a shell that sets limits first; `limits` is any shell command.
fn run(machine: &Machine, limits: &str, how: &str) -> Option<Outcome> {
    let program = machine.shut_in()?;
    // Only of the program: what it prints goes to a file.
    let script = format!("({limits}; exec \"$0\" {how} {SIZE}) | cat");
    let job = machine.job("sh").args(["-c", &script]).arg(program);
    let outcome = job.budget(BUDGET).timeout(60).run();
    outcome.expect_success();
    assert_eq!(outcome.stdout_text(), "ok 0\n", "{}", outcome.describe());
    Some(outcome)
}

fn assert_managed(outcome: &Outcome) {
    assert_eq!(outcome.stderr, "", "{}", outcome.describe());
    outcome.expect_folded();
}

fn assert_named_once(outcome: &Outcome, what: &str, why: &str) {
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{}", outcome.describe());
    assert!(lines[0].starts_with("pleat: shut_in ("), "{}", lines[0]);
    assert!(lines[0].contains(what), "{}", lines[0]);
    assert!(lines[0].contains(why), "{}", lines[0]);
}

#[test]
fn a_filter_that_refuses_ioctl_leaves_a_process_unmanaged() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if let Some(outcome) = run(&machine, ":", "errno") {
        assert_named_once(&outcome, "runs unmanaged", "seccomp");
    }
}

#[test]
fn a_filter_that_refuses_shared_mappings_leaves_a_process_unmanaged() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if let Some(outcome) = run(&machine, ":", "mmap") {
        assert_named_once(&outcome, "runs unmanaged", "seccomp");
    }
}

#[test]
fn a_filter_for_all_threads_of_a_managed_process_leaves_it_what_it_has() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if let Some(outcome) = run(&machine, ":", "late") {
        assert_named_once(&outcome, "is managed no longer", "seccomp");
    }
}

/// Where the device is handed over there is nothing to kill for.
#[test]
fn a_filter_that_kills_for_userfaultfd_is_never_met() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !std::path::Path::new("/dev/userfaultfd").exists() {
        return pleat_e2e::skip("no /dev/userfaultfd");
    }
    if let Some(outcome) = run(&machine, ":", "kill") {
        assert_managed(&outcome);
    }
}

#[test]
fn limits_of_a_process_do_not_keep_it_from_being_managed() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    for limits in [
        "ulimit -f 0",
        "ulimit -n 6",
        "ulimit -v 100000",
        "ulimit -l 0",
        "ulimit -s 128",
    ] {
        let Some(outcome) = run(&machine, limits, "none") else {
            return;
        };
        assert_managed(&outcome);
    }
}

/// It needs no agent, for memory is plenty.
#[test]
fn a_short_program_that_loads_no_agent_runs_as_ever() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    // Static, for it must run where the loader finds no library.
    if !machine.installed(&["ldconfig"]) {
        return;
    }
    let outcome = machine
        .job("ldconfig")
        .arg("--version")
        .budget(BUDGET)
        .run();
    outcome.expect_success();
    assert_eq!(outcome.stderr, "", "{}", outcome.describe());
    let unmanaged = &outcome.stats()["report"]["pager"]["unmanaged_processes"];
    assert_eq!(unmanaged.as_u64(), Some(0), "{}", outcome.describe());
}

/// The loader of a 32-bit program would say that it cannot load the agent. What it executes in its turn has none.
#[test]
fn a_program_with_shorter_addresses_runs_as_ever() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = machine.compiled_with("cc", "small_blocks", &["-m32"]) else {
        return;
    };
    let native = machine.job(&program).arg("4").run();
    native.expect_success();
    let script = r#""$0" 4; exec "$0" 4"#;
    let twice = machine.job("sh").args(["-c", script]).arg(&program);
    let jobs = [machine.job(&program).arg("4"), twice.clone()];
    for job in jobs {
        let outcome = job.budget(Megabytes(200)).run();
        outcome.expect_success();
        let complaint = outcome
            .stderr
            .lines()
            .find(|line| !line.starts_with("pleat: cc_small_blocks"));
        assert_eq!(complaint, None, "{}", outcome.describe());
    }
    let preloads = twice.env("LD_PRELOAD", "libm.so.6").budget(Megabytes(200));
    let outcome = preloads.run();
    // That of the user's is for the loader to look for.
    outcome
        .expect_success()
        .expect_same_output(&machine.job("sh").args(["-c", script]).arg(&program).run());
}

/// A pipeline's processes say hello as a shell's children, and again as the programs that they execute microseconds later;
/// some end while they are made ready. None of that is anybody's fault, and nobody is told.
#[test]
fn processes_that_come_and_go_are_not_complained_of() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["bash", "head", "tr", "cat"]) {
        return;
    }
    let script = "x=$(head -c 30000000 /dev/zero | tr '\\0' a); \
                  for i in $(seq 200); do cat --version | cat >/dev/null; done; echo ${#x}";
    let job = machine.job("bash").args(["-c", script]);
    let outcome = job.budget(BUDGET).timeout(100).run();
    outcome.expect_success();
    assert_eq!(outcome.stdout_text(), "30000000\n");
    assert_eq!(outcome.stderr, "", "{}", outcome.describe());
}
