//! Nodes in one process that synchronize over the loopback interface.
#![allow(clippy::disallowed_methods, reason = "tests of real sockets wait by the clock")]

use std::net::IpAddr;
use std::time::Instant;

use flowyard_flow::{Secret, parse};
use flowyard_frame::{Action, Batch, FlowKey, Nanos, To, proto};
use flowyard_lb::{
    Backend, Balance, BalanceSettings, Choice, Control, Exit, Mode, Service, Timeouts,
};
use flowyard_pool::{Meta, Pool};
use flowyard_testkit::Build;
use flowyard_wire::{Headers, LinkType};
use flowyard_yard::work::Work;
use proptest::prelude::*;

use super::wire::{BadMessage, Part};
use super::*;

mod ends;

const SECRET: &[u8] = b"a secret that all nodes know";

/// Backends 1 to 4, of which `drained` get no new connections.
fn service(drained: &[u8]) -> Service {
    let backend = |n: u8| Backend {
        name: format!("b{n}"),
        addr: IpAddr::from([10, 0, 1, n]),
        port: None,
        weight: 1,
        drain: drained.contains(&n),
        backup: false,
        ceiling: None,
        exit: Exit { port: n.into(), src: [2; 6], dst: [2; 6], via: None },
        server_id: Vec::new(),
    };
    let vip = IpAddr::from([192, 0, 2, 1]);
    let service = Service::new("web", vip, proto::TCP, 80..=80, Mode::Dsr, Vec::new());
    Service { choice: Choice::Maglev, backends: (1..=4).map(backend).collect(), ..service }
}

struct Node {
    hub: Arc<Hub>,
    balance: Balance,
    shared: Arc<Synchronization>,
    bound: Option<Bound>,
    threads: Option<Synchronizer>,
    clock: Clock,
}

impl Node {
    /// A node that listens on `listen`, whose socket is `bound`.
    fn new(seed: u64, bound: Bound, peers: &[SocketAddr]) -> Self {
        let control = Control::new(vec![service(&[])], 251, seed).unwrap();
        let hub = Arc::new(Hub::new(control));
        let settings = BalanceSettings {
            connections: 4096,
            full_drops: false,
            opening_most: 2048,
            timeouts: Timeouts::default(),
            clients: Exit::default(),
            returns: false,
            local: Vec::new(),
            pass: Vec::new(),
            places: Vec::new(),
            neighbour_fresh: 0,
            replicated: 4096,
            secret: Secret::FIXED,
        };
        let balance = Balance::group(&hub, 1, &settings).remove(0);
        let listen = bound.0.local_addr().unwrap();
        let peers = peers.iter().copied().filter(|peer| *peer != listen).collect();
        let (interval, wait) = (Duration::from_millis(50), Duration::from_secs(60));
        let settings = SyncSettings { listen, peers, interval, wait };
        let shared = Arc::new(Synchronization::new(settings));
        let began = Instant::now();
        let clock: Clock = Arc::new(move || began.elapsed().as_nanos() as Nanos + 1_000_000_000);
        Self { hub, balance, shared, bound: Some(bound), threads: None, clock }
    }

    fn start(&mut self, secret: &[u8]) {
        let bound = self.bound.take().unwrap();
        let parts = (Arc::clone(&self.hub), Arc::clone(&self.clock));
        self.threads = Some(Synchronizer::start_for(parts, &self.shared, bound, secret).unwrap());
    }

    fn send(&mut self, client: u16, flags: u8) -> To {
        self.send_at(client, flags, 0)
    }

    /// Sends a segment with this sequence number.
    fn send_at(&mut self, client: u16, flags: u8, seq: u32) -> To {
        let [a, b] = client.to_be_bytes();
        let (from, vip) = (IpAddr::from([10, 1, a, b]), IpAddr::from([192, 0, 2, 1]));
        let key = FlowKey::five_tuple(proto::TCP, from, 7000, vip, 80);
        let data = Build::new(&key).flags(flags).seq(seq).bytes();
        let (mut pool, mut batch) = (Pool::new(8, 2048), Batch::default());
        let frame = pool.copy(&data, Meta { wire_len: data.len() as u32, ..Meta::default() });
        let key = parse::key(&Headers::parse(LinkType::Ethernet, &data), &data, 0);
        let lane = batch.push(frame.unwrap(), key).unwrap();
        batch.actions[lane] = Action::queue(0);
        self.balance.work(&mut batch, &pool, (self.clock)());
        batch.actions[lane].to
    }

    /// Opens connections of these clients.
    fn open(&mut self, clients: std::ops::Range<u16>) -> Vec<(u16, To)> {
        let one = |client| {
            let first = self.send(client, FlowKey::SYN);
            assert_eq!(self.send(client, FlowKey::ACK), first);
            (client, first)
        };
        clients.map(one).collect()
    }

    fn drain(&self) {
        self.hub.set(vec![service(&[1])], (self.clock)()).unwrap();
    }

    fn stored(&self) -> u64 {
        self.hub.replicated().unwrap().len((self.clock)()) as u64
    }
}

/// Nodes that know each other, and do not run yet.
fn nodes<const N: usize>() -> [Node; N] {
    let bound = [(); N].map(|()| Bound::bind("127.0.0.1:0".parse().unwrap()).unwrap());
    let all = bound.iter().map(|bound| bound.0.local_addr().unwrap()).collect::<Vec<_>>();
    bound.map(|bound| Node::new(1 << 40, bound, &all))
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what} did not happen");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_node_learns_the_connections_that_the_tables_do_not_explain() {
    let [mut had, mut first, mut second] = nodes();
    let clients = had.open(0..300);
    [&had, &first, &second].into_iter().for_each(Node::drain);
    [&mut had, &mut first].into_iter().for_each(|node| node.start(SECRET));
    until("a report", || had.shared.reported() > 50 && first.stored() == had.shared.reported());
    // A node that starts later gets all of them, and not only new ones.
    assert!(!first.shared.is_ready(Duration::from_secs(59)), "the third node has not reported");
    second.start(SECRET);
    until("a report to the third node", || second.stored() == had.shared.reported());
    until("readiness", || first.shared.is_ready(Duration::ZERO));
    for node in [&mut first, &mut second] {
        assert!(clients.iter().all(|(client, to)| node.send(*client, FlowKey::ACK) == *to));
    }
    let (took, scanned) = had.shared.last_scan();
    assert!(took > Duration::ZERO && scanned == 300);
    // What peers have counted is what was sent to them.
    let [to_first, to_second] = [0, 1].map(|at| {
        let peer = &had.shared.peers[at];
        (peer.sent.load(Relaxed), peer.sent_bytes.load(Relaxed))
    });
    assert!(to_first.0 >= had.shared.reported() && to_second.0 >= had.shared.reported());
    assert!(to_second.1 / to_second.0 < 100, "{to_second:?}");
}

#[test]
fn a_node_that_was_restarted_gets_all_connections_again() {
    let [mut had, mut other] = nodes();
    let clients = had.open(0..300);
    [&had, &other].into_iter().for_each(Node::drain);
    [&mut had, &mut other].into_iter().for_each(|node| node.start(SECRET));
    until("a report", || had.shared.reported() > 50 && other.stored() == had.shared.reported());
    let listen = other.shared.settings.listen;
    drop(other);
    until("the end of the session", || !had.shared.peers[0].sends.load(Relaxed));
    assert!(had.shared.peers[0].wrong().is_some());
    let mut other = Node::new(1 << 40, Bound::bind(listen).unwrap(), &[had.shared.settings.listen]);
    other.drain();
    other.start(SECRET);
    until("a second report", || other.stored() == had.shared.reported());
    assert!(clients.iter().all(|(client, to)| other.send(*client, FlowKey::ACK) == *to));
    assert_eq!(had.shared.peers[0].wrong(), None);
}

#[test]
fn a_node_that_ends_leaves_its_reports() {
    let [mut had, mut other] = nodes();
    let clients = had.open(0..300);
    [&had, &other].into_iter().for_each(Node::drain);
    [&mut had, &mut other].into_iter().for_each(|node| node.start(SECRET));
    until("a report", || had.shared.reported() > 50 && other.stored() == had.shared.reported());
    drop(had);
    assert!(clients.iter().all(|(client, to)| other.send(*client, FlowKey::ACK) == *to));
}

#[test]
fn a_node_with_another_key_or_seed_is_refused() {
    for (secret, seed, why) in
        [(&b"another secret of a node"[..], 1 << 40, "key_file"), (SECRET, 1 << 41, "closed")]
    {
        let [mut had, other] = nodes();
        had.open(0..300);
        had.drain();
        let mut other =
            Node::new(seed, { other }.bound.take().unwrap(), &[had.shared.settings.listen]);
        had.start(SECRET);
        other.start(secret);
        until(why, || had.shared.peers[0].wrong().is_some_and(|text| text.contains(why)));
        until("a scan", || had.shared.reported() > 0);
        assert_eq!((other.stored(), other.shared.peers[0].received.load(Relaxed)), (0, 0));
        assert!(!other.shared.peers[0].is_complete.load(Relaxed));
    }
}

#[test]
fn a_message_that_was_changed_on_its_way_ends_the_session() {
    use std::io::Read;
    let (mut to, mut from) = (TestPipe::default(), Vec::new());
    let key = Key::new(HMAC_SHA256, SECRET);
    let (mut sends, mut receives) = sessions(&key);
    sends.write(&mut to, b"one").unwrap();
    sends.write(&mut to, b"two").unwrap();
    let good = to.0.clone();
    receives.read(&mut &good[..], &mut from).unwrap();
    assert_eq!(from, b"one");
    // The first message again, a message of another session, and each changed byte.
    assert!(receives.read(&mut &good[..], &mut from).is_err());
    let (_, mut other) = sessions(&key);
    assert!(other.read(&mut &good[..], &mut from).is_err());
    let second = &good[4 + 3 + 32..];
    for at in 0..second.len() {
        let mut bad = second.to_vec();
        bad[at] ^= 1;
        let mut chained = bad.chain(std::io::empty());
        assert!(receives.read(&mut chained, &mut from).is_err(), "{at}");
    }
    receives.read(&mut &second[..], &mut from).unwrap();
    assert_eq!(from, b"two");
}

#[derive(Default)]
struct TestPipe(Vec<u8>);

impl std::io::Write for TestPipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Both ends of a session.
fn sessions(key: &Key) -> (session::Session, session::Session) {
    let (mut a, mut b) = std::os::unix::net::UnixStream::pair().unwrap();
    let of_key = key.clone();
    let other = thread::spawn(move || session::Session::accept(&mut b, &of_key).unwrap());
    (session::Session::connect(&mut a, key).unwrap(), other.join().unwrap())
}

fn report() -> impl Strategy<Value = Part> {
    prop_oneof![
        (any::<u64>(), 1u64..4, 1u32..4).prop_map(|(hash, backend, lifetime)| Part::Has {
            hash,
            backend,
            lifetime
        }),
        any::<u64>().prop_map(|hash| Part::Gone { hash }),
        (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(hash, end, age_ms)| Part::Ended {
            hash,
            end,
            age_ms
        }),
    ]
}

proptest! {
    /// What is packed is what is read.
    #[test]
    fn messages_contain_what_was_reported(reports in prop::collection::vec(report(), 0..3000)) {
        let mut packer = Packer::default();
        for part in &reports {
            match *part {
                Part::Has { hash, backend, lifetime } => packer.has(hash, backend, lifetime),
                Part::Gone { hash } => packer.gone(hash),
                Part::Ended { hash, end, age_ms } => packer.ended(hash, end, age_ms),
                _ => unreachable!("not generated"),
            }
        }
        let messages = packer.finish();
        prop_assert!(messages.iter().all(|message| message.bytes.len() <= wire::LONGEST));
        let count: u64 = messages.iter().map(|message| message.connections).sum();
        let has = reports.iter().filter(|part| matches!(part, Part::Has { .. })).count() as u64;
        prop_assert_eq!(count, has);
        let count: u64 = messages.iter().map(|message| message.ends).sum();
        let ended = reports.iter().filter(|part| matches!(part, Part::Ended { .. })).count() as u64;
        prop_assert_eq!(count, ended);
        let read = messages.iter().flat_map(|message| wire::read(&message.bytes).unwrap());
        let text = |part: &Part| format!("{part:?}");
        let (mut read, mut sent): (Vec<_>, Vec<_>) =
            (read.map(|part| text(&part)).collect(), reports.iter().map(text).collect());
        read.sort();
        sent.sort();
        prop_assert_eq!(read, sent);
    }

    /// Bytes of any kind are read without a panic, and no message is longer than what it was read from.
    #[test]
    fn bytes_of_any_kind_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..8) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        if let Ok(parts) = wire::read(&bytes) {
            prop_assert!(parts.len() <= bytes.len());
        }
    }
}

#[test]
fn messages_that_are_not_well_formed_are_refused() {
    let mut packer = Packer::default();
    packer.has(1, 2, 3);
    let has = packer.finish().remove(0).bytes;
    for end in 0..has.len() {
        if end != 1 {
            assert_eq!(wire::read(&has[..end]), Err(BadMessage), "{end}");
        }
    }
    let hello = wire::hello(7, 80);
    assert_eq!(wire::read(&hello), Ok(vec![Part::Hello { check: 7, port: 80 }]));
    let verdicts: Vec<_> = (0..1500).map(|n| (n, n % 3 == 0)).collect();
    let read: Vec<_> =
        wire::health(&verdicts).flat_map(|message| wire::read(&message.bytes).unwrap()).collect();
    let sent = verdicts.iter().map(|&(backend, is_up)| Part::Verdict { backend, is_up });
    assert_eq!(read, sent.collect::<Vec<_>>());
    let bad_verdict = [&[5][..], &[0; 8], &[2]].concat();
    assert_eq!(wire::read(&bad_verdict), Err(BadMessage));
    for bad in
        [&hello[..10], &[&hello[..], &[0]].concat(), &[9], &[4, 0], &[3, 1, 2], &[6; 16], &[6; 18]]
    {
        assert_eq!(wire::read(bad), Err(BadMessage), "{bad:?}");
    }
}

#[test]
fn nodes_know_the_verdicts_of_each_other_while_they_have_sessions() {
    let [mut one, mut two, mut three] = nodes();
    for (node, verdicts) in [(&one, [true, true]), (&two, [false, true]), (&three, [false, false])]
    {
        node.shared.set_verdicts((1..).zip(verdicts).collect());
    }
    [&mut one, &mut two, &mut three].into_iter().for_each(|node| node.start(SECRET));
    let votes = |node: &Node, backend| {
        let mut votes = node.shared.votes(backend);
        votes.sort();
        votes
    };
    until("the verdicts", || {
        votes(&one, 1) == [false, false]
            && votes(&two, 1) == [false, true]
            && one.shared.nodes() == 3
    });
    until("the others", || votes(&one, 2) == [false, true] && votes(&three, 2) == [true, true]);
    assert_eq!((one.shared.verdict(1), one.shared.verdict(3)), (Some(true), None));
    // A changed verdict arrives, a backend that is not checked any more has none, and a node that has gone has none.
    two.shared.set_verdicts([(1, true)].into());
    until("the change", || votes(&one, 1) == [false, true] && votes(&one, 2) == [false]);
    drop(three);
    until("the end", || votes(&one, 1) == [true] && votes(&one, 2).is_empty());
}

#[test]
fn a_change_of_the_tables_is_reported_before_the_next_scan_is_due() {
    let [mut had, mut other] = nodes();
    let interval = Duration::from_secs(3600);
    for node in [&mut had, &mut other] {
        let settings = SyncSettings { interval, ..node.shared.settings.clone() };
        node.shared = Arc::new(Synchronization::new(settings));
    }
    had.open(0..300);
    other.start(SECRET);
    had.start(SECRET);
    // So is a new session.
    until("a scan for the session", || other.shared.peers[0].is_complete.load(Relaxed));
    assert_eq!(had.shared.reported(), 0);
    had.drain();
    until("a report", || had.shared.reported() > 50 && other.stored() == had.shared.reported());
}

#[test]
fn what_is_done_between_scans_goes_on_while_they_are_not_due() {
    let [node] = nodes();
    let (called, least) = (std::cell::Cell::new(0), 3 * LOOK);
    let ended = rest(&node.shared, || called.set(called.get() + 1), || true, least);
    assert_eq!((ended, called.get()), (false, 3), "the next scan is due after the least time");
    *lock(&node.shared.stop) = true;
    assert!(rest(&node.shared, || called.set(called.get() + 1), || false, least));
    assert!(rest(&node.shared, || called.set(called.get() + 1), || true, Duration::ZERO));
    assert_eq!(called.get(), 3);
}

#[test]
fn slow_scans_do_not_make_a_session_silent() {
    for millis in [0, 10, 500, 1200, 4000] {
        let took = Duration::from_millis(millis);
        let rest = least_rest(took);
        assert!(rest + took < peers::SILENT, "{took:?}");
        assert!(rest == 9 * took || rest == peers::SILENT / 2);
    }
}
