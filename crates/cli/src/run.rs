//! `pleat run`, from the command line to the exit status.
//!
//! Nothing is started before everything that can be checked has been, and the statistics are
//! written whatever happens after that.

use crate::args::RunArgs;
use crate::exit::Exit;
use crate::pager::{self, Ending, Job, Outcome, RunError};
use crate::settings::{Machine, Settings, Verbosity};
use crate::stats::{Stats, StatsFile};
use crate::{agent_path, doctor, fail, say, summary};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// Runs the program and says how pleat is to end.
pub fn run(raw: RunArgs) -> Exit {
    let (settings, stats) = match prepare(raw) {
        Ok(prepared) => prepared,
        Err((message, exit)) => return fail(&message, exit),
    };
    if settings.verbosity != Verbosity::Quiet {
        settings
            .warnings
            .iter()
            .for_each(|warning| say(&format!("warning: {warning}")));
    }
    let result = start(&settings);
    let exit = tell(&result, settings.verbosity);
    match stats.map(|file| file.write(&Stats::of(&settings, &result))) {
        // The program's own status matters more to a script than a full disk at the end.
        Some(Err(error)) => fail(&error.to_string(), exit),
        _ => exit,
    }
}

/// Finds every mistake of the user, so that nothing has been started when one is reported.
fn prepare(raw: RunArgs) -> Result<(Settings, Option<StatsFile>), (String, Exit)> {
    let machine = Machine::read().map_err(|error| (error.to_string(), Exit::Failed))?;
    let settings =
        Settings::resolve(raw, &machine).map_err(|error| (error.to_string(), Exit::Usage))?;
    let stats = settings.stats.as_deref().map(StatsFile::create).transpose();
    let stats = stats.map_err(|error| (error.to_string(), Exit::Usage))?;
    Ok((settings, stats))
}

/// Runs the job, if this machine and this installation can.
fn start(settings: &Settings) -> Result<Outcome, RunError> {
    let agent = agent_path::find().map_err(|error| RunError::Other(error.to_string()))?;
    if let Some(obstacle) = doctor::obstacle() {
        return Err(RunError::Unsupported(obstacle));
    }
    let live = settings.verbosity == Verbosity::Verbose && std::io::stderr().is_terminal();
    let result = pager::run(&job(settings, agent, live));
    if live {
        summary::clear_live();
    }
    result
}

fn job(settings: &Settings, agent: PathBuf, live: bool) -> Job {
    Job {
        program: settings.program.clone(),
        budget_bytes: settings.budget.bytes,
        swap: settings.swap.clone(),
        codec: settings.codec.clone(),
        recompress: settings.recompress,
        preset: settings.preset.clone(),
        agent,
        live: live.then_some(summary::show_live as fn(&pager::Live)),
        quiet: settings.verbosity == Verbosity::Quiet,
    }
}

/// Tells the user what is worth telling, and turns the result into an exit status.
fn tell(result: &Result<Outcome, RunError>, verbosity: Verbosity) -> Exit {
    match result {
        Err(error) => fail(&error.to_string(), exit_of_error(error)),
        Ok(outcome) => {
            if verbosity == Verbosity::Verbose {
                let _ = std::io::stderr().write_all(summary::summary(&outcome.report).as_bytes());
            }
            if let Ending::Stopped { message } = &outcome.ending {
                say(message);
            }
            exit_of_ending(&outcome.ending)
        }
    }
}

fn exit_of_ending(ending: &Ending) -> Exit {
    match ending {
        Ending::Exited(code) => Exit::Program(*code),
        Ending::Signalled(signal) => Exit::Signal(*signal),
        Ending::Stopped { .. } => Exit::Failed,
    }
}

fn exit_of_error(error: &RunError) -> Exit {
    match error {
        RunError::ProgramNotFound { .. } => Exit::NotFound,
        RunError::ProgramNotExecutable { .. } => Exit::CannotExecute,
        RunError::Swap(_) | RunError::TooSmall { .. } => Exit::Usage,
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
