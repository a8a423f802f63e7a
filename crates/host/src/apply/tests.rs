use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::fake::Fake;
use crate::goal::{Goal, plan};
use crate::journal;
use crate::traffic::Traffic;
use flowyard_frame::{FlowKey, proto};

/// Traffic of `flows` flows, of which some are much larger than others.
pub(crate) fn traffic(flows: u32) -> Traffic {
    let mut traffic = Traffic::default();
    for number in 0..flows {
        let client =
            std::net::Ipv4Addr::from(0x0a00_0000 + number.wrapping_mul(2_654_435_761) % 65_536);
        let server = std::net::Ipv4Addr::new(10, 9, 0, 1);
        let port = 1024 + (number * 7919 % 60_000) as u16;
        let key = FlowKey::five_tuple(proto::TCP, client.into(), port, server.into(), 80);
        for _ in 0..=number % 7 * (number % 3) {
            traffic.count(key, false, &[]);
        }
    }
    traffic
}

pub(super) fn plan_for(fake: &Fake, goal: &Goal) -> Plan {
    plan(&State::read(fake, "eth0").unwrap(), goal, &traffic(200), "test")
}

/// A plan with steps of every kind, in the safe order; the channels reset the table.
fn everything(fake: &Fake) -> Plan {
    let mut plan = plan_for(fake, &Goal::Locality);
    let mut steps: Vec<Step> = plan_for(fake, &Goal::Symmetric).steps;
    let mut add = |setting: Setting, to: &str| {
        let from = setting.get(fake, "eth0").unwrap();
        steps.push(Step { setting, from, to: to.to_owned(), why: String::new() });
    };
    add(Setting::Channels, "rx 0 tx 0 other 0 combined 2");
    add(Setting::Table, &crate::setting::table_text(&[vec![0; 64], vec![1; 64]].concat()));
    add(Setting::Fields("udp4".into()), "sd");
    add(Setting::Rps(0), "0-3");
    add(Setting::Affinity(40), "1");
    // Two queues are left.
    let is_gone = |step: &Step| match step.setting {
        Setting::Rps(queue) | Setting::FlowCount(queue) | Setting::Xps(queue) => queue > 1,
        _ => false,
    };
    steps.extend(plan.steps.into_iter().filter(|step| !is_gone(step)));
    let mut seen = std::collections::BTreeSet::new();
    steps.retain(|step| seen.insert(step.setting.clone()));
    steps.sort_by(|a, b| a.setting.cmp(&b.setting));
    plan.steps = steps;
    plan
}

/// The settings of the machine, and nothing else of it.
fn settings(fake: &Fake) -> Settings {
    settings_of(&State::read(fake, "eth0").unwrap())
}

#[test]
fn a_plan_is_applied_and_undone() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = Fake::virtio();
    let before = fake.clone();
    let plan = everything(&fake);
    assert!(plan.steps.len() > 10, "{:?}", plan.steps);
    let journal = apply(&mut fake, &plan, folder.path()).unwrap();
    for step in &plan.steps {
        assert_eq!(step.setting.get(&fake, "eth0").unwrap(), step.to, "{}", step.setting);
    }
    // Another process cannot undo what this one is applying.
    assert!(undo(&mut fake, "eth0", folder.path()).is_err());
    drop(journal);
    let Ok(Undone::Restored(restored)) = undo(&mut fake, "eth0", folder.path()) else { panic!() };
    assert_eq!(restored.len(), plan.steps.len());
    assert_eq!(fake, before);
    let nothing = undo(&mut fake, "eth0", folder.path()).unwrap_err();
    assert!(matches!(nothing, Failure::Nothing(..)), "{nothing}");
}

#[test]
fn killed_at_any_call_it_can_be_undone() {
    let plan = everything(&Fake::virtio());
    let mut calls = 0;
    for takes_effect in [false, true] {
        for call in 1.. {
            let folder = tempfile::tempdir().unwrap();
            let mut fake = Fake::virtio();
            let before = fake.clone();
            fake.left.set(Some(call));
            fake.takes_effect = takes_effect;
            if apply(&mut fake, &plan, folder.path()).is_ok() {
                calls = call - 1;
                break;
            }
            revive(&mut fake);
            undo(&mut fake, "eth0", folder.path()).unwrap();
            assert_eq!(settings(&fake), settings(&before), "killed at call {call}");
            assert_eq!(fake, before);
            assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "no journal is left");
        }
    }
    assert!(calls as usize >= plan.steps.len());
}

pub(super) fn revive(fake: &mut Fake) {
    fake.left.set(None);
    fake.takes_effect = false;
}

/// Kills `apply` at each of its calls, before and after the call takes effect, and then `undo` at each of its calls. The
/// next `undo` restores `before`, and no journal is left.
pub(super) fn undone_wherever_killed(before: &Fake, plan: &Plan) {
    for takes_effect in [false, true] {
        for call in 1.. {
            let mut ended = false;
            for again in 1.. {
                let folder = tempfile::tempdir().unwrap();
                let mut fake = before.clone();
                fake.left.set(Some(call));
                fake.takes_effect = takes_effect;
                ended = apply(&mut fake, plan, folder.path()).is_ok();
                revive(&mut fake);
                fake.left.set(Some(again));
                let whole = undo(&mut fake, "eth0", folder.path()).is_ok();
                revive(&mut fake);
                if !whole {
                    undo(&mut fake, "eth0", folder.path()).unwrap();
                }
                let driver = &before.driver;
                assert_eq!(fake, *before, "{driver}: killed at call {call}, then at {again}");
                assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
                if whole {
                    break;
                }
            }
            if ended {
                break;
            }
        }
    }
}

#[test]
fn killed_while_undoing_it_can_be_undone_again() {
    let plan = everything(&Fake::virtio());
    for call in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let mut fake = Fake::virtio();
        let before = fake.clone();
        drop(apply(&mut fake, &plan, folder.path()).unwrap());
        fake.left.set(Some(call));
        let whole = undo(&mut fake, "eth0", folder.path()).is_ok();
        revive(&mut fake);
        if whole {
            break;
        }
        undo(&mut fake, "eth0", folder.path()).unwrap();
        assert_eq!(fake, before, "killed at call {call} of undo");
    }
}

/// More channels, and a table that uses them: undoing must free the queues first.
#[test]
fn more_channels_are_undone_after_their_table() {
    let fake = Fake::virtio().with_channels(2);
    let before = fake.clone();
    let mut plan = plan_for(&fake, &Goal::Balance);
    plan.steps = [
        (Setting::Channels, "rx 0 tx 0 other 0 combined 4".to_owned()),
        (Setting::Table, crate::setting::table_text(&[vec![3; 64], vec![2; 64]].concat())),
    ]
    .map(|(setting, to)| {
        let from = setting.get(&fake, "eth0").unwrap();
        Step { setting, from, to, why: String::new() }
    })
    .into();
    for call in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let mut fake = before.clone();
        fake.left.set(Some(call));
        let whole = apply(&mut fake, &plan, folder.path()).is_ok();
        revive(&mut fake);
        undo(&mut fake, "eth0", folder.path()).unwrap();
        assert_eq!(fake, before, "killed at call {call}");
        if whole {
            break;
        }
    }
}

proptest! {
    // Each case writes and flushes two journals.
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Killed at any call, with the end of the journal lost, as after a power failure of a disk that lies; then
    /// killed again while undoing.
    #[test]
    fn killed_twice_with_a_torn_journal(call in 1_u32..40, again in 1_u32..40, torn in 0_usize..6) {
        let folder = tempfile::tempdir().unwrap();
        let mut fake = Fake::virtio();
        let before = fake.clone();
        let plan = everything(&fake);
        fake.left.set(Some(call));
        drop(apply(&mut fake, &plan, folder.path()));
        revive(&mut fake);
        // "done N" may be missing in part or whole; "begin N" was on the disk before the call.
        if let Some(path) = journal::list(folder.path(), "eth0").unwrap().pop() {
            let text = fs::read_to_string(&path).unwrap();
            let last = text.trim_end().rsplit('\n').next().unwrap_or_default();
            if last.starts_with("done") {
                fs::write(&path, &text[..text.len() - torn.min(last.len())]).unwrap();
            }
            fake.left.set(Some(again));
            let first = undo(&mut fake, "eth0", folder.path());
            revive(&mut fake);
            if first.is_err() {
                undo(&mut fake, "eth0", folder.path()).unwrap();
            }
        }
        prop_assert_eq!(fake, before);
    }
}

#[test]
fn a_machine_that_differs_is_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = Fake::virtio();
    let plan = plan_for(&fake, &Goal::Balance);
    Setting::Rps(2).set(&mut fake, "eth0", "1").unwrap();
    let before = fake.clone();
    let refused = apply(&mut fake, &plan, folder.path()).unwrap_err().to_string();
    assert!(refused.contains("rx-2.rps_cpus was 'none' and is '1'"), "{refused}");
    fake.driver = "ice".into();
    let refused = apply(&mut fake, &plan, folder.path()).unwrap_err().to_string();
    assert!(refused.contains("the driver was 'virtio_net' and is 'ice'"), "{refused}");
    fake.driver = "virtio_net".into();
    assert_eq!(fake, before);
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "no journal is written");
}

#[test]
fn a_step_that_fails_undoes_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = Fake::virtio();
    fake.refused = Some("/sys/class/net/eth0/queues/rx-0/rps_cpus".into());
    let before = fake.clone();
    let plan = everything(&fake);
    let failed = apply(&mut fake, &plan, folder.path()).unwrap_err();
    let said = failed.to_string();
    assert!(said.starts_with("rx-0.rps_cpus: setting it to '0-3': EIO"), "{said}");
    assert!(matches!(failed, Failure::Step { .. }));
    assert_eq!(fake, before);
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
}

#[test]
fn what_another_program_changed_is_reported_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = Fake::virtio();
    let plan = plan_for(&fake, &Goal::Balance);
    assert_eq!(plan.steps[0].setting, Setting::Table);
    drop(apply(&mut fake, &plan, folder.path()).unwrap());
    let foreign = vec![3; 128];
    fake.set_table("eth0", &foreign).unwrap();
    let refused = undo(&mut fake, "eth0", folder.path()).unwrap_err();
    assert!(
        matches!(refused, Failure::Foreign(_)) && refused.to_string().contains("rss.table is '3 3")
    );
    assert_eq!(fake.rss.as_ref().unwrap().table, foreign);
    assert_eq!(journal::list(folder.path(), "eth0").unwrap().len(), 1, "the journal is kept");
}

#[test]
fn after_a_restart_there_is_nothing_to_restore() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = Fake::virtio();
    let plan = plan_for(&fake, &Goal::Balance);
    drop(apply(&mut fake, &plan, folder.path()).unwrap());
    fake.files.insert(BOOT.into(), "another\n".into());
    let applied = fake.clone();
    assert_eq!(undo(&mut fake, "eth0", folder.path()).unwrap(), Undone::Obsolete);
    assert_eq!(fake, applied);
}

/// Undoes a change after the machine was changed by `then`: the result, the journals left, and whether undoing changed
/// nothing.
fn changed_then(folder: &Path, then: impl Fn(&mut Fake)) -> (Result<Undone, Failure>, usize, bool) {
    let mut fake = Fake::virtio();
    let plan = plan_for(&fake, &Goal::Balance);
    drop(apply(&mut fake, &plan, folder).unwrap());
    then(&mut fake);
    let before = fake.clone();
    let undone = undo(&mut fake, "eth0", folder);
    (undone, journal::list(folder, "eth0").unwrap().len(), fake == before)
}

#[test]
fn the_journal_of_an_interface_that_is_elsewhere_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    // Interfaces of two namespaces may have the same name and index.
    for index in [2, 7] {
        let folder = folder.path().join(index.to_string());
        let (undone, journals, is_unchanged) =
            changed_then(&folder, |fake| (fake.namespace, fake.index) = (9, index));
        let why = undone.unwrap_err().to_string();
        assert!(why.contains("another network namespace"), "{why}");
        assert_eq!((journals, is_unchanged), (1, true));
    }
    let renamed = folder.path().join("renamed");
    let (undone, journals, is_unchanged) = changed_then(&renamed, |fake| fake.name = "lan0".into());
    let why = undone.unwrap_err().to_string();
    assert!(why.contains("is called lan0 now"), "{why}");
    assert_eq!((journals, is_unchanged), (1, true));
    let removed = folder.path().join("removed");
    let (undone, journals, is_unchanged) = changed_then(&removed, |fake| fake.index = 7);
    assert_eq!((undone.unwrap(), journals, is_unchanged), (Undone::Obsolete, 0, true));
}

/// The socket flow table is the machine's, and outlives the interface, but not a restart.
#[test]
fn what_is_not_the_interfaces_own_is_restored_after_it_was_removed() {
    for is_restarted in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut fake = Fake::virtio();
        let plan = plan_for(&fake, &Goal::Locality);
        assert!(plan.steps.iter().any(|step| step.setting == Setting::SockFlows), "{plan:?}");
        drop(apply(&mut fake, &plan, folder.path()).unwrap());
        fake.index = 7;
        if is_restarted {
            fake.files.insert(BOOT.into(), "another\n".into());
        }
        let mut want = fake.clone();
        let undone = undo(&mut fake, "eth0", folder.path()).unwrap();
        if is_restarted {
            assert_eq!(undone, Undone::Obsolete);
        } else {
            assert_eq!(undone, Undone::Restored(vec![Setting::SockFlows]));
            Setting::SockFlows.set(&mut want, "eth0", "0").unwrap();
        }
        assert_eq!(fake, want);
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "no journal is left");
    }
}

#[test]
fn a_journal_without_a_network_namespace_is_undone_where_the_interface_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = Fake::virtio();
    let before = fake.clone();
    let journal = apply(&mut fake, &plan_for(&before, &Goal::Balance), folder.path()).unwrap();
    let path = journal.path.clone();
    drop(journal);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace(r#""namespace":4026531840,"#, "")).unwrap();
    assert_eq!(Journal::open(&path).unwrap().header.namespace, None);
    let mut elsewhere = fake.clone();
    elsewhere.index = 7;
    let kept = undo(&mut elsewhere, "eth0", folder.path()).unwrap_err();
    assert!(matches!(kept, Failure::Elsewhere { .. }), "{kept}");
    undo(&mut fake, "eth0", folder.path()).unwrap();
    assert_eq!(fake, before);
}

#[test]
fn plans_stack_and_are_undone_the_newest_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = Fake::virtio();
    let first = fake.clone();
    drop(apply(&mut fake, &plan_for(&first, &Goal::Balance), folder.path()).unwrap());
    let second = fake.clone();
    drop(apply(&mut fake, &plan_for(&second, &Goal::Symmetric), folder.path()).unwrap());
    assert_eq!(journal::list(folder.path(), "eth0").unwrap().len(), 2);
    undo(&mut fake, "eth0", folder.path()).unwrap();
    assert_eq!(fake, second);
    undo(&mut fake, "eth0", folder.path()).unwrap();
    assert_eq!(fake, first);
}

#[test]
fn the_user_confirms_from_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = Fake::virtio();
    let plan = plan_for(&fake, &Goal::Balance);
    let journal = apply(&mut fake, &plan, folder.path()).unwrap();
    assert!(!journal::is_confirmed(&journal.path).unwrap());
    journal::confirm(&journal.path).unwrap();
    assert!(journal::is_confirmed(&journal.path).unwrap());
}

#[test]
fn a_file_that_is_no_journal_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("eth0.1.journal");
    fs::write(&path, "hello\n").unwrap();
    let refused = undo(&mut Fake::virtio(), "eth0", folder.path()).unwrap_err().to_string();
    assert!(refused.contains("this is not a journal"), "{refused}");
    assert!(Path::new(&path).exists());
}
