//! Verdicts of packets made by hand and from descriptions.

use super::*;
use flowyard_testkit::Rng;
use flowyard_testkit::stacks::{Stack, Tunnel};
use proptest::prelude::*;

/// An IPv6 packet with `extensions` and a UDP datagram, whose checksum is over `src` and `dst`.
fn packet(next: u8, extensions: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
    let mut udp = vec![0, 1, 0, 2, 0, 11, 0, 0, 7, 8, 9];
    let sum = transport_checksum(src.into(), dst.into(), proto::UDP, &udp);
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    let mut bytes = vec![0x60, 0, 0, 0, 0, (extensions.len() + 11) as u8, next, 64];
    bytes.extend([[0xaa; 16], [0xbb; 16]].concat());
    bytes.extend(extensions);
    bytes.extend(udp);
    bytes
}

fn verdict(bytes: &[u8]) -> Verdict {
    Headers::parse(LinkType::RawIp, bytes).transport_checksum(bytes)
}

#[test]
fn the_pseudo_header_has_the_ends_of_the_route() {
    let (src, dst, far) = ([0xaa; 16].into(), [0xbb; 16].into(), [0xcc; 16].into());
    let hop = |kind: u8, left: u8| [&[17, 2, kind, left, 0, 0, 0, 0][..], &[0xcc; 16]].concat();
    assert_eq!(verdict(&packet(17, &[], src, dst)), Verdict::Good);
    for kind in [0, 2, 4] {
        assert_eq!(verdict(&packet(43, &hop(kind, 1), src, far)), Verdict::Good, "type {kind}");
        assert_eq!(verdict(&packet(43, &hop(kind, 1), src, dst)), Verdict::Bad, "type {kind}");
        assert_eq!(
            verdict(&packet(43, &hop(kind, 0), src, dst)),
            Verdict::Good,
            "no remaining hops"
        );
    }
    assert_eq!(verdict(&packet(43, &hop(3, 1), src, dst)), Verdict::NotChecked);
    let home = [&[17, 2, 1, 2, 0, 0, 0xc9, 16][..], &[0xcc; 16]].concat();
    assert_eq!(verdict(&packet(60, &home, far, dst)), Verdict::Good);
    assert_eq!(verdict(&packet(60, &home, src, dst)), Verdict::Bad);
}

#[test]
fn an_absent_checksum_is_wrong_only_in_ipv6() {
    let (src, dst) = (Ipv6Addr::from([0xaa; 16]), Ipv6Addr::from([0xbb; 16]));
    let mut v6 = packet(17, &[], src, dst);
    v6[46..48].fill(0);
    assert_eq!(verdict(&v6), Verdict::Bad);
    let v4 = [&[0x45, 0, 0, 31, 0, 0, 0, 0, 64, 17, 0, 0][..], &[1; 8], &v6[40..]].concat();
    assert_eq!(verdict(&v4), Verdict::NotChecked);
}

#[test]
fn a_cut_packet_is_unknown() {
    let (src, dst) = (Ipv6Addr::from([0xaa; 16]), Ipv6Addr::from([0xbb; 16]));
    let whole = packet(17, &[], src, dst);
    assert_eq!(verdict(&whole[..whole.len() - 1]), Verdict::NotChecked);
    let mut more = whole.clone();
    more.push(0xee); // padding is not summed
    assert_eq!(verdict(&more), Verdict::Good);
}

/// The pseudo header has the end of the route, whatever extension headers stand in front of it.
#[test]
fn a_route_is_found_behind_other_extensions() {
    let (src, dst, far) = ([0xaa; 16].into(), [0xbb; 16].into(), [0xcc; 16].into());
    let plain = |next: u8| [&[next, 1][..], &[0; 14]].concat();
    let fronts = |next: u8| {
        [
            (0, [&[next, 1, 1, 12][..], &[0; 12]].concat()), // hop-by-hop
            (60, [&[next, 1, 1, 12][..], &[0; 12]].concat()), // destination
            (44, vec![next, 0xff, 0, 0, 0, 0, 0, 9]),        // atomic fragment
            (51, [&[next, 2, 0, 0][..], &[0; 12]].concat()), // authentication
            (135, plain(next)),
            (139, plain(next)),
            (140, plain(next)),
        ]
    };
    // Type, words, and the place of the last address: at the end, or for types 2 and 4 in front.
    for (kind, words, place) in [(0, 2, 0), (0, 4, 16), (0, 6, 32), (2, 2, 0), (4, 4, 0)] {
        let mut route = vec![17, words, kind, 1];
        route.resize(8 + 8 * usize::from(words), 0xdd);
        route[8 + place..24 + place].fill(0xcc);
        for (first, front) in fronts(43) {
            let packet = packet(first, &[front, route.clone()].concat(), src, far);
            let headers = Headers::parse(LinkType::RawIp, &packet);
            let name = format!("type {kind} of {words} words behind {first}");
            assert_eq!(headers.checksum_dst(&packet), Some(far.into()), "{name}");
            assert!(!headers.covers_dst(&packet), "{name}");
            assert_eq!(headers.transport_checksum(&packet), Verdict::Good, "{name}");
        }
    }
    for (first, front) in fronts(17) {
        assert_eq!(verdict(&packet(first, &front, src, dst)), Verdict::Good, "only {first}");
    }
    // A route that is too short for an address, or ends in front of its last.
    for (kind, words) in [(0, 1), (2, 1), (4, 1), (0, 0)] {
        let mut route = vec![17, words, kind, 1];
        route.resize(8 + 8 * usize::from(words), 0xcc);
        assert_eq!(verdict(&packet(43, &route, src, dst)), Verdict::NotChecked, "{kind}");
    }
}

/// The least segment of each protocol has a checksum; a shorter one has none.
#[test]
fn a_segment_shorter_than_its_header_is_unknown() {
    for (proto, least, v4, v6) in [
        (6, 20, true, true),
        (17, 8, true, true),
        (132, 12, true, true),
        (1, 4, true, false),
        (58, 4, false, true),
    ] {
        for len in 0..=least {
            let mut segment = vec![0x50; len];
            if proto == 17 && len >= 6 {
                segment[4..6].copy_from_slice(&[0, 8]);
            }
            let mut ipv4 = vec![0x45, 0, 0, 20 + len as u8, 0, 0, 0, 0, 64, proto, 0, 0];
            ipv4.extend([1; 8]);
            let mut ipv6 = vec![0x60, 0, 0, 0, 0, len as u8, proto, 64];
            ipv6.extend([1; 32]);
            for (has, mut bytes) in [(v4, ipv4), (v6, ipv6)] {
                bytes.extend(&segment);
                let want = if has && len == least { Verdict::Bad } else { Verdict::NotChecked };
                assert_eq!(verdict(&bytes), want, "protocol {proto}, {len} bytes, {bytes:x?}");
            }
        }
    }
}

/// ICMP has no pseudo header; the IPv4 header has a checksum of its own, with its options.
#[test]
fn checksums_without_a_pseudo_header() {
    for words in 5..=15_u8 {
        let header = usize::from(words) * 4;
        let mut bytes = vec![0x40 | words, 0, 0, header as u8 + 8, 0, 0, 0, 0, 64, 1, 0, 0];
        bytes.extend([9; 8]);
        bytes.resize(header, 1);
        let sum = crate::checksum::checksum(&bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend([8, 0, 0xe6, 0xf8, 0x11, 7, 0, 0]);
        let frame = [&[2; 12][..], &[8, 0], &bytes].concat();
        for (link, l3, bytes) in [(LinkType::RawIp, 0, bytes), (LinkType::Ethernet, 14, frame)] {
            let check = |bytes: &[u8]| {
                let headers = Headers::parse(link, bytes);
                (headers.ipv4_checksum(bytes), headers.transport_checksum(bytes))
            };
            assert_eq!(check(&bytes), (Verdict::Good, Verdict::Good), "{words} words");
            for at in [8, 12, header - 1] {
                let mut damaged = bytes.clone();
                damaged[l3 + at] ^= 4;
                assert_eq!(check(&damaged).0, Verdict::Bad, "{words} words, byte {at}");
            }
            let mut damaged = bytes.clone();
            damaged[l3 + header + 7] ^= 1;
            assert_eq!(check(&damaged), (Verdict::Good, Verdict::Bad), "{words} words");
            let cut = &bytes[..l3 + header - 1];
            assert_eq!(check(cut), (Verdict::NotChecked, Verdict::NotChecked), "{words} words");
        }
    }
}

/// A fragment, and a level without IP, have no segment.
#[test]
fn no_segment_without_a_whole_datagram() {
    let (src, dst) = ([0xaa; 16].into(), [0xbb; 16].into());
    for (word, is_whole) in [(0, true), (1, false), (8, false), (9, false)] {
        let bytes = packet(44, &[17, 0, 0, word, 0, 0, 0, 1], src, dst);
        let headers = Headers::parse(LinkType::RawIp, &bytes);
        assert_eq!(headers.segment(&bytes).is_some(), is_whole, "{word}");
        let want = if is_whole { Verdict::Good } else { Verdict::NotChecked };
        assert_eq!(headers.transport_checksum(&bytes), want, "{word}");
    }
    let arp = [&[2; 12][..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[9; 20]].concat();
    let headers = Headers::parse(LinkType::Ethernet, &arp);
    assert_eq!((headers.segment(&arp), headers.ipv4_checksum(&arp)), (None, Verdict::NotChecked));
}

/// A length of zero means up to the end of the captured bytes.
#[test]
fn an_open_packet_ends_with_the_frame() {
    let (src, dst) = ([0xaa; 16].into(), [0xbb; 16].into());
    let mut v6 = packet(17, &[], src, dst);
    v6[4..6].fill(0);
    assert_eq!(verdict(&v6), Verdict::Good);
    v6.push(0xee); // behind the datagram, which has its own length
    assert_eq!(verdict(&v6), Verdict::Good);
    let mut v4 = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2];
    v4.extend([8, 0, 0xe6, 0xf8, 0x11, 7, 0, 0]);
    assert_eq!(verdict(&v4), Verdict::Good);
    v4.push(0xee);
    assert_eq!(verdict(&v4), Verdict::Bad, "the frame is the packet");
}

proptest! {
    /// The verdicts of frames from descriptions: good, damaged, partial.
    #[test]
    fn each_checksum_has_its_verdict(seed in any::<u64>(), flip in 0_usize..4) {
        let mut stack = Stack::random(&mut Rng::new(seed), 200);
        stack.payload.push(1);
        let frame = stack.frame();
        let v4 = |v6: bool, is_v4: Verdict| if v6 { Verdict::NotChecked } else { is_v4 };
        let inside = v4(stack.v6, Verdict::Good);
        let good = match stack.tunnels.first() {
            None => Verdicts { ip: inside, l4: Verdict::Good, ..Verdicts::default() },
            Some((v6, tunnel)) => Verdicts {
                ip: v4(*v6, Verdict::Good),
                l4: match tunnel {
                    Tunnel::Vxlan(true) | Tunnel::Geneve(true) | Tunnel::Gtp(true) => Verdict::Good,
                    // RFC 8200 section 8.1 wants a checksum of UDP over IPv6.
                    Tunnel::Vxlan(_) | Tunnel::Geneve(_) | Tunnel::Gtp(_) if *v6 => Verdict::Bad,
                    _ => Verdict::NotChecked,
                },
                inner_ip: inside,
                inner_l4: Verdict::Good,
            },
        };
        let verdicts = |frame: &[u8]| Verdicts::of(LinkType::Ethernet, frame);
        prop_assert_eq!(verdicts(&frame), good);
        let l4 = |verdict| match stack.tunnels.is_empty() {
            true => Verdicts { l4: verdict, ..good },
            false => Verdicts { inner_l4: verdict, ..good },
        };
        let mut partial = l4(Verdict::Partial);
        let covered = stack.tunnels.len() == 1 && good.l4 == Verdict::Good;
        if covered {
            partial.l4 = Verdict::Partial;
        }
        // With two tunnels, the middle one has no verdict of its own; the outermost covers it.
        let got = verdicts(&stack.partial());
        let l4s = stack.tunnels.len() == 2 && good.l4 == Verdict::Good;
        prop_assert_eq!(got, if l4s { Verdicts { l4: got.l4, ..partial } } else { partial });
        let mut damaged = frame.clone();
        let last = damaged.len() - 1;
        damaged[last] ^= 1 << flip;
        let got = verdicts(&damaged);
        prop_assert_eq!((got.ip, got.inner_ip), (good.ip, good.inner_ip));
        let sum = if stack.tunnels.is_empty() { got.l4 } else { got.inner_l4 };
        prop_assert_eq!(sum, Verdict::Bad);
        prop_assert!(got.any_bad());
        // The checksum of UDP around it covers the damage, too.
        let covered = !stack.tunnels.is_empty() && good.l4 == Verdict::Good;
        prop_assert!(!covered || got.l4 == Verdict::Bad);
    }
}

#[test]
fn frames_without_ip_have_no_verdicts() {
    let arp = [&[2; 12][..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[9; 20]].concat();
    assert_eq!(Verdicts::of(LinkType::Ethernet, &arp), Verdicts::default());
    assert_eq!(Verdicts::of(LinkType::Ethernet, &[]), Verdicts::default());
}
