//! Which arrows of the two tables of states a test has gone along: those of bodies and those of pages.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::Debug;
use std::mem::{discriminant, Discriminant};

use crate::bodies::{everywhere, BodyState};
use crate::table::PageState;
use crate::BodyId;

type Arrows<T> = HashSet<(Discriminant<T>, Discriminant<T>)>;

thread_local! {
    static BODIES: RefCell<Arrows<BodyState>> = RefCell::default();
    static PAGES: RefCell<Arrows<PageState>> = RefCell::default();
}

/// The engine under test has changed the state of a body.
pub(crate) fn note_body(from: BodyState, to: BodyState) {
    BODIES.with_borrow_mut(|seen| seen.insert((discriminant(&from), discriminant(&to))));
}

/// The engine under test has changed the state of a page.
pub(crate) fn note_page(from: PageState, to: PageState) {
    PAGES.with_borrow_mut(|seen| seen.insert((discriminant(&from), discriminant(&to))));
}

/// Arrows of the tables that no engine of this thread has gone along, but for those by which nothing changes that
/// could be lost: there is a place for them in the table, and nobody goes there now.
pub(super) fn missed() -> Vec<String> {
    let bodies = arrows(&everywhere(), BodyState::may_become);
    let pages = [
        PageState::Unknown,
        PageState::Resident { stamp: 1 },
        PageState::Leaving { stamp: 1 },
        PageState::Stuck,
        PageState::Away(BodyId(1)),
    ];
    let mut pages = arrows(&pages, PageState::may_become);
    pages.retain(|&(from, to)| !is_idle(from, to));
    let mut missed = BODIES.with_borrow(|seen| missing(&bodies, seen));
    missed.extend(PAGES.with_borrow(|seen| missing(&pages, seen)));
    missed
}

/// A page that stays what it is, and one that is there whatever becomes of it.
fn is_idle(from: PageState, to: PageState) -> bool {
    use PageState::*;
    matches!(
        (from, to),
        (Unknown, Unknown) | (Leaving { .. }, Leaving { .. }) | (Stuck, Leaving { .. })
    )
}

fn arrows<T: Copy>(states: &[T], may_become: fn(T, T) -> bool) -> Vec<(T, T)> {
    let pairs = states
        .iter()
        .flat_map(|&from| states.iter().map(move |&to| (from, to)));
    pairs.filter(|&(from, to)| may_become(from, to)).collect()
}

fn missing<T: Debug>(arrows: &[(T, T)], seen: &Arrows<T>) -> Vec<String> {
    let is_missing = |(from, to): &&(T, T)| !seen.contains(&(discriminant(from), discriminant(to)));
    let missing = arrows.iter().filter(is_missing);
    missing
        .map(|(from, to)| format!("{from:?} to {to:?}"))
        .collect()
}
