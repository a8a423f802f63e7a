//! For arbitrary bytes: no panic, offsets inside the frame, a finite number of levels. A frame that was
//! only cut by the capture is never reported as malformed.
#![allow(clippy::print_stdout, reason = "the test reports what it compared")]

use flowyard_testkit::captures::{Packet, manifest, packets, read_file};
use flowyard_testkit::harness::{Need, shared};
use flowyard_wire::{Fault, Headers, LinkType, Net, Next};
use proptest::prelude::*;

flowyard_testkit::tests! {
    random_bytes,
    random_header_stacks,
    tags_between_llc_headers_are_limited,
    every_prefix_of_every_packet_of_the_small_captures needs [Need::Shared("captures")],
}

/// Checks the invariants of a frame and returns its levels.
fn check(link: LinkType, bytes: &[u8]) -> Vec<Headers> {
    let levels: Vec<_> = Headers::levels(link, bytes).take(bytes.len() + 2).collect();
    assert!(levels.len() <= bytes.len() / 4 + 1, "{} levels", levels.len());
    let mut outer = 0;
    for (i, h) in levels.iter().enumerate() {
        let at = [h.l3, h.payload, h.end].map(|at| at as usize);
        assert!(at.is_sorted() && at[2] <= bytes.len(), "level {i}: {h:?}");
        assert!(h.payload >= outer && h.eth.is_none_or(|eth| eth >= outer), "level {i}: {h:?}");
        outer = h.payload;
        if h.l4 != 0 {
            assert!(h.l3 < h.l4 && h.l4 <= h.payload, "level {i}: {h:?}");
        }
        assert!(h.ports.is_none() || (h.l4 + 4 <= h.end && !h.fragment.is_later()));
        assert!(h.fault.is_none() || h.next == Next::None, "level {i}: {h:?}");
        let ip = matches!(h.net, Net::Ipv4 | Net::Ipv6);
        assert!(ip || (h.proto == 0 && h.l4 == 0 && h.ports.is_none()), "level {i}: {h:?}");
        assert_eq!(ip, h.src_ip(bytes).is_some() && h.dst_ip(bytes).is_some());
        assert_eq!(ip, h.ttl(bytes).is_some() && h.tos(bytes).is_some());
        assert_eq!(h.eth.is_some(), h.eth_src(bytes).is_some() && h.eth_dst(bytes).is_some());
        for address in [h.home_address, h.routing2] {
            assert!(address == 0 || (address > h.l3 && address + 16 <= h.end));
        }
        assert_eq!(h.payload(bytes).len(), (h.end - h.payload) as usize);
        let _ = (h.icmp(bytes), h.flow_label(bytes), h.tags.ids().count(), h.labels.ids().count());
        let _ = (h.ipv4_checksum(bytes), h.transport_checksum(bytes));
    }
    // Views on another frame's bytes have no meaning, but must not panic.
    let half = &bytes[..bytes.len() / 2];
    for h in &levels {
        let _ = (h.inner(half), h.src_ip(half), h.icmp(half), h.payload(half));
        let _ = (h.ipv4_checksum(half), h.transport_checksum(half));
    }
    levels
}

/// LLC between tags: the limit of tags holds for the level, or the parser would call itself for each of them.
fn tags_between_llc_headers_are_limited() {
    let mut frame = [vec![0; 12], vec![0x81, 0x00]].concat();
    for _ in 0..5000 {
        frame.extend([0, 1, 0, 16, 0xaa, 0xaa, 3, 0, 0, 0, 0x81, 0x00]);
    }
    let level = check(LinkType::Ethernet, &frame)[0];
    assert_eq!((level.fault, level.tags.count), (Some(Fault::TooManyTags), 16));
    assert_eq!(level.tags.ids().collect::<Vec<_>>(), [1; 4]);
}

/// The first bytes of headers in random order, with random bytes between, so that parsing gets deep.
fn header_stacks() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(vec![0x81, 0x00, 0, 5]),
        Just(vec![0x88, 0xa8, 0, 5]),
        Just(vec![0x88, 0x47, 0, 1, 0x01, 64]),
        Just(vec![0x88, 0x64, 0x11, 0, 0, 1, 0, 60, 0, 0x21]),
        Just(vec![0x08, 0x00]),
        Just(vec![0x86, 0xdd]),
        any::<u8>().prop_map(|proto| {
            let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto];
            ip.resize(20, 1);
            ip
        }),
        prop::sample::select(vec![4, 6, 17, 41, 47, 51, 97, 132, 137, 143]).prop_map(|proto| {
            let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto];
            ip.resize(20, 1);
            ip
        }),
        prop::sample::select(vec![0, 4, 6, 17, 41, 43, 44, 47, 51, 60, 135]).prop_map(|next| {
            let mut ip = vec![0x60, 0, 0, 0, 0, 0, next, 64];
            ip.resize(40, 1);
            ip
        }),
        prop::sample::select(vec![2152u16, 4789, 4790, 6081, 8472]).prop_map(|port| [
            vec![0, 9],
            port.to_be_bytes().to_vec(),
            vec![0, 80, 0, 0]
        ]
        .concat()),
        any::<u8>().prop_map(|flags| vec![flags, 255, 0, 40, 0, 0, 0, 7]),
        any::<(u8, u8)>().prop_map(|(flags, ver)| vec![flags & 0xf0, ver & 1, 0x65, 0x58]),
        prop::sample::select(vec![0, 43, 44, 51, 60])
            .prop_map(|next| vec![next, 0, 0, 0, 0, 0, 0, 1]),
        prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    fn random_bytes(link in prop::sample::select(LinkType::ALL.to_vec()), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(link, &bytes);
    }

    fn random_header_stacks(link in prop::sample::select(LinkType::ALL.to_vec()), deep in header_stacks()) {
        check(link, &deep);
        check(LinkType::Ethernet, &[&[2; 12][..], &deep].concat());
    }
}

fn every_prefix_of_every_packet_of_the_small_captures() {
    let captures = shared("captures");
    let (mut prefixes, mut budget) = (0u64, 40_000_000u64);
    for entry in manifest(&captures) {
        let file = read_file(&captures.join(&entry.file));
        if file.len() > 100_000 {
            continue;
        }
        for Packet { link, bytes, .. } in packets(&file) {
            let Some(link) = LinkType::from_registry(link) else { continue };
            let whole = check(link, &bytes);
            let sound = whole.iter().all(|h| h.fault.is_none());
            // Cuts after the last header make no difference; a few of them are tested.
            let deepest = whole.last().map_or(0, |h| h.payload as usize + 40);
            for cut in 0..bytes.len().min(deepest) {
                for h in check(link, &bytes[..cut]) {
                    let fault = h.fault.filter(|fault| sound && !fault.is_truncation());
                    assert_eq!(fault, None, "{} cut to {cut}", entry.file);
                }
                prefixes += 1;
            }
            budget = budget.saturating_sub(bytes.len() as u64);
        }
        if budget == 0 {
            break;
        }
    }
    println!("{prefixes} prefixes");
    assert!(prefixes > 100_000);
}
