//! Forks, and what programs say about them.

use super::super::kernel::{Event, Page};
use super::super::process::{Process, NO_SOCKET};
use super::super::world::{note, step, violated, wait_until, with};
use super::super::Trouble;
use super::{agent, begin_thread, living, Doorbell, Program, FORKS_MAX, PATIENCE, PROCESSES_MORE};

impl Program {
    pub(super) fn advise(&self) {
        let chosen = with(|world| {
            let (start, _) = world.some_range(self.mm)?;
            // Whole mappings, for the same reason as in `unmap`.
            let (start, mapping) = world.kernel.mapping(self.mm, start)?;
            // Where nobody tells of it, what was wiped before and is not any more is missed (`space/newborn.rs`).
            let may_wipe = !world.history.has(Trouble::Attach);
            let wipes = world.random.one_in(2) && may_wipe;
            Some((start, mapping.end, wipes))
        });
        let Some((start, end, wipes)) = chosen else {
            return;
        };
        if wipes {
            self.note_wiped(start, end);
            step();
        }
        with(|world| {
            world
                .kernel
                .advise(self.mm, (start, end), |mapping| match wipes {
                    true => mapping.is_wiped_on_fork = true,
                    false => mapping.is_kept_from_forks = !mapping.is_kept_from_forks,
                });
        });
    }

    /// As the agent's library does before MADV_WIPEONFORK.
    fn note_wiped(&self, start: Page, end: Page) {
        let is_unheard = with(|world| {
            let process = world.processes.get_mut(&self.pid).expect("it lives");
            process.wiped.push((start, end));
            agent::publish(process);
            process.slots.is_none()
        });
        if is_unheard {
            self.ring(Doorbell::Wiping);
        }
    }

    /// fork, with the C library's handlers or past it, unless there are processes enough.
    pub(super) fn fork(&self, is_announced: bool) {
        let is_begun = with(|world| {
            let most = world.history.processes + PROCESSES_MORE;
            let is_begun =
                ((living(world) + world.forking) as u64) < most && world.forks < FORKS_MAX;
            world.forking += usize::from(is_begun);
            world.forks += u64::from(is_begun);
            is_begun
        });
        if !is_begun {
            return;
        }
        if is_announced {
            self.light_if_followed();
            self.ring(Doorbell::Fork);
        }
        step();
        let (mm, pid) = (self.mm, self.pid);
        let Some((mut process, event)) = with(|world| {
            if !world.doubtful[mm].is_empty() {
                world.forking -= 1;
                return None;
            }
            let child = world.kernel.fork(mm);
            world.note_mm(child);
            let mappings = world.kernel.spaces[child].mappings.clone();
            let has = |page: &Page| {
                let one = mappings.range(..=page).next_back();
                one.is_some_and(|(_, one)| one.end > *page && !one.is_wiped_on_fork)
            };
            let truth = world.truth[mm].iter().filter(|(page, _)| has(page));
            world.truth[child] = truth.map(|(page, content)| (*page, *content)).collect();
            world.forking -= 1;
            world.guarded[child] = world.guarded[mm].iter().copied().filter(has).collect();
            // What an agent that comes late is to let stay, it has to be told.
            if !world.processes[&pid].is_injected {
                world.kept[child] = world.kept[mm].iter().copied().filter(has).collect();
            }
            world.unborn.push((pid, child));
            let is_followed = world.kernel.is_followed(child, 0, Page::MAX);
            // Its variables are a copy as well.
            let parent = &world.processes[&pid];
            let process = Process {
                mm: child,
                parent: pid,
                beacon: parent
                    .beacon
                    .filter(|_| parent.is_lit || parent.is_injected),
                is_lit: parent.is_lit && !parent.is_injected,
                is_injected: parent.is_injected,
                kept: parent.kept.clone(),
                is_tainted: parent.is_tainted,
                wiped: parent.wiped.clone(),
                has_guards: parent.has_guards,
                socket: NO_SOCKET,
                ..Process::default()
            };
            let event = Event::Fork { child };
            world.note(|| format!("process {pid} forks mm {child}, announced: {is_announced}"));
            let event = is_followed.then(|| world.kernel.announce(mm, event));
            Some((process, event))
        }) else {
            if is_announced {
                self.ring(Doorbell::Forked);
            }
            return;
        };
        self.hear(event);
        let child = with(|world| {
            world.unborn.retain(|(_, mm)| *mm != process.mm);
            let id = world.id();
            let mm = process.mm;
            // Where the parent was left before the event of the fork was read, nobody follows its child.
            let is_followed = |first, end| world.kernel.is_followed(mm, first, end);
            let beacon = process.beacon.filter(|page| is_followed(*page, page + 1));
            process.is_lit &= beacon.is_some();
            process.beacon = beacon;
            let is_any = is_followed(0, Page::MAX);
            let is_found = process.is_lit || process.is_injected;
            world.processes.insert(id, process);
            if world.processes[&pid].is_tainted {
                world.taint(id);
            }
            // It would have a userfaultfd made for the memory that its parent's is of, too: that is not played.
            if is_any && !is_found {
                world.kill(id);
            }
            id
        });
        note(|| format!("process {child} is born"));
        begin_thread(child, is_announced);
        if is_announced {
            self.ring(Doorbell::Forked);
        }
    }

    /// The child's handler: the agent says whose memory this is, by what it finds in the beacon.
    pub(super) fn be_born(&self) {
        let pid = self.pid;
        let beacon = with(|world| {
            let process = &world.processes[&pid];
            process.beacon.filter(|_| process.is_lit)
        });
        let token = beacon.map_or([0; 2], |beacon| self.read_beacon(beacon));
        agent::begin(pid, token);
        if token != [0; 2] {
            wait_until(move |world| world.processes[&pid].is_ready, Some(PATIENCE));
            if !with(|world| world.processes[&pid].is_ready) {
                violated(format!("process {pid}: its agent is never ready"));
            }
        }
        self.ring(Doorbell::Born);
    }

    /// By what a child's agent finds in the beacon it says whose memory this is.
    pub fn read_beacon(&self, beacon: Page) -> [u64; 2] {
        let (pid, mm) = (self.pid, self.mm);
        self.touch(beacon, None);
        with(|world| {
            if !world.kernel.is_followed(mm, beacon, beacon + 1) {
                // The parent was left meanwhile, and this with it.
                let process = world.processes.get_mut(&pid).expect("it lives");
                (process.beacon, process.is_lit) = (None, false);
                return [0; 2];
            }
            let token = world.tokens.get(&mm).copied().unwrap_or_default();
            if token == [0; 2] {
                world.violated(format!("process {pid} finds no token in its beacon"));
            }
            token
        })
    }
}
