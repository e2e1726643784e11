//! Leaving processes (`supervisor/attached.rs`, `space/leaving.rs`), and taking them on again.

use super::agent;
use super::kernel::{Mm, Page};
use super::process::NO_SOCKET;
use super::supervisor::Supervisor;
use super::world::{violated, with, World};
use super::Trouble;
use crate::reclaim;
use crate::shared::lock;

/// No budget.
const ALL_BYTES: u64 = 1 << 30;

impl Supervisor {
    /// At each look.
    pub(super) fn look_after_leaving(&self) {
        match with(|world| world.is_leaving) {
            true => self.go_on_leaving(),
            false if with(|world| world.is_time_for(Trouble::Leave, 20)) => {
                with(|world| {
                    world.is_leaving = true;
                    world.note(|| "all are to be left".into());
                });
                self.set_budget(ALL_BYTES);
                self.shared.feed_starving();
            }
            false => {}
        }
    }

    fn go_on_leaving(&self) {
        let links = lock(&self.shared.links).clone();
        let stays = with(|world| world.random.one_in(8));
        if stays || links.is_empty() {
            with(|world| world.tally.stays += u64::from(!links.is_empty()));
            return self.stay();
        }
        for link in links {
            if !lock(&link.take).is_closed() {
                link.set_rest(false);
                link.leave(true);
            }
        }
    }

    /// Does not leave after all; or all are left, and are attached to again.
    fn stay(&self) {
        with(|world| {
            world.is_leaving = false;
            world.note(|| "who is there stays".into());
        });
        if let Some(segments) = self.shared.segments.get() {
            segments.leave_all(false);
        }
        for link in lock(&self.shared.links).iter() {
            link.leave(false);
        }
        self.set_budget(self.budget_bytes);
        reclaim::kick(&self.shared);
    }

    fn set_budget(&self, bytes: u64) {
        self.shared.engine().set_budget(bytes, bytes / 16, 0);
    }

    /// Agents for who has none: for who was left, or is the child of a fork, which is to say so at once while its parent is left.
    pub(super) fn put_in_agents(&self) {
        let silent: Vec<i32> = with(|world| {
            let processes = world.processes.iter();
            let is_silent = |pid: &i32| world.wants_agent(*pid);
            processes.map(|(pid, _)| *pid).filter(is_silent).collect()
        });
        for pid in silent {
            if with(|world| world.is_leaving || world.random.one_in(8)) {
                agent::put_in(pid);
            }
        }
    }
}

impl World {
    fn wants_agent(&self, pid: i32) -> bool {
        let process = &self.processes[&pid];
        let is_silent = process.is_injected && !process.is_ended && process.socket == NO_SOCKET;
        // Memory that is followed has a userfaultfd, and no other can be made for it.
        let is_followed = self.kernel.is_followed(process.mm, 0, Page::MAX);
        is_silent && (process.beacon.is_some() || !(is_followed || self.is_leaving))
    }

    /// Whether a process is to be left and is not yet.
    pub fn is_being_left(&self, pid: i32) -> bool {
        let process = &self.processes[&pid];
        // Nobody finds a child that was forked past the library that it has.
        let is_known = process.is_injected || process.socket != NO_SOCKET;
        let is_followed = || self.kernel.is_followed(process.mm, 0, Page::MAX);
        self.is_leaving && is_known && !process.is_tainted && is_followed()
    }
}

/// The userfaultfd of an address space is closed by the supervisor, as it was by the agent: all of its memory must be there.
pub fn close(mm: Mm) {
    let away = with(|world| {
        if world.kernel.spaces[mm].is_dead {
            return None;
        }
        let is_away = |(page, content): &(&Page, &u64)| {
            world.kernel.content(mm, **page) != Some(**content)
                && !world.doubtful[mm].contains_key(page)
        };
        let away = world.truth[mm].iter().find(is_away);
        let away = away.map(|(page, _)| *page);
        let away = away.or_else(|| world.shared_away(mm));
        let away = away.filter(|_| !world.is_tainted(mm));
        world.kernel.close(mm);
        world.kept[mm].clear();
        world.note(|| format!("mm {mm} is left"));
        world.tally.left_processes += 1;
        world.part(mm);
        away
    });
    if let Some(page) = away {
        violated(format!("page {page:#x} of mm {mm} is away, which is left"));
    }
}

impl World {
    /// A page of shared memory of an address space that is not there, though it was written to.
    fn shared_away(&self, mm: Mm) -> Option<Page> {
        let is_away = |page: &Page| {
            let (object, index) = self.kernel.place(mm, *page).expect("it is mapped");
            self.kernel.shared_content(object, index).is_none()
        };
        self.shared_pages(mm).into_iter().find(is_away)
    }

    /// The process is as it was before it had an agent. A library that was loaded stays, and is not begun again.
    fn part(&mut self, mm: Mm) {
        let mut processes = self.processes.values_mut();
        let process = processes.find(|process| process.mm == mm && !process.is_ended);
        let Some(process) = process.filter(|process| process.is_injected) else {
            return;
        };
        process.socket = NO_SOCKET;
        process.kept.clear();
        process.slots = None;
        (process.beacon, process.staging) = (None, 0);
        (process.is_lit, process.is_managed, process.is_ready) = (false, false, false);
        process.is_claimed = false;
        process.touched = Default::default();
    }
}
