//! What plots are made of: an SVG document of our style, rectangles, lines, text, and a frame with
//! grid and axes.

use super::Axis;
use std::fmt::Write;

/// Colours that can be read on a background of our own, light or dark as the reader's page.
const STYLE: &str = "<style>
.paper{fill:#fff}.frame{fill:none;stroke:#8b949e}.grid{stroke:#e1e4e8}.leader{stroke:#8b949e}
text{font:13px sans-serif;fill:#24292f}.point{fill:#0969da}.title{font-weight:bold}
.series{fill:none;stroke-width:2;stroke-linejoin:round}.dashed{stroke-dasharray:6 4}
.s0{stroke:#0969da}.s1{stroke:#bc4c00}.s2{stroke:#1a7f37}.s3{stroke:#8250df}
.s4{stroke:#cf222e}.s5{stroke:#9a6700}.s6{stroke:#1b7c83}.s7{stroke:#57606a}
.beyond{fill:#0550ae}.gain{fill:#54aeff}.loss{fill:#6e7781}
@media(prefers-color-scheme:dark){.paper{fill:#0d1117}.grid{stroke:#30363d}
text{fill:#e6edf3}.point{fill:#58a6ff}
.s0{stroke:#58a6ff}.s1{stroke:#f0883e}.s2{stroke:#3fb950}.s3{stroke:#bc8cff}
.s4{stroke:#ff7b72}.s5{stroke:#d29922}.s6{stroke:#39c5cf}.s7{stroke:#8b949e}
.beyond{fill:#79c0ff}.gain{fill:#1f6feb}.loss{fill:#484f58}}
</style>
";

/// What ends a plot that [`begin`] began.
pub const END: &str = "</svg>\n";

/// Series that have a colour of their own; later ones use them again, dashed.
const COLOURS: usize = 8;

/// A place in a picture; `y` grows downwards.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// From the left.
    pub x: f64,
    /// From the top.
    pub y: f64,
}

/// A rectangle by its left upper corner.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// Its left edge.
    pub x: f64,
    /// Its upper edge.
    pub y: f64,
    /// From left to right.
    pub width: f64,
    /// From top to bottom.
    pub height: f64,
}

impl Area {
    /// Of this corner and size.
    pub const fn new(x: f64, y: f64, width: f64, height: f64) -> Area {
        Area {
            x,
            y,
            width,
            height,
        }
    }

    /// Its right edge.
    pub fn right(&self) -> f64 {
        self.x + self.width
    }

    /// Its lower edge.
    pub fn bottom(&self) -> f64 {
        self.y + self.height
    }

    /// Where a pair of values lies in a panel with these axes.
    pub fn place(&self, x: (&Axis, f64), y: (&Axis, f64)) -> Point {
        Point {
            x: self.x + self.width * x.0.place(x.1),
            y: self.y + self.height * (1.0 - y.0.place(y.1)),
        }
    }
}

/// What is written around a panel.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// Above all else.
    pub title: &'a str,
    /// Below.
    pub x: &'a str,
    /// Above, where it can be read without turning the head.
    pub y: &'a str,
}

/// The beginning of a document of this size; `about` is for those who cannot see it.
pub fn begin(width: f64, height: f64, about: &str) -> String {
    let about = escape(about);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"{about}\">\n{STYLE}\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n"
    )
}

/// The classes of a series, by its number.
pub fn class_of(series: usize) -> String {
    let dashed = match (series / COLOURS) % 2 {
        0 => "",
        _ => " dashed",
    };
    format!("series s{}{dashed}", series % COLOURS)
}

/// Title, grid, and axes with their marks.
pub fn frame(svg: &mut String, labels: Labels, area: Area, x: &Axis, y: &Axis) {
    let Area {
        x: left,
        y: top,
        width,
        height,
    } = area;
    for mark in &x.marks {
        let at = left + width * x.place(*mark);
        vertical(svg, at, area);
        let below = area.bottom() + 18.0;
        text(svg, "", "middle", at, below, &x.label(*mark));
    }
    for mark in &y.marks {
        let at = top + height * (1.0 - y.place(*mark));
        horizontal(svg, at, area);
        text(svg, "", "end", left - 6.0, at + 4.0, &y.label(*mark));
    }
    let _ = writeln!(
        svg,
        "<rect class=\"frame\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"/>"
    );
    let middle = left + width / 2.0;
    text(svg, "title", "start", left, top - 26.0, labels.title);
    text(svg, "", "start", left, top - 9.0, labels.y);
    text(svg, "", "middle", middle, area.bottom() + 40.0, labels.x);
}

fn vertical(svg: &mut String, x: f64, area: Area) {
    let (top, bottom) = (area.y, area.bottom());
    line(svg, "grid", Point { x, y: top }, Point { x, y: bottom });
}

fn horizontal(svg: &mut String, y: f64, area: Area) {
    let (left, right) = (area.x, area.right());
    line(svg, "grid", Point { x: left, y }, Point { x: right, y });
}

/// A straight line.
pub fn line(svg: &mut String, class: &str, from: Point, to: Point) {
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
        from.x, from.y, to.x, to.y
    );
}

/// Writes `text`, whatever characters it has; `anchor` is start, middle or end.
pub fn text(svg: &mut String, class: &str, anchor: &str, x: f64, y: f64, text: &str) {
    let text = escape(text);
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
    );
}

/// Text as it stands in SVG, in an attribute too.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // No SVG may hold them, escaped or not.
            letter if letter.is_control() => safe.push(' '),
            letter => safe.push(letter),
        }
    }
    safe
}
