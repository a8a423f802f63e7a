//! Traffic that each kind of port must forward completely and in order.

use std::time::Duration;

use flowyard_frame::{FlowKey, proto};
use flowyard_ports::af_packet::{Fanout, Ring, Sender, Settings};
use flowyard_ports::live::Interface;
use flowyard_testkit::Build;
use flowyard_yard::DropReason;
use flowyard_yard::run::Outcome;

use crate::yard::{Live, drops_but};
use flowyard_livekit::line::{Kind, Line, Plan, ips};
use flowyard_livekit::net::alone;
use flowyard_livekit::traffic::{Datagrams, stream};

flowyard_testkit::tests! {
    af_packet needs [crate::NAMESPACES],
    af_xdp needs [crate::NAMESPACES],
    tap needs [crate::NAMESPACES],
    af_packet_on_two_cores needs [crate::NAMESPACES],
    af_xdp_on_two_cores needs [crate::NAMESPACES],
    tap_on_two_cores needs [crate::NAMESPACES],
    af_packet_jumbo needs [crate::NAMESPACES],
    tap_jumbo needs [crate::NAMESPACES],
    af_xdp_jumbo needs [crate::NAMESPACES],
    af_xdp_jumbo_on_two_cores needs [crate::NAMESPACES],
    af_xdp_refuses_jumbo_with_the_fix needs [crate::NAMESPACES],
}

/// Stops the engine. Every missing frame was dropped with a reason, because the machine was busy;
/// on an idle machine none is missing.
fn whole(live: Live, missing: u64) -> Outcome {
    let outcome = live.stop();
    let drops = outcome.total().drops;
    assert!(missing <= drops.total() && missing < 400, "{missing} are missing; {drops:?}");
    assert_eq!(drops_but(&outcome, &[DropReason::Overrun]), 0, "{drops:?}");
    outcome
}

/// Sends 4,000 numbered datagrams of `bytes` bytes: each flow in order, none twice. Returns the
/// number that did not arrive.
fn numbered(line: &Line, to: std::net::IpAddr, bytes: usize) -> u64 {
    let gap = Duration::from_micros(200);
    let arrived = Datagrams { to, flows: 8, count: 500, bytes, gap }.send(&line.a, &line.b);
    assert_eq!((arrived.late, arrived.twice), (0, 0), "{to} {bytes}");
    4000 - arrived.total
}

/// Pings with neighbour discovery, streams, datagrams, fragments, tagged frames.
fn everyday(plan: Plan) {
    let _alone = alone();
    let line = Line::new(plan);
    let live = crate::yard::Live::on(&line);
    let mut missing = 0;
    for to in ips() {
        line.ping(to, "");
        let rate = stream(&line.a, &line.b, to, 24 << 20);
        flowyard_testkit::note!("{:?}: {to} {rate:.0} Mbit/s", plan.kind);
        missing += numbered(&line, to, 200);
        missing += numbered(&line, to, 4000); // three fragments each
    }
    tagged(&line);
    for net in [&line.a, &line.b] {
        let errors = net.sh("nstat -az TcpInCsumErrors UdpInCsumErrors Icmp6InCsumErrors");
        let count = |line: &str| line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
        assert!(errors.lines().filter_map(count).all(|errors| errors == 0), "{errors}");
    }
    let outcome = whole(live, missing);
    assert!(outcome.total().rx_frames > 30_000, "{:?}", outcome.total());
}

/// Tagged frames keep their tags: one, two, and one of priority only.
fn tagged(line: &Line) {
    let key = FlowKey::five_tuple(proto::UDP, [10, 9, 0, 1].into(), 7, [10, 9, 0, 2].into(), 9);
    let plain = Build::new(&key).payload(&[0x5a; 100]).bytes();
    let tags: [&[u8]; 4] =
        [&[], &[0x81, 0, 0x60, 5], &[0x88, 0xa8, 0, 7, 0x81, 0, 0x20, 5], &[0x81, 0, 0xe0, 0]];
    let frames: Vec<Vec<u8>> =
        tags.iter().map(|tag| [&plain[..12], tag, &plain[12..]].concat()).collect();
    let near = line.near();
    let mut receiver = line.b.within(|| {
        let settings = Settings { fanout: Fanout::Hash, frames: 256 };
        Ring::open(&Interface::find("vd").unwrap(), 1, settings).unwrap().pop().unwrap()
    });
    let mut sender =
        line.a.within(move || Sender::open(&Interface::find(near).unwrap(), false).unwrap());
    let mut seen = Vec::new();
    for frame in &frames {
        let (sent, error) = sender.send([&frame[..]].into_iter());
        assert_eq!(sent, 1, "{error:?}");
        // The frames are sent one by one, because frames with different tags are different flows.
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(2));
            let before = seen.len();
            while let Some(found) = receiver.peek() {
                let mut bytes = vec![0; found.len(None, 0)];
                found.write(None, 0, &mut bytes);
                // Hosts also send frames of their own.
                seen.extend((bytes.len() >= 142 && bytes.ends_with(&[0x5a; 100])).then_some(bytes));
                receiver.advance();
            }
            if seen.len() > before {
                break;
            }
        }
    }
    assert_eq!(seen, frames);
}

fn af_packet() {
    everyday(Plan::of(Kind::Packet));
}

fn af_xdp() {
    everyday(Plan::of(Kind::Xdp));
}

fn tap() {
    everyday(Plan::of(Kind::Tap));
}

/// Two cores, each with a queue of its own on every port.
fn af_packet_on_two_cores() {
    everyday(Plan { cores: 2, ..Plan::of(Kind::Packet) });
}

/// The hosts also leave checksums to their adapters.
fn af_xdp_on_two_cores() {
    let port = "ring_frames = 8192\ncomplete_checksums = true";
    everyday(Plan { cores: 2, order: "ordered", port, ..Plan::of(Kind::Xdp) });
}

fn tap_on_two_cores() {
    everyday(Plan { cores: 2, order: "atomic", ..Plan::of(Kind::Tap) });
}

/// Frames of 9,000 bytes, if the kind of port supports them.
fn jumbo(plan: Plan) {
    let _alone = alone();
    let line = Line::new(Plan { mtu: 9000, ..plan });
    let live = crate::yard::Live::on(&line);
    let mut missing = 0;
    for to in ips() {
        line.ping(to, "-s 8900 -M do");
        missing += numbered(&line, to, 8900);
        stream(&line.a, &line.b, to, 24 << 20);
    }
    let outcome = whole(live, missing);
    assert!(outcome.total().rx_bytes > 2 * (4000 - missing) * 8900);
}

fn af_packet_jumbo() {
    jumbo(Plan { yard: "buffer_bytes = 9216", ..Plan::of(Kind::Packet) });
}

fn tap_jumbo() {
    jumbo(Plan { yard: "buffer_bytes = 9216", ..Plan::of(Kind::Tap) });
}

/// A frame is in five buffers of the socket.
const PARTS: &str = "ring_frames = 8192\nmulti_buffer = true";

fn af_xdp_jumbo() {
    jumbo(Plan { port: PARTS, ..Plan::of(Kind::Xdp) });
}

fn af_xdp_jumbo_on_two_cores() {
    jumbo(Plan { cores: 2, order: "ordered", port: PARTS, ..Plan::of(Kind::Xdp) });
}

fn af_xdp_refuses_jumbo_with_the_fix() {
    let line = Line::new(Plan { mtu: 9000, ..Plan::of(Kind::Xdp) });
    let error = crate::yard::build(line.yard(), &line.plan.text()).err().unwrap();
    assert!(
        error.starts_with(
            "y.toml:7:13: 'vb' has an MTU of 9000; lower it to 3758 \
         (ip link set vb mtu ...), or use multi_buffer = true"
        ),
        "{error}"
    );
}
