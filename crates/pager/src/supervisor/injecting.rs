//! Starting agents when memory gets short, and not before.
//!
//! A process that loads the library announces itself; others (static programs, those of other C libraries, those whose
//! environment has lost what loads it) are found by looking. All are left alone until memory gets short. Then each gets its
//! agent by a thread of ours that traces one of its threads for a moment (`pleat_sys::inject`), and the agent says hello. Where that cannot be
//! done the process runs as it is, and is named; it is tried again from time to time, for what was in the way may be gone: a
//! debugger, or the program that could not be traced.

use super::inner::is_of_inner_job;
use super::preparing::BEACON_LEN;
use super::unmanaged::Obstacle;
use super::Supervisor;
use crate::census::Stage;
use crate::keeping;
use crate::link::Link;
use crate::shared::lock;
use pleat_sys::channel::Channel;
use pleat_sys::inject::{
    inject, offer, threads, ControlBlocks, Given, Image, InjectError, Request, TraceError,
};
use pleat_sys::procfs;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// An agent that was put into a process says hello within this time; in which it has no CPU does not count, up to the second.
const HEARD_WITHIN: Duration = Duration::from_secs(2);
const HEARD_MAX: Duration = Duration::from_secs(60);
/// Until it is tried again where no thread would stop, and where something else was in the way.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_secs(1);
/// No thread stops for so long: that is said.
const BUSY_MAX: Duration = Duration::from_secs(2);
/// A process that has no memory for its agent says so every few milliseconds; who has not for so long has some, or has given up.
const LACKS_FOR: Duration = Duration::from_millis(50);
/// Processes that get their agents at the same time.
const AT_ONCE: usize = 4;

/// What came of putting an agent into a process.
enum Outcome {
    /// It runs, by this thread; these are the control blocks of the process's threads.
    Placed(Option<i32>, ControlBlocks),
    /// It was there, and this is the conversation that it has offered.
    Found(Channel),
    /// There is none.
    Failed(InjectError),
    /// One that was placed has offered this conversation.
    Heard(Channel),
    /// One that was placed has offered none that could be taken.
    Unheard(InjectError),
}

/// What is wanted of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// That it has an agent.
    Agent,
    /// The conversation that its agent offers, if it has one.
    Offer,
}

/// How far a process has come.
enum State {
    /// A thread of ours is at it.
    UnderWay,
    /// Its agent runs, and has not said hello; these are the control blocks of its threads.
    Placed(Silence, ControlBlocks),
    /// It is not tried again before.
    Failed(Instant),
}

impl State {
    /// Whether an agent is being put into it, or was and has said nothing.
    fn is_expected(&self) -> bool {
        matches!(self, State::UnderWay | State::Placed(..))
    }
}

/// An agent that has not said hello.
#[derive(Clone, Copy)]
struct Silence {
    since: Instant,
    /// When it was last seen to wait for a CPU.
    starved: Instant,
    /// Its thread, where that is known.
    agent: Option<i32>,
}

impl Silence {
    fn from(now: Instant, agent: Option<i32>) -> Silence {
        Silence {
            since: now,
            starved: now,
            agent,
        }
    }

    /// Whether it has lasted too long. To be asked again and again: what the thread does is looked at once half of the time is over, and nearly all
    /// agents say hello long before.
    fn is_over(&mut self, now: Instant) -> bool {
        let quiet = now.saturating_duration_since(self.starved);
        if quiet < HEARD_WITHIN / 2 {
            return false;
        }
        if now.saturating_duration_since(self.since) > HEARD_MAX {
            return true;
        }
        if self.agent.is_some_and(procfs::waits_for_cpu) {
            self.starved = now;
            return false;
        }
        quiet > HEARD_WITHIN
    }
}

/// One process without an agent.
struct Patient {
    state: State,
    since: Instant,
    /// Since when it loads its libraries.
    loading_since: Option<Instant>,
    is_named: bool,
}

/// Processes that are to get an agent.
#[derive(Default)]
pub(super) struct Injections {
    image: Option<io::Result<Arc<Image>>>,
    patients: HashMap<i32, Patient>,
    results: Arc<Mutex<Vec<(i32, Outcome)>>>,
    /// When a process had last no memory for its agent.
    lacked_at: Arc<Mutex<Option<Instant>>>,
}

impl Injections {
    /// Whether a process that stands still has no memory for its agent. The kernel knows of nobody who waits then.
    pub(super) fn lack_memory(&self) -> bool {
        lock(&self.lacked_at).is_some_and(|at| at.elapsed() < LACKS_FOR)
    }

    /// Whether a process is to be tried now.
    pub(super) fn is_due(&self, pid: i32, now: Instant) -> bool {
        match self.patients.get(&pid).map(|patient| &patient.state) {
            None => true,
            Some(State::Failed(until)) => now >= *until,
            Some(State::UnderWay | State::Placed(..)) => false,
        }
    }

    /// Whether a thread of ours may trace a child of this process, as orphans of the job become at any time.
    pub(super) fn are_children_traced(&self) -> bool {
        self.under_way() > 0
    }

    /// Notes a process, if it is new.
    fn meet(&mut self, pid: i32, now: Instant) -> &mut Patient {
        self.patients.entry(pid).or_insert_with(|| Patient {
            state: State::Failed(now),
            since: now,
            loading_since: None,
            is_named: false,
        })
    }

    /// For how long a process was found loading its libraries.
    fn loading(&self, pid: i32, now: Instant) -> Duration {
        let patient = self.patients.get(&pid);
        let since = patient.and_then(|patient| patient.loading_since);
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn under_way(&self) -> usize {
        let states = self.patients.values().map(|patient| &patient.state);
        states.filter(|s| matches!(s, State::UnderWay)).count()
    }

    /// Whether a process is likely to have an agent when one is needed: it was not tried in vain.
    pub(super) fn is_hopeful(&self, pid: i32) -> bool {
        self.patients
            .get(&pid)
            .is_none_or(|patient| !patient.is_named)
    }

    /// The agent's library, if it was needed and can be read.
    pub(super) fn image(&self) -> Option<Arc<Image>> {
        self.image.as_ref()?.as_ref().ok().cloned()
    }

    /// Has a process tried now, unless somebody is at it.
    pub(super) fn hasten(&mut self, pid: i32, now: Instant) {
        if let Some(Patient {
            state: State::Failed(until),
            ..
        }) = self.patients.get_mut(&pid)
        {
            *until = now;
        }
    }

    /// Whether an agent was put into a process that has said nothing.
    pub(super) fn is_expected(&self, pid: i32) -> bool {
        let patient = self.patients.get(&pid);
        patient.is_some_and(|patient| patient.state.is_expected())
    }

    /// Whether any process is just getting an agent.
    pub(super) fn are_any_expected(&self) -> bool {
        let mut patients = self.patients.values();
        patients.any(|patient| patient.state.is_expected())
    }

    /// Whether an agent was put into a process, and nobody is at it.
    fn is_placed(&self, pid: i32) -> bool {
        let state = self.patients.get(&pid).map(|patient| &patient.state);
        matches!(state, Some(State::Placed(..)))
    }

    /// Whether an agent has said hello before it is known what must stay in its process.
    fn is_unsettled(&self, pid: i32) -> bool {
        let state = self.patients.get(&pid).map(|patient| &patient.state);
        matches!(state, Some(State::UnderWay))
    }
}

/// What is known of the beacons of managed processes in their children, when a process is to get an agent.
pub(super) struct Beacons {
    /// There are managed processes.
    has_any: bool,
    /// Where they are, of children that have not said who they are.
    places: HashSet<u64>,
}

impl Beacons {
    /// The place of a process's beacon, if it is the child of a managed one, and 0 if it is not. To be found, rather, where
    /// its space is not known yet.
    ///
    /// A child has inherited what its parent has registered. A second userfaultfd would know nothing of what is away there.
    fn beacon_of(&self, pid: i32) -> Result<u64, InjectError> {
        if !self.has_any {
            return Ok(0);
        }
        let registered = procfs::registered(pid).map_err(|_| TraceError::Gone)?;
        if registered.is_empty() {
            return Ok(0);
        }
        let is_there = |beacon: &&u64| {
            let mut wiped = registered.iter().filter(|one| one.is_wiped);
            let end = **beacon + BEACON_LEN;
            **beacon != 0 && wiped.any(|one| one.start <= **beacon && end <= one.end)
        };
        let found = self.places.iter().find(is_there);
        found.copied().ok_or(InjectError::Trace(TraceError::Busy))
    }

    /// Whether a process is a child that has not said who it is.
    pub(super) fn are_of(&self, pid: i32) -> bool {
        self.beacon_of(pid).is_ok_and(|place| place != 0)
    }
}

impl Supervisor<'_> {
    pub(super) fn beacons(&self) -> Beacons {
        let has_any = !lock(&self.shared.links).is_empty();
        let claims = lock(&self.shared.claims);
        let places = claims
            .values()
            .map(|link| link.beacon.load(Ordering::Acquire));
        Beacons {
            has_any,
            places: places.collect(),
        }
    }

    /// Has agents put into processes that have none, of those that have at least so much memory of their own.
    pub(super) fn inject_agents(&mut self, min_bytes: u64) {
        self.settle_injections();
        let now = Instant::now();
        let mut silent: Vec<(u64, i32)> = Vec::new();
        for (pid, process) in &self.census.processes {
            let is_silent = matches!(process.stage, Stage::Silent) && !process.is_bare;
            let bytes = process.foldable_bytes(&self.shared);
            if is_silent && bytes >= min_bytes && self.injections.is_due(*pid, now) {
                silent.push((bytes, *pid));
            }
        }
        // The largest first.
        silent.sort_unstable_by(|one, other| other.cmp(one));
        for (_, pid) in silent {
            if self.injections.under_way() >= AT_ONCE {
                break;
            }
            // Children end, too, and others wait to hear of it.
            if self.is_reaping_due {
                break;
            }
            self.start_injection(pid, Wanted::Agent, now);
        }
    }

    /// Whether it is the child of a managed process, and has memory that may be away.
    pub(super) fn is_served(&self, pid: i32) -> bool {
        let by_pid = lock(&self.shared.by_pid);
        by_pid.get(&pid).is_some_and(|link| !link.uffd.is_dead())
    }

    /// Has an agent put into a process, unless that is under way.
    pub(super) fn want_agent(&mut self, pid: i32) {
        let now = Instant::now();
        if self.injections.is_due(pid, now) {
            self.start_injection(pid, Wanted::Agent, now);
        }
    }

    pub(super) fn start_injection(&mut self, pid: i32, wanted: Wanted, now: Instant) {
        let Some(process) = self.census.processes.get(&pid) else {
            return;
        };
        if self.is_served(pid) {
            return;
        }
        if is_of_inner_job(pid) {
            return self.note_failure(pid, InjectError::Declined, now);
        }
        let age = now.saturating_duration_since(process.since);
        let pidfd = process.pidfd.clone();
        let read = || Image::read(&self.job.agent).map(Arc::new);
        let image = match self.injections.image.get_or_insert_with(read) {
            Ok(image) => image.clone(),
            Err(error) => {
                let error = io::Error::new(error.kind(), error.to_string());
                return self.note_failure(pid, InjectError::Step("read the agent", error), now);
            }
        };
        let results = self.injections.results.clone();
        let lacked_at = self.injections.lacked_at.clone();
        let managed = self.shared.clone();
        let heard = (results.clone(), self.shared.clone());
        let request = Request {
            name: self.socket.clone(),
            age,
            loading: self.injections.loading(pid, now),
            are_forks_reported: self.grant.reports_forks(),
            takes_offers: self.takes_offers,
            is_only_heard: wanted == Wanted::Offer,
            lack_memory: Box::new(move || *lock(&lacked_at) = Some(Instant::now())),
            is_managed: Box::new(move || lock(&managed.by_pid).contains_key(&pid)),
            heard: Box::new(move |channel| {
                lock(&heard.0).push((pid, Outcome::Heard(channel)));
                heard.1.main_bell.ring();
            }),
        };
        let shared = self.shared.clone();
        let beacons = self.beacons();
        let work = move || {
            let tell = |outcome| {
                lock(&results).push((pid, outcome));
                shared.main_bell.ring();
            };
            let process = (pid, pidfd.clone());
            let started = match inject(process, &image, &request, || beacons.beacon_of(pid)) {
                Ok(Given::Started(started)) => started,
                Ok(Given::Heard(channel)) => return tell(Outcome::Found(channel)),
                Err(error) => return tell(Outcome::Failed(error)),
            };
            tell(Outcome::Placed(started.agent, started.blocks));
            if !request.takes_offers || started.is_heard {
                return;
            }
            // Nothing is traced any more. The main thread itself sees it if this comes to nothing.
            let mut silence = Silence::from(Instant::now(), started.agent);
            let is_late = || silence.is_over(Instant::now());
            match offer::wait_for((pid, &pidfd), started.given, is_late) {
                Ok(Some(channel)) => tell(Outcome::Heard(channel)),
                Ok(None) => {}
                Err(error) => tell(Outcome::Unheard(error)),
            }
        };
        // It must end: then all that it traced goes on.
        let thread = std::thread::Builder::new().name("pleat-inject".into());
        match thread.stack_size(128 << 10).spawn(work) {
            Ok(_) => {
                self.injections.meet(pid, now).state = State::UnderWay;
            }
            Err(error) => self.note_failure(pid, InjectError::Step("be traced", error), now),
        }
    }

    /// Takes note of what has come of it.
    pub(super) fn settle_injections(&mut self) {
        let now = Instant::now();
        let results = std::mem::take(&mut *lock(&self.injections.results));
        for (pid, outcome) in results {
            match outcome {
                Outcome::Placed(agent, blocks) => self.note_placed(pid, (agent, blocks), now),
                Outcome::Found(channel) => {
                    if let Some(patient) = self.injections.patients.get_mut(&pid) {
                        patient.state = State::Placed(Silence::from(now, None), Vec::new());
                    }
                    self.take_up(channel);
                }
                Outcome::Failed(error) => self.note_failure(pid, error, now),
                Outcome::Heard(channel) => self.take_up(channel),
                // Else it is being tried again.
                Outcome::Unheard(error) if self.injections.is_placed(pid) => {
                    self.note_failure(pid, error, now);
                }
                Outcome::Unheard(_) => {}
            }
        }
        let mut unheard = Vec::new();
        let processes = &self.census.processes;
        self.injections.patients.retain(|pid, patient| {
            let process = processes.get(pid);
            if let (Some(process), State::Placed(silence, _)) = (process, &mut patient.state) {
                let is_silent = matches!(process.stage, Stage::Silent);
                if is_silent && silence.is_over(now) {
                    unheard.push(*pid);
                }
            }
            // A thread of ours knows it by its number until it is done.
            process.is_some() || matches!(patient.state, State::UnderWay)
        });
        for pid in unheard {
            self.note_failure(pid, InjectError::Unheard, now);
        }
    }

    fn note_placed(
        &mut self,
        pid: i32,
        (agent, blocks): (Option<i32>, ControlBlocks),
        now: Instant,
    ) {
        self.shared.meters.injected_agents.add(1);
        let process = self.census.processes.get(&pid);
        if let Some(Stage::Managed(link)) = process.map(|process| &process.stage) {
            // It was faster.
            self.injections.patients.remove(&pid);
            let blocks = blocks.into_iter().filter_map(|(_, block)| block);
            keeping::keep_by_agent(link, blocks.collect(), now);
        } else if let Some(patient) = self.injections.patients.get_mut(&pid) {
            patient.state = State::Placed(Silence::from(now, agent), blocks);
        }
    }

    fn note_failure(&mut self, pid: i32, error: InjectError, now: Instant) {
        let patient = self.injections.meet(pid, now);
        let is_busy = matches!(error, InjectError::Trace(TraceError::Busy));
        // Whoever traces it may do so for a moment only. And a process that loads the library says hello by itself, of
        // which it may have been kept until now.
        let is_refused = matches!(error, InjectError::Trace(TraceError::Refused(_)));
        let may_pass = is_busy || is_refused;
        let is_loading = matches!(error, InjectError::Loading);
        let is_gone = is_loading
            || matches!(
                error,
                InjectError::Trace(TraceError::Gone) | InjectError::OffersNothing
            );
        let loading_since = patient.loading_since.take().unwrap_or(now);
        patient.loading_since = is_loading.then_some(loading_since);
        let is_new = now.saturating_duration_since(patient.since) < BUSY_MAX;
        let pause = if is_busy || is_gone {
            BUSY_PAUSE
        } else {
            PAUSE
        };
        patient.state = State::Failed(now + pause);
        // Of another job, or on purpose: nobody need be told.
        let is_meant = matches!(error, InjectError::Declined);
        if is_meant && !std::mem::replace(&mut patient.is_named, true) {
            self.shared.meters.unmanaged_processes.add(1);
            if let Some(process) = self.census.processes.get_mut(&pid) {
                let why =
                    "it is of a job inside this one, or its environment says so (PLEAT_SOCKET)";
                process.why_unmanaged = Some(why.into());
            }
            return;
        }
        let is_told = !(is_gone || patient.is_named || may_pass && is_new);
        if is_told {
            patient.is_named = true;
            self.name_unmanaged(pid, "runs unmanaged", &Obstacle::Injection(error));
        }
    }

    /// A process is managed now. Tells its agent what must stay in memory of its threads, where nothing in the process does.
    pub(super) fn keep_control_blocks(&mut self, pid: i32, link: &Link, channel: &Channel) {
        if self.injections.is_unsettled(pid) {
            // They are not known yet.
            return;
        }
        let placed = self.injections.patients.remove(&pid);
        let blocks = match placed.map(|patient| patient.state) {
            Some(State::Placed(_, blocks)) => blocks,
            _ => Vec::new(),
        };
        if let Some(process) = self.census.processes.get_mut(&pid) {
            process.threads_met = blocks.iter().map(|(tid, _)| *tid).collect();
        }
        let blocks = blocks.into_iter().filter_map(|(_, block)| block);
        keeping::keep(link, channel, blocks.collect(), Instant::now());
    }

    /// The same of threads that have come since.
    pub(super) fn meet_threads(&mut self) {
        for (pid, process) in &mut self.census.processes {
            let Stage::Managed(link) = &process.stage else {
                continue;
            };
            if !process.is_injected {
                continue;
            }
            let threads: HashSet<i32> = threads::of(*pid).into_iter().collect();
            let new = threads.difference(&process.threads_met);
            let blocks = new.filter_map(|tid| threads::control_block(*tid));
            keeping::keep_by_agent(link, blocks.collect(), Instant::now());
            process.threads_met = threads;
        }
    }
}
