//! Conversations that agents offer because they cannot connect: in another network namespace the supervisor's socket has no name.
//!
//! An agent that is put into a process offers its own, and who has put it there waits for that (`injecting.rs`). The agents of forked
//! children are started by their library, which waits for them; they ring a doorbell, and are looked for at once. Any other, of a process
//! that is shut in or traced, is found when memory is short and the process is to have an agent.

use super::injecting::Wanted;
use super::Supervisor;
use crate::census::Stage;
use crate::shared::lock;
use pleat_sys::channel::Channel;
use pleat_sys::procfs;
use pleat_wire::message::{Word, HEARD};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A child that has rung waits so long at most.
const LOOK_FOR: Duration = Duration::from_secs(20);
/// Between two looks meanwhile.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

impl Supervisor<'_> {
    /// Has the offers of forked children taken, if there are any; answers how long the next look may be put off.
    pub(super) fn hear_offers(&mut self) -> Duration {
        let now = Instant::now();
        let is_rung = self.shared.are_offers_made.swap(false, Ordering::AcqRel);
        if is_rung {
            self.offers_until = Some(now + LOOK_FOR);
            // It may be known by its memory only.
            self.strays_pause = Duration::ZERO;
            self.look_for_strays();
        }
        let Some(until) = self.offers_until else {
            return Duration::MAX;
        };
        if now > until || lock(&self.shared.claims).is_empty() {
            self.offers_until = None;
            return Duration::MAX;
        }
        for pid in self.children_without_agent() {
            if is_rung {
                self.injections.hasten(pid, now);
            }
            if self.injections.is_due(pid, now) {
                self.start_injection(pid, Wanted::Offer, now);
            }
        }
        LOOK_PAUSE
    }

    /// Processes whose parent is managed, or gone, and that have not said hello.
    fn children_without_agent(&self) -> Vec<i32> {
        let mut parents: HashSet<i32> = lock(&self.shared.by_pid).keys().copied().collect();
        parents.insert(std::process::id() as i32);
        let is_child = |pid: i32| procfs::parent(pid).is_ok_and(|parent| parents.contains(&parent));
        let processes = self.census.processes.iter();
        let silent = processes.filter(|(pid, process)| {
            matches!(process.stage, Stage::Silent) && !process.is_bare && is_child(**pid)
        });
        silent.map(|(pid, _)| *pid).collect()
    }

    /// Takes up a conversation that was offered, as if its agent had connected.
    pub(super) fn take_up(&mut self, channel: Channel) {
        let word = Word {
            kind: HEARD,
            error: 0,
        };
        self.shared.meters.offers_taken.add(1);
        // If it fails its process is just ending, or is no agent's.
        let _ = channel.send(pleat_sys::bytes_of(&word), None);
        self.admit(channel);
    }
}
