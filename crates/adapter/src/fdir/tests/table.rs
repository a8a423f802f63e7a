//! Tests of the filter table.

use flowyard_frame::{FlowKey, proto};
use proptest::prelude::*;

use super::super::slow_model::{ListTable, Seen};
use super::super::*;
use super::{client, v4};

fn perfect() -> Table {
    Table::new(Mode::Perfect, Pballoc::K64, MaskSet::FIVE_TUPLE, Limits::default()).unwrap()
}

/// `n` distinct flows of one bucket.
fn colliding(n: usize) -> Vec<FlowKey> {
    // Equal folds, different keys: source and destination change by the same bits.
    (0..n as u16)
        .map(|i| {
            v4(proto::TCP, [10, 1, (i >> 8) as u8, i as u8], 5, [10, 2, (i >> 8) as u8, i as u8], 6)
        })
        .collect()
}

#[test]
fn perfect_filters_distinguish_colliding_flows_but_flag_long_lists() {
    let mut table = perfect();
    let keys = colliding(13);
    for (i, key) in keys.iter().enumerate() {
        table.add(key, i as u16, Action::queue(i as u16), true).unwrap();
    }
    for (i, key) in keys.iter().enumerate() {
        let hit = table.lookup(key).unwrap();
        assert_eq!((hit.id, hit.position), (i as u16, i as u16 + 1));
        assert_eq!(hit.length_error, i >= 10);
    }
    assert_eq!(table.lookup(&keys[0].reversed()), None, "equal fold, different key");
    let (read, bucket) = (table.read_registers(), table.lookup(&keys[0]).unwrap().bucket);
    assert_eq!((read.max_len, read.max_hash), (13, bucket));
    assert_ne!(bucket, 0, "0 is also the initial value of max_hash");
    // Removing an early filter reduces the positions of the later ones.
    table.remove(table.bucket(&table.input(&keys[0]).unwrap()), 0).unwrap();
    assert!(!table.lookup(&keys[10]).unwrap().length_error);
}

#[test]
fn an_update_changes_the_filter_and_a_plain_add_duplicates_it() {
    let (mut table, key) = (perfect(), client([10, 0, 0, 9], 1, 2));
    assert_eq!(table.add(&key, 1, Action::queue(1), true).unwrap().outcome, Outcome::Added);
    assert_eq!(table.add(&key, 1, Action::queue(2), true).unwrap().outcome, Outcome::Updated);
    assert_eq!(table.add(&key, 2, Action::queue(3), false).unwrap().outcome, Outcome::Duplicate);
    assert_eq!(
        table.lookup(&key).unwrap().action,
        Action::queue(2),
        "the first filter still matches"
    );
    assert_eq!((table.free_filters(), table.read_registers().coll), (2046, 1));
    let bucket = table.bucket(&table.input(&key).unwrap());
    assert_eq!(table.query(bucket, 2).unwrap().1, Action::queue(3));
    table.remove(bucket, 1).unwrap();
    assert_eq!(table.lookup(&key).unwrap().id, 2);
    assert_eq!(table.remove(bucket, 1), Err(Error::NotFound { bucket, id: 1 }));
    assert_eq!(table.read_registers().fremove, 1);
}

#[test]
fn unsupported_commands_are_refused() {
    let (mut table, key) = (perfect(), client([10, 0, 0, 9], 1, 2));
    let add = |table: &mut Table, action| table.add(&key, 1, action, true).map(|a| a.outcome);
    assert_eq!(add(&mut table, Action::DROP), Ok(Outcome::Added));
    assert_eq!(add(&mut table, Action::queue(126)), Ok(Outcome::Updated));
    assert_eq!(add(&mut table, Action::queue(127)), Err(Error::Queue(127)));
    let counted = Action { counter: Some(0), ..Action::queue(0) };
    assert!(matches!(add(&mut table, counted), Err(Error::NoSuchAction(_))));
    let bulk = Action { moderation: Moderation::HighBandwidth, ..Action::queue(0) };
    assert!(matches!(add(&mut table, bulk), Err(Error::NoSuchAction(_))));
    let fragment = FlowKey { frag: 1, ..key };
    let refused = table.add(&fragment, 1, Action::queue(0), true);
    assert_eq!(refused, Err(Error::Unmatched(Unmatched::Fragment)));
    assert_eq!(table.lookup(&fragment), None);
    let v6 = FlowKey { eth_type: 0x86dd, ..key };
    assert_eq!(table.input(&v6), Err(Unmatched::Ipv6));
    assert_eq!(table.input(&FlowKey { eth_type: 0x0806, ..key }), Err(Unmatched::NotIp));
    let other = MaskSet { vlan: VlanMask::Id, ..MaskSet::FIVE_TUPLE };
    assert_eq!(table.set_mask(other), Err(Error::MaskInUse(1)));
    table.remove(table.bucket(&table.input(&key).unwrap()), 1).unwrap();
    assert_eq!(table.set_mask(other), Ok(()));
    let portly = MaskSet { l4_type: false, ..other };
    assert_eq!(table.set_mask(portly), Err(Error::PortsWithoutL4));
    let odd = MaskSet { flex: Flex::At(13), ..other };
    assert_eq!(table.set_mask(odd), Err(Error::FlexOffset(13)));
    let mut table =
        Table::new(Mode::Signature, Pballoc::K64, MaskSet::ATR, Limits::default()).unwrap();
    assert_eq!(add(&mut table, Action::DROP), Err(Error::DropInSignature));
    table.add(&key, 1, Action::queue(0), true).unwrap();
    let hit = table.lookup(&key).unwrap();
    assert!(hit.id & 0x8000 != 0 && table.remove(hit.bucket, hit.id).is_ok());
}

#[test]
fn near_full_is_reported_once_and_a_full_table_counts_failures() {
    let mut table = perfect();
    let keys: Vec<_> = (0..2050).map(|p| client([10, 0, 0, 5], p, 7)).collect();
    let mut reported = vec![];
    for (i, key) in keys.iter().enumerate().take(2048) {
        if table.add(key, i as u16, Action::queue(0), true).unwrap().near_full {
            reported.push(i + 1);
        }
    }
    assert_eq!(reported, [2048 - 64]);
    assert_eq!(table.add(&keys[2048], 9, Action::queue(0), true), Err(Error::Full(2048)));
    assert!(
        table.add(&keys[7], 7, Action::queue(1), true).is_ok(),
        "an update needs no free filter"
    );
    let read = table.read_registers();
    assert_eq!((read.free, read.add, read.fadd), (0, 2048, 1));
    table.flush();
    assert_eq!((table.free_filters(), table.lookup(&keys[0])), (2048, None));
    assert_eq!(table.list_lengths().max(), Some(0));
    assert!(table.add(&keys[2048], 9, Action::queue(0), true).is_ok());
}

#[test]
fn the_near_full_interrupt_is_armed_again_when_filters_become_free() {
    let mut table = perfect();
    let near = |table: &mut Table, p| {
        table.add(&client([10, 0, 0, 5], p, 7), p, Action::queue(0), true).unwrap().near_full
    };
    assert_eq!((0..1984).filter(|&p| near(&mut table, p)).count(), 1);
    let gone = table.input(&client([10, 0, 0, 5], 3, 7)).unwrap();
    table.remove(table.bucket(&gone), 3).unwrap();
    assert_eq!(table.free_filters(), 65);
    assert!(near(&mut table, 1984), "64 free again");
    assert!(!near(&mut table, 1985), "63 free: already reported");
    let gone = table.input(&client([10, 0, 0, 5], 4, 7)).unwrap();
    table.remove(table.bucket(&gone), 4).unwrap();
    assert_eq!(table.free_filters(), 64);
    assert!(!near(&mut table, 1986), "it was nearly full all the time");
}

#[test]
fn the_longest_list_saturates_its_six_bits() {
    let mut table = perfect();
    for (i, key) in colliding(70).iter().enumerate() {
        table.add(key, i as u16, Action::queue(0), true).unwrap();
    }
    assert_eq!(table.read_registers().max_len, 63);
    assert_eq!(table.list_lengths().max(), Some(70));
}

#[test]
fn registers_clear_on_read_and_wrap_at_their_width() {
    let (mut table, key) = (perfect(), client([10, 0, 0, 9], 1, 2));
    let (mut late, mut prompt) = (Accumulator::default(), Accumulator::default());
    for i in 0..300 {
        assert!(table.remove(0, 1).is_err());
        if i % 100 == 99 {
            prompt.add(&table.read_registers());
        }
    }
    assert_eq!(prompt.fremove, 300);
    for _ in 0..300 {
        assert!(table.remove(0, 1).is_err());
    }
    late.add(&table.read_registers());
    assert_eq!(late.fremove, 300 - 256, "the 8-bit register wrapped before it was read");
    assert_eq!(table.read_registers(), Registers { free: 2048, ..Registers::default() });
    table.add(&key, 1, Action::queue(0), true).unwrap();
    table.lookup(&key);
    table.lookup(&key.reversed());
    let read = table.read_registers();
    assert_eq!((read.free, read.add, read.matched, read.missed), (2047, 1, 1, 1));
}

#[test]
fn readings_are_summed_and_the_longest_list_is_kept() {
    let mut sum = Accumulator::default();
    for (n, max_len, max_hash) in [(10, 3, 30), (20, 5, 50), (30, 5, 51), (40, 2, 20)] {
        sum.add(&Registers {
            free: n,
            coll: n,
            max_len,
            max_hash,
            add: n + 1,
            remove: n + 2,
            fadd: n as u8 + 3,
            fremove: n as u8 + 4,
            matched: u32::from(n) + 5,
            missed: u32::from(n) + 6,
        });
    }
    let wanted = Accumulator {
        free: 40,
        max_len: 5,
        max_hash: 50,
        coll: 100,
        add: 104,
        remove: 108,
        fadd: 112,
        fremove: 116,
        matched: 120,
        missed: 124,
    };
    assert_eq!(sum, wanted);
}

#[derive(Clone, Debug)]
enum Step {
    Add(usize, u16, u16, bool),
    Remove(usize, u16),
    Lookup(usize),
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..24_usize, 0..6_u16, 0..9_u16, any::<bool>())
            .prop_map(|(k, id, q, u)| Step::Add(k, id, q, u)),
        2 => (0..24_usize, 0..6_u16).prop_map(|(k, id)| Step::Remove(k, id)),
        6 => (0..24_usize).prop_map(Step::Lookup),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 1..120)
}

/// Sixteen keys in one bucket, eight in others.
fn universe() -> Vec<FlowKey> {
    let mut keys = colliding(16);
    keys.extend((0..8).map(|p| client([10, 0, 0, 5], 40000 + p, 80)));
    keys
}

proptest! {
    #[test]
    fn the_table_behaves_as_the_list(steps in steps(), perfect in any::<bool>()) {
        let (mode, limits) = (if perfect { Mode::Perfect } else { Mode::Signature }, Limits::default());
        let mask = MaskSet::FIVE_TUPLE;
        let mut table = Table::new(mode, Pballoc::K64, mask, limits).unwrap();
        let mut list = ListTable::new(mode, Pballoc::K64, limits);
        let keys = universe();
        for step in steps {
            match step {
                Step::Add(k, id, queue, update) => {
                    let (input, action) = (table.input(&keys[k]).unwrap(), Action::queue(queue));
                    let added = table.add(&keys[k], id, action, update);
                    prop_assert_eq!(added.is_ok(), list.add(&input, id, action, update));
                }
                Step::Remove(k, id) => {
                    let input = table.input(&keys[k]).unwrap();
                    let id = if perfect { id } else { input.folded().signature() };
                    let bucket = table.bucket(&input);
                    prop_assert_eq!(table.remove(bucket, id).is_ok(), list.remove(bucket, id));
                }
                Step::Lookup(k) => {
                    let input = table.input(&keys[k]).unwrap();
                    let hit = table.lookup(&keys[k]);
                    prop_assert_eq!(hit.as_ref().map(Seen::from), list.lookup(&input));
                }
                Step::Flush => {
                    table.flush();
                    list.flush();
                }
            }
            prop_assert_eq!(table.stats().occupancy as usize, list.len());
        }
        prop_assert_eq!(table.list_lengths().sum::<usize>(), list.len());
    }
}
