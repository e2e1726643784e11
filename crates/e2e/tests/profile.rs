//! `pleat run --profile`: nothing is left out of the figures and nothing counted twice, and a run that is
//! not profiled has none.

use pleat_e2e::{Machine, Megabytes};
use serde_json::Value;

fn number(value: &Value, path: &str) -> u64 {
    let found = path
        .split('.')
        .fold(value, |value, name| value.get(name).unwrap_or(&Value::Null));
    found
        .as_u64()
        .unwrap_or_else(|| panic!("no {path} in {value}"))
}

/// Nanoseconds of all parts of `group` but these.
fn total_ns(group: &Value, without: &[&str]) -> u64 {
    let parts = group.as_object().expect("parts by name").iter();
    let parts = parts.filter(|(name, part)| part.is_object() && !without.contains(&name.as_str()));
    parts.map(|(_, part)| number(part, "total_ns")).sum()
}

#[test]
fn parts_are_counted_as_often_as_what_they_are_parts_of_and_add_up() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    let walk = machine.job(torture).args(["walk", "96", "2", "random"]);
    let job = walk.budget(Megabytes(32)).pleat_args(["--profile"]);
    let outcome = job.run();
    outcome.expect_success().expect_folded();
    let stats = outcome.stats();
    let (report, profile) = (&stats["report"], &stats["profile"]);

    let faults = &profile["faults"];
    let answered = number(report, "pager.faults");
    for counted in ["answered", "turn.count", "other.count"] {
        assert_eq!(number(faults, counted), answered, "{counted}: {profile}");
    }
    assert!(number(faults, "swap_read.count") > 0, "{profile}");
    let came_back = number(report, "engine.filled_disk_pages");
    assert!(number(faults, "filled_pages") >= came_back, "{profile}");
    // Parts are exact, the meter leaves out parts of a microsecond of each fault.
    let (parts_us, stall_us) = (
        total_ns(faults, &["wake", "read"]) / 1000,
        number(report, "stall_us"),
    );
    let slack_us = answered * 2 + stall_us / 50 + 1000;
    assert!(
        parts_us.abs_diff(stall_us) < slack_us,
        "{parts_us} of {stall_us} us: {profile}"
    );

    let evictions = &profile["evictions"];
    let (void, taken) = (
        number(report, "engine.taken_void_pages"),
        number(report, "engine.taken_pages"),
    );
    for part in ["wake", "move_out", "copy", "free", "answer"] {
        let count = number(evictions, &format!("{part}.count"));
        assert_eq!(count, taken + void, "{part}: {profile}");
    }
    assert_eq!(number(evictions, "stage.count"), taken, "{profile}");
    assert!(number(evictions, "choose.count") >= taken, "{profile}");
    let kinds = ["same", "packed", "raw", "void"].iter();
    let folded: u64 = kinds
        .map(|kind| number(report, &format!("engine.folded_{kind}_pages")))
        .sum();
    for part in ["queue", "fold", "store"] {
        let count = number(evictions, &format!("{part}.count"));
        assert_eq!(count, folded, "{part}: {profile}");
    }
    assert!(number(evictions, "interrupted_moves") <= number(evictions, "moves"));
    for line in ["faults answered", "pages taken", "unfold", "move out"] {
        assert!(outcome.stderr.contains(line), "{}", outcome.describe());
    }
}

#[test]
fn nothing_is_profiled_unless_asked_for() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let outcome = machine.job("true").budget(Megabytes(300)).run();
    outcome.expect_success();
    assert_eq!(outcome.stats()["profile"], Value::Null);
    assert_eq!(outcome.stderr, "");
}
