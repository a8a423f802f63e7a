//! The model against this machine: the yard measured, the pipeline predicted, side by side.

use std::time::Duration;

use flowyard_hostsim::paper::Context;
use flowyard_hostsim::pipeline::{Pipeline, Role, Stages};
use flowyard_hostsim::{Profile, ProfileError};
use flowyard_report::exhibit::{Exhibit, Made, Spec};
use flowyard_report::{Axis, Plot, Unit};
use flowyard_yard::Clock;

use crate::bench::rounds::{Case, Load};
use crate::calibrate::FLOWS;
use crate::live::{self, Rounds};

pub(super) const NAME: &str = "yard-model";
pub(super) const WORKERS: &str = "dlb-here";
pub(super) const CORES: &str = "kth-cores-here";

/// Work of a frame, in nanoseconds.
const WORK: [u64; 4] = [200, 500, 1000, 2600];
const ROUNDS: usize = 9;
const TIME: Duration = Duration::from_millis(60);

/// One way through the yard: its name, cores, and who works.
const WAYS: [(&str, u16, &[u16]); 3] =
    [("1 core", 1, &[0]), ("2 cores, 1 worker", 2, &[1]), ("2 cores, 2 workers", 2, &[0, 1])];

fn case(cores: u16, consumers: &[u16], work_ns: u64) -> Case {
    let order = if cores == 1 { "direct" } else { "ordered" };
    let (load, consumers) = (Load::Burn(work_ns), consumers.to_vec());
    Case { cores, order, consumers, load, flows: 1, exact: false, length: 60 }
}

/// What a frame costs here: on one core, or handed to a second; the work comes on top.
fn stages(here: &Profile, is_shared: bool, work_ns: u64) -> Result<Stages, ProfileError> {
    // The loop itself: half with what it receives, half with what it serves, for either may be another
    // core's.
    let rest = here.get("yard_rest_ns")? / 2.0;
    let prefix = if is_shared { "yard_far" } else { "yard" };
    let get = |name: &str| here.get(&format!("{prefix}_{name}_ns"));
    Ok(Stages {
        rx: get("rx")? + rest,
        enqueue: get("enqueue")?,
        dequeue: get("dequeue")? + rest,
        work: get("work")? + work_ns as f64,
        complete: get("complete")?,
        tx: get("tx")?,
    })
}

/// What the model says, in frames a second.
fn predict(
    here: &Profile,
    cores: u16,
    consumers: &[u16],
    work_ns: u64,
) -> Result<f64, ProfileError> {
    // Frames that two cores share cost as handed on, those that stay cost as on one core.
    let stages = stages(here, cores > 1, work_ns)?;
    let role = |core| Role {
        receives: core == 0,
        works: consumers.contains(&core),
        transmits: core == cores - 1,
        stages,
    };
    Ok(Pipeline::yard((0..cores).map(role).collect()).run().pps)
}

/// Frames a second of a round. What others had counts where both processors are wanted.
fn timed(case: &Case, others: &mut f64, clock: &Clock) -> anyhow::Result<f64> {
    let (round, share) = case.urgent(TIME, clock)?;
    if case.cores > 1 {
        *others = others.max(share);
    }
    Ok(round.pps)
}

/// The ways that this machine has processors for.
fn ways() -> Vec<(&'static str, u16, &'static [u16])> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    WAYS.into_iter().filter(|way| usize::from(way.1) <= processors).collect()
}

/// A figure of this module; `None` if it is none of them.
pub(super) fn make(name: &str, context: &Context) -> Option<anyhow::Result<Exhibit>> {
    let make = match name {
        NAME => model,
        WORKERS => workers,
        CORES => cores,
        _ => return None,
    };
    let here = context.here.as_ref().ok_or_else(|| anyhow::anyhow!("no costs of this machine"));
    Some(here.and_then(make))
}

fn model(here: &Profile) -> anyhow::Result<Exhibit> {
    let spec = Spec::parse(NAME, include_str!("../../../../figures/yard-model.toml"))?;
    let ways = ways();
    let clock = crate::run::clock();
    let mut measured = vec![[const { Vec::new() }; WORK.len()]; ways.len()];
    let mut rounds = Rounds::new(ROUNDS);
    while rounds.go_on() {
        let mut others = 0.0;
        for (at, work_ns) in WORK.into_iter().enumerate() {
            for (way, (_, cores, consumers)) in measured.iter_mut().zip(&ways) {
                way[at].push(timed(&case(*cores, consumers, work_ns), &mut others, &clock)?);
            }
        }
        rounds.add(others);
    }
    let mut made = Made::default();
    let mut plot = Plot::new(
        "One flow: measured (points) and predicted (lines)",
        Axis::linear("work, ns a frame", Unit::Plain("")),
        Axis::linear("Mpps", Unit::Plain("")),
    );
    for ((name, cores, consumers), measured) in ways.iter().zip(measured) {
        let (mut points, mut line) = (Vec::new(), Vec::new());
        for (work_ns, rates) in WORK.into_iter().zip(measured) {
            let measured = rates.into_iter().fold(0.0, f64::max) / 1e6; // the least disturbed
            let model = predict(here, *cores, consumers, work_ns)? / 1e6;
            made.push_beside(format!("{name}, {work_ns} ns of work"), measured, model);
            points.push((work_ns as f64, measured));
            line.push((work_ns as f64, model));
        }
        plot = plot.line(format!("{name}, predicted"), line);
        plot = plot.points(format!("{name}, measured"), points);
    }
    made.note(rounds.note());
    if ways.len() < WAYS.len() {
        made.note("This machine has one processor: two cores cannot be measured.");
    }
    made.plots = vec![plot];
    Ok(spec.with(made)?)
}

/// A balancer's work of a frame in the DLB guide, by profile `dlb`: what one core takes, less its ports.
const BALANCER: u64 = 273;
/// Workers of the guide and two more.
const MOST: usize = 10;

/// One elephant flow: 1 and 2 workers measured, and predicted from there to 10 and two cores more.
fn workers(here: &Profile) -> anyhow::Result<Exhibit> {
    let spec = Spec::parse(WORKERS, include_str!("../../../../figures/dlb-here.toml"))?;
    let (ways, clock) = (ways(), crate::run::clock());
    let mut measured = vec![Vec::new(); ways.len()];
    let mut rounds = Rounds::new(ROUNDS);
    while rounds.go_on() {
        let mut others = 0.0;
        for (way, (_, cores, consumers)) in measured.iter_mut().zip(&ways) {
            way.push(timed(&case(*cores, consumers, BALANCER), &mut others, &clock)? / 1e6);
        }
        rounds.add(others);
    }
    let (mut made, mut points, mut shared) = (Made::default(), Vec::new(), Vec::new());
    for ((name, cores, consumers), rates) in ways.iter().zip(measured) {
        let best = rates.into_iter().fold(0.0, f64::max); // the least disturbed
        let model = predict(here, *cores, consumers, BALANCER)? / 1e6;
        made.push_beside(*name, best, model);
        if *cores > 1 {
            points.push((consumers.len() as f64, best));
            shared.push((consumers.len() as f64, model));
        }
    }
    let baseline = predict(here, 1, &[0], BALANCER)? / 1e6;
    let stages = stages(here, true, BALANCER)?;
    let mut line = Vec::new();
    for workers in 1..=MOST {
        let role = Role { stages, ..Role::default() };
        let mut roles = vec![Role { receives: true, ..role }, Role { transmits: true, ..role }];
        roles.extend(vec![Role { works: true, ..role }; workers]);
        let model = Pipeline::yard(roles).run().pps / 1e6;
        made.push(format!("{workers}+2 cores"), model);
        line.push((workers as f64, model));
    }
    let plot = Plot::new(
        "One flow through the yard: measured with 1 and 2 workers, predicted beyond",
        Axis::linear("workers", Unit::Plain(""))
            .ticks_at((1..=MOST).map(|n| n as f64).collect::<Vec<_>>()),
        Axis::linear("Mpps", Unit::Plain("")),
    )
    .line("predicted, two cores more for the ends", line)
    .line("predicted, two cores in all", shared)
    .points("measured, two cores in all", points)
    .line("predicted, one core for everything", vec![(1.0, baseline), (MOST as f64, baseline)]);
    made.plots = vec![plot];
    made.note(rounds.note());
    Ok(spec.with(made)?)
}

/// Cores that share nothing, as with a ring each: 1 and 2 measured, 1 to 4 predicted.
fn cores(here: &Profile) -> anyhow::Result<Exhibit> {
    let spec = Spec::parse(CORES, include_str!("../../../../figures/kth-cores-here.toml"))?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let clock = crate::run::clock();
    let Stages { rx, enqueue, dequeue, work, complete, tx } = stages(here, false, 0)?;
    let plain = rx + enqueue + dequeue + work + complete + tx;
    let exact = plain + here.get("yard_flows_ns")? + super::lookup::exact_ns(FLOWS as usize)?;
    let mut made = Made::default();
    let mut plot = Plot::new(
        "Cores with a ring each",
        Axis::linear("cores", Unit::Plain("")).ticks_at([1.0, 2.0, 3.0, 4.0]),
        Axis::linear("Mpps", Unit::Plain("")),
    );
    for (name, flows, is_exact, ns) in
        [("no lookup", 1, false, plain), ("exact lookup", FLOWS, true, exact)]
    {
        let (mut points, mut line) = (Vec::new(), Vec::new());
        for cores in 1..=4u16 {
            let model = f64::from(cores) * 1e3 / ns;
            line.push((f64::from(cores), model));
            let plural = if cores == 1 { "" } else { "s" };
            let row = format!("{name}, {cores} core{plural}");
            let mut beside = None;
            if cores <= 2 && usize::from(cores) <= processors {
                let mut best = 0.0f64; // the least disturbed
                let mut rounds = Rounds::new(ROUNDS);
                while rounds.go_on() {
                    let (sum, others) =
                        live::urgent(|| side_by_side(cores, flows, is_exact, &clock))?;
                    best = best.max(sum?);
                    rounds.add(if cores == 1 { 0.0 } else { others });
                }
                if cores == 2 {
                    made.note(format!("{name}: {}", rounds.note()));
                }
                points.push((f64::from(cores), best));
                beside = Some(best);
            }
            made.push_beside(row, beside, model);
        }
        plot = plot.line(format!("{name}, predicted"), line);
        plot = plot.points(format!("{name}, measured"), points);
    }
    made.plots = vec![plot];
    Ok(spec.with(made)?)
}

/// So many yards of one core each at once, millions of frames a second in all.
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
