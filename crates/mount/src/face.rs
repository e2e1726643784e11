//! A mount at work: the file system, its cache, and the thread that takes pages; by itself within a budget of
//! its own ([`run`]), or beside a job, within the job's ([`Face`]).

use crate::error::MountError;
use crate::mount::{Mount, MountOptions};
use crate::pages::{Cached, Evictor, Reading, TAKER};
use pleat_codec::Choice;
use pleat_engine::{Counters, Engine, Preset, Settings};
use pleat_pager::{kick, Gauge, Parts, Pool, Shared, Strain};
use pleat_sys::guard::Guard;
use pleat_sys::process::{readable, wait};
use pleat_sys::procfs::StatmReader;
use pleat_sys::signals::Signals;
use pleat_types::PAGE_SIZE;
use serde::Serialize;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What pleat itself needs before a page of a file is in memory.
const BUDGET_MIN: u64 = 16 << 20;
/// Free memory below which pages are taken is a part of the budget, within limits.
const RESERVE_PART: u64 = 100;
const RESERVE_MIN: u64 = 3 << 20;
const RESERVE_MAX: u64 = 64 << 20;
/// Between two looks at a limit of the kernel's; each moves the estimate by one part in so many.
const GAUGE_EVERY: Duration = Duration::from_millis(500);
const GAUGE_EASE: i64 = 4;
/// This part of the budget is left between that limit and what is used.
const GAUGE_PART: u64 = 32;
/// Between two looks at the memory in use.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Memory that the kernel seems to need for something else takes at most this part of the budget.
const STRAIN_PART: u64 = 2;

/// A mount with its cache.
pub struct Face {
    mount: Arc<Mount>,
    cached: Arc<Cached>,
    evictor: Arc<Evictor>,
    threads: Vec<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

impl Face {
    /// Mounts; pages are kept in the engine of these threads, within its budget.
    ///
    /// # Errors
    /// Each says what to do about it.
    pub fn start(options: MountOptions, shared: &Arc<Shared>) -> Result<Face, MountError> {
        let cached = Cached::new(shared.clone());
        let (evictor, taker) = Evictor::start(cached.clone())?;
        let workers = options.threads;
        let mount = match Mount::start(options, cached.clone()) {
            Ok(mount) => Arc::new(mount),
            Err(error) => {
                evictor.stop();
                return Err(error);
            }
        };
        cached.is_at(mount.mountpoint(), workers);
        let mut face = Face {
            mount,
            cached,
            evictor,
            threads: vec![taker],
            is_over: Arc::default(),
        };
        face.watch(shared.clone())?;
        Ok(face)
    }

    /// Has the main thread told when the mount is over.
    fn watch(&mut self, shared: Arc<Shared>) -> io::Result<()> {
        let (mount, is_over) = (self.mount.clone(), self.is_over.clone());
        let waiter = std::thread::Builder::new().name("pleat-wait".into());
        let waiter = waiter.spawn(move || {
            mount.wait();
            is_over.store(true, Ordering::Release);
            shared.main_bell.ring();
        })?;
        // First: the one that takes pages is needed until nobody uses the mount.
        self.threads.insert(0, waiter);
        Ok(())
    }

    /// Whether it was unmounted, and nobody uses it any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        self.mount.mountpoint()
    }

    /// What the cache did so far.
    #[must_use]
    pub fn reading(&self) -> Reading {
        self.cached.meters.read()
    }

    /// The mount itself.
    #[must_use]
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    /// Memory that the kernel's page cache has of the mount, in bytes: at most this.
    #[must_use]
    pub fn kernel_bytes(&self) -> u64 {
        self.cached.kernel_bytes()
    }

    /// It was unmounted and the job goes on: what it held is free.
    pub fn give_up(&self) {
        self.evictor.stop();
        self.cached.give_up();
    }

    /// Unmounts, and serves whoever still uses it until they are done.
    ///
    /// # Errors
    /// The kernel or the helper refused.
    pub fn stop(&mut self) -> Result<(), MountError> {
        self.cached.ends();
        self.mount.unmount()?;
        for thread in self.threads.drain(..) {
            if thread.thread().name() == Some(TAKER) {
                self.evictor.stop();
            }
            // A panic has been told already.
            let _ = thread.join();
        }
        Ok(())
    }
}

/// A mount by itself.
pub struct Job {
    /// What and where.
    pub options: MountOptions,
    /// Memory for everything: pages in the kernel's page cache, compressed pages, pleat itself.
    pub budget_bytes: u64,
    /// Layout, sizing and admission of the compressed cache.
    pub preset: Preset,
    /// Which codec folds which page.
    pub codec: Arc<Choice>,
    /// Whether compressed pages keep a checksum, by which it is seen that memory was damaged.
    pub checks: bool,
}

/// Why a mount ended that should not, or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// It did not begin, or could not be unmounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// There is too little memory.
    #[error("a budget of {} KiB is too small for a mount; give at least --memory {}M", have >> 10, need >> 20)]
    TooSmall {
        /// Bytes needed.
        need: u64,
        /// Bytes given.
        have: u64,
    },
    /// Something went wrong while it was in use.
    #[error("{0}")]
    Failed(String),
}

impl From<io::Error> for JobError {
    fn from(error: io::Error) -> JobError {
        JobError::Failed(error.to_string())
    }
}

/// What a mount did.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// From mounting to unmounting.
    pub wall_us: u64,
    /// Memory it was given.
    pub budget_bytes: u64,
    /// The most it used, as far as that is known.
    pub peak_bytes: u64,
    /// Requests and pages.
    pub mount: Reading,
    /// The page cache.
    pub engine: Counters,
}

/// Mounts, calls `ready`, and serves until it is unmounted, or a signal asks for that.
///
/// # Errors
/// When it cannot be started, or must not go on.
pub fn run(job: Job, ready: impl FnOnce(&Path)) -> Result<Report, JobError> {
    if job.budget_bytes < BUDGET_MIN {
        return Err(JobError::TooSmall {
            need: BUDGET_MIN,
            have: job.budget_bytes,
        });
    }
    let start = Instant::now();
    // Before any thread, so that none of them gets these.
    let signals = Signals::collect(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT])?;
    let guard = Guard::start()?;
    let shared = Arc::new(Shared::new(parts(&job)?)?);
    let pool = Pool::start(shared.clone())?;
    let mut face = match Face::start(job.options, &shared) {
        Ok(face) => face,
        Err(error) => {
            pool.stop();
            return Err(error.into());
        }
    };
    guard.protect(face.mountpoint(), face.mount.connection()?)?;
    ready(face.mountpoint());
    // From here on an error ends the process: threads that wait for the kernel are not waited for.
    let mut supervisor = Supervisor {
        shared: shared.clone(),
        statm: StatmReader::open(std::process::id() as i32)?,
        peak_bytes: 0,
        budget_bytes: job.budget_bytes,
        strain: Strain::default(),
        gauge: Gauge::open(job.budget_bytes),
        taken_bytes: 0,
        gauged: start,
    };
    if let Err(error) = supervisor.run(&face, &signals) {
        face.cached.ends();
        // Its users get errors rather than a mount that nobody serves.
        let _ = face.mount.unmount();
        return Err(error);
    }
    supervisor.end(&face, &signals)?;
    face.stop()?;
    guard.dismiss();
    pool.stop();
    let engine = shared.engine().counters();
    Ok(Report {
        wall_us: start.elapsed().as_micros() as u64,
        budget_bytes: job.budget_bytes,
        peak_bytes: supervisor.peak_bytes,
        mount: face.reading(),
        engine,
    })
}

fn parts(job: &Job) -> Result<Parts, JobError> {
    let reserve = (job.budget_bytes / RESERVE_PART).clamp(RESERVE_MIN, RESERVE_MAX);
    let settings = Settings {
        budget_bytes: job.budget_bytes,
        reserve_bytes: reserve,
        floor_bytes: 0,
        run_max: job.preset.run_max,
        // Pages of files go back to their files.
        swap: None,
        tracks_writes: false,
        write_out: job.preset.write_out,
        brings_neighbours: false,
        keeps_copies: false,
        checks: job.checks,
    };
    let parts = job
        .preset
        .parts(job.budget_bytes)
        .map_err(JobError::Failed)?;
    Ok(Parts {
        engine: Engine::new(settings, parts),
        swap: None,
        codec: job.codec.clone(),
        recorder: None,
        profile: None,
        recompress: false,
        has_spare_cpu: false,
    })
}

/// Watches memory and signals while the mount is served.
struct Supervisor {
    shared: Arc<Shared>,
    statm: StatmReader,
    peak_bytes: u64,
    budget_bytes: u64,
    /// What the kernel needs that we do not see.
    strain: Strain,
    /// Where the kernel limits us and others together, not far above the budget.
    gauge: Option<Gauge>,
    /// What these others take of the budget, and when that was looked at.
    taken_bytes: i64,
    gauged: Instant,
}

impl Supervisor {
    /// Until the mount is to end.
    fn run(&mut self, face: &Face, signals: &Signals) -> Result<(), JobError> {
        loop {
            self.look_at_memory(face)?;
            let fds = [signals.as_raw_fd(), self.shared.main_bell.as_raw_fd()];
            wait(&mut fds.map(readable), Some(LOOK_EVERY));
            self.shared.main_bell.hush();
            if let Some(why) = self.shared.failure() {
                return Err(JobError::Failed(why));
            }
            if signals.next().is_some() || face.is_over() {
                return Ok(());
            }
        }
    }

    /// Unmounts, and serves whoever still uses the mount until they are done, or a second signal comes.
    fn end(&mut self, face: &Face, signals: &Signals) -> Result<(), JobError> {
        face.cached.ends();
        face.mount.unmount()?;
        let path = face.mountpoint().display();
        let told = Instant::now() + LOOK_EVERY;
        let mut is_told = false;
        while !face.is_over() {
            if !is_told && Instant::now() > told {
                is_told = true;
                eprintln!(
                    "pleat: {path} is still in use, and served until that ends; a second signal ends it \
                     at once"
                );
            }
            self.look_at_memory(face)?;
            let fds = [signals.as_raw_fd(), self.shared.main_bell.as_raw_fd()];
            wait(&mut fds.map(readable), Some(LOOK_EVERY));
            self.shared.main_bell.hush();
            if signals.next().is_some() {
                return Err(JobError::Failed(format!(
                    "{path} was ended while it was in use"
                )));
            }
        }
        Ok(())
    }

    /// Where there is one limit for us and the programs that use the mount: what these and the kernel's own
    /// structures, its inodes above all, leave less of than the budget. Otherwise the kernel would drop pages
    /// of the mount as it likes.
    fn taken_by_others(&mut self, own: u64) -> u64 {
        let Some(gauge) = &self.gauge else { return 0 };
        if self.gauged.elapsed() >= GAUGE_EVERY {
            self.gauged = Instant::now();
            // The kernel's count of file pages is some seconds old.
            if let Some(counted) = gauge.counted() {
                let others = counted.saturating_sub(own) + self.budget_bytes / GAUGE_PART;
                let taken = others as i64 + self.budget_bytes as i64 - gauge.limit_bytes() as i64;
                self.taken_bytes += (taken - self.taken_bytes) / GAUGE_EASE;
            }
        }
        self.taken_bytes.max(0) as u64
    }

    /// What the kernel's page cache has of the mount is part of the engine's account; the rest is ours.
    fn look_at_memory(&mut self, face: &Face) -> Result<(), JobError> {
        let own = self.statm.read()?.resident_pages * PAGE_SIZE as u64;
        let used = own + face.cached.kernel_bytes();
        self.peak_bytes = self.peak_bytes.max(used);
        let lost = face.reading().lost_pages;
        let most = self.budget_bytes / STRAIN_PART;
        let strain = self.strain.note(lost, most);
        let strain = strain.max(self.taken_by_others(own).min(most));
        let mut engine = self.shared.engine();
        engine.measured(used + strain);
        let is_wanted = engine.frames_wanted() > 0;
        drop(engine);
        if is_wanted {
            kick(&self.shared);
        }
        Ok(())
    }
}
