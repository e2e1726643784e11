//! `pleat mount`: from the command line to the exit status.

use crate::args::MountArgs;
use crate::exit::Exit;
use crate::settings::{self, Machine};
use crate::stats::StatsFile;
use crate::{fail, say};
use pleat_codec::Choice;
use pleat_engine::Preset;
use pleat_mount::{clear_umask, JobError, MountOptions, Report};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Not for the one in the foreground.
const FLAG_DAEMON: &str = "--daemon";
/// The same where a file or a variable says so: variables count for more than files.
const NOT_FOR_IT: [&str; 2] = ["PLEAT_DAEMON", "PLEAT_QUIET"];

/// The JSON of `--stats`.
#[derive(Serialize)]
struct Stats<'a> {
    pleat_version: &'static str,
    preset: &'a str,
    codec: &'a str,
    report: &'a Report,
}

/// Mounts, serves, and says how pleat is to end.
pub fn mount(raw: MountArgs) -> Exit {
    if raw.daemon {
        return in_background(&raw);
    }
    let (job, stats) = match prepare(&raw) {
        Ok(prepared) => prepared,
        Err((message, exit)) => return fail(&message, exit),
    };
    let (preset, codec) = (job.preset.clone(), job.codec.clone());
    clear_umask();
    let ready = |mountpoint: &Path| {
        if !raw.quiet {
            say(&is_mounted(&raw.source, mountpoint));
        }
    };
    let report = match pleat_mount::run(job, ready) {
        Ok(report) => report,
        Err(error) => return fail(&error.to_string(), exit_of(&error)),
    };
    match stats.map(|file| write_stats(file, &preset, &codec, &report)) {
        Some(Err(message)) => fail(&message, Exit::Failed),
        _ => Exit::Program(0),
    }
}

fn is_mounted(source: &Path, mountpoint: &Path) -> String {
    format!(
        "{} is mounted on {}",
        source.display(),
        mountpoint.display()
    )
}

fn write_stats(
    file: StatsFile,
    preset: &Preset,
    codec: &Choice,
    report: &Report,
) -> Result<(), String> {
    let stats = Stats {
        pleat_version: env!("CARGO_PKG_VERSION"),
        preset: &preset.name,
        codec: codec.name(),
        report,
    };
    file.write(&stats).map_err(|error| error.to_string())
}

fn exit_of(error: &JobError) -> Exit {
    match error {
        JobError::Mount(error) if error.is_mistake() => Exit::Usage,
        JobError::TooSmall { .. } => Exit::Usage,
        _ => Exit::Failed,
    }
}

/// Finds every mistake of the user before anything is mounted.
fn prepare(raw: &MountArgs) -> Result<(pleat_mount::Job, Option<StatsFile>), (String, Exit)> {
    let given = &raw.config.given;
    let usage = |message: String| (message, Exit::Usage);
    let machine = Machine::read().map_err(|error| (error.to_string(), Exit::Failed))?;
    let mut warnings = Vec::new();
    let budget = settings::resolve_budget(raw.memory.as_deref(), &machine.memory, &mut warnings);
    let budget = budget.map_err(|error| usage(given.blame_settings(&error)))?;
    let preset = settings::resolve_preset(raw.preset.as_deref());
    let preset = preset.map_err(|error| usage(given.blame_settings(&error)))?;
    let codec = Choice::parse(raw.codec.as_deref().unwrap_or(&preset.codec));
    let codec = codec.map_err(|error| usage(given.blame(&["codec", "preset"], error)))?;
    let stats = raw.stats.as_deref().map(StatsFile::create).transpose();
    let stats = stats.map_err(|error| usage(given.blame(&["stats"], error)))?;
    if !raw.quiet {
        warnings
            .iter()
            .for_each(|warning| say(&format!("warning: {warning}")));
    }
    let mut options = MountOptions::new(&raw.source, &raw.mountpoint);
    options.read_only = raw.read_only;
    options.allow_other = raw.allow_other;
    options.writeback = raw.write_back;
    let job = pleat_mount::Job {
        options,
        budget_bytes: budget.bytes,
        preset,
        codec: Arc::new(codec),
        checks: raw.paranoid,
    };
    Ok((job, stats))
}

/// Starts pleat once more, and waits until that one is mounted or has ended.
fn in_background(raw: &MountArgs) -> Exit {
    let failed = |error: std::io::Error| {
        fail(
            &format!("cannot go to the background: {error}"),
            Exit::Failed,
        )
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(error),
    };
    let mut command = Command::new(program);
    command
        .args(foreground(std::env::args_os().skip(1)))
        .envs(NOT_FOR_IT.map(|variable| (variable, "0")))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    pleat_mount::in_session_of_its_own(&mut command);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return failed(error),
    };
    let told = child.stderr.take().into_iter();
    for line in told
        .flat_map(|pipe| BufReader::new(pipe).lines())
        .map_while(Result::ok)
    {
        if !raw.quiet || !line.contains(" is mounted on ") {
            eprintln!("{line}");
        }
        if line.contains(" is mounted on ") {
            return Exit::Program(0);
        }
    }
    match child.wait() {
        Ok(status) => Exit::Program(status.code().unwrap_or(125)),
        Err(error) => failed(error),
    }
}

/// The same command line, to stay in the foreground and to tell when it is mounted.
fn foreground(typed: impl Iterator<Item = OsString>) -> Vec<OsString> {
    typed
        .filter(|word| word != FLAG_DAEMON && word != "-q" && word != "--quiet")
        .collect()
}
