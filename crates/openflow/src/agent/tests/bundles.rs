//! Tests of bundles. The names begin with sections of OpenFlow 1.4.0.

use super::channel::{bundle, bundled, say, with_ports};
use super::*;
use crate::bundle::{Bundle, BundleAdd};
use crate::flow::PacketOut;
use crate::message::Hello;
use crate::port::{PortMod, Property};
use crate::table::TableMod;

/// The connection of the controller that uses bundles.
const NEW: u32 = 3;

fn with_new() -> Agent {
    let mut agent = with_ports();
    agent.connect(NEW, Version::V14);
    agent
}

fn control(id: u32, control: u16, flags: u16) -> Message {
    Message::Bundle(Bundle { id, control, flags, properties: Vec::new() })
}

fn wrapped(message: &Message, xid: u32) -> Message {
    let mut bytes = Vec::new();
    encode(message, Version::V14, xid, &mut bytes).expect("the version has the message");
    Message::BundleAdd(BundleAdd { id: 1, flags: 3, message: bytes, properties: Vec::new() })
}

/// The error that answers a message, if any.
#[allow(clippy::needless_pass_by_value, reason = "messages are made in place")]
fn answer_to(agent: &mut Agent, message: Message) -> Option<(u16, u16)> {
    match say(agent, NEW, &message).last() {
        Some((_, Message::Error(error))) => Some((error.kind, error.code)),
        _ => None,
    }
}

fn flow(cookie: u64) -> Message {
    Message::FlowMod(FlowMod { cookie, ..add(1, &[port(u128::from(cookie))]) })
}

#[test]
fn s6_8_5_every_connection_has_its_own_bundles_and_echo_requests_are_answered_at_once() {
    let mut agent = with_new();
    agent.connect_auxiliary(4, NEW, 1, Version::V14);
    agent.connect(5, Version::V14);
    for from in [NEW, 4, 5] {
        // Each may open the same ID; nobody waits for the end of another's bundle.
        assert!(matches!(&say(&mut agent, from, &bundle(0))[..], [(_, Message::Bundle(m))]
            if m.control == 1));
        assert_eq!(say(&mut agent, from, &bundled(&flow(from.into()))), []);
        let echo = say(&mut agent, from, &Message::EchoRequest(vec![7]));
        assert_eq!(echo, [(from, Message::EchoReply(vec![7]))]);
    }
    // A status event comes without delay, and so does the answer to another request.
    let mut out = Vec::new();
    agent.port_remove(3, &mut out);
    assert!(out.iter().any(|out| out.to == NEW && matches!(out.message, Message::PortStatus(_))));
    assert_eq!(say(&mut agent, NEW, &Message::BarrierRequest), [(NEW, Message::BarrierReply)]);
    assert!(matches!(&say(&mut agent, 4, &bundle(4))[..], [(4, Message::Bundle(_))]));
    assert_eq!((agent.flows(), first(&agent).entry.cookie), (1, 4));
    // The bundles of a connection end with it.
    agent.disconnect(5);
    agent.connect(5, Version::V14);
    assert!(matches!(&say(&mut agent, 5, &bundle(4))[..], [(5, Message::Error(error))]
        if Some((error.kind, error.code)) == code(problem::BUNDLE_BAD_ID)));
    assert!(matches!(&say(&mut agent, NEW, &bundle(4))[..], [(_, Message::Bundle(_))]));
    assert_eq!(agent.flows(), 2);
}

#[test]
fn s7_3_9_a_request_that_contradicts_a_bundle_discards_it() {
    let mut agent = with_new();
    let closed = |agent: &mut Agent| {
        assert_eq!(answer_to(agent, bundle(0)), None);
        assert_eq!(answer_to(agent, bundled(&flow(1))), None);
        assert_eq!(answer_to(agent, bundle(2)), None);
    };
    let other = Message::BundleAdd(match wrapped(&flow(1), 5) {
        Message::BundleAdd(m) => BundleAdd { flags: 1, ..m },
        other => panic!("{other:?}"),
    });
    for (wrong, problem) in [
        (bundle(0), problem::BUNDLE_EXISTS),
        (bundle(2), problem::BUNDLE_CLOSED),
        (bundled(&flow(2)), problem::BUNDLE_CLOSED),
        (control(1, 4, 1), problem::BUNDLE_BAD_FLAGS),
    ] {
        closed(&mut agent);
        assert_eq!(answer_to(&mut agent, wrong), code(problem), "{problem}");
        assert_eq!(answer_to(&mut agent, bundle(4)), code(problem::BUNDLE_BAD_ID), "{problem}");
    }
    assert_eq!(answer_to(&mut agent, bundle(0)), None);
    assert_eq!(answer_to(&mut agent, other), code(problem::BUNDLE_BAD_FLAGS));
    assert_eq!(answer_to(&mut agent, bundle(6)), code(problem::BUNDLE_BAD_ID));
    assert_eq!(agent.flows(), 0);
}

#[test]
fn s7_3_9_unknown_flags_types_and_properties_and_too_many_bundles_are_refused() {
    let mut agent = with_new();
    assert_eq!(answer_to(&mut agent, control(1, 0, 4)), code(problem::BUNDLE_BAD_FLAGS));
    assert_eq!(answer_to(&mut agent, control(1, 1, 3)), code(problem::BUNDLE_BAD_TYPE));
    assert_eq!(answer_to(&mut agent, control(1, 8, 3)), code(problem::BUNDLE_BAD_TYPE));
    let properties = vec![Property { kind: 0xffff, data: vec![0; 8] }];
    let with = Message::Bundle(Bundle { id: 1, control: 0, flags: 3, properties });
    assert_eq!(answer_to(&mut agent, with), code(problem::PROPERTY_BAD_EXPERIMENTER));
    // An add with unknown flags opens no bundle.
    let add = Message::BundleAdd(match wrapped(&flow(1), 5) {
        Message::BundleAdd(m) => BundleAdd { flags: 0x80, ..m },
        other => panic!("{other:?}"),
    });
    assert_eq!(answer_to(&mut agent, add), code(problem::BUNDLE_BAD_FLAGS));
    assert_eq!(answer_to(&mut agent, control(1, 6, 0x80)), code(problem::BUNDLE_BAD_ID));
    for id in 0..16 {
        assert_eq!(answer_to(&mut agent, control(id, 0, 0)), None);
    }
    let over = answer_to(&mut agent, control(16, 0, 0));
    assert_eq!(over, code(problem::BUNDLE_OUT_OF_BUNDLES));
    // An empty bundle can be committed, and another one can be discarded.
    let said = say(&mut agent, NEW, &control(0, 4, 0));
    assert!(matches!(&said[..], [(NEW, Message::Bundle(m))] if (m.id, m.control) == (0, 5)));
    let said = say(&mut agent, NEW, &control(1, 6, 0));
    assert!(matches!(&said[..], [(NEW, Message::Bundle(m))] if (m.id, m.control) == (1, 7)));
    // Slaves may not use bundles.
    let slave = RoleMessage { role: Role::Slave, ..RoleMessage::default() };
    assert_eq!(answer_to(&mut agent, Message::RoleRequest(slave)), None);
    assert_eq!(answer_to(&mut agent, bundle(0)), code(problem::REQUEST_IS_SLAVE));
    assert_eq!(answer_to(&mut agent, bundled(&flow(1))), code(problem::REQUEST_IS_SLAVE));
}

#[test]
fn s7_3_9_some_messages_cannot_be_in_a_bundle() {
    let mut agent = with_new();
    let unsupported = [
        Message::Hello(Hello::default()),
        Message::EchoRequest(Vec::new()),
        Message::EchoReply(Vec::new()),
        Message::BarrierRequest,
        Message::FeaturesRequest,
        Message::MultipartRequest { more: false, body: Request::Desc },
        Message::FlowRemoved(FlowRemoved::default()),
        Message::TableMod(TableMod::default()),
        bundle(4),
    ];
    for message in &unsupported {
        let refused = answer_to(&mut agent, bundled(message));
        assert_eq!(refused, code(problem::BUNDLE_UNSUPPORTED), "{message:?}");
    }
    assert_eq!(answer_to(&mut agent, wrapped(&flow(1), 6)), code(problem::BUNDLE_BAD_XID));
    let with = |change: fn(&mut Vec<u8>)| match bundled(&flow(1)) {
        Message::BundleAdd(mut m) => {
            change(&mut m.message);
            Message::BundleAdd(m)
        }
        other => panic!("{other:?}"),
    };
    let old = with(|bytes| bytes[0] = 4);
    assert_eq!(answer_to(&mut agent, old), code(problem::REQUEST_BAD_VERSION));
    let short = with(|bytes| bytes.truncate(4));
    assert_eq!(answer_to(&mut agent, short), code(problem::BUNDLE_BAD_LEN));
    // The length of the included message is beyond the end.
    let mut wire = Vec::new();
    encode(&bundled(&flow(1)), Version::V14, 5, &mut wire).expect("an add");
    wire[18] = 0xff;
    let problem = crate::decode(&wire).err().map(|rejected| rejected.problem);
    assert_eq!(problem, Some(problem::BUNDLE_BAD_LEN));
    // None of these opened a bundle; all kinds of changes can be in one.
    assert_eq!(answer_to(&mut agent, bundle(6)), code(problem::BUNDLE_BAD_ID));
    let packet =
        PacketOut { buffer: u32::MAX, in_port: 1, data: vec![0; 60], ..Default::default() };
    let meter = MeterMod { meter: 1, flags: 1, ..MeterMod::default() };
    let group = GroupMod { group: 1, ..GroupMod::default() };
    let hw = [2, 0, 0, 0, 0, 2];
    let change = PortMod { number: 2, hw, config: 1, mask: 1, ..PortMod::default() };
    for message in [
        flow(1),
        Message::PacketOut(packet),
        Message::MeterMod(meter),
        Message::GroupMod(group),
        Message::PortMod(change),
    ] {
        assert_eq!(answer_to(&mut agent, bundled(&message)), None, "{message:?}");
    }
    agent.drain();
    assert_eq!(answer_to(&mut agent, bundle(4)), None);
    assert_eq!((agent.drain().len(), agent.ports.config(2)), (5, 1));
}

#[test]
fn s7_3_9_a_bundle_holds_a_hundred_thousand_messages() {
    let mut agent = with_new();
    let command = MeterCommand::Delete;
    let delete = bundled(&Message::MeterMod(MeterMod { command, meter: 1, ..MeterMod::default() }));
    let mut out = Vec::new();
    for _ in 0..100_000 {
        agent.handle(NEW, 5, &delete, 0, &mut out);
    }
    assert_eq!(out, []);
    assert_eq!(answer_to(&mut agent, delete), code(problem::BUNDLE_TOO_MANY));
    assert_eq!(answer_to(&mut agent, bundle(4)), None);
}

/// What can be known to be wrong is refused when it is added; the rest of the bundle stays.
#[test]
fn s6_8_3_a_message_is_checked_when_it_is_added() {
    let mut agent = with_new();
    let does = |instruction| FlowMod { instructions: vec![instruction], ..add(1, &[port(9)]) };
    let group = |group, kind, weight, to| {
        let (watch_port, watch_group) = (reserved::ANY, crate::group::ANY);
        let bucket = Bucket { weight, watch_port, watch_group, actions: vec![to] };
        Message::GroupMod(GroupMod { group, kind, buckets: vec![bucket], ..GroupMod::default() })
    };
    let to = |port| Action::Output { port, max_len: 0 };
    let wrong = [
        (Message::FlowMod(FlowMod { table: 9, ..add(1, &[]) }), problem::FLOW_BAD_TABLE),
        (Message::FlowMod(FlowMod { flags: 1 << 5, ..add(1, &[]) }), problem::FLOW_BAD_FLAGS),
        (Message::FlowMod(add(1, &[Oxm::exact(Field::TcpDst, 1)])), problem::MATCH_BAD_PREREQ),
        (Message::FlowMod(does(Instruction::GotoTable(9))), problem::INSTRUCTION_BAD_TABLE),
        (Message::FlowMod(does(Instruction::Meter(0))), problem::METER_UNKNOWN),
        (
            Message::FlowMod(does(Instruction::ApplyActions(vec![Action::PushVlan(1)]))),
            problem::ACTION_BAD_ARGUMENT,
        ),
        (group(1, GroupType::All, 1, to(1)), problem::GROUP_INVALID),
        (group(1, GroupType::All, 0, to(0)), problem::ACTION_BAD_OUT_PORT),
        (group(1, GroupType::All, 0, Action::Group(1)), problem::GROUP_LOOP),
        (Message::MeterMod(MeterMod::default()), problem::METER_INVALID),
        (Message::PortMod(PortMod { number: 99, ..PortMod::default() }), problem::PORT_BAD_PORT),
    ];
    assert_eq!(answer_to(&mut agent, bundle(0)), None);
    for (message, problem) in &wrong {
        let said = say(&mut agent, NEW, &bundled(message));
        let [(NEW, Message::Error(error))] = &said[..] else { panic!("{message:?}: {said:?}") };
        assert_eq!(Some((error.kind, error.code)), code(*problem), "{message:?}");
        // The error contains the message at fault, and not the request that adds it.
        assert_eq!(error.data[..2], [5, message.number(Version::V14).unwrap()]);
        assert_eq!(error.data[4..8], [0, 0, 0, 5]);
    }
    // An earlier message of the bundle may add what a later one names.
    assert_eq!(answer_to(&mut agent, bundled(&group(1, GroupType::All, 0, to(1)))), None);
    let meter = MeterMod { meter: 1, flags: 1, ..MeterMod::default() };
    assert_eq!(answer_to(&mut agent, bundled(&Message::MeterMod(meter))), None);
    let mut both = does(Instruction::Meter(1));
    both.instructions.push(Instruction::WriteActions(vec![Action::Group(1)]));
    assert_eq!(answer_to(&mut agent, bundled(&Message::FlowMod(both))), None);
    assert_eq!(answer_to(&mut agent, bundle(4)), None);
    assert_eq!((agent.flows(), agent.groups.len(), agent.meters.len()), (1, 1, 1));
}

/// The messages of a bundle are carried out in the order in which they were added, each with its
/// own xid in its errors.
#[test]
fn s6_8_4_messages_are_carried_out_in_order_and_errors_have_their_xids() {
    let mut agent = with_new();
    let delete = FlowMod { command: FlowCommand::Delete, ..add(0, &[]) };
    let steps = [flow(1), Message::FlowMod(delete), flow(2)];
    let send = |agent: &mut Agent, steps: &[Message]| {
        for (xid, step) in (20..).zip(steps) {
            agent.handle(NEW, xid, &wrapped(step, xid), 0, &mut Vec::new());
        }
        let mut out = Vec::new();
        agent.handle(NEW, 30, &bundle(4), 0, &mut out);
        out.into_iter().map(|out| (out.xid, out.message)).collect::<Vec<_>>()
    };
    assert!(matches!(&send(&mut agent, &steps)[..], [(30, Message::Bundle(_))]));
    assert_eq!((agent.flows(), first(&agent).entry.cookie), (1, 2));
    let unknown = GroupMod { command: GroupCommand::Modify, group: 3, ..GroupMod::default() };
    let said = send(&mut agent, &[flow(3), Message::GroupMod(unknown)]);
    let codes: Vec<_> = said
        .iter()
        .map(|(xid, message)| match message {
            Message::Error(error) => (*xid, Some((error.kind, error.code)), error.data[1]),
            other => panic!("{other:?}"),
        })
        .collect();
    let failed = [(21, code(problem::GROUP_UNKNOWN), 15), (30, code(problem::BUNDLE_FAILED), 33)];
    assert_eq!(codes, failed);
    assert_eq!(agent.flows(), 1);
    // A bundle ends with its commit, whether that succeeds or not.
    assert_eq!(answer_to(&mut agent, bundle(4)), code(problem::BUNDLE_BAD_ID));
}

#[test]
fn s6_8_4_a_failed_bundle_does_not_suppress_a_later_vacancy_event() {
    let mut agent = with_new();
    let vacancy = Property { kind: 3, data: vec![20, 50, 0, 0] };
    let table = TableMod { table: 0, config: 8, properties: vec![vacancy] };
    assert_eq!(say(&mut agent, NEW, &Message::TableMod(table)), []);
    let unknown = GroupMod { command: GroupCommand::Modify, group: 3, ..GroupMod::default() };
    let flows = || (1..=7).map(flow);
    for step in flows().chain([Message::GroupMod(unknown)]) {
        assert_eq!(answer_to(&mut agent, bundled(&step)), None);
    }
    let said = say(&mut agent, NEW, &bundle(4));
    assert!(said.iter().all(|(_, message)| matches!(message, Message::Error(_))), "{said:?}");
    assert_eq!(agent.flows(), 0);
    let said: Vec<_> = flows().flat_map(|step| say(&mut agent, NEW, &step)).collect();
    assert!(matches!(&said[..], [(NEW, Message::TableStatus(_))]), "{said:?}");
}

/// The notices of a failed bundle are not sent, so they take no room, and no controller has missed any.
#[test]
fn s6_8_4_a_failed_bundle_loses_no_notices() {
    let mut agent = with_new();
    agent.memory.notices = 1000;
    let flows = |n| (1..=n).map(|n| FlowMod { flags: 1, ..add(1, &[port(n)]) });
    let gone = || Message::FlowMod(FlowMod { command: FlowCommand::Delete, ..add(0, &[]) });
    let unknown = GroupMod { command: GroupCommand::Modify, group: 3, ..GroupMod::default() };
    for n in [1, 8] {
        flows(n).for_each(|flow| put(&mut agent, flow));
        for step in [gone(), Message::GroupMod(unknown.clone())] {
            assert_eq!(answer_to(&mut agent, bundled(&step)), None);
        }
        let said = say(&mut agent, NEW, &bundle(4));
        assert!(said.iter().all(|(_, message)| matches!(message, Message::Error(_))), "{said:?}");
        assert_eq!((agent.flows(), agent.lost_notices()), (n as usize, vec![]));
    }
    // Without a failure the notices do not have room.
    let said = say(&mut agent, NEW, &gone());
    let told = said.iter().filter(|(to, _)| *to == NEW).count();
    assert!((1..8).contains(&told) && agent.lost_notices().contains(&NEW), "{told}");
}

/// Bundles are an extension of 1.3 (230), with errors of its own.
#[test]
fn a_controller_of_1_3_has_bundles_and_one_of_1_0_has_none() {
    let mut agent = with_ports();
    agent.connect(2, Version::V10);
    let mut say = |from, control| {
        let said = say(&mut agent, from, &bundle(control));
        match said.last() {
            Some((_, Message::Bundle(m))) => Ok(m.control),
            Some((_, Message::Error(error))) => Err((error.kind, error.code, error.experimenter)),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((say(1, 0), say(1, 4)), (Ok(1), Ok(5)));
    assert_eq!(say(1, 4), Err((0xffff, 2302, problem::ONF)));
    assert_eq!(say(2, 0), Err((1, 1, 0)));
}
