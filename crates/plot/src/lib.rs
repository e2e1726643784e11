//! Plots as SVG, for every command that has figures to show: line plots with a legend, and the pieces
//! (axes, frames, text) for plots of another kind. They read well on a light page and on a dark one.
//!
//! ```
//! use pleat_plot::{LinePlot, Series};
//!
//! let series = Series { name: "lz4".into(), points: vec![(1.0, 20.0), (2.0, 12.0)] };
//! let plot = LinePlot { title: "Misses", x_label: "memory, MiB", y_label: "%", ..LinePlot::default() };
//! assert!(plot.draw(&[series]).starts_with("<svg "));
//! ```
#![forbid(unsafe_code)]

mod axis;
mod draw;
mod human;
mod lines;

pub use axis::{Axis, Scale};
pub use draw::{begin, class_of, escape, frame, line, text, Area, Labels, Point, END};
pub use human::{human_bytes, human_count, human_time};
pub use lines::{LinePlot, Series};
