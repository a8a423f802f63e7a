//! A balancer whose ports have adapters that mark frames of its connections, beside one without. The same frames leave by
//! the same ports, in the same order per flow, and the counters are equal, while connections are opened, closed and
//! opened again, adapters are full or refuse, and marks are late or wrong.
//!
//! `FLOWYARD_SEEDS` runs more seeds than the fixed 40.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowyard_config::Config;
use flowyard_dpdk::rules::Limits;
use flowyard_flow::parse;
use flowyard_frame::{FlowKey, Nanos, proto};
use flowyard_front::Adapters;
use flowyard_lb::Hub;
use flowyard_ports::port::Collect;
use flowyard_testkit::{Build, Rng};
use flowyard_wire::{Headers, LinkType};
use flowyard_yard::front::{Change, Entry, Front};
use flowyard_yard::{ControlPlane, Counters, Parts, Tick, Yard};

use crate::nic::{Nic, limits};

flowyard_testkit::tests! {
    marks_of_adapters_do_not_change_the_balancer,
    what_an_adapter_refuses_is_looked_up_and_explained,
}

/// Clients, and backends.
const PORTS: u16 = 2;
const FLOWS: u64 = 30;

fn config(rng: &mut Rng, offloads: bool, flows: u64) -> Config {
    let cores = 1 + rng.below(2);
    let all: Vec<u64> = (0..cores).collect();
    let mut text = format!("[yard]\ncores = {cores}\nhold_frames = 64\n");
    for (at, name) in ["west", "east"].iter().enumerate() {
        let core = at as u64 % cores;
        text +=
            &format!("[[port]]\nname = \"{name}\"\nkind = \"mem\"\nin = \"none\"\ncore = {core}\n");
    }
    match rng.below(2) {
        0 => {
            for core in all {
                text += &format!(
                    "[[queue]]\nname = \"d{core}\"\norder = \"direct\"\nconsumers = [{core}]\n"
                );
            }
        }
        _ => text += &format!("[[queue]]\nname = \"q\"\norder = \"atomic\"\nconsumers = {all:?}\n"),
    }
    if offloads {
        text += &format!("[offload]\nrules = true\nflows = {flows}\n");
    }
    text += "[work]\nkind = \"balance\"\n[balance]\nentries = 251\nconnections = 4096\n\
             clients = { port = \"west\", next_hop = \"02:00:00:00:00:99\" }\n";
    for (n, (mode, proto)) in [("dsr", "tcp"), ("dnat", "tcp"), ("dnat", "udp")].iter().enumerate()
    {
        text += &format!(
            "[[service]]\nname = \"s{n}\"\nvip = \"192.0.2.{n}\"\nport = 80\nmode = \"{mode}\"\nproto = \"{proto}\"\n"
        );
        for b in 1..=2 {
            text += &format!(
                "[[service.backend]]\nname = \"b{b}\"\naddr = \"10.0.{n}.{b}\"\n\
                 exit = {{ port = \"east\", next_hop = \"02:00:00:00:0{n}:0{b}\" }}\n"
            );
        }
    }
    Config::parse("marks.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

struct Bed {
    yard: Yard,
    hub: Arc<Hub>,
    nics: Vec<Nic>,
    ports: Vec<Collect>,
    adapters: Option<Arc<Adapters>>,
    now: Nanos,
}

/// By port and flow: the frames in their order.
type Out = BTreeMap<(usize, u64), Vec<Vec<u8>>>;

impl Bed {
    /// `flows`: what the adapters take; `None` for a yard without them.
    fn new(config: &Config, mut rng: Rng, flows: Option<u64>, limited: Option<&Limits>) -> Self {
        let mut parts = Parts::default();
        let adapters = flows.map(|flows| Arc::new(Adapters::new(flows as u32)));
        let (mut nics, mut ports) = (Vec::new(), Vec::new());
        for port in 0..PORTS {
            let limits = limited.cloned().unwrap_or_else(|| limits(&mut rng, 1));
            let nic = Nic::new(port, limits, Rng::new(rng.bits()));
            let collect = Collect::default();
            if let Some(adapters) = &adapters {
                adapters.add(port, &format!("p{port}"), Box::new(nic.device.clone()), &[0]);
            }
            parts.rx.insert(port, Box::new(nic.rx(0)));
            parts.tx.insert(port, Box::new(collect.clone()));
            nics.push(nic);
            ports.push(collect);
        }
        parts.control.extend(adapters.iter().map(|it| Arc::clone(it) as Arc<dyn ControlPlane>));
        let yard = config.build(parts).unwrap();
        let hub = yard.control_plane::<Hub>().unwrap();
        Self { yard, hub, nics, ports, adapters, now: 1000 }
    }

    fn tick(&mut self, ticks: &mut Rng) -> u32 {
        self.now += 100 + ticks.below(5000);
        let core = ticks.below(self.yard.cores.len() as u64) as usize;
        self.yard.cores[core].tick(self.now)
    }

    fn frames(&mut self, frames: &[(usize, Vec<u8>)], ticks: &mut Rng) {
        for (port, frame) in frames {
            if let Some(adapters) = &self.adapters {
                adapters.tick(self.now);
            }
            self.nics[*port].feed(frame.clone());
            for _ in 0..ticks.below(3) {
                self.tick(ticks);
            }
        }
        let mut idle = 0;
        while idle < 30 * self.yard.cores.len() {
            idle = if self.tick(ticks) > 0 { 0 } else { idle + 1 };
        }
        assert!(self.nics.iter().all(Nic::is_empty));
    }

    fn out(&self) -> Out {
        let mut out = Out::new();
        for (port, collected) in self.ports.iter().enumerate() {
            for (_, data) in collected.take().iter() {
                let flow = u64::from_be_bytes(*data.last_chunk().unwrap());
                out.entry((port, flow)).or_default().push(data.to_vec());
            }
        }
        out
    }

    fn total(&self) -> Counters {
        let cores = self.yard.cores.iter().map(flowyard_yard::Core::counters);
        cores.fold(Counters::default(), |sum, core| sum.plus(&core))
    }

    /// What services and backends counted, and the drops. With several cores, the number of opened connections depends on
    /// which core sees a SYN first.
    fn counters(&self) -> (Vec<flowyard_lb::Sum>, Vec<(&'static str, u64)>) {
        let is_alone = self.yard.cores.len() == 1;
        let seen = |sum: flowyard_lb::Sum| flowyard_lb::Sum {
            connections: if is_alone { sum.connections } else { 0 },
            ..sum
        };
        let states = self.hub.states();
        let counted = states.iter().flat_map(|state| {
            let backends = state.backends.iter().map(|backend| backend.counts);
            std::iter::once(state.counts).chain(backends)
        });
        let total = self.total();
        let drops = total.drops.iter().map(|(reason, frames)| (reason.name(), frames));
        (counted.map(seen).collect(), drops.collect())
    }

    fn found(&self) -> u64 {
        self.hub.occupancy().iter().map(|one| one.marked_packets).sum()
    }
}

fn client(flow: u64) -> FlowKey {
    let service = flow % 3;
    let kind = if service == 2 { proto::UDP } else { proto::TCP };
    let src = [10, 2, 0, flow as u8];
    FlowKey::five_tuple(kind, src.into(), 1000 + flow as u16, [192, 0, 2, service as u8].into(), 80)
}

/// A segment or datagram of a flow, with the flow's number last.
fn bytes(key: &FlowKey, flags: u8, flow: u64, number: u64) -> Vec<u8> {
    let tcp_flags = if key.proto == proto::TCP { flags } else { 0 };
    let payload = [number.to_be_bytes(), flow.to_be_bytes()].concat();
    Build::new(&FlowKey { tcp_flags, ..*key }).payload(&payload).bytes()
}

/// The frames of a burst: of clients, or replies to what was forwarded.
fn frames(rng: &mut Rng, replies: &BTreeMap<u64, FlowKey>) -> Vec<(usize, Vec<u8>)> {
    // One core may see a reply before another core sees the packet of the client that opens the connection.
    let (is_reply, most) = (rng.below(2) == 0, rng.below(40));
    let one = |number| {
        let flow = rng.below(FLOWS);
        let end = [FlowKey::ACK, FlowKey::FIN | FlowKey::ACK][usize::from(rng.below(24) == 0)];
        if is_reply {
            let reply = replies.get(&flow)?;
            let flags = if rng.below(6) == 0 { FlowKey::SYN | FlowKey::ACK } else { end };
            // The number of a reply's flow is another one, as its order is its own.
            return Some((1, bytes(reply, flags, flow + FLOWS, number)));
        }
        let flags = if rng.below(6) == 0 { FlowKey::SYN } else { end };
        Some((0, bytes(&client(flow), flags, flow, number)))
    };
    (0..most).filter_map(one).collect()
}

/// Frames whose connection was found by a mark, of how many.
fn run(seed: u64) -> (u64, u64) {
    let mut rng = Rng::new(seed);
    let (layout, beds, flows) = (rng.bits(), rng.bits(), 1 + rng.below(60));
    let config = |offloads| config(&mut Rng::new(layout), offloads, flows);
    let mut with = Bed::new(&config(true), Rng::new(beds), Some(flows), None);
    let mut without = Bed::new(&config(false), Rng::new(beds), None, None);
    let (mut ticks_with, mut ticks_without) = (Rng::new(seed ^ 1), Rng::new(seed ^ 2));
    let (mut replies, mut all) = (BTreeMap::new(), 0);
    for round in 0..60 {
        let some = frames(&mut rng, &replies);
        all += some.len() as u64;
        with.frames(&some, &mut ticks_with);
        without.frames(&some, &mut ticks_without);
        let (got, wanted) = (with.out(), without.out());
        let at = || format!("seed {seed}, round {round}");
        assert_eq!(got.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{}", at());
        for (flow, frames) in &wanted {
            assert_eq!(&got[flow], frames, "{}: {flow:?}", at());
        }
        assert_eq!(with.counters(), without.counters(), "{}", at());
        for ((port, flow), frames) in wanted {
            if port == 1 && flow < FLOWS {
                let data = frames.last().unwrap();
                let key = parse::key(&Headers::parse(LinkType::Ethernet, data), data, 1);
                replies.insert(flow, key.flow().reversed());
            }
        }
        if rng.below(12) == 0 && with.yard.cores.len() == 1 {
            // Some connections expire. With several cores, each has an entry with a time of its own.
            for bed in [&mut with, &mut without] {
                bed.now += 400_000_000_000;
            }
        }
    }
    assert_eq!(without.found(), 0);
    (with.found(), all)
}

fn marks_of_adapters_do_not_change_the_balancer() {
    let seeds = std::env::var("FLOWYARD_SEEDS").ok().and_then(|text| text.parse().ok());
    let (mut found, mut all) = (0, 0);
    for seed in 0..seeds.unwrap_or(40) {
        let (marked, frames) = run(seed);
        (found, all) = (found + marked, all + frames);
    }
    flowyard_testkit::note!("{found} of {all} frames found by marks");
    assert!(found * 20 > all, "{found} of {all}: otherwise this test would prove nothing");
}

fn what_an_adapter_refuses_is_looked_up_and_explained() {
    // The adapter has room for two rules.
    let limits = Limits {
        rules: 2,
        queues: 1,
        vlans: true,
        ipv6: true,
        prefixes: true,
        marks: true,
        counts: true,
        switch: None,
    };
    let config = config(&mut Rng::new(1), true, 60);
    let mut bed = Bed::new(&config, Rng::new(1), Some(60), Some(&limits));
    let mut ticks = Rng::new(3);
    let flows = [0, 3, 6, 9]; // of dsr
    for flags in [FlowKey::SYN, FlowKey::ACK, FlowKey::ACK] {
        for flow in flows {
            bed.frames(&[(0, bytes(&client(flow), flags, flow, 0))], &mut ticks);
        }
    }
    let adapters = bed.adapters.clone().unwrap();
    adapters.tick(bed.now);
    let states = adapters.states();
    assert_eq!((states.ports[0].flows, states.waiting), (2, 0));
    assert_eq!(states.refused.iter().map(|(_, flows)| flows).sum::<u64>(), 2, "{states:?}");
    let explained = |flow| bed.hub.explain(&client(flow), bed.now).adapter.unwrap();
    let all: Vec<String> = flows.iter().map(|flow| explained(*flow)).collect();
    let marked = all.iter().filter(|text| text.contains("the adapter marks its frames")).count();
    let refused = all.iter().filter(|text| text.contains(&states.refused[0].0)).count();
    assert_eq!((marked, refused), (2, 2), "{all:?}");
    // These may be accepted later, but an SCTP association never.
    let entry = |proto| Entry {
        key: FlowKey { proto, ..client(flows[0]) },
        port: 0,
        macs: None,
        hop: false,
        change: Change::None,
        mtu: 0,
    };
    let later = [proto::TCP, proto::UDP, proto::SCTP];
    assert_eq!(later.map(|proto| adapters.may_take_later(&entry(proto))), [true, true, false]);
    // All connections end: the adapter is empty.
    for flow in flows {
        bed.frames(&[(0, bytes(&client(flow), FlowKey::RST, flow, 1))], &mut ticks);
    }
    adapters.tick(bed.now);
    assert_eq!(
        (adapters.states().ports[0].flows, bed.nics[0].device.with(|it| it.rules())),
        (0, 0)
    );
}
