//! Plots as SVG, for every command that has figures to show: line plots with a legend, and the pieces
//! (axes, frames, text) for plots of another kind. They read well on a light page and on a dark one.

mod axis;
mod draw;
mod lines;

pub use axis::{Axis, Scale};
pub use draw::{begin, class_of, frame, line, text, Area, Labels, Point, END};
pub use lines::{LinePlot, Series};
