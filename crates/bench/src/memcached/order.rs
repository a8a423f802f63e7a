//! Which way has the higher wall: pairs of ways compared round by round, and with an earlier measurement.
//!
//! Medians with extremes do not say whether two ways differ, because a round in which the machine is slow lowers the walls of all
//! ways. Each round measures all ways, so the walls of two ways are compared within each round, and the signs are counted.
//!
//! Invariant: each pair of different ways is compared once.
//! Thread-safety: plain functions and values.
//! Source: the sign test, W. J. Conover, Practical Nonparametric Statistics, section 3.4.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Curve, Way};

/// The level of significance: two ways differ if the p-value is no more than this.
const SIGNIFICANCE: f64 = 0.05;

/// Two ways, compared in each round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Pair {
    /// The way whose wall was higher in more rounds.
    pub higher: Way,
    /// The other one.
    pub lower: Way,
    /// Number of rounds in which the wall of `higher` was higher.
    pub rounds_higher: u64,
    /// Number of rounds in which it was lower. In the remaining rounds, both walls were the same rate.
    pub rounds_lower: u64,
    /// The probability of such a difference, or of a greater one, if both ways had the same wall: two-sided sign test.
    pub p_value: f64,
    /// Whether that is at most 5 %.
    pub differs: bool,
}

/// This measurement beside an earlier one.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Against {
    /// When the earlier one began.
    pub date: String,
    /// Pairs that differ in both measurements, in the same order.
    pub same: Vec<Pair>,
    /// Pairs that differ in both measurements, in opposite orders; as in this one.
    pub reversed: Vec<Pair>,
    /// Pairs that differ in one of the measurements only; as in that one.
    pub once: Vec<Pair>,
}

/// What is read of an earlier measurement.
#[derive(Clone, Debug, Deserialize)]
pub struct Earlier {
    /// When it began.
    pub date: String,
    /// Its pairs.
    pub order: Vec<Pair>,
}

/// The probability that of `n` fair coins at most `k` show one side, or at most `k` show the other.
fn sign_test(k: u64, n: u64) -> f64 {
    let mut term = 0.5_f64.powi(i32::try_from(n).unwrap_or(i32::MAX)); // of 0 coins
    let mut sum = 0.0;
    for heads in 0..=k {
        sum += term;
        term *= (n - heads) as f64 / (heads + 1) as f64;
    }
    (2.0 * sum).min(1.0)
}

impl Pair {
    fn of(a: &Curve, b: &Curve) -> Self {
        let count = |is: fn(&f64, &f64) -> bool| {
            a.walls_rps.iter().zip(&b.walls_rps).filter(|(a, b)| is(a, b)).count() as u64
        };
        let (above, below) = (count(|a, b| a > b), count(|a, b| a < b));
        let p_value = sign_test(above.min(below), above + below);
        let (higher, lower) = if above < below { (b.way, a.way) } else { (a.way, b.way) };
        let (rounds_higher, rounds_lower) = (above.max(below), above.min(below));
        Self {
            higher,
            lower,
            rounds_higher,
            rounds_lower,
            p_value,
            differs: p_value <= SIGNIFICANCE,
        }
    }

    fn is_of(&self, other: &Self) -> bool {
        (self.higher, self.lower) == (other.higher, other.lower) || self.is_reverse_of(other)
    }

    fn is_reverse_of(&self, other: &Self) -> bool {
        (self.higher, self.lower) == (other.lower, other.higher)
    }
}

/// All pairs of `curves`.
#[must_use]
pub(super) fn pairs(curves: &[Curve]) -> Vec<Pair> {
    let behind = |at: usize| curves[at + 1..].iter();
    let of = |(at, a)| behind(at).map(move |b| Pair::of(a, b));
    curves.iter().enumerate().flat_map(of).collect()
}

impl Against {
    /// Compares `pairs` with those of an earlier measurement. Pairs that only one of them has are left out.
    #[must_use]
    pub fn of(pairs: &[Pair], earlier: &Earlier) -> Self {
        let mut all =
            Self { date: earlier.date.clone(), same: vec![], reversed: vec![], once: vec![] };
        for now in pairs {
            let Some(then) = earlier.order.iter().find(|then| then.is_of(now)) else { continue };
            match (now.differs, then.differs) {
                (true, true) if now.is_reverse_of(then) => all.reversed.push(now.clone()),
                (true, true) => all.same.push(now.clone()),
                (true, false) => all.once.push(now.clone()),
                (false, true) => all.once.push(then.clone()),
                (false, false) => {}
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steer::Spread;

    fn curve(way: Way, walls: &[f64]) -> Curve {
        Curve {
            way,
            wall_rps: Spread::of(walls.to_vec()),
            walls_rps: walls.to_vec(),
            wall_found: true,
            requests: 0,
            sets: 0,
            answered: 0,
            drops: Default::default(),
            points: Vec::new(),
        }
    }

    #[test]
    fn probabilities_are_those_of_coins() {
        assert_eq!(sign_test(0, 0), 1.0);
        assert_eq!(sign_test(0, 5), 2.0 / 32.0);
        assert_eq!(sign_test(0, 6), 2.0 / 64.0);
        assert_eq!(sign_test(1, 8), 2.0 * 9.0 / 256.0);
        assert_eq!(sign_test(3, 6), 1.0);
    }

    #[test]
    fn rounds_are_compared_one_by_one() {
        // The machine is slower in every second round, so the extremes of both overlap.
        let none = curve(Way::None, &[110.0, 60.0, 110.0, 60.0, 110.0, 60.0, 90.0]);
        let rps = curve(Way::Rps, &[90.0, 50.0, 90.0, 50.0, 90.0, 50.0, 90.0]);
        let mixed = curve(Way::Rfs, &[110.0, 50.0, 90.0, 60.0, 110.0, 50.0, 90.0]);
        let all = pairs(&[rps.clone(), none.clone(), mixed]);
        assert_eq!(all.len(), 3);
        let first = &all[0];
        assert_eq!((first.higher, first.lower), (Way::None, Way::Rps));
        assert_eq!((first.rounds_higher, first.rounds_lower), (6, 0));
        assert!(first.differs && first.p_value == 2.0 / 64.0);
        assert!(all[1..].iter().all(|pair| !pair.differs), "{all:?}");
    }

    #[test]
    fn an_earlier_measurement_has_the_same_order_or_the_reverse() {
        let pair = |higher, lower, differs| Pair {
            higher,
            lower,
            rounds_higher: 7,
            rounds_lower: 0,
            p_value: 0.01,
            differs,
        };
        let now = [
            pair(Way::None, Way::Rps, true),
            pair(Way::None, Way::Rfs, true),
            pair(Way::Rps, Way::Rfs, true),
            pair(Way::None, Way::YardAtr, false),
            pair(Way::None, Way::TapAtr, true), // was not measured before
        ];
        let order = vec![
            pair(Way::None, Way::Rps, true),
            pair(Way::Rfs, Way::None, true),
            pair(Way::Rfs, Way::Rps, false),
            pair(Way::YardAtr, Way::None, true),
        ];
        let against = Against::of(&now, &Earlier { date: "then".into(), order: order.clone() });
        assert_eq!(against.same, now[..1]);
        assert_eq!(against.reversed, now[1..2]);
        assert_eq!(against.once, [now[2].clone(), order[3].clone()]);
    }
}
