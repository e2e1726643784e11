//! The command line as a user meets it: exit statuses, streams, signals, the terminal, and one
//! clear line for each mistake.

use std::fs;
use std::time::{Duration, Instant};

use pleat_e2e::{eventually, is_alive, signal, skip, Machine, Megabytes};

const PLENTY: Megabytes = Megabytes(300);

fn shell_exits_with(script: &str, code: i32) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let outcome = machine.job("sh").args(["-c", script]).budget(PLENTY).run();
    outcome.expect_code(code);
}

/// Runs `pleat run` with arguments that it must refuse, and a program that must not start.
fn refuses(pleat_args: &[&str], mentioned: &str) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let job = machine.job(machine.pleat()).arg("run").args(pleat_args);
    let outcome = job.args(["--", "sh", "-c", "echo started"]).run();
    outcome.expect_code(2).expect_one_line_of_error();
    assert_eq!(outcome.stdout_text(), "", "the program was started");
    assert!(outcome.stderr.contains(mentioned), "{}", outcome.describe());
}

#[test]
fn exit_status_is_the_programs() {
    shell_exits_with("exit 0", 0);
    shell_exits_with("exit 3", 3);
    shell_exits_with("exit 255", 255);
}

#[test]
fn death_by_signal_is_128_and_the_signal() {
    shell_exits_with("kill -TERM $$", 128 + signal::SIGTERM);
    shell_exits_with("kill -KILL $$", 128 + signal::SIGKILL);
}

#[test]
fn a_missing_program_is_127() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let outcome = machine.job("no-such-program-here").budget(PLENTY).run();
    outcome.expect_code(127).expect_one_line_of_error();
    assert!(
        outcome.stderr.contains("no-such-program-here"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_file_that_is_not_executable_is_126() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let file = machine.scratch().join("plain-file");
    fs::write(&file, "not a program").expect("scratch is writable");
    let outcome = machine.job(file).budget(PLENTY).run();
    outcome.expect_code(126).expect_one_line_of_error();
}

#[test]
fn an_unknown_preset_is_refused() {
    refuses(&["--preset", "no-such-preset"], "no-such-preset");
}

#[test]
fn an_impossible_size_is_refused() {
    refuses(&["--memory", "many"], "many");
    refuses(&["--memory", "0"], "memory");
}

#[test]
fn a_size_beyond_all_addresses_is_refused() {
    refuses(&["--memory", "1000T"], "more than pleat can address");
}

/// There was no message, for it overflowed.
#[test]
fn a_stack_too_small_for_pleat_is_named() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let script = "ulimit -s 64; exec \"$0\" run --memory 40M -- true";
    let job = machine.job("sh").args(["-c", script]).arg(machine.pleat());
    let outcome = job.run();
    outcome.expect_code(125).expect_one_line_of_error();
    assert!(
        outcome.stderr.contains("ulimit -s"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_budget_too_small_to_start_is_refused() {
    refuses(&["--memory", "1M"], "memory");
}

#[test]
fn an_unwritable_swap_directory_is_refused() {
    refuses(&["--swap-dir", "/proc"], "/proc");
    refuses(&["--swap-dir", "/no/such/directory"], "/no/such/directory");
}

#[test]
fn no_program_is_a_usage_error() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let outcome = machine
        .job(machine.pleat())
        .args(["run", "--memory", "100M"])
        .run();
    outcome.expect_code(2);
}

#[test]
fn stdin_stdout_and_stderr_pass_through_unchanged() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let input = machine.scratch().join("input");
    let bytes: Vec<u8> = (0..100_000u32).flat_map(|i| i.to_le_bytes()).collect();
    fs::write(&input, &bytes).expect("scratch is writable");
    let job = machine
        .job("sh")
        .args(["-c", "cat; echo from stderr >&2"])
        .stdin(&input);
    let outcome = job.budget(PLENTY).pleat_args(["-q"]).run();
    outcome.expect_success();
    assert!(
        fs::read(&outcome.stdout).expect("stdout") == bytes,
        "stdout differs from stdin"
    );
    assert_eq!(outcome.stderr, "from stderr\n");
}

#[test]
fn quiet_prints_nothing_of_its_own() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let outcome = machine.job("true").budget(PLENTY).pleat_args(["-q"]).run();
    outcome.expect_success();
    assert_eq!(
        (outcome.stdout_text().as_str(), outcome.stderr.as_str()),
        ("", "")
    );
}

#[test]
fn verbose_ends_with_a_summary_on_stderr() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let outcome = machine.job("true").budget(PLENTY).pleat_args(["-v"]).run();
    outcome.expect_success();
    assert_eq!(outcome.stdout_text(), "");
    assert!(outcome.stderr.contains("budget"), "{}", outcome.describe());
}

#[test]
fn stats_are_an_object_of_counters() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let outcome = machine.job("true").budget(PLENTY).run();
    outcome.expect_success();
    let fields = outcome.stats().as_object().map_or(0, serde_json::Map::len);
    assert!(fields >= 5, "only {fields} fields: {}", outcome.stats());
}

#[test]
fn sigterm_to_pleat_ends_the_program() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let sleeper = machine.job("sh").args(["-c", "echo asleep; exec sleep 60"]);
    let running = sleeper.budget(PLENTY).spawn();
    running.wait_for_output("asleep");
    let programs = running.descendants();
    let sent = Instant::now();
    running.signal(signal::SIGTERM);
    let outcome = running.wait();
    assert!(
        sent.elapsed() < Duration::from_secs(2),
        "took {:?}",
        sent.elapsed()
    );
    outcome.expect_code(128 + signal::SIGTERM);
    let gone = eventually(Duration::from_secs(1), || {
        !programs.iter().any(|p| is_alive(*p))
    });
    assert!(gone, "pleat ended before its program did");
}

/// The program decides what a signal means, not pleat.
#[test]
fn a_program_may_handle_the_signal() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done";
    let running = machine
        .job("sh")
        .args(["-c", script])
        .budget(PLENTY)
        .spawn();
    running.wait_for_output("ready");
    running.signal(signal::SIGINT);
    let outcome = running.wait();
    outcome.expect_code(9);
    assert!(
        outcome.stdout_text().ends_with("caught\n"),
        "{}",
        outcome.stdout_text()
    );
}

#[test]
fn the_program_has_the_terminal() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["script"]) {
        return;
    }
    let pleat = machine.pleat().display();
    let inner = "test -t 0 && test -t 1 && test -t 2 && stty size >/dev/null && echo all terminals";
    let line = format!("{pleat} run -q --memory 300M -- sh -c '{inner}'");
    let outcome = machine
        .job("script")
        .args(["-qec", &line, "/dev/null"])
        .run();
    outcome.expect_success();
    assert!(
        outcome.stdout_text().contains("all terminals"),
        "{}",
        outcome.stdout_text()
    );
}

/// Code that is compiled for CPUs with vector instructions has them in line. (In what such code hands to other functions, as a closure, each is a
/// call; the codec took twice as long then on CPUs without AVX-512.)
#[test]
fn no_vector_instruction_of_the_codec_is_a_call() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let program = fs::read(machine.pleat()).expect("pleat was built");
    let has = |name: &str| {
        let name = name.as_bytes();
        program.windows(name.len()).any(|some| some == name)
    };
    if !has("pleat_codec") {
        return skip("this pleat has no table of symbols");
    }
    for called in [
        "core_arch3x863avx",
        "core_arch3x864avx2",
        "core_arch3x868avx512",
        "core_arch6x86_644bmi2",
    ] {
        assert!(!has(called), "{called} is called");
    }
}
