//! Answering faults. This is the path that the program waits for.
//!
//! Its budget, single fault from the compressed cache, all on the program's CPU: wake-up 2 us, read
//! 0.4 us, lookup and copying the folded bytes out 0.3 us, decompression 1 us, UFFDIO_COPY with the
//! wake 1 us. `cargo bench`-free: `pleat run --stats` shows faults and stall time.

use super::doorbells::Doorbell;
use super::standins::Found;
use super::{End, Space};
use crate::ends::Unservable;
use crate::fold::unfold_item;
use crate::latency::Source;
use crate::parallel::Waiting;
use crate::profile::FaultPart;
use crate::reclaim;
use crate::scratch::Scratch;
use crate::shared::{RefusedFill, Shared};
use pleat_backing::Fingerprint;
use pleat_engine::{Engine, FaultAnswer, FillItem, FillPlan};
use pleat_sys::uffd::FillError;
use pleat_trace::Access;
use pleat_types::{Page, PageNo, PageRange, SpaceId, PAGE_SIZE};
use pleat_wire::uffd::{PAGEFAULT_FLAG_WP, PAGEFAULT_FLAG_WRITE};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a fault waits for other pages to be taken, where memory would not be short.
const LIMIT_PATIENCE: Duration = Duration::from_millis(20);
/// A fault that has found no memory for so long is answered over the budget: the alternative is a
/// program that hangs.
const STARVED: Duration = Duration::from_millis(300);
/// One that has waited so long for memory may do so in vain.
const LOOK_AFTER: Duration = Duration::from_millis(2);
/// A fault that waits longer for its page to be gone may wait for an agent that is stopped.
const OVERDUE: Duration = Duration::from_millis(100);

/// No thread has this number.
const NOBODY: u32 = 0;

/// A fault that could not be answered at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) page: PageNo,
    pub(super) thread: u32,
    /// The page is there, but write-protected since a fork.
    is_protected: bool,
    /// The page is to be written to.
    is_write: bool,
    /// CPU time its thread used before, for a recording.
    think_ns: u64,
    pub(super) since: Instant,
    why: Later,
    /// It has waited for memory so long that it is answered over the budget.
    pub(super) is_urgent: bool,
}

/// Why a fault waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Later {
    /// An event is pending.
    Event,
    /// The page is on its way out.
    Leaving,
    /// No memory is free.
    Memory,
    /// The page, or another in its place, is read from the swap file; which read.
    Reading(u64),
    /// The page, or another beside it, is read from a mapped file; which read.
    File(u64),
    /// The file is to be mapped again where memory stood in for it.
    GiveBack,
    /// It is the turn of other processes.
    Rest,
}

impl Later {
    /// What the wait is in a profile.
    fn part(self) -> FaultPart {
        match self {
            Later::Event => FaultPart::Event,
            Later::Leaving => FaultPart::Leaving,
            Later::Memory => FaultPart::Memory,
            Later::Rest => FaultPart::Rest,
            Later::Reading(_) => FaultPart::SwapRead,
            Later::File(_) | Later::GiveBack => FaultPart::FileRead,
        }
    }
}

impl Fault {
    /// A fault as the kernel tells it.
    pub(super) fn new(address: u64, flags: u64, thread: u32, since: Instant) -> Fault {
        Fault {
            page: PageNo::of_address(address),
            thread,
            is_protected: flags & PAGEFAULT_FLAG_WP != 0,
            is_write: flags & PAGEFAULT_FLAG_WRITE != 0,
            think_ns: 0,
            since,
            why: Later::Event,
            is_urgent: false,
        }
    }

    /// Nobody waits for the page: it is to come back all the same.
    pub(super) fn unasked(page: PageNo, since: Instant) -> Fault {
        Fault::new(page.address(), 0, NOBODY, since)
    }

    /// Whether nobody waits for it.
    pub(super) fn is_unasked(&self) -> bool {
        self.thread == NOBODY
    }

    fn name(&self) -> (u32, PageNo) {
        (self.thread, self.page)
    }

    /// As one of several that are answered at the same time.
    pub(super) fn waiting(&self) -> Waiting {
        Waiting {
            page: self.page,
            thread: self.thread,
            since: self.since,
        }
    }

    /// Whether it is that one.
    pub(super) fn is(&self, other: &Waiting) -> bool {
        self.name() == (other.thread, other.page)
    }

    pub(super) fn is_starving(&self) -> bool {
        self.why == Later::Memory
    }

    /// How long to sleep before trying again without having been called; `None`: until that.
    pub(super) fn patience(&self) -> Option<Duration> {
        match self.why {
            Later::Event => Some(Duration::from_micros(50)),
            Later::Leaving => Some(Duration::from_millis(5)),
            Later::Memory => Some(Duration::from_micros(500)),
            Later::Reading(_) | Later::File(_) => None,
            // Called when it is done; asked meanwhile whether there is still an agent to do it.
            Later::GiveBack | Later::Rest => Some(Duration::from_secs(1)),
        }
    }
}

impl Space {
    /// How long ago it was read.
    pub(super) fn age(&self, fault: &Fault) -> Duration {
        self.shared.machine.since(fault.since)
    }

    /// Answers a fault just read, or puts it off.
    pub(super) fn meet(&mut self, mut fault: Fault) -> Result<(), End> {
        if self.shared.recorder.is_some() && !self.is_own(fault.page) {
            fault.think_ns = self.clocks.used_ns(fault.thread);
        }
        self.look_around(fault.thread);
        let doorbell = self.doorbell(fault.page);
        if doorbell.is_some() {
            self.wake_sleepers();
        }
        match doorbell {
            Some(Doorbell::Mapping | Doorbell::Grown) => self.newcomers.push(fault),
            Some(Doorbell::Forked) => {
                self.forks.over(fault.thread);
                self.hold_commands();
                self.answer(fault)?;
            }
            _ => self.answer(fault)?,
        }
        Ok(())
    }

    /// Tries the faults put off once more.
    pub(super) fn retry_deferred(&mut self) -> Result<(), End> {
        let mut faults = std::mem::take(&mut self.deferred).into_iter();
        self.sleepers.is_gathering = faults.len() > 1;
        while let Some(fault) = faults.next() {
            if let Err(end) = self.retry(fault) {
                // Whoever waits for the others tells whose memory this is (`see_off`).
                self.deferred.extend(faults);
                return Err(end);
            }
        }
        self.wake_sleepers();
        Ok(())
    }

    fn retry(&mut self, mut fault: Fault) -> Result<(), End> {
        let rests = fault.why == Later::Rest && self.link.rests();
        if rests || self.is_being_read(fault.why) {
            self.deferred.push(fault);
            return Ok(());
        }
        if fault.why == Later::Rest {
            let rested = self.age(&fault).as_micros() as u64;
            self.shared.meters.rested_us.add(rested);
            fault.since = self.now();
        }
        if fault.is_starving() {
            self.shared.starving.fetch_sub(1, Ordering::AcqRel);
            let waited = self.age(&fault);
            fault.is_urgent |= waited > STARVED || (waited > LOOK_AFTER && self.is_stopped());
        }
        if fault.why == Later::Leaving && self.age(&fault) > OVERDUE {
            self.revoke_if_stopped()?;
        }
        self.answer(fault)
    }

    /// Answers a fault, or puts it off.
    pub(super) fn answer(&mut self, fault: Fault) -> Result<(), End> {
        if fault.is_unasked() && !self.shared.engine().is_out(self.link.id, fault.page) {
            // Somebody else has wanted it, or it was given up.
            return Ok(());
        }
        self.answering = fault.thread;
        self.clock
            .begin(fault.name(), fault.since, fault.why.part());
        match self.try_answer(&fault)? {
            None => {
                self.clock.answered(fault.name(), fault.since);
                if !fault.is_unasked() {
                    let waited = self.count(fault.since);
                    let source = self.source(&fault);
                    self.shared.latencies.add(source, waited.as_nanos() as u64);
                }
                if self.shared.recorder.is_some() {
                    reclaim::kick(&self.shared);
                }
            }
            Some(why) => {
                self.clock.put_off(fault.name());
                let meters = &self.shared.meters;
                match why {
                    Later::Event => meters.deferred_event.add(1),
                    Later::Leaving => meters.deferred_wait.add(1),
                    Later::Memory => {
                        meters.deferred_memory.add(1);
                        self.shared.starving.fetch_add(1, Ordering::AcqRel);
                        if fault.is_urgent {
                            self.shared.note_refused(RefusedFill {
                                pid: self.link.pid.load(Ordering::Acquire),
                                since: fault.since,
                                at: self.now(),
                            });
                        }
                        reclaim::kick(&self.shared);
                    }
                    Later::Reading(_) | Later::File(_) | Later::GiveBack | Later::Rest => {}
                }
                self.deferred.push(Fault { why, ..fault });
            }
        }
        Ok(())
    }

    /// A fault is answered that was read then; how long it took.
    pub(super) fn count(&mut self, since: Instant) -> Duration {
        self.answered += 1;
        let meters = &self.shared.meters;
        meters.faults.add(1);
        let waited = self.shared.machine.since(since);
        let stalled_us = waited.as_micros() as u64;
        meters.stall_us.add(stalled_us);
        self.link.stalled_us.add(stalled_us);
        waited
    }

    /// Where the page of a fault came from that was answered just now.
    fn source(&self, fault: &Fault) -> Source {
        match fault.why {
            Later::Reading(_) => Source::Swap,
            Later::File(_) => Source::File,
            _ => self.source,
        }
    }

    /// Whether nothing but the engine has to be asked about this fault, as long as its page is away.
    pub(super) fn is_plain(&self, fault: &Fault) -> bool {
        !fault.is_protected
            && self.doorbell(fault.page).is_none()
            && !self.is_beacon(fault.page)
            && self.views.at(fault.page.address()).is_none()
            && self.segments.at(fault.page.address()).is_none()
    }

    /// Looks the page up and fills it; `Some` when that has to wait.
    fn try_answer(&mut self, fault: &Fault) -> Result<Option<Later>, End> {
        self.prints.clear();
        self.source = Source::Other;
        let urgent = self.never_waits() || fault.is_urgent || self.is_of_agent(fault);
        if let Some(doorbell) = self.doorbell(fault.page) {
            let later = match doorbell {
                Doorbell::Fork => self.prepare_fork(fault),
                Doorbell::Born => self.look_at_newborn(fault)?,
                Doorbell::Wiping => {
                    self.wipes_children = true;
                    None
                }
                Doorbell::Offered => {
                    self.shared.tell_of_offer();
                    None
                }
                Doorbell::Mapping | Doorbell::Forked | Doorbell::Grown => None,
            };
            return match later {
                Some(why) => Ok(Some(why)),
                None => self.answer_own(fault, [0; 2]),
            };
        }
        if self.is_beacon(fault.page) {
            return self.answer_own(fault, self.link.token);
        }
        if let Some(view) = self.views.at(fault.page.address()) {
            return self.fill_view(fault, &view, urgent);
        }
        if let Some(part) = self.segments.at(fault.page.address()) {
            return self.fill_segment(fault, &part, urgent);
        }
        if fault.why == Later::GiveBack {
            // The file is mapped there now, or whatever the program wanted: the thread is to look again.
            let address = fault.page.address();
            self.link.uffd.wake(address, PAGE_SIZE as u64);
            return Ok(None);
        }
        if !urgent && self.waits_for_turn(fault) {
            return Ok(Some(Later::Rest));
        }
        if let Some(why) = self.check_wiped(fault)? {
            return Ok(Some(why));
        }
        if fault.is_protected {
            return self.unshare(fault, urgent);
        }
        if !urgent && self.waits_for_limit(fault) {
            return Ok(Some(Later::Memory));
        }
        self.clock.lap(FaultPart::Other);
        let mut engine = self.shared.engine();
        self.clock.lap(FaultPart::Lock);
        let answer = engine.fault(self.link.id, fault.page, urgent, &mut self.plan);
        if answer == FaultAnswer::Fill {
            // With the engine's lock held, because a staged page's frame is free for another page
            // as soon as the page is folded, and that needs the lock.
            let pages = &mut self.scratch.get(&self.shared).pages;
            copy_staged(&self.shared, &self.plan, pages);
            self.source = Source::of(self.plan.items.first());
        }
        drop(engine);
        self.clock.lap(FaultPart::Lookup);
        let result = match answer {
            FaultAnswer::Fill if self.is_guarded(fault.page) => {
                let address = fault.page.address();
                self.link.uffd.wake(address, PAGE_SIZE as u64);
                return Ok(None);
            }
            FaultAnswer::Fill => {
                self.cut_run_at_guards(fault.page);
                if let Some(part) = self.part_of_plan(fault.page) {
                    // To the engine it is a page of zeros.
                    self.source = Source::File;
                    self.fill_from_file(fault, &part)
                } else {
                    self.fill_plan(fault)
                }
            }
            put_off => return self.later_for(put_off),
        };
        self.shared.tell_costs();
        if fault.is_urgent && self.agent.is_some() {
            self.shared.meters.urgent_faults.add(1);
        }
        result
    }

    /// Whether the agent itself waits, for what is to stay (`keeping.rs`). It takes nothing meanwhile, so the memory that it
    /// would wait for may be its own process's, and so may the turn of others who wait for that.
    fn is_of_agent(&self, fault: &Fault) -> bool {
        let agent = self.agent.as_ref();
        agent.is_some_and(|agent| agent.name == fault.thread as i32)
    }

    /// What a fault waits for by the engine's answer; nothing, where it is to be filled. Begins to read what is to be read.
    pub(super) fn later_for(&mut self, answer: FaultAnswer) -> Result<Option<Later>, End> {
        match answer {
            FaultAnswer::Fill => Ok(None),
            FaultAnswer::Read => {
                let read = self.read_planned();
                // Asking the device for a page is part of waiting for it.
                self.clock.lap(FaultPart::SwapRead);
                read.map(|read| Some(Later::Reading(read)))
            }
            FaultAnswer::Wait => Ok(Some(Later::Leaving)),
            FaultAnswer::NoMemory => Ok(Some(Later::Memory)),
        }
    }

    /// Whether it is the turn of other processes. What has been begun for a fault is brought to its end.
    fn waits_for_turn(&self, fault: &Fault) -> bool {
        let is_begun = matches!(
            fault.why,
            Later::Leaving | Later::Reading(_) | Later::File(_)
        );
        self.link.rests() && !is_begun
    }

    /// While recording, few pages may be in memory: when taking them does not keep pace, the fault waits,
    /// though not for long, for pages in use cannot be taken.
    fn waits_for_limit(&self, fault: &Fault) -> bool {
        self.shared.recorder.is_some()
            && self.age(fault) < LIMIT_PATIENCE
            && self.shared.engine().is_at_limit()
    }

    /// The fault was met: that is a reference.
    pub(super) fn record(&self, fault: &Fault) {
        let Some(recorder) = &self.shared.recorder else {
            return;
        };
        if self.is_own(fault.page) {
            return;
        }
        let access = match fault.is_write {
            true => Access::Write,
            false => Access::Read,
        };
        recorder.touched(self.link.id, fault.page, access, fault.think_ns);
    }

    /// Fills the planned run.
    fn fill_plan(&mut self, fault: &Fault) -> Result<Option<Later>, End> {
        let count = self.plan.items.len();
        let fresh = matches!(self.plan.items[0], FillItem::Zero | FillItem::Resident);
        let address = fault.page.address();
        if fresh {
            let found = self.what_is_there(fault)?;
            self.clock.lap(FaultPart::Check);
            match found {
                Found::Private => {}
                Found::Pending => return Ok(Some(Later::Event)),
                // It becomes known in its own time.
                Found::Unknown => return Ok(Some(Later::Leaving)),
                Found::Segment(part) => return self.fill_segment(fault, &part, fault.is_urgent),
            }
        }
        let start = self.now();
        self.unfold_plan(fault.page)?;
        // Without the filling: the program wakes up in the middle of that, and runs.
        self.shared
            .pace
            .filled(self.shared.machine.since(start), count as u64);
        self.clock.lap(FaultPart::Unfold);
        let bytes = &self.scratch.get(&self.shared).pages[..count * PAGE_SIZE];
        let filled = match self.sleepers.is_gathering {
            true => self.link.uffd.copy_quietly(address, bytes),
            false => self.link.uffd.copy(address, bytes),
        };
        if let (true, Ok(pages)) = (self.sleepers.is_gathering, &filled) {
            self.sleepers
                .ranges
                .push(PageRange::new(fault.page, *pages));
        }
        self.conclude(fault, filled, count, fresh)
    }

    /// Makes the pages of the planned run from this one on, but for staged ones, which are there already.
    pub(super) fn unfold_plan(&mut self, first: PageNo) -> Result<(), End> {
        self.prints.clear();
        // Zeros are copied like anything else. The kernel's page of zeros would do for a read, but a
        // later write would then take memory without asking.
        let Scratch { press, pages } = self.scratch.get(&self.shared);
        let pages = pages.chunks_exact_mut(PAGE_SIZE);
        for (nth, (item, page)) in (0..).zip(self.plan.items.iter().zip(pages)) {
            let page: &mut Page = page.try_into().expect("a chunk is a page");
            let folder = press.folder();
            match unfold_item(&self.shared, folder, *item, &self.plan.bytes, page) {
                Ok(print) => self
                    .prints
                    .extend(print.map(|print| (first.plus(nth), print))),
                Err(failure) => return Err(End::Failed(failure)),
            }
        }
        Ok(())
    }

    /// Deals with every way a fill can end.
    pub(super) fn conclude(
        &mut self,
        fault: &Fault,
        filled: Result<u64, FillError>,
        count: usize,
        fresh: bool,
    ) -> Result<Option<Later>, End> {
        self.clock.lap(FaultPart::Fill);
        let page = PAGE_SIZE as u64;
        let address = fault.page.address();
        match filled {
            Ok(_) if fresh && self.has_vanished() => return Err(self.lost(fault.page)),
            Ok(pages) => {
                self.clock.filled(pages);
                let brings = self.filled(fault.page, pages);
                self.clock.lap(FaultPart::Settle);
                self.record(fault);
                if brings {
                    self.bring_neighbours(fault.page)?;
                }
            }
            // The run may leave the mapping: the faulted page alone does not.
            Err(FillError::NotMapped) if count > 1 => {
                let first = &self.scratch.get(&self.shared).pages[..PAGE_SIZE];
                let filled = self.link.uffd.copy(address, first);
                return self.conclude(fault, filled, 1, fresh);
            }
            Err(FillError::NotMapped) if fault.is_unasked() => return self.note_unmapped(fault),
            // Unmapped since: the thread is to look again and get its SIGSEGV.
            Err(FillError::NotMapped) => self.link.uffd.wake(address, page),
            // A second fault on a page that the first has filled.
            Err(FillError::Exists) if fresh => {
                self.filled(fault.page, 1);
                self.link.uffd.wake(address, page);
            }
            Err(FillError::Exists) => return Err(self.both(fault.page)),
            Err(FillError::EventPending) => return Ok(Some(Later::Event)),
            Err(FillError::NoMemory) => return Ok(Some(Later::Memory)),
            Err(FillError::Dead) => return Err(End::Gone),
            Err(FillError::Other(error)) => return Err(self.cannot_fill(fault.page, error)),
        }
        Ok(None)
    }

    /// `true`: neighbours are likely to be wanted, too.
    pub(super) fn filled(&mut self, page: PageNo, count: u64) -> bool {
        if self.is_own(page) {
            return false;
        }
        let range = PageRange::new(page, count);
        let mut engine = self.shared.engine();
        let brings = engine.filled(self.link.id, range);
        remember(&mut engine, self.link.id, range, &mut self.prints);
        brings
    }

    /// The account of memory is wrong.
    pub(super) fn both(&self, page: PageNo) -> End {
        self.condemn(Unservable::Both(page))
    }

    /// There is no way to put a page in place.
    pub(super) fn cannot_fill(&self, page: PageNo, error: std::io::Error) -> End {
        self.condemn(Unservable::CannotFill(page, error))
    }
}

/// Tells the engine what those pages are that are in place now.
pub(super) fn remember(
    engine: &mut Engine,
    space: SpaceId,
    filled: PageRange,
    prints: &mut Vec<(PageNo, Fingerprint)>,
) {
    for (page, is) in prints.drain(..) {
        if filled.contains(page) {
            engine.remember(space, page, is);
        }
    }
}

pub(crate) fn copy_staged(shared: &Shared, plan: &FillPlan, pages: &mut [u8]) {
    for (item, page) in plan.items.iter().zip(pages.chunks_exact_mut(PAGE_SIZE)) {
        if let FillItem::Staged(slot) = item {
            shared
                .rings
                .with_slot(*slot, |frame| page.copy_from_slice(frame));
        }
    }
}
