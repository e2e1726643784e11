//! Mounting and unmounting.
#![forbid(unsafe_code)]

use crate::content::Content;
use crate::error::MountError;
use crate::notify::Notifier;
use crate::session::Session;
use crate::tree::Tree;
use crate::watch::{Outside, Watcher};
use fuse_backend_rs::transport::FuseSession;
use rustix::fs::{fcntl_getfl, fcntl_setfl, OFlags};
use rustix::io::Errno;
use rustix::mount::{unmount, UnmountFlags};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the kernel may take to begin.
const GREETING_S: u64 = 10;
/// How long an unmount waits for whoever still uses the mount before it only detaches it.
const BUSY_MAX: Duration = Duration::from_secs(3);
const BUSY_PAUSE: Duration = Duration::from_millis(50);
const HELPER: &str = "fusermount3";

/// What to mount, where and how.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The directory to show.
    pub source: PathBuf,
    /// Where.
    pub mountpoint: PathBuf,
    /// Nothing can be changed through the mount.
    pub read_only: bool,
    /// Other users may use it, each with their own rights. Always so when root mounts.
    pub allow_other: bool,
    /// Threads that answer requests.
    pub threads: usize,
    /// How long the kernel may believe a name in a directory that is not watched.
    pub entry_timeout: Duration,
    /// How long the kernel may believe attributes of what is not watched.
    pub attr_timeout: Duration,
    /// The kernel collects writes, and decides about sizes and times itself: faster small writes, but
    /// changes from outside may be lost.
    pub writeback: bool,
    /// How long the kernel may believe names, and attributes of files, whose changes are heard of.
    pub watched_timeout: Duration,
    /// How many files and directories the kernel may know before it is asked to forget some: each takes
    /// memory. By default a million.
    pub nodes_max: Option<usize>,
    /// How many of them keep a descriptor open by which they are found at once, and also if they were moved
    /// from outside. By default a quarter of those that this process may have, at most 4096.
    pub places_max: Option<usize>,
}

impl MountOptions {
    /// With the defaults: four threads for each CPU, from 8 to 32; names and attributes are believed for an
    /// hour where their changes are heard of, and for a second elsewhere.
    pub fn new(source: impl Into<PathBuf>, mountpoint: impl Into<PathBuf>) -> Self {
        let cpus = thread::available_parallelism().map_or(2, usize::from);
        MountOptions {
            source: source.into(),
            mountpoint: mountpoint.into(),
            read_only: false,
            allow_other: false,
            threads: (4 * cpus).clamp(8, 32),
            entry_timeout: Duration::from_secs(1),
            attr_timeout: Duration::from_secs(1),
            writeback: false,
            watched_timeout: Duration::from_secs(3600),
            nodes_max: None,
            places_max: None,
        }
    }
}

/// Lets new files have the mode that is asked for: the kernel has taken off the umask of the program that
/// asks. For the whole process, so it is up to whoever owns it.
pub fn clear_umask() {
    rustix::process::umask(rustix::fs::Mode::empty());
}

/// A mounted file system. Dropping it unmounts.
pub struct Mount {
    mountpoint: PathBuf,
    tree: Arc<Tree>,
    notifier: Notifier,
    outside: Arc<Outside>,
    /// It was unmounted: what is at the mount point now is not ours.
    is_gone: AtomicBool,
    workers: Mutex<Vec<JoinHandle<()>>>,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

impl Mount {
    /// Mounts, and returns when the mount answers.
    ///
    /// # Errors
    /// Each says what to do about it.
    pub fn start(
        mut options: MountOptions,
        content: Arc<dyn Content>,
    ) -> Result<Mount, MountError> {
        options.source = resolve_source(&options.source)?;
        options.mountpoint = resolve_mountpoint(&options.mountpoint)?;
        refuse_nesting(&options)?;
        check_device()?;
        let outside = Arc::new(Outside::default());
        let tree =
            Tree::new(&options, Arc::clone(&content), Arc::clone(&outside)).map_err(|source| {
                let path = options.source.clone();
                MountError::Source { path, source }
            })?;
        let tree = Arc::new(tree);
        let device = connect(&options)?;
        let notifier = Notifier::new(Arc::clone(&device));
        content.mounted(&notifier);
        let mount = Mount {
            mountpoint: options.mountpoint,
            tree: Arc::clone(&tree),
            notifier,
            outside,
            is_gone: AtomicBool::new(false),
            workers: Mutex::default(),
            watcher: Mutex::default(),
        };
        mount.serve(Session::new(device, tree, content), options.threads.max(1))?;
        Ok(mount)
    }

    fn serve(&self, session: Session, threads: usize) -> Result<(), MountError> {
        let session = Arc::new(session);
        for number in 0..threads {
            let session = Arc::clone(&session);
            let worker = thread::Builder::new().name(format!("pleat-fuse-{number}"));
            let worker = worker.spawn(move || session.work())?;
            lock(&self.workers).push(worker);
        }
        let watcher = Watcher::new(
            Arc::clone(&self.tree),
            self.notifier.clone(),
            Arc::clone(&self.outside),
        );
        let thread = thread::Builder::new().name("pleat-watch".to_owned());
        *lock(&self.watcher) = Some(thread.spawn(move || watcher.run())?);
        if self.tree.wait_until_ready(Duration::from_secs(GREETING_S)) {
            Ok(())
        } else {
            Err(MountError::Silent(GREETING_S))
        }
    }

    /// For telling the kernel what it did not ask.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// What is mounted.
    #[must_use]
    pub fn tree(&self) -> Arc<Tree> {
        Arc::clone(&self.tree)
    }

    /// Where it is mounted, resolved.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// The number of its connection to the kernel.
    ///
    /// # Errors
    /// It is not mounted any more.
    pub fn connection(&self) -> io::Result<u32> {
        let status = rustix::fs::stat(&self.mountpoint)?;
        Ok(rustix::fs::minor(status.st_dev))
    }

    /// Until somebody unmounts it, and nobody has a file of it open any more.
    pub fn wait(&self) {
        let workers = std::mem::take(&mut *lock(&self.workers));
        for worker in workers {
            // A panic has been told already.
            let _ = worker.join();
        }
        self.is_gone.store(true, Ordering::Release);
        self.outside.end();
        let watcher = lock(&self.watcher).take();
        if let Some(watcher) = watcher {
            let _ = watcher.join();
        }
    }

    /// Unmounts. When it stays in use for some seconds, it vanishes from the tree of directories and is
    /// served until whoever uses it is done: [`Mount::wait`] returns then.
    ///
    /// # Errors
    /// The kernel or the helper refused.
    pub fn unmount(&self) -> Result<(), MountError> {
        let end = Instant::now() + BUSY_MAX;
        loop {
            if self.is_over() {
                return Ok(());
            }
            match self.try_unmount(false) {
                Err(_) if Instant::now() < end => thread::sleep(BUSY_PAUSE),
                Err(_) => break,
                Ok(()) => {
                    self.is_gone.store(true, Ordering::Release);
                    return Ok(());
                }
            }
        }
        self.try_unmount(true)
            .map_err(|error| MountError::Unmount {
                path: self.mountpoint.clone(),
                reason: error.to_string(),
            })?;
        self.is_gone.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether the mount ended already: what is at the mount point then is not ours.
    fn is_over(&self) -> bool {
        let has_ended = || lock(&self.workers).iter().any(JoinHandle::is_finished);
        self.is_gone.load(Ordering::Acquire) || has_ended()
    }

    fn try_unmount(&self, lazily: bool) -> io::Result<()> {
        let mut flags = UnmountFlags::NOFOLLOW;
        flags.set(UnmountFlags::DETACH, lazily);
        match unmount(&self.mountpoint, flags) {
            Err(Errno::PERM) => self.unmount_by_helper(lazily),
            // Not mounted there (any more).
            Err(Errno::INVAL) => Ok(()),
            answer => Ok(answer?),
        }
    }

    fn unmount_by_helper(&self, lazily: bool) -> io::Result<()> {
        let mut helper = Command::new(HELPER);
        helper.args(["-u", "-q"]);
        if lazily {
            helper.arg("-z");
        }
        let status = helper.arg("--").arg(&self.mountpoint).status()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("{HELPER} ended with {status}")))
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Whoever wants to know calls it before.
        let _ = self.unmount();
        self.outside.end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn resolve_source(path: &Path) -> Result<PathBuf, MountError> {
    let resolved = path.canonicalize().and_then(|path| {
        // Fails for what is no directory, and for one that may not be read.
        std::fs::read_dir(&path)?;
        Ok(path)
    });
    resolved.map_err(|source| MountError::Source {
        path: path.to_owned(),
        source,
    })
}

fn resolve_mountpoint(path: &Path) -> Result<PathBuf, MountError> {
    let resolved = path.canonicalize().and_then(|path| {
        if path.is_dir() {
            Ok(path)
        } else {
            Err(io::Error::from_raw_os_error(libc::ENOTDIR))
        }
    });
    resolved.map_err(|source| MountError::MountPoint {
        path: path.to_owned(),
        source,
    })
}

fn refuse_nesting(options: &MountOptions) -> Result<(), MountError> {
    let (mountpoint, source_dir) = (&options.mountpoint, &options.source);
    if mountpoint.starts_with(source_dir) || source_dir.starts_with(mountpoint) {
        return Err(MountError::Nested {
            mountpoint: mountpoint.clone(),
            source_dir: source_dir.clone(),
        });
    }
    Ok(())
}

fn check_device() -> Result<(), MountError> {
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(MountError::Device(error))
        }
        Err(_) => Err(MountError::NoDevice),
    }
}

/// Mounts; the answer is the descriptor over which the kernel asks, which blocks.
fn connect(options: &MountOptions) -> Result<Arc<File>, MountError> {
    let refused = |reason: String| MountError::Refused {
        path: options.mountpoint.clone(),
        reason,
    };
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && !has_helper() {
        return Err(MountError::NoHelper);
    }
    let name = options.source.to_string_lossy();
    let mut kernel = FuseSession::new(&options.mountpoint, &name, "pleat", options.read_only)
        .map_err(|error| refused(error.to_string()))?;
    kernel.set_allow_other(is_root || options.allow_other);
    kernel.mount().map_err(|error| refused(error.to_string()))?;
    let file = kernel
        .get_fuse_file()
        .ok_or_else(|| refused("no connection".to_owned()))?;
    let device = file.try_clone()?;
    let flags = fcntl_getfl(&device).map_err(io::Error::from)?;
    fcntl_setfl(&device, flags - OFlags::NONBLOCK).map_err(io::Error::from)?;
    keep_from_unmounting(&mut kernel)?;
    Ok(Arc::new(device))
}

/// The library would unmount whatever is at the mount point when its session goes. To it, the end of a pipe
/// that nobody reads looks like a connection that is over.
fn keep_from_unmounting(kernel: &mut FuseSession) -> io::Result<()> {
    let (_, unread) = io::pipe()?;
    kernel.set_fuse_file(File::from(OwnedFd::from(unread)));
    Ok(())
}

fn has_helper() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(HELPER).is_file())
}
