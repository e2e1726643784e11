//! A simulated userfaultfd, as the pager sees it.

use super::kernel::{self, Event, Follow, Mm, Page};
use super::leaving;
use super::machine::{address_of, error, page_at, UFFDS};
use super::page::number_of;
use super::world::{note, step, violated, with, World};
use super::Trouble;
use crate::ports::Userfault;
use pleat_sys::uffd::{FillError, BATCH};
use pleat_types::PAGE_SIZE;
use pleat_wire::uffd::{Message, PAGEFAULT_FLAG_WP, PAGEFAULT_FLAG_WRITE};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// What a page reads as that was poisoned.
const POISON: u64 = u64::MAX;

fn fill_error(errno: i32) -> FillError {
    match errno {
        kernel::EEXIST => FillError::Exists,
        kernel::EAGAIN => FillError::EventPending,
        kernel::ENOENT => FillError::NotMapped,
        kernel::ESRCH => FillError::Dead,
        other => FillError::Other(error(other)),
    }
}

/// A userfaultfd, which is dead when it is closed, whatever becomes of the address space.
pub struct SimUffd {
    mm: Mm,
    is_closed: AtomicBool,
}

impl SimUffd {
    pub fn of(mm: Mm) -> SimUffd {
        SimUffd {
            mm,
            is_closed: AtomicBool::new(false),
        }
    }

    /// Does it, unless this is closed.
    fn ask<T>(&self, ask: impl FnOnce(&mut World) -> Result<T, i32>) -> Result<T, i32> {
        match self.is_closed() {
            true => Err(kernel::ESRCH),
            false => with(ask),
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn range(start: u64, len: u64) -> (Page, Page) {
        (page_at(start), page_at(start + len))
    }

    fn fill(&self, address: u64, bytes: &[u8], wakes: bool) -> Result<u64, FillError> {
        step();
        let (mm, start) = (self.mm, page_at(address));
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
        let filled = self.ask(|world| {
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
        let done = self.ask(|world| {
            world
                .kernel
                .register(self.mm, SimUffd::range(start, len), follow)
        });
        note(|| {
            format!(
                "mm {}: register {:#x}+{} {follow:?}: {done:?}",
                self.mm,
                page_at(start),
                page_at(len)
            )
        });
        done.map_err(error)
    }
}

impl Userfault for SimUffd {
    fn descriptor(&self) -> RawFd {
        UFFDS + self.mm as RawFd
    }

    fn read(&self, out: &mut Vec<Message>) -> io::Result<()> {
        step();
        let read = self.ask(|world| Ok(world.kernel.read(self.mm, BATCH)));
        let (faults, events) = read.unwrap_or_default();
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
            note(|| format!("mm {}: reads {event:x?}", self.mm));
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
        Arc::new(SimUffd::of(descriptor as Mm))
    }

    fn copy(&self, address: u64, bytes: &[u8]) -> Result<u64, FillError> {
        self.fill(address, bytes, true)
    }

    fn copy_quietly(&self, address: u64, bytes: &[u8]) -> Result<u64, FillError> {
        self.fill(address, bytes, false)
    }

    /// Nobody is woken; who reads it finds a number that no page has.
    fn poison(&self, address: u64) -> Result<(), FillError> {
        step();
        let poisoned = self.ask(|world| world.kernel.copy(self.mm, page_at(address), &[POISON], 1));
        poisoned.map(drop).map_err(fill_error)
    }

    fn protect(&self, start: u64, len: u64, protect: bool) -> Result<(), FillError> {
        step();
        let done = self.ask(|world| {
            let (start, end) = SimUffd::range(start, len);
            let done = world.kernel.protect(self.mm, (start, end), protect);
            if !protect && done.is_ok() {
                world.kernel.wake(self.mm, start, end);
            }
            world.note(|| {
                format!(
                    "mm {}: protect {start:#x}..{end:#x} {protect}: {done:?}",
                    self.mm
                )
            });
            done
        });
        done.map_err(fill_error)
    }

    fn check_private(&self, address: u64) -> Result<(), FillError> {
        step();
        let page = page_at(address);
        let done = self.ask(|world| world.kernel.protect(self.mm, (page, page + 1), false));
        done.map_err(fill_error)
    }

    fn wake(&self, start: u64, len: u64) {
        step();
        let (start, end) = SimUffd::range(start, len);
        let _ = self.ask(|world| {
            world.kernel.wake(self.mm, start, end);
            Ok(())
        });
    }

    fn register(&self, start: u64, len: u64) -> io::Result<()> {
        self.follow(start, len, Follow::AbsentAndProtected)
    }

    fn register_read_only(&self, start: u64, len: u64) -> io::Result<()> {
        self.follow(start, len, Follow::Absent)
    }

    fn unregister(&self, start: u64, len: u64) -> io::Result<()> {
        self.follow(start, len, Follow::No)?;
        let (start, end) = SimUffd::range(start, len);
        with(|world| world.kernel.wake(self.mm, start, end));
        Ok(())
    }

    fn is_dead(&self) -> bool {
        step();
        self.is_closed() || with(|world| world.kernel.spaces[self.mm].is_dead)
    }

    fn is_event_pending(&self) -> bool {
        step();
        with(|world| !self.is_closed() && !world.kernel.spaces[self.mm].changing.is_empty())
    }

    fn close(&self) {
        step();
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            leaving::close(self.mm);
        }
    }
}
