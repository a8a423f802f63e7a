//! Conformance of event schedulers: the rules that users of Intel's DLB and of DPDK's event devices rely on, as a
//! program that runs against any DPDK event device and against flowyard's own queues, and their throughput beside.
//!
//! ```text
//!  producer ── NEW ──> stage 0 ──> worker ── FORWARD ──> stage 1 ... ──> last stage ──> consumer
//! ```
//!
//! One thread plays the producer, all workers, the consumer and, for a software device, the scheduler: so a case is the
//! same in each run.
//!
//! Thread-safety: everything is used by one thread.

#[cfg(feature = "dpdk")]
mod dpdk;
mod own;
mod rules;
#[cfg(test)]
mod tests;
mod twin;
#[cfg(feature = "dpdk")]
mod yards;

use flowyard_yard::Clock;
use schemars::JsonSchema;
use serde::Serialize;

use crate::Error;

/// The kinds of schedule of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Events leave in the order in which they entered, whatever order the workers finish in.
    Ordered,
    /// A flow is with one worker at a time.
    Atomic,
    /// Any worker, any order.
    Parallel,
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Item {
    /// Its number, from 0 in the order in which events enter.
    pub(crate) number: u32,
    pub(crate) flow: u32,
    /// The stage that a worker took it from.
    pub(crate) stage: u8,
}

/// What a worker does with an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Done {
    /// It goes to the next stage; after the last, to the consumer.
    Forward,
    /// It is dropped, and its place is given back.
    Release,
}

/// How a scheduler is set up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub(crate) stages: Vec<Kind>,
    pub(crate) workers: usize,
    /// The most events in flight.
    pub(crate) limit: u32,
    /// The number of events in flight from which on NEW is refused to the producer.
    pub(crate) threshold: u32,
    /// The most ordered events in flight.
    pub(crate) window: u32,
    /// Whether the second stage is urgent and the first is not; otherwise all are equal.
    pub(crate) urgent_last: bool,
}

/// Something that schedules events.
pub(crate) trait Scheduler {
    /// What it is, with its version.
    fn title(&self) -> String;

    /// Begins anew, without events. An error says why this plan is not possible.
    fn start(&mut self, plan: &Plan) -> Result<(), String>;

    /// Enters new events into stage 0; returns how many, from the first on.
    fn enter(&mut self, events: &[(u32, u32)]) -> usize;

    /// Gives up to `most` events to a worker. What it had and did not finish is released, if the scheduler does so.
    fn take(&mut self, worker: usize, most: usize) -> Vec<Item>;

    /// The worker finishes events, in this order. Returns how many the scheduler accepted.
    fn finish(&mut self, worker: usize, events: &[(Item, Done)]) -> usize;

    /// Lets the scheduler work.
    fn run(&mut self);

    /// The consumer takes what has arrived.
    fn consume(&mut self) -> Vec<Item>;

    /// The worker that the oldest event waits for, if the scheduler can name it.
    fn holder(&self) -> Option<usize> {
        None
    }

    /// Gives up on what a worker has; `false` if the scheduler cannot do that from outside.
    fn give_up(&mut self, _worker: usize) -> bool {
        false
    }
}

/// The result of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The scheduler keeps it.
    Kept,
    /// The scheduler does something else.
    Differs,
    /// The scheduler has nothing that the rule is about.
    Absent,
}

/// A rule, and what the scheduler does.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Row {
    /// The name of the rule.
    pub rule: &'static str,
    /// What it demands.
    pub demands: &'static str,
    /// The result.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
}

/// The throughput of a pipeline of one stage on one thread.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Rate {
    /// The kind of the stage.
    pub kind: Kind,
    /// Million events a second, the median of the rounds; absent if the scheduler has no such stage.
    pub million_per_s: Option<f64>,
    /// Events out of order, in all rounds; always 0 for parallel stages, whose order is not checked.
    pub misordered: u64,
    /// Events that did not arrive, in all rounds.
    pub lost: u64,
}

/// A yard over the device beside the same yard over flowyard's own queues.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Beside {
    /// Its cores and its queue.
    pub yard: &'static str,
    /// Million frames a second over flowyard's own queues, the median of the rounds.
    pub own_million_per_s: f64,
    /// Million frames a second over the device, the median of the rounds.
    pub device_million_per_s: f64,
    /// The rate over the device divided by that over flowyard's own queues, the median of the rounds' ratios.
    pub ratio: f64,
}

/// The result of a suite.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Results {
    /// The device, as the user named it.
    pub device: String,
    /// Its driver and version.
    pub title: String,
    /// A row for each rule.
    pub rules: Vec<Row>,
    /// Throughput; empty if it was not measured.
    pub rates: Vec<Rate>,
    /// Yards over the device; empty if they were not measured, or there can be none.
    pub yards: Vec<Beside>,
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// `own`, `dlb2-model`, or the name of a DPDK event device with its arguments.
    pub device: &'a str,
    /// EAL options of DPDK.
    pub options: &'a [String],
    /// The number of rounds of each rate; 0 measures none.
    pub rounds: usize,
    /// Events of a round.
    pub events: u32,
}

/// Runs the suite.
///
/// # Errors
/// When the device cannot be opened, or this program was built without DPDK.
pub fn measure(job: &Job<'_>, clock: &Clock) -> Result<Results, Error> {
    let mut scheduler = open(job)?;
    let rules = rules::all(scheduler.as_mut());
    let kinds = [Kind::Ordered, Kind::Atomic, Kind::Parallel];
    let rates = kinds.iter().filter(|_| job.rounds > 0);
    let rates = rates.map(|kind| rate(scheduler.as_mut(), *kind, job, clock)).collect();
    let (device, title) = (job.device.to_owned(), scheduler.title());
    drop(scheduler); // the yards use the device
    Ok(Results { device, title, rules, rates, yards: yards(job, clock)? })
}

/// The schedulers that need no DPDK.
fn built_in(device: &str) -> Option<Box<dyn Scheduler>> {
    match device {
        "own" => Some(Box::new(own::Own::default())),
        "dlb2-model" => Some(Box::new(twin::Twin::default())),
        _ => None,
    }
}

#[cfg(feature = "dpdk")]
fn open(job: &Job<'_>) -> Result<Box<dyn Scheduler>, Error> {
    if let Some(built_in) = built_in(job.device) {
        return Ok(built_in);
    }
    Ok(Box::new(dpdk::Dpdk::open(job.device, job.options).map_err(Error::input)?))
}

/// Measures yards over the device, if it is one of DPDK that a yard can use.
#[cfg(feature = "dpdk")]
fn yards(job: &Job<'_>, clock: &Clock) -> Result<Vec<Beside>, Error> {
    if job.rounds == 0 || built_in(job.device).is_some() {
        return Ok(Vec::new());
    }
    Ok(yards::measure(job, clock)?)
}

#[cfg(not(feature = "dpdk"))]
#[expect(clippy::unnecessary_wraps, reason = "as with DPDK")]
const fn yards(_: &Job<'_>, _: &Clock) -> Result<Vec<Beside>, Error> {
    Ok(Vec::new())
}

#[cfg(not(feature = "dpdk"))]
fn open(job: &Job<'_>) -> Result<Box<dyn Scheduler>, Error> {
    if let Some(built_in) = built_in(job.device) {
        return Ok(built_in);
    }
    Err(Error::Input(format!(
        "the device '{}' needs DPDK, and this flowyard was built without it; {}, or use --device own or --device dlb2-model",
        job.device,
        flowyard_ports::port::dpdk::BUILD
    )))
}

/// The number of events that move in one call.
const BURST: usize = 32;

/// Measures one stage: one thread enters, works, schedules and consumes.
fn rate(scheduler: &mut dyn Scheduler, kind: Kind, job: &Job<'_>, clock: &Clock) -> Rate {
    let mut rate = Rate { kind, million_per_s: None, misordered: 0, lost: 0 };
    let mut rates = Vec::new();
    for _ in 0..job.rounds {
        if scheduler.start(&rules::plan(&[kind], 1)).is_err() {
            return rate;
        }
        let began = clock();
        let (misordered, arrived) = pump(scheduler, kind, job.events);
        let elapsed = clock().saturating_sub(began).max(1);
        rate.misordered += misordered;
        rate.lost += u64::from(job.events.saturating_sub(arrived));
        rates.push(f64::from(arrived) * 1000.0 / elapsed as f64);
    }
    rates.sort_by(f64::total_cmp);
    rate.million_per_s = rates.get(rates.len() / 2).copied();
    rate
}

/// Moves events through one stage; returns how many were out of order, and how many arrived.
fn pump(scheduler: &mut dyn Scheduler, kind: Kind, events: u32) -> (u64, u32) {
    let (mut entered, mut arrived, mut misordered, mut idle) = (0, 0, 0, 0);
    let mut last = vec![None; rules::FLOWS as usize];
    let mut burst = Vec::with_capacity(BURST);
    let mut done = Vec::with_capacity(BURST);
    while arrived < events && idle < 10_000 {
        burst.clear();
        burst.extend((entered..events.min(entered + BURST as u32)).map(|n| (n, n % rules::FLOWS)));
        entered += scheduler.enter(&burst) as u32;
        scheduler.run();
        done.clear();
        done.extend(scheduler.take(0, BURST).into_iter().map(|item| (item, Done::Forward)));
        let mut finished = 0;
        for _ in 0..1000 {
            finished += scheduler.finish(0, &done[finished..]);
            if finished == done.len() {
                break;
            }
            scheduler.run();
        }
        scheduler.run();
        let got = scheduler.consume();
        idle = if got.is_empty() { idle + 1 } else { 0 };
        for item in got {
            arrived += 1;
            if kind != Kind::Parallel {
                let before = last[item.flow as usize].replace(item.number);
                misordered += u64::from(before.is_some_and(|before| before >= item.number));
            }
        }
    }
    (misordered, arrived)
}
