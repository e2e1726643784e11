//! `pleat set`: changes the budget of a job that runs, and waits until that is so.

use super::{Found, Job, Outer};
use crate::args::SetArgs;
use crate::budget::MachineMemory;
use crate::exit::{Exit, Stop};
use crate::output::print;
use crate::pager::control::{Request, Status};
use crate::settings::{parse_memory, resolve_budget};
use crate::size::human;
use pleat_sys::procfs;
use std::io;
use std::time::{Duration, Instant};

/// Between two looks at how far the job has come.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A chain of parents is followed no further.
const PARENTS_MAX: usize = 1000;

/// Changes it.
pub fn set(raw: &SetArgs) -> Exit {
    match try_set(raw) {
        Ok(exit) => exit,
        Err(stop) => Stop::exit(Err(stop)),
    }
}

fn try_set(raw: &SetArgs) -> Result<Exit, Stop> {
    parse_memory(&raw.memory).map_err(|error| Stop::mistake(error.to_string()))?;
    let found = Found::all();
    let job = choose_or_tell(&found, &raw.job)?;
    let memory = memory_for(&job.status).map_err(|error| Stop::failure(error.to_string()))?;
    let budget = resolve_budget(Some(&raw.memory), &memory, &mut Vec::new())
        .map_err(|error| Stop::mistake(error.to_string()))?;
    check_around(&found, job, budget.bytes)?;
    let title = job.title();
    let answer = job.order(Request::Set(budget.bytes))?;
    let before = answer["previous_budget_bytes"].as_u64().unwrap_or(0);
    print(&format!(
        "{title}: budget {} -> {}\n",
        human(before),
        human(budget.bytes)
    ))?;
    match raw.no_wait {
        true => Ok(Exit::Program(0)),
        false => wait(job, Duration::from_secs(raw.wait.into())),
    }
}

/// What percentages are of: what there is for the job, not for whoever asks.
fn memory_for(status: &Status) -> io::Result<MachineMemory> {
    let pids = [&[status.pid], &status.attached_pids[..]].concat();
    MachineMemory::for_job(&pids, status.used_bytes)
}

/// Waits until the job is within its budget.
fn wait(job: &Job, most: Duration) -> Result<Exit, Stop> {
    let (start, title) = (Instant::now(), job.title());
    match wait_for(job, most, |status| status.settled)? {
        Some(status) => reached(&title, &status, start.elapsed()),
        None => {
            print(&format!("{title}: has ended\n"))?;
            Ok(Exit::Program(0))
        }
    }
}

/// Waits until a job is as wanted, but no longer than that; answers how it is then. `None`: it has ended.
pub(super) fn wait_for(
    job: &Job,
    most: Duration,
    is_so: impl Fn(&Status) -> bool,
) -> Result<Option<Status>, Stop> {
    let start = Instant::now();
    loop {
        let status = job.look();
        let status = status.map_err(|why| {
            let why = super::shown(&why);
            Stop::failure(format!("{} does not answer: {why}", job.title()))
        })?;
        let Some(status) = status else {
            return Ok(None);
        };
        if is_so(&status) || start.elapsed() >= most {
            return Ok(Some(status));
        }
        // Another process brings it about, and does not tell when.
        std::thread::sleep(LOOK_EVERY);
    }
}

fn reached(title: &str, status: &Status, took: Duration) -> Result<Exit, Stop> {
    let text = format!(
        "{title}: {} of {} in use after {:.1} s",
        human(status.used_bytes),
        human(status.budget_bytes),
        took.as_secs_f32()
    );
    match status.settled {
        true => print(&(text + "\n")).map(|()| Exit::Program(0)),
        false => Err(Stop {
            exit: Exit::Unfit,
            message: format!(
                "{text}; pleat goes on with it, unless its processes are stopped or lock their memory: look with \
                 `pleat list`, or give more with `pleat set`"
            ),
        }),
    }
}

/// The job that is meant by a name, or by the number of a process.
pub fn choose<'a>(found: &'a Found, text: &str) -> Result<&'a Job, Stop> {
    let all = "`pleat list` shows those there are";
    let pid: Option<i32> = text.parse().ok();
    if let Some(pid) = pid {
        if let Some(job) = around(found, pid) {
            return Ok(job);
        }
    }
    let named: Vec<&Job> = found
        .jobs
        .iter()
        .filter(|job| job.status.name == text)
        .collect();
    match (named[..].as_ref(), pid) {
        ([job], _) => Ok(job),
        ([], Some(pid)) => Err(Stop::mistake(format!(
            "process {pid} is in no job that you may change: {all}"
        ))),
        ([], None) => Err(Stop::mistake(format!("no job is called '{text}': {all}"))),
        (several, _) => {
            let titles: Vec<String> = several.iter().map(|job| job.title()).collect();
            Err(Stop::mistake(format!(
                "several jobs are called '{text}': {}; give a process id instead",
                titles.join(", ")
            )))
        }
    }
}

/// The same, or which do not answer: it may be one of these.
pub(super) fn choose_or_tell<'a>(found: &'a Found, text: &str) -> Result<&'a Job, Stop> {
    choose(found, text).inspect_err(|_| found.silent.iter().for_each(|line| crate::say(line)))
}

/// The innermost job in which a process is: its supervisor, or one of the processes that it has taken up, is the process itself, or
/// the nearest above it.
pub(super) fn around(found: &Found, pid: i32) -> Option<&Job> {
    let mut at = pid;
    for _ in 0..PARENTS_MAX {
        let is_of = |job: &&Job| job.status.pid == at || job.status.attached_pids.contains(&at);
        if let Some(job) = found.jobs.iter().find(is_of) {
            return Some(job);
        }
        at = procfs::status(at).ok()?.ppid;
        if at <= 1 {
            return None;
        }
    }
    None
}

/// A job inside another has a share of that one's budget.
fn check_around(found: &Found, job: &Job, bytes: u64) -> Result<(), Stop> {
    let around = job.status.inside_pid;
    let around = found
        .jobs
        .iter()
        .find(|other| Some(other.status.pid) == around);
    let Some(around) = around else { return Ok(()) };
    let most = share_around(&around.status);
    if bytes <= most {
        return Ok(());
    }
    Err(Stop::mistake(format!(
        "{} is inside {}, whose budget is {}: give at most {}K, or raise that one first",
        job.title(),
        around.title(),
        human(around.status.budget_bytes),
        most >> 10
    )))
}

/// The most that a job inside this one can be given.
pub fn share_around(status: &Status) -> u64 {
    Outer::share_of(status.budget_bytes)
}
