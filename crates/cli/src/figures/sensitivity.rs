//! `flowyard figures --sensitivity`: every model once for each of its inputs, times 0.5 and times 2; and every model with
//! the measured costs at the ends of their intervals.
//!
//! Measurements are not repeated: the figures that compare a model with this machine are predicted again from the
//! changed costs. The simulated adapter has settings instead of a profile; `crates/nicsim/tests/main/sensitivity.rs`
//! varies those.

use std::sync::atomic::{AtomicUsize, Ordering};

use flowyard_bench::figures as live;
use flowyard_hostsim::paper::{self, Context};
use flowyard_report::exhibit::{Between, End, Exhibit, FACTORS, Rows, Sensitivity};

use crate::output::{self, Progress};
use crate::parallel::in_parallel;
use crate::stop::Stop;

/// The rows of the figure `name` in `context`; `None` if it has no model with a profile.
fn rows(name: &str, context: &Context) -> Option<anyhow::Result<Rows>> {
    let predicted = context.here.as_ref().and_then(|here| live::predict(name, here));
    predicted.or_else(|| {
        let figure = paper::make(name, context)?;
        let of =
            |figure: Exhibit| figure.rows.into_iter().map(|row| (row.name, row.ours)).collect();
        Some(figure.map(of).map_err(Into::into))
    })
}

/// The sensitivity of each of `figures` that has a model with a profile, in their order. The runs share `threads`.
pub(super) fn of(
    figures: &[Exhibit],
    context: &Context,
    threads: usize,
) -> Result<Vec<Sensitivity>, Stop> {
    let is_model = |name: &str| paper::names().any(|known| known == name) || live::predicts(name);
    let (models, others): (Vec<&Exhibit>, Vec<&Exhibit>) =
        figures.iter().partition(|figure| is_model(&figure.name) && !figure.inputs.is_empty());
    for other in others {
        output::note(&format!("{}: no profile to vary, so no sensitivity", other.name));
    }
    let jobs: Vec<(&Exhibit, &str, f64)> = models
        .iter()
        .flat_map(|figure| figure.inputs.iter().map(move |input| (*figure, &*input.name)))
        .flat_map(|(figure, input)| FACTORS.map(|factor| (figure, input, factor)))
        .collect();
    let bar = Progress::new("{bar:40} {pos}/{len} changed inputs, {eta} left; {msg}");
    let done = AtomicUsize::new(0);
    let runs = in_parallel(&jobs, threads, |(figure, input, factor)| {
        let changed = context.times(input, *factor);
        let rows = changed.map_err(anyhow::Error::from).and_then(|changed| {
            let none = || Err(anyhow::anyhow!("there is no such model"));
            rows(&figure.name, &changed).unwrap_or_else(none)
        });
        let count = done.fetch_add(1, Ordering::Relaxed) + 1;
        bar.at(count as u64, jobs.len() as u64);
        bar.message(figure.name.clone());
        rows.map_err(|error| Stop::Failed(error.context(format!("{input} times {factor}"))))
    });
    drop(bar);
    let mut runs = runs.into_iter();
    let mut found = Vec::with_capacity(models.len());
    for figure in models {
        let mut pairs = Vec::with_capacity(figure.inputs.len());
        for _ in &figure.inputs {
            let mut next = || runs.next().unwrap_or_else(|| Ok(Vec::new()));
            pairs.push([next()?, next()?]);
        }
        found.push(Sensitivity::of(figure, &pairs));
    }
    Ok(found)
}

/// Sets the ranges of the rows of `figures` whose inputs have intervals.
pub(super) fn intervals(figures: &mut [Exhibit], context: &Context) -> Result<(), Stop> {
    let has_interval =
        |figure: &&mut Exhibit| figure.inputs.iter().any(|input| input.interval.is_some());
    for figure in figures.iter_mut().filter(has_interval) {
        let of = |end: End| rows(&figure.name, &context.at(end)).unwrap_or_else(|| Ok(Rows::new()));
        let [low, high] = End::BOTH.map(of);
        let [low, high] = [low.map_err(Stop::Failed)?, high.map_err(Stop::Failed)?];
        let names: Vec<&str> = figure
            .inputs
            .iter()
            .filter(|input| input.interval.is_some())
            .map(|input| &*input.name)
            .collect();
        for row in &mut figure.rows {
            let value = |rows: &Rows| Some(rows.iter().find(|(name, _)| *name == row.name)?.1);
            let is_moved = row.inputs.iter().any(|input| names.contains(&&**input));
            if let (true, Some(low), Some(high)) = (is_moved, value(&low), value(&high)) {
                row.between = Some(Between::of([row.ours, low, high]));
            }
        }
    }
    Ok(())
}
