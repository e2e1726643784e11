//! A mount beside a job, within the job's budget: its pages in the kernel's cache, the program's pages and
//! compressed pages of both are weighed against each other by one engine.
//!
//! Why nobody waits for ever. `->` is "waits for":
//!
//! ```text
//! program -- userfault --> the space's thread    -> engine; memory, 300 ms at most
//! program -- READ, ... --> a worker of the mount -> engine; memory, 300 ms at most; the source's disk
//! taker   -- INVAL -----> locks of pages that a program holds while it waits for a worker
//! main thread, agent  --> the program's address space, locked by a thread that waits for a worker
//! main thread, at start and end --> a worker (stat, unmount)
//! ```
//!
//! Workers and the spaces' threads are the ends of all chains, and neither waits for the other, for the
//! taker or for the main thread. What this rests on:
//!
//! - *No worker touches memory of the program.* What is read or written goes through pages of the kernel's
//!   cache, or through pages of the program that the kernel has pinned before it asks (O_DIRECT). A buffer
//!   that is away is faulted in by the thread that reads or writes, with no page of the file locked; it may
//!   hold the file's or the directory's own lock then, for which only other programs wait, and the thread
//!   that sees changes outside (`watch`), which holds nothing that a worker wants.
//! - *No thread of the pager touches a file of the mount.* The swap file and the statistics are opened before
//!   it is there, and where they would lie below it the command line is refused. Private mappings of its
//!   files are not converted to memory that the supervisor fills (`pager/src/supervisor/mappings.rs`).
//! - *No lock of ours is held across a system call that can wait.* Filling a page needs the program's
//!   address space, which a thread of it may have locked while it waits for a worker.
//! - *Memory is waited for with a limit*, by faults and READs alike. So a worker that waits until pages are
//!   taken, by an agent that waits for the address space, of a thread that waits for this worker, goes on.
//! - *A fork* waits for the program's address space, and so for READs of its other threads: for workers. The
//!   child's first faults are answered whatever the budget.
//! - *If pleat is killed*, programs that wait for a worker cannot be killed before the connection is cut:
//!   the guard does that. The keeper shares our descriptors, so the connection would stay open otherwise.

use crate::error::MountError;
use crate::face::Face;
use crate::mount::{clear_umask, MountOptions};
use crate::pages::Reading;
use pleat_pager::{Companion, RunError, Shared};
use pleat_sys::guard::Guard;
use serde::Serialize;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A mount that lives as long as a job.
pub struct Beside {
    options: MountOptions,
    guard: Option<Guard>,
    face: Option<Face>,
    /// Where it is mounted, resolved once it is.
    place: PathBuf,
    device: u64,
    /// The job goes on without it.
    is_given_up: bool,
    report: Arc<Mutex<BesideReport>>,
}

/// What a mount beside a job did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BesideReport {
    /// The directory that was shown.
    pub source: String,
    /// Where.
    pub mountpoint: String,
    /// Whether nothing could be changed through it.
    pub read_only: bool,
    /// Bytes that the kernel's page cache had of it when the job ended.
    pub held_bytes: u64,
    /// Requests and pages.
    #[serde(flatten)]
    pub reading: Reading,
}

impl Beside {
    /// To be given to the pager.
    #[must_use]
    pub fn new(options: MountOptions) -> Beside {
        Beside {
            report: Arc::new(Mutex::new(BesideReport {
                source: options.source.display().to_string(),
                mountpoint: options.mountpoint.display().to_string(),
                read_only: options.read_only,
                ..BesideReport::default()
            })),
            place: options.mountpoint.clone(),
            options,
            guard: None,
            face: None,
            device: 0,
            is_given_up: false,
        }
    }

    /// What it will have done when it has ended.
    #[must_use]
    pub fn report(&self) -> Arc<Mutex<BesideReport>> {
        self.report.clone()
    }

    fn mount(&mut self, shared: &Arc<Shared>) -> Result<(), MountError> {
        clear_umask();
        let face = self.face.insert(Face::start(self.options.clone(), shared)?);
        face.mountpoint().clone_into(&mut self.place);
        self.device = std::fs::metadata(&self.place)?.dev();
        if let Some(guard) = &self.guard {
            guard.take_away();
            guard.protect(&self.place, face.mount().connection()?)?;
        }
        Ok(())
    }
}

impl Companion for Beside {
    fn fork(&mut self) -> io::Result<i32> {
        let guard = Guard::start()?;
        let pid = guard.pid();
        self.guard = Some(guard);
        Ok(pid)
    }

    fn start(&mut self, shared: &Arc<Shared>) -> Result<(), RunError> {
        self.mount(shared).map_err(|error| {
            let text = format!("--mount: {error}");
            match error.is_mistake() {
                true => RunError::Mistake(text),
                false => RunError::Other(text),
            }
        })
    }

    fn place(&self) -> &Path {
        &self.place
    }

    fn device(&self) -> u64 {
        self.device
    }

    fn news(&mut self) -> Option<String> {
        let face = self.face.as_ref()?;
        if self.is_given_up || !face.is_over() {
            return None;
        }
        self.is_given_up = true;
        face.give_up();
        let place = self.place.display();
        Some(format!(
            "{place} was unmounted by somebody, and the job goes on without it"
        ))
    }

    fn retire(&mut self) -> Result<(), String> {
        let Some(face) = &self.face else {
            return Ok(());
        };
        if !self.is_given_up {
            self.report
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .held_bytes = face.kernel_bytes();
        }
        face.mount().unmount().map_err(|error| error.to_string())
    }

    fn is_over(&self) -> bool {
        self.face.as_ref().is_none_or(Face::is_over)
    }

    fn end(&mut self) {
        let is_over = self.is_over();
        if let Some(mut face) = self.face.take() {
            self.report
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .reading = face.reading();
            match is_over {
                // It is unmounted already: only its threads are waited for.
                true => drop(face.stop()),
                // They end with this process, and who waits for them gets an error.
                false => std::mem::forget(face),
            }
        }
        if let Some(guard) = self.guard.take().filter(|_| is_over) {
            guard.dismiss();
        }
    }
}
