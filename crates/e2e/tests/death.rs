//! `kill -9` of the supervisor: every process of the job is dead within a second, with a message
//! on stderr, and none ever read wrong data.

use std::time::Duration;

use pleat_e2e::{eventually, is_alive, signal, Job, Machine, Megabytes};

const BUDGET: Megabytes = Megabytes(44);

/// Starts the job, waits until it has printed each of `signs`, kills the supervisor.
fn dies_with_its_supervisor(job: Job<'_>, signs: &[&str]) {
    let running = job.budget(BUDGET).hard_limit().spawn();
    signs.iter().for_each(|sign| running.wait_for_output(sign));
    let offspring = running.descendants();
    assert!(!offspring.is_empty(), "the supervisor has no child");
    running.signal(signal::SIGKILL);
    let all_dead = eventually(Duration::from_secs(1), || {
        !offspring.iter().any(|p| is_alive(*p))
    });
    let survivors: Vec<i32> = offspring.into_iter().filter(|p| is_alive(*p)).collect();
    assert!(
        all_dead,
        "still alive a second after the supervisor: {survivors:?}"
    );
    // The keeper says so when it has killed everybody.
    let is_told = eventually(Duration::from_secs(5), || {
        running.stderr().contains("pleat")
    });
    let outcome = running.wait();
    assert!(is_told, "no message: {}", outcome.describe());
    assert!(
        !outcome.stdout_text().contains("FAIL"),
        "{}",
        outcome.stdout_text()
    );
}

#[test]
fn a_program_dies_with_its_supervisor() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    let walk = machine.job(torture).args(["walk", "64", "0", "mixed"]);
    dies_with_its_supervisor(walk, &["pass 2"]);
}

#[test]
fn a_forked_child_dies_with_the_supervisor() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    let twins = machine.job(torture).args(["twins", "40"]);
    dies_with_its_supervisor(twins, &["parent pass 2", "child pass 2"]);
}

#[test]
fn a_pipeline_dies_with_the_supervisor() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    let pipeline = r#""$TORTURE" walk 40 0 mixed | { "$TORTURE" walk 40 1 mixed; cat; }"#;
    let shell = machine
        .job("sh")
        .args(["-c", pipeline])
        .env("TORTURE", torture);
    dies_with_its_supervisor(shell, &["ok walk", "pass 2\npass"]);
}

/// Nothing holds such a process: it waits in the kernel, without a page to miss.
#[test]
fn a_sleeping_program_dies_with_its_supervisor() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let sleeper = machine.job("sh").args(["-c", "echo asleep; exec sleep 60"]);
    dies_with_its_supervisor(sleeper, &["asleep"]);
}
