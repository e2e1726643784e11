//! `pleat run --record`: what is recorded is what the program did, and no mishap of the recording is
//! one of the program.

use pleat_e2e::{Job, Machine};
use std::path::Path;
use std::process::Command;

const PAGES: u64 = 2000;
const ROUNDS: u64 = 4;

/// `cyclic.py` with these arguments, recorded in memory for an eighth of its pages.
fn recorded<'m>(machine: &'m Machine, trace: &Path) -> Job<'m> {
    machine
        .job("python3")
        .arg(machine.program("cyclic.py"))
        .args([PAGES.to_string(), ROUNDS.to_string()])
        .budget(pleat_e2e::Megabytes(64))
        .pleat_args(["--record-resident", "1M", "--record"])
        .pleat_args([trace])
}

/// Pages and whether they were written, of the references to `PAGES` pages from `first` on.
fn references(machine: &Machine, trace: &Path, first: u64) -> Vec<(u64, bool)> {
    let dump = machine.ask(["trace".as_ref(), "dump".as_ref(), trace.as_os_str()]);
    let stderr = String::from_utf8_lossy(&dump.stderr);
    assert!(dump.status.success(), "no trace: {stderr}");
    let text = String::from_utf8(dump.stdout).expect("text");
    let reference = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let page: u64 = fields[2].parse().expect("a page number");
        (page.wrapping_sub(first), fields[3] == "w")
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let all = lines.map(reference);
    all.filter(|(page, _)| *page < PAGES).collect()
}

#[test]
fn the_references_of_a_loop_are_recorded_in_its_order() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["python3"]) {
        return;
    }
    let trace = machine.scratch().join("cyclic.trace");
    let outcome = recorded(&machine, &trace).run();
    outcome.expect_success().expect_folded();
    let printed = outcome.stdout_text();
    let first = printed.lines().next().expect("a page number");
    let mut seen = references(&machine, &trace, first.parse().expect("a number"));
    // A page that was just being taken faults twice.
    seen.dedup();
    let order = (0..ROUNDS).flat_map(|round| (0..PAGES).map(move |i| (i * 7 % PAGES, round == 0)));
    let expected: Vec<(u64, bool)> = order.collect();
    let wrong = seen.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(
        (wrong, seen.len()),
        (None, expected.len()),
        "{}",
        outcome.describe()
    );
    let stats = outcome.stats();
    let counted = stats["report"]["pager"]["recorded_references"].as_u64();
    assert!(counted.is_some_and(|n| n >= PAGES * ROUNDS), "{stats}");
    // Not a second time into the same file.
    let again = recorded(&machine, &trace).run();
    again.expect_code(2).expect_one_line_of_error();
}

#[test]
fn a_program_that_is_killed_leaves_a_complete_trace() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["python3"]) {
        return;
    }
    let trace = machine.scratch().join("killed.trace");
    let script = "import os; kept = bytearray(b'x') * (8 << 20); \
                  os.fork() or os._exit(sum(kept[::4096]) % 2); os.wait(); os.kill(os.getpid(), 9)";
    let outcome = machine
        .job("python3")
        .args(["-c", script])
        .budget(pleat_e2e::Megabytes(64))
        .pleat_args(["--record-resident", "1M", "--record"])
        .pleat_args([&trace])
        .run();
    outcome.expect_code(137);
    let words = ["trace", "info", "--json"].map(AsRef::as_ref);
    let info = machine.ask(words.into_iter().chain([trace.as_os_str()]));
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).expect("a trace");
    let many = |process: &serde_json::Value| process["pages"].as_u64() >= Some(2048);
    let processes = info["processes"].as_array().expect("a list");
    let both = processes.iter().filter(|process| many(process)).count();
    assert_eq!(both, 2, "parent and child went through 8 MiB each: {info}");
}

#[test]
fn a_disk_that_is_full_ends_the_recording_and_not_the_program() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["python3"]) {
        return;
    }
    let trace = machine.scratch().join("full.trace");
    // Room for the agent's shared memory, and not for the trace.
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 700; exec \"$@\"", "sh"])
        .arg(machine.pleat())
        .args([
            "run",
            "--memory",
            "64M",
            "--no-swap",
            "--record-resident",
            "1M",
        ])
        .arg("--record")
        .arg(&trace)
        .args(["--", "python3"])
        .arg(machine.program("cyclic.py"))
        .args([PAGES.to_string(), (4 * ROUNDS).to_string()])
        .output()
        .expect("sh is there");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.ends_with("ok\n"),
        "{stderr}"
    );
    assert!(
        stderr.contains("recording has stopped, the job goes on"),
        "{stderr}"
    );
    assert!(
        stderr.contains("was removed") && !trace.exists(),
        "{stderr}"
    );
}
