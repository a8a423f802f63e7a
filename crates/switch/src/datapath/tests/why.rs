//! Where a frame goes, as `why` says it.

use super::*;

#[test]
fn why_names_the_output_ports_and_the_buckets() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let bucket = |weight, port| Bucket {
        weight,
        watch_port: reserved::ANY,
        watch_group: flowyard_openflow::group::ANY,
        actions: vec![output(port)],
    };
    bed.group(7, GroupType::Select, vec![bucket(1, 2), bucket(1, 3), bucket(1, 4)]);
    let set = |field, value| Action::SetField(Oxm::exact(field, value));
    let list = vec![
        set(Field::UdpDst, 77),
        output(9),
        output(1),
        output(reserved::FLOOD),
        output(reserved::CONTROLLER),
        Action::Group(8),
    ];
    let apply = Instruction::ApplyActions(list);
    let write = Instruction::WriteActions(vec![Action::Group(7), output(4)]);
    bed.flow(1, 0, 1, &[], vec![apply, write]);
    let mut key = Arrival::by(1).key();
    for (field, value) in
        [(Field::EthType, 0x800), (Field::IpProto, 17), (Field::UdpSrc, 5), (Field::UdpDst, 9)]
    {
        key.set(field, value);
    }
    let why = bed.datapath.why(&key);
    let [none, back, flood, controller, no_group, bucket, output] = &why.outputs[..] else {
        panic!("{why}")
    };
    assert!(none.starts_with("no output: there is no port 9; the ports are 1 ("), "{none}");
    assert!(back.starts_with("no output to port 1: the frame came from there"), "{back}");
    assert!(flood.starts_with("output to ports 2 (") && flood.contains("(FLOOD)"), "{flood}");
    assert_eq!(controller, "sent to the controllers");
    assert_eq!(no_group, "no output: there is no group 8");
    assert!(bucket.starts_with("group 7 (select): bucket "), "{bucket}");
    // A frame with the same fields leaves by the port that was named.
    let group_only = Instruction::ApplyActions(vec![set(Field::UdpDst, 77), Action::Group(7)]);
    bed.flow(2, 0, 2, &[], vec![group_only]);
    let frame = udp(1, 2, 9);
    let mut seen = Arrival::by(1).key();
    bed.datapath.look([(&frame[..], Arrival::by(1))]);
    if let Some(parsed) = bed.datapath.ahead.keys.first() {
        seen = *parsed;
    }
    let why = bed.datapath.why(&seen);
    let port = bed.ports(1, &frame)[0];
    assert!(why.outputs[1].starts_with(&format!("output to port {port} (")), "{why}");
    assert!(output.starts_with("output to port "), "{output}");
    bed.port(port, 1, 0);
    bed.flow(3, 0, 3, &[], to(port));
    assert!(bed.datapath.why(&seen).outputs[0].contains("it is down or does not forward"));
    assert_eq!(bed.datapath.why(&seen).answer, Answer::MappedNowhere { port });
    assert_eq!(bed.ports(1, &frame), []);
    assert_eq!(bed.datapath.why(&seen).result, "dropped (filtered)");
    bed.flow(4, 0, 4, &[], Vec::new());
    assert_eq!(bed.datapath.why(&seen).outputs, ["no output: the frame is dropped"]);
    assert_eq!(bed.datapath.why(&seen).result, "dropped (work)");
    assert_eq!(bed.datapath.why(&seen).answer, Answer::CachedDrop);
}

/// The result is what becomes of the frame, and NORMAL names its ports.
#[test]
fn why_ends_with_the_result() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let frame = udp(1, 2, 9);
    bed.datapath.look([(&frame[..], Arrival::by(1))]);
    let key = *bed.datapath.ahead.keys.first().expect("a key");
    let why = bed.datapath.why(&key);
    assert_eq!((why.miss, why.result.as_str()), (Some(0), "dropped (no_flow)"));
    assert!(why.to_string().ends_with("\nresult: dropped (no_flow)"), "{why}");
    bed.flow(1, 0, 1, &[], to(reserved::NORMAL));
    let flood = bed.datapath.why(&key);
    assert!(flood.result.starts_with("ports 2 ("), "{flood}");
    assert!(flood.outputs[0].ends_with("(NORMAL: the station is not known)"), "{flood}");
    // A frame of the destination's station is seen at port 3.
    let mut back = frame.clone();
    let (front, rest) = back.split_at_mut(6);
    front.swap_with_slice(&mut rest[..6]);
    bed.ports(3, &back);
    let known = bed.datapath.why(&key);
    assert!(known.result.starts_with("port 3 ("), "{known}");
    assert!(known.outputs[0].ends_with("(NORMAL: the station was seen there)"), "{known}");
    bed.flow(2, 0, 2, &[], to(2));
    assert!(bed.datapath.why(&key).result.starts_with("port 2 ("));
}

/// Each table sees what the actions of the tables before it have changed, as those of a frame do.
#[test]
fn why_follows_the_changes_of_earlier_tables() {
    let fields = |list: &[(Field, u128)]| -> Vec<Oxm> {
        list.iter().map(|(field, value)| Oxm::exact(*field, *value)).collect()
    };
    let ip = (Field::EthType, 0x800);
    let udp_in = [ip, (Field::IpProto, 17)];
    for (action, matching) in [
        (
            Action::SetField(Oxm::exact(Field::Ipv4Dst, 0x0a00_0009)),
            vec![ip, (Field::Ipv4Dst, 0x0a00_0009)],
        ),
        (Action::SetVlanVid(7), vec![(Field::VlanVid, 0x1007)]),
        (Action::PushVlan(0x8100), vec![(Field::VlanVid, 0x1000)]),
        (Action::SetTpDst(77), vec![ip, (Field::IpProto, 17), (Field::UdpDst, 77)]),
        (Action::PushMpls(0x8847), vec![(Field::EthType, 0x8847), (Field::MplsBos, 1)]),
    ] {
        let mut bed = Bed::new(&settings(Lookup::Merged, 64));
        let change = Instruction::ApplyActions(vec![action.clone()]);
        bed.flow(1, 0, 1, &fields(&udp_in), vec![change, Instruction::GotoTable(1)]);
        let write = Instruction::WriteActions(vec![output(2)]);
        bed.flow(2, 1, 1, &fields(&matching), vec![write, Instruction::GotoTable(2)]);
        bed.flow(3, 2, 1, &[Oxm::exact(Field::ActsetOutput, 2)], vec![]);
        // Fields that are left out are in the frame all the same.
        let mut key = Arrival::by(1).key();
        udp_in.iter().for_each(|(field, value)| key.set(*field, *value));
        let why = bed.datapath.why(&key);
        assert_eq!((why.path.len(), why.miss), (3, None), "{action:?}: {why}");
        assert_eq!(bed.ports(1, &udp(1, 2, 9)), [2], "{action:?}");
        assert!(!why.is_known && why.flows.iter().all(|(_, offloaded)| *offloaded == 0));
    }
}
