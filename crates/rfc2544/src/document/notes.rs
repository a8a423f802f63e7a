//! The notes of a report: deviations from the standards, and how to interpret the results.

use flowyard_frame::Nanos;
use flowyard_report::Unit;

use super::data::Time;
use crate::profile::Test;
use crate::suite::{Results, Spread};
use crate::traffic::{Family, Mix};

/// The deviations and notes for a run.
#[must_use]
pub fn deviations(time: Time, results: &Results) -> Vec<String> {
    let frames = match results.profile.family {
        Family::Ipv4 => "TTL 10, UDP checksum 0 (none)",
        Family::Ipv6 => "over IPv6 (RFC 5180, 2001:2::/48), hop limit 10",
    };
    let mut all = vec![
        format!(
            "Frames are UDP echo as in RFC 2544 appendix C, {frames}. The tag of 18 bytes in the \
             payload contains a CRC-32."
        ),
        "Latency is that of a store-and-forward device: last bit in to first bit out (RFC 1242). \
             Percentiles have three significant digits; minimum, maximum and mean are exact."
            .to_owned(),
    ];
    match time {
        Time::Virtual => all.push(
            "Virtual time: the engine is real, the costs of its cores and lines are modelled. No \
             result describes the speed of a machine."
                .into(),
        ),
        Time::Real => all.push(
            "Real time: there is no physical line, so 100 % is a configured rate. Preamble, \
             interframe gap and FCS are included in the rate but not sent."
                .into(),
        ),
    }
    let profile = &results.profile;
    if !profile.waits.are_standard() || profile.repeats > 1 {
        let s = |ns: Nanos| format!("{} s", ns as f64 / 1e9);
        // A soak test is one trial of the duration that was asked for.
        let trials = match profile.tests.iter().any(|test| *test != Test::Soak) {
            true => format!(
                "deciding trials of {}, intermediate trials of {}; resolution of the search {} %; ",
                s(profile.full),
                s(profile.short),
                profile.width_ppm as f64 / 10_000.0,
            ),
            false => String::new(),
        };
        all.push(format!(
            "Shortened for real time, not as in the standards: {trials}waits of {} after learning \
             frames, {} after and {} between trials. Use --standard for the durations of the method.",
            s(profile.waits.settle),
            s(profile.waits.residue),
            s(profile.waits.rest),
        ));
    }
    if profile.repeats > 1 && profile.tests.contains(&Test::Throughput) {
        all.push(format!(
            "The throughput was searched {} times; the median is printed, with no more digits than \
             the repetitions support. A result is irregular if the relative standard deviation is \
             above {} % (RFC 8239 section 1.3) or some searches found no rate without loss.",
            profile.repeats,
            Spread::LIMIT_PERCENT
        ));
    }
    let repeated: u64 = results.trials.iter().map(|row| row.repeated_frames).sum();
    let sent: u64 = results.trials.iter().map(|row| row.counts.sent).sum();
    if repeated > 0 {
        all.push(format!(
            "{repeated} of {sent} frames were not simulated individually: the device returned to an \
             earlier state with the same traffic to follow, so the counters of one cycle were \
             multiplied. The results equal those of a full simulation."
        ));
    }
    if results.profile.name == "lanner" {
        all.push(
            "The profile follows Lanner's paper, not RFC 2544: trials of 30 s and frames of 1540 \
             bytes. The paper does not define loss; here, throughput is the rate without any loss."
                .into(),
        );
    }
    all.extend(replayed(results));
    all
}

/// The rates of Ethernet, for advice.
const RATES: [(u64, &str); 8] = [
    (10_000_000, "10M"),
    (100_000_000, "100M"),
    (1_000_000_000, "1G"),
    (10_000_000_000, "10G"),
    (25_000_000_000, "25G"),
    (40_000_000_000, "40G"),
    (100_000_000_000, "100G"),
    (400_000_000_000, "400G"),
];

/// The note on a replay under virtual time of which frames left late: the line was too slow for them.
fn replayed(results: &Results) -> Option<String> {
    let profile = &results.profile;
    let (Mix::Replay(capture), Some(speed)) = (&profile.mix, profile.speed) else { return None };
    let result = results.sizes.iter().find_map(|at| at.soak.as_ref())?;
    let timing = result.timing;
    if timing.late_frames == 0 || timing.last_ns == 0 {
        return None;
    }
    let [needed, line] = [capture.mean_bps(speed)?, profile.line.bps]
        .map(|bps| format!("{:.3} Mbit/s", bps as f64 / 1e6));
    let is_slower = profile.line.bps < capture.mean_bps(speed)?;
    let cause = match is_slower {
        true => format!(
            "at this speed the capture needs {needed} on average, and the line carries {line}"
        ),
        false => format!(
            "the capture needs {needed} on average, but its bursts are faster than the line ({line})"
        ),
    };
    let faster = |(bps, _): &&(u64, &str)| {
        *bps > profile.line.bps && capture.mean_bps(speed).is_some_and(|needed| *bps >= needed)
    };
    let fix = match RATES.iter().find(faster) {
        Some((_, name)) => format!("; use --line {name}, or a lower --speed"),
        None => "; use a lower --speed".into(),
    };
    let show = |ns: Nanos| Unit::Nanos.show(ns as f64);
    Some(format!(
        "{} of {} frames left more than {} later than in the capture, by up to {}: {cause}. The table shows the rate \
         at which they left{fix}.",
        timing.late_frames,
        result.counts.sent,
        show(timing.late_ns),
        show(timing.max_ns),
    ))
}
