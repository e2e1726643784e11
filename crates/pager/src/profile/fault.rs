//! Where the time of one space's faults goes. Only the space's thread has this, and answers one fault
//! after the other; what a fault that was put off has taken so far is kept until it is tried again.

use super::{FaultPart, Profile};
use pleat_sys::procfs::CpuTimeReader;
use pleat_sys::ticks::own_cpu_ns;
use pleat_types::PageNo;
use pleat_wire::uffd::Message;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Threads whose CPU time is followed.
const THREADS_MAX: usize = 64;
/// A thread that is away for longer, without computing, slept by itself.
const NAP: Duration = Duration::from_millis(10);
/// Off its CPU for less, this thread was not: that is how exact the clocks are.
const OUTRUN_MIN_NS: u64 = 1000;

/// Times faults; without a profile it does nothing.
pub(crate) struct FaultClock(Option<Box<Timing>>);

struct Timing {
    profile: Arc<Profile>,
    /// The end of the last part.
    at: Instant,
    /// CPU time of this thread then, if it matters in the next part.
    used_ns: Option<u64>,
    /// What it takes to look at that.
    look_ns: u64,
    /// What the fault at hand has taken so far.
    spent: Spent,
    /// What faults that were put off have, and when they were.
    put_off: HashMap<Name, (Spent, Instant)>,
    threads: HashMap<u32, Thread>,
}

/// A fault: its thread and page.
type Name = (u32, PageNo);
/// Nanoseconds, by part.
type Spent = [u64; FaultPart::ALL.len()];

/// A thread of the program.
struct Thread {
    clock: CpuTimeReader,
    /// CPU time that it had used when it last faulted.
    used_ns: u64,
    /// When its last fault was answered.
    answered: Option<Instant>,
    /// It may have run before that, for so long.
    outrun_ns: u64,
}

impl FaultClock {
    /// Of a space that begins.
    pub(crate) fn new(profile: Option<&Arc<Profile>>) -> FaultClock {
        let timing = |profile: &Arc<Profile>| Timing {
            profile: profile.clone(),
            at: Instant::now(),
            used_ns: None,
            look_ns: look_ns(),
            spent: Spent::default(),
            put_off: HashMap::new(),
            threads: HashMap::new(),
        };
        FaultClock(profile.map(timing).map(Box::new))
    }

    /// The time, if there is a profile.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.0.as_ref().map(|_| Instant::now())
    }

    /// These messages were read just now, by a call that began then.
    pub(crate) fn read(&mut self, began: Option<Instant>, messages: &[Message]) {
        let (Some(timing), Some(began)) = (&mut self.0, began) else {
            return;
        };
        let thread_of = |message: &Message| match message {
            Message::Fault { thread, .. } => Some(*thread),
            _ => None,
        };
        let faults = messages.iter().filter_map(thread_of);
        let took = began.elapsed().as_nanos() as u64;
        let read = &timing.profile.faults[FaultPart::Read as usize];
        read.add_all(took, faults.clone().count() as u64);
        faults.for_each(|thread| timing.meet(thread, began));
    }

    /// What follows from so many answered faults was done, from then on.
    pub(crate) fn settled(&self, began: Option<Instant>, faults: u64) {
        if let (Some(timing), Some(began)) = (&self.0, began) {
            let took = began.elapsed().as_nanos() as u64;
            timing.profile.faults[FaultPart::Settle as usize].add_all(took, faults);
        }
    }

    /// A fault is tried: for the first time, or again after this wait.
    pub(crate) fn begin(&mut self, fault: Name, since: Instant, waited_for: FaultPart) {
        if let Some(timing) = &mut self.0 {
            let known = timing.put_off.remove(&fault);
            let (part, (spent, from)) = match known {
                Some(known) => (waited_for, known),
                None => (FaultPart::Turn, (Spent::default(), since)),
            };
            (timing.spent, timing.at) = (spent, from);
            timing.lap(part);
        }
    }

    /// A part of the fault at hand ends, and the next begins.
    pub(crate) fn lap(&mut self, part: FaultPart) {
        if let Some(timing) = &mut self.0 {
            timing.lap(part);
        }
    }

    /// So many pages were filled.
    pub(crate) fn filled(&self, pages: u64) {
        if let Some(timing) = &self.0 {
            let filled = &timing.profile.filled_pages;
            filled.fetch_add(pages, Ordering::Relaxed);
        }
    }

    /// The fault at hand has to wait.
    pub(crate) fn put_off(&mut self, fault: Name) {
        if let Some(timing) = &mut self.0 {
            timing.lap(FaultPart::Other);
            let so_far = (timing.spent, timing.at);
            timing.put_off.insert(fault, so_far);
        }
    }

    /// The fault at hand is answered; it was read then.
    pub(crate) fn answered(&mut self, (thread, _): Name, since: Instant) {
        let Some(timing) = &mut self.0 else {
            return;
        };
        timing.at = Instant::now();
        let spent = &mut timing.spent;
        let stall = (timing.at - since).as_nanos() as u64;
        spent[FaultPart::Other as usize] = 0;
        spent[FaultPart::Other as usize] = stall.saturating_sub(spent.iter().sum());
        timing.profile.answered.fetch_add(1, Ordering::Relaxed);
        for (ns, part) in spent.iter().zip(FaultPart::ALL) {
            let is_of_all = matches!(part, FaultPart::Turn | FaultPart::Other);
            if *ns > 0 || is_of_all {
                timing.profile.faults[*part as usize].add(*ns);
            }
        }
        if let Some(thread) = timing.threads.get_mut(&thread) {
            thread.answered = Some(timing.at);
            thread.outrun_ns = timing.spent[FaultPart::Outrun as usize];
        }
    }
}

/// How long it takes to look at one's own CPU time, as a rule.
fn look_ns() -> u64 {
    let mut looks = [0; 31].map(|_: u64| {
        let start = Instant::now();
        let _ = own_cpu_ns();
        start.elapsed().as_nanos() as u64
    });
    looks.sort_unstable();
    looks[looks.len() / 2]
}

impl Timing {
    fn lap(&mut self, part: FaultPart) {
        use FaultPart::{Fill, Outrun, Profiling, Settle, Unfold};
        // From the filling on the program's thread is awake, on this CPU as a rule.
        let used_ns = matches!(part, Unfold | Fill | Settle).then(own_cpu_ns);
        let now = Instant::now();
        let took = (now - self.at).as_nanos() as u64;
        let away = match (part, self.used_ns, used_ns) {
            (Fill | Settle, Some(before), Some(after)) => took.saturating_sub(after - before),
            _ => 0,
        };
        let outrun = if away < OUTRUN_MIN_NS { 0 } else { away };
        self.spent[Outrun as usize] += outrun;
        let look_ns = used_ns.map_or(0, |_| self.look_ns.min(took - outrun));
        self.spent[Profiling as usize] += look_ns;
        self.spent[part as usize] += took - outrun - look_ns;
        (self.at, self.used_ns) = (now, used_ns);
    }

    /// A fault of this thread was noticed then.
    fn meet(&mut self, thread: u32, noticed: Instant) {
        if !self.threads.contains_key(&thread) {
            if self.threads.len() >= THREADS_MAX {
                self.threads.clear();
            }
            let Ok(clock) = CpuTimeReader::open(thread as i32) else {
                return;
            };
            let new = Thread {
                clock,
                used_ns: 0,
                answered: None,
                outrun_ns: 0,
            };
            self.threads.insert(thread, new);
        }
        let known = self.threads.get_mut(&thread);
        match known.map(|thread| thread.meet(noticed)) {
            Some(Ok(Some(slept))) if slept < NAP => {
                let wake = &self.profile.faults[FaultPart::Wake as usize];
                wake.add(slept.as_nanos() as u64);
            }
            Some(Ok(_)) => {}
            // The number may be another thread's now.
            _ => drop(self.threads.remove(&thread)),
        }
    }
}

impl Thread {
    /// It has faulted: how long since its last answer, less what it computed meanwhile.
    fn meet(&mut self, noticed: Instant) -> std::io::Result<Option<Duration>> {
        let used_ns = self.clock.read()?;
        let used = Duration::from_nanos(used_ns.saturating_sub(self.used_ns));
        self.used_ns = used_ns;
        let outrun = Duration::from_nanos(self.outrun_ns);
        let away = |answered: Instant| noticed.saturating_duration_since(answered) + outrun;
        let answered = self.answered.take();
        Ok(answered.map(|answered| away(answered).saturating_sub(used)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT: Name = (u32::MAX >> 1, PageNo(7));

    #[test]
    fn the_parts_of_a_fault_that_was_put_off_add_up_to_its_stall() {
        let profile = Arc::new(Profile::new());
        let mut clock = FaultClock::new(Some(&profile));
        let since = Instant::now();
        clock.begin(FAULT, since, FaultPart::Event);
        clock.lap(FaultPart::Lock);
        clock.put_off(FAULT);
        let other = (FAULT.0, PageNo(8));
        clock.begin(other, Instant::now(), FaultPart::Event);
        clock.answered(other, Instant::now());
        std::thread::sleep(Duration::from_millis(2));
        clock.begin(FAULT, since, FaultPart::SwapRead);
        clock.lap(FaultPart::Fill);
        clock.answered(FAULT, since);
        let stall = since.elapsed().as_nanos() as u64;
        let report = profile.report().faults;
        assert_eq!((report.answered, report.parts.turn.count), (2, 2));
        assert_eq!(
            (report.parts.swap_read.count, report.parts.event.count),
            (1, 0)
        );
        assert!(report.parts.swap_read.total_ns >= 2_000_000);
        let rows = report.parts.rows();
        let sum: u64 = rows.iter().map(|(_, figures)| figures.total_ns).sum();
        // Parts are counted in ticks, whose length is known to within some 1e-5 after so short a time.
        let most = stall + stall / 1000;
        assert!(sum <= most && sum + 1_000_000 > stall, "{sum} of {stall}");
    }

    #[test]
    fn reading_is_shared_by_the_faults_that_were_read() {
        let profile = Arc::new(Profile::new());
        let mut clock = FaultClock::new(Some(&profile));
        let fault = |address| Message::Fault {
            address,
            flags: 0,
            thread: FAULT.0,
        };
        let began = clock.now();
        clock.read(began, &[fault(0), fault(4096)]);
        clock.read(clock.now(), &[]);
        assert_eq!(profile.report().faults.parts.read.count, 2);
    }

    #[test]
    fn a_thread_that_computes_between_its_faults_is_not_thought_asleep() {
        let profile = Arc::new(Profile::new());
        let mut clock = FaultClock::new(Some(&profile));
        // SAFETY: no arguments.
        let thread = unsafe { libc::gettid() } as u32;
        let fault = Message::Fault {
            address: 0,
            flags: 0,
            thread,
        };
        clock.read(clock.now(), &[fault]);
        clock.begin((thread, PageNo(0)), Instant::now(), FaultPart::Event);
        clock.answered((thread, PageNo(0)), Instant::now());
        std::thread::sleep(Duration::from_millis(3));
        clock.read(clock.now(), &[fault]);
        let wake = profile.report().faults.parts.wake;
        assert_eq!(wake.count, 1);
        assert!(wake.total_ns > 1_000_000, "{wake:?}");
    }

    #[test]
    fn without_a_profile_nothing_is_timed() {
        let mut clock = FaultClock::new(None);
        assert!(clock.now().is_none());
        clock.begin(FAULT, Instant::now(), FaultPart::Event);
        clock.answered(FAULT, Instant::now());
    }
}
