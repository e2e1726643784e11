//! Reading pages of the swap file for the faults of one space.
//!
//! A fault whose page is in the swap file only is put off while its page is read, with others that lie
//! behind or round it. What was read is handed to the engine, and the fault asks again, as any other that was put
//! off. Nothing is locked or held meanwhile, so anything may happen to the page while it is read:
//!
//! | what happens | why it is harmless |
//! |---|---|
//! | its body is given up (unmapped, MADV_DONTNEED, the last sharer ends) | `is_current` denies the item when the read is done, and it is dropped; the fault asks anew and gets what is there now |
//! | its cluster is freed, even written again | the seal of what was read is wrong, or right for an item that is not current: dropped. This is why `is_current` is asked after the read, never before |
//! | the number of its body is used for another | no two items have both serial and offset in common: not current |
//! | its body is moved by collection | the old place is whole until the move is done. Read before: it lands, and is the same page. Not current after: dropped, and the fault asks to read the new place |
//! | it is moved in memory, or shared by a fork | an item names a body, not an address: it lands, and whoever asks for it first has it filled. A child may read it too: the second to land changes nothing |
//! | it comes to memory for another space | not current if nobody else wants it; else it lands, unasked, and goes with the oldest that have landed |
//! | another thread faults on the page | it waits for the same read |
//! | it lands, and is pushed out before the fault asks again | the fault asks to read it again. Each read lands and its faults are retried before the next one lands, so one of them gets on |
//! | its process dies | the queue is dropped with the space, and waits for a moment; the engine heard of nothing |
//! | the read fails, or its seal is wrong | the job ends if the item is current, for then the page is lost; else nobody wants it. Pages that were read ahead are not missed before they are wanted |
//! | the read never ends | the job ends, after half a minute |

use super::{End, Space};
use crate::ends::Failure;
use crate::shared::Shared;
use crate::store::{Spares, SwapStore, Watch};
use pleat_backing::{Completion, Patience, Queue, Request, Transfer};
use pleat_engine::{BodyId, ReadItem};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// Reads under way at once.
const DEPTH: u32 = 32;
/// How long to look for the end of a read before sleeping: a fast disk answers within 40 to 60 us, and
/// a CPU that has gone to sleep takes 15 more to hear of it.
const SPIN: Duration = Duration::from_micros(100);
/// Between two looks at whether there is anything else to do.
const SPIN_SLICE: Duration = Duration::from_micros(15);
/// Without a call of the queue's, reads are looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A read under way.
struct Read {
    id: u64,
    items: Vec<ReadItem>,
    since: Instant,
    waited: Duration,
}

/// The reads of one space.
pub(crate) struct Reads {
    /// Made for the first read.
    queue: Option<Box<dyn Queue>>,
    under_way: Vec<Read>,
    /// Reads that have ended and were not looked at.
    done: Vec<Completion>,
    begun: u64,
    spares: Spares,
    watch: Watch,
    /// CPU time spent on looking for the end of reads.
    spun: Duration,
}

impl Reads {
    /// None.
    pub(crate) fn new() -> Reads {
        Reads {
            queue: None,
            under_way: Vec::new(),
            done: Vec::new(),
            begun: 0,
            spares: Spares::new(1),
            watch: Watch::new(),
            spun: Duration::ZERO,
        }
    }

    /// Whether this read has not ended, or nobody has looked at what it brought.
    pub(super) fn is_under_way(&self, id: u64) -> bool {
        self.under_way.iter().any(|read| read.id == id)
    }

    /// Reads so far.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Nanoseconds spent on looking for the end of reads.
    pub(super) fn spun_ns(&self) -> u64 {
        self.spun.as_nanos() as u64
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Readable when a read has ended; -1 while there are none.
    pub(crate) fn descriptor(&self) -> RawFd {
        let queue = self.queue.as_ref().filter(|_| !self.is_idle());
        queue.map_or(-1, |queue| queue.event().as_raw_fd())
    }

    /// How long to sleep at most.
    pub(super) fn patience(&self) -> Option<Duration> {
        (!self.is_idle()).then_some(LOOK_EVERY)
    }

    /// Begins to read these, the first of which is wanted, unless that is being read already. Answers
    /// which read to wait for.
    ///
    /// # Errors
    /// Why the job has to end.
    pub(crate) fn begin(
        &mut self,
        store: &SwapStore,
        items: &[ReadItem],
        now: Instant,
    ) -> Result<u64, Failure> {
        let wanted = items.first().map(|item| item.body);
        if let Some(read) = self.bringing(wanted) {
            return Ok(read);
        }
        if self.queue.is_none() {
            let queue = store.backing.queue(DEPTH);
            self.queue = Some(queue?);
        }
        if self.under_way.len() >= DEPTH as usize {
            // What came first ends first, as a rule.
            return Ok(self.under_way[0].id);
        }
        self.begun += 1;
        let read = Read {
            id: self.begun,
            items: items.to_vec(),
            since: now,
            waited: Duration::ZERO,
        };
        self.submit(store, read);
        Ok(self.begun)
    }

    fn submit(&mut self, store: &SwapStore, read: Read) {
        let (offset, len) = store.span(&read.items);
        let request = Request {
            id: read.id,
            transfer: Transfer::Read,
            offset,
            buffer: self.spares.take(len),
        };
        self.under_way.push(read);
        if let Some(queue) = &mut self.queue {
            queue.submit(request);
        }
    }

    fn bringing(&self, body: Option<BodyId>) -> Option<u64> {
        let brings = |read: &&Read| read.items.iter().any(|item| Some(item.body) == body);
        self.under_way.iter().find(brings).map(|read| read.id)
    }

    /// Whether a read has ended that nobody has looked at.
    fn has_ended(&mut self, patience: Patience) -> bool {
        if let Some(queue) = &mut self.queue {
            if self.done.is_empty() {
                queue.complete(patience, &mut self.done);
            }
        }
        !self.done.is_empty()
    }

    /// Hands what one read has brought to the engine, if one has ended.
    ///
    /// # Errors
    /// Why the job has to end.
    pub(crate) fn land(&mut self, shared: &Shared, store: &SwapStore) -> Result<bool, Failure> {
        if self.is_idle() || !self.has_ended(Patience::Poll) {
            return self.look_for_stuck(store).map(|()| false);
        }
        let Completion {
            id,
            offset,
            mut buffer,
            result,
            ..
        } = self.done.remove(0);
        let at = self.under_way.iter().position(|read| read.id == id);
        let mut read = self.under_way.remove(at.expect("a read ends once"));
        let took = shared.machine.since(read.since);
        let meters = &shared.meters;
        meters.swap_reads.add(1);
        meters.swap_read_bytes.add(buffer.len() as u64);
        meters.swap_read_us.add(took.as_micros() as u64);
        match result {
            Ok(()) => {
                let landed = land_all(shared, store, &read.items, offset, &mut buffer)?;
                shared.pace.read(took, landed);
            }
            // A bad place must not cost the page in front of it.
            Err(_) if read.items.len() > 1 => {
                read.items.truncate(1);
                self.submit(store, read);
            }
            Err(error) => fail_if_wanted(shared, &read.items[0], error.into())?,
        }
        self.spares.give(buffer);
        Ok(true)
    }

    fn look_for_stuck(&mut self, store: &SwapStore) -> Result<(), Failure> {
        let waited = self.under_way.iter_mut().map(|read| &mut read.waited);
        match self.watch.look(waited) {
            None => Ok(()),
            Some(at) => {
                let (offset, _) = store.span(&self.under_way[at].items);
                Err(store.stuck(Transfer::Read, offset).into())
            }
        }
    }
}

/// Opens what was read and hands it to the engine; answers how many pages landed.
fn land_all(
    shared: &Shared,
    store: &SwapStore,
    items: &[ReadItem],
    start: u64,
    bytes: &mut [u8],
) -> Result<u64, Failure> {
    let mut landed = 0;
    for (index, item) in items.iter().enumerate() {
        let is_ahead = index > 0;
        // A hold for each page, and none while it is decrypted: another fault may be waiting.
        match store.unseal(item, start, bytes) {
            Some(folded) => landed += u64::from(shared.engine().landed(item, folded, is_ahead)),
            None if is_ahead => {}
            None => fail_if_wanted(shared, item, store.damaged(item))?,
        }
    }
    Ok(landed)
}

/// Something is wrong with what was read: that is the end if the page is to be there, and its place was
/// not just written to again.
fn fail_if_wanted(shared: &Shared, item: &ReadItem, why: Failure) -> Result<(), Failure> {
    match shared.engine().is_current(item) {
        true => Err(why),
        false => Ok(()),
    }
}

impl Space {
    /// Has a page read that the program waits for; answers which read to wait for.
    pub(super) fn read_planned(&mut self) -> Result<u64, End> {
        let Some(store) = &self.shared.swap else {
            return Err(End::Failed(Failure::NoSwapFile));
        };
        let begun = self
            .reads
            .begin(store, &self.plan.reads, self.link.machine.now());
        begun.map_err(End::Failed)
    }

    /// Takes what was read, and answers the faults that waited for it.
    pub(super) fn finish_reads(&mut self) -> Result<(), End> {
        let shared = self.shared.clone();
        let Some(store) = shared.swap.as_ref().filter(|_| !self.reads.is_idle()) else {
            return Ok(());
        };
        loop {
            match self.reads.land(&shared, store) {
                Ok(true) => self.retry_deferred()?,
                Ok(false) => return Ok(()),
                Err(failure) => return Err(End::Failed(failure)),
            }
        }
    }

    /// Looks for the end of a read for a moment, as long as there is nothing else to do. Answers whether
    /// one has ended.
    ///
    /// The program's thread waits, and its CPU, which is this thread's, has nothing else to do.
    pub(super) fn spin_for_reads(&mut self) -> bool {
        let Some(newest) = self.reads.under_way.last().map(|read| read.since) else {
            return false;
        };
        // With one CPU, pages are folded by nobody meanwhile.
        let is_alone = self.shared.cpus > 1 || self.shared.folds.is_empty();
        if !is_alone {
            return false;
        }
        let start = self.now();
        let has_ended = self.spin_until(newest + SPIN);
        self.reads.spun += self.shared.machine.since(start);
        has_ended
    }

    fn spin_until(&mut self, end: Instant) -> bool {
        while self.now() < end {
            if self.reads.has_ended(Patience::Spin(SPIN_SLICE)) {
                return true;
            }
            let mut fds = self.descriptors();
            self.shared.machine.wait(&mut fds, Some(Duration::ZERO));
            if fds.iter().any(|fd| fd.revents != 0) {
                return false;
            }
        }
        false
    }
}
