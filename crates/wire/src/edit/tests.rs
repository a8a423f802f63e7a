//! Edits beside checksums that are computed anew.

use std::net::{Ipv4Addr, Ipv6Addr};

use flowyard_testkit::Rng;
use flowyard_testkit::stacks::Stack;
use proptest::prelude::*;

use super::*;
use crate::checksum::{checksum, crc32c, transport_checksum};
use crate::{LinkType, Verdict};

const ETH: usize = 14;

/// Fills in the checksums of a frame whose headers have no options, extensions or tags.
fn sum(bytes: &mut [u8], v6: bool, proto: u8) {
    let l4 = if v6 { ETH + 40 } else { ETH + 20 };
    if !v6 {
        bytes[ETH + 10..ETH + 12].fill(0);
        let header = checksum(&bytes[ETH..l4]).to_be_bytes();
        bytes[ETH + 10..ETH + 12].copy_from_slice(&header);
    }
    let (at, len) = match proto {
        proto::TCP => (16, 2),
        proto::UDP | 33 | 136 => (6, 2),
        proto::SCTP => (8, 4),
        _ => (2, 2),
    };
    bytes[l4 + at..l4 + at + len].fill(0);
    let segment = &bytes[l4..];
    let address = |at: usize, len: usize| -> IpAddr {
        let bytes = &bytes[ETH + at..ETH + at + len];
        match <[u8; 4]>::try_from(bytes) {
            Ok(v4) => Ipv4Addr::from(v4).into(),
            Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap()).into(),
        }
    };
    let (src, dst) =
        if v6 { (address(8, 16), address(24, 16)) } else { (address(12, 4), address(16, 4)) };
    let sum = match proto {
        proto::SCTP => crc32c(&[segment]).to_le_bytes().to_vec(),
        proto::ICMP => checksum(segment).to_be_bytes().to_vec(),
        _ => match transport_checksum(src, dst, proto, segment) {
            0 if [proto::UDP, 33, 136].contains(&proto) => vec![0xff, 0xff],
            sum => sum.to_be_bytes().to_vec(),
        },
    };
    bytes[l4 + at..l4 + at + len].copy_from_slice(&sum);
}

/// A frame with right checksums.
fn frame(v6: bool, proto: u8, random: &[u8]) -> Vec<u8> {
    let head = match proto {
        proto::TCP => 20,
        proto::SCTP => 12,
        _ => 8,
    };
    let len = head + random.len() - 48;
    let mut bytes = vec![0x22; 12];
    if v6 {
        bytes.extend([0x86, 0xdd, 0x60, 1, 2, 3, 0, len as u8, proto, 64]);
        bytes.extend(&random[..32]);
    } else {
        bytes.extend([8, 0, 0x45, 0, 0, 20 + len as u8, 0, 1, 0, 0, 64, proto, 0, 0]);
        bytes.extend(&random[..8]);
    }
    let l4 = bytes.len();
    bytes.extend(&random[32..32 + head.min(16)]);
    bytes.resize(l4 + head, 7);
    bytes.extend(&random[48..]);
    match proto {
        proto::TCP => bytes[l4 + 12] = 0x50,
        proto::UDP => bytes[l4 + 4..l4 + 6].copy_from_slice(&(len as u16).to_be_bytes()),
        // Not a type that the parser follows further.
        proto::ICMP | proto::ICMPV6 => bytes[l4] = 200,
        _ => {}
    }
    sum(&mut bytes, v6, proto);
    bytes
}

#[derive(Clone, Debug)]
enum Step {
    Ttl(u8),
    Tos(u8, u8),
    Address(Side, [u8; 16]),
    Port(Side, u16),
    /// Behind the transport header: offset and bytes.
    Data(usize, Vec<u8>),
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Src), Just(Side::Dst)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<u8>().prop_map(Step::Ttl),
        any::<(u8, u8)>().prop_map(|(mask, tos)| Step::Tos(mask, tos)),
        (side(), any::<[u8; 16]>()).prop_map(|(side, to)| Step::Address(side, to)),
        (side(), any::<u16>()).prop_map(|(side, to)| Step::Port(side, to)),
        (0..40_usize, prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(at, new)| Step::Data(at, new)),
    ]
}

/// Applies a step; the plain writes that it stands for are in `writes`.
fn apply(step: &Step, packet: &Packet, bytes: &mut [u8], writes: &mut Vec<(usize, Vec<u8>)>) {
    let v6 = packet.net == Net::Ipv6;
    match step {
        Step::Ttl(ttl) => {
            packet.set_ttl(bytes, *ttl);
            writes.push((ETH + if v6 { 7 } else { 8 }, vec![*ttl]));
        }
        Step::Tos(mask, tos) => {
            let headers = Headers::parse(LinkType::Ethernet, bytes);
            let tos = headers.tos(bytes).unwrap() & !mask | tos & mask;
            packet.set_tos(bytes, *mask, tos);
            let write = if v6 { vec![0x60 | tos >> 4, tos << 4 | 1] } else { vec![0x45, tos] };
            writes.push((ETH, write));
        }
        Step::Address(side, to) => {
            let (src, dst, len) = if v6 { (8, 24, 16) } else { (12, 16, 4) };
            let [a, b, c, d, ..] = *to;
            let address =
                if v6 { IpAddr::from(*to) } else { IpAddr::from(Ipv4Addr::new(a, b, c, d)) };
            assert!(packet.set_address(bytes, *side, address));
            let at = ETH + if *side == Side::Src { src } else { dst };
            writes.push((at, to[..len].to_vec()));
        }
        Step::Port(side, to) => {
            assert_eq!(packet.set_port(bytes, *side, *to), Ok(()));
            if matches!(packet.proto, proto::TCP | proto::UDP | proto::SCTP) {
                let at = packet.l4 + if *side == Side::Src { 0 } else { 2 };
                writes.push((at, to.to_be_bytes().to_vec()));
            }
        }
        Step::Data(at, new) => {
            let at = packet.l4 + 20 + at;
            assert_eq!(packet.change(bytes, at, new), Ok(()));
            if at + new.len() <= packet.end {
                writes.push((at, new.clone()));
            }
        }
    }
}

fn kinds() -> impl Strategy<Value = (bool, u8)> {
    prop::sample::select(vec![
        (false, proto::TCP),
        (false, proto::UDP),
        (false, proto::SCTP),
        (false, proto::ICMP),
        (false, 33),
        (true, 136),
        (true, proto::TCP),
        (true, proto::UDP),
        (true, proto::SCTP),
        (true, proto::ICMPV6),
    ])
}

proptest! {
    #[test]
    fn checksums_are_as_if_computed_anew(
        (v6, proto) in kinds(),
        random in prop::collection::vec(any::<u8>(), 48..120),
        steps in prop::collection::vec(step(), 0..6),
    ) {
        let mut bytes = frame(v6, proto, &random);
        let mut anew = bytes.clone();
        let packet = Packet::of(&Headers::parse(LinkType::Ethernet, &bytes), &bytes);
        prop_assert_eq!((packet.proto, packet.covers, packet.is_whole), (proto, [true; 2], true));
        for step in &steps {
            let mut writes = Vec::new();
            apply(step, &packet, &mut bytes, &mut writes);
            writes.iter().for_each(|(at, new)| put(&mut anew, *at, new));
            sum(&mut anew, v6, proto);
            prop_assert_eq!(&bytes, &anew, "{:?}", step);
        }
    }

    /// A checksum that was wrong is wrong by as much afterwards: setting everything back makes the old bytes.
    #[test]
    fn a_wrong_checksum_stays_wrong(
        (v6, proto) in kinds(),
        random in prop::collection::vec(any::<u8>(), 48..120),
        damage in 1_u8..255,
        step in step(),
    ) {
        let mut bytes = frame(v6, proto, &random);
        let last = bytes.len() - 1;
        bytes[last] ^= damage;
        let headers = Headers::parse(LinkType::Ethernet, &bytes);
        let packet = Packet::of(&headers, &bytes);
        apply(&step, &packet, &mut bytes, &mut Vec::new());
        if !matches!(step, Step::Data(..)) {
            let headers = Headers::parse(LinkType::Ethernet, &bytes);
            // DCCP and UDP-Lite are not verified.
            let want = if [33, 136].contains(&proto) { Verdict::NotChecked } else { Verdict::Bad };
            prop_assert_eq!(headers.transport_checksum(&bytes), want);
        }
    }

    #[test]
    fn any_bytes_can_be_edited(
        random in prop::collection::vec(any::<u8>(), 0..100),
        numbers in any::<[u8; 4]>(),
        step in step(),
    ) {
        let [net, l3, l4, end] = numbers;
        let packet = Packet {
            net: [Net::Other, Net::Arp, Net::Ipv4, Net::Ipv6][usize::from(net % 4)],
            l3: l3.into(),
            l4: l4.into(),
            end: end.into(),
            proto: [proto::TCP, proto::UDP, proto::SCTP, proto::ICMP][usize::from(net / 4 % 4)],
            is_whole: net & 0x80 != 0,
            covers: [net & 0x40 != 0; 2],
            is_partial: false,
        };
        let mut bytes = random;
        match step {
            Step::Ttl(ttl) => packet.set_ttl(&mut bytes, ttl),
            Step::Tos(mask, tos) => packet.set_tos(&mut bytes, mask, tos),
            Step::Address(side, to) => {
                packet.set_address(&mut bytes, side, to.into());
                packet.set_address(&mut bytes, side, [to[0], to[1], to[2], to[3]].into());
            }
            Step::Port(side, to) => _ = packet.set_port(&mut bytes, side, to),
            Step::Data(at, new) => _ = packet.change(&mut bytes, packet.l4 + at, &new),
        }
        _ = tags::ether_type(&bytes);
        tags::set_outermost(&mut bytes, 0xfff, 7);
    }
}

#[test]
fn an_absent_udp_checksum_stays_absent() {
    let mut bytes = frame(false, proto::UDP, &[9; 60]);
    let check = ETH + 26;
    bytes[check..check + 2].fill(0);
    let packet = Packet::of(&Headers::parse(LinkType::Ethernet, &bytes), &bytes);
    assert!(packet.set_address(&mut bytes, Side::Src, [1, 2, 3, 4].into()));
    assert_eq!(packet.set_port(&mut bytes, Side::Dst, 53), Ok(()));
    assert_eq!(bytes[check..check + 2], [0, 0]);
    assert!(!packet.set_address(&mut bytes, Side::Src, [0; 16].into()), "other family");
}

#[test]
fn a_cut_sctp_packet_cannot_be_changed() {
    let whole = frame(false, proto::SCTP, &[9; 60]);
    let mut bytes = whole[..whole.len() - 1].to_vec();
    let before = bytes.clone();
    let packet = Packet::of(&Headers::parse(LinkType::Ethernet, &bytes), &bytes);
    assert_eq!(packet.set_port(&mut bytes, Side::Src, 1), Err(Incomplete));
    assert_eq!(bytes, before);
}

/// The transport checksum covers the address at the end of the route, not the one of the IP header.
#[test]
fn an_address_that_is_not_covered_leaves_the_transport_checksum() {
    let mut bytes = vec![0x60, 0, 0, 0, 0, 32, 43, 64];
    bytes.extend([[0xaa; 16], [0xbb; 16]].concat());
    bytes.extend([&[17, 2, 2, 1, 0, 0, 0, 0][..], &[0xcc; 16], &[0, 1, 0, 2, 0, 8, 7, 8]].concat());
    let headers = Headers::parse(LinkType::RawIp, &bytes);
    let packet = Packet::of(&headers, &bytes);
    assert_eq!((packet.proto, packet.covers), (proto::UDP, [true, false]));
    let check = packet.l4 + 6;
    assert!(packet.set_address(&mut bytes, Side::Dst, [1; 16].into()));
    assert_eq!(bytes[check..check + 2], [7, 8]);
    assert!(packet.set_address(&mut bytes, Side::Src, [2; 16].into()));
    assert_ne!(bytes[check..check + 2], [7, 8]);
}

#[test]
fn tags_are_skipped_and_changed() {
    let mut bytes = vec![0; 12];
    bytes.extend([0x88, 0xa8, 0x60, 5, 0x81, 0, 0, 9, 8, 0, 0x45]);
    assert_eq!(tags::ether_type(&bytes), Some((0x800, 22)));
    assert_eq!(tags::outermost(&bytes), Some(0x6005));
    assert_eq!(tags::set_outermost(&mut bytes, 0xfff, 0xf007), Some(0x6007));
    assert_eq!(bytes[12..16], tags::tag(0x88a8, 0x6007));
    assert_eq!(tags::ether_type(&bytes[..21]), None);
    assert_eq!(tags::outermost(&bytes[..17]), None, "nothing behind the tag");
    assert_eq!(tags::outermost(&bytes[4..]), Some(9));
    assert_eq!(tags::outermost(&bytes[8..]), None);
    assert_eq!(tags::outermost(&bytes[..18]), Some(0x6007), "an EtherType, and nothing behind it");
    let before = bytes.clone();
    assert_eq!(tags::set_outermost(&mut bytes[..17], 0xfff, 1), None);
    assert_eq!(tags::set_outermost(&mut bytes[8..], 0xfff, 1), None);
    assert_eq!(bytes, before);
}

/// Every place of a frame, with every small number of bytes: what lies in the transport is written, and its
/// checksum follows; anything else is left as it is.
#[test]
fn a_change_is_made_inside_the_transport_only() {
    let new: Vec<u8> = (0..5).map(|n| 0x3b_u8.wrapping_mul(n + 3)).collect();
    for (v6, proto) in [
        (false, proto::TCP),
        (true, proto::TCP),
        (false, proto::UDP),
        (true, proto::UDP),
        (false, proto::SCTP),
        (true, proto::SCTP),
        (false, proto::ICMP),
        (true, proto::ICMPV6),
        (false, 136),
    ] {
        for data in [7, 8] {
            let mut old = frame(v6, proto, &[9; 48 + 8][..48 + data]);
            let end = old.len();
            let packet = Packet::of(&Headers::parse(LinkType::Ethernet, &old), &old);
            assert_eq!(packet.end, end);
            old.extend([0xee; 4]); // padding of the frame
            let check = match proto {
                proto::TCP => 16..18,
                proto::SCTP => 8..12,
                proto::ICMP | proto::ICMPV6 => 2..4,
                _ => 6..8,
            };
            for at in 0..old.len() {
                for len in 0..=new.len() {
                    let changed = at.max(packet.l4)..at + len;
                    if changed.start < packet.l4 + check.end
                        && packet.l4 + check.start < changed.end
                    {
                        continue; // the checksum itself
                    }
                    let (mut bytes, mut want) = (old.clone(), old.clone());
                    assert_eq!(packet.change(&mut bytes, at, &new[..len]), Ok(()));
                    if at >= packet.l4 && at + len <= end {
                        want[at..at + len].copy_from_slice(&new[..len]);
                        sum(&mut want[..end], v6, proto);
                    }
                    assert_eq!(bytes, want, "protocol {proto}, {len} bytes at {at}");
                }
            }
        }
    }
}

/// A packet without a transport header, as a later fragment, is left as it is behind its IP header; of a cut
/// header, only the fields that are here are changed.
#[test]
fn what_is_not_here_is_not_changed() {
    for (v6, proto) in
        [(false, proto::TCP), (true, proto::UDP), (false, proto::SCTP), (true, proto::ICMPV6)]
    {
        let whole = frame(v6, proto, &[9; 60]);
        let packet = Packet::of(&Headers::parse(LinkType::Ethernet, &whole), &whole);
        let l4 = packet.l4;
        let later = Packet { l4: 0, is_whole: false, ..packet };
        let mut bytes = whole.clone();
        assert_eq!(later.set_port(&mut bytes, Side::Src, 1), Ok(()));
        assert_eq!(later.change(&mut bytes, l4 + 20, &[1, 2]), Ok(()));
        later.sum_changed(&mut bytes, Sum::ZERO, Sum::ZERO.word(1));
        assert_eq!(bytes, whole);
        let address = if v6 { IpAddr::from([1; 16]) } else { IpAddr::from([1; 4]) };
        assert!(later.set_address(&mut bytes, Side::Src, address));
        assert_eq!(bytes[l4..], whole[l4..], "the checksum is in another fragment");
        assert_ne!(bytes[..l4], whole[..l4]);
        if matches!(proto, proto::TCP | proto::UDP) {
            // The ports are here, the checksum is not.
            for end in 0..6 {
                let cut = Packet { end: l4 + end, is_whole: false, ..packet };
                let mut bytes = whole.clone();
                assert_eq!(cut.set_port(&mut bytes, Side::Src, 0x1234), Ok(()));
                assert_eq!(cut.set_port(&mut bytes, Side::Dst, 0x5678), Ok(()));
                let mut want = whole.clone();
                let ports = [0x12, 0x34, 0x56, 0x78];
                let here = end / 2 * 2;
                want[l4..l4 + here.min(4)].copy_from_slice(&ports[..here.min(4)]);
                assert_eq!(bytes, want, "{end} bytes");
            }
        }
    }
}

/// The CRC of SCTP follows if the bytes that it covers are all here, and the header is; otherwise nothing is
/// changed.
#[test]
fn an_sctp_checksum_follows_only_in_a_whole_packet() {
    let whole = frame(false, proto::SCTP, &[9; 60]);
    let good = Packet::of(&Headers::parse(LinkType::Ethernet, &whole), &whole);
    let end = good.end;
    for (packet, result) in [
        (good, Ok(())),
        (Packet { is_whole: false, ..good }, Err(Incomplete)),
        (Packet { end: good.l4 + 11, ..good }, Err(Incomplete)),
        (Packet { end: end + 1, ..good }, Err(Incomplete)),
    ] {
        let mut bytes = whole.clone();
        assert_eq!(packet.set_port(&mut bytes, Side::Dst, 0x1234), result, "{packet:?}");
        assert_eq!(bytes == whole, result.is_err());
    }
    // A header without chunks is the least packet.
    let mut least = whole[..good.l4 + 12].to_vec();
    sum(&mut least, false, proto::SCTP);
    let packet = Packet { end: good.l4 + 12, ..good };
    assert_eq!(packet.set_port(&mut least, Side::Src, 0x1234), Ok(()));
    let mut anew = least.clone();
    sum(&mut anew, false, proto::SCTP);
    assert_eq!(least, anew);
}

#[test]
fn fields_of_the_link_and_ip_headers() {
    for v6 in [false, true] {
        let old = frame(v6, proto::UDP, &[9; 60]);
        let net = if v6 { Net::Ipv6 } else { Net::Ipv4 };
        let at = ETH + if v6 { 7 } else { 8 };
        assert_eq!(ttl(&old, net, ETH), Some(64));
        assert_eq!(ttl(&old[..at], net, ETH), None);
        for other in [Net::Arp, Net::Other] {
            let mut bytes = old.clone();
            set_ttl(&mut bytes, other, ETH, 3);
            Packet { net: other, l3: ETH, ..Packet::default() }.set_tos(&mut bytes, 0xff, 3);
            assert_eq!((bytes, ttl(&old, other, ETH)), (old.clone(), None));
        }
        let mut cut = old[..at].to_vec();
        set_ttl(&mut cut, net, ETH, 3);
        assert_eq!(cut, old[..at]);
        let mut bytes = old.clone();
        set_eth_dst(&mut bytes, 0, [1; 6]);
        set_eth_src(&mut bytes, 0, [3; 6]);
        assert_eq!(bytes, [&[1; 6][..], &[3; 6], &old[12..]].concat());
        set_eth_dst(&mut bytes[8..], 1, [4; 6]);
        set_eth_src(&mut bytes[8..], 1, [5; 6]);
        assert_eq!(bytes[8..22], [3, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, old[21]]);
    }
}

proptest! {
    /// A frame with a partial checksum is changed and then completed, or the other way round: the same comes of it.
    #[test]
    fn a_partial_checksum_follows_addresses(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..4),
    ) {
        let stack = Stack { tunnels: Vec::new(), ..Stack::random(&mut Rng::new(seed), 300) };
        let (mut frame, mut whole) = (stack.partial(), stack.frame());
        let offset = if stack.tcp { 16 } else { 6 };
        let offload = Offload {
            flags: Offload::PARTIAL,
            checksum_start: stack.l4() as u16,
            checksum_offset: offset,
            ..Offload::NONE
        };
        let headers = Headers::parse(LinkType::Ethernet, &frame);
        let packet = Packet::of(&headers, &frame);
        let partial = packet.with_offload(offload, 0);
        prop_assert!(partial.is_partial && !packet.with_offload(offload, 1).is_partial);
        prop_assert!(!packet.with_offload(Offload::NONE, 0).is_partial);
        for step in &steps {
            apply(step, &packet, &mut whole, &mut Vec::new());
            apply(step, &partial, &mut frame, &mut Vec::new());
        }
        prop_assert!(crate::offload::complete(&mut frame, offload));
        let field = stack.l4() + usize::from(offset);
        for bytes in [&mut frame, &mut whole] {
            if bytes[field..field + 2] == [0, 0] {
                bytes[field..field + 2].fill(0xff); // the same sum
            }
        }
        prop_assert_eq!(frame, whole);
    }
}
