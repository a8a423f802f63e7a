//! The agent's tables are compared with the list: the same flow-mods give the same entries, answers
//! and timeouts.

use proptest::prelude::*;

use super::*;
use crate::change::{Change, Entry};
use crate::table;

/// Flow-mods that often affect the same entries.
fn a_flow_mod() -> impl Strategy<Value = FlowMod> {
    let commands = [
        FlowCommand::Add,
        FlowCommand::Add,
        FlowCommand::Add,
        FlowCommand::Modify,
        FlowCommand::ModifyStrict,
        FlowCommand::Delete,
        FlowCommand::DeleteStrict,
    ];
    let numbers = (0..3_u16, 0..3_u64, 0..4_u16, 0..4_u16, 0..8_u16);
    let fields = (0..4_u128, any::<bool>(), 0..3_u128, 0..4_u128);
    let command = prop::sample::select(commands.to_vec());
    (command, numbers, fields, 0..3_u32).prop_map(|(command, numbers, fields, to)| {
        let (priority, cookie, idle_timeout, hard_timeout, bits) = numbers;
        let (in_port, masked, eth, metadata) = fields;
        let mut list = Vec::new();
        if in_port < 3 {
            list.push(port(in_port));
        }
        if masked {
            list.push(Oxm::masked(Field::Metadata, metadata, metadata));
        }
        if eth > 0 {
            list.push(Oxm::exact(Field::EthType, eth));
        }
        let output = Action::Output { port: to + 1, max_len: 0 };
        let any = |chance: u16| bits & chance != 0;
        FlowMod {
            command,
            cookie,
            cookie_mask: if any(1) { 1 } else { 0 },
            idle_timeout,
            hard_timeout,
            flags: if any(2) { flags::CHECK_OVERLAP } else { 0 }
                | if any(4) { flags::RESET_COUNTS } else { 0 },
            out_port: if to == 2 { 1 } else { reserved::ANY },
            instructions: vec![Instruction::ApplyActions(vec![output])],
            ..add(priority, &list)
        }
    })
}

#[derive(Clone, Debug)]
enum Step {
    Change(FlowMod),
    Frame(u128, u128, u128),
    Wait(u64),
}

fn a_step() -> impl Strategy<Value = Step> {
    let frame = (0..4_u128, 0..3_u128, 0..4_u128);
    prop_oneof![
        4 => a_flow_mod().prop_map(Step::Change),
        4 => frame.prop_map(|(a, b, c)| Step::Frame(a, b, c)),
        1 => (0..3_u64).prop_map(Step::Wait),
    ]
}

/// The visible state of an entry. It is sorted here, because equal priorities have no order.
fn seen(flows: impl Iterator<Item = crate::multipart::FlowStats>) -> Vec<String> {
    let mut seen: Vec<String> = flows
        .map(|flow| {
            let matching = flow.matching.normal();
            format!("{:?}", crate::multipart::FlowStats { matching, ..flow })
        })
        .collect();
    seen.sort();
    seen
}

/// The entries of a data plane that has applied all changes.
fn follow(plane: &mut Vec<Arc<Entry>>, agent: &mut Agent) {
    for (_, change) in agent.drain() {
        match change {
            Change::Flow(entry) => {
                let same = |old: &Arc<Entry>| {
                    (old.table, old.priority, &old.matching)
                        != (entry.table, entry.priority, &entry.matching)
                };
                plane.retain(same);
                plane.push(entry);
            }
            Change::FlowGone(entry) => {
                let before = plane.len();
                plane.retain(|old| old.id != entry.id);
                assert_eq!(plane.len() + 1, before, "an entry was removed that did not exist");
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn tables_do_what_a_list_does(old: bool, steps in prop::collection::vec(a_step(), 1..60)) {
        let limits = Limits { flows: 6, ..LIMITS };
        let mut agent = Agent::new(1, limits, 2);
        let version = if old { Version::V10 } else { Version::V13 };
        agent.connect(1, version);
        agent.drain();
        let mut plane = Vec::new();
        let (mut list, mut now) = (Flows::default(), 1_u64);
        for step in steps {
            match step {
                Step::Change(mut m) => {
                    if old {
                        m.flags &= !flags::RESET_COUNTS;
                    }
                    let mut out = Vec::new();
                    agent.handle(1, 1, &Message::FlowMod(m.clone()), now, &mut out);
                    let refused = out.iter().any(|out| matches!(out.message, Message::Error(_)));
                    let done = list.change(&m, limits.flows, old, now);
                    prop_assert_eq!(refused, done.is_err(), "{:?}", m);
                }
                Step::Frame(in_port, eth, metadata) => {
                    let fields = Fields::from([
                        (Field::InPort, in_port),
                        (Field::EthType, eth),
                        (Field::Metadata, metadata),
                    ]);
                    let entry = agent.lookup(0, &fields).cloned();
                    let all = list.list.iter().filter(|flow| flow.matches(&fields));
                    let best = all.clone().map(|flow| flow.priority).max();
                    prop_assert_eq!(entry.as_ref().map(|entry| entry.priority), best);
                    // Any entry with the highest priority may answer: count the same one in both.
                    if let Some(entry) = entry {
                        entry.counts[usize::from(in_port > 1)].add(1, 100, now);
                        let same = |flow: &&mut Flow| {
                            flow.priority == entry.priority && flow.matching == entry.matching
                        };
                        let flow = list.list.iter_mut().find(same).expect("in both");
                        (flow.packets, flow.bytes, flow.used) =
                            (flow.packets + 1, flow.bytes + 100, now);
                    }
                }
                Step::Wait(seconds) => {
                    now += seconds * SECOND + 7;
                    agent.expire(now, &mut Vec::new());
                    list.expire(now);
                }
            }
            let fast = agent.tables[0].iter().map(|flow| flow.stats(now));
            let slow = list.list.iter().map(|flow| flow.stats(0, now));
            prop_assert_eq!(seen(fast), seen(slow));
            follow(&mut plane, &mut agent);
            let mut there: Vec<u64> = plane.iter().map(|entry| entry.id).collect();
            let mut wanted: Vec<u64> = agent.tables[0].iter().map(|f| f.entry.id).collect();
            there.sort_unstable();
            wanted.sort_unstable();
            prop_assert_eq!(there, wanted);
        }
    }

    #[test]
    fn no_message_makes_it_panic_and_a_failed_bundle_changes_nothing(seeds in any::<u64>()) {
        let mut agent = agent();
        agent.connect(2, Version::V10);
        agent.connect(3, Version::V14);
        for seed in seeds..seeds.saturating_add(60) {
            for (from, version) in [(1, Version::V13), (2, Version::V10), (3, Version::V14)] {
                if let Some(message) = crate::make(version, seed) {
                    agent.handle(from, 1, &message, seed, &mut Vec::new());
                }
            }
        }
        agent.expire(u64::MAX, &mut Vec::new());
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test measures time")]
fn adding_and_removing_a_hundred_thousand_flows_takes_little_time() {
    let limits = Limits { flows: 100_000, ..LIMITS };
    let mut agent = Agent::new(1, limits, 1);
    agent.connect(1, Version::V13);
    let from = std::time::Instant::now();
    let m = |number: u32, command| {
        let fields = [Oxm::exact(Field::EthType, 0x800), Oxm::exact(Field::Ipv4Dst, number.into())];
        Message::FlowMod(FlowMod { command, hard_timeout: 100, ..add(5, &fields) })
    };
    let mut out = Vec::new();
    for number in 0..100_000 {
        agent.handle(1, 0, &m(number, FlowCommand::Add), 0, &mut out);
    }
    assert_eq!((agent.flows(), agent.drain().len(), out.len()), (100_000, 100_000, 0));
    for number in 0..100_000 {
        agent.handle(1, 0, &m(number, FlowCommand::DeleteStrict), 0, &mut out);
    }
    assert_eq!((agent.flows(), out.len()), (0, 0));
    // A linear scan for each entry would take 10^10 steps.
    assert!(from.elapsed().as_secs() < 20, "{:?}", from.elapsed());
    let delete = FlowMod { command: FlowCommand::Delete, table: table::ALL, ..add(0, &[]) };
    agent.handle(1, 0, &Message::FlowMod(delete), 0, &mut out);
    assert_eq!(out, []);
}
