//! Which values of ours are accepted. A table has one tolerance; a row may be stricter, and not laxer.

use super::{Bound, Expected, Range, Spec};

impl Spec {
    /// Whether a row with a number in the paper accepts values that the exhibit's tolerance does not.
    pub(super) fn is_laxer(&self, row: &Expected) -> bool {
        if row.tolerance.is_some_and(|own| own > self.tolerance) {
            return true;
        }
        let common = Expected { accept: None, tolerance: None, ..row.clone() };
        let ranges = [row, &common].map(|row| self.accepted(row.paper, row.bound, Some(row)));
        let [Some(own), Some(common)] = ranges else { return false };
        let ends = [own.from, own.to].into_iter().flatten();
        ends.into_iter().any(|end| !common.contains(end))
    }

    /// The accepted values of the row `expected` with the number `paper` beside it.
    pub(super) fn accepted(
        &self,
        paper: Option<f64>,
        bound: Bound,
        expected: Option<&Expected>,
    ) -> Option<Range> {
        if let Some([from, to]) = expected.and_then(|row| row.accept) {
            return Some(Range { from: Some(from), to: Some(to) });
        }
        let tolerance = expected.and_then(|row| row.tolerance).unwrap_or(self.tolerance);
        let center = paper? * expected.and_then(|row| row.scale).unwrap_or(self.scale);
        let slack = center.abs() * tolerance;
        let (from, to) = (Some(center - slack), Some(center + slack));
        Some(match bound {
            Bound::Equal => Range { from, to },
            Bound::Below => Range { from: None, to },
            Bound::Above => Range { from, to: None },
        })
    }
}
