//! Memory that processes share (tests/programs/shared): whoever maps it, and however, sees what was written last, while
//! workers are killed with locks in their hands. And the program that says so is not easily pleased.

use pleat_e2e::{Machine, Megabytes};

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
