//! Applies plans, reads every setting back, and undoes what a journal names.
//!
//! ```text
//!  apply:  compare with `made_for` ─> journal on the disk ─> step: still `from`? set, read back ─> all read back
//!                                                         rule whose location the driver chooses: the location is journalled
//!  undo:   newest step first: still `to`? set to `from` ─> all read back ─> journal deleted
//! ```
//!
//! Invariant: a setting is only written while it has the value that this program expects there, so that a
//! change by another program is reported and not overwritten. The exception is a step that was interrupted, or
//! a setting that the driver itself resets with the channels.

use std::io;
use std::path::Path;

use crate::journal::{Header, Journal};
use crate::known::reason;
use crate::machine::Machine;
use crate::plan::{Plan, Step};
use crate::setting::{Setting, Settings, settings_of};
use crate::state::State;

/// Why a plan was not applied, or not undone.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The machine is not the one that the plan was made for. Nothing was changed.
    #[error("the machine is not as it was when the plan was made: {}; make a new plan", .0.join("; "))]
    Different(Vec<String>),
    /// The plan would change or delete what another program made. Nothing was changed.
    #[error("the plan changes what is not flowyard's: {}; it only makes rules and RSS contexts, and deletes those that it made", .0.join("; "))]
    NotOurs(Vec<String>),
    /// The file of the journal cannot be written or read. Nothing was changed.
    #[error("the journal: {0}")]
    Journal(io::Error),
    /// The interface cannot be read.
    #[error("{interface}: {error}")]
    Interface {
        /// Its name.
        interface: String,
        /// The error of the kernel.
        error: io::Error,
    },
    /// A step failed; what was changed before it was undone.
    #[error("{setting}: {why}; what was changed before was undone")]
    Step {
        /// The setting of the step.
        setting: Setting,
        /// What happened.
        why: String,
    },
    /// A step failed, and undoing did, too.
    #[error("{setting}: {why}; undoing failed, too: {undo}; run `flowyard undo` again")]
    Stuck {
        /// The setting of the step.
        setting: Setting,
        /// What happened.
        why: String,
        /// What happened while undoing.
        undo: String,
    },
    /// The journal is about an interface that is not here.
    #[error(
        "the journal of {interface} is kept: {why}; if nothing is to be undone, `flowyard undo {interface} --forget` deletes it"
    )]
    Elsewhere {
        /// Its name in the journal.
        interface: String,
        /// Where it is.
        why: String,
    },
    /// There is nothing to undo.
    #[error("there is no journal of {0} in {1}, so nothing was applied by flowyard")]
    Nothing(String, String),
    /// Settings that another program changed in the meantime were left as they are.
    #[error("not undone, because another program changed it: {}; the journal is kept", .0.join("; "))]
    Foreign(Vec<String>),
    /// A setting could not be restored.
    #[error("not undone: {}; the journal is kept, run `flowyard undo` again", .0.join("; "))]
    Unrestored(Vec<String>),
}

const BOOT: &str = "/proc/sys/kernel/random/boot_id";

pub(crate) fn boot(machine: &dyn Machine) -> String {
    machine.read(BOOT).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// How the machine differs from the one that the plan was made for: one line for each setting.
#[must_use]
pub fn differences(made_for: &Settings, now: &Settings) -> Vec<String> {
    let none = |setting: &Setting| setting.absent().unwrap_or("not known").to_owned();
    let mut all: Vec<String> = made_for
        .iter()
        .filter(|(setting, value)| now.get(setting) != Some(value))
        .map(|(setting, value)| {
            let now = now.get(setting).cloned().unwrap_or_else(|| none(setting));
            format!("{setting} was {} and is {}", short(value), short(&now))
        })
        .collect();
    let new = now.iter().filter(|(setting, _)| !made_for.contains_key(setting));
    all.extend(new.map(|(setting, value)| {
        format!("{setting} was {} and is {}", none(setting), short(value))
    }));
    all
}

/// A value in one line of a message. Rules are shown whole: they differ anywhere.
fn short(value: &str) -> String {
    const MOST: usize = 40;
    if value.starts_with("flow-type") {
        return format!("'{value}'");
    }
    match value.char_indices().nth(MOST) {
        Some((at, _)) => format!("'{}...'", &value[..at]),
        None => format!("'{value}'"),
    }
}

/// Applies a plan. Returns its journal, which is still locked; the change stays until it is undone.
///
/// # Errors
/// [`Failure`]; then nothing is changed, except with [`Failure::Stuck`].
pub fn apply(machine: &mut dyn Machine, plan: &Plan, folder: &Path) -> Result<Journal, Failure> {
    let interface = &plan.interface;
    let state = State::read(machine, interface)
        .map_err(|error| Failure::Interface { interface: interface.clone(), error })?;
    let mut different = differences(&plan.made_for, &settings_of(&state));
    let driver = state.driver.value().map_or("", |driver| &driver.name);
    if driver != plan.driver {
        different.insert(0, format!("the driver was '{}' and is '{driver}'", plan.driver));
    }
    if !different.is_empty() {
        return Err(Failure::Different(different));
    }
    let foreign = |step: &&Step| step.setting.absent().is_some_and(|absent| step.from != absent);
    let foreign: Vec<_> = plan.steps.iter().filter(foreign).collect();
    if !foreign.is_empty() {
        let name = |step: &&Step| format!("{} is {}", step.setting, short(&step.from));
        return Err(Failure::NotOurs(foreign.iter().map(name).collect()));
    }
    let present = plan.made_for.keys().filter(|setting| setting.absent().is_some());
    let header = Header {
        interface: interface.clone(),
        index: state.index,
        namespace: machine.namespace().ok(),
        boot: boot(machine),
        steps: plan.steps.clone(),
        present: present.cloned().collect(),
        reset: reset_by(plan),
    };
    let mut journal = Journal::create(folder, &header).map_err(Failure::Journal)?;
    for (number, step) in plan.steps.iter().enumerate() {
        if let Err(why) = one(machine, &mut journal, number, step) {
            return Err(give_up(machine, journal, &step.setting, why));
        }
    }
    // Later steps, or another program, may have changed what earlier ones set.
    let steps = journal.steps();
    for step in last_steps(&steps) {
        let now = step.setting.get(machine, interface);
        if let Some(why) = not_there(&step.setting, &now, &step.to) {
            return Err(give_up(machine, journal, &step.setting, why));
        }
    }
    // Rules and contexts of others are theirs: a change that made the driver drop one is taken back.
    for (setting, value) in others(plan) {
        if let Some(why) = changed(setting, &setting.get(machine, interface), value) {
            return Err(give_up(machine, journal, setting, why));
        }
    }
    journal.applied();
    Ok(journal)
}

/// What the plan leaves as it is although a change could make the driver drop it.
fn others(plan: &Plan) -> impl Iterator<Item = (&Setting, &String)> {
    let is_step = |setting: &Setting| plan.steps.iter().any(|step| step.setting == *setting);
    plan.made_for.iter().filter(move |(setting, _)| setting.absent().is_some() && !is_step(setting))
}

/// Why a setting that the plan does not change is not as it was.
fn changed(setting: &Setting, now: &io::Result<String>, was: &str) -> Option<String> {
    match now {
        Ok(value) if value == was => None,
        Ok(value) => {
            Some(format!("it was {} and is {} after the change", short(was), short(value)))
        }
        Err(error) => Some(reason(&format!("reading {setting}"), error)),
    }
}

/// The steps without those whose setting a later step changes again.
fn last_steps(steps: &[Step]) -> impl Iterator<Item = &Step> {
    let is_last =
        |at: usize| steps[at + 1..].iter().all(|later| later.setting != steps[at].setting);
    (0..steps.len()).filter(move |&at| is_last(at)).map(|at| &steps[at])
}

/// Why a setting does not have the value `wanted`.
fn not_there(setting: &Setting, now: &io::Result<String>, wanted: &str) -> Option<String> {
    match now {
        Ok(value) if value == wanted => None,
        Ok(value) => Some(format!("it is {} after it was set to {}", short(value), short(wanted))),
        Err(error) => Some(reason(&format!("reading {setting}"), error)),
    }
}

/// Makes one step. An error is the reason in words.
fn one(
    machine: &mut dyn Machine,
    journal: &mut Journal,
    number: usize,
    step: &Step,
) -> Result<(), String> {
    // A rule may spread over the context that an earlier step has made.
    let steps = journal.steps();
    let Step { setting, from, to, .. } = steps.get(number).unwrap_or(step);
    let interface = journal.header.interface.clone();
    let now = setting.get(machine, &interface);
    let now = now.map_err(|error| reason(&format!("reading {setting}"), &error))?;
    let reset = follows_channels(&journal.header.steps, setting);
    if now != *from && !reset {
        let (now, from) = (short(&now), short(from));
        return Err(format!("it is {now} and was {from} a moment ago: another program changed it"));
    }
    journal.begin(number).map_err(|error| format!("the journal: {error}"))?;
    let wrong = |error: &io::Error| reason(&format!("setting it to {}", short(to)), error);
    let chosen;
    let setting = if setting.is_new() {
        chosen = setting.make(machine, &interface, to).map_err(|error| wrong(&error))?;
        let written = journal.made(number, chosen.clone());
        written.map_err(|error| format!("the journal: {error}"))?;
        &chosen
    } else {
        setting.set(machine, &interface, to).map_err(|error| wrong(&error))?;
        setting
    };
    let now = setting.get(machine, &interface);
    if let Some(why) = not_there(setting, &now, to) {
        // A driver that made something else than the plan says: that is this program's, too.
        if let (Ok(_), Some(absent)) = (now, setting.absent()) {
            let removed = setting.set(machine, &interface, absent);
            removed.map_err(|error| format!("{why}; removing it: {error}"))?;
        }
        return Err(why);
    }
    journal.done(number).map_err(|error| format!("the journal: {error}"))
}

/// The settings that the driver may reset because the plan changes the channels.
fn reset_by(plan: &Plan) -> Settings {
    let is_step = |setting: &Setting| plan.steps.iter().any(|step| step.setting == *setting);
    let is_reset = |setting: &Setting| {
        // A context cannot be made again under its number.
        let can_be_set =
            matches!(setting, Setting::Rps(_) | Setting::FlowCount(_) | Setting::Rule(_));
        can_be_set || follows_channels(&plan.steps, setting)
    };
    if !is_step(&Setting::Channels) {
        return Settings::new();
    }
    let all = plan.made_for.iter().filter(|(setting, _)| is_reset(setting) && !is_step(setting));
    all.map(|(setting, value)| (setting.clone(), value.clone())).collect()
}

/// Whether the driver itself may change the setting, because the steps change the channels.
fn follows_channels(steps: &[Step], setting: &Setting) -> bool {
    let changes_channels = steps.iter().any(|step| step.setting == Setting::Channels);
    let is_reset = matches!(
        setting,
        Setting::Table | Setting::Key | Setting::Fields(_) | Setting::Affinity(_) | Setting::Xps(_)
    );
    changes_channels && is_reset
}

/// Undoes what was done before a step failed.
fn give_up(
    machine: &mut dyn Machine,
    mut journal: Journal,
    setting: &Setting,
    why: String,
) -> Failure {
    let setting = setting.clone();
    match undo::restore(machine, &mut journal)
        .and_then(|()| journal.delete().map_err(Failure::Journal))
    {
        Ok(()) => Failure::Step { setting, why },
        Err(undo) => Failure::Stuck { setting, why, undo: undo.to_string() },
    }
}

#[cfg(test)]
mod channel_tests;
mod find;
#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod tests;
mod undo;

pub use undo::{Undone, undo, undo_journal};
