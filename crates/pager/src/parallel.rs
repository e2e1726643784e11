//! Faults of several threads of one process, answered on several CPUs at the same time.
//!
//! A space's thread alone reads its userfaultfd, for the reasons given in `space/mod.rs`. What it has read at once, it
//! may share out: it puts the faults up here as a batch, begins with them itself, and whichever folding
//! thread is awake takes part. Everybody takes one fault after the other, so a slow helper delays
//! one of them. The space's thread goes on when all that somebody has begun with are ended.
//!
//! # Why memory stays right
//!
//! While a batch is open the space's thread does nothing but answer faults of it: it reads no message, applies no event
//! and answers no fault in the ordinary way. So the rules 1 and 2 of `space/mod.rs` hold for helpers: between
//! looking a page up and filling it no event is read, and those read before are applied. The pages of a batch
//! differ, and each comes by itself ([`Engine::fault_apart`]): nobody fills what another is about to fill. Whatever
//! is not so simple (a first touch, a page on disk or on its way out, no memory, an event that came in between) is
//! left to the space's thread, which answers it in the ordinary way when the batch is over.
//!
//! Helpers wake nobody: threads of the program would begin to run on the helpers' CPUs, and every page
//! that is taken away later would cost an interrupt there.
//!
//! The engine hears of the pages when all are in place ([`FaultBatch::settle`]), from a helper while the threads
//! wake up and run on the other CPU, or else from the space's thread. Until then they count as away though the program
//! uses them, as a single page does between its filling and [`Engine::filled`]: nobody chooses them as victims, and what
//! the program does to them meanwhile (unmap, fork) are events that the space's thread reads later. What is
//! granted so and not yet counted is bounded by a batch, which `fault_apart` has seen to be free.
//!
//! [`Engine::fault_apart`]: pleat_engine::Engine::fault_apart
//! [`Engine::filled`]: pleat_engine::Engine::filled

use crate::fold::unfold_item;
use crate::latency::Source;
use crate::profile::{FaultClock, FaultPart};
use crate::shared::{lock, Link, Shared};
use pleat_backing::Fingerprint;
use pleat_codec::Folder;
use pleat_engine::{FillItem, FillPlan};
use pleat_types::{Page, PageNo, PageRange, PAGE_SIZE};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::Instant;

/// Looks for the end of what a helper does before the space's thread sleeps until it is called: a helper that does not
/// come to its end has lost its CPU.
const LOOKS: u32 = 20_000;
/// Looks of a helper for the end of the last fault: who answers it may have lost its CPU, and settles by itself then.
const HELPER_LOOKS: u32 = 1_000;

/// A fault of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub page: PageNo,
    pub thread: u32,
    pub since: Instant,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// Nobody has answered it: it needs more than that.
    Left,
    /// The page is there.
    Filled,
    /// The same, and its neighbours are likely to be wanted.
    FilledBringing,
}

/// Faults of one space on different pages.
pub struct FaultBatch {
    link: Arc<Link>,
    faults: Vec<Waiting>,
    outcomes: Vec<AtomicU8>,
    /// The next that nobody has begun with; beyond the end when there is none.
    next: AtomicUsize,
    /// So many are ended.
    ended: AtomicUsize,
    /// What pages are that came back from the swap file and are to be compared.
    prints: Mutex<Vec<(PageNo, Fingerprint)>>,
    /// Somebody tells the engine...
    is_settling: AtomicBool,
    /// ... and has told it.
    is_settled: AtomicBool,
    /// Who waits for the last of them.
    owner: Thread,
}

impl FaultBatch {
    /// Faults on different pages, for the calling thread to share out.
    pub fn new(link: Arc<Link>, faults: Vec<Waiting>) -> FaultBatch {
        FaultBatch {
            link,
            outcomes: faults.iter().map(|_| AtomicU8::default()).collect(),
            faults,
            next: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            prints: Mutex::default(),
            is_settling: AtomicBool::new(false),
            is_settled: AtomicBool::new(false),
            owner: std::thread::current(),
        }
    }

    /// Answers one fault after the other until somebody has begun with each.
    fn work(&self, tools: &mut Tools<'_>) -> u64 {
        let mut count = 0;
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(fault) = self.faults.get(index) else {
                return count;
            };
            let outcome = tools.answer(self, fault);
            self.outcomes[index].store(outcome as u8, Ordering::Relaxed);
            // Releases what was done and its outcome to who waits for all.
            let ended = self.ended.fetch_add(1, Ordering::Release) + 1;
            if ended == self.faults.len() {
                self.owner.unpark();
            }
            count += u64::from(outcome != Outcome::Left);
        }
    }

    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) == self.faults.len()
    }

    /// Waits for something that helpers do and call for.
    fn join(shared: &Shared, is_over: &dyn Fn() -> bool) {
        shared.machine.join(LOOKS, true, is_over);
    }

    /// Tells the engine what is in place now, once every fault is ended, unless somebody has begun to.
    fn settle(&self, tools: &mut Tools<'_>) {
        if self.is_settling.swap(true, Ordering::AcqRel) {
            return;
        }
        let began = tools.clock.now();
        let prints = std::mem::take(&mut *lock(&self.prints));
        let space = self.link.id;
        let all = self.faults.iter().zip(&self.outcomes);
        let is_answered =
            |outcome: &AtomicU8| outcome.load(Ordering::Relaxed) != Outcome::Left as u8;
        let mut answered = all.filter(|(_, outcome)| is_answered(outcome)).peekable();
        let (mut count, at_once) = (0, tools.shared.pages_a_hold());
        while answered.peek().is_some() {
            let mut engine = tools.shared.engine();
            for (fault, outcome) in answered.by_ref().take(at_once) {
                count += 1;
                let brings = engine.filled(space, PageRange::new(fault.page, 1));
                let print = prints.iter().find(|(page, _)| *page == fault.page);
                if let Some((page, print)) = print {
                    engine.remember(space, *page, *print);
                }
                if brings {
                    outcome.store(Outcome::FilledBringing as u8, Ordering::Relaxed);
                }
            }
        }
        tools.clock.settled(began, count);
        self.is_settled.store(true, Ordering::Release);
        self.owner.unpark();
    }

    /// What became of each, in the order of the faults.
    fn outcomes(&self) -> impl Iterator<Item = Outcome> + '_ {
        self.outcomes
            .iter()
            .map(|outcome| match outcome.load(Ordering::Relaxed) {
                1 => Outcome::Filled,
                2 => Outcome::FilledBringing,
                _ => Outcome::Left,
            })
    }
}

/// Batches that helpers may take part in; in cache lines of its own, because a helper looks here all the time.
#[derive(Default)]
#[repr(align(128))]
pub struct FaultBatches {
    open: Mutex<Vec<Arc<FaultBatch>>>,
    /// How many; read without the lock by who looks all the time.
    count: AtomicUsize,
}

impl FaultBatches {
    /// Whether there is any.
    pub fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    fn add(&self, batch: &Arc<FaultBatch>) {
        let mut open = lock(&self.open);
        open.push(batch.clone());
        self.count.store(open.len(), Ordering::Relaxed);
    }

    fn remove(&self, batch: &Arc<FaultBatch>) {
        let mut open = lock(&self.open);
        open.retain(|other| !Arc::ptr_eq(other, batch));
        self.count.store(open.len(), Ordering::Relaxed);
    }

    /// One with faults that nobody has begun with.
    fn find(&self) -> Option<Arc<FaultBatch>> {
        let open = lock(&self.open);
        let has_more =
            |batch: &&Arc<FaultBatch>| batch.next.load(Ordering::Relaxed) < batch.faults.len();
        open.iter().find(has_more).cloned()
    }
}

/// A batch whose faults are ended, of which the engine need not know yet: until [`EndedBatch::settled`] is called nothing
/// of its space may be asked of the engine, nor a message be read.
#[must_use]
pub struct EndedBatch(Arc<FaultBatch>);

/// The space's thread answers a batch, with whoever helps.
pub fn share_out(batch: FaultBatch, tools: &mut Tools<'_>) -> EndedBatch {
    let (batch, shared) = (Arc::new(batch), tools.shared);
    shared.batches.add(&batch);
    batch.work(tools);
    shared.batches.remove(&batch);
    FaultBatch::join(shared, &|| batch.is_ended());
    EndedBatch(batch)
}

impl EndedBatch {
    /// Which of the faults are answered, in their order.
    pub fn answered(&self) -> impl Iterator<Item = &Waiting> {
        let all = self.0.faults.iter().zip(self.0.outcomes());
        all.filter(|(_, outcome)| *outcome != Outcome::Left)
            .map(|(fault, _)| fault)
    }

    /// Sees to it that the engine knows; then says what became of each fault.
    pub fn settled(self, tools: &mut Tools<'_>) -> Vec<(Waiting, Outcome)> {
        let batch = self.0;
        batch.settle(tools);
        let is_settled = || batch.is_settled.load(Ordering::Acquire);
        FaultBatch::join(tools.shared, &is_settled);
        batch.faults.iter().copied().zip(batch.outcomes()).collect()
    }
}

/// A thread that is awake takes part in a batch, if there is one. Answers whether it has answered faults.
pub fn help(tools: &mut Tools<'_>) -> bool {
    let Some(batch) = tools.shared.batches.find() else {
        return false;
    };
    let answered = batch.work(tools);
    tools.shared.meters.helped_faults.add(answered);
    let machine = &tools.shared.machine;
    if machine.join(HELPER_LOOKS, false, &|| batch.is_ended()) {
        batch.settle(tools);
    }
    answered > 0
}

/// Buffers for answering faults.
pub struct Buffers {
    plan: FillPlan,
    page: Box<Page>,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            plan: FillPlan::default(),
            page: Box::new([0; PAGE_SIZE]),
        }
    }
}

/// What a thread needs to take part.
pub struct Tools<'a> {
    pub shared: &'a Shared,
    pub folder: &'a mut Folder,
    pub buffers: &'a mut Buffers,
    pub clock: &'a mut FaultClock,
}

impl Tools<'_> {
    /// Looks a page up and fills it, if that is all there is to do.
    fn answer(&mut self, batch: &FaultBatch, fault: &Waiting) -> Outcome {
        let (link, name) = (&batch.link, (fault.thread, fault.page));
        self.clock.begin(name, fault.since, FaultPart::Turn);
        if !self.look_up(link, fault.page) {
            return Outcome::Left;
        }
        let start = self.shared.machine.now();
        let (page, item) = (&mut self.buffers.page, self.buffers.plan.items[0]);
        // Damage is found again, and reported, by the space's thread.
        let bytes = &self.buffers.plan.bytes;
        let Ok(print) = unfold_item(self.shared, self.folder, item, bytes, page) else {
            return Outcome::Left;
        };
        self.shared.pace.filled(self.shared.machine.since(start), 1);
        self.clock.lap(FaultPart::Unfold);
        let address = fault.page.address();
        if link.uffd.copy_quietly(address, &page[..]).is_err() {
            return Outcome::Left;
        }
        if let Some(print) = print {
            lock(&batch.prints).push((fault.page, print));
        }
        self.clock.lap(FaultPart::Fill);
        self.clock.filled(1);
        self.clock.answered(name, fault.since);
        let waited = self.shared.machine.since(fault.since);
        let source = Source::of(Some(&item));
        let latencies = &self.shared.latencies;
        latencies.add(source, waited.as_nanos() as u64);
        Outcome::Filled
    }

    /// `false`: it is not simple.
    fn look_up(&mut self, link: &Link, page: PageNo) -> bool {
        self.clock.lap(FaultPart::Other);
        let engine = self.shared.engine();
        self.clock.lap(FaultPart::Lock);
        let plan = &mut self.buffers.plan;
        if !engine.fault_apart(link.id, page, plan) {
            return false;
        }
        if let FillItem::Staged(slot) = plan.items[0] {
            // With the engine's lock held, as in `space/faults.rs`.
            let page = &mut self.buffers.page;
            let rings = &self.shared.rings;
            rings.with_slot(slot, |frame| page.copy_from_slice(frame));
        }
        drop(engine);
        self.clock.lap(FaultPart::Lookup);
        true
    }
}
