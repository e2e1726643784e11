//! How many pages would have to be brought in, by policy: the engine as a pager drives it, which learns of a
//! page only when it faults, beside FIFO, the clock, LRU, and Belady's OPT, which knows the future.
//!
//! Only the choice of victims is measured here. There is a fixed number of page frames, one page comes
//! with each fault, and nothing takes time; `schedule.rs` is for all the rest.
//!
//! ```text
//!   pleat_trace::Source --> History --> Policy::touch, one call a reference --> Misses
//! ```

mod list;
mod opt;
mod paged;
mod policies;

use std::collections::HashMap;

use pleat_engine::preset;
use pleat_trace::{ProcessNo, RegionKind, RegionNo, Source};
use pleat_types::PageNo;
use serde::Serialize;

/// The policies that every preset is compared with. `staged:PERCENT`, FIFO with so much of memory as an inactive
/// list, can have any share.
pub const POLICIES: [&str; 5] = ["opt", "lru", "clock", "fifo", "staged:10"];

/// What becomes of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// The page is in its place.
    Hit,
    /// It is in memory, but has to be put back in its place.
    Soft,
    /// It has to be brought in.
    Miss,
}

/// One page of the history, numbered from 0 in the order of first touches.
pub(crate) type Page = u32;

/// Replaces pages in a fixed number of frames.
pub(crate) trait Policy {
    /// The next reference of the history is to this page.
    fn touch(&mut self, page: Page) -> Touch;
    /// Nobody will touch this page any more, and its frame is free.
    fn forget(&mut self, page: Page);
}

/// All references of a source in one order: of the processes that still run, the one that has used the
/// least CPU time goes next.
pub struct History {
    /// Which page each reference touches.
    touches: Vec<Page>,
    /// Where each page is.
    places: Vec<(RegionNo, PageNo)>,
    /// Processes' memory that is free from a reference on: when, and whose pages.
    ends: Vec<(usize, Vec<Page>)>,
}

/// What a policy made of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Misses {
    /// Pages brought in, first touches included.
    pub misses: u64,
    /// Pages brought in that had been in memory before.
    pub refaults: u64,
    /// Pages put back in their place that had not left memory.
    pub soft: u64,
}

impl History {
    /// Everything that `source` has.
    pub fn of(source: &mut dyn Source) -> History {
        let mut history = History {
            touches: Vec::new(),
            places: Vec::new(),
            ends: Vec::new(),
        };
        let mut numbers: HashMap<(RegionNo, PageNo), Page> = HashMap::new();
        let kinds = source.regions().to_vec();
        let mut of_process: Vec<Vec<Page>> = vec![Vec::new(); source.processes() as usize];
        let mut running: Vec<_> = (0..source.processes())
            .filter_map(|process| ahead(source, process, 0))
            .collect();
        while let Some(next) = (0..running.len()).min_by_key(|&at| running[at].at_ns) {
            let Ahead { process, place, .. } = running[next];
            let fresh = history.places.len() as Page;
            let page = *numbers.entry(place).or_insert(fresh);
            if page == fresh {
                history.places.push(place);
                if kinds[place.0 .0 as usize] == RegionKind::Anonymous {
                    of_process[process as usize].push(page);
                }
            }
            history.touches.push(page);
            match ahead(source, process, running[next].at_ns) {
                Some(following) => running[next] = following,
                None => {
                    running.swap_remove(next);
                    let pages = std::mem::take(&mut of_process[process as usize]);
                    history.ends.push((history.touches.len(), pages));
                }
            }
        }
        history
    }

    /// Different pages touched.
    pub fn pages(&self) -> u64 {
        self.places.len() as u64
    }

    /// References.
    pub fn references(&self) -> u64 {
        self.touches.len() as u64
    }

    /// What the policy of this name, or the preset, does with so many page frames.
    ///
    /// # Errors
    /// A message that names the remedy, when there is no such policy.
    pub fn misses(&self, policy: &str, frames: u64) -> Result<Misses, String> {
        let frames = frames.max(1) as usize;
        let pages = self.places.len();
        let mut policy: Box<dyn Policy + '_> = match policy.split_once(':') {
            None if policy == "opt" => Box::new(opt::Opt::new(&self.touches, pages, frames)),
            None if policy == "lru" => Box::new(policies::Lru::new(pages, frames)),
            None if policy == "clock" => Box::new(policies::Clock::new(pages, frames)),
            None if policy == "fifo" => Box::new(policies::Fifo::new(pages, frames)),
            Some(("staged", percent)) => {
                let share = percent
                    .parse()
                    .ok()
                    .filter(|share| (1..100).contains(share));
                let share: usize = share.ok_or_else(|| {
                    format!("staged:{percent}: per cent of the frames are needed, 1 to 99")
                })?;
                Box::new(policies::Staged::new(pages, frames, frames * share / 100))
            }
            _ => Box::new(paged::Paged::new(&preset(policy)?, &self.places, frames)?),
        };
        Ok(self.replay(policy.as_mut()))
    }

    fn replay(&self, policy: &mut dyn Policy) -> Misses {
        let mut found = Misses::default();
        let mut seen = 0;
        let mut ends = self.ends.iter().peekable();
        for (now, &page) in self.touches.iter().enumerate() {
            while let Some((_, pages)) = ends.next_if(|(at, _)| *at <= now) {
                pages.iter().for_each(|&page| policy.forget(page));
            }
            let first = page == seen;
            seen += Page::from(first);
            match policy.touch(page) {
                Touch::Hit => debug_assert!(!first),
                Touch::Soft => found.soft += 1,
                Touch::Miss => {
                    found.misses += 1;
                    found.refaults += u64::from(!first);
                }
            }
        }
        found
    }
}

/// A process's next reference.
struct Ahead {
    process: u32,
    at_ns: u64,
    place: (RegionNo, PageNo),
}

fn ahead(source: &mut dyn Source, process: u32, now_ns: u64) -> Option<Ahead> {
    let reference = source.next(ProcessNo(process))?;
    Some(Ahead {
        process,
        at_ns: now_ns + reference.think_ns,
        place: (reference.region, reference.page),
    })
}

#[cfg(test)]
mod tests;
