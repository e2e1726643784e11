//! What the supervisor's threads share: the engine, the queue of pages to fold, the address spaces.
//!
//! Locks are taken in this order and never across a system call that can wait or a codec call:
//! `links`, then a link's `take`, then `engine`, then a ring's free list; the recorder's by itself.

use crate::allowance::Allowance;
use crate::crowd::Crowd;
use crate::ends::Failure;
use crate::engine_lock::{EngineLock, Held};
use crate::family::Family;
use crate::files::Readers;
use crate::folds::Folds;
use crate::latency::Latencies;
pub use crate::link::{AgentLink, Link};
use crate::meters::Meters;
use crate::pace::Pace;
use crate::parallel::FaultBatches;
use crate::ports::{Linux, Machine, Userfault};
use crate::profile::{Profile, Stopwatch};
use crate::record::Recorder;
use crate::rings::Rings;
use crate::scratch::Scratches;
use crate::segments::Segments;
use crate::store::SwapStore;
use pleat_codec::Choice;
use pleat_engine::{Engine, BLOCK_PAGES};
use pleat_sys::process::{readable, wait, Bell};
use pleat_types::{PageNo, SpaceId};
use pleat_wire::message::Token;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Everything the threads of one job share.
pub struct Shared {
    /// The page cache; taken by [`Shared::engine`].
    engine: EngineLock<Engine>,
    /// Clock, threads and processes.
    pub machine: Arc<dyn Machine>,
    /// So many more folding threads may spin: the first that ask, where there are CPUs enough.
    may_spin: AtomicUsize,
    /// CPUs that there are. With one, nobody gains by looking for what another thread does; with two, a program's thread
    /// and one of ours leave none idle.
    pub cpus: usize,
    /// Where its threads run.
    pub crowd: Crowd,
    /// The swap file, if there is one.
    pub swap: Option<SwapStore>,
    /// Which codec folds which page.
    pub codec: Arc<Choice>,
    /// What pages cost.
    pub pace: Pace,
    /// Where page references go, if they are recorded.
    pub recorder: Option<Recorder>,
    /// Where time goes, if that is asked.
    pub profile: Option<Arc<Profile>>,
    /// Whether pages that stay cold are compressed again.
    pub recompress: bool,
    /// Memory that is spoken for though nobody uses it yet; counted as used.
    pub set_aside_bytes: AtomicU64,
    /// Whether the engine's account has it too.
    pub is_set_aside: AtomicBool,
    /// Pages waiting to be folded.
    pub folds: Folds,
    /// Faults that are answered by several threads.
    pub batches: FaultBatches,
    /// What spaces' threads work with.
    pub scratches: Scratches,
    /// Most pages filled at once.
    pub run_pages: u32,
    /// Read mapped files.
    pub readers: Readers,
    /// Wakes the writer.
    pub writer: Gate,
    /// Every managed address space.
    pub links: Mutex<Vec<Arc<Link>>>,
    /// Who else has pages that can be taken away.
    pub holders: RwLock<Vec<Arc<dyn Holder>>>,
    /// Memory that processes share by forks, where that is to be taken away.
    pub segments: OnceLock<Arc<Segments>>,
    /// Managed address spaces by process.
    pub by_pid: Mutex<HashMap<i32, Arc<Link>>>,
    /// Forked children that nobody has claimed, by the token that only their memory holds.
    pub claims: Mutex<HashMap<Token, Arc<Link>>>,
    /// Userfaultfds of processes that cannot be served and are not known: open as long as the job lasts, they
    /// keep these from reading zeros.
    pub graves: Mutex<Vec<Arc<dyn Userfault>>>,
    /// What is to be said to the user, by the main thread.
    pub news: Mutex<Vec<String>>,
    /// Staging rings; a ring lives as long as a space or a staged page needs it.
    pub rings: Rings,
    /// What is counted outside the engine.
    pub meters: Meters,
    /// How long faults took.
    pub(crate) latencies: Latencies,
    /// Space threads that wait for memory.
    pub starving: Arc<AtomicU64>,
    /// Pages that may be taken away until the next look.
    pub may_take: Allowance,
    /// The page that the kernel has refused memory for longest, though it was to be filled whatever memory there is.
    pub refused: Mutex<Option<RefusedFill>>,
    /// What last went wrong with the swap file.
    pub swap_error: Mutex<Option<String>>,
    /// Why the job must be ended, once there is a reason.
    pub failure: Mutex<Option<Failure>>,
    /// The agents of forked children offer their conversations.
    pub are_offers_made: AtomicBool,
    /// Wakes the main thread.
    pub main_bell: Bell,
    /// The job is over: threads are to end.
    pub over: AtomicBool,
}

/// Locks, also when a thread panicked with the lock held: the panic ends the job anyway.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// CPUs that this process may use.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Messages that wait to be said.
const NEWS_MAX: usize = 16;

/// Folding threads that may stay awake to help where there are so many CPUs. More of them would hand each other the
/// few pages that there are.
pub(crate) fn spinning_helpers(cpus: usize) -> usize {
    (cpus / 4).max(1)
}

/// Pages that the engine hears of with one hold of its lock, where there are more than two CPUs: about 4 us.
const PAGES_A_HOLD: usize = 4;

/// Rounds of waiting that are enough for another thread to get a lock that was let go.
const PAUSE: u32 = 20;

/// What a job brings along for [`Shared`].
pub struct Parts {
    /// The page cache.
    pub engine: Engine,
    /// The swap file, if there is one.
    pub swap: Option<SwapStore>,
    /// Which codec folds which page.
    pub codec: Arc<Choice>,
    /// Where page references go, if they are recorded.
    pub recorder: Option<Recorder>,
    /// Where time goes, if that is asked.
    pub profile: Option<Arc<Profile>>,
    /// Whether pages that stay cold are compressed again.
    pub recompress: bool,
    /// Whether a program that waits for a page leaves a CPU idle, if there are several: then a folding thread
    /// may spin, and what it does costs the program nothing. Not so with many clients of a server.
    pub has_spare_cpu: bool,
}

/// A page that cannot be filled for want of memory.
#[derive(Clone, Copy, Debug)]
pub struct RefusedFill {
    /// The process that waits for it.
    pub pid: i32,
    /// Since when.
    pub since: Instant,
    /// When it was last tried.
    pub at: Instant,
}

impl RefusedFill {
    /// It is tried again much more often.
    const TRIED_WITHIN: Duration = Duration::from_secs(1);

    /// Whether it is tried still.
    pub fn is_current(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < RefusedFill::TRIED_WITHIN
    }
}

impl Shared {
    /// What threads share that have not begun yet.
    ///
    /// # Errors
    /// When no descriptor can be had.
    pub fn new(parts: Parts) -> io::Result<Shared> {
        Shared::of(Family::default(), parts)
    }

    /// The same of this family.
    ///
    /// # Errors
    /// As for [`Shared::new`].
    pub(crate) fn of(family: Family, parts: Parts) -> io::Result<Shared> {
        Shared::on(Arc::new(Linux(family)), parts)
    }

    /// The same, on another machine than this.
    pub(crate) fn on(machine: Arc<dyn Machine>, parts: Parts) -> io::Result<Shared> {
        let cpus = cpus();
        let spins = cpus > 1 && parts.has_spare_cpu;
        let now = machine.now();
        let starving = Arc::new(AtomicU64::new(0));
        let run_pages = parts.engine.run_max().max(BLOCK_PAGES as u32);
        Ok(Shared {
            engine: EngineLock::new(parts.engine, cpus),
            machine,
            may_spin: AtomicUsize::new(if spins { spinning_helpers(cpus) } else { 0 }),
            cpus,
            crowd: Crowd::new(now, (cpus, spinning_helpers(cpus))),
            swap: parts.swap,
            codec: parts.codec,
            pace: Pace::new(spins, now),
            recorder: parts.recorder,
            recompress: parts.recompress,
            set_aside_bytes: AtomicU64::new(0),
            is_set_aside: AtomicBool::new(false),
            folds: Folds::new(cpus, starving.clone(), parts.profile.clone()),
            profile: parts.profile,
            batches: FaultBatches::default(),
            scratches: Scratches::default(),
            run_pages,
            readers: Readers::default(),
            writer: Gate::new()?,
            links: Mutex::new(Vec::new()),
            holders: RwLock::new(Vec::new()),
            segments: OnceLock::new(),
            by_pid: Mutex::new(HashMap::new()),
            claims: Mutex::new(HashMap::new()),
            graves: Mutex::new(Vec::new()),
            news: Mutex::new(Vec::new()),
            rings: Rings::default(),
            meters: Meters::default(),
            latencies: Latencies::default(),
            starving,
            may_take: Allowance::unlimited(),
            refused: Mutex::new(None),
            swap_error: Mutex::new(None),
            failure: Mutex::new(None),
            are_offers_made: AtomicBool::new(false),
            main_bell: Bell::new()?,
            over: AtomicBool::new(false),
        })
    }

    /// Begins to time parts of an eviction, if that is asked.
    pub(crate) fn stopwatch(&self) -> Stopwatch<'_> {
        Stopwatch::start(self.profile.as_deref())
    }

    /// The engine, locked.
    pub fn engine(&self) -> Held<'_, Engine> {
        self.engine.lock()
    }

    /// How many pages to tell the engine of with one hold of its lock. A fault may be waiting meanwhile; but to pass the
    /// lock to another CPU takes about as long as one page, and on many CPUs others wait at each hand-over.
    pub fn pages_a_hold(&self) -> usize {
        match self.cpus {
            0..=2 => 1,
            _ => PAGES_A_HOLD,
        }
    }

    /// To be called between two holds of the engine's lock: whoever looks for it has it, which who takes it
    /// again at once would prevent.
    pub fn let_in(&self) {
        if self.cpus > 1 {
            (0..PAUSE).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Makes the calling folding thread one of those that spin, if there are not enough yet.
    pub fn claim_spinning(&self) -> bool {
        let more = |left: usize| left.checked_sub(1);
        let claimed = self
            .may_spin
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        claimed.is_ok()
    }

    /// Notes that the job cannot go on, and why; the first reason counts.
    pub fn fail(&self, why: Failure) {
        lock(&self.failure).get_or_insert(why);
        self.main_bell.ring();
    }

    /// Notes that a page, which was to be filled whatever memory there is, was refused once more.
    pub fn note_refused(&self, refused: RefusedFill) {
        let mut known = lock(&self.refused);
        let is_older =
            known.is_some_and(|known| known.is_current(refused.at) && known.since < refused.since);
        if !is_older {
            *known = Some(refused);
        }
    }

    /// Has the main thread look for what the agents of forked children offer.
    pub fn tell_of_offer(&self) {
        self.are_offers_made.store(true, Ordering::Release);
        self.main_bell.ring();
    }

    /// Has something said to the user. What a hostile process brings about is said so often and no more.
    pub fn tell(&self, what: String) {
        let mut news = lock(&self.news);
        if news.len() < NEWS_MAX {
            news.push(what);
        }
        drop(news);
        self.main_bell.ring();
    }

    /// Why it cannot go on, if so.
    pub fn failure(&self) -> Option<String> {
        lock(&self.failure).as_ref().map(ToString::to_string)
    }

    /// Whether the job is over.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Bytes of staging memory that exist because they were touched.
    pub fn staging_bytes(&self) -> u64 {
        let links = lock(&self.links);
        let rings = links
            .iter()
            .filter_map(|link| lock(&link.take).agent.clone());
        rings.map(|agent| agent.slots.touched_bytes()).sum()
    }

    /// Whether there is no process whose pages can be taken away.
    pub fn is_unmanaged(&self) -> bool {
        lock(&self.links).is_empty()
    }

    /// Everybody beside processes whose pages can be taken away.
    pub fn holders(&self) -> Vec<Arc<dyn Holder>> {
        let holders = self.holders.read();
        holders.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What all of these hold.
    pub fn held(&self) -> Holdings {
        let mut sum = Holdings::default();
        for holder in self.holders() {
            let bytes = holder.held_bytes();
            sum.bytes += bytes;
            sum.charged_bytes += if holder.is_charged() { bytes } else { 0 };
            sum.lost_pages += holder.lost_pages();
        }
        sum
    }

    /// Tells the engine what pages cost, now and then.
    pub fn tell_costs(&self) {
        let now = self.machine.now();
        let beside = !self.crowd.is_there(now);
        if let Some(costs) = self.pace.due(beside, now) {
            self.engine().costs(costs);
        }
    }

    /// Wakes every space thread that waits for memory.
    pub fn feed_starving(&self) {
        for holder in self.holders() {
            holder.feed();
        }
        if self.starving.load(Ordering::Acquire) == 0 {
            return;
        }
        for link in lock(&self.links).iter() {
            link.bell.ring();
        }
    }
}

/// What holders hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holdings {
    /// All that they hold.
    pub bytes: u64,
    /// Of that, what a memory cgroup counts as the job's.
    pub charged_bytes: u64,
    /// Pages that they have lost.
    pub lost_pages: u64,
}

/// Somebody beside processes whose pages can be taken away: a mount, memory that stands in for files, memory that
/// processes share.
pub trait Holder: Send + Sync {
    /// Its space.
    fn space(&self) -> SpaceId;

    /// How many pages it can take now; the right to have it take them is claimed. `None`: it is at work
    /// already.
    fn reserve(&self) -> Option<u32>;

    /// These pages were chosen; none, and the claim is given back. Does not wait.
    fn take(&self, pages: Vec<PageNo>);

    /// There may be memory for who waits for some.
    fn feed(&self);

    /// Bytes of memory that it has and no process does: pages in the kernel's page cache, as far as that
    /// is known.
    fn held_bytes(&self) -> u64;

    /// Whether that counts as the job's in a memory cgroup: its processes have touched it.
    fn is_charged(&self) -> bool;

    /// Pages that the kernel has dropped by itself so far, before they could be taken (see [`crate::Strain`]).
    fn lost_pages(&self) -> u64;
}

/// A thread waits here until it is wanted, or something of its own has ended.
pub struct Gate {
    bell: Bell,
    /// It rings: whoever opens the gate once more need not.
    is_open: AtomicBool,
}

impl Gate {
    /// A closed gate.
    ///
    /// # Errors
    /// When no descriptor can be had.
    pub fn new() -> io::Result<Gate> {
        Ok(Gate {
            bell: Bell::new()?,
            is_open: AtomicBool::new(false),
        })
    }

    /// Lets the thread through once.
    pub fn open(&self) {
        if !self.is_open.swap(true, Ordering::AcqRel) {
            self.bell.ring();
        }
    }

    /// Waits to be let through, for `other` to be readable, or for `limit`. The thread is to look for all
    /// that there is to do afterwards: who finds the gate open counts on that.
    pub fn wait(&self, other: RawFd, limit: Duration) {
        let mut fds = [readable(self.bell.as_raw_fd()), readable(other)];
        wait(&mut fds, Some(limit));
        if fds[0].revents != 0 {
            self.bell.hush();
            self.is_open.store(false, Ordering::Release);
        }
    }
}
