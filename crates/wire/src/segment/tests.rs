//! Segments against frames that are built one by one from descriptions.

use flowyard_testkit::Rng;
use flowyard_testkit::stacks::{Stack, Tunnel};
use proptest::prelude::*;

use super::*;
use crate::offload::complete;
use crate::{Headers, LinkType, Verdict};

/// What the sender of `stack` would ask for.
pub(crate) fn offload(stack: &Stack, size: u16, partial: bool) -> Offload {
    let (segment, checksum_offset, transport_len) = match (stack.tcp, stack.v6) {
        (true, false) => (Segment::Tcp4, 16, 20 + stack.tcp_options.len() as u8),
        (true, true) => (Segment::Tcp6, 16, 20 + stack.tcp_options.len() as u8),
        (false, _) => (Segment::Udp, 6, 8),
    };
    let partial = if partial { Offload::PARTIAL } else { 0 };
    let ecn = if stack.tcp && stack.flags & CWR != 0 { Offload::ECN } else { 0 };
    Offload {
        segment,
        flags: partial | ecn,
        segment_bytes: size,
        checksum_start: stack.l4() as u16,
        checksum_offset,
        transport_len,
    }
}

fn cut(frame: &[u8], offload: Offload) -> Vec<Vec<u8>> {
    let cut = Cut::new(frame, offload).expect("the frame can be cut");
    let of = |n: usize| {
        let mut out = vec![0xee; cut.len(n) + 3];
        assert_eq!(cut.write(frame, n, &mut out), cut.len(n));
        assert_eq!(out.split_off(cut.len(n)), [0xee; 3], "nothing is written behind");
        out
    };
    (0..cut.count()).map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Every segment, of any tunnel, is the frame that its description gives.
    #[test]
    fn segments_are_as_if_built_alone(
        seed in any::<u64>(),
        size in 1_u16..700,
        partial in any::<bool>(),
        fixed in any::<[bool; 2]>(),
    ) {
        let stack = Stack::random(&mut Rng::new(seed), 2000);
        let mut offload = offload(&stack, size, partial || !stack.tcp);
        let flags = [Offload::FIXED_ID, Offload::FIXED_OUTER_ID];
        offload.flags |= fixed.iter().zip(flags).map(|(on, flag)| if *on { flag } else { 0 }).sum::<u8>();
        let frame = if offload.has(Offload::PARTIAL) { stack.partial() } else { stack.frame() };
        let want: Vec<_> = stack.segments(size.into(), fixed).iter().map(Stack::frame).collect();
        prop_assert_eq!(offload.segments(frame.len()), want.len());
        prop_assert_eq!(Some(offload.longest(frame.len())), want.iter().map(Vec::len).max());
        prop_assert_eq!(Offload::NONE.longest(frame.len()), frame.len());
        prop_assert_eq!(cut(&frame, offload), want);
    }

    /// A partial checksum is completed to what the description gives.
    #[test]
    fn a_partial_checksum_is_completed(seed in any::<u64>()) {
        let stack = Stack::random(&mut Rng::new(seed), 300);
        let mut frame = stack.partial();
        let asked = Offload { segment: Segment::None, ..offload(&stack, 0, true) };
        prop_assert!(complete(&mut frame, asked));
        let level = Headers::levels(LinkType::Ethernet, &frame).last();
        prop_assert_eq!(level.map(|level| level.transport_checksum(&frame)), Some(Verdict::Good));
        // The kernel stores 0 as 0xffff, whatever the protocol. Sums of tunnels are right either way.
        let at = stack.l4() + usize::from(asked.checksum_offset);
        let is_zero = stack.frame()[at..at + 2] == [0, 0];
        prop_assert!(is_zero || frame == stack.frame());
        let mut untouched = stack.partial();
        prop_assert!(complete(&mut untouched, Offload::NONE) && untouched == stack.partial());
    }

    /// No input panics.
    #[test]
    fn no_bytes_panic(
        seed in any::<u64>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        keep in any::<prop::sample::Index>(),
        (start, size) in (0_u16..200, any::<u16>()),
        given_start in any::<bool>(),
    ) {
        let stack = Stack::random(&mut Rng::new(seed), 200);
        let mut frame = stack.partial();
        for (at, byte) in flips {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        frame.truncate(frame.len().min(keep.index(2 * frame.len())));
        let mut offload = offload(&stack, size, true);
        if given_start {
            offload.checksum_start = start;
        }
        complete(&mut frame.clone(), offload);
        if let Ok(cut) = Cut::new(&frame, offload) {
            let mut out = vec![0; frame.len()];
            let lens = [0, cut.count() / 2, cut.count() - 1, cut.count()].map(|n| cut.write(&frame, n, &mut out));
            prop_assert!(lens[0] > 0 && lens[2] > 0 && lens[3] == 0);
        }
    }
}

/// Each kind of tunnel around each other.
#[test]
fn every_pair_of_tunnels() {
    for (outer, inner) in Tunnel::ALL.iter().flat_map(|a| Tunnel::ALL.map(|b| (*a, b))) {
        for bits in 0..8 {
            let [a, b, v6] = [1, 2, 4].map(|bit| bits & bit != 0);
            let tunnels = vec![(a, outer), (b, inner)];
            let stack = Stack { tunnels, v6, payload: vec![7; 25], ..Stack::tcp4() };
            let want: Vec<_> = stack.segments(10, [false; 2]).iter().map(Stack::frame).collect();
            assert_eq!(cut(&stack.partial(), offload(&stack, 10, true)), want, "{stack:?}");
        }
    }
}

#[test]
fn numbers_wrap_and_flags_go_where_they_belong() {
    let stack = Stack {
        payload: vec![1; 30],
        seq: u32::MAX - 5,
        id: u16::MAX,
        flags: 0x10 | FIN | PSH | CWR | 0x40,
        ..Stack::tcp4()
    };
    let segments = cut(&stack.partial(), offload(&stack, 10, true));
    let of = |n: usize| {
        let bytes = &segments[n];
        let number = u32::from_be_bytes([bytes[38], bytes[39], bytes[40], bytes[41]]);
        (u16::from_be_bytes([bytes[18], bytes[19]]), number, bytes[47])
    };
    assert_eq!(of(0), (0xffff, 0xffff_fffa, 0xd0));
    assert_eq!(of(1), (0, 4, 0x50));
    assert_eq!(of(2), (1, 14, 0x59));
}

#[test]
fn headers_alone_are_those_of_the_segment() {
    let stack = Stack { payload: vec![1; 30], ..Stack::tcp4() };
    let frame = stack.partial();
    let cut = Cut::new(&frame, offload(&stack, 20, true)).unwrap();
    let mut headers = [0; 54];
    assert!(cut.write_headers(&frame, 1, &mut headers));
    let mut whole = [0; 64];
    assert_eq!((cut.count(), cut.write(&frame, 1, &mut whole)), (2, 64));
    assert_eq!((headers.as_slice(), cut.payload(1)), (&whole[..54], 74..84));
    assert!(!cut.is_empty() && cut.headers_len() == 54);
    // Memory that is too short, a segment behind the last, and another frame.
    assert!(!cut.write_headers(&frame, 0, &mut headers[..53]));
    assert_eq!(cut.write(&frame, 1, &mut whole[..63]), 0);
    assert!(!cut.write_headers(&frame, 2, &mut headers) && cut.payload(2).is_empty());
    assert!(!cut.write_headers(&frame[1..], 0, &mut headers));
    assert!(!cut.write_headers(&frame, usize::MAX, &mut headers));
}

#[test]
fn what_cannot_be_cut_is_named() {
    let plain = Stack { payload: vec![1; 30], ..Stack::tcp4() };
    let ask = offload(&plain, 10, true);
    let refused = |frame: &[u8], offload: Offload| Cut::new(frame, offload).err();
    let frame = plain.partial();
    assert_eq!(refused(&frame, Offload { segment: Segment::None, ..ask }), Some(Uncut::NotAsked));
    assert_eq!(refused(&frame, Offload { segment_bytes: 0, ..ask }), Some(Uncut::NotAsked));
    for other in [Segment::Tcp6, Segment::Udp] {
        assert_eq!(refused(&frame, Offload { segment: other, ..ask }), Some(Uncut::Headers));
    }
    assert_eq!(refused(&frame, Offload { transport_len: 24, ..ask }), Some(Uncut::Headers));
    assert_eq!(refused(&frame, Offload { checksum_start: 30, ..ask }), Some(Uncut::Headers));
    assert_eq!(refused(&frame[..54], ask), Some(Uncut::Headers), "no payload");
    let change = |at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[at] = byte;
        frame
    };
    assert_eq!(refused(&change(20, 0x20), ask), Some(Uncut::Fragment));
    let tunnel = |kind: Tunnel| {
        let stack = Stack { tunnels: vec![(false, kind)], ..plain.clone() };
        (stack.partial(), offload(&stack, 10, true))
    };
    let (mut gre, ask_gre) = tunnel(Tunnel::GreEthernet(false));
    gre[34] |= 0x10; // the key's place is that of a sequence number
    gre[34] &= !0x20;
    assert_eq!(refused(&gre, ask_gre), Some(Uncut::Unrepeatable));
    let deep = Stack { tunnels: vec![(false, Tunnel::Ip); 4], ..plain.clone() };
    assert_eq!(refused(&deep.partial(), offload(&deep, 10, true)), Some(Uncut::TooDeep));
    let texts: std::collections::BTreeSet<_> = Uncut::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), Uncut::ALL.len());
}

/// An authentication header covers the packet, so no part of it can be repeated.
#[test]
fn extension_headers_that_bind_a_packet_are_refused() {
    for (next, body, want) in [
        (51, vec![6, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0], Some(Uncut::Unrepeatable)),
        (44, vec![6, 0, 0, 0, 0, 0, 0, 1], Some(Uncut::Unrepeatable)),
        (60, vec![6, 0, 1, 4, 0, 0, 0, 0], None),
        (0, vec![6, 0, 1, 4, 0, 0, 0, 0], None),
    ] {
        let stack = Stack { v6: true, payload: vec![1; 30], ..Stack::tcp4() };
        let mut frame = stack.partial();
        frame[20] = next;
        frame[19] += body.len() as u8;
        frame.splice(54..54, body.clone());
        let mut ask = offload(&stack, 10, true);
        ask.checksum_start += body.len() as u16;
        assert_eq!(Cut::new(&frame, ask).err(), want, "{next}");
        // Without a length it may be a jumbogram.
        frame[18..20].fill(0);
        let jumbo = if next == 0 { Some(Uncut::Unrepeatable) } else { want };
        assert_eq!(Cut::new(&frame, ask).err(), jumbo, "{next}");
    }
}

/// PPPoE has a length; a frame with an 802.3 length is not cut.
#[test]
fn headers_between_ethernet_and_ip() {
    let stack = Stack { payload: vec![1; 30], ..Stack::tcp4() };
    let plain = stack.partial();
    let mut ask = offload(&stack, 20, true);
    ask.checksum_start += 8;
    let pppoe = |frame: &[u8]| {
        let [high, low] = ((frame.len() - 12) as u16).to_be_bytes();
        let header = [0x88, 0x64, 0x11, 0, 0, 5, high, low, 0, 0x21];
        [&frame[..12], &header, &frame[14..]].concat()
    };
    let want: Vec<_> = stack.segments(20, [false; 2]).iter().map(|s| pppoe(&s.frame())).collect();
    assert_eq!(cut(&pppoe(&plain), ask), want);
    let snap = [&plain[..12], &[0, 78, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &plain[14..]].concat();
    assert_eq!(Cut::new(&snap, ask).err(), Some(Uncut::Unrepeatable));
}

/// The wrong pseudo header of a sender stays wrong in all segments: cutting hides no damage.
#[test]
fn a_wrong_pseudo_header_stays_wrong() {
    let stack = Stack { payload: vec![1; 30], ..Stack::tcp4() };
    let mut frame = stack.partial();
    frame[51] ^= 1;
    for segment in cut(&frame, offload(&stack, 10, true)) {
        let headers = Headers::parse(LinkType::Ethernet, &segment);
        assert_eq!(headers.transport_checksum(&segment), Verdict::Bad);
    }
}
