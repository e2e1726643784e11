//! Processes that were running before: they are looked after from now on, and left again with all their memory.
//!
//! They are nobody's children here, so their ends are seen and not heard, their orphans go to somebody else, and no signal is passed
//! on to them: one to this process means that they are to be left. They are never ended because a budget does not hold them; if
//! memory of theirs is lost, they are, as every process is.

use super::injecting::Beacons;
use super::Supervisor;
use crate::census::Stage;
use crate::job::{Ending, Trouble};
use crate::reclaim;
use crate::shared::{lock, Link};
use pleat_sys::inject::{self, Image, InjectError, Remains, TraceError};
use pleat_sys::pidfd::has_ended;
use pleat_sys::{limits, procfs};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// When nothing has come back for so long, there is no memory for it.
const NO_PROGRESS: Duration = Duration::from_secs(20);
/// Where children are that have not said who they are is asked so often at most, and takes this part of the time, one in so many.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOK_SHARE: u32 = 20;
/// A process that is left and does not get on, for want of a CPU or because it is stopped, is waited for so long until it is cleared up.
const CLEARED_WITHIN: Duration = Duration::from_secs(30);
const CLEAR_PAUSE: Duration = Duration::from_millis(20);

/// Processes that are being left.
pub(super) struct Leave {
    /// What is away, in bytes, and since when nothing of it has come back.
    progress: (u64, Instant),
    /// Those that are left, and what is to be cleared up in them.
    left: Vec<Left>,
    /// Answers in which of them that could not be done.
    clearing: Option<JoinHandle<Vec<i32>>>,
    /// It has been said for whom this process stays.
    is_told: bool,
}

struct Left {
    pid: i32,
    pidfd: Arc<OwnedFd>,
    remains: Option<Remains>,
}

impl Supervisor<'_> {
    /// At each look.
    pub(super) fn look_after_given(&mut self) {
        let are_gone = self
            .family
            .roots()
            .iter()
            .all(|root| has_ended(&root.pidfd));
        if are_gone && self.ending.is_none() {
            self.ending = Some(Ending::Over);
        }
        self.look_for_children();
        self.go_on_leaving();
    }

    /// A signal to this process.
    pub(super) fn hear_about_given(&mut self, number: i32) {
        if !matches!(number, libc::SIGINT | libc::SIGTERM | libc::SIGQUIT) {
            // The terminal may be closed, and the processes stay within their budget.
            return;
        }
        if let Err(why) = self.start_leaving() {
            // It may be the same answer to another try.
            self.complaint = None;
            self.warn(&why);
        }
    }

    /// The budget does not hold them.
    pub(super) fn leave_because(&mut self, why: &crate::ends::Failure) {
        if self.leave.is_some() {
            return;
        }
        self.tell_trouble(Trouble::Left, &why.to_string());
        let text = match self.start_leaving() {
            Ok(()) => format!("{why}; the processes are left, with all their memory"),
            Err(cannot) => format!("{why}; they cannot be left either: {cannot}"),
        };
        self.warn(&text);
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leave.is_some()
    }

    /// Has all that is away brought back, and the processes left.
    ///
    /// # Errors
    /// This process has started the job, or there is no memory for it: a sentence with the remedy.
    pub(super) fn start_leaving(&mut self) -> Result<(), String> {
        if !self.family.is_given() {
            return Err(
                "pleat run stays with the program that it has started: give it more memory with `pleat set`, and nothing is taken from it"
                    .into(),
            );
        }
        if self.leave.is_some() || self.ending.is_some() {
            return Ok(());
        }
        self.check_room()?;
        let now = Instant::now();
        self.leave = Some(Leave {
            progress: (u64::MAX, now),
            left: Vec::new(),
            clearing: None,
            is_told: false,
        });
        self.pause_load_control();
        self.lift_budget();
        Ok(())
    }

    /// Nothing need be taken away any more.
    fn lift_budget(&mut self) {
        let all = limits::mem_total_bytes().unwrap_or(u64::MAX >> 8) * 2;
        self.shared.engine().set_budget(all, 0, 0);
        self.shared.feed_starving();
    }

    fn go_on_leaving(&mut self) {
        if self.leave.is_none() || self.ending.is_some() {
            return;
        }
        let links: Vec<Arc<Link>> = lock(&self.shared.links).clone();
        for link in &links {
            if !lock(&link.take).is_closed() {
                link.set_rest(false);
                link.leave(true);
            }
        }
        self.part_with_silent();
        self.note_left();
        if !links.is_empty() || self.is_anybody_preparing() {
            return self.watch_progress();
        }
        self.clear_up();
    }

    /// Connections of processes that are not managed yet end.
    fn part_with_silent(&mut self) {
        let mut put_there = Vec::new();
        for (pid, process) in &mut self.census.processes {
            if process.claim.is_none() && matches!(process.stage, Stage::Ready(_)) {
                if let Stage::Ready(channel) =
                    std::mem::replace(&mut process.stage, Stage::Unmanageable)
                {
                    super::trust::release(&channel);
                }
                if process.is_injected {
                    put_there.push(*pid);
                }
            }
        }
        put_there
            .into_iter()
            .for_each(|pid| self.note_one_left(pid));
    }

    /// Whether a process is just getting its agent. It will be managed, with nothing away, and left then as the others are: only by its
    /// hello is it known where the agent is.
    fn is_anybody_preparing(&self) -> bool {
        let mut processes = self.census.processes.values();
        self.injections.are_any_expected()
            || processes.any(|process| matches!(process.stage, Stage::Preparing(..)))
    }

    /// Who is left does not end with this process any more.
    fn note_left(&mut self) {
        let is_left = |process: &crate::census::Process| match &process.stage {
            Stage::Managed(link) => link.is_over() && !has_ended(&process.pidfd),
            _ => false,
        };
        let processes = self.census.processes.iter();
        let left: Vec<i32> = processes
            .filter(|(_, process)| is_left(process))
            .map(|(pid, _)| *pid)
            .collect();
        left.into_iter().for_each(|pid| self.note_one_left(pid));
    }

    /// It has nothing away, and its agent ends.
    fn note_one_left(&mut self, pid: i32) {
        let Some(process) = self.census.processes.get(&pid) else {
            return;
        };
        let [(area, _), (image, _)] = process.agent.1;
        let thread = process.agent.0;
        let is_known = procfs::shares_numbers(pid) && area != 0 && image != 0;
        let remains = (process.is_injected && is_known).then_some(Remains {
            pid,
            thread,
            image,
            area,
        });
        let pidfd = process.pidfd.clone();
        self.census.remove(pid, self.keeper);
        if let Some(leave) = &mut self.leave {
            leave.left.push(Left {
                pid,
                pidfd,
                remains,
            });
        }
    }

    /// Whether a process is left already.
    pub(super) fn is_left(&self, pid: i32) -> bool {
        let leave = self.leave.as_ref();
        leave.is_some_and(|leave| leave.left.iter().any(|left| left.pid == pid))
    }

    /// What does not come back for long does not come back: the budget holds again.
    fn watch_progress(&mut self) {
        let away = self.away_bytes();
        let Some(leave) = &mut self.leave else { return };
        if away < leave.progress.0 {
            leave.progress = (away, Instant::now());
            return;
        }
        let is_stuck = leave.progress.1.elapsed() > NO_PROGRESS;
        if !is_stuck {
            return;
        }
        if away == 0 {
            // Nothing of theirs is away, and they are stopped, or cannot be reached.
            if !std::mem::replace(&mut leave.is_told, true) {
                self.warn(
                    "processes cannot be left while they are stopped; pleat stays until they go on, or end",
                );
            }
            return;
        }
        self.stay();
        self.warn(&format!(
            "{} MiB of the processes do not come back, for there is no memory for them: they stay in their budget; raise the limit of their \
             memory cgroup, or end others",
            away >> 20
        ));
    }

    /// Does not leave after all.
    fn stay(&mut self) {
        let Some(leave) = self.leave.take() else {
            return;
        };
        for left in leave.left {
            if let Ok(pidfd) = left.pidfd.try_clone() {
                self.census
                    .add_known(left.pid, pidfd, Stage::Silent, self.keeper);
            }
        }
        for link in lock(&self.shared.links).iter() {
            link.leave(false);
        }
        self.take_on(self.budget);
        reclaim::kick(&self.shared);
    }

    /// Takes the agents' code and stacks out of who is left, then ends.
    fn clear_up(&mut self) {
        let image = self.injections.image();
        let Some(leave) = &mut self.leave else { return };
        if let Some(clearing) = leave.clearing.take_if(|clearing| clearing.is_finished()) {
            self.ending = Some(Ending::Left);
            for pid in clearing.join().unwrap_or_default() {
                self.warn(&format!(
                    "{pid} keeps some hundred kilobytes of pleat's, unused: none of its threads could be made to unmap them"
                ));
            }
            return;
        }
        if leave.clearing.is_some() {
            return;
        }
        let remains: Vec<(Remains, Arc<OwnedFd>)> = leave
            .left
            .iter()
            .filter_map(|left| Some((left.remains?, left.pidfd.clone())))
            .collect();
        let bell = self.shared.clone();
        let work = move || {
            let kept = clear_all(&remains, image);
            bell.main_bell.ring();
            kept
        };
        let thread = std::thread::Builder::new().name("pleat-inject".into());
        match thread.spawn(work) {
            Ok(clearing) => leave.clearing = Some(clearing),
            // What remains is a few hundred kilobytes.
            Err(_) => self.ending = Some(Ending::Left),
        }
    }

    /// Children that were forked and have not said who they are: while their parents are left they get their agents at once, to say
    /// so. Whose parents have ended is nobody's descendant here, and is looked for among all processes of these users.
    fn look_for_children(&mut self) {
        let now = Instant::now();
        let (at, pause) = self.children_look;
        if now.saturating_duration_since(at) < pause || lock(&self.shared.claims).is_empty() {
            return;
        }
        let processes = self.census.processes.iter();
        let silent = processes.filter(|(_, one)| matches!(one.stage, Stage::Silent));
        let mut silent: Vec<i32> = silent.map(|(pid, _)| *pid).collect();
        let beacons = self.beacons();
        silent.retain(|pid| beacons.are_of(*pid));
        if silent.is_empty() {
            self.adopt_orphans(&beacons);
        }
        if self.is_leaving() {
            silent.into_iter().for_each(|pid| self.want_agent(pid));
        }
        let pause = (now.elapsed() * LOOK_SHARE).max(LOOK_EVERY);
        self.children_look = (Instant::now(), pause);
    }

    /// Processes that lost their parents before they were met.
    fn adopt_orphans(&mut self, beacons: &Beacons) {
        let roots = self.family.roots().iter();
        let users: HashSet<u32> = roots
            .filter_map(|root| procfs::real_uid(root.pid).ok())
            .collect();
        for pid in procfs::of_users(&users) {
            let is_known = self.census.processes.contains_key(&pid) || self.is_left(pid);
            if is_known || self.helpers.contains(&pid) || !beacons.are_of(pid) {
                continue;
            }
            let Ok(pidfd) = pleat_sys::process::pidfd(pid) else {
                continue;
            };
            // Seen once more after it was opened: the number is its own. Whose it is decides, too: what has registered memory in that
            // place may be of somebody else's job, but not of another user's.
            let is_of_users = procfs::real_uid(pid).is_ok_and(|user| users.contains(&user));
            if is_of_users && beacons.are_of(pid) {
                self.census
                    .add_known(pid, pidfd, Stage::Silent, self.keeper);
                self.share(pid);
            }
        }
    }
}

/// Where it fails the process keeps what it has: answers in which.
fn clear_all(remains: &[(Remains, Arc<OwnedFd>)], image: Option<Arc<Image>>) -> Vec<i32> {
    let Some(image) = image else {
        return Vec::new();
    };
    let start = Instant::now();
    let clear = |(one, pidfd): &(Remains, Arc<OwnedFd>)| loop {
        let (remains, image) = (*one, image.clone());
        // What a thread of ours traces is let go when it ends.
        let cleared = std::thread::spawn(move || inject::clear_up(&remains, &image)).join();
        match cleared {
            Ok(Err(InjectError::Trace(TraceError::Gone))) => return None,
            // Its number is its own until its end has been seen here.
            Ok(Err(InjectError::Trace(TraceError::Busy))) if start.elapsed() < CLEARED_WITHIN => {
                if has_ended(pidfd) {
                    return None;
                }
                std::thread::sleep(CLEAR_PAUSE);
            }
            Ok(Err(_)) => return Some(one.pid),
            _ => return None,
        }
    };
    remains.iter().filter_map(clear).collect()
}
