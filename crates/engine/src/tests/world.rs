//! A simple kernel and program around an engine, for the model test; `driver.rs` has the agent, the
//! folder and the disk, `content.rs` what pages are made of.
//!
//! `truth` is what each page must read as, `present` what is really mapped. Everything between is
//! the engine's promise. Content is a number; 0 is a page of zeros.

use std::collections::{BTreeMap, HashMap};

use pleat_backing::Fingerprint;
use pleat_types::{PageNo, PageRange, SpaceId, StagingSlot};

use crate::table::PageState;
use crate::{
    BodyId, ColdPage, Engine, FaultAnswer, FillItem, FillPlan, Parts, ReadItem, Refusal, Settings,
    Victims, WriteOutcome, WritePlan,
};

use super::content::unfold;

/// First page and number of pages programs use: two chunks of the page table.
pub(crate) const FIRST: u64 = 500;
pub(crate) const PAGES: u64 = 40;
/// What is in the first page of a new file; counted on from there.
const FIRST_IN_FILE: u64 = 1 << 40;

/// A command to an agent.
pub(super) struct Command {
    pub(super) space: SpaceId,
    pub(super) page: PageNo,
    /// What the agent did, once it did.
    pub(super) result: Option<Result<StagingSlot, Refusal>>,
}

/// A page to be folded, with what it was when it came back, if that is known.
pub(super) struct Staged {
    pub(super) body: BodyId,
    pub(super) slot: StagingSlot,
    pub(super) was: Option<Fingerprint>,
}

/// The fingerprint of such a page.
pub(super) fn fingerprint(content: u64) -> Fingerprint {
    let mut print = [1; 12];
    print[..8].copy_from_slice(&content.to_le_bytes());
    Fingerprint(print)
}

/// A page in the swap file with the number of the write that carried it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sealed {
    pub(super) serial: u64,
    pub(super) bytes: Vec<u8>,
}

pub(crate) struct World {
    pub(crate) engine: Engine,
    /// Address spaces and files.
    pub(crate) spaces: Vec<SpaceId>,
    /// What is in each file now, where that is not what was in it first.
    pub(super) files: BTreeMap<SpaceId, HashMap<PageNo, u64>>,
    pub(super) tracks_writes: bool,
    pub(super) truth: BTreeMap<(SpaceId, PageNo), u64>,
    pub(super) present: HashMap<(SpaceId, PageNo), u64>,
    pub(super) commands: Vec<Command>,
    pub(super) slots: HashMap<StagingSlot, u64>,
    pub(super) slots_used: u32,
    pub(super) to_fold: Vec<Staged>,
    pub(super) writing: Vec<WritePlan>,
    pub(super) cold: Vec<ColdPage>,
    /// What was written where, by which write; sealed, so that nothing else passes for it.
    pub(super) disk: HashMap<u64, Sealed>,
    /// Reads under way: what was asked for, and what the disk had then.
    pub(super) reading: Vec<Vec<(ReadItem, Option<Sealed>)>>,
    /// What was read of clusters that are being emptied.
    pub(super) collecting: Vec<(ReadItem, Option<Sealed>)>,
    pub(super) content: u64,
    /// Faults looked up and not answered yet, one per space at most: the page, and what to put there
    /// and behind, with whether it is to be remembered.
    pub(super) answers: BTreeMap<SpaceId, (PageNo, Vec<(u64, bool)>)>,
    /// Faults being answered at the same time, as many as there are: the page, what to put there, and
    /// whether it is to be remembered.
    pub(super) apart: Vec<(SpaceId, PageNo, u64, bool)>,
}

pub(super) fn pick(len: usize, choice: usize) -> Option<usize> {
    (len > 0).then(|| choice % len)
}

impl World {
    pub(crate) fn new(settings: Settings, [layout, sizing, admission]: [&str; 3]) -> World {
        let parts = Parts {
            layout: pleat_store::layout_by_name(layout, 1 << 20).unwrap(),
            sizing: pleat_policy::sizing_by_name(sizing).unwrap(),
            admission: pleat_policy::admission_by_name(admission).unwrap(),
            victims: Victims::Lives,
        };
        World::of(settings, parts)
    }

    pub(crate) fn of(settings: Settings, parts: Parts) -> World {
        let mut engine = Engine::new(settings, parts);
        let spaces = vec![engine.add_space()];
        World {
            engine,
            spaces,
            files: BTreeMap::new(),
            tracks_writes: settings.tracks_writes,
            truth: BTreeMap::new(),
            present: HashMap::new(),
            commands: Vec::new(),
            slots: HashMap::new(),
            slots_used: 0,
            to_fold: Vec::new(),
            writing: Vec::new(),
            cold: Vec::new(),
            disk: HashMap::new(),
            reading: Vec::new(),
            collecting: Vec::new(),
            content: 0,
            answers: BTreeMap::new(),
            apart: Vec::new(),
        }
    }

    pub(crate) fn space(&self, choice: usize) -> Option<SpaceId> {
        pick(self.spaces.len(), choice).map(|index| self.spaces[index])
    }

    pub(super) fn truth(&self, space: SpaceId, page: PageNo) -> u64 {
        let written = self.truth.get(&(space, page)).copied();
        written.unwrap_or_else(|| self.in_file(space, page).unwrap_or(0))
    }

    /// What the file has at this page; `None`: not a file.
    pub(super) fn in_file(&self, space: SpaceId, page: PageNo) -> Option<u64> {
        let written = self.files.get(&space)?.get(&page).copied();
        Some(written.unwrap_or(FIRST_IN_FILE + page.0))
    }

    pub(crate) fn is_file(&self, space: SpaceId) -> bool {
        self.files.contains_key(&space)
    }

    pub(crate) fn add_file(&mut self) {
        let file = self.engine.add_file();
        self.files.insert(file, HashMap::new());
        self.spaces.push(file);
    }

    fn next_content(&mut self) -> u64 {
        self.content += 1;
        self.content
    }

    /// The program reads a page: whatever it takes, the content must be the right one.
    pub(crate) fn read(&mut self, space: SpaceId, page: PageNo, cut: usize) {
        self.fault_in(space, page, cut);
        let expected = self.truth(space, page);
        assert_eq!(
            self.present[&(space, page)],
            expected,
            "{space:?} {page:?} reads wrongly"
        );
    }

    /// The program writes something new to a page.
    pub(crate) fn write(&mut self, space: SpaceId, page: PageNo, cut: usize) {
        self.fault_in(space, page, cut);
        if self.tracks_writes || self.is_file(space) {
            self.report_write(space, page);
        }
        let content = self.next_content();
        self.truth.insert((space, page), content);
        self.present.insert((space, page), content);
    }

    /// The engine must know of the write before it happens.
    fn report_write(&mut self, space: SpaceId, page: PageNo) {
        assert!(
            self.engine.touch(space, page, true),
            "{space:?} {page:?} does not count as resident"
        );
    }

    /// The driver looks a fault up and is interrupted before it fills anything. The page may be present:
    /// then a thread faulted on it that has been served with others meanwhile.
    pub(crate) fn look_up(&mut self, space: SpaceId, page: PageNo) {
        let mut plan = FillPlan::default();
        self.come_together(space);
        // Who sees every use of a page does not fault on one that is present.
        let sees_uses = self.tracks_writes || self.is_file(space);
        if sees_uses && self.present.contains_key(&(space, page)) {
            return;
        }
        let answer = self.engine.fault(space, page, true, &mut plan);
        if answer == FaultAnswer::Read {
            let reads = self.read_from_disk(&plan.reads);
            self.reading.push(reads);
        }
        if answer == FaultAnswer::Fill {
            let contents = plan.items.iter().map(|item| match item {
                FillItem::Resident => 0,
                FillItem::File => u64::MAX,
                item => self.content_of(*item, &plan),
            });
            let contents: Vec<u64> = contents.collect();
            let contents = self.read_file(space, page, contents);
            let compares = plan.items.iter().map(is_to_compare);
            let contents = contents.into_iter().zip(compares).collect();
            self.answers.insert(space, (page, contents));
        }
    }

    /// Puts what is in the file where it is to be read from there.
    fn read_file(&self, space: SpaceId, page: PageNo, mut contents: Vec<u64>) -> Vec<u64> {
        for (content, index) in contents.iter_mut().zip(0..) {
            if *content == u64::MAX {
                *content = self.in_file(space, page.plus(index)).expect("a file");
            }
        }
        contents
    }

    /// The driver goes on with a fault that it looked up: the kernel fills up to the first page that
    /// is present.
    pub(crate) fn answer(&mut self, space: SpaceId) {
        self.finish_apart(space);
        let Some((page, contents)) = self.answers.remove(&space) else {
            return;
        };
        let mut filled = 0;
        let mut remembered = Vec::new();
        for (content, compares) in contents {
            let at = (space, page.plus(filled));
            if self.present.contains_key(&at) {
                break;
            }
            assert_eq!(content, self.truth(at.0, at.1), "wrong for {at:?}");
            self.present.insert(at, content);
            remembered.extend(compares.then_some((at.1, content)));
            filled += 1;
        }
        // The page itself is there in any case.
        self.engine
            .filled(space, PageRange::new(page, filled.max(1)));
        self.remember(space, remembered);
    }

    pub(super) fn remember(&mut self, space: SpaceId, pages: Vec<(PageNo, u64)>) {
        for (page, content) in pages {
            self.engine.remember(space, page, fingerprint(content));
        }
    }

    fn fault_in(&mut self, space: SpaceId, page: PageNo, cut: usize) {
        self.come_together(space);
        let mut plan = FillPlan::default();
        for attempt in 0..100 {
            if self.present.contains_key(&(space, page)) {
                return;
            }
            match self.engine.fault(space, page, attempt > 0, &mut plan) {
                FaultAnswer::Fill => self.fill(space, page, &plan, cut),
                FaultAnswer::Read => {
                    let reads = self.read_from_disk(&plan.reads);
                    self.land(reads);
                }
                FaultAnswer::Wait => self.settle(space),
                FaultAnswer::NoMemory => assert!(self.engine.free_bytes() < 4096),
            }
        }
        panic!("{space:?} {page:?} is never filled");
    }

    /// Puts a plan in place as the kernel does: up to the first page that is present already, and
    /// here only up to a random length.
    fn fill(&mut self, space: SpaceId, page: PageNo, plan: &FillPlan, cut: usize) {
        let wanted = 1 + cut % plan.items.len();
        let mut filled = 0;
        let mut remembered = Vec::new();
        for &item in &plan.items[..wanted] {
            let at = (space, page.plus(filled));
            if self.present.contains_key(&at) {
                break;
            }
            let content = match item {
                FillItem::File => self.in_file(at.0, at.1).expect("a file"),
                item => self.content_of(item, plan),
            };
            assert_eq!(
                content,
                self.truth(at.0, at.1),
                "{item:?} is wrong for {at:?}"
            );
            self.present.insert(at, content);
            remembered.extend(is_to_compare(&item).then_some((at.1, content)));
            filled += 1;
        }
        let brings = self.engine.filled(space, PageRange::new(page, filled));
        self.remember(space, remembered);
        if brings {
            self.bring_neighbours(space, page, cut);
        }
    }

    /// Puts neighbours in place that are likely to be wanted, but for those from a random one on.
    fn bring_neighbours(&mut self, space: SpaceId, page: PageNo, cut: usize) {
        let mut plan = FillPlan::default();
        let mut left = cut % 10;
        while let Some(first) = self.engine.neighbours(space, page, &mut plan) {
            let wanted = plan.items.len().min(left);
            let mut filled = 0;
            let mut remembered = Vec::new();
            for &item in &plan.items[..wanted] {
                let at = (space, first.plus(filled));
                // What was moved over a page that was just being taken counts as away and is there, as in
                // `is_ambiguous`: the kernel does not fill it. (The pager moves nothing meanwhile.)
                if self.present.contains_key(&at) {
                    break;
                }
                let content = self.content_of(item, &plan);
                assert_eq!(
                    content,
                    self.truth(at.0, at.1),
                    "{item:?} is wrong for {at:?}"
                );
                self.present.insert(at, content);
                remembered.extend(is_to_compare(&item).then_some((at.1, content)));
                filled += 1;
            }
            self.engine
                .filled_beside(space, PageRange::new(first, filled));
            self.remember(space, remembered);
            left -= filled as usize;
            if left == 0 || filled < wanted as u64 {
                return;
            }
        }
    }

    pub(super) fn content_of(&self, item: FillItem, plan: &FillPlan) -> u64 {
        match item {
            FillItem::Zero => 0,
            FillItem::File => unreachable!("the caller knows the file"),
            FillItem::Resident => panic!("the engine lost track of a page that is not there"),
            FillItem::Same(word) => word,
            FillItem::Staged(slot) => self.slots[&slot],
            FillItem::Packed {
                codec,
                start,
                len,
                check,
                ..
            } => {
                let bytes = &plan.bytes[start as usize..(start + len) as usize];
                check
                    .into_iter()
                    .for_each(|check| assert_eq!(check, pleat_backing::checksum(bytes)));
                unfold(codec, bytes)
            }
        }
    }

    /// The program touches fresh memory that nobody watches; it is found and adopted.
    pub(crate) fn touch_unwatched(&mut self, space: SpaceId, page: PageNo) {
        if self.is_file(space) {
            return;
        }
        self.come_together(space);
        let state = self.engine.spaces[&space].table.get(page);
        if state == PageState::Unknown && !self.present.contains_key(&(space, page)) {
            let content = self.next_content();
            self.truth.insert((space, page), content);
            self.present.insert((space, page), content);
        }
        if self.present.contains_key(&(space, page)) {
            self.engine.adopt(space, PageRange::new(page, 1));
        }
    }

    pub(crate) fn forget(&mut self, space: SpaceId, range: PageRange) {
        self.come_together(space);
        for page in range.pages() {
            self.truth.remove(&(space, page));
            self.present.remove(&(space, page));
            // Somebody else changed the file.
            let content = self.next_content();
            if let Some(file) = self.files.get_mut(&space) {
                file.insert(page, content);
            }
        }
        self.engine.forget(space, range);
    }

    pub(crate) fn remap(&mut self, space: SpaceId, from: PageNo, to: PageNo, count: u64) {
        self.come_together(space);
        let (source, target) = (PageRange::new(from, count), PageRange::new(to, count));
        let overlap = from.0.abs_diff(to.0) < count;
        if overlap || self.is_file(space) || self.is_ambiguous(space, source, target) {
            return;
        }
        for (from, to) in source.pages().zip(target.pages()) {
            for map in [MapKind::Truth, MapKind::Present] {
                self.move_entry(map, (space, from), (space, to));
            }
        }
        self.engine.remap(space, from, to, count);
    }

    /// The case that the documentation of `remap` leaves to the driver: commands to the target are
    /// under way while pages of the source are leaving, or came back in such a way themselves.
    fn is_ambiguous(&self, space: SpaceId, source: PageRange, target: PageRange) -> bool {
        let table = &self.engine.spaces[&space].table;
        let doubtful = |page| match table.get(page) {
            PageState::Leaving { .. } => true,
            PageState::Away(_) => self.present.contains_key(&(space, page)),
            _ => false,
        };
        let to_target = |command: &Command| command.space == space && target.contains(command.page);
        source.pages().any(doubtful) && self.commands.iter().any(to_target)
    }

    fn move_entry(&mut self, map: MapKind, from: (SpaceId, PageNo), to: (SpaceId, PageNo)) {
        match map {
            MapKind::Truth => match self.truth.remove(&from) {
                Some(content) => drop(self.truth.insert(to, content)),
                None => drop(self.truth.remove(&to)),
            },
            MapKind::Present => match self.present.remove(&from) {
                Some(content) => drop(self.present.insert(to, content)),
                None => drop(self.present.remove(&to)),
            },
        }
    }

    pub(crate) fn fork(&mut self, parent: SpaceId) {
        if self.is_file(parent) {
            return;
        }
        self.come_together(parent);
        self.settle(parent);
        let child = self.engine.fork_space(parent);
        let copies = |(&(space, page), &content): (&(SpaceId, PageNo), &u64)| {
            (space == parent).then_some(((child, page), content))
        };
        let truth: Vec<_> = self.truth.iter().filter_map(copies).collect();
        let present: Vec<_> = self.present.iter().filter_map(copies).collect();
        self.truth.extend(truth);
        self.present.extend(present);
        self.spaces.push(child);
    }

    pub(crate) fn end(&mut self, space: SpaceId) {
        self.come_together(space);
        self.truth.retain(|&(other, _), _| other != space);
        self.present.retain(|&(other, _), _| other != space);
        self.spaces.retain(|&other| other != space);
        self.files.remove(&space);
        self.engine.end_space(space);
    }

    /// Everything under way comes to its end, every page is read, every program exits: then
    /// nothing may be left anywhere.
    pub(crate) fn finish(&mut self) {
        for space in self.spaces.clone() {
            for page in FIRST..FIRST + PAGES {
                self.read(space, PageNo(page), 0);
            }
        }
        self.evict(0);
        self.plan_move();
        while !self.writing.is_empty() {
            self.finish_write(0, WriteOutcome::Done);
        }
        while !self.reading.is_empty() {
            self.finish_read(0);
        }
        for space in self.spaces.clone() {
            self.end(space);
        }
        assert_eq!(self.engine.violation(), None);
        let left = self.engine.counters();
        let pages = [
            left.resident_pages,
            left.away_pages,
            left.staged_pages,
            left.same_pages,
        ];
        assert_eq!(pages, [0; 4]);
        assert_eq!(
            [
                left.store_frames_bytes,
                left.swap_used_bytes,
                left.owed_bytes
            ],
            [0; 3]
        );
        assert!(self.slots.is_empty(), "staging slots leaked");
    }
}

pub(super) fn is_to_compare(item: &FillItem) -> bool {
    matches!(item, FillItem::Packed { compares: true, .. })
}

#[derive(Clone, Copy)]
enum MapKind {
    Truth,
    Present,
}
