//! memcached under loads that do not wait for it, with the kernel's ways of steering and the yard's: latency and processor
//! time against the offered rate, up to the wall.
//!
//! ```text
//!  for each round, for each way:  site ──> memcached, records ──> rate 1, rate 2, ... until two in a row do not hold
//! ```
//!
//! `crate::load` has the generator: the time at which a request is due is drawn before, and its latency counts from that
//! time, so that a pause is in the latency of each request that was due meanwhile (no coordinated omission). Every answer
//! is compared with the value that its key has. A request without an answer, or with a wrong one, fails the measurement.
//!
//! Each round begins with another way. All ways of a rate are compared under what the machine did at that time only in
//! the median of the rounds.
//!
//! Thread-safety: plain functions, which start threads and processes, and end them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use flowyard_frame::Nanos;
use flowyard_rfc2544::document::Machine;
use flowyard_rfc2544::latency::Latency;
use flowyard_yard::Clock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::load::clients::{Clients, PORT, cpus, server};
use crate::load::protocol::{Protocol, Records};
use crate::load::{Pace, Tally};
use crate::machine::Before;

mod cpu;
mod curve;
mod locality;
mod model;
mod order;
mod site;

pub use cpu::Cost;
use cpu::{Meter, Used};
pub use curve::{Curve, Point};
pub use locality::{Locality, LocalityPoint};
pub use model::{Model, Predicted, PredictedPoint};
pub use order::{Against, Earlier, Pair};
use site::Site;

/// What connects the hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    /// A veth: no yard.
    Veth,
    /// A yard with `af_packet` ports on two veths.
    Packet,
    /// A yard with a TAP for the server, and an `af_packet` port.
    Tap,
}

/// How the CPU of a frame is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Policy {
    None,
    Rps,
    Hash,
    Atr,
    Rfs,
}

/// How requests reach the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// A veth without steering: the CPU that sends a frame receives it.
    None,
    /// A veth with the kernel's RPS.
    Rps,
    /// A veth with the kernel's RPS and RFS.
    Rfs,
    /// A yard between two veths, by hash.
    YardHash,
    /// A yard between two veths, with the learner `atr`.
    YardAtr,
    /// A yard between two veths, with the learner `rfs`.
    YardRfs,
    /// A yard with a TAP for the server, by hash.
    TapHash,
    /// A yard with a TAP for the server, with the learner `atr`.
    TapAtr,
    /// A yard with a TAP for the server, with the learner `rfs`.
    TapRfs,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::None,
        Self::Rps,
        Self::Rfs,
        Self::YardHash,
        Self::YardAtr,
        Self::YardRfs,
        Self::TapHash,
        Self::TapAtr,
        Self::TapRfs,
    ];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "kernel, none",
            Self::Rps => "kernel, RPS",
            Self::Rfs => "kernel, RFS",
            Self::YardHash => "yard, hash",
            Self::YardAtr => "yard, ATR",
            Self::YardRfs => "yard, RFS",
            Self::TapHash => "yard and TAP, hash",
            Self::TapAtr => "yard and TAP, ATR",
            Self::TapRfs => "yard and TAP, RFS",
        }
    }

    const fn link(self) -> Link {
        match self {
            Self::None | Self::Rps | Self::Rfs => Link::Veth,
            Self::YardHash | Self::YardAtr | Self::YardRfs => Link::Packet,
            Self::TapHash | Self::TapAtr | Self::TapRfs => Link::Tap,
        }
    }

    const fn policy(self) -> Policy {
        match self {
            Self::None => Policy::None,
            Self::Rps => Policy::Rps,
            Self::YardHash | Self::TapHash => Policy::Hash,
            Self::YardAtr | Self::TapAtr => Policy::Atr,
            Self::Rfs | Self::YardRfs | Self::TapRfs => Policy::Rfs,
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The program flowyard.
    pub program: &'a Path,
    /// The ways.
    pub ways: Vec<Way>,
    /// Number of times that each is measured.
    pub rounds: usize,
    /// Duration of each measurement.
    pub time: Duration,
    /// Offered rates in requests per second, ascending.
    pub rates: Vec<f64>,
    /// The mean latency up to which a load holds.
    pub limit: Duration,
    /// Number of connections.
    pub connections: usize,
    /// Number of keys.
    pub keys: u64,
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
    /// A load holds if at least 95 % of the requests that were due are answered in the time of the measurement, with a mean
    /// latency of at most this many nanoseconds.
    pub limit_ns: Nanos,
    /// Number of connections.
    pub connections: usize,
    /// Number of keys, all equally frequent.
    pub keys: u64,
    /// Length of a key in bytes.
    pub key_bytes: usize,
    /// Length of a value in bytes.
    pub value_bytes: usize,
    /// Share of requests that store a value; the others read one.
    pub sets_share: f64,
    /// The largest share of the CPU time that other programs used in a measurement.
    pub others_share: f64,
    /// By way.
    pub ways: Vec<Curve>,
    /// Which of two ways has the higher wall, for each pair.
    pub order: Vec<Pair>,
    /// The order beside that of an earlier measurement; null without one.
    pub against: Option<Against>,
    /// What the yard's learner `atr` saves, for each link that was measured with and without it.
    pub locality: Vec<Locality>,
    /// What the model of an open loop predicts for the same loads; null without a profile.
    pub model: Option<Model>,
}

/// Length of a key, as in the models.
pub(crate) const KEY: usize = 30;
/// Length of a value, as in the Flow Director paper.
pub(crate) const VALUE: usize = 64;
/// How long answers are waited for after the last request: retransmissions of TCP take seconds.
const PATIENCE: Nanos = 20_000_000_000;

/// One rate of one way in one round. The histograms, of a megabyte each, are summarized at once.
struct Sample {
    requests: u64,
    answered: u64,
    sets: u64,
    /// Answers in the time of the measurement.
    answers: u64,
    local_share: f64,
    latency: Latency,
    sent_late_p99_ns: Nanos,
    used: Used,
    holds: bool,
}

impl Sample {
    fn of(tally: &Tally, used: Used, limit: Duration) -> Self {
        let latency = tally.latency.finish();
        Self {
            requests: tally.requests,
            answered: tally.answered,
            sets: tally.sets,
            answers: tally.answers,
            local_share: tally.local as f64 / tally.checked.max(1) as f64,
            sent_late_p99_ns: tally.lateness.finish().p99_ns,
            used,
            // The rule of the model.
            holds: flowyard_hostsim::open::holds(
                tally.answers,
                tally.due,
                latency.mean_ns,
                limit.as_nanos() as Nanos,
            ),
            latency,
        }
    }
}

/// One way in one round: a sample for each rate, up to the second in a row that does not hold.
struct Sweep {
    samples: Vec<Sample>,
    drops: BTreeMap<String, u64>,
}

impl Results {
    /// These results beside what was predicted for them.
    #[must_use]
    pub fn beside(mut self, model: Option<Model>) -> Self {
        self.model = model.map(|model| model.beside(&self.ways));
        self
    }

    /// These results with their order compared with that of an earlier measurement.
    #[must_use]
    pub fn against(mut self, earlier: Option<&Earlier>) -> Self {
        self.against = earlier.map(|earlier| Against::of(&self.order, earlier));
        self
    }
}

/// Measures all ways of `job`. `progress` is called after each rate with the number of those done and of all.
///
/// # Errors
/// When the hosts cannot be made, a program fails, or a request is not answered, or wrongly.
pub fn measure(
    job: &Job<'_>,
    clock: &Clock,
    progress: &dyn Fn(usize, usize),
) -> anyhow::Result<Results> {
    let before = Before::read();
    let (ways, rates) = (job.ways.len(), job.rates.len());
    let mut sweeps: Vec<Vec<Sweep>> = job.ways.iter().map(|_| Vec::new()).collect();
    for round in 0..job.rounds {
        for step in 0..ways {
            let at = (round + step) % ways;
            let done = (round * ways + step) * rates;
            let report = |rate| progress(done + rate, job.rounds * ways * rates);
            let way = job.ways[at];
            let sweep = sweep(job, way, round as u64, clock, &report).context(way.name())?;
            sweeps[at].push(sweep);
            report(rates);
        }
    }
    let samples = sweeps.iter().flatten().flat_map(|sweep| &sweep.samples);
    let others_share = samples.map(|sample| sample.used.others()).fold(0.0, f64::max);
    let curves = job.ways.iter().zip(&sweeps);
    let curves: Vec<_> =
        curves.map(|(way, sweeps)| Curve::of(*way, &job.rates, sweeps, job.time)).collect();
    Ok(Results {
        date: job.date.into(),
        build: job.build.into(),
        machine: before.machine(),
        rounds: job.rounds,
        time_ns: job.time.as_nanos() as Nanos,
        limit_ns: job.limit.as_nanos() as Nanos,
        connections: job.connections,
        keys: job.keys,
        key_bytes: KEY,
        value_bytes: VALUE,
        sets_share: job.sets,
        others_share,
        order: order::pairs(&curves),
        against: None,
        locality: locality::all(&job.ways, &job.rates, &sweeps),
        ways: curves,
        model: None,
    })
}

/// Measures one way at ascending rates, until two in a row do not hold: one alone may be another program's fault.
fn sweep(
    job: &Job<'_>,
    way: Way,
    seed: u64,
    clock: &Clock,
    report: &dyn Fn(usize),
) -> anyhow::Result<Sweep> {
    let cpus = cpus()?;
    let site = Site::new(way, job.program, cpus)?;
    let records = Records { keys: job.keys, key_bytes: KEY, value_bytes: VALUE };
    let server = server(&site.hosts, cpus, job.connections, records.megabytes())?;
    let mut clients = Clients::connect(&site.hosts, &server, cpus, job.connections, records)?;
    // On the server's own host: a yard is not measured with these.
    records.store(site.hosts.connect_from(&site.hosts.server, PORT, 1)?.remove(0), 0..job.keys)?;
    let protocol = Protocol::Memcached { records, sets: job.sets };
    let meter = Meter::new(server.child.id(), site.yard());
    let mut samples: Vec<Sample> = Vec::new();
    for (at, rate) in job.rates.iter().enumerate() {
        let before = meter.read();
        let pace = Pace::Open(*rate);
        let tally = clients.run(protocol, pace, job.time, PATIENCE, seed, clock);
        let tally = tally.with_context(|| format!("{rate:.0} requests per second"))?;
        let used = meter.read().since(before);
        samples.push(Sample::of(&tally, used, job.limit));
        report(at + 1);
        if samples.len() > 1 && samples[at - 1..].iter().all(|sample| !sample.holds) {
            break;
        }
    }
    drop((clients, server));
    Ok(Sweep { samples, drops: site.end()? })
}

/// Why these measurements are not possible here, if they are not.
#[must_use]
pub fn obstacle() -> Option<String> {
    crate::steer::obstacle(&[])
}
