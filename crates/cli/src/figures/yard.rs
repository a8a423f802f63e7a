//! The model against this machine: the yard measured, the pipeline predicted, side by side.

use std::time::Duration;

use flowyard_hostsim::figure::{Bound, Figure, File, Kind, Row};
use flowyard_hostsim::paper::Context;
use flowyard_hostsim::pipeline::{Pipeline, Role, Stages};
use flowyard_hostsim::{Profile, ProfileError};
use flowyard_report::{Axis, Plot, Unit};

use crate::bench::rounds::{Case, Load};

pub(super) const NAME: &str = "yard-model";

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

/// What the model says, in frames a second.
fn predict(
    here: &Profile,
    cores: u16,
    consumers: &[u16],
    work_ns: u64,
) -> Result<f64, ProfileError> {
    // The loop itself: half with what it receives, half with what it serves, for either may be another
    // core's.
    let rest = here.get("yard_rest_ns")? / 2.0;
    let stages = |prefix: &str| {
        let get = |name: &str| here.get(&format!("{prefix}_{name}_ns"));
        Ok::<_, ProfileError>(Stages {
            rx: get("rx")? + rest,
            enqueue: get("enqueue")?,
            dequeue: get("dequeue")? + rest,
            work: get("work")? + work_ns as f64,
            complete: get("complete")?,
            tx: get("tx")?,
        })
    };
    // Frames that two cores share cost as handed on, those that stay cost as on one core.
    let stages = if cores == 1 { stages("yard")? } else { stages("yard_far")? };
    let role = |core| Role {
        receives: core == 0,
        works: consumers.contains(&core),
        transmits: core == cores - 1,
        stages,
    };
    Ok(Pipeline::yard((0..cores).map(role).collect()).run().pps)
}

pub(super) fn make(context: &Context) -> anyhow::Result<Figure> {
    let file = File::parse(NAME, include_str!("../../../../figures/yard-model.toml"))?;
    let here = context.here.as_ref().ok_or_else(|| anyhow::anyhow!("no costs of this machine"))?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let ways: Vec<_> = WAYS.into_iter().filter(|way| usize::from(way.1) <= processors).collect();
    let clock = crate::run::clock();
    let mut measured = vec![[const { Vec::new() }; WORK.len()]; ways.len()];
    for _ in 0..ROUNDS {
        for (at, work_ns) in WORK.into_iter().enumerate() {
            for (way, (_, cores, consumers)) in measured.iter_mut().zip(&ways) {
                way[at].push(case(*cores, consumers, work_ns).round(TIME, &clock)?.pps);
            }
        }
    }
    let mut rows = Vec::new();
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
            let row = format!("{name}, {work_ns} ns of work");
            let beside = Some((measured, Bound::Equal));
            rows.push(Row::new(row, beside, model, Kind::Prediction, file.tolerance));
            points.push((work_ns as f64, measured));
            line.push((work_ns as f64, model));
        }
        plot = plot.line(format!("{name}, predicted"), line);
        plot = plot.points(format!("{name}, measured"), points);
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut notes = vec![format!(
        "Load average {}: where others take the processors, the measured side is theirs too.",
        load.trim()
    )];
    if processors < 2 {
        notes.push("This machine has one processor: two cores cannot be measured.".to_owned());
    }
    Ok(file.filled(rows, vec![plot], notes))
}
