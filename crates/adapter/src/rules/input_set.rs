//! The checks that i40e and ice share: supported fields, whole fields, one input set per flow type.

use super::installed::Installed;
use super::rule::{FlowType, Rule};
use super::verdict::{Reason, Refusal, refuse};

/// Whether a mask has both ones and zeros.
pub(super) fn partial(bytes: &[u8]) -> bool {
    let first = bytes.first().copied().unwrap_or(0);
    (first != 0 && first != u8::MAX) || bytes.iter().any(|&byte| byte != first)
}

/// Refuses partial masks: i40e and ice match these fields as a whole or not at all.
pub(super) fn all_or_nothing(rule: &Rule, name: &str) -> Result<(), Refusal> {
    let mask = &rule.mask;
    let ip = if rule.flow_type.is_ipv4() { 4 } else { 16 };
    let fields: [(&str, &[u8]); 7] = [
        ("src-ip", &mask.src[..ip]),
        ("dst-ip", &mask.dst[..ip]),
        ("src-port", &mask.sport.to_be_bytes()),
        ("dst-port", &mask.dport.to_be_bytes()),
        ("vlan", &mask.vlan_tci.to_be_bytes()),
        ("src", &mask.eth_src),
        ("dst", &mask.eth_dst),
    ];
    match fields.into_iter().find(|(_, bits)| partial(bits)) {
        Some((field, _)) => refuse(
            Reason::PartialMask,
            format!("{name} matches {field} as a whole or not at all (-EOPNOTSUPP)"),
            format!("remove the `m` of {field} or the field, or use an 82599 or tc flower"),
        ),
        None => Ok(()),
    }
}

/// The note on ip4 and ip6 rules, which form a packet class of their own.
pub(super) const OTHER_ONLY: &str = "matches only packets that are neither TCP, UDP nor SCTP, and fragments; TCP, UDP and SCTP \
     packets are only matched by rules of their own flow types";

/// Refuses the flow types and fields that neither i40e nor ice supports.
pub(super) fn supported(rule: &Rule, name: &str, known: &str) -> Result<(), Refusal> {
    let mask = &rule.mask;
    if rule.spi.is_some() || matches!(rule.flow_type.name(), "ah4" | "esp4" | "ah6" | "esp6") {
        return refuse(
            Reason::FlowType,
            format!("{name} supports {known}, not {} (-EOPNOTSUPP)", rule.flow_type.name()),
            "spread IPsec by RSS on the SPI, if the adapter supports it",
        );
    }
    if rule.flow_type != FlowType::Ether && mask.eth_dst != [0; 6] {
        return refuse(
            Reason::Field,
            format!("{name} refuses dst-mac in IP rules (-EINVAL)"),
            "remove dst-mac",
        );
    }
    let bare = matches!(rule.flow_type, FlowType::Ip4 | FlowType::Ip6);
    let field = match () {
        () if mask.tos != 0 => "tos and tclass",
        () if bare && mask.proto != 0 => "l4proto (so GRE or ICMP cannot be matched)",
        () if rule.vlan_etype.is_some() => "vlan-etype",
        () => return Ok(()),
    };
    refuse(
        Reason::Field,
        format!("{name} cannot match {field} (-EOPNOTSUPP)"),
        "remove the field, or match it in software (tc flower, XDP)",
    )
}

/// Checks `user-def`, which these drivers read as offset and value.
pub(super) fn flex(rule: &Rule, name: &str, last: u16) -> Result<(), Refusal> {
    let (Some((value, bits)), Some(flex)) = (rule.user_def, rule.flex()) else { return Ok(()) };
    if bits != u64::MAX || value >> 32 != 0 {
        return refuse(
            Reason::FlexMask,
            format!("{name} reads user-def as offset << 16 | value, without a mask (-EINVAL)"),
            "remove the `m` of user-def, and use at most 32 bits",
        );
    }
    if flex.offset % 2 != 0 || flex.offset > last {
        return refuse(
            Reason::FlexOffset,
            format!(
                "{name} supports flexible words at even offsets up to {last}, not at {}",
                flex.offset
            ),
            "use another offset",
        );
    }
    Ok(())
}

/// Checks that the rule has the fields of the first rule of its flow type, which fixes the input set.
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
            "{name}: while flow type {} has rules, all of them must match the same fields {scope} (its input \
             set), and the rule of line {} matches other fields (-EOPNOTSUPP)",
            rule.flow_type.name(),
            other.line
        ),
        format!(
            "match exactly the fields of line {}, or delete the rules of this flow type first",
            other.line
        ),
    )
}
