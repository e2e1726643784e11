//! Line plots: series of points over a common x, with a legend.

use super::{begin, class_of, frame, line, text, Area, Axis, Labels, Point, Scale, END};
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 440.0;
const PANEL: Area = Area::new(70.0, 60.0, 600.0, 310.0);
const LEGEND_X: f64 = 690.0;
const LEGEND_STEP: f64 = 20.0;
/// With more points than this, dots would hide the line.
const DOTS_MAX: usize = 40;

/// One line of a plot.
#[derive(Clone, Debug)]
pub struct Series {
    /// As the legend calls it.
    pub name: String,
    /// In the order in which they are joined. One that cannot be shown (not a number; not above 0 on a
    /// logarithmic axis) interrupts the line.
    pub points: Vec<(f64, f64)>,
}

/// What is said about a plot besides its data.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinePlot<'a> {
    /// Above it, and for who cannot see it.
    pub title: &'a str,
    /// What the x axis counts, and in which unit.
    pub x_label: &'a str,
    /// The same of the y axis.
    pub y_label: &'a str,
    /// How the x axis counts.
    pub x_scale: Scale,
    /// How the y axis does.
    pub y_scale: Scale,
}

impl LinePlot<'_> {
    /// The plot of these series as an SVG document.
    pub fn draw(&self, series: &[Series]) -> String {
        let points = series.iter().flat_map(|series| series.points.iter());
        let x = Axis::new(self.x_scale, points.clone().map(|(x, _)| *x));
        let y = Axis::new(self.y_scale, points.map(|(_, y)| *y));
        // All of a long legend is to be seen.
        let legend = PANEL.y + 10.0 + LEGEND_STEP * series.len() as f64;
        let mut svg = begin(WIDTH, HEIGHT.max(legend), self.title);
        let labels = Labels {
            title: self.title,
            x: self.x_label,
            y: self.y_label,
        };
        frame(&mut svg, labels, PANEL, &x, &y);
        for (number, one) in series.iter().enumerate() {
            let class = class_of(number);
            for run in runs(&one.points, &x, &y) {
                polyline(&mut svg, &class, &run);
            }
            legend_line(&mut svg, &class, number, &one.name);
        }
        svg + END
    }
}

/// The stretches of points that can be shown.
fn runs(points: &[(f64, f64)], x: &Axis, y: &Axis) -> Vec<Vec<Point>> {
    points
        .split(|point| !(x.shows(point.0) && y.shows(point.1)))
        .filter(|run| !run.is_empty())
        .map(|run| {
            let place = |point: &(f64, f64)| PANEL.place((x, point.0), (y, point.1));
            run.iter().map(place).collect()
        })
        .collect()
}

fn polyline(svg: &mut String, class: &str, points: &[Point]) {
    let mut list = String::new();
    for point in points {
        let _ = write!(list, "{:.1},{:.1} ", point.x, point.y);
    }
    let _ = writeln!(
        svg,
        "<polyline class=\"{class}\" points=\"{}\"/>",
        list.trim_end()
    );
    if points.len() <= DOTS_MAX {
        for Point { x, y } in points {
            let _ = writeln!(
                svg,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\"/>"
            );
        }
    }
}

fn legend_line(svg: &mut String, class: &str, number: usize, name: &str) {
    let y = PANEL.y + 10.0 + LEGEND_STEP * number as f64;
    let from = Point { x: LEGEND_X, y };
    let to = Point {
        x: LEGEND_X + 24.0,
        y,
    };
    line(svg, class, from, to);
    text(svg, "", "start", LEGEND_X + 30.0, y + 4.0, name);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plot with linear axes.
    fn lines(title: &str, x_label: &str, y_label: &str, series: &[Series]) -> String {
        let plot = LinePlot {
            title,
            x_label,
            y_label,
            ..LinePlot::default()
        };
        plot.draw(series)
    }

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series {
            name: name.into(),
            points: points.to_vec(),
        }
    }

    #[test]
    fn every_series_is_a_line_and_a_name() {
        let svg = lines(
            "misses",
            "MiB",
            "share",
            &[
                series("castro03", &[(1.0, 0.5), (2.0, 0.25)]),
                series("<none> & \"all\"", &[(1.0, 0.9), (2.0, 0.8)]),
            ],
        );
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains(">castro03<") && svg.contains(">MiB<") && svg.contains(">share<"));
        assert!(svg.contains("&lt;none&gt; &amp; &quot;all&quot;"), "{svg}");
    }

    #[test]
    fn points_that_cannot_be_shown_interrupt_the_line() {
        let plot = LinePlot {
            y_scale: Scale::Log,
            ..LinePlot::default()
        };
        let gaps = [
            (1.0, 1.0),
            (2.0, 0.0),
            (3.0, 5.0),
            (4.0, f64::NAN),
            (5.0, 8.0),
        ];
        let svg = plot.draw(&[series("gaps", &gaps)]);
        assert_eq!(svg.matches("<polyline").count(), 3);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn nothing_at_all_is_an_empty_plot() {
        for svg in [
            lines("", "", "", &[]),
            lines("", "", "", &[series("x", &[])]),
        ] {
            assert!(!svg.contains("NaN") && svg.contains("frame"), "{svg}");
        }
    }

    #[test]
    fn many_series_stay_apart_and_in_the_picture() {
        let many: Vec<Series> = (0..30)
            .map(|n| series(&format!("no. {n}"), &[(0.0, f64::from(n)), (1.0, 0.0)]))
            .collect();
        let svg = lines("many", "x", "y", &many);
        assert!(svg.contains("series s0\"") && svg.contains("series s0 dashed\""));
        assert!(svg.contains("viewBox=\"0 0 900 670\""), "{}", &svg[..200]);
    }
}
