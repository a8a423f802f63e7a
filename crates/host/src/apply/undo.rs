//! Undoes what a journal names, the last change first.

use std::io;
use std::path::Path;

use super::{Failure, boot, find, follows_channels, short};
use crate::journal::{self, Header, Journal};
use crate::known::reason;
use crate::machine::Machine;
use crate::plan::Step;
use crate::setting::{NONE, Setting, Settings};

/// What undoing did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Undone {
    /// These settings were restored.
    Restored(Vec<Setting>),
    /// The machine was restarted or the interface was removed since then, so its settings are new. What is the machine's
    /// own was restored, and is [`Self::Restored`].
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
    let is_there = is_there(machine, &journal.header)?;
    if !is_there {
        // What is not the interface's own is left from before it was removed, but not from before a restart.
        let is_same_boot = journal.header.boot == boot(machine);
        let is_left = |step: &Step| is_same_boot && step.setting == Setting::SockFlows;
        let Journal { header, begun, .. } = &mut journal;
        begun.retain(|&step| header.steps.get(step).is_some_and(is_left));
    }
    restore(machine, &mut journal)?;
    let steps = journal.steps();
    let begun = journal.begun.iter().filter_map(|&step| steps.get(step));
    let made = begun.filter(|step| !step.setting.is_new());
    let mut settings: Vec<_> = made.map(|step| step.setting.clone()).collect();
    settings.sort();
    settings.dedup();
    journal.delete().map_err(Failure::Journal)?;
    Ok(if is_there || !settings.is_empty() { Undone::Restored(settings) } else { Undone::Obsolete })
}

/// Whether the interface that was changed is still there. It is not after a restart, or if it was removed.
///
/// # Errors
/// [`Failure::Elsewhere`]: it has another name now, or is in another network namespace.
fn is_there(machine: &dyn Machine, header: &Header) -> Result<bool, Failure> {
    let Header { interface, index, namespace, .. } = header;
    if header.boot != boot(machine) {
        return Ok(false);
    }
    let here = machine.namespace().ok();
    let is_known = here.is_some() && namespace.is_some();
    let elsewhere = |why| Err(Failure::Elsewhere { interface: interface.clone(), why });
    if is_known && here != *namespace {
        return elsewhere(
            "it was written in another network namespace; run the command there, as with `ip netns exec`".to_owned(),
        );
    }
    if machine.index(interface).is_ok_and(|now| now == *index) {
        return Ok(true);
    }
    match machine.name(*index) {
        Ok(name) => elsewhere(format!(
            "the interface is called {name} now; give it its former name, as with \
             `ip link set {name} name {interface}`, to undo the change"
        )),
        Err(_) if is_known => Ok(false),
        Err(_) => elsewhere(format!(
            "no interface has the index {index}, and it is not known whether it is in this network namespace"
        )),
    }
}

/// Restores the settings that a journal names, the last change first.
pub(super) fn restore(machine: &mut dyn Machine, journal: &mut Journal) -> Result<(), Failure> {
    let (mut foreign, mut failed) = (Vec::new(), Vec::new());
    find::unnamed(machine, journal, &mut foreign, &mut failed);
    let (steps, interface) = (&journal.steps(), &journal.header.interface.clone());
    let is_begun = |step: &usize| journal.begun.contains(step) && !steps[*step].setting.is_new();
    let begun: Vec<usize> = (0..steps.len()).filter(is_begun).collect();
    let restores_channels = begun.iter().any(|&step| steps[step].setting == Setting::Channels);
    let is_absent = |rule: &Setting| rule.get(machine, interface).is_ok_and(|now| now == NONE);
    let gone = if restores_channels { journal.gone(is_absent) } else { Vec::new() };
    let mut held = Vec::new();
    for &number in begun.iter().rev() {
        let Step { setting, from, to, .. } = &steps[number];
        match setting.get(machine, interface) {
            Ok(now) if now == *from || now == first(steps, &begun, setting) => continue,
            Ok(now) if now == *to && find::is_used(machine, interface, setting) => {
                foreign.push(format!("{setting} is used by a rule of another program"));
            }
            Ok(now) if now == *to || follows_channels(steps, setting) => {
                // Before the channels are restored, a table may name queues that do not exist: `again`
                // restores it then.
                match setting.set(machine, interface, from) {
                    Err(error) if !follows_channels(steps, setting) => {
                        failed.push(reason(&setting.to_string(), &error));
                    }
                    _ => continue,
                }
            }
            Ok(now) => foreign.push(format!(
                "{setting} is {}, flowyard had set {}",
                short(&now),
                short(to)
            )),
            Err(error) => failed.push(reason(&setting.to_string(), &error)),
        }
        held.push(setting.clone());
    }
    // Channels that are not restored are followed by settings that are not, either.
    if !held.contains(&Setting::Channels) {
        failed.extend(again(machine, interface, steps, &begun, &held));
        if restores_channels {
            let mut reset = journal.header.reset.clone();
            reset.retain(|setting, _| !gone.contains(setting));
            failed.extend(put_back(machine, interface, &reset));
        }
    }
    match (failed.is_empty(), foreign.is_empty()) {
        (true, true) => Ok(()),
        (false, _) => {
            failed.append(&mut foreign);
            Err(Failure::Unrestored(failed))
        }
        (true, false) => Err(Failure::Foreign(foreign)),
    }
}

/// The value that a setting had before the first step that changed it. It is there already if undoing was killed.
fn first<'a>(steps: &'a [Step], begun: &[usize], setting: &Setting) -> &'a str {
    let mut of_setting = begun.iter().map(|&step| &steps[step]);
    of_setting.find(|step| step.setting == *setting).map_or("", |step| &step.from)
}

/// Restores once more what restoring the channels has reset, and reads everything back, without the settings that are
/// `held`: those of another program, and those that failed already.
fn again(
    machine: &mut dyn Machine,
    interface: &str,
    steps: &[Step],
    begun: &[usize],
    held: &[Setting],
) -> Vec<String> {
    let mut failed = Vec::new();
    for (at, &number) in begun.iter().enumerate() {
        let Step { setting, from, .. } = &steps[number];
        // The first step of a setting has its original value.
        let is_later = begun[..at].iter().any(|&earlier| steps[earlier].setting == *setting);
        if is_later || held.contains(setting) {
            continue;
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
