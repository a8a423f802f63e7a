use std::collections::HashMap;
use std::net::Ipv4Addr;

use flowyard_testkit::batch;
use proptest::prelude::*;

use super::*;

const SECOND: Nanos = 1_000_000_000;

/// The key of a frame of flow `n` that the server transmits.
fn frame(n: u32, flags: u8) -> FlowKey {
    let [server, client] = [0x0a00_0001, 0x0a01_0000 + n].map(Ipv4Addr::from_bits);
    let key = FlowKey::five_tuple(proto::TCP, server.into(), 80, client.into(), 40000);
    FlowKey { tcp_flags: flags, tos: 8, vlan_tci: 5, ..key }
}

fn received(n: u32) -> FlowKey {
    frame(n, 0).reversed().flow()
}

fn atr(entries: usize, sample_every: u32) -> Atr {
    Atr::new(4, Settings { entries, sample_every, ..Settings::default() }, 1)
}

/// The edits of one frame.
fn edits(atr: &mut Atr, core: u16, key: &FlowKey, now: Nanos) -> Vec<Edit> {
    let mut edits = Vec::new();
    atr.transmitted(core, key, now, &mut edits);
    edits
}

#[test]
fn a_syn_and_one_of_every_n_frames_of_a_core_teach() {
    let mut atr = atr(8, 20);
    let syn = frame(1, FlowKey::SYN | FlowKey::ACK);
    assert_eq!(edits(&mut atr, 2, &syn, 0), [Edit::Put(received(1), Action::queue(2))]);
    assert_eq!(edits(&mut atr, 2, &syn, 0), [], "an entry that the table has is not put again");
    let ack = frame(1, FlowKey::ACK);
    for core in [3, 1] {
        // The flow has moved to another core. The 20th frame of that core finds it.
        for _ in 0..19 {
            assert_eq!(edits(&mut atr, core, &ack, 0), []);
        }
        assert_eq!(edits(&mut atr, core, &ack, 0), [Edit::Put(received(1), Action::queue(core))]);
    }
    assert_eq!(atr.len(), 1);
}

#[test]
fn udp_fragments_and_unknown_cores_teach_nothing_by_default() {
    let mut atr = atr(8, 1);
    let tcp = frame(1, FlowKey::SYN);
    let udp = FlowKey { proto: proto::UDP, tcp_flags: 0, ..tcp };
    for key in [udp, FlowKey { frag: 1, ..tcp }, FlowKey { eth_type: 0x0806, ..tcp }] {
        assert_eq!(edits(&mut atr, 0, &key, 0), []);
    }
    assert_eq!(edits(&mut atr, 4, &tcp, 0), [], "there are cores 0 to 3");
    let mut both = Atr::new(1, Settings { udp: true, sample_every: 1, ..Settings::default() }, 1);
    assert_eq!(edits(&mut both, 0, &udp, 0).len(), 1);
}

#[test]
fn rst_ends_a_flow_and_fin_lets_it_linger() {
    let mut atr = atr(8, 1);
    for n in [1, 2] {
        edits(&mut atr, 0, &frame(n, FlowKey::SYN), 0);
    }
    let rst = frame(1, FlowKey::RST | FlowKey::ACK);
    assert_eq!(edits(&mut atr, 0, &rst, 0), [Edit::Del(received(1))]);
    assert_eq!(edits(&mut atr, 0, &rst, 0), []);
    assert_eq!(edits(&mut atr, 0, &frame(2, FlowKey::FIN | FlowKey::ACK), SECOND), []);
    assert_eq!(edits(&mut atr, 0, &frame(2, FlowKey::ACK), 2 * SECOND), [], "no renewal");
    let mut gone = Vec::new();
    atr.expire(8, 2 * SECOND, &mut gone);
    assert_eq!(gone, []);
    atr.expire(8, 2 * SECOND + 1, &mut gone);
    assert_eq!(gone, [Edit::Del(received(2))]);
    assert!(atr.is_empty());
}

#[test]
fn idle_flows_are_forgotten_between_batches() {
    let mut atr = atr(8, 1);
    edits(&mut atr, 0, &frame(1, FlowKey::SYN), 0);
    edits(&mut atr, 0, &frame(2, FlowKey::SYN), 20 * SECOND);
    let batch = batch([FlowKey::ZERO]);
    let mut list = Vec::new();
    for now in [30 * SECOND, 30 * SECOND, 31 * SECOND, 31 * SECOND] {
        atr.observe(0, &batch, Lanes(1), now, &mut list);
    }
    assert_eq!(list, [Edit::Del(received(1))]);
}

#[test]
fn a_full_table_gives_up_what_was_not_sampled_again() {
    let mut atr = atr(4, 1);
    for n in 0..4 {
        edits(&mut atr, 0, &frame(n, FlowKey::SYN), 0);
    }
    // One round clears all marks and evicts flow 0; then flow 1 is sampled again.
    assert_eq!(edits(&mut atr, 0, &frame(4, FlowKey::SYN), 0)[0], Edit::Del(received(0)));
    edits(&mut atr, 0, &frame(1, FlowKey::ACK), 0);
    let next = edits(&mut atr, 0, &frame(5, FlowKey::SYN), 0);
    assert_eq!(next, [Edit::Del(received(2)), Edit::Put(received(5), Action::queue(0))]);
}

proptest! {
    /// For any frames transmitted, a table with room for `entries` keys that applies the edits has
    /// exactly the keys that the learner counts.
    #[test]
    fn edits_keep_within_the_table(
        steps in prop::collection::vec((0..40_u32, 0..4_u16, 0..8_u8, 0..SECOND), 1..400),
        entries in 1..24_usize,
        sample_every in 0..4_u32,
    ) {
        let settings = Settings { entries, sample_every, idle: 20 * SECOND, udp: false };
        let mut atr = Atr::new(4, settings, 9);
        let mut table = HashMap::new();
        let mut now = 0;
        for (n, core, kind, step) in steps {
            now += step;
            let flags = [0x10, 0x10, 0x10, 0x10, 0x02, 0x12, 0x11, 0x14][usize::from(kind)];
            let batch = batch([frame(n, flags)]);
            let mut edits = Vec::new();
            atr.observe(core, &batch, Lanes(1), now, &mut edits);
            for edit in edits {
                match edit {
                    Edit::Put(key, action) => { table.insert(key, action); }
                    Edit::Del(key) => prop_assert!(table.remove(&key).is_some()),
                }
                prop_assert!(table.len() <= entries);
            }
            prop_assert_eq!(table.len(), atr.len());
            if flags & FlowKey::SYN != 0 {
                prop_assert_eq!(table.get(&received(n)), Some(&Action::queue(core)));
            }
            if flags & FlowKey::RST != 0 {
                prop_assert!(!table.contains_key(&received(n)));
            }
        }
    }
}

/// Two cores teach one table. The flow has moved from core 0 to core 1, and core 0 forgets it.
#[test]
fn a_flow_that_another_core_deletes_is_put_again() {
    let (mut old, mut new) = (atr(8, 1), atr(8, 1));
    let mut table = HashMap::new();
    let mut apply = |edits: Vec<Edit>| {
        for edit in edits {
            match edit {
                Edit::Put(key, action) => drop(table.insert(key, action)),
                Edit::Del(key) => drop(table.remove(&key)),
            }
        }
        table.get(&received(1)).copied()
    };
    let ack = frame(1, FlowKey::ACK);
    apply(edits(&mut old, 0, &ack, 0));
    for second in 1..=30 {
        apply(edits(&mut new, 1, &ack, second * SECOND));
    }
    let mut idle = Vec::new();
    old.expire(8, 31 * SECOND, &mut idle);
    assert_eq!(apply(idle), None, "a deletion names a key, and not the learner that put it");
    let back = (31..=60)
        .find(|second| apply(edits(&mut new, 1, &ack, second * SECOND)) == Some(Action::queue(1)));
    assert!(back.is_some_and(|second| second <= 38), "after a quarter of the idle time: {back:?}");
}

/// A sweep over all entries for one frame would stop a core with a large table.
#[test]
fn an_eviction_inspects_a_fixed_number_of_entries() {
    let mut atr = atr(5000, 1);
    for n in 0..5000 {
        edits(&mut atr, 0, &frame(n, FlowKey::SYN), 0);
    }
    // All were sampled since the hand last passed.
    let all = edits(&mut atr, 0, &frame(5000, FlowKey::SYN), 0);
    let inspected = 64;
    let evicted = Edit::Del(received(inspected - 1));
    assert_eq!(all, [evicted, Edit::Put(received(5000), Action::queue(0))]);
    assert_eq!(atr.len(), 5000);
}
