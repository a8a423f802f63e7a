//! Client, router, load balancers and backends, each in a namespace, connected by veths.
//!
//! ```text
//!  client [near] ── [far] router [lb1] ─── [west] balancer 1 [east] ─── [e1]─┐
//!  10.1.0.1            │         [lb2] ─── ...                              (sw) bridge of the router,
//!                      │                             backend n [in] ─── [bn]─┘ 10.2.0.254
//!                      └ 10.1.0.254                  10.2.0.n
//! ```
//!
//! IPv6 is the same with fd01:: for 10.1.0.0, fd02:: for 10.2.0.0. The VIPs are 192.0.2.1 and
//! 2001:db8::1; the router sends them to the load balancers. A backend's direct answers go through the
//! router's bridge.

use std::net::IpAddr;

use super::balancer::Mode;
use flowyard_livekit::net::Net;

pub(crate) const VIPS: [&str; 2] = ["192.0.2.1", "2001:db8::1"];

/// The VIPs, IPv4 first.
pub(crate) fn vips() -> [IpAddr; 2] {
    VIPS.map(|vip| vip.parse().unwrap())
}

/// The MAC address of host number `end` of this kind.
pub(crate) fn mac(kind: u8, end: usize) -> String {
    format!("02:00:00:00:{kind:02x}:{end:02x}")
}
pub(crate) const WEST: u8 = 1;
pub(crate) const EAST: u8 = 2;
/// The router, on its link to a load balancer.
pub(crate) const ROUTER: u8 = 3;
pub(crate) const BACKEND: u8 = 4;
/// The router, on its bridge to the backends.
pub(crate) const BRIDGE: u8 = 5;

pub(crate) struct Site {
    pub(crate) client: Net,
    pub(crate) router: Net,
    pub(crate) balancers: Vec<Net>,
    /// Backend 1 has index 0.
    pub(crate) backends: Vec<Net>,
    pub(crate) mode: Mode,
}

/// Settings of every host: no reverse path filter, both IP versions.
const HOST: &str = "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done; \
    echo 0 > /proc/sys/net/ipv6/conf/lo/disable_ipv6; \
    echo 0 > /proc/sys/net/ipv6/conf/default/disable_ipv6; \
    echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; ";

impl Site {
    /// A site with backends set up for `mode`.
    pub(crate) fn new(balancers: usize, backends: usize, mode: Mode) -> Self {
        let net = |_| Net::new().unwrap();
        let site = Self {
            client: net(0),
            router: net(0),
            balancers: (0..balancers).map(net).collect(),
            backends: (0..backends).map(net).collect(),
            mode,
        };
        let hosts = [&site.client, &site.router];
        hosts.into_iter().chain(&site.backends).for_each(|host| drop(host.sh(HOST)));
        site.client_and_router();
        for (n, balancer) in (1..).zip(&site.balancers) {
            site.balancer(n, balancer);
        }
        for (n, backend) in (1..).zip(&site.backends) {
            site.backend(n, backend);
        }
        site.route_to(&(1..=balancers).collect::<Vec<_>>());
        site
    }

    fn client_and_router(&self) {
        let Self { client, router, .. } = self;
        client.cable("near", router, "far", 1);
        client.sh("ip addr add 10.1.0.1/24 dev near; ip addr add fd01::1/64 dev near nodad; \
             ip route add default via 10.1.0.254; ip -6 route add default via fd01::254");
        router.sh("echo 1 > /proc/sys/net/ipv4/ip_forward; \
             echo 1 > /proc/sys/net/ipv6/conf/all/forwarding; \
             ip addr add 10.1.0.254/24 dev far; ip addr add fd01::254/64 dev far nodad; \
             ip link add sw type bridge mcast_snooping 0; ip link set sw up; \
             ip addr add 10.2.0.254/24 dev sw; ip addr add fd02::254/64 dev sw nodad");
    }

    /// Load balancer `n`, which has only the addresses of its ports.
    fn balancer(&self, n: usize, balancer: &Net) {
        let router = &self.router;
        balancer.cable("west", router, &format!("lb{n}"), 1);
        balancer.cable("east", router, &format!("e{n}"), 1);
        balancer.sh(&format!(
            "ip link set west address {}; ip link set east address {}",
            mac(WEST, n),
            mac(EAST, n)
        ));
        router.sh(&format!(
            "ip link set e{n} master sw; ip link set lb{n} address {}; \
             ip addr add 10.3.{n}.1/24 dev lb{n}; ip addr add fd03:{n}::1/64 dev lb{n} nodad; \
             ip neigh replace 10.3.{n}.2 lladdr {west} dev lb{n}; \
             ip neigh replace fd03:{n}::2 lladdr {west} dev lb{n}",
            mac(ROUTER, n),
            west = mac(WEST, n)
        ));
    }

    fn backend(&self, n: usize, backend: &Net) {
        backend.cable("in", &self.router, &format!("b{n}"), 1);
        self.router.sh(&format!("ip link set b{n} master sw"));
        backend.sh(&format!(
            "ip link set in address {}; \
             ip addr add 10.2.0.{n}/24 dev in; ip addr add fd02::{n}/64 dev in nodad",
            mac(BACKEND, n)
        ));
        // The load balancers' local addresses.
        for lb in 1..=self.balancers.len() {
            for local in locals(lb) {
                let known = match self.mode {
                    // The load balancer only sends into tunnels; errors about them are not needed.
                    Mode::Ipip | Mode::Gue => format!("ip route add blackhole {local}"),
                    _ => format!("ip neigh replace {local} lladdr {} dev in", mac(EAST, lb)),
                };
                backend.sh(&known);
            }
        }
        let way = match self.mode {
            Mode::Dnat => ["10.2.0.101", "fd02::101"],
            _ => ["10.2.0.254", "fd02::254"],
        };
        backend.sh(&format!(
            "ip route add default via {}; ip -6 route add default via {}",
            way[0], way[1]
        ));
        if !self.mode.translates() {
            backend.sh(&format!(
                "ip addr add {}/32 dev lo; ip addr add {}/128 dev lo nodad",
                VIPS[0], VIPS[1]
            ));
        }
    }

    /// Makes the router send the VIPs to these load balancers, by a hash of the 5-tuple.
    pub(crate) fn route_to(&self, balancers: &[usize]) {
        let hops = |prefix: &str, mid: &str| -> String {
            balancers.iter().map(|n| format!(" nexthop via {prefix}{n}{mid}2 dev lb{n}")).collect()
        };
        self.router.sh(&format!(
            "echo 1 > /proc/sys/net/ipv4/fib_multipath_hash_policy; \
             echo 1 > /proc/sys/net/ipv6/fib_multipath_hash_policy; \
             ip route replace {}/32{}; ip -6 route replace {}/128{}",
            VIPS[0],
            hops("10.3.", "."),
            VIPS[1],
            hops("fd03:", "::")
        ));
    }

    /// Removes all configured MAC addresses, so that hosts must resolve them. The VIPs are on the router's
    /// link to load balancer 1, as for clients on the same link.
    pub(crate) fn forget(&self) {
        let flush = "ip neigh flush nud permanent; ip -6 neigh flush nud permanent";
        self.router.sh(&format!(
            "{flush}; ip route replace {}/32 dev lb1; ip -6 route replace {}/128 dev lb1",
            VIPS[0], VIPS[1]
        ));
        for backend in &self.backends {
            // Backends that have the VIP on `lo` must not answer for it.
            backend.sh(&format!(
                "{flush}; echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore; \
                 echo 2 > /proc/sys/net/ipv4/conf/all/arp_announce"
            ));
        }
    }

    /// Gives load balancer `n` another link to the backends, for packets that its kernel sends.
    pub(crate) fn manage(&self, n: usize) {
        let net = &self.balancers[n - 1];
        net.sh("echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore; \
             echo 0 > /proc/sys/net/ipv6/conf/default/disable_ipv6; \
             echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad");
        net.cable("own", &self.router, &format!("own{n}"), 1);
        self.router.sh(&format!("ip link set own{n} master sw"));
        net.sh(&format!(
            "ip addr add 10.2.0.{0}/24 dev own; ip addr add fd02::{0}/64 dev own nodad",
            200 + n
        ));
    }

    /// Gives the kernel of load balancer `n` an address on the interface that the load balancer uses, as in
    /// docs/balance.md.
    pub(crate) fn own_address(&self, n: usize) {
        self.balancers[n - 1].sh(&format!(
            "echo 0 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore; \
             echo 0 > /proc/sys/net/ipv6/conf/east/disable_ipv6; \
             ip addr add 10.2.0.{0}/24 dev east; ip addr add fd02::{0}/64 dev east nodad",
            200 + n
        ));
    }

    /// Makes the router send the VIPs to load balancer 1 by the bridge to the backends.
    pub(crate) fn one_armed(&self) {
        self.router.sh(&format!(
            "ip link set sw address {}; \
             ip neigh replace 10.2.0.101 lladdr {east} dev sw; ip neigh replace fd02::101 lladdr {east} dev sw; \
             ip route replace {}/32 via 10.2.0.101 dev sw; ip -6 route replace {}/128 via fd02::101 dev sw; \
             for f in /proc/sys/net/ipv4/conf/*/send_redirects; do echo 0 > $f; done",
            mac(BRIDGE, 1),
            VIPS[0],
            VIPS[1],
            east = mac(EAST, 1),
        ));
    }

    /// Makes hosts complete checksums in software, because XDP cannot do so.
    pub(crate) fn complete_checksums(&self) {
        self.client.sh("ethtool -K near tx off > /dev/null");
        for backend in &self.backends {
            backend.sh("ethtool -K in tx off > /dev/null");
        }
    }

    /// Lets the router receive frames that XDP of a load balancer redirects: its end of a veth needs NAPI.
    pub(crate) fn receive_redirects(&self) {
        for n in 1..=self.balancers.len() {
            // Not merged by GRO: what ends the tunnels here reads one packet at a time.
            self.router.sh(&format!(
                "ethtool -K lb{n} gro on; ethtool -K e{n} gro on; ip link set e{n} gro_max_size 1500"
            ));
        }
    }

    /// Sets the MTU from the router to the client.
    pub(crate) fn narrow(&self, mtu: u32) {
        self.router.sh(&format!("ip link set far mtu {mtu}"));
    }

    /// Sets the size of the client's packets, whatever MTU it has learned.
    pub(crate) fn client_sends(&self, mtu: u32) {
        self.client.sh(&format!(
            "ip route replace default via 10.1.0.254 mtu {mtu}; ip route flush cache; \
             ip -6 route replace default via fd01::254 mtu {mtu}; ip -6 route flush cache"
        ));
    }

    /// Checks that no host received a frame with a wrong checksum.
    #[track_caller]
    pub(crate) fn no_wrong_checksums(&self) {
        for host in std::iter::once(&self.client).chain(&self.backends) {
            let said = host.sh("nstat -asz '*InCsumErrors' '*InHdrErrors'");
            let counts: Vec<&str> = said.lines().filter(|line| !line.starts_with('#')).collect();
            assert!(counts.len() >= 5, "{said}");
            let wrong = |line: &&&str| line.split_whitespace().nth(1) != Some("0");
            assert_eq!(counts.iter().filter(wrong).count(), 0, "{said}");
        }
    }
}

/// Load balancer `n`'s own addresses: two for each IP version, for two cores.
pub(crate) fn locals(n: usize) -> [String; 4] {
    [
        format!("10.2.0.{}", 100 + n),
        format!("10.2.0.{}", 110 + n),
        format!("fd02::{}", 100 + n),
        format!("fd02::{}", 110 + n),
    ]
}
