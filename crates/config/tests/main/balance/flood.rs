//! Forged packets beside clients in a complete engine with an ordered queue on two cores: every client keeps
//! its backend, its packets and their answers stay in order, and every frame is sent.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use flowyard_config::Config;
use flowyard_flow::parse;
use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Nanos, proto};
use flowyard_pool::{Meta, Pool};
use flowyard_ports::port::Collect;
use flowyard_testkit::Build;
use flowyard_wire::{Headers, LinkType};
use flowyard_yard::Parts;
use flowyard_yard::port::{Received, Rx, Tx};
use flowyard_yard::sim::{Faults, Sim};

use super::Fed;

flowyard_testkit::tests! {
    clients_beside_a_flood_keep_their_backend_and_their_order,
}

/// The interval between frames.
const EVERY: Nanos = 2000;
const CLIENTS: u64 = 100;
/// Packets of each client: a SYN and further ones.
const PACKETS: u64 = 6;
/// One of N frames is of a client, the others are forged.
const SHARE: u64 = 40;
const FRAMES: u64 = CLIENTS * PACKETS * SHARE;
const SYN_ACK: u8 = FlowKey::SYN | FlowKey::ACK;

/// The client and the number of a packet, in its payload; forged packets have 0.
const fn mark(client: u64, packet: u64) -> u64 {
    (client + 1) << 32 | packet
}

fn tcp(src: [u8; 4], sport: u16, flags: u8) -> FlowKey {
    let vip = IpAddr::from([192, 0, 2, 1]);
    let flow = FlowKey::five_tuple(proto::TCP, IpAddr::from(src), sport, vip, 80);
    FlowKey { tcp_flags: flags, ..flow }
}

/// Clients in turn, and forged packets of as many addresses.
struct Street {
    sent: u64,
    end: Arc<AtomicBool>,
}

impl Rx for Street {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        while into.len() < LANES && self.sent < FRAMES && self.sent * EVERY <= now {
            let (turn, number) = (self.sent / SHARE, self.sent as u32);
            let [_, a, b, c] = number.to_be_bytes();
            let (key, mark) = match self.sent % SHARE {
                0 => {
                    let (client, packet) = (turn % CLIENTS, turn / CLIENTS);
                    let flags = if packet == 0 { FlowKey::SYN } else { FlowKey::ACK };
                    (tcp([203, 0, 113, client as u8], 4000, flags), mark(client, packet))
                }
                odd if odd % 2 == 1 => {
                    (tcp([20, a, b, c], 1024 + number as u16 / 2, FlowKey::SYN), 0)
                }
                _ => (tcp([30, a, b, c], 1024 + number as u16 / 2, FlowKey::ACK), 0),
            };
            let data = Build::new(&key).flags(key.tcp_flags).payload(&mark.to_be_bytes()).bytes();
            let meta = Meta { time: now, wire_len: data.len() as u32, ..Meta::default() };
            let Ok(frame) = pool.copy(&data, meta) else { break };
            into.push(frame, FlowKey::ZERO).unwrap();
            self.sent += 1;
        }
        Received { ended: self.end.load(Ordering::Relaxed), ..Received::default() }
    }
}

/// Answers of the servers, until the test ends.
struct Answers(Fed, Arc<AtomicBool>);

impl Rx for Answers {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let received = self.0.rx(into, pool, now);
        Received { ended: self.1.load(Ordering::Relaxed) && into.is_empty(), ..received }
    }
}

/// What the servers have received of clients: the mark, and the flow after translation with the backend's MAC
/// address.
type Seen = Arc<Mutex<Vec<(u64, FlowKey, [u8; 6])>>>;

/// The servers. Where answers pass through the balancer, they answer as a TCP does.
struct Servers {
    seen: Seen,
    known: HashSet<FlowKey>,
    answers: Option<Fed>,
}

impl Tx for Servers {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, _: Nanos) -> Lanes {
        for lane in lanes {
            let data = pool.bytes(&from.frames[lane]);
            let outer = Headers::parse(LinkType::Ethernet, data);
            let headers = outer.inner(data).unwrap_or(outer);
            let key = parse::key(&headers, data, 0);
            let mark = u64::from_be_bytes(*data.last_chunk().unwrap());
            if mark != 0 {
                let mac = *data.first_chunk().unwrap();
                self.seen.lock().unwrap().push((mark, key.flow(), mac));
            }
            let Some(answers) = &self.answers else { continue };
            let flags = match key.tcp_flags {
                FlowKey::SYN => {
                    self.known.insert(key.flow());
                    SYN_ACK
                }
                _ if self.known.contains(&key.flow()) => FlowKey::ACK,
                _ => FlowKey::RST,
            };
            let reply = key.flow().reversed();
            answers.give(Build::new(&reply).flags(flags).payload(&mark.to_be_bytes()).bytes());
        }
        Lanes::NONE
    }
}

fn config(mode: &str) -> Config {
    let mut text = format!(
        r#"
        [yard]
        cores = 3
        [[port]]
        name = "west"
        kind = "mem"
        in = "given"
        [[port]]
        name = "east"
        kind = "mem"
        in = "given"
        [[queue]]
        name = "split"
        order = "ordered"
        consumers = [1, 2]
        [work]
        kind = "balance"
        cost_ns = 300
        [balance]
        entries = 251
        connections = 8192
        full = "drop"
        local = ["10.9.0.1", "10.9.0.2", "10.9.0.3"]
        clients = {{ port = "west", next_hop = "02:00:00:00:09:09" }}
        [[service]]
        name = "web"
        vip = "192.0.2.1"
        proto = "tcp"
        port = 80
        mode = "{mode}"
        "#
    );
    for n in 1..=5 {
        text += &format!(
            "[[service.backend]]\nname = \"b{n}\"\naddr = \"10.0.1.{n}\"\nexit = {{ port = \"east\", next_hop = \"02:00:00:00:01:0{n}\" }}\n"
        );
    }
    Config::parse("flood.toml", &text).unwrap()
}

fn run(mode: &str, seed: u64) {
    let two_way = matches!(mode, "dnat" | "fullnat");
    let (end, seen, fed) = (Arc::new(AtomicBool::new(false)), Seen::default(), Fed::default());
    let clients = Collect::default();
    let mut parts = Parts::default();
    parts.rx.insert(0, Box::new(Street { sent: 0, end: Arc::clone(&end) }));
    parts.rx.insert(1, Box::new(Answers(fed.clone(), Arc::clone(&end))));
    parts.tx.insert(0, Box::new(clients.clone()));
    let answers = two_way.then(|| fed.clone());
    let servers = Servers { seen: Arc::clone(&seen), known: HashSet::new(), answers };
    parts.tx.insert(1, Box::new(servers));
    let yard = config(mode).build(parts).unwrap();
    let faults = Faults { stall_every: 500, stall_ns: 5_000, ..Faults::default() };
    let mut sim = Sim::new(yard, seed, faults);
    let wanted = if two_way { 2 * FRAMES } else { FRAMES };
    let mut steps = 0u64;
    while sim.total().tx_frames + sim.total().drops.total() < wanted {
        (0..64).for_each(|_| _ = sim.step());
        steps += 64;
        assert!(steps < 400_000_000, "{mode}, seed {seed}: {:?}", sim.total());
    }
    end.store(true, Ordering::Relaxed);
    let total = sim.run().unwrap();
    assert_eq!((total.rx_frames, total.tx_frames), (wanted, wanted), "{mode}: {:?}", total.drops);
    let pool = sim.yard.pool.share();
    drop(sim);
    assert_eq!(pool.held(), 0);

    let mut next: HashMap<u64, (u64, FlowKey, [u8; 6])> = HashMap::new();
    for (mark, flow, mac) in seen.lock().unwrap().drain(..) {
        let (client, packet) = (mark >> 32, mark & 0xffff_ffff);
        let known = next.entry(client).or_insert((0, flow, mac));
        assert_eq!(packet, known.0, "{mode}, seed {seed}: order of client {client}");
        assert_eq!((flow, mac), (known.1, known.2), "{mode}, seed {seed}: client {client}");
        known.0 += 1;
    }
    let served = next.values().filter(|known| known.0 == PACKETS).count() as u64;
    assert_eq!(served, CLIENTS, "{mode}, seed {seed}");
    let mut answered = vec![0; CLIENTS as usize + 1];
    for (_, data) in clients.take().iter() {
        let mark = u64::from_be_bytes(*data.last_chunk().unwrap());
        if mark != 0 {
            let of = &mut answered[(mark >> 32) as usize];
            assert_eq!(mark & 0xffff_ffff, *of, "{mode}, seed {seed}: order of answers");
            *of += 1;
        }
    }
    let all = if two_way { CLIENTS } else { 0 };
    assert_eq!(answered.iter().filter(|&&count| count == PACKETS).count() as u64, all, "{mode}");
}

fn clients_beside_a_flood_keep_their_backend_and_their_order() {
    for (seed, mode) in (1..).zip(["dsr", "ipip", "gue", "dnat", "fullnat"]) {
        run(mode, seed);
    }
}
