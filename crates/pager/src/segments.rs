//! Memory that processes of the job share by forks: MAP_SHARED and anonymous, without a name and without a descriptor.
//!
//! One such memory is a *segment*. It is one page each for all who map it, in whatever process and however often, and so its
//! pages are taken and filled once for all. `docs/shared-memory.md` has the whole: why no byte is lost, and what was weighed.
//!
//! ```text
//!   mapped anew, or found --> Gathering: every mapping is registered ----> Served: pages are taken and filled
//!                                 ^         by its space's thread (gather)      (take, space/segments)   |
//!                                 |                                                                      |
//!                                 +---- all is brought back (back): the job is to be left <--------------+
//! ```
//!
//! A thread (`pleat-shared`) gathers, takes and brings back; a space's thread registers its mappings and fills. What they
//! share of a segment is under [`Segment::state`]: fills hold it shared, and never wait for it, for the taker may be waiting
//! for their space; a take, a removal by the program and the end hold it alone, from looking a page up until the engine knows.
//!
//! What must hold while a segment is `Served`:
//!
//! - Every mapping of it is registered with its space's userfaultfd, so that who finds a hole asks. New ones come by fork and
//!   mremap only, which keep that.
//! - A page that the engine knows to be away, or does not know, is a hole; any other is there, unless the program has removed
//!   it past the C library (MADV_REMOVE): it is filled with zeros then.

mod back;
mod gather;
mod locks;
mod take;

use crate::chosen::Chosen;
use crate::ports::{SharedMemory, SpaceBell};
use crate::rings::Slots;
use crate::shared::{lock, Link, Shared};
use pleat_sys::page_refs::PAGES_MAX;
use pleat_sys::process::readable;
use pleat_sys::procfs::NamelessPart;
use pleat_sys::ring::Ring;
use pleat_sys::take_out::TakeOut;
use pleat_types::{PageNo, PageRange, SpaceId, PAGE_SIZE};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError, Weak};
use std::time::{Duration, Instant};

/// Smaller ones are left alone: there are many, and they hold little.
const SIZE_MIN: u64 = 1 << 20;
/// Most segments at once: each takes a descriptor.
const SEGMENTS_MAX: usize = 256;
/// Frames for pages on their way to be folded.
const FRAMES: u32 = 2 * PAGES_MAX as u32;
/// Each begins at a multiple of so many pages of the engine's space.
const ALIGN_PAGES: u64 = 512;
/// Without a call the thread looks around so often.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Device and inode of a segment.
pub type Identity = (u64, u64);

/// What may be done with a segment's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not every mapping is known to be registered: nothing is away, and nothing is taken. Holes are filled with zeros, of
    /// which the engine does not hear.
    Gathering,
    /// Every mapping is registered, and the engine knows which pages there are.
    Served,
    /// No process maps it.
    Ended,
}

/// Memory that is shared by forks.
pub struct Segment {
    memory: Box<dyn SharedMemory>,
    /// Whole pages, in bytes.
    size: u64,
    /// The engine's space.
    pub space: SpaceId,
    /// Its first page in the engine's space.
    base: PageNo,
    state: RwLock<State>,
    /// Spaces that have registered all their mappings of it.
    users: Mutex<Vec<Weak<Link>>>,
    /// What is known of their processes, for the thread that takes pages.
    known: Mutex<HashMap<SpaceId, locks::Known>>,
    /// The last look at their robust locks, and when it began.
    last_look: Mutex<Option<(Instant, locks::Looked)>>,
    /// Pages that are removed and not away yet.
    closing: Mutex<Vec<PageNo>>,
    /// Somebody was to fill a page while another had it alone.
    is_missed: AtomicBool,
    /// A stranger maps it: all that is away is to come back, and to stay.
    is_given_up: AtomicBool,
    /// Looks in a row that have found a stranger.
    suspected: AtomicU32,
    /// Its memory counts once, and not as that of the processes which have it.
    is_counted: AtomicBool,
}

impl Segment {
    /// Device and inode.
    pub fn identity(&self) -> Identity {
        self.memory.identity()
    }

    /// To be held while a page is filled; `None`, and its thread is called later: somebody has it alone.
    pub fn state(&self) -> Option<RwLockReadGuard<'_, State>> {
        match self.state.try_read() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => {
                self.is_missed.store(true, Ordering::SeqCst);
                // Given back just before that, nobody would be called.
                self.state.try_read().ok()
            }
        }
    }

    /// Whether a page is just being taken, to be asked with the state held; who asks is called when it is over.
    pub fn is_closing(&self, page: PageNo) -> bool {
        // With these locked, or it might end before it is noted that somebody is to be called.
        let closing = lock(&self.closing);
        let is_closing = closing.contains(&page);
        if is_closing {
            self.is_missed.store(true, Ordering::SeqCst);
        }
        is_closing
    }

    /// Calls those who were to fill a page and could not.
    fn call_missed(&self) {
        if self.is_missed.swap(false, Ordering::SeqCst) {
            self.links().iter().for_each(|link| link.bell.ring());
        }
    }

    /// Does something that nobody may fill a page meanwhile.
    fn alone<T>(&self, shared: &Shared, what: impl FnOnce(&mut State) -> T) -> T {
        let mut state = shared.machine.alone(&self.state);
        let done = what(&mut state);
        drop(state);
        self.call_missed();
        done
    }

    /// Asks something while nobody fills a page; `None`: somebody does.
    pub fn peek_alone<T>(&self, what: impl FnOnce() -> T) -> Option<T> {
        self.try_alone(|_| what())
    }

    /// As [`Segment::alone`], where one may not wait; `None`: later.
    fn try_alone<T>(&self, what: impl FnOnce(&mut State) -> T) -> Option<T> {
        match self.state.try_write() {
            Ok(mut state) => Some(what(&mut state)),
            Err(TryLockError::Poisoned(state)) => Some(what(&mut state.into_inner())),
            Err(TryLockError::WouldBlock) => {
                self.is_missed.store(true, Ordering::SeqCst);
                None
            }
        }
    }

    /// The page of the engine's space at this place.
    pub fn page_at(&self, offset: u64) -> PageNo {
        self.base.plus(offset / PAGE_SIZE as u64)
    }

    fn offset_of(&self, page: PageNo) -> u64 {
        (page.0 - self.base.0) * PAGE_SIZE as u64
    }

    fn pages(&self) -> PageRange {
        PageRange::new(self.base, self.size / PAGE_SIZE as u64)
    }

    /// Whether anything of it may be away.
    pub fn is_served(&self) -> bool {
        // Who has it alone serves it.
        self.state().is_none_or(|state| *state == State::Served)
    }

    /// A space has all its mappings registered, or was forked from one that has.
    pub fn join(&self, link: &Arc<Link>) {
        let mut users = lock(&self.users);
        users.retain(|user| user.strong_count() > 0);
        if !users.iter().any(|user| is_of(user, link)) {
            users.push(Arc::downgrade(link));
        }
        // With the users locked: who counts it looks at these afterwards.
        if self.is_counted.load(Ordering::Acquire) {
            self.count_for(link);
        }
    }

    fn count_for(&self, link: &Link) {
        let mut counted = lock(&link.counted);
        if !counted.contains(&self.identity()) {
            counted.push(self.identity());
        }
    }

    /// A space maps nothing of it any more, as far as that is known.
    pub fn part(&self, link: &Link) {
        lock(&self.users).retain(|user| !is_of(user, link));
        let identity = self.identity();
        lock(&link.counted).retain(|one| *one != identity);
    }

    /// Whether a space has all its mappings registered.
    pub fn has(&self, link: &Link) -> bool {
        lock(&self.users).iter().any(|user| is_of(user, link))
    }

    /// The spaces that map it and are not over.
    fn links(&self) -> Vec<Arc<Link>> {
        let users = lock(&self.users);
        let links = users.iter().filter_map(Weak::upgrade);
        links
            .filter(|link| !link.ended.load(Ordering::Acquire))
            .collect()
    }

    /// The program removes pages (MADV_REMOVE): what is there is punched out, and nothing is known of the rest. `None`: later;
    /// an error of the kernel's.
    pub fn remove(&self, shared: &Shared, offset: u64, len: u64) -> Option<bool> {
        let removed = self.try_alone(|_| {
            // What is closing may have to be put back.
            if !lock(&self.closing).is_empty() {
                return None;
            }
            let pages = PageRange::new(self.page_at(offset), len / PAGE_SIZE as u64);
            let is_punched = self.memory.punch(offset, len);
            if is_punched {
                shared.engine().forget(self.space, pages);
            }
            Some(is_punched)
        });
        removed.flatten()
    }
}

fn is_of(user: &Weak<Link>, link: &Link) -> bool {
    std::ptr::eq(user.as_ptr(), link)
}

/// All segments, and the thread that takes their pages.
pub struct Segments {
    space: SpaceId,
    /// What the kernel has such memory on.
    device: u64,
    /// By the first page.
    segments: Mutex<BTreeMap<PageNo, Arc<Segment>>>,
    next: Mutex<PageNo>,
    slots: Arc<Slots>,
    bell: SpaceBell,
    chosen: Chosen,
    counts: AtomicU64,
    /// The job is to be left.
    are_left: AtomicBool,
    shared: Weak<Shared>,
}

impl Segments {
    /// Starts the thread.
    ///
    /// # Errors
    /// This process may not do what it takes (see [`TakeOut::new`]); there is no memory, no descriptor or no thread.
    pub fn start(shared: &Arc<Shared>) -> io::Result<Arc<Segments>> {
        let machine = &shared.machine;
        let (device, taker) = (machine.nameless_device()?, machine.taker()?);
        let (bell, ring) = (machine.bell()?, Ring::private(FRAMES)?);
        let segments = Arc::new(Segments {
            space: shared.engine().add_space(),
            device,
            segments: Mutex::default(),
            next: Mutex::new(PageNo(0)),
            slots: shared.rings.add(ring),
            bell,
            chosen: Chosen::default(),
            counts: AtomicU64::new(0),
            are_left: AtomicBool::new(false),
            shared: Arc::downgrade(shared),
        });
        machine.serve_segments(segments.clone(), taker)?;
        let holders = shared.holders.write();
        holders
            .unwrap_or_else(PoisonError::into_inner)
            .push(segments.clone());
        Ok(segments)
    }

    /// The segment that this is, if it is known.
    pub fn find(&self, identity: Identity) -> Option<Arc<Segment>> {
        let segments = lock(&self.segments);
        let found = segments.values().find(|one| one.identity() == identity);
        found.cloned()
    }

    /// A process has these mappings: those of segments that are not known yet are, from now on.
    pub fn meet(&self, pid: i32, parts: &[NamelessPart]) {
        let mut is_any = false;
        for one in parts {
            let mapping = &one.part.mapping;
            let is_meant = mapping.shared
                && one.identity.0 == self.device
                && mapping.end - mapping.start >= SIZE_MIN;
            if is_meant && self.find(one.identity).is_none() {
                is_any |= self.add(pid, one).is_ok();
            }
        }
        if is_any {
            self.bell.ring();
        }
    }

    /// It may be gone by now, which leaves it as it is.
    fn add(&self, pid: i32, found: &NamelessPart) -> io::Result<()> {
        let shared = self.shared.upgrade().ok_or(io::ErrorKind::NotFound)?;
        let memory = shared.machine.open(pid, &found.part, found.identity)?;
        let size = memory.size()?.next_multiple_of(PAGE_SIZE as u64);
        let mut segments = lock(&self.segments);
        let is_known = segments
            .values()
            .any(|one| one.identity() == found.identity);
        if is_known || size < SIZE_MIN || segments.len() >= SEGMENTS_MAX {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let pages = size / PAGE_SIZE as u64;
        let mut next = lock(&self.next);
        let base = *next;
        *next = base.plus(pages.next_multiple_of(ALIGN_PAGES));
        let segment = Segment {
            memory,
            size,
            space: self.space,
            base,
            state: RwLock::new(State::Gathering),
            users: Mutex::default(),
            known: Mutex::default(),
            last_look: Mutex::default(),
            closing: Mutex::default(),
            is_missed: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            suspected: AtomicU32::new(0),
            is_counted: AtomicBool::new(false),
        };
        segments.insert(base, Arc::new(segment));
        Ok(())
    }

    /// A child of a fork has registered what its parent has, also where nobody knows of a mapping.
    pub fn inherit(&self, parent: &Link, child: &Arc<Link>) {
        let all = self.all().into_iter();
        let had = all.filter(|segment| segment.has(parent));
        had.for_each(|segment| segment.join(child));
    }

    /// A space counts for none any more as one that has registered all.
    pub fn quit(&self, link: &Link) {
        self.all().iter().for_each(|segment| segment.part(link));
    }

    /// Has all that is away brought back, or ends that.
    pub fn leave_all(&self, are_left: bool) {
        self.are_left.store(are_left, Ordering::Release);
        self.bell.ring();
    }

    /// Whether all that is away of a segment is to come back, and nothing to be taken.
    fn is_left(&self, segment: &Segment) -> bool {
        self.are_left.load(Ordering::Acquire) || segment.is_given_up.load(Ordering::Acquire)
    }

    /// Whether anything of any may be away.
    pub fn are_served(&self) -> bool {
        self.all().iter().any(|segment| segment.is_served())
    }

    /// Bytes of memory that segments have which count once.
    pub fn bytes(&self) -> u64 {
        let is_counted = |segment: &&Arc<Segment>| segment.is_counted.load(Ordering::Acquire);
        let segments = lock(&self.segments);
        let counted = segments.values().filter(is_counted);
        counted.map(|segment| segment.memory.bytes()).sum()
    }

    /// From now on a segment's memory counts once.
    fn count_once(&self, segment: &Segment) {
        segment.is_counted.store(true, Ordering::Release);
        let links = segment.links();
        links.iter().for_each(|link| segment.count_for(link));
        self.counts.fetch_add(1, Ordering::AcqRel);
    }

    /// How often what counts how has changed.
    pub fn counts(&self) -> u64 {
        self.counts.load(Ordering::Acquire)
    }

    /// Pages that refused to be taken are tried again.
    pub fn retry_stuck(&self, shared: &Shared) {
        shared.engine().retry_stuck(self.space);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        lock(&self.segments).is_empty()
    }

    fn all(&self) -> Vec<Arc<Segment>> {
        lock(&self.segments).values().cloned().collect()
    }

    /// The thread's life.
    pub(crate) fn run(&self, mut taker: TakeOut) {
        let mut gathering = gather::Gathering::default();
        let mut back = None;
        loop {
            let Some(machine) = self.shared.upgrade().map(|shared| shared.machine.clone()) else {
                return;
            };
            let patience = gathering.patience(machine.now()).min(LOOK_EVERY);
            machine.wait(&mut [readable(self.bell.descriptor())], Some(patience));
            self.bell.hush();
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            if shared.is_over() {
                return;
            }
            self.take_chosen(&shared, &mut taker);
            for segment in self.all() {
                if self.is_left(&segment) {
                    let back = back.get_or_insert_with(|| back::Back::new(&shared));
                    self.bring_back(&shared, &segment, (&mut taker, back));
                    gathering.forget(&segment);
                } else if gathering.is_due(&segment, machine.now()) {
                    let outcome = self.gather(&shared, &segment);
                    gathering.note(&segment, outcome, machine.now());
                }
            }
        }
    }
}
