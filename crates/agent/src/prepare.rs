//! Getting ready for take-aways: what the agent makes of what the supervisor hands it.
//!
//! The agent makes the userfaultfd, because it is of the memory of whoever makes it. What it takes to be allowed to
//! is the supervisor's: the open device comes with the command, and the handshake over the userfaultfd, by which
//! the kernel is asked to report forks, is made by the supervisor. So it does not matter which user the program has
//! become, what it sees of /dev, or which capabilities it has given up. Nor do its limits: shared memory comes ready
//! made, and no more than four descriptors are open at a time.

use crate::area::{self, Area};
use crate::growth;
use crate::raw::{self, Errno};
use crate::serve::{self, Descriptors};
use pleat_wire::control::Control;
use pleat_wire::message::{self, Prepare};
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
    pub beacon: usize,
}

/// What came with the command.
pub struct Given {
    /// The control page and the ring.
    pub memory: Option<i32>,
    /// The userfaultfd of this memory that a fork made.
    pub uffd: Option<i32>,
    /// The device that makes others.
    device: Option<i32>,
}

impl Given {
    /// In the order in which they are sent. What a limit of descriptors has kept out is not there.
    pub fn of(command: &Prepare, descriptors: Descriptors) -> Given {
        let mut rest = descriptors.into_iter().flatten();
        let mut next_if = |sent: bool| if sent { rest.next() } else { None };
        Given {
            memory: next_if(true),
            uffd: next_if(command.has_uffd != 0),
            device: next_if(command.has_device != 0),
        }
    }
}

/// Makes what is needed. Where the process has a userfaultfd from its fork, its staging area is registered here;
/// else the supervisor does that, after its handshake.
pub fn make_tools(
    area: Area,
    command: &Prepare,
    given: &Given,
    step: &mut u32,
) -> Result<Tools, Errno> {
    *step = message::STEP_MEMORY;
    // Without any of them the limit of descriptors is too low.
    let memory = given.memory.ok_or(libc::EMFILE)?;
    let missing = |wanted: u32, given: Option<i32>| wanted != 0 && given.is_none();
    if missing(command.has_uffd, given.uffd) || missing(command.has_device, given.device) {
        return Err(libc::EMFILE);
    }
    let control = map_memory(memory, command.ring_frames as usize)?;
    raw::close(memory);
    let beacon = area::beacon()?;
    let uffd = match given.uffd {
        Some(fd) => fd,
        None => new_uffd(given.device, step)?,
    };
    let outbox_uffd = new_uffd(given.device, step)?;
    given.device.into_iter().for_each(raw::close);
    *step = message::STEP_API;
    shake_hands(outbox_uffd, uffd::FEATURE_MOVE)?;
    *step = message::STEP_REGISTER;
    register(outbox_uffd, area.outbox(), Area::staging_len())?;
    if given.uffd.is_some() {
        register(uffd, area.staging(), Area::staging_len())?;
    }
    growth::note_control(control)?;
    serve::note_control(control, command.ring_frames as usize);
    area::note_beacon(beacon);
    Ok(Tools {
        uffd,
        outbox_uffd,
        control,
        area,
        slow_ticks: command.slow_ticks,
        beacon,
    })
}

/// A userfaultfd of this memory by the device, or by the system call where there is no device. With a device the
/// call is never made: a filter of the program's may kill whoever tries.
fn new_uffd(device: Option<i32>, step: &mut u32) -> Result<i32, Errno> {
    *step = message::STEP_USERFAULTFD;
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
    // SAFETY: plain flags, and a request without a pointer.
    let make = || unsafe {
        match device {
            Some(device) => {
                let request = uffd::IOC_NEW as usize;
                raw::call(Sysno::ioctl, [device as usize, request, flags, 0, 0, 0])
            }
            None => raw::call(Sysno::userfaultfd, [flags, 0, 0, 0, 0, 0]),
        }
    };
    raw::with_memory(make).map(|fd| fd as i32)
}

/// The handshake over a userfaultfd without events, which anybody may make.
pub fn shake_hands(fd: i32, features: u64) -> Result<(), Errno> {
    let mut api = uffd::Api {
        api: uffd::API,
        features,
        ioctls: 0,
    };
    // SAFETY: the structure of this request.
    unsafe { raw::ioctl(fd, uffd::IOC_API, &mut api) }.map(|_| ())
}

/// Asks for faults on absent pages of a range of the agent's own.
pub fn register(fd: i32, start: usize, len: usize) -> Result<(), Errno> {
    let mut argument = uffd::Register {
        range: uffd::Range {
            start: start as u64,
            len: len as u64,
        },
        mode: uffd::REGISTER_MODE_MISSING,
        ioctls: 0,
    };
    // SAFETY: the structure of this request; the range is the agent's own.
    raw::with_memory(|| unsafe { raw::ioctl(fd, uffd::IOC_REGISTER, &mut argument) }).map(|_| ())
}

/// The control page and the ring, shared with the supervisor and with no forked child.
fn map_memory(memory: i32, frames: usize) -> Result<*const Control, Errno> {
    let len = (1 + frames) * PAGE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let start = raw::map(len, protection, libc::MAP_SHARED, memory)?;
    // SAFETY: the mapping is fresh.
    unsafe {
        raw::advise_own(start, len, libc::MADV_DONTFORK)?;
        raw::unlock_memory(start, len)?;
    }
    Ok(start as *const Control)
}
