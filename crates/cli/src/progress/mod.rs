//! How far a long command is: a line on a terminal, with an estimate, and nothing anywhere else.
//!
//! It is drawn on standard error by a thread of its own, so that it moves while a step takes long, and only once the
//! command has taken [`PATIENCE`]. Standard output stays what it is. Whatever ends the command, by itself or by a signal,
//! the line is gone then.

mod counted;
mod line;

pub use counted::{Counted, CountedInput};

use crate::exit::Stop;
use crate::output::print;
use indicatif::{
    HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, TermLike,
};
use line::Line;
use pleat_sys::signals::Signals;
use std::env;
use std::io::{stderr, IsTerminal};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Nobody wants to be told of less.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two pictures, and two looks for a signal.
const EVERY: Duration = Duration::from_millis(100);
const HERTZ: u8 = 10;
/// On narrower terminals the line would be several.
const COLUMNS_MIN: u16 = 60;
/// What ends a command from its terminal.
const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

const WITH_ESTIMATE: &str = "pleat: {msg} [{wide_bar}] {percent} %{left}";
const WITHOUT: &str = "pleat: {msg}, {elapsed} so far";

/// How far a command is.
pub struct Progress {
    bar: ProgressBar,
    painter: Option<Painter>,
}

/// Who draws, as long as it is there.
struct Painter {
    thread: JoinHandle<()>,
    signals: Arc<Signals>,
    end: Sender<()>,
}

impl Progress {
    /// Of something that takes so many steps, or nobody knows how many; `what` it does, as "simulating".
    pub fn of(what: &'static str, steps: Option<u64>) -> Progress {
        let bar = ProgressBar::with_draw_target(steps, ProgressDrawTarget::hidden());
        bar.set_style(style(steps.is_some()));
        bar.set_message(what);
        let painter = is_seen().then(|| Painter::start(&bar)).flatten();
        Progress { bar, painter }
    }

    /// So many steps more are done.
    pub fn step(&self, steps: u64) {
        self.bar.inc(steps);
    }

    /// Now it is known how many there are in all.
    pub fn expect(&self, steps: u64) {
        self.bar.set_length(steps);
        self.bar.set_style(style(true));
    }

    /// Prints a result while the command goes on.
    pub fn print(&self, text: &str) -> Result<(), Stop> {
        self.bar.suspend(|| print(text))
    }

    /// How many steps are done.
    pub fn done(&self) -> u64 {
        self.bar.position()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(Painter {
            thread,
            signals,
            end,
        }) = self.painter.take()
        {
            drop(end);
            // It does not panic.
            let _ = thread.join();
            self.bar.finish_and_clear();
            signals.release();
        }
    }
}

impl Painter {
    /// Signals are blocked first, so that they are collected whatever threads there will be.
    fn start(bar: &ProgressBar) -> Option<Painter> {
        let signals = Arc::new(Signals::collect(&SIGNALS).ok()?);
        let (end, ended) = channel();
        let (bar, of_thread) = (bar.clone(), signals.clone());
        let thread = thread::spawn(move || paint(&bar, &of_thread, &ended));
        Some(Painter {
            thread,
            signals,
            end,
        })
    }
}

fn paint(bar: &ProgressBar, signals: &Signals, ended: &Receiver<()>) {
    let begin = Instant::now();
    while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        if let Some(signal) = signals.next() {
            bar.finish_and_clear();
            signals.obey(signal.number);
        }
        if begin.elapsed() < PATIENCE || Line.width() < COLUMNS_MIN {
            continue;
        }
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::term_like_with_hz(Box::new(Line), HERTZ));
        }
        bar.tick();
    }
}

/// A terminal that cannot erase a line would keep all of them.
pub fn is_seen() -> bool {
    stderr().is_terminal() && env::var_os("TERM").is_some_and(|kind| kind != "dumb")
}

fn style(has_estimate: bool) -> ProgressStyle {
    let template = match has_estimate {
        true => WITH_ESTIMATE,
        false => WITHOUT,
    };
    let style = ProgressStyle::with_template(template).expect("the templates are right");
    let show_left = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        if let Some(left) = left(state.elapsed(), state.pos(), state.len()) {
            // What cannot be shown is not missed.
            let _ = write!(out, ", about {} left", HumanDuration(left));
        }
    };
    style.progress_chars("=> ").with_key("left", show_left)
}

/// What is left takes as long as what is done. Steps come seldom and unevenly, by which a mean of the last ones goes astray.
fn left(elapsed: Duration, done: u64, of: Option<u64>) -> Option<Duration> {
    let of = of.filter(|of| (1..=*of).contains(&done))?;
    let share = done as f64 / of as f64;
    Some(elapsed.mul_f64((1.0 - share) / share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_styles_can_be_drawn() {
        style(true);
        style(false);
    }

    #[test]
    fn what_is_left_is_told_by_what_is_done() {
        let ten = Duration::from_secs(10);
        assert_eq!(left(ten, 25, Some(100)), Some(Duration::from_secs(30)));
        assert_eq!(left(ten, 100, Some(100)), Some(Duration::ZERO));
        // Nothing is done yet, nobody knows how much there is, or it was more than was thought.
        assert_eq!(left(ten, 0, Some(100)), None);
        assert_eq!(left(ten, 7, None), None);
        assert_eq!(left(ten, 101, Some(100)), None);
    }
}
