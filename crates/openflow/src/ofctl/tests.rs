//! Typical examples, and random values that are printed and parsed again.

mod words;

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
    assert_eq!(super::print::actions_text(&list, &[]), old);
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

/// The error for a text that cannot be parsed.
fn refused(text: &str) -> TextError {
    match flow(text, FlowCommand::Add) {
        Ok(m) => panic!("{text}: {m:?}"),
        Err(error) => error,
    }
}

#[test]
fn blanks_around_equals_signs_are_accepted() {
    let plain = add("table=1,priority=7,tcp,tcp_dst=80,actions=output:2,set_field:5->tcp_src");
    for text in [
        "table = 1, priority = 7, tcp, tcp_dst = 80, actions = output:2, set_field:5 -> tcp_src",
        "table= 1 priority =7 tcp tcp_dst=80 action =output:2 set_field:5->tcp_src",
        "table\t=\t1,priority=7,tcp,tcp_dst =80,actions=output = 2,set_field:5 ->tcp_src",
    ] {
        assert_eq!(add(text), plain, "{text}");
    }
    assert_eq!(refused("in_port = x,actions=drop").column, 11);
    let m = group("group_id = 1, type = all, bucket=actions=output:1", GroupCommand::Add);
    assert_eq!(m.map(|m| m.buckets.len()), Ok(1));
}

#[test]
fn tcp_flags_have_names() {
    let flags = |text: &str| {
        let m = add(&format!("tcp,tcp_flags={text},actions=drop"));
        m.matching.get(Field::TcpFlags).map(|oxm| (oxm.value, oxm.mask))
    };
    assert_eq!(flags("+syn-ack"), Some((2, 0x12)));
    assert_eq!(flags("-FIN-RST"), Some((0, 5)));
    assert_eq!(flags("syn|ack"), Some((0x12, 0xfff)));
    assert_eq!(flags("ns"), Some((0x100, 0xfff)));
    assert_eq!(flags("0x2/0x12"), Some((2, 0x12)));
    for (text, column) in
        [("+sin", 16), ("+syn+syn", 20), ("+syn|ack", 19), ("syn+ack", 18), ("", 15)]
    {
        let error = refused(&format!("tcp,tcp_flags={text},actions=drop"));
        assert_eq!(error.column, column, "{text}: {error}");
    }
    let m = add("tcp,tcp_flags=+syn-ack,actions=drop");
    assert!(flow_mod_text(&m).contains("tcp,tcp_flags=+syn-ack "), "{}", flow_mod_text(&m));
}

#[test]
fn words_of_open_vswitch_are_understood() {
    let set = |field, value| Action::SetField(Oxm::exact(field, value));
    let to = |port, max_len| Action::Output { port, max_len };
    for (text, action) in [
        ("output(port=2)", to(2, 0)),
        ("output(port=controller,max_len=64)", to(reserved::CONTROLLER, 64)),
        ("controller(reason=action,max_len=128,id=0)", to(reserved::CONTROLLER, 128)),
        ("controller()", to(reserved::CONTROLLER, 0xffff)),
        ("dec_ttl()", Action::DecNwTtl),
        ("dec_ttl(0)", Action::DecNwTtl),
        ("set_tunnel:0x2a", set(Field::TunnelId, 42)),
        ("set_tunnel64:42", set(Field::TunnelId, 42)),
        ("set_mpls_label(16)", set(Field::MplsLabel, 16)),
        ("set_mpls_tc(3)", set(Field::MplsTc, 3)),
    ] {
        assert_eq!(acts(text), [Instruction::ApplyActions(vec![action])], "{text}");
    }
}

#[test]
fn words_that_are_no_openflow_are_refused_with_what_to_write() {
    for (text, words) in [
        (
            "reg0=1,actions=drop",
            "column 1: 'reg0': this field is an extension of Open vSwitch; write metadata",
        ),
        ("ct_state=+trk,actions=drop", "tracks no connections"),
        ("nw_ttl=1,actions=drop", "extension of Open vSwitch; leave it out"),
        ("ip_frag=no,actions=drop", "fragments are matched"),
        ("vlan_tci=0x1123/0x1fff,actions=drop", "write dl_vlan=ID"),
        ("tun_src=1.2.3.4,actions=drop", "write tun_id"),
        ("actions=set_field:1->reg3", "extension of Open vSwitch; write metadata"),
        ("actions=output:reg0", "an output to a field is an extension"),
        ("actions=push:reg0", "write push_vlan:0x8100"),
        ("actions=pop:reg0", "write pop_vlan"),
        ("actions=resubmit(,1)", "write goto_table"),
        ("actions=dec_ttl(1,2)", "write dec_ttl alone"),
        ("actions=output(port=1,max_len=64)", "write output:PORT, without max_len"),
        ("actions=controller(id=7)", "every controller that wants"),
        ("actions=controller(userdata=01.02)", "cookie=NUMBER"),
        ("actions=controller(pause)", "extension of Open vSwitch"),
        ("actions=controller(reason=invalid_ttl)", "no flow choose the reason"),
        (
            "ip,nw_src=10.0.0.0/33,actions=drop",
            "'33': the prefix is longer than the address; write a prefix length from 0 to 32, or a mask",
        ),
        ("tpc,actions=drop", "'tpc': no such field or setting; did you mean 'tcp'?"),
        ("prioritty=5,actions=drop", "did you mean 'priority'?"),
        ("tcp=6,actions=drop", "tcp takes no value; write tcp alone"),
        ("actions=outptu:1", "did you mean 'output'?"),
        ("region=1,actions=drop", "no such field or setting; write a field such as"),
        (
            "tcp,udp_dst=53,actions=drop",
            "column 5: 'udp_dst': it needs udp or udp6, but the match says tcp; write udp or udp6 in place of tcp",
        ),
        ("udp_dst=53,actions=drop", "'udp_dst': not every frame has this field; add udp or udp6"),
        (
            "arp,nw_tos=32,actions=drop",
            "column 5: 'nw_tos': it needs ip or ipv6, but the match says arp",
        ),
        ("ip,dl_vlan_pcp=1,actions=drop", "add dl_vlan"),
        ("dl_type=0x1234,tcp_dst=1,actions=drop", "but the match says dl_type=0x1234"),
    ] {
        let said = refused(text).to_string();
        assert!(said.contains(words), "{text}\n  got: {said}\n  want: {words}");
    }
}

#[test]
fn names_of_ports_stand_wherever_numbers_do() {
    let ports = [("east", 2), ("veth-a.5", 3), ("local", 9), ("7", 8)];
    let text = "in_port=veth-a.5,out_port=east,actions=east,output:east,output(port=\"veth-a.5\"),\
                enqueue:east:1,write_actions(output:east)";
    let m = flow_with(text, FlowCommand::Add, &ports).expect("a flow");
    assert_eq!((m.matching.exact(Field::InPort), m.out_port), (Some(3), 2));
    let said = flow_mod_text_with(&m, &ports);
    assert!(
        said.ends_with(
            "out_port=east,priority=32768,in_port=veth-a.5 actions=output:east,output:east,\
             output:veth-a.5,enqueue:east:1,write_actions(output:east)"
        ),
        "{said}"
    );
    // Reserved names and numbers come first, so names that look like them are not written.
    let m = flow_with("actions=output:9,output:8", FlowCommand::Add, &ports).expect("a flow");
    assert!(flow_mod_text_with(&m, &ports).ends_with("output:9,output:8"));
    let unknown = flow_with("actions=output:wset", FlowCommand::Add, &ports).expect_err("no port");
    assert!(unknown.may_be_port && unknown.fix.contains("east, veth-a.5"), "{unknown}");
    assert!(refused("actions=east").may_be_port && refused("in_port=x,actions=drop").may_be_port);
    assert!(!refused("tpc,actions=drop").may_be_port);
    assert_eq!(port_with(" east ", &ports), Ok(2));
    assert_eq!(filter_with("out_port=east", &ports).map(|f| f.out_port), Ok(2));
}

#[test]
fn a_packet_out_is_parsed() {
    let ports = [("east", 2)];
    let m = packet_out("in_port=east packet=00ff10 actions=dec_ttl,output:east", &ports);
    let m = m.expect("a packet-out");
    assert_eq!((m.in_port, m.data.as_slice(), m.actions.len()), (2, &[0, 0xff, 0x10][..], 2));
    let m = packet_out("packet=00,actions=flood", &ports).expect("a packet-out");
    assert_eq!(m.in_port, reserved::CONTROLLER);
    for (text, words) in [
        ("packet=0,actions=flood", "two hex digits"),
        ("packet=00", "actions=output:PORT"),
        ("actions=flood", "add packet="),
        ("pocket=00,actions=flood", "no such setting"),
    ] {
        let said = packet_out(text, &ports).expect_err(text).to_string();
        assert!(said.contains(words), "{text}: {said}");
    }
}

#[test]
fn buckets_to_insert_have_a_place() {
    let edit = |text: &str| bucket_edit(text, GroupType::Select, &[]);
    let m = edit("group_id=1,command_bucket_id=first,bucket=weight:3,actions=output:1,bucket=2");
    let m = m.expect("buckets");
    let weights: Vec<u16> = m.buckets.iter().map(|bucket| bucket.weight).collect();
    assert_eq!((m.group, m.place, weights), (1, BucketPlace::First, vec![3, 1]));
    assert_eq!(
        edit("group_id=1,command_bucket_id=2,bucket=1").map(|m| m.place),
        Ok(BucketPlace::At(2))
    );
    assert_eq!(edit("group_id=1,command_bucket_id=all").map(|m| m.place), Ok(BucketPlace::All));
    assert!(
        edit("bucket=1").is_err() && edit("group_id=1,command_bucket_id=all,bucket=1").is_err()
    );
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
