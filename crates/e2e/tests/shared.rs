//! Memory that processes share (tests/programs/shared): whoever maps it, and however, sees what was written last, while
//! workers are killed with locks in their hands. And the program that says so is not easily pleased.

use pleat_e2e::{eventually, Job, Machine, Megabytes};
use std::time::Duration;

/// What is shared; and room for the processes and pleat. The shared memory itself stays where it is (docs/shared-memory.md).
const SEGMENT: Megabytes = Megabytes(16);
const BUDGET: Megabytes = Megabytes(16 + 28);
const WORKERS: &str = "6";
const SECONDS: &str = "4";

fn passes(kind: &str, budget: Option<Megabytes>) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = machine.shared() else {
        return;
    };
    let job = machine
        .job(program)
        .args([kind, &SEGMENT.0.to_string(), WORKERS, SECONDS]);
    let job = match budget {
        Some(budget) => job.budget(budget),
        None => job,
    };
    job.run().expect_passed("shared");
}

macro_rules! kinds {
    ($($bare:ident, $paged:ident: $kind:literal,)*) => {
        $(
            #[test] fn $bare() { passes($kind, None); }
            #[test] fn $paged() { passes($kind, Some(BUDGET)); }
        )*
    };
}

kinds! {
    anonymous_shared_memory_without_pleat, anonymous_shared_memory_is_one_memory: "anonymous",
    a_memfd_without_a_descriptor_without_pleat, a_memfd_without_a_descriptor_is_one_memory: "closed",
    a_memfd_with_a_descriptor_without_pleat, a_memfd_with_a_descriptor_is_one_memory: "open",
    a_file_of_dev_shm_without_pleat, a_file_of_dev_shm_is_one_memory: "named",
    system_v_memory_without_pleat, system_v_memory_is_one_memory: "sysv",
}

/// One process does to the memory what a bad pager would. Should the program not notice, its passing says nothing.
fn is_noticed(sabotage: &str) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = machine.shared() else {
        return;
    };
    let arguments = ["anonymous", "4", WORKERS, "30", "1", sabotage];
    let outcome = machine.job(program).args(arguments).run();
    let printed = outcome.stdout_text();
    assert!(
        printed.contains("FAIL shared"),
        "{printed}{}",
        outcome.describe()
    );
    assert!(
        !printed.contains("ok shared"),
        "{printed}{}",
        outcome.describe()
    );
    outcome.expect_code(1);
}

#[test]
fn a_lost_write_is_noticed() {
    is_noticed("lost");
}

#[test]
fn a_page_of_zeros_is_noticed() {
    is_noticed("zeros");
}

#[test]
fn a_page_as_it_was_is_noticed() {
    is_noticed("stale");
}

/// The machine, where shared memory can be taken away.
fn taking() -> Option<Machine> {
    let machine = Machine::ready()?;
    let tried = machine
        .job("true")
        .budget(Megabytes(64))
        .pleat_args(TAKEN)
        .run();
    if tried.stderr.contains("cannot be told here") {
        let why = tried.stderr.trim();
        pleat_e2e::skip(format!("who holds a page cannot be asked here: {why}"));
        return None;
    }
    tried.expect_success();
    Some(machine)
}

const TAKEN: [&str; 1] = ["--shared-memory"];

/// Pages of shared memory were taken away, and came back.
fn expect_taken(job: Job<'_>, test: &str) {
    let outcome = job.pleat_args(TAKEN).run();
    outcome.expect_passed(test);
    let counters = &outcome.stats()["report"]["pager"];
    for counter in ["segment_taken_pages", "segment_filled_pages"] {
        let pages = counters[counter].as_u64();
        assert!(pages > Some(1000), "{counter}: {}", outcome.describe());
    }
}

#[test]
fn shared_memory_is_taken_away_and_comes_back_for_all() {
    let Some(machine) = taking() else {
        return;
    };
    let Some(program) = machine.shared() else {
        return;
    };
    let arguments = ["anonymous", "48", WORKERS, "12"];
    let job = machine.job(program).args(arguments);
    expect_taken(job.budget(Megabytes(52)), "shared");
}

#[test]
fn a_job_of_nothing_but_shared_memory_runs_in_half_of_it() {
    let Some(machine) = taking() else {
        return;
    };
    let Some(program) = machine.segment() else {
        return;
    };
    let job = machine.job(program).args(["100", "3", "2"]);
    expect_taken(job.budget(Megabytes(55)).hard_limit(), "segment");
}

#[test]
fn processes_that_run_share_their_memory_as_before_when_they_are_left() {
    let Some(machine) = taking() else {
        return;
    };
    let Some(program) = machine.shared() else {
        return;
    };
    let bare = machine
        .job(program)
        .args(["anonymous", "48", "4", "25"])
        .timeout(120)
        .spawn();
    // Without a budget the job is the program itself.
    let pid = bare.pid().to_string();
    let is_at_work = || bare.descendants().len() >= 4;
    assert!(eventually(Duration::from_secs(60), is_at_work));
    let swap = machine.scratch().display().to_string();
    let attach = [
        "attach",
        "--shared-memory",
        "--memory",
        "48M",
        "--swap-dir",
        &swap,
        &pid,
    ];
    let attached = machine
        .job(machine.pleat())
        .args(attach)
        .timeout(120)
        .spawn();
    let is_away = || {
        let job = machine.listed(attached.pid());
        job.is_some_and(|job| job["pages_away"].as_u64() > Some(2000))
    };
    assert!(
        eventually(Duration::from_secs(60), is_away),
        "{}",
        attached.stderr()
    );
    let left = machine.ask(["detach", &pid]);
    assert!(left.status.success(), "{left:?}");
    attached.wait().expect_success();
    bare.wait().expect_passed("shared");
}
