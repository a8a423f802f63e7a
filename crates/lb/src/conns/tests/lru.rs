//! Unestablished connections: what establishes one, the order of the lists, and evictions.

use std::collections::VecDeque;

use super::*;

const TICK: Nanos = 1 << 27;
const SYN_ACK: u8 = FlowKey::SYN | FlowKey::ACK;
/// Services of the model. Answers to the first one do not pass through the balancer.
const SERVICES: u32 = 3;

#[derive(Clone, Debug)]
enum Doing {
    /// A packet of the client.
    Client(u32, u8),
    /// A packet of the backend.
    Backend(u32, u8),
    /// The least recently used one of a service makes room.
    Evict(u16),
    /// A service with this part looks for the one with the most.
    Crowding(u16, usize),
    Remove(u32),
    Batch,
    Wait(Nanos),
}

fn doing() -> impl Strategy<Value = Doing> {
    let flags = || prop::sample::select(vec![0, FlowKey::SYN, FlowKey::ACK, FlowKey::RST, SYN_ACK]);
    prop_oneof![
        8 => (0u32..50, flags()).prop_map(|(key, flags)| Doing::Client(key, flags)),
        4 => (0u32..50, flags()).prop_map(|(key, flags)| Doing::Backend(key, flags)),
        2 => (0u16..3).prop_map(Doing::Evict),
        1 => (0u16..3, 0usize..8).prop_map(|(service, part)| Doing::Crowding(service, part)),
        1 => (0u32..50).prop_map(Doing::Remove),
        4 => Just(Doing::Batch),
        2 => (0..8 * SECOND).prop_map(Doing::Wait),
    ]
}

#[derive(Clone, Copy)]
struct Entry {
    state: State,
    deadline: u64,
    is_answered: bool,
    is_established: bool,
    batch: u64,
}

/// Entries in a map, and one queue for each service.
struct Model {
    entries: HashMap<u32, Entry>,
    queues: [VecDeque<u32>; SERVICES as usize],
    batch: u64,
}

const fn service(number: u32) -> u16 {
    (number % SERVICES) as u16
}

impl Model {
    fn gone(&mut self, number: u32) {
        self.entries.remove(&number);
        self.queues[usize::from(service(number))].retain(|other| *other != number);
    }

    /// Stores an entry that was used now.
    fn put(&mut self, number: u32, mut entry: Entry, now: Nanos) {
        self.gone(number);
        let timeout = match (entry.is_established, entry.state) {
            (true, State::Open) => 900,
            _ => 30,
        };
        entry.deadline = (now + timeout * SECOND).div_ceil(TICK);
        entry.batch = self.batch;
        self.entries.insert(number, entry);
        if !entry.is_established {
            self.queues[usize::from(service(number))].push_back(number);
        }
    }

    fn live(&self, number: u32, now: Nanos) -> Option<Entry> {
        self.entries.get(&number).copied().filter(|entry| now / TICK < entry.deadline)
    }

    fn advance(&mut self, now: Nanos) -> usize {
        let old: Vec<u32> = self.entries.keys().copied().collect();
        let old: Vec<u32> = old.into_iter().filter(|&n| self.live(n, now).is_none()).collect();
        old.iter().for_each(|&number| self.gone(number));
        old.len()
    }

    fn evict(&mut self, service: u16) -> Option<u32> {
        let number = *self.queues[usize::from(service)].front()?;
        let is_busy = self.batch - self.entries[&number].batch < 2;
        (!is_busy).then(|| {
            self.gone(number);
            number
        })
    }
}

const fn after(state: State, flags: u8) -> State {
    match state {
        State::Closing => State::Closing,
        _ if flags & FlowKey::RST != 0 => State::Closing,
        State::Opening if flags & FlowKey::SYN == 0 => State::Open,
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The lists have the entries, the order and the evictions of the model.
    #[test]
    fn the_lists_equal_the_reference_model(steps in prop::collection::vec(doing(), 1..300), capacity in 8usize..60) {
        let mut conns = Conns::new(capacity, Timeouts::default(), false);
        let mut model = Model { entries: HashMap::new(), queues: Default::default(), batch: 0 };
        let mut now = 0;
        for step in steps {
            match step {
                Doing::Client(number, flags) => {
                    let found = conns.find(&key(number), key(number).hash(SEED), now);
                    prop_assert_eq!(found.is_some(), model.live(number, now).is_some());
                    if let (Some(slot), Some(mut entry)) = (found, model.live(number, now)) {
                        conns.seen(slot, flags, now);
                        entry.state = after(entry.state, flags);
                        let is_ready = entry.is_answered || service(number) == 0;
                        entry.is_established |= is_ready && entry.state == State::Open;
                        model.put(number, entry, now);
                    } else {
                        let state = State::first(proto::TCP, flags);
                        let owner = Owner { backend: number, service: service(number), sees_answers: service(number) != 0 };
                        if conns.insert(&key(number), key(number).hash(SEED), owner, state, now).is_ok() {
                            let entry = Entry { state, deadline: 0, is_answered: false, is_established: false, batch: 0 };
                            model.put(number, entry, now);
                        } else {
                            prop_assert_eq!(model.entries.len(), capacity);
                        }
                    }
                }
                Doing::Backend(number, flags) => {
                    let Some(slot) = conns.find(&key(number), key(number).hash(SEED), now) else { continue };
                    conns.answered(slot, flags, now);
                    let mut entry = model.live(number, now).unwrap();
                    entry.is_answered = true;
                    entry.state = after(entry.state, flags);
                    entry.is_established |= entry.state == State::Open && flags == FlowKey::ACK;
                    model.put(number, entry, now);
                }
                Doing::Evict(service) => {
                    let gone = conns.evict_unestablished(service, SEED).map(|conn| conn.backend);
                    prop_assert_eq!(gone, model.evict(service));
                }
                Doing::Crowding(service, part) => {
                    let len = |of: u16| model.queues[usize::from(of)].len();
                    let most = (0..3).map(len).max().unwrap();
                    match conns.crowding(service, part) {
                        Some(other) if most > len(service).max(part) => prop_assert_eq!(len(other), most),
                        found => prop_assert_eq!(found, (len(service) >= part).then_some(service)),
                    }
                }
                Doing::Remove(number) => {
                    if let Some(slot) = conns.find(&key(number), key(number).hash(SEED), now) {
                        conns.remove(slot, SEED);
                        model.gone(number);
                    }
                }
                Doing::Batch => {
                    conns.begin();
                    model.batch += 1;
                }
                Doing::Wait(time) => {
                    now += time;
                    prop_assert_eq!(conns.advance(now, usize::MAX, SEED, &mut |_| ()), model.advance(now));
                }
            }
            for of in 0..3 {
                let list: Vec<u32> = conns.list(of).into_iter().map(|slot| conns.slots[slot as usize].backend).collect();
                prop_assert_eq!(list, Vec::from(model.queues[usize::from(of)].clone()));
                let all = model.entries.keys().filter(|&&number| service(number) == of).count();
                prop_assert_eq!(conns.held(of), Held { all, unestablished: model.queues[usize::from(of)].len() });
            }
            prop_assert_eq!(conns.unestablished(), model.queues.iter().map(VecDeque::len).sum::<usize>());
            prop_assert_eq!(conns.len(), model.entries.len());
        }
    }
}

#[test]
fn expiry_of_many_services_is_spread_over_batches() {
    let mut conns = Conns::new(3000, Timeouts::default(), false);
    for number in 0..3000 {
        let owner = Owner { backend: 0, service: number as u16, sees_answers: false };
        conns.insert(&key(number), key(number).hash(SEED), owner, State::Opening, 0).unwrap();
    }
    let mut batches = 0;
    while !conns.is_empty() {
        assert!(conns.advance(31 * SECOND, 64, SEED, &mut |_| ()) <= 64);
        batches += 1;
        assert!(batches < 60, "{} are left", conns.len());
    }
    // Nothing is due, and a new entry is.
    let owner = Owner { backend: 0, service: 9, sees_answers: false };
    conns.insert(&key(1), key(1).hash(SEED), owner, State::Opening, 31 * SECOND).unwrap();
    assert_eq!(conns.advance(60 * SECOND, 64, SEED, &mut |_| ()), 0);
    assert_eq!(conns.advance(62 * SECOND, 64, SEED, &mut |_| ()), 1);
}

#[test]
fn what_establishes_a_connection() {
    const CLIENT: bool = true;
    const BACKEND: bool = false;
    const ACK: u8 = FlowKey::ACK;
    // The first packet, whether answers are seen, the further packets, and whether they establish it.
    type Case = (u8, u8, bool, &'static [(bool, u8)], bool);
    let cases: [Case; 16] = [
        (proto::TCP, FlowKey::SYN, false, &[], false),
        (proto::TCP, FlowKey::SYN, false, &[(CLIENT, FlowKey::SYN)], false),
        (proto::TCP, FlowKey::SYN, false, &[(CLIENT, ACK)], true),
        (proto::TCP, ACK, false, &[], false),
        (proto::TCP, ACK, false, &[(CLIENT, ACK)], true),
        (proto::TCP, ACK, false, &[(CLIENT, FlowKey::RST)], false),
        (proto::UDP, 0, false, &[(CLIENT, 0)], true),
        (proto::TCP, FlowKey::SYN, true, &[(CLIENT, ACK)], false),
        (proto::TCP, FlowKey::SYN, true, &[(BACKEND, SYN_ACK)], false),
        (proto::TCP, FlowKey::SYN, true, &[(BACKEND, SYN_ACK), (BACKEND, SYN_ACK)], false),
        (proto::TCP, FlowKey::SYN, true, &[(BACKEND, SYN_ACK), (CLIENT, ACK)], true),
        (proto::TCP, ACK, true, &[(BACKEND, FlowKey::RST), (CLIENT, ACK)], false),
        (proto::TCP, ACK, true, &[(BACKEND, ACK)], true),
        (proto::UDP, 0, true, &[(CLIENT, 0), (CLIENT, 0)], false),
        (proto::UDP, 0, true, &[(BACKEND, 0), (BACKEND, 0)], false),
        (proto::UDP, 0, true, &[(BACKEND, 0), (CLIENT, 0)], true),
    ];
    for (number, (proto, flags, sees_answers, more, established)) in (0..).zip(cases) {
        let mut conns = Conns::new(4, Timeouts::default(), false);
        let owner = Owner { backend: 0, service: 0, sees_answers };
        let state = State::first(proto, flags);
        let slot = conns.insert(&key(1), key(1).hash(SEED), owner, state, 0).unwrap();
        for &(side, flags) in more {
            match side {
                CLIENT => drop(conns.seen(slot, flags, 0)),
                BACKEND => conns.answered(slot, flags, 0),
            }
        }
        assert_eq!(conns.get(slot, 0).unwrap().is_established(), established, "case {number}");
        assert_eq!(conns.unestablished(), usize::from(!established), "case {number}");
    }
}
