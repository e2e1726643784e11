//! The ports of the pager on the simulated machine.

use super::kernel::{self, Entry, Event, Follow, Mm, Page};
use super::page::{number_of, page_of};
use super::world::{self, note, pause, step, violated, wait_until, with, World};
use super::Trouble;
use crate::ports::{AgentSocket, Call, Machine, Memory, PageTableView, Runs, SpaceBell, Userfault};
use crate::space::Space;
use pleat_sys::channel::Received;
use pleat_sys::procfs::{Mapping, MappingKind, State};
use pleat_sys::ring::Ring;
use pleat_sys::uffd::{FillError, BATCH};
use pleat_types::PAGE_SIZE;
use pleat_wire::control::{FREE, HELD};
use pleat_wire::uffd::{Message, PAGEFAULT_FLAG_WP, PAGEFAULT_FLAG_WRITE};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Descriptors of userfaultfds and sockets begin here: no real ones do.
const UFFDS: RawFd = 1_000_000;
const SOCKETS: RawFd = 2_000_000;
const BELLS: RawFd = 3_000_000;
/// A lock is looked at again after so long, at least and at most.
const LOOK_MIN: Duration = Duration::from_micros(1);
const LOOK_MAX: Duration = Duration::from_millis(100);

const fn page_at(address: u64) -> Page {
    address / PAGE_SIZE as u64
}

const fn address_of(page: Page) -> u64 {
    page * PAGE_SIZE as u64
}

fn addresses(runs: Vec<(Page, Page)>) -> Runs {
    let run = |(start, end)| (address_of(start), address_of(end));
    runs.into_iter().map(run).collect()
}

fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

fn fill_error(errno: i32) -> FillError {
    match errno {
        kernel::EEXIST => FillError::Exists,
        kernel::EAGAIN => FillError::EventPending,
        kernel::ENOENT => FillError::NotMapped,
        kernel::ESRCH => FillError::Dead,
        other => FillError::Other(error(other)),
    }
}

/// A userfaultfd.
pub struct SimUffd(pub Mm);

impl SimUffd {
    fn range(start: u64, len: u64) -> (Page, Page) {
        (page_at(start), page_at(start + len))
    }

    fn fill(&self, address: u64, bytes: &[u8], wakes: bool) -> Result<u64, FillError> {
        step();
        let (mm, start) = (self.0, page_at(address));
        let mut contents = Vec::new();
        for bytes in bytes.chunks(PAGE_SIZE) {
            contents.push(match with(|world| world.own_page(mm, start)) {
                true => {
                    let half = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
                    let token = [half(0), half(8)];
                    with(|world| world.tokens.insert(mm, token));
                    0
                }
                false => match number_of(bytes) {
                    Some(number) => number,
                    None => {
                        let is_tainted = with(|world| world.is_tainted(mm));
                        if !is_tainted {
                            violated(format!(
                                "what page {start:#x} of mm {mm} is filled with is no page's"
                            ));
                        }
                        0
                    }
                },
            });
        }
        let filled = with(|world| {
            let most = match world.is_time_for(Trouble::Kernel, 8) {
                true => world.random.below(contents.len() as u64) as usize,
                false => contents.len(),
            };
            let filled = world.kernel.copy(mm, start, &contents, most);
            if let (Ok(count), true) = (filled, wakes) {
                world.kernel.wake(mm, start, start + count as u64);
            }
            world.note(|| format!("mm {mm}: fill {start:#x} with {contents:x?}: {filled:?}"));
            filled
        });
        filled.map(|count| count as u64).map_err(fill_error)
    }

    fn follow(&self, start: u64, len: u64, follow: Follow) -> io::Result<()> {
        step();
        let done = with(|world| {
            world
                .kernel
                .register(self.0, SimUffd::range(start, len), follow)
        });
        note(|| {
            format!(
                "mm {}: register {:#x}+{} {follow:?}: {done:?}",
                self.0,
                page_at(start),
                page_at(len)
            )
        });
        done.map_err(error)
    }
}

impl Userfault for SimUffd {
    fn descriptor(&self) -> RawFd {
        UFFDS + self.0 as RawFd
    }

    fn read(&self, out: &mut Vec<Message>) -> io::Result<()> {
        step();
        let (faults, events) = with(|world| world.kernel.read(self.0, BATCH));
        for fault in faults {
            let flag = |is_set, flag| if is_set { flag } else { 0 };
            out.push(Message::Fault {
                address: address_of(fault.page),
                flags: flag(fault.is_write, PAGEFAULT_FLAG_WRITE)
                    | flag(fault.is_protected, PAGEFAULT_FLAG_WP),
                thread: fault.thread as u32,
            });
        }
        for event in events {
            note(|| format!("mm {}: reads {event:x?}", self.0));
            let of = |page| address_of(page);
            out.push(match event {
                Event::Remove { start, end } => Message::Remove {
                    start: of(start),
                    end: of(end),
                },
                Event::Unmap { start, end } => Message::Unmap {
                    start: of(start),
                    end: of(end),
                },
                Event::Remap { from, to, len } => Message::Remap {
                    from: of(from),
                    to: of(to),
                    len: of(len),
                },
                Event::Fork { child } => Message::Fork {
                    child: child as i32,
                },
            });
        }
        Ok(())
    }

    fn child(&self, descriptor: i32) -> Arc<dyn Userfault> {
        Arc::new(SimUffd(descriptor as Mm))
    }

    fn copy(&self, address: u64, bytes: &[u8]) -> Result<u64, FillError> {
        self.fill(address, bytes, true)
    }

    fn copy_quietly(&self, address: u64, bytes: &[u8]) -> Result<u64, FillError> {
        self.fill(address, bytes, false)
    }

    fn poison(&self, _: u64) -> Result<(), FillError> {
        unreachable!("no files are mapped here")
    }

    fn protect(&self, start: u64, len: u64, protect: bool) -> Result<(), FillError> {
        step();
        let done = with(|world| {
            let (start, end) = SimUffd::range(start, len);
            let done = world.kernel.protect(self.0, (start, end), protect);
            if !protect && done.is_ok() {
                world.kernel.wake(self.0, start, end);
            }
            world.note(|| {
                format!(
                    "mm {}: protect {start:#x}..{end:#x} {protect}: {done:?}",
                    self.0
                )
            });
            done
        });
        done.map_err(fill_error)
    }

    fn check_private(&self, address: u64) -> Result<(), FillError> {
        step();
        let page = page_at(address);
        let done = with(|world| world.kernel.protect(self.0, (page, page + 1), false));
        done.map_err(fill_error)
    }

    fn wake(&self, start: u64, len: u64) {
        step();
        let (start, end) = SimUffd::range(start, len);
        with(|world| world.kernel.wake(self.0, start, end));
    }

    fn register(&self, start: u64, len: u64) -> io::Result<()> {
        self.follow(start, len, Follow::AbsentAndProtected)
    }

    fn register_read_only(&self, start: u64, len: u64) -> io::Result<()> {
        self.follow(start, len, Follow::Absent)
    }

    fn unregister(&self, start: u64, len: u64) -> io::Result<()> {
        let done = self.follow(start, len, Follow::No);
        let (start, end) = SimUffd::range(start, len);
        with(|world| world.kernel.wake(self.0, start, end));
        done
    }

    fn is_dead(&self) -> bool {
        step();
        with(|world| world.kernel.spaces[self.0].is_dead)
    }

    fn is_event_pending(&self) -> bool {
        step();
        with(|world| world.kernel.spaces[self.0].changing > 0)
    }
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
    pub fn new() -> SpaceBell {
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
    fn own_page(&self, mm: Mm, page: Page) -> bool {
        let process = self.processes.values().find(|process| process.mm == mm);
        let beacon = process.and_then(|process| process.beacon);
        beacon.is_some_and(|beacon| (beacon..beacon + super::agent::BEACON_PAGES).contains(&page))
    }

    fn is_tainted(&self, mm: Mm) -> bool {
        let mut processes = self.processes.values();
        processes.any(|process| process.mm == mm && process.is_tainted)
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
            let is_it = |process: &super::world::Process| process.threads.contains(&thread);
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
            let seen = |(start, mapping): (&Page, &kernel::Mapping)| Mapping {
                start: address_of(*start),
                end: address_of(mapping.end),
                readable: true,
                writable: true,
                executable: false,
                shared: false,
                kind: MappingKind::Anonymous,
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

    fn for_child(&self) -> io::Result<(SpaceBell, [u64; 2])> {
        let token = with(|world| [world.random.next(), world.random.next()]);
        Ok((SimBell::new(), token))
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
