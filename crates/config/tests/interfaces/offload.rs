//! Long frames and partial checksums between hosts: they pass whole where both ports carry them, and leave finished where
//! one does not.
//!
//! `offload_rate` and `balanced_rate` are measurements, not tests:
//! `FLOWYARD_LIVE=1 cargo test --release -p flowyard-config --test interfaces offload_rate -- --ignored --nocapture`
//!
//! ```text
//!  a [va] ── [vb] kernel bridge [vc] ── [vd] b
//!  a [va] ── [vb] yard, af_packet [vc] ── [vd] b       offloads on, offloads off
//!  a [tap0 ── yard ── va] ────────────── [vd] b        offloads on, offloads off
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use flowyard_ports::Source;
use flowyard_ports::pcap;
use flowyard_report::{Cell, Column, Style, Table};
use flowyard_wire::{Headers, Verdict};
use flowyard_yard::run::Outcome;

use crate::yard::{Live, drops_but};
use flowyard_livekit::line::{Kind, Line, Plan, ips};
use flowyard_livekit::net::{Net, alone};
use flowyard_livekit::traffic::{Datagrams, download, stream};
use flowyard_testkit::harness::Need;
use flowyard_yard::DropReason;

flowyard_testkit::tests! {
    af_packet_passes_long_frames needs [crate::NAMESPACES],
    tap_passes_long_frames needs [crate::NAMESPACES],
    without_offloads_no_frame_is_long needs [crate::NAMESPACES],
    few_buffers_for_long_frames_are_enough needs [crate::NAMESPACES],
    a_port_without_offloads_transmits_finished_frames needs [crate::NAMESPACES, Need::Program("tcpdump")],
    a_port_that_coalesces_makes_long_frames needs [crate::NAMESPACES],
    a_router_passes_long_frames needs [crate::NAMESPACES],
    a_balancer_passes_long_frames needs [crate::NAMESPACES],
    a_balancer_in_front_of_a_wire_transmits_finished_frames needs [crate::NAMESPACES],
    offload_rate on_demand "a measurement",
    balanced_rate on_demand "a measurement",
}

const OFF: &str = "offload = { csum = false }";

/// The configuration of `line`, with `words` for each port on an interface.
fn text(line: &Line, words: &str) -> String {
    line.plan.text().replace("interface =", &format!("{words}\ninterface ="))
}

fn start(line: &Line, words: &str) -> Live {
    let live = Live::start(line.yard(), &text(line, words));
    line.set_up_tap();
    live
}

/// Streams in both directions, datagrams in order, no wrong checksum at either host. Frames may be dropped for `about`.
fn traffic(line: &Line, live: Live, about: &[DropReason]) -> Outcome {
    let mut missing = 0;
    for to in ips() {
        line.ping(to, "");
        let rate = stream(&line.a, &line.b, to, 16 << 20);
        let own: IpAddr = to.to_string().replace('2', "1").parse().unwrap();
        let back = stream(&line.b, &line.a, own, 16 << 20);
        flowyard_testkit::note!("{:?}: {to} {rate:.0} Mbit/s, back {back:.0}", line.plan.kind);
        let gap = Duration::from_micros(300);
        let arrived =
            Datagrams { to, flows: 8, count: 200, bytes: 4000, gap }.send(&line.a, &line.b);
        assert_eq!((arrived.late, arrived.twice), (0, 0), "{to}");
        missing += 1600 - arrived.total;
    }
    assert_eq!((line.a.checksum_errors(), line.b.checksum_errors()), (0, 0), "wrong checksums");
    let outcome = live.stop();
    let drops = outcome.total().drops;
    assert_eq!(drops_but(&outcome, &[about, &[DropReason::Overrun]].concat()), 0, "{drops:?}");
    assert!(missing <= drops.total() && missing < 400, "{missing} are missing; {drops:?}");
    outcome
}

/// The mean length of the frames that were received.
fn mean(outcome: &Outcome) -> u64 {
    let total = outcome.total();
    total.rx_bytes / total.rx_frames
}

fn passes(kind: Kind, more: &'static str) {
    let _alone = alone();
    let line = Line::new(Plan { yard: more, ..Plan::of(kind) });
    let outcome = traffic(&line, start(&line, ""), &[]);
    // Half of the frames are short: acknowledgements, and fragments of datagrams.
    assert!(mean(&outcome) > 3000, "{} bytes on average", mean(&outcome));
}

fn af_packet_passes_long_frames() {
    passes(Kind::Packet, "");
}

fn tap_passes_long_frames() {
    passes(Kind::Tap, "");
}

fn without_offloads_no_frame_is_long() {
    for kind in [Kind::Packet, Kind::Tap] {
        let _alone = alone();
        let line = Line::new(Plan::of(kind));
        let outcome = traffic(&line, start(&line, OFF), &[]);
        assert!(mean(&outcome) <= 1514, "{} bytes on average", mean(&outcome));
    }
}

/// Frames for which there is no long buffer are cut where they are received.
fn few_buffers_for_long_frames_are_enough() {
    for kind in [Kind::Packet, Kind::Tap] {
        let _alone = alone();
        let line = Line::new(Plan { yard: "large_frames = 2", ..Plan::of(kind) });
        traffic(&line, start(&line, ""), &[]);
    }
}

/// What leaves by a port without offloads is captured behind it: no frame is long, and each checksum is right.
fn a_port_without_offloads_transmits_finished_frames() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let line = Line::new(Plan::of(Kind::Tap));
    // Frames of the other host come finished, too: what is captured was not completed by its kernel.
    line.b.sh("ethtool -K vd tx off gro off > /dev/null");
    let east = text(&line, "").replace("interface = \"va\"", &format!("{OFF}\ninterface = \"va\""));
    let live = Live::start(line.yard(), &east);
    line.set_up_tap();
    let path = dir.path().join("seen.pcap");
    let capture = format!("tcpdump -i vd -w {} -B 65536 -U 2> /dev/null & echo $!", path.display());
    let pid = line.b.sh(&capture.replace("& echo", "> /dev/null & echo"));
    std::thread::sleep(Duration::from_millis(800));
    for to in ips() {
        stream(&line.a, &line.b, to, 8 << 20);
    }
    std::thread::sleep(Duration::from_millis(300));
    line.b.sh(&format!(
        "kill {}; while kill -0 {} 2> /dev/null; do sleep 0.05; done",
        pid.trim(),
        pid.trim()
    ));
    let outcome = live.stop();
    assert!(mean(&outcome) > 2000, "{} bytes on average", mean(&outcome));
    let total = outcome.total();
    assert!(total.tx_cut > 100 && total.tx_segments > 10 * total.tx_cut, "{total:?}");
    let (mut seen, mut long) = (0, 0);
    let mut reader = pcap::open(&path).unwrap();
    loop {
        let burst = reader.read().unwrap();
        if burst.is_empty() {
            break;
        }
        for (record, bytes) in burst.iter() {
            let found = Headers::parse(record.link, bytes);
            let verdict = found.transport_checksum(bytes);
            assert_ne!(verdict, Verdict::Bad, "a frame of {} bytes", bytes.len());
            seen += u32::from(verdict == Verdict::Good);
            long += u32::from(bytes.len() > 1514);
        }
    }
    assert_eq!(long, 0);
    assert!(seen > 10_000, "{seen} frames with good checksums");
}

/// The kernel finishes the frames that the yard receives, and the yard joins them. They leave as long frames, or cut again.
fn a_port_that_coalesces_makes_long_frames() {
    let gro = "offload = { csum = false, gro = true }";
    for (kind, words) in [
        (Kind::Packet, "offload = { gro = true }"), // nothing to join, but all frames pass the table
        (Kind::Packet, gro),
        (Kind::Tap, gro),
    ] {
        let _alone = alone();
        let line = Line::new(Plan::of(kind));
        let total = traffic(&line, start(&line, words), &[]).total();
        let (coalesced, cut) = (total.rx_coalesced, total.tx_cut);
        flowyard_testkit::note!("{kind:?} {words}: {coalesced} frames joined, {cut} cut");
        if words == gro {
            // Each stream has 16 MiB, that is more than 11,000 segments; acknowledgements stay alone.
            assert!(coalesced > 5000, "{total:?}");
            assert!(cut > 100 && total.tx_segments > 3 * cut, "{total:?}");
        }
    }
    // The first port joins frames, and the second one passes them on.
    let _alone = alone();
    let line = Line::new(Plan::of(Kind::Tap));
    let east =
        text(&line, gro).replace(&format!("{gro}\ninterface = \"va\""), "interface = \"va\"");
    let live = Live::start(line.yard(), &east);
    line.set_up_tap();
    for to in ips() {
        stream(&line.a, &line.b, to, 16 << 20);
    }
    assert_eq!((line.a.checksum_errors(), line.b.checksum_errors()), (0, 0), "wrong checksums");
    let outcome = live.stop();
    let total = outcome.total();
    assert!(total.rx_coalesced > 5000 && mean(&outcome) > 1514, "{total:?}");
}

/// The MAC address of an interface.
fn mac(net: &Net, name: &str) -> String {
    let line = format!("ip -o link show {name} | sed 's/.*ether \\([^ ]*\\).*/\\1/'");
    net.sh(&line).trim().to_owned()
}

/// A router between two networks: the time to live changes, and nothing else.
fn a_router_passes_long_frames() {
    let _alone = alone();
    let line = Line::new(Plan::of(Kind::Packet));
    let (a, b) = (mac(&line.a, "va"), mac(&line.b, "vd"));
    let route = |prefix: &str, port: &str, to: &str| {
        format!("[[work.route]]\nprefix = \"{prefix}\"\nport = \"{port}\"\nnext_hop = \"{to}\"\n")
    };
    let work: String = [("10.9.0.2/32", "east", &b), ("fd09::2/128", "east", &b)]
        .iter()
        .chain(&[("10.9.0.1/32", "west", &a), ("fd09::1/128", "west", &a)])
        .map(|(prefix, port, to)| route(prefix, port, to))
        .collect();
    let text = text(&line, "");
    let at = text.find("[work]").unwrap();
    let live =
        Live::start(line.yard(), &format!("{}[work]\nkind = \"route\"\n{work}", &text[..at]));
    // The router does not answer ARP.
    for (net, name, to, far) in [(&line.a, "va", 2, &b), (&line.b, "vd", 1, &a)] {
        for ip in [format!("10.9.0.{to}"), format!("fd09::{to}")] {
            net.sh(&format!("ip neigh replace {ip} lladdr {far} dev {name} nud permanent"));
        }
    }
    // Hosts send to groups, which a router does not forward.
    let about = [DropReason::Filtered, DropReason::NotIp];
    let outcome = traffic(&line, live, &about);
    assert!(mean(&outcome) > 3000, "{} bytes on average", mean(&outcome));
}

/// The VIPs, and the addresses from which backends see FullNAT connections come.
const VIPS: [&str; 2] = ["10.9.8.1", "fd09:8::1"];
const LOCAL: [&str; 2] = ["10.9.0.9", "fd09::9"];
const CLIENTS: [&str; 2] = ["10.9.0.1", "fd09::1"];
/// The MAC addresses of the balancer.
const PORTS: [&str; 2] = ["02:00:00:00:01:01", "02:00:00:00:01:02"];

/// Starts a balancer whose backend is the second host. `words` are for the ports of clients and of the backend.
fn balancer(line: &Line, mode: &str, words: [&str; 2]) -> Live {
    let kind = |n: usize| {
        let (from, to) = (["west", "east"][n], PORTS[n]);
        (
            format!("name = \"{from}\"\n"),
            format!("name = \"{from}\"\nmac = \"{to}\"\n{}\n", words[n]),
        )
    };
    let text = line.plan.text();
    let text = text[..text.find("[work]").unwrap()].to_owned();
    let text = [kind(0), kind(1)].iter().fold(text, |text, (from, to)| text.replace(from, to));
    // The interface of the first host that the tap makes does not exist yet.
    let client =
        if line.plan.kind == Kind::Tap { "02:00:00:00:00:aa".into() } else { mac(&line.a, "va") };
    let service = |n: usize| {
        format!(
            "[[service]]\nname = \"s{n}\"\nvip = \"{}\"\nproto = \"tcp\"\nport = \"1-65535\"\nmode = \"{mode}\"\n\
             [[service.backend]]\nname = \"b\"\naddr = \"{}\"\nexit = {{ port = \"east\", next_hop = \"{}\" }}\n",
            VIPS[n],
            ips()[n],
            mac(&line.b, "vd")
        )
    };
    let text = format!(
        "{text}[work]\nkind = \"balance\"\n[balance]\nclients = {{ port = \"west\", next_hop = \"{client}\" }}\n\
         local = [\"{}\", \"{}\"]\npass = {{ west = \"east\", east = \"west\" }}\n{}{}",
        LOCAL[0],
        LOCAL[1],
        service(0),
        service(1)
    );
    let live = Live::start(line.yard(), &text);
    line.set_up_tap();
    for n in 0..2 {
        let (near, at, bits) = (line.near(), VIPS[n], [32, 128][n]);
        line.a.sh(&format!("ip route replace {at}/{bits} dev {near}"));
        line.a.sh(&format!("ip neigh replace {at} lladdr {} dev {near} nud permanent", PORTS[0]));
        if mode == "dsr" {
            line.b.sh(&format!("ip addr replace {at}/{bits} dev lo"));
            continue;
        }
        // Replies go to the balancer, although the client is on the same link.
        for to in [CLIENTS[n], LOCAL[n]] {
            line.b.sh(&format!("ip neigh replace {to} lladdr {} dev vd nud permanent", PORTS[1]));
        }
    }
    live
}

/// Streams through a balancer in both directions, whole, and no wrong checksum at either host.
fn balanced(kind: Kind, mode: &str, words: [&str; 2]) -> Outcome {
    let line = Line::new(Plan::of(kind));
    let live = balancer(&line, mode, words);
    for to in VIPS.map(|vip| vip.parse().unwrap()) {
        let up = stream(&line.a, &line.b, to, 16 << 20);
        let down = download(&line.a, &line.b, to, 16 << 20);
        flowyard_testkit::note!("{kind:?} {mode} {words:?}: {to} {up:.0} Mbit/s, back {down:.0}");
    }
    assert_eq!((line.a.checksum_errors(), line.b.checksum_errors()), (0, 0), "wrong checksums");
    let outcome = live.stop();
    let drops = outcome.total().drops;
    assert_eq!(drops_but(&outcome, &[DropReason::Overrun]), 0, "{drops:?}");
    outcome
}

/// Headers are changed, and frames stay as long as they came.
fn a_balancer_passes_long_frames() {
    let _alone = alone();
    for kind in [Kind::Packet, Kind::Tap] {
        for mode in ["dsr", "dnat", "fullnat"] {
            let outcome = balanced(kind, mode, ["", ""]);
            assert!(mean(&outcome) > 3000, "{} bytes on average", mean(&outcome));
            let total = outcome.total();
            assert_eq!((total.tx_cut, total.tx_checksums), (0, 0), "{total:?}");
        }
    }
}

/// The host behind a port that finishes frames verifies each checksum. So does the client, whose port does so next.
fn a_balancer_in_front_of_a_wire_transmits_finished_frames() {
    let _alone = alone();
    for kind in [Kind::Packet, Kind::Tap] {
        for mode in ["dsr", "dnat", "fullnat"] {
            for words in [["", OFF], [OFF, ""]] {
                let total = balanced(kind, mode, words).total();
                assert!(total.tx_cut > 50 && total.tx_segments > 5 * total.tx_cut, "{total:?}");
            }
        }
    }
}

/// One run of iperf3.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Gigabits per second that the receiver got.
    rate: f64,
    /// Processor time of the whole machine, in nanoseconds for each megabyte.
    cost: f64,
}

/// Processor time of the machine that was not idle, in nanoseconds.
fn busy() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let numbers = text.lines().next().unwrap().split_whitespace().skip(1);
    let numbers: Vec<f64> = numbers.map(|n| n.parse().unwrap()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; in hundredths of a second.
    numbers
        .iter()
        .enumerate()
        .filter(|(at, _)| !matches!(at, 3 | 4 | 7..))
        .map(|(_, n)| n * 1e7)
        .sum()
}

/// iperf3 from the first host to the second for some seconds.
fn iperf(line: &Line, to: IpAddr, seconds: u32) -> Run {
    line.b.sh("iperf3 -s -1 > /dev/null 2>&1 &");
    std::thread::sleep(Duration::from_millis(300));
    let before = busy();
    let said = line.a.sh(&format!("iperf3 -c {to} -t {seconds} -J"));
    let spent = busy() - before;
    let part = said.split("\"sum_received\"").nth(1).unwrap();
    let field = |name: &str| -> f64 {
        let rest = part.split(&format!("\"{name}\":")).nth(1).unwrap();
        rest.split([',', '}', '\n']).next().unwrap().trim().parse().unwrap()
    };
    Run { rate: field("bits_per_second") / 1e9, cost: spent / (field("bytes") / 1e6) }
}

/// iperf3 from a client through a balancer, with `dsr` and with `fullnat`, offloads on and off in turn.
fn balanced_rate() {
    let _alone = alone();
    let mut all: BTreeMap<(&str, &str), Vec<Run>> = BTreeMap::new();
    for round in 0..5 {
        for turn in 0..4 {
            let at = (turn + round) % 4;
            let (mode, words) = (["dsr", "fullnat"][at / 2], ["", OFF][at % 2]);
            let line = Line::new(Plan::of(Kind::Packet));
            let live = balancer(&line, mode, [words; 2]);
            for to in VIPS {
                let run = iperf(&line, to.parse().unwrap(), 3);
                flowyard_testkit::note!("  {mode} '{words}' {to}: {run:.2?}");
                all.entry((mode, words)).or_default().push(run);
            }
            assert_eq!(
                (line.a.checksum_errors(), line.b.checksum_errors()),
                (0, 0),
                "wrong checksums"
            );
            live.stop();
        }
    }
    for ((mode, words), runs) in &mut all {
        runs.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        let middle = runs[runs.len() / 2];
        flowyard_testkit::note!("{mode} '{words}': median of {}: {middle:.2?}", runs.len());
    }
}

const WAYS: [(&str, Option<(Kind, bool)>); 5] = [
    ("kernel bridge", None),
    ("af_packet, on", Some((Kind::Packet, true))),
    ("af_packet, off", Some((Kind::Packet, false))),
    ("tap, on", Some((Kind::Tap, true))),
    ("tap, off", Some((Kind::Tap, false))),
];

fn offload_rate() {
    let _alone = alone();
    let of = |name: &str, default| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (rounds, seconds) = (of("OFFLOAD_ROUNDS", 3), of("OFFLOAD_SECONDS", 3));
    let load = || fs::read_to_string("/proc/loadavg").unwrap().trim().to_owned();
    let load_before = load();
    let mut all: BTreeMap<(&str, bool), Vec<Run>> = BTreeMap::new();
    for round in 0..rounds as usize {
        for turn in 0..WAYS.len() {
            let (name, way) = WAYS[(turn + round) % WAYS.len()];
            let kind = way.map_or(Kind::Packet, |(kind, _)| kind);
            let line = Line::new(Plan::of(kind));
            let live = way.map(|(_, is_on)| start(&line, if is_on { "" } else { OFF }));
            if live.is_none() {
                line.yard().sh("ip link add br0 type bridge && ip link set vb master br0 && \
                     ip link set vc master br0 && ip link set br0 up");
            }
            for to in ips() {
                line.ping(to, "");
                let run = iperf(&line, to, seconds);
                flowyard_testkit::note!("  {name} {to}: {run:.2?}");
                all.entry((name, to.is_ipv6())).or_default().push(run);
            }
            assert_eq!(
                (line.a.checksum_errors(), line.b.checksum_errors()),
                (0, 0),
                "wrong checksums"
            );
            live.map(Live::stop);
        }
    }
    let median = |runs: &[Run], of: fn(&Run) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let mut table = Table::new("iperf3, one TCP stream")
        .column(Column::text("by"))
        .column(Column::text("ip"))
        .column(Column::number("rate").unit("Gbit/s"))
        .column(Column::number("least"))
        .column(Column::number("most"))
        .column(Column::number("of the bridge").unit("%"))
        .column(Column::number("times off"))
        .column(Column::number("machine").unit("ns/MB"));
    for (name, _) in WAYS {
        for v6 in [false, true] {
            let rate = |name: &str| {
                all.iter()
                    .find(|((of, six), _)| *of == name && *six == v6)
                    .map(|(_, runs)| median(runs, |run| run.rate))
            };
            let (runs, own) = (&all[&(name, v6)], rate(name).unwrap());
            let ends = runs
                .iter()
                .fold((f64::MAX, 0_f64), |(a, b), run| (a.min(run.rate), b.max(run.rate)));
            let off = name.strip_suffix("on").and_then(|kind| rate(&format!("{kind}off")));
            table.push([
                Cell::new(name),
                Cell::new(if v6 { "v6" } else { "v4" }),
                Cell::new(format!("{own:.2}")),
                Cell::new(format!("{:.2}", ends.0)),
                Cell::new(format!("{:.2}", ends.1)),
                Cell::new(format!("{:.0}", 100. * own / rate("kernel bridge").unwrap())),
                Cell::new(off.map_or(String::new(), |off| format!("{:.1}", own / off))),
                Cell::new(format!("{:.0}", median(runs, |run| run.cost))),
            ]);
        }
    }
    let table = table.note(format!(
        "medians of {rounds} rotated rounds of {seconds} s; load average {load_before} before, {} after",
        load()
    ));
    flowyard_testkit::note!("{}", table.to_text(&Style::plain()));
}
