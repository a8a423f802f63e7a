//! What a driver would answer to each rule, in order, before any adapter is touched.
//!
//! One pass: a rule is checked against its engine's abilities and against the rules already in,
//! then placed. Refused rules leave no trace, as in the driver.
//!
//! Invariants: one verdict per rule, in the rules' order; an accepted rule's location is below the
//! engine's limit and no other accepted rule has it.

use super::installed::Installed;
use super::rule::{Rule, RuleAction};
use super::target::{Driver, Target};
use super::verdict::{Reason, Refusal, Verdict, refuse};
use super::{i40e, ice, ixgbe};

/// The verdict on every rule, as if `ethtool` had been called once for each, in order.
#[must_use]
pub fn compile(rules: &[Rule], target: Target) -> Vec<Verdict> {
    let mut installed = Installed::new(target);
    let mut verdicts: Vec<Verdict> = Vec::with_capacity(rules.len());
    for (index, rule) in rules.iter().enumerate() {
        let (loc, verdict) = match place(rule, target, &installed) {
            Ok(Placed::At(loc, notes)) => (loc, Verdict::Accepted { loc, notes }),
            Ok(Placed::Again(loc, with, why)) => (loc, Verdict::Merged { with, why }),
            Err(Refusal(reason, text, mend)) => {
                verdicts.push(Verdict::Refused { reason, text, mend });
                continue;
            }
        };
        verdicts.push(verdict);
        let Some(old) = installed.insert(loc, index, rule) else { continue };
        let why = format!("line {} overwrites it: both are at location {loc}", rule.line);
        verdicts[old] = Verdict::Merged { with: rule.line, why };
        if let Some((loc, heir)) = installed.heir(&rules[old])
            && heir != index
        {
            let note =
                format!("was a copy of line {}, until that was overwritten", rules[old].line);
            verdicts[heir] = Verdict::Accepted { loc, notes: vec![note] };
        }
    }
    verdicts
}

/// The accepted rules with their locations, as [`super::RuleTable::new`] takes them.
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
    At(u32, Vec<String>),
    /// At a location, a filter that is in already: the line, and why.
    Again(u32, u32, String),
}

fn place(rule: &Rule, target: Target, installed: &Installed<'_>) -> Result<Placed, Refusal> {
    if matches!(target, Target::Virtio | Target::Software) {
        return refuse(
            Reason::NoNtuple,
            format!("{} has no flow rules (-EOPNOTSUPP)", target.driver_name()),
            "steer in software: tc flower or XDP to drop and redirect, RPS or RFS to choose a CPU",
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
    let mut notes = match target {
        Target::E82599 { .. } => ixgbe::check(rule, installed, target)?,
        Target::I40e { .. } => i40e::check(rule, installed)?,
        _ => ice::check(rule, installed)?,
    };
    let Some(loc) = rule.loc.or_else(|| installed.free()) else {
        return refuse(
            Reason::TableFull,
            format!("all {limit} locations are taken: ethtool finds none (-ENOSPC)"),
            "delete rules that you no longer need",
        );
    };
    if let Some(placed) = duplicate(rule, loc, target, installed)? {
        return Ok(placed);
    }
    if rule.loc.is_none() {
        notes.push(format!("ethtool chooses location {loc}, the highest free one"));
    }
    netmask_note(rule, &mut notes);
    Ok(Placed::At(loc, notes))
}

/// Actions are alike in all three engines but for numbers.
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
            format!("{name} takes `action -2` for a queue number and refuses it (-EINVAL)"),
            "set up wake-on-LAN with `ethtool -s <device> wol`",
        ),
        RuleAction::Context { context, .. } => refuse(
            Reason::RssContext,
            format!("{name} has no RSS contexts to send context {context} to (-EINVAL)"),
            "send to one queue, or use an adapter whose driver has them (mlx5, bnxt, sfc)",
        ),
        RuleAction::Vf { vf, .. } if target == Target::Ice => refuse(
            Reason::Action,
            format!("ice does not steer to virtual functions (vf {vf}, -EINVAL)"),
            "steer by destination MAC through the switch: tc flower, or `ip link set vf`",
        ),
        RuleAction::Queue(queue) | RuleAction::Vf { queue, .. } if queue >= queues => refuse(
            Reason::Queue,
            format!("{name} addresses queues 0 to {}, not {queue} (-EINVAL)", queues - 1),
            "use a queue that exists: `ethtool -l <device>` says how many",
        ),
        _ => Ok(()),
    }
}

/// What the driver makes of a rule equal to one that is in, or that it takes for one.
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
            "leaves it to the hardware which of the two actions wins"
        };
        let why = format!(
            "it is the filter of line {} again; ixgbe installs it a second time at location {loc}, \
             which wastes an entry of the table and {result}",
            other.line
        );
        return Ok(Some(Placed::Again(loc, other.line, why)));
    }
    refuse(
        Reason::AlreadyExists,
        format!(
            "{}: an existing filter (location {at}, line {}) already matches this flow (-EINVAL)",
            target.driver_name(),
            other.line
        ),
        format!("drop one of the two lines, or give both `loc {at}`: the later one overwrites"),
    )
}

/// `m 255.255.255.0` is nearly always a netmask by mistake.
fn netmask_note(rule: &Rule, notes: &mut Vec<String>) {
    for (name, bits) in [("src-ip", &rule.mask.src), ("dst-ip", &rule.mask.dst)] {
        let width = if rule.flow_type.is_ipv4() { 32 } else { 128 };
        let bits = u128::from_be_bytes(*bits) >> (128 - width);
        let above = bits.leading_zeros() - (128 - width);
        if bits != 0 && above >= 8 && bits & (bits + 1) == 0 {
            notes.push(format!(
                "{name}: only the low bits are matched; ones in ethtool's `m` are bits to ignore, \
                 so a netmask belongs in it the other way round"
            ));
        }
    }
}

#[cfg(test)]
mod tests;
