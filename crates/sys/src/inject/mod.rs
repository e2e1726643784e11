//! Starts the agent in a running process, by ptrace(2).
//!
//! One thread of the process is stopped for some hundreds of microseconds. It is made to map memory, into which the
//! library is written if the process has not loaded it, and to start the agent's thread; then it goes on where it was. Nothing of the process is touched:
//! no memory of its own, no descriptor, no signal handler, no stack.

mod clear_up;
mod identity;
mod image;
mod loaded;
mod memory;
pub mod offer;
mod program;
pub mod threads;
mod tracee;

pub use clear_up::{clear_up, Remains};
pub use image::Image;
pub use tracee::{TraceError, OWN_CHILDREN};

use crate::bytes_of;
use crate::channel::Channel;
use crate::process::{has_address_limit, hurry, Ahead};
use crate::procfs;
use identity::Identity;
use loaded::{By, Library};
use pleat_wire::injected::{Injected, Stage, State, AREA_LEN, AREA_STACK, NAME_MAX};
use pleat_wire::{PAGE, SOCKET_VARIABLE};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracee::Tracee;

/// `PR_GET_TID_ADDRESS`: what the kernel clears when the calling thread ends.
const GET_TID_ADDRESS: u64 = 40;
/// How long a process is looked at until one of its threads does something that a stop does not disturb.
const UNDISTURBED_WAIT: Duration = Duration::from_millis(20);
/// A step that fails for want of memory is tried again for so long, and so often. What is given comes in steps of 10 ms.
const MEMORY_WITHIN: Duration = Duration::from_secs(3);
const MEMORY_PAUSE: Duration = Duration::from_millis(2);
/// A thread stands still at most so long until its process is managed; after the second it may be memory that its agent lacks.
const HELD_MAX: Duration = Duration::from_millis(300);
const HELD_CALM: Duration = Duration::from_millis(10);
const HELD_PAUSE: Duration = Duration::from_micros(200);
/// The step of writing to the process's memory.
const WRITE: &str = "be written to";
/// So far the kernel's code in every process reaches.
const VDSO_MAX: u64 = 16 << 10;
/// The instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// What the kernel writes to when threads end, as address and bytes, by thread.
pub type ControlBlocks = Vec<(i32, Option<(u64, u64)>)>;

/// Why a process has no agent.
#[derive(Debug)]
pub enum InjectError {
    /// One of its threads could not be made to start it.
    Trace(TraceError),
    /// It has seccomp filters of its own, which may end it for what an agent does.
    Filtered,
    /// It was forked by a managed process that has loaded the library, but not by the C library. Its faults are answered.
    ForkedPast,
    /// It may fork, and nobody would tell of that.
    ForksUnseen,
    /// It is loading its libraries, which may have said nothing yet.
    Loading,
    /// Its environment says that it belongs to another job, or to none.
    Declined,
    /// It runs other programs itself, of whose memory the kernel knows nothing.
    Emulated,
    /// Its agent was started and did not say hello.
    Unheard,
    /// It offers no conversation, which was all that was wanted of it.
    OffersNothing,
    /// There is no way to do a system call in it.
    NoVdso,
    /// The process cannot do this, for that reason.
    Step(&'static str, io::Error),
}

impl InjectError {
    /// Whether there was no memory for a step.
    fn is_lack(&self) -> bool {
        match self {
            InjectError::Step(WRITE, error) => {
                let is_short = error.kind() == io::ErrorKind::UnexpectedEof;
                is_short || error.raw_os_error() == Some(libc::EFAULT)
            }
            InjectError::Step(_, error) => error.raw_os_error() == Some(libc::ENOMEM),
            _ => false,
        }
    }
}

impl From<TraceError> for InjectError {
    fn from(error: TraceError) -> InjectError {
        InjectError::Trace(error)
    }
}

/// What is asked for a process.
pub struct Request {
    /// The socket's name, to which the agent will connect.
    pub name: String,
    /// Since when it is known.
    pub age: Duration,
    /// For how long it was found loading its libraries.
    pub loading: Duration,
    /// The kernel tells of forks. Else the children of a process that does not announce them would miss what is away.
    pub are_forks_reported: bool,
    /// Agents that are started are to offer their conversations, for these are taken (see [`offer`]). Else they connect.
    pub takes_offers: bool,
    /// What the process's own agent offers is to be taken, and no other started.
    pub is_only_heard: bool,
    /// Takes up the conversation of an agent that has just been started.
    pub heard: Box<dyn Fn(Channel) + Send>,
    /// The process's memory is full, and a step of this fails for that: some is to be given to it. Called before each new try.
    pub lack_memory: Box<dyn Fn() + Send>,
    /// Whether the process is managed by now.
    pub is_managed: Box<dyn Fn() -> bool + Send>,
}

impl Request {
    /// Has the thread stand still until its process is managed. Else it would go on to fill memory, and on a busy machine have filled all
    /// before its agent has run once. What is then given to those who wait is the program's sooner than the agent's, whose system calls
    /// fail.
    ///
    /// `given`: where the library shows what its agent offers, which is taken meanwhile. Answers whether it was.
    fn hold(&self, (pid, pidfd): (i32, &OwnedFd), given: u64) -> bool {
        let start = Instant::now();
        let mut is_heard = false;
        while start.elapsed() < HELD_MAX && !(self.is_managed)() {
            if start.elapsed() > HELD_CALM {
                (self.lack_memory)();
            }
            let offer = match self.takes_offers && !is_heard {
                true => offer::at(pid, given),
                false => None,
            };
            // What cannot be taken now is tried again, and told, when the thread goes on.
            if let Some(Ok(channel)) = offer.map(|offer| offer::take((pid, pidfd), offer)) {
                (self.heard)(channel);
                is_heard = true;
            }
            std::thread::sleep(HELD_PAUSE);
        }
        is_heard
    }
}

/// What has come of it.
#[derive(Debug)]
pub enum Given {
    /// An agent was started.
    Started(Started),
    /// There was one by the library that was loaded, which could not connect: its conversation.
    Heard(Channel),
}

/// An agent that was started.
#[derive(Debug)]
pub struct Started {
    /// The agent's thread, unless it has ended.
    pub agent: Option<i32>,
    /// Where its process's threads have what must stay in memory.
    pub blocks: ControlBlocks,
    /// Where its library shows what it offers.
    pub given: u64,
    /// What it offers was taken.
    pub is_heard: bool,
}

/// Starts an agent in a process: by the library, if that is loaded there and waits for it, else by a copy. Where the library has an
/// agent that offers its conversation, that is taken.
///
/// `find_beacon` tells where the beacon of its parent is, if that was managed; else 0.
///
/// To be called on a thread that ends soon afterwards: whatever was left stopped goes on then.
///
/// # Errors
/// See [`InjectError`], or what `find_beacon` says. The process goes on as if nothing had been, but for memory that it may have mapped.
pub fn inject(
    (pid, pidfd): (i32, Arc<OwnedFd>),
    image: &Image,
    request: &Request,
    find_beacon: impl FnOnce() -> Result<u64, InjectError>,
) -> Result<Given, InjectError> {
    // What is found out before the thread stands still is of this program, and not of another that it may execute meanwhile.
    let identity = Identity::of(pid, pidfd.clone()).ok_or(TraceError::Gone)?;
    if identity.is_short() {
        return Err(TraceError::Foreign.into());
    }
    check_environment(pid, &request.name)?;
    let library = loaded::find(pid, image);
    if let Some(offer) = library.and_then(|library| offer::at(pid, library.given())) {
        return offer::take((pid, &pidfd), offer).map(Given::Heard);
    }
    if request.is_only_heard {
        return Err(InjectError::OffersNothing);
    }
    let beacon = find_beacon()?;
    let by = loaded::way(pid, library, beacon, identity.has_loader(), request)?;
    if matches!(by, By::Copy(_)) && !request.are_forks_reported && !program::is_of_go(pid) {
        return Err(InjectError::ForksUnseen);
    }
    let place = match find_syscall(pid) {
        Err(InjectError::NoVdso) if !identity.holds() => return Err(TraceError::Gone.into()),
        place => place?,
    };
    let own_number = procfs::own_number(pid).ok_or(TraceError::Gone)?;
    let tid = choose(pid).ok_or(TraceError::Busy)?;
    let own = std::process::id() as i32;
    if procfs::seccomp_filters(tid) > procfs::seccomp_filters(own) || procfs::is_strict(tid) {
        return Err(InjectError::Filtered);
    }
    // It stands still until this is done, and other threads of its process may fill memory meanwhile.
    hurry(0);
    let ahead = Ahead::set(tid);
    let tracee = Tracee::stop(tid);
    let tracee = match tracee {
        Ok(tracee) => tracee,
        Err(error) => {
            ahead.end();
            // To who is ending, or executes another program, that is refused, too.
            let is_same = identity.holds();
            return Err(if is_same { error } else { TraceError::Gone }.into());
        }
    };
    // The library runs in one thread while it comes to itself, and in this one only if it is the process's only one.
    let is_as_found = match by {
        By::Loaded(library) | By::Copy(Some(library)) => library.is_unchanged(pid),
        By::Copy(None) => loaded::find(pid, image).is_none(),
    };
    if !identity.holds() || !is_as_found {
        ahead.end();
        tracee.release()?;
        return Err(TraceError::Gone.into());
    }
    let job = Injection {
        pid,
        own_number,
        tracee: &tracee,
        place,
        image,
        request,
    };
    let started = match by {
        By::Loaded(library) => job.start_loaded(library),
        By::Copy(beside) => job.start_copy(beside, beacon),
    };
    let is_heard = match &started {
        Ok(fresh) => request.hold((pid, &pidfd), image.given_at(fresh.base)),
        Err(_) => false,
    };
    ahead.end();
    tracee.release()?;
    let Fresh { base, agent, word } = started?;
    let mut blocks: ControlBlocks = threads::of(pid)
        .into_iter()
        .map(|tid| (tid, threads::control_block(tid)))
        .collect();
    blocks.extend(word.map(|address| (tid, Some((address, size_of::<u64>() as u64)))));
    let given = image.given_at(base);
    Ok(Given::Started(Started {
        agent: procfs::thread_called(pid, agent),
        blocks,
        given,
        is_heard,
    }))
}

/// The thread to stop: soon one that is not disturbed.
fn choose(pid: i32) -> Option<i32> {
    let start = Instant::now();
    loop {
        let (disturbance, tid) = *threads::disturbances(pid).first()?;
        let is_late = start.elapsed() > UNDISTURBED_WAIT;
        if disturbance < threads::Disturbance::Waits || is_late {
            return Some(tid);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether nothing is known that would keep an agent out of a process, as far as its environment tells.
pub fn is_open(pid: i32, name: &str) -> bool {
    check_environment(pid, name).is_ok()
}

/// Whether a process is to be left alone, by what it was started with.
fn check_environment(pid: i32, name: &str) -> Result<(), InjectError> {
    // valgrind knows of no memory and no thread but those that its program has asked it for, and maps over others.
    const LAUNCHER: &[u8] = b"VALGRIND_LAUNCHER=";
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    for variable in environment.split(|&byte| byte == 0) {
        if variable.starts_with(LAUNCHER) {
            return Err(InjectError::Emulated);
        }
        let value = variable.strip_prefix(SOCKET_VARIABLE.as_bytes());
        let socket = value.and_then(|value| value.strip_prefix(b"="));
        if socket.is_some_and(|socket| socket != name.as_bytes()) {
            return Err(InjectError::Declined);
        }
    }
    Ok(())
}

/// The address of a `syscall` instruction in the code that the kernel maps into every process.
fn find_syscall(pid: i32) -> Result<u64, InjectError> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    if maps.is_empty() {
        return Err(TraceError::Gone.into());
    }
    let find = || {
        let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
        let (start, rest) = line.split_once('-')?;
        let end = rest.split(' ').next()?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        let mut code = vec![0; end.checked_sub(start)?.min(VDSO_MAX) as usize];
        memory::read(pid, start, &mut code).ok()?;
        let at = code.windows(SYSCALL.len()).position(|two| two == SYSCALL)?;
        Some(start + at as u64)
    };
    find().ok_or(InjectError::NoVdso)
}

/// What was just started.
struct Fresh {
    /// Where its library begins.
    base: u64,
    /// Its thread, as the process numbers it.
    agent: i32,
    /// What the kernel clears when the stopped thread ends, where a copy was started.
    word: Option<u64>,
}

/// A process with a stopped thread.
struct Injection<'a> {
    pid: i32,
    /// As it calls itself.
    own_number: i32,
    tracee: &'a Tracee,
    place: u64,
    image: &'a Image,
    request: &'a Request,
}

impl Injection<'_> {
    /// A system call of the process's.
    fn call(&self, what: &'static str, number: i64, a: [u64; 6]) -> Result<u64, InjectError> {
        self.with_memory(|| answer(what, self.tracee.call(self.place, number, a)?))
    }

    /// Makes a step again for a while as long as there is no memory for it.
    ///
    /// A program that grows faster than anybody looks has filled its memory cgroup by the time it is stopped. Its first touches wait
    /// there until some is free; a system call, and a write from outside, fail at once. Its only thread stands still, so nobody
    /// waits as far as the kernel can tell: who gives it a little more must be told.
    fn with_memory<T>(
        &self,
        mut step: impl FnMut() -> Result<T, InjectError>,
    ) -> Result<T, InjectError> {
        let start = Instant::now();
        loop {
            match step() {
                Err(error) if error.is_lack() && start.elapsed() < MEMORY_WITHIN => {
                    if has_address_limit(self.pid) {
                        return Err(error);
                    }
                    (self.request.lack_memory)();
                    std::thread::sleep(MEMORY_PAUSE);
                }
                result => return result,
            }
        }
    }

    /// Maps memory for the agent, and starts it there; gives the memory back where that fails.
    fn start_in<T>(
        &self,
        len: u64,
        start: impl FnOnce(u64) -> Result<T, InjectError>,
    ) -> Result<T, InjectError> {
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
        let nowhere = u64::MAX;
        let arguments = [0, len, protection, flags, nowhere, 0];
        let base = self.call("map memory", libc::SYS_mmap, arguments)?;
        let started = start(base);
        if started.is_err() {
            let arguments = [base, len, 0, 0, 0, 0];
            let _ = self.call("unmap memory", libc::SYS_munmap, arguments);
        }
        started
    }

    /// The word by which the library is told a stage.
    fn state(&self, stage: Stage) -> u64 {
        let pid = self.own_number;
        State { stage, pid }.word()
    }

    /// By the library that was loaded.
    fn start_loaded(&self, library: Library) -> Result<Fresh, InjectError> {
        let base = library.base;
        let (placed, waits) = (self.state(Stage::Placed), self.state(Stage::Waits));
        self.start_in(AREA_LEN as u64, |area| {
            let given = |state| Injected {
                area,
                state,
                is_to_offer: u64::from(self.request.takes_offers),
                ..Injected::NONE
            };
            self.give(base, &given(placed))?;
            let started = self.start_thread(base, area);
            if started.is_err() {
                self.give(base, &given(waits))?;
            }
            started.map(|agent| Fresh {
                base,
                agent,
                word: None,
            })
        })
    }

    /// By a copy. `beside`: the library that was loaded, which is told that it is of no use.
    fn start_copy(&self, beside: Option<Library>, beacon: u64) -> Result<Fresh, InjectError> {
        let (image, request) = (self.image, self.request);
        if let Some(library) = beside {
            let given = Injected {
                state: self.state(Stage::Unfit),
                ..Injected::NONE
            };
            self.give(library.base, &given)?;
        }
        self.start_in(image.span() + AREA_LEN as u64, |base| {
            let area = base + image.span();
            let mut given = Injected {
                image: [base, area],
                area,
                beacon,
                is_to_offer: u64::from(request.takes_offers),
                ..Injected::NONE
            };
            let name = request.name.as_bytes();
            let name = &name[..name.len().min(NAME_MAX)];
            given.name[..name.len()].copy_from_slice(name);
            given.name_length = name.len() as u64;
            self.write(base, &image.bytes_at(base))?;
            self.give(base, &given)?;
            let (code, code_end) = image.code_at(base);
            let executable = (libc::PROT_READ | libc::PROT_EXEC) as u64;
            let arguments = [code, code_end - code, executable, 0, 0, 0];
            self.call("make code executable", libc::SYS_mprotect, arguments)?;
            let word = self.cleared_word(stack_top(area) - 8);
            let agent = self.start_thread(base, area)?;
            Ok(Fresh { base, agent, word })
        })
    }

    fn give(&self, base: u64, given: &Injected) -> Result<(), InjectError> {
        self.write(self.image.given_at(base), bytes_of(given))
    }

    /// Writes to memory that is mapped and writable: what cannot be written for want of memory is told by the kernel as a bad address, or
    /// by the count of what was.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), InjectError> {
        self.with_memory(|| {
            let written = memory::write(self.pid, address, bytes);
            written.map_err(|error| InjectError::Step(WRITE, error))
        })
    }

    /// Answers its number.
    fn start_thread(&self, base: u64, area: u64) -> Result<i32, InjectError> {
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM;
        let arguments = [flags as u64, stack_top(area), 0, 0, 0, 0];
        let place = self.image.start_at(base);
        self.with_memory(|| {
            let started = self.tracee.call(place, libc::SYS_clone, arguments)?;
            answer("start a thread", started).map(|number| number as i32)
        })
    }

    /// What the kernel clears when the stopped thread ends. `scratch` is a word of the agent's. Kernels that cannot be asked
    /// are built without what checkpointing needs.
    fn cleared_word(&self, scratch: u64) -> Option<u64> {
        let arguments = [GET_TID_ADDRESS, scratch, 0, 0, 0, 0];
        self.call("be asked", libc::SYS_prctl, arguments).ok()?;
        let mut word = [0; 8];
        memory::read(self.pid, scratch, &mut word).ok()?;
        Some(u64::from_ne_bytes(word)).filter(|address| *address != 0)
    }
}

fn stack_top(area: u64) -> u64 {
    area + (PAGE + AREA_STACK) as u64
}

/// Whether this process may trace its children: not where kernel.yama.ptrace_scope is 2 or more and it has no privilege, or
/// where a filter of system calls refuses it. The child is not stopped.
pub fn may_trace(child: i32) -> bool {
    can_trace(child).is_ok()
}

/// Traces a process for a moment if that is allowed; it is not stopped.
///
/// # Errors
/// Why it may not be traced.
pub fn can_trace(pid: i32) -> Result<(), TraceError> {
    // What a thread traces is let go with it.
    let tried = std::thread::spawn(move || tracee::try_to_trace(pid)).join();
    tried.unwrap_or(Err(TraceError::Busy))
}

/// Whom the kernel lets trace (kernel.yama.ptrace_scope): 0 where it does not limit that, 1 what one has started, 2 only who has
/// CAP_SYS_PTRACE, 3 nobody.
pub fn ptrace_scope() -> u32 {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope = scope.ok().and_then(|scope| scope.trim().parse().ok());
    scope.unwrap_or(0)
}

fn answer(what: &'static str, value: i64) -> Result<u64, InjectError> {
    match value {
        -4095..0 => {
            let error = io::Error::from_raw_os_error(-value as i32);
            Err(InjectError::Step(what, error))
        }
        value => Ok(value as u64),
    }
}
