//! 82599, X540 and X550 with ixgbe: perfect filters with one mask set for the whole port.

use flowyard_frame::{FlowKey, proto};

use crate::fdir::{Flex, Input, MaskSet, Mode, Pballoc};

use super::installed::Installed;
use super::rule::{FlowType, Rule, RuleAction};
use super::target::Target;
use super::verdict::{Check, Reason, Refusal, refuse};

/// Checks everything except location, action and duplicates, in the order of the driver.
pub(super) fn check(rule: &Rule, installed: &Installed<'_>, target: Target) -> Check {
    flow_type(rule)?;
    fields(rule)?;
    let mask = target.filter(rule).1;
    if mask.proto == 0 && (mask.sport != 0 || mask.dport != 0) {
        return refuse(
            Reason::PortsWithoutL4,
            "ixgbe cannot match ports if the L4 type is masked out (\"Error writing mask\")",
            "use flow type tcp4, udp4 or sctp4",
        );
    }
    // All installed rules have the same mask, so any of them can be compared.
    let first = installed.iter().next().filter(|(_, first)| target.filter(first).1 != mask);
    if let Some((_, first)) = first {
        let l4 = (mask.proto == 0) != (first.mask.proto == 0);
        let what = if l4 {
            " (even the L4 type differs: ip4 masks it out, tcp4, udp4 and sctp4 do not)"
        } else {
            ""
        };
        return refuse(
            Reason::OneMask,
            format!(
                "ixgbe: \"Only one mask supported per port\"; line {} has another one{what}",
                first.line
            ),
            format!(
                "give this rule the fields and masks of line {}, or delete all rules first",
                first.line
            ),
        );
    }
    let mut notes = vec!["IP fragments never match; RSS steers them".to_owned()];
    if installed.iter().next().is_none() {
        notes.push(
            "fixes the only mask of the port: all later rules must have the same mask".to_owned(),
        );
    }
    if rule.action == RuleAction::Drop {
        notes.push("packets are dropped through queue 127".to_owned());
    }
    Ok(notes)
}

fn flow_type(rule: &Rule) -> Result<(), Refusal> {
    if rule.flow_type.is_ipv6() {
        return refuse(
            Reason::Ipv6,
            "ixgbe does not match IPv6 in perfect mode (\"Unrecognized flow type\")",
            "leave IPv6 to RSS; only signature mode (ATR, DPDK) supports IPv6",
        );
    }
    let other = match rule.flow_type {
        FlowType::Tcp4 | FlowType::Udp4 | FlowType::Sctp4 => return Ok(()),
        FlowType::Ip4 if rule.mask.proto == 0 => return Ok(()),
        FlowType::Ip4 => {
            let known = matches!(rule.key.proto, proto::TCP | proto::UDP | proto::SCTP);
            if known && rule.mask.proto == 0xff {
                return Ok(());
            }
            format!("ip4 with l4proto {}", rule.key.proto)
        }
        other => other.name().to_owned(),
    };
    refuse(
        Reason::FlowType,
        format!(
            "ixgbe supports tcp4, udp4, sctp4 and ip4, not {other} (\"Unrecognized flow type\")"
        ),
        "use one of these; for other protocols use ip4 without l4proto",
    )
}

fn fields(rule: &Rule) -> Result<(), Refusal> {
    let mask = &rule.mask;
    if mask.eth_dst != [0; 6] {
        return refuse(
            Reason::Field,
            "ixgbe does not match MAC addresses in perfect mode (\"Unrecognized flow type\")",
            "remove dst-mac",
        );
    }
    if mask.tos != 0 {
        return refuse(
            Reason::IgnoredField,
            "ixgbe accepts the rule but ignores tos: it would match every type of service",
            "remove tos, or match it in software",
        );
    }
    if !matches!(mask.vlan_tci & 0xefff, 0 | 0x0fff | 0xe000 | 0xefff) {
        return refuse(
            Reason::VlanMask,
            "ixgbe masks the VLAN id as a whole and the priority as a whole (\"Error writing mask\")",
            "use `vlan N m 0xf000` (id), `vlan N m 0x1fff` (priority) or no `m` (both)",
        );
    }
    if rule.user_def.is_some() {
        return refuse(
            Reason::FlexMask,
            "ixgbe reads user-def as a pool number; its flexible word is vlan-etype, two bytes at \
             offset 12 of the frame (0x8100 if tagged, else the EtherType)",
            "use vlan-etype for the flexible word, or `vf N` for a pool",
        );
    }
    match rule.vlan_etype {
        Some((_, bits)) if bits != 0 && bits != 0xffff => refuse(
            Reason::FlexMask,
            "ixgbe matches vlan-etype as a whole or not at all (\"Error writing mask\")",
            "remove the `m` of vlan-etype",
        ),
        _ => Ok(()),
    }
}

/// Intel's separate driver compares the 13-bit bucket hash and the action with those of the rules at
/// all locations, including the rule's own. It therefore refuses an exact repetition, and also some
/// rules for other flows.
pub(super) fn false_duplicate(rule: &Rule, installed: &Installed<'_>) -> Result<(), Refusal> {
    let bucket = bucket13(&rule.key);
    let taken =
        |(_, other): &(u32, &Rule)| other.action == rule.action && bucket13(&other.key) == bucket;
    let Some((at, other)) = installed.iter().find(taken) else { return Ok(()) };
    if other.key == rule.key {
        return refuse(
            Reason::AlreadyExists,
            format!(
                "out-of-tree ixgbe: \"FDIR entry already exist\" (-EINVAL): line {} is at location \
                 {at}, and the driver refuses even a repetition there",
                other.line
            ),
            format!("remove this line, or delete location {at} first"),
        );
    }
    refuse(
        Reason::AlreadyExists,
        format!(
            "out-of-tree ixgbe: \"FDIR entry already exist\" (-EINVAL), although line {} is another \
             flow: both have bucket hash 0x{bucket:x} and the same action, and the driver compares \
             nothing else",
            other.line
        ),
        "give one of the two another queue, or use the ixgbe of the Linux kernel",
    )
}

/// The 13-bit bucket hash of a perfect filter whose `key` is masked already.
fn bucket13(key: &FlowKey) -> u16 {
    // All fields can be included, because bits outside the mask of the rule are zero in its key.
    let whole = MaskSet { flex: Flex::At(0), ..MaskSet::ATR };
    let input = Input::from_key(key, &whole).unwrap_or_default();
    input.folded().bucket(Mode::Perfect, Pballoc::K256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// Values of the driver, without a flexible word.
    #[test]
    fn bucket_hashes_equal_those_of_the_driver() {
        let ip = |x| Ipv4Addr::new(192, 168, 0, x).into();
        let tcp = FlowKey::five_tuple(proto::TCP, ip(1), 5300, ip(5), 80);
        assert_eq!(bucket13(&tcp), 0x01bb);
        assert_eq!(bucket13(&tcp.reversed()), 0x176d);
        assert_eq!(bucket13(&FlowKey { proto: proto::UDP, ..tcp }), 0x0ec0);
        assert_eq!(bucket13(&FlowKey { proto: proto::SCTP, ..tcp }), 0x0492);
        assert_eq!(bucket13(&FlowKey { proto: 0, sport: 0, dport: 0, ..tcp }), 0x1945);
        assert_eq!(bucket13(&FlowKey { vlan_tci: 100, ..tcp }), 0x06b9);
        assert_eq!(bucket13(&FlowKey { vlan_tci: 0xffff, ..tcp }), 0x06c1);
    }
}
