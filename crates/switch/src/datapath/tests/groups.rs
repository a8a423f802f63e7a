//! Groups that watch ports and groups, and meters with several bands.

use std::collections::BTreeSet;

use flowyard_frame::FlowKey;
use flowyard_testkit::Build;

use super::*;

/// OpenFlow 1.4.0, section 5.6.1: a select group leaves out buckets that are not live, and a fast
/// failover group takes the first that is. A group is live while one of its buckets is.
#[test]
fn buckets_that_are_not_live_are_not_chosen() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let any = reserved::ANY;
    let both = vec![bucket(1, 2, &[output(2)]), bucket(1, 3, &[output(3)])];
    bed.group(1, GroupType::Select, both);
    let watch = |watch_group, to| Bucket { watch_group, ..bucket(0, any, &[output(to)]) };
    bed.group(2, GroupType::FastFailover, vec![watch(1, 2), bucket(0, 4, &[output(4)])]);
    bed.group(3, GroupType::All, Vec::new());
    for group in 1..=3 {
        let then = vec![Instruction::ApplyActions(vec![Action::Group(group)])];
        let fields = [Oxm::exact(Field::Ipv4Dst, (0x0a00_0000 | group).into())];
        let fields = [&[Oxm::exact(Field::EthType, 0x800)][..], &fields].concat();
        bed.flow(group.into(), 0, 1, &fields, then);
    }
    let chosen = |bed: &mut Bed| -> BTreeSet<u32> {
        (1..=40).flat_map(|src| bed.ports(1, &udp(src, 1, 9))).collect()
    };
    assert_eq!(chosen(&mut bed), BTreeSet::from([2, 3]));
    assert_eq!(bed.ports(1, &udp(1, 2, 9)), [2]);
    bed.port(2, 0, 1);
    assert_eq!(chosen(&mut bed), BTreeSet::from([3]));
    bed.port(3, 0, 1);
    assert_eq!(chosen(&mut bed), BTreeSet::new());
    assert_eq!(bed.ports(1, &udp(1, 2, 9)), [4]);
    // A group without buckets sends nothing.
    assert_eq!(bed.ports(1, &udp(1, 3, 9)), []);
}

/// OpenFlow 1.4.0, section 5.7: of the bands whose rate is exceeded, the one with the highest rate
/// applies, and only that one counts the frame.
#[test]
fn the_band_with_the_highest_exceeded_rate_applies() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let remark = Band::DscpRemark { rate: 1, burst: 1, levels: 1 };
    let bands = vec![Band::Drop { rate: 2, burst: 2 }, remark];
    let flags = meter_flags::PKTPS | meter_flags::BURST;
    let config = MeterConfig { flags, meter: 1, bands };
    let meter = Arc::new(Meter { config, counts: counts(1), bands: counts(2) });
    bed.apply(&Change::Meter(Arc::clone(&meter)));
    bed.flow(1, 0, 1, &[], vec![Instruction::Meter(1), to(2).remove(0)]);
    let mut frame = udp(1, 2, 9);
    // Class 1 of assured forwarding, low drop precedence.
    frame[15] = 10 << 2;
    let mut dscp = || {
        let sent = bed.frame_at(1, &frame, 1).0;
        sent.first().map(|(_, bytes)| bytes[15] >> 2)
    };
    assert_eq!([dscp(), dscp(), dscp()], [Some(10), Some(12), None]);
    let counted = |at: usize| meter.bands[at].read().0;
    assert_eq!((meter.counts[0].read().0, counted(0), counted(1)), (3, 1, 1));
}

/// What changes within a connection does not move it to another bucket: Linux draws another flow label after a timeout.
#[test]
fn a_connection_keeps_its_bucket_whatever_its_flow_label_and_priority() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 0));
    let buckets = (2..=4).map(|to| bucket(1, reserved::ANY, &[output(to)])).collect();
    bed.group(1, GroupType::Select, buckets);
    bed.flow(1, 0, 1, &[], vec![Instruction::ApplyActions(vec![Action::Group(1)])]);
    let v6 = ["2001:db8::1", "2001:db8::2"].map(|text| text.parse().expect("an address"));
    let v4 = [[10, 0, 0, 1], [10, 0, 0, 2]].map(std::net::IpAddr::from);
    let mut all = BTreeSet::new();
    for sport in 1..40 {
        let mut seen = BTreeSet::new();
        for n in 0..40 {
            let key = FlowKey::five_tuple(6, v6[0], sport, v6[1], 80);
            let mut frame = Build::new(&key).bytes();
            frame[14..18].copy_from_slice(&(0x6000_0000 + n * 0x6543_u32).to_be_bytes());
            seen.extend(bed.ports(1, &frame));
        }
        assert_eq!(seen.len(), 1, "flow labels");
        all.append(&mut seen);
        for n in 0..8 {
            let vlan_tci = n << 13 | 5;
            let key = FlowKey { vlan_tci, ..FlowKey::five_tuple(6, v4[0], sport, v4[1], 80) };
            seen.extend(bed.ports(1, &Build::new(&key).bytes()));
        }
        assert_eq!(seen.len(), 1, "priorities");
        all.append(&mut seen);
    }
    assert_eq!(all, BTreeSet::from([2, 3, 4]));
    // The hash covers an MPLS label.
    let mut frame = udp(1, 2, 9);
    frame[12..14].copy_from_slice(&[0x88, 0x47]);
    let of_label = |n: u32| {
        frame[14..18].copy_from_slice(&(n << 12 | 0x140).to_be_bytes());
        bed.ports(1, &frame)
    };
    assert_eq!((1..40).flat_map(of_label).collect::<BTreeSet<_>>(), all);
}
