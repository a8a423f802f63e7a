//! Rules in adapters do not change what a yard does: the same frames pass a yard whose ports have adapters with rules, and
//! one without, while the user's entries change. They leave by the same ports with the same bytes, in the same order for
//! each flow; the user's counters are equal; and what the one drops in its tables, the adapters of the other may drop.
//!
//! The adapters take some rules and refuse others, by random limits. `FLOWYARD_SEEDS` runs more seeds than the fixed 80.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use flowyard_config::Config;
use flowyard_dpdk::rules::SwitchPort;
use flowyard_frame::{FlowKey, Nanos, proto};
use flowyard_front::Adapters;
use flowyard_front::adapters::State;
use flowyard_ports::port::Collect;
use flowyard_testkit::{Build, Rng};
use flowyard_yard::{ControlPlane, Parts, Tick, Yard};

use crate::nic::{Nic, limits};

flowyard_testkit::tests! {
    rules_in_adapters_do_not_change_the_answers,
    why_an_entry_is_in_software_is_said,
    flows_get_rules_and_lose_them,
}

const PORTS: u16 = 3;

/// The user's entries, which change from round to round.
fn steer(rng: &mut Rng) -> String {
    let mut text = String::from("[steer]\ncounters = [\"c0\", \"c1\"]\n");
    let action = |rng: &mut Rng| {
        let mut action = match rng.below(5) {
            0 | 1 => "drop = true".to_owned(),
            2 => format!("port = \"p{}\"", rng.below(PORTS.into())),
            _ => format!("queue = \"d{}\"", rng.below(2)),
        };
        if rng.below(4) == 0 {
            write!(action, "\ncounter = \"c{}\"", rng.below(2)).unwrap();
        }
        if rng.below(4) == 0 {
            write!(action, "\nmark = {}", rng.below(1 << 24)).unwrap();
        }
        action
    };
    let mut flows: Vec<u64> = (0..rng.below(9)).map(|_| rng.below(FLOWS)).collect();
    flows.sort_unstable();
    flows.dedup();
    for flow in flows {
        let (action, flow) = (action(rng), key(flow).flow());
        write!(text, "[[steer.exact]]\nflow = \"{flow}\"\n{action}\n").unwrap();
    }
    let mut written = Vec::new();
    for _ in 0..rng.below(5) {
        let mut fields = String::new();
        match rng.below(4) {
            0 => write!(fields, "dst = \"10.0.1.{}\"", rng.below(3)),
            1 => write!(fields, "src = \"10.0.0.0/{}\"", [24, 30, 31][rng.below(3) as usize]),
            2 => write!(fields, "ethertype = 2048"),
            _ => write!(fields, "vlan = {}", 7 * rng.below(2)),
        }
        .unwrap();
        if rng.below(3) == 0 && !fields.contains("vlan") {
            let proto = ["udp", "tcp"][rng.below(2) as usize];
            write!(fields, ", proto = \"{proto}\", dst_port = {}", 50 + rng.below(4)).unwrap();
        }
        if rng.below(4) == 0 {
            write!(fields, ", in_port = \"p{}\"", rng.below(PORTS.into())).unwrap();
        }
        let priority = rng.below(3);
        if written.contains(&(fields.clone(), priority)) {
            continue;
        }
        written.push((fields.clone(), priority));
        let action = action(rng);
        write!(text, "[[steer.rule]]\nmatch = {{ {fields} }}\npriority = {priority}\n{action}\n")
            .unwrap();
    }
    text
}

/// With random entries, and one more for the addresses of round `round`, which no frame has.
fn config(rng: &mut Rng, offloads: bool, round: u64) -> Config {
    let mut text = String::from("[yard]\ncores = 2\nhold_frames = 64\n");
    for port in 0..PORTS {
        write!(
            text,
            "[[port]]\nname = \"p{port}\"\nkind = \"mem\"\nin = \"none\"\ncore = {}\n",
            port % 2
        )
        .unwrap();
    }
    for core in 0..2 {
        let order = "order = \"direct\"";
        write!(text, "[[queue]]\nname = \"d{core}\"\n{order}\nconsumers = [{core}]\n").unwrap();
    }
    text += "[work]\nkind = \"forward\"\nports = { p0 = \"p1\", p1 = \"p2\", p2 = \"p0\" }\n";
    if offloads {
        text += "[offload]\nrules = true\n";
    }
    text += &steer(rng);
    write!(text, "[[steer.rule]]\nmatch = {{ dst = \"10.9.9.{round}\" }}\ndrop = true\n").unwrap();
    Config::parse("adapters.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

struct Bed {
    yard: Yard,
    nics: Vec<Nic>,
    ports: Vec<Collect>,
    adapters: Option<Arc<Adapters>>,
    config: Config,
    now: Nanos,
}

/// By port and flow: the frames in their order.
type Out = BTreeMap<(usize, u64), Vec<Vec<u8>>>;

impl Bed {
    fn new(seed: u64, offloads: bool) -> Self {
        let mut rng = Rng::new(seed);
        let config = config(&mut Rng::new(rng.bits()), offloads, 0);
        let mut parts = Parts::default();
        let adapters = offloads.then(|| Arc::new(Adapters::new(16)));
        let ports: Vec<Collect> = (0..PORTS).map(|_| Collect::default()).collect();
        let mut nics = Vec::new();
        // In some seeds one of the ports is not in the switch of the others.
        let alone = rng.below(6) as u16;
        let mut setup = config.resolve().unwrap();
        for port in 0..PORTS {
            // The first port has a queue for each core.
            let cores = if port == 0 { vec![0, 1] } else { vec![port % 2] };
            let mut limits = limits(&mut rng, cores.len() as u16);
            limits.rules *= usize::from(offloads);
            let domain = u16::from(port == alone);
            limits.switch = Some(SwitchPort { domain, number: port });
            let nic = Nic::new(port, limits, Rng::new(rng.bits()));
            nic.connect(ports.clone());
            let collect = &ports[usize::from(port)];
            if let Some(adapters) = &adapters {
                let device = Box::new(nic.device.clone());
                adapters.add(port, &format!("p{port}"), device, &cores);
            }
            for (queue, core) in cores.iter().enumerate() {
                let halves: flowyard_yard::port::Halves =
                    (Box::new(nic.rx(queue)), Box::new(collect.clone()));
                parts.ports.insert((port, *core), halves);
            }
            setup.blueprint.ports[usize::from(port)].cores = cores;
            setup.blueprint.ports[usize::from(port)].fan_by_flow = true;
            nics.push(nic);
        }
        parts.control.extend(adapters.iter().map(|it| Arc::clone(it) as Arc<dyn ControlPlane>));
        let log: flowyard_ports::port::Log = Arc::new(|_, _| {});
        let yard = setup.build(parts, &log).unwrap();
        Self { yard, nics, ports, adapters, config, now: 1000 }
    }

    fn tick(&mut self, ticks: &mut Rng) -> u32 {
        self.now += 100 + ticks.below(5000);
        let core = ticks.below(2) as usize;
        self.yard.cores[core].tick(self.now)
    }

    fn drain(&mut self, ticks: &mut Rng) {
        let mut idle = 0;
        while idle < 60 {
            idle = if self.tick(ticks) > 0 { 0 } else { idle + 1 };
        }
        assert!(self.nics.iter().all(Nic::is_empty));
    }

    /// The user changes the entries, while the yard runs but no frame comes.
    fn reload(&mut self, entries: u64, round: u64, ticks: &mut Rng) {
        let new = config(&mut Rng::new(entries), self.adapters.is_some(), round);
        let plan = self.config.reload(&new).unwrap();
        let (mail, adapters) = (self.yard.mail.clone(), self.adapters.clone());
        let offer = adapters.zip(plan.offered).map(|(adapters, users)| {
            let prepared = adapters.prepare(&users, &|queue| Some(queue));
            (adapters, prepared)
        });
        let mut tables = plan.tables;
        tables.marks = offer.as_ref().map(|(_, prepared)| prepared.marks());
        mail.to_all(&flowyard_yard::Message::Reload(Arc::new(tables)));
        self.drain(ticks);
        if let Some((adapters, prepared)) = offer {
            adapters.commit(&prepared, false);
        }
        self.config = new;
    }

    fn frames(&mut self, frames: &[(usize, Vec<u8>)], ticks: &mut Rng) {
        for (port, frame) in frames {
            self.nics[*port].feed(frame.clone());
            for _ in 0..ticks.below(3) {
                self.tick(ticks);
            }
        }
        self.drain(ticks);
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

    /// The user's counters, and the frames that the tables dropped.
    fn counters(&self) -> (Vec<(u64, u64)>, u64) {
        let mut sums = vec![(0, 0); 2];
        let mut drops = 0;
        for core in &self.yard.cores {
            for (sum, count) in sums.iter_mut().zip(core.counts()) {
                *sum = (sum.0 + count.frames, sum.1 + count.bytes);
            }
            drops += core.counters().drops.total();
        }
        (sums, drops)
    }

    /// Frames that adapters marked, gave to another queue, dropped, and sent out.
    fn offloaded(&self) -> [u64; 4] {
        self.nics.iter().fold([0; 4], |sum, nic| {
            let (marked, moved, dropped) = nic.counts();
            let more = [marked, moved, dropped, nic.forwarded()];
            std::array::from_fn(|at| sum[at] + more[at])
        })
    }
}

const FLOWS: u64 = 24;

fn key(flow: u64) -> FlowKey {
    let kind = [proto::UDP, proto::TCP][(flow & 1) as usize];
    let (src, dst) = ([10, 0, 0, (flow >> 1) as u8 & 7], [10, 0, 1, (flow % 3) as u8]);
    FlowKey::five_tuple(kind, src.into(), 1000 + flow as u16, dst.into(), 50 + (flow & 3) as u16)
}

/// A frame of flow `flow`, with the flow's number last. Some are tagged, and some are not IP.
fn frame(flow: u64, number: u64) -> (usize, Vec<u8>) {
    let payload = [number.to_be_bytes(), flow.to_be_bytes()].concat();
    let mut bytes = Build::new(&key(flow)).payload(&payload).bytes();
    match flow % 8 {
        5 => drop(bytes.splice(12..12, [0x81, 0, 0, 7])),
        6 => bytes[12..14].copy_from_slice(&[0x88, 0xb5]),
        _ => {}
    }
    ((flow % u64::from(PORTS)) as usize, bytes)
}

/// One seed: frames that adapters marked, gave to another queue, dropped, and sent out, of how many.
fn run(seed: u64) -> ([u64; 4], u64) {
    let (mut with, mut without) = (Bed::new(seed, true), Bed::new(seed, false));
    let mut rng = Rng::new(seed ^ 0xf00d);
    let (mut ticks_with, mut ticks_without) = (Rng::new(seed ^ 1), Rng::new(seed ^ 2));
    let mut all = 0;
    let mut entries = Rng::new(seed).bits();
    for round in 1..7 {
        let at = || format!("seed {seed}, round {round}");
        let some: Vec<_> = (0..rng.below(300)).map(|n| frame(rng.below(FLOWS), n)).collect();
        all += some.len() as u64;
        with.frames(&some, &mut ticks_with);
        without.frames(&some, &mut ticks_without);
        let (got, wanted) = (with.out(), without.out());
        assert_eq!(got.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{}", at());
        for (flow, frames) in &wanted {
            assert_eq!(got.get(flow), Some(frames), "{}: {flow:?}", at());
        }
        let ((counted, drops), (plain, plain_drops)) = (with.counters(), without.counters());
        assert_eq!(counted, plain, "{}", at());
        assert_eq!(drops + with.offloaded()[2], plain_drops, "{}", at());
        // In two of three reloads the entries stay, and so do the rules that send out their frames.
        if rng.below(3) == 0 {
            entries = rng.bits();
        }
        with.reload(entries, round, &mut ticks_with);
        without.reload(entries, round, &mut ticks_without);
    }
    // What the adapters counted is what they dropped, if they count. The stand-in counts tagged frames that it hides.
    let adapters = with.adapters.as_ref().unwrap();
    adapters.tick(with.now + 10_000_000_000);
    let counted: u64 = adapters.states().ports.iter().map(|port| port.dropped).sum();
    let is_exact = !with.nics.iter().any(Nic::hides_tags);
    assert!(!is_exact || counted <= with.offloaded()[2], "seed {seed}");
    let sent: u64 = adapters.states().ports.iter().map(|port| port.forwarded).sum();
    assert!(!is_exact || sent <= with.offloaded()[3], "seed {seed}");
    assert_eq!(without.offloaded(), [0; 4]);
    (with.offloaded(), all)
}

fn rules_in_adapters_do_not_change_the_answers() {
    let seeds = std::env::var("FLOWYARD_SEEDS").ok().and_then(|text| text.parse().ok());
    let (mut done, mut all) = ([0; 4], 0);
    for seed in 0..seeds.unwrap_or(80) {
        let (some, frames) = run(seed);
        all += frames;
        done.iter_mut().zip(some).for_each(|(sum, more)| *sum += more);
    }
    let [marked, moved, dropped, sent] = done;
    flowyard_testkit::note!(
        "of {all} frames {marked} marked, {moved} moved, {dropped} dropped, {sent} sent out"
    );
    let is_enough = marked * 25 > all && dropped * 50 > all && moved > 100 && sent > 150;
    assert!(is_enough, "{done:?} of {all}: otherwise this test would prove nothing");
}

/// The states of the entries of [`TEXT`] in an adapter with these limits.
fn states(text: &str, limits: flowyard_dpdk::rules::Limits) -> Vec<(String, State)> {
    let config = Config::parse("y", text).unwrap_or_else(|error| panic!("{error}"));
    let (adapters, nic) = (Arc::new(Adapters::new(16)), Nic::new(0, limits, Rng::new(1)));
    adapters.add(0, "p0", Box::new(nic.device.clone()), &[0]);
    let mut parts = Parts::default();
    parts.rx.insert(0, Box::new(nic.rx(0)));
    parts.control.push(Arc::clone(&adapters) as Arc<dyn ControlPlane>);
    let _yard = config.build(parts).unwrap();
    let entries = adapters.states().ports.remove(0).entries;
    entries.into_iter().map(|one| (one.what, one.state)).collect()
}

fn why_an_entry_is_in_software_is_said() {
    let text = r#"
        [yard]
        cores = 1
        [[port]]
        name = "p0"
        kind = "mem"
        in = "none"
        [[queue]]
        name = "q"
        order = "direct"
        consumers = [0]
        [work]
        kind = "forward"
        ports = { p0 = "p0" }
        [offload]
        rules = true
        [steer]
        counters = ["c"]
        [[steer.exact]]
        flow = "udp 10.0.0.1:5 > 10.0.0.2:53"
        drop = true
        [[steer.rule]]
        match = { dst = "10.0.0.0/24", proto = "udp" }
        queue = "q"
        [[steer.rule]]
        match = { dst = "10.0.9.1" }
        priority = 2
        drop = true
        counter = "c"
        [[steer.rule]]
        match = { proto = "icmp", dst = "10.0.7.0/24" }
        drop = true
        [[steer.rule]]
        match = { dst = "10.0.8.0/24" }
        drop = true
    "#;
    let all = flowyard_dpdk::rules::Limits {
        rules: 64,
        queues: 1,
        vlans: true,
        ipv6: true,
        prefixes: true,
        marks: true,
        counts: true,
        switch: None,
    };
    let software = |why: &str| State::Software(why.into());
    let contested = software("exact entry 1 is asked first and can match the same frames");
    let icmp = software("rules of adapters match the protocols TCP and UDP");
    let wanted = |drops: State, marks: State, net: State| {
        let rows: [(&str, State); 5] = [
            ("exact entry 1", drops),
            ("rule 2", marks),
            ("rule 1", contested.clone()),
            ("rule 3", icmp.clone()),
            ("rule 4", net),
        ];
        rows.map(|(what, state)| (what.to_owned(), state)).to_vec()
    };
    assert_eq!(states(text, all.clone()), wanted(State::Drops, State::Marks, State::Drops));
    let none = flowyard_dpdk::rules::Limits {
        prefixes: false,
        marks: false,
        counts: false,
        ..all.clone()
    };
    let (no_marks, no_nets) = ("the stand-in has no marks", "the stand-in has no prefixes");
    let got = states(text, none);
    assert_eq!(got, wanted(State::Drops, software(no_marks), software(no_nets)));
    let full = flowyard_dpdk::rules::Limits { rules: 1, ..all };
    let why = software("the stand-in is full: it has 1 rules");
    assert_eq!(states(text, full), wanted(State::Drops, why.clone(), why));
    let error = Config::parse("y", &text.replace("rules = true", "rules = true\nxdp = true"));
    let error = error.map(drop).unwrap_err().to_string();
    assert!(error.contains("cannot be used together"), "{error}");
}

/// What a switch does with its flows, by hand.
fn flows_get_rules_and_lose_them() {
    use flowyard_yard::front::{Change, Entry, Front};
    let mut rng = Rng::new(3);
    let limits = flowyard_dpdk::rules::Limits {
        rules: 2,
        queues: 1,
        vlans: false,
        ipv6: false,
        prefixes: false,
        marks: true,
        counts: false,
        switch: None,
    };
    let nic = Nic::new(0, limits, Rng::new(rng.bits()));
    let adapters = Adapters::new(3);
    adapters.add(0, "p0", Box::new(nic.device.clone()), &[0]);
    let entry = |flow: u64, in_port: u16| {
        let key = FlowKey { in_port, ..key(flow) };
        Entry { key, port: 1, macs: None, hop: false, change: Change::None, mtu: 0 }
    };
    assert!(adapters.takes(0, 1) && !adapters.takes(1, 0) && !Front::answers(&adapters));
    assert_eq!(adapters.put(&[entry(0, 1)], 0), None);
    let numbers: Vec<u32> =
        (0..3).map(|flow| adapters.put(&[entry(flow, 0)], 0).unwrap()).collect();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(adapters.put(&[entry(3, 0)], 0), None, "there are three numbers");
    let why = adapters.why_not(&entry(3, 0)).unwrap();
    assert!(why.contains("as [offload] allows"), "{why}");
    adapters.remove(1);
    assert!(adapters.state(0).contains("waits"), "{}", adapters.state(0));
    adapters.tick(1);
    // The second was removed before it got a rule, so the third one fits.
    assert_eq!(nic.device.with(|device| device.rules()), 2);
    for number in [0, 2] {
        let state = adapters.state(number);
        assert!(state.starts_with("the adapter marks its frames"), "{number}: {state}");
    }
    adapters.free(1);
    assert_eq!(adapters.put(&[entry(4, 0)], 0), Some(1));
    adapters.tick(2);
    let state = adapters.state(1);
    assert_eq!(state, "it is not in the adapter: the stand-in is full: it has 2 rules");
    adapters.remove(0);
    adapters.tick(3);
    assert_eq!(nic.device.with(|device| device.rules()), 1);
    let states = adapters.states();
    assert_eq!((states.ports[0].flows, states.waiting), (1, 0));
    let refused: u64 = states.refused.iter().map(|(_, count)| count).sum();
    assert_eq!(refused, 3, "{:?}", states.refused);
}
