//! One managed address space as other threads see it: its agent, its take-away traffic, its mail.
//!
//! The space's thread (`space`) owns what is behind; others leave it mail and ring its bell, and whoever takes pages away
//! (`reclaim.rs`) reserves its `take`.

use crate::ends::Unservable;
use crate::files::{FileRead, FileRequested};
use crate::meters::Meter;
use crate::ports::{AgentSocket, Machine, SpaceBell, Userfault};
use crate::rings::Slots;
use crate::segments::{Identity, Segment};
use crate::shared::lock;
use crate::take::TakeState;
use pleat_types::{PageNo, SpaceId};
use pleat_wire::message::{Token, TAKE_MAX};
use pleat_wire::PAGE;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Bytes of an agent's staging area.
pub const STAGING_LEN: u64 = (TAKE_MAX * PAGE) as u64;

/// An agent that is ready for commands.
#[derive(Clone)]
pub struct AgentLink {
    /// Where commands go and answers come from.
    pub channel: Arc<dyn AgentSocket>,
    /// Where pages land.
    pub slots: Arc<Slots>,
    /// The agent's thread id, as its process knows it.
    pub name: i32,
    /// The same as we know it, for the scheduler: in another PID namespace it has another. `None` where it is gone.
    pub thread: Option<i32>,
    /// The agent's own memory, never to be managed: its area and its library's variables.
    pub own: [(u64, u64); 2],
    /// The kernel reports its forks; else its memory is kept from children.
    pub fork_events: bool,
    /// The beacon page, with the doorbells behind it: a fault on it in a forked child asks for the
    /// space's name.
    pub beacon: PageNo,
    /// Its staging area of [`STAGING_LEN`] bytes, where what is taken comes by.
    pub staging: u64,
    /// It was put into its process from outside, which announces nothing of what it does.
    pub is_injected: bool,
}

/// What other threads hand to a space's thread.
#[derive(Default)]
pub struct Mail {
    /// An agent that has become ready.
    pub agent: Option<AgentLink>,
    /// New mappings are to be looked for.
    pub rescan: bool,
    /// Pages that refused to be taken are to be tried again.
    pub retry_stuck: bool,
    /// Whose address space this is, where that was not known.
    pub process: Option<Arc<OwnedFd>>,
    /// The last child that shared memory since a fork is gone.
    pub alone: bool,
    /// What is shared since a fork is to be write-protected: memory could no longer hold it all twice.
    pub protect: bool,
    /// Threads of the program that have mapped a file, or ask whether they have.
    pub files: Vec<FileRequested>,
    /// Memory of a file is void that this space may have mapped.
    pub give_back: bool,
    /// Shared memory of which all mappings are to be registered.
    pub segments: Vec<Arc<Segment>>,
    /// Reads of mapped files that have ended.
    pub file_reads: Vec<FileRead>,
    /// Its process is to be left, or not any more.
    pub leave: Option<bool>,
}

/// One managed address space, as other threads see it.
pub struct Link {
    /// Its name in the engine.
    pub id: SpaceId,
    /// Its process; 0 while unknown (a forked child that has not faulted yet).
    pub pid: AtomicI32,
    /// Stands for that process; taken when it was met, so that no other is ever meant.
    pub process: Mutex<Option<Arc<OwnedFd>>>,
    /// By which the process of a forked child claims it; zeros: it was never to be claimed.
    pub token: Token,
    /// It cannot be served: its process is ended as soon as it is known, and waits until then.
    unservable: OnceLock<Unservable>,
    /// The thread that serves it; 0 until that runs.
    pub thread: AtomicI32,
    /// Its userfaultfd.
    pub uffd: Arc<dyn Userfault>,
    /// What it is served by.
    pub machine: Arc<dyn Machine>,
    /// Wakes its thread.
    pub bell: SpaceBell,
    /// What its thread is to look at.
    pub mail: Mutex<Mail>,
    /// Its take-away traffic.
    pub take: Mutex<TakeState>,
    /// Where the beacon is, while no agent has shown it: the parent's. 0: not known.
    pub beacon: AtomicU64,
    /// The space it was forked from.
    pub parent: Option<Weak<Link>>,
    /// Spaces forked from it that live.
    pub children: AtomicU64,
    /// It has grown unannounced since the lookout last had it looked for new mappings.
    pub grows: AtomicBool,
    /// What it shares since a fork is write-protected, so that each page that becomes two asks first.
    pub is_protected: AtomicBool,
    /// It maps memory that stands in for a file, or did.
    pub has_stand_ins: AtomicBool,
    /// Shared memory that it maps and that counts once for all who do.
    pub counted: Mutex<Vec<Identity>>,
    /// Its address space is gone, or is to be given up.
    pub ended: AtomicBool,
    /// Its process has forbidden itself what takes pages away, and nobody has been told yet.
    pub is_shut_in: AtomicBool,
    /// Microseconds that its threads waited for pages.
    pub stalled_us: Meter,
    /// Pages of it that were taken away.
    pub taken_pages: Meter,
    /// It is another's turn: its faults find no answer (`load.rs`).
    rests: AtomicBool,
}

impl Link {
    /// The space of a process, which has no thread yet.
    pub fn new(
        id: SpaceId,
        process: (i32, Arc<OwnedFd>),
        uffd: Arc<dyn Userfault>,
        bell: SpaceBell,
        machine: Arc<dyn Machine>,
    ) -> Link {
        let link = Link::of_child(id, [0; 2], uffd, bell, (None, machine));
        link.pid.store(process.0, Ordering::Release);
        *lock(&link.process) = Some(process.1);
        link
    }

    /// The space of a forked child, whose process is not known until it shows this token.
    pub fn of_child(
        id: SpaceId,
        token: Token,
        uffd: Arc<dyn Userfault>,
        bell: SpaceBell,
        (parent, machine): (Option<Weak<Link>>, Arc<dyn Machine>),
    ) -> Link {
        Link {
            id,
            pid: AtomicI32::new(0),
            process: Mutex::new(None),
            token,
            unservable: OnceLock::new(),
            thread: AtomicI32::new(0),
            uffd,
            machine,
            bell,
            mail: Mutex::new(Mail::default()),
            take: Mutex::new(TakeState::default()),
            beacon: AtomicU64::new(0),
            parent,
            children: AtomicU64::new(0),
            grows: AtomicBool::new(false),
            is_protected: AtomicBool::new(false),
            has_stand_ins: AtomicBool::new(false),
            counted: Mutex::default(),
            ended: AtomicBool::new(false),
            is_shut_in: AtomicBool::new(false),
            stalled_us: Meter::default(),
            taken_pages: Meter::default(),
            rests: AtomicBool::new(false),
        }
    }

    /// Has the space's thread write-protect what is shared since a fork, unless it is.
    pub fn protect(&self) {
        if !self.is_protected.load(Ordering::Acquire) {
            lock(&self.mail).protect = true;
            self.bell.ring();
        }
    }

    /// Has the space's thread look for new mappings, ahead of other load: until it has found them nothing
    /// stops the program from filling them. The agent too, for it may have the lock that the thread needs.
    pub fn rescan(&self) {
        let agent = lock(&self.take)
            .agent
            .as_ref()
            .and_then(|agent| agent.thread);
        let mut mail = lock(&self.mail);
        mail.rescan = true;
        // Under the lock: the space's thread takes its mail first, and has both relax when it is done.
        let thread = self.thread.load(Ordering::Acquire);
        for thread in agent.into_iter().chain([thread]).filter(|&id| id != 0) {
            self.machine.hurry(thread);
        }
        drop(mail);
        self.bell.ring();
    }

    /// Whether its faults are to wait for its turn.
    pub fn rests(&self) -> bool {
        self.rests.load(Ordering::Acquire)
    }

    /// It is its turn, or another's.
    pub fn set_rest(&self, rests: bool) {
        self.rests.store(rests, Ordering::Release);
        // Its thread looks after it was called: what waits then is answered, or was put off after this.
        if !rests {
            self.bell.ring();
        }
    }

    /// Tells its process whether memory is plenty, if it has an agent that can know.
    pub fn set_at_ease(&self, is_at_ease: bool) {
        if let Some(agent) = &lock(&self.take).agent {
            let at_ease = &agent.slots.ring.control().at_ease;
            at_ease.store(u32::from(is_at_ease), Ordering::Relaxed);
        }
    }

    /// Whether the connection to its agent is open. It is closed when the process ends, and when it executes
    /// another program before that has an agent.
    pub fn has_agent(&self) -> bool {
        // The first has not been looked at yet.
        let new = lock(&self.mail).agent.clone();
        let agent = new.or_else(|| lock(&self.take).agent.clone());
        agent.is_some_and(|agent| !agent.channel.is_closed())
    }

    /// It cannot be served any more: its process is to be ended.
    pub fn condemn(&self, why: Unservable) {
        // The first says it.
        let _ = self.unservable.set(why);
        self.bell.ring();
    }

    /// Why its process is to be ended, if it is.
    pub fn why_unservable(&self) -> Option<&Unservable> {
        self.unservable.get()
    }

    /// Whether nobody waits for it: it has ended, or cannot be served and is not known, so that it is ended when
    /// the job is over.
    pub fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire)
            || (self.why_unservable().is_some() && lock(&self.process).is_none())
    }

    /// Has the space's thread bring back all that is away, and leave the process; or stay after all.
    pub fn leave(&self, is_leaving: bool) {
        // Before the mail is read nothing more is taken.
        lock(&self.take).close(is_leaving);
        lock(&self.mail).leave = Some(is_leaving);
        self.bell.ring();
    }

    /// Asks the space's thread to end.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.bell.ring();
    }
}
