//! `why` and the tables.

use super::*;

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
