//! The table beside a map, and its limits.

use std::collections::HashMap;

use proptest::prelude::*;

use super::Replica;
use flowyard_frame::Nanos;

const SECOND: Nanos = 1_000_000_000;

proptest! {
    /// With room for all, the table does what a map does.
    #[test]
    fn a_table_with_room_is_a_map(
        start in any::<u32>(),
        steps in prop::collection::vec((0u64..40, 1..=Replica::MOST, 0u32..100, 1u32..200), 1..200),
    ) {
        let (table, mut map) = (Replica::new(4096, 1), HashMap::new());
        let mut now = start;
        for (hash, value, later, lifetime) in steps {
            now = now.wrapping_add(later);
            let hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            table.put(hash, value, Nanos::from(now) * SECOND, lifetime);
            map.insert(hash, (value, now.wrapping_add(lifetime)));
            if value % 4 == 0 {
                table.remove(hash);
                map.remove(&hash);
            }
            for number in 0u64..40 {
                let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let holds = |end: u32| (end.wrapping_sub(now) as i32) > 0;
                let wanted = map.get(&hash).filter(|(_, end)| holds(*end)).map(|(value, _)| *value);
                prop_assert_eq!(table.get(hash, Nanos::from(now) * SECOND), wanted);
            }
            let wanted = map.values().filter(|(_, end)| (end.wrapping_sub(now) as i32) > 0).count();
            prop_assert_eq!(table.len(Nanos::from(now) * SECOND), wanted);
        }
        prop_assert_eq!(table.evicted(), 0);
    }

    /// Whatever was stored, a value that is found was stored for its hash, and the last one.
    #[test]
    fn a_full_table_forgets_and_never_confuses(hashes in prop::collection::vec(any::<u64>(), 1..300)) {
        let (table, mut map) = (Replica::new(8, 2), HashMap::new());
        for (number, hash) in (1u64..).zip(&hashes) {
            table.put(*hash, number, 10 * SECOND, 100);
            map.insert(*hash, number);
        }
        let found = map.keys().filter(|hash| table.get(**hash, 10 * SECOND).is_some()).count();
        for (hash, value) in &map {
            prop_assert!(table.get(*hash, 10 * SECOND).is_none_or(|found| found == *value));
        }
        prop_assert_eq!(table.evicted() as usize + found, map.len());
    }
}

#[test]
fn the_entry_that_ends_first_makes_room() {
    let table = Replica::new(1, 0); // one set
    for hash in 1..=4 {
        table.put(hash, hash, 0, 10 * hash as u32);
    }
    assert_eq!(table.sets.len(), 1);
    table.put(5, 5, 0, 100);
    let left: Vec<_> = (1..=5).filter(|hash| table.get(*hash, 0).is_some()).collect();
    assert_eq!((left, table.evicted()), (vec![2, 3, 4, 5], 1));
    table.put(6, 6, 20 * SECOND, 100); // the end of 2 has been reached
    let left: Vec<_> = (1..=6).filter(|hash| table.get(*hash, 20 * SECOND).is_some()).collect();
    assert_eq!((left, table.evicted()), (vec![3, 4, 5, 6], 1));
}

#[test]
fn an_entry_stays_no_longer_than_97_days() {
    let table = Replica::new(1, 0);
    table.put(1, 1, 0, u32::MAX);
    assert_eq!(table.get(1, Nanos::from(Replica::LONGEST - 2) * SECOND), Some(1));
    assert_eq!(table.get(1, Nanos::from(Replica::LONGEST - 1) * SECOND), None);
}

/// Ends are times modulo 194 days, so an end that was reached must not become one in the future.
#[test]
fn an_entry_that_ended_does_not_come_back() {
    let day = 86_400 * SECOND;
    for others_every in [1, 11, 60, 1000] {
        let table = Replica::new(64, 0);
        table.put(1, 1, 0, 10);
        for now in 1..=1000 {
            if now % others_every == 0 {
                table.put(2, 2, now * day, 90_000);
            }
            assert_eq!(
                table.get(1, now * day),
                None,
                "after {now} days, others every {others_every}"
            );
            let lives = usize::from(now % others_every <= 1 && now >= others_every);
            assert_eq!(
                table.len(now * day),
                lives,
                "after {now} days, others every {others_every}"
            );
        }
    }
}

/// With as many entries as the table is for, nearly all are found.
#[test]
fn a_table_holds_the_entries_that_it_is_for() {
    let (entries, mut random) = (1 << 16, flowyard_frame::Rng::new(3));
    let table = Replica::new(entries, 4);
    (0..entries).for_each(|_| table.put(random.bits(), 1, 0, 10));
    let found = table.len(0);
    assert!(found as f64 > entries as f64 * 0.9999, "{found} of {entries}");
    assert_eq!(Replica::bytes(entries), entries * 32);
}
