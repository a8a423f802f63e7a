//! Plans with rules, applied, killed and undone.

use std::fs;

use super::tests::{plan_for, undone_wherever_killed};
use super::*;
use crate::fake::Fake;
use crate::goal::Goal;
use crate::setting::NONE;

/// Drivers with fixed locations, and one that chooses them.
const DRIVERS: [&str; 4] = ["ixgbe", "i40e", "ice", "bnxt_en"];

/// A flow of the traffic that shares its entry of the table with others, so that it needs a rule.
const FLOW: &str = "tcp 10.0.0.0:1024 > 10.9.0.1:80";

/// The machine with a rule of another program, and the plan for it.
fn machine(driver: &str) -> (Fake, Plan) {
    let mut fake = Fake::with_rules(driver);
    // A queue that the table does not use.
    fake.rss.as_mut().unwrap().table = (0..128).map(|entry| entry % 3).collect();
    let other = "flow-type tcp4 src-ip 10.0.0.9 dst-ip 10.9.0.1 src-port 9 dst-port 80 action 1";
    fake.foreign_rule(other);
    let mut plan = plan_for(&fake, &Goal::Isolate(FLOW.parse().unwrap()));
    let others = plan_for(&fake, &Goal::Symmetric).steps;
    let rule = |step: &Step| matches!(step.setting, Setting::Rule(_) | Setting::NewRule(_));
    assert!(plan.steps.iter().any(rule), "{driver}: {plan:?}");
    plan.steps.extend(others);
    plan.steps.sort_by(|a, b| a.setting.cmp(&b.setting));
    (fake, plan)
}

#[test]
fn a_rule_is_installed_read_back_and_deleted() {
    for driver in DRIVERS {
        let folder = tempfile::tempdir().unwrap();
        let (mut fake, plan) = machine(driver);
        let before = fake.clone();
        let step = plan.steps.iter().find(|step| step.to.starts_with("flow-type")).unwrap();
        let journal = apply(&mut fake, &plan, folder.path()).unwrap();
        let rule = journal.steps().iter().find(|one| one.to == step.to).unwrap().setting.clone();
        assert!(matches!(rule, Setting::Rule(_)), "{driver}: the journal names the location");
        assert_eq!(rule.get(&fake, "eth0").unwrap(), step.to, "{driver}");
        assert_eq!(fake.rules.as_ref().unwrap().list.len(), 2, "{driver}");
        drop(journal);
        let Ok(Undone::Restored(restored)) = undo(&mut fake, "eth0", folder.path()) else {
            panic!()
        };
        assert!(restored.contains(&rule), "{driver}: {restored:?}");
        assert_eq!(fake, before, "{driver}");
    }
}

/// Killed at each call of apply, before and after it takes effect, and then at each call of undo.
#[test]
fn killed_at_any_call_the_rule_of_the_plan_is_deleted_and_no_other() {
    for driver in DRIVERS {
        let (before, plan) = machine(driver);
        undone_wherever_killed(&before, &plan);
    }
}

/// Between the installation and the line of the journal that names the location.
#[test]
fn a_rule_that_the_journal_does_not_name_yet_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (mut fake, plan) = machine("bnxt_en");
    let before = fake.clone();
    let applied = apply(&mut fake, &plan, folder.path()).unwrap();
    let path = applied.path.clone();
    drop(applied);
    let text = fs::read_to_string(&path).unwrap();
    let (named, _) = text.split_once("made").unwrap();
    for torn in [named.to_owned(), format!("{named}made 1 rule-"), format!("{named}made 1 rule-1")]
    {
        let mut fake = fake.clone();
        fs::write(&path, torn).unwrap();
        undo(&mut fake, "eth0", folder.path()).unwrap();
        // The steps behind the rule were not begun as far as the journal tells, so they stay.
        assert_eq!(fake.rules, before.rules);
    }
    // Another program installed the same rule meanwhile: nothing tells which of them is flowyard's.
    fs::write(&path, named).unwrap();
    let rule = plan.steps.iter().find(|step| step.setting.is_new()).unwrap();
    fake.foreign_rule(&rule.to);
    let rules = fake.rules.clone();
    let refused = undo(&mut fake, "eth0", folder.path()).unwrap_err();
    assert!(refused.to_string().contains("one of rule-1, rule-2 is flowyard's"), "{refused}");
    assert_eq!(fake.rules, rules);
}

#[test]
fn a_foreign_rule_in_the_same_place_is_noticed_and_kept() {
    for driver in ["ixgbe", "i40e", "ice"] {
        let foreign =
            "flow-type tcp4 src-ip 10.0.0.7 dst-ip 10.9.0.1 src-port 7 dst-port 80 action 2";
        let folder = tempfile::tempdir().unwrap();
        let (mut fake, plan) = machine(driver);
        let rule = plan.steps.iter().find(|step| step.to.starts_with("flow-type")).unwrap();
        let Setting::Rule(location) = rule.setting else { panic!() };
        let before = fake.clone();
        // After the plan was made.
        assert_eq!(fake.foreign_rule(foreign), location, "{driver}");
        let taken = fake.clone();
        let refused = apply(&mut fake, &plan, folder.path()).unwrap_err().to_string();
        let want = format!("rule-{location} was none and is 'flow-type");
        assert!(refused.contains(&want), "{driver}: {refused}");
        assert_eq!(fake, taken);
        // A moment before the step.
        let mut plan = plan.clone();
        plan.made_for.insert(rule.setting.clone(), foreign.to_owned());
        let refused = apply(&mut fake, &plan, folder.path()).unwrap_err().to_string();
        assert!(refused.contains("another program changed it"), "{driver}: {refused}");
        assert_eq!(fake, taken);
        // After the change.
        plan.made_for.remove(&rule.setting);
        let mut fake = before;
        drop(apply(&mut fake, &plan, folder.path()).unwrap());
        fake.delete_rule("eth0", location).unwrap();
        assert_eq!(fake.foreign_rule(foreign), location, "{driver}");
        let rules = fake.rules.clone();
        let refused = undo(&mut fake, "eth0", folder.path()).unwrap_err();
        assert!(matches!(refused, Failure::Foreign(_)), "{driver}: {refused}");
        assert!(
            refused.to_string().contains(&format!("rule-{location} is 'flow-type")),
            "{refused}"
        );
        assert_eq!(fake.rules, rules);
    }
}

#[test]
fn rules_of_others_are_not_changed_by_a_plan() {
    let (mut fake, mut plan) = machine("ice");
    let before = fake.clone();
    let folder = tempfile::tempdir().unwrap();
    let foreign = plan.made_for.keys().find(|one| matches!(one, Setting::Rule(_))).unwrap().clone();
    for to in [NONE, "flow-type tcp4 dst-port 1 action 1"] {
        let from = plan.made_for[&foreign].clone();
        let (setting, why) = (foreign.clone(), String::new());
        plan.steps = vec![Step { setting, from, to: to.to_owned(), why }];
        let refused = apply(&mut fake, &plan, folder.path()).unwrap_err();
        assert!(matches!(refused, Failure::NotOurs(_)), "{refused}");
        assert_eq!(fake, before);
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
    }
}

/// A driver that refuses the rule, or makes another one of it: everything is undone.
#[test]
fn a_rule_that_the_driver_does_not_take_undoes_the_plan() {
    let (fake, mut plan) = machine("ice");
    let step = plan.steps.iter_mut().find(|step| step.to.starts_with("flow-type")).unwrap();
    // A second input set.
    step.to = "flow-type tcp4 dst-port 80 action 3".to_owned();
    let folder = tempfile::tempdir().unwrap();
    let mut now = fake.clone();
    let failed = apply(&mut now, &plan, folder.path()).unwrap_err();
    assert!(matches!(failed, Failure::Step { .. }), "{failed}");
    assert!(failed.to_string().contains("EINVAL"), "{failed}");
    assert_eq!(now, fake);
    // The mask ignores bits of the value: the driver reads back another text.
    let (fake, mut plan) = machine("bnxt_en");
    let step = plan.steps.iter_mut().find(|step| step.to.starts_with("flow-type")).unwrap();
    step.to = "flow-type tcp4 src-ip 10.0.0.1 m 0.0.0.255 action 3".to_owned();
    let mut now = fake.clone();
    let failed = apply(&mut now, &plan, folder.path()).unwrap_err();
    assert!(failed.to_string().contains("after it was set"), "{failed}");
    assert_eq!(now, fake);
}
