//! Which input of a figure moves its result most.
//!
//! ```text
//!  exhibit ──> for each of its inputs: the rows with the input times 0.5 and times 2 ──> Sensitivity
//!                                                                                  ──> table, bars
//! ```
//!
//! Invariant: effects are ordered by the larger of the two changes of the result, largest first.
//! Thread-safety: values only.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Exhibit, How, Input};
use crate::num::Unit;
use crate::plot::{Axis, Plot};
use crate::table::{Cell, Column, Table, Tone};

/// The factors by which each input is multiplied.
pub const FACTORS: [f64; 2] = [0.5, 2.0];

/// Maximum number of bars: inputs with smaller effects are in the table only.
const MOST_BARS: usize = 12;

/// The names and values of the rows of a run.
pub type Rows = Vec<(String, f64)>;

/// A row and how much it changed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// The row.
    pub row: String,
    /// The new value divided by the old one, minus one.
    pub share: f64,
}

/// The effect of one input.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Effect {
    /// The input.
    pub input: Input,
    /// The change of the result with the input times 0.5 and times 2: new by old, minus one; absent if the
    /// result is zero or not a number in one of the two.
    pub result: [Option<f64>; 2],
    /// The row that changed most in either, absent if none changed.
    pub most: Option<Change>,
}

impl Effect {
    fn size(&self) -> f64 {
        self.result.into_iter().flatten().map(f64::abs).fold(0.0, f64::max)
    }
}

/// The effects of all inputs of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Sensitivity {
    /// The figure.
    pub figure: String,
    /// The row whose change is in `result` of each effect.
    pub result: String,
    /// The effects, largest change of the result first.
    pub effects: Vec<Effect>,
}

/// How much `new` differs from `old`, as a share; `None` if that is no number.
fn change(old: f64, new: f64) -> Option<f64> {
    Some(new / old - 1.0).filter(|share| share.is_finite())
}

impl Sensitivity {
    /// The effects of the inputs of `exhibit`. `runs` has the rows (names and values) with each of its inputs, in
    /// its order, multiplied by each of [`FACTORS`].
    #[must_use]
    pub fn of(exhibit: &Exhibit, runs: &[[Rows; 2]]) -> Self {
        let rows = &exhibit.rows;
        let printed = rows.iter().find(|row| row.paper.is_some()).or(rows.first());
        let result = exhibit.result.clone().or(printed.map(|row| row.name.clone()));
        let rows: Rows = rows.iter().map(|row| (row.name.clone(), row.ours)).collect();
        Self::new(&exhibit.name, &result.unwrap_or_default(), &rows, &exhibit.inputs, runs)
    }

    /// The effects of `inputs` on `rows`, the results of the model `figure`, of which `result` is drawn. `runs` has
    /// the rows with each of the inputs, in their order, multiplied by each of [`FACTORS`]; a run that is not
    /// possible has no rows.
    #[must_use]
    pub fn new(
        figure: &str,
        result: &str,
        rows: &[(String, f64)],
        inputs: &[Input],
        runs: &[[Rows; 2]],
    ) -> Self {
        let effect = |(input, runs): (&Input, &[Rows; 2])| {
            let changes = runs.each_ref().map(|run| {
                let of = |(name, old): &(String, f64)| {
                    let (_, new) = run.iter().find(|(new, _)| new == name)?;
                    Some(Change { row: name.clone(), share: change(*old, *new)? })
                };
                rows.iter().filter_map(of).collect::<Vec<_>>()
            });
            let own = |changes: &Vec<Change>| {
                changes.iter().find(|change| change.row == result).map(|change| change.share)
            };
            let most = changes.iter().flatten().filter(|change| change.share.abs() > 1e-9);
            let most = most.max_by(|a, b| a.share.abs().total_cmp(&b.share.abs()));
            Effect {
                input: input.clone(),
                result: changes.each_ref().map(own),
                most: most.cloned(),
            }
        };
        let mut effects: Vec<Effect> = inputs.iter().zip(runs).map(effect).collect();
        effects.sort_by(|a, b| b.size().total_cmp(&a.size()));
        Self { figure: figure.to_owned(), result: result.to_owned(), effects }
    }

    /// The effects as a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let percent = |share: f64| format!("{:+.1} %", (1000.0 * share).round() / 10.0 + 0.0);
        let mut table = Table::new(format!("{}: sensitivity of '{}'", self.figure, self.result))
            .column(Column::text("input"))
            .column(Column::text("obtained"))
            .column(Column::number("times 0.5"))
            .column(Column::number("times 2"))
            .column(Column::number("most of any row"))
            .column(Column::text("that row"));
        for effect in &self.effects {
            let [half, double] =
                effect.result.map(|share| share.map_or_else(|| "-".to_owned(), percent));
            let most = effect.most.as_ref();
            let tone = if effect.input.how == How::Fitted { Tone::Warn } else { Tone::Dim };
            table.push([
                Cell::new(effect.input.name.clone()),
                Cell::new(effect.input.how.name()).tone(tone),
                Cell::new(half),
                Cell::new(double),
                Cell::new(most.map_or_else(|| "none".to_owned(), |most| percent(most.share))),
                Cell::new(most.map_or_else(|| "-".to_owned(), |most| most.row.clone())),
            ]);
        }
        table.note("Each input is multiplied alone. The second pair of columns is the row that moved most, with either factor.")
    }

    /// The largest effects as bars.
    #[must_use]
    pub fn plot(&self) -> Plot {
        let shown: Vec<&Effect> =
            self.effects.iter().filter(|effect| effect.size() > 0.0).take(MOST_BARS).collect();
        let of = |n: usize| -> Vec<f64> {
            shown.iter().map(|effect| 100.0 * effect.result[n].unwrap_or(f64::NAN)).collect()
        };
        Plot::new(
            format!("Change of '{}' when one input changes", self.result),
            Axis::linear("%", Unit::Plain("")),
            Axis::categories("", shown.iter().map(|effect| effect.input.name.clone())),
        )
        .bars("input times 0.5", of(0))
        .bars("input times 2", of(1))
    }
}
