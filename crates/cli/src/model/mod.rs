//! `pleat model`: the analytic model of `douglis93` as tables, JSON or a picture.

mod heat;

use crate::args::{Figure, ModelArgs};
use crate::exit::{Exit, Stop};
use crate::output::{create, print};
use pleat_sim::model::{paging_speedup, reference_speedup, Left, RelativeSpeed};
use serde::Serialize;
use std::fmt::Write;

/// Rows of the tables, fastest at the top as in the paper's figure.
const SPEEDS: [f64; 8] = [32.0, 16.0, 8.0, 4.0, 2.0, 1.0, 0.75, 0.5];

/// One line of `--json`.
#[derive(Serialize)]
struct Line {
    figure: &'static str,
    left: f64,
    relative_speed: f64,
    speedup: f64,
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Figure::Paging => "1a",
            Figure::Keeping => "1b",
        }
    }

    fn caption(self) -> &'static str {
        match self {
            Figure::Paging => "(a) Transferring compressed pages to backing store",
            Figure::Keeping => "(b) Keeping compressed pages in memory",
        }
    }

    fn speedup(self, left: f64, speed: f64) -> f64 {
        let (left, speed) = (Left(left), RelativeSpeed(speed));
        match self {
            Figure::Paging => paging_speedup(left, speed),
            Figure::Keeping => reference_speedup(left, speed),
        }
    }
}

/// Columns of the tables: fractions of a page, from a tenth to all of it.
fn lefts() -> impl Iterator<Item = f64> {
    (1..=10).map(|tenths| f64::from(tenths) / 10.0)
}

/// Prints and draws what was asked for.
pub fn model(raw: &ModelArgs) -> Exit {
    Stop::exit(show(raw))
}

fn show(raw: &ModelArgs) -> Result<(), Stop> {
    let figures = match raw.figure {
        Some(figure) => vec![figure],
        None => vec![Figure::Paging, Figure::Keeping],
    };
    if let Some(file) = &raw.svg {
        create(file, "--svg")?.write(&heat::plot(&figures))?;
    }
    let texts: Vec<String> = match raw.json {
        true => figures.iter().map(|figure| json(*figure)).collect(),
        false => figures.iter().map(|figure| table(*figure)).collect(),
    };
    print(&texts.join(match raw.json {
        true => "",
        false => "\n",
    }))
}

fn json(figure: Figure) -> String {
    let mut text = String::new();
    for relative_speed in SPEEDS {
        for left in lefts() {
            let line = Line {
                figure: figure.name(),
                left,
                relative_speed,
                speedup: figure.speedup(left, relative_speed),
            };
            text += &serde_json::to_string(&line).expect("numbers and text");
            text.push('\n');
        }
    }
    text
}

fn table(figure: Figure) -> String {
    let mut text = format!(
        "{}\nSpeed-up, by speed of compression relative to I/O (down) and bytes left (across)\n\n{:>6}",
        figure.caption(),
        ""
    );
    for left in lefts() {
        let _ = write!(text, " {:>5.0}%", left * 100.0);
    }
    text.push('\n');
    for speed in SPEEDS {
        let _ = write!(text, "{speed:>6}");
        for left in lefts() {
            let _ = write!(text, " {:>6.2}", figure.speedup(left, speed));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_a_row_for_each_speed_and_a_column_for_each_ratio() {
        let table = table(Figure::Keeping);
        let row = table.lines().find(|line| line.trim().starts_with("4 "));
        let cells: Vec<&str> = row.expect("a row").split_whitespace().collect();
        assert_eq!(cells.len(), 11);
        assert_eq!(cells[1..=5], ["5.33"; 5], "the same as long as all fits");
        assert_eq!(cells[6], "1.27", "and then the leap");
    }
}
