//! Local ports, limits of services, and evictions.

use super::*;

const TICK: Nanos = 1 << 27;

#[derive(Clone, Debug)]
enum Doing {
    /// Enters a connection, or replaces it.
    Insert(u32),
    /// Binds the connection to a port with this hash.
    Bind(u32, u16, u8, u64),
    Remove(u32),
    Wait(Nanos),
}

fn doing() -> impl Strategy<Value = Doing> {
    prop_oneof![
        4 => (0u32..40).prop_map(Doing::Insert),
        6 => (0u32..40, 1u16..6, 0u8..2, 0u64..3).prop_map(|(key, port, address, hash)| {
            Doing::Bind(key, port, address, hash << 40)
        }),
        1 => (0u32..40).prop_map(Doing::Remove),
        1 => (0..20 * SECOND).prop_map(Doing::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// No two connections have the same local port and hash, and each is found by its own.
    #[test]
    fn ports_equal_the_reference_model(steps in prop::collection::vec(doing(), 1..200)) {
        let mut conns = Conns::new(32, Timeouts::default(), true);
        let mut model: HashMap<(LocalPort, u64), u32> = HashMap::new();
        let mut now = 0;
        for step in steps {
            match step {
                Doing::Insert(number) => {
                    let inserted = conns.insert(&key(number), key(number).hash(SEED), of(number), State::Opening, now);
                    if inserted.is_ok() {
                        model.retain(|_, whose| *whose != number);
                    }
                }
                Doing::Bind(number, port, address, hash) => {
                    let Some(slot) = conns.find(&key(number), key(number).hash(SEED), now) else { continue };
                    let local = LocalPort { port, address };
                    let is_free = !model.contains_key(&(local, hash));
                    prop_assert_eq!(conns.bind(slot, hash, local), is_free);
                    if is_free {
                        model.retain(|_, whose| *whose != number);
                        model.insert((local, hash), number);
                        prop_assert_eq!(conns.local(slot), local);
                    }
                }
                Doing::Remove(number) => {
                    if let Some(slot) = conns.find(&key(number), key(number).hash(SEED), now) {
                        let gone = conns.remove(slot, SEED).unwrap();
                        prop_assert_eq!(gone.backend, number);
                        model.retain(|_, whose| *whose != number);
                    }
                }
                Doing::Wait(time) => {
                    now += time;
                    conns.advance(now, usize::MAX, SEED, &mut |conn| model.retain(|_, whose| *whose != conn.backend));
                }
            }
            for (port, address, hash) in (1..6).flat_map(|p| (0..2).flat_map(move |a| (0..3).map(move |h| (p, a, h << 40)))) {
                let local = LocalPort { port, address };
                let found = conns.bound(hash, local).map(|slot| conns.get(slot, now).unwrap().backend);
                prop_assert_eq!(found, model.get(&(local, hash)).copied());
            }
        }
    }
}

fn owned(service: u16) -> Owner {
    Owner { backend: 0, service, sees_answers: false }
}

/// Enters an established connection of a service.
fn establish(conns: &mut Conns, number: u32, service: u16, now: Nanos) -> u32 {
    let (key, hash) = (key(number), key(number).hash(SEED));
    let slot = conns.insert(&key, hash, owned(service), State::Open, now).unwrap();
    conns.seen(slot, FlowKey::ACK, now);
    assert!(conns.get(slot, now).unwrap().is_established());
    slot
}

#[test]
fn the_oldest_unestablished_connection_is_evicted_first() {
    let mut conns = Conns::new(8, Timeouts::default(), false);
    establish(&mut conns, 0, 1, 0);
    for (number, state) in [(1, State::Opening), (2, State::Open)] {
        let now = u64::from(number) * TICK;
        conns.insert(&key(number), key(number).hash(SEED), owned(1), state, now).unwrap();
    }
    let slot = establish(&mut conns, 3, 1, 3 * TICK);
    conns.seen(slot, FlowKey::FIN | FlowKey::ACK, 3 * TICK);
    let mut evict = |now, batches| {
        (0..batches).for_each(|_| conns.begin());
        let gone = conns.evict(now, SEED, true, 1, |_, service| service == 1)?;
        Some(gone.key().flow())
    };
    assert_eq!(evict(3 * TICK, 0), None, "used in this batch and this tick");
    assert_eq!(evict(3 * TICK, 1), None, "used in the batch before");
    assert_eq!(evict(3 * TICK, 1), Some(key(1).flow()));
    assert_eq!(evict(3 * TICK, 0), Some(key(2).flow()), "an ACK without a SYN");
    assert_eq!(evict(3 * TICK, 0), None, "closing, and used in this tick");
    assert_eq!(evict(10 * TICK, 0), Some(key(3).flow()), "closing");
    assert_eq!(evict(10 * TICK, 0), None, "an established connection is not idle yet");
    assert_eq!(evict(450 * SECOND, 0), None);
    assert_eq!(evict(452 * SECOND, 0), Some(key(0).flow()), "idle for half of the time");
    assert_eq!((conns.len(), conns.opening(), conns.unestablished()), (0, 0, 0));
    assert_eq!(conns.held(1), Held::default());
}

#[test]
fn only_entries_of_services_that_may_be_evicted_are() {
    let mut conns = Conns::new(64, Timeouts::default(), false);
    for number in 0..64 {
        let service = u16::from(number == 40);
        let slot = establish(&mut conns, number, service, 0);
        assert_eq!(slot, number);
    }
    let now = 500 * SECOND; // idle for more than half of the time
    let gone: Vec<_> = (0..2)
        .filter_map(|_| conns.evict(now, SEED, true, 1, |conns, of| of == 1 && conns.is_full()))
        .collect();
    assert_eq!(gone.len(), 1, "a turn over all slots takes two evictions");
    assert_eq!(gone[0].key().flow(), key(40).flow());
    assert_eq!((conns.held(0).all, conns.held(1).all), (63, 0));
}

#[test]
fn failed_evictions_are_bounded_except_where_an_entry_is_needed() {
    let mut conns = Conns::new(4, Timeouts::default(), false);
    let closing = |conns: &mut Conns| {
        let slot = establish(conns, 0, 0, 0);
        conns.seen(slot, FlowKey::FIN, 0);
    };
    closing(&mut conns);
    for _ in 0..100 {
        assert!(conns.evict(TICK, SEED, false, 0, |_, _| false).is_none());
    }
    assert!(conns.evict(TICK, SEED, false, 0, |_, _| true).is_none(), "none is looked for");
    assert!(conns.evict(2 * TICK, SEED, false, 0, |_, _| true).is_some(), "in the next tick");
    closing(&mut conns);
    for _ in 0..100 {
        assert!(conns.evict(3 * TICK, SEED, true, 0, |_, _| false).is_none());
    }
    assert!(conns.evict(3 * TICK, SEED, true, 0, |_, _| true).is_some());
}
