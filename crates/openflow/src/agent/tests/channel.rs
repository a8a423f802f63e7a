//! Tests of ports, packet-ins, bundles, monitors and tables: the messages that controllers receive
//! and may send.

use super::*;
use crate::bundle::{Bundle, BundleAdd};
use crate::change::{Place, Punt};
use crate::flow::{InReason, PacketOut};
use crate::message::{Async, Config};
use crate::multipart::{Monitor, Update};
use crate::port::{Port, PortMod, PortReason, Property};
use crate::table::{Feature, TableFeatures, TableMod, TableReason};

pub(super) fn with_ports() -> Agent {
    let mut agent = agent();
    for number in 1..=3 {
        let port = Port { number, hw: [2, 0, 0, 0, 0, number as u8], ..Port::default() };
        agent.port_add(port, 0, &mut Vec::new());
    }
    agent
}

pub(super) fn say(agent: &mut Agent, from: u32, message: &Message) -> Vec<(u32, Message)> {
    let mut out = Vec::new();
    agent.handle(from, 5, message, 0, &mut out);
    out.into_iter().map(|out| (out.to, out.message)).collect()
}

fn punt(reason: InReason, max_len: u16) -> Punt {
    let frame = vec![0x11; 500];
    Punt { reason, table: 0, cookie: 7, in_port: 1, metadata: 0, max_len, frame }
}

fn punted(agent: &mut Agent, punt: &Punt, now: u64) -> Vec<(u32, crate::flow::PacketIn)> {
    let mut out = Vec::new();
    agent.punt(punt, now, &mut out);
    let packet_in = |out: Out| match out.message {
        Message::PacketIn(m) => (out.to, m),
        other => panic!("{other:?}"),
    };
    out.into_iter().map(packet_in).collect()
}

#[test]
fn s7_4_1_a_packet_in_goes_to_interested_controllers_cut_and_buffered() {
    let mut agent = with_ports();
    agent.connect(2, Version::V10);
    agent.connect(3, Version::V14);
    agent.connect_auxiliary(4, 3, 1, Version::V14);
    let said = punted(&mut agent, &punt(InReason::Group, 100), 0);
    let shown: Vec<_> = said.iter().map(|(to, m)| (*to, m.reason, m.data.len())).collect();
    let action = InReason::Action;
    assert_eq!(shown, [(1, action, 100), (2, action, 100), (4, InReason::Group, 100)]);
    // All controllers share one buffer. It is used once, and it expires.
    let buffer = said[0].1.buffer;
    assert!(said.iter().all(|(_, m)| m.buffer == buffer && m.total == 500));
    let out = |buffer| {
        let actions = vec![Action::Output { port: 2, max_len: 0 }];
        Message::PacketOut(PacketOut { buffer, in_port: 1, actions, data: Vec::new() })
    };
    agent.drain();
    assert_eq!(refusal(&mut agent, out(buffer)), None);
    let sent = agent.drain();
    assert!(matches!(&sent[..], [(_, Change::Send(m))] if m.data.len() == 500 && m.in_port == 1));
    assert_eq!(refusal(&mut agent, out(buffer)), code(problem::REQUEST_BUFFER_EMPTY));
    assert_eq!(refusal(&mut agent, out(buffer + 1)), code(problem::REQUEST_BUFFER_UNKNOWN));
    let late = punted(&mut agent, &punt(action, 100), 0)[0].1.buffer;
    let mut said = Vec::new();
    agent.handle(1, 1, &out(late), 6 * SECOND, &mut said);
    assert!(matches!(&said[0].message, Message::Error(error) if error.code == 8));
    // If all slots are in use, a frame is sent whole.
    for _ in 0..punts::BUFFERS {
        punted(&mut agent, &punt(action, 100), 0);
    }
    let whole = &punted(&mut agent, &punt(action, 100), 0)[0].1;
    assert_eq!((whole.buffer, whole.data.len()), (u32::MAX, 500));
    // Expired TTLs are reported only to controllers that asked for them; OpenFlow 1.0 has no such message.
    assert_eq!(punted(&mut agent, &punt(InReason::InvalidTtl, 0), 0), []);
    let masks = Message::SetAsync(Async(vec![(1, 7), (0, 0), (3, 0), (2, 0), (5, 0), (4, 0)]));
    assert_eq!(say(&mut agent, 1, &masks), []);
    assert_eq!(punted(&mut agent, &punt(InReason::InvalidTtl, 0), 0).len(), 1);
}

#[test]
fn s7_4_1_packet_ins_above_the_rate_limit_are_counted() {
    let mut agent = with_ports();
    agent.limit_punts(InReason::Action, Some(Rate { per_second: 10, burst: 3 }));
    let mut passed = |now| {
        (0..9)
            .filter(|_| !punted(&mut agent, &punt(InReason::Action, 0xffff), now).is_empty())
            .count()
    };
    assert_eq!((passed(0), passed(SECOND / 10), passed(9 * SECOND)), (3, 1, 3));
    assert_eq!(agent.punts_dropped(InReason::Action), 20);
    assert_eq!(punted(&mut agent, &punt(InReason::NoMatch, 0xffff), 0).len(), 1);
}

#[test]
fn a_frame_without_match_goes_to_the_controller_in_1_0_and_is_dropped_in_1_3() {
    let mut agent = with_ports();
    agent.drain();
    agent.connect(2, Version::V10);
    let to_controller = |change: &Change| match change {
        Change::Own(Place::Below, Some(entry)) => entry.priority == 0 && entry.cookie == u64::MAX,
        _ => false,
    };
    assert!(matches!(&agent.drain()[..], [(_, change)] if to_controller(change)));
    let miss = Punt { cookie: u64::MAX, ..punt(InReason::NoMatch, 0xffff) };
    let said = punted(&mut agent, &miss, 0);
    assert_eq!(said.iter().map(|(to, m)| (*to, m.data.len())).collect::<Vec<_>>(), [(2, 128)]);
    assert_eq!(say(&mut agent, 2, &Message::SetConfig(Config { flags: 0, miss_send_len: 9 })), []);
    assert_eq!(punted(&mut agent, &miss, 0)[0].1.data.len(), 9);
    // The controller's entries do not affect the switch's own, not even one of priority 0 that
    // matches everything; replies do not list the switch's own entry.
    put(&mut agent, add(0, &[]));
    assert!(matches!(&agent.drain()[..], [(_, Change::Flow(entry))] if entry.cookie == 0));
    put(&mut agent, FlowMod { command: FlowCommand::DeleteStrict, ..add(0, &[]) });
    assert!(matches!(&agent.drain()[..], [(_, Change::FlowGone(_))]));
    assert_eq!(agent.flows(), 0);
    agent.disconnect(2);
    assert!(matches!(&agent.drain()[..], [(_, Change::Own(Place::Below, None))]));
}

#[test]
fn s6_3_2_standalone_mode_sends_every_frame_to_normal_and_keeps_the_flows() {
    let mut agent = with_ports();
    put(&mut agent, add(u16::MAX, &[port(1)]));
    agent.drain();
    agent.standalone(Standalone::All, 0);
    agent.standalone(Standalone::All, 0);
    let normal = [Instruction::ApplyActions(vec![Action::Output {
        port: reserved::NORMAL,
        max_len: u16::MAX,
    }])];
    assert!(matches!(&agent.drain()[..],
        [(_, Change::Own(Place::Above, Some(entry)))] if entry.instructions == normal));
    put(&mut agent, FlowMod { cookie: 3, ..add(u16::MAX, &[port(2)]) });
    assert!(matches!(&agent.drain()[..], [(_, Change::Flow(entry))] if entry.cookie == 3));
    agent.standalone(Standalone::Off, 0);
    assert!(matches!(&agent.drain()[..], [(_, Change::Own(Place::Above, None))]));
}

#[test]
fn s7_3_4_4_ports_are_reported_and_changed() {
    let mut agent = with_ports();
    agent.drain();
    let change = |mask, hw| {
        let advertise = Some([0]);
        Message::PortMod(PortMod {
            number: 2,
            hw,
            config: mask,
            mask,
            advertise,
            ..PortMod::default()
        })
    };
    let own = [2, 0, 0, 0, 0, 2];
    assert_eq!(refusal(&mut agent, change(1, [0; 6])), code(problem::PORT_BAD_HW_ADDR));
    assert_eq!(refusal(&mut agent, change(2, own)), code(problem::PORT_BAD_CONFIG));
    let said = ask(&mut agent, &change(0x40, own), 0);
    assert!(matches!(&said[..], [Message::PortStatus(m)]
        if m.reason == PortReason::Modify && m.port.config == 0x40));
    assert!(matches!(&agent.drain()[..], [(_, Change::Port(port))] if port.config == 0x40));
    let quiet = Punt { in_port: 2, ..punt(InReason::Action, 0xffff) };
    assert_eq!(punted(&mut agent, &quiet, 0), []);
    // The configuration of the controller stays when the link changes.
    let mut out = Vec::new();
    agent.port_change(Port { number: 2, hw: own, state: 1, ..Port::default() }, 0, &mut out);
    assert!(matches!(&out[0].message, Message::PortStatus(m) if m.port.config == 0x40));
    agent.port_remove(2, &mut out);
    assert!(matches!(&out[1].message, Message::PortStatus(m) if m.reason == PortReason::Delete));
    assert_eq!(refusal(&mut agent, change(1, own)), code(problem::PORT_BAD_PORT));
    let packet_out = |in_port, to| {
        let actions = vec![Action::Output { port: to, max_len: 0 }];
        Message::PacketOut(PacketOut { buffer: u32::MAX, in_port, actions, data: vec![0; 60] })
    };
    assert_eq!(refusal(&mut agent, packet_out(2, 1)), code(problem::REQUEST_BAD_PORT));
    assert_eq!(refusal(&mut agent, packet_out(1, 2)), code(problem::ACTION_BAD_OUT_PORT));
    assert_eq!(refusal(&mut agent, packet_out(1, reserved::TABLE)), None);
}

pub(super) fn bundle(control: u16) -> Message {
    Message::Bundle(Bundle { id: 1, control, flags: 3, properties: Vec::new() })
}

pub(super) fn bundled(message: &Message) -> Message {
    let mut bytes = Vec::new();
    encode(message, Version::V14, 5, &mut bytes).expect("the version has the message");
    let properties = Vec::new();
    Message::BundleAdd(BundleAdd { id: 1, flags: 3, message: bytes, properties })
}

#[test]
fn s7_3_9_a_bundle_is_carried_out_completely_or_not_at_all() {
    let mut agent = with_ports();
    agent.connect(3, Version::V14);
    let refused = |said: Vec<(u32, Message)>| match said.last() {
        Some((_, Message::Error(error))) => Some((error.kind, error.code)),
        _ => None,
    };
    put(&mut agent, FlowMod { flags: flags::SEND_FLOW_REM, cookie: 9, ..add(1, &[port(1)]) });
    agent.drain();
    let before = (agent.changes(), agent.flows());
    assert_eq!(refused(say(&mut agent, 3, &bundle(4))), code(problem::BUNDLE_BAD_ID));
    assert_eq!(refused(say(&mut agent, 3, &bundle(0))), None);
    let barrier = bundled(&Message::BarrierRequest);
    assert_eq!(refused(say(&mut agent, 3, &barrier)), code(problem::BUNDLE_UNSUPPORTED));
    let delete = FlowMod { command: FlowCommand::Delete, table: 255, ..add(0, &[]) };
    let group = |command| {
        let (watch_port, watch_group) = (reserved::ANY, crate::group::ANY);
        let bucket = Bucket { weight: 1, watch_port, watch_group, actions: Vec::new() };
        let kind = GroupType::Select;
        Message::GroupMod(GroupMod { command, kind, group: 1, buckets: vec![bucket] })
    };
    let steps = [
        group(GroupCommand::Add),
        Message::FlowMod(delete),
        Message::FlowMod(add(2, &[port(2)])),
        group(GroupCommand::Add),
    ];
    for step in &steps {
        assert_eq!(refused(say(&mut agent, 3, &bundled(step))), None);
    }
    let said = say(&mut agent, 3, &bundle(4));
    // The error of the message and that of the bundle are sent; nothing else is reported or
    // changed.
    let codes: Vec<_> = said.iter().map(|one| refused(vec![one.clone()])).collect();
    assert_eq!(codes, [code(problem::GROUP_EXISTS), code(problem::BUNDLE_FAILED)]);
    assert_eq!((agent.changes(), agent.flows()), before);
    assert_eq!((agent.drain().len(), agent.groups.len(), first(&agent).entry.cookie), (0, 0, 9));
    // Without the last message, the bundle is carried out as a whole.
    say(&mut agent, 3, &bundle(0));
    for step in &steps[..3] {
        say(&mut agent, 3, &bundled(step));
    }
    assert_eq!(refused(say(&mut agent, 3, &bundle(2))), None);
    let said = say(&mut agent, 3, &bundle(4));
    assert!(matches!(said.last(), Some((3, Message::Bundle(m))) if m.control == 5));
    assert!(said.iter().any(|(to, m)| *to == 1 && matches!(m, Message::FlowRemoved(_))));
    assert_eq!((agent.drain().len(), agent.flows(), agent.groups.len()), (3, 1, 1));
}

#[test]
fn s7_3_5_17_a_monitor_reports_added_modified_and_removed_flows() {
    let mut agent = with_ports();
    agent.connect(3, Version::V14);
    put(&mut agent, add(1, &[port(1)]));
    let monitor = Monitor {
        id: 4,
        out_port: reserved::ANY,
        out_group: crate::group::ANY,
        flags: 1 | 2 | 4 | 8 | 16,
        table: 255,
        matching: Match(vec![port(1)]),
        ..Monitor::default()
    };
    let watch = |monitor| {
        let body = Request::FlowMonitor(vec![monitor]);
        Message::MultipartRequest { more: false, body }
    };
    let updates = |said: Vec<(u32, Message)>| -> Vec<Update> {
        let updates = said.into_iter().filter(|(to, _)| *to == 3).flat_map(|(_, m)| match m {
            Message::MultipartReply { body: Reply::FlowMonitor(list), .. } => list,
            other => panic!("{other:?}"),
        });
        updates.collect()
    };
    let event = |update: &Update| match update {
        Update::Full { event, .. } => *event,
        Update::Abbrev(_) => 4,
        Update::Paused | Update::Resumed => 5,
    };
    let first = updates(say(&mut agent, 3, &watch(monitor.clone())));
    assert_eq!(first.iter().map(event).collect::<Vec<_>>(), [0]);
    let twice = say(&mut agent, 3, &watch(monitor));
    assert!(
        matches!(&twice[..], [(3, Message::Error(error))] if (error.kind, error.code) == (16, 1))
    );
    let mut events = |from, m: FlowMod| {
        let updates = updates(say(&mut agent, from, &Message::FlowMod(m)));
        updates.iter().map(event).collect::<Vec<_>>()
    };
    assert_eq!(events(1, add(2, &[port(1)])), [1]);
    assert_eq!(events(1, add(2, &[port(2)])), []);
    // The controller's own changes are reported in one abbreviated event.
    assert_eq!(events(3, FlowMod { command: FlowCommand::Modify, ..add(0, &[]) }), [4]);
    let delete = FlowMod { command: FlowCommand::Delete, ..add(0, &[]) };
    assert_eq!(events(1, delete), [2, 2]);
}

/// Newer versions translate the actions of 1.0, and leave out the flows whose actions have no
/// translation.
#[test]
fn a_flow_of_1_0_does_not_hide_the_other_flows_from_newer_versions() {
    let mut agent = with_ports();
    agent.connect(2, Version::V10);
    agent.connect(3, Version::V14);
    for text in [
        "priority=1,udp,dl_vlan=5,actions=mod_vlan_vid:6,mod_tp_dst:7,enqueue:1:1",
        "priority=2,in_port=1,actions=mod_vlan_vid:6",
        "priority=3,in_port=1,actions=strip_vlan,output:2",
        "priority=4,in_port=2,actions=mod_tp_src:6",
    ] {
        let m = crate::ofctl::flow(text, FlowCommand::Add).expect("a flow");
        assert_eq!(say(&mut agent, 2, &Message::FlowMod(m)), [], "{text}");
    }
    // A controller that leaves out OFPVID_PRESENT in a set-field.
    let set = Action::SetField(Oxm::exact(Field::VlanVid, 11));
    let instructions = vec![Instruction::ApplyActions(vec![set])];
    put(&mut agent, FlowMod { instructions, ..add(5, &[Oxm::exact(Field::VlanVid, 0x1005)]) });
    let (out_port, out_group) = (reserved::ANY, crate::group::ANY);
    let filter = FlowFilter { table: 255, out_port, out_group, ..FlowFilter::default() };
    let monitor =
        Monitor { id: 1, out_port, out_group, flags: 17, table: 255, ..Monitor::default() };
    let wire = |agent: &mut Agent, from, body| {
        let version = agent.version(from).expect("a connection");
        let mut said = say(agent, from, &Message::MultipartRequest { more: false, body });
        let mut bytes = Vec::new();
        encode(&said.remove(0).1, version, 5, &mut bytes).expect("the version has the answer");
        match crate::decode(&bytes) {
            Ok((_, Message::MultipartReply { body, .. })) => body,
            other => panic!("{other:?}"),
        }
    };
    let texts = [
        "set_field:0x100b->vlan_vid",
        "pop_vlan,output:2",
        "set_field:0x1006->vlan_vid,set_field:7->udp_dst,set_queue:1,output:1",
    ];
    for from in [1, 3] {
        let Reply::Flow(flows) = wire(&mut agent, from, Request::Flow(filter.clone())) else {
            panic!("no flows")
        };
        let text =
            |flow| crate::ofctl::flow_text(flow).split("actions=").nth(1).unwrap().to_owned();
        assert_eq!(flows.iter().map(text).collect::<Vec<_>>(), texts);
    }
    let Reply::FlowMonitor(updates) = wire(&mut agent, 3, Request::FlowMonitor(vec![monitor]))
    else {
        panic!("no updates")
    };
    assert_eq!(updates.len(), texts.len());
    let Reply::Flow(old) = wire(&mut agent, 2, Request::Flow(filter)) else { panic!("no flows") };
    assert_eq!(old.len(), 5);
}

#[test]
fn s6_4_a_full_table_evicts_the_least_important_entry_and_sends_vacancy_events() {
    let mut agent = with_ports();
    agent.connect(3, Version::V14);
    let config = 4 | 8;
    let vacancy = Property { kind: 3, data: vec![20, 50, 0, 0] };
    let m = TableMod { table: 0, config, properties: vec![vacancy] };
    assert_eq!(say(&mut agent, 3, &Message::TableMod(m)), []);
    let mut reasons = Vec::new();
    let mut send = |agent: &mut Agent, m: FlowMod| {
        let said = say(agent, 3, &Message::FlowMod(m));
        reasons.extend(said.iter().filter_map(|(_, message)| match message {
            Message::TableStatus(m) => Some(m.reason),
            _ => None,
        }));
        said.iter().any(|(_, message)| matches!(message, Message::Error(_)))
    };
    let flow = |number: u16| FlowMod { importance: number + 1, ..add(1, &[port(number.into())]) };
    for number in 0..8 {
        assert!(!send(&mut agent, flow(number)));
    }
    assert!(!send(&mut agent, FlowMod { importance: 3, ..flow(20) }));
    assert_eq!((agent.flows(), answer(&agent, 0, 0), answer(&agent, 20, 0)), (8, None, Some(1)));
    assert!(send(&mut agent, FlowMod { importance: 1, ..flow(21) }));
    let delete = FlowMod { command: FlowCommand::Delete, ..add(0, &[]) };
    assert!(!send(&mut agent, delete));
    assert_eq!(reasons, [TableReason::VacancyDown, TableReason::VacancyUp]);
}

#[test]
fn s7_3_5_5_table_features_can_be_reduced_but_not_extended() {
    let mut agent = with_ports();
    let request =
        |list| Message::MultipartRequest { more: false, body: Request::TableFeatures(list) };
    let features = |said: Vec<Message>| match said.into_iter().next() {
        Some(Message::MultipartReply { body: Reply::TableFeatures(list), .. }) => list,
        other => panic!("{other:?}"),
    };
    let mut all = features(ask(&mut agent, &request(Vec::new()), 0));
    assert_eq!(all.len(), 4);
    let mut wide: TableFeatures = all[0].clone();
    wide.properties.push(Feature::Tables { kind: 3, list: vec![9] });
    assert_eq!(refusal(&mut agent, request(vec![wide])), code(problem::FEATURES_EPERM));
    for property in &mut all[0].properties {
        if let Feature::Fields { kind: 8, list } = property {
            list.retain(|(header, _)| header >> 9 == Field::InPort.header(false) >> 9);
        }
    }
    let cut = features(ask(&mut agent, &request(all.clone()), 0));
    assert_eq!(cut[0], all[0]);
    put(&mut agent, add(1, &[port(1)]));
    let other = add(1, &[Oxm::exact(Field::EthType, 0x800)]);
    assert_eq!(refusal(&mut agent, Message::FlowMod(other)), code(problem::MATCH_BAD_FIELD));
}

#[test]
fn s7_2_5_a_set_field_needs_the_header_that_it_sets() {
    let mut agent = with_ports();
    let mut check = |fields: &[Oxm], list: Vec<Action>| {
        let instructions = vec![Instruction::ApplyActions(list)];
        refusal(&mut agent, Message::FlowMod(FlowMod { instructions, ..add(1, fields) }))
    };
    let set = |field| Action::SetField(Oxm::exact(field, 1));
    let ip = [Oxm::exact(Field::EthType, 0x800)];
    let inconsistent = code(problem::ACTION_INCONSISTENT);
    assert_eq!(check(&ip, vec![set(Field::Ipv4Src)]), None);
    assert_eq!(check(&[], vec![set(Field::Ipv4Src)]), inconsistent);
    assert_eq!(check(&ip, vec![set(Field::TcpDst)]), inconsistent);
    assert_eq!(check(&ip, vec![set(Field::VlanPcp)]), inconsistent);
    assert_eq!(check(&ip, vec![Action::PushVlan(0x8100), set(Field::VlanPcp)]), None);
    assert_eq!(check(&ip, vec![Action::PushMpls(0x8847), set(Field::Ipv4Src)]), inconsistent);
    let pop = vec![Action::PushMpls(0x8847), Action::PopMpls(0x800), set(Field::Ipv4Src)];
    assert_eq!(check(&ip, pop), None);
    assert_eq!(check(&[], vec![Action::DecNwTtl]), inconsistent);
    assert_eq!(
        check(&[], vec![Action::Output { port: reserved::TABLE, max_len: 0 }]),
        code(problem::ACTION_BAD_OUT_PORT)
    );
}

#[test]
fn s7_3_9_1_roles_are_reported_and_slaves_may_not_write() {
    let mut agent = with_ports();
    agent.connect(3, Version::V14);
    agent.connect(4, Version::V14);
    let role = |role, generation| {
        Message::RoleRequest(RoleMessage { role, generation, ..RoleMessage::default() })
    };
    say(&mut agent, 3, &role(Role::Master, 1));
    let said = say(&mut agent, 4, &role(Role::Master, 2));
    assert!(matches!(&said[..], [(3, Message::RoleStatus(m)), (4, Message::RoleReply(_))]
        if m.role == Role::Slave));
    let group = GroupMod { group: 1, ..GroupMod::default() };
    let said = say(&mut agent, 3, &Message::GroupMod(group.clone()));
    assert!(matches!(&said[..], [(3, Message::Error(error))] if error.code == 10));
    // A controller that requests it is notified of other controllers' group changes.
    assert_eq!(say(&mut agent, 3, &Message::SetAsync(Async(vec![(10, 1)]))), []);
    let said = say(&mut agent, 4, &Message::GroupMod(group));
    assert!(matches!(&said[..], [(3, Message::RequestForward(_))]));
    let said = say(&mut agent, 3, &Message::SetAsync(Async(vec![(8, 1)])));
    assert!(
        matches!(&said[..], [(3, Message::Error(error))] if (error.kind, error.code) == (15, 0))
    );
}
