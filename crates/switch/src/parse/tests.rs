//! Tests of the parser, on frames built by hand.

use super::*;

fn parsed(bytes: &[u8]) -> (Key, Layout) {
    let mut key = Key::ZERO;
    let layout = parse(bytes, &mut key);
    (key, layout)
}

/// An IPv6 frame: the header at 14, and `rest` from 54 on.
fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut frame = [&[2; 12][..], &[0x86, 0xdd]].concat();
    let [high, low] = (rest.len() as u16).to_be_bytes();
    frame.extend([0x6b, 0x91, 0x23, 0x45, high, low, next, 63]);
    frame.extend((0..32_u8).chain(rest.iter().copied()));
    frame
}

/// An extension header of this size. Its own bytes are 0xa0 and above, which no field here has.
fn extension(next: u8, len: u8, size: usize) -> Vec<u8> {
    (0..size).map(|at| [next, len][..].get(at).copied().unwrap_or(0xa0 | at as u8 & 15)).collect()
}

/// TCP ports 80 and 81, and all flags.
fn tcp() -> Vec<u8> {
    vec![0, 80, 0, 81, 1, 1, 1, 1, 2, 2, 2, 2, 0x5f, 0xff, 3, 3, 4, 4, 0, 0]
}

#[test]
fn the_transport_header_is_found_behind_extension_headers_of_each_length() {
    for (kind, len, size, seen) in [
        (0, 0, 8, HOP),
        (0, 3, 32, HOP),
        (43, 2, 24, ROUTER),
        (60, 1, 16, DEST),
        (60, 30, 248, DEST),
        (51, 1, 12, AUTH),
        (51, 4, 24, AUTH),
    ] {
        let (key, layout) = parsed(&ipv6(kind, &[extension(TCP, len, size), tcp()].concat()));
        let found = [Field::TcpSrc, Field::TcpDst, Field::TcpFlags].map(|field| key.get(field));
        assert_eq!(found, [Some(80), Some(81), Some(0xfff)], "header {kind}, length {len}");
        assert_eq!(key.get(Field::Ipv6Exthdr), Some(seen.into()));
        assert_eq!((layout.l4, layout.next_at, layout.proto), (54 + size, 54, TCP));
        assert!(layout.whole && layout.end == 54 + size + 20);
    }
    let (key, layout) = parsed(&ipv6(TCP, &tcp()));
    assert_eq!((key.get(Field::Ipv6Exthdr), layout.l4, layout.next_at), (Some(0), 54, 20));
    assert_eq!((key.get(Field::IpDscp), key.get(Field::IpEcn)), (Some(0x2e), Some(1)));
    assert_eq!(key.get(Field::Ipv6Flabel), Some(0x1_2345));
}

#[test]
fn several_extension_headers_follow_each_other() {
    let chain =
        [extension(60, 0, 8), extension(43, 1, 16), extension(60, 0, 8), extension(51, 0, 8)];
    let [hop, dest, routing, last] = &chain;
    let all = [&hop[..], dest, routing, last, &extension(TCP, 1, 12), &tcp()].concat();
    let (key, layout) = parsed(&ipv6(0, &all));
    assert_eq!(key.get(Field::Ipv6Exthdr), Some((HOP | DEST | ROUTER | AUTH | UNORDERED).into()));
    assert_eq!((layout.l4, layout.next_at), (54 + 8 + 16 + 8 + 8 + 12, 54 + 8 + 16 + 8 + 8));
    let twice = [extension(0, 0, 8), extension(TCP, 0, 8), tcp()].concat();
    let (key, _) = parsed(&ipv6(0, &twice));
    assert_eq!(key.get(Field::Ipv6Exthdr), Some((HOP | REPEATED).into()));
}

#[test]
fn only_the_first_fragment_has_a_transport_header() {
    let fragment = |word: u16| {
        let [high, low] = word.to_be_bytes();
        let header = [TCP, 0xff, high, low, 0, 0, 0, 7]; // the second byte is reserved, no length
        parsed(&ipv6(44, &[&header[..], &tcp()].concat()))
    };
    for (word, is_first, whole) in [
        (0, true, true),
        (6, true, true),
        (1, true, false),
        (8, false, false),
        (0xfff8, false, false),
    ] {
        let (key, layout) = fragment(word);
        assert_eq!(key.get(Field::TcpDst), is_first.then_some(81), "{word:x}");
        assert_eq!(layout.l4, if is_first { 62 } else { 0 });
        assert_eq!((layout.whole, layout.proto, layout.next_at), (whole, TCP, 54), "{word:x}");
        assert_eq!(key.get(Field::Ipv6Exthdr), Some(FRAG.into()));
        assert_eq!(key.get(Field::IpProto), Some(TCP.into()));
    }
}

#[test]
fn parsing_ends_at_encrypted_missing_and_truncated_headers() {
    for (next, seen) in [(50, ESP), (59, NO_NEXT)] {
        let (key, layout) = parsed(&ipv6(next, &tcp()));
        assert_eq!(key.get(Field::Ipv6Exthdr), Some(seen.into()));
        assert_eq!((key.get(Field::IpProto), layout.l4), (Some(next.into()), 0));
    }
    // An extension header of which one byte is there has no next header.
    let (key, layout) = parsed(&ipv6(0, &[TCP]));
    assert_eq!((key.get(Field::IpProto), layout.l4), (Some(59), 0));
}

#[test]
fn ipv4_fragments_options_and_cut_packets() {
    let frame = |options: usize, word: u16, cut: usize| {
        let mut frame = [&[2; 12][..], &[8, 0]].concat();
        let [high, low] = word.to_be_bytes();
        frame.extend([0x45 + options as u8 / 4, 0xb9, 0, (40 + options) as u8, 0, 1, high, low]);
        frame.extend([64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(std::iter::repeat_n(1, options).chain(tcp()));
        frame.truncate(frame.len() - cut);
        parsed(&frame)
    };
    for (options, word, cut, l4, whole) in [
        (0, 0, 0, 34, true),
        (8, 0, 0, 42, true),
        (0, 0x4000, 0, 34, true),  // do not fragment
        (0, 0x2000, 0, 34, false), // more fragments
        (0, 1, 0, 0, false),
        (0, 0x1000, 0, 0, false),
        (0, 0, 1, 34, false),
    ] {
        let (key, layout) = frame(options, word, cut);
        assert_eq!((layout.l4, layout.whole), (l4, whole), "{options} {word:x} {cut}");
        assert_eq!(key.get(Field::TcpSrc), (l4 != 0).then_some(80));
        assert_eq!((key.get(Field::IpDscp), key.get(Field::IpEcn)), (Some(0x2e), Some(1)));
        let [src, dst] = [Field::Ipv4Src, Field::Ipv4Dst].map(|field| key.get(field));
        assert_eq!((src, dst), (Some(0x0a00_0001), Some(0x0a00_0002)));
        assert_eq!(layout.end, 54 + options - cut);
    }
}

#[test]
fn neighbour_discovery_has_a_target_and_a_link_layer_address() {
    let message = |kind: u8, options: &[u8]| {
        let head = [kind, 0, 0, 0, 0, 0, 0, 0];
        parsed(&ipv6(ICMP6, &[&head[..], &[0x77; 16], options].concat()))
    };
    let nonce = [14, 2, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
    for (kind, option, field) in [(135, 1, Field::Ipv6NdSll), (136, 2, Field::Ipv6NdTll)] {
        for before in [0, 1, 2] {
            let link = [option, 1, 2, 4, 6, 8, 10, 12];
            let (key, layout) = message(kind, &[nonce.repeat(before), link.to_vec()].concat());
            assert_eq!(key.get(field), Some(0x0204_0608_0a0c), "{kind}, {before} other options");
            assert_eq!(key.get(Field::Ipv6NdTarget), Some(u128::from_be_bytes([0x77; 16])));
            assert_eq!((layout.target, layout.link), (62, 80 + 16 * before));
        }
        // The option of the other message, an option without length, and one that is cut.
        for options in
            [&[3 - option, 1, 2, 4, 6, 8, 10, 12][..], &[5, 0, option, 1], &[option, 1, 2]]
        {
            let (key, layout) = message(kind, options);
            assert_eq!((key.get(field), layout.target, layout.link), (None, 62, 0));
        }
    }
    assert_eq!(message(134, &[]).0.get(Field::Ipv6NdTarget), None);
    assert_eq!(message(137, &[]).0.get(Field::Ipv6NdTarget), None);
}

/// Bytes behind the packet are padding: no field is read from them, and the packet ends before them.
#[test]
fn a_packet_ends_where_its_length_says() {
    let v4 = |total: u16| {
        let mut frame = [&[2; 12][..], &[8, 0]].concat();
        let [high, low] = total.to_be_bytes();
        frame.extend([0x45, 0, high, low, 0, 1, 0, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(tcp());
        frame.extend([0x99; 10]);
        parsed(&frame)
    };
    let v6 = |payload: u16| {
        let mut frame = ipv6(TCP, &[&tcp()[..], &[0x99; 10]].concat());
        frame[18..20].copy_from_slice(&payload.to_be_bytes());
        parsed(&frame)
    };
    // Bytes of the transport header, and whether the ports and the flags are among them.
    for (bytes, has_ports, has_flags, is_whole) in [
        (20, true, true, true),
        (30, true, true, true),
        (31, true, true, false),
        (14, true, true, true),
        (13, true, false, true),
        (4, true, false, true),
        (3, false, false, true),
        (0, false, false, true),
    ] {
        for (v6, start, (key, layout)) in [(false, 34, v4(20 + bytes)), (true, 54, v6(bytes))] {
            let name = format!("{bytes} bytes, v6 {v6}");
            assert_eq!(layout.end, start + usize::from(bytes.min(30)), "{name}");
            assert_eq!(layout.whole, is_whole, "{name}");
            assert_eq!(key.get(Field::TcpDst), has_ports.then_some(81), "{name}");
            assert_eq!(key.get(Field::TcpFlags), has_flags.then_some(0xfff), "{name}");
            assert_eq!(layout.l4, if has_ports { start } else { 0 }, "{name}");
        }
    }
    // A length that is less than that of the header.
    for total in [0, 19] {
        let (key, layout) = v4(total);
        assert_eq!((layout.end, layout.l4, key.get(Field::Ipv4Src)), (34, 0, Some(0x0a00_0001)));
    }
}
