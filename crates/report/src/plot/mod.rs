//! Plots as plain data; drawn as SVG ([`Plot::to_svg`], [`crate::Page`]) or sketched as text.
//!
//! ```text
//!   title                          A plot has two axes and any number of marks.
//!   ■ rss  ■ flow director         Bars need one axis of categories: on x they stand, on y they lie.
//!   frames                         Lines, steps, points and CDFs need two numeric axes.
//!   20 k │ █▆                      A limit is a dashed line with a label.
//!   10 k │ ██ ▄█                   Colours come from the stylesheet, by the number of the mark; hatching,
//!      0 └─────────  queue         dashes and markers distinguish the marks where there is no colour.
//! ```
//!
//! Any data can be drawn: values that are not finite (or not positive, on a log axis) leave a gap, values
//! outside a fixed range are drawn at its edge, and a plot without data has a note.

mod draw;
mod field;
mod layout;
mod marks;
mod model;
mod scale;
mod sketch;

pub(crate) use draw::{HALF, WIDE};
pub use model::{Axis, Plot};
