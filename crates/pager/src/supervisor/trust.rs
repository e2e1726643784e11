//! Who may speak, and which memory a process may claim.
//!
//! The socket's name is no secret, so what counts is who has connected, by the kernel's word (SO_PEERPIDFD):
//! only what descends from this process has a say. It adopts the job's orphans, so whatever the job has started
//! descends from it for good, under whatever user. All others are told that they are not served, which costs a
//! few reads of /proc.
//!
//! A forked child claims its memory by 128 random bits that were put into that memory and nowhere else. Who
//! shows them has them from there: it is that process, or one that may look into it anyhow. They are good
//! once, and only for a process whose place in the family is that of the child ([`may_claim`]).
//!
//! What a process of the job says costs itself at most: its connection, and, once memory of it may be away, its
//! life (`space/misconduct.rs`).

use super::Supervisor;
use crate::shared::{lock, Link};
use pleat_sys::channel::Channel;
use pleat_sys::pidfd::{has_ended, Peer};
use pleat_sys::process::signal;
use pleat_sys::procfs;
use pleat_wire::message::{self, Prepare, Token};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Connections accepted at once: others have their turn before the next.
const ACCEPTED_MAX: usize = 64;
/// Connections that have said nothing, of all processes and of one. An agent says hello as soon as it has
/// connected, so these are many.
const SILENT_MAX: usize = 128;
const SILENT_OF_ONE_MAX: usize = 16;

/// A connection of a process of the job that has said nothing yet.
pub(super) struct Guest {
    pub(super) channel: Channel,
    pub(super) peer: Peer,
}

/// What has been said to the user about who was turned away.
#[derive(Default)]
pub(super) struct Told {
    of_strangers: bool,
    of_blindness: bool,
    of_misconduct: bool,
}

/// Why a process has no say.
enum Refusal {
    /// It is gone.
    Gone,
    /// It is not of the job; its number, and its user.
    Stranger(i32, u32),
    /// Nobody can tell: there is no /proc, or one of another PID namespace.
    Blind,
}

impl Supervisor<'_> {
    /// Takes up connections.
    pub(super) fn accept(&mut self) {
        for _ in 0..ACCEPTED_MAX {
            match self.listener.accept() {
                Ok(Some(channel)) => self.admit(channel),
                Ok(None) => return,
                Err(_) => {
                    // As a rule there are no descriptors. Who says nothing has the least claim to theirs.
                    let silent = self.unnamed.len() as u64;
                    self.shared.meters.dropped_peers.add(silent);
                    self.unnamed.clear();
                    return;
                }
            }
        }
    }

    pub(super) fn admit(&mut self, channel: Channel) {
        match self.vouch_for(&channel) {
            Ok(peer) => {
                if let Some(guest) = self.hear_guest(Guest { channel, peer }) {
                    self.seat(guest);
                }
            }
            Err(refusal) => self.turn_away(&channel, &refusal),
        }
    }

    /// Who has connected, if it is of the job.
    fn vouch_for(&self, channel: &Channel) -> Result<Peer, Refusal> {
        let peer = channel.peer().map_err(|_| Refusal::Gone)?;
        let met = self.census.processes.get(&peer.pid);
        // Met before and alive, it had this number then; and the peer, alive now, has had it since it connected.
        let is_met = met.is_some_and(|met| !has_ended(&met.pidfd)) && !has_ended(&peer.pidfd);
        if is_met || self.census.line_of(peer.pid, &peer.pidfd).is_some() {
            return Ok(peer);
        }
        Err(match (has_ended(&peer.pidfd), procfs::shows_us()) {
            (true, _) => Refusal::Gone,
            (false, true) => Refusal::Stranger(peer.pid, peer.uid),
            (false, false) => Refusal::Blind,
        })
    }

    fn turn_away(&mut self, channel: &Channel, refusal: &Refusal) {
        self.shared.meters.refused_peers.add(1);
        release(channel);
        match refusal {
            Refusal::Blind if !self.told.of_blindness => {
                self.told.of_blindness = true;
                self.warn(
                    "/proc is not mounted here, or shows another PID namespace, so pleat cannot tell who \
                     belongs to the job; its processes run unmanaged",
                );
            }
            Refusal::Stranger(pid, uid) if !self.told.of_strangers => {
                self.told.of_strangers = true;
                self.warn(&format!(
                    "process {pid} of user {uid}, which does not belong to the job, has connected to it; it and \
                     others like it are turned away"
                ));
            }
            _ => {}
        }
    }

    /// Keeps a connection that has said nothing. Where there are too many, one goes of whoever has most.
    fn seat(&mut self, guest: Guest) {
        let pid = guest.peer.pid;
        self.unnamed.push(guest);
        let pids: Vec<i32> = self.unnamed.iter().map(|guest| guest.peer.pid).collect();
        if let Some(at) = one_too_many(&pids, pid) {
            self.drop_guest(at);
        }
    }

    fn drop_guest(&mut self, at: usize) {
        let guest = self.unnamed.remove(at);
        self.shared.meters.dropped_peers.add(1);
        release(&guest.channel);
    }

    /// A process of the job has said what none says that goes by the rules, while nothing of it can be away:
    /// its connection is closed.
    pub(super) fn dismiss(&mut self, pid: i32, channel: &Channel, what: &str) {
        self.shared.meters.dropped_peers.add(1);
        release(channel);
        if !self.told.of_misconduct {
            self.told.of_misconduct = true;
            self.warn(&format!(
                "process {pid} has {what}; it runs unmanaged, as do others that do the like"
            ));
        }
    }

    /// The job is over. What cannot be served and is not known waits for memory that does not come, and would read
    /// zeros from now on: it is among those that have a userfaultfd and no agent.
    pub(super) fn bury(&mut self) {
        for guest in self.unnamed.drain(..) {
            release(&guest.channel);
        }
        let is_waiting = |link: &Arc<Link>| link.why_unservable().is_some() && !link.uffd.is_dead();
        let any = lock(&self.shared.links).iter().any(is_waiting)
            || !lock(&self.shared.graves).is_empty();
        if !any {
            return;
        }
        for pid in self.census.members() {
            let met = self.census.processes.get(&pid);
            let has_agent = met.is_some_and(|process| process.agent.0 != 0);
            if self.helpers.contains(&pid) || has_agent || !procfs::has_userfaultfd(pid) {
                continue;
            }
            if let Some(fd) = self.census.open(pid) {
                signal(fd.as_raw_fd(), libc::SIGKILL);
            }
        }
    }

    /// A forked child has found its token in the beacon: now the space's process is known.
    pub(super) fn claim(&mut self, peer: &Peer, token: Token) -> Option<Arc<Link>> {
        let link = lock(&self.shared.claims).get(&token).cloned()?;
        if !may_claim(&self.kinship(peer, &link)?) {
            // It stays good for whom it is meant.
            return None;
        }
        let process = Arc::new(peer.pidfd.try_clone().ok()?);
        lock(&self.shared.claims).remove(&token)?;
        link.pid.store(peer.pid, Ordering::Release);
        *lock(&link.process) = Some(process.clone());
        lock(&self.shared.by_pid).insert(peer.pid, link.clone());
        lock(&link.mail).process = Some(process);
        link.bell.ring();
        Some(link)
    }

    fn kinship(&self, peer: &Peer, link: &Link) -> Option<Kinship> {
        let ancestors = self.census.line_of(peer.pid, &peer.pidfd)?;
        let own = std::process::id() as i32;
        let is_adopted = |parent: i32| match self.family.is_given() {
            true => !self.census.processes.contains_key(&parent),
            false => parent == own,
        };
        let has_memory = lock(&self.shared.by_pid).get(&peer.pid).cloned();
        let parent = link.parent.as_ref().and_then(Weak::upgrade);
        let parent = parent.filter(|parent| !parent.uffd.is_dead());
        let parent_pid = parent.map_or(0, |parent| parent.pid.load(Ordering::Acquire));
        let user = |pid| procfs::real_uid(pid).ok();
        Some(Kinship {
            is_served: has_memory.is_some_and(|link| !link.uffd.is_dead()),
            is_orphan: ancestors.first().copied().is_none_or(is_adopted),
            is_descendant: ancestors.contains(&parent_pid),
            is_parent_known: parent_pid != 0,
            is_same_user: parent_pid != 0 && user(peer.pid) == user(parent_pid),
        })
    }
}

/// What is known of a process that claims a forked child's memory, and of whose fork that was.
struct Kinship {
    /// It has other memory of its own that is served.
    is_served: bool,
    /// Its parent is gone, so that it is ours, or, where the job was running before, somebody else's.
    is_orphan: bool,
    /// The process that forked is among its ancestors.
    is_descendant: bool,
    /// The process that forked is there, and known.
    is_parent_known: bool,
    /// Both have the same real user.
    is_same_user: bool,
}

/// Whether a process that has shown a token may have the memory which that was put in.
///
/// A child is its parent's child, or has an ancestor in between: one made by vfork has the parent's memory and
/// forks from it. If that has ended, the child is ours; so is one made with CLONE_PARENT by a child of ours. The
/// same user is asked for then. If the parent's memory is gone, or its process was never known (it was forked
/// without the C library), there is nothing to compare with, and the token alone decides, as it could in all
/// cases: the rest is there so that nobody can do anything with a token that was let out.
fn may_claim(kinship: &Kinship) -> bool {
    let is_kin = !kinship.is_parent_known
        || kinship.is_descendant
        || (kinship.is_orphan && kinship.is_same_user);
    !kinship.is_served && is_kin
}

/// Which of the silent connections of these processes, oldest first, is to go after one of `newest` has come.
fn one_too_many(pids: &[i32], newest: i32) -> Option<usize> {
    let count = |pid: i32| pids.iter().filter(|&&other| other == pid).count();
    if count(newest) > SILENT_OF_ONE_MAX {
        return pids.iter().position(|&pid| pid == newest);
    }
    if pids.len() <= SILENT_MAX {
        return None;
    }
    let most = pids.iter().copied().max_by_key(|&pid| count(pid))?;
    pids.iter().position(|&pid| pid == most)
}

/// Tells an agent that its process is not served, so that it leaves it alone. It may not listen.
pub(super) fn release(channel: &Channel) {
    let release = Prepare {
        kind: message::RELEASE,
        ..Prepare::default()
    };
    let _ = channel.send(pleat_sys::bytes_of(&release), None);
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: Kinship = Kinship {
        is_served: false,
        is_orphan: false,
        is_descendant: true,
        is_parent_known: true,
        is_same_user: true,
    };

    #[test]
    fn a_child_may_claim_its_memory_whatever_has_become_of_its_parent() {
        assert!(may_claim(&CHILD));
        let is_same_user = false; // It may have changed users since.
        assert!(may_claim(&Kinship {
            is_same_user,
            ..CHILD
        }));
        let orphan = Kinship {
            is_orphan: true,
            is_descendant: false,
            ..CHILD
        };
        assert!(may_claim(&orphan));
        let parent_gone = Kinship {
            is_parent_known: false,
            is_same_user: false,
            ..orphan
        };
        assert!(may_claim(&parent_gone));
    }

    #[test]
    fn nobody_else_may_even_with_the_token() {
        let stranger = Kinship {
            is_descendant: false,
            ..CHILD
        };
        assert!(!may_claim(&stranger));
        let orphan_of_another_user = Kinship {
            is_orphan: true,
            is_same_user: false,
            ..stranger
        };
        assert!(!may_claim(&orphan_of_another_user));
        assert!(!may_claim(&Kinship {
            is_served: true,
            ..CHILD
        }));
    }

    #[test]
    fn silent_connections_cost_whoever_has_most() {
        let quiet: Vec<i32> = (0..SILENT_MAX as i32).collect();
        assert_eq!(one_too_many(&quiet, 5), None);
        let mut one = quiet.clone();
        one.push(1000);
        assert!(one_too_many(&one, 1000).is_some());
        let mut greedy = vec![7; SILENT_OF_ONE_MAX];
        assert_eq!(one_too_many(&greedy, 7), None);
        greedy.insert(0, 3);
        greedy.push(7);
        assert_eq!(one_too_many(&greedy, 7), Some(1), "its own oldest");
        // 100 have one each, one has 16, and another comes: it is one of the 16 that goes.
        let mut full: Vec<i32> = (100..212).collect();
        full.extend([7; SILENT_OF_ONE_MAX]);
        full.push(999);
        assert_eq!(one_too_many(&full, 999), Some(112));
    }
}
