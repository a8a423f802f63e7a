//! Latency of the engine against its load, in real time, with ports in memory.
//!
//! ```text
//!  schedule: frame n is due at t(n)          drawn before, whatever the engine does
//!     t(n) ──> rx: all frames that are due ──> the engine ──> tx: latency = time now - t(n)
//! ```
//!
//! The load is *open loop*: a frame that the engine takes late keeps the time at which it was due, so that a pause of
//! the engine counts in the latency of every frame that was due meanwhile, not only of one (coordinated omission). The
//! times between frames are drawn from an exponential distribution. Nothing is lost: frames wait at the port.
//!
//! Loads are shares of the throughput that the same ports reached immediately before. At the end of each measurement,
//! the order of every flow and the number of frames are checked.
//!
//! Thread-safety: each port belongs to a core; at its end, the transmitting port sends its results by a channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, ensure};
use flowyard_frame::Nanos;
use flowyard_rfc2544::document::Machine;
use flowyard_rfc2544::latency::Latency;
use flowyard_yard::{Clock, Parts, Yard};
use schemars::JsonSchema;
use serde::Serialize;

use crate::live::quiet::{Others, Rounds};
use crate::machine::Before;
use crate::rounds::{Case, Load, Source};
use crate::stats::median;

mod ports;
pub(crate) mod schedule;

use ports::{Arrivals, Departures, Log, Times};
use schedule::Schedule;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Job {
    /// Number of times that each point is measured.
    pub rounds: usize,
    /// Duration of each measurement.
    pub time: Duration,
    /// Loads, as shares of the throughput.
    pub loads: Vec<f64>,
}

/// The results of all measurements.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Results {
    /// The machine.
    pub machine: Machine,
    /// Number of times that each point was measured.
    pub rounds: usize,
    /// Rounds in which other programs used no more than 5 % of the CPU time of all processors.
    pub quiet_rounds: usize,
    /// The largest share of this CPU time that other programs used in a round, 0 to 1.
    pub others_share: f64,
    /// Duration of each measurement, in nanoseconds.
    pub time_ns: Nanos,
    /// Number of flows.
    pub flows: u64,
    /// One for each number of cores and order.
    pub curves: Vec<Curve>,
}

/// Latency against load.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Curve {
    /// Number of cores.
    pub cores: u16,
    /// Order of the queue: `direct`, `atomic` or `ordered`.
    pub order: &'static str,
    /// Number of cores that work on frames.
    pub workers: usize,
    /// Frames per second without a schedule, the median of the rounds.
    pub throughput_pps: f64,
    /// By load.
    pub points: Vec<Point>,
}

/// Latency at a load; all values are medians of the rounds.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Point {
    /// The load as a share of the throughput that was measured in the same round.
    pub load: f64,
    /// Frames per second that were due.
    pub offered_pps: f64,
    /// Frames per second that left. It is less than `offered_pps` if the engine could not keep up.
    pub achieved_pps: f64,
    /// Median latency.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// 99.9th percentile.
    pub p999_ns: f64,
    /// The largest latency of a frame.
    pub max_ns: f64,
}

/// Number of flows; each frame's flow is drawn with equal probability.
const FLOWS: u64 = 8192;

/// Number of cores, order of the queue, and the cores that work on it.
const CASES: [(u16, &str, &[u16]); 6] = [
    (1, "direct", &[0]),
    (1, "atomic", &[0]),
    (1, "ordered", &[0]),
    (2, "direct", &[1]),
    (2, "atomic", &[0, 1]),
    (2, "ordered", &[0, 1]),
];

/// One measurement.
struct Run {
    offered_pps: f64,
    achieved_pps: f64,
    latency: Latency,
}

/// Measures all curves. `progress` is called after each measurement with the number of those done and of all.
///
/// # Errors
/// When a run cannot start, loses or duplicates a frame, or reorders a flow.
pub fn measure(
    job: &Job,
    clock: &Clock,
    progress: &dyn Fn(usize, usize),
) -> anyhow::Result<Results> {
    let before = Before::read();
    let steps = job.rounds * CASES.len() * (1 + job.loads.len());
    let mut done = 0;
    let mut step = || {
        done += 1;
        progress(done, steps);
    };
    let mut throughputs = vec![Vec::new(); CASES.len()];
    let mut runs: Vec<Vec<Vec<Run>>> =
        CASES.iter().map(|_| job.loads.iter().map(|_| Vec::new()).collect()).collect();
    let mut quiet = Rounds::new(job.rounds);
    for round in 0..job.rounds as u64 {
        let others = Others::from(None);
        for (at, case) in CASES.iter().enumerate() {
            let most = run(&case_of(case), None, round, job.time, clock)?.achieved_pps;
            throughputs[at].push(most);
            step();
            for (load, runs) in job.loads.iter().zip(&mut runs[at]) {
                let offered = (load * most).max(1.0);
                runs.push(run(&case_of(case), Some(offered), round, job.time, clock)?);
                step();
            }
        }
        quiet.add(others.share());
    }
    let curves = CASES.iter().zip(throughputs.iter_mut().zip(&runs));
    let curves = curves.map(|(&(cores, order, consumers), (most, runs))| Curve {
        cores,
        order,
        workers: consumers.len(),
        throughput_pps: median(most),
        points: job.loads.iter().zip(runs).map(|(&load, runs)| point(load, runs)).collect(),
    });
    let (rounds, time_ns) = (job.rounds, job.time.as_nanos() as Nanos);
    let (quiet_rounds, others_share) = quiet.quiet();
    Ok(Results {
        machine: before.machine(),
        rounds,
        quiet_rounds,
        others_share,
        time_ns,
        flows: FLOWS,
        curves: curves.collect(),
    })
}

fn case_of(&(cores, order, consumers): &(u16, &'static str, &[u16])) -> Case {
    Case {
        cores,
        order,
        consumers: consumers.to_vec(),
        load: Load::Forward,
        flows: FLOWS,
        source: Source::Random,
        exact: false,
        length: 60,
    }
}

fn point(load: f64, runs: &[Run]) -> Point {
    let of = |value: fn(&Run) -> f64| median(&mut runs.iter().map(value).collect::<Vec<_>>());
    Point {
        load,
        offered_pps: of(|run| run.offered_pps),
        achieved_pps: of(|run| run.achieved_pps),
        p50_ns: of(|run| run.latency.p50_ns as f64),
        p99_ns: of(|run| run.latency.p99_ns as f64),
        p999_ns: of(|run| run.latency.p999_ns as f64),
        max_ns: of(|run| run.latency.max_ns as f64),
    }
}

/// An engine with these ports, and where its results will arrive.
struct Loaded {
    yard: Yard,
    offered: Arc<AtomicU64>,
    log: Receiver<Log>,
}

/// The engine of `case` with an offered load in frames per second; without one, frames are always due.
fn load(
    case: &Case,
    offered: Option<f64>,
    seed: u64,
    time: Duration,
    clock: &Clock,
) -> anyhow::Result<Loaded> {
    let (sender, log): (Sender<Log>, _) = channel();
    let count = Arc::new(AtomicU64::new(0));
    let times = Times::of(time);
    let schedule = offered.map(|pps| Schedule::new(pps, seed));
    let mut parts = Parts { clock: None, ..Parts::default() };
    let rx = Arrivals::new(&case.frames(), schedule, times, Arc::clone(&count));
    parts.rx.insert(0, Box::new(rx));
    parts.tx.insert(1, Box::new(Departures::new(case.flows, Arc::clone(clock), sender)));
    let yard = case.config(0)?.build(parts).context("the bench's own yard")?;
    Ok(Loaded { yard, offered: count, log })
}

/// Measures once.
fn run(
    case: &Case,
    offered: Option<f64>,
    seed: u64,
    time: Duration,
    clock: &Clock,
) -> anyhow::Result<Run> {
    let Loaded { yard, offered: count, log } = load(case, offered, seed, time, clock)?;
    let running = yard.start(Arc::clone(clock)).context("starting a thread for a core")?;
    let outcome = running.join(); // the schedule ends
    ensure!(outcome.is_balanced(), "the frame counters of a run do not balance");
    let log = log.recv().context("the transmitting port sent no results")?;
    log.check(count.load(Ordering::Relaxed))
        .with_context(|| format!("{} cores, {} queue", case.cores, case.order))?;
    let achieved_pps = log.pps();
    Ok(Run {
        offered_pps: offered.unwrap_or(achieved_pps),
        achieved_pps,
        latency: log.recorder.finish(),
    })
}

#[cfg(test)]
mod tests;
