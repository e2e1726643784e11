//! Settings from elsewhere than the command line: `pleat.toml`, profiles in it, and the environment.
//!
//! The command line is parsed once to see what was typed. What was not, and stands elsewhere, is put in front of it as if
//! it had been typed, and all is parsed again: each flag has one definition and each value one check, wherever it
//! comes from. `docs/config.md` says which source counts for more.

mod environment;
mod file;
mod given;
mod layout;
mod merge;
mod setting;

pub use given::Given;

use crate::args::{self, Args, Command, ConfigArgs};
use crate::exit::Exit;
use crate::fail;
use crate::jobs::Outer;
use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, FromArgMatches};
use environment::{Look, VariableError};
use file::FileError;
use layout::{Layout, LayoutError};
use merge::{merge, words, Layer};
use pleat_sys::local::effective_user;
use setting::{flags_of, COMMANDS};
use std::ffi::OsString;
use std::path::PathBuf;

/// The command and what stands before it: settings come right behind.
const WORDS_BEFORE: usize = 2;

/// Why the settings cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file.
    #[error(transparent)]
    File(#[from] FileError),
    /// What stands in it.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A variable.
    #[error(transparent)]
    Variable(#[from] VariableError),
    /// `--use`.
    #[error("there is no profile '{name}'{whence}: {remedy}")]
    NoProfile {
        /// As given.
        name: String,
        /// Where it was looked for.
        whence: String,
        /// Those that there are.
        remedy: String,
    },
}

/// Why there is no command to follow.
enum Refusal {
    /// As the parser says it.
    Parser(clap::Error, Given),
    /// Settings elsewhere.
    Config(ConfigError),
}

/// What this process was asked for, with what it was told elsewhere. What is wrong is told.
///
/// # Errors
/// How pleat is to end, as there is nothing to do.
pub fn parse() -> Result<Args, Exit> {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let look = |name: &str| std::env::var_os(name);
    parse_with(&typed, &look, &Surroundings::real).map_err(|refusal| match refusal {
        Refusal::Parser(error, given) => args::explain(&error, |line| blame(&given, &error, line)),
        Refusal::Config(error) => fail(&error.to_string(), Exit::Usage),
    })
}

/// What is looked at besides the command line and the environment.
struct Surroundings {
    /// The user's own file.
    own: Option<(PathBuf, String)>,
    /// Who must be trusted to have written what is read.
    user: u32,
    /// Whether a job is around this process.
    is_inside: bool,
}

impl Surroundings {
    fn real(reads_own: bool) -> Result<Surroundings, ConfigError> {
        let user = effective_user();
        Ok(Surroundings {
            own: reads_own
                .then(|| file::read_own(user))
                .transpose()?
                .flatten(),
            user,
            is_inside: Outer::find().is_some(),
        })
    }
}

fn parse_with(
    typed: &[OsString],
    look: Look,
    surroundings: &dyn Fn(bool) -> Result<Surroundings, ConfigError>,
) -> Result<Args, Refusal> {
    let plain = |words: &[OsString], given: &Given| {
        let matches = args::command().try_get_matches_from(words);
        let parsed = matches.and_then(|mut matches| Args::from_arg_matches_mut(&mut matches));
        parsed.map_err(|error| Refusal::Parser(error.format(&mut args::command()), given.clone()))
    };
    // What is missing may stand elsewhere, so mistakes are told by the second reading.
    let lenient = args::command()
        .ignore_errors(true)
        .try_get_matches_from(typed);
    let asked = lenient.as_ref().ok().and_then(ArgMatches::subcommand);
    let Some((name, matches)) = asked.filter(|(name, _)| COMMANDS.contains(name)) else {
        return plain(typed, &Given::default());
    };
    let (words, given) = collect(name, matches, look, surroundings).map_err(Refusal::Config)?;
    let (before, behind) = typed.split_at(typed.len().min(WORDS_BEFORE));
    let all = [before, &words, behind].concat();
    let mut args = plain(&all, &given)?;
    if let Some(config) = config_of(&mut args.command) {
        config.given = given;
    }
    Ok(args)
}

/// The words to be put in front of what was typed, and where they come from.
fn collect(
    name: &str,
    typed: &ArgMatches,
    look: Look,
    surroundings: &dyn Fn(bool) -> Result<Surroundings, ConfigError>,
) -> Result<(Vec<OsString>, Given), ConfigError> {
    let all = args::command();
    let Some(command) = all.find_subcommand(name) else {
        return Ok((Vec::new(), Given::default()));
    };
    let wish = Wish::read(typed, look)?;
    let around = surroundings(wish.reads_own())?;
    let file = match wish.path {
        Some(path) => {
            let text = file::read(&path, around.user)?;
            Some((path, text))
        }
        None => around.own,
    };
    let layout = file.as_ref().map(|(path, text)| Layout::parse(path, text));
    let mut layout = layout.transpose()?.unwrap_or_default();
    let file = file.map(|(path, _)| path);
    let profile = match &wish.profile {
        Some(profile) => find_profile(&mut layout, profile, file.as_ref())?,
        None => Vec::new(),
    };
    let layer = |settings, is_named| Layer { settings, is_named };
    let layers = [
        layer(environment::settings(&flags_of(command), look)?, false),
        layer(profile, wish.is_profile_typed),
        layer(
            layout.commands.remove(name).unwrap_or_default(),
            wish.is_path_typed,
        ),
        layer(layout.top, wish.is_path_typed),
    ];
    let settings = merge(command, typed, &layers, around.is_inside);
    let words = words(command, &settings);
    let profile = wish.profile;
    Ok((
        words,
        Given {
            file,
            profile,
            settings,
        },
    ))
}

/// Where settings are to be looked for.
struct Wish {
    path: Option<PathBuf>,
    is_path_typed: bool,
    is_without: bool,
    profile: Option<String>,
    is_profile_typed: bool,
}

impl Wish {
    fn read(typed: &ArgMatches, look: Look) -> Result<Wish, VariableError> {
        let typed = ConfigArgs::from_arg_matches(typed).unwrap_or_default();
        let is_path_typed = typed.config.is_some();
        let is_without =
            !is_path_typed && (typed.no_config || environment::is_set("no-config", look)?);
        let of_variable = || environment::steering("config", look).map(PathBuf::from);
        let path = match is_without {
            true => None,
            false => typed.config.or_else(of_variable),
        };
        let is_profile_typed = typed.chosen.is_some();
        let of_variable = || environment::steering("use", look).filter(|_| !is_without);
        let profile = typed
            .chosen
            .or_else(|| Some(of_variable()?.to_string_lossy().into_owned()));
        Ok(Wish {
            path,
            is_path_typed,
            is_without,
            profile,
            is_profile_typed,
        })
    }

    fn reads_own(&self) -> bool {
        !self.is_without && self.path.is_none()
    }
}

fn find_profile(
    layout: &mut Layout,
    name: &str,
    file: Option<&PathBuf>,
) -> Result<Vec<setting::Setting>, ConfigError> {
    if let Some(found) = layout.profiles.remove(name) {
        return Ok(found);
    }
    let known: Vec<&str> = layout.profiles.keys().map(String::as_str).collect();
    let remedy = match known.is_empty() {
        true => format!("write one, a table [profile.{name}] (docs/config.md)"),
        false => format!("choose from {}", known.join(", ")),
    };
    let whence = match file {
        Some(path) => format!(" in {}", path.display()),
        None => ", as no file of settings is read".to_owned(),
    };
    Err(ConfigError::NoProfile {
        name: name.to_owned(),
        whence,
        remedy,
    })
}

fn config_of(command: &mut Command) -> Option<&mut ConfigArgs> {
    match command {
        Command::Run(raw) => Some(&mut raw.config),
        Command::Attach(raw) => Some(&mut raw.config),
        Command::Mount(raw) => Some(&mut raw.config),
        _ => None,
    }
}

/// A parser's message, with the place of the value where that was not typed.
fn blame(given: &Given, error: &clap::Error, line: String) -> String {
    // As "--cgroup <auto|never>".
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return line;
    };
    let flag = flag.split_whitespace().next().unwrap_or_default();
    let flag = flag.split('=').next().unwrap_or_default();
    given.blame(&[flag.trim_start_matches('-')], line)
}

#[cfg(test)]
mod tests;
