//! The example files for each mode (docs/examples/balance), with the addresses and commands that they name.
//!
//! ```text
//!  client 198.51.100.1 ── [c0] router [b0] ── eth0 [balancer] eth1 ──┐
//!                               [sw, a bridge, 10.0.1.253] ───────────┴── backends 10.0.1.1, 10.0.1.2
//! ```
//!
//! With the one-armed example, eth0 of the balancer is at the bridge.

use std::path::Path;

use super::servers::{Server, nginx, nginx_that};
use crate::yard::{Live, ends, wait_until};
use flowyard_livekit::net::{Net, alone};

flowyard_testkit::tests! {
    the_examples_without_tunnels_serve_clients,
    the_examples_with_tunnels_are_accepted,
}

fn example(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/balance");
    std::fs::read_to_string(root.join(format!("{name}.toml"))).unwrap()
}

/// The hosts around a balancer.
struct Hosts {
    client: Net,
    router: Net,
    balancer: Net,
    backends: [Net; 2],
}

impl Hosts {
    fn new(example: &str) -> Self {
        let [client, router, balancer, a, b] = [(); 5].map(|()| Net::new().unwrap());
        client.cable("wan", &router, "c0", 1);
        client.sh("ip addr add 198.51.100.1/24 dev wan; ip route add default via 198.51.100.254");
        router.sh(
            "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/conf/all/send_redirects; \
             ip addr add 198.51.100.254/24 dev c0; ip link add sw type bridge; ip link set sw up; \
             ip addr add 10.0.1.253/24 dev sw",
        );
        let join = |name: &str| router.sh(&format!("ip link set {name} master sw"));
        let checks = if example == "one-armed" {
            router.cable("b0", &balancer, "eth0", 1);
            join("b0");
            router.sh("ip route add 192.0.2.10/32 via 10.0.1.254");
            "eth0"
        } else {
            router.cable("b0", &balancer, "eth0", 1);
            router.sh("ip addr add 192.0.2.254/24 dev b0");
            router.cable("b1", &balancer, "eth1", 1);
            join("b1");
            "eth1"
        };
        balancer.sh(&format!(
            "ip addr add 10.0.1.252/24 dev {checks}; echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore"
        ));
        for (n, backend) in (1..).zip([&a, &b]) {
            router.cable(&format!("s{n}"), backend, "net", 1);
            join(&format!("s{n}"));
            backend.sh(&format!("ip addr add 10.0.1.{n}/24 dev net"));
            backend.sh(match example {
                "dsr" => {
                    "ip addr add 192.0.2.10/32 dev lo; ip route add default via 10.0.1.253; \
                     echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore; echo 2 > /proc/sys/net/ipv4/conf/all/arp_announce"
                }
                "dnat" => "ip route replace default via 10.0.1.254",
                _ => "ip route add 10.9.0.0/24 via 10.0.1.254",
            });
        }
        Self { client, router, balancer, backends: [a, b] }
    }

    fn serve(&self, example: &str) -> Vec<Server> {
        let none = Path::new("/nonexistent");
        let one = |(name, net): (&str, &Net)| match example {
            "dsr" => nginx(net, name, 80, none),
            "fullnat" => nginx_that(net, name, 8080, none, "proxy_protocol"),
            _ => nginx(net, name, 8080, none),
        };
        ["a", "b"].into_iter().zip(&self.backends).map(one).collect()
    }
}

fn the_examples_without_tunnels_serve_clients() {
    let _alone = alone();
    for name in ["dsr", "dnat", "fullnat", "one-armed"] {
        let hosts = Hosts::new(name);
        let _servers = hosts.serve(name);
        let mut live = Live::start_with(&hosts.balancer, &example(name), &["--control", "sock"]);
        wait_until("the balancer", || {
            assert!(live.is_alive(), "{name}: {}", live.said("err"));
            live.said("err").contains("running")
        });
        let who = || hosts.client.run("curl -s -m 5 http://192.0.2.10/who").stdout;
        let mut seen = std::collections::BTreeMap::<String, u32>::new();
        wait_until("answers of both backends", || {
            let answer = String::from_utf8_lossy(&who()).trim().to_owned();
            *seen.entry(answer).or_default() += 1;
            ["a", "b"].iter().all(|name| seen.contains_key(*name))
        });
        seen.clear();
        for _ in 0..40 {
            *seen.entry(String::from_utf8_lossy(&who()).trim().to_owned()).or_default() += 1;
        }
        assert_eq!(seen.values().sum::<u32>(), 40);
        assert!(seen.keys().all(|name| ["a", "b"].contains(&&**name)), "{name}: {seen:?}");
        // Health checks pass: after some of them, both backends still get connections.
        assert!(!live.said("err").contains("no route"), "{name}: {}", live.said("err"));
        flowyard_testkit::note!("{name}: {seen:?}");
        assert!(hosts.router.sh("ip -o link").contains("sw"));
        live.stop();
    }
}

fn the_examples_with_tunnels_are_accepted() {
    let _alone = alone();
    for name in ["ipip", "gue"] {
        let hosts = Hosts::new(name);
        let checked = ends(&hosts.balancer, &example(name), &["--check"]);
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{name}: {said}");
    }
}
