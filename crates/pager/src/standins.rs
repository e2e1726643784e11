//! Memory that stands in for files which programs map shared and only read.
//!
//! Of each such file there is one piece of shared memory for each user, mapped by all his processes in the file's
//! place.
//! A page of it that nobody has touched, or that was taken away, raises a fault in whoever touches it; it
//! is filled from the compressed cache or the file, for all processes at once (`space/standins.rs`). Taking
//! pages needs no process: they are copied and punched out (`evict.rs`), for nobody can write to them.
//!
//! ```text
//!   file, under a read lease --- read ---> memory ------ mapped by ------> processes
//!                                          ^    |
//!                                    fill  |    | copy, punch out
//!                                          |    v
//!                                      compressed cache
//! ```
//!
//! What a shared mapping shows is the file as it is now. The lease keeps that true: before anybody has the
//! file open for writing, or has cut it short, the memory is *void*. Nothing is filled from then on and all
//! pages are punched out, so that no process can see anything old; only then the lease is given up, which
//! takes milliseconds. A thread that touches the memory now waits until its process's agent has mapped the
//! file again (`space/give_back.rs`), be its process stopped or slow.
//!
//! Every page that is in the memory was put there while the lease was held, so that all there ever is of a
//! page is the same. What may overlap:
//!
//! | what overlaps | why it is harmless |
//! |---|---|
//! | two threads fill a page | the second gets EEXIST, and both find the same |
//! | a page is filled and taken | one of them waits: each holds [`StandIn::state`], the filler shared, the taker alone, from looking the page up until the engine knows |
//! | a page is filled and the memory becomes void | the same |
//! | the program gives pages up (MADV_REMOVE) while they are copied | pages that are absent *after* the copy are not taken |
//! | the file is mapped by another process just as it becomes void | its request finds the memory void and is refused |

mod evict;

use crate::chosen::Chosen;
use crate::ends::Failure;
use crate::files::Origin;
use crate::rings::Slots;
use crate::shared::{lock, Link, Shared};
use pleat_sys::lease::{self, Lease, LeaseCalls};
use pleat_sys::memory_file::MemoryFile;
use pleat_sys::process::{readable, wait, Bell};
use pleat_sys::ring::Ring;
use pleat_types::{PageNo, PageRange, SpaceId, PAGE_SIZE};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::sync::{mpsc, Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::{Duration, Instant};

/// Most files at once: each takes three descriptors.
const FILES_MAX: usize = 128;
/// Frames for copies of pages on their way to be folded.
const FRAMES: u32 = 128;
/// Each file begins at a multiple of so many pages of the engine's space.
const ALIGN_PAGES: u64 = 512;
/// Leases are looked at so often at least, and they must have been held at the last look, no longer ago
/// than a part of what the kernel waits for: else nobody knows what the file was meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const LOOK_LATE: u32 = 2;
/// The kernel has to wait so long for a lease to be given up, or none is taken.
const BREAK_TIME_MIN: Duration = Duration::from_secs(2);
/// Memory that no mapping uses any more is kept so long.
const KEPT: Duration = Duration::from_secs(1);

/// Whether content is what the file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The lease is held.
    Valid,
    /// It is not, or will not be: nothing is filled any more.
    Void,
}

/// The memory that stands in for one file.
pub struct StandIn {
    /// The memory.
    pub memory: MemoryFile,
    /// The file.
    pub origin: Arc<Origin>,
    lease: Lease,
    /// Device and inode of the file.
    file: (u64, u64),
    /// Whose processes may have the memory. It cannot be kept from being written to (the kernel fills no page of
    /// memory that its process could not make writable), so no other user's may see it.
    user: u32,
    /// The engine's space.
    pub space: SpaceId,
    /// Its first page in the engine's space.
    base: PageNo,
    /// See the table above.
    state: RwLock<State>,
    /// Address spaces that have it mapped, or had.
    spaces: Mutex<Vec<Weak<Link>>>,
    used: Mutex<Instant>,
}

impl StandIn {
    /// The file under lease, to be mapped again.
    pub fn file(&self) -> &Lease {
        &self.lease
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.lease.len()
    }

    /// Whether it stands in for the file no more.
    pub fn is_void(&self) -> bool {
        *self.state() == State::Void
    }

    /// Held while a page is filled.
    pub fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The page of the engine's space at this place of the file.
    pub fn page_at(&self, offset: u64) -> PageNo {
        self.base.plus(offset / PAGE_SIZE as u64)
    }

    fn pages(&self) -> PageRange {
        PageRange::new(self.base, self.len().div_ceil(PAGE_SIZE as u64))
    }

    /// An address space is to have it mapped, and to hear when it is void.
    pub fn join(&self, link: &Arc<Link>) {
        link.has_stand_ins.store(true, Ordering::Release);
        let mut spaces = lock(&self.spaces);
        spaces.retain(|space| space.strong_count() > 0);
        if !spaces
            .iter()
            .any(|space| space.as_ptr() == Arc::as_ptr(link))
        {
            spaces.push(Arc::downgrade(link));
        }
        drop(spaces);
        // Void before it joined, nobody would have told it.
        if self.is_void() {
            call(link);
        }
    }

    fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }
}

/// Tells a space's thread that a file is to be mapped again.
fn call(link: &Link) {
    lock(&link.mail).give_back = true;
    link.bell.ring();
}

/// All memory that stands in for files, and the thread that takes its pages and hears of leases.
pub struct StandIns {
    space: SpaceId,
    /// By the first page.
    files: Mutex<BTreeMap<PageNo, Arc<StandIn>>>,
    next: Mutex<PageNo>,
    slots: Arc<Slots>,
    bell: Bell,
    chosen: Chosen,
    /// The thread, which leases call.
    thread: i32,
    looked: Mutex<Instant>,
    break_time: Duration,
    shared: Weak<Shared>,
}

impl StandIns {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there is no memory for its ring, no descriptor, or no thread; when the kernel would not wait
    /// long enough for leases.
    pub fn start(shared: &Arc<Shared>) -> io::Result<Arc<StandIns>> {
        let break_time = lease::break_time();
        if break_time < BREAK_TIME_MIN {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let (bell, ring) = (Bell::new()?, Ring::private(FRAMES)?);
        let (tell, told) = mpsc::channel();
        let (give, given) = mpsc::channel::<Arc<StandIns>>();
        let builder = std::thread::Builder::new().name("pleat-lease".into());
        builder.stack_size(256 << 10).spawn(move || {
            let calls = LeaseCalls::new();
            let _ = tell.send((LeaseCalls::thread(), calls.is_ok()));
            if let (Ok(calls), Ok(stand_ins)) = (calls, given.recv()) {
                stand_ins.run(&calls);
            }
        })?;
        let (thread, true) = told.recv().map_err(io::Error::other)? else {
            return Err(io::Error::from(io::ErrorKind::Other));
        };
        let stand_ins = Arc::new(StandIns {
            space: shared.engine().add_file(),
            files: Mutex::default(),
            next: Mutex::new(PageNo(0)),
            slots: shared.rings.add(ring),
            bell,
            chosen: Chosen::default(),
            thread,
            looked: Mutex::new(Instant::now()),
            break_time,
            shared: Arc::downgrade(shared),
        });
        give.send(stand_ins.clone()).map_err(io::Error::other)?;
        let holders = shared.holders.write();
        holders
            .unwrap_or_else(PoisonError::into_inner)
            .push(stand_ins.clone());
        Ok(stand_ins)
    }

    /// What stands in for the file behind a descriptor in processes of a user, if anything does.
    pub fn find(&self, descriptor: &OwnedFd, user: u32) -> Option<Arc<StandIn>> {
        let key = key_of(descriptor)?;
        let files = lock(&self.files);
        let is_it = |file: &&Arc<StandIn>| file.file == key && file.user == user;
        let found = files.values().find(is_it)?;
        found.touch();
        Some(found.clone())
    }

    /// As [`StandIns::find`], and takes a lease on the file if nothing does yet.
    ///
    /// # Errors
    /// As [`Lease::take`]; too many files are open.
    pub fn open(
        &self,
        shared: &Shared,
        descriptor: &OwnedFd,
        user: u32,
    ) -> io::Result<Arc<StandIn>> {
        if let Some(found) = self.find(descriptor, user) {
            return Ok(found);
        }
        if lock(&self.files).len() >= FILES_MAX {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let file = key_of(descriptor).ok_or(io::ErrorKind::NotFound)?;
        let lease = Lease::take(descriptor, self.thread)?;
        let origin = Arc::new(shared.readers.open_backing(descriptor)?);
        let memory = MemoryFile::new(&name_of(descriptor), lease.len())?;
        let pages = lease.len().div_ceil(PAGE_SIZE as u64);
        let base = {
            let mut next = lock(&self.next);
            let base = *next;
            *next = base.plus(pages.next_multiple_of(ALIGN_PAGES));
            base
        };
        let opened = Arc::new(StandIn {
            memory,
            origin,
            lease,
            file,
            user,
            space: self.space,
            base,
            state: RwLock::new(State::Valid),
            spaces: Mutex::default(),
            used: Mutex::new(Instant::now()),
        });
        lock(&self.files).insert(base, opened.clone());
        shared.meters.leases.add(1);
        Ok(opened)
    }

    /// The thread's life.
    fn run(&self, calls: &LeaseCalls) {
        loop {
            let mut fds = [readable(self.bell.as_raw_fd()), readable(calls.as_raw_fd())];
            wait(&mut fds, Some(LOOK_EVERY));
            self.bell.hush();
            calls.hush();
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            if shared.is_over() {
                return;
            }
            self.look_at_leases(&shared);
            self.take_chosen(&shared);
            self.drop_unused(&shared);
        }
    }

    fn look_at_leases(&self, shared: &Shared) {
        let files: Vec<_> = lock(&self.files).values().cloned().collect();
        let since = std::mem::replace(&mut *lock(&self.looked), Instant::now());
        for file in files.into_iter().filter(|file| !file.lease.is_held()) {
            if since.elapsed() > self.break_time / LOOK_LATE {
                shared.fail(Failure::LeaseMissed(name_of(&file.lease).to_string()));
            }
            self.give_up(shared, &file);
        }
    }

    /// Makes a file's memory void, then gives its lease up.
    fn give_up(&self, shared: &Shared, file: &Arc<StandIn>) {
        *file.state.write().unwrap_or_else(PoisonError::into_inner) = State::Void;
        // From here on nothing is filled, and nobody joins without finding it void.
        let whole = file.len().next_multiple_of(PAGE_SIZE as u64);
        if !file.memory.punch(0, whole) {
            // Without the lease given up, nobody can have changed the file before the job is dead.
            return shared.fail(Failure::FileNotGivenBack);
        }
        file.lease.give_up();
        shared.meters.leases_broken.add(1);
        self.forget(shared, file);
        for link in lock(&file.spaces).iter().filter_map(Weak::upgrade) {
            call(&link);
        }
    }

    /// Gives every lease up: pleat is about to be stopped, and could not do so then.
    pub fn give_up_all(&self, shared: &Shared) {
        let files: Vec<_> = lock(&self.files).values().cloned().collect();
        files.iter().for_each(|file| self.give_up(shared, file));
    }

    fn forget(&self, shared: &Shared, file: &StandIn) {
        lock(&self.files).remove(&file.base);
        shared.engine().forget(self.space, file.pages());
    }

    /// Lets go of memory that no mapping uses.
    fn drop_unused(&self, shared: &Shared) {
        let mut files = lock(&self.files);
        let is_unused =
            |file: &Arc<StandIn>| Arc::strong_count(file) == 1 && lock(&file.used).elapsed() > KEPT;
        let unused: Vec<_> = files
            .values()
            .filter(|file| is_unused(file))
            .cloned()
            .collect();
        // With the list locked, nobody has found one of them since.
        unused
            .iter()
            .for_each(|file| drop(files.remove(&file.base)));
        drop(files);
        for file in unused {
            self.forget(shared, &file);
        }
    }
}

fn key_of(descriptor: &OwnedFd) -> Option<(u64, u64)> {
    let status = File::from(descriptor.try_clone().ok()?).metadata().ok()?;
    Some((status.dev(), status.ino()))
}

/// The last part of a file's path, for people.
fn name_of(descriptor: &impl AsRawFd) -> String {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
    let path = path.unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
