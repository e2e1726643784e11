//! The main thread and what serves the job beside its processes.

use super::Supervisor;
use pleat_sys::process::{readable, wait};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Between two looks while the last users are served.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Who ends with the job needs a moment for it, and is not worth a word before.
const TOLD_AFTER: Duration = Duration::from_millis(200);

impl Supervisor<'_> {
    /// Passes on what there is to say.
    pub(super) fn hear_companions(&mut self) {
        let news = self.companions.iter_mut();
        let news: Vec<String> = news.filter_map(|companion| companion.news()).collect();
        news.iter().for_each(|news| self.warn(news));
    }

    /// The job is over: ends the companions, and serves whoever still uses one until they are done, or a
    /// signal comes.
    pub fn see_companions_off(&mut self) {
        let mut open: Vec<usize> = Vec::new();
        // What came for the job is not meant for this.
        while self.signals.next().is_some() {}
        for at in 0..self.companions.len() {
            match self.companions[at].retire() {
                Ok(()) => open.push(at),
                Err(why) => self.warn(&why),
            }
        }
        let tell_at = Instant::now() + TOLD_AFTER;
        let mut is_told = false;
        loop {
            open.retain(|&at| !self.companions[at].is_over());
            if open.is_empty() {
                break;
            }
            if !is_told && Instant::now() >= tell_at {
                is_told = true;
                self.warn(&format!(
                    "{} is still in use, and served until that ends; a signal ends it at once",
                    self.places(&open)
                ));
            }
            if self.serve_on() {
                self.warn(&format!(
                    "{} was ended while it was in use",
                    self.places(&open)
                ));
                break;
            }
        }
        self.companions
            .iter_mut()
            .for_each(|companion| companion.end());
    }

    fn places(&self, which: &[usize]) -> String {
        let places = which.iter().map(|&at| self.companions[at].place());
        let places: Vec<String> = places.map(|place| place.display().to_string()).collect();
        places.join(", ")
    }

    /// One look at memory, and a pause; whether a signal asks for the end.
    fn serve_on(&mut self) -> bool {
        self.look_at_memory();
        let fds = [self.signals.as_raw_fd(), self.shared.main_bell.as_raw_fd()];
        wait(&mut fds.map(readable), Some(LOOK_EVERY));
        self.shared.main_bell.hush();
        let asks = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
        let mut is_asked = self.shared.failure().is_some();
        while let Some(signal) = self.signals.next() {
            is_asked |= asks.contains(&signal.number);
        }
        is_asked
    }
}
