//! Taking pages of files' memory: copied, punched out, and only then told to the engine, all while nobody
//! can fill a page of that file. The pages are what the file has, so where a copy is not worth its place
//! they are only dropped.

use super::{StandIn, StandIns};
use crate::ends::Failure;
use crate::folds::FoldJob;
use crate::reclaim::kick;
use crate::shared::{lock, Holder, Shared};
use pleat_codec::PageKind;
use pleat_engine::{Refusal, WayOut};
use pleat_types::{PageNo, SpaceId, PAGE_SIZE};
use std::sync::{Arc, PoisonError};

/// Pages taken at once: fills of that file wait so long.
const RUN_MAX: usize = 32;

impl StandIns {
    /// Takes the pages that were chosen.
    pub(super) fn take_chosen(&self, shared: &Shared) {
        let pages = self.chosen.get();
        if pages.is_empty() {
            return;
        }
        let mut rest = &pages[..];
        while let Some(&first) = rest.first() {
            let file = self.file_of(first);
            let goes_on = |(at, page): (usize, &PageNo)| page.0 == first.0 + at as u64;
            let count = rest
                .iter()
                .enumerate()
                .take(RUN_MAX)
                .take_while(|step| goes_on(*step))
                .count();
            let (run, behind) = rest.split_at(count);
            rest = behind;
            match file {
                Some(file) => self.take_run(shared, &file, run),
                // Void meanwhile, or used no more.
                None => self.refuse(shared, run, Refusal::Busy),
            }
        }
        self.chosen.done();
        kick(shared);
    }

    fn file_of(&self, page: PageNo) -> Option<Arc<StandIn>> {
        let files = lock(&self.files);
        let (_, file) = files.range(..=page).next_back()?;
        file.pages().contains(page).then(|| file.clone())
    }

    fn refuse(&self, shared: &Shared, pages: &[PageNo], why: Refusal) {
        let mut engine = shared.engine();
        for page in pages {
            engine.refused(self.space, *page, why);
        }
    }

    /// Takes pages that lie side by side in one file.
    fn take_run(&self, shared: &Shared, file: &StandIn, run: &[PageNo]) {
        let _nobody_fills = file.state.write().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |page: &&PageNo| shared.engine().is_leaving(self.space, **page);
        let run: Vec<PageNo> = run.iter().filter(is_meant).copied().collect();
        for pages in run.chunk_by(|a, b| a.0 + 1 == b.0) {
            self.take_pages(shared, file, pages);
        }
    }

    fn take_pages(&self, shared: &Shared, file: &StandIn, pages: &[PageNo]) {
        let offset = (pages[0].0 - file.base.0) * PAGE_SIZE as u64;
        let len = (file.len() - offset).min((pages.len() * PAGE_SIZE) as u64);
        let mut bytes = vec![0; pages.len() * PAGE_SIZE];
        let read = file.memory.read(offset, &mut bytes[..len as usize]);
        // Asked after the copy: a page that the program gave up meanwhile was copied as zeros.
        if read.is_err() || !file.memory.is_present(offset, len) {
            return match pages {
                [page] => self.refuse(shared, &[*page], Refusal::Gone),
                pages => pages
                    .iter()
                    .for_each(|page| self.take_pages(shared, file, &[*page])),
            };
        }
        if !file.memory.punch(offset, (pages.len() * PAGE_SIZE) as u64) {
            return shared.fail(Failure::FileNotPunched);
        }
        let mut jobs = Vec::new();
        let mut engine = shared.engine();
        for (&page, bytes) in pages.iter().zip(bytes.chunks_exact(PAGE_SIZE)) {
            let is_kept = engine.way_out(self.space, page) == WayOut::Take;
            let Some(frame) = is_kept.then(|| self.slots.claim()).flatten() else {
                engine.dropped(self.space, page);
                continue;
            };
            self.slots.ring.put(frame, bytes);
            match engine.taken(self.space, page, self.slots.name(frame)) {
                Some(body) => jobs.push(FoldJob {
                    body,
                    page: (self.space, page),
                    kind: PageKind::File,
                    was: None,
                    slots: self.slots.clone(),
                    frame,
                }),
                None => self.slots.release(frame),
            }
        }
        drop(engine);
        shared.meters.stand_in_taken_pages.add(pages.len() as u64);
        shared.folds.push(jobs);
    }
}

impl Holder for StandIns {
    fn space(&self) -> SpaceId {
        self.space
    }

    fn reserve(&self) -> Option<u32> {
        self.chosen.reserve(|| match lock(&self.files).is_empty() {
            true => 0,
            false => self.slots.available(),
        })
    }

    fn take(&self, pages: Vec<PageNo>) {
        if self.chosen.give(pages) {
            self.bell.ring();
        }
    }

    fn feed(&self) {}

    fn held_bytes(&self) -> u64 {
        let files = lock(&self.files);
        files.values().map(|file| file.memory.bytes()).sum()
    }

    fn is_charged(&self) -> bool {
        true
    }

    /// The kernel drops nothing of it.
    fn lost_pages(&self) -> u64 {
        0
    }
}
