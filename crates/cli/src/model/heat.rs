//! The picture of `pleat model --svg`: speed-up by bytes left (x) and relative speed (y), in the three
//! regions of the paper's figure.

use crate::args::Figure;
use pleat_plot::{begin, frame, text, Area, Axis, Labels, END};
use std::fmt::Write;

const HEIGHT: f64 = 460.0;
const PANEL: Area = Area::new(60.0, 60.0, 350.0, 290.0);
/// From one panel to the next.
const PITCH: f64 = 430.0;
/// Cells across and down a panel.
const CELLS: usize = 48;
/// Speed-ups beyond this were off the paper's scale.
const SCALE_END: f64 = 6.0;
const SPEEDS: [f64; 2] = [0.55, 30.0];

/// Classes of the three regions and what the legend says of them.
const REGIONS: [(&str, &str); 3] = [
    ("beyond", "more than 6 times as fast"),
    ("gain", "1 to 6 times (the darker, the more)"),
    ("loss", "slower than without"),
];

/// One panel for each figure, side by side.
pub fn plot(figures: &[Figure]) -> String {
    let width = PITCH * figures.len() as f64 + 10.0;
    let mut svg = begin(width, HEIGHT, "Speed-up of paging by compression");
    for (number, figure) in figures.iter().enumerate() {
        let area = Area {
            x: PANEL.x + PITCH * number as f64,
            ..PANEL
        };
        panel(&mut svg, *figure, area);
    }
    legend(&mut svg);
    svg + END
}

fn panel(svg: &mut String, figure: Figure, area: Area) {
    let x = Axis::linear([0.0, 1.0].into_iter());
    let y = Axis::logarithmic(SPEEDS.into_iter());
    for row in 0..CELLS {
        // From the middle of the cell; the top is the fastest.
        let up = 1.0 - (row as f64 + 0.5) / CELLS as f64;
        let speed = y.from * (y.to / y.from).powf(up);
        draw_row(svg, area, row, &shades(figure, speed));
    }
    let labels = Labels {
        title: figure.caption(),
        x: "bytes left, share of a page",
        y: "speed of compression relative to I/O",
    };
    frame(svg, labels, area, &x, &y);
}

/// The cells of a row.
fn shades(figure: Figure, speed: f64) -> Vec<Shade> {
    let left = |column: usize| (column as f64 + 0.5) / CELLS as f64;
    let cells = (0..CELLS).map(left);
    cells
        .map(|left| shade(figure.speedup(left, speed)))
        .collect()
}

/// Cells alike are one rectangle.
fn draw_row(svg: &mut String, area: Area, row: usize, shades: &[Shade]) {
    let (width, height) = (area.width / CELLS as f64, area.height / CELLS as f64);
    let mut column = 0;
    for alike in shades.chunk_by(|a, b| a == b) {
        let (class, percent) = alike[0];
        // A little larger, or the paper would shine through between rectangles.
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
             opacity=\"{percent}%\"/>",
            area.x + column as f64 * width,
            area.y + row as f64 * height,
            alike.len() as f64 * width + 0.3,
            height + 0.3
        );
        column += alike.len();
    }
}

/// Class and opacity in percent.
type Shade = (&'static str, u32);

/// How a speed-up is shown: within the scale the darker, the more, in steps of 5 %.
fn shade(speedup: f64) -> Shade {
    match speedup {
        s if s > SCALE_END => ("beyond", 100),
        s if s >= 1.0 => {
            let steps = 12.0 * (s - 1.0) / (SCALE_END - 1.0);
            ("gain", 15 + 5 * steps.round() as u32)
        }
        _ => ("loss", 80),
    }
}

fn legend(svg: &mut String) {
    for (number, (class, meaning)) in REGIONS.iter().enumerate() {
        // One below the other beneath the first panel: fits however many panels there are.
        let y = PANEL.bottom() + 52.0 + 18.0 * number as f64;
        let x = PANEL.x;
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"11\" height=\"11\"/>"
        );
        text(svg, "", "start", x + 17.0, y + 10.0, meaning);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_regions_are_where_the_paper_has_them() {
        assert_eq!(shade(6.1).0, "beyond");
        assert_eq!(shade(6.0).0, "gain");
        assert_eq!(shade(1.0).0, "gain");
        assert_eq!(shade(0.99).0, "loss");
        for figure in [Figure::Paging, Figure::Keeping] {
            let (top, bottom) = (shades(figure, 40.0), shades(figure, 0.6));
            assert_eq!(top[0].0, "beyond");
            assert_eq!(top[CELLS - 1].0, "loss");
            assert!(bottom.iter().all(|(class, _)| *class == "loss"));
        }
        let leap = shades(Figure::Keeping, 8.0);
        assert_eq!(leap[CELLS / 2 - 1].0, "beyond");
        assert_eq!(leap[CELLS / 2].0, "gain");
    }

    #[test]
    fn both_figures_lie_side_by_side() {
        let svg = plot(&[Figure::Paging, Figure::Keeping]);
        assert!(svg.contains(">(a) ") && svg.contains(">(b) "));
        assert!(!svg.contains("NaN"));
    }
}
