//! Each mode with both IP versions: short and kept connections, curl, uploads, memcached, fragmented
//! datagrams, and a download through a link with a smaller MTU.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::balancer::{Balancer, Config, Mode};
use super::load::{Requests, Web, content, echoes, memcached, small};
use super::servers::{Echo, Farm, Server};
use super::site::{Site, vips};
use super::tunnel::Tunnel;
use crate::yard::{drops, total, wait_until};
use flowyard_livekit::net::{Net, alone};
use flowyard_testkit::harness::{self, Need};

flowyard_testkit::tests! {
    dsr,
    dnat,
    fullnat,
    ipip,
    ipip_by_the_other_family,
    gue,
    dnat_by_af_xdp,
    ipip_by_af_xdp,
    dsr_offloaded,
    dnat_offloaded,
    ipip_offloaded,
}

/// Waits until the VIPs respond.
pub(crate) fn answers(client: &Net) {
    for vip in vips() {
        wait_until("the VIP", || {
            client.within(move || {
                let web = Web::open((vip, 80).into(), Duration::from_millis(300));
                web.and_then(|mut web| web.get("/who", true)).is_ok()
            })
        });
    }
}

/// The VIP as in a URL.
fn host(vip: IpAddr) -> String {
    if vip.is_ipv4() { vip.to_string() } else { format!("[{vip}]") }
}

/// curl with one connection per request, and with one for all.
fn curl(client: &Net, vip: IpAddr) {
    let url = format!("http://{}/who", host(vip));
    let curl = "curl -sSf --noproxy '*' --max-time 60 -w '%{num_connects}\\n' -o /dev/null";
    for _ in 0..3 {
        assert_eq!(client.sh(&format!("{curl} {url}")), "1\n");
    }
    let many = format!("-o /dev/null {url} ").repeat(9);
    let connects = client.sh(&format!("{curl} {url} {many}"));
    assert_eq!(connects, format!("1\n{}", "0\n".repeat(9)), "one connection for ten requests");
}

/// Uploads a large file. With tunnels, it arrives only if the client learns the smaller MTU by ICMP.
pub(crate) fn upload(site: &Site, farm: &Farm, vip: IpAddr) {
    let data = content(2 << 20);
    let name = if vip.is_ipv4() { "four" } else { "six" };
    let sent = data.clone();
    site.client.within(move || {
        let mut web = Web::open((vip, 80).into(), Duration::from_secs(60)).unwrap();
        web.upload(&format!("/up/{name}"), &sent).unwrap();
    });
    let there = (1..=site.backends.len()).filter_map(|n| farm.uploaded(n, name).ok());
    let there: Vec<_> = there.collect();
    assert!(there == [data], "{} backends have it", there.len());
}

/// Whether the route to `vip` in `net` has learned this path MTU.
pub(crate) fn told(net: &Net, vip: IpAddr, mtu: u32) -> bool {
    let family = if vip.is_ipv4() { "-4" } else { "-6" };
    net.sh(&format!("ip {family} route show cache")).contains(&format!("mtu {mtu} "))
}

/// A download through a last link with a smaller MTU: only the backend that sends learns it.
pub(crate) fn narrow(site: &Site, vip: IpAddr) {
    let (who, told) = through_narrow(site, vip);
    assert_eq!(told, [who], "backends that have learned the path MTU");
}

/// A download whose last link has an MTU of 1400 bytes. Returns the backend that sent, and the backends that
/// have learned the MTU.
pub(crate) fn through_narrow(site: &Site, vip: IpAddr) -> (String, Vec<String>) {
    site.narrow(1400);
    let who = site.client.within(move || {
        let mut web = Web::open((vip, 80).into(), Duration::from_secs(60)).unwrap();
        let who = web.get("/who", false).unwrap();
        web.download("/files/small", &small()).unwrap();
        who
    });
    site.narrow(1500);
    let all = (1..).zip(&site.backends).filter(|(_, net)| told(net, vip, 1400));
    (who, all.map(|(n, _)| format!("b{n}")).collect())
}

/// XDP answers packets, and the balancer counts them. XDP gets a connection when the balancer has time to give it, so on a busy machine more
/// requests are needed until it has answered enough.
fn offloaded(site: &Site, balancer: &Balancer) {
    let count = || {
        let shown = balancer.lb(&["show"]);
        let services = shown["services"].as_array().unwrap();
        let sum = |name: &str| -> u64 {
            services.iter().map(|service| service["counters"][name].as_u64().unwrap()).sum()
        };
        (sum("offloaded_packets"), sum("in_packets") + sum("out_packets"))
    };
    let (mut offloaded, mut all) = count();
    let mut more = 0;
    while offloaded <= 1000 && more < 20 {
        let done = Requests::kept(vips()[0], 200).run(&site.client, 10);
        assert_eq!(done.failed, 0, "{done:?}");
        more += 1;
        (offloaded, all) = count();
    }
    flowyard_testkit::note!("XDP has answered {offloaded} of {all} packets, {more} more runs");
    assert!(offloaded > 1000, "{offloaded} of {all} packets");
}

/// All traffic with one mode.
fn everything(site: &Site, config: Config) {
    let clock = crate::yard::clock();
    let tunneled = config.mode.tunnels();
    let farm = Farm::start(site, &[]);
    let all = 1..=site.backends.len();
    let echo: Vec<Echo> = all.clone().map(|n| Echo::start(site, n)).collect();
    let caches: Vec<Server> =
        match harness::can_run("requests to memcached", Need::Program("memcached")) {
            true => all.clone().map(|n| super::servers::memcached(site, n)).collect(),
            false => Vec::new(),
        };
    let tunnels: Vec<Tunnel> =
        all.clone().filter(|_| tunneled).map(|n| Tunnel::start(site, n)).collect();
    let what = format!("{:?}, {}, {} cores", config.mode, config.kind, config.cores);
    let (crossed, offload) = (config.crossed, config.offload);
    let balancer = Balancer::start(site, config);
    answers(&site.client);
    let (mut requests, mut datagrams) = (0, 0);
    for vip in vips() {
        let mut done = Requests::short(vip).run(&site.client, 100);
        done.add(Requests::kept(vip, 40).run(&site.client, 10));
        requests += done.all_well(site.backends.len()).requests;
        curl(&site.client, vip);
        upload(site, &farm, vip);
        if tunneled {
            // The client has learned 1500 bytes minus the outer headers.
            let head = if vip.is_ipv4() == crossed { 40 } else { 20 };
            let gue = if site.mode == Mode::Gue { 8 } else { 0 };
            assert!(
                told(&site.client, vip, 1500 - head - gue),
                "{}",
                site.client.sh("ip route show cache")
            );
        }
        narrow(site, vip);
        if !caches.is_empty() {
            datagrams += 2 * memcached(&site.client, vip, 8);
        }
        if tunneled {
            site.client_sends(1400); // fragments that fit into the tunnel
        }
        let mut answered = BTreeSet::new();
        for bytes in [100, 1400, 4000, 20_000] {
            let by = echoes(&site.client, vip, (8, 3), bytes);
            assert_eq!(by.values().sum::<usize>(), 24, "{by:?}");
            answered.extend(by.into_keys());
            datagrams += 24;
        }
        assert_eq!(answered.len(), site.backends.len());
        if tunneled {
            site.client_sends(1500);
        }
    }
    for tunnel in tunnels {
        let came = tunnel.stop();
        assert_eq!(came.wrong, 0, "{came:?}");
        assert!(came.within.iter().all(|n| *n > 100), "{came:?}");
    }
    site.no_wrong_checksums();
    if offload {
        offloaded(site, &balancer);
    }
    let counters = balancer.stop();
    let lost = drops(&counters);
    flowyard_testkit::note!(
        "{what}: {requests} requests and {datagrams} datagrams, none failed; {} frames in {:.1} s, dropped {lost:?}",
        total(&counters, "rx_frames"),
        clock() as f64 / 1e9,
    );
    // The bridge floods frames with unknown addresses, and hosts announce themselves.
    let about = ["no_service", "not_ip", "overrun"];
    let odd: Vec<_> = lost.iter().filter(|d| !about.contains(&&*d.0)).collect();
    assert_eq!(odd, Vec::<&(String, u64)>::new());
    drop((echo, caches));
}

fn by(mode: Mode, change: impl FnOnce(&mut Config)) {
    let _alone = alone();
    let site = Site::new(1, 2, mode);
    let mut config = Config::of(&site);
    config.service = if mode.tunnels() { "mtu = 1500" } else { "" };
    change(&mut config);
    if config.kind == "af_xdp" {
        site.complete_checksums();
    }
    if config.offload {
        site.receive_redirects();
    }
    everything(&site, config);
}

fn dsr() {
    by(Mode::Dsr, |_| {});
}

fn dnat() {
    by(Mode::Dnat, |config| config.cores = 2);
}

fn fullnat() {
    by(Mode::FullNat, |config| (config.cores, config.choice) = (2, "roundrobin"));
}

fn ipip() {
    by(Mode::Ipip, |_| {});
}

fn ipip_by_the_other_family() {
    by(Mode::Ipip, |config| config.crossed = true);
}

fn gue() {
    by(Mode::Gue, |_| {});
}

fn dnat_by_af_xdp() {
    by(Mode::Dnat, |config| (config.kind, config.choice) = ("af_xdp", "least"));
}

fn ipip_by_af_xdp() {
    by(Mode::Ipip, |config| config.kind = "af_xdp");
}

fn dsr_offloaded() {
    by(Mode::Dsr, |config| (config.kind, config.offload) = ("af_xdp", true));
}

fn dnat_offloaded() {
    by(Mode::Dnat, |config| (config.kind, config.offload) = ("af_xdp", true));
}

fn ipip_offloaded() {
    by(Mode::Ipip, |config| (config.kind, config.offload) = ("af_xdp", true));
}
