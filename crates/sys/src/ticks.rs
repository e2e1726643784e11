//! The clock that supervisor and agents have in common for profiles (`pleat_wire::message::TakeTimes`):
//! reading it takes no C library, which an agent has not. And what else only profiles ask the time of.

/// The time now, in ticks of unknown length since an unknown moment.
#[cfg(target_arch = "x86_64")]
#[must_use]
pub fn ticks() -> u64 {
    // SAFETY: every CPU of this architecture has the instruction, and Linux lets anybody use it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The time now, in ticks of unknown length since an unknown moment: nanoseconds, here.
#[cfg(not(target_arch = "x86_64"))]
#[must_use]
pub fn ticks() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CPU time that the calling thread has used, in nanoseconds. A system call: 0.1 to 0.2 us.
#[must_use]
pub fn own_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure outlives the call.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on() {
        let before = ticks();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(ticks() > before);
    }

    #[test]
    fn a_thread_that_sleeps_uses_no_cpu_time() {
        let before = own_cpu_ns();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(own_cpu_ns() - before < 10_000_000);
    }
}
