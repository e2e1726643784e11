//! `pleat run --mount`: heap and files share one budget, whoever is used less gives, and however the job
//! ends, nothing hangs and nothing stays mounted.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use pleat_e2e::{eventually, is_alive, signal, Job, Machine, Megabytes, Mountpoint, Outcome};

/// Heap and files fill it each nearly alone; both together do not fit.
const BUDGET: Megabytes = Megabytes(128);
const HEAP_MB: &str = "72";
const FILES_MB: &str = "72";

struct Bench {
    // Dropped first: whatever is mounted is in the scratch directory.
    at: Mountpoint,
    machine: Machine,
}

/// What the program says of one walk: megabytes of heap and of files that are in memory.
#[derive(Debug)]
struct Split {
    heap: u64,
    files: u64,
}

impl Bench {
    /// With an empty mount point.
    fn ready() -> Option<Bench> {
        let machine = Machine::ready_for_mounts().and_then(Machine::that_runs_jobs)?;
        if !machine.installed(&["python3"]) {
            return None;
        }
        let at = Mountpoint::new(&machine);
        Some(Bench { at, machine })
    }

    fn source(&self) -> PathBuf {
        self.machine.scratch().join("source")
    }

    /// Fills the source.
    fn make_files(&self) {
        fs::create_dir_all(self.source()).expect("scratch is writable");
        let make = self.program().arg("make").arg(self.source()).arg(FILES_MB);
        make.run().expect_success();
    }

    fn program(&self) -> Job<'_> {
        let script = self.machine.program("heap_and_files.py");
        self.machine.job("python3").arg(script)
    }

    /// The program on heap and mounted files, under pleat, in a cgroup.
    fn walks(&self, walks: &[&str]) -> Job<'_> {
        let job = self.program().arg(HEAP_MB).arg(self.at.path()).args(walks);
        self.mounted(job).hard_limit()
    }

    fn mounted<'m>(&self, job: Job<'m>) -> Job<'m> {
        let mut mount = self.source().into_os_string();
        mount.push(":");
        mount.push(self.at.path());
        job.budget(BUDGET)
            .pleat_args(["--mount".as_ref(), mount.as_os_str()])
    }

    /// Waits until nothing is mounted any more.
    fn expect_unmounted(&self, within: Duration) {
        let gone = eventually(within, || !self.at.is_mounted());
        assert!(gone, "still mounted after {within:?}");
    }
}

fn split_after(outcome: &Outcome, walk: &str) -> Split {
    let printed = outcome.stdout_text();
    let line = printed.lines().find_map(|line| line.strip_prefix(walk));
    let line = line.unwrap_or_else(|| panic!("no {walk} in {printed}"));
    let numbers: Vec<u64> = line
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    Split {
        heap: numbers[0],
        files: numbers[1],
    }
}

fn mount_figure(outcome: &Outcome, name: &str) -> u64 {
    outcome.stats()["mounts"][0][name].as_u64().expect(name)
}

/// Everything is right in the hard limit, and memory goes to what is used: first to the heap, then to the
/// files, then back.
#[test]
fn memory_goes_to_heap_or_files_whichever_is_used() {
    let Some(bench) = Bench::ready() else { return };
    bench.make_files();
    let outcome = bench.walks(&["h2", "f8", "h8", "f3", "F2"]).run();
    outcome.expect_success().expect_folded();
    assert!(outcome.stdout_text().ends_with("done\n"));
    let (files_used, heap_used) = (split_after(&outcome, "f8"), split_after(&outcome, "h8"));
    let splits = format!("{files_used:?}, then {heap_used:?}: {}", outcome.stats());
    assert!(files_used.files >= heap_used.files + 24, "{splits}");
    assert!(heap_used.heap >= files_used.heap + 24, "{splits}");
    // Of 15 passes by read and by mappings few went to the disk.
    let (read, source) = ("read_bytes", "source_bytes");
    assert!(mount_figure(&outcome, read) >= 72 << 20, "{splits}");
    assert!(mount_figure(&outcome, source) <= 6 * (72 << 20), "{splits}");
    let report = &outcome.stats()["report"];
    let (peak, budget) = (&report["peak_bytes"], BUDGET.percent(102).bytes());
    assert!(peak.as_u64() <= Some(budget), "{peak} in {budget}");
    bench.expect_unmounted(Duration::ZERO);
}

#[test]
fn a_fork_while_files_are_read_keeps_both() {
    let Some(bench) = Bench::ready() else { return };
    bench.make_files();
    let outcome = bench.walks(&["f1", "k3"]).run();
    outcome.expect_success().expect_folded();
    assert!(outcome.stdout_text().ends_with("done\n"));
    bench.expect_unmounted(Duration::ZERO);
}

/// Buffers that are away are read into and written from, by every kind of read and write, while pages of the
/// same files are taken, and while other threads fork: neither side waits for ever for the other.
#[test]
fn buffers_that_are_away_meet_files_that_are_away() {
    let Some(bench) = Bench::ready() else { return };
    let Some(copies) = bench.machine.copies() else {
        return;
    };
    fs::create_dir_all(bench.source()).expect("scratch is writable");
    let job = bench.machine.job(copies).arg(bench.at.path());
    let job = bench.mounted(job.args(["96", "10", "6"]));
    let outcome = job.budget(Megabytes(64)).hard_limit().timeout(90).run();
    outcome.expect_success().expect_folded();
    assert!(outcome.stdout_text().ends_with("ok\n"));
    bench.expect_unmounted(Duration::ZERO);
}

/// The program is in the mount from its first instruction, with the umask and limits it would have anyway,
/// and what it writes is in the source.
#[test]
fn the_program_starts_in_the_mount_with_what_it_would_inherit() {
    let Some(bench) = Bench::ready() else { return };
    bench.make_files();
    let script = "cd \"$1\" && umask && ulimit -n && ls | wc -l && echo text > new && cat new";
    let job = bench.machine.job("sh").args(["-c", script, "sh"]);
    let plain = job.clone().arg(bench.source()).run();
    fs::remove_file(bench.source().join("new")).expect("it was made");
    let mounted = bench.mounted(job.arg(bench.at.path())).run();
    mounted.expect_success().expect_same_output(&plain);
    assert_eq!(
        fs::read_to_string(bench.source().join("new")).expect("it was made"),
        "text\n"
    );
    bench.expect_unmounted(Duration::ZERO);
}

#[test]
fn kill_9_of_pleat_leaves_no_process_and_no_mount() {
    let Some(bench) = Bench::ready() else { return };
    bench.make_files();
    let running = bench.walks(&["f1", "k1000"]).timeout(60).spawn();
    running.wait_for_output("f1 heap");
    let outsider = File::open(bench.at.path().join("file-0")).expect("it is mounted");
    let offspring = running.descendants();
    running.signal(signal::SIGKILL);
    let all_gone = || !offspring.iter().any(|pid| is_alive(*pid));
    let gone = eventually(Duration::from_secs(5), all_gone);
    assert!(gone, "left: {offspring:?}");
    bench.expect_unmounted(Duration::from_secs(5));
    outsider
        .metadata()
        .and_then(|_| fs::read(bench.at.path().join("file-0")))
        .expect_err("nobody serves it");
    let outcome = running.wait();
    assert!(!outcome.stdout_text().contains("FAIL"));
    assert_eq!(outcome.oom_kills, 0, "{}", outcome.describe());
}

#[test]
fn sigint_ends_the_program_and_unmounts() {
    let Some(bench) = Bench::ready() else { return };
    bench.make_files();
    for signal in [signal::SIGINT, signal::SIGTERM] {
        let running = bench.walks(&["f1", "f1000"]).timeout(60).spawn();
        running.wait_for_output("f1 heap");
        running.signal(signal);
        let outcome = running.wait();
        outcome.expect_orderly_end();
        assert_ne!(outcome.status.code(), Some(0), "{}", outcome.describe());
        bench.expect_unmounted(Duration::ZERO);
        assert!(mount_figure(&outcome, "read_bytes") > 0);
    }
}

/// Whoever else uses the mount is served on, and pleat says what it waits for.
#[test]
fn a_mount_in_use_at_the_end_is_served_until_that_ends() {
    let Some(bench) = Bench::ready() else { return };
    bench.make_files();
    let job = bench.machine.job("sh").args(["-c", "echo started; read x"]);
    let waits = bench.machine.scratch().join("waits");
    let made = bench.machine.job("mkfifo").arg(&waits).run();
    made.expect_success();
    // Both ways, so that opening waits for nobody.
    let end = File::options().read(true).write(true).open(&waits);
    let end = end.expect("it was made");
    let running = bench.mounted(job.stdin(&waits)).timeout(60).spawn();
    running.wait_for_output("started");
    let held = File::open(bench.at.path().join("file-1")).expect("it is mounted");
    std::io::Write::write_all(&mut &end, b"\n").expect("the program reads");
    let told = eventually(Duration::from_secs(10), || {
        running.stderr().contains("still in use")
    });
    assert!(told, "{}", running.stderr());
    let mut byte = [0];
    std::os::unix::fs::FileExt::read_exact_at(&held, &mut byte, 4096).expect("it is served");
    drop(held);
    running.wait().expect_success();
    bench.expect_unmounted(Duration::ZERO);
}

#[test]
fn wrong_mounts_are_refused_in_one_line() {
    let Some(bench) = Bench::ready() else { return };
    let scratch = bench.machine.scratch().to_path_buf();
    for dir in ["source/deep", "full/dir", "swap"] {
        fs::create_dir_all(scratch.join(dir)).expect("scratch is writable");
    }
    fs::write(scratch.join("a-file"), "").expect("scratch is writable");
    // Relative to the scratch directory, where jobs run.
    let refused = |args: &[&str], mentioned: &str| {
        let job = bench.machine.job("true").budget(BUDGET).timeout(20);
        let outcome = job.pleat_args(args).run();
        outcome.expect_code(2).expect_one_line_of_error();
        assert!(outcome.stderr.contains(mentioned), "{}", outcome.describe());
    };
    let cases = [
        ("source", "SOURCE:MOUNTPOINT"),
        ("source:mount:rw", ":ro"),
        ("none:mount", "none: No such file"),
        ("a-file:mount", "a-file"),
        ("source:none", "mkdir it first"),
        ("source:full", "not empty"),
        ("source:source/deep", "within each other"),
    ];
    for (mount, mentioned) in cases {
        refused(&["--mount", mount], mentioned);
    }
    let twice = ["--mount", "source:mount", "--mount", "full:mount"];
    refused(&twice, "within each other");
    refused(
        &["--mount", "source:mount", "--record", "trace"],
        "--record",
    );
    let job = bench
        .machine
        .job(bench.machine.pleat())
        .arg("run")
        .timeout(20);
    let stats = ["--mount", "source:mount", "--stats", "mount/run.json"];
    let outcome = job.args(stats).args(["--", "true"]).run();
    outcome.expect_code(2).expect_one_line_of_error();
    assert!(outcome.stderr.contains("--stats"), "{}", outcome.describe());
    bench.expect_unmounted(Duration::ZERO);
}

#[test]
fn a_swap_file_on_the_mount_is_refused() {
    let Some(bench) = Bench::ready() else { return };
    fs::create_dir_all(bench.source()).expect("scratch is writable");
    let job = bench.mounted(bench.machine.job("true"));
    let outcome = job.swap_dir(bench.at.path()).timeout(20).run();
    outcome.expect_code(2).expect_one_line_of_error();
    let mentions = |text| outcome.stderr.contains(text);
    assert!(
        mentions("swap directory") && mentions("--swap-dir"),
        "{}",
        outcome.describe()
    );
    bench.expect_unmounted(Duration::ZERO);
}
