//! Packets of established connections, and every kind of frame near them: what XDP answers is what the balancer does,
//! bit for bit; everything that needs more goes up.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use flowyard_flow::{Secret, parse};
use flowyard_frame::rng::Rng;
use flowyard_frame::{Action, Batch, FlowKey, To, proto};
use flowyard_front::{Error, Kernel, Settings};
use flowyard_lb::{Backend, Balance, BalanceSettings, Control, Exit, Hub, Mode, Service, Timeouts};
use flowyard_pool::{Meta, Pool};
use flowyard_testkit::harness::Need;
use flowyard_testkit::{Build, note};
use flowyard_wire::{Headers, LinkType};
use flowyard_yard::front::{AFTER, Front};
use flowyard_yard::work::Work;

flowyard_testkit::tests! {
    answered_frames_equal_those_of_the_balancer needs [Need::Check(bpf)],
    counters_and_deadlines_follow_what_was_answered needs [Need::Check(bpf)],
    nothing_is_answered_while_frames_are_in_the_yard needs [Need::Check(bpf)],
    what_ends_a_connection_ends_its_entry needs [Need::Check(bpf)],
    frames_that_the_interface_does_not_take_go_up needs [Need::Check(bpf)],
}

fn bpf() -> Result<(), String> {
    match Kernel::load(settings()) {
        Err(Error::Privilege(_)) => Err("CAP_BPF and CAP_NET_ADMIN".to_owned()),
        _ => Ok(()), // a defect of the program is found by the tests themselves
    }
}

const PASS: u32 = 2;
const TX: u32 = 3;
const REDIRECT: u32 = 4;
const SECOND: u64 = 1_000_000_000;
/// Frames arrive by port 0; the backend is behind this port.
const EAST: u16 = 5;
const ENDS: u8 = FlowKey::SYN | FlowKey::FIN | FlowKey::RST;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn settings() -> Settings {
    let mask = FlowKey { in_port: 0, ..FlowKey::FLOW };
    Settings { flows: 64, mask, changes: ENDS, queues: BTreeMap::new() }
}

fn kernel() -> Arc<Kernel> {
    let kernel = Kernel::load(settings()).unwrap();
    for port in 0..8 {
        kernel.has(port, 1).unwrap(); // every port is the loopback interface; frames come by the first
        kernel.takes(port, 1 << 16).unwrap();
    }
    kernel
}

/// One way of forwarding.
#[derive(Clone, Copy, Debug)]
struct Case {
    mode: Mode,
    proto: u8,
    v6: bool,
    /// The backend's address is of IPv6.
    to_v6: bool,
    port: Option<u16>,
    mtu: Option<u16>,
}

impl Case {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for (mode, crossed) in
            [(Mode::Dsr, false), (Mode::Dnat, false), (Mode::Ipip, false), (Mode::Ipip, true)]
        {
            for (proto, v6) in [(6, false), (6, true), (17, false), (17, true)] {
                for (port, mtu) in [(None, None), (Some(8080), Some(600))] {
                    let port = port.filter(|_| mode == Mode::Dnat);
                    all.push(Self { mode, proto, v6, to_v6: v6 != crossed, port, mtu });
                }
            }
        }
        all
    }

    /// The client's flow.
    fn flow(&self) -> FlowKey {
        let [client, vip] = match self.v6 {
            false => ["203.0.113.7", "192.0.2.1"],
            true => ["2001:db8:5::5", "2001:db8::80"],
        };
        FlowKey::five_tuple(self.proto, ip(client), 40_000, ip(vip), 80)
    }

    fn backend(&self) -> IpAddr {
        ip(if self.to_v6 { "2001:db8:1::1" } else { "10.0.1.1" })
    }

    /// The flow of the backend's answers.
    fn answers(&self) -> FlowKey {
        let flow = self.flow();
        let from = self.port.unwrap_or(flow.dport);
        FlowKey::five_tuple(self.proto, self.backend(), from, flow.src_ip().unwrap(), flow.sport)
    }

    fn balancer(&self, kernel: Option<&Arc<Kernel>>) -> Balance {
        self.with_hub(kernel).1
    }

    fn with_hub(&self, kernel: Option<&Arc<Kernel>>) -> (Arc<Hub>, Balance) {
        let exit = Exit { port: EAST, src: [2, 0, 0, 0, 0, 5], dst: [2, 0, 0, 0, 1, 5], via: None };
        let backend = Backend {
            name: "b".into(),
            addr: self.backend(),
            port: self.port,
            weight: 1,
            drain: false,
            backup: false,
            ceiling: None,
            exit,
            server_id: Vec::new(),
        };
        let service = Service {
            mtu: self.mtu,
            ..Service::new(
                "s",
                self.flow().dst_ip().unwrap(),
                self.proto,
                80..=80,
                self.mode,
                vec![backend],
            )
        };
        let settings = BalanceSettings {
            connections: 64,
            full_drops: false,
            opening_most: 32,
            timeouts: Timeouts::default(),
            // Answers leave where they come in.
            clients: Exit { port: 0, src: [2, 0, 0, 0, 0, 1], dst: [2, 0, 0, 0, 9, 1], via: None },
            returns: false,
            local: vec![ip("10.9.0.1"), ip("2001:db8:9::1")],
            pass: Vec::new(),
            places: Vec::new(),
            neighbour_fresh: 0,
            replicated: 0,
            secret: Secret::FIXED,
        };
        let hub = Arc::new(Hub::new(Control::new(vec![service], 251, 7).unwrap()));
        let front = kernel.map(|kernel| Arc::clone(kernel) as Arc<dyn Front>);
        let work = Balance::group_behind(&hub, 1, &settings, front.as_ref()).remove(0);
        (hub, work)
    }

    /// The packets that establish the connection.
    fn establish(&self, work: &mut Balance, now: u64) {
        let there = self.flow();
        let back = if self.mode == Mode::Dnat { self.answers() } else { there };
        let [syn, both, ack] = match self.proto {
            proto::TCP => [FlowKey::SYN, FlowKey::SYN | FlowKey::ACK, FlowKey::ACK],
            _ => [0; 3],
        };
        balance(work, &Build::new(&there).flags(syn).bytes(), now);
        if self.mode == Mode::Dnat {
            balance(work, &Build::new(&back).flags(both).bytes(), now);
        }
        balance(work, &Build::new(&there).flags(ack).bytes(), now);
        if self.mode == Mode::Dnat {
            balance(work, &Build::new(&back).flags(ack).bytes(), now);
        }
        balance(work, &Build::new(&there).flags(ack).bytes(), now);
    }
}

/// What the balancer does with a frame.
fn balance(work: &mut Balance, data: &[u8], now: u64) -> (To, Vec<u8>) {
    let mut pool = Pool::new(64, 4096);
    let mut batch = Batch::default();
    let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
    let frame = pool.copy(data, meta).unwrap();
    let key = parse::key(&Headers::parse(LinkType::Ethernet, data), data, 0);
    let lane = batch.push(frame, key).unwrap();
    batch.actions[lane] = Action::queue(0);
    work.work(&mut batch, &pool, now);
    (batch.actions[lane].to, pool.bytes(&batch.frames[lane]).to_vec())
}

/// A frame of `flow` or near it, and whether it must be answered.
fn frame(rng: &mut Rng, flow: &FlowKey, longest: usize) -> (Vec<u8>, bool) {
    let payload: Vec<u8> = (0..rng.below(900)).map(|_| rng.bits() as u8).collect();
    let one_in = |rng: &mut Rng, n| rng.below(n) == 0;
    let ttl =
        if one_in(rng, 4) { [0, 1, 2, 255][rng.below(4) as usize] } else { rng.below(256) as u8 };
    let flags = if one_in(rng, 5) { rng.bits() as u8 } else { FlowKey::ACK };
    let flags = if flow.proto == proto::TCP { flags } else { 0 };
    let key = FlowKey { tos: rng.bits() as u8, ..*flow };
    let mut build = Build::new(&key).flags(flags).payload(&payload).ttl(ttl).seq(rng.bits() as u32);
    let mut is_plain = ttl >= 2 && flags & ENDS == 0;
    match rng.below(12) {
        0 => {
            build = build.tag([0x8100, 0x88a8][rng.below(2) as usize], rng.bits() as u16);
            is_plain = false;
        }
        1 => {
            build = build.fragment(rng.below(3) as u16, one_in(rng, 2));
            is_plain = false;
        }
        2..5 => build = build.pad(60 + rng.below(20) as usize),
        _ => {}
    }
    let mut bytes = build.bytes();
    let is_v4 = !flow.is_ipv6();
    let header = if is_v4 { 20 } else { 40 };
    let length = header + payload.len() + if flow.proto == proto::TCP { 20 } else { 8 };
    is_plain &= length <= longest;
    let transport = 14 + header;
    let check = transport + if flow.proto == proto::TCP { 16 } else { 6 };
    match rng.below(16) {
        // The sender left it out, or it is wrong: neither is corrected.
        0 if flow.proto == proto::UDP && bytes[12] != 0x81 && bytes.len() > check + 2 => {
            bytes[check..check + 2].fill(0);
        }
        1 => {
            let at = check.min(bytes.len() - 2);
            bytes[at..at + 2].copy_from_slice(&[rng.bits() as u8, rng.bits() as u8]);
        }
        2 if is_v4 => {
            let at = 14 + rng.below(20) as usize;
            bytes[at] ^= 1 << rng.below(8);
            is_plain = false;
        }
        3 => {
            bytes.truncate(bytes.len() - rng.below(30) as usize);
            is_plain = false;
        }
        4 => {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
            is_plain = false;
        }
        _ => {}
    }
    (bytes, is_plain)
}

fn answered_frames_equal_those_of_the_balancer() {
    let named = std::env::var("FLOWYARD_FRAMES").ok();
    let frames: u64 = named.and_then(|number| number.parse().ok()).unwrap_or(3000);
    let (mut answered, mut up) = (0, 0);
    for (seed, case) in (1..).zip(Case::all()) {
        let kernel = kernel();
        let mut hard = case.balancer(Some(&kernel));
        let mut soft = case.balancer(None);
        case.establish(&mut hard, SECOND);
        case.establish(&mut soft, SECOND);
        let overhead = case.mode.overhead(case.to_v6);
        let mtu = case.mtu.map_or(usize::MAX, |mtu| usize::from(mtu) - overhead);
        let mut rng = Rng::new(seed);
        for number in 0..frames {
            let is_back = case.mode == Mode::Dnat && rng.below(2) == 0;
            let (flow, longest) =
                if is_back { (case.answers(), usize::MAX) } else { (case.flow(), mtu) };
            let (sent, is_plain) = frame(&mut rng, &flow, longest);
            if sent.len() < 14 {
                continue;
            }
            kernel.drained(kernel.time());
            let (action, got) = kernel.run(&sent).unwrap();
            let at = format!("{case:?}, frame {number}: {sent:02x?}");
            if action == PASS {
                assert_eq!(got, sent, "{at}");
                assert!(!is_plain, "{at}");
                up += 1;
                continue;
            }
            let (to, want) = balance(&mut soft, &sent, SECOND);
            let out = if is_back { 0 } else { EAST };
            assert_eq!((action, to), (if is_back { TX } else { REDIRECT }, To::Port(out)), "{at}");
            assert_eq!(got, want, "{at}");
            answered += 1;
        }
    }
    note!("{answered} answered, {up} went up");
    assert!(answered * 4 > up && up * 4 > answered, "{answered}, {up}");
}

fn counters_and_deadlines_follow_what_was_answered() {
    for case in Case::all() {
        let kernel = kernel();
        let (hub, mut work) = case.with_hub(Some(&kernel));
        let before = kernel.time();
        // The yard's clock is that of the program less this.
        let yard = |offset: u64| kernel.time() - before + 2000 * SECOND + offset;
        case.establish(&mut work, yard(0));
        kernel.drained(kernel.time());
        let counts = || hub.plan().targets().next().unwrap().counts.sum();
        let old = counts();
        let there = Build::new(&case.flow()).flags(FlowKey::ACK).payload(&[7; 100]).bytes();
        let back = if case.mode == Mode::Dnat { case.answers() } else { case.flow() };
        let back = Build::new(&back).flags(FlowKey::ACK).payload(&[7; 50]).bytes();
        for _ in 0..10 {
            assert!(kernel.run(&there).unwrap().0 != PASS, "{case:?}");
        }
        let replies = if case.mode == Mode::Dnat { 5 } else { 0 };
        for _ in 0..replies {
            assert_eq!(kernel.run(&back).unwrap().0, TX, "{case:?}");
        }
        work.speak(yard(0), &mut |_, _| true);
        let new = counts();
        assert_eq!(new.in_packets - old.in_packets, 10, "{case:?}");
        assert_eq!(new.in_bytes - old.in_bytes, 10 * there.len() as u64, "{case:?}");
        assert_eq!(new.out_packets - old.out_packets, replies, "{case:?}");
        assert_eq!(new.out_bytes - old.out_bytes, replies * back.len() as u64, "{case:?}");
        // The connection lives as long after its last packet as its time-out says, by whomever it was answered.
        let timeout = if case.proto == proto::TCP { 900 } else { 120 };
        work.speak(yard((timeout - 1) * SECOND), &mut |_, _| true);
        assert_eq!(hub.occupancy()[0].connections, 1, "{case:?}");
        assert!(kernel.run(&there).unwrap().0 != PASS, "{case:?}");
        work.speak(yard((timeout + 1) * SECOND), &mut |_, _| true);
        assert_eq!(hub.occupancy()[0].connections, 0, "{case:?}");
        assert_eq!(kernel.run(&there).unwrap().0, PASS, "{case:?}");
        // The last packet is counted when the number is free again.
        work.speak(yard((timeout + 1) * SECOND + 2 * AFTER), &mut |_, _| true);
        assert_eq!(counts().in_packets - old.in_packets, 11, "{case:?}");
    }
}

fn nothing_is_answered_while_frames_are_in_the_yard() {
    let case = Case::all()[0];
    let kernel = kernel();
    let mut work = case.balancer(Some(&kernel));
    let before = kernel.time();
    case.establish(&mut work, SECOND);
    let frame = Build::new(&case.flow()).flags(FlowKey::ACK).payload(&[7; 100]).bytes();
    let run = |frame: &[u8]| kernel.run(frame).unwrap().0;
    assert_eq!(run(&frame), PASS, "nothing has drained");
    kernel.drained(before);
    assert_eq!(run(&frame), PASS, "it was entered later");
    let went_up = kernel.time();
    assert_eq!(run(&frame), PASS);
    kernel.drained(went_up);
    assert_eq!(run(&frame), PASS, "a frame went up after that");
    kernel.drained(kernel.time());
    assert_eq!(run(&frame), REDIRECT);
    assert_eq!(run(&frame), REDIRECT);
    // A fragment goes up, and what follows goes behind it.
    let fragment = Build::new(&case.flow()).flags(FlowKey::ACK).fragment(0, true).bytes();
    assert_eq!((run(&fragment), run(&frame), run(&frame)), (PASS, PASS, PASS));
    kernel.drained(kernel.time());
    assert_eq!(run(&frame), REDIRECT);
}

fn what_ends_a_connection_ends_its_entry() {
    for flags in [FlowKey::FIN | FlowKey::ACK, FlowKey::RST] {
        for case in Case::all().into_iter().filter(|case| case.proto == proto::TCP) {
            let kernel = kernel();
            let mut work = case.balancer(Some(&kernel));
            case.establish(&mut work, SECOND);
            kernel.drained(kernel.time());
            let frame = Build::new(&case.flow()).flags(FlowKey::ACK).bytes();
            assert!(kernel.run(&frame).unwrap().0 != PASS, "{case:?}");
            let last = Build::new(&case.flow()).flags(flags).bytes();
            assert_eq!(kernel.run(&last).unwrap().0, PASS, "{case:?}");
            balance(&mut work, &last, SECOND);
            kernel.drained(kernel.time());
            assert_eq!(kernel.run(&frame).unwrap().0, PASS, "{case:?}");
            // The client uses its port again.
            balance(&mut work, &Build::new(&case.flow()).flags(FlowKey::SYN).bytes(), SECOND);
            case.establish(&mut work, SECOND);
            kernel.drained(kernel.time());
            assert!(kernel.run(&frame).unwrap().0 != PASS, "{case:?}");
        }
    }
}

fn frames_that_the_interface_does_not_take_go_up() {
    for case in Case::all().into_iter().filter(|case| case.mtu.is_none()) {
        let kernel = kernel();
        let mut work = case.balancer(Some(&kernel));
        case.establish(&mut work, SECOND);
        kernel.drained(kernel.time());
        let frame = |payload: usize, pad: usize| {
            let data = vec![7; payload];
            Build::new(&case.flow()).flags(FlowKey::ACK).payload(&data).pad(pad).bytes()
        };
        let plain = frame(500, 0);
        let overhead = case.mode.overhead(case.to_v6);
        let leaving = (plain.len() + overhead) as u32;
        let run = |frame: &[u8]| {
            let action = kernel.run(frame).unwrap().0;
            kernel.drained(kernel.time());
            action
        };
        assert_eq!(run(&plain), REDIRECT, "{case:?}");
        assert!(kernel.takes(EAST, leaving).unwrap() && kernel.reaches(EAST));
        assert!(!kernel.takes(EAST, leaving).unwrap(), "nothing new");
        assert_eq!(run(&plain), REDIRECT, "{case:?}: it fits");
        // Padding counts, unless the tunnel removes it.
        let padded = frame(499, plain.len() + 1);
        assert_eq!(run(&padded), if overhead == 0 { PASS } else { REDIRECT }, "{case:?}");
        kernel.takes(EAST, leaving - 1).unwrap();
        assert_eq!(run(&plain), PASS, "{case:?}: too long by a byte");
        assert_eq!(run(&frame(499, 0)), REDIRECT, "{case:?}");
        kernel.takes(EAST, 0).unwrap();
        assert!(!kernel.reaches(EAST));
        assert_eq!(run(&frame(10, 0)), PASS, "{case:?}: the interface takes nothing");
        kernel.takes(EAST, 1 << 16).unwrap();
        assert_eq!(run(&plain), REDIRECT, "{case:?}");
        // No frames are received by a port without an interface.
        kernel.has(0, 0).unwrap();
        (1..8).for_each(|port| kernel.has(port, 0).unwrap());
        assert_eq!(run(&plain), PASS, "{case:?}");
        kernel.settle();
    }
}
