//! Tests of multipart requests, groups and meters. The names begin with sections of OpenFlow 1.4.0.

use super::channel::with_ports;
use super::*;
use crate::multipart::{Monitor, MonitorCommand};
use crate::table::{Feature, TableFeatures};

const NEW: u32 = 3;

fn with_new() -> Agent {
    let mut agent = with_ports();
    agent.connect(NEW, Version::V14);
    agent
}

/// Sends a part of a multipart request, and returns the answer.
fn part(agent: &mut Agent, from: u32, xid: u32, body: &Request, more: bool) -> Option<Message> {
    let mut out = Vec::new();
    let message = Message::MultipartRequest { more, body: body.clone() };
    agent.handle(from, xid, &message, 0, &mut out);
    assert!(out.iter().all(|out| (out.to, out.xid) == (from, xid)), "{out:?}");
    assert!(out.len() < 2, "{out:?}");
    out.pop().map(|out| out.message)
}

/// The error that answers a request.
fn refused(agent: &mut Agent, body: &Request) -> Option<(u16, u16)> {
    match part(agent, NEW, 5, body, false) {
        Some(Message::Error(error)) => Some((error.kind, error.code)),
        Some(Message::MultipartReply { .. }) => None,
        other => panic!("{other:?}"),
    }
}

fn reply(agent: &mut Agent, body: &Request) -> Reply {
    match part(agent, NEW, 5, body, false) {
        Some(Message::MultipartReply { body, more: false }) => body,
        other => panic!("{other:?}"),
    }
}

fn everything() -> FlowFilter {
    let (out_port, out_group) = (reserved::ANY, crate::group::ANY);
    FlowFilter { table: crate::table::ALL, out_port, out_group, ..FlowFilter::default() }
}

fn features(agent: &mut Agent) -> Vec<TableFeatures> {
    match reply(agent, &Request::TableFeatures(Vec::new())) {
        Reply::TableFeatures(list) => list,
        other => panic!("{other:?}"),
    }
}

#[test]
fn s7_3_5_messages_of_several_requests_may_be_interleaved() {
    let mut agent = with_new();
    let mut all = features(&mut agent);
    for property in &mut all[0].properties {
        if let Feature::Instructions { list, .. } = property {
            list.retain(|(number, _)| *number != 6);
        }
    }
    let (front, back) = all.split_at(2);
    let list = |part: &[TableFeatures]| Request::TableFeatures(part.to_vec());
    assert_eq!(part(&mut agent, NEW, 1, &list(front), true), None);
    // Another request, which has one message; one with two messages; a message of another type.
    assert!(part(&mut agent, NEW, 2, &Request::Table, false).is_some());
    assert_eq!(part(&mut agent, NEW, 3, &Request::Desc, true), None);
    let last = part(&mut agent, NEW, 1, &list(back), false);
    assert!(matches!(last, Some(Message::MultipartReply { body: Reply::TableFeatures(list), .. })
        if list == all));
    // A message may have no further elements.
    let last = part(&mut agent, NEW, 3, &Request::Desc, false);
    assert!(matches!(last, Some(Message::MultipartReply { body: Reply::Desc(_), .. })));
    // The messages of one request have one type.
    assert_eq!(part(&mut agent, NEW, 4, &Request::Desc, true), None);
    let other = part(&mut agent, NEW, 4, &Request::Table, false);
    assert!(matches!(other, Some(Message::Error(error)) if (error.kind, error.code) == (1, 2)));
}

#[test]
fn s7_3_5_a_request_that_is_too_long_or_never_completed_is_refused() {
    let mut agent = with_new();
    let is = |answer: Option<Message>, wanted| match answer {
        Some(Message::Error(error)) => (error.kind, error.code) == wanted,
        _ => false,
    };
    let long = Request::FlowMonitor(vec![Monitor::default(); 4097]);
    assert!(is(part(&mut agent, NEW, 1, &long, true), (1, 13)));
    for xid in 0..16 {
        assert_eq!(part(&mut agent, NEW, xid, &Request::Desc, true), None);
    }
    assert!(is(part(&mut agent, NEW, 16, &Request::Desc, true), (1, 13)));
    // A request of one message needs no space.
    assert!(part(&mut agent, NEW, 17, &Request::Desc, false).is_some());
    let mut out = Vec::new();
    agent.expire(10 * SECOND - 1, &mut out);
    assert_eq!(out, []);
    agent.expire(10 * SECOND, &mut out);
    assert!(out.iter().map(|out| out.xid).eq(0..16));
    assert!(out.into_iter().all(|out| is(Some(out.message), (1, 14))));
    assert_eq!(part(&mut agent, NEW, 16, &Request::Desc, true), None);
}

#[test]
fn s7_3_5_a_counter_that_does_not_exist_has_all_bits_set() {
    let mut agent = with_new();
    put(&mut agent, add(1, &[port(1)]));
    let flags = flags::NO_PKT_COUNTS | flags::NO_BYT_COUNTS | flags::SEND_FLOW_REM;
    put(&mut agent, FlowMod { flags, ..add(2, &[port(2)]) });
    for port in [1, 2, 2] {
        answer(&agent, port, 0);
    }
    let Reply::Flow(flows) = reply(&mut agent, &Request::Flow(everything())) else {
        panic!("no flows")
    };
    let counts: Vec<_> = flows.iter().map(|flow| (flow.packets, flow.bytes)).collect();
    assert_eq!(counts, [(u64::MAX, u64::MAX), (1, 100)]);
    let sum = reply(&mut agent, &Request::Aggregate(everything()));
    assert_eq!(sum, Reply::Aggregate { packets: 1, bytes: 100, flows: 2 });
    let delete = FlowMod { command: FlowCommand::Delete, ..add(0, &[port(2)]) };
    let said = ask(&mut agent, &Message::FlowMod(delete), 0);
    assert!(matches!(&said[..], [Message::FlowRemoved(m), _] if m.packets == u64::MAX));
    // The owner has not reported counters, and 1.3 cannot leave out those of Ethernet.
    let message = Message::MultipartRequest { more: false, body: Request::PortStats(1) };
    let said = ask(&mut agent, &message, 0);
    let mut wire = Vec::new();
    encode(&said[0], Version::V13, 5, &mut wire).expect("a reply");
    assert!(wire[24..120].iter().all(|byte| *byte == 0xff), "{wire:?}");
}

#[test]
fn s7_3_5_requests_for_what_does_not_exist_are_refused() {
    let mut agent = with_new();
    let table = FlowFilter { table: 9, ..everything() };
    assert_eq!(
        refused(&mut agent, &Request::Flow(table.clone())),
        code(problem::REQUEST_BAD_TABLE)
    );
    assert_eq!(refused(&mut agent, &Request::Aggregate(table)), code(problem::REQUEST_BAD_TABLE));
    assert_eq!(refused(&mut agent, &Request::PortStats(9)), code(problem::REQUEST_BAD_PORT));
    assert_eq!(refused(&mut agent, &Request::PortStats(reserved::ANY)), None);
    let queues: [fn(u32, u32) -> Request; 2] = [
        |port, queue| Request::QueueStats { port, queue },
        |port, queue| Request::QueueDesc { port, queue },
    ];
    for request in queues {
        assert_eq!(refused(&mut agent, &request(9, u32::MAX)), code(problem::QUEUE_BAD_PORT));
        assert_eq!(refused(&mut agent, &request(1, 1)), code(problem::QUEUE_BAD_QUEUE));
        assert_eq!(refused(&mut agent, &request(reserved::ANY, u32::MAX)), None);
    }
    assert_eq!(reply(&mut agent, &Request::Group(9)), Reply::Group(Vec::new()));
    assert_eq!(refused(&mut agent, &Request::Meter(9)), code(problem::METER_UNKNOWN));
    assert_eq!(refused(&mut agent, &Request::MeterConfig(9)), code(problem::METER_UNKNOWN));
    let foreign = Request::Experimenter { id: 9, kind: 0, data: Vec::new() };
    assert_eq!(refused(&mut agent, &foreign), code(problem::REQUEST_BAD_EXPERIMENTER));
    // Bundle features are a request of 1.5; table descriptions are one of 1.4.
    for (version, kind) in [(5, 19), (4, 14)] {
        let wire = [version, 18, 0, 16, 0, 0, 0, 0, 0, kind, 0, 0, 0, 0, 0, 0];
        let rejected = crate::decode(&wire).err().map(|rejected| rejected.problem);
        assert_eq!(rejected, Some(problem::REQUEST_BAD_MULTIPART));
    }
}

#[test]
fn s7_3_5_6_other_features_end_the_flows_of_a_table_and_its_size_is_read_only() {
    let mut agent = with_new();
    let mut all = features(&mut agent);
    for table in [0, 1] {
        put(&mut agent, FlowMod { table, flags: flags::SEND_FLOW_REM, ..add(1, &[port(1)]) });
    }
    agent.drain();
    // The same features change nothing.
    assert_eq!(refused(&mut agent, &Request::TableFeatures(all.clone())), None);
    assert_eq!(agent.flows(), 2);
    all[0].max_entries = 1;
    for property in &mut all[0].properties {
        if let Feature::Instructions { list, .. } = property {
            list.retain(|(number, _)| *number != 6);
        }
    }
    // No flow-removed message is sent, which `reply` checks.
    let Reply::TableFeatures(now) = reply(&mut agent, &Request::TableFeatures(all.clone())) else {
        panic!("no features")
    };
    assert_eq!(now[0].max_entries, 8);
    assert_eq!((agent.tables[0].len(), agent.tables[1].len()), (0, 1));
    assert!(matches!(&agent.drain()[..], [(_, Change::FlowGone(entry))] if entry.table == 0));
    let twice = all[1].properties[0].clone();
    all[1].properties.push(twice);
    let request = Request::TableFeatures(all);
    assert_eq!(refused(&mut agent, &request), code(problem::PROPERTY_DUPLICATE));
}

fn bucket(weight: u16, watch_port: u32, actions: &[Action]) -> Bucket {
    let watch_group = crate::group::ANY;
    Bucket { weight, watch_port, watch_group, actions: actions.to_vec() }
}

fn group(command: GroupCommand, kind: GroupType, group: u32, buckets: &[Bucket]) -> Message {
    Message::GroupMod(GroupMod { command, kind, group, buckets: buckets.to_vec() })
}

#[test]
fn s6_6_groups_have_limits_and_watch_only_what_can_be_watched() {
    use GroupType::{All, FastFailover, Indirect, Select};
    let mut agent = with_ports();
    let mut add = |kind, number, buckets: &[Bucket]| {
        refusal(&mut agent, group(GroupCommand::Add, kind, number, buckets))
    };
    let any = reserved::ANY;
    let watch = |watch_port, watch_group| Bucket { watch_port, watch_group, ..Bucket::default() };
    let unsupported = code(problem::GROUP_BAD_WATCH_UNSUPPORTED);
    assert_eq!(add(All, 1, &[watch(1, any)]), unsupported);
    assert_eq!(add(Indirect, 1, &[watch(any, 1)]), unsupported);
    let bad = code(problem::GROUP_BAD_WATCH);
    assert_eq!(add(FastFailover, 1, &[watch(any, any)]), bad);
    assert_eq!(add(FastFailover, 1, &[watch(reserved::CONTROLLER, any)]), bad);
    assert_eq!(add(FastFailover, 1, &[watch(any, 9)]), bad);
    let invalid = code(problem::GROUP_INVALID);
    assert_eq!(add(Indirect, 1, &[]), invalid);
    assert_eq!(add(All, crate::group::MAX + 1, &[]), invalid);
    let to = [Action::Output { port: 0, max_len: 0 }];
    assert_eq!(add(All, 1, &[bucket(0, any, &to)]), code(problem::ACTION_BAD_OUT_PORT));
    let to = [Action::Group(9)];
    assert_eq!(add(All, 1, &[bucket(0, any, &to)]), code(problem::ACTION_BAD_OUT_GROUP));
    let many = vec![bucket(0, any, &[]); 1025];
    assert_eq!(add(All, 1, &many), code(problem::GROUP_OUT_OF_BUCKETS));
    // Some controllers write 0 for a port that is not watched.
    assert_eq!(add(All, 1, &[bucket(0, 0, &[])]), None);
    assert_eq!(add(Select, 2, &[bucket(0, any, &[]), bucket(0, any, &[])]), invalid);
    assert_eq!(add(Select, 2, &[bucket(1, 1, &[]), bucket(0, any, &[])]), None);
    assert_eq!(add(FastFailover, 3, &[watch(2, any)]), None);
    assert_eq!(add(FastFailover, 4, &[watch(any, 3)]), None);
    assert_eq!(add(All, 5, &[]), code(problem::GROUP_OUT_OF_GROUPS));
    // Deleting a group that does not exist is no error, and its type is not needed.
    let delete = |number| group(GroupCommand::Delete, All, number, &[]);
    assert_eq!(refusal(&mut agent, delete(9)), None);
    assert_eq!(refusal(&mut agent, delete(crate::group::MAX + 1)), invalid);
    assert_eq!(refusal(&mut agent, delete(crate::group::ALL)), None);
    assert_eq!(agent.groups.len(), 0);
}

#[test]
fn s5_8_groups_count_and_a_modified_group_keeps_its_own_counters() {
    let mut agent = with_new();
    let any = reserved::ANY;
    let two = [bucket(1, any, &[]), bucket(1, any, &[])];
    for message in [
        group(GroupCommand::Add, GroupType::Select, 1, &two),
        group(GroupCommand::Add, GroupType::All, 2, &[bucket(0, any, &[Action::Group(1)])]),
    ] {
        assert_eq!(ask(&mut agent, &message, SECOND), []);
    }
    let then = vec![Instruction::WriteActions(vec![Action::Group(1)])];
    put(&mut agent, FlowMod { instructions: then, ..add(1, &[]) });
    // Two cores count.
    let counted = Arc::clone(&agent.groups[&1].group);
    for core in 0..2 {
        counted.counts[core].add(1, 100, 0);
        counted.buckets[2 + core].add(1, 100, 0);
    }
    let body = Request::Group(crate::group::ALL);
    let mut stats = || {
        let said = ask(
            &mut agent,
            &Message::MultipartRequest { more: false, body: body.clone() },
            3 * SECOND,
        );
        match &said[..] {
            [Message::MultipartReply { body: Reply::Group(list), .. }] => list.clone(),
            other => panic!("{other:?}"),
        }
    };
    let one = stats().remove(0);
    assert_eq!((one.group, one.references, one.duration_sec), (1, 2, 2));
    assert_eq!((one.packets, one.bytes, &one.buckets[..]), (2, 200, &[(0, 0), (2, 200)][..]));
    let modify = group(GroupCommand::Modify, GroupType::All, 1, &[bucket(0, any, &[])]);
    assert_eq!(ask(&mut agent, &modify, 2 * SECOND), []);
    let Reply::Group(list) = reply(&mut agent, &Request::Group(1)) else { panic!("no groups") };
    assert_eq!((list[0].packets, &list[0].buckets[..]), (2, &[(0, 0)][..]));
    let Reply::GroupDesc(list) = reply(&mut agent, &Request::GroupDesc) else {
        panic!("no groups")
    };
    assert_eq!((list.len(), list[0].kind, list[0].buckets.len()), (2, GroupType::All, 1));
    let features = reply(&mut agent, &Request::GroupFeatures);
    assert!(matches!(features, Reply::GroupFeatures { types: 0xf, capabilities: 0xf, max, .. }
        if max == [4; 4]));
}

fn meter(command: MeterCommand, meter: u32, flags: u16, bands: &[Band]) -> Message {
    Message::MeterMod(MeterMod { command, flags, meter, bands: bands.to_vec() })
}

#[test]
fn s6_7_meters_have_limits_and_virtual_meters_stay_when_all_are_deleted() {
    let mut agent = with_new();
    let drop = Band::Drop { rate: 1, burst: 0 };
    let mut add = |number, flags, bands: &[Band]| {
        refusal(&mut agent, meter(MeterCommand::Add, number, flags, bands))
    };
    let slow_path = crate::group::METER_CONTROLLER - 1;
    for number in [0, crate::group::METER_MAX + 1, slow_path, crate::group::METER_ALL] {
        assert_eq!(add(number, 1, &[]), code(problem::METER_INVALID), "{number}");
    }
    assert_eq!(add(1, 3, &[]), code(problem::METER_BAD_FLAGS));
    assert_eq!(add(1, 16, &[]), code(problem::METER_BAD_FLAGS));
    let foreign = Band::Experimenter { rate: 1, burst: 0, id: 9, data: Vec::new() };
    assert_eq!(add(1, 1, &[foreign]), code(problem::METER_BAD_BAND));
    let remark = Band::DscpRemark { rate: 1, burst: 0, levels: 8 };
    assert_eq!(add(1, 1, &[remark]), code(problem::METER_BAD_BAND_VALUE));
    assert_eq!(add(1, 1, &vec![drop.clone(); 17]), code(problem::METER_OUT_OF_BANDS));
    for number in 1..=3 {
        assert_eq!(add(number, 1, &vec![drop.clone(); 16]), None);
    }
    assert_eq!(add(crate::group::METER_CONTROLLER, 2, &[drop]), None);
    assert_eq!(add(4, 1, &[]), code(problem::METER_OUT_OF_METERS));
    let delete = |number| meter(MeterCommand::Delete, number, 0, &[]);
    assert_eq!(refusal(&mut agent, delete(9)), None);
    // The flows of a deleted meter end, and 1.4 has a reason for it.
    let instructions = vec![Instruction::Meter(2)];
    put(&mut agent, FlowMod { instructions, flags: 1, ..super::add(1, &[]) });
    let mut out = Vec::new();
    agent.handle(NEW, 5, &delete(2), 0, &mut out);
    let reasons: Vec<_> = out
        .iter()
        .map(|out| match &out.message {
            Message::FlowRemoved(m) => (out.to, m.reason),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(reasons, [(1, RemovedReason::Delete), (NEW, RemovedReason::MeterDelete)]);
    assert_eq!(refusal(&mut agent, delete(crate::group::METER_ALL)), None);
    let left: Vec<u32> = agent.meters.keys().copied().collect();
    assert_eq!(left, [crate::group::METER_CONTROLLER]);
    // It does not exist unless it is added, so it can be deleted by its number.
    assert_eq!(refusal(&mut agent, delete(crate::group::METER_CONTROLLER)), None);
    assert_eq!(agent.meters.len(), 0);
}

#[test]
fn s5_8_meters_count_and_a_modified_meter_keeps_its_own_counters() {
    let mut agent = with_new();
    let bands = [Band::Drop { rate: 1, burst: 2 }, Band::Drop { rate: 3, burst: 0 }];
    let flags = meter_flags::PKTPS | meter_flags::BURST | meter_flags::STATS;
    assert_eq!(refusal(&mut agent, meter(MeterCommand::Add, 7, flags, &bands)), None);
    put(&mut agent, FlowMod { instructions: vec![Instruction::Meter(7)], ..add(1, &[]) });
    let counted = Arc::clone(&agent.meters[&7].meter);
    counted.counts[1].add(3, 300, 0);
    counted.bands[2].add(1, 100, 0);
    let stats = |agent: &mut Agent| match reply(agent, &Request::Meter(7)) {
        Reply::Meter(mut list) => list.remove(0),
        other => panic!("{other:?}"),
    };
    let one = stats(&mut agent);
    assert_eq!((one.meter, one.flows, one.packets, one.bytes), (7, 1, 3, 300));
    assert_eq!(one.bands, [(0, 0), (1, 100)]);
    let all = reply(&mut agent, &Request::MeterConfig(crate::group::METER_ALL));
    let config = MeterConfig { flags, meter: 7, bands: bands.to_vec() };
    assert_eq!(all, Reply::MeterConfig(vec![config]));
    assert_eq!(refusal(&mut agent, meter(MeterCommand::Modify, 7, flags, &bands)), None);
    let one = stats(&mut agent);
    assert_eq!((one.packets, one.bands), (3, vec![(0, 0); 2]));
    let features = reply(&mut agent, &Request::MeterFeatures);
    assert!(matches!(features, Reply::MeterFeatures { max: 4, bands: 6, max_bands: 16, .. }));
}

#[test]
fn s7_3_5_17_a_wrong_monitor_request_changes_nothing() {
    let mut agent = with_new();
    let (out_port, out_group) = (reserved::ANY, crate::group::ANY);
    let one = Monitor { id: 1, out_port, out_group, table: 255, ..Monitor::default() };
    let mut send = |list: &[Monitor]| refused(&mut agent, &Request::FlowMonitor(list.to_vec()));
    let with = |command| Monitor { command, ..one.clone() };
    assert_eq!(send(&[with(MonitorCommand::Modify)]), code(problem::MONITOR_UNKNOWN));
    assert_eq!(send(&[with(MonitorCommand::Delete)]), code(problem::MONITOR_UNKNOWN));
    let flags = Monitor { flags: 1 << 7, ..one.clone() };
    assert_eq!(send(&[one.clone(), flags]), code(problem::MONITOR_EXISTS));
    assert_eq!(send(&[Monitor { flags: 1 << 7, ..one.clone() }]), code(problem::MONITOR_BAD_FLAGS));
    let table = Monitor { id: 2, table: 9, ..one.clone() };
    assert_eq!(send(&[one.clone(), table]), code(problem::MONITOR_BAD_TABLE));
    // The first one of the list was not added.
    assert_eq!(send(std::slice::from_ref(&one)), None);
    assert_eq!(send(&[with(MonitorCommand::Modify), with(MonitorCommand::Delete)]), None);
    assert_eq!(send(std::slice::from_ref(&one)), None);
    let many: Vec<Monitor> = (2..66).map(|id| Monitor { id, ..one.clone() }).collect();
    assert_eq!(send(&many), code(problem::MONITOR_INVALID));
    // 1.3 has no monitors.
    let old = part(&mut agent, 1, 5, &Request::FlowMonitor(vec![one]), false);
    assert!(matches!(old, Some(Message::Error(error)) if (error.kind, error.code) == (1, 2)));
}

/// Makes a message malformed.
type Damage = fn(&mut Vec<u8>);

/// What cannot be decoded is refused with an error of the message, and with its first 64 bytes.
#[test]
fn s7_4_4_malformed_groups_meters_and_monitors_have_errors_of_their_own() {
    let wire = |message: &Message, change: Damage| {
        let mut wire = Vec::new();
        encode(message, Version::V14, 5, &mut wire).expect("the version has the message");
        change(&mut wire);
        wire
    };
    let any = reserved::ANY;
    let group = group(GroupCommand::Add, GroupType::All, 1, &vec![bucket(0, any, &[]); 9]);
    let meter = meter(MeterCommand::Add, 1, 1, &[Band::Drop { rate: 1, burst: 0 }]);
    let body = Request::FlowMonitor(vec![Monitor::default()]);
    let monitor = Message::MultipartRequest { more: false, body };
    let cases: [(&Message, Damage, Problem); 7] = [
        (&group, |wire| wire[9] = 3, problem::GROUP_BAD_COMMAND),
        (&group, |wire| wire[10] = 4, problem::GROUP_BAD_TYPE),
        (&group, |wire| wire[17] = 8, problem::GROUP_BAD_BUCKET),
        (&meter, |wire| wire[9] = 3, problem::METER_BAD_COMMAND),
        (&meter, |wire| wire[17] = 9, problem::METER_BAD_BAND),
        (&meter, |wire| wire[19] = 20, problem::METER_BAD_BAND),
        (&monitor, |wire| wire[31] = 3, problem::MONITOR_BAD_COMMAND),
    ];
    for (message, change, problem) in cases {
        let wire = wire(message, change);
        let found = crate::decode(&wire).err().map(|rejected| rejected.problem);
        assert_eq!(found, Some(problem), "{message:?}");
        let Message::Error(error) = Message::error(problem, Version::V14, &wire) else {
            panic!("no error")
        };
        assert_eq!(error.data, wire[..wire.len().min(64)]);
    }
}
