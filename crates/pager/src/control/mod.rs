//! The control socket of a job: others ask there how it stands, and change its budget.
//!
//! The main thread serves it between its looks at memory, and waits for nobody: a connection costs a few microseconds
//! a request, there are few of them, and one that sends nonsense, or does not read its answers, is closed. Only its own user and root
//! are heard. Where no socket can be had, the job runs without.

mod detail;
mod place;
mod protocol;

pub use detail::{Detail, Figure, Managed, Row, Tiers, Totals};
pub use place::Place;
pub use protocol::{done, refused, Request, Status, VERSION};

use pleat_sys::local::{effective_user, peer};
use pleat_sys::process::readable;
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Connections at a time. When another comes, the one goes that has been silent longest.
const CONNECTIONS_MAX: usize = 8;
/// But none that has been silent for less.
const SILENT_MIN: Duration = Duration::from_secs(1);
/// Bytes of a request's line.
const LINE_MAX: usize = 4096;
/// Between two requests of a connection, and, where newcomers had to be turned away, until the next is heard.
const REQUEST_EVERY: Duration = Duration::from_millis(5);
const TURNED_AWAY_FOR: Duration = Duration::from_millis(100);

/// The socket, with who is connected. It is removed when this is dropped.
pub struct Control {
    listener: UnixListener,
    place: Place,
    pid: i32,
    uid: u32,
    connections: Vec<Connection>,
    /// Nobody is let in before.
    closed_until: Option<Instant>,
}

struct Connection {
    stream: UnixStream,
    /// What was read and not answered.
    text: Vec<u8>,
    /// When it last said something.
    heard: Instant,
    /// It is not listened to before.
    rests_until: Instant,
}

/// What became of a connection.
#[derive(PartialEq, Eq)]
enum State {
    Open,
    Closed,
}

impl Control {
    /// Listens for this process's job.
    ///
    /// # Errors
    /// Why it cannot, with what helps.
    pub fn open() -> Result<Control, String> {
        let place = Place::make()?;
        Control::listen(place, std::process::id() as i32)
    }

    fn listen(place: Place, pid: i32) -> Result<Control, String> {
        let why = |error: std::io::Error| format!("{}: {error}", place.shown(pid).display());
        // One of this number that has ended may have left its own; or it lives, in another PID namespace.
        let path = place.socket(pid);
        match pleat_sys::local::connect(&path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => place.remove(pid),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(why)?;
        let ready = fs::set_permissions(&path, Permissions::from_mode(0o600))
            .and_then(|()| listener.set_nonblocking(true));
        if let Err(error) = ready {
            place.remove(pid);
            return Err(why(error));
        }
        Ok(Control {
            listener,
            place,
            pid,
            uid: effective_user(),
            connections: Vec::new(),
            closed_until: None,
        })
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.place.shown(self.pid)
    }

    /// What to poll.
    pub fn to_poll(&self) -> Vec<libc::pollfd> {
        let now = Instant::now();
        let mut fds = Vec::new();
        if self.closed_until.is_none_or(|until| now >= until) {
            fds.push(readable(self.listener.as_raw_fd()));
        }
        let awake = self.connections.iter().filter(|one| now >= one.rests_until);
        fds.extend(awake.map(|one| readable(one.stream.as_raw_fd())));
        fds
    }

    /// Whether a request has been read that is to be answered now.
    pub fn has_waiting(&self) -> bool {
        let now = Instant::now();
        let mut connections = self.connections.iter();
        connections.any(|one| now >= one.rests_until && one.text.contains(&b'\n'))
    }

    /// Lets newcomers in, and answers one request of each connection by what `answer` makes of it, a line.
    pub fn serve(&mut self, mut answer: impl FnMut(Request) -> String) {
        let now = Instant::now();
        self.let_in(now);
        self.connections
            .retain_mut(|one| now < one.rests_until || one.serve(now, &mut answer) == State::Open);
    }

    fn let_in(&mut self, now: Instant) {
        if self.closed_until.is_some_and(|until| now < until) {
            return;
        }
        self.closed_until = None;
        for _ in 0..CONNECTIONS_MAX {
            let Ok((stream, _)) = self.listener.accept() else {
                return;
            };
            let is_ours = peer(&stream).is_ok_and(|peer| peer.uid == self.uid || peer.uid == 0);
            if !is_ours || stream.set_nonblocking(true).is_err() {
                continue;
            }
            if !self.make_room(now) {
                self.closed_until = Some(now + TURNED_AWAY_FOR);
                return;
            }
            self.connections.push(Connection {
                stream,
                text: Vec::new(),
                heard: now,
                rests_until: now,
            });
        }
    }

    fn make_room(&mut self, now: Instant) -> bool {
        if self.connections.len() < CONNECTIONS_MAX {
            return true;
        }
        let connections = self.connections.iter().enumerate();
        let silent = connections.min_by_key(|(_, one)| one.heard);
        match silent {
            Some((index, one)) if now - one.heard >= SILENT_MIN => {
                self.connections.swap_remove(index);
                true
            }
            _ => false,
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.place.remove(self.pid);
    }
}

impl Connection {
    fn serve(&mut self, now: Instant, answer: &mut impl FnMut(Request) -> String) -> State {
        let is_over = self.read(now) == State::Closed;
        let Some(end) = self.text.iter().position(|byte| *byte == b'\n') else {
            if self.text.len() < LINE_MAX {
                return if is_over { State::Closed } else { State::Open };
            }
            self.send(&refused(&format!(
                "a request has at most {LINE_MAX} bytes, and ends with a line feed"
            )));
            return State::Closed;
        };
        let line: Vec<u8> = self.text.drain(..=end).collect();
        let line = match Request::parse(&line[..end]) {
            Ok(request) => answer(request),
            Err(why) => refused(&why),
        };
        self.rests_until = now + REQUEST_EVERY;
        // What the other has written before it closed its end is answered all the same, as far as it is here.
        match self.send(&line) {
            State::Open if !is_over || self.text.contains(&b'\n') => State::Open,
            _ => State::Closed,
        }
    }

    /// Reads what there is, up to a line's length.
    fn read(&mut self, now: Instant) -> State {
        let mut bytes = [0; 1024];
        while self.text.len() < LINE_MAX && !self.text.contains(&b'\n') {
            match self.stream.read(&mut bytes) {
                Ok(0) => return State::Closed,
                Ok(count) => {
                    self.heard = now;
                    self.text.extend_from_slice(&bytes[..count]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return State::Open,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return State::Closed,
            }
        }
        State::Open
    }

    /// Who has no room for an answer does not read: its connection is closed.
    fn send(&mut self, line: &str) -> State {
        match self.stream.write(line.as_bytes()) {
            Ok(count) if count == line.len() => State::Open,
            _ => State::Closed,
        }
    }
}

#[cfg(test)]
mod tests;
