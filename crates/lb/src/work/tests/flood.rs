//! Floods with forged source addresses beside honest clients, in every mode: how many clients are served.
//!
//! Events in virtual time: packets of clients and of the flood, and answers of backends, also to the flood. Backends
//! answer as servers do: a SYN by a SYN and ACK, a segment that belongs to no connection by a RST, a datagram by a
//! datagram. Packets that arrive within 50 us are one batch.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use super::*;
use crate::{Limit, Sum};

const SECOND: Nanos = 1_000_000_000;
const MS: Nanos = 1_000_000;
const CLIENTS: u32 = 100;
/// Requests of a client, after its handshake.
const REQUESTS: u32 = 5;
const SYN_ACK: u8 = FlowKey::SYN | FlowKey::ACK;
const FIN_ACK: u8 = FlowKey::FIN | FlowKey::ACK;

/// A generator of numbers (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A packet that arrives at the balancer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// Packet `step` of an honest client.
    Client { client: u32, step: u32 },
    /// A packet of the flood.
    Forged { number: u32 },
    /// The answer of a backend with these flags to what it has received.
    Answer { sent: u32, flags: u8 },
}

/// A flood: packets of each kind, and the time in which they come.
#[derive(Clone, Copy)]
struct Flood {
    syns: bool,
    acks: bool,
    datagrams: bool,
    packets: u32,
    during: Nanos,
}

/// What an honest client has seen.
#[derive(Clone, Default)]
struct Seen {
    /// The flow and the port by which the backend gets its packets.
    way: Option<(To, FlowKey)>,
    failed: bool,
    steps: u32,
    answers: u32,
}

struct Run {
    mode: Mode,
    works: Vec<Balance>,
    hub: Arc<Hub>,
    pool: Pool,
    dice: Dice,
    flood: Flood,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    number: u64,
    seen: Vec<Seen>,
    /// What backends have received: the flow, and the client, if it is an honest one.
    received: Vec<(FlowKey, Option<u32>)>,
    /// Connections that backends have: a TCP knows them from the SYN on.
    open: HashSet<FlowKey>,
    /// Packets of clients and of the flood, and answers: all that came, and what was dropped.
    came: [u64; 2],
    dropped: [u64; 2],
}

fn services(mode: Mode, choice: Choice) -> Vec<Service> {
    let to = |port: Option<u16>| port.filter(|_| mode.translates());
    let mut web = service("web", ip("192.0.2.1"), proto::TCP, 80..=80, mode);
    web.backends = vec![
        backend(1, ip("10.0.1.1"), to(Some(8080))),
        backend(2, ip("10.0.1.2"), to(Some(8080))),
    ];
    let mut dns = service("dns", ip("192.0.2.2"), proto::UDP, 53..=53, mode);
    dns.backends = vec![
        backend(3, ip("10.0.1.3"), to(Some(5353))),
        backend(4, ip("10.0.1.4"), to(Some(5353))),
    ];
    (web.choice, dns.choice) = (choice, choice);
    vec![web, dns]
}

impl Run {
    fn new(
        (mode, choice): (Mode, Choice),
        cores: usize,
        settings: &BalanceSettings,
        flood: Flood,
        seed: u64,
    ) -> Self {
        let hub = Arc::new(Hub::new(Control::new(services(mode, choice), 251, seed).unwrap()));
        let mut run = Self {
            mode,
            works: Balance::group(&hub, cores, settings),
            hub,
            pool: Pool::new(64, 2048),
            dice: Dice(seed),
            flood,
            events: BinaryHeap::new(),
            number: 0,
            seen: vec![Seen::default(); 2 * CLIENTS as usize],
            received: Vec::new(),
            open: HashSet::new(),
            came: [0; 2],
            dropped: [0; 2],
        };
        for number in 0..flood.packets {
            let at = run.dice.below(flood.during);
            run.at(at, Event::Forged { number });
        }
        for client in 0..2 * CLIENTS {
            // Not before the flood has used up the limits.
            let at = flood.during / 2 + run.dice.below(flood.during / 2);
            run.at(at, Event::Client { client, step: 0 });
        }
        run
    }

    fn at(&mut self, time: Nanos, event: Event) {
        self.number += 1; // events at the same time stay in order
        self.events.push(Reverse((time, self.number, event)));
    }

    /// Round trip of a client, 10 to 100 ms.
    fn round_trip(client: u32) -> Nanos {
        (10 + u64::from(client * 37 % 91)) * MS
    }

    /// The packet of an event; `None` if there is none.
    fn packet(&self, event: Event) -> Option<FlowKey> {
        let flow = |proto, src: [u8; 4], sport| {
            let vip = if proto == proto::TCP { ("192.0.2.1", 80) } else { ("192.0.2.2", 53) };
            FlowKey::five_tuple(proto, IpAddr::from(src), sport, ip(vip.0), vip.1)
        };
        match event {
            Event::Client { client, step } => {
                let src = [203, 0, 113, (client % CLIENTS) as u8];
                if client >= CLIENTS {
                    return (step < REQUESTS).then(|| flow(proto::UDP, src, 4000));
                }
                let flags = match step {
                    0 => FlowKey::SYN,
                    step if step <= REQUESTS => FlowKey::ACK,
                    step if step == REQUESTS + 1 => FIN_ACK,
                    _ => return None,
                };
                Some(FlowKey { tcp_flags: flags, ..flow(proto::TCP, src, 4000) })
            }
            Event::Forged { number } => {
                let Flood { syns, acks, datagrams, .. } = self.flood;
                let kinds: Vec<(u8, u8)> = [
                    (syns, proto::TCP, FlowKey::SYN),
                    (acks, proto::TCP, FlowKey::ACK),
                    (datagrams, proto::UDP, 0),
                ]
                .into_iter()
                .filter_map(|(is, proto, flags)| is.then_some((proto, flags)))
                .collect();
                let (proto, flags) = kinds[number as usize % kinds.len()];
                let [_, a, b, c] = number.to_be_bytes();
                let src = flow(proto, [20 + a, b, c, 9], 1024 + (number % 60_000) as u16);
                Some(FlowKey { tcp_flags: flags, ..src })
            }
            Event::Answer { sent, flags } => {
                let reply = self.received[sent as usize].0.reversed();
                Some(FlowKey { tcp_flags: flags, ..reply })
            }
        }
    }

    /// Runs all events. Returns the honest clients that were served, of TCP and of UDP.
    fn run(&mut self) -> [usize; 2] {
        while let Some(Reverse((begin, _, first))) = self.events.pop() {
            let mut batch = vec![first];
            while batch.len() < LANES
                && let Some(&Reverse((time, _, event))) = self.events.peek()
                && time < begin + 50_000
            {
                batch.push(event);
                self.events.pop();
            }
            for core in 0..self.works.len() {
                let mine = |event: &Event| {
                    self.packet(*event).map_or(0, |key| spread(&key)) % self.works.len() == core
                };
                let mine: Vec<Event> = batch.iter().copied().filter(mine).collect();
                self.pass(core, &mine, begin);
            }
        }
        let served = |of: &[Seen], steps: u32, answers: u32| {
            let two_way = self.mode.translates();
            let is = |seen: &&Seen| {
                !seen.failed && seen.steps == steps && (!two_way || seen.answers == answers)
            };
            of.iter().filter(is).count()
        };
        let (tcp, udp) = self.seen.split_at(CLIENTS as usize);
        [served(tcp, REQUESTS + 2, REQUESTS + 2), served(udp, REQUESTS, REQUESTS)]
    }

    fn pass(&mut self, core: usize, events: &[Event], now: Nanos) {
        let mut batch = Batch::default();
        let mut passed = Vec::new();
        for &event in events {
            let Some(key) = self.packet(event) else { continue };
            let data = Build::new(&key).flags(key.tcp_flags).bytes();
            let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
            let frame = self.pool.copy(&data, meta).unwrap();
            let parsed = parse::key(&Headers::parse(LinkType::Ethernet, &data), &data, 0);
            let lane = batch.push(frame, parsed).unwrap();
            batch.actions[lane] = Action::queue(0);
            passed.push((event, key, lane));
        }
        self.works[core].work(&mut batch, &self.pool, now);
        for (event, key, lane) in passed {
            let to = batch.actions[lane].to;
            let out = self.pool.bytes(&batch.frames[lane]);
            let headers = Headers::parse(LinkType::Ethernet, out);
            let got = match headers.inner(out) {
                Some(inner) => parse::key(&inner, out, 0).flow(), // what the tunnel carries
                None => parse::key(&headers, out, 0).flow(),
            };
            let frame = std::mem::take(&mut batch.frames[lane]);
            self.pool.put(frame);
            let side = usize::from(matches!(event, Event::Answer { .. }));
            self.came[side] += 1;
            self.dropped[side] += u64::from(to.is_drop());
            self.goes_on(event, &key, (to, got), now);
        }
    }

    /// What the receiver of a packet does.
    fn goes_on(&mut self, event: Event, key: &FlowKey, (to, got): (To, FlowKey), now: Nanos) {
        let delay = 100_000 + self.dice.below(400_000);
        match event {
            Event::Client { client, step } => {
                let seen = &mut self.seen[client as usize];
                seen.steps += 1;
                seen.failed |= to.is_drop() || *seen.way.get_or_insert((to, got)) != (to, got);
                // The client sends its second packet when it has the answer to the first one, and the others later.
                let pause = if step == 0 { 0 } else { self.dice.below(400 * MS) };
                let pause = Self::round_trip(client) + pause;
                self.at(now + pause, Event::Client { client, step: step + 1 });
                self.arrives(key, got, Some(client), to, now + delay);
            }
            Event::Forged { .. } => self.arrives(key, got, None, to, now + delay),
            Event::Answer { sent, .. } => {
                let Some(client) = self.received[sent as usize].1 else { return };
                let expected = self.packet(Event::Client { client, step: 0 }).unwrap();
                let is_right = to == To::Port(40) && got == expected.flow().reversed();
                let seen = &mut self.seen[client as usize];
                seen.answers += u32::from(is_right);
                seen.failed |= !is_right;
            }
        }
    }

    /// A packet of a client, or of the flood, reaches a backend as `got`.
    fn arrives(&mut self, key: &FlowKey, got: FlowKey, client: Option<u32>, to: To, now: Nanos) {
        if to.is_drop() || !self.mode.translates() {
            return; // answers do not pass through the balancer
        }
        let is_open = self.open.contains(&got);
        let flags = match (key.proto, key.tcp_flags) {
            (proto::UDP, _) => 0,
            (_, FlowKey::SYN) => {
                self.open.insert(got);
                SYN_ACK
            }
            (_, FIN_ACK) if is_open => FIN_ACK,
            _ if is_open => FlowKey::ACK,
            _ => FlowKey::RST,
        };
        self.received.push((got, client));
        self.at(now, Event::Answer { sent: self.received.len() as u32 - 1, flags });
    }

    fn sum(&self) -> Sum {
        let states = self.hub.states();
        states.iter().fold(Sum::default(), |sum, state| sum.plus(&state.counts))
    }

    /// Every packet was sent or dropped and is counted, and in the end no entry is left.
    fn check(&mut self) {
        let sum = self.sum();
        assert_eq!(sum.in_packets, self.came[0] - self.dropped[0]);
        assert_eq!(sum.out_packets, self.came[1] - self.dropped[1]);
        let active = |hub: &Hub| -> usize {
            let states = hub.states();
            states.iter().flat_map(|state| &state.backends).map(|b| b.active as usize).sum()
        };
        let entries =
            |hub: &Hub| -> usize { hub.occupancy().iter().map(|of| of.connections).sum() };
        let held = self.hub.held("web") + self.hub.held("dns");
        let unestablished = self.hub.occupancy().iter().map(|of| of.unestablished).sum();
        assert_eq!((active(&self.hub), held.all), (entries(&self.hub), entries(&self.hub)));
        assert_eq!(held.unestablished, unestablished);
        let later = 3000 * SECOND;
        for _ in 0..2 * entries(&self.hub) / 64 + 10 {
            for work in &mut self.works {
                work.work(&mut Batch::default(), &self.pool, later);
            }
        }
        assert_eq!((entries(&self.hub), active(&self.hub)), (0, 0));
    }
}

/// Distributes flows over cores.
fn spread(key: &FlowKey) -> usize {
    (ConnKey::of(key).hash(99) >> 20) as usize
}

/// The defaults of a configuration, with addresses for two cores.
fn defaults(full_drops: bool) -> BalanceSettings {
    BalanceSettings {
        connections: 65_536,
        opening_most: 32_768,
        full_drops,
        local: ["10.9.0.1", "10.9.0.2"].map(ip).to_vec(),
        pass: vec![None],
        ..settings()
    }
}

const ALL: Flood =
    Flood { syns: true, acks: true, datagrams: true, packets: 100_000, during: SECOND };
const MODES: [Mode; 5] = [Mode::Dsr, Mode::Ipip, Mode::Gue, Mode::Dnat, Mode::FullNat];

#[test]
fn a_hundred_thousand_forged_packets_leave_clients_served_in_every_mode() {
    let mut counted = Vec::new();
    for (seed, mode) in (1..).zip(MODES) {
        for (full_drops, choice, cores) in
            [(true, Choice::Maglev, 1), (false, Choice::RoundRobin, 2)]
        {
            let settings = defaults(full_drops);
            let mut run = Run::new((mode, choice), cores, &settings, ALL, seed);
            let served = run.run();
            run.check();
            assert!(served[0] >= 99 && served[1] >= 99, "{mode:?}, {choice:?}: {served:?} of 100");
            counted.push((mode, cores, served));
        }
    }
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "served, of 100 of TCP and 100 of UDP: {counted:?}");
}

#[test]
fn a_slow_flood_of_acks_does_not_keep_services_closed() {
    // 66,000 forged ACKs at once, and then 72 a second, filled the table of 65,536 and kept it full.
    for mode in [Mode::Dsr, Mode::FullNat] {
        let mut way = ports::Way::new(services(mode, Choice::Maglev), &defaults(true));
        let mut now = 5;
        let forged = |way: &mut ports::Way, from: u32, count: u32, now: Nanos| {
            for number in from..from + count {
                way.pass(&ports::ack(ports::client(number, proto::TCP, "192.0.2.1", 80)), now);
            }
        };
        forged(&mut way, 1000, 66_000, now);
        for second in 0..60 {
            now += SECOND;
            forged(&mut way, 100_000 + second * 72, 72, now);
            let key = ports::client(second, proto::TCP, "192.0.2.1", 80);
            let (to, sent) = way.pass(&ports::syn(key), now);
            assert!(!to.is_drop(), "{mode:?}, second {second}: {to:?}");
            now += SECOND / 10;
            if mode == Mode::FullNat {
                assert!(way.answers_with(SYN_ACK, &key, &sent, now));
            }
            assert_eq!(way.pass(&ports::ack(key), now), (to, sent), "{mode:?}, second {second}");
        }
        let entries = way.hub.occupancy()[0];
        assert!(entries.unestablished <= 32_768, "{entries:?}");
        assert!(entries.connections - entries.unestablished >= 60, "{entries:?}");
    }
}

#[test]
fn established_connections_survive_any_flood() {
    for (seed, mode) in (20..).zip(MODES) {
        // A small table, and a flood of a hundred times its size.
        let small = BalanceSettings { connections: 512, opening_most: 256, ..defaults(true) };
        let mut way = ports::Way::new(services(mode, Choice::RoundRobin), &small);
        let mut known = Vec::new();
        for number in 0..200 {
            let key = ports::client(number, proto::TCP, "192.0.2.1", 80);
            let first = way.pass(&ports::syn(key), 5);
            assert!(!first.0.is_drop());
            if mode.translates() {
                assert!(way.answers_with(SYN_ACK, &key, &first.1, 5));
            }
            assert_eq!(way.pass(&ports::ack(key), 5), first);
            known.push((key, first));
        }
        let mut dice = Dice(seed);
        for number in 0..50_000 {
            let flags = [FlowKey::SYN, FlowKey::ACK][dice.below(2) as usize];
            let key = ports::client(1000 + number, proto::TCP, "192.0.2.1", 80);
            way.pass(&FlowKey { tcp_flags: flags, ..key }, 5 + u64::from(number) * 10_000);
        }
        for (key, first) in known {
            assert_eq!(way.pass(&ports::ack(key), SECOND), first, "{mode:?}: {key}");
        }
        let sum = way.hub.states()[0].counts;
        assert!(sum.evicted[Limit::Unestablished as usize] > 40_000, "{sum:?}");
        assert_eq!(sum.evicted[1..], [0; 3], "{mode:?}");
    }
}

#[test]
fn a_client_whose_entry_was_replaced_reaches_the_same_backend() {
    let small = BalanceSettings { opening_most: 4, ..defaults(true) };
    for mode in [Mode::Dsr, Mode::Ipip, Mode::Gue, Mode::Dnat] {
        let mut way = ports::Way::new(services(mode, Choice::RoundRobin), &small);
        let forged = |way: &mut ports::Way, from: u32| {
            for number in from..from + 10 {
                way.pass(&ports::syn(ports::client(number, proto::TCP, "192.0.2.1", 80)), 5);
            }
        };
        for client in 0..20 {
            let key = ports::client(client, proto::TCP, "192.0.2.1", 80);
            forged(&mut way, 1000 + client * 100);
            let first = way.pass(&ports::syn(key), 5);
            forged(&mut way, 2000 + client * 100);
            let explained = way.hub.explain(&key, 5);
            assert_eq!(explained.why, Because::Turns, "the entry was replaced");
            if mode == Mode::Dnat {
                assert!(way.answers_with(SYN_ACK, &key, &first.1, 5), "client {client}");
            }
            assert_eq!(way.pass(&ports::ack(key), 5), first, "{mode:?}, client {client}");
        }
        assert_eq!(way.hub.held("web").all, 4);
    }
}

#[test]
fn a_service_keeps_to_its_limit_of_unestablished_connections() {
    for mode in [Mode::Dsr, Mode::FullNat] {
        let mut all = services(mode, Choice::Maglev);
        all[0].opening = 50;
        let mut way = ports::Way::new(all, &defaults(false));
        for number in 0..500 {
            let key = ports::client(number, proto::TCP, "192.0.2.1", 80);
            assert!(!way.pass(&ports::syn(key), 5).0.is_drop());
            let key = ports::client(number, proto::UDP, "192.0.2.2", 53);
            assert!(!way.pass(&key, 5).0.is_drop());
        }
        assert_eq!((way.hub.held("web").all, way.hub.held("dns").all), (50, 500), "{mode:?}");
        let sum = way.hub.states()[0].counts;
        assert_eq!((sum.evicted, sum.refused), ([450, 0, 0, 0], [0; 4]));
    }
    // Without room for one, fullnat refuses, and the other modes need none.
    for (mode, refuses) in [(Mode::Dsr, false), (Mode::Dnat, false), (Mode::FullNat, true)] {
        let none = BalanceSettings { opening_most: 0, ..defaults(true) };
        let mut way = ports::Way::new(services(mode, Choice::Maglev), &none);
        let key = ports::client(1, proto::UDP, "192.0.2.2", 53);
        assert_eq!(way.pass(&key, 5).0.is_drop(), refuses, "{mode:?}");
        let sum = way.hub.states()[1].counts;
        assert_eq!((sum.evicted, sum.refused), ([0; 4], [1, 0, 0, 0]), "{mode:?}");
    }
}

mod claims;
