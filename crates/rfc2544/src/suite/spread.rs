//! Spread of repeated searches, and whether a single figure may represent them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::line::Load;
use crate::search::throughput::Answer;

/// Results of repeated searches, in frames per second.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Each result, in order of time; 0 if no rate without loss was found.
    pub runs_pps: Vec<f64>,
    /// The median; the lower of the two middle values for an even number.
    pub median_pps: f64,
    /// Standard deviation in percent of the mean.
    pub rsd_percent: f64,
    /// Why a single figure cannot represent the results.
    pub irregular: Option<String>,
    /// The number of repetitions that the tester limited: their results are lower bounds of the
    /// device's throughput.
    #[serde(default)]
    pub tester_limited: u32,
}

impl Spread {
    /// Results with a larger relative standard deviation, in percent, are irregular. RFC 8239
    /// section 1.3 requires less than 10.
    pub const LIMIT_PERCENT: f64 = 10.0;

    /// The spread of `runs_pps`; `None` if it is empty.
    #[must_use]
    pub fn new(runs_pps: Vec<f64>) -> Option<Self> {
        let mut sorted = runs_pps.clone();
        sorted.sort_by(f64::total_cmp);
        let median_pps = *sorted.get(sorted.len().saturating_sub(1) / 2)?;
        let n = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / n;
        // Sample standard deviation: divided by n - 1.
        let squares: f64 = sorted.iter().map(|rate| (rate - mean).powi(2)).sum();
        let deviation = if n > 1.0 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
        let rsd_percent = if mean > 0.0 { deviation / mean * 100.0 } else { 0.0 };
        let empty = runs_pps.iter().filter(|rate| **rate <= 0.0).count();
        let irregular = if empty > 0 && empty < runs_pps.len() {
            Some(format!("{empty} of {} repetitions found no rate without loss", runs_pps.len()))
        } else if rsd_percent > Self::LIMIT_PERCENT {
            Some(format!(
                "relative standard deviation {rsd_percent:.0} % is above {} %",
                Self::LIMIT_PERCENT
            ))
        } else {
            None
        };
        Some(Self { runs_pps, median_pps, rsd_percent, irregular, tester_limited: 0 })
    }

    /// The minimum and the maximum.
    #[must_use]
    pub fn range_pps(&self) -> [f64; 2] {
        let fold = |of: fn(f64, f64) -> f64| self.runs_pps.iter().copied().reduce(of);
        [fold(f64::min), fold(f64::max)].map(Option::unwrap_or_default)
    }
}

/// The median answer, and the spread of all answers if there are several.
pub(super) fn of(mut answers: Vec<Answer>) -> (Option<Answer>, Option<Spread>) {
    let rate = |answer: &Answer| answer.load.map_or(0.0, Load::pps);
    let mut spread =
        (answers.len() > 1).then(|| Spread::new(answers.iter().map(rate).collect())).flatten();
    let tester_limited = answers.iter().filter(|answer| answer.tester_limit).count() as u32;
    if let Some(spread) = &mut spread {
        spread.tester_limited = tester_limited;
    }
    answers.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
    let middle = answers.len().saturating_sub(1) / 2;
    // A result that the tester limited is a lower bound. At or below the median, it makes the median
    // a lower bound; above the median, it changes nothing.
    let tester_limit = answers.iter().take(middle + 1).any(|answer| answer.tester_limit);
    let all = answers.iter().map(|answer| answer.trials).sum();
    let invalid_trials = answers.iter().map(|answer| answer.invalid_trials).sum();
    let median = answers.get(middle).map(|answer| Answer {
        trials: all,
        invalid_trials,
        tester_limit,
        ..*answer
    });
    (median, spread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Search;
    use crate::search::throughput::{Config, Throughput};

    #[test]
    fn noise_is_not_a_figure() {
        let calm = Spread::new(vec![100.0, 101.0, 99.0]).unwrap();
        assert_eq!((calm.median_pps, calm.irregular.as_ref()), (100.0, None));
        assert!((calm.rsd_percent - 1.0).abs() < 1e-9, "{}", calm.rsd_percent);
        assert_eq!(calm.range_pps(), [99.0, 101.0]);
        let noisy = Spread::new(vec![100.0, 50.0, 150.0]).unwrap();
        assert!(noisy.irregular.unwrap().contains("50 %"));
        let failed = Spread::new(vec![100.0, 0.0, 100.0]).unwrap();
        assert!(failed.irregular.unwrap().contains("1 of 3"));
        // A lower bound at or below the median makes the median a lower bound.
        let mut search = Throughput::new(Config::rfc2544(Load::from_pps(1000.0)));
        let _ = search.next_trial();
        let answer = |pps, tester_limit| Answer {
            load: Some(Load::from_pps(pps)),
            tester_limit,
            ..search.answer()
        };
        let of_three = |limits: [bool; 3]| {
            let rates = [10.0, 20.0, 30.0].into_iter();
            let (median, spread) = of(rates.zip(limits).map(|(pps, at)| answer(pps, at)).collect());
            (median.unwrap().tester_limit, spread.unwrap().tester_limited)
        };
        assert_eq!(of_three([false, false, true]), (false, 1));
        assert_eq!(of_three([true, false, false]), (true, 1));
        assert_eq!(of_three([true; 3]), (true, 3));
        let never = Spread::new(vec![0.0, 0.0]).unwrap();
        assert_eq!((never.median_pps, never.irregular), (0.0, None));
        assert_eq!(Spread::new(Vec::new()), None);
    }
}
