//! A configuration, its traffic and its faults, all derived from a seed.

use std::fmt::Write;
use std::net::Ipv4Addr;

use flowyard_config::Config;
use flowyard_frame::{FlowKey, To, proto};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::Pace;
use flowyard_ports::port::{Collect, SourceRx};
use flowyard_queue::model::Model;
use flowyard_switch::change_message;
use flowyard_testkit::{Build, Checker, Rng};
use flowyard_wire::LinkType;
use flowyard_works::{Bridge, Forward, Hop, Router, Routes};
use flowyard_yard::sim::{Faults, Sim};
use flowyard_yard::{Message, Parts, Reload, Stage, Work};

use crate::sim::chaos::{Moods, Restless, moody};

#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) settle: bool,
    pub(crate) kind: Kind,
}

/// The work of the cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Forward,
    Bridge,
    Route,
    Switch,
}

impl Options {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed, settle: true, kind: Kind::Forward }
    }
}

/// Ready to run.
pub(crate) struct Case {
    pub(crate) sim: Sim,
    pub(crate) ports: Vec<Collect>,
    pub(crate) checker: Checker,
    pub(crate) offered: u64,
    pub(crate) about: String,
    /// Whether a frame may leave by a port more than once.
    pub(crate) doubles: bool,
}

impl Case {
    pub(crate) fn new(Options { seed, settle, kind }: Options) -> Self {
        let mut rng = Rng::new(seed);
        let cores = 1 + rng.below(6);
        let count = match kind {
            Kind::Bridge | Kind::Switch => 2 + rng.below(3) as u16,
            Kind::Forward | Kind::Route => 1 + rng.below(2) as u16,
        };
        let mut any_order = false;
        let options = Options { seed, settle, kind };
        let text = crate::engine(&describe(&mut rng, cores, count, options, &mut any_order));
        let config = Config::parse("seed.toml", &text).unwrap();
        let queues = config.queue.len() as u64;
        let out: Vec<u16> = (0..count).rev().collect();

        let mut checker = if any_order { Checker::any_order() } else { Checker::new() };
        let (sources, offered) = traffic(&mut rng, count, kind, &mut checker);
        let ports: Vec<_> = (0..count).map(|_| Collect::default()).collect();

        let mut parts = Parts::default();
        if seed % 4 == 0 {
            parts.queues =
                Box::new(|order, cores, window| Box::new(Model::new(order, cores, window)) as _);
        }
        parts.mailbox = 1 + rng.below(8) as usize;
        for (number, frames) in (0..).zip(sources) {
            let pace = if rng.below(3) == 0 { Pace::Fast } else { Pace::Capture };
            parts.rx.insert(number, Box::new(SourceRx::new(number, Box::new(frames), pace)));
        }
        for (number, port) in (0..).zip(&ports) {
            parts.tx.insert(number, Box::new(port.clone()));
        }
        let (longest, drop_every) =
            ([0, 500, 5_000, 50_000][rng.below(4) as usize], rng.below(3) * 20);
        for (core, then) in (0..).zip(works(&mut rng, kind, cores, count)) {
            let moods = Moods { rng: Rng::new(rng.bits()), longest, drop_every };
            parts.work.insert(core, moody(then, moods));
            let stage = [Stage::Rx, Stage::Work, Stage::Tx][rng.below(3) as usize];
            let (every, out) = (2 + rng.below(30), out.clone());
            let learn = Restless { rng: Rng::new(rng.bits()), queues, out, every };
            parts.learn.push((core, stage, core, Box::new(learn)));
        }
        let yard = config.build(parts).unwrap();
        let faults = Faults {
            stall_every: [0, 20, 300][rng.below(3) as usize],
            stall_ns: 1 + rng.below(300_000),
            death_every: [0, 0, 200, 2000][rng.below(4) as usize],
            found_after_ns: rng.below(200_000),
        };
        let mut sim = Sim::new(yard, rng.bits(), faults);
        interfere(&mut rng, &mut sim, (cores, queues), kind, count);
        let about = format!("{faults:?}\n{text}");
        Self { sim, ports, checker, offered, about, doubles: kind == Kind::Switch }
    }
}

/// Runs the engine for a while, with reloads of its tables; sometimes stops it early.
fn interfere(rng: &mut Rng, sim: &mut Sim, (cores, queues): (u64, u64), kind: Kind, ports: u16) {
    for _ in 0..rng.below(8) {
        for _ in 0..rng.below(400) {
            sim.step();
        }
        if kind == Kind::Switch {
            let changes = crate::sim::switches::changes(rng, ports);
            for core in 0..cores as u16 {
                sim.yard.mail.offer(core, change_message(changes.clone()));
            }
        }
        let spread = (0..1 + rng.below(8)).map(|_| To::Queue(rng.below(queues) as u16)).collect();
        let reload = std::sync::Arc::new(Reload { spread, ..Reload::default() });
        for core in 0..cores as u16 {
            sim.yard.mail.offer(core, Message::Reload(reload.clone())); // a full mailbox loses it
        }
    }
    if rng.below(8) == 0 {
        sim.yard.cores.iter_mut().for_each(flowyard_yard::Core::stop);
    }
}

/// The work of each core. Every core may be given some frames.
fn works(rng: &mut Rng, kind: Kind, cores: u64, ports: u16) -> Vec<Box<dyn Work>> {
    let all = vec![true; cores as usize];
    match kind {
        Kind::Forward => {
            let out: Vec<u16> = (0..ports).rev().collect();
            all.iter().map(|_| Box::new(Forward::new(&out)) as _).collect()
        }
        Kind::Bridge => {
            let age = [100_000, 1_000_000_000][rng.below(2) as usize];
            let bridges = Bridge::group(&all, ports, 64, age, rng.bits());
            bridges.into_iter().map(|bridge| Box::new(bridge) as _).collect()
        }
        Kind::Switch => crate::sim::switches::works(rng, cores, ports),
        Kind::Route => {
            let mut router = Routes::new(2);
            for (prefix, port) in [("10.0.0.0/28", ports - 1), ("10.0.1.0/24", 0)] {
                let hop = Hop { port, src: [2; 6], dst: [4; 6] };
                router.put(&prefix.parse().unwrap(), hop).unwrap();
            }
            let router = Router::new(router);
            all.iter().map(|_| Box::new(router.clone()) as _).collect()
        }
    }
}

/// A configuration. Port 0 is on core 0, all others on the last core.
fn describe(
    rng: &mut Rng,
    cores: u64,
    ports: u16,
    Options { seed, settle, kind }: Options,
    any_order: &mut bool,
) -> String {
    let mut text = format!("[yard]\ncores = {cores}\nseed = {seed}\nsettle = {settle}\n");
    let slots = [4, 64, 4096][rng.below(3) as usize];
    writeln!(text, "settle_slots = {slots}\nbuffer_bytes = 128").unwrap();
    let (frames, after) = ([0, 64, 256][rng.below(3) as usize], [1, 8, 100][rng.below(3) as usize]);
    // A pool that is sometimes empty, both when copies are made and when ports receive.
    let starved = rng.below(2) == 0;
    let room = if starved { 1500 } else { 100 };
    // Buffers for held frames are available to copies while nothing is held, so the pool would
    // rarely be empty.
    let copies = matches!(kind, Kind::Bridge | Kind::Switch);
    let frames = if starved && copies && seed % 4 != 1 { 0 } else { frames };
    let us = [10, 1000][rng.below(2) as usize];
    writeln!(text, "hold_frames = {frames}\nhold_after_frames = {after}\nhold_us = {us}").unwrap();
    let every = [0, 2, 16][(seed / 7 % 3) as usize];
    writeln!(text, "less_urgent_every = {every}").unwrap();
    let full = |rng: &mut Rng| ["hold", "hold", "drop"][rng.below(3) as usize];
    let owner = |port: u16| if port == 0 { 0 } else { cores - 1 };
    for port in 0..ports {
        let (window, full) = (32 + rng.below(room), full(rng));
        writeln!(text, "[[port]]\nname = \"p{port}\"\nkind = \"mem\"\nin = \"none\"").unwrap();
        writeln!(text, "core = {}\nwindow_frames = {window}\nfull = \"{full}\"", owner(port))
            .unwrap();
    }
    // A queue of its own for each core with a port, so that ATR may be used; for every core, if
    // flows are to be split.
    let split = cores > 1 && rng.below(3) == 0;
    let owners = (0..ports).map(owner).filter(|_| !split);
    let homes = owners.chain((0..cores).filter(|_| split)).map(|core| ("direct", vec![core]));
    let mut queues: Vec<_> = homes.collect();
    if split {
        queues.push(("ordered", (0..cores).collect()));
        elephants(rng, &mut text, cores);
    }
    for _ in 0..1 + rng.below(4) {
        let consumers: Vec<u64> = (0..cores).filter(|_| rng.below(2) == 0).collect();
        let consumers = if consumers.is_empty() { vec![rng.below(cores)] } else { consumers };
        let order = match rng.below(20) {
            0 => "unordered",
            1..8 => "atomic",
            _ => "ordered",
        };
        *any_order |= order == "unordered";
        queues.push((order, consumers));
    }
    for (number, (order, consumers)) in queues.into_iter().enumerate() {
        let (window, full, priority) = (32 + rng.below(room), full(rng), rng.below(3));
        writeln!(text, "[[queue]]\nname = \"q{number}\"\norder = \"{order}\"").unwrap();
        writeln!(text, "consumers = {consumers:?}\npriority = {priority}").unwrap();
        writeln!(text, "window_frames = {window}\nfull = \"{full}\"").unwrap();
    }
    writeln!(text, "[steer]\nentries = {}", 1 << rng.below(6)).unwrap();
    if rng.below(3) == 0 {
        writeln!(text, "[learn]\nkind = \"atr\"\nentries = 16\nsample_every = 3\nudp = true")
            .unwrap();
    }
    if starved {
        let copies = match kind {
            Kind::Bridge => 32,
            Kind::Switch => 96,
            Kind::Forward | Kind::Route => 0,
        };
        let least = cores * (128 + copies) + u64::from(ports) * (64 + frames);
        text = text.replacen("[yard]\n", &format!("[yard]\nframes = {least}\n"), 1);
    }
    // The test provides the works; the bridge's port lists come from the configuration.
    text + match kind {
        Kind::Bridge => "[work]\nkind = \"bridge\"\n",
        Kind::Switch => "[work]\nkind = \"switch\"\n",
        Kind::Forward | Kind::Route => "[work]\nkind = \"forward\"\n",
    }
}

/// Splits flows that are not large, as often as possible, and moves them back.
fn elephants(rng: &mut Rng, text: &mut String, cores: u64) {
    writeln!(text, "[elephants]\nqueue = \"q{cores}\"\ncore = {}", rng.below(cores)).unwrap();
    writeln!(text, "window_us = {}", [5, 50, 500][rng.below(3) as usize]).unwrap();
    writeln!(text, "sample_every = {}\nsamples_min = 1", 1 + rng.below(4)).unwrap();
    let busy = [0.1, 0.5, 0.9][rng.below(3) as usize];
    writeln!(text, "busy_high = {busy}\nbusy_low = {}", busy / 2.0).unwrap();
    writeln!(text, "promote = 0.1\ndemote = 0.05\nwaiting_frames = 1\ngain = 1.0").unwrap();
    let dwell = [10, 200][rng.below(2) as usize];
    writeln!(text, "dwell_us = {dwell}\npatience = {}", 1 + rng.below(2)).unwrap();
    writeln!(text, "promoted_max = {}", 1 + rng.below(8)).unwrap();
}

/// Frames for each port, and their number. A flow comes in at one port; the flows of odd ports are
/// replies to those of even ones. Stations move. Some frames are broadcast, have an unknown
/// destination, are on their last hop, or have no IP.
pub(crate) fn traffic(
    rng: &mut Rng,
    ports: u16,
    kind: Kind,
    checker: &mut Checker,
) -> (Vec<Frames>, u64) {
    let (flows, count) = (1 + rng.below(40), 200 + rng.below(1300));
    let (gap, large) = ([10, 300, 3000][rng.below(3) as usize], rng.below(4));
    let mut sources: Vec<_> = (0..ports).map(|_| Frames::new()).collect();
    let (mut now, mut frame) = (0, Vec::new());
    for _ in 0..count {
        // One flow is often larger than all others.
        let slot = if rng.below(4) < large { 0 } else { rng.below(flows) };
        let port = rng.below(ports.into());
        let [client, server] = [[10, 0, 0, slot as u8], [10, 0, 1, 1]].map(Ipv4Addr::from);
        let key = FlowKey::five_tuple(proto::UDP, client.into(), 4000, server.into(), 53);
        let flow = slot << 2 | port;
        let seq = checker.enter(flow);
        let payload = [flow.to_be_bytes(), seq.to_be_bytes()].concat();
        let mut key = if port.is_multiple_of(2) { key } else { key.reversed() };
        let mut ttl = 64;
        match kind {
            Kind::Forward => {}
            Kind::Bridge | Kind::Switch => {
                if kind == Kind::Switch {
                    ttl = 1 + rng.below(20) as u8;
                }
                let station = |slot: u64, port: u64| [2, 0, 0, 0, port as u8, slot as u8 % 4];
                let from = if rng.below(100) == 0 { rng.below(ports.into()) } else { port };
                key.eth_src = station(slot, from);
                key.eth_dst = match rng.below(16) {
                    0 => [0xff; 6],
                    _ => station(slot, rng.below(u64::from(ports) + 1)),
                };
            }
            Kind::Route => {
                ttl = 1 + rng.below(20) as u8;
                if slot % 8 == 7 {
                    // ARP of any length: only the position of the label matters.
                    key = FlowKey { eth_type: 0x0806, ..FlowKey::ZERO };
                }
            }
        }
        let payload = if key.is_ip() { payload } else { [[0; 28].as_slice(), &payload].concat() };
        Build::new(&key).ttl(ttl).payload(&payload).write(&mut frame);
        sources[port as usize].push(now, LinkType::Ethernet, &frame);
        now += rng.below(2 * gap);
    }
    (sources, count)
}

/// The flow and number of a frame.
pub(crate) fn label(data: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_be_bytes(data[at..at + 8].try_into().unwrap());
    (word(42), word(50))
}
