//! What the main thread does about the job's own memory cgroup.

use super::Supervisor;
use crate::census::Stage;
use crate::own_group::{OwnGroup, Room, Strait};
use pleat_types::PAGE_SIZE;

impl Supervisor<'_> {
    /// Has the group's limit follow what there is, and minds those who wait at it; `Some`: so much is to be taken for
    /// used at least, for somebody waits.
    pub(super) fn mind_own_group(&mut self, own_bytes: u64) -> Option<u64> {
        let shared = self.shared.clone();
        let lacks = self.injections.lack_memory();
        let group = self.own_group.as_mut()?;
        // Who has only just started will have an agent.
        let mut stages = self.census.processes.values().map(|process| &process.stage);
        let has_agents = stages.any(|stage| !matches!(stage, Stage::Unmanageable));
        let taken = || has_agents.then(|| shared.engine().counters().taken_pages);
        match group.look(own_bytes, self.census.processes.len(), lacks, taken) {
            Strait::None => None,
            Strait::Waiting {
                wanted_bytes,
                is_step,
            } => {
                self.shared.meters.limit_waits.add(1);
                self.shared.meters.limit_steps.add(u64::from(is_step));
                self.stay_ahead();
                Some(self.budget.bytes + wanted_bytes)
            }
            Strait::Helpless => {
                let budget = self.budget.bytes >> 20;
                self.warn(&format!(
                    "the job has waited for memory in vain, for nothing could be folded or written out: it does not fit into \
                     --memory {budget} MiB; the kernel may now kill its largest program: raise --memory, or the limit"
                ));
                None
            }
        }
    }

    /// How much may be taken away until the next look. Without a swap file what is taken stays, and it makes no difference.
    pub(super) fn limit_taking(&self, room: Option<Room>) {
        let room = room.filter(|_| self.swap_takes_more());
        let pages = room.map(|room| {
            let pages = (room.for_taking_bytes / PAGE_SIZE as u64) as i64;
            pages - self.shared.engine().under_way_pages() as i64
        });
        self.shared.may_take.set(pages);
    }

    /// What is estimated between samples, bounded by what the kernel counts in the job's group and by what is used
    /// beside it: the kernel's count is exact, has each page once, and nothing of others.
    pub(super) fn bounded(&self, measured: u64, beside: u64) -> u64 {
        let counted = self.own_group.as_ref().and_then(OwnGroup::memory_bytes);
        counted.map_or(measured, |counted| measured.min(counted + beside))
    }
}
