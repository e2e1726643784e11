//! Jobs that run: finds them by their control sockets, and asks them.
//!
//! What a job says is believed only as far as its user is the one whose directory the socket lies in; and it is shown without control
//! characters. A job that does not answer keeps nobody waiting for long.

mod attach;
mod list;
mod outer;
mod rates;
mod set;
mod watch;

pub use attach::{attach, detach};
pub use list::for_so_long;
pub use list::list;
pub use outer::{step_out, Outer};
pub use rates::{ratio, Rates};
pub use set::{choose, set, share_around};
pub use watch::{News, Watch};

use crate::exit::Stop;
use crate::pager::control::{Detail, Place, Request, Status};
use pleat_sys::local::{self, Identity};
use serde::de::DeserializeOwned;
use serde::Deserialize;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a job may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of an answer.
const ANSWER_MAX: usize = 4 << 20;

/// A job that answers.
pub struct Job {
    place: Place,
    /// The user whose it is.
    pub uid: u32,
    /// How it stands.
    pub status: Status,
}

/// What was found.
#[derive(Default)]
pub struct Found {
    /// Those that answer, in the order of their beginning.
    pub jobs: Vec<Job>,
    /// One line about each that does not.
    pub silent: Vec<String>,
}

/// Why there is no answer.
enum Mute {
    /// Nobody listens: the supervisor is gone.
    Gone,
    /// The job does not want to: why.
    Refused(String),
    /// It does not say anything that is an answer.
    Silent(String),
}

impl Found {
    /// All jobs that this user may ask. Sockets that dead supervisors left are removed.
    pub fn all() -> Found {
        let mut found = Found::default();
        for place in Place::all() {
            for pid in place.supervisors() {
                found.ask(&place, pid);
            }
        }
        let jobs = &mut found.jobs;
        jobs.sort_by_key(|job| (job.status.started_unix_s, job.status.pid));
        found
    }

    fn ask(&mut self, place: &Place, pid: i32) {
        match ask(place, pid, Request::Status) {
            Ok(answer) => match (Status::deserialize(answer), place.try_clone()) {
                (Ok(status), Ok(place)) => self.jobs.push(Job {
                    uid: place.uid(),
                    place,
                    status: Status { pid, ..status },
                }),
                _ => self
                    .silent
                    .push(format!("{pid} does not answer as a job does")),
            },
            Err(Mute::Gone) => place.remove_if_stale(pid),
            Err(Mute::Refused(why) | Mute::Silent(why)) => {
                self.silent
                    .push(format!("{pid} does not answer: {}", shown(&why)));
            }
        }
    }
}

impl Job {
    /// The path of its socket.
    pub fn socket(&self) -> PathBuf {
        self.place.shown(self.status.pid)
    }

    /// For messages: `job 4711 (train)`.
    pub fn title(&self) -> String {
        format!("job {} ({})", self.status.pid, shown(&self.status.name))
    }

    /// What it answers to what it is told to do.
    ///
    /// # Errors
    /// It refuses, does not answer, or has ended.
    fn order(&self, request: Request) -> Result<Value, Stop> {
        let title = self.title();
        ask(&self.place, self.status.pid, request).map_err(|mute| match mute {
            Mute::Gone => Stop::mistake(format!("{title} has just ended")),
            Mute::Refused(why) => Stop::mistake(format!("{title}: {}", shown(&why))),
            Mute::Silent(why) => Stop::failure(format!("{title} does not answer: {}", shown(&why))),
        })
    }

    /// How it stands now; `None` when it has ended.
    ///
    /// # Errors
    /// It does not answer: why.
    fn look(&self) -> Result<Option<Status>, String> {
        self.ask_for(Request::Status)
    }

    /// The same with tiers, totals and processes.
    ///
    /// # Errors
    /// It does not answer: why.
    pub fn look_closely(&self) -> Result<Option<Detail>, String> {
        self.ask_for(Request::Detail)
    }

    fn ask_for<T: DeserializeOwned>(&self, request: Request) -> Result<Option<T>, String> {
        match ask(&self.place, self.status.pid, request) {
            Ok(answer) => {
                let read = T::deserialize(answer);
                Ok(Some(read.map_err(|error| error.to_string())?))
            }
            Err(Mute::Gone) => Ok(None),
            Err(Mute::Refused(why) | Mute::Silent(why)) => Err(why),
        }
    }
}

/// What a supervisor answers.
fn ask(place: &Place, pid: i32, request: Request) -> Result<Value, Mute> {
    let silent = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Mute::Silent(format!(
            "it said nothing for {} s; it may be stopped",
            PATIENCE.as_secs()
        )),
        // The job ended, or has removed its socket, just now.
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::NotFound => Mute::Gone,
        _ => Mute::Silent(error.to_string()),
    };
    let mut stream = open(place, pid)?;
    let ready = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
        .and_then(|()| stream.write_all(request.line().as_bytes()));
    ready.map_err(silent)?;
    read(&read_line(&mut stream).map_err(silent)?)
}

/// Connects to a supervisor; the stream does not block. It is told from others by its user.
fn open(place: &Place, pid: i32) -> Result<UnixStream, Mute> {
    let stream = local::connect(&place.socket(pid)).map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => Mute::Gone,
        ErrorKind::WouldBlock => Mute::Silent("too many ask it already".into()),
        _ => Mute::Silent(error.to_string()),
    })?;
    let peer = local::peer(&stream).map_err(|error| Mute::Silent(error.to_string()))?;
    match peer {
        Identity { uid, .. } if uid == place.uid() => Ok(stream),
        Identity { uid, .. } => Err(Mute::Silent(format!(
            "it is of user {uid}, in a directory of user {}",
            place.uid()
        ))),
    }
}

/// What a line says.
fn read(line: &[u8]) -> Result<Value, Mute> {
    let answer: Value =
        serde_json::from_slice(line).map_err(|_| Mute::Silent("it says what is no JSON".into()))?;
    match (answer["ok"].as_bool(), answer["error"].as_str()) {
        (Some(true), _) => Ok(answer),
        (_, Some(why)) => Err(Mute::Refused(why.to_owned())),
        _ => Err(Mute::Silent("it says what is no answer".into())),
    }
}

/// One line, within bounds of time and length.
fn read_line(stream: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let start = Instant::now();
    let (mut line, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut bytes)?;
        line.extend_from_slice(&bytes[..count]);
        match () {
            () if count == 0 => return Err(ErrorKind::ConnectionReset.into()),
            () if line.last() == Some(&b'\n') => return Ok(line),
            () if line.len() > ANSWER_MAX => return Err(ErrorKind::InvalidData.into()),
            () if start.elapsed() > PATIENCE => return Err(ErrorKind::TimedOut.into()),
            () => {}
        }
    }
}

/// A text of a job's on a terminal.
pub fn shown(text: &str) -> String {
    text.replace(|letter: char| letter.is_control(), "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_line_of_bounded_length() {
        let read = |mut text: &[u8]| read_line(&mut text).map_err(|error| error.kind());
        assert_eq!(read(b"{}\n"), Ok(b"{}\n".to_vec()));
        assert_eq!(read(b"{}"), Err(ErrorKind::ConnectionReset));
        let endless = vec![b'x'; ANSWER_MAX + 8192];
        assert_eq!(read(&endless), Err(ErrorKind::InvalidData));
    }

    #[test]
    fn what_jobs_say_cannot_command_a_terminal() {
        assert_eq!(shown("a\u{1b}[2Jb\u{9b}c\n"), "a?[2Jb?c?");
    }
}
