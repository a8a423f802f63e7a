//! Interfaces that go down, are deleted, and come back; and rings that are not emptied.

use std::thread::sleep;
use std::time::Duration;

use flowyard_yard::DropReason;

use crate::yard::{Live, build, drops_but, wait_until};
use flowyard_livekit::line::{Kind, Line, Plan, ips};
use flowyard_livekit::net::alone;
use flowyard_livekit::traffic::Datagrams;

flowyard_testkit::tests! {
    af_packet_flaps needs [crate::NAMESPACES],
    af_xdp_flaps needs [crate::NAMESPACES],
    tap_flaps needs [crate::NAMESPACES],
    af_packet_vanishes needs [crate::NAMESPACES],
    af_xdp_vanishes needs [crate::NAMESPACES],
    tap_vanishes needs [crate::NAMESPACES],
    af_xdp_waits_for_an_interface_that_it_can_open needs [crate::NAMESPACES],
    af_packet_counts_what_a_full_ring_drops needs [crate::NAMESPACES],
    af_xdp_counts_what_a_full_ring_drops needs [crate::NAMESPACES],
    tap_counts_what_a_full_queue_drops needs [crate::NAMESPACES],
    child on_demand "started by another test",
    af_xdp_killed_at_any_moment needs [crate::NAMESPACES],
    tap_killed_at_any_moment needs [crate::NAMESPACES],
    af_packet_killed_at_any_moment needs [crate::NAMESPACES],
    an_interface_that_cannot_be_opened_is_reported needs [crate::NAMESPACES],
}

const LONG: Datagrams = Datagrams {
    to: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 2)),
    flows: 4,
    count: 3000,
    bytes: 200,
    gap: Duration::from_micros(300),
};

/// The yard's interface towards the first host goes down and up again while both hosts send.
fn flap(kind: Kind) {
    let _alone = alone();
    let line = Line::new(Plan::of(kind));
    let live = crate::yard::Live::on(&line);
    line.ping(ips()[0], "");
    // While the interface is down, the yard's frames are dropped; the far host sends so that there
    // are some.
    let (a, b) = (line.a.0.try_clone().unwrap(), line.b.0.try_clone().unwrap());
    let near = "10.9.0.1".parse().unwrap();
    let talk = std::thread::spawn(move || {
        let (a, b) = (flowyard_livekit::net::Net(a), flowyard_livekit::net::Net(b));
        Datagrams { to: near, ..LONG }.send(&b, &a)
    });
    sleep(Duration::from_millis(150));
    // A permanent entry, because otherwise the far host would stop sending.
    for times in [1, 2] {
        line.yard().sh(&format!("ip link set {} down", line.west()));
        live.until_told("west: the interface went down", times);
        sleep(Duration::from_millis(150));
        line.yard().sh(&format!("ip link set {} up", line.west()));
        live.until_told("west: the interface is up again", times);
        sleep(Duration::from_millis(100));
    }
    let arrived = talk.join().unwrap();
    assert_eq!((arrived.late, arrived.twice), (0, 0));
    assert!((1000..12_000).contains(&arrived.total), "{arrived:?}");
    line.ping(ips()[0], "");
    let outcome = live.stop();
    flowyard_testkit::note!("{kind:?}: {:?} of 12000; {:?}", arrived, outcome.total().drops);
    let drops = outcome.total().drops;
    assert_eq!(
        drops_but(&outcome, &[DropReason::PortDown, DropReason::PortFailed]),
        0,
        "{drops:?}"
    );
    assert!(outcome.total().drops.get(DropReason::PortDown) > 0, "{:?}", outcome.total().drops);
}

fn af_packet_flaps() {
    flap(Kind::Packet);
}

fn af_xdp_flaps() {
    flap(Kind::Xdp);
}

fn tap_flaps() {
    flap(Kind::Tap);
}

/// The interface towards the first host is deleted while both hosts send, and created again.
fn vanish(plan: Plan) {
    let _alone = alone();
    let line = Line::new(plan);
    let live = crate::yard::Live::on(&line);
    line.ping(ips()[0], "");
    let (a, b) = (line.a.0.try_clone().unwrap(), line.b.0.try_clone().unwrap());
    let talk = std::thread::spawn(move || {
        let (a, b) = (flowyard_livekit::net::Net(a), flowyard_livekit::net::Net(b));
        Datagrams { count: 1500, ..LONG }.send(&a, &b)
    });
    sleep(Duration::from_millis(150));
    line.yard().sh(&format!("ip link del {}", line.west()));
    live.until_told("west: the interface is gone", 1);
    if plan.kind == Kind::Tap {
        let many = if plan.cores > 1 { "multi_queue" } else { "" };
        line.a.sh(&format!("ip tuntap add tap0 mode tap {many}; ip link set tap0 up"));
    } else {
        line.a.cable("va", line.yard(), "vb", plan.cores);
    }
    // The hosts keep the addresses of their neighbours, because a resolution would reorder frames;
    // later they resolve them again.
    line.a.sh(&format!("echo 0 > /proc/sys/net/ipv6/conf/{}/disable_ipv6", line.near()));
    line.acquaint(true);
    line.a.address(line.near(), 1);
    if plan.kind == Kind::Xdp {
        line.a.sh("ethtool -K va tx off > /dev/null");
    }
    let arrived = talk.join().unwrap();
    line.acquaint(false);
    assert_eq!((arrived.late, arrived.twice), (0, 0));
    live.until_told("west: the interface was recreated", plan.cores);
    if plan.kind == Kind::Xdp {
        // The log reports this before each core has its socket.
        live.until_told("west: af_xdp on queue", 2 * plan.cores);
    }
    for to in ips() {
        line.ping(to, "");
        let gap = Duration::from_micros(200);
        let arrived =
            Datagrams { to, flows: 4, count: 200, bytes: 100, gap }.send(&line.a, &line.b);
        assert_eq!((arrived.total, arrived.late), (800, 0));
    }
    let outcome = live.stop();
    flowyard_testkit::note!("{:?}: {arrived:?}; {:?}", plan.kind, outcome.total().drops);
    // A tap that no process has open drops the frames of its host, and counts them.
    let about = [DropReason::PortDown, DropReason::PortFailed, DropReason::Overrun];
    assert_eq!(drops_but(&outcome, &about), 0, "{:?}", outcome.total().drops);
    assert!(plan.kind == Kind::Tap || outcome.total().drops.get(DropReason::Overrun) == 0);
}

fn af_packet_vanishes() {
    vanish(Plan { cores: 2, ..Plan::of(Kind::Packet) });
}

fn af_xdp_vanishes() {
    vanish(Plan { cores: 2, ..Plan::of(Kind::Xdp) });
}

fn tap_vanishes() {
    vanish(Plan { cores: 2, ..Plan::of(Kind::Tap) });
}

/// An interface that is back and cannot be opened is tried again, and reported once.
fn af_xdp_waits_for_an_interface_that_it_can_open() {
    let _alone = alone();
    let line = Line::new(Plan::of(Kind::Xdp));
    let live = crate::yard::Live::on(&line);
    line.yard()
        .sh("ip link del vb; ip link add vb mtu 9000 type veth peer name va; ip link set vb up");
    live.until_told("MTU of 9000", 1);
    sleep(Duration::from_millis(300)); // no second report in this time
    let told = |what: &str| live.told(what);
    assert_eq!((told("MTU of 9000"), told("was recreated"), told("in use again")), (1, 1, 0));
    line.yard().sh("ip link set vb mtu 1500");
    live.until_told("in use again", 1);
    sleep(Duration::from_millis(100));
    assert_eq!((told("MTU of 9000"), told("was recreated"), told("in use again")), (1, 1, 1));
    live.stop();
}

/// Frames come while the engine does not receive. Frames for which the ring has no space are
/// counted, so that the sum of all counters is right.
fn flood(kind: Kind) {
    let _alone = alone();
    let line = Line::new(Plan { port: "ring_frames = 64", ..Plan::of(kind) });
    let (yard, log) = build(line.yard(), &line.plan.text()).unwrap();
    if kind == Kind::Tap {
        line.a.address("tap0", 1);
    }
    // No neighbour answers yet.
    let far = "02:00:00:00:00:0b";
    line.a.sh(&format!("ip neigh add 10.9.0.2 lladdr {far} dev {}", line.near()));
    let sent = Datagrams { count: 2500, gap: Duration::ZERO, ..LONG };
    assert_eq!(sent.send(&line.a, &line.b).total, 0);
    let live = Live::of(line.yard(), yard, log);
    let came = || live.running.counters().iter().map(|core| core.rx_frames).sum::<u64>();
    wait_until("all that was sent", || came() >= 10_000);
    let outcome = live.stop();
    let (total, overrun) = (outcome.total(), outcome.total().drops.get(DropReason::Overrun));
    flowyard_testkit::note!("{kind:?}: {} came, {overrun} overran", total.rx_frames);
    assert!(overrun > 0 && total.tx_frames > 0, "{total:?}");
    // There are a few more than were sent, because hosts also send frames of their own.
    assert!((10_000..10_100).contains(&total.rx_frames), "{total:?}");
}

fn af_packet_counts_what_a_full_ring_drops() {
    flood(Kind::Packet);
}

fn af_xdp_counts_what_a_full_ring_drops() {
    flood(Kind::Xdp);
}

fn tap_counts_what_a_full_queue_drops() {
    flood(Kind::Tap);
}

/// The data plane of [`killed_at_any_moment`], in a process of its own.
fn child() {
    let Ok(text) = std::env::var("FLOWYARD_LIVE_YARD") else { return };
    let config = flowyard_config::Config::parse("y.toml", &text).unwrap();
    let yard = config.build(flowyard_yard::Parts::default()).unwrap();
    let running = yard.start(crate::yard::clock()).unwrap();
    drop(running.join());
}

/// After kill -9, no program is left on the interface, and the next start works.
fn killed(kind: Kind, times: u64) {
    let _alone = alone();
    let line = Line::new(Plan::of(kind));
    for round in 0..times {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "trouble::child", "--ignored"]);
        command.env("FLOWYARD_LIVE_YARD", line.plan.text()).stdout(std::process::Stdio::null());
        flowyard_livekit::sys::within(&mut command, &line.yard().0);
        let mut child = command.spawn().unwrap();
        // The kills happen at times between the start and the first forwarded frames.
        sleep(Duration::from_millis(round * 7));
        if round + 1 == times && kind != Kind::Tap {
            sleep(Duration::from_millis(200));
            line.ping(ips()[0], "");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mut tries = 0;
        while line.yard().sh("ip -d link").contains("xdp") {
            // The kernel removes the program when the last descriptor is closed, soon after the
            // end.
            tries += 1;
            assert!(tries < 1000, "{}", line.yard().sh("ip -d link"));
            sleep(Duration::from_millis(10));
        }
        let left = line.yard().sh("ip -o link show type tun | wc -l");
        assert_eq!(left.trim(), "0", "a tap that the yard made ends with it");
    }
    let live = crate::yard::Live::on(&line);
    line.ping(ips()[0], "");
    live.stop();
}

fn af_xdp_killed_at_any_moment() {
    killed(Kind::Xdp, 12);
}

fn tap_killed_at_any_moment() {
    killed(Kind::Tap, 6);
}

fn af_packet_killed_at_any_moment() {
    killed(Kind::Packet, 4);
}

/// An interface that is missing, or used by another process, is reported with its position and the
/// fix.
fn an_interface_that_cannot_be_opened_is_reported() {
    let _alone = alone();
    let line = Line::new(Plan::of(Kind::Xdp));
    let said = |text: &str| build(line.yard(), text).err().unwrap();
    let text = line.plan.text();
    let gone = said(&text.replace("\"vb\"", "\"vx\""));
    assert_eq!(gone, "y.toml:7:13: there is no interface 'vx'; choose one of lo, vb, vc");
    let twice = said(&text.replace("\"vc\"", "\"vb\""));
    assert!(
        twice.starts_with("y.toml:14:13: 'vb' already has another XDP program; stop"),
        "{twice}"
    );
    let queue = said(&text.replacen("match", "queues = [9]\nmatch", 1));
    assert!(
        queue.starts_with(
            "y.toml:7:13: 'vb' has no queue 9, or its driver does not support af_xdp; list"
        ),
        "{queue}"
    );
    // The kernel releases the queue soon after the socket that an earlier attempt had closed.
    let zero = (0..1000).find_map(|_| {
        let zero = said(&text.replacen("match", "mode = \"zero_copy\"\nmatch", 1));
        let is_busy = zero.contains("already has an af_xdp socket");
        if is_busy {
            sleep(Duration::from_millis(10));
        }
        (!is_busy).then_some(zero)
    });
    let zero = zero.expect("the queue is released");
    assert!(
        zero.contains("the driver of 'vb' does not support zero copy on queue 0; use mode"),
        "{zero}"
    );
    assert!(!line.yard().sh("ip -d link").contains("xdp"), "nothing stays behind");
}
