//! `pleat` as a user meets it: mistakes cost one line on standard error and the right exit status.
//!
//! Nothing here needs userfaultfd; running programs for real is the end-to-end tests' business.

use std::process::{Command, Output};

fn pleat(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleat"));
    command
        .args(args)
        .env_remove("TMPDIR")
        .env("PLEAT_NO_CONFIG", "1")
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

/// Runs pleat with its user's file of settings, and without an agent, so that nothing is ever started.
fn with_settings(text: &str, args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join(".config/pleat");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("pleat.toml"), text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_pleat"))
        .args(args)
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("PLEAT_NO_CONFIG")
        .env("HOME", home.path())
        .env("PLEAT_AGENT", "/nonexistent.so")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let stderr = stderr.replace(home.path().to_str().unwrap(), "~");
    (output.status.code(), stderr)
}

#[test]
fn a_mistake_in_the_file_of_settings_is_told_with_its_place_unless_something_else_counts() {
    let file = "\nmemory = 'lots'\n[profile.small]\nmemory = '20M'\n";
    let run = ["run", "--", "true"];
    let wrong = "pleat: ~/.config/pleat/pleat.toml:2:10: --memory: 'lots'";
    for (variables, args, status, begin) in [
        (&[][..], &run[..], 2, wrong),
        (
            &[("PLEAT_MEMORY", "much")],
            &run,
            2,
            "pleat: $PLEAT_MEMORY: --memory: 'much'",
        ),
        (&[("PLEAT_MEMORY", "20M")], &run, 125, "pleat: $PLEAT_AGENT"),
        (&[("PLEAT_USE", "small")], &run, 125, "pleat: $PLEAT_AGENT"),
        (
            &[],
            &["run", "--use", "small", "--", "true"],
            125,
            "pleat: $PLEAT_AGENT",
        ),
        (
            &[],
            &["run", "--memory", "20M", "--", "true"],
            125,
            "pleat: $PLEAT_AGENT",
        ),
        (
            &[],
            &["run", "--no-config", "--", "true"],
            125,
            "pleat: $PLEAT_AGENT",
        ),
        (
            &[("PLEAT_NO_CONFIG", "1")],
            &run,
            125,
            "pleat: $PLEAT_AGENT",
        ),
        (
            &[("PLEAT_CONFIG", "/nonexistent.toml")],
            &run,
            2,
            "pleat: /nonexistent.toml: cannot be read",
        ),
    ] {
        let (code, stderr) = with_settings(file, args, variables);
        assert_eq!(code, Some(status), "{variables:?} {args:?}: {stderr}");
        assert!(
            stderr.starts_with(begin),
            "{variables:?} {args:?}: {stderr}"
        );
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn a_file_of_the_working_directory_counts_only_when_it_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("pleat.toml"), "memory = 'lots'\n").unwrap();
    let complaint = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pleat"));
        let command = command.args(args).current_dir(dir.path());
        let command = command
            .env("HOME", dir.path())
            .env_remove("XDG_CONFIG_HOME");
        let command = command.env_remove("PLEAT_NO_CONFIG");
        let output = command.env("PLEAT_AGENT", "/nonexistent.so").output();
        String::from_utf8(output.unwrap().stderr).unwrap()
    };
    let line = complaint(&["run", "--", "true"]);
    assert!(line.contains("$PLEAT_AGENT"), "{line}");
    let line = complaint(&["run", "--config", "pleat.toml", "--", "true"]);
    assert!(line.starts_with("pleat: pleat.toml:1:10: "), "{line}");
}
