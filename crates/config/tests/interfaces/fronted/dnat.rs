//! The balancer's `dnat` by XDP, by the yard, and by nft in the kernel: 64-byte datagrams of 64 connections.
//! `FLOWYARD_LIVE=1 cargo test --release -p flowyard-config --test interfaces dnat -- --ignored --nocapture`

use flowyard_frame::{FlowKey, proto};
use flowyard_testkit::Build;

use super::{Lab, Run, Way, rounds_of, tasks};
use flowyard_livekit::net::alone;

flowyard_testkit::tests! {
    dnat on_demand "a measurement",
}

const CLIENT: [u8; 4] = [10, 7, 0, 2];
const VIP: [u8; 4] = [192, 0, 2, 1];
const BACKEND: [u8; 4] = [10, 8, 0, 2];
/// The connections have these source ports, and the 63 after it.
const PORT: u16 = 1024;
const CONNECTIONS: u16 = 64;
/// MAC addresses of client, device (towards the client, towards the backend) and backend.
const MACS: [[u8; 6]; 4] =
    [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3], [2, 0, 0, 0, 0, 4]];

fn frame(from: ([u8; 4], u16), to: ([u8; 4], u16), src: usize, dst: usize) -> Vec<u8> {
    let mut key = FlowKey::five_tuple(proto::UDP, from.0.into(), from.1, to.0.into(), to.1);
    (key.eth_src, key.eth_dst) = (MACS[src], MACS[dst]);
    let mut frame = Build::new(&key).payload(&[0; 18]).bytes(); // and the FCS: 64
    frame[40..42].fill(0); // no UDP checksum
    frame
}

fn request(port: u16) -> Vec<u8> {
    frame((CLIENT, port), (VIP, 53), 0, 1)
}

fn config(offload: bool) -> String {
    let port = |name: &str, interface: &str, mac: usize| {
        format!(
            "[[port]]\nname = \"{name}\"\nkind = \"af_xdp\"\ninterface = \"{interface}\"\ncores = [0]\n\
             mac = \"{}\"\nmatch = [\"all\"]\nring_frames = 4096\n",
            text(mac)
        )
    };
    format!(
        "[yard]\ncores = 1\npin = [1]\n{}{}[[queue]]\nname = \"q\"\norder = \"direct\"\nconsumers = [0]\n\
         [work]\nkind = \"balance\"\n{}[balance]\nclients = {{ port = \"west\", next_hop = \"{}\" }}\n\
         [[service]]\nname = \"dns\"\nvip = \"192.0.2.1\"\nproto = \"udp\"\nport = 53\nmode = \"dnat\"\n\
         [[service.backend]]\nname = \"b\"\naddr = \"10.8.0.2\"\nport = 5353\n\
         exit = {{ port = \"east\", next_hop = \"{}\" }}\n",
        port("west", "vb", 1),
        port("east", "vc", 2),
        if offload { "[offload]\nxdp = true\n" } else { "" },
        text(0),
        text(3),
    )
}

fn text(mac: usize) -> String {
    MACS[mac].map(|byte| format!("{byte:02x}")).join(":")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Nft,
    Yard,
    Xdp,
}

/// The kernel's own: routes, neighbours and a table of nft.
fn nft(lab: &Lab) {
    lab.line.yard().sh(&format!(
        "ip link set vb address {}; ip link set vc address {}; \
         ip addr add 10.7.0.1/24 dev vb; ip addr add 10.8.0.1/24 dev vc; \
         ip neigh add 10.7.0.2 lladdr {} dev vb; ip neigh add 10.8.0.2 lladdr {} dev vc; \
         echo 1 > /proc/sys/net/ipv4/ip_forward; \
         for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done; \
         nft add table ip lb; nft add chain ip lb in '{{ type nat hook prerouting priority dstnat; }}'; \
         nft add rule ip lb in ip daddr 192.0.2.1 udp dport 53 dnat to 10.8.0.2:5353",
        text(1),
        text(2),
        text(0),
        text(3)
    ));
}

fn one(by: By) -> Run {
    let lab = Lab::new();
    let own = tasks();
    let live =
        (by != By::Nft).then(|| crate::yard::Live::start(lab.line.yard(), &config(by == By::Xdp)));
    if by == By::Nft {
        nft(&lab);
    }
    let softirq = lab.threads();
    let yard: Vec<_> = tasks().into_iter().filter(|task| !own.contains(task)).collect();
    // Requests and replies, so that all connections are established.
    let ports = || PORT..PORT + CONNECTIONS;
    for _ in 0..6 {
        Lab::send(&lab.line.a, "va", ports().map(request).collect());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let reply = |port| frame((BACKEND, 5353), (CLIENT, port), 3, 2);
        Lab::send(&lab.line.b, "vd", ports().map(reply).collect());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let run = lab.measure(request(PORT), (CONNECTIONS - 1) as u8, &softirq, &yard);
    if let Some(live) = live {
        let seen = live.stop().total().rx_frames;
        assert!(
            by != By::Xdp || seen < 5000,
            "the yard has seen {seen} frames: XDP does not answer"
        );
    }
    assert!(run.rate > 0.0, "nothing was forwarded: {run:?}");
    run
}

fn dnat() {
    let _alone = alone();
    let ways: [Way<'_>; 3] = [
        ("XDP", &|| one(By::Xdp)),
        ("yard, af_xdp", &|| one(By::Yard)),
        ("nft DNAT", &|| one(By::Nft)),
    ];
    let pairs = [("XDP to the yard", 0, 1), ("XDP to nft", 0, 2)];
    rounds_of("dnat: 64-byte datagrams of 64 connections", &ways, &pairs);
}
