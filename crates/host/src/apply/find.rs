//! Finds what an interrupted step has made whose name the driver chose, but which the journal does not name yet.

use std::io;

use flowyard_adapter::rules::RuleAction;

use crate::journal::Journal;
use crate::known::reason;
use crate::machine::Machine;
use crate::rules::words;
use crate::setting::Setting;
use crate::setting::context::CONTEXTS;

/// Adds to the journal what its begun steps have made. What cannot be distinguished from others' is `foreign`.
pub(super) fn unnamed(
    machine: &dyn Machine,
    journal: &mut Journal,
    foreign: &mut Vec<String>,
    failed: &mut Vec<String>,
) {
    for number in 0..journal.header.steps.len() {
        let step = &journal.steps()[number];
        if !step.setting.is_new() || !journal.begun.contains(&number) {
            continue;
        }
        let named: Vec<Setting> = journal.made.values().cloned().collect();
        let known =
            |setting: &Setting| journal.header.present.contains(setting) || named.contains(setting);
        let equal = match equal(machine, &journal.header.interface, &step.setting, &step.to) {
            Ok(all) => all.into_iter().filter(|setting| !known(setting)).collect::<Vec<_>>(),
            Err(error) => {
                failed.push(reason(&format!("looking for {}", step.setting), &error));
                continue;
            }
        };
        match &equal[..] {
            [] => {} // it was interrupted before it was made
            [one] => {
                // If this cannot be written, it is found again.
                let _rewritten = journal.made(number, one.clone());
            }
            several => foreign.push(format!(
                "one of {} is flowyard's, and it is not known which: they are equal, and flowyard ended before it \
                 learnt its name; delete one with ethtool, then run `flowyard undo --forget`",
                several.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            )),
        }
    }
}

/// The settings of the kind of `like` with this value.
fn equal(
    machine: &dyn Machine,
    interface: &str,
    like: &Setting,
    value: &str,
) -> io::Result<Vec<Setting>> {
    match like {
        Setting::NewRule(_) => {
            let rules = machine.rules(interface)?.rules;
            let same = rules.iter().filter(|listed| words::listed(listed) == value);
            Ok(same.map(|listed| Setting::Rule(listed.loc)).collect())
        }
        _ => {
            // A context that cannot be read is an error: it may be the one that is looked for.
            let mut same = Vec::new();
            for number in CONTEXTS {
                let setting = Setting::Context(number);
                if setting.get(machine, interface)? == value {
                    same.push(setting);
                }
            }
            Ok(same)
        }
    }
}

/// Whether a rule spreads over a context.
pub(super) fn is_used(machine: &dyn Machine, interface: &str, setting: &Setting) -> bool {
    let Setting::Context(number) = *setting else { return false };
    let Ok(table) = machine.rules(interface) else { return false };
    table.rules.iter().any(|listed| {
        let action = listed.rule.as_ref().map(|rule| rule.action);
        matches!(action, Ok(RuleAction::Context { context, .. }) if context == number)
    })
}
