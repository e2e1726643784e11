//! What a command line means on this machine: raw arguments in, a [`Settings`] that cannot be
//! invalid out.
//!
//! Everything that can be known to be wrong before the program starts is found here, so a mistake
//! costs a line and exit status 2 rather than a run.

use crate::args::{CgroupArg, JobReportArgs, RunArgs};
use crate::budget::{Budget, Limited, MachineMemory};
use crate::hints::Hint;
use crate::jobs::Outer;
use crate::mounts::{refuse_inside, JobMount, JobMountError};
use crate::pager::{OwnCgroup, Place, Protection, Subject, Swap, BUDGET_MIN};
use crate::size::{human, parse_amount, parse_size, Amount, SizeError};
use crate::swap_dir::{self, SwapDirError};
use pleat_codec::{Choice, UnknownChoice};
use pleat_engine::{preset, preset_names, Preset};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A run, settled.
pub struct Settings {
    /// Program and arguments, or processes that run; never empty.
    pub subject: Subject,
    /// What the job is called.
    pub name: String,
    /// The supervisor of the job around it, where there is one.
    pub inside_pid: Option<i32>,
    /// The memory budget and where it comes from.
    pub budget: Budget,
    /// The swap file's directory; `None` keeps everything in memory.
    pub swap: Option<Swap>,
    /// The preset.
    pub preset: Preset,
    /// The preset's codec, or the one given instead.
    pub codec: Arc<Choice>,
    /// Whether pages that stay cold are compressed again.
    pub recompress: bool,
    /// Whether compressed pages in memory are checked.
    pub paranoid: bool,
    /// Whether large private mappings of files become memory that can be folded.
    pub file_maps: bool,
    /// Whether processes that thrash together take turns.
    pub load_control: bool,
    /// Whether memory that processes share by forks is compressed, too.
    pub shared_memory: bool,
    /// Whether what the program leaves running is ended with it.
    pub kill_on_exit: bool,
    /// Whether the job has a memory cgroup of its own.
    pub own_cgroup: OwnCgroup,
    /// Directories shown while the job runs.
    pub mounts: Vec<JobMount>,
    /// The trace to record.
    pub record: Option<Recording>,
    /// Runtimes that are told the budget.
    pub hints: Vec<Hint>,
    /// Who is told what.
    pub reports: JobReportArgs,
    /// Whether to tell where the time of faults and evictions went.
    pub profile: bool,
    /// How much to say.
    pub verbosity: Verbosity,
    /// What is allowed but probably not meant.
    pub warnings: Vec<String>,
}

/// A trace to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Its file, which is not to exist yet.
    pub path: PathBuf,
    /// Most memory in pages that can be taken away meanwhile.
    pub resident_max_bytes: u64,
}

/// While recording, the budget's share of memory in pages that can be taken away, and its limits: with
/// less than the lower one a program gets nowhere.
const RESIDENT_SHARE: u64 = 64;
const RESIDENT_DEFAULT_MIN: u64 = 2 << 20;
const RESIDENT_MIN: u64 = 512 << 10;

/// How much pleat says by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbosity {
    /// Errors only.
    Quiet,
    /// Errors and warnings.
    Normal,
    /// Also a live status line and a summary.
    Verbose,
}

/// What the resolution of the arguments looks at besides them.
pub struct Machine {
    /// Memory there is.
    pub memory: MachineMemory,
    /// The job that this one is inside of.
    pub outer: Option<Outer>,
    /// Directories for the swap file when none is given, best first.
    pub swap_candidates: Vec<PathBuf>,
}

/// The largest budget. Twice as much address space is reserved for the compressed cache, of the 128 TiB that a process
/// has.
const ADDRESSABLE: u64 = 32 << 40;

/// A mistake on the command line; the message names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A firm limit without what makes it.
    #[error("--hard needs a memory cgroup of the job's own: leave out --cgroup never, or --hard")]
    HardWithoutCgroup,
    /// `--name`.
    #[error("--name '{0}': give letters, digits, '-', '_' and '.', {NAME_MAX} at most, and not digits alone")]
    Name(String),
    /// `--memory` in a job that has no room for another.
    #[error(
        "the job around this one has {} for it, and no job has less than {}: raise its budget first (pleat set)",
        human(*share_bytes), human(BUDGET_MIN)
    )]
    NoShare {
        /// What it has for it.
        share_bytes: u64,
    },
    /// A size or percentage.
    #[error("{flag}: {source}")]
    Size {
        /// Which flag.
        flag: &'static str,
        /// What is wrong with it.
        source: SizeError,
    },
    /// `--memory` beyond what addresses reach.
    #[error(
        "--memory {given} is more than pleat can address: give at most {}",
        human(ADDRESSABLE)
    )]
    TooLarge {
        /// As given.
        given: String,
    },
    /// `--swap-max 0`.
    #[error("{0}; to use no swap file, say --no-swap")]
    NoSwapMeant(SizeError),
    /// `--preset`.
    #[error("{0}")]
    Preset(String),
    /// `--record-resident` for a program that cannot run in so little, or that is never seen.
    #[error("--record-resident {given} {problem}: give a size from 512K to half of --memory")]
    Resident {
        /// As given.
        given: String,
        /// What about it.
        problem: &'static str,
    },
    /// `--codec`.
    #[error(transparent)]
    Codec(#[from] UnknownChoice),
    /// `--mount`.
    #[error(transparent)]
    Mount(#[from] JobMountError),
    /// `--swap-dir`.
    #[error("{0}: choose another with --swap-dir, or say --no-swap")]
    SwapDir(SwapDirError),
}

impl Machine {
    /// This machine, now.
    ///
    /// # Errors
    /// When the kernel does not say how much memory there is.
    pub fn read() -> std::io::Result<Machine> {
        let tmpdir = std::env::var_os("TMPDIR").map(PathBuf::from);
        let outer = Outer::find();
        Ok(Machine {
            memory: MachineMemory::read()?.inside(outer.as_ref()),
            outer,
            swap_candidates: swap_dir::default_candidates(tmpdir),
        })
    }
}

impl Settings {
    /// Settles what `raw` means on `machine`.
    ///
    /// # Errors
    /// The first mistake found, in the order of the help text.
    pub fn resolve(raw: RunArgs, machine: &Machine) -> Result<Settings, SettingsError> {
        let mut warnings = Vec::new();
        let budget = resolve_budget(raw.memory.as_deref(), &machine.memory, &mut warnings)?;
        let swap = resolve_swap(&raw, machine, &mut warnings)?;
        let mounts = resolve_mounts(&raw, swap.as_ref())?;
        let preset = resolve_preset(raw.preset.as_deref())?;
        let codec = Choice::parse(raw.codec.as_deref().unwrap_or(&preset.codec))?;
        let record = resolve_recording(&raw, &budget)?;
        Ok(Settings {
            name: job_name(&raw)?,
            inside_pid: machine.outer.as_ref().and_then(|outer| outer.pid),
            budget,
            swap,
            preset,
            codec: Arc::new(codec),
            recompress: raw.recompress,
            paranoid: raw.paranoid,
            file_maps: !raw.no_file_maps,
            load_control: !raw.no_load_control,
            shared_memory: raw.shared_memory,
            kill_on_exit: raw.kill_on_exit,
            own_cgroup: resolve_own_cgroup(&raw)?,
            mounts,
            record,
            verbosity: verbosity(&raw),
            subject: Subject::Program(raw.program),
            hints: raw.hint.unwrap_or_default().0,
            reports: raw.reports,
            profile: raw.profile,
            warnings,
        })
    }
}

/// Letters of a job's name.
const NAME_MAX: usize = 64;

/// What is given as the job's name, or the program's file name as far as that is one.
fn job_name(raw: &RunArgs) -> Result<String, SettingsError> {
    let is_fit = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(name) = &raw.name {
        return match name.len() <= NAME_MAX && name.chars().all(is_fit) && !is_number(name) {
            true => Ok(name.clone()),
            false => Err(SettingsError::Name(name.clone())),
        };
    }
    let program = raw.program.first().map(Path::new);
    let name = program.and_then(Path::file_name).unwrap_or_default();
    let name = name
        .to_string_lossy()
        .replace(|letter| !is_fit(letter), "-");
    match name.is_empty() {
        true => Ok("job".into()),
        false => Ok(name.chars().take(NAME_MAX).collect()),
    }
}

fn resolve_own_cgroup(raw: &RunArgs) -> Result<OwnCgroup, SettingsError> {
    match (raw.hard, raw.cgroup) {
        (true, Some(CgroupArg::Never)) => Err(SettingsError::HardWithoutCgroup),
        (true, _) => Ok(OwnCgroup::Hard),
        (false, Some(CgroupArg::Never)) => Ok(OwnCgroup::Never),
        (false, Some(CgroupArg::Auto) | None) => Ok(OwnCgroup::Auto),
    }
}

fn verbosity(raw: &RunArgs) -> Verbosity {
    match (raw.quiet, raw.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    }
}

/// What `--memory` means here.
///
/// # Errors
/// It is no amount of memory.
pub fn resolve_budget(
    text: Option<&str>,
    memory: &MachineMemory,
    warnings: &mut Vec<String>,
) -> Result<Budget, SettingsError> {
    let Some(text) = text else {
        return within(memory.default_budget(), memory);
    };
    let budget = memory.budget_for(parse_memory(text)?, text);
    if let Some(share) = memory.share_bytes.filter(|&share| budget.bytes > share) {
        warnings.push(format!(
            "--memory {text} is more than the {} that the job around this one has for it: that is taken",
            human(share)
        ));
        return within(memory.default_budget(), memory);
    }
    if budget.bytes > ADDRESSABLE {
        let given = text.trim().to_owned();
        return Err(SettingsError::TooLarge { given });
    }
    if let Some(limit) = memory
        .cgroup_limit_bytes
        .filter(|&limit| budget.bytes > limit)
    {
        let (whose, who) = match memory.limited {
            Limited::Own => ("the memory cgroup", "the job"),
            Limited::Running => ("the processes' memory cgroup", "them"),
        };
        warnings.push(format!(
            "--memory {text} is more than the {} that {whose} allows: the kernel may kill {who}; give at most --memory 90%",
            human(limit)
        ));
    }
    Ok(budget)
}

/// Reads what `--memory` says.
///
/// # Errors
/// It is no amount of memory.
pub fn parse_memory(text: &str) -> Result<Amount, SettingsError> {
    parse_amount(text).map_err(|source| SettingsError::Size {
        flag: "--memory",
        source,
    })
}

/// A share of another job's budget must be enough for a job.
fn within(budget: Budget, memory: &MachineMemory) -> Result<Budget, SettingsError> {
    match memory.share_bytes {
        Some(share_bytes) if share_bytes < BUDGET_MIN => {
            Err(SettingsError::NoShare { share_bytes })
        }
        _ => Ok(budget),
    }
}

fn resolve_swap(
    raw: &RunArgs,
    machine: &Machine,
    warnings: &mut Vec<String>,
) -> Result<Option<Swap>, SettingsError> {
    if raw.no_swap {
        return Ok(None);
    }
    let max_bytes = raw.swap_max.as_deref().map(swap_max).transpose()?;
    let dir = match &raw.swap_dir {
        Some(dir) => Some(given_swap_dir(dir, warnings)?),
        None => swap_dir::first_usable(&machine.swap_candidates)
            .map_err(|reasons| warnings.push(no_default_swap(&reasons)))
            .ok()
            .map(|found| found.path),
    };
    let protection = match raw.swap_plain {
        true => Protection::Checked,
        false => Protection::Encrypted,
    };
    Ok(dir.map(|dir| Swap {
        place: Place::Dir(dir),
        max_bytes,
        protection,
    }))
}

fn swap_max(text: &str) -> Result<u64, SettingsError> {
    parse_size(text).map_err(|source| match source {
        SizeError::Zero(_) => SettingsError::NoSwapMeant(source),
        _ => SettingsError::Size {
            flag: "--swap-max",
            source,
        },
    })
}

fn given_swap_dir(dir: &Path, warnings: &mut Vec<String>) -> Result<PathBuf, SettingsError> {
    let found = swap_dir::inspect(dir).map_err(SettingsError::SwapDir)?;
    if found.in_memory {
        warnings.push(format!(
            "the swap directory {} is in memory (tmpfs), so swapping there saves none: \
             give a directory on a disk, or --no-swap",
            dir.display()
        ));
    }
    Ok(found.path)
}

fn no_default_swap(reasons: &str) -> String {
    format!("running without a swap file ({reasons}): give --swap-dir DIR, or --no-swap")
}

/// What pleat itself reads and writes lies outside of all of them.
fn resolve_mounts(raw: &RunArgs, swap: Option<&Swap>) -> Result<Vec<JobMount>, SettingsError> {
    let mounts = JobMount::resolve_all(&raw.mount)?;
    if let Some(Place::Dir(dir)) = swap.map(|swap| &swap.place) {
        let remedy = "choose another with --swap-dir, or say --no-swap";
        refuse_inside(&mounts, "the swap directory", dir, remedy)?;
    }
    let reports = [
        ("the file of --stats,", &raw.reports.stats),
        ("the file of --trace-stats,", &raw.reports.trace_stats),
    ];
    for (what, path) in reports {
        if let Some(path) = path {
            refuse_inside(&mounts, what, path, "write it elsewhere")?;
        }
    }
    Ok(mounts)
}

fn resolve_recording(raw: &RunArgs, budget: &Budget) -> Result<Option<Recording>, SettingsError> {
    let Some(path) = raw.record.clone() else {
        return Ok(None);
    };
    let resident_max_bytes = match raw.record_resident.as_deref() {
        None => (budget.bytes / RESIDENT_SHARE).max(RESIDENT_DEFAULT_MIN),
        Some(text) => record_resident(text, budget.bytes)?,
    };
    Ok(Some(Recording {
        path,
        resident_max_bytes,
    }))
}

fn record_resident(text: &str, budget_bytes: u64) -> Result<u64, SettingsError> {
    let bytes = parse_size(text).map_err(|source| SettingsError::Size {
        flag: "--record-resident",
        source,
    })?;
    let problem = match bytes {
        bytes if bytes < RESIDENT_MIN => "is too little for a program to get on",
        bytes if bytes > budget_bytes / 2 => "is too much of the budget to see anything",
        bytes => return Ok(bytes),
    };
    Err(SettingsError::Resident {
        given: text.to_owned(),
        problem,
    })
}

/// What `--preset` means.
///
/// # Errors
/// There is none of that name.
pub fn resolve_preset(given: Option<&str>) -> Result<Preset, SettingsError> {
    preset(given.unwrap_or(preset_names()[0])).map_err(SettingsError::Preset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            memory: MachineMemory {
                available_bytes: 1000 << 20,
                ..MachineMemory::default()
            },
            outer: None,
            swap_candidates: vec![PathBuf::from("/var/tmp")],
        }
    }

    fn resolve(change: impl FnOnce(&mut RunArgs)) -> Result<Settings, SettingsError> {
        let mut raw = RunArgs {
            program: vec!["true".into()],
            ..RunArgs::default()
        };
        change(&mut raw);
        Settings::resolve(raw, &machine())
    }

    fn refusal(change: impl FnOnce(&mut RunArgs)) -> String {
        resolve(change).err().expect("must be refused").to_string()
    }

    #[test]
    fn nothing_given_means_the_defaults_and_no_warning() {
        let settings = resolve(|_| ()).unwrap();
        assert_eq!(settings.budget.bytes, 800 << 20);
        let swap = settings.swap.unwrap();
        assert!(matches!(swap.place, Place::Dir(dir) if dir == Path::new("/var/tmp")));
        assert_eq!(swap.protection, Protection::Encrypted);
        assert_eq!(settings.preset.name, preset_names()[0]);
        assert_eq!(settings.codec.name(), settings.preset.codec);
        assert_eq!(settings.verbosity, Verbosity::Normal);
        assert_eq!(settings.warnings, [] as [String; 0]);
    }

    #[test]
    fn a_job_is_called_as_it_is_told_or_as_its_program() {
        let named = |name: Option<&str>, program: &str| {
            let settings = resolve(|raw| {
                raw.name = name.map(str::to_owned);
                raw.program = vec![program.into()];
            });
            settings.map(|settings| settings.name)
        };
        assert_eq!(named(Some("a-b_c.1"), "x").unwrap(), "a-b_c.1");
        assert_eq!(named(None, "/usr/bin/python3").unwrap(), "python3");
        assert_eq!(named(None, "./a b\n").unwrap(), "a-b-");
        assert_eq!(named(None, "..").unwrap(), "job");
        let long = "x".repeat(65);
        for name in ["", "a b", "4711", "ä", "a/b", &long] {
            let message = named(Some(name), "x").unwrap_err().to_string();
            assert!(
                message.contains("--name") && message.contains("digits"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_job_in_another_has_a_share_of_that_ones_budget() {
        let resolve = |budget_bytes, memory: Option<&str>| {
            let outer = Some(Outer {
                pid: Some(7),
                budget_bytes,
            });
            let machine = Machine {
                memory: machine().memory.inside(outer.as_ref()),
                outer,
                ..machine()
            };
            let raw = RunArgs {
                memory: memory.map(str::to_owned),
                no_swap: true,
                ..RunArgs::default()
            };
            let settings = Settings::resolve(raw, &machine);
            settings.map(|settings| (settings.budget.bytes, settings.warnings.len()))
        };
        assert_eq!(resolve(100 << 20, Some("60M")).unwrap(), (60 << 20, 0));
        let share = (100 << 20) / 100 * 90;
        assert_eq!(resolve(100 << 20, Some("100M")).unwrap(), (share, 1));
        assert_eq!(resolve(100 << 20, None).unwrap(), (share, 0));
        let message = resolve(16 << 20, None).unwrap_err().to_string();
        assert!(message.contains("pleat set"), "{message}");
    }

    #[test]
    fn a_wrong_size_names_its_flag() {
        assert!(refusal(|raw| raw.memory = Some("lots".into())).starts_with("--memory: 'lots'"));
        let beyond = refusal(|raw| raw.memory = Some("1000T".into()));
        assert_eq!(
            beyond,
            "--memory 1000T is more than pleat can address: give at most 32T"
        );
        assert!(refusal(|raw| raw.swap_max = Some("1X".into())).starts_with("--swap-max: '1X'"));
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let message = refusal(|raw| raw.preset = Some("magic".into()));
        assert!(
            message.contains("preset 'magic'") && message.contains("castro03"),
            "{message}"
        );
        let message = refusal(|raw| raw.codec = Some("zip".into()));
        assert!(
            message.contains("codec 'zip'") && message.contains("lz4"),
            "{message}"
        );
    }

    #[test]
    fn every_preset_can_be_chosen_by_name() {
        for name in preset_names() {
            let settings = resolve(|raw| raw.preset = Some(name.into())).unwrap();
            assert_eq!(settings.preset.name, name);
        }
    }

    #[test]
    fn swap_can_be_limited_or_left_out() {
        let limited = resolve(|raw| raw.swap_max = Some("2G".into())).unwrap();
        assert_eq!(limited.swap.unwrap().max_bytes, Some(2 << 30));
        assert!(resolve(|raw| raw.no_swap = true).unwrap().swap.is_none());
        let both = resolve(|raw| {
            raw.no_swap = true;
            raw.swap_dir = Some("/tmp".into());
        });
        assert!(
            both.unwrap().swap.is_none(),
            "--no-swap wins over --swap-dir"
        );
        assert!(refusal(|raw| raw.swap_max = Some("0".into())).contains("--no-swap"));
    }

    #[test]
    fn pages_are_encrypted_on_disk_and_not_checked_in_memory_unless_told_otherwise() {
        let plain = resolve(|raw| raw.swap_plain = true).unwrap();
        assert_eq!(plain.swap.unwrap().protection, Protection::Checked);
        assert!(!plain.paranoid);
        assert!(resolve(|raw| raw.paranoid = true).unwrap().paranoid);
    }

    #[test]
    fn a_recording_keeps_a_small_share_of_the_budget_unless_told_otherwise() {
        let resident = |memory: &str, given: Option<&str>| {
            let settings = resolve(|raw| {
                raw.memory = Some(memory.into());
                raw.record = Some("x.trace".into());
                raw.record_resident = given.map(str::to_owned);
            });
            settings.map(|settings| settings.record.unwrap().resident_max_bytes)
        };
        assert_eq!(resident("640M", None).unwrap(), 10 << 20);
        assert_eq!(resident("64M", None).unwrap(), 2 << 20);
        assert_eq!(resident("64M", Some("1M")).unwrap(), 1 << 20);
        for (given, remedy) in [
            ("4k", "512K"),
            ("40M", "half"),
            ("few", "--record-resident"),
        ] {
            let message = resident("64M", Some(given)).unwrap_err().to_string();
            assert!(message.contains(remedy), "{message}");
        }
        assert_eq!(resolve(|_| ()).unwrap().record, None);
    }

    #[test]
    fn a_given_swap_directory_must_be_usable() {
        let message = refusal(|raw| raw.swap_dir = Some("/nonexistent".into()));
        assert!(
            message.contains("/nonexistent") && message.contains("--swap-dir"),
            "{message}"
        );
    }

    #[test]
    fn without_a_usable_default_the_job_runs_without_swap_and_says_so() {
        let machine = Machine {
            swap_candidates: vec!["/nonexistent".into()],
            ..machine()
        };
        let raw = RunArgs {
            program: vec!["true".into()],
            ..RunArgs::default()
        };
        let settings = Settings::resolve(raw, &machine).unwrap();
        assert!(settings.swap.is_none());
        assert!(
            settings.warnings[0].contains("/nonexistent"),
            "{:?}",
            settings.warnings
        );
    }

    #[test]
    fn a_budget_above_the_cgroups_limit_is_warned_of() {
        let mut machine = machine();
        machine.memory.cgroup_limit_bytes = Some(100 << 20);
        let raw = RunArgs {
            memory: Some("200M".into()),
            no_swap: true,
            ..RunArgs::default()
        };
        let warning = |machine: &Machine| {
            let settings = Settings::resolve(raw.clone(), machine).unwrap();
            settings.warnings[0].clone()
        };
        let of_own = warning(&machine);
        assert!(
            of_own.contains("more than the 100M that the memory cgroup allows"),
            "{of_own}"
        );
        machine.memory.limited = Limited::Running;
        let of_running = warning(&machine);
        assert!(of_running.contains("the processes' memory"), "{of_running}");
    }
}
