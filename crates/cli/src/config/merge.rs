//! Which settings count: what is on the command line first, then layer after layer.
//!
//! Nothing here knows what a value means. What is left is put in front of the typed flags, and all of it is parsed as if
//! it had been typed.

use super::setting::{flags_of, Kind, Setting, Value};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Flags of which one makes the other pointless, beside those that the command line refuses together; where a value is
/// given, with that value only.
const CONTRARY: [(&str, &str, Option<&str>); 4] = [
    ("no-swap", "swap-dir", None),
    ("no-swap", "swap-max", None),
    ("no-swap", "swap-plain", None),
    ("hard", "cgroup", Some("never")),
];

/// Flags that mean nothing without another. On the command line that is a mistake; in a file it is kept for when the
/// other is given.
const NEEDS: [(&str, &str); 1] = [("record-resident", "record")];

/// What is about one job. Inside a job they come from its environment and its user's file, which mean the outer one.
const OF_ONE_JOB: [&str; 7] = [
    "memory",
    "name",
    "mount",
    "stats",
    "metrics",
    "record",
    "record-resident",
];

/// Settings of one source.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    /// In their order there.
    pub settings: Vec<Setting>,
    /// Whether this run's command line names the source.
    pub is_named: bool,
}

/// A flag and its value, as far as it is decided.
type Decided = BTreeMap<String, Value>;

/// What counts of `layers`, of which the first counts most, for `command` as it was typed.
pub fn merge(
    command: &Command,
    typed: &ArgMatches,
    layers: &[Layer],
    is_inside: bool,
) -> Vec<Setting> {
    let mut decided = given(command, typed);
    let mut taken: Vec<Setting> = Vec::new();
    for layer in layers {
        let counts = |one: &&Setting| {
            let is_for_another =
                is_inside && !layer.is_named && OF_ONE_JOB.contains(&one.flag.as_str());
            let is_known = find(command, &one.flag).is_some();
            is_known && !is_for_another && !is_decided(command, &decided, one)
        };
        let of_layer: Vec<Setting> = layer.settings.iter().filter(counts).cloned().collect();
        decided.extend(
            of_layer
                .iter()
                .map(|one| (one.flag.clone(), one.value.clone())),
        );
        taken.extend(of_layer);
    }
    taken.retain(|one| {
        let needed = NEEDS.iter().find(|(flag, _)| *flag == one.flag);
        needed.is_none_or(|(_, other)| decided.get(*other).is_some_and(Value::is_given))
    });
    taken
}

/// The words that stand for settings on a command line.
pub fn words(command: &Command, settings: &[Setting]) -> Vec<OsString> {
    let mut words = Vec::new();
    for Setting { flag, value, .. } in settings {
        let Some(arg) = find(command, flag) else {
            continue;
        };
        let flag = format!("--{}", arg.get_long().unwrap_or_default());
        match value {
            Value::Switch(is_on) => words.extend(is_on.then(|| flag.into())),
            Value::Words(all) => words.extend(all.iter().map(|word| {
                let mut word_of_flag = OsString::from(format!("{flag}="));
                word_of_flag.push(word);
                word_of_flag
            })),
        }
    }
    words
}

/// What was typed.
fn given(command: &Command, typed: &ArgMatches) -> Decided {
    let flags = flags_of(command).into_iter();
    flags
        .filter_map(|flag| {
            let id = find(command, &flag.name)?.get_id().as_str();
            let is_typed = typed.value_source(id) == Some(ValueSource::CommandLine);
            let value = match flag.kind {
                Kind::Switch => Value::Switch(true),
                _ => Value::Words(typed.get_raw(id)?.map(OsString::from).collect()),
            };
            is_typed.then_some((flag.name, value))
        })
        .collect()
}

fn find<'a>(command: &'a Command, flag: &str) -> Option<&'a Arg> {
    command
        .get_arguments()
        .find(|arg| arg.get_long() == Some(flag))
}

/// Whether what counts more says so already, or says the contrary.
fn is_decided(command: &Command, decided: &Decided, one: &Setting) -> bool {
    let is_contrary = |(flag, value): (&String, &Value)| {
        value.is_given()
            && one.value.is_given()
            && (is_refused_with(command, flag, &one.flag)
                || are_contrary((flag, value), (&one.flag, &one.value)))
    };
    decided.contains_key(&one.flag) || decided.iter().any(is_contrary)
}

/// Whether the command line's definition says that they cannot be given together. Either of them may say so.
fn is_refused_with(command: &Command, one: &str, other: &str) -> bool {
    let refuses = |one: &str, other: &str| {
        let arg = find(command, one);
        let all = arg.map(|arg| command.get_arg_conflicts_with(arg));
        all.is_some_and(|all| all.iter().any(|arg| arg.get_long() == Some(other)))
    };
    refuses(one, other) || refuses(other, one)
}

fn are_contrary(one: (&str, &Value), other: (&str, &Value)) -> bool {
    let is = |at: (&str, &Value), name: &str, says: Option<&str>| {
        at.0 == name && says.is_none_or(|says| *at.1 == Value::Words(vec![says.into()]))
    };
    CONTRARY.iter().any(|(switch, flag, says)| {
        is(one, switch, None) && is(other, flag, *says)
            || is(other, switch, None) && is(one, flag, *says)
    })
}
