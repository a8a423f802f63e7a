//! Compliance: what RFC 2544 asks of a run, against what was really run. The words are the standard's
//! (section 5): unconditionally compliant, all MUST and SHOULD are met; conditionally, all MUST are.

use serde::{Deserialize, Serialize};

use crate::profile::Test;
use crate::suite::Results;
use crate::traffic::{Addresses, ETHERNET_SIZES};
use crate::trial::SECOND;

/// One demand.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Where it stands.
    pub section: String,
    /// MUST, otherwise SHOULD.
    pub must: bool,
    /// What is asked for.
    pub text: String,
    /// Whether the run did it.
    pub met: bool,
}

/// All demands, and what follows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Compliance {
    /// In the standard's words.
    pub verdict: String,
    /// Every demand.
    pub points: Vec<Point>,
}

/// Judges a run.
#[must_use]
pub fn judge(results: &Results) -> Compliance {
    let profile = &results.profile;
    let singles: Vec<u16> =
        profile.sizes.iter().filter_map(crate::traffic::Genome::single).collect();
    let has = |test: Test| {
        let did = |at: &crate::suite::AtSize| match test {
            Test::Throughput => at.throughput.is_some(),
            Test::Latency => at.latency.is_some(),
            Test::LossRate => at.loss_rate.is_some(),
            // Not asked for where the line is the limit.
            Test::BackToBack => {
                at.back_to_back.is_some() || at.throughput.is_some_and(|t| t.load == Some(at.max))
            }
            Test::Recovery => at.recovery_ns.is_some(),
            Test::Reset => at.reset.is_some(),
            Test::Bursts => at.bursts.is_some(),
            Test::Mlr => at.mlr.is_some(),
            Test::Soak => at.soak.is_some(),
        };
        !results.sizes.is_empty() && results.sizes.iter().all(did)
    };
    let clean = results.trials.iter().all(|row| row.fault.is_none());
    let point = |section: &str, must, text: &str, met| Point {
        section: section.into(),
        must,
        text: text.into(),
        met,
    };
    let points = vec![
        point("6", true, "the tester knows that every frame came back, and is the right one", true),
        point("8", true, "the frame formats used are in the report", true),
        point("9", false, "at least five sizes, the least and the greatest among them", {
            singles.len() >= 5 && singles.contains(&64) && singles.contains(&1518)
        }),
        point("9.1", false, "64, 128, 256, 512, 1024, 1280 and 1518 bytes on Ethernet", {
            ETHERNET_SIZES.iter().all(|size| singles.contains(size))
        }),
        point("10", false, "lost, reordered and duplicate frames and gaps are counted", true),
        point("11.1", false, "a run with 1 % broadcasts", profile.broadcast_every == 100),
        point("11.2", false, "a run with management queries", false),
        point("11.3", false, "a run with routing updates", false),
        point("11.4", false, "runs with 1 and with 25 filters: this one has one of them", {
            matches!(profile.filters, 1 | 25)
        }),
        point("12", false, "destinations drawn from 256 networks", {
            profile.addresses == Addresses::Networks && profile.flows >= 256
        }),
        point("14", false, "both directions at once", profile.topology.senders() > 1),
        point("21", false, "bursts of 16, 64, 256 and 1024 frames", has(Test::Bursts)),
        point("23", false, "learning frames, 2 s for the residue, 5 s of rest", {
            profile.waits.are_standard()
        }),
        point("24", false, "trials of at least 60 s", profile.full >= 60 * SECOND),
        point("26.1", true, "throughput, by trials without any loss", has(Test::Throughput)),
        point("26.2", true, "latency at the throughput, 20 times or more", {
            has(Test::Latency) && profile.latency_repeats >= 20
        }),
        point("26.2", false, "latency streams of 120 s, tagged after 60 s", {
            has(Test::Latency) && profile.latency >= 120 * SECOND
        }),
        point("26.3", true, "frame loss rate in steps of 10 % or less", has(Test::LossRate)),
        point("26.4", true, "back-to-back frames, trials of 2 s or more (RFC 9004)", {
            has(Test::BackToBack) && profile.burst >= 2 * SECOND
        }),
        point("26.4", false, "back-to-back frames 50 times or more", {
            has(Test::BackToBack) && profile.burst_repeats >= 50
        }),
        point("26.5", false, "system recovery", has(Test::Recovery)),
        point("26.6", false, "reset (RFC 6201)", has(Test::Reset)),
        point("-", true, "no trial was spoiled by the tester", clean),
    ];
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
