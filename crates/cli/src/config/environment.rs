//! Settings in the environment: a variable for each flag, named by it.
//!
//! pleat has other variables for itself, and its programs may have theirs: only those that are named by a flag are looked
//! at. An empty one is as if it were not there.

use super::setting::{variable, Flag, Kind, Origin, Setting, Value};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const YES: [&str; 4] = ["1", "true", "yes", "on"];
const NO: [&str; 4] = ["0", "false", "no", "off"];

/// A variable that says neither yes nor no.
#[derive(Debug, thiserror::Error)]
#[error("${name}: '{value}' is neither 1 nor 0: set it to one of them, or unset it")]
pub struct VariableError {
    name: String,
    value: String,
}

/// A look at a variable.
pub type Look<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The settings in the environment, as `look` shows it.
///
/// # Errors
/// A variable of a flag without a value says neither yes nor no.
pub fn settings(flags: &[Flag], look: Look) -> Result<Vec<Setting>, VariableError> {
    let mut settings = Vec::new();
    for flag in flags {
        let name = flag.variable();
        let Some(value) = filled(look, &name) else {
            continue;
        };
        let value = match flag.kind {
            Kind::Switch => Value::Switch(is_on(&name, &value)?),
            Kind::One => Value::Words(vec![value]),
            Kind::Many => Value::Words(lines(&value)),
        };
        settings.push(Setting {
            flag: flag.name.clone(),
            value,
            origin: Origin::Variable(name),
        });
    }
    Ok(settings)
}

/// What the variable of a flag holds that says where settings are.
pub fn steering(flag: &str, look: Look) -> Option<OsString> {
    filled(look, &variable(flag))
}

/// Whether the variable of such a flag says yes.
///
/// # Errors
/// It says neither yes nor no.
pub fn is_set(flag: &str, look: Look) -> Result<bool, VariableError> {
    let name = variable(flag);
    filled(look, &name).map_or(Ok(false), |value| is_on(&name, &value))
}

fn filled(look: Look, name: &str) -> Option<OsString> {
    look(name).filter(|value| !value.is_empty())
}

fn is_on(name: &str, value: &OsStr) -> Result<bool, VariableError> {
    let said = |words: [&str; 4]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
    match (said(YES), said(NO)) {
        (false, false) => Err(VariableError {
            name: name.to_owned(),
            value: value.to_string_lossy().into_owned(),
        }),
        (is_on, _) => Ok(is_on),
    }
}

/// Paths may have any other letter in them.
fn lines(value: &OsStr) -> Vec<OsString> {
    let lines = value.as_bytes().split(|byte| *byte == b'\n');
    let filled = lines.filter(|line| !line.is_empty());
    filled
        .map(|line| OsString::from_vec(line.to_vec()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::setting::flags;
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let look = |name: &str| {
            let found = variables.iter().find(|(one, _)| *one == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let settings = settings(&flags("run"), &look).map_err(|error| error.to_string())?;
        let shown = settings.iter();
        Ok(shown
            .map(|one| format!("{} {} {}", one.flag, one.value, one.origin))
            .collect())
    }

    #[test]
    fn a_variable_for_each_flag_and_no_other_is_read() {
        let read = read(&[
            ("PLEAT_SWAP_DIR", "/data"),
            ("PLEAT_NO_FILE_MAPS", "Yes"),
            ("PLEAT_HARD", "0"),
            ("PLEAT_MOUNT", "/a b:/c\n/d:/e:ro\n"),
            ("PLEAT_CODEC", ""),
            ("PLEAT_SOCKET", "x"),
            ("PLEAT_AGENT", "/x.so"),
            ("PLEAT_MEMROY", "1G"),
        ]);
        let mut read = read.unwrap();
        read.sort();
        assert_eq!(
            read,
            [
                "hard false $PLEAT_HARD",
                "mount /a b:/c, /d:/e:ro $PLEAT_MOUNT",
                "no-file-maps true $PLEAT_NO_FILE_MAPS",
                "swap-dir /data $PLEAT_SWAP_DIR",
            ]
        );
    }

    #[test]
    fn a_switch_that_is_neither_on_nor_off_is_a_mistake() {
        let message = read(&[("PLEAT_NO_SWAP", "maybe")]).unwrap_err();
        assert!(message.starts_with("$PLEAT_NO_SWAP: 'maybe'"), "{message}");
        assert!(message.contains("unset"), "{message}");
    }
}
