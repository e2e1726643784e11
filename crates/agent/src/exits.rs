//! What the kernel writes when a thread ends, besides into its control block (`threads`): the locks of its robust list,
//! and the word of `clear_child_tid` of a thread that was made past pthread_create.
//!
//! The kernel raises no userfault for a thread that ends, so those pages must be there, and writable, by then, and stay.
//! Where the word is, is known when it is chosen: `clone` here, `syscall` in `direct`. Which locks are held is known at
//! the end: each thread has a value of its own under a key of the C library's (pthread_key_create), whose destructor
//! runs when it ends, by whatever of return, pthread_exit and cancellation; exit(2) by `syscall` comes by here, too.
//!
//! Not met: a thread that ends by an instruction of the program's own, or is killed alone, by a seccomp filter.

use crate::{area, filters, interpose, raw, serve, symbols, threads};
use core::arch::naked_asm;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use pleat_wire::PAGE;
use syscalls::Sysno;

/// As many entries of a list the kernel looks at (ROBUST_LIST_LIMIT).
const ENTRIES_MAX: usize = 2048;
/// So often the C library runs destructors for a thread (PTHREAD_DESTRUCTOR_ITERATIONS). Ours runs each time, for the others'
/// may take locks.
const ROUNDS: usize = 4;
/// Values under the first keys need no memory of their own.
const KEYS_MAX: u32 = 32;
const NO_KEY: u32 = u32::MAX;

static KEY: AtomicU32 = AtomicU32::new(NO_KEY);

/// As the kernel's `struct robust_list_head`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Head {
    first: usize,
    /// From an entry to its lock.
    offset: usize,
    /// An entry on its way into the list or out of it.
    pending: usize,
}

/// Has the ends of threads met. By the constructor.
pub fn begin() {
    if let Some(key) = symbols::make_key(on_end).filter(|key| *key < KEYS_MAX) {
        KEY.store(key, Ordering::Release);
    }
}

/// Has the end of the calling thread met.
pub fn watch_current() {
    arm(ROUNDS);
}

fn arm(rounds: usize) {
    let key = KEY.load(Ordering::Acquire);
    if key != NO_KEY {
        symbols::set_value(key, rounds as *const c_void);
    }
}

extern "C" fn on_end(rounds: *mut c_void) {
    before_exit();
    // The C library has set it to null.
    if rounds as usize > 1 {
        arm(rounds as usize - 1);
    }
}

/// Has the locks that this thread still holds stay in memory.
pub fn before_exit() {
    if !area::is_managed() {
        return;
    }
    let (mut head, mut length) = (0usize, 0usize);
    let (head_at, length_at) = ((&raw mut head) as usize, (&raw mut length) as usize);
    // SAFETY: two words that the kernel writes; 0 is this thread.
    let asked = unsafe { raw::call(Sysno::get_robust_list, [0, head_at, length_at, 0, 0, 0]) };
    if asked.is_err() || head == 0 || !stay(head, core::mem::size_of::<Head>()) {
        return;
    }
    // SAFETY: it was found writable just now, and is this thread's, which is here.
    let list = unsafe { (head as *const Head).read_volatile() };
    keep_lock(list.pending, list.offset);
    let mut entry = list.first;
    for _ in 0..ENTRIES_MAX {
        // Its lowest bit tells one kind of lock from another.
        if entry & !1 == head || !keep_lock(entry, list.offset) {
            return;
        }
        // SAFETY: as above; nobody else changes the list of a thread.
        entry = unsafe { ((entry & !1) as *const usize).read_volatile() };
    }
}

/// Has an entry and its lock stay. `false` where there is none.
fn keep_lock(entry: usize, offset: usize) -> bool {
    let entry = entry & !1;
    entry != 0
        && stay(entry, core::mem::size_of::<usize>())
        && stay(entry.wrapping_add(offset), core::mem::size_of::<u32>())
}

/// Has memory stay from now on, and be there and writable. `false`: it is no such memory.
pub fn stay(address: usize, len: usize) -> bool {
    let Some(last) = address.checked_add(len - 1) else {
        return false;
    };
    threads::protect(address, len);
    serve::let_moves_end();
    let start = address / PAGE * PAGE;
    let whole = (last / PAGE + 1) * PAGE - start;
    // Unlike a write of our own it waits for what is away, and fails where there is nothing.
    // SAFETY: no content changes.
    unsafe { raw::advise(start, whole, libc::MADV_POPULATE_WRITE) }.is_ok()
}

/// A system call that `syscall` is about to make; see there for which.
pub extern "C" fn note_call(number: i64, arguments: &[usize; 5]) {
    match number {
        libc::SYS_clone => note_clone(arguments[0], arguments[3]),
        libc::SYS_set_tid_address => note(arguments[0], core::mem::size_of::<u32>()),
        libc::SYS_set_robust_list => note(arguments[0], core::mem::size_of::<Head>()),
        libc::SYS_exit => before_exit(),
        libc::SYS_prctl => filters::before_prctl(arguments[0]),
        libc::SYS_ptrace => filters::before_ptrace(arguments[0]),
        libc::SYS_seccomp => filters::before_seccomp(arguments[0], arguments[1]),
        libc::SYS_clone3 => {
            // `struct clone_args` begins with the flags, a place for a descriptor, and that of the word.
            let (start, len) = (arguments[0] as *const [usize; 3], arguments[1]);
            if !start.is_null() && len >= core::mem::size_of::<[usize; 3]>() {
                // SAFETY: the program's, which the kernel reads next.
                let [flags, _, word] = unsafe { start.read_unaligned() };
                note_clone(flags, word);
            }
        }
        _ => {}
    }
}

/// With these flags the kernel clears the word when the new thread ends; without, the word means nothing.
fn note_clone(flags: usize, word: usize) {
    if flags & libc::CLONE_CHILD_CLEARTID as usize != 0 {
        note(word, core::mem::size_of::<u32>());
    }
}

fn note(address: usize, len: usize) {
    if address != 0 {
        threads::protect(address, len);
    }
}

/// As the C library's, with the page noted that the kernel writes to when the thread ends.
///
/// # Safety
/// As for the C library's.
#[no_mangle]
#[unsafe(naked)]
pub unsafe extern "C" fn clone() {
    // Six arguments in registers and a seventh, the word, behind the return address.
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "mov rdi, [rsp + 64]",
        "mov esi, edx",
        "call {get_ready}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "mov edi, {no_call}",
        "jmp {fail}",
        get_ready = sym get_ready_to_clone,
        no_call = const libc::ENOSYS,
        fail = sym interpose::fail,
    )
}

/// Answers where the C library's function is; 0 where there is none.
extern "C" fn get_ready_to_clone(word: usize, flags: usize) -> usize {
    note_clone(flags, word);
    symbols::CLONE.address()
}
