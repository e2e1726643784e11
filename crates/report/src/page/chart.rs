//! Charts over time. Shapes are SVG that is stretched to whatever room there is; letters stand beside it as HTML, so that they keep their
//! size on a phone. What the script of the page shows under the pointer is beside each chart as JSON.

use super::html::text;
use crate::series::{Point, Spread};
use crate::unit::Unit;
use pleat_plot::{human_time, Axis};
use std::fmt::Write;

/// Units of the drawing, stretched to the size of the chart.
const WIDTH: f64 = 2000.0;
const HEIGHT: f64 = 1000.0;

/// One figure over time.
pub struct Curve {
    pub name: &'static str,
    /// The class that has its colour.
    pub class: &'static str,
    pub of: fn(&Point) -> Spread,
}

/// What is drawn together.
pub struct Chart {
    /// Unique on the page.
    pub id: &'static str,
    pub title: &'static str,
    /// A sentence that explains it.
    pub about: &'static str,
    pub unit: Unit,
    /// Areas on top of each other, the first at the bottom.
    pub areas: &'static [Curve],
    /// Lines, not stacked.
    pub lines: &'static [Curve],
}

/// The ends of both axes, and which curves are anything but 0, over all runs that are shown together.
pub struct Frame {
    pub x: Axis,
    pub y: Axis,
    areas: Vec<&'static Curve>,
    lines: Vec<&'static Curve>,
}

impl Chart {
    /// For these runs; `None` where all of them have nothing to be shown.
    pub fn frame(&self, runs: &[Vec<Point>], end_s: f64) -> Option<Frame> {
        let points = || runs.iter().flatten();
        let is_drawn = |curve: &&'static Curve| points().any(|point| (curve.of)(point).most > 0.0);
        let areas: Vec<_> = self.areas.iter().filter(is_drawn).collect();
        let lines: Vec<_> = self.lines.iter().filter(is_drawn).collect();
        let of_point = |point: &Point| {
            let highest = lines
                .iter()
                .map(|curve| (curve.of)(point).most)
                .fold(0.0, f64::max);
            highest.max(stacked(&areas, point))
        };
        // A budget alone is nothing to look at.
        if !points().any(|point| self.is_something(point)) {
            return None;
        }
        let most = points().map(of_point).fold(0.0, f64::max);
        Some(Frame {
            x: Axis::of_time(end_s),
            // What lies at the upper edge is hard to see.
            y: self.unit.axis(most * 1.01),
            areas,
            lines,
        })
    }

    fn is_something(&self, point: &Point) -> bool {
        let is_something = |curve: &Curve| (curve.of)(point).most > 0.0;
        match self.areas.is_empty() {
            true => self.lines.iter().any(is_something),
            false => self.areas.iter().any(is_something),
        }
    }

    /// Of one run, as HTML; `head` is HTML that says which run this is, `number` tells its ids from those of others.
    pub fn draw(&self, frame: &Frame, points: &[Point], head: &str, number: usize) -> String {
        let mut html = format!("<figure class=\"chart\"><figcaption>{head}");
        html += &self.legend(frame, points);
        html += "</figcaption>\n";
        html += &self.plot(frame, points, number);
        html += &data(frame, points);
        html + "</figure>\n"
    }

    /// Names with their colours, and the highest value of each, in whose place the script shows that under the pointer.
    fn legend(&self, frame: &Frame, points: &[Point]) -> String {
        let mut html = String::from("<ul class=\"legend\">");
        for curve in frame.curves() {
            let most = most(curve, points);
            let kind = match frame.areas.iter().any(|area| std::ptr::eq(*area, curve)) {
                true => "area",
                false => "line",
            };
            let _ = write!(
                html,
                "<li><i class=\"{kind} {}\"></i>{} <b class=\"v\">{}</b></li>",
                curve.class,
                text(curve.name),
                self.unit.text(most)
            );
        }
        html + "<li class=\"at\">highest</li></ul>"
    }

    fn plot(&self, frame: &Frame, points: &[Point], number: usize) -> String {
        let id = format!("{}-{number}", self.id);
        let mut html = format!(
            "<div class=\"plot\" data-unit=\"{}\" data-end=\"{:.3}\">\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-labelledby=\"{id}-t {id}-d\"><title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>\n",
            self.unit.letter(),
            frame.x.to,
            text(self.title),
            text(&self.described(frame, points)),
        );
        let (axes, labels) = grid(frame, self.unit);
        html += &axes;
        self.shapes(&mut html, frame, points);
        html += "</svg>\n";
        html + &labels + "</div>\n"
    }

    fn shapes(&self, html: &mut String, frame: &Frame, points: &[Point]) {
        // The highest first: each covers all of the one before but its own part.
        for count in (1..=frame.areas.len()).rev() {
            let tops = points.iter().map(|point| {
                let parts = frame.areas[..count]
                    .iter()
                    .map(|curve| sound((curve.of)(point).mean));
                parts.sum::<f64>()
            });
            let class = frame.areas[count - 1].class;
            for run in runs(points, tops) {
                let path = area(&frame.placed(&run), HEIGHT);
                let _ = writeln!(html, "<path class=\"f {class}\" d=\"{path}\"/>");
            }
        }
        for curve in &frame.lines {
            self.line(html, frame, points, curve);
        }
    }

    /// A line at the mean, and a pale band as far as samples went; over areas only upwards, so that these keep their colours.
    fn line(&self, html: &mut String, frame: &Frame, points: &[Point], curve: &Curve) {
        let class = curve.class;
        let runs_of =
            |of: fn(Spread) -> f64| runs(points, points.iter().map(|point| of((curve.of)(point))));
        let means = runs_of(|spread| spread.mean);
        if points
            .iter()
            .any(|point| spreads((curve.of)(point), &frame.y))
        {
            let most = runs_of(|spread| spread.most);
            let least = match frame.areas.is_empty() {
                true => runs_of(|spread| spread.least),
                false => means.clone(),
            };
            for (most, least) in most.iter().zip(&least) {
                let path = band(&frame.placed(most), &frame.placed(least));
                let _ = writeln!(html, "<path class=\"w {class}\" d=\"{path}\"/>");
            }
        }
        for run in means {
            let path = line(&frame.placed(&run));
            let _ = writeln!(html, "<path class=\"l {class}\" d=\"{path}\"/>");
        }
    }

    /// For who cannot see it.
    fn described(&self, frame: &Frame, points: &[Point]) -> String {
        let mut told = format!("{} Over {}.", self.about, human_time(frame.x.to));
        for curve in frame.curves() {
            let values = points
                .iter()
                .map(|point| (curve.of)(point).mean)
                .filter(|value| value.is_finite());
            let (sum, count) =
                values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
            let _ = write!(
                told,
                " {}: {} on average, {} at most.",
                curve.name,
                self.unit.text(sum / f64::max(count, 1.0)),
                self.unit.text(most(curve, points))
            );
        }
        told
    }
}

impl Frame {
    /// All that are drawn, in the order of the legend: as they lie on the page, from above.
    fn curves(&self) -> impl Iterator<Item = &'static Curve> + '_ {
        self.lines.iter().chain(self.areas.iter().rev()).copied()
    }

    fn placed(&self, values: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let place = |(x, y): &(f64, f64)| {
            let y = HEIGHT * (1.0 - self.y.place(*y));
            (WIDTH * self.x.place(*x), y.clamp(0.0, HEIGHT))
        };
        values.iter().map(place).collect()
    }
}

fn sound(value: f64) -> f64 {
    match value.is_finite() {
        true => value,
        false => 0.0,
    }
}

fn stacked(areas: &[&'static Curve], point: &Point) -> f64 {
    areas
        .iter()
        .map(|curve| sound((curve.of)(point).mean))
        .sum()
}

fn most(curve: &Curve, points: &[Point]) -> f64 {
    points
        .iter()
        .map(|point| (curve.of)(point).most)
        .fold(f64::NAN, f64::max)
}

/// Whether so much is between least and most that it can be seen.
fn spreads(spread: Spread, y: &Axis) -> bool {
    spread.most - spread.least > (y.to - y.from) / 100.0
}

/// Times and values without gaps; where there is no value, one ends. The first and the last reach to the ends of their points, so that a
/// single sample is a line, too.
fn runs(points: &[Point], values: impl Iterator<Item = f64>) -> Vec<Vec<(f64, f64)>> {
    let mut all: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut last: Option<(f64, f64)> = None;
    for (point, value) in points.iter().zip(values) {
        if !value.is_finite() {
            end(&mut all, &mut last);
            continue;
        }
        if last.is_none() {
            all.push(vec![(point.from_us as f64 / 1e6, value)]);
        }
        if let Some(run) = all.last_mut() {
            run.push((point.middle_s(), value));
        }
        last = Some((point.to_us as f64 / 1e6, value));
    }
    end(&mut all, &mut last);
    all
}

fn end(all: &mut [Vec<(f64, f64)>], last: &mut Option<(f64, f64)>) {
    if let (Some(run), Some(last)) = (all.last_mut(), last.take()) {
        run.push(last);
    }
}

fn line(points: &[(f64, f64)]) -> String {
    let mut path = String::with_capacity(points.len() * 9);
    for (at, (x, y)) in points.iter().enumerate() {
        let _ = write!(path, "{}{x:.0} {y:.0}", if at == 0 { 'M' } else { 'L' });
    }
    path
}

fn area(points: &[(f64, f64)], bottom: f64) -> String {
    match (points.first(), points.last()) {
        (Some((from, _)), Some((to, _))) => {
            format!("{}L{to:.0} {bottom}L{from:.0} {bottom}Z", line(points))
        }
        _ => String::new(),
    }
}

fn band(most: &[(f64, f64)], least: &[(f64, f64)]) -> String {
    let back: Vec<(f64, f64)> = least.iter().rev().copied().collect();
    format!("{}{}Z", line(most), line(&back).replacen('M', "L", 1))
}

/// Lines of the grid, and the letters beside them. Every second mark of the time can be left out where there is no room.
fn grid(frame: &Frame, unit: Unit) -> (String, String) {
    let (mut lines, mut labels) = (String::new(), String::new());
    for mark in &frame.y.marks {
        let place = frame.y.place(*mark);
        let y = HEIGHT * (1.0 - place);
        let _ = write!(lines, "M0 {y:.0}H{WIDTH}");
        let _ = write!(
            labels,
            "<span class=\"y\" style=\"bottom:{:.2}%\">{}</span>",
            100.0 * place,
            unit.mark(*mark)
        );
    }
    for (at, mark) in frame.x.marks.iter().enumerate() {
        let place = frame.x.place(*mark);
        let _ = write!(lines, "M{:.0} 0V{HEIGHT}", WIDTH * place);
        let odd = if at % 2 == 1 { " odd" } else { "" };
        let _ = write!(
            labels,
            "<span class=\"x{odd}\" style=\"left:{:.2}%\">{}</span>",
            100.0 * place,
            frame.x.time_label(*mark)
        );
    }
    (
        format!("<path class=\"g\" d=\"{lines}\"/>\n"),
        labels + "\n",
    )
}

/// Times and values as the script reads them, in the order of the legend.
fn data(frame: &Frame, points: &[Point]) -> String {
    let list = |of: &dyn Fn(&Point) -> f64| {
        let values: Vec<String> = points.iter().map(|point| number(of(point))).collect();
        format!("[{}]", values.join(","))
    };
    // Times need more digits than values, to tell neighbours apart.
    let times: Vec<String> = points
        .iter()
        .map(|point| format!("{:.1}", point.middle_s()))
        .collect();
    let mut lists = vec![format!("[{}]", times.join(","))];
    lists.extend(
        frame
            .curves()
            .map(|curve| list(&|point| (curve.of)(point).mean)),
    );
    format!(
        "<script type=\"application/json\">[{}]</script>\n",
        lists.join(",")
    )
}

/// Three digits of a number, as JSON.
fn number(value: f64) -> String {
    match value {
        value if !value.is_finite() => "null".into(),
        0.0 => "0".into(),
        value => {
            let digits = (2 - value.abs().log10().floor() as i32).clamp(-30, 6);
            let scale = 10f64.powi(digits);
            let rounded = (value * scale).round() / scale;
            match rounded.abs() >= 1e5 {
                true => format!("{rounded:e}"),
                false => format!("{rounded}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_and_stay_json() {
        for (value, text) in [
            (0.0, "0"),
            (f64::NAN, "null"),
            (1234.0, "1230"),
            (123_456_789.0, "1.23e8"),
            (0.012_34, "0.0123"),
            (99.95, "100"),
        ] {
            assert_eq!(number(value), text);
            assert!(serde_json::from_str::<serde_json::Value>(&number(value)).is_ok());
        }
    }
}
