use proptest::prelude::*;

use super::*;
use crate::traffic::Family;

const TAG: Tag = Tag { source: 3, flow: 65_535, index: 0xfedc_ba98, sent: SENT_WRAP - 1 };
const COVERS: [Cover; 3] = [Cover::Frame, Cover::Network, Cover::Payload];

fn frame(len: usize, cover: Cover) -> Vec<u8> {
    of(Family::Ipv4, len, cover)
}

fn of(family: Family, len: usize, cover: Cover) -> Vec<u8> {
    let mut frame = crate::traffic::Addresses::Patterned.of(family).frame(0, 0, len + 4);
    assert_eq!(frame.len(), len);
    write(&mut frame, &TAG, cover);
    frame
}

#[test]
fn tags_come_back_at_every_size() {
    for len in 60..=1514 {
        for cover in COVERS {
            assert_eq!(read(&frame(len, cover), cover), Seen::Good(TAG), "{len} {cover:?}");
            if len >= 80 {
                let six = of(Family::Ipv6, len, cover);
                assert_eq!(read(&six, cover), Seen::Good(TAG), "{len} {cover:?}");
            }
        }
    }
    assert_eq!(age(SENT_WRAP - 1, SENT_WRAP + 4), 5);
    assert_eq!(age(7, 9), 2);
}

#[test]
fn a_device_may_change_what_is_not_covered() {
    let mut routed = frame(60, Cover::Network);
    routed[..12].copy_from_slice(&[9; 12]); // other MAC addresses
    routed[22] -= 1; // TTL; its checksum grows by 1 in the high byte
    let sum = u16::from_be_bytes([routed[24], routed[25]]);
    let (sum, carry) = sum.overflowing_add(0x100);
    routed[24..26].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
    assert_eq!(read(&routed, Cover::Network), Seen::Good(TAG));
    routed[22] -= 1; // without updating the checksum
    assert_eq!(read(&routed, Cover::Network), Seen::Corrupt);
    let mut balanced = frame(60, Cover::Payload);
    balanced[30..38].copy_from_slice(&[10, 0, 0, 1, 1, 1, 2, 2]);
    assert_eq!(read(&balanced, Cover::Payload), Seen::Good(TAG));
}

/// The incrementally updated UDP checksum stays correct, by an independent parser, over many tags.
#[test]
fn checksums_over_ipv6_stay_right() {
    let mut frame = of(Family::Ipv6, 80, Cover::Frame);
    for index in 0..70_000 {
        write(&mut frame, &Tag { index, sent: u64::from(index) * 977, ..TAG }, Cover::Frame);
        let packet = etherparse::SlicedPacket::from_ethernet(&frame).unwrap();
        let (Some(etherparse::NetSlice::Ipv6(ip)), Some(etherparse::TransportSlice::Udp(udp))) =
            (packet.net, packet.transport)
        else {
            panic!("{frame:?}")
        };
        let right = udp.to_header().calc_checksum_ipv6(&ip.header().to_header(), udp.payload());
        assert_eq!(right.unwrap(), udp.checksum(), "{index}");
    }
}

#[test]
fn a_router_may_count_hops_of_ipv6() {
    let mut routed = of(Family::Ipv6, 80, Cover::Network);
    routed[..12].copy_from_slice(&[9; 12]);
    routed[21] -= 1;
    assert_eq!(read(&routed, Cover::Network), Seen::Good(TAG));
    routed[60] ^= 1;
    assert_eq!(read(&routed, Cover::Network), Seen::Corrupt);
}

#[test]
fn other_traffic_is_foreign() {
    let key = flowyard_frame::FlowKey::five_tuple(
        17,
        [0, 0, 0, 0].into(),
        68,
        [255, 255, 255, 255].into(),
        67,
    );
    let dhcp = flowyard_testkit::Build::new(&key).frame_len(342).bytes();
    for foreign in [&dhcp[..], &[], &[0; 59], &[0xff; 60], &[0; 1514]] {
        assert_eq!(read(foreign, Cover::Frame), Seen::Foreign);
    }
}

proptest! {
    /// A frame with one to three wrong bits anywhere is corrupt, neither good nor foreign.
    #[test]
    fn wrong_bits_are_found(
        len in prop::sample::select(vec![60_usize, 124, 252, 508, 1020, 1276, 1514]),
        bits in prop::collection::vec(any::<prop::sample::Index>(), 1..=3), six: bool,
    ) {
        let (family, len) = if six { (Family::Ipv6, len.max(80)) } else { (Family::Ipv4, len) };
        let mut frame = of(family, len, Cover::Frame);
        let mut places: Vec<_> = bits.iter().map(|bit| bit.index(len * 8)).collect();
        places.sort_unstable();
        places.dedup();
        places.iter().for_each(|at| frame[at / 8] ^= 1 << (at % 8));
        prop_assert_eq!(read(&frame, Cover::Frame), Seen::Corrupt);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for cover in COVERS {
            prop_assert!(!matches!(read(&bytes, cover), Seen::Good(_)));
            write(&mut bytes.clone(), &TAG, cover);
        }
    }
}
