//! Plans that change the channels.

use super::tests::traffic;
use super::*;
use crate::fake::Fake;
use crate::setting::table;

fn made(fake: &Fake, goal: &Goal) -> Plan {
    plan(&State::read(fake, "eth0").unwrap(), goal, &traffic(200), "test")
}

/// Two of four channels, and four CPUs on the adapter's node.
fn few(driver: &str) -> Fake {
    let mut fake = Fake::with_rules(driver).with_channels(2);
    fake.files.insert("/sys/devices/system/node/online".into(), "0\n".into());
    fake.files.insert("/sys/devices/system/node/node0/cpulist".into(), "0-3\n".into());
    fake
}

#[test]
fn balance_makes_a_channel_for_each_cpu_near_the_adapter() {
    let plan = made(&few("ice"), &Goal::Balance);
    let [channels, entries] = &plan.steps[..] else { panic!("{:?}", plan.steps) };
    assert_eq!((&channels.setting, &entries.setting), (&Setting::Channels, &Setting::Table));
    assert_eq!(channels.to, "rx 0 tx 0 other 0 combined 4");
    assert!(
        channels.why.contains("4 CPUs are on the adapter's NUMA node, and 2 channels"),
        "{channels:?}"
    );
    let mut queues = table(&entries.to).unwrap();
    queues.sort_unstable();
    queues.dedup();
    assert_eq!(queues, [0, 1, 2, 3]);
    assert_eq!((plan.today.cpus.len(), plan.planned.cpus.len()), (2, 4));
    assert!(plan.planned.imbalance < plan.today.imbalance, "{plan:?}");
    assert_eq!(plan.commands[0], "ethtool -L eth0 combined 4");
    assert!(plan.refusals.is_empty(), "{:?}", plan.refusals);
    // One flow cannot be spread: more channels would not help.
    let mut one = Traffic::default();
    one.count(super::tests::flow(1), false, &[]);
    let plan =
        super::plan(&State::read(&few("ice"), "eth0").unwrap(), &Goal::Balance, &one, "test");
    assert!(plan.steps.is_empty(), "{:?}", plan.steps);
}

#[test]
fn limits_of_channels_are_refusals_with_their_source() {
    // The driver offers three.
    let mut fake = few("ice");
    fake.channels.most.combined = 3;
    let plan = made(&fake, &Goal::Balance);
    assert_eq!(plan.steps[0].to, "rx 0 tx 0 other 0 combined 3");
    let [refusal] = &plan.refusals[..] else { panic!("{:?}", plan.refusals) };
    assert!(refusal.what.starts_with("4 combined channels"), "{refusal:?}");
    assert_eq!(
        (&*refusal.limit, &*refusal.source),
        ("the driver offers 3 combined channels", "ETHTOOL_GCHANNELS")
    );
    // Entries of igc's table reach four queues.
    let mut fake = few("igc");
    fake.channels.most.combined = 8;
    fake.files.insert("/sys/devices/system/cpu/online".into(), "0-7\n".into());
    fake.files.insert("/sys/devices/system/node/node0/cpulist".into(), "0-7\n".into());
    let plan = made(&fake, &Goal::Balance);
    assert_eq!(plan.steps[0].to, "rx 0 tx 0 other 0 combined 4");
    let [refusal] = &plan.refusals[..] else { panic!("{:?}", plan.refusals) };
    assert!(refusal.limit.contains("reaches 4 queues"), "{refusal:?}");
    assert!(refusal.source.contains("the profile of igc"), "{refusal:?}");
    // With more channels than that, the table of a ConnectX has another size.
    let mut fake = few("mlx5_core");
    fake.rss.as_mut().unwrap().table.truncate(4);
    fake.channels.most.combined = 8;
    let plan = made(&fake, &Goal::Balance);
    let [refusal] = &plan.refusals[..] else { panic!("{plan:?}") };
    assert!(refusal.limit.contains("another table than one of 4 entries"), "{refusal:?}");
}

#[test]
fn locality_leaves_a_queue_for_each_cpu_near_the_adapter() {
    let plan = made(&Fake::virtio(), &Goal::Locality);
    assert_eq!(plan.steps[0].to, "rx 0 tx 0 other 0 combined 2");
    assert!(table(&plan.steps[1].to).unwrap().iter().all(|queue| *queue < 2));
    for step in &plan.steps {
        let queue = match step.setting {
            Setting::Rps(queue) | Setting::FlowCount(queue) | Setting::Xps(queue) => queue,
            Setting::Affinity(irq) => irq - 40,
            _ => 0,
        };
        assert!(queue < 2, "{step:?}");
    }
    assert_eq!(plan.planned.numa_crossings, Some(0.0));
}

/// Fewer channels are refused while a table that somebody set, or a rule, uses the queues that would go.
#[test]
fn fewer_channels_are_refused_while_their_queues_are_used() {
    let mut by_table = Fake::virtio();
    by_table.rss.as_mut().unwrap().table[0] = 3;
    let mut by_rule = Fake::with_rules("ice");
    by_rule.foreign_rule("flow-type tcp4 dst-port 80 action 3 loc 5");
    for (fake, limit) in [
        (by_table, "`ethtool -X eth0 default`"),
        (by_rule, "the rule at location 5 steers to queue 3"),
    ] {
        let plan = made(&fake, &Goal::Locality);
        assert!(
            plan.steps.iter().all(|step| step.setting != Setting::Channels),
            "{:?}",
            plan.steps
        );
        let refusal = &plan.refusals[0];
        assert_eq!(refusal.what, "channels = rx 0 tx 0 other 0 combined 2");
        assert!(
            refusal.limit.contains(limit)
                && refusal.source.contains("ethtool_get_max_rxfh_channel"),
            "{refusal:?}"
        );
    }
}
