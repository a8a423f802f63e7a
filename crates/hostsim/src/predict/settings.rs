//! The numbers of a setup, as inputs: each has a value, and how it was obtained.

use flowyard_report::exhibit::{How, Input};

use super::PredictError;

/// The first part of the names of settings, where costs have the name of their profile.
const PREFIX: &str = "setup.";

/// The numbers of a setup. Invariant: values are finite and not negative.
#[derive(Clone, Debug, Default)]
pub struct Settings(Vec<Input>);

impl Settings {
    /// Adds a setting: the value of the user, or else the default, whose reason is `why`.
    #[must_use]
    pub fn with(mut self, name: &str, given: Option<f64>, default: f64, why: &str) -> Self {
        let (value, how, source) = match given {
            Some(value) => (value, How::Given, "command line".to_owned()),
            None => (default, How::Assumed, format!("default: {why}")),
        };
        let name = format!("{PREFIX}{name}");
        self.0.push(Input { name, value, how, source, interval: None });
        self
    }

    pub(super) fn inputs(&self) -> impl Iterator<Item = &Input> {
        self.0.iter()
    }

    /// The setting `name`; 0 if there is none.
    pub(super) fn get(&self, name: &str) -> f64 {
        let is_it = |input: &&Input| input.name.strip_prefix(PREFIX) == Some(name);
        self.0.iter().find(is_it).map_or(0.0, |input| input.value)
    }

    /// The setting `name` as a whole number of at least 1 and at most `most`.
    pub(super) fn count<T: TryFrom<u64>>(
        &self,
        name: &'static str,
        most: u64,
    ) -> Result<T, PredictError> {
        let value = self.get(name);
        let wrong = || PredictError::Setting {
            name,
            why: format!("{value} is not possible; choose 1 to {most}"),
        };
        if !(1.0..=most as f64).contains(&value) {
            return Err(wrong());
        }
        T::try_from(value.round() as u64).map_err(|_| wrong())
    }

    /// Multiplies the setting with the name `input`. What counts something stays a whole number.
    pub(super) fn times(&mut self, input: &str, factor: f64) {
        for setting in self.0.iter_mut().filter(|setting| setting.name == input) {
            setting.value *= factor;
            if !is_measure(input) {
                setting.value = setting.value.round().max(1.0);
            }
        }
    }
}

/// Whether the value is a time, a rate or a factor, and not a number of something.
fn is_measure(name: &str) -> bool {
    ["_ns", "_us", "_times", "_pps"].iter().any(|unit| name.ends_with(unit))
}
