//! Offloads against the layout of the virtio-net header.

use super::*;
use proptest::prelude::*;

/// An Ethernet frame with `payload` bytes behind the headers of TCP or UDP, IPv4 or IPv6.
fn frame(v6: bool, tcp: bool, payload: usize) -> Vec<u8> {
    let l4 = if tcp { 20 } else { 8 } + payload;
    let (proto, len) = (if tcp { 6 } else { 17 }, l4.to_be_bytes());
    let mut bytes = vec![2; 12];
    if v6 {
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, len[6], len[7], proto, 64]);
        bytes.extend([1; 32]);
    } else {
        let total = (20 + l4).to_be_bytes();
        bytes.extend([8, 0, 0x45, 0, total[6], total[7], 0, 0, 0, 0, 64, proto, 0, 0]);
        bytes.extend([1; 8]);
    }
    match tcp {
        true => bytes.extend([&[0, 1, 0, 2][..], &[0; 8], &[0x50, 0x10], &[0; 6]].concat()),
        false => bytes.extend([0, 1, 0, 2, len[6], len[7], 0, 0]),
    }
    bytes.resize(bytes.len() + payload, 7);
    bytes
}

/// flags, gso_type, hdr_len, gso_size, csum_start, csum_offset.
fn header(flags: u8, kind: u8, fields: [u16; 4]) -> [u8; 10] {
    let mut bytes = [0; 10];
    (bytes[0], bytes[1]) = (flags, kind);
    for (at, field) in fields.iter().enumerate() {
        bytes[2 + 2 * at..4 + 2 * at].copy_from_slice(&field.to_le_bytes());
    }
    bytes
}

#[test]
fn an_offload_has_eight_bytes() {
    assert_eq!((size_of::<Offload>(), size_of::<Verdicts>()), (8, 4));
    assert!(Offload::default().is_none() && Offload::default() == Offload::NONE);
}

#[test]
fn each_field_is_where_the_specification_says() {
    let tcp4 = Offload {
        segment: Segment::Tcp4,
        flags: Offload::PARTIAL | Offload::ECN,
        segment_bytes: 1448,
        checksum_start: 34,
        checksum_offset: 16,
        transport_len: 20,
    };
    let bytes = [1, 0x81, 54, 0, 0xa8, 5, 34, 0, 16, 0];
    assert_eq!(tcp4.to_virtio(), bytes);
    let bytes_of = frame(false, true, 3000);
    assert_eq!(Offload::from_virtio(&bytes, &bytes_of), Ok(tcp4));
    assert_eq!(tcp4.segments(bytes_of.len()), 3);
    // The length of the headers is a hint; the frame's own headers count.
    let mut hint = bytes;
    hint[2] = 200;
    assert_eq!(Offload::from_virtio(&hint, &bytes_of), Ok(tcp4));
    let valid = Offload { flags: Offload::VALID, ..Offload::NONE };
    assert_eq!(valid.to_virtio(), header(2, 0, [0; 4]));
    assert_eq!(Offload::from_virtio(&header(2 | 4, 0, [0; 4]), &bytes_of), Ok(valid));
    assert!(valid.is_none());
}

#[test]
fn without_a_checksum_the_transport_is_found_in_the_frame() {
    let bytes = frame(true, true, 100);
    let offload = Offload::from_virtio(&header(0, 4, [0, 50, 0, 0]), &bytes).unwrap();
    let want = (54, 16, 20, 0);
    let Offload { checksum_start, checksum_offset, transport_len, flags, .. } = offload;
    assert_eq!((checksum_start, checksum_offset, transport_len, flags), want);
    assert_eq!(offload.to_virtio(), header(0, 4, [74, 50, 0, 0]));
}

#[test]
fn a_frame_of_one_segment_is_not_cut() {
    for (payload, count) in [(0, 1), (50, 1), (51, 2), (100, 2), (101, 3)] {
        let bytes = frame(false, true, payload);
        let offload = Offload::from_virtio(&header(1, 0x81, [0, 50, 34, 16]), &bytes).unwrap();
        assert_eq!(offload.segments(bytes.len()), count, "{payload}");
        assert_eq!(offload.segment != Segment::None, count > 1);
        assert!(offload.has(Offload::PARTIAL) && !offload.is_none());
        let offload = Offload::from_virtio(&header(0, 1, [0, 50, 0, 0]), &bytes).unwrap();
        assert_eq!(offload == Offload::NONE, count == 1, "{payload}");
    }
}

/// A frame is cut into as many segments as all of its bytes make, whether they are here or not.
#[test]
fn the_front_of_a_frame_is_described_as_all_of_it() {
    for (v6, kind, start) in [(false, 1, 34), (true, 4, 54)] {
        let bytes = frame(v6, true, 45_000);
        for size in [200, 1448, 9000, 44_999, 45_000] {
            for of in [header(1, kind, [0, size, start, 16]), header(0, kind, [0, size, 0, 0])] {
                let whole = Offload::from_virtio(&of, &bytes).unwrap();
                for len in [usize::from(start) + 20, 200, 1500, 2000, 45_000] {
                    let front = Offload::from_virtio_front(&of, &bytes[..len], bytes.len());
                    assert_eq!(front, Ok(whole), "{len} bytes, segments of {size}");
                }
                let short = Offload::from_virtio_front(&of, &bytes[..40], bytes.len());
                assert_eq!(short, Err(Refused::Headers));
            }
        }
    }
}

#[test]
fn a_header_that_does_not_fit_is_refused() {
    let (tcp4, tcp6) = (frame(false, true, 100), frame(true, true, 100));
    let (udp4, cut) = (frame(false, false, 100), &frame(false, true, 0)[..50]);
    for (refused, bytes, flags, kind, fields) in [
        (Refused::Kind, &tcp4[..], 1, 3, [54, 50, 34, 16]),
        (Refused::Kind, &tcp4, 1, 2, [54, 50, 34, 16]),
        (Refused::Kind, &tcp4, 1, 0x21, [54, 50, 34, 16]),
        (Refused::ChecksumOutside, &tcp4, 1, 0, [0, 0, 34, 256]),
        (Refused::ChecksumOutside, &tcp4, 1, 0, [0, 0, 150, 16]),
        (Refused::ChecksumOutside, &tcp4, 1, 0, [0, 0, 0xffff, 16]),
        (Refused::ChecksumOutside, &tcp4, 1, 0, [0, 0, 0, 16]),
        // The checksum of SCTP has four bytes. The last one would lie outside the frame.
        (Refused::ChecksumOutside, &tcp4, 1, 0, [0, 0, 143, 8]),
        (Refused::Headers, &tcp6, 1, 1, [74, 50, 54, 16]),
        (Refused::Headers, &tcp4, 1, 4, [54, 50, 34, 16]),
        (Refused::Headers, &udp4, 1, 1, [54, 50, 34, 16]),
        (Refused::Headers, &tcp4, 1, 5, [54, 50, 34, 6]),
        (Refused::Headers, &tcp4, 1, 1, [54, 50, 33, 16]),
        (Refused::Headers, &tcp4, 1, 1, [54, 50, 34, 6]),
        (Refused::Headers, cut, 0, 1, [54, 50, 0, 0]),
        (Refused::NoSize, &tcp4, 1, 1, [54, 0, 34, 16]),
        (Refused::UdpWithoutChecksum, &udp4, 0, 5, [42, 50, 0, 0]),
    ] {
        let got = Offload::from_virtio(&header(flags, kind, fields), bytes);
        assert_eq!(got, Err(refused), "{kind:#x} {fields:?}");
    }
    // The last place at which the field still fits.
    assert!(Offload::from_virtio(&header(1, 0, [0, 0, 136, 16]), &tcp4).is_ok());
    assert!(Offload::from_virtio(&header(1, 0, [0, 0, 137, 16]), &tcp4).is_err());
}

#[test]
fn a_fragment_is_not_cut() {
    let mut bytes = frame(false, true, 100);
    bytes[20] = 0x20;
    let got = Offload::from_virtio(&header(1, 1, [54, 50, 34, 16]), &bytes);
    assert_eq!(got, Err(Refused::Headers));
}

/// In a tunnel, the start of the checksum says which level is cut.
#[test]
fn the_level_inside_a_tunnel_is_found_by_its_checksum() {
    let inner = frame(true, true, 500);
    let mut bytes = frame(false, false, 8 + inner.len());
    bytes[36..38].copy_from_slice(&4789_u16.to_be_bytes());
    bytes[42..50].copy_from_slice(&[8, 0, 0, 0, 0, 1, 2, 0]);
    bytes[50..].copy_from_slice(&inner);
    let start = 50 + 54;
    let offload = Offload::from_virtio(&header(1, 4, [124, 100, start, 16]), &bytes).unwrap();
    assert_eq!((offload.headers_len(), offload.segments(bytes.len())), (124, 5));
    let outer = Offload::from_virtio(&header(1, 5, [42, 100, 34, 6]), &bytes).unwrap();
    assert_eq!(outer.headers_len(), 42);
}

#[test]
fn a_shift_moves_the_start_inside_its_range() {
    let bytes = frame(false, true, 100);
    let offload = Offload::from_virtio(&header(1, 1, [54, 50, 34, 16]), &bytes).unwrap();
    assert_eq!(offload.shifted(4).map(|o| o.checksum_start), Some(38));
    assert_eq!(offload.shifted(-4).map(Offload::headers_len), Some(50));
    assert_eq!((offload.shifted(-34), offload.shifted(65_502)), (None, None));
    assert_eq!(Offload::NONE.shifted(isize::MIN), Some(Offload::NONE));
}

#[test]
fn names_and_sentences_differ() {
    let names: std::collections::BTreeSet<_> = Verdict::ALL.iter().map(|v| v.name()).collect();
    assert_eq!(names.len(), 4);
    let texts: std::collections::BTreeSet<_> =
        Refused::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), Refused::ALL.len());
    for (at, verdict) in Verdict::ALL.iter().enumerate() {
        assert_eq!(*verdict as usize, at);
        let only = |v| if *verdict == Verdict::Bad { v } else { Verdict::Good };
        let verdicts = [
            Verdicts { ip: only(Verdict::Bad), ..Verdicts::default() },
            Verdicts { l4: only(Verdict::Bad), ..Verdicts::default() },
            Verdicts { inner_ip: only(Verdict::Bad), ..Verdicts::default() },
            Verdicts { inner_l4: only(Verdict::Bad), ..Verdicts::default() },
        ];
        assert!(verdicts.iter().all(|v| v.any_bad() == (*verdict == Verdict::Bad)));
    }
}

proptest! {
    /// What was read is written again, but for the hint and for what the frame contradicts.
    #[test]
    fn a_header_survives_both_ways(
        (v6, tcp, ecn, partial) in any::<(bool, bool, bool, bool)>(),
        payload in 1_usize..4000,
        size in 1_u16..2000,
    ) {
        let bytes = frame(v6, tcp, payload);
        let kind = match (tcp, v6) { (true, false) => 1, (true, true) => 4, (false, _) => 5 };
        let partial = partial || !tcp;
        let l4 = if v6 { 54 } else { 34 };
        let (start, offset) = if partial { (l4, if tcp { 16 } else { 6 }) } else { (0, 0) };
        let kind = kind | if ecn { 0x80 } else { 0 };
        let hdr_len = l4 + if tcp { 20 } else { 8 };
        let given = header(u8::from(partial), kind, [hdr_len, size, start, offset]);
        let offload = Offload::from_virtio(&given, &bytes).unwrap();
        if payload > usize::from(size) {
            prop_assert_eq!(offload.to_virtio(), given);
            prop_assert_eq!(offload.segments(bytes.len()), payload.div_ceil(size.into()));
        } else {
            prop_assert_eq!(offload.segment, Segment::None);
            prop_assert_eq!(offload.to_virtio(), header(u8::from(partial), 0, [0, 0, start, offset]));
        }
    }

    /// No input panics, and what is accepted lies in the frame.
    #[test]
    fn no_bytes_panic(
        given in any::<[u8; 10]>(),
        kind in prop::sample::select(vec![0_u8, 1, 4, 5, 0x81]),
        (v6, tcp) in any::<(bool, bool)>(),
        cut in 0_usize..200,
        start in prop::sample::select(vec![34_u8, 54, 0, 1, 90]),
    ) {
        let mut bytes = frame(v6, tcp, 100);
        bytes.truncate(cut);
        let mut given = given;
        (given[1], given[6], given[7]) = (kind, start, 0);
        if let Ok(offload) = Offload::from_virtio(&given, &bytes) {
            let end = usize::from(offload.checksum_start) + usize::from(offload.checksum_offset);
            prop_assert!(end == 0 || end + 2 <= bytes.len());
            prop_assert!(offload.headers_len() <= bytes.len());
            prop_assert_eq!(offload.segment == Segment::None, offload.segment_bytes == 0);
        }
    }
}
