//! Typical examples, and random values that are printed and parsed again.

use proptest::prelude::*;

use super::*;
use crate::act::{Action, Instruction};
use crate::flow::{FlowCommand, FlowMod, flags};
use crate::group::{Band, GroupCommand, GroupType, MeterCommand};
use crate::multipart::{GroupDesc, MeterConfig};
use crate::oxm::VID_PRESENT;
use crate::port::reserved;
use crate::{Field, Match, Message, Oxm, Version};

fn add(text: &str) -> FlowMod {
    flow(text, FlowCommand::Add).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn acts(text: &str) -> Vec<Instruction> {
    add(&format!("tcp,dl_vlan=5,actions={text}")).instructions
}

#[test]
fn a_typical_flow_is_parsed() {
    let m =
        add("table=3, priority=100,in_port=1,dl_type=0x0800,nw_src=10.0.0.0/8,actions=output:2");
    assert_eq!((m.table, m.priority, m.buffer), (3, 100, u32::MAX));
    let fields = [
        Oxm::exact(Field::InPort, 1),
        Oxm::exact(Field::EthType, 0x800),
        Oxm::masked(Field::Ipv4Src, 0x0a00_0000, 0xff00_0000),
    ];
    assert_eq!(m.matching.normal(), Match(fields.to_vec()));
    let out = Action::Output { port: 2, max_len: 0 };
    assert_eq!(m.instructions, [Instruction::ApplyActions(vec![out])]);
}

#[test]
fn old_and_new_field_names_are_equivalent() {
    for (old, new) in [
        ("tcp,tp_dst=80", "eth_type=0x800,ip_proto=6,tcp_dst=80"),
        ("arp,nw_src=10.0.0.1,nw_proto=1", "dl_type=0x806,arp_spa=10.0.0.1,arp_op=1"),
        ("dl_vlan=5", "vlan_vid=0x1005"),
        ("dl_vlan=0xffff", "vlan_vid=0"),
        ("ip,nw_tos=32", "ip,ip_dscp=8"),
        (
            "icmp6,icmp_type=135,nd_target=::1",
            "ipv6,nw_proto=58,icmpv6_type=135,ipv6_nd_target=::1",
        ),
        ("ipv6,ipv6_src=2001:db8::/32", "ipv6,ipv6_src=2001:db8::/ffff:ffff::"),
        (
            "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00",
            "eth_dst=ff:00:00:00:00:00/01:00:00:00:00:00",
        ),
    ] {
        let read = |text: &str| add(&format!("{text},actions=drop")).matching.normal();
        assert_eq!(read(old), read(new), "{old}");
    }
}

#[test]
fn actions_become_instructions_in_the_same_order() {
    let set = |field, value| Action::SetField(Oxm::exact(field, value));
    assert_eq!(acts("drop"), []);
    let apply = |list: Vec<Action>| vec![Instruction::ApplyActions(list)];
    assert_eq!(acts("mod_tp_dst:80"), apply(vec![set(Field::TcpDst, 80)]));
    assert_eq!(acts("set_field:7->vlan_pcp"), apply(vec![set(Field::VlanPcp, 7)]));
    assert_eq!(acts("set_field:11->vlan_vid"), apply(vec![set(Field::VlanVid, 0x100b)]));
    let old = "mod_vlan_vid:11,mod_vlan_pcp:7,strip_vlan,enqueue:1:2";
    let list = [
        Action::SetVlanVid(11),
        Action::SetVlanPcp(7),
        Action::StripVlan,
        Action::Enqueue { port: 1, queue: 2 },
    ];
    assert_eq!(acts(old), apply(list.to_vec()));
    assert_eq!(super::actions::actions_text(&list), old);
    let to = |port, max_len| Action::Output { port, max_len };
    assert_eq!(
        acts("CONTROLLER:128,controller(max_len=64),controller,NORMAL,7"),
        apply(vec![
            to(reserved::CONTROLLER, 128),
            to(reserved::CONTROLLER, 64),
            to(reserved::CONTROLLER, 0xffff),
            to(reserved::NORMAL, 0),
            to(7, 0)
        ])
    );
    assert_eq!(
        acts(
            "goto_table:4,write_metadata:0x10/0xff,meter:2,write_actions(group:1,pop_vlan),dec_ttl"
        ),
        [
            Instruction::Meter(2),
            Instruction::ApplyActions(vec![Action::DecNwTtl]),
            Instruction::WriteActions(vec![Action::Group(1), Action::PopVlan]),
            Instruction::WriteMetadata { value: 0x10, mask: 0xff },
            Instruction::GotoTable(4),
        ]
    );
}

#[test]
fn errors_name_the_position_and_the_fix() {
    for (text, column, word) in [
        ("in_port=1,dl_dts=1,actions=drop", 11, "field"),
        ("in_port=x,actions=drop", 9, "number"),
        ("priority=70000,actions=drop", 10, "65535"),
        ("tcp_dst=80,actions=drop", 1, "tcp"),
        ("tp_dst=80,actions=drop", 1, "tcp"),
        ("ip,nw_src=10.0.0,actions=drop", 11, "10.0.0.1"),
        ("in_port=1/1,actions=drop", 9, "mask"),
        ("actions=outptu:1", 9, "output"),
        ("actions=output:1,resubmit(,1)", 18, "Open vSwitch"),
        ("actions=drop,output:1", 9, "combined"),
        ("actions=set_field:1->nothing", 22, "field"),
        ("actions=write_actions(output:1", 9, "close"),
        ("in_port=1", 10, "actions="),
        ("in_port=1,in_port=2,actions=drop", 11, "once"),
    ] {
        let error = flow(text, FlowCommand::Add).expect_err(text);
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(error.to_string().contains(word), "{text}: {error}");
    }
    assert!(flow("actions=drop", FlowCommand::Delete).is_err());
    assert!(group("type=all", GroupCommand::Add).is_err());
    assert!(meter("meter=1,kbps,band=rate=1", MeterCommand::Add).is_err());
}

#[test]
fn groups_and_meters_are_parsed_and_printed() {
    let text = "group_id=1,type=select,bucket=weight:2,actions=output:1,output:2,bucket=weight=1,3";
    let m = group(text, GroupCommand::Add).expect("a group");
    assert_eq!((m.group, m.kind, m.buckets.len()), (1, GroupType::Select, 2));
    assert_eq!((m.buckets[0].weight, m.buckets[0].actions.len()), (2, 2));
    let m = group("group_id=9 type=ff bucket=watch_port:4,actions=4", GroupCommand::Add);
    assert_eq!(m.expect("a group").buckets[0].watch_port, 4);
    let text = "meter=3,kbps,burst,stats,band=type=drop,rate=1000,burst_size=100,\
                band=type=dscp_remark,rate=500,prec_level=1";
    let m = meter(text, MeterCommand::Add).expect("a meter");
    assert_eq!(m.bands.len(), 2);
    assert_eq!(m.bands[1], Band::DscpRemark { rate: 500, burst: 0, levels: 1 });
    let config = MeterConfig { flags: m.flags, meter: m.meter, bands: m.bands };
    assert_eq!(meter_text(&config), text);
    assert_eq!(group("", GroupCommand::Delete).map(|m| m.group), Ok(crate::group::ALL));
}

/// Instructions in the order in which they are parsed, without those that the text cannot express.
fn sayable(m: &FlowMod) -> Option<FlowMod> {
    let mut m = m.clone();
    m.buffer = u32::MAX;
    m.flags &= 31;
    m.matching = m.matching.normal();
    m.matching.check().ok()?;
    let fine = |action: &Action| match action {
        Action::Experimenter { .. } => false,
        Action::SetField(oxm) => oxm.field != Field::VlanVid || oxm.value & VID_PRESENT != 0,
        Action::Output { port, .. } => *port != reserved::ANY,
        _ => true,
    };
    let deletes = matches!(m.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
    if m.command == FlowCommand::Add {
        m.cookie_mask = 0;
    }
    let (mut kinds, mut instructions) = (Vec::new(), std::mem::take(&mut m.instructions));
    for instruction in &mut instructions {
        match instruction {
            Instruction::ApplyActions(list) | Instruction::WriteActions(list) => {
                if !list.iter().all(fine) {
                    return None;
                }
                for action in list {
                    // Only an output to a controller has a length.
                    if let Action::Output { port, max_len } = action
                        && *port != reserved::CONTROLLER
                    {
                        *max_len = 0;
                    }
                }
            }
            Instruction::WriteMetadata { value, mask } => *value &= *mask,
            Instruction::Experimenter { .. } => return None,
            _ => {}
        }
        kinds.push(instruction.number());
    }
    let order = |one: &Instruction| [9, 5, 4, 3, 1, 2, 0].get(usize::from(one.number())).copied();
    instructions.retain(|one| !matches!(one, Instruction::ApplyActions(list) if list.is_empty()));
    instructions.sort_by_key(order);
    let all = kinds.len();
    kinds.sort_unstable();
    kinds.dedup();
    m.instructions = if deletes { Vec::new() } else { instructions };
    (kinds.len() == all).then_some(m)
}

/// A valid match: random fields together with a kind of frame.
fn a_match() -> impl Strategy<Value = Match> {
    let kind = prop::sample::select(super::fields::KINDS.to_vec());
    let field = (prop::sample::select(Field::ALL.to_vec()), any::<u128>(), any::<u128>());
    (any::<bool>(), kind, prop::collection::vec(field, 0..8)).prop_map(|(plain, kind, list)| {
        let mut matching = Match::default();
        if !plain {
            matching.0.push(Oxm::exact(Field::EthType, kind.1.into()));
            matching.0.extend(kind.2.map(|proto| Oxm::exact(Field::IpProto, proto.into())));
        }
        for (field, value, mask) in list {
            let prefix = u128::MAX << (mask % 128);
            let mask = if mask % 3 == 0 { prefix } else { mask };
            let mask = if field.maskable() && mask % 2 == 0 { mask } else { u128::MAX };
            matching.0.push(Oxm::masked(field, value, mask));
            if matching.check().is_err() {
                matching.0.pop();
            }
        }
        matching.normal()
    })
}

proptest! {
    #[test]
    fn a_flow_is_read_as_it_was_written(seed: u64) {
        for version in [Version::V13, Version::V14] {
            for seed in seed..seed.saturating_add(40) {
                let Some(Message::FlowMod(m)) = crate::make(version, seed) else { continue };
                let Some(m) = sayable(&m) else { continue };
                let text = flow_mod_text(&m);
                let mut read = flow(&text, m.command).unwrap_or_else(|e| panic!("{text}: {e}"));
                read.matching = read.matching.normal();
                prop_assert_eq!(&read, &m, "{}", text);
            }
        }
    }

    #[test]
    fn a_match_is_read_as_it_was_written(matching in a_match()) {
        let m = FlowMod { matching, ..flow("actions=drop", FlowCommand::Add).expect("a flow") };
        let text = flow_mod_text(&m);
        let mut read = flow(&text, m.command).unwrap_or_else(|error| panic!("{text}: {error}"));
        read.matching = read.matching.normal();
        prop_assert_eq!(&read, &m, "{}", text);
    }

    #[test]
    fn groups_and_meters_are_read_as_they_were_written(seed: u64) {
        for seed in seed..seed.saturating_add(40) {
            match crate::make(Version::V13, seed) {
                Some(Message::GroupMod(mut m)) => {
                    m.command = GroupCommand::Add;
                    for bucket in &mut m.buckets {
                        bucket.actions.retain(|one| {
                            !matches!(one, Action::Experimenter { .. } | Action::Output { .. })
                        });
                        bucket.actions.iter_mut().for_each(Action::mark_tag);
                    }
                    let desc = GroupDesc { kind: m.kind, group: m.group, buckets: m.buckets.clone() };
                    let text = group_text(&desc);
                    prop_assert_eq!(group(&text, m.command), Ok(m), "{}", text);
                }
                Some(Message::MeterMod(mut m)) => {
                    m.command = MeterCommand::Add;
                    m.flags &= 15;
                    m.bands.retain(|band| !matches!(band, Band::Experimenter { .. }));
                    let bands = m.bands.clone();
                    let config = MeterConfig { flags: m.flags, meter: m.meter, bands };
                    let text = meter_text(&config);
                    prop_assert_eq!(meter(&text, m.command), Ok(m), "{}", text);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "[a-z0-9_=:,./()> -]{0,60}|\\PC{0,30}") {
        let _ = flow(&text, FlowCommand::Add);
        let _ = flow(&format!("tcp,actions={text}"), FlowCommand::Modify);
        let _ = group(&format!("group_id=1,type=all,bucket={text}"), GroupCommand::Add);
        let _ = meter(&format!("meter=1,band={text}"), MeterCommand::Add);
    }
}

#[test]
fn flags_and_settings_are_parsed() {
    let m = add(
        "send_flow_rem,check_overlap,idle_timeout=5,hard_timeout=6,importance=7,cookie=0x10,actions=drop",
    );
    assert_eq!(m.flags, flags::SEND_FLOW_REM | flags::CHECK_OVERLAP);
    assert_eq!((m.idle_timeout, m.hard_timeout, m.importance, m.cookie), (5, 6, 7, 0x10));
    let m = flow("cookie=0x10/-1,out_port=3", FlowCommand::Delete).expect("a filter");
    assert_eq!((m.cookie_mask, m.out_port, m.table), (u64::MAX, 3, 255));
}
