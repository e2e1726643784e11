//! One setting: a flag that something else than the command line gives, with where that is.
//!
//! Which flags there are, and what each takes, is read from the one definition of the command line.

use crate::args;
use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The commands whose flags can be set elsewhere.
pub const COMMANDS: [&str; 3] = ["run", "attach", "mount"];

/// Flags that say where settings come from, and so are none.
const NO_SETTINGS: [&str; 4] = ["help", "config", "no-config", "use"];

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Switch,
    /// One value.
    One,
    /// One value each time it is given.
    Many,
}

/// A flag by its long name, which is its key in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// As `swap-dir`.
    pub name: String,
    /// What it takes.
    pub kind: Kind,
}

impl Flag {
    /// The variable of the environment that gives it: PLEAT_SWAP_DIR for `swap-dir`.
    pub fn variable(&self) -> String {
        variable(&self.name)
    }

    fn of(arg: &Arg) -> Option<Flag> {
        let name = arg.get_long().filter(|name| !NO_SETTINGS.contains(name))?;
        let kind = match arg.get_action() {
            ArgAction::SetTrue => Kind::Switch,
            ArgAction::Append => Kind::Many,
            _ => Kind::One,
        };
        Some(Flag {
            name: name.to_owned(),
            kind,
        })
    }
}

/// The variable of a flag.
pub fn variable(name: &str) -> String {
    format!("PLEAT_{}", name.replace('-', "_").to_uppercase())
}

/// The flags of a command that can be set elsewhere.
pub fn flags_of(command: &Command) -> Vec<Flag> {
    command.get_arguments().filter_map(Flag::of).collect()
}

/// Those of a command by its name.
pub fn flags(command: &str) -> Vec<Flag> {
    let all = args::command();
    all.find_subcommand(command)
        .map(flags_of)
        .unwrap_or_default()
}

/// What a flag is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A flag without a value is given, or is not, whatever those say that count for less.
    Switch(bool),
    /// The values of one that takes them.
    Words(Vec<OsString>),
}

impl Value {
    /// Whether it stands for words on a command line.
    pub fn is_given(&self) -> bool {
        *self != Value::Switch(false)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Switch(is_on) => write!(f, "{is_on}"),
            Value::Words(words) => {
                let words = words.iter().map(|word| word.to_string_lossy());
                write!(f, "{}", words.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Where a setting stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In this variable of the environment.
    Variable(String),
    /// In a file.
    File {
        /// Its path.
        path: Arc<Path>,
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
    },
}

impl Origin {
    /// The place in `text`, the content of the file, that is so many bytes from its beginning.
    pub fn in_file(path: &Arc<Path>, text: &str, offset: usize) -> Origin {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Origin::File {
            path: path.clone(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Variable(name) => write!(f, "${name}"),
            Origin::File { path, line, column } => {
                write!(f, "{}:{line}:{column}", path.display())
            }
        }
    }
}

/// A flag that is set elsewhere than on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The flag's long name.
    pub flag: String,
    /// What it is set to.
    pub value: Value,
    /// Where.
    pub origin: Origin,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What pleat, its agent and its tests use the environment for themselves.
    const OWN: [&str; 19] = [
        "PLEAT_SOCKET",
        "PLEAT_INSIDE",
        "PLEAT_DEVICES",
        "PLEAT_ASK_FROM",
        "PLEAT_ADDED",
        "PLEAT_AGENT",
        "PLEAT_BIN",
        "PLEAT_CHAOS_ROUND",
        "PLEAT_CORPUS",
        "PLEAT_FAILED",
        "PLEAT_FUZZ_SEED",
        "PLEAT_REPOSITORY",
        "PLEAT_SCREENS",
        "PLEAT_SIM_SEED",
        "PLEAT_SIM_STEPS",
        "PLEAT_SIM_WHOLE_LOG",
        "PLEAT_SKIPS",
        "PLEAT_UPDATE_DOCS",
        "PLEAT_CONFIG",
    ];

    #[test]
    fn every_flag_has_a_variable_that_nothing_else_uses() {
        for command in COMMANDS {
            let flags = flags(command);
            assert!(flags.len() > 8, "{command} has flags: {flags:?}");
            for flag in flags {
                let variable = flag.variable();
                assert!(!OWN.contains(&variable.as_str()), "{variable}");
                assert!(!variable.contains('-'), "{variable}");
            }
        }
        assert_eq!(variable("swap-dir"), "PLEAT_SWAP_DIR");
    }

    #[test]
    fn a_flag_takes_the_same_with_every_command() {
        let all: Vec<Flag> = COMMANDS.iter().flat_map(|name| flags(name)).collect();
        for one in &all {
            let same = all.iter().filter(|other| other.name == one.name);
            assert!(same.into_iter().all(|other| other == one), "{one:?}");
        }
        let kind = |name: &str| {
            all.iter()
                .find(|flag| flag.name == name)
                .map(|flag| flag.kind)
        };
        assert_eq!(kind("no-swap"), Some(Kind::Switch));
        assert_eq!(kind("memory"), Some(Kind::One));
        assert_eq!(kind("mount"), Some(Kind::Many));
        assert_eq!(kind("use"), None);
    }

    #[test]
    fn a_place_is_told_by_line_and_column_in_characters() {
        let path: Arc<Path> = Arc::from(Path::new("/x/pleat.toml"));
        let at = |offset| Origin::in_file(&path, "# ä\nname = 'ä' x\n", offset).to_string();
        assert_eq!(at(0), "/x/pleat.toml:1:1");
        assert_eq!(at(5), "/x/pleat.toml:2:1");
        assert_eq!(at(17), "/x/pleat.toml:2:12");
    }
}
