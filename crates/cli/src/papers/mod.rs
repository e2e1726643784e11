//! `pleat papers`: figures of the published systems in simulation, as text and plots.

use crate::args::PapersArgs;
use crate::exit::{Exit, Stop};
use crate::output::{create, print};
use crate::progress::Progress;
use pleat_plot::{LinePlot, Series};
use pleat_sim::papers::{figures, Figure, Findings};
use std::fmt::Write;

/// Runs and prints what was asked for, or all; a statement that does not hold is a failure.
pub fn papers(raw: &PapersArgs) -> Exit {
    Stop::exit(show(raw))
}

fn show(raw: &PapersArgs) -> Result<(), Stop> {
    if raw.list {
        let line = |figure: &Figure| format!("{:<26} {}\n", figure.name, figure.about);
        return print(&figures().iter().map(line).collect::<String>());
    }
    let mut failed = 0;
    let chosen = chosen(&raw.figure)?;
    let work = chosen.iter().map(|figure| u64::from(figure.work)).sum();
    let progress = Progress::of("making figures", Some(work));
    for figure in chosen {
        let findings = (figure.make)();
        failed += findings.claims.iter().filter(|claim| !claim.holds).count();
        if let Some(dir) = &raw.svg {
            let file = dir.join(format!("{}.svg", figure.name));
            create(&file, "--svg")?.write(&plot(&figure, &findings))?;
        }
        progress.print(&text(&figure, &findings))?;
        progress.step(figure.work.into());
    }
    match failed {
        0 => Ok(()),
        _ => Err(Stop::failure(format!(
            "{failed} statements of the papers do not hold: see the lines that begin with NO"
        ))),
    }
}

fn chosen(names: &[String]) -> Result<Vec<Figure>, Stop> {
    let all = figures();
    if let Some(unknown) = names
        .iter()
        .find(|name| all.iter().all(|f| f.name != **name))
    {
        let known: Vec<&str> = all.iter().map(|figure| figure.name).collect();
        let known = known.join(", ");
        return Err(Stop::mistake(format!(
            "there is no figure '{unknown}': choose from {known}"
        )));
    }
    let wanted = |figure: &Figure| names.is_empty() || names.iter().any(|n| n == figure.name);
    Ok(all.into_iter().filter(wanted).collect())
}

/// A table of the lines' points, then what the paper states.
fn text(figure: &Figure, findings: &Findings) -> String {
    let mut text = format!("{}: {}\n\n", figure.name, figure.about);
    let (x, y) = figure.axes;
    let mut across: Vec<f64> = findings
        .lines
        .iter()
        .flat_map(|l| &l.points)
        .map(|p| p.0)
        .collect();
    across.sort_by(f64::total_cmp);
    across.dedup();
    let names: Vec<String> = findings
        .lines
        .iter()
        .map(|line| format!("{:>14}", line.name))
        .collect();
    let _ = writeln!(text, "{x:>14} {}   ({y})", names.join(" "));
    for at in across {
        let cell = |line: &pleat_sim::papers::Line| {
            let point = line.points.iter().find(|point| point.0 == at);
            let width = line.name.len().max(14);
            point.map_or(" ".repeat(width), |point| format!("{:>width$.2}", point.1))
        };
        let cells: Vec<String> = findings.lines.iter().map(cell).collect();
        let _ = writeln!(text, "{at:>14.2} {}", cells.join(" "));
    }
    text.push('\n');
    for claim in &findings.claims {
        let verdict = if claim.holds { "yes" } else { "NO " };
        let _ = writeln!(text, "{verdict}  {}", claim.stated);
        let _ = writeln!(
            text,
            "     measured: {}; wanted: {}",
            claim.measured, claim.tolerance
        );
    }
    text + "\n"
}

fn plot(figure: &Figure, findings: &Findings) -> String {
    let lines = findings.lines.iter().map(|line| Series {
        name: line.name.clone(),
        points: line.points.clone(),
    });
    let plot = LinePlot {
        title: figure.about,
        x_label: figure.axes.0,
        y_label: figure.axes.1,
        ..LinePlot::default()
    };
    plot.draw(&lines.collect::<Vec<_>>())
}
