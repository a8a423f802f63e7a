//! 700 series with i40e: one input set per flow type for the whole device, and only whole fields.

use super::input_set::{OTHER_ONLY, all_or_nothing, flex, same_input_set, supported};
use super::installed::Installed;
use super::rule::{FlowType, Rule};
use super::verdict::{Check, Reason, refuse};

/// The last offset of a flexible word, in bytes of the payload.
const LAST_FLEX: u16 = 64;

/// Checks everything except location, action and duplicates.
pub(super) fn check(rule: &Rule, installed: &Installed<'_>) -> Check {
    supported(rule, "i40e", "ip4 and ip6 and their tcp, udp and sctp")?;
    if rule.flow_type == FlowType::Ether {
        return refuse(
            Reason::FlowType,
            "i40e has no Flow Director rules of type ether (-EOPNOTSUPP)",
            "use tc flower",
        );
    }
    all_or_nothing(rule, "i40e")?;
    flex(rule, "i40e", LAST_FLEX)?;
    same_input_set(rule, installed, "i40e", "for all ports of the device")?;
    let mut notes = vec![
        "ethtool reports success before the adapter has answered: if the table is full, the rule \
         is dropped later, and only the kernel log reports it"
            .to_owned(),
    ];
    match rule.flow_type {
        FlowType::Tcp4 | FlowType::Tcp6 => {
            notes.push("ATR is off on this function while a TCP rule is installed".to_owned());
        }
        FlowType::Ip4 | FlowType::Ip6 => notes.push(OTHER_ONLY.to_owned()),
        _ => {}
    }
    if rule.user_def.is_some() {
        notes.push(
            "the offset of the flexible word counts from the start of the payload".to_owned(),
        );
    }
    Ok(notes)
}
