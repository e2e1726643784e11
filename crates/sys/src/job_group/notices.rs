//! How the kernel tells that somebody has begun to wait at a group's limit (v1), or was slowed (v2).

use crate::process::Bell;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A descriptor to poll, and whether somebody waits now.
#[derive(Debug)]
pub enum Notices {
    /// v1: an eventfd that the kernel raises, and the file that tells.
    Waiting(Bell, File),
    /// v2: the file of counts, which the kernel marks when one changes.
    Events(File),
}

impl Notices {
    /// v1.
    pub(super) fn of_waiting(dir: &Path) -> io::Result<Notices> {
        let control = File::open(dir.join("memory.oom_control"))?;
        let bell = Bell::new()?;
        let order = format!("{} {}", bell.as_raw_fd(), control.as_raw_fd());
        fs::write(dir.join("cgroup.event_control"), order)?;
        Ok(Notices::Waiting(bell, control))
    }

    /// v2.
    pub(super) fn of_events(dir: &Path) -> io::Result<Notices> {
        Ok(Notices::Events(File::open(dir.join("memory.events"))?))
    }

    /// What to poll, and for which events.
    pub fn to_poll(&self) -> libc::pollfd {
        let (fd, events): (RawFd, _) = match self {
            Notices::Waiting(bell, _) => (bell.as_raw_fd(), libc::POLLIN),
            Notices::Events(file) => (file.as_raw_fd(), libc::POLLPRI),
        };
        libc::pollfd {
            fd,
            events,
            revents: 0,
        }
    }

    /// v1: whether somebody waits now.
    pub fn is_waiting(&self) -> bool {
        self.count("under_oom ") == 1
    }

    /// v2: how often somebody was slowed so far.
    pub fn times_slowed(&self) -> u64 {
        self.count("high ")
    }

    /// The number behind a name. Reading is what makes the next event of v2 raise the descriptor again.
    fn count(&self, name: &str) -> u64 {
        let (Notices::Waiting(_, file) | Notices::Events(file)) = self;
        let mut text = [0u8; 512];
        let len = file.read_at(&mut text, 0).unwrap_or(0);
        let text = std::str::from_utf8(&text[..len]).unwrap_or_default();
        let number = text.lines().find_map(|line| line.strip_prefix(name));
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// Makes the descriptor silent until the next event.
    pub fn hush(&self) {
        match self {
            Notices::Waiting(bell, _) => bell.hush(),
            Notices::Events(_) => {
                self.times_slowed();
            }
        }
    }
}
