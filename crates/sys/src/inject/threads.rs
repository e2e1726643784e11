//! The threads of another process: which is to be stopped, and what the kernel writes to when one ends.

use crate::procfs::state_letter;
use std::fs;

/// System calls that fail with EINTR when their thread was stopped, instead of going on: see signal(7).
const NOT_GOING_ON: [i64; 10] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
    libc::SYS_futex_waitv,
    libc::SYS_msgrcv,
];
/// Bytes before and behind the head of a robust list that may belong to the thread's control block: glibc's has the thread's
/// number before it and its rseq area behind.
const BEFORE_HEAD: u64 = 1024;
const BLOCK: u64 = 4096;

/// How little a thread is disturbed by being stopped: the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disturbance {
    /// It runs, or waits for a CPU.
    None,
    /// It is in a system call that goes on afterwards.
    GoesOn,
    /// It waits for what signals do not end: a disk, memory, or a child made by vfork.
    Waits,
    /// The system call fails with EINTR.
    Fails,
}

/// The threads of a process, by number. None where it is gone.
pub fn of(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let entries = entries.into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// How much it would disturb each thread of a process to be stopped, the least first. Not among them are those that are
/// stopped, or have ended.
pub fn disturbances(pid: i32) -> Vec<(Disturbance, i32)> {
    let found = of(pid).into_iter().filter_map(|tid| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
        match state_letter(tid)? {
            b'R' | b'S' => Some((disturbance(&text)?, tid)),
            b'D' => Some((Disturbance::Waits, tid)),
            _ => None,
        }
    });
    let mut found: Vec<_> = found.collect();
    found.sort_unstable();
    found
}

fn disturbance(text: &str) -> Option<Disturbance> {
    let first = text.split_whitespace().next()?;
    if first == "running" {
        return Some(Disturbance::None);
    }
    let number: i64 = first.parse().ok()?;
    Some(match number {
        // Asleep in the kernel without a call: in a page fault.
        ..0 => Disturbance::None,
        number if NOT_GOING_ON.contains(&number) => Disturbance::Fails,
        _ => Disturbance::GoesOn,
    })
}

/// Where a thread's control block is, as far as its robust list tells: address and bytes.
pub fn control_block(tid: i32) -> Option<(u64, u64)> {
    let (mut head, mut len) = (0u64, 0usize);
    // SAFETY: two words that the kernel writes.
    let result =
        unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut len) };
    let start = head.checked_sub(BEFORE_HEAD)?;
    (result == 0).then_some((start, BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_would_notice_comes_last() {
        assert_eq!(disturbance("running\n"), Some(Disturbance::None));
        assert_eq!(disturbance("-1 0x7ffe 0x4010\n"), Some(Disturbance::None));
        assert_eq!(
            disturbance("202 0x1 0x80 0x0 0x0 0x0 0x0 0x7ffe 0x4010"),
            Some(Disturbance::GoesOn)
        );
        assert_eq!(
            disturbance("232 0x3 0x7f 0x400 0xffff 0x0 0x8 0x7ffe 0x4010"),
            Some(Disturbance::Fails)
        );
        assert!(
            Disturbance::None < Disturbance::GoesOn && Disturbance::GoesOn < Disturbance::Fails
        );
    }

    #[test]
    fn this_thread_has_a_control_block_where_the_c_library_keeps_it() {
        let tid = crate::process::own_thread();
        let word = std::cell::Cell::new(0);
        let (start, len) = control_block(tid).unwrap();
        assert!(start > 4096 && len == BLOCK, "{start:x} {:p}", &word);
        assert!(of(std::process::id() as i32).contains(&tid));
    }
}
