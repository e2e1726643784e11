//! The agent's life: say hello, obey commands, and end the process when the supervisor is gone.

use crate::area::{self, Area};
use crate::credentials::{self, Rights};
use crate::prepare::{self, Given, Tools};
use crate::raw::{self, Errno};
use crate::{exits, frozen, growth, take, threads};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use pleat_wire::control::{self, Control, WIPED_MAX};
use pleat_wire::message::{
    self, Guard, Hello, Keep, Prepare, Prepared, Replace, Shed, Take, Word, PACKET_MAX,
};
use pleat_wire::PAGE;
use syscalls::Sysno;

/// Most descriptors that come with one packet.
pub const DESCRIPTORS_MAX: usize = 4;
/// Those that came with a packet, in their order.
pub type Descriptors = [Option<i32>; DESCRIPTORS_MAX];

/// Ranges under MADV_WIPEONFORK noted so far, also before there is a control page.
static WIPED: [[AtomicU64; 2]; WIPED_MAX] =
    [const { [AtomicU64::new(0), AtomicU64::new(0)] }; WIPED_MAX];
static WIPED_COUNT: AtomicU32 = AtomicU32::new(0);
/// Not 0: the program has asked for guards.
static GUARDS_USED: AtomicU32 = AtomicU32::new(0);
static CONTROL: AtomicUsize = AtomicUsize::new(0);
/// Where the ring behind it ends.
static CONTROL_END: AtomicUsize = AtomicUsize::new(0);

/// 1 when the agent is ready for commands, or the supervisor was told that it never will be.
static READY: AtomicU32 = AtomicU32::new(0);
/// How long a forked child waits for its agent at most: a supervisor that is so slow does not come.
const READY_WAIT_MS: usize = 20_000;

/// Waits until the supervisor knows where it stands with the agent; `false` when that never comes.
pub fn await_ready() -> bool {
    for _ in 0..READY_WAIT_MS / 100 {
        match READY.load(Ordering::Acquire) {
            0 => {
                raw::wait_while(&READY, 0, 100);
            }
            _ => return true,
        }
    }
    false
}

/// In a forked child: the parent's control page is not mapped here.
pub fn forget_parent() {
    CONTROL.store(0, Ordering::Release);
    READY.store(0, Ordering::Release);
    frozen::forget_parent();
    growth::forget_parent();
}

/// Notes that a range is to be wiped in forked children, before it is.
pub fn note_wiped(start: usize, len: usize) {
    let (first, end) = (start as u64, start.saturating_add(len) as u64);
    let count = (WIPED_COUNT.load(Ordering::Acquire) as usize).min(WIPED_MAX);
    let is_noted = WIPED[..count].iter().any(|[from, to]| {
        from.load(Ordering::Acquire) <= first && end <= to.load(Ordering::Acquire)
    });
    if is_noted {
        return;
    }
    let at = WIPED_COUNT.fetch_add(1, Ordering::AcqRel) as usize;
    if at < WIPED_MAX {
        WIPED[at][0].store(first, Ordering::Release);
        WIPED[at][1].store(end, Ordering::Release);
    }
    match growth::control() {
        Some(_) => publish(),
        // Forked past the C library, it has no agent, but its own children are served as well.
        None => area::ring(area::Doorbell::Wiping),
    }
}

/// Notes that the program, or a child of it by fork, may have guards from now on.
pub fn note_guards() {
    if GUARDS_USED.swap(1, Ordering::AcqRel) == 0 {
        publish();
    }
}

/// Puts what was noted into the control page, if there is one.
fn publish() {
    let Some(control) = growth::control() else {
        return;
    };
    for (to, from) in control.wiped.iter().zip(&WIPED) {
        to[0].store(from[0].load(Ordering::Acquire), Ordering::Relaxed);
        to[1].store(from[1].load(Ordering::Acquire), Ordering::Relaxed);
    }
    control
        .wiped_count
        .store(WIPED_COUNT.load(Ordering::Acquire), Ordering::Release);
    control
        .guards_used
        .store(GUARDS_USED.load(Ordering::Acquire), Ordering::Release);
}

/// From now on ranges are noted in the control page, and the supervisor's word is looked for there.
pub fn note_control(control: *const Control, frames: usize) {
    CONTROL_END.store(control as usize + (1 + frames) * PAGE, Ordering::Release);
    CONTROL.store(control as usize, Ordering::Release);
    publish();
}

/// Where the control page and the ring are, as `(start, end)`; nothing while there are none.
pub fn control_range() -> (usize, usize) {
    match CONTROL.load(Ordering::Acquire) {
        0 => (0, 0),
        start => (start, CONTROL_END.load(Ordering::Acquire)),
    }
}

/// What the supervisor says in the control page about following this process.
pub fn followed() -> u32 {
    growth::control().map_or(control::NOT_FOLLOWED, |control| {
        control.followed.load(Ordering::Acquire)
    })
}

/// Waits until pages that are being moved away are. What was protected before (`threads`) is not moved any more.
pub fn let_moves_end() {
    if let Some(control) = growth::control() {
        raw::lock(&control.lock, look_for_supervisor);
        raw::unlock(&control.lock);
    }
}

/// Ends the process if the supervisor is gone: it may have been killed with a lock in its hand, for which this thread waits instead
/// of for the end of the connection.
pub fn look_for_supervisor() {
    let mut socket = libc::pollfd {
        fd: crate::start::socket(),
        events: 0,
        revents: 0,
    };
    let pointer = (&raw mut socket) as usize;
    // SAFETY: one `struct pollfd`; the call returns at once.
    let polled = unsafe { raw::call(Sysno::poll, [pointer, 1, 0, 0, 0, 0]) };
    if polled == Ok(1) && socket.revents & libc::POLLHUP != 0 {
        die_alone();
    }
}

fn die_alone() -> ! {
    raw::die(
        b"pleat: the supervisor is gone, and memory of this process with it; \
          ending the process\n",
    )
}

/// Serves until the process ends, or cannot be managed. Hello was said.
pub fn run(socket: i32, area: Area, hello: &Hello) -> ! {
    let mut tools: Option<Tools> = None;
    let mut packet = Packet::new();
    loop {
        let descriptors = packet.receive(socket, tools.is_none());
        match packet.kind() {
            message::PREPARE if tools.is_none() => {
                let command: Prepare = packet.read();
                tools = prepare(socket, area, &command, descriptors);
                READY.store(1, Ordering::Release);
                raw::wake_all(&READY);
                // What has been urgent is to become ready, before memory is full.
                raw::set_nice(0);
                if hello.injected != 0 && hello.forked != 0 && tools.is_some() {
                    // What the kernel left out of this child is to be looked up. (Its program runs; see `space/newborn.rs`.)
                    area::ring(area::Doorbell::Born);
                }
            }
            message::TAKE => {
                if let Some(tools) = &tools {
                    let command: Take = packet.read();
                    send(socket, &take::take(tools, &command), &[]);
                }
            }
            message::GUARD => guard(&packet.read()),
            message::KEEP => {
                keep(&packet.read());
                answer(socket, message::KEPT, Ok(()));
            }
            message::FREEZE => done(socket, frozen::freeze()),
            message::REPLACE => {
                let command: Replace = packet.read();
                let file = descriptors[0].ok_or(libc::EBADF);
                done(socket, file.and_then(|fd| frozen::replace(&command, fd)));
                descriptors.into_iter().flatten().for_each(raw::close);
            }
            message::THAW => frozen::thaw(),
            message::SHED => shed(&packet.read()),
            // With this thread goes the process, and nobody is left who could touch what is away.
            message::ALONE => {
                let command: Word = packet.read();
                raw::end_thread(command.error)
            }
            message::FOLLOWED => {
                area::light_beacon(followed() != control::FOLLOWED_WITHOUT_FORKS);
            }
            // Its packet was all that it is for.
            message::HEARD => {}
            message::RELEASE if tools.is_none() || !area::is_managed() => {
                // Nothing is registered, or only what nobody else uses; or what a fork left this process is served
                // without an agent. The thread's table goes with it.
                leave()
            }
            message::LEAVE => give_back(hello.injected != 0),
            _ => raw::die(b"pleat: the agent got a message it does not know; ending the process\n"),
        }
    }
}

fn done(socket: i32, result: Result<(), Errno>) {
    answer(socket, message::DONE, result);
}

fn answer(socket: i32, kind: u32, result: Result<(), Errno>) {
    let answer = Word {
        kind,
        error: result.err().unwrap_or(0),
    };
    send(socket, &answer, &[]);
}

/// Gives up what the program has given up. An agent that cannot is not to stay.
fn shed(command: &Shed) {
    if credentials::shed(command).is_ok() {
        return;
    }
    if area::is_managed() {
        raw::die(
            b"pleat: the agent cannot give up the user that this program has given up; ending the process\n",
        );
    }
    leave()
}

/// Ends the agent, and nothing else. A forked child waits for this.
fn leave() -> ! {
    READY.store(2, Ordering::Release);
    raw::wake_all(&READY);
    crate::start::forget_agent();
    raw::end_thread(0)
}

/// Gives back what was mapped since there is an agent, and ends it. Its code and stack are given back from outside
/// (`pleat_sys::inject`).
///
/// Threads of the program know nothing of a copy, so what it has mapped is nobody's but its own.
fn give_back(is_copy: bool) -> ! {
    if is_copy {
        let control = control_range();
        for (start, end) in [growth::way_range(), control, area::beacon_range()] {
            if end > start {
                raw::unmap(start, end - start);
            }
        }
    }
    raw::end_thread(0)
}

/// Ends an agent that has not reached the supervisor, and nothing else. A forked child that waits for it is not told: it ends when
/// it has waited long enough.
pub fn leave_unheard() -> ! {
    crate::start::forget_unheard();
    raw::end_thread(0)
}

/// Has what the kernel writes to at the end of threads stay, and be there. Before anything can be taken it is there.
fn keep(command: &Keep) {
    let count = (command.count as usize).min(command.ranges.len());
    for [address, len] in &command.ranges[..count] {
        let len = (*len as usize).clamp(1, PAGE);
        match area::is_managed() {
            true => _ = exits::stay(*address as usize, len),
            false => threads::protect(*address as usize, len),
        }
    }
}

/// Without fork events, managed memory is kept from children: one that touches it gets SIGSEGV instead
/// of zeros. A mapping that is gone meanwhile needs no guard.
fn guard(command: &Guard) {
    let count = (command.count as usize).min(command.ranges.len());
    for [start, end] in &command.ranges[..count] {
        let (start, len) = (*start as usize, end.saturating_sub(*start) as usize);
        // SAFETY: the advice changes nothing for this process.
        let _ = unsafe { raw::advise(start, len, libc::MADV_DONTFORK) };
    }
}

/// Gets ready, and says so, or why not.
fn prepare(socket: i32, area: Area, command: &Prepare, descriptors: Descriptors) -> Option<Tools> {
    let mut answer = Prepared {
        kind: message::PREPARED,
        staging: area.staging() as u64,
        ..Prepared::default()
    };
    let given = Given::of(command, descriptors);
    let step = &mut answer.step;
    let made = credentials::with(Rights::USERFAULTFD, || {
        prepare::make_tools(area, command, &given, step)
    });
    match made {
        Ok(tools) => {
            answer.beacon = tools.beacon as u64;
            match given.uffd {
                Some(_) => send(socket, &answer, &[]),
                None => send(socket, &answer, &[tools.uffd]),
            }
            Some(tools)
        }
        Err(errno) => {
            answer.error = errno;
            send(socket, &answer, &[]);
            None
        }
    }
}

/// One packet, with room for the largest and for its descriptors.
struct Packet {
    bytes: [u64; PACKET_MAX.div_ceil(8)],
    length: usize,
}

impl Packet {
    fn new() -> Packet {
        Packet {
            bytes: [0; PACKET_MAX.div_ceil(8)],
            length: 0,
        }
    }

    /// Waits for a packet; returns the descriptors that came with it. No supervisor, no process.
    ///
    /// A supervisor that turns a process away does not hear what was said. The kernel tells that (ECONNRESET)
    /// before it hands out what it has said itself, so where that may be it is asked `twice`.
    fn receive(&mut self, socket: i32, twice: bool) -> Descriptors {
        // SAFETY: the buffer is of that size.
        let receive =
            |bytes: &mut [u64]| unsafe { receive(socket, bytes.as_mut_ptr().cast(), PACKET_MAX) };
        let got = receive(&mut self.bytes);
        let got = match got {
            None if twice => receive(&mut self.bytes),
            got => got,
        };
        let Some((length, descriptors)) = got.filter(|(length, _)| *length >= 4) else {
            die_alone();
        };
        self.length = length;
        descriptors
    }

    fn kind(&self) -> u32 {
        self.bytes[0] as u32
    }

    /// The packet as a `T`; a packet that is too short is answered with zeros at its end.
    fn read<T: Copy>(&mut self) -> T {
        const { assert!(core::mem::size_of::<T>() <= PACKET_MAX) };
        let start = self.bytes.as_mut_ptr().cast::<u8>();
        // SAFETY: `bytes` holds PACKET_MAX bytes and is aligned for u64; every message is made of
        // integers, for which any bytes are valid.
        unsafe {
            core::ptr::write_bytes(start.add(self.length), 0, PACKET_MAX - self.length);
            core::ptr::read(start.cast::<T>())
        }
    }
}

/// Waits for a packet, and the descriptors that come with it; `None` when the other side is gone.
///
/// # Safety
/// `bytes` points to `size` writable bytes, for which any value is valid.
pub unsafe fn receive(socket: i32, bytes: *mut u8, size: usize) -> Option<(usize, Descriptors)> {
    let mut part = libc::iovec {
        iov_base: bytes.cast(),
        iov_len: size,
    };
    let mut space = [0u64; 8];
    // SAFETY: msghdr is plain data; every pointer in it is valid during the call.
    let (length, used) = unsafe {
        let mut header: libc::msghdr = core::mem::zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = space.as_mut_ptr().cast();
        header.msg_controllen = core::mem::size_of_val(&space);
        let pointer = (&raw mut header) as usize;
        let flags = libc::MSG_CMSG_CLOEXEC as usize;
        loop {
            match raw::call(Sysno::recvmsg, [socket as usize, pointer, flags, 0, 0, 0]) {
                Err(libc::EINTR) => {}
                Ok(n) if n > 0 => break (n, header.msg_controllen as usize),
                _ => return None,
            }
        }
    };
    let first = 16; // after struct cmsghdr
    let count = used.saturating_sub(first) / 4;
    let mut descriptors = [None; DESCRIPTORS_MAX];
    for (at, place) in descriptors.iter_mut().enumerate() {
        // The kernel rounds the length up to eight bytes; the header has it to the byte.
        let is_there = at < count && first + 4 * (at + 1) <= space[0] as usize;
        *place = is_there.then(|| (space[2 + at / 2] >> (32 * (at % 2))) as u32 as i32);
    }
    Some((length, descriptors))
}

/// Sends one packet with descriptors; a supervisor that is gone is noticed by the next receive.
pub fn send<T>(socket: i32, message: &T, descriptors: &[i32]) {
    let mut part = libc::iovec {
        iov_base: core::ptr::from_ref(message).cast_mut().cast(),
        iov_len: core::mem::size_of::<T>(),
    };
    let mut space = [0u64; 8];
    let length = 16 + 4 * descriptors.len();
    space[0] = length as u64;
    space[1] = (libc::SOL_SOCKET as u64) | ((libc::SCM_RIGHTS as u64) << 32);
    for (at, fd) in descriptors.iter().enumerate() {
        space[2 + at / 2] |= (*fd as u32 as u64) << (32 * (at % 2));
    }
    // SAFETY: msghdr is plain data; every pointer in it is valid during the call.
    unsafe {
        let mut header: libc::msghdr = core::mem::zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        if !descriptors.is_empty() {
            header.msg_control = space.as_mut_ptr().cast();
            header.msg_controllen = length.next_multiple_of(8);
        }
        let pointer = (&raw const header) as usize;
        let flags = libc::MSG_NOSIGNAL as usize;
        let arguments = [socket as usize, pointer, flags, 0, 0, 0];
        let once = || raw::with_memory(|| raw::call(Sysno::sendmsg, arguments));
        while once() == Err(libc::EINTR) {}
    }
}
