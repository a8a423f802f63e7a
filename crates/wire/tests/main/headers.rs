//! Frames built by hand, for headers that are rare in captures; and published checksums.

use std::net::IpAddr;

use flowyard_testkit::harness::{Need, shared};
use flowyard_wire::{Fault, Headers, Icmp, LinkType, Net, Next, checksum};

/// Published checksums.
const VECTORS: &str = "vectors/offload_vectors.json";

flowyard_testkit::tests! {
    link_types_by_number,
    links,
    snap_and_other_llc,
    three_tags_and_too_many,
    pppoe_with_both_protocols,
    ipv6_extensions_and_the_addresses_in_them,
    fragments,
    a_jumbogram_is_bounded_by_its_option,
    padding_is_not_payload_and_a_zero_total_length_is_open,
    a_zero_udp_length_needs_a_zero_ip_length,
    the_last_hop_of_an_ipv4_source_route,
    malformed_and_truncated_are_distinguished,
    ip_tunnels,
    gre_with_every_optional_field,
    udp_tunnels,
    mpls_guesses_what_it_carries,
    views,
    crc32c_of_published_examples,
    the_crc32c_vectors needs [Need::Shared(VECTORS)],
}

/// An IPv4 packet around `payload`, with the correct length.
pub(crate) fn ipv4(proto: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (20 + payload.len() as u16).to_be_bytes();
    let head = [0x45, 0xb8, high, low, 0, 0, 0, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    [&head, payload].concat()
}

/// An IPv6 packet around `payload`, with the correct length.
pub(crate) fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    let mut head = [0xfd; 40];
    head[..8].copy_from_slice(&[0x6b, 0x81, 0x23, 0x45, high, low, next, 63]);
    [&head, payload].concat()
}

pub(crate) fn udp(dport: u16, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (8 + payload.len() as u16).to_be_bytes();
    [&[0x10, 0x00], &dport.to_be_bytes()[..], &[high, low, 0, 0], payload].concat()
}

pub(crate) fn tcp() -> Vec<u8> {
    vec![0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x12, 0, 0, 0, 0, 0, 0]
}

pub(crate) fn ethernet(eth_type: u16, payload: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &eth_type.to_be_bytes(), payload].concat()
}

fn levels(link: LinkType, bytes: &[u8]) -> Vec<Headers> {
    Headers::levels(link, bytes).collect()
}

/// The one inner level of a tunnel frame: TCP ports 80 and 81, and this tunnel id.
fn assert_inner(link: LinkType, bytes: &[u8], id: u32) {
    let levels = levels(link, bytes);
    let [outer, inner] = &levels[..] else { panic!("{} levels: {levels:#?}", levels.len()) };
    assert_eq!((outer.fault, outer.next_id, outer.tunnel_id), (None, id, 0));
    assert_eq!((inner.fault, inner.tunnel_id), (None, id));
    assert_eq!((inner.proto, inner.ports, inner.tcp_flags), (6, Some((80, 81)), 0x12));
    assert_eq!(inner.payload as usize, bytes.len());
}

fn link_types_by_number() {
    let known = [
        (0, LinkType::Null),
        (1, LinkType::Ethernet),
        (12, LinkType::RawIp),
        (14, LinkType::RawIp),
        (101, LinkType::RawIp),
        (108, LinkType::Loop),
        (113, LinkType::LinuxSll),
        (228, LinkType::Ipv4),
        (229, LinkType::Ipv6),
        (276, LinkType::LinuxSll2),
    ];
    for number in 0..=u16::MAX {
        let wanted = known.iter().find(|row| row.0 == number).map(|row| row.1);
        assert_eq!(LinkType::from_registry(number), wanted, "{number}");
    }
}

fn links() {
    let packet = ipv4(6, &tcp());
    let packet6 = ipv6(6, &tcp());
    let mut cases = vec![
        (LinkType::RawIp, packet.clone()),
        (LinkType::RawIp, packet6.clone()),
        (LinkType::Ipv4, packet.clone()),
        (LinkType::Ipv6, packet6.clone()),
        (LinkType::Null, [&[2, 0, 0, 0], &packet[..]].concat()),
        (LinkType::Null, [&[0, 0, 0, 2], &packet[..]].concat()),
        (LinkType::Loop, [&[0, 0, 0, 2], &packet[..]].concat()),
    ];
    for family in [10, 24, 28, 30] {
        cases.push((LinkType::Null, [&[family, 0, 0, 0], &packet6[..]].concat()));
        cases.push((LinkType::Loop, [&[0, 0, 0, family], &packet6[..]].concat()));
    }
    let sll = [&[0, 0, 0, 1, 0, 6][..], &[2; 8], &[0x81, 0, 0x60, 7, 8, 0], &packet].concat();
    let mut sll2 = vec![0x86, 0xdd, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0];
    sll2.extend(&packet6);
    cases.extend([(LinkType::LinuxSll, sll), (LinkType::LinuxSll2, sll2)]);
    for (link, bytes) in cases {
        let h = Headers::parse(link, &bytes);
        assert_eq!((h.fault, h.ports, h.eth), (None, Some((80, 81)), None), "{link:?} {bytes:x?}");
        let tag = if link == LinkType::LinuxSll { vec![7] } else { vec![] };
        assert_eq!(h.tags.ids().collect::<Vec<_>>(), tag);
    }
}

fn snap_and_other_llc() {
    let snap =
        |oui: &[u8]| ethernet(60, &[&[0xaa, 0xaa, 3], oui, &[8, 0], &ipv4(6, &tcp())].concat());
    for oui in [[0, 0, 0], [0, 0, 0xf8]] {
        let h = Headers::parse(LinkType::Ethernet, &snap(&oui));
        assert_eq!((h.eth_type, h.ports), (0x0800, Some((80, 81))));
    }
    let cisco = Headers::parse(LinkType::Ethernet, &snap(&[0, 0, 0x0c]));
    assert_eq!((cisco.net, cisco.eth_type, cisco.l3, cisco.fault), (Net::Other, 0, 14, None));
}

fn three_tags_and_too_many() {
    let mut payload = vec![0, 1, 0x81, 0, 0, 2, 0x91, 0, 0xe0, 3, 8, 0];
    payload.extend(ipv4(6, &tcp()));
    let h = Headers::parse(LinkType::Ethernet, &ethernet(0x88a8, &payload));
    assert_eq!((h.tags.count, h.ports), (3, Some((80, 81))));
    assert_eq!(h.tags.tci, [1, 2, 0xe003, 0]);
    let endless = ethernet(0x8100, &[0, 1, 0x81, 0].repeat(100));
    let h = Headers::parse(LinkType::Ethernet, &endless);
    assert_eq!((h.fault, h.tags.count), (Some(Fault::TooManyTags), 16));
}

fn pppoe_with_both_protocols() {
    for (protocol, packet) in [(0x21, ipv4(6, &tcp())), (0x57, ipv6(6, &tcp()))] {
        let session = [&[0x11, 0, 0x12, 0x34, 0, 99, 0, protocol], &packet[..]].concat();
        let h = Headers::parse(LinkType::Ethernet, &ethernet(0x8864, &session));
        assert_eq!((h.pppoe, h.ports, h.fault), (Some(0x1234), Some((80, 81)), None));
    }
}

fn ipv6_extensions_and_the_addresses_in_them() {
    let home = [0x33; 16];
    let care = [0x44; 16];
    let destination = [&[43, 2, 1, 2, 0, 0, 0xc9, 16][..], &home].concat();
    let routing = [&[44, 2, 2, 1, 0, 0, 0, 0][..], &care].concat();
    let atomic = [51, 0, 0, 0, 0, 0, 0, 9];
    let auth = [&[135, 4, 0, 0][..], &[0; 20]].concat();
    let mobility = [6, 0, 0, 0, 0, 0, 0, 0];
    let parts: [&[u8]; 6] = [&destination, &routing, &atomic, &auth, &mobility, &tcp()];
    let bytes = ipv6(60, &parts.concat());
    let h = Headers::parse(LinkType::RawIp, &bytes);
    assert_eq!((h.fault, h.proto, h.ports), (None, 6, Some((80, 81))));
    assert!(h.fragment.header && !h.fragment.is_fragment());
    assert_eq!(bytes[h.home_address as usize..][..16], home);
    assert_eq!(bytes[h.routing2 as usize..][..16], care);
    assert_eq!((h.tos(&bytes), h.flow_label(&bytes)), (Some(0xb8), Some(0x1_2345)));
}

fn fragments() {
    let with = |word: u16, next: u8, rest: &[u8]| {
        let [high, low] = word.to_be_bytes();
        ipv6(44, &[&[next, 0, high, low, 0, 0, 0, 9], rest].concat())
    };
    let first = Headers::parse(LinkType::RawIp, &with(1, 17, &udp(4789, &[8; 60])));
    assert_eq!((first.ports, first.next), (Some((0x1000, 4789)), Next::None));
    assert!(first.fragment.more && first.fragment.is_fragment());
    let later = Headers::parse(LinkType::RawIp, &with(0x0010, 60, &[1; 8]));
    assert_eq!((later.proto, later.ports, later.l4, later.payload), (60, None, 48, 48));
    assert_eq!((later.fragment.offset, later.fault), (16, None));
}

fn a_jumbogram_is_bounded_by_its_option() {
    let mut payload = vec![6, 0, 0xc2, 4, 0, 1, 0, 28];
    payload.extend(tcp());
    payload.resize(0x1_001c, 7);
    let mut bytes = ipv6(0, &[]);
    bytes.extend(&payload);
    bytes.extend([0xee; 5]);
    let h = Headers::parse(LinkType::RawIp, &bytes);
    assert_eq!((h.fault, h.ports), (None, Some((80, 81))));
    assert_eq!(h.end as usize, bytes.len() - 5);
    bytes[47] = 0;
    bytes[45] = 0;
    assert_eq!(Headers::parse(LinkType::RawIp, &bytes).fault, Some(Fault::BadJumboPayload));
}

fn padding_is_not_payload_and_a_zero_total_length_is_open() {
    let mut bytes = ethernet(0x0800, &ipv4(17, &udp(53, b"query")));
    bytes.resize(60, 0);
    let h = Headers::parse(LinkType::Ethernet, &bytes);
    assert_eq!(h.payload(&bytes), b"query");
    bytes[16..18].fill(0);
    let h = Headers::parse(LinkType::Ethernet, &bytes);
    assert_eq!((h.fault, h.payload(&bytes)), (None, &b"query"[..]));
}

/// A UDP length of zero is allowed where the IP header leaves the length open, and nowhere else.
fn a_zero_udp_length_needs_a_zero_ip_length() {
    let mut datagram = udp(9, &[7; 30]);
    datagram[4..6].fill(0);
    for (eth_type, length_at, packet) in
        [(0x0800, 2, ipv4(17, &datagram)), (0x86dd, 4, ipv6(17, &datagram))]
    {
        for (link, l3) in [(LinkType::RawIp, 0), (LinkType::Ethernet, 14)] {
            let mut bytes = if l3 == 0 { packet.clone() } else { ethernet(eth_type, &packet) };
            let h = Headers::parse(link, &bytes);
            assert_eq!((h.fault, h.ports), (Some(Fault::BadUdpLength), Some((0x1000, 9))));
            bytes[l3 + length_at..][..2].fill(0);
            let h = Headers::parse(link, &bytes);
            assert_eq!((h.fault, h.ports), (None, Some((0x1000, 9))), "{link:?} {eth_type:x}");
            assert_eq!(h.payload(&bytes), [7; 30]);
        }
    }
}

/// The pseudo header has the last address of a source route that has hops left (RFC 1122 3.2.1.8).
fn the_last_hop_of_an_ipv4_source_route() {
    let last_hop = |link: LinkType, options: &[u8]| {
        let mut packet = ipv4(17, &udp(9, &[7; 4]));
        packet.splice(20..20, options.iter().copied());
        packet[0] += (options.len() / 4) as u8;
        packet[3] += options.len() as u8;
        let bytes = if link == LinkType::RawIp { packet } else { ethernet(0x0800, &packet) };
        let h = Headers::parse(link, &bytes);
        assert_eq!((h.fault, h.ports), (None, Some((0x1000, 9))), "{options:?}");
        let last = h.checksum_dst(&bytes).unwrap();
        assert_eq!(h.covers_dst(&bytes), last == h.dst_ip(&bytes).unwrap(), "{options:?}");
        last
    };
    let [header, first, second] = [[10, 0, 0, 2], [192, 0, 2, 1], [192, 0, 2, 9]].map(IpAddr::from);
    let (loose, strict) = (131, 137);
    for link in [LinkType::RawIp, LinkType::Ethernet] {
        let last_hop = |options: &[u8]| last_hop(link, options);
        assert_eq!(last_hop(&[]), header);
        for kind in [loose, strict] {
            assert_eq!(last_hop(&[kind, 7, 4, 192, 0, 2, 1, 0]), first);
            let two = [kind, 11, 4, 192, 0, 2, 1, 192, 0, 2, 9, 0];
            assert_eq!(last_hop(&two), second);
            assert_eq!(last_hop(&[kind, 11, 8, 192, 0, 2, 1, 192, 0, 2, 9, 0]), second);
            assert_eq!(
                last_hop(&[kind, 11, 12, 192, 0, 2, 1, 192, 0, 2, 9, 0]),
                header,
                "no hop left"
            );
            assert_eq!(last_hop(&[kind, 11, 11, 192, 0, 2, 1, 192, 0, 2, 9, 0]), header);
            // A no-operation, and another option, stand before the route.
            assert_eq!(last_hop(&[1, kind, 7, 4, 192, 0, 2, 1]), first);
            assert_eq!(last_hop(&[68, 4, 5, 0, 1, kind, 7, 4, 192, 0, 2, 1]), first);
            // The length of the other option is 2, which is the least.
            assert_eq!(last_hop(&[94, 2, 1, 1, 1, kind, 7, 4, 192, 0, 2, 1]), first);
            // Behind the end of the options nothing counts.
            assert_eq!(last_hop(&[0, kind, 7, 4, 192, 0, 2, 1]), header);
            // A route without an address, one that exceeds the header, and an option without a length.
            assert_eq!(last_hop(&[kind, 3, 2, 192, 0, 2, 1, 0]), header);
            assert_eq!(last_hop(&[kind, 12, 4, 192, 0, 2, 1, 0]), header);
            assert_eq!(last_hop(&[68, 1, kind, 7, 4, 192, 0, 2, 1, 0, 0, 0]), header);
        }
        assert_eq!(last_hop(&[7, 7, 4, 192, 0, 2, 1, 0]), header, "record route");
    }
}

fn malformed_and_truncated_are_distinguished() {
    let whole = ethernet(0x0800, &ipv4(6, &tcp()));
    let cut = Headers::parse(LinkType::Ethernet, &whole[..40]);
    assert_eq!((cut.fault, cut.ports), (Some(Fault::TruncatedTransport), Some((80, 81))));
    let lying = ethernet(0x0800, &[&ipv4(6, &tcp()[..6]), &tcp()[6..]].concat());
    let h = Headers::parse(LinkType::Ethernet, &lying);
    assert_eq!((h.fault, h.ports), (Some(Fault::TransportPastLength), Some((80, 81))));
    let changed = |at: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[at] = value;
        Headers::parse(LinkType::Ethernet, &bytes).fault
    };
    assert_eq!(changed(14, 0x65), Some(Fault::BadIpVersion));
    assert_eq!(changed(14, 0x44), Some(Fault::BadIpv4HeaderLength));
    assert_eq!(changed(17, 0x13), Some(Fault::BadIpv4TotalLength));
    assert_eq!(changed(46, 0x40), Some(Fault::BadTcpDataOffset));
    assert_eq!(changed(46, 0x60), Some(Fault::BadTcpDataOffset));
    assert_eq!(Headers::parse(LinkType::Ethernet, &[]).fault, Some(Fault::Empty));
}

fn ip_tunnels() {
    let v4 = ipv4(6, &tcp());
    let v6 = ipv6(6, &tcp());
    let frame = ethernet(0x0800, &v4);
    assert_inner(LinkType::RawIp, &ipv4(4, &v4), 0);
    assert_inner(LinkType::RawIp, &ipv4(41, &v6), 0);
    assert_inner(LinkType::RawIp, &ipv6(4, &v4), 0);
    assert_inner(LinkType::RawIp, &ipv6(41, &v6), 0);
    assert_inner(LinkType::RawIp, &ipv4(97, &[&[0x30, 0], &frame[..]].concat()), 0);
    assert_inner(LinkType::RawIp, &ipv6(143, &frame), 0);
    assert_inner(LinkType::RawIp, &ipv4(137, &[&[0, 1, 1, 64], &v4[..]].concat()), 0);
}

fn gre_with_every_optional_field() {
    let v4 = ipv4(6, &tcp());
    let frame = ethernet(0x0800, &v4);
    let gre = |header: &[u8], payload: &[u8]| ipv4(47, &[header, payload].concat());
    let plain = gre(&[0, 0, 8, 0], &v4);
    assert_inner(LinkType::RawIp, &plain, 0);
    let all = [0xb0, 0, 0x65, 0x58, 1, 1, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 1];
    assert_inner(LinkType::RawIp, &gre(&all, &frame), 0x1234);
    let routed = [0x40, 0, 8, 0, 0, 0, 0, 0, 8, 0, 0, 4, 1, 2, 3, 4, 0, 0, 0, 0];
    assert_inner(LinkType::RawIp, &gre(&routed, &v4), 0);
    let ppp = [0x30, 0x81, 0x88, 0x0b, 0, 44, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0xff, 3, 0x21];
    assert_inner(LinkType::RawIp, &gre(&ppp, &v4), 9);
    let erspan1 = [0, 0, 0x88, 0xbe];
    assert_inner(LinkType::RawIp, &gre(&erspan1, &frame), 0);
    let erspan2 = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 1, 0xfc, 0x65, 0, 0, 0, 0];
    assert_inner(LinkType::RawIp, &gre(&erspan2, &frame), 0x65);
    let mut erspan3 = vec![0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 1, 0xfc, 0x66];
    erspan3.extend([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_inner(LinkType::RawIp, &gre(&erspan3, &frame), 0x66);
    let h = Headers::parse(LinkType::RawIp, &gre(&[0, 5, 8, 0], &v4));
    assert_eq!(h.fault, Some(Fault::BadGreVersion));
}

fn udp_tunnels() {
    let v4 = ipv4(6, &tcp());
    let v6 = ipv6(6, &tcp());
    let frame = ethernet(0x0800, &v4);
    let over = |port: u16, header: &[u8], payload: &[u8]| {
        ipv4(17, &udp(port, &[header, payload].concat()))
    };
    let vxlan = [8, 0, 0, 0, 0, 1, 2, 0];
    assert_inner(LinkType::RawIp, &over(4789, &vxlan, &frame), 0x0102);
    assert_inner(LinkType::RawIp, &over(8472, &vxlan, &frame), 0x0102);
    assert_inner(LinkType::RawIp, &over(4790, &[0x0c, 0, 0, 3, 0, 1, 2, 0], &frame), 0x0102);
    assert_inner(LinkType::RawIp, &over(4790, &[0x0c, 0, 0, 2, 0, 1, 2, 0], &v6), 0x0102);
    // Three words of options.
    let geneve = [3, 0, 0x65, 0x58, 0xff, 0xff, 0xff, 0, 1, 2, 3, 2, 5, 6, 7, 8, 9, 10, 11, 12];
    assert_inner(LinkType::RawIp, &over(6081, &geneve, &frame), 0xff_ffff);
    let gtp = [0x30, 255, 0, 40, 1, 2, 3, 4];
    assert_inner(LinkType::RawIp, &over(2152, &gtp, &v4), 0x0102_0304);
    let extended = [0x34, 255, 0, 48, 0, 0, 0, 5, 0, 0, 0, 0x85, 1, 0, 9, 0];
    assert_inner(LinkType::RawIp, &over(2152, &extended, &v6), 5);
    let echo = over(2152, &[0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0], &[]);
    assert_eq!(levels(LinkType::RawIp, &echo).len(), 1, "only a T-PDU has a packet");
    let dns = over(4789, &[0, 0, 0, 0], &[]);
    assert_eq!(levels(LinkType::RawIp, &dns)[0].fault, None, "a port is only a habit");
}

fn mpls_guesses_what_it_carries() {
    let v4 = ipv4(6, &tcp());
    let frame = ethernet(0x0800, &v4);
    let stack = [0, 1, 0x00, 64, 0, 2, 0x01, 64];
    let h = Headers::parse(LinkType::Ethernet, &ethernet(0x8847, &[&stack, &v4[..]].concat()));
    assert_eq!((h.labels.count, h.ports, h.eth_type), (2, Some((80, 81)), 0x8847));
    assert_eq!(h.labels.ids().collect::<Vec<_>>(), [16, 32]);
    let word = ethernet(0x8847, &[&stack[..], &[0; 4], &frame].concat());
    assert_inner(LinkType::Ethernet, &word, 0);
    assert_inner(LinkType::Ethernet, &ethernet(0x8848, &[&stack, &frame[..]].concat()), 0);
}

fn views() {
    let bytes = ethernet(0x0800, &ipv4(1, &[3, 4, 0, 0, 0, 0, 0, 0]));
    let h = Headers::parse(LinkType::Ethernet, &bytes);
    assert_eq!(h.icmp(&bytes), Some(Icmp { kind: 3, code: 4 }));
    assert_eq!((h.ttl(&bytes), h.tos(&bytes)), (Some(64), Some(0xb8)));
    assert_eq!(h.src_ip(&bytes), "10.0.0.1".parse::<IpAddr>().ok());
    assert_eq!(h.dst_ip(&bytes), "10.0.0.2".parse::<IpAddr>().ok());
    let mut bytes = bytes;
    bytes[..12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    let macs = (Some(&[1, 2, 3, 4, 5, 6]), Some(&[7, 8, 9, 10, 11, 12]));
    assert_eq!((h.eth_dst(&bytes), h.eth_src(&bytes)), macs);
    assert_eq!(h.flow_label(&bytes), None);
    // Only ICMP over IPv4 and ICMPv6 over IPv6 have a type; a later fragment and a cut message have none.
    let icmp = |proto: u8, v6: bool, fragment: u8, len: usize| {
        let mut bytes = if v6 { ipv6(proto, &[3; 8]) } else { ipv4(proto, &[3; 8]) };
        if !v6 {
            bytes[7] = fragment;
        }
        let l4 = if v6 { 40 } else { 20 };
        let h = Headers::parse(LinkType::RawIp, &bytes[..l4 + len]);
        h.icmp(&bytes[..l4 + len])
    };
    let message = Some(Icmp { kind: 3, code: 3 });
    assert_eq!((icmp(1, false, 0, 8), icmp(58, true, 0, 8)), (message, message));
    assert_eq!(
        (icmp(1, true, 0, 8), icmp(58, false, 0, 8), icmp(6, false, 0, 8)),
        (None, None, None)
    );
    assert_eq!(
        (icmp(1, false, 1, 8), icmp(1, false, 0, 1), icmp(1, false, 0, 2)),
        (None, None, message)
    );
    let arp = ethernet(0x0806, &[0; 40]);
    let h = Headers::parse(LinkType::Ethernet, &arp);
    assert_eq!(
        (h.ttl(&arp), h.tos(&arp), h.flow_label(&arp), h.icmp(&arp)),
        (None, None, None, None)
    );
    assert!(h.src_octets(&arp).is_empty() && h.dst_octets(&arp).is_empty());
    let raw = ipv6(59, &[]);
    let h = Headers::parse(LinkType::RawIp, &raw);
    assert_eq!((h.eth_dst(&raw), h.eth_src(&raw)), (None, None));
    assert_eq!((h.ttl(&raw), h.tos(&raw)), (Some(63), Some(0xb8)));
}

/// RFC 7143 appendix A.4, and the check value of the catalogue of parametrised CRC algorithms.
fn crc32c_of_published_examples() {
    let up: Vec<u8> = (0..32).collect();
    let down: Vec<u8> = (0..32).rev().collect();
    for (bytes, crc) in [
        (&b"123456789"[..], 0xe306_9283_u32),
        (&[0; 32], 0x8a91_36aa),
        (&[0xff; 32], 0x62a8_ab43),
        (&up, 0x46dd_794e),
        (&down, 0x113f_db5c),
    ] {
        assert_eq!(checksum::crc32c(&[bytes]), crc);
        for at in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(at);
            assert_eq!(checksum::crc32c(&[head, tail]), crc, "in two parts, at {at}");
        }
    }
}

fn the_crc32c_vectors() {
    let text = std::fs::read(shared(VECTORS)).expect("vectors");
    let json: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let vectors = json["crc32c"]["vectors"].as_array().expect("a list");
    for vector in vectors {
        let hex = vector["hex"].as_str().expect("hex");
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let crc = format!("{:08x}", checksum::crc32c(&[&bytes]));
        assert_eq!(vector["crc"], crc, "{}", vector["src"]);
    }
    assert!(vectors.len() >= 6);
}
