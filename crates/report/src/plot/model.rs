//! The types of a plot: axes, marks, and the plot itself.

use crate::num::Unit;

/// The scale of an axis.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Kind {
    Linear(Unit),
    Log(Unit),
    Categories(Vec<String>),
}

/// One axis of a [`Plot`]: a title, a unit and a scale.
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

    /// A linear axis. A linear y axis starts at zero unless [`Axis::range`] sets another range.
    pub fn linear(title: impl Into<String>, unit: Unit) -> Self {
        Self::new(title, Kind::Linear(unit))
    }

    /// A logarithmic axis; only positive values have a place on it.
    pub fn log(title: impl Into<String>, unit: Unit) -> Self {
        Self::new(title, Kind::Log(unit))
    }

    /// An axis of categories, for bars.
    pub fn categories<S: Into<String>>(
        title: impl Into<String>,
        names: impl IntoIterator<Item = S>,
    ) -> Self {
        Self::new(title, Kind::Categories(names.into_iter().map(Into::into).collect()))
    }

    /// Fixes both ends. Values outside the range are drawn at its edge; an end that is not finite is not fixed.
    #[must_use]
    pub fn range(mut self, from: f64, to: f64) -> Self {
        self.range = (Some(from).filter(|v| v.is_finite()), Some(to).filter(|v| v.is_finite()));
        self
    }

    /// Fixes the ticks, for example at the seven frame sizes of RFC 2544.
    #[must_use]
    pub fn ticks_at(mut self, ticks: impl Into<Vec<f64>>) -> Self {
        self.ticks = ticks.into();
        self.ticks.retain(|t| t.is_finite());
        self.ticks.sort_by(f64::total_cmp);
        self.ticks.dedup();
        self
    }

    pub(crate) fn names(&self) -> Option<&[String]> {
        match &self.kind {
            Kind::Categories(names) => Some(names),
            _ => None,
        }
    }

    /// A value as text; on an axis of categories, the name of the category with this index.
    pub(crate) fn show(&self, value: f64) -> String {
        let name = self.names().and_then(|names| names.get(value.round() as usize));
        name.map_or_else(|| self.unit().show(value), Clone::clone)
    }

    pub(crate) fn unit(&self) -> Unit {
        match self.kind {
            Kind::Linear(unit) | Kind::Log(unit) => unit,
            Kind::Categories(_) => Unit::Count,
        }
    }

    pub(crate) fn is_log(&self) -> bool {
        matches!(self.kind, Kind::Log(_))
    }
}

/// How the points of a line are connected.
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
    /// The name in the legend; limits have a label instead.
    pub(crate) fn name(&self) -> Option<&str> {
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

    /// Stacks the sets of bars; values that are negative or not finite have no height.
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

    /// Adds a line that keeps each value until the next point, such as occupancy over time.
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

    /// Adds a horizontal dashed line at `at`, such as line rate or an acceptance limit.
    #[must_use]
    pub fn limit_y(mut self, at: f64, label: impl Into<String>) -> Self {
        self.marks.push(Mark::LimitY { at, label: label.into() });
        self
    }

    /// Adds a vertical dashed line at `at`, such as a percentile or the time of a change.
    #[must_use]
    pub fn limit_x(mut self, at: f64, label: impl Into<String>) -> Self {
        self.marks.push(Mark::LimitX { at, label: label.into() });
        self
    }

    /// Sets the text under the plot, such as how the values were measured.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// The marks that have a colour and a legend entry, with their series number.
    pub(crate) fn series(&self) -> impl Iterator<Item = (usize, &Mark)> {
        self.marks.iter().filter(|m| m.name().is_some()).enumerate()
    }

    /// The description for screen readers.
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
