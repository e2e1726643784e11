//! The agent's life: say hello, obey commands, and end the process when the supervisor is gone.

use crate::area::{self, Area};
use crate::raw::{self, Errno};
use crate::{frozen, take};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use pleat_wire::control::{Control, WIPED_MAX};
use pleat_wire::message::{self, Guard, Hello, Prepare, Prepared, Replace, Take, Word, PACKET_MAX};
use pleat_wire::{uffd, PAGE};
use syscalls::Sysno;

/// What a prepared agent works with.
pub struct Tools {
    /// The process's userfaultfd. Kept open even where unused: while any copy is open, no absent
    /// page can read as zeros.
    pub uffd: i32,
    /// A second userfaultfd without events, for the outbox.
    pub outbox_uffd: i32,
    /// The shared control page, followed by the ring.
    pub control: *const Control,
    /// The agent's memory.
    pub area: Area,
    /// See [`Prepare`]; 0: take-aways are not timed.
    pub slow_ticks: u64,
    /// The beacon page.
    beacon: usize,
    /// Forks are reported by the kernel.
    fork_events: bool,
}

/// Ranges under MADV_WIPEONFORK noted so far, also before there is a control page.
static WIPED: [[AtomicU64; 2]; WIPED_MAX] =
    [const { [AtomicU64::new(0), AtomicU64::new(0)] }; WIPED_MAX];
static WIPED_COUNT: AtomicU32 = AtomicU32::new(0);
static CONTROL: AtomicUsize = AtomicUsize::new(0);

/// 1 when the agent is ready for commands, 2 when it never will be.
static READY: AtomicU32 = AtomicU32::new(0);
/// How long a forked child waits for its agent at most: a supervisor that is so slow does not come.
const READY_WAIT_MS: usize = 20_000;

/// Waits until the agent is ready for commands; `false` when it never will be.
pub fn await_ready() -> bool {
    for _ in 0..READY_WAIT_MS / 100 {
        match READY.load(Ordering::Acquire) {
            0 => raw::wait_while(&READY, 0, 100),
            ready => return ready == 1,
        }
    }
    false
}

/// In a forked child: the parent's control page is not mapped here.
pub fn forget_parent() {
    CONTROL.store(0, Ordering::Release);
    READY.store(0, Ordering::Release);
    frozen::forget_parent();
}

/// Notes that a range is wiped in forked children.
pub fn note_wiped(start: usize, len: usize) {
    let (first, end) = (start as u64, (start + len) as u64);
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
    publish_wiped();
}

fn publish_wiped() {
    let control = CONTROL.load(Ordering::Acquire) as *const Control;
    if control.is_null() {
        return;
    }
    // SAFETY: CONTROL is set once the page is mapped, and it stays mapped for the process's life.
    let control = unsafe { &*control };
    for (to, from) in control.wiped.iter().zip(&WIPED) {
        to[0].store(from[0].load(Ordering::Acquire), Ordering::Relaxed);
        to[1].store(from[1].load(Ordering::Acquire), Ordering::Relaxed);
    }
    control
        .wiped_count
        .store(WIPED_COUNT.load(Ordering::Acquire), Ordering::Release);
}

/// Serves until the process ends.
pub fn run(socket: i32, area: Area, hello: &Hello) -> ! {
    send(socket, hello, &[]);
    let mut tools: Option<Tools> = None;
    let mut packet = Packet::new();
    loop {
        let fd = packet.receive(socket, tools.is_none());
        match packet.kind() {
            message::PREPARE if tools.is_none() => {
                let command: Prepare = packet.read();
                tools = prepare(socket, area, &command, fd);
                READY.store(if tools.is_some() { 1 } else { 2 }, Ordering::Release);
                raw::wake_all(&READY);
                // What has been urgent is to become ready, before memory is full.
                raw::set_nice(0);
            }
            message::TAKE => {
                if let Some(tools) = &tools {
                    let command: Take = packet.read();
                    send(socket, &take::take(tools, &command), &[]);
                }
            }
            message::GUARD => guard(&packet.read()),
            message::FREEZE => done(socket, frozen::freeze()),
            message::REPLACE => {
                let command: Replace = packet.read();
                let file = fd.ok_or(libc::EBADF);
                done(socket, file.and_then(|fd| frozen::replace(&command, fd)));
                fd.into_iter().for_each(raw::close);
            }
            message::THAW => frozen::thaw(),
            message::RELEASE if tools.is_none() => {
                // A forked child whose memory is away waits for this, and ends itself.
                READY.store(2, Ordering::Release);
                raw::wake_all(&READY);
                crate::start::forget_agent();
                raw::end_thread()
            }
            _ => raw::die(b"pleat: the agent got a message it does not know; ending the process\n"),
        }
    }
}

fn done(socket: i32, result: Result<(), Errno>) {
    let answer = Word {
        kind: message::DONE,
        error: result.err().unwrap_or(0),
    };
    send(socket, &answer, &[]);
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

fn prepare(socket: i32, area: Area, command: &Prepare, given: Option<i32>) -> Option<Tools> {
    let mut answer = Prepared {
        kind: message::PREPARED,
        ..Prepared::default()
    };
    match make_tools(area, command, given, &mut answer.step) {
        Ok((tools, memory)) => {
            answer.fork_events = u32::from(tools.fork_events);
            area::set_fork_events(tools.fork_events);
            answer.beacon = tools.beacon as u64;
            send(socket, &answer, &[tools.uffd, memory]);
            raw::close(memory);
            Some(tools)
        }
        Err(errno) => {
            answer.error = errno;
            send(socket, &answer, &[]);
            None
        }
    }
}

pub fn make_tools(
    area: Area,
    command: &Prepare,
    given: Option<i32>,
    step: &mut u32,
) -> Result<(Tools, i32), Errno> {
    let inherited = command.has_uffd != 0;
    let (main, fork_events) = match given {
        Some(fd) if inherited => (fd, true),
        _ => open_main(command.fork_events != 0, step)?,
    };
    let outbox_uffd = open_uffd(uffd::FEATURE_MOVE, step)?;
    *step = message::STEP_MEMORY;
    let (memory, control) = share_memory(command.ring_frames as usize)?;
    let beacon = area::beacon()?;
    *step = message::STEP_REGISTER;
    register(main, area.staging(), Area::staging_len())?;
    register(outbox_uffd, area.outbox(), Area::staging_len())?;
    if !inherited {
        register(main, beacon, area::BEACON_LEN)?;
    }
    CONTROL.store(control as usize, Ordering::Release);
    publish_wiped();
    area::light_beacon(beacon);
    Ok((
        Tools {
            uffd: main,
            outbox_uffd,
            control,
            area,
            slow_ticks: command.slow_ticks,
            beacon,
            fork_events,
        },
        memory,
    ))
}

/// The process's userfaultfd, and whether it reports forks: that takes CAP_SYS_PTRACE.
fn open_main(fork_events: bool, step: &mut u32) -> Result<(i32, bool), Errno> {
    if fork_events {
        match open_uffd(uffd::FEATURES_FOLLOW | uffd::FEATURE_EVENT_FORK, step) {
            Ok(fd) => return Ok((fd, true)),
            Err(libc::EPERM) => {}
            Err(errno) => return Err(errno),
        }
    }
    open_uffd(uffd::FEATURES_FOLLOW, step).map(|fd| (fd, false))
}

/// A userfaultfd by the device, else by the system call.
fn open_uffd(features: u64, step: &mut u32) -> Result<i32, Errno> {
    *step = message::STEP_USERFAULTFD;
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
    let path = c"/dev/userfaultfd".as_ptr() as usize;
    let at = libc::AT_FDCWD as usize;
    let open_flags = (libc::O_RDWR | libc::O_CLOEXEC) as usize;
    // SAFETY: a static path, plain flags, and an ioctl without a pointer.
    let fd = unsafe {
        let by_device =
            raw::call(Sysno::openat, [at, path, open_flags, 0, 0, 0]).and_then(|device| {
                let made = raw::call(
                    Sysno::ioctl,
                    [device, uffd::IOC_NEW as usize, flags, 0, 0, 0],
                );
                raw::close(device as i32);
                made
            });
        by_device.or_else(|_| raw::call(Sysno::userfaultfd, [flags, 0, 0, 0, 0, 0]))? as i32
    };
    *step = message::STEP_API;
    let mut api = uffd::Api {
        api: uffd::API,
        features,
        ioctls: 0,
    };
    // SAFETY: the structure of this request.
    unsafe { raw::ioctl(fd, uffd::IOC_API, &mut api) }.inspect_err(|_| raw::close(fd))?;
    Ok(fd)
}

fn register(fd: i32, start: usize, len: usize) -> Result<(), Errno> {
    let mut argument = uffd::Register {
        range: uffd::Range {
            start: start as u64,
            len: len as u64,
        },
        mode: uffd::REGISTER_MODE_MISSING,
        ioctls: 0,
    };
    // SAFETY: the structure of this request; the range is the agent's own.
    unsafe { raw::ioctl(fd, uffd::IOC_REGISTER, &mut argument) }.map(|_| ())
}

/// The control page and the ring, shared with the supervisor and with no forked child.
fn share_memory(frames: usize) -> Result<(i32, *const Control), Errno> {
    let len = (1 + frames) * PAGE;
    // SAFETY: a static name; the descriptor is ours; the mapping is fresh.
    unsafe {
        let name = c"pleat".as_ptr() as usize;
        let fd = raw::call(
            Sysno::memfd_create,
            [
                name,
                (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as usize,
                0,
                0,
                0,
                0,
            ],
        )?;
        raw::call(Sysno::ftruncate, [fd, len, 0, 0, 0, 0])?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let start = raw::map(len, protection, libc::MAP_SHARED, fd as i32)?;
        raw::advise(start, len, libc::MADV_DONTFORK)?;
        Ok((fd as i32, start as *const Control))
    }
}

/// One packet, with room for the largest and for one descriptor.
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

    /// Waits for a packet; returns the descriptor that came with it. No supervisor, no process.
    ///
    /// A supervisor that turns a process away does not hear what was said. The kernel tells that (ECONNRESET)
    /// before it hands out what it has said itself, so where that may be it is asked `twice`.
    fn receive(&mut self, socket: i32, twice: bool) -> Option<i32> {
        // SAFETY: the buffer is of that size.
        let receive =
            |bytes: &mut [u64]| unsafe { receive(socket, bytes.as_mut_ptr().cast(), PACKET_MAX) };
        let got = receive(&mut self.bytes);
        let got = match got {
            None if twice => receive(&mut self.bytes),
            got => got,
        };
        let Some((length, descriptor)) = got.filter(|(length, _)| *length >= 4) else {
            raw::die(
                b"pleat: the supervisor is gone, and memory of this process with it; \
                  ending the process\n",
            );
        };
        self.length = length;
        descriptor
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

/// Waits for a packet, and the descriptor that comes with it if there is one; `None` when the other side
/// is gone.
///
/// # Safety
/// `bytes` points to `size` writable bytes, for which any value is valid.
pub unsafe fn receive(socket: i32, bytes: *mut u8, size: usize) -> Option<(usize, Option<i32>)> {
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
    let descriptor = 16; // after struct cmsghdr
    Some((
        length,
        (used >= descriptor + 4).then(|| space[2] as u32 as i32),
    ))
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
        while raw::call(Sysno::sendmsg, [socket as usize, pointer, flags, 0, 0, 0])
            == Err(libc::EINTR)
        {}
    }
}
