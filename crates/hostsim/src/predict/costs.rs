//! The costs that a model reads, from a profile, from the built-in defaults where the profile has none, and from the
//! user.

use flowyard_report::exhibit::{End, How, Input};

use super::PredictError;
use crate::machine::Machine;
use crate::profile::{Constant, Profile, ProfileError};

/// The built-in profile with the defaults of model `server`.
const DEFAULTS: &str = "rose-city";

/// Constants of `flowyard calibrate` that are the same operation as one of model `server` with another name.
const SAME: [(&str, &str); 4] = [
    ("ipi_send_ns", "rps_ipi_send_ns"),
    ("ipi_take_ns", "rps_ipi_take_ns"),
    ("ipi_flight_ns", "rps_ipi_flight_ns"),
    ("request_ns", "memcached_request_ns"),
];

/// Constants of the defaults that their `scale` does not multiply: see `profiles/rose-city.toml`.
fn is_scaled(name: &str) -> bool {
    name.ends_with("_ns")
        && !name.starts_with("line_")
        && !["idle_exit_ns", "ipi_flight_ns", "network_ns"].contains(&name)
}

/// A cost: the constant that the model reads, and the input that it comes from.
#[derive(Clone, Debug, PartialEq)]
struct Cost {
    constant: String,
    input: Input,
}

/// The costs of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// The processors.
    pub machine: Machine,
    costs: Vec<Cost>,
    /// Remarks about where the costs come from.
    pub(super) notes: Vec<String>,
}

impl Costs {
    /// The costs of model `server`: those of `given`, and the defaults of a built-in profile for others. The
    /// processors are those of `given`, too.
    ///
    /// The software costs of a profile are multiplied by its `scale`, so that measured and assumed ones can stand
    /// beside each other.
    ///
    /// # Errors
    /// Only if the built-in profile is wrong.
    pub fn server(given: Option<&Profile>) -> Result<Self, PredictError> {
        let defaults = Profile::named(DEFAULTS)?;
        let names = defaults.constants.keys().filter(|name| *name != "scale");
        let costs = names.map(|constant| {
            let same = SAME.iter().find(|(name, _)| name == constant).map(|(_, same)| *same);
            let from = given.and_then(|given| {
                let names = std::iter::once(constant.as_str()).chain(same);
                names.into_iter().find_map(|name| scaled(given, name))
            });
            let input = from.or_else(|| scaled(&defaults, constant));
            input.map(|input| Cost { constant: constant.clone(), input })
        });
        let costs: Vec<Cost> = costs.flatten().collect();
        let notes = given.into_iter().chain([&defaults]).filter_map(|profile| {
            let Constant { value, how, source, .. } = profile.constants.get("scale")?;
            let name = &profile.name;
            let is_used = costs.iter().any(|Cost { input, .. }| {
                input.name.strip_prefix(name).is_some_and(|rest| is_scaled(&rest[1..]))
            });
            is_used.then(|| {
                format!(
                    "Costs of {name} are multiplied by its scale {value}, {}: {source}.",
                    how.name()
                )
            })
        });
        let mut notes: Vec<String> = notes.collect();
        notes.dedup();
        notes.extend(given.and_then(Profile::warning));
        Ok(Self { machine: given.unwrap_or(&defaults).machine, costs, notes })
    }

    /// The costs of model `yard`: the engine's stages in `given`.
    ///
    /// # Errors
    /// When the profile lacks a stage.
    pub fn yard(given: &Profile) -> Result<Self, PredictError> {
        given.get("yard_rx_ns")?; // The first of those that `flowyard calibrate` always measures.
        let names = given.constants.keys().filter(|name| is_stage(name));
        let cost = |name: &String| Some(Cost { constant: name.clone(), input: given.input(name)? });
        Ok(Self {
            machine: given.machine,
            costs: names.filter_map(cost).collect(),
            notes: given.warning().into_iter().collect(),
        })
    }

    /// Replaces a cost by a value of the user.
    ///
    /// # Errors
    /// When the model has no such cost, or the value is negative or not finite.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), PredictError> {
        if !value.is_finite() || value < 0.0 {
            let (profile, constant) = ("given".to_owned(), name.to_owned());
            return Err(ProfileError::Value { profile, constant, value }.into());
        }
        let known = || self.costs.iter().map(|c| c.constant.as_str()).collect::<Vec<_>>();
        let wrong = || PredictError::Cost { name: name.to_owned(), known: known().join(", ") };
        let Some(at) = self.costs.iter().position(|cost| cost.constant == name) else {
            return Err(wrong());
        };
        let (name, source) = (format!("given.{name}"), "command line".to_owned());
        self.costs[at].input = Input { name, value, how: How::Given, source, interval: None };
        Ok(())
    }

    pub(super) fn inputs(&self) -> impl Iterator<Item = &Input> {
        self.costs.iter().map(|cost| &cost.input)
    }

    /// Multiplies the cost with the name `input`.
    pub(super) fn times(&mut self, input: &str, factor: f64) {
        for cost in self.costs.iter_mut().filter(|cost| cost.input.name == input) {
            cost.input.value *= factor;
            cost.input.interval = cost.input.interval.map(|interval| interval.times(factor));
        }
    }

    /// Whether a cost has an interval.
    pub(super) fn have_intervals(&self) -> bool {
        self.inputs().any(|input| input.interval.is_some())
    }

    /// Sets every cost that has an interval to that end of it.
    pub(super) fn set_to(&mut self, end: End) {
        for Cost { input, .. } in &mut self.costs {
            input.value = input.interval.map_or(input.value, |interval| interval.at(end));
        }
    }

    /// The costs as the model reads them.
    pub(super) fn profile(&self) -> Profile {
        let constant = |Cost { constant, input }: &Cost| {
            let Input { value, how, source, interval, .. } = input.clone();
            (constant.clone(), Constant { value, how, source, interval })
        };
        let source = "applied already".to_owned();
        let one = Constant { value: 1.0, how: How::Assumed, source, interval: None };
        let scale = std::iter::once(("scale".to_owned(), one));
        Profile {
            name: "case".to_owned(),
            title: String::new(),
            disturbed: Vec::new(),
            machine: self.machine,
            about: std::collections::BTreeMap::new(),
            constants: self.costs.iter().map(constant).chain(scale).collect(),
        }
    }
}

/// Whether model `yard` reads this constant.
fn is_stage(name: &str) -> bool {
    name.starts_with("yard_") && !["yard_flows_ns", "yard_lookup_ns"].contains(&name)
}

/// The constant `name` of `profile` as an input, times the profile's `scale` if it has one.
fn scaled(profile: &Profile, name: &str) -> Option<Input> {
    let mut input = profile.input(name)?;
    let scale = profile.constants.get("scale").filter(|_| is_scaled(name));
    if let Some(Constant { value, how, .. }) = scale {
        let Input { source, value: before, .. } = &input;
        input.source = format!("{source}; {before} times scale {value} ({})", how.name());
        input.value *= value;
        input.interval = input.interval.map(|interval| interval.times(*value));
        if *how == How::Fitted {
            input.how = How::Fitted;
        }
    }
    Some(input)
}
