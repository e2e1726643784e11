//! Who is there, who runs next, and what time it is.

use super::kernel::{Event, Kernel, Mm, Page};
use super::process::{Hello, Process, Socket};
use super::{supervisor, History, Random, Tally, Trouble, Violation};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

/// What a step takes.
const STEP_NS: u64 = 1_000;
/// No history takes so many steps.
const STEPS_MAX: u64 = 3_000_000;
/// No history takes so long.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// Lines of the log that are kept.
const LOG_MAX: usize = 100_000;

/// A condition that a task waits for.
type Condition = Box<dyn Fn(&World) -> bool>;

/// What a task waits for: this, or that time.
struct Wait {
    is_over: Condition,
    until_ns: Option<u64>,
}

/// A thread of somebody's.
pub struct Task {
    name: &'static str,
    /// Whose; `None`: of the supervisor.
    owner: Option<i32>,
    coroutine: Coroutine<(), (), ()>,
    /// By which it can be left, once it has begun.
    yielder: *const Yielder<(), ()>,
    wait: Option<Wait>,
}

/// All there is.
pub struct World {
    pub history: History,
    pub kernel: Kernel,
    pub random: Random,
    pub now_ns: u64,
    pub steps: u64,
    pub processes: BTreeMap<i32, Process>,
    pub sockets: Vec<Socket>,
    /// Whether each bell rings.
    pub bells: Vec<bool>,
    pub hellos: VecDeque<Hello>,
    /// What each page of an object must hold, if not zeros.
    pub shared_truth: Vec<BTreeMap<Page, u64>>,
    /// Robust locks that threads have, or are about to take: in which pages.
    pub robust: BTreeMap<i32, Vec<Page>>,
    /// What each private page of an address space must hold, if not zeros.
    pub truth: Vec<BTreeMap<Page, u64>>,
    /// Pages that nobody may touch (guards).
    pub guarded: Vec<BTreeSet<Page>>,
    /// Pages that are just being given up: they hold that, or zeros.
    pub doubtful: Vec<BTreeMap<Page, u32>>,
    /// Pages that must be there, for the kernel writes to them when a thread ends.
    pub kept: Vec<BTreeSet<Page>>,
    /// All that is away is to come back, and the processes are left.
    pub is_leaving: bool,
    /// Tokens put into beacons.
    pub tokens: BTreeMap<Mm, [u64; 2]>,
    /// Address spaces of children that do not run yet, by parent.
    pub unborn: Vec<(i32, Mm)>,
    /// Address spaces that are going, and when they are gone.
    dying: Vec<(Mm, u64)>,
    next_id: i32,
    /// Forks that are about to be made.
    pub forking: usize,
    pub forks: u64,
    pub writes: u64,
    pub tally: Tally,
    start: Instant,
    tasks: Vec<Task>,
    wait: Option<Wait>,
    violation: Option<String>,
    log: Option<VecDeque<String>>,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(std::ptr::null()) };
}

/// Looks at the world, or changes it.
pub fn with<T>(look: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with(|world| look(world.borrow_mut().as_mut().expect("a history is played")))
}

/// A place where anything else may happen first.
pub fn step() {
    let goes_on = with(|world| {
        world.steps += 1;
        world.now_ns += STEP_NS;
        world.random.one_in(2)
    });
    if !goes_on {
        leave();
    }
}

/// Leaves this task until that is so, or so much time has passed.
pub fn wait_until(is_over: impl Fn(&World) -> bool + 'static, limit: Option<Duration>) {
    with(|world| {
        world.steps += 1;
        world.wait = Some(Wait {
            is_over: Box::new(is_over),
            until_ns: limit.map(|limit| world.now_ns + limit.as_nanos() as u64),
        });
    });
    leave();
}

/// Leaves this task for so long.
pub fn pause(time: Duration) {
    wait_until(|_| false, Some(time.max(Duration::from_nanos(STEP_NS))));
}

fn leave() {
    let yielder = YIELDER.get();
    // SAFETY: set before a task is resumed to the one that it was begun with, which lives as long as its coroutine;
    // null outside of tasks.
    if let Some(yielder) = unsafe { yielder.as_ref() } {
        yielder.suspend(());
    }
}

/// What time it is.
pub fn now() -> Instant {
    with(|world| world.start + Duration::from_nanos(world.now_ns))
}

/// Writes down what happens, if the history is to be told.
pub fn note(what: impl FnOnce() -> String) {
    with(|world| world.note(what));
}

/// Something does not hold.
pub fn violated(what: String) {
    with(|world| world.violated(what));
}

/// Begins a task of a process, or of the supervisor.
pub fn begin(name: &'static str, owner: Option<i32>, life: impl FnOnce() + 'static) {
    // What a coroutine begins with must be small.
    let life: Box<dyn FnOnce()> = Box::new(life);
    let coroutine = Coroutine::new(move |yielder: &Yielder<(), ()>, ()| {
        YIELDER.set(std::ptr::from_ref(yielder));
        life();
    });
    with(|world| {
        world.tasks.push(Task {
            name,
            owner,
            coroutine,
            yielder: std::ptr::null(),
            wait: None,
        });
    });
}

impl World {
    fn new(history: &History, logs: bool) -> World {
        World {
            history: history.clone(),
            kernel: Kernel::default(),
            random: Random::new(history.seed),
            now_ns: 0,
            steps: 0,
            processes: BTreeMap::new(),
            sockets: Vec::new(),
            bells: Vec::new(),
            hellos: VecDeque::new(),
            shared_truth: Vec::new(),
            robust: BTreeMap::new(),
            truth: Vec::new(),
            guarded: Vec::new(),
            doubtful: Vec::new(),
            kept: Vec::new(),
            is_leaving: false,
            tokens: BTreeMap::new(),
            unborn: Vec::new(),
            dying: Vec::new(),
            next_id: 100,
            forking: 0,
            forks: 0,
            writes: 0,
            tally: Tally::default(),
            start: Instant::now(),
            tasks: Vec::new(),
            wait: None,
            violation: None,
            log: logs.then(VecDeque::new),
        }
    }

    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            if log.len() == LOG_MAX {
                log.pop_front();
            }
            log.push_back(format!("{:>8} {}", self.steps, what()));
        }
    }

    pub fn violated(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Whether a history has this trouble, and it is time for some.
    pub fn is_time_for(&mut self, trouble: Trouble, one_in: u64) -> bool {
        self.history.has(trouble) && self.random.one_in(one_in)
    }

    pub fn id(&mut self) -> i32 {
        self.next_id += 1;
        self.next_id
    }

    /// The process of a descriptor.
    pub fn process_of(&self, fd: RawFd) -> Option<i32> {
        let mut processes = self.processes.iter();
        let is_it = |process: &Process| {
            let own = process.descriptor.as_ref();
            own.is_some_and(|own| own.as_raw_fd() == fd)
        };
        processes
            .find(|(_, process)| is_it(process))
            .map(|(pid, _)| *pid)
    }

    pub fn mm_of(&self, pid: i32) -> Option<Mm> {
        let process = self.processes.get(&pid)?;
        (!process.is_ended).then_some(process.mm)
    }

    /// Room for what is known of a new address space.
    pub fn note_mm(&mut self, mm: Mm) {
        self.truth
            .resize_with(self.truth.len().max(mm + 1), BTreeMap::new);
        self.doubtful.resize_with(self.truth.len(), BTreeMap::new);
        self.guarded.resize_with(self.truth.len(), BTreeSet::new);
        self.kept.resize_with(self.truth.len(), BTreeSet::new);
    }

    /// What a thread has read, or written over, must be what was written last.
    pub fn check(&mut self, pid: i32, page: Page, found: u64) {
        let process = &self.processes[&pid];
        let mm = process.mm;
        let shared = self.shared_truth_of(mm, page);
        let truth = shared.unwrap_or_else(|| self.truth[mm].get(&page).copied().unwrap_or(0));
        let is_doubtful = self.doubtful[mm].contains_key(&page);
        if self.guarded[mm].contains(&page) && !is_doubtful && !process.is_tainted {
            return self.violated(format!(
                "process {pid} touches page {page:#x}, where a guard was put"
            ));
        }
        if found == truth || process.is_tainted || (is_doubtful && found == 0) {
            return;
        }
        self.violated(format!(
            "process {pid} reads {found:#x} on page {page:#x}, where {truth:#x} was written last"
        ));
    }

    /// SIGKILL: its threads are gone at once, its memory a little later.
    pub fn kill(&mut self, pid: i32) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.is_ended {
            return;
        }
        process.is_ended = true;
        let (mm, socket) = (process.mm, process.socket);
        process.ending = std::mem::take(&mut process.threads);
        if let Some(socket) = self.sockets.get_mut(socket) {
            socket.is_closed = true;
        }
        self.note(|| format!("process {pid} (mm {mm}) is killed"));
        let space = &mut self.kernel.spaces[mm];
        space.waiters.clear();
        space.changing.clear();
        for (_, event) in std::mem::take(&mut space.events) {
            if let Event::Fork { child } = event {
                self.kernel.die(child);
            }
        }
        let unborn: Vec<_> = self
            .unborn
            .extract_if(.., |(parent, _)| *parent == pid)
            .collect();
        unborn
            .into_iter()
            .for_each(|(_, child)| self.kernel.die(child));
        let at = self.now_ns + self.random.below(100_000);
        self.dying.push((mm, at));
    }

    fn bury(&mut self) {
        let now = self.now_ns;
        let gone: Vec<_> = self.dying.extract_if(.., |(_, at)| *at <= now).collect();
        for (mm, _) in gone {
            self.walk_robust_lists(mm);
            self.kernel.die(mm);
        }
    }

    fn is_gone(&self, owner: Option<i32>) -> bool {
        owner.is_some_and(|pid| self.processes[&pid].is_ended)
    }

    fn is_stopped(&self, owner: Option<i32>) -> bool {
        owner.is_some_and(|pid| self.processes[&pid].is_stopped)
    }

    /// The task that runs next. `None`: time passes first.
    fn choose(&mut self) -> Option<usize> {
        let count = self.tasks.len();
        let first = self.random.below(count as u64) as usize;
        let mut order = (first..count).chain(0..first);
        let is_ready = |at: &usize| {
            let task = &self.tasks[*at];
            let is_due = |wait: &Wait| {
                wait.until_ns.is_some_and(|until| until <= self.now_ns) || (wait.is_over)(self)
            };
            !self.is_stopped(task.owner) && task.wait.as_ref().is_none_or(is_due)
        };
        order.find(is_ready)
    }

    /// Time passes until somebody need not wait any more. `false`: nobody ever need not.
    fn pass_time(&mut self) -> bool {
        let tasks = self
            .tasks
            .iter()
            .filter(|task| !self.is_stopped(task.owner));
        let waits = tasks.filter_map(|task| task.wait.as_ref()?.until_ns);
        match waits.chain(self.dying.iter().map(|(_, at)| *at)).min() {
            Some(next) => {
                self.now_ns = self.now_ns.max(next);
                true
            }
            None => false,
        }
    }
}

/// Plays a history.
pub fn play(history: &History, logs: bool) -> Result<Tally, Violation> {
    WORLD.set(Some(World::new(history, logs)));
    let played = catch_unwind(AssertUnwindSafe(|| {
        supervisor::begin();
        while go_on() {}
    }));
    let mut world = WORLD.take().expect("it was put there");
    if let Err(panic) = played {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
        world.violated(format!("panic: {}", text.unwrap_or_default()));
    }
    YIELDER.set(std::ptr::null());
    let (tasks, what) = (std::mem::take(&mut world.tasks), world.violation.take());
    let (steps, tally) = (world.steps, world.tally);
    let log = world.log.take().unwrap_or_default().into();
    // Tasks that are not over end here, and may look at the world.
    world.history.troubles.clear();
    WORLD.set(Some(world));
    tasks.into_iter().for_each(end);
    WORLD.take();
    match what {
        None => Ok(Tally { steps, ..tally }),
        Some(what) => Err(Violation {
            history: history.clone(),
            step: steps,
            what,
            log,
        }),
    }
}

/// A task goes no further.
fn end(mut task: Task) {
    YIELDER.set(std::ptr::null());
    task.coroutine.force_unwind();
}

/// One task runs until it is left. `false`: it is over.
fn go_on() -> bool {
    let (gone, chosen) = with(|world| {
        world.bury();
        if world.violation.is_some() || world.tasks.is_empty() {
            return (Vec::new(), None);
        }
        if world.steps > STEPS_MAX || world.now_ns > TIME_MAX.as_nanos() as u64 {
            world.violated("it does not come to its end".into());
            return (Vec::new(), None);
        }
        let mut gone = Vec::new();
        for at in (0..world.tasks.len()).rev() {
            if world.is_gone(world.tasks[at].owner) {
                gone.push(world.tasks.swap_remove(at));
            }
        }
        let chosen = loop {
            if world.tasks.is_empty() {
                break None;
            }
            match world.choose() {
                Some(at) => break Some(world.tasks.swap_remove(at)),
                None if world.pass_time() => world.bury(),
                None => {
                    let names: Vec<_> = world.tasks.iter().map(|task| task.name).collect();
                    world.violated(format!("all wait for ever: {names:?}"));
                    break None;
                }
            }
        };
        (gone, chosen)
    });
    gone.into_iter().for_each(end);
    let Some(mut task) = chosen else {
        return false;
    };
    task.wait = None;
    YIELDER.set(task.yielder);
    let result = task.coroutine.resume(());
    task.yielder = YIELDER.get();
    if let CoroutineResult::Yield(()) = result {
        with(|world| {
            task.wait = world.wait.take();
            world.tasks.push(task);
        });
    }
    true
}
