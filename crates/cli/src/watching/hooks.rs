//! Commands of the user's that are run when something happens to the job.
//!
//! Whatever descends from the supervisor is of the job: it is counted, waited for and ended with it. A command is not. So it is not the
//! supervisor that starts it, but a process beside the job, the runner, which the pager leaves out with all that descends from it. The runner
//! is started before there is any thread, adopts what its commands leave behind, and ends with the supervisor.

use crate::exit::{Exit, Stop};
use pleat_sys::process::{readable, wait};
use pleat_sys::procfs::children;
use pleat_sys::signals::{self, Change};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The runner looks so often whether what it has adopted has ended.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// As `main` knows the runner.
pub const RUNNER: &str = "run-hooks";

/// A command to be run.
#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
    command: String,
    environment: BTreeMap<String, String>,
}

/// It has ended, or could not be started.
#[derive(Serialize, Deserialize)]
struct Done {
    id: u64,
    /// What `sh` said, as a shell shows it.
    status: i32,
}

/// How a command ended that was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// With this status.
    Ended(i32),
    /// It has not: it goes on.
    Late,
    /// The runner is gone.
    Gone,
}

/// The supervisor's end: starts commands by the runner.
#[derive(Default)]
pub struct Hooks(Mutex<Option<Runner>>);

struct Runner {
    stream: BufReader<UnixStream>,
    orders: u64,
    /// Those that have not ended.
    open: Vec<u64>,
    line: String,
}

impl Hooks {
    /// Starts the runner; its process id. To be called while there is no other thread.
    ///
    /// # Errors
    /// When no process can be had.
    pub fn start(&self) -> io::Result<i32> {
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = Stdio::from(std::os::fd::OwnedFd::from(theirs));
        let runner = Command::new("/proc/self/exe")
            .arg0("pleat")
            .arg(RUNNER)
            .stdin(theirs)
            .stdout(Stdio::null())
            // Ctrl-C is for the job.
            .process_group(0)
            .spawn()?;
        *self.lock() = Some(Runner {
            stream: BufReader::new(ours),
            orders: 0,
            open: Vec::new(),
            line: String::new(),
        });
        Ok(runner.id() as i32)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Runner>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a command run, unless one has not ended yet that was started before. Answers whether it has; `Err` when the runner is gone.
    pub fn begin(
        &self,
        command: &str,
        environment: BTreeMap<String, String>,
    ) -> Result<bool, Waited> {
        let mut runner = self.lock();
        let runner = runner.as_mut().ok_or(Waited::Gone)?;
        runner.hear(Duration::ZERO)?;
        if !runner.open.is_empty() {
            return Ok(false);
        }
        runner.order(command, environment).map(|_| true)
    }

    /// Has a command run, and waits for its end, for so long at most.
    pub fn run(
        &self,
        command: &str,
        environment: BTreeMap<String, String>,
        most: Duration,
    ) -> Waited {
        let end = Instant::now() + most;
        let mut runner = self.lock();
        let Some(runner) = runner.as_mut() else {
            return Waited::Gone;
        };
        let id = match runner.order(command, environment) {
            Ok(id) => id,
            Err(gone) => return gone,
        };
        loop {
            match runner.hear(end.saturating_duration_since(Instant::now())) {
                Ok(Some(done)) if done.id == id => return Waited::Ended(done.status),
                Ok(Some(_)) => {}
                Ok(None) => return Waited::Late,
                Err(gone) => return gone,
            }
        }
    }
}

impl Runner {
    fn order(
        &mut self,
        command: &str,
        environment: BTreeMap<String, String>,
    ) -> Result<u64, Waited> {
        self.orders += 1;
        let id = self.orders;
        let order = Order {
            id,
            command: command.into(),
            environment,
        };
        let mut line = serde_json::to_string(&order).map_err(|_| Waited::Gone)?;
        line.push('\n');
        let written = self.stream.get_mut().write_all(line.as_bytes());
        written.map_err(|_| Waited::Gone)?;
        self.open.push(id);
        Ok(id)
    }

    /// The next command that has ended, within this time.
    fn hear(&mut self, most: Duration) -> Result<Option<Done>, Waited> {
        let end = Instant::now() + most;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if self.stream.buffer().is_empty() {
                let mut fds = [readable(self.stream.get_ref().as_raw_fd())];
                wait(&mut fds, Some(left));
                if fds[0].revents == 0 {
                    match left.is_zero() {
                        true => return Ok(None),
                        false => continue,
                    }
                }
            }
            // The runner writes whole lines.
            match self.stream.read_line(&mut self.line) {
                Ok(0) => return Err(Waited::Gone),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Err(Waited::Gone),
                Ok(_) => {}
            }
            let done: Result<Done, _> = serde_json::from_str(&std::mem::take(&mut self.line));
            let done = done.map_err(|_| Waited::Gone)?;
            self.open.retain(|id| *id != done.id);
            return Ok(Some(done));
        }
    }
}

/// The runner, until the supervisor is gone: runs what is ordered on standard input.
pub fn runner() -> Exit {
    Stop::exit(try_runner().map_err(|error| Stop::failure(format!("cannot run commands: {error}"))))
}

fn try_runner() -> io::Result<()> {
    signals::adopt_orphans()?;
    // It was started as /proc/self/exe.
    let _ = std::fs::write("/proc/self/comm", "pleat-hooks");
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut running: HashMap<i32, u64> = HashMap::new();
    let (mut text, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        let has_children = !running.is_empty() || !children(std::process::id() as i32).is_empty();
        let mut fds = [readable(stream.as_raw_fd())];
        wait(&mut fds, has_children.then_some(LOOK_EVERY));
        while let Some((pid, change)) = signals::next_change() {
            let status = match change {
                Change::Exited(status) => status,
                Change::Killed(signal) => 128 + signal,
                Change::Stopped(_) | Change::Continued | Change::Traced => continue,
            };
            if let Some(id) = running.remove(&pid) {
                say_done(&stream, id, status);
            }
        }
        if fds[0].revents == 0 {
            continue;
        }
        let count = match (&stream).read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // The supervisor is gone; also where it has not read what was said last.
            Ok(0) | Err(_) => return Ok(()),
            Ok(count) => count,
        };
        text.extend_from_slice(&bytes[..count]);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let order: Order = serde_json::from_slice(&line)?;
            match start(&order) {
                Ok(pid) => _ = running.insert(pid, order.id),
                Err(error) => {
                    crate::say(&format!("warning: cannot run {}: {error}", order.command));
                    say_done(&stream, order.id, 127);
                }
            }
        }
    }
}

/// Where that fails, the supervisor is gone: reading says so.
fn say_done(mut stream: &UnixStream, id: u64, status: i32) {
    if let Ok(line) = serde_json::to_string(&Done { id, status }) {
        let _ = stream.write_all((line + "\n").as_bytes());
    }
}

fn start(order: &Order) -> io::Result<i32> {
    // What the program says is on standard output: a command's words are not to be among them.
    let words = io::stderr().as_fd().try_clone_to_owned()?;
    let child = Command::new("/bin/sh")
        .args(["-c", &order.command])
        .envs(&order.environment)
        .stdin(Stdio::null())
        .stdout(words)
        .spawn()?;
    Ok(child.id() as i32)
}
