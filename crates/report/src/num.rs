//! Numbers for people, in one place: `1.23 M`, `4.1 GiB`, `81 ms`, `12.3 %`.
//!
//! Numbers have three significant digits. A number that is exact has no trailing zeros, a rounded one keeps
//! them: `1 M` is exactly a million, `1.00 M` is near a million. A share is never rounded to none or to all:
//! twelve frames lost of ten million are `<0.1 %`, not `0.0 %`, and the remaining share is `>99.9 %`.
//! Not-a-number is `n/a`.

/// The unit of a number, which decides how it is scaled and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unit {
    /// A count, with decimal prefixes: `1.23 M`.
    #[default]
    Count,
    /// Packets per second: `1.49 Mpps`.
    Pps,
    /// Bits per second: `9.41 Gbit/s`.
    Bps,
    /// Bytes of memory or data, with binary prefixes: `4.1 GiB`.
    Bytes,
    /// A duration; the value is in nanoseconds: `81 ms`.
    Nanos,
    /// A part of a whole; the value is 0 to 1: `12.3 %`.
    Share,
    /// Any other unit, which may be empty, without a prefix: `Plain("B")` gives `1,518 B`.
    Plain(&'static str),
}

/// The scale of a linear axis.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct AxisScale {
    /// Values are divided by this before ticks are chosen.
    pub(crate) divisor: f64,
    /// The text after each tick's number.
    pub(crate) tick_suffix: String,
    /// The unit in the axis title, in parentheses; empty for none.
    pub(crate) title_unit: String,
}

const SI: [(f64, &str); 7] =
    [(1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];
const IEC: [(f64, &str); 7] = [
    (1_152_921_504_606_846_976.0, "Ei"),
    (1_125_899_906_842_624.0, "Pi"),
    (1_099_511_627_776.0, "Ti"),
    (1_073_741_824.0, "Gi"),
    (1_048_576.0, "Mi"),
    (1024.0, "Ki"),
    (1.0, ""),
];
const TIME: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];

impl Unit {
    /// `value` formatted for people, with prefix and unit.
    ///
    /// ```
    /// use flowyard_report::Unit;
    /// assert_eq!(Unit::Count.show(1_234_567.0), "1.23 M");
    /// assert_eq!(Unit::Pps.show(1_488_095.0), "1.49 Mpps");
    /// assert_eq!(Unit::Nanos.show(81e6), "81 ms");
    /// assert_eq!(Unit::Share.show(0.123), "12.3 %");
    /// assert_eq!(Unit::Plain("B").show(1518.0), "1,518 B");
    /// ```
    #[must_use]
    pub fn show(self, value: f64) -> String {
        if let Some(word) = odd(value) {
            return word.to_string();
        }
        match self {
            Self::Count => scaled(value, &SI, ""),
            Self::Pps => scaled(value, &SI, "pps"),
            Self::Bps => scaled(value, &SI, "bit/s"),
            Self::Bytes => scaled(value, &IEC, "B"),
            Self::Nanos => duration(value),
            Self::Share => percent(value),
            Self::Plain(unit) => join(&plain(value), unit),
        }
    }

    /// The divisor and unit for an axis whose largest magnitude is `max`.
    pub(crate) fn axis(self, max: f64) -> AxisScale {
        let scale = |divisor, tick: &str, title: String| AxisScale {
            divisor,
            tick_suffix: tick.to_string(),
            title_unit: title,
        };
        let pick = |steps: &[(f64, &'static str)]| {
            let last = steps.last().copied().unwrap_or((1.0, ""));
            if max >= 1e21 {
                return last; // no prefix is large enough: the ticks have exponents
            }
            steps.iter().copied().find(|s| max >= s.0).unwrap_or(last)
        };
        match self {
            Self::Count => {
                let (divisor, prefix) = if max < 10_000.0 { (1.0, "") } else { pick(&SI) };
                let suffix = if prefix.is_empty() { String::new() } else { format!(" {prefix}") };
                scale(divisor, &suffix, String::new())
            }
            Self::Pps => pick(&SI).into_scale("pps"),
            Self::Bps => pick(&SI).into_scale("bit/s"),
            Self::Bytes => pick(&IEC).into_scale("B"),
            Self::Nanos if max >= 2.0 * 86_400e9 => scale(86_400e9, "", "days".into()),
            Self::Nanos if max >= 3.0 * 3600e9 => scale(3600e9, "", "h".into()),
            Self::Nanos if max >= 300e9 => scale(60e9, "", "min".into()),
            Self::Nanos => pick(&TIME).into_scale(""),
            Self::Share => scale(0.01, " %", String::new()),
            Self::Plain(unit) => scale(1.0, "", unit.to_string()),
        }
    }
}

trait IntoScale {
    fn into_scale(self, unit: &str) -> AxisScale;
}

impl IntoScale for (f64, &'static str) {
    fn into_scale(self, unit: &str) -> AxisScale {
        let title_unit = format!("{}{unit}", self.1);
        AxisScale { divisor: self.0, tick_suffix: String::new(), title_unit }
    }
}

/// A number of things as text, such as `1 queue` and `1,200 queues`.
#[must_use]
pub fn counted(value: u64, thing: &str) -> String {
    let plural = if value == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", exact(value))
}

/// A whole number with all its digits and separators: `1,234,567`.
#[must_use]
pub fn exact(value: u64) -> String {
    group(&value.to_string())
}

/// `part` of `whole` as a percentage; `n/a` if `whole` is 0.
///
/// ```
/// assert_eq!(flowyard_report::num::share(12, 10_000_000), "<0.1 %");
/// ```
#[must_use]
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "n/a".to_string();
    }
    // A quotient of two f64 is not enough: all but one of 2^60 must not be shown as all.
    if part < whole && part as f64 / whole as f64 >= 0.9995 {
        return ">99.9 %".to_string();
    }
    percent(part as f64 / whole as f64)
}

fn odd(value: f64) -> Option<&'static str> {
    match value {
        v if v.is_nan() => Some("n/a"),
        f64::INFINITY => Some("inf"),
        f64::NEG_INFINITY => Some("-inf"),
        _ => None,
    }
}

fn join(number: &str, unit: &str) -> String {
    if unit.is_empty() { number.to_string() } else { format!("{number} {unit}") }
}

/// A plain decimal with commas between groups of three digits; sign and fraction are kept.
pub(crate) fn group(number: &str) -> String {
    let (sign, rest) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    let (whole, fraction) = rest.split_once('.').map_or((rest, None), |(w, f)| (w, Some(f)));
    let mut out = String::from(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A finite number with three significant digits; trailing zeros only if it was rounded.
fn digits(value: f64) -> String {
    let size = value.abs();
    // A number within half a unit below a power of ten is rounded up to it.
    let decimals = match size {
        0.0 => return "0".to_string(),
        s if s >= 99.95 => 0,
        s if s >= 9.995 => 1,
        s if s >= 0.9995 => 2,
        s if s >= 0.09995 => 3,
        s if s >= 0.009_995 => 4,
        s if s >= 0.000_999_5 => 5,
        _ => return format!("{value:.2e}"),
    };
    let text = format!("{value:.decimals$}");
    let is_exact = text.parse::<f64>().is_ok_and(|back| back == value);
    if is_exact && text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_string();
    }
    text
}

fn scaled(value: f64, steps: &[(f64, &str)], unit: &str) -> String {
    let size = value.abs();
    if size >= 1e21 {
        return join(&format!("{value:.2e}"), unit);
    }
    let (step, prefix) = steps.iter().copied().find(|s| size >= s.0 * 0.9995).unwrap_or((1.0, ""));
    // 999.7 of the plain unit is below a thousand but is rounded up, so it must use the next prefix.
    join(&digits(value / step), &format!("{prefix}{unit}"))
}

fn plain(value: f64) -> String {
    if value.abs() >= 1e15 {
        return format!("{value:.2e}");
    }
    if value.abs() < 1000.0 { digits(value) } else { group(&format!("{value:.0}")) }
}

fn duration(nanos: f64) -> String {
    let size = nanos.abs();
    if size < 59.95e9 {
        return scaled_time(nanos);
    }
    let sign = if nanos < 0.0 { "-" } else { "" };
    let seconds = (size / 1e9).round();
    if seconds >= 1e12 {
        return format!("{sign}{seconds:.2e} s");
    }
    let seconds = seconds as u64; // below 1e12: exact
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |big: u64, big_unit: &str, small: u64, small_unit: &str| {
        if small == 0 {
            format!("{sign}{} {big_unit}", exact(big))
        } else {
            format!("{sign}{} {big_unit} {small} {small_unit}", exact(big))
        }
    };
    match (days, hours) {
        (0, 0) => two(minutes, "min", seconds % 60, "s"),
        (0, _) => two(hours, "h", minutes % 60, "min"),
        _ => two(days, "d", hours % 24, "h"),
    }
}

fn scaled_time(nanos: f64) -> String {
    let size = nanos.abs();
    let (step, unit) = TIME.iter().copied().find(|s| size >= s.0 * 0.9995).unwrap_or((1.0, "ns"));
    join(&digits(nanos / step), unit)
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let text = format!("{percent:.1}");
    match share {
        0.0 => "0 %".to_string(),
        1.0 => "100 %".to_string(),
        _ if text == "0.0" => "<0.1 %".to_string(),
        _ if text == "-0.0" => ">-0.1 %".to_string(),
        s if text == "100.0" => if s < 1.0 { ">99.9 %" } else { ">100 %" }.to_string(),
        _ if percent.abs() >= 1e6 => format!("{percent:.2e} %"),
        _ => format!("{text} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_written_as_people_write_them() {
        let cases = [
            (Unit::Count, 0.0, "0"),
            (Unit::Count, 7.0, "7"),
            (Unit::Count, 999.0, "999"),
            (Unit::Count, 999.6, "1.00 k"),
            (Unit::Count, 1000.0, "1 k"),
            (Unit::Count, 1_000_234.0, "1.00 M"),
            (Unit::Count, 999_999.0, "1.00 M"),
            (Unit::Count, -1500.0, "-1.5 k"),
            (Unit::Count, 0.125, "0.125"),
            (Unit::Count, 1e30, "1.00e30"),
            (Unit::Pps, 14_880_952.0, "14.9 Mpps"),
            (Unit::Bps, 1e10, "10 Gbit/s"),
            (Unit::Bytes, 4.1 * 1_073_741_824.0, "4.1 GiB"),
            (Unit::Bytes, 512.0, "512 B"),
            (Unit::Nanos, 81e6, "81 ms"),
            (Unit::Nanos, 1234.0, "1.23 µs"),
            (Unit::Nanos, 125e9, "2 min 5 s"),
            (Unit::Nanos, 14.0 * 3600e9, "14 h"),
            (Unit::Nanos, 90_000e9, "1 d 1 h"),
            (Unit::Share, 0.123, "12.3 %"),
            (Unit::Share, 1e-9, "<0.1 %"),
            (Unit::Share, 0.999_999, ">99.9 %"),
            (Unit::Share, 1.0, "100 %"),
            (Unit::Plain("B"), 9216.0, "9,216 B"),
            (Unit::Plain(""), 3.5, "3.5"),
            (Unit::Nanos, f64::NAN, "n/a"),
            (Unit::Bytes, f64::INFINITY, "inf"),
        ];
        for (unit, value, want) in cases {
            assert_eq!(unit.show(value), want, "{unit:?} of {value}");
        }
        assert_eq!(exact(1_234_567), "1,234,567");
        assert_eq!(exact(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(share(0, 0), "n/a");
        assert_eq!(share((1 << 60) - 1, 1 << 60), ">99.9 %");
    }

    /// Parses `12.3 M`, to compare it with what `show` was given.
    fn read(text: &str, steps: &[(f64, &str)], unit: &str) -> f64 {
        let (number, rest) = text.split_once(' ').unwrap_or((text, ""));
        let prefix = rest.strip_suffix(unit).expect("the unit is last");
        let step = steps.iter().find(|s| s.1 == prefix).expect("a known prefix").0;
        number.parse::<f64>().expect("a number first") * step
    }

    proptest! {
        #[test]
        fn what_is_shown_is_within_half_a_percent(value in 0.001f64..1e20) {
            let back = read(&Unit::Count.show(value), &SI, "");
            prop_assert!((back - value).abs() <= value * 0.005_01, "{value} shown as {back}");
            let back = read(&Unit::Bytes.show(value), &IEC, "B");
            prop_assert!((back - value).abs() <= value * 0.005_01, "{value} shown as {back}");
        }

        #[test]
        fn any_number_is_short(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            for unit in [Unit::Count, Unit::Pps, Unit::Bytes, Unit::Nanos, Unit::Share, Unit::Plain("B")] {
                let text = unit.show(value);
                prop_assert!(!text.is_empty() && text.chars().count() <= 24, "{unit:?} {value}: {text}");
            }
        }

        #[test]
        fn a_part_never_reads_as_none_or_all(whole in 2u64.., part in 1u64..) {
            let part = 1 + part % (whole - 1);
            let text = share(part, whole);
            prop_assert!(text != "0 %" && text != "100 %" && text != "0.0 %" && text != "100.0 %", "{text}");
        }
    }
}
