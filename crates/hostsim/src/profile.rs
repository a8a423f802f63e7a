//! Profiles: the costs of operations on a machine, each with its source.
//!
//! A profile is a TOML file. `flowyard calibrate` writes one for the machine it runs on; the machines of
//! the papers are in `profiles/`. Each constant says how it was obtained: *measured* here, *published* by
//! others, *assumed*, or *fitted* to named rows of a paper. A fitted constant predicts nothing about the rows
//! that it was fitted to; all other rows are predictions.
//!
//! Invariant: every constant is finite and not negative. Thread-safety: plain data.

use std::collections::BTreeMap;

use flowyard_frame::Nanos;
use flowyard_report::exhibit::{End, Input, Interval};
use flowyard_report::toml_error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;

pub use flowyard_report::exhibit::How;

/// A constant of a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Its value, in the unit with which its name ends (`_ns`, `_share`, ...).
    pub value: f64,
    /// How it was obtained.
    pub how: How,
    /// Its source; for a fitted constant, the rows it was fitted to.
    pub source: String,
    /// The interval of a value that is the median of repeated measurements; older files have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
}

/// A machine and the costs of operations on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// A short name for the command line.
    pub name: String,
    /// The machine, in words.
    pub title: String,
    /// What disturbed the measurement, if it was measured nevertheless.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<String>,
    /// The processors.
    pub machine: Machine,
    /// Circumstances of a measurement: kernel, load, date.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub about: BTreeMap<String, String>,
    /// The constants by name.
    pub constants: BTreeMap<String, Constant>,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file is not a profile.
    #[error("{at}: not a profile: {what}")]
    Syntax {
        /// The file, the line and the column.
        at: String,
        /// What is wrong.
        what: String,
    },
    /// There is no built-in profile of this name.
    #[error("no profile '{0}'; the built-in profiles are: {1}")]
    Unknown(String, String),
    /// A constant is missing.
    #[error(
        "profile '{profile}' has no constant '{constant}'; `flowyard calibrate` measures every constant that it can on this machine"
    )]
    Missing {
        /// The name of the profile.
        profile: String,
        /// The name of the constant.
        constant: String,
    },
    /// A constant is negative, infinite or not a number.
    #[error(
        "profile '{profile}': constant '{constant}' is {value}; it must be finite and not negative"
    )]
    Value {
        /// The name of the profile.
        profile: String,
        /// The name of the constant.
        constant: String,
        /// Its value.
        value: f64,
    },
    /// A constant is outside its interval.
    #[error("profile '{profile}': constant '{constant}' is {value}, outside its own interval")]
    Interval {
        /// The name of the profile.
        profile: String,
        /// The name of the constant.
        constant: String,
        /// Its value.
        value: f64,
    },
    /// The machine has no processor, or more than the model supports.
    #[error(
        "profile '{0}': a machine has 1 to 8 sockets, 1 to 128 cores each, with 1 or 2 threads"
    )]
    Machine(String),
}

/// The machines of the papers.
const BUILTIN: [(&str, &str); 4] = [
    ("dlb", include_str!("../profiles/dlb.toml")),
    ("kth", include_str!("../profiles/kth.toml")),
    ("lanner", include_str!("../profiles/lanner.toml")),
    ("rose-city", include_str!("../profiles/rose-city.toml")),
];

impl Profile {
    /// Reads a profile; `name` is used in messages.
    ///
    /// # Errors
    /// When the text is not a profile, or one of its numbers is out of range.
    pub fn parse(name: &str, text: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text).map_err(|error| {
            let (line, column) = toml_error::place(text, &error);
            ProfileError::Syntax {
                at: format!("{name}:{line}:{column}"),
                what: toml_error::words(&error),
            }
        })?;
        let Machine { sockets, cores, threads } = profile.machine;
        if !(1..=8).contains(&sockets) || !(1..=128).contains(&cores) || !(1..=2).contains(&threads)
        {
            return Err(ProfileError::Machine(profile.name));
        }
        for (constant, Constant { value, interval, .. }) in &profile.constants {
            let is_wrong = |value: &f64| !value.is_finite() || *value < 0.0;
            let ends = interval.iter().flat_map(|interval| End::BOTH.map(|end| interval.at(end)));
            if let Some(value) = ends.chain([*value]).find(is_wrong) {
                let constant = constant.clone();
                return Err(ProfileError::Value { profile: profile.name, constant, value });
            }
            if let Some(Interval { low, high, .. }) = interval
                && !(low <= value && value <= high)
            {
                let (profile, constant) = (profile.name, constant.clone());
                return Err(ProfileError::Interval { profile, constant, value: *value });
            }
        }
        Ok(profile)
    }

    /// The built-in profile `name`.
    ///
    /// # Errors
    /// When there is no built-in profile of that name.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        let found = BUILTIN.iter().find(|(known, _)| *known == name);
        let (name, text) = found.ok_or_else(|| {
            ProfileError::Unknown(name.to_owned(), BUILTIN.map(|(known, _)| known).join(", "))
        })?;
        Self::parse(name, text)
    }

    /// The names of the built-in profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// The profile as a TOML file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// The constant `name`.
    ///
    /// # Errors
    /// When the profile has no such constant.
    pub fn get(&self, name: &str) -> Result<f64, ProfileError> {
        let found = self.constants.get(name).map(|constant| constant.value);
        found.ok_or_else(|| ProfileError::Missing {
            profile: self.name.clone(),
            constant: name.to_owned(),
        })
    }

    /// The constant `name` as whole nanoseconds.
    ///
    /// # Errors
    /// When the profile has no such constant.
    pub fn ns(&self, name: &str) -> Result<Nanos, ProfileError> {
        Ok(self.get(name)?.round() as Nanos)
    }

    /// The constants `names`, as inputs of a row. Names that the profile lacks are left out.
    #[must_use]
    pub fn inputs(&self, names: &[&str]) -> Vec<Input> {
        names.iter().filter_map(|name| self.input(name)).collect()
    }

    /// All constants, as inputs of a row.
    #[must_use]
    pub fn all_inputs(&self) -> Vec<Input> {
        self.constants.keys().filter_map(|name| self.input(name)).collect()
    }

    /// The constant `name`, as an input of a row; `None` if the profile lacks it.
    #[must_use]
    pub fn input(&self, name: &str) -> Option<Input> {
        let Constant { value, how, source, interval } = self.constants.get(name)?.clone();
        Some(Input { name: format!("{}.{name}", self.name), value, how, source, interval })
    }

    /// This profile with the constant `name` multiplied by `factor`, to predict machines that were not
    /// measured.
    #[must_use]
    pub fn times(mut self, name: &str, factor: f64) -> Self {
        if let Some(constant) = self.constants.get_mut(name) {
            constant.value *= factor;
            constant.interval = constant.interval.map(|interval| interval.times(factor));
        }
        self
    }

    /// This profile with every constant that has an interval at that end of it.
    #[must_use]
    pub fn at(mut self, end: End) -> Self {
        for constant in self.constants.values_mut() {
            constant.value = constant.interval.map_or(constant.value, |interval| interval.at(end));
        }
        self
    }

    /// A sentence about a measurement that was disturbed.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let what = self.disturbed.join("; ");
        (!what.is_empty()).then(|| {
            format!(
                "The costs of '{}' were measured on a machine that was not quiet: {what}.",
                self.name
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_are_complete_and_survive_toml() {
        for name in Profile::names() {
            let profile = Profile::named(name).unwrap();
            assert_eq!(profile.name, name);
            assert_eq!(Profile::parse(name, &profile.to_toml()).unwrap(), profile);
            for (constant, about) in &profile.constants {
                assert!(!about.source.is_empty(), "{name}: {constant}");
            }
        }
    }

    #[test]
    fn intervals_are_kept_and_older_files_have_none() {
        let head = "name = \"x\"\ntitle = \"x\"\n[machine]\nsockets = 1\ncores = 1\nthreads = 1\n\
                    [constants.a_ns]\nvalue = 5.0\nhow = \"measured\"\nsource = \"y\"\n";
        let old = Profile::parse("x", head).unwrap();
        assert_eq!(old.constants["a_ns"].interval, None);
        assert_eq!(old.clone().at(End::Low), old);
        let interval = |low: f64, high: f64| {
            let text = format!(
                "{head}interval = {{ low = {low:?}, high = {high:?}, confidence = 0.96, rounds = 15 }}\n"
            );
            Profile::parse("x", &text)
        };
        let new = interval(4.0, 7.0).unwrap();
        assert_eq!(Profile::parse("x", &new.to_toml()).unwrap(), new);
        assert_eq!(
            [End::Low, End::High].map(|e| new.clone().at(e).get("a_ns").unwrap()),
            [4.0, 7.0]
        );
        let twice = new.times("a_ns", 2.0).at(End::High);
        assert_eq!(twice.get("a_ns").unwrap(), 14.0);
        assert!(interval(6.0, 7.0).unwrap_err().to_string().contains("outside its own interval"));
        assert!(interval(-1.0, 7.0).unwrap_err().to_string().contains("'a_ns' is -1"));
    }

    #[test]
    fn errors_name_the_file_and_the_constant() {
        let told = |text: &str| Profile::parse("x.toml", text).unwrap_err().to_string();
        assert_eq!(told("name = 1"), "x.toml:1:8: not a profile: must be text in quotes, not 1");
        let head = "name = \"x\"\ntitle = \"x\"\n[machine]\nsockets = 1\ncores = 1\n";
        assert!(told(&format!("{head}threads = 3\n[constants]\n")).contains("1 or 2 threads"));
        let bad = "threads = 1\n[constants.a_ns]\nvalue = -1.0\nhow = \"assumed\"\nsource = \"\"\n";
        assert!(told(&format!("{head}{bad}")).contains("'a_ns' is -1"));
        assert!(Profile::named("y").unwrap_err().to_string().contains("rose-city"));
        let profile = Profile::named("rose-city").unwrap();
        assert!(profile.ns("no_such_ns").unwrap_err().to_string().contains("no_such_ns"));
        let irq = profile.get("irq_ns").unwrap();
        assert_eq!(profile.times("irq_ns", 0.5).get("irq_ns").unwrap(), irq / 2.0);
    }
}
