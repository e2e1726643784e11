//! Plots as SVG, for every command that has figures to show: line plots with a legend, and the pieces
//! (axes, frames, text) for plots of another kind. They read well on a light page and on a dark one.

mod axis;
mod draw;
// Drawn by the simulator's command; until that is there, by tests only.
#[allow(dead_code)]
mod lines;

pub use axis::{Axis, Scale};
pub use draw::{begin, class_of, frame, line, text, Area, Labels, Point, END};
#[allow(unused_imports)]
pub use lines::{lines, LinePlot, Series};
