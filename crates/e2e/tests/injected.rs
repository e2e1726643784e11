//! Processes that get their agent from outside, when memory is short: programs that load no library at all, and those that do.
//! Until then a process has no thread that it has not made itself.

use pleat_e2e::{skip, Machine, Megabytes, Outcome};
use std::path::PathBuf;

/// What needs nearly twice as much.
const BUDGET: Megabytes = Megabytes(40);
const FILLED: &str = "68";
const PLENTY: Megabytes = Megabytes(400);

/// Compilers and options by which a program loads nothing that pleat could come with.
const KINDS: [(&str, &[&str]); 4] = [
    ("cc", &["-static"]),
    ("cc", &["-static-pie"]),
    ("musl-gcc", &["-static"]),
    ("musl-gcc", &[]),
];

fn counter(outcome: &Outcome, name: &str) -> u64 {
    let value = &outcome.stats()["report"]["pager"][name];
    value.as_u64().unwrap_or_else(|| panic!("no {name}"))
}

fn kinds(machine: &Machine, program: &str) -> Vec<PathBuf> {
    let kinds = KINDS.iter();
    kinds
        .filter_map(|(compiler, options)| machine.compiled_with(compiler, program, options))
        .collect()
}

/// It is managed, by an agent that was put into it, and stays within its budget.
fn assert_managed(outcome: &Outcome) {
    outcome.expect_success().expect_folded();
    assert_eq!(outcome.stderr, "", "{}", outcome.describe());
    assert!(counter(outcome, "injected_agents") > 0);
    assert_eq!(counter(outcome, "unmanaged_processes"), 0);
}

#[test]
fn programs_that_load_nothing_are_managed_when_memory_is_short() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    for program in kinds(&machine, "fill") {
        let job = machine.job(&program).args([FILLED, "2"]);
        let native = job.clone().run();
        let outcome = job.budget(BUDGET).hard_limit().timeout(60).run();
        assert_managed(&outcome);
        outcome.expect_same_output(&native);
    }
}

#[test]
fn programs_that_load_nothing_are_left_alone_while_memory_is_plenty() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    for program in kinds(&machine, "fill") {
        let outcome = machine
            .job(&program)
            .args([FILLED, "2"])
            .budget(PLENTY)
            .run();
        outcome.expect_success();
        assert_eq!(outcome.stderr, "", "{}", outcome.describe());
        for name in [
            "managed_processes",
            "injected_agents",
            "unmanaged_processes",
        ] {
            assert_eq!(counter(&outcome, name), 0, "{name}");
        }
    }
}

/// A thread's control block that is away when the thread ends would be waited for in vain.
#[test]
fn threads_end_and_children_find_what_they_have_inherited() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    for program in kinds(&machine, "crowd") {
        let job = machine.job(&program).args(["4", "12", "4", "2"]);
        let outcome = job.budget(BUDGET).timeout(100).run();
        assert_managed(&outcome);
        assert_eq!(outcome.stdout_text(), "ok\n");
        assert!(counter(&outcome, "forks") > 0);
    }
}

#[test]
fn a_program_of_go_with_its_collector_is_managed() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["go"]) {
        return;
    }
    let Some(program) = machine.go_program("heap.go") else {
        return;
    };
    let job = machine.job(program).arg("90");
    let native = job.clone().run();
    native.expect_success();
    let outcome = job.budget(Megabytes(50)).timeout(100).run();
    assert_managed(&outcome);
    outcome.expect_same_output(&native);
}

/// A debugger maps the files of programs, and any other program may.
#[test]
fn a_library_that_is_mapped_as_data_is_not_taken_for_the_agents() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = machine.compiled_with("cc", "reads_library", &[]) else {
        return;
    };
    let job = machine
        .job(program)
        .args(["libpleat_agent", FILLED])
        .budget(BUDGET);
    let outcome = job.timeout(60).run();
    assert_managed(&outcome);
    assert_eq!(outcome.stdout_text(), "ok\n");
}

/// Memory is short when they are forked, so they get their agents while the C library is at work in them still.
#[test]
fn children_that_get_their_agents_before_they_have_come_to_themselves_have_one() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(other) = machine.compiled_with("cc", "fill", &[]) else {
        return;
    };
    let early = ["-shared", "-fPIC", "-pthread"];
    let Some(early) = machine.compiled_with("cc", "slow_birth", &early) else {
        return;
    };
    let Some(program) = machine.compiled_with("cc", "slow_birth", &["-pthread"]) else {
        return;
    };
    let script =
        r#""$0" 50 25 & p=$!; sleep 0.5; SLOW_BIRTH=1 "$1" 5 30; r=$?; wait $p && exit $r"#;
    let job = machine
        .job("sh")
        .args(["-c", script])
        .arg(other)
        .arg(program);
    let job = job.env("LD_PRELOAD", early);
    let outcome = job.budget(BUDGET).hard_limit().timeout(100).run();
    assert_managed(&outcome);
    assert_eq!(outcome.stdout_text(), "ok\nok\n");
}

/// One fills memory beside another that loads the library.
#[test]
fn two_programs_of_different_kinds_share_a_budget() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(other) = machine.compiled_with("cc", "fill", &["-static"]) else {
        return;
    };
    let Some(program) = machine.compiled_with("cc", "fill", &[]) else {
        return;
    };
    let script = r#""$0" 30 1 & "$1" 60 1; wait"#;
    let job = machine
        .job("sh")
        .args(["-c", script])
        .arg(other)
        .arg(program);
    let outcome = job.budget(BUDGET).hard_limit().timeout(60).run();
    assert_managed(&outcome);
}

/// What cannot be in a process of several threads: a user namespace, a library's warning.
#[test]
fn a_process_has_one_thread_until_memory_is_short() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["sh", "unshare"]) {
        return;
    }
    let script = "ls /proc/self/task | wc -l; exec unshare -r true";
    let job = machine.job("sh").args(["-c", script]);
    let native = job.clone().run();
    if native.status.code() != Some(0) {
        return skip("no user namespaces here");
    }
    let outcome = job.budget(PLENTY).run();
    outcome.expect_success().expect_same_output(&native);
    assert_eq!(outcome.stderr, "", "{}", outcome.describe());
}

#[test]
fn what_has_lost_the_library_or_sees_other_files_is_managed() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = machine.compiled_with("cc", "fill", &["-static"]) else {
        return;
    };
    let root = program.with_extension("root");
    std::fs::create_dir_all(&root).expect("made");
    std::fs::copy(&program, root.join("fill")).expect("copied");
    let root = root.to_str().expect("a name").to_owned();
    let program = program.to_str().expect("a name").to_owned();
    let ways = [
        vec!["env", "-i", &program],
        vec!["env", "-u", "LD_PRELOAD", &program],
        vec!["chroot", &root, "/fill"],
        vec!["unshare", "--mount", &program],
        vec!["unshare", "--pid", "--fork", &program],
    ];
    for way in ways {
        if !machine.installed(&way[..1]) {
            continue;
        }
        let job = machine.job(way[0]).args(&way[1..]).args([FILLED, "2"]);
        let native = job.clone().run();
        if native.status.code() != Some(0) {
            return skip(format!("{} does not work here", way[0]));
        }
        let outcome = job.budget(BUDGET).timeout(60).run();
        assert_managed(&outcome);
        outcome.expect_same_output(&native);
    }
}

/// Between what is found out of a process and its stop it may execute another program, or fork.
#[test]
fn processes_that_execute_and_fork_all_the_time_are_not_disturbed() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = machine.compiled_with("cc", "fill", &["-static"]) else {
        return;
    };
    let script = r#"for n in 1 2 3; do (for i in $(seq 60); do "$0" 2 1 || exit 1; done) & done
        for i in 1 2 3; do wait -n || exit 1; done; "$0" 30 1"#;
    if !machine.installed(&["bash", "seq"]) {
        return;
    }
    let job = machine.job("bash").args(["-c", script]).arg(program);
    let outcome = job.budget(Megabytes(24)).timeout(100).run();
    outcome.expect_success();
    assert_eq!(outcome.stderr, "", "{}", outcome.describe());
}
