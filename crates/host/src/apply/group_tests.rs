//! Plans with RSS contexts, applied, killed and undone.

use super::tests::{plan_for, undone_wherever_killed};
use super::*;
use crate::fake::Fake;
use crate::goal::Goal;

/// The machine with a context and a rule of another program, and the plan for it.
fn machine(driver: &str) -> (Fake, Plan) {
    let mut fake = Fake::with_rules(driver);
    fake.create_context("eth0", &[1; 128], &[]).unwrap();
    fake.foreign_rule("flow-type tcp4 dst-port 443 context 1 queue 0");
    let goal = Goal::Group("tcp 0.0.0.0:0 > 10.9.0.1:80".parse().unwrap(), 2);
    let plan = plan_for(&fake, &goal);
    assert_eq!(plan.steps.len(), 3, "{plan:?}");
    (fake, plan)
}

#[test]
fn a_context_is_made_used_and_deleted() {
    for driver in ["mlx5_core", "bnxt_en"] {
        let folder = tempfile::tempdir().unwrap();
        let (mut fake, plan) = machine(driver);
        let before = fake.clone();
        let journal = apply(&mut fake, &plan, folder.path()).unwrap();
        let steps = journal.steps();
        assert_eq!(steps[0].setting, Setting::Context(2), "the journal names the context");
        assert!(steps[2].to.ends_with("context 2 queue 0"), "{steps:?}");
        assert_eq!(steps[2].setting.get(&fake, "eth0").unwrap(), steps[2].to);
        assert_eq!(fake.contexts.as_ref().unwrap().len(), 2);
        drop(journal);
        undo(&mut fake, "eth0", folder.path()).unwrap();
        assert_eq!(fake, before, "{driver}");
    }
}

#[test]
fn killed_at_any_call_the_context_of_the_plan_is_deleted_and_no_other() {
    let (before, plan) = machine("mlx5_core");
    undone_wherever_killed(&before, &plan);
}

#[test]
fn a_context_that_others_changed_or_use_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (mut fake, plan) = machine("mlx5_core");
    drop(apply(&mut fake, &plan, folder.path()).unwrap());
    // A rule of another program spreads over flowyard's context.
    let mut used = fake.clone();
    let location = used.foreign_rule("flow-type udp4 dst-port 53 context 2 queue 0");
    let refused = undo(&mut used, "eth0", folder.path()).unwrap_err();
    assert!(
        refused.to_string().contains("rss.context-2 is used by a rule of another program"),
        "{refused}"
    );
    assert!(used.contexts.as_ref().unwrap().contains_key(&2));
    // When it is gone, the rest is undone.
    used.delete_rule("eth0", location).unwrap();
    undo(&mut used, "eth0", folder.path()).unwrap();
    assert_eq!(used, machine("mlx5_core").0);
    // Another program changes its table.
    let folder = tempfile::tempdir().unwrap();
    let (mut fake, plan) = machine("mlx5_core");
    drop(apply(&mut fake, &plan, folder.path()).unwrap());
    fake.contexts.as_mut().unwrap().get_mut(&2).unwrap().table[0] = 3;
    let contexts = fake.contexts.clone();
    let refused = undo(&mut fake, "eth0", folder.path()).unwrap_err();
    assert!(matches!(refused, Failure::Foreign(_)), "{refused}");
    assert_eq!(fake.contexts, contexts);
}

#[test]
fn contexts_of_others_are_not_changed_by_a_plan() {
    let (mut fake, mut plan) = machine("mlx5_core");
    let before = fake.clone();
    let folder = tempfile::tempdir().unwrap();
    let from = plan.made_for[&Setting::Context(1)].clone();
    let (to, why) = ("none".to_owned(), String::new());
    plan.steps = vec![Step { setting: Setting::Context(1), from, to, why }];
    let refused = apply(&mut fake, &plan, folder.path()).unwrap_err();
    assert!(matches!(refused, Failure::NotOurs(_)), "{refused}");
    assert_eq!(fake, before);
}
