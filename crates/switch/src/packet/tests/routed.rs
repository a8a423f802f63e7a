//! Addresses of packets on a source route, or with a home address: the transport checksum covers an address that is not in
//! the IP header.

use flowyard_wire::{Headers, LinkType, Verdict};

use super::*;

/// UDP in an IP packet from address 1 to 2, with these options or extension headers, the first of them of type `first`. The
/// checksum covers the addresses `ends`.
fn frame(v6: bool, (first, more): (u8, &[u8]), ends: [u8; 2]) -> Vec<u8> {
    let length = if v6 { 16 } else { 4 };
    let both = |ends: [u8; 2]| ends.map(|end| address(length, end)).concat();
    let udp = with_sum(17, &both(ends), &[0, 5, 0, 80, 0, 12, 0, 0, 1, 2, 3, 4]);
    let total = (if v6 { more.len() } else { 20 + more.len() } + udp.len()) as u16;
    let [high, low] = total.to_be_bytes();
    let mut head = match v6 {
        true => vec![0x60, 0, 0, 0, high, low, first, 64],
        false => vec![0x45 + more.len() as u8 / 4, 0, high, low, 0, 1, 0, 0, 64, 17, 0, 0],
    };
    head.extend([&both([1, 2]), more].concat());
    if !v6 {
        let check = sum(&[&head]);
        head[10..12].copy_from_slice(&check.to_be_bytes());
    }
    head.extend(udp);
    eth(&[], if v6 { 0x86dd } else { 0x0800 }, &head)
}

/// Address `last` of a family.
fn address(length: usize, last: u8) -> Vec<u8> {
    [&[0x20][..], &vec![7; length - 2], &[last]].concat()
}

fn verdict(frame: &[u8]) -> Verdict {
    Headers::parse(LinkType::Ethernet, frame).transport_checksum(frame)
}

#[test]
fn a_checksum_covers_the_last_address_of_a_route_and_the_home_address() {
    let v6 = |head: &[u8]| [head, &address(16, 9)].concat();
    let home = v6(&[17, 2, 1, 2, 0, 0, 201, 16]);
    let v4 = |kind: u8, pointer: u8| [&[1, kind, 7, pointer][..], &address(4, 9)].concat();
    let cases = [
        ("no extension", true, 17, vec![], [1, 2]),
        ("hop by hop", true, 0, vec![17, 0, 1, 4, 0, 0, 0, 0], [1, 2]),
        ("SRv6", true, 43, v6(&[17, 2, 4, 1, 0, 0, 0, 0]), [1, 9]),
        ("SRv6 at its end", true, 43, v6(&[17, 2, 4, 0, 0, 0, 0, 0]), [1, 2]),
        ("type 2", true, 43, v6(&[17, 2, 2, 1, 0, 0, 0, 0]), [1, 9]),
        ("home address", true, 60, home, [9, 2]),
        ("no option", false, 0, vec![], [1, 2]),
        ("router alert", false, 0, vec![148, 4, 0, 0], [1, 2]),
        ("loose source route", false, 0, v4(131, 4), [1, 9]),
        ("strict source route", false, 0, v4(137, 4), [1, 9]),
        ("source route at its end", false, 0, v4(131, 8), [1, 2]),
    ];
    for (name, is_v6, first, more, ends) in cases {
        let frame = frame(is_v6, (first, &more), ends);
        assert_eq!(verdict(&frame), Verdict::Good, "{name}");
        let fields = match is_v6 {
            true => [Field::Ipv6Src, Field::Ipv6Dst],
            false => [Field::Ipv4Src, Field::Ipv4Dst],
        };
        for field in fields {
            let mut packet = packet(&frame);
            packet.set(&Oxm::exact(field, field.full() / 3)).expect("an address");
            assert_ne!(packet.bytes(), frame, "{name}");
            assert_eq!(verdict(packet.bytes()), Verdict::Good, "{name}: {field:?}");
        }
    }
}
