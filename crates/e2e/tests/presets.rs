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
        .args(["walk", "64", "2", "compressible"]);
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
fn the_other_published_systems_keep_data_whole() {
    for preset in ["douglis93", "cervera99", "cpc08", "ramzswap09", "none"] {
        walks_with(&["--preset", preset]);
    }
}

#[test]
fn a_preset_with_parts_replaced_keeps_data_whole() {
    for preset in [
        "castro03/layout=cells4/sizing=aggressive",
        "pleat/sizing=kaplan99/layout=blocks",
        "douglis93/clean=50/sizing=static:30%",
        "cervera99/threshold=10/sizing=static:40%",
    ] {
        walks_with(&["--preset", preset]);
    }
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

#[test]
fn every_codec_keeps_data_whole() {
    for codec in ["fold", "lz4", "lzo", "lzrw1", "wkdm", "lzowkdm", "zstd:-3"] {
        walks_with(&["--codec", codec]);
    }
}

#[test]
fn a_dictionary_learnt_from_the_job_keeps_data_whole() {
    walks_with(&["--codec", "zstd:1+dict"]);
}

#[test]
fn pages_that_stay_cold_are_compressed_again_and_come_back() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["python3"]) {
        return;
    }
    let idle = machine.job("python3").arg(machine.program("idle.py"));
    let job = idle.args(["180000", "4"]).budget(Megabytes(50));
    let outcome = job.pleat_args(["--recompress"]).hard_limit().run();
    outcome.expect_success().expect_folded();
    assert_eq!(outcome.stdout_text(), "ok 5837102\n");
    let saved = &outcome.stats()["report"]["engine"]["recompressed_saved_bytes"];
    assert!(saved.as_u64() > Some(1 << 20), "{}", outcome.describe());
}
