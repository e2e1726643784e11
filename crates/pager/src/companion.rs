//! What serves a job beside its processes, within the same budget: a mount.
//!
//! The pager does not know what it is. It starts it before the program and ends it after the job, counts
//! what it holds (see [`crate::Holder`]), and keeps its own threads off what it shows: a thread of the
//! pager that waited for a companion, which waited for memory that this very thread is to free, would
//! wait for ever. So the swap file and all other files of ours are opened before a companion starts, and
//! pages of programs are never filled from a companion's files.

use crate::job::RunError;
use crate::shared::Shared;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a companion of a job that did not start may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// See above. All calls come from the main thread, in the order in which they stand here.
pub trait Companion {
    /// While the process has no other thread: starts what must be forked. The process id of that.
    ///
    /// # Errors
    /// When no process can be had.
    fn fork(&mut self) -> io::Result<i32>;

    /// Begins, before the program does.
    ///
    /// # Errors
    /// Each says what to do about it.
    fn start(&mut self, shared: &Arc<Shared>) -> Result<(), RunError>;

    /// Where programs see it.
    fn place(&self) -> &Path;

    /// The device (`st_dev`) of its files; 0 when it has none.
    fn device(&self) -> u64;

    /// Something the user should know, told once.
    fn news(&mut self) -> Option<String>;

    /// The job is over: nobody comes any more. Those who still use it are served on.
    ///
    /// # Errors
    /// It cannot be ended.
    fn retire(&mut self) -> Result<(), String>;

    /// Whether nobody uses it any more.
    fn is_over(&self) -> bool;

    /// Cleans up when it is over; otherwise it ends with this process.
    fn end(&mut self);
}

/// Ends the companions of a job that did not come about.
pub(crate) fn dismiss(companions: &mut [Box<dyn Companion>]) {
    for companion in companions {
        let until = Instant::now() + PATIENCE;
        if companion.retire().is_ok() {
            while !companion.is_over() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        companion.end();
    }
}
