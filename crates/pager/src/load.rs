//! Load control: where a job's processes together use more than there is memory for, and are more than there are CPUs,
//! some rest while others run, and they take turns.
//!
//! A kernel runs all that is runnable. Four compilers on two CPUs, in memory for two, always have half of what each
//! needs, and spend their time bringing pages back. Two that run while two rest have all of it, and the CPUs are as
//! busy as before. Who rests finds no answer to its next fault until its turn comes; that is all that happens to it,
//! and a fault may take long in any case.
//!
//! ```text
//!  line   A  B | C  D     A and B run, which keeps two CPUs busy; C and D wait at their next fault
//!         B  C | D  A     A has had its turn
//!         C  D | A        B has ended, or sleeps
//!           run  rest
//! ```
//!
//! What must not happen, and why it does not:
//!
//! - *CPUs are idle because somebody rests.* In the line stands only who wants a CPU all the time. One that runs and does
//!   not want it any more leaves the line, and another runs instead.
//! - *Somebody rests for good.* Turns end, whatever those whose turn it is do: also where one of them looks
//!   all the time for what only one that rests can do. And where turns are over and begin anew, who has waited is first.
//! - *A program that others wait for rests.* Only who has wanted a CPU nearly all of a second stands in the line, so a
//!   server that sleeps between requests never rests. One that is busy without a break may; it cannot be told from a compiler.
//! - *A signal finds nobody.* After one that ends, stops or interrupts a job nobody rests for a while.
//!
//! That fewer programs at a time get more done where all wait for pages is Denning's (*Thrashing: its causes and
//! prevention*, AFIPS 1968; *Working sets past and present*, IEEE TSE 6(1), 1980). That Linux should
//! let one process at a time keep its pages is Jiang's and Zhang's (*Token-ordered LRU*, Performance Evaluation
//! 60, 2005); there the others go on and take the CPU for their faults.

use pleat_types::SpaceId;
use std::time::{Duration, Instant};

/// Between two looks at who wants a CPU.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Who wants a CPU for this part of the time, in the mean, wants it all the time: waking up after a fault takes the rest.
const STEADY_CPUS: f32 = 0.8;
/// Who wants it for less sleeps, even when that was the last look or two only.
const ASLEEP_CPUS: f32 = 0.4;
const ASLEEP_LOOKS: u32 = 2;
/// The means are over about so many looks.
const LOOKS: f32 = 8.0;
/// So many looks are to be seen of a process, or of the job, before anything follows from them.
const LOOKS_MIN: u32 = 10;
/// Turns begin when waiting for pages takes this part of the CPUs: bringing back what a process needs for its turn
/// takes about as much.
const THRASHING_PART: f32 = 1.0 / 12.0;
/// ... and when so much more is wanted of the CPUs than there is.
const CROWDED_CPUS: f32 = 0.6;
/// So much less than all CPUs may be wanted by those who run.
const IDLE_CPUS: f32 = 0.25;
/// When all pages would fit into the budget but for one part of it in so many, nobody need rest.
const FITS_PART: u64 = 10;
/// A turn is so many times as long as it takes to bring back what a process has in memory in its turn, at this time a
/// page...
const REFILLS: u32 = 20;
const REFILL_PAGE: Duration = Duration::from_micros(20);
/// ... but nobody rests for longer than this, unless there are so many that turns would be shorter than that.
const REST_MAX: Duration = Duration::from_secs(30);
const TURN_MIN: Duration = Duration::from_secs(1);

/// After a signal nobody rests for so long.
const PAUSE: Duration = Duration::from_secs(5);

/// What a process was seen to do since the last look.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Who.
    pub id: SpaceId,
    /// CPUs that its threads used or waited for, or would have used had they not waited for pages.
    pub cpus: f32,
    /// The same of its busiest thread.
    pub busiest: f32,
    /// Of these, what it waited for pages.
    pub stalled: f32,
    /// Pages that it has in memory.
    pub pages: u64,
}

/// One that is known.
#[derive(Clone, Copy, Debug)]
struct Member {
    id: SpaceId,
    /// Means of what was seen while it did not rest.
    cpus: f32,
    busiest: f32,
    stalled: f32,
    looks: u32,
    /// Looks since it was last seen to want a CPU.
    asleep: u32,
    pages: u64,
    place: Place,
    /// It was made to rest, and has not had a whole turn since.
    is_owed: bool,
}

/// Where a process stands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// Not in line: it runs.
    Free,
    /// It is its turn, since then.
    Runs(Instant),
    /// It is not, since then.
    Rests(Instant),
}

impl Member {
    fn new(id: SpaceId) -> Member {
        Member {
            id,
            cpus: 0.0,
            busiest: 0.0,
            stalled: 0.0,
            looks: 0,
            asleep: 0,
            pages: 0,
            place: Place::Free,
            is_owed: false,
        }
    }

    /// It rests from now on, whose turn it has not been.
    fn make_rest(&mut self, now: Instant) {
        self.place = Place::Rests(now);
        self.is_owed = true;
    }

    fn note(&mut self, seen: &Seen) {
        if matches!(self.place, Place::Rests(_)) {
            return;
        }
        self.asleep = match seen.busiest < ASLEEP_CPUS {
            true => self.asleep + 1,
            false => 0,
        };
        self.looks += 1;
        // What one did before that sleeps leaves the CPU idle all the same.
        let looks = match self.asleep >= ASLEEP_LOOKS {
            true => 1.0,
            false => LOOKS.min(self.looks as f32),
        };
        let weight = 1.0 / looks;
        let approach = |mean: &mut f32, seen: f32| *mean += (seen - *mean) * weight;
        approach(&mut self.cpus, seen.cpus);
        approach(&mut self.busiest, seen.busiest);
        approach(&mut self.stalled, seen.stalled);
        self.pages = seen.pages;
    }

    fn is_steady(&self) -> bool {
        self.looks >= LOOKS_MIN && self.busiest >= STEADY_CPUS && self.asleep == 0
    }
}

/// Who of a job rests.
#[derive(Debug)]
pub struct LoadControl {
    cpus: f32,
    budget_pages: u64,
    members: Vec<Member>,
    /// Looks in a row at which the job thrashed.
    thrashing: u32,
    /// When a turn last began.
    changed: Instant,
    /// Until then nobody rests.
    paused_until: Instant,
}

impl LoadControl {
    /// Nobody rests. The job has so many CPUs, and a budget of so many pages.
    pub fn new(cpus: usize, budget_pages: u64, now: Instant) -> LoadControl {
        LoadControl {
            cpus: cpus as f32,
            budget_pages,
            members: Vec::new(),
            thrashing: 0,
            changed: now,
            paused_until: now,
        }
    }

    /// From now on the job has a budget of so many pages.
    pub fn set_budget(&mut self, budget_pages: u64) {
        self.budget_pages = budget_pages;
    }

    /// Nobody rests for a while.
    pub fn pause(&mut self, now: Instant) {
        for member in &mut self.members {
            member.place = Place::Free;
        }
        self.paused_until = now + PAUSE;
    }

    /// Whether that process is to rest.
    pub fn rests(&self, id: SpaceId) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.id == id && matches!(member.place, Place::Rests(_)))
    }

    /// Only these processes are left. Answers how many turns begin.
    pub fn keep(&mut self, now: Instant, ids: &[SpaceId]) -> u64 {
        self.members.retain(|member| ids.contains(&member.id));
        self.begin_turns(now)
    }

    /// This was seen of processes; `known_pages` are the pages of all, in memory or not. Answers how many turns begin.
    pub fn look(&mut self, now: Instant, seen: &[Seen], known_pages: u64) -> u64 {
        self.note(seen);
        if self.resting().next().is_none() {
            let is_due = now >= self.paused_until && self.is_due(known_pages);
            return if is_due { self.line_up(now) } else { 0 };
        }
        let fits = self.fits(known_pages);
        for member in &mut self.members {
            match member.place {
                _ if fits => member.place = Place::Free,
                Place::Runs(_) if member.asleep >= ASLEEP_LOOKS => member.place = Place::Free,
                Place::Free if member.is_steady() => member.make_rest(now),
                _ => {}
            }
        }
        self.end_turn(now);
        self.begin_turns(now)
    }

    /// Whether there is so much room that nobody need rest.
    pub fn fits(&self, known_pages: u64) -> bool {
        known_pages < self.budget_pages - self.budget_pages / FITS_PART
    }

    fn note(&mut self, seen: &[Seen]) {
        for seen in seen {
            let known = self.members.iter().position(|member| member.id == seen.id);
            let index = known.unwrap_or_else(|| {
                self.members.push(Member::new(seen.id));
                self.members.len() - 1
            });
            self.members[index].note(seen);
        }
        let sum = |of: fn(&Member) -> f32| self.members.iter().map(of).sum::<f32>();
        let thrashes = sum(|member| member.cpus) >= self.cpus + CROWDED_CPUS
            && sum(|member| member.stalled) >= self.cpus * THRASHING_PART;
        self.thrashing = if thrashes { self.thrashing + 1 } else { 0 };
    }

    /// Whether turns should begin.
    fn is_due(&self, known_pages: u64) -> bool {
        let steady = self.members.iter().filter(|member| member.is_steady());
        self.thrashing >= LOOKS_MIN && known_pages > self.budget_pages && steady.count() >= 2
    }

    /// Turns begin: all that are steady stand in line, those with most in memory first. But before them those that turns
    /// before have left waiting: turns are over, too, when a CPU is idle for a moment, and begin again a moment later. Who had all
    /// the memory then would always be first, and the others would rest for good.
    fn line_up(&mut self, now: Instant) -> u64 {
        self.members
            .sort_by_key(|member| std::cmp::Reverse((member.is_owed, member.pages)));
        for member in &mut self.members {
            member.place = match member.is_steady() {
                true => Place::Rests(now),
                false => Place::Free,
            };
        }
        let turns = self.begin_turns(now);
        for member in &mut self.members {
            member.is_owed |= matches!(member.place, Place::Rests(_));
        }
        turns
    }

    /// Who has had its turn goes to the end of the line, one after the other.
    fn end_turn(&mut self, now: Instant) {
        let (turn, count) = (self.turn(), self.running().count() as u32);
        let Some((since, index)) = self.running().min_by_key(|(since, _)| *since) else {
            return;
        };
        if now - since >= turn && now - self.changed >= turn / 2 / count {
            self.members[index].place = Place::Rests(now);
            self.members[index].is_owed = false;
        }
    }

    /// As many run as it takes to keep the CPUs busy.
    fn begin_turns(&mut self, now: Instant) -> u64 {
        let mut turns = 0;
        while self.leaves_cpus_idle() {
            let Some((_, index)) = self.resting().min_by_key(|(since, _)| *since) else {
                break;
            };
            self.members[index].place = Place::Runs(now);
            self.changed = now;
            turns += 1;
        }
        turns
    }

    fn leaves_cpus_idle(&self) -> bool {
        let awake = self
            .members
            .iter()
            .filter(|member| !matches!(member.place, Place::Rests(_)));
        let wanted: f32 = awake.map(|member| member.cpus).sum();
        let nobody = self.running().next().is_none();
        nobody || wanted < self.cpus - IDLE_CPUS
    }

    /// How long a turn is.
    fn turn(&self) -> Duration {
        let (run, rest) = (self.running().count().max(1), self.resting().count().max(1));
        let share = self.budget_pages / run as u64;
        let refill = REFILL_PAGE * share.min(1 << 20) as u32;
        let fair = REST_MAX * run as u32 / rest as u32;
        (refill * REFILLS).min(REST_MAX).min(fair).max(TURN_MIN)
    }

    fn running(&self) -> impl Iterator<Item = (Instant, usize)> + '_ {
        self.numbered(|place| match place {
            Place::Runs(since) => Some(since),
            _ => None,
        })
    }

    fn resting(&self) -> impl Iterator<Item = (Instant, usize)> + '_ {
        self.numbered(|place| match place {
            Place::Rests(since) => Some(since),
            _ => None,
        })
    }

    /// Since when members stand where they stand, and which they are.
    fn numbered(
        &self,
        since: fn(Place) -> Option<Instant>,
    ) -> impl Iterator<Item = (Instant, usize)> + '_ {
        let members = self.members.iter().enumerate();
        members.filter_map(move |(index, member)| Some((since(member.place)?, index)))
    }
}

#[cfg(test)]
mod tests;
