//! The plot of `pleat bench codec --svg`: speed against size, a point for each codec, one panel for
//! compressing and one for decompressing. Further left is smaller, further up is faster.

use pleat_codec::measure::Measured;
use std::fmt::Write;

const PAGE_BYTES: f64 = 4096.0;
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
/// Where the panels lie: left edge, top edge, width, height.
const PANELS: [Area; 2] = [
    Area::new(70.0, 50.0, 360.0, 300.0),
    Area::new(510.0, 50.0, 360.0, 300.0),
];
const POINT_RADIUS: f64 = 4.5;
const FONT: f64 = 13.0;
/// Width of a letter at that size, rather too much than too little.
const LETTER: f64 = 8.2;

/// Colours that can be read on a background of our own, light or dark as the reader's page.
const STYLE: &str = "<style>
.paper{fill:#fff}.frame{fill:none;stroke:#8b949e}.grid{stroke:#e1e4e8}.leader{stroke:#8b949e}
text{font:13px sans-serif;fill:#24292f}.point{fill:#0969da}.title{font-weight:bold}
@media(prefers-color-scheme:dark){.paper{fill:#0d1117}.grid{stroke:#30363d}
text{fill:#e6edf3}.point{fill:#58a6ff}}
</style>
";

/// The plot of these codecs, usually the totals over all pools.
pub fn plot(codecs: &[Measured]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Speed of each codec against the size of what it stores\">\n{STYLE}\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n"
    );
    let names: Vec<&str> = codecs.iter().map(|codec| codec.codec.as_str()).collect();
    let x = Axis::linear(codecs.iter().map(share));
    let compress: Vec<f64> = codecs.iter().map(|c| mb_per_s(c.compress_ns)).collect();
    let decompress: Vec<f64> = codecs.iter().map(|c| mb_per_s(c.decompress_ns)).collect();
    let panels = [("compress", compress), ("decompress", decompress)];
    for ((title, speeds), area) in panels.iter().zip(PANELS) {
        let y = Axis::logarithmic(speeds.iter().copied());
        frame(&mut svg, title, area, &x, &y);
        let point = |(codec, speed): (&Measured, &f64)| Point {
            x: area.x + area.width * x.place(share(codec)),
            y: area.y + area.height * (1.0 - y.place(*speed)),
        };
        let points: Vec<Point> = codecs.iter().zip(speeds).map(point).collect();
        draw(&mut svg, &points, &labels(&points, &names, area), &names);
    }
    svg + "</svg>\n"
}

/// Stored bytes in hundredths of a page.
fn share(codec: &Measured) -> f64 {
    100.0 * codec.bytes / PAGE_BYTES
}

/// Million bytes of pages in a second.
fn mb_per_s(ns_per_page: f64) -> f64 {
    PAGE_BYTES * 1e3 / ns_per_page.max(1.0)
}

/// A range of values on a line from 0 to 1, and where its marks are.
struct Axis {
    from: f64,
    to: f64,
    scale: fn(f64) -> f64,
    marks: Vec<f64>,
}

impl Axis {
    /// In steps of 5, with some room at both ends.
    fn linear(values: impl Iterator<Item = f64> + Clone) -> Axis {
        const STEP: f64 = 5.0;
        let (least, most) = ends(values);
        let from = ((least - 2.0) / STEP).floor().max(0.0) * STEP;
        let to = ((most + 2.0) / STEP).ceil() * STEP;
        let steps = ((to - from) / STEP).round() as usize;
        let every = steps.div_ceil(8).max(1);
        Axis {
            from,
            to,
            scale: |value| value,
            marks: (0..=steps)
                .step_by(every)
                .map(|n| from + n as f64 * STEP)
                .collect(),
        }
    }

    /// From one of 1, 2, 5, 10, 20... to another.
    fn logarithmic(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let (least, most) = ends(values);
        let round =
            |n: i32| [1.0, 2.0, 5.0][n.rem_euclid(3) as usize] * 10f64.powi(n.div_euclid(3));
        let below = (0..30)
            .rev()
            .find(|&n| round(n) <= least * 0.9)
            .unwrap_or(0);
        let above = (below + 1..30)
            .find(|&n| round(n) >= most * 1.1)
            .unwrap_or(30);
        Axis {
            from: round(below),
            to: round(above),
            scale: f64::ln,
            marks: (below..=above).map(round).collect(),
        }
    }

    fn place(&self, value: f64) -> f64 {
        let [from, to, value] = [self.from, self.to, value].map(self.scale);
        (value - from) / (to - from)
    }
}

fn ends(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    (least, values.fold(0.0, f64::max))
}

#[derive(Clone, Copy, Debug)]
struct Point {
    x: f64,
    y: f64,
}

/// A rectangle by its left upper corner.
#[derive(Clone, Copy, Debug)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Area {
    const fn new(x: f64, y: f64, width: f64, height: f64) -> Area {
        Area {
            x,
            y,
            width,
            height,
        }
    }

    fn right(&self) -> f64 {
        self.x + self.width
    }

    fn bottom(&self) -> f64 {
        self.y + self.height
    }

    fn overlaps(&self, other: &Area) -> bool {
        self.x < other.right()
            && other.x < self.right()
            && self.y < other.bottom()
            && other.y < self.bottom()
    }

    fn is_inside(&self, other: &Area) -> bool {
        self.x >= other.x
            && self.right() <= other.right()
            && self.y >= other.y
            && self.bottom() <= other.bottom()
    }
}

/// The area of each name: as near to its point as it can be without covering a point or another
/// name.
fn labels(points: &[Point], names: &[&str], panel: Area) -> Vec<Area> {
    let around = |p: &Point| {
        let r = POINT_RADIUS + 1.0;
        Area::new(p.x - r, p.y - r, 2.0 * r, 2.0 * r)
    };
    let mut taken: Vec<Area> = points.iter().map(around).collect();
    for (point, name) in points.iter().zip(names) {
        let (width, height) = (name.chars().count() as f64 * LETTER, FONT + 2.0);
        let free = places(*point, width, height)
            .find(|place| place.is_inside(&panel) && taken.iter().all(|t| !t.overlaps(place)));
        // So many codecs that no place is left: the label covers something.
        let beside = Area::new(point.x + POINT_RADIUS, point.y, width, height);
        taken.push(free.unwrap_or(beside));
    }
    taken.split_off(points.len())
}

/// Places for a label around a point: right, left, above, below, then the same further away.
fn places(point: Point, width: f64, height: f64) -> impl Iterator<Item = Area> {
    const DIRECTIONS: [(f64, f64); 8] = [
        (1.0, 0.0),
        (-1.0, 0.0),
        (0.0, -1.0),
        (0.0, 1.0),
        (0.7, -0.7),
        (0.7, 0.7),
        (-0.7, -0.7),
        (-0.7, 0.7),
    ];
    (0..30).flat_map(move |ring| {
        let gap = POINT_RADIUS + 3.0 + 6.0 * f64::from(ring);
        DIRECTIONS.into_iter().map(move |(dx, dy)| {
            let x = point.x + dx * (gap + width / 2.0) - width / 2.0;
            let y = point.y + dy * (gap + height / 2.0) - height / 2.0;
            Area::new(x, y, width, height)
        })
    })
}

/// Title, grid, and axes with their marks.
fn frame(svg: &mut String, title: &str, area: Area, x: &Axis, y: &Axis) {
    let Area {
        x: left,
        y: top,
        width,
        height,
    } = area;
    for mark in &x.marks {
        let at = left + width * x.place(*mark);
        vertical(svg, at, area);
        text(
            svg,
            "",
            "middle",
            at,
            area.bottom() + 18.0,
            &format!("{mark:.0}"),
        );
    }
    for mark in &y.marks {
        let at = top + height * (1.0 - y.place(*mark));
        horizontal(svg, at, area);
        text(svg, "", "end", left - 6.0, at + 4.0, &format!("{mark:.0}"));
    }
    let _ = writeln!(
        svg,
        "<rect class=\"frame\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"/>"
    );
    let middle = left + width / 2.0;
    text(svg, "title", "start", left, top - 26.0, title);
    text(svg, "", "start", left, top - 9.0, "MB/s, one thread");
    text(
        svg,
        "",
        "middle",
        middle,
        area.bottom() + 40.0,
        "bytes stored, % of a page",
    );
}

fn vertical(svg: &mut String, x: f64, area: Area) {
    let (top, bottom) = (area.y, area.bottom());
    line(svg, "grid", Point { x, y: top }, Point { x, y: bottom });
}

fn horizontal(svg: &mut String, y: f64, area: Area) {
    let (left, right) = (area.x, area.right());
    line(svg, "grid", Point { x: left, y }, Point { x: right, y });
}

/// Points and their names; a thin line leads from a name that had to go further away.
fn draw(svg: &mut String, points: &[Point], labels: &[Area], names: &[&str]) {
    for (point, label) in points.iter().zip(labels) {
        let nearest = Point {
            x: point.x.clamp(label.x, label.right()),
            y: point.y.clamp(label.y, label.bottom()),
        };
        if (nearest.x - point.x).hypot(nearest.y - point.y) > 3.0 * POINT_RADIUS {
            line(svg, "leader", *point, nearest);
        }
    }
    for ((point, label), name) in points.iter().zip(labels).zip(names) {
        let _ = writeln!(
            svg,
            "<circle class=\"point\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{POINT_RADIUS}\"/>",
            point.x, point.y
        );
        let middle = label.x + label.width / 2.0;
        text(svg, "", "middle", middle, label.bottom() - 4.0, name);
    }
}

fn line(svg: &mut String, class: &str, from: Point, to: Point) {
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
        from.x, from.y, to.x, to.y
    );
}

fn text(svg: &mut String, class: &str, anchor: &str, x: f64, y: f64, text: &str) {
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(codec: &str, compress_ns: f64, bytes: f64) -> Measured {
        Measured {
            codec: codec.into(),
            pool: "all".into(),
            pages: 1024,
            compress_ns,
            decompress_ns: compress_ns / 4.0,
            bytes,
            same_pages: 0,
            raw_pages: 0,
        }
    }

    #[test]
    fn names_cover_neither_each_other_nor_points() {
        let names = [
            "lz4", "zstd:1", "zstd:19", "lzo", "lzrw1", "wkdm", "lzowkdm", "fold", "auto",
        ];
        let crowd: Vec<Point> = (0..9)
            .map(|n| Point {
                x: 420.0 - f64::from(n % 3),
                y: 60.0 + f64::from(n),
            })
            .collect();
        let labels = labels(&crowd, &names, PANELS[0]);
        for (at, label) in labels.iter().enumerate() {
            assert!(label.is_inside(&PANELS[0]), "{label:?}");
            assert!(
                labels[..at].iter().all(|other| !other.overlaps(label)),
                "{labels:?}"
            );
            let covers = |p: &Point| label.overlaps(&Area::new(p.x, p.y, 0.1, 0.1));
            assert!(!crowd.iter().any(covers), "{label:?}");
        }
    }

    #[test]
    fn axes_hold_every_value_and_their_marks_are_round() {
        for values in [vec![1e-3, 950.0, 30.0], vec![2048.0], vec![5.0, 5.0]] {
            let axis = Axis::logarithmic(values.iter().map(|&v| f64::max(v, 1.2)));
            let places = values.iter().map(|&v| axis.place(f64::max(v, 1.2)));
            assert!(
                places.clone().all(|at| (0.0..=1.0).contains(&at)),
                "{values:?}"
            );
        }
        let axis = Axis::linear([12.0, 71.0].into_iter());
        assert_eq!((axis.from, axis.to), (10.0, 75.0));
        assert!(
            axis.marks.len() <= 9 && axis.marks.contains(&20.0),
            "{:?}",
            axis.marks
        );
    }

    #[test]
    fn every_codec_is_in_both_panels() {
        let svg = plot(&[
            one("lz4", 3000.0, 1800.0),
            one("zstd:19", 400_000.0, 1100.0),
        ]);
        assert!(
            svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
        assert_eq!(svg.matches("<circle").count(), 4);
        assert_eq!(svg.matches(">zstd:19<").count(), 2);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        // One codec alone still makes axes of some length.
        assert!(!plot(&[one("lz4", 3000.0, 1800.0)]).contains("NaN"));
    }
}
