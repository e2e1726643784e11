//! Every kind of set-up keeps data whole: each preset, and compressed memory without a disk.

use pleat_e2e::{Machine, Megabytes};

/// 64 MB that pack about 3:1, in 44 MB.
fn walks_with(pleat_args: &[&str]) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    let job = machine
        .job(torture)
        .args(["walk", "64", "3", "compressible"]);
    let outcome = job
        .budget(Megabytes(44))
        .pleat_args(pleat_args)
        .hard_limit()
        .run();
    outcome.expect_success().expect_folded();
    assert!(
        outcome.stdout_text().ends_with("ok walk\n"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn preset_castro03_keeps_data_whole() {
    walks_with(&["--preset", "castro03"]);
}

#[test]
fn preset_static_keeps_data_whole() {
    walks_with(&["--preset", "static"]);
}

#[test]
fn default_preset_keeps_data_whole() {
    walks_with(&[]);
}

#[test]
fn compressible_data_fits_without_a_swap_file() {
    walks_with(&["--no-swap"]);
}
