//! Whether there is memory for all that is away, before processes are left.
//!
//! The machine must have it, and each memory cgroup that a process is in: what comes back is charged to the process's group, and where
//! that would be over its limit the kernel kills somebody in it.

use super::Supervisor;
use crate::cgroup::CloseLimit;
use crate::shared::{lock, Holder, Link};
use pleat_sys::limits::{self, CgroupLimit};
use pleat_types::PAGE_SIZE;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Of the memory that there is, this part, one in so many, is left to others.
const LEFT_FREE: u64 = 16;

/// A limit, and what would come back below it.
struct Need {
    limit: CgroupLimit,
    bytes: u64,
}

impl Supervisor<'_> {
    /// Memory of the processes that is away: what is shared since a fork becomes one page in each.
    pub(super) fn away_bytes(&self) -> u64 {
        self.away_by_process().iter().map(|(_, bytes)| bytes).sum()
    }

    fn away_by_process(&self) -> Vec<(i32, u64)> {
        let links = lock(&self.shared.links).clone();
        let engine = self.shared.engine();
        let bytes = |id| engine.space_away_pages(id) * PAGE_SIZE as u64;
        let pid = |link: &Link| link.pid.load(Ordering::Acquire);
        let of_links = links.iter().map(|link| (pid(link), bytes(link.id)));
        let mut away: Vec<(i32, u64)> = of_links.collect();
        // What they share comes back to one of them.
        let shared = self.shared.segments.get();
        let shared = shared.map_or(0, |segments| bytes(segments.space()));
        if let Some((_, bytes)) = away.first_mut() {
            *bytes += shared;
        }
        away
    }

    /// Whether there is memory for all that is away, once what holds it is given back.
    pub(super) fn check_room(&self) -> Result<(), String> {
        let away = self.away_by_process();
        let need: u64 = away.iter().map(|(_, bytes)| bytes).sum();
        let counters = self.shared.engine().counters();
        let held = counters.store_frames_bytes + counters.store_metadata_bytes;
        let available = limits::mem_available_bytes().map_err(|error| error.to_string())?;
        let have = available - available / LEFT_FREE + held;
        if need > have {
            return Err(format!(
                "{} MiB of the processes are away, and the machine has {} MiB for them: they stay in their budget; end others first, or \
                 raise the budget step by step with `pleat set`",
                need >> 20,
                have >> 20
            ));
        }
        check_groups(&away, held)
    }
}

/// The same of the memory cgroups of these processes, of which so much is away. `held`: what this process gives back meanwhile.
fn check_groups(away: &[(i32, u64)], held: u64) -> Result<(), String> {
    let mut needs: HashMap<PathBuf, Need> = HashMap::new();
    for (pid, bytes) in away {
        for limit in limits::memory_cgroup_limits_of(*pid) {
            let path = limit.path.clone();
            let need = needs.entry(path).or_insert(Need { limit, bytes: 0 });
            need.bytes += bytes;
        }
    }
    let own = limits::memory_cgroup_limits_of(std::process::id() as i32);
    for Need { limit, bytes } in needs.into_values() {
        let is_ours = own.iter().any(|own| own.path == limit.path);
        let given_back = if is_ours { held } else { 0 };
        let room = CloseLimit::open(&limit).and_then(|group| group.room_bytes());
        let Some(room) = room else { continue };
        let have = room.saturating_sub(limit.bytes / LEFT_FREE) + given_back;
        if bytes > have {
            return Err(format!(
                "{} MiB of the processes are away, and their memory cgroup {} has room for {} MiB: they stay in their budget; raise its \
                 limit, or end others in it",
                bytes >> 20,
                limit.path.display(),
                have >> 20
            ));
        }
    }
    Ok(())
}
