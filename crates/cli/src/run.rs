//! `pleat run`, from the command line to the exit status.
//!
//! Nothing is started before everything that can be checked has been, and the statistics are
//! written whatever happens after that.

use crate::args::RunArgs;
use crate::config::Given;
use crate::exit::Exit;
use crate::mounts::refuse_inside;
use crate::pager::{self, Companion, Ending, Job, Known, Outcome, Record, RunError, Subject};
use crate::progress::{self, Progress};
use crate::record_file::RecordFile;
use crate::settings::{Machine, Settings, Verbosity};
use crate::stats::{Stats, StatsFile};
use crate::watching::Watching;
use crate::{agent_path, doctor, fail, hints, profile, say, stats, summary};
use pleat_mount::{Beside, BesideReport};
use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A piece of the swap file: some tenths of a second at worst.
const GIVEN_BACK_AT_ONCE: u64 = 64 << 20;

/// Runs the program and says how pleat is to end.
pub fn run(raw: RunArgs) -> Exit {
    run_as(raw, None)
}

/// The same, or takes up what runs already.
pub fn run_as(raw: RunArgs, subject: Option<Subject>) -> Exit {
    let given = raw.config.given.clone();
    let Prepared {
        settings,
        stats,
        watching,
        record,
    } = match prepare(raw, subject, &given) {
        Ok(prepared) => prepared,
        Err((message, exit)) => return fail(&message, exit),
    };
    if settings.verbosity == Verbosity::Verbose {
        given.lines().iter().for_each(|line| say(line));
    }
    if settings.verbosity != Verbosity::Quiet {
        settings
            .warnings
            .iter()
            .for_each(|warning| say(&format!("warning: {warning}")));
    }
    let (result, mounts) = start(&settings, record.as_ref(), &watching);
    let exit = tell(&result, &mounts, settings.verbosity, &given);
    if let Some(record) = record {
        settle(record, &result);
    }
    let figures = Stats::of(&settings, &result, &mounts);
    watching.end(&figures);
    let exit = match stats.map(|file| file.write(&figures)) {
        // The program's own status matters more to a script than a full disk at the end.
        Some(Err(error)) => fail(&error.to_string(), exit),
        _ => exit,
    };
    if let Ok(outcome) = &result {
        give_back(outcome);
    }
    exit
}

/// Gives the swap file's room back piece by piece where somebody looks on. The end of the process does it as well, in one piece: gigabytes
/// take seconds, in which pleat would seem to hang.
fn give_back(outcome: &Outcome) {
    let Some(swap) = &outcome.swap else { return };
    // The disk may be what it was stopped for.
    if matches!(outcome.ending, Ending::Stopped { .. }) || !progress::is_seen() {
        return;
    }
    let end = outcome.report.engine.swap_high_water_bytes;
    let progress = Progress::of("giving back the swap file", Some(end));
    for offset in (0..end).step_by(GIVEN_BACK_AT_ONCE as usize) {
        let bytes = GIVEN_BACK_AT_ONCE.min(end - offset);
        if swap.discard(offset, bytes).is_err() {
            return;
        }
        progress.step(bytes);
    }
}

/// A trace that is not complete is not kept.
fn settle(record: RecordFile, result: &Result<Outcome, RunError>) {
    match result {
        Err(_) => record.remove(),
        Ok(outcome) => {
            if let Some(error) = &outcome.record_error {
                say(&record.remove_after(error));
            }
        }
    }
}

/// What there is before the program starts.
struct Prepared {
    settings: Settings,
    stats: Option<StatsFile>,
    watching: Watching,
    record: Option<RecordFile>,
}

/// Finds every mistake of the user, so that nothing has been started when one is reported.
fn prepare(
    raw: RunArgs,
    subject: Option<Subject>,
    given: &Given,
) -> Result<Prepared, (String, Exit)> {
    // What keeps the machine from being read may have a name, and a remedy.
    let why = |error: std::io::Error| doctor::obstacle().unwrap_or(error.to_string());
    let mut machine = Machine::read().map_err(|error| (why(error), Exit::Failed))?;
    if let Some(Subject::Running(pids)) = &subject {
        machine.memory = machine.memory.for_running(pids);
    }
    let mut settings = Settings::resolve(raw, &machine)
        .map_err(|error| (given.blame_settings(&error), Exit::Usage))?;
    if let Some(subject) = subject {
        settings.subject = subject;
    }
    let stats = settings.reports.stats.as_deref();
    let stats = stats.map(StatsFile::create).transpose();
    let stats = stats.map_err(|error| (given.blame(&["stats"], error), Exit::Usage))?;
    let watching = Watching::open(&settings, given).map_err(|why| (why, Exit::Usage))?;
    // The last that can fail here: it may not be there a second time.
    let record = settings
        .record
        .as_ref()
        .map(|record| RecordFile::create(&record.path))
        .transpose()
        .map_err(|(why, exit)| (given.blame(&["record"], why), exit));
    Ok(Prepared {
        settings,
        stats,
        watching,
        record: record?,
    })
}

/// Runs the job with its mounts, if this machine and this installation can.
fn start(
    settings: &Settings,
    record: Option<&RecordFile>,
    watching: &Watching,
) -> (Result<Outcome, RunError>, Vec<BesideReport>) {
    let mounts = settings
        .mounts
        .iter()
        .map(|mount| Beside::new(mount.options()));
    let mounts: Vec<Beside> = mounts.collect();
    let reports: Vec<Arc<Mutex<BesideReport>>> = mounts.iter().map(Beside::report).collect();
    let mut companions: Vec<Box<dyn Companion>> = Vec::new();
    companions.extend(mounts.into_iter().map(|mount| Box::new(mount) as Box<_>));
    let known = known(settings, &reports, watching);
    let result = start_beside(settings, record, (known, watching), &mut companions);
    let read = |report: &Arc<Mutex<BesideReport>>| {
        let report = report.lock().unwrap_or_else(PoisonError::into_inner);
        report.clone()
    };
    (result, reports.iter().map(read).collect())
}

fn start_beside(
    settings: &Settings,
    record: Option<&RecordFile>,
    (known, watching): (Known, &Watching),
    companions: &mut [Box<dyn Companion>],
) -> Result<Outcome, RunError> {
    let agent = agent_path::find().map_err(|error| RunError::Other(error.to_string()))?;
    let remedy = "set $PLEAT_AGENT to a copy elsewhere";
    refuse_inside(&settings.mounts, "the agent library", &agent, remedy)
        .map_err(|error| RunError::Mistake(error.to_string()))?;
    if let Some(obstacle) = doctor::obstacle() {
        return Err(RunError::Unsupported(obstacle));
    }
    let live = settings.verbosity == Verbosity::Verbose && std::io::stderr().is_terminal();
    let file = record.map(RecordFile::file).transpose();
    let file = file.map_err(|error| RunError::Other(format!("cannot record: {error}")))?;
    let job = Job {
        known: Some(known),
        environment: environment(settings, watching),
        beside: Some(watching.beside()),
        trouble: Some(watching.trouble()),
        ..job(settings, agent, file, live)
    };
    let result = pager::run_beside(&job, companions);
    if live {
        summary::clear_live();
    }
    result
}

/// What differs in the program's environment.
fn environment(settings: &Settings, watching: &Watching) -> Vec<(OsString, Option<OsString>)> {
    let own = |name: &str| std::env::var_os(name);
    let mut all = hints::variables(&settings.hints, settings.budget.bytes, &own);
    all.extend(watching.environment());
    all
}

/// How others find the job, and what they are told.
fn known(settings: &Settings, mounts: &[Arc<Mutex<BesideReport>>], watching: &Watching) -> Known {
    Known {
        listening: Some(watching.listening()),
        name: settings.name.clone(),
        inside_pid: settings.inside_pid,
        stats: stats::so_far(settings, mounts),
        is_told: watching.needs_control() || settings.verbosity == Verbosity::Verbose,
    }
}

fn job(settings: &Settings, agent: PathBuf, record: Option<File>, live: bool) -> Job {
    let record = record.zip(settings.record.as_ref());
    Job {
        subject: settings.subject.clone(),
        budget_bytes: settings.budget.bytes,
        swap: settings.swap.clone(),
        codec: settings.codec.clone(),
        recompress: settings.recompress,
        checks: settings.paranoid,
        file_maps: settings.file_maps,
        load_control: settings.load_control,
        shared_memory: settings.shared_memory,
        kill_on_exit: settings.kill_on_exit,
        own_cgroup: settings.own_cgroup,
        preset: settings.preset.clone(),
        record: record.map(|(file, recording)| Record {
            file,
            resident_max_bytes: recording.resident_max_bytes,
        }),
        profile: settings.profile,
        agent,
        helper: crate::helper_path::find(),
        environment: Vec::new(),
        beside: None,
        trouble: None,
        live: live.then_some(summary::show_live as fn(&pager::Live)),
        quiet: settings.verbosity == Verbosity::Quiet,
        known: None,
    }
}

/// Tells the user what is worth telling, and turns the result into an exit status.
fn tell(
    result: &Result<Outcome, RunError>,
    mounts: &[BesideReport],
    verbosity: Verbosity,
    given: &Given,
) -> Exit {
    match result {
        Err(error) => fail(&given.blame_run(error), exit_of_error(error)),
        Ok(outcome) => {
            if verbosity == Verbosity::Verbose {
                let _ = std::io::stderr().write_all(summary::summary(outcome, mounts).as_bytes());
            }
            if let Some(profile) = &outcome.profile {
                let mut table = profile::table(profile);
                if let Some(forced) = summary::forced_out(&outcome.report) {
                    table += &format!("pleat: {forced}\n");
                }
                let _ = std::io::stderr().write_all(table.as_bytes());
            }
            match &outcome.ending {
                // The summary has said so.
                Ending::Stopped { .. } if verbosity == Verbosity::Verbose => {}
                Ending::Stopped { message } => say(message),
                Ending::Left if verbosity != Verbosity::Quiet => {
                    say("detached: the processes go on, with all their memory");
                }
                _ => {}
            }
            exit_of_ending(&outcome.ending)
        }
    }
}

fn exit_of_ending(ending: &Ending) -> Exit {
    match ending {
        Ending::Exited(code) => Exit::Program(*code),
        Ending::Signalled(signal) => Exit::Signal(*signal),
        Ending::Over | Ending::Left => Exit::Program(0),
        Ending::Stopped { .. } => Exit::Failed,
    }
}

fn exit_of_error(error: &RunError) -> Exit {
    match error {
        RunError::ProgramNotFound { .. } => Exit::NotFound,
        RunError::ProgramNotExecutable { .. } => Exit::CannotExecute,
        RunError::Swap(_) | RunError::TooSmall { .. } | RunError::Mistake(_) => Exit::Usage,
        RunError::Unsupported(_) | RunError::Other(_) => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_user_is_told_from_one_of_pleat() {
        let name = || "prog".to_owned();
        let denied = std::io::ErrorKind::PermissionDenied.into();
        let cases = [
            (RunError::ProgramNotFound { name: name() }, 127),
            (
                RunError::ProgramNotExecutable {
                    name: name(),
                    source: denied,
                },
                126,
            ),
            (RunError::Swap("full".into()), 2),
            (RunError::TooSmall { need: 2, have: 1 }, 2),
            (RunError::Unsupported("no".into()), 125),
            (RunError::Other("no".into()), 125),
        ];
        for (error, code) in cases {
            assert_eq!(exit_of_error(&error).code(), code, "{error}");
        }
    }

    #[test]
    fn an_ending_becomes_the_status_a_shell_would_show() {
        assert_eq!(exit_of_ending(&Ending::Exited(7)).code(), 7);
        assert_eq!(exit_of_ending(&Ending::Signalled(9)).code(), 137);
        assert_eq!(
            exit_of_ending(&Ending::Stopped {
                message: String::new()
            })
            .code(),
            125
        );
    }
}
