//! Any program: of every C library and linkage, of Go and Rust, of sanitizers, of interpreters that fork, and what debuggers and
//! emulators run. Each natively, with memory in plenty, and with half of what it needs: the same output, the
//! same warnings, the same exit status. docs/limits.md has the table.

use pleat_e2e::{skip, Job, Machine, Megabytes, Outcome};
use std::path::{Path, PathBuf};

/// Of a thread sanitizer, which has five times what its program has, too.
const PLENTY: Megabytes = Megabytes(800);
const MIB: &str = "68";
const BUDGET: Megabytes = Megabytes(40);
/// With which programs end that can be told to.
const STATUS: i32 = 7;
/// The kernel's killer, by pleat's exit status.
const KILLED: i32 = 137;

fn counter(outcome: &Outcome, name: &str) -> u64 {
    let value = &outcome.stats()["report"]["pager"][name];
    value.as_u64().unwrap_or_else(|| panic!("no {name}"))
}

/// The same with plenty of memory, where pleat is not there at all, and with the budget, where the program is managed.
fn runs_as_ever(job: &Job<'_>, budget: Megabytes, status: i32) {
    fits_and_is_short(job, job.clone().budget(budget).hard_limit(), status);
}

/// The same where nothing in the program announces what it maps: it can have filled a hard limit before its agent is there, and on a
/// busy machine that comes too late now and then (docs/limits.md). So here none is set.
fn runs_as_ever_unannounced(job: &Job<'_>, budget: Megabytes, status: i32) {
    fits_and_is_short(job, job.clone().budget(budget), status);
}

fn fits_and_is_short(job: &Job<'_>, short: Job<'_>, status: i32) {
    let native = job.clone().run();
    native.expect_code(status);
    let plenty = job.clone().budget(PLENTY).hard_limit().run();
    expect_same(&plenty, &native, status);
    assert_eq!(counter(&plenty, "managed_processes"), 0);
    let short = short.run();
    expect_same(&short, &native, status);
    expect_managed(&short);
}

fn expect_same(outcome: &Outcome, native: &Outcome, status: i32) {
    outcome.expect_code(status).expect_same_output(native);
    assert_eq!(outcome.stderr, native.stderr, "{}", outcome.describe());
}

fn expect_managed(outcome: &Outcome) {
    outcome.expect_folded();
    assert!(counter(outcome, "managed_processes") > 0);
    assert_eq!(counter(outcome, "unmanaged_processes"), 0);
}

/// Nothing of it can be taken: it is named with the reason, and where it does not fit it is killed at the limit, not beyond.
fn is_named_and_held(job: &Job<'_>, reason: &str) {
    let outcome = job.clone().budget(BUDGET).hard_limit().run();
    // Memory cgroups of version 1 let it wait first; then the kernel kills it, as pleat says.
    assert!(outcome.stuck.is_none(), "{}", outcome.describe());
    assert_eq!(
        outcome.status.code(),
        Some(KILLED),
        "{}",
        outcome.describe()
    );
    assert!(outcome.stderr.contains(reason), "{}", outcome.describe());
}

fn fill<'m>(machine: &'m Machine, program: &Path) -> Job<'m> {
    let job = machine.job(program).args([MIB, "2"]).timeout(60);
    job.arg(STATUS.to_string())
}

/// The program that fills memory, of this compiler and these options.
fn filler(machine: &Machine, compiler: &str, options: &[&str]) -> Option<PathBuf> {
    machine.compiled_with(compiler, "fill", options)
}

/// The same with the C library as a library, and in it.
fn fillers(machine: &Machine) -> Option<[PathBuf; 2]> {
    let dynamic = filler(machine, "cc", &[])?;
    Some([dynamic, filler(machine, "cc", &["-static"])?])
}

#[test]
fn programs_of_c_of_every_library_and_linkage() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let kinds: [(&str, &[&str]); 5] = [
        ("cc", &[]),
        ("cc", &["-static"]),
        ("cc", &["-static-pie"]),
        ("musl-gcc", &["-static"]),
        ("musl-gcc", &[]),
    ];
    for (compiler, options) in kinds {
        if let Some(program) = filler(&machine, compiler, options) {
            let job = fill(&machine, &program);
            match (compiler, options) {
                ("cc", []) => runs_as_ever(&job, BUDGET, STATUS),
                _ => runs_as_ever_unannounced(&job, BUDGET, STATUS),
            }
        }
    }
}

#[test]
fn programs_of_go_with_and_without_c() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["go"]) {
        return;
    }
    if let Some(program) = machine.go_program("heap.go") {
        let job = machine.job(program).arg("80").timeout(100);
        runs_as_ever_unannounced(&job, BUDGET, 0);
    }
    if let Some(program) = machine.go_program("cgo.go") {
        let job = machine.job(program).args(["72", &STATUS.to_string()]);
        runs_as_ever(&job.timeout(60), BUDGET, STATUS);
    }
}

#[test]
fn programs_of_rust() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let kinds: [&[&str]; 3] = [
        &[],
        &["-Ctarget-feature=+crt-static"],
        &["--target=x86_64-unknown-linux-musl"],
    ];
    for options in kinds {
        if let Some(program) = machine.rust_program("heap.rs", options) {
            let job = machine.job(program).args(["80", &STATUS.to_string()]);
            runs_as_ever_unannounced(&job.timeout(60), Megabytes(44), STATUS);
        }
    }
}

/// Without the search for leaks at the end, which reads all memory while nothing can be taken (docs/limits.md).
#[test]
fn programs_of_sanitizers() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let kinds: [&[&str]; 3] = [
        &["-fsanitize=address"],
        &["-fsanitize=address", "-static-libasan"],
        &["-fsanitize=thread"],
    ];
    for options in kinds {
        if let Some(program) = machine.compiled_with("cc", "small_blocks", options) {
            let job = machine.job(program).arg("80").timeout(60);
            let job = job.env("ASAN_OPTIONS", "detect_leaks=0");
            runs_as_ever(&job, Megabytes(62), 0);
        }
    }
}

#[test]
fn programs_that_see_another_environment_root_or_user() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some([dynamic, alone]) = fillers(&machine) else {
        return;
    };
    let root = machine.scratch().join("root");
    std::fs::create_dir_all(&root).expect("made");
    std::fs::copy(&alone, root.join("fill")).expect("copied");
    let name = |path: &Path| path.to_str().expect("a name").to_owned();
    let (dynamic, alone) = (name(&dynamic), name(&alone));
    let root = name(&root);
    let ways: [&[&str]; 5] = [
        &["env", "-i", &dynamic],
        &["env", "-i", &alone],
        &["chroot", &root, "/fill"],
        &["unshare", "-r", &dynamic],
        &["unshare", "-r", &alone],
    ];
    for way in ways {
        if !machine.installed(&way[..1]) {
            continue;
        }
        let job = machine.job(way[0]).args(&way[1..]);
        let job = job.args([MIB, "2", &STATUS.to_string()]).timeout(60);
        if job.clone().run().status.code() != Some(STATUS) {
            skip(format!("{} does not work here", way[0]));
            continue;
        }
        runs_as_ever_unannounced(&job, BUDGET, STATUS);
    }
}

/// The first Python that warns of threads at a fork is 3.12. With plenty of memory there is none to warn of; when memory is short the agent is
/// one, and the warning is the only thing that differs.
#[test]
fn pythons_that_fork() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(python) = newest_python(&machine) else {
        return skip("no Python of 3.12 or later is installed");
    };
    let job = machine.job(python).arg(machine.program("forks.py"));
    let job = job.args(["200000", &STATUS.to_string()]).timeout(100);
    let native = job.clone().run();
    native.expect_code(STATUS);
    let plenty = job.clone().budget(PLENTY).hard_limit().run();
    expect_same(&plenty, &native, STATUS);
    let short = job.budget(Megabytes(50)).hard_limit().run();
    short.expect_code(STATUS).expect_same_output(&native);
    expect_managed(&short);
    let lines = short.stderr.lines();
    let is_known = |line: &&str| line.contains("is multi-threaded") || line.contains("os.fork()");
    let other: Vec<&str> = lines.filter(|line| !is_known(line)).collect();
    assert!(other.is_empty(), "{}", short.describe());
}

/// One of those that PATH has.
fn newest_python(machine: &Machine) -> Option<&'static str> {
    let names = ["python3.14", "python3.13", "python3.12", "python3"];
    let is_new = |name: &&str| {
        let script = "import sys; sys.exit(sys.version_info < (3, 12))";
        let found = std::process::Command::new(name)
            .args(["-c", script])
            .current_dir(machine.scratch())
            .stderr(std::process::Stdio::null())
            .status();
        found.is_ok_and(|status| status.success())
    };
    names.into_iter().find(is_new)
}

/// It runs the program itself, and knows no memory but what that has asked for.
#[test]
fn what_valgrind_runs_is_named_and_held() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = filler(&machine, "cc", &[]) else {
        return;
    };
    if !machine.installed(&["valgrind"]) {
        return;
    }
    let job = machine.job("valgrind").arg("-q").arg(&program);
    let job = job.args(["4", "1", &STATUS.to_string()]).timeout(60);
    let outcome = job.clone().budget(PLENTY).hard_limit().run();
    outcome.expect_code(STATUS);
    assert_eq!(outcome.stdout_text(), "ok\n");
    // What it has by itself is more than the budget.
    is_named_and_held(&job, "runs unmanaged: it runs programs of its own");
}

#[test]
fn programs_of_32_bits_are_named_and_held() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = filler(&machine, "cc", &["-m32"]) else {
        return;
    };
    let job = fill(&machine, &program);
    let native = job.clone().run();
    let plenty = job.clone().budget(PLENTY).hard_limit().run();
    expect_same(&plenty, &native, STATUS);
    is_named_and_held(&job, "runs unmanaged: it is a 32-bit program");
}

/// What has loaded the library has its agent from the start; the rest cannot be traced twice.
#[test]
fn what_a_debugger_runs() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = filler(&machine, "cc", &[]) else {
        return;
    };
    if !machine.installed(&["gdb"]) {
        return;
    }
    let job = machine
        .job("gdb")
        .args(["-q", "-batch", "-ex", "run", "--args"]);
    let job = job.arg(&program).args([MIB, "2", &STATUS.to_string()]);
    let job = job.timeout(60);
    // gdb itself has as much as the program.
    for budget in [PLENTY, Megabytes(70)] {
        let outcome = job.clone().budget(budget).hard_limit().run();
        outcome.expect_success();
        assert!(!outcome.stderr.contains("pleat:"), "{}", outcome.describe());
        let printed = outcome.stdout_text();
        assert!(printed.lines().any(|line| line == "ok"), "{printed}");
        assert!(printed.contains("exited with code 07"), "{printed}");
        assert!(!printed.contains("New Thread"), "{printed}");
    }
}

#[test]
fn what_strace_follows() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some([dynamic, alone]) = fillers(&machine) else {
        return;
    };
    if !machine.installed(&["strace"]) {
        return;
    }
    let traced = |program: &Path| {
        let job = machine.job("strace").args(["-f", "-o", "trace"]);
        let job = job.arg(program).args([MIB, "2", &STATUS.to_string()]);
        job.timeout(60)
    };
    let job = traced(&dynamic);
    let native = job.clone().run();
    for budget in [PLENTY, Megabytes(44)] {
        let outcome = job.clone().budget(budget).hard_limit().run();
        expect_same(&outcome, &native, STATUS);
    }
    let plenty = traced(&alone).budget(PLENTY).hard_limit().run();
    expect_same(&plenty, &native, STATUS);
    is_named_and_held(&traced(&alone), "runs unmanaged: it may not be traced");
}

const PAGE: &str = r#"<html><body><div id=a></div><script>
const rows = []; let sum = 0;
for (let i = 0; i < 400000; i++) rows.push({k: i, t: "row number " + i + " with text " + (i * 7919 % 1000003)});
for (const row of rows) sum = (sum * 31 + row.t.length + row.k) % 1000003;
document.getElementById("a").textContent = "sum " + sum + " of " + rows.length;
</script></body></html>"#;

/// What it prints of a page whose script fills some hundred megabytes. Its processes come from one that must have a single thread then.
fn chromium<'m>(machine: &'m Machine, as_user: &[&str], sandbox: &[&str]) -> Option<Job<'m>> {
    if !machine.installed(&["chromium"]) {
        return None;
    }
    let page = machine.scratch().join("page.html");
    std::fs::write(&page, PAGE).expect("written");
    let words = [as_user, &["chromium"], sandbox].concat();
    let job = machine.job(words[0]).args(&words[1..]);
    let job = job.args(["--headless", "--disable-gpu", "--disable-breakpad"]);
    let job = job.args(["--user-data-dir=profile", "--dump-dom"]);
    let job = job.arg(format!("file://{}", page.display()));
    Some(job.env("HOME", machine.scratch()).timeout(150))
}

#[test]
#[ignore = "half a minute, and a browser is much to install"]
fn chromium_without_its_sandbox_at_two_thirds_of_its_memory() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(job) = chromium(&machine, &[], &["--no-sandbox"]) else {
        return;
    };
    let native = job.clone().run();
    native.expect_success();
    assert!(native.stdout_text().contains("of 400000"));
    for budget in [Megabytes(600), Megabytes(200)] {
        let outcome = job.clone().budget(budget).hard_limit().run();
        outcome.expect_success().expect_same_output(&native);
        assert!(!outcome.stderr.contains("pleat:"), "{}", outcome.describe());
    }
}
