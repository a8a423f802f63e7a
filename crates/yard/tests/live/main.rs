//! Ports on real interfaces, between real network stacks, in namespaces that the tests make.
//!
//! Whatever is sent: content is whole, flows are in order, and every frame that the yard received
//! is transmitted or counted under a reason.

mod net;
mod sys;
mod traffic;
mod yard;

use std::io::Write;
use std::time::Duration;

use flowyard_yard::DropReason;

use net::{Cable, alone, can};
use traffic::{Datagrams, stream};
use yard::{Live, build, drops_but};

/// A yard between `vb` and `vc`.
fn between(kind: &str, yard: &str, port: &str) -> String {
    let port = |name: &str, interface: &str| {
        format!(
            "[[port]]\nname = \"{name}\"\nkind = \"{kind}\"\ninterface = \"{interface}\"\n{port}\n"
        )
    };
    let (west, east) = (port("west", "vb"), port("east", "vc"));
    format!(
        "[yard]\n{yard}\n{west}{east}
        [[queue]]\nname = \"q0\"\norder = \"direct\"\nconsumers = [0]
        [work]\nkind = \"forward\"\nports = {{ west = \"east\", east = \"west\" }}\n"
    )
}

/// Says why a test is skipped, if it is.
fn skipped() -> bool {
    let Err(needs) = can() else { return false };
    let _ = std::io::stderr().write_fmt(format_args!("skipped: needs {needs}\n"));
    true
}

fn ips() -> [std::net::IpAddr; 2] {
    ["10.9.0.2".parse().unwrap(), "fd09::2".parse().unwrap()]
}

#[test]
fn af_packet_first() {
    if skipped() {
        return;
    }
    let _alone = alone();
    let net = Cable::new(1);
    let live = Live::start(&net.m, &between("af_packet", "", ""));
    for to in ips() {
        let rate = stream(&net.a, &net.b, to, 32 << 20);
        println!("af_packet {to}: {rate:.0} Mbit/s");
        let gap = Duration::from_micros(100);
        let arrived = Datagrams { to, flows: 8, count: 2000, bytes: 200, gap }.send(&net.a, &net.b);
        assert_eq!((arrived.total, arrived.late, arrived.twice), (16_000, 0, 0));
    }
    let outcome = live.stop();
    println!("{:?} {:?}", outcome.total(), outcome.remarks);
}

#[test]
fn af_xdp_first() {
    if skipped() {
        return;
    }
    let _alone = alone();
    let net = Cable::new(1).without_offload();
    let live = Live::start(&net.m, &between("af_xdp", "", "match = [\"all\"]"));
    for to in ips() {
        let rate = stream(&net.a, &net.b, to, 32 << 20);
        println!("af_xdp {to}: {rate:.0} Mbit/s");
        let gap = Duration::from_micros(100);
        let arrived = Datagrams { to, flows: 8, count: 2000, bytes: 200, gap }.send(&net.a, &net.b);
        assert_eq!((arrived.total, arrived.late, arrived.twice), (16_000, 0, 0));
    }
    let outcome = live.stop();
    println!("{:?} {:?}", outcome.total(), outcome.remarks);
}
