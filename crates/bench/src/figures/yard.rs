//! Compares the pipeline model with this machine: rates of the engine, measured and predicted.

use std::time::Duration;

use flowyard_hostsim::paper::Context;
use flowyard_hostsim::pipeline::{Pipeline, Role, Stages, stages_of};
use flowyard_hostsim::{Profile, ProfileError};
use flowyard_report::exhibit::{Exhibit, Input, Kind, Made, Spec, Spread};
use flowyard_report::{Axis, Plot, Unit};
use flowyard_yard::Clock;

use crate::calibrate::FLOWS;
use crate::live::priority::urgent;
use crate::live::quiet::Rounds;
use crate::machine::Before;
use crate::rounds::{Case, Load, Source};

pub(super) const NAME: &str = "yard-model";
pub(super) const WORKERS: &str = "dlb-here";
pub(super) const CORES: &str = "kth-cores-here";

/// Work in nanoseconds per frame.
const WORK: [u64; 4] = [200, 500, 1000, 2600];
const ROUNDS: usize = 9;
/// Duration of one measurement.
const TIME: Duration = Duration::from_millis(60);

/// Configurations: name, number of cores, cores that do the work.
const WAYS: [(&str, u16, &[u16]); 3] =
    [("1 core", 1, &[0]), ("2 cores, 1 worker", 2, &[1]), ("2 cores, 2 workers", 2, &[0, 1])];

fn case(cores: u16, consumers: &[u16], work_ns: u64) -> Case {
    let order = if cores == 1 { "direct" } else { "ordered" };
    let (load, consumers) = (Load::Burn(work_ns), consumers.to_vec());
    Case {
        cores,
        order,
        consumers,
        load,
        flows: 1,
        source: Source::Random,
        exact: false,
        length: 60,
    }
}

/// The rate that the model predicts, in frames per second.
fn predict(
    here: &Profile,
    cores: u16,
    consumers: &[u16],
    work_ns: u64,
) -> Result<f64, ProfileError> {
    // With two cores, all frames have the costs of frames that are passed on.
    let stages = stages_of(here, cores > 1, work_ns as f64)?;
    let role = |core| Role {
        receives: core == 0,
        works: consumers.contains(&core),
        transmits: core == cores - 1,
        stages,
    };
    Ok(Pipeline::yard((0..cores).map(role).collect()).run().pps)
}

/// Frames per second of one measurement. `others` becomes the largest share of CPU time that other
/// programs used, counted only where the case needs both CPUs.
fn timed(case: &Case, others: &mut f64, clock: &Clock) -> anyhow::Result<f64> {
    let (round, share) = case.urgent(TIME, clock)?;
    if case.cores > 1 {
        *others = others.max(share);
    }
    Ok(round.pps)
}

/// The configurations for which this machine has enough CPUs.
fn ways() -> Vec<(&'static str, u16, &'static [u16])> {
    let processors = crate::processors();
    WAYS.into_iter().filter(|way| usize::from(way.1) <= processors).collect()
}

/// The figure `name`; `None` if it is not one of this module's.
pub(super) fn make(
    name: &str,
    context: &Context,
    clock: &Clock,
) -> Option<anyhow::Result<Exhibit>> {
    let make = match name {
        NAME => model,
        WORKERS => workers,
        CORES => cores,
        _ => return None,
    };
    let here = context.here.as_ref();
    let here = here.ok_or_else(|| anyhow::anyhow!("the costs of this machine are missing"));
    Some(here.and_then(|here| make(here, clock)))
}

/// The constants that the prediction of a way with `cores` cores reads.
fn inputs(here: &Profile, cores: u16) -> Vec<Input> {
    let prefix = if cores > 1 { "yard_far_" } else { "yard_" };
    let stages = ["rx", "enqueue", "dequeue", "work", "complete", "tx"];
    let mut names: Vec<String> = stages.map(|stage| format!("{prefix}{stage}_ns")).into();
    names.push("yard_rest_ns".to_owned());
    here.inputs(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A number that the model predicts: the row, the cores that it needs, and the rate in Mpps.
type Predicted = (String, u16, f64);

/// The rows of the figure `name`, in their order.
fn rows(name: &str, here: &Profile) -> Option<Result<Vec<Predicted>, ProfileError>> {
    match name {
        NAME => Some(model_rows(here)),
        WORKERS => Some(worker_rows(here)),
        CORES => Some(core_rows(here)),
        _ => None,
    }
}

/// The rows of the figure `name` that the model predicts from `here`, in their order; `None` if it is not one of
/// this module's.
pub(super) fn predicted(name: &str, here: &Profile) -> Option<anyhow::Result<Vec<(String, f64)>>> {
    let rows = rows(name, here)?;
    Some(
        rows.map(|rows| rows.into_iter().map(|(row, _, mpps)| (row, mpps)).collect())
            .map_err(Into::into),
    )
}

fn model_rows(here: &Profile) -> Result<Vec<Predicted>, ProfileError> {
    let mut rows = Vec::new();
    for (name, cores, consumers) in ways() {
        for work_ns in WORK {
            let mpps = predict(here, cores, consumers, work_ns)? / 1e6;
            rows.push((format!("{name}, {work_ns} ns of work"), cores, mpps));
        }
    }
    Ok(rows)
}

fn worker_rows(here: &Profile) -> Result<Vec<Predicted>, ProfileError> {
    let mut rows = Vec::new();
    for (name, cores, consumers) in ways() {
        rows.push((name.to_owned(), cores, predict(here, cores, consumers, BALANCER)? / 1e6));
    }
    let stages = stages_of(here, true, BALANCER as f64)?;
    for workers in 1..=MOST {
        let role = Role { stages, ..Role::default() };
        let mut roles = vec![Role { receives: true, ..role }, Role { transmits: true, ..role }];
        roles.extend(vec![Role { works: true, ..role }; workers]);
        let mpps = Pipeline::yard(roles).run().pps / 1e6;
        rows.push((format!("{workers}+2 cores"), workers as u16 + 2, mpps));
    }
    Ok(rows)
}

/// The loads of the figure of independent cores: name, number of flows, whether each has an entry.
const LOADS: [(&str, u64, bool); 2] = [("no lookup", 1, false), ("exact lookup", FLOWS, true)];

fn core_rows(here: &Profile) -> Result<Vec<Predicted>, ProfileError> {
    let Stages { rx, enqueue, dequeue, work, complete, tx } = stages_of(here, false, 0.0)?;
    let plain = rx + enqueue + dequeue + work + complete + tx;
    let exact = plain + here.get("yard_flows_ns")? + here.get("yard_lookup_ns")?;
    let mut rows = Vec::new();
    for ((name, ..), ns) in LOADS.into_iter().zip([plain, exact]) {
        for cores in 1..=4u16 {
            let plural = if cores == 1 { "" } else { "s" };
            rows.push((
                format!("{name}, {cores} core{plural}"),
                cores,
                f64::from(cores) * 1e3 / ns,
            ));
        }
    }
    Ok(rows)
}

/// The median of the rounds, as the costs of the prediction are medians, and their spread.
fn middle(rates: &[f64]) -> (f64, Option<Spread>) {
    let spread = Spread::of(rates);
    (spread.map_or(0.0, |spread| spread.median), spread)
}

fn model(here: &Profile, clock: &Clock) -> anyhow::Result<Exhibit> {
    let spec = Spec::parse(NAME, include_str!("../../../../figures/yard-model.toml"))?;
    let ways = ways();
    let mut measured = vec![[const { Vec::new() }; WORK.len()]; ways.len()];
    let (mut rounds, before) = (Rounds::new(ROUNDS), Before::read());
    while rounds.go_on() {
        let mut others = 0.0;
        for (at, work_ns) in WORK.into_iter().enumerate() {
            for (way, (_, cores, consumers)) in measured.iter_mut().zip(&ways) {
                way[at].push(timed(&case(*cores, consumers, work_ns), &mut others, clock)? / 1e6);
            }
        }
        rounds.add(others);
    }
    let mut made = Made::default();
    let mut plot = Plot::new(
        "One flow: measured (points) and predicted (lines)",
        Axis::linear("work, ns per frame", Unit::Plain("")),
        Axis::linear("Mpps", Unit::Plain("")),
    );
    let mut rows = model_rows(here)?.into_iter();
    for ((name, cores, _), measured) in ways.iter().zip(measured) {
        let (mut points, mut line) = (Vec::new(), Vec::new());
        made.using(Kind::Predicted, inputs(here, *cores));
        for ((work_ns, rates), (row, _, model)) in WORK.into_iter().zip(measured).zip(&mut rows) {
            let measured = middle(&rates);
            points.push((work_ns as f64, measured.0));
            line.push((work_ns as f64, model));
            made.push_against(row, Some(measured), model);
        }
        plot = plot.line(format!("{name}, predicted"), line);
        plot = plot.points(format!("{name}, measured"), points);
    }
    finish(&mut made, &rounds, &before);
    if ways.len() < WAYS.len() {
        made.note("This machine has one CPU: two cores cannot be measured.");
    }
    made.plots = vec![plot];
    Ok(spec.with(made)?)
}

/// The state of the machine, and a warning if it was never quiet.
fn finish(made: &mut Made, rounds: &Rounds, before: &Before) {
    made.conditions = Some(rounds.conditions(before));
    made.notes.extend(rounds.warning().map(str::to_owned));
}

/// Work of the load balancer in the DLB guide, in nanoseconds per frame, by profile `dlb`: the time of one
/// core without its ports.
const BALANCER: u64 = 273;
/// Largest number of workers: the guide's and two more.
const MOST: usize = 10;

/// One elephant flow: measured with 1 and 2 workers, predicted with 1 to 10 workers and two more cores.
fn workers(here: &Profile, clock: &Clock) -> anyhow::Result<Exhibit> {
    let spec = Spec::parse(WORKERS, include_str!("../../../../figures/dlb-here.toml"))?;
    let ways = ways();
    let mut measured = vec![Vec::new(); ways.len()];
    let (mut rounds, before) = (Rounds::new(ROUNDS), Before::read());
    while rounds.go_on() {
        let mut others = 0.0;
        for (way, (_, cores, consumers)) in measured.iter_mut().zip(&ways) {
            way.push(timed(&case(*cores, consumers, BALANCER), &mut others, clock)? / 1e6);
        }
        rounds.add(others);
    }
    let (mut made, mut points, mut shared) = (Made::default(), Vec::new(), Vec::new());
    let mut rows = worker_rows(here)?.into_iter();
    let mut baseline = 0.0;
    for (((_, cores, consumers), rates), (row, _, model)) in
        ways.iter().zip(measured).zip(&mut rows)
    {
        let measured = middle(&rates);
        made.using(Kind::Predicted, inputs(here, *cores));
        if *cores > 1 {
            points.push((consumers.len() as f64, measured.0));
            shared.push((consumers.len() as f64, model));
        } else {
            baseline = model;
        }
        made.push_against(row, Some(measured), model);
    }
    let mut line = Vec::new();
    for (workers, (row, cores, model)) in (1..=MOST).zip(rows) {
        made.using(Kind::Predicted, inputs(here, cores));
        made.push(row, model);
        line.push((workers as f64, model));
    }
    let plot = Plot::new(
        "One flow through the engine: measured with 1 and 2 workers, predicted up to 10",
        Axis::linear("workers", Unit::Plain(""))
            .ticks_at((1..=MOST).map(|n| n as f64).collect::<Vec<_>>()),
        Axis::linear("Mpps", Unit::Plain("")),
    )
    .line("predicted, two additional cores receive and transmit", line)
    .line("predicted, two cores in total", shared)
    .points("measured, two cores in total", points)
    .line("predicted, one core for everything", vec![(1.0, baseline), (MOST as f64, baseline)]);
    made.plots = vec![plot];
    finish(&mut made, &rounds, &before);
    Ok(spec.with(made)?)
}

/// Independent cores, each with its own ring: 1 and 2 measured, 1 to 4 predicted.
fn cores(here: &Profile, clock: &Clock) -> anyhow::Result<Exhibit> {
    let spec = Spec::parse(CORES, include_str!("../../../../figures/kth-cores-here.toml"))?;
    let processors = crate::processors();
    let mut made = Made::default();
    let mut plot = Plot::new(
        "Independent cores, each with its own ring",
        Axis::linear("cores", Unit::Plain("")).ticks_at([1.0, 2.0, 3.0, 4.0]),
        Axis::linear("Mpps", Unit::Plain("")),
    );
    let (mut all, before) = (Rounds::new(0), Before::read());
    let mut rows = core_rows(here)?.into_iter();
    for (name, flows, is_exact) in LOADS {
        let (mut points, mut line) = (Vec::new(), Vec::new());
        let lookup = if is_exact { &["yard_flows_ns", "yard_lookup_ns"][..] } else { &[] };
        made.using(Kind::Predicted, [inputs(here, 1), here.inputs(lookup)].concat());
        for (row, cores, model) in rows.by_ref().take(4) {
            line.push((f64::from(cores), model));
            let mut beside = None;
            if cores <= 2 && usize::from(cores) <= processors {
                let (mut rates, mut rounds) = (Vec::new(), Rounds::new(ROUNDS));
                while rounds.go_on() {
                    let (sum, others) = urgent(|| side_by_side(cores, flows, is_exact, clock))?;
                    rates.push(sum?);
                    rounds.add(if cores == 1 { 0.0 } else { others });
                }
                all = all.and(&rounds);
                let measured = middle(&rates);
                points.push((f64::from(cores), measured.0));
                beside = Some(measured);
            }
            made.push_against(row, beside, model);
        }
        plot = plot.line(format!("{name}, predicted"), line);
        plot = plot.points(format!("{name}, measured"), points);
    }
    made.plots = vec![plot];
    finish(&mut made, &all, &before);
    Ok(spec.with(made)?)
}

/// The total rate, in millions of frames per second, of this number of one-core engines at the same time.
fn side_by_side(cores: u16, flows: u64, exact: bool, clock: &Clock) -> anyhow::Result<f64> {
    let (order, load) = ("ordered", Load::Forward);
    let one = &Case { order, flows, exact, load, ..case(1, &[0], 0) };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..cores)
            .map(|first| scope.spawn(move || one.round_from(first, TIME, clock)))
            .collect();
        let mut sum = 0.0;
        for round in all {
            let panicked = |_| anyhow::anyhow!("a measuring thread panicked");
            sum += round.join().map_err(panicked)??.pps / 1e6;
        }
        Ok(sum)
    })
}
