//! The pager's protocol on a simulated machine: the code that serves processes (`space`, `link`, `take`, `reclaim`, `parallel`,
//! `fold` and the engine) is the real one; kernel, agents, programs and the supervisor's main thread are played.
//!
//! Everything runs on one thread, and whoever runs next is drawn by a seed: each thread of the pager, of an agent or of a program
//! is a coroutine, which may be left at each call of a port ([`crate::ports`]), and at each step of what is played. Time is
//! virtual. So a seed tells a history, the same again each time, and a history that fails is made smaller ([`shrink`]).
//!
//! What must hold at each step:
//!
//! - every page that a program reads has the content written last, over forks, moves and what it gave up;
//! - no bytes are put in place that are no page's;
//! - no thread waits for a page for longer than half a minute of virtual time, and the history comes to its end;
//! - no process is ended that kept to the rules, whatever others do;
//! - what is to stay in memory does;
//! - who is left has all its memory, and whoever is to be left is;
//! - no lock is held where a thread may be left (it would stand still).
//!
//! ```text
//!  program threads --- touch, munmap, fork ... ---> kernel <--- copy, protect, read --- the space's thread (real)
//!        ^                                            ^                                        |
//!        +------ agent: take, by move_pages ----------+        <------- commands, answers -----+
//! ```

mod agent;
mod kernel;
mod leaving;
mod machine;
mod page;
mod process;
mod program;
mod shared;
mod supervisor;
mod tests;
mod uffd;
mod world;

use std::fmt;

/// SplitMix64.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// What may happen in a history besides touches of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// MADV_DONTNEED.
    GiveUp,
    /// munmap, and other memory in its place.
    Unmap,
    /// mremap.
    Move,
    /// fork with the C library's handlers.
    Fork,
    /// fork without.
    RawFork,
    /// MADV_WIPEONFORK and MADV_DONTFORK.
    ForkAdvice,
    /// Pages pinned and locked for a while.
    Pin,
    /// MADV_GUARD_INSTALL.
    Guard,
    /// Signals that have waiting threads look again.
    Signal,
    /// SIGSTOP and SIGCONT, also in the middle of a take-away.
    Stop,
    /// SIGKILL.
    Kill,
    /// Processes that say what no agent says.
    Lie,
    /// Moves that are counted wrong, fills that are cut short.
    Kernel,
    /// Agents are put in from outside while programs run, which announce nothing; their children get theirs late.
    Attach,
    /// Some pages are to stay in memory from now on.
    Keep,
    /// The processes are left, or are to be and then not; then they are taken on again.
    Leave,
    /// Memory that they share by forks.
    Share,
}

/// Lines of a log that are shown.
const LINES: usize = 60;

/// All of it.
pub const TROUBLES: [Trouble; 17] = [
    Trouble::GiveUp,
    Trouble::Unmap,
    Trouble::Move,
    Trouble::Fork,
    Trouble::RawFork,
    Trouble::ForkAdvice,
    Trouble::Pin,
    Trouble::Guard,
    Trouble::Signal,
    Trouble::Stop,
    Trouble::Kill,
    Trouble::Lie,
    Trouble::Kernel,
    Trouble::Attach,
    Trouble::Keep,
    Trouble::Leave,
    Trouble::Share,
];

/// A history to be.
#[derive(Clone, Debug)]
pub struct History {
    pub seed: u64,
    /// Processes at the beginning.
    pub processes: u64,
    /// Threads of each.
    pub threads: u64,
    /// What each thread does before it ends.
    pub deeds: u64,
    /// Pages that each process touches, about.
    pub pages: u64,
    pub troubles: Vec<Trouble>,
}

impl History {
    /// The history of a seed, which draws its size as well.
    pub fn of(seed: u64) -> History {
        let mut random = Random::new(seed ^ 0x9D5C_0FFE);
        let troubles = TROUBLES.into_iter().filter(|_| random.one_in(2)).collect();
        History {
            seed,
            processes: 1 + random.below(3),
            threads: 1 + random.below(4),
            deeds: 50 + random.below(300),
            pages: 128 + random.below(256),
            troubles,
        }
    }

    pub fn has(&self, trouble: Trouble) -> bool {
        self.troubles.contains(&trouble)
    }

    /// Plays it; answers what came of it.
    ///
    /// # Errors
    /// What did not hold.
    pub fn play(&self) -> Result<Tally, Violation> {
        world::play(self, false)
    }

    /// Smaller ones.
    fn smaller(&self) -> Vec<History> {
        let mut all: Vec<History> = (0..self.troubles.len())
            .map(|at| {
                let mut one = self.clone();
                one.troubles.remove(at);
                one
            })
            .collect();
        let sizes: [fn(&mut History) -> &mut u64; 4] = [
            |one| &mut one.deeds,
            |one| &mut one.processes,
            |one| &mut one.threads,
            |one| &mut one.pages,
        ];
        for size in sizes {
            for part in [2, 4] {
                let mut one = self.clone();
                let field = size(&mut one);
                let less = (*field - *field / part).max(1);
                if std::mem::replace(field, less) != less {
                    all.push(one);
                }
            }
        }
        all
    }
}

/// What there was in histories: that what is to be tried does happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub steps: u64,
    pub faults: u64,
    pub take_commands: u64,
    pub taken_pages: u64,
    pub forks: u64,
    pub protected_forks: u64,
    pub unshared_pages: u64,
    /// Faults put off: for an event, for a page on its way out, for memory.
    pub put_off: [u64; 3],
    /// Pages that refused to be taken: as stale, gone, for another reason.
    pub refused: [u64; 3],
    pub revoked_commands: u64,
    pub helped_faults: u64,
    pub neighbour_pages: u64,
    pub announced_mappings: u64,
    pub ended_processes: u64,
    pub kept_pages: u64,
    pub late_agents: u64,
    pub left_processes: u64,
    /// Times that processes were to be left and then were not.
    pub stays: u64,
    /// Shared memory that was served, and its pages: taken away, filled, put back at once.
    pub segments: u64,
    pub segment_taken_pages: u64,
    pub segment_filled_pages: u64,
    pub segment_put_back_pages: u64,
}

impl Tally {
    /// With those of another history.
    pub fn add(&mut self, other: &Tally) {
        let sum = |a: &mut [u64; 3], b: &[u64; 3]| a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        self.steps += other.steps;
        self.faults += other.faults;
        self.take_commands += other.take_commands;
        self.taken_pages += other.taken_pages;
        self.forks += other.forks;
        self.protected_forks += other.protected_forks;
        self.unshared_pages += other.unshared_pages;
        sum(&mut self.put_off, &other.put_off);
        sum(&mut self.refused, &other.refused);
        self.revoked_commands += other.revoked_commands;
        self.helped_faults += other.helped_faults;
        self.neighbour_pages += other.neighbour_pages;
        self.announced_mappings += other.announced_mappings;
        self.ended_processes += other.ended_processes;
        self.kept_pages += other.kept_pages;
        self.late_agents += other.late_agents;
        self.left_processes += other.left_processes;
        self.stays += other.stays;
        self.segments += other.segments;
        self.segment_taken_pages += other.segment_taken_pages;
        self.segment_filled_pages += other.segment_filled_pages;
        self.segment_put_back_pages += other.segment_put_back_pages;
    }
}

/// What did not hold, and when.
#[derive(Debug)]
pub struct Violation {
    pub history: History,
    pub step: u64,
    pub what: String,
    /// What happened before, the last things only.
    pub log: Vec<String>,
}

impl Violation {
    /// What did not hold, without the figures.
    fn kind(&self) -> String {
        let words = self.what.split_whitespace();
        let words = words.filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
        words.take(6).collect()
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = match std::env::var_os("PLEAT_SIM_WHOLE_LOG") {
            Some(_) => usize::MAX,
            None => LINES,
        };
        for line in &self.log[self.log.len().saturating_sub(most)..] {
            writeln!(f, "    {line}")?;
        }
        writeln!(f, "{:?}", self.history)?;
        write!(f, "step {}: {}", self.step, self.what)
    }
}

/// Steps that are spent on making a history smaller.
const SHRINK_STEPS: u64 = 20_000_000;

/// The smallest history found that fails as well, and with what it was written down.
pub fn shrink(violation: Violation) -> Violation {
    let (mut least, mut steps) = (violation, 0);
    while let Some(found) = fails_smaller(&least, &mut steps) {
        least = found;
    }
    match world::play(&least.history, true) {
        Err(logged) => logged,
        Ok(_) => least,
    }
}

fn fails_smaller(least: &Violation, steps: &mut u64) -> Option<Violation> {
    for smaller in least.history.smaller() {
        // The dice fall differently in a smaller history: a few seeds are tried.
        for nth in 0..8 {
            if *steps > SHRINK_STEPS {
                return None;
            }
            let seed = smaller.seed.wrapping_add(nth);
            let one = History {
                seed,
                ..smaller.clone()
            };
            match one.play() {
                Ok(tally) => *steps += tally.steps,
                Err(found) if found.kind() == least.kind() => return Some(found),
                Err(found) => *steps += found.step,
            }
        }
    }
    None
}
