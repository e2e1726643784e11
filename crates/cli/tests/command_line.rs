//! `pleat` as a user meets it: mistakes cost one line on standard error and the right exit status.
//!
//! Nothing here needs userfaultfd; running programs for real is the end-to-end tests' business.

use std::process::{Command, Output};

fn pleat(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleat"));
    command
        .args(args)
        .env_remove("TMPDIR")
        .output()
        .expect("pleat runs")
}

/// Runs pleat with a mistake in `args`, and returns its one line of complaint.
fn complaint(args: &[&str], status: i32) -> String {
    let output = pleat(args);
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(status), "{args:?}: {stderr}");
    assert!(
        output.stdout.is_empty(),
        "{args:?}: standard output belongs to the program"
    );
    assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    assert!(stderr.starts_with("pleat: "), "{args:?}: {stderr}");
    stderr
}

#[test]
fn a_mistake_costs_one_line_that_names_the_remedy() {
    let cases: [(&[&str], &str); 17] = [
        (&["run", "--memory", "lots", "--", "true"], "340M"),
        (&["run", "--memory", "0", "--", "true"], "above zero"),
        (&["run", "--memory", "150%", "--", "true"], "up to 100%"),
        (&["run", "--preset", "magic", "--", "true"], "choose from"),
        (&["run", "--codec", "magic", "--", "true"], "choose from"),
        (
            &["run", "--swap-dir", "/nonexistent", "--", "true"],
            "--no-swap",
        ),
        (
            &["run", "--stats", "/nonexistent/x.json", "--", "true"],
            "/nonexistent/x.json",
        ),
        (
            &["run", "--record", "/nonexistent/x.trace", "--", "true"],
            "another name or directory",
        ),
        (
            &["run", "--record", "/dev/null", "--", "true"],
            "another name or remove it",
        ),
        (
            &["run", "--record-resident", "1M", "--", "true"],
            "--record <FILE>",
        ),
        (&["run", "--memroy", "1G", "--", "true"], "--memory"),
        (&["run"], "PROGRAM"),
        (&["run", "--name", "a b", "--", "true"], "letters, digits"),
        (&["set", "no-such-job", "--memory", "1G"], "pleat list"),
        (&["set", "no-such-job", "--memory", "lots"], "340M"),
        (&["set", "no-such-job"], "--memory"),
        (&["list", "--jsn"], "--json"),
    ];
    for (args, remedy) in cases {
        let line = complaint(args, 2);
        assert!(line.contains(remedy), "{args:?}: no {remedy:?} in {line}");
    }
}

#[test]
fn help_teaches_by_example_and_explains_every_flag() {
    let output = pleat(&["run", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(
        help.contains("pleat run --memory 2G -- python3 train.py"),
        "{help}"
    );
    for flag in [
        "memory",
        "name",
        "swap-dir",
        "swap-max",
        "no-swap",
        "preset",
        "codec",
        "stats",
        "quiet",
        "record",
        "record-resident",
    ] {
        assert!(
            help.contains(&format!("--{flag}")),
            "--{flag} is not in the help"
        );
    }
}

#[test]
fn the_version_is_the_crates() {
    let output = pleat(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    let expected = format!("pleat {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn a_missing_agent_is_noticed_before_the_program_starts() {
    let dir = tempfile::tempdir().unwrap();
    let (ran, stats) = (dir.path().join("ran"), dir.path().join("stats.json"));
    let output = Command::new(env!("CARGO_BIN_EXE_pleat"))
        .args(["run", "--memory", "100M", "--stats"])
        .arg(&stats)
        .args(["--", "touch"])
        .arg(&ran)
        .env("PLEAT_AGENT", "/nonexistent.so")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(!ran.exists(), "the program must not run unmanaged");
    let stats: serde_json::Value =
        serde_json::from_slice(&std::fs::read(stats).unwrap()).expect("statistics of the failure");
    assert_eq!(stats["ending"]["kind"], "not_started");
}

#[test]
fn a_program_that_does_not_start_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("x.trace");
    let output = Command::new(env!("CARGO_BIN_EXE_pleat"))
        .args(["run", "--memory", "100M", "--record"])
        .arg(&trace)
        .args(["--", "true"])
        .env("PLEAT_AGENT", "/nonexistent.so")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(!trace.exists(), "a second attempt would be refused");
}

#[test]
fn doctor_gives_a_verdict_a_line_and_a_remedy_for_whatever_is_missing() {
    let output = pleat(&["doctor"]);
    let report = String::from_utf8(output.stdout).unwrap();
    let missing = report
        .lines()
        .filter(|line| line.starts_with("MISSING"))
        .count();
    assert_eq!(
        output.status.code(),
        Some(i32::from(missing > 0)),
        "{report}"
    );
    for line in report.lines() {
        let verdict = line.split(' ').next().unwrap();
        assert!(["ok", "note", "MISSING"].contains(&verdict), "{line}");
        assert!(
            verdict != "MISSING" || line.contains(": "),
            "no remedy: {line}"
        );
    }
    for name in ["kernel", "userfaultfd", "agent", "swap", "budget"] {
        assert!(report.contains(name), "nothing about {name} in\n{report}");
    }
}
