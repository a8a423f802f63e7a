//! Parse: makes the key of a frame, and finds where its fields are.
//!
//! ```text
//!   dst src | [tag tag ..] type | IPv4, IPv6 + extensions, ARP, MPLS, PBB | TCP, UDP, SCTP, ICMP [ND]
//!           12             type_at l3                                      l4
//! ```
//!
//! As OpenFlow requires (1.3.5, section 7.2.3.7), the VLAN fields are those of the outermost tag, and the
//! EtherType is the one behind all tags. Headers behind an MPLS label or a PBB I-TAG are not parsed.
//!
//! Invariants: no panic on any bytes; a field of which a byte is missing is absent; every offset in
//! [`Layout`] is that of a header or field which is completely in the frame.
//! Thread-safety: plain functions.

use flowyard_openflow::Field;
use flowyard_openflow::oxm::VID_PRESENT;
use flowyard_wire::edit::tags;

use crate::key::Key;

/// The header behind the EtherType.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Net {
    /// Unknown or truncated.
    #[default]
    Other,
    Ipv4,
    Ipv6,
    Arp,
    Mpls,
    Pbb,
}

/// Where the headers and fields of a frame are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Layout {
    /// Whether there is a VLAN tag.
    pub(crate) tagged: bool,
    /// Offset of the EtherType behind all tags; 0 if the frame ends before it.
    pub(crate) type_at: usize,
    /// The header that the EtherType announces.
    pub(crate) net: Net,
    /// Offset of this header.
    pub(crate) l3: usize,
    /// Offset of the byte with the protocol of the transport header, for IPv6.
    pub(crate) next_at: usize,
    /// Offset of the header of TCP, UDP, SCTP or ICMP; 0 if there is none, as in later fragments.
    pub(crate) l4: usize,
    /// Offset of the end of the IP packet, or of the frame if it ends earlier.
    pub(crate) end: usize,
    /// Whether the frame holds everything that the transport checksum covers.
    pub(crate) whole: bool,
    /// The protocol at `l4`.
    pub(crate) proto: u8,
    /// Offset of the target of neighbour discovery; 0 if there is none.
    pub(crate) target: usize,
    /// Offset of its link-layer address; 0 if there is none.
    pub(crate) link: usize,
}

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const SCTP: u8 = 132;
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMP6: u8 = 58;

/// `OFPIEH_*`.
const NO_NEXT: u16 = 1;
const ESP: u16 = 2;
const AUTH: u16 = 4;
const DEST: u16 = 8;
const FRAG: u16 = 16;
const ROUTER: u16 = 32;
const HOP: u16 = 64;
const REPEATED: u16 = 128;
const UNORDERED: u16 = 256;

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]))
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

/// Up to 16 bytes as a number.
#[inline]
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u128> {
    let bytes = bytes.get(at..at + len)?;
    Some(bytes.iter().fold(0, |sum, byte| sum << 8 | u128::from(*byte)))
}

/// Adds the fields of the Ethernet frame `bytes` to `key`.
pub(crate) fn parse(bytes: &[u8], key: &mut Key) -> Layout {
    let mut layout = Layout::default();
    let Some(head) = bytes.first_chunk::<14>() else { return layout };
    let mac = |at: usize| (0..6).fold(0, |sum, i| sum << 8 | u64::from(head[at + i]));
    let present = 1 << Field::EthDst as u8 | 1 << Field::EthSrc as u8;
    key.0[0] |= present;
    key.0[4] = mac(0) << 16;
    key.0[5] = mac(6) << 16;
    if let Some(tci) = tags::outermost(bytes) {
        layout.tagged = true;
        key.set(Field::VlanVid, u128::from(tci & 0xfff) | VID_PRESENT);
        key.set(Field::VlanPcp, (tci >> 13).into());
    }
    let Some((mut kind, at)) = tags::ether_type(bytes) else { return layout };
    (layout.type_at, layout.l3) = (at - 2, at);
    if kind < 0x600 {
        // In IEEE 802.3 this is a length. A SNAP header without an organisation contains an EtherType.
        kind = match bytes.get(at..at + 8) {
            Some(&[0xaa, 0xaa, 3, 0, 0, 0, high, low]) => {
                (layout.type_at, layout.l3) = (at + 6, at + 8);
                u16::from_be_bytes([high, low])
            }
            _ => 0x05ff,
        };
    }
    key.set(Field::EthType, kind.into());
    match kind {
        0x0800 => ipv4(bytes, key, &mut layout),
        0x86dd => ipv6(bytes, key, &mut layout),
        0x0806 => arp(bytes, key, &mut layout),
        0x8847 | 0x8848 => mpls(bytes, key, &mut layout),
        0x88e7 => pbb(bytes, key, &mut layout),
        _ => {}
    }
    layout
}

fn tos(key: &mut Key, tos: u8) {
    key.set(Field::IpDscp, (tos >> 2).into());
    key.set(Field::IpEcn, (tos & 3).into());
}

fn ipv4(bytes: &[u8], key: &mut Key, layout: &mut Layout) {
    let at = layout.l3;
    let Some(head) = bytes.get(at..).and_then(|b| b.first_chunk::<20>()) else { return };
    let len = usize::from(head[0] & 15) * 4;
    if head[0] >> 4 != 4 || len < 20 || bytes.len() < at + len {
        return;
    }
    layout.net = Net::Ipv4;
    tos(key, head[1]);
    layout.proto = head[9];
    key.set(Field::IpProto, head[9].into());
    key.0[0] |= 1 << Field::Ipv4Src as u8 | 1 << Field::Ipv4Dst as u8;
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    key.0[6] = u64::from(word(12)) << 32 | u64::from(word(16));
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let fragment = u16::from_be_bytes([head[6], head[7]]);
    layout.end = (at + total.max(len)).min(bytes.len());
    layout.whole = at + total <= bytes.len() && fragment & 0x3fff == 0;
    if fragment & 0x1fff == 0 {
        transport(bytes, at + len, key, layout);
    }
}

fn ipv6(bytes: &[u8], key: &mut Key, layout: &mut Layout) {
    let at = layout.l3;
    let Some(head) = bytes.get(at..).and_then(|b| b.first_chunk::<40>()) else { return };
    if head[0] >> 4 != 6 {
        return;
    }
    layout.net = Net::Ipv6;
    tos(key, head[0] << 4 | head[1] >> 4);
    let label = u32::from_be_bytes([0, head[1] & 15, head[2], head[3]]);
    key.set(Field::Ipv6Flabel, label.into());
    key.0[0] |= 1 << Field::Ipv6Src as u8 | 1 << Field::Ipv6Dst as u8;
    for (word, part) in key.0[8..12].iter_mut().zip(head[8..].as_chunks::<8>().0) {
        *word = u64::from_be_bytes(*part);
    }
    let total = 40 + usize::from(u16::from_be_bytes([head[4], head[5]]));
    layout.end = (at + total).min(bytes.len());
    layout.whole = at + total <= bytes.len();
    extensions(bytes, key, layout);
}

/// Parses the extension headers (RFC 8200, section 4.1) up to the transport header.
fn extensions(bytes: &[u8], key: &mut Key, layout: &mut Layout) {
    let (mut next_at, mut at) = (layout.l3 + 6, layout.l3 + 40);
    let (mut seen, mut order, mut dests, mut later) = (0_u16, 0, 0, false);
    let mut next = bytes[next_at];
    loop {
        let (bit, rank) = match next {
            0 => (HOP, 1),
            43 => (ROUTER, 3),
            44 => (FRAG, 4),
            51 => (AUTH, 5),
            50 => (ESP, 6),
            // Destination options are before a routing header, or behind all other headers.
            60 if order <= 2 && dests == 0 => (DEST, 2),
            60 => (DEST, 7),
            59 => (NO_NEXT, 8),
            _ => break,
        };
        let again = if bit == DEST { dests >= 2 } else { seen & bit != 0 };
        dests += u8::from(bit == DEST);
        if again {
            seen |= REPEATED;
        } else if rank < order {
            seen |= UNORDERED;
        }
        seen |= bit;
        order = order.max(rank);
        if bit == NO_NEXT || bit == ESP {
            break;
        }
        let Some(&[then, len]) = bytes.get(at..at + 2).and_then(|b| b.first_chunk::<2>()) else {
            (next, later) = (59, true);
            break;
        };
        if bit == FRAG {
            let fragment = u16_at(bytes, at + 2).unwrap_or(0);
            later |= fragment & 0xfff8 != 0;
            layout.whole &= fragment & 0xfff9 == 0;
        }
        next_at = at;
        at += match bit {
            FRAG => 8,
            AUTH => usize::from(len) * 4 + 8,
            _ => usize::from(len) * 8 + 8,
        };
        next = then;
        if later {
            break;
        }
    }
    key.set(Field::Ipv6Exthdr, seen.into());
    key.set(Field::IpProto, next.into());
    (layout.next_at, layout.proto) = (next_at, next);
    if !later && seen & (ESP | NO_NEXT) == 0 {
        transport(bytes, at, key, layout);
    }
}

fn transport(bytes: &[u8], at: usize, key: &mut Key, layout: &mut Layout) {
    let rest = bytes.get(at..layout.end).unwrap_or(&[]);
    let (src, dst) = match layout.proto {
        TCP => (Field::TcpSrc, Field::TcpDst),
        UDP => (Field::UdpSrc, Field::UdpDst),
        SCTP => (Field::SctpSrc, Field::SctpDst),
        ICMP if layout.net == Net::Ipv4 => (Field::Icmpv4Type, Field::Icmpv4Code),
        ICMP6 if layout.net == Net::Ipv6 => (Field::Icmpv6Type, Field::Icmpv6Code),
        _ => return,
    };
    if src.bits() == 8 {
        let Some(&[kind, code]) = rest.first_chunk::<2>() else { return };
        layout.l4 = at;
        key.set(src, kind.into());
        key.set(dst, code.into());
        if src == Field::Icmpv6Type && matches!(kind, 135 | 136) {
            discovery(bytes, kind, key, layout);
        }
        return;
    }
    let Some(&[a, b, c, d]) = rest.first_chunk::<4>() else { return };
    layout.l4 = at;
    key.0[0] |= 1 << src as u8 | 1 << dst as u8;
    let ports = u64::from(u32::from_be_bytes([a, b, c, d]));
    key.0[7] = key.0[7] & 0xffff_ffff | ports << 32;
    if layout.proto == TCP
        && let Some(flags) = u16_at(rest, 12)
    {
        key.set(Field::TcpFlags, (flags & 0xfff).into());
    }
}

/// Neighbour solicitation and advertisement (RFC 4861, sections 4.3 and 4.4).
fn discovery(bytes: &[u8], kind: u8, key: &mut Key, layout: &mut Layout) {
    let bytes = &bytes[..layout.end];
    let Some(target) = number(bytes, layout.l4 + 8, 16) else { return };
    key.set(Field::Ipv6NdTarget, target);
    layout.target = layout.l4 + 8;
    let (wanted, field) = if kind == 135 { (1, Field::Ipv6NdSll) } else { (2, Field::Ipv6NdTll) };
    let mut at = layout.l4 + 24;
    while let Some(&[option, len]) = bytes.get(at..).and_then(|b| b.first_chunk::<2>()) {
        if len == 0 {
            return;
        }
        if option == wanted
            && let Some(link) = number(bytes, at + 2, 6)
        {
            key.set(field, link);
            layout.link = at + 2;
            return;
        }
        at += usize::from(len) * 8;
    }
}

/// RFC 826, for Ethernet and IPv4.
fn arp(bytes: &[u8], key: &mut Key, layout: &mut Layout) {
    let at = layout.l3;
    let Some(head) = bytes.get(at..).and_then(|b| b.first_chunk::<28>()) else { return };
    if head[4] != 6 || head[5] != 4 {
        return;
    }
    layout.net = Net::Arp;
    let field = |from, len| number(head, from, len).unwrap_or(0);
    key.set(Field::ArpOp, field(6, 2));
    key.set(Field::ArpSha, field(8, 6));
    key.set(Field::ArpSpa, field(14, 4));
    key.set(Field::ArpTha, field(18, 6));
    key.set(Field::ArpTpa, field(24, 4));
}

/// RFC 3032, section 2.1: label 20, traffic class 3, bottom of stack 1, TTL 8.
fn mpls(bytes: &[u8], key: &mut Key, layout: &mut Layout) {
    let Some(label) = u32_at(bytes, layout.l3) else { return };
    layout.net = Net::Mpls;
    key.set(Field::MplsLabel, (label >> 12).into());
    key.set(Field::MplsTc, (label >> 9 & 7).into());
    key.set(Field::MplsBos, (label >> 8 & 1).into());
}

/// IEEE 802.1ah, section 9.7: priority 3, drop 1, use customer address 1, reserved 3, I-SID 24.
fn pbb(bytes: &[u8], key: &mut Key, layout: &mut Layout) {
    let Some(tag) = u32_at(bytes, layout.l3) else { return };
    layout.net = Net::Pbb;
    key.set(Field::PbbIsid, (tag & 0xff_ffff).into());
    key.set(Field::PbbUca, (tag >> 27 & 1).into());
}

#[cfg(test)]
mod tests;
