//! Plans with RSS contexts.

use super::tests::{flow, traffic};
use super::*;
use crate::fake::Fake;
use crate::machine::Machine as _;
use crate::setting::table;

/// All connections to the server's port 80, which is all of the traffic.
const SERVICE: &str = "tcp 0.0.0.0:0 > 10.9.0.1:80";

fn made(fake: &Fake, flow: &str, queues: u32) -> Plan {
    let goal = Goal::Group(flow.parse().unwrap(), queues);
    plan(&State::read(fake, "eth0").unwrap(), &goal, &traffic(200), "test")
}

#[test]
fn a_context_spreads_the_flows_of_a_service_over_a_group() {
    let fake = Fake::with_rules("mlx5_core");
    let plan = made(&fake, SERVICE, 2);
    let [context, entries, rule] = &plan.steps[..] else { panic!("{plan:?}") };
    assert_eq!(
        [&context.setting, &entries.setting, &rule.setting],
        [&Setting::NewContext, &Setting::Table, &Setting::NewRule(1)],
        "contexts, table, rules: {plan:?}"
    );
    assert!(
        context.from == "none"
            && context.to.starts_with("1 2 1 2")
            && context.to.contains(" key 5a:")
    );
    assert!(table(&entries.to).unwrap().iter().all(|queue| [0, 3].contains(queue)), "{entries:?}");
    assert_eq!(rule.to, "flow-type tcp4 dst-ip 10.9.0.1 dst-port 80 context new queue 0");
    // Every flow of the service is in the group, on both of its queues, and nothing else is.
    let state = State::read(&fake, "eth0").unwrap();
    let mut settings = plan.made_for.clone();
    settings.extend(plan.steps.iter().map(|step| (step.setting.clone(), step.to.clone())));
    let card = Card::new(&state, &settings);
    let queues: std::collections::BTreeSet<_> =
        (0..200).map(|number| card.queue(&flow(number)).unwrap()).collect();
    assert_eq!(queues.into_iter().collect::<Vec<_>>(), [1, 2]);
    let other = FlowKey { dport: 81, ..flow(1) };
    assert!([Some(0), Some(3)].contains(&card.queue(&other)));
    assert_eq!(plan.planned.queues.keys().copied().collect::<Vec<_>>(), [1, 2]);
    let key = plan.made_for[&Setting::Key].clone();
    assert_eq!(
        plan.commands[0],
        format!(
            "CONTEXT=$(ethtool -X eth0 context new start 1 equal 2 hkey {key} | grep -o '[0-9]*$')"
        )
    );
    assert!(
        plan.commands[2].ends_with("dst-port 80 context $CONTEXT queue 0"),
        "{:?}",
        plan.commands
    );
}

/// Contexts of others are part of the prediction, and their queues are not taken.
#[test]
fn contexts_of_others_are_seen_and_kept_apart() {
    let mut fake = Fake::with_rules("mlx5_core");
    fake.create_context("eth0", &[1; 128], &[]).unwrap();
    fake.foreign_rule("flow-type tcp4 dst-port 443 context 1 queue 0");
    let plan = made(&fake, SERVICE, 2);
    assert!(plan.steps[0].to.starts_with("2 3 2 3"), "{plan:?}");
    assert!(plan.made_for[&Setting::Context(1)].starts_with("1 1 1"), "{:?}", plan.made_for);
    let state = State::read(&fake, "eth0").unwrap();
    let card = Card::new(&state, &plan.made_for);
    assert_eq!(card.queue(&FlowKey { dport: 443, ..flow(1) }), Some(1));
    let plan = made(&fake, SERVICE, 3);
    assert!(plan.steps.is_empty());
    assert!(
        plan.refusals[0].limit.contains("no 3 queues in a row are free"),
        "{:?}",
        plan.refusals
    );
}

#[test]
fn drivers_without_contexts_refuse_with_their_source() {
    for (driver, queues, limit, source) in [
        ("ixgbe", 2, "ixgbe has no RSS contexts", "the profile of 82599"),
        ("i40e", 2, "i40e has no RSS contexts", "the profile of x710"),
        ("ice", 2, "ice has no RSS contexts", "the profile of e810"),
        ("igb", 2, "igb takes no rules for IP flows", "the profile of 82576"),
        (
            "mlx5_core",
            4,
            "there are 4 queues, of which other flows need at least one",
            "ETHTOOL_GCHANNELS",
        ),
    ] {
        let plan = made(&Fake::with_rules(driver), SERVICE, queues);
        assert!(plan.steps.is_empty(), "{driver}: {:?}", plan.steps);
        let [refusal] = &plan.refusals[..] else { panic!("{driver}: {:?}", plan.refusals) };
        assert!(refusal.limit.contains(limit) && refusal.source.contains(source), "{refusal:?}");
    }
    let plan = made(&Fake::virtio(), SERVICE, 2);
    assert_eq!(plan.refusals[0].source, "ETHTOOL_GRXCLSRLCNT");
    let plan = made(&Fake::veth(), SERVICE, 2);
    assert_eq!(plan.refusals[0].source, "ETHTOOL_GRSSH");
}

/// Fewer channels are refused while a context uses the queues that would go.
#[test]
fn a_context_keeps_its_channels() {
    let mut fake = Fake::with_rules("mlx5_core");
    fake.create_context("eth0", &[3; 128], &[]).unwrap();
    let plan = plan(&State::read(&fake, "eth0").unwrap(), &Goal::Locality, &traffic(200), "test");
    assert!(
        plan.refusals[0].limit.contains("RSS context 1 spreads over it"),
        "{:?}",
        plan.refusals
    );
}
