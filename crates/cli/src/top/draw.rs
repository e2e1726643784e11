//! The whole screen: a head, what is looked at, a message or the keys.

use super::look::{Kind, Look};
use super::model::Model;
use super::screen::Screen;
use super::{detail, overview};
use crate::size::human;
use ratatui::buffer::Buffer;
use ratatui::layout::{Margin, Rect};
use ratatui::style::Style;

/// Less is of no use.
const WIDTH_MIN: u16 = 50;
const HEIGHT_MIN: u16 = 10;

const HELP: [&str; 21] = [
    "up down pgup pgdn home end   choose a line",
    "enter, esc                   one job with its history, and back",
    "s, r                         sort by another column, the other way round",
    "t, p                         processes as a tree; hide or show them",
    "+, -                         change the budget of the job by a 16th",
    "space                        stand still",
    "q                            quit",
    "",
    "MEM     memory in use; of a process, what it has in memory",
    "AWAY    memory of programs that is compressed or in the swap file",
    "NOCOMP  what cannot be compressed: shared or locked memory, and",
    "        processes that pleat cannot manage",
    "STALL   how long threads waited for pages: 100% is one thread all the",
    "        time, or two for half of it",
    "FAULT/S pages that programs waited for, a second",
    "later   pleat leaves the process alone while memory is plenty",
    "no      its pages cannot be taken away: choose its line to see why",
    "rests   it waits while it is the turn of other processes",
    "",
    "The letters of bars stand above the list. docs/top.md says more.",
    "Any key takes this away.",
];

/// Where, and how.
pub struct Pen<'a> {
    pub buffer: &'a mut Buffer,
    pub look: Look,
}

impl Pen<'_> {
    /// Writes a text of this width at most; the column behind it.
    pub fn put(&mut self, (x, y): (u16, u16), width: u16, text: &str, style: Style) -> u16 {
        let right = self.buffer.area.right();
        if y >= self.buffer.area.bottom() || x >= right {
            return x;
        }
        let width = usize::from(width.min(right - x));
        self.buffer.set_stringn(x, y, text, width, style).0
    }

    /// Writes a text that ends before a column.
    pub fn put_right(&mut self, (x, y): (u16, u16), width: u16, text: &str, style: Style) {
        let length = (text.chars().count() as u16).min(width);
        self.put((x + width - length, y), length, text, style);
    }

    /// A bar of these parts.
    pub fn bar(&mut self, (mut x, y): (u16, u16), cells: &[(Kind, u16)]) {
        for (kind, count) in cells {
            let letters = kind.letter().to_string().repeat(usize::from(*count));
            x = self.put((x, y), *count, &letters, self.look.kind(*kind));
        }
    }
}

/// Draws it.
pub fn draw(area: Rect, buffer: &mut Buffer, model: &Model, screen: &mut Screen, look: Look) {
    let mut pen = Pen { buffer, look };
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        let text = format!("pleat top needs {WIDTH_MIN} columns and {HEIGHT_MIN} lines");
        pen.put((area.x, area.y), area.width, &text, Style::new());
        return;
    }
    head(&mut pen, area, model, screen);
    let body = Rect::new(area.x, area.y + 1, area.width, area.height - 2);
    let opened = screen.opened.and_then(|pid| model.job(pid));
    match opened {
        Some(job) => detail::draw(&mut pen, body, job, model, screen),
        None => {
            screen.opened = None;
            overview::draw(&mut pen, body, model, screen);
        }
    }
    foot(&mut pen, area, model, screen);
    if screen.has_help {
        help(&mut pen, area);
    }
}

fn head(pen: &mut Pen, area: Rect, model: &Model, screen: &Screen) {
    let jobs = &model.jobs;
    let processes: u64 = jobs.iter().map(|job| job.detail.status.processes).sum();
    let used: u64 = jobs.iter().map(|job| job.detail.status.used_bytes).sum();
    let budget: u64 = jobs.iter().map(|job| job.detail.status.budget_bytes).sum();
    let text = format!(
        "pleat top  {}, {}, {} of {}",
        counted(jobs.len() as u64, "job", "jobs"),
        counted(processes, "process", "processes"),
        human(used),
        human(budget)
    );
    let style = pen.look.strong();
    pen.put((area.x, area.y), area.width, &text, style);
    let order = &screen.order;
    let by = format!(
        "{}{}by {}{}, every {} s",
        if screen.is_still {
            "STANDS STILL  "
        } else {
            ""
        },
        if order.is_tree { "tree " } else { "" },
        order.sort.name(),
        if order.is_reversed { " reversed" } else { "" },
        screen.interval.as_secs_f32()
    );
    pen.put_right((area.x, area.y), area.width, &by, Style::new());
}

/// Of one or several.
pub fn counted(count: u64, one: &str, several: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {several}"),
    }
}

/// A message; else why the chosen process is not managed, or what is wrong with the job; else the keys.
fn foot(pen: &mut Pen, area: Rect, model: &Model, screen: &Screen) {
    let at = (area.x, area.bottom() - 1);
    let trouble = || {
        let chosen = screen.chosen?;
        let job = model.job(screen.job()?)?;
        let rows = &job.detail.rows;
        let row = rows.iter().find(|row| Some(row.pid) == chosen.process);
        let why = row.and_then(|row| Some((row, row.why.as_ref()?)));
        let trouble = job.trouble.as_ref();
        why.map(|(row, why)| crate::jobs::shown(&format!("{} ({}): {why}", row.name, row.pid)))
            .or_else(|| trouble.map(|why| format!("{}: {why}", job.title())))
    };
    let told = screen.message().map(str::to_owned).or_else(trouble);
    match told {
        Some(text) => {
            let style = pen.look.warning();
            pen.put(at, area.width, &text, style);
        }
        None => {
            let keys = match screen.opened {
                Some(_) => {
                    "esc back  s sort  r reverse  t tree  + - budget  space still  h help  q quit"
                }
                None => {
                    "enter job  s sort  r reverse  t tree  p processes  + - budget  h help  q quit"
                }
            };
            let style = pen.look.faint();
            pen.put(at, area.width, keys, style);
        }
    }
}

fn help(pen: &mut Pen, area: Rect) {
    let width = HELP.iter().map(|line| line.len()).max().unwrap_or(0) as u16 + 4;
    let height = HELP.len() as u16 + 2;
    let (width, height) = (width.min(area.width), height.min(area.height));
    let (x, y) = (
        area.x + (area.width - width) / 2,
        area.y + (area.height - height) / 2,
    );
    let frame = Rect::new(x, y, width, height);
    let style = pen.look.chosen();
    for y in frame.top()..frame.bottom() {
        pen.put((frame.x, y), width, &" ".repeat(usize::from(width)), style);
    }
    let inner = frame.inner(Margin::new(1, 1));
    for (y, line) in (inner.top()..inner.bottom()).zip(HELP) {
        let padded = format!(" {line:<0$}", usize::from(inner.width));
        pen.buffer
            .set_style(Rect::new(inner.x, y, inner.width, 1), Style::reset());
        pen.put((inner.x, y), inner.width, &padded, Style::reset());
    }
}
