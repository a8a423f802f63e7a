//! Compares built frames with what etherparse, an independent parser, finds in them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
use flowyard_frame::{FlowKey, proto};
use flowyard_testkit::Build;
use proptest::prelude::*;

fn key(protocol: u8, v6: bool, src: u128, dst: u128, sport: u16, dport: u16) -> FlowKey {
    let ip = |bits: u128| -> IpAddr {
        if v6 { Ipv6Addr::from(bits).into() } else { Ipv4Addr::from(bits as u32).into() }
    };
    FlowKey {
        eth_src: [2, 0, 0, 0, 0, 1],
        eth_dst: [2, 0, 0, 0, 0, 2],
        ..FlowKey::five_tuple(protocol, ip(src), sport, ip(dst), dport)
    }
}

proptest! {
    #[test]
    fn etherparse_finds_the_key_and_right_checksums(
        which in 0..4_usize, v6: bool, src: u128, dst: u128, ports: (u16, u16), flags in 0..64_u8,
        tos: u8, vlans in 0..3_u16, payload in prop::collection::vec(any::<u8>(), 0..100),
        longer in 0..1400_usize, seq: u32,
    ) {
        let protocol = [proto::TCP, proto::UDP, proto::ICMP, proto::ICMPV6][which];
        let key = FlowKey { tos, ..key(protocol, v6, src, dst, ports.0, ports.1) };
        let mut build = Build::new(&key).flags(flags).seq(seq).payload(&payload);
        build = (0..vlans).fold(build, |build, id| build.vlan(id + 5));
        let frame = build.frame_len(longer).pad(60).bytes();
        let found = PacketHeaders::from_ethernet_slice(&frame).unwrap();
        prop_assert!(frame.len() >= longer.max(60));
        let tags: Vec<_> = found.vlan_ids().iter().map(|id| id.value()).collect();
        prop_assert_eq!(tags, (0..vlans).map(|id| id + 5).collect::<Vec<_>>());

        let body = found.payload.slice();
        prop_assert!(body.starts_with(&payload));
        let net = match found.net.unwrap() {
            NetHeaders::Ipv4(ip, _) => {
                prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                prop_assert_eq!((ip.source, ip.destination),
                    ((src as u32).to_be_bytes(), (dst as u32).to_be_bytes()));
                prop_assert_eq!((ip.dscp.value() << 2 | ip.ecn.value(), ip.protocol.0), (tos, protocol));
                Ok(ip)
            }
            NetHeaders::Ipv6(ip, _) => {
                prop_assert_eq!((ip.source, ip.destination), (src.to_be_bytes(), dst.to_be_bytes()));
                prop_assert_eq!((ip.traffic_class, ip.next_header.0), (tos, protocol));
                Err(ip)
            }
            NetHeaders::Arp(_) => unreachable!("no ARP was built"),
        };
        prop_assert_eq!(net.is_err(), v6);
        match found.transport {
            Some(TransportHeader::Tcp(tcp)) => {
                prop_assert_eq!(protocol, proto::TCP);
                prop_assert_eq!((tcp.source_port, tcp.destination_port), ports);
                prop_assert_eq!((tcp.syn, tcp.ack, tcp.fin, tcp.sequence_number),
                    (flags & 2 > 0, flags & 16 > 0, flags & 1 > 0, seq));
                let sum = match &net {
                    Ok(ip) => tcp.calc_checksum_ipv4(ip, body).unwrap(),
                    Err(ip) => tcp.calc_checksum_ipv6(ip, body).unwrap(),
                };
                prop_assert_eq!(tcp.checksum, sum);
            }
            Some(TransportHeader::Udp(udp)) => {
                prop_assert_eq!(protocol, proto::UDP);
                prop_assert_eq!((udp.source_port, udp.destination_port), ports);
                prop_assert_eq!(usize::from(udp.length), 8 + body.len());
                let sum = match &net {
                    Ok(ip) => udp.calc_checksum_ipv4(ip, body).unwrap(),
                    Err(ip) => udp.calc_checksum_ipv6(ip, body).unwrap(),
                };
                prop_assert_eq!(udp.checksum, sum);
            }
            Some(TransportHeader::Icmpv4(icmp)) => {
                prop_assert_eq!(protocol, proto::ICMP);
                prop_assert_eq!(icmp.checksum, icmp.icmp_type.calc_checksum(body));
            }
            Some(TransportHeader::Icmpv6(icmp)) => {
                prop_assert_eq!(protocol, proto::ICMPV6);
                if let Err(ip) = &net {
                    let sum = icmp.icmp_type.calc_checksum(ip.source, ip.destination, body).unwrap();
                    prop_assert_eq!(icmp.checksum, sum);
                }
            }
            other => prop_assert!(false, "no transport header was built like {other:?}"),
        }
    }
}

#[test]
fn fragments_put_together_are_the_datagram() {
    for v6 in [false, true] {
        let key = key(proto::UDP, v6, 1, 2, 3, 4);
        let data: Vec<u8> = (0..40).collect();
        let first = Build::new(&key).payload(&data[..16]).fragment(0, true).seq(9).bytes();
        let later = Build::new(&key).payload(&data[16..]).fragment(3, false).seq(9).bytes();
        let l4 = if v6 { 14 + 40 + 8 } else { 14 + 20 };
        assert_eq!((first.len(), later.len()), (l4 + 8 + 16, l4 + 24)); // no ports in the later
        assert_eq!([&first[l4 + 8..], &later[l4..]].concat(), data);
        for (frame, offset, more) in [(&first, 0, true), (&later, 3, false)] {
            match PacketHeaders::from_ethernet_slice(frame).unwrap().net.unwrap() {
                NetHeaders::Ipv4(ip, _) => assert_eq!(
                    (ip.fragment_offset.value(), ip.more_fragments, ip.identification),
                    (offset, more, 9)
                ),
                NetHeaders::Ipv6(_, extensions) => {
                    let fragment = extensions.fragment.unwrap();
                    assert_eq!(
                        (fragment.fragment_offset.value(), fragment.more_fragments),
                        (offset, more)
                    );
                    assert_eq!((fragment.identification, fragment.next_header.0), (9, proto::UDP));
                }
                NetHeaders::Arp(_) => panic!("no ARP was built"),
            }
        }
    }
}

#[test]
fn sctp_and_what_is_not_ip() {
    let key = key(proto::SCTP, false, 1, 2, 7, 9);
    let frame = Build::new(&key).payload(b"hello").seq(3).bytes();
    assert_eq!(frame.len(), 14 + 20 + 12 + 16 + 8);
    let sctp = &frame[34..];
    assert_eq!((&sctp[..4], &sctp[12..20]), (&[0, 7, 0, 9][..], &[0, 3, 0, 21, 0, 0, 0, 3][..]));
    // RFC 9260, appendix A, bit by bit over the packet with a zero checksum.
    let mut zeroed = sctp.to_vec();
    zeroed[8..12].fill(0);
    let crc = zeroed.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    });
    assert_eq!(sctp[8..12], (!crc).to_le_bytes());

    let other = FlowKey { eth_type: 0x88cc, vlan_tci: 0x2001, ..FlowKey::ZERO };
    let frame = Build::new(&other).payload(b"lldp").pad(60).bytes();
    assert_eq!((frame.len(), &frame[12..22]), (60, &b"\x81\x00\x20\x01\x88\xcclldp"[..]));
}
