//! Programs whose only purpose is to find wrong memory, at twice the budget.

use pleat_e2e::{Machine, Megabytes};

/// memtester locks what it tests where it may. Locked memory cannot be taken away, so it runs
/// without the right to lock and says that it tests unlocked memory.
#[test]
fn memtester_finds_no_error_at_twice_the_budget() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["memtester", "setpriv"]) {
        return;
    }
    let unlocked = "ulimit -l 0; exec setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock \
                    memtester 32M 1";
    // Five of the patterns, each several passes over all memory; all of them take minutes.
    let tester = machine
        .job("sh")
        .args(["-c", unlocked])
        .env("MEMTESTER_TEST_MASK", "0x101d");
    let outcome = tester.budget(Megabytes(16)).hard_limit().timeout(240).run();
    outcome.expect_success().expect_folded();
    let printed = outcome.stdout_text();
    assert!(!printed.contains("FAILURE"), "{printed}");
    assert!(printed.contains("Done."), "{printed}");
}

fn stress_vm(seconds: u32, bytes: Megabytes) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["stress-ng"]) {
        return;
    }
    let stress = machine
        .job("stress-ng")
        .args(["--vm", "2", "--vm-method", "all", "--verify"]);
    let stress = stress.args(["--vm-bytes", &bytes.to_string(), "--timeout"]);
    let stress = stress
        .arg(format!("{seconds}s"))
        .timeout(u64::from(seconds) + 120);
    let outcome = stress.budget(bytes.percent(50)).hard_limit().run();
    outcome.expect_success().expect_folded();
    let said = format!("{}{}", outcome.stdout_text(), outcome.stderr);
    assert!(!said.contains("fail:"), "{said}");
    assert!(said.contains("successful run completed"), "{said}");
}

#[test]
fn stress_ng_finds_no_error_in_a_short_run() {
    stress_vm(15, Megabytes(128));
}

#[test]
#[ignore = "two minutes; stress_ng_finds_no_error_in_a_short_run is its small twin"]
fn stress_ng_finds_no_error_in_a_long_run() {
    stress_vm(120, Megabytes(512));
}
