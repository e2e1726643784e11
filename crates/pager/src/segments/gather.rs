//! Closing the set of a segment's mappings: no page is taken before every one is registered.
//!
//! All processes of the machine are looked through, not those of the job alone: one that cannot be asked, or is not managed,
//! keeps the segment as it is. Every other is asked to register what it maps (`space/segments.rs`), which ends when it has
//! heard of all forks that copied the mapping before. Children of such forks are found by the next look. A look that finds
//! nobody but spaces that had registered before it began closes the set:
//!
//! - Whoever maps the segment at the end of the look and was not seen was forked during it, by somebody who was seen or was
//!   forked so himself. All seen were registered, so the kernel has let none of these forks end before it was reported here
//!   (a fork waits until its event is read), and the child's mapping is registered like its parent's.
//! - A child of a fork that was made before its parent registered has a space before its parent counts as registered. The look
//!   may have missed it, as it may have missed anybody who came meanwhile: so every space that there is after the look must have
//!   been there before, and have joined, or be of a process that was known.
//!
//! Looks go on afterwards, now and then: a stranger in the set is a fault of ours, or has opened the memory by
//! /proc/PID/map_files, and the segment is given back.

use super::{Segment, Segments, State};
use crate::shared::{lock, Link, Shared};
use pleat_types::{PageRange, PAGE_SIZE};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks at a segment whose set is not closed: first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The same where it is.
const PAUSE_SERVED: Duration = Duration::from_secs(2);

/// So many looks in a row find a stranger before he is believed.
const SUSPECTED_MAX: u32 = 3;

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Not all have registered.
    Open,
    /// All have, and the segment is served.
    Closed,
    /// Nobody maps it.
    Ended,
}

/// When each segment is to be looked at next.
#[derive(Default)]
pub(super) struct Gathering(HashMap<super::Identity, (Instant, Duration)>);

impl Gathering {
    /// Whether it is time for a look.
    pub(super) fn is_due(&self, segment: &Segment, now: Instant) -> bool {
        let next = self.0.get(&segment.identity());
        next.is_none_or(|(at, _)| *at <= now)
    }

    /// How long there is nothing to look at.
    pub(super) fn patience(&self, now: Instant) -> Duration {
        let next = self
            .0
            .values()
            .map(|(at, _)| at.saturating_duration_since(now));
        next.min().unwrap_or(Duration::MAX)
    }

    /// There is nothing to look at any more.
    pub(super) fn forget(&mut self, segment: &Segment) {
        self.0.remove(&segment.identity());
    }

    pub(super) fn note(&mut self, segment: &Segment, outcome: Outcome, now: Instant) {
        let identity = segment.identity();
        let pause = match outcome {
            Outcome::Ended => return self.forget(segment),
            Outcome::Closed => PAUSE_SERVED,
            Outcome::Open => {
                let before = self
                    .0
                    .get(&identity)
                    .map_or(Duration::ZERO, |(_, pause)| *pause);
                (before * 2).clamp(PAUSE_MIN, PAUSE_MAX)
            }
        };
        self.0.insert(identity, (now + pause, pause));
    }
}

impl Segments {
    /// Looks who maps a segment, and has it served, left alone or ended accordingly.
    pub(super) fn gather(&self, shared: &Shared, segment: &Arc<Segment>) -> Outcome {
        let before = Before::of(shared, segment);
        // Who is older than the supervisor is no fork of the job's, and has none of it.
        let Ok(mappers) = shared.machine.mappers_of(segment.identity()) else {
            return Outcome::Open;
        };
        if mappers.is_empty() {
            return self.end_unmapped(shared, segment, &before);
        }
        let mut is_closed = true;
        let mut strangers = Vec::new();
        for mapper in &mappers {
            let link = lock(&shared.by_pid).get(&mapper.pid).cloned();
            let link = link.filter(|link| !link.uffd.is_dead());
            match link {
                _ if mapper.is_private => is_closed = false,
                Some(link) if before.has_joined(&link) => {}
                Some(link) if segment.has(&link) => is_closed = false,
                Some(link) => {
                    is_closed = false;
                    lock(&link.mail).segments.push(segment.clone());
                    link.bell.ring();
                }
                None => strangers.push(mapper.pid),
            }
        }
        // Between vfork and exec a child is in its parent's memory.
        let is_in_memory_of_user = |pid: &i32| {
            let mut users = mappers.iter().filter(|one| !strangers.contains(&one.pid));
            users.any(|user| shared.machine.share_memory(*pid, user.pid))
        };
        is_closed &= strangers.iter().all(is_in_memory_of_user);
        if is_closed && !before.has_more_come(shared) {
            return self.serve(shared, segment, &before);
        }
        self.suspect(shared, segment, strangers.len());
        Outcome::Open
    }

    /// So many processes map it that have not registered it. Where it is served they must be children that are just being
    /// forked, or ends that nobody has heard of.
    fn suspect(&self, shared: &Shared, segment: &Segment, strangers: usize) {
        let newborn = segment.links().into_iter();
        let newborn = newborn.filter(|link| link.pid.load(Ordering::Acquire) == 0);
        if strangers <= newborn.count() || !segment.is_served() {
            return segment.suspected.store(0, Ordering::Relaxed);
        }
        if segment.suspected.fetch_add(1, Ordering::Relaxed) + 1 < SUSPECTED_MAX {
            return;
        }
        shared.tell(
            "shared memory of the job is mapped by a process that is not managed, which may have read zeros in it; it is not \
             compressed any more"
                .into(),
        );
        segment.is_given_up.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Its set is closed: what is there is known from now on, and may be taken.
    fn serve(&self, shared: &Shared, segment: &Segment, before: &Before) -> Outcome {
        segment.alone(shared, |state| {
            // Who is about to be left counts no more.
            let mut joined = before.joined.iter();
            if joined.any(|link| !link.is_over() && !segment.has(link)) {
                return Outcome::Open;
            }
            if *state != State::Gathering {
                return Outcome::Closed;
            }
            let runs = segment.memory.runs();
            let (Ok(runs), false) = (runs, self.is_left(segment)) else {
                return Outcome::Open;
            };
            for (offset, len) in runs {
                let pages = len.div_ceil(PAGE_SIZE as u64);
                let range = PageRange::new(segment.page_at(offset), pages);
                shared.engine().adopt(segment.space, range);
            }
            *state = State::Served;
            self.count_once(segment);
            shared.meters.segments.add(1);
            Outcome::Closed
        })
    }

    /// Nobody maps it, and nobody can any more: a mapping that is just being copied by a fork is its parent's, too, until the
    /// fork is known here.
    fn end_unmapped(&self, shared: &Shared, segment: &Segment, before: &Before) -> Outcome {
        if before.has_more_come(shared) || !segment.links().is_empty() {
            // A space that has not heard of its end yet, or a child that is not known.
            return Outcome::Open;
        }
        segment.alone(shared, |state| *state = State::Ended);
        lock(&self.segments).remove(&segment.base);
        shared.engine().forget(segment.space, segment.pages());
        Outcome::Ended
    }
}

/// The spaces that there were before a look.
struct Before {
    /// Those that had registered all they map of the segment.
    joined: Vec<Arc<Link>>,
    /// Others whose process was known: a look at all processes finds what they map.
    known: Vec<Arc<Link>>,
}

impl Before {
    fn of(shared: &Shared, segment: &Segment) -> Before {
        let links = lock(&shared.links).clone();
        let (joined, others): (Vec<_>, Vec<_>) =
            links.into_iter().partition(|link| segment.has(link));
        let is_known = |link: &Arc<Link>| link.pid.load(Ordering::Acquire) != 0;
        Before {
            joined,
            known: others.into_iter().filter(is_known).collect(),
        }
    }

    fn has_joined(&self, link: &Arc<Link>) -> bool {
        self.joined.iter().any(|one| Arc::ptr_eq(one, link))
    }

    /// Whether there is a space now that a look may have missed.
    fn has_more_come(&self, shared: &Shared) -> bool {
        let links = lock(&shared.links);
        let known = self.joined.iter().chain(&self.known);
        let known: Vec<_> = known.map(Arc::as_ptr).collect();
        let mut new = links
            .iter()
            .filter(|link| !known.contains(&Arc::as_ptr(link)));
        new.any(|link| !link.ended.load(Ordering::Acquire))
    }
}
