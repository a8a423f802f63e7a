//! From a key with a mask to the pattern of an adapter's rule.
//!
//! Invariants: every frame that the pattern matches, as adapters understand patterns, has a key that matches. An adapter
//! may match fewer frames, such as only those without a tag, or without options and extension headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowyard_dpdk::rules::{Protocol, Rule};
use flowyard_frame::{FlowKey, proto};

/// The fields of a pattern, as bits, and the lengths of its prefixes: what a device is asked about once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Shape(u16, [u8; 2]);

impl Shape {
    pub(super) fn of(rule: &Rule) -> Self {
        let length = |prefix: &Option<(IpAddr, u8)>| prefix.map_or(0, |(_, length)| length);
        let is_v6 = [rule.from, rule.to].iter().flatten().any(|(address, _)| address.is_ipv6());
        let protocol = match rule.protocol {
            None => 0,
            Some(Protocol::Tcp) => 1,
            Some(Protocol::Udp) => 2,
        };
        let bit = |is: bool, at: u16| u16::from(is) << at;
        Self(
            bit(rule.from.is_some(), 0)
                | bit(rule.to.is_some(), 1)
                | protocol << 4
                | bit(is_v6, 6)
                | bit(rule.vlan.is_some(), 7)
                | bit(rule.from_port.is_some(), 8)
                | bit(rule.to_port.is_some(), 9),
            [length(&rule.from), length(&rule.to)],
        )
    }
}

/// The pattern of frames with this key that port `port` receives; `None` if it can receive none of them. The offer is
/// empty.
///
/// # Errors
/// What no rule of an adapter can say.
pub(super) fn pattern(key: &FlowKey, mask: &FlowKey, port: u16) -> Result<Option<Rule>, String> {
    if key.in_port & mask.in_port != port & mask.in_port {
        return Ok(None);
    }
    let FlowKey { frag, tos, tcp_flags, eth_dst, eth_src, flex, tunnel_id, .. } = *mask;
    let others = [u32::from(frag | tos | tcp_flags), flex.into(), tunnel_id];
    if others != [0; 3] || eth_dst != [0; 6] || eth_src != [0; 6] {
        return Err("rules of adapters match VLANs, addresses, TCP and UDP, and ports".into());
    }
    let mut rule = Rule::default();
    match (mask.vlan_tci, key.vlan_tci) {
        (0, _) => {}
        (0xfff, 0) => return Err("rules of adapters cannot say that a frame has no tag".into()),
        (0xfff, vlan) => rule.vlan = Some(vlan),
        _ => return Err("rules of adapters match whole VLAN numbers".into()),
    }
    let any: IpAddr = match (mask.eth_type, key.eth_type) {
        (0, _) => {
            let rest = [mask.proto.into(), mask.sport, mask.dport];
            let is_bare = rest == [0; 3] && mask.src == [0; 16] && mask.dst == [0; 16];
            return if is_bare {
                Ok(Some(rule))
            } else {
                Err("rules of adapters with a protocol or a port are for IPv4 or for IPv6".into())
            };
        }
        (0xffff, 0x0800) => Ipv4Addr::UNSPECIFIED.into(),
        (0xffff, 0x86dd) => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Err("rules of adapters match IPv4 and IPv6".into()),
    };
    rule.from = prefix(&key.src, &mask.src, any.is_ipv4())?;
    rule.to = prefix(&key.dst, &mask.dst, any.is_ipv4())?;
    if rule.from.is_none() && rule.to.is_none() {
        rule.to = Some((any, 0));
    }
    rule.protocol = match (mask.proto, key.proto) {
        (0, _) => None,
        (0xff, proto::TCP) => Some(Protocol::Tcp),
        (0xff, proto::UDP) => Some(Protocol::Udp),
        _ => return Err("rules of adapters match the protocols TCP and UDP".into()),
    };
    for (value, bits, to) in
        [(key.sport, mask.sport, &mut rule.from_port), (key.dport, mask.dport, &mut rule.to_port)]
    {
        *to = match (bits, value) {
            (0, _) => None,
            (0xffff, 0) => {
                return Err(
                    "port 0 stands for frames without ports, which rules of adapters cannot say"
                        .into(),
                );
            }
            (0xffff, value) => Some(value),
            _ => return Err("rules of adapters match whole port numbers".into()),
        };
    }
    if rule.protocol.is_none() && (rule.from_port.is_some() || rule.to_port.is_some()) {
        return Err("rules of adapters with a port have a protocol".into());
    }
    Ok(Some(rule))
}

/// The prefix of an address in a key.
fn prefix(value: &[u8; 16], mask: &[u8; 16], is_v4: bool) -> Result<Option<(IpAddr, u8)>, String> {
    let (mask, value) = (u128::from_be_bytes(*mask), u128::from_be_bytes(*value));
    if mask == 0 {
        return Ok(None);
    }
    // The bytes behind an address of IPv4 are zero in every key, so it does not matter whether they are compared.
    let bits = mask.leading_ones().min(if is_v4 { 32 } else { 128 }) as u8;
    let rest = mask.checked_shl(bits.into()).unwrap_or(0);
    if rest != 0 && !(is_v4 && bits == 32) {
        return Err("rules of adapters match prefixes of addresses".into());
    }
    let value = value & mask;
    let address = if is_v4 {
        Ipv4Addr::from((value >> 96) as u32).into()
    } else {
        IpAddr::V6(Ipv6Addr::from(value))
    };
    Ok(Some((address, bits)))
}

/// Whether some frame could have keys that match both.
pub(super) fn overlap(one: (&FlowKey, &FlowKey), other: (&FlowKey, &FlowKey)) -> bool {
    let both = one.1.masked(other.1);
    one.0.masked(&both) == other.0.masked(&both)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(key: FlowKey) -> FlowKey {
        FlowKey { eth_type: 0x0800, ..key }
    }

    #[test]
    fn keys_become_patterns() {
        let key =
            FlowKey::five_tuple(proto::UDP, [10, 0, 0, 1].into(), 1000, [10, 0, 0, 2].into(), 53);
        let rule = pattern(&key, &FlowKey::FLOW, 3).unwrap().unwrap();
        let wanted = Rule {
            from: Some(([10, 0, 0, 1].into(), 32)),
            to: Some(([10, 0, 0, 2].into(), 32)),
            protocol: Some(Protocol::Udp),
            from_port: Some(1000),
            to_port: Some(53),
            ..Rule::default()
        };
        assert_eq!(rule, wanted);
        let mut dst = [0; 16];
        dst[..2].copy_from_slice(&[0xff, 0xf0]);
        let mask = v4(FlowKey { dst, eth_type: 0xffff, ..FlowKey::ZERO });
        let mask = FlowKey { eth_type: 0xffff, ..mask };
        let net = pattern(&key, &mask, 3).unwrap().unwrap();
        assert_eq!((net.from, net.to), (None, Some(([10, 0, 0, 0].into(), 12))));
        assert_ne!(Shape::of(&net), Shape::of(&rule));
        let all = pattern(&FlowKey::ZERO, &FlowKey::ZERO, 3).unwrap().unwrap();
        assert_eq!(all, Rule::default());
        let one = FlowKey { in_port: 2, ..FlowKey::ZERO };
        let mask = FlowKey { in_port: 0xffff, ..FlowKey::ZERO };
        assert_eq!(pattern(&one, &mask, 3), Ok(None));
        assert_eq!(pattern(&one, &mask, 2), Ok(Some(Rule::default())));
    }

    #[test]
    fn what_rules_cannot_say_is_refused_with_a_reason() {
        let full = FlowKey { eth_type: 0xffff, ..FlowKey::ZERO };
        let mut dst = [0; 16];
        dst[1] = 0xff;
        for (key, mask, wanted) in [
            (FlowKey::ZERO, FlowKey { tos: 3, ..FlowKey::ZERO }, "match VLANs"),
            (FlowKey::ZERO, FlowKey { vlan_tci: 0xfff, ..FlowKey::ZERO }, "has no tag"),
            (FlowKey { eth_type: 0x0806, ..FlowKey::ZERO }, full, "IPv4 and IPv6"),
            (FlowKey::ZERO, FlowKey { dport: 0xffff, ..FlowKey::ZERO }, "are for IPv4 or for IPv6"),
            (v4(FlowKey::ZERO), FlowKey { dst, ..full }, "prefixes"),
            (
                v4(FlowKey { proto: 1, ..FlowKey::ZERO }),
                FlowKey { proto: 0xff, ..full },
                "TCP and UDP",
            ),
            (
                v4(FlowKey { proto: proto::TCP, ..FlowKey::ZERO }),
                FlowKey { proto: 0xff, sport: 0xffff, ..full },
                "port 0",
            ),
            (
                v4(FlowKey { dport: 5, ..FlowKey::ZERO }),
                FlowKey { dport: 0xffff, ..full },
                "protocol",
            ),
        ] {
            let why = pattern(&key, &mask, 0).unwrap_err();
            assert!(why.contains(wanted), "{why}");
        }
    }

    #[test]
    fn filters_overlap_unless_a_common_bit_differs() {
        let of = |dport, sport| FlowKey { dport, sport, ..FlowKey::ZERO };
        let (dst, both) = (of(0xffff, 0), of(0xffff, 0xffff));
        assert!(overlap((&of(80, 0), &dst), (&of(80, 7), &both)));
        assert!(!overlap((&of(81, 0), &dst), (&of(80, 7), &both)));
        assert!(overlap((&of(80, 0), &dst), (&of(0, 7), &of(0, 0xffff))));
        assert!(overlap((&of(80, 0), &dst), (&FlowKey::ZERO, &FlowKey::ZERO)));
    }
}
