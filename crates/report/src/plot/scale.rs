//! From values to pixels: ranges, round ticks, labels; and thinning of long series.
//!
//! Linear ticks are at 1, 2 or 5 times a power of ten *in the unit that is shown* (GiB, ms, %).
//! Log ticks are at powers of ten, with 2 and 5 between them if the range is short.
//! Any value is accepted: one that is not finite has no place, one outside the range is placed at its edge.

use crate::num::Unit;

/// Larger values count as infinite, so that sums and spans of the others cannot overflow.
const HUGE: f64 = 1e300;

/// A range that is safe to divide by: finite, `lo < hi`, and wide enough for distinct ticks.
pub(crate) fn widen(lo: f64, hi: f64) -> (f64, f64) {
    let fix = |v: f64| if v.is_finite() { v.clamp(-HUGE, HUGE) } else { 0.0 };
    let (lo, hi) = (fix(lo), fix(hi));
    let (lo, hi) = if lo <= hi { (lo, hi) } else { (hi, lo) };
    let size = lo.abs().max(hi.abs());
    if hi - lo > size * 1e-9 && hi - lo > 1e-300 {
        return (lo, hi);
    }
    match size {
        s if s <= 1e-290 => (0.0, 1.0),
        s => (lo - s * 0.1, hi + s * 0.1),
    }
}

/// The step of about `target` ticks over `span`: 1, 2 or 5 times a power of ten.
pub(crate) fn nice_step(span: f64, target: usize) -> f64 {
    let rough = span / target.max(1) as f64;
    let power = 10f64.powi(rough.log10().floor() as i32);
    let step = match rough / power {
        r if r <= 1.0 => 1.0,
        r if r <= 2.0 => 2.0,
        r if r <= 5.0 => 5.0,
        _ => 10.0,
    };
    let nice = step * power;
    if nice.is_finite() && nice > 0.0 { nice } else { span.max(f64::MIN_POSITIVE) }
}

/// The multiples of `step` in `lo..=hi`, in order; never more than 200.
pub(crate) fn multiples(lo: f64, hi: f64, step: f64) -> Vec<f64> {
    let slack = step * 1e-6;
    let first = ((lo - slack) / step).ceil();
    let at = |i: usize| (first + i as f64) * step;
    (0..200)
        .map(at)
        .take_while(|v| *v <= hi + slack)
        .map(|v| if v == 0.0 { 0.0 } else { v })
        .collect()
}

/// The ticks of a log axis: powers of ten, with 2 and 5 times these if there are few, thinned if there are
/// many.
pub(crate) fn log_ticks(lo: f64, hi: f64, target: usize) -> Vec<f64> {
    let (first, last) = (lo.log10().floor() as i32, hi.log10().ceil() as i32);
    let decades = (last - first).max(1) as usize;
    let every = decades.div_ceil(target.max(1)).max(1);
    let parts: &[f64] = if hi / lo < 200.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let inside = |v: &f64| *v >= lo * (1.0 - 1e-9) && *v <= hi * (1.0 + 1e-9);
    (first..=last)
        .step_by(every)
        .flat_map(|p| parts.iter().map(move |m| m * 10f64.powi(p)))
        .filter(inside)
        .collect()
}

/// The unlabelled grid lines of a log axis of at most five decades: 2 to 9 times each power of ten.
pub(crate) fn log_minor(lo: f64, hi: f64) -> Vec<f64> {
    let (first, last) = (lo.log10().floor() as i32, hi.log10().ceil() as i32);
    if last - first > 5 {
        return Vec::new();
    }
    (first..last)
        .flat_map(|p| (2..10).map(move |m| f64::from(m) * 10f64.powi(p)))
        .filter(|v| *v > lo && *v < hi)
        .collect()
}

/// A pixel position for an attribute. One decimal is finer than a screen shows.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = if text == "-0.0" { "0" } else { text.strip_suffix(".0").unwrap_or(&text) };
    text.to_string()
}

/// A numeric axis between two pixel positions.
#[derive(Debug)]
pub(crate) struct Scale {
    lo: f64,
    hi: f64,
    is_log: bool,
    from: f64,
    to: f64,
    /// The values and labels, in order.
    pub(crate) ticks: Vec<(f64, String)>,
    /// The values of the faint grid lines.
    pub(crate) minor: Vec<f64>,
    /// The unit in the axis title; empty if the ticks have it.
    pub(crate) title_unit: String,
}

/// The requirements of a [`Scale`].
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) unit: Unit,
    pub(crate) is_log: bool,
    /// The smallest and largest value of the data; `None` if there is none.
    pub(crate) data: Option<(f64, f64)>,
    /// The ends that the caller fixed.
    pub(crate) range: (Option<f64>, Option<f64>),
    /// Whether a linear range starts at zero and ends at a tick.
    pub(crate) rounds: bool,
    /// The ticks that the caller fixed; empty for round ones.
    pub(crate) ticks: &'a [f64],
    /// About how many ticks fit.
    pub(crate) target: usize,
}

impl Scale {
    /// Chooses range and ticks; [`Scale::place`] sets the pixels.
    pub(crate) fn new(wish: &Wish<'_>) -> Self {
        if wish.is_log { Self::log(wish) } else { Self::linear(wish) }
    }

    fn linear(wish: &Wish<'_>) -> Self {
        let (mut lo, mut hi) = wish.data.unwrap_or((0.0, 1.0));
        if wish.rounds {
            (lo, hi) = (lo.min(0.0), hi.max(0.0));
        }
        let (lo, hi) = widen(wish.range.0.unwrap_or(lo), wish.range.1.unwrap_or(hi));
        let shown = wish.unit.axis(lo.abs().max(hi.abs()));
        let divisor = shown.divisor;
        let mut step = nice_step((hi - lo) / divisor, wish.target);
        if wish.unit == Unit::Count && divisor == 1.0 {
            step = step.max(1.0); // a count has no fractions
        }
        let (mut lo, mut hi) = (lo / divisor, hi / divisor);
        if wish.rounds && wish.range.1.is_none() {
            hi = (hi / step - 1e-9).ceil() * step;
        }
        if wish.rounds && wish.range.0.is_none() {
            lo = (lo / step + 1e-9).floor() * step;
        }
        if lo >= hi {
            hi = lo + step; // the range was so small that rounding removed it
        }
        let label = |v: f64| {
            let number = tick_number(v, step);
            // Zero of a count is "0", not "0 k".
            let is_zero = v == 0.0 && wish.unit == Unit::Count;
            if is_zero { "0".to_string() } else { format!("{number}{}", shown.tick_suffix) }
        };
        let values: Vec<f64> = if wish.ticks.is_empty() {
            multiples(lo, hi, step)
        } else {
            wish.ticks.iter().map(|v| v / divisor).filter(|v| *v >= lo && *v <= hi).collect()
        };
        let own = |v: f64| wish.unit.show(v * divisor);
        let ticks = values
            .into_iter()
            .map(|v| {
                let is_own = !wish.ticks.is_empty() && (v / step).fract().abs() > 1e-9;
                let text = if is_own && divisor == 1.0 { bare(&own(v)) } else { label(v) };
                (v * divisor, text)
            })
            .collect();
        Self {
            lo: lo * divisor,
            hi: hi * divisor,
            is_log: false,
            from: 0.0,
            to: 1.0,
            ticks,
            minor: Vec::new(),
            title_unit: shown.title_unit,
        }
    }

    fn log(wish: &Wish<'_>) -> Self {
        let usable = |v: &f64| v.is_finite() && *v > 0.0;
        let (lo, hi) = wish.data.unwrap_or((1.0, 10.0));
        let lo = wish.range.0.filter(usable).unwrap_or(lo).clamp(1e-300, HUGE);
        let hi = wish.range.1.filter(usable).unwrap_or(hi).clamp(1e-300, HUGE);
        let (mut lo, mut hi) = if lo <= hi { (lo, hi) } else { (hi, lo) };
        if hi / lo < 1.000_1 {
            (lo, hi) = (lo / 3.0, hi * 3.0);
        }
        if wish.rounds {
            let floor = |v: f64| 10f64.powf((v.log10() + 1e-9).floor());
            lo = wish.range.0.map_or_else(|| floor(lo), |_| lo);
            hi = wish.range.1.map_or_else(|| 1.0 / floor(1.0 / hi), |_| hi);
        }
        let in_title = matches!(wish.unit, Unit::Plain(_));
        let values = if wish.ticks.is_empty() {
            let values = log_ticks(lo, hi, wish.target);
            // A range such as 3 to 4 contains no 1, 2 or 5 times a power of ten: use even steps.
            let step = nice_step(hi - lo, wish.target);
            if values.len() < 2 { multiples(lo, hi, step) } else { values }
        } else {
            wish.ticks.iter().copied().filter(|v| *v >= lo && *v <= hi).collect()
        };
        let label = |v: f64| {
            let text = wish.unit.show(v);
            if in_title { bare(&text) } else { text }
        };
        let minor = if wish.ticks.is_empty() { log_minor(lo, hi) } else { Vec::new() };
        let title_unit = match wish.unit {
            Unit::Plain(unit) => unit.to_string(),
            _ => String::new(),
        };
        let ticks = values.into_iter().map(|v| (v, label(v))).collect();
        Self { lo, hi, is_log: true, from: 0.0, to: 1.0, ticks, minor, title_unit }
    }

    /// Sets the pixels of the range's two ends.
    pub(crate) fn place(&mut self, from: f64, to: f64) {
        (self.from, self.to) = (from, to);
    }

    /// The pixel of `value`; `None` if it is not finite, or not positive on a log axis.
    pub(crate) fn at(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || (self.is_log && value <= 0.0) {
            return None;
        }
        let value = value.clamp(self.lo, self.hi);
        let part = if self.is_log {
            // Not by a quotient: the largest divided by the smallest number is infinite.
            (value.log10() - self.lo.log10()) / (self.hi.log10() - self.lo.log10())
        } else {
            (value - self.lo) / (self.hi - self.lo)
        };
        Some(self.from + part.clamp(0.0, 1.0) * (self.to - self.from))
    }

    /// The pixel from which bars grow: zero, or the low end if zero is not on the axis.
    pub(crate) fn base(&self) -> f64 {
        if self.is_log { self.from } else { self.at(0.0).unwrap_or(self.from) }
    }
}

/// A tick's number with as many digits as distinguish it from its neighbours, `step` away.
fn tick_number(value: f64, step: f64) -> String {
    let place = step.log10().floor();
    if value != 0.0 && (value.abs() >= 1e12 || place < -6.0) {
        let digits = (value.abs().log10().floor() - place).clamp(0.0, 15.0) as usize;
        return format!("{value:.digits$e}");
    }
    let decimals = (-place).clamp(0.0, 6.0) as usize;
    crate::num::group(&format!("{value:.decimals$}"))
}

/// `1,518 B` without its unit.
fn bare(text: &str) -> String {
    text.split(' ').next().unwrap_or(text).to_string()
}

/// Thins a line in pixels: of the points in a pixel column the first, the lowest, the highest and the
/// last remain, in order. This keeps everything visible, in particular peaks (the M4 aggregation of Jugel
/// et al., VLDB 2014).
pub(crate) fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut out = Vec::new();
    for column in points.chunk_by(|a, b| a.0.floor() == b.0.floor()) {
        let by_y = |a: &usize, b: &usize| column[*a].1.total_cmp(&column[*b].1);
        let low = (0..column.len()).min_by(by_y).unwrap_or(0);
        let high = (0..column.len()).max_by(by_y).unwrap_or(0);
        let mut keep = [0, low, high, column.len() - 1];
        keep.sort_unstable();
        for (i, &at) in keep.iter().enumerate() {
            if i == 0 || keep[i - 1] != at {
                out.push(column[at]);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wish(data: Option<(f64, f64)>, unit: Unit, is_log: bool) -> Wish<'static> {
        Wish { unit, is_log, data, range: (None, None), rounds: true, ticks: &[], target: 5 }
    }

    fn labels(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|t| t.1.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_in_the_unit_that_is_shown() {
        let of = |max, unit| Scale::new(&wish(Some((0.0, max)), unit, false));
        assert_eq!(labels(&of(1.0, Unit::Share)), ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]);
        assert_eq!(labels(&of(38_000.0, Unit::Count)), ["0", "10 k", "20 k", "30 k", "40 k"]);
        assert_eq!(labels(&of(3.0, Unit::Count)), ["0", "1", "2", "3"]);
        let bytes = of(4.5 * 1_073_741_824.0, Unit::Bytes);
        assert_eq!(
            (labels(&bytes), bytes.title_unit.as_str()),
            (vec!["0", "1", "2", "3", "4", "5"], "GiB")
        );
        let time = of(0.8e6, Unit::Nanos);
        assert_eq!(
            (labels(&time), time.title_unit.as_str()),
            (vec!["0", "200", "400", "600", "800"], "µs")
        );
        let log = Scale::new(&wish(Some((700.0, 2.5e6)), Unit::Nanos, true));
        assert_eq!(labels(&log), ["100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms"]);
    }

    proptest! {
        #[test]
        fn any_range_gives_few_rising_ticks_inside(a in any::<f64>(), b in any::<f64>(), is_log: bool) {
            for unit in [Unit::Count, Unit::Bytes, Unit::Share, Unit::Plain("x")] {
                let mut scale = Scale::new(&wish(Some((a, b)), unit, is_log));
                scale.place(0.0, 100.0);
                prop_assert!(scale.ticks.len() <= 16, "{} ticks", scale.ticks.len());
                prop_assert!(scale.lo < scale.hi && scale.lo.is_finite() && scale.hi.is_finite());
                for pair in scale.ticks.windows(2) {
                    prop_assert!(pair[0].0 < pair[1].0);
                }
                for (value, _) in &scale.ticks {
                    let at = scale.at(*value).expect("a tick has a place");
                    prop_assert!((0.0..=100.0).contains(&at));
                }
            }
        }

        #[test]
        fn linear_ticks_are_even_and_cover_the_data(lo in -1e9f64..1e9, span in 1e-3f64..1e9) {
            let scale = Scale::new(&wish(Some((lo, lo + span)), Unit::Plain(""), false));
            let values: Vec<f64> = scale.ticks.iter().map(|t| t.0).collect();
            prop_assert!((2..=12).contains(&values.len()), "{values:?}");
            let step = values[1] - values[0];
            for pair in values.windows(2) {
                prop_assert!(((pair[1] - pair[0]) - step).abs() < step * 1e-6);
            }
            let slack = step * 1e-6;
            prop_assert!(values[0] <= lo + slack && *values.last().unwrap() >= lo + span - slack);
            let distinct: std::collections::HashSet<_> = scale.ticks.iter().map(|t| &t.1).collect();
            prop_assert_eq!(distinct.len(), values.len());
        }

        #[test]
        fn thinning_keeps_the_extremes_of_every_pixel(
            mut points in prop::collection::vec((0.0f64..40.0, -1e6f64..1e6), 0..600),
        ) {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let thinned = thin(&points);
            prop_assert!(thinned.len() <= 4 * 40);
            for pixel in 0..40 {
                let column = |all: &[(f64, f64)]| -> Vec<f64> {
                    all.iter().filter(|p| p.0.floor() == f64::from(pixel)).map(|p| p.1).collect()
                };
                let (model, fast) = (column(&points), column(&thinned));
                prop_assert_eq!(model.first(), fast.first());
                prop_assert_eq!(model.last(), fast.last());
                let low = |v: &[f64]| v.iter().copied().fold(f64::INFINITY, f64::min);
                let high = |v: &[f64]| v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                prop_assert_eq!((low(&model), high(&model)), (low(&fast), high(&fast)));
            }
        }
    }
}
