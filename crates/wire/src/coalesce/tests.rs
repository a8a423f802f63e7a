//! Coalesced frames, which are cut again; and each rule by itself.

use flowyard_testkit::Rng;
use flowyard_testkit::stacks::{Stack, Tunnel};
use proptest::prelude::*;

use super::*;
use crate::checksum::checksum;
use crate::segment::Cut;

const RULES: Rules = Rules { udp: true, tunnels: true, longest: 65_550 };

/// Sends frames through a table, as a port would, and returns what leaves.
fn coalesce(frames: &[Vec<u8>], rules: Rules) -> Vec<(Vec<u8>, Offload)> {
    let mut table = Table::new(rules);
    let mut slots = vec![Vec::new(); Table::FLOWS];
    let mut out = Vec::new();
    for frame in frames {
        let step = table.offer(frame, false);
        close(&mut table, step.flush, &mut slots, &mut out);
        match step.then {
            Then::Pass => out.push((frame.clone(), Offload::NONE)),
            Then::Open(slot) => slots[slot] = frame.clone(),
            Then::Append { slot, payload, close: is_last } => {
                slots[slot].extend_from_slice(&frame[payload]);
                close(&mut table, if is_last { 1 << slot } else { 0 }, &mut slots, &mut out);
            }
        }
        assert!((table.slots().count_ones() as usize) < Table::FLOWS, "a slot is free");
    }
    close(&mut table, u32::MAX, &mut slots, &mut out);
    assert_eq!(table.slots(), 0);
    out
}

fn close(table: &mut Table, mask: u32, slots: &mut [Vec<u8>], out: &mut Vec<(Vec<u8>, Offload)>) {
    while let Some(slot) = table.oldest(mask) {
        let mut frame = std::mem::take(&mut slots[slot]);
        let offload = table.close(slot, &mut frame).expect("the caller keeps what the steps say");
        out.push((frame, offload));
    }
}

/// What the frames are on a wire.
fn expand(frames: &[(Vec<u8>, Offload)]) -> Vec<Vec<u8>> {
    let cut = |(frame, offload): &(Vec<u8>, Offload)| {
        if offload.is_none() {
            return vec![frame.clone()];
        }
        let cut = Cut::new(frame, *offload).expect("what was coalesced can be cut");
        let of = |n| {
            let mut out = vec![0; cut.len(n)];
            assert_eq!(cut.write(frame, n, &mut out), cut.len(n));
            out
        };
        (0..cut.count()).map(of).collect()
    };
    frames.iter().flat_map(cut).collect()
}

/// The segments of a stack, as frames.
fn frames(stack: &Stack, size: usize, fixed: [bool; 2]) -> Vec<Vec<u8>> {
    stack.segments(size, fixed).iter().map(Stack::frame).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// The segments of a frame become that frame again.
    #[test]
    fn segments_become_the_original(seed in any::<u64>(), size in 40_usize..700, fixed in any::<[bool; 2]>()) {
        let mut stack = Stack::random(&mut Rng::new(seed), 2000);
        // Linux coalesces no IPv4 options, and equal identifications only with DF.
        stack.ip_options &= stack.v6;
        stack.dont_fragment |= fixed[0] || fixed[1];
        let parts = frames(&stack, size, fixed);
        let got = coalesce(&parts, RULES);
        prop_assert_eq!(got.len(), 1);
        let (frame, offload) = &got[0];
        if parts.len() == 1 {
            prop_assert_eq!((frame, *offload), (&parts[0], Offload::NONE));
            return Ok(());
        }
        prop_assert_eq!(frame, &stack.partial());
        let mut want = crate::segment::tests::offload(&stack, size as u16, true);
        let v4 = |levels: &[(bool, Tunnel)]| levels.iter().any(|(v6, _)| !v6);
        if fixed[0] && !stack.v6 {
            want.flags |= Offload::FIXED_ID;
        }
        if fixed[1] && v4(&stack.tunnels) {
            want.flags |= Offload::FIXED_OUTER_ID;
        }
        prop_assert_eq!(*offload, want);
        prop_assert!(expand(&got) == parts);
    }

    /// Whatever comes, in whatever order and condition: cut again, each flow has the same frames in the same
    /// order.
    #[test]
    fn every_flow_gets_its_frames_back(
        seed in any::<u64>(),
        flows in 1_u8..14,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0_u8..8), 0..12),
        udp in any::<bool>(),
    ) {
        let mut rng = Rng::new(seed);
        let mut queues: Vec<Vec<Vec<u8>>> = (0..flows).map(|flow| {
            let stack = Stack { host: flow + 1, ..Stack::random(&mut rng, 900) };
            let fixed = [rng.below(2) == 0, rng.below(2) == 0];
            let mut frames = frames(&stack, 20 + rng.below(200) as usize, fixed);
            frames.iter_mut().for_each(|frame| frame[11] = flow);
            frames
        }).collect();
        for (flow, frame, kind) in damage {
            let queue = &mut queues[flow.index(usize::from(flows))];
            let at = frame.index(queue.len());
            let len = queue[at].len();
            match kind {
                0 => queue[at].push(0),
                1 => queue[at].truncate(len.max(59) - 1),
                2 => queue.swap(0, at),
                3 if len > 58 => queue[at][len - 1] ^= 4,
                4 => queue[at][20] ^= 0x20,
                5 => queue[at].truncate(58), // the outermost addresses are still here
                6 => { let copy = queue[at].clone(); queue.insert(at, copy); }
                _ => queue[at][6] ^= 1,
            }
        }
        let mut mixed = Vec::new();
        let mut left = queues.clone();
        while left.iter().any(|queue| !queue.is_empty()) {
            let queue = &mut left[rng.below(u64::from(flows)) as usize];
            let burst = 1 + rng.below(4) as usize;
            mixed.extend(queue.drain(..burst.min(queue.len())));
        }
        let got = expand(&coalesce(&mixed, Rules { udp, ..RULES }));
        prop_assert_eq!(got.len(), mixed.len());
        for (flow, queue) in queues.iter().enumerate() {
            let of_flow: Vec<_> = got.iter().filter(|frame| usize::from(frame[11]) == flow).cloned().collect();
            prop_assert!(of_flow == *queue, "flow {}", flow);
        }
    }

    /// No input panics.
    #[test]
    fn no_bytes_panic(
        seed in any::<u64>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        keep in any::<prop::sample::Index>(),
        checked in any::<bool>(),
    ) {
        let stack = Stack::random(&mut Rng::new(seed), 100);
        let mut table = Table::new(RULES);
        let mut frame = stack.frame();
        table.offer(&frame, checked);
        for (at, byte) in flips {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        frame.truncate(frame.len().min(keep.index(2 * frame.len())));
        table.offer(&frame, checked);
        for slot in 0..Table::FLOWS + 1 {
            table.close(slot, &mut frame);
        }
    }
}

/// Two frames of 10 bytes each.
fn pair(change: impl Fn(&mut Stack, usize)) -> Vec<Vec<u8>> {
    let stack = Stack { payload: (0..20).collect(), ..Stack::tcp4() };
    let change = |(n, mut stack): (usize, Stack)| {
        change(&mut stack, n);
        stack.frame()
    };
    stack.segments(10, [false; 2]).into_iter().enumerate().map(change).collect()
}

/// The number of frames that leave.
fn left(frames: &[Vec<u8>]) -> usize {
    let got = coalesce(frames, RULES);
    assert_eq!(expand(&got), frames);
    got.len()
}

#[test]
fn each_rule_by_itself() {
    type Change = fn(&mut Stack, usize);
    let rules: [(&str, usize, Change); 24] = [
        ("nothing", 1, |_, _| ()),
        ("TTL", 2, |s, n| s.ttl += n as u8),
        ("TOS", 2, |s, n| s.tos += n as u8 * 4),
        ("ECN of IP", 2, |s, n| s.tos += n as u8),
        ("DF", 2, |s, n| s.dont_fragment = n == 0),
        ("no DF, counted", 1, |s, _| s.dont_fragment = false),
        ("no DF, equal", 2, |s, _| (s.dont_fragment, s.id) = (false, 3)),
        ("DF, equal", 1, |s, _| s.id = 3),
        ("a gap of identifications", 2, |s, n| s.id += n as u16),
        ("a gap of the sequence", 2, |s, n| s.seq += n as u32),
        ("an overlap", 2, |s, n| s.seq -= n as u32),
        ("acknowledgement", 2, |s, n| s.ack += n as u32),
        ("window", 2, |s, n| s.window += n as u16),
        ("ECE", 2, |s, n| s.flags |= n as u8 * ECE),
        ("ECE in both", 1, |s, _| s.flags |= ECE),
        ("CWR in the first", 1, |s, n| s.flags |= (1 - n as u8) * CWR),
        ("CWR in the second", 2, |s, n| s.flags |= n as u8 * CWR),
        ("PSH in the first", 2, |s, n| s.flags |= (1 - n as u8) * PSH),
        ("PSH in the second", 1, |s, n| s.flags |= n as u8 * PSH),
        ("FIN in the second", 1, |s, n| s.flags |= n as u8 * FIN),
        ("options", 2, |s, n| s.tcp_options = vec![1, 1, 1, n as u8]),
        ("equal options", 1, |s, _| s.tcp_options = vec![1, 1, 1, 1]),
        ("tag", 2, |s, n| s.vlan = Some(n as u16)),
        ("options of IPv4", 2, |s, _| s.ip_options = true),
    ];
    for (name, count, change) in rules {
        assert_eq!(left(&pair(change)), count, "{name}");
    }
    for (name, flags) in [("SYN", 2), ("RST", 4), ("URG", 32)] {
        assert_eq!(left(&pair(|s, _| s.flags |= flags)), 2, "{name}");
        assert_eq!(left(&pair(|s, n| s.flags |= n as u8 * flags)), 2, "{name}");
    }
    assert_eq!(left(&pair(|s, _| s.flags = 0)), 2, "no ACK");
    assert_eq!(left(&pair(|s, n| s.host += n as u8)), 2, "another flow");
    for (name, at) in [("MAC", 3), ("urgent pointer", 53)] {
        let mut frames = pair(|_, _| ());
        frames[1][at] ^= 1;
        assert_eq!(left(&frames), 2, "{name}, and a wrong checksum");
    }
}

#[test]
fn the_lengths_of_the_first_and_the_last() {
    let stack = Stack { payload: vec![3; 25], ..Stack::tcp4() };
    let mut parts = frames(&stack, 10, [false; 2]);
    let next =
        Stack { seq: stack.seq + 25, id: stack.id + 3, payload: vec![4; 10], ..stack.clone() };
    parts.push(next.frame());
    assert_eq!(left(&parts), 2, "behind a shorter frame, a new one begins");
    let longer = Stack { seq: stack.seq + 10, id: stack.id + 1, payload: vec![4; 11], ..stack };
    assert_eq!(left(&[parts[0].clone(), longer.frame()]), 2, "a longer frame begins a new one");
}

#[test]
fn damaged_padded_and_unsummed_frames_stay_alone() {
    let udp = |s: &mut Stack, _: usize| s.tcp = false;
    assert_eq!(left(&pair(udp)), 1);
    assert_eq!(coalesce(&pair(udp), Rules { udp: false, ..RULES }).len(), 2);
    let mut unsummed = pair(udp);
    unsummed.iter_mut().for_each(|frame| frame[40..42].fill(0));
    assert_eq!(left(&unsummed), 2);
    for frames in [pair(|_, _| ()), pair(|s, _| s.v6 = true)] {
        assert_eq!(left(&frames), 1);
        for which in 0..2 {
            let mut padded = frames.clone();
            padded[which].push(0);
            assert_eq!(left(&padded), 2);
            let mut damaged = frames.clone();
            *damaged[which].last_mut().unwrap() ^= 1;
            assert_eq!(left(&damaged), 2);
        }
    }
    let mut header = pair(|_, _| ());
    header[1][24] ^= 1;
    assert_eq!(left(&header), 2, "the IPv4 checksum");
    // If an adapter has verified the checksums, they are not verified again.
    let mut frames = pair(|_, _| ());
    frames[0][54] ^= 1;
    let mut table = Table::new(RULES);
    assert!(matches!(table.clone().offer(&frames[0], false).then, Then::Pass));
    assert!(matches!(table.offer(&frames[0], true).then, Then::Open(_)));
}

/// 0xffff is the same sum as 0, but not the same bytes.
#[test]
fn a_checksum_that_we_would_write_otherwise() {
    let mut stack = Stack { payload: vec![0; 2], ..Stack::tcp4() };
    let check = |stack: &Stack| u16::from_be_bytes([stack.frame()[50], stack.frame()[51]]);
    stack.payload = check(&stack).to_be_bytes().to_vec();
    assert_eq!(check(&stack), 0);
    let second = Stack { seq: stack.seq + 2, id: stack.id + 1, ..stack.clone() };
    let mut frames = [stack.frame(), second.frame()];
    assert_eq!(left(&frames), 1);
    frames[0][50..52].fill(0xff);
    assert_eq!(checksum(&frames[0][14..34]), 0, "IPv4 is still right");
    assert_eq!(left(&frames), 2);
}

#[test]
fn frames_of_a_flow_do_not_overtake() {
    let stack = Stack { payload: vec![3; 30], ..Stack::tcp4() };
    let mut parts = frames(&stack, 10, [false; 2]);
    let ack = Stack { payload: Vec::new(), ..stack.clone() };
    parts.insert(2, ack.frame());
    let mut fragment = stack.frame();
    fragment[20] = 0x20;
    parts.insert(2, fragment);
    let got = coalesce(&parts, RULES);
    assert_eq!((got.len(), expand(&got)), (4, parts));
}

#[test]
fn tunnels_are_left_alone_if_the_rules_say_so() {
    for tunnel in Tunnel::ALL {
        let tunnels = vec![(true, tunnel)];
        let stack = Stack { tunnels, payload: vec![3; 30], ..Stack::tcp4() };
        let parts = frames(&stack, 10, [false; 2]);
        assert_eq!(coalesce(&parts, RULES).len(), 1, "{tunnel:?}");
        assert_eq!(coalesce(&parts, Rules { tunnels: false, ..RULES }).len(), 3, "{tunnel:?}");
    }
}

/// Kernels cannot cut a long frame whose IP header is not right behind Ethernet and its tags.
#[test]
fn frames_with_pppoe_or_labels_are_left_alone_if_the_rules_say_so() {
    let stack = Stack { payload: vec![3; 30], ..Stack::tcp4() };
    let parts = frames(&stack, 10, [false; 2]);
    let behind = |header: fn(usize) -> Vec<u8>| {
        let insert = |part: &Vec<u8>| [&part[..12], &header(part.len() - 14), &part[14..]].concat();
        parts.iter().map(insert).collect::<Vec<_>>()
    };
    let plain = Rules { tunnels: false, ..RULES };
    // Session 1 of PPPoE with the protocol IPv4; the length has the two bytes of the protocol, too.
    let pppoe = behind(|len| {
        let [high, low] = (len as u16 + 2).to_be_bytes();
        vec![0x88, 0x64, 0x11, 0, 0, 1, high, low, 0, 0x21]
    });
    let label = behind(|_| vec![0x88, 0x47, 0, 1, 1, 64]);
    for (name, parts) in [("pppoe", pppoe), ("mpls", label)] {
        assert_eq!(coalesce(&parts, RULES).len(), 1, "{name}");
        let got = coalesce(&parts, plain);
        assert_eq!((got.len(), expand(&got)), (3, parts), "{name}");
    }
    let tagged = behind(|_| vec![0x81, 0, 0, 7, 8, 0]);
    assert_eq!(coalesce(&tagged, plain).len(), 1);
}

/// A packet whose tunnel header is damaged is one without a tunnel, between the same addresses.
#[test]
fn a_damaged_tunnel_does_not_overtake() {
    let tunnels = vec![(false, Tunnel::Vxlan(false))];
    let stack = Stack { tunnels, payload: vec![3; 30], ..Stack::tcp4() };
    let mut parts = frames(&stack, 10, [false; 2]);
    parts[1][42] = 0; // the flag of VXLAN
    assert_eq!(Headers::levels(LinkType::Ethernet, &parts[1]).count(), 1);
    let got = coalesce(&parts, RULES);
    assert_eq!((got.len(), expand(&got)), (3, parts));
}

#[test]
fn more_flows_than_slots_and_longer_than_a_packet() {
    let flow = |host: u8| Stack { host, payload: vec![3; 20], ..Stack::tcp4() };
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for host in 1..=Table::FLOWS as u8 + 3 {
        let [a, b] = frames(&flow(host), 10, [false; 2]).try_into().unwrap();
        first.push(a);
        second.push(b);
    }
    let got = coalesce(&[first, second].concat(), RULES);
    assert_eq!(expand(&got).len(), 2 * (Table::FLOWS + 3));
    let long = Stack { payload: vec![3; 65_000], ..Stack::tcp4() };
    let mut parts = frames(&long, 1000, [false; 2]);
    let more = Stack { seq: long.seq + 65_000, id: long.id + 65, payload: vec![4; 3000], ..long };
    parts.extend(frames(&more, 1000, [false; 2]));
    let got = coalesce(&parts, RULES);
    assert_eq!((got.len(), got[0].0.len()), (2, 65_054));
    assert_eq!(expand(&got), parts);
    let got = coalesce(&parts, Rules { longest: 3054, ..RULES });
    assert_eq!((got.len(), got[0].0.len()), (23, 3054));
    // The longest IPv4 packet, counted from its header.
    let many = Stack { payload: vec![5; 66_000], ..Stack::tcp4() };
    let parts: Vec<_> = many.segments(495, [false; 2]).iter().map(Stack::frame).collect();
    let got = coalesce(&parts, Rules { longest: 100_000, ..RULES });
    assert_eq!((got[0].0.len(), got.len()), (54 + 132 * 495, 2));
}

#[test]
fn a_slot_that_is_not_open_or_has_another_frame() {
    let mut table = Table::new(RULES);
    let mut frame = pair(|_, _| ()).remove(0);
    assert_eq!((table.close(0, &mut frame), table.close(99, &mut frame)), (None, None));
    let Step { flush: 0, then: Then::Open(slot) } = table.offer(&frame, false) else {
        panic!("the first frame opens a slot");
    };
    let before = frame.clone();
    frame.push(1);
    assert_eq!(table.close(slot, &mut frame), None);
    assert_eq!((table.slots(), &frame[..before.len()]), (0, &before[..]));
}
