//! Real programs at half of the memory they need: the same output as without pleat, inside the
//! hard limit. What takes minutes is ignored by default, and has a small twin that
//! always runs; `cargo test -p pleat-e2e -- --include-ignored --test-threads=1` runs them all.

use std::fs;
use std::path::{Path, PathBuf};

use pleat_e2e::{Job, Machine, Megabytes, Outcome};

/// Runs the job natively and then under pleat with `percent` of what it needed.
fn same_output_at(percent: u64, job: Job<'_>) -> (Outcome, Outcome) {
    let natural = job.clone().run();
    natural.expect_success();
    let folded = folded_to(natural.peak.percent(percent), job);
    folded.expect_same_output(&natural);
    (natural, folded)
}

fn folded_to(budget: Megabytes, job: Job<'_>) -> Outcome {
    let folded = job.budget(budget).hard_limit().run();
    folded.expect_success().expect_folded();
    folded
}

fn sort_of_a_file(megabytes: u64) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["sort", "python3"]) {
        return;
    }
    let lines = machine.generate("gen_lines.py", megabytes, "lines");
    let sort = machine
        .job("sort")
        .args(["--parallel=2", "-S", "1G"])
        .arg(lines);
    same_output_at(50, sort.env("LC_ALL", "C").timeout(240));
}

#[test]
fn sort_of_an_80_mb_file() {
    sort_of_a_file(80);
}

#[test]
#[ignore = "half a minute; sort_of_an_80_mb_file is its small twin"]
fn sort_of_a_200_mb_file() {
    sort_of_a_file(200);
}

fn python_builds_and_queries_an_index(entries: u64, queries: u64) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["python3"]) {
        return;
    }
    let index = machine.job("python3").arg(machine.program("pyindex.py"));
    let index = index.args([entries.to_string(), queries.to_string()]);
    same_output_at(50, index.timeout(420));
}

#[test]
fn python_builds_and_queries_a_120_mb_index() {
    python_builds_and_queries_an_index(40_000, 4_000);
}

#[test]
#[ignore = "minutes; python_builds_and_queries_a_120_mb_index is its small twin"]
fn python_builds_and_queries_a_400_mb_index() {
    python_builds_and_queries_an_index(140_000, 15_000);
}

fn sqlite_updates_a_database_in_memory(rows: u64) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["sqlite3", "python3"]) {
        return;
    }
    let script = machine.generate("sqlite_mem.py", rows, "script.sql");
    let (natural, _) = same_output_at(
        50,
        machine
            .job("sqlite3")
            .arg(":memory:")
            .stdin(&script)
            .timeout(240),
    );
    assert!(
        natural.stdout_text().ends_with("ok\n"),
        "{}",
        natural.stdout_text()
    );
}

#[test]
fn sqlite_updates_a_70_mb_database_in_memory() {
    sqlite_updates_a_database_in_memory(200_000);
}

#[test]
#[ignore = "minutes; sqlite_updates_a_70_mb_database_in_memory is its small twin"]
fn sqlite_updates_a_200_mb_database_in_memory() {
    sqlite_updates_a_database_in_memory(560_000);
}

/// `gcc -O2 -c` of a generated file; the object file is a function of the source alone.
fn compile<'m>(machine: &'m Machine, source: &Path, object: &str) -> Job<'m> {
    let gcc = machine
        .job("gcc")
        .args(["-O2", "-c", "-o", object])
        .arg(source);
    gcc.timeout(600)
}

fn gcc_makes_the_same_object(functions: u64) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["gcc", "python3"]) {
        return;
    }
    let source = machine.generate("gen_c.py", functions, "big.c");
    let natural = compile(&machine, &source, "natural.o").run();
    natural.expect_success();
    folded_to(
        natural.peak.percent(50),
        compile(&machine, &source, "folded.o"),
    );
    expect_same_files(machine.scratch(), "natural.o", &["folded.o"]);
}

fn expect_same_files(dir: &Path, natural: &str, folded: &[&str]) {
    let wanted = fs::read(dir.join(natural)).expect("the natural object file");
    for name in folded {
        let got = fs::read(dir.join(name)).expect("the folded object file");
        assert!(got == wanted, "{name} differs from {natural}");
    }
}

#[test]
fn gcc_compiles_a_small_file() {
    gcc_makes_the_same_object(100);
}

#[test]
#[ignore = "a minute; gcc_compiles_a_small_file is its small twin"]
fn gcc_compiles_a_file_like_the_sqlite_amalgamation() {
    gcc_makes_the_same_object(800);
}

fn makefile(machine: &Machine, source: &Path) -> PathBuf {
    let source = source.display();
    let rule = |n: u32| format!("{n}.o:\n\tgcc -O2 -c -o {n}.o {source}\n");
    let path = machine.scratch().join("Makefile");
    fs::write(&path, format!("all: 1.o 2.o\n{}{}", rule(1), rule(2))).expect("scratch");
    path
}

/// Two compilers under one budget: half of what the two need together.
fn make_runs_two_compilers(functions: u64) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["gcc", "make", "python3"]) {
        return;
    }
    let source = machine.generate("gen_c.py", functions, "big.c");
    let natural = compile(&machine, &source, "natural.o").run();
    natural.expect_success();
    let both = Megabytes(2 * natural.peak.0);
    let make = machine
        .job("make")
        .args(["-j2", "-f"])
        .arg(makefile(&machine, &source));
    folded_to(both.percent(50), make.timeout(600));
    expect_same_files(machine.scratch(), "natural.o", &["1.o", "2.o"]);
}

#[test]
fn make_j2_compiles_two_small_files_at_once() {
    make_runs_two_compilers(100);
}

#[test]
#[ignore = "two minutes; make_j2_compiles_two_small_files_at_once is its small twin"]
fn make_j2_compiles_two_large_files_at_once() {
    make_runs_two_compilers(800);
}

/// The heap is given, so that the JVM does not size it by the limit it finds.
fn java_map_of(entries: u64, heap: Megabytes) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["java", "javac"]) {
        return;
    }
    let javac = machine
        .job("javac")
        .args(["-d", "."])
        .arg(machine.program("Index.java"));
    javac.run().expect_success();
    let java = machine
        .job("java")
        .arg(format!("-Xmx{}m", heap.0))
        .args(["-cp", ".", "Index"]);
    same_output_at(50, java.arg(entries.to_string()).timeout(400));
}

#[test]
fn jvm_keeps_a_small_map() {
    java_map_of(300_000, Megabytes(200));
}

#[test]
#[ignore = "a minute and a half; jvm_keeps_a_small_map is its small twin"]
fn jvm_keeps_a_300_mb_map() {
    java_map_of(1_000_000, Megabytes(600));
}

fn node_heap_of(entries: u64) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["node"]) {
        return;
    }
    let node = machine.job("node").arg("--max-old-space-size=1000");
    let heap = node
        .arg(machine.program("heap.js"))
        .arg(entries.to_string());
    same_output_at(50, heap.timeout(400));
}

#[test]
fn node_keeps_a_small_heap() {
    node_heap_of(100_000);
}

#[test]
#[ignore = "five minutes; node_keeps_a_small_heap is its small twin"]
fn node_keeps_a_300_mb_heap() {
    node_heap_of(350_000);
}
