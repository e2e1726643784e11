//! What the supervisor's main thread and the folding threads do, as far as the protocol has to do with it.

use super::agent;
use super::kernel::Page;
use super::machine::{descriptor_of, SimBell, SimMachine, SimSocket};
use super::process::{Hello, NO_SOCKET};
use super::program;
use super::uffd::SimUffd;
use super::world::{self, note, pause, step, violated, wait_until, with};
use super::{History, Tally, Trouble};
use crate::fold::Press;
use crate::link::{AgentLink, Link, STAGING_LEN};
use crate::ports::Userfault;
use crate::reclaim;
use crate::segments::Segments;
use crate::shared::{lock, Parts, Shared};
use crate::space::Space;
use pleat_codec::Choice;
use pleat_engine::{preset, Engine, Settings};
use pleat_sys::ring::Ring;
use pleat_types::{PageNo, PAGE_SIZE};
use pleat_wire::control::FOLLOWED_WITH_FORKS;
use pleat_wire::message::{Word, FOLLOWED};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// Pages of the budget: so many parts of all that is touched, of so many, and what doorbells may come to.
const BUDGET_PARTS: (u64, u64) = (4, 10);
/// Pages filled at once, at most.
const RUN_MAX: u32 = 16;
/// Frames of a ring.
const RING_FRAMES: u32 = 32;
/// What is said of shared memory that somebody maps whom nobody serves.
const STRANGER: &str = "shared memory of the job is mapped by";
/// Folding threads.
const FOLDERS: usize = 2;

/// Begins the supervisor, and the processes of the history.
pub fn begin() {
    let shared = Arc::new(shared());
    if with(|world| world.history.has(Trouble::Share)) {
        let segments = Segments::start(&shared).expect("descriptors");
        let _ = shared.segments.set(segments);
    }
    // One is awake, as far as anybody can tell, and helps with faults.
    shared.folds.watch();
    for _ in 0..FOLDERS {
        let shared = shared.clone();
        world::begin("folder", None, move || fold(&shared));
    }
    let budget_bytes = budget_bytes();
    world::begin("supervisor", None, move || {
        let supervisor = Supervisor {
            shared,
            budget_bytes,
        };
        supervisor.run();
    });
    let processes = with(|world| world.history.processes);
    for _ in 0..processes {
        program::begin();
    }
}

fn budget_bytes() -> u64 {
    let budget_pages = with(|world| {
        let History {
            pages, processes, ..
        } = world.history;
        let has = |trouble| u64::from(world.history.has(trouble));
        let children = program::PROCESSES_MORE * pages;
        let pressed = pages * processes + has(Trouble::Fork) * children;
        // Of a child that was forked past the C library nothing can be taken, or not before it has an agent.
        let is_silent = has(Trouble::RawFork).max(has(Trouble::Fork) * has(Trouble::Attach));
        let shared = match world.history.has(Trouble::Share) {
            // All that is in use of what is never served, and of more than there is at the beginning.
            true => program::used_pages(pages) * (1 + 3 * is_silent),
            false => 0,
        };
        let doorbells = (processes + program::PROCESSES_MORE) * agent::BEACON_PAGES;
        pressed * BUDGET_PARTS.0 / BUDGET_PARTS.1 + is_silent * children + doorbells + shared
    });
    budget_pages * PAGE_SIZE as u64
}

fn shared() -> Shared {
    let preset = preset("pleat").expect("it is there");
    let budget_bytes = budget_bytes();
    let settings = Settings {
        budget_bytes,
        reserve_bytes: budget_bytes / 16,
        floor_bytes: 0,
        run_max: RUN_MAX,
        swap: None,
        tracks_writes: false,
        write_out: preset.write_out,
        brings_neighbours: true,
        keeps_copies: false,
        checks: true,
    };
    let parts = Parts {
        engine: Engine::new(settings, preset.parts(budget_bytes).expect("a good preset")),
        swap: None,
        codec: Arc::new(Choice::parse("lz4").expect("it is there")),
        recorder: None,
        profile: None,
        recompress: false,
        has_spare_cpu: true,
    };
    Shared::on(Arc::new(SimMachine), parts).expect("descriptors")
}

fn fold(shared: &Arc<Shared>) {
    let mut press = Press::new(shared);
    while !shared.is_over() {
        let looked = shared.clone();
        let is_wanted = move |_: &world::World| {
            !looked.folds.is_empty() || looked.batches.is_any() || looked.is_over()
        };
        wait_until(is_wanted, None);
        press.help(shared);
        if press.work(shared, None) {
            reclaim::kick(shared);
        }
        step();
    }
}

pub(super) struct Supervisor {
    pub(super) shared: Arc<Shared>,
    pub(super) budget_bytes: u64,
}

impl Supervisor {
    fn run(&self) {
        while with(|world| program::living(world)) > 0 || self.is_any_left() {
            let time = with(|world| 100 + world.random.below(2000));
            pause(Duration::from_micros(time));
            self.hear_hellos();
            self.put_in_agents();
            self.manage_some();
            self.look_after_leaving();
            self.measure();
            self.cause_trouble();
            self.look_for_news();
        }
        let counters = self.shared.engine().counters();
        if counters.resident_pages + counters.staged_pages > 0 {
            violated(format!("pages are left when all is over: {counters:?}"));
        }
        with(|world| {
            let seen = world.tally;
            let meters = self.shared.meters.read();
            world.tally = Tally {
                steps: 0,
                faults: meters.faults,
                take_commands: meters.take_commands,
                taken_pages: counters.taken_pages,
                forks: meters.forks,
                protected_forks: meters.protected_forks,
                unshared_pages: meters.unshared_pages,
                put_off: [
                    meters.deferred_event,
                    meters.deferred_wait,
                    meters.deferred_memory,
                ],
                refused: seen.refused,
                revoked_commands: meters.revoked_commands,
                helped_faults: meters.helped_faults,
                neighbour_pages: meters.neighbour_pages,
                announced_mappings: meters.announced_mappings,
                ended_processes: meters.ended_processes,
                kept_pages: seen.kept_pages,
                late_agents: seen.late_agents,
                left_processes: seen.left_processes,
                stays: seen.stays,
                segments: meters.segments,
                segment_taken_pages: meters.segment_taken_pages,
                segment_filled_pages: meters.segment_filled_pages,
                segment_put_back_pages: meters.segment_put_back_pages,
            };
        });
        self.shared.over.store(true, Ordering::Release);
    }

    /// Whether anything is managed.
    fn is_any_left(&self) -> bool {
        let segments = self.shared.segments.get();
        let are_over = segments.is_none_or(|segments| segments.is_empty());
        !lock(&self.shared.links).is_empty() || !are_over
    }

    fn measure(&self) {
        with(world::World::drop_objects);
        let frames = with(|world| world.kernel.used_frames()) as u64;
        {
            let mut engine = self.shared.engine();
            let counters = engine.counters();
            let tables = counters.store_metadata_bytes + counters.engine_metadata_bytes;
            note(|| {
                format!(
                    "{frames} frames in use, {} resident, {} staged, {} stuck, {} KiB compressed, {tables} of tables, {} free",
                    counters.resident_pages,
                    counters.staged_pages,
                    engine.stuck_pages(),
                    counters.store_frames_bytes >> 10,
                    engine.free_bytes(),
                )
            });
            // A budget that is all pages: tables are not what is tried here.
            engine.measured(frames * PAGE_SIZE as u64 + counters.store_frames_bytes);
        }
        reclaim::kick(&self.shared);
        self.shared.feed_starving();
        if with(|world| world.random.one_in(8)) {
            if let Some(segments) = self.shared.segments.get() {
                segments.retry_stuck(&self.shared);
            }
            for link in lock(&self.shared.links).iter() {
                lock(&link.mail).retry_stuck = true;
                link.bell.ring();
            }
        }
    }

    /// Processes are managed at any time, and looked through for new mappings.
    fn manage_some(&self) {
        let ready: Vec<i32> = with(|world| {
            let ready = |world: &world::World, pid: &i32| {
                let process = &world.processes[pid];
                !process.is_ended
                    && !process.is_managed
                    && process.beacon.is_none()
                    && process.socket != NO_SOCKET
            };
            let all: Vec<i32> = world.processes.keys().copied().collect();
            let ready = all.into_iter().filter(|pid| ready(world, pid));
            ready.collect()
        });
        for pid in ready {
            if with(|world| !world.is_leaving && world.random.one_in(8)) {
                self.manage(pid, None);
            }
        }
        let links = lock(&self.shared.links).clone();
        for link in links {
            if with(|world| world.random.one_in(4)) {
                link.rescan();
            }
        }
    }

    /// As `supervisor/conversations.rs`: an agent gets ready, and its address space is served.
    fn manage(&self, pid: i32, claimed: Option<Arc<Link>>) {
        let Some((staging, beacon)) = agent::make_area(pid) else {
            return;
        };
        let mm = with(|world| {
            let process = world.processes.get_mut(&pid)?;
            process.is_managed = true;
            process.is_claimed = claimed.is_some();
            Some(process.mm)
        });
        let Some(mm) = mm else { return };
        step();
        let link = match claimed {
            Some(link) => {
                agent::follow_staging(pid);
                link
            }
            None => {
                let uffd = SimUffd::of(mm);
                let beacon_len = agent::BEACON_PAGES * PAGE_SIZE as u64;
                let is_refused = uffd.register_read_only(at(staging), STAGING_LEN).is_err()
                    || uffd.register_read_only(at(beacon), beacon_len).is_err();
                if is_refused {
                    return;
                }
                self.start_space(pid, uffd)
            }
        };
        let slots = self
            .shared
            .rings
            .add(Ring::private(RING_FRAMES).expect("memory"));
        slots
            .ring
            .control()
            .followed
            .store(FOLLOWED_WITH_FORKS, Ordering::Release);
        let agent = with(|world| {
            let process = world.processes.get_mut(&pid).expect("it was there");
            process.slots = Some(slots.clone());
            agent::publish(process);
            AgentLink {
                is_injected: process.is_injected,
                channel: Arc::new(SimSocket(process.socket)),
                slots,
                name: process.agent,
                thread: Some(process.agent),
                own: [(at(staging), at(staging) + STAGING_LEN), (0, 0)],
                fork_events: true,
                beacon: PageNo(beacon),
                staging: at(staging),
            }
        });
        join(&link, pid, agent);
    }

    fn start_space(&self, pid: i32, uffd: SimUffd) -> Arc<Link> {
        let bell = SimBell::silent();
        let id = self.shared.engine().add_space();
        let process = (pid, descriptor_of(pid).expect("it was there"));
        let machine = self.shared.machine.clone();
        let link = Arc::new(Link::new(id, process, Arc::new(uffd), bell, machine));
        Space::new(self.shared.clone(), link.clone(), BTreeMap::new()).start();
        link
    }

    /// Children of forks say whose memory they have.
    fn hear_hellos(&self) {
        while let Some(Hello { pid, token }) = with(|world| world.hellos.pop_front()) {
            if token == [0; 2] {
                continue;
            }
            let link = lock(&self.shared.claims).remove(&token);
            let Some(link) = link.filter(|_| with(|world| world.mm_of(pid)).is_some()) else {
                if with(|world| world.mm_of(pid)).is_some() {
                    violated(format!("process {pid} claims what nobody knows"));
                }
                continue;
            };
            let process = descriptor_of(pid).expect("it lives");
            link.pid.store(pid, Ordering::Release);
            *lock(&link.process) = Some(process.clone());
            lock(&self.shared.by_pid).insert(pid, link.clone());
            lock(&link.mail).process = Some(process);
            link.bell.ring();
            step();
            self.manage(pid, Some(link));
        }
    }

    fn cause_trouble(&self) {
        let links = lock(&self.shared.links).clone();
        with(|world| {
            let living: Vec<i32> = world
                .processes
                .iter()
                .filter(|(_, one)| !one.is_ended)
                .map(|(pid, _)| *pid)
                .collect();
            for pid in living {
                let process = &world.processes[&pid];
                if process.is_stopped {
                    if world.random.one_in(4) {
                        world.processes.get_mut(&pid).expect("it lives").is_stopped = false;
                        world.note(|| format!("process {pid} goes on"));
                    }
                } else if world.is_time_for(Trouble::Stop, 30) {
                    world.processes.get_mut(&pid).expect("it lives").is_stopped = true;
                    world.note(|| format!("process {pid} is stopped"));
                } else if world.is_time_for(Trouble::Kill, 300) {
                    world.kill(pid);
                }
            }
        });
        for link in links {
            if with(|world| world.is_time_for(Trouble::Fork, 50)) {
                link.protect();
            }
            agent::have_some_kept(&link);
        }
    }

    /// What the user would be told: that a process is ended which did nothing wrong, or the job.
    fn look_for_news(&self) {
        if let Some(why) = self.shared.failure() {
            violated(format!("the job has failed: {why}"));
        }
        let news = std::mem::take(&mut *lock(&self.shared.news));
        for what in news {
            note(|| format!("told: {what}"));
            let mut words = what.split_whitespace();
            let named = words.find_map(|word| word.parse::<i32>().ok());
            let may_be = with(|world| match named {
                None if what.starts_with(STRANGER) => false,
                Some(pid) => world.processes.get(&pid).is_none_or(|one| one.is_tainted),
                // A child that was forked past the C library, or by one that lies.
                None => [Trouble::RawFork, Trouble::Attach, Trouble::Lie]
                    .iter()
                    .any(|one| world.history.has(*one)),
            });
            if !may_be {
                violated(format!("said without a reason: {what}"));
            }
        }
    }
}

/// The agent is told that it is followed, and its space of the agent.
fn join(link: &Link, pid: i32, agent: AgentLink) {
    let followed = Word {
        kind: FOLLOWED,
        error: 0,
    };
    let _ = agent.channel.send(pleat_sys::bytes_of(&followed), None);
    lock(&link.mail).agent = Some(agent);
    link.rescan();
    note(|| format!("process {pid} is managed"));
    with(|world| {
        if let Some(process) = world.processes.get_mut(&pid) {
            process.is_ready = true;
        }
    });
}

const fn at(page: Page) -> u64 {
    page * PAGE_SIZE as u64
}
