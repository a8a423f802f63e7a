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

use crate::journal::{self, Header, Journal};
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
    match restore(machine, &mut journal).and_then(|()| journal.delete().map_err(Failure::Journal)) {
        Ok(()) => Failure::Step { setting, why },
        Err(undo) => Failure::Stuck { setting, why, undo: undo.to_string() },
    }
}

/// What undoing did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Undone {
    /// These settings were restored.
    Restored(Vec<Setting>),
    /// The machine was restarted or the interface was made again since then, so its settings are new.
    Obsolete,
}

/// Undoes the newest journal of an interface, and deletes it.
///
/// # Errors
/// [`Failure`]; then the journal is kept.
pub fn undo(machine: &mut dyn Machine, interface: &str, folder: &Path) -> Result<Undone, Failure> {
    let newest = journal::list(folder, interface).map_err(Failure::Journal)?.pop();
    let folder = || folder.display().to_string();
    let path = newest.ok_or_else(|| Failure::Nothing(interface.to_owned(), folder()))?;
    undo_journal(machine, Journal::open(&path).map_err(Failure::Journal)?)
}

/// Undoes an open journal, and deletes it.
///
/// # Errors
/// [`Failure`]; then the journal is kept.
pub fn undo_journal(machine: &mut dyn Machine, mut journal: Journal) -> Result<Undone, Failure> {
    let header = &journal.header;
    let index = machine.index(&header.interface).ok();
    if header.boot != boot(machine) || index != Some(header.index) {
        journal.delete().map_err(Failure::Journal)?;
        return Ok(Undone::Obsolete);
    }
    restore(machine, &mut journal)?;
    let steps = journal.steps();
    let begun = journal.begun.iter().filter_map(|&step| steps.get(step));
    let made = begun.filter(|step| !step.setting.is_new());
    let mut settings: Vec<_> = made.map(|step| step.setting.clone()).collect();
    settings.sort();
    settings.dedup();
    journal.delete().map_err(Failure::Journal)?;
    Ok(Undone::Restored(settings))
}

/// Restores the settings that a journal names, the last change first.
fn restore(machine: &mut dyn Machine, journal: &mut Journal) -> Result<(), Failure> {
    let (mut foreign, mut failed) = (Vec::new(), Vec::new());
    find::unnamed(machine, journal, &mut foreign, &mut failed);
    let (steps, interface) = (&journal.steps(), &journal.header.interface);
    let is_begun = |step: &usize| journal.begun.contains(step) && !steps[*step].setting.is_new();
    let begun: Vec<usize> = (0..steps.len()).filter(is_begun).collect();
    for &number in begun.iter().rev() {
        let Step { setting, from, to, .. } = &steps[number];
        match setting.get(machine, interface) {
            Ok(now) if now == *from || now == first(steps, &begun, setting) => {}
            Ok(now) if now == *to && find::is_used(machine, interface, setting) => {
                foreign.push(format!("{setting} is used by a rule of another program"));
            }
            Ok(now) if now == *to || follows_channels(steps, setting) => {
                // Before the channels are restored, a table may name queues that do not exist: `again`
                // restores it then.
                if let Err(error) = setting.set(machine, interface, from)
                    && !follows_channels(steps, setting)
                {
                    failed.push(reason(&setting.to_string(), &error));
                }
            }
            Ok(now) => foreign.push(format!(
                "{setting} is {}, flowyard had set {}",
                short(&now),
                short(to)
            )),
            Err(error) => failed.push(reason(&setting.to_string(), &error)),
        }
    }
    if foreign.is_empty() && failed.is_empty() {
        failed = again(machine, interface, steps, &begun);
        if begun.iter().any(|&step| steps[step].setting == Setting::Channels) {
            failed.extend(put_back(machine, interface, &journal.header.reset));
        }
    }
    match (failed.is_empty(), foreign.is_empty()) {
        (true, true) => Ok(()),
        (false, _) => Err(Failure::Unrestored(failed)),
        (true, false) => Err(Failure::Foreign(foreign)),
    }
}

/// The value that a setting had before the first step that changed it. It is there already if undoing was killed.
fn first<'a>(steps: &'a [Step], begun: &[usize], setting: &Setting) -> &'a str {
    let mut of_setting = begun.iter().map(|&step| &steps[step]);
    of_setting.find(|step| step.setting == *setting).map_or("", |step| &step.from)
}

/// Restores once more what restoring the channels has reset, and reads everything back.
fn again(
    machine: &mut dyn Machine,
    interface: &str,
    steps: &[Step],
    begun: &[usize],
) -> Vec<String> {
    let mut failed = Vec::new();
    for (at, &number) in begun.iter().enumerate() {
        let Step { setting, from, .. } = &steps[number];
        if begun[..at].iter().any(|&earlier| steps[earlier].setting == *setting) {
            continue; // the first step of a setting has its original value
        }
        let is_there =
            |machine: &dyn Machine| setting.get(machine, interface).is_ok_and(|now| now == *from);
        if is_there(machine) {
            continue;
        }
        let set = setting.set(machine, interface, from);
        if let Err(error) = set {
            failed.push(reason(&setting.to_string(), &error));
        } else if !is_there(machine) {
            failed.push(format!("{setting} does not take its former value {}", short(from)));
        }
    }
    failed
}

/// Restores what the driver has reset with the channels, although no step changed it.
fn put_back(machine: &mut dyn Machine, interface: &str, reset: &Settings) -> Vec<String> {
    let mut failed = Vec::new();
    for (setting, value) in reset {
        let is_there = |machine: &dyn Machine| setting.get(machine, interface);
        match (is_there(machine), setting.absent()) {
            // A file that is gone has no setting; a rule that is another one is somebody's.
            (Err(error), _) if error.kind() == io::ErrorKind::NotFound => continue,
            (Ok(now), _) if now == *value => continue,
            (Ok(now), Some(absent)) if now != absent => continue,
            _ => {}
        }
        match setting.set(machine, interface, value).and_then(|()| is_there(machine)) {
            Ok(now) if now == *value => {}
            Ok(now) => {
                failed.push(format!("{setting} is {} instead of {}", short(&now), short(value)));
            }
            Err(error) => failed.push(reason(&setting.to_string(), &error)),
        }
    }
    failed
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
