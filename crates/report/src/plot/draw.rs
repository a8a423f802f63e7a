//! A [`Plot`] as SVG. Text and attributes are escaped by `maud`. Colours and fonts come from the
//! stylesheet ([`crate::theme`]) by class, so that one stylesheet applies to all plots of a page.
//!
//! The parts from the top: title, legend, y title, the field with its grid, marks and limits, tick labels,
//! x title.

use maud::{Markup, PreEscaped, html};

use super::field::{Field, with_unit};
use super::layout::{self, SAMPLE, TEXT_PX, TITLE_PX, text_width};
use super::marks::{marked, marker};
use super::model::{Axis, Kind, Mark, Path, Plot};
use super::scale::{Scale, Wish, px};
use crate::text::clean;
use crate::theme;

/// The width of a plot that has the full page width, in pixels.
pub(crate) const WIDE: f64 = 920.0;
/// The width of a plot beside another plot, in pixels.
pub(crate) const HALF: f64 = 450.0;
const ROW: f64 = 18.0;

impl Plot {
    /// The plot as an SVG document with its own stylesheet, light, dark and print.
    #[must_use]
    pub fn to_svg(&self) -> String {
        self.draw(WIDE, true).into_string()
    }

    /// The plot, `width` pixels wide; `alone` includes the stylesheet, which a page already has.
    pub(crate) fn draw(&self, width: f64, alone: bool) -> Markup {
        let plot = self.cleaned();
        let names: Vec<(usize, &str)> = plot
            .series()
            .filter_map(|(i, m)| m.name().map(|n| (i, n)))
            .filter(|(_, n)| !n.is_empty())
            .collect();
        let one = plot.series().count() == 1;
        // A single set of bars needs no legend, because the title and the axis name it. A single line does.
        let shows_legend = !(names.is_empty() || one && plot.has_bars());
        let (entries, more) = layout::legend(if shows_legend { &names } else { &[] }, width);
        let titles = layout::lines(&plot.title, width, TITLE_PX, 2);

        let mut y = titles.len() as f64 * 20.0;
        let legend_top = y + 4.0;
        if let Some(last) = entries.last() {
            y = legend_top + (last.row + 1) as f64 * ROW;
        }
        let y_title_at = y + 18.0;
        let field = plot.field(width, y + if plot.y.title.is_empty() { 12.0 } else { 34.0 });
        let (x_axis, height) = field.x_axis(width);
        let y_unit = field.y.as_ref().map_or("", |s| s.title_unit.as_str());

        let edge = if alone { 16.0 } else { 0.0 }; // a page has its own margins

        html! {
            svg xmlns="http://www.w3.org/2000/svg" class={ "fy-plot" @if width > HALF { " wide" } } role="img"
                aria-label=(plot.summary()) viewBox={ (px(-edge)) " " (px(-edge)) " " (px(width + 2.0 * edge)) " " (px(height + 2.0 * edge)) }
                width=(px(width + 2.0 * edge)) height=(px(height + 2.0 * edge)) {
                @if alone {
                    style { (PreEscaped(theme::svg_css())) }
                    (theme::hatches())
                    rect class="page" x=(px(-edge)) y=(px(-edge)) width="100%" height="100%" {}
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
            if let Kind::Categories(names) = &mut axis.kind {
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

    /// Whether bars are horizontal: the categories are on y and not on x.
    pub(super) fn is_lying(&self) -> bool {
        self.y.names().is_some() && self.x.names().is_none()
    }

    fn legend_entry(&self, entry: &layout::Entry, top: f64) -> Markup {
        let y = top + entry.row as f64 * ROW + 8.0;
        let series = theme::series(entry.series);
        let mark = self.series().nth(entry.series).map(|(_, m)| m);
        let sample = if matches!(mark, Some(Mark::Bars { .. })) { 18.0 } else { SAMPLE };
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
                    _ => rect class="bar" x=(px(entry.x)) y=(px(y - 6.0)) width="12" height="12" rx="2" {},
                }
            }
            text class="tick" x=(px(entry.x + sample)) y=(px(y + 4.0)) { (entry.label) }
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
        let mut y = self.scale(&self.y, false, (height / 36.0) as usize);
        let mut x = self.scale(&self.x, true, (width / 75.0) as usize);
        let labels: Vec<&str> = match (&y, self.y.names()) {
            (Some(scale), _) => scale.ticks.iter().map(|t| t.1.as_str()).collect(),
            (None, names) => names.unwrap_or(&[]).iter().map(String::as_str).collect(),
        };
        let widest = labels.iter().map(|l| text_width(l, TEXT_PX)).fold(8.0, f64::max);
        let left = widest.min(width * 0.36) + 10.0;
        // Horizontal bars have their value behind them, and limits their label; half of the last tick
        // label extends beyond the end.
        let value = |v: f64| text_width(&self.x.unit().show(v), TEXT_PX) + 10.0;
        let values = self.bar_values().filter(|_| lying).map(value);
        let limit = |m: &Mark| match m {
            Mark::LimitY { label, .. } => text_width(label, TEXT_PX).min(width * 0.25) + 8.0,
            _ => 0.0,
        };
        let right = width - values.chain(self.marks.iter().map(limit)).fold(24.0, f64::max);
        if let Some(scale) = &mut x {
            scale.place(left, right);
        }
        if let Some(scale) = &mut y {
            scale.place(bottom, top);
        }
        Field { plot: self, width, left, right, top, bottom, x, y }
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

    /// The smallest and largest drawable value along an axis, including limits.
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

    /// The start and end of every stacked bar, by set and category; a bar that is negative or not finite is
    /// empty.
    pub(super) fn stacks(&self) -> Vec<Vec<(f64, f64)>> {
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
