//! A [`Plot`] as SVG. Text and attributes are escaped by `maud`; colours and fonts come from the
//! stylesheet ([`crate::theme`]) by class, so that one page themes every plot.
//!
//! From the top: title, legend, y title, the field with its grid, marks, limits, tick labels, x title.

use maud::{Markup, PreEscaped, html};

use super::layout::{self, Labels, SAMPLE, TEXT_PX, TITLE_PX, shorten, text_width};
use super::scale::{Scale, Wish, thin};
use super::{Axis, Mark, Path, Plot};
use crate::text::clean;
use crate::theme;

/// Width of a plot that has the page to itself, in pixels.
pub(crate) const WIDE: f64 = 920.0;
/// Width of a plot beside another.
pub(crate) const HALF: f64 = 450.0;
const ROW: f64 = 18.0;

/// A pixel position for an attribute: one decimal is finer than a screen shows.
fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_string)
}

/// The field between the axes, and what stands on them.
struct Field<'a> {
    plot: &'a Plot,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    /// The numeric scales; none for an axis of categories.
    x: Option<Scale>,
    y: Option<Scale>,
}

impl Plot {
    /// The plot as an SVG document with its own stylesheet, light, dark and print.
    #[must_use]
    pub fn to_svg(&self) -> String {
        self.draw(WIDE, true).into_string()
    }

    /// The plot `width` pixels wide; `alone` carries the stylesheet that a page has already.
    pub(crate) fn draw(&self, width: f64, alone: bool) -> Markup {
        let plot = self.cleaned();
        let names: Vec<(usize, &str)> = plot
            .series()
            .filter_map(|(i, m)| m.name().map(|n| (i, n)))
            .filter(|(_, n)| !n.is_empty())
            .collect();
        let one = plot.series().count() == 1;
        // One series needs no legend: the title and the axis name it. A sole named line still does.
        let shows_legend = !names.is_empty() && !(one && plot.has_bars());
        let (entries, more) = layout::legend(if shows_legend { &names } else { &[] }, width);
        let titles = layout::lines(&plot.title, width, TITLE_PX, 2);

        let mut y = titles.len() as f64 * 20.0;
        let legend_top = y + 4.0;
        if let Some(last) = entries.last() {
            y = legend_top + (last.row + 1) as f64 * ROW;
        }
        let y_title_at = y + 18.0;
        let field = plot.field(width, y + if plot.y.title.is_empty() { 12.0 } else { 28.0 });
        let (x_axis, height) = field.x_axis(width);
        let y_unit = field.y.as_ref().map_or("", |s| s.title_unit.as_str());

        html! {
            svg xmlns="http://www.w3.org/2000/svg" class="fy-plot" role="img"
                aria-label=(plot.summary()) viewBox={ "0 0 " (px(width)) " " (px(height)) }
                width=(px(width)) height=(px(height)) {
                @if alone {
                    style { (PreEscaped(theme::svg_css())) }
                    (theme::hatches())
                    rect class="page" width="100%" height="100%" {}
                }
                @for (i, line) in titles.iter().enumerate() {
                    text class="title" x="0" y=(px(14.0 + 20.0 * i as f64)) { (line) }
                }
                @for entry in &entries {
                    (plot.legend_entry(entry, legend_top))
                }
                @if more > 0 {
                    text class="tick" text-anchor="end" x=(px(width))
                        y=(px(legend_top + 3.0 * ROW + 12.0)) { "+ " (more) " more" }
                }
                @if !plot.y.title.is_empty() {
                    text class="axis" x="0" y=(px(y_title_at)) { (with_unit(&plot.y.title, y_unit, width)) }
                }
                (field.grid())
                (field.bars())
                (field.lines())
                (field.limits())
                (field.y_labels())
                (x_axis)
                @if field.is_empty() {
                    text class="axis" text-anchor="middle" x=(px((field.left + field.right) / 2.0))
                        y=(px((field.top + field.bottom) / 2.0 + 4.0)) { "no data" }
                }
            }
        }
    }

    /// The plot with text that is safe for XML.
    fn cleaned(&self) -> Self {
        let mut plot = self.clone();
        for axis in [&mut plot.x, &mut plot.y] {
            axis.title = clean(&axis.title);
            if let super::Kind::Categories(names) = &mut axis.kind {
                for name in names {
                    *name = clean(name);
                }
            }
        }
        plot.title = clean(&plot.title);
        for mark in &mut plot.marks {
            match mark {
                Mark::Bars { name: text, .. }
                | Mark::Line { name: text, .. }
                | Mark::LimitX { label: text, .. }
                | Mark::LimitY { label: text, .. } => *text = clean(text),
            }
        }
        plot
    }

    pub(super) fn has_bars(&self) -> bool {
        self.marks.iter().any(|m| matches!(m, Mark::Bars { .. }))
    }

    /// Whether bars lie: the categories are on y and not on x.
    pub(super) fn is_lying(&self) -> bool {
        self.y.names().is_some() && self.x.names().is_none()
    }

    fn legend_entry(&self, entry: &layout::Entry, top: f64) -> Markup {
        let y = top + entry.row as f64 * ROW + 8.0;
        let series = theme::series(entry.series);
        let mark = self.series().nth(entry.series).map(|(_, m)| m);
        html! {
            g class=(series) {
                @match mark {
                    Some(Mark::Line { path: Path::Points, .. }) =>
                        (marker(entry.series, entry.x + 9.0, y, "")),
                    Some(Mark::Line { points, path, .. }) => {
                        line class={ "line" (marked(points.len(), *path)) } x1=(px(entry.x)) x2=(px(entry.x + 18.0))
                            y1=(px(y)) y2=(px(y)) {}
                        @if !marked(points.len(), *path).is_empty() {
                            (marker(entry.series, entry.x + 9.0, y, ""))
                        }
                    },
                    _ => rect class="bar" x=(px(entry.x + 4.0)) y=(px(y - 6.0)) width="12" height="12" rx="2" {},
                }
            }
            text class="tick" x=(px(entry.x + SAMPLE)) y=(px(y + 4.0)) { (entry.label) }
        }
    }

    /// Lays out the field under `top`.
    fn field(&self, width: f64, top: f64) -> Field<'_> {
        let lying = self.is_lying();
        let sets = self.marks.iter().filter(|m| matches!(m, Mark::Bars { .. })).count();
        let height = match self.y.names() {
            Some(names) => {
                let per =
                    if self.is_stacked || sets < 2 { 26.0 } else { sets as f64 * 13.0 + 10.0 };
                (names.len() as f64 * per).clamp(40.0, 2400.0)
            }
            None if width > HALF => 250.0,
            None => 210.0,
        };
        let bottom = top + height;
        let mut y = self.scale(&self.y, false, (height / 44.0) as usize);
        let mut x = self.scale(&self.x, true, (width / 100.0) as usize);
        let labels: Vec<&str> = match (&y, self.y.names()) {
            (Some(scale), _) => scale.ticks.iter().map(|t| t.1.as_str()).collect(),
            (None, names) => names.unwrap_or(&[]).iter().map(String::as_str).collect(),
        };
        let widest = labels.iter().map(|l| text_width(l, TEXT_PX)).fold(8.0, f64::max);
        let left = widest.min(width * 0.36) + 10.0;
        // Lying bars have their value behind them; any plot has half a tick label beyond its end.
        let right = if lying {
            let value = |v: f64| text_width(&self.x.unit().show(v), TEXT_PX) + 10.0;
            width - self.bar_values().map(value).fold(24.0, f64::max)
        } else {
            width - 24.0
        };
        if let Some(scale) = &mut x {
            scale.place(left, right);
        }
        if let Some(scale) = &mut y {
            scale.place(bottom, top);
        }
        Field { plot: self, left, right, top, bottom, x, y }
    }

    fn bar_values(&self) -> impl Iterator<Item = f64> {
        self.marks
            .iter()
            .filter_map(|m| if let Mark::Bars { values, .. } = m { Some(values) } else { None })
            .flatten()
            .copied()
    }

    fn scale(&self, axis: &Axis, is_x: bool, target: usize) -> Option<Scale> {
        if axis.names().is_some() {
            return None;
        }
        let is_value = !is_x || self.is_lying();
        Some(Scale::new(&Wish {
            unit: axis.unit(),
            is_log: axis.is_log(),
            data: self.extent(is_x, axis.is_log()),
            range: axis.range,
            rounds: is_value,
            ticks: &axis.ticks,
            target: target.max(2),
        }))
    }

    /// Smallest and largest drawable value along an axis, limits included.
    fn extent(&self, is_x: bool, is_log: bool) -> Option<(f64, f64)> {
        let mut values: Vec<f64> = Vec::new();
        let bars_here = is_x == self.is_lying();
        for mark in &self.marks {
            match mark {
                Mark::Bars { values: v, .. } if bars_here && !self.is_stacked => values.extend(v),
                Mark::Line { points, .. } => {
                    values.extend(points.iter().map(|p| if is_x { p.0 } else { p.1 }));
                }
                Mark::LimitX { at, .. } if is_x => values.push(*at),
                Mark::LimitY { at, .. } if !is_x => values.push(*at),
                _ => {}
            }
        }
        if bars_here && self.is_stacked {
            values.extend(self.stacks().into_iter().flatten().map(|s| s.1));
        }
        let usable = values.into_iter().filter(|v| v.is_finite() && (!is_log || *v > 0.0));
        usable.fold(None, |range, v| {
            range.map_or(Some((v, v)), |(lo, hi): (f64, f64)| Some((lo.min(v), hi.max(v))))
        })
    }

    /// From and to of every stacked bar, by set and category; what is not finite or negative is empty.
    fn stacks(&self) -> Vec<Vec<(f64, f64)>> {
        let mut tops: Vec<f64> = Vec::new();
        let mut out = Vec::new();
        for mark in &self.marks {
            let Mark::Bars { values, .. } = mark else { continue };
            tops.resize(tops.len().max(values.len()), 0.0);
            let set = values.iter().zip(&mut tops).map(|(v, top)| {
                let from = *top;
                *top += if v.is_finite() { v.max(0.0) } else { 0.0 };
                (from, *top)
            });
            out.push(set.collect());
        }
        out
    }
}

fn with_unit(title: &str, unit: &str, room: f64) -> String {
    let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
    format!("{}{unit}", shorten(title, room - text_width(&unit, TEXT_PX), TEXT_PX))
}

/// The class of lines that are short enough to show their points.
fn marked(points: usize, path: Path) -> &'static str {
    if path != Path::Steps && points <= 32 { " marked" } else { "" }
}

/// A mark on a point: its shape tells the series apart without colour.
fn marker(series: usize, x: f64, y: f64, title: &str) -> Markup {
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

impl Field<'_> {
    fn is_empty(&self) -> bool {
        !self.plot.marks.iter().any(|m| match m {
            Mark::Bars { values, .. } => values.iter().any(|v| v.is_finite()),
            Mark::Line { points, .. } => points.iter().any(|p| self.at(*p).is_some()),
            _ => false,
        })
    }

    fn at(&self, point: (f64, f64)) -> Option<(f64, f64)> {
        Some((self.x.as_ref()?.at(point.0)?, self.y.as_ref()?.at(point.1)?))
    }

    fn grid(&self) -> Markup {
        let across = |v: &f64, class: &str| {
            self.y.as_ref().and_then(|s| s.at(*v)).map(|y| html! {
            line class=(class) x1=(px(self.left)) x2=(px(self.right)) y1=(px(y)) y2=(px(y)) {}
        })
        };
        let up = |v: &f64, class: &str| {
            self.x.as_ref().and_then(|s| s.at(*v)).map(|x| html! {
            line class=(class) x1=(px(x)) x2=(px(x)) y1=(px(self.top)) y2=(px(self.bottom)) {}
        })
        };
        html! {
            @if let Some(y) = &self.y {
                @for v in &y.minor { @if let Some(line) = across(v, "minor") { (line) } }
                @for (v, _) in &y.ticks { @if let Some(line) = across(v, "grid") { (line) } }
            }
            @if let Some(x) = &self.x {
                @for v in &x.minor { @if let Some(line) = up(v, "minor") { (line) } }
                @for (v, _) in &x.ticks { @if let Some(line) = up(v, "grid") { (line) } }
            }
            @if self.plot.is_lying() {
                line class="base" x1=(px(self.left)) x2=(px(self.left)) y1=(px(self.top)) y2=(px(self.bottom)) {}
            } @else {
                @let y = self.y.as_ref().map_or(self.bottom, Scale::base);
                line class="base" x1=(px(self.left)) x2=(px(self.right)) y1=(px(y)) y2=(px(y)) {}
            }
        }
    }

    fn bars(&self) -> Markup {
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
                            rect class="bar" x=(px(x)) y=(px(y)) width=(px(w)) height=(px(h))
                                rx=(if thick > 8.0 && !self.plot.is_stacked { "1.5" } else { "0" }) {
                                title { (tip(set, &axis.title, name)) ": " (show(value)) }
                            }
                        }
                        @if labelled && values.len() > c {
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

    fn lines(&self) -> Markup {
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
            let (x, y) = (self.plot.x.unit().show(p.0), self.plot.y.unit().show(p.1));
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
                // A cloud of more points than pixels is only weight.
                @let every = points.len().div_ceil(4000).max(1);
                @for (point, at) in points.iter().zip(&placed).step_by(every) {
                    @if let Some((x, y)) = at { (marker(series, *x, *y, &tip(point))) }
                }
            } @else {
                // A point between two gaps has no line to be seen by.
                @for run in &runs {
                    @if let [(x, y)] = run[..] { (marker(series, x, y, name)) }
                }
            }
        }
    }

    fn limits(&self) -> Markup {
        let across: Vec<(f64, &str)> = self.limit_places(false);
        let up: Vec<(f64, &str)> = self.limit_places(true);
        // Above the line; under it where the line is at the top.
        let wanted: Vec<f64> = across
            .iter()
            .map(|(y, _)| if y - 14.0 < self.top { y + 14.0 } else { y - 5.0 })
            .collect();
        let rows = layout::spread(&wanted, 14.0, self.top + 9.0, self.bottom - 3.0);
        html! {
            @for ((y, label), text_y) in across.iter().zip(&rows) {
                line class="limit" x1=(px(self.left)) x2=(px(self.right)) y1=(px(*y)) y2=(px(*y)) {}
                text class="limit" text-anchor="end" x=(px(self.right - 4.0)) y=(px(*text_y)) {
                    (shorten(label, self.right - self.left - 8.0, TEXT_PX))
                }
            }
            @for (i, (x, label)) in up.iter().enumerate() {
                @let label = shorten(label, (self.right - self.left) * 0.6, TEXT_PX);
                @let to_left = x + text_width(&label, TEXT_PX) + 6.0 > self.right;
                line class="limit" x1=(px(*x)) x2=(px(*x)) y1=(px(self.top)) y2=(px(self.bottom)) {}
                text class="limit" text-anchor=(if to_left { "end" } else { "start" })
                    x=(px(if to_left { x - 5.0 } else { x + 5.0 })) y=(px(self.top + 11.0 + 15.0 * i as f64)) { (label) }
            }
        }
    }

    fn limit_places(&self, is_x: bool) -> Vec<(f64, &str)> {
        let scale = if is_x { self.x.as_ref() } else { self.y.as_ref() };
        let place = |m| match m {
            &Mark::LimitX { at, ref label } if is_x => Some((scale?.at(at)?, label.as_str())),
            &Mark::LimitY { at, ref label } if !is_x => Some((scale?.at(at)?, label.as_str())),
            _ => None,
        };
        self.plot.marks.iter().filter_map(place).collect()
    }

    fn y_labels(&self) -> Markup {
        let room = self.left - 8.0;
        let labels: Vec<(f64, String)> = match (&self.y, self.plot.y.names()) {
            (Some(scale), _) => {
                scale.ticks.iter().filter_map(|(v, l)| Some((scale.at(*v)?, l.clone()))).collect()
            }
            (None, names) => {
                let names = names.unwrap_or(&[]);
                let slot = (self.bottom - self.top) / names.len().max(1) as f64;
                let every = (13.0 / slot).ceil().max(1.0) as usize;
                let place = |(i, name): (usize, &String)| {
                    (self.top + slot * (i as f64 + 0.5), shorten(name, room, TEXT_PX))
                };
                names.iter().enumerate().step_by(every).map(place).collect()
            }
        };
        let mut last = f64::INFINITY;
        html! {
            @for (y, label) in &labels {
                @if (y - last).abs() > 11.0 {
                    @let _ = last = *y;
                    text class="tick" text-anchor="end" x=(px(self.left - 7.0)) y=(px(y + 4.0)) { (label) }
                }
            }
        }
    }

    /// Tick labels and title under the field, and the height of the whole.
    fn x_axis(&self, width: f64) -> (Markup, f64) {
        let mut under = 18.0;
        let labels = if let Some(scale) = &self.x {
            let mut last = f64::NEG_INFINITY;
            html! {
                @for (value, label) in &scale.ticks {
                    @let x = scale.at(*value).unwrap_or(self.left);
                    @let half = text_width(label, TEXT_PX) / 2.0;
                    // A label that would touch the one before is left out; its grid line stays.
                    @if x - half > last + 6.0 && x + half <= width {
                        @let _ = last = x + half;
                        text class="tick" text-anchor="middle" x=(px(x)) y=(px(self.bottom + 17.0)) { (label) }
                    }
                }
            }
        } else {
            let names = self.plot.x.names().unwrap_or(&[]);
            let slot = (self.right - self.left) / names.len().max(1) as f64;
            let middle = |i: usize| self.left + slot * (i as f64 + 0.5);
            match layout::category_labels(names, slot) {
                Labels::Every(every) => html! {
                    @for (i, name) in names.iter().enumerate().step_by(every) {
                        text class="tick" text-anchor="middle" x=(px(middle(i))) y=(px(self.bottom + 17.0)) { (name) }
                    }
                },
                Labels::Turned(every, room) => {
                    under = room * 0.58 + 22.0;
                    html! {
                        @for (i, name) in names.iter().enumerate().step_by(every) {
                            @let (x, y) = (middle(i) + 3.0, self.bottom + 14.0);
                            // Turned by 35 degrees; labels near the left edge have less room.
                            @let room = room.min((x / 0.82).max(20.0));
                            text class="tick" text-anchor="end" x=(px(x)) y=(px(y))
                                transform={ "rotate(-35 " (px(x)) " " (px(y)) ")" } { (shorten(name, room, TEXT_PX)) }
                        }
                    }
                }
            }
        };
        let unit = self.x.as_ref().map_or("", |s| s.title_unit.as_str());
        let title = with_unit(&self.plot.x.title, unit, self.right - self.left);
        let has_title = !self.plot.x.title.is_empty();
        let title_at = self.bottom + under + 18.0;
        let markup = html! {
            (labels)
            @if has_title {
                text class="axis" text-anchor="middle" x=(px((self.left + self.right) / 2.0)) y=(px(title_at)) { (title) }
            }
        };
        (markup, if has_title { title_at + 6.0 } else { self.bottom + under + 4.0 })
    }
}

fn tip(set: &str, axis: &str, name: &str) -> String {
    let place =
        if axis.is_empty() || axis == name { name.to_string() } else { format!("{axis} {name}") };
    if set.is_empty() { place } else { format!("{set}, {place}") }
}

/// Start and length of a bar; what is not zero is at least a pixel long.
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
