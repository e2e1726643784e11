//! The main thread: hears from processes, passes signals on, watches memory.
//!
//! It never waits for a single process: every conversation is a step per packet.

mod attached;
mod budget;
mod companions;
mod control;
mod conversations;
mod detail;
mod ease;
mod hope;
mod injecting;
mod inner;
mod killed;
mod last_threads;
mod leftovers;
mod load;
pub(crate) mod mappings;
mod memory;
mod offers;
mod own_group;
mod preparing;
mod room;
mod trust;
mod unmanaged;
pub(crate) mod users;

use crate::budget::Budget;
use crate::census::{Census, Stage};
use crate::cgroup::Gauge;
use crate::companion::Companion;
use crate::control::Control;
use crate::family::Family;
use crate::headroom::Headroom;
use crate::job::{Ending, Job, Trouble};
use crate::lookout::Lookout;
use crate::own_group::OwnGroup;
use crate::page_cache::{CacheRoom, GroupFiles};
use crate::report::Live;
use crate::shared::{lock, Link, Shared};
use crate::standins::StandIns;
use crate::stillness::Stillness;
use crate::strain::Strain;
use injecting::Injections;
use killed::OomKills;
use load::Load;
use mappings::{Asked, LeftToKernel};
use pleat_sys::channel::{Channel, Listener};
use pleat_sys::grant::Grant;
use pleat_sys::keeper::Keeper;
use pleat_sys::process::{hurry, readable, relax, wait};
use pleat_sys::signals::{self, Change, Signal, Signals};
use std::collections::HashSet;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trust::{Guest, Told};

const LIVE_EVERY: Duration = Duration::from_millis(500);
/// Warnings that processes can bring about, in one job.
const NEWS_SAID_MAX: usize = 20;

/// A job that has been started.
pub struct Started {
    /// What the threads share.
    pub shared: Arc<Shared>,
    /// Where processes say hello.
    pub listener: Listener,
    /// The program's process id, or that of the first process that was running.
    pub program: i32,
    /// Who belongs to the job.
    pub family: Family,
    /// What the supervisor may do about userfaultfd.
    pub grant: Grant,
    /// By this name processes connect.
    pub socket: String,
    /// Conversations that agents offer are taken.
    pub takes_offers: bool,
    /// The largest budget that the job can be given later, in bytes.
    pub budget_max_bytes: u64,
}

/// What was there before the job.
pub struct Ours<'a> {
    /// Collected for us.
    pub signals: &'a Signals,
    /// Outlives us.
    pub keeper: &'a Keeper,
    /// Looks out when this thread is late.
    pub lookout: &'a Lookout,
    /// What serves the job beside its processes.
    pub companions: &'a mut [Box<dyn Companion>],
    /// Processes of ours: the keeper, and those of the companions.
    pub helpers: Vec<i32>,
    /// The job's own memory cgroup, where it has one.
    pub own_group: Option<OwnGroup>,
}

/// The main thread's state.
pub struct Supervisor<'a> {
    job: &'a Job,
    shared: Arc<Shared>,
    listener: Listener,
    signals: &'a Signals,
    keeper: &'a Keeper,
    lookout: &'a Lookout,
    /// What serves the job beside its processes.
    companions: &'a mut [Box<dyn Companion>],
    /// Processes of ours: the keeper, and those of the companions.
    helpers: Vec<i32>,
    census: Census,
    family: Family,
    /// Processes that were running before are being left.
    leave: Option<attached::Leave>,
    /// When children were last looked for that have not said who they are, and how long that is to be left alone.
    children_look: (Instant, Duration),
    own_group: Option<OwnGroup>,
    gauge: Option<Gauge>,
    /// The budget that holds now.
    budget: Budget,
    budget_max_bytes: u64,
    /// How often it was changed.
    budget_changes: u64,
    /// Connections that have not said hello.
    unnamed: Vec<Guest>,
    /// What has been said of who was turned away.
    told: Told,
    /// Warnings of the threads.
    news_said: usize,
    /// Threads that have mapped a file and wait for the answer.
    asked: Vec<Asked>,
    left_to_kernel: LeftToKernel,
    /// What stands in for files, once anything was to; an error that there was is not tried again.
    stand_ins: Option<io::Result<Arc<StandIns>>>,
    /// The program's process id, and how it ended.
    program: i32,
    ending: Option<Ending>,
    /// What was done about processes that the program has left running.
    leftovers: leftovers::Leftovers,
    start: Instant,
    /// When processes were last looked for that have not said hello, and how long that is to be left alone.
    strays_at: Instant,
    strays_pause: Duration,
    users_at: Instant,
    /// Children have changed, and were not heard of.
    is_reaping_due: bool,
    /// Processes that get an agent from outside.
    injections: Injections,
    /// By this name processes connect.
    socket: String,
    /// Conversations that agents offer are taken.
    takes_offers: bool,
    /// Until then some are looked for.
    offers_until: Option<Instant>,
    live_at: Instant,
    /// Whether the job gets on, as far as it is known since it was last judged.
    hope: Option<hope::Hope>,
    /// Nothing gets on, as long as that is so.
    standstill: Option<hope::Standstill>,
    used_bytes: u64,
    /// How often it had changed what of shared memory counts once.
    segment_counts: u64,
    /// Processes were told that memory is plenty.
    is_at_ease: bool,
    /// What the kernel needs that we do not see.
    strain: Strain,
    /// What is left to the page cache.
    cache_room: CacheRoom,
    /// How much of mapped files is the limited cgroup's.
    group_files: GroupFiles,
    /// Who rests; `None`: nobody ever does.
    load: Option<Load>,
    /// What the job takes without asking.
    headroom: Headroom,
    /// When memory was last seen to grow unasked, while this thread runs ahead of other load for it.
    ahead_since: Option<Instant>,
    /// When a process became managed last.
    managed_at: Option<Instant>,
    /// What of that the job uses all the same.
    lent_bytes: u64,
    /// When pages that refused to be taken were tried again last, and how long they are to be left alone.
    stuck_retry: (Instant, Duration),
    /// When staging memory that nobody uses was last looked for.
    trimmed_at: Instant,
    /// What the job may have beyond the budget, so that what can be folded has a working set.
    overdraft_bytes: u64,
    /// What the last look counted as used because it is left to the page cache, the kernel and pages set aside.
    left_to_others_bytes: u64,
    /// What mapped files had beyond the page cache's room at the last look, as far as that counts.
    files_beyond_bytes: u64,
    /// What cannot be folded, at the last look.
    unfoldable_bytes: u64,
    /// What is in use that the engine has not given, at the last look; less than nothing where it has given what is not used yet.
    foreign_bytes: i64,
    stillness: Stillness,
    /// What is not at every look has so much time while nothing happens.
    other_looks_pause: Duration,
    /// What pleat itself had at the last look, with what it keeps compressed.
    own_bytes: u64,
    /// Where the kernel counts whom it kills for want of memory.
    oom_kills: Option<OomKills>,
    /// It has killed somebody: what helps.
    memory_remedy: Option<&'static str>,
    /// It has been said that what cannot be folded leaves no memory for the rest.
    has_told_of_unfoldable: bool,
    /// When the program was told to end, if it has had no memory since.
    told_to_end: Option<Instant>,
    /// What was said last, which is not said again.
    complaint: Option<String>,
    /// What this process may do about userfaultfd on behalf of the job's.
    grant: Grant,
    /// Programs that were named because they cannot be managed, each with the reason.
    named: HashSet<String>,
    /// Where others ask.
    control: Option<Control>,
    /// Somebody asks.
    is_asked: bool,
    /// What was told last to who watches.
    detail_told: detail::Told,
    /// When the job began, in seconds since 1970.
    started_unix_s: u64,
    /// Connections to forked children that are served and have no agent: closed, they would take us for dead.
    kept: Vec<(i32, Channel)>,
}

/// Now, in seconds since 1970.
fn unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl<'a> Supervisor<'a> {
    /// A supervisor for a program just started.
    pub fn new(job: &'a Job, started: Started, ours: Ours<'a>, start: Instant) -> Supervisor<'a> {
        let Started {
            shared,
            listener,
            program,
            family,
            grant,
            socket,
            takes_offers,
            budget_max_bytes,
        } = started;
        let Ours {
            signals,
            keeper,
            lookout,
            companions,
            helpers,
            own_group,
        } = ours;
        let mut census = Census::new(family.clone(), &helpers);
        match family.is_given() {
            true => family.roots().iter().for_each(|root| {
                census.add(root.pid, Stage::Silent, keeper);
            }),
            false => _ = census.add(program, Stage::Silent, keeper),
        }
        let budget = Budget::of(job.budget_bytes);
        Supervisor {
            job,
            shared,
            listener,
            signals,
            keeper,
            lookout,
            companions,
            helpers,
            census,
            family,
            leave: None,
            children_look: (start, Duration::ZERO),
            gauge: Gauge::open(budget.bytes),
            cache_room: CacheRoom::new(budget.cache_room_bytes, start),
            group_files: GroupFiles::default(),
            load: job
                .has_load_control()
                .then(|| Load::new(budget.bytes, start)),
            headroom: Headroom::new(budget.bytes, budget.floor_bytes, start),
            budget,
            budget_max_bytes,
            budget_changes: 0,
            unnamed: Vec::new(),
            told: Told::default(),
            news_said: 0,
            asked: Vec::new(),
            left_to_kernel: LeftToKernel::default(),
            stand_ins: None,
            program,
            ending: None,
            leftovers: leftovers::Leftovers::default(),
            start,
            strays_at: start,
            strays_pause: Duration::ZERO,
            users_at: start,
            is_reaping_due: false,
            injections: Injections::default(),
            socket,
            takes_offers,
            offers_until: None,
            live_at: start,
            hope: None,
            standstill: None,
            used_bytes: 0,
            segment_counts: 0,
            is_at_ease: false,
            strain: Strain::default(),
            ahead_since: None,
            managed_at: None,
            lent_bytes: 0,
            overdraft_bytes: 0,
            left_to_others_bytes: 0,
            files_beyond_bytes: 0,
            unfoldable_bytes: 0,
            foreign_bytes: 0,
            stillness: Stillness::new(start),
            other_looks_pause: Duration::ZERO,
            own_bytes: 0,
            memory_remedy: None,
            oom_kills: OomKills::open(own_group.as_ref()),
            own_group,
            stuck_retry: (start, Duration::ZERO),
            trimmed_at: start,
            has_told_of_unfoldable: false,
            told_to_end: None,
            complaint: None,
            grant,
            named: HashSet::new(),
            kept: Vec::new(),
            control: None,
            is_asked: false,
            detail_told: detail::Told::default(),
            started_unix_s: unix_s(),
        }
    }

    /// Until the program has ended and nothing of the job is away.
    pub fn run(&mut self) -> Ending {
        let ending = self.serve();
        self.tell_of_kills(&ending);
        // What is left to do takes its time (a swap file of 25 MB that is closed: 18 ms), and others look after
        // their jobs as this thread did. Ahead of them, it kept them waiting until the scheduler's next tick.
        relax();
        ending
    }

    fn serve(&mut self) -> Ending {
        // Threads that are started by it are not to hurry.
        self.open_control();
        // Until a process is managed, as the space's thread does until it has taken charge of what is there.
        // Else 64 threads that fill fresh memory are far over the budget before: it takes several wake-ups, each
        // behind all of them.
        hurry(0);
        loop {
            let pause = self.look_at_memory();
            self.lookout.looked(self.ahead_since.map(|_| pause));
            let is_called = self.wait(pause);
            self.hear_signals();
            self.settle_injections();
            if self.is_reaping_due {
                self.reap();
            }
            let failure = lock(&self.shared.failure).take();
            if let Some(failure) = failure {
                return self.stop(failure.to_string());
            }
            if is_called {
                self.accept();
            }
            self.hear_control();
            self.hear_unnamed();
            self.hear_processes();
            self.answer_file_requests();
            self.hear_companions();
            self.hear_news();
            if self.family.is_given() {
                self.look_after_given();
            }
            if self.ending.is_some() && self.release_rest() {
                return self.ending.take().expect("just seen");
            }
        }
    }

    /// Ends the job because pleat cannot keep its promise.
    fn stop(&mut self, message: String) -> Ending {
        self.tell_trouble(Trouble::Stopped, &message);
        self.end_all();
        Ending::Stopped { message }
    }

    /// Ends every process of the job, managed or not.
    fn end_all(&self) {
        self.census.kill_everybody(&self.helpers);
    }

    /// Waits for something to happen; answers whether somebody wants to connect.
    ///
    /// Only then is it worth asking: an accept in vain has made and freed a socket in the kernel, and under
    /// load what is freed stays for a while. Asked at every look, that came to 3 MiB.
    fn wait(&mut self, pause: Duration) -> bool {
        let mut fds = vec![
            readable(self.listener.as_raw_fd()),
            readable(self.signals.as_raw_fd()),
            readable(self.shared.main_bell.as_raw_fd()),
        ];
        fds.extend(self.own_group.as_ref().and_then(OwnGroup::notices));
        fds.extend(
            self.unnamed
                .iter()
                .map(|guest| readable(guest.channel.as_raw_fd())),
        );
        fds.extend(
            self.census
                .processes
                .values()
                .filter_map(|p| match &p.stage {
                    Stage::Ready(channel) | Stage::Preparing(channel, _) => {
                        Some(readable(channel.as_raw_fd()))
                    }
                    _ => None,
                }),
        );
        let control_at = fds.len();
        fds.extend(self.control.iter().flat_map(Control::to_poll));
        wait(&mut fds, Some(pause));
        self.is_asked = fds[control_at..].iter().any(|fd| fd.revents != 0);
        if fds[2].revents != 0 {
            self.shared.main_bell.hush();
        }
        fds[0].revents != 0
    }

    // ---- signals and children

    fn hear_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            if !matches!(
                signal.number,
                libc::SIGCHLD | libc::SIGWINCH | libc::SIGXFSZ
            ) {
                self.pause_load_control();
            }
            match signal.number {
                libc::SIGCHLD => self.reap(),
                _ if self.family.is_given() => self.hear_about_given(signal.number),
                // The swap file met a limit; the write has failed and says so.
                libc::SIGXFSZ => {}
                // The whole foreground group has got it, the program included.
                libc::SIGINT | libc::SIGQUIT if signal.from_terminal => self.note_told_to_end(),
                libc::SIGTSTP if signal.from_terminal => {}
                libc::SIGWINCH | libc::SIGHUP if signal.from_terminal => {}
                _ => self.pass_on(signal),
            }
        }
    }

    fn note_told_to_end(&mut self) {
        self.told_to_end.get_or_insert_with(Instant::now);
    }

    fn pass_on(&mut self, signal: Signal) {
        // The keeper's has woken us, and the program goes on already.
        let is_of_others = ![self.program, self.keeper.pid()].contains(&signal.sender);
        if self.ending.is_none() && is_of_others {
            if matches!(signal.number, libc::SIGTERM | libc::SIGINT | libc::SIGQUIT) {
                self.note_told_to_end();
            }
            signals::send(self.program, signal.number);
        }
    }

    /// Hears of children. Put off while one of them is traced by a thread of ours (see [`signals::next_change`]).
    fn reap(&mut self) {
        self.is_reaping_due = self.injections.are_children_traced();
        if self.is_reaping_due {
            return;
        }
        while let Some((pid, change)) = signals::next_change() {
            if pid != self.program {
                continue;
            }
            match change {
                Change::Exited(status) => self.ending = Some(Ending::Exited(status)),
                Change::Killed(signal) => self.ending = Some(Ending::Signalled(signal)),
                // What started us is to see that its job is stopped.
                Change::Stopped(_) => {
                    if let Some(Ok(stand_ins)) = &self.stand_ins {
                        stand_ins.give_up_all(&self.shared);
                    }
                    self.keeper.stop_with(self.program);
                }
                Change::Continued | Change::Traced => {}
            }
        }
    }

    /// The program has ended: processes that have nothing away are let go. `true` when none is left
    /// that needs us.
    fn release_rest(&mut self) -> bool {
        if self.job.kill_on_exit {
            // At each look while there are any: one may just have been forked by another.
            self.end_all();
        }
        // Who has said nothing yet is not waited for: a child that has memory away has a space already.
        let mut needed = false;
        for process in self.census.processes.values_mut() {
            match &process.stage {
                Stage::Ready(channel) => {
                    trust::release(channel);
                    process.stage = Stage::Unmanageable;
                }
                Stage::Preparing(..) => needed = true,
                Stage::Managed(link) => needed |= !link.is_over(),
                Stage::Silent | Stage::Unmanageable => {}
            }
        }
        let is_left = |link: &Arc<Link>| link.why_unservable().is_some() && link.is_over();
        let is_over = !needed && lock(&self.shared.links).iter().all(is_left);
        match is_over {
            true => self.bury(),
            false => self.look_after_leftovers(),
        }
        is_over
    }

    /// Says what threads have to say.
    fn hear_news(&mut self) {
        let news = std::mem::take(&mut *lock(&self.shared.news));
        let room = NEWS_SAID_MAX.saturating_sub(self.news_said);
        self.news_said = self.news_said.saturating_add(news.len());
        news.iter().take(room).for_each(|news| self.warn(news));
        if room > 0 && news.len() >= room {
            self.warn("more of this kind is not said");
        }
    }

    fn show(&mut self) {
        let Some(live) = self.job.live else { return };
        if self.live_at.elapsed() < LIVE_EVERY {
            return;
        }
        self.live_at = Instant::now();
        let counters = self.shared.engine().counters();
        live(&Live {
            used_bytes: self.used_bytes,
            budget_bytes: self.budget.bytes,
            pages_away: counters.contents_away(),
            swap_bytes: counters.swap_used_bytes,
            faults: self.shared.meters.faults.get(),
            wall_us: self.start.elapsed().as_micros() as u64,
        });
    }

    /// Tells who wants to know before it is so.
    fn tell_trouble(&self, trouble: Trouble, message: &str) {
        if let Some(tell) = &self.job.trouble {
            tell(trouble, message);
        }
    }

    fn warn(&mut self, text: &str) {
        if !self.job.quiet && self.complaint.as_deref() != Some(text) {
            eprintln!("pleat: {text}");
            self.complaint = Some(text.into());
        }
    }
}
