//! What stays long, what is cut in front of the tables, and how it is counted.

use flowyard_openflow::Oxm;
use flowyard_openflow::act::{Action as Act, Instruction};
use flowyard_openflow::flow::InReason;
use flowyard_openflow::group::{Band, GroupType, meter_flags};

use super::rules::meter;
use super::*;

const SIZE: u16 = 1000;

/// A TCP frame of some segments, and what is left to do to it.
fn long(segments: usize, change: impl FnOnce(&mut Stack)) -> (Vec<u8>, Offload) {
    let payload = vec![7; segments * usize::from(SIZE)];
    let mut stack = Stack { payload, flags: 0x18, ..Stack::tcp4() };
    change(&mut stack);
    (stack.partial(), left(&stack, SIZE, true, 0))
}

fn to(port: u32) -> Act {
    Act::Output { port, max_len: 0xffff }
}

fn set(field: Field, value: u128) -> Act {
    Act::SetField(Oxm::exact(field, value))
}

/// A flow of table 0.
fn flow(priority: u16, matching: &[Oxm], actions: &[Act]) -> (u8, u16, Vec<Oxm>, Vec<Instruction>) {
    (0, priority, matching.to_vec(), vec![Instruction::ApplyActions(actions.to_vec())])
}

/// Two equal switches with these flows.
fn twins(flows: &[(u8, u16, Vec<Oxm>, Vec<Instruction>)]) -> [Bed; 2] {
    let rules = Rules { flows: flows.to_vec(), groups: Vec::new() };
    [(); 2].map(|()| bed(&rules, 64, 8))
}

/// How many frames leave, and how many of them are long.
fn seen(leaves: &[Leaves]) -> (usize, usize) {
    (leaves.len(), leaves.iter().filter(|(.., left)| left.segment != Segment::None).count())
}

#[test]
fn rewritten_and_tagged_frames_stay_long_and_are_counted_once() {
    let actions = [
        set(Field::Ipv4Dst, 0x0a09_0001),
        set(Field::TcpDst, 8080),
        Act::DecNwTtl,
        Act::PushVlan(0x8100),
        set(Field::VlanVid, 0x1005),
        to(7),
        Act::PopVlan,
        to(8),
    ];
    let mut twins = twins(&[flow(1, &[], &actions)]);
    let (frame, left) = long(20, |_| ());
    for _ in 0..3 {
        let leaves = compare(&mut twins, &frame, left);
        assert_eq!(seen(&leaves), (2, 2));
        let lens: Vec<_> = leaves.iter().map(|(port, bytes, _)| (*port, bytes.len())).collect();
        assert_eq!(lens, [(1, frame.len() + 4), (2, frame.len())]);
        let starts: Vec<_> = leaves.iter().map(|(.., left)| left.checksum_start).collect();
        assert_eq!(starts, [left.checksum_start + 4, left.checksum_start]);
    }
    let bytes = frame.len() as u64;
    let wanted = [[3, 3 * bytes, 0, 0], [0, 0, 3, 3 * (bytes + 4)], [0, 0, 3, 3 * bytes], [0; 4]];
    assert_eq!(twins[0].stats(), wanted);
    let totals = twins[0].cores[0].datapath().totals;
    assert_eq!((totals.frames, totals.cached), (3, 2));
}

/// Flows that change the kind of headers cost other flows nothing, once the cache knows these.
#[test]
fn frames_are_cut_in_front_of_flows_that_change_the_kind_of_headers() {
    let port = |port: u128| [Oxm::exact(Field::TcpDst, port)];
    let hard = [Act::PushMpls(0x8847), set(Field::MplsLabel, 5), to(7)];
    let flows = [flow(1, &port(80), &hard), flow(1, &port(443), &[Act::DecNwTtl, to(7)])];
    let mut twins = twins(&flows);
    let (mpls, left) = long(5, |_| ());
    let (plain, _) = long(5, |stack| stack.ports.1 = 443);
    for n in 0..3 {
        assert_eq!(seen(&compare(&mut twins, &mpls, left)), (5, 0));
        let whole = if n == 0 { (5, 0) } else { (1, 1) };
        assert_eq!(seen(&compare(&mut twins, &plain, left)), whole);
    }
    // Short frames are not cut; their checksum is completed before.
    let short = Stack { payload: vec![1; 99], ..Stack::tcp4() };
    let rest = super::left(&short, 0, true, 0);
    let leaves = compare(&mut twins, &short.partial(), rest);
    assert_eq!((leaves.len(), leaves[0].2), (1, Offload::NONE));
    // When the flow is gone, nothing is cut.
    let gone = Rules { flows: vec![flow(1, &port(80), &hard)], groups: Vec::new() }.entries();
    for bed in &mut twins {
        let changes: Changes = [(99, Change::FlowGone(Arc::clone(&gone[0])))].into();
        let Message::Control(message) = change_message(changes) else { panic!("another") };
        bed.cores[0].control(&message, 0, &mut |_, _| ());
    }
    let (other, _) = long(5, |stack| (stack.ports.1, stack.v6) = (443, true));
    let left = Offload { segment: Segment::Tcp6, checksum_start: 54, ..left };
    assert_eq!(seen(&compare(&mut twins, &other, left)), (1, 1), "at its first frame");
}

#[test]
fn groups_that_change_the_kind_of_headers_concern_flows_that_name_a_group() {
    let port = |port: u128| [Oxm::exact(Field::TcpDst, port)];
    let flows = vec![flow(1, &port(80), &[Act::Group(1)]), flow(1, &port(443), &[to(7)])];
    let groups = vec![(GroupType::All, vec![vec![Act::PushPbb(0x88e7), to(7)], vec![to(8)]])];
    let rules = Rules { flows, groups };
    let mut twins = [(); 2].map(|()| bed(&rules, 64, 8));
    let (frame, left) = long(5, |_| ());
    let (plain, _) = long(5, |stack| stack.ports.1 = 443);
    for n in 0..3 {
        assert_eq!(seen(&compare(&mut twins, &frame, left)), (10, 0));
        let whole = if n == 0 { (5, 0) } else { (1, 1) };
        assert_eq!(seen(&compare(&mut twins, &plain, left)), whole);
    }
}

/// The copies of a long frame would exceed the budget of a frame; those of each segment do not.
#[test]
fn frames_are_cut_in_front_of_groups_with_many_buckets() {
    let bucket = |n: u32| vec![set(Field::Ipv4Dst, n.into()), to(7)];
    for (buckets, long_ones) in [(300, 0), (20, 20)] {
        let flows = vec![flow(1, &[], &[Act::Group(1)])];
        let groups = vec![(GroupType::All, (0..buckets).map(bucket).collect())];
        let mut twins =
            [(); 2].map(|()| bed(&Rules { flows: flows.clone(), groups: groups.clone() }, 64, 32));
        let (frame, left) = long(if long_ones == 0 { 10 } else { 60 }, |_| ());
        let leaves = compare(&mut twins, &frame, left);
        assert_eq!(seen(&leaves).1, long_ones);
    }
}

/// PSH is in the last segment only: a rule that compares it sees each segment.
#[test]
fn frames_are_cut_if_rules_compare_flags_in_which_segments_differ() {
    let push = |mask| [Oxm { field: Field::TcpFlags, value: mask, mask }];
    let flows = |mask| [flow(2, &push(mask), &[to(8)]), flow(1, &[], &[to(7)])];
    for (mask, flags, whole) in [
        (0x08, 0x18, (5, 0)),
        (0x08, 0x10, (1, 1)),
        (0x01, 0x11, (5, 0)),
        (0x80, 0x90, (5, 0)),
        (0x10, 0x18, (1, 1)),
        (0x02, 0x18, (1, 1)),
    ] {
        let mut twins = twins(&flows(mask));
        let (frame, left) = long(5, |stack| stack.flags = flags);
        for _ in 0..3 {
            assert_eq!(seen(&compare(&mut twins, &frame, left)), whole, "{mask:x} {flags:x}");
        }
    }
}

/// A frame that the port mapping would answer by the flags of all of its segments.
#[test]
fn the_port_mapping_does_not_answer_frames_whose_segments_differ() {
    let push = [Oxm { field: Field::TcpFlags, value: 8, mask: 8 }];
    let flows = [flow(2, &push, &[to(8)]), flow(1, &[], &[to(7)])];
    let mut twins = twins(&flows);
    for (flags, known) in [(0x10, 1), (0x18, 0)] {
        let (frame, left) = long(1, |stack| stack.flags = flags);
        let mut key =
            flowyard_flow::parse::key(&Headers::parse(LinkType::Ethernet, &frame), &frame, 0);
        key.in_port = 0;
        for n in 0..3 {
            let mut batch = Batch::default();
            let meta = Meta { wire_len: frame.len() as u32, offload: left, ..Meta::default() };
            let mut one = twins[0].pool.copy(&frame, meta).expect("a buffer");
            one.hash = 0x1234_5678 + u32::from(flags) * 0x1_0000;
            batch.push(one, key).expect("a lane");
            let lanes = batch.lanes();
            let found = twins[0].cores[0].front(&mut batch, lanes, 9).count();
            assert_eq!(found, if n < 2 { 0 } else { known }, "{flags:x}, frame {n}");
            twins[0].pool.put_batch(&mut batch);
        }
    }
}

#[test]
fn controllers_get_finished_segments() {
    let flows = [flow(1, &[], &[Act::PushVlan(0x8100), to(reserved::CONTROLLER), to(7)])];
    let mut twins = twins(&flows);
    let (frame, left) = long(4, |_| ());
    let whole = pass(&mut twins[0], &frame, left).expect("it leaves");
    assert_eq!(seen(&whole), (1, 1));
    let punts: Vec<_> = twins[0].hub.punts().try_iter().collect();
    let frames = finished(&whole[0].1, whole[0].2);
    assert_eq!(
        punts.iter().map(|punt| &punt.frame).collect::<Vec<_>>(),
        frames.iter().collect::<Vec<_>>()
    );
    assert!(punts.iter().all(|punt| (punt.reason, punt.table) == (InReason::Action, 0)));
    // A batch has room for PUNTS of them.
    let (frame, left) = long(PUNTS / 2 + 5, |_| ());
    let left = Offload { segment_bytes: SIZE / 2, ..left };
    assert_eq!(pass(&mut twins[0], &frame, left).expect("it leaves").len(), 1);
    let got = twins[0].hub.punts().try_iter().count();
    assert_eq!((got, twins[0].hub.punts_lost()), (PUNTS, 10));
}

/// A frame of 20 segments costs the rate of 20 packets, and is counted as one.
#[test]
fn a_meter_in_packets_is_charged_for_each_segment() {
    let flags = meter_flags::PKTPS | meter_flags::BURST;
    let band = Band::Drop { rate: 1000, burst: 50 };
    let then = vec![Instruction::Meter(9), Instruction::ApplyActions(vec![to(7)])];
    let mut twins = twins(&[(0, 1, Vec::new(), then)]);
    let limit = meter(9, flags, band);
    let changes: Changes = [(99, Change::Meter(Arc::clone(&limit)))].into();
    let Message::Control(message) = change_message(changes) else { panic!("another") };
    twins[0].cores[0].control(&message, 0, &mut |_, _| ());
    let (frame, left) = long(20, |_| ());
    let passed: Vec<_> = (0..4).map(|_| pass(&mut twins[0], &frame, left).is_ok()).collect();
    assert_eq!(passed, [true, true, false, false]);
    assert_eq!((limit.counts[0].read().0, limit.counts[0].read().1), (4, 4 * frame.len() as u64));
    assert_eq!(limit.bands[0].read().0, 2);
}

/// The longest frame has no room for a tag. Nothing is lost: its segments leave.
#[test]
fn a_frame_that_becomes_too_long_leaves_in_segments() {
    let mut twins = twins(&[flow(1, &[], &[Act::PushVlan(0x8100), to(7), to(8)])]);
    let longest = twins[0].pool.longest_large();
    for (more, whole) in [(4, (2, 2)), (3, (2 * 66, 0)), (0, (2 * 66, 0))] {
        let (frame, left) = long(1, |stack| stack.payload = vec![7; longest - more - 54]);
        assert_eq!(frame.len(), longest - more);
        assert_eq!(seen(&compare(&mut twins, &frame, left)), whole, "{more}");
    }
    // A long frame in a buffer of the first size that is full.
    let room = twins[0].pool.longest();
    let (frame, left) = long(1, |stack| stack.payload = vec![7; room - 54]);
    let (count, long) = seen(&compare(&mut twins, &frame, left));
    assert_eq!((count, long), (3, 1), "one copy has a long buffer");
}
