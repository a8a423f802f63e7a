//! The port mapping in front of the queues is compared with a switch without any cache. The same
//! frames leave by the same ports, in the same order per flow, and all counters are equal, while
//! flows, groups, meters and ports change.
//!
//! Both engines get the same changes and frames, in rounds. The frames of a round come when its
//! changes are in force, and all have left before the next round. Cores tick in a random order.
//! The same holds for a switch whose ports have adapters: these mark frames of flows that the port mapping answered.
//!
//! `FLOWYARD_SEEDS` runs more seeds than the fixed 60.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use flowyard_config::Config;
use flowyard_dpdk::rules::Limits;
use flowyard_frame::{Batch, FlowKey, Nanos, proto};
use flowyard_front::Adapters;
use flowyard_openflow::act::{Action, Instruction};
use flowyard_openflow::change::{Change, Counts, Entry, Group, Lookups, Meter};
use flowyard_openflow::group::{Band, Bucket, GroupType, meter_flags};
use flowyard_openflow::multipart::{GroupDesc, MeterConfig};
use flowyard_openflow::port::{Port, reserved};
use flowyard_openflow::{Field, Match, Oxm};
use flowyard_pool::{Meta, Pool};
use flowyard_ports::port::Collect;
use flowyard_switch::Settings;
use flowyard_switch::change_message;
use flowyard_switch::{SwitchHub, SwitchSettings};
use flowyard_testkit::{Build, Rng};
use flowyard_wire::LinkType;
use flowyard_yard::front::Front;
use flowyard_yard::port::{Received, Rx};
use flowyard_yard::{ControlPlane, Counters, Parts, Tick, Yard};

use crate::nic::{Nic, limits};

flowyard_testkit::tests! {
    the_port_mapping_does_not_change_the_switch,
    marks_of_adapters_do_not_change_the_switch,
}

const PORTS: u16 = 3;
const TABLES: usize = 3;
const CORES: usize = 3;

/// A port that receives frames from the test.
#[derive(Clone, Default)]
struct Feed(Arc<Mutex<VecDeque<Vec<u8>>>>);

impl Rx for Feed {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let mut frames = self.0.lock().unwrap();
        while into.len() < 32
            && let Some(frame) = frames.pop_front()
        {
            let wire_len = frame.len() as u32;
            let meta = Meta { time: now, wire_len, link: LinkType::Ethernet, ..Meta::default() };
            into.push(pool.copy(&frame, meta).unwrap(), FlowKey::ZERO).unwrap();
        }
        Received::default()
    }
}

/// By port and flow: the frames in their order.
type Out = BTreeMap<(usize, u64), Vec<Vec<u8>>>;

/// The counters that are compared: frames and bytes, by the object that counted them.
#[derive(PartialEq, Eq, Debug, Default)]
struct Accounts {
    out: Out,
    counted: Vec<(u64, u64)>,
    drops: Vec<(&'static str, u64)>,
    punts: usize,
}

struct Bed {
    yard: Yard,
    hub: Arc<SwitchHub>,
    lookups: Vec<Lookups>,
    feeds: Vec<Feed>,
    adapters: Option<(Arc<Adapters>, Vec<Nic>)>,
    ports: Vec<Collect>,
    /// Objects with counters: flows, groups, meters.
    counts: Vec<Arc<[Counts]>>,
    flows: Vec<Arc<Entry>>,
    changes: u64,
    now: Nanos,
    /// Chooses the changes: the same in both beds.
    rng: Rng,
}

fn counts(n: usize) -> Arc<[Counts]> {
    (0..n).map(|_| Counts::default()).collect()
}

fn config(rng: &mut Rng, cores: u64) -> String {
    let mut text = format!("[yard]\ncores = {cores}\nhold_frames = 64\n");
    for port in 0..u64::from(PORTS) {
        let core = port % cores;
        writeln!(
            text,
            "[[port]]\nname = \"p{port}\"\nkind = \"mem\"\nin = \"none\"\ncore = {core}"
        )
        .unwrap();
    }
    for core in 0..cores {
        writeln!(text, "[[queue]]\nname = \"d{core}\"\norder = \"direct\"\nconsumers = [{core}]")
            .unwrap();
    }
    let order = ["ordered", "atomic"][rng.below(2) as usize];
    let all: Vec<u64> = (0..cores).collect();
    writeln!(text, "[[queue]]\nname = \"all\"\norder = \"{order}\"\nconsumers = {all:?}").unwrap();
    text + "[work]\nkind = \"switch\"\n"
}

impl Bed {
    fn new(seed: u64, cache: bool) -> Self {
        Self::with(seed, cache, false)
    }

    fn with(seed: u64, cache: bool, marks: bool) -> Self {
        let mut rng = Rng::new(seed);
        let cores = 1 + rng.below(CORES as u64);
        let config = Config::parse("front.toml", &config(&mut rng, cores)).unwrap();
        let entries = [8, 64, 1024][rng.below(3) as usize];
        let lookups: Vec<Lookups> = (0..TABLES).map(|_| counts(CORES)).collect();
        let settings = SwitchSettings {
            cores: cores as usize,
            datapath: Settings {
                tables: TABLES as u8,
                cache_entries: if cache { entries } else { 0 },
                lookups: lookups.clone(),
                ..Settings::default()
            },
            ports: (0..PORTS).map(|at| (u32::from(at) + 1, [0; 6], format!("p{at}"))).collect(),
            punts: 100_000,
        };
        let hub = Arc::new(SwitchHub::new(settings));
        let feeds = vec![(); PORTS.into()].into_iter().map(|()| Feed::default());
        let (feeds, ports): (Vec<_>, Vec<_>) = feeds.map(|feed| (feed, Collect::default())).unzip();
        let mut parts = Parts::default();
        for (number, (feed, port)) in (0..).zip(feeds.iter().zip(&ports)) {
            parts.rx.insert(number, Box::new(feed.clone()));
            parts.tx.insert(number, Box::new(port.clone()));
        }
        let adapters = marks.then(|| {
            let (adapters, mut rng) = (Arc::new(Adapters::new(64)), Rng::new(seed ^ 77));
            let nics: Vec<Nic> = (0..PORTS)
                .map(|port| {
                    let limits = Limits { rules: 64, marks: true, ..limits(&mut rng, 1) };
                    let nic = Nic::new(port, limits, Rng::new(rng.bits()));
                    adapters.add(port, "", Box::new(nic.device.clone()), &[0]);
                    parts.rx.insert(port, Box::new(nic.rx(0)));
                    nic
                })
                .collect();
            (adapters, nics)
        });
        let front = adapters.as_ref().map(|(it, _)| Arc::clone(it) as Arc<dyn Front>);
        for (core, switch) in (0..).zip(hub.group()) {
            parts.work.insert(core, Box::new(switch.behind(front.as_ref())));
        }
        let yard = config.build(parts).unwrap();
        let (counts, flows) = (Vec::new(), Vec::new());
        Self {
            yard,
            hub,
            lookups,
            feeds,
            adapters,
            ports,
            counts,
            flows,
            changes: 0,
            now: 1000,
            rng,
        }
    }

    fn count(&mut self, n: usize) -> Arc<[Counts]> {
        self.counts.push(counts(n));
        Arc::clone(&self.counts[self.counts.len() - 1])
    }

    fn action(&mut self) -> Action {
        let port = 1 + self.rng.below(u64::from(PORTS) + 1) as u32;
        match self.rng.below(12) {
            0 => Action::Output { port: reserved::FLOOD, max_len: 0 },
            1 => Action::Output { port: reserved::IN_PORT, max_len: 0 },
            2 => Action::Output { port: reserved::CONTROLLER, max_len: 64 },
            3 => Action::SetField(Oxm::exact(Field::EthDst, self.rng.bits().into())),
            4 => Action::DecNwTtl,
            5 => Action::Group(1 + self.rng.below(2) as u32),
            6 => Action::PushVlan(0x8100),
            _ => Action::Output { port, max_len: 0 },
        }
    }

    fn fields(&mut self) -> Vec<Oxm> {
        let mut fields = Vec::new();
        if self.rng.below(3) == 0 {
            fields.push(Oxm::exact(Field::InPort, (1 + self.rng.below(PORTS.into())).into()));
        }
        if self.rng.below(8) == 0 {
            fields.push(Oxm::exact(Field::VlanVid, 0));
        }
        let rng = &mut self.rng;
        match rng.below(6) {
            0 => {
                fields.push(Oxm::exact(Field::EthType, 0x800));
                fields.push(Oxm::masked(Field::Ipv4Src, rng.below(4).into(), 3));
            }
            1 => {
                fields.push(Oxm::exact(Field::EthType, 0x800));
                fields.push(Oxm::exact(Field::IpProto, 17));
                fields.push(Oxm::exact(Field::UdpDst, (50 + rng.below(4)).into()));
            }
            2 => {
                fields.push(Oxm::exact(Field::EthType, 0x800));
                fields.push(Oxm::exact(Field::IpProto, 6));
                fields.push(Oxm::masked(Field::TcpFlags, rng.below(2).into(), 1));
            }
            3 => {
                fields.push(Oxm::exact(Field::EthType, 0x800));
                fields.push(Oxm::exact(Field::IpDscp, rng.below(2).into()));
            }
            4 => fields.push(Oxm::masked(Field::EthSrc, rng.below(2).into(), 1)),
            _ => {}
        }
        fields
    }

    fn flow(&mut self) -> Change {
        // The first flows match all frames, table by table.
        let all = self.flows.len() < TABLES && self.changes <= TABLES as u64;
        let table = if all { self.flows.len() } else { self.rng.below(TABLES as u64) as usize };
        let (table, mut fields) = (table as u8, if all { Vec::new() } else { self.fields() });
        if !all && table > 0 && self.rng.below(2) == 0 {
            fields.push(Oxm::masked(Field::Metadata, self.rng.below(2).into(), 1));
        }
        let mut then = Vec::new();
        let next = usize::from(table) + 1 < TABLES && self.rng.below(2) == 0;
        if next && self.rng.below(2) == 0 {
            then.push(Instruction::WriteMetadata { value: self.rng.below(2), mask: 1 });
        } else if self.rng.below(3) > 0 {
            let port = 1 + self.rng.below(PORTS.into()) as u32;
            let list = vec![Action::Output { port, max_len: 0 }];
            then.push(match self.rng.below(4) {
                0 => Instruction::WriteActions(list),
                _ => Instruction::ApplyActions(list),
            });
        } else {
            let list = (0..self.rng.below(4)).map(|_| self.action()).collect();
            then.push(Instruction::ApplyActions(list));
            if self.rng.below(4) == 0 {
                then.push(Instruction::Meter(1 + self.rng.below(2) as u32));
            }
        }
        if next {
            then.push(Instruction::GotoTable(table + 1));
        }
        let entry = Arc::new(Entry {
            id: self.changes,
            table,
            priority: if all { 0 } else { self.rng.below(4) as u16 },
            cookie: 0,
            flags: 0,
            matching: Match(fields).normal(),
            instructions: then,
            counts: self.count(CORES),
        });
        self.flows.push(Arc::clone(&entry));
        Change::Flow(entry)
    }

    fn change(&mut self) -> Change {
        self.changes += 1;
        match self.rng.below(16) {
            _ if self.changes <= TABLES as u64 => self.flow(),
            0 => {
                // A rate that is never exceeded, or one that every frame exceeds.
                let rate = [u32::MAX, 0][self.rng.below(2) as usize];
                let bands = vec![Band::Drop { rate, burst: 0 }];
                let meter = 1 + self.rng.below(2) as u32;
                let config = MeterConfig { flags: meter_flags::PKTPS, meter, bands };
                let (counts, bands) = (self.count(CORES), self.count(CORES));
                Change::Meter(Arc::new(Meter { config, counts, bands }))
            }
            1 => {
                let bucket = |port| {
                    let (any, actions) = (reserved::ANY, vec![Action::Output { port, max_len: 0 }]);
                    Bucket { weight: 1, watch_port: any, watch_group: any, actions }
                };
                let buckets: Vec<Bucket> = (1..=2).map(bucket).collect();
                let group = 1 + self.rng.below(2) as u32;
                let kind = [GroupType::All, GroupType::Indirect][self.rng.below(2) as usize];
                let desc = GroupDesc { kind, group, buckets };
                let (counts, buckets) = (self.count(CORES), self.count(CORES * 2));
                Change::Group(Arc::new(Group { desc, counts, buckets }))
            }
            2 => {
                let number = 1 + self.rng.below(PORTS.into()) as u32;
                // Ports that are down, or do not receive, or do not transmit; most are in order.
                let config = [1, 4, 0x20, 0, 0, 0, 0, 0][self.rng.below(8) as usize];
                Change::Port(Arc::new(Port { number, config, ..Port::default() }))
            }
            3..6 if !self.flows.is_empty() => {
                let at = self.rng.below(self.flows.len() as u64) as usize;
                Change::FlowGone(self.flows.swap_remove(at))
            }
            _ => self.flow(),
        }
    }

    /// Makes some changes, and waits until they are in force; no frames come in the meantime.
    fn changes(&mut self, ticks: &mut Rng) {
        let some: Vec<_> = (0..1 + self.rng.below(4)).map(|_| self.change()).collect();
        let first = self.changes + 1 - some.len() as u64;
        let some: Vec<_> = (first..).zip(some).collect();
        for core in 0..self.yard.cores.len() as u16 {
            assert!(self.yard.mail.offer(core, change_message(some.clone().into())));
        }
        while self.hub.in_force() < self.changes {
            self.tick(ticks);
        }
    }

    fn tick(&mut self, ticks: &mut Rng) -> u32 {
        self.now += 100 + ticks.below(5000);
        let core = ticks.below(self.yard.cores.len() as u64) as usize;
        self.yard.cores[core].tick(self.now)
    }

    /// Sends frames, with some ticks between them, and waits until all have left.
    fn frames(&mut self, frames: &[(usize, Vec<u8>)], ticks: &mut Rng) {
        for (port, frame) in frames {
            match &self.adapters {
                Some((adapters, nics)) => {
                    adapters.tick(self.now);
                    nics[*port].feed(frame.clone());
                }
                None => self.feeds[*port].0.lock().unwrap().push_back(frame.clone()),
            }
            for _ in 0..ticks.below(3) {
                self.tick(ticks);
            }
        }
        let mut idle = 0;
        while idle < 30 * self.yard.cores.len() {
            idle = if self.tick(ticks) > 0 { 0 } else { idle + 1 };
        }
        assert!(self.feeds.iter().all(|feed| feed.0.lock().unwrap().is_empty()));
    }

    fn total(&self) -> Counters {
        let cores = self.yard.cores.iter().map(flowyard_yard::Core::counters);
        cores.fold(Counters::default(), |sum, core| sum.plus(&core))
    }

    /// The frames that left in the round, and all counters so far.
    fn accounts(&self) -> Accounts {
        let mut out = Out::new();
        for (port, collected) in self.ports.iter().enumerate() {
            for (_, data) in collected.take().iter() {
                let flow = u64::from_be_bytes(*data.last_chunk().unwrap());
                out.entry((port, flow)).or_default().push(data.to_vec());
            }
        }
        let all = self.counts.iter().chain(&self.lookups);
        let sum = |counts: &Arc<[Counts]>| {
            let read = counts.iter().map(Counts::read);
            read.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1))
        };
        let mut counted: Vec<_> = all.map(sum).collect();
        for port in self.hub.port_stats() {
            counted.extend([(port.basic[0], port.basic[2]), (port.basic[1], port.basic[3])]);
        }
        let total = self.total();
        let (rx, tx) = ((total.rx_frames, total.rx_bytes), (total.tx_frames, total.tx_bytes));
        counted.extend([rx, tx, (total.copies, 0)]);
        let drops = total.drops.iter().map(|(reason, frames)| (reason.name(), frames));
        Accounts { out, counted, drops: drops.collect(), punts: self.hub.punts().len() }
    }

    /// The time at which each flow was last used, from which idle timeouts are counted.
    fn used(&self) -> Vec<Nanos> {
        let last = |counts: &Arc<[Counts]>| counts.iter().map(|one| one.read().2).max();
        self.counts.iter().map(|counts| last(counts).unwrap_or(0)).collect()
    }

    /// Frames whose entry an adapter had named.
    fn marked(&self) -> u64 {
        let cores = self.yard.cores.iter();
        let totals = cores.filter_map(|core| core.work().ask(&flowyard_switch::TotalsAsked));
        totals.filter_map(|all| Some(all.downcast_ref::<flowyard_switch::Totals>()?.marked)).sum()
    }

    fn front(&self) -> u64 {
        crate::front_totals(&self.yard.cores)
    }
}

/// A frame of flow `flow`, with its number first and the flow's number last. Most frames are plain.
fn frame(rng: &mut Rng, flow: u64, number: u64) -> (usize, Vec<u8>) {
    let kind = [proto::UDP, proto::TCP][(flow & 1) as usize];
    let src = [10, 0, 0, (flow >> 1) as u8 & 7];
    let tuple = FlowKey::five_tuple(
        kind,
        src.into(),
        1000 + flow as u16,
        [10, 0, 1, 1].into(),
        50 + (flow & 3) as u16,
    );
    let key = FlowKey {
        eth_src: [2, 0, 0, 0, 0, flow as u8 & 1],
        eth_dst: [2, 0, 0, 0, 1, 1],
        tos: (flow as u8 & 2) << 1,
        tcp_flags: if kind == proto::TCP { 0x10 | rng.below(2) as u8 } else { 0 },
        ..tuple
    };
    let payload = [number.to_be_bytes(), flow.to_be_bytes()].concat();
    let mut bytes = Build::new(&key).ttl(2 + rng.below(9) as u8).payload(&payload).bytes();
    match flow % 8 {
        6 => drop(bytes.splice(12..12, [0x81, 0, 0, 7])),
        // A wrong header checksum: the frame is not plain, but it is IPv4 for a switch.
        7 => bytes[24] ^= 1,
        _ => {}
    }
    ((flow % u64::from(PORTS)) as usize, bytes)
}

fn run(seed: u64, marks: bool) -> (u64, u64) {
    let (mut on, mut off) = (Bed::with(seed, true, marks), Bed::new(seed, false));
    let mut rng = Rng::new(seed ^ 0xf00d);
    let (mut ticks_on, mut ticks_off) = (Rng::new(seed ^ 1), Rng::new(seed ^ 2));
    for round in 0..20 {
        let began = [on.now, off.now];
        on.changes(&mut ticks_on);
        off.changes(&mut ticks_off);
        let flows = 1 + rng.below(24);
        let some = (0..rng.below(400)).map(|number| {
            let flow = rng.below(flows);
            frame(&mut rng, flow, number)
        });
        let some: Vec<_> = some.collect();
        on.frames(&some, &mut ticks_on);
        off.frames(&some, &mut ticks_off);
        let (with, without) = (on.accounts(), off.accounts());
        assert_eq!(with.out.len(), without.out.len(), "seed {seed}, round {round}");
        for (at, frames) in &without.out {
            assert_eq!(with.out.get(at), Some(frames), "seed {seed}, round {round}: {at:?}");
        }
        assert_eq!(with, without, "seed {seed}, round {round}");
        // A flow that is used with a cache is used without one in the same round.
        for (with, without) in on.used().into_iter().zip(off.used()) {
            let fresh = [with > began[0], without > began[1]];
            assert!(fresh[0] == fresh[1], "seed {seed}, round {round}: {with} {without}");
        }
    }
    assert_eq!(off.front(), 0);
    (if marks { on.marked() } else { on.front() }, on.total().rx_frames)
}

fn the_port_mapping_does_not_change_the_switch() {
    let seeds = std::env::var("FLOWYARD_SEEDS").ok().and_then(|text| text.parse().ok());
    let (mut front, mut all) = (0, 0);
    for seed in 0..seeds.unwrap_or(60) {
        let (mapped, frames) = run(seed, false);
        (front, all) = (front + mapped, all + frames);
    }
    flowyard_testkit::note!("{front} of {all} frames by the port mapping");
    assert!(front * 8 > all, "{front} of {all}: otherwise this test would prove nothing");
}

fn marks_of_adapters_do_not_change_the_switch() {
    let seeds = std::env::var("FLOWYARD_SEEDS").ok().and_then(|text| text.parse().ok());
    let (mut marked, mut all) = (0, 0);
    for seed in 0..seeds.unwrap_or(60) {
        let (named, frames) = run(seed, true);
        (marked, all) = (marked + named, all + frames);
    }
    flowyard_testkit::note!("{marked} of {all} frames named by marks");
    assert!(marked * 50 > all, "{marked} of {all}: otherwise this test would prove nothing");
}
