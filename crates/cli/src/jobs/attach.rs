//! `pleat attach` and `pleat detach`: takes up processes that run already, and leaves them again.

use super::set::{around, choose_or_tell, wait_for};
use super::Found;
use crate::args::{AttachArgs, DetachArgs};
use crate::exit::{Exit, Stop};
use crate::output::print;
use crate::pager::control::Request;
use crate::pager::Subject;
use crate::run::run_as;
use pleat_sys::procfs;
use std::time::Duration;

/// Looks after them until they have ended, or are to be left.
pub fn attach(raw: &AttachArgs) -> Exit {
    if let Err(stop) = check_jobs(&raw.pids) {
        return Stop::exit(Err(stop));
    }
    let name = raw.pids.first().and_then(|pid| procfs::status(*pid).ok());
    let name = name.map_or("processes".into(), |status| status.name);
    run_as(
        raw.as_run(name.into()),
        Some(Subject::Running(raw.pids.clone())),
    )
}

/// None of them may be in a job already.
fn check_jobs(pids: &[i32]) -> Result<(), Stop> {
    let found = Found::all();
    for pid in pids {
        if let Some(job) = around(&found, *pid) {
            return Err(Stop::mistake(format!(
                "process {pid} is in {} already: change its budget with `pleat set {pid} --memory SIZE`",
                job.title()
            )));
        }
    }
    Ok(())
}

/// Has them left, and waits until they are.
pub fn detach(raw: &DetachArgs) -> Exit {
    match try_detach(raw) {
        Ok(exit) => exit,
        Err(stop) => Stop::exit(Err(stop)),
    }
}

fn try_detach(raw: &DetachArgs) -> Result<Exit, Stop> {
    let found = Found::all();
    let job = choose_or_tell(&found, &raw.job)?;
    let title = job.title();
    job.order(Request::Detach)?;
    let most = Duration::from_secs(raw.wait.into());
    let ended = wait_for(job, most, |status| !status.detaching)?;
    let Some(status) = ended else {
        print(&format!("{title}: left\n"))?;
        return Ok(Exit::Program(0));
    };
    Err(Stop {
        exit: Exit::Unfit,
        message: match status.detaching {
            true => format!(
                "{title}: {} pages are still to come back after {} s; pleat goes on with it, unless its processes are stopped",
                status.pages_away,
                raw.wait
            ),
            false => format!("{title}: there is no memory for what is away, so it stays"),
        },
    })
}
