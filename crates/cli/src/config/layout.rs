//! What a file of settings says: flags at its top, in a table for each command, and in profiles.
//!
//! All of it is checked, also what this run has no use for: a mistake is told when it is made, not when a profile is
//! used for the first time. Values are only checked for their type; what they mean is for the command line's parsers.

use super::setting::{flags, Flag, Kind, Origin, Setting, Value, COMMANDS};
use crate::args;
use clap::error::{ContextKind, ContextValue};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};
use toml::Spanned;

/// The table of profiles.
const PROFILES: &str = "profile";

/// A file's settings.
#[derive(Debug, Default)]
pub struct Layout {
    /// At its top, for whichever command has the flag.
    pub top: Vec<Setting>,
    /// By command.
    pub commands: BTreeMap<String, Vec<Setting>>,
    /// By name.
    pub profiles: BTreeMap<String, Vec<Setting>>,
}

/// What is wrong with a file, and where.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: {what}")]
pub struct LayoutError {
    origin: Origin,
    what: String,
}

/// The file that is read, and the flags that are known.
struct Reader<'a> {
    path: Arc<Path>,
    text: &'a str,
    flags: BTreeMap<&'static str, Vec<Flag>>,
}

impl Layout {
    /// Reads the text of the file at `path`.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn parse(path: &Path, text: &str) -> Result<Layout, LayoutError> {
        let reader = Reader {
            path: Arc::from(path),
            text,
            flags: COMMANDS.map(|name| (name, flags(name))).into(),
        };
        let table = DeTable::parse(text).map_err(|error| {
            let what = error.message().split_whitespace().collect::<Vec<_>>();
            let at = error.span().map_or(0, |span| span.start);
            reader.mistake(at, format!("{}: see docs/config.md", what.join(" ")))
        })?;
        reader.layout(table.get_ref())
    }
}

impl Reader<'_> {
    fn mistake(&self, offset: usize, what: String) -> LayoutError {
        let origin = Origin::in_file(&self.path, self.text, offset);
        LayoutError { origin, what }
    }

    fn layout(&self, table: &DeTable) -> Result<Layout, LayoutError> {
        let mut layout = Layout::default();
        for (key, value) in in_order(table) {
            let name: &str = key.get_ref();
            match value.get_ref() {
                DeValue::Table(table) if name == PROFILES => {
                    layout.profiles = self.profiles(table)?;
                }
                DeValue::Table(table) if COMMANDS.contains(&name) => {
                    let settings = self.settings(table, &[name])?;
                    layout.commands.insert(name.to_owned(), settings);
                }
                DeValue::Table(_) => return Err(self.no_such_table(key)),
                _ => layout.top.push(self.setting(key, value, &COMMANDS)?),
            }
        }
        Ok(layout)
    }

    fn profiles(&self, table: &DeTable) -> Result<BTreeMap<String, Vec<Setting>>, LayoutError> {
        let profile = |(key, value): (&Spanned<_>, &Spanned<DeValue>)| {
            let name: &std::borrow::Cow<str> = key.get_ref();
            let Some(table) = value.get_ref().as_table() else {
                let what = format!("'{name}' is no profile: begin one with [{PROFILES}.NAME]; the flag of that name goes into [run]");
                return Err(self.mistake(key.span().start, what));
            };
            Ok((name.to_string(), self.settings(table, &COMMANDS)?))
        };
        in_order(table).into_iter().map(profile).collect()
    }

    fn settings(&self, table: &DeTable, of: &[&str]) -> Result<Vec<Setting>, LayoutError> {
        let all = in_order(table).into_iter();
        all.map(|(key, value)| self.setting(key, value, of))
            .collect()
    }

    /// A setting that any of the commands knows.
    fn setting(
        &self,
        key: &Spanned<std::borrow::Cow<str>>,
        value: &Spanned<DeValue>,
        of: &[&str],
    ) -> Result<Setting, LayoutError> {
        let name: &str = key.get_ref();
        let known = of.iter().filter_map(|command| self.flags.get(command));
        let flag = known.flatten().find(|flag| flag.name == name);
        let flag = flag.ok_or_else(|| self.mistake(key.span().start, unknown(name, of)))?;
        let start = value.span().start;
        let value = read(flag, value.get_ref()).map_err(|what| self.mistake(start, what))?;
        Ok(Setting {
            flag: flag.name.clone(),
            value,
            origin: Origin::in_file(&self.path, self.text, start),
        })
    }

    fn no_such_table(&self, key: &Spanned<std::borrow::Cow<str>>) -> LayoutError {
        let what = format!(
            "there is no table [{}]: there are [run], [attach], [mount] and [{PROFILES}.NAME]",
            key.get_ref()
        );
        self.mistake(key.span().start, what)
    }
}

/// As they stand in the file, so that the first mistake is the first to be told.
fn in_order<'a, 'i>(
    table: &'a DeTable<'i>,
) -> Vec<(
    &'a Spanned<std::borrow::Cow<'i, str>>,
    &'a Spanned<DeValue<'i>>,
)> {
    let mut all: Vec<_> = table.iter().collect();
    all.sort_by_key(|(key, _)| key.span().start);
    all
}

/// A value of the flag's type, or what it is to be instead.
fn read(flag: &Flag, value: &DeValue) -> Result<Value, String> {
    let name = &flag.name;
    match (flag.kind, value) {
        (Kind::Switch, DeValue::Boolean(is_on)) => Ok(Value::Switch(*is_on)),
        (Kind::Switch, other) => Err(format!(
            "{name} is {}: say {name} = true, or false",
            kind_of(other)
        )),
        (Kind::Many, DeValue::Array(all)) => {
            let words = all.iter().map(|one| word(name, one.get_ref()));
            Ok(Value::Words(words.collect::<Result<_, _>>()?))
        }
        (_, one) => Ok(Value::Words(vec![word(name, one)?])),
    }
}

/// A value as it would be typed.
fn word(name: &str, value: &DeValue) -> Result<OsString, String> {
    match value {
        DeValue::String(text) if text.is_empty() => {
            Err(format!("{name} is empty: give a value, or leave it out"))
        }
        DeValue::String(text) => Ok(text.to_string().into()),
        DeValue::Integer(number) => {
            let number = i64::from_str_radix(number.as_str(), number.radix());
            let number = number.map_err(|error| format!("{name}: {error}: put it in quotes"))?;
            Ok(number.to_string().into())
        }
        other => Err(format!(
            "{name} is {}: it takes a value in quotes",
            kind_of(other)
        )),
    }
}

fn kind_of(value: &DeValue) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// What to do about a key that is no flag of the commands.
fn unknown(name: &str, of: &[&str]) -> String {
    if ["config", "no-config"].contains(&name) {
        return format!("{name} cannot stand in the file that it is about: give --{name}");
    }
    if name == "use" {
        return "use cannot stand in a file: what always holds stands at its top; give --use, or set $PLEAT_USE".into();
    }
    let has_it = |command: &&&str| flags(command).iter().any(|flag| flag.name == name);
    if let ([command], Some(other)) = (of, COMMANDS.iter().find(has_it)) {
        return format!(
            "'{name}' is no setting of {command}, but of {other}: put it into [{other}]"
        );
    }
    match of.iter().find_map(|command| similar(command, name)) {
        Some(meant) => format!("there is no setting '{name}'; did you mean '{meant}'?"),
        None => {
            let command = of.first().unwrap_or(&"run");
            format!("there is no setting '{name}': 'pleat {command} --help' shows them, without --")
        }
    }
}

/// The flag that the command line's parser takes this for.
fn similar(command: &str, name: &str) -> Option<String> {
    let typed = ["pleat", command, &format!("--{name}=x")];
    let error = args::command().try_get_matches_from(typed).err()?;
    match error.get(ContextKind::SuggestedArg)? {
        ContextValue::String(flag) => {
            let meant = flag.trim_start_matches('-');
            let is_setting = flags(command).iter().any(|flag| flag.name == meant);
            is_setting.then(|| meant.to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Layout, LayoutError> {
        Layout::parse(Path::new("/x/pleat.toml"), text)
    }

    fn refusal(text: &str) -> String {
        let message = parse(text).expect_err("must be refused").to_string();
        assert!(!message.contains('\n'), "{message}");
        message
    }

    fn values(settings: &[Setting]) -> Vec<String> {
        let shown = settings.iter();
        shown
            .map(|one| format!("{} {} {}", one.flag, one.value, one.origin))
            .collect()
    }

    #[test]
    fn every_type_of_flag_is_read_where_it_stands() {
        let layout = parse(
            "memory = 1073741824\n[run]\nno-swap = true\nmount = ['/a:/b', \"/c:/d:ro\"]\nmetrics = 0x2633\n\
             [profile.small]\nmemory = '20%'\nread-only = false\n",
        )
        .unwrap();
        assert_eq!(
            values(&layout.top),
            ["memory 1073741824 /x/pleat.toml:1:10"]
        );
        assert_eq!(
            values(&layout.commands["run"]),
            [
                "no-swap true /x/pleat.toml:3:11",
                "mount /a:/b, /c:/d:ro /x/pleat.toml:4:9",
                "metrics 9779 /x/pleat.toml:5:11",
            ]
        );
        assert_eq!(
            values(&layout.profiles["small"]),
            [
                "memory 20% /x/pleat.toml:7:10",
                "read-only false /x/pleat.toml:8:13"
            ]
        );
    }

    #[test]
    fn a_key_that_is_also_a_table_is_told_from_it() {
        let layout = parse("mount = '/a:/b'\nprofile = true\n").unwrap();
        assert_eq!(layout.top.len(), 2);
        let layout = parse("mount.quiet = true\n[profile.x]\nprofile = true\n").unwrap();
        assert_eq!(layout.commands["mount"].len(), 1);
        assert_eq!(layout.profiles["x"].len(), 1);
    }

    #[test]
    fn every_mistake_is_told_with_its_place_and_a_remedy() {
        for (text, place, remedy) in [
            (
                "memory = '1G'\nmemry = '2G'\n",
                "2:1",
                "did you mean 'memory'?",
            ),
            ("[run]\nno_swap = true", "2:1", "did you mean 'no-swap'?"),
            ("[mount]\nno-swap = true", "2:1", "put it into [run]"),
            ("[attach]\nhard = true", "2:1", "put it into [run]"),
            ("[attach]\nzzz = true", "2:1", "'pleat attach --help'"),
            ("[profile.a]\n zzz = 1", "2:2", "'pleat run --help'"),
            ("[rnu]\nmemory = '1G'", "1:2", "[run], [attach], [mount]"),
            ("[set]\nmemory = '1G'", "1:2", "[run], [attach], [mount]"),
            ("[profile]\nci = true", "2:1", "[profile.NAME]"),
            ("no-swap = 1", "1:11", "no-swap = true"),
            ("no-swap = 'yes'", "1:11", "no-swap = true"),
            ("memory = 1.5", "1:10", "in quotes"),
            ("memory = true", "1:10", "in quotes"),
            ("memory = ['1G']", "1:10", "in quotes"),
            ("memory = 99999999999999999999", "1:10", "in quotes"),
            ("codec = ''", "1:9", "leave it out"),
            ("mount = ['/a:/b', 3.5]", "1:9", "in quotes"),
            ("use = 'x'", "1:1", "--use"),
            ("config = 'x'", "1:1", "--config"),
            ("help = true", "1:1", "'pleat run --help'"),
            ("memory = '1G'\nmemory = '2G'", "2:1", "docs/config.md"),
            ("memory = 1G", "1:", "docs/config.md"),
            ("[run", "1:", "docs/config.md"),
        ] {
            let message = refusal(text);
            let begin = format!("/x/pleat.toml:{place}");
            assert!(message.starts_with(&begin), "{text}: {message}");
            assert!(message.contains(remedy), "{text}: {message}");
        }
    }

    #[test]
    fn an_empty_file_and_empty_tables_set_nothing() {
        let layout = parse("# nothing\n[run]\n[profile.none]\n").unwrap();
        assert!(layout.top.is_empty() && layout.commands["run"].is_empty());
        assert!(layout.profiles["none"].is_empty());
    }
}
