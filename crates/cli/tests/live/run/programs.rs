//! Real programs on both sides of `flowyard run`, with each kind of port and each kind of work; link flaps, a
//! killed process and its restart, and a full ring.

use std::time::Duration;

use crate::run::far::{fragments, http, iperf, memcached, ping, tags, vlan};
use crate::yard::{Live, drops, total, wait_until};
use flowyard_livekit::line::{Kind, Line, Plan, ips};
use flowyard_livekit::net::{Net, alone};
use flowyard_livekit::traffic::{Datagrams, stream};

flowyard_testkit::tests! {
    af_packet,
    af_xdp,
    tap,
    af_packet_in_trouble,
    af_xdp_in_trouble,
    tap_in_trouble,
    af_packet_jumbo,
    af_xdp_jumbo,
    tap_jumbo,
}

/// The kinds of work; `route` gets its neighbours in the configuration.
const WORKS: [(&str, &str); 4] = [
    ("forward", "kind = \"forward\"\nports = { west = \"east\", east = \"west\" }\n"),
    ("burn", "kind = \"burn\"\ncost_ns = 500\nports = { west = \"east\", east = \"west\" }\n"),
    ("bridge", "kind = \"bridge\"\n"),
    ("route", "kind = \"route\"\n"),
];
const NEAR: &str = "02:00:00:00:00:aa";
const FAR: &str = "02:00:00:00:00:bb";

/// Two hosts, and the instance between them.
pub(crate) struct Yard {
    pub(crate) line: Line,
    text: String,
    pub(crate) routes: bool,
    live: Option<Live>,
}

impl Yard {
    fn new(plan: Plan, work: (&str, &str)) -> Self {
        let line = Line::new(plan);
        line.b.sh(&format!("ip link set vd address {FAR}"));
        if line.near() == "va" {
            line.a.sh(&format!("ip link set va address {NEAR}"));
        }
        let (head, _) = plan.text().split_once("[work]").map(|(a, b)| (a.to_owned(), b)).unwrap();
        let mut text = format!("{head}[work]\n{}", work.1);
        let routes = work.0 == "route";
        let hosts = [("10.9.0.1/32", "west", NEAR), ("10.9.0.2/32", "east", FAR)];
        let six = [("fd09::1/128", "west", NEAR), ("fd09::2/128", "east", FAR)];
        for (prefix, port, mac) in hosts.into_iter().chain(six).filter(|_| routes) {
            text += &format!(
                "[[work.route]]\nprefix = \"{prefix}\"\nport = \"{port}\"\nnext_hop = \"{mac}\"\n"
            );
        }
        Self { line, text, routes, live: None }
    }

    /// Starts the command, and waits until the hosts reach each other with both IP versions.
    fn start(&mut self) {
        let line = &self.line;
        let mut live = Live::start(line.yard(), &self.text);
        if line.plan.kind == Kind::Tap {
            wait_until("the tap", || line.a.run("ip link show tap0").status.success());
            line.a.sh("ip link set tap0 txqueuelen 20000");
            line.a.address("tap0", 1);
        }
        if self.routes {
            // The router accepts frames to any MAC address, and does not answer ARP.
            let neighbours = |net: &Net, end: u8, mac: &str, name: &str| {
                net.sh(&format!(
                    "ip neigh replace 10.9.0.{end} lladdr {mac} dev {name}; \
                     ip neigh replace fd09::{end} lladdr {mac} dev {name}"
                ));
            };
            neighbours(&line.a, 2, "02:00:00:00:00:01", line.near());
            neighbours(&line.b, 1, "02:00:00:00:00:01", "vd");
        }
        for to in ips() {
            wait_until("an answer through the yard", || {
                assert!(live.is_alive(), "{}", live.said("err"));
                line.a.run(&format!("ping -c 1 -W 1 {to}")).status.success()
            });
        }
        self.live = Some(live);
    }

    fn stop(&mut self) -> serde_json::Value {
        self.live.take().unwrap().stop()
    }
}

/// Sets the instance's far interface down and up again.
fn flap(yard: &Yard) {
    let east = if yard.line.plan.kind == Kind::Tap { "va" } else { "vc" };
    for _ in 0..2 {
        yard.line.yard().sh(&format!("ip link set {east} down"));
        let unreached = yard.line.a.run("ping -c 3 -i 0.05 -W 1 10.9.0.2");
        assert!(!unreached.status.success(), "the link is down, but a ping was answered");
        yard.line.yard().sh(&format!("ip link set {east} up"));
        wait_until("an answer after the flap", || {
            yard.line.a.run("ping -c 1 -W 1 10.9.0.2").status.success()
        });
    }
}

/// Sends frames while the process is stopped: the ring overruns, and the overrun is counted.
fn full_ring(yard: &Yard) {
    let live = yard.live.as_ref().unwrap();
    live.signal("STOP");
    let burst = Datagrams { to: ips()[0], flows: 4, count: 6000, bytes: 200, gap: Duration::ZERO };
    let line = &yard.line;
    line.a.sh(&format!("ip neigh replace 10.9.0.2 lladdr {FAR} dev {}", line.near()));
    burst.send(&line.a, &line.b);
    live.signal("CONT");
    wait_until("an answer after the burst", || {
        line.a.run("ping -c 1 -W 1 10.9.0.2").status.success()
    });
}

/// All programs with one plan and one kind of work.
fn everything(plan: Plan, work: (&str, &str)) {
    let mut yard = Yard::new(plan, work);
    yard.start();
    for program in [ping, fragments, iperf, http, memcached, tags, vlan] {
        program(&yard);
    }
    let counters = yard.stop();
    flowyard_testkit::note!(
        "{:?}, {}: {} frames in, {} copied, {} out, dropped {:?}",
        plan.kind,
        work.0,
        total(&counters, "rx_frames"),
        total(&counters, "copies"),
        total(&counters, "tx_frames"),
        drops(&counters)
    );
    // A switch does not send frames back to their port; a router has no route for ARP and multicast.
    let about: &[&str] = match work.0 {
        "bridge" => &["overrun", "filtered", "reserved"],
        "route" => &["overrun", "filtered", "not_ip", "no_route"],
        _ => &["overrun"],
    };
    let odd: Vec<_> = drops(&counters).into_iter().filter(|d| !about.contains(&&*d.0)).collect();
    assert_eq!(odd, []);
    assert!(total(&counters, "tx_frames") > 10_000, "{counters:#}");
}

fn with_all_works(kind: Kind) {
    let _alone = alone();
    for work in WORKS {
        everything(Plan { cores: 2, ..Plan::of(kind) }, work);
    }
}

fn af_packet() {
    with_all_works(Kind::Packet);
}

fn af_xdp() {
    with_all_works(Kind::Xdp);
}

fn tap() {
    with_all_works(Kind::Tap);
}

/// A link flap, SIGKILL and a restart, and a burst while the process is stopped.
fn in_trouble(kind: Kind) {
    let _alone = alone();
    let mut yard = Yard::new(Plan { port: "ring_frames = 1024", ..Plan::of(kind) }, WORKS[0]);
    yard.start();
    flap(&yard);
    yard.live.take().unwrap().kill();
    yard.start();
    http(&yard);
    full_ring(&yard);
    let counters = yard.stop();
    let lost = drops(&counters);
    flowyard_testkit::note!(
        "{kind:?}: {} frames in, dropped {lost:?}",
        total(&counters, "rx_frames")
    );
    assert!(lost.iter().any(|(why, _)| why == "overrun"), "{lost:?}");
    assert!(
        total(&counters, "rx_frames") > 24_000,
        "frames of the overrun are not counted as received"
    );
}

fn af_packet_in_trouble() {
    in_trouble(Kind::Packet);
}

fn af_xdp_in_trouble() {
    in_trouble(Kind::Xdp);
}

fn tap_in_trouble() {
    in_trouble(Kind::Tap);
}

/// Frames of the maximum length for each kind of port.
fn jumbo(kind: Kind, mtu: u32, buffer: &'static str) {
    let _alone = alone();
    let mut yard = Yard::new(Plan { mtu, yard: buffer, ..Plan::of(kind) }, WORKS[0]);
    yard.start();
    for (to, headers) in ips().into_iter().zip([28, 48]) {
        yard.line.ping(to, &format!("-W 20 -M do -s {}", mtu - headers));
        stream(&yard.line.a, &yard.line.b, to, 8 << 20);
    }
    iperf(&yard);
    let counters = yard.stop();
    let odd: Vec<_> = drops(&counters).into_iter().filter(|d| d.0 != "overrun").collect();
    assert_eq!(odd, []);
}

fn af_packet_jumbo() {
    jumbo(Kind::Packet, 9000, "buffer_bytes = 9216");
}

fn af_xdp_jumbo() {
    jumbo(Kind::Xdp, 3700, "buffer_bytes = 3776");
}

fn tap_jumbo() {
    jumbo(Kind::Tap, 9000, "buffer_bytes = 9216");
}
