//! memcached with two threads on two CPUs: the share of requests that are received on the CPU of their thread, requests
//! per second, and latency, in closed and in open loop.
//!
//! `crate::load` has the generator.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use flowyard_frame::Nanos;
use flowyard_rfc2544::document::Machine;
use flowyard_yard::Clock;
use schemars::JsonSchema;
use serde::Serialize;

use super::rig::Rig;
use super::{Frames, Spread, Way};
use crate::live::quiet::Others;
use crate::load::clients::{Clients, PORT, server};
use crate::load::protocol::{Protocol, Records};
use crate::load::{Pace, Tally};
use crate::machine::Before;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The program flowyard.
    pub program: &'a Path,
    /// The ways of steering.
    pub ways: Vec<Way>,
    /// Number of times that each is measured.
    pub rounds: usize,
    /// Duration of each measurement, of which there are two for each way and round.
    pub time: Duration,
    /// Load in open loop, as a share of the rate in closed loop without steering.
    pub load: f64,
    /// Number of connections.
    pub connections: usize,
    /// Share of requests that store a value.
    pub sets: f64,
    /// The date now.
    pub date: &'a str,
    /// Version and commit of this program.
    pub build: &'a str,
}

/// The results.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Results {
    /// When the measurement began.
    pub date: String,
    /// Version and commit of the program.
    pub build: String,
    /// The machine.
    pub machine: Machine,
    /// Number of rounds; each measures all ways, beginning with another one.
    pub rounds: usize,
    /// Duration of each measurement, in nanoseconds.
    pub time_ns: Nanos,
    /// Number of connections.
    pub connections: usize,
    /// Share of requests that store a value; the others read one.
    pub sets_share: f64,
    /// Requests per second that are due in open loop.
    pub offered_rps: f64,
    /// The largest share of the CPU time that other programs used while `none`, `rps` or `rfs` was measured. The kernel's
    /// threads, which `flowyard steer` uses, cannot be distinguished from other programs.
    pub others_share: f64,
    /// By way of steering.
    pub ways: Vec<Measured>,
}

/// One way of steering.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Measured {
    /// The way.
    pub way: Way,
    /// Closed loop: each connection sends its next request after the answer.
    pub closed: Load,
    /// Open loop: requests are due at random times that do not depend on answers.
    pub open: Load,
    /// Rate in closed loop divided by that of the kernel's RFS in the same round, if that was measured.
    pub to_rfs: Option<Spread>,
    /// Frames that `flowyard steer` counted in all rounds, by the stage that decided.
    pub frames: Frames,
}

/// One kind of load; each value is a median of the rounds, with extremes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Load {
    /// Share of requests whose last segment was received on the CPU of the thread that serves them.
    pub local_share: Spread,
    /// Answers per second.
    pub rps: Spread,
    /// Median latency, from the time at which a request was due.
    pub p50_ns: Spread,
    /// 99th percentile of the latency.
    pub p99_ns: Spread,
    /// 99.9th percentile of the latency.
    pub p999_ns: Spread,
    /// 99th percentile of the time from when a request was due until the generator sent it; part of the latency.
    pub sent_late_p99_ns: Spread,
}

/// Both loads of one way in one round.
struct Round {
    closed: Tally,
    open: Option<Tally>,
    frames: Frames,
    others: f64,
}

/// The records in memcached.
const RECORDS: Records = Records { keys: 1000, key_bytes: 9, value_bytes: 100 };
/// The memory of memcached, more than the records need.
const MEGABYTES: u64 = 64;
/// How long answers are waited for after the last request.
const PATIENCE: Nanos = 5_000_000_000;

/// Measures all ways of `job`. `progress` is called after each with the number of those done and of all.
///
/// # Errors
/// When the hosts cannot be made, a program fails, or a request is not answered.
pub fn measure(
    job: &Job<'_>,
    clock: &Clock,
    progress: &dyn Fn(usize, usize),
) -> anyhow::Result<Results> {
    let before = Before::read();
    let steps = 1 + job.rounds * job.ways.len();
    let rate = |tally: &Tally| tally.answers as f64 / job.time.as_secs_f64();
    let offered = job.load * rate(&run(job, Way::None, None, 0, clock)?.closed);
    progress(1, steps);
    let mut rounds: Vec<Vec<Round>> = job.ways.iter().map(|_| Vec::new()).collect();
    let mut others = 0.0_f64;
    for round in 0..job.rounds {
        for step in 0..job.ways.len() {
            let at = (round + step) % job.ways.len();
            let way = job.ways[at];
            let done = run(job, way, Some(offered), round as u64, clock).context(way.name())?;
            if way.arguments().is_none() {
                others = others.max(done.others);
            }
            rounds[at].push(done);
            progress(2 + round * job.ways.len() + step, steps);
        }
    }
    let rfs = job.ways.iter().position(|way| *way == Way::Rfs).map(|at| &rounds[at]);
    let measured = job.ways.iter().zip(&rounds).map(|(&way, rounds)| {
        let ratio = |(mine, rfs): (&Round, &Round)| rate(&mine.closed) / rate(&rfs.closed).max(1.0);
        let to_rfs = rfs.map(|rfs| Spread::of(rounds.iter().zip(rfs).map(ratio).collect()));
        let mut frames = Frames::new();
        for (reason, count) in rounds.iter().flat_map(|round| &round.frames) {
            *frames.entry(reason.clone()).or_default() += count;
        }
        let closed: Vec<_> = rounds.iter().map(|round| &round.closed).collect();
        let open: Vec<_> = rounds.iter().filter_map(|round| round.open.as_ref()).collect();
        let (closed, open) = (load(&closed, job.time), load(&open, job.time));
        Measured { way, closed, open, to_rfs, frames }
    });
    Ok(Results {
        ways: measured.collect(),
        date: job.date.into(),
        build: job.build.into(),
        machine: before.machine(),
        rounds: job.rounds,
        time_ns: job.time.as_nanos() as Nanos,
        connections: job.connections,
        sets_share: job.sets,
        offered_rps: offered,
        others_share: others,
    })
}

fn load(tallies: &[&Tally], time: Duration) -> Load {
    let spread =
        |of: &dyn Fn(&Tally) -> f64| Spread::of(tallies.iter().map(|tally| of(tally)).collect());
    let finished: Vec<_> = tallies.iter().map(|tally| tally.latency.finish()).collect();
    let ns = |of: fn(&flowyard_rfc2544::latency::Latency) -> Nanos| {
        Spread::of(finished.iter().map(|one| of(one) as f64).collect())
    };
    Load {
        local_share: spread(&|tally| tally.local as f64 / tally.checked.max(1) as f64),
        rps: spread(&|tally| tally.answers as f64 / time.as_secs_f64()),
        p50_ns: ns(|one| one.p50_ns),
        p99_ns: ns(|one| one.p99_ns),
        p999_ns: ns(|one| one.p999_ns),
        sent_late_p99_ns: spread(&|tally| tally.lateness.finish().p99_ns as f64),
    }
}

/// Measures one way: in closed loop, and then at `offered` requests per second.
fn run(
    job: &Job<'_>,
    way: Way,
    offered: Option<f64>,
    seed: u64,
    clock: &Clock,
) -> anyhow::Result<Round> {
    let rig = Rig::new(job.program)?;
    let steering = rig.steer(way)?;
    let server = server(&rig.hosts, rig.cpus, job.connections, MEGABYTES)?;
    let mut clients = Clients::connect(&rig.hosts, &server, rig.cpus, job.connections, RECORDS)?;
    RECORDS.store(rig.hosts.connect(PORT, 1)?.remove(0), 0..RECORDS.keys)?;
    let others = Others::from(Some(server.child.id()));
    let protocol = Protocol::Memcached { records: RECORDS, sets: job.sets };
    let mut both = [Some(Pace::Closed), offered.map(Pace::Open)]
        .into_iter()
        .flatten()
        .map(|pace| clients.run(protocol, pace, job.time, PATIENCE, seed, clock));
    let closed = both.next().context("no load")??;
    let open = both.next().transpose()?;
    drop(both);
    let others = others.share();
    Ok(Round { closed, open, frames: steering.end()?, others })
}
