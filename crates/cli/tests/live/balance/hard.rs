//! Difficult traffic: a SYN flood, MSS clamping, IPv6 extension headers.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowyard_frame::{FlowKey, proto};
use flowyard_ports::af_packet::Sender;
use flowyard_ports::live::Interface;
use flowyard_testkit::{Build, Rng};

use super::balancer::{Balancer, Config, Mode};
use super::load::{Done, Requests};
use super::modes::{answers, through_narrow};
use super::servers::{Echo, Farm};
use super::site::{Site, vips};
use crate::yard::{drops, total, wait_until};
use flowyard_livekit::net::alone;

flowyard_testkit::tests! {
    requests_succeed_beside_a_flood_of_syns,
    clamped_segments_fit_into_a_narrow_link,
    extension_headers_are_skipped,
}

/// The MAC address at the other end of the client's cable.
fn router_mac(site: &Site) -> [u8; 6] {
    let said = site.router.sh("ip -o link show far");
    let mac = said.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap();
    let bytes: Vec<u8> = mac.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

/// Sends SYNs from unused addresses of 10.99.0.0/16 until `over`; the thread returns their number.
fn flood(site: &Site, over: &Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    let (over, to) = (Arc::clone(over), router_mac(site));
    site.client.spawn(move || {
        let mut sender = Sender::open(&Interface::find("near").unwrap(), false).unwrap();
        let (mut rng, mut count) = (Rng::new(3), 0);
        while !over.load(Ordering::Relaxed) {
            let syn = |_| {
                let [a, b, c, d, ..] = rng.below(1 << 32).to_be_bytes()[4..] else {
                    unreachable!()
                };
                let port = u16::from_be_bytes([c, d]);
                let from = Ipv4Addr::new(10, 99, a, b).into();
                let key = FlowKey::five_tuple(proto::TCP, from, port, vips()[0], 80);
                Build::new(&FlowKey { eth_dst: to, ..key }).flags(FlowKey::SYN).bytes()
            };
            let burst: Vec<Vec<u8>> = (0..32).map(syn).collect();
            count += sender.send(burst.iter().map(|frame| &frame[..])).0 as u64;
            std::thread::sleep(Duration::from_millis(1));
        }
        count
    })
}

fn requests_succeed_beside_a_flood_of_syns() {
    let _alone = alone();
    for mode in [Mode::Dnat, Mode::Dsr] {
        let site = Site::new(1, 2, mode);
        site.router.sh("ip route add blackhole 10.99.0.0/16"); // drops the answers
        let farm = Farm::start(&site, &[]);
        let mut config = Config::of(&site);
        config.balance = "connections = 4096\nopening = 512";
        let balancer = Balancer::start(&site, config);
        answers(&site.client);
        let over = Arc::new(AtomicBool::new(false));
        let flood = flood(&site, &over);
        let cookies = || {
            let said = site.backends.iter().map(|net| net.sh("nstat -asz TcpExtSyncookiesSent"));
            let count =
                |text: String| text.lines().nth(1)?.split_whitespace().nth(1)?.parse::<u64>().ok();
            said.filter_map(count).sum::<u64>()
        };
        wait_until("the flood at the backends", || cookies() > 1000);
        let before = cookies();
        let mut done = Done::default();
        for vip in vips() {
            done.add(Requests::short(vip).run(&site.client, 60));
            done.add(Requests::kept(vip, 20).run(&site.client, 10));
        }
        wait_until("more of the flood", || cookies() > before + 5_000);
        over.store(true, Ordering::Relaxed);
        let syns = flood.join().unwrap();
        done.all_well(2);
        let counters = balancer.stop();
        let lost = drops(&counters);
        flowyard_testkit::note!(
            "{mode:?}: {} requests beside {syns} SYNs, none failed; {} frames in, dropped {lost:?}",
            done.requests,
            total(&counters, "rx_frames")
        );
        let odd =
            |(why, _): &&(String, u64)| !["no_service", "not_ip", "overrun"].contains(&&**why);
        assert_eq!(lost.iter().filter(odd).count(), 0, "{lost:?}");
        drop(farm);
    }
}

/// With MSS clamping, the backends' segments fit into a link with a smaller MTU without path MTU
/// discovery.
fn clamped_segments_fit_into_a_narrow_link() {
    let _alone = alone();
    for mode in [Mode::FullNat, Mode::Dsr] {
        let site = Site::new(1, 2, mode);
        let farm = Farm::start(&site, &[]);
        let mut config = Config::of(&site);
        config.service = "mss = 1300";
        let balancer = Balancer::start(&site, config);
        answers(&site.client);
        for vip in vips() {
            // modes.rs shows that backends learn the MTU without clamping.
            assert_eq!(through_narrow(&site, vip).1, Vec::<String>::new());
        }
        site.no_wrong_checksums();
        balancer.stop();
        drop(farm);
    }
}

/// Sends a datagram with the extension headers of these numbers, and expects an answer.
fn extended(site: &Site, headers: &[u8]) {
    let (to, client, vip) = (router_mac(site), "fd01::1".parse().unwrap(), vips()[1]);
    let headers = headers.to_vec();
    let answered = site.client.within(move || {
        let socket = UdpSocket::bind((client, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let key =
            FlowKey::five_tuple(proto::UDP, client, socket.local_addr().unwrap().port(), vip, 7);
        let plain = Build::new(&FlowKey { eth_dst: to, ..key }).payload(&[0; 40]).bytes();
        // [eth 14 | IPv6 40 | headers | UDP]; the IPv6 header has the number of the first header.
        let mut chain = Vec::new();
        for (at, number) in headers.iter().enumerate() {
            let next = headers.get(at + 1).copied().unwrap_or(proto::UDP);
            chain.extend([next, 0, 1, 4, 0, 0, 0, 0]); // one PadN option of six bytes
            assert!(matches!(number, 0 | 60));
        }
        let mut frame = [&plain[..54], &chain, &plain[54..]].concat();
        let length = u16::from_be_bytes([frame[18], frame[19]]) + chain.len() as u16;
        frame[18..20].copy_from_slice(&length.to_be_bytes());
        frame[20] = headers[0];
        let mut sender = Sender::open(&Interface::find("near").unwrap(), false).unwrap();
        assert_eq!(sender.send([&frame[..]].into_iter()).0, 1);
        let mut answer = [0; 100];
        socket.recv_from(&mut answer).map(|(len, from)| (len, from.ip(), answer[0]))
    });
    let (len, from, who) = answered.expect("an answer");
    assert!((len, from) == (40, vip) && (1..=2).contains(&who));
}

fn extension_headers_are_skipped() {
    let _alone = alone();
    for (mode, chains) in [
        // Not with destination options: they may contain a home address, which translation would break
        // (docs/balance.md).
        (Mode::Dnat, &[&[0_u8][..]][..]),
        (Mode::FullNat, &[&[0]]),
        (Mode::Dsr, &[&[0], &[60], &[0, 60]]),
    ] {
        let site = Site::new(1, 2, mode);
        let farm = Farm::start(&site, &[]);
        let _echoes = [1, 2].map(|n| Echo::start(&site, n));
        let balancer = Balancer::start(&site, Config::of(&site));
        answers(&site.client);
        for chain in chains {
            extended(&site, chain);
        }
        site.no_wrong_checksums();
        balancer.stop();
        drop(farm);
    }
}
