//! Throughput and latency by offered load, and the load at which the latency rises steeply.

use super::outcome::Outcome;
use super::setup::{Load, Setup, SetupError};

/// The mean latency, in microseconds, above which a server counts as overloaded: about three times the
/// latency of light load, and above every step that interrupt moderation makes.
pub const WALL_US: f64 = 100.0;

/// The results of one server under several loads.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The offered loads in requests a second, ascending, and their results.
    pub points: Vec<(f64, Outcome)>,
}

impl Curve {
    /// Runs `setup` at each of `rates`, which ascend.
    ///
    /// # Errors
    /// When the setup cannot be run.
    pub fn run(setup: &Setup, rates: &[f64]) -> Result<Self, SetupError> {
        let run = |&rate: &f64| {
            let setup = Setup { load: Load::Open { rate }, ..setup.clone() };
            Ok((rate, setup.run()?))
        };
        Ok(Self { points: rates.iter().map(run).collect::<Result<_, SetupError>>()? })
    }

    /// The largest number of answers a second at any load.
    #[must_use]
    pub fn peak(&self) -> f64 {
        self.points.iter().map(|(_, outcome)| outcome.answered_rps).fold(0.0, f64::max)
    }

    /// The offered load at which the mean latency exceeds [`WALL_US`], interpolated between points by the
    /// logarithm of the latency; `None` if it never does.
    #[must_use]
    pub fn wall(&self) -> Option<f64> {
        let high = self.points.iter().position(|(_, o)| o.latency_us_mean > WALL_US)?;
        let (rate, over) = &self.points[high];
        let Some((before, under)) = high.checked_sub(1).map(|low| &self.points[low]) else {
            return Some(*rate);
        };
        let (low, top) = (under.latency_us_mean.max(1.0).ln(), over.latency_us_mean.ln());
        let share = (WALL_US.ln() - low) / (top - low);
        Some(before + (rate - before) * share)
    }

    /// The result at `rate`, if the curve has that load.
    #[must_use]
    pub fn at(&self, rate: f64) -> Option<&Outcome> {
        self.points.iter().find(|(r, _)| (r - rate).abs() < 1.0).map(|(_, outcome)| outcome)
    }
}
