//! The plot of `pleat sim --svg`: time against memory, a line for each preset.

use super::Row;
use pleat_plot::{LinePlot, Scale, Series};

/// Of all rows; those of one size of memory stand together.
pub fn plot(rows: &[Row]) -> String {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let mb = row.memory_bytes as f64 / f64::from(1 << 20);
        let point = (mb, row.outcome.elapsed_ns as f64 / 1e9);
        match series.iter_mut().find(|one| one.name == row.preset) {
            Some(one) => one.points.push(point),
            None => series.push(Series {
                name: row.preset.clone(),
                points: vec![point],
            }),
        }
    }
    for one in &mut series {
        one.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let plot = LinePlot {
        title: "Time of the whole workload",
        x_label: "memory, MiB",
        y_label: "seconds",
        y_scale: Scale::Log,
        ..LinePlot::default()
    };
    plot.draw(&series)
}
