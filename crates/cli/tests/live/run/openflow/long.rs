//! Long frames through a switch whose flows translate addresses, and put a VLAN tag on frames on their way over a link.
//!
//! ```text
//!  a [10.9.0.1] ── west │ to 10.9.0.99: translate, push a tag   │ l1 ──┐
//!                       │ pop the tag of l2                     │ l2 ──┘
//!       b [10.9.7.2] ── east   and back, with another tag; translated where the tag is popped
//! ```

use std::net::IpAddr;

use crate::yard::{Live, drops, total, wait_until};
use flowyard_livekit::line::{Kind, Line, Plan};
use flowyard_livekit::net::{Net, alone};
use flowyard_livekit::traffic::{download, stream};
use serde_json::Value;

flowyard_testkit::tests! {
    translated_and_tagged_streams_stay_long,
    a_port_without_offloads_cuts_them,
    flows_with_labels_cut_long_frames,
}

const QUEUE: &str = "[[queue]]\nname = \"q\"\norder = \"direct\"\nconsumers = [0]\n";
const OFF: &str = "offload = { csum = false }";
/// The addresses to which the first host sends, and those of the second host.
const VIPS: [&str; 2] = ["10.9.0.99", "fd09::99"];
const REAL: [&str; 2] = ["10.9.7.2", "fd09:7::2"];
const CLIENTS: [&str; 2] = ["10.9.0.1", "fd09::1"];

/// The MAC address of an interface.
fn mac(net: &Net, name: &str) -> String {
    let line = format!("ip -o link show {name} | sed 's/.*ether \\([^ ]*\\).*/\\1/'");
    net.sh(&line).trim().to_owned()
}

/// Starts a switch between the hosts, with a link between two more of its ports. `words` are for the ports of the hosts,
/// and `labels` are actions in front of the others, towards the second host, by IPv4 and IPv6.
fn start(line: &Line, words: [&str; 2], labels: [&str; 2]) -> Live {
    let near = line.near();
    let client =
        if line.plan.kind == Kind::Tap { "02:00:00:00:00:aa".into() } else { mac(&line.a, "va") };
    line.yard().sh("ip link add l1 type veth peer name l2");
    for name in ["l1", "l2"] {
        line.yard().sh(&format!("ip link set {name} addrgenmode none up"));
    }
    let push = |vid: u32| format!("push_vlan:0x8100,set_field:{vid}->vlan_vid");
    let mut flows = Vec::new();
    for (n, (field, kind)) in [("nw", "ip"), ("ipv6", "ipv6")].into_iter().enumerate() {
        let (vip, real, bits) = (VIPS[n], REAL[n], [32, 128][n]);
        line.b.sh(&format!("ip addr add {real}/{bits} dev vd"));
        line.b.sh(&format!("ip neigh replace {} lladdr {client} dev vd nud permanent", CLIENTS[n]));
        let set = |side: &str, value: &str| match n {
            0 => format!("mod_{field}_{side}:{value}"),
            _ => format!("set_field:{value}->ipv6_{side}"),
        };
        let there = format!("{}dec_ttl,{},{}", labels[n], set("dst", real), push(7));
        flows.push(format!("{kind},in_port=west,{field}_dst={vip},actions={there},output:l1"));
        flows.push(format!("{kind},in_port=l2,dl_vlan=7,actions=strip_vlan,output:east"));
        flows.push(format!("{kind},in_port=east,{field}_src={real},actions={},output:l2", push(8)));
        let back = set("src", vip);
        flows.push(format!("{kind},in_port=l1,dl_vlan=8,actions=strip_vlan,{back},output:west"));
    }
    let link = |name: &str| {
        format!(
            "[[port]]\nname = \"{name}\"\nkind = \"af_packet\"\ninterface = \"{name}\"\ncores = [0]\n\
             ring_frames = 8192\n"
        )
    };
    let text = line.plan.text();
    let text = text[..text.find("[[queue]]").unwrap()].to_owned() + &link("l1") + &link("l2");
    let names = ["name = \"west\"\n", "name = \"east\"\n"];
    let text = names
        .iter()
        .zip(words)
        .fold(text, |text, (name, words)| text.replace(name, &format!("{name}{words}\n")));
    let text = format!(
        "{text}{QUEUE}[work]\nkind = \"switch\"\n[switch]\ndatapath = \"1\"\nflows = {flows:?}\n"
    );
    // Not the default socket: another test program on this machine may use it.
    let mut live = Live::start_with(line.yard(), &text, &["--control", "control"]);
    if line.plan.kind == Kind::Tap {
        wait_until("the tap", || line.a.run("ip link show tap0").status.success());
        line.set_up_tap();
    }
    let far = mac(&line.b, "vd");
    for vip in VIPS {
        line.a.sh(&format!("ip neigh replace {vip} lladdr {far} dev {near} nud permanent"));
    }
    for vip in VIPS {
        wait_until("an answer through the switch", || {
            assert!(live.is_alive(), "{}", live.said("err"));
            line.a.run(&format!("ping -c 1 -W 1 {vip}")).status.success()
        });
    }
    live
}

/// Frames that a host has received by an interface.
fn received(net: &Net, name: &str) -> u64 {
    let text = net.sh(&format!("ip -s -j link show {name}"));
    let all: Value = serde_json::from_str(&text).unwrap();
    all[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

/// The bytes of a stream, and the least number of frames without offloads.
const BYTES: u64 = 16 << 20;
const SEGMENTS: u64 = BYTES / 1460;

/// What streams in both directions have left behind.
struct Seen {
    counters: Value,
    /// Frames that the two hosts have received.
    received: [u64; 2],
}

impl Seen {
    /// The mean length of the frames that the switch has received.
    fn mean(&self) -> u64 {
        total(&self.counters, "rx_bytes") / total(&self.counters, "rx_frames")
    }
}

/// Streams in both directions, by both address families: every byte arrives, and neither host counts a wrong checksum.
fn traffic(kind: Kind, words: [&str; 2], labels: [&str; 2]) -> Seen {
    let line = Line::new(Plan::of(kind));
    let live = start(&line, words, labels);
    for to in VIPS.map(|vip| vip.parse::<IpAddr>().unwrap()) {
        let up = stream(&line.a, &line.b, to, BYTES);
        let down = download(&line.a, &line.b, to, BYTES);
        flowyard_testkit::note!("{kind:?} {words:?}: {to} {up:.0} Mbit/s, back {down:.0}");
    }
    assert_eq!((line.a.checksum_errors(), line.b.checksum_errors()), (0, 0), "wrong checksums");
    let received = [received(&line.a, line.near()), received(&line.b, "vd")];
    let counters = live.stop();
    // Hosts send to groups, for which there is no flow.
    let about = ["no_flow", "overrun"];
    let odd: Vec<_> =
        drops(&counters).into_iter().filter(|(why, _)| !about.contains(&&why[..])).collect();
    assert_eq!(odd, []);
    let seen = Seen { counters, received };
    flowyard_testkit::note!("{kind:?}: {} bytes on average, {received:?} received", seen.mean());
    seen
}

fn translated_and_tagged_streams_stay_long() {
    let _alone = alone();
    for kind in [Kind::Packet, Kind::Tap] {
        let seen = traffic(kind, ["", ""], ["", ""]);
        assert_eq!(total(&seen.counters, "copies"), 0);
        // Half of the frames are acknowledgements.
        assert!(seen.mean() > 6000, "{} bytes on average", seen.mean());
        assert!(seen.received.iter().all(|frames| *frames < SEGMENTS), "{:?}", seen.received);
    }
}

/// The host behind a port that finishes frames verifies each checksum.
fn a_port_without_offloads_cuts_them() {
    let _alone = alone();
    for kind in [Kind::Packet, Kind::Tap] {
        for (at, words) in [["", OFF], [OFF, ""]].into_iter().enumerate() {
            let seen = traffic(kind, words, ["", ""]);
            let (cut, whole) = (seen.received[1 - at], seen.mean());
            assert!(cut > 2 * SEGMENTS, "{words:?}: {cut} frames");
            assert!(whole > 1600, "{words:?}: {whole} bytes on average");
        }
    }
}

/// Labels that are pushed and popped again change nothing, but long frames of these flows are cut in front of them.
fn flows_with_labels_cut_long_frames() {
    let _alone = alone();
    let labels = ["push_mpls:0x8847,pop_mpls:0x0800,", ""];
    let seen = traffic(Kind::Packet, ["", ""], labels);
    let copies = total(&seen.counters, "copies");
    assert!(copies > SEGMENTS / 2, "{copies} copies");
    // Frames of the other flows stay long.
    assert!(seen.received[0] < SEGMENTS, "{:?}", seen.received);
}
