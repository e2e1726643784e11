//! Memory that a program gets without calling for it by name: by malloc, or as its stack. It is registered before it is
//! filled, or as it grows, so that each first touch asks.

use pleat_e2e::{Job, Machine, Megabytes, Outcome};

fn announced(stats: &serde_json::Value) -> u64 {
    let announced = &stats["report"]["pager"]["announced_mappings"];
    announced.as_u64().expect("a number")
}

/// Found by looking alone, most of this heap was filled before it was seen: 93 MB were in memory.
#[test]
fn a_heap_is_registered_before_it_is_filled() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(grow) = machine.grow() else {
        return;
    };
    let job = machine.job(&grow).arg("100").budget(Megabytes(60));
    let outcome = job.hard_limit().run();
    outcome.expect_success().expect_folded();
    assert!(outcome.stdout_text().starts_with("0 of "));
    // malloc asks for 132 KiB at a time; at least the last third of the heap came when memory was short.
    let announced = announced(&outcome.stats());
    assert!(announced > 200, "{announced} pieces of the heap announced");
}

fn with_deep_stack<'m>(machine: &'m Machine, how: &str) -> Option<Job<'m>> {
    let script = format!("ulimit -s unlimited && exec \"$0\" 100 {how}");
    let job = machine.job("sh").args(["-c", &script]);
    Some(job.arg(machine.main_stack()?).budget(Megabytes(60)))
}

fn assert_right(outcome: &Outcome) {
    outcome.expect_success().expect_folded();
    let printed = outcome.stdout_text();
    assert_eq!(printed, "0 wrong, child 0, arguments 1\n");
}

/// The stack of the main thread grows downwards by itself, and is neither left in memory nor its arguments hidden from
/// others. Unmanaged, all of its 107 MB stayed in memory, and a hard limit ended the program.
#[test]
fn the_stack_of_the_main_thread_is_managed() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if let Some(job) = with_deep_stack(&machine, "") {
        assert_right(&job.hard_limit().timeout(60).run());
    }
}

/// The child returns through the same frames.
#[test]
fn a_forked_child_has_the_stack_of_its_parent() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if let Some(job) = with_deep_stack(&machine, "fork") {
        assert_right(&job.timeout(60).run());
    }
}
