//! `pleat mount` while it runs: its source and mount point in the scratch directory, its end in order or
//! by `kill -9`, and a small disk of its own to put below it. Whatever a test does, the mount is gone
//! before the scratch directory is removed.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::machine::{eventually, Machine};
use crate::outcome::Outcome;
use crate::running::Running;
use crate::size::Megabytes;
use crate::{signal, sys, tree};
use pleat_testing::skip;

/// A mount hangs when a test has not ended by then; its end fails whatever waits for it.
const TEST_SECONDS_MAX: u64 = 240;

impl Machine {
    /// As [`Machine::ready`], for tests of the mount, which needs FUSE and not what `pleat run` needs.
    pub fn ready_for_mounts() -> Option<Machine> {
        let machine = Machine::locked();
        let fuse = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        if let Err(error) = fuse {
            skip(format!("/dev/fuse: {error}"));
            return None;
        }
        if sys::user() != 0 && !machine.installed(&["fusermount3"]) {
            return None;
        }
        Some(machine)
    }

    /// Makes an empty directory `source` in the scratch directory and mounts it.
    pub fn mount(&self, memory: Megabytes) -> Mounted<'_> {
        let source = self.scratch().join("source");
        fs::create_dir_all(&source).expect("scratch is writable");
        self.mount_dir(&source, memory, &[])
    }

    /// Runs `pleat mount` in the scratch directory with arguments that it has to refuse; what it mounts in
    /// spite of that on `mount` there is gone afterwards.
    pub fn mount_refused<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Outcome {
        let job = self.job(self.pleat()).arg("mount").args(args).timeout(20);
        let _gone = Mounted {
            machine: self,
            running: None,
            source: self.scratch().to_path_buf(),
            at: self.scratch().join("mount"),
            stats: PathBuf::new(),
        };
        job.run()
    }

    /// Mounts a directory with further arguments of `pleat mount`.
    pub fn mount_dir(&self, source: &Path, memory: Megabytes, flags: &[&str]) -> Mounted<'_> {
        let at = self.scratch().join("mount");
        fs::create_dir_all(&at).expect("scratch is writable");
        let stats = self.scratch().join("mount.json");
        let job = self
            .job(self.pleat())
            .args(["mount", "--memory", &memory.to_string(), "--stats"])
            .arg(&stats)
            .args(flags)
            .args([source, &at])
            .timeout(TEST_SECONDS_MAX);
        let mounted = Mounted {
            machine: self,
            running: Some(job.spawn()),
            source: source.to_path_buf(),
            at,
            stats,
        };
        mounted.wait_until_ready();
        mounted
    }
}

/// A directory shown by `pleat mount`.
pub struct Mounted<'m> {
    machine: &'m Machine,
    /// None after its end.
    running: Option<Running>,
    source: PathBuf,
    at: PathBuf,
    stats: PathBuf,
}

impl Mounted<'_> {
    /// A path in the mount.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.at.join(name)
    }

    /// The same in the directory below.
    pub fn below(&self, name: impl AsRef<Path>) -> PathBuf {
        self.source.join(name)
    }

    /// The process of pleat.
    pub fn pid(&self) -> i32 {
        self.running.as_ref().expect("it runs").pid()
    }

    /// The process's resident memory now.
    pub fn rss_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
        kib.expect("a process has VmRSS") << 10
    }

    /// Whether the directory is mounted, with or without a living process behind it.
    pub fn is_mounted(&self) -> bool {
        is_mounted(&self.at)
    }

    /// Unmounts by SIGTERM; expects an orderly end.
    pub fn end(self) -> Outcome {
        self.end_by(signal::SIGTERM)
    }

    /// Unmounts by a signal; expects status 0, no mount and statistics in JSON.
    pub fn end_by(mut self, signal: i32) -> Outcome {
        let running = self.running.take().expect("it runs");
        running.signal(signal);
        let outcome = running.wait();
        outcome.expect_success();
        assert!(!self.is_mounted(), "still mounted: {}", outcome.describe());
        let stats = fs::read(&self.stats).unwrap_or_default();
        let parsed = serde_json::from_slice::<serde_json::Value>(&stats);
        assert!(parsed.is_ok(), "no statistics: {}", outcome.describe());
        outcome
    }

    /// `kill -9`, as a crash would end it, and what an administrator does then.
    pub fn crash(mut self) {
        let running = self.running.take().expect("it runs");
        running.signal(signal::SIGKILL);
        running.wait();
        sys::unmount_lazily(&self.at).expect("a mount outlives its process");
    }

    fn wait_until_ready(&self) {
        let running = self.running.as_ref().expect("it runs");
        let ready = || running.stderr().contains("is mounted on");
        eventually(Duration::from_secs(20), || {
            ready() || !tree::is_alive(running.pid())
        });
        assert!(ready(), "not mounted; stderr: {}", running.stderr());
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        drop(self.running.take());
        unmount_all(&self.at);
        debug_assert!(self.at.starts_with(self.machine.scratch()));
    }
}

/// An empty directory `mount` in the scratch directory, for `pleat run --mount`. What is mounted there is
/// gone after the test.
pub struct Mountpoint {
    at: PathBuf,
}

impl Mountpoint {
    /// Makes it.
    pub fn new(machine: &Machine) -> Mountpoint {
        let at = machine.scratch().join("mount");
        fs::create_dir_all(&at).expect("scratch is writable");
        Mountpoint { at }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Whether something is mounted there, with or without a living process behind it.
    pub fn is_mounted(&self) -> bool {
        is_mounted(&self.at)
    }
}

impl Drop for Mountpoint {
    fn drop(&mut self) {
        unmount_all(&self.at);
    }
}

fn is_mounted(at: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let at = at.to_string_lossy();
    let mut points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    points.any(|point| point == at)
}

fn unmount_all(at: &Path) {
    while is_mounted(at) {
        if let Err(error) = take_away(at) {
            return eprintln!("could not unmount {}: {error}", at.display());
        }
    }
}

fn take_away(at: &Path) -> std::io::Result<()> {
    if sys::user() == 0 {
        return sys::unmount_lazily(at);
    }
    let mut command = Command::new("fusermount3");
    let status = command.arg("-uz").arg(at).status()?;
    status
        .success()
        .then_some(())
        .ok_or_else(|| std::io::Error::other(format!("fusermount3: {status}")))
}

/// A file system of its own size, on a loop device.
pub struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    /// An empty ext4; None, with a SKIP line, where none can be made.
    pub fn new(machine: &Machine, size: Megabytes) -> Option<SmallDisk> {
        if sys::user() != 0 {
            skip("a loop device needs root");
            return None;
        }
        if !machine.installed(&["mkfs.ext4", "mount", "losetup"]) {
            return None;
        }
        let (image, at) = (
            machine.scratch().join("disk.img"),
            machine.scratch().join("disk"),
        );
        let file = fs::File::create(&image).expect("scratch is writable");
        file.set_len(size.bytes()).expect("scratch is writable");
        fs::create_dir_all(&at).expect("scratch is writable");
        let made = machine
            .job("mkfs.ext4")
            .args(["-q", "-m", "0"])
            .arg(&image)
            .run();
        made.expect_success();
        let mounted = machine
            .job("mount")
            .args(["-o", "loop"])
            .args([&image, &at])
            .run();
        if !mounted.status.success() {
            skip(format!("no loop device: {}", mounted.describe()));
            return None;
        }
        Some(SmallDisk { at })
    }

    /// Its root directory.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(error) = sys::unmount_lazily(&self.at) {
            eprintln!("could not unmount {}: {error}", self.at.display());
        }
    }
}
