use std::collections::HashMap;

use flowyard_frame::{FlowKey, proto};
use proptest::prelude::*;

use super::*;

const SEED: u64 = 7;
const SECOND: Nanos = 1_000_000_000;

fn key(number: u32) -> ConnKey {
    let [a, b, c, d] = number.to_be_bytes();
    let src = std::net::Ipv4Addr::new(10, a, b, c).into();
    let dst = std::net::Ipv4Addr::new(192, 0, 2, 1).into();
    ConnKey::of(&FlowKey::five_tuple(proto::TCP, src, 1024 + u16::from(d), dst, 80))
}

/// A backend of service 3.
fn of(backend: u32) -> Owner {
    Owner { backend, service: 3, sees_answers: false }
}

/// An entry of the reference model.
#[derive(Clone, Copy)]
struct Known {
    backend: u32,
    state: State,
    deadline: u64,
    is_established: bool,
    /// The sequence number behind the client's FIN or RST.
    end: Option<u32>,
}

/// Reference model: a map with the same rules.
struct Slow {
    map: HashMap<u32, Known>,
    timeouts: Timeouts,
    capacity: usize,
}

impl Slow {
    const TICK: u64 = 1 << 27;

    fn find(&self, key: u32, now: Nanos) -> Option<(u32, State, bool)> {
        let known = self.map.get(&key)?;
        let is_live = now / Self::TICK < known.deadline;
        is_live.then_some((known.backend, known.state, known.is_established))
    }

    fn seen(&mut self, key: u32, flags: u8, now: Nanos) {
        let known = self.map.get_mut(&key).unwrap();
        let fin = flags & (FlowKey::FIN | FlowKey::RST) != 0;
        known.state = match known.state {
            State::Opening | State::Open if fin => State::Closing,
            State::Opening if flags & FlowKey::SYN == 0 => State::Open,
            other => other,
        };
        known.is_established |= known.state == State::Open;
        let timeout = match (known.is_established, known.state) {
            (true, State::Open) => self.timeouts.open,
            (true, _) => self.timeouts.closing,
            (false, _) => self.timeouts.opening,
        };
        known.deadline = (now + timeout).div_ceil(Self::TICK);
    }

    /// Whether a segment belongs to the connection, which was in state `before`.
    fn continues(&mut self, key: u32, before: State, flags: u8, numbers: Numbers) -> bool {
        let known = self.map.get_mut(&key).unwrap();
        if before == State::Closing && flags & (FlowKey::SYN | FlowKey::ACK) == FlowKey::SYN {
            return false;
        }
        match known.end {
            Some(end) => (0..1 << 30).contains(&end.wrapping_sub(numbers.first)),
            None => {
                let ends = flags & (FlowKey::FIN | FlowKey::RST) != 0 && flags & FlowKey::SYN == 0;
                known.end = ends.then_some(numbers.end);
                true
            }
        }
    }

    fn insert(&mut self, key: u32, backend: u32, state: State, now: Nanos) -> bool {
        if self.map.len() == self.capacity && !self.map.contains_key(&key) {
            return false;
        }
        let deadline = (now + self.timeouts.opening).div_ceil(Self::TICK);
        self.map.insert(key, Known { backend, state, deadline, is_established: false, end: None });
        true
    }

    fn advance(&mut self, now: Nanos) -> usize {
        let before = self.map.len();
        self.map.retain(|_, known| now / Self::TICK < known.deadline);
        before - self.map.len()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Packet { key: u32, flags: u8, seq: u32 },
    Wait(Nanos),
    Advance,
}

fn step() -> impl Strategy<Value = Step> {
    let flags = prop::sample::select(vec![
        0,
        FlowKey::SYN,
        FlowKey::ACK,
        FlowKey::FIN | FlowKey::ACK,
        FlowKey::RST,
        FlowKey::SYN | FlowKey::ACK,
    ]);
    prop_oneof![
        8 => (0u32..60, flags, 0u32..8).prop_map(|(key, flags, seq)| Step::Packet { key, flags, seq: seq << 29 }),
        2 => (0..40 * SECOND).prop_map(Step::Wait),
        1 => (0..2000 * SECOND).prop_map(Step::Wait),
        3 => Just(Step::Advance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_table_equals_the_reference_model(steps in prop::collection::vec(step(), 1..300), capacity in 1usize..50) {
        let timeouts = Timeouts::default();
        let mut fast = Conns::new(capacity, timeouts, true);
        let mut slow = Slow { map: HashMap::new(), timeouts, capacity };
        let (mut now, mut backend) = (5 * SECOND, 0);
        for step in steps {
            match step {
                Step::Wait(time) => now += time,
                Step::Advance => {
                    let gone = fast.advance(now, usize::MAX, SEED, &mut |_| ());
                    prop_assert_eq!(gone, slow.advance(now));
                    prop_assert_eq!(fast.len(), slow.map.len());
                }
                Step::Packet { key: number, flags, seq } => {
                    let key = key(number);
                    let hash = key.hash(SEED);
                    let found = fast.find(&key, hash, now);
                    let known = found.and_then(|slot| fast.get(slot, now));
                    let known = known.map(|c| (c.backend, c.state(), c.is_established()));
                    prop_assert_eq!(known, slow.find(number, now));
                    let (before, goes_on) = match (found, known) {
                        (Some(slot), Some((_, before, _))) => {
                            fast.seen(slot, flags, now);
                            slow.seen(number, flags, now);
                            let fin = u32::from(flags & FlowKey::FIN != 0);
                            let numbers = Numbers { first: seq, end: seq.wrapping_add(fin) };
                            let goes_on = fast.continues(slot, (before, flags), Some(numbers));
                            prop_assert_eq!(goes_on, slow.continues(number, before, flags, numbers));
                            prop_assert_eq!(fast.slots[slot as usize].end(), slow.map[&number].end);
                            (Some(before), goes_on)
                        }
                        _ => (None, false),
                    };
                    if !goes_on {
                        prop_assert!(before.is_none_or(|before| before == State::Closing));
                        backend += 1;
                        let state = State::first(proto::TCP, flags);
                        let kept = fast.insert(&key, hash, of(backend), state, now).is_ok();
                        prop_assert_eq!(kept, slow.insert(number, backend, state, now));
                    }
                    let unestablished = slow.map.values().filter(|c| !c.is_established).count();
                    prop_assert_eq!(fast.held(3), Held { all: slow.map.len(), unestablished });
                    let opening = slow.map.values().filter(|c| c.state == State::Opening).count();
                    prop_assert_eq!((fast.len(), fast.opening()), (slow.map.len(), opening));
                }
            }
        }
    }

    #[test]
    fn a_batch_lookup_equals_single_lookups(known in prop::collection::hash_set(0u32..200, 0..120), seed: u64) {
        let mut conns = Conns::new(120, Timeouts::default(), true);
        for &number in &known {
            conns.insert(&key(number), key(number).hash(seed), of(number), State::Open, 0).unwrap();
        }
        for from in (0..200).step_by(32) {
            let keys: [ConnKey; LANES] = std::array::from_fn(|i| key(from + i as u32));
            let hashes = keys.map(|key| key.hash(seed));
            let (mut found, want) = ([0; LANES], Lanes(0xffff_fffb));
            let missed = conns.find_batch(&keys, &hashes, want, 0, &mut found);
            for lane in want {
                let number = from + lane as u32;
                prop_assert_eq!(missed.has(lane), !known.contains(&number));
                if !missed.has(lane) {
                    prop_assert_eq!(conns.get(found[lane], 0).unwrap().backend, number);
                }
            }
            prop_assert!(!missed.has(2));
        }
    }

    #[test]
    fn keys_have_the_fields_of_the_5_tuple(src: [u8; 16], dst: [u8; 16], sport: u16, dport: u16, udp: bool, v6: bool, other: u8) {
        let ip = |octets: [u8; 16]| match v6 {
            true => std::net::IpAddr::from(octets),
            false => std::net::IpAddr::from([octets[0], octets[1], octets[2], octets[3]]),
        };
        let proto = if udp { proto::UDP } else { proto::TCP };
        let flow = FlowKey::five_tuple(proto, ip(src), sport, ip(dst), dport);
        let seen = FlowKey { tos: other, tcp_flags: other, in_port: 3, vlan_tci: other.into(), ..flow };
        prop_assert_eq!(ConnKey::of(&seen), ConnKey::of(&flow));
        prop_assert_eq!(ConnKey::of(&seen).flow(), flow);
    }
}

#[test]
fn a_large_table_reaches_its_capacity() {
    // With 8 ways in a bucket and a load factor of 80 %, every key is accepted.
    for seed in 0..4 {
        let mut conns = Conns::new(100_000, Timeouts::default(), true);
        for number in 0..100_000 {
            conns.insert(&key(number), key(number).hash(seed), of(number), State::Open, 0).unwrap();
        }
        assert_eq!(
            conns.insert(&key(100_000), key(100_000).hash(seed), of(0), State::Open, 0),
            Err(Full)
        );
        for number in 0..100_000 {
            let slot = conns.find(&key(number), key(number).hash(seed), 0).unwrap();
            assert_eq!(conns.get(slot, 0).unwrap().backend, number);
        }
        let mut gone = 0;
        conns.advance(2000 * SECOND, usize::MAX, seed, &mut |_| gone += 1);
        assert_eq!((gone, conns.len(), conns.opening()), (100_000, 0, 0));
        assert_eq!(conns.find(&key(1), key(1).hash(seed), 0), None);
    }
}

#[test]
fn small_tables_reach_their_capacity() {
    for capacity in 1..=600 {
        for seed in 0..if capacity < 50 { 1000 } else { 20 } {
            let mut conns = Conns::new(capacity, Timeouts::default(), true);
            for number in 0..capacity as u32 {
                let kept =
                    conns.insert(&key(number), key(number).hash(seed), of(0), State::Open, 0);
                assert!(kept.is_ok(), "{number} of {capacity}, seed {seed}");
            }
        }
    }
}

#[test]
fn a_hundred_million_fit_in_nine_gibibytes() {
    assert_eq!((size_of::<Conn>(), align_of::<Conn>()), (64, 64));
    assert_eq!(size_of::<End>(), 8);
    let bytes = Conns::bytes(100_000_000, true);
    assert!(bytes < 9 << 30, "{bytes}");
    let lists = 4096 * (4 + 12 + 4);
    assert_eq!(bytes, 100_000_000 * (64 + 8) + 2 * 15_625_000 * 64 + lists);
    assert_eq!(bytes - Conns::bytes(100_000_000, false), 15_625_000 * 64);
    // Sixteen tables take no more than one.
    assert!(16 * Conns::bytes(100_000_000 / 16, true) < 9 << 30);
}

#[test]
fn the_budget_bounds_what_a_batch_does() {
    let mut conns = Conns::new(1000, Timeouts::default(), true);
    for number in 0..1000 {
        conns.insert(&key(number), key(number).hash(SEED), of(0), State::Opening, 0).unwrap();
    }
    let mut left = 1000;
    while left > 0 {
        let gone = conns.advance(31 * SECOND, 64, SEED, &mut |_| ());
        assert_eq!(gone, 64.min(left));
        left -= gone;
    }
    assert!(conns.is_empty());
}

#[test]
fn a_busy_connection_outlives_the_wheel() {
    let mut conns = Conns::new(4, Timeouts::default(), true);
    let (key, hash) = (key(1), key(1).hash(SEED));
    let slot = conns.insert(&key, hash, of(9), State::Open, 0).unwrap();
    for second in (0..10_000).step_by(100) {
        let now = second * SECOND;
        assert_eq!(conns.advance(now, 64, SEED, &mut |_| ()), 0);
        assert_eq!(conns.seen(slot, FlowKey::ACK, now), Some((9, State::Open)));
    }
    conns.seen(slot, FlowKey::RST, 10_000 * SECOND);
    assert_eq!(conns.advance(10_029 * SECOND, 64, SEED, &mut |_| ()), 0);
    assert_eq!(conns.advance(10_031 * SECOND, 64, SEED, &mut |_| ()), 1);
}

/// The memory used equals the computed size. Runs only if `FLOWYARD_LB_CONNECTIONS` is a number.
#[test]
fn the_full_table_if_asked_for() {
    let Ok(count) = std::env::var("FLOWYARD_LB_CONNECTIONS").unwrap_or_default().parse::<u32>()
    else {
        return;
    };
    let mut conns = Conns::new(count as usize, Timeouts::default(), true);
    let before = resident();
    for number in 0..count {
        conns.insert(&key(number), key(number).hash(SEED), of(number), State::Open, 0).unwrap();
    }
    let took = resident().saturating_sub(before);
    use std::io::Write;
    let _ =
        writeln!(std::io::stderr(), "{count} connections: {took} bytes since the index was made");
    assert!(took <= Conns::bytes(count as usize, true) + (16 << 20));
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

mod lru;
mod room_and_ports;

/// The stage shares a byte with the state and the flags of the entry.
#[test]
fn any_stage_of_an_inserted_header_replaces_any_other_and_changes_nothing_else() {
    let stages = [Stage::None, Stage::Waiting, Stage::Near, Stage::Far];
    let states = [State::Opening, State::Open, State::Closing, State::Datagrams];
    for (state, before, after) in states
        .into_iter()
        .flat_map(|state| stages.map(|before| stages.map(|after| (state, before, after))))
        .flatten()
    {
        let mut conns = Conns::new(16, Timeouts::default(), false);
        let slot = conns.insert(&key(1), key(1).hash(SEED), of(9), state, 0).unwrap();
        let rest = |conns: &Conns| conns.get(slot, 1).map(|conn| (conn.state(), conn.progress()));
        let was = rest(&conns);
        for (first, stage) in [(1, before), (2, after)] {
            conns.set_proxied(slot, Proxied { first, stage });
            assert_eq!(conns.proxied(slot), Proxied { first, stage }, "after {before:?}");
            assert_eq!(rest(&conns), was, "{before:?} {after:?}");
        }
    }
}
