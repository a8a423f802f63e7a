//! A [`Plot`] as text: bars become a table, lines become sparklines with their range.

use super::model::{Mark, Plot};
use crate::table::{Cell, Column, Table};
use crate::text::Style;

/// With more categories than this, each set becomes a sparkline.
const MOST_BARS: usize = 16;

impl Plot {
    /// A sketch of the plot for the terminal, ending with a newline.
    #[must_use]
    pub fn to_text(&self, style: &Style) -> String {
        let names = if self.is_lying() { self.y.names() } else { self.x.names() };
        match names {
            Some(names) if self.has_bars() && names.len() <= MOST_BARS => {
                self.bar_table(names).to_text(style)
            }
            _ => self.spark_table().to_text(style),
        }
    }

    fn bar_table(&self, names: &[String]) -> Table {
        let (places, values) =
            if self.is_lying() { (&self.y, &self.x) } else { (&self.x, &self.y) };
        let sets: Vec<(&str, &[f64])> = self
            .marks
            .iter()
            .filter_map(|m| match m {
                Mark::Bars { name, values } => Some((name.as_str(), values.as_slice())),
                _ => None,
            })
            .collect();
        let top =
            sets.iter().flat_map(|s| s.1).copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
        let top = values.range.1.unwrap_or(top);
        let mut table = Table::new(&self.title).column(Column::text(&places.title));
        for (name, _) in &sets {
            table = table.column(Column::text(if name.is_empty() { &values.title } else { *name }));
        }
        for (i, name) in names.iter().enumerate() {
            let bars = sets.iter().map(|(_, set)| {
                set.get(i)
                    .map_or_else(Cell::default, |v| Cell::bar(v / top, values.unit().show(*v)))
            });
            table.push(std::iter::once(Cell::new(name)).chain(bars));
        }
        table
    }

    fn spark_table(&self) -> Table {
        let mut table = Table::new(&self.title)
            .column(Column::text("series"))
            .column(Column::text(format!("{} by {}", self.y.title, self.x.title)))
            .column(Column::number("min"))
            .column(Column::number("max"));
        for (_, mark) in self.series() {
            let values: Vec<f64> = match mark {
                Mark::Bars { values, .. } => values.clone(),
                Mark::Line { points, .. } => points.iter().map(|p| p.1).collect(),
                _ => continue,
            };
            let finite = || values.iter().copied().filter(|v| v.is_finite());
            let low = finite().reduce(f64::min).unwrap_or(f64::NAN);
            let high = finite().reduce(f64::max).unwrap_or(f64::NAN);
            let unit = if self.is_lying() { self.x.unit() } else { self.y.unit() };
            let name = mark.name().unwrap_or_default();
            table.push([
                Cell::new(name),
                Cell::spark(values),
                Cell::new(unit.show(low)),
                Cell::new(unit.show(high)),
            ]);
        }
        table
    }
}
