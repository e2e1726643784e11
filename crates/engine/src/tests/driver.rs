//! The rest of the model test's world: the agent that takes pages, who folds them, and the disk.

use pleat_codec::Folded;
use pleat_types::{CodecId, PageNo, PageRange, SpaceId, StagingSlot};

use super::content::{fold, tight, unfold, TIGHT};
use super::world::{fingerprint, is_to_compare, pick, Command, Sealed, Staged, World};
use crate::debt::Why;
use crate::{ColdPage, FillPlan, ReadItem, Refusal, WayOut, WriteOutcome, WritePlan};

impl World {
    /// The driver looks up one of several faults of a space that it answers at the same time.
    pub(crate) fn look_up_apart(&mut self, space: SpaceId, page: PageNo) {
        self.answers.remove(&space);
        let is_known = |other: &(SpaceId, PageNo, u64, bool)| (other.0, other.1) == (space, page);
        let mut plan = FillPlan::default();
        if self.apart.iter().any(is_known) || !self.engine.fault_apart(space, page, &mut plan) {
            return;
        }
        let [item] = plan.items[..] else {
            panic!("a page that comes by itself: {:?}", plan.items);
        };
        let content = self.content_of(item, &plan);
        self.apart
            .push((space, page, content, is_to_compare(&item)));
    }

    /// It goes on with one of them.
    pub(crate) fn answer_apart(&mut self, choice: usize) {
        let Some(index) = pick(self.apart.len(), choice) else {
            return;
        };
        let (space, page, content, compares) = self.apart.swap_remove(index);
        // What was moved over a page that was just being taken counts as away and is there, as in `is_ambiguous`:
        // the kernel does not fill it.
        if !self.present.contains_key(&(space, page)) {
            assert_eq!(content, self.truth(space, page), "wrong for {page:?}");
            self.present.insert((space, page), content);
        }
        self.engine.filled(space, PageRange::new(page, 1));
        self.remember(
            space,
            compares.then_some((page, content)).into_iter().collect(),
        );
    }

    /// Before anything else is done to a space, these faults are answered, and a plan made before is given up.
    pub(super) fn come_together(&mut self, space: SpaceId) {
        self.finish_apart(space);
        self.answers.remove(&space);
    }

    pub(super) fn finish_apart(&mut self, space: SpaceId) {
        while let Some(index) = self.apart.iter().position(|fault| fault.0 == space) {
            self.answer_apart(index);
        }
    }

    /// Two bits of `who` say of each space whether it takes as many as there is room for, is at work, or cannot be
    /// asked at all, as a process that was stopped.
    pub(crate) fn choose(&mut self, most: u32, want: usize, who: u8) {
        let room = |(at, &space)| match who >> (2 * at) & 3 {
            3 => None,
            2 => Some((space, 0)),
            _ => Some((space, most)),
        };
        let takers: Vec<_> = self.spaces.iter().enumerate().filter_map(room).collect();
        let has_pages = |&(space, _): &(SpaceId, u32)| self.has_resident_pages(space);
        let is_anything_left = takers.iter().any(has_pages);
        let starved_bytes = self.engine.cache.debt.of(Why::Starved);
        let mut chosen = Vec::new();
        self.engine.choose_victims(&takers, want, &mut chosen);
        assert!(chosen.len() <= want);
        assert!(
            !is_anything_left || self.engine.cache.debt.of(Why::Starved) <= starved_bytes,
            "the cache has to give though there are pages to take, of {takers:?}"
        );
        for (space, page) in chosen {
            assert!(
                self.present.contains_key(&(space, page)),
                "{page:?} is not there to be taken"
            );
            // Who sees every write sends pages away himself: nobody has to be asked for them.
            if self.is_file(space) || self.tracks_writes {
                self.send_away(space, page);
            } else {
                self.commands.push(Command {
                    space,
                    page,
                    result: None,
                });
            }
        }
    }

    fn has_resident_pages(&self, space: SpaceId) -> bool {
        let space = self.engine.spaces.get(&space);
        space.is_some_and(|space| space.counts().resident > 0)
    }

    /// A page leaves the way the engine says, at once.
    fn send_away(&mut self, space: SpaceId, page: PageNo) {
        let at = (space, page);
        match self.engine.way_out(space, page) {
            WayOut::WriteBack => {
                let content = self.truth(space, page);
                let file = self
                    .files
                    .get_mut(&space)
                    .expect("only files are written to");
                file.insert(page, content);
                self.truth.remove(&at);
                self.engine.cleaned(space, page);
                self.send_away(space, page);
            }
            WayOut::Drop => {
                self.present.remove(&at);
                self.engine.dropped(space, page);
            }
            WayOut::Take => {
                let content = self.present.remove(&at).expect("it is there");
                let slot = self.fill_slot(content);
                match self.engine.taken(space, page, slot) {
                    Some(body) => self.to_fold.push(Staged {
                        body,
                        slot,
                        was: None,
                    }),
                    None => drop(self.slots.remove(&slot)),
                }
            }
        }
    }

    fn fill_slot(&mut self, content: u64) -> StagingSlot {
        self.slots_used += 1;
        let slot = StagingSlot(self.slots_used);
        self.slots.insert(slot, content);
        slot
    }

    /// An agent carries out one of its commands.
    pub(crate) fn carry_out(&mut self, choice: usize, mood: u8) {
        let waiting = |command: &&mut Command| command.result.is_none();
        let mut waiting: Vec<_> = self.commands.iter_mut().filter(waiting).collect();
        let Some(index) = pick(waiting.len(), choice) else {
            return;
        };
        let command = &mut waiting[index];
        let at = (command.space, command.page);
        let result = match (self.present.get(&at), mood % 8) {
            (_, 7) => Err(Refusal::Stale),
            (None, _) => Err(Refusal::Gone),
            (Some(_), 5) => Err(Refusal::Busy),
            (Some(_), 6) => Err(Refusal::Unmovable),
            (Some(&content), _) => {
                self.present.remove(&at);
                self.slots_used += 1;
                let slot = StagingSlot(self.slots_used);
                self.slots.insert(slot, content);
                Ok(slot)
            }
        };
        command.result = Some(result);
    }

    /// The driver hears what became of a command.
    pub(crate) fn report(&mut self, choice: usize) {
        let done: Vec<usize> = (0..self.commands.len())
            .filter(|&index| self.commands[index].result.is_some())
            .collect();
        let Some(index) = pick(done.len(), choice) else {
            return;
        };
        let command = self.commands.remove(done[index]);
        match command.result {
            Some(Ok(slot)) => {
                let taken = self
                    .engine
                    .taken_to_compare(command.space, command.page, slot);
                match taken {
                    Some((body, was)) => self.to_fold.push(Staged { body, slot, was }),
                    None => drop(self.slots.remove(&slot)),
                }
            }
            Some(Err(why)) => self.engine.refused(command.space, command.page, why),
            None => {}
        }
    }

    /// Every command to a space is carried out and reported.
    pub(super) fn settle(&mut self, space: SpaceId) {
        while let Some(index) = self
            .commands
            .iter()
            .position(|command| command.space == space)
        {
            let command = self.commands.remove(index);
            let waits = command.result.is_none();
            self.commands.insert(0, command);
            if waits {
                self.carry_out(0, 0);
            }
            self.report(0);
        }
    }

    pub(crate) fn fold(&mut self, choice: usize) {
        let Some(index) = pick(self.to_fold.len(), choice) else {
            return;
        };
        let Staged { body, slot, was } = self.to_fold.remove(index);
        let content = self.slots.remove(&slot).unwrap();
        let is_same = was.map(|was| was == fingerprint(content));
        let is_raw = is_same.is_some_and(|is_same| self.engine.compared(body, is_same));
        let (result, bytes) = fold(content);
        let is_stored_raw = matches!(result, Folded::Bytes { codec, .. } if codec == CodecId::RAW);
        assert!(!is_raw || is_stored_raw);
        self.engine.folded(body, result, &bytes).unwrap();
    }

    /// Pages are chosen, and everything under way gets into the compressed cache.
    pub(crate) fn evict(&mut self, want: usize) {
        self.choose(u32::MAX, want, 0);
        while !self.commands.is_empty() {
            self.carry_out(0, 0);
            self.report(0);
        }
        while !self.to_fold.is_empty() {
            self.fold(0);
        }
    }

    pub(crate) fn plan_write(&mut self) {
        let mut plan = WritePlan::default();
        if self.engine.plan_write(&mut plan) {
            self.writing.push(plan);
        }
    }

    pub(crate) fn choose_cold(&mut self) {
        let mut page = ColdPage::default();
        if self.engine.choose_cold(&mut page) {
            unfold(page.codec, &page.bytes);
            self.cold.push(page);
        }
    }

    /// A cold page was compressed again: tighter, or not (one in four).
    pub(crate) fn recompress(&mut self, choice: usize) {
        let Some(index) = pick(self.cold.len(), choice) else {
            return;
        };
        let page = self.cold.remove(index);
        let content = unfold(page.codec, &page.bytes);
        let bytes = tight(content, content.is_multiple_of(4));
        let (codec, len) = (TIGHT, bytes.len());
        self.engine
            .recompressed(&page, Folded::Bytes { codec, len }, &bytes);
    }

    /// A write ends; a failed one leaves garbage in the file.
    pub(crate) fn finish_write(&mut self, choice: usize, outcome: WriteOutcome) {
        let Some(index) = pick(self.writing.len(), choice) else {
            return;
        };
        let plan = self.writing.remove(index);
        let end = plan.offset + plan.bytes.len() as u64;
        self.disk
            .retain(|&offset, _| offset < plan.offset || offset >= end);
        for item in &plan.items {
            let bytes = &plan.bytes[item.start as usize..][..item.len as usize];
            let sealed = Sealed {
                serial: plan.serial,
                bytes: bytes.to_vec(),
            };
            if outcome == WriteOutcome::Done {
                self.disk
                    .insert(plan.offset + u64::from(item.start), sealed);
            }
        }
        self.engine.write_done(&plan, outcome);
    }

    /// What the disk has now of these pages.
    pub(super) fn read_from_disk(&self, items: &[ReadItem]) -> Vec<(ReadItem, Option<Sealed>)> {
        let read = |item: &ReadItem| (*item, self.disk.get(&item.offset).cloned());
        items.iter().map(read).collect()
    }

    /// What was read and is what it should be.
    fn opened(&self, item: &ReadItem, found: &Option<Sealed>) -> Option<Vec<u8>> {
        let whole = found.as_ref().filter(|sealed| {
            sealed.serial == item.serial && sealed.bytes.len() == item.len as usize
        });
        let current = self.engine.is_current(item);
        assert!(whole.is_some() || !current, "{item:?} is lost: {found:?}");
        whole.map(|sealed| sealed.bytes.clone())
    }

    /// A read is done.
    pub(super) fn land(&mut self, reads: Vec<(ReadItem, Option<Sealed>)>) {
        for (nth, (item, found)) in reads.iter().enumerate() {
            if let Some(bytes) = self.opened(item, found) {
                self.engine.landed(item, &bytes, nth > 0);
            }
        }
    }

    pub(crate) fn finish_read(&mut self, choice: usize) {
        if let Some(index) = pick(self.reading.len(), choice) {
            let reads = self.reading.remove(index);
            self.land(reads);
        }
    }

    /// Clusters are to be emptied: reads them.
    pub(crate) fn plan_collect(&mut self) {
        let mut reads = Vec::new();
        if self.engine.plan_collect(&mut reads) {
            assert!(self.collecting.is_empty(), "one collection at a time");
            self.collecting = self.read_from_disk(&reads);
        }
    }

    /// What was read of them is to be written.
    pub(crate) fn plan_move(&mut self) {
        if self.collecting.is_empty() {
            return;
        }
        let read = std::mem::take(&mut self.collecting);
        let opened = read
            .iter()
            .filter_map(|(item, found)| Some((*item, self.opened(item, found)?)));
        let opened: Vec<_> = opened.collect();
        let moved: Vec<_> = opened
            .iter()
            .map(|(item, bytes)| (*item, &**bytes))
            .collect();
        let mut plan = WritePlan::default();
        if self.engine.plan_move(&moved, &mut plan) {
            self.writing.push(plan);
        }
    }

    /// Disk blocks that hold nothing are given back.
    pub(crate) fn punch(&mut self) {
        for (offset, bytes) in self.engine.take_holes() {
            self.disk
                .retain(|&at, _| at < offset || at >= offset + bytes);
        }
    }
}
