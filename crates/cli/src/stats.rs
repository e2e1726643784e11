//! The JSON of `--stats FILE`: what was asked, how it ended, and every counter of the pager.
//!
//! The file is opened before the program starts, so that an hour's run is not lost to a typo, and
//! written at the end whatever happened. `docs/stats.md` explains each field; a test here compares
//! the two in both directions.

use crate::pager::{
    Ending, Outcome, Place, ProfileReport, Protection, Report, RunError, StatsOf, Subject,
};
use crate::settings::Settings;
use pleat_mount::BesideReport;
use pleat_sys::procfs::command_line;
use serde::Serialize;
use serde_json::json;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The file, open since before the program started.
pub struct StatsFile {
    path: PathBuf,
    file: File,
}

/// Why the figures are not in their file.
#[derive(Debug, thiserror::Error)]
#[error("cannot write --stats {}: {source}", path.display())]
pub struct StatsError {
    path: PathBuf,
    source: io::Error,
}

impl StatsFile {
    /// Creates or empties the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(path: &Path) -> Result<StatsFile, StatsError> {
        match File::create(path) {
            Ok(file) => Ok(StatsFile {
                path: path.to_owned(),
                file,
            }),
            Err(source) => Err(StatsError {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Writes the figures.
    ///
    /// # Errors
    /// When the disk does not take them.
    pub fn write(self, stats: &impl Serialize) -> Result<(), StatsError> {
        let StatsFile { path, mut file } = self;
        let write = |file: &mut File| {
            let mut text = serde_json::to_vec_pretty(stats)?;
            text.push(b'\n');
            file.write_all(&text)
        };
        write(&mut file).map_err(|source| StatsError { path, source })
    }
}

/// Everything about one run. Field names end in their unit.
#[derive(Serialize)]
pub struct Stats<'a> {
    pleat_version: &'static str,
    program: Vec<String>,
    settings: SettingsStats<'a>,
    ending: EndingStats,
    report: Option<&'a Report>,
    profile: Option<&'a ProfileReport>,
    mounts: &'a [BesideReport],
}

/// The settings as they were resolved.
#[derive(Serialize)]
struct SettingsStats<'a> {
    budget_bytes: u64,
    budget_reason: &'a str,
    swap_dir: Option<String>,
    swap_max_bytes: Option<u64>,
    swap_protection: Option<&'static str>,
    preset: &'a str,
    codec: &'a str,
    recompress: bool,
    paranoid: bool,
    file_maps: bool,
    load_control: bool,
    shared_memory: bool,
    own_cgroup: &'static str,
    hints: Vec<&'static str>,
    layout: &'a str,
    sizing: &'a str,
    admission: &'a str,
}

/// How the run ended.
#[derive(Serialize)]
struct EndingStats {
    kind: &'static str,
    exit_code: Option<i32>,
    signal: Option<i32>,
    message: Option<String>,
}

impl<'a> Stats<'a> {
    /// Collects what is to be written about a run under `settings` that ended with `result`.
    pub fn of(
        settings: &'a Settings,
        result: &'a Result<Outcome, RunError>,
        mounts: &'a [BesideReport],
    ) -> Stats<'a> {
        Stats {
            pleat_version: env!("CARGO_PKG_VERSION"),
            program: words(settings),
            settings: SettingsStats::of(settings),
            ending: EndingStats::of(result),
            report: result.as_ref().ok().map(|outcome| &outcome.report),
            profile: result
                .as_ref()
                .ok()
                .and_then(|outcome| outcome.profile.as_ref()),
            mounts,
        }
    }
}

fn words(settings: &Settings) -> Vec<String> {
    let words = match &settings.subject {
        Subject::Program(words) => words.clone(),
        Subject::Running(pids) => pids.first().map_or(Vec::new(), |pid| command_line(*pid)),
    };
    words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// What is known of a run before it begins.
pub fn beginning(settings: &Settings) -> serde_json::Value {
    json!({
        "pleat_version": env!("CARGO_PKG_VERSION"),
        "program": words(settings),
        "settings": SettingsStats::of(settings),
    })
}

/// The same of a job that still runs, as far as it has come.
pub fn so_far(settings: &Settings, mounts: &[Arc<Mutex<BesideReport>>]) -> Box<StatsOf> {
    let mounts = mounts.to_vec();
    let beginning = beginning(settings);
    Box::new(move |report, profile| {
        let mounts = mounts.iter().map(|report| {
            let report = report.lock().unwrap_or_else(PoisonError::into_inner);
            json!(&*report)
        });
        let mut all = beginning.clone();
        all["ending"] = json!(EndingStats::running());
        all["report"] = json!(report);
        all["profile"] = json!(profile);
        all["mounts"] = mounts.collect();
        all
    })
}

impl<'a> SettingsStats<'a> {
    fn of(settings: &'a Settings) -> SettingsStats<'a> {
        let swap = settings.swap.as_ref();
        SettingsStats {
            budget_bytes: settings.budget.bytes,
            budget_reason: &settings.budget.reason,
            swap_dir: swap.and_then(|swap| swap_dir(&swap.place)),
            swap_max_bytes: swap.and_then(|swap| swap.max_bytes),
            swap_protection: swap.map(|swap| match swap.protection {
                Protection::Encrypted => "encrypted",
                Protection::Checked => "checked",
            }),
            preset: &settings.preset.name,
            codec: settings.codec.name(),
            recompress: settings.recompress,
            paranoid: settings.paranoid,
            file_maps: settings.file_maps,
            load_control: settings.load_control,
            shared_memory: settings.shared_memory,
            own_cgroup: settings.own_cgroup.name(),
            hints: settings.hints.iter().map(|hint| hint.name()).collect(),
            layout: &settings.preset.layout,
            sizing: &settings.preset.sizing,
            admission: &settings.preset.admission,
        }
    }
}

fn swap_dir(place: &Place) -> Option<String> {
    match place {
        Place::Dir(dir) => Some(dir.to_string_lossy().into_owned()),
        Place::Given(_) => None,
    }
}

impl EndingStats {
    /// There is none yet.
    fn running() -> EndingStats {
        EndingStats {
            kind: "running",
            exit_code: None,
            signal: None,
            message: None,
        }
    }

    fn of(result: &Result<Outcome, RunError>) -> EndingStats {
        let none = EndingStats::running();
        match result.as_ref().map(|outcome| &outcome.ending) {
            Ok(Ending::Exited(code)) => EndingStats {
                kind: "exited",
                exit_code: Some(*code),
                ..none
            },
            Ok(Ending::Signalled(signal)) => EndingStats {
                kind: "signalled",
                signal: Some(*signal),
                ..none
            },
            Ok(Ending::Over) => EndingStats {
                kind: "over",
                ..none
            },
            Ok(Ending::Left) => EndingStats {
                kind: "left",
                ..none
            },
            Ok(Ending::Stopped { message }) => EndingStats {
                kind: "stopped",
                message: Some(message.clone()),
                ..none
            },
            Err(error) => EndingStats {
                kind: "not_started",
                message: Some(error.to_string()),
                ..none
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::RunArgs;
    use crate::budget::MachineMemory;
    use crate::pager::Ledger;
    use crate::settings::Machine;
    use serde_json::{Map, Value};
    use std::collections::BTreeSet;

    fn settings() -> Settings {
        let memory = MachineMemory {
            available_bytes: 1 << 30,
            ..MachineMemory::default()
        };
        let machine = Machine {
            memory,
            outer: None,
            swap_candidates: vec!["/var/tmp".into()],
        };
        let raw = RunArgs {
            program: vec!["true".into()],
            ..RunArgs::default()
        };
        Settings::resolve(raw, &machine).unwrap()
    }

    fn finished() -> Result<Outcome, RunError> {
        Ok(Outcome {
            ending: Ending::Exited(3),
            report: Report::default(),
            profile: Some(ProfileReport::default()),
            processes: Ledger::default(),
            memory_remedy: None,
            swap: None,
            record_error: None,
        })
    }

    fn of(result: &Result<Outcome, RunError>) -> Value {
        serde_json::to_value(Stats::of(&settings(), result, &[])).unwrap()
    }

    /// `a.b.c` for every value that is not an object, or the figures of a part of a profile.
    fn leaves(prefix: &str, value: &Value, into: &mut BTreeSet<String>) {
        let is_figures = |object: &&_| Map::contains_key(object, "p99_ns");
        match value.as_object().filter(|object| !is_figures(object)) {
            None => drop(into.insert(prefix.to_owned())),
            Some(object) => object.iter().for_each(|(key, value)| {
                let dot = if prefix.is_empty() { "" } else { "." };
                leaves(&format!("{prefix}{dot}{key}"), value, into);
            }),
        }
    }

    #[test]
    fn every_field_is_documented_and_every_documented_field_exists() {
        let docs = include_str!("../../../docs/stats.md");
        let documented: BTreeSet<String> = docs
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
            .map(|(field, _)| field.to_owned())
            .collect();
        let mut written = BTreeSet::new();
        leaves("", &of(&finished()), &mut written);
        let missing: Vec<_> = written.difference(&documented).collect();
        let stale: Vec<_> = documented.difference(&written).collect();
        assert!(missing.is_empty(), "docs/stats.md lacks {missing:#?}");
        assert!(
            stale.is_empty(),
            "docs/stats.md explains what is not written: {stale:#?}"
        );
    }

    #[test]
    fn what_is_told_while_a_job_runs_has_the_same_fields() {
        let fields = |value: &Value| {
            let mut fields = BTreeSet::new();
            leaves("", value, &mut fields);
            fields
        };
        let report = Report::default();
        let profile = ProfileReport::default();
        let now = so_far(&settings(), &[])(&report, Some(&profile));
        assert_eq!(fields(&now), fields(&of(&finished())));
        assert_eq!(now["ending"]["kind"], "running");
    }

    #[test]
    fn an_ending_says_which_of_four_it_was() {
        let exited = of(&finished());
        assert_eq!(exited["ending"]["kind"], "exited");
        assert_eq!(exited["ending"]["exit_code"], 3);
        let failed = of(&Err(RunError::Other("no luck: try again".into())));
        assert_eq!(failed["ending"]["kind"], "not_started");
        assert_eq!(failed["ending"]["message"], "no luck: try again");
        assert_eq!(failed["report"], Value::Null);
    }

    #[test]
    fn an_unwritable_file_is_noticed_when_it_is_created() {
        let error = StatsFile::create(Path::new("/nonexistent/run.json"))
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("--stats /nonexistent/run.json"),
            "{error}"
        );
    }

    #[test]
    fn the_file_holds_the_figures_and_ends_in_a_newline() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        let (settings, result) = (settings(), finished());
        StatsFile::create(&path)
            .unwrap()
            .write(&Stats::of(&settings, &result, &[]))
            .unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("}\n"));
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["settings"]["budget_bytes"], settings.budget.bytes);
    }
}
