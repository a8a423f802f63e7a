//! Sample: a frame with given fields, to follow it through the tables.
//!
//! ```text
//!   fields ─> headers of the right kinds, zero otherwise ─> each field is set as a set-field action does
//! ```
//!
//! Fields that are not given are zero, except the TTL, which is 64. Behind an MPLS label or a PBB I-TAG
//! there is nothing.
//!
//! Invariants: the frame has every given field that a frame can have, with its value. Fields of the
//! pipeline, such as the port, are only in the key.
//! Thread-safety: plain functions.

use flowyard_openflow::oxm::VID_PRESENT;
use flowyard_openflow::{Field, Oxm};

use crate::key::Key;
use crate::packet::Packet;
use crate::parse::{ICMP, ICMP6, SCTP, TCP, UDP};

const TTL: u8 = 64;
/// The shortest Ethernet frame, without its frame check sequence.
const SHORTEST: usize = 60;
/// Fields that are not in a frame's bytes.
const PIPELINE: [Field; 4] = [Field::InPort, Field::InPhyPort, Field::Metadata, Field::TunnelId];

/// A frame with the fields of `key`, and a key with the fields that are not in its bytes.
pub(crate) fn frame(key: &Key) -> (Vec<u8>, Key) {
    let bytes = headers(key);
    let mut pipeline = Key::ZERO;
    pipeline.set(Field::Metadata, 0);
    for field in PIPELINE.into_iter().filter(|field| key.has(*field)) {
        pipeline.set(field, key.bits(field));
    }
    let mut packet = Packet::new(&bytes, pipeline, Vec::new());
    // These decide which headers there are, so the headers have them already.
    let kinds = [Field::EthType, Field::IpProto, Field::Icmpv6Type, Field::TcpFlags];
    let fields = key.fields().filter(|(field, _)| !PIPELINE.contains(field));
    for (field, value) in fields.filter(|(field, _)| !kinds.contains(field)) {
        // A given field is in the headers, and none of them is too long to be changed.
        let _done = packet.set(&Oxm::exact(field, value));
    }
    (packet.bytes().to_vec(), pipeline)
}

/// The headers of a frame with these fields: the fields that say which headers follow have their values.
fn headers(key: &Key) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    if key.bits(Field::VlanVid) & VID_PRESENT != 0 {
        bytes.extend([0x81, 0, 0, 0]);
    }
    let kind = key.bits(Field::EthType) as u16;
    bytes.extend(kind.to_be_bytes());
    match kind {
        0x0800 => {
            let transport = transport(key, false);
            let len = (20 + transport.len() as u16).to_be_bytes();
            let protocol = key.bits(Field::IpProto) as u8;
            let mut ip = [0; 20];
            (ip[0], ip[2], ip[3], ip[8], ip[9]) = (0x45, len[0], len[1], TTL, protocol);
            let sum = flowyard_wire::checksum::checksum(&ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            bytes.extend(ip);
            bytes.extend(transport);
        }
        0x86dd => {
            let transport = transport(key, true);
            let len = (transport.len() as u16).to_be_bytes();
            let protocol = key.bits(Field::IpProto) as u8;
            bytes.extend([0x60, 0, 0, 0, len[0], len[1], protocol, TTL]);
            bytes.extend([0; 32]);
            bytes.extend(transport);
        }
        0x0806 => {
            bytes.extend([0, 1, 8, 0, 6, 4]);
            bytes.extend([0; 22]);
        }
        0x8847 | 0x8848 => bytes.extend([0, 0, 0, TTL]),
        0x88e7 => bytes.extend([0; 4]),
        _ => {}
    }
    bytes.resize(bytes.len().max(SHORTEST), 0);
    bytes
}

fn transport(key: &Key, v6: bool) -> Vec<u8> {
    match (key.bits(Field::IpProto) as u8, v6) {
        (TCP, _) => {
            let mut header = vec![0; 20];
            let flags = 0x5000 | key.bits(Field::TcpFlags) as u16;
            header[12..14].copy_from_slice(&flags.to_be_bytes());
            header
        }
        (UDP, _) => vec![0, 0, 0, 0, 0, 8, 0, 0],
        (SCTP, _) => vec![0; 12],
        (ICMP, false) => vec![0; 8],
        (ICMP6, true) => {
            let kind = key.bits(Field::Icmpv6Type) as u8;
            let mut header = vec![kind, 0, 0, 0, 0, 0, 0, 0];
            // Neighbour discovery: the target, and an option with a link-layer address.
            if let 135 | 136 = kind {
                header.extend([0; 16]);
                header.extend([kind - 134, 1, 0, 0, 0, 0, 0, 0]);
            }
            header
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn key_of(fields: &[(Field, u128)]) -> Key {
        let mut key = Key::ZERO;
        fields.iter().for_each(|(field, value)| key.set(*field, *value));
        key
    }

    #[test]
    fn a_frame_has_the_fields_for_which_it_was_made() {
        let vlan = [(Field::VlanVid, 0x1005), (Field::VlanPcp, 3), (Field::EthType, 0x800)];
        let ip = [(Field::EthType, 0x800), (Field::IpDscp, 9), (Field::IpEcn, 1)];
        let ports = [(Field::TcpSrc, 7), (Field::TcpDst, 80), (Field::TcpFlags, 0x12)];
        let v6 = [(Field::EthType, 0x86dd), (Field::Ipv6Src, 7), (Field::Ipv6Flabel, 9)];
        let nd = [(Field::Icmpv6Type, 136), (Field::Ipv6NdTarget, 5), (Field::Ipv6NdTll, 6)];
        let arp =
            [(Field::EthType, 0x806), (Field::ArpOp, 2), (Field::ArpTpa, 5), (Field::ArpSha, 4)];
        let mpls = [(Field::EthType, 0x8847), (Field::MplsLabel, 77), (Field::MplsBos, 1)];
        let pbb = [(Field::EthType, 0x88e7), (Field::PbbIsid, 77)];
        for fields in [
            vec![(Field::InPort, 3), (Field::TunnelId, 4), (Field::EthDst, 0x0200_0000_0001)],
            vlan.to_vec(),
            [&ip[..], &[(Field::IpProto, 6), (Field::Ipv4Dst, 0x0a00_0001)], &ports].concat(),
            [&ip[..], &[(Field::IpProto, 17), (Field::UdpDst, 53)]].concat(),
            [&ip[..], &[(Field::IpProto, 132), (Field::SctpSrc, 53)]].concat(),
            [&ip[..], &[(Field::IpProto, 1), (Field::Icmpv4Type, 8), (Field::Icmpv4Code, 3)]]
                .concat(),
            [&v6[..], &[(Field::IpProto, 6)], &ports].concat(),
            [&v6[..], &[(Field::IpProto, 58)], &nd].concat(),
            arp.to_vec(),
            mpls.to_vec(),
            pbb.to_vec(),
            vec![(Field::EthType, 0x88cc), (Field::EthSrc, 9)],
        ] {
            let (bytes, mut found) = frame(&key_of(&fields));
            parse::parse(&bytes, &mut found);
            for (field, value) in &fields {
                assert_eq!(found.get(*field), Some(*value), "{field:?} of {fields:?}");
            }
        }
        // A frame has all fields of its headers, even those that were not given.
        let (bytes, mut found) = frame(&key_of(&ip));
        parse::parse(&bytes, &mut found);
        assert_eq!(found.get(Field::Ipv4Dst), Some(0));
    }
}
