//! Start of the agent: as a constructor after every exec, as an atfork handler in forked children.

use crate::abandoned::is_abandoned;
use crate::area::{self, Area};
use crate::raw::{self, Errno};
use crate::{credentials, exec, exits, growth, injected, offer, patch, serve, symbols, threads};
use core::ffi::{c_char, c_int};
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering,
};
use pleat_wire::message::{Hello, HELLO};
use syscalls::Sysno;

use pleat_wire::injected::{Stage, NAME_MAX};

/// The abstract socket's name, for forked children. Written once, by the constructor.
static NAME: [AtomicU8; NAME_MAX] = [const { AtomicU8::new(0) }; NAME_MAX];
static NAME_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Devices of what the supervisor itself serves files from; the rest 0. Written once, by the constructor.
static DEVICES: [AtomicU64; pleat_wire::DEVICES_MAX] =
    [const { AtomicU64::new(0) }; pleat_wire::DEVICES_MAX];

/// See [`pleat_wire::ASK_FROM_VARIABLE`]. Written once, by the constructor.
static ASK_FROM: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The supervisor's process id, as it calls itself; 0: not known.
static SUPERVISOR: AtomicI32 = AtomicI32::new(0);
/// Processes have their agent from the start.
static IS_EAGER: AtomicBool = AtomicBool::new(false);

/// No descriptor.
const NONE: i32 = -1;

/// What the agent thread needs to start; the starter waits for nothing, so these are left in place.
static SOCKET: AtomicI32 = AtomicI32::new(NONE);
static AREA: AtomicUsize = AtomicUsize::new(0);
static FORKED: AtomicU32 = AtomicU32::new(0);
/// The agent's thread id: it names this address space to the supervisor. 0: there is none yet; [`LEFT`].
static THREAD: AtomicI32 = AtomicI32::new(0);
/// There was an agent, and the supervisor does not serve this process.
const LEFT: i32 = -1;
/// The supervisor has had the agent's thread made, and waits for it.
static IS_PLACED: AtomicBool = AtomicBool::new(false);
/// 1: this is the thread of a copy that the supervisor has made.
static INJECTED: AtomicU32 = AtomicU32::new(0);
/// What the beacon said, in a forked child.
static TOKEN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

#[used]
#[link_section = ".init_array"]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = constructor;

extern "C" fn constructor(_: c_int, _: *const *const c_char, env: *const *const c_char) {
    if !injected::begin_work() {
        return;
    }
    // Others pass nothing, so `env` is whatever was in its register.
    if !symbols::is_gnu() || !construct(env) {
        injected::set_stage(Stage::Unfit);
    }
}

/// Whether the library is of use here.
fn construct(env: *const *const c_char) -> bool {
    // SAFETY: this C library passes the environment to constructors; it ends with a null pointer.
    let name = unsafe { exec::variable(env, pleat_wire::SOCKET_VARIABLE) };
    // SAFETY: as above.
    let preloaded = unsafe { exec::variable(env, "LD_PRELOAD") }.unwrap_or_default();
    let name = name.filter(|_| !is_emulated(preloaded));
    let Some(name) = name.filter(|name| !name.is_empty() && name.len() <= NAME_MAX) else {
        return false;
    };
    // SAFETY: as above.
    let devices = unsafe { exec::variable(env, pleat_wire::DEVICES_VARIABLE) };
    note_devices(devices.unwrap_or_default());
    // SAFETY: as above.
    let ask_from = unsafe { exec::variable(env, pleat_wire::ASK_FROM_VARIABLE) };
    note_settings(ask_from);
    exec::note(symbols::own_path(), name, ask_from, devices);
    note_name(name);
    // Without its handlers a fork would go unnoticed.
    if !symbols::at_fork(prepare, parent, child) {
        return false;
    }
    threads::protect_current();
    exits::begin();
    exits::watch_current();
    threads::get_ready();
    growth::begin();
    let is_exec_seen = patch::install();
    // SAFETY: as above.
    let is_added = unsafe { exec::variable(env, pleat_wire::ADDED_VARIABLE) }.is_some();
    if is_exec_seen && is_added {
        // SAFETY: the process's own environment, to which nobody else looks while constructors run. What was read above
        // is not used any more.
        unsafe { exec::hide(env.cast_mut().cast()) };
    }
    begin_now_or_later(0);
    true
}

/// Starts the agent, or has it started when memory gets short. The supervisor hears of the process in either case.
fn begin_now_or_later(forked: u32) -> bool {
    if IS_EAGER.load(Ordering::Relaxed) {
        return connect_and_start(forked);
    }
    if forked == 0 {
        untie();
    }
    injected::set_stage(Stage::Waits);
    if let Some(socket) = meet() {
        let hello = Hello {
            kind: HELLO,
            version: pleat_wire::VERSION,
            pid: raw::process(),
            forked,
            ..Hello::default()
        };
        serve::send(socket, &hello, &[]);
        raw::close(socket);
    }
    true
}

/// Starts the agent at once: later it could not work.
pub fn start_now() {
    connect_and_start(0);
}

/// What the supervisor has said in [`pleat_wire::ASK_FROM_VARIABLE`].
fn note_settings(text: Option<&[u8]>) {
    let mut numbers = text.unwrap_or_default().split(|&byte| byte == b',');
    let mut next = || {
        numbers
            .next()
            .filter(|digits| !digits.is_empty())
            .map(number)
    };
    if let Some(bytes) = next() {
        ASK_FROM.store(bytes as usize, Ordering::Relaxed);
    }
    SUPERVISOR.store(next().unwrap_or(0) as i32, Ordering::Relaxed);
    let is_eager = next().is_some_and(|word| word != 0);
    let is_eager = is_eager || is_closed_to_others(next().unwrap_or(0));
    IS_EAGER.store(is_eager, Ordering::Relaxed);
    offer::note_use(next().is_some_and(|word| word != 0));
}

/// Whether no agent can be started in this process later: a debugger, or a tracer of system calls, has it, or it has filters of
/// system calls that the supervisor has not, and that were there before this program.
fn is_closed_to_others(known_filters: u64) -> bool {
    let mut text = [0u8; 8192];
    let length = raw::read_file(c"/proc/self/status", &mut text);
    let text = &text[..length];
    let value = |key: &[u8]| {
        let mut lines = text.split(|&byte| byte == b'\n');
        let digits = lines.find_map(|line| line.strip_prefix(key));
        digits.map_or(0, number)
    };
    value(b"TracerPid:\t") != 0 || value(b"Seccomp_filters:\t") > known_filters
}

/// Notes the socket's name, of [`NAME_MAX`] bytes at most.
pub fn note_name(name: &[u8]) {
    for (to, from) in NAME.iter().zip(name) {
        to.store(*from, Ordering::Relaxed);
    }
    NAME_LENGTH.store(name.len().min(NAME_MAX), Ordering::Release);
}

/// The job's first program is killed with the supervisor until it has an agent, which sees to that from then on: what the program
/// finds is as without pleat.
fn untie() {
    let mut signal = 0i32;
    let pointer = (&raw mut signal) as usize;
    // SAFETY: a word that the kernel writes, and plain numbers.
    unsafe {
        let asked = [libc::PR_GET_PDEATHSIG as usize, pointer, 0, 0, 0, 0];
        if raw::call(Sysno::prctl, asked).is_ok() && signal == libc::SIGKILL && is_first() {
            let none = [libc::PR_SET_PDEATHSIG as usize, 0, 0, 0, 0, 0];
            let _ = raw::call(Sysno::prctl, none);
        }
    }
}

/// Whether this is the job's first process: the supervisor's child. Anybody else may have asked to be killed with its parent.
fn is_first() -> bool {
    let supervisor = SUPERVISOR.load(Ordering::Relaxed) as usize;
    // SAFETY: no arguments.
    supervisor != 0 && unsafe { raw::call(Sysno::getppid, [0; 6]) } == Ok(supervisor)
}

extern "C" fn prepare() {
    if !area::may_fork() {
        // Called by the C library itself (daemon, forkpty): this fork cannot be refused any more.
        raw::die(
            b"pleat: this process cannot fork without CAP_SYS_PTRACE, because part of its memory \
            is away; ending it. `pleat doctor` tells the remedy\n",
        );
    }
    area::ring(area::Doorbell::Fork);
}

extern "C" fn parent() {
    area::ring(area::Doorbell::Forked);
}

extern "C" fn child() {
    if !injected::begin_work_in_child() {
        // Its parent had no agent, and this process was given one before it came here.
        return;
    }
    let is_managed = area::is_managed();
    note_token();
    serve::forget_parent();
    offer::forget_parent();
    IS_PLACED.store(false, Ordering::Release);
    THREAD.store(0, Ordering::Release);
    SOCKET.store(NONE, Ordering::Release);
    AREA.store(0, Ordering::Release);
    let started = match is_managed {
        true => connect_and_start(1),
        false => begin_now_or_later(1),
    };
    // Until the agent is ready nothing of this process can be taken away, and its faults are answered
    // over the budget: the program is not to run before, unless it cannot be ready at all, and the supervisor knows
    // that. If there is no agent, the supervisor is gone, and with it what the parent had away.
    if is_managed && !(started && serve::await_ready()) {
        raw::die(b"pleat: a forked child cannot reach the supervisor; ending the process\n");
    }
    // What the kernel left out of this child is to be looked up while its mappings are as the fork made them.
    area::ring(area::Doorbell::Born);
}

/// In a forked child: notes by which token it claims its memory.
fn note_token() {
    for (to, from) in TOKEN.iter().zip(area::read_beacon()) {
        to.store(from, Ordering::Release);
    }
}

/// Whether the program runs in valgrind, which ends with an error where a thread is made otherwise than the C library
/// does it. It says so in what it has itself preloaded.
fn is_emulated(preloaded: &[u8]) -> bool {
    const ITS_OWN: &[u8] = b"vgpreload_";
    preloaded.windows(ITS_OWN.len()).any(|part| part == ITS_OWN)
}

fn note_devices(text: &[u8]) {
    let numbers = text.split(|&byte| byte == b',');
    for (place, digits) in DEVICES.iter().zip(numbers) {
        place.store(number(digits), Ordering::Relaxed);
    }
}

fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0u64, |number, digit| {
        let digit = u64::from(digit.wrapping_sub(b'0'));
        number.wrapping_mul(10).wrapping_add(digit)
    })
}

/// The size from which on new mappings of memory are asked about while the process is not managed.
pub fn ask_from() -> usize {
    ASK_FROM.load(Ordering::Relaxed)
}

/// Whether the supervisor itself serves the files of this device.
pub fn is_of_supervisor(device: u64) -> bool {
    let mut devices = DEVICES.iter();
    device != 0 && devices.any(|place| place.load(Ordering::Relaxed) == device)
}

/// Connects and starts the agent thread, or has that offer its conversation. When neither can be after an exec the program runs
/// unmanaged, which the supervisor notices and reports.
fn connect_and_start(forked: u32) -> bool {
    let started = try_to_start(forked);
    if !started {
        injected::set_stage(Stage::Left);
    }
    started
}

fn try_to_start(forked: u32) -> bool {
    let socket = match meet() {
        Some(socket) => socket,
        None if may_offer() => NONE,
        None => return false,
    };
    let Ok(area) = Area::map() else {
        raw::close(socket);
        return false;
    };
    SOCKET.store(socket, Ordering::Relaxed);
    AREA.store(area.start, Ordering::Relaxed);
    FORKED.store(forked, Ordering::Release);
    let started = start_thread(area);
    if started && forked == 0 {
        untie();
    }
    // The agent has its own copy of the descriptor table by now.
    raw::close(socket);
    started
}

/// Whether the agent of a process that could not connect is to offer its conversation. Not in the child of a managed process that has
/// found no token: the supervisor is gone, which would have put it there.
fn may_offer() -> bool {
    let has_token = TOKEN.iter().any(|half| half.load(Ordering::Acquire) != 0);
    offer::is_of_use() && (has_token || !area::is_managed())
}

/// A connection to the supervisor, if there is one.
fn meet() -> Option<i32> {
    match connect() {
        Ok(socket) => Some(socket),
        Err(libc::ECONNREFUSED) if is_abandoned(name(&mut [0; NAME_MAX])) => {
            raw::die(b"pleat: the supervisor is gone; ending a process that it had not met yet\n")
        }
        Err(_) => None,
    }
}

/// The socket's name.
fn name(buffer: &mut [u8; NAME_MAX]) -> &[u8] {
    let name = &mut buffer[..NAME_LENGTH.load(Ordering::Acquire)];
    for (to, from) in name.iter_mut().zip(&NAME) {
        *to = from.load(Ordering::Relaxed);
    }
    name
}

/// The supervisor does not serve this process: it is asked nothing more.
pub fn forget_agent() {
    THREAD.store(LEFT, Ordering::Release);
    injected::set_stage(Stage::Left);
}

/// Whether there is a supervisor that serves this process, or will when memory gets short.
pub fn is_served() -> bool {
    NAME_LENGTH.load(Ordering::Acquire) != 0 && THREAD.load(Ordering::Acquire) != LEFT
}

/// The agent has not reached the supervisor. Where that has had it made, and may try again, the library waits for the next.
pub fn forget_unheard() {
    let is_copy = INJECTED.load(Ordering::Acquire) != 0;
    if is_copy || !IS_PLACED.swap(false, Ordering::AcqRel) {
        return forget_agent();
    }
    THREAD.store(0, Ordering::Release);
    SOCKET.store(NONE, Ordering::Release);
    AREA.store(0, Ordering::Release);
    injected::set_stage(Stage::Waits);
}

/// The agent's thread id; 0 while there is none.
pub fn agent_thread() -> i32 {
    THREAD.load(Ordering::Acquire).max(0)
}

/// The agent's connection, by its descriptor in the agent's table; -1 while there is none.
pub fn socket() -> i32 {
    SOCKET.load(Ordering::Acquire)
}

/// Where the agent's memory is, as `(start, end)`; nothing while there is none.
pub fn area() -> (usize, usize) {
    match AREA.load(Ordering::Acquire) {
        0 => (0, 0),
        start => (start, Area { start }.end()),
    }
}

/// A new connection to the supervisor.
pub fn connect() -> Result<i32, Errno> {
    let mut buffer = [0u8; NAME_MAX];
    let name = name(&mut buffer);
    let mut address: libc::sockaddr_un = libc::sockaddr_un {
        sun_family: libc::AF_UNIX as u16,
        sun_path: [0; 108],
    };
    for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
        *to = *from as c_char;
    }
    let size = core::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as usize;
    // SAFETY: the address is valid for `size` bytes.
    unsafe {
        let wanted = [libc::AF_UNIX as usize, kind, 0, 0, 0, 0];
        let fd = raw::with_memory(|| raw::call(Sysno::socket, wanted))?;
        let peer = [fd, (&raw const address) as usize, size, 0, 0, 0];
        match raw::with_memory(|| raw::call(Sysno::connect, peer)) {
            Ok(_) if may_be_supervisor(fd) => Ok(fd as i32),
            Ok(_) => {
                raw::close(fd as i32);
                Err(libc::EPERM)
            }
            Err(error) => {
                raw::close(fd as i32);
                Err(error)
            }
        }
    }
}

/// Whether who listens at the other end is root, or this process's user. In another network namespace, and once the supervisor is
/// gone, its name is anybody's, and an agent obeys whom it is connected to.
fn may_be_supervisor(socket: usize) -> bool {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: 0,
    };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    let (place, length) = ((&raw mut peer) as usize, (&raw mut size) as usize);
    let (level, option) = (libc::SOL_SOCKET as usize, libc::SO_PEERCRED as usize);
    // SAFETY: the structure of this option, and its size; the other call has no arguments.
    let (asked, own) = unsafe {
        let arguments = [socket, level, option, place, length, 0];
        let asked = raw::call(Sysno::getsockopt, arguments);
        (asked, raw::call(Sysno::geteuid, [0; 6]))
    };
    asked.is_ok() && (peer.uid == 0 || own == Ok(peer.uid as usize))
}

/// The flag by which a debugger of the program is not one of the agent, too: a program that it has stopped would else have its memory
/// taken by nobody, and a thread be shown that it does not know. But a filter of system calls may leave some to the tracer
/// (SECCOMP_RET_TRACE), and who has none is refused them then.
fn untraced() -> libc::c_int {
    let arguments = [libc::PR_GET_SECCOMP as usize, 0, 0, 0, 0, 0];
    // SAFETY: asks for a number. In strict mode, which would end the process for it, no program is started.
    match unsafe { raw::call(Sysno::prctl, arguments) } {
        Ok(0) => libc::CLONE_UNTRACED,
        _ => 0,
    }
}

/// Makes the agent thread with every signal blocked and a descriptor table of its own. `false` where there can be
/// none: a program that runs programs of its own, as emulators do, may not know such threads.
fn start_thread(area: Area) -> bool {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | untraced();
    let (all, mut before) = (u64::MAX, 0u64);
    // SAFETY: the stack is fresh and large enough; `run` never returns. The thread shares our
    // thread-local storage and therefore uses nothing that touches it. The signal masks are valid
    // words of the size the kernel expects.
    unsafe {
        let (set, old) = ((&raw const all) as usize, (&raw mut before) as usize);
        let how = libc::SIG_SETMASK as usize;
        let _ = raw::call(Sysno::rt_sigprocmask, [how, set, old, 8, 0, 0]);
        let start = || raw::start_thread(flags, area.stack_top(), run);
        let thread = raw::with_memory(start);
        THREAD.store(thread.unwrap_or(LEFT), Ordering::Release);
        let _ = raw::call(Sysno::rt_sigprocmask, [how, old, 0, 8, 0, 0]);
        thread.is_ok()
    }
}

extern "C" fn run() -> ! {
    let socket = SOCKET.load(Ordering::Acquire);
    let area = Area {
        start: AREA.load(Ordering::Acquire),
    };
    close_all_but(socket);
    let socket = match socket {
        NONE => offer::make(),
        socket => Ok(socket),
    };
    match socket {
        Ok(socket) => say_hello(socket, area),
        Err(_) => serve::leave_unheard(),
    }
}

/// Whether the supervisor has had the agent's thread made.
pub fn is_placed() -> bool {
    IS_PLACED.load(Ordering::Acquire)
}

/// Notes that this is a copy that the supervisor has made.
pub fn note_copy() {
    INJECTED.store(1, Ordering::Release);
}

/// The life of an agent's thread that the supervisor has had made, on the stack of a fresh area. `is_forked`: the process is
/// the child of one that was managed. It offers its conversation, or connects where that is of no use. Where the supervisor cannot
/// be reached the thread ends, and nothing else.
pub fn run_late(area: Area, is_forked: bool) -> ! {
    close_all_but(NONE);
    if is_forked {
        note_token();
    }
    IS_PLACED.store(true, Ordering::Release);
    let offered = match offer::is_of_use() {
        true => offer::make(),
        false => Err(libc::EOPNOTSUPP),
    };
    let Ok(socket) = offered.or_else(|_| connect()) else {
        serve::leave_unheard();
    };
    AREA.store(area.start, Ordering::Release);
    FORKED.store(u32::from(is_forked), Ordering::Release);
    say_hello(socket, area)
}

/// Says hello, and serves.
fn say_hello(socket: i32, area: Area) -> ! {
    SOCKET.store(socket, Ordering::Release);
    // SAFETY: no pointers but a static string; gettid has no arguments.
    let thread = unsafe {
        let name = c"pleat-agent".as_ptr() as usize;
        let _ = raw::call(Sysno::prctl, [libc::PR_SET_NAME as usize, name, 0, 0, 0, 0]);
        raw::call(Sysno::gettid, [0; 6]).unwrap_or(0) as i32
    };
    THREAD.store(thread, Ordering::Release);
    // Until it is ready; see `serve`. Refused to ordinary users.
    raw::set_nice(-20);
    credentials::put_aside();
    let data = area::data();
    let hello = Hello {
        kind: HELLO,
        version: pleat_wire::VERSION,
        pid: raw::process(),
        agent_thread: thread,
        forked: FORKED.load(Ordering::Acquire),
        injected: INJECTED.load(Ordering::Acquire),
        // Told once, to the supervisor alone.
        token: [0, 1].map(|half: usize| TOKEN[half].swap(0, Ordering::AcqRel)),
        area_start: area.start as u64,
        area_end: area.end() as u64,
        data_start: data.0 as u64,
        data_end: data.1 as u64,
    };
    serve::send(socket, &hello, &[]);
    if !offer::await_taken(socket, thread) {
        serve::leave_unheard();
    }
    serve::run(socket, area, &hello)
}

/// Pipes of the program must not stay open because of us. [`NONE`]: all are closed.
fn close_all_but(fd: i32) {
    let next = (fd + 1) as usize;
    // SAFETY: this thread's descriptor table is its own.
    unsafe {
        if fd > 0 {
            let _ = raw::call(Sysno::close_range, [0, fd as usize - 1, 0, 0, 0, 0]);
        }
        let _ = raw::call(Sysno::close_range, [next, u32::MAX as usize, 0, 0, 0, 0]);
    }
}
