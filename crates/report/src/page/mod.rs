//! The page: one HTML file that needs no other, for one run or for several beside each other.

mod chart;
mod charts;
mod counters;
mod histogram;
mod html;
mod summary;
mod tables;
mod when;

use crate::latency::{latencies, Latency};
use crate::read::Run;
use crate::series::Point;
use charts::CHARTS;
use html::{name, text};
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// Points of a chart: of one run about one for each dot of a screen, of several less, for their charts are narrower.
const POINTS: usize = 600;
const POINTS_MIN: usize = 150;
/// Letters of a command line in a heading.
const TITLE_MAX: usize = 120;

/// The page that shows these runs, in this order; differences are to the first of them.
pub fn page(runs: &[Run]) -> String {
    Page::of(runs).html()
}

struct Page<'a> {
    runs: Vec<&'a Run>,
    /// What stands over each run's column: nothing where there is one only. HTML.
    heads: Vec<String>,
    points: Vec<Vec<Point>>,
    latencies: Vec<Vec<Latency>>,
    end_s: f64,
}

impl<'a> Page<'a> {
    fn of(runs: &'a [Run]) -> Page<'a> {
        let most = (2 * POINTS / (runs.len().max(1) + 1)).clamp(POINTS_MIN, POINTS);
        let heads = runs.iter().enumerate().map(|(at, run)| head(at, run));
        Page {
            runs: runs.iter().collect(),
            heads: heads.collect(),
            points: runs.iter().map(|run| run.series.points(most)).collect(),
            latencies: runs.iter().map(|run| latencies(&run.end)).collect(),
            end_s: runs
                .iter()
                .map(|run| run.series.end_us() as f64 / 1e6)
                .fold(0.0, f64::max),
        }
    }

    fn is_alone(&self) -> bool {
        self.runs.len() == 1
    }

    fn html(&self) -> String {
        let title = match self.runs.as_slice() {
            [run] => shortened(&title(run)),
            runs => format!("{} runs compared", runs.len()),
        };
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{} - pleat report</title>\n\
             <link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main{}>\n",
            text(&title),
            if self.is_alone() { "" } else { " class=\"several\"" }
        );
        html += &self.heading(&title);
        html += &self.charts();
        html += &self.latency();
        self.decisions(&mut html);
        html += &self.processes();
        html += &self.rest();
        let version = text(env!("CARGO_PKG_VERSION"));
        let _ = write!(
            html,
            "</main>\n<footer>made by pleat report {version}</footer>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
        );
        html
    }

    fn heading(&self, title: &str) -> String {
        let mut html = format!("<header>\n<h1>{}</h1>\n", name(title));
        if let [run] = self.runs.as_slice() {
            return html + &facts(run) + "</header>\n" + &tables::tiles(run) + &sentences(run);
        }
        html += "<ol class=\"runs\">\n";
        for (at, run) in self.runs.iter().enumerate() {
            let facts = facts(run);
            let _ = writeln!(
                html,
                "<li><h2>{} <code>{}</code></h2>{facts}</li>",
                self.heads[at],
                text(&shortened(&title_of_program(run)))
            );
        }
        html += "</ol>\n</header>\n<section><h2>Key figures</h2>\n";
        html += &tables::compared(&self.runs, &self.heads);
        html += "<p class=\"note\">Small: the difference to the first run. Charts of all runs have the same scales.</p>\n";
        if let Some(settings) = tables::different_settings(&self.runs, &self.heads) {
            let _ = write!(html, "<h3>Different settings</h3>\n{settings}");
        }
        html += "<div class=\"columns\">";
        for (at, run) in self.runs.iter().enumerate() {
            let _ = write!(
                html,
                "<div><h3>{}</h3>{}</div>",
                self.heads[at],
                sentences(run)
            );
        }
        html + "</div></section>\n"
    }

    /// What stands over one of several charts.
    fn chart_head(&self, at: usize) -> String {
        match self.is_alone() {
            true => String::new(),
            false => format!("<h3>{}</h3>", self.heads[at]),
        }
    }

    fn charts(&self) -> String {
        let mut html = String::new();
        if !self.points.iter().all(Vec::is_empty) {
            html += "<p class=\"note\">In charts, lines and areas are means; pale bands go as far as single samples did. Figures beside \
                     names are the highest, and while you point at a chart those of that time.</p>\n";
        }
        for chart in &CHARTS {
            let Some(frame) = chart.frame(&self.points, self.end_s) else {
                continue;
            };
            let drawn =
                self.points
                    .iter()
                    .enumerate()
                    .map(|(at, points)| match points.is_empty() {
                        true => self.without(at, "no samples"),
                        false => chart.draw(&frame, points, &self.chart_head(at), at),
                    });
            let drawn: String = drawn.collect();
            html += &section(
                chart.title,
                chart.about,
                &format!("<div class=\"columns\">{drawn}</div>\n"),
            );
        }
        html
    }

    fn without(&self, at: usize, what: &str) -> String {
        format!(
            "<div>{}<p class=\"note\">{what}</p></div>\n",
            self.chart_head(at)
        )
    }

    fn latency(&self) -> String {
        let Some(frame) = histogram::Frame::of(&self.latencies) else {
            return String::new();
        };
        let drawn = self
            .latencies
            .iter()
            .enumerate()
            .map(|(at, of_run)| match of_run.is_empty() {
                true => self.without(at, "its file does not have them"),
                false => frame.draw(of_run, &self.chart_head(at), at),
            });
        let drawn: String = drawn.collect();
        let table = histogram::table(&self.runs, &self.latencies, &self.heads);
        section(
            "How long faults took",
            "From the reading of a fault to its answer; each row is the part of that source's faults that took so long. \
             The line is the median, the dashed one 99%.",
            &format!("<div class=\"columns\">{drawn}</div>\n{table}"),
        )
    }

    fn decisions(&self, html: &mut String) {
        let heads = self.column_heads();
        if let Some(decisions) = counters::decisions(&self.runs, &heads) {
            let about = "How often the engine decided so; what was never decided is left out.";
            *html += &section("Sizing, eviction, admission", about, &decisions);
        }
    }

    fn column_heads(&self) -> Vec<String> {
        match self.is_alone() {
            true => vec!["Value".into()],
            false => self.heads.clone(),
        }
    }

    fn processes(&self) -> String {
        let drawn = self
            .runs
            .iter()
            .enumerate()
            .filter_map(|(at, run)| Some(self.chart_head(at) + &tables::processes(run)?));
        let drawn: String = drawn.collect();
        match drawn.is_empty() {
            true => drawn,
            false => section(
                "Processes",
                "By how long their threads waited for pages.",
                &drawn,
            ),
        }
    }

    fn rest(&self) -> String {
        let heads = self.column_heads();
        let mut html = format!(
            "<details><summary>Settings and machine</summary>\n{}</details>\n",
            tables::settings(&self.runs, &heads)
        );
        if self.runs.iter().any(|run| !run.end.is_null()) {
            html += "<details><summary>All counters</summary>\n";
            html += &counters::everything(&self.runs, &heads);
            html += "</details>\n";
        }
        html
    }
}

fn section(title: &str, about: &str, body: &str) -> String {
    format!(
        "<section>\n<h2>{}</h2>\n<p class=\"about\">{}</p>\n{body}</section>\n",
        text(title),
        text(about)
    )
}

/// A letter for each run, and its file.
fn head(at: usize, run: &Run) -> String {
    let letter = (b'A' + (at % 26) as u8) as char;
    let round = match at / 26 {
        0 => String::new(),
        round => round.to_string(),
    };
    let file = run.name.rsplit('/').next().unwrap_or_default();
    format!("<span class=\"run\">{letter}{round}</span> {}", name(file))
}

/// The job's name, if it was given one, and what was run.
fn title(run: &Run) -> String {
    let program = title_of_program(run);
    match program.is_empty() {
        true => run.job.clone(),
        false => program,
    }
}

fn title_of_program(run: &Run) -> String {
    run.start.program.join(" ")
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(TITLE_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Name, when, where, how it ended.
fn facts(run: &Run) -> String {
    let mut facts = Vec::new();
    if !run.job.is_empty() {
        facts.push(format!("job {}", name(&run.job)));
    }
    if run.pid != 0 {
        facts.push(format!("pleat {}", run.pid));
    }
    if run.start.started_unix_ms > 0 {
        facts.push(when::time_tag(run.start.started_unix_ms));
    }
    facts.push(pleat_plot::human_time(run.wall_s()));
    facts.push(summary::ended(run));
    format!("<p class=\"facts\">{}</p>\n", facts.join(" &middot; "))
}

fn sentences(run: &Run) -> String {
    let lines = summary::sentences(run).into_iter();
    let lines: String = lines
        .map(|(head, line)| format!("<div><dt>{head}</dt><dd>{line}</dd></div>\n"))
        .collect();
    format!("<dl class=\"summary\">\n{lines}</dl>\n")
}
