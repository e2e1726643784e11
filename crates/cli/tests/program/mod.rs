//! `pleat` itself, started with arguments, and what it prints.

use std::process::{Command, Output};

/// Runs `pleat` to its end.
pub fn pleat(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pleat"))
        .args(args)
        .env("PLEAT_NO_CONFIG", "1")
        .output()
        .expect("pleat runs")
}

/// What a run that succeeded printed.
pub fn stdout(output: &Output) -> &str {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}
