//! A process's agent: it obeys commands as `pleat-agent` does (`agent/src/take.rs`, `serve.rs`), a step at a time.

mod keeping;

pub use keeping::have_some_kept;

use super::kernel::{Event, Follow, Mapping, Page, EAGAIN, EEXIST, EINVAL, ENOENT};
use super::page::page_of;
use super::process::{Hello, Process, Socket};
use super::program::{Doorbell, Program};
use super::world::{self, note, pause, step, wait_until, with};
use super::Trouble;
use crate::rings::Slots;
use pleat_sys::{bytes_of, read_plain, Plain};
use pleat_types::PAGE_SIZE;
use pleat_wire::control::{COPIED, FREE, HELD, RETRIED};
use pleat_wire::message::{self, Keep, Take, TakeItem, Taken, Word, DOORBELLS, TAKE_MAX};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// Pages of the beacon and the doorbells.
pub const BEACON_PAGES: u64 = 1 + DOORBELLS as u64;
/// Most pages moved under one hold of the lock.
const RUN_MAX: usize = 32;

/// Begins a process's agent, which says hello with this token.
pub fn begin(pid: i32, token: [u64; 2]) {
    connect(pid);
    with(|world| world.hellos.push_back(Hello { pid, token }));
    world::begin("agent", Some(pid), move || Agent::of(pid).serve());
}

/// Puts an agent into a process from outside, while its program runs: the child of a fork, whose memory the beacon tells, or who
/// has nobody's.
pub fn put_in(pid: i32) {
    let beacon = with(|world| {
        world.tally.late_agents += 1;
        world.processes[&pid].beacon
    });
    connect(pid);
    note(|| format!("process {pid} gets an agent"));
    world::begin("agent", Some(pid), move || {
        let thread = with(|world| world.processes[&pid].agent);
        let program = Program::of(pid, thread);
        let token = beacon.map_or([0; 2], |beacon| program.read_beacon(beacon));
        with(|world| world.hellos.push_back(Hello { pid, token }));
        Agent::of(pid).serve();
    });
}

fn connect(pid: i32) {
    with(|world| {
        let thread = world.id();
        world.sockets.push(Socket::default());
        let socket = world.sockets.len() - 1;
        if let Some(process) = world.processes.get_mut(&pid) {
            (process.agent, process.socket) = (thread, socket);
        }
    });
}

/// Makes the agent's own memory, once it is told to get ready: staging area and, unless a fork left one, beacon.
pub fn make_area(pid: i32) -> Option<(Page, Page)> {
    with(|world| {
        let mm = world.mm_of(pid)?;
        let base = 1 << 24;
        let len = TAKE_MAX as u64;
        let staging = base + u64::from(world.id() as u32) * 1024;
        let own = Mapping {
            is_kept_from_forks: true,
            ..Mapping::to(staging + len)
        };
        world.kernel.spaces[mm].mappings.insert(staging, own);
        let known = world.processes[&pid].beacon;
        let beacon = known.unwrap_or(staging + 512);
        if known.is_none() {
            let wiped = Mapping {
                is_wiped_on_fork: true,
                ..Mapping::to(beacon + BEACON_PAGES)
            };
            world.kernel.spaces[mm].mappings.insert(beacon, wiped);
        }
        let process = world.processes.get_mut(&pid)?;
        process.staging = staging;
        process.beacon = Some(beacon);
        Some((staging, beacon))
    })
}

/// Gives up a range, which may be followed: MADV_DONTNEED. The page table changes after the event was read.
pub fn give_up(mm: usize, start: Page, end: Page) {
    let event = with(|world| {
        let is_followed = world.kernel.is_followed(mm, start, end);
        is_followed.then(|| world.kernel.announce(mm, Event::Remove { start, end }))
    });
    if let Some(event) = event {
        wait_until(move |world| world.kernel.is_heard(mm, event), None);
        with(|world| world.kernel.conclude(mm, event));
        step();
    }
    with(|world| world.kernel.zap(mm, start, end, true));
}

/// Puts what was noted into the control page, if there is one: ranges that forks wipe, and whether there may be guards.
pub fn publish(process: &Process) {
    let Some(slots) = &process.slots else { return };
    let control = slots.ring.control();
    for (to, (start, end)) in control.wiped.iter().zip(&process.wiped) {
        to[0].store(start * PAGE_SIZE as u64, Ordering::Release);
        to[1].store(end * PAGE_SIZE as u64, Ordering::Release);
    }
    let count = process.wiped.len() as u32;
    control.wiped_count.store(count, Ordering::Release);
    let has_guards = u32::from(process.has_guards);
    control.guards_used.store(has_guards, Ordering::Release);
}

struct Agent {
    pid: i32,
    mm: usize,
    socket: usize,
    staging: Page,
    slots: Option<Arc<Slots>>,
}

enum Moved {
    Pages(usize),
    Failed(u8),
    Stale,
}

impl Agent {
    fn of(pid: i32) -> Agent {
        with(|world| {
            let process = &world.processes[&pid];
            Agent {
                pid,
                mm: process.mm,
                socket: process.socket,
                staging: 0,
                slots: None,
            }
        })
    }

    fn serve(mut self) {
        loop {
            let (pid, socket) = (self.pid, self.socket);
            with(|world| set_asleep(world, pid, true));
            wait_until(
                move |world| !world.sockets[socket].to_agent.is_empty(),
                None,
            );
            let packet = with(|world| {
                set_asleep(world, pid, false);
                world.sockets[socket].to_agent.pop_front()
            });
            let Some(packet) = packet else { continue };
            let kind = packet.first_chunk().map(|kind| u32::from_ne_bytes(*kind));
            match kind {
                Some(message::FOLLOWED) => self.begin_work(),
                Some(message::KEEP) => {
                    self.keep(&read_plain::<Keep>(&packet).expect("a whole command"));
                    self.answer(&Word {
                        kind: message::KEPT,
                        error: 0,
                    });
                }
                Some(message::LEAVE) => return self.leave(),
                Some(message::TAKE) => {
                    let command = read_plain::<Take>(&packet).expect("a whole command");
                    let mut answer = self.take(&command);
                    self.lie(&mut answer);
                    self.answer(&answer);
                }
                _ => world::violated(format!("process {pid}: its agent is told {kind:?}")),
            }
        }
    }

    fn begin_work(&mut self) {
        let is_late_child = with(|world| {
            let process = world.processes.get_mut(&self.pid).expect("it lives");
            process.is_lit = true;
            self.staging = process.staging;
            self.slots = process.slots.clone();
            process.is_injected && process.is_claimed
        });
        if is_late_child {
            // What the kernel left out of this child is to be looked up, while its program runs.
            let thread = with(|world| world.processes[&self.pid].agent);
            Program::of(self.pid, thread).ring(Doorbell::Born);
        }
    }

    fn answer<T: Plain>(&self, answer: &T) {
        step();
        let bytes = bytes_of(answer).to_vec();
        with(|world| {
            world.sockets[self.socket].to_supervisor.push_back(bytes);
        });
    }

    /// The end of its thread, and before that of what it has mapped, but for what its code is in.
    fn leave(&self) {
        let beacon = with(|world| {
            let process = &world.processes[&self.pid];
            process.beacon.filter(|_| process.is_injected)
        });
        if let Some(start) = beacon {
            let (mm, end) = (self.mm, start + BEACON_PAGES);
            let event = with(|world| {
                let is_followed = world.kernel.is_followed(mm, start, end);
                world.kernel.unmap(mm, start, end);
                is_followed.then(|| world.kernel.announce(mm, Event::Unmap { start, end }))
            });
            Program::of(self.pid, 0).hear(event);
            // It may be held up just there.
            let time = with(|world| world.random.below(2000));
            pause(Duration::from_micros(time));
        }
        step();
        note(|| format!("process {}: its agent ends", self.pid));
        with(|world| world.sockets[self.socket].is_closed = true);
    }

    fn slots(&self) -> &Slots {
        self.slots.as_ref().expect("it is ready")
    }

    fn lock(&self) {
        let word = &self.slots().ring.control().lock;
        step();
        while word
            .compare_exchange(FREE, HELD, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            pause(Duration::from_micros(5));
        }
    }

    fn unlock(&self) {
        step();
        self.slots()
            .ring
            .control()
            .lock
            .store(FREE, Ordering::Release);
    }

    fn is_current(&self, generation: u64) -> bool {
        let control = self.slots().ring.control();
        control.generation.load(Ordering::Acquire) == generation
    }

    fn take(&self, command: &Take) -> Taken {
        let count = command.count as usize;
        let mut answer = Taken {
            kind: message::TAKEN,
            count: command.count,
            status: [message::STALE; TAKE_MAX],
            times: message::TakeTimes::default(),
        };
        let items = &command.items[..count];
        let status = &mut answer.status[..count];
        if command.has_leftovers != 0 {
            give_up(self.mm, self.staging, self.staging + TAKE_MAX as u64);
        }
        self.move_out(command.generation, items, status);
        self.retry_busy(command.generation, items, status);
        self.empty_staging(items, status);
        with(|world| {
            for status in &*status {
                match *status {
                    message::TOOK | message::TOOK_SHARED => {}
                    message::STALE => world.tally.refused[0] += 1,
                    message::GONE => world.tally.refused[1] += 1,
                    _ => world.tally.refused[2] += 1,
                }
            }
        });
        note(|| {
            format!(
                "process {}: took {status:?} of {:x?}",
                self.pid,
                pages_of(items)
            )
        });
        answer
    }

    fn move_out(&self, generation: u64, items: &[TakeItem], status: &mut [u8]) {
        let mut at = 0;
        while at < items.len() {
            let pages = pages_of(&items[at..]);
            let run = pages.iter().zip(pages[0]..).take(RUN_MAX);
            let run = run
                .take_while(|(page, expected)| **page == *expected)
                .count();
            match self.move_run(generation, at, pages[0], run) {
                Moved::Pages(moved) => {
                    status[at..at + moved].fill(message::TOOK);
                    at += moved;
                }
                Moved::Failed(why) => {
                    status[at] = why;
                    at += 1;
                }
                Moved::Stale => return,
            }
        }
    }

    fn retry_busy(&self, generation: u64, items: &[TakeItem], status: &mut [u8]) {
        for (at, page) in pages_of(items).into_iter().enumerate() {
            if status[at] != message::BUSY {
                continue;
            }
            step();
            if !with(|world| world.kernel.make_own(self.mm, page))
                && !self.own_protected(generation, page)
            {
                continue;
            }
            self.progress(at, RETRIED);
            match self.move_run(generation, at, page, 1) {
                Moved::Pages(_) => status[at] = message::TOOK_SHARED,
                Moved::Failed(why) => status[at] = why,
                Moved::Stale => return,
            }
        }
    }

    fn own_protected(&self, generation: u64, page: Page) -> bool {
        self.lock();
        let is_current = self.is_current(generation);
        step();
        let is_freed = is_current
            && with(|world| {
                let done = world.kernel.protect(self.mm, (page, page + 1), false);
                world.kernel.wake(self.mm, page, page + 1);
                done.is_ok()
            });
        self.unlock();
        step();
        is_freed && with(|world| world.kernel.make_own(self.mm, page))
    }

    fn move_run(&self, generation: u64, at: usize, page: Page, count: usize) -> Moved {
        let to = self.staging + at as u64;
        self.lock();
        step();
        if !self.is_current(generation) {
            self.unlock();
            return Moved::Stale;
        }
        let count = self.free_of_kept(page, count);
        if count == 0 {
            self.unlock();
            return Moved::Failed(message::UNMOVABLE);
        }
        step();
        let error = with(|world| {
            let (moved, error) = world.kernel.move_pages(self.mm, page, to, count as u64);
            // Some pages are moved, and not counted.
            match world.is_time_for(Trouble::Kernel, 16) {
                true if moved > 0 => Some(EEXIST),
                _ => error,
            }
        });
        self.unlock();
        let Some(error) = error else {
            return Moved::Pages(count);
        };
        step();
        let table = |world: &mut world::World| {
            let table = &world.kernel.spaces[self.mm].table;
            (to..to + count as u64)
                .take_while(|page| table.contains_key(page))
                .count()
        };
        match (with(table), error) {
            (moved @ 1.., _) => Moved::Pages(moved),
            (_, EAGAIN) => Moved::Stale,
            (_, ENOENT) => Moved::Failed(message::GONE),
            (_, EINVAL) => Moved::Failed(message::UNMOVABLE),
            _ => Moved::Failed(message::BUSY),
        }
    }

    fn progress(&self, at: usize, done: u8) {
        self.slots().ring.control().progress[at].fetch_or(done, Ordering::Release);
    }

    fn empty_staging(&self, items: &[TakeItem], status: &[u8]) {
        let is_taken = |at: &usize| matches!(status[*at], message::TOOK | message::TOOK_SHARED);
        for at in (0..items.len()).filter(is_taken) {
            step();
            let from = self.staging + at as u64;
            let content = with(|world| world.kernel.content(self.mm, from));
            // Revoked meanwhile, and dropped: what was there is nobody's any more.
            let content = content.unwrap_or(0);
            self.slots().ring.put(items[at].slot, &page_of(content));
            self.progress(at, COPIED);
        }
        for at in (0..items.len()).filter(is_taken) {
            step();
            let from = self.staging + at as u64;
            // To the outbox, and freed there, which nobody is told of.
            with(|world| world.kernel.zap(self.mm, from, from + 1, false));
        }
    }

    /// What no agent says.
    fn lie(&self, answer: &mut Taken) {
        let lies = with(|world| world.is_time_for(Trouble::Lie, 40));
        if !lies {
            return;
        }
        note(|| format!("process {} lies", self.pid));
        with(|world| {
            world.taint(self.pid);
            match world.random.below(4) {
                0 => answer.count = world.random.below(100) as u32,
                1 => answer.kind = world.random.below(100) as u32,
                2 => answer.status.fill(message::TOOK),
                _ => answer.status.fill(world.random.below(10) as u8),
            }
        });
        if with(|world| world.random.one_in(4)) {
            // It keeps the lock, asleep.
            self.lock();
            with(|world| set_asleep(world, self.pid, true));
            pause(Duration::from_secs(3600));
        }
    }
}

fn set_asleep(world: &mut world::World, pid: i32, is_asleep: bool) {
    if let Some(process) = world.processes.get_mut(&pid) {
        process.is_asleep = is_asleep;
    }
}

fn pages_of(items: &[TakeItem]) -> Vec<Page> {
    let page = |item: &TakeItem| item.address / PAGE_SIZE as u64;
    items.iter().map(page).collect()
}

/// Registers an agent's own memory: by the supervisor, or, in a child, by the agent.
pub fn follow_staging(pid: i32) {
    with(|world| {
        let Some(mm) = world.mm_of(pid) else { return };
        let staging = world.processes[&pid].staging;
        let range = (staging, staging + TAKE_MAX as u64);
        let _ = world.kernel.register(mm, range, Follow::Absent);
    });
}
