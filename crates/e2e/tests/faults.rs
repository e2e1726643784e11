//! The disk below the swap file fails in every way that is known, and somebody changes the file from
//! outside. No program ever reads wrong data: either the job goes on, or it ends in order, with a
//! message that names the file, the operation and a remedy. Each test states which.
//!
//! Where only the disk below can be at fault, `faulty-run` stands in for pleat: the same supervisor on
//! a file some of whose transfers go wrong.

use std::path::PathBuf;
use std::time::Duration;

use pleat_e2e::{
    eventually, is_alive, working_in, Job, Machine, Megabytes, Outcome, Running, SwapFile,
};

/// A quarter of what the program walks over.
const BUDGET: Megabytes = Megabytes(32);
const WALKED: &str = "128";
/// So much of the swap file is damaged from outside: all of it, but a page may have moved meanwhile.
const DAMAGED: Megabytes = Megabytes(256);
/// A file with less in it shows nothing.
const SEARCHED_MIN: Megabytes = Megabytes(32);
/// What pleat waits for a transfer, and what else may take time before and after that.
const STUCK: Duration = Duration::from_secs(30);
const STUCK_MAX: Duration = Duration::from_secs(50);

/// How a job went whose disk is at fault.
struct Run {
    outcome: Outcome,
    file: String,
}

struct Bench {
    machine: Machine,
    torture: PathBuf,
}

impl Bench {
    fn ready() -> Option<Bench> {
        let machine = Machine::ready()?;
        let torture = machine.torture()?;
        Some(Bench { machine, torture })
    }

    /// Pages that do not compress, so that most of what is read comes from the file.
    fn walk(&self, passes: &str) -> Job<'_> {
        let job = self.machine.job(&self.torture);
        job.args(["walk", WALKED, passes, "random"])
    }

    /// Two passes, while of the transfers that `fault` concerns those behind `after` are hit `times`
    /// times.
    fn walk_with(&self, fault: &str, after: u64, times: &str, flags: &[&str]) -> Run {
        let bytes = BUDGET.bytes().to_string();
        let job = self.machine.job(env!("CARGO_BIN_EXE_faulty-run"));
        let job = job
            .args([fault, &after.to_string(), times, "--memory", &bytes])
            .args(flags)
            .arg(self.machine.scratch())
            .arg(self.machine.agent())
            .arg("--")
            .arg(&self.torture)
            .args(["walk", WALKED, "2", "random"]);
        self.finish(job.spawn())
    }

    /// An endless walk under pleat, from the moment its swap file has been written to and read.
    fn walk_for_ever(&self, pleat_args: &[&str]) -> (Running, SwapFile) {
        let walk = self.walk("0").budget(BUDGET).pleat_args(pleat_args);
        let running = walk.timeout(60).spawn();
        running.wait_for_output("pass 1");
        let file = running.swap_file_in(self.machine.scratch());
        (running, file.expect("the job has a swap file"))
    }

    /// Waits for the end, which is in order whatever happened: no wrong data, no process left.
    fn finish(&self, running: Running) -> Run {
        let outcome = running.wait();
        outcome.expect_orderly_end();
        let printed = outcome.stdout_text();
        assert!(
            !printed.contains("FAIL"),
            "{printed}\n{}",
            outcome.describe()
        );
        let scratch = self.machine.scratch();
        let all_gone = eventually(Duration::from_secs(1), || working_in(scratch).is_empty());
        assert!(
            all_gone,
            "left {:?}: {}",
            working_in(scratch),
            outcome.describe()
        );
        let file = format!("swap file in {}", scratch.display());
        Run { outcome, file }
    }
}

impl Run {
    /// The fault was there: else the run shows nothing.
    fn expect_hit(&self) -> &Run {
        let last = self.outcome.stderr.lines().last().unwrap_or_default();
        let hits = last
            .strip_prefix("hits: ")
            .and_then(|hits| hits.parse::<u64>().ok());
        assert!(
            hits > Some(0),
            "nothing was hit: {}",
            self.outcome.describe()
        );
        self
    }

    fn expect_completed(&self) -> &Run {
        self.outcome.expect_success();
        let printed = self.outcome.stdout_text();
        assert!(
            printed.ends_with("ok walk\n"),
            "{}",
            self.outcome.describe()
        );
        self
    }

    /// pleat has ended the job, and says in which file what went wrong as it did what, and what helps.
    fn expect_told(&self, doing: &str, wrong: &[&str]) -> &Run {
        self.outcome.expect_code(125);
        let mut lines = self.outcome.stderr.lines();
        let told = lines.find(|line| line.starts_with("pleat: ") && line.contains(&self.file));
        let told = told.unwrap_or_else(|| panic!("not told: {}", self.outcome.describe()));
        assert!(told.contains(&format!(", {doing} at byte ")), "{told}");
        assert!(wrong.iter().any(|wrong| told.contains(wrong)), "{told}");
        assert!(told.contains("choose another --swap-dir"), "{told}");
        self
    }
}

const DAMAGED_PAGE: &[&str] = &["what was read is not what was written"];

/// The job ends with "what was read is not what was written", encrypted or not.
fn damage_is_told(fault: &str, after: u64) {
    let Some(bench) = Bench::ready() else { return };
    for flags in [&[][..], &["--plain", "--threads"]] {
        let run = bench.walk_with(fault, after, "always", flags);
        run.expect_hit().expect_told("reading", DAMAGED_PAGE);
    }
}

/// The writes are tried again, and the job goes on.
#[test]
fn a_disk_that_is_full_for_a_moment_ends_nothing() {
    let Some(bench) = Bench::ready() else { return };
    let run = bench.walk_with("no-space", 20, "3", &[]);
    run.expect_hit().expect_completed();
}

/// What is too much cannot be put anywhere: the job ends with a message.
#[test]
fn a_disk_that_stays_full_is_told() {
    let Some(bench) = Bench::ready() else { return };
    let run = bench.walk_with("no-space", 20, "always", &[]);
    run.expect_hit().expect_told("writing", &["no space left"]);
}

/// The pages are in memory still, and are written again: the job goes on.
#[test]
fn a_write_that_fails_once_ends_nothing() {
    let Some(bench) = Bench::ready() else { return };
    let run = bench.walk_with("write-error", 20, "1", &[]);
    run.expect_hit().expect_completed();
}

/// What is too much cannot be put anywhere: the job ends with a message.
#[test]
fn a_disk_that_takes_no_more_writes_is_told() {
    let Some(bench) = Bench::ready() else { return };
    let run = bench.walk_with("write-error", 20, "always", &[]);
    run.expect_hit().expect_told("writing", &["I/O error"]);
}

/// The pages are lost: the job ends with a message.
#[test]
fn a_disk_that_cannot_be_read_is_told() {
    let Some(bench) = Bench::ready() else { return };
    let run = bench.walk_with("read-error", 20, "always", &[]);
    run.expect_hit().expect_told("reading", &["I/O error"]);
}

/// The missing half is noticed when it is read: the job ends with a message.
#[test]
fn writes_of_which_half_is_missing_are_told() {
    damage_is_told("short-write", 20);
}

/// Noticed by the seal of the page: the job ends with a message.
#[test]
fn flipped_bits_are_told() {
    damage_is_told("bit-flip", 20);
}

/// A right page in the wrong place has the wrong seal: the job ends with a message.
#[test]
fn swapped_blocks_are_told() {
    damage_is_told("swapped", 0);
}

/// The job ends with a message.
#[test]
fn a_file_that_has_become_shorter_is_told() {
    let Some(bench) = Bench::ready() else { return };
    let run = bench.walk_with("truncated", 20, "always", &[]);
    run.expect_hit()
        .expect_told("reading", &["shorter than what was written"]);
}

/// The job ends after half a minute with a message, and pleat with it. No transfer has an answer any more: the first of them is
/// told, which is a write or a read.
#[test]
#[ignore = "half a minute; reads_that_are_never_answered_are_told is its twin"]
fn transfers_that_are_never_answered_are_told() {
    stuck("stuck", 20, &["writing", "reading"]);
}

/// The same.
#[test]
fn reads_that_are_never_answered_are_told() {
    stuck("stuck-read", 20, &["reading"]);
}

fn stuck(fault: &str, after: u64, doing: &[&str]) {
    let Some(bench) = Bench::ready() else { return };
    let run = bench.walk_with(fault, after, "always", &[]);
    let stderr = &run.outcome.stderr;
    let mut doing = doing.iter();
    let doing = doing.find(|doing| stderr.contains(&format!(", {doing} at byte ")));
    let doing = doing.unwrap_or_else(|| panic!("not told: {}", run.outcome.describe()));
    run.expect_hit().expect_told(doing, &["no answer for 30 s"]);
    let wall = run.outcome.wall;
    assert!(wall >= STUCK && wall <= STUCK_MAX, "ended after {wall:.0?}");
}

/// The job ends with a message: the file is too short, or what was cut off reads as zeros because it has
/// been written to since.
#[test]
fn a_file_cut_off_from_outside_is_told() {
    let Some(bench) = Bench::ready() else { return };
    for len in [0, 1 << 20] {
        let (running, file) = bench.walk_for_ever(&[]);
        file.truncate(len).expect("the file can be cut off");
        let run = bench.finish(running);
        run.expect_told(
            "reading",
            &["shorter than what was written", DAMAGED_PAGE[0]],
        );
    }
}

/// Does something to the swap file from outside, once encrypted and once not. The job ends with a message.
fn meddling_is_told(meddle: impl Fn(&Running, &SwapFile)) {
    let Some(bench) = Bench::ready() else { return };
    for pleat_args in [&[][..], &["--swap-plain"]] {
        let (running, file) = bench.walk_for_ever(pleat_args);
        meddle(&running, &file);
        let run = bench.finish(running);
        run.expect_told("reading", DAMAGED_PAGE);
    }
}

#[test]
fn bits_flipped_from_outside_are_told() {
    meddling_is_told(|_, file| {
        for piece in file.pieces(DAMAGED.bytes()) {
            let mut bytes = file.read(&piece);
            bytes.iter_mut().step_by(512).for_each(|byte| *byte ^= 1);
            file.write(piece.start, &bytes);
        }
    });
}

#[test]
fn blocks_swapped_from_outside_are_told() {
    meddling_is_told(|_, file| {
        let pieces = file.pieces(DAMAGED.bytes());
        assert!(pieces.len() > 1, "too little to swap: {pieces:?}");
        for pair in pieces.chunks_exact(2) {
            let (first, second) = (file.read(&pair[0]), file.read(&pair[1]));
            let len = first.len().min(second.len());
            file.write(pair[0].start, &second[..len]);
            file.write(pair[1].start, &first[..len]);
        }
    });
}

/// What was right once has an old seal. Much of what is brought back is dead by now; sooner or later
/// something is not.
#[test]
fn blocks_replayed_from_outside_are_told() {
    meddling_is_told(|running, file| {
        let pieces = file.pieces(DAMAGED.bytes()).into_iter();
        let old: Vec<_> = pieces
            .map(|piece| (piece.start, file.read(&piece)))
            .collect();
        running.wait_for_output("pass 2");
        while is_alive(running.pid()) {
            old.iter().for_each(|(at, bytes)| file.write(*at, bytes));
        }
    });
}

/// Whoever can read the file finds nothing of the program's memory in it, unless that is wanted.
#[test]
fn the_file_holds_nothing_to_read_unless_plain() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["python3"]) {
        return;
    }
    let text = "the quick brown fox keeps a secret from whoever reads the disk";
    for (pleat_args, is_plain) in [(&[][..], false), (&["--swap-plain"], true)] {
        let job = machine.job("python3").arg(machine.program("secret.py"));
        let job = job.args(["96", text]).budget(Megabytes(44));
        let running = job.pleat_args(pleat_args).spawn();
        running.wait_for_output("kept");
        let file = running.swap_file_in(machine.scratch());
        let (found, searched) = file.expect("a swap file").search(text.as_bytes());
        assert!(
            searched >= SEARCHED_MIN.bytes(),
            "only {searched} bytes in the file"
        );
        assert_eq!(
            found > 0,
            is_plain,
            "found {found} times in {searched} bytes"
        );
    }
}
