//! A running engine allocates nothing per frame: from rx to tx, while learning, and for edits by
//! mail.

use flowyard_config::Config;
use flowyard_frame::{FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::Pace;
use flowyard_ports::port::{Repeat, SourceRx};
use flowyard_switch::change_message;
use flowyard_testkit::alloc::{Count, Counting};
use flowyard_testkit::{Build, Profile, Rng, Traffic};
use flowyard_wire::LinkType;
use flowyard_yard::{Counters, DropReason, Message, Parts, Tick};

flowyard_testkit::tests! {
    frames_are_forwarded_without_allocation,
    bridging_and_copying_allocate_nothing,
    routing_allocates_nothing,
    switching_allocates_nothing,
    balancing_allocates_nothing_in_any_mode,
    a_check_allocates_no_tables,
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const YARD: &str = r#"
    [yard]
    cores = 2
    [[port]]
    name = "west"
    kind = "mem"
    in = "given"
    core = 0
    [[port]]
    name = "east"
    kind = "mem"
    core = 1
    [[queue]]
    name = "zero"
    order = "direct"
    consumers = [0]
    [[queue]]
    name = "one"
    order = "direct"
    consumers = [1]
    full = "drop"
    window_frames = 64
    [[queue]]
    name = "atomic"
    order = "atomic"
    consumers = [0, 1]
    [[queue]]
    name = "ordered"
    order = "ordered"
    consumers = [0, 1]
    [learn]
    kind = "atr"
    sample_every = 4
    entries = 64
"#;

const FORWARD: &str = r#"
    [work]
    kind = "forward"
    ports = { west = "east" }
"#;

/// The same configuration with rules that count, and a small flow cache.
fn ruled() -> String {
    let learn = "kind = \"cache\"\n    entries = 64\n    replace_every = 4";
    let steer = r#"[steer]
    counters = ["even", "web"]
    [[steer.rule]]
    match = { src = "0.0.0.0/1" }
    queue = "ordered"
    counter = "even"
    [[steer.rule]]
    match = { dst_port = 11211 }
    priority = 2
    queue = "one"
    counter = "web"
    [[steer.rule]]
    match = {}
    queue = "atomic"
    "#;
    let atr = "kind = \"atr\"\n    sample_every = 4\n    entries = 64";
    assert!(YARD.contains(atr));
    format!("{}{steer}{FORWARD}", YARD.replace(atr, learn))
}

/// A third port, so that flooding makes copies.
const BRIDGE: &str = r#"
    [[port]]
    name = "south"
    kind = "mem"
    core = 1
    [work]
    kind = "bridge"
    stations = 64
    age_ms = 1
"#;

const ROUTE: &str = r#"
    [work]
    kind = "route"
    [[work.route]]
    prefix = "0.0.0.0/0"
    port = "east"
    next_hop = "02:00:00:00:01:01"
    [[work.route]]
    prefix = "::/0"
    port = "west"
    next_hop = "02:00:00:00:01:01"
"#;

fn frames_are_forwarded_without_allocation() {
    run_without_allocation(&format!("{YARD}{FORWARD}"), 1_000);
    run_without_allocation(&ruled(), 0); // its queues do not fill
}

fn bridging_and_copying_allocate_nothing() {
    let (then, warm) = run_without_allocation(&format!("{YARD}{BRIDGE}"), 1_000);
    let (copies, learnt) = (then.copies - warm.copies, then.tx_frames - warm.tx_frames);
    assert!(copies > 50_000 && learnt > copies, "{then:#?}");
}

fn routing_allocates_nothing() {
    let (then, _) = run_without_allocation(&format!("{YARD}{ROUTE}"), 1_000);
    assert_eq!(then.drops.get(DropReason::NoRoute), 0, "{then:#?}");
}

const SWITCH: &str = r#"
    [work]
    kind = "switch"
    [switch]
    tables = 2
    cache_entries = 64
"#;

/// The flows use the port mapping, which is too small for all of them; some flows can be cached and
/// some cannot. There are a meter, a group, changed copies, floods and `NORMAL`. Only frames for
/// controllers get memory of their own.
fn switching_allocates_nothing() {
    use flowyard_openflow::act::{Action, Instruction};
    use flowyard_openflow::change::{Change, Counts, Entry, Group, Meter};
    use flowyard_openflow::group::{Band, Bucket, GroupType, meter_flags};
    use flowyard_openflow::multipart::{GroupDesc, MeterConfig};
    use flowyard_openflow::port::reserved;
    use flowyard_openflow::{Field, Match, Oxm};

    let mut changes = Vec::new();
    let mut flow = |table, priority, fields: &[Oxm], instructions: Vec<Instruction>| {
        let id = changes.len() as u64 + 1;
        let counts = (0..2).map(|_| Counts::default()).collect();
        let matching = Match(fields.to_vec()).normal();
        let (cookie, flags) = (0, 0);
        let entry = Entry { id, table, priority, cookie, flags, matching, instructions, counts };
        changes.push((id, Change::Flow(std::sync::Arc::new(entry))));
    };
    let output = |port| Action::Output { port, max_len: 0 };
    let station = |n: u128| [Oxm::exact(Field::EthSrc, 0x0200_0000_0000 + n)];
    for n in 0..30 {
        flow(0, 1, &station(n), vec![Instruction::ApplyActions(vec![output(2)])]);
        let goto = Instruction::GotoTable(1);
        flow(
            0,
            1,
            &station(n + 30),
            vec![Instruction::ApplyActions(vec![Action::PushVlan(0x8100), Action::PopVlan]), goto],
        );
    }
    flow(
        1,
        1,
        &station(31),
        vec![Instruction::WriteActions(vec![
            Action::SetField(Oxm::exact(Field::EthDst, 5)),
            output(2),
        ])],
    );
    let copies = vec![output(2), Action::PushVlan(0x8100), output(reserved::FLOOD)];
    flow(1, 0, &[], vec![Instruction::ApplyActions(copies)]);
    flow(0, 0, &[], vec![Instruction::ApplyActions(vec![output(reserved::NORMAL)])]);
    let grouped = vec![Instruction::Meter(1), Instruction::WriteActions(vec![Action::Group(1)])];
    flow(0, 2, &station(7), grouped);
    let counts = |n: usize| (0..n).map(|_| Counts::default()).collect();
    let bands = vec![Band::Drop { rate: 1000, burst: 10 }];
    let config = MeterConfig { flags: meter_flags::PKTPS | meter_flags::BURST, meter: 1, bands };
    let meter = Meter { config, counts: counts(2), bands: counts(2) };
    let any = reserved::ANY;
    let bucket =
        |port| Bucket { weight: 1, watch_port: any, watch_group: any, actions: vec![output(port)] };
    let buckets = vec![bucket(1), bucket(2)];
    let desc = GroupDesc { kind: GroupType::Select, group: 1, buckets };
    let group = Group { desc, counts: counts(2), buckets: counts(4) };
    changes.push((1000, Change::Meter(meter.into())));
    changes.push((1001, Change::Group(group.into())));
    let (then, warm) =
        run_with(&format!("{YARD}{SWITCH}"), 1_000, Some(change_message(changes.into())));
    assert!(then.copies - warm.copies > 10_000, "{then:#?}");
    let metered = |counters: &Counters| counters.drops.get(DropReason::Metered);
    assert!(metered(&then) - metered(&warm) > 100, "{then:#?}");
    assert!(then.exact_hit - warm.exact_hit > 10_000, "{then:#?}");
}

/// All modes, each with two backends. Next hops are resolved by ARP and neighbour discovery.
fn balanced() -> String {
    let mut text = String::from(
        r#"
    [yard]
    cores = 2
    [[port]]
    name = "west"
    kind = "mem"
    in = "given"
    core = 0
    [[port]]
    name = "east"
    kind = "mem"
    core = 1
    [[queue]]
    name = "atomic"
    order = "atomic"
    consumers = [0, 1]
    [work]
    kind = "balance"
    [balance]
    entries = 251
    connections = 512
    opening_ms = 1
    open_ms = 3
    closing_ms = 1
    datagrams_ms = 1
    neighbour_ms = 5
    local = ["10.9.0.1", "10.9.0.2"]
    address = { west = ["192.0.2.253", "10.0.1.254", "2001:db8::fe"] }
    clients = { port = "west", next_hop = "192.0.2.254" }
    "#,
    );
    for (n, (mode, more)) in [
        ("dsr", "proto = \"tcp\""),
        ("dnat", "proto = \"tcp\"\nmss = 1000"),
        ("fullnat", "proto = \"tcp\"\nproxy = \"v2\""),
        ("ipip", "proto = \"tcp\"\nmtu = 300"),
        ("gue", "proto = \"udp\"\nchoice = \"least\""),
        ("fullnat", "proto = \"sctp\"\nchoice = \"roundrobin\""),
    ]
    .into_iter()
    .enumerate()
    {
        text +=
            &format!("[[service]]\nname = \"s{n}\"\nvip = \"192.0.2.{n}\"\nport = \"1-65535\"\n");
        text += &format!("mode = \"{mode}\"\n{more}\n");
        for b in 1..=2 {
            text += &format!("[[service.backend]]\nname = \"b{b}\"\naddr = \"10.0.1.1{n}{b}\"\n");
            text += "exit = { port = \"west\" }\n";
        }
    }
    text
}

/// Segments of clients of every kind, replies of backends, errors, fragments, and neighbour
/// messages.
fn for_balancers() -> Frames {
    let mut frames = Frames::new();
    let mut rng = Rng::new(5);
    let ip = |text: &str| -> std::net::IpAddr { text.parse().unwrap() };
    let mut push = |data: &[u8]| frames.push(0, LinkType::Ethernet, data);
    for turn in 0..20_000u32 {
        let n = rng.below(6);
        let which = if n == 4 {
            proto::UDP
        } else if n == 5 {
            proto::SCTP
        } else {
            proto::TCP
        };
        let [client, vip] = [format!("10.2.0.{}", rng.below(200)), format!("192.0.2.{n}")];
        let key =
            FlowKey::five_tuple(which, ip(&client), 1000 + rng.below(20) as u16, ip(&vip), 80);
        let flags = [FlowKey::SYN, FlowKey::ACK, FlowKey::ACK, FlowKey::ACK | FlowKey::FIN];
        let build = Build::new(&key).flags(flags[rng.below(4) as usize]).seq(turn % 4);
        let backend = ip(&format!("10.0.1.1{n}{}", 1 + rng.below(2)));
        match rng.below(12) {
            0 => push(&build.ttl(1).bytes()),
            1 => push(&build.frame_len(400).bytes()),
            2 => push(&build.fragment(0, true).bytes()),
            3 => push(&build.fragment(185, false).bytes()),
            4 | 5 => {
                // A reply: for dnat, or to a local address.
                let local = ip(["10.9.0.1", "10.9.0.2"][rng.below(2) as usize]);
                let (dst, port) = if n == 1 {
                    (key.src_ip().unwrap(), key.sport)
                } else {
                    (local, 1024 + rng.below(300) as u16)
                };
                let key = FlowKey::five_tuple(which, backend, 80, dst, port);
                push(&Build::new(&key).flags(FlowKey::ACK).bytes());
            }
            6 => {
                let quoted = Build::new(&key.reversed()).bytes();
                let error = FlowKey::five_tuple(proto::ICMP, ip("10.0.9.9"), 0, ip(&vip), 0);
                let mut data = Build::new(&error).payload(&quoted[14..]).bytes();
                data[34] = 3;
                push(&data);
            }
            7 => {
                // A request for the VIP, and an announcement.
                let asks = rng.below(2) == 0;
                let who = if asks { ip("192.0.2.254") } else { backend };
                let std::net::IpAddr::V4(who) = who else { continue };
                let mut data = vec![0xff; 6];
                data.extend([
                    2,
                    0,
                    0,
                    0,
                    1,
                    1,
                    8,
                    6,
                    0,
                    1,
                    8,
                    0,
                    6,
                    4,
                    0,
                    if asks { 1 } else { 2 },
                ]);
                data.extend([2, 0, 0, 0, 1, 1]);
                data.extend(who.octets());
                data.extend([0, 0, 0, 0, 0, 0, 192, 0, 2, n as u8]);
                push(&data);
            }
            _ => push(&build.bytes()),
        }
    }
    frames
}

fn balancing_allocates_nothing_in_any_mode() {
    let mut parts = Parts::default();
    // All frames come in at one port, and leave by it.
    let source = Box::new(Repeat::new(for_balancers(), u32::MAX));
    parts.rx.insert(0, Box::new(SourceRx::new(0, source, Pace::Fast)));
    let config = Config::parse("y", &balanced()).unwrap();
    let mut yard = config.build(parts).unwrap();
    let mut run = |ticks: u64| {
        for now in 0..ticks {
            yard.cores.iter_mut().for_each(|core| _ = core.tick(now * 1000));
        }
        let total = yard.cores.iter().map(flowyard_yard::Core::counters);
        total.fold(flowyard_yard::Counters::default(), |sum, core| sum.plus(&core))
    };
    let warm = run(5_000);
    let before = Count::of_this_thread().calls;
    let then = run(40_000);
    assert_eq!(
        Count::of_this_thread().calls - before,
        0,
        "of {} frames",
        then.rx_frames - warm.rx_frames
    );
    let drops = |reason| then.drops.get(reason) - warm.drops.get(reason);
    assert!(
        then.copies > 3 && warm.drops.get(DropReason::Unresolved) > 0,
        "{} {:?}",
        then.copies,
        warm.drops
    );
    assert!(then.tx_frames - warm.tx_frames > 50_000, "{then:#?}");
    for reason in [DropReason::Taken, DropReason::Fragment, DropReason::TooLong] {
        assert!(drops(reason) > 100, "{}: {then:#?}", reason.name());
    }
}

/// Runs an engine that must drop at least this number of frames. Returns its counters at the end,
/// and after it was warm.
fn run_without_allocation(yard: &str, dropped: u64) -> (Counters, Counters) {
    run_with(yard, dropped, None)
}

/// The same, after an edit was sent by mail.
fn run_with(yard: &str, dropped: u64, mail: Option<Message>) -> (Counters, Counters) {
    let mut frames = Frames::new();
    for (at, (packet, mut data)) in Traffic::new(Profile::default(), 1).take(20_000).enumerate() {
        // From one of 90 stations to one of 128, some known and some unknown.
        data[6..12].copy_from_slice(&[2, 0, 0, 0, 0, (at % 90) as u8]);
        data[..6].copy_from_slice(&[2, 0, 0, 0, 0, (at * 7 % 128) as u8]);
        frames.push(packet.time, LinkType::Ethernet, &data);
    }
    let mut parts = Parts::default();
    let source = Box::new(Repeat::new(frames, u32::MAX));
    parts.rx.insert(0, Box::new(SourceRx::new(0, source, Pace::Fast)));
    let mut yard = Config::parse("y", yard).unwrap().build(parts).unwrap();
    if let Some(mail) = mail {
        (0..2).for_each(|core| assert!(yard.mail.offer(core, mail.clone())));
    }
    let mut run = |ticks: u64| {
        for now in 0..ticks {
            for core in &mut yard.cores {
                core.tick(now * 1000);
            }
            if now % 7 == 0 {
                // The queues fill, and some frames are dropped.
                for _ in 0..12 {
                    yard.cores[0].tick(now * 1000);
                }
            }
        }
        let total = yard.cores.iter().map(flowyard_yard::Core::counters);
        total.fold(flowyard_yard::Counters::default(), |sum, core| sum.plus(&core))
    };
    let warm = run(2_000);
    let before = Count::of_this_thread().calls;
    let then = run(20_000);
    assert_eq!(
        Count::of_this_thread().calls - before,
        0,
        "of {} frames",
        then.tx_frames - warm.tx_frames
    );
    assert!(before > 100, "the allocator counts");
    let moved = |count: fn(&flowyard_yard::Counters) -> u64| count(&then) - count(&warm);
    assert!(moved(|c| c.tx_frames) > 400_000, "{then:#?}");
    let (edits, drops) = (moved(|c| c.edits), moved(|c| c.drops.total()));
    assert!(edits > 1_000 && drops >= dropped, "{edits} edits, {drops} drops: {then:#?}");
    (then, warm)
}

/// What a check allocates depends on the text, not on the sizes of the tables that it asks for.
fn a_check_allocates_no_tables() {
    let text = include_str!("../../../../docs/examples/balance.toml");
    let exact = "[[steer.exact]]\nflow = \"tcp 10.0.0.1:1 > 10.0.0.2:2\"\ndrop = true\n";
    let with = |maglev: u32, table: usize| {
        let text = text.replacen("[balance]", &format!("[balance]\nentries = {maglev}"), 1);
        format!("{text}\n[steer]\nexact_entries = {table}\n{exact}")
    };
    let cost = |text: &str| {
        let before = Count::of_this_thread().bytes;
        let config = Config::parse("a.toml", text).unwrap();
        config.reload(&config).unwrap();
        Count::of_this_thread().bytes - before
    };
    let (small, large) = (with(10_007, 1000), with(65_537, 9999));
    assert_eq!(small.len(), large.len());
    assert_eq!(cost(&small), cost(&large));
}
