//! The guard of a mount: a second process that cuts the mount off when the one that serves it is killed.
//!
//! The kernel does that itself when the last descriptor of the FUSE connection is closed. But a thread of the
//! server may wait in the kernel, uninterruptibly, for a page that a program keeps locked until its own
//! request is answered (`NOTIFY_INVAL_INODE` does). Killed then, the server never ends, never closes the
//! connection, and every program that uses the mount hangs for good.
//!
//! So the guard hears of the death of the server's main thread, which waits for nothing, and aborts the
//! connection. The mount stays, and answers ENOTCONN: programs do not write below it unawares. Only where
//! its programs die with the server it is taken away, when they have had the time to.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU8, Ordering};
use std::time::Duration;

const PATH_MAX: usize = 4096;
/// How long programs that die with the server may take for it.
const LINGER: Duration = Duration::from_secs(1);
/// By which the guard hears of the death.
const NEWS: i32 = libc::SIGUSR1;

/// Memory shared with the guard.
struct Shared {
    /// The mount has ended as it should, or does not exist yet.
    calm: AtomicBool,
    /// A mount that was cut off is taken away, too.
    takes_away: AtomicBool,
    /// The connection's number: the minor number of the file system's device.
    connection: AtomicU32,
    /// Where it is mounted, with a zero at the end.
    path: [AtomicU8; PATH_MAX],
}

/// The server's side of the guard.
pub struct Guard {
    shared: &'static Shared,
    pid: i32,
}

impl Guard {
    /// Starts the guard. To be called from the main thread, while there is no other.
    ///
    /// # Errors
    /// When memory or a process cannot be had.
    pub fn start() -> io::Result<Guard> {
        let shared = map_shared()?;
        // SAFETY: getpid has no arguments; the process has one thread, so its copy may do anything. The
        // copy runs `watch` only, which never returns.
        let (server, pid) = unsafe { (libc::getpid(), libc::fork()) };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(shared, server),
            pid => Ok(Guard { shared, pid }),
        }
    }

    /// This is mounted now: to be cut off if we are killed.
    ///
    /// # Errors
    /// When the path is too long.
    pub fn protect(&self, path: &Path, connection: u32) -> io::Result<()> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() >= PATH_MAX {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        for (place, &byte) in self.shared.path.iter().zip(bytes.iter().chain(&[0])) {
            place.store(byte, Ordering::Relaxed);
        }
        self.shared.connection.store(connection, Ordering::Relaxed);
        self.shared.calm.store(false, Ordering::Release);
        Ok(())
    }

    /// The mount's programs die with the server: nobody writes below it then if it is taken away.
    pub fn take_away(&self) {
        self.shared.takes_away.store(true, Ordering::Relaxed);
    }

    /// The guard's process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The mount has ended: the guard ends too.
    pub fn dismiss(self) {
        self.shared.calm.store(true, Ordering::Release);
        super::signals::send(self.pid, libc::SIGKILL);
        // SAFETY: a child of ours, and no status is asked for.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

fn map_shared() -> io::Result<&'static Shared> {
    // SAFETY: a fresh mapping, zeroed by the kernel, never unmapped; all fields are atomics.
    unsafe {
        let start = libc::mmap(
            std::ptr::null_mut(),
            size_of::<Shared>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let shared = &*start.cast::<Shared>();
        shared.calm.store(true, Ordering::Relaxed);
        Ok(shared)
    }
}

fn watch(shared: &Shared, server: i32) -> ! {
    // SAFETY: system calls with valid arguments.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"pleat-guard".as_ptr());
        // A daemon's terminal and pipes are not to be kept open by its guard.
        libc::close_range(0, libc::c_uint::MAX, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, NEWS);
        let mut news: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut news);
        libc::sigaddset(&mut news, NEWS);
        // Unless it died before we asked to be told. (Later that tells nothing: as long as one of its
        // threads hangs, the server is our parent.)
        if libc::getppid() == server {
            while libc::sigwaitinfo(&news, std::ptr::null_mut()) != NEWS {}
        }
    }
    if !shared.calm.load(Ordering::Acquire) {
        cut_off(shared);
        if shared.takes_away.load(Ordering::Relaxed) {
            std::thread::sleep(LINGER);
            take_away(shared);
        }
    }
    // SAFETY: ends this process without running anything.
    unsafe { libc::_exit(0) }
}

/// Aborts the connection, by the means of the control file system; where that is not mounted, by an unmount
/// that is bound to fail.
fn cut_off(shared: &Shared) {
    let connection = shared.connection.load(Ordering::Relaxed);
    let switch = format!("/sys/fs/fuse/connections/{connection}/abort");
    if std::fs::write(switch, "1").is_ok() {
        return;
    }
    let Some(path) = path(shared) else { return };
    // SAFETY: a path with a zero at its end. With `O_PATH` nothing is asked of the file system, and the
    // descriptor keeps the mount in use: MNT_FORCE aborts the connection, and the unmount fails.
    unsafe {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let root = libc::open(path.as_ptr(), flags);
        // Something else may be mounted there by now.
        if root >= 0 && is_ours(root, connection) {
            libc::umount2(path.as_ptr(), libc::MNT_FORCE | libc::UMOUNT_NOFOLLOW);
        }
    }
}

fn path(shared: &Shared) -> Option<CString> {
    let bytes = shared.path.iter().map(|byte| byte.load(Ordering::Relaxed));
    let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
    CString::new(bytes).ok()
}

/// Takes the mount out of the tree of directories, by the helper if we may not ourselves.
fn take_away(shared: &Shared) {
    let Some(path) = path(shared) else { return };
    let connection = shared.connection.load(Ordering::Relaxed);
    // SAFETY: a path with a zero at its end, and a descriptor that was just opened. Nobody is asked, and the
    // connection is cut anyway.
    let (is_ours, is_done) = unsafe {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let root = libc::open(path.as_ptr(), flags);
        let is_ours = root >= 0 && is_ours(root, connection);
        let flags = libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW;
        (is_ours, is_ours && libc::umount2(path.as_ptr(), flags) == 0)
    };
    if is_ours && !is_done {
        let place = PathBuf::from(std::ffi::OsStr::from_bytes(path.as_bytes()));
        let mut helper = Command::new("fusermount3");
        helper.args(["-u", "-z", "-q", "--"]).arg(place);
        let quiet = helper.stdin(Stdio::null()).stdout(Stdio::null());
        // Nobody is left to be told.
        let _ = quiet.stderr(Stdio::null()).status();
    }
}

/// Whether what is open there is of our connection, as far as that can be told without asking its server.
///
/// # Safety
/// `root` is an open descriptor.
unsafe fn is_ours(root: i32, connection: u32) -> bool {
    // SAFETY: plain data, for which all zeros is a value.
    let mut answer: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: an open descriptor, an empty path, room for the answer. AT_STATX_DONT_SYNC asks nobody.
    let result = unsafe {
        libc::statx(
            root,
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC,
            0,
            &mut answer,
        )
    };
    result == 0 && answer.stx_dev_major == 0 && answer.stx_dev_minor == connection
}
