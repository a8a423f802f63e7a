//! Long frames through a switch whose flows translate addresses and ports, and put a VLAN tag on one side.
//!
//! ```text
//!  a [10.9.0.1] ── west │ to 10.9.0.99: translate, push a tag │ east ── [vd, vd.7 10.9.7.2] b
//!                       │ from 10.9.7.2: pop the tag, translate│
//! ```

use std::net::IpAddr;

use crate::yard::{Live, drops, total, wait_until};
use flowyard_livekit::line::{Kind, Line, Plan};
use flowyard_livekit::net::{Net, alone};
use flowyard_livekit::traffic::{Datagrams, download, stream};
use serde_json::Value;

flowyard_testkit::tests! {
    translated_and_tagged_streams_stay_long,
    a_port_without_offloads_cuts_them,
    flows_with_labels_cut_long_frames,
}

const OFF: &str = "offload = { csum = false }";
/// The addresses to which the first host sends, and those of the second host behind the tag.
const VIPS: [&str; 2] = ["10.9.0.99", "fd09::99"];
const REAL: [&str; 2] = ["10.9.7.2", "fd09:7::2"];
const CLIENTS: [&str; 2] = ["10.9.0.1", "fd09::1"];

/// The MAC address of an interface.
fn mac(net: &Net, name: &str) -> String {
    let line = format!("ip -o link show {name} | sed 's/.*ether \\([^ ]*\\).*/\\1/'");
    net.sh(&line).trim().to_owned()
}

/// Starts a switch between the hosts, and joins the second host to VLAN 7. `words` are for the two ports, and
/// `labels` are actions in front of the others, towards the second host, by IPv4 and IPv6.
fn start(line: &Line, words: [&str; 2], labels: [&str; 2]) -> Live {
    line.b.sh("ip link add link vd name vd.7 type vlan id 7 && ip link set vd.7 up");
    let near = line.near();
    let client =
        if line.plan.kind == Kind::Tap { "02:00:00:00:00:aa".into() } else { mac(&line.a, "va") };
    let mut flows = Vec::new();
    for (n, (field, kind)) in [("nw", "ip"), ("ipv6", "ipv6")].into_iter().enumerate() {
        let bits = [24, 64][n];
        line.b.sh(&format!("ip addr add {}/{bits} dev vd.7 nodad", REAL[n]));
        let route = [32, 128][n];
        line.b.sh(&format!("ip route replace {}/{route} dev vd.7", CLIENTS[n]));
        line.b
            .sh(&format!("ip neigh replace {} lladdr {client} dev vd.7 nud permanent", CLIENTS[n]));
        let set = |side: &str, value: &str| match n {
            0 => format!("mod_{field}_{side}:{value}"),
            _ => format!("set_field:{value}->ipv6_{side}"),
        };
        flows.push(format!(
            "priority=9,{kind},in_port=west,{field}_dst={},actions={}dec_ttl,{},push_vlan:0x8100,\
             set_field:7->vlan_vid,output:east",
            VIPS[n],
            labels[n],
            set("dst", REAL[n])
        ));
        flows.push(format!(
            "priority=9,{kind},in_port=east,dl_vlan=7,{field}_src={},actions=strip_vlan,{},output:west",
            REAL[n],
            set("src", VIPS[n])
        ));
    }
    let text = line.plan.text();
    let text = text[..text.find("[work]").unwrap()].to_owned();
    let names = ["name = \"west\"\n", "name = \"east\"\n"];
    let text = names
        .iter()
        .zip(words)
        .fold(text, |text, (name, words)| text.replace(name, &format!("{name}{words}\n")));
    let mut live = Live::start(
        line.yard(),
        &format!(
            "{text}[work]\nkind = \"switch\"\n[switch]\ndatapath = \"1\"\nflows = {flows:?}\n"
        ),
    );
    if line.plan.kind == Kind::Tap {
        wait_until("the tap", || line.a.run("ip link show tap0").status.success());
        line.set_up_tap();
    }
    let far = mac(&line.b, "vd.7");
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

/// Wrong checksums that a host has counted.
fn errors(net: &Net) -> u64 {
    let seen = net.sh(
        "nstat -az TcpInCsumErrors UdpInCsumErrors Icmp6InCsumErrors Ip6InHdrErrors IpInHdrErrors",
    );
    let count = |line: &str| line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
    seen.lines().filter_map(count).sum()
}

/// Streams in both directions and datagrams: every byte arrives, and neither host counts a wrong checksum.
fn traffic(kind: Kind, words: [&str; 2], labels: [&str; 2]) -> Value {
    let line = Line::new(Plan::of(kind));
    let live = start(&line, words, labels);
    for to in VIPS.map(|vip| vip.parse::<IpAddr>().unwrap()) {
        let up = stream(&line.a, &line.b, to, 16 << 20);
        let down = download(&line.a, &line.b, to, 16 << 20);
        flowyard_testkit::note!("{kind:?} {words:?}: {to} {up:.0} Mbit/s, back {down:.0}");
        let gap = std::time::Duration::from_micros(300);
        let beside = Datagrams { to, flows: 4, count: 100, bytes: 1200, gap };
        let arrived = beside.send(&line.a, &line.b);
        assert_eq!((arrived.late, arrived.twice), (0, 0), "{arrived:?}");
    }
    assert_eq!((errors(&line.a), errors(&line.b)), (0, 0), "wrong checksums");
    let counters = live.stop();
    // Hosts send to groups, for which there is no flow.
    let odd: Vec<_> = drops(&counters)
        .into_iter()
        .filter(|(why, _)| why != "no_flow" && why != "overrun")
        .collect();
    assert_eq!(odd, []);
    counters
}

/// The mean length of the frames that were received.
fn mean(counters: &Value) -> u64 {
    total(counters, "rx_bytes") / total(counters, "rx_frames")
}

fn translated_and_tagged_streams_stay_long() {
    let _alone = alone();
    for kind in [Kind::Packet, Kind::Tap] {
        let counters = traffic(kind, ["", ""], ["", ""]);
        let finished = ["tx_cut", "tx_segments", "tx_checksums", "copies"];
        assert_eq!(finished.map(|name| total(&counters, name)), [0; 4]);
        // Half of the frames are acknowledgements.
        flowyard_testkit::note!("{kind:?}: {} bytes on average", mean(&counters));
        assert!(mean(&counters) > 3000, "{} bytes on average", mean(&counters));
    }
}

/// The host behind a port that finishes frames verifies each checksum.
fn a_port_without_offloads_cuts_them() {
    let _alone = alone();
    for kind in [Kind::Packet, Kind::Tap] {
        for words in [["", OFF], [OFF, ""]] {
            let counters = traffic(kind, words, ["", ""]);
            let (cut, segments) = (total(&counters, "tx_cut"), total(&counters, "tx_segments"));
            assert!(cut > 50 && segments > 5 * cut, "{words:?}: {cut} frames, {segments} segments");
        }
    }
}

/// Labels that are pushed and popped again change nothing, but long frames of these flows are cut in front of them.
fn flows_with_labels_cut_long_frames() {
    let _alone = alone();
    let counters = traffic(Kind::Packet, ["", ""], ["push_mpls:0x8847,pop_mpls:0x0800,", ""]);
    let [copies, cut] = ["copies", "tx_cut"].map(|name| total(&counters, name));
    assert!(copies > 10_000 && cut == 0, "{copies} copies, {cut} frames cut by ports");
    // Frames of the other flows stay long.
    assert!(mean(&counters) > 3000, "{} bytes on average", mean(&counters));
}
