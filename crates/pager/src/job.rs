//! A job from start to end: everything is set up here, then the supervisor runs.

use crate::attach;
use crate::budget::{largest_later, Budget, BUDGET_MIN};
use crate::companion::{dismiss, Companion};
use crate::family::Family;
use crate::ledger::Ledger;
use crate::lookout::Lookout;
use crate::own_group::{OwnCgroup, OwnGroup};
use crate::pool::Pool;
use crate::profile::{Profile, ProfileReport};
use crate::program::{program_command, takes_offers};
use crate::record::Recorder;
use crate::report::{Live, Report};
use crate::segments::Segments;
use crate::shared::{self, Shared};
use crate::store::SwapStore;
use crate::supervisor::{Ours, Started, Supervisor};
use pleat_backing::{Backing, Protection};
use pleat_codec::Choice;
use pleat_engine::{Engine, Preset, Settings, Victims};
use pleat_sys::channel::Listener;
use pleat_sys::grant::Grant;
use pleat_sys::inherited::{end_with_us, enter_group, raise_descriptor_limit, Inherited};
use pleat_sys::keeper::Keeper;
use pleat_sys::oom_score::OomScore;
use pleat_sys::process::keep_heap_small;
use pleat_sys::signals::{self, Signals};
use pleat_types::PAGE_SIZE;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

/// What is run, or runs already.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A program with its arguments, to be started.
    Program(Vec<OsString>),
    /// Processes by their numbers, which run already, with what they have started and will.
    Running(Vec<i32>),
}

/// What to run, and how.
pub struct Job {
    /// What.
    pub subject: Subject,
    /// Memory for everything: the job's resident memory, compressed pages, staging, supervisor.
    pub budget_bytes: u64,
    /// Where pages go that do not fit; `None`: they must fit.
    pub swap: Option<Swap>,
    /// Which codec folds which page.
    pub codec: Arc<Choice>,
    /// Whether pages that stay cold are compressed again, tighter, when there is time.
    pub recompress: bool,
    /// Layout, sizing, admission and write-out of the compressed cache. (Its codec is not looked at.)
    pub preset: Preset,
    /// Whether compressed pages in memory keep a checksum, by which it is seen that memory was damaged.
    pub checks: bool,
    /// Whether large private mappings of files become memory that can be folded.
    pub file_maps: bool,
    /// Whether memory that processes share by forks is taken away, too, where that can be done.
    pub shared_memory: bool,
    /// Whether processes take turns where they thrash together and there are more of them than CPUs.
    pub load_control: bool,
    /// Whether what the program leaves running is ended with it.
    pub kill_on_exit: bool,
    /// Whether the job has a memory cgroup of its own.
    pub own_cgroup: OwnCgroup,
    /// A trace of the job's page references, if wanted.
    pub record: Option<Record>,
    /// Whether to find out where the time of faults and evictions goes.
    pub profile: bool,
    /// The agent library.
    pub agent: PathBuf,
    /// The program that does what takes a privilege, if it is installed.
    pub helper: Option<PathBuf>,
    /// What differs in the program's environment from this process's: a value, or nothing.
    pub environment: Vec<(OsString, Option<OsString>)>,
    /// Called while the process has no other thread: starts what runs beside the job. Process ids; neither these nor what descends from
    /// them is of the job.
    pub beside: Option<Box<StartBeside>>,
    /// Called before the job is ended or left because it cannot go on, and when the kernel has killed for want of memory, with what is
    /// said of it. The job waits meanwhile.
    pub trouble: Option<Box<TellTrouble>>,
    /// Called a few times a second.
    pub live: Option<fn(&Live)>,
    /// No warnings.
    pub quiet: bool,
    /// Under what name others find the job, and what they are told; `None`: there is no control socket.
    pub known: Option<Known>,
}

/// What has happened to a job, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// pleat ends it.
    Stopped,
    /// It was running before, and pleat leaves it.
    Left,
    /// The kernel has killed the program, or a process beside it, for want of memory.
    Killed,
}

/// Tells of trouble, with what is said of it.
pub type TellTrouble = dyn Fn(Trouble, &str);

/// Starts processes beside the job.
pub type StartBeside = dyn Fn() -> io::Result<Vec<i32>>;

/// Makes JSON of the counters as they stand, and of the profile if there is one.
pub type StatsOf = dyn Fn(&Report, Option<&ProfileReport>) -> serde_json::Value;

/// How others know a job.
pub struct Known {
    /// Its name, which others may have, too.
    pub name: String,
    /// The supervisor of the job around this one, if there is one.
    pub inside_pid: Option<i32>,
    /// All that there is to say.
    pub stats: Box<StatsOf>,
    /// Whether it is said when there can be no socket.
    pub is_told: bool,
    /// Called once, when the job can be asked: starts whoever asks on behalf of others, on a thread of their own.
    pub listening: Option<Box<dyn Fn()>>,
}

/// A swap file.
#[derive(Clone)]
pub struct Swap {
    /// Where it lies.
    pub place: Place,
    /// Its largest size; `None`: as the disk allows.
    pub max_bytes: Option<u64>,
    /// What keeps its pages from being read, or taken for others.
    pub protection: Protection,
}

/// Where a swap file lies.
#[derive(Clone)]
pub enum Place {
    /// In this directory.
    Dir(PathBuf),
    /// There: something else than a file.
    Given(Arc<dyn Backing>),
}

/// A trace to be recorded.
#[derive(Debug)]
pub struct Record {
    /// Where to: empty, open for writing.
    pub file: File,
    /// Most memory in pages of the job that can be taken away: only faults are seen.
    pub resident_max_bytes: u64,
}

/// How a job ended, and what it did.
pub struct Outcome {
    /// How.
    pub ending: Ending,
    /// What.
    pub report: Report,
    /// Where its time went, if that was asked.
    pub profile: Option<ProfileReport>,
    /// What became of its processes.
    pub processes: Ledger,
    /// The kernel killed the program, or one beside it, for want of memory: what helps.
    pub memory_remedy: Option<&'static str>,
    /// The swap file, whose room is given back when this is dropped, at the latest with the process. That may take seconds.
    pub swap: Option<Arc<dyn Backing>>,
    /// Why there is no complete trace, though one was wanted.
    pub record_error: Option<String>,
}

/// How a job ended.
#[derive(Debug)]
pub enum Ending {
    /// The program exited with this status.
    Exited(i32),
    /// A signal killed the program.
    Signalled(i32),
    /// All processes that were running before have ended.
    Over,
    /// Processes that were running before were left, with all their memory, and go on.
    Left,
    /// pleat had to end the job.
    Stopped {
        /// Why, and what helps.
        message: String,
    },
}

/// Why a job did not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program is not there.
    #[error("{name}: program not found; check its name and PATH")]
    ProgramNotFound {
        /// As given.
        name: String,
    },
    /// The program cannot be executed.
    #[error("{name}: cannot be executed ({source}); check its permissions and format")]
    ProgramNotExecutable {
        /// As given.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// The swap file cannot be made.
    #[error("{0}")]
    Swap(String),
    /// The machine does not allow what pleat needs.
    #[error("{0}; `pleat doctor` tells what is missing")]
    Unsupported(String),
    /// The budget is too small to start anything.
    #[error(
        "a budget of {} KiB is too small to start a program; give at least --memory {}M",
        have >> 10, need >> 20
    )]
    TooSmall {
        /// Bytes needed.
        need: u64,
        /// Bytes given.
        have: u64,
    },
    /// Another command line would do.
    #[error("{0}")]
    Mistake(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

fn other(what: &str) -> impl Fn(io::Error) -> RunError + '_ {
    move |error| {
        let remedy = match error.raw_os_error() {
            Some(libc::EMFILE) => "; raise `ulimit -n`",
            Some(libc::EFBIG) => "; raise `ulimit -f`",
            _ => "",
        };
        RunError::Other(format!("cannot {what}: {error}{remedy}"))
    }
}

/// Runs a job to its end.
///
/// # Errors
/// When it cannot be started; see [`RunError`].
pub fn run(job: &Job) -> Result<Outcome, RunError> {
    run_beside(job, &mut [])
}

/// Runs a job to its end, with companions beside it.
///
/// # Errors
/// When it cannot be started; see [`RunError`].
pub fn run_beside(job: &Job, companions: &mut [Box<dyn Companion>]) -> Result<Outcome, RunError> {
    if job.budget_bytes < BUDGET_MIN {
        return Err(RunError::TooSmall {
            need: BUDGET_MIN,
            have: job.budget_bytes,
        });
    }
    check_swap_max(job)?;
    let family = match &job.subject {
        Subject::Program(_) => Family::default(),
        Subject::Running(pids) => attach::family(pids)?,
    };
    let start = Instant::now();
    keep_heap_small();
    let signals = Signals::collect(&[
        libc::SIGCHLD,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGTSTP,
        libc::SIGCONT,
        libc::SIGWINCH,
        libc::SIGALRM,
        libc::SIGXFSZ,
    ])
    .map_err(other("collect signals"))?;
    let inherited = Inherited::note();
    raise_descriptor_limit();
    let own_group = OwnGroup::make(job.own_cgroup, job.budget_bytes).map_err(no_own_group)?;
    let before = Before {
        inherited,
        // Where it fails, `pleat doctor` says why.
        oom_score: OomScore::lower().ok().flatten(),
    };
    // Before any thread: these are forked from this process.
    let helpers = companions.iter_mut().map(|companion| companion.fork());
    let helpers: io::Result<Vec<i32>> = helpers.collect();
    let mut helpers = helpers.map_err(other("start a helper"))?;
    let grant = Grant::find(job.helper.as_deref());
    helpers.extend(grant.helper());
    let beside = job.beside.as_ref().map_or(Ok(Vec::new()), |start| start());
    let beside = beside.map_err(other("start a process beside the job"))?;
    helpers.extend(&beside);
    let family = family.without(beside);
    if family.is_given() && !grant.reports_forks() {
        return Err(RunError::Unsupported(attach::NO_FORKS.into()));
    }
    let place = own_group.as_ref().map(|own| own.group().place().clone());
    let keeper = Keeper::start(place).map_err(other("start the keeper"))?;
    helpers.push(keeper.pid());
    helpers.extend(keeper.second());
    let beside = (own_group.as_ref(), keeper.pid(), family);
    let started = start_job(job, &signals, before, grant, companions, beside);
    if started.is_err() {
        dismiss(companions);
    }
    let result = started.and_then(|started| {
        let shared = started.shared.clone();
        let lookout = Lookout::start(shared.clone()).map_err(other("start a thread"))?;
        let pool = Pool::start(shared.clone()).map_err(other("start a thread"))?;
        let ours = Ours {
            signals: &signals,
            keeper: &keeper,
            lookout: &lookout,
            companions,
            helpers,
            own_group,
        };
        let mut supervisor = Supervisor::new(job, started, ours, start);
        let ending = supervisor.run();
        supervisor.see_companions_off();
        pool.stop();
        let recorded = shared.recorder.as_ref().map(Recorder::finish);
        let record_error = match recorded.transpose() {
            Ok(references) => {
                let references = references.unwrap_or(0);
                shared.meters.recorded_references.add(references);
                None
            }
            Err(error) => Some(error),
        };
        Ok(Outcome {
            ending,
            report: supervisor.report(),
            processes: supervisor.ledger(),
            memory_remedy: supervisor.memory_remedy(),
            profile: shared.profile.as_ref().map(|profile| profile.report()),
            swap: shared.swap.as_ref().map(|swap| swap.backing.clone()),
            record_error,
        })
    });
    // The job's group is gone by now: before that, somebody has to be there to lift its limit for us.
    keeper.dismiss();
    result
}

fn no_own_group(why: String) -> RunError {
    RunError::Unsupported(format!(
        "--hard needs a memory cgroup of the job's own, which cannot be had here: {why}"
    ))
}

/// What was there before, which programs are given.
struct Before {
    inherited: Inherited,
    oom_score: Option<OomScore>,
}

/// A swap file that has no room for what is written at once takes nothing, and the job would wait for it.
fn check_swap_max(job: &Job) -> Result<(), RunError> {
    let need = u64::from(job.preset.cluster_bytes(job.budget_bytes));
    match job.swap.as_ref().and_then(|swap| swap.max_bytes) {
        Some(max) if max < need => Err(RunError::Mistake(format!(
            "--swap-max {max} is less than the {} KiB that are written at once; give at least {}K, or --no-swap",
            need >> 10,
            need >> 10
        ))),
        _ => Ok(()),
    }
}

/// Makes everything the threads share, starts the companions, and the program last.
fn start_job(
    job: &Job,
    signals: &Signals,
    before: Before,
    grant: Grant,
    companions: &mut [Box<dyn Companion>],
    (own_group, keeper_pid, family): (Option<&OwnGroup>, i32, Family),
) -> Result<Started, RunError> {
    let (name, listener) = listen(own_group)?;
    signals::adopt_orphans().map_err(other("adopt the job's orphans"))?;
    let swap = job.swap.as_ref().map(SwapStore::open).transpose()?;
    let (engine, budget_max_bytes) = make_engine(job, swap.as_ref())?;
    let parts = shared::Parts {
        engine,
        swap,
        codec: job.codec.clone(),
        recorder: start_recorder(job)?,
        profile: job.profile.then(|| Arc::new(Profile::new())),
        recompress: job.recompress,
        has_spare_cpu: true,
    };
    let shared = Shared::of(family.clone(), parts);
    let shared = shared.map_err(other("make an event descriptor"))?;
    let shared = Arc::new(shared);
    for companion in companions.iter_mut() {
        companion.start(&shared)?;
    }
    if job.shared_memory {
        start_segments(&shared)?;
    }
    let is_eager = !pleat_sys::inject::may_trace(keeper_pid);
    let takes_offers = takes_offers(is_eager);
    let program = match &job.subject {
        Subject::Program(words) => {
            let ways = (is_eager, takes_offers);
            let mut command = program_command((job, words), &name, companions, ways)?;
            signals::exec_with_mask_of(&mut command, signals);
            before.inherited.leave_to(&mut command);
            end_with_us(&mut command);
            if let Some(oom_score) = before.oom_score {
                oom_score.leave_to(&mut command);
            }
            if let Some(own) = own_group {
                enter_group(&mut command, own.group().entrance());
            }
            spawn(words, &mut command)?
        }
        Subject::Running(pids) => pids.first().copied().unwrap_or_default(),
    };
    Ok(Started {
        shared,
        listener,
        program,
        family,
        grant,
        socket: name,
        takes_offers,
        budget_max_bytes,
    })
}

/// Has shared memory compressed, too.
fn start_segments(shared: &Arc<Shared>) -> Result<(), RunError> {
    let started = Segments::start(shared).map_err(|error| {
        let why = "which pages of shared memory may be taken away cannot be told here";
        RunError::Unsupported(format!(
            "{why} ({error}); it takes root's rights, and a kernel that describes its types in /sys/kernel/btf. \
             Run without --shared-memory"
        ))
    })?;
    // The first and only time.
    let _ = shared.segments.set(started);
    Ok(())
}

/// The engine, and the largest budget that it can be given later.
fn make_engine(job: &Job, store: Option<&SwapStore>) -> Result<(Engine, u64), RunError> {
    let budget = Budget::of(job.budget_bytes);
    let swap_max = job.swap.as_ref().and_then(|swap| swap.max_bytes);
    let settings = Settings {
        budget_bytes: budget.engine_bytes(),
        reserve_bytes: budget.reserve_bytes,
        floor_bytes: budget.floor_bytes,
        run_max: job.run_max(),
        swap: store.map(|store| {
            let overhead_bytes = store.seal.overhead_bytes();
            job.preset.swap(job.budget_bytes, swap_max, overhead_bytes)
        }),
        // Nobody tells when a program writes to a page.
        tracks_writes: false,
        write_out: job.preset.write_out,
        // A recording wants to see the uses of neighbours, too.
        brings_neighbours: job.preset.brings_neighbours && job.record.is_none(),
        keeps_copies: job.preset.keeps_copies && job.record.is_none(),
        checks: job.checks,
    };
    // A recording is first in, first out: who stays longer is not seen as often.
    let mut preset = job.preset.clone();
    if job.record.is_some() {
        preset.victims = Victims::Fifo;
    }
    // Where addresses are limited there are only as many as this budget needs.
    let largest = largest_later(job.budget_bytes);
    let (largest, parts) = match preset.parts(largest) {
        Ok(parts) => (largest, Ok(parts)),
        Err(_) => (job.budget_bytes, preset.parts(job.budget_bytes)),
    };
    let mut engine = Engine::new(settings, parts.map_err(RunError::Other)?);
    let pages = |record: &Record| record.resident_max_bytes / PAGE_SIZE as u64;
    engine.limit_resident(job.record.as_ref().map(pages));
    Ok((engine, largest))
}

fn start_recorder(job: &Job) -> Result<Option<Recorder>, RunError> {
    let start = |record: &Record| Recorder::start(record.file.try_clone()?);
    let started = job.record.as_ref().map(start).transpose();
    started.map_err(other("start recording"))
}

impl Job {
    /// Whether processes may be made to rest. A recording is to show what they do by themselves.
    pub(crate) fn has_load_control(&self) -> bool {
        self.load_control && self.record.is_none()
    }

    /// Most pages filled per fault: a recording wants to see the neighbours' uses, too.
    pub(crate) fn run_max(&self) -> u32 {
        match self.record {
            Some(_) => 1,
            None => self.preset.run_max,
        }
    }
}

/// Listens for processes: by the name of the job's group if it has one, by which those in it can tell that nobody minds it any
/// more (`agent/src/abandoned.rs`).
fn listen(own_group: Option<&OwnGroup>) -> Result<(String, Listener), RunError> {
    if let Some(own) = own_group {
        let name = own.group().name().to_owned();
        // Somebody may have taken it, who saw the group.
        if let Ok(listener) = Listener::bind(&name) {
            return Ok((name, listener));
        }
    }
    let name = socket_name().map_err(other("draw a random name"))?;
    let listener = Listener::bind(&name).map_err(other("listen for processes"))?;
    Ok((name, listener))
}

/// A name that no other job has. It is no secret: /proc/net/unix shows it to everybody, and who may speak is
/// decided by who it is (`supervisor/trust.rs`).
fn socket_name() -> io::Result<String> {
    let [high, low] = pleat_sys::random::bits128()?;
    Ok(format!("pleat-{high:016x}{low:016x}"))
}

fn spawn(words: &[OsString], command: &mut Command) -> Result<i32, RunError> {
    let name = || words[0].to_string_lossy().into_owned();
    match command.spawn() {
        Ok(child) => Ok(child.id() as i32),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(RunError::ProgramNotFound { name: name() })
        }
        Err(source) => Err(RunError::ProgramNotExecutable {
            name: name(),
            source,
        }),
    }
}
