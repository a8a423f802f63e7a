//! Outputs to ports, the learning bridge, faults and the choice of a bucket.

use flowyard_openflow::flow::InReason;

use super::*;

fn apply(actions: &[Action]) -> Vec<Instruction> {
    vec![Instruction::ApplyActions(actions.to_vec())]
}

#[test]
fn a_frame_goes_back_to_its_port_only_by_in_port() {
    for cache in [0, 64] {
        let mut bed = Bed::new(&settings(Lookup::Merged, cache));
        let by = |port: u32| [Oxm::exact(Field::InPort, port.into())];
        bed.flow(1, 0, 1, &by(1), to(1));
        bed.flow(2, 0, 1, &by(2), apply(&[output(2), output(3)]));
        bed.flow(3, 0, 1, &by(3), to(reserved::IN_PORT));
        bed.flow(4, 0, 1, &by(4), to(reserved::NORMAL));
        for _ in 0..3 {
            assert_eq!(bed.ports(1, &udp(1, 2, 9)), []);
            assert_eq!(bed.out.reason, Some(Reason::Filtered));
            assert_eq!(bed.ports(2, &udp(1, 2, 9)), [3]);
            assert_eq!(bed.ports(3, &udp(1, 2, 9)), [3]);
        }
        // The port mapping answers what it sends on, and nothing else.
        assert_eq!(bed.datapath.totals.mapped, if cache == 0 { 0 } else { 2 });
        // Both stations are behind port 4, so the bridge has nothing to do.
        assert_eq!(bed.ports(4, &udp(7, 8, 9)), [1, 2, 3]);
        for _ in 0..3 {
            assert_eq!(bed.ports(4, &udp(8, 7, 9)), []);
            assert_eq!(bed.out.reason, Some(Reason::Filtered));
        }
    }
}

#[test]
fn a_flood_leaves_out_ports_by_each_of_their_bits() {
    // OFPPC_PORT_DOWN, NO_FWD, NO_FLOOD, others; OFPPS_LINK_DOWN, BLOCKED, LIVE.
    for (config, state, floods, all) in [
        (0, 0, true, true),
        (1, 0, false, false),
        (0x20, 0, false, false),
        (0x10, 0, false, true),
        (0, 1, false, false),
        (0, 2, false, true),
        (0, 4, true, true),
        (0x40, 4, true, true),
        (0x10, 2, false, true),
    ] {
        let mut bed = Bed::new(&settings(Lookup::Merged, 64));
        bed.flow(1, 0, 1, &[Oxm::exact(Field::InPort, 1)], to(reserved::FLOOD));
        bed.flow(2, 0, 1, &[Oxm::exact(Field::InPort, 2)], to(reserved::ALL));
        bed.flow(3, 0, 1, &[Oxm::exact(Field::InPort, 4)], to(3));
        bed.port(3, config, state);
        let frame = udp(1, 2, 9);
        let name = format!("{config:x} {state:x}");
        assert_eq!(bed.ports(1, &frame).contains(&3), floods, "{name}");
        assert_eq!(bed.ports(2, &frame).contains(&3), all, "{name}");
        assert_eq!(bed.ports(4, &frame).contains(&3), all, "{name}: an output by number");
        bed.port(3, 0, 0);
        assert_eq!((bed.ports(1, &frame), bed.ports(2, &frame)), (vec![2, 3, 4], vec![1, 3, 4]));
    }
}

#[test]
fn at_most_256_stations_wait_for_the_other_cores() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    bed.flow(1, 0, 1, &[], to(reserved::NORMAL));
    let from = |n: u16| {
        let mut frame = udp(1, 2, 9);
        frame[10..12].copy_from_slice(&n.to_be_bytes());
        frame
    };
    for n in 0..300 {
        bed.frame(1, &from(0x4000 + n));
        assert_eq!(bed.out.seen.len(), usize::from(n + 1).min(256));
    }
    // A station that is known is not reported again, unless it moves.
    bed.out.seen.clear();
    bed.frame(1, &from(0x4000));
    assert_eq!(bed.out.seen.len(), 0);
    bed.frame(2, &from(0x4000));
    assert_eq!(bed.out.seen.len(), 1);
    assert_eq!((bed.out.seen[0].port, bed.out.seen[0].vlan), (2, 0));
    assert_eq!(bed.out.seen[0].mac, [2, 0, 0, 0, 0x40, 0]);
}

#[test]
fn a_fault_drops_the_frame_with_its_reason_and_only_an_expired_ttl_is_reported() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let by = |port: u32| [Oxm::exact(Field::InPort, port.into())];
    bed.flow(1, 0, 1, &by(1), apply(&[Action::DecNwTtl, output(2)]));
    bed.flow(2, 0, 1, &by(2), apply(&[Action::PushVlan(0x8100), output(1)]));
    // In the action set of a flow, too.
    let set = vec![Instruction::WriteActions(vec![Action::DecNwTtl, output(1)])];
    bed.flow(3, 0, 1, &by(3), set);
    let mut punts = |port, frame: &[u8], reason| {
        bed.datapath.process(frame, Arrival::by(port), 0, &mut bed.out);
        assert!(bed.out.sent.is_empty(), "port {port}");
        assert_eq!(bed.out.reason, Some(reason), "port {port}");
        let punts: Vec<_> = bed.out.punts.drain(..).collect();
        punts.into_iter().map(|punt| (punt.reason, punt.frame, punt.cookie)).collect::<Vec<_>>()
    };
    let late = udp(1, 2, 1);
    for _ in 0..2 {
        let wanted = [(InReason::InvalidTtl, late.clone(), 1)];
        assert_eq!(punts(1, &late, Reason::Ttl), wanted);
        let wanted = [(InReason::InvalidTtl, late.clone(), 3)];
        assert_eq!(punts(3, &late, Reason::Ttl), wanted);
        let mut long = udp(1, 2, 9);
        long.resize(0xffff, 0);
        assert_eq!(punts(2, &long, Reason::TooLong), []);
    }
}

#[test]
fn punts_that_find_no_room_are_counted() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    bed.flow(1, 0, 1, &[], to(reserved::CONTROLLER));
    bed.out = Effects::new(3);
    for n in 1..=5 {
        bed.datapath.process(&udp(1, 2, 9), Arrival::by(1), 0, &mut bed.out);
        let lost = u64::saturating_sub(n, 3);
        assert_eq!((bed.out.punts.len() as u64, bed.out.punts_lost), (n.min(3), lost));
    }
    assert_eq!(bed.out.punts[0].frame, udp(1, 2, 9));
    assert_eq!((bed.out.punts[0].in_port, bed.out.punts[0].max_len), (1, 0xffff));
}

/// The buckets that frames take which differ in one place.
fn spread(place: impl Fn(&mut Vec<u8>, u8)) -> usize {
    let mut bed = Bed::new(&settings(Lookup::Merged, 0));
    let any = reserved::ANY;
    let buckets = [2, 3, 4].map(|port| bucket(1, any, &[output(port)])).to_vec();
    bed.group(1, GroupType::Select, buckets);
    bed.flow(1, 0, 1, &[], apply(&[Action::Group(1)]));
    let mut taken = std::collections::BTreeSet::new();
    for n in 0..32 {
        let mut frame = udp(1, 2, 9);
        place(&mut frame, n);
        taken.extend(bed.ports(1, &frame));
    }
    taken.len()
}

#[test]
fn a_bucket_is_chosen_by_the_headers_of_a_flow_and_by_nothing_else() {
    let tag = |frame: &mut Vec<u8>, tci: u16| {
        let [high, low] = tci.to_be_bytes();
        drop(frame.splice(12..12, [0x81, 0, high, low]));
    };
    // Addresses and ports: 32 flows take all three buckets (the chance that they do not is 10^-5).
    for at in [5, 11, 29, 33, 35, 37] {
        assert_eq!(spread(|frame, n| frame[at] = n), 3, "byte {at}");
    }
    assert_eq!(spread(|frame, n| tag(frame, u16::from(n))), 3, "VLAN");
    assert_eq!(spread(|frame, n| frame[23] = 100 + n), 3, "protocol");
    let label = |frame: &mut Vec<u8>, n: u8| {
        frame[12..14].copy_from_slice(&[0x88, 0x47]);
        frame[14..18].copy_from_slice(&[0, n, 1, 9]);
    };
    assert_eq!(spread(label), 3, "MPLS label");
    // DSCP, ECN, TTL, identification, and the payload may change within a flow.
    for at in [15, 18, 22, 45] {
        assert_eq!(spread(|frame, n| frame[at] = n), 1, "byte {at}");
    }
    let flags = |frame: &mut Vec<u8>, n: u8| {
        frame[23] = 6;
        frame[17] = 40;
        frame[46] = 0x50;
        frame[47] = n;
    };
    assert_eq!(spread(flags), 1, "TCP flags");
}

/// A path is cached although it has a meter, unless the meter may change what a later table matches.
#[test]
fn a_meter_without_remarks_does_not_keep_a_path_from_the_cache() {
    let remark = Band::DscpRemark { rate: 1_000_000, burst: 0, levels: 1 };
    let drop = Band::Drop { rate: 1_000_000, burst: 0 };
    for (bands, cached) in [(vec![drop.clone()], 1), (vec![drop, remark], 0), (vec![], 1)] {
        let mut bed = Bed::new(&settings(Lookup::Merged, 64));
        let n = bands.len();
        let config = MeterConfig { flags: meter_flags::KBPS, meter: 1, bands };
        let meter = Meter { config, counts: counts(1), bands: counts(n) };
        bed.apply(&Change::Meter(Arc::new(meter)));
        bed.flow(1, 0, 1, &[], vec![Instruction::Meter(1), Instruction::GotoTable(1)]);
        let ip = [Oxm::exact(Field::EthType, 0x800), Oxm::exact(Field::IpDscp, 0)];
        bed.flow(2, 1, 1, &ip, to(2));
        for _ in 0..2 {
            assert_eq!(bed.ports(1, &udp(1, 2, 9)), [2]);
        }
        assert_eq!(bed.datapath.totals.cached, cached, "{n} bands");
    }
}

/// Flows that collide in one table do not collide in the others.
#[test]
fn every_table_of_every_core_hashes_by_a_seed_of_its_own() {
    for lookup in [Lookup::Merged, Lookup::Hash] {
        let cores = Datapath::group(2, &settings(lookup, 64));
        let empty = cores.iter().flat_map(|core| &core.tables).map(|table| format!("{table:?}"));
        let all: std::collections::BTreeSet<String> = empty.collect();
        assert_eq!(all.len(), 6, "empty tables differ in nothing but their seeds");
    }
}
