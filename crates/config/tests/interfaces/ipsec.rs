//! Long frames of hosts through a tunnel: the gateway cuts and seals them, and the other one opens their packets.
//!
//! ```text
//!  a [va] ── [vb] gateway [vc] ══ ESP ══ [vd] gateway [ve] ── [vg] b
//!  a [tap0 ── gateway ── va] ════ ESP ══ [vd] gateway [ve] ── [vg] b
//! ```
//!
//! `ipsec_rate` is a measurement, not a test:
//! `FLOWYARD_LIVE=1 cargo test --release -p flowyard-config --test interfaces ipsec_rate -- --ignored --nocapture`

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use flowyard_ipsec::IpsecHub;
use flowyard_livekit::net::{Net, alone};
use flowyard_livekit::traffic::{download, stream};
use flowyard_yard::DropReason;
use flowyard_yard::run::Outcome;

use crate::yard::{Live, drops_but};

flowyard_testkit::tests! {
    long_frames_pass_a_tunnel needs [crate::NAMESPACES],
    long_frames_pass_a_tunnel_on_two_cores needs [crate::NAMESPACES],
    opened_packets_leave_one_by_one_if_asked_for needs [crate::NAMESPACES],
    without_offloads_a_gateway_gets_no_long_frame needs [crate::NAMESPACES],
    ipsec_rate on_demand "a measurement",
}

/// The addresses of the gateways' ports inside and outside, by gateway.
const MACS: [[&str; 2]; 2] =
    [["02:00:00:00:01:01", "02:00:00:00:01:02"], ["02:00:00:00:02:01", "02:00:00:00:02:02"]];
/// Of the hosts.
const HOSTS: [&str; 2] = ["02:00:00:00:0a:01", "02:00:00:00:0b:01"];
/// The longest packet that fits the tunnel.
const MTU: u32 = 1420;

/// What differs between tests.
#[derive(Clone, Copy, Debug)]
struct Form {
    is_tap: bool,
    is_v6: bool,
    is_udp: bool,
    cores: usize,
    /// More keys of each port.
    words: &'static str,
    /// Whether opened packets are coalesced.
    coalesce: bool,
}

const FORM: Form =
    Form { is_tap: false, is_v6: false, is_udp: false, cores: 1, words: "", coalesce: true };
const OFF: &str = "offload = { csum = false }\n";

fn files(folder: &Path, form: Form) {
    let ends = if form.is_v6 { ["2001:db8::1", "2001:db8::2"] } else { ["192.0.2.1", "192.0.2.2"] };
    let encap =
        if form.is_udp { " encap type espinudp sport 4500 dport 4500 addr 0.0.0.0\n" } else { "" };
    let sa = |from: usize| {
        format!(
            "src {} dst {}\n proto esp spi {} reqid 1 mode tunnel\n replay-window 64 flag esn\n aead rfc4106(gcm(aes)) \
             0x000102030405060708090a0b0c0d0e0f1011121{from} 128\n{encap}",
            ends[from],
            ends[1 - from],
            0x1000 + from
        )
    };
    let path = folder.join("state");
    std::fs::write(&path, [sa(0), sa(1)].concat()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    for here in 0..2 {
        let policy = |from: usize, dir: &str, net: fn(usize) -> String| {
            format!(
                "src {} dst {}\n dir {dir} priority 1\n tmpl src {} dst {}\n proto esp reqid 1 mode tunnel\n",
                net(from),
                net(1 - from),
                ends[from],
                ends[1 - from]
            )
        };
        let nets: [fn(usize) -> String; 2] =
            [|n| format!("10.{}.0.0/16", n + 1), |n| format!("fd0{}::/16", n + 1)];
        let all = nets.map(|net| [policy(here, "out", net), policy(1 - here, "fwd", net)].concat());
        std::fs::write(folder.join(format!("policy{here}")), all.concat()).unwrap();
    }
}

/// The configuration of gateway `here` between these interfaces.
fn text(folder: &Path, form: Form, here: usize, [inside, outside]: [&str; 2]) -> String {
    let port = |name: &str, interface: &str, mac: &str, core: usize| {
        let kind = match interface {
            "tap0" => format!("kind = \"tap\"\nmtu = {MTU}\ninterface_mac = \"{}\"", HOSTS[0]),
            _ => "kind = \"af_packet\"\nring_frames = 8192".to_owned(),
        };
        format!(
            "[[port]]\nname = \"{name}\"\ninterface = \"{interface}\"\nmac = \"{mac}\"\n{kind}\ncore = {core}\n{}",
            form.words
        )
    };
    let route = |prefix: String, port: &str, hop: &str| {
        format!("[[work.route]]\nprefix = \"{prefix}\"\nport = \"{port}\"\nnext_hop = \"{hop}\"\n")
    };
    let order = if form.cores == 1 { "direct" } else { "ordered" };
    let consumers: Vec<_> = (0..form.cores).collect();
    [
        format!("[yard]\ncores = {}\n", form.cores),
        port("inside", inside, MACS[here][0], 0),
        port("outside", outside, MACS[here][1], form.cores - 1),
        format!("[[queue]]\nname = \"q\"\norder = \"{order}\"\nconsumers = {consumers:?}\n[work]\nkind = \"ipsec\"\n"),
        route(format!("10.{}.0.0/16", here + 1), "inside", HOSTS[here]),
        route(format!("fd0{}::/16", here + 1), "inside", HOSTS[here]),
        route("0.0.0.0/0".to_owned(), "outside", MACS[1 - here][1]),
        route("::/0".to_owned(), "outside", MACS[1 - here][1]),
        format!(
            "[ipsec]\nstate = {:?}\npolicy = {:?}\ncoalesce = {}\n",
            folder.join("state"),
            folder.join(format!("policy{here}")),
            form.coalesce
        ),
    ]
    .concat()
}

/// Two hosts with a gateway each.
struct Site {
    hosts: [Net; 2],
    gateways: [Live; 2],
    _nets: Vec<Net>,
    _folder: tempfile::TempDir,
}

/// Gives a host its addresses, and the way to the other one.
fn address(host: &Net, name: &str, here: usize) {
    let (n, far) = (here + 1, 2 - here);
    for line in [
        format!("ip link set {name} address {} mtu {MTU} up", HOSTS[here]),
        format!("echo 0 > /proc/sys/net/ipv6/conf/{name}/disable_ipv6"),
        format!("ip addr add 10.{n}.0.2/16 dev {name}; ip addr add fd0{n}::2/64 dev {name} nodad"),
        format!("ip neigh replace 10.{n}.0.1 lladdr {} dev {name} nud permanent", MACS[here][0]),
        format!("ip neigh replace fd0{n}::1 lladdr {} dev {name} nud permanent", MACS[here][0]),
        format!(
            "ip route add 10.{far}.0.0/16 via 10.{n}.0.1; ip route add fd0{far}::/16 via fd0{n}::1"
        ),
    ] {
        host.sh(&line);
    }
}

impl Site {
    fn new(form: Form) -> Self {
        let folder = tempfile::tempdir().unwrap();
        files(folder.path(), form);
        let [a, b, two] = [(); 3].map(|()| Net::new().unwrap());
        let mut nets = Vec::new();
        let first = if form.is_tap {
            a.cable("va", &two, "vd", 1);
            Live::start(&a, &text(folder.path(), form, 0, ["tap0", "va"]))
        } else {
            let one = Net::new().unwrap();
            a.cable("va", &one, "vb", 1);
            one.cable("vc", &two, "vd", 1);
            let live = Live::start(&one, &text(folder.path(), form, 0, ["vb", "vc"]));
            nets.push(one);
            live
        };
        two.cable("ve", &b, "vg", 1);
        address(&a, if form.is_tap { "tap0" } else { "va" }, 0);
        address(&b, "vg", 1);
        let second = Live::start(&two, &text(folder.path(), form, 1, ["ve", "vd"]));
        nets.push(two);
        Self { hosts: [a, b], gateways: [first, second], _nets: nets, _folder: folder }
    }

    fn hubs(&self) -> [Arc<IpsecHub>; 2] {
        [0, 1].map(|n| self.gateways[n].running.handle().control_plane::<IpsecHub>().unwrap())
    }

    /// Ends both, and checks what they dropped. Hosts send to groups, which a router does not forward.
    fn stop(self) -> [Outcome; 2] {
        let about =
            [DropReason::Filtered, DropReason::NotIp, DropReason::Overrun, DropReason::NoRoute];
        self.gateways.map(|live| {
            let outcome = live.stop();
            let total = outcome.total();
            let drops: Vec<_> = total.drops.iter().collect();
            flowyard_testkit::note!("{} in, {} out, {drops:?}", total.rx_frames, total.tx_frames);
            assert_eq!(drops_but(&outcome, &about), 0, "{:?}", outcome.total().drops);
            outcome
        })
    }
}

fn far() -> [IpAddr; 2] {
    ["10.2.0.2", "fd02::2"].map(|to| to.parse().unwrap())
}

/// What a gateway counted.
fn total(hub: &IpsecHub, name: &str) -> u64 {
    hub.totals.values().into_iter().find(|(word, _)| *word == name).unwrap().1
}

/// Streams in both directions, whole and in order, without a wrong checksum and without a packet that a gateway refuses.
/// Returns what each gateway cut, the segments of that, and the opened packets that left as parts of long frames.
fn traffic(form: Form) -> [[u64; 3]; 2] {
    let site = Site::new(form);
    let [a, b] = &site.hosts;
    for to in far() {
        let up = stream(a, b, to, 16 << 20);
        let down = download(a, b, to, 16 << 20);
        flowyard_testkit::note!("{form:?}: {to} {up:.0} Mbit/s, back {down:.0}");
    }
    assert_eq!((a.checksum_errors(), b.checksum_errors()), (0, 0), "wrong checksums");
    let hubs = site.hubs();
    for hub in &hubs {
        for sa in hub.sas() {
            let counts = sa.counts.read();
            assert!(counts.packets > 5000, "{counts:?}");
            let refused = [counts.late, counts.replayed, counts.unauthentic, counts.malformed];
            assert_eq!(refused, [0; 4], "{counts:?}");
        }
    }
    let sealed = hubs.map(|hub| {
        flowyard_testkit::note!("{:?}", hub.totals.values());
        [total(&hub, "cut"), total(&hub, "segments")]
    });
    let coalesced = site.stop().map(|outcome| outcome.total().tx_coalesced);
    [0, 1].map(|n| [sealed[n][0], sealed[n][1], coalesced[n]])
}

fn long_frames_pass_a_tunnel() {
    for form in [
        FORM,
        Form { is_tap: true, ..FORM },
        Form { is_v6: true, ..FORM },
        Form { is_udp: true, is_tap: true, ..FORM },
    ] {
        let _alone = alone();
        for [cut, segments, coalesced] in traffic(form) {
            // Each direction has 32 MiB, that is 24,000 segments.
            assert!(cut > 300 && segments > 5 * cut && segments > 15_000, "{cut} {segments}");
            assert!(coalesced > 5000, "{coalesced}");
        }
    }
}

fn opened_packets_leave_one_by_one_if_asked_for() {
    let _alone = alone();
    for [cut, _, coalesced] in traffic(Form { coalesce: false, ..FORM }) {
        assert!(cut > 300 && coalesced == 0, "{cut} {coalesced}");
    }
}

/// Both cores cut and seal, and packets leave in the order of their numbers: windows of 64 refuse none.
fn long_frames_pass_a_tunnel_on_two_cores() {
    for is_tap in [false, true] {
        let _alone = alone();
        for [cut, segments, coalesced] in traffic(Form { is_tap, cores: 2, ..FORM }) {
            assert!(cut > 300 && segments > 5 * cut && segments > 15_000, "{cut} {segments}");
            assert!(coalesced > 1000, "{coalesced}");
        }
    }
}

fn without_offloads_a_gateway_gets_no_long_frame() {
    let _alone = alone();
    let sealed = traffic(Form { words: OFF, ..FORM });
    assert_eq!(sealed, [[0; 3]; 2]);
}

/// Streams from one host to the other in turn: with all offloads, without coalescing of opened packets, and without any. Prints the
/// rate, and the time for which the gateway that opens the packets was busy. That includes what the kernel does when the gateway
/// transmits, which is most of what the receiving host does with a frame.
fn ipsec_rate() {
    let _alone = alone();
    let forms = [FORM, Form { coalesce: false, ..FORM }, Form { words: OFF, ..FORM }];
    let names = ["all offloads", "coalesce = false", "no offloads"];
    let (mut rates, mut costs) = ([(); 6].map(|()| Vec::new()), [(); 6].map(|()| Vec::new()));
    for round in 0..5 {
        for turn in 0..6 {
            let at = (turn + round) % 6;
            let (is_tap, form) = (at / 3 == 1, at % 3);
            let site = Site::new(Form { is_tap, ..forms[form] });
            let rate = stream(&site.hosts[0], &site.hosts[1], far()[0], MEGABYTES << 20);
            let [_, second] = site.stop();
            let cost = second.total().busy_ns as f64 / MEGABYTES as f64;
            flowyard_testkit::note!(
                "  tap {is_tap}, {}: {rate:.0} Mbit/s, {cost:.0} ns a MiB",
                names[form]
            );
            rates[at].push(rate);
            costs[at].push(cost);
        }
    }
    for at in 0..6 {
        let [rate, cost] = [&mut rates[at], &mut costs[at]].map(|all| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        });
        flowyard_testkit::note!(
            "tap {}, {}: medians {rate:.0} Mbit/s, {cost:.0} ns a MiB",
            at / 3 == 1,
            names[at % 3]
        );
    }
}

/// The size of a stream of [`ipsec_rate`].
const MEGABYTES: u64 = 128;
