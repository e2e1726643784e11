//! Jobs watched over time: a connection to each, which is asked again and again and keeps nobody waiting.
//!
//! A job that is stopped does not answer: its question stays open, and no other is asked until it does. A supervisor may close a
//! connection to make room for another; whether the job has ended shows when it cannot be connected to again.

use super::{open, read, shown, Mute, ANSWER_MAX, PATIENCE};
use crate::pager::control::{Detail, Place, Request, Status};
use pleat_sys::process::{readable, wait};
use serde::Deserialize;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// What was heard of a job.
#[derive(Debug)]
pub enum News {
    /// How it stands.
    Looked(Box<Detail>),
    /// What came of a new budget, or why it was refused.
    Set(Result<Box<Status>, String>),
    /// It does not answer: why.
    Silent(String),
    /// It has ended.
    Ended,
}

/// New jobs are looked for so often: it takes reading some directories, /tmp among them.
const FOUND_WITHIN: Duration = Duration::from_secs(2);

/// Jobs that are watched: all that this user may watch.
#[derive(Default)]
pub struct Watch {
    jobs: Vec<Watched>,
    /// Of this supervisor alone.
    only: Option<i32>,
    /// When new ones were looked for.
    looked: Option<Instant>,
}

struct Watched {
    place: Place,
    pid: i32,
    stream: UnixStream,
    /// What was read and is no whole line.
    text: Vec<u8>,
    /// What was asked and not answered, and when.
    asked: Option<(Request, Instant)>,
    /// The budget that it is to have, as soon as it has answered.
    wanted: Option<u64>,
    is_told_silent: bool,
}

/// One answer is here, or none yet.
type Answer = Option<Vec<u8>>;

impl Watch {
    /// Of one job, by its supervisor.
    pub fn only(pid: i32) -> Watch {
        Watch {
            only: Some(pid),
            ..Watch::default()
        }
    }

    /// The jobs that are watched: their supervisors and users.
    pub fn jobs(&self) -> impl Iterator<Item = (i32, u32)> + '_ {
        self.jobs.iter().map(|job| (job.pid, job.place.uid()))
    }

    /// Looks for new jobs now and then, and asks all that have answered how they stand.
    pub fn ask(&mut self) -> Vec<(i32, u32, News)> {
        // The one that is meant is found once.
        let is_complete = self.only.is_some() && !self.jobs.is_empty();
        let is_due = !is_complete && self.looked.is_none_or(|at| at.elapsed() >= FOUND_WITHIN);
        let news = if is_due { self.find() } else { Vec::new() };
        for job in &mut self.jobs {
            if job.asked.is_none() {
                // Where that fails, `hear` finds out why.
                job.ask(Request::Detail);
            }
        }
        news
    }

    fn find(&mut self) -> Vec<(i32, u32, News)> {
        self.looked = Some(Instant::now());
        let mut news = Vec::new();
        for place in Place::all() {
            for pid in place.supervisors() {
                let is_wanted = self.only.is_none_or(|only| only == pid);
                if is_wanted && !self.jobs.iter().any(|job| job.pid == pid) {
                    match Watched::new(&place, pid) {
                        Ok(job) => self.jobs.push(job),
                        Err(Mute::Gone) => place.remove_if_stale(pid),
                        Err(Mute::Silent(why) | Mute::Refused(why)) => {
                            news.push((pid, place.uid(), News::Silent(shown(&why))));
                        }
                    }
                }
            }
        }
        news
    }

    /// Gives a job a budget as soon as it can be told. `News::Set` says what came of it.
    pub fn set_budget(&mut self, pid: i32, bytes: u64) {
        let Some(job) = self.jobs.iter_mut().find(|job| job.pid == pid) else {
            return;
        };
        job.wanted = Some(bytes);
        job.say_what_is_wanted();
    }

    /// What to poll for answers.
    pub fn descriptors(&self) -> Vec<libc::pollfd> {
        let streams = self.jobs.iter().map(|job| &job.stream);
        streams.map(|stream| readable(stream.as_raw_fd())).collect()
    }

    /// Waits for answers, for so long at most, and returns what was heard.
    pub fn hear(&mut self, most: Duration) -> Vec<(i32, u32, News)> {
        let end = Instant::now() + most;
        let mut news = Vec::new();
        loop {
            self.jobs.retain_mut(|job| job.hear(&mut news));
            let left = end.saturating_duration_since(Instant::now());
            let is_open = self.jobs.iter().any(|job| job.asked.is_some());
            if left.is_zero() || !is_open {
                return news;
            }
            wait(&mut self.descriptors(), Some(left));
        }
    }
}

impl Watched {
    fn new(place: &Place, pid: i32) -> Result<Watched, Mute> {
        let why = |error: std::io::Error| Mute::Silent(error.to_string());
        Ok(Watched {
            stream: open(place, pid)?,
            place: place.try_clone().map_err(why)?,
            pid,
            text: Vec::new(),
            asked: None,
            wanted: None,
            is_told_silent: false,
        })
    }

    fn ask(&mut self, request: Request) {
        // There is room for a line where all before were answered. Where it is gone, reading says so.
        let _ = self.stream.write(request.line().as_bytes());
        self.asked = Some((request, Instant::now()));
    }

    fn say_what_is_wanted(&mut self) {
        if self.asked.is_none() {
            if let Some(bytes) = self.wanted.take() {
                self.ask(Request::Set(bytes));
            }
        }
    }

    /// Takes what there is; `false` when the job has ended.
    fn hear(&mut self, news: &mut Vec<(i32, u32, News)>) -> bool {
        let (pid, uid) = (self.pid, self.place.uid());
        let mut tell = |what| news.push((pid, uid, what));
        match self.line() {
            Ok(Some(line)) => {
                let request = self.asked.take().map(|(request, _)| request);
                self.is_told_silent = false;
                tell(understand(request, &line));
                self.say_what_is_wanted();
                true
            }
            Ok(None) => {
                let is_late = |at: &Instant| at.elapsed() > PATIENCE;
                if self.asked.as_ref().is_some_and(|(_, at)| is_late(at)) && !self.is_told_silent {
                    self.is_told_silent = true;
                    tell(News::Silent("it does not answer; it may be stopped".into()));
                }
                true
            }
            Err(()) => match open(&self.place, self.pid) {
                Ok(stream) => {
                    self.stream = stream;
                    self.text.clear();
                    self.asked = None;
                    self.say_what_is_wanted();
                    true
                }
                Err(Mute::Gone) => {
                    tell(News::Ended);
                    false
                }
                Err(Mute::Silent(why) | Mute::Refused(why)) => {
                    // It is looked for again with the next question.
                    tell(News::Silent(shown(&why)));
                    false
                }
            },
        }
    }

    /// The next line, if it is here.
    fn line(&mut self) -> Result<Answer, ()> {
        let mut bytes = [0; 16 << 10];
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.text.drain(..=end).collect()));
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(()),
                Ok(_) if self.text.len() > ANSWER_MAX => return Err(()),
                Ok(count) => self.text.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(()),
            }
        }
    }
}

/// What a line says that answers this.
fn understand(request: Option<Request>, line: &[u8]) -> News {
    let answer = read(line).map_err(|mute| match mute {
        Mute::Gone => "it has ended".to_owned(),
        Mute::Refused(why) | Mute::Silent(why) => shown(&why),
    });
    match request {
        Some(Request::Set(_)) => News::Set(answer.and_then(|answer| {
            let status = Status::deserialize(answer).map(Box::new);
            status.map_err(|error| error.to_string())
        })),
        // The only reason there is to refuse it.
        Some(Request::Detail) if matches!(read(line), Err(Mute::Refused(_))) => {
            News::Silent("it runs under an older pleat, which cannot be watched".into())
        }
        _ => {
            let detail = answer.and_then(|answer| {
                let detail = Detail::deserialize(answer).map(Box::new);
                detail.map_err(|_| "it is of another version of pleat".into())
            });
            detail.map_or_else(News::Silent, News::Looked)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pager::control::{done, refused};

    #[test]
    fn an_answer_is_understood_by_what_was_asked() {
        let status = done(Status {
            pid: 7,
            ..Status::default()
        });
        let detail = done(Detail::default());
        let no = refused("no\u{1b}[2J");
        assert!(matches!(
            understand(Some(Request::Detail), detail.as_bytes()),
            News::Looked(_)
        ));
        assert!(matches!(
            understand(Some(Request::Set(1)), status.as_bytes()),
            News::Set(Ok(status)) if status.pid == 7
        ));
        assert!(matches!(
            understand(Some(Request::Set(1)), no.as_bytes()),
            News::Set(Err(why)) if why == "no?[2J"
        ));
        assert!(matches!(
            understand(Some(Request::Detail), no.as_bytes()),
            News::Silent(why) if why.contains("older pleat")
        ));
        assert!(matches!(
            understand(Some(Request::Detail), status.as_bytes()),
            News::Silent(why) if why.contains("another version")
        ));
        assert!(matches!(
            understand(Some(Request::Detail), b"nonsense\n"),
            News::Silent(_)
        ));
    }
}
