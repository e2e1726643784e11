//! A thread of another process, stopped by ptrace(2), that is made to do system calls.
//!
//! The kernel's rules, as far as they matter here:
//!
//! - Who traces is a thread, and all that it traces is let go when it ends, in whatever state. So each tracing is the work
//!   of a thread of its own, which ends.
//! - PTRACE_SEIZE stops nothing; PTRACE_INTERRUPT stops the thread where it would handle a signal. A system call that it was in
//!   has been left by then with one of the kernel's own error numbers, and is begun again (or goes on) when the thread runs
//!   with the same registers *from such a stop*; some calls do not know that, and fail with EINTR (signal(7)).
//! - Registers are set at a stop before or behind a system call (PTRACE_SYSCALL), too, but from there nothing is begun again.
//!   So the last stop is one by PTRACE_INTERRUPT once more.
//! - SIGSTOP cannot be blocked: whoever stops and continues the process stops and continues its threads amid a call of ours, too. They
//!   tell of that and are resumed as they were, up to the call: the call is done, and the thread stands still with its process as soon as it
//!   is let go, for the kernel has not forgotten that. A call that sees such a signal coming may end with one of the kernel's own error
//!   numbers, clone(2) above all, and is done again.
//! - A thread that is let go with our registers runs into whatever comes behind the `syscall` instruction. So from the first call to the
//!   release nothing but its end ends the waiting, not even a freezer.
//! - Where the kernel stops a thread amid a restartable sequence (rseq(2)), it leads it to the abort handler when it goes back to
//!   user mode, but only if the registers are still in the sequence. They are not, while it does system calls for us: so that is
//!   done here.

use super::memory;
use crate::procfs::{state_letter, waits_for_cpu};
use std::io;
use std::time::{Duration, Instant};

/// How long a thread may take to stop: one that waits for a disk does not.
const STOP_MAX: Duration = Duration::from_millis(100);
/// And one that has no CPU, which it must have to stop.
const STARVED_MAX: Duration = Duration::from_secs(3);
/// It is looked whether it is still there when it has not stopped for so long.
const GONE_FROM: Duration = Duration::from_micros(500);
/// It is looked for the next stop at least so often, and where that takes long less often: after each tenth of the time that it has taken, but not less
/// often than the second of these says.
const LOOK_PAUSE: Duration = Duration::from_millis(1);
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(50);
/// Results of system calls that are to be done again: `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK`.
const RESTARTS: [i64; 4] = [-512, -513, -514, -516];
/// `__WNOTHREAD`: of what other threads of ours wait for nothing is heard.
pub const OWN_CHILDREN: i32 = 0x2000_0000;
/// The code segment of 64-bit programs.
const CODE_64: u64 = 0x33;
/// No system call is under way.
const NO_CALL: u64 = u64::MAX;

/// Why a thread could not be traced, or not any more.
#[derive(Debug)]
pub enum TraceError {
    /// It has ended, or executes another program.
    Gone,
    /// The kernel refuses it.
    Refused(io::Error),
    /// It does not stop, or is stopped by its user.
    Busy,
    /// It is not a program of 64 bits.
    Foreign,
    /// Its system calls go elsewhere (prctl(2), PR_SET_SYSCALL_USER_DISPATCH).
    Dispatched,
}

/// A stopped thread. Dropped, it stays as it is until the calling thread ends.
pub struct Tracee {
    tid: i32,
    /// With these it goes on.
    registers: libc::user_regs_struct,
    /// Those that it has blocked.
    signals: u64,
}

fn request(kind: u32, tid: i32, address: usize, data: usize) -> Result<i64, TraceError> {
    // SAFETY: with these requests the kernel reads or writes only what the caller passes a valid pointer to in `data`.
    let result = unsafe { libc::ptrace(kind, tid, address, data) };
    match result {
        -1 => Err(error()),
        value => Ok(value),
    }
}

fn error() -> TraceError {
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ESRCH) => TraceError::Gone,
        _ => TraceError::Refused(error),
    }
}

/// Traces a thread if that is allowed, and does not stop it. The calling thread ends soon after.
///
/// # Errors
/// Why it may not be.
pub fn try_to_trace(tid: i32) -> Result<(), TraceError> {
    request(libc::PTRACE_SEIZE, tid, 0, 0).map(|_| ())
}

/// How a thread stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// By PTRACE_INTERRUPT.
    Interrupted,
    /// With its whole process, by a signal of its user's.
    Job,
    /// Before or behind a system call.
    Call,
    /// It is about to get this signal.
    Signal(i32),
}

/// By a signal, and an event above that.
fn stop_of(status: i32) -> Stop {
    let signal = status & 0xff;
    match status >> 8 {
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Stop::Interrupted,
        libc::PTRACE_EVENT_STOP => Stop::Job,
        _ if signal == libc::SIGTRAP | 0x80 => Stop::Call,
        _ => Stop::Signal(signal),
    }
}

fn has_ended(tid: i32) -> bool {
    matches!(state_letter(tid), None | Some(b'Z' | b'X' | b'x'))
}

impl Tracee {
    /// Traces a thread and stops it. The calling thread ends soon after, whatever comes of it.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn stop(tid: i32) -> Result<Tracee, TraceError> {
        let options = libc::PTRACE_O_TRACESYSGOOD as usize;
        request(libc::PTRACE_SEIZE, tid, 0, options)?;
        request(libc::PTRACE_INTERRUPT, tid, 0, 0)?;
        let mut tracee = Tracee {
            tid,
            // SAFETY: plain numbers.
            registers: unsafe { std::mem::zeroed() },
            signals: 0,
        };
        tracee.reach_first_stop()?;
        tracee.registers = tracee.read_registers()?;
        if tracee.registers.cs != CODE_64 {
            return Err(tracee.give_up(TraceError::Foreign));
        }
        if tracee.is_dispatched() {
            return Err(tracee.give_up(TraceError::Dispatched));
        }
        // Before it does anything else: the kernel forgets then.
        if let Some(abort) = tracee.abort_of_sequence() {
            tracee.registers.rip = abort;
        }
        let pointer = (&raw mut tracee.signals) as usize;
        request(libc::PTRACE_GETSIGMASK, tid, 8, pointer)?;
        tracee.set_signals(u64::MAX)?;
        Ok(tracee)
    }

    fn give_up(&self, why: TraceError) -> TraceError {
        let _ = request(libc::PTRACE_DETACH, self.tid, 0, 0);
        why
    }

    /// Has the thread do a system call by the `syscall` instruction at `place`; answers its result, which may be an errno,
    /// negative.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn call(&self, place: u64, number: i64, a: [u64; 6]) -> Result<i64, TraceError> {
        loop {
            let result = self.call_once(place, number, a)?;
            if !RESTARTS.contains(&result) {
                return Ok(result);
            }
        }
    }

    fn call_once(&self, place: u64, number: i64, a: [u64; 6]) -> Result<i64, TraceError> {
        let mut registers = self.registers;
        registers.rip = place;
        registers.rax = number as u64;
        registers.orig_rax = NO_CALL;
        [registers.rdi, registers.rsi, registers.rdx] = [a[0], a[1], a[2]];
        [registers.r10, registers.r8, registers.r9] = [a[3], a[4], a[5]];
        self.write_registers(&registers)?;
        for _ in 0..2 {
            self.run(libc::PTRACE_SYSCALL, |stop| stop == Stop::Call)?;
        }
        Ok(self.read_registers()?.rax as i64)
    }

    /// Lets the thread go on where it was.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn release(self) -> Result<(), TraceError> {
        self.write_registers(&self.registers)?;
        request(libc::PTRACE_INTERRUPT, self.tid, 0, 0)?;
        // Where its process is being stopped, that takes the other's place, and system calls are begun again from there as well.
        self.run(libc::PTRACE_CONT, |stop| {
            matches!(stop, Stop::Interrupted | Stop::Job)
        })?;
        self.set_signals(self.signals)?;
        request(libc::PTRACE_DETACH, self.tid, 0, 0).map(|_| ())
    }

    /// Waits for the stop by PTRACE_INTERRUPT. Signals that come before are the thread's.
    fn reach_first_stop(&self) -> Result<(), TraceError> {
        let start = Instant::now();
        let is_late = || {
            let elapsed = start.elapsed();
            elapsed > STOP_MAX && (elapsed > STARVED_MAX || !waits_for_cpu(self.tid))
        };
        loop {
            match self.next_stop(is_late)? {
                Stop::Interrupted => return Ok(()),
                Stop::Job => return Err(self.give_up(TraceError::Busy)),
                stop => self.resume(libc::PTRACE_CONT, stop)?,
            }
        }
    }

    /// Runs up to a stop, by PTRACE_CONT or PTRACE_SYSCALL, and past all others by the same.
    fn run(&self, how: u32, is_wanted: impl Fn(Stop) -> bool) -> Result<(), TraceError> {
        request(how, self.tid, 0, 0)?;
        loop {
            match self.next_stop(|| false)? {
                stop if is_wanted(stop) => return Ok(()),
                stop => self.resume(how, stop)?,
            }
        }
    }

    /// Goes on from a stop, with the signal that it tells of.
    fn resume(&self, how: u32, stop: Stop) -> Result<(), TraceError> {
        let signal = match stop {
            Stop::Signal(signal) => signal,
            _ => 0,
        };
        request(how, self.tid, 0, signal as usize).map(|_| ())
    }

    /// Looks until it is stopped: ever less often, for most do it within microseconds.
    fn next_stop(&self, is_late: impl Fn() -> bool) -> Result<Stop, TraceError> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(5);
        loop {
            if let Some(stop) = self.heard()? {
                return Ok(stop);
            }
            if pause > GONE_FROM && has_ended(self.tid) {
                return Err(TraceError::Gone);
            }
            if is_late() {
                return Err(TraceError::Busy);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min((start.elapsed() / 10).clamp(LOOK_PAUSE, LOOK_PAUSE_MAX));
        }
    }

    /// The stop that the kernel tells of, if it does. Not of the thread's end: the first thread of a child of this process is
    /// heard of once, and not here.
    fn heard(&self) -> Result<Option<Stop>, TraceError> {
        const OPTIONS: i32 = libc::__WALL | OWN_CHILDREN | libc::WNOHANG | libc::WSTOPPED;
        let id = self.tid as libc::id_t;
        // SAFETY: the structure is plain data, and valid for the call.
        let (result, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::waitid(libc::P_PID, id, &mut info, OPTIONS), info)
        };
        if result != 0 {
            return Err(TraceError::Gone);
        }
        // SAFETY: what waitid has filled in, or zeros.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        Ok((pid == self.tid).then(|| stop_of(status)))
    }

    fn read_registers(&self) -> Result<libc::user_regs_struct, TraceError> {
        // SAFETY: plain numbers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let pointer = (&raw mut registers) as usize;
        request(libc::PTRACE_GETREGS, self.tid, 0, pointer)?;
        Ok(registers)
    }

    fn write_registers(&self, registers: &libc::user_regs_struct) -> Result<(), TraceError> {
        let pointer = core::ptr::from_ref(registers) as usize;
        request(libc::PTRACE_SETREGS, self.tid, 0, pointer).map(|_| ())
    }

    fn set_signals(&self, signals: u64) -> Result<(), TraceError> {
        let pointer = (&raw const signals) as usize;
        request(libc::PTRACE_SETSIGMASK, self.tid, 8, pointer).map(|_| ())
    }

    /// Whether the kernel hands its system calls to the program. Where that cannot be asked (before Linux 6.4) they are not.
    fn is_dispatched(&self) -> bool {
        const GET: u32 = 0x4211; // PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG
                                 // mode, selector, offset, len
        let mut config = [0u64; 4];
        let pointer = config.as_mut_ptr() as usize;
        let asked = request(GET, self.tid, size_of_val(&config), pointer);
        asked.is_ok() && config[0] != 0
    }

    /// Where the thread is to go on if it was stopped amid a restartable sequence.
    fn abort_of_sequence(&self) -> Option<u64> {
        const GET_RSEQ: u32 = 0x420f; // PTRACE_GET_RSEQ_CONFIGURATION
                                      // address, size, signature and flags
        let mut config = [0u64; 3];
        let (size, pointer) = (size_of_val(&config), config.as_mut_ptr() as usize);
        request(GET_RSEQ, self.tid, size, pointer).ok()?;
        let read = |address: u64| {
            let mut word = [0u8; 8];
            (address != 0 && memory::read(self.tid, address, &mut word).is_ok())
                .then(|| u64::from_ne_bytes(word))
        };
        // In `struct rseq` behind two numbers of a CPU; in `struct rseq_cs` behind version and flags.
        let sequence = read(config[0].checked_add(8)?).filter(|_| config[0] != 0)?;
        let word = |nth: u64| read(sequence.checked_add(8 * nth)?).filter(|_| sequence != 0);
        let (start, len, abort) = (word(1)?, word(2)?, word(3)?);
        let is_inside = self.registers.rip.wrapping_sub(start) < len;
        is_inside.then_some(abort)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{can_trace, find_syscall};
    use super::*;
    use crate::signals;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    const ROUNDS: usize = 300;
    const CALLS: usize = 20;

    /// Has it tell its number often, if it can be stopped just now.
    fn ask(pid: i32) -> bool {
        let place = find_syscall(pid).unwrap();
        let Ok(tracee) = Tracee::stop(pid) else {
            return false;
        };
        for _ in 0..CALLS {
            let told = tracee.call(place, libc::SYS_getpid, [0; 6]);
            assert_eq!(told.unwrap(), i64::from(pid));
        }
        tracee.release().unwrap();
        true
    }

    #[test]
    fn stopped_and_continued_amid_calls_it_does_them_and_goes_on() {
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", "while :; do :; done"]).spawn().unwrap();
        let pid = child.id() as i32;
        if can_trace(pid).is_err() {
            child.kill().unwrap();
            child.wait().unwrap();
            return pleat_testing::skip("this process may not trace its children");
        }
        let is_over = AtomicBool::new(false);
        let asked = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    signals::send(pid, libc::SIGSTOP);
                    std::thread::sleep(Duration::from_micros(100));
                    signals::send(pid, libc::SIGCONT);
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            // What a thread traces is let go with it.
            let rounds = (0..ROUNDS).map(|_| scope.spawn(|| ask(pid)).join());
            let asked: Vec<_> = rounds.collect();
            is_over.store(true, Relaxed);
            asked
        });
        let is_alive = child.try_wait().unwrap().is_none();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_alive, "it must not end");
        assert!(status.contains("SigBlk:\t0000000000000000"), "{status}");
        let times = asked.into_iter().filter(|asked| *asked.as_ref().unwrap());
        assert!(times.count() > ROUNDS / 10, "it must be stopped often");
    }
}
