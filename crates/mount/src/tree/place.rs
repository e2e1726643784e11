//! Where nodes are: a descriptor with `O_PATH` for as long as there is room for it, else the directory and
//! the name by which it is opened again.
//!
//! A descriptor costs one of those that the process may have, and pins the source's inode in the kernel's
//! memory. So only so many are open, second chance in the order in which they were opened. A place that
//! must stay open is held: what has lost its name, or is about to, cannot be opened again.
//!
//! Lock order: `queue` before a place's `state`. No lock is held while something is opened: the way to a
//! node leads through its parents, whose places may be closed as well.
#![forbid(unsafe_code)]

use super::errno;
use super::node::Node;
use super::source::path_of;
use super::stat::Stat;
use rustix::fs::{openat, Mode, OFlags};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// How often a place is passed over after it was used. Of directories, all below them depend.
const CHANCES_FILE: u8 = 1;
const CHANCES_DIRECTORY: u8 = 3;
/// Directories above each other, all closed. More would be a circle, which changes from outside can make.
const DEPTH_MAX: usize = 16 * 1024;
/// A place that is moved while it is looked for is looked for again.
const TRIES_MAX: usize = 4;

const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A name that an object had when it was looked at last.
#[derive(Clone, Debug)]
pub struct Home {
    pub parent: Arc<Node>,
    pub name: Arc<CStr>,
}

impl Home {
    pub fn new(parent: &Arc<Node>, name: &CStr) -> Home {
        Home {
            parent: Arc::clone(parent),
            name: name.into(),
        }
    }

    pub fn is(&self, parent: u64, name: &CStr) -> bool {
        self.parent.number() == parent && *self.name == *name
    }
}

#[derive(Debug, Default)]
struct State {
    open: Option<Arc<OwnedFd>>,
    home: Option<Home>,
    /// The kernel has it by the name of `home`, and nothing was heard against that.
    is_told: bool,
    /// Who needs it open.
    holders: u32,
    /// Has no name that is known: open until it is found by one.
    is_nameless: bool,
    /// Never true of a place that is closed.
    is_queued: bool,
}

/// A node's place.
#[derive(Debug)]
pub struct Place {
    state: Mutex<State>,
    chances: AtomicU8,
}

impl Place {
    /// Open; `opened` must be told of it. Without a home it stays so.
    pub fn new(open: OwnedFd, home: Option<Home>) -> Place {
        Place {
            state: Mutex::new(State {
                open: Some(Arc::new(open)),
                is_nameless: home.is_none(),
                is_queued: home.is_some(),
                home,
                ..State::default()
            }),
            chances: AtomicU8::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens what has this name, to be used or looked at.
pub fn open_named(directory: impl AsFd, name: &CStr) -> io::Result<OwnedFd> {
    Ok(openat(directory, name, PLACE, Mode::empty())?)
}

/// Something else has the name now, or nothing.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ESTALE)
    )
}

impl Node {
    /// Its descriptor, for using and looking at it.
    ///
    /// # Errors
    /// ESTALE: it was closed, and its name taken away or given to another object from outside.
    pub(crate) fn place(&self) -> io::Result<Arc<OwnedFd>> {
        for _ in 0..TRIES_MAX {
            if let Some(place) = self.place_if_open() {
                return Ok(place);
            }
            let found = match self.data_if_open() {
                Some(source) => self.place_by_data(source.file()),
                None => self.place_by_name(),
            };
            match found {
                Err(error) if is_gone(&error) => {}
                answer => return answer,
            }
        }
        Err(errno(libc::ESTALE))
    }

    /// By the path under which its object can be opened or watched, not only used.
    pub(crate) fn by_path<T>(&self, act: impl FnOnce(&str) -> io::Result<T>) -> io::Result<T> {
        let place = self.place()?;
        act(&path_of(place.as_fd()))
    }

    pub(super) fn place_if_open(&self) -> Option<Arc<OwnedFd>> {
        let place = self.place.state().open.clone()?;
        let chances = if self.is_directory() {
            CHANCES_DIRECTORY
        } else {
            CHANCES_FILE
        };
        if self.place.chances.load(Relaxed) != chances {
            self.place.chances.store(chances, Relaxed);
        }
        Some(place)
    }

    fn place_by_data(&self, file: &std::fs::File) -> io::Result<Arc<OwnedFd>> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let place = rustix::fs::open(path_of(file.as_fd()), flags, Mode::empty())?;
        Ok(self.take_place(place))
    }

    /// Down from the nearest directory above that is open.
    fn place_by_name(&self) -> io::Result<Arc<OwnedFd>> {
        let mut way = vec![self.home().ok_or(errno(libc::ESTALE))?];
        let mut place = loop {
            let above = &way[way.len() - 1].parent;
            if let Some(place) = above.place_if_open() {
                break place;
            }
            if way.len() > DEPTH_MAX {
                return Err(errno(libc::ESTALE));
            }
            way.push(above.home().ok_or(errno(libc::ESTALE))?);
        };
        while let Some(home) = way.pop() {
            let node = way.last().map_or(self, |below| &below.parent);
            let opened = open_named(&*place, &home.name)?;
            node.verify(&Stat::of(&opened)?)?;
            place = node.take_place(opened);
        }
        Ok(place)
    }

    fn verify(&self, stat: &Stat) -> io::Result<()> {
        if self.is_same_as(stat) {
            Ok(())
        } else {
            Err(errno(libc::ESTALE))
        }
    }

    /// Attributes, without opening its place for them.
    pub(super) fn stat(&self) -> io::Result<Stat> {
        if let Some(place) = self.place_if_open() {
            return Stat::of(&place);
        }
        if let Some(source) = self.data_if_open() {
            return Stat::of(source.file());
        }
        if let Some(home) = self.home() {
            let parent = home.parent.place()?;
            if let Some(stat) = Stat::named(&parent, &home.name)
                .ok()
                .filter(|stat| self.is_same_as(stat))
            {
                return Ok(stat);
            }
        }
        // Moved meanwhile, or gone.
        Stat::of(self.place()?)
    }

    /// Whether its inode cannot be given to another object now.
    pub(super) fn is_open(&self) -> bool {
        self.place.state().open.is_some() || self.data_if_open().is_some()
    }

    /// Whether its last link is gone, as far as that shows without opening anything.
    pub(super) fn has_no_links(&self) -> bool {
        let open = self.place.state().open.clone();
        open.is_some_and(|place| Stat::of(&place).is_ok_and(|stat| stat.links() == 0))
    }

    /// A descriptor of this very object, to be kept if there is none.
    pub(super) fn take_place(&self, opened: OwnedFd) -> Arc<OwnedFd> {
        let mut state = self.place.state();
        if let Some(open) = &state.open {
            return Arc::clone(open);
        }
        let place = Arc::new(opened);
        state.open = Some(Arc::clone(&place));
        self.queue(state);
        place
    }

    /// Lets the place be closed some time, if nothing is against it.
    fn queue(&self, mut state: MutexGuard<'_, State>) {
        let may_close = state.holders == 0 && !state.is_nameless && state.open.is_some();
        if may_close && !state.is_queued {
            state.is_queued = true;
            drop(state);
            self.places().opened(self.this());
        }
    }

    /// Whether it leaves the queue.
    fn close_place_unless_used(&self) -> bool {
        let chances = self.place.chances.load(Relaxed);
        if chances > 0 {
            self.place.chances.store(chances - 1, Relaxed);
            return false;
        }
        let mut state = self.place.state();
        state.is_queued = false;
        let closes = state.holders == 0 && !state.is_nameless;
        let closed = state.open.take_if(|_| closes);
        drop(state);
        drop(closed);
        true
    }

    pub(crate) fn home(&self) -> Option<Home> {
        self.place.state().home.clone()
    }

    /// The name by which the kernel has it, as far as is known.
    pub(super) fn told_home(&self) -> Option<Home> {
        let state = self.place.state();
        state.home.clone().filter(|_| state.is_told)
    }

    pub(super) fn is_told_as(&self, parent: u64, name: &CStr) -> bool {
        let state = self.place.state();
        state.is_told
            && state
                .home
                .as_ref()
                .is_some_and(|home| home.is(parent, name))
    }

    /// It was seen there.
    pub(super) fn set_home(&self, home: Home, is_told: bool) {
        let mut state = self.place.state();
        let before = state.home.replace(home);
        state.is_told = is_told;
        state.is_nameless = false;
        self.queue(state);
        // A parent may go with it.
        drop(before);
    }

    /// The kernel was told, or is about to be, that this is not its name.
    pub(super) fn is_not_told(&self) {
        self.place.state().is_told = false;
    }

    /// We took this name away: it stays open if it is not known by another.
    pub(super) fn lost_name(&self, parent: u64, name: &CStr) {
        let mut state = self.place.state();
        if state
            .home
            .as_ref()
            .is_some_and(|home| home.is(parent, name))
        {
            state.is_told = false;
            state.is_nameless = state.open.is_some();
            let before = state.home.take();
            drop(state);
            drop(before);
        }
    }

    /// The kernel has forgotten it. Breaks circles.
    pub(super) fn leave_home(&self) {
        let mut state = self.place.state();
        state.is_told = false;
        let before = state.home.take();
        drop(state);
        drop(before);
    }

    /// Keeps the place open. It is known to be there now.
    pub(super) fn hold(self: &Arc<Self>, directory: impl AsFd, name: &CStr) -> io::Result<Held> {
        let place = match self.place_if_open() {
            Some(place) => place,
            None => {
                let opened = open_named(directory, name)?;
                self.verify(&Stat::of(&opened)?)?;
                self.take_place(opened)
            }
        };
        let mut state = self.place.state();
        state.open.get_or_insert(place);
        state.holders += 1;
        drop(state);
        Ok(Held {
            node: Arc::clone(self),
        })
    }
}

/// A place that is not closed meanwhile.
#[must_use]
#[derive(Debug)]
pub struct Held {
    node: Arc<Node>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.node.place.state();
        state.holders -= 1;
        self.node.queue(state);
    }
}

/// All nodes whose place is open and may be closed, oldest first.
#[derive(Debug)]
pub struct OpenPlaces {
    open_max: usize,
    queue: Mutex<VecDeque<Weak<Node>>>,
}

impl OpenPlaces {
    pub fn new(open_max: usize) -> Self {
        OpenPlaces {
            open_max: open_max.max(1),
            queue: Mutex::default(),
        }
    }

    /// Takes a node in whose place was just opened, and closes others as needed.
    pub fn opened(&self, node: Weak<Node>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(node);
        for _ in 0..(usize::from(CHANCES_DIRECTORY) + 1) * queue.len() {
            if queue.len() <= self.open_max {
                break;
            }
            let Some(oldest) = queue.pop_front() else {
                break;
            };
            match oldest.upgrade() {
                Some(node) if !node.close_place_unless_used() => queue.push_back(oldest),
                _ => {}
            }
        }
    }
}
