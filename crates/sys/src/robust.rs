//! The robust locks that a thread holds: those that the kernel marks when it ends, so that others do not wait for ever.
//!
//! The kernel walks the thread's list then (`exit_robust_list`), and waits for no page that is away: it gives up, and the
//! locks are never marked. So no page of memory that others share may be away as long as one of these lies in it.

use crate::memory_file::MemoryFile;
use crate::one_page::OnePage;
use crate::procfs::Pid;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

const PAGE: usize = pleat_wire::PAGE;

/// What the kernel walks at most (`ROBUST_LIST_LIMIT`).
const LOCKS_MAX: usize = 2048;
/// The lowest bit of an address tells of a lock with inherited priority.
const ADDRESS: u64 = !1;

/// What a thread holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RobustLocks {
    /// Addresses of its memory that the kernel would touch: of each lock its place in the list and its word, and both of the
    /// one that is just being taken or given up.
    pub addresses: Vec<u64>,
    /// Where the list begins, of which the kernel was told: it walks it when the thread ends, and forgets it. 0: there is none.
    pub head: u64,
    /// The list has been seen to its end. Else the thread was changing it, or it is broken: there may be more.
    pub is_whole: bool,
}

/// What the kernel was told of: `struct robust_list_head`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Head {
    first: u64,
    /// From an entry to the lock's word.
    to_word: i64,
    pending: u64,
}

/// The locks of a thread of a process. Memory of the process that is away is waited for, so it is asked of each address
/// whether that may be read; if not, the list is not whole.
///
/// # Errors
/// ESRCH when the thread is gone; EPERM when it may not be traced.
pub fn robust_locks(
    process: Pid,
    thread: Pid,
    may_read: &mut dyn FnMut(u64) -> bool,
) -> io::Result<RobustLocks> {
    let (mut at, mut bytes) = (0u64, 0usize);
    // SAFETY: two words that the kernel writes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_robust_list,
            thread,
            &raw mut at,
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = RobustLocks {
        is_whole: at == 0,
        head: at,
        ..RobustLocks::default()
    };
    if at == 0 {
        return Ok(found);
    }
    if !may_read(at) {
        return Ok(found);
    }
    let head = read(process, at, [0; 3])?;
    let head = Head {
        first: head[0],
        to_word: head[1] as i64,
        pending: head[2],
    };
    found.note(&head, head.pending);
    let mut entry = head.first & ADDRESS;
    for _ in 0..LOCKS_MAX {
        if entry == at || entry == 0 {
            break;
        }
        found.note(&head, entry);
        if !may_read(entry) {
            return Ok(found);
        }
        match read(process, entry, [0; 1]) {
            Ok([next]) => entry = next & ADDRESS,
            Err(_) => break,
        }
    }
    found.is_whole = entry == at;
    Ok(found)
}

impl RobustLocks {
    fn note(&mut self, head: &Head, entry: u64) {
        let entry = entry & ADDRESS;
        if entry != 0 {
            let word = entry.wrapping_add_signed(head.to_word);
            self.addresses.extend([entry, word]);
        }
    }
}

/// Kind of a lock that several processes may have, as the GNU C library keeps it, and which the kernel is told of.
const KIND_ROBUST: u32 = 16;
const KIND_SHARED: u32 = 128;
/// Words of that C library's lock: the lock, how often its owner has it, the owner, how many use it, the kind.
const LOCK_WORDS: usize = 5;
const WORD: usize = size_of::<u32>();

/// Where the robust locks in a page lie which one of these threads has: `threads` by the numbers that they have for themselves.
///
/// Only locks of the GNU C library are known by their looks: owner and kind lie behind the word.
pub fn locks_of(page: &[u8], threads: &[Pid]) -> Vec<usize> {
    let word = |at: usize| {
        let bytes = page[at..].first_chunk();
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    };
    let is_of_one = |at: &usize| {
        let owner = word(*at) & libc::FUTEX_TID_MASK;
        let kind = word(at + 4 * WORD);
        let is_robust = kind & KIND_ROBUST != 0 && kind & KIND_SHARED != 0;
        is_robust && word(at + 2 * WORD) == owner && threads.contains(&(owner as Pid))
    };
    let ends = page.len().saturating_sub((LOCK_WORDS - 1) * WORD);
    (0..ends).step_by(WORD).filter(is_of_one).collect()
}

/// Marks the robust locks in a page of shared memory which these threads had when they ended, as the kernel does for who ends
/// (`handle_futex_death`), and wakes who waits for them; answers how many. The page is there.
///
/// # Errors
/// Of the kernel: there is no room for a mapping.
pub fn mark_orphans(memory: &MemoryFile, offset: u64, threads: &[Pid]) -> io::Result<usize> {
    let page = OnePage::of_file(memory, offset)?;
    let mut bytes = vec![0; PAGE];
    let read = memory.read(offset, &mut bytes);
    let mut marked = 0;
    for word in locks_of(&bytes, threads) {
        // SAFETY: within the page, aligned; others use it atomically, too.
        let word = unsafe { AtomicU32::from_ptr(page.start().cast::<u8>().add(word).cast()) };
        let orphaned = |value: u32| {
            let owner = (value & libc::FUTEX_TID_MASK) as Pid;
            let is_orphan = owner != 0 && threads.contains(&owner);
            is_orphan.then_some(value & libc::FUTEX_WAITERS | libc::FUTEX_OWNER_DIED)
        };
        if word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, orphaned)
            .is_ok()
        {
            marked += 1;
            // SAFETY: the kernel looks up whose word it is, and who waits for that.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
        }
    }
    read.map(|()| marked)
}

fn read<const N: usize>(process: Pid, at: u64, mut words: [u64; N]) -> io::Result<[u64; N]> {
    let here = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: size_of_val(&words),
    };
    let there = libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: here.iov_len,
    };
    // SAFETY: the kernel writes to `words`, at most its size; the other address is looked up in the other process.
    match unsafe { libc::process_vm_readv(process, &here, 1, &there, 1, 0) } {
        -1 => Err(io::Error::last_os_error()),
        got if got as usize == size_of_val(&words) => Ok(words),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::own_thread;
    use std::mem::MaybeUninit;

    /// Two robust mutexes that do not move.
    fn mutexes() -> Box<[MaybeUninit<libc::pthread_mutex_t>; 2]> {
        let mut mutexes = Box::new([MaybeUninit::uninit(); 2]);
        let mut kind = MaybeUninit::uninit();
        // SAFETY: each is made before it is used, by the functions that are there for it.
        unsafe {
            libc::pthread_mutexattr_init(kind.as_mut_ptr());
            libc::pthread_mutexattr_setrobust(kind.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST);
            for mutex in mutexes.iter_mut() {
                assert_eq!(
                    libc::pthread_mutex_init(mutex.as_mut_ptr(), kind.as_ptr()),
                    0
                );
            }
        }
        mutexes
    }

    fn own_locks() -> RobustLocks {
        robust_locks(std::process::id() as Pid, own_thread(), &mut |_| true).unwrap()
    }

    /// How many of the addresses are in the mutex.
    fn addresses_in(locks: &RobustLocks, mutex: &MaybeUninit<libc::pthread_mutex_t>) -> usize {
        let start = mutex.as_ptr() as u64;
        let range = start..start + size_of::<libc::pthread_mutex_t>() as u64;
        let is_in = |at: &&u64| range.contains(at);
        locks.addresses.iter().filter(is_in).count()
    }

    #[test]
    fn locks_that_are_held_are_found_and_others_are_not() {
        let mut mutexes = mutexes();
        assert_eq!(own_locks().addresses, [0; 0]);
        for held in 1..=2 {
            let mutex = mutexes[held - 1].as_mut_ptr();
            // SAFETY: initialised, and not locked by anybody.
            let error = unsafe { libc::pthread_mutex_lock(mutex) };
            assert_eq!(error, 0);
            let locks = own_locks();
            assert!(locks.is_whole);
            let found = mutexes.each_ref().map(|mutex| addresses_in(&locks, mutex));
            assert_eq!(found, if held == 1 { [2, 0] } else { [2, 2] });
        }
        for mutex in mutexes.iter_mut() {
            // SAFETY: locked by this thread.
            assert_eq!(unsafe { libc::pthread_mutex_unlock(mutex.as_mut_ptr()) }, 0);
        }
        let none = own_locks();
        assert!(none.is_whole && none.head != 0 && none.addresses.is_empty());
    }

    #[test]
    fn a_thread_that_is_gone_has_none_to_tell_of() {
        let thread = std::thread::spawn(own_thread).join().unwrap();
        let gone = robust_locks(std::process::id() as Pid, thread, &mut |_| true);
        // The kernel may not have taken its number back yet; then it is a thread without a list.
        assert!(gone.is_err() || gone.is_ok_and(|locks| locks.addresses.is_empty()));
    }

    #[test]
    fn a_list_that_may_not_be_read_is_not_whole() {
        let locks = robust_locks(std::process::id() as Pid, own_thread(), &mut |_| false);
        assert!(!locks.unwrap().is_whole);
    }

    #[test]
    fn locks_of_threads_that_have_ended_are_marked_and_others_are_not() {
        let mut kind = MaybeUninit::uninit();
        let mut mutexes = [const { MaybeUninit::<libc::pthread_mutex_t>::zeroed() }; 2];
        // SAFETY: each is made before it is used, locked here and not given back: nobody waits for it.
        unsafe {
            libc::pthread_mutexattr_init(kind.as_mut_ptr());
            libc::pthread_mutexattr_setrobust(kind.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST);
            let shared = libc::PTHREAD_PROCESS_SHARED;
            libc::pthread_mutexattr_setpshared(kind.as_mut_ptr(), shared);
            for mutex in &mut mutexes {
                libc::pthread_mutex_init(mutex.as_mut_ptr(), kind.as_ptr());
            }
            libc::pthread_mutex_lock(mutexes[1].as_mut_ptr());
        }
        let memory = MemoryFile::new("locks", PAGE as u64).unwrap();
        let len = size_of_val(&mutexes);
        // SAFETY: as many bytes, all of them initialised.
        let bytes = unsafe { std::slice::from_raw_parts(mutexes.as_ptr().cast::<u8>(), len) };
        memory.write(0, bytes).unwrap();
        // SAFETY: locked by this thread.
        unsafe { libc::pthread_mutex_unlock(mutexes[1].as_mut_ptr()) };
        let at = size_of::<libc::pthread_mutex_t>();
        let mut page = vec![0; PAGE];
        memory.read(0, &mut page).unwrap();
        assert_eq!(locks_of(&page, &[1]), [0; 0]);
        assert_eq!(locks_of(&page, &[1, own_thread()]), [at]);
        assert_eq!(mark_orphans(&memory, 0, &[1]).unwrap(), 0);
        assert_eq!(mark_orphans(&memory, 0, &[1, own_thread()]).unwrap(), 1);
        memory.read(0, &mut page).unwrap();
        let word = u32::from_ne_bytes(*page[at..].first_chunk().unwrap());
        assert_eq!(word, libc::FUTEX_OWNER_DIED);
        assert_eq!(mark_orphans(&memory, 0, &[own_thread()]).unwrap(), 0);
    }

    #[test]
    fn a_list_that_does_not_end_is_not_whole() {
        // A thread of its own, whose list is put back before it ends.
        let list = || {
            let (mut at, mut bytes) = (0usize, 0usize);
            let cell = Box::into_raw(Box::new(0u64));
            // SAFETY: a cell of this thread's, which lives until the end; the list is the kernel's to look at when the thread
            // ends only, and is put back before.
            unsafe {
                // It follows itself.
                *cell = cell as u64;
                let mut head = Head {
                    first: cell as u64,
                    ..Head::default()
                };
                libc::syscall(libc::SYS_get_robust_list, 0, &raw mut at, &raw mut bytes);
                libc::syscall(libc::SYS_set_robust_list, &raw mut head, size_of::<Head>());
                let locks = own_locks();
                libc::syscall(libc::SYS_set_robust_list, at, bytes);
                drop(Box::from_raw(cell));
                locks
            }
        };
        let locks = std::thread::spawn(list).join().unwrap();
        assert!(!locks.is_whole);
        assert_eq!(locks.addresses.len(), 2 * LOCKS_MAX);
    }
}
