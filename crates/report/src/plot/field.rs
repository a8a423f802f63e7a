//! The field between the axes: grid, limits, tick labels, axis titles.

use maud::{Markup, html};

use super::layout::{self, Labels, TEXT_PX, shorten, text_width};
use super::model::{Axis, Mark, Plot};
use super::scale::{Scale, px};

/// The field between the axes, and the labels on them.
pub(super) struct Field<'a> {
    pub(super) plot: &'a Plot,
    pub(super) width: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
    /// The numeric scales; `None` for an axis of categories.
    pub(super) x: Option<Scale>,
    pub(super) y: Option<Scale>,
}

impl Field<'_> {
    pub(super) fn is_empty(&self) -> bool {
        !self.plot.marks.iter().any(|m| match m {
            Mark::Bars { values, .. } => values.iter().any(|v| v.is_finite()),
            Mark::Line { points, .. } => points.iter().any(|p| self.at(*p).is_some()),
            _ => false,
        })
    }

    /// The pixel of a point. On an axis of categories, a number is the index of a category.
    pub(super) fn at(&self, point: (f64, f64)) -> Option<(f64, f64)> {
        let place = |scale: &Option<Scale>, axis: &Axis, value: f64, start: f64, end: f64| {
            if let Some(scale) = scale {
                return scale.at(value);
            }
            let count = axis.names().map_or(0, <[String]>::len) as f64;
            let is_inside = value >= -0.5 && value <= count - 0.5;
            is_inside.then(|| start + (end - start) * (value + 0.5) / count)
        };
        let x = place(&self.x, &self.plot.x, point.0, self.left, self.right)?;
        Some((x, place(&self.y, &self.plot.y, point.1, self.top, self.bottom)?))
    }

    pub(super) fn grid(&self) -> Markup {
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

    pub(super) fn limits(&self) -> Markup {
        let across: Vec<(f64, &str)> = self.limit_places(false);
        let up: Vec<(f64, &str)> = self.limit_places(true);
        // Labels are beside the field, where nothing is drawn over them, and moved apart if they overlap.
        let wanted: Vec<f64> = across.iter().map(|(y, _)| y + 4.0).collect();
        let rows = layout::spread(&wanted, 14.0, self.top + 4.0, self.bottom + 2.0);
        html! {
            @for ((y, label), text_y) in across.iter().zip(&rows) {
                line class="limit" x1=(px(self.left)) x2=(px(self.right + 3.0)) y1=(px(*y)) y2=(px(*y)) {}
                text class="limit" x=(px(self.right + 7.0)) y=(px(*text_y)) {
                    (shorten(label, self.width * 0.25, TEXT_PX))
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
        let mut places = Vec::new();
        for mark in &self.plot.marks {
            let ((Mark::LimitX { at, label }, true) | (Mark::LimitY { at, label }, false)) =
                (mark, is_x)
            else {
                continue;
            };
            if let Some(at) = scale.and_then(|s| s.at(*at)) {
                places.push((at, label.as_str()));
            }
        }
        places
    }

    pub(super) fn y_labels(&self) -> Markup {
        let space = self.left - 8.0;
        let labels: Vec<(f64, String)> = match (&self.y, self.plot.y.names()) {
            (Some(scale), _) => {
                scale.ticks.iter().filter_map(|(v, l)| Some((scale.at(*v)?, l.clone()))).collect()
            }
            (None, names) => {
                let names = names.unwrap_or(&[]);
                let slot = (self.bottom - self.top) / names.len().max(1) as f64;
                let every = (13.0 / slot).ceil().max(1.0) as usize;
                let place = |(i, name): (usize, &String)| {
                    (self.top + slot * (i as f64 + 0.5), shorten(name, space, TEXT_PX))
                };
                names.iter().enumerate().step_by(every).map(place).collect()
            }
        };
        let mut last = f64::INFINITY;
        let is_apart = |(y, _): &&(f64, String)| {
            let is_apart = (y - last).abs() > 11.0;
            last = if is_apart { *y } else { last };
            is_apart
        };
        let labels: Vec<_> = labels.iter().filter(is_apart).collect();
        html! {
            @for (y, label) in labels {
                text class="tick" text-anchor="end" x=(px(self.left - 7.0)) y=(px(y + 4.0)) { (label) }
            }
        }
    }

    /// The tick labels and the title under the field, and the height of the whole plot.
    pub(super) fn x_axis(&self, width: f64) -> (Markup, f64) {
        let mut under = 18.0;
        let labels = if let Some(scale) = &self.x {
            let mut last = f64::NEG_INFINITY;
            // A label that would touch the one before is omitted; its grid line is drawn.
            let place = |(value, label): &(f64, String)| {
                let x = scale.at(*value)?;
                let half = text_width(label, TEXT_PX) / 2.0;
                if x - half <= last + 6.0 || x + half > width {
                    return None;
                }
                last = x + half;
                Some((x, label.clone()))
            };
            let labels: Vec<_> = scale.ticks.iter().filter_map(place).collect();
            html! {
                @for (x, label) in &labels {
                    text class="tick" text-anchor="middle" x=(px(*x)) y=(px(self.bottom + 17.0)) { (label) }
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
                    // Turned by 35 degrees; labels near the left edge have less space.
                    let short = |(i, name): (usize, &String)| {
                        let x = middle(i) + 3.0;
                        (x, shorten(name, room.min((x - 8.0) / 0.82), TEXT_PX))
                    };
                    let labels: Vec<_> =
                        names.iter().enumerate().step_by(every).map(short).collect();
                    let longest =
                        labels.iter().map(|l| text_width(&l.1, TEXT_PX)).fold(0.0, f64::max);
                    under = longest * 0.574 + 16.0;
                    let y = px(self.bottom + 14.0);
                    html! {
                        @for (x, label) in &labels {
                            text class="tick" text-anchor="end" x=(px(*x)) y=(y)
                                transform={ "rotate(-35 " (px(*x)) " " (y) ")" } { (label) }
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

pub(super) fn with_unit(title: &str, unit: &str, room: f64) -> String {
    let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
    format!("{}{unit}", shorten(title, room - text_width(&unit, TEXT_PX), TEXT_PX))
}
