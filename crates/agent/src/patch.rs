//! Standing in front of system calls that the C library makes for itself.
//!
//! malloc's calls of brk and mmap, the madvise by which stacks get guards, and the execve of system(3) and posix_spawn(3), do
//! not go through the symbol table.
//! In the library's text each of them is `mov $number,%eax; syscall`, seven bytes. The constructor puts a jump to a stub
//! of ours there (`stubs.rs`), which does what the two instructions did, and jumps back behind them. So nothing
//! that is overwritten has to be moved elsewhere, and no instruction has to be decoded.
//!
//! ```text
//!  before:  b8 0c 00 00 00   mov $12,%eax         after:  e9 .. .. .. ..   jmp stub
//!           0f 05            syscall                      66 90            nop
//! ```
//!
//! Where anything is not as expected the library stays as it is, and so does what it does: growth is found by
//! looking, guards of stacks go unseen, and an exec without the agent in its environment runs unmanaged.
//!
//! The bytes are written through `/proc/self/mem`. That needs no change of protection that could fail half way, and a
//! kernel or policy that forbids it says so before anything has changed. The page becomes this process's own. Where the kernel
//! lets nobody but a debugger write to text in that way (Linux 6.12 on, if so built: CONFIG_PROC_MEM_FORCE_PTRACE, as Debian's
//! are after 13), a copy of the page is made elsewhere and moved there when it is ready, which the kernel does at one stroke.

use crate::stubs::{self, Stub};
use crate::{raw, symbols};
use core::ffi::{c_int, CStr};
use core::sync::atomic::Ordering;
use pleat_wire::PAGE;
use syscalls::Sysno;

/// Bytes of the two instructions.
const SITE: usize = 7;
/// Longer functions are others than those that are known.
const FUNCTION_MAX: usize = 512;

/// Puts the stubs in front of the C library's system calls, as far as that can be done without any doubt. By the
/// constructor, before the agent's thread is made. Answers whether every exec is seen.
pub fn install() -> bool {
    // A thread could be just there where bytes are replaced.
    if !is_single_threaded() {
        return false;
    }
    let Ok(memory) = raw::open(c"/proc/self/mem", libc::O_RDWR) else {
        return false;
    };
    let is_placed = |stub: &Stub| {
        let function = Function::of_c_library(stub.function);
        function.is_some_and(|function| place(memory, &function, stub))
    };
    stubs::GROWTH.iter().for_each(|stub| {
        is_placed(stub);
    });
    is_placed(&stubs::ADVICE);
    // All of them are tried.
    let placed = stubs::EXEC.iter().filter(|stub| is_placed(stub)).count();
    raw::close(memory);
    placed == stubs::EXEC.len()
}

/// The text of a function of the C library.
struct Function {
    start: usize,
    len: usize,
}

impl Function {
    /// Of the C library that this process has loaded; `None` for one too long or too short to be what is known.
    fn of_c_library(name: &CStr) -> Option<Function> {
        let (start, len) = symbols::text_of_c_library(name)?;
        (SITE..=FUNCTION_MAX)
            .contains(&len)
            .then_some(Function { start, len })
    }
}

/// The kernel counts a directory for each thread, beside two.
fn is_single_threaded() -> bool {
    // SAFETY: all zeros is a valid `stat`; it and the path outlive the call.
    unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        let (path, status_at) = (c"/proc/self/task".as_ptr(), &raw mut status);
        let at = libc::AT_FDCWD as usize;
        let arguments = [at, path as usize, status_at as usize, 0, 0, 0];
        raw::call(Sysno::newfstatat, arguments).is_ok() && status.st_nlink == 3
    }
}

/// Replaces the one system call of a function, if it is what it should be.
fn place(memory: c_int, function: &Function, stub: &Stub) -> bool {
    let mut text = [0u8; FUNCTION_MAX];
    let text = &mut text[..function.len];
    if !read(memory, function.start, text) {
        return false;
    }
    let Some(at) = find_site(text, stub.number) else {
        return false;
    };
    let site = function.start + at;
    let Some(jump) = jump_to(site, stub.entry as usize) else {
        return false;
    };
    // Before anybody jumps there.
    stub.back.store(site + SITE, Ordering::Release);
    let mut after = [0u8; SITE];
    let is_written = write(memory, site, &jump) || replace(site, &jump);
    is_written && read(memory, site, &mut after) && after == jump
}

/// Where in a function's text its system call is: exactly one, with nothing that could be a jump into it.
fn find_site(text: &[u8], number: u32) -> Option<usize> {
    let wanted = site_bytes(number);
    let mut found = (0..text.len()).filter(|&at| text.get(at..at + SITE) == Some(&wanted));
    let at = found.next()?;
    let is_alone = found.next().is_none();
    let is_target = (0..text.len()).any(|from| may_jump_into(text, from, at));
    (is_alone && !is_target).then_some(at)
}

fn site_bytes(number: u32) -> [u8; SITE] {
    let [a, b, c, d] = number.to_le_bytes();
    [0xb8, a, b, c, d, 0x0f, 0x05]
}

/// Whether the bytes at `from`, should they be an instruction, jump behind the first byte of the site. Most are none, and
/// refusing for their sake costs nothing.
fn may_jump_into(text: &[u8], from: usize, site: usize) -> bool {
    let target = match text[from..] {
        [0x70..=0x7f | 0xe0..=0xe3 | 0xeb, by, ..] => Some((from + 2, i64::from(by as i8))),
        [0xe8 | 0xe9, a, b, c, d, ..] => Some((from + 5, far([a, b, c, d]))),
        [0x0f, 0x80..=0x8f, a, b, c, d, ..] => Some((from + 6, far([a, b, c, d]))),
        _ => None,
    };
    let inside = site as i64 + 1..(site + SITE) as i64;
    target.is_some_and(|(next, by)| inside.contains(&(next as i64 + by)))
}

fn far(by: [u8; 4]) -> i64 {
    i64::from(i32::from_le_bytes(by))
}

/// A jump from `site` to `target`, as long as the site; `None` where that is too far, or where the site is in two
/// pages, of which only one might be written.
fn jump_to(site: usize, target: usize) -> Option<[u8; SITE]> {
    let by = target as i64 - (site + 5) as i64;
    let [a, b, c, d] = i32::try_from(by).ok()?.to_le_bytes();
    (site / PAGE == (site + SITE - 1) / PAGE).then_some([0xe9, a, b, c, d, 0x66, 0x90])
}

fn read(memory: c_int, address: usize, bytes: &mut [u8]) -> bool {
    let (pointer, len) = (bytes.as_mut_ptr() as usize, bytes.len());
    let arguments = [memory as usize, pointer, len, address, 0, 0];
    // SAFETY: the buffer has room for `len` bytes.
    unsafe { raw::call(Sysno::pread64, arguments) == Ok(len) }
}

fn write(memory: c_int, address: usize, bytes: &[u8]) -> bool {
    let (pointer, len) = (bytes.as_ptr() as usize, bytes.len());
    let arguments = [memory as usize, pointer, len, address, 0, 0];
    // SAFETY: the only thread of this process is here, and so in none of the bytes that change; they mean the same
    // afterwards (see above).
    unsafe { raw::call(Sysno::pwrite64, arguments) == Ok(len) }
}

/// Puts a copy of the page in the place of a page of text, in which these bytes are others. `false`: it is as it was.
fn replace(address: usize, bytes: &[u8]) -> bool {
    let (page, offset) = (address / PAGE * PAGE, address % PAGE);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let Ok(copy) = raw::map(PAGE, protection, flags, -1) else {
        return false;
    };
    let executable = (libc::PROT_READ | libc::PROT_EXEC) as usize;
    let moving = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    // SAFETY: `copy` is a page of ours, and the page of text is mapped and can be read (it was, by the caller, who has also
    // found that the bytes are within one page). It is replaced whole, by one that means the same; see `write`.
    unsafe {
        core::ptr::copy_nonoverlapping(page as *const u8, copy as *mut u8, PAGE);
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), (copy + offset) as *mut u8, bytes.len());
        let is_done = raw::call(Sysno::mprotect, [copy, PAGE, executable, 0, 0, 0]).is_ok()
            && raw::call(Sysno::mremap, [copy, PAGE, PAGE, moving, page, 0]).is_ok();
        if !is_done {
            let _ = raw::call(Sysno::munmap, [copy, PAGE, 0, 0, 0, 0]);
        }
        is_done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: u32 = 12;
    const AT: usize = 30;

    fn text() -> Vec<u8> {
        let mut text = vec![0x90; 100];
        text[AT..AT + SITE].copy_from_slice(&site_bytes(NUMBER));
        text
    }

    #[test]
    fn a_system_call_is_found_by_its_number() {
        assert_eq!(find_site(&text(), NUMBER), Some(AT));
        assert_eq!(find_site(&text(), NUMBER + 1), None);
        // Cut off.
        assert_eq!(find_site(&text()[..AT + SITE - 1], NUMBER), None);
    }

    #[test]
    fn of_two_none_is_meant() {
        let mut text = text();
        text[60..60 + SITE].copy_from_slice(&site_bytes(NUMBER));
        assert_eq!(find_site(&text, NUMBER), None);
    }

    #[test]
    fn what_is_jumped_into_stays_as_it_is() {
        // To the first byte, or behind the last, is no harm.
        for (to, expected) in [(0, Some(AT)), (1, None), (6, None), (7, Some(AT))] {
            let by = |from: usize| (AT + to) as i32 - from as i32;
            let [near, back] = [by(20 + 2), by(60 + 2)];
            let mut text = text();
            text[20..22].copy_from_slice(&[0xeb, near as u8]);
            assert_eq!(find_site(&text, NUMBER), expected, "short, to {to}");
            text[20..22].fill(0x90);
            text[60..62].copy_from_slice(&[0x74, back as u8]);
            assert_eq!(
                find_site(&text, NUMBER),
                expected,
                "short and back, to {to}"
            );
            text[60..62].copy_from_slice(&[0x0f, 0x84]);
            text[62..66].copy_from_slice(&by(66).to_le_bytes());
            assert_eq!(find_site(&text, NUMBER), expected, "far, to {to}");
        }
    }

    #[test]
    fn a_jump_is_relative_to_what_follows_it() {
        let jump = jump_to(0x1000, 0x2005).unwrap();
        assert_eq!(jump, [0xe9, 0, 0x10, 0, 0, 0x66, 0x90]);
        assert_eq!(jump_to(0x1000, 0x1000 + (1 << 32)), None);
        // In two pages.
        assert_eq!(jump_to(0x1ffc, 0x2005), None);
    }

    #[test]
    fn a_page_of_text_is_replaced_by_one_with_other_bytes() {
        let (readable, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        let text = raw::map(2 * PAGE, readable, flags, -1).unwrap();
        // mov $1,%eax; ret, at the end of the first page and again behind it.
        let code = [0xb8, 1, 0, 0, 0, 0xc3];
        let at = text + PAGE - code.len();
        // SAFETY: two pages of the test's own, which are made executable with the code in them.
        let (first, second) = unsafe {
            core::ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, code.len());
            core::ptr::copy_nonoverlapping(code.as_ptr(), (text + PAGE) as *mut u8, code.len());
            let executable = (libc::PROT_READ | libc::PROT_EXEC) as usize;
            raw::call(Sysno::mprotect, [text, 2 * PAGE, executable, 0, 0, 0]).unwrap();
            let function = |at| core::mem::transmute::<usize, extern "C" fn() -> i32>(at);
            (function(at), function(text + PAGE))
        };
        assert_eq!((first(), second()), (1, 1));
        assert!(replace(at + 1, &7i32.to_le_bytes()));
        assert_eq!((first(), second()), (7, 1));
    }
}
