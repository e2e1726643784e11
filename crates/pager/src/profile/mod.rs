//! Where the time of faults and evictions goes, part by part, for `--profile`.
//!
//! Threads time what they do with a [`Stopwatch`], a space's thread its faults with a [`FaultClock`], and
//! agents their take-aways if they are asked to. Without `--profile` both do nothing, and read no clock.
//! With it a fault takes 2 to 3 us longer: a dozen looks at the clock, and four at how much CPU time threads
//! have used.

mod fault;

pub use crate::histogram::Figures;
pub(crate) use fault::FaultClock;

use crate::histogram::Histogram;
use pleat_sys::ticks::ticks;
use pleat_wire::message::{Taken, TAKE_MAX, TOOK, TOOK_SHARED};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A move that takes longer had to interrupt a CPU that ran the program, and wait for it.
const SLOW_NS: u64 = 10_000;

/// Makes an enum of parts, and a report with the figures of each.
macro_rules! parts {
    ($part:ident, $report:ident, $($(#[$doc:meta])* $field:ident = $name:ident,)*) => {
        /// What time goes to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $part { $($(#[$doc])* $name,)* }

        impl $part {
            const ALL: &[$part] = &[$($part::$name,)*];
        }

        /// How long each part took.
        #[derive(Clone, Copy, Debug, Default, Serialize)]
        pub struct $report { $($(#[$doc])* pub $field: Figures,)* }

        impl $report {
            fn of(histograms: &[Histogram]) -> $report {
                $report { $($field: histograms[$part::$name as usize].figures(),)* }
            }

            /// Every part by its name.
            #[must_use]
            pub fn rows(&self) -> Vec<(&'static str, Figures)> {
                vec![$((stringify!($field), self.$field),)*]
            }
        }
    };
}

parts! { FaultPart, FaultParts,
    /// Before the fault was noticed: the thread getting to run after its last fault, and pleat's thread hearing of this one. An estimate: the time between the two, less the CPU time that the thread used; not counted for first faults of threads, nor from 10 ms on, when the thread slept by itself.
    wake = Wake,
    /// Reading the message, an equal part for each fault read at once.
    read = Read,
    /// Waiting for its turn, behind other faults and events.
    turn = Turn,
    /// Waiting while it was the turn of other processes, with which its own thrashed.
    rest = Rest,
    /// Waiting for the engine's lock.
    lock = Lock,
    /// Asking the engine what the page is, and copying its compressed bytes.
    lookup = Lookup,
    /// Asking the kernel whether a page that was never touched is really one of the program's own.
    check = Check,
    /// Making the pages: decompressing, filling with zeros or a repeated word, copying from a mapped file.
    unfold = Unfold,
    /// Putting the pages in place and waking the thread (UFFDIO_COPY).
    fill = Fill,
    /// Telling the engine what was filled, with the wait for its lock.
    settle = Settle,
    /// Put off until an event of the address space was read.
    event = Event,
    /// Put off until the page, which was on its way out, had arrived.
    leaving = Leaving,
    /// Put off until memory was free.
    memory = Memory,
    /// Asking for the page in the swap file, and put off until it was read.
    swap_read = SwapRead,
    /// Put off until a mapped file was read.
    file_read = FileRead,
    /// The rest of the time between the reading of the fault and its answer.
    other = Other,
    /// Time between the filling and the answer in which pleat's thread was off its CPU: woken, the program ran ahead of it. Nobody waits meanwhile, but `report.stall_us` has it; where it was not the program that ran, the next fault's `wake` has it, too.
    outrun = Outrun,
    /// What finding that out has cost.
    profiling = Profiling,
}

parts! { EvictionPart, EvictionParts,
    /// Choosing what goes and making the command.
    choose = Choose,
    /// From the command until the agent begins.
    wake = Wake,
    /// Moving pages out of the program, with the wait for the lock on that.
    move_out = MoveOut,
    /// Copying them to the ring.
    copy = Copy,
    /// Freeing them.
    free = Free,
    /// From the agent's end until its answer is heard.
    answer = Answer,
    /// Telling the engine what was taken, with the wait for its lock.
    stage = Stage,
    /// From then until a folding thread takes the page.
    queue = Queue,
    /// Compressing it.
    fold = Fold,
    /// Putting the compressed bytes into the store, with the wait for the engine's lock.
    store = Store,
}

/// Running figures of one job; any thread adds to them.
pub struct Profile {
    faults: [Histogram; FaultPart::ALL.len()],
    evictions: [Histogram; EvictionPart::ALL.len()],
    answered: AtomicU64,
    filled_pages: AtomicU64,
    taken_pages: AtomicU64,
    moves: AtomicU64,
    interrupted_moves: AtomicU64,
    /// The same moment by two clocks.
    start: (Instant, u64),
}

/// What a profile comes to.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ProfileReport {
    /// Of faults.
    pub faults: FaultProfile,
    /// Of evictions.
    pub evictions: EvictionProfile,
}

/// Where the time of faults went.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct FaultProfile {
    /// Faults answered.
    pub answered: u64,
    /// Pages filled by these, neighbours included.
    pub filled_pages: u64,
    /// Part by part, each counted once for a fault that it was a part of.
    #[serde(flatten)]
    pub parts: FaultParts,
}

/// Where the time of evictions went.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct EvictionProfile {
    /// Pages that agents took.
    pub taken_pages: u64,
    /// Calls that moved pages out of a program, up to 16 pages each.
    pub moves: u64,
    /// Of these, how many took longer than 10 us: another CPU had to be interrupted.
    pub interrupted_moves: u64,
    /// Part by part, each an equal share for the pages of a command.
    #[serde(flatten)]
    pub parts: EvictionParts,
}

impl Profile {
    /// Of nothing yet.
    pub(crate) fn new() -> Profile {
        Profile {
            faults: [const { Histogram::new() }; FaultPart::ALL.len()],
            evictions: [const { Histogram::new() }; EvictionPart::ALL.len()],
            answered: AtomicU64::new(0),
            filled_pages: AtomicU64::new(0),
            taken_pages: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            interrupted_moves: AtomicU64::new(0),
            start: (Instant::now(), ticks()),
        }
    }

    /// What it comes to so far.
    pub(crate) fn report(&self) -> ProfileReport {
        let get = |total: &AtomicU64| total.load(Ordering::Relaxed);
        ProfileReport {
            faults: FaultProfile {
                answered: get(&self.answered),
                filled_pages: get(&self.filled_pages),
                parts: FaultParts::of(&self.faults),
            },
            evictions: EvictionProfile {
                taken_pages: get(&self.taken_pages),
                moves: get(&self.moves),
                interrupted_moves: get(&self.interrupted_moves),
                parts: EvictionParts::of(&self.evictions),
            },
        }
    }

    /// When agents are to take a move for a slow one: never 0.
    pub(crate) fn slow_ticks(&self) -> u64 {
        let (ns, ticks) = self.lengths();
        scale(SLOW_NS, ticks, ns).max(1)
    }

    /// Nanoseconds and ticks since the start.
    fn lengths(&self) -> (u64, u64) {
        let (start, start_ticks) = self.start;
        let ticks = ticks().saturating_sub(start_ticks);
        ((start.elapsed().as_nanos() as u64).max(1), ticks.max(1))
    }

    /// A command that was sent then was carried out, and its answer heard just now.
    pub(crate) fn taken(&self, sent: u64, taken: &Taken) {
        let heard = ticks();
        let times = &taken.times;
        let count = (taken.count as usize).min(TAKE_MAX);
        let is_taken = |status: &&u8| matches!(**status, TOOK | TOOK_SHARED);
        let pages = taken.status[..count].iter().filter(is_taken).count() as u64;
        self.taken_pages.fetch_add(pages, Ordering::Relaxed);
        self.moves
            .fetch_add(u64::from(times.moves), Ordering::Relaxed);
        self.interrupted_moves
            .fetch_add(u64::from(times.slow_moves), Ordering::Relaxed);
        let (ns, ticks) = self.lengths();
        let freed = times.ended.saturating_sub(times.copying);
        for (part, from, to) in [
            (EvictionPart::Wake, sent, times.began),
            (EvictionPart::MoveOut, times.began, times.moved),
            (EvictionPart::Copy, 0, times.copying),
            (EvictionPart::Free, times.moved, freed),
            (EvictionPart::Answer, times.ended, heard),
        ] {
            let took_ns = scale(to.saturating_sub(from), ns, ticks);
            self.evictions[part as usize].add_all(took_ns, pages);
        }
    }

    /// A page that was staged then is taken to be folded.
    pub(crate) fn unqueued(&self, staged: Instant) {
        let waited = staged.elapsed().as_nanos() as u64;
        self.evictions[EvictionPart::Queue as usize].add(waited);
    }
}

/// `value * to / from`.
fn scale(value: u64, to: u64, from: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(to) / u128::from(from);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Times parts of an eviction, one after the other; without a profile it does nothing.
pub(crate) struct Stopwatch<'a>(Option<(&'a Profile, Instant)>);

impl Stopwatch<'_> {
    /// Begins the first part.
    pub(crate) fn start(profile: Option<&Profile>) -> Stopwatch<'_> {
        Stopwatch(profile.map(|profile| (profile, Instant::now())))
    }

    /// This part ends, and the next begins.
    pub(crate) fn lap(&mut self, part: EvictionPart) {
        self.lap_each(part, 1);
    }

    /// As [`Stopwatch::lap`], for so many pages at once.
    pub(crate) fn lap_each(&mut self, part: EvictionPart, pages: usize) {
        if let Some((profile, since)) = &mut self.0 {
            let now = Instant::now();
            let took = (now - *since).as_nanos() as u64;
            profile.evictions[part as usize].add_all(took, pages as u64);
            *since = now;
        }
    }

    /// What was done since the last part is none.
    pub(crate) fn skip(&mut self) {
        if let Some((_, since)) = &mut self.0 {
            *since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pleat_wire::message::{TakeTimes, BUSY, TAKEN};

    #[test]
    fn a_take_away_is_shared_out_among_its_pages() {
        let profile = Profile::new();
        std::thread::sleep(std::time::Duration::from_millis(5));
        let (ns, tick_count) = profile.lengths();
        let ticks_of = |us: u64| scale(us * 1000, tick_count, ns);
        let began = ticks();
        let mut taken = Taken {
            kind: TAKEN,
            count: 5,
            status: [BUSY; TAKE_MAX],
            times: TakeTimes {
                began,
                moved: began + ticks_of(40),
                ended: began + ticks_of(100),
                copying: ticks_of(20),
                moves: 2,
                slow_moves: 1,
            },
        };
        taken.status[..4].fill(TOOK);
        profile.taken(began - ticks_of(80), &taken);
        let report = profile.report().evictions;
        assert_eq!((report.taken_pages, report.moves), (4, 2));
        assert_eq!(report.interrupted_moves, 1);
        let parts = report.parts;
        for (figures, us) in [
            (parts.wake, 80),
            (parts.move_out, 40),
            (parts.copy, 20),
            (parts.free, 40),
        ] {
            assert_eq!(figures.count, 4);
            assert!(
                figures.total_ns.abs_diff(us * 1000) < us * 50,
                "{figures:?}"
            );
        }
    }

    #[test]
    fn an_agent_that_tells_nonsense_breaks_nothing() {
        let profile = Profile::new();
        let taken = Taken {
            kind: TAKEN,
            count: u32::MAX,
            status: [TOOK; TAKE_MAX],
            times: TakeTimes {
                began: u64::MAX,
                copying: u64::MAX,
                ..TakeTimes::default()
            },
        };
        profile.taken(0, &taken);
        assert_eq!(profile.report().evictions.taken_pages, TAKE_MAX as u64);
    }

    #[test]
    fn laps_follow_each_other_and_are_nothing_without_a_profile() {
        let profile = Profile::new();
        let mut clock = Stopwatch::start(Some(&profile));
        clock.lap_each(EvictionPart::Choose, 3);
        clock.skip();
        clock.lap(EvictionPart::Fold);
        let parts = profile.report().evictions.parts;
        assert_eq!((parts.choose.count, parts.fold.count), (3, 1));
        Stopwatch::start(None).lap(EvictionPart::Fold);
    }
}
