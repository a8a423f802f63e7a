use std::cell::Cell;
use std::collections::HashMap;

use flowyard_testkit::batch;
use proptest::prelude::*;

use super::*;
use crate::Secret;

const SECOND: Nanos = 1_000_000_000;

thread_local! {
    /// How often a bucket was read to learn a station.
    pub(super) static READS: Cell<u64> = const { Cell::new(0) };
}

fn mac(n: u32) -> [u8; 6] {
    let [a, b, c, d] = n.to_be_bytes();
    [2, 0, a, b, c, d]
}

/// The ports that a batch lookup of these destinations returns.
fn ports(table: &mut L2, wanted: &[([u8; 6], u16)]) -> Vec<Option<u16>> {
    let key = |&(eth_dst, vlan_tci)| FlowKey { eth_dst, vlan_tci, ..FlowKey::ZERO };
    let mut batch = batch(wanted.iter().map(key));
    let all = batch.lanes();
    let missed = table.lookup(&mut batch, all);
    let port = |lane: usize| match batch.actions[lane].to {
        To::Port(port) if !missed.has(lane) => Some(port),
        To::Drop(_) if missed.has(lane) => None,
        other => panic!("{other:?}"),
    };
    all.map(port).collect()
}

#[test]
fn stations_are_learnt_move_and_age() {
    let mut table = L2::new(16, 300 * SECOND, 1);
    let a = mac(1);
    assert_eq!(ports(&mut table, &[(a, 0)]), [None]);
    assert_eq!(table.learn(&a, 0, 3, SECOND), Learnt::New);
    assert_eq!(
        table.learn(&a, 0xe000, 3, 2 * SECOND),
        Learnt::Known,
        "the priority is not part of the VLAN id"
    );
    assert_eq!(
        table.learn(&a, 7, 4, 2 * SECOND),
        Learnt::New,
        "an address in another VLAN is another station"
    );
    assert_eq!(ports(&mut table, &[(a, 0), (a, 0x2007), (a, 8)]), [Some(3), Some(4), None]);
    assert_eq!(table.learn(&a, 0, 5, 200 * SECOND), Learnt::Moved { from: 3 });
    table.advance(302 * SECOND);
    assert_eq!(ports(&mut table, &[(a, 0), (a, 7)]), [Some(5), Some(4)]);
    table.advance(303 * SECOND);
    assert_eq!(ports(&mut table, &[(a, 0), (a, 7)]), [Some(5), None]);
    table.advance(SECOND);
    assert_eq!(ports(&mut table, &[(a, 7)]), [None], "time does not go back");
    assert_eq!(
        table.learn(&a, 7, 6, 303 * SECOND),
        Learnt::New,
        "not a move, because it was unknown"
    );
    table.forget_port(5);
    assert_eq!(table.iter().collect::<Vec<_>>(), [(a, 7, 6)]);
    assert_eq!(table.counts, Counts { learnt: 3, moved: 1, full: 0 });
}

#[test]
fn the_later_of_two_observations_is_kept() {
    let mut table = L2::new(16, 300 * SECOND, 1);
    let a = mac(1);
    assert_eq!(table.hear(&a, 0, 3, 10 * SECOND), Learnt::New);
    assert_eq!(table.learn(&a, 0, 4, 12 * SECOND), Learnt::Moved { from: 3 });
    assert_eq!(
        table.hear(&a, 0, 3, 11 * SECOND),
        Learnt::Known,
        "an older observation changes nothing"
    );
    assert_eq!(table.get(&a, 0), Some(4));
    assert_eq!(table.hear(&a, 0, 5, 13 * SECOND), Learnt::Moved { from: 4 });
    assert_eq!(
        table.hear(&a, 0, 6, 13 * SECOND),
        Learnt::Moved { from: 5 },
        "of two at the same time, the one reported last"
    );
    assert_eq!(table.hear(&[0xff; 6], 0, 6, 13 * SECOND), Learnt::NoStation);
    table.advance(400 * SECOND);
    assert_eq!(
        table.hear(&mac(2), 0, 1, 50 * SECOND),
        Learnt::NoStation,
        "older than the ageing time"
    );
    assert_eq!(table.hear(&mac(2), 0, 1, 350 * SECOND), Learnt::New);
    table.advance(651 * SECOND);
    assert_eq!(
        table.get(&mac(2), 0),
        None,
        "it ages from when it was seen, not from when it was reported"
    );
}

#[test]
fn group_addresses_are_flooded() {
    let mut table = L2::new(16, 300 * SECOND, 1);
    for group in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0; 6]] {
        assert_eq!(table.learn(&group, 0, 1, 0), Learnt::NoStation);
        assert_eq!(ports(&mut table, &[(group, 0)]), [None]);
    }
}

#[test]
fn it_holds_its_capacity_and_forged_addresses_evict_nobody() {
    for stations in [64, 8192, 100_000] {
        let mut table = L2::new(stations, 300 * SECOND, 1);
        for n in 0..stations as u32 {
            assert_eq!(table.learn(&mac(n), 1, n as u16, SECOND), Learnt::New, "{n} of {stations}");
        }
        for n in 0..4 * stations as u32 {
            table.learn(&mac(n | 1 << 31), 1, 0, SECOND);
        }
        assert!(table.counts.full > stations as u64, "{stations}: bounded");
        let kept = (0..stations as u32).all(|n| table.get(&mac(n), 1) == Some(n as u16));
        assert!(kept, "{stations}");
        // When they have aged out, others replace them.
        for n in 0..stations as u32 {
            assert_eq!(table.learn(&mac(n | 1 << 30), 1, 1, 400 * SECOND), Learnt::New);
        }
        assert_eq!(table.iter().count(), stations);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Learn { mac: u32, vlan: u16, port: u16, after: u64 },
    Advance(u64),
    Forget(u16),
    Look(Vec<(u32, u16)>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..12_u32, 0..3_u16, 0..4_u16, 0..3_u64)
            .prop_map(|(mac, vlan, port, after)| Step::Learn { mac, vlan, port, after }),
        1 => (0..12_u64).prop_map(Step::Advance),
        1 => (0..4_u16).prop_map(Step::Forget),
        2 => prop::collection::vec((0..12_u32, 0..3_u16), 1..=32).prop_map(Step::Look),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    /// The reference model is a `HashMap` of port and time. The table may refuse to learn only when
    /// both buckets, eight entries, can be full of live stations.
    #[test]
    fn a_table_is_its_model(steps in steps(), stations in 1..40_usize, seed in any::<u64>()) {
        let (age, unit) = (8, 1 << UNIT);
        let mut table = L2::new(stations, age * unit, seed);
        let mut model: HashMap<(u32, u16), (u16, u64)> = HashMap::new();
        let mut now = 0;
        for step in steps {
            let lives = |&(_, seen): &(u16, u64)| now - seen <= age;
            match step {
                Step::Learn { mac: n, vlan, port, after } => {
                    now += after;
                    model.retain(|_, &mut (_, seen)| now - seen <= age);
                    let learnt = table.learn(&mac(n), vlan, port, now * unit);
                    if learnt == Learnt::Full {
                        prop_assert!(model.len() >= 2 * WAYS && !model.contains_key(&(n, vlan)));
                        continue;
                    }
                    let before = model.insert((n, vlan), (port, now));
                    prop_assert_eq!(learnt, match before {
                        None => Learnt::New,
                        Some((before, _)) if before == port => Learnt::Known,
                        Some((from, _)) => Learnt::Moved { from },
                    });
                }
                Step::Advance(by) => {
                    now += by;
                    table.advance(now * unit);
                    model.retain(|_, &mut (_, seen)| now - seen <= age);
                }
                Step::Forget(port) => {
                    table.forget_port(port);
                    model.retain(|_, &mut (at, _)| at != port);
                }
                Step::Look(list) => {
                    let slow = |at: &(u32, u16)| model.get(at).filter(|e| lives(e)).map(|e| e.0);
                    let slow: Vec<_> = list.iter().map(slow).collect();
                    let list: Vec<_> = list.iter().map(|&(n, vlan)| (mac(n), vlan)).collect();
                    let one = |(mac, vlan): &([u8; 6], u16)| table.get(mac, *vlan);
                    prop_assert_eq!(list.iter().map(one).collect::<Vec<_>>(), &slow[..]);
                    prop_assert_eq!(ports(&mut table, &list), slow);
                }
            }
            let mut known: Vec<_> = table.iter().collect();
            known.sort_unstable();
            let slow = |(&(n, vlan), &(port, _)): (&(u32, u16), &(u16, u64))| (mac(n), vlan, port);
            let mut slow: Vec<_> = model.iter().map(slow).collect();
            slow.sort_unstable();
            prop_assert_eq!(known, slow);
        }
    }
}

/// Stations with both buckets of `victim`, which eight of them fill, computed by an adversary who knows the key.
fn crafted(victim: &[u8; 6], key: u64, count: usize) -> Vec<[u8; 6]> {
    let table = L2::new(64, 300 * SECOND, key);
    let wanted = table.places(word(victim, 0));
    let alike = |mac: &[u8; 6]| {
        let [a, b] = table.places(word(mac, 0));
        [a, b] == wanted || [b, a] == wanted
    };
    (1 << 24..).map(mac).filter(alike).take(count).collect()
}

#[test]
fn crafted_stations_do_not_keep_another_from_being_learnt() {
    let victim = mac(1);
    let stations = crafted(&victim, 1, 2 * WAYS);
    let learns = |table: &mut L2| {
        for mac in &stations {
            table.learn(mac, 0, 6, SECOND);
        }
        table.learn(&victim, 0, 5, SECOND)
    };
    let mut known = L2::new(64, 300 * SECOND, 1);
    assert_eq!(learns(&mut known), Learnt::Full, "who knows the key keeps the victim out");
    for byte in 0..=255 {
        let mut table = L2::new(64, 300 * SECOND, Secret::drawn([byte; 16]).key("stations"));
        assert_eq!(learns(&mut table), Learnt::New, "secret {byte}");
        assert_eq!(ports(&mut table, &[(victim, 0)]), [Some(5)]);
        assert!(stations.iter().all(|mac| table.get(mac, 0) == Some(6)));
    }
}

/// The buckets that are read for a frame of each of these stations.
fn costs(table: &mut L2, stations: &[[u8; 6]]) -> Vec<u64> {
    let cost = |mac: &[u8; 6]| {
        let before = READS.get();
        table.learn(mac, 0, 6, SECOND);
        READS.get() - before
    };
    stations.iter().map(cost).collect()
}

#[test]
fn crafted_stations_cost_what_others_cost() {
    const COUNT: usize = 24;
    // The two buckets are read twice, and the other bucket of each of the eight stations in them once.
    const BOUND: u64 = 2 + 2 + 2 * WAYS as u64;
    let stations = crafted(&mac(1), 1, COUNT);
    let others: Vec<_> = (0..32).map(|n| mac(n << 8)).collect();
    let mean = |costs: &[u64]| costs.iter().sum::<u64>() as f64 / costs.len() as f64;
    let usual = |table: &mut L2| {
        let mut costs = costs(table, &others);
        costs.sort_unstable();
        costs[costs.len() / 2] as f64
    };
    let mut known = L2::new(64, 300 * SECOND, 1);
    let median = usual(&mut known);
    let all = costs(&mut known, &stations);
    assert!(all.iter().all(|cost| *cost <= BOUND), "{all:?}");
    assert!(mean(&all) > 2.0 * median, "the stations are crafted well: {all:?}, usual {median}");
    for byte in 0..=255 {
        let mut table = L2::new(64, 300 * SECOND, Secret::drawn([byte; 16]).key("stations"));
        let median = usual(&mut table);
        for round in 0..3 {
            let all = costs(&mut table, &stations);
            assert!(
                mean(&all) <= 2.0 * median,
                "secret {byte}, round {round}: {all:?}, usual {median}"
            );
        }
    }
}
