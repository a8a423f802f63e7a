//! What things cost on a machine: named constants, each with where it comes from.
//!
//! A profile is a TOML file. `flowyard calibrate` writes one of the machine it runs on; the machines of
//! the papers are in `profiles/`. A constant says how it was come by: *measured* here, *published* by
//! someone, *assumed*, or *fitted* to named rows of a paper. What is fitted predicts nothing about its
//! own rows; all others are predictions.
//!
//! Invariant: every constant is finite and not negative. Thread-safety: plain data.

use std::collections::BTreeMap;

use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// How a constant was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// By `flowyard calibrate` on this machine.
    Measured,
    /// From a datasheet, a driver, a paper.
    Published,
    /// A plausible value; the source says why.
    Assumed,
    /// Chosen so that the rows in `source` come out.
    Fitted,
}

impl How {
    /// The word in files and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Published => "published",
            Self::Assumed => "assumed",
            Self::Fitted => "fitted",
        }
    }
}

/// One constant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Its value, in the unit that its name ends with (`_ns`, `_share`, ...).
    pub value: f64,
    /// How it was come by.
    pub how: How,
    /// Where from; of a fitted one, the rows.
    pub source: String,
}

/// A machine and its costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// A short name.
    pub name: String,
    /// What machine it is.
    pub title: String,
    /// Its processors.
    pub machine: Machine,
    /// What is worth knowing of a measurement: kernel, load, date.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub about: BTreeMap<String, String>,
    /// The constants by name.
    pub constants: BTreeMap<String, Constant>,
}

/// Why a profile is of no use.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file is no profile.
    #[error("{name}: not a profile: {source}")]
    Syntax {
        /// The file.
        name: String,
        /// What the parser said.
        source: Box<toml::de::Error>,
    },
    /// No such built-in profile.
    #[error("no profile '{0}'; there are: {1}")]
    Unknown(String, String),
    /// A constant is not there.
    #[error(
        "profile '{profile}' has no constant '{constant}'; `flowyard calibrate` writes all of its own"
    )]
    Missing {
        /// The profile.
        profile: String,
        /// The constant.
        constant: String,
    },
    /// A constant is not a number to reckon with.
    #[error(
        "profile '{profile}': constant '{constant}' is {value}; it must be finite and not negative"
    )]
    Value {
        /// The profile.
        profile: String,
        /// The constant.
        constant: String,
        /// What it is.
        value: f64,
    },
    /// No processor, or more than the model has room for.
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
    /// Reads a profile; `name` is for messages.
    ///
    /// # Errors
    /// When the text is no profile, or a number in it is of no use.
    pub fn parse(name: &str, text: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text).map_err(|source| ProfileError::Syntax {
            name: name.to_owned(),
            source: Box::new(source),
        })?;
        let Machine { sockets, cores, threads } = profile.machine;
        if !(1..=8).contains(&sockets) || !(1..=128).contains(&cores) || !(1..=2).contains(&threads)
        {
            return Err(ProfileError::Machine(profile.name));
        }
        for (constant, Constant { value, .. }) in &profile.constants {
            if !value.is_finite() || *value < 0.0 {
                let (constant, value) = (constant.clone(), *value);
                return Err(ProfileError::Value { profile: profile.name, constant, value });
            }
        }
        Ok(profile)
    }

    /// The built-in profile `name`.
    ///
    /// # Errors
    /// When there is none of that name.
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

    /// The profile as a file.
    ///
    /// # Panics
    /// Never: a profile is made of what TOML has.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// The constant `name`.
    ///
    /// # Errors
    /// When it is not there.
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
    /// When it is not there.
    pub fn ns(&self, name: &str) -> Result<Nanos, ProfileError> {
        Ok(self.get(name)?.round() as Nanos)
    }

    /// This profile with a constant times `factor`: for settings that nobody measured.
    #[must_use]
    pub fn times(mut self, name: &str, factor: f64) -> Self {
        if let Some(constant) = self.constants.get_mut(name) {
            constant.value *= factor;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_are_whole_and_round_trip() {
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
    fn errors_say_what_and_where() {
        let told = |text: &str| Profile::parse("x.toml", text).unwrap_err().to_string();
        assert!(told("name = 1").starts_with("x.toml: not a profile"));
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
