//! Memory that a program gets without calling for it by name, by malloc. It is registered before it is filled, so that
//! each first touch asks.

use pleat_e2e::{Machine, Megabytes};

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
