//! Lookup among the accepted rules: exact matching in groups of rules with the same mask.
//!
//! ```text
//!  key --class, fragment?--> group (mask 1): masked key -> rule
//!                            group (mask 2): masked key -> rule     lowest location applies
//! ```
//!
//! An 82599 has one group, i40e and ice have one per flow type, so at most one rule accepted by
//! [`super::compile`] matches a packet. Several can only match if other rules are given.
//!
//! Thread-safety: read-only after `new`.

use std::collections::HashMap;

use flowyard_frame::{FlowKey, Frag, proto};

use super::rule::{FlowType, Rule, RuleAction};
use super::target::Target;

/// The accepted rules, indexed for lookups.
#[derive(Clone, Debug)]
pub struct RuleTable {
    target: Target,
    groups: Vec<Group>,
}

#[derive(Clone, Debug)]
struct Group {
    /// The packet class, if the hardware has classes.
    class: Option<FlowType>,
    mask: FlowKey,
    map: HashMap<FlowKey, Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    loc: u32,
    line: u32,
    action: RuleAction,
}

impl Entry {
    /// The entry with the lowest rank applies.
    const fn rank(&self) -> (u32, u32) {
        (self.loc, self.line)
    }
}

impl RuleTable {
    /// The table of `rules` with their locations, usually from [`super::accepted`].
    pub fn new<'a>(target: Target, rules: impl IntoIterator<Item = (u32, &'a Rule)>) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        for (loc, rule) in rules.into_iter().filter(|(_, rule)| rule.spi.is_none()) {
            let (key, mask) = target.filter(rule);
            let class = has_classes(target).then_some(rule.flow_type);
            let place = groups.iter().position(|group| group.class == class && group.mask == mask);
            let place = place.unwrap_or_else(|| {
                groups.push(Group { class, mask, map: HashMap::new() });
                groups.len() - 1
            });
            let entry = Entry { loc, line: rule.line, action: rule.action };
            let old = groups[place].map.entry(key).or_insert(entry);
            if entry.rank() < old.rank() {
                *old = entry;
            }
        }
        Self { target, groups }
    }

    /// The action for a packet and the line of its rule; `None` if RSS decides.
    #[must_use]
    pub fn lookup(&self, key: &FlowKey) -> Option<(RuleAction, u32)> {
        if matches!(self.target, Target::E82599 { .. }) && key.fragment() != Frag::No {
            return None;
        }
        let best = self
            .groups
            .iter()
            .filter(|group| group.class.is_none_or(|class| in_class(class, key)))
            .filter_map(|group| group.map.get(&key.masked(&group.mask)))
            .min_by_key(|entry| entry.rank())?;
        Some((best.action, best.line))
    }
}

const fn has_classes(target: Target) -> bool {
    matches!(target, Target::I40e { .. } | Target::Ice)
}

/// Whether i40e and ice compare `key` with rules of `class`. Fragments belong to ip4 and ip6.
fn in_class(class: FlowType, key: &FlowKey) -> bool {
    let l4 = if key.frag == 0 { key.proto } else { 0 };
    let ports = matches!(l4, proto::TCP | proto::UDP | proto::SCTP);
    match class {
        FlowType::Ether => true,
        FlowType::Ip4 => key.is_ipv4() && !ports,
        FlowType::Ip6 => key.is_ipv6() && !ports,
        FlowType::Tcp4 | FlowType::Tcp6 => l4 == proto::TCP,
        FlowType::Udp4 | FlowType::Udp6 => l4 == proto::UDP,
        FlowType::Sctp4 | FlowType::Sctp6 => l4 == proto::SCTP,
        FlowType::Ah4 | FlowType::Esp4 | FlowType::Ah6 | FlowType::Esp6 => key.frag == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Driver, accepted, compile, parse};
    use proptest::prelude::*;

    /// A slow model for comparison: every rule in turn, as defined.
    fn linear(target: Target, rules: &[(u32, &Rule)], key: &FlowKey) -> Option<(RuleAction, u32)> {
        let mut best: Option<(u32, &Rule)> = None;
        for &(loc, rule) in rules {
            let hit = match target {
                Target::E82599 { .. } => {
                    // The CFI bit is not compared.
                    let mut bare = rule.clone();
                    bare.mask.vlan_tci &= 0xefff;
                    bare.key.vlan_tci &= 0xefff;
                    key.frag == 0 && bare.matches(key)
                }
                Target::I40e { .. } | Target::Ice => {
                    let l4 = matches!(key.proto, 6 | 17 | 132) && key.frag == 0;
                    let bare = matches!(rule.flow_type, FlowType::Ip4 | FlowType::Ip6);
                    let l4_rule = rule.flow_type.has_ports();
                    rule.matches(key) && !(bare && l4) && (!l4_rule || l4)
                }
                _ => rule.matches(key),
            };
            if hit && best.is_none_or(|(at, old)| (loc, rule.line) < (at, old.line)) {
                best = Some((loc, rule));
            }
        }
        best.map(|(_, rule)| (rule.action, rule.line))
    }

    fn targets() -> impl Strategy<Value = Target> {
        prop::sample::select(vec![
            Target::E82599 { pballoc: crate::fdir::Pballoc::K64, driver: Driver::InTree },
            Target::I40e { guaranteed: 512, best_effort: 7168 },
            Target::Ice,
            Target::Software,
        ])
    }

    fn rule_line() -> impl Strategy<Value = String> {
        let kind = prop::sample::select(vec!["tcp4", "udp4", "ip4", "tcp6", "ip6"]);
        (kind, 0u8..8, 0u8..3, 0u8..3, 0u8..3, 0u32..5, 0u32..6).prop_map(
            |(kind, fields, a, port, vlan, queue, loc)| {
                let mut line = format!("flow-type {kind}");
                let v6 = kind.ends_with('6');
                if fields & 1 != 0 {
                    line += &if v6 {
                        format!(" src-ip fe80::{a}")
                    } else {
                        format!(" src-ip 10.0.0.{a}")
                    };
                }
                if fields & 2 != 0 && !kind.starts_with("ip") {
                    line += &format!(" dst-port {port}");
                }
                if fields & 4 != 0 {
                    line += &format!(" vlan {vlan}{}", if a == 0 { " m 0xf000" } else { "" });
                }
                line + &format!(" action {queue} loc {loc}")
            },
        )
    }

    fn packet() -> impl Strategy<Value = FlowKey> {
        (any::<bool>(), 0u8..3, prop::sample::select(vec![6u8, 17, 47]), 0u16..3, 0u16..3, 0u8..8)
            .prop_map(|(v6, a, proto, dport, vlan, more)| {
                let mut src = [0; 16];
                if v6 {
                    (src[0], src[1], src[15]) = (0xfe, 0x80, a);
                } else {
                    src[..4].copy_from_slice(&[10, 0, 0, a]);
                }
                FlowKey {
                    src,
                    dport,
                    proto,
                    eth_type: if v6 { 0x86dd } else { 0x0800 },
                    vlan_tci: vlan | if more & 1 == 1 { 0x1000 } else { 0 },
                    frag: if more >= 6 { 1 } else { 0 },
                    ..FlowKey::ZERO
                }
            })
    }

    proptest! {
        #[test]
        fn the_table_equals_the_slow_model(
            target in targets(),
            lines in prop::collection::vec(rule_line(), 0..12),
            packets in prop::collection::vec(packet(), 1..40),
            compiled: bool,
        ) {
            let rules = parse("r", &lines.join("\n")).unwrap();
            let verdicts = compile(&rules, target);
            prop_assert_eq!(verdicts.len(), rules.len());
            // Rule sets that no driver accepts must work as well.
            let list: Vec<(u32, &Rule)> = if compiled {
                accepted(&rules, &verdicts).collect()
            } else {
                rules.iter().map(|rule| (rule.loc.unwrap(), rule)).collect()
            };
            let table = RuleTable::new(target, list.iter().copied());
            if compiled && matches!(target, Target::E82599 { .. }) {
                prop_assert!(table.groups.len() <= 1, "the port has one mask");
            }
            for key in &packets {
                prop_assert_eq!(table.lookup(key), linear(target, &list, key));
            }
        }
    }
}
