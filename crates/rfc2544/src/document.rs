//! The document: results, and all that is needed to judge and to repeat them. What `--json` prints,
//! what the page shows, what two platforms are compared by.

use serde::{Deserialize, Serialize};

use crate::compliance::Compliance;
use crate::qualify::Check;
use crate::suite::{AtSize, Results};
use crate::traffic::Family;

mod compare;
mod page;
mod rank;
mod tables;

pub use compare::{Comparison, compare};
pub use page::page;
pub use rank::{Order, Ranked, differ, rank, table as rank_table};
pub use tables::tables;

/// Whose clock it was: results of the two are never in one table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Time {
    /// A simulated clock: the same again gives the same.
    Virtual,
    /// This machine's clock: its load and its luck are in the results.
    Real,
}

/// The machine that it ran on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// How many there are.
    pub processors: usize,
    /// The kernel.
    pub kernel: String,
    /// Load averages before.
    pub load: String,
    /// What the hypervisor took meanwhile, in hundredths of a second.
    pub steal_ticks: u64,
}

/// Everything about a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Document {
    /// Whose clock.
    pub time: Time,
    /// The device, and its whole configuration.
    pub device: String,
    /// Its version.
    pub version: String,
    /// The machine.
    pub machine: Machine,
    /// What the tester proved of itself before.
    pub tester: Vec<Check>,
    /// What was measured.
    pub results: Results,
    /// What RFC 2544 says to it.
    pub compliance: Compliance,
    /// Frames that the device dropped, by its own words.
    pub drops: Vec<(String, u64)>,
    /// What else is to be known.
    pub deviations: Vec<String>,
}

/// What always has to be said.
#[must_use]
pub fn deviations(time: Time, results: &Results) -> Vec<String> {
    let frames = match results.profile.family {
        Family::Ipv4 => "TTL 10, UDP checksum 0 (none)",
        Family::Ipv6 => "over IPv6 (RFC 5180, 2001:2::/48), hop limit 10",
    };
    let mut all = vec![
        format!(
            "Frames are UDP echo of RFC 2544 appendix C, {frames}: the tag of 18 bytes in the payload \
             has a CRC-32 of its own."
        ),
        "Latency is of a device that stores and forwards: last bit in to first bit out (RFC 1242). \
         Percentiles have three digits; least, greatest and mean are exact."
            .to_owned(),
    ];
    match time {
        Time::Virtual => all.push(
            "Virtual time: the engine is real, the costs of its cores and lines are a model. No \
             figure here says how fast a machine is."
                .into(),
        ),
        Time::Real => all.push(
            "There is no line: 100 % is a configured rate. Preamble, gap and FCS are counted, not \
             sent."
                .into(),
        ),
    }
    let profile = &results.profile;
    if !profile.waits.are_standard() || profile.repeats > 1 {
        let s = |ns: flowyard_frame::Nanos| format!("{} s", ns as f64 / 1e9);
        all.push(format!(
            "Short for real time, not of the standards: trials of {}, on the way {}; the search ends at \
             {} %; waits of {}, {} and {} (learning, residue, rest). --standard has all lengths as the \
             method says.",
            s(profile.full),
            s(profile.short),
            profile.width_ppm as f64 / 10_000.0,
            s(profile.waits.settle),
            s(profile.waits.residue),
            s(profile.waits.rest),
        ));
    }
    if profile.repeats > 1 {
        all.push(format!(
            "The throughput was searched {} times; the median is printed, with as many digits as the \
             repetitions agree on. Irregular: their relative standard deviation is above {} % (RFC 8239 \
             section 1.3), or some found no rate without loss.",
            profile.repeats,
            crate::suite::Spread::LIMIT_PERCENT
        ));
    }
    let repeated: u64 = results.trials.iter().map(|row| row.repeated_frames).sum();
    let sent: u64 = results.trials.iter().map(|row| row.counts.sent).sum();
    if repeated > 0 {
        all.push(format!(
            "Of {sent} frames, {repeated} were not moved one by one: the device was found in a state \
             that it had been in, with the same traffic to come, and cycles were counted by \
             multiplication. Counts are the same as without."
        ));
    }
    if results.profile.name == "lanner" || results.profile.name == "soak" {
        all.push(
            "The profile is of Lanner's paper, not of RFC 2544: trials of 30 s, frames of 1540 bytes, \
             and no definition of loss; here, throughput is the rate without any loss."
                .into(),
        );
    }
    all
}

/// Which sizes had a throughput.
pub(crate) fn measured(results: &Results) -> impl Iterator<Item = &AtSize> {
    results.sizes.iter().filter(|at| at.throughput.is_some())
}

#[cfg(test)]
mod tests;
