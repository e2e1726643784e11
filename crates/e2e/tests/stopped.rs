//! A program that is stopped alone, what a job is said to have used, and what a program leaves running.

use pleat_e2e::{Machine, Megabytes};

/// SIGSTOP and SIGCONT to the program and not to pleat, as `cpulimit` and debuggers send them.
#[test]
fn a_program_that_is_stopped_alone_goes_on_when_it_is_told_to() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    let script = r#"(for n in 1 2 3; do sleep 0.4; kill -STOP $$; sleep 0.2; kill -CONT $$; done) &
        exec "$TORTURE" walk 64 8 compressible"#;
    let shell = machine
        .job("sh")
        .args(["-c", script])
        .env("TORTURE", torture);
    let outcome = shell.budget(Megabytes(44)).timeout(60).run();
    outcome.expect_success().expect_folded();
}

/// Far from the budget nothing is known exactly of processes that share memory since a fork, unless it is looked at.
#[test]
fn the_peak_of_a_job_with_forks_is_true() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    let script = r#""$TORTURE" walk 100 4 random & wait $!"#;
    let shell = machine
        .job("sh")
        .args(["-c", script])
        .env("TORTURE", torture);
    let outcome = shell.budget(Megabytes(1000)).run();
    outcome.expect_success();
    let peak = outcome.stats()["report"]["peak_bytes"]
        .as_u64()
        .unwrap_or(0)
        >> 20;
    assert!(
        (100..140).contains(&peak),
        "{peak} MiB: {}",
        outcome.describe()
    );
}

/// The one that is left would go on for ever.
#[test]
fn what_a_program_leaves_running_is_ended_if_that_is_wanted() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    let script = r#""$TORTURE" walk 64 0 compressible & sleep 1; exit 3"#;
    let shell = machine
        .job("sh")
        .args(["-c", script])
        .env("TORTURE", torture);
    let job = shell.budget(Megabytes(44)).pleat_args(["--kill-on-exit"]);
    let outcome = job.timeout(20).run();
    outcome.expect_code(3).expect_folded();
}

#[test]
fn whom_pleat_stays_for_is_said() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    let script = r#"timeout 3 "$TORTURE" walk 64 0 compressible & sleep 0.5"#;
    let shell = machine
        .job("sh")
        .args(["-c", script])
        .env("TORTURE", torture);
    let outcome = shell.budget(Megabytes(44)).timeout(60).run();
    outcome.expect_success();
    let told = outcome
        .stderr
        .lines()
        .filter(|line| line.contains("pleat stays for torture ("));
    assert_eq!(told.count(), 1, "{}", outcome.describe());
}

/// All its threads are stopped again and again, the agent's among them, and its memory read meanwhile: by a debugger, a
/// profiler. The agent has been stopped at work then, now and again.
#[test]
fn a_process_is_looked_at_while_it_is_stopped() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(onlooker) = machine.compiled_with("cc", "onlooker", &["-pthread"]) else {
        return;
    };
    let mut revoked = 0;
    for _ in 0..5 {
        let job = machine.job(&onlooker).args(["64", "400"]);
        let outcome = job.budget(Megabytes(30)).timeout(100).run();
        outcome.expect_success().expect_folded();
        assert_eq!(outcome.stdout_text(), "ok\n", "{}", outcome.describe());
        revoked += outcome.stats()["report"]["pager"]["revoked_commands"]
            .as_u64()
            .expect("a counter");
    }
    assert!(revoked > 0, "no agent was stopped at work");
}
