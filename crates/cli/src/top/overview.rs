//! All jobs and their processes, a line each.

use super::bars;
use super::draw::Pen;
use super::lines::Line;
use super::look::Kind;
use super::model::{Model, Shown};
use super::screen::Screen;
use crate::jobs::{ratio, shown};
use crate::pager::control::{Managed, Row};
use crate::size::human;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// From this width on there is more to see.
const WIDE: u16 = 110;
const NAME_NARROW: u16 = 15;
const NAME_WIDE: u16 = 24;
/// However deep in the tree, this much of a name's column stays blank.
const INDENT_MAX: usize = 8;
/// The bar of a wide screen has this part of it, one in so many.
const BAR_PART: u16 = 5;

/// What a column shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Pid,
    Name,
    Memory,
    Budget,
    Bar,
    Away,
    Unfoldable,
    Stall,
    Faults,
    Ratio,
    Read,
    Written,
    Note,
}

/// A column: what, its head, and how wide.
type Column = (What, &'static str, u16);

/// Columns for a screen of this width; a blank is between two.
fn columns(width: u16, is_of_job: bool) -> Vec<Column> {
    let is_wide = width >= WIDE;
    let name = if is_wide { NAME_WIDE } else { NAME_NARROW };
    let mut columns = vec![
        (What::Pid, "PID", 7),
        (What::Name, "NAME", name),
        (What::Memory, "MEM", 6),
        (What::Budget, if is_of_job { "" } else { "BUDGET" }, 6),
        (What::Bar, "", 0),
        (What::Away, "AWAY", 6),
        (What::Stall, "STALL", 6),
    ];
    if is_wide || is_of_job {
        columns.insert(6, (What::Unfoldable, "NOCOMP", 6));
    }
    if !is_of_job {
        columns.push((What::Faults, "FAULT/S", 7));
    }
    if is_wide {
        if !is_of_job {
            columns.push((What::Ratio, "RATIO", 5));
            columns.push((What::Read, "SWAP-RD", 7));
            columns.push((What::Written, "SWAP-WR", 7));
        }
        columns.push((
            What::Note,
            if is_of_job {
                "WHY"
            } else {
                "COMMAND, OR WHY NOT"
            },
            0,
        ));
    }
    let fixed: u16 = columns.iter().map(|(_, _, wide)| wide + 1).sum();
    let left = (width + 1).saturating_sub(fixed);
    let bar = if is_wide { width / BAR_PART } else { left }.min(left);
    for (what, _, wide) in &mut columns {
        match what {
            What::Bar => *wide = bar,
            What::Note => *wide = left - bar,
            _ => {}
        }
    }
    columns
}

/// Draws them.
pub fn draw(pen: &mut Pen, area: Rect, model: &Model, screen: &mut Screen) {
    legend(pen, area);
    if model.jobs.is_empty() {
        let text = "No job runs that you may see: `pleat run --memory 2G -- PROGRAM` starts one.";
        pen.put((area.x, area.y + 3), area.width, text, Style::new());
        return;
    }
    let rest = Rect::new(area.x, area.y + 1, area.width, area.height - 1);
    list(pen, rest, model, screen);
}

/// Which letter of bars stands for what.
fn legend(pen: &mut Pen, area: Rect) {
    let mut x = area.x;
    for kind in Kind::USED.into_iter().chain([Kind::Free]) {
        let style = pen.look.kind(kind);
        x = pen.put((x, area.y), 1, &kind.letter().to_string(), style);
        x = pen.put((x + 1, area.y), area.width, kind.name(), Style::new()) + 2;
    }
}

/// The list, as far as there is room, with its head.
pub fn list(pen: &mut Pen, area: Rect, model: &Model, screen: &mut Screen) {
    let is_of_job = screen.opened.is_some();
    let columns = columns(area.width, is_of_job);
    let head = pen.look.chosen();
    pen.buffer
        .set_style(Rect::new(area.x, area.y, area.width, 1), head);
    let mut x = area.x;
    for (what, text, wide) in &columns {
        match what {
            What::Name | What::Note | What::Bar => drop(pen.put((x, area.y), *wide, text, head)),
            _ => pen.put_right((x, area.y), *wide, text, head),
        }
        x += wide + 1;
    }
    let lines = screen.lines(model);
    screen.resize(usize::from(area.height - 1), &lines);
    let seen = lines.iter().skip(screen.first);
    for (y, line) in (area.y + 1..area.bottom()).zip(seen) {
        draw_line(pen, (area.x, y), &columns, line);
        if Some(line.key()) == screen.chosen {
            let style = pen.look.chosen();
            pen.buffer
                .set_style(Rect::new(area.x, y, area.width, 1), style);
        }
    }
}

fn draw_line(pen: &mut Pen, (mut x, y): (u16, u16), columns: &[Column], line: &Line) {
    let style = match line.row {
        None => pen.look.strong(),
        Some(_) => Style::new(),
    };
    for (what, _, wide) in columns {
        match what {
            What::Bar => {
                let parts = match line.row {
                    None => bars::of_job(&line.job.detail.tiers),
                    Some(row) => vec![
                        (Kind::Uncompressed, row.resident_bytes),
                        (Kind::Unfoldable, row.unfoldable_bytes),
                    ],
                };
                let budget = line.job.detail.status.budget_bytes;
                let mut cells = bars::cells(&parts, budget, *wide);
                if line.row.is_some() {
                    cells.retain(|(kind, _)| *kind != Kind::Free);
                }
                pen.bar((x, y), &cells);
            }
            What::Name | What::Note => {
                let text = text(*what, line);
                pen.put((x, y), *wide, &text, style);
            }
            _ => pen.put_right((x, y), *wide, &text(*what, line), style),
        }
        x += wide + 1;
    }
}

fn text(what: What, line: &Line) -> String {
    match line.row {
        None => of_job(what, line.job),
        Some(row) => of_process(what, line, row),
    }
}

fn of_job(what: What, job: &Shown) -> String {
    let Shown { detail, rates, .. } = job;
    match what {
        What::Pid => job.pid.to_string(),
        What::Name => job.name(),
        What::Memory => human(detail.status.used_bytes),
        What::Budget => human(job.wanted.unwrap_or(detail.status.budget_bytes)),
        What::Away => human(detail.status.pages_away.saturating_mul(4096)),
        What::Unfoldable => human(detail.tiers.unfoldable_bytes),
        What::Stall => percent(rates.stalled_threads),
        What::Faults => number(rates.faults),
        What::Ratio => ratio(&detail.totals).map_or("-".into(), |ratio| format!("{ratio:.1}")),
        What::Read => human(rates.swap_read_bytes as u64),
        What::Written => human(rates.swap_written_bytes as u64),
        What::Note => match &job.trouble {
            Some(why) => why.clone(),
            None => job.command(),
        },
        What::Bar => String::new(),
    }
}

fn of_process(what: What, line: &Line, row: &Row) -> String {
    let stalled = line.job.stalled.get(&row.pid).copied().unwrap_or(0.0);
    match what {
        What::Pid => row.pid.to_string(),
        What::Name => {
            let indent = (2 * usize::from(line.depth)).min(INDENT_MAX);
            " ".repeat(indent) + &shown(&row.name)
        }
        What::Memory => human(row.resident_bytes.saturating_add(row.unfoldable_bytes)),
        What::Budget => state(row).into(),
        What::Away => human(row.away_bytes),
        What::Unfoldable => human(row.unfoldable_bytes),
        What::Stall => percent(stalled),
        What::Note => row.why.as_deref().map(shown).unwrap_or_default(),
        What::Faults | What::Ratio | What::Read | What::Written | What::Bar => String::new(),
    }
}

fn state(row: &Row) -> &'static str {
    match row.managed {
        Managed::Yes if row.rests => "rests",
        Managed::Yes => "",
        Managed::Later => "later",
        Managed::No => "no",
    }
}

/// A share of one thread's time.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent > 0.0 && percent < 0.95 => "<1%".into(),
        percent => format!("{percent:.0}%"),
    }
}

/// A number in up to five letters.
pub fn number(value: f64) -> String {
    match value {
        value if value < 9_999.5 => format!("{value:.0}"),
        value if value < 999_500.0 => format!("{:.0}k", value / 1e3),
        value => format!("{:.1}m", value / 1e6),
    }
}
