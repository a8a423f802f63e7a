//! Compares the closed-loop host model with this machine: memcached with RPS and RFS, measured and
//! predicted.

use flowyard_hostsim::Profile;
use flowyard_hostsim::closed::{Costs, Setup, Steering};
use flowyard_hostsim::paper::Context;
use flowyard_report::exhibit::{Exhibit, Input, Kind, Made, Spec, Spread};
use flowyard_report::{Axis, Plot, Unit};
use flowyard_yard::Clock;

use crate::live::memcached::{CLIENTS, CONNECTIONS, Measured, measure};
use crate::live::obstacle;
use crate::live::quiet::Rounds;
use crate::machine::Before;
use crate::stats::median;

pub(super) const NAME: &str = "host-rps-rfs";

const ROUNDS: usize = 9;
const STEERINGS: [(&str, Steering); 3] =
    [("none", Steering::None), ("RPS", Steering::Rps), ("RFS", Steering::Rfs)];
const SERVERS: [u16; 2] = [1, 2];

/// Runs of the model; each draws other flow hashes.
const SEEDS: u64 = 25;

/// The model's requests per second, and the share of packets received on the server thread's CPU.
fn predict(here: &Profile, steering: Steering, servers: u16) -> anyhow::Result<Measured> {
    let costs = Costs::of(here)?;
    let (clients, connections, time) = (CLIENTS, CONNECTIONS, [5_000_000, 40_000_000]);
    let (mut rate, mut share) = (Vec::new(), Vec::new());
    for seed in 0..SEEDS {
        let setup = Setup { costs, steering, servers, clients, connections, seed, time };
        let outcome = setup.run();
        anyhow::ensure!(
            outcome.is_balanced(),
            "the packet counters of a simulation do not balance"
        );
        rate.push(outcome.rate);
        share.push(outcome.local_share);
    }
    Ok(Measured { rate: median(&mut rate), local_share: mean(&share), others: 0.0 })
}

/// The constants that the model reads, which are those of [`Costs::of`].
fn inputs(here: &Profile) -> Vec<Input> {
    let groups =
        ["tcp_", "epoll_", "fifo_", "rps_", "idle_exit_", "idle_wake_", "memcached_request_"];
    let names: Vec<&str> = here.constants.keys().map(String::as_str).collect();
    let used = names.into_iter().filter(|name| groups.iter().any(|group| name.starts_with(group)));
    here.inputs(&used.collect::<Vec<_>>())
}

/// The name of a row.
fn row(servers: u16, steering: &str, what: &str) -> String {
    let plural = if servers == 1 { "" } else { "s" };
    format!("{servers} server thread{plural}, {steering}: {what}")
}

const RATE: &str = "thousand requests/s";
const SHARE: &str = "received on the server's processor, %";

/// The rows that the model predicts from `here`: rates, then shares.
pub(super) fn predicted(here: &Profile) -> anyhow::Result<Vec<(String, f64)>> {
    let (mut rates, mut shares) = (Vec::new(), Vec::new());
    for servers in SERVERS {
        for (name, steering) in STEERINGS {
            let model = predict(here, steering, servers)?;
            rates.push((row(servers, name, RATE), model.rate / 1e3));
            shares.push((row(servers, name, SHARE), 100.0 * model.local_share));
        }
    }
    Ok([rates, shares].concat())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / (values.len() as f64).max(1.0)
}

/// Measures every steering with every number of server threads. Returns the runs of each, in the order of
/// [`SERVERS`] and [`STEERINGS`], and the rounds.
fn measure_all(clock: &Clock) -> anyhow::Result<(Vec<Vec<Measured>>, Rounds)> {
    let mut runs = vec![Vec::new(); STEERINGS.len() * SERVERS.len()];
    let mut rounds = Rounds::new(ROUNDS);
    for round in 0.. {
        if !rounds.go_on() {
            break;
        }
        let mut others = 0.0f64;
        let ways = SERVERS.iter().flat_map(|n| STEERINGS.iter().map(move |way| (n, way)));
        for (runs, (servers, (_, steering))) in runs.iter_mut().zip(ways) {
            let run = measure(*steering, usize::from(*servers), round * 100, clock)?;
            others = others.max(run.others);
            runs.push(run);
        }
        rounds.add(others);
    }
    Ok((runs, rounds))
}

pub(super) fn make(context: &Context, clock: &Clock) -> anyhow::Result<Exhibit> {
    let spec = Spec::parse(NAME, include_str!("../../../../figures/host-rps-rfs.toml"))?;
    let skipped = |spec: Spec, why: String| {
        let mut made = Made::default();
        made.note(format!("Skipped: {why}."));
        Ok(spec.with(made)?)
    };
    if let Some(why) = obstacle() {
        return skipped(spec, why.to_owned());
    }
    let here = context.here.as_ref();
    let here = here.ok_or_else(|| anyhow::anyhow!("the costs of this machine are missing"))?;
    if let Err(why) = Costs::of(here) {
        return skipped(spec, why.to_string());
    }
    let before = Before::read();
    let (runs, rounds) = measure_all(clock)?;
    let (mut made, mut shares) = (Made::default(), Vec::new());
    let mut bars: [Vec<f64>; 4] = Default::default();
    let mut runs = runs.into_iter();
    made.using(Kind::Predicted, inputs(here));
    for servers in SERVERS {
        for (name, steering) in STEERINGS {
            let measured: Vec<Measured> = runs.next().unwrap_or_default();
            let rates: Vec<f64> = measured.iter().map(|run| run.rate / 1e3).collect();
            let local: Vec<f64> = measured.iter().map(|run| 100.0 * run.local_share).collect();
            let rate = Spread::of(&rates).map_or(0.0, |spread| spread.median);
            let share = mean(&local) / 100.0;
            let model = predict(here, steering, servers)?;
            let beside = Some((rate, Spread::of(&rates)));
            made.push_against(row(servers, name, RATE), beside, model.rate / 1e3);
            let beside = (100.0 * share, Spread::of(&local));
            shares.push((row(servers, name, SHARE), beside, 100.0 * model.local_share));
            for (bars, value) in
                bars.iter_mut().zip([rate, model.rate / 1e3, share, model.local_share])
            {
                bars.push(value);
            }
        }
    }
    let plural = |n: u16| if n == 1 { "" } else { "s" };
    let ways: Vec<String> = SERVERS
        .iter()
        .flat_map(|n| {
            STEERINGS.iter().map(move |(name, _)| format!("{name}, {n} thread{}", plural(*n)))
        })
        .collect();
    let [rate, model_rate, share, model_share] = bars;
    made.plots = vec![
        Plot::new(
            "memcached: request rate",
            Axis::categories("", ways.clone()),
            Axis::linear("thousand requests/s", Unit::Plain("")),
        )
        .bars("measured", rate)
        .bars("predicted", model_rate),
        Plot::new(
            "Packets received on the server thread's CPU",
            Axis::categories("", ways),
            Axis::linear("share", Unit::Share).range(0.0, 1.0),
        )
        .bars("measured", share)
        .bars("predicted", model_share),
    ];
    for (name, measured, model) in shares {
        made.push_against(name, Some(measured), model);
    }
    made.conditions = Some(rounds.conditions(&before));
    made.notes.extend(rounds.warning().map(str::to_owned));
    Ok(spec.with(made)?)
}
