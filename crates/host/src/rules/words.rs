//! The text of a rule: that of `ethtool -N` without its location, in one form for all rules that match the same frames.
//! ixgbe, for example, tells an empty VLAN field of rules that were given without one.

use flowyard_adapter::rules::{FlowType, Rule, RuleAction, parse};
use flowyard_frame::{FlowKey, proto};

use crate::files::{hex, unhex};
use crate::ntuple::{Listed, Request};

/// In a rule of a plan: the context that the plan makes, whose number the driver chooses. As text it is `new`.
pub(crate) const NEW_CONTEXT: u32 = u32::MAX - 1;

/// The text of a rule.
pub(crate) fn text(rule: &Rule) -> String {
    let mut rule = rule.clone();
    rule.loc = None;
    rule.written = rule.key;
    if rule.mask.eth_dst == [0; 6] {
        rule.dst_mac = false;
    }
    rule.vlan_etype = rule.vlan_etype.filter(|(_, bits)| *bits != 0);
    rule.user_def = rule.user_def.filter(|(_, bits)| *bits != 0);
    if rule.vlan_etype.is_none() && rule.user_def.is_none() && rule.mask.vlan_tci == 0 {
        rule.ext = false;
    }
    rule.options().replace(&format!(" context {NEW_CONTEXT} "), " context new ")
}

/// The rule of a text.
pub(crate) fn read(text: &str) -> Option<Rule> {
    let text = text.replace(" context new ", &format!(" context {NEW_CONTEXT} "));
    let rule = parse("rule", &text).ok()?.into_iter().next()?;
    Some(Rule { line: 0, text: String::new(), ..rule })
}

/// The bytes that install the rule of a text, which may be one that ethtool has no words for.
pub(crate) fn bytes(text: &str) -> Option<Request> {
    match text.strip_prefix("raw ") {
        Some(digits) => Some(Request::from_bytes(unhex(digits)?.try_into().ok()?)),
        None => read(text).map(|rule| Request::encode(&rule, 0)),
    }
}

/// The text of a rule that a driver has.
pub(crate) fn listed(listed: &Listed) -> String {
    match &listed.rule {
        Ok(rule) => text(rule),
        Err(_) => format!("raw {}", hex(listed.bytes.meant().at(0).as_bytes())),
    }
}

/// The rule that matches a flow. A field that is zero in `flow` is not matched.
pub(crate) fn of_flow(flow: &FlowKey, action: RuleAction) -> Rule {
    let kind = match (flow.proto, flow.is_ipv4()) {
        (proto::TCP, true) => FlowType::Tcp4,
        (proto::UDP, true) => FlowType::Udp4,
        (proto::SCTP, true) => FlowType::Sctp4,
        (_, true) => FlowType::Ip4,
        (proto::TCP, false) => FlowType::Tcp6,
        (proto::UDP, false) => FlowType::Udp6,
        (proto::SCTP, false) => FlowType::Sctp6,
        (_, false) => FlowType::Ip6,
    };
    let mut rule = Rule { action, ..Rule::every(kind) };
    let width = if flow.is_ipv4() { 4 } else { 16 };
    let address = |of: [u8; 16]| {
        let mut mask = [0; 16];
        if of != mask {
            mask[..width].fill(0xff);
        }
        (of, mask)
    };
    let port = |of: u16| (of, if of == 0 { 0 } else { u16::MAX });
    (rule.written.src, rule.mask.src) = address(flow.src);
    (rule.written.dst, rule.mask.dst) = address(flow.dst);
    (rule.written.sport, rule.mask.sport) = port(flow.sport);
    (rule.written.dport, rule.mask.dport) = port(flow.dport);
    if !kind.has_ports() && flow.proto != 0 {
        (rule.written.proto, rule.mask.proto) = (flow.proto, u8::MAX);
    }
    rule.complete();
    rule
}
