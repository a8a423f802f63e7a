//! What controllers can make the agent store is limited in bytes, and what is removed is free again.

use super::*;
use crate::bundle::{Bundle, BundleAdd};
use crate::multipart::Monitor;
use crate::problem::ONF;

const WIDE: Limits = Limits { tables: 3, flows: 100_000, groups: 1000, meters: 1000 };

fn wide(memory: Memory) -> Agent {
    let mut agent = Agent::new(1, WIDE, 2);
    agent.limit_memory(memory);
    for connection in 1..=3 {
        agent.connect(connection, Version::V13);
    }
    agent
}

fn ask_from(agent: &mut Agent, from: u32, xid: u32, message: &Message) -> Vec<Message> {
    let mut out = Vec::new();
    agent.handle(from, xid, message, 0, &mut out);
    out.into_iter().filter(|out| out.to == from).map(|out| out.message).collect()
}

/// The code of an error of extension 230.
fn bundle_error(said: &[Message]) -> Option<u16> {
    match said {
        [.., Message::Error(ErrorMessage { kind: 0xffff, code, experimenter: ONF, .. })] => {
            Some(*code)
        }
        _ => None,
    }
}

fn control(id: u32, control: u16) -> Message {
    Message::Bundle(Bundle { id, control, flags: 3, properties: Vec::new() })
}

/// Adds a packet-out of `len` bytes, or a flow-mod if that is 0, to a bundle.
fn add_to(agent: &mut Agent, from: u32, id: u32, len: usize) -> Option<u16> {
    let message = match len {
        0 => Message::FlowMod(add(id as u16, &[])),
        len => Message::PacketOut(crate::flow::PacketOut {
            buffer: u32::MAX,
            in_port: reserved::CONTROLLER,
            actions: Vec::new(),
            data: vec![0; len],
        }),
    };
    let mut bytes = Vec::new();
    encode(&message, Version::V13, 7, &mut bytes).expect("can be said");
    let add = BundleAdd { id, flags: 3, message: bytes, properties: Vec::new() };
    bundle_error(&ask_from(agent, from, 7, &Message::BundleAdd(add)))
}

#[test]
fn bundles_have_a_limit_in_bytes_for_each_controller_and_for_all() {
    let memory = Memory { bundles: 1 << 20, all_bundles: 2 << 20, ..Memory::default() };
    let mut agent = wide(memory);
    let fill = |agent: &mut Agent, from, id| {
        assert_eq!(bundle_error(&ask_from(agent, from, 1, &control(id, 0))), None);
        let fits = |_: &i32| add_to(agent, from, id, 60_000).is_none();
        (0..1000).take_while(fits).count()
    };
    // 17 messages of 60,000 bytes are about a MiB; the refused one frees them.
    assert_eq!(fill(&mut agent, 1, 5), 17);
    assert_eq!(add_to(&mut agent, 1, 5, 0), Some(2312), "nothing is added to a part of a bundle");
    assert_eq!(bundle_error(&ask_from(&mut agent, 1, 2, &control(5, 4))), Some(2312));
    assert_eq!(bundle_error(&ask_from(&mut agent, 1, 2, &control(5, 4))), Some(2302));
    let drawn = agent.drain();
    assert!(drawn.is_empty(), "a part of a bundle must not be committed");
    // Two bundles of a controller share its limit.
    for id in [6, 7] {
        assert!((0..8).all(|_| add_to(&mut agent, 1, id, 60_000).is_none()));
    }
    assert!((0..16).all(|_| add_to(&mut agent, 2, 1, 60_000).is_none()));
    // Two MiB for all: the third controller has what the others leave, and more when they have gone.
    assert_eq!(fill(&mut agent, 3, 8), 2);
    agent.disconnect(2);
    assert_eq!(fill(&mut agent, 3, 9), 17);
    // A bundle that fits is committed.
    assert_eq!(add_to(&mut agent, 1, 6, 0), None);
    assert_eq!(bundle_error(&ask_from(&mut agent, 1, 2, &control(6, 4))), None);
    assert_eq!((agent.flows(), agent.drain().len()), (1, 9));
}

#[test]
fn a_bundle_changes_a_limited_number_of_flow_entries() {
    let mut agent = wide(Memory::default());
    for number in 0..1000 {
        put(&mut agent, FlowMod { table: 1, ..add(number, &[port(number.into())]) });
    }
    agent.drain();
    let change = FlowMod { table: 1, command: FlowCommand::Modify, ..add(0, &[]) };
    let mut bytes = Vec::new();
    encode(&Message::FlowMod(change), Version::V13, 7, &mut bytes).expect("can be said");
    for _ in 0..300 {
        let add = BundleAdd { id: 1, flags: 3, message: bytes.clone(), properties: Vec::new() };
        assert_eq!(ask_from(&mut agent, 1, 7, &Message::BundleAdd(add)), []);
    }
    assert_eq!(bundle_error(&ask_from(&mut agent, 1, 2, &control(1, 4))), Some(2313));
    assert!(agent.drain().is_empty());
    assert_eq!(agent.flows(), 1000);
}

#[test]
fn tables_have_a_limit_in_bytes_and_deleted_entries_are_free_again() {
    let mut agent = wide(Memory { tables: 1 << 20, ..Memory::default() });
    let flow = |number: u32| {
        let list = vec![Action::Output { port: 1, max_len: 0 }; 10];
        let to = Instruction::ApplyActions(list);
        FlowMod { instructions: vec![to], ..add(1, &[port(number.into())]) }
    };
    let fits = |number: &u32| refusal(&mut agent, Message::FlowMod(flow(*number))).is_none();
    let most = (1..10_000).take_while(fits).count() as u32;
    assert!((200..1000).contains(&most), "{most} flow entries in a MiB");
    assert!(agent.stored() <= 1 << 20);
    let full = code(problem::FLOW_TABLE_FULL);
    assert_eq!(refusal(&mut agent, Message::FlowMod(flow(most + 1))), full);
    // Another table, a group, a meter and table features have the same memory.
    let other = FlowMod { table: 2, ..flow(1) };
    assert_eq!(refusal(&mut agent, Message::FlowMod(other)), full);
    let buckets = vec![Bucket { watch_port: reserved::ANY, ..Bucket::default() }; 20];
    let command = GroupCommand::Add;
    let group = GroupMod { command, kind: GroupType::All, group: 1, buckets };
    let refused = refusal(&mut agent, Message::GroupMod(group.clone()));
    assert_eq!(refused, code(problem::GROUP_OUT_OF_BUCKETS));
    let bands = vec![Band::Drop { rate: 1, burst: 1 }; 16];
    let meter = MeterMod { command: MeterCommand::Add, meter: 1, flags: 1, bands };
    let refused = refusal(&mut agent, Message::MeterMod(meter.clone()));
    assert_eq!(refused, code(problem::METER_OUT_OF_METERS));
    // Replacing an entry with a smaller one is possible; with larger ones it is not.
    let small = FlowMod { instructions: Vec::new(), ..flow(1) };
    assert_eq!(refusal(&mut agent, Message::FlowMod(small)), None);
    let list = vec![Action::Output { port: 2, max_len: 0 }; 1000];
    let instructions = vec![Instruction::ApplyActions(list)];
    let large = FlowMod { command: FlowCommand::Modify, instructions, ..add(1, &[]) };
    assert_eq!(refusal(&mut agent, Message::FlowMod(large)), full);
    let gone = FlowMod { command: FlowCommand::Delete, ..add(0, &[]) };
    assert_eq!(refusal(&mut agent, Message::FlowMod(gone)), None);
    assert_eq!(agent.stored(), 0);
    assert_eq!(refusal(&mut agent, Message::GroupMod(group)), None);
    assert_eq!(refusal(&mut agent, Message::MeterMod(meter)), None);
    for message in [
        Message::GroupMod(GroupMod {
            command: GroupCommand::Delete,
            group: 1,
            ..GroupMod::default()
        }),
        Message::MeterMod(MeterMod {
            command: MeterCommand::Delete,
            meter: 1,
            ..MeterMod::default()
        }),
    ] {
        assert_eq!(refusal(&mut agent, message), None);
    }
    assert_eq!(agent.stored(), 0);
}

#[test]
fn a_bundle_that_fails_gives_its_memory_back() {
    let mut agent = wide(Memory::default());
    put(&mut agent, add(3, &[port(3)]));
    let before = agent.stored();
    let bundled = |message: &Message| {
        let mut bytes = Vec::new();
        encode(message, Version::V13, 7, &mut bytes).expect("can be said");
        Message::BundleAdd(BundleAdd { id: 1, flags: 3, message: bytes, properties: Vec::new() })
    };
    let buckets = vec![Bucket { watch_port: reserved::ANY, ..Bucket::default() }; 20];
    let group = GroupMod { command: GroupCommand::Add, group: 1, buckets, ..GroupMod::default() };
    let bands = vec![Band::Drop { rate: 1, burst: 1 }; 16];
    let meter = MeterMod { command: MeterCommand::Add, meter: 1, flags: 1, bands };
    let gone = FlowMod { command: FlowCommand::Delete, ..add(0, &[]) };
    // Only the commit can tell that there is no such group.
    let apply = Instruction::ApplyActions(vec![Action::Group(7)]);
    let wrong = FlowMod { instructions: vec![apply], ..add(1, &[]) };
    for message in [
        Message::GroupMod(group),
        Message::MeterMod(meter),
        Message::FlowMod(add(9, &[port(1)])),
        Message::FlowMod(gone),
        Message::FlowMod(wrong),
    ] {
        assert_eq!(ask_from(&mut agent, 1, 7, &bundled(&message)), []);
    }
    assert_eq!(bundle_error(&ask_from(&mut agent, 1, 2, &control(1, 4))), Some(2313));
    assert_eq!((agent.stored(), agent.flows(), agent.chains.buckets()), (before, 1, 0));
}

#[test]
fn pieces_of_a_request_have_a_limit_in_bytes() {
    let mut agent = wide(Memory { pieces: 10_000, all_pieces: 25_000, ..Memory::default() });
    let features = crate::table::TableFeatures {
        properties: vec![crate::table::Feature::Tables { kind: 2, list: vec![1; 500] }],
        ..Default::default()
    };
    let body = Request::TableFeatures(vec![features; 10]);
    let piece = Message::MultipartRequest { more: true, body };
    let is_refused = |said: Vec<Message>| matches!(&said[..], [Message::Error(error)] if (error.kind, error.code) == (1, 13));
    let taken = |agent: &mut Agent, from| {
        (0..10).take_while(|_| !is_refused(ask_from(agent, from, 4, &piece))).count()
    };
    let first = taken(&mut agent, 1);
    assert!((1..4).contains(&first), "{first}");
    // The refused request is forgotten, so its memory is free; all connections share the rest.
    for from in 1..=2 {
        assert!((0..first).all(|_| !is_refused(ask_from(&mut agent, from, 5, &piece))));
    }
    let memory = Memory { all_pieces: 12_000, pieces: 10_000, ..Memory::default() };
    agent.limit_memory(memory);
    assert!(taken(&mut agent, 3) < first);
}

/// An auxiliary connection has bundles of its own, and a connection several requests at once.
#[test]
fn auxiliary_connections_and_requests_in_parallel_share_the_limits_in_bytes() {
    let memory =
        Memory { bundles: 1 << 20, all_bundles: 3 << 19, pieces: 10_000, ..Memory::default() };
    let mut agent = wide(memory);
    agent.connect_auxiliary(4, 1, 1, Version::V13);
    let fill = |agent: &mut Agent, from| {
        (0..100).take_while(|_| add_to(agent, from, 5, 60_000).is_none()).count()
    };
    assert!((0..16).all(|_| add_to(&mut agent, 1, 5, 60_000).is_none()));
    // The limit of the connection would admit 17 messages, but that of all connections only these.
    assert_eq!(fill(&mut agent, 4), 10);
    // A request that contradicts the spoilt bundle discards it; the other one is unharmed.
    assert_eq!(bundle_error(&ask_from(&mut agent, 4, 2, &control(5, 0))), Some(2303));
    assert_eq!(bundle_error(&ask_from(&mut agent, 4, 2, &control(5, 4))), Some(2302));
    assert!(agent.drain().is_empty());
    assert_eq!(bundle_error(&ask_from(&mut agent, 1, 2, &control(5, 4))), None);
    assert_eq!(agent.drain().len(), 16);

    let features = crate::table::TableFeatures {
        properties: vec![crate::table::Feature::Tables { kind: 2, list: vec![1; 500] }],
        ..Default::default()
    };
    let body = Request::TableFeatures(vec![features; 10]);
    let piece = Message::MultipartRequest { more: true, body };
    let begun = |agent: &mut Agent, from| {
        (0..16).take_while(|xid| ask_from(agent, from, *xid, &piece).is_empty()).count()
    };
    let first = begun(&mut agent, 1);
    assert!((1..4).contains(&first), "{first}");
    assert_eq!(begun(&mut agent, 2), first);
    // After their time the requests are forgotten, and there is room again.
    let mut out = Vec::new();
    agent.expire(10 * SECOND, &mut out);
    let errors = out.iter().filter(|one| matches!(one.message, Message::Error(_)));
    assert_eq!(errors.count(), 2 * first);
    assert_eq!(begun(&mut agent, 1), first);
}

#[test]
fn notices_of_flow_entries_have_a_limit_and_a_controller_that_missed_some_is_named() {
    let mut agent = wide(Memory { notices: 20_000, all_notices: 50_000, ..Memory::default() });
    for number in 0..200 {
        put(&mut agent, FlowMod { flags: flags::SEND_FLOW_REM, ..add(number, &[port(1)]) });
    }
    let mut out = Vec::new();
    let gone = Message::FlowMod(FlowMod { command: FlowCommand::Delete, ..add(0, &[]) });
    agent.handle(1, 5, &gone, 0, &mut out);
    assert_eq!(agent.flows(), 0);
    let told = |to: u32| out.iter().filter(|out| out.to == to).count();
    assert!((10..100).contains(&told(1)), "{}", told(1));
    // The three share the limit for all, which is lower than three times that of each.
    assert!(told(1) - told(3) <= 1, "{} {}", told(1), told(3));
    assert_eq!((agent.lost_notices(), agent.lost_notices()), (vec![1, 2, 3], vec![]));
    // When the owner has taken the messages, there is room again.
    agent.drain();
    put(&mut agent, FlowMod { flags: flags::SEND_FLOW_REM, ..add(1, &[port(1)]) });
    out.clear();
    agent.handle(1, 5, &gone, 0, &mut out);
    assert_eq!((out.len(), agent.lost_notices()), (3, vec![]));
}

/// The parts of a reply, in the order in which they are made; `between` runs between two of them.
fn parts(
    agent: &mut Agent,
    body: Request,
    mut between: impl FnMut(&mut Agent),
) -> Vec<(bool, Reply)> {
    let mut out = Vec::new();
    let message = Message::MultipartRequest { more: false, body };
    agent.handle(1, 9, &message, 0, &mut out);
    while agent.is_replying(1) {
        between(agent);
        agent.proceed(1, 0, &mut out);
    }
    let part = |out: Out| match out {
        Out { to: 1, xid: 9, message: Message::MultipartReply { more, body }, .. } => (more, body),
        other => panic!("{other:?}"),
    };
    out.into_iter().map(part).collect()
}

#[test]
fn a_long_reply_is_made_in_pieces() {
    let mut agent = wide(Memory::default());
    for number in 0..5000_u32 {
        let table = (number % 2) as u8;
        put(&mut agent, FlowMod { table, ..add((number / 2) as u16, &[port(number.into())]) });
    }
    let filter = FlowFilter {
        table: crate::table::ALL,
        out_port: reserved::ANY,
        out_group: crate::group::ANY,
        ..FlowFilter::default()
    };
    let listed = |parts: &[(bool, Reply)]| -> Vec<(u8, u16)> {
        let flows = |(_, body): &(bool, Reply)| match body {
            Reply::Flow(list) => list.iter().map(|flow| (flow.table, flow.priority)).collect(),
            _ => Vec::new(),
        };
        parts.iter().flat_map(flows).collect()
    };
    let whole = parts(&mut agent, Request::Flow(filter.clone()), |_| {});
    assert_eq!(
        whole.iter().map(|(more, _)| *more).collect::<Vec<_>>(),
        [true, true, true, true, false]
    );
    let mut all = listed(&whole);
    assert_eq!(all.len(), 5000);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 5000);
    let one = FlowFilter { table: 1, ..filter.clone() };
    assert_eq!(listed(&parts(&mut agent, Request::Flow(one), |_| {})).len(), 2500);
    // A filter that selects nothing looks at a limited number of entries for each part.
    let none = FlowFilter { cookie: 1, cookie_mask: 1, ..filter.clone() };
    assert_eq!(parts(&mut agent, Request::Flow(none), |_| {}), [(false, Reply::Flow(Vec::new()))]);
    // Entries that vanish between two parts are not listed; the place in the table is found again.
    let gone = FlowMod { command: FlowCommand::Delete, table: 0, ..add(0, &[]) };
    let some = parts(&mut agent, Request::Flow(filter), |agent| put(agent, gone.clone()));
    assert_eq!(listed(&some).len(), 1024 + 2500);
}

#[test]
fn the_first_events_of_a_monitor_and_groups_are_listed_in_pieces_too() {
    let mut agent = wide(Memory::default());
    agent.connect(1, Version::V14);
    for number in 0..1500_u16 {
        put(&mut agent, add(number, &[port(number.into())]));
    }
    let monitor = Monitor {
        id: 1,
        flags: 1,
        table: crate::table::ALL,
        out_port: reserved::ANY,
        out_group: crate::group::ANY,
        ..Monitor::default()
    };
    let told = parts(&mut agent, Request::FlowMonitor(vec![monitor]), |_| {});
    let events = told.iter().map(|(_, body)| match body {
        Reply::FlowMonitor(list) => list.len(),
        _ => 0,
    });
    assert_eq!(events.collect::<Vec<_>>(), [1024, 476]);
    for group in 1..=100 {
        let watch = Bucket { watch_port: reserved::ANY, ..Bucket::default() };
        let actions = vec![Action::Output { port: 1, max_len: 0 }; 10];
        let buckets = vec![Bucket { actions, ..watch }; 50];
        let m = GroupMod { command: GroupCommand::Add, group, buckets, ..GroupMod::default() };
        assert_eq!(refusal(&mut agent, Message::GroupMod(m)), None);
    }
    let told = parts(&mut agent, Request::GroupDesc, |_| {});
    let groups = told.iter().flat_map(|(_, body)| match body {
        Reply::GroupDesc(list) => list.iter().map(|desc| desc.group).collect(),
        _ => Vec::new(),
    });
    assert_eq!(groups.collect::<Vec<u32>>(), (1..=100).collect::<Vec<u32>>());
    assert!(told.len() > 2 && told.iter().rev().skip(1).all(|(more, _)| *more));
}

#[test]
fn entries_time_out_a_limited_number_at_a_time() {
    let mut agent = wide(Memory::default());
    for number in 0..(OVER + 100) as u32 {
        let matching = [port(number.into())];
        put(
            &mut agent,
            FlowMod { hard_timeout: 1, table: (number % 3) as u8, ..add(1, &matching) },
        );
    }
    agent.expire(SECOND, &mut Vec::new());
    assert_eq!(agent.flows(), 100);
    agent.expire(SECOND, &mut Vec::new());
    assert_eq!((agent.flows(), agent.stored()), (0, 0));
}
