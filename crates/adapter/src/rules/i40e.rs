//! 700 series under i40e: one input set per flow type, for the whole device; fields whole or absent.

use super::compile::{Check, Reason, Refusal, all_or_nothing, refuse};
use super::installed::Installed;
use super::{FlowType, Rule};

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

/// ip4 and ip6 rules are of a packet class of their own.
pub(super) const OTHER_ONLY: &str = "matches only packets that are neither TCP, UDP nor SCTP, and fragments: each of those has a \
     flow type, and so a class of filters, of its own";

/// What neither i40e nor ice knows.
pub(super) fn supported(rule: &Rule, name: &str, known: &str) -> Result<(), Refusal> {
    let mask = &rule.mask;
    if rule.spi.is_some() || matches!(rule.flow_type.name(), "ah4" | "esp4" | "ah6" | "esp6") {
        return refuse(
            Reason::FlowType,
            format!("{name} knows {known}, not {} (-EOPNOTSUPP)", rule.flow_type.name()),
            "leave IPsec to RSS on SPI, where the adapter has it",
        );
    }
    if rule.flow_type != FlowType::Ether && mask.eth_dst != [0; 6] {
        return refuse(
            Reason::Field,
            format!("{name} refuses dst-mac in IP rules (-EINVAL)"),
            "drop dst-mac",
        );
    }
    let bare = matches!(rule.flow_type, FlowType::Ip4 | FlowType::Ip6);
    let field = match () {
        () if mask.tos != 0 => "tos and tclass",
        () if bare && mask.proto != 0 => "l4proto (so no rule for GRE, ICMP, ...)",
        () if rule.vlan_etype.is_some() => "vlan-etype",
        () => return Ok(()),
    };
    refuse(
        Reason::Field,
        format!("{name} cannot match {field} (-EOPNOTSUPP)"),
        "drop the field, or match it in software (tc flower, XDP)",
    )
}

/// `user-def` as offset and value.
pub(super) fn flex(rule: &Rule, name: &str, last: u16) -> Result<(), Refusal> {
    let (Some((value, bits)), Some(flex)) = (rule.user_def, rule.flex()) else { return Ok(()) };
    if bits != u64::MAX || value >> 32 != 0 {
        return refuse(
            Reason::FlexMask,
            format!("{name} reads user-def as offset << 16 | value, unmasked (-EINVAL)"),
            "drop its m, and use 32 bits at most",
        );
    }
    if flex.offset % 2 != 0 || flex.offset > last {
        return refuse(
            Reason::FlexOffset,
            format!("{name} takes flex words at even offsets up to {last}, not {}", flex.offset),
            "move the word",
        );
    }
    Ok(())
}

/// The first rule of a flow type fixes its fields.
pub(super) fn same_input_set(
    rule: &Rule,
    installed: &Installed<'_>,
    name: &str,
    scope: &str,
) -> Result<(), Refusal> {
    let set = |rule: &Rule| (rule.mask, rule.flex().map(|flex| flex.offset));
    let Some(other) = installed.of_type(rule.flow_type).filter(|other| set(other) != set(rule))
    else {
        return Ok(());
    };
    refuse(
        Reason::InputSet,
        format!(
            "{name}: the input set of {} is fixed {scope} while it has rules, and line {} has set \
             other fields (-EOPNOTSUPP)",
            rule.flow_type.name(),
            other.line
        ),
        format!(
            "match the fields of line {}, no more and no fewer, or delete its rules first",
            other.line
        ),
    )
}
