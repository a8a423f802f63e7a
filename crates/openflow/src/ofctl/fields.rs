//! Match fields as text: names, values, masks, and words for kinds of frames such as `tcp`.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Part, Ports, TextError};
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

/// All names of fields, words for kinds of frames, and other words of a match.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    let names = NAMES.iter().flat_map(|(_, names)| names.iter().copied());
    let kinds = KINDS.iter().map(|(word, ..)| *word);
    names.chain(kinds).chain(["dl_vlan", "nw_tos", "tp_src", "tp_dst"])
}

/// The number of the port with this name; the name may be in quotation marks.
pub(super) fn known_port(part: Part<'_>) -> Option<u32> {
    let name = part.text.trim_matches('"');
    part.ports.iter().find(|(other, _)| name == *other).map(|(_, port)| *port)
}

/// Parses a port: a number, or a name; that of a reserved port in any case.
pub(super) fn port(part: Part<'_>) -> Result<u32, TextError> {
    let found = PORTS.iter().find(|(name, _)| part.text.eq_ignore_ascii_case(name));
    match (found, part.number(32)) {
        (Some((_, port)), _) => Ok(*port),
        (None, Ok(port)) => Ok(port as u32),
        (None, Err(error)) => known_port(part).ok_or_else(|| no_port(part, error)),
    }
}

/// The error for a word that is no port.
fn no_port(part: Part<'_>, mut error: TextError) -> TextError {
    if super::foreign::is_field(part.text) {
        let fix =
            "write the port's number or name; an output to a field is an extension of Open vSwitch";
        return part.wrong("not a port", fix);
    }
    let names: Vec<&str> = part.ports.iter().map(|(name, _)| *name).collect();
    error.fix += ", or in_port, local, controller, normal, flood, all";
    if !names.is_empty() {
        error.fix = format!("{}, or a port's name: {}", error.fix, names.join(", "));
    }
    TextError { may_be_port: true, ..error }
}

/// A port as text: the name of a reserved port, one of `names`, or the number. A name that would be
/// read as something else is not used.
pub(super) fn port_text(port: u32, names: Ports<'_>) -> String {
    if let Some((name, _)) = PORTS.iter().find(|(_, other)| *other == port) {
        return name.to_ascii_uppercase();
    }
    let plain = |name: &str| {
        let first = name.starts_with(|c: char| c.is_ascii_alphabetic());
        let reserved = PORTS.iter().any(|(other, _)| name.eq_ignore_ascii_case(other));
        first && !reserved && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    let named = names.iter().find(|(name, other)| *other == port && plain(name));
    named.map_or_else(|| port.to_string(), |(name, _)| (*name).into())
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
    if field == Field::TcpFlags && !part.text.starts_with(|c: char| c.is_ascii_digit()) {
        return tcp_flags(part);
    }
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
        Ok(_) if prefix => {
            let fix = format!("write a prefix length from 0 to {}, or a mask", field.bits());
            return Err(mask.wrong("the prefix is longer than the address", fix));
        }
        _ => value(field, mask)?,
    };
    Ok(Oxm::masked(field, value(field, plain)?, mask))
}

fn value_text(field: Field, value: u128, names: Ports<'_>) -> String {
    match form(field) {
        Form::Mac => {
            let bytes = value.to_be_bytes();
            let pairs: Vec<String> = bytes[10..].iter().map(|byte| format!("{byte:02x}")).collect();
            pairs.join(":")
        }
        Form::V4 => Ipv4Addr::from_bits(value as u32).to_string(),
        Form::V6 => Ipv6Addr::from_bits(value).to_string(),
        Form::Port => port_text(value as u32, names),
        Form::Decimal => value.to_string(),
        Form::Hex => format!("{value:#x}"),
    }
}

/// A value with its mask, if it has one, as text.
pub(super) fn oxm_value(oxm: &Oxm, names: Ports<'_>) -> String {
    let plain = value_text(oxm.field, oxm.value, names);
    if oxm.is_exact() {
        return plain;
    }
    let bits = 1 << TCP_FLAGS.len();
    if oxm.field == Field::TcpFlags && oxm.mask != 0 && oxm.mask < bits {
        let sign = |at: usize| if oxm.value >> at & 1 == 1 { '+' } else { '-' };
        let flags = TCP_FLAGS.iter().enumerate().filter(|(at, _)| oxm.mask >> at & 1 == 1);
        return flags.map(|(at, name)| format!("{}{name}", sign(at))).collect();
    }
    let len = oxm.mask.count_ones();
    let prefix = oxm.field.full() ^ oxm.field.full().checked_shr(len).unwrap_or(0) == oxm.mask;
    match form(oxm.field) {
        Form::V4 | Form::V6 if prefix => format!("{plain}/{len}"),
        Form::Decimal => format!("{plain}/{:#x}", oxm.mask),
        _ => format!("{plain}/{}", value_text(oxm.field, oxm.mask, names)),
    }
}

/// Names of the TCP flags, from bit 0.
const TCP_FLAGS: &[&str] = &["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];

/// Parses TCP flags by name: `+syn-ack` (set, not set, the others do not matter), or `syn|ack` (these
/// and no others).
fn tcp_flags(part: Part<'_>) -> Result<Oxm, TextError> {
    const FIX: &str = "write flags as +syn-ack, or a number; the flags are \
                       fin, syn, rst, psh, ack, urg, ece, cwr, ns";
    let signed = part.text.starts_with(['+', '-']);
    let (mut value, mut mask, mut rest) = (0, 0, part);
    while !rest.text.is_empty() {
        let front = usize::from(signed || mask != 0);
        let set = !rest.text.starts_with('-');
        if front == 1 && !rest.text.starts_with(if signed { &['+', '-'][..] } else { &['|'][..] }) {
            return Err(rest.wrong("not a list of TCP flags", FIX));
        }
        let word = rest.skip(front);
        let word = word.take(word.text.find(['+', '-', '|']).unwrap_or(word.text.len()));
        let at = TCP_FLAGS.iter().position(|name| word.text.eq_ignore_ascii_case(name));
        let bit = 1 << at.ok_or_else(|| word.wrong("no such TCP flag", FIX))?;
        if mask & bit != 0 {
            return Err(word.wrong("the flag is named twice", "write it once"));
        }
        mask |= bit;
        value |= if set { bit } else { 0 };
        rest = rest.skip(front + word.text.len());
    }
    match (mask, signed) {
        (0, _) => Err(part.wrong("no TCP flags", FIX)),
        (_, true) => Ok(Oxm::masked(Field::TcpFlags, value, mask)),
        (_, false) => Ok(Oxm::exact(Field::TcpFlags, value)),
    }
}

/// What a match must say so that every frame has the field; empty if nothing.
pub(super) const fn needs(field: Field) -> &'static str {
    match field {
        Field::InPhyPort => "in_port",
        Field::VlanPcp => "dl_vlan",
        Field::IpDscp | Field::IpEcn | Field::IpProto => "ip or ipv6",
        Field::Ipv4Src | Field::Ipv4Dst => "ip",
        Field::TcpSrc | Field::TcpDst | Field::TcpFlags => "tcp or tcp6",
        Field::UdpSrc | Field::UdpDst => "udp or udp6",
        Field::SctpSrc | Field::SctpDst => "sctp or sctp6",
        Field::Icmpv4Type | Field::Icmpv4Code => "icmp",
        Field::ArpOp | Field::ArpSpa | Field::ArpTpa | Field::ArpSha | Field::ArpTha => "arp",
        Field::Ipv6Src | Field::Ipv6Dst | Field::Ipv6Flabel | Field::Ipv6Exthdr => "ipv6",
        Field::Icmpv6Type | Field::Icmpv6Code => "icmp6",
        Field::Ipv6NdTarget => "icmp6 with icmp_type=135 or icmp_type=136",
        Field::Ipv6NdSll => "icmp6 with icmp_type=135",
        Field::Ipv6NdTll => "icmp6 with icmp_type=136",
        Field::MplsLabel | Field::MplsTc | Field::MplsBos => "mpls or mplsm",
        Field::PbbIsid | Field::PbbUca => "dl_type=0x88e7",
        _ => "",
    }
}

/// The word for the kind of frames that a match names, if it names one.
pub(super) fn kind(eth: Option<u16>, proto: Option<u8>) -> Option<String> {
    let eth = eth?;
    let both = KINDS.iter().find(|(_, e, p)| *e == eth && *p == proto && p.is_some());
    let one = KINDS.iter().find(|(_, e, p)| *e == eth && p.is_none());
    let word = both.or(one).map(|(word, ..)| (*word).to_owned());
    Some(word.unwrap_or_else(|| format!("dl_type={eth:#06x}")))
}

/// The fields of a match as words for a flow: names or kinds of frames, and values.
pub(super) fn field_texts(matching: &Match, names: Ports<'_>) -> Vec<(&'static str, String)> {
    let mut texts = Vec::new();
    let eth = matching.exact(Field::EthType).map(|eth| eth as u16);
    let proto = matching.exact(Field::IpProto).map(|proto| proto as u8);
    // A word stands for both, or for the EtherType alone.
    let both = KINDS.iter().find(|(_, e, p)| Some(*e) == eth && *p == proto && p.is_some());
    let one = KINDS.iter().find(|(_, e, p)| Some(*e) == eth && p.is_none());
    let word = both.or(one);
    texts.extend(word.map(|(word, ..)| (*word, String::new())));
    for oxm in &matching.0 {
        let said = word.is_some() && oxm.field == Field::EthType
            || both.is_some() && oxm.field == Field::IpProto;
        if said {
            continue;
        }
        texts.push(match oxm {
            Oxm { field: Field::VlanVid, value, .. }
                if oxm.is_exact() && value & VID_PRESENT != 0 =>
            {
                ("dl_vlan", (value & 0xfff).to_string())
            }
            _ => (name(oxm.field), oxm_value(oxm, names)),
        });
    }
    texts
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
