//! The two functions from bytes to key, against another parser (etherparse) and against each other.

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use flowyard_flow::parse;
use flowyard_frame::{FlowKey, proto};
use flowyard_wire::{Fragment, Headers, Labels, LinkType, Net, Tags};
use proptest::prelude::*;

flowyard_testkit::tests! {
    frames_that_are_not_plain_are_refused,
    plain_frames_are_taken_with_the_right_key,
    broken_frames_are_left_to_the_general_parser,
    any_bytes_and_any_offsets_are_safe,
    ipv6_and_its_fields,
    frames_without_ip_have_their_type_and_addresses,
}

/// The key according to etherparse, if the fast path must accept the frame.
fn by_etherparse(bytes: &[u8], in_port: u16) -> Option<FlowKey> {
    let packet = SlicedPacket::from_ethernet(bytes).ok()?;
    let NetSlice::Ipv4(ip) = packet.net? else { return None };
    let ip = ip.header();
    let sum_holds = ip.to_header().calc_header_checksum() == ip.header_checksum();
    if !packet.link_exts.is_empty() || ip.ihl() != 5 || ip.is_fragmenting_payload() || !sum_holds {
        return None;
    }
    let (sport, dport, tcp_flags) = match packet.transport? {
        TransportSlice::Udp(udp) => (udp.source_port(), udp.destination_port(), 0),
        TransportSlice::Tcp(tcp) => (tcp.source_port(), tcp.destination_port(), tcp.slice()[13]),
        _ => return None,
    };
    let (src, dst) = (ip.source_addr().into(), ip.destination_addr().into());
    Some(FlowKey {
        tos: ip.dcp().value() << 2 | ip.ecn().value(),
        tcp_flags,
        eth_dst: bytes[..6].try_into().unwrap(),
        eth_src: bytes[6..12].try_into().unwrap(),
        in_port,
        ..FlowKey::five_tuple(ip.protocol().0, src, sport, dst, dport)
    })
}

fn frame(tcp: bool, addresses: [[u8; 4]; 2], ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ipv4(
        addresses[0],
        addresses[1],
        64,
    );
    let mut bytes = Vec::new();
    if tcp {
        builder.tcp(ports[0], ports[1], 7, 1024).syn().write(&mut bytes, payload).unwrap();
    } else {
        builder.udp(ports[0], ports[1]).write(&mut bytes, payload).unwrap();
    }
    bytes
}

/// Writes the correct checksum into a 20-byte IPv4 header.
fn fix_checksum(bytes: &mut [u8]) {
    bytes[24..26].fill(0);
    let half = |w: &[u8]| u32::from(w[0]) << 8 | u32::from(w[1]);
    let sum: u32 = bytes[14..34].chunks(2).map(half).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// One changed byte makes a frame that the fast path refuses, even with a correct checksum.
fn frames_that_are_not_plain_are_refused() {
    let plain = frame(true, [[10, 0, 0, 1], [10, 0, 0, 2]], [1000, 2000], &[0; 6]);
    let taken = |at: usize, value: u8| {
        let mut bytes = plain.clone();
        bytes[at] = value;
        fix_checksum(&mut bytes);
        let mut key = FlowKey::ZERO;
        parse::fast(&bytes, 0, &mut key)
    };
    for (at, value, what) in [
        (12, 0x81, "a VLAN tag"),
        (13, 0x06, "ARP"),
        (14, 0x46, "options"),
        (14, 0x65, "version 6"),
        (17, 39, "a datagram shorter than its headers"),
        (17, 47, "a datagram longer than the frame"),
        (20, 0x20, "a first fragment"),
        (21, 1, "a later fragment"),
        (23, 1, "ICMP"),
        (46, 0x40, "a TCP header shorter than itself"),
        (46, 0x70, "a TCP header longer than its datagram"),
    ] {
        assert!(!taken(at, value), "{what}");
    }
    for (at, value) in [(15, 0xff), (20, 0x40), (22, 1), (46, 0x60), (47, 0xff), (17, 40)] {
        assert!(taken(at, value), "byte {at} may be {value}");
    }
}

proptest! {
    fn plain_frames_are_taken_with_the_right_key(
        tcp in any::<bool>(),
        addresses in any::<[[u8; 4]; 2]>(),
        ports in any::<[u16; 2]>(),
        payload in prop::collection::vec(any::<u8>(), 0..64),
        padding in 0..8_usize,
        in_port in any::<u16>(),
    ) {
        let mut bytes = frame(tcp, addresses, ports, &payload);
        bytes.resize(bytes.len() + padding, 0);
        let mut key = FlowKey::ZERO;
        prop_assert!(parse::fast(&bytes, in_port, &mut key));
        prop_assert_eq!(Some(key), by_etherparse(&bytes, in_port));
        prop_assert_eq!(key, parse::key(&Headers::parse(LinkType::Ethernet, &bytes), &bytes, in_port));
    }

    /// With some header bytes changed and the end cut off, with and without a correct checksum.
    fn broken_frames_are_left_to_the_general_parser(
        tcp in any::<bool>(),
        payload in 0..40_usize,
        changes in prop::collection::vec((12..50_usize, any::<u8>()), 0..4),
        fix in any::<bool>(),
        cut in 0..24_usize,
    ) {
        let mut bytes = frame(tcp, [[10, 0, 0, 1], [10, 0, 0, 2]], [1000, 2000], &vec![0; payload]);
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        if fix {
            fix_checksum(&mut bytes);
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        let before = FlowKey { tunnel_id: 1234, ..FlowKey::ZERO };
        let mut key = before;
        let taken = parse::fast(&bytes, 3, &mut key);
        let model = by_etherparse(&bytes, 3);
        if taken {
            prop_assert_eq!(Some(key), model);
            let headers = Headers::parse(LinkType::Ethernet, &bytes);
            prop_assert_eq!(headers.fault, None, "fast never takes a frame that the parser faults");
            prop_assert_eq!(key, parse::key(&headers, &bytes, 3));
        } else {
            prop_assert_eq!(key, before, "a frame not taken leaves the key alone");
        }
    }

    fn any_bytes_and_any_offsets_are_safe(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        l3 in prop_oneof![0..140_u32, any::<u32>()],
        eth in prop::option::of(prop_oneof![0..140_u32, any::<u32>()]),
        net in prop_oneof![Just(Net::Ipv4), Just(Net::Ipv6), Just(Net::Arp), Just(Net::Other)],
        count in any::<u8>(),
        offset in any::<u16>(),
        more in any::<bool>(),
    ) {
        let mut key = FlowKey::ZERO;
        let _ = parse::fast(&bytes, 0, &mut key);
        let headers = Headers {
            eth,
            l3,
            net,
            tags: Tags { count, tci: [1, 2, 3, 4] },
            labels: Labels { count, entry: [5; 4] },
            fragment: Fragment { offset, more, header: false },
            ports: Some((1, 2)),
            ..Headers::default()
        };
        let key = parse::key(&headers, &bytes, 9);
        prop_assert_eq!(key.in_port, 9);
        if key.frag == 2 {
            prop_assert_eq!((key.sport, key.dport), (0, 0));
        }
    }
}

fn ipv6_and_its_fields() {
    let mut bytes = Vec::new();
    let (src, dst): ([u8; 16], [u8; 16]) =
        (std::array::from_fn(|i| i as u8 + 1), std::array::from_fn(|i| i as u8 + 101));
    PacketBuilder::ethernet2([1; 6], [2; 6])
        .single_vlan(0x123.try_into().unwrap())
        .ipv6(src, dst, 64)
        .udp(53, 5353)
        .write(&mut bytes, &[0; 9])
        .unwrap();
    bytes[18..20].copy_from_slice(&[0x6a, 0xb0]); // version 6, traffic class 0xab
    let headers = Headers {
        eth: Some(0),
        eth_type: 0x86dd,
        tags: Tags { count: 1, tci: [0x123, 0, 0, 0] },
        net: Net::Ipv6,
        l3: 18,
        proto: proto::UDP,
        fragment: Fragment { offset: 0, more: true, header: true },
        l4: 58,
        ports: Some((53, 5353)),
        tunnel_id: 77,
        ..Headers::default()
    };
    let ip = |octets: [u8; 16]| std::net::Ipv6Addr::from(octets).into();
    let wanted = FlowKey {
        frag: 1,
        tos: 0xab,
        eth_dst: [2; 6],
        eth_src: [1; 6],
        vlan_tci: 0x123,
        in_port: 4,
        tunnel_id: 77,
        ..FlowKey::five_tuple(proto::UDP, ip(src), 53, ip(dst), 5353)
    };
    assert_eq!(parse::key(&headers, &bytes, 4), wanted);
    let mut untouched = FlowKey::ZERO;
    assert!(!parse::fast(&bytes, 4, &mut untouched));
    let later = Headers { fragment: Fragment { offset: 8, more: false, header: true }, ..headers };
    let key = parse::key(&later, &bytes, 4);
    assert_eq!((key.frag, key.sport, key.dport), (2, 0, 0));
    let atomic = Headers { fragment: Fragment { header: true, ..Fragment::default() }, ..headers };
    assert_eq!(parse::key(&atomic, &bytes, 4).frag, 0, "RFC 6946");
}

fn frames_without_ip_have_their_type_and_addresses() {
    for eth_type in [0x0806_u16, 0x88cc, 0x8847] {
        let mut bytes = vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        bytes.extend(eth_type.to_be_bytes());
        bytes.extend([1; 46]);
        let wanted = FlowKey {
            eth_dst: [1, 2, 3, 4, 5, 6],
            eth_src: [7, 8, 9, 10, 11, 12],
            eth_type,
            in_port: 3,
            ..FlowKey::ZERO
        };
        let headers = Headers::parse(LinkType::Ethernet, &bytes);
        assert_eq!(parse::key(&headers, &bytes, 3), wanted, "{eth_type:#x}");
    }
}
