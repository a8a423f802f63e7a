//! The rule, in the syntax of `ethtool -N`, for a single flow.

use flowyard_frame::{FlowKey, Frag, proto};

/// The rule that steers exactly this flow to `queue`.
pub(crate) fn rule_for(key: &FlowKey, queue: u16) -> Option<String> {
    let (src, dst) = (key.src_ip()?, key.dst_ip()?);
    let version = if key.is_ipv4() { 4 } else { 6 };
    let (name, ports) = match key.proto {
        _ if key.fragment() != Frag::No => ("ip", false),
        proto::TCP => ("tcp", true),
        proto::UDP => ("udp", true),
        proto::SCTP => ("sctp", true),
        _ => ("ip", false),
    };
    let ports = if ports {
        format!(" src-port {} dst-port {}", key.sport, key.dport)
    } else {
        String::new()
    };
    Some(format!("flow-type {name}{version} src-ip {src} dst-ip {dst}{ports} action {queue}"))
}
