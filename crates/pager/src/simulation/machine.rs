//! The ports of the pager on the simulated machine.

use super::kernel::{self, Entry, Mm, Page};
use super::page::page_of;
use super::shared::shared_mapping;
use super::world::{self, pause, step, wait_until, with, World};
use crate::ports::{AgentSocket, Call, Machine, Memory, PageTableView, Runs, SpaceBell};
use crate::space::Space;
use pleat_sys::channel::Received;
use pleat_sys::procfs::{Mapping, MappingKind, State};
use pleat_sys::ring::Ring;
use pleat_types::PAGE_SIZE;
use pleat_wire::control::{FREE, HELD};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Descriptors of userfaultfds and sockets begin here: no real ones do.
pub const UFFDS: RawFd = 1_000_000;
const SOCKETS: RawFd = 2_000_000;
const BELLS: RawFd = 3_000_000;
/// A lock is looked at again after so long, at least and at most.
const LOOK_MIN: Duration = Duration::from_micros(1);
const LOOK_MAX: Duration = Duration::from_millis(100);

pub const fn page_at(address: u64) -> Page {
    address / PAGE_SIZE as u64
}

pub const fn address_of(page: Page) -> u64 {
    page * PAGE_SIZE as u64
}

fn addresses(runs: Vec<(Page, Page)>) -> Runs {
    let run = |(start, end)| (address_of(start), address_of(end));
    runs.into_iter().map(run).collect()
}

pub fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// The supervisor's end of a connection.
pub struct SimSocket(pub usize);

impl AgentSocket for SimSocket {
    fn descriptor(&self) -> RawFd {
        SOCKETS + self.0 as RawFd
    }

    fn send(&self, packet: &[u8], _: Option<RawFd>) -> io::Result<()> {
        step();
        with(|world| {
            let socket = &mut world.sockets[self.0];
            match socket.is_closed {
                true => Err(error(libc::EPIPE)),
                false => {
                    socket.to_agent.push_back(packet.to_vec());
                    Ok(())
                }
            }
        })
    }

    fn receive(&self, packet: &mut [u8]) -> Received {
        step();
        with(|world| {
            let socket = &mut world.sockets[self.0];
            match socket.to_supervisor.pop_front() {
                Some(bytes) => {
                    packet[..bytes.len()].copy_from_slice(&bytes);
                    Received::Packet(bytes.len(), Vec::new())
                }
                None if socket.is_closed => Received::Closed,
                None => Received::Nothing,
            }
        })
    }

    fn is_closed(&self) -> bool {
        with(|world| world.sockets[self.0].is_closed)
    }
}

/// A bell.
pub struct SimBell(usize);

impl SimBell {
    pub fn silent() -> SpaceBell {
        with(|world| {
            world.bells.push(false);
            Box::new(SimBell(world.bells.len() - 1))
        })
    }
}

impl Call for SimBell {
    fn descriptor(&self) -> RawFd {
        BELLS + self.0 as RawFd
    }

    fn ring(&self) {
        with(|world| world.bells[self.0] = true);
    }

    fn hush(&self) {
        with(|world| world.bells[self.0] = false);
    }
}

/// What is seen of a process's memory.
struct Seen(Mm);

impl Seen {
    /// Of that process, if it is there.
    fn of(pid: i32) -> io::Result<Seen> {
        step();
        with(|world| world.mm_of(pid))
            .map(Seen)
            .ok_or_else(|| error(libc::ESRCH))
    }
}

impl PageTableView for Seen {
    fn free_run(&self, start: u64, pages: usize) -> io::Result<usize> {
        step();
        let first = page_at(start);
        let free = with(|world| {
            let table = &world.kernel.spaces[self.0].table;
            (first..first + pages as u64)
                .take_while(|page| !table.contains_key(page))
                .count()
        });
        Ok(free)
    }

    fn which_exist(&self, start: u64, pages: usize) -> io::Result<Vec<bool>> {
        Memory::which_exist(self, start, pages)
    }

    fn is_marked(&self, address: u64) -> io::Result<bool> {
        step();
        let page = page_at(address);
        let table = |world: &mut World| world.kernel.spaces[self.0].table.get(&page).copied();
        Ok(with(table) == Some(Entry::Guard))
    }
}

impl Memory for Seen {
    fn which_exist(&self, start: u64, pages: usize) -> io::Result<Vec<bool>> {
        step();
        let first = page_at(start);
        Ok(with(|world| {
            let table = &world.kernel.spaces[self.0].table;
            (first..first + pages as u64)
                .map(|page| table.contains_key(&page))
                .collect()
        }))
    }

    fn read(&self, address: u64, to: &mut [u8]) -> io::Result<()> {
        step();
        with(|world| {
            let page = page_at(address);
            let found = world.kernel.content(self.0, page);
            if found.is_none() {
                let zero = Entry::Zero {
                    is_protected: false,
                };
                world.kernel.spaces[self.0].table.insert(page, zero);
            }
            to.copy_from_slice(&page_of(found.unwrap_or(0)));
        });
        Ok(())
    }
}

impl World {
    /// Whether a page is the beacon or a doorbell.
    pub fn own_page(&self, mm: Mm, page: Page) -> bool {
        let process = self.processes.values().find(|process| process.mm == mm);
        let beacon = process.and_then(|process| process.beacon);
        beacon.is_some_and(|beacon| (beacon..beacon + super::agent::BEACON_PAGES).contains(&page))
    }

    pub fn is_tainted(&self, mm: Mm) -> bool {
        // Before it is born a child is what its parent is.
        let parent = self.unborn.iter().find(|(_, child)| *child == mm);
        let parent = parent.map(|(pid, _)| &self.processes[pid]);
        let mut known = self.processes.values().filter(|one| one.mm == mm);
        known.any(|one| one.is_tainted) || parent.is_some_and(|one| one.is_tainted)
    }

    /// Whether there is something for who waits for this descriptor.
    fn is_ready(&self, fd: RawFd) -> bool {
        match fd {
            ..0 => false,
            BELLS.. => self.bells[(fd - BELLS) as usize],
            SOCKETS.. => {
                let socket = &self.sockets[(fd - SOCKETS) as usize];
                socket.is_closed || !socket.to_supervisor.is_empty()
            }
            UFFDS.. => self.kernel.is_readable((fd - UFFDS) as Mm),
            _ => {
                let pid = self
                    .process_of(fd)
                    .expect("a process, as nothing else is left");
                self.processes[&pid].is_ended
            }
        }
    }
}

/// The simulated machine.
pub struct SimMachine;

impl Machine for SimMachine {
    fn now(&self) -> Instant {
        world::now()
    }

    fn wait(&self, fds: &mut [libc::pollfd], limit: Option<Duration>) {
        let wanted: Vec<RawFd> = fds.iter().map(|fd| fd.fd).collect();
        match limit {
            Some(Duration::ZERO) => step(),
            limit => wait_until(
                move |world| wanted.iter().any(|fd| world.is_ready(*fd)),
                limit,
            ),
        }
        with(|world| {
            for fd in fds {
                fd.revents = if world.is_ready(fd.fd) {
                    libc::POLLIN
                } else {
                    0
                };
            }
        });
    }

    fn pause(&self, time: Duration) {
        pause(time);
    }

    fn join(&self, _: u32, may_sleep: bool, is_over: &dyn Fn() -> bool) -> bool {
        let mut looks = 0;
        while !is_over() {
            if !may_sleep && looks == 3 {
                return false;
            }
            looks += 1;
            pause(LOOK_MIN);
        }
        true
    }

    fn serve(&self, space: Space) -> io::Result<()> {
        world::begin("space", None, move || space.run());
        Ok(())
    }

    fn lock(&self, ring: &Ring, give_up: &dyn Fn() -> bool) -> bool {
        let word = &ring.control().lock;
        let mut time = LOOK_MIN;
        step();
        while word
            .compare_exchange(FREE, HELD, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            if time == LOOK_MAX && give_up() {
                return false;
            }
            pause(time);
            time = (time * 2).min(LOOK_MAX);
        }
        true
    }

    fn own_thread(&self) -> i32 {
        1
    }

    fn hurry(&self, _: i32) {}

    fn relax(&self) {}

    fn relax_like(&self, _: i32, _: i32) {}

    fn pin(&self, _: i32, _: u32) {}

    fn last_cpu(&self, _: i32) -> io::Result<u32> {
        Ok(0)
    }

    fn state(&self, thread: i32) -> State {
        step();
        with(|world| {
            let mut processes = world.processes.iter();
            let found = processes.find(|(pid, process)| **pid == thread || process.agent == thread);
            match found {
                Some((_, process)) if process.is_stopped || process.is_ended => State::Held,
                Some((_, process)) if process.is_asleep => State::Asleep,
                Some(_) => State::Running,
                None => State::Held,
            }
        })
    }

    fn is_stopped(&self, thread: i32) -> bool {
        self.state(thread) == State::Held
    }

    fn own_cpu_ns(&self) -> u64 {
        0
    }

    fn has_ended(&self, process: &OwnedFd) -> bool {
        step();
        with(|world| world.is_ready(process.as_raw_fd()))
    }

    fn kill(&self, process: &OwnedFd) {
        with(|world| {
            if let Some(pid) = world.process_of(process.as_raw_fd()) {
                world.kill(pid);
            }
        });
    }

    fn find_waiting(&self, thread: i32) -> Option<(i32, Arc<OwnedFd>)> {
        step();
        let pid = with(|world| {
            let mut processes = world.processes.iter();
            let is_it = |process: &super::process::Process| {
                process.threads.contains(&thread) || (thread != 0 && process.agent == thread)
            };
            processes
                .find(|(_, process)| is_it(process))
                .map(|(pid, _)| *pid)
        })?;
        Some((pid, descriptor_of(pid)?))
    }

    fn maps(&self, pid: i32) -> io::Result<Vec<Mapping>> {
        let mm = Seen::of(pid)?.0;
        Ok(with(|world| {
            let mappings = world.kernel.spaces[mm].mappings.iter();
            let seen = |(start, mapping): (&Page, &kernel::Mapping)| match mapping.part {
                Some(_) => shared_mapping(*start, mapping),
                None => Mapping {
                    start: address_of(*start),
                    end: address_of(mapping.end),
                    readable: true,
                    writable: true,
                    executable: false,
                    shared: false,
                    kind: MappingKind::Anonymous,
                },
            };
            mappings.map(seen).collect()
        }))
    }

    fn present_anon_runs(&self, pid: i32, start: u64, end: u64) -> io::Result<Runs> {
        let mm = Seen::of(pid)?.0;
        let range = (page_at(start), page_at(end));
        let is = |entry: &Entry| matches!(entry, Entry::Page { .. });
        Ok(addresses(with(|world| world.kernel.runs(mm, range, is))))
    }

    fn zero_page_runs(&self, pid: i32, start: u64, end: u64) -> io::Result<Runs> {
        let mm = Seen::of(pid)?.0;
        let range = (page_at(start), page_at(end));
        let is = |entry: &Entry| matches!(entry, Entry::Zero { .. });
        Ok(addresses(with(|world| world.kernel.runs(mm, range, is))))
    }

    fn wiped_on_fork(&self, pid: i32) -> io::Result<Runs> {
        let mm = Seen::of(pid)?.0;
        Ok(with(|world| {
            let mappings = world.kernel.spaces[mm].mappings.iter();
            let wiped = mappings.filter(|(_, mapping)| mapping.is_wiped_on_fork);
            addresses(
                wiped
                    .map(|(start, mapping)| (*start, mapping.end))
                    .collect(),
            )
        }))
    }

    fn page_table(&self, pid: i32) -> io::Result<Box<dyn PageTableView>> {
        Ok(Box::new(Seen::of(pid)?))
    }

    fn memory(&self, pid: i32) -> io::Result<Box<dyn Memory>> {
        Ok(Box::new(Seen::of(pid)?))
    }

    fn bell(&self) -> io::Result<SpaceBell> {
        Ok(SimBell::silent())
    }

    fn for_child(&self) -> io::Result<(SpaceBell, [u64; 2])> {
        let token = with(|world| [world.random.next(), world.random.next()]);
        Ok((SimBell::silent(), token))
    }
}

/// A descriptor that stands for a process: kept by the world, so that its number is never another's.
pub fn descriptor_of(pid: i32) -> Option<Arc<OwnedFd>> {
    with(|world| {
        let process = world.processes.get_mut(&pid)?;
        if process.descriptor.is_none() {
            let made: OwnedFd = File::open("/dev/null").ok()?.into();
            process.descriptor = Some(Arc::new(made));
        }
        process.descriptor.clone()
    })
}
