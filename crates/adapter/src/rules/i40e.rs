//! 700 series under i40e: one input set per flow type, for the whole device; fields whole or absent.

use super::input_set::{OTHER_ONLY, all_or_nothing, flex, same_input_set, supported};
use super::installed::Installed;
use super::rule::{FlowType, Rule};
use super::verdict::{Check, Reason, refuse};

/// The last offset of a flex word, in bytes of the payload.
const LAST_FLEX: u16 = 64;

/// Everything but location, action and duplicates.
pub(super) fn check(rule: &Rule, installed: &Installed<'_>) -> Check {
    supported(rule, "i40e", "ip4 and ip6 and their tcp, udp and sctp")?;
    if rule.flow_type == FlowType::Ether {
        return refuse(
            Reason::FlowType,
            "i40e has no ether rules in Flow Director (-EOPNOTSUPP)",
            "use tc flower",
        );
    }
    all_or_nothing(rule, "i40e")?;
    flex(rule, "i40e", LAST_FLEX)?;
    same_input_set(rule, installed, "i40e", "for all ports of the device")?;
    let mut notes = vec![
        "success is reported before the adapter has answered: if its table is full the rule is \
         dropped later, and only dmesg says so"
            .to_owned(),
    ];
    match rule.flow_type {
        FlowType::Tcp4 | FlowType::Tcp6 => {
            notes.push("ATR is off on this function while a TCP rule is in".to_owned());
        }
        FlowType::Ip4 | FlowType::Ip6 => notes.push(OTHER_ONLY.to_owned()),
        _ => {}
    }
    if rule.user_def.is_some() {
        notes.push("the flex word's offset counts from the start of the payload".to_owned());
    }
    Ok(notes)
}
