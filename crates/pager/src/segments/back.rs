//! Bringing back all that is away of a segment, for a job that is to be left.
//!
//! By this thread, which has the segment alone: pages are written into the memory itself, so it does not matter which process
//! maps which part of it. Who faulted on one of them meanwhile finds it there.

use super::{Segment, Segments, State};
use crate::ends::Failure;
use crate::fold::{unfold_item, Press};
use crate::shared::Shared;
use crate::space::reads::Reads;
use pleat_engine::{FaultAnswer, FillPlan};
use pleat_sys::process::readable;
use pleat_sys::take_out::TakeOut;
use pleat_types::{PageNo, PageRange, PAGE_SIZE};
use std::time::Duration;

/// A read is looked at so often, though it has not called.
const READ_LOOK: Duration = Duration::from_millis(100);
/// Between two tries to bring back a page that is just being folded.
const PAUSE: Duration = Duration::from_millis(1);

enum Step {
    Done,
    Next,
    Later,
}

/// What it takes.
pub(super) struct Back {
    press: Press,
    reads: Reads,
    plan: FillPlan,
}

impl Back {
    pub(super) fn new(shared: &Shared) -> Back {
        Back {
            press: Press::new(shared),
            reads: Reads::new(),
            plan: FillPlan::default(),
        }
    }
}

impl Segments {
    /// Brings all of it back, and nothing is known of it from then on; unless that is not wanted any more.
    pub(super) fn bring_back(
        &self,
        shared: &Shared,
        segment: &Segment,
        (taker, back): (&mut TakeOut, &mut Back),
    ) {
        let mut next = segment.pages().start;
        while !shared.is_over() {
            // A page at a time: others fill meanwhile.
            let step = segment.alone(shared, |state| {
                // It may be that all is to stay away by now.
                if *state != State::Served || !self.is_left(segment) {
                    return Step::Done;
                }
                // If so for a while, pages were taken that lie behind.
                let away = segment.first_away(shared, next);
                let away = away.or_else(|| segment.first_away(shared, segment.base));
                let Some(page) = away else {
                    shared.engine().forget(segment.space, segment.pages());
                    *state = State::Gathering;
                    return Step::Done;
                };
                next = page;
                match self.bring_page(shared, segment, page, back) {
                    true => Step::Next,
                    false => Step::Later,
                }
            });
            match step {
                Step::Done => return,
                Step::Next => {}
                Step::Later => {
                    // It may be among those that this thread is to take.
                    self.take_chosen(shared, taker);
                    shared.machine.pause(PAUSE);
                }
            }
        }
    }

    /// `false`: later.
    fn bring_page(
        &self,
        shared: &Shared,
        segment: &Segment,
        page: PageNo,
        back: &mut Back,
    ) -> bool {
        let mut bytes = [0; PAGE_SIZE];
        let answer = {
            let mut engine = shared.engine();
            let answer = engine.fault(segment.space, page, true, &mut back.plan);
            if answer == FaultAnswer::Fill {
                crate::space::copy_staged(shared, &back.plan, &mut bytes);
            }
            answer
        };
        match answer {
            FaultAnswer::Fill => {}
            FaultAnswer::Read => return read(shared, back),
            FaultAnswer::Wait | FaultAnswer::NoMemory => return false,
        }
        let item = back.plan.items[0];
        let unfolded = unfold_item(
            shared,
            back.press.folder(),
            item,
            &back.plan.bytes,
            &mut bytes,
        );
        if let Err(failure) = unfolded {
            shared.fail(failure);
            return false;
        }
        if segment
            .memory
            .write(segment.offset_of(page), &bytes)
            .is_err()
        {
            shared.fail(Failure::SharedNotPutBack);
            return false;
        }
        shared
            .engine()
            .filled(segment.space, PageRange::new(page, 1));
        true
    }
}

impl Segment {
    /// Its first page from there on that is away.
    fn first_away(&self, shared: &Shared, from: PageNo) -> Option<PageNo> {
        let away = shared.engine().first_away(self.space, from);
        away.filter(|page| self.pages().contains(*page))
    }
}

/// Has the planned pages read, and waits for that.
fn read(shared: &Shared, back: &mut Back) -> bool {
    let Some(store) = &shared.swap else {
        return false;
    };
    let begun = back
        .reads
        .begin(store, &back.plan.reads, shared.machine.now());
    let landed = begun.and_then(|_| loop {
        match back.reads.land(shared, store) {
            Ok(false) if !shared.is_over() => {
                let mut ended = [readable(back.reads.descriptor())];
                shared.machine.wait(&mut ended, Some(READ_LOOK));
            }
            other => break other,
        }
    });
    match landed {
        Ok(landed) => landed,
        Err(failure) => {
            shared.fail(failure);
            false
        }
    }
}
