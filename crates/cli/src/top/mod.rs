//! `pleat top`: the jobs that run, on the whole terminal, again and again; and keys that steer them.
//!
//! One thread waits for keys, answers and signals at once, and draws when something has changed. What is known of jobs is in `model`,
//! what the user looks at in `screen`, and `draw` makes of both what is seen, on any buffer.

mod bars;
mod detail;
mod draw;
mod graph;
mod history;
mod keys;
mod lines;
mod look;
mod model;
mod overview;
mod screen;
mod terminal;
#[cfg(test)]
mod tests;

use crate::args::TopArgs;
use crate::exit::{Exit, Stop};
use crate::jobs::{choose, Found, Watch};
use look::Look;
use model::Model;
use pleat_sys::process::{readable, wait};
use pleat_sys::signals::Signals;
use screen::{Screen, Step};
use std::io::IsTerminal;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use terminal::Terminal;

/// So long answers are waited for before what is there is drawn.
const ANSWERS_WITHIN: Duration = Duration::from_millis(20);
/// A change of the terminal's size is noticed within this time.
const NOTICED_WITHIN: Duration = Duration::from_millis(500);

/// Shows jobs until the user has seen enough.
pub fn top(raw: &TopArgs) -> Exit {
    Stop::exit(try_top(raw))
}

fn try_top(raw: &TopArgs) -> Result<(), Stop> {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let is_dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb" || name.is_empty());
    if !is_terminal || is_dumb {
        return Err(Stop::mistake(
            "`pleat top` needs a terminal whose cursor can be moved: use `pleat stat` or `pleat list --json`",
        ));
    }
    let opened = raw.job.as_deref().map(|job| {
        let found = Found::all();
        choose(&found, job).map(|job| job.status.pid)
    });
    let mut screen = Screen::new(raw.interval, opened.transpose()?);
    let failed = |error: std::io::Error| Stop::failure(format!("cannot use the terminal: {error}"));
    let ends = [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT];
    let signals = Signals::collect(&ends).map_err(failed)?;
    let mut terminal = Terminal::enter().map_err(failed)?;
    let shown = show(&mut terminal, &mut screen, &signals);
    drop(terminal);
    shown.map_err(failed)
}

fn show(terminal: &mut Terminal, screen: &mut Screen, signals: &Signals) -> std::io::Result<()> {
    let (mut model, mut watch) = (Model::default(), Watch::default());
    let look = Look::of_environment();
    let mut ask_at = Instant::now();
    loop {
        let now = Instant::now();
        if now >= ask_at {
            // Not behind the clock, however long this process was stopped.
            ask_at = now + screen.interval;
            let news = watch.ask();
            screen.tell(model.hear(news));
            screen.tell(model.hear(watch.hear(ANSWERS_WITHIN)));
        } else {
            screen.tell(model.hear(watch.hear(Duration::ZERO)));
        }
        model.forget_ended(screen.opened);
        if !screen.is_still {
            screen.follow(&model);
        }
        terminal.draw(|area, buffer| draw::draw(area, buffer, &model, screen, look))?;
        loop {
            let left = ask_at.saturating_duration_since(Instant::now());
            let mut fds = watch.descriptors();
            fds.extend([readable(0), readable(signals.as_raw_fd())]);
            wait(&mut fds, Some(left.min(NOTICED_WITHIN)));
            if signals.next().is_some() {
                return Ok(());
            }
            let keys = terminal.keys()?;
            for key in &keys.pressed {
                match screen.press(*key, &mut model) {
                    Step::Stay => {}
                    Step::Quit => return Ok(()),
                    Step::Sleep => terminal.sleep()?,
                    Step::SetBudget { pid, bytes } => watch.set_budget(pid, bytes),
                }
            }
            let is_heard = fds.iter().any(|fd| fd.revents != 0);
            if keys.is_any() || is_heard || Instant::now() >= ask_at {
                break;
            }
        }
    }
}
