//! Taking pages from the kernel's cache: through the `window.rs` where that can be done, by asking for them
//! otherwise. `ledger.rs` says what may come between, and why it does no harm.

use super::ledger::MayTake;
use super::{window, Cached};
use pleat_codec::PageKind;
use pleat_engine::{Refusal, WayOut};
use pleat_pager::{kick, Chosen, FoldJob, Holder, Slots, RING_FRAMES_MAX};
use pleat_sys::ring::Ring;
use pleat_types::{PageNo, SpaceId, PAGE_SIZE};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pages asked for at once. Every worker may come to hold an answer of that size.
const RUN_MAX: usize = 32;
/// Between two attempts when nothing could be taken: what there is, is just being read.
const VAIN_PAUSE: Duration = Duration::from_millis(1);
/// Copies that the kernel has not sent by then are not waited for: all workers are busy with a disk that does
/// not answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Name of the thread.
pub const TAKER: &str = "pleat-take";
const SECOND: Duration = Duration::from_secs(1);
/// The window is closed when nothing was taken for so long: a mount that was unmounted ends then.
const WINDOW_IDLE: Duration = Duration::from_millis(100);

/// Copies asked for and not arrived yet.
#[derive(Default)]
pub(super) struct Retrievals {
    state: Mutex<Pending>,
    arrived: Condvar,
    fed: Condvar,
}

#[derive(Default)]
struct Pending {
    last: u64,
    /// Where the pages of each go.
    open: HashMap<u64, (Arc<Slots>, Vec<u32>)>,
    /// How many pages of each have come.
    came: HashMap<u64, usize>,
}

impl Retrievals {
    fn state(&self) -> std::sync::MutexGuard<'_, Pending> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expect(&self, slots: &Arc<Slots>, frames: Vec<u32>) -> u64 {
        let mut state = self.state();
        state.last += 1;
        let unique = state.last;
        state.open.insert(unique, (slots.clone(), frames));
        unique
    }

    /// The kernel's answer. One that is not expected any more is let be: its frames serve others.
    pub(super) fn arrived(&self, unique: u64, data: &[u8]) {
        let mut state = self.state();
        let Some((slots, frames)) = state.open.remove(&unique) else {
            return;
        };
        let pages = data.chunks(PAGE_SIZE);
        let came = pages.len().min(frames.len());
        for (page, frame) in pages.zip(frames) {
            slots.ring.put(frame, page);
        }
        state.came.insert(unique, came);
        self.arrived.notify_all();
    }

    /// How many pages of this came; waits for them, until then.
    fn await_arrival(&self, unique: u64, until: Instant) -> usize {
        let mut state = self.state();
        while state.open.contains_key(&unique) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.open.remove(&unique);
                break;
            }
            let waited = self.arrived.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.came.remove(&unique).unwrap_or(0)
    }

    fn forget(&self, unique: u64) {
        self.state().open.remove(&unique);
    }

    /// Waits until there may be memory, but no longer than so.
    pub(super) fn wait_to_be_fed(&self, limit: Duration) {
        drop(self.fed.wait_timeout(self.state(), limit));
    }
}

/// Pages on their way out, of one file and side by side.
struct Run {
    node: u64,
    first: u64,
    pages: Vec<PageNo>,
    /// Frames for their copies; none, when they are only dropped.
    frames: Vec<u32>,
    unique: u64,
    came: usize,
    /// Copied, as far as it has frames, and dropped.
    is_out: bool,
    /// Not to be dropped now.
    is_left: bool,
}

/// The thread that takes pages, and the queue of those chosen.
pub struct Evictor {
    cached: Arc<Cached>,
    slots: Arc<Slots>,
    chosen: Chosen,
    is_over: AtomicBool,
}

impl Evictor {
    /// Starts the thread, and has it asked for pages when memory is short.
    ///
    /// # Errors
    /// When there is no memory for its ring, or no thread.
    pub fn start(cached: Arc<Cached>) -> io::Result<(Arc<Evictor>, JoinHandle<()>)> {
        let ring = Ring::private(RING_FRAMES_MAX)?;
        let shared = cached.shared.clone();
        let evictor = Arc::new(Evictor {
            slots: shared.rings.add(ring),
            cached,
            chosen: Chosen::default(),
            is_over: AtomicBool::new(false),
        });
        let runner = evictor.clone();
        let builder = std::thread::Builder::new().name(TAKER.into());
        let thread = builder.spawn(move || runner.run())?;
        let mut holders = shared
            .holders
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        holders.push(evictor.clone());
        drop(holders);
        Ok((evictor, thread))
    }

    /// Has the thread end: the mount is gone.
    pub fn stop(&self) {
        let shared = &self.cached.shared;
        let mut holders = shared
            .holders
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        holders.retain(|holder| !std::ptr::addr_eq(Arc::as_ptr(holder), self));
        drop(holders);
        self.chosen.end(&self.is_over);
    }

    fn run(&self) {
        let mut tidied = Instant::now();
        while !self.is_over.load(Ordering::Acquire) {
            let pages = self.next();
            if pages.is_empty() {
                if let Some(window) = self.cached.window.get() {
                    window.close();
                }
            } else {
                if !self.take_away(&pages) {
                    std::thread::sleep(VAIN_PAUSE);
                }
                self.chosen.done();
                kick(&self.cached.shared);
            }
            if tidied.elapsed() >= SECOND {
                tidied = Instant::now();
                self.cached.janitor.tidy();
            }
        }
    }

    /// The pages chosen next; none after a while.
    fn next(&self) -> Vec<PageNo> {
        let window = self.cached.window.get();
        let is_open = window.is_some_and(|window| window.is_open());
        let limit = if is_open { WINDOW_IDLE } else { SECOND };
        self.chosen.wait(limit, &self.is_over)
    }

    /// Answers whether any of them could be taken.
    fn take_away(&self, pages: &[PageNo]) -> bool {
        let start = Instant::now();
        let mut runs = self.begin(pages);
        let taken: usize = runs.iter().map(|run| run.pages.len()).sum();
        self.take_through_window(&mut runs);
        self.copy(&mut runs);
        self.drop_from_kernel(&mut runs);
        self.end(runs);
        if taken > 0 {
            self.cached.shared.pace.taken(start.elapsed(), taken as u64);
        }
        taken > 0
    }

    /// Sorts out which pages can go, and how.
    fn begin(&self, pages: &[PageNo]) -> Vec<Run> {
        let (cached, mut runs) = (&*self.cached, Vec::<Run>::new());
        let mut ledger = cached.ledger();
        let mut engine = cached.shared.engine();
        for &page in pages {
            // It may have been given up since it was chosen; from here on that voids the take.
            let is_meant = engine.is_leaving(cached.space, page);
            let owner = ledger.owner(page).filter(|_| is_meant);
            let way = owner.and_then(|of| Some((of, ledger.may_take(of)?)));
            let Some(((node, at), may)) = way else {
                // Just being read or written, or not part of a file any more.
                engine.refused(cached.space, page, Refusal::Busy);
                continue;
            };
            let copies = may == MayTake::Copy
                && engine.way_out(cached.space, page) == WayOut::Take
                && self.slots.available() > 0;
            ledger.begin_take(page, (node, at));
            let goes_on = |run: &&mut Run| {
                run.node == node
                    && run.first + run.pages.len() as u64 == at
                    && run.pages.len() < RUN_MAX
                    && copies != run.frames.is_empty()
            };
            let run = match runs.last_mut().filter(goes_on) {
                Some(run) => run,
                None => {
                    runs.push(Run {
                        node,
                        first: at,
                        pages: Vec::new(),
                        frames: Vec::new(),
                        unique: 0,
                        came: 0,
                        is_out: false,
                        is_left: false,
                    });
                    runs.last_mut().expect("just pushed")
                }
            };
            run.pages.push(page);
            if copies {
                run.frames.extend(self.slots.claim());
            }
        }
        let space = cached.space;
        ledger.sweep(|range| engine.knows(space, range));
        runs
    }

    /// What is left then is in use: it is copied and dropped the other way.
    fn take_through_window(&self, runs: &mut [Run]) {
        let Some(window) = self.cached.window.get() else {
            return;
        };
        let Some(root) = window.open() else {
            return;
        };
        let mut buffer = Vec::new();
        for run in runs {
            let generation = self.cached.ledger().generation(run.node);
            let Some(file) = generation.and_then(|which| window.file(&root, run.node, which))
            else {
                continue;
            };
            let count = run.pages.len();
            if !run.frames.is_empty() {
                let Some(copies) = window::copy_cached(&file, run.first, count, &mut buffer) else {
                    continue;
                };
                for (page, &frame) in copies.chunks(PAGE_SIZE).zip(&run.frames) {
                    self.slots.ring.put(frame, page);
                }
            }
            self.mark_evicted(run);
            if window::drop_cached(&file, run.first, count) {
                (run.came, run.is_out) = (run.frames.len(), true);
                self.cached.meters.retrieved_pages.add(run.came as u64);
                self.cached.meters.invalidated_pages.add(count as u64);
            }
        }
    }

    fn mark_evicted(&self, run: &Run) {
        let end = run.first + run.pages.len() as u64;
        self.cached.ledger().evicts(run.node, &(run.first..end));
    }

    /// Asks for copies of all that are to be kept, then waits for them.
    fn copy(&self, runs: &mut [Run]) {
        let Some(notifier) = self.cached.notifier.get() else {
            return;
        };
        let retrievals = &self.cached.retrievals;
        let is_asked_for = |run: &&mut Run| !run.is_out && !run.frames.is_empty();
        for run in runs.iter_mut().filter(is_asked_for) {
            run.unique = retrievals.expect(&self.slots, run.frames.clone());
            let page = PAGE_SIZE as u64;
            let size = (run.pages.len() * PAGE_SIZE) as u32;
            let asked = notifier.retrieve(run.unique, run.node, run.first * page, size);
            if !matches!(asked, Ok(true)) {
                // The kernel forgot the file.
                retrievals.forget(run.unique);
            }
        }
        let until = Instant::now() + PATIENCE;
        for run in runs.iter_mut().filter(is_asked_for) {
            run.came = retrievals.await_arrival(run.unique, until);
            self.cached.meters.retrieved_pages.add(run.came as u64);
        }
    }

    /// Pages that are being read or written by now are left: they are in use, and the kernel would wait for a
    /// worker to answer, while all workers may be waiting for memory.
    fn drop_from_kernel(&self, runs: &mut [Run]) {
        let Some(notifier) = self.cached.notifier.get() else {
            return;
        };
        for run in runs.iter_mut().filter(|run| !run.is_out) {
            run.is_left = self.cached.ledger().is_void(&run.pages);
            if run.is_left {
                continue;
            }
            self.mark_evicted(run);
            let (offset, len) = (run.first, run.pages.len() as u64);
            let page = PAGE_SIZE as u64;
            // Where the kernel keeps a page (somebody has it pinned), it serves it as well as any.
            let _ = notifier.inval_inode(run.node, offset * page, len * page);
            self.cached.meters.invalidated_pages.add(len);
        }
    }

    /// Tells the engine what became of each page.
    fn end(&self, runs: Vec<Run>) {
        let (cached, space) = (&*self.cached, self.cached.space);
        let mut jobs = Vec::new();
        let mut ledger = cached.ledger();
        let mut engine = cached.shared.engine();
        for run in runs {
            for (at, &page) in run.pages.iter().enumerate() {
                let frame = run.frames.get(at).copied();
                let is_valid = ledger.end_take(page);
                if !is_valid || run.is_left {
                    cached.meters.void_pages.add(1);
                    engine.refused(space, page, Refusal::Busy);
                } else if frame.is_none() {
                    engine.dropped(space, page);
                } else if at >= run.came {
                    cached.meters.lost_pages.add(1);
                    engine.refused(space, page, Refusal::Gone);
                } else if let Some(frame) = frame {
                    if let Some(body) = engine.taken(space, page, self.slots.name(frame)) {
                        jobs.push(FoldJob {
                            body,
                            page: (space, page),
                            kind: PageKind::File,
                            was: None,
                            slots: self.slots.clone(),
                            frame,
                        });
                        continue;
                    }
                }
                frame
                    .into_iter()
                    .for_each(|frame| self.slots.release(frame));
            }
        }
        drop(engine);
        drop(ledger);
        cached.shared.folds.push(jobs);
    }
}

impl Holder for Evictor {
    fn space(&self) -> SpaceId {
        self.cached.space
    }

    fn reserve(&self) -> Option<u32> {
        self.chosen.reserve(|| self.slots.available())
    }

    fn take(&self, pages: Vec<PageNo>) {
        self.chosen.give(pages);
    }

    fn feed(&self) {
        self.cached.retrievals.fed.notify_all();
    }

    fn held_bytes(&self) -> u64 {
        self.cached.kernel_bytes()
    }

    fn is_charged(&self) -> bool {
        false
    }

    fn lost_pages(&self) -> u64 {
        self.cached.meters.lost_pages.get()
    }
}
