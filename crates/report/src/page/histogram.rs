//! How long faults took, as a histogram for each source, and in figures.

use super::html::{figures, text, words, Table};
use crate::latency::{begin_of, Latency, SOURCES};
use crate::read::Run;
use pleat_plot::{human_count, human_time};
use std::fmt::Write;

const WIDTH: f64 = 2000.0;
const HEIGHT: f64 = 200.0;

/// How a source is called, and the class that has its colour.
pub fn shown(source: &str) -> (&'static str, &'static str) {
    match source {
        "zero" => ("first touch, zeros", "zero"),
        "file" => ("from mapped files", "file"),
        "staged" => ("not compressed yet", "uncompressed"),
        "compressed" => ("from compressed memory", "compressed"),
        _ => ("from the swap file", "swap"),
    }
}

/// Which times are shown, from one power of ten to another, and which part of its source the highest bar is: the same for all runs.
pub struct Frame {
    from_decade: i32,
    to_decade: i32,
    highest: f64,
    sources: Vec<&'static str>,
}

impl Frame {
    /// For these runs; `None` where no file has such figures.
    pub fn of(runs: &[Vec<Latency>]) -> Option<Frame> {
        let all = || runs.iter().flatten();
        let bars = || all().flat_map(|one| one.bars.keys().copied());
        let from_decade = begin_of(bars().min()?).log10().floor() as i32;
        let to_decade = begin_of(bars().max()? + 1).log10().ceil() as i32;
        let shares = all().flat_map(|one| one.bars.values().map(|faults| faults / one.count));
        let is_there = |source: &&str| all().any(|one| one.source == *source);
        Some(Frame {
            from_decade,
            to_decade: to_decade.max(from_decade + 1),
            highest: shares.fold(1e-9, f64::max),
            sources: SOURCES.into_iter().filter(is_there).collect(),
        })
    }

    fn place(&self, ns: f64) -> f64 {
        let width = f64::from(self.to_decade - self.from_decade);
        ((ns.max(1.0).log10() - f64::from(self.from_decade)) / width).clamp(0.0, 1.0)
    }

    fn decades(&self) -> impl Iterator<Item = f64> {
        (self.from_decade..=self.to_decade).map(|decade| 10f64.powi(decade))
    }

    /// Of one run, as HTML.
    pub fn draw(&self, latencies: &[Latency], head: &str, number: usize) -> String {
        let mut html = format!("<figure class=\"chart\"><figcaption>{head}</figcaption>\n");
        for source in &self.sources {
            if let Some(one) = latencies.iter().find(|one| one.source == *source) {
                html += &self.row(one, number);
            }
        }
        html += "<div class=\"plot axis\">";
        for (at, ns) in self.decades().enumerate() {
            let odd = if at % 2 == 1 { " odd" } else { "" };
            let _ = write!(
                html,
                "<span class=\"x{odd}\" style=\"left:{:.2}%\">{}</span>",
                100.0 * self.place(ns),
                human_time(ns / 1e9)
            );
        }
        html + "</div></figure>\n"
    }

    fn row(&self, one: &Latency, number: usize) -> String {
        let (name, class) = shown(one.source);
        let id = format!("latency-{}-{number}", one.source);
        let told = format!(
            "{} faults: half of them took {} at most, 99 of 100 {} at most.",
            human_count(one.count),
            human_time(one.median_ns / 1e9),
            human_time(one.p99_ns / 1e9)
        );
        let (median, late) = (
            WIDTH * self.place(one.median_ns),
            WIDTH * self.place(one.p99_ns),
        );
        format!(
            "<div class=\"source\"><i class=\"area {class}\"></i>{}</div>\n<div class=\"plot low\">\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\
             <title id=\"{id}-t\">How long faults took, {name}</title><desc id=\"{id}-d\">{told}</desc>\n{}\
             <path class=\"f {class}\" d=\"{}\"/>\n<path class=\"median\" d=\"M{median:.0} 0V{HEIGHT}\"/>\
             <path class=\"late\" d=\"M{late:.0} 0V{HEIGHT}\"/></svg></div>\n",
            text(name),
            self.grid(),
            self.bars(one)
        )
    }

    fn grid(&self) -> String {
        let line = |ns| format!("M{:.0} 0V{HEIGHT}", WIDTH * self.place(ns));
        let lines: String = self.decades().map(line).collect();
        format!("<path class=\"g\" d=\"{lines}M0 {HEIGHT}H{WIDTH}\"/>\n")
    }

    fn bars(&self, one: &Latency) -> String {
        let mut path = String::new();
        for (bar, faults) in &one.bars {
            let [left, right] = [*bar, bar + 1].map(|bar| WIDTH * self.place(begin_of(bar)));
            let share = faults / one.count / self.highest;
            // What there was is to be seen, however little it was.
            let top = HEIGHT * (1.0 - share.clamp(0.01, 1.0));
            let _ = write!(path, "M{left:.0} {HEIGHT}V{top:.0}H{right:.0}V{HEIGHT}Z");
        }
        path
    }
}

/// The same in figures, of all runs; `heads` says which each is, as HTML.
pub fn table(runs: &[&Run], latencies: &[Vec<Latency>], heads: &[String]) -> String {
    let several = runs.len() > 1;
    let mut columns = vec![words("Pages")];
    columns.extend(several.then(|| words("Run")));
    columns.extend(["Faults", "Mean", "Median", "99%", "99.9%"].map(figures));
    let mut table = Table::new(
        "How long faults took, by where the page came from",
        &columns,
    );
    for source in SOURCES {
        for (at, of_run) in latencies.iter().enumerate() {
            let Some(one) = of_run.iter().find(|one| one.source == source) else {
                continue;
            };
            let time = |ns: f64| match ns.is_finite() {
                true => figures(human_time(ns / 1e9)),
                false => figures("-"),
            };
            let mut cells = vec![words(shown(source).0)];
            cells.extend(several.then(|| words(heads[at].clone())));
            cells.push(figures(human_count(one.count)));
            cells.extend([one.mean_ns, one.median_ns, one.p99_ns, one.p999_ns].map(time));
            table.row(&cells);
        }
    }
    table.end()
}
