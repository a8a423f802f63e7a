//! Tests of the agent. The name of a test begins with the section of OpenFlow 1.3.5 that it checks.

mod bundles;
mod chains;
mod channel;
mod memory;
mod model;
mod multipart;
mod own;
mod rules;
mod v10;
mod weights;

use super::flows::SECOND;
use super::*;
use crate::act::{Action, Instruction};
use crate::flow::FlowRemoved;
use crate::flow::{FlowCommand, FlowMod};
use crate::group::{Band, Bucket};
use crate::group::{GroupCommand, GroupMod, GroupType, MeterCommand, MeterMod, meter_flags};
use crate::message::ErrorMessage;
use crate::message::{Role, RoleMessage};
use crate::multipart::{FlowFilter, MeterConfig, Reply, Request};
use crate::port::reserved;
use crate::{Field, Match, Oxm};

const LIMITS: Limits = Limits { tables: 4, flows: 8, groups: 4, meters: 4 };

fn agent() -> Agent {
    let mut agent = Agent::new(1, LIMITS, 2);
    agent.connect(1, Version::V13);
    agent
}

fn ask(agent: &mut Agent, message: &Message, now: u64) -> Vec<Message> {
    let mut out = Vec::new();
    agent.handle(1, 5, message, now, &mut out);
    out.into_iter().map(|out| out.message).collect()
}

/// The error with which a message is answered.
#[allow(clippy::needless_pass_by_value, reason = "messages are made in place")]
fn refusal(agent: &mut Agent, message: Message) -> Option<(u16, u16)> {
    match ask(agent, &message, 0).as_slice() {
        [Message::Error(ErrorMessage { kind, code, .. })] => Some((*kind, *code)),
        _ => None,
    }
}

const fn code(problem: Problem) -> Option<(u16, u16)> {
    Some((problem.kind as u16, problem.code))
}

fn add(priority: u16, fields: &[Oxm]) -> FlowMod {
    let matching = Match(fields.to_vec());
    let any = reserved::ANY;
    FlowMod {
        priority,
        matching,
        out_port: any,
        out_group: any,
        buffer: u32::MAX,
        ..FlowMod::default()
    }
}

fn port(number: u128) -> Oxm {
    Oxm::exact(Field::InPort, number)
}

/// Does what the data plane would do: finds the flow entry, and counts the frame.
fn answer(agent: &Agent, number: u128, now: u64) -> Option<u16> {
    let fields = Fields::from([(Field::InPort, number)]);
    let entry = agent.lookup(0, &fields)?;
    entry.counts[0].add(1, 100, now);
    Some(entry.priority)
}

fn first(agent: &Agent) -> &Installed {
    agent.tables[0].iter().next().expect("a flow")
}

fn put(agent: &mut Agent, m: FlowMod) {
    assert_eq!(ask(agent, &Message::FlowMod(m), 0), []);
}

#[test]
fn a_switch_with_255_tables_reports_each() {
    let mut agent = Agent::new(1, Limits { tables: 255, ..LIMITS }, 1);
    agent.connect(1, Version::V13);
    put(&mut agent, FlowMod { table: 254, ..add(1, &[]) });
    let told =
        |agent: &mut Agent, body| ask(agent, &Message::MultipartRequest { more: false, body }, 0);
    let filter = FlowFilter {
        table: crate::table::ALL,
        out_port: crate::port::reserved::ANY,
        out_group: crate::group::ANY,
        ..FlowFilter::default()
    };
    let [Message::MultipartReply { body: Reply::Flow(flows), .. }] =
        &told(&mut agent, Request::Flow(filter))[..]
    else {
        panic!("no flows");
    };
    assert_eq!(flows.iter().map(|flow| flow.table).collect::<Vec<_>>(), [254]);
    let [Message::MultipartReply { body: Reply::Table(tables), .. }] =
        &told(&mut agent, Request::Table)[..]
    else {
        panic!("no tables");
    };
    assert_eq!(tables.len(), 255);
}

#[test]
fn s5_3_the_matching_entry_with_the_highest_priority_answers() {
    let mut agent = agent();
    put(&mut agent, add(0, &[]));
    put(&mut agent, add(9, &[port(1)]));
    put(&mut agent, add(5, &[Oxm::masked(Field::Metadata, 0, 1), port(1)]));
    assert_eq!((answer(&agent, 1, 0), answer(&agent, 2, 0)), (Some(9), Some(0)));
    let untagged = [Oxm::exact(Field::VlanVid, 0)];
    put(&mut agent, add(7, &untagged));
    assert_eq!(answer(&agent, 2, 0), Some(7));
}

#[test]
fn s6_4_an_add_replaces_an_equal_entry_and_keeps_its_counters_unless_asked_to_reset_them() {
    let mut agent = agent();
    put(&mut agent, add(1, &[port(1), Oxm::exact(Field::EthType, 0x800)]));
    let fields = Fields::from([(Field::InPort, 1), (Field::EthType, 0x800)]);
    agent.lookup(0, &fields).expect("a flow").counts[1].add(1, 100, 0);
    // The same match, with its fields in another order.
    let mut m = add(1, &[Oxm::exact(Field::EthType, 0x800), port(1)]);
    m.cookie = 3;
    put(&mut agent, m.clone());
    let flow = first(&agent);
    assert_eq!(
        (agent.tables[0].len(), flow.entry.cookie, flow.counted()),
        (1, 3, (Some(1), Some(100)))
    );
    put(&mut agent, FlowMod { flags: flags::RESET_COUNTS, ..m });
    assert_eq!(first(&agent).counted().0, Some(0));
}

#[test]
fn s6_4_check_overlap_refuses_an_entry_that_could_match_the_same_frame() {
    let mut agent = agent();
    put(&mut agent, add(1, &[port(1)]));
    let overlap = |priority, fields: &[Oxm]| {
        Message::FlowMod(FlowMod { flags: flags::CHECK_OVERLAP, ..add(priority, fields) })
    };
    let other = [Oxm::exact(Field::EthType, 0x806)];
    assert_eq!(refusal(&mut agent, overlap(1, &other)), code(problem::FLOW_OVERLAP));
    assert_eq!(refusal(&mut agent, overlap(2, &other)), None);
    assert_eq!(refusal(&mut agent, overlap(1, &[port(2)])), None);
}

#[test]
fn s6_4_delete_selects_narrower_matches_and_delete_strict_only_equal_ones() {
    let mut agent = agent();
    let all = |agent: &mut Agent| {
        for priority in [1, 2] {
            put(agent, FlowMod { cookie: priority.into(), ..add(priority, &[port(1)]) });
        }
        put(agent, add(1, &[port(2)]));
    };
    let left = |agent: &mut Agent, m: FlowMod| {
        put(agent, m);
        agent.tables[0].len()
    };
    all(&mut agent);
    let delete = |fields: &[Oxm], command| FlowMod { command, ..add(2, fields) };
    assert_eq!(left(&mut agent, delete(&[], FlowCommand::DeleteStrict)), 3);
    assert_eq!(left(&mut agent, delete(&[port(1)], FlowCommand::DeleteStrict)), 2);
    assert_eq!(left(&mut agent, delete(&[port(1)], FlowCommand::Delete)), 1);
    all(&mut agent);
    let cookie = FlowMod { cookie: 2, cookie_mask: !0, ..delete(&[], FlowCommand::Delete) };
    assert_eq!(left(&mut agent, cookie), 2);
    let nowhere = FlowMod { out_port: 7, ..delete(&[], FlowCommand::Delete) };
    assert_eq!(left(&mut agent, nowhere), 2);
    assert_eq!(left(&mut agent, FlowMod { table: 255, ..delete(&[], FlowCommand::Delete) }), 0);
}

#[test]
fn s6_4_modify_changes_only_instructions_and_adds_no_entry() {
    let mut agent = agent();
    put(&mut agent, FlowMod { cookie: 4, idle_timeout: 9, ..add(1, &[port(1)]) });
    let instructions = vec![Instruction::GotoTable(1)];
    let m =
        FlowMod { command: FlowCommand::Modify, instructions: instructions.clone(), ..add(3, &[]) };
    put(&mut agent, m.clone());
    let flow = first(&agent);
    assert_eq!((flow.entry.cookie, flow.idle_timeout), (4, 9));
    assert_eq!((&flow.entry.instructions, agent.tables[0].len()), (&instructions, 1));
    let strict = FlowMod { command: FlowCommand::ModifyStrict, instructions: Vec::new(), ..m };
    put(&mut agent, strict);
    assert_eq!(first(&agent).entry.instructions, instructions);
}

#[test]
fn s6_4_an_invalid_flow_mod_is_refused_and_changes_nothing() {
    let mut agent = agent();
    let mut check = |m: FlowMod, problem| {
        let before = format!("{agent:?}");
        assert_eq!(refusal(&mut agent, Message::FlowMod(m)), code(problem), "{problem}");
        assert_eq!(format!("{agent:?}"), before);
    };
    let does = |instruction| FlowMod { instructions: vec![instruction], table: 1, ..add(1, &[]) };
    let acts = |action| does(Instruction::ApplyActions(vec![action]));
    check(add(1, &[Oxm::exact(Field::TcpDst, 1)]), problem::MATCH_BAD_PREREQ);
    check(add(1, &[port(1), port(1)]), problem::MATCH_DUPLICATE);
    check(add(1, &[Oxm::exact(Field::VlanVid, 5)]), problem::MATCH_BAD_VALUE);
    check(FlowMod { table: 9, ..add(1, &[]) }, problem::FLOW_BAD_TABLE);
    check(FlowMod { table: 255, ..add(1, &[]) }, problem::FLOW_BAD_TABLE);
    check(does(Instruction::GotoTable(1)), problem::INSTRUCTION_BAD_TABLE);
    check(does(Instruction::GotoTable(4)), problem::INSTRUCTION_BAD_TABLE);
    check(does(Instruction::Meter(1)), problem::METER_UNKNOWN);
    check(acts(Action::Group(1)), problem::ACTION_BAD_OUT_GROUP);
    check(acts(Action::PushVlan(0x800)), problem::ACTION_BAD_ARGUMENT);
    for number in 0..8 {
        put(&mut agent, add(1, &[port(number)]));
    }
    let full = Message::FlowMod(add(1, &[port(9)]));
    assert_eq!(refusal(&mut agent, full), code(problem::FLOW_TABLE_FULL));
}

#[test]
fn s5_5_idle_and_hard_timeouts_remove_entries_and_notify_the_controller() {
    let mut agent = agent();
    let flags = flags::SEND_FLOW_REM;
    put(&mut agent, FlowMod { idle_timeout: 2, flags, ..add(1, &[port(1)]) });
    put(&mut agent, FlowMod { hard_timeout: 3, idle_timeout: 3, flags, ..add(2, &[port(2)]) });
    let removed = |agent: &mut Agent, now: u64| {
        let mut out = Vec::new();
        agent.expire(now, &mut out);
        let reason = |out: Out| match out.message {
            Message::FlowRemoved(FlowRemoved { reason, duration_sec, packets, .. }) => {
                (reason, duration_sec, packets)
            }
            other => panic!("{other:?}"),
        };
        out.into_iter().map(reason).collect::<Vec<_>>()
    };
    assert_eq!(answer(&agent, 1, SECOND), Some(1));
    assert_eq!(removed(&mut agent, 3 * SECOND - 1), []);
    // The entry with the higher priority comes first.
    let both = [(RemovedReason::HardTimeout, 3, 0), (RemovedReason::IdleTimeout, 3, 1)];
    assert_eq!(removed(&mut agent, 3 * SECOND), both);
    assert_eq!(agent.tables[0].len(), 0);
}

#[test]
fn s5_5_resetting_the_counters_does_not_change_the_idle_timeout() {
    let mut agent = agent();
    put(&mut agent, FlowMod { idle_timeout: 2, ..add(1, &[port(1)]) });
    assert_eq!(answer(&agent, 1, SECOND), Some(1));
    let (command, flags) = (FlowCommand::Modify, flags::RESET_COUNTS);
    put(&mut agent, FlowMod { command, flags, ..add(1, &[port(1)]) });
    agent.expire(3 * SECOND - 1, &mut Vec::new());
    assert_eq!(agent.tables[0].len(), 1);
    agent.expire(3 * SECOND, &mut Vec::new());
    assert_eq!(agent.tables[0].len(), 0);
}

#[test]
fn s6_5_deleting_a_group_deletes_its_flows_and_loops_are_refused() {
    let mut agent = agent();
    let group = |command, group, to: Action| {
        let (watch_port, watch_group) = (reserved::ANY, crate::group::ANY);
        let bucket = Bucket { actions: vec![to], watch_port, watch_group, ..Bucket::default() };
        let kind = GroupType::Indirect;
        Message::GroupMod(GroupMod { command, kind, group, buckets: vec![bucket] })
    };
    let out = Action::Output { port: 1, max_len: 0 };
    let add_group = |number, to| group(GroupCommand::Add, number, to);
    assert_eq!(refusal(&mut agent, add_group(1, out.clone())), None);
    assert_eq!(refusal(&mut agent, add_group(1, out.clone())), code(problem::GROUP_EXISTS));
    assert_eq!(refusal(&mut agent, add_group(2, Action::Group(1))), None);
    let change = |number, to| group(GroupCommand::Modify, number, to);
    assert_eq!(refusal(&mut agent, change(1, Action::Group(2))), code(problem::GROUP_LOOP));
    assert_eq!(refusal(&mut agent, change(3, out.clone())), code(problem::GROUP_UNKNOWN));
    let to = |number| Instruction::WriteActions(vec![Action::Group(number)]);
    put(&mut agent, FlowMod { instructions: vec![to(2)], flags: 1, ..add(1, &[port(1)]) });
    let delete = |number| group(GroupCommand::Delete, number, out.clone());
    assert_eq!(refusal(&mut agent, delete(1)), code(problem::GROUP_CHAINED));
    let said = ask(&mut agent, &delete(2), 0);
    assert!(
        matches!(&said[..], [Message::FlowRemoved(m)] if m.reason == RemovedReason::GroupDelete)
    );
    assert_eq!((agent.tables[0].len(), agent.groups.len()), (0, 1));
}

#[test]
fn s6_5_only_select_groups_have_weights() {
    let mut agent = agent();
    let mut add = |kind, weight| {
        let watches = kind == GroupType::FastFailover;
        let watch_port = if watches { 1 } else { reserved::ANY };
        let watch_group = crate::group::ANY;
        let bucket = Bucket { weight, watch_port, watch_group, actions: Vec::new() };
        let (command, group) = (GroupCommand::Add, kind as u32 + 1);
        refusal(
            &mut agent,
            Message::GroupMod(GroupMod { command, kind, group, buckets: vec![bucket] }),
        )
    };
    for kind in [GroupType::All, GroupType::Indirect, GroupType::FastFailover] {
        assert_eq!(add(kind, 1), code(problem::GROUP_INVALID), "{kind:?}");
        assert_eq!(add(kind, 0), None, "{kind:?}");
    }
    assert_eq!(add(GroupType::Select, 0), code(problem::GROUP_INVALID));
    assert_eq!(add(GroupType::Select, 1), None);
}

#[test]
fn s5_7_a_meter_passes_its_rate_and_its_burst() {
    let band = Band::Drop { rate: 10, burst: 3 };
    let flags = meter_flags::PKTPS | meter_flags::BURST;
    let config = MeterConfig { flags, meter: 1, bands: vec![band] };
    let mut meter = Meter::new(config.clone(), 0);
    let passed =
        |meter: &mut Meter, now| (0..9).filter(|_| meter.apply(100, now).is_none()).count();
    assert_eq!(passed(&mut meter, 0), 3);
    assert_eq!(passed(&mut meter, SECOND / 10), 1);
    assert_eq!(passed(&mut meter, 2 * SECOND), 3);
    assert_eq!((meter.seen, meter.hits[0]), ((27, 2700), (20, 2000)));
    // 8 kb/s are ten frames of 100 bytes per second.
    let mut meter = Meter::new(
        MeterConfig { flags: 1, bands: vec![Band::Drop { rate: 8, burst: 0 }], ..config },
        0,
    );
    assert_eq!((0..20).filter(|_| meter.apply(100, 0).is_none()).count(), 10);
}

#[test]
fn s6_6_a_meter_is_added_once_and_deleting_it_deletes_its_flows() {
    let mut agent = agent();
    let meter = |command, flags| {
        Message::MeterMod(MeterMod { command, flags, meter: 1, bands: Vec::new() })
    };
    assert_eq!(refusal(&mut agent, meter(MeterCommand::Modify, 1)), code(problem::METER_UNKNOWN));
    assert_eq!(refusal(&mut agent, meter(MeterCommand::Add, 3)), code(problem::METER_BAD_FLAGS));
    assert_eq!(refusal(&mut agent, meter(MeterCommand::Add, 1)), None);
    assert_eq!(refusal(&mut agent, meter(MeterCommand::Add, 1)), code(problem::METER_EXISTS));
    put(&mut agent, FlowMod { instructions: vec![Instruction::Meter(1)], ..add(1, &[]) });
    assert_eq!(refusal(&mut agent, meter(MeterCommand::Delete, 0)), None);
    assert_eq!((agent.tables[0].len(), agent.meters.len()), (0, 0));
}

#[test]
fn s6_3_4_there_is_one_master_and_stale_generations_are_refused() {
    let mut agent = agent();
    agent.connect(2, Version::V13);
    let role = |agent: &mut Agent, from, role, generation| {
        let mut out = Vec::new();
        let request = RoleMessage { role, generation, ..RoleMessage::default() };
        agent.handle(from, 0, &Message::RoleRequest(request), 0, &mut out);
        out.pop().map(|out| out.message)
    };
    let is = |reply: Option<Message>, wanted| matches!(reply, Some(Message::RoleReply(RoleMessage { role, .. })) if role == wanted);
    assert!(is(role(&mut agent, 1, Role::Master, 5), Role::Master));
    assert!(is(role(&mut agent, 2, Role::Master, 6), Role::Master));
    assert!(is(role(&mut agent, 1, Role::NoChange, 0), Role::Slave));
    let stale = role(&mut agent, 1, Role::Master, 5);
    assert!(matches!(stale, Some(Message::Error(ErrorMessage { kind: 11, code: 0, .. }))));
    let m = Message::FlowMod(add(1, &[]));
    assert_eq!(refusal(&mut agent, m), code(problem::REQUEST_IS_SLAVE));
}

#[test]
fn the_counters_of_a_removed_entry_are_complete_when_its_removal_is_in_force() {
    let mut agent = agent();
    let flags = flags::SEND_FLOW_REM;
    put(&mut agent, FlowMod { hard_timeout: 3, flags, ..add(1, &[port(1)]) });
    let changes = agent.drain();
    let Some((_, Change::Flow(entry))) = changes.first() else { panic!("{changes:?}") };
    let mut out = Vec::new();
    agent.expire(3 * SECOND, &mut out);
    assert!(!out[0].refresh(), "nothing has come since");
    // The data plane counts frames until it applies the removal.
    entry.counts[0].add(7, 420, 3 * SECOND);
    assert!(out[0].refresh());
    let Message::FlowRemoved(message) = &out[0].message else { panic!("{out:?}") };
    assert_eq!((message.packets, message.bytes), (7, 420));
}

#[test]
fn s6_2_a_barrier_reply_waits_for_the_changes_before_it() {
    let mut agent = agent();
    put(&mut agent, add(1, &[]));
    let mut out = Vec::new();
    agent.handle(1, 8, &Message::BarrierRequest, 0, &mut out);
    let after = agent.changes();
    assert_eq!(out, [Out { to: 1, xid: 8, message: Message::BarrierReply, after, counts: None }]);
    put(&mut agent, add(2, &[]));
    assert!(agent.changes() > after && after > 0);
}

#[test]
fn s7_3_5_a_flow_request_reports_the_selected_entries() {
    let mut agent = agent();
    put(&mut agent, add(1, &[port(1)]));
    put(&mut agent, FlowMod { table: 2, ..add(1, &[port(2)]) });
    let any = reserved::ANY;
    let filter = |table, fields: &[Oxm]| FlowFilter {
        table,
        out_port: any,
        out_group: any,
        matching: Match(fields.to_vec()),
        ..FlowFilter::default()
    };
    let mut flows = |filter| {
        let body = Request::Flow(filter);
        match ask(&mut agent, &Message::MultipartRequest { more: false, body }, SECOND).pop() {
            Some(Message::MultipartReply { body: Reply::Flow(flows), .. }) => {
                flows.iter().map(|flow| (flow.table, flow.duration_sec)).collect()
            }
            _ => Vec::new(),
        }
    };
    assert_eq!(flows(filter(255, &[])), [(0, 1), (2, 1)]);
    assert_eq!(flows(filter(2, &[])), [(2, 1)]);
    assert_eq!(flows(filter(255, &[port(1)])), [(0, 1)]);
}

/// A switch with the largest number of tables: table 254 is the last, because 255 means all tables.
#[test]
fn all_tables_are_reported() {
    let mut agent = Agent::new(1, Limits { tables: 255, ..LIMITS }, 1);
    agent.connect(1, Version::V13);
    put(&mut agent, FlowMod { table: 254, ..add(1, &[]) });
    let any = reserved::ANY;
    let filter = FlowFilter { table: 255, out_port: any, out_group: any, ..FlowFilter::default() };
    let mut report =
        |body| match ask(&mut agent, &Message::MultipartRequest { more: false, body }, 0).pop() {
            Some(Message::MultipartReply { body, .. }) => body,
            other => panic!("{other:?}"),
        };
    assert!(
        matches!(report(Request::Flow(filter.clone())), Reply::Flow(all) if all[0].table == 254)
    );
    assert!(matches!(report(Request::Aggregate(filter)), Reply::Aggregate { flows: 1, .. }));
    let Reply::Table(tables) = report(Request::Table) else { panic!("no tables") };
    assert_eq!((tables.len(), tables[254].active), (255, 1));
}
