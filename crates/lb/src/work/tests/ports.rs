//! Local ports of FullNAT, and what services do to each other when tables or ports are used up.

use std::collections::{HashMap, HashSet};

use super::*;

const SECOND: Nanos = 1_000_000_000;

/// Passes packets through a balancer, one at a time.
pub(super) struct Way {
    pool: Pool,
    work: Balance,
    pub(super) hub: Arc<Hub>,
}

impl Way {
    pub(super) fn new(services: Vec<Service>, settings: &BalanceSettings) -> Self {
        let hub = Arc::new(Hub::new(Control::new(services, 251, 7).unwrap()));
        let work = Balance::group(&hub, 1, settings).remove(0);
        Self { pool: Pool::new(4, 2048), work, hub }
    }

    /// The result for a packet, and its flow afterwards.
    pub(super) fn pass(&mut self, key: &FlowKey, now: Nanos) -> (To, FlowKey) {
        let data = Build::new(key).flags(key.tcp_flags).bytes();
        let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
        let frame = self.pool.copy(&data, meta).unwrap();
        let key = parse::key(&Headers::parse(LinkType::Ethernet, &data), &data, 0);
        let mut batch = Batch::default();
        let lane = batch.push(frame, key).unwrap();
        batch.actions[lane] = Action::queue(0);
        self.work.work(&mut batch, &self.pool, now);
        let out = self.pool.bytes(&batch.frames[lane]);
        let flow = parse::key(&Headers::parse(LinkType::Ethernet, out), out, 0).flow();
        let frame = std::mem::take(&mut batch.frames[lane]);
        self.pool.put(frame);
        (batch.actions[lane].to, flow)
    }

    /// Sends the reply to what the backend received; returns whether the client receives the right one.
    fn answers(&mut self, client: &FlowKey, sent: &FlowKey, now: Nanos) -> bool {
        self.answers_with(FlowKey::ACK, client, sent, now)
    }

    pub(super) fn answers_with(
        &mut self,
        flags: u8,
        client: &FlowKey,
        sent: &FlowKey,
        now: Nanos,
    ) -> bool {
        let reply = FlowKey { tcp_flags: flags, ..sent.reversed() };
        let (to, got) = self.pass(&reply, now);
        to == To::Port(40) && got == client.flow().reversed()
    }
}

impl Way {
    /// Opens a connection by an ACK and what establishes it; returns where the ACK went.
    fn establish(&mut self, key: &FlowKey, mode: Mode, now: Nanos) -> To {
        let (to, sent) = self.pass(&ack(*key), now);
        if !to.is_drop() {
            match mode {
                Mode::FullNat => assert!(self.answers(key, &sent, now), "{key}"),
                _ => drop(self.pass(&ack(*key), now)),
            }
        }
        to
    }
}

pub(super) fn client(number: u32, proto: u8, vip: &str, port: u16) -> FlowKey {
    let [_, a, b, c] = number.to_be_bytes();
    FlowKey::five_tuple(proto, IpAddr::from([100 + a, b, c, 1]), 4000, ip(vip), port)
}

pub(super) fn syn(key: FlowKey) -> FlowKey {
    FlowKey { tcp_flags: FlowKey::SYN, ..key }
}

pub(super) fn ack(key: FlowKey) -> FlowKey {
    FlowKey { tcp_flags: FlowKey::ACK, ..key }
}

/// A service for UDP port 53 in direct server return, and one for TCP port 80 in FullNAT.
fn two() -> Vec<Service> {
    let mut dns = service("dns", ip("192.0.2.2"), proto::UDP, 53..=53, Mode::Dsr);
    dns.backends = vec![backend(2, ip("10.0.1.2"), None)];
    let mut web = service("web", ip("192.0.2.1"), proto::TCP, 80..=80, Mode::FullNat);
    web.backends = vec![backend(1, ip("10.0.1.1"), Some(8080))];
    vec![dns, web]
}

fn with(connections: usize) -> BalanceSettings {
    BalanceSettings { connections, opening_most: connections / 4, ..settings() }
}

#[test]
fn flows_of_other_services_take_no_local_ports() {
    let mut way = Way::new(two(), &with(1_000_000));
    for number in 0..66_000 {
        assert_eq!(way.pass(&client(number, proto::UDP, "192.0.2.2", 53), 5).0, To::Port(2));
    }
    for number in 0..10 {
        let key = client(number, proto::TCP, "192.0.2.1", 80);
        let (to, sent) = way.pass(&syn(key), 5);
        assert_eq!(to, To::Port(1), "{number}");
        assert!(way.answers(&key, &sent, 5), "{number}");
    }
}

#[test]
fn a_local_port_serves_one_connection_to_each_backend() {
    // More connections than there are ports, to two services, one with two backends.
    let mut services = two();
    services[1].backends.push(backend(3, ip("10.0.1.3"), Some(8080)));
    let mut other = service("other", ip("192.0.2.3"), proto::TCP, 80..=80, Mode::FullNat);
    other.backends = vec![backend(1, ip("10.0.1.1"), Some(9090))];
    services.push(other);
    let mut way = Way::new(services, &with(1 << 20));
    let mut seen = HashSet::new();
    let mut some = Vec::new();
    for number in 0..150_000 {
        let vip = if number % 3 == 2 { "192.0.2.3" } else { "192.0.2.1" };
        let key = client(number, proto::TCP, vip, 80);
        let (to, sent) = way.pass(&ack(key), 5);
        assert!(matches!(to, To::Port(1 | 3)), "{number}: {to:?}");
        assert!(seen.insert(sent), "{number}: another connection has {sent}");
        assert!(way.answers(&key, &sent, 5), "{key}");
        if number % 1000 == 0 {
            some.push((key, sent));
        }
    }
    for (key, sent) in some {
        assert!(way.answers(&key, &sent, 5), "{key}");
        assert_eq!(way.pass(&ack(key), 5).1, sent, "the port stays");
    }
}

#[test]
fn every_port_of_an_address_is_used() {
    let mut way = Way::new(two(), &with(1 << 17));
    for number in 0..64_512 {
        let key = client(number, proto::TCP, "192.0.2.1", 80);
        assert_eq!(way.establish(&key, Mode::FullNat, 5), To::Port(1), "{number}");
    }
    // All ports towards the backend are used by connections that are not idle.
    let full = DropReason::NoConnection.code();
    let next = client(64_512, proto::TCP, "192.0.2.1", 80);
    assert_eq!(way.pass(&ack(next), SECOND).0, To::Drop(full));
    assert_eq!(way.hub.occupancy()[0].connections, 64_512, "nothing is left of it");
    // One closes: its port may be found. Connections that are idle for long are replaced.
    assert_eq!(way.pass(&ack(next), 500 * SECOND).0, To::Port(1));
    assert_eq!(way.hub.occupancy()[0].connections, 64_512, "it replaced another one");
    let sum: u32 = way.hub.states()[1].backends.iter().map(|backend| backend.active).sum();
    assert_eq!(sum, 64_512);
}

#[test]
fn a_full_table_makes_room_for_a_service_below_its_part() {
    // One service has filled the table with datagrams, two of each client.
    let mut way = Way::new(two(), &with(4096));
    for number in 0..5000 {
        let key = client(number, proto::UDP, "192.0.2.2", 53);
        assert_eq!(way.establish(&key, Mode::Dsr, 5), To::Port(2));
    }
    let key = client(0, proto::TCP, "192.0.2.1", 80);
    let full = To::Drop(DropReason::NoConnection.code());
    assert_eq!(way.pass(&syn(key), SECOND).0, full, "they are not idle yet");
    for number in 0..1500 {
        let key = client(number, proto::TCP, "192.0.2.1", 80);
        let (to, sent) = way.pass(&ack(key), 70 * SECOND);
        assert_eq!(to, To::Port(1), "{number}");
        assert!(way.answers(&key, &sent, 70 * SECOND));
    }
    // The flood goes on and does not take them back: they are not idle.
    for number in 5000..10_000 {
        way.pass(&client(number, proto::UDP, "192.0.2.2", 53), 71 * SECOND);
    }
    for number in 0..1500 {
        let key = client(number, proto::TCP, "192.0.2.1", 80);
        assert_eq!(way.pass(&ack(key), 72 * SECOND).0, To::Port(1), "{number}");
    }
    let counts = way.hub.states().iter().map(|s| s.backends[0].active).collect::<Vec<_>>();
    assert_eq!(counts.iter().sum::<u32>(), 4096);
}

#[test]
fn a_flood_of_one_service_leaves_half_open_connections_to_the_others() {
    let mut services = two();
    services[0] = service("flooded", ip("192.0.2.2"), proto::TCP, 53..=53, Mode::Dsr);
    services[0].backends = vec![backend(2, ip("10.0.1.2"), None)];
    let mut way = Way::new(services, &with(4096));
    for number in 0..5000 {
        assert_eq!(way.pass(&syn(client(number, proto::TCP, "192.0.2.2", 53)), 5).0, To::Port(2));
    }
    assert_eq!(way.hub.occupancy()[0].opening, 1024);
    for number in 0..512 {
        let key = client(number, proto::TCP, "192.0.2.1", 80);
        assert_eq!(way.pass(&syn(key), 5).0, To::Port(1), "{number}");
    }
}

#[test]
fn a_flood_of_a_fullnat_service_replaces_its_oldest_half_open_connections() {
    let mut way = Way::new(two(), &with(4096));
    let mut now = 5;
    for number in 0..20_000 {
        now += SECOND / 5000; // 5000 a second; 1024 stay for a fifth of a second
        let key = client(1 + number, proto::TCP, "192.0.2.1", 80);
        assert_eq!(way.pass(&syn(key), now).0, To::Port(1), "{number}");
    }
    assert!(way.hub.occupancy()[0].opening <= 1024);
    // A client that answers within a tenth of a second gets its connection.
    let key = client(0, proto::TCP, "192.0.2.1", 80);
    let (_, sent) = way.pass(&syn(key), now);
    assert!(way.answers_with(FlowKey::SYN | FlowKey::ACK, &key, &sent, now));
    for number in 0..500 {
        let key = client(30_000 + number, proto::TCP, "192.0.2.1", 80);
        way.pass(&syn(key), now + SECOND / 10);
    }
    assert_eq!(way.pass(&ack(key), now + SECOND / 10), (To::Port(1), sent));
    // It stays, whatever comes.
    for number in 0..5000 {
        let key = client(40_000 + number, proto::TCP, "192.0.2.1", 80);
        way.pass(&syn(key), now + SECOND);
    }
    assert!(way.answers(&key, &sent, now + SECOND));
}

#[test]
fn a_service_keeps_to_its_limit() {
    for (mode, port) in [(Mode::Dsr, None), (Mode::FullNat, Some(8080))] {
        let mut services = two();
        services[1].mode = mode;
        services[1].connections = 100;
        services[1].backends[0].port = port;
        let mut way = Way::new(services, &with(4096));
        let refused = (0..200)
            .filter(|&n| way.establish(&client(n, proto::TCP, "192.0.2.1", 80), mode, 5).is_drop())
            .count();
        assert_eq!(refused, if mode == Mode::FullNat { 100 } else { 0 }, "{mode:?}");
        assert_eq!(way.hub.occupancy()[0].connections, 100);
        // Idle ones are replaced by new ones, and other services are not affected.
        let key = client(300, proto::TCP, "192.0.2.1", 80);
        assert_eq!(way.pass(&ack(key), 500 * SECOND).0, To::Port(1));
        assert_eq!(way.hub.occupancy()[0].connections, 100);
        for number in 0..1000 {
            way.pass(&client(number, proto::UDP, "192.0.2.2", 53), 500 * SECOND);
        }
        assert_eq!(way.hub.occupancy()[0].connections, 1100);
    }
}

#[test]
fn an_expired_entry_that_is_replaced_is_counted_once() {
    // More entries expire at once than a batch removes, and one of the others is replaced.
    let mut way = Way::new(two(), &with(4096));
    for number in 0..300 {
        way.pass(&client(number, proto::UDP, "192.0.2.2", 53), 5);
    }
    way.pass(&client(150, proto::UDP, "192.0.2.2", 53), 200 * SECOND);
    for _ in 0..10 {
        way.work.work(&mut Batch::default(), &way.pool, 200 * SECOND);
    }
    assert_eq!(way.hub.occupancy()[0].connections, 1);
    assert_eq!(way.hub.states()[0].backends[0].active, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever opens, closes, moves and expires: two connections never have the same local port towards a
    /// backend, and a reply reaches the client of the newest connection or nobody.
    #[test]
    fn replies_reach_their_own_clients(
        steps in prop::collection::vec((0u32..40, 0usize..6, 0u64..20), 1..200), connections in 4usize..40,
    ) {
        let mut services = two();
        services[1].choice = Choice::RoundRobin;
        services[1].backends.push(backend(3, ip("10.0.1.1"), Some(9090)));
        let mut twin = service("twin", ip("192.0.2.9"), proto::TCP, 80..=80, Mode::FullNat);
        twin.backends = vec![backend(1, ip("10.0.1.1"), Some(8080))];
        services.push(twin);
        let mut way = Way::new(services, &with(connections));
        let mut now = 5;
        // What the backends have received, and from which client.
        let mut known: HashMap<FlowKey, FlowKey> = HashMap::new();
        for (number, what, wait) in steps {
            now += wait * SECOND / 4;
            let vip = if number % 2 == 0 { "192.0.2.1" } else { "192.0.2.9" };
            let key = client(number, proto::TCP, vip, 80);
            match what {
                0 => way.hub.set_up("web", "b3", wait % 2 == 0, now).unwrap(),
                1 => now += 40 * SECOND,
                _ => {
                    let flags = [FlowKey::SYN, FlowKey::ACK, FlowKey::ACK, FlowKey::FIN | FlowKey::ACK][what - 2];
                    let (to, sent) = way.pass(&FlowKey { tcp_flags: flags, ..key }, now);
                    if to.is_drop() {
                        continue;
                    }
                    known.insert(sent, key);
                    prop_assert!(way.answers(&key, &sent, now), "{} as {}", key, sent);
                    for (sent, key) in &known {
                        let (to, got) = way.pass(&ack(sent.reversed()), now);
                        prop_assert!(to != To::Port(40) || got == key.flow().reversed(), "{} as {}: {}", key, sent, got);
                    }
                }
            }
        }
    }
}
