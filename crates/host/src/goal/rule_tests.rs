//! Plans with rules.

use flowyard_adapter::rules::RuleAction;

use super::tests::{flow, traffic};
use super::*;
use crate::fake::Fake;
use crate::machine::Machine as _;
use crate::ntuple::Request;
use crate::rules::{judge, of_flow, read, text};
use crate::setting::table;

fn made(fake: &Fake, flow: FlowKey) -> Plan {
    plan(&State::read(fake, "eth0").unwrap(), &Goal::Isolate(flow), &traffic(200), "test")
}

/// The flow of the traffic whose entry of the table has a given number of other flows.
fn sharing(fake: &Fake, others: usize) -> FlowKey {
    let state = State::read(fake, "eth0").unwrap();
    let card = Card::new(&state, &settings_of(&state));
    let entry = |number| card.entry(&flow(number));
    let same = |number| (0..200).filter(|&other| entry(other) == entry(number)).count() - 1;
    flow((0..200).find(|&number| entry(number).is_some() && same(number) == others).unwrap())
}

/// The queue of each flow of the traffic under the plan.
fn queues(fake: &Fake, plan: &Plan) -> Vec<Option<u32>> {
    let state = State::read(fake, "eth0").unwrap();
    let mut settings = plan.made_for.clone();
    settings.extend(plan.steps.iter().map(|step| (step.setting.clone(), step.to.clone())));
    let card = Card::new(&state, &settings);
    (0..200).map(|number| card.queue(&flow(number))).collect()
}

#[test]
fn a_rule_isolates_a_flow_that_shares_its_entry() {
    for driver in ["ixgbe", "i40e", "ice", "bnxt_en", "mlx5_core"] {
        let fake = Fake::with_rules(driver);
        let one = sharing(&fake, 2);
        let plan = made(&fake, one);
        let [table, rule] = &plan.steps[..] else { panic!("{driver}: {plan:?}") };
        assert_eq!((&table.setting, &*rule.from), (&Setting::Table, "none"), "{driver}");
        let location = match rule.setting {
            Setting::Rule(location) => Some(location),
            Setting::NewRule(1) => None,
            _ => panic!("{driver}: {rule:?}"),
        };
        let last = fake.rules.as_ref().unwrap().locations - 1;
        let chooses = ["bnxt_en", "mlx5_core"].contains(&driver);
        assert_eq!(location, (!chooses).then_some(last), "{driver}: the highest free location");
        assert!(rule.why.contains("2 other flows of the traffic share"), "{driver}: {}", rule.why);
        let alone = queues(&fake, &plan);
        let number = (0..200).find(|&number| flow(number) == one).unwrap() as usize;
        let queue = alone[number].unwrap();
        assert_ne!(queue, 0, "{driver}: frames without a hash come to queue 0");
        assert_eq!(alone.iter().filter(|other| **other == Some(queue)).count(), 1, "{driver}");
        assert_eq!(plan.planned.queues.len(), 4, "{driver}");
        let command = plan.commands.last().unwrap();
        let at = location.map_or(String::new(), |location| format!(" loc {location}"));
        let want = format!("ethtool -N eth0 {}{at}", rule.to);
        assert_eq!((command, rule.to.contains("flow-type tcp4 src-ip")), (&want, true));
        let moved: Vec<_> = queues(&fake, &Plan { steps: Vec::new(), ..plan.clone() });
        let moved = moved.iter().zip(&alone).filter(|(old, new)| old != new).count() as u64;
        assert_eq!(plan.change.moved_flows, Some(moved), "{driver}");
        assert!(plan.refusals.is_empty(), "{driver}: {:?}", plan.refusals);
    }
}

/// Of the two ways, the one that moves fewer flows is chosen, and the plan has both numbers.
#[test]
fn the_way_that_moves_fewer_flows_is_chosen() {
    let mut fake = Fake::with_rules("ice");
    let one = sharing(&fake, 0);
    // Queue 3 has the entry of the flow and the one behind it.
    let state = State::read(&fake, "eth0").unwrap();
    let own = Card::new(&state, &settings_of(&state)).entry(&one).unwrap() as u32;
    let near = |entry: u32| entry == own || entry == (own + 1) % 128;
    let entries = (0..128).map(|entry| if near(entry) { 3 } else { entry % 3 });
    fake.rss.as_mut().unwrap().table = entries.collect();
    let by_table = made(&fake, one);
    let [step] = &by_table.steps[..] else { panic!("{:?}", by_table.steps) };
    assert!(step.setting == Setting::Table && step.why.contains("1 entries leave it"), "{step:?}");
    assert!(step.why.contains("a rule would move"), "{step:?}");
    // A queue that the table does not use is free: the rule moves nothing but the flow.
    let entries: Vec<u32> = (0..128).map(|entry| entry % 3).collect();
    fake.rss.as_mut().unwrap().table = entries;
    let one = sharing(&fake, 0);
    let by_rule = made(&fake, one);
    let [step] = &by_rule.steps[..] else { panic!("{:?}", by_rule.steps) };
    assert_eq!(step.setting, Setting::Rule(16383));
    assert!(
        step.to.ends_with("action 3") && step.why.contains("this moves 1 flows; entries"),
        "{step:?}"
    );
    assert_eq!(by_rule.change.moved_flows, Some(1));
}

/// A queue to which a rule or a context of another program leads is no flow's own.
#[test]
fn a_queue_with_another_user_is_not_the_flows_own() {
    let mut fake = Fake::with_rules("mlx5_core");
    let one = sharing(&fake, 0);
    let entry = |fake: &Fake| {
        let state = State::read(fake, "eth0").unwrap();
        Card::new(&state, &settings_of(&state)).entry(&one).unwrap()
    };
    // The table is the cheaper way: queue 3 has no other entry.
    let own = entry(&fake);
    let entries = (0..128).map(|at| if at == own { 3 } else { at as u32 % 3 });
    fake.rss.as_mut().unwrap().table = entries.collect();
    assert!(made(&fake, one).steps.is_empty(), "it has the queue already");
    let rule = text(&of_flow(&flow(250), RuleAction::Queue(3)));
    let mut by_rule = fake.clone();
    by_rule.foreign_rule(&rule);
    let mut by_context = fake.clone();
    by_context.create_context("eth0", &[3; 128], &[]).unwrap();
    let mut by_both = by_rule.clone();
    by_both.create_context("eth0", &[3; 128], &[]).unwrap();
    for (fake, user) in
        [(by_rule, "rule-0"), (by_context, "rss.context-1"), (by_both, "rss.context-1 and 1 more")]
    {
        let plan = made(&fake, one);
        let step = plan.steps.last().unwrap();
        assert!(matches!(step.setting, Setting::NewRule(1)), "{plan:?}");
        assert!(!step.to.ends_with("action 3"), "{step:?}");
        let want = format!("queue 3, to which the entry of the flow leads, is used by {user}");
        assert!(step.why.contains(&want), "{step:?}");
    }
    // The rule that steers the flow is another program's, and so is a second one to the same queue.
    for is_shared in [false, true] {
        let mut fake = fake.clone();
        fake.foreign_rule(&text(&of_flow(&one, RuleAction::Queue(2))));
        if is_shared {
            fake.foreign_rule(&text(&of_flow(&flow(250), RuleAction::Queue(2))));
        }
        let notes = made(&fake, one).notes.join(" ");
        let want = "Queue 2 does not become the flow's own, because it is used by rule-1, too.";
        assert_eq!(notes.contains(want), is_shared, "{notes}");
    }
}

/// Rules of others are part of the prediction, keep their queues to themselves, and are not used.
#[test]
fn rules_of_others_are_seen_and_kept_apart() {
    let mut fake = Fake::with_rules("ice");
    fake.rss.as_mut().unwrap().table = (0..128).map(|entry| entry % 2).collect();
    let other = flow(3);
    let rule = text(&of_flow(&other, RuleAction::Queue(3)));
    assert_eq!(fake.foreign_rule(&rule), 16383);
    let state = State::read(&fake, "eth0").unwrap();
    let settings = settings_of(&state);
    assert_eq!(settings[&Setting::Rule(16383)], rule);
    assert_eq!(Card::new(&state, &settings).queue(&other), Some(3));
    let plan = made(&fake, sharing(&fake, 1));
    let step = plan.steps.last().unwrap();
    assert_eq!(step.setting, Setting::Rule(16382), "{plan:?}");
    assert!(step.to.ends_with("action 2"), "queue 3 has another user: {step:?}");
    // A flow that a rule of another program steers: only its queue is freed.
    fake.rss.as_mut().unwrap().table = (0..128).map(|entry| entry % 4).collect();
    let plan = made(&fake, other);
    let [step] = &plan.steps[..] else { panic!("{:?}", plan.steps) };
    assert!(step.setting == Setting::Table && !table(&step.to).unwrap().contains(&3), "{step:?}");
}

const FOUR: &str = "tcp 10.0.0.1:40000 > 10.0.0.2:80";
const SIX: &str = "tcp [2001:db8::1]:40000 > [2001:db8::2]:80";
const GRE: &str = "gre 10.0.0.1 > 10.0.0.2";

/// A driver, a flow, what is installed or switched off before, and what the refusal's limit and source contain.
type Case = (&'static str, &'static str, fn(&mut Fake), &'static str, &'static str);

const CASES: [Case; 17] = [
    ("virtio_net", FOUR, gone, "EOPNOTSUPP", "ETHTOOL_GRXCLSRLCNT"),
    ("ena", FOUR, gone, "EOPNOTSUPP", "ETHTOOL_GRXCLSRLCNT"),
    ("ixgbe", FOUR, off, "resets the adapter and turns ATR off", "ETHTOOL_GFEATURES"),
    ("ice", FOUR, off, "`ethtool -K IFACE ntuple on`", "ETHTOOL_GFEATURES"),
    ("igb", FOUR, nothing, "igb takes no rules for IP flows", "the profile of 82576"),
    ("igc", FOUR, nothing, "igc takes no rules for IP flows", "the profile of igc"),
    ("bnxt_en", FOUR, many, "bnxt_en takes 4096 rules", "the profile of bnxt"),
    ("ixgbe", SIX, nothing, "ixgbe does not match IPv6", "the profile of 82599"),
    ("ixgbe", GRE, nothing, "not ip4 with l4proto 47", "the profile of 82599"),
    ("ixgbe", FOUR, other, "the rule at location 2045 has another one", "the profile of 82599"),
    ("i40e", GRE, nothing, "l4proto", "the profile of x710"),
    ("i40e", FOUR, other, "the rule at location 7679 matches other fields", "the profile of x710"),
    ("ice", GRE, nothing, "l4proto", "the profile of e810"),
    ("ice", FOUR, other, "the rule at location 16383 matches other fields", "the profile of e810"),
    ("ice", FOUR, full, "all 1 locations have rules", "ETHTOOL_GRXCLSRLALL"),
    ("ice", FOUR, silent, "nor tells how many", "ETHTOOL_GRXCLSRLALL"),
    ("i40e", SIX, other, "other fields", "the profile of x710"),
];

fn nothing(_: &mut Fake) {}

fn gone(fake: &mut Fake) {
    fake.rules = None;
}

fn off(fake: &mut Fake) {
    fake.rules.as_mut().unwrap().on = false;
}

/// Rules with another input set, to a queue that is not the flow's.
fn other(fake: &mut Fake) {
    fake.foreign_rule("flow-type tcp4 dst-port 9 action 3");
    if fake.driver != "ixgbe" {
        fake.foreign_rule("flow-type tcp6 dst-port 9 action 3");
    }
}

fn full(fake: &mut Fake) {
    fake.rules.as_mut().unwrap().locations = 1;
    let udp = "flow-type udp4 src-ip 10.0.0.1 dst-ip 10.0.0.2 src-port 1 dst-port 2 action 3";
    fake.foreign_rule(udp);
}

fn silent(fake: &mut Fake) {
    fake.rules.as_mut().unwrap().locations = 0;
}

fn many(fake: &mut Fake) {
    for port in 1001..=5096 {
        fake.foreign_rule(&format!("flow-type tcp4 dst-port {port} action 3"));
    }
}

/// Every way in which a driver would refuse the rule is a refusal with the driver's limit and its source.
#[test]
fn every_refusal_names_the_limit_and_its_source() {
    for (driver, flow, prepare, limit, source) in CASES {
        let flow: FlowKey = flow.parse().unwrap();
        let mut fake = Fake::with_rules(driver);
        prepare(&mut fake);
        let plan = made(&fake, flow);
        let is_rule = |step: &Step| matches!(step.setting, Setting::Rule(_) | Setting::NewRule(_));
        assert!(!plan.steps.iter().any(is_rule), "{driver} {flow}: {plan:?}");
        let [refusal] = &plan.refusals[..] else { panic!("{driver} {flow}: {:?}", plan.refusals) };
        assert!(refusal.what.contains(&format!("a rule that steers {flow}")), "{refusal:?}");
        assert!(
            refusal.limit.contains(limit) && refusal.source.contains(source),
            "{driver}: {refusal:?}"
        );
        assert!(!refusal.limit.contains("line "), "{driver}: {refusal:?}");
    }
}

/// What a plan does not refuse, the model of the driver takes; what it refuses, the model refuses.
#[test]
fn the_verdicts_are_those_of_the_drivers() {
    let installed = [
        "flow-type tcp4 dst-port 9 action 1",
        "flow-type udp4 src-ip 10.0.0.1 dst-ip 10.0.0.2 src-port 1 dst-port 2 action 1",
        "flow-type ip4 src-ip 10.0.0.1 dst-ip 10.0.0.2 action 1",
    ];
    let flows = [
        "tcp 10.0.0.1:40000 > 10.0.0.2:80",
        "udp 10.0.0.1:40000 > 10.0.0.2:80",
        "sctp 10.0.0.1:40000 > 10.0.0.2:80",
        "gre 10.0.0.1 > 10.0.0.2",
        "icmp 10.0.0.1 > 10.0.0.2",
        "ip 10.0.0.1 > 10.0.0.2",
        "tcp [2001:db8::1]:40000 > [2001:db8::2]:80",
        "sctp [2001:db8::1]:40000 > [2001:db8::2]:80",
        "ip 2001:db8::1 > 2001:db8::2",
    ];
    let (mut taken, mut refused) = (0, 0);
    for driver in ["ixgbe", "i40e", "ice"] {
        for others in 0..8_usize {
            let mut fake = Fake::with_rules(driver);
            for (at, text) in
                installed.into_iter().enumerate().filter(|(at, _)| others >> at & 1 == 1)
            {
                let rule = read(text).unwrap();
                // ixgbe takes only rules with one mask.
                let _refused = fake.insert_rule("eth0", &Request::encode(&rule, 0), at as u32);
            }
            for flow in flows {
                let flow: FlowKey = flow.parse().unwrap();
                let rule = of_flow(&flow, RuleAction::Queue(3));
                let state = State::read(&fake, "eth0").unwrap();
                let planned = judge(&state, &rule);
                let mut driver_has = fake.clone();
                let result = driver_has.insert_rule("eth0", &Request::encode(&rule, 0), 100);
                assert_eq!(planned.is_ok(), result.is_ok(), "{driver} {others} {flow}: {result:?}");
                if planned.is_ok() { taken += 1 } else { refused += 1 }
            }
        }
    }
    assert!(taken > 20 && refused > 20, "{taken} {refused}");
}
