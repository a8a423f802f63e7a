//! Qualification: the checks that the tester has to pass before it measures a device (T1-T10).
//!
//! ```text
//!  T1  loopback at line rate: offered = intended, no loss    T7  more than 2^32 frames
//!  T2  conservation    T4  exact counters    T8  repeatability    T9  faults found exactly
//! ```

use flowyard_frame::Nanos;
use flowyard_report::{Cell, Column, Table, Tone, Unit, num};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dut::{Dut, Faults, Faulty, State, Truth};
use crate::line::{Line, Load};
use crate::measure::{Measure, MeasureError};
use crate::setup::{Setup, Topology};
use crate::suite::{Results, Row};
use crate::tester::VirtualTester;
use crate::traffic::{Addresses, ETHERNET_SIZES, Genome, Spec};
use crate::trial::{Counts, SECOND, Timing, Trial, TrialResult};

/// A check and its result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// The acceptance point, such as `T1`; see `docs/bench.md`.
    pub name: String,
    /// A description of the check.
    pub check: String,
    /// What was observed.
    pub observed: String,
    /// Whether the check passed.
    pub passed: bool,
    /// Whether this is information only: a measured value without a limit, which always counts as passed.
    #[serde(default)]
    pub information: bool,
}

/// A wire: every frame leaves at the time it arrives.
#[derive(Debug, Default)]
pub struct Wire {
    frames: std::collections::VecDeque<(Nanos, u8, Vec<u8>)>,
}

impl Dut for Wire {
    fn describe(&self) -> String {
        "a wire".into()
    }

    fn ports(&self) -> u8 {
        2
    }

    fn offer(&mut self, at: Nanos, port: u8, frame: &[u8]) {
        self.frames.push_back((at, port ^ 1, frame.to_vec()));
    }

    fn collect(&mut self, until: Nanos, out: &mut dyn FnMut(Nanos, u8, &[u8])) {
        while let Some((at, port, frame)) = self.frames.pop_front_if(|(at, ..)| *at <= until) {
            out(at, port, &frame);
        }
    }

    fn state(&self, _: Nanos, into: &mut Vec<u64>) -> State {
        into.push(self.frames.len() as u64);
        State::Complete
    }
}

/// Runs the checks under virtual time, with `seeds` runs of the faulty device in each of its modes.
///
/// # Errors
/// When a trial cannot be run.
pub fn virtual_checks(line: Line, seeds: u64) -> Result<Vec<Check>, MeasureError> {
    let mut checks = Vec::new();
    for size in ETHERNET_SIZES {
        let setup = Setup::new(line, Topology::Pairs(2), Spec::fixed(size));
        let max = setup.max_load()?;
        let result =
            VirtualTester::new(Wire::default(), setup)?.measure(&Trial::new(max, SECOND))?;
        let c = result.counts;
        checks.push(check(
            "T1",
            &format!("loopback at line rate, {size} bytes"),
            format!("{} intended, {} sent, {} lost", c.intended, c.sent, c.lost()),
            c.intended == c.sent && c.lost() == 0 && result.latency.max_ns == 0,
        ));
    }
    let fourteen_hours = 14 * 3600 * SECOND;
    let setup = Setup::new(Line::GBIT_10, Topology::Uni, Spec::fixed(64));
    let load = setup.max_load()?;
    let long =
        VirtualTester::new(Wire::default(), setup)?.measure(&Trial::new(load, fourteen_hours))?;
    let sent = long.counts.sent;
    checks.push(check(
        "T7",
        "14 hours of 64-byte frames at 10 Gbit/s",
        format!("{} sent, {} lost", num::exact(sent), long.counts.lost()),
        sent > 1 << 32 && long.counts.lost() == 0,
    ));
    checks.extend(faults(line, seeds)?);
    Ok(checks)
}

/// Evaluates a run between two ports connected by a cable: the checks T1, T2, T5 and T6 in real
/// time, and the tester's highest rate at each frame size, above which no device is tested.
#[must_use]
pub fn loopback(results: &Results) -> (Vec<Check>, Vec<(Genome, Load)>) {
    let (mut checks, mut limits) = (Vec::new(), Vec::new());
    let show = |ns: Nanos| Unit::Nanos.show(ns as f64);
    for at in &results.sizes {
        let load = at.throughput.as_ref().and_then(|answer| answer.load);
        let rate = load.map_or("no rate".into(), |load| num::exact(load.pps() as u64));
        let noise = at.spread.as_ref().map_or(String::new(), |spread| {
            let [min, max] = spread.range_pps().map(|rate| num::exact(rate as u64));
            format!(", {} runs from {min} to {max}", spread.runs_pps.len())
        });
        checks.push(check(
            "T1",
            &format!("loopback, {} bytes: offered = intended, no loss", at.size),
            format!("{rate} frames/s per port{noise}"),
            load.is_some(),
        ));
        limits.extend(load.map(|load| (at.size.clone(), load)));
        // The last trial at that load gives the departure errors and the tester's own latency.
        let there = |row: &&Row| row.size == at.size && Some(row.trial.load) == load;
        let Some(row) = results.trials.iter().rfind(there) else { continue };
        let Timing { late_frames, late_ns, p50_ns, p99_ns, max_ns, burst, .. } = row.timing;
        checks.push(information(
            "T5",
            &format!("departure times, {} bytes", at.size),
            format!(
                "{late_frames} of {} frames late by more than {}; delay: median {}, 99 % {}, \
                 maximum {}; up to {burst} frames per call",
                num::exact(row.counts.sent),
                show(late_ns),
                show(p50_ns),
                show(p99_ns),
                show(max_ns)
            ),
        ));
        let [min, median, p99, max] = row.latency_ns.map(show);
        checks.push(information(
            "T6",
            &format!("the tester's own latency, {} bytes", at.size),
            format!("minimum {min}, median {median}, 99 % {p99}, maximum {max}"),
        ));
    }
    // A trial with unbalanced counters would have ended the run with an error.
    let trials = results.trials.len();
    let observed = format!("{trials} trials, all balanced");
    checks.push(check("T2", "every received frame is accounted for", observed, trials > 0));
    (checks, limits)
}

/// A check with the faulty device in real time: the tester's counters compared with the truth.
#[must_use]
pub fn faulty(mode: &str, size: u16, counts: &Counts, truth: &Truth) -> Check {
    let observed = format!("{:?} counted, {:?} true", counted(counts), actual(truth));
    let what = format!(
        "faulty device, {mode}, {size} bytes: sent, good, duplicate, corrupt, reordered, extent, gaps"
    );
    check("T9", &what, observed, counted(counts) == actual(truth))
}

/// The tester's counters, in the order of `actual`.
const fn counted(c: &Counts) -> [u64; 7] {
    [c.sent, c.good, c.duplicates, c.corrupt, c.reordered, c.max_extent, c.gaps]
}

const fn actual(truth: &Truth) -> [u64; 7] {
    let Truth { offered, good, duplicates, corrupt, reordered, max_extent, gaps, .. } = *truth;
    [offered, good, duplicates, corrupt, reordered, max_extent, gaps]
}

/// The modes of the faulty device.
#[must_use]
pub fn modes() -> [(&'static str, Faults); 8] {
    let none = Faults { delay_ns: 10_000, ..Faults::default() };
    let all = Faults {
        lose_ppm: 20_000,
        duplicate_ppm: 20_000,
        corrupt_ppm: 20_000,
        reorder_ppm: 50_000,
        reorder_ns: 3_000_000,
        jitter_ns: 50_000,
        ..none
    };
    [
        ("losing", Faults { lose_ppm: 30_000, ..none }),
        ("losing one frame", Faults { lose_one: 7, ..none }),
        ("duplicating", Faults { duplicate_ppm: 30_000, reorder_ns: 1_000_000, ..none }),
        ("corrupting", Faults { corrupt_ppm: 30_000, ..none }),
        ("reordering", Faults { reorder_ppm: 50_000, reorder_ns: 3_000_000, ..none }),
        ("delaying", Faults { delay_ns: 1_234_567, jitter_ns: 900_000, ..none }),
        ("limited in rate", Faults { service_ns: 1_500_000, queue_frames: 5, ..none }),
        ("all at once", all),
    ]
}

/// T2, T8 and T9: the tester's counters compared with what the faulty device really did.
fn faults(line: Line, seeds: u64) -> Result<Vec<Check>, MeasureError> {
    let (mut checks, mut runs, mut unbalanced, mut unequal) = (Vec::new(), 0_u64, 0_u64, 0_u64);
    for (name, faults) in modes() {
        let (mut frames, mut wrong) = (0, 0);
        for size in ETHERNET_SIZES {
            for seed in 0..seeds {
                let run = || -> Result<(TrialResult, bool), MeasureError> {
                    let flows = 1 + (seed % 5) as u16;
                    let spec =
                        Spec { flows, addresses: Addresses::Random, seed, ..Spec::fixed(size) };
                    let setup = Setup { learning: false, ..Setup::new(line, Topology::Uni, spec) };
                    let max = setup.max_load()?;
                    let mut tester = VirtualTester::new(Faulty::new(2, faults, seed), setup)?;
                    let result = tester.measure(&Trial::burst(100, max))?;
                    let is_true = counted(&result.counts) == actual(&tester.dut.truth());
                    Ok((result, is_true))
                };
                let (result, is_true) = run()?;
                unbalanced += u64::from(result.check().is_err());
                unequal += u64::from(seed == 0 && run()?.0 != result);
                wrong += u64::from(!is_true);
                (frames, runs) = (frames + result.counts.sent, runs + 1);
            }
        }
        checks.push(check(
            "T9",
            &format!("faulty device, {name}: 7 frame sizes, {seeds} seeds"),
            format!("{} frames, {wrong} runs that differ from the truth", num::exact(frames)),
            wrong == 0,
        ));
    }
    checks.push(check(
        "T2",
        "sent = good + lost; received = good + duplicate + corrupt + foreign + misrouted + stale",
        format!("{unbalanced} of {runs} runs do not balance"),
        unbalanced == 0,
    ));
    checks.push(check(
        "T8",
        "repetition with the same seed",
        format!("{unequal} results differ"),
        unequal == 0,
    ));
    Ok(checks)
}

fn check(name: &str, check: &str, observed: String, passed: bool) -> Check {
    Check { name: name.into(), check: check.into(), observed, passed, information: false }
}

/// A measured value without a limit.
fn information(name: &str, check: &str, observed: String) -> Check {
    Check { name: name.into(), check: check.into(), observed, passed: true, information: true }
}

/// The checks as a table.
#[must_use]
pub fn table(checks: &[Check]) -> Table {
    let mut table = Table::new("Qualification of the tester")
        .column(Column::text("point"))
        .column(Column::text("check"))
        .column(Column::text("observed"))
        .column(Column::text("passed"));
    for check in checks {
        let (word, tone) = match (check.information, check.passed) {
            (true, _) => ("information", Tone::Dim),
            (false, true) => ("yes", Tone::Good),
            (false, false) => ("no", Tone::Bad),
        };
        table.push([
            Cell::new(check.name.as_str()),
            Cell::new(check.check.as_str()),
            Cell::new(check.observed.as_str()),
            Cell::new(word).tone(tone),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_without_a_limit_is_information() {
        let checks = [information("T5", "departure times", "half late".into())];
        let text = table(&checks).to_text(&flowyard_report::Style::plain());
        assert!(text.contains("information") && !text.contains("yes"), "{text}");
    }

    #[test]
    fn the_tester_qualifies() {
        let checks = virtual_checks(Line::GBIT_1, 3).unwrap();
        let failed: Vec<_> = checks.iter().filter(|check| !check.passed).collect();
        assert!(failed.is_empty(), "{failed:?}");
        assert_eq!(checks.len(), 7 + 1 + 8 + 2);
    }
}
