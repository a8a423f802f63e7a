//! The port mapping in front of the queues: which flows get an entry, and what ends it.

use flowyard_flow::parse;
use flowyard_frame::{Batch, FlowKey, Frame, Lanes, To};

use super::*;
use crate::datapath::noted::QUIET;

/// A batch of one plain frame from each of `sources`, received from `port`.
fn batch(port: u16, sources: &[u8]) -> (Batch, Lanes) {
    let mut batch = Batch::default();
    for src in sources {
        let bytes = udp(*src, 2, 9);
        let mut key = FlowKey::ZERO;
        assert!(parse::fast(&bytes, port, &mut key));
        let mut frame = Frame::unbacked(bytes.len() as u16);
        frame.hash = 7 + u32::from(*src);
        batch.push(frame, key).unwrap();
    }
    let lanes = batch.lanes();
    (batch, lanes)
}

/// As [`busy`], and then the core is idle, so that all frames are counted.
fn front(bed: &mut Bed, port: u32, sources: &[u8]) -> Vec<Option<To>> {
    let to = busy(bed, port, sources);
    for _ in 0..=QUIET {
        bed.datapath.count_if_due(5);
    }
    to
}

/// The destinations of the frames that hit in the mapping. A port's number in the yard is one less.
fn busy(bed: &mut Bed, port: u32, sources: &[u8]) -> Vec<Option<To>> {
    let (mut batch, lanes) = batch(port as u16 - 1, sources);
    let place = |number: u32| u16::try_from(number - 1).ok();
    let known = bed.datapath.front(&mut batch, lanes, Arrival::by(port), &place, 5);
    for lane in lanes.without(known) {
        assert_eq!(batch.actions[lane], flowyard_frame::Action::default(), "unchanged");
    }
    lanes.map(|lane| known.has(lane).then_some(batch.actions[lane].to)).collect()
}

const OUT: fn(u16) -> Option<To> = |port| Some(To::Port(port - 1));

#[test]
fn the_third_frame_of_a_flow_hits_in_the_mapping_and_is_counted() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let flow = entry(1, 0, 5, &[Oxm::exact(Field::EthType, 0x800)], to(2));
    bed.apply(&Change::Flow(Arc::clone(&flow)));
    assert_eq!(front(&mut bed, 1, &[1]), [None]);
    assert_eq!(front(&mut bed, 1, &[1]), [None], "learnt");
    assert_eq!(front(&mut bed, 1, &[1, 1, 1]), [OUT(2); 3]);
    assert_eq!(flow.counts[0].read(), (3, 180, 5));
    assert_eq!(bed.datapath.offloaded(&flow), Some((3, 180)));
    assert_eq!(
        bed.datapath.totals,
        Totals { frames: 3, cached: 3, mapped: 3, front: 3, over: 0, marked: 0 }
    );
    assert_eq!(front(&mut bed, 3, &[1]), [None], "another port is another key");
    let mut mapped = Vec::new();
    bed.datapath.each_mapped(&mut |key, to| mapped.push((key.in_port, key.proto, to)));
    assert_eq!((mapped, bed.datapath.mapped_max()), (vec![(0, 17, To::Port(1))], 64));
}

/// Frames and bytes of a flow are counted together, no later than the times that `noted.rs` says.
#[test]
fn frames_are_counted_when_the_core_is_idle_or_after_a_while_or_before_a_change() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let flow = entry(1, 0, 5, &[Oxm::exact(Field::EthType, 0x800)], to(2));
    bed.apply(&Change::Flow(Arc::clone(&flow)));
    // Because of this one, each source has an entry.
    let other = [Oxm::exact(Field::EthType, 0x800), Oxm::exact(Field::Ipv4Src, 0x0a00_0009)];
    bed.flow(3, 0, 6, &other, to(3));
    (0..2).for_each(|_| drop(front(&mut bed, 1, &[1, 2])));
    let mut wanted = 0;
    let mut send = |bed: &mut Bed, more: u64| {
        assert_eq!(busy(bed, 1, &[1, 2, 1]), [OUT(2); 3]);
        wanted += 3;
        let counted = flow.counts[0].read();
        assert_eq!((counted.0, counted.1), (wanted - more, 60 * (wanted - more)));
        assert_eq!(
            bed.datapath.offloaded(&flow),
            Some((wanted, 60 * wanted)),
            "also what is noted"
        );
    };
    let now = 5; // the time of `busy`
    bed.datapath.count_if_due(now);
    send(&mut bed, 3);
    bed.datapath.count_if_due(now + 1000);
    send(&mut bed, 6);
    for _ in 0..QUIET {
        bed.datapath.count_if_due(now + 2000);
    }
    send(&mut bed, 9);
    for _ in 0..=QUIET {
        bed.datapath.count_if_due(now + 3000);
    }
    send(&mut bed, 3);
    bed.datapath.count_if_due(now + 4000);
    send(&mut bed, 6);
    bed.datapath.count_if_due(now + 60_000_000);
    send(&mut bed, 3);
    bed.datapath.count_if_due(now + 60_001_000);
    bed.datapath.count_if_due(now + 60_002_000);
    send(&mut bed, 3); // a pause, by the clock of the core
    let other = [Oxm::exact(Field::EthType, 0x806)];
    bed.flow(2, 0, 5, &other, to(2));
    assert_eq!(flow.counts[0].read(), (21, 1260, 5));
    // A new entry, too: those of other flows may move.
    (0..2).for_each(|_| drop(front(&mut bed, 1, &[1, 2])));
    let before = flow.counts[0].read().0;
    assert_eq!(busy(&mut bed, 1, &[1, 2, 3]), [OUT(2), OUT(2), None]);
    assert_eq!(flow.counts[0].read().0, before);
    assert_eq!(busy(&mut bed, 1, &[3]), [None], "learnt");
    assert_eq!(flow.counts[0].read().0, before + 2);
}

#[test]
fn a_change_ends_the_entries_that_it_affects_in_the_same_call() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let all = [Oxm::exact(Field::EthType, 0x800)];
    let learn = |bed: &mut Bed| (0..2).for_each(|_| drop(front(bed, 1, &[1, 2])));
    bed.flow(1, 0, 5, &all, to(2));
    learn(&mut bed);
    assert_eq!(front(&mut bed, 1, &[1, 2]), [OUT(2); 2]);
    // A rule that compares a new field; then one that matches one of two flows by a known field.
    let of = |src: u128| [all[0], Oxm::exact(Field::Ipv4Src, 0x0a00_0000 + src)];
    bed.flow(2, 0, 6, &of(1), to(3));
    assert_eq!(front(&mut bed, 1, &[1, 2]), [None, None]);
    learn(&mut bed);
    assert_eq!(front(&mut bed, 1, &[1, 2]), [OUT(3), OUT(2)]);
    bed.flow(3, 0, 7, &of(2), to(4));
    assert_eq!(front(&mut bed, 1, &[1, 2]), [OUT(3), None], "the other flow is not affected");
    // A rule that replaces another; a rule that is removed.
    bed.flow(4, 0, 6, &of(1), to(4));
    assert_eq!(front(&mut bed, 1, &[1]), [None]);
    learn(&mut bed);
    assert_eq!(front(&mut bed, 1, &[1]), [OUT(4)]);
    bed.apply(&Change::FlowGone(entry(4, 0, 6, &of(1), to(4))));
    assert_eq!(front(&mut bed, 1, &[1]), [None]);
    // Changes of the output port and of the input port.
    for (port, config) in [(2, 0x20), (1, 4), (2, 1)] {
        learn(&mut bed);
        assert_eq!(front(&mut bed, 1, &[1]), [OUT(2)]);
        bed.port(port, config, 0);
        learn(&mut bed);
        assert_eq!(front(&mut bed, 1, &[1]), [None], "port {port} {config}");
        bed.port(port, 0, 0);
    }
    learn(&mut bed);
    assert_eq!(front(&mut bed, 1, &[1]), [OUT(2)]);
    bed.apply(&Change::PortGone(2));
    assert_eq!(front(&mut bed, 1, &[1]), [None]);
}

#[test]
fn a_flow_that_is_output_to_in_port_is_mapped_to_the_port_of_each_frame() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    bed.flow(1, 0, 1, &[], to(reserved::IN_PORT));
    for port in [1, 2, 3] {
        let hits: Vec<_> = (0..3).flat_map(|_| front(&mut bed, port, &[port as u8])).collect();
        assert_eq!(hits, [None, None, OUT(port as u16)]);
        let why = bed.datapath.why(&Arrival::by(port).key());
        assert_eq!(why.answer, Answer::Mapped { port });
    }
    // A port that does not forward ends the entries.
    bed.port(2, 0x20, 0);
    assert_eq!(front(&mut bed, 2, &[2]), [None]);
    assert_eq!((bed.ports(2, &udp(1, 2, 9)), bed.ports(3, &udp(1, 2, 9))), (vec![], vec![3]));
}

#[test]
fn only_flows_that_do_nothing_but_output_are_mapped() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let by = |port: u32| [Oxm::exact(Field::InPort, port.into())];
    let goto = |more: Vec<Instruction>| [more, vec![Instruction::GotoTable(1)]].concat();
    let metadata = Instruction::WriteMetadata { value: 1, mask: 1 };
    bed.flow(1, 0, 1, &by(1), goto(vec![metadata]));
    bed.flow(2, 1, 1, &[Oxm::masked(Field::Metadata, 1, 1)], to(2));
    bed.flow(3, 0, 1, &by(2), vec![Instruction::ApplyActions(vec![Action::DecNwTtl, output(1)])]);
    bed.flow(4, 0, 1, &by(3), to(3));
    bed.flow(5, 0, 1, &by(4), to(reserved::FLOOD));
    for (port, out) in [(1, OUT(2)), (2, None), (3, None), (4, None)] {
        let known: Vec<_> = (0..5).flat_map(|_| front(&mut bed, port, &[1])).collect();
        assert_eq!(
            known,
            [[None; 2], [out; 2]].concat().into_iter().chain([out]).collect::<Vec<_>>()
        );
    }
    // The flows of both tables are counted.
    assert_eq!(bed.datapath.offloaded(&entry(1, 0, 1, &by(1), Vec::new())), Some((3, 180)));
    let (mut without, all) = (Bed::new(&settings(Lookup::Merged, 0)), [1; 32]);
    without.flow(1, 0, 1, &[], to(2));
    (0..3)
        .for_each(|_| assert_eq!(front(&mut without, 1, &all), [None; 32], "no cache, no mapping"));
}

/// With more flows than entries, live flows return to the mapping; lookups pause while they miss, and resume when they hit.
#[test]
fn a_full_mapping_ages_and_one_that_misses_is_paused() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 8));
    bed.flow(1, 0, 1, &[Oxm::exact(Field::EthType, 0x800), Oxm::exact(Field::Ipv4Src, 0)], to(3));
    bed.flow(2, 0, 0, &[], to(2));
    let some: Vec<u8> = (0..8).collect();
    let mut rounds = 0;
    while front(&mut bed, 1, &some) != [OUT(2); 8] {
        rounds += 1;
        assert!(rounds < 200, "flows that share a place must all get entries in time");
    }
    // Eight other flows; the first ones have ended.
    let others: Vec<u8> = (8..16).collect();
    rounds = 0;
    while front(&mut bed, 1, &others) != [OUT(2); 8] {
        rounds += 1;
        assert!(rounds < 100_000, "new flows must replace those that have ended");
    }
    // Only flows that cannot have an entry.
    bed.flow(3, 0, 9, &[], vec![Instruction::ApplyActions(vec![Action::DecNwTtl, output(2)])]);
    let vain: Vec<u8> = (16..48).collect();
    (0..100).for_each(|_| assert_eq!(front(&mut bed, 1, &vain), [None; 32]));
    let before = bed.datapath.totals.front;
    bed.apply(&Change::FlowGone(entry(3, 0, 9, &[], Vec::new())));
    for _ in 0..1000 {
        front(&mut bed, 1, &others);
    }
    assert!(bed.datapath.totals.front - before > 4000, "lookups must resume");
}
