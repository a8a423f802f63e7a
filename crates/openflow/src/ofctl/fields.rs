//! Match fields as text: names, values, masks, and words for kinds of frames such as `tcp`.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Part, TextError};
use crate::Match;
use crate::oxm::{Field, Oxm, VID_PRESENT};
use crate::port::reserved;

/// Names of fields. The first name of a field is the one that is printed.
const NAMES: &[(Field, &[&str])] = &[
    (Field::InPort, &["in_port"]),
    (Field::InPhyPort, &["in_phy_port"]),
    (Field::Metadata, &["metadata"]),
    (Field::EthDst, &["dl_dst", "eth_dst"]),
    (Field::EthSrc, &["dl_src", "eth_src"]),
    (Field::EthType, &["dl_type", "eth_type"]),
    (Field::VlanVid, &["vlan_vid"]),
    (Field::VlanPcp, &["dl_vlan_pcp", "vlan_pcp"]),
    (Field::IpDscp, &["ip_dscp", "nw_dscp"]),
    (Field::IpEcn, &["nw_ecn", "ip_ecn"]),
    (Field::IpProto, &["nw_proto", "ip_proto"]),
    (Field::Ipv4Src, &["nw_src", "ipv4_src", "ip_src"]),
    (Field::Ipv4Dst, &["nw_dst", "ipv4_dst", "ip_dst"]),
    (Field::TcpSrc, &["tcp_src"]),
    (Field::TcpDst, &["tcp_dst"]),
    (Field::UdpSrc, &["udp_src"]),
    (Field::UdpDst, &["udp_dst"]),
    (Field::SctpSrc, &["sctp_src"]),
    (Field::SctpDst, &["sctp_dst"]),
    (Field::Icmpv4Type, &["icmp_type", "icmpv4_type"]),
    (Field::Icmpv4Code, &["icmp_code", "icmpv4_code"]),
    (Field::ArpOp, &["arp_op"]),
    (Field::ArpSpa, &["arp_spa"]),
    (Field::ArpTpa, &["arp_tpa"]),
    (Field::ArpSha, &["arp_sha"]),
    (Field::ArpTha, &["arp_tha"]),
    (Field::Ipv6Src, &["ipv6_src"]),
    (Field::Ipv6Dst, &["ipv6_dst"]),
    (Field::Ipv6Flabel, &["ipv6_label", "ipv6_flabel"]),
    (Field::Icmpv6Type, &["icmpv6_type"]),
    (Field::Icmpv6Code, &["icmpv6_code"]),
    (Field::Ipv6NdTarget, &["nd_target", "ipv6_nd_target"]),
    (Field::Ipv6NdSll, &["nd_sll", "ipv6_nd_sll"]),
    (Field::Ipv6NdTll, &["nd_tll", "ipv6_nd_tll"]),
    (Field::MplsLabel, &["mpls_label"]),
    (Field::MplsTc, &["mpls_tc"]),
    (Field::MplsBos, &["mpls_bos"]),
    (Field::PbbIsid, &["pbb_isid"]),
    (Field::TunnelId, &["tun_id", "tunnel_id"]),
    (Field::Ipv6Exthdr, &["ipv6_exthdr"]),
    (Field::PbbUca, &["pbb_uca"]),
    (Field::TcpFlags, &["tcp_flags"]),
    (Field::ActsetOutput, &["actset_output"]),
];

/// Words for a kind of frame: EtherType and IP protocol.
pub(super) const KINDS: &[(&str, u16, Option<u8>)] = &[
    ("ip", 0x0800, None),
    ("icmp", 0x0800, Some(1)),
    ("tcp", 0x0800, Some(6)),
    ("udp", 0x0800, Some(17)),
    ("sctp", 0x0800, Some(132)),
    ("arp", 0x0806, None),
    ("rarp", 0x8035, None),
    ("ipv6", 0x86dd, None),
    ("icmp6", 0x86dd, Some(58)),
    ("tcp6", 0x86dd, Some(6)),
    ("udp6", 0x86dd, Some(17)),
    ("sctp6", 0x86dd, Some(132)),
    ("mpls", 0x8847, None),
    ("mplsm", 0x8848, None),
];

/// Ports with names.
const PORTS: &[(&str, u32)] = &[
    ("in_port", reserved::IN_PORT),
    ("table", reserved::TABLE),
    ("normal", reserved::NORMAL),
    ("flood", reserved::FLOOD),
    ("all", reserved::ALL),
    ("controller", reserved::CONTROLLER),
    ("local", reserved::LOCAL),
    ("any", reserved::ANY),
    ("none", reserved::ANY),
];

pub(super) fn named(name: &str) -> Option<Field> {
    NAMES.iter().find(|(_, names)| names.contains(&name)).map(|(field, _)| *field)
}

pub(super) fn name(field: Field) -> &'static str {
    NAMES.iter().find(|(other, _)| *other == field).map_or("", |(_, names)| names[0])
}

/// Parses a port: a number, or a name in any case.
pub(super) fn port(part: Part<'_>) -> Result<u32, TextError> {
    let found = PORTS.iter().find(|(name, _)| part.text.eq_ignore_ascii_case(name));
    let named = || part.ports.iter().find(|(name, _)| part.text == *name);
    match (found, part.number(32)) {
        (Some((_, port)), _) => Ok(*port),
        (None, Ok(port)) => Ok(port as u32),
        (None, Err(mut error)) => named().map(|(_, port)| *port).ok_or_else(|| {
            let names: Vec<&str> = part.ports.iter().map(|(name, _)| *name).collect();
            error.fix += ", or in_port, local, controller, normal, flood, all";
            if !names.is_empty() {
                error.fix = format!("{}, or a port's name: {}", error.fix, names.join(", "));
            }
            error
        }),
    }
}

pub(super) fn port_text(port: u32) -> String {
    let found = PORTS.iter().find(|(_, other)| *other == port);
    found.map_or_else(|| port.to_string(), |(name, _)| name.to_ascii_uppercase())
}

/// The syntax of a field's values.
enum Form {
    Mac,
    V4,
    V6,
    Port,
    Decimal,
    Hex,
}

const fn form(field: Field) -> Form {
    match field {
        Field::EthDst
        | Field::EthSrc
        | Field::ArpSha
        | Field::ArpTha
        | Field::Ipv6NdSll
        | Field::Ipv6NdTll => Form::Mac,
        Field::Ipv4Src | Field::Ipv4Dst | Field::ArpSpa | Field::ArpTpa => Form::V4,
        Field::Ipv6Src | Field::Ipv6Dst | Field::Ipv6NdTarget => Form::V6,
        Field::InPort | Field::InPhyPort | Field::ActsetOutput => Form::Port,
        Field::Metadata
        | Field::EthType
        | Field::VlanVid
        | Field::Ipv6Flabel
        | Field::PbbIsid
        | Field::TunnelId
        | Field::Ipv6Exthdr
        | Field::TcpFlags => Form::Hex,
        _ => Form::Decimal,
    }
}

/// Parses one value of a field, without mask.
pub(super) fn value(field: Field, part: Part<'_>) -> Result<u128, TextError> {
    match form(field) {
        Form::Mac => {
            let bytes: Vec<_> =
                part.text.split(':').map(|two| u8::from_str_radix(two, 16)).collect();
            let read: Result<Vec<u8>, _> = bytes.into_iter().collect();
            let read = read.ok().filter(|bytes| bytes.len() == 6 && !part.text.contains('+'));
            let wrong = || part.wrong("no Ethernet address", "write it as 02:00:00:00:00:01");
            let bytes = read.ok_or_else(wrong)?;
            Ok(bytes.iter().fold(0, |sum, byte| sum << 8 | u128::from(*byte)))
        }
        Form::V4 => {
            let wrong = |_| part.wrong("no IPv4 address", "write it as 10.0.0.1");
            part.text.parse::<Ipv4Addr>().map(|address| address.to_bits().into()).map_err(wrong)
        }
        Form::V6 => {
            let wrong = |_| part.wrong("no IPv6 address", "write it as 2001:db8::1");
            part.text.parse::<Ipv6Addr>().map(Ipv6Addr::to_bits).map_err(wrong)
        }
        Form::Port => port(part).map(Into::into),
        Form::Decimal | Form::Hex => part.number(field.bits()),
    }
}

/// Parses a field's value with an optional mask after a slash; an address may have a prefix length
/// instead.
pub(super) fn oxm(field: Field, part: Part<'_>) -> Result<Oxm, TextError> {
    let Some((plain, mask)) = part.split(&['/']) else {
        return Ok(Oxm::exact(field, value(field, part)?));
    };
    if !field.maskable() {
        let fix = format!("leave out '/{}'", mask.text);
        return Err(part.wrong(format!("{} takes no mask", name(field)), fix));
    }
    let prefix = matches!(form(field), Form::V4 | Form::V6);
    let mask = match mask.text.parse::<u32>() {
        Ok(len) if prefix && len <= field.bits() => {
            field.full() ^ field.full().checked_shr(len).unwrap_or(0)
        }
        _ => value(field, mask)?,
    };
    Ok(Oxm::masked(field, value(field, plain)?, mask))
}

fn value_text(field: Field, value: u128) -> String {
    match form(field) {
        Form::Mac => {
            let bytes = value.to_be_bytes();
            let pairs: Vec<String> = bytes[10..].iter().map(|byte| format!("{byte:02x}")).collect();
            pairs.join(":")
        }
        Form::V4 => Ipv4Addr::from_bits(value as u32).to_string(),
        Form::V6 => Ipv6Addr::from_bits(value).to_string(),
        Form::Port => port_text(value as u32),
        Form::Decimal => value.to_string(),
        Form::Hex => format!("{value:#x}"),
    }
}

/// A value with its mask, if it has one, as text.
pub(super) fn oxm_value(oxm: &Oxm) -> String {
    let plain = value_text(oxm.field, oxm.value);
    if oxm.is_exact() {
        return plain;
    }
    let len = oxm.mask.count_ones();
    let prefix = oxm.field.full() ^ oxm.field.full().checked_shr(len).unwrap_or(0) == oxm.mask;
    match form(oxm.field) {
        Form::V4 | Form::V6 if prefix => format!("{plain}/{len}"),
        Form::Decimal => format!("{plain}/{:#x}", oxm.mask),
        _ => format!("{plain}/{}", value_text(oxm.field, oxm.mask)),
    }
}

/// A match as text, separated by commas; empty for an empty match.
pub(super) fn match_text(matching: &Match) -> String {
    let mut text = String::new();
    let eth = matching.exact(Field::EthType).map(|eth| eth as u16);
    let proto = matching.exact(Field::IpProto).map(|proto| proto as u8);
    // A word stands for both, or for the EtherType alone.
    let both = KINDS.iter().find(|(_, e, p)| Some(*e) == eth && *p == proto && p.is_some());
    let one = KINDS.iter().find(|(_, e, p)| Some(*e) == eth && p.is_none());
    let word = both.or(one);
    if let Some((word, ..)) = word {
        text += word;
    }
    for oxm in &matching.0 {
        let said = word.is_some() && oxm.field == Field::EthType
            || both.is_some() && oxm.field == Field::IpProto;
        if said {
            continue;
        }
        let comma = if text.is_empty() { "" } else { "," };
        let _ = match oxm {
            Oxm { field: Field::VlanVid, value, .. }
                if oxm.is_exact() && value & VID_PRESENT != 0 =>
            {
                write!(text, "{comma}dl_vlan={}", value & 0xfff)
            }
            _ => write!(text, "{comma}{}={}", name(oxm.field), oxm_value(oxm)),
        };
    }
    text
}

/// Fields whose meaning depends on other fields.
pub(super) fn dependent(
    name: &str,
    eth: Option<u16>,
    proto: Option<u8>,
) -> Option<Result<Field, &'static str>> {
    let src = name.ends_with("src");
    let pick = |a, b| Some(Ok(if src { a } else { b }));
    match name {
        "nw_src" | "nw_dst" if eth == Some(0x0806) => pick(Field::ArpSpa, Field::ArpTpa),
        "nw_proto" if eth == Some(0x0806) => Some(Ok(Field::ArpOp)),
        "tp_src" | "tp_dst" => match (eth, proto) {
            (Some(0x0800 | 0x86dd), Some(6)) => pick(Field::TcpSrc, Field::TcpDst),
            (Some(0x0800 | 0x86dd), Some(17)) => pick(Field::UdpSrc, Field::UdpDst),
            (Some(0x0800 | 0x86dd), Some(132)) => pick(Field::SctpSrc, Field::SctpDst),
            (Some(0x0800), Some(1)) => pick(Field::Icmpv4Type, Field::Icmpv4Code),
            _ => Some(Err("add tcp, udp or sctp")),
        },
        "icmp_type" if (eth, proto) == (Some(0x86dd), Some(58)) => Some(Ok(Field::Icmpv6Type)),
        "icmp_code" if (eth, proto) == (Some(0x86dd), Some(58)) => Some(Ok(Field::Icmpv6Code)),
        _ => None,
    }
}
