//! Established connections are answered in front of the balancer: what is put there does what the balancer does,
//! what was answered is counted once, and connections that end or change are removed.

mod fake;

use flowyard_yard::front::{AFTER, Change, Entry, Front};

use super::*;
use fake::Fake;

const SECOND: Nanos = 1_000_000_000;

struct Bed {
    front: Arc<Fake>,
    hub: Arc<Hub>,
    works: Vec<Balance>,
    pool: Pool,
}

impl Bed {
    fn new(service: Service, cores: usize, settings: &BalanceSettings) -> Self {
        let hub = Arc::new(Hub::new(Control::new(vec![service], 251, 7).unwrap()));
        let front = Arc::new(Fake::default());
        let shared: Arc<dyn Front> = Arc::clone(&front) as _;
        let works = Balance::group_behind(&hub, cores, settings, Some(&shared));
        Self { front, hub, works, pool: Pool::new(8, 2048) }
    }

    fn pass(&mut self, core: usize, data: &[u8], now: Nanos) -> (To, Vec<u8>) {
        let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
        let frame = self.pool.copy(data, meta).unwrap();
        let key = parse::key(&Headers::parse(LinkType::Ethernet, data), data, 0);
        let mut batch = Batch::default();
        let lane = batch.push(frame, key).unwrap();
        batch.actions[lane] = Action::queue(0);
        self.works[core].work(&mut batch, &self.pool, now);
        let got = self.pool.bytes(&batch.frames[lane]).to_vec();
        self.pool.put(std::mem::take(&mut batch.frames[lane]));
        (batch.actions[lane].to, got)
    }

    fn tick(&mut self, now: Nanos) {
        for work in &mut self.works {
            work.speak(now, &mut |_, _| true);
        }
    }

    /// A client opens a connection, and sends once more. Returns what became of the last packet.
    fn open(&mut self, key: &FlowKey, now: Nanos) -> (To, Vec<u8>) {
        let (_, sent) = self.pass(0, &segment(key, FlowKey::SYN), now);
        let sent = parse::key(&Headers::parse(LinkType::Ethernet, &sent), &sent, 0).flow();
        let answer = FlowKey::SYN | FlowKey::ACK;
        self.pass(0, &segment(&sent.reversed(), answer), now);
        self.pass(0, &segment(key, FlowKey::ACK), now);
        self.pass(0, &segment(key, FlowKey::ACK), now)
    }

    fn sum(&self) -> crate::Sum {
        self.hub.states()[0].counts
    }

    fn active(&self) -> u32 {
        self.hub.states()[0].backends.iter().map(|backend| backend.active).sum()
    }

    fn in_front(&self) -> usize {
        self.hub.occupancy().iter().map(|one| one.in_front).sum()
    }
}

fn segment(key: &FlowKey, flags: u8) -> Vec<u8> {
    Build::new(&FlowKey { tcp_flags: flags, ..*key }).payload(&[7; 100]).bytes()
}

fn web(mode: Mode, v6: bool) -> Service {
    let [vip, to, _] = addrs(v6);
    let port = mode.translates().then_some(8080);
    let mut service = service("web", vip, proto::TCP, 80..=80, mode);
    service.backends = vec![backend(1, to, port)];
    service
}

/// A client's flow to the service.
fn client(v6: bool, port: u16) -> FlowKey {
    let [vip, _, client] = addrs(v6);
    FlowKey::five_tuple(proto::TCP, client, port, vip, 80)
}

/// The frame that an entry makes of a segment of this flow, by what its fields say.
fn made(entry: &Entry, flow: &FlowKey, flags: u8) -> Vec<u8> {
    assert_eq!(entry.key.flow(), flow.flow(), "the entry is that of the flow");
    assert!(entry.hop);
    let (src, dst) = (flow.src_ip().unwrap(), flow.dst_ip().unwrap());
    let new = match entry.change {
        Change::None => *flow,
        Change::Source(addr, port) => {
            FlowKey::five_tuple(flow.proto, addr, port.unwrap_or(flow.sport), dst, flow.dport)
        }
        Change::Destination(addr, port) => {
            FlowKey::five_tuple(flow.proto, src, flow.sport, addr, port.unwrap_or(flow.dport))
        }
        Change::Tunnel(..) => panic!("a tunnel's header is not built here"),
    };
    let (eth_dst, eth_src) = entry.macs.expect("the addresses are known");
    let new = FlowKey { eth_dst, eth_src, tcp_flags: flags, ..new };
    Build::new(&new).ttl(63).payload(&[7; 100]).bytes()
}

#[test]
fn an_entry_makes_the_same_frames_as_the_balancer() {
    for v6 in [false, true] {
        for mode in [Mode::Dsr, Mode::Dnat] {
            let mut bed = Bed::new(web(mode, v6), 1, &settings());
            let flow = client(v6, 4000);
            let (to, got) = bed.open(&flow, SECOND);
            let entries = bed.front.last();
            assert_eq!(entries.len(), if mode == Mode::Dnat { 2 } else { 1 }, "{mode:?}");
            assert_eq!(to, To::Port(entries[0].port));
            assert_eq!(got, made(&entries[0], &flow, FlowKey::ACK), "{mode:?}");
            let Some(back) = entries.get(1) else { continue };
            let sent = parse::key(&Headers::parse(LinkType::Ethernet, &got), &got, 0).flow();
            let reply = sent.reversed();
            let (to, got) = bed.pass(0, &segment(&reply, FlowKey::ACK), SECOND);
            assert_eq!(to, To::Port(back.port));
            assert_eq!(got, made(back, &reply, FlowKey::ACK), "the reply");
        }
    }
}

#[test]
fn a_tunnel_has_the_addresses_and_the_label_of_the_balancer() {
    for (v6, to_v6) in [(false, false), (true, true), (false, true), (true, false)] {
        let mut service = web(Mode::Ipip, v6);
        service.backends = vec![backend(1, addrs(to_v6)[1], None)];
        let mut bed = Bed::new(service, 1, &settings());
        let (to, got) = bed.open(&client(v6, 4000), SECOND);
        let [entry] = bed.front.last()[..] else { panic!("one entry") };
        assert_eq!((to, entry.macs), (To::Port(1), Some(([2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 0, 1]))));
        assert_eq!((&got[..6], &got[6..12]), (&[2, 0, 0, 0, 1, 1][..], &[2, 0, 0, 0, 0, 1][..]));
        let Change::Tunnel(src, dst, label) = entry.change else { panic!("{entry:?}") };
        let outer = Headers::parse(LinkType::Ethernet, &got);
        assert_eq!((outer.src_ip(&got), outer.dst_ip(&got)), (Some(src), Some(dst)));
        if to_v6 {
            let word = u32::from_be_bytes([got[14], got[15], got[16], got[17]]);
            assert_eq!(word & 0xf_ffff, label);
        }
    }
}

#[test]
fn the_mtu_of_an_entry_is_what_fits_behind_the_tunnel_header() {
    // The service's limit, the mode, the entry's limit; `None` if it cannot be put.
    for (limit, mode, wanted) in [
        (None, Mode::Dsr, Some(0)),
        (Some(1400), Mode::Dsr, Some(1400)),
        (Some(1400), Mode::Dnat, Some(1400)),
        (None, Mode::Ipip, Some(0)),
        (Some(1400), Mode::Ipip, Some(1380)),
        (Some(161), Mode::Ipip, Some(141)),
        (Some(21), Mode::Ipip, Some(1)),
        (Some(20), Mode::Ipip, None),
        (Some(19), Mode::Ipip, None),
    ] {
        let bed = Bed::new(Service { mtu: limit, ..web(mode, false) }, 1, &settings());
        let conn = ConnKey::of(&client(false, 4000));
        let hash = conn.hash(bed.hub.plan().seed());
        let target = bed.hub.plan().targets().next().expect("a backend").id;
        let entries = bed.works[0].entries(&conn, target, hash);
        let found = entries.map(|entries| entries[0].expect("an entry of the client").mtu);
        assert_eq!(found, wanted, "{limit:?} {mode:?}");
    }
}

#[test]
fn connections_that_need_the_balancer_are_not_put_in_front() {
    let plain = || web(Mode::Dnat, false);
    let proxied = Service { proxy: true, ..web(Mode::FullNat, false) };
    let returns = BalanceSettings { returns: true, ..settings() };
    let mut unknown = plain();
    unknown.backends[0].exit.via = Some(ip("10.0.1.254"));
    for (name, service, settings, put) in [
        ("plain", plain(), settings(), 1),
        ("GUE", web(Mode::Gue, false), settings(), 0),
        ("full NAT", web(Mode::FullNat, false), settings(), 0),
        ("a PROXY header", proxied, settings(), 0),
        ("replies to the station of the client", plain(), returns, 0),
        ("a next hop without an address", unknown, settings(), 0),
    ] {
        let mut bed = Bed::new(service, 1, &settings);
        bed.open(&client(false, 4000), SECOND);
        assert_eq!((bed.front.numbers().len(), bed.in_front()), (put, put), "{name}");
    }
}

#[test]
fn datagrams_are_put_in_front_unless_they_are_of_quic() {
    for is_quic in [false, true] {
        let mut service = Service { proto: proto::UDP, ..web(Mode::Dsr, false) };
        if is_quic {
            service.quic = vec![quic::Config::new(1, 1, 6, None).expect("a configuration")];
        }
        let mut bed = Bed::new(service, 1, &settings());
        let flow = FlowKey { proto: proto::UDP, ..client(false, 4000) };
        let data = Build::new(&flow).payload(&[0x40; 40]).bytes();
        // The second packet establishes the connection.
        for put in [0, 1, 1] {
            assert_eq!(bed.pass(0, &data, SECOND).0, To::Port(1));
            let put = if is_quic { 0 } else { put };
            assert_eq!(bed.front.numbers().len(), put);
        }
    }
}

#[test]
fn only_established_connections_are_put_and_each_of_them_once() {
    let mut bed = Bed::new(web(Mode::Dnat, false), 1, &settings());
    let flow = client(false, 4000);
    let ack = segment(&flow, FlowKey::ACK);
    bed.pass(0, &segment(&flow, FlowKey::SYN), SECOND);
    assert_eq!(bed.front.flows().offers, 0, "half open");
    bed.pass(0, &ack, SECOND);
    assert_eq!(bed.front.flows().offers, 0, "the backend has not answered");
    bed.open(&flow, SECOND);
    assert_eq!(bed.front.numbers(), [1]);
    for _ in 0..5 {
        bed.pass(0, &ack, SECOND);
    }
    assert_eq!((bed.front.numbers(), bed.front.flows().offers), (vec![1], 1));
    // A front without room is asked once for each state of a connection.
    bed.front.flows().is_full = true;
    let other = client(false, 4001);
    bed.open(&other, SECOND);
    for _ in 0..5 {
        bed.pass(0, &segment(&other, FlowKey::ACK), SECOND);
    }
    assert_eq!((bed.front.numbers(), bed.front.flows().offers), (vec![1], 2));
    assert_eq!(bed.in_front(), 1);
    bed.front.flows().is_full = false;
    bed.pass(0, &segment(&other, FlowKey::FIN), SECOND);
    assert_eq!(bed.front.flows().removed, [], "it never was in front");
}

#[test]
fn only_the_core_with_the_entry_puts_a_connection() {
    let mut bed = Bed::new(web(Mode::Dsr, false), 2, &settings());
    let flow = client(false, 4000);
    let ack = segment(&flow, FlowKey::ACK);
    bed.open(&flow, SECOND);
    assert_eq!(bed.front.numbers(), [1]);
    // The other core takes the connection over, with an entry of its own.
    for _ in 0..3 {
        bed.pass(1, &ack, SECOND);
    }
    assert!(bed.works[1].ahead.as_ref().is_some_and(|ahead| ahead.flows.len() <= 1));
    assert_eq!(bed.works[0].ahead.as_ref().map(|ahead| ahead.flows.len()), Some(1));
}

#[test]
fn what_was_answered_in_front_is_counted_once() {
    let mut bed = Bed::new(web(Mode::Dnat, false), 1, &settings());
    // More connections than a tick looks at.
    let count = 150;
    for port in 0..count {
        bed.open(&client(false, 4000 + port), SECOND);
    }
    assert_eq!((bed.front.numbers().len(), bed.in_front()), (150, 150));
    let before = bed.sum();
    for flow in bed.front.numbers() {
        bed.front.answers(flow, 0, 3, 300, SECOND);
        bed.front.answers(flow, 1, 2, 2000, SECOND);
    }
    let mut counted = Vec::new();
    for _ in 0..6 {
        bed.tick(SECOND);
        counted.push(bed.sum().ahead_packets);
    }
    // 64 of the flows in each tick; the next round begins with the first flow.
    assert_eq!(counted, [320, 640, 750, 750, 750, 750]);
    let after = bed.sum();
    assert_eq!(
        (after.in_packets - before.in_packets, after.in_bytes - before.in_bytes),
        (450, 45_000)
    );
    assert_eq!(
        (after.out_packets - before.out_packets, after.out_bytes - before.out_bytes),
        (300, 300_000)
    );
    // Later packets are counted, too.
    bed.front.answers(1, 1, 1, 60, SECOND);
    (0..3).for_each(|_| bed.tick(SECOND));
    assert_eq!((bed.sum().ahead_packets, bed.sum().out_bytes - after.out_bytes), (751, 60));
}

#[test]
fn a_connection_that_ends_leaves_the_front_with_its_last_packets_counted() {
    for flags in [FlowKey::FIN | FlowKey::ACK, FlowKey::RST, FlowKey::SYN] {
        let mut bed = Bed::new(web(Mode::Dnat, false), 1, &settings());
        let flow = client(false, 4000);
        bed.open(&flow, SECOND);
        bed.open(&client(false, 4001), SECOND);
        assert_eq!(bed.front.numbers(), [1, 2]);
        let before = bed.sum();
        let end = 10 * SECOND;
        bed.pass(0, &segment(&flow, flags), end);
        let stays = flags == FlowKey::SYN;
        // It is removed before the batch with the packet leaves.
        let wanted: &[u32] = if stays { &[1, 2] } else { &[2] };
        assert_eq!((&bed.front.numbers()[..], bed.in_front()), (wanted, wanted.len()));
        if stays {
            continue;
        }
        // Frames that were on their way are answered still.
        bed.front.answers(1, 0, 5, 500, end);
        bed.tick(end + AFTER);
        assert_eq!((bed.front.flows().freed.clone(), bed.sum().ahead_packets), (vec![], 0));
        bed.tick(end + AFTER + 1);
        assert_eq!(bed.front.flows().freed, [1]);
        let after = bed.sum();
        assert_eq!((after.ahead_packets, after.in_packets - before.in_packets), (5, 6));
        bed.tick(end + 3 * AFTER);
        assert_eq!((bed.front.flows().freed.len(), bed.sum().ahead_packets), (1, 5));
    }
}

#[test]
fn answered_packets_keep_a_connection_and_silence_ends_it() {
    let mut bed = Bed::new(web(Mode::Dnat, false), 1, &settings());
    let (minute, flow) = (60 * SECOND, client(false, 4000));
    bed.open(&flow, SECOND);
    bed.open(&client(false, 4001), SECOND);
    assert_eq!(bed.active(), 2);
    // The timeout of an open connection is 15 minutes. Only the replies of the first one are answered in front.
    for now in 1..40 {
        bed.front.answers(1, 1, 1, 60, now * minute);
        bed.tick(now * minute);
        let left = if now < 16 { 2 } else { 1 };
        assert_eq!((bed.active(), bed.in_front()), (left, left as usize), "{now} minutes");
    }
    assert_eq!(bed.front.numbers(), [1]);
    assert_eq!(bed.front.flows().freed, [2]);
    // The last packet came in minute 39.
    bed.tick(53 * minute);
    assert_eq!((bed.active(), bed.in_front()), (1, 1));
    bed.tick(55 * minute);
    assert_eq!((bed.active(), bed.in_front(), bed.front.numbers()), (0, 0, vec![]));
}

/// Entries of a connection are in the tables of two cores; one of them is counted, and the other one expires first.
#[test]
fn a_connection_that_another_core_counts_is_not_subtracted() {
    let mut bed = Bed::new(web(Mode::Dsr, false), 2, &settings());
    let (minute, flow) = (60 * SECOND, client(false, 4000));
    bed.open(&flow, SECOND);
    let ack = segment(&flow, FlowKey::ACK);
    bed.pass(1, &ack, SECOND);
    bed.pass(1, &ack, 10 * minute);
    for (now, left) in [(1, 1), (14, 1), (16, 1), (24, 1), (26, 0)] {
        bed.tick(now * minute);
        assert_eq!(bed.active(), left, "{now} minutes");
    }
}

#[test]
fn a_change_of_the_backend_replaces_the_entries() {
    let mut bed = Bed::new(web(Mode::Dsr, false), 1, &settings());
    let flow = client(false, 4000);
    let ack = segment(&flow, FlowKey::ACK);
    bed.open(&flow, SECOND);
    bed.tick(SECOND);
    assert_eq!(bed.front.numbers(), [1], "nothing has changed");
    let mut moved = web(Mode::Dsr, false);
    moved.backends[0].exit.dst = [2, 0, 0, 0, 1, 77];
    bed.hub.set(vec![moved], 2 * SECOND).expect("a good service");
    bed.tick(2 * SECOND);
    assert_eq!((bed.front.numbers(), bed.in_front()), (vec![], 0));
    assert_eq!(bed.front.flows().removed, [1]);
    // The next packet puts it there again.
    let (_, got) = bed.pass(0, &ack, 2 * SECOND);
    assert_eq!((bed.front.numbers(), bed.in_front()), (vec![2], 1));
    assert_eq!(got, made(&bed.front.last()[0], &flow, FlowKey::ACK));
    assert_eq!(got[..6], [2, 0, 0, 0, 1, 77]);
    // A backend that is gone: the connection moves to the other one.
    let mut other = web(Mode::Dsr, false);
    other.backends = vec![backend(2, ip("10.0.1.2"), None)];
    bed.hub.set(vec![other], 3 * SECOND).expect("a good service");
    bed.tick(3 * SECOND);
    assert_eq!((bed.front.numbers(), bed.in_front()), (vec![], 0));
    let (to, _) = bed.pass(0, &ack, 3 * SECOND);
    bed.pass(0, &ack, 3 * SECOND);
    assert_eq!((to, bed.front.numbers()), (To::Port(2), vec![3]));
    assert_eq!(bed.front.last()[0].port, 2);
}

#[test]
fn a_backend_that_is_down_is_not_answered_for() {
    let mut service = web(Mode::Dsr, false);
    service.backends.push(backend(2, ip("10.0.1.2"), None));
    let mut bed = Bed::new(service, 1, &settings());
    let flow = client(false, 4000);
    let (to, _) = bed.open(&flow, SECOND);
    let To::Port(port) = to else { panic!("{to:?}") };
    let down = bed.hub.plan().targets().find(|target| target.exit.port == port).expect("it").id;
    let change = crate::health::Change { backend: down, is_up: false };
    bed.hub.set_health(&[change], 2 * SECOND);
    let states = bed.hub.states();
    assert_eq!((states.len(), states[0].backends.iter().filter(|one| one.is_up).count()), (1, 1));
    bed.tick(2 * SECOND);
    assert_eq!(bed.front.numbers(), []);
    let (now, _) = bed.pass(0, &segment(&flow, FlowKey::ACK), 2 * SECOND);
    assert_ne!(now, to);
}

#[test]
fn a_balancer_that_ends_removes_its_flows_and_counts_them() {
    let mut bed = Bed::new(web(Mode::Dnat, false), 1, &settings());
    for port in [4000, 4001] {
        bed.open(&client(false, port), SECOND);
    }
    bed.pass(0, &segment(&client(false, 4001), FlowKey::RST), SECOND);
    bed.front.answers(1, 0, 7, 700, SECOND);
    bed.works.clear();
    assert_eq!((bed.front.numbers(), bed.sum().ahead_packets), (vec![], 7));
}
