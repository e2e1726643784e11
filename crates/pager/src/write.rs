//! Write-out: clusters of the oldest folded pages, from the store to the swap file, several at once;
//! between them the collection of mostly dead clusters, and giving back what the file has too much.
//!
//! One thread with one queue: what is read for a collection comes back here, too. Pages of a write that
//! failed are in memory still, so a full or broken disk is no end by itself.

use crate::collect::{self, Collection};
use crate::ends::Failure;
use crate::reclaim;
use crate::shared::{lock, Shared};
use crate::store::{Spares, SwapStore, Watch};
use pleat_backing::{BackingError, Completion, Patience, Queue, Request, Transfer};
use pleat_engine::{WriteOutcome, WritePlan};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a full swap file is left alone before it is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// Without a call of the queue's, transfers are looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// No further write begins while so many are under way, or so many bytes: their memory is taken from
/// the job.
const WRITES_MAX: usize = 4;
const WRITES_BYTES_MAX: u32 = 512 << 10;
/// So many buffers as long as a cluster are kept for the next: more are seldom under way at once.
const SPARES: usize = 2;
/// A collection begins when nothing has to be written, or after so many writes.
const WRITES_PER_COLLECTION: u32 = 4;
/// Giving room back waits for writes under way, and they for it: done between them, or after so long.
const PUNCH_AT_LEAST: Duration = Duration::from_secs(2);
/// How long to wait when no collection is worth while: finding out takes a look at every cluster.
const VAIN: Duration = Duration::from_millis(50);
/// The writes, one of a collection, and its reads.
const DEPTH: u32 = (WRITES_MAX + 1 + collect::READS_MAX) as u32;

/// The life of the writing thread.
pub fn run(shared: &Arc<Shared>) {
    let Some(store) = &shared.swap else { return };
    let mut writer = match Writer::new(shared, store) {
        Ok(writer) => writer,
        Err(error) => return shared.fail(error.into()),
    };
    while !shared.is_over() {
        if let Err(why) = writer.turn() {
            // The main thread ends the job; what is under way ends or does not.
            return shared.fail(why);
        }
        writer.sleep();
    }
}

/// A write under way.
struct Write {
    id: u64,
    plan: WritePlan,
    since: Instant,
    waited: Duration,
}

/// The writing thread with what only it knows.
pub struct Writer<'a> {
    shared: &'a Shared,
    store: &'a SwapStore,
    queue: Box<dyn Queue>,
    under_way: Vec<Write>,
    /// Memory for the bytes of plans: they are copied to a buffer at once.
    bytes: Vec<u8>,
    spares: Spares,
    collection: Collection,
    /// Writes since the last collection began.
    writes: u32,
    /// When no collection was worth while last.
    vain_at: Option<Instant>,
    next_id: u64,
    wrote_at: Instant,
    failed_at: Option<Instant>,
    punched_at: Instant,
    watch: Watch,
    done: Vec<Completion>,
}

impl<'a> Writer<'a> {
    /// A writer with a queue of its own.
    ///
    /// # Errors
    /// When the store has no room for another queue.
    pub fn new(shared: &'a Shared, store: &'a SwapStore) -> Result<Writer<'a>, BackingError> {
        Ok(Writer {
            shared,
            store,
            queue: store.backing.queue_for_writes(DEPTH)?,
            under_way: Vec::new(),
            bytes: Vec::new(),
            spares: Spares::new(SPARES),
            collection: Collection::new(),
            writes: 0,
            vain_at: None,
            next_id: 0,
            wrote_at: Instant::now(),
            failed_at: None,
            punched_at: Instant::now(),
            watch: Watch::new(),
            done: Vec::new(),
        })
    }

    /// Takes what has ended and begins what there is to do; never waits.
    ///
    /// # Errors
    /// Why the job has to end.
    pub fn turn(&mut self) -> Result<(), Failure> {
        if self.failed_at.is_some_and(|at| at.elapsed() > RETRY) {
            self.shared.engine().resume_writes();
            self.failed_at = None;
        }
        self.take_ended()?;
        self.look_for_stuck()?;
        self.give_back();
        self.rest();
        self.write_on()?;
        self.collect_on()
    }

    /// Sleeps until there is something to do again.
    fn sleep(&mut self) {
        let (ended, limit) = match self.queue.in_flight() {
            0 => (-1, RETRY),
            _ => (self.queue.event().as_raw_fd(), LOOK_EVERY),
        };
        self.shared.writer.wait(ended, limit);
    }

    /// Plans writes while there are any to make.
    fn write_on(&mut self) -> Result<(), Failure> {
        while self.has_room() {
            let mut plan = self.empty_plan();
            let planned = {
                let mut engine = self.shared.engine();
                engine.write_wanted() && engine.plan_write(&mut plan)
            };
            if !planned {
                self.bytes = plan.bytes;
                break;
            }
            self.writes += 1;
            self.submit(plan)?;
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        let bytes: u32 = self.under_way.iter().map(|w| w.plan.len).sum();
        let count = self.under_way.len();
        count == 0 || (count < WRITES_MAX && bytes < WRITES_BYTES_MAX)
    }

    /// Takes a collection as far as it goes now.
    fn collect_on(&mut self) -> Result<(), Failure> {
        if self.collection.is_idle() && !self.begin_collection() {
            return Ok(());
        }
        let queue = &mut *self.queue;
        let (collection, spares) = (&mut self.collection, &mut self.spares);
        collection.read_on(self.store, queue, spares, &mut self.next_id);
        let mut plan = self.empty_plan();
        match self.collection.plan_move(self.shared, &mut plan) {
            true => self.submit(plan),
            false => {
                self.bytes = plan.bytes;
                Ok(())
            }
        }
    }

    fn begin_collection(&mut self) -> bool {
        let is_time = self.has_room() || self.writes >= WRITES_PER_COLLECTION;
        if !is_time || self.vain_at.is_some_and(|at| at.elapsed() < VAIN) {
            return false;
        }
        self.writes = 0;
        let has_begun = self.collection.begin(self.shared);
        self.vain_at = (!has_begun).then(Instant::now);
        has_begun
    }

    /// A plan to fill, with the memory of the last.
    fn empty_plan(&mut self) -> WritePlan {
        WritePlan {
            bytes: std::mem::take(&mut self.bytes),
            ..WritePlan::default()
        }
    }

    fn submit(&mut self, mut plan: WritePlan) -> Result<(), Failure> {
        let mut buffer = self.spares.take(plan.bytes.len());
        self.store.seal(&plan, &mut buffer)?;
        self.bytes = std::mem::take(&mut plan.bytes);
        let id = self.next_id;
        self.next_id += 1;
        self.queue.submit(Request {
            id,
            transfer: Transfer::Write,
            offset: plan.offset,
            buffer,
        });
        self.under_way.push(Write {
            id,
            plan,
            since: Instant::now(),
            waited: Duration::ZERO,
        });
        Ok(())
    }

    fn take_ended(&mut self) -> Result<(), Failure> {
        let mut done = std::mem::take(&mut self.done);
        self.queue.complete(Patience::Poll, &mut done);
        for mut completion in done.drain(..) {
            match completion.transfer {
                Transfer::Write => self.wrote(&completion),
                Transfer::Read => {
                    let (shared, store) = (self.shared, self.store);
                    self.collection.take(shared, store, &mut completion)?;
                }
            }
            self.spares.give(completion.buffer);
        }
        self.done = done;
        Ok(())
    }

    fn wrote(&mut self, done: &Completion) {
        let at = self.under_way.iter().position(|write| write.id == done.id);
        let write = self.under_way.remove(at.expect("a write ends once"));
        let outcome = match &done.result {
            Ok(()) => {
                let pages = write.plan.items.len() as u64;
                // Several are under way at once: what one costs begins with the end of another.
                let from = self.wrote_at.max(write.since);
                self.wrote_at = Instant::now();
                self.shared.pace.written(from.elapsed(), pages);
                let meters = &self.shared.meters;
                meters.swap_writes.add(1);
                meters.swap_written_bytes.add(done.buffer.len() as u64);
                WriteOutcome::Done
            }
            Err(error) => {
                // Not the end: the pages are still in memory. If the budget cannot be kept without
                // the file, the main thread ends the job with this message.
                *lock(&self.shared.swap_error) = Some(error.to_string());
                self.failed_at = Some(Instant::now());
                WriteOutcome::Failed
            }
        };
        self.shared.engine().write_done(&write.plan, outcome);
        let mut items = write.plan.items.iter();
        if items.any(|item| item.moved_from.is_some()) {
            self.collection.end(self.shared);
        }
        self.shared.feed_starving();
        reclaim::kick(self.shared);
    }

    fn look_for_stuck(&mut self) -> Result<(), Failure> {
        let writes = self.under_way.iter_mut().map(|write| &mut write.waited);
        let Some(at) = self.watch.look(writes.chain(self.collection.waited())) else {
            return Ok(());
        };
        Err(match self.under_way.get(at) {
            Some(write) => self.store.stuck(Transfer::Write, write.plan.offset).into(),
            None => {
                let at = at - self.under_way.len();
                let offset = self.collection.offset_of(at, self.store);
                self.store.stuck(Transfer::Read, offset).into()
            }
        })
    }

    /// Keeps no memory that nothing needed for a while.
    fn rest(&mut self) {
        if self.queue.in_flight() == 0 && self.wrote_at.elapsed() > RETRY {
            self.bytes = Vec::new();
            self.spares = Spares::new(SPARES);
        }
    }

    /// Gives back what the swap file has too much of the disk, now and then.
    fn give_back(&mut self) {
        let waited = self.punched_at.elapsed();
        let is_idle = self.under_way.is_empty();
        if waited < RETRY || !(is_idle || waited >= PUNCH_AT_LEAST) {
            return;
        }
        self.punched_at = Instant::now();
        let holes = self.shared.engine().take_holes();
        for (offset, bytes) in holes {
            // Where it fails the file stays larger, and nothing else.
            let _ = self.store.backing.discard(offset, bytes);
            self.store.seal.forget(offset, bytes);
        }
    }
}

#[cfg(test)]
mod tests;
