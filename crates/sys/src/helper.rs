//! `pleat-helper`, as the supervisor of an ordinary user has it: see there what it does.

use crate::channel::{Channel, Received};
use crate::process::{readable, wait};
use crate::uffd::Uffd;
use pleat_wire::helper::{ANSWER_BYTES, SOCKET, WITH_DEVICE};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long an answer may take: it is a program of ours, with nothing else to do.
const PATIENCE: Duration = Duration::from_secs(2);

/// A running helper. It ends when this is dropped.
#[derive(Debug)]
pub struct Helper {
    channel: Channel,
    pid: i32,
}

impl Helper {
    /// Starts it, and takes the device that it opens, if it may.
    ///
    /// # Errors
    /// It may not be executed, or is not the helper.
    pub fn start(path: &Path) -> io::Result<(Helper, Option<File>)> {
        let (channel, theirs) = Channel::pair()?;
        let mut command = Command::new(path);
        command
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let fd = theirs.as_raw_fd();
        let place = move || {
            // SAFETY: async-signal-safe calls without pointers. A descriptor that is in its place already is only
            // to be left open.
            let placed = unsafe {
                match fd {
                    SOCKET => libc::fcntl(fd, libc::F_SETFD, 0),
                    _ => libc::dup2(fd, SOCKET),
                }
            };
            match placed {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        };
        // SAFETY: `place` allocates nothing and takes no lock.
        unsafe { command.pre_exec(place) };
        let pid = command.spawn()?.id() as i32;
        drop(theirs);
        let helper = Helper { channel, pid };
        let (word, descriptors) = helper.hear()?;
        let device = descriptors.into_iter().next().map(File::from);
        Ok((helper, device.filter(|_| word == WITH_DEVICE)))
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Has it make the handshake with fork events over a userfaultfd.
    ///
    /// # Errors
    /// Of the kernel; EPIPE when the helper is gone.
    pub fn shake_hands(&self, uffd: &Uffd) -> io::Result<()> {
        self.channel.send(&[0; 8], Some(uffd.as_raw_fd()))?;
        match self.hear()?.0 {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn hear(&self) -> io::Result<(i32, Vec<OwnedFd>)> {
        let mut fds = [readable(self.channel.as_raw_fd())];
        wait(&mut fds, Some(PATIENCE));
        let mut bytes = [0u8; ANSWER_BYTES];
        match self.channel.receive(&mut bytes) {
            Received::Packet(ANSWER_BYTES, descriptors) => {
                Ok((i32::from_ne_bytes(bytes), descriptors))
            }
            _ => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        crate::signals::send(self.pid, libc::SIGKILL);
        // SAFETY: no pointer to write to. Whoever collects all children may have been first.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}
