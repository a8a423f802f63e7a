//! Comparison of two platforms with ratios, as in figures 2 and 3 of Lanner's paper.

use flowyard_report::{Cell, Column, Table, Tone};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::data::{Document, Time};
use super::rank::{differ, tester_limited};
use crate::suite::AtSize;
use crate::traffic::Genome;

/// Throughput of two platforms at one frame size, in frames per second per port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Pair {
    /// The frame size.
    pub size: Genome,
    /// Throughput of platform A.
    pub a_pps: Option<f64>,
    /// Throughput of platform B.
    pub b_pps: Option<f64>,
    /// B divided by A.
    pub ratio: Option<f64>,
    /// Why the difference is not significant: the ranges of the repetitions overlap, or the tester
    /// limited a result, which is then only a lower bound.
    pub inconclusive: Option<String>,
}

/// Two platforms at all frame sizes that both were tested with.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Platform A.
    pub a: String,
    /// Platform B.
    pub b: String,
    /// The kind of clock.
    pub time: Time,
    /// The throughput for each frame size.
    pub sizes: Vec<Pair>,
    /// Parameters that differ between the two runs and therefore influence every ratio.
    pub differences: Vec<String>,
}

/// Compares `b` with `a`.
///
/// # Errors
/// When one is of virtual and one of real time, or they have no frame size in common.
pub fn compare(a: &Document, b: &Document) -> Result<Comparison, String> {
    if a.time != b.time {
        return Err("one result is of virtual time and one of real time; these cannot be \
                    compared"
            .into());
    }
    let rate = |document: &Document, size: &Genome| {
        let at = document.results.sizes.iter().find(|at| at.size == *size)?;
        let of_mlr = || at.mlr.as_ref()?.first()?.throughput_pps;
        at.throughput
            .as_ref()
            .and_then(|answer| answer.load)
            .map(crate::line::Load::pps)
            .or_else(of_mlr)
    };
    let has = |size: &Genome| b.results.sizes.iter().any(|at| at.size == *size);
    let sizes: Vec<Pair> = a
        .results
        .sizes
        .iter()
        .filter(|at| has(&at.size))
        .map(|at| {
            let (a_pps, b_pps) = (rate(a, &at.size), rate(b, &at.size));
            let ratio = a_pps.zip(b_pps).map(|(a, b)| b / a);
            let other = b.results.sizes.iter().find(|other| other.size == at.size);
            let spreads = at.spread.as_ref().zip(other.and_then(|other| other.spread.as_ref()));
            let overlap = spreads.filter(|(a, b)| !differ(a, b));
            let is_limited = |at: &AtSize| tester_limited(at) > 0;
            let limited = match (is_limited(at), other.is_some_and(is_limited)) {
                (false, false) => None,
                (true, false) => Some("A is at least this: the tester's limit"),
                (false, true) => Some("B is at least this: the tester's limit"),
                (true, true) => Some("both are at least this: the tester's limit"),
            };
            let inconclusive =
                limited.or(overlap.map(|_| "repetitions overlap")).map(str::to_owned);
            Pair { size: at.size.clone(), a_pps, b_pps, ratio, inconclusive }
        })
        .collect();
    if sizes.is_empty() {
        return Err("the results have no frame size in common".into());
    }
    let (pa, pb) = (&a.results.profile, &b.results.profile);
    let pairs = [
        ("profile", pa.name == pb.name),
        ("line", pa.line == pb.line),
        ("ports", pa.topology == pb.topology),
        ("trial length", (pa.full, pa.short) == (pb.full, pb.short)),
        ("waits", pa.waits == pb.waits),
        ("repetitions", pa.repeats == pb.repeats),
        ("resolution", pa.width_ppm == pb.width_ppm),
        ("goals", pa.goals == pb.goals),
        ("flows", pa.flows == pb.flows),
        ("mix", pa.mix == pb.mix),
        ("addresses", pa.addresses == pb.addresses),
        ("family", pa.family == pb.family),
        ("broadcasts", pa.broadcast_every == pb.broadcast_every),
        ("filters", pa.filters == pb.filters),
        ("cover", pa.cover == pb.cover),
        ("speed", pa.speed == pb.speed),
        ("load", pa.soak.1 == pb.soak.1),
        ("limits of the tester", pa.limits == pb.limits),
        ("seed", pa.seed == pb.seed),
        ("version", a.version == b.version),
        ("machine", a.time == Time::Virtual || a.machine.processor == b.machine.processor),
    ];
    let differences = pairs.into_iter().filter(|(_, same)| !same).map(|(what, _)| what.to_owned());
    Ok(Comparison {
        a: a.device.clone(),
        b: b.device.clone(),
        time: a.time,
        sizes,
        differences: differences.collect(),
    })
}

impl Comparison {
    /// The comparison as a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let time = if self.time == Time::Virtual { "virtual time" } else { "real time" };
        let mut table = Table::new(format!("Throughput of two platforms, per port ({time})"))
            .column(Column::number("size").unit("bytes"))
            .column(Column::number("A").unit("frames/s"))
            .column(Column::number("B").unit("frames/s"))
            .column(Column::number("B / A"))
            .column(Column::text(""));
        let rate = |rate: Option<f64>| rate.map_or("none".to_owned(), |rate| format!("{rate:.1}"));
        for pair in &self.sizes {
            table.push([
                Cell::new(pair.size.to_string()),
                Cell::new(rate(pair.a_pps)),
                Cell::new(rate(pair.b_pps)),
                Cell::new(pair.ratio.map_or("-".into(), |r| format!("{r:.3}"))).tone(Tone::Strong),
                Cell::new(
                    pair.inconclusive.as_ref().map_or_else(String::new, |why| {
                        format!("no significant difference: {why}")
                    }),
                ),
            ]);
        }
        table = table.note(format!("A: {}", self.a)).note(format!("B: {}", self.b));
        if self.differences.is_empty() {
            table
        } else {
            table.note(format!("The runs differ in: {}", self.differences.join(", ")))
        }
    }
}
