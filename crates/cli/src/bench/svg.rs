//! The plot of `pleat bench codec --svg`: speed against size, a point for each codec, one panel for
//! compressing and one for decompressing. Further left is smaller, further up is faster.

use pleat_codec::measure::Measured;
use pleat_plot::{begin, frame, line, text, Area, Axis, Labels, Point, END};
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

/// The plot of these codecs, usually the totals over all pools.
pub fn plot(codecs: &[Measured]) -> String {
    let about = "Speed of each codec against the size of what it stores";
    let mut svg = begin(WIDTH, HEIGHT, about);
    let names: Vec<&str> = codecs.iter().map(|codec| codec.codec.as_str()).collect();
    // Room on both sides, for names.
    let x = Axis::linear(codecs.iter().flat_map(|codec| {
        let share = share(codec);
        [f64::max(share - 2.0, 0.0), share + 2.0]
    }));
    let compress: Vec<f64> = codecs.iter().map(|c| mb_per_s(c.compress_ns)).collect();
    let decompress: Vec<f64> = codecs.iter().map(|c| mb_per_s(c.decompress_ns)).collect();
    let panels = [("compress", compress), ("decompress", decompress)];
    for ((title, speeds), area) in panels.iter().zip(PANELS) {
        let y = Axis::logarithmic(speeds.iter().copied());
        let labels_around = Labels {
            title,
            x: "bytes stored, % of a page",
            y: "MB/s, one thread",
        };
        frame(&mut svg, labels_around, area, &x, &y);
        let point =
            |(codec, speed): (&Measured, &f64)| area.place((&x, share(codec)), (&y, *speed));
        let points: Vec<Point> = codecs.iter().zip(speeds).map(point).collect();
        draw(&mut svg, &points, &labels(&points, &names, area), &names);
    }
    svg + END
}

/// Stored bytes in hundredths of a page.
fn share(codec: &Measured) -> f64 {
    100.0 * codec.bytes / PAGE_BYTES
}

/// Million bytes of pages in a second.
fn mb_per_s(ns_per_page: f64) -> f64 {
    PAGE_BYTES * 1e3 / ns_per_page.max(1.0)
}

fn overlap(a: &Area, b: &Area) -> bool {
    a.x < b.right() && b.x < a.right() && a.y < b.bottom() && b.y < a.bottom()
}

fn is_inside(inner: &Area, outer: &Area) -> bool {
    inner.x >= outer.x
        && inner.right() <= outer.right()
        && inner.y >= outer.y
        && inner.bottom() <= outer.bottom()
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
            .find(|place| is_inside(place, &panel) && taken.iter().all(|t| !overlap(t, place)));
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
            assert!(is_inside(label, &PANELS[0]), "{label:?}");
            assert!(
                labels[..at].iter().all(|other| !overlap(other, label)),
                "{labels:?}"
            );
            let covers = |p: &Point| overlap(label, &Area::new(p.x, p.y, 0.1, 0.1));
            assert!(!crowd.iter().any(covers), "{label:?}");
        }
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
