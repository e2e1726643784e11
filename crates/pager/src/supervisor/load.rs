//! Load control: sees what processes do, and tells them whose turn it is.

use super::Supervisor;
use crate::census::Stage;
use crate::load::{LoadControl, Seen, LOOK_EVERY};
use crate::shared::{cpus, Link, Shared};
use pleat_sys::procfs::ThreadTimes;
use pleat_types::{SpaceId, PAGE_SIZE};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Of processes with more threads only so many are looked at.
const THREADS_MAX: usize = 64;

/// What is known of the processes of a job, and who of them rests.
pub(super) struct Load {
    control: LoadControl,
    /// What each had done when it was last looked at.
    done: HashMap<SpaceId, Done>,
    looked: Instant,
    /// Somebody was told to rest, and not yet to run again.
    somebody_rests: bool,
}

/// What a process has done so far.
struct Done {
    threads: Vec<ThreadTimes>,
    /// How long its threads waited for answers...
    stalled_ns: u64,
    /// ... and before that for the thread that answers to get a CPU.
    unheard_ns: u64,
    /// Pages that it has in memory.
    pages: u64,
}

impl Load {
    pub(super) fn new(budget_bytes: u64, now: Instant) -> Load {
        Load {
            control: LoadControl::new(cpus(), budget_bytes / PAGE_SIZE as u64, now),
            done: HashMap::new(),
            looked: now,
            somebody_rests: false,
        }
    }

    pub(super) fn set_budget(&mut self, budget_bytes: u64) {
        self.control.set_budget(budget_bytes / PAGE_SIZE as u64);
    }

    /// What a process has done since it was last looked at; `None` the first time.
    fn see(&mut self, took: Duration, id: SpaceId, now: Done) -> Option<Seen> {
        let took_ns = took.as_nanos() as f32;
        let before = self.done.insert(id, now);
        let (before, now) = (before?, &self.done[&id]);
        let busy = now.threads.iter().filter_map(|thread| {
            let mut threads = before.threads.iter();
            let before = threads.find(|before| before.thread == thread.thread)?;
            let used = thread.used_ns.saturating_sub(before.used_ns);
            let waited = thread.waited_ns.saturating_sub(before.waited_ns);
            Some((used + waited) as f32 / took_ns)
        });
        let (cpus, busiest) = busy.fold((0.0, 0.0), |(sum, most), cpus| {
            (sum + cpus, f32::max(most, cpus))
        });
        let stalled_ns = now.stalled_ns.saturating_sub(before.stalled_ns);
        let unheard_ns = now.unheard_ns.saturating_sub(before.unheard_ns);
        let stalled = (stalled_ns + unheard_ns) as f32 / took_ns;
        let stalled = stalled.min(now.threads.len() as f32);
        // Whose waits these are is not known: each thread's part of the waits is that of the work.
        let part = if cpus > 0.0 { busiest / cpus } else { 1.0 };
        Some(Seen {
            id,
            cpus: cpus + stalled,
            busiest: busiest + stalled * part,
            stalled,
            pages: now.pages,
        })
    }
}

impl Supervisor<'_> {
    /// Has processes take turns where they thrash together.
    pub(super) fn control_load(&mut self) {
        let Some(load) = &mut self.load else { return };
        let now = Instant::now();
        let took = now - load.looked;
        // Memory is looked at every millisecond. Between looks at processes there is only something to do for those
        // that rest, when others end or a signal comes.
        if took < LOOK_EVERY && !load.somebody_rests {
            return;
        }
        let known_pages = self.shared.engine().known_pages();
        let processes = self.census.processes.iter();
        let managed = processes.filter_map(|(pid, process)| match &process.stage {
            Stage::Managed(link) if !link.ended.load(Ordering::Acquire) => Some((*pid, link)),
            _ => None,
        });
        let managed: Vec<(i32, &Arc<Link>)> = managed.collect();
        // Where all fits nobody rests, and there is nothing to see.
        let parties = match load.control.fits(known_pages) {
            true => &[],
            false => &managed[..],
        };
        let ids: Vec<SpaceId> = parties.iter().map(|(_, link)| link.id).collect();
        let mut turns = load.control.keep(now, &ids);
        if took >= LOOK_EVERY {
            load.looked = now;
            load.done.retain(|id, _| ids.contains(id));
            let done = parties
                .iter()
                .filter_map(|(pid, link)| Some((link.id, done_by(&self.shared, *pid, link)?)));
            let seen: Vec<Seen> = done
                .filter_map(|(id, done)| load.see(took, id, done))
                .collect();
            turns += load.control.look(now, &seen, known_pages);
        }
        self.shared.meters.turns.add(turns);
        load.somebody_rests = false;
        for (_, link) in managed {
            let rests = load.control.rests(link.id);
            load.somebody_rests |= rests;
            if link.rests() != rests {
                self.shared.engine().set_rest(link.id, rests);
                link.set_rest(rests);
            }
        }
    }

    /// A signal has come that the job should hear at once.
    pub(super) fn pause_load_control(&mut self) {
        if let Some(load) = &mut self.load {
            load.control.pause(Instant::now());
        }
    }
}

/// `None`: it has ended, or the kernel keeps no such times.
fn done_by(shared: &Shared, pid: i32, link: &Link) -> Option<Done> {
    let answering = ThreadTimes::of(link.thread.load(Ordering::Acquire));
    Some(Done {
        threads: ThreadTimes::of_process(pid, THREADS_MAX).ok()?,
        stalled_ns: link.stalled_us.get() * 1000,
        unheard_ns: answering.map_or(0, |times| times.waited_ns),
        pages: shared.engine().space_resident_pages(link.id),
    })
}
