//! The keeper: a second process that outlives the supervisor.
//!
//! It shares the supervisor's descriptor table, so that a supervisor killed at any moment closes no
//! userfaultfd: threads of the job then wait instead of reading zeros where their memory was. Its one
//! job is to kill the job's processes when that happens, and to say so. Should it be killed along
//! with the supervisor, each process's agent does the same for its own. Processes that have no agent have lost nothing; but in a
//! cgroup of the job's own they would wait at its limit for ever, so there a third process looks after them then
//! ([`Keeper::second`]). And the keeper wakes a supervisor that was stopped with its
//! program, when that goes on.

use crate::job_group::Place;
use crate::process::{readable, Bell};
use crate::{pidfd, procfs};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

const ENTRIES: usize = 16384;
const NONE: i32 = -1;
/// Between two looks whether a program that was stopped goes on.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(20);
/// How long the keeper stays after the job's processes are killed.
const LINGER: std::time::Duration = std::time::Duration::from_millis(500);

/// Memory shared with the keeper.
struct Shared {
    /// The job has ended as it should.
    calm: AtomicBool,
    /// Descriptors that stand for the job's processes.
    processes: [AtomicI32; ENTRIES],
    /// Their process ids, in the same places.
    pids: [AtomicI32; ENTRIES],
    /// The program that the supervisor has stopped with, or is about to; 0: none.
    stopped_with: AtomicI32,
}

/// The supervisor's side of the keeper.
pub struct Keeper {
    shared: &'static Shared,
    pid: i32,
    /// Stands for it: were it killed, its number would be another process's.
    pidfd: Option<OwnedFd>,
    /// Wakes it.
    bell: Bell,
    /// Minds the job's cgroup when both are gone; 0: there is none.
    second: i32,
}

impl Keeper {
    /// Starts the keeper. To be called while the process has one thread only. It minds the job's own cgroup, too,
    /// when the supervisor does no more.
    ///
    /// # Errors
    /// When memory or a process cannot be had.
    pub fn start(group: Option<Place>) -> io::Result<Keeper> {
        let shared = map_shared()?;
        // SAFETY: getpid has no arguments.
        let supervisor = super::process::pidfd(unsafe { libc::getpid() })?;
        let bell = Bell::new()?;
        let place = group.clone();
        // SAFETY: a fork with a shared descriptor table; the child runs `watch` only, which
        // never returns.
        let pid = unsafe {
            libc::syscall(
                libc::SYS_clone,
                libc::CLONE_FILES | libc::SIGCHLD,
                0,
                0,
                0,
                0,
            ) as i32
        };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(shared, supervisor.as_raw_fd(), &bell, group.as_ref()),
            pid => {
                // The keeper watches through this descriptor for as long as we live.
                std::mem::forget(supervisor);
                let pidfd = super::process::pidfd(pid).ok();
                // Without it all is as well, but for a job both of whose keepers are killed at once.
                let second = match (&pidfd, place) {
                    (Some(keeper), Some(group)) => start_second(shared, keeper, &group),
                    _ => 0,
                };
                Ok(Keeper {
                    second,
                    shared,
                    pid,
                    pidfd,
                    bell,
                })
            }
        }
    }

    /// The keeper's process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The process that minds the job's cgroup when supervisor and keeper are gone.
    pub fn second(&self) -> Option<i32> {
        Some(self.second).filter(|pid| *pid != 0)
    }

    /// From now on the process behind `pidfd` dies with the supervisor. `false`: no room.
    pub fn add(&self, pid: i32, pidfd: RawFd) -> bool {
        let place = self.shared.processes.iter().position(|entry| {
            entry
                .compare_exchange(NONE, pidfd, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
        if let Some(place) = place {
            self.shared.pids[place].store(pid, Ordering::Release);
        }
        place.is_some()
    }

    /// To be called before `pidfd` is closed.
    pub fn remove(&self, pidfd: RawFd) {
        for entry in &self.shared.processes {
            if entry
                .compare_exchange(pidfd, NONE, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
        }
    }

    /// Stops this process, as its program has been stopped, until somebody has either go on. Who stopped the program
    /// alone will have it go on alone, and a process that is stopped sees nothing of that.
    pub fn stop_with(&self, program: i32) {
        self.shared.stopped_with.store(program, Ordering::Release);
        self.bell.ring();
        crate::signals::stop_self();
        self.shared.stopped_with.store(0, Ordering::Release);
    }

    /// The job has ended: the keeper ends quietly.
    pub fn dismiss(&self) {
        self.shared.calm.store(true, Ordering::Release);
        if self.second != 0 {
            // Our child, and not waited for: its number is its own.
            // SAFETY: plain numbers.
            unsafe { libc::kill(self.second, libc::SIGKILL) };
        }
        if let Some(pidfd) = &self.pidfd {
            super::process::signal(pidfd.as_raw_fd(), libc::SIGKILL);
        }
    }
}

fn map_shared() -> io::Result<&'static Shared> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping, zeroed by the kernel, never unmapped; all fields are atomics.
    unsafe {
        let start = libc::mmap(
            std::ptr::null_mut(),
            size_of::<Shared>(),
            protection,
            flags,
            -1,
            0,
        );
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let shared = &*start.cast::<Shared>();
        for entry in &shared.processes {
            entry.store(NONE, Ordering::Relaxed);
        }
        Ok(shared)
    }
}

/// Starts the process that minds the job's cgroup when both others are gone; 0 where that fails.
fn start_second(shared: &Shared, keeper: &OwnedFd, group: &Place) -> i32 {
    // SAFETY: getpid has no arguments; the process has one thread, so its copy may do anything. The copy runs `mind` only,
    // which never returns.
    let (supervisor, pid) = unsafe { (libc::getpid(), libc::fork()) };
    if pid != 0 {
        return pid.max(0);
    }
    // SAFETY: async-signal-safe calls with valid arguments only.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"pleat-second".as_ptr());
    }
    if let Ok(supervisor) = super::process::pidfd(supervisor) {
        for pidfd in [&supervisor, keeper] {
            super::process::wait(&mut [readable(pidfd.as_raw_fd())], None);
        }
        if !shared.calm.load(Ordering::Acquire) {
            end_group(group);
        }
    }
    // SAFETY: ends this process without running anything.
    unsafe { libc::_exit(0) }
}

/// Ends who is in a group, whoever forks meanwhile, and removes it.
fn end_group(group: &Place) {
    group.lift();
    let start = std::time::Instant::now();
    while !group.members().is_empty() && start.elapsed() < LINGER * 4 {
        kill_members(group);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    group.remove();
}

fn watch(shared: &Shared, supervisor: RawFd, bell: &Bell, group: Option<&Place>) -> ! {
    // SAFETY: async-signal-safe calls with valid arguments only.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"pleat-keeper".as_ptr());
    }
    let mut fds = [readable(supervisor), readable(bell.as_raw_fd())];
    while fds[0].revents == 0 {
        super::process::wait(&mut fds, None);
        bell.hush();
        wake_in_time(shared, supervisor);
    }
    if !shared.calm.load(Ordering::Acquire) {
        let has_members = || group.is_some_and(|group| !group.members().is_empty());
        if known(shared).next().is_some() || has_members() {
            // Before anything: this process may be the next to be killed.
            eprintln!(
                "pleat: the supervisor was killed, and memory of the job with it; \
                 the job's processes are ended"
            );
        }
        if let Some(group) = group {
            // First: whoever waits at a limit that nobody minds would wait for ever.
            group.lift();
            kill_members(group);
        }
        end_all(shared);
        if let Some(group) = group {
            group.remove();
        }
    }
    // SAFETY: ends this process without running anything.
    unsafe { libc::_exit(0) }
}

/// Has a supervisor that stopped with its program go on when that does, or has ended. It may not have stopped yet when
/// this is seen: so it is told until it says that it goes on.
fn wake_in_time(shared: &Shared, supervisor: RawFd) {
    let mut fds = [readable(supervisor)];
    while fds[0].revents == 0 {
        match shared.stopped_with.load(Ordering::Acquire) {
            0 => return,
            program if procfs::is_stopped(program) => {}
            _ => super::process::signal(supervisor, libc::SIGCONT),
        }
        super::process::wait(&mut fds, Some(LOOK_EVERY));
    }
}

/// Kills who is in the job's group: processes that the supervisor had not met, or that left their family.
fn kill_members(group: &Place) {
    let members = group.members().into_iter();
    let members: Vec<_> = members
        .filter_map(|pid| Some((pid, super::process::pidfd(pid).ok()?)))
        .collect();
    // By descriptors of who is there still: a number may be another process's by now.
    let still = group.members();
    for (_, pidfd) in members.iter().filter(|(pid, _)| still.contains(pid)) {
        super::process::signal(pidfd.as_raw_fd(), libc::SIGKILL);
    }
}

/// The processes that die with the supervisor, with the descriptors that stand for them.
fn known(shared: &Shared) -> impl Iterator<Item = (i32, RawFd)> + '_ {
    let entries = shared.processes.iter().zip(&shared.pids);
    let entries =
        entries.map(|(pidfd, pid)| (pid.load(Ordering::Acquire), pidfd.load(Ordering::Acquire)));
    entries.filter(|(_, pidfd)| *pidfd != NONE)
}

/// Kills every process of the job, and what they have just forked, which the supervisor may not have
/// known yet. (The keeper was forked from a process with one thread, so it may allocate.)
fn end_all(shared: &Shared) {
    let known: Vec<(i32, RawFd)> = known(shared).collect();
    // By descriptors, taken while what they descend from was alive: a number may be another process's by now.
    let mut offspring = Vec::new();
    for (pid, fd) in &known {
        let children = procfs::descendants(*pid).into_iter();
        let children: Vec<_> = children
            .filter_map(|child| pidfd::of_descendant(child, *pid))
            .collect();
        let is_alive = {
            let mut fds = [readable(*fd)];
            super::process::wait(&mut fds, Some(std::time::Duration::ZERO));
            fds[0].revents == 0
        };
        if is_alive {
            offspring.extend(children);
        }
    }
    for child in &offspring {
        super::process::signal(child.as_raw_fd(), libc::SIGKILL);
    }
    for (_, pidfd) in &known {
        super::process::signal(*pidfd, libc::SIGKILL);
    }
    // As long as this process lives, no userfaultfd is closed: what was forked after the look above
    // waits for its memory instead of reading zeros, finds no supervisor, and ends itself.
    std::thread::sleep(LINGER);
}
