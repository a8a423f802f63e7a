//! Packets whose frames have marks of adapters: the balancer does with them what it does with the same packets without
//! marks, whatever the marks name.

use std::collections::BTreeMap;
use std::sync::Mutex;

use flowyard_flow::table::marked;
use flowyard_testkit::Rng;
use flowyard_yard::front::{AFTER, Entry, Front, Seen};

use super::*;
use crate::Sum;

const SECOND: Nanos = 1_000_000_000;

/// A front that marks: it gives freed numbers again, refuses now and then, and never accepts SCTP associations.
#[derive(Debug)]
struct Marker(Mutex<Flows>);

#[derive(Debug)]
struct Flows {
    rng: Rng,
    refuses: bool,
    next: u32,
    there: BTreeMap<u32, FlowKey>,
    removed: Vec<u32>,
    free: Vec<u32>,
    puts: usize,
}

impl Marker {
    fn new(seed: u64, refuses: bool) -> Arc<Self> {
        let (there, removed, free) = (BTreeMap::new(), Vec::new(), Vec::new());
        let rng = Rng::new(seed);
        Arc::new(Self(Mutex::new(Flows { rng, refuses, next: 0, there, removed, free, puts: 0 })))
    }

    /// The mark that the adapter sets for packets with this key; now and then none, as the rule may not be there yet.
    fn mark(&self, key: &FlowKey) -> u32 {
        let flows = self.0.lock().unwrap();
        let key = FlowKey { in_port: key.in_port, ..key.flow() };
        let mut all = flows.there.iter();
        let number = all.find_map(|(number, of)| (*of == key).then_some(*number));
        number.and_then(marked::of_flow).unwrap_or(0)
    }

    fn numbers(&self) -> u32 {
        self.0.lock().unwrap().next
    }

    fn is_there(&self, key: &FlowKey) -> bool {
        self.mark(key) != 0
    }
}

impl Front for Marker {
    fn reaches(&self, port: u16) -> bool {
        port < 8
    }

    fn put(&self, entries: &[Entry], _now: Nanos) -> Option<u32> {
        let [entry] = entries else { panic!("one direction: {entries:?}") };
        let mut flows = self.0.lock().unwrap();
        flows.puts += 1;
        if entry.key.proto == proto::SCTP || flows.refuses && flows.rng.below(4) == 0 {
            return None;
        }
        let number = flows.free.pop().unwrap_or(flows.next);
        flows.next = flows.next.max(number + 1);
        assert_eq!(flows.there.insert(number, entry.key), None, "the number {number} is free");
        Some(number)
    }

    fn remove(&self, flow: u32) {
        let mut flows = self.0.lock().unwrap();
        assert!(flows.there.remove(&flow).is_some(), "{flow} is there");
        flows.removed.push(flow);
    }

    fn seen(&self, _flow: u32, _entry: usize) -> Seen {
        panic!("frames with marks are counted by the balancer")
    }

    fn free(&self, flow: u32) {
        let mut flows = self.0.lock().unwrap();
        let at = flows.removed.iter().position(|one| *one == flow).expect("it was removed");
        flows.removed.swap_remove(at);
        flows.free.push(flow);
    }

    fn answers(&self) -> bool {
        false
    }

    fn state(&self, flow: u32) -> String {
        format!("flow {flow}")
    }

    fn may_take_later(&self, entry: &Entry) -> bool {
        entry.key.proto != proto::SCTP
    }

    fn why_not(&self, entry: &Entry) -> Option<String> {
        Some(format!("port {} is refused", entry.key.in_port))
    }
}

/// The counters of a service, and the connections of its backends.
type Counted = (Sum, Vec<u32>);

struct Bed {
    hub: Arc<Hub>,
    works: Vec<Balance>,
    pool: Pool,
}

/// A packet: its bytes, the port by which it comes, and the mark of its frame.
type Sent = (Vec<u8>, u16, u32);

impl Bed {
    fn new(
        services: &[Service],
        cores: usize,
        settings: &BalanceSettings,
        marker: Option<&Arc<Marker>>,
    ) -> Self {
        let hub = Arc::new(Hub::new(Control::new(services.to_vec(), 251, 7).unwrap()));
        let front = marker.map(|marker| Arc::clone(marker) as Arc<dyn Front>);
        let works = Balance::group_behind(&hub, cores, settings, front.as_ref());
        Self { hub, works, pool: Pool::new(64, 2048) }
    }

    fn pass(&mut self, core: usize, packets: &[Sent], now: Nanos) -> Vec<(To, Vec<u8>)> {
        let mut batch = Batch::default();
        for (data, port, mark) in packets {
            let meta = Meta { wire_len: data.len() as u32, in_port: *port, ..Meta::default() };
            let mut frame = self.pool.copy(data, meta).unwrap();
            frame.mark = *mark;
            let key = parse::key(&Headers::parse(LinkType::Ethernet, data), data, *port);
            let lane = batch.push(frame, key).unwrap();
            batch.actions[lane] = Action::queue(0);
        }
        self.works[core].work(&mut batch, &self.pool, now);
        let got = batch.lanes().map(|lane| {
            let got = self.pool.bytes(&batch.frames[lane]).to_vec();
            self.pool.put(std::mem::take(&mut batch.frames[lane]));
            (batch.actions[lane].to, got)
        });
        got.collect()
    }

    /// The counters and connections of each service, and the entries of each table.
    fn counts(&self) -> (Vec<Counted>, Vec<[usize; 3]>) {
        let states = self.hub.states();
        let states = states.iter().map(|state| {
            (state.counts, state.backends.iter().map(|backend| backend.active).collect())
        });
        let tables = self.hub.occupancy();
        let tables =
            tables.iter().map(|one| [one.connections, one.opening, one.unestablished]).collect();
        (states.collect(), tables)
    }

    fn found(&self) -> u64 {
        self.hub.occupancy().iter().map(|one| one.marked_packets).sum()
    }
}

/// A service of each mode, of TCP or UDP, each with two backends.
fn services(rng: &mut Rng) -> Vec<Service> {
    let modes = [Mode::Dsr, Mode::Dnat, Mode::FullNat, Mode::Ipip, Mode::Gue];
    let one = |(at, mode): (usize, Mode)| {
        let (n, v6) = (at as u8, rng.below(4) == 0);
        let vip = if v6 { format!("2001:db8::{n}") } else { format!("192.0.2.{n}") };
        let proto = [proto::TCP, proto::UDP][rng.below(2) as usize];
        let mut service = service(&format!("s{n}"), ip(&vip), proto, 80..=80, mode);
        service.choice = [Choice::Maglev, Choice::RoundRobin][rng.below(2) as usize];
        service.backends = (0..2)
            .map(|b| {
                let addr = if v6 { format!("2001:db8:1::{n}{b}") } else { format!("10.0.{n}.{b}") };
                let port = (mode.translates() && rng.below(2) == 0).then_some(8080);
                crate::Backend { name: format!("b{b}"), ..backend(1 + b, ip(&addr), port) }
            })
            .collect();
        service
    };
    modes.into_iter().enumerate().map(one).collect()
}

/// The flow of a client to a service.
fn client(service: &Service, number: u64) -> FlowKey {
    let [_, _, from] = addrs(service.vip.is_ipv6());
    FlowKey::five_tuple(service.proto, from, 4000 + number as u16, service.vip, 80)
}

fn segment(key: &FlowKey, flags: u8) -> Vec<u8> {
    let tcp_flags = if key.proto == proto::TCP { flags } else { 0 };
    Build::new(&FlowKey { tcp_flags, ..*key }).payload(&[7; 40]).bytes()
}

/// What the packets of a seed are made of.
struct Clients {
    rng: Rng,
    services: Vec<Service>,
    /// Replies to packets that were forwarded.
    replies: Vec<FlowKey>,
}

impl Clients {
    fn packet(&mut self) -> (Vec<u8>, u16) {
        let rng = &mut self.rng;
        if rng.below(3) == 0 && !self.replies.is_empty() {
            let at = rng.below(self.replies.len() as u64) as usize;
            let flags = match rng.below(32) {
                0 => FlowKey::FIN | FlowKey::ACK,
                1..8 => FlowKey::SYN | FlowKey::ACK,
                _ => FlowKey::ACK,
            };
            return (segment(&self.replies[at], flags), 1 + 8 * u16::from(rng.below(16) == 0));
        }
        let service = &self.services[rng.below(self.services.len() as u64) as usize];
        let key = client(service, rng.below(6) * rng.below(2));
        let flags = match rng.below(64) {
            0 => FlowKey::FIN | FlowKey::ACK,
            1 => FlowKey::RST,
            2..10 => FlowKey::SYN,
            _ => FlowKey::ACK,
        };
        (segment(&key, flags), 9 * u16::from(rng.below(16) == 0))
    }

    /// A packet was forwarded: its backend may answer.
    fn forwarded(&mut self, (to, data): &(To, Vec<u8>)) {
        let key = parse::key(&Headers::parse(LinkType::Ethernet, data), data, 0).flow();
        if matches!(to, To::Port(1 | 2)) {
            self.replies.push(key.reversed());
            if self.replies.len() > 40 {
                self.replies.swap_remove(self.rng.below(40) as usize);
            }
        }
    }

    fn mark(&mut self, marker: &Marker, data: &[u8], port: u16) -> u32 {
        let key = parse::key(&Headers::parse(LinkType::Ethernet, data), data, port);
        match self.rng.below(8) {
            0 => 0,
            // Of another connection, or of one that has ended.
            1 => marked::of_flow(self.rng.below(u64::from(marker.numbers()) + 2) as u32).unwrap(),
            2 => self.rng.bits() as u32,
            _ => marker.mark(&key),
        }
    }
}

/// Packets that were found by marks, of how many.
fn compared(seed: u64) -> (u64, u64) {
    let mut rng = Rng::new(seed);
    let services = services(&mut rng);
    let cores = 1 + rng.below(3) as usize;
    let settings = BalanceSettings {
        connections: [8, 32, 256][rng.below(3) as usize],
        opening_most: [8, 1024][rng.below(2) as usize],
        full_drops: rng.below(2) == 0,
        returns: rng.below(3) == 0,
        ..settings()
    };
    let marker = Marker::new(rng.bits(), rng.below(2) == 0);
    let mut with = Bed::new(&services, cores, &settings, Some(&marker));
    let mut without = Bed::new(&services, cores, &settings, None);
    let mut clients = Clients { rng: Rng::new(rng.bits()), services, replies: Vec::new() };
    let (mut now, mut all) = (SECOND, 0);
    for step in 0..300 {
        // Connections expire, or are just used.
        now += match rng.below(40) {
            0 => 400 * SECOND,
            1 => 20 * SECOND,
            2..10 => SECOND,
            _ => 1000,
        };
        if rng.below(20) == 0 {
            let service = format!("s{}", rng.below(5));
            let drained = rng.below(2) == 0;
            for bed in [&with, &without] {
                bed.hub.drain(&service, "b0", drained, now).unwrap();
            }
        }
        let core = rng.below(cores as u64) as usize;
        let packets: Vec<Sent> = (0..1 + rng.below(12))
            .map(|_| {
                let (data, port) = clients.packet();
                let mark = clients.mark(&marker, &data, port);
                (data, port, mark)
            })
            .collect();
        all += packets.len() as u64;
        let (got, wanted) = (with.pass(core, &packets, now), without.pass(core, &packets, now));
        assert_eq!(got, wanted, "seed {seed}, step {step}");
        assert_eq!(with.counts(), without.counts(), "seed {seed}, step {step}");
        wanted.iter().for_each(|one| clients.forwarded(one));
    }
    let flows = marker.0.lock().unwrap();
    let marked: usize = with.hub.occupancy().iter().map(|one| one.marked).sum();
    let (there, most) = (flows.there.len(), 2 * marked);
    assert!(marked <= there && there <= most, "seed {seed}: {marked} connections, {there} rules");
    drop(flows);
    assert_eq!(without.found(), 0);
    (with.found(), all)
}

#[test]
fn marks_change_nothing_whatever_they_name() {
    let seeds = std::env::var("FLOWYARD_SEEDS").ok().and_then(|text| text.parse().ok());
    let (mut found, mut all) = (0, 0);
    for seed in 0..seeds.unwrap_or(60) {
        let (marked, packets) = compared(seed);
        (found, all) = (found + marked, all + packets);
    }
    println!("{found} of {all} packets found by marks");
    assert!(found * 10 > all, "{found} of {all}: otherwise this test would prove nothing");
}

fn web(mode: Mode) -> Service {
    let mut service = service("web", ip("192.0.2.1"), proto::TCP, 80..=80, mode);
    let port = mode.translates().then_some(8080);
    service.backends = vec![backend(1, ip("10.0.1.1"), port)];
    service
}

/// A bed with a service and one core, and its front.
fn bed(mode: Mode) -> (Bed, Arc<Marker>) {
    let marker = Marker::new(1, false);
    let bed = Bed::new(&[web(mode)], 1, &settings(), Some(&marker));
    (bed, marker)
}

impl Bed {
    /// One packet; what was forwarded.
    fn one(&mut self, key: &FlowKey, flags: u8, mark: u32, now: Nanos) -> FlowKey {
        let (to, data) = self.pass(0, &[(segment(key, flags), 0, mark)], now).remove(0);
        assert!(matches!(to, To::Port(_)), "{to:?}");
        parse::key(&Headers::parse(LinkType::Ethernet, &data), &data, 0).flow()
    }

    /// Opens a connection; the flow of its replies.
    fn open(&mut self, key: &FlowKey, now: Nanos) -> FlowKey {
        let reply = self.one(key, FlowKey::SYN, 0, now).reversed();
        self.one(&reply, FlowKey::SYN | FlowKey::ACK, 0, now);
        self.one(key, FlowKey::ACK, 0, now);
        self.one(key, FlowKey::ACK, 0, now);
        self.one(&reply, FlowKey::ACK, 0, now);
        reply
    }
}

#[test]
fn both_directions_of_an_established_connection_are_offered_and_found() {
    for mode in [Mode::Dnat, Mode::FullNat] {
        let (mut bed, marker) = bed(mode);
        let key = client(&web(mode), 1);
        let reply = bed.open(&key, SECOND);
        assert!(marker.is_there(&key) && marker.is_there(&reply), "{mode:?}");
        assert_eq!((bed.hub.occupancy()[0].marked, bed.found()), (1, 0));
        bed.one(&key, FlowKey::ACK, marker.mark(&key), SECOND);
        bed.one(&reply, FlowKey::ACK, marker.mark(&reply), SECOND);
        assert_eq!(bed.found(), 2, "{mode:?}");
        // Each mark on a packet of the other direction names the wrong key.
        bed.one(&key, FlowKey::ACK, 0, SECOND);
        bed.one(&reply, FlowKey::ACK, marked::of_flow(7).unwrap(), SECOND);
        assert_eq!(bed.found(), 2, "{mode:?}");
        assert_eq!(marker.0.lock().unwrap().puts, 2, "each direction was offered once");
        let explained = bed.hub.explain(&key, SECOND);
        assert_eq!(explained.adapter.as_deref(), Some("flow 0"), "{explained:?}");
    }
}

/// How a connection ends.
type End = fn(&mut Bed, &FlowKey);

#[test]
fn a_rule_is_removed_when_its_connection_ends() {
    let ends: [(&str, End); 3] = [
        ("closed", |bed, key| {
            bed.one(key, FlowKey::FIN | FlowKey::ACK, 0, SECOND);
        }),
        ("reset", |bed, key| {
            bed.one(key, FlowKey::RST, 0, SECOND);
        }),
        ("expired", |bed, _| {
            let other = client(&web(Mode::Dsr), 99);
            for hour in 1..5 {
                bed.one(&other, FlowKey::SYN, 0, hour * 3600 * SECOND);
            }
        }),
    ];
    for (how, end) in ends {
        let (mut bed, marker) = bed(Mode::Dnat);
        let key = client(&web(Mode::Dnat), 1);
        bed.open(&key, SECOND);
        end(&mut bed, &key);
        let there: Vec<_> = marker.0.lock().unwrap().there.values().copied().collect();
        assert_eq!((there, bed.hub.occupancy()[0].marked), (vec![], 0), "{how}");
        // Its numbers are free when no frame with its marks is on its way any more.
        let later = 5 * 3600 * SECOND + AFTER;
        bed.one(&client(&web(Mode::Dnat), 50), FlowKey::SYN, 0, later);
        bed.one(&client(&web(Mode::Dnat), 50), FlowKey::SYN, 0, later + 2 * AFTER);
        let flows = marker.0.lock().unwrap();
        assert_eq!((flows.removed.len(), flows.free.len()), (0, 2), "{how}");
    }
}

#[test]
fn connections_that_are_not_established_are_not_offered() {
    let (mut bed, marker) = bed(Mode::Dnat);
    let key = client(&web(Mode::Dnat), 1);
    for _ in 0..3 {
        bed.one(&key, FlowKey::SYN, 0, SECOND);
    }
    bed.one(&key, FlowKey::ACK, 0, SECOND); // the backend has not answered
    assert_eq!(marker.0.lock().unwrap().puts, 0);
    let explained = bed.hub.explain(&key, SECOND).adapter.unwrap();
    assert!(explained.contains("not established"), "{explained}");
}

#[test]
fn what_was_refused_is_offered_again_later() {
    let (mut bed, marker) = bed(Mode::Dsr);
    let key = client(&web(Mode::Dsr), 1);
    marker.0.lock().unwrap().refuses = true;
    // The front refuses one of four, so one of these is refused.
    let keys: Vec<_> = (0..40).map(|n| client(&web(Mode::Dsr), n)).collect();
    for key in &keys {
        bed.one(key, FlowKey::SYN, 0, SECOND);
        bed.one(key, FlowKey::ACK, 0, SECOND);
        bed.one(key, FlowKey::ACK, 0, SECOND);
    }
    let refused: Vec<_> = keys.iter().filter(|key| !marker.is_there(key)).collect();
    assert!(!refused.is_empty() && refused.len() < 40);
    let explained = bed.hub.explain(refused[0], SECOND).adapter;
    assert_eq!(explained.as_deref(), Some("it is not in the adapter: port 0 is refused"));
    marker.0.lock().unwrap().refuses = false;
    for (seconds, is_there) in [(2, false), (13, true)] {
        let now = seconds * SECOND;
        for key in &keys {
            bed.one(key, FlowKey::ACK, 0, now);
        }
        assert_eq!(refused.iter().all(|key| marker.is_there(key)), is_there, "{seconds} s");
    }
    assert!(marker.is_there(&key));
}

#[test]
fn the_end_of_a_connection_stays_known_when_others_may_be_offered_again() {
    let (mut bed, marker) = bed(Mode::Dsr);
    marker.0.lock().unwrap().refuses = true;
    for (flags, seq, now) in
        [(0x10, 1, 1), (0x10, 1, 1), (0x11, 1, 1), (0x10, 99, 2), (0x11, 99, 2), (0x10, 999, 14)]
    {
        for n in 0..40 {
            let data = Build::new(&client(&web(Mode::Dsr), n)).flags(flags).seq(seq).bytes();
            bed.pass(0, &[(data, 0, 0)], now * SECOND);
        }
    }
    assert_eq!(bed.hub.states()[0].counts.connections, 3 * 40);
}

#[test]
fn an_association_of_sctp_is_offered_once() {
    let mut service = web(Mode::Dsr);
    service.proto = proto::SCTP;
    let marker = Marker::new(1, false);
    let mut bed = Bed::new(&[service.clone()], 1, &settings(), Some(&marker));
    let key = client(&service, 1);
    for seconds in 1..100 {
        bed.one(&key, 0, 0, seconds * SECOND);
    }
    assert_eq!(marker.0.lock().unwrap().puts, 1, "the front never accepts it");
    let explained = bed.hub.explain(&key, 100 * SECOND).adapter;
    assert_eq!(explained.as_deref(), Some("it is not in the adapter: port 0 is refused"));
}

#[test]
fn packets_of_a_port_without_an_adapter_are_not_offered() {
    let (mut bed, marker) = bed(Mode::Dsr);
    let key = client(&web(Mode::Dsr), 1);
    for flags in [FlowKey::SYN, FlowKey::ACK, FlowKey::ACK] {
        bed.pass(0, &[(segment(&key, flags), 8, 0)], SECOND);
    }
    assert_eq!(marker.0.lock().unwrap().puts, 0);
}
