//! A job that has been started: its process, the files that take its output, its cgroup, and a
//! watchdog that kills all of it when its time is up.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cgroup::Cgroup;
use crate::job::Job;
use crate::machine::eventually;
use crate::outcome::Outcome;
use crate::silence::Silence;
use crate::size::Megabytes;
use crate::{stuck, sys, tree};
use pleat_testing::skip;

/// A running job. Dropping it without waiting kills it.
pub struct Running {
    pid: i32,
    line: String,
    started: Instant,
    files: Files,
    cgroup: Option<Arc<Cgroup>>,
    watchdog: Option<Watchdog>,
}

struct Files {
    stdout: PathBuf,
    stderr: PathBuf,
    stats: PathBuf,
}

impl Running {
    /// The child is waited for by `wait` or on drop, with its resource usage.
    #[expect(clippy::zombie_processes)]
    pub(crate) fn start(job: Job<'_>) -> Running {
        let files = Files::fresh(job.machine.scratch());
        let line = job.command_line(&files.stats);
        let cgroup = cgroup_for(&job);
        let mut command = command_in(cgroup.as_deref(), &line);
        let stdin = job
            .stdin
            .as_ref()
            .map(|path| File::open(path).expect("stdin file"));
        command
            .current_dir(job.machine.scratch())
            .env("TMPDIR", job.machine.scratch())
            .envs(job.env.iter().cloned())
            .stdin(stdin.map_or_else(Stdio::null, Stdio::from))
            .stdout(File::create(&files.stdout).expect("scratch is writable"))
            .stderr(File::create(&files.stderr).expect("scratch is writable"))
            .process_group(0);
        let shown = line
            .join(&OsString::from(" "))
            .to_string_lossy()
            .into_owned();
        let started = Instant::now();
        let child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start `{shown}`: {e}"));
        let pid = i32::try_from(child.id()).expect("pids are positive");
        let silence = job.budget.map(|_| Silence::new(files.stderr.clone()));
        let watchdog = Some(Watchdog::start(pid, cgroup.clone(), job.timeout, silence));
        Running {
            pid,
            line: shown,
            started,
            files,
            cgroup,
            watchdog,
        }
    }

    /// The process that was started: the supervisor, when the job runs under pleat.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Every process that descends from it now.
    pub fn descendants(&self) -> Vec<i32> {
        tree::descendants(self.pid)
    }

    /// The cgroup with its hard limit, where it has one.
    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_deref()
    }

    /// Sends a signal to that process alone.
    pub fn signal(&self, signal: i32) {
        sys::kill_process(self.pid, signal);
    }

    /// The keeper of the job.
    pub fn keeper(&self) -> i32 {
        let name = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let mut others = self.descendants().into_iter();
        let keeper = others.find(|pid| name(pid).trim() == "pleat-keeper");
        keeper.expect("there is a keeper")
    }

    /// Kills pleat and its keeper by one stroke, as far as a process can.
    pub fn kill_with_keeper(&self) {
        let keeper = self.keeper();
        self.signal(libc::SIGKILL);
        sys::kill_process(keeper, libc::SIGKILL);
    }

    /// What it has printed so far.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.files.stdout).unwrap_or_default()).into_owned()
    }

    /// What it has said on stderr so far.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.files.stderr).unwrap_or_default()).into_owned()
    }

    /// Waits until it has printed `text`.
    pub fn wait_for_output(&self, text: &str) {
        let printed = eventually(Duration::from_secs(60), || {
            self.stdout().contains(text) || !tree::is_alive(self.pid)
        });
        let stdout = self.stdout();
        assert!(
            printed && stdout.contains(text),
            "`{}` never printed `{text}`; stdout: {stdout}; stderr: {}; its threads:\n{}",
            self.line,
            self.stderr(),
            tree::threads(self.pid)
        );
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Outcome {
        let (status, peak_kib) = sys::wait_with_peak(self.pid).expect("it is our child");
        let wall = self.started.elapsed();
        let stuck = self.watchdog.take().and_then(Watchdog::stop);
        let left_behind = match &self.cgroup {
            Some(group) if stuck.is_none() => group.left_behind(),
            _ => vec![],
        };
        let stderr = fs::read(&self.files.stderr).unwrap_or_default();
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        // cgroup v1 counts those in a group of the job's own there, and that is gone by now: pleat tells.
        let kills_told = u64::from(stderr.contains("pleat: the kernel killed"));
        Outcome {
            line: self.line.clone(),
            status,
            stdout: self.files.stdout.clone(),
            stderr,
            stats: fs::read(&self.files.stats).ok(),
            wall,
            peak: Megabytes(peak_kib.div_ceil(1024)),
            oom_kills: self
                .cgroup
                .as_ref()
                .map_or(0, |group| group.oom_kills().max(kills_told)),
            left_behind,
            stuck,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.watchdog.take().is_some() {
            end(self.pid, self.cgroup.as_deref());
            let _ = sys::wait_with_peak(self.pid);
        }
    }
}

/// Everything the job may consist of, also children that left its process group.
fn end(pid: i32, cgroup: Option<&Cgroup>) {
    let offspring = tree::descendants(pid);
    sys::kill_group(pid);
    for child in offspring {
        sys::kill_process(child, libc::SIGKILL);
    }
    if let Some(group) = cgroup {
        group.kill_all();
    }
}

impl Files {
    /// Names that no other job of this test uses.
    fn fresh(scratch: &Path) -> Files {
        let dir = tempfile::Builder::new().prefix("job-").tempdir_in(scratch);
        let dir = dir.expect("scratch is writable").keep();
        Files {
            stdout: dir.join("stdout"),
            stderr: dir.join("stderr"),
            stats: dir.join("stats.json"),
        }
    }
}

fn cgroup_for(job: &Job<'_>) -> Option<Arc<Cgroup>> {
    let budget = job.budget.filter(|_| job.hard_limit)?;
    match Cgroup::limited_to(budget.bytes() / 100 * 102) {
        Ok(group) => Some(Arc::new(group)),
        Err(why) => {
            skip(format!("the hard limit, not the test: {why}"));
            None
        }
    }
}

/// A shell joins the group before it becomes the job, so that nothing runs outside.
fn command_in(cgroup: Option<&Cgroup>, line: &[OsString]) -> Command {
    let Some(group) = cgroup else {
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]);
        return command;
    };
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", r#"echo 0 > "$0" && exec "$@""#])
        .arg(group.procs())
        .args(line);
    command
}

/// Between two looks at whether a job gets on.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Kills a job when its time is up, or when it gets nowhere in silence, unless told to stop before, and says what it
/// was at.
struct Watchdog {
    stop: Sender<()>,
    thread: JoinHandle<Option<String>>,
}

impl Watchdog {
    fn start(
        pid: i32,
        cgroup: Option<Arc<Cgroup>>,
        timeout: Duration,
        mut silence: Option<Silence>,
    ) -> Watchdog {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let end_at = Instant::now() + timeout;
            let why = loop {
                let left = end_at.saturating_duration_since(Instant::now());
                let pause = match silence {
                    Some(_) => left.min(LOOK_EVERY),
                    None => left,
                };
                if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    break None;
                }
                if silence.as_mut().is_some_and(|silence| silence.look(pid)) {
                    break Some("it has got nowhere for ten seconds, and pleat said nothing; ");
                }
                if Instant::now() >= end_at {
                    break Some("");
                }
            };
            why.map(|why| {
                let stuck = why.to_owned() + &stuck::describe(pid);
                // That takes seconds: it may have ended, and its process id may be another's.
                if stopped.try_recv().is_err() {
                    end(pid, cgroup.as_deref());
                }
                stuck
            })
        });
        Watchdog { stop, thread }
    }

    /// What the job was at if it had to be killed.
    fn stop(self) -> Option<String> {
        let _ = self.stop.send(());
        self.thread.join().expect("the watchdog does not panic")
    }
}
