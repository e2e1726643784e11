//! What came of a job, and the expectations that most tests have of it. Every failed one shows
//! the command line and the end of stderr.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::size::Megabytes;
use pleat_testing::skip;

/// The end of a job.
pub struct Outcome {
    /// The command line, for messages.
    pub line: String,
    /// How the started process ended (pleat, when the job ran under it).
    pub status: ExitStatus,
    /// The file that holds its stdout.
    pub stdout: PathBuf,
    /// Its stderr.
    pub stderr: String,
    pub(crate) stats: Option<Vec<u8>>,
    /// From start to end.
    pub wall: Duration,
    /// The largest resident memory of any one of its processes.
    pub peak: Megabytes,
    /// Processes that the kernel killed at the hard limit.
    pub oom_kills: u64,
    /// Processes that were still there seconds after the job had ended (cgroup only).
    pub left_behind: Vec<i32>,
    /// What its threads were at when the watchdog ended it; None when it did not have to.
    pub stuck: Option<String>,
}

impl Outcome {
    /// The job ended by itself, was not killed at the hard limit and left no process behind.
    pub fn expect_orderly_end(&self) -> &Self {
        if let Some(stuck) = &self.stuck {
            panic!(
                "killed after {:.0?}: {}\n{stuck}",
                self.wall,
                self.describe()
            );
        }
        assert_eq!(
            self.oom_kills,
            0,
            "OOM-killed at the hard limit: {}",
            self.describe()
        );
        assert!(
            self.left_behind.is_empty(),
            "left {:?}: {}",
            self.left_behind,
            self.describe()
        );
        self
    }

    /// An orderly end with status 0.
    pub fn expect_success(&self) -> &Self {
        self.expect_code(0)
    }

    /// An orderly end with this exit code.
    pub fn expect_code(&self, code: i32) -> &Self {
        self.expect_orderly_end();
        assert_eq!(self.status.code(), Some(code), "{}", self.describe());
        self
    }

    /// Printed exactly what the other run printed.
    pub fn expect_same_output(&self, other: &Outcome) -> &Self {
        assert!(
            same_bytes(&self.stdout, &other.stdout),
            "other output: {}",
            self.describe()
        );
        self
    }

    /// pleat took pages away: else the run shows nothing about pleat.
    pub fn expect_folded(&self) -> &Self {
        let folded = self.stats().to_string();
        assert!(
            self.largest_counter("fold") > 0,
            "no page was folded: {folded}"
        );
        self
    }

    /// What it printed.
    pub fn stdout_text(&self) -> String {
        let bytes = std::fs::read(&self.stdout).expect("stdout was a file");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The JSON that `--stats` wrote.
    pub fn stats(&self) -> serde_json::Value {
        let bytes = self.stats.as_ref();
        let bytes = bytes.unwrap_or_else(|| panic!("no --stats file: {}", self.describe()));
        serde_json::from_slice(bytes)
            .unwrap_or_else(|e| panic!("--stats: {e}: {}", self.describe()))
    }

    /// The largest number in the statistics whose name contains `part`.
    fn largest_counter(&self, part: &str) -> u64 {
        let stats = self.stats();
        let mut largest = 0;
        visit_numbers("", &stats, &mut |name, value| {
            if name.contains(part) {
                largest = largest.max(value);
            }
        });
        largest
    }

    /// The error message on stderr is one line.
    pub fn expect_one_line_of_error(&self) -> &Self {
        let lines = self.stderr.lines().filter(|l| !l.trim().is_empty()).count();
        assert_eq!(lines, 1, "wanted one line of error: {}", self.describe());
        self
    }

    /// Command line, status and the end of stderr, for messages.
    pub fn describe(&self) -> String {
        let lines: Vec<&str> = self.stderr.lines().collect();
        let tail = lines[lines.len().saturating_sub(12)..].join("\n    ");
        let ending = match self.status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => format!("status {}", self.status.code().unwrap_or(-1)),
        };
        format!("`{}` ended with {ending}\n    {tail}", self.line)
    }

    /// What a program of tests that check themselves says of this one: it has passed, or is skipped, visibly. Answers
    /// whether it has.
    pub fn expect_passed(&self, test: &str) -> bool {
        let printed = self.stdout_text();
        assert!(!printed.contains("FAIL"), "{printed}\n{}", self.describe());
        self.expect_success().show_skips();
        let is_skipped = printed.contains("SKIP");
        let has_passed = printed.contains(&format!("ok {test}"));
        assert!(is_skipped || has_passed, "{printed}\n{}", self.describe());
        !is_skipped
    }

    /// It has printed these lines, in any order.
    pub fn expect_lines(&self, lines: &[&str]) {
        let text = self.stdout_text();
        let mut printed: Vec<&str> = text.lines().collect();
        let mut expected = lines.to_vec();
        printed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(printed, expected);
    }

    /// Turns the torture program's SKIP lines into ours.
    pub fn show_skips(&self) -> &Self {
        for line in self.stdout_text().lines().filter(|l| l.starts_with("SKIP")) {
            skip(line);
        }
        self
    }
}

fn visit_numbers(name: &str, value: &serde_json::Value, see: &mut dyn FnMut(&str, u64)) {
    if let Some(number) = value.as_u64() {
        see(name, number);
    }
    for (key, inner) in value.as_object().into_iter().flatten() {
        visit_numbers(key, inner, see);
    }
}

/// Compares two files piece by piece: they may be larger than the memory we want to use.
fn same_bytes(a: &Path, b: &Path) -> bool {
    let (mut a, mut b) = (open(a), open(b));
    loop {
        let (piece, other) = (next_piece(&mut a), next_piece(&mut b));
        if piece != other {
            return false;
        }
        if piece.is_empty() {
            return true;
        }
    }
}

fn open(path: &Path) -> File {
    File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A mebibyte, less only at the end of the file.
fn next_piece(file: &mut File) -> Vec<u8> {
    let mut piece = Vec::new();
    let read = file.take(1 << 20).read_to_end(&mut piece);
    read.unwrap_or_else(|e| panic!("reading output back: {e}"));
    piece
}
