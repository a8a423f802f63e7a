use std::collections::BTreeMap;

use flowyard_frame::{FlowKey, proto};
use proptest::prelude::*;

use super::*;

const SECOND: Nanos = 1_000_000_000;

fn key(client: IpAddr) -> ConnKey {
    let vip: IpAddr = match client {
        IpAddr::V4(_) => [192, 0, 2, 1].into(),
        IpAddr::V6(_) => "2001:db8::80".parse().unwrap(),
    };
    ConnKey::of(&FlowKey::five_tuple(proto::TCP, client, 7, vip, 80))
}

fn settings(mask_v4: u8, mask_v6: u8) -> Persistence {
    Persistence { timeout: 300 * SECOND, mask_v4, mask_v6, networks: 64, keeps_drained: true }
}

fn network(number: u32) -> Network {
    settings(32, 128).network(&key(IpAddr::from(number.to_be_bytes())), 7)
}

proptest! {
    /// Two clients have one network if and only if their addresses begin with the same bits.
    #[test]
    fn a_network_is_the_leading_bits(v6: bool, a: u128, flips in any::<u128>(), shift in 0u32..128, mask in 1u8..=128) {
        let b = a ^ flips.checked_shr(shift).unwrap_or(0);
        let width = if v6 { 128 } else { 32 };
        let mask = (mask - 1) % width + 1;
        let addr = |bits: u128| -> IpAddr {
            if v6 { bits.to_be_bytes().into() } else { ((bits >> 96) as u32).to_be_bytes().into() }
        };
        let persist = settings(mask, mask);
        let (x, y) = (persist.network(&key(addr(a)), 7), persist.network(&key(addr(b)), 7));
        let rest = 128 - u32::from(mask);
        let alike = a.checked_shr(rest) == b.checked_shr(rest);
        prop_assert_eq!(x == y, alike);
        prop_assert_eq!(persist.written(addr(a)) == persist.written(addr(b)), alike);
    }

    /// With room for all networks, the table does what a map does.
    #[test]
    fn a_table_remembers_until_the_time_is_over(steps in prop::collection::vec((0u32..6, 0u64..200, 0u32..4), 0..100)) {
        let (table, timeout) = (Persist::new(4096), 300 * SECOND);
        let mut wanted = BTreeMap::<u32, (u32, Nanos)>::new();
        let mut now = 1000 * SECOND;
        for (number, wait, what) in steps {
            now += wait * SECOND;
            let had = wanted.get(&number).filter(|(_, last)| now - last < timeout).copied();
            let place = table.place(network(number), timeout, now);
            prop_assert_eq!(place.backend(), had.map(|(backend, _)| backend));
            match (had, what) {
                (Some((backend, _)), 0..3) => {
                    place.keep();
                    wanted.insert(number, (backend, now));
                }
                _ => {
                    place.give(what);
                    wanted.insert(number, (what, now));
                }
            }
            let live = wanted.values().filter(|(_, last)| now - last < timeout).count();
            let counts = table.counts(timeout, now);
            prop_assert_eq!((counts.networks, counts.evicted), (live as u64, 0));
        }
    }

    /// However full the table is, a network has one backend: that which it was given last.
    #[test]
    fn a_full_table_never_gives_two_answers(steps in prop::collection::vec((0u32..200, 0u64..3), 1..400)) {
        let (table, timeout) = (Persist::new(16), 20 * SECOND);
        let mut last = BTreeMap::new();
        let mut now = SECOND;
        for (at, (number, wait)) in (0..).zip(steps) {
            now += wait * SECOND;
            let place = table.place(network(number), timeout, now);
            if let Some(backend) = place.backend() {
                prop_assert_eq!(Some(&backend), last.get(&number));
                place.keep();
            } else {
                place.give(at);
                last.insert(number, at);
            }
            let counts = table.counts(timeout, now);
            prop_assert!(counts.networks <= 16);
        }
        let bits: Vec<_> = table.shards.iter().flat_map(|shard| {
            let shard = shard.lock().unwrap();
            shard.sets.iter().flatten().filter(|e| e.uses > 0).map(|e| e.bits).collect::<Vec<_>>()
        }).collect();
        let mut unique = bits.clone();
        unique.sort_unstable();
        unique.dedup();
        prop_assert_eq!(unique.len(), bits.len());
    }
}

/// Addresses that come once replace each other, and not clients that came twice.
#[test]
fn forged_addresses_do_not_evict_clients_that_came_twice() {
    let (table, timeout) = (Persist::new(1024), 300 * SECOND);
    let clients = 0..100u32;
    for number in clients.clone() {
        table.place(network(number), timeout, SECOND).give(number);
        table.place(network(number), timeout, SECOND).keep();
    }
    for forged in 0..100_000u32 {
        table.place(network(1 << 24 | forged), timeout, 2 * SECOND).give(9999);
    }
    let known = |number: &u32| table.get(network(*number), timeout, 3 * SECOND).is_some();
    assert_eq!(clients.filter(known).count(), 100);
    let counts = table.counts(timeout, 3 * SECOND);
    assert!((900..=1024).contains(&counts.networks) && counts.evicted > 98_000, "{counts:?}");
}

#[test]
fn a_table_has_room_for_what_was_asked_and_little_more() {
    for networks in [1, 7, 8, 9, 64, 1000, 1 << 16, 1 << 20] {
        let table = Persist::new(networks);
        let room = table.sets * WAYS;
        assert!(room >= networks && room < networks + networks / 4 + WAYS * SHARDS, "{networks}");
        assert!(Persist::bytes(networks) >= networks * 32);
        // Every set can be reached.
        for hash in [0, 0x7fff_ffff, 0xffff_ffff] {
            drop(table.place(Network { bits: [1, 2], hash }, SECOND, SECOND));
        }
    }
}
