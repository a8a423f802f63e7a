use std::sync::Arc;

use flowyard_frame::{LANES, proto};
use flowyard_testkit::batch;
use proptest::prelude::*;

use super::*;
use crate::table::{Linear, Rule, Rules, Wildcard};
use crate::{Steer, table::Spread};

fn key(n: u32) -> FlowKey {
    let [src, dst] =
        [0x0a00_0000 + (n & 3), 0x0a80_0000 + (n >> 2 & 3)].map(std::net::Ipv4Addr::from_bits);
    let five = FlowKey::five_tuple(proto::TCP, src.into(), 9, dst.into(), 80);
    FlowKey { vlan_tci: (n >> 4 & 1) as u16, in_port: (n >> 5 & 1) as u16, ..five }
}

fn mask(n: u32) -> FlowKey {
    let mut mask = FlowKey::ZERO;
    mask.src[..4].fill(if n & 1 == 1 { 0xff } else { 0 });
    mask.dst[..4].fill(if n & 2 == 2 { 0xff } else { 0 });
    mask.vlan_tci = if n & 4 == 4 { 0xfff } else { 0 };
    mask.in_port = if n & 8 == 8 { 0xffff } else { 0 };
    mask
}

fn rule(n: u32, m: u32, priority: u16, mark: u32) -> Rule {
    let action = Action { mark, counter: mark as u16, ..Action::queue(mark as u16) };
    Rule { key: key(n).masked(&mask(m)), mask: mask(m), priority, action }
}

fn cache(entries: usize, replace_every: u32) -> Cache {
    Cache::new(Settings { entries, replace_every }, &FlowKey::FLOW, 1)
}

/// The edits that follow when rules answered these keys.
fn answered(cache: &mut Cache, keys: &[u32]) -> Vec<Edit> {
    let (batch, mut edits) = (batch(keys.iter().map(|&n| key(n))), Vec::new());
    cache.observe(0, &batch, batch.lanes(), 0, &mut edits);
    edits
}

#[test]
fn an_answer_is_copied_once() {
    let mut cache = cache(4, 1);
    let put = |n: u32| Edit::Put(key(n), Action::default());
    assert_eq!(answered(&mut cache, &[1, 2, 1]), [put(1), put(2)]);
    assert_eq!(answered(&mut cache, &[2]), []);
    let mut edits = Vec::new();
    cache.reset(&mut edits);
    assert_eq!(edits, [Edit::Del(key(1)), Edit::Del(key(2))]);
    assert!(cache.is_empty());
    assert_eq!(answered(&mut cache, &[2]), [put(2)]);
}

#[test]
fn a_full_cache_replaces_the_oldest_now_and_then() {
    let mut full = cache(2, 3);
    answered(&mut full, &[1, 2]);
    assert_eq!(answered(&mut full, &[3, 4]), []);
    let put = Edit::Put(key(5), Action::default());
    assert_eq!(answered(&mut full, &[5]), [Edit::Del(key(1)), put]);
    assert_eq!(answered(&mut full, &[1, 1, 1])[0], Edit::Del(key(2)));
    assert_eq!(full.len(), 2);
    let mut never = cache(1, 0);
    answered(&mut never, &[1]);
    assert_eq!(answered(&mut never, &[2, 3, 4]), []);
}

/// A core's tables: the exact table that the cache fills, the rules, the indirection table.
struct Tables {
    steer: Steer,
    cache: Cache,
    mask: FlowKey,
}

impl Tables {
    fn new(mask: FlowKey, settings: Settings) -> Self {
        let front = Exact::new(settings.entries, &mask, 3);
        let rules = Rules::new(Arc::new(Wildcard::new(0, 0, 1)), &mask);
        let steer = Steer::new(vec![Box::new(front), Box::new(rules)], Spread::new(1, 1).unwrap());
        Self { steer, cache: Cache::new(settings, &mask, 4), mask }
    }

    fn apply(&mut self, edits: &[Edit]) {
        let mut refused = Vec::new();
        let front = self.steer.table(0).unwrap();
        front.apply(edits, &mut refused);
        assert_eq!(refused, []);
    }

    fn reload(&mut self, rules: &Wildcard) {
        let rules = Rules::new(Arc::new(rules.clone()), &self.mask);
        self.steer.replace(1, Box::new(rules));
        let mut edits = Vec::new();
        self.cache.reset(&mut edits);
        self.apply(&edits);
    }

    /// The actions for these keys; the cache learns from them.
    fn walk(&mut self, keys: &[FlowKey]) -> Vec<Action> {
        let (mut batch, mut edits) = (batch(keys.iter().copied()), Vec::new());
        self.steer.walk(&mut batch);
        let (_, sure) = self.steer.answered(1);
        self.cache.observe(0, &batch, sure, 0, &mut edits);
        self.apply(&edits);
        batch.actions[..keys.len()].to_vec()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u32, u32, u16, u32),
    Del(u32, u32, u16),
    Look(Vec<u32>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0..64_u32, 0..16_u32, 0..3_u16, any::<u32>())
            .prop_map(|(n, m, priority, mark)| Step::Put(n, m, priority, mark)),
        1 => (0..64_u32, 0..16_u32, 0..3_u16).prop_map(|(n, m, priority)| Step::Del(n, m, priority)),
        4 => prop::collection::vec(0..64_u32, 1..=LANES).prop_map(Step::Look),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// The answers are the same with and without a cache while rules are added and deleted.
    #[test]
    fn a_cache_changes_no_answer(
        steps in steps(), masks in 1..16_u32, entries in 1..40_usize, every in 0..4_u32,
        covered in 0..16_u32,
    ) {
        let mask = FlowKey::FLOW.union(&mask(covered));
        let mut tables = Tables::new(mask, Settings { entries, replace_every: every });
        let (mut rules, mut model) = (Wildcard::new(200, 64, 1), Linear::new(200));
        for step in steps {
            match step {
                Step::Put(n, m, priority, mark) => {
                    let rule = rule(n, m % masks, priority, mark);
                    prop_assert_eq!(rules.put(&rule), model.put(&rule));
                    tables.reload(&rules);
                }
                Step::Del(n, m, priority) => {
                    let mask = self::mask(m % masks);
                    let key = key(n).masked(&mask);
                    rules.del(&key, &mask, priority);
                    model.del(&key, &mask, priority);
                    tables.reload(&rules);
                }
                Step::Look(list) => {
                    let keys: Vec<_> = list.into_iter().map(key).collect();
                    let slow = |key: &FlowKey| model.get(key).map_or(Action::queue(0), |r| r.action);
                    let slow: Vec<_> = keys.iter().map(slow).collect();
                    prop_assert_eq!(tables.walk(&keys), slow.clone());
                    prop_assert_eq!(tables.walk(&keys), slow, "answered by the cache");
                }
            }
        }
    }
}

/// An answer that is sure is given by the exact table from the second frame on.
#[test]
fn the_second_frame_is_answered_in_front() {
    let mut rules = Wildcard::new(10, 10, 1);
    for n in 0..4 {
        assert_eq!(rules.put(&rule(n, 1, 5, n + 1)), Ok(()));
    }
    assert_eq!(rules.put(&rule(0, 4, 1, 9)), Ok(()), "matches on the VLAN, with a lower priority");
    let mut tables = Tables::new(FlowKey::FLOW, Settings::default());
    tables.reload(&rules);
    let keys: Vec<_> = (0..4).map(key).collect();
    assert_eq!(tables.walk(&keys), tables.walk(&keys));
    assert_eq!(tables.steer.hits(), [4, 4, 0]);
    // With a rule of higher priority that matches on the VLAN, no answer is sure.
    assert_eq!(rules.put(&rule(16, 4, 7, 10)), Ok(()));
    tables.reload(&rules);
    assert_eq!(tables.walk(&keys), tables.walk(&keys));
    assert_eq!(tables.steer.hits(), [4, 12, 0]);
}
