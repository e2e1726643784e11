//! One run of a program, described before it starts: natively, or under pleat with a budget,
//! and then if wanted inside a memory cgroup whose hard limit is that budget plus 2 %.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::running::Running;
use crate::size::Megabytes;

/// What to run and how; see [`Machine::job`].
#[derive(Clone)]
pub struct Job<'m> {
    pub(crate) machine: &'m Machine,
    pub(crate) command: Vec<OsString>,
    pub(crate) budget: Option<Megabytes>,
    pub(crate) pleat_args: Vec<OsString>,
    pub(crate) hard_limit: bool,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) stdin: Option<PathBuf>,
    pub(crate) swap_dir: Option<PathBuf>,
    pub(crate) timeout: Duration,
}

impl Machine {
    /// A job that runs `program` natively, with empty stdin and two minutes to end.
    pub fn job(&self, program: impl AsRef<OsStr>) -> Job<'_> {
        Job {
            machine: self,
            command: vec![program.as_ref().to_os_string()],
            budget: None,
            pleat_args: vec![],
            hard_limit: false,
            env: vec![],
            stdin: None,
            swap_dir: None,
            timeout: Duration::from_secs(120),
        }
    }
}

impl Job<'_> {
    /// Appends an argument of the program.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.push(arg.as_ref().to_os_string());
        self
    }

    /// Appends several arguments of the program.
    pub fn args<A: AsRef<OsStr>>(self, args: impl IntoIterator<Item = A>) -> Self {
        args.into_iter().fold(self, |job, arg| job.arg(arg))
    }

    /// Runs under `pleat run --memory BUDGET`, with the swap file in the scratch directory.
    pub fn budget(mut self, budget: Megabytes) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Appends arguments of `pleat run` itself.
    pub fn pleat_args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.pleat_args
            .extend(args.into_iter().map(|a| a.as_ref().to_os_string()));
        self
    }

    /// Puts the job, pleat included, in a memory cgroup of the budget plus 2 % without swap.
    /// Where no such group can be made the job runs without, after a SKIP line.
    pub fn hard_limit(mut self) -> Self {
        self.hard_limit = true;
        self
    }

    /// Sets an environment variable of the program.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_os_string()));
        self
    }

    /// Reads stdin from a file.
    pub fn stdin(mut self, file: &Path) -> Self {
        self.stdin = Some(file.to_path_buf());
        self
    }

    /// Puts pleat's swap file into another directory than the scratch directory.
    pub fn swap_dir(mut self, dir: &Path) -> Self {
        self.swap_dir = Some(dir.to_path_buf());
        self
    }

    /// Kills the job after this long, which fails the test.
    pub fn timeout(mut self, seconds: u64) -> Self {
        self.timeout = Duration::from_secs(seconds);
        self
    }

    /// Starts the job; for tests that do something to it as it runs.
    pub fn spawn(self) -> Running {
        Running::start(self)
    }

    /// Runs the job to its end.
    pub fn run(self) -> Outcome {
        self.spawn().wait()
    }

    /// The command line, `pleat run ... --` included.
    pub(crate) fn command_line(&self, stats: &Path) -> Vec<OsString> {
        let Some(budget) = self.budget else {
            return self.command.clone();
        };
        let swap_dir = self.swap_dir.as_deref().unwrap_or(self.machine.scratch());
        let mut line: Vec<OsString> = vec![self.machine.pleat.clone().into(), "run".into()];
        line.extend(["--memory".into(), budget.to_string().into()]);
        line.extend(["--swap-dir".into(), swap_dir.into()]);
        line.extend(["--stats".into(), stats.into()]);
        line.extend(self.pleat_args.iter().cloned());
        line.push("--".into());
        line.extend(self.command.iter().cloned());
        line
    }
}
