//! The library in a process that has loaded it.
//!
//! It is known by its code, which is executable where it lies, and by its mark. Others map the file, too: debuggers, and whatever
//! looks into files. What lies behind such a mapping is theirs, and must not be written to.
//!
//! What the library says of itself ([`State`]) is looked at before a thread stands still, and is to be the same after that: meanwhile
//! the library may have come to itself, or have begun its work.

use super::{memory, Image, InjectError, Request, TraceError};
use crate::procfs::{self, FilePart};
use pleat_wire::injected::{Injected, Stage, State, MARK};
use pleat_wire::PAGE;
use std::mem::offset_of;
use std::time::Duration;

/// A constructor that has not run for so long is not waited for. (If it runs later, it finds that it has been told so.)
const LOADED_WITHIN: Duration = Duration::from_secs(1);
/// In a child the library comes to itself within this time, if that was forked by the C library. What has no agent after it was forked
/// otherwise.
const FORKED_WITHIN: Duration = Duration::from_secs(5);
/// A program of which the library is to be loaded still has less memory of its own. (Large ones have few libraries before the first page
/// of their own.)
const BEFORE_LOADED: u64 = 512 << 10;

/// A library that was loaded.
#[derive(Clone, Copy)]
pub(super) struct Library {
    pub(super) base: u64,
    /// Where its [`Injected`] is.
    given: u64,
    /// What it says of itself.
    word: u64,
}

/// By what an agent is to be started.
#[derive(Clone, Copy)]
pub(super) enum By {
    /// By the library that was loaded, and waits for it.
    Loaded(Library),
    /// By a copy; beside this library, which is of no use.
    Copy(Option<Library>),
}

/// The library that a process has loaded.
pub(super) fn find(pid: i32, image: &Image) -> Option<Library> {
    let parts = procfs::mappings_of(pid, image.identity()).unwrap_or_default();
    let bases = parts.iter().filter_map(|part| base_of(part, image));
    let mut libraries = bases.filter_map(|base| {
        let given = image.given_at(base);
        let mut bytes = [0; size_of::<Injected>()];
        memory::read(pid, given, &mut bytes).ok()?;
        let found = crate::read_plain::<Injected>(&bytes)?;
        let word = found.state;
        (found.mark == MARK).then_some(Library { base, given, word })
    });
    libraries.next()
}

/// Where the library begins of which this is the code.
fn base_of(part: &FilePart, image: &Image) -> Option<u64> {
    let (code, offset) = image.code_in_file();
    let is_code = part.mapping.executable && part.offset == offset;
    part.mapping.start.checked_sub(code).filter(|_| is_code)
}

fn read_word(pid: i32, given: u64) -> Option<u64> {
    let mut word = [0; 8];
    let place = given + offset_of!(Injected, state) as u64;
    memory::read(pid, place, &mut word).ok()?;
    Some(u64::from_ne_bytes(word))
}

impl Library {
    /// Where its [`Injected`] is.
    pub(super) fn given(&self) -> u64 {
        self.given
    }

    /// Whether it says still what it said. It does until a thread of its process goes on, if all stand still that run it.
    pub(super) fn is_unchanged(&self, pid: i32) -> bool {
        read_word(pid, self.given) == Some(self.word)
    }

    /// By what an agent is to be started in its process. `beacon`: that of the process's parent, if that was managed; else 0.
    fn way(&self, pid: i32, beacon: u64, request: &Request) -> Result<By, InjectError> {
        let copy = Ok(By::Copy(Some(*self)));
        let soon = |is_young: bool, late| match is_young {
            true => Err(TraceError::Gone.into()),
            false => late,
        };
        let State { stage, pid: owner } = State::of_word(self.word).ok_or(TraceError::Busy)?;
        if stage == Stage::Unfit {
            return copy;
        }
        let is_young = request.age < FORKED_WITHIN;
        if beacon != 0 {
            // It reads its token by itself, which is there once: never by a copy, too, however slow it is.
            return soon(is_young, Err(InjectError::ForkedPast));
        }
        let is_own = procfs::own_number(pid) == Some(owner);
        match stage {
            Stage::Loaded if request.loading < LOADED_WITHIN => Err(InjectError::Loading),
            Stage::Loaded => copy,
            Stage::Waits if is_own => Ok(By::Loaded(*self)),
            Stage::Left if is_own => copy,
            _ if is_own => Err(TraceError::Busy.into()),
            Stage::Waits => soon(is_young, Ok(By::Loaded(*self))),
            _ => soon(is_young, copy),
        }
    }
}

/// By what an agent is to be started in a process with this library, if any.
pub(super) fn way(
    pid: i32,
    library: Option<Library>,
    beacon: u64,
    has_loader: bool,
    request: &Request,
) -> Result<By, InjectError> {
    match library {
        Some(library) => library.way(pid, beacon, request),
        None if has_loader && is_small(pid) && request.loading < LOADED_WITHIN => {
            Err(InjectError::Loading)
        }
        None => Ok(By::Copy(None)),
    }
}

/// Whether its libraries may be about to be loaded.
fn is_small(pid: i32) -> bool {
    let statm = procfs::StatmReader::open(pid).and_then(|reader| reader.read());
    statm.is_ok_and(|statm| {
        let own = statm.resident_pages.saturating_sub(statm.shared_pages);
        own * PAGE as u64 <= BEFORE_LOADED
    })
}
