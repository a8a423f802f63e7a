//! Plots as plain data; drawn as SVG ([`Plot::to_svg`], [`crate::Page`]) or sketched as text.
//!
//! ```text
//!   title                          A plot has two axes and any number of marks.
//!   ■ rss  ■ flow director         Bars stand on the axis that has categories: on x they rise, on
//!   frames                         y they lie. Lines, steps, points and CDFs want two numeric axes.
//!   20 k │ █▆                      A limit is a dashed line with a label.
//!   10 k │ ██ ▄█                   Colours come from the stylesheet, by the mark's number; hatching,
//!      0 └─────────  queue         dashes and markers tell marks apart where there is no colour.
//! ```
//!
//! Any data is drawn: what is not finite (or not positive, on a log axis) leaves a gap, what lies
//! outside a fixed range stands at its edge, and no data says so.

mod draw;
mod field;
mod layout;
mod marks;
mod scale;
mod sketch;

pub(crate) use draw::{HALF, WIDE};

use crate::num::Unit;

/// How an axis places its values.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Kind {
    Linear(Unit),
    Log(Unit),
    Categories(Vec<String>),
}

/// One axis of a [`Plot`]: what it measures, in which unit and on which scale.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    pub(crate) title: String,
    pub(crate) kind: Kind,
    pub(crate) range: (Option<f64>, Option<f64>),
    pub(crate) ticks: Vec<f64>,
}

impl Axis {
    fn new(title: impl Into<String>, kind: Kind) -> Self {
        Self { title: title.into(), kind, range: (None, None), ticks: Vec::new() }
    }

    /// Even steps. A linear y axis starts at zero unless [`Axis::range`] says otherwise.
    pub fn linear(title: impl Into<String>, unit: Unit) -> Self {
        Self::new(title, Kind::Linear(unit))
    }

    /// Even factors; only positive values have a place.
    pub fn log(title: impl Into<String>, unit: Unit) -> Self {
        Self::new(title, Kind::Log(unit))
    }

    /// Named slots, for bars.
    pub fn categories<S: Into<String>>(
        title: impl Into<String>,
        names: impl IntoIterator<Item = S>,
    ) -> Self {
        Self::new(title, Kind::Categories(names.into_iter().map(Into::into).collect()))
    }

    /// Fixes both ends; values outside stand at the edge. Ends that are not finite stay free.
    #[must_use]
    pub fn range(mut self, from: f64, to: f64) -> Self {
        self.range = (Some(from).filter(|v| v.is_finite()), Some(to).filter(|v| v.is_finite()));
        self
    }

    /// Fixes the ticks: the seven frame sizes of RFC 2544, say.
    #[must_use]
    pub fn ticks_at(mut self, ticks: impl Into<Vec<f64>>) -> Self {
        self.ticks = ticks.into();
        self.ticks.retain(|t| t.is_finite());
        self.ticks.sort_by(f64::total_cmp);
        self.ticks.dedup();
        self
    }

    fn names(&self) -> Option<&[String]> {
        match &self.kind {
            Kind::Categories(names) => Some(names),
            _ => None,
        }
    }

    fn unit(&self) -> Unit {
        match self.kind {
            Kind::Linear(unit) | Kind::Log(unit) => unit,
            Kind::Categories(_) => Unit::Count,
        }
    }

    fn is_log(&self) -> bool {
        matches!(self.kind, Kind::Log(_))
    }
}

/// How a line gets from point to point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Path {
    Straight,
    Steps,
    Points,
}

/// One thing drawn on a [`Plot`].
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Mark {
    Bars { name: String, values: Vec<f64> },
    Line { name: String, points: Vec<(f64, f64)>, path: Path },
    LimitX { at: f64, label: String },
    LimitY { at: f64, label: String },
}

impl Mark {
    /// The legend's name; limits carry their own label.
    fn name(&self) -> Option<&str> {
        match self {
            Self::Bars { name, .. } | Self::Line { name, .. } => Some(name),
            Self::LimitX { .. } | Self::LimitY { .. } => None,
        }
    }
}

/// A plot as plain data.
///
/// ```
/// use flowyard_report::{Axis, Plot, Unit};
/// let queues = (0..4).map(|q| q.to_string());
/// let svg = Plot::new("Load per queue", Axis::categories("queue", queues), Axis::linear("frames", Unit::Count))
///     .bars("rss", [900.0, 1200.0, 800.0, 1100.0])
///     .limit_y(1000.0, "even share")
///     .to_svg();
/// assert!(svg.starts_with("<svg ") && svg.contains("even share"));
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Plot {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) marks: Vec<Mark>,
    pub(crate) is_stacked: bool,
    pub(crate) note: String,
}

impl Plot {
    /// A plot without marks.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            title: title.into(),
            x,
            y,
            marks: Vec::new(),
            is_stacked: false,
            note: String::new(),
        }
    }

    /// Adds bars, one value per category; several sets stand side by side, or see [`Plot::stacked`].
    #[must_use]
    pub fn bars(mut self, name: impl Into<String>, values: impl Into<Vec<f64>>) -> Self {
        self.marks.push(Mark::Bars { name: name.into(), values: values.into() });
        self
    }

    /// Puts the sets of bars on top of each other; what is negative or not finite takes no room.
    #[must_use]
    pub const fn stacked(mut self) -> Self {
        self.is_stacked = true;
        self
    }

    fn with_line(
        mut self,
        name: impl Into<String>,
        points: impl Into<Vec<(f64, f64)>>,
        path: Path,
    ) -> Self {
        self.marks.push(Mark::Line { name: name.into(), points: points.into(), path });
        self
    }

    /// Adds a line through `(x, y)` points in their order.
    #[must_use]
    pub fn line(self, name: impl Into<String>, points: impl Into<Vec<(f64, f64)>>) -> Self {
        self.with_line(name, points, Path::Straight)
    }

    /// Adds a line that keeps each value until the next point: occupancy over time.
    #[must_use]
    pub fn steps(self, name: impl Into<String>, points: impl Into<Vec<(f64, f64)>>) -> Self {
        self.with_line(name, points, Path::Steps)
    }

    /// Adds unconnected points.
    #[must_use]
    pub fn points(self, name: impl Into<String>, points: impl Into<Vec<(f64, f64)>>) -> Self {
        self.with_line(name, points, Path::Points)
    }

    /// Adds the cumulative distribution of `samples`: at x, the share (0 to 1) of samples not above
    /// x. Samples that are not a number are left out.
    #[must_use]
    pub fn cdf(self, name: impl Into<String>, samples: impl Into<Vec<f64>>) -> Self {
        let mut samples = samples.into();
        samples.retain(|s| !s.is_nan());
        samples.sort_by(f64::total_cmp);
        let count = samples.len() as f64;
        let start = samples.first().map(|s| (*s, 0.0));
        let rest = samples.iter().enumerate().map(|(i, s)| (*s, (i + 1) as f64 / count));
        let points: Vec<_> = start.into_iter().chain(rest).collect();
        self.with_line(name, points, Path::Steps)
    }

    /// Adds a dashed line across, at `y`: line rate, even share, acceptance limit.
    #[must_use]
    pub fn limit_y(mut self, at: f64, label: impl Into<String>) -> Self {
        self.marks.push(Mark::LimitY { at, label: label.into() });
        self
    }

    /// Adds a dashed line upwards, at `x`: a percentile, the moment of a change.
    #[must_use]
    pub fn limit_x(mut self, at: f64, label: impl Into<String>) -> Self {
        self.marks.push(Mark::LimitX { at, label: label.into() });
        self
    }

    /// A line under the plot: how it was measured, what to look at.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// The marks that have a colour and a legend entry, with their series number.
    fn series(&self) -> impl Iterator<Item = (usize, &Mark)> {
        self.marks.iter().filter(|m| m.name().is_some()).enumerate()
    }

    /// What a screen reader says.
    pub(crate) fn summary(&self) -> String {
        let names: Vec<&str> =
            self.series().filter_map(|(_, m)| m.name()).filter(|n| !n.is_empty()).collect();
        let mut text = format!("{}: plot of {} by {}", self.title, self.y.title, self.x.title);
        if !names.is_empty() {
            text.push_str(", series ");
            text.push_str(&names[..names.len().min(12)].join(", "));
        }
        text
    }
}
