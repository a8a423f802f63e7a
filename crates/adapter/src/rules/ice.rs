//! E810 with ice: one input set per flow type and port, and through ethtool only whole fields.
//!
//! The hardware has field masks. DPDK uses them; the ethtool path of the kernel does not.

use flowyard_frame::FlowKey;

use super::input_set::{OTHER_ONLY, all_or_nothing, flex, same_input_set, supported};
use super::installed::Installed;
use super::rule::{FlowType, Rule};
use super::verdict::{Check, Reason, refuse};

/// The last offset of a flexible word, in bytes of the packet.
const LAST_FLEX: u16 = 504;

/// Checks everything except location, action and duplicates.
pub(super) fn check(rule: &Rule, installed: &Installed<'_>) -> Check {
    supported(rule, "ice", "ether, and ip4 and ip6 and their tcp, udp and sctp")?;
    all_or_nothing(rule, "ice")?;
    let mask = &rule.mask;
    let bare = matches!(rule.flow_type, FlowType::Ip4 | FlowType::Ip6);
    if bare && (mask.sport != 0 || mask.dport != 0) {
        return refuse(
            Reason::Field,
            "ice matches nothing beyond the IP header in ip4 and ip6 rules (-EINVAL)",
            "to match ports use flow type tcp4, udp4, sctp4, tcp6, udp6 or sctp6",
        );
    }
    let addresses = mask.src != [0; 16] || mask.dst != [0; 16];
    if (bare && !addresses) || (rule.flow_type == FlowType::Ether && *mask == FlowKey::ZERO) {
        return refuse(
            Reason::EmptyRule,
            format!("ice refuses a {} rule without fields (-EINVAL)", rule.flow_type.name()),
            "add an address",
        );
    }
    flex(rule, "ice", LAST_FLEX)?;
    same_input_set(rule, installed, "ice", "for the port")?;
    let mut notes = vec!["in tunnelled packets the inner headers are matched".to_owned()];
    match rule.flow_type {
        FlowType::Ip4 | FlowType::Ip6 => notes.push(OTHER_ONLY.to_owned()),
        FlowType::Tcp4 | FlowType::Tcp6 | FlowType::Udp4 | FlowType::Udp6 if !four_tuple(rule) => {
            notes.push(format!(
                "turns aRFS off for {}: aRFS needs all rules of the type to match the 4-tuple",
                rule.flow_type.name()
            ));
        }
        _ => {}
    }
    if rule.user_def.is_some() {
        notes
            .push("the offset of the flexible word counts from the start of the packet".to_owned());
    }
    Ok(notes)
}

fn four_tuple(rule: &Rule) -> bool {
    let mask = &rule.mask;
    mask.src != [0; 16]
        && mask.dst != [0; 16]
        && mask.sport != 0
        && mask.dport != 0
        && mask.vlan_tci == 0
        && rule.user_def.is_none()
}
