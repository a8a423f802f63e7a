//! A TCP transfer through `flowyard run`: every byte is checked by the receiver, no checksum is wrong, no
//! frame is reordered within its flow, and the counters contain every frame that the hosts sent or received.
//! 64 MiB; with `FLOWYARD_GIGABYTE=1`, 1 GiB.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::run::order::{Seen, watch};
use crate::yard::{Live, drops, total, wait_until};
use flowyard_livekit::line::{Kind, Line, Plan, ips};
use flowyard_livekit::net::{Net, alone};
use flowyard_livekit::traffic::{Datagrams, stream};

flowyard_testkit::tests! {
    af_packet,
    af_packet_on_two_cores,
    af_xdp,
    af_xdp_on_two_cores,
    tap,
    tap_on_two_cores,
    reordering_is_detected,
}

fn bytes() -> u64 {
    if std::env::var_os("FLOWYARD_GIGABYTE").is_some_and(|on| on == "1") {
        1 << 30
    } else {
        64 << 20
    }
}

/// Frames that a host sent by an interface, received from it, and dropped because its queue was full.
#[derive(Clone, Copy, Default, Debug)]
struct Sent {
    out: u64,
    back: u64,
    lost: u64,
}

fn sent(net: &Net, name: &str) -> Sent {
    let text = net.sh(&format!("ip -s -j link show {name}"));
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let count = |way: &str, what: &str| all[0]["stats64"][way][what].as_u64().unwrap();
    Sent { out: count("tx", "packets"), back: count("rx", "packets"), lost: count("tx", "dropped") }
}

/// The same for both hosts together.
fn ends(line: &Line) -> Sent {
    let (a, b) = (sent(&line.a, line.near()), sent(&line.b, "vd"));
    Sent { out: a.out + b.out, back: a.back + b.back, lost: a.lost + b.lost }
}

/// The configuration of the line. The yard passes on no long frames: each segment is counted and watched.
fn text(line: &Line) -> String {
    let text = line.plan.text();
    let off = |text: String, kind: &str| {
        text.replace(kind, &format!("{kind}\noffload = {{ csum = false }}"))
    };
    off(off(text, "kind = \"af_packet\""), "kind = \"tap\"")
}

/// A line without segmentation offloads, on which the kernel keeps the order: with GRO on, a veth receives
/// frames by queue, and not on the CPU on which the sender happens to run.
fn line(plan: Plan) -> Line {
    let line = Line::new(plan);
    for net in [&line.a, &line.b, line.yard()] {
        // Otherwise hosts could send router solicitations between the last count and the end.
        net.sh(
            "for file in /proc/sys/net/ipv6/conf/*/router_solicitations; do echo 0 > $file; done",
        );
    }
    let quiet = |net: &Net, name: &str| {
        net.sh(&format!("ethtool -K {name} gro on tso off gso off tx-udp-segmentation off"));
    };
    quiet(&line.b, "vd");
    quiet(&line.a, "va");
    if plan.kind != Kind::Tap {
        quiet(line.yard(), "vb");
        quiet(line.yard(), "vc");
    }
    line
}

/// Starts the command, and waits until both hosts reach each other.
fn start(line: &Line) -> Live {
    let mut live = Live::start(line.yard(), &text(line));
    if line.plan.kind == Kind::Tap {
        wait_until("the tap", || line.a.run("ip link show tap0").status.success());
        line.a.sh("ip link set tap0 txqueuelen 20000");
        line.a.address("tap0", 1);
        let off = "ethtool -K tap0 tso off gso off tx-udp-segmentation off";
        line.a.run(off); // fails for offloads that a tap does not have
    }
    // With both IP versions, because a host can reorder frames that wait for a neighbour's MAC address.
    for to in ips() {
        wait_until("an answer through the yard", || {
            assert!(live.is_alive(), "{}", live.said("err"));
            line.a.run(&format!("ping -c 1 -W 1 {to}")).status.success()
        });
    }
    for net in [&line.a, &line.b] {
        // Permanent entries, so that hosts send no ARP or neighbour solicitations later.
        net.sh("ip -o neigh show nud reachable nud stale nud delay nud probe | \
             while read addr _ dev _ mac _; do \
             ip neigh replace $addr lladdr $mac dev $dev nud permanent; done");
    }
    live
}

/// Two transfers of half the bytes each, and numbered datagrams at the same time, watched at the receiver.
fn transfer(line: &Line, bytes: u64) -> (Seen, f64) {
    let over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&over);
    let watcher = line.b.spawn(move || watch("vd", [10, 9, 0, 1], &until));
    let clock = crate::yard::clock();
    let began = clock();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| stream(&line.a, &line.b, ips()[0], bytes / 2));
        }
        scope.spawn(|| {
            let gap = Duration::from_micros(500);
            let beside = Datagrams { to: ips()[1], flows: 4, count: 1000, bytes: 400, gap };
            let arrived = beside.send(&line.a, &line.b);
            assert_eq!((arrived.late, arrived.twice), (0, 0), "{arrived:?}");
        });
    });
    let rate = bytes as f64 * 8e3 / (clock() - began) as f64;
    over.store(true, Ordering::Relaxed);
    (watcher.join().unwrap(), rate)
}

fn wrong_checksums(net: &Net) -> u64 {
    let text =
        net.sh("nstat -az TcpInCsumErrors UdpInCsumErrors Icmp6InCsumErrors IcmpInCsumErrors");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let counts: Vec<u64> =
        lines.map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap()).collect();
    assert!(counts.len() >= 4, "{text}");
    counts.iter().sum()
}

fn judged(plan: Plan) {
    let _alone = alone();
    let (line, bytes) = (line(plan), bytes());
    let before = if plan.kind == Kind::Tap { sent(&line.b, "vd") } else { ends(&line) };
    let live = start(&line);
    let ready = ends(&line);
    let (seen, rate) = transfer(&line, bytes);
    // No program sends any more: the traffic has ended when the counts do not change.
    let mut last = Sent::default();
    wait_until("the end of the traffic", || {
        std::thread::sleep(Duration::from_millis(200));
        let now = ends(&line);
        let stands = (now.out, now.back) == (last.out, last.back);
        last = now;
        stands
    });
    let counters = live.stop();
    assert_eq!([&line.a, &line.b].map(wrong_checksums), [0, 0]);
    let (rx, tx, drops) =
        (total(&counters, "rx_frames"), total(&counters, "tx_frames"), drops(&counters));
    let overrun = drops.iter().find(|(why, _)| why == "overrun").map_or(0, |(_, frames)| *frames);
    assert!(drops.iter().all(|(why, _)| why == "overrun"), "{drops:?}");
    flowyard_testkit::note!(
        "{:?}, {} cores, {}: {} MiB at {rate:.0} Mbit/s; {rx} frames in, {tx} out, {overrun} overruns; \
         hosts sent {} and received {}; {} watched, {} late, {} duplicates",
        plan.kind,
        plan.cores,
        plan.order,
        bytes >> 20,
        last.out - before.out,
        last.back - before.back,
        seen.frames,
        seen.late,
        seen.twice,
    );
    assert_eq!((seen.late, seen.twice), (0, 0), "{seen:?}");
    assert!(seen.frames * 1448 > bytes / 100, "the watcher saw too few frames: {seen:?}");
    // The counters contain every frame that the hosts sent after the first answer, received or overrun;
    // earlier frames may be in them. Frames dropped by a tap's full queue count as received.
    let missed = if plan.kind == Kind::Tap { last.lost } else { 0 };
    let could = |from: u64, to: u64| to - from;
    let most = could(before.out, last.out) + missed;
    let least = could(ready.out, last.out);
    assert!((least..=most).contains(&rx), "{least} to {most} frames were sent, {rx} received");
    let (least, most) = (could(ready.back, last.back), could(before.back, last.back));
    assert!((least..=most).contains(&tx), "{tx} were transmitted, {least} to {most} arrived");
    assert!(rx * 1448 > bytes, "{rx} frames are too few for the bytes sent");
}

fn af_packet() {
    judged(Plan::of(Kind::Packet));
}

fn af_packet_on_two_cores() {
    judged(Plan { cores: 2, order: "ordered", ..Plan::of(Kind::Packet) });
}

fn af_xdp() {
    judged(Plan::of(Kind::Xdp));
}

fn af_xdp_on_two_cores() {
    judged(Plan { cores: 2, order: "ordered", ..Plan::of(Kind::Xdp) });
}

fn tap() {
    judged(Plan::of(Kind::Tap));
}

fn tap_on_two_cores() {
    judged(Plan { cores: 2, order: "atomic", ..Plan::of(Kind::Tap) });
}

/// The watcher detects reordering, by a queue without order.
fn reordering_is_detected() {
    let _alone = alone();
    let line = line(Plan { cores: 2, order: "unordered", ..Plan::of(Kind::Packet) });
    let text = text(&line).replace("kind = \"forward\"", "kind = \"forward\"\ncost_ns = 3000");
    let live = Live::start(line.yard(), &text);
    wait_until("an answer through the yard", || {
        line.a.run("ping -c 1 -W 1 10.9.0.2").status.success()
    });
    let late = (0..50).find_map(|_| {
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let watcher = line.b.spawn(move || watch("vd", [10, 9, 0, 1], &until));
        stream(&line.a, &line.b, ips()[0], 8 << 20);
        over.store(true, Ordering::Relaxed);
        Some(watcher.join().unwrap().late).filter(|late| *late > 0)
    });
    assert!(late.is_some(), "400 MiB of unordered frames were in order");
    live.stop();
}
