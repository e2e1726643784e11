//! One job: its memory by tier, its last minutes, and its processes where there is room.

use super::bars;
use super::draw::Pen;
use super::graph;
use super::history::Point;
use super::look::{Kind, Look};
use super::model::{Model, Shown};
use super::overview::{list, number, percent};
use super::screen::Screen;
use crate::jobs::ratio;
use crate::size::human;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Lines above the graphs: who it is, and its tiers.
const TIERS: u16 = 9;
/// A graph has so many lines with its head, or more.
const GRAPH_MIN: u16 = 5;
const GRAPH_MAX: u16 = 8;
/// From this width on there are more graphs side by side.
const WIDE: u16 = 110;
/// Processes have at least so many lines, or are not shown.
const LIST_MIN: u16 = 6;

/// A figure over time.
struct Figure {
    kind: Kind,
    head: String,
    of: fn(&Point) -> f64,
    /// The scale ends here, or at the largest value.
    most: f64,
}

/// Draws it.
pub fn draw(pen: &mut Pen, area: Rect, job: &Shown, model: &Model, screen: &mut Screen) {
    title(pen, area, job);
    tiers(
        pen,
        Rect::new(area.x, area.y + 1, area.width, TIERS - 1),
        job,
    );
    let rest = area.height.saturating_sub(TIERS);
    let across = if area.width >= WIDE { 4 } else { 2 };
    let figures = figures(job);
    let down = (figures.len() as u16).div_ceil(across);
    let has_list = rest >= down * GRAPH_MIN + LIST_MIN;
    let for_graphs = match has_list {
        true => (rest - LIST_MIN).min(down * GRAPH_MAX),
        false => rest,
    };
    let graphs = Rect::new(area.x, area.y + TIERS, area.width, for_graphs);
    draw_graphs(pen, graphs, (&figures, across), job);
    let below = graphs.bottom();
    if has_list && below < area.bottom() {
        let rows = Rect::new(area.x, below, area.width, area.bottom() - below);
        list(pen, rows, model, screen);
    }
}

fn title(pen: &mut Pen, area: Rect, job: &Shown) {
    let status = &job.detail.status;
    let text = format!(
        "job {} {}  user {}  {}  budget {}{}  ",
        job.pid,
        job.name(),
        job.uid,
        match job.has_ended {
            true => "HAS ENDED".into(),
            false => format!("runs for {}", job.age()),
        },
        human(status.budget_bytes),
        match job.wanted {
            Some(wanted) => format!(" -> {}", human(wanted)),
            None => String::new(),
        }
    );
    let strong = pen.look.strong();
    let x = pen.put((area.x, area.y), area.width, &text, strong);
    pen.put((x, area.y), area.width, &job.command(), Style::new());
}

/// A line for each kind of memory, and one for the swap file.
fn tiers(pen: &mut Pen, area: Rect, job: &Shown) {
    let (tiers, status) = (&job.detail.tiers, &job.detail.status);
    let figures = area.x + 28;
    let bar = area.width.saturating_sub(28);
    for (y, kind) in (area.y..).zip(Kind::USED) {
        let (style, bytes) = (pen.look.kind(kind), bars::bytes_of(tiers, kind));
        pen.put((area.x, y), 1, &kind.letter().to_string(), style);
        pen.put((area.x + 2, y), 16, kind.name(), Style::new());
        pen.put_right((area.x + 19, y), 7, &human(bytes), Style::new());
        let mut cells = bars::cells(&[(kind, bytes)], status.budget_bytes, bar);
        cells.retain(|(kind, _)| *kind != Kind::Free);
        pen.bar((figures, y), &cells);
    }
    let y = area.y + Kind::USED.len() as u16;
    pen.put((area.x + 2, y), 16, "all, of budget", Style::new());
    pen.put_right((area.x + 19, y), 7, &human(status.used_bytes), Style::new());
    pen.bar(
        (figures, y),
        &bars::cells(&bars::of_job(tiers), status.budget_bytes, bar),
    );
    pen.put((area.x + 2, y + 1), 16, "in the swap file", Style::new());
    pen.put_right(
        (area.x + 19, y + 1),
        7,
        &human(tiers.swap_bytes),
        Style::new(),
    );
    let text = format!(
        "as {} on disk; away in all {}",
        human(tiers.swap_file_bytes),
        human(status.pages_away.saturating_mul(4096))
    );
    pen.put((figures, y + 1), bar, &text, Style::new());
}

fn figures(job: &Shown) -> Vec<Figure> {
    let (status, rates) = (&job.detail.status, &job.rates);
    let figure = |kind, head, of, most| Figure {
        kind,
        head,
        of,
        most,
    };
    let ratio = ratio(&job.detail.totals).map_or("-".into(), |ratio| format!("{ratio:.2} : 1"));
    vec![
        figure(
            Kind::Uncompressed,
            format!(
                "memory {} of {}",
                human(status.used_bytes),
                human(status.budget_bytes)
            ),
            |point| point.used_bytes as f64,
            status.budget_bytes as f64,
        ),
        figure(
            Kind::Unfoldable,
            format!("stall {}", percent(rates.stalled_threads)),
            |point| point.rates.stalled_threads,
            1.0,
        ),
        figure(
            Kind::Compressed,
            format!("faults/s, compressed {}", number(rates.compressed_pages)),
            |point| point.rates.compressed_pages,
            1.0,
        ),
        figure(
            Kind::Raw,
            format!("faults/s, swap file {}", number(rates.swap_pages)),
            |point| point.rates.swap_pages,
            1.0,
        ),
        figure(
            Kind::File,
            format!(
                "faults/s, first touch {}",
                number(rates.zero_pages + rates.file_pages)
            ),
            |point| point.rates.zero_pages + point.rates.file_pages,
            1.0,
        ),
        figure(
            Kind::Own,
            format!("faults/s, staged {}", number(rates.staged_pages)),
            |point| point.rates.staged_pages,
            1.0,
        ),
        figure(
            Kind::Raw,
            format!(
                "swap/s, read {} written {}",
                human(rates.swap_read_bytes as u64),
                human(rates.swap_written_bytes as u64)
            ),
            |point| point.rates.swap_read_bytes + point.rates.swap_written_bytes,
            4096.0,
        ),
        figure(
            Kind::Compressed,
            format!("compression {ratio}"),
            |point| point.ratio.unwrap_or(0.0),
            4.0,
        ),
    ]
}

fn draw_graphs(pen: &mut Pen, area: Rect, (figures, across): (&[Figure], u16), job: &Shown) {
    let down = (area.height / GRAPH_MIN).clamp(1, (figures.len() as u16).div_ceil(across));
    let (width, height) = (area.width / across, area.height / down);
    for (at, figure) in figures.iter().take(usize::from(down * across)).enumerate() {
        let (column, row) = (at as u16 % across, at as u16 / across);
        let (x, y) = (area.x + column * width, area.y + row * height);
        let frame = Rect::new(x, y, width - 1, height);
        draw_graph(pen, frame, figure, job);
    }
}

fn draw_graph(pen: &mut Pen, frame: Rect, figure: &Figure, job: &Shown) {
    let look: Look = pen.look;
    let values = job.history.last(usize::from(frame.width), figure.of);
    let largest = values.iter().copied().fold(figure.most, f64::max);
    pen.put((frame.x, frame.y), frame.width, &figure.head, look.strong());
    if frame.height > 1 {
        let inner = Rect::new(frame.x, frame.y + 1, frame.width, frame.height - 1);
        let style = look.kind(figure.kind);
        // A floor, so that a graph without values is seen to be one.
        let floor = "_".repeat(usize::from(inner.width));
        pen.put(
            (inner.x, inner.bottom() - 1),
            inner.width,
            &floor,
            look.faint(),
        );
        graph::draw(
            pen.buffer,
            inner,
            &values,
            largest,
            (look.has_blocks, style),
        );
    }
}
