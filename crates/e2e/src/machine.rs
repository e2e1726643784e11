//! The machine that a test has to itself: the lock, the pleat binary, a scratch directory on a
//! real disk.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::sys;
use pleat_testing::skip;

/// Exclusive use of the machine, as long as it lives.
pub struct Machine {
    pub(crate) pleat: PathBuf,
    pub(crate) scratch: tempfile::TempDir,
    _lock: File,
}

impl Machine {
    /// Locks the machine and asks `pleat doctor`; None, with a SKIP line, where pleat cannot
    /// work at all. A missing binary is a failure, not a skip.
    pub fn ready() -> Option<Machine> {
        Machine::locked().that_runs_jobs()
    }

    /// Itself, if `pleat doctor` has nothing against it.
    pub fn that_runs_jobs(self) -> Option<Machine> {
        let machine = self;
        let doctor = Command::new(&machine.pleat)
            .arg("doctor")
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|e| panic!("{} doctor: {e}", machine.pleat.display()));
        if doctor.status.success() {
            return Some(machine);
        }
        let said = String::from_utf8_lossy(&doctor.stdout);
        skip(format!("pleat doctor says:\n{said}"));
        None
    }

    pub(crate) fn locked() -> Machine {
        let lock = lock_file();
        sys::lock_exclusively(&lock).expect("the lock file can be locked");
        // What is tested is pleat as it comes, not as this user has set it.
        env::set_var("PLEAT_NO_CONFIG", "1");
        let target = target_dir();
        let dir = target.join("tmp");
        fs::create_dir_all(&dir).expect("the target directory is writable");
        let scratch = tempfile::tempdir_in(&dir).expect("the target directory is writable");
        Machine {
            pleat: find_pleat(&target),
            scratch,
            _lock: lock,
        }
    }

    /// The pleat binary under test.
    pub fn pleat(&self) -> &Path {
        &self.pleat
    }

    /// Runs it with these arguments, and waits for its end.
    pub fn ask<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Output {
        let output = Command::new(&self.pleat).args(args).output();
        output.expect("pleat runs")
    }

    /// How the job of this supervisor stands, by `pleat list`; nothing where it is not listed.
    pub fn listed(&self, pid: i32) -> Option<serde_json::Value> {
        let output = self.ask(["list", "--json"]);
        let (out, err) = (&output.stdout, &output.stderr);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(err));
        let lines = String::from_utf8_lossy(out);
        let jobs = lines.lines().map(serde_json::from_str::<serde_json::Value>);
        jobs.map(|job| job.expect("JSON a line"))
            .find(|job| job["pid"] == pid)
    }

    /// The agent library that belongs to it: beside it, or where it is installed.
    pub fn agent(&self) -> PathBuf {
        let dir = self.pleat.parent().expect("a binary is in a directory");
        let places = ["libpleat_agent.so", "../lib/pleat/libpleat_agent.so"];
        let found = places
            .iter()
            .map(|place| dir.join(place))
            .find(|path| path.is_file());
        found.unwrap_or_else(|| panic!("no agent library near {}", self.pleat.display()))
    }

    /// A directory of this test's own, on the disk that holds the target directory.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }
}

/// One for all checkouts: they share the machine. A name per user, because nobody may open another
/// user's file in a sticky directory for writing.
fn lock_file() -> File {
    let path = env::temp_dir().join(format!("pleat-e2e-{}.lock", sys::user()));
    File::create(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Whether pleat reaches processes in other network namespaces here: Linux 6.9 lets it. Says SKIP where not.
pub fn reaches_other_networks() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let is_new = version >= (6, 9);
    if !is_new {
        skip("before Linux 6.9 pleat does not reach other network namespaces");
    }
    is_new
}

/// Looks at `condition` until it holds or `limit` has passed; whether it held.
pub fn eventually(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !condition() {
        if Instant::now() >= end {
            return false;
        }
        // Another process decides when the condition holds and cannot tell us: look again.
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// The workspace, whose tests/programs holds the programs to run.
pub(crate) fn workspace() -> &'static Path {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir
        .ancestors()
        .nth(2)
        .expect("the crate is in crates/e2e")
}

/// The test binary is in TARGET/PROFILE/deps.
pub(crate) fn target_dir() -> PathBuf {
    let own = env::current_exe().expect("the test binary has a path");
    own.ancestors()
        .nth(3)
        .expect("test binaries are in the target directory")
        .to_path_buf()
}

fn find_pleat(target: &Path) -> PathBuf {
    if let Some(path) = env::var_os("PLEAT_BIN") {
        return path.into();
    }
    let targets = [target.to_path_buf(), workspace().join("target")];
    let mut places = targets
        .iter()
        .flat_map(|t| [t.join("release/pleat"), t.join("debug/pleat")]);
    places.find(|p| p.is_file()).unwrap_or_else(|| {
        panic!("no pleat binary: run `cargo build --release` first, or set PLEAT_BIN")
    })
}
