use std::net::IpAddr;

use flowyard_frame::FlowKey;
use flowyard_testkit::Build;
use flowyard_wire::Verdict;
use proptest::prelude::*;

use super::*;

fn key(v6: bool, tcp: bool) -> FlowKey {
    let ip = |n: u8| -> IpAddr {
        if v6 {
            [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n].into()
        } else {
            [10, 0, 0, n].into()
        }
    };
    FlowKey::five_tuple(if tcp { proto::TCP } else { proto::UDP }, ip(1), 1000, ip(2), 80)
}

/// The offsets of the transport header and of its payload.
fn places(frame: &[u8]) -> (usize, usize) {
    let found = Headers::parse(LinkType::Ethernet, frame);
    (found.l4 as usize, found.payload as usize)
}

proptest! {
    /// The previous content of the field does not matter, except for a UDP datagram without a
    /// checksum; bytes behind the packet are not covered.
    #[test]
    fn a_checksum_is_computed_anew(
        (v6, tcp) in any::<(bool, bool)>(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
        (wrong, padding) in (1u16.., 0usize..20),
    ) {
        let whole = Build::new(&key(v6, tcp)).payload(&payload).bytes();
        let (l4, _) = places(&whole);
        let field = l4 + if tcp { 16 } else { 6 };
        let mut frame = whole.clone();
        frame[field..field + 2].copy_from_slice(&wrong.to_be_bytes());
        frame.extend(vec![0xee; padding]);
        prop_assert!(recompute(&mut frame));
        let found = Headers::parse(LinkType::Ethernet, &frame);
        prop_assert_eq!(found.transport_checksum(&frame), Verdict::Good);
        prop_assert_eq!(&frame[..field], &whole[..field]);
        prop_assert_eq!(&frame[field + 2..whole.len()], &whole[field + 2..]);
        frame[field..field + 2].fill(0);
        prop_assert_eq!(recompute(&mut frame), tcp, "UDP may omit the checksum");
    }

    /// No input causes a panic.
    #[test]
    fn no_bytes_panic(
        mut frame in prop::collection::vec(any::<u8>(), 0..200),
        flip in any::<bool>(),
    ) {
        if flip && frame.len() > 40 {
            frame[12..15].copy_from_slice(&[8, 0, 0x45]);
            frame[23] = 6;
        }
        recompute(&mut frame);
    }
}
