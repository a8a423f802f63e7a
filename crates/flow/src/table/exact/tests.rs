use std::collections::HashMap;
use std::net::Ipv4Addr;

use flowyard_frame::proto;
use proptest::prelude::*;

use super::super::answers::marks;
use super::*;

/// Flow `n` of a load generator: adjacent hosts, sequential ports, one server.
fn structured(n: u32) -> FlowKey {
    let [src, dst] = [0x0a00_0000 + (n >> 10), 0x0a80_0001].map(Ipv4Addr::from_bits);
    FlowKey::five_tuple(proto::UDP, src.into(), 1024 + (n & 1023) as u16, dst.into(), 11211)
}

fn action(n: u32) -> Action {
    Action { mark: n, ..Action::queue(n as u16) }
}

#[test]
fn it_holds_its_capacity_of_structured_flows() {
    for capacity in [8192, 1 << 20] {
        let mut table = Exact::new(capacity, &FlowKey::FLOW, 1);
        for n in 0..capacity as u32 {
            assert_eq!(table.put(&structured(n), action(n)), Ok(()), "flow {n} of {capacity}");
        }
        let keys: Vec<_> = (0..capacity as u32).step_by(101).map(structured).collect();
        let wanted: Vec<_> = (0..capacity as u32).step_by(101).map(Some).collect();
        assert_eq!(marks(&mut table, &keys), wanted);
        let spilled: u32 = table.index.buckets().spilled.iter().sum();
        assert!((spilled as usize) < capacity / 20, "{spilled} entries are in their second bucket");
        let next = structured(capacity as u32);
        assert_eq!(table.put(&next, action(0)), Err(Reason::Full { capacity }));
        assert_eq!(table.put(&structured(5), action(77)), Ok(()), "a full table still replaces");
        assert_eq!(table.get(&structured(5)), Some(&action(77)));
    }
}

#[test]
fn a_refusal_has_its_reason() {
    let mut table = Exact::new(1, &FlowKey::FLOW, 1);
    let tagged = FlowKey { vlan_tci: 5, ..structured(0) };
    let edits = [
        Edit::Put(tagged, action(0)),
        Edit::Put(structured(0), action(0)),
        Edit::Put(structured(1), action(1)),
        Edit::Del(structured(0)),
        Edit::Put(structured(2), action(2)),
    ];
    let mut refused = Vec::new();
    table.apply(&edits, &mut refused);
    assert_eq!(
        refused,
        [
            Refusal { edit: edits[0], reason: Reason::OutsideMask },
            Refusal { edit: edits[2], reason: Reason::Full { capacity: 1 } },
        ]
    );
    assert_eq!(marks(&mut table, &[0, 1, 2].map(structured)), [None, None, Some(2)]);
}

/// A search for a tag must not find the entry of a place that was freed beside an equal tag.
#[test]
fn what_is_deleted_is_not_found_next_to_an_equal_tag() {
    let mut table = Exact::with_buckets(8, 2, &FlowKey::FLOW, 1);
    let alike = |key: &FlowKey| {
        let hash = table.wanted(key).hash;
        tag(hash) & 0xff == 1 && table.index.first(hash) == 0
    };
    let keys: Vec<_> = (0..1_000_000).map(structured).filter(alike).collect();
    let tags = keys.iter().map(|key| tag(table.wanted(key).hash)).collect::<Vec<_>>();
    let second = (1..keys.len()).find(|&at| tags[at] == tags[0]).unwrap();
    let keys = [keys[0], keys[second]];
    for key in &keys {
        assert_eq!(table.put(key, action(1)), Ok(()));
    }
    assert!(table.del(&keys[1]));
    assert_eq!(table.get(&keys[1]), None);
    assert!(!table.del(&keys[1]));
    assert_eq!(marks(&mut table, &keys), [Some(1), None]);
    assert_eq!(table.put(&keys[1], action(2)), Ok(()));
    assert_eq!((marks(&mut table, &keys), table.len()), (vec![Some(1), Some(2)], 2));
}

/// Two buckets with sixteen places: most entries have to move when the last ones are added.
#[test]
fn entries_move_to_make_room() {
    for seed in 0..200 {
        let mut table = Exact::with_buckets(16, 2, &FlowKey::FLOW, seed);
        let mut taken = Vec::new();
        for n in 0..64 {
            match table.put(&structured(n), action(n)) {
                Ok(()) => taken.push(n),
                Err(Reason::Full { .. } | Reason::Crowded { .. }) => {}
                Err(reason) => panic!("{reason}"),
            }
        }
        table.index.check();
        assert!(taken.len() >= 15, "seed {seed}: {} of 16 taken", taken.len());
        let keys: Vec<_> = taken.iter().map(|&n| structured(n)).collect();
        assert_eq!(marks(&mut table, &keys), taken.into_iter().map(Some).collect::<Vec<_>>());
    }
}

#[test]
fn small_tables_hold_their_capacity() {
    for capacity in 1..=600 {
        for seed in 0..if capacity < 50 { 1000 } else { 20 } {
            let mut table = Exact::new(capacity, &FlowKey::FLOW, seed);
            for n in 0..capacity as u32 {
                assert_eq!(table.put(&structured(n), action(n)), Ok(()), "{capacity}, seed {seed}");
            }
        }
    }
}

/// The reference model.
#[derive(Default)]
struct Model {
    entries: HashMap<FlowKey, Action>,
}

#[derive(Clone, Debug)]
enum Step {
    Put(u32, u32),
    Del(u32),
    Look(Vec<u32>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..96_u32, any::<u32>()).prop_map(|(n, mark)| Step::Put(n, mark)),
        2 => (0..96_u32).prop_map(Step::Del),
        2 => prop::collection::vec(0..96_u32, 1..=32).prop_map(Step::Look),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn a_table_is_its_model(
        steps in steps(),
        capacity in 1..100_usize,
        seed in any::<u64>(),
        flow in any::<bool>(),
    ) {
        // The other mask has fields that FLOW has not, and lacks one that FLOW has.
        let other = FlowKey { vlan_tci: 0xfff, tunnel_id: u32::MAX, dport: 0, ..FlowKey::FLOW };
        let mask = if flow { FlowKey::FLOW } else { other };
        let key = |n: u32| FlowKey { vlan_tci: n as u16 % 3, tunnel_id: n % 5, ..structured(n) };
        let mut table = Exact::new(capacity, &mask, seed);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Put(n, mark) => {
                    let key = key(n).masked(&mask);
                    let refused = table.put(&key, action(mark)).err();
                    let full = model.entries.len() == capacity;
                    if full && !model.entries.contains_key(&key) {
                        prop_assert_eq!(refused, Some(Reason::Full { capacity }));
                    } else {
                        prop_assert_eq!(refused, None);
                        model.entries.insert(key, action(mark));
                    }
                }
                Step::Del(n) => {
                    let had = model.entries.remove(&key(n).masked(&mask)).is_some();
                    prop_assert_eq!(table.del(&key(n)), had);
                }
                Step::Look(list) => {
                    let keys: Vec<_> = list.into_iter().map(key).collect();
                    let slow = |key: &FlowKey| model.entries.get(&key.masked(&mask));
                    let slow: Vec<_> = keys.iter().map(|key| slow(key).map(|a| a.mark)).collect();
                    prop_assert_eq!(marks(&mut table, &keys), slow);
                }
            }
            prop_assert_eq!(table.len(), model.entries.len());
        }
        table.index.check();
    }
}

#[test]
fn every_entry_is_shown_with_the_whole_of_its_key() {
    let everything = FlowKey {
        eth_dst: [0xff; 6],
        eth_src: [0xff; 6],
        in_port: 0xffff,
        flex: 0xffff,
        tunnel_id: u32::MAX,
        vlan_tci: 0xffff,
        ..FlowKey::FLOW
    };
    for mask in [FlowKey::FLOW, everything] {
        let mut table = Exact::new(100, &mask, 7);
        let mut wanted: Vec<_> = (0..100)
            .map(|n| {
                let key = FlowKey { sport: n, tunnel_id: 9, in_port: 3, ..FlowKey::ZERO };
                (key.masked(&mask), Action::queue(n))
            })
            .collect();
        wanted.iter().for_each(|(key, action)| table.put(key, *action).unwrap());
        assert!(table.del(&wanted.remove(50).0));
        let mut shown = Vec::new();
        table.each(&mut |key, action| shown.push((*key, *action)));
        shown.sort_by_key(|(key, _)| key.sport);
        assert_eq!((shown, table.occupancy()), (wanted, Some((99, 100))));
    }
}
