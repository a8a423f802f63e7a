//! Interfaces that go down, vanish, come back; rings that nobody empties.

use std::thread::sleep;
use std::time::Duration;

use flowyard_yard::DropReason;

use crate::line::{Kind, Line, Plan, ips};
use crate::net::alone;
use crate::skipped;
use crate::traffic::Datagrams;
use crate::yard::{Live, build, drops_but};

const LONG: Datagrams = Datagrams {
    to: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 2)),
    flows: 4,
    count: 3000,
    bytes: 200,
    gap: Duration::from_micros(300),
};

/// The yard's interface towards the first host goes down and up again while both talk.
fn flap(kind: Kind) {
    if skipped() {
        return;
    }
    let _alone = alone();
    let line = Line::new(Plan::of(kind));
    let live = line.start();
    line.ping(ips()[0], "");
    // Down is down for the yard's frames, too: so that there are some, the far host talks.
    let (a, b) = (line.a.0.try_clone().unwrap(), line.b.0.try_clone().unwrap());
    let near = "10.9.0.1".parse().unwrap();
    let talk = std::thread::spawn(move || {
        let (a, b) = (crate::net::Net(a), crate::net::Net(b));
        Datagrams { to: near, ..LONG }.send(&b, &a)
    });
    sleep(Duration::from_millis(150));
    // A permanent entry, or the far host would stop talking.
    for _ in 0..2 {
        line.yard().sh(&format!("ip link set {} down", line.west()));
        sleep(Duration::from_millis(150));
        line.yard().sh(&format!("ip link set {} up", line.west()));
        sleep(Duration::from_millis(100));
    }
    let arrived = talk.join().unwrap();
    assert_eq!((arrived.late, arrived.twice), (0, 0));
    assert!((1000..12_000).contains(&arrived.total), "{arrived:?}");
    line.ping(ips()[0], "");
    assert!(live.logged("west: the interface went down"), "{:?}", live.log);
    assert!(live.logged("west: the interface is up again"), "{:?}", live.log);
    let outcome = live.stop();
    println!("{kind:?}: {:?} of 12000; {:?}", arrived, outcome.total().drops);
    assert_eq!(drops_but(&outcome, &[DropReason::PortDown, DropReason::PortFailed]), 0);
    assert!(outcome.total().drops.get(DropReason::PortDown) > 0, "{:?}", outcome.total().drops);
}

#[test]
fn af_packet_flaps() {
    flap(Kind::Packet);
}

#[test]
fn af_xdp_flaps() {
    flap(Kind::Xdp);
}

#[test]
fn tap_flaps() {
    flap(Kind::Tap);
}

/// The interface towards the first host is deleted while both talk, and made anew.
fn vanish(plan: Plan) {
    if skipped() {
        return;
    }
    let _alone = alone();
    let line = Line::new(plan);
    let live = line.start();
    line.ping(ips()[0], "");
    let (a, b) = (line.a.0.try_clone().unwrap(), line.b.0.try_clone().unwrap());
    let talk = std::thread::spawn(move || {
        let (a, b) = (crate::net::Net(a), crate::net::Net(b));
        Datagrams { count: 1500, ..LONG }.send(&a, &b)
    });
    sleep(Duration::from_millis(150));
    line.yard().sh(&format!("ip link del {}", line.west()));
    sleep(Duration::from_millis(200));
    assert!(live.logged("west: the interface is gone"), "{:?}", live.log);
    if plan.kind == Kind::Tap {
        let many = if plan.cores > 1 { "multi_queue" } else { "" };
        line.a.sh(&format!("ip tuntap add tap0 mode tap {many}; ip link set tap0 up"));
    } else {
        line.a.cable("va", line.yard(), "vb", plan.cores);
    }
    line.a.address(line.near(), 1);
    if plan.kind == Kind::Xdp {
        line.a.sh("ethtool -K va tx off > /dev/null");
    }
    sleep(Duration::from_millis(100));
    let arrived = talk.join().unwrap();
    assert_eq!((arrived.late, arrived.twice), (0, 0));
    assert!(live.logged("west: the interface is back"), "{:?}", live.log);
    for to in ips() {
        line.ping(to, "");
        let gap = Duration::from_micros(200);
        let arrived =
            Datagrams { to, flows: 4, count: 200, bytes: 100, gap }.send(&line.a, &line.b);
        assert_eq!((arrived.total, arrived.late), (800, 0));
    }
    let outcome = live.stop();
    println!("{:?}: {arrived:?}; {:?}", plan.kind, outcome.total().drops);
    assert_eq!(drops_but(&outcome, &[DropReason::PortDown, DropReason::PortFailed]), 0);
}

#[test]
fn af_packet_vanishes() {
    vanish(Plan { cores: 2, ..Plan::of(Kind::Packet) });
}

#[test]
fn af_xdp_vanishes() {
    vanish(Plan { cores: 2, ..Plan::of(Kind::Xdp) });
}

#[test]
fn tap_vanishes() {
    vanish(Plan { cores: 2, ..Plan::of(Kind::Tap) });
}

/// Frames come while nobody takes them: those that the ring had no room for are counted, so that
/// all that came is accounted for.
fn flood(kind: Kind) {
    if skipped() {
        return;
    }
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
    sleep(Duration::from_millis(100));
    let outcome = live.stop();
    let (total, overrun) = (outcome.total(), outcome.total().drops.get(DropReason::Overrun));
    println!("{kind:?}: {} came, {overrun} overran", total.rx_frames);
    assert!(overrun > 0 && total.tx_frames > 0, "{total:?}");
    // A few more than sent: hosts have things to say of their own.
    assert!((10_000..10_100).contains(&total.rx_frames), "{total:?}");
}

#[test]
fn af_packet_counts_what_a_full_ring_drops() {
    flood(Kind::Packet);
}

#[test]
fn af_xdp_counts_what_a_full_ring_drops() {
    flood(Kind::Xdp);
}

#[test]
fn tap_counts_what_a_full_queue_drops() {
    flood(Kind::Tap);
}
