use std::sync::Arc;

use flowyard_frame::proto;
use flowyard_testkit::batch;
use proptest::prelude::*;

use super::*;
use crate::table::answers::marks;
use crate::table::{Linear, Rules};

/// Few different values, so that rules overlap and keys match.
fn key(n: u32) -> FlowKey {
    let [src, dst] =
        [0x0a00_0000 + (n & 3), 0x0a80_0000 + (n >> 2 & 3)].map(std::net::Ipv4Addr::from_bits);
    let five = FlowKey::five_tuple(proto::TCP, src.into(), 9, dst.into(), 80 + (n >> 4 & 1) as u16);
    FlowKey { vlan_tci: (n >> 5 & 1) as u16, in_port: (n >> 6 & 1) as u16, ..five }
}

/// Mask number `n` of 64: any set of six fields.
fn mask(n: u32) -> FlowKey {
    let mut mask = FlowKey::ZERO;
    let has = |bit: u32| n >> bit & 1 == 1;
    mask.src[3] = if has(0) { 0xff } else { 0 };
    mask.src[..3].fill(if has(1) { 0xff } else { 0 });
    mask.dst[..4].fill(if has(2) { 0xff } else { 0 });
    mask.dport = if has(3) { 0xffff } else { 0 };
    mask.vlan_tci = if has(4) { 0xfff } else { 0 };
    mask.in_port = if has(5) { 0xffff } else { 0 };
    mask
}

fn rule(n: u32, m: u32, priority: u16, mark: u32) -> Rule {
    let action = Action { mark, ..Action::queue(1) };
    Rule { key: key(n).masked(&mask(m)), mask: mask(m), priority, action }
}

/// Checks the invariants of the table.
fn sound(table: &Wildcard) {
    table.space.check();
    assert_eq!(table.space.len() + table.free.len(), table.actions.len());
}

#[test]
fn the_highest_priority_answers_and_of_equals_the_first() {
    let mut table = Wildcard::new(8, 8, 1);
    let web = key(0);
    for (n, m, priority, mark) in [(0, 0, 0, 1), (0, 8, 5, 2), (0, 4, 5, 3), (0, 63, 4, 4)] {
        assert_eq!(table.put(&rule(n, m, priority, mark)), Ok(()));
    }
    assert_eq!((table.len(), table.masks()), (4, 4));
    assert_eq!(marks(&mut table, &[web, key(16)]), [Some(2), Some(3)]);
    assert_eq!(table.put(&rule(0, 8, 5, 9)), Ok(()), "a new action for the same rule");
    assert_eq!(marks(&mut table, &[web]), [Some(9)], "keeps its place");
    assert!(table.del(&rule(0, 8, 5, 0).key, &mask(8), 5));
    assert!(!table.del(&rule(0, 8, 5, 0).key, &mask(8), 5));
    assert_eq!(marks(&mut table, &[web, key(255)]), [Some(3), Some(1)]);
    assert_eq!(table.get(&web).map(|(action, priority)| (action.mark, priority)), Some((3, 5)));
    sound(&table);
}

#[test]
fn rules_with_equal_key_and_mask_are_chained() {
    let mut table = Wildcard::new(8, 1, 1);
    for priority in [3, 1, 7, 5] {
        assert_eq!(table.put(&rule(1, 63, priority, priority.into())), Ok(()));
    }
    for (gone, left) in [(3, Some(7)), (7, Some(5)), (1, Some(5)), (5, None)] {
        assert!(table.del(&key(1), &mask(63), gone));
        assert_eq!(marks(&mut table, &[key(1)]), [left]);
        sound(&table);
    }
    assert_eq!((table.len(), table.masks()), (0, 0));
}

#[test]
fn a_refusal_has_its_reason_and_changes_nothing() {
    let mut table = Wildcard::new(2, 1, 1);
    let outside = Rule { key: key(1), ..rule(0, 8, 1, 1) };
    assert_eq!(table.put(&outside), Err(Reason::OutsideMask));
    assert_eq!(table.put(&rule(0, 8, 1, 1)), Ok(()));
    assert_eq!(table.put(&rule(0, 4, 1, 1)), Err(Reason::Masks { limit: 1 }));
    assert_eq!(table.put(&rule(0, 8, 2, 2)), Ok(()));
    assert_eq!(table.put(&rule(16, 8, 1, 1)), Err(Reason::Full { capacity: 2 }));
    assert_eq!(table.put(&rule(0, 8, 1, 7)), Ok(()), "a full table still replaces");
    assert!(table.del(&rule(0, 8, 2, 0).key, &mask(8), 2));
    assert_eq!(marks(&mut table, &[key(0)]), [Some(7)]);
    sound(&table);
}

#[test]
fn it_takes_a_hundred_thousand_rules() {
    let mut table = Wildcard::new(100_000, 4, 1);
    let at = |n: u32| {
        let src = std::net::Ipv4Addr::from_bits(n);
        FlowKey::five_tuple(proto::UDP, src.into(), 1, src.into(), 2)
    };
    for n in 0..100_000 {
        let action = Action { mark: n, ..Action::queue(0) };
        let rule = Rule { key: at(n), mask: FlowKey::FLOW, priority: 0, action };
        assert_eq!(table.put(&rule), Ok(()));
    }
    let keys: Vec<_> = (0..200_000).step_by(97).map(at).collect();
    let wanted: Vec<_> = (0..200_000).step_by(97).map(|n| (n < 100_000).then_some(n)).collect();
    assert_eq!(marks(&mut table, &keys), wanted);
    for n in (0..100_000).filter(|n| n % 97 != 0) {
        assert!(table.del(&at(n), &FlowKey::FLOW, 0));
    }
    assert_eq!(marks(&mut table, &keys), wanted);
    sound(&table);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u32, u32, u16, u32),
    Del(u32, u32, u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..128_u32, 0..64_u32, 0..4_u16, any::<u32>())
            .prop_map(|(n, m, priority, mark)| Step::Put(n, m, priority, mark)),
        2 => (0..128_u32, 0..64_u32, 0..4_u16).prop_map(|(n, m, priority)| Step::Del(n, m, priority)),
    ];
    prop::collection::vec(step, 1..120)
}

/// Maps to few masks, so that edits affect each other.
fn few(m: u32, masks: u32) -> u32 {
    (m % masks).wrapping_mul(37) & 63
}

proptest! {
    #[test]
    fn a_table_is_its_model(
        steps in steps(), capacity in 1..80_usize, masks in 1..64_u32, seed in any::<u64>(),
    ) {
        let mut table = Wildcard::new(capacity, 64, seed);
        let mut model = Linear::new(capacity);
        for step in steps {
            match step {
                Step::Put(n, m, priority, mark) => {
                    let rule = rule(n, few(m, masks), priority, mark);
                    prop_assert_eq!(table.put(&rule), model.put(&rule));
                }
                Step::Del(n, m, priority) => {
                    let mask = mask(few(m, masks));
                    let key = key(n).masked(&mask);
                    let had = model.del(&key, &mask, priority);
                    prop_assert_eq!(table.del(&key, &mask, priority), had);
                }
            }
            prop_assert_eq!(table.len(), model.len());
        }
        sound(&table);
        let keys: Vec<_> = (0..128).map(key).collect();
        prop_assert_eq!(marks(&mut table, &keys), marks(&mut model, &keys));
        for key in &keys {
            let slow = model.get(key).map(|rule| (rule.action, rule.priority));
            prop_assert_eq!(table.get(key), slow);
        }
    }

    /// If an answer is sure, no key with the same fields under the cache's mask has another answer. If
    /// all rules are within the mask, all answers are sure.
    #[test]
    fn a_sure_answer_depends_on_the_mask_alone(
        steps in steps(), covered in 0..64_u32, masks in 1..64_u32,
    ) {
        let mut model = Linear::new(200);
        let mut table = Wildcard::new(200, 64, 1);
        for step in steps {
            if let Step::Put(n, m, priority, mark) = step {
                let rule = rule(n, few(m, masks), priority, mark);
                prop_assert_eq!(table.put(&rule), model.put(&rule));
            }
        }
        let cover = mask(covered);
        let within = table.doubt(&cover) == 0;
        let mut rules = Rules::new(Arc::new(table), &cover);
        let keys: Vec<_> = (0..128).map(key).collect();
        for chunk in keys.chunks(LANES) {
            let mut batch = batch(chunk.iter().copied());
            let all = batch.lanes();
            let hit = all.without(rules.lookup(&mut batch, all));
            prop_assert!(rules.sure().without(hit).is_empty());
            prop_assert!(!within || rules.sure() == hit);
            for lane in rules.sure() {
                let alike = keys.iter().filter(|key| key.masked(&cover) == chunk[lane].masked(&cover));
                for key in alike {
                    prop_assert_eq!(model.get(key).map(|rule| rule.action), Some(batch.actions[lane]));
                }
            }
        }
    }
}
