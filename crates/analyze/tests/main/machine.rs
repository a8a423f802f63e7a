//! Tenants, interrupts, storage and management in an analysis.

use flowyard_adapter::fcoe::{Sequence, segment};
use flowyard_adapter::interrupt::Moderation;
use flowyard_adapter::tenants;
use flowyard_analyze::{Analysis, Analyzer, BadSetup, Interrupting, Question, Setup, Spec, Target};
use flowyard_frame::{FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_testkit::Build;
use flowyard_testkit::Profile as Mix;
use flowyard_wire::LinkType;
use flowyard_wire::fc::{Eof, FcHeader};

use crate::common::{analyze, fdir, policy, setup, traffic};

flowyard_testkit::tests! {
    frames_are_sorted_among_tenants,
    a_tenant_that_spoofs_is_counted,
    the_management_controller_gets_its_frames,
    the_management_controller_gets_neighbor_discovery,
    other_adapters_have_no_tenants,
    a_rule_for_a_virtual_function,
    a_flow_with_an_address_names_its_tenant,
    explain_and_the_report_name_the_same_queue,
    interrupts_equal_the_closed_form,
    an_urgent_rule_interrupts_at_once,
    counters_and_values_of_rules,
    a_read_is_placed_directly,
    control_frames_are_named,
}

const WEB: [u8; 6] = [2, 0, 0, 0, 0, 1];
const DB: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 0, 9];

const TENANTS: &str = "tenant web pool 1 mac 02:00:00:00:00:01 vlan 42 spoofchk on\n\
                       tenant db pool 2 mac 02:00:00:00:00:02 queues 1\n\
                       default none\n";

fn with_tenants(adapter: &str, text: &str) -> Setup {
    let tenants = tenants::parse("tenants.txt", text).expect("good tenants");
    Setup { tenants: Some(tenants), ..setup(adapter, vec![Spec::Rss]) }
}

/// An Ethernet frame of 60 bytes with these addresses and this tag.
fn ethernet(dst: [u8; 6], src: [u8; 6], vlan: Option<u16>, rest: &[u8]) -> Vec<u8> {
    let tag = vlan.map(|id| [&[0x81, 0x00][..], &id.to_be_bytes()].concat()).unwrap_or_default();
    let mut bytes = [&dst[..], &src, &tag, rest].concat();
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

fn frames(list: &[Vec<u8>]) -> Frames {
    let mut frames = Frames::new();
    for (time, bytes) in (0..).zip(list) {
        frames.push(time * 1_000_000, LinkType::Ethernet, bytes);
    }
    frames
}

fn frames_are_sorted_among_tenants() {
    let ipv4 = [8, 0, 0x45];
    let list = [
        ethernet(WEB, OUTSIDE, Some(42), &ipv4),
        ethernet(WEB, OUTSIDE, Some(43), &ipv4),
        ethernet(DB, OUTSIDE, None, &ipv4),
        ethernet(DB, OUTSIDE, None, &ipv4),
        ethernet([0xff; 6], OUTSIDE, None, &ipv4),
        ethernet(OUTSIDE, DB, None, &ipv4),
        ethernet(WEB, DB, None, &ipv4),
    ];
    let found = analyze(with_tenants("x520", TENANTS), &mut frames(&list)).tenants.unwrap();
    assert_eq!((&*found.layout, found.default_pool), ("64x2", None));
    let [web, db] = &found.pools[..] else { panic!("{found:?}") };
    // web: its own VLAN, the broadcast, and what db sent inside the adapter.
    assert_eq!((web.tenant.as_deref(), web.pool, web.packets), (Some("web"), 1, 3));
    assert_eq!((db.packets, db.to_network, db.local), (3, 1, 1));
    assert_eq!(db.queues.keys().copied().collect::<Vec<_>>(), [4], "one queue of pool 2");
    assert_eq!(found.dropped["no filter of the VLAN"], 1);
    assert_eq!(found.dropped.values().sum::<u64>(), 1);
}

fn a_tenant_that_spoofs_is_counted() {
    let list =
        [ethernet(OUTSIDE, WEB, Some(42), &[8, 0]), ethernet(OUTSIDE, WEB, Some(7), &[8, 0])];
    let found = analyze(with_tenants("x550", TENANTS), &mut frames(&list)).tenants.unwrap();
    let web = &found.pools[0];
    assert_eq!((web.to_network, web.spoofed["foreign VLAN"]), (1, 1));
}

fn the_management_controller_gets_its_frames() {
    let text = format!("{TENANTS}bmc mac 02:00:00:00:00:02 arp on exclusive on\n");
    let list =
        [ethernet(DB, OUTSIDE, None, &[8, 6, 0, 1]), ethernet(DB, OUTSIDE, None, &[8, 0, 0x45])];
    let found = analyze(with_tenants("x520", &text), &mut frames(&list)).tenants.unwrap();
    assert_eq!(found.management.unwrap()["arp"], 1);
    assert_eq!(found.pools[1].packets, 1, "ARP is exclusive to the management controller");
}

/// A neighbor solicitation (ICMPv6 type 135) passes by its type, an echo request to the same group does not.
fn the_management_controller_gets_neighbor_discovery() {
    let text = format!("{TENANTS}bmc mac 02:00:00:00:00:99 neighbors on exclusive on\n");
    let icmp = |kind: u8| {
        let mut ipv6 = vec![0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, proto::ICMPV6, 255];
        ipv6.extend([0xfe; 32]);
        ethernet(
            [0x33, 0x33, 0xff, 0, 0, 1],
            OUTSIDE,
            None,
            &[&ipv6[..], &[kind; 1], &[0; 7]].concat(),
        )
    };
    let list = [icmp(135), icmp(128)];
    let found = analyze(with_tenants("x550", &text), &mut frames(&list)).tenants.unwrap();
    let management = found.management.unwrap();
    assert_eq!(management.into_iter().collect::<Vec<_>>(), [("neighbor".to_owned(), 1)]);
    for (number, filter) in [(1, Some("neighbor")), (2, None)] {
        let mut analyzer = Analyzer::new(with_tenants("x550", &text)).unwrap();
        let target = analyzer.read_to("test", &mut frames(&list), number).unwrap();
        let answer = analyzer.explain(&target, &Question::default()).tenants.unwrap();
        assert_eq!(answer.management.as_deref(), filter, "packet {number}");
        assert_eq!(answer.only_management, filter.is_some(), "packet {number}");
    }
}

fn other_adapters_have_no_tenants() {
    let error = Analyzer::new(with_tenants("x710", TENANTS)).err();
    assert!(matches!(error, Some(BadSetup::NoPools("x710"))), "{error:?}");
}

fn a_rule_for_a_virtual_function() {
    let text = "ip link set eth0 vf 2 mac 02:00:00:00:00:01\n";
    let rules = "flow-type tcp4 dst-port 80 vf 2 queue 1\nflow-type tcp4 dst-port 81 vf 1 queue 0";
    let policies = vec![fdir(rules)];
    let setup = Setup { policies, queues: 16, ..with_tenants("x520", text) };
    let mut traffic = traffic(Mix { flows: 50, ipv6_every: 0, ..Mix::default() }, 1, 2000);
    let analysis = analyze(setup, &mut traffic);
    let fdir = policy(&analysis, "fdir");
    // Fewer than 32 functions have 4 queues each: queue 1 of function 2 is queue 9.
    assert_eq!((&*fdir.rules[0].verdict, &*fdir.rules[1].verdict), ("accepted", "refused"));
    assert!(fdir.rules[0].packets > 100 && fdir.queues[9].packets >= fdir.rules[0].packets);
}

fn a_flow_with_an_address_names_its_tenant() {
    let mut analyzer = Analyzer::new(with_tenants("x520", TENANTS)).unwrap();
    let flow: FlowKey = "tcp 10.0.0.1:40000 > 10.0.0.2:80 vlan 42".parse().unwrap();
    let named =
        analyzer.explain(&Target::flow(FlowKey { eth_dst: WEB, ..flow }), &Question::default());
    let answer = named.tenants.unwrap();
    assert_eq!(answer.copies[0].tenant.as_deref(), Some("web"));
    assert!(matches!(answer.copies[0].queue, 2 | 3) && answer.copies.len() == 1);
    let bare = analyzer.explain(&Target::flow(flow), &Question::default());
    assert!(bare.tenants.is_none() && bare.notes.iter().any(|note| note.contains("--to-mac")));
}

/// Both directions of a connection come from the network: the tenant only watches it. The queue follows from the frame itself,
/// also where the host would transmit it.
fn explain_and_the_report_name_the_same_queue() {
    let text = "tenant web pool 1 mac 02:00:00:00:00:01\ndefault none\n";
    let setup = || Setup { queues: 4, ..with_tenants("x550", text) };
    let ip = |last| std::net::Ipv4Addr::new(10, 0, 0, last).into();
    for port in 40_000..40_020 {
        let key = FlowKey::five_tuple(proto::TCP, ip(1), port, ip(2), 80);
        let bytes = |key| {
            let key = FlowKey { eth_src: OUTSIDE, eth_dst: WEB, ..key };
            Build::new(&key).bytes()
        };
        let list = [bytes(key), bytes(key.reversed())];
        let found = analyze(setup(), &mut frames(&list)).tenants.unwrap();
        let mut named = std::collections::BTreeMap::new();
        for number in [1, 2] {
            let mut analyzer = Analyzer::new(setup()).unwrap();
            let target = analyzer.read_to("test", &mut frames(&list), number).unwrap();
            let answer = analyzer.explain(&target, &Question::default()).tenants.unwrap();
            *named.entry(answer.copies[0].queue).or_default() += 1;
        }
        assert_eq!(found.pools[0].queues, named, "port {port}");
    }
}

/// One TCP frame of a single flow in each `every` nanoseconds.
fn steady(every: u64, count: u64) -> Frames {
    let ip = |last| std::net::Ipv4Addr::new(10, 0, 0, last).into();
    let key = FlowKey::five_tuple(proto::TCP, ip(1), 40_000, ip(2), 80);
    let bytes = Build::new(&key).bytes();
    let mut frames = Frames::new();
    for n in 0..count {
        frames.push(n * every, LinkType::Ethernet, &bytes);
    }
    frames
}

fn interrupting(interval: u64) -> Option<Interrupting> {
    Some(Interrupting { moderation: Moderation::Fixed(interval), vectors: 4, credits: None })
}

/// Frames every 10 us and an interval of 50 us: 20,000 interrupts a second, and (50 - 10) / 2 us of latency.
fn interrupts_equal_the_closed_form() {
    let setup = Setup { interrupts: interrupting(50_000), ..setup("x520", vec![Spec::Rss]) };
    let analysis = analyze(setup, &mut steady(10_000, 100_000));
    let found = policy(&analysis, "rss").interrupts.as_ref().unwrap();
    assert!((found.per_second / 20_000.0 - 1.0).abs() < 0.01, "{found:?}");
    assert!((found.mean_wait_ns / 20_000.0 - 1.0).abs() < 0.01, "{found:?}");
    let [queue] = &found.queues[..] else { panic!("{found:?}") };
    assert_eq!((queue.packets, queue.vector), (100_000, queue.queue % 4));
    assert!(queue.longest_wait_ns <= 50_000 && found.vectors.len() == 1);
}

fn an_urgent_rule_interrupts_at_once() {
    let rule = fdir("flow-type tcp4 dst-port 80 action 3 moderation low-latency");
    let setup = Setup { interrupts: interrupting(50_000), ..setup("x520", vec![Spec::Rss, rule]) };
    let analysis = analyze(setup, &mut steady(10_000, 10_000));
    let urgent = policy(&analysis, "fdir");
    let found = urgent.interrupts.as_ref().unwrap();
    assert_eq!(urgent.rules[0].moderation.as_deref(), Some("low-latency"));
    assert_eq!((found.interrupts, found.mean_wait_ns), (10_000, 0.0));
    assert!(policy(&analysis, "rss").interrupts.as_ref().unwrap().interrupts < 2100);
}

fn counters_and_values_of_rules() {
    let rules = "flow-type tcp4 dst-port 80 action 3 count 7 value 0x12345\n\
                 flow-type udp4 dst-port 53 action 4 count 7\n\
                 flow-type udp4 dst-port 54 action 4 count 512\n\
                 flow-type udp4 dst-port 55 action 4 moderation low-latency";
    let mut traffic = traffic(Mix { flows: 50, ipv6_every: 0, ..Mix::default() }, 1, 5000);
    let of = |adapter: &str, traffic: &mut Frames| -> Analysis {
        analyze(setup(adapter, vec![fdir(rules)]), traffic)
    };
    let analysis = of("x710", &mut traffic);
    let found = policy(&analysis, "fdir");
    let verdicts: Vec<_> = found.rules.iter().map(|rule| &*rule.verdict).collect();
    assert_eq!(verdicts, ["accepted", "accepted", "refused", "refused"]);
    assert_eq!((found.rules[0].counter, found.rules[0].value), (Some(7), Some(0x12345)));
    assert_eq!(found.counters[&7], found.rules[0].packets + found.rules[1].packets);
    assert!(found.counters[&7] > 100 && found.counters.len() == 1);
    let old = of("x520", &mut traffic);
    assert_eq!(policy(&old, "fdir").rules[0].verdict, "refused", "the 82599 has no counters");
}

const TARGET: [u8; 18] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 3, 0x89, 0x06];

/// The FCoE frames of a sequence of exchange `ox_id`.
fn sequence(r_ctl: u8, f_ctl: u32, ox_id: u16, payload: &[u8]) -> Vec<Vec<u8>> {
    let f_ctl = f_ctl | FcHeader::END_SEQUENCE;
    let header = FcHeader {
        r_ctl,
        kind: 8,
        f_ctl,
        seq_id: r_ctl,
        ox_id,
        rx_id: 0xffff,
        ..FcHeader::default()
    };
    segment(&Sequence {
        link: &TARGET,
        header,
        payload,
        mss: 2048,
        starts: true,
        ends: true,
        eof: Eof::T,
        counts_param: true,
    })
    .unwrap()
}

/// A command that reads 10,000 bytes (FCP_CMND: RDDATA, FCP_DL).
fn command() -> Vec<u8> {
    let mut command = vec![0; 32];
    command[11] = 2;
    command[28..].copy_from_slice(&10_000_u32.to_be_bytes());
    command
}

fn a_read_is_placed_directly() {
    let responder = FcHeader::RESPONDER;
    let exchange = |ox_id, list: &mut Vec<Vec<u8>>| {
        list.extend(sequence(6, 0, ox_id, &command()));
        list.extend(sequence(1, responder | FcHeader::OFFSET, ox_id, &[7; 10_000]));
        list.extend(sequence(7, responder, ox_id, &[0; 24]));
    };
    let mut list = Vec::new();
    exchange(5, &mut list);
    exchange(600, &mut list);
    let mut bad = sequence(1, responder, 5, &[1; 64]).remove(0);
    bad[40] ^= 1;
    list.push(bad);
    let found = analyze(setup("x520", vec![Spec::Rss]), &mut frames(&list)).storage.unwrap();
    assert_eq!((found.frames, found.contexts), (15, 512));
    assert_eq!((found.placed, found.placed_bytes, found.exchanges), (5, 10_000, 1));
    assert_eq!(found.headers, 1, "the status");
    assert_eq!(found.refused["exchange number too large"], 1);
    assert_eq!((found.whole["no context"], found.errors["BADCRC"]), (8, 1));
    let mut analyzer = Analyzer::new(setup("x520", vec![Spec::Rss])).unwrap();
    let target = analyzer.read_to("test", &mut frames(&list), 3).unwrap();
    let kind = analyzer.explain(&target, &Question::default()).kind;
    assert!(kind[0].contains("data") && kind[0].contains("sequence 1 frame 1"), "{kind:?}");
    assert!(kind[1].contains("entry 5 of 8"), "{kind:?}");
    // The X550 has 2048 contexts, others none that a source names.
    let more = analyze(setup("x550", vec![Spec::Rss]), &mut frames(&list)).storage.unwrap();
    assert_eq!((more.exchanges, more.placed_bytes), (2, 20_000));
    let none = analyze(setup("e810", vec![Spec::Rss]), &mut frames(&list)).storage.unwrap();
    assert_eq!((none.contexts, none.placed), (0, 0));
}

fn control_frames_are_named() {
    let control = |kind, payload: &[u8]| {
        let len = payload.len() as u8;
        let head = [0x88, 0xf8, 0, 1, 0, 1, kind, 0, 0, len, 0, 0, 0, 0, 0, 0, 0, 0];
        ethernet([0xff; 6], DB, None, &[&head[..], payload].concat())
    };
    let list = [control(0x0a, &[]), control(0x8a, &[0; 20]), control(0x0a, &[]), vec![0xff; 14]];
    let analysis = analyze(setup("x520", vec![Spec::Rss]), &mut frames(&list[..3]));
    assert_eq!(analysis.control["Get Link Status"], 2);
    assert_eq!(analysis.control["Get Link Status, response"], 1);
    let mut analyzer = Analyzer::new(setup("x520", vec![Spec::Rss])).unwrap();
    let target = analyzer.read_to("test", &mut frames(&list[..3]), 2).unwrap();
    let explained = analyzer.explain(&target, &Question::default());
    let [kind] = &explained.kind[..] else { panic!("{explained:?}") };
    assert!(kind.contains("Get Link Status, response") && kind.contains("completed"), "{kind}");
}
