//! Histories that are played by `cargo test` and `make sim-pager`.

use super::{shrink, History, Tally};

/// Steps by default.
const STEPS: u64 = 1_000_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Plays one history after the other until so many steps are done: PLEAT_SIM_STEPS, from the seed PLEAT_SIM_SEED on.
#[test]
fn what_a_program_wrote_last_is_what_it_reads_whatever_happens_meanwhile() {
    let (steps, first) = (
        number("PLEAT_SIM_STEPS").unwrap_or(STEPS),
        number("PLEAT_SIM_SEED").unwrap_or(1),
    );
    let (mut all, mut seed) = (Tally::default(), first);
    while all.steps < steps {
        match History::of(seed).play() {
            Ok(tally) => all.add(&tally),
            Err(violation) => {
                println!("{violation}");
                let after = all.steps + violation.step;
                panic!(
                    "seed {seed}, after {after} steps in all, made smaller:\n{}",
                    shrink(violation)
                );
            }
        }
        seed += 1;
    }
    println!("{} histories, {all:#?}", seed - first);
}

#[test]
fn a_seed_tells_the_same_history_again() {
    let tally = || History::of(7).play().map_err(|violation| violation.step);
    assert_eq!(tally(), tally());
}
