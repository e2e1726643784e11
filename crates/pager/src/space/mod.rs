//! One thread per managed address space: answers its faults, follows its events, hears its agent.
//!
//! # The rules that keep memory right
//!
//! 1. This thread alone reads the space's userfaultfd, fills its pages and applies its events to the
//!    engine. So between looking a page up and filling it no event is read, and the kernel refuses
//!    the fill (EAGAIN) while one is pending: what was looked up is what is filled.
//! 2. All events that were read are applied before any fault is answered: the kernel lets fills through
//!    again as soon as an event is read, and one that came in between would be missing from what a
//!    fork's child is told, or be for a page that is no longer what it was.
//! 3. A fault that met EAGAIN, a page on its way out, or no free memory is put off, *without waking
//!    its thread*; messages are read and answers heard first, then it is tried again. (Waking the
//!    thread instead would let it fault for ever ahead of the event that it waits for.)
//! 4. Events are read with the control lock held. If any came, new commands are held back and the
//!    generation is raised before the lock is let go: a command made before does nothing more (see
//!    `pleat_wire::control`). Held commands resume when all events are applied. Where the agent is stopped with the
//!    lock, its command is revoked first (`revoke.rs`).
//! 5. `remap` and `fork` move and copy page states, so they are applied only when no command is
//!    under way; `forget` needs no such wait: a page that arrives from a command after it was
//!    forgotten is dropped.
//! 6. A page once forgotten (MADV_DONTNEED and the like) becomes known again only by a fault on it,
//!    never by looking: the kernel reports the advice *before* it drops the page, so until then the
//!    page may be present with bytes that are as good as gone.

mod adopt;
mod answers;
mod clocks;
mod doorbells;
mod effort;
mod events;
mod faults;
pub(crate) mod files;
mod forks;
mod guards;
mod leaving;
mod lost;
mod misconduct;
mod neighbours;
mod newborn;
mod origins;
mod patience;
pub(crate) mod reads;
mod revoke;
mod segments;
mod shut_in;
mod sleepers;
mod standins;
mod unshare;

use crate::ends::{Failure, Unservable};
use crate::files::FileRequested;
use crate::latency::Source;
use crate::ports::PageTableView;
use crate::profile::FaultClock;
use crate::reclaim;
use crate::scratch::Lease;
use crate::segments::Segment;
use crate::shared::{lock, AgentLink, Link, Shared};
use crate::standins::StandIn;
use clocks::Clocks;
use effort::{Effort, Pursuit};
use faults::Fault;
use files::FileReads;
use forks::Forks;
use leaving::Leaving;
use newborn::Newborn;
use origins::Origins;
use pleat_backing::Fingerprint;
use pleat_engine::FillPlan;
use pleat_sys::process::readable;
use pleat_types::{PageNo, PageRange};
use pleat_wire::uffd::Message;
use reads::Reads;
use shut_in::Stopped;
use sleepers::Sleepers;
use standins::{GiveBack, Stride};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Between two tries to remove pages of shared memory that another thread has to itself.
const REMOVAL_PAUSE: Duration = Duration::from_millis(1);

pub(crate) use faults::copy_staged;

/// A space's thread with what only it knows.
pub struct Space {
    shared: Arc<Shared>,
    link: Arc<Link>,
    agent: Option<AgentLink>,
    process: Option<Arc<OwnedFd>>,
    /// It has been said why its process is ended.
    /// Events read and not yet applied, in order.
    events: VecDeque<Message>,
    /// Faults read and not yet answered.
    faults: VecDeque<Fault>,
    /// Faults that announce a new mapping.
    newcomers: Vec<Fault>,
    /// Faults put off.
    deferred: Vec<Fault>,
    /// The thread of the fault that was answered last, or put off.
    answering: u32,
    /// Threads to be woken together.
    sleepers: Sleepers,
    /// Address ranges known to be registered, start to end.
    registered: BTreeMap<u64, u64>,
    /// Write-protected pages of zeros, start to end; the engine learns of them at their first write.
    zeros: BTreeMap<u64, u64>,
    /// What it works with.
    scratch: Lease,
    plan: FillPlan,
    /// Where the page of the fault that is being answered comes from.
    source: Source,
    /// Pages of the swap file that faults wait for.
    reads: Reads,
    /// Ranges that are filled from files.
    origins: Origins,
    /// What is being read from these.
    files: FileReads,
    /// Ranges where memory stands in for files.
    views: Origins<StandIn>,
    /// Ranges of shared memory that is taken away and filled for all who map it.
    segments: Origins<Segment>,
    /// Threads that remove pages of such memory, and have to wait.
    removals: Vec<FileRequested>,
    stride: Stride,
    giving_back: GiveBack,
    /// What those of them are that the engine is to remember, once they are in place.
    prints: Vec<(PageNo, Fingerprint)>,
    /// Faults answered, to sample the program's CPU now and then.
    answered: u64,
    /// What was done when `pace` was told last.
    effort: Effort,
    /// On which CPU this thread is.
    pursuit: Pursuit,
    /// How much its threads compute, for a recording.
    clocks: Clocks,
    /// Where the time of its faults goes.
    clock: FaultClock,
    /// End of the last run of pages that were unshared, and how long the next may be.
    unsharing: (PageNo, u64),
    /// The agent has something to say.
    agent_calls: bool,
    forks: Forks,
    /// Nothing can be taken from it any more.
    is_shut_in: bool,
    /// A command was ended without its agent, which is yet to answer for so many pages.
    revoked: Option<usize>,
    /// Whether its agent is stopped.
    stopped: Stopped,
    /// Pages that the agent may have had with it when it died.
    maybe_lost: Vec<PageNo>,
    /// The agent is gone, and with it, or soon, the address space.
    agent_gone: bool,
    /// When pages were last reported to be given up.
    given_up: Option<Instant>,
    /// It has no agent, and has memory wiped in children, nobody knows where.
    wipes_children: bool,
    /// Where memory that children may find wiped was moved to.
    moved_wiped: Vec<PageRange>,
    /// What is not yet known of this forked child, until its program runs.
    newborn: Option<Newborn>,
    /// The beacon page: the agent's, or, before there is one in a forked child, the parent's, where
    /// the child's agent looks for the name of its space.
    beacon: Option<PageNo>,
    /// Its page table, once it was looked at for guards.
    page_table: Option<Box<dyn PageTableView>>,
    /// How far it has come on its way to being left.
    leaving: Leaving,
}

/// Why a space's thread serves no more.
#[derive(Debug)]
enum End {
    /// Nobody waits for anything here: the process, or this memory of it, is gone, or the job is over.
    Gone,
    /// The process cannot be served, and is to be killed: [`Link::why_unservable`] says why.
    Condemned,
    /// The job is given up.
    Failed(Failure),
}

impl Space {
    /// Makes a space's thread state.
    pub fn new(shared: Arc<Shared>, link: Arc<Link>, registered: BTreeMap<u64, u64>) -> Space {
        let clock = FaultClock::new(shared.profile.as_ref());
        let process = lock(&link.process).clone();
        let now = shared.machine.now();
        Space {
            process,
            shared,
            link,
            agent: None,
            events: VecDeque::new(),
            faults: VecDeque::new(),
            newcomers: Vec::new(),
            deferred: Vec::new(),
            answering: 0,
            sleepers: Sleepers::default(),
            registered,
            zeros: BTreeMap::new(),
            scratch: Lease::default(),
            plan: FillPlan::default(),
            source: Source::Other,
            reads: Reads::new(),
            origins: Origins::default(),
            files: FileReads::default(),
            views: Origins::default(),
            segments: Origins::default(),
            removals: Vec::new(),
            stride: Stride::default(),
            giving_back: GiveBack::default(),
            prints: Vec::new(),
            answered: 0,
            effort: Effort::default(),
            pursuit: Pursuit::default(),
            clocks: Clocks::new(),
            clock,
            unsharing: (PageNo(0), 1),
            forks: Forks::default(),
            is_shut_in: false,
            revoked: None,
            stopped: Stopped::new(now),
            maybe_lost: Vec::new(),
            agent_gone: false,
            agent_calls: false,
            given_up: None,
            wipes_children: false,
            moved_wiped: Vec::new(),
            newborn: None,
            beacon: None,
            page_table: None,
            leaving: Leaving::No,
        }
    }

    /// Starts the thread of a space and makes the space known to the others.
    pub fn start(self) {
        let (shared, link) = (self.shared.clone(), self.link.clone());
        if let Some(recorder) = &shared.recorder {
            recorder.begin(link.id);
        }
        lock(&shared.links).push(link.clone());
        let pid = link.pid.load(Ordering::Acquire);
        if pid != 0 {
            lock(&shared.by_pid).insert(pid, link.clone());
        }
        if let Err(error) = shared.machine.serve(self) {
            // It stays in the list, and its userfaultfd open.
            link.condemn(Unservable::NotServed);
            if let Some(process) = lock(&link.process).as_ref() {
                shared.machine.kill(process);
            }
            shared.tell(format!(
                "cannot start a thread: {error}; raise the limit on threads. A process is ended for that"
            ));
        }
    }

    /// The life of its thread.
    pub fn run(mut self) {
        let thread = self.shared.machine.own_thread();
        self.link.thread.store(thread, Ordering::Release);
        if self.registered.is_empty() {
            // Until it has taken charge of what is there.
            self.shared.machine.hurry(0);
        }
        while !self.shared.is_over() {
            match self.turn() {
                Ok(()) => continue,
                Err(End::Gone) => {}
                Err(End::Condemned) => self.tell_why(),
                Err(End::Failed(failure)) => self.shared.fail(failure),
            }
            break;
        }
        self.see_off();
        self.leave();
    }

    /// One turn: mail, answers, messages, faults put off; then sleep.
    fn turn(&mut self) -> Result<(), End> {
        if self.link.ended.load(Ordering::Acquire) {
            return Err(End::Gone);
        }
        if self.link.why_unservable().is_some() {
            return Err(End::Condemned);
        }
        self.read_mail()?;
        if std::mem::take(&mut self.agent_calls) {
            self.hear_agent()?;
        }
        self.gather()?;
        let busy = !self.faults.is_empty();
        self.work()?;
        self.give_back()?;
        self.welcome_newcomers()?;
        self.retry_deferred()?;
        self.finish_reads()?;
        if self.agent_gone {
            return Err(self.outlive_agent());
        }
        self.go_on_leaving()?;
        // A program in a storm of faults has met the next one by now: it ran while its page was
        // filled. Only when there was nothing to read is it worth asking whether there is.
        if !busy {
            self.sleep();
        }
        Ok(())
    }

    /// What time it is.
    fn now(&self) -> Instant {
        self.shared.machine.now()
    }

    fn read_mail(&mut self) -> Result<(), End> {
        let mail = std::mem::take(&mut *lock(&self.link.mail));
        if let Some(process) = mail.process {
            self.process = Some(process);
        }
        if let Some(agent) = mail.agent {
            self.beacon = Some(agent.beacon);
            // What a forked child's parent has there is not the child's.
            for (start, end) in agent.own {
                self.drop_range(start, end);
            }
            self.agent = Some(agent.clone());
            lock(&self.link.take).agent = Some(agent);
        }
        if mail.alone && self.link.children.load(Ordering::Acquire) == 0 {
            for (start, end) in &self.registered {
                // What fails stays protected and is let go page by page as it is written to.
                let _ = self.link.uffd.protect(*start, end - start, false);
            }
        }
        if mail.protect {
            self.protect_now();
        }
        if mail.retry_stuck {
            self.shared.engine().retry_stuck(self.link.id);
            reclaim::kick(&self.shared);
        }
        if mail.rescan {
            self.adopt_new_mappings()?;
            reclaim::kick(&self.shared);
            // From here on the program waits for its faults anyway. Ahead of it for good, this thread
            // would look like much load, and the scheduler would move the program to another CPU.
            self.shared.machine.relax();
            if let Some(thread) = self.agent.as_ref().and_then(|agent| agent.thread) {
                let pid = self.link.pid.load(Ordering::Acquire);
                self.shared.machine.relax_like(thread, pid);
            }
        }
        if mail.give_back && self.giving_back == GiveBack::Idle {
            self.giving_back = GiveBack::Due;
        }
        if let Some(is_leaving) = mail.leave {
            self.begin_leaving(is_leaving);
        }
        for segment in mail.segments {
            self.join_segment(&segment)?;
        }
        let removals = std::mem::take(&mut self.removals);
        for request in removals.into_iter().chain(mail.files) {
            self.meet_file_request(request)?;
        }
        self.take_file_reads(mail.file_reads)
    }

    /// Sleeps until something happens.
    fn sleep(&mut self) {
        if !self.events.is_empty() || !self.faults.is_empty() || !self.newcomers.is_empty() {
            return;
        }
        let starving = self.deferred.iter().any(Fault::is_starving);
        if starving && self.help_out() {
            return;
        }
        if self.spin_for_reads() {
            return;
        }
        let deferred = self.deferred.iter().filter_map(Fault::patience);
        let others = self
            .forks
            .patience(self.now())
            .into_iter()
            .chain(self.reads.patience())
            .chain(self.patience_of_leaving())
            .chain((!self.removals.is_empty()).then_some(REMOVAL_PAUSE));
        let limit = match deferred.chain(others).min() {
            Some(patience) => Some(patience),
            // A space without an agent or known process learns of its end by asking.
            None if self.agent.is_none() => Some(Duration::from_millis(500)),
            None => None,
        };
        let mut fds = self.descriptors();
        self.scratch.give_back(&self.shared);
        self.shared.machine.wait(&mut fds, limit);
        self.agent_calls = fds[1].revents != 0;
        if fds[2].revents != 0 {
            self.link.bell.hush();
        }
        let is_over = fds[3].revents != 0
            || (limit.is_some() && self.agent.is_none() && self.link.uffd.is_dead());
        if is_over {
            self.link.ended.store(true, Ordering::Release);
        }
    }

    /// What this thread waits for: messages, the agent, the bell, the end of the process, the end of
    /// a read.
    fn descriptors(&self) -> [libc::pollfd; 5] {
        let agent = self.agent.as_ref().map_or(-1, |a| a.channel.descriptor());
        let process = self
            .process
            .as_ref()
            .map_or(-1, |process| process.as_raw_fd());
        [
            readable(self.link.uffd.descriptor()),
            readable(agent),
            readable(self.link.bell.descriptor()),
            readable(process),
            readable(self.reads.descriptor()),
        ]
    }

    /// With a program waiting for memory, folds some pages here instead of sleeping.
    fn help_out(&mut self) -> bool {
        let worked = self
            .scratch
            .get(&self.shared)
            .press
            .work(&self.shared, None);
        reclaim::kick(&self.shared);
        worked
    }

    /// The address space is gone, or the job is over.
    fn leave(mut self) {
        self.link.ended.store(true, Ordering::Release);
        lock(&self.shared.links).retain(|link| !Arc::ptr_eq(link, &self.link));
        let pid = self.link.pid.load(Ordering::Acquire);
        let mut by_pid = lock(&self.shared.by_pid);
        if by_pid
            .get(&pid)
            .is_some_and(|link| Arc::ptr_eq(link, &self.link))
        {
            by_pid.remove(&pid);
        }
        drop(by_pid);
        lock(&self.shared.claims).remove(&self.link.token);
        self.drop_children_unborn();
        // A command that another thread is just making ends in this list; its frames die with the
        // ring, which the last staged page keeps alive.
        lock(&self.link.take).agent = None;
        self.shared.engine().end_space(self.link.id);
        if let Some(recorder) = &self.shared.recorder {
            recorder.end(self.link.id);
        }
        if let Some(parent) = self.link.parent.as_ref().and_then(Weak::upgrade) {
            if parent.children.fetch_sub(1, Ordering::AcqRel) == 1 {
                lock(&parent.mail).alone = true;
                parent.bell.ring();
            }
        }
        self.shared.main_bell.ring();
        self.shared.feed_starving();
    }
}
