//! Tests of the actions on frames built by hand: the bytes that they make, and what they keep.

use flowyard_openflow::Oxm;

use super::*;

mod fields;
mod random;
mod routed;

/// An Ethernet frame with these tags, an EtherType and a payload.
fn eth(tags: &[(u16, u16)], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for (tpid, tci) in tags {
        frame.extend(tpid.to_be_bytes());
        frame.extend(tci.to_be_bytes());
    }
    frame.extend(kind.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The one's complement sum of 16-bit words, complemented.
fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u64;
    for part in parts {
        for word in part.chunks(2) {
            let low = word.get(1).copied().unwrap_or(0);
            sum += u64::from(u16::from_be_bytes([word[0], low]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The offset of the checksum in a transport header, and whether there is a pseudo header.
fn checked(proto: u8) -> Option<(usize, bool)> {
    match proto {
        1 => Some((2, false)),
        6 => Some((16, true)),
        17 => Some((6, true)),
        58 => Some((2, true)),
        _ => None,
    }
}

fn with_sum(proto: u8, addresses: &[u8], transport: &[u8]) -> Vec<u8> {
    let mut bytes = transport.to_vec();
    if let Some((at, is_pseudo)) = checked(proto) {
        let len = (bytes.len() as u16).to_be_bytes();
        let pseudo: &[u8] = if is_pseudo { addresses } else { &[] };
        let more: &[u8] = if is_pseudo { &[0, proto, len[0], len[1]] } else { &[] };
        let sum = sum(&[pseudo, more, &bytes]);
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

/// IPv4 from 10.0.0.1 to 10.0.0.2 with TOS 0xb9 and TTL 64.
fn ipv4(proto: u8, transport: &[u8]) -> Vec<u8> {
    let addresses = [10, 0, 0, 1, 10, 0, 0, 2];
    let len = (20 + transport.len() as u16).to_be_bytes();
    let mut head = vec![0x45, 0xb9, len[0], len[1], 0, 1, 0x40, 0, 64, proto, 0, 0];
    head.extend(addresses);
    let check = sum(&[&head]);
    head[10..12].copy_from_slice(&check.to_be_bytes());
    head.extend(with_sum(proto, &addresses, transport));
    head
}

/// IPv6 with traffic class 0xb9, flow label 0x12345 and hop limit 63.
fn ipv6(proto: u8, transport: &[u8]) -> Vec<u8> {
    let mut addresses = vec![0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    addresses.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    let len = (transport.len() as u16).to_be_bytes();
    let mut head = vec![0x6b, 0x91, 0x23, 0x45, len[0], len[1], proto, 63];
    head.extend(&addresses);
    head.extend(with_sum(proto, &addresses, transport));
    head
}

fn tcp() -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 0, 80, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x18, 9, 9, 0, 0, 0, 0];
    bytes.extend(0..21);
    bytes
}

fn udp() -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 0, 53, 0, 28, 0, 0];
    bytes.extend(100..120);
    bytes
}

fn icmp(kind: u8) -> Vec<u8> {
    let mut bytes = vec![kind, 0, 0, 0, 0, 7, 0, 1];
    bytes.extend(0..32);
    bytes
}

/// A neighbour solicitation (135) or advertisement (136) with a link-layer address.
fn discovery(kind: u8) -> Vec<u8> {
    let mut bytes = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    bytes.extend([kind - 134, 1, 2, 4, 6, 8, 10, 12]);
    bytes
}

fn sctp() -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 0, 53, 1, 1, 1, 1, 0, 0, 0, 0, 0, 3, 0, 16];
    bytes.extend([9; 12]);
    let crc = flowyard_wire::checksum::crc32c(&[&bytes]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn arp() -> Vec<u8> {
    let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2];
    bytes.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
    bytes.extend([0; 18]);
    bytes
}

/// Label stack entries: label, traffic class, bottom of stack, TTL; then IPv4 or IPv6.
fn mpls(entries: &[(u32, u32, u32, u32)], inner: &[u8]) -> Vec<u8> {
    let word = |(label, tc, bos, ttl): &(u32, u32, u32, u32)| {
        (label << 12 | tc << 9 | bos << 8 | ttl).to_be_bytes()
    };
    let mut bytes: Vec<u8> = entries.iter().flat_map(word).collect();
    bytes.extend(inner);
    bytes
}

/// The frames of these tests.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let tag = [(0x8100, 0x6005)];
    let two = [(0x88a8, 0x2007), (0x8100, 0x6005)];
    vec![
        ("tcp", eth(&[], 0x800, &ipv4(6, &tcp()))),
        ("udp", eth(&[], 0x800, &ipv4(17, &udp()))),
        ("icmp", eth(&[], 0x800, &ipv4(1, &icmp(8)))),
        ("sctp", eth(&[], 0x800, &ipv4(132, &sctp()))),
        ("other protocol", eth(&[], 0x800, &ipv4(47, &[1; 30]))),
        ("tcp6", eth(&[], 0x86dd, &ipv6(6, &tcp()))),
        ("udp6", eth(&[], 0x86dd, &ipv6(17, &udp()))),
        ("icmp6", eth(&[], 0x86dd, &ipv6(58, &icmp(128)))),
        ("solicitation", eth(&[], 0x86dd, &ipv6(58, &discovery(135)))),
        ("advertisement", eth(&tag, 0x86dd, &ipv6(58, &discovery(136)))),
        ("sctp6", eth(&[], 0x86dd, &ipv6(132, &sctp()))),
        ("tagged tcp", eth(&tag, 0x800, &ipv4(6, &tcp()))),
        ("udp with two tags", eth(&two, 0x800, &ipv4(17, &udp()))),
        ("arp", eth(&[], 0x806, &arp())),
        ("tagged arp", eth(&tag, 0x806, &arp())),
        ("label", eth(&[], 0x8847, &mpls(&[(77, 5, 1, 40)], &ipv4(17, &udp())))),
        ("label over ipv6", eth(&tag, 0x8847, &mpls(&[(77, 5, 1, 40)], &ipv6(17, &udp())))),
        ("labels", eth(&[], 0x8848, &mpls(&[(77, 5, 0, 40), (78, 2, 1, 9)], &ipv4(6, &tcp())))),
        (
            "backbone",
            eth(&[], 0x88e7, &[&[0x60, 1, 2, 3][..], &eth(&tag, 0x800, &ipv4(6, &tcp()))].concat()),
        ),
        ("lldp", eth(&[], 0x88cc, &[7; 46])),
        ("length", eth(&[], 46, &[0x42; 46])),
        ("snap", eth(&[], 76, &[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], &ipv4(17, &udp())].concat())),
    ]
}

/// A frame that came from port 7, with metadata and through a tunnel.
fn packet(frame: &[u8]) -> Packet<'_> {
    from_tunnel(9, frame)
}

fn from_tunnel(tunnel: u128, frame: &[u8]) -> Packet<'_> {
    let mut key = Key::ZERO;
    for (field, value) in [(Field::InPort, 7), (Field::Metadata, 0x55), (Field::TunnelId, tunnel)] {
        key.set(field, value);
    }
    Packet::new(frame, key, Vec::new())
}

/// The fields of a packet, and those of its bytes if they were received.
#[allow(clippy::type_complexity, reason = "two lists of the same kind")]
fn fields_and_fresh(packet: &Packet<'_>) -> [(Vec<(Field, u128)>, Key, Layout); 2] {
    let fresh = from_tunnel(packet.key.bits(Field::TunnelId), packet.bytes());
    [packet, &fresh].map(|one| (one.key.fields().collect(), one.key, one.layout))
}

/// The frame after these actions.
fn after(frame: &[u8], actions: &[Action]) -> Vec<u8> {
    let mut packet = packet(frame);
    for action in actions {
        assert_eq!(packet.change(action), Ok(()), "{action:?}");
        check(&packet, frame, action);
    }
    packet.bytes().to_vec()
}

/// What holds after every action: key and layout are those of the bytes, the fields of the pipeline are
/// kept, and every checksum that was correct is correct.
fn check(packet: &Packet<'_>, frame: &[u8], action: &Action) {
    let name = format!("{action:?} on {frame:02x?}");
    let [found, fresh] = fields_and_fresh(packet);
    assert_eq!(found, fresh, "{name}");
    assert_sums(packet.bytes(), &packet.layout, &name);
}

fn assert_sums(bytes: &[u8], layout: &Layout, name: &str) {
    let Layout { net, l3, l4, end, proto, .. } = *layout;
    let addresses = match net {
        Net::Ipv4 => {
            assert_eq!(sum(&[&bytes[l3..l3 + 20]]), 0, "IPv4 header: {name}");
            &bytes[l3 + 12..l3 + 20]
        }
        Net::Ipv6 => &bytes[l3 + 8..l3 + 40],
        _ => return,
    };
    if l4 == 0 {
        return;
    }
    let segment = &bytes[l4..end];
    if let Some((_, is_pseudo)) = checked(proto) {
        let len = (segment.len() as u16).to_be_bytes();
        let pseudo: &[u8] = if is_pseudo { addresses } else { &[] };
        let more: &[u8] = if is_pseudo { &[0, proto, len[0], len[1]] } else { &[] };
        assert_eq!(sum(&[pseudo, more, segment]), 0, "transport: {name}");
    } else if proto == 132 {
        let mut zeroed = segment.to_vec();
        zeroed[8..12].fill(0);
        let crc = flowyard_wire::checksum::crc32c(&[&zeroed]).to_le_bytes();
        assert_eq!(segment[8..12], crc, "SCTP: {name}");
    }
}

#[test]
fn the_frames_of_these_tests_have_correct_checksums() {
    for (name, frame) in frames() {
        let packet = packet(&frame);
        assert_sums(&frame, &packet.layout, name);
        assert!(packet.is_same() && packet.bytes() == frame);
    }
}

#[test]
fn a_pushed_tag_is_outermost_and_copies_the_tag_below() {
    for (name, frame) in frames() {
        let tci: [u8; 2] = match name {
            "tagged tcp" | "tagged arp" | "advertisement" | "label over ipv6" => [0x60, 5],
            "udp with two tags" => [0x20, 7],
            _ => [0, 0],
        };
        for tpid in [0x8100_u16, 0x88a8] {
            let pushed = after(&frame, &[Action::PushVlan(tpid)]);
            let wanted = [&frame[..12], &tpid.to_be_bytes(), &tci, &frame[12..]].concat();
            assert_eq!(pushed, wanted, "{name}");
            assert_eq!(after(&pushed, &[Action::PopVlan]), frame, "{name}");
            assert_eq!(after(&pushed, &[Action::StripVlan]), frame, "{name}");
        }
        if tci == [0, 0] {
            assert_eq!(after(&frame, &[Action::PopVlan]), frame, "{name}: there is no tag");
        }
    }
    // A frame without an EtherType gets no tag.
    assert_eq!(after(&[2; 13], &[Action::PushVlan(0x8100)]), [2; 13]);
}

#[test]
fn a_frame_that_becomes_short_is_padded_unless_it_was_shorter() {
    let tag = [(0x8100, 5)];
    for (payload, left) in [(50, 64), (46, 60), (43, 60), (42, 60), (41, 55), (20, 34), (0, 14)] {
        let frame = eth(&tag, 0x88cc, &vec![7; payload]);
        let popped = after(&frame, &[Action::PopVlan]);
        assert_eq!(popped.len(), left, "{payload} bytes");
        let mut wanted = eth(&[], 0x88cc, &vec![7; payload]);
        wanted.resize(left, 0);
        assert_eq!(popped, wanted);
    }
}

#[test]
fn a_pushed_label_has_the_ttl_of_the_header_below_and_only_the_first_is_the_bottom() {
    let cases: [(&str, [u8; 4]); 8] = [
        ("tcp", [0, 0, 1, 64]),
        ("tcp6", [0, 0, 1, 63]),
        ("tagged tcp", [0, 0, 1, 64]),
        ("udp with two tags", [0, 0, 1, 64]),
        ("arp", [0, 0, 1, 0]),
        ("lldp", [0, 0, 1, 0]),
        // Label 77, traffic class 5, TTL 40 are copied.
        ("label", [0, 4, 0xda, 40]),
        ("labels", [0, 4, 0xda, 40]),
    ];
    let all = frames();
    for (name, label) in cases {
        let (_, frame) = all.iter().find(|(other, _)| *other == name).expect(name);
        let at = packet(frame).layout.l3;
        for kind in [0x8847_u16, 0x8848] {
            let wanted = [&frame[..at - 2], &kind.to_be_bytes(), &label, &frame[at..]].concat();
            let pushed = after(frame, &[Action::PushMpls(kind)]);
            assert_eq!(pushed, wanted, "{name}");
            let was = u16::from_be_bytes([frame[at - 2], frame[at - 1]]);
            assert_eq!(after(&pushed, &[Action::PopMpls(was)]), *frame, "{name}");
        }
    }
    let (_, plain) = &all[0];
    assert_eq!(after(plain, &[Action::PopMpls(0x800)]), *plain, "there is no label");
}

#[test]
fn a_backbone_header_has_the_addresses_and_the_priority_of_the_frame() {
    for (name, frame) in frames() {
        let tag: [u8; 4] = match name {
            "tagged tcp" | "tagged arp" | "advertisement" | "label over ipv6" => [0x60, 0, 0, 0],
            "udp with two tags" => [0x20, 0, 0, 0],
            "backbone" => [0, 1, 2, 3],
            _ => [0; 4],
        };
        let pushed = after(&frame, &[Action::PushPbb(0x88e7)]);
        assert_eq!(pushed, [&frame[..12], &[0x88, 0xe7], &tag, &frame].concat(), "{name}");
        assert_eq!(after(&pushed, &[Action::PopPbb]), frame, "{name}");
        // Tags of the backbone are removed with its header.
        let tagged = after(&pushed, &[Action::PushVlan(0x88a8)]);
        assert_eq!(after(&tagged, &[Action::PopPbb]), frame, "{name}");
        if name != "backbone" {
            assert_eq!(after(&frame, &[Action::PopPbb]), frame, "{name}");
        }
    }
    // Behind the backbone's header there must be an Ethernet header.
    let cut = eth(&[], 0x88e7, &[0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 8]);
    assert_eq!(after(&cut, &[Action::PopPbb]), cut);
}

#[test]
fn a_frame_cannot_become_longer_than_65535_bytes() {
    for (len, fits) in [(LONGEST - 4, true), (LONGEST - 3, false)] {
        let frame = eth(&[], 0x88cc, &vec![7; len - 14]);
        for action in [Action::PushVlan(0x8100), Action::PushMpls(0x8847)] {
            let mut packet = packet(&frame);
            let wanted = if fits { Ok(()) } else { Err(Fault::TooLong) };
            assert_eq!(packet.change(&action), wanted, "{len}");
        }
    }
}

#[test]
fn a_branch_changes_neither_the_packet_nor_the_frame() {
    let (_, frame) = frames().swap_remove(0);
    let before = frame.clone();
    let mut packet = packet(&frame);
    assert_eq!(packet.change(&Action::SetNwTtl(9)), Ok(()));
    let changed = packet.bytes().to_vec();
    assert_ne!(changed, before);
    let mut branch = packet.branch(Vec::new());
    assert!(branch.is_same() && branch.bytes() == changed);
    assert_eq!(branch.change(&Action::PushVlan(0x8100)), Ok(()));
    assert_eq!(branch.bytes().len(), frame.len() + 4);
    assert_eq!((packet.bytes(), &frame), (&changed[..], &before));
    assert!(!packet.is_same());
}
