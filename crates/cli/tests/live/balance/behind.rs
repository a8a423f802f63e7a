//! A link with a smaller MTU between the load balancer and its backend: path MTU discovery must reach the
//! sender.
//!
//! ```text
//!  balancer ── [b1] bridge ── [in] r1 [out] ──1400 bytes── [in] r2 [out] ── [in] backend 1
//!                             10.2.0.91                                     10.2.0.1
//! ```
//!
//! `r1` has the MAC address that the load balancer sends to. Its ICMP errors go to the source address of
//! the packet: for `dnat` the client's, for `fullnat` and tunnels the load balancer's.

use super::balancer::{Balancer, Config, Mode};
use super::load::Requests;
use super::modes::{answers, told, upload};
use super::servers::Farm;
use super::site::{BACKEND, EAST, Site, locals, mac, vips};
use super::tunnel::Tunnel;
use crate::yard::drops;
use flowyard_livekit::net::{Net, alone};

flowyard_testkit::tests! {
    clients_learn_of_a_smaller_mtu_behind_the_balancer,
}

/// MTU of the link.
const NARROW: u16 = 1400;

/// Inserts the routers in front of backend 1.
fn routers(site: &Site) -> [Net; 2] {
    let routers = [Net::new().unwrap(), Net::new().unwrap()];
    let (server, [r1, r2]) = (&site.backends[0], &routers);
    for router in &routers {
        router.sh("for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done; \
             echo 1 > /proc/sys/net/ipv4/ip_forward; \
             echo 0 > /proc/sys/net/ipv6/conf/default/disable_ipv6; \
             echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; \
             echo 1 > /proc/sys/net/ipv6/conf/all/forwarding");
    }
    server.sh("ip link del in");
    r1.cable("in", &site.router, "b1", 1);
    r1.cable("out", r2, "in", 1);
    server.cable("in", r2, "out", 1);
    site.router.sh("ip link set b1 master sw");
    r1.sh(&format!(
        "ip link set in address {}; ip link set out mtu {NARROW}; \
         ip addr add 10.2.0.91/24 dev in; ip addr add fd02::91/64 dev in nodad; \
         ip addr add 10.4.0.1/24 dev out; ip addr add fd04::1/64 dev out nodad; \
         ip route add 10.2.0.1 via 10.4.0.2; ip -6 route add fd02::1 via fd04::2",
        mac(BACKEND, 1)
    ));
    r2.sh(&format!(
        "ip link set in mtu {NARROW}; \
         ip addr add 10.4.0.2/24 dev in; ip addr add fd04::2/64 dev in nodad; \
         ip addr add 10.5.0.254/24 dev out; ip addr add fd05::254/64 dev out nodad; \
         ip route add default via 10.4.0.1; ip -6 route add default via fd04::1; \
         ip route add 10.2.0.1 dev out; ip -6 route add fd02::1 dev out"
    ));
    let way = if site.mode == Mode::Dnat { 101 } else { 254 };
    r1.sh(&format!(
        "ip route add default via 10.2.0.{way}; ip -6 route add default via fd02::{way}"
    ));
    locals(1).iter().for_each(|local| {
        r1.sh(&format!("ip neigh replace {local} lladdr {} dev in", mac(EAST, 1)));
    });
    server.sh(&format!(
        "ip link set in address {}; ip addr add 10.5.0.1/24 dev in; ip addr add 10.2.0.1/32 dev in; \
         ip addr add fd05::1/64 dev in nodad; ip addr add fd02::1/128 dev in nodad; \
         ip route del blackhole 10.2.0.101 2> /dev/null; ip route del blackhole 10.2.0.111 2> /dev/null; \
         ip route add default via 10.5.0.254 src 10.2.0.1; \
         ip -6 route add default via fd05::254 src fd02::1",
        mac(BACKEND, 9)
    ));
    routers
}

fn clients_learn_of_a_smaller_mtu_behind_the_balancer() {
    let _alone = alone();
    for mode in [Mode::Dnat, Mode::FullNat, Mode::Ipip] {
        let clock = crate::yard::clock();
        let site = Site::new(1, 1, mode);
        let _routers = routers(&site);
        let farm = Farm::start(&site, &[]);
        let tunnel = mode.tunnels().then(|| Tunnel::start(&site, 1));
        let mut config = Config::of(&site);
        config.service = if mode.tunnels() { "mtu = 1500" } else { "" };
        let balancer = Balancer::start(&site, config);
        answers(&site.client);
        let knows = |vip| {
            let head = match mode {
                Mode::Ipip if vips()[1] == vip => 40,
                Mode::Ipip => 20,
                _ => 0,
            };
            told(&site.client, vip, u32::from(NARROW) - head)
        };
        for vip in vips() {
            assert!(!knows(vip));
            upload(&site, &farm, vip);
            assert!(
                knows(vip),
                "{}",
                site.client.sh("ip route show cache; ip -6 route show cache")
            );
            Requests::kept(vip, 10).run(&site.client, 5).all_well(1);
        }
        drop(tunnel);
        site.no_wrong_checksums();
        let lost = drops(&balancer.stop());
        flowyard_testkit::note!(
            "{mode:?}: uploads through a link with an MTU of {NARROW} bytes, which the client has learned; {:.1} s, dropped {lost:?}",
            clock() as f64 / 1e9
        );
        let about = ["no_service", "not_ip", "overrun", "taken"];
        assert_eq!(lost.iter().filter(|drop| !about.contains(&&*drop.0)).count(), 0, "{lost:?}");
    }
}
