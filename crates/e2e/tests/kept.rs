//! The agent stays in the environment of whatever a program executes, and the program's own LD_PRELOAD with it.

use pleat_e2e::{Machine, Megabytes};
use std::fs;

const BUDGET: Megabytes = Megabytes(60);

/// A library that this machine has, for programs to preload: one of this test's own.
fn library() -> String {
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux has it");
    let mut paths = maps.lines().filter_map(|line| line.split(' ').next_back());
    let found = paths.find(|path| path.contains("/libgcc_s.so"));
    found.expect("Rust programs unwind by it").into()
}

#[test]
fn every_exec_of_the_c_library_keeps_the_agent() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(environments) = machine.environments() else {
        return;
    };
    let job = machine.job(environments).arg(library());
    let outcome = job.arg("libpleat_agent").budget(BUDGET).run();
    outcome.expect_success();
    assert_eq!(outcome.stdout_text(), "ok 20\n", "{}", outcome.describe());
}

/// As images do for jemalloc, and people who want a clean environment. Unmanaged, each would be far above its hard limit.
#[test]
fn programs_that_lack_the_agent_in_their_environment_are_managed() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(grow) = machine.grow() else {
        return;
    };
    let library = library();
    let scripts = [
        format!("export LD_PRELOAD={library}; exec \"$0\" 100"),
        "exec env -i \"$0\" 100".into(),
        "exec python3 -c 'import os, subprocess, sys; \
         sys.exit(subprocess.run([sys.argv[1], \"100\"], env={}).returncode)' \"$0\""
            .into(),
    ];
    for script in &scripts {
        if script.contains("python3") && !machine.installed(&["python3"]) {
            return;
        }
        let job = machine.job("sh").args(["-c", script]).arg(&grow);
        let outcome = job.budget(BUDGET).hard_limit().run();
        outcome.expect_success().expect_folded();
        assert_eq!(outcome.stderr, "", "{}", outcome.describe());
        assert!(outcome.stdout_text().starts_with("0 of "));
    }
}

/// Whoever wants a program to run without pleat says so by an empty name.
#[test]
fn an_empty_socket_keeps_a_program_out() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let script =
        "env -i PLEAT_SOCKET= LD_PRELOAD= sh -c 'grep -c pleat_agent /proc/self/maps; env'";
    let job = machine.job("sh").args(["-c", script]).budget(BUDGET);
    let outcome = job.run();
    let printed = outcome.stdout_text();
    assert!(printed.starts_with("0\n"), "{printed}");
    assert!(printed.contains("PLEAT_SOCKET=\n"), "{printed}");
}

/// It would say that the agent cannot be preloaded.
#[test]
fn a_program_for_another_machine_is_left_alone() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    // Only the head of one: what the kernel says of it is the same.
    let script = "printf '\\177ELF\\001\\001\\001\\0\\0\\0\\0\\0\\0\\0\\0\\0\\002\\0\\003\\0' > \"$0\" && chmod +x \"$0\" && \
                  env -i \"$0\"";
    let program = machine.scratch().join("short");
    let job = machine.job("sh").args(["-c", script]).arg(program);
    let outcome = job.budget(BUDGET).run();
    assert_ne!(outcome.status.code(), Some(0));
    assert!(
        !outcome.stderr.contains("libpleat"),
        "{}",
        outcome.describe()
    );
}
