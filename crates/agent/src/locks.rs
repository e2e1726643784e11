//! `mlockall`, which pleat stands in front of: everything of the program's is locked, and nothing of the agent's.
//!
//! The kernel would put pages in place in the agent's staging area, where those that leave the program have to land,
//! and on the beacon, which is read in order to raise a fault. So the mappings are locked one by one, as `/proc/self/maps`
//! lists them, and those two and the ring are left out. Each is locked first without its pages (`MLOCK_ONFAULT`), so that an
//! error is one of limits; then its pages are fetched, and as in mlockall it is no error where that cannot be.
//!
//! A program that makes the system call by `syscall` comes by here, too (`direct`); one that has the instruction in its own text
//! does not.

use crate::raw::{self, Errno};
use crate::{area, interpose, serve, start};
use core::ffi::c_int;
use syscalls::Sysno;

/// Above are only the kernel's own pages.
const ADDRESSES_END: usize = 1 << 47;
/// A mapping that is gone by the time it is to be locked fails as a limit does: so often it is begun anew.
const TRIES: usize = 3;

/// As the C library's.
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    let known = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    let is_ours =
        flags & libc::MCL_CURRENT != 0 && flags & !known == 0 && start::agent_thread() != 0;
    let result = match is_ours {
        true => lock_all(flags),
        false => call(flags),
    };
    match result {
        Ok(()) => 0,
        Err(errno) => interpose::fail(errno),
    }
}

fn call(flags: c_int) -> Result<(), Errno> {
    // SAFETY: a plain number; no content changes.
    unsafe { raw::call(Sysno::mlockall, [flags as usize, 0, 0, 0, 0, 0]) }.map(|_| ())
}

fn lock_all(flags: c_int) -> Result<(), Errno> {
    if flags & libc::MCL_FUTURE != 0 {
        call(flags & !libc::MCL_CURRENT)?;
    }
    let mut result = Ok(());
    for _ in 0..TRIES {
        result = each_mapping(|start, end| lock(start, end, libc::MLOCK_ONFAULT as usize));
        if result != Err(libc::ENOMEM) {
            break;
        }
    }
    result?;
    if flags & libc::MCL_ONFAULT == 0 {
        each_mapping(|start, end| {
            // Not all of it can be in memory: it may be inaccessible, or behind the end of a file.
            let _ = lock(start, end, 0);
            Ok(())
        })?;
    }
    Ok(())
}

fn lock(start: usize, end: usize, flags: usize) -> Result<(), Errno> {
    // SAFETY: no content changes.
    unsafe { raw::call(Sysno::mlock2, [start, end - start, flags, 0, 0, 0]) }.map(|_| ())
}

/// Calls `work` with every part of a mapping that is the program's.
fn each_mapping(work: impl Fn(usize, usize) -> Result<(), Errno>) -> Result<(), Errno> {
    let ours = [start::area(), area::beacon_range(), serve::control_range()];
    let mut maps = Maps::open()?;
    while let Some((mut start, end)) = maps.next()? {
        while start < end {
            let inside = ours.iter().find(|(from, to)| (*from..*to).contains(&start));
            if let Some((_, to)) = inside {
                start = *to;
                continue;
            }
            let next = ours.iter().filter(|(from, to)| *from > start && to > from);
            let until = next.map(|(from, _)| *from).min().unwrap_or(end).min(end);
            work(start, until)?;
            start = until;
        }
    }
    Ok(())
}

/// `/proc/self/maps`, read piece by piece on the stack.
struct Maps {
    fd: i32,
    piece: [u8; 512],
    at: usize,
    len: usize,
}

impl Maps {
    fn open() -> Result<Maps, Errno> {
        Ok(Maps {
            fd: raw::open(c"/proc/self/maps", libc::O_RDONLY)?,
            piece: [0; 512],
            at: 0,
            len: 0,
        })
    }

    /// The next mapping, as `(start, end)`.
    fn next(&mut self) -> Result<Option<(usize, usize)>, Errno> {
        let mut ends = [0usize; 2];
        let (mut field, mut any) = (0, false);
        while let Some(byte) = self.byte()? {
            any = true;
            match (byte, field) {
                (b'\n', _) => break,
                (b'-', 0) | (b' ', 1) => field += 1,
                (digit, 0 | 1) => {
                    let digit = (digit as char).to_digit(16).unwrap_or(0) as usize;
                    ends[field] = ends[field] << 4 | digit;
                }
                _ => {}
            }
        }
        let is_kernels = ends[0] >= ADDRESSES_END;
        Ok((any && !is_kernels).then_some((ends[0], ends[1])))
    }

    fn byte(&mut self) -> Result<Option<u8>, Errno> {
        if self.at == self.len {
            let (start, len) = (self.piece.as_mut_ptr() as usize, self.piece.len());
            // SAFETY: the piece has that many bytes.
            self.len = unsafe { raw::call(Sysno::read, [self.fd as usize, start, len, 0, 0, 0]) }?;
            self.at = 0;
        }
        let byte = self.piece[..self.len].get(self.at).copied();
        self.at += usize::from(byte.is_some());
        Ok(byte)
    }
}

impl Drop for Maps {
    fn drop(&mut self) {
        raw::close(self.fd);
    }
}
