//! The way of the data, checked: which crate of the workspace may depend on which.
//!
//! `docs/architecture.md` draws the same picture. A new crate is added here together with the
//! arrows it is meant to have, so that a wrong arrow is a decision and not an accident.

use serde_json::Value;
use std::process::Command;

/// What the tests of any crate may use.
const FOR_TESTS: &str = "pleat-testing";

/// Who may use whom. Dev-dependencies count, except in `pleat-e2e`, which is nothing but tests, and those on [`FOR_TESTS`].
const ARROWS: [(&str, &[&str]); 19] = [
    (FOR_TESTS, &[]),
    ("pleat-types", &[]),
    ("pleat-sys", &["pleat-wire"]),
    ("pleat-wire", &[]),
    ("pleat-codec", &["pleat-types"]),
    ("pleat-store", &["pleat-types"]),
    ("pleat-policy", &["pleat-types"]),
    ("pleat-backing", &["pleat-types", "pleat-sys"]),
    (
        "pleat-engine",
        &[
            "pleat-types",
            "pleat-codec",
            "pleat-store",
            "pleat-policy",
            "pleat-backing",
        ],
    ),
    ("pleat-agent", &["pleat-wire"]),
    ("pleat-helper", &["pleat-wire"]),
    // A format and generators; the pager records it, the simulator replays it.
    ("pleat-trace", &["pleat-types"]),
    (
        "pleat-sim",
        &[
            "pleat-types",
            "pleat-trace",
            "pleat-codec",
            "pleat-store",
            "pleat-policy",
            "pleat-engine",
        ],
    ),
    (
        "pleat-pager",
        &[
            "pleat-trace",
            "pleat-types",
            "pleat-codec",
            "pleat-store",
            "pleat-policy",
            "pleat-backing",
            "pleat-engine",
            "pleat-sys",
            "pleat-wire",
        ],
    ),
    // A holder of pages beside the pager's processes: its threads and what they share serve both.
    (
        "pleat-mount",
        &[
            "pleat-types",
            "pleat-codec",
            "pleat-engine",
            "pleat-pager",
            "pleat-sys",
        ],
    ),
    // What is drawn knows nothing of what it shows; a report knows the files it reads, and not who writes them.
    ("pleat-plot", &[]),
    ("pleat-report", &["pleat-plot"]),
    // The names of presets and codecs, for help and messages; everything else through the faces.
    (
        "pleat-cli",
        &[
            "pleat-pager",
            "pleat-mount",
            "pleat-sim",
            "pleat-trace",
            "pleat-engine",
            "pleat-codec",
            "pleat-sys",
            "pleat-wire",
            "pleat-plot",
            "pleat-report",
        ],
    ),
    // The names of presets and codecs again: the supervisor with a faulty disk (`faulty-run`).
    (
        "pleat-e2e",
        &[
            "pleat-types",
            "pleat-sys",
            "pleat-wire",
            "pleat-pager",
            "pleat-backing",
            "pleat-engine",
            "pleat-codec",
            FOR_TESTS,
        ],
    ),
];

#[test]
fn no_crate_depends_on_one_that_it_must_not_know() {
    let mut wrong = Vec::new();
    for (from, to) in arrows_of_the_workspace() {
        match ARROWS.iter().find(|(name, _)| *name == from) {
            None => wrong.push(format!("{from} is not in the table")),
            Some((_, allowed)) if allowed.contains(&to.as_str()) => (),
            Some(_) => wrong.push(format!("{from} must not depend on {to}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn siblings_do_not_know_each_other() {
    let siblings = [
        "pleat-codec",
        "pleat-store",
        "pleat-policy",
        "pleat-backing",
    ];
    for (name, allowed) in ARROWS.iter().filter(|(name, _)| siblings.contains(name)) {
        assert!(
            siblings.iter().all(|sibling| !allowed.contains(sibling)),
            "{name}: {allowed:?}"
        );
    }
}

/// (dependent, dependency) for every pair of crates of this workspace.
fn arrows_of_the_workspace() -> Vec<(String, String)> {
    let packages = metadata()["packages"].as_array().expect("packages").clone();
    let name = |value: &Value| {
        value["name"]
            .as_str()
            .expect("a package has a name")
            .to_owned()
    };
    let members: Vec<String> = packages.iter().map(name).collect();
    let mut arrows = Vec::new();
    for package in &packages {
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let (from, to) = (name(package), name(dependency));
            let is_for_tests = to == FOR_TESTS && dependency["kind"] == "dev";
            if members.contains(&to) && from != to && !is_for_tests {
                arrows.push((from, to));
            }
        }
    }
    assert!(
        members.len() >= 11,
        "the whole workspace is seen: {members:?}"
    );
    assert!(!arrows.is_empty(), "the crates are not all strangers");
    arrows
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}
