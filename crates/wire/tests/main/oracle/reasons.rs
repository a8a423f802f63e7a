//! Reasons why tshark and the parser may differ. Each reason is checked for the packet that it explains.

use flowyard_wire::{Fault, Headers, Net};

use super::fields::Column::{self, *};

/// A packet, its levels, and tshark's protocols.
pub(crate) struct Case<'a> {
    pub(crate) levels: &'a [Headers],
    pub(crate) bytes: &'a [u8],
    pub(crate) wire_len: usize,
    /// tshark's stack of protocols, such as `eth:ethertype:ip:tcp`.
    pub(crate) protocols: &'a str,
}

impl Case<'_> {
    /// The innermost level.
    pub(crate) fn last(&self) -> &Headers {
        self.levels.last().expect("a frame has a level")
    }

    /// The 16-bit field at `at`.
    fn field(&self, at: u32) -> Option<u16> {
        let field = self.bytes.get(at as usize..at as usize + 2)?;
        Some(u16::from_be_bytes([field[0], field[1]]))
    }

    fn first_payload_byte(&self) -> Option<u8> {
        self.last().payload(self.bytes).first().copied()
    }

    /// Whether the innermost level is UDP from or to `port`.
    fn udp(&self, port: u16) -> bool {
        let last = self.last();
        last.proto == 17 && last.ports.is_some_and(|(src, dst)| src == port || dst == port)
    }
}

/// A column in which the lists differ.
#[derive(Debug)]
pub(crate) struct Difference<'a> {
    pub(crate) column: Column,
    pub(crate) ours: Vec<String>,
    pub(crate) theirs: Vec<&'a str>,
}

impl Difference<'_> {
    /// Whether tshark parses deeper, and both agree up to there.
    fn deeper(&self) -> bool {
        self.theirs.len() > self.ours.len()
            && self.ours.iter().zip(&self.theirs).all(|(a, b)| a == b)
    }

    /// Whether the parser goes deeper, and both agree up to there.
    fn shallower(&self) -> bool {
        self.theirs.len() < self.ours.len()
            && self.ours.iter().zip(&self.theirs).all(|(a, b)| a == b)
    }

    /// Whether the parser found only `ours`, and tshark only `theirs`.
    fn is(&self, column: Column, ours: &str, theirs: &str) -> bool {
        self.column == column && self.ours == [ours] && self.theirs == [theirs]
    }
}

type Reason = (&'static str, fn(&Case<'_>, &Difference<'_>) -> bool);

/// The reasons, in the order in which they are tried.
pub(crate) const REASONS: &[Reason] = &[
    ("tshark reads the packet quoted in an ICMP error", |case, difference| {
        let quoting = match (case.last().net, case.last().icmp(case.bytes)) {
            (Net::Ipv4, Some(icmp)) => matches!(icmp.kind, 3 | 4 | 5 | 11 | 12),
            (Net::Ipv6, Some(icmp)) => matches!(icmp.kind, 1..=4),
            _ => false,
        };
        quoting && difference.deeper()
    }),
    ("tshark reads the 802.11 frame in Aruba GRE", |case, difference| {
        let last = case.last();
        last.eth.is_none()
            && (last.eth_type & 0xff00 == 0x8200 || last.eth_type == 0x9000)
            && case.protocols.contains(":gre:wlan:")
            && difference.deeper()
    }),
    ("tshark reads Teredo", |case, difference| {
        case.udp(3544) && case.protocols.contains(":teredo:") && difference.deeper()
    }),
    ("tshark reads the packet in a PIM register or null register", |case, difference| {
        case.last().proto == 103 && case.first_payload_byte() == Some(0x21) && difference.deeper()
    }),
    ("tshark reads GTP version 0 on port 3386", |case, difference| {
        case.udp(3386)
            && case.first_payload_byte().is_some_and(|flags| flags >> 5 == 0)
            && difference.deeper()
    }),
    ("tshark decompresses IPComp", |case, difference| {
        case.last().proto == 108 && difference.deeper()
    }),
    ("tshark reads MACsec without encryption", |case, difference| {
        case.last().eth_type == 0x88e5 && difference.deeper()
    }),
    ("tshark takes IPv4 protocol 44 for an IPv6 fragment header", |case, difference| {
        case.last().net == Net::Ipv4
            && case.last().proto == 44
            && difference.column == Ipv6FragmentOffset
            && difference.deeper()
    }),
    ("tshark reassembles fragments, or reads on in a first fragment", |case, difference| {
        case.last().fragment.is_fragment() && difference.deeper()
    }),
    (
        "tshark lists every fragment header of a packet, the parser keeps the last",
        |case, difference| {
            case.protocols.contains("ipv6.fraghdr:ipv6.fraghdr")
                && difference.column == Ipv6FragmentOffset
                && difference.theirs.last() == difference.ours.last().map(|s| &s[..]).as_ref()
        },
    ),
    ("tshark has no limit on extension headers", |case, difference| {
        case.last().fault == Some(Fault::TooManyExtensions) && difference.deeper()
    }),
    ("tshark shows single fields of an IP header that is cut", |case, difference| {
        case.last().fault == Some(Fault::TruncatedIp) && difference.deeper()
    }),
    ("tshark shows the type of an ICMP header that is cut behind it", |case, difference| {
        let left = case.last().payload(case.bytes).len();
        case.last().fault == Some(Fault::TransportPastLength)
            && left == 1
            && matches!(difference.column, IcmpType | Icmpv6Type)
            && difference.deeper()
    }),
    ("tshark stops within the addresses when IPv4 options are cut", |case, difference| {
        let l3 = case.last().l3 as usize;
        case.last().fault == Some(Fault::TruncatedIp)
            && case.bytes[l3] > 0x45
            && difference.column == IpDst
            && difference.shallower()
    }),
    ("tshark takes an IPv4 EtherType with version 6 for IPv6", |case, difference| {
        case.last().fault == Some(Fault::BadIpVersion)
            && case.protocols.contains(":ip:ipv6")
            && difference.deeper()
    }),
    ("tshark has ids of 802.1ad tags in another field", |case, difference| {
        let Some(eth) = case.last().eth else { return false };
        let kinds = (0..).map(|i| case.field(eth + 12 + 4 * i));
        let tags = difference.ours.iter().zip(kinds);
        let others: Vec<_> =
            tags.filter(|(_, kind)| *kind != Some(0x88a8)).map(|(id, _)| id).collect();
        difference.column == VlanId && others == difference.theirs.iter().collect::<Vec<_>>()
    }),
    ("tshark ends at a UDP length of 0 in a jumbogram (RFC 2675)", |case, difference| {
        case.levels.iter().any(|h| {
            let jumbo = h.proto == 17 && case.field(h.l4 + 4) == Some(0);
            jumbo && h.end - h.l4 > 0xffff
        }) && difference.shallower()
    }),
    ("tshark shows the last address of a source route as destination", |case, difference| {
        let l3 = case.last().l3 as usize;
        difference.column == IpDst
            && case.bytes[l3] > 0x45
            && case.bytes[l3 + 20..].iter().take(40).any(|b| matches!(b, 131 | 137))
            && difference.ours.len() == difference.theirs.len()
    }),
    (
        "the IP length is above the length on the wire: tshark sums what is there",
        |case, difference| {
            let total = case.field(case.last().l3 + 2).map_or(0, usize::from);
            case.last().l3 as usize + total > case.wire_len && difference.is(TcpChecksum, "2", "0")
        },
    ),
    ("the PPPoE length ends before the IP packet: tshark sums up to there", |case, difference| {
        let last = case.last();
        // The length is in front of the 2-byte PPP protocol, which it counts.
        let pppoe = last.l3.checked_sub(4).and_then(|at| case.field(at)).map_or(0, u32::from);
        last.pppoe.is_some()
            && last.l3 - 2 + pppoe < last.end
            && difference.is(TcpChecksum, "1", "0")
    }),
];

/// The least number of files that are compared.
pub(crate) const FLOWS: usize = 400;

/// Files for which the manifest has another number of flows: the parser's number, and why.
pub(crate) const FLOWS_OTHERWISE: &[(&str, usize, &str)] = &[
    (
        "05-fragments/ndpi__fuzz-2020-02-16-11740.pcap",
        85,
        "fuzzed headers; the oracle's columns give 85 as well",
    ),
    (
        "10-ipsec/tcpdump__heapoverflow-ip_demux_print.pcap",
        0,
        "the authentication header is cut, the protocol above is unknown",
    ),
    ("12-malformed/tcpdump__ip_printroute_asan.pcap", 0, "the IPv4 options are cut"),
    (
        "12-malformed/tcpdump__ipv6-srh-tlv-pad1-padn-5-trunc.pcap",
        0,
        "the routing header is cut, the protocol above is unknown",
    ),
];

/// Files that tshark reads only in part, and why.
pub(crate) const STOPS: &[(&str, &str)] =
    &[("13-formats/gopacket__be__test901.pcapng", "the next section is of version 2.0")];
