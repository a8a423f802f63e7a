//! Two platforms side by side, with ratios: what Lanner's figures 2 and 3 show.

use flowyard_report::{Cell, Column, Table, Tone};
use serde::{Deserialize, Serialize};

use super::{Document, Time};
use crate::traffic::Genome;

/// Throughput of two platforms at one size, in frames a second for each port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Pair {
    /// The size.
    pub size: Genome,
    /// The first platform's.
    pub a_pps: Option<f64>,
    /// The second's.
    pub b_pps: Option<f64>,
    /// Second by first.
    pub ratio: Option<f64>,
    /// Why no difference can be told, where there are repetitions and they overlap.
    pub cannot_tell: Option<String>,
}

/// All sizes that both have.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// The first platform.
    pub a: String,
    /// The second.
    pub b: String,
    /// Whose clock.
    pub time: Time,
    /// By size.
    pub sizes: Vec<Pair>,
    /// What is not the same in both, and so part of every ratio.
    pub differs: Vec<String>,
}

/// Puts `b` beside `a`.
///
/// # Errors
/// When one is of virtual and one of real time, or they have no size in common.
pub fn compare(a: &Document, b: &Document) -> Result<Comparison, String> {
    if a.time != b.time {
        return Err("one is of virtual and one of real time: they are never compared".into());
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
            let cannot_tell = spreads.filter(|(a, b)| !super::differ(a, b));
            let cannot_tell = cannot_tell.map(|_| "repetitions overlap".to_owned());
            Pair { size: at.size.clone(), a_pps, b_pps, ratio, cannot_tell }
        })
        .collect();
    if sizes.is_empty() {
        return Err("they have no frame size in common".into());
    }
    let (pa, pb) = (&a.results.profile, &b.results.profile);
    let pairs = [
        ("profile", pa.name == pb.name),
        ("line", pa.line == pb.line),
        ("ports", pa.topology == pb.topology),
        ("trial length", pa.full == pb.full),
        ("flows", (pa.flows, &pa.mix, pa.addresses) == (pb.flows, &pb.mix, pb.addresses)),
        ("family", pa.family == pb.family),
        ("seed", pa.seed == pb.seed),
        ("machine", a.time == Time::Virtual || a.machine.processor == b.machine.processor),
    ];
    let differs = pairs.into_iter().filter(|(_, same)| !same).map(|(what, _)| what.to_owned());
    Ok(Comparison {
        a: a.device.clone(),
        b: b.device.clone(),
        time: a.time,
        sizes,
        differs: differs.collect(),
    })
}

impl Comparison {
    /// As a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let time = if self.time == Time::Virtual { "virtual time" } else { "real time" };
        let mut table = Table::new(format!("Throughput of two platforms, each port ({time})"))
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
                Cell::new(pair.cannot_tell.as_ref().map_or("", |_| "no difference can be told")),
            ]);
        }
        table = table.note(format!("A: {}", self.a)).note(format!("B: {}", self.b));
        if self.differs.is_empty() {
            table
        } else {
            table.note(format!("Not the same in both: {}", self.differs.join(", ")))
        }
    }
}
