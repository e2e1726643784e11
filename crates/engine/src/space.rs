//! One address space: its page table, the age of its resident pages, and the commands to take
//! pages that are under way. `Space::change` is the one place where a page changes its state.
//!
//! A command names an address. Between choosing and report the page may be given up or moved by
//! the program, and another may come to that address. So each command that no longer simply means
//! "the page at its address" has a list of the pages its report may be about. A page taken is
//! given to all of them: those that are really present never fault and so never see it.

use std::collections::HashMap;

use pleat_policy::Backed;
use pleat_types::{PageNo, PageRange};

use crate::blocks::{Habit, OpenVisits};
use crate::copies::Copies;
use crate::heat::Heat;
use crate::residents::{Manner, Residents};
use crate::scouts::Time;
use crate::streams::Streams;
use crate::table::{PageState, PageTable};
use crate::BodyId;

/// Page table entries by state, over all spaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageCounts {
    pub(crate) resident: u64,
    pub(crate) leaving: u64,
    pub(crate) stuck: u64,
    pub(crate) away: u64,
}

impl PageCounts {
    /// Pages that occupy memory of a program.
    pub(crate) fn present(&self) -> u64 {
        self.resident + self.leaving + self.stuck
    }

    pub(crate) fn add(&mut self, other: PageCounts) {
        self.resident += other.resident;
        self.leaving += other.leaving;
        self.stuck += other.stuck;
        self.away += other.away;
    }

    fn of(&mut self, state: PageState) -> Option<&mut u64> {
        match state {
            PageState::Unknown => None,
            PageState::Resident { .. } => Some(&mut self.resident),
            PageState::Leaving { .. } => Some(&mut self.leaving),
            PageState::Stuck => Some(&mut self.stuck),
            PageState::Away(_) => Some(&mut self.away),
        }
    }

    fn enter(&mut self, state: PageState) {
        self.of(state).into_iter().for_each(|count| *count += 1);
    }

    fn leave(&mut self, state: PageState) {
        self.of(state).into_iter().for_each(|count| *count -= 1);
    }
}

/// Which pages a report is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// None: given up meanwhile, or there was no such command.
    Nothing,
    /// The page at the address of the command, as usual.
    Same(PageNo),
    /// Pages that moved or came to that address meanwhile.
    Strays(Vec<PageNo>),
}

impl Subject {
    pub(crate) fn pages(&self) -> &[PageNo] {
        match self {
            Subject::Nothing => &[],
            Subject::Same(page) => std::slice::from_ref(page),
            Subject::Strays(pages) => pages,
        }
    }
}

/// An address space, or the pages of a file.
#[derive(Clone)]
pub(crate) struct Space {
    /// Where its pages come from and go to. A file is never forked, and nothing of it moved.
    pub(crate) backed: Backed,
    /// Its program does not run for a while, and uses none of its pages.
    pub(crate) rests: bool,
    /// Pages that are present and have a copy in the swap file, which is as they are: where the driver reports every
    /// write, and then `CLEAN` in the table; else as they were (`copies.rs`).
    pub(crate) copies: Copies,
    pub(crate) table: PageTable,
    pub(crate) residents: Residents,
    pub(crate) heat: Heat,
    pub(crate) streams: Streams,
    /// What is usual in its blocks.
    pub(crate) habit: Habit,
    /// Visits of blocks that go on.
    pub(crate) visits: OpenVisits,
    /// Entries of `table` by state.
    counts: PageCounts,
    /// Commands that do not simply mean the page at their address (the key). Every page listed is
    /// `Leaving`. Almost always empty.
    strays: HashMap<PageNo, Vec<PageNo>>,
}

impl Space {
    /// A space of which nothing is known.
    pub(crate) fn new(backed: Backed) -> Space {
        Space {
            backed,
            rests: false,
            copies: Copies::default(),
            table: PageTable::default(),
            residents: Residents::default(),
            heat: Heat::default(),
            streams: Streams::default(),
            habit: Habit::default(),
            visits: OpenVisits::default(),
            counts: PageCounts::default(),
            strays: HashMap::new(),
        }
    }

    /// Whether the program may find another page at this address than a command meant to take.
    pub(crate) fn is_contested(&self, page: PageNo) -> bool {
        !self.strays.is_empty() && self.strays.contains_key(&page)
    }

    /// Changes the state of one page; returns what it was.
    pub(crate) fn change(
        &mut self,
        page: PageNo,
        to: PageState,
        counts: &mut PageCounts,
    ) -> PageState {
        let from = self.table.set(page, to);
        assert!(
            from.may_become(to),
            "page {page:?} went from {from:?} to {to:?}"
        );
        #[cfg(test)]
        crate::tests::transitions::note_page(from, to);
        for counts in [counts, &mut self.counts] {
            counts.leave(from);
            counts.enter(to);
        }
        if matches!(from, PageState::Resident { .. }) {
            self.residents.outdated(&self.table);
        }
        from
    }

    /// A page is present at this address, younger than all others; returns what the state was.
    pub(crate) fn arrive(
        &mut self,
        page: PageNo,
        stamp: u64,
        counts: &mut PageCounts,
    ) -> PageState {
        if self.is_contested(page) {
            let strays = self.strays.entry(page).or_default();
            if !strays.contains(&page) {
                strays.push(page);
            }
            return self.change(page, PageState::Leaving { stamp }, counts);
        }
        let before = self.change(page, PageState::Resident { stamp }, counts);
        self.residents.push_youngest(page, stamp);
        before
    }

    /// The run came because its first page was wanted.
    pub(crate) fn wanted(&mut self, run: PageRange) {
        let Space {
            table, residents, ..
        } = self;
        let resident = residents.pace().1;
        residents.rounds.come(run.len());
        table.wanted(run, &mut residents.rounds, resident);
    }

    /// Pages by state.
    pub(crate) fn counts(&self) -> PageCounts {
        self.counts
    }

    /// The resident page to go next, and the stamp by which it is compared with those of other spaces.
    pub(crate) fn oldest(&mut self, clock: &mut u64, manner: Manner) -> Option<(PageNo, u64)> {
        self.residents.oldest(&mut self.table, clock, manner)
    }

    /// A clean page keeps this body as its copy.
    pub(crate) fn retain(&mut self, page: PageNo, body: BodyId) {
        self.table.set_clean(page, true);
        self.hold(page, body);
    }

    /// A page that may be changed at any time keeps this body as its copy, until it is compared.
    pub(crate) fn hold(&mut self, page: PageNo, body: BodyId) {
        self.copies.insert(page, body);
    }

    /// The copy that a page has elsewhere, which it is not to be the copy of any more.
    pub(crate) fn give_up_copy(&mut self, page: PageNo) -> Option<BodyId> {
        if self.copies.is_empty() {
            return None;
        }
        let body = self.copies.remove(page)?.body;
        if self.table.is_clean(page) {
            self.table.set_clean(page, false);
        }
        Some(body)
    }

    /// Puts the oldest resident page, just looked up, under a command; whether it only passed in a round.
    pub(crate) fn choose_oldest(
        &mut self,
        page: PageNo,
        clock: &mut u64,
        counts: &mut PageCounts,
    ) -> bool {
        let stamp = self.table.get(page).stamp();
        let passed = self.residents.pop_oldest(&mut self.table, clock);
        self.change(page, PageState::Leaving { stamp }, counts);
        passed
    }

    /// A page whose command was cancelled is resident again and as old as it was.
    pub(crate) fn restore(&mut self, page: PageNo, counts: &mut PageCounts) {
        let PageState::Leaving { stamp } = self.table.get(page) else {
            return;
        };
        self.change(page, PageState::Resident { stamp }, counts);
        self.residents.restore(page, stamp);
    }

    /// A command was reported on and is over: which pages was it about? All are `Leaving`.
    pub(crate) fn settle(&mut self, page: PageNo) -> Subject {
        if !self.strays.is_empty() {
            match self.strays.remove(&page) {
                Some(pages) if pages.is_empty() => return Subject::Nothing,
                Some(pages) => return Subject::Strays(pages),
                None if self.is_stray(page) => return Subject::Nothing,
                None => {}
            }
        }
        match self.table.get(page) {
            PageState::Leaving { .. } => Subject::Same(page),
            _ => Subject::Nothing,
        }
    }

    /// Whether a page is on the list of a command under way.
    pub(crate) fn is_stray(&self, page: PageNo) -> bool {
        self.strays.values().flatten().any(|&stray| stray == page)
    }

    /// No command is about this page any more; returns whether one was.
    pub(crate) fn strike(&mut self, page: PageNo) -> bool {
        let mut found = false;
        for pages in self.strays.values_mut() {
            let before = pages.len();
            pages.retain(|&stray| stray != page);
            found |= pages.len() < before;
        }
        found
    }

    /// Makes a range unknown and appends what was there. Commands under way remain, for their
    /// reports are still to come, but are no longer about these pages.
    pub(crate) fn forget(
        &mut self,
        range: PageRange,
        counts: &mut PageCounts,
        out: &mut Vec<(PageNo, PageState)>,
    ) {
        let first = out.len();
        self.detach(range, counts, out);
        for &(page, state) in &out[first..] {
            if matches!(state, PageState::Leaving { .. }) && !self.strike(page) {
                self.strays.insert(page, Vec::new());
            }
        }
    }

    /// Makes a range unknown, appends what was there, and leaves the commands to the caller.
    pub(crate) fn detach(
        &mut self,
        range: PageRange,
        counts: &mut PageCounts,
        out: &mut Vec<(PageNo, PageState)>,
    ) {
        let first = out.len();
        self.table.drain(range, out);
        for &(_, state) in &out[first..] {
            counts.leave(state);
            self.counts.leave(state);
            if matches!(state, PageState::Resident { .. }) {
                self.residents.outdated(&self.table);
            }
        }
    }

    /// What was detached at `from` is now at `to`, where nothing is known.
    pub(crate) fn attach(
        &mut self,
        (from, to): (PageNo, PageNo),
        state: PageState,
        stamp: u64,
        counts: &mut PageCounts,
    ) {
        match state {
            PageState::Unknown | PageState::Away(_) => {
                self.change(to, state, counts);
            }
            PageState::Stuck if !self.is_contested(to) => {
                self.change(to, state, counts);
            }
            PageState::Stuck | PageState::Resident { .. } => {
                self.arrive(to, stamp, counts);
            }
            PageState::Leaving { .. } => {
                self.redirect(from, to);
                self.change(to, state, counts);
            }
        }
    }

    /// The commands about the page that was at `from` are about the one at `to` now.
    fn redirect(&mut self, from: PageNo, to: PageNo) {
        if self.is_stray(from) {
            for page in self
                .strays
                .values_mut()
                .flatten()
                .filter(|page| **page == from)
            {
                *page = to;
            }
        } else {
            self.strays.insert(from, vec![to]);
        }
        if let Some(pages) = self
            .strays
            .get_mut(&to)
            .filter(|pages| !pages.contains(&to))
        {
            pages.push(to);
        }
    }

    /// A copy for a forked child, in which nothing is under way.
    pub(crate) fn fork(&self) -> Space {
        Space {
            strays: HashMap::new(),
            streams: Streams::default(),
            ..self.clone()
        }
    }

    /// Every body that a page of this space names or keeps as its copy, once per page.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = BodyId> + '_ {
        let named = self.table.known().filter_map(|(_, state)| match state {
            PageState::Away(body) => Some(body),
            _ => None,
        });
        named.chain(self.copies.iter().map(|(_, copied)| copied.body))
    }

    /// Bytes of the tables.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        let visits = self.visits.capacity() * size_of::<(PageNo, Time)>();
        self.table.metadata_bytes()
            + self.residents.metadata_bytes()
            + self.copies.metadata_bytes()
            + visits as u64
    }

    /// Counts the states by looking at every page.
    pub(crate) fn count(&self) -> PageCounts {
        let mut counts = PageCounts::default();
        self.table
            .known()
            .for_each(|(_, state)| counts.enter(state));
        counts
    }

    pub(crate) fn is_valid(&self) -> bool {
        let leaving = |page: &PageNo| matches!(self.table.get(*page), PageState::Leaving { .. });
        self.table.is_valid()
            && self.counts == self.count()
            && self.residents.is_valid(&self.table)
            && self.strays.values().flatten().all(leaving)
            && self.copies.iter().all(|(page, copied)| {
                let is_clean = self.table.is_clean(page);
                self.table.get(page).is_present() && !(is_clean && copied.was.is_some())
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "went from Resident")]
    fn a_page_that_was_not_chosen_is_not_away() {
        let mut space = Space::new(Backed::BySwap);
        let mut counts = PageCounts::default();
        space.arrive(PageNo(3), 1, &mut counts);
        space.change(PageNo(3), PageState::Away(BodyId(0)), &mut counts);
    }
}
