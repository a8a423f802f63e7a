//! The marks in the field: bars, lines, points.

use maud::{Markup, html};

use super::field::Field;
use super::layout::{TEXT_PX, text_width};
use super::model::{Mark, Path};
use super::scale::{px, thin};
use crate::theme;

impl Field<'_> {
    pub(super) fn bars(&self) -> Markup {
        let lying = self.plot.is_lying();
        let (axis, values_axis, names, scale) = if lying {
            (&self.plot.y, &self.plot.x, self.plot.y.names(), self.x.as_ref())
        } else {
            (&self.plot.x, &self.plot.y, self.plot.x.names(), self.y.as_ref())
        };
        let (Some(names), Some(scale)) = (names, scale) else { return html! {} };
        let sets: Vec<(usize, &str, &[f64])> = self
            .plot
            .series()
            .filter_map(|(i, m)| match m {
                Mark::Bars { name, values } => Some((i, name.as_str(), values.as_slice())),
                _ => None,
            })
            .collect();
        if sets.is_empty() || names.is_empty() {
            return html! {};
        }
        let stacks = if self.plot.is_stacked { self.plot.stacks() } else { Vec::new() };
        let (start, end) = if lying { (self.top, self.bottom) } else { (self.left, self.right) };
        let slot = (end - start) / names.len() as f64;
        let beside = if self.plot.is_stacked { 1 } else { sets.len() };
        let band = (slot * 0.78).min(if lying { 40.0 } else { 64.0 } * beside as f64);
        let thick = band / beside as f64;
        let gap = if thick > 6.0 { 1.0 } else { 0.0 };
        let unit = values_axis.unit();
        let show = |v: f64| unit.show(v);
        let widest = sets
            .iter()
            .flat_map(|s| s.2)
            .map(|v| text_width(&show(*v), TEXT_PX))
            .fold(0.0, f64::max);
        let labelled =
            !self.plot.is_stacked && if lying { thick > 11.0 } else { widest + 4.0 < thick };
        html! {
            @for (k, (series, set, values)) in sets.iter().enumerate() {
                g class=(theme::series(*series)) {
                    @for (c, name) in names.iter().enumerate() {
                        @let value = values.get(c).copied().unwrap_or(f64::NAN);
                        @let at = start + slot * c as f64 + (slot - band) / 2.0
                            + if self.plot.is_stacked { 0.0 } else { thick * k as f64 };
                        @let (from, to) = match stacks.get(k).and_then(|s| s.get(c)) {
                            Some((from, to)) => (scale.at(*from).unwrap_or(scale.base()), scale.at(*to)),
                            None => (scale.base(), scale.at(value)),
                        };
                        @if let Some(to) = to.filter(|_| value.is_finite()) {
                            @let (low, size) = sized(from, to, value != 0.0);
                            @let (x, y, w, h) = if lying { (low, at, size, thick - gap) }
                                else { (at, low, thick - gap, size) };
                            rect class={ "bar" @if thick < 6.0 { " thin" } } x=(px(x)) y=(px(y)) width=(px(w)) height=(px(h))
                                rx=(if thick > 8.0 && !self.plot.is_stacked { "1.5" } else { "0" }) {
                                title { (tip(set, &axis.title, name)) ": " (show(value)) }
                            }
                        }
                        // A value that cannot be drawn as a bar is printed instead.
                        @let is_missing = !value.is_finite() && !self.plot.is_stacked && thick > 22.0;
                        @if (labelled || is_missing) && values.len() > c {
                            @let to = to.unwrap_or(from);
                            @let middle = at + (thick - gap) / 2.0;
                            @if lying {
                                text class="value" x=(px(to.max(from) + 6.0)) y=(px(middle + 4.0)) { (show(value)) }
                            } @else {
                                text class="value" text-anchor="middle" x=(px(middle))
                                    y=(px(to.min(from) - 4.0)) { (show(value)) }
                            }
                        }
                    }
                }
            }
        }
    }

    pub(super) fn lines(&self) -> Markup {
        html! {
            @for (series, mark) in self.plot.series() {
                @if let Mark::Line { name, points, path } = mark {
                    g class=(theme::series(series)) {
                        (self.line(series, name, points, *path))
                    }
                }
            }
        }
    }

    fn line(&self, series: usize, name: &str, points: &[(f64, f64)], path: Path) -> Markup {
        let placed: Vec<Option<(f64, f64)>> = points.iter().map(|p| self.at(*p)).collect();
        let runs: Vec<Vec<(f64, f64)>> = placed
            .split(Option::is_none)
            .filter(|run| !run.is_empty())
            .map(|run| run.iter().flatten().copied().collect())
            .collect();
        let class = marked(points.len(), path);
        let tips = path == Path::Points || !class.is_empty();
        let tip = |p: &(f64, f64)| {
            let (x, y) = (self.plot.x.show(p.0), self.plot.y.show(p.1));
            if name.is_empty() { format!("{x}: {y}") } else { format!("{name}, {x}: {y}") }
        };
        html! {
            @if path != Path::Points {
                @for run in &runs {
                    path class={ "line" (class) } d=(path_of(&thin(run), path)) {
                        @if !tips && !name.is_empty() { title { (name) } }
                    }
                }
            }
            @if tips {
                // More points than pixels would only enlarge the file.
                @let every = points.len().div_ceil(4000).max(1);
                @for (point, at) in points.iter().zip(&placed).step_by(every) {
                    @if let Some((x, y)) = at { (marker(series, *x, *y, &tip(point))) }
                }
            } @else {
                // A point between two gaps has no line, so it needs a marker.
                @for run in &runs {
                    @if let [(x, y)] = run[..] { (marker(series, x, y, name)) }
                }
            }
        }
    }
}

/// The class of lines that have few enough points to mark each.
pub(super) fn marked(points: usize, path: Path) -> &'static str {
    if path != Path::Steps && points <= 32 { " marked" } else { "" }
}

/// A marker on a point; its shape distinguishes the series without colour.
pub(super) fn marker(series: usize, x: f64, y: f64, title: &str) -> Markup {
    let at = |dx: f64, dy: f64| format!("{} {}", px(x + dx), px(y + dy));
    let path = match series % 5 {
        0 => None,
        1 => Some(format!("M{}H{}V{}H{}Z", at(-3.2, -3.2), px(x + 3.2), px(y + 3.2), px(x - 3.2))),
        2 => Some(format!("M{}L{}L{}Z", at(0.0, -4.4), at(4.2, 3.2), at(-4.2, 3.2))),
        3 => {
            Some(format!("M{}L{}L{}L{}Z", at(0.0, -4.6), at(4.6, 0.0), at(0.0, 4.6), at(-4.6, 0.0)))
        }
        _ => Some(format!("M{}L{}L{}Z", at(0.0, 4.4), at(4.2, -3.2), at(-4.2, -3.2))),
    };
    html! {
        @if let Some(path) = path {
            path class="mark" d=(path) { @if !title.is_empty() { title { (title) } } }
        } @else {
            circle class="mark" cx=(px(x)) cy=(px(y)) r="3.6" { @if !title.is_empty() { title { (title) } } }
        }
    }
}

fn tip(set: &str, axis: &str, name: &str) -> String {
    let place =
        if axis.is_empty() || axis == name { name.to_string() } else { format!("{axis} {name}") };
    if set.is_empty() { place } else { format!("{set}, {place}") }
}

/// The start and length of a bar; a value that is not zero has at least one pixel.
fn sized(from: f64, to: f64, is_some: bool) -> (f64, f64) {
    let size = (to - from).abs();
    let least = if is_some { 1.0 } else { 0.0 };
    if size >= least {
        return (from.min(to), size);
    }
    if to < from || (to == from && from > 0.0) { (from - least, least) } else { (from, least) }
}

fn path_of(points: &[(f64, f64)], path: Path) -> String {
    let mut out = String::new();
    for (i, (x, y)) in points.iter().enumerate() {
        match (i, path) {
            (0, _) => out.push_str(&format!("M{} {}", px(*x), px(*y))),
            (_, Path::Steps) => out.push_str(&format!("H{}V{}", px(*x), px(*y))),
            _ => out.push_str(&format!("L{} {}", px(*x), px(*y))),
        }
    }
    out
}
