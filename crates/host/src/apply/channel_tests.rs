//! Plans that change the channels, applied, killed and undone: the driver resets what it likes with them.

use super::tests::{plan_for, revive, undone_wherever_killed};
use super::*;
use crate::fake::Fake;
use crate::goal::Goal;
use crate::ntuple::Request;

/// Two of four channels on four CPUs of one node, with settings that a change of channels resets.
fn few() -> Fake {
    let mut fake = Fake::with_rules("ice").with_channels(2);
    fake.files.insert("/sys/devices/system/node/online".into(), "0\n".into());
    fake.files.insert("/sys/devices/system/node/node0/cpulist".into(), "0-3\n".into());
    fake.foreign_rule(
        "flow-type tcp4 src-ip 10.0.0.9 dst-ip 10.9.0.1 src-port 9 dst-port 80 action 1",
    );
    settle(fake)
}

/// Four channels on two CPUs of a node.
fn many() -> Fake {
    settle(Fake::virtio())
}

fn settle(mut fake: Fake) -> Fake {
    for (setting, value) in [
        (Setting::Rps(1), "1,3"),
        (Setting::FlowCount(1), "64"),
        (Setting::Xps(1), "0-1"),
        (Setting::Affinity(41), "3"),
    ] {
        setting.set(&mut fake, "eth0", value).unwrap();
    }
    if fake.channels.now.combined > 2 {
        Setting::Rps(3).set(&mut fake, "eth0", "2").unwrap();
        Setting::FlowCount(2).set(&mut fake, "eth0", "32").unwrap();
        Setting::Xps(3).set(&mut fake, "eth0", "1-2").unwrap();
        Setting::Affinity(43).set(&mut fake, "eth0", "0").unwrap();
    }
    fake
}

fn plans() -> [(Fake, Plan); 2] {
    let (few, many) = (few(), many());
    let more = plan_for(&few, &Goal::Balance);
    let fewer = plan_for(&many, &Goal::Locality);
    for plan in [&more, &fewer] {
        assert_eq!(plan.steps[0].setting, Setting::Channels, "{plan:?}");
        assert_eq!(plan.steps[1].setting, Setting::Table, "channels before the table: {plan:?}");
    }
    [(few, more), (many, fewer)]
}

#[test]
fn channels_are_changed_and_undone_with_all_that_they_reset() {
    for (before, plan) in plans() {
        let folder = tempfile::tempdir().unwrap();
        let mut fake = before.clone();
        drop(apply(&mut fake, &plan, folder.path()).unwrap());
        assert_ne!(fake.channels, before.channels);
        assert_eq!(Setting::Table.get(&fake, "eth0").unwrap(), plan.steps[1].to);
        undo(&mut fake, "eth0", folder.path()).unwrap();
        assert_eq!(fake, before);
    }
}

#[test]
fn killed_at_any_call_channels_are_undone() {
    for (before, plan) in plans() {
        undone_wherever_killed(&before, &plan);
    }
}

/// A driver that drops a rule of another program with its channels: the change is taken back, and the rule put back.
#[test]
fn a_rule_that_the_driver_drops_with_its_channels_is_put_back() {
    let [(before, plan), _] = plans();
    let folder = tempfile::tempdir().unwrap();
    let mut fake = before.clone();
    fake.drops_rules = true;
    let failed = apply(&mut fake, &plan, folder.path()).unwrap_err();
    assert!(matches!(failed, Failure::Step { .. }), "{failed}");
    assert!(failed.to_string().contains("and is 'none' after the change"), "{failed}");
    fake.drops_rules = false;
    assert_eq!(fake, before);
}

/// A setting of another program stays as it is; what the driver has reset with the channels is restored all the same.
#[test]
fn beside_a_foreign_setting_channels_are_undone_with_all_that_they_reset() {
    let [(before, mut plan), _] = plans();
    let (from, to) = (Setting::Rps(0).get(&before, "eth0").unwrap(), "0".to_owned());
    plan.steps.push(Step { setting: Setting::Rps(0), from, to, why: String::new() });
    let folder = tempfile::tempdir().unwrap();
    let mut fake = before.clone();
    drop(apply(&mut fake, &plan, folder.path()).unwrap());
    Setting::Rps(0).set(&mut fake, "eth0", "2-3").unwrap();
    // The driver resets RPS and interrupts of other queues, too, when it makes its queues again.
    Setting::Rps(1).set(&mut fake, "eth0", "none").unwrap();
    Setting::FlowCount(1).set(&mut fake, "eth0", "0").unwrap();
    fake.drops_rules = true;
    let refused = undo(&mut fake, "eth0", folder.path()).unwrap_err();
    assert!(matches!(refused, Failure::Foreign(_)), "{refused}");
    assert!(refused.to_string().contains("rx-0.rps_cpus is '2-3'"), "{refused}");
    assert_eq!(Setting::Rps(0).get(&fake, "eth0").unwrap(), "2-3", "it is another program's");
    Setting::Rps(0).set(&mut fake, "eth0", "none").unwrap();
    fake.drops_rules = false;
    assert_eq!(fake, before);
}

/// The machine with a second rule of another program, which has no words in ethtool, and a plan with more channels.
fn two_rules() -> (Fake, Plan, u32, u32) {
    let mut before = few();
    let list = &mut before.rules.as_mut().unwrap().list;
    let (&words, bytes) = list.iter().next().unwrap();
    let mut bytes = *bytes.as_bytes();
    // A flow type that no version of ethtool has.
    bytes[16] = 0x7f;
    let raw = words - 1;
    list.insert(raw, Request::from_bytes(bytes).at(raw));
    let plan = plan_for(&before, &Goal::Balance);
    assert!(plan.made_for[&Setting::Rule(raw)].starts_with("raw "), "{:?}", plan.made_for);
    (before, plan, words, raw)
}

#[test]
fn a_rule_that_was_deleted_after_the_change_is_not_put_back() {
    let (mut before, plan, words, raw) = two_rules();
    let folder = tempfile::tempdir().unwrap();
    let mut fake = before.clone();
    drop(apply(&mut fake, &plan, folder.path()).unwrap());
    for fake in [&mut fake, &mut before] {
        fake.delete_rule("eth0", words).unwrap();
    }
    // The driver drops the other one only now.
    fake.drops_rules = true;
    undo(&mut fake, "eth0", folder.path()).unwrap();
    fake.drops_rules = false;
    assert!(Setting::Rule(raw).get(&fake, "eth0").unwrap().starts_with("raw "));
    assert_eq!(fake, before);
}

#[test]
fn killed_at_any_call_of_undo_the_rules_that_were_there_are_put_back() {
    let (before, plan, words, _) = two_rules();
    for call in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let mut fake = before.clone();
        drop(apply(&mut fake, &plan, folder.path()).unwrap());
        fake.delete_rule("eth0", words).unwrap();
        fake.drops_rules = true;
        fake.left.set(Some(call));
        let whole = undo(&mut fake, "eth0", folder.path()).is_ok();
        revive(&mut fake);
        if !whole {
            undo(&mut fake, "eth0", folder.path()).unwrap();
        }
        fake.drops_rules = false;
        let mut want = before.clone();
        want.delete_rule("eth0", words).unwrap();
        assert_eq!(fake, want, "killed at call {call}");
        if whole {
            break;
        }
    }
}
