//! The limits of arguments: what is just allowed is accepted, and what is just beyond is refused. The
//! names begin with sections of OpenFlow 1.4.0.

use super::channel::{say, with_ports};
use super::*;
use crate::multipart::{Monitor, MonitorCommand};
use crate::table::{Feature, TableFeatures};

const NEW: u32 = 3;

fn with_new() -> Agent {
    let mut agent = with_ports();
    agent.connect(NEW, Version::V14);
    agent
}

/// The error with which a controller of 1.4 is answered.
fn answered(agent: &mut Agent, message: &Message) -> Option<(u16, u16)> {
    let said = say(agent, NEW, message);
    let errors = said.iter().filter_map(|(to, message)| match message {
        Message::Error(error) if *to == NEW => Some((error.kind, error.code)),
        _ => None,
    });
    let errors: Vec<_> = errors.collect();
    assert!(errors.len() < 2, "{said:?}");
    errors.first().copied()
}

#[test]
fn s5_12_every_argument_of_an_action_has_a_range() {
    let mut agent = with_ports();
    let tagged = [Oxm::exact(Field::VlanVid, 0x1005), Oxm::exact(Field::EthType, 0x800)];
    let mut check = |action: Action| {
        let list = vec![action.clone(), Action::Output { port: 1, max_len: 0 }];
        let instructions = vec![Instruction::ApplyActions(list)];
        refusal(&mut agent, Message::FlowMod(FlowMod { instructions, ..add(1, &tagged) }))
    };
    let argument = code(problem::ACTION_BAD_ARGUMENT);
    for (fits, wrong) in [
        (Action::SetVlanVid(0), Action::SetVlanVid(0x1000)),
        (Action::SetVlanVid(0xfff), Action::SetVlanVid(0xffff)),
        (Action::SetVlanPcp(0), Action::SetVlanPcp(8)),
        (Action::SetVlanPcp(7), Action::SetVlanPcp(0xff)),
        (Action::PushVlan(0x8100), Action::PushVlan(0x8101)),
        (Action::PushVlan(0x88a8), Action::PushVlan(0x88e7)),
        (Action::PushMpls(0x8847), Action::PushMpls(0x8100)),
        (Action::PushMpls(0x8848), Action::PushMpls(0x8849)),
        (Action::PushPbb(0x88e7), Action::PushPbb(0x88a8)),
    ] {
        assert_eq!(check(fits.clone()), None, "{fits:?}");
        assert_eq!(check(wrong.clone()), argument, "{wrong:?}");
    }
    let foreign = Action::Experimenter { id: 1, data: Vec::new() };
    assert_eq!(check(foreign), code(problem::ACTION_BAD_EXPERIMENTER));
    let set = |field| Action::SetField(Oxm::exact(field, 1));
    assert_eq!(check(set(Field::InPort)), code(problem::ACTION_BAD_SET_TYPE));
    assert_eq!(check(set(Field::EthDst)), None);
    assert_eq!(check(Action::Group(crate::group::MAX + 1)), code(problem::ACTION_BAD_OUT_GROUP));
    let wrong_ports = [0, reserved::MAX + 1, reserved::IN_PORT - 1, reserved::TABLE, reserved::ANY];
    let ports =
        [1, reserved::MAX, reserved::IN_PORT, reserved::NORMAL, reserved::FLOOD, reserved::LOCAL];
    let kinds: [fn(u32) -> Action; 2] =
        [|port| Action::Output { port, max_len: 0 }, |port| Action::Enqueue { port, queue: 1 }];
    for to in kinds {
        for port in wrong_ports {
            assert_eq!(check(to(port)), code(problem::ACTION_BAD_OUT_PORT), "{:?}", to(port));
        }
        for port in ports {
            assert_eq!(check(to(port)), None, "{:?}", to(port));
        }
    }
}

#[test]
fn s7_3_5_17_a_controller_has_at_most_64_monitors() {
    let mut agent = with_new();
    let monitor = |id, command| Monitor {
        id,
        command,
        flags: 2,
        table: 255,
        out_port: reserved::ANY,
        out_group: crate::group::ANY,
        ..Monitor::default()
    };
    let watch = |agent: &mut Agent, list: Vec<Monitor>| {
        let body = Request::FlowMonitor(list);
        answered(agent, &Message::MultipartRequest { more: false, body })
    };
    let add = |ids: std::ops::RangeInclusive<u32>| {
        ids.map(|id| monitor(id, MonitorCommand::Add)).collect::<Vec<_>>()
    };
    let full = code(problem::MONITOR_INVALID);
    // In one request, and one at a time; a refused request adds none of its monitors.
    assert_eq!(watch(&mut agent, add(1..=65)), full);
    assert_eq!(watch(&mut agent, add(1..=62)), None);
    assert_eq!(watch(&mut agent, add(63..=65)), full);
    for id in 63..=64 {
        assert_eq!(watch(&mut agent, add(id..=id)), None, "{id}");
    }
    assert_eq!(watch(&mut agent, add(65..=65)), full);
    // A change needs no room, and a deleted monitor makes room, even in the same request.
    assert_eq!(watch(&mut agent, vec![monitor(64, MonitorCommand::Modify)]), None);
    let mut swap = vec![monitor(1, MonitorCommand::Delete)];
    swap.extend(add(65..=65));
    assert_eq!(watch(&mut agent, swap), None);
    assert_eq!(watch(&mut agent, add(1..=1)), full);
    // Each controller has its own monitors.
    agent.connect(NEW + 1, Version::V14);
    let body = Request::FlowMonitor(add(1..=64));
    let said = say(&mut agent, NEW + 1, &Message::MultipartRequest { more: false, body });
    assert!(matches!(&said[..], [(4, Message::MultipartReply { .. })]), "{said:?}");
}

#[test]
fn s7_3_6_a_port_has_no_queues_and_only_existing_ports_are_asked_for() {
    let mut agent = with_ports();
    agent.connect(2, Version::V10);
    let mut queues = |from, port| {
        let said = say(&mut agent, from, &Message::QueueConfigRequest { port });
        match &said[..] {
            [(to, Message::QueueConfigReply { port: of, queues })] => {
                assert_eq!((*to, *of, queues.len()), (from, port, 0));
                None
            }
            [(_, Message::Error(error))] => Some((error.kind, error.code)),
            other => panic!("{other:?}"),
        }
    };
    for from in [1, 2] {
        assert_eq!(queues(from, 1), None);
        assert_eq!(queues(from, 3), None);
        for port in [0, 4, reserved::LOCAL] {
            assert!(queues(from, port).is_some(), "{from} {port}");
        }
    }
    assert_eq!(queues(1, 4), code(problem::QUEUE_BAD_PORT));
    // All ports can be asked for since 1.3.
    assert_eq!(queues(1, reserved::ANY), None);
    assert!(queues(2, reserved::ANY).is_some());
}

/// The features of table 0: every list for table misses differs from the general list.
fn reduced(agent: &mut Agent) -> TableFeatures {
    let body = Request::TableFeatures(Vec::new());
    let said = ask(agent, &Message::MultipartRequest { more: false, body }, 0);
    let [Message::MultipartReply { body: Reply::TableFeatures(all), .. }] = &said[..] else {
        panic!("{said:?}")
    };
    let plain = |numbers: &[u16]| numbers.iter().map(|number| (*number, 0)).collect::<Vec<_>>();
    let instructions = |kind, numbers: &[u16]| Feature::Instructions { kind, list: plain(numbers) };
    let actions = |kind, numbers: &[u16]| Feature::Actions { kind, list: plain(numbers) };
    let tables = |kind, list: &[u8]| Feature::Tables { kind, list: list.to_vec() };
    let fields = |kind, list: &[Field]| {
        let list = list.iter().map(|field| (field.header(false), 0)).collect();
        Feature::Fields { kind, list }
    };
    let properties = vec![
        instructions(0, &[1, 3, 4, 5]),
        instructions(1, &[1, 2, 3, 4]),
        tables(2, &[2]),
        tables(3, &[1, 3]),
        actions(4, &[0, 25]),
        actions(5, &[21, 25]),
        actions(6, &[21, 25]),
        actions(7, &[0, 25]),
        fields(8, &[Field::InPort]),
        fields(10, &[Field::EthType]),
        fields(12, &[Field::EthDst]),
        fields(13, &[Field::EthSrc]),
        fields(14, &[Field::EthSrc]),
        fields(15, &[Field::EthDst]),
    ];
    TableFeatures { properties, ..all[0].clone() }
}

#[test]
fn s7_3_5_6_a_flow_needs_the_features_of_its_table_and_a_table_miss_has_its_own() {
    let mut agent = with_ports();
    let features = reduced(&mut agent);
    let body = Request::TableFeatures(vec![features]);
    let set = Message::MultipartRequest { more: false, body };
    assert!(matches!(&ask(&mut agent, &set, 0)[..], [Message::MultipartReply { .. }]));
    let miss = || add(0, &[]);
    let hits = || [add(1, &[]), add(0, &[port(1)]), add(7, &[port(1)])];
    let mut check = |m: FlowMod, instruction: &Instruction, problem: Option<Problem>| {
        let text = format!("{m:?} {instruction:?}");
        let instructions = vec![instruction.clone()];
        let found = refusal(&mut agent, Message::FlowMod(FlowMod { instructions, ..m }));
        assert_eq!(found, problem.and_then(code), "{text}");
    };
    let mut both = |instruction: Instruction, hit: Option<Problem>, on_miss: Option<Problem>| {
        for m in hits() {
            check(m, &instruction, hit);
        }
        check(miss(), &instruction, on_miss);
    };
    let output = || Action::Output { port: 1, max_len: 0 };
    let set = |field| Action::SetField(Oxm::exact(field, 1));
    let write = |action| Instruction::WriteActions(vec![Action::SetField(Oxm::exact(action, 1))]);
    let no_table = Some(problem::INSTRUCTION_BAD_TABLE);
    both(Instruction::GotoTable(1), no_table, None);
    both(Instruction::GotoTable(2), None, no_table);
    both(Instruction::GotoTable(3), no_table, None);
    let no_instruction = Some(problem::INSTRUCTION_UNSUPPORTED);
    both(Instruction::WriteMetadata { value: 1, mask: 1 }, no_instruction, None);
    both(Instruction::ClearActions, None, no_instruction);
    let no_action = Some(problem::ACTION_BAD_TYPE);
    both(Instruction::WriteActions(vec![output()]), None, no_action);
    both(Instruction::WriteActions(vec![Action::SetQueue(1)]), no_action, None);
    both(Instruction::ApplyActions(vec![output()]), no_action, None);
    both(Instruction::ApplyActions(vec![Action::SetQueue(1)]), None, no_action);
    both(Instruction::WriteActions(vec![Action::PushVlan(0x8100)]), no_action, no_action);
    both(write(Field::EthDst), None, no_action);
    both(write(Field::EthSrc), no_action, None);
    both(Instruction::ApplyActions(vec![set(Field::EthSrc)]), None, no_action);
    both(Instruction::ApplyActions(vec![set(Field::EthDst)]), no_action, None);
    // A later action of the list is checked as well as the first.
    let list = vec![Action::SetQueue(1), set(Field::EthSrc), output()];
    both(Instruction::ApplyActions(list), no_action, no_action);
    // The list of fields that may be wildcards (10) does not say that a flow may match on them.
    let ip = add(1, &[Oxm::exact(Field::EthType, 0x800)]);
    assert_eq!(refusal(&mut agent, Message::FlowMod(ip)), code(problem::MATCH_BAD_FIELD));
    // The other tables keep all features.
    let other = FlowMod {
        table: 1,
        instructions: vec![
            Instruction::ApplyActions(vec![output(), Action::PushVlan(0x8100)]),
            Instruction::WriteMetadata { value: 1, mask: 1 },
        ],
        ..add(1, &[Oxm::exact(Field::EthType, 0x800)])
    };
    assert_eq!(refusal(&mut agent, Message::FlowMod(other)), None);
}

#[test]
fn s7_3_5_6_without_lists_for_table_misses_the_general_lists_apply() {
    let mut agent = with_ports();
    let mut features = reduced(&mut agent);
    features.properties.retain(|property| property.kind() % 2 == 0);
    let body = Request::TableFeatures(vec![features]);
    let set = Message::MultipartRequest { more: false, body };
    assert!(matches!(&ask(&mut agent, &set, 0)[..], [Message::MultipartReply { .. }]));
    for m in [add(0, &[]), add(1, &[])] {
        let mut check = |instruction: Instruction| {
            let instructions = vec![instruction];
            refusal(&mut agent, Message::FlowMod(FlowMod { instructions, ..m.clone() }))
        };
        assert_eq!(check(Instruction::GotoTable(2)), None);
        assert_eq!(check(Instruction::GotoTable(1)), code(problem::INSTRUCTION_BAD_TABLE));
        let queue = vec![Action::SetQueue(1)];
        assert_eq!(check(Instruction::ApplyActions(queue.clone())), None);
        assert_eq!(check(Instruction::WriteActions(queue)), code(problem::ACTION_BAD_TYPE));
    }
}
