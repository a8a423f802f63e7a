use flowyard_frame::{FlowKey, proto};

use super::*;
use crate::fake::Fake;
use crate::machine::Machine as _;
use crate::setting::table;
use flowyard_adapter::Profile;
use std::collections::BTreeMap;

pub(super) fn traffic(flows: u32) -> Traffic {
    let mut traffic = Traffic::default();
    for number in 0..flows {
        let key = flow(number);
        for _ in 0..=number % 7 * (number % 3) {
            traffic.count(key, false, &[]);
        }
    }
    traffic
}

pub(super) fn flow(number: u32) -> FlowKey {
    let client =
        std::net::Ipv4Addr::from(0x0a00_0000 + number.wrapping_mul(2_654_435_761) % 65_536);
    let server = std::net::Ipv4Addr::new(10, 9, 0, 1);
    let port = 1024 + (number * 7919 % 60_000) as u16;
    FlowKey::five_tuple(proto::TCP, client.into(), port, server.into(), 80)
}

#[test]
fn files_that_are_not_seen_are_named() {
    let mut fake = Fake::virtio();
    fake.files.insert("/sys/class/net/eth0/ifindex".into(), "7\n".into());
    let plan = made(&fake, &Goal::Balance);
    let cause =
        "are not known: /sys shows another network namespace; run the command by `ip netns exec`";
    assert!(plan.notes.iter().any(|note| note.contains(cause)), "{:?}", plan.notes);
}

fn made(fake: &Fake, goal: &Goal) -> Plan {
    plan(&State::read(fake, "eth0").unwrap(), goal, &traffic(200), "test")
}

#[test]
fn balancing_moves_few_entries_and_evens_the_load() {
    let plan = made(&Fake::virtio(), &Goal::Balance);
    let (today, planned) = (plan.today.imbalance.unwrap(), plan.planned.imbalance.unwrap());
    assert!(today > 1.1 && planned < 1.02, "{today} {planned}");
    let [step] = &plan.steps[..] else { panic!("{:?}", plan.steps) };
    let (from, to) = (table(&step.from).unwrap(), table(&step.to).unwrap());
    let moved = from.iter().zip(&to).filter(|(from, to)| from != to).count();
    assert!(moved > 0 && moved < 32, "{moved}");
    // As many flows move as have an entry that moves.
    let state = State::read(&Fake::virtio(), "eth0").unwrap();
    let card = Card::new(&state, &plan.made_for);
    let flows = (0..200).filter(|&number| {
        let entry = card.entry(&flow(number)).unwrap();
        from[entry] != to[entry]
    });
    assert_eq!(plan.change.moved_flows, Some(flows.count() as u64));
    assert!(plan.change.frames_at_risk.unwrap() > 0.0);
    assert!(plan.commands[0].contains("ethtool -X eth0 weight"), "{:?}", plan.commands);
}

#[test]
fn the_queue_of_a_flow_is_that_of_the_models() {
    // The same card by the profile of the adapter.
    let fake = Fake::virtio();
    let state = State::read(&fake, "eth0").unwrap();
    let card = Card::new(&state, &settings_of(&state));
    let read = fake.rss("eth0", 0).unwrap();
    let config = RssConfig {
        key: read.key,
        reta: Some(read.table.iter().map(|queue| *queue as u16).collect()),
        ..RssConfig::default()
    };
    let rss = Rss::new(Profile::find("virtio").unwrap(), 4, config).unwrap();
    for number in 0..1000 {
        let key = flow(number);
        assert_eq!(card.queue(&key), Some(rss.queue(rss.hash(&key)).into()));
    }
}

#[test]
fn an_interface_without_rss_gets_rps_and_a_refusal_with_its_source() {
    let plan = made(&Fake::veth(), &Goal::Balance);
    let rps = |step: &&Step| matches!(step.setting, Setting::Rps(_)) && step.to == "0-3";
    assert_eq!(plan.steps.iter().filter(rps).count(), 4);
    assert_eq!(plan.refusals[0].source, "ETHTOOL_GRSSH");
    assert!(plan.refusals[0].limit.contains("EOPNOTSUPP"), "{:?}", plan.refusals);
    let quarter: BTreeMap<_, _> = (0..4).map(|cpu| (cpu, 0.25)).collect();
    assert_eq!((plan.today.unknown, plan.planned.cpus), (1.0, quarter));
    assert_eq!(plan.change.moved_flows, None, "where flows are today is not known");
    assert!(plan.commands[0].starts_with("echo f > /sys/class/net/eth0/queues/rx-0/rps_cpus"));
}

#[test]
fn a_flow_is_isolated() {
    let plan = made(&Fake::virtio(), &Goal::Isolate(flow(7)));
    let state = State::read(&Fake::virtio(), "eth0").unwrap();
    let card = Card::new(&state, &plan.made_for);
    let entry = card.entry(&flow(7)).unwrap();
    let table = table(&plan.steps[0].to).unwrap();
    let own = table[entry];
    assert_eq!(table.iter().filter(|queue| **queue == own).count(), 1);
    assert_eq!(card.queue(&flow(7)), Some(own), "the flow does not move");
    let without = made(&Fake::veth(), &Goal::Isolate(flow(7)));
    assert!(without.steps.is_empty() && without.refusals.len() == 1);
}

#[test]
fn directions_meet_under_the_symmetric_key() {
    let plan = made(&Fake::virtio(), &Goal::Symmetric);
    assert_eq!(plan.steps[0].setting, Setting::Key);
    assert!(plan.today.both_directions.unwrap() < 0.5, "{:?}", plan.today);
    assert_eq!(plan.planned.both_directions, Some(1.0));
}

#[test]
fn locality_places_interrupts_near_the_adapter() {
    let mut fake = Fake::virtio();
    fake.files.insert("/proc/9/comm".into(), "irqbalance\n".into());
    let plan = made(&fake, &Goal::Locality);
    assert!(plan.today.numa_crossings.unwrap() > 0.3);
    assert_eq!(plan.planned.numa_crossings, Some(0.0));
    let to = |setting: &Setting| {
        plan.steps.iter().find(|step| step.setting == *setting).map(|step| step.to.as_str())
    };
    assert_eq!(to(&Setting::Channels), Some("rx 0 tx 0 other 0 combined 2"));
    assert_eq!(
        (to(&Setting::SockFlows), to(&Setting::FlowCount(1))),
        (Some("32768"), Some("16384"))
    );
    // If the channels cannot be changed, queues share the CPUs of the node.
    fake.rss.as_mut().unwrap().table[0] = 3;
    let plan = made(&fake, &Goal::Locality);
    let to = |setting: &Setting| {
        plan.steps.iter().find(|step| step.setting == *setting).map(|step| step.to.as_str())
    };
    assert_eq!((to(&Setting::Affinity(42)), to(&Setting::Affinity(43))), (Some("0"), Some("1")));
    assert_eq!(to(&Setting::FlowCount(3)), Some("8192"));
    assert!(
        plan.notes.iter().any(|note| note.contains("irqbalance (process 9)")),
        "{:?}",
        plan.notes
    );
    assert!(plan.steps.is_sorted_by_key(|step| &step.setting), "the safe order");
}

#[test]
fn tunnels_spread_by_udp_ports_or_are_refused() {
    let mut fake = Fake::virtio();
    fake.fields.insert(2, 0x30);
    let state = State::read(&fake, "eth0").unwrap();
    let mut vxlan = FlowKey { proto: proto::UDP, dport: 4789, ..flow(1) };
    let mut traffic = Traffic::default();
    for port in 0..100 {
        vxlan.sport = 50_000 + port;
        traffic.count(vxlan, true, &[]);
    }
    let plan = super::plan(&state, &Goal::SpreadTunnels, &traffic, "test");
    assert_eq!(
        (plan.steps[0].setting.to_string(), &*plan.steps[0].to),
        ("fields.udp4".into(), "sdfn")
    );
    assert_eq!(plan.today.queues.len(), 1);
    assert!(plan.planned.imbalance < plan.today.imbalance);
    let gre = FlowKey { proto: 47, sport: 0, dport: 0, ..flow(1) };
    let mut traffic = Traffic::default();
    traffic.count(gre, true, &[]);
    let plan = super::plan(&state, &Goal::SpreadTunnels, &traffic, "test");
    assert!(plan.steps.is_empty());
    assert!(plan.refusals[0].source.contains("profile of virtio"), "{:?}", plan.refusals);
}

#[test]
fn fields_that_the_driver_refuses_are_not_planned() {
    // virtio hashes ports of TCP or does not: a source port alone is not possible.
    let mut fake = Fake::virtio();
    fake.fields.insert(1, 0x70);
    let plan = made(&fake, &Goal::Symmetric);
    let planned = plan.steps.iter().any(|step| step.setting == Setting::Fields("tcp4".into()));
    assert!(planned, "back to addresses, which virtio can do: {:?}", plan.refusals);
}

#[test]
fn fields_that_a_driver_does_not_tell_are_assumed_with_a_note() {
    let mut fake = Fake::virtio();
    fake.fields.clear();
    let plan = made(&fake, &Goal::Balance);
    assert!(plan.notes.iter().any(|note| note.contains("profile virtio")), "{:?}", plan.notes);
    assert_eq!(plan.today.why_unknown, None);
    fake.driver = "nobody".to_owned();
    let plan = made(&fake, &Goal::Balance);
    let why = plan.today.why_unknown.unwrap();
    assert!(why.contains("does not tell the hashed fields of ipv4"), "{why}");
}

#[test]
fn a_plan_is_the_same_after_it_was_written_and_read() {
    for goal in [Goal::Balance, Goal::Locality, Goal::Symmetric] {
        let plan = made(&Fake::virtio(), &goal);
        let text = serde_json::to_string_pretty(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan, "{goal}");
    }
}
