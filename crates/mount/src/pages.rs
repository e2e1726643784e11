//! File contents with a cache: the kernel's page cache above, folded pages below, the source last.
//!
//! ```text
//!   program --- read, mmap ---> kernel's page cache (FUSE) --- READ ---> read.rs --+-> staged, folded
//!      |                            |        ^                                     |
//!      +--------- write ------> WRITE        |                                     +-> source file
//!                                   |        | copied and dropped: evict.rs
//!                                   v        v
//!                                write.rs  staging ring -> folding threads -> compressed cache
//! ```
//!
//! What the kernel holds is the uncompressed tier: a hit costs what it costs in any file system. Pages that
//! came to it longest ago are taken from it when memory is short (`evict.rs`) and folded by the threads of
//! `pleat-pager`; a READ gets them back. Every WRITE goes to the source file first. `ledger.rs` has the
//! interleavings.

mod evict;
mod janitor;
mod ledger;
mod mend;
mod meters;
mod read;
mod window;
mod write;

pub use evict::{Evictor, TAKER};
pub use meters::{Meters, Reading};

use crate::content::{Content, Ticket};
use crate::notify::Notifier;
use crate::tree::Node;
use evict::Retrievals;
use janitor::Janitor;
use ledger::{pages_of, Ledger};
use mend::Mender;
use pleat_pager::Shared;
use pleat_types::{PageRange, SpaceId};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use window::Window;

/// Of the workers, one in so many never waits for memory.
const WORKERS_SPARED_PART: usize = 4;

/// Contents of files, cached within a budget.
pub struct Cached {
    shared: Arc<Shared>,
    space: SpaceId,
    notifier: OnceLock<Notifier>,
    window: OnceLock<Arc<Window>>,
    ledger: Arc<Mutex<Ledger>>,
    /// A write has landed.
    landed: Condvar,
    retrievals: Retrievals,
    /// Workers that wait for memory, and how many may.
    waiting: AtomicUsize,
    waiting_max: AtomicUsize,
    mender: Mender,
    janitor: Janitor,
    /// What it did.
    pub meters: Meters,
}

impl Cached {
    /// A cache on what these threads share.
    #[must_use]
    pub fn new(shared: Arc<Shared>) -> Arc<Cached> {
        let space = shared.engine().add_file();
        Arc::new(Cached {
            shared,
            space,
            notifier: OnceLock::new(),
            window: OnceLock::new(),
            ledger: Arc::default(),
            landed: Condvar::new(),
            retrievals: Retrievals::default(),
            waiting: AtomicUsize::new(0),
            waiting_max: AtomicUsize::new(0),
            mender: Mender::default(),
            janitor: Janitor::default(),
            meters: Meters::default(),
        })
    }

    /// It is mounted there, and so many workers answer: pages can be taken the short way, and a part of the
    /// workers may wait for memory.
    pub(crate) fn is_at(&self, mountpoint: &Path, workers: usize) {
        let spared = (workers / WORKERS_SPARED_PART).max(1);
        self.waiting_max
            .store(workers.saturating_sub(spared), Ordering::Relaxed);
        if let Ok(window) = Window::new(mountpoint) {
            let _ = self.window.set(window);
        }
    }

    /// It is to be unmounted: keeps nothing of it open any more.
    pub(crate) fn ends(&self) {
        if let Some(window) = self.window.get() {
            window.shut();
        }
    }

    /// Memory that the kernel's page cache has of the mount, in bytes, as far as that is known: at most this.
    #[must_use]
    pub fn kernel_bytes(&self) -> u64 {
        self.shared.engine().space_resident_pages(self.space) * pleat_types::PAGE_SIZE as u64
    }

    /// The mount is gone, and the kernel's pages with it.
    pub fn give_up(&self) {
        self.shared.engine().end_space(self.space);
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// Everything folded of these pages is out of date.
    fn forget(&self, ledger: &mut Ledger, node: u64, pages: &Range<u64>) {
        ledger.void(node, pages);
        for range in ledger.placed(node, pages) {
            self.shared.engine().forget(self.space, range);
        }
    }

    /// A file that the kernel had forgotten is used again: what is folded of it holds if it is still the
    /// same.
    fn wake(&self, ledger: &mut Ledger, node: &Node) {
        if !ledger.wake(node.number(), || node.stamp()) {
            self.forget(ledger, node.number(), &(0..u64::MAX));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every page of a file.
const ALL: Range<u64> = 0..u64::MAX;

impl Content for Cached {
    fn mounted(&self, notifier: &Notifier) {
        let _ = self.notifier.set(notifier.clone());
    }

    fn received(&self, node: u64, is_write: bool, offset: u64, size: u32) -> Ticket {
        let pages = pages_of(offset, u64::from(size));
        Ticket(self.ledger().receive(node, is_write, pages))
    }

    fn answered(&self, ticket: Ticket) {
        let mut ledger = self.ledger();
        // If it came to nothing, nobody is to wait for it.
        ledger.landed(ticket.0);
        ledger.answered(ticket.0);
        drop(ledger);
        self.landed.notify_all();
    }

    fn read(
        &self,
        node: &Node,
        ticket: Ticket,
        offset: u64,
        size: u32,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        self.read_pages(node, ticket, offset, size as usize, out)
    }

    fn write(&self, node: &Node, ticket: Ticket, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_pages(node, ticket, offset, data)
    }

    fn alter(
        &self,
        node: &Node,
        range: Range<u64>,
        change: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let pages = pages_of(range.start, range.end - range.start);
        self.ledger().void(node.number(), &pages);
        // Even if it fails: part of it may have been done.
        let done = change();
        let mut ledger = self.ledger();
        self.forget(&mut ledger, node.number(), &pages);
        ledger.altered(node.number(), &pages);
        done
    }

    fn sync(&self, node: &Node, data_only: bool) -> io::Result<()> {
        node.sync_source(data_only)
    }

    fn changed_outside(&self, node: &Node) {
        self.meters.outside_changes.add(1);
        let mut ledger = self.ledger();
        self.forget(&mut ledger, node.number(), &ALL);
        ledger.evicts_all(node.number());
    }

    fn forgotten(&self, node: &Node) {
        let mut ledger = self.ledger();
        ledger.sleep(node.number(), node.stamp());
        for range in ledger.placed(node.number(), &ALL) {
            self.shared.engine().kernel_forgot(self.space, range);
        }
    }

    fn removed(&self, node: &Node) {
        let mut ledger = self.ledger();
        self.forget(&mut ledger, node.number(), &ALL);
        ledger.remove(node.number());
    }

    fn retrieved(&self, unique: u64, _: u64, _: u64, data: &[u8]) {
        self.retrievals.arrived(unique, data);
    }
}

/// Ranges of the engine's space, and how many pages they are.
fn count(ranges: &[PageRange]) -> u64 {
    ranges.iter().map(|range| range.len()).sum()
}
