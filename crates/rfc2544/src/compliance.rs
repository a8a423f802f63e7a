//! Compliance: the requirements of RFC 2544 compared with a run. By section 5 of the standard, a
//! run is unconditionally compliant if it meets all MUST and SHOULD requirements, and conditionally
//! compliant if it meets all MUST requirements.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::profile::Test;
use crate::suite::{AtSize, Results};
use crate::traffic::{Addresses, ETHERNET_SIZES, Genome};
use crate::trial::SECOND;

/// One requirement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// The section of RFC 2544.
    pub section: String,
    /// True for MUST, false for SHOULD.
    pub must: bool,
    /// The requirement in words.
    pub text: String,
    /// Whether the run meets it.
    pub met: bool,
}

/// All requirements, and the verdict.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Compliance {
    /// The verdict in the standard's terms.
    pub verdict: String,
    /// Every requirement.
    pub points: Vec<Point>,
}

/// Compares a run with the requirements.
#[must_use]
pub fn judge(results: &Results) -> Compliance {
    let points = points(results);
    let missing = |must| points.iter().filter(|point| point.must == must && !point.met).count();
    let verdict = match (missing(true), missing(false)) {
        (0, 0) => "unconditionally compliant with RFC 2544".into(),
        (0, should) => {
            format!("conditionally compliant with RFC 2544: {should} SHOULD not met, listed below")
        }
        (must, should) => format!(
            "not compliant with RFC 2544: {must} MUST and {should} SHOULD not met, listed below"
        ),
    };
    Compliance { verdict, points }
}

/// Whether the run has a result of `test` at every frame size.
fn has(results: &Results, test: Test) -> bool {
    let done = |at: &AtSize| match test {
        Test::Throughput => at.throughput.is_some(),
        Test::Latency => at.latency.is_some(),
        Test::LossRate => at.loss_rate.is_some(),
        // Not required where the line rate is the limit.
        Test::BackToBack => {
            at.back_to_back.is_some() || at.throughput.is_some_and(|t| t.load == Some(at.max))
        }
        Test::Recovery => at.recovery_ns.is_some(),
        Test::Reset => at.reset.is_some(),
        Test::Bursts => at.bursts.is_some(),
        Test::Mlr => at.mlr.is_some(),
        Test::Soak => at.soak.is_some(),
    };
    !results.sizes.is_empty() && results.sizes.iter().all(done)
}

/// Every requirement, with the result of the comparison.
fn points(results: &Results) -> Vec<Point> {
    let profile = &results.profile;
    let singles: Vec<u16> = profile.sizes.iter().filter_map(Genome::single).collect();
    let has = |test| has(results, test);
    let clean = results.trials.iter().all(|row| row.fault.is_none());
    let point = |section: &str, must, text: &str, met| Point {
        section: section.into(),
        must,
        text: text.into(),
        met,
    };
    vec![
        point("6", true, "the tester verifies that every frame returns and is the right one", true),
        point("8", true, "the frame formats used are in the report", true),
        point("9", false, "at least five frame sizes, with the smallest and the largest", {
            singles.len() >= 5 && singles.contains(&64) && singles.contains(&1518)
        }),
        point("9.1", false, "64, 128, 256, 512, 1024, 1280 and 1518 bytes on Ethernet", {
            ETHERNET_SIZES.iter().all(|size| singles.contains(size))
        }),
        point("10", false, "lost, reordered and duplicate frames and gaps are counted", true),
        point("11.1", false, "a run with 1 % broadcasts", profile.broadcast_every == 100),
        point("11.2", false, "a run with management queries", false),
        point("11.3", false, "a run with routing updates", false),
        point("11.4", false, "runs with 1 and with 25 filters (this run has one of the two)", {
            matches!(profile.filters, 1 | 25)
        }),
        point("12", false, "destinations chosen at random from 256 networks", {
            profile.addresses == Addresses::Networks && profile.flows >= 256
        }),
        point("14", false, "both directions at once", profile.topology.senders() > 1),
        point("21", false, "bursts of 16, 64, 256 and 1024 frames", has(Test::Bursts)),
        point("23", false, "learning frames, a wait of 2 s after and 5 s between trials", {
            profile.waits.are_standard()
        }),
        point("24", false, "trials of at least 60 s", profile.full >= 60 * SECOND),
        point("26.1", true, "throughput from trials without any loss", has(Test::Throughput)),
        point("26.2", true, "latency at the throughput, at least 20 trials", {
            has(Test::Latency) && profile.latency_repeats >= 20
        }),
        point("26.2", false, "latency streams of 120 s, tagged after 60 s", {
            has(Test::Latency) && profile.latency >= 120 * SECOND
        }),
        point("26.3", true, "frame loss rate in steps of 10 % or less", has(Test::LossRate)),
        point("26.4", true, "back-to-back frames, trials of at least 2 s (RFC 9004)", {
            has(Test::BackToBack) && profile.burst >= 2 * SECOND
        }),
        point("26.4", false, "back-to-back frames, at least 50 trials", {
            has(Test::BackToBack) && profile.burst_repeats >= 50
        }),
        point("26.5", false, "system recovery", has(Test::Recovery)),
        point("26.6", false, "reset (RFC 6201)", has(Test::Reset)),
        point("-", true, "no trial was invalid because of the tester", clean),
    ]
}
