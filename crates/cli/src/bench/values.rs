//! Parsers of option values that several test methods share.

use std::time::Duration;

use flowyard_frame::Nanos;
use flowyard_rfc2544::line::Line;
use flowyard_rfc2544::traffic::Genome;

use crate::stop::{Stop, bad_input};

/// The longest trial, 1000 h.
pub(super) const LONGEST: Nanos = 3_600_000_000_000_000;

/// The duration of a trial, 1 ms to 1000 h.
pub(super) fn time(option: &str, time: Duration) -> Result<Nanos, Stop> {
    match Nanos::try_from(time.as_nanos()) {
        Ok(ns @ 1_000_000..=LONGEST) => Ok(ns),
        _ => Err(bad_input(format!("{option}: must be 1ms to 1000h"))),
    }
}

/// The duration of a trial in `--seconds`.
pub(super) fn seconds(seconds: f64) -> Result<Nanos, Stop> {
    let duration = Duration::try_from_secs_f64(seconds)
        .map_err(|error| bad_input(format!("--seconds: {error}; write seconds as 2 or 0.5")))?;
    time("--seconds", duration)
}

/// Frame sizes separated by commas or blanks. A sequence of several sizes has `+` between them.
pub(super) fn sizes(text: &str) -> Result<Vec<Genome>, Stop> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    let mut sizes: Vec<Genome> = Vec::new();
    for word in words {
        // 64x7,594x4 would be a list of two sizes: refused, because a sequence is meant.
        if word.contains('x') && !word.contains('+') && !word.starts_with("imix") {
            return Err(bad_input(format!(
                "--sizes: '{word}' repeats one size; write + between the sizes of a sequence, as in \
                 64x7+594x4+1518"
            )));
        }
        let size = word.parse().map_err(|error| bad_input(format!("--sizes: {error}")))?;
        // A size that is named twice is tested once.
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    if sizes.is_empty() {
        return Err(bad_input("--sizes: give at least one size, such as 64,1518"));
    }
    Ok(sizes)
}

/// A line rate in bit/s.
pub(super) fn line(text: &str) -> Result<Line, String> {
    let (number, unit) = match text.as_bytes().last() {
        Some(b'G') => (&text[..text.len() - 1], 1e9),
        Some(b'M') => (&text[..text.len() - 1], 1e6),
        Some(b'k') => (&text[..text.len() - 1], 1e3),
        _ => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(rate) if (1e4..=4e11).contains(&(rate * unit)) => Ok(Line { bps: (rate * unit) as u64 }),
        _ => Err("must be a rate in bit/s from 10k to 400G, such as 10M or 1G".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_a_list_and_a_sequence_has_a_plus() {
        let names = |text: &str| -> Vec<String> {
            let sizes = sizes(text).map_err(|stop| stop.to_string()).unwrap();
            sizes.iter().map(ToString::to_string).collect()
        };
        assert_eq!(names("64,128"), ["64", "128"]);
        assert_eq!(names("64 128, 1518"), ["64", "128", "1518"]);
        assert_eq!(names("64x7+594x4+1518,1518"), ["64x7+594x4+1518", "1518"]);
        assert_eq!(names("64,128,64"), ["64", "128"]);
        assert_eq!(names("imix")[0], "64x7+594x4+1518");
        assert_eq!(names("imix-csit,aag").len(), 2);
        let refused = sizes("64x7,594x4,1518").map_err(|stop| stop.to_string()).unwrap_err();
        assert!(refused.contains("64x7+594x4+1518"), "{refused}");
        assert!(sizes(" , ").is_err());
    }
}
