//! Who runs when: processes on CPUs, in virtual time.
//!
//! ```text
//!            dispatch                slice over, another waits
//!   Ready ------------> on a CPU -------------------------> Ready
//!     ^                  |    |  \
//!     |   it was read    |    |   `--> ended
//!     +---- Reading <----'    |
//!     |   there is memory     |
//!     +---- Stalled <---------'
//! ```
//!
//! Always the CPU that is furthest behind goes on, until it blocks, its slice ends, or it is ahead
//! of everything else by [`SKEW_NS`]: a little disorder buys long undisturbed runs. One CPU alone
//! runs until the device next has something to say. Ties go to who came first, so that a run is the
//! same every time.
//!
//! Time is shared as in Linux 2.4: a process that waits keeps what it did not use of its slice. Who
//! has most left goes first, and takes the CPU from one with less when the device wakes it. When all
//! that are ready have used theirs up, every process gets a new slice on top of half of what it had
//! left. So a process that waits for the disk now and then does not also wait for one that never does.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use pleat_trace::{ProcessNo, Reference, Source};

use crate::accounts::{CpuTime, Outcome, ProcessTime, WaitTime};
use crate::memory::{Answer, Memory, Turn};
use crate::Failure;

/// How far CPUs run ahead of each other.
const SKEW_NS: u64 = 20_000;
/// So many stalls in a row on one fault mean that it will never be served.
const STALLS_MAX: u32 = 100_000;
/// Folding threads are woken one for so many pages.
const FOLDS_PER_THREAD: usize = 16;

/// An actor by its place in the list.
type ActorNo = usize;

/// Something that runs on CPUs.
struct Actor {
    role: Role,
    cpu: CpuTime,
    wait: WaitTime,
    references: u64,
    /// When it began to wait for whatever it waits for.
    since: u64,
    /// What is left of its slice while it does not run.
    left_ns: u64,
    pending: Option<Pending>,
    stalls: u32,
    ended_at: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Program(ProcessNo),
    /// Folds pages beside the programs.
    Folder,
}

/// A reference on its way.
#[derive(Clone, Copy)]
enum Pending {
    /// It was being read.
    Arrival(Reference),
    /// There was no memory, or the page was leaving.
    Retry(Reference),
}

#[derive(Default)]
struct CpuState {
    clock: u64,
    running: Option<ActorNo>,
    last: Option<ActorNo>,
    slice_end: u64,
}

/// Why an actor stopped.
enum Stop {
    /// It is time for another.
    Limit,
    /// It waits for the device until then.
    Reading(u64),
    Stalled,
    /// Nothing to fold.
    Idle,
    Ended,
}

/// How a row of references without faults ended.
enum Row {
    Limit,
    Missed(Reference),
    Ended,
}

/// How time is shared.
pub(crate) struct Shares {
    pub(crate) cpus: u32,
    pub(crate) folders: u32,
    pub(crate) slice_ns: u64,
    pub(crate) switch_ns: u64,
}

/// A simulation under way.
pub(crate) struct Schedule<'a> {
    memory: Memory,
    source: &'a mut dyn Source,
    shares: Shares,
    actors: Vec<Actor>,
    cpus: Vec<CpuState>,
    ready: VecDeque<ActorNo>,
    /// Actors that read, by when they will have; with a number that keeps their order.
    readers: BinaryHeap<Reverse<(u64, u64, ActorNo)>>,
    reads: u64,
    stalled: VecDeque<ActorNo>,
    idle_folders: Vec<ActorNo>,
    /// All is over when the first so many processes have ended.
    pub(crate) until: Option<u32>,
    /// Most memory used beyond the budget.
    pub(crate) over_bytes: u64,
}

impl<'a> Schedule<'a> {
    pub(crate) fn new(memory: Memory, source: &'a mut dyn Source, shares: Shares) -> Schedule<'a> {
        let programs = (0..source.processes()).map(|no| Role::Program(ProcessNo(no)));
        let folders = (0..shares.folders).map(|_| Role::Folder);
        let actor = |role| Actor::new(role, shares.slice_ns);
        let actors: Vec<Actor> = programs.chain(folders).map(actor).collect();
        let programs = source.processes() as usize;
        Schedule {
            memory,
            source,
            cpus: (0..shares.cpus).map(|_| CpuState::default()).collect(),
            shares,
            ready: (0..programs).collect(),
            idle_folders: (programs..actors.len()).collect(),
            actors,
            readers: BinaryHeap::new(),
            reads: 0,
            stalled: VecDeque::new(),
            until: None,
            over_bytes: 0,
        }
    }

    /// Runs every process to its end, or until those have ended that were named.
    pub(crate) fn run(&mut self) -> Result<(), Failure> {
        while !self.is_over() {
            self.dispatch();
            let running = self.furthest_behind();
            let now = match (running, self.next_due()) {
                (Some(cpu), due) if due.is_none_or(|due| self.cpus[cpu].clock < due) => {
                    self.run_on(cpu)?;
                    self.cpus[cpu].clock
                }
                (_, Some(due)) => {
                    self.deliver(due);
                    due
                }
                (_, None) => break,
            };
            if let Some(full) = self.memory.full {
                return Err(full.into());
            }
            let over = self.memory.free_bytes().min(0).unsigned_abs();
            self.over_bytes = self.over_bytes.max(over);
            self.rouse(now);
        }
        if self.stalled.is_empty() || self.is_over() {
            return Ok(());
        }
        Err(self.out_of_memory())
    }

    /// Whether those have ended that everything is to end with.
    fn is_over(&self) -> bool {
        let ended = |first: u32| {
            self.actors[..first as usize]
                .iter()
                .all(|a| a.ended_at.is_some())
        };
        self.until.is_some_and(ended)
    }

    /// What became of it.
    pub(crate) fn outcome(&self) -> Outcome {
        let (mut processes, mut beside) = (Vec::new(), CpuTime::default());
        for actor in &self.actors {
            match actor.role {
                Role::Folder => beside.add(&actor.cpu),
                Role::Program(_) => processes.push(ProcessTime {
                    // One that did not come to its end is accounted for up to here.
                    elapsed_ns: actor.ended_at.unwrap_or(actor.since),
                    references: actor.references,
                    cpu: actor.cpu,
                    wait: actor.wait,
                }),
            }
        }
        let (traffic, counters) = (self.memory.traffic(), self.memory.counters());
        Outcome::of(processes, beside, traffic, counters)
    }

    /// Gives CPUs that are idle to those that are ready.
    fn dispatch(&mut self) {
        let all: Vec<usize> = (0..self.cpus.len()).collect();
        while let Some(place) = self.next_ready() {
            let no = self.ready[place];
            let idle = |cpu: &&usize| self.cpus[**cpu].running.is_none();
            // Where it ran last, if it can: no switch then.
            let own = all
                .iter()
                .filter(idle)
                .find(|&&cpu| self.cpus[cpu].last == Some(no));
            let Some(&cpu) = own.or_else(|| all.iter().find(idle)) else {
                return;
            };
            self.ready.remove(place);
            if self.actors[no].left_ns == 0 {
                self.share_out();
            }
            self.start(cpu, no);
        }
    }

    /// The place in the queue of who goes next: what folds makes room for all others, then who has
    /// most left of its slice.
    fn next_ready(&self) -> Option<usize> {
        let key = |&place: &usize| {
            let actor = &self.actors[self.ready[place]];
            (actor.role == Role::Folder, actor.left_ns)
        };
        // Of equals `max_by_key` takes the last.
        (0..self.ready.len()).rev().max_by_key(key)
    }

    /// New slices for everybody.
    fn share_out(&mut self) {
        for actor in &mut self.actors {
            actor.left_ns = actor.left_ns / 2 + self.shares.slice_ns;
        }
    }

    /// The device has woken this one: it takes the CPU from the one that has least left of its slice,
    /// if it has more.
    fn preempt_for(&mut self, no: ActorNo) {
        let left = |state: &CpuState| state.slice_end.saturating_sub(state.clock);
        let programs = |state: &&mut CpuState| {
            let running = state.running.map(|no| self.actors[no].role);
            !matches!(running, Some(Role::Folder))
        };
        let Some(state) = self
            .cpus
            .iter_mut()
            .filter(programs)
            .min_by_key(|s| left(s))
        else {
            return;
        };
        let Some(running) = state
            .running
            .filter(|_| left(state) < self.actors[no].left_ns)
        else {
            return;
        };
        // Perhaps it was only about to begin.
        self.actors[running].since = state.clock;
        self.actors[running].left_ns = left(state);
        state.running = None;
        self.ready.push_back(running);
    }

    fn start(&mut self, cpu: usize, no: ActorNo) {
        let (cpu, actor) = (&mut self.cpus[cpu], &mut self.actors[no]);
        cpu.clock = cpu.clock.max(actor.since);
        actor.wait.cpu_ns += cpu.clock - actor.since;
        if cpu.last.is_some_and(|last| last != no) {
            cpu.clock += self.shares.switch_ns;
            actor.cpu.switch_ns += self.shares.switch_ns;
        }
        cpu.running = Some(no);
        cpu.last = Some(no);
        cpu.slice_end = cpu.clock + actor.left_ns;
    }

    /// The CPU that runs something and whose clock shows least.
    fn furthest_behind(&self) -> Option<usize> {
        let running = (0..self.cpus.len()).filter(|&cpu| self.cpus[cpu].running.is_some());
        running.min_by_key(|&cpu| self.cpus[cpu].clock)
    }

    /// When something ends that nobody runs for.
    fn next_due(&self) -> Option<u64> {
        let read = self.readers.peek().map(|Reverse((done, ..))| *done);
        [read, self.memory.next_written()]
            .into_iter()
            .flatten()
            .min()
    }

    fn deliver(&mut self, due: u64) {
        self.memory.catch_up(due);
        while let Some(&Reverse((done, _, no))) = self.readers.peek() {
            if done > due {
                return;
            }
            self.readers.pop();
            let actor = &mut self.actors[no];
            actor.wait.read_ns += done - actor.since;
            self.wake(no, done);
            if self.cpus.iter().all(|cpu| cpu.running.is_some()) {
                self.preempt_for(no);
            }
        }
    }

    fn wake(&mut self, no: ActorNo, now: u64) {
        self.actors[no].since = now;
        // What folds makes room for all others.
        match self.actors[no].role {
            Role::Folder => self.ready.push_front(no),
            Role::Program(_) => self.ready.push_back(no),
        }
    }

    /// Wakes those for whom there is something now: memory, or pages to fold.
    fn rouse(&mut self, now: u64) {
        let jobs = self.memory.folds_waiting().div_ceil(FOLDS_PER_THREAD);
        let awake = self.shares.folders as usize - self.idle_folders.len();
        for _ in awake..jobs.max(awake) {
            let Some(no) = self.idle_folders.pop() else {
                break;
            };
            self.wake(no, now.max(self.actors[no].since));
        }
        if self.stalled.is_empty() || !self.memory.has_room() {
            return;
        }
        while let Some(no) = self.stalled.pop_front() {
            let actor = &mut self.actors[no];
            let now = now.max(actor.since);
            actor.wait.memory_ns += now - actor.since;
            self.wake(no, now);
        }
    }

    /// Until when a CPU may run without looking up.
    fn limit(&self, cpu: usize) -> u64 {
        let slice_end = self.cpus[cpu].slice_end;
        if self.cpus.len() == 1 {
            return self.next_due().map_or(slice_end, |due| due.min(slice_end));
        }
        let others = self.cpus.iter().enumerate();
        let others = others.filter(|(other, state)| *other != cpu && state.running.is_some());
        let soonest = others.map(|(_, state)| state.clock).chain(self.next_due());
        let horizon = soonest.min().unwrap_or(u64::MAX).saturating_add(SKEW_NS);
        slice_end.min(horizon)
    }

    fn run_on(&mut self, cpu: usize) -> Result<(), Failure> {
        let no = self.cpus[cpu].running.expect("a CPU that runs something");
        let limit = self.limit(cpu);
        let mut now = self.cpus[cpu].clock;
        let stop = match self.actors[no].role {
            Role::Program(process) => self.run_program(no, process, &mut now, limit),
            Role::Folder => self.run_folder(no, &mut now, limit),
        };
        let state = &mut self.cpus[cpu];
        state.clock = now;
        let actor = &mut self.actors[no];
        actor.since = now;
        actor.left_ns = state.slice_end.saturating_sub(now);
        match stop {
            Stop::Limit if now < state.slice_end => return Ok(()),
            Stop::Limit if self.ready.is_empty() => {
                state.slice_end = now + self.shares.slice_ns;
                return Ok(());
            }
            Stop::Limit => self.ready.push_back(no),
            Stop::Reading(done) => {
                self.reads += 1;
                self.readers.push(Reverse((done.max(now), self.reads, no)));
            }
            Stop::Stalled => {
                self.stalled.push_back(no);
                if actor.stalls > STALLS_MAX {
                    return Err(self.out_of_memory());
                }
            }
            Stop::Idle => self.idle_folders.push(no),
            Stop::Ended => actor.ended_at = Some(now),
        }
        self.cpus[cpu].running = None;
        Ok(())
    }

    fn run_folder(&mut self, no: ActorNo, now: &mut u64, limit: u64) -> Stop {
        let mut turn = Turn {
            now: *now,
            cpu: &mut self.actors[no].cpu,
            source: &*self.source,
        };
        let mut more = true;
        while more && turn.now < limit {
            more = self.memory.fold_beside(&mut turn);
        }
        *now = turn.now;
        if more {
            Stop::Limit
        } else {
            Stop::Idle
        }
    }

    fn run_program(&mut self, no: ActorNo, process: ProcessNo, now: &mut u64, limit: u64) -> Stop {
        loop {
            let actor = &mut self.actors[no];
            let pending = actor.pending.take();
            let missed = match pending {
                Some(Pending::Arrival(reference) | Pending::Retry(reference)) => reference,
                None => {
                    match run_row(self.source, &mut self.memory, process, (actor, now, limit)) {
                        Row::Missed(reference) => reference,
                        Row::Limit => return Stop::Limit,
                        Row::Ended => {
                            self.memory.end(process);
                            return Stop::Ended;
                        }
                    }
                }
            };
            let mut turn = Turn {
                now: *now,
                cpu: &mut actor.cpu,
                source: &*self.source,
            };
            let answer = match pending {
                None => self.memory.fault(&mut turn, process, &missed),
                Some(Pending::Retry(_)) => self.memory.retry(&mut turn, &missed),
                Some(Pending::Arrival(_)) => self.memory.arrive(&mut turn, &missed),
            };
            *now = turn.now;
            match answer {
                Answer::Placed => {
                    actor.stalls = 0;
                    let present = self.memory.touch(&missed);
                    assert!(present, "{missed:?} was put in place and is not there");
                }
                Answer::Reading(done) => {
                    actor.pending = Some(Pending::Arrival(missed));
                    return Stop::Reading(done);
                }
                Answer::Leaving(done) => {
                    actor.pending = Some(Pending::Retry(missed));
                    return Stop::Reading(done);
                }
                Answer::Stalled => {
                    actor.stalls += 1;
                    actor.pending = Some(Pending::Retry(missed));
                    return Stop::Stalled;
                }
            }
        }
    }

    fn out_of_memory(&self) -> Failure {
        Failure::Memory {
            free_bytes: self.memory.free_bytes(),
            stalled: self.stalled.len(),
        }
    }
}

/// References up to the first fault: the inner loop of a simulation, some 50 ns a turn
/// with little else in the cache (`examples/speed.rs`).
fn run_row(
    source: &mut dyn Source,
    memory: &mut Memory,
    process: ProcessNo,
    (actor, now, limit): (&mut Actor, &mut u64, u64),
) -> Row {
    let start = *now;
    let row = loop {
        if *now >= limit {
            break Row::Limit;
        }
        let Some(reference) = source.next(process) else {
            break Row::Ended;
        };
        *now += reference.think_ns;
        actor.references += 1;
        if !memory.touch(&reference) {
            break Row::Missed(reference);
        }
    };
    actor.cpu.user_ns += *now - start;
    row
}

impl Actor {
    fn new(role: Role, left_ns: u64) -> Actor {
        Actor {
            role,
            left_ns,
            cpu: CpuTime::default(),
            wait: WaitTime::default(),
            references: 0,
            since: 0,
            pending: None,
            stalls: 0,
            ended_at: None,
        }
    }
}
