//! Messages as bytes that are written here by hand, so that a mistake in both directions of the codec
//! is found as well.

use flowyard_openflow::flow::FlowMod;
use flowyard_openflow::multipart::Reply;
use flowyard_openflow::oxm::{Field, Oxm};
use flowyard_openflow::port::PortStats;
use flowyard_openflow::{Match, Message, Version, decode, encode, problem};

flowyard_testkit::tests! {
    the_fields_of_a_match_of_1_0_are_at_their_places,
    a_vlan_of_1_0_has_twelve_bits_and_a_value_for_untagged_frames,
    the_wildcards_of_1_0_leave_out_single_fields,
    counters_of_ethernet_are_64_bits_wide_in_1_4,
    an_experimenter_of_1_3_is_a_bundle_only_with_the_number_of_the_foundation,
}

/// The fields of a flow-mod of 1.0 with this match.
fn fields(matching: &[u8; 40]) -> Result<Vec<Oxm>, problem::Problem> {
    let mut wire = vec![1, 14, 0, 72, 0, 0, 0, 9];
    wire.extend(matching);
    wire.extend([0; 24]);
    match decode(&wire) {
        Ok((_, Message::FlowMod(FlowMod { matching, .. }))) => Ok(matching.0),
        Ok(other) => panic!("{other:?}"),
        Err(rejected) => Err(rejected.problem),
    }
}

/// Wildcards 4, in_port 2, dl_src 6, dl_dst 6, vlan 2, pcp 1, a gap, dl_type 2, tos 1, proto 1, a gap of 2,
/// nw_src 4, nw_dst 4, tp_src 2, tp_dst 2.
const TCP: [u8; 40] = [
    0, 0, 0, 0, 0x01, 0x02, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0x01, 0x23, 5, 0, 0x08, 0x00,
    0xb8, 6, 0, 0, 10, 1, 2, 3, 10, 4, 5, 6, 0x04, 0xd2, 0x00, 0x50,
];

/// TCP with these bytes in place of its own.
fn with(changes: &[(usize, &[u8])]) -> [u8; 40] {
    let mut bytes = TCP;
    for (at, change) in changes {
        bytes[*at..at + change.len()].copy_from_slice(change);
    }
    bytes
}

fn the_fields_of_a_match_of_1_0_are_at_their_places() {
    let all = [
        (Field::InPort, 0x0102),
        (Field::EthSrc, 0x0203_0405_0607),
        (Field::EthDst, 0x0809_0a0b_0c0d),
        (Field::VlanVid, 0x1123),
        (Field::VlanPcp, 5),
        (Field::EthType, 0x0800),
        (Field::IpDscp, 0x2e),
        (Field::IpProto, 6),
        (Field::Ipv4Src, 0x0a01_0203),
        (Field::Ipv4Dst, 0x0a04_0506),
        (Field::TcpSrc, 1234),
        (Field::TcpDst, 80),
    ];
    let wanted: Vec<Oxm> = all.map(|(field, value)| Oxm::exact(field, value)).to_vec();
    assert_eq!(fields(&TCP).as_ref(), Ok(&wanted));
    // The same bytes come out again.
    let mut wire = Vec::new();
    let m = Message::FlowMod(FlowMod { matching: Match(wanted), ..FlowMod::default() });
    assert_eq!(encode(&m, Version::V10, 9, &mut wire), Ok(()));
    assert_eq!(wire[8..48], TCP);
    // The protocol selects the fields that the last four bytes stand for.
    let last = |eth: u16, proto: u8, ports: &[u8; 4]| {
        let eth = eth.to_be_bytes();
        let list = fields(&with(&[(22, &eth), (25, &[proto]), (36, ports)])).expect("a match");
        list.into_iter().map(|oxm| (oxm.field, oxm.value)).collect::<Vec<_>>()
    };
    for (eth, proto, first, second) in [
        (0x0800, 17, Field::UdpSrc, Field::UdpDst),
        (0x0800, 1, Field::Icmpv4Type, Field::Icmpv4Code),
        (0x86dd, 6, Field::TcpSrc, Field::TcpDst),
        (0x86dd, 17, Field::UdpSrc, Field::UdpDst),
        (0x86dd, 58, Field::Icmpv6Type, Field::Icmpv6Code),
    ] {
        assert!(
            last(eth, proto, &[0, 8, 0, 3]).ends_with(&[(first, 8), (second, 3)]),
            "{eth:x} {proto}"
        );
    }
    let ip = (Field::Ipv4Dst, 0x0a04_0506);
    for proto in [0, 2, 58, 132] {
        assert_eq!(last(0x0800, proto, &[0, 8, 0, 3]).last(), Some(&ip), "{proto}");
    }
    assert_eq!(last(0x86dd, 1, &[0, 8, 0, 3]).last(), Some(&(Field::IpProto, 1)));
    // ARP: an opcode in place of a protocol, and no type of service.
    let arp = last(0x0806, 2, &[0, 8, 0, 3]);
    let wanted = [
        (Field::EthType, 0x0806),
        (Field::ArpOp, 2),
        (Field::ArpSpa, 0x0a01_0203),
        (Field::ArpTpa, 0x0a04_0506),
    ];
    assert_eq!(arp[5..], wanted);
    assert_eq!(last(0x88cc, 6, &[0, 8, 0, 3]).last(), Some(&(Field::EthType, 0x88cc)));
}

fn a_vlan_of_1_0_has_twelve_bits_and_a_value_for_untagged_frames() {
    let tag = |vlan: u16, pcp| {
        let list = fields(&with(&[(18, &vlan.to_be_bytes()), (20, &[pcp])])).expect("a match");
        let is_tag = |oxm: &Oxm| matches!(oxm.field, Field::VlanVid | Field::VlanPcp);
        list.into_iter().filter(is_tag).collect::<Vec<_>>()
    };
    let vid = |value| Oxm::exact(Field::VlanVid, value);
    let pcp = |value| Oxm::exact(Field::VlanPcp, value);
    assert_eq!(tag(0, 0), [vid(0x1000), pcp(0)]);
    assert_eq!(tag(5, 7), [vid(0x1005), pcp(7)]);
    assert_eq!(tag(0xfff, 1), [vid(0x1fff), pcp(1)]);
    // The upper four bits have no meaning, except in the value for untagged frames.
    assert_eq!(tag(0xa005, 2), [vid(0x1005), pcp(2)]);
    assert_eq!(tag(0xfffe, 2), [vid(0x1ffe), pcp(2)]);
    // A frame without a tag has no priority.
    assert_eq!(tag(0xffff, 3), [vid(0)]);
}

fn the_wildcards_of_1_0_leave_out_single_fields() {
    let all = fields(&TCP).expect("a match");
    let left_out = |wildcards: u32| {
        let list = fields(&with(&[(0, &wildcards.to_be_bytes())])).expect("a match");
        assert!(list.iter().all(|oxm| all.contains(oxm)), "{wildcards:x}: {list:?}");
        let gone = all.iter().filter(|oxm| !list.contains(oxm));
        gone.map(|oxm| oxm.field).collect::<Vec<_>>()
    };
    for (bit, field) in [
        (0, Field::InPort),
        (2, Field::EthSrc),
        (3, Field::EthDst),
        (6, Field::TcpSrc),
        (7, Field::TcpDst),
        (20, Field::VlanPcp),
        (21, Field::IpDscp),
    ] {
        assert_eq!(left_out(1 << bit), [field], "bit {bit}");
    }
    // Without a protocol there are no ports, and without an EtherType nothing of the network layer.
    assert_eq!(left_out(1 << 5), [Field::IpProto, Field::TcpSrc, Field::TcpDst]);
    let network = [Field::EthType, Field::IpDscp, Field::IpProto, Field::Ipv4Src, Field::Ipv4Dst];
    assert_eq!(left_out(1 << 4), [&network[..], &[Field::TcpSrc, Field::TcpDst]].concat());
    for open in 32..64 {
        assert_eq!(left_out(open << 8), [Field::Ipv4Src], "{open}");
        assert_eq!(left_out(open << 14), [Field::Ipv4Dst], "{open}");
    }
    assert_eq!(left_out(0xffc0_0000), [], "bits without a meaning");
    // The priority alone says that there is a tag.
    let tagged = fields(&with(&[(0, &2_u32.to_be_bytes())])).expect("a match");
    assert!(tagged.contains(&Oxm::masked(Field::VlanVid, 0x1000, 0x1000)), "{tagged:?}");
    assert!(tagged.contains(&Oxm::exact(Field::VlanPcp, 5)));
    // A shorter prefix: the number is that of the open bits.
    for open in 1..32_u32 {
        let mask = u128::from(u32::MAX << open);
        let list = fields(&with(&[(0, &(open << 8).to_be_bytes())])).expect("a match");
        assert!(list.contains(&Oxm::masked(Field::Ipv4Src, 0x0a01_0203, mask)), "{open}: {list:?}");
        let list = fields(&with(&[(0, &(open << 14).to_be_bytes())])).expect("a match");
        assert!(list.contains(&Oxm::masked(Field::Ipv4Dst, 0x0a04_0506, mask)), "{open}: {list:?}");
    }
}

fn counters_of_ethernet_are_64_bits_wide_in_1_4() {
    let ethernet = [
        0x0102_0304_0506_0708,
        0x1112_1314_1516_1718,
        0x2122_2324_2526_2728,
        0xf1f2_f3f4_f5f6_f7f8,
    ];
    let basic = std::array::from_fn(|n| 0x8000_0000_0000_0000 + n as u64);
    let stats = PortStats {
        number: 0x0a0b_0c0d,
        basic,
        ethernet: Some(ethernet),
        duration_sec: 0x0304_0506,
        duration_nsec: 0x0708_090a,
        properties: Vec::new(),
    };
    // Length, a gap, the port, the duration, eight counters; then the property: type 0, length 40, a gap,
    // four counters.
    let mut wanted = vec![0, 120, 0, 0, 10, 11, 12, 13, 3, 4, 5, 6, 7, 8, 9, 10];
    basic.iter().for_each(|counter| wanted.extend(counter.to_be_bytes()));
    wanted.extend([0, 0, 0, 40, 0, 0, 0, 0]);
    ethernet.iter().for_each(|counter| wanted.extend(counter.to_be_bytes()));
    let message =
        Message::MultipartReply { more: false, body: Reply::PortStats(vec![stats.clone()]) };
    let mut wire = Vec::new();
    assert_eq!(encode(&message, Version::V14, 1, &mut wire), Ok(()));
    assert_eq!(wire[16..], wanted);
    assert_eq!(decode(&wire).map(|(_, message)| message), Ok(message));
    // 1.3 has the same counters without a property, and the duration at the end.
    let message = Message::MultipartReply { more: false, body: Reply::PortStats(vec![stats]) };
    let mut wire = Vec::new();
    assert_eq!(encode(&message, Version::V13, 1, &mut wire), Ok(()));
    let counters = basic.iter().chain(&ethernet).flat_map(|counter| counter.to_be_bytes());
    let mut wanted = vec![10, 11, 12, 13, 0, 0, 0, 0];
    wanted.extend(counters);
    wanted.extend([3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(wire[16..], wanted);
}

/// The experimenter messages 2300 and 2301 of the Open Networking Foundation are bundles in 1.3.
fn an_experimenter_of_1_3_is_a_bundle_only_with_the_number_of_the_foundation() {
    const FOUNDATION: [u8; 4] = [0x4f, 0x4e, 0x46, 0x00];
    let message = |version: u8, kind: u8, id: &[u8; 4], number: u16, more: &[u8]| {
        let mut wire = vec![version, kind, 0, 16 + more.len() as u8, 0, 0, 0, 7];
        wire.extend(id);
        wire.extend(u32::from(number).to_be_bytes());
        wire.extend(more);
        decode(&wire).map(|(_, message)| message)
    };
    let body = [0, 0, 0, 5, 0, 4, 0, 3];
    let Ok(Message::Bundle(m)) = message(4, 4, &FOUNDATION, 2300, &body) else {
        panic!("no bundle")
    };
    assert_eq!((m.id, m.control, m.flags), (5, 4, 3));
    let inner = [4, 20, 0, 8, 0, 0, 0, 9];
    let add = [&[0, 0, 0, 5, 0, 0, 0, 3][..], &inner].concat();
    let Ok(Message::BundleAdd(m)) = message(4, 4, &FOUNDATION, 2301, &add) else {
        panic!("no bundle")
    };
    assert_eq!((m.id, m.flags, &m.message[..]), (5, 3, &inner[..]));
    // Another number, another experimenter, and another version: an experimenter's message.
    for (version, id, number) in [
        (4, &FOUNDATION, 2299),
        (4, &FOUNDATION, 2302),
        (4, b"ONF\x01", 2300),
        (4, b"\0\0\x23\x20", 2301),
        (5, &FOUNDATION, 2300),
        (5, &FOUNDATION, 2301),
    ] {
        let found = message(version, 4, id, number, &body);
        let is_foreign = matches!(&found, Ok(Message::Experimenter { id: found, kind, data })
            if found.to_be_bytes() == *id && *kind == u32::from(number) && data == &body);
        assert!(is_foreign, "{version} {number}: {found:?}");
    }
    // 1.0 has no type in the message: it is part of the data.
    let found = message(1, 4, &FOUNDATION, 2300, &body);
    assert!(
        matches!(&found, Ok(Message::Experimenter { data, .. }) if data.len() == 12),
        "{found:?}"
    );
    // Other messages may have the same bytes.
    for (version, number) in [(4, 2300), (4, 2301), (5, 2300), (1, 2301)] {
        let found = message(version, 2, &FOUNDATION, number, &body);
        assert!(
            matches!(&found, Ok(Message::EchoRequest(data)) if data.len() == 16),
            "{version} {number}: {found:?}"
        );
    }
}
