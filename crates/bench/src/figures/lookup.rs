//! The lookups of the KTH slides, measured with flowyard's tables on this machine.

use flowyard_flow::table::{Exact, Linear, Rule};
use flowyard_frame::{Action, FlowKey, proto};
use flowyard_report::exhibit::{Exhibit, Kind, Made, Spec, Spread};
use flowyard_report::{Axis, Plot, Unit};
use flowyard_yard::Clock;

use crate::machine::Before;
use crate::stats::least;

pub(super) const NAME: &str = "kth-here";

const ENTRIES: [usize; 5] = [1, 100, 1100, 4100, 8100];
/// Lookups in a run.
const RUN: usize = 256;
/// Runs; the fastest is used, because other load can only add time.
const RUNS: usize = 40;

fn key(n: usize) -> FlowKey {
    let [client, server] =
        [[10, 1, (n >> 8) as u8, n as u8], [10, 2, 0, 1]].map(std::net::Ipv4Addr::from);
    FlowKey::five_tuple(proto::UDP, client.into(), 4000, server.into(), 53)
}

/// Nanoseconds per lookup: the least of the runs, and all of them.
fn time(
    keys: &[FlowKey],
    clock: &Clock,
    mut get: impl FnMut(&FlowKey) -> bool,
) -> anyhow::Result<(f64, Vec<f64>)> {
    let (mut runs, mut found) = (Vec::new(), true);
    for _ in 0..RUNS {
        let began = clock();
        for key in keys {
            found &= std::hint::black_box(get(std::hint::black_box(key)));
        }
        runs.push(clock().saturating_sub(began) as f64 / keys.len() as f64);
    }
    anyhow::ensure!(found, "a table does not find an entry that was added to it");
    Ok((least(runs.iter().copied()), runs))
}

/// Nanoseconds per lookup in an exact table with this number of entries.
pub(crate) fn exact_ns(entries: usize, clock: &Clock) -> anyhow::Result<f64> {
    Ok(exact(entries, clock)?.0)
}

fn exact(entries: usize, clock: &Clock) -> anyhow::Result<(f64, Vec<f64>)> {
    let mut exact = Exact::new(entries, &FlowKey::FLOW, 1);
    for n in 0..entries {
        let full = |reason| anyhow::anyhow!("exact table of {entries} entries: {reason:?}");
        exact.put(&key(n), Action::queue(1)).map_err(full)?;
    }
    let spread: Vec<FlowKey> = (0..RUN).map(|n| key(n * 7919 % entries)).collect();
    time(&spread, clock, |key| exact.get(key).is_some())
}

pub(super) fn make(clock: &Clock) -> anyhow::Result<Exhibit> {
    let spec = Spec::parse(NAME, include_str!("../../../../figures/kth-here.toml"))?;
    let (mut made, before) = (Made::of(Kind::Measured), Before::read());
    let mut lines: [Vec<(f64, f64)>; 2] = Default::default();
    for entries in ENTRIES {
        let mut linear = Linear::new(entries);
        for n in 0..entries {
            let (key, mask, action) = (key(n), FlowKey::FLOW, Action::queue(1));
            let full = |reason| anyhow::anyhow!("linear table of {entries} entries: {reason:?}");
            linear.put(&Rule { key, mask, priority: 0, action }).map_err(full)?;
        }
        // As in the slides: the lookup of the last entry, which takes longest in a linear table.
        let last = vec![key(entries - 1); RUN.min(200_000 / entries + 1)];
        let times = [
            ("linear", time(&last, clock, |key| linear.get(key).is_some())?),
            ("exact", exact(entries, clock)?),
        ];
        for (line, (name, (ns, runs))) in lines.iter_mut().zip(times) {
            let row = format!("{entries} {}", if entries == 1 { "entry" } else { "entries" });
            made.push_measured(format!("{row}, {name}"), ns, Spread::of(&runs));
            line.push((entries as f64, ns));
        }
    }
    made.conditions = Some(before.conditions());
    let [linear, exact] = lines;
    made.plots = vec![
        Plot::new(
            "One lookup on this machine",
            Axis::log("entries", Unit::Plain("")),
            Axis::log("nanoseconds", Unit::Plain("")),
        )
        .line("linear", linear)
        .line("exact", exact),
    ];
    Ok(spec.with(made)?)
}
