//! Memory that cannot be taken charge of: tried again when that may have changed, and told of where it leaves no memory
//! for the rest.

use pleat_e2e::{Machine, Megabytes, Outcome};

const BUDGET: Megabytes = Megabytes(64);
/// All but an eighth of the budget, and a little: pleat's own memory and the program's make up for it.
const REFUSED: &str = "54";
const PAGES: u64 = 54 << 8;
const WORK: &str = "24";
/// Two windows of the supervisor's, and what the start takes.
const SECONDS: &str = "12";

fn run(machine: &Machine, how: &str) -> Option<(Outcome, u64)> {
    let program = machine.refused()?;
    let job = machine.job(&program).args([REFUSED, WORK, SECONDS, how]);
    let outcome = job.budget(BUDGET).timeout(120).run();
    outcome.expect_success();
    let printed = outcome.stdout_text();
    let mut lines = printed.lines();
    let resident = lines
        .next()
        .and_then(|line| line.split(' ').next()?.parse().ok());
    assert_eq!(
        lines.next(),
        Some("0 words wrong"),
        "{}",
        outcome.describe()
    );
    let resident = resident.unwrap_or_else(|| panic!("{}", outcome.describe()));
    Some((outcome, resident))
}

#[test]
fn a_job_whose_memory_cannot_be_folded_is_told_of_it_once() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some((outcome, resident)) = run(&machine, "keep") else {
        return;
    };
    assert_eq!(resident, PAGES, "{}", outcome.describe());
    let told: Vec<&str> = outcome
        .stderr
        .lines()
        .filter(|line| line.contains("cannot be folded"))
        .collect();
    assert_eq!(told.len(), 1, "{}", outcome.describe());
    assert!(told[0].contains("most in refused ("), "{}", told[0]);
    assert!(told[0].contains("raise --memory"), "{}", told[0]);
}

/// Once it can be taken charge of there is no need to hold more of it than fits beside the work. Unknown memory may grow
/// by chance and so have it found, too: that it is looked for without that is tested in `pager/src/unknown.rs`.
#[test]
fn what_was_refused_is_taken_charge_of_once_that_is_possible() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some((outcome, resident)) = run(&machine, "release") else {
        return;
    };
    assert!(resident < PAGES / 4 * 3, "{}", outcome.describe());
    assert!(
        !outcome.stderr.contains("cannot be folded"),
        "{}",
        outcome.describe()
    );
}
