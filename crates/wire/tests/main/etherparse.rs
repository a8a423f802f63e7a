//! Differential test: common header stacks, built and parsed by the etherparse crate, and parsed here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice, VlanId, VlanSlice};
use flowyard_wire::{Headers, LinkType, Verdict};
use proptest::prelude::*;

flowyard_testkit::tests! {
    both_read_the_same,
}

#[derive(Clone, Debug)]
struct Stack {
    vlans: Vec<u16>,
    v6: bool,
    kind: u8,
    src: [u8; 16],
    dst: [u8; 16],
    ports: (u16, u16),
    payload: Vec<u8>,
    padding: usize,
}

fn stack() -> impl Strategy<Value = Stack> {
    let ports = (any::<u16>(), any::<u16>()).prop_filter("a port without a tunnel", |(_, dst)| {
        ![2152, 4789, 4790, 6081, 8472].contains(dst)
    });
    let payload = prop::collection::vec(any::<u8>(), 0..100);
    let head = (prop::collection::vec(0u16..4096, 0..3), any::<bool>(), 0u8..3);
    (head, any::<[u8; 16]>(), any::<[u8; 16]>(), ports, payload, 0usize..30).prop_map(
        |((vlans, v6, kind), src, dst, ports, payload, padding)| Stack {
            vlans,
            v6,
            kind,
            src,
            dst,
            ports,
            payload,
            padding,
        },
    )
}

fn build(stack: &Stack) -> Vec<u8> {
    let id = |i: usize| VlanId::try_new(stack.vlans[i]).unwrap();
    let ethernet = PacketBuilder::ethernet2([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]);
    let v4 = |a: [u8; 16]| [a[0], a[1], a[2], a[3]];
    let ip = match (stack.vlans.len(), stack.v6) {
        (0, false) => ethernet.ipv4(v4(stack.src), v4(stack.dst), 9),
        (0, true) => ethernet.ipv6(stack.src, stack.dst, 9),
        (1, false) => ethernet.single_vlan(id(0)).ipv4(v4(stack.src), v4(stack.dst), 9),
        (1, true) => ethernet.single_vlan(id(0)).ipv6(stack.src, stack.dst, 9),
        (_, false) => ethernet.double_vlan(id(0), id(1)).ipv4(v4(stack.src), v4(stack.dst), 9),
        (_, true) => ethernet.double_vlan(id(0), id(1)).ipv6(stack.src, stack.dst, 9),
    };
    let (src, dst) = stack.ports;
    let mut bytes = Vec::new();
    match (stack.kind, stack.v6) {
        (0, _) => ip.tcp(src, dst, 1, 2).syn().write(&mut bytes, &stack.payload),
        (1, _) => ip.udp(src, dst).write(&mut bytes, &stack.payload),
        (_, false) => ip.icmpv4_echo_request(src, dst).write(&mut bytes, &stack.payload),
        (_, true) => ip.icmpv6_echo_request(src, dst).write(&mut bytes, &stack.payload),
    }
    .unwrap();
    bytes
}

/// A slice's offset in `bytes`.
fn offset(bytes: &[u8], part: &[u8]) -> u32 {
    (part.as_ptr() as usize - bytes.as_ptr() as usize) as u32
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    fn both_read_the_same(stack in stack(), flip in any::<prop::sample::Index>()) {
        let mut bytes = build(&stack);
        let whole = bytes.len();
        bytes.resize(whole + stack.padding, 0xee);
        let ours = Headers::parse(LinkType::Ethernet, &bytes);
        let theirs = SlicedPacket::from_ethernet(&bytes).unwrap();
        prop_assert_eq!(ours.fault, None);
        prop_assert_eq!(ours.end as usize, whole);
        let ids: Vec<u16> = match theirs.vlan() {
            None => vec![],
            Some(VlanSlice::SingleVlan(tag)) => vec![tag.vlan_identifier().value()],
            Some(VlanSlice::DoubleVlan(tags)) => {
                [&tags.outer, &tags.inner].map(|tag| tag.vlan_identifier().value()).to_vec()
            }
        };
        prop_assert_eq!(ours.tags.ids().collect::<Vec<_>>(), ids);
        let (src, dst): (IpAddr, IpAddr) = match theirs.net.as_ref().unwrap() {
            NetSlice::Ipv4(ip) => {
                let header = ip.header();
                prop_assert_eq!(offset(&bytes, header.slice()), ours.l3);
                prop_assert_eq!(Some(header.ttl()), ours.ttl(&bytes));
                (Ipv4Addr::from(header.source()).into(), Ipv4Addr::from(header.destination()).into())
            }
            NetSlice::Ipv6(ip) => {
                let header = ip.header();
                prop_assert_eq!(offset(&bytes, header.slice()), ours.l3);
                prop_assert_eq!(Some(header.hop_limit()), ours.ttl(&bytes));
                (Ipv6Addr::from(header.source()).into(), Ipv6Addr::from(header.destination()).into())
            }
            NetSlice::Arp(_) => unreachable!("no ARP was built"),
        };
        prop_assert_eq!((ours.src_ip(&bytes), ours.dst_ip(&bytes)), (Some(src), Some(dst)));
        let payload: &[u8] = &stack.payload;
        match theirs.transport.as_ref().unwrap() {
            TransportSlice::Tcp(tcp) => {
                let ports = (tcp.source_port(), tcp.destination_port());
                prop_assert_eq!((ours.proto, ours.ports), (6, Some(ports)));
                prop_assert_eq!(ours.tcp_flags, 0x02);
                prop_assert_eq!(offset(&bytes, tcp.slice()), ours.l4);
                prop_assert_eq!(ours.payload(&bytes), payload);
            }
            TransportSlice::Udp(udp) => {
                let ports = (udp.source_port(), udp.destination_port());
                prop_assert_eq!((ours.proto, ours.ports), (17, Some(ports)));
                prop_assert_eq!(offset(&bytes, udp.slice()), ours.l4);
                prop_assert_eq!(ours.payload(&bytes), payload);
            }
            TransportSlice::Icmpv4(icmp) => {
                prop_assert_eq!((ours.proto, ours.ports), (1, None));
                prop_assert_eq!(ours.icmp(&bytes).map(|i| i.kind), Some(icmp.type_u8()));
                prop_assert_eq!(offset(&bytes, icmp.slice()), ours.l4);
            }
            TransportSlice::Igmp(_) => unreachable!("no IGMP was built"),
            TransportSlice::Icmpv6(icmp) => {
                prop_assert_eq!((ours.proto, ours.ports), (58, None));
                prop_assert_eq!(ours.icmp(&bytes).map(|i| i.kind), Some(icmp.type_u8()));
                prop_assert_eq!(offset(&bytes, icmp.slice()), ours.l4);
            }
        }
        // etherparse stored correct checksums; one flipped bit after the header makes them wrong.
        prop_assert_eq!(ours.transport_checksum(&bytes), Verdict::Good);
        let v4 = if stack.v6 { Verdict::NotChecked } else { Verdict::Good };
        prop_assert_eq!(ours.ipv4_checksum(&bytes), v4);
        if ours.payload < ours.end {
            let at = ours.payload as usize + flip.index((ours.end - ours.payload) as usize);
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            prop_assert_eq!(ours.transport_checksum(&damaged), Verdict::Bad);
        }
    }
}
