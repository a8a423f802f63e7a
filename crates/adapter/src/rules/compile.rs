//! Predicts the driver's answer to each rule, without access to an adapter.
//!
//! One pass in the order of the rules: each rule is checked against the capabilities of its engine
//! and against the rules installed so far, and is then placed. As in the driver, a refused rule has
//! no effect on later ones.
//!
//! Invariants: there is one verdict per rule, in the order of the rules. The location of an accepted
//! rule is below the limit of the engine, and no other accepted rule has it.

use super::installed::Installed;
use super::rule::{Extras, Rule, RuleAction};
use super::target::{Driver, Target};
use super::verdict::{Reason, Refusal, Verdict, refuse};
use super::{i40e, ice, ixgbe};
use crate::fdir;
use crate::profile::Profile;

/// The verdict on every rule, as if `ethtool` were called once for each rule in order.
#[must_use]
pub fn compile(rules: &[Rule], target: Target) -> Vec<Verdict> {
    let mut installed = Installed::new(target);
    let mut verdicts: Vec<Verdict> = Vec::with_capacity(rules.len());
    for (index, rule) in rules.iter().enumerate() {
        let (loc, verdict) = match place(rule, target, &installed) {
            Ok(Placed::New { loc, notes }) => (loc, Verdict::Accepted { loc, notes }),
            Ok(Placed::Duplicate { loc, with, why }) => (loc, Verdict::Merged { with, why }),
            Err(Refusal { reason, text, fix }) => {
                verdicts.push(Verdict::Refused { reason, text, fix });
                continue;
            }
        };
        verdicts.push(verdict);
        let Some(old) = installed.insert(loc, index, rule) else { continue };
        let why = format!("line {} overwrites this rule: both have location {loc}", rule.line);
        verdicts[old] = Verdict::Merged { with: rule.line, why };
        if let Some((loc, copy)) = installed.promote_copy(&rules[old])
            && copy != index
        {
            let note =
                format!("was a copy of line {}, which has been overwritten", rules[old].line);
            verdicts[copy] = Verdict::Accepted { loc, notes: vec![note] };
        }
    }
    verdicts
}

/// The accepted rules with their locations, in the form that [`super::RuleTable::new`] takes.
pub fn accepted<'a>(
    rules: &'a [Rule],
    verdicts: &'a [Verdict],
) -> impl Iterator<Item = (u32, &'a Rule)> {
    rules.iter().zip(verdicts).filter_map(|(rule, verdict)| match verdict {
        Verdict::Accepted { loc, .. } => Some((*loc, rule)),
        _ => None,
    })
}

enum Placed {
    New {
        loc: u32,
        notes: Vec<String>,
    },
    /// The filter is installed already, by line `with`.
    Duplicate {
        loc: u32,
        with: u32,
        why: String,
    },
}

fn place(rule: &Rule, target: Target, installed: &Installed<'_>) -> Result<Placed, Refusal> {
    if matches!(target, Target::Virtio | Target::Software) {
        return refuse(
            Reason::NoNtuple,
            format!("{} has no flow rules (-EOPNOTSUPP)", target.driver_name()),
            "steer in software: use tc flower or XDP to drop and redirect, RPS or RFS to select a CPU",
        );
    }
    let limit = target.locations();
    if let Some(loc) = rule.loc.filter(|&loc| loc >= limit) {
        return refuse(
            Reason::Location,
            format!(
                "{} has locations 0 to {}, not {loc} (-EINVAL)",
                target.driver_name(),
                limit.saturating_sub(1)
            ),
            format!("use a location below {limit}, or leave `loc` out"),
        );
    }
    action(rule, target)?;
    extras(rule, target)?;
    let mut notes = match target {
        Target::E82599 { .. } => ixgbe::check(rule, installed, target)?,
        Target::I40e { .. } => i40e::check(rule, installed)?,
        _ => ice::check(rule, installed)?,
    };
    let Some(loc) = rule.loc.or_else(|| installed.free()) else {
        return refuse(
            Reason::TableFull,
            format!("all {limit} locations are in use (-ENOSPC)"),
            "delete rules that are no longer needed",
        );
    };
    if let Some(placed) = duplicate(rule, loc, target, installed)? {
        return Ok(placed);
    }
    if rule.loc.is_none() {
        notes.push(format!("ethtool chooses location {loc}, the highest free one"));
    }
    netmask_note(rule, &mut notes);
    Ok(Placed::New { loc, notes })
}

/// Checks the action. The engines differ in little more than the number of queues.
fn action(rule: &Rule, target: Target) -> Result<(), Refusal> {
    let name = target.driver_name();
    let queues = match target {
        Target::E82599 { .. } => 127, // seven bits, and 127 is the drop queue
        Target::I40e { .. } => 1536,
        _ => 2048,
    };
    match rule.action {
        RuleAction::Wake => refuse(
            Reason::Action,
            format!("{name} reads `action -2` as a queue number and refuses it (-EINVAL)"),
            "set up wake-on-LAN with `ethtool -s <device> wol`",
        ),
        RuleAction::Context { context, .. } => refuse(
            Reason::RssContext,
            format!("{name} has no RSS contexts, so no context {context} (-EINVAL)"),
            "steer to one queue, or use an adapter whose driver has RSS contexts (mlx5, bnxt, sfc)",
        ),
        RuleAction::Vf { vf, .. } if target == Target::Ice => refuse(
            Reason::Action,
            format!("ice does not steer to virtual functions (vf {vf}, -EINVAL)"),
            "steer by destination MAC address in the embedded switch: tc flower, or `ip link set vf`",
        ),
        RuleAction::Queue(queue) | RuleAction::Vf { queue, .. } if queue >= queues => refuse(
            Reason::Queue,
            format!("{name} steers to queues 0 to {}, not to {queue} (-EINVAL)", queues - 1),
            "use a queue that exists; `ethtool -l <device>` shows how many there are",
        ),
        _ => Ok(()),
    }
}

/// Checks what the rule does besides steering against what the filters of the adapter can do.
fn extras(rule: &Rule, target: Target) -> Result<(), Refusal> {
    let Extras { counter, moderation, value } = rule.extras;
    let name = match target {
        Target::E82599 { .. } => "82599",
        Target::I40e { .. } => "x710",
        _ => "e810",
    };
    let Some(can) = Profile::find(name).and_then(|profile| profile.actions) else { return Ok(()) };
    let action = fdir::Action { counter, moderation, value, ..fdir::Action::queue(0) };
    match action.refusal(&can) {
        Some(why) if rule.extras != Extras::NONE => refuse(
            Reason::Action,
            format!("{}: {why}", target.driver_name()),
            "leave out count, moderation or value, or choose another adapter",
        ),
        _ => Ok(()),
    }
}

/// The driver's treatment of a rule that is, or seems to be, equal to an installed one.
fn duplicate(
    rule: &Rule,
    loc: u32,
    target: Target,
    installed: &Installed<'_>,
) -> Result<Option<Placed>, Refusal> {
    if let Target::E82599 { driver: Driver::OutOfTree, .. } = target {
        return ixgbe::false_duplicate(rule, installed).map(|()| None);
    }
    let Some((at, other)) = installed.same(rule, loc) else { return Ok(None) };
    if let Target::E82599 { .. } = target {
        let result = if other.action == rule.action {
            "changes nothing"
        } else {
            "leaves it to the hardware which of the two actions applies"
        };
        let why = format!(
            "equal to the filter of line {}; ixgbe installs it a second time at location {loc}, \
             which uses another entry of the table and {result}",
            other.line
        );
        return Ok(Some(Placed::Duplicate { loc, with: other.line, why }));
    }
    refuse(
        Reason::AlreadyExists,
        format!(
            "{}: an existing filter (location {at}, line {}) already matches this flow (-EINVAL)",
            target.driver_name(),
            other.line
        ),
        format!(
            "remove this line or line {}, or write `loc {at}` in both: then the later line replaces the earlier one",
            other.line
        ),
    )
}

/// Adds a note if a mask looks like a netmask, because `m 255.255.255.0` is nearly always a mistake.
fn netmask_note(rule: &Rule, notes: &mut Vec<String>) {
    for (name, bits) in [("src-ip", &rule.mask.src), ("dst-ip", &rule.mask.dst)] {
        let width = if rule.flow_type.is_ipv4() { 32 } else { 128 };
        let bits = u128::from_be_bytes(*bits) >> (128 - width);
        let above = bits.leading_zeros() - (128 - width);
        if bits != 0 && above >= 8 && bits & (bits + 1) == 0 {
            notes.push(format!(
                "{name}: only the low bits are matched; ones in ethtool's `m` are bits to ignore, \
                 so write an inverted netmask to match a network"
            ));
        }
    }
}

#[cfg(test)]
mod tests;
